/* core: shared by the files of web/core: the one context, the last text returned, graphs by
 * number. */
#ifndef TG_WEB_CORE_H
#define TG_WEB_CORE_H

#include "exports.h"

#include "run/steps.h"
#include "run/web/web.h"

extern tg_context *web_context;
extern tg_text_buffer web_text;

#define WEB_ADD(...) tg_text_add(&web_text, __VA_ARGS__)
static inline const char *web_text_done(void) { return web_text.failed ? NULL : web_text.data; }

/* NULL, with an error recorded, if there is no such graph any more. */
tg_graph *web_graph_of(web_graph number);
static inline tg_tensor web_tensor_of(web_graph graph, int32_t id) { return (tg_tensor){web_graph_of(graph), id}; }

/* "inputs":[{"name","shape","dtype"}], ... Add to the text parts that graphs, models and captures
 * have in common. */
void web_add_key(const char *key, const char *text);
void web_add_type(tg_shape shape, tg_dtype dtype);
void web_add_inputs(const tg_graph *g);
const char *web_comma_before(int64_t i); /* "" before the first */
const char *web_flag_text(bool flag);

#endif
