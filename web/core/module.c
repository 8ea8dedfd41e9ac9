/* module: exports for starting the core, memory, errors and the last text. Owns the one context.
 * Must not decide anything: the functions that it calls make every check. */
#include "boundary.gen.h"
#include "core.h"

#include <stdlib.h>

tg_context *web_context;
tg_text_buffer web_text;

void __wasm_call_ctors(void); /* empty; unless it is called, the linker wraps it around every export */

static void web_log(void *user, tg_log_level level, const char *message) {
    (void)user;
    if (level == TG_LOG_WARNING) web_js_warn(message);
}

WEB_EXPORT(web_flag, init)(void) {
    __wasm_call_ctors();
    web_context = tg_context_create(&(tg_context_options){.log = web_log});
    if (web_context == NULL) return 0;
    tg_text_init(&web_text, web_context);
    return 1;
}

WEB_EXPORT(int32_t, has_cpu)(void) {
#ifdef TG_WEB_NO_CPU
    return 0;
#else
    return 1;
#endif
}

WEB_EXPORT(void *, alloc)(uint32_t bytes) { return malloc(bytes); }
WEB_EXPORT(void, free)(void *block) { free(block); }
WEB_EXPORT(int32_t, live_bytes)(void) { return (int32_t)web_context->live_bytes; }

WEB_EXPORT(int32_t, error_status)(void) { return (int32_t)tg_error(web_context); }
WEB_EXPORT(const char *, error_message)(void) { return tg_error_message(web_context); }
WEB_EXPORT(const char *, error_file)(void) { return tg_error_site(web_context).file; }
WEB_EXPORT(int32_t, error_line)(void) { return tg_error_site(web_context).line; }
WEB_EXPORT(void, error_clear)(void) { tg_clear_error(web_context); }
WEB_EXPORT(void, error_set)(int32_t status, const char *message) { tg_fail(web_context, (tg_status)status, TG_SITE_NONE, "%s", message); }
WEB_EXPORT(const char *, text_data)(void) { return web_text.data; }
