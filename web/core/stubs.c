/* stubs: functions that the core refers to and a page does without: the export as C, the checker of
 * graphs (only page and worker exchange graphs), and, in the build for WebGPU alone, the CPU. */
#include "emit/emit.h"
#include "ir/rules.h"
#include "run/executor.h"

tg_status tg_emit_c(const tg_program *program, tg_text_buffer *text) {
    (void)program;
    return tg_fail(text->ctx, TG_ERROR_UNSUPPORTED, TG_SITE_NONE, "text: C source is printed by the native library alone");
}
void tg_emit_c_noted(tg_text_buffer *text, const char *name) { (void)text, (void)name; }

tg_status tg_graph_check(const tg_graph *g, char *message, size_t size) {
    (void)g, (void)message, (void)size;
    return TG_OK;
}
tg_status tg_graph_verify(const tg_graph *g) {
    (void)g;
    return TG_OK;
}

#ifdef TG_WEB_NO_CPU
static tg_status no_cpu_open(tg_context *ctx, const tg_open_options *options, tg_device **out) {
    (void)options, (void)out;
    return tg_fail(ctx, TG_ERROR_UNSUPPORTED, TG_SITE_NONE, "compile: this build of tensorgrad has WebGPU alone");
}
static void no_cpu_close(tg_device *device) { (void)device; }
const tg_executor tg_cpu_executor = {.kind = "cpu", .open = no_cpu_open, .close = no_cpu_close};
#endif
