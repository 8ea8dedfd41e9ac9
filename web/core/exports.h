/* exports: the C core as JavaScript sees it. Flat functions over numbers and addresses in the module's memory; web/src/core.ts is the
 * only caller. What there is, and what each does, is in boundary.def; here are the types that it speaks of and the two imports of
 * its own. One context for the whole module.
 *
 * Texts are UTF-8 and end with NUL. No 64-bit integers cross: sizes and counts are doubles or 32 bits. On a status that is not 0, and on a
 * 0 where an object, an id or an address was asked for, error_* say what happened. Returned texts belong to the core until the next call
 * that returns a text.
 *
 * Life: graphs and models are made and destroyed by JavaScript. A graph goes by a number that is never used again; a tensor is
 * (graph, id). A tensor of a graph that was destroyed, or whose trace failed, is an error wherever it is used. While a graph lives,
 * messages about its tensors say where they come from.
 *
 * Any call may grow the memory: views of it are to be taken anew after each call. */
#ifndef TG_WEB_EXPORTS_H
#define TG_WEB_EXPORTS_H

#include "base/base.h"

#define WEB_EXPORT(type, name) __attribute__((export_name(#name))) type web_##name
#define WEB_IMPORT(type, name) __attribute__((import_module("tg"), import_name(#name))) type web_js_##name

typedef int32_t web_graph;  /* its number */
typedef int32_t web_status; /* tg_status */
typedef int32_t web_flag;   /* 0 or 1 */

/* An operand, 16 bytes: a tensor; with the id WEB_NUMBER a number; graph and id 0: one that is left out. */
typedef struct web_operand {
    web_graph graph;
    int32_t id;
    double number;
} web_operand;
#define WEB_NUMBER (-1)

/* A file and line for the sites that have `number` as their line and WEB_NUMBERED as their file. 12 bytes. */
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

/* The body of trace(), given the graph's number. Writes (graph, id) of the tensor it built to out[0], out[1]; leaves them 0 when it threw
 * (the exception is kept by JavaScript, which throws it again when trace() is back). Exceptions must not pass through the core. */
WEB_IMPORT(void, build)(web_graph graph, int32_t out[2]);

/* A warning of the core: what its log says. */
WEB_IMPORT(void, warn)(const char *message);

/* format_number, parse_number and functions of numbers: see libc.c. The others, gpu_open to gpu_drop_feeder: src/run/web/web.h. */

#endif
