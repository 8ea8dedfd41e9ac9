/* Recurrent layers: the plain cell, GRU and LSTM, one step at a time or unrolled over the time
 * axis. The cells are PyTorch's, gate by gate. All gates of a cell are in one matrix, so that a
 * step is one contraction and one elementwise kernel. Must not know kernels. */
#include "trace/trace.h"

#include <math.h>
#include <string.h>

typedef enum cell_kind { CELL_RNN, CELL_GRU, CELL_LSTM } cell_kind;
static const char *const cell_names[] = {"rnn", "gru", "lstm"};
static const int64_t cell_gates[] = {1, 3, 4};

/* ---------------------------------------------------------------- making one */

static tg_recurrent make_cell(tg_site site, cell_kind kind, tg_graph *g, const char *name, int64_t in, int64_t hidden,
                              tg_recurrent_options options) {
    tg_call call;
    tg_graph *const biased = options.no_bias ? NULL : g;
    tg_recurrent layer = {{g, 0}, {g, 0}, {biased, 0}, {biased, 0}, !options.no_bias, options.relu};
    if (!tg_call_enter_graph(&call, site, cell_names[kind], g) || !tg_call_name_ok(&call, name)) return layer;
    call.subject = name;
    if (in < 1 || hidden < 1) {
        tg_call_fail(&call, TG_ERROR_SHAPE, NULL, 0, "both sizes need to be at least 1: %lld -> %lld", (long long)in, (long long)hidden);
        return layer;
    }
    if (options.relu && kind != CELL_RNN) {
        tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "relu belongs to rnn: %s has its own activations", cell_names[kind]);
        return layer;
    }
    const tg_init usual = tg_init_uniform(1 / sqrt((double)hidden));
    const tg_param_options weight = {.init = tg_init_given(&options.init) ? options.init : usual, .frozen = TG_FROZEN(options)};
    const tg_param_options bias = {.init = usual, .decay = TG_NO, .frozen = weight.frozen};
    const int64_t wide = hidden > INT32_MAX ? hidden : cell_gates[kind] * hidden;
    if (!tg_call_push_scope(&call, name)) return layer;
    layer.Wx = tg_param_at(site, g, "Wx", TG_SHAPE(in, wide), weight);
    layer.Wh = tg_param_at(site, g, "Wh", TG_SHAPE(hidden, wide), weight);
    if (layer.has_bias) layer.bx = tg_param_at(site, g, "bx", TG_SHAPE(wide), bias);
    if (layer.has_bias) layer.bh = tg_param_at(site, g, "bh", TG_SHAPE(wide), bias);
    tg_call_pop_scope(&call);
    return layer;
}

tg_recurrent tg_nn_rnn_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options) {
    return make_cell(site, CELL_RNN, g, name, in, hidden, options);
}
tg_recurrent tg_nn_gru_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options) {
    return make_cell(site, CELL_GRU, g, name, in, hidden, options);
}
tg_recurrent tg_nn_lstm_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options) {
    return make_cell(site, CELL_LSTM, g, name, in, hidden, options);
}

/* ---------------------------------------------------------------- entering one */

/* A call of a layer: its ids; 0 for an absent operand. */
typedef struct cell_call {
    tg_call call;
    cell_kind kind;
    bool relu;
    int32_t x, Wx, Wh, bx, bh, h, c;
    int64_t batch, hidden;
} cell_call;

static bool cell_weights_ok(const cell_call *c) {
    const tg_call *call = &c->call;
    const int32_t ids[2] = {c->Wx, c->Wh}, biases[2] = {c->bx, c->bh};
    const int64_t gates = cell_gates[c->kind];
    const tg_shape input = tg_node_shape(call, c->Wx), hidden = tg_node_shape(call, c->Wh);
    if (input.rank != 2 || hidden.rank != 2 || hidden.dim[1] != gates * hidden.dim[0] || input.dim[1] != hidden.dim[1]) {
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the weights need to be [in, %lld h] and [h, %lld h]: %s and %s", (long long)gates,
                     (long long)gates, TG_LABEL(call, c->Wx), TG_LABEL(call, c->Wh));
        return false;
    }
    for (int i = 0; i < 2 && c->bx != 0; i++) {
        const tg_shape bias = tg_node_shape(call, biases[i]);
        if (bias.rank == 1 && bias.dim[0] == hidden.dim[1]) continue;
        tg_call_fail(call, TG_ERROR_SHAPE, &biases[i], 1, "a bias needs %lld elements: %s", (long long)hidden.dim[1],
                     TG_LABEL(call, biases[i]));
        return false;
    }
    return true;
}

/* Checks x [B, in] or, over time, [B, T, in]; h and c [B, hidden]. */
static bool cell_operands_ok(const cell_call *c, bool over_time) {
    const tg_call *call = &c->call;
    const tg_shape x = tg_node_shape(call, c->x), input = tg_node_shape(call, c->Wx);
    const int32_t ids[2] = {c->x, c->Wx}, states[2] = {c->h, c->c};
    const int rank = over_time ? 3 : 2;
    if (x.rank != rank || x.dim[rank - 1] != input.dim[0]) {
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the input needs to be [%s%lld]: %s with %s", over_time ? "B, T, " : "B, ",
                     (long long)input.dim[0], TG_LABEL(call, c->x), TG_LABEL(call, c->Wx));
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (states[i] == 0 || tg_shape_equal(tg_node_shape(call, states[i]), TG_SHAPE(x.dim[0], tg_node_shape(call, c->Wh).dim[0])))
            continue;
        const int32_t pair[2] = {states[i], c->x};
        tg_call_fail(call, TG_ERROR_SHAPE, pair, 2, "the %s state needs to be [%lld, %lld]: %s beside %s", i == 0 ? "hidden" : "cell",
                     (long long)x.dim[0], (long long)tg_node_shape(call, c->Wh).dim[0], TG_LABEL(call, states[i]), TG_LABEL(call, c->x));
        return false;
    }
    return true;
}

static bool enter_cell(cell_call *c, tg_site site, cell_kind kind, tg_recurrent layer, tg_tensor x, tg_tensor h, tg_tensor cell,
                       bool over_time) {
    tg_tensor operands[7] = {x, layer.Wx, layer.Wh};
    int count = 3;
    if (layer.has_bias) operands[count++] = layer.bx;
    if (layer.has_bias) operands[count++] = layer.bh;
    if (!over_time || h.graph != NULL) operands[count++] = h;
    if (kind == CELL_LSTM && (!over_time || cell.graph != NULL)) operands[count++] = cell;
    memset(c, 0, sizeof *c);
    if (!tg_call_enter(&c->call, site, cell_names[kind], operands, count)) return false;
    if (kind != CELL_LSTM && cell.graph != NULL) {
        tg_call_fail(&c->call, TG_ERROR_ARGUMENT, NULL, 0, "c0 belongs to lstm: %s has no cell state", cell_names[kind]);
        return false;
    }
    for (int i = 0; i < count; i++)
        if (!tg_call_takes(&c->call, operands[i].id, TG_TAKES_F32)) return false;
    c->kind = kind;
    c->relu = layer.relu;
    c->x = x.id, c->Wx = layer.Wx.id, c->Wh = layer.Wh.id;
    if (layer.has_bias) c->bx = layer.bx.id, c->bh = layer.bh.id;
    c->h = h.id, c->c = cell.id;
    if (!cell_weights_ok(c) || !cell_operands_ok(c, over_time)) return false;
    c->batch = tg_node_shape(&c->call, c->x).dim[0];
    c->hidden = tg_node_shape(&c->call, c->Wh).dim[0];
    return true;
}

/* ---------------------------------------------------------------- one step */

static int32_t cell_binary(const cell_call *c, tg_op op, int32_t a, int32_t b) { return tg_ir_binary(c->call.graph, op, a, b); }
static int32_t cell_unary(const cell_call *c, tg_op op, int32_t x) { return tg_ir_unary(c->call.graph, op, x); }

/* Gate i of [..., gates h]. */
static int32_t cell_gate(const cell_call *c, int32_t x, int i) {
    int64_t start[TG_MAX_RANK] = {0};
    if (x == 0) return 0;
    tg_shape shape = tg_node_shape(&c->call, x);
    start[shape.rank - 1] = i * c->hidden;
    shape.dim[shape.rank - 1] = c->hidden;
    return tg_ir_slice(c->call.graph, x, start, shape);
}

/* x Wx + bx for all rows. bh is added here too, except for the GRU, which multiplies a gate
 * first. */
static int32_t cell_input_product(const cell_call *c) {
    const int32_t product = tg_compose_matmul(&c->call, c->x, c->Wx);
    if (c->bx == 0) return product;
    return cell_binary(c, TG_OP_ADD, product, c->kind == CELL_GRU ? c->bx : cell_binary(c, TG_OP_ADD, c->bx, c->bh));
}

/* h Wh, plus bh for the GRU; 0: nothing to add. */
static int32_t cell_hidden_product(const cell_call *c) {
    const int32_t bias = c->kind == CELL_GRU ? c->bh : 0;
    const int32_t product = c->h == 0 ? 0 : tg_compose_matmul(&c->call, c->h, c->Wh);
    if (product == 0 || bias == 0) return product != 0 ? product : bias;
    return cell_binary(c, TG_OP_ADD, product, bias);
}

/* a + b; b may be 0, absent. */
static int32_t cell_sum(const cell_call *c, int32_t a, int32_t b) { return b == 0 ? a : cell_binary(c, TG_OP_ADD, a, b); }

/* r = sigmoid(xr + hr), z = sigmoid(xz + hz), n = tanh(xn + r hn),
 * h' = (1 - z) n + z h = n + z (h - n) (Cho et al. 2014) */
static void gru_step(cell_call *c, int32_t from_x, int32_t from_h) {
    int32_t gate[3], other[3];
    for (int i = 0; i < 3; i++) gate[i] = cell_gate(c, from_x, i), other[i] = cell_gate(c, from_h, i);
    const int32_t r = cell_unary(c, TG_OP_SIGMOID, cell_sum(c, gate[0], other[0]));
    const int32_t z = cell_unary(c, TG_OP_SIGMOID, cell_sum(c, gate[1], other[1]));
    const int32_t reset = other[2] == 0 ? 0 : cell_binary(c, TG_OP_MUL, r, other[2]);
    const int32_t n = cell_unary(c, TG_OP_TANH, cell_sum(c, gate[2], reset));
    if (c->h == 0) c->h = cell_binary(c, TG_OP_SUB, n, cell_binary(c, TG_OP_MUL, z, n));
    else c->h = cell_binary(c, TG_OP_ADD, n, cell_binary(c, TG_OP_MUL, z, cell_binary(c, TG_OP_SUB, c->h, n)));
}

/* i, f, o = sigmoid, g = tanh of xi + hi and so on; c' = f c + i g, h' = o tanh(c') (Hochreiter &
 * Schmidhuber 1997, Gers et al. 2000) */
static void lstm_step(cell_call *c, int32_t from_x, int32_t from_h) {
    int32_t gate[4];
    const int32_t all = cell_sum(c, from_x, from_h);
    for (int i = 0; i < 4; i++) gate[i] = cell_unary(c, i == 2 ? TG_OP_TANH : TG_OP_SIGMOID, cell_gate(c, all, i));
    const int32_t added = cell_binary(c, TG_OP_MUL, gate[0], gate[2]);
    c->c = c->c == 0 ? added : cell_binary(c, TG_OP_ADD, cell_binary(c, TG_OP_MUL, gate[1], c->c), added);
    c->h = cell_binary(c, TG_OP_MUL, gate[3], cell_unary(c, TG_OP_TANH, c->c));
}

/* One step from the input's product, from_x: [B, gates h]. Leaves the new states in c. */
static void cell_step(cell_call *c, int32_t from_x) {
    const int32_t from_h = cell_hidden_product(c);
    if (c->kind == CELL_GRU) gru_step(c, from_x, from_h);
    else if (c->kind == CELL_LSTM) lstm_step(c, from_x, from_h);
    else c->h = cell_unary(c, c->relu ? TG_OP_RELU : TG_OP_TANH, cell_sum(c, from_x, from_h));
}

static tg_tensor step_at(tg_site site, cell_kind kind, tg_recurrent layer, tg_tensor x, tg_tensor h) {
    cell_call c;
    if (!enter_cell(&c, site, kind, layer, x, h, (tg_tensor){NULL, 0}, false)) return tg_call_poison(&c.call);
    cell_step(&c, cell_input_product(&c));
    return tg_call_result(&c.call, c.h);
}

tg_tensor tg_nn_rnn_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_tensor h) { return step_at(site, CELL_RNN, layer, x, h); }
tg_tensor tg_nn_gru_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_tensor h) { return step_at(site, CELL_GRU, layer, x, h); }

tg_lstm_states tg_nn_lstm_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before) {
    cell_call c;
    if (!enter_cell(&c, site, CELL_LSTM, layer, x, before.h, before.c, false))
        return (tg_lstm_states){tg_call_poison(&c.call), tg_call_poison(&c.call)};
    cell_step(&c, cell_input_product(&c));
    return (tg_lstm_states){tg_call_result(&c.call, c.h), tg_call_result(&c.call, c.c)};
}

/* ---------------------------------------------------------------- over time */

/* Row t of [B, T, N], as [B, N]. */
static int32_t cell_time(const cell_call *c, int32_t x, int64_t t) {
    const int64_t start[TG_MAX_RANK] = {0, t, 0};
    const int64_t wide = tg_node_shape(&c->call, x).dim[2];
    return tg_ir_reshape(c->call.graph, tg_ir_slice(c->call.graph, x, start, TG_SHAPE(c->batch, 1, wide)), TG_SHAPE(c->batch, wide));
}

/* `steps` rows of [B, 1, H] -> [B, steps, H] */
static tg_tensor cell_stack(const cell_call *c, const int32_t *rows, int64_t steps) {
    return tg_call_result(&c->call, steps == 1 ? rows[0] : tg_ir_concat(c->call.graph, rows, (int)steps, 1));
}

/* All hidden states, and for the LSTM all cell states; each [B, T, H]. */
static tg_lstm_states unroll(tg_site site, cell_kind kind, tg_recurrent layer, tg_tensor x, tg_tensor h, tg_tensor cell) {
    cell_call c;
    const bool entered = enter_cell(&c, site, kind, layer, x, h, cell, true);
    const tg_lstm_states poison = {tg_call_poison(&c.call), tg_call_poison(&c.call)};
    if (!entered) return poison;
    const int64_t steps = tg_node_shape(&c.call, c.x).dim[1];
    const tg_shape row = TG_SHAPE(c.batch, 1, c.hidden);
    const int32_t from_x = cell_input_product(&c);
    int32_t *rows = tg_alloc(c.call.graph->ctx, (size_t)steps * 2 * sizeof *rows);
    if (rows == NULL) return poison;
    bool whole = from_x != 0;
    for (int64_t t = 0; t < steps && whole; t++) {
        cell_step(&c, cell_time(&c, from_x, t));
        whole = c.h != 0 && (kind != CELL_LSTM || c.c != 0);
        rows[t] = whole ? tg_ir_reshape(c.call.graph, c.h, row) : 0;
        rows[steps + t] = whole && kind == CELL_LSTM ? tg_ir_reshape(c.call.graph, c.c, row) : 0;
    }
    tg_lstm_states all = poison;
    if (whole) all.h = cell_stack(&c, rows, steps);
    if (whole && kind == CELL_LSTM) all.c = cell_stack(&c, rows + steps, steps);
    tg_release(c.call.graph->ctx, rows, (size_t)steps * 2 * sizeof *rows);
    return all;
}

tg_tensor tg_nn_rnn_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start) {
    return unroll(site, CELL_RNN, layer, x, start.h0, start.c0).h;
}
tg_tensor tg_nn_gru_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start) {
    return unroll(site, CELL_GRU, layer, x, start.h0, start.c0).h;
}
tg_lstm_states tg_nn_lstm_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start) {
    return unroll(site, CELL_LSTM, layer, x, start.h0, start.c0);
}
