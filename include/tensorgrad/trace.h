/* tensorgrad, trace: what a build function makes besides operations. Initial values, parameters,
 * inputs, states, constants, captures, gradients; and graphs without a model. */
#ifndef TENSORGRAD_TRACE_H
#define TENSORGRAD_TRACE_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- initial values, leaves */

typedef enum tg_init_kind {
    TG_INIT_RANDN = 0, /* normal, mean 0, std `scale` (0 means .02) */
    TG_INIT_ZEROS,
    TG_INIT_ONES,
    TG_INIT_KAIMING, /* normal, std = scale / sqrt(shape[0]); scale 0 means sqrt 2 */
    TG_INIT_UNIFORM, /* uniform in [-scale, scale); needs a scale */
    TG_INIT_LITERAL  /* `data`: `count` floats, copied when the parameter is made */
} tg_init_kind;

typedef struct tg_init {
    const float *data; /* literal only */
    int64_t count;
    tg_init_kind kind;
    /* 0 to 1e30; 0 means what the kind says; TG_ZERO: all zeros. Zeros, ones and literals have no
     * scale. */
    double scale;
} tg_init;
TG_API tg_init tg_init_randn(double scale);
TG_API tg_init tg_init_zeros(void);
TG_API tg_init tg_init_ones(void);
TG_API tg_init tg_init_kaiming(double gain);
TG_API tg_init tg_init_uniform(double bound);
TG_API tg_init tg_init_literal(const float *data, int64_t count);

typedef enum tg_choice { TG_DEFAULT = 0, TG_YES = 1, TG_NO = 2 } tg_choice;

typedef struct tg_param_options {
    tg_init init;
    tg_choice decay;  /* default: yes for randn, kaiming, uniform, literal; no for zeros, ones */
    tg_choice frozen; /* yes: no gradient, and optimisers never update it */
    int reserved_;
} tg_param_options;

/* A trained f32 parameter. Its name is that of the open scopes and `name` ("layers.0.W"). The same
 * name twice in one trace is TG_ERROR_DUPLICATE. In a sibling forward graph the same name is the
 * same parameter; its shape must agree. Names of parameters and states that begin with "tg.", and
 * "__metadata__", are reserved: TG_ERROR_ARGUMENT. Names are UTF-8; a model with other names cannot
 * be saved. */
TG_API tg_tensor tg_param_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_param_options options);
#define tg_param(...) TG_WITH_3_(tg_param_at, tg_param_options, __VA_ARGS__, .reserved_ = 0)

/* Parameters made between push and pop have names that begin with "name.". Any depth. */
TG_API void tg_scope_push_at(tg_site site, tg_graph *g, const char *name);
#define tg_scope_push(...) tg_scope_push_at(TG_SITE, __VA_ARGS__)
TG_API void tg_scope_pushf_at(tg_site site, tg_graph *g, const char *format, ...);
#define tg_scope_pushf(...) tg_scope_pushf_at(TG_SITE, __VA_ARGS__)
TG_API void tg_scope_pop_at(tg_site site, tg_graph *g);
#define tg_scope_pop(...) tg_scope_pop_at(TG_SITE, __VA_ARGS__)

/* A value fed in each step. One axis may be TG_ANY: then the number of elements that a call feeds
 * gives its size, see tg_compile_options.any_size. In the build function such an axis has the size
 * that is being traced (tg_tensor_shape gives it). TG_ERROR_SHAPE: more than one TG_ANY in a shape,
 * or one in a graph of tg_trace. */
#define TG_ANY INT32_MIN
TG_API tg_tensor tg_input_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype);
#define tg_input(...) tg_input_at(TG_SITE, __VA_ARGS__)

/* A value that is kept between steps like a parameter (an optimiser's moments, a counter). It
 * begins with `value` in each element. Scopes do not change its name. In a sibling the same name is
 * the same state (shape and dtype must agree), with the first value of the model that made it
 * first. */
TG_API tg_tensor tg_state_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype, double value);
#define tg_state(...) tg_state_at(TG_SITE, __VA_ARGS__)

/* After the step, `destination` (a parameter or state of this trace) holds `source` (same shape and
 * dtype). All writebacks read the values from before the step. A second writeback to one
 * destination is TG_ERROR_DUPLICATE. */
TG_API void tg_writeback_at(tg_site site, tg_tensor destination, tg_tensor source);
#define tg_writeback(...) tg_writeback_at(TG_SITE, __VA_ARGS__)

TG_API tg_tensor tg_full_at(tg_site site, tg_graph *g, tg_shape shape, double value, tg_dtype dtype);
/* [0, 1, .. n-1]; i32 or f32 */
TG_API tg_tensor tg_arange_at(tg_site site, tg_graph *g, int64_t n, tg_dtype dtype);
/* `data` is copied. `count` must be the number of elements of the shape. */
TG_API tg_tensor tg_constant_at(tg_site site, tg_graph *g, tg_shape shape, tg_dtype dtype, const void *data, int64_t count);
#define tg_full(...) tg_full_at(TG_SITE, __VA_ARGS__)
#define tg_zeros(...) tg_full_at(TG_SITE, __VA_ARGS__, 0.0, TG_F32)
#define tg_ones(...) tg_full_at(TG_SITE, __VA_ARGS__, 1.0, TG_F32)
#define tg_arange(...) tg_arange_at(TG_SITE, __VA_ARGS__)
#define tg_constant(...) tg_constant_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- captures */

/* Names t, so that a step can return its value. Returns t. Costs nothing unless captures are asked
 * for. */
TG_API tg_tensor tg_capture_at(tg_site site, const char *name, tg_tensor t);
#define tg_capture(...) tg_capture_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- gradients */

/* out[i] = d loss / d wrt[i], with the shape of wrt[i]; zeros where the loss does not depend on it.
 * loss must be rank 0 and f32; each wrt must be f32. The gradients are ordinary tensors of the
 * trace: they can be differentiated again. On failure out[0..n) are poison, so a build function can
 * go on and check once. */
TG_API tg_status tg_grad_at(tg_site site, tg_tensor loss, const tg_tensor *wrt, int n, tg_tensor *out);
/* out[i] = sum_j cotangent_j d y_j / d wrt[i]. The cotangent has the shape of y. */
TG_API tg_status tg_vjp_at(tg_site site, tg_tensor y, tg_tensor cotangent, const tg_tensor *wrt, int n, tg_tensor *out);
#define tg_grad(...) tg_grad_at(TG_SITE, __VA_ARGS__)
#define tg_vjp(...) tg_vjp_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- graphs */

/* Traces the model: makes parameters and inputs on g, and returns the loss (rank 0, for training)
 * or the output. */
typedef tg_tensor (*tg_build_fn)(tg_graph *g, void *user);

/* Calls `build` in a fresh trace and returns the graph (destroy with tg_graph_destroy). *result
 * gets the tensor that `build` returned. NULL on error. Operations on the tensors of a finished
 * trace are TG_ERROR_TRACE. */
TG_API tg_graph *tg_trace_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, tg_tensor *result);
#define tg_trace(...) tg_trace_at(TG_SITE, __VA_ARGS__)
TG_API void tg_graph_destroy(tg_graph *graph);
TG_API tg_shape tg_tensor_shape(tg_tensor t); /* of poison: rank 0; its dtype is f32 */
TG_API tg_dtype tg_tensor_dtype(tg_tensor t);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_TRACE_H */
