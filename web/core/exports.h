/* exports: the C core for JavaScript: flat functions over numbers and addresses in the module's
 * memory, called only by web/src/core.ts. boundary.def lists and explains them; this file has the
 * types that they use, and two imports. There is one context for the whole module.
 *
 * Texts are UTF-8 and end with NUL. No 64-bit integers cross: sizes and counts are doubles or have
 * 32 bits. After a status that is not 0, or a 0 instead of an object, an id or an address, error_*
 * say what happened. Returned texts belong to the core and last until the next call that returns a
 * text.
 *
 * Life: JavaScript makes and destroys graphs and models. A graph has a number that is never used
 * again; a tensor is (graph, id). Using a tensor of a graph that was destroyed, or whose trace
 * failed, is an error. While a graph lives, messages about its tensors say where they come from.
 *
 * Any call may grow the memory: take new views of it after each call. */
#ifndef TG_WEB_EXPORTS_H
#define TG_WEB_EXPORTS_H

#include "base/base.h"

#define WEB_EXPORT(type, name) __attribute__((export_name(#name))) type web_##name
#define WEB_IMPORT(type, name) __attribute__((import_module("tg"), import_name(#name))) type web_js_##name

typedef int32_t web_graph;  /* its number */
typedef int32_t web_status; /* tg_status */
typedef int32_t web_flag;   /* 0 or 1 */

/* An operand, 16 bytes: a tensor; a number if the id is WEB_NUMBER; left out if graph and id are
 * 0. */
typedef struct web_operand {
    web_graph graph;
    int32_t id;
    double number;
} web_operand;
#define WEB_NUMBER (-1)

/* The file and line of the sites whose line is `number` and whose file is WEB_NUMBERED. 12
 * bytes. */
#define WEB_NUMBERED "\x01"
typedef struct web_site {
    int32_t number;
    const char *file;
    int32_t line;
} web_site;

typedef enum web_draw_kind { WEB_DRAW_RAND, WEB_DRAW_RANDN, WEB_DRAW_RAND_INT, WEB_DRAW_BERNOULLI } web_draw_kind;
typedef enum web_call_kind { WEB_CALL_STEP, WEB_CALL_RUN, WEB_CALL_STEP_WITH_CAPTURES, WEB_CALL_RUN_WITH_CAPTURES } web_call_kind;

typedef struct web_call web_call;
typedef struct web_train web_train;

/* ---------------------------------------------------------------- imports: what JavaScript provides, module "tg" */

/* The body of trace(), given the graph's number. Writes (graph, id) of the tensor it built to
 * out[0], out[1]; leaves them 0 if it threw. JavaScript keeps the exception and throws it again
 * after trace() returns: exceptions must not pass through the core. */
WEB_IMPORT(void, build)(web_graph graph, int32_t out[2]);

/* A warning from the core's log. */
WEB_IMPORT(void, warn)(const char *message);

/* format_number, parse_number and functions of numbers: see libc.c. The other imports, gpu_open to
 * gpu_drop_feeder, are in src/run/web/web.h. */

#endif
