/* emit: prints kernel IR as source. Must not look at the graph. */
#ifndef TG_EMIT_H
#define TG_EMIT_H
#include "tile/schedule.h"
#include "plan/program.h"
/* One self-contained C11 file: for each kernel a static function in plain loops,
 * `tg_kernel_<i>_<name>(void *const *buffers)`, and `void tg_emitted_run(void *const *buffers)`
 * that calls them in order. Buffers as in program.buffers (bool: one byte each; constants are in
 * the file, their pointers are not read). No dependency except math.h and stdint.h. An oracle for
 * the executors and an export: f32 arithmetic throughout, but sums and contractions accumulate in
 * double. Comments name each buffer and, for each kernel, the buffers that it reads and writes. */
tg_status tg_emit_c(const tg_program *program, tg_text_buffer *text);
/* `name` as a comment may hold it: without anything that opens or ends a comment or a line. */
void tg_emit_c_noted(tg_text_buffer *text, const char *name);

/* ---- WGSL: what one launch is on a GPU. It is one stage, or several if a reduction or a long
 * contraction is split so that enough workgroups work on it: then each stage leaves partial results
 * in a scratch buffer, and the next one reads them, always added in the same order. No atomics:
 * same input, same bits. */

/* Modules, entry point `main`, that use all that kernels use of an optional part of WGSL: a device
 * that makes pipelines of them takes the kernels. Trying them is safer than reading lists of
 * features: numbers and layouts of an experiment change from one library to the next. */
extern const char tg_wgsl_f16_probe[];
extern const char tg_wgsl_matrix_probe[];

/* What a stage binds that is not one buffer: a whole block, or a whole state (by its slot in the
 * program). */
#define TG_WGSL_SCRATCH (-1)
#define TG_WGSL_WORKSPACE (-2)
#define TG_WGSL_INPUTS (-3)
#define TG_WGSL_CONSTANTS (-4)
#define TG_WGSL_STATE(slot) (-5 - (slot))
#define TG_WGSL_STATE_SLOT(binding) (-5 - (binding))
typedef struct tg_wgsl_stage {
    /* one module, entry point `main`; NUL-terminated. The module of a lone kernel names no buffer
     * and no kernel number, so that equal kernels of a program have equal sources and share a
     * pipeline */
    const char *source;
    size_t length;
    int32_t groups[3]; /* to dispatch */
    int32_t binding_count;
    /* @group(0) @binding(i) var<storage, read_write>. A lone kernel binds buffers, each once, as
     * array<f32, n>, array<i32, n>, array<u32, n> (bool: 0 or 1) or array<vec4<f32>, n / 4> over
     * all count elements; kernels launched together bind blocks and states, as array<u32, n> or
     * array<vec4<u32>, n / 4> */
    const int32_t *bindings;
} tg_wgsl_stage;
typedef struct tg_wgsl_kernel {
    int32_t stage_count;
    tg_wgsl_stage *stages;
    int64_t scratch_bytes; /* of this launch; 0: none. Contents need not survive it */
    int32_t tuned;         /* 1: laid out by limits.schedules; 0: by the printers' own rules */
} tg_wgsl_kernel;
/* Prints kernel `index` of a program made with in_words into `arena`; bindings[i] >= 0 is
 * kernel->arguments[bindings[i]]. Errors: TG_ERROR_MEMORY; TG_ERROR_LIMIT if it cannot be launched
 * within `limits`. Must depend on nothing except its arguments: the browser replays the result. */
tg_status tg_emit_wgsl(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena, tg_wgsl_kernel *out);
/* Prints launch `index`; bindings[i] >= 0 is program->buffers[bindings[i]]. Side by side, the
 * workgroup's index selects the kernel; in a chain a workgroup is a slice and runs all kernels,
 * with barriers between. Kernels that do not fit together in `limits` are printed one after
 * another. */
tg_status tg_emit_wgsl_launch(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                              tg_wgsl_kernel *out);
/* What a tuning table could say of launch `index`: its key, and the schedules that can be printed
 * within `limits` (their own table is ignored): first the one that the printer chooses by itself,
 * then the others, cheapest first by its own estimate. If there is no choice: count 0. */
typedef struct tg_wgsl_candidates {
    const char *key;
    tg_schedule *items; /* in the arena, like the key */
    int32_t count;
} tg_wgsl_candidates;
tg_status tg_wgsl_find_candidates(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                                  tg_wgsl_candidates *out);
/* All launches, one after another, each stage under a comment with its number and workgroups: for
 * people. */
tg_status tg_emit_wgsl_text(const tg_program *program, const tg_device_model *limits, tg_text_buffer *text);

/* ---- the kernel that draws a batch: one dispatch before each step of a submission. Words have 4
 * bytes; a bool is one word. */
typedef struct tg_draw_array {
    /* words: where the rows begin in the data; where the batch begins in the block of inputs */
    int64_t from, to;
    int64_t row; /* words */
} tg_draw_array;
/* What the kernel binds, in this order, all read_write. */
enum {
    /* TG_DRAW_WORDS words, from tg_draw_control; word 0 counts the steps of this submission from
     * 0 */
    TG_DRAW_NOW,
    /* the same; word 0 is written: it is the NOW of the next step. The two take turns */
    TG_DRAW_AFTER,
    TG_DRAW_INPUTS, /* the executable's block of inputs */
    TG_DRAW_LOSS,   /* 1 word: the loss of the step before */
    /* word i gets the loss of step i of this submission, in the draw of step i + 1 */
    TG_DRAW_HISTORY,
    TG_DRAW_DATA,
    TG_DRAW_BINDINGS
};
/* Into `arena`. The bindings of the stage are left NULL. */
tg_status tg_emit_wgsl_draw(const tg_draw_array *arrays, int32_t count, int64_t rows, int64_t batch, const tg_device_model *limits,
                            tg_arena *arena, tg_wgsl_stage *out);
#endif
