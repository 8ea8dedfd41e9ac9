/* emit: print kernel IR as source. Never looks at the graph. */
#ifndef TG_EMIT_H
#define TG_EMIT_H
#include "tile/schedule.h"
#include "plan/program.h"
/* One self-contained C11 file: a static function `tg_kernel_<i>_<name>(void *const *buffers)` per kernel in plain loops,
 * and `void tg_emitted_run(void *const *buffers)` that calls them in order; buffers as program.buffers (bool: one byte
 * each; constants are in the file, their pointers are not read). No dependency but math.h, stdint.h. An oracle for the
 * executors and an export: f32 arithmetic throughout, but sums and contractions accumulate in double. Comments name every buffer,
 * and of each kernel the buffers that it reads and writes. */
tg_status tg_emit_c(const tg_program *program, tg_text_buffer *text);
/* `name` as a comment may hold it: nothing that opens or ends one, or a line. */
void tg_emit_c_noted(tg_text_buffer *text, const char *name);

/* ---- WGSL: what one launch is on a GPU. It is one stage, or several where a reduction or a long contraction is split so that enough
 * workgroups work on it: then each stage leaves partial results in a scratch buffer that the next one reads, always added in the
 * same order. No atomics: same input, same bits. */

/* Modules, entry point `main`, that use all that kernels use of an optional part of WGSL: a device that makes pipelines of them takes
 * the kernels. Asking beats reading lists: numbers and layouts of an experiment change from one library to the next. */
extern const char tg_wgsl_f16_probe[];
extern const char tg_wgsl_matrix_probe[];

/* What a stage binds, where it is not one buffer: all of a block, or all of a state (by its slot in the program). */
#define TG_WGSL_SCRATCH (-1)
#define TG_WGSL_WORKSPACE (-2)
#define TG_WGSL_INPUTS (-3)
#define TG_WGSL_CONSTANTS (-4)
#define TG_WGSL_STATE(slot) (-5 - (slot))
#define TG_WGSL_STATE_SLOT(binding) (-5 - (binding))
typedef struct tg_wgsl_stage {
    const char *source; /* one module, entry point `main`; NUL-terminated. Of a lone kernel it names no buffer and no kernel number, so
                           that equal kernels of a program have equal sources and share a pipeline */
    size_t length;
    int32_t groups[3]; /* to dispatch */
    int32_t binding_count;
    const int32_t *bindings; /* @group(0) @binding(i) var<storage, read_write>. A lone kernel binds buffers, each once, as array<f32, n>,
                                array<i32, n>, array<u32, n> (bool: 0 or 1) or array<vec4<f32>, n / 4> over all count elements; kernels
                                launched together bind blocks and states, as array<u32, n> or array<vec4<u32>, n / 4> */
} tg_wgsl_stage;
typedef struct tg_wgsl_kernel {
    int32_t stage_count;
    tg_wgsl_stage *stages;
    int64_t scratch_bytes; /* of this launch; 0: none. Contents need not survive it */
    int32_t tuned;         /* 1: laid out as limits.schedules says; 0: by the printers' own rules */
} tg_wgsl_kernel;
/* Prints kernel `index` of a program made with in_words into `arena`; bindings[i] >= 0 is kernel->arguments[bindings[i]].
 * Errors: TG_ERROR_MEMORY; TG_ERROR_LIMIT when it cannot be launched within `limits`. Must not depend on anything but its
 * arguments: the browser replays what this says. */
tg_status tg_emit_wgsl(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena, tg_wgsl_kernel *out);
/* Prints launch `index`; bindings[i] >= 0 is program->buffers[bindings[i]]. Side by side, the workgroup's index selects the kernel; in a
 * chain a workgroup is a slice and runs every kernel, with barriers between. Kernels that do not fit together in `limits` are
 * printed one after another. */
tg_status tg_emit_wgsl_launch(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                              tg_wgsl_kernel *out);
/* What a table could say of launch `index`: its key, and the schedules that can be printed within `limits`, whose own table is not
 * looked at: first the one that the printer takes by itself, then the others, cheapest first by its own estimate. No choice: count 0. */
typedef struct tg_wgsl_candidates {
    const char *key;
    tg_schedule *items; /* in the arena, as the key */
    int32_t count;
} tg_wgsl_candidates;
tg_status tg_wgsl_find_candidates(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                                  tg_wgsl_candidates *out);
/* Every launch, one after another, each stage under a comment with its number and workgroups: for people. */
tg_status tg_emit_wgsl_text(const tg_program *program, const tg_device_model *limits, tg_text_buffer *text);

/* ---- the kernel that draws a batch: one dispatch before each step of a submission. Words are of 4 bytes, a bool is one. */
typedef struct tg_draw_array {
    int64_t from, to; /* words: where the rows begin in the data, where the batch begins in the block of inputs */
    int64_t row;      /* words */
} tg_draw_array;
/* What the kernel binds, in this order, all read_write. */
enum {
    TG_DRAW_NOW,     /* TG_DRAW_WORDS words: what tg_draw_control gives; word 0 counts the steps of this submission from 0 */
    TG_DRAW_AFTER,   /* the same, of which word 0 is written: the NOW of the next step. So the two take turns */
    TG_DRAW_INPUTS,  /* the executable's block of inputs */
    TG_DRAW_LOSS,    /* 1 word: the loss of the step before */
    TG_DRAW_HISTORY, /* word i gets the loss of step i of this submission, in the draw of step i + 1 */
    TG_DRAW_DATA,
    TG_DRAW_BINDINGS
};
/* Into arena. bindings of the stage are left NULL. */
tg_status tg_emit_wgsl_draw(const tg_draw_array *arrays, int32_t count, int64_t rows, int64_t batch, const tg_device_model *limits,
                            tg_arena *arena, tg_wgsl_stage *out);
#endif
