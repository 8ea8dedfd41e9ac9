/* program: see program.h. */
#include "program.h"

#include "ir/graph.h"

#include <stdio.h>
#include <string.h>

static const char *const input_names[PROGRAM_INPUTS] = {"a", "b", "c"};

program program_make(const uint8_t *data, size_t size) {
    program p;
    memset(&p, 0, sizeof p);
    p.bytes = (fuzz_reader){data, size};
    const int kind = fuzz_below(&p.bytes, 8);
    p.tame = kind < 6;
    p.forgives = kind != 6;
    return p;
}

/* ---------------------------------------------------------------- what operations work on */

static void keep(program *p, tg_tensor t) {
    if (p->count < PROGRAM_TENSORS) p->tensors[p->count++] = t;
    else p->tensors[fuzz_below(&p->bytes, PROGRAM_TENSORS)] = t;
}

static tg_tensor any(program *p) { return p->tensors[fuzz_below(&p->bytes, p->count)]; }

/* The next one of that dtype from a chosen place on; poison when there is none. */
static tg_tensor any_of(program *p, tg_dtype dtype) {
    const int from = fuzz_below(&p->bytes, p->count);
    for (int i = 0; i < p->count; i++) {
        const tg_tensor t = p->tensors[(from + i) % p->count];
        if (t.id != 0 && tg_tensor_dtype(t) == dtype) return t;
    }
    return p->tensors[from];
}

static tg_tensor any_float(program *p) { return any_of(p, TG_F32); }

static int any_axis(program *p, tg_tensor x) {
    const int rank = tg_tensor_shape(x).rank;
    return (int)fuzz_whole(&p->bytes, -rank, rank > 0 ? rank - 1 : 0);
}

static tg_axes any_axes(program *p, tg_tensor x) {
    const int rank = tg_tensor_shape(x).rank;
    if (rank == 0 || fuzz_below(&p->bytes, 3) == 0) return TG_ALL;
    int32_t axes[TG_MAX_RANK] = {0};
    int count = 0;
    for (int i = 0; i < rank; i++)
        if (fuzz_below(&p->bytes, 2)) axes[count++] = fuzz_below(&p->bytes, 2) ? i : i - rank;
    return tg_axes_make(count, axes);
}

static tg_shape small_shape(program *p) {
    tg_shape shape = TG_SCALAR;
    shape.rank = (int32_t)fuzz_below(&p->bytes, 5);
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = 1 + fuzz_below(&p->bytes, 5);
    if (!p->tame && fuzz_chance(&p->bytes, 8)) shape.rank = (int32_t)fuzz_whole(&p->bytes, 0, 8);
    if (!p->tame && shape.rank > 0 && fuzz_chance(&p->bytes, 8)) shape.dim[0] = fuzz_whole(&p->bytes, 1, 200);
    return shape;
}

static int64_t count_of(tg_tensor t) { return tg_shape_count(tg_tensor_shape(t)); }

/* ---------------------------------------------------------------- operations */

static tg_tensor squash(program *p, tg_tensor t) { return p->tame ? tg_tanh(t) : t; }

static tg_tensor unary(program *p, tg_tensor x) {
    const tg_tensor q = p->tame ? tg_add(1.0, tg_square(x)) : x;
    switch (fuzz_below(&p->bytes, 26)) {
    case 0: return tg_neg(x);
    case 1: return tg_tanh(x);
    case 2: return tg_sigmoid(x);
    case 3: return tg_mul(tg_sin(x), 0.5);
    case 4: return tg_cos(x);
    case 5: return tg_mul(tg_exp(x), 0.3);
    case 6: return tg_mul(tg_log(q), 0.5);
    case 7: return tg_mul(tg_sqrt(q), 0.5);
    case 8: return tg_rsqrt(q);
    case 9: return tg_reciprocal(q);
    case 10: return tg_mul(tg_square(x), 0.5);
    case 11: return tg_mul(tg_erf(x), 0.5);
    case 12: return tg_mul(tg_softplus(x), 0.5);
    case 13: return tg_mul(tg_gelu(x), 0.5);
    case 14: return tg_mul(tg_silu(x), 0.5);
    case 15: return tg_mul(tg_log_sigmoid(x), 0.5);
    case 16: return tg_mul(tg_expm1(x), 0.3);
    case 17: return tg_mul(tg_log1p(p->tame ? tg_square(x) : x), 0.5);
    case 18: return tg_stop_gradient(x);
    case 19: p->smooth = false; return tg_relu(x);
    case 20: p->smooth = false; return tg_abs(x);
    case 21: p->smooth = false; return tg_leaky_relu(x, 0.1);
    case 22: p->smooth = false; return tg_mul(tg_hard_swish(x), 0.5);
    case 23: p->smooth = false; return tg_clamp(x, -0.5, 0.5);
    case 24: p->smooth = p->exact = false; return tg_sign(x);
    default: p->smooth = p->exact = false; return tg_mul(tg_round(tg_mul(x, 4.0)), 0.25);
    }
}

static tg_tensor binary(program *p, tg_tensor a, tg_tensor b) {
    switch (fuzz_below(&p->bytes, 9)) {
    case 0: return tg_mul(tg_add(a, b), 0.5);
    case 1: return tg_mul(tg_sub(a, b), 0.5);
    case 2: return tg_mul(tg_mul(a, b), 0.5);
    case 3: return tg_div(tg_mul(a, 0.3), p->tame ? tg_add(tg_square(b), 1.0) : b);
    case 4: p->smooth = false; return tg_maximum(a, b);
    case 5: p->smooth = false; return tg_minimum(a, b);
    case 6: return tg_mul(tg_add(a, fuzz_number(&p->bytes)), 0.5);
    case 7: p->smooth = p->exact = false; return squash(p, tg_mod(a, p->tame ? tg_add(tg_square(b), 1.0) : b));
    default: return p->tame ? tg_pow(tg_mul(tg_add(tg_square(a), 1.0), 0.5), 2.0) : tg_pow(a, b);
    }
}

static tg_tensor reduce(program *p, tg_tensor x) {
    const tg_axes axes = any_axes(p, x);
    const bool keep_dims = fuzz_below(&p->bytes, 2) != 0;
    switch (fuzz_below(&p->bytes, 9)) {
    case 0: return tg_mean(x, axes, .keepdims = keep_dims);
    case 1: return p->tame ? tg_mean(x, axes, .keepdims = keep_dims) : tg_sum(x, axes, .keepdims = keep_dims);
    case 2: p->smooth = false; return tg_max(x, axes, .keepdims = keep_dims);
    case 3: p->smooth = false; return tg_min(x, axes, .keepdims = keep_dims);
    case 4: return tg_prod(tg_mul(x, 0.9), axes, .keepdims = keep_dims);
    case 5: return tg_variance(x, axes, .keepdims = keep_dims);
    case 6: p->smooth = false; return squash(p, tg_norm(x, axes, .keepdims = keep_dims, .ord = p->tame ? 2.0 : fuzz_number(&p->bytes)));
    case 7: p->smooth = p->exact = false; return tg_argmax(x, any_axis(p, x), .keepdims = keep_dims);
    default: return squash(p, tg_cumsum(tg_mul(x, 0.2), any_axis(p, x), .reverse = keep_dims));
    }
}

static tg_tensor view(program *p, tg_tensor x) {
    tg_shape shape = tg_tensor_shape(x);
    const int axis = any_axis(p, x);
    switch (fuzz_below(&p->bytes, 13)) {
    case 0: return tg_swap_axes(x, axis, any_axis(p, x));
    case 1: return tg_reshape(x, TG_SHAPE(-1));
    case 2: return tg_expand_dims(x, axis);
    case 3: return tg_squeeze(x, TG_ALL);
    case 4: return tg_flip(x, any_axes(p, x));
    case 5: return tg_roll(x, fuzz_whole(&p->bytes, -3, 3), axis);
    case 6: return tg_narrow(x, axis, fuzz_whole(&p->bytes, 0, 2), fuzz_whole(&p->bytes, 1, 3));
    case 7: return tg_repeat(x, fuzz_whole(&p->bytes, 1, 3), axis);
    case 8: return tg_broadcast_to(x, small_shape(p));
    case 9: return tg_reshape(x, small_shape(p));
    case 10: return tg_tile(x, small_shape(p));
    case 11: {
        tg_shape before = shape, after = shape;
        for (int i = 0; i < shape.rank; i++) before.dim[i] = fuzz_whole(&p->bytes, 0, 2), after.dim[i] = fuzz_whole(&p->bytes, 0, 2);
        return tg_pad(x, before, after, p->tame ? 0.5 : fuzz_number(&p->bytes));
    }
    default: return tg_cast(x, (tg_dtype)fuzz_whole(&p->bytes, 0, 2));
    }
}

static tg_tensor joined(program *p) {
    tg_tensor parts[3] = {any(p), any(p), any(p)};
    const int count = (int)fuzz_whole(&p->bytes, 1, 3);
    const int axis = any_axis(p, parts[0]);
    const int n = count < 1 || count > 3 ? 1 : count;
    return fuzz_below(&p->bytes, 2) ? tg_concat(parts, n, axis) : tg_stack(parts, n, axis);
}

static double one_over(int64_t n) { return n > 0 ? 1.0 / (double)n : 1.0; }

static tg_tensor product(program *p) {
    const tg_tensor a = any_float(p), b = any_float(p);
    const tg_shape shape = tg_tensor_shape(a);
    switch (fuzz_below(&p->bytes, 4)) {
    case 0: { /* fits whatever a is */
        if (shape.rank < 2) return tg_matmul(a, b);
        return tg_mul(tg_matmul(a, tg_swap_axes(a, -1, -2)), one_over(shape.dim[shape.rank - 1]));
    }
    case 1: return squash(p, tg_mul(tg_matmul(a, b), 0.1));
    case 2: {
        const tg_tensor both[] = {a, b};
        static const char *const equations[] = {"ij,jk->ik", "i,j->ij", "ij,ij->", "...i,...i->...", "bij,bjk->bik", "ij,kj", "ii,i"};
        return squash(p, tg_mul(tg_einsum(equations[fuzz_below(&p->bytes, 7)], both, 2), 0.1));
    }
    default: {
        const tg_tensor x = tg_reshape(a, TG_SHAPE(1, 1, -1)), w = tg_reshape(b, TG_SHAPE(1, 1, -1));
        const tg_padding padding = tg_padding_all(fuzz_whole(&p->bytes, 0, 3));
        const int64_t stride = fuzz_whole(&p->bytes, 1, 3), dilation = fuzz_whole(&p->bytes, 1, 2);
        return squash(p, tg_mul(tg_conv1d(x, w, .stride = {stride}, .padding = padding, .dilation = {dilation}), 0.1));
    }
    }
}

static tg_tensor chosen(program *p) { /* by masks and indices */
    const tg_tensor x = any_float(p);
    switch (fuzz_below(&p->bytes, 9)) {
    case 0: return tg_where(any_of(p, TG_BOOL), x, any_float(p));
    case 1: p->smooth = p->exact = false; return tg_where(tg_greater(x, any_float(p)), x, 0.25);
    case 2: return tg_gather(x, any_of(p, TG_I32), any_axis(p, x));
    case 3: return tg_one_hot(any_of(p, TG_I32), fuzz_whole(&p->bytes, 4, 6), TG_F32);
    case 4: p->smooth = p->exact = false; return tg_sort(x, any_axis(p, x), .descending = fuzz_below(&p->bytes, 2) != 0);
    case 5: return tg_embedding(x, any_of(p, TG_I32));
    case 6: return tg_tril(x, fuzz_whole(&p->bytes, -2, 2));
    case 7: return tg_cast(tg_equal(any_of(p, TG_I32), 1.0), TG_F32);
    default: return tg_mod(any_of(p, TG_I32), 3.0);
    }
}

static tg_tensor softmaxed(program *p) {
    const tg_tensor x = any_float(p);
    switch (fuzz_below(&p->bytes, 5)) {
    case 0: return tg_softmax(x, any_axis(p, x));
    case 1: return squash(p, tg_mul(tg_log_softmax(x, any_axis(p, x)), 0.2));
    case 2: return squash(p, tg_mul(tg_logsumexp(x, any_axis(p, x)), 0.2));
    case 3: return tg_softmax_causal_last(x);
    default: return tg_masked_softmax(x, any_of(p, TG_BOOL), any_axis(p, x));
    }
}

static tg_tensor pooled(program *p) {
    const tg_tensor x = tg_reshape(any_float(p), TG_SHAPE(1, 1, -1));
    const int64_t kernel = fuzz_whole(&p->bytes, 1, 4), stride = fuzz_whole(&p->bytes, 1, 3);
    p->smooth = false;
    if (fuzz_below(&p->bytes, 2)) return tg_max_pool1d(x, kernel, .stride = {stride}, .ceil_mode = fuzz_below(&p->bytes, 2) != 0);
    return tg_avg_pool1d(x, kernel, .stride = {stride}, .padding = tg_padding_all(fuzz_whole(&p->bytes, 0, 1)));
}

static tg_tensor drawn(program *p, tg_graph *g) {
    p->random = true;
    switch (fuzz_below(&p->bytes, 3)) {
    case 0: return tg_rand(g, small_shape(p));
    case 1: return tg_dropout(any_float(p), p->tame ? 0.5 : fuzz_number(&p->bytes));
    default: return tg_rand_int(g, small_shape(p), 0, fuzz_whole(&p->bytes, 1, 4));
    }
}

static tg_tensor parameter(program *p, tg_graph *g) {
    char name[8];
    snprintf(name, sizeof name, "p%d", p->params);
    if (p->params == PROGRAM_PARAMS) return any_float(p);
    p->params++;
    return tg_param(g, name, small_shape(p), .init = tg_init_uniform(1), .frozen = fuzz_chance(&p->bytes, 4) ? TG_YES : TG_DEFAULT);
}

static tg_tensor input(program *p, tg_graph *g) {
    if (p->inputs == PROGRAM_INPUTS) return any(p);
    const int i = p->inputs++;
    p->input_dtype[i] = (tg_dtype)fuzz_below(&p->bytes, 3);
    p->input_shape[i] = small_shape(p);
    return tg_input(g, input_names[i], p->input_shape[i], p->input_dtype[i]);
}

static tg_tensor operation(program *p, tg_graph *g) {
    switch (fuzz_below(&p->bytes, 14)) {
    case 0: return unary(p, any_float(p));
    case 1: return unary(p, any(p));
    case 2:
    case 3: return binary(p, any_float(p), any_float(p));
    case 4: return reduce(p, any_float(p));
    case 5:
    case 6: return view(p, any(p));
    case 7: return joined(p);
    case 8: return product(p);
    case 9: return chosen(p);
    case 10: return softmaxed(p);
    case 11: return pooled(p);
    case 12: return fuzz_below(&p->bytes, 2) ? parameter(p, g) : input(p, g);
    default: return p->tame && fuzz_below(&p->bytes, 4) ? binary(p, any(p), any(p)) : drawn(p, g);
    }
}

static tg_tensor build(tg_graph *g, program *p) {
    fuzz_reader start = p->bytes;
    const bool tame = p->tame;
    p->smooth = p->exact = true;
    p->random = false;
    p->count = p->inputs = p->params = 0;
    keep(p, parameter(p, g));
    keep(p, input(p, g));
    while (p->bytes.left > 0) {
        const tg_tensor made = operation(p, g);
        if (made.id == 0) {
            if (!p->forgives) break;
            tg_clear_error(g->ctx); /* a user may try an operation, and do without it */
            continue;
        }
        if (tame && (count_of(made) > PROGRAM_ELEMENTS || count_of(made) < 1)) continue;
        if (!tame && count_of(made) > 16 * PROGRAM_ELEMENTS) continue;
        keep(p, made);
    }
    p->bytes = start;
    return p->tensors[p->count - 1];
}

tg_tensor program_forward(tg_graph *g, void *user) { return build(g, user); }

tg_tensor program_loss(tg_graph *g, void *user) {
    program *p = user;
    tg_tensor loss = build(g, p);
    for (int i = 0; i < p->count && i < 8; i++) { /* so that most of what was made matters */
        const tg_tensor t = p->tensors[p->count - 1 - i];
        if (t.id == 0 || tg_tensor_dtype(t) != TG_F32) continue;
        const tg_tensor part = tg_mean(t, TG_ALL);
        loss = i == 0 || tg_tensor_dtype(loss) != TG_F32 || tg_tensor_shape(loss).rank != 0 ? part : tg_mul(tg_add(loss, part), 0.5);
    }
    return loss;
}

int64_t program_data(const program *p, int i, uint32_t seed, void *data, int64_t room) {
    const int64_t count = tg_shape_count(p->input_shape[i]);
    if (count < 0 || count > room) return -1;
    for (int64_t j = 0; j < count; j++) {
        const uint32_t bits = (uint32_t)tg_hash(seed + (uint32_t)i, &j, sizeof j);
        if (p->input_dtype[i] == TG_F32) ((float *)data)[j] = (float)((double)(bits >> 8) / 8388608.0 - 1.0);
        else if (p->input_dtype[i] == TG_I32) ((int32_t *)data)[j] = (int32_t)(bits >> 30);
        else ((uint8_t *)data)[j] = (uint8_t)(bits >> 31);
    }
    return count;
}
