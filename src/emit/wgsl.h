/* wgsl: the inside of the WGSL printer, for the files that print one kind of kernel each. A stage
 * is printed as statements and functions; arguments, scratch and arrays in workgroup memory are
 * named by the resolver (wgsl_resolve.h), which makes a module of the stage when it ends. The
 * statements find in scope:
 *   t: i32      index in the workgroup
 *   group: i32  index of the workgroup, folding undone, below the number given to end
 *   slice: i32  in a chain: the slice of this workgroup; then group counts from 0 in each slice
 * and declare
 *   i0, i1, ..  loop indices, i32 (by whoever prints the loop)
 *   v0, v1, ..  values of body instructions
 * All functions do nothing once something failed. Must not know devices. */
#ifndef TG_EMIT_WGSL_H
#define TG_EMIT_WGSL_H

#include "emit/emit.h"
#include "emit/places.h"
#include "emit/wgsl_resolve.h"
#include "tile/launch.h"

#define TG_WGSL_MAX_STAGES 64
#define TG_WGSL_MAX_HELPERS 64

struct tg_wgsl {
    const tg_program *program;
    const tg_kernel *kernel;
    const tg_device_model *limits;
    tg_arena *arena;   /* of the result */
    tg_placed *places; /* per body instruction */
    int32_t passes;    /* REDUCE: depth of the deepest reduction */
    tg_tile_frame frame;
    const tg_launch *launch;     /* NULL: a lone kernel */
    tg_wgsl_resolver *resolver;  /* NULL: nothing is printed. First member of its own file's struct */
    int64_t extent[TG_MAX_LOOP]; /* in a chain, loop 0 has the extent of one slice's block; the index i0 is that of the whole loop */

    /* the stage being printed */
    const char *what;         /* as given to begin */
    tg_text_buffer functions; /* at module scope */
    tg_text_buffer main;      /* statements */
    int indent;
    const char *prefix;               /* before the name of each function that a printer defines: "", "k3_" */
    const char *index[TG_MAX_LOOP];   /* how a loop's index is spelt; "i3" from begin on. NULL: it is 0 here */
    const char *accumulator;          /* how TG_K_ACC is spelt */
    bool f16;                         /* it has values of that type */
    bool matrices;                    /* it has subgroup matrices, and main gets `subgroup`, the subgroup's number in the workgroup */
    bool helper[TG_WGSL_MAX_HELPERS]; /* of the module */

    int64_t scratch_words; /* of the kernel, all stages */
    int32_t stage_count;   /* of the kernel, ended */
    bool tuned;            /* the kernel was laid out as limits.schedules says */
    tg_status status;
};

/* ---- stages. `what` joins the comment ("partial sums of 8 parts"); NULL: nothing. end makes as many workgroups of `size`
 * invocations as said, folded where they are more than one dimension takes. */
void tg_wgsl_begin(tg_wgsl *w, const char *what);
void tg_wgsl_end(tg_wgsl *w, int64_t workgroups, int32_t size);

static inline bool tg_wgsl_is_lone(const tg_wgsl *w) { return w->frame.size == 0; }
/* As tg_tile_workgroup_bytes. */
int32_t tg_wgsl_workgroup_bytes(const tg_wgsl *w, bool vectors);
/* Whether an argument may be read as vec4s: beside other kernels only where none of them writes to its block, because a write of one
 * component is allowed to touch the whole vector. */
bool tg_wgsl_may_widen(const tg_wgsl *w, int32_t argument);
/* What a launch of several kernels binds for a buffer: TG_WGSL_WORKSPACE, ... */
int32_t tg_wgsl_block_of(const tg_buffer *buffer);
/* "slice * 512 + ": the text before an index into memory whose slices are `step` apart; nothing in
 * a lone kernel. */
void tg_wgsl_slice(tg_wgsl *w, int64_t step);

/* ---- lines. One line, indented; a line that starts with '}' closes a block, one that ends with '{' opens one. */
void tg_wgsl_line(tg_wgsl *w, const char *format, ...) TG_PRINTF(2, 3);
/* A line begun, continued with tg_text_add(&w->main, ...), and ended by tg_wgsl_newline. */
void tg_wgsl_start(tg_wgsl *w);
void tg_wgsl_newline(tg_wgsl *w);

/* ---- expressions, appended to w->main */
void tg_wgsl_affine(tg_wgsl *w, const tg_affine *at); /* i32; never negative where a load is allowed */
void tg_wgsl_affine_over(tg_wgsl *w, const tg_affine *at, int begin, int end, bool offset); /* only these loops; "" if nothing */
void tg_wgsl_bounds(tg_wgsl *w, const tg_bound *bounds, int count);                         /* bool */
void tg_wgsl_literal(tg_wgsl *w, tg_dtype dtype, double value);                             /* infinities and NaN too */
/* Lines `let i<d> = ...;` for loops [begin, end) from the i32 variable `flat`, which is a row-major number, 0 <= flat. */
void tg_wgsl_decode(tg_wgsl *w, const char *flat, int begin, int end);

/* ---- memory */
/* Makes room in the kernel's scratch, a multiple of 4 words; returns its first word. Before any begin. */
int64_t tg_wgsl_scratch(tg_wgsl *w, int64_t words);
bool tg_wgsl_body_touches(const tg_wgsl *w, int32_t argument); /* loads, gathers or stores of the body (not a and b of CONTRACT) */
int64_t tg_wgsl_count(const tg_wgsl *w, int32_t argument);     /* elements of the argument's buffer */

/* ---- the body. Lines for the live instructions of one place, in order; the loop indices they need are in scope. In a CONTRACT:
 * TOP once, before the tile's loops; ELEMENT at every (batch, m, n), inside a block of its own, w->accumulator set (f32). */
void tg_wgsl_body(tg_wgsl *w, tg_place place);
void tg_wgsl_instruction(tg_wgsl *w, int32_t i);
/* The name of a math helper ("tg_exp"), which the stage then defines. */
const char *tg_wgsl_helper(tg_wgsl *w, const char *name);
void tg_wgsl_use_helpers(tg_wgsl *w, const char *expression);  /* every helper that the expression calls */
void tg_wgsl_define_helpers(tg_wgsl *w, tg_text_buffer *text); /* those the stage uses, once each */
bool tg_wgsl_has_helper(const tg_wgsl *w, const char *name);
/* Whether an operand of an elementwise instruction is printed as tg_keep(v): a value that the compiler cannot know (wgsl_keep.c). */
bool tg_wgsl_keeps(const tg_wgsl *w, const tg_instruction *in, int operand);

/* ---- for those who have a kernel printed (wgsl_lone.c, wgsl_join.c, wgsl_launch.c) */
tg_wgsl *tg_wgsl_open(const tg_program *program, const tg_device_model *limits, tg_arena *arena); /* NULL recorded */
void tg_wgsl_close(tg_wgsl *w);
/* Prints all stages of w->kernel by way of w->resolver. */
tg_status tg_wgsl_print(tg_wgsl *w);
/* Sets vectors[i] where printing w->kernel will read argument i as vec4s, in its first stage. */
tg_status tg_wgsl_plan_vectors(tg_wgsl *w, bool *vectors);
/* Adds the candidates of w->kernel: of a contraction; other kinds have none. */
tg_status tg_wgsl_list_candidates(tg_wgsl *w, tg_tile_candidates *candidates);
/* The program's launch as one dispatch (wgsl_join.c). TG_ERROR_LIMIT: its kernels do not fit
 * together. */
tg_status tg_wgsl_join(const tg_program *program, const tg_launch *launch, const tg_device_model *limits, const tg_schedule *schedule,
                       tg_arena *arena, tg_wgsl_kernel *out);
/* What a binding is called in a module of several kernels: "workspace", "state3"; `text` is room
 * for it. */
const char *tg_wgsl_block_name(int32_t binding, char *text, size_t size);

/* ---- for resolvers. A module is, in this order: comment, enable, declarations, helpers,
 * functions, main_head, statements, "}". */
void tg_wgsl_comment(const tg_wgsl *w, tg_text_buffer *text); /* a line: what the stage is */
void tg_wgsl_enable(tg_text_buffer *text, bool f16, bool matrices);
/* Folds workgroups in three dimensions. False: more than there may be. */
bool tg_wgsl_fold(const tg_wgsl *w, int64_t workgroups, int32_t groups[3]);
/* `main` up to the workgroup's number, a variable called `index`. After the helpers are known. */
void tg_wgsl_main_head(const tg_wgsl *w, tg_text_buffer *text, const int32_t groups[3], int64_t workgroups, int32_t size,
                       const char *index);

/* ---- kinds of kernel: each prints all stages of w->kernel. */
void tg_wgsl_map(tg_wgsl *w);
void tg_wgsl_reduce(tg_wgsl *w);
void tg_wgsl_contract(tg_wgsl *w);
void tg_wgsl_scatter(tg_wgsl *w);
/* What tg_wgsl_plan_vectors and tg_wgsl_list_candidates say of a contraction. */
void tg_wgsl_contract_vectors(tg_wgsl *w, bool *vectors);
void tg_wgsl_contract_candidates(tg_wgsl *w, tg_tile_candidates *candidates);

void tg_wgsl_fail(tg_wgsl *w, tg_status status, const char *what); /* TG_ERROR_LIMIT, TG_ERROR_INTERNAL: recorded, all stops */
int64_t tg_wgsl_points(const tg_wgsl *w, int begin, int end);      /* product of extents; 1 when there are none */

#endif
