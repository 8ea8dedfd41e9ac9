/* wgsl: the inside of the WGSL printer, for the files that print one kind of kernel each. A stage
 * is printed as statements and functions. The resolver (wgsl_resolve.h) names arguments, scratch
 * and arrays in workgroup memory, and makes a module of the stage when it ends. The statements find
 * in scope:
 *   t: i32      index in the workgroup
 *   group: i32  index of the workgroup over all dimensions, below the number given to end
 *   slice: i32  in a chain: the slice of this workgroup; then group counts from 0 in each slice
 * and declare
 *   i0, i1, ..  loop indices, i32 (by the printer of the loop)
 *   v0, v1, ..  values of body instructions
 * After a failure all functions do nothing. Must not know devices. */
#ifndef TG_EMIT_WGSL_H
#define TG_EMIT_WGSL_H

#include "emit/emit.h"
#include "emit/body.h"
#include "emit/wgsl_resolve.h"
#include "tile/launch.h"

#define TG_WGSL_MAX_STAGES 64
#define TG_WGSL_MAX_HELPERS 64

struct tg_wgsl {
    const tg_program *program;
    const tg_kernel *kernel;
    const tg_device_model *limits;
    tg_arena *arena;    /* of the result */
    tg_body_info *body; /* per body instruction */
    int32_t sweeps;     /* REDUCE: depth of the deepest reduction */
    tg_tile_frame frame;
    const tg_launch *launch; /* NULL: a lone kernel */
    /* NULL: nothing is printed. The first member of a struct of its own file */
    tg_wgsl_resolver *resolver;
    /* in a chain, loop 0 has the extent of one slice; the index i0 is that of the whole loop */
    int64_t extent[TG_MAX_LOOP];

    /* the stage being printed */
    const char *what;         /* as given to begin */
    tg_text_buffer functions; /* at module scope */
    tg_text_buffer main;      /* statements */
    int indent;
    /* goes before the name of each function that a printer defines: "", "k3_" */
    const char *prefix;
    /* how a loop's index is spelled; "i3" from begin on. NULL: it is 0 here */
    const char *index[TG_MAX_LOOP];
    const char *accumulator; /* how TG_K_ACC is spelled */
    bool f16;                /* it has values of type f16 */
    /* it has subgroup matrices, and main gets `subgroup`, the subgroup's number in the workgroup */
    bool matrices;
    bool helper[TG_WGSL_MAX_HELPERS]; /* of the module */

    int64_t scratch_words; /* of the kernel, all stages */
    int32_t stage_count;   /* of the kernel, those that have ended */
    bool tuned;            /* the kernel was laid out by limits.schedules */
    tg_status status;
};

/* ---- stages. `what` joins the comment ("partial sums of 8 parts"); NULL: nothing. end makes the
 * given number of workgroups of `size` invocations, spread over more dimensions if one cannot take
 * them. */
void tg_wgsl_begin(tg_wgsl *w, const char *what);
void tg_wgsl_end(tg_wgsl *w, int64_t workgroups, int32_t size);

static inline bool tg_wgsl_is_lone(const tg_wgsl *w) { return w->frame.size == 0; }
/* As tg_tile_workgroup_bytes. */
int32_t tg_wgsl_workgroup_bytes(const tg_wgsl *w, bool vectors);
/* May an argument be read as vec4s? Beside other kernels only if none of them writes to its block,
 * because a write of one component is allowed to touch the whole vector. */
bool tg_wgsl_may_widen(const tg_wgsl *w, int32_t argument);
/* What is bound for a buffer in a launch of several kernels: TG_WGSL_WORKSPACE, ... */
int32_t tg_wgsl_block_of(const tg_buffer *buffer);
/* "slice * 512 + ": goes before an index into values that lie `step` apart from slice to slice;
 * nothing in a lone kernel. */
void tg_wgsl_slice(tg_wgsl *w, int64_t step);

/* ---- lines. One line, indented; a line that starts with '}' closes a block, one that ends with
 * '{' opens one. */
void tg_wgsl_line(tg_wgsl *w, const char *format, ...) TG_PRINTF(2, 3);
/* A line that is begun here, continued with tg_text_add(&w->main, ...), and ended by
 * tg_wgsl_newline. */
void tg_wgsl_start(tg_wgsl *w);
void tg_wgsl_newline(tg_wgsl *w);

/* ---- expressions, appended to w->main */
/* i32; never negative where a load is allowed */
void tg_wgsl_affine(tg_wgsl *w, const tg_affine *at);
/* only these loops; "" if nothing */
void tg_wgsl_affine_over(tg_wgsl *w, const tg_affine *at, int begin, int end, bool offset);
/* bool */
void tg_wgsl_bounds(tg_wgsl *w, const tg_bound *bounds, int count);
/* infinities and NaN too */
void tg_wgsl_literal(tg_wgsl *w, tg_dtype dtype, double value);
/* Lines `let i<d> = ...;` for loops [begin, end) from the i32 variable `flat`, which is a row-major
 * number, 0 <= flat. */
void tg_wgsl_decode(tg_wgsl *w, const char *flat, int begin, int end);

/* ---- memory */
/* Makes room in the kernel's scratch, a multiple of 4 words; returns its first word. To be called
 * before any begin. */
int64_t tg_wgsl_scratch(tg_wgsl *w, int64_t words);
/* Does the body store to it? */
bool tg_wgsl_body_writes(const tg_wgsl *w, int32_t argument);
/* elements of the argument's buffer */
int64_t tg_wgsl_count(const tg_wgsl *w, int32_t argument);

/* ---- the body. Lines for the live instructions of one phase, in order; the loop indices they need
 * are in scope. In a CONTRACT: TOP once, before the tile's loops; ELEMENT at each (batch, m, n),
 * inside a block of its own, with w->accumulator set (f32). */
void tg_wgsl_body(tg_wgsl *w, tg_phase phase);
/* The store i, of the value that is called `value`. */
void tg_wgsl_store(tg_wgsl *w, int32_t i, const char *value);
void tg_wgsl_instruction(tg_wgsl *w, int32_t i);
/* The name of a math helper ("tg_exp"), which the stage then defines. */
const char *tg_wgsl_helper(tg_wgsl *w, const char *name);
/* all helpers that the expression calls */
void tg_wgsl_use_helpers(tg_wgsl *w, const char *expression);
void tg_wgsl_define_helpers(tg_wgsl *w, tg_text_buffer *text); /* those the stage uses, once each */
bool tg_wgsl_has_helper(const tg_wgsl *w, const char *name);
/* Is an operand of an elementwise instruction printed as tg_keep(v), a value that the compiler
 * cannot know (wgsl_keep.c)? */
bool tg_wgsl_keeps(const tg_wgsl *w, const tg_instruction *in, int operand);

/* ---- for files that have a kernel printed (wgsl_lone.c, wgsl_join.c, wgsl_launch.c) */
/* NULL recorded */
tg_wgsl *tg_wgsl_open(const tg_program *program, const tg_device_model *limits, tg_arena *arena);
void tg_wgsl_close(tg_wgsl *w);
/* Prints all stages of w->kernel with w->resolver. */
tg_status tg_wgsl_print(tg_wgsl *w);
/* Sets vectors[i] if printing w->kernel will read argument i as vec4s, in its first stage. */
tg_status tg_wgsl_plan_vectors(tg_wgsl *w, bool *vectors);
/* Adds the candidates of w->kernel if it is a contraction; other kinds have none. */
tg_status tg_wgsl_list_candidates(tg_wgsl *w, tg_tile_candidates *candidates);
/* The program's launch as one dispatch (wgsl_join.c). TG_ERROR_LIMIT: its kernels do not fit
 * together. */
tg_status tg_wgsl_join(const tg_program *program, const tg_launch *launch, const tg_device_model *limits, const tg_schedule *schedule,
                       tg_arena *arena, tg_wgsl_kernel *out);
/* The name of a binding in a module of several kernels: "workspace", "state3"; `text` is room for
 * it. */
const char *tg_wgsl_block_name(int32_t binding, char *text, size_t size);

/* ---- for resolvers. A module is, in this order: comment, enable, declarations, helpers,
 * functions, main_head, statements, "}". */
/* a line that says what the stage is */
void tg_wgsl_comment(const tg_wgsl *w, tg_text_buffer *text);
void tg_wgsl_enable(tg_text_buffer *text, bool f16, bool matrices);
/* Spreads workgroups over three dimensions. False: they are more than allowed. */
bool tg_wgsl_spread(const tg_wgsl *w, int64_t workgroups, int32_t groups[3]);
/* `main` up to the workgroup's number, a variable called `index`. To be called after the helpers
 * are known. */
void tg_wgsl_main_head(const tg_wgsl *w, tg_text_buffer *text, const int32_t groups[3], int64_t workgroups, int32_t size,
                       const char *index);

/* ---- kinds of kernel: each prints all stages of w->kernel. */
void tg_wgsl_map(tg_wgsl *w);
void tg_wgsl_reduce(tg_wgsl *w);
void tg_wgsl_contract(tg_wgsl *w);
void tg_wgsl_scatter(tg_wgsl *w);
/* tg_wgsl_plan_vectors and tg_wgsl_list_candidates for a contraction. */
void tg_wgsl_contract_vectors(tg_wgsl *w, bool *vectors);
void tg_wgsl_contract_candidates(tg_wgsl *w, tg_tile_candidates *candidates);

/* TG_ERROR_LIMIT, TG_ERROR_INTERNAL: recorded, all stops */
void tg_wgsl_fail(tg_wgsl *w, tg_status status, const char *what);
/* product of extents; 1 if there are none */
int64_t tg_wgsl_points(const tg_wgsl *w, int begin, int end);

#endif
