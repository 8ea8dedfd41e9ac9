/* emit: print kernel IR as source. Never looks at the graph. */
#ifndef TG_EMIT_H
#define TG_EMIT_H
#include "plan/program.h"
/* One self-contained C11 file: a static function `tg_kernel_<i>_<name>(void *const *buffers)` per kernel in plain loops,
 * and `void tg_emitted_run(void *const *buffers)` that calls them in order; buffers as program.buffers (bool: one byte
 * each; constants are in the file, their pointers are not read). No dependency but math.h, stdint.h. An oracle for the
 * executors and an export: f32 arithmetic throughout, but sums and contractions accumulate in double. */
tg_status tg_emit_c(const tg_program *program, tg_text_buffer *text);
#endif
