/* The public functions of differentiation: check what is asked, then append the vector-Jacobian
 * products of src/grad. Must not know any operation's rule. */
#include "trace/trace.h"

#include "grad/grad.h"

/* After a failure `out` holds poison, so that a build function can go on and check once at its
 * end. */
static tg_status fail_gradient(const tg_call *call, tg_tensor *out, int n) {
    for (int i = 0; out != NULL && i < n; i++) out[i] = tg_call_poison(call);
    if (call->graph == NULL) return TG_ERROR_ARGUMENT;
    tg_status status = call->graph->ctx->status;
    return status != TG_OK ? status : TG_ERROR_TRACE; /* poison from before the error was cleared */
}

static bool check_wrt(const tg_call *call, const tg_tensor *wrt, int n, tg_tensor y) {
    for (int i = 0; i < n; i++) {
        tg_call one;
        tg_tensor pair[2] = {y, wrt[i]};
        if (!tg_call_enter(&one, call->site, call->op, pair, 2)) return false;
        if (tg_node_dtype(call, wrt[i].id) == TG_F32) continue;
        tg_call_fail(call, TG_ERROR_GRADIENT, &wrt[i].id, 1, "%s has no gradient: it is not f32 but %s", TG_LABEL(call, wrt[i].id),
                     tg_dtype_name(tg_node_dtype(call, wrt[i].id)));
        return false;
    }
    return true;
}

static bool check_differentiable(const tg_call *call, int32_t y) {
    if (tg_node_dtype(call, y) == TG_F32) return true;
    tg_call_fail(call, TG_ERROR_GRADIENT, &y, 1, "%s has no gradient: it is not f32 but %s", TG_LABEL(call, y),
                 tg_dtype_name(tg_node_dtype(call, y)));
    return false;
}

static bool check_arrays(const tg_call *call, const tg_tensor *wrt, int n, const tg_tensor *out) {
    if (n >= 0 && (n == 0 || (wrt != NULL && out != NULL))) return true;
    if (n < 0) tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "%d tensors asked for", n);
    else tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "%s is NULL for %d tensors", wrt == NULL ? "wrt" : "out", n);
    return false;
}

/* cotangent 0: ones. */
static tg_status append_cotangents(const tg_call *call, int32_t y, int32_t cotangent, const tg_tensor *wrt, int n, tg_tensor *out) {
    tg_context *ctx = call->graph->ctx;
    if (n == 0) return TG_OK;
    size_t bytes = (size_t)n * 2 * sizeof(int32_t);
    int32_t *ids = tg_alloc(ctx, bytes);
    if (ids == NULL) return fail_gradient(call, out, n);
    for (int i = 0; i < n; i++) ids[i] = wrt[i].id;
    tg_status status = tg_grad_append(call->graph, y, cotangent, ids, n, ids + n);
    for (int i = 0; status == TG_OK && i < n; i++) out[i] = tg_call_result(call, ids[n + i]);
    tg_release(ctx, ids, bytes);
    return status == TG_OK ? TG_OK : fail_gradient(call, out, n);
}

tg_status tg_grad_at(tg_site site, tg_tensor loss, const tg_tensor *wrt, int n, tg_tensor *out) {
    tg_call call;
    if (!tg_call_enter(&call, site, "grad", &loss, 1) || !check_arrays(&call, wrt, n, out)) return fail_gradient(&call, out, n);
    if (!check_differentiable(&call, loss.id)) return fail_gradient(&call, out, n);
    if (tg_node_shape(&call, loss.id).rank != 0) {
        tg_call_fail(&call, TG_ERROR_GRADIENT, &loss.id, 1, "the loss %s is not rank 0: sum it, or use vjp", TG_LABEL(&call, loss.id));
        return fail_gradient(&call, out, n);
    }
    if (!check_wrt(&call, wrt, n, loss)) return fail_gradient(&call, out, n);
    return append_cotangents(&call, loss.id, 0, wrt, n, out);
}

tg_status tg_vjp_at(tg_site site, tg_tensor y, tg_tensor cotangent, const tg_tensor *wrt, int n, tg_tensor *out) {
    tg_call call;
    tg_tensor operands[2] = {y, cotangent};
    int32_t ids[2] = {y.id, cotangent.id};
    if (!tg_call_enter(&call, site, "vjp", operands, 2) || !check_arrays(&call, wrt, n, out)) return fail_gradient(&call, out, n);
    if (!check_differentiable(&call, y.id) || !tg_call_takes(&call, cotangent.id, TG_TAKES_F32)) return fail_gradient(&call, out, n);
    if (!tg_shape_equal(tg_node_shape(&call, y.id), tg_node_shape(&call, cotangent.id))) {
        tg_call_fail(&call, TG_ERROR_SHAPE, ids, 2, "the cotangent needs the shape of y: %s and %s", TG_LABEL(&call, ids[0]),
                     TG_LABEL(&call, ids[1]));
        return fail_gradient(&call, out, n);
    }
    if (!check_wrt(&call, wrt, n, y)) return fail_gradient(&call, out, n);
    return append_cotangents(&call, y.id, cotangent.id, wrt, n, out);
}
