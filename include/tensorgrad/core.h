/* tensorgrad, core: the version, status codes, contexts, shapes and axes, options, operands.
 * Every other part of the header includes this one. */
#ifndef TENSORGRAD_CORE_H
#define TENSORGRAD_CORE_H

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
    TG_ERROR_ARGUMENT = 1,  /* a value that the call does not accept */
    TG_ERROR_SHAPE = 2,     /* shapes that do not fit the operation */
    TG_ERROR_DTYPE = 3,     /* an element type the operation does not take */
    TG_ERROR_MEMORY = 4,    /* an allocation failed */
    TG_ERROR_NOT_FOUND = 5, /* no parameter, input, capture or state has that name */
    TG_ERROR_DUPLICATE = 6, /* a name used twice */
    TG_ERROR_INDEX = 7,     /* an index value outside its table */
    TG_ERROR_TRACE = 8,     /* tensor of another trace, nested trace, operation outside a trace */
    TG_ERROR_GRADIENT = 9,  /* gradient of something that has none, loss that is not rank 0 */
    TG_ERROR_IO = 10,       /* the file system refused */
    TG_ERROR_FORMAT = 11,   /* a file or bytes that are not what they claim to be */
    TG_ERROR_DEVICE = 12,   /* the device or its library refused */
    TG_ERROR_DEVICE_LOST = 13,
    TG_ERROR_LIMIT = 14,      /* a size beyond what this library or the device can hold */
    TG_ERROR_NOT_FINITE = 15, /* the loss, or a gradient, is NaN or infinite */
    TG_ERROR_STATE = 16,      /* the object is destroyed or in the wrong state for the call */
    TG_ERROR_UNSUPPORTED = 17,
    TG_ERROR_INTERNAL = 18 /* a bug in this library: please report it */
} tg_status;

typedef enum tg_dtype { TG_F32 = 0, TG_I32 = 1, TG_BOOL = 2 } tg_dtype;

/* The place of a call in the user's program. `file` is copied when it must outlive the call. */
typedef struct tg_site {
    const char *file;
    int line;
} tg_site;

typedef struct tg_context tg_context;
typedef struct tg_graph tg_graph;
typedef struct tg_model tg_model;
typedef struct tg_captures tg_captures;
typedef struct tg_dataset tg_dataset;

/* A value in a trace. id 0 is poison. {0} is no tensor: operations refuse it, and an option that is
 * a tensor is left out when it is {0}. A tensor is also refused after its model or graph is
 * destroyed. */
typedef struct tg_tensor {
    tg_graph *graph;
    int32_t id;
} tg_tensor;

/* `alloc` returns `size` bytes aligned to 64, or NULL. `release` gets the same size back. */
typedef struct tg_allocator {
    void *(*alloc)(void *user, size_t size);
    void (*release)(void *user, void *block, size_t size);
    void *user;
} tg_allocator;

typedef enum tg_log_level { TG_LOG_INFO = 0, TG_LOG_WARNING = 1 } tg_log_level;
typedef void (*tg_log_fn)(void *user, tg_log_level level, const char *message);

typedef struct tg_context_options {
    const tg_allocator *allocator; /* copied; NULL, or one function NULL: malloc */
    /* NULL: no log. Warnings say, for example, which parts of a model cannot learn, and where they
     * were made. */
    tg_log_fn log;
    void *log_user;
} tg_context_options;

/* Returned: destroy with tg_context_destroy, after each model made from it. options may be NULL.
 * NULL only when memory runs out. */
TG_API tg_context *tg_context_create(const tg_context_options *options);
TG_API void tg_context_destroy(tg_context *ctx); /* NULL is allowed */

/* The first error since tg_clear_error, or since the last public call that reports a status
 * began. */
TG_API tg_status tg_error(const tg_context *ctx);
/* "" when there is none; owned by ctx */
TG_API const char *tg_error_message(const tg_context *ctx);
TG_API tg_site tg_error_site(const tg_context *ctx);
TG_API void tg_clear_error(tg_context *ctx);
TG_API const char *tg_status_name(tg_status status); /* "shape error"; static text */
TG_API const char *tg_version(void);

/* ---------------------------------------------------------------- shapes, axes, operands */

#define TG_MAX_RANK 8

typedef struct tg_shape {
    int32_t rank;
    int64_t dim[TG_MAX_RANK];
} tg_shape;
/* count < 0 means all axes. */
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

/* a rank over TG_MAX_RANK is kept; the operation refuses it */
TG_API tg_shape tg_shape_make(int32_t rank, const int64_t *dims);
TG_API tg_axes tg_axes_make(int32_t count, const int32_t *axes);
/* number of elements; -1 when over 2^31 - 1 or when a dim < 1 */
TG_API int64_t tg_shape_count(tg_shape shape);
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
/* f(site, a, .., options): macros with options. They add `.reserved_ = 0` after the user's options,
 * so that the list is never empty. */
#define TG_WITH_1_(f, T, a, ...) f(TG_SITE, (a), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_2_(f, T, a, b, ...) f(TG_SITE, (a), (b), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_3_(f, T, a, b, c, ...) f(TG_SITE, (a), (b), (c), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_4_(f, T, a, b, c, d, ...) f(TG_SITE, (a), (b), (c), (d), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_5_(f, T, a, b, c, d, e, ...) f(TG_SITE, (a), (b), (c), (d), (e), TG_OPTIONS_(T, __VA_ARGS__))
#define TG_WITH_6_(f, T, a, b, c, d, e, g, ...) f(TG_SITE, (a), (b), (c), (d), (e), (g), TG_OPTIONS_(T, __VA_ARGS__))
/* An option that is a double is 0 on purpose: see tensorgrad.h. */
#define TG_ZERO (-0.0)
#define TG_SCALAR tg_shape_make(0, NULL)
#define TG_ALL tg_axes_make(-1, NULL)

/* A tensor or a number, on either side of a binary operation. A number takes the dtype of the other
 * side, rounded to f32 where that is f32. A number that does not fit (0.5 with i32, 1e39 with f32,
 * 2 with bool) is TG_ERROR_DTYPE. Infinity and NaN fit f32. Two numbers are TG_ERROR_TRACE: there
 * is no tensor to work on. */
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

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_CORE_H */
