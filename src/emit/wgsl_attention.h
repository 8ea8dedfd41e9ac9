/* wgsl_attention: the two printers of kernels of kind ATTENTION, and what they share. Part of the
 * WGSL printer. Must not know devices. */
#ifndef TG_EMIT_WGSL_ATTENTION_H
#define TG_EMIT_WGSL_ATTENTION_H
#include "emit/wgsl.h"
#include "kernel/attention.h"

/* Below each score; finite, because compilers may assume that nothing is infinite. */
#define TG_WGSL_ATTENTION_LEAST "-3.4e38f"
/* what a score of -infinity becomes: a row with no other has no weights, as softmax of it is NaN */
#define TG_WGSL_ATTENTION_LOST "-3.39e38f"
/* TG_ATTENTION_EMPTY of ir/attention.h */
#define TG_WGSL_ATTENTION_EMPTY "1e38f"

/* Tiles in workgroup memory, where they fit: heads of 16, 32 .. 128, a lone kernel, an adapter with
 * quick barriers. */
bool tg_wgsl_attention_fits(const tg_wgsl *w);
void tg_wgsl_attention_tiles(tg_wgsl *w);
/* One row for each invocation: any kernel. */
void tg_wgsl_attention_rows(tg_wgsl *w);

#endif
