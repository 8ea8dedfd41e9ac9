/* ops: exports for operations, leaves, gradients, and the shapes and dtypes of tensors. Must not
 * decide anything: the functions that it calls make every check. */
#include "arguments.h"
#include "boundary.gen.h"
#include "core.h"
#include "ops.h"

#include <math.h>

/* ---------------------------------------------------------------- operations by number */

WEB_EXPORT(int32_t, op)
(int32_t op, const char *file, int32_t line, const web_operand *operands, int32_t operand_count, const double *numbers, int32_t count) {
    web_arguments a = {.site = tg_site_make(file, line),
                       .operand = operands,
                       .operand_end = operands + operand_count,
                       .number = numbers,
                       .number_end = numbers + count};
    const int32_t id = web_call_op(&a, op).id;
    return web_arguments_end(&a) ? id : 0;
}

tg_tensor web_top_k(tg_site site, tg_tensor x, int64_t k, int axis, bool indices) {
    const tg_top top = tg_top_k_at(site, x, k, axis);
    return indices ? top.indices : top.values;
}

static tg_tensor web_side_by_side(tg_site site, tg_lstm_states s) { return tg_concat_at(site, (const tg_tensor[]){s.h, s.c}, 2, -1); }

tg_tensor web_lstm_fwd(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start) {
    return web_side_by_side(site, tg_nn_lstm_fwd_at(site, layer, x, start));
}
/* Of the states `before`, a plain cell and a GRU have only h. */
tg_tensor web_rnn_step(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before) {
    return tg_nn_rnn_step_at(site, layer, x, before.h);
}
tg_tensor web_gru_step(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before) {
    return tg_nn_gru_step_at(site, layer, x, before.h);
}
tg_tensor web_lstm_step(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before) {
    return web_side_by_side(site, tg_nn_lstm_step_at(site, layer, x, before));
}

/* ---------------------------------------------------------------- leaves, gradients, tensors */

/* A leaf needs a graph whose trace is in progress. For a graph that is gone, the error is already
 * recorded. */
WEB_EXPORT(int32_t, param)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t init, double scale,
 const float *data, int32_t count, int32_t decay, int32_t frozen) {
    tg_param_options options = {.init = {.data = data,
                                         .count = count,
                                         .kind = (tg_init_kind)init,
                                         .scale = init == TG_INIT_UNIFORM && scale == 0.0 ? TG_ZERO : scale},
                                .decay = (tg_choice)decay,
                                .frozen = (tg_choice)frozen};
    return tg_param_at(tg_site_make(file, line), web_graph_of(graph), name, web_shape_of(dims, rank), options).id;
}
WEB_EXPORT(int32_t, input)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t dtype) {
    return tg_input_at(tg_site_make(file, line), web_graph_of(graph), name, web_shape_of(dims, rank), (tg_dtype)dtype).id;
}
WEB_EXPORT(int32_t, state)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t dtype, double value) {
    return tg_state_at(tg_site_make(file, line), web_graph_of(graph), name, web_shape_of(dims, rank), (tg_dtype)dtype, value).id;
}
WEB_EXPORT(int32_t, full)(const char *file, int32_t line, int32_t graph, const double *dims, int32_t rank, double value, int32_t dtype) {
    return tg_full_at(tg_site_make(file, line), web_graph_of(graph), web_shape_of(dims, rank), value, (tg_dtype)dtype).id;
}
WEB_EXPORT(int32_t, arange)(const char *file, int32_t line, int32_t graph, double n, int32_t dtype) {
    return tg_arange_at(tg_site_make(file, line), web_graph_of(graph), web_whole(n), (tg_dtype)dtype).id;
}
WEB_EXPORT(int32_t, constant)
(const char *file, int32_t line, int32_t graph, const double *dims, int32_t rank, int32_t dtype, const void *data, int32_t count) {
    return tg_constant_at(tg_site_make(file, line), web_graph_of(graph), web_shape_of(dims, rank), (tg_dtype)dtype, data, count).id;
}
WEB_EXPORT(int32_t, draw)
(const char *file, int32_t line, int32_t graph, int32_t kind, const double *dims, int32_t rank, double lo, double hi,
 const web_operand *p) {
    const tg_site site = tg_site_make(file, line);
    const tg_shape shape = web_shape_of(dims, rank);
    tg_graph *g = web_graph_of(graph);
    switch (kind) {
    case WEB_DRAW_RAND: return tg_rand_at(site, g, shape).id;
    case WEB_DRAW_RANDN: return tg_randn_at(site, g, shape).id;
    case WEB_DRAW_RAND_INT: return tg_rand_int_at(site, g, shape, web_whole(lo), web_whole(hi)).id;
    default: return tg_bernoulli_at(site, g, shape, web_either(p)).id;
    }
}
WEB_EXPORT(int32_t, capture)(const char *file, int32_t line, const char *name, int32_t graph, int32_t id) {
    return tg_capture_at(tg_site_make(file, line), name, web_tensor_of(graph, id)).id;
}

/* Differentiates the first `of` operands with respect to the others. */
static int32_t web_gradients(tg_site site, const web_operand *operands, int32_t count, int32_t of, int32_t *out) {
    const int32_t n = count - of;
    tg_tensor *tensors = web_tensors(operands, count);
    tg_tensor *made = tg_alloc(web_context, sizeof *made * (size_t)(n > 0 ? n : 1));
    tg_status status = web_context->status;
    if (tensors != NULL && made != NULL && status == TG_OK)
        status =
            of == 1 ? tg_grad_at(site, tensors[0], tensors + of, n, made) : tg_vjp_at(site, tensors[0], tensors[1], tensors + of, n, made);
    for (int32_t i = 0; i < n && status == TG_OK; i++) out[i] = made[i].id;
    tg_release(web_context, made, sizeof *made * (size_t)(n > 0 ? n : 1));
    web_release_tensors(tensors, count);
    return (int32_t)status;
}

WEB_EXPORT(int32_t, grad)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out) {
    return web_gradients(tg_site_make(file, line), operands, count, 1, out);
}
WEB_EXPORT(int32_t, vjp)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out) {
    return web_gradients(tg_site_make(file, line), operands, count, 2, out);
}
WEB_EXPORT(int32_t, split)(const char *file, int32_t line, const web_operand *operand, const double *numbers, int32_t count, int32_t *out) {
    const tg_site site = tg_site_make(file, line);
    const bool equal = numbers[1] != 0.0;
    int32_t n = equal ? web_small(numbers[2]) : count - 2;
    tg_tensor x = web_tensor(operand);
    if (x.graph == NULL) return (int32_t)web_context->status;
    const tg_shape shape = tg_tensor_shape(x);
    int64_t most = 0; /* the most parts of any axis: more are refused, so no room is needed */
    for (int32_t i = 0; i < shape.rank; i++) most = shape.dim[i] > most ? shape.dim[i] : most;
    if (equal && (n < 1 || n > most)) return (int32_t)tg_split_at(site, x, web_small(numbers[0]), NULL, n, NULL);
    int64_t *sizes = tg_alloc(web_context, sizeof *sizes * (size_t)(n > 0 ? n : 1));
    tg_tensor *made = tg_alloc(web_context, sizeof *made * (size_t)(n > 0 ? n : 1));
    tg_status status = web_context->status;
    if (sizes != NULL && made != NULL) {
        for (int32_t i = 0; !equal && i < n; i++) sizes[i] = web_whole(numbers[i + 2]);
        status = tg_split_at(site, x, web_small(numbers[0]), equal ? NULL : sizes, n, made);
        for (int32_t i = 0; i < n && status == TG_OK; i++) out[i] = made[i].id;
    }
    tg_release(web_context, made, sizeof *made * (size_t)(n > 0 ? n : 1));
    tg_release(web_context, sizes, sizeof *sizes * (size_t)(n > 0 ? n : 1));
    return (int32_t)status;
}
WEB_EXPORT(int32_t, writeback)(const char *file, int32_t line, const web_operand operands[2]) {
    tg_writeback_at(tg_site_make(file, line), web_tensor(&operands[0]), web_tensor(&operands[1]));
    return (int32_t)web_context->status;
}
WEB_EXPORT(int32_t, append_optimizer)(const char *file, int32_t line, const web_operand *loss, const double *optimizer) {
    tg_optimizer chosen = web_optimizer_of(optimizer);
    tg_tensor tensor = web_tensor(loss);
    return (int32_t)(tensor.graph != NULL ? tg_append_optimizer_at(tg_site_make(file, line), tensor, &chosen) : web_context->status);
}

WEB_EXPORT(int32_t, shape)(int32_t graph, int32_t id, double *dims) {
    tg_shape shape = tg_tensor_shape(web_tensor_of(graph, id));
    for (int32_t i = 0; i < shape.rank; i++) dims[i] = (double)shape.dim[i];
    return shape.rank;
}
WEB_EXPORT(int32_t, dtype)(int32_t graph, int32_t id) { return (int32_t)tg_tensor_dtype(web_tensor_of(graph, id)); }

WEB_EXPORT(double, lr_value)(const double *lr, double t) {
    tg_lr schedule = web_lr_of(lr);
    tg_model_begin(web_context, TG_SITE_NONE);
    if (tg_lr_check(web_context, TG_SITE_NONE, "resolveLR", schedule) != TG_OK) return (double)NAN;
    return tg_lr_value(schedule, web_whole(t));
}
