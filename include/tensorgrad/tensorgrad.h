/* tensorgrad: trace a small network once, differentiate it, fuse the training step, run it anywhere.
 *
 * The whole public C API. Rules that hold for every function:
 *  - Nothing aborts, exits or prints. A mistake is recorded on the context (status, message, the caller's
 *    file and line) and the first mistake since the context was last cleared wins. Calls that can fail are macros that
 *    pass their line: tg_step(...) is tg_step_at(TG_SITE, ...), the function that bindings and wrappers call with a site of theirs.
 *  - Tensor operations take and return tg_tensor by value. An operation that fails returns the poison tensor
 *    (id 0); an operation on poison returns poison and records nothing. Check once, after tg_compile.
 *  - Shapes are row-major, axes may be negative (-1 is the last). Broadcasting is NumPy's.
 *  - Results are written only on success, unless the text beside a call says otherwise. "Returned" objects belong to the
 *    caller until the destroy function named beside them; arguments are borrowed for the call unless the text says otherwise.
 *  - Options come last, by name: tg_sum(x, TG_AXES(0), .keepdims = true). One that is 0 is not given and has its default, which stands
 *    beside it; TG_ZERO in a double says zero, on purpose (.beta1 = TG_ZERO), and is refused where zero makes no sense. So are NaN,
 *    infinity, what is negative where that makes no sense, and numbers that no enum has: TG_ERROR_ARGUMENT that names the option.
 *  - A context and everything made from it belong to one thread at a time.
 */
#ifndef TENSORGRAD_H
#define TENSORGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TG_VERSION_MAJOR 0
#define TG_VERSION_MINOR 1
#define TG_VERSION_PATCH 0
#define TG_VERSION "0.1.0"

#if defined(TG_SHARED) && defined(_WIN32)
#  ifdef TG_BUILD
#    define TG_API __declspec(dllexport)
#  else
#    define TG_API __declspec(dllimport)
#  endif
#elif defined(__GNUC__)
#  define TG_API __attribute__((visibility("default")))
#else
#  define TG_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- status, context */

/* Numbers are frozen: bindings and logs rely on them. */
typedef enum tg_status {
    TG_OK = 0,
    TG_ERROR_ARGUMENT = 1,  /* a value outside what the call accepts */
    TG_ERROR_SHAPE = 2,     /* shapes that do not fit the operation */
    TG_ERROR_DTYPE = 3,     /* an element type the operation does not take */
    TG_ERROR_MEMORY = 4,    /* an allocation failed */
    TG_ERROR_NOT_FOUND = 5, /* no parameter, input, capture or state of that name */
    TG_ERROR_DUPLICATE = 6, /* a name used twice */
    TG_ERROR_INDEX = 7,     /* an index value outside its table */
    TG_ERROR_TRACE = 8,     /* tensor of another trace, nested trace, operation outside a trace */
    TG_ERROR_GRADIENT = 9,  /* a gradient of something that has none, a loss that is not rank 0 */
    TG_ERROR_IO = 10,       /* the file system said no */
    TG_ERROR_FORMAT = 11,   /* a file or byte string that is not what it claims to be */
    TG_ERROR_DEVICE = 12,   /* the device or its library refused */
    TG_ERROR_DEVICE_LOST = 13,
    TG_ERROR_LIMIT = 14,      /* a size beyond what this library or the device can hold */
    TG_ERROR_NOT_FINITE = 15, /* the loss, or a gradient, is NaN or infinite */
    TG_ERROR_STATE = 16,      /* the object is destroyed or in the wrong state for the call */
    TG_ERROR_UNSUPPORTED = 17,
    TG_ERROR_INTERNAL = 18 /* a fault of this library: please report it */
} tg_status;

typedef enum tg_dtype { TG_F32 = 0, TG_I32 = 1, TG_BOOL = 2 } tg_dtype;

/* Where in the user's program a call stands. `file` is copied when it must outlive the call. */
typedef struct tg_site {
    const char *file;
    int line;
} tg_site;

typedef struct tg_context tg_context;
typedef struct tg_graph tg_graph;
typedef struct tg_model tg_model;
typedef struct tg_captures tg_captures;
typedef struct tg_dataset tg_dataset;

/* A value in a trace. id 0 is poison. {0} is no tensor: operations refuse it, options that are tensors have it where they are left out.
 * Once its model or graph is destroyed a tensor is refused too. */
typedef struct tg_tensor {
    tg_graph *graph;
    int32_t id;
} tg_tensor;

/* `alloc` returns size bytes aligned to 64, or NULL; `release` gets the same size back. */
typedef struct tg_allocator {
    void *(*alloc)(void *user, size_t size);
    void (*release)(void *user, void *block, size_t size);
    void *user;
} tg_allocator;

typedef enum tg_log_level { TG_LOG_INFO = 0, TG_LOG_WARNING = 1 } tg_log_level;
typedef void (*tg_log_fn)(void *user, tg_log_level level, const char *message);

typedef struct tg_context_options {
    const tg_allocator *allocator; /* copied; NULL, or one of its functions NULL: malloc */
    tg_log_fn log;                 /* NULL: silence. Warnings say, among others, what of a model cannot learn, and where it was made */
    void *log_user;
} tg_context_options;

/* Returned: destroy with tg_context_destroy, after every model made from it. options may be NULL.
 * NULL only when memory runs out. */
TG_API tg_context *tg_context_create(const tg_context_options *options);
TG_API void tg_context_destroy(tg_context *ctx); /* NULL is fine */

/* The first error since tg_clear_error or the start of the last public call that reports a status. */
TG_API tg_status tg_error(const tg_context *ctx);
TG_API const char *tg_error_message(const tg_context *ctx); /* "" when there is none; owned by ctx */
TG_API tg_site tg_error_site(const tg_context *ctx);
TG_API void tg_clear_error(tg_context *ctx);
TG_API const char *tg_status_name(tg_status status); /* "shape error", static text */
TG_API const char *tg_version(void);

/* ---------------------------------------------------------------- shapes, axes, operands */

#define TG_MAX_RANK 8

typedef struct tg_shape {
    int32_t rank;
    int64_t dim[TG_MAX_RANK];
} tg_shape;
/* count < 0 means every axis. */
typedef struct tg_axes {
    int32_t count;
    int32_t axis[TG_MAX_RANK];
} tg_axes;

static inline tg_site tg_site_make(const char *file, int line) {
    tg_site s;
    s.file = file;
    s.line = line;
    return s;
}
#define TG_SITE tg_site_make(__FILE__, __LINE__)

TG_API tg_shape tg_shape_make(int32_t rank, const int64_t *dims); /* rank over TG_MAX_RANK is kept and refused by the op */
TG_API tg_axes tg_axes_make(int32_t count, const int32_t *axes);
TG_API int64_t tg_shape_count(tg_shape shape); /* number of elements; -1 when over 2^31 - 1 or a dim < 1 */
TG_API bool tg_shape_equal(tg_shape a, tg_shape b);

#ifdef __cplusplus
} /* extern "C" */
template <class... D> static inline tg_shape tg_shape_list_(D... d) {
    const int64_t dims[] = {static_cast<int64_t>(d)...};
    return tg_shape_make(static_cast<int32_t>(sizeof...(d)), dims);
}
template <class... D> static inline tg_axes tg_axes_list_(D... d) {
    const int32_t axes[] = {static_cast<int32_t>(d)...};
    return tg_axes_make(static_cast<int32_t>(sizeof...(d)), axes);
}
#  define TG_SHAPE(...) tg_shape_list_(__VA_ARGS__)
#  define TG_AXES(...) tg_axes_list_(__VA_ARGS__)
#  define TG_OPTIONS_(T, ...) \
    T { __VA_ARGS__ }
extern "C" {
#else
#  define TG_SHAPE(...) tg_shape_make((int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})
#  define TG_AXES(...) tg_axes_make((int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), (const int32_t[]){__VA_ARGS__})
#  define TG_OPTIONS_(T, ...) \
    (T) { __VA_ARGS__ }
#endif
/* f(site, a, .., options): what the macros below are that take options. They pass `.reserved_ = 0` behind the user's, so that there is
 * always one. */
#define TG_WITH_1_(f, T, a, ...) f(TG_SITE, (a), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_2_(f, T, a, b, ...) f(TG_SITE, (a), (b), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_3_(f, T, a, b, c, ...) f(TG_SITE, (a), (b), (c), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_4_(f, T, a, b, c, d, ...) f(TG_SITE, (a), (b), (c), (d), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_5_(f, T, a, b, c, d, e, ...) f(TG_SITE, (a), (b), (c), (d), (e), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_6_(f, T, a, b, c, d, e, g, ...) f(TG_SITE, (a), (b), (c), (d), (e), (g), TG_OPTIONS_(T, __VA_ARGS__))
/* Zero, on purpose, in an option that is a double: see the top. */
#define TG_ZERO (-0.0)
#define TG_SCALAR tg_shape_make(0, NULL)
#define TG_ALL tg_axes_make(-1, NULL)

/* A tensor or a number, on either side of a binary operation. A number takes the other side's dtype, rounded to f32 where
 * that is f32; one that does not fit (0.5 against i32, 1e39 against f32, 2 against bool) is TG_ERROR_DTYPE. Infinity and
 * NaN fit f32. Two numbers are TG_ERROR_TRACE: there is no tensor to work on. */
typedef struct tg_operand {
    tg_tensor tensor;
    double number;
    bool is_number;
} tg_operand;
static inline tg_operand tg_operand_tensor_(tg_tensor t) {
    tg_operand o;
    o.tensor = t;
    o.number = 0;
    o.is_number = false;
    return o;
}
static inline tg_operand tg_operand_number_(double v) {
    tg_operand o;
    o.tensor.graph = NULL;
    o.tensor.id = 0;
    o.number = v;
    o.is_number = true;
    return o;
}
#ifdef __cplusplus
}
static inline tg_operand tg_operand_(tg_tensor t) { return tg_operand_tensor_(t); }
static inline tg_operand tg_operand_(double v) { return tg_operand_number_(v); }
#  define TG_OPERAND(x) tg_operand_(x)
extern "C" {
#else
#  define TG_OPERAND(x) _Generic((x), tg_tensor : tg_operand_tensor_, default : tg_operand_number_)(x)
#endif

/* ---------------------------------------------------------------- initial values, leaves */

typedef enum tg_init_kind {
    TG_INIT_RANDN = 0, /* normal, mean 0, std `scale` (0 means .02) */
    TG_INIT_ZEROS,
    TG_INIT_ONES,
    TG_INIT_KAIMING, /* normal, std = scale / sqrt(shape[0]); scale 0 means sqrt 2 */
    TG_INIT_UNIFORM, /* uniform in [-scale, scale); a scale has to be given */
    TG_INIT_LITERAL  /* `data`, `count` floats, copied when the parameter is made */
} tg_init_kind;

typedef struct tg_init {
    const float *data; /* literal only */
    int64_t count;
    tg_init_kind kind;
    double scale; /* 0 to 1e30, 0 as beside the kind; TG_ZERO: all zeros. Zeros, ones and literals have none */
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
    tg_choice decay;  /* default: yes for randn, kaiming, uniform and literal; no for zeros and ones */
    tg_choice frozen; /* yes: no gradient, never updated by an optimiser */
    int reserved_;
} tg_param_options;

/* A trained f32 parameter, named by the open scopes and `name` ("layers.0.W"). The same name twice in one trace
 * is TG_ERROR_DUPLICATE. In a sibling forward graph the same name is the same parameter (its shape must agree). Names of
 * parameters and states that begin with "tg.", and "__metadata__", are reserved: TG_ERROR_ARGUMENT. Names are UTF-8: a model
 * with others cannot be saved. */
TG_API tg_tensor tg_param_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_param_options options);
#define tg_param(...) TG_WITH_3_(tg_param_at, tg_param_options, __VA_ARGS__, .reserved_ = 0)

/* Names of parameters made between push and pop are prefixed "name.". Any depth. */
TG_API void tg_scope_push_at(tg_site site, tg_graph *g, const char *name);
#define tg_scope_push(...) tg_scope_push_at(TG_SITE, __VA_ARGS__)
TG_API void tg_scope_pushf_at(tg_site site, tg_graph *g, const char *format, ...);
#define tg_scope_pushf(...) tg_scope_pushf_at(TG_SITE, __VA_ARGS__)
TG_API void tg_scope_pop_at(tg_site site, tg_graph *g);
#define tg_scope_pop(...) tg_scope_pop_at(TG_SITE, __VA_ARGS__)

/* A value fed on every step. One axis may be TG_ANY, its size then follows from the elements that a call feeds: see
 * tg_compile_options.any_size. In the build function such an axis has the size that is being traced (tg_tensor_shape tells). More than
 * one TG_ANY in a shape, or one in a graph of tg_trace, is TG_ERROR_SHAPE. */
#define TG_ANY INT32_MIN
TG_API tg_tensor tg_input_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype);
#define tg_input(...) tg_input_at(TG_SITE, __VA_ARGS__)

/* A value kept between steps beside the parameters (an optimiser's moments, a counter), first filled with `value`. Scopes do
 * not matter. In a sibling the same name is the same state (shape and dtype must agree), as filled by whoever made it first. */
TG_API tg_tensor tg_state_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype, double value);
#define tg_state(...) tg_state_at(TG_SITE, __VA_ARGS__)

/* After the step, `destination` (a parameter or state of this trace) holds `source` (same shape and dtype). All
 * writebacks read the values from before the step. A second writeback to one destination is TG_ERROR_DUPLICATE. */
TG_API void tg_writeback_at(tg_site site, tg_tensor destination, tg_tensor source);
#define tg_writeback(...) tg_writeback_at(TG_SITE, __VA_ARGS__)

TG_API tg_tensor tg_full_at(tg_site site, tg_graph *g, tg_shape shape, double value, tg_dtype dtype);
TG_API tg_tensor tg_arange_at(tg_site site, tg_graph *g, int64_t n, tg_dtype dtype); /* [0, 1, .. n-1]; i32 or f32 */
/* Data is copied. count must equal the shape's element count. */
TG_API tg_tensor tg_constant_at(tg_site site, tg_graph *g, tg_shape shape, tg_dtype dtype, const void *data, int64_t count);
#define tg_full(...) tg_full_at(TG_SITE, __VA_ARGS__)
#define tg_zeros(...) tg_full_at(TG_SITE, __VA_ARGS__, 0.0, TG_F32)
#define tg_ones(...) tg_full_at(TG_SITE, __VA_ARGS__, 1.0, TG_F32)
#define tg_arange(...) tg_arange_at(TG_SITE, __VA_ARGS__)
#define tg_constant(...) tg_constant_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- elementwise */

/* y = f(x), same shape. f32 unless said. Gradients in brackets. */
#define TG_UNARY_(name) TG_API tg_tensor tg_##name##_at(tg_site site, tg_tensor x)
TG_UNARY_(neg);    /* -x; f32, i32 */
TG_UNARY_(abs);    /* |x|; f32, i32   [sign(x), 0 at 0] */
TG_UNARY_(sign);   /* -1, 0, 1, NaN stays NaN; f32, i32   [0] */
TG_UNARY_(square); /* x x; f32, i32 */
TG_UNARY_(sqrt);
TG_UNARY_(rsqrt);      /* 1 / sqrt x */
TG_UNARY_(reciprocal); /* 1 / x */
TG_UNARY_(exp);
TG_UNARY_(log);
TG_UNARY_(expm1); /* e^x - 1, right near 0 */
TG_UNARY_(log1p); /* log(1 + x), right near 0; -1 gives -infinity, less NaN */
TG_UNARY_(sin);   /* absolute error < 1e-6 for |x| <= 1e5 */
TG_UNARY_(cos);
TG_UNARY_(tan);   /* sin x / cos x   [1 + tan(x)^2] */
TG_UNARY_(floor); /* largest whole number <= x   [0] */
TG_UNARY_(ceil);  /* smallest whole number >= x   [0] */
TG_UNARY_(round); /* nearest whole number, halves to the even one   [0] */
TG_UNARY_(tanh);
TG_UNARY_(erf);
TG_UNARY_(sigmoid);      /* 1 / (1 + e^-x), no overflow */
TG_UNARY_(softplus);     /* log(1 + e^x)   [sigmoid(x), everywhere] */
TG_UNARY_(log_sigmoid);  /* log(sigmoid(x)) = -softplus(-x)   [sigmoid(-x), everywhere] */
TG_UNARY_(hard_sigmoid); /* min(max(x / 6 + 1/2, 0), 1)   [1/6 inside, 1/12 at -3 and 3] */
TG_UNARY_(hard_swish);   /* x hard_sigmoid(x) (Howard et al. 2019) */
TG_UNARY_(silu);         /* x sigmoid(x); this and the next two at -infinity: 0   [0], at infinity   [1] */
TG_UNARY_(gelu);         /* x (1 + erf(x / sqrt 2)) / 2, exact form */
TG_UNARY_(gelu_tanh);    /* the tanh approximation of gelu */
TG_UNARY_(relu);         /* max(x, 0), NaN stays NaN   [1 for x > 0, else 0] */
TG_UNARY_(logical_not);  /* bool */
TG_UNARY_(stop_gradient);
#define tg_neg(...) tg_neg_at(TG_SITE, __VA_ARGS__)
#define tg_abs(...) tg_abs_at(TG_SITE, __VA_ARGS__)
#define tg_sign(...) tg_sign_at(TG_SITE, __VA_ARGS__)
#define tg_square(...) tg_square_at(TG_SITE, __VA_ARGS__)
#define tg_sqrt(...) tg_sqrt_at(TG_SITE, __VA_ARGS__)
#define tg_rsqrt(...) tg_rsqrt_at(TG_SITE, __VA_ARGS__)
#define tg_reciprocal(...) tg_reciprocal_at(TG_SITE, __VA_ARGS__)
#define tg_exp(...) tg_exp_at(TG_SITE, __VA_ARGS__)
#define tg_log(...) tg_log_at(TG_SITE, __VA_ARGS__)
#define tg_expm1(...) tg_expm1_at(TG_SITE, __VA_ARGS__)
#define tg_log1p(...) tg_log1p_at(TG_SITE, __VA_ARGS__)
#define tg_sin(...) tg_sin_at(TG_SITE, __VA_ARGS__)
#define tg_cos(...) tg_cos_at(TG_SITE, __VA_ARGS__)
#define tg_tan(...) tg_tan_at(TG_SITE, __VA_ARGS__)
#define tg_floor(...) tg_floor_at(TG_SITE, __VA_ARGS__)
#define tg_ceil(...) tg_ceil_at(TG_SITE, __VA_ARGS__)
#define tg_round(...) tg_round_at(TG_SITE, __VA_ARGS__)
#define tg_tanh(...) tg_tanh_at(TG_SITE, __VA_ARGS__)
#define tg_erf(...) tg_erf_at(TG_SITE, __VA_ARGS__)
#define tg_sigmoid(...) tg_sigmoid_at(TG_SITE, __VA_ARGS__)
#define tg_softplus(...) tg_softplus_at(TG_SITE, __VA_ARGS__)
#define tg_log_sigmoid(...) tg_log_sigmoid_at(TG_SITE, __VA_ARGS__)
#define tg_hard_sigmoid(...) tg_hard_sigmoid_at(TG_SITE, __VA_ARGS__)
#define tg_hard_swish(...) tg_hard_swish_at(TG_SITE, __VA_ARGS__)
#define tg_silu(...) tg_silu_at(TG_SITE, __VA_ARGS__)
#define tg_gelu(...) tg_gelu_at(TG_SITE, __VA_ARGS__)
#define tg_gelu_tanh(...) tg_gelu_tanh_at(TG_SITE, __VA_ARGS__)
#define tg_relu(...) tg_relu_at(TG_SITE, __VA_ARGS__)
#define tg_logical_not(...) tg_logical_not_at(TG_SITE, __VA_ARGS__)
#define tg_stop_gradient(...) tg_stop_gradient_at(TG_SITE, __VA_ARGS__)

/* x > 0 ? x : slope x, slope finite [slope at 0 and below]; NaN stays NaN. */
TG_API tg_tensor tg_leaky_relu_at(tg_site site, tg_tensor x, double slope);
/* x > 0 ? x : alpha (e^x - 1), alpha finite (Clevert et al. 2016) [alpha e^x at 0 and below]; NaN stays NaN. */
TG_API tg_tensor tg_elu_at(tg_site site, tg_tensor x, double alpha);
#define tg_leaky_relu(...) tg_leaky_relu_at(TG_SITE, __VA_ARGS__)
#define tg_elu(...) tg_elu_at(TG_SITE, __VA_ARGS__)

/* y = f(a, b), broadcast; each side a tensor or a number; both sides of one dtype: f32 or i32 unless said, bool too for equal
 * and not_equal. i32 results wrap around. Gradients are summed back to each operand's shape. */
#define TG_BINARY_(name) TG_API tg_tensor tg_##name##_at(tg_site site, tg_operand a, tg_operand b)
TG_BINARY_(add);
TG_BINARY_(sub);
TG_BINARY_(mul);
TG_BINARY_(div);       /* i32: truncates towards 0; by 0 gives 0, by the number 0 is TG_ERROR_ARGUMENT */
TG_BINARY_(floor_div); /* floor(a / b); i32 by 0 as div   [0] */
TG_BINARY_(mod);       /* a - b floor(a / b), in [0, |b|) with the sign of b, exact but for one rounding; i32 by 0 gives a, f32 NaN; by
                          infinity a or, of the other sign, infinity   [1 of a, -floor_div(a, b) of b] */
TG_BINARY_(pow);       /* f32; 0^0 = 1; negative base with a whole exponent is exact in sign; else NaN
                          [of the exponent: 0 where the base is not over 0] */
TG_BINARY_(minimum);   /* NaN wins; a tie shares its cotangent half and half */
TG_BINARY_(maximum);
TG_BINARY_(less); /* -> bool, no gradient; so are the next five */
TG_BINARY_(less_equal);
TG_BINARY_(greater);
TG_BINARY_(greater_equal);
TG_BINARY_(equal);
TG_BINARY_(not_equal);
TG_BINARY_(logical_and); /* bool x bool -> bool */
TG_BINARY_(logical_or);
#define tg_add(a, b) tg_add_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_sub(a, b) tg_sub_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_mul(a, b) tg_mul_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_div(a, b) tg_div_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_floor_div(a, b) tg_floor_div_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_mod(a, b) tg_mod_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_pow(a, b) tg_pow_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_minimum(a, b) tg_minimum_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_maximum(a, b) tg_maximum_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_less(a, b) tg_less_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_less_equal(a, b) tg_less_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_greater(a, b) tg_greater_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_greater_equal(a, b) tg_greater_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_equal(a, b) tg_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_not_equal(a, b) tg_not_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_logical_and(a, b) tg_logical_and_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_logical_or(a, b) tg_logical_or_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))

/* min(max(x, lo), hi); f32, i32; NaN stays NaN; lo > hi, or a NaN bound, is TG_ERROR_ARGUMENT. Gradient as maximum and
 * minimum: half at a bound. */
TG_API tg_tensor tg_clamp_at(tg_site site, tg_tensor x, double lo, double hi);
#define tg_clamp(...) tg_clamp_at(TG_SITE, __VA_ARGS__)

/* condition ? a : b, three-way broadcast. The branch not taken gets gradient 0. */
TG_API tg_tensor tg_where_at(tg_site site, tg_tensor condition, tg_operand a, tg_operand b);
#define tg_where(condition, a, b) tg_where_at(TG_SITE, (condition), TG_OPERAND(a), TG_OPERAND(b))

/* float -> int truncates and saturates, NaN gives 0; anything non-zero is true. Gradient only between f32 and f32. */
TG_API tg_tensor tg_cast_at(tg_site site, tg_tensor x, tg_dtype dtype);
#define tg_cast(...) tg_cast_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- reductions */

typedef struct tg_reduce_options {
    bool keepdims;
    int reserved_;
} tg_reduce_options;
#define TG_REDUCE_(name) TG_API tg_tensor tg_##name##_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options)
TG_REDUCE_(sum);  /* f32, i32 */
TG_REDUCE_(mean); /* f32 */
TG_REDUCE_(max);  /* f32, i32; NaN wins [NaN for all]; tied elements share the cotangent equally */
TG_REDUCE_(min);
TG_REDUCE_(prod); /* f32, i32; halves are multiplied, so no 0 harms the gradient; no overflow on the way to what fits */
TG_REDUCE_(any);  /* bool; no gradient */
TG_REDUCE_(all);  /* bool; no gradient */
#define tg_sum(...) TG_WITH_2_(tg_sum_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_mean(...) TG_WITH_2_(tg_mean_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_max(...) TG_WITH_2_(tg_max_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_min(...) TG_WITH_2_(tg_min_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_prod(...) TG_WITH_2_(tg_prod_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_any(...) TG_WITH_2_(tg_any_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_all(...) TG_WITH_2_(tg_all_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_variance_options {
    bool keepdims;
    int32_t correction; /* 0: biased; 1: Bessel's; TG_ERROR_ARGUMENT unless in 0 .. n - 1 */
    int reserved_;
} tg_variance_options;
/* sum((x - mean(x))^2) / (n - correction), n the elements reduced. f32. */
TG_API tg_tensor tg_variance_at(tg_site site, tg_tensor x, tg_axes axes, tg_variance_options options);
/* sqrt(variance) [0 where it is 0], also where the variance is beyond f32. */
TG_API tg_tensor tg_std_at(tg_site site, tg_tensor x, tg_axes axes, tg_variance_options options);
#define tg_variance(...) TG_WITH_2_(tg_variance_at, tg_variance_options, __VA_ARGS__, .reserved_ = 0)
#define tg_std(...) TG_WITH_2_(tg_std_at, tg_variance_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_norm_options {
    bool keepdims;
    double ord; /* 1, 2 or INFINITY; 0 means 2, TG_ZERO is refused */
    int reserved_;
} tg_norm_options;
/* sum |x|, sqrt(sum x^2) [0 where it is 0] or max |x|, by ord; anything else is TG_ERROR_ARGUMENT. f32. Right wherever the result is in
 * f32: no square overflows or is lost. */
TG_API tg_tensor tg_norm_at(tg_site site, tg_tensor x, tg_axes axes, tg_norm_options options);
#define tg_norm(...) TG_WITH_2_(tg_norm_at, tg_norm_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_scan_options {
    bool exclusive; /* y[i] leaves x[i] out; the first is 0 (1 of a product) */
    bool reverse;   /* from the last element to the first */
    int reserved_;
} tg_scan_options;
/* y[i] = sum of x[j], j <= i, along one axis. f32, i32 (wraps around). Sums of blocks of up to 64 (128: one block). */
TG_API tg_tensor tg_cumsum_at(tg_site site, tg_tensor x, int axis, tg_scan_options options);
/* y[i] = product of x[j], j <= i, along one axis. f32, i32. log2 n steps, without division: a 0 does no harm to the gradient;
 * no overflow on the way to what fits. */
TG_API tg_tensor tg_cumprod_at(tg_site site, tg_tensor x, int axis, tg_scan_options options);
#define tg_cumsum(...) TG_WITH_2_(tg_cumsum_at, tg_scan_options, __VA_ARGS__, .reserved_ = 0)
#define tg_cumprod(...) TG_WITH_2_(tg_cumprod_at, tg_scan_options, __VA_ARGS__, .reserved_ = 0)
/* Index (i32) of the first largest / smallest element along one axis, of the first NaN where there is one; the axis is dropped
 * unless keepdims. No gradient. */
TG_API tg_tensor tg_argmax_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options);
TG_API tg_tensor tg_argmin_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options);
#define tg_argmax(...) TG_WITH_2_(tg_argmax_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_argmin(...) TG_WITH_2_(tg_argmin_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
/* The three of the original: mean over the last axis kept as 1, sum over the last axis dropped, sum of everything (rank 0). */
#define tg_mean_last(...) tg_mean_at(TG_SITE, __VA_ARGS__, TG_AXES(-1), TG_OPTIONS_(tg_reduce_options, .keepdims = true))
#define tg_sum_last(...) tg_sum_at(TG_SITE, __VA_ARGS__, TG_AXES(-1), TG_OPTIONS_(tg_reduce_options, .keepdims = false))
#define tg_sum_all(...) tg_sum_at(TG_SITE, __VA_ARGS__, TG_ALL, TG_OPTIONS_(tg_reduce_options, .keepdims = false))

/* ---------------------------------------------------------------- views and joins */

TG_API tg_tensor tg_reshape_at(tg_site site, tg_tensor x, tg_shape shape); /* one dim may be -1 */
TG_API tg_tensor tg_transpose_at(tg_site site, tg_tensor x, tg_axes perm); /* y.dim[i] = x.dim[perm[i]] */
TG_API tg_tensor tg_swap_axes_at(tg_site site, tg_tensor x, int a, int b);
TG_API tg_tensor tg_broadcast_to_at(tg_site site, tg_tensor x, tg_shape shape);
TG_API tg_tensor tg_slice_last_range_at(tg_site site, tg_tensor x, int64_t start, int64_t end);
TG_API tg_tensor tg_narrow_at(tg_site site, tg_tensor x, int axis, int64_t start, int64_t length);
TG_API tg_tensor tg_concat_at(tg_site site, const tg_tensor *parts, int count, int axis);
TG_API tg_tensor tg_stack_at(tg_site site, const tg_tensor *parts, int count, int axis); /* new axis */
#define tg_reshape(...) tg_reshape_at(TG_SITE, __VA_ARGS__)
#define tg_transpose(...) tg_transpose_at(TG_SITE, __VA_ARGS__)
#define tg_swap_axes(...) tg_swap_axes_at(TG_SITE, __VA_ARGS__)
#define tg_broadcast_to(...) tg_broadcast_to_at(TG_SITE, __VA_ARGS__)
#define tg_slice_last_range(...) tg_slice_last_range_at(TG_SITE, __VA_ARGS__)
#define tg_narrow(...) tg_narrow_at(TG_SITE, __VA_ARGS__)
#define tg_concat(...) tg_concat_at(TG_SITE, __VA_ARGS__)
#define tg_stack(...) tg_stack_at(TG_SITE, __VA_ARGS__)

TG_API tg_tensor tg_squeeze_at(tg_site site, tg_tensor x, tg_axes axes); /* drops axes of 1 element; TG_ALL: every such axis */
/* A new axis of 1 element, where `axis` counts in the result. */
TG_API tg_tensor tg_expand_dims_at(tg_site site, tg_tensor x, int axis);
/* before.dim[i] elements of `value` before axis i and after.dim[i] behind it, counts of 0 or more; any dtype that holds the value. */
TG_API tg_tensor tg_pad_at(tg_site site, tg_tensor x, tg_shape before, tg_shape after, double value);
TG_API tg_tensor tg_flip_at(tg_site site, tg_tensor x, tg_axes axes);              /* the axes from back to front */
TG_API tg_tensor tg_roll_at(tg_site site, tg_tensor x, int64_t shift, int axis);   /* y[i] = x[(i - shift) mod n] */
TG_API tg_tensor tg_tile_at(tg_site site, tg_tensor x, tg_shape times);            /* axis i times.dim[i] times over: a b a b */
TG_API tg_tensor tg_repeat_at(tg_site site, tg_tensor x, int64_t times, int axis); /* each element `times` times: a a b b */
/* out[0..n) get n parts along an axis, of sizes[i] elements, which must add up to it; sizes NULL: equal parts. On failure they are
 * poison. */
TG_API tg_status tg_split_at(tg_site site, tg_tensor x, int axis, const int64_t *sizes, int n, tg_tensor *out);
#define tg_squeeze(...) tg_squeeze_at(TG_SITE, __VA_ARGS__)
#define tg_expand_dims(...) tg_expand_dims_at(TG_SITE, __VA_ARGS__)
#define tg_pad(...) tg_pad_at(TG_SITE, __VA_ARGS__)
#define tg_flip(...) tg_flip_at(TG_SITE, __VA_ARGS__)
#define tg_roll(...) tg_roll_at(TG_SITE, __VA_ARGS__)
#define tg_tile(...) tg_tile_at(TG_SITE, __VA_ARGS__)
#define tg_repeat(...) tg_repeat_at(TG_SITE, __VA_ARGS__)
#define tg_split(...) tg_split_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- contractions, indexing */

/* [batch..., M, K] x [batch..., K, N] -> [batch..., M, N]; batch dims broadcast; [K] on the left is a row, on the right a column, and
 * that axis is dropped again. 2 M K N flop per batch index. f32. */
TG_API tg_tensor tg_matmul_at(tg_site site, tg_tensor x, tg_tensor w);
/* The same, of matrices alone: at least 2 axes on both sides. */
TG_API tg_tensor tg_matmul_batched_at(tg_site site, tg_tensor a, tg_tensor b);
/* table [V, D], indices i32 [...] -> [..., D]. An index outside [0, V) is TG_ERROR_INDEX when the step or run is asked for. */
TG_API tg_tensor tg_embedding_at(tg_site site, tg_tensor table, tg_tensor indices);
/* i32 [...] -> [..., depth] of `dtype`. An index outside [0, depth) is TG_ERROR_INDEX, as above. */
TG_API tg_tensor tg_one_hot_at(tg_site site, tg_tensor indices, int64_t depth, tg_dtype dtype);
/* x [A.., n, B..], i32 indices [I..] into the axis of n -> [A.., I.., B..]: slices of x in the order of the indices; any dtype. Gradient:
 * scatter_add. An index outside [0, n) is TG_ERROR_INDEX, as above. */
TG_API tg_tensor tg_gather_at(tg_site site, tg_tensor x, tg_tensor indices, int axis);
/* y[.., i, ..] = x[.., indices[.., i, ..], ..]: indices have x's shape, but for the axis; any dtype. Index errors as above. */
TG_API tg_tensor tg_take_along_axis_at(tg_site site, tg_tensor x, tg_tensor indices, int axis);
/* x plus, for every index, the slice of `updates` that stands at it, added to the slice of x it names: updates have the shape of
 * gather(x, indices, axis). Always added in the same order. f32. Index errors as above. */
TG_API tg_tensor tg_scatter_add_at(tg_site site, tg_tensor x, tg_tensor indices, tg_tensor updates, int axis);
typedef struct tg_sort_options {
    bool descending;
    int reserved_;
} tg_sort_options;
/* Elements of an axis in order. Stable: equal elements keep theirs; NaN is last both ways; -0 comes back as 0. f32, i32. n^2
 * comparisons: meant for axes of up to a few thousand. The gradient goes back where each element came from. */
TG_API tg_tensor tg_sort_at(tg_site site, tg_tensor x, int axis, tg_sort_options options);
/* i32 positions that sort: take_along_axis(x, argsort(x, axis), axis) is sort(x, axis). No gradient. */
TG_API tg_tensor tg_argsort_at(tg_site site, tg_tensor x, int axis, tg_sort_options options);
typedef struct tg_top {
    tg_tensor values, indices; /* the axis has k elements; i32 indices, without gradient */
} tg_top;
/* The k largest of an axis, largest first, as sort has them descending; k outside 1 .. n is TG_ERROR_ARGUMENT. */
TG_API tg_top tg_top_k_at(tg_site site, tg_tensor x, int64_t k, int axis);
/* Einstein summation, as numpy.einsum: terms of letters, an ellipsis for leading axes that broadcast, "->" and the result's term, or
 * without it the ellipsis and the letters that occur once, by alphabet. A letter twice in a term is the diagonal. An axis of 1 is repeated
 * to the size that its letter has in other operands. Operands are multiplied left to right. f32. An equation that says something else is
 * TG_ERROR_ARGUMENT. */
TG_API tg_tensor tg_einsum_at(tg_site site, const char *equation, const tg_tensor *operands, int count);
typedef struct tg_rope_options {
    double base;      /* a normal f32 number over 0; 0 means 10000, TG_ZERO is refused */
    bool interleaved; /* pairs are neighbours (2 i, 2 i + 1); else (i, i + D / 2) */
    tg_tensor
        positions; /* i32, broadcast to x's axes but the last; none: 0 .. T - 1, exact; given, angles are f32: |error| < position 1e-7 */
    int reserved_;
} tg_rope_options;
/* Rotary position embedding (Su et al. 2021): x [..., T, D], D even; pair i of position t is turned by t base^(-2 i / D):
 * (a, b) -> (a cos - b sin, b cos + a sin). */
TG_API tg_tensor tg_rope_at(tg_site site, tg_tensor x, tg_rope_options options);
#define tg_gather(...) tg_gather_at(TG_SITE, __VA_ARGS__)
#define tg_take_along_axis(...) tg_take_along_axis_at(TG_SITE, __VA_ARGS__)
#define tg_scatter_add(...) tg_scatter_add_at(TG_SITE, __VA_ARGS__)
#define tg_sort(...) TG_WITH_2_(tg_sort_at, tg_sort_options, __VA_ARGS__, .reserved_ = 0)
#define tg_argsort(...) TG_WITH_2_(tg_argsort_at, tg_sort_options, __VA_ARGS__, .reserved_ = 0)
#define tg_top_k(...) tg_top_k_at(TG_SITE, __VA_ARGS__)
#define tg_einsum(...) tg_einsum_at(TG_SITE, __VA_ARGS__)
#define tg_rope(...) TG_WITH_1_(tg_rope_at, tg_rope_options, __VA_ARGS__, .reserved_ = 0)
#define tg_matmul(...) tg_matmul_at(TG_SITE, __VA_ARGS__)
#define tg_matmul_batched(...) tg_matmul_batched_at(TG_SITE, __VA_ARGS__)
#define tg_embedding(...) tg_embedding_at(TG_SITE, __VA_ARGS__)
#define tg_one_hot(...) tg_one_hot_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- softmax family */

/* Equal finite fills (all -1e9) give equal shares; a row of nothing but -infinity is NaN. */
TG_API tg_tensor tg_softmax_at(tg_site site, tg_tensor x, int axis);
TG_API tg_tensor tg_log_softmax_at(tg_site site, tg_tensor x, int axis);
TG_API tg_tensor tg_logsumexp_at(tg_site site, tg_tensor x, int axis); /* the axis is dropped; a row of -infinity alone: that   [0] */
/* softmax over the elements where the bool mask, which broadcasts to x, is true; 0 elsewhere. A row that hides everything is 0,
 * its gradient too. */
TG_API tg_tensor tg_masked_softmax_at(tg_site site, tg_tensor x, tg_tensor mask, int axis);
TG_API tg_tensor tg_softmax_causal_last_at(tg_site site, tg_tensor x);       /* [..., T, T]: row i sees columns 0..i */
TG_API tg_tensor tg_where_causal_at(tg_site site, tg_tensor x, double fill); /* [..., T, T]: columns > row become fill */
#define tg_softmax(...) tg_softmax_at(TG_SITE, __VA_ARGS__)
#define tg_log_softmax(...) tg_log_softmax_at(TG_SITE, __VA_ARGS__)
#define tg_log_softmax_last(...) tg_log_softmax_at(TG_SITE, __VA_ARGS__, -1)
#define tg_logsumexp(...) tg_logsumexp_at(TG_SITE, __VA_ARGS__)
#define tg_masked_softmax(...) tg_masked_softmax_at(TG_SITE, __VA_ARGS__)
#define tg_softmax_causal_last(...) tg_softmax_causal_last_at(TG_SITE, __VA_ARGS__)
#define tg_where_causal(...) tg_where_causal_at(TG_SITE, __VA_ARGS__)
/* The last two axes' lower triangle, column <= row + diagonal, 0 (false) elsewhere; any dtype. Of ones(bool): a mask. */
TG_API tg_tensor tg_tril_at(tg_site site, tg_tensor x, int64_t diagonal);
/* The upper triangle, column >= row + diagonal. */
TG_API tg_tensor tg_triu_at(tg_site site, tg_tensor x, int64_t diagonal);
#define tg_tril(...) tg_tril_at(TG_SITE, __VA_ARGS__)
#define tg_triu(...) tg_triu_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- random numbers */

/* Drawn anew by every step and by every run, from the model's seed, the number of the step and the operation's place in the trace: the
 * same on every device, whatever the number of threads, and in the forward and the backward half of a step (randn and categorical:
 * up to the last bits of log and cos). tg_model_reset begins again; a checkpoint goes on. A refused call draws nothing. What steps
 * draw does not depend on runs in between: the runs of a model and its siblings share a count of their own. Two operations never
 * draw the same. No gradient goes through a draw. */

/* f32, uniform in [0, 1): multiples of 2^-24. */
TG_API tg_tensor tg_rand_at(tg_site site, tg_graph *g, tg_shape shape);
/* f32, normal with mean 0 and standard deviation 1, by Box & Muller's formula; always finite, |y| < 6.6. */
TG_API tg_tensor tg_randn_at(tg_site site, tg_graph *g, tg_shape shape);
/* i32, uniform in [lo, hi). An empty range, one that goes beyond i32 or holds more than 2^31 numbers is TG_ERROR_ARGUMENT. */
TG_API tg_tensor tg_rand_int_at(tg_site site, tg_graph *g, tg_shape shape, int64_t lo, int64_t hi);
/* bool, true with probability p: a number in [0, 1] (else TG_ERROR_ARGUMENT), or an f32 tensor that broadcasts to `shape`, in which 1
 * and more is always true, 0 and less, and NaN, never. */
TG_API tg_tensor tg_bernoulli_at(tg_site site, tg_graph *g, tg_shape shape, tg_operand p);
/* i32: index i along the axis, which is dropped, with probability softmax(logits)[i], by Gumbel's maximum. f32 logits, of
 * which the largest is taken away first; one that is -infinity is never drawn unless all are. */
TG_API tg_tensor tg_categorical_at(tg_site site, tg_tensor logits, int axis);
/* x / (1 - p) with probability 1 - p, else 0, each element on its own; f32. p = 0 is x and draws nothing; p outside [0, 1) is
 * TG_ERROR_ARGUMENT. [the cotangent / (1 - p) where x was kept, 0 where not.] It drops in runs too: pass p = 0, or leave it
 * out, in a forward model or sibling that is to predict. */
TG_API tg_tensor tg_dropout_at(tg_site site, tg_tensor x, double p);
#define tg_rand(...) tg_rand_at(TG_SITE, __VA_ARGS__)
#define tg_randn(...) tg_randn_at(TG_SITE, __VA_ARGS__)
#define tg_rand_int(...) tg_rand_int_at(TG_SITE, __VA_ARGS__)
#define tg_bernoulli(g, shape, p) tg_bernoulli_at(TG_SITE, (g), (shape), TG_OPERAND(p))
#define tg_categorical(...) tg_categorical_at(TG_SITE, __VA_ARGS__)
#define tg_dropout(...) tg_dropout_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- convolutions, pooling */

/* Channels first, as PyTorch has them: x [N, C, L] or [N, C, H, W]. A pair belongs to H and W, or its first number to L. */

typedef enum tg_padding_mode {
    TG_PADDING_SIDES = 0, /* `before` and `after` each axis */
    TG_PADDING_SAME       /* as many outputs as inputs (stride 1 only): dilation (kernel - 1) in all, the odd one after */
} tg_padding_mode;
typedef struct tg_padding { /* .padding = 1 is no padding: tg_padding_all(1) is */
    const void *none_;      /* NULL */
    tg_padding_mode mode;
    int64_t before[2], after[2];
} tg_padding;
TG_API tg_padding tg_padding_all(int64_t each);                   /* on every side */
TG_API tg_padding tg_padding_axes(int64_t first, int64_t second); /* on both sides of an axis */
TG_API tg_padding tg_padding_sides(int64_t before_first, int64_t after_first, int64_t before_second, int64_t after_second);
TG_API tg_padding tg_padding_same(void);
TG_API tg_padding tg_padding_valid(void); /* none */

typedef struct tg_conv_options {
    int64_t stride[2];         /* 0 means 1; a 0 behind another number means that number. In 1-D a second number that is not 0 has to be
                                  the first again, of every pair of numbers: TG_ERROR_ARGUMENT */
    tg_padding padding;        /* default: none */
    int64_t dilation[2];       /* as stride */
    int64_t groups;            /* 0 means 1 */
    int64_t output_padding[2]; /* transposed only: further elements at the end; under the stride or the dilation */
    tg_tensor bias;            /* [O], when given */
    int reserved_;
} tg_conv_options;
/* y[n, o, i] = sum over c, k of w[o, c, k] x[n, c, i stride + k dilation - padding], x being 0 outside; and the same over H and W. No
 * flip: a cross-correlation, as in PyTorch. x [N, C, L], w [O, C / groups, k] -> [N, O, floor((L + padding - dilation (k - 1) - 1) /
 * stride) + 1]. Output channel o sees the input channels of its group alone. TG_ERROR_SHAPE: wrong ranks, channels that differ or do not
 * divide into groups, a kernel beyond the padded input, windows that hold more than 2^31 - 1 elements in all (N C out k; transposed N O L
 * k): they are a view, not stored, but indexed in 32 bits. TG_ERROR_ARGUMENT: a stride, dilation or groups under 1, padding under 0. 2 N O
 * C / groups k out flop. */
TG_API tg_tensor tg_conv1d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options);
TG_API tg_tensor tg_conv2d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options); /* w [O, C / groups, kh, kw] */
#define tg_conv1d(...) TG_WITH_2_(tg_conv1d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)
#define tg_conv2d(...) TG_WITH_2_(tg_conv2d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)
/* The gradient of a convolution by its input as an operation: x[n, c, i] w[c, o, k] is added to y[n, o, i stride + k dilation - padding].
 * x [N, C, L], w [C, O / groups, k] -> [N, O, (L - 1) stride + dilation (k - 1) + 1 - padding + output_padding]. */
TG_API tg_tensor tg_conv_transpose1d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options);
TG_API tg_tensor tg_conv_transpose2d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options);
#define tg_conv_transpose1d(...) TG_WITH_2_(tg_conv_transpose1d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)
#define tg_conv_transpose2d(...) TG_WITH_2_(tg_conv_transpose2d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)

typedef struct tg_pool_options {
    int64_t stride[2];    /* 0: the kernel; a 0 behind another number means that number */
    tg_padding padding;   /* under the kernel, or TG_ERROR_ARGUMENT: a window wholly in it would hold nothing */
    bool ceil_mode;       /* a last window may reach beyond the end, if it begins before it */
    bool exclude_padding; /* averages: divide by the elements of x alone; default: padding counts as zeros (beyond it nothing counts) */
    int reserved_;
} tg_pool_options;
/* Over each window of each channel: [N, C, L] -> [N, C, out], out as in a convolution without dilation. max: padding never wins; the
 * gradient is shared equally by the elements that are equal to the maximum; NaN wins. TG_ERROR_LIMIT: windows that hold more than 2^31 - 1
 * elements in all, N C out kernel. */
TG_API tg_tensor tg_max_pool1d_at(tg_site site, tg_tensor x, int64_t kernel, tg_pool_options options);
TG_API tg_tensor tg_max_pool2d_at(tg_site site, tg_tensor x, int64_t kernel_h, int64_t kernel_w, tg_pool_options options);
TG_API tg_tensor tg_avg_pool1d_at(tg_site site, tg_tensor x, int64_t kernel, tg_pool_options options);
TG_API tg_tensor tg_avg_pool2d_at(tg_site site, tg_tensor x, int64_t kernel_h, int64_t kernel_w, tg_pool_options options);
#define tg_max_pool1d(...) TG_WITH_2_(tg_max_pool1d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
#define tg_max_pool2d(...) TG_WITH_3_(tg_max_pool2d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
#define tg_avg_pool1d(...) TG_WITH_2_(tg_avg_pool1d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
#define tg_avg_pool2d(...) TG_WITH_3_(tg_avg_pool2d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
TG_API tg_tensor tg_global_avg_pool_at(tg_site site, tg_tensor x); /* [N, C, ...] -> [N, C] */
TG_API tg_tensor tg_global_max_pool_at(tg_site site, tg_tensor x);
#define tg_global_avg_pool(...) tg_global_avg_pool_at(TG_SITE, __VA_ARGS__)
#define tg_global_max_pool(...) tg_global_max_pool_at(TG_SITE, __VA_ARGS__)

typedef struct tg_upsample_options {
    int64_t factor[2];  /* 0 means 2; a 0 behind another number means that number */
    bool align_corners; /* bilinear: the first and the last elements stay first and last; default: elements are areas, as in images */
    int reserved_;
} tg_upsample_options;
/* [N, C, H, W] -> [N, C, H factor, W factor] (or [N, C, L]). nearest: y[i] = x[floor(i / factor)]. bilinear: between the two nearest
 * elements of each axis, y[i] = (1 - t) x[p] + t x[p + 1] with p + t = max((i + 0.5) / factor - 0.5, 0), or i (H - 1) / (H factor - 1)
 * with align_corners; beyond the last element it is the last. As torch.nn.functional.interpolate. */
TG_API tg_tensor tg_upsample_nearest_at(tg_site site, tg_tensor x, tg_upsample_options options);
TG_API tg_tensor tg_upsample_bilinear_at(tg_site site, tg_tensor x, tg_upsample_options options);
#define tg_upsample_nearest(...) TG_WITH_1_(tg_upsample_nearest_at, tg_upsample_options, __VA_ARGS__, .reserved_ = 0)
#define tg_upsample_bilinear(...) TG_WITH_1_(tg_upsample_bilinear_at, tg_upsample_options, __VA_ARGS__, .reserved_ = 0)

/* ---------------------------------------------------------------- captures */

/* Names t so that a step can return its value. Returns t. Costs nothing unless captures are asked for. */
TG_API tg_tensor tg_capture_at(tg_site site, const char *name, tg_tensor t);
#define tg_capture(...) tg_capture_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- layers and losses */

typedef struct tg_linear {
    tg_tensor W, b;
    bool has_bias;
} tg_linear;
typedef struct tg_linear_options {
    bool no_bias;
    tg_init init;
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_linear_options;
/* Parameters `name.W` [in, out] and `name.b` [out] (zeros). Default init: kaiming. */
TG_API tg_linear tg_nn_linear_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, tg_linear_options options);
TG_API tg_tensor tg_nn_linear_fwd_at(tg_site site, tg_linear layer, tg_tensor x); /* x W + b */
#define tg_nn_linear(...) TG_WITH_4_(tg_nn_linear_at, tg_linear_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_linear_fwd(...) tg_nn_linear_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_embedding_table {
    tg_tensor W;
} tg_embedding_table;
typedef struct tg_embedding_options {
    tg_init init;
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_embedding_options;
/* Parameter `name.W` [count, dim]: a row for each of `count` things. Default init: normal, std .02. */
TG_API tg_embedding_table tg_nn_embedding_at(tg_site site, tg_graph *g, const char *name, int64_t count, int64_t dim,
                                             tg_embedding_options options);
TG_API tg_tensor tg_nn_embedding_fwd_at(tg_site site, tg_embedding_table layer, tg_tensor indices); /* tg_embedding of W */
#define tg_nn_embedding(...) TG_WITH_4_(tg_nn_embedding_at, tg_embedding_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_embedding_fwd(...) tg_nn_embedding_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_layer_norm {
    tg_tensor g, b;
    double eps;
} tg_layer_norm;
typedef struct tg_layer_norm_options {
    double eps;  /* at least 0; 0 means 1e-5, TG_ZERO none */
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_layer_norm_options;
/* Parameters `name.g` (ones) and `name.b` (zeros), [dim]. y = (x - mean) / sqrt(var + eps) g + b, biased variance. */
TG_API tg_layer_norm tg_nn_layer_norm_at(tg_site site, tg_graph *g, const char *name, int64_t dim, tg_layer_norm_options options);
TG_API tg_tensor tg_nn_layer_norm_fwd_at(tg_site site, tg_layer_norm layer, tg_tensor x);
#define tg_nn_layer_norm(...) TG_WITH_3_(tg_nn_layer_norm_at, tg_layer_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_layer_norm_fwd(...) tg_nn_layer_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_rms_norm {
    tg_tensor g;
    double eps;
} tg_rms_norm;
typedef struct tg_rms_norm_options {
    double eps;  /* at least 0; 0 means 1e-5, TG_ZERO none */
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_rms_norm_options;
/* Parameter `name.g` (ones), [dim]. y = x / sqrt(mean(x^2) + eps) g over the last axis (Zhang & Sennrich 2019). */
TG_API tg_rms_norm tg_nn_rms_norm_at(tg_site site, tg_graph *g, const char *name, int64_t dim, tg_rms_norm_options options);
TG_API tg_tensor tg_nn_rms_norm_fwd_at(tg_site site, tg_rms_norm layer, tg_tensor x);
#define tg_nn_rms_norm(...) TG_WITH_3_(tg_nn_rms_norm_at, tg_rms_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_rms_norm_fwd(...) tg_nn_rms_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_group_norm {
    tg_tensor g, b;
    int64_t groups;
    double eps;
} tg_group_norm;
typedef struct tg_group_norm_options {
    double eps;  /* at least 0; 0 means 1e-5, TG_ZERO none */
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_group_norm_options;
/* Parameters `name.g` (ones) and `name.b` (zeros), [channels]. x [N, C, ...]: as a layer norm over each group of C / groups channels and
 * all axes behind them, then times g plus b of the channel (Wu & He 2018). */
TG_API tg_group_norm tg_nn_group_norm_at(tg_site site, tg_graph *g, const char *name, int64_t groups, int64_t channels,
                                         tg_group_norm_options options);
TG_API tg_tensor tg_nn_group_norm_fwd_at(tg_site site, tg_group_norm layer, tg_tensor x);
#define tg_nn_group_norm(...) TG_WITH_4_(tg_nn_group_norm_at, tg_group_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_group_norm_fwd(...) tg_nn_group_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_batch_norm {
    tg_tensor g, b, mean, var;
    double eps, momentum;
} tg_batch_norm;
typedef struct tg_batch_norm_options {
    double eps;      /* at least 0; 0 means 1e-5, TG_ZERO none */
    double momentum; /* in [0, 1], of the newest batch; 0 means 0.1, TG_ZERO that mean and var stay */
    bool frozen;     /* its parameters are not trained */
    int reserved_;
} tg_batch_norm_options;
/* Parameters `name.g` (ones) and `name.b` (zeros), states `name.mean` (zeros) and `name.var` (ones), all [channels] and named by the open
 * scopes. */
TG_API tg_batch_norm tg_nn_batch_norm_at(tg_site site, tg_graph *g, const char *name, int64_t channels, tg_batch_norm_options options);
/* x [N, C, ...], y = (x - mean) / sqrt(var + eps) g + b for each channel (Ioffe & Szegedy 2015). Training: mean and biased variance over
 * all axes but 1, n numbers, n at least 2 (else TG_ERROR_SHAPE); and after the step mean += momentum (batch mean - mean) and var +=
 * momentum (batch variance n / (n - 1) - var), once in a trace. Else those states, which a sibling shares with the model that is trained. A
 * run changes none. */
TG_API tg_tensor tg_nn_batch_norm_fwd_at(tg_site site, tg_batch_norm layer, tg_tensor x, bool training);
#define tg_nn_batch_norm(...) TG_WITH_3_(tg_nn_batch_norm_at, tg_batch_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_batch_norm_fwd(...) tg_nn_batch_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_conv {
    tg_tensor W, b;
    bool has_bias;
    tg_conv_options options;
} tg_conv;
typedef struct tg_conv_layer_options {
    int64_t stride[2]; /* these five as in tg_conv_options */
    tg_padding padding;
    int64_t dilation[2];
    int64_t groups;
    int64_t output_padding[2];
    bool no_bias;
    tg_init init;
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_conv_layer_options;
/* Parameters `name.W` [out, in / groups, k...] (transposed: [in, out / groups, k...]) and `name.b` [out] (zeros). Default init: kaiming,
 * normal with std = gain / sqrt(fan in), the gain being sqrt 2 or tg_init_kaiming's, fan in = in / groups times the kernel's elements
 * (transposed: over the product of the strides), the numbers that meet in one output. */
TG_API tg_conv tg_nn_conv1d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel,
                               tg_conv_layer_options options);
TG_API tg_conv tg_nn_conv2d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel_h, int64_t kernel_w,
                               tg_conv_layer_options options);
TG_API tg_conv tg_nn_conv_transpose2d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel_h,
                                         int64_t kernel_w, tg_conv_layer_options options);
TG_API tg_tensor tg_nn_conv1d_fwd_at(tg_site site, tg_conv layer, tg_tensor x); /* tg_conv1d with W, b and the options */
TG_API tg_tensor tg_nn_conv2d_fwd_at(tg_site site, tg_conv layer, tg_tensor x);
TG_API tg_tensor tg_nn_conv_transpose2d_fwd_at(tg_site site, tg_conv layer, tg_tensor x);
#define tg_nn_conv1d(...) TG_WITH_5_(tg_nn_conv1d_at, tg_conv_layer_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_conv2d(...) TG_WITH_6_(tg_nn_conv2d_at, tg_conv_layer_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_conv_transpose2d(...) TG_WITH_6_(tg_nn_conv_transpose2d_at, tg_conv_layer_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_conv1d_fwd(...) tg_nn_conv1d_fwd_at(TG_SITE, __VA_ARGS__)
#define tg_nn_conv2d_fwd(...) tg_nn_conv2d_fwd_at(TG_SITE, __VA_ARGS__)
#define tg_nn_conv_transpose2d_fwd(...) tg_nn_conv_transpose2d_fwd_at(TG_SITE, __VA_ARGS__)

/* Recurrent layers. The gates' weights lie side by side: `name.Wx` [in, G h], `name.Wh` [h, G h], `name.bx` and `name.bh` [G h], PyTorch's
 * weight_ih_l0, weight_hh_l0 (both transposed) and biases. Default init of all four: uniform(1 / sqrt h); biases do not decay. With
 * x. = x Wx. + bx. and h. = h Wh. + bh. of each gate:
 *  rnn (G 1): h' = tanh(x + h), or relu of it
 *  gru (G 3: r, z, n): r = sigmoid(xr + hr), z = sigmoid(xz + hz), n = tanh(xn + r hn), h' = (1 - z) n + z h (Cho et al. 2014)
 *  lstm (G 4: i, f, g, o): c' = sigmoid(xf + hf) c + sigmoid(xi + hi) tanh(xg + hg), h' = sigmoid(xo + ho) tanh(c') (Gers et al. 2000) */
typedef struct tg_recurrent {
    tg_tensor Wx, Wh, bx, bh;
    bool has_bias, relu;
} tg_recurrent;
typedef struct tg_recurrent_options {
    bool no_bias;
    tg_init init; /* of Wx and Wh */
    bool relu;    /* rnn only: in place of tanh */
    bool frozen;  /* its parameters are not trained */
    int reserved_;
} tg_recurrent_options;
TG_API tg_recurrent tg_nn_rnn_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options);
TG_API tg_recurrent tg_nn_gru_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options);
TG_API tg_recurrent tg_nn_lstm_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options);
#define tg_nn_rnn(...) TG_WITH_4_(tg_nn_rnn_at, tg_recurrent_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_gru(...) TG_WITH_4_(tg_nn_gru_at, tg_recurrent_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_lstm(...) TG_WITH_4_(tg_nn_lstm_at, tg_recurrent_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_lstm_states {
    tg_tensor h, c; /* hidden, cell */
} tg_lstm_states;
/* One step: x [B, in], h (and c) [B, h] -> the states after it, [B, h]. 2 B G h (in + h) flop. */
TG_API tg_tensor tg_nn_rnn_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_tensor h);
TG_API tg_tensor tg_nn_gru_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_tensor h);
TG_API tg_lstm_states tg_nn_lstm_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before);
#define tg_nn_rnn_step(...) tg_nn_rnn_step_at(TG_SITE, __VA_ARGS__)
#define tg_nn_gru_step(...) tg_nn_gru_step_at(TG_SITE, __VA_ARGS__)
#define tg_nn_lstm_step(...) tg_nn_lstm_step_at(TG_SITE, __VA_ARGS__)
typedef struct tg_recurrent_start {
    tg_tensor h0, c0; /* [B, h]; left out: zeros. c0: lstm only */
    int reserved_;
} tg_recurrent_start;
/* Every step of x [B, T, in] -> the states after each, [B, T, h] (lstm: hidden and cell states). Unrolled: T copies of the cell in the
 * trace, x Wx of all steps in one contraction. */
TG_API tg_tensor tg_nn_rnn_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start);
TG_API tg_tensor tg_nn_gru_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start);
TG_API tg_lstm_states tg_nn_lstm_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start);
#define tg_nn_rnn_fwd(...) TG_WITH_2_(tg_nn_rnn_fwd_at, tg_recurrent_start, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_gru_fwd(...) TG_WITH_2_(tg_nn_gru_fwd_at, tg_recurrent_start, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_lstm_fwd(...) TG_WITH_2_(tg_nn_lstm_fwd_at, tg_recurrent_start, __VA_ARGS__, .reserved_ = 0)

TG_API tg_tensor tg_nn_split_heads_at(tg_site site, tg_tensor x, int64_t heads); /* [..., T, H d] -> [..., H, T, d] */
TG_API tg_tensor tg_nn_merge_heads_at(tg_site site, tg_tensor x);                /* [..., H, T, d] -> [..., T, H d] */
#define tg_nn_split_heads(...) tg_nn_split_heads_at(TG_SITE, __VA_ARGS__)
#define tg_nn_merge_heads(...) tg_nn_merge_heads_at(TG_SITE, __VA_ARGS__)

/* ---- attention (Vaswani et al. 2017), with fewer heads of keys than of queries if wanted (Ainslie et al. 2023) */

typedef struct tg_attention_mask {
    bool causal;    /* position i sees those up to i; as many keys as queries */
    tg_tensor mask; /* bool, broadcast to [B, H, T, S]: what is seen; a row that sees nothing has weights 0. Left out: all is */
    int reserved_;
} tg_attention_mask;
/* q [B, H, T, d], k [B, Hk, S, d], Hk dividing H -> softmax(q k^T / sqrt d) [B, H, T, S]; head h has the keys of head h Hk / H. */
TG_API tg_tensor tg_nn_attention_weights_at(tg_site site, tg_tensor q, tg_tensor k, tg_attention_mask options);
/* weights [B, H, T, S], v [B, Hk, S, d] -> weights v, [B, H, T, d]. */
TG_API tg_tensor tg_nn_attention_values_at(tg_site site, tg_tensor weights, tg_tensor v);
#define tg_nn_attention_weights(...) TG_WITH_2_(tg_nn_attention_weights_at, tg_attention_mask, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_attention_values(...) tg_nn_attention_values_at(TG_SITE, __VA_ARGS__)

typedef struct tg_attention {
    tg_linear q, k, v, o;
    int64_t heads, kv_heads;
    bool causal;
    double rope_base;
} tg_attention;
typedef struct tg_attention_options {
    int64_t kv_heads; /* 0: heads */
    bool causal;
    bool no_bias;
    double rope_base; /* queries and keys are turned by tg_rope with this base; 0 and TG_ZERO: not at all */
    int64_t context;  /* what keys and values are made of has so many numbers; 0: dim */
    tg_init init;     /* of the four W; default: kaiming */
    bool frozen;      /* its parameters are not trained */
    int reserved_;
} tg_attention_options;
/* Linear layers `name.q` [dim, dim], `name.k` and `name.v` [context, dim / heads kv_heads], `name.o` [dim, dim]. */
TG_API tg_attention tg_nn_attention_at(tg_site site, tg_graph *g, const char *name, int64_t dim, int64_t heads,
                                       tg_attention_options options);
typedef struct tg_attention_inputs {
    tg_tensor context;   /* [B, S, context]; left out: x */
    tg_tensor mask;      /* as in tg_attention_mask */
    const char *capture; /* NULL, or the name under which the weights are captured */
    int reserved_;
} tg_attention_inputs;
/* x [B, T, dim] -> [B, T, dim]: heads of q(x), of k and v of the context, the values by the weights, o of the heads side by side. */
TG_API tg_tensor tg_nn_attention_fwd_at(tg_site site, tg_attention layer, tg_tensor x, tg_attention_inputs inputs);
#define tg_nn_attention(...) TG_WITH_4_(tg_nn_attention_at, tg_attention_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_attention_fwd(...) TG_WITH_2_(tg_nn_attention_fwd_at, tg_attention_inputs, __VA_ARGS__, .reserved_ = 0)

#define TG_MLP_LAYERS 16
typedef struct tg_mlp {
    tg_linear layers[TG_MLP_LAYERS];
    int count;
    tg_tensor (*activation)(tg_site site, tg_tensor x);
    bool activate_last;
} tg_mlp;
typedef struct tg_mlp_options {
    tg_tensor (*activation)(tg_site site, tg_tensor x); /* tg_gelu_at, any other of one operand, or your own; NULL: tg_relu_at */
    bool activate_last;                                 /* behind the last layer too */
    bool no_bias;
    tg_init init; /* of every W; default: kaiming */
    bool frozen;  /* its parameters are not trained */
    int reserved_;
} tg_mlp_options;
/* Linear layers `name.0` [sizes[0], sizes[1]], `name.1` and so on, an activation between them; count - 1 layers, TG_MLP_LAYERS at most. */
TG_API tg_mlp tg_nn_mlp_at(tg_site site, tg_graph *g, const char *name, const int64_t *sizes, int count, tg_mlp_options options);
TG_API tg_tensor tg_nn_mlp_fwd_at(tg_site site, tg_mlp mlp, tg_tensor x);
#ifdef __cplusplus
#  define tg_nn_mlp(...) TG_WITH_4_(tg_nn_mlp_at, tg_mlp_options, __VA_ARGS__, .reserved_ = 0)
#else /* arguments and options as one struct, so that sizes may be written in place: (int64_t[]){2, 64, 1}, 3 */
typedef struct tg_mlp_call_ {
    tg_site site;
    tg_graph *g;
    const char *name;
    const int64_t *sizes;
    int count;
    tg_tensor (*activation)(tg_site site, tg_tensor x);
    bool activate_last, no_bias;
    tg_init init;
    bool frozen;
    int reserved_;
} tg_mlp_call_;
static inline tg_mlp tg_nn_mlp_call_(tg_mlp_call_ c) {
    const tg_mlp_options options = {
        .activation = c.activation, .activate_last = c.activate_last, .no_bias = c.no_bias, .init = c.init, .frozen = c.frozen};
    return tg_nn_mlp_at(c.site, c.g, c.name, c.sizes, c.count, options);
}
#  define tg_nn_mlp(...) tg_nn_mlp_call_((tg_mlp_call_){TG_SITE, __VA_ARGS__, .reserved_ = 0})
#endif
#define tg_nn_mlp_fwd(...) tg_nn_mlp_fwd_at(TG_SITE, __VA_ARGS__)

/* ---- losses. Shapes must be equal: a loss never broadcasts. mean and sum: over all elements (all positions that count) -> rank 0; none:
 * one for each. */
typedef enum tg_reduction { TG_REDUCTION_MEAN = 0, TG_REDUCTION_SUM = 1, TG_REDUCTION_NONE = 2 } tg_reduction;
typedef struct tg_loss_options {
    tg_reduction reduction;
    int reserved_;
} tg_loss_options;

/* logits [..., V], targets i32 [...] -> per-position -log softmax(logits)[target], [...]. A target outside [0, V) is TG_ERROR_INDEX, as in
 * an embedding. */
TG_API tg_tensor tg_nn_cross_entropy_last_at(tg_site site, tg_tensor logits, tg_tensor targets);
typedef struct tg_cross_entropy_options {
    tg_reduction reduction;
    double label_smoothing; /* e in [0, 1), 0: none: (1 - e) of the above and e mean(-log softmax(logits)) over the V classes */
    int reserved_;
} tg_cross_entropy_options;
/* As above, over the positions whose target is not `ignore` (any number, a class too): the others count as 0 with gradient 0, whatever
 * their logits are, NaN too, and not in the mean, which is 0 where every target is ignored. Other targets outside [0, V) are
 * TG_ERROR_INDEX. */
TG_API tg_tensor tg_nn_cross_entropy_at(tg_site site, tg_tensor logits, tg_tensor targets, int32_t ignore,
                                        tg_cross_entropy_options options);
/* The same of log probabilities [..., V]: -log_probabilities[target]. */
TG_API tg_tensor tg_nn_nll_at(tg_site site, tg_tensor log_probabilities, tg_tensor targets, int32_t ignore, tg_loss_options options);
TG_API tg_tensor tg_nn_mse_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_loss_options options); /* (p - t)^2 */
TG_API tg_tensor tg_nn_l1_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_loss_options options);  /* |p - t| */
typedef struct tg_huber_options {
    tg_reduction reduction;
    double delta; /* a normal f32 number over 0; 0 means 1, TG_ZERO is refused */
    int reserved_;
} tg_huber_options;
/* With e = |p - t|: e^2 / 2 up to delta, delta (e - delta / 2) beyond (Huber 1964). */
TG_API tg_tensor tg_nn_huber_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_huber_options options);
typedef struct tg_bce_options {
    tg_reduction reduction;
    tg_tensor positive_weight; /* w, left out: 1; f32, and this alone may broadcast to the logits */
    int reserved_;
} tg_bce_options;
/* -w t log sigmoid(x) - (1 - t) log sigmoid(-x), without overflow, exact where it is small; at infinity: 0 or infinity. */
TG_API tg_tensor tg_nn_bce_with_logits_at(tg_site site, tg_tensor logits, tg_tensor target, tg_bce_options options);
typedef struct tg_kl_options {
    tg_reduction reduction;
    bool log_target; /* the target is log p */
    int reserved_;
} tg_kl_options;
/* p (log p - log q), q the prediction, given as log q, p the target; 0 with gradient 0 where p is 0. Summed over a row it is the divergence
 * KL(p || q), Kullback & Leibler 1951; mean, as everywhere here, is over all elements. */
TG_API tg_tensor tg_nn_kl_div_at(tg_site site, tg_tensor log_prediction, tg_tensor target, tg_kl_options options);
#define tg_nn_cross_entropy_last(...) tg_nn_cross_entropy_last_at(TG_SITE, __VA_ARGS__)
#define tg_nn_cross_entropy(...) TG_WITH_3_(tg_nn_cross_entropy_at, tg_cross_entropy_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_nll(...) TG_WITH_3_(tg_nn_nll_at, tg_loss_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_mse(...) TG_WITH_2_(tg_nn_mse_at, tg_loss_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_l1(...) TG_WITH_2_(tg_nn_l1_at, tg_loss_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_huber(...) TG_WITH_2_(tg_nn_huber_at, tg_huber_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_bce_with_logits(...) TG_WITH_2_(tg_nn_bce_with_logits_at, tg_bce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_kl_div(...) TG_WITH_2_(tg_nn_kl_div_at, tg_kl_options, __VA_ARGS__, .reserved_ = 0)

/* ---------------------------------------------------------------- gradients */

/* out[i] = d loss / d wrt[i], same shape as wrt[i]; zeros where the loss does not depend on it. loss must be rank 0
 * f32, each wrt f32. The gradients are ordinary tensors of the trace: differentiate them again at will. On failure out[0..n)
 * are poison, so that a build function may go on and check once. */
TG_API tg_status tg_grad_at(tg_site site, tg_tensor loss, const tg_tensor *wrt, int n, tg_tensor *out);
/* out[i] = sum_j cotangent_j d y_j / d wrt[i]; cotangent has y's shape. */
TG_API tg_status tg_vjp_at(tg_site site, tg_tensor y, tg_tensor cotangent, const tg_tensor *wrt, int n, tg_tensor *out);
#define tg_grad(...) tg_grad_at(TG_SITE, __VA_ARGS__)
#define tg_vjp(...) tg_vjp_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- learning rates, optimisers */

typedef enum tg_lr_kind {
    TG_LR_CONSTANT = 0,
    TG_LR_LINEAR,
    TG_LR_COSINE,
    TG_LR_WARMUP,
    TG_LR_STAIRCASE,
    TG_LR_MULTI_STEP,
    TG_LR_ONE_CYCLE
} tg_lr_kind;
#define TG_LR_MILESTONES 6
#define TG_LR_WARMUPS 2 /* one after another, at most */
/* A plain value; evaluated in the step at t = 1, 2, ... (t counts updates, the first has t = 1: an update is a step, or with gradient
 * accumulation `accumulate` steps).
 *  constant: peak.   linear: peak + (final - peak) min(t / steps, 1).
 *  cosine: final + (peak - final) (1 + cos(pi min(t / steps, 1))) / 2.
 *  warm-up: peak t / warmup_steps for t <= warmup_steps, then `after` at t - warmup_steps, which may be a warm-up again.
 *  staircase: peak factor^floor((t - 1) / steps): `steps` updates at each rate.
 *  multi-step: peak factor^n, n: how many milestones are under t (after milestone m updates the rate falls).
 *  one cycle (Smith & Topin 2018): initial + (peak - initial) (1 - cos(pi t / rise)) / 2 for t <= rise, then
 *  final + (peak - final) (1 + cos(pi min((t - rise) / (steps - rise), 1))) / 2. */
typedef struct tg_lr { /* .lr = {0.05} is tg_lr_constant(0.05) */
    double peak;
    tg_lr_kind kind;
    double final;
    int64_t steps;
    /* warm-up only: the schedule that follows the last warm-up; the fields from `factor` on then belong to it */
    tg_lr_kind after_kind;
    double after_peak, after_final;
    int64_t after_steps;
    double factor;                        /* staircase, multi-step: over 0 */
    double initial;                       /* one cycle */
    int64_t rise;                         /* one cycle: 1 to steps - 1 */
    int64_t milestones[TG_LR_MILESTONES]; /* multi-step: rising, from 1 on */
    int32_t milestone_count;
    /* warm-up only: the warm-ups that follow the first */
    int32_t more_count; /* at most TG_LR_WARMUPS - 1 */
    double more_peaks[TG_LR_WARMUPS - 1];
    int64_t more_steps[TG_LR_WARMUPS - 1];
} tg_lr;
TG_API tg_lr tg_lr_constant(double rate);
TG_API tg_lr tg_lr_linear_decay(double peak, double final, int64_t steps);
TG_API tg_lr tg_lr_cosine_decay(double peak, double final, int64_t steps);
/* More than TG_LR_WARMUPS in a row are kept as a count, which whoever uses the schedule refuses. */
TG_API tg_lr tg_lr_warmup(double peak, int64_t warmup_steps, tg_lr after);
TG_API tg_lr tg_lr_staircase(double peak, double factor, int64_t steps);
/* More than TG_LR_MILESTONES are kept as a count, which whoever uses the schedule refuses. */
TG_API tg_lr tg_lr_multi_step(double peak, double factor, const int64_t *milestones, int count);
/* From peak / 25 up to peak in 3 tenths of the steps, then down to peak / 250,000 (the usual choice); change the fields for another. */
TG_API tg_lr tg_lr_one_cycle(double peak, int64_t steps);
TG_API double tg_lr_value(tg_lr schedule, int64_t t); /* on the host, same formula */
/* The rate as a rank-0 f32 tensor; t is an i32 rank-0 tensor. */
TG_API tg_tensor tg_resolve_lr_at(tg_site site, tg_lr schedule, tg_tensor t);
#define tg_resolve_lr(...) tg_resolve_lr_at(TG_SITE, __VA_ARGS__)

typedef enum tg_optimizer_kind {
    TG_OPTIMIZER_NONE = 0,
    TG_OPTIMIZER_SGD,
    TG_OPTIMIZER_ADAM,
    TG_OPTIMIZER_ADAMW,
    TG_OPTIMIZER_LION,
    TG_OPTIMIZER_RMSPROP,
    TG_OPTIMIZER_ADAGRAD,
    TG_OPTIMIZER_MUON
} tg_optimizer_kind;
typedef enum tg_eps_mode {
    TG_EPS_UNCORRECTED = 0, /* lr sqrt(1-b2^t)/(1-b1^t) m / (sqrt v + eps): Kingma & Ba's closing remark, TensorFlow */
    TG_EPS_CORRECTED = 1    /* lr m^ / (sqrt v^ + eps): PyTorch */
} tg_eps_mode;
/* Options for the parameters whose names match `pattern`: '*' stands for any run of characters, '?' for any one. The first group that
 * matches a name has it. A group that matches nothing, or only what earlier groups have, is TG_ERROR_NOT_FOUND. */
typedef struct tg_param_group {
    const char *pattern;
    double rate;         /* [1] factor of the schedule's rate, of decay too; TG_ZERO: 0, but not in every group */
    double weight_decay; /* [0: the optimizer's] for those that decay; TG_ZERO: none */
    tg_choice decay;     /* whether they decay; TG_DEFAULT: as their own flag (or decay_filter) says */
    bool frozen;         /* not trained, and no gradient computed */
    bool plain;          /* Muon: Adam's update for matrices too (embeddings, the last layer) */
} tg_param_group;
/* Zero fields mean the default in brackets; TG_ZERO is 0, where that is "off" too. An option of other kinds is refused.
 * Decay is decoupled and acts on parameters whose decay flag is set: p <- (1 - lr wd) p - update.
 * g: the gradient, after (in this order) accumulation, clip_value, and clip_norm or normalize.
 * SGD: buf = momentum buf + g; update = lr (nesterov ? g + momentum buf : buf).
 * Adam: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; the update is beside eps_mode. Kingma & Ba 2015.
 * AdamW: Adam with a weight_decay of [0.01]. Loshchilov & Hutter 2019.
 * Lion: update = lr sign(beta1 m + (1 - beta1) g); then m = beta2 m + (1 - beta2) g. [.9, .99] Chen et al. 2023.
 * RMSProp: v = beta2 v + (1 - beta2) g g [.99]; d = g / (sqrt v + eps); with momentum buf = momentum buf + d, d = buf; update = lr d.
 * Adagrad: v = v + g g; update = lr g / (sqrt v + eps) [1e-10]. Duchi et al. 2011.
 * Muon: parameters of rank 2 or more, as matrices [dim 0, the rest]: buf = momentum buf + g [.95]; O = the orthogonal factor of
 *   g + momentum buf by five quintic Newton-Schulz steps (3.4445, -4.7750, 2.0315); update = lr 0.2 sqrt(max(rows, columns)) O, whose size
 *   is like Adam's, so that one rate serves both. The other parameters: Adam. Jordan et al. 2024, Liu et al. 2025.
 * A parameter the loss does not use has gradient 0, and decays if its flag says so. An optimizer without any unfrozen parameter
 * is TG_ERROR_GRADIENT.
 * An average begins with the first update, as the parameters behind it; steps that only accumulate leave it alone.
 * Norms neither overflow nor vanish: (3e20, 4e20) and (3e-30, 4e-30) have their length. Where g is squared (Adam, AdamW, RMSProp,
 * Adagrad, Muon's other parameters), finite elements beyond 2^63 count as 2^63 of their sign, in Muon beyond 2^126 (1 - momentum) as that,
 * and Adagrad's v ends at the largest f32 number; with eps under 2^-60 an update is no more than the formula allows, 0 / 0 is 0. */
typedef struct tg_optimizer {
    tg_optimizer_kind kind;
    tg_lr lr;                 /* its rate is over 0 at some step */
    double beta1, beta2, eps; /* [.9, .999, 1e-8] where nothing else is said; in [0, 1), eps a normal f32 number; TG_ZERO: 0 */
    tg_eps_mode eps_mode;     /* Adam, AdamW, Muon */
    double weight_decay;      /* [0] at least 0; TG_ZERO: none, of AdamW too */
    double momentum;          /* [0] in [0, 1): SGD, RMSProp, Muon; TG_ZERO: none, of Muon too */
    bool nesterov;            /* SGD with a momentum */
    double clip_norm;         /* [0: off] scale all gradients by min(1, clip_norm / ||g||), ||g|| over all parameters */
    double clip_value;        /* [0: off] every element to [-clip_value, clip_value] */
    bool normalize;           /* g / ||g||, 0 where ||g|| is 0; not together with clip_norm */
    bool skip_non_finite;     /* a step whose loss or gradient is not finite changes nothing: see tg_step */
    int64_t accumulate;       /* [1] parameters change every so many steps, by the mean of their gradients */
    double average;           /* [0: off] in (0, 1): keep avg = avg + (1 - average) (p - avg) of the parameters, see tg_compile_average */
    const tg_param_group *groups; /* borrowed during the call */
    int group_count;
    bool (*decay_filter)(void *user, const char *name); /* overrides the decay flags when set; called while compiling */
    void *decay_user;
    int reserved_;
} tg_optimizer;
#define tg_adam(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_ADAM, __VA_ARGS__)
#define tg_adamw(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_ADAMW, __VA_ARGS__)
#define tg_sgd(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_SGD, __VA_ARGS__)
#define tg_lion(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_LION, __VA_ARGS__)
#define tg_rmsprop(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_RMSPROP, __VA_ARGS__)
#define tg_adagrad(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_ADAGRAD, __VA_ARGS__)
#define tg_muon(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_MUON, __VA_ARGS__)

/* ---------------------------------------------------------------- models */

/* AUTO: WebGPU where a library is found and it offers a real GPU, else the CPU. WEBGPU: any adapter, a software one too; none,
 * or no library, is TG_ERROR_DEVICE. A device that was just opened computes something small first: a wrong answer is TG_ERROR_DEVICE
 * too, or with AUTO the CPU, and the reason is logged. Adapters that execute nothing (backend "null") are no choice of either: one is
 * used only where it is named, without that first computation, and its description says so. The library is looked for when a model is
 * compiled: TENSORGRAD_WEBGPU_LIB, then the usual names of Dawn and wgpu-native; nothing is linked. */
typedef enum tg_device_kind { TG_DEVICE_AUTO = 0, TG_DEVICE_CPU = 1, TG_DEVICE_WEBGPU = 2 } tg_device_kind;

/* An application's own WebGPU device, in terms of the standard webgpu.h. The handles are borrowed until the last model made
 * with them is destroyed, and belong to the calling thread during every call. Such a device is never recovered. */
typedef struct tg_webgpu_device {
    void *instance;                       /* WGPUInstance */
    void *device;                         /* WGPUDevice */
    void *(*procedure)(const char *name); /* where "wgpuDeviceCreateBuffer" and so on are; NULL: the library found as above */
} tg_webgpu_device;

/* One adapter (a GPU, or a software one) that the WebGPU library offers. Bytes and counts are the adapter's limits. */
typedef struct tg_adapter_info {
    char name[128]; /* "NVIDIA H200" */
    char vendor[64], architecture[64];
    char backend[16]; /* "vulkan", "metal", "d3d12", "d3d11", "opengl", "opengles", "null" (executes nothing), "other" */
    char type[16];    /* "discrete", "integrated", "cpu", "unknown" */
    int64_t max_buffer_bytes, max_binding_bytes;
    int32_t max_storage_buffers, max_workgroup_bytes, max_workgroup_invocations, max_workgroups;
    int32_t subgroup_min, subgroup_max; /* 0: not known */
    bool timestamps, subgroups;
    bool f16;               /* halves in shaders: what TG_PRECISION_F16 needs */
    bool subgroup_matrices; /* products of small matrices by a whole subgroup (an experiment of Dawn's): used with f16 */
} tg_adapter_info;
/* Fills out[0 .. min(capacity, *count)) in the order of preference; *count gets how many there are: 0, with TG_OK, when there is no
 * library (the reason is logged). The number of an adapter here is what "#number" means in tg_compile_options.adapter. */
TG_API tg_status tg_adapters_at(tg_site site, tg_context *ctx, tg_adapter_info *out, int capacity, int *count);
#define tg_adapters(...) tg_adapters_at(TG_SITE, __VA_ARGS__)
/* Models that ask for the same (library, adapter, precision) share one WebGPU device, in whatever contexts and threads they are: opening
 * one takes a tenth of a second and more, and drivers allow only so many. It stays open when its last model is destroyed, for the next
 * one: at most two such idle devices are kept, those used last, and the library's instance. This closes them and gives back their
 * memory; what models use stays. Any thread may call it. */
TG_API void tg_close_idle_devices(void);

/* Traces the model: makes parameters and inputs on g and returns the loss (rank 0, for training) or the output. */
typedef tg_tensor (*tg_build_fn)(tg_graph *g, void *user);

/* What contractions (matmul, linear, attention, convolutions, and their gradients) make of their operands.
 * F32: nothing. F16: those contractions that gain by it round their operands to halves (IEEE binary16, to nearest; a driver may take
 * the other neighbour) and add the products in f32; all else, parameters, gradients and the optimiser's state too, stays f32. So with
 * u = 2^-11, and 2^-25 for the steps between halves below 2^-14,
 *     |c - sum a b| <= sum (2u + u^2) |a b| + 2^-25 sum (|a| + |b|) + the error of a sum in f32.
 * Finite operands over 65504, the largest half, count as 65504 of their sign; infinity and NaN stay what they are. The same
 * model gives the same bits on the same device, and others elsewhere.
 * Which contractions: on WebGPU, large ones on an adapter that offers f16. Where it is not offered, and on the CPU, F16 is F32: a
 * warning is logged, and tg_model_info.precision says which it is. Never an error. */
typedef enum tg_precision { TG_PRECISION_F32 = 0, TG_PRECISION_F16 = 1 } tg_precision;

typedef struct tg_compile_options {
    tg_optimizer optimizer; /* none: a step computes loss and gradients and changes nothing but writebacks */
    uint64_t seed;          /* of the initial values and of random numbers */
    tg_device_kind device;
    int threads;    /* CPU, 0 to 1024; 0: TENSORGRAD_THREADS, else the number of cores. Results do not depend on it. */
    bool no_fusion; /* one kernel per operation: slow, for comparison */
    /* Before every step a program of its own looks at all values, forward and back. Where loss or gradients are not finite, the step fails
     * with TG_ERROR_NOT_FINITE, nothing is changed (not even the count of steps), and message and call site are those of the first
     * operation, input, parameter or state that is worse than what it was made of: "step 3: exp[256, 64] made inf, ...". Slow: for
     * finding out. Then steps are not made ahead, nor batches on the device. */
    bool check_finite;
    /* WebGPU: which adapter: "#0" as tg_adapters counts, or a part of its name, vendor or backend, in any case. NULL or "":
     * TENSORGRAD_ADAPTER, else the best. None that fits is TG_ERROR_DEVICE, the adapters listed. */
    const char *adapter;
    const tg_webgpu_device *webgpu; /* the application's own; `device` must not be CPU. NULL: one is opened */
    tg_precision precision;         /* siblings have their parent's */
    /* With F16 in use, cotangents are computed times this, so that small ones do not vanish among the halves, and gradients are
     * divided by it: both exact. A power of two from 1 to 2^24; 0 means 4096, TG_ZERO is refused: cotangents from 1.5e-8 to 16 keep eleven
     * bits. */
    double loss_scale;
    /* Where inputs have TG_ANY: what it stands for when the model is traced and compiled first, the size that most calls have. 0: 2. The
     * build function is called again for every other size, when the first call feeds it: it and `user` must live as long as the model,
     * and must make the same parameters, states and inputs each time. All TG_ANY of one call are the same size (else TG_ERROR_SHAPE).
     * Parameters, optimiser state, step counter and random numbers are one for all sizes: a step is what it would be if the model
     * were made for that size alone. What is wrong with a size is said by the call that feeds it, and changes nothing. */
    int64_t any_size;
    int max_sizes; /* how many other sizes are kept compiled, the one not used for longest goes first; 0: 8. One with data sets stays. */
} tg_compile_options;

/* Traces, differentiates with respect to every unfrozen parameter, fuses, plans, initialises. options may be NULL. A build
 * function cannot compile or trace: TG_ERROR_TRACE. A call that feeds a size for the first time compiles too.
 * Returned: destroy with tg_model_destroy. NULL on error, see tg_error(ctx). */
TG_API tg_model *tg_compile_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options);
#define tg_compile(...) tg_compile_at(TG_SITE, __VA_ARGS__)
/* Forward only: the built tensor is the output, any shape and dtype. The optimizer of the options is not looked at. */
TG_API tg_model *tg_compile_forward_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options);
#define tg_compile_forward(...) tg_compile_forward_at(TG_SITE, __VA_ARGS__)
/* A forward graph that shares `parent`'s parameters, states, threads, any_size and max_sizes. All its parameters must exist there; it lists
 * all of the parent's, used or not. Its runs make no writebacks. Destroyed with its parent at the latest; destroying it earlier is fine.
 * Resets, uploads and loads through it act on the shared values. Random numbers are drawn anew in each run. */
TG_API tg_model *tg_compile_sibling_at(tg_site site, tg_model *parent, tg_build_fn build, void *user);
#define tg_compile_sibling(...) tg_compile_sibling_at(TG_SITE, __VA_ARGS__)
/* The same over the averages of the parent's parameters (tg_optimizer.average), which until the first update are what the parameters
 * begin with; frozen parameters stand for themselves. A parent that keeps no average is TG_ERROR_STATE. */
TG_API tg_model *tg_compile_average_at(tg_site site, tg_model *parent, tg_build_fn build, void *user);
#define tg_compile_average(...) tg_compile_average_at(TG_SITE, __VA_ARGS__)
/* Cascades to siblings. NULL is fine. */
TG_API void tg_model_destroy(tg_model *model);
TG_API tg_context *tg_model_context(const tg_model *model);

/* One named input of a call. `count` elements of `dtype` (bool: one byte each, 0 or 1; more is TG_ERROR_ARGUMENT). `data` is only
 * read, and only during the call. */
typedef struct tg_feed {
    const char *name;
    tg_dtype dtype;
    const void *data;
    int64_t count;
} tg_feed;
static inline tg_feed tg_feed_make_(const char *name, tg_dtype dtype, const void *data, int64_t count) {
    tg_feed f;
    f.name = name;
    f.dtype = dtype;
    f.data = data;
    f.count = count;
    return f;
}
static inline tg_feed tg_feed_f32(const char *name, const float *data, int64_t count) { return tg_feed_make_(name, TG_F32, data, count); }
static inline tg_feed tg_feed_i32(const char *name, const int32_t *data, int64_t count) { return tg_feed_make_(name, TG_I32, data, count); }
static inline tg_feed tg_feed_bool(const char *name, const uint8_t *data, int64_t count) {
    return tg_feed_make_(name, TG_BOOL, data, count);
}

/* One training step. *loss gets the loss (loss may be NULL). A missing, unknown, doubled or wrongly sized or typed feed,
 * or an index outside its table, is an error and changes nothing. Fed indices are checked on the host; indices that the model
 * computes by a small program that runs before the step. A loss that is NaN or infinite gives TG_ERROR_NOT_FINITE after the
 * step: *loss is written and the update has been made. Where the optimizer clips by norm, normalizes or skips, a gradient that is
 * not finite gives it too (*loss is NaN then, though the loss was finite); elsewhere such a gradient makes parameters NaN or infinite, and
 * the next step's loss tells. With skip_non_finite, for a loss or a gradient: parameters, moments, averages, accumulated gradients, the
 * optimizer's own count of steps with its schedule, and user states are as they were, bit for bit, as if the step had not been; but it
 * counts in tg_model_step_count, its batch and its random numbers are used up, and tg_param_grad_download gives its gradients.
 * Allocates nothing. See check_finite of tg_compile_options for where it came from. */
TG_API tg_status tg_step_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss);
#define tg_step(...) tg_step_at(TG_SITE, __VA_ARGS__)
/* As tg_step; *captures gets every captured tensor, as it was before the update. Returned: destroy with tg_captures_destroy,
 * before the context; it may outlive the model. Handed over on TG_ERROR_NOT_FINITE too, but of check_finite; on every other error *captures
 * is NULL.
 * The first call compiles a program of its own. */
TG_API tg_status tg_step_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss, tg_captures **captures);
#define tg_step_captures(...) tg_step_captures_at(TG_SITE, __VA_ARGS__)
/* The built tensor (the loss of a training model), no update and no writebacks; random numbers are drawn anew. `capacity` is in elements
 * and must be at least the output's count; elements are of the output's dtype. NaN and infinity are values like any other. Feeds and
 * indices as in tg_step. The first call on a training model compiles a program of its own; later ones allocate nothing. */
TG_API tg_status tg_run_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity);
#define tg_run(...) tg_run_at(TG_SITE, __VA_ARGS__)
/* As tg_run and tg_step_captures; on an error *captures is NULL. */
TG_API tg_status tg_run_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity,
                                    tg_captures **captures);
#define tg_run_captures(...) tg_run_captures_at(TG_SITE, __VA_ARGS__)

/* ---- steps that are not waited for. tg_step_async checks as tg_step does, and fails as it does, nothing changed and *ticket 0; else it
 * hands the step to the device and returns, the number of the step in *ticket: 1, 2, ... of a model and its life. What the step itself
 * says (a loss that is not finite, a device that fails) is said by tg_wait. A device has three steps at most: the fourth call waits for
 * the first. The order of calls is kept; every other call of the model or its siblings that needs the device waits for all steps
 * before it, and so does destroying. In place, and done when it returns: on the CPU, of a model that computes indices, and where the
 * model has nothing to run. Allocates nothing once three steps have been under way. */
typedef int64_t tg_ticket;
TG_API tg_status tg_step_async_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, tg_ticket *ticket);
#define tg_step_async(...) tg_step_async_at(TG_SITE, __VA_ARGS__)
/* The step's status and loss, as tg_step gives them (loss may be NULL); a ticket may be waited for again. The last TG_TICKETS steps are
 * remembered: of older ones, and of tickets that were never given, TG_ERROR_NOT_FOUND. */
#define TG_TICKETS 256
TG_API tg_status tg_wait_at(tg_site site, tg_model *model, tg_ticket ticket, float *loss);
#define tg_wait(...) tg_wait_at(TG_SITE, __VA_ARGS__)
/* *done: tg_wait would not wait. */
TG_API tg_status tg_poll_at(tg_site site, tg_model *model, tg_ticket ticket, bool *done);
#define tg_poll(...) tg_poll_at(TG_SITE, __VA_ARGS__)

/* ---- many steps in one call, on data that is there. A data set gives rows for inputs of a training model: arrays[i] has `rows` rows of
 * the input of that name, whose first axis is the batch (all inputs listed have the same batch B; `rows` may be less). What is wrong
 * with names, dtypes, counts, bools and indices, anywhere in the data, is said here, as tg_step says it of a batch. The data is
 * copied. Returned: destroy with tg_dataset_destroy, before the context; the model may be destroyed first. NULL on error. */
TG_API tg_dataset *tg_dataset_create_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows);
#define tg_dataset_create(...) tg_dataset_create_at(TG_SITE, __VA_ARGS__)
/* The same in batches of `batch` rows, for inputs whose first axis is TG_ANY. 0: as the model was compiled first. Any other model:
 * TG_ERROR_SHAPE unless its batch is that. */
TG_API tg_dataset *tg_dataset_create_batch_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows, int64_t batch);
#define tg_dataset_create_batch(...) tg_dataset_create_batch_at(TG_SITE, __VA_ARGS__)
TG_API void tg_dataset_destroy(tg_dataset *dataset); /* NULL is fine */

/* Which rows step t takes, t being tg_model_step_count before it, i = 0 .. B - 1:
 *   RANDOM      row floor(r rows / 2^32), with r the first word of Philox 4x32-10 for the counter (i, t's low word, t's high word,
 *               0x726F7773) and the key `seed`: with replacement, each row equally likely to within rows / 2^32
 *   SEQUENTIAL  row (t B + i) mod rows */
typedef enum tg_batch_order { TG_BATCH_RANDOM = 0, TG_BATCH_SEQUENTIAL = 1 } tg_batch_order;
/* step: tg_model_step_count after it. false: no more. May read the model or run it and its siblings; must not
 * train, recover or destroy it, nor destroy the data set. */
typedef bool (*tg_progress_fn)(void *user, int64_t step, float loss);
#define TG_MOST_STEPS 4096 /* of one submission */
typedef struct tg_train_options {
    int64_t steps; /* to make, 0 or more */
    tg_batch_order order;
    uint64_t seed;        /* of the random order */
    const tg_feed *feeds; /* inputs that the data set does not list: the same in every step */
    int feed_count;
    /* How many steps a GPU is given at a time, 1 .. TG_MOST_STEPS; 0: as many as take some 40 ms, by what was measured; and one
     * where a step takes a quarter of a second. Losses are looked at when they have been made; so what ends training early ends it
     * behind the last of them. The CPU looks after every one. */
    int64_t steps_per_submission;
    tg_progress_fn progress; /* after every step, in order; NULL: nobody asks */
    void *progress_user;
    double target_loss; /* [0: none; TG_ZERO: 0] end once a loss is no more than this; finite */
    int64_t patience;   /* [0: none] end once the least loss is so many steps old */
    int reserved_;
} tg_train_options;
typedef enum tg_train_end {
    TG_TRAIN_ALL = 0,      /* all steps were made */
    TG_TRAIN_TARGET = 1,   /* target_loss */
    TG_TRAIN_PATIENCE = 2, /* patience */
    TG_TRAIN_STOPPED = 3,  /* progress said so */
    TG_TRAIN_FAILED = 4    /* see the status */
} tg_train_end;
typedef struct tg_train_result {
    int64_t steps;    /* made by this call */
    tg_train_end end; /* why no more */
    float loss, best; /* the last, the least; NaN when there was none */
} tg_train_result;
/* tg_step, options->steps times, on batches drawn from the data set on the device: same losses, bit for bit, as tg_step with those rows.
 * losses (NULL: not wanted) has room for all steps and gets those of the steps made. Counter, optimiser state and schedule go on
 * from the steps before, and the steps after from these. *result (NULL: not wanted) is written whenever steps were begun, on errors
 * too. The data set must be this model's and on its device: after tg_model_recover it is made anew. TG_ERROR_STATE for a model that neither
 * has an optimizer nor writes anything back; TG_ERROR_NOT_FINITE as of tg_step, behind
 * the last step of its submission. What is refused changes nothing. Allocates nothing. */
TG_API tg_status tg_train_at(tg_site site, tg_model *model, tg_dataset *dataset, const tg_train_options *options, float *losses,
                             tg_train_result *result);
#define tg_train(...) tg_train_at(TG_SITE, __VA_ARGS__)

TG_API int tg_captures_count(const tg_captures *captures);
TG_API const char *tg_captures_name(const tg_captures *captures, int i);
TG_API bool tg_captures_has(const tg_captures *captures, const char *name);
/* Owned by captures. NULL and TG_ERROR_NOT_FOUND (known names listed) when there is none; shape, dtype may be NULL. */
TG_API const void *tg_captures_get_at(tg_site site, const tg_captures *captures, const char *name, tg_shape *shape, tg_dtype *dtype);
#define tg_captures_get(...) tg_captures_get_at(TG_SITE, __VA_ARGS__)
TG_API void tg_captures_destroy(tg_captures *captures);

TG_API int tg_model_param_count(const tg_model *model);
TG_API const char *tg_model_param_name(const tg_model *model, int i);
TG_API tg_status tg_model_param_shape_at(tg_site site, const tg_model *model, const char *name, tg_shape *shape);
#define tg_model_param_shape(...) tg_model_param_shape_at(TG_SITE, __VA_ARGS__)
/* One parameter by name; count must equal its element count. */
TG_API tg_status tg_param_upload_at(tg_site site, tg_model *model, const char *name, const float *data, int64_t count);
#define tg_param_upload(...) tg_param_upload_at(TG_SITE, __VA_ARGS__)
TG_API tg_status tg_param_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_download(...) tg_param_download_at(TG_SITE, __VA_ARGS__)
/* Its average, see tg_compile_average. */
TG_API tg_status tg_param_average_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_average_download(...) tg_param_average_download_at(TG_SITE, __VA_ARGS__)
/* Gradient of the last step, before clipping; zeros for a frozen parameter. TG_ERROR_STATE before the first step, after a reset
 * or a load, and for forward models. */
TG_API tg_status tg_param_grad_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_grad_download(...) tg_param_grad_download_at(TG_SITE, __VA_ARGS__)
/* Many at once: every name and length is checked before anything is written. partial: names may be missing. */
TG_API tg_status tg_params_upload_at(tg_site site, tg_model *model, const tg_feed *params, int n, bool partial);
#define tg_params_upload(...) tg_params_upload_at(TG_SITE, __VA_ARGS__)
/* Puts a model in the place of another: the parameters and user states of `to` that `from` has too, by name and shape, get its values;
 * *count (NULL: not wanted) gets how many parameters. The two may differ in device and context; errors are recorded on `to`'s. All is read
 * before anything is written. */
TG_API tg_status tg_params_carry_at(tg_site site, tg_model *to, tg_model *from, int *count);
#define tg_params_carry(...) tg_params_carry_at(TG_SITE, __VA_ARGS__)

/* Initial values again (same seed, same values); optimiser state, user states, random numbers and step counter back to the start. A
 * schedule set by tg_model_set_lr stays in force and begins again. */
TG_API tg_status tg_model_reset_at(tg_site site, tg_model *model);
#define tg_model_reset(...) tg_model_reset_at(TG_SITE, __VA_ARGS__)
/* Optimiser state and step counter back to the start, the schedule as above; parameters and user states stay, random numbers go on. */
TG_API tg_status tg_model_reset_optimizer_at(tg_site site, tg_model *model);
#define tg_model_reset_optimizer(...) tg_model_reset_optimizer_at(TG_SITE, __VA_ARGS__)
/* Replaces the schedule; a decaying schedule begins at its start now. Governs decoupled decay too. TG_ERROR_STATE for a model
 * without an optimizer. */
TG_API tg_status tg_model_set_lr_at(tg_site site, tg_model *model, tg_lr schedule);
#define tg_model_set_lr(...) tg_model_set_lr_at(TG_SITE, __VA_ARGS__)
TG_API int64_t tg_model_step_count(const tg_model *model);

/* Parameters and the model's own user states (and, for training models, optimiser state, schedule, step counter, seed, where steps stand in
 * their random numbers) in safetensors format, written to a temporary file that then replaces `path` (which may not
 * be a folder, device or pipe): a failed save leaves the old file.
 * Load checks everything before it writes anything; names must agree on both sides, dtypes and shapes too. A training file into a forward
 * model or a sibling: its parameters and the states that the model has, which must be there; the rest is left out. A file without training
 * state into a training model: the parameters, the states that it has, and all else from the start. Gradients are not kept. Where training
 * state is loaded, the seed of later resets is the file's. */
TG_API tg_status tg_model_save_at(tg_site site, tg_model *model, const char *path);
#define tg_model_save(...) tg_model_save_at(TG_SITE, __VA_ARGS__)
TG_API tg_status tg_model_load_at(tg_site site, tg_model *model, const char *path);
#define tg_model_load(...) tg_model_load_at(TG_SITE, __VA_ARGS__)

/* Losing a GPU is TG_ERROR_DEVICE_LOST, from the call that meets it and from all calls that need the device after it. Recovering
 * opens a device again and goes on from the last snapshot: all parameters, states and the step count as they were after the
 * last compile, reset, upload, load, save or snapshot, whichever came last. (An upload touches the values uploaded and leaves the
 * rest of the snapshot as old as it is. A download of one parameter takes none: values of different ages make no model.)
 * TG_OK and nothing done for a device that is not lost; TG_ERROR_STATE for an application's own. On an error the model stays
 * lost, and another try is allowed. Siblings are recovered with their parent, through either handle. */
TG_API tg_status tg_model_recover_at(tg_site site, tg_model *model);
#define tg_model_recover(...) tg_model_recover_at(TG_SITE, __VA_ARGS__)
/* Takes a host copy of everything tg_model_recover puts back; one read of every state. Nothing on the CPU, which is never lost. */
TG_API tg_status tg_model_snapshot_at(tg_site site, tg_model *model);
#define tg_model_snapshot(...) tg_model_snapshot_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- inspection */

typedef struct tg_model_info {
    int64_t parameters; /* trained numbers */
    int nodes;          /* graph nodes after the passes */
    int kernels;
    int dispatches;        /* launches of one step or run: a GPU's hold several kernels; a large reduction is more than one */
    int tuned;             /* launches laid out as tg_model_tune found best on this adapter, WebGPU */
    int64_t program_bytes; /* the program's own size */
    int64_t peak_bytes;    /* parameters, gradients, optimiser state, inputs, constants, workspace */
    int64_t workspace_bytes;
    double contraction_flops; /* of one step: 2 M K N each */
    const char *device;       /* "cpu (avx512, 2 threads)", "webgpu (NVIDIA H200, vulkan)"; owned by the model, or by a sibling's
                                 parent, until it is recovered */
    const char *adapter;      /* "avx512", "NVIDIA H200"; as device */
    tg_precision precision;   /* in use: F32 where F16 was asked for and is not offered */
} tg_model_info;
/* Of a model with TG_ANY, what is told here and below is of the size used last. */
TG_API tg_status tg_model_get_info_at(tg_site site, tg_model *model, tg_model_info *info);
#define tg_model_get_info(...) tg_model_get_info_at(TG_SITE, __VA_ARGS__)
TG_API tg_shape tg_model_output_shape(const tg_model *model);
TG_API tg_dtype tg_model_output_dtype(const tg_model *model);
typedef enum tg_text { TG_TEXT_IR = 0, TG_TEXT_KERNELS, TG_TEXT_PLAN, TG_TEXT_DOT, TG_TEXT_C, TG_TEXT_WGSL } tg_text;
/* Owned by the model, valid until the next tg_model_text or its destruction. NULL on error. WGSL of a CPU model: for a device with
 * the guaranteed limits. TG_TEXT_C: a C11 file with void tg_emitted_run(void *const *buffers), which makes one step (one run of a model
 * that is not trained); its comments name the buffers to pass, where in them the parameters lie, which hold results, and what each kernel
 * reads and writes. It does not check what is fed. */
TG_API const char *tg_model_text_at(tg_site site, tg_model *model, tg_text what);
#define tg_model_text(...) tg_model_text_at(TG_SITE, __VA_ARGS__)

/* What a kernel of the training step (of the run of a model that is not trained) takes. */
typedef struct tg_kernel_time {
    const char *name;    /* the operations it fuses: "contract_add_relu"; owned by the model, until the next call */
    char loops[64];      /* "1024 | 256 | 64": rows, columns, summed; of a reduction, what stays | what is reduced */
    double flops;        /* of a contraction: 2 M K N; else 0 */
    double milliseconds; /* the least so far; 0 before the first step */
} tg_kernel_time;
/* Fills times[i] for the first `count` kernels (tg_model_info.kernels has their number) and from now on has each step time its
 * kernels, until another call or the model's end (where inputs have TG_ANY: steps of the size used last); `times` is the caller's and must
 * live that long. On the CPU only: elsewhere TG_ERROR_UNSUPPORTED. TG_ERROR_ARGUMENT for a negative count. A step gets slower by some 50 ns
 * a kernel. */
TG_API tg_status tg_model_time_kernels_at(tg_site site, tg_model *model, tg_kernel_time *times, int count);
#define tg_model_time_kernels(...) tg_model_time_kernels_at(TG_SITE, __VA_ARGS__)

/* ---- tuning. How contractions, chains and kernels side by side are laid out on a GPU follows from rules of ours unless the user's table
 * says otherwise: tensorgrad/tuning.txt in XDG_CACHE_HOME, ~/.cache or %LOCALAPPDATA%, or the file that TENSORGRAD_TUNING names ("off":
 * none). It is read when a WebGPU device is opened, for that adapter and driver; a file that is not such a table is ignored, which is
 * logged. A schedule changes the order in which sums are added, so results may differ in their last bits from those without it;
 * the same table gives the same bits. */
typedef struct tg_tune_result { /* of one launch, or of all that are like it */
    const char *what;           /* "contract 1x4096x4096x4096 4k 4row short": what the table knows it by */
    const char *usual, *best;   /* the schedule by our rules, and the fastest; the same where none is clearly faster */
    double usual_us, best_us;   /* microseconds, the least of several timings */
    int choices, tried, wrong;  /* schedules there are; those timed; of them faster ones with other results, which are not taken */
    bool faster;                /* `best` goes into the table */
} tg_tune_result;
typedef struct tg_tune_options {
    double seconds;                                           /* that it may take, about; up to 1e6; 0: 30 */
    bool dry_run;                                             /* store nothing */
    void (*report)(void *user, const tg_tune_result *result); /* after each; the texts are valid during the call */
    void *user;
} tg_tune_options;
/* Times the schedules of the model's step (or run) on its WebGPU adapter, on a second device there: neither parameters nor anything else
 * of the model changes, but there is need for its memory once more. What beats our rules by 5 % and has the same results up to
 * rounding is written to the table, for devices that are opened from then on; what the table says of the rest of the model is taken
 * out; what it says of others stays. The file is replaced as a whole, so that two processes cannot spoil it. options may be NULL.
 * TG_ERROR_DEVICE: the model is on the CPU, or the second device failed. TG_ERROR_STATE: the table is switched off. TG_ERROR_IO: it
 * cannot be written. TG_ERROR_FORMAT: the file there is no table; it is left alone. */
TG_API tg_status tg_model_tune_at(tg_site site, tg_model *model, const tg_tune_options *options);
#define tg_model_tune(...) tg_model_tune_at(TG_SITE, __VA_ARGS__)

/* The instruction set in use on this machine: "avx512", "avx2", "neon", "simd128", "scalar". */
TG_API const char *tg_cpu_name(void);
/* c[m, n] = a[m, k] b[k, n], row-major, sizes at least 1, on the calling thread: what the benchmark of matmul:N measures. */
TG_API tg_status tg_gemm_at(tg_site site, tg_context *ctx, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c);
#define tg_gemm(...) tg_gemm_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- the open IR */

/* Runs build in a fresh trace and returns the graph (destroy with tg_graph_destroy), the built tensor in *result. NULL on error.
 * Operations on its tensors after that are TG_ERROR_TRACE. */
TG_API tg_graph *tg_trace_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, tg_tensor *result);
#define tg_trace(...) tg_trace_at(TG_SITE, __VA_ARGS__)
TG_API void tg_graph_destroy(tg_graph *graph);
TG_API tg_shape tg_tensor_shape(tg_tensor t); /* poison: rank 0 and f32 */
TG_API tg_dtype tg_tensor_dtype(tg_tensor t);
/* Appends the optimiser over every unfrozen parameter: gradients, update, writebacks, step counter. In a build function, once
 * (TG_ERROR_DUPLICATE), after the last parameter (TG_ERROR_STATE); compile the model without an optimizer of its own then. Steps
 * are told as of such a model: see tg_step. */
TG_API tg_status tg_append_optimizer_at(tg_site site, tg_tensor loss, const tg_optimizer *optimizer);
#define tg_append_optimizer(...) tg_append_optimizer_at(TG_SITE, __VA_ARGS__)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_H */
