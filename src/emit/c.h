/* c (private to src/emit): what the files of the C printer share. c.c prints the file, c_kernel.c
 * its functions, c_attention.c those of attention, c_expression.c the instructions in them. Must not know WGSL. */
#ifndef TG_EMIT_C_H
#define TG_EMIT_C_H
#include "emit/emit.h"
#include "emit/body.h"
#include "ir/dtype.h"

/* small functions that printed code may call; printed only if they are used */
enum { TG_C_HELPERS = 15 };

/* One file while it is printed. */
typedef struct tg_c_file {
    const tg_program *program;
    tg_text_buffer *text;
    /* per buffer: the last kernel so far that overwrote in place the value that the buffer is
     * named after; -1: none */
    int32_t *writer;
    bool used[TG_C_HELPERS];
    bool bad; /* an instruction that this printer does not know */
} tg_c_file;

/* One kernel while it is printed. */
typedef struct tg_c_kernel {
    tg_c_file *file;
    const tg_kernel *kernel;
    tg_body_info *notes; /* per body instruction */
    int32_t sweeps;      /* depth of the deepest reduction */
    int indent;
} tg_c_kernel;

/* ---- c.c */
/* The name by which the user knows a buffer: an input or a state, else the value that is computed
 * into it first. NULL: it has no name. */
const char *tg_c_buffer_name(const tg_program *program, int32_t buffer);
void tg_c_kernel_name(tg_text_buffer *text, const tg_program *program, int32_t i);

/* ---- c_kernel.c */
/* Prints kernel `index`. TG_ERROR_MEMORY; TG_ERROR_INTERNAL if an instruction has no spelling. */
tg_status tg_c_print_kernel(tg_c_file *file, int32_t index);

/* `for` over loop d with the index i<d>; the end of `count` blocks. */
void tg_c_open_loop(tg_c_kernel *k, int d);
void tg_c_close_loops(tg_c_kernel *k, int count);

/* ---- c_attention.c */
/* The loops of a kernel of kind ATTENTION. */
void tg_c_attention(tg_c_kernel *k);

/* ---- c_expression.c */
const char *tg_c_type(tg_dtype dtype); /* of a value in a kernel */
/* of an element in a buffer; loads and stores convert by assignment */
const char *tg_c_memory_type(tg_dtype dtype);
void tg_c_literal(tg_text_buffer *text, tg_dtype dtype, double value);
void tg_c_indent(tg_c_kernel *k);
/* offset + sum stride * i, over loops [0, loop_count) */
void tg_c_affine(tg_c_kernel *k, const tg_affine *at);
/* Notes the helpers that `spelling` calls. */
void tg_c_use_helpers(tg_c_file *file, const char *spelling);
/* One line for instruction i of the body: a declaration or a store. */
void tg_c_instruction(tg_c_kernel *k, int32_t i);
/* The helpers that were used. */
void tg_c_helpers(const tg_c_file *file);
#endif
