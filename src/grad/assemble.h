/* assemble: cotangents that are put together once all of them are known, because one operation on
 * all of them costs less than a sum of many:
 *   boxes of one tensor   slices that do not overlap become one concatenation, zeros in the gaps;
 *                         boxes that do overlap are spread over as few layers as possible, which
 *                         are added. T slices cost one tensor each layer, not T padded tensors
 *   products              the sum over t of left_t^T right_t is one contraction of all rows
 *   sums over rows        the sum over t of sum(x_t) is one sum over all rows
 * Products and sums are joined where there are at least TG_ASSEMBLE_LEAST of one shape, each of at
 * most TG_ASSEMBLE_ROWS rows. Others are added one by one. The order of terms depends on the trace
 * alone. Must not know how forward nodes are visited or which rule gave a cotangent. */
#ifndef TG_GRAD_ASSEMBLE_H
#define TG_GRAD_ASSEMBLE_H
#include "ir/graph.h"

enum { TG_ASSEMBLE_LEAST = 8, TG_ASSEMBLE_ROWS = 512 };

typedef enum tg_piece_kind { TG_PIECE_BOX, TG_PIECE_PRODUCT, TG_PIECE_SUM } tg_piece_kind;

/* One cotangent of a forward node, not yet made:
 *   BOX      x at start[] of a tensor of zeros
 *   PRODUCT  x [B, S, R]^T y [B, S, C], batch by batch
 *   SUM      x, summed over axes */
typedef struct tg_piece {
    tg_piece_kind kind;
    int32_t x, y;
    uint32_t axes;
    int64_t start[TG_MAX_RANK];
    int32_t next; /* the piece of the same forward node that came before; 0: none */
} tg_piece;

/* The pieces of all forward nodes. */
typedef struct tg_pieces {
    TG_LIST(tg_piece) list; /* item 0 is not used */
    int32_t *last;          /* forward node -> its last piece, 0: none */
} tg_pieces;

/* Are pieces of this kind and shape joined, if there are enough of them? */
bool tg_piece_joins(const tg_graph *g, const tg_piece *piece);
/* A product or a sum by itself, in its own shape; 0 recorded. */
int32_t tg_piece_make(tg_graph *g, const tg_piece *piece);
/* Keeps a copy of `piece` for node `id`; false: recorded. */
bool tg_pieces_add(tg_graph *g, tg_pieces *pieces, int32_t id, const tg_piece *piece);
/* Gives node `to` all pieces of `from`, a reshape of it. False, and nothing moves, if one is a
 * box. */
bool tg_pieces_move(tg_pieces *pieces, int32_t from, int32_t to);
/* Makes all pieces of node `id`, of that shape, and forgets them: a node that is their sum. There
 * is at least one. 0 recorded. Cost: O(n log n) for n
 * pieces, times the number of layers. */
int32_t tg_pieces_make(tg_graph *g, tg_pieces *pieces, int32_t id, tg_shape shape);
#endif
