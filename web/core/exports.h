/* exports: the C core as JavaScript sees it. Flat functions over numbers and addresses in the module's memory; web/src/core.ts is
 * the only caller and the other half of this contract. One context for the whole module.
 *
 * Types: `address` arguments are byte offsets in the memory, 0 is NULL. Texts are UTF-8 and end with NUL. No 64-bit integers cross:
 * sizes and counts are doubles or 32 bits. Status results are tg_status; on one that is not 0, and on a 0 where an object, an id or an
 * address was asked for, error_* say what happened. Returned texts belong to the core until the next call that returns a text.
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

/* ---------------------------------------------------------------- imports: what JavaScript provides, module "tg" */

/* The body of trace(), given the graph's number. Writes (graph, id) of the tensor it built to out[0], out[1]; leaves them 0 when it threw
 * (the exception is kept by JavaScript, which throws it again when trace() is back). Exceptions must not pass through the core. */
WEB_IMPORT(void, build)(int32_t graph, int32_t out[2]);

/* A warning of the core: what its log says. */
WEB_IMPORT(void, warn)(const char *message);

/* format_number and parse_number: see libc.c. The others, gpu_open to gpu_unload, and the program that gpu_load is given:
 * src/run/web/web.h. */

/* ---------------------------------------------------------------- module */

/* Before anything else. 1; 0 without memory. */
WEB_EXPORT(int32_t, init)(void);
/* 1: this build has the CPU executor ("simd128" inside). */
WEB_EXPORT(int32_t, has_cpu)(void);
WEB_EXPORT(const char *, version)(void);
/* 16-byte aligned, not cleared. 0 without memory. */
WEB_EXPORT(void *, alloc)(uint32_t bytes);
WEB_EXPORT(void, free)(void *block);
WEB_EXPORT(int32_t, live_bytes)(void); /* held by the core: for tests */

WEB_EXPORT(int32_t, error_status)(void);
WEB_EXPORT(const char *, error_message)(void);
WEB_EXPORT(const char *, error_file)(void); /* "": no site */
WEB_EXPORT(int32_t, error_line)(void);
WEB_EXPORT(void, error_clear)(void);
/* Records an error of JavaScript's own (a device that refused), so that call_next and others can report it. */
WEB_EXPORT(void, error_set)(int32_t status, const char *message);

/* ---------------------------------------------------------------- traces and graphs */

/* Calls the import `build` in a fresh trace. Returned: graph_destroy. 0: see error_*, or the exception JavaScript kept. */
WEB_EXPORT(int32_t, trace)(void);
/* Goes on with a graph whose trace has ended: calls `build` as trace() does. What it gives is the graph's result from then on; when it gave
 * nothing the result stays. Status. Nodes that were made stay, whatever happens: unused ones cost nothing. */
WEB_EXPORT(int32_t, trace_into)(int32_t graph);
WEB_EXPORT(void, graph_destroy)(int32_t graph);
/* What the trace holds, as JSON:
 * {"result":{"id","shape","dtype"}, "inputs":[{"name","shape","dtype"}], "params":[{"name","shape","decay","frozen"}],
 *  "states":[{"name","shape","dtype"}], "captures":[{"name","shape","dtype"}], "nodes":n}; dtype is the number of tg_dtype.
 * 0 without memory. */
WEB_EXPORT(const char *, graph_describe)(int32_t graph);
/* Its nodes and what they are for, as JSON; ids count from 0, a node's is its place:
 * {"ops":[{"kind","inputs":[id],"shape","dtype","name","file","line","attributes":{...}}],"result":id,
 *  "writebacks":[[destination, source]]}. attributes, where the op has them: axes, perm, start, value, count (of literal data), window [size,
 * step, dilation], offsets, init. 0 without memory. */
WEB_EXPORT(const char *, graph_nodes)(int32_t graph);
/* The values that parameter i (as listed by graph_describe) begins with, `count` of them. */
WEB_EXPORT(void, graph_initial)(int32_t graph, int32_t i, double seed_low, double seed_high, float *out, int32_t count);
/* The IR as text, before any pass. */
WEB_EXPORT(const char *, graph_text)(int32_t graph);
/* Overrides the decay flag of parameter i (as listed by graph_describe). May be called inside a trace. */
WEB_EXPORT(void, graph_set_decay)(int32_t graph, int32_t i, int32_t decay);
/* An optimiser's parameter groups: all are forgotten, then one after the other marked. numbers: rate, weight_decay, decay (tg_choice),
 * frozen, plain, as in tg_param_group. May be called inside a trace. Status. */
WEB_EXPORT(void, graph_unmark)(int32_t graph);
WEB_EXPORT(int32_t, graph_mark_group)(int32_t graph, const char *pattern, const double numbers[5]);
/* Files and lines for the sites of a graph that JavaScript gave numbers as lines, and no files of their own: those whose line is one of
 * `sites`, which ascend by number, and whose file is WEB_NUMBERED. The files' names live as long as the module. */
#define WEB_NUMBERED "\x01"
typedef struct web_site {
    int32_t number;
    const char *file;
    int32_t line;
} web_site; /* 12 bytes */
WEB_EXPORT(void, graph_settle_sites)(int32_t graph, const web_site *sites, int32_t count);
/* The bytes for model_create: their number, and text_data() is where they lie. -1: see error_*. */
WEB_EXPORT(int32_t, graph_write)(int32_t graph);
WEB_EXPORT(const char *, text_data)(void);

/* ---------------------------------------------------------------- operations: inside a trace. id 0 is poison: see error_*.
 * file, line: the user's own; read during the call. */

typedef struct web_operand { /* 16 bytes */
    int32_t graph;
    int32_t id; /* WEB_NUMBER: the number */
    double number;
} web_operand;
#define WEB_NUMBER (-1)

/* op: WEB_OP_* below. numbers[count]: what stands beside the operation there. Operands that must be tensors and are numbers, and a
 * wrong number of either, give poison with TG_ERROR_INTERNAL: core.ts passes what fits. */
WEB_EXPORT(int32_t, op)
(int32_t op, const char *file, int32_t line, const web_operand *operands, int32_t operand_count, const double *numbers, int32_t count);

/* name, then its numbers in order. `tensor or number` operands where the public header says tg_operand. */
/* clang-format off */
#define WEB_UNARY(X) /* (x) */ \
  X(neg) \
  X(abs) X(sign) X(square) X(sqrt) X(rsqrt) X(reciprocal) X(exp) X(log) X(sin) X(cos) X(tanh) X(erf) X(sigmoid) X(softplus) X(expm1) \
      X(log1p) X(floor) X(ceil) X(round) X(tan) X(log_sigmoid) X(hard_sigmoid) X(hard_swish) X(silu) X(gelu) X(gelu_tanh) X(relu) \
          X(logical_not) X(stop_gradient) X(softmax_causal_last) X(nn_merge_heads) \
    X(global_avg_pool) X(global_max_pool)
#define WEB_BINARY(X) /* (a, b), either a number */ \
  X(add) \
  X(sub) X(mul) X(div) X(floor_div) X(mod) X(pow) X(minimum) X(maximum) X(less) X(less_equal) X(greater) X(greater_equal) X(equal) \
      X(not_equal) X(logical_and) X(logical_or)
/* clang-format on */
#define WEB_PAIR(X) /* (a, b), both tensors */ X(matmul) X(matmul_batched) X(embedding) X(nn_cross_entropy_last)
#define WEB_REDUCE(X) /* (x)  keepdims, all (1: every axis), axes... */ X(sum) X(mean) X(max) X(min) X(prod) X(any) X(all)
#define WEB_ARG(X) /* (x)  axis, keepdims */ X(argmax) X(argmin)
#define WEB_AXIS(X) /* (x)  axis */ X(softmax) X(log_softmax) X(logsumexp) X(categorical)
#define WEB_SHAPE(X) /* (x)  dims... (reshape: one may be -1) */ X(reshape) X(broadcast_to) X(tile)
#define WEB_JOIN(X) /* (parts...)  axis */ X(concat) X(stack)
#define WEB_CONV(X) /* (x, w) or (x, w, bias)  stride 2, padding: same, before 2, after 2; dilation 2, groups, output_padding 2 */ \
  X(conv1d) X(conv2d) X(conv_transpose1d) X(conv_transpose2d)
#define WEB_POOL(X) /* (x)  kernel 2, stride 2, padding: same, before 2, after 2; ceil_mode, exclude_padding */ \
  X(max_pool1d) X(max_pool2d) X(avg_pool1d) X(avg_pool2d)
#define WEB_UPSAMPLE(X) /* (x)  factor 2, align_corners */ X(upsample_nearest) X(upsample_bilinear)
#define WEB_OTHER(X) \
  X(where)                /* (condition, a, b), a and b may be numbers */ \
  X(clamp)                /* (x)  lo, hi */ \
  X(leaky_relu)           /* (x)  slope */ \
  X(elu)                  /* (x)  alpha */ \
  X(cast)                 /* (x)  dtype */ \
  X(transpose)            /* (x)  perm... */ \
  X(swap_axes)            /* (x)  a, b */ \
  X(slice_last_range)     /* (x)  start, end */ \
  X(narrow)               /* (x)  axis, start, length */ \
  X(one_hot)              /* (indices)  depth, dtype */ \
  X(where_causal)         /* (x)  fill */ \
  X(dropout)              /* (x)  p */ \
  X(squeeze)              /* (x)  all (1: every axis that can go), axes... */ \
  X(flip)                 /* as squeeze */ \
  X(expand_dims)          /* (x)  axis */ \
  X(pad)                  /* (x)  value, before..., after... */ \
  X(roll)                 /* (x)  shift, axis */ \
  X(repeat)               /* (x)  times, axis */ \
  X(gather)               /* (x, indices)  axis */ \
  X(take_along_axis)      /* (x, indices)  axis */ \
  X(scatter_add)          /* (x, indices, updates)  axis */ \
  X(sort)                 /* (x)  axis, descending */ \
  X(argsort)              /* as sort */ \
  X(top_k)                /* (x)  k, axis, 0: the values, 1: the indices */ \
  X(einsum)               /* (operands...)  the equation, as character codes */ \
  X(rope)                 /* (x) or (x, positions)  base, interleaved */ \
  X(variance)             /* (x)  keepdims, all (1: every axis), correction, axes... */ \
  X(std)                  /* as variance */ \
  X(norm)                 /* (x)  keepdims, all, ord, axes... */ \
  X(cumsum)               /* (x)  axis, exclusive, reverse */ \
  X(cumprod)              /* as cumsum */ \
  X(masked_softmax)       /* (x, mask)  axis */ \
  X(tril)                 /* (x)  diagonal */ \
  X(triu)                 /* (x)  diagonal */ \
  X(nn_cross_entropy)     /* (logits, targets)  ignore, reduction (tg_reduction), label smoothing */ \
  X(nn_split_heads)       /* (x)  heads */ \
  X(nn_linear_fwd)        /* (x, W) or (x, W, b) */ \
  X(nn_layer_norm_fwd)    /* (x, g, b)  eps */ \
  X(nn_rms_norm_fwd)      /* (x, g)  eps */ \
  X(nn_group_norm_fwd)    /* (x, g, b)  groups, eps */ \
  X(nn_batch_norm_fwd)    /* (x, g, b, mean, var)  eps, momentum, training */ \
  X(nn_rnn_fwd)           /* (x, Wx, Wh, then what is said to be there: bx and bh, h0, c0)  relu, one step, biases, h0, c0 */ \
  X(nn_gru_fwd)           /* as nn_rnn_fwd */ \
  X(nn_lstm_fwd)          /* as nn_rnn_fwd; hidden and cell states side by side along the last axis */ \
  X(nn_nll)               /* (log probabilities, targets)  ignore, reduction */ \
  X(nn_mse)               /* (prediction, target)  reduction */ \
  X(nn_l1)                /* (prediction, target)  reduction */ \
  X(nn_huber)             /* (prediction, target)  reduction, delta */ \
  X(nn_bce_with_logits)   /* (logits, target) or (logits, target, positive weight)  reduction */ \
  X(nn_kl_div)            /* (log prediction, target)  reduction, log target */ \
  X(nn_attention_weights) /* (q, k) or (q, k, mask)  causal */ \
  X(nn_attention_values)  /* (weights, v) */ \
  X(resolve_lr)           /* (t)  the numbers of a schedule: see WEB_LR */
/* Numbers are given in this order, from 0. */
#define WEB_OPS(X) \
  WEB_UNARY(X) \
  WEB_BINARY(X) \
  WEB_PAIR(X) WEB_REDUCE(X) WEB_ARG(X) WEB_AXIS(X) WEB_SHAPE(X) WEB_JOIN(X) WEB_OTHER(X) WEB_CONV(X) WEB_POOL(X) WEB_UPSAMPLE(X)
#define WEB_OP_ENUM(name) WEB_OP_##name,
typedef enum web_op { WEB_OPS(WEB_OP_ENUM) WEB_OP_COUNT } web_op_kind;
#undef WEB_OP_ENUM

/* Leaves. dims: `rank` doubles. */
WEB_EXPORT(int32_t, param)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t init, double scale,
 const float *data, int32_t count, int32_t decay, int32_t frozen); /* tg_init_kind; tg_choice */
WEB_EXPORT(int32_t, input)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t dtype);
WEB_EXPORT(int32_t, state)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t dtype, double value);
WEB_EXPORT(int32_t, full)(const char *file, int32_t line, int32_t graph, const double *dims, int32_t rank, double value, int32_t dtype);
WEB_EXPORT(int32_t, arange)(const char *file, int32_t line, int32_t graph, double n, int32_t dtype);
WEB_EXPORT(int32_t, constant)
(const char *file, int32_t line, int32_t graph, const double *dims, int32_t rank, int32_t dtype, const void *data,
 int32_t count); /* bool: bytes */
/* Random numbers: of [lo, hi) where kind is WEB_RAND_INT; p, a tensor or a number, is looked at where it is WEB_BERNOULLI. */
typedef enum web_draw_kind { WEB_RAND, WEB_RANDN, WEB_RAND_INT, WEB_BERNOULLI } web_draw_kind;
WEB_EXPORT(int32_t, draw)
(const char *file, int32_t line, int32_t graph, int32_t kind, const double *dims, int32_t rank, double lo, double hi, const web_operand *p);
WEB_EXPORT(void, scope_push)(int32_t graph, const char *name);
WEB_EXPORT(void, scope_pop)(int32_t graph);
WEB_EXPORT(int32_t, capture)(const char *file, int32_t line, const char *name, int32_t graph, int32_t id);

/* operands[0]: loss (vjp: y, then cotangent), then the wrt. out[i]: ids. Status. */
WEB_EXPORT(int32_t, grad)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out);
WEB_EXPORT(int32_t, vjp)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out);
/* numbers: the axis; 1 for equal parts, and how many; or 0, and the size of each. out[i]: ids. Status. */
WEB_EXPORT(int32_t, split)(const char *file, int32_t line, const web_operand *operand, const double *numbers, int32_t count, int32_t *out);
WEB_EXPORT(int32_t, writeback)(const char *file, int32_t line, const web_operand operands[2]); /* destination, source */
WEB_EXPORT(int32_t, append_optimizer)(const char *file, int32_t line, const web_operand *loss, const double *optimizer);

/* dims (room for 8 doubles) get the shape; returns the rank. */
WEB_EXPORT(int32_t, shape)(int32_t graph, int32_t id, double *dims);
WEB_EXPORT(int32_t, dtype)(int32_t graph, int32_t id);
WEB_EXPORT(const char *, name)(int32_t graph, int32_t id); /* of the parameter, input or operation; "" */

/* A schedule: kind, peak, final, steps, after_kind, after_peak, after_final, after_steps, factor, initial, rise, milestone_count,
 * milestones, more_count, more_peaks and more_steps by turns (fields of tg_lr; tg_lr_kind). */
#define WEB_LR (13 + TG_LR_MILESTONES + 2 * (TG_LR_WARMUPS - 1))
WEB_EXPORT(double, lr_value)(const double lr[WEB_LR], double t); /* NaN: the schedule is refused, see error_* */
/* An optimiser: kind (tg_optimizer_kind), beta1, beta2, eps, eps_mode, weight_decay, momentum, nesterov, clip_norm, clip_value, normalize,
 * accumulate, average, skip_non_finite, then a schedule. 0 means the default where the public header says so. */
#define WEB_OPTIMIZER (14 + WEB_LR)

/* ---------------------------------------------------------------- models */

/* options[0..4): training (0 forward), seed's low and high 32 bits, device (tg_device_kind: CPU or WEBGPU), no_fusion; then
 * WEB_OPTIMIZER numbers, looked at when training; then precision (tg_precision), loss_scale and check_finite. bytes: what graph_write
 * gave; read during the call, nothing in them is trusted. Returned: model_destroy. 0: see error_*. */
#define WEB_OPTIONS (5 + WEB_OPTIMIZER + 3)
WEB_EXPORT(tg_model *, model_create)(const void *bytes, uint32_t size, const double options[WEB_OPTIONS]);
WEB_EXPORT(tg_model *, model_sibling)(tg_model *parent, const void *bytes, uint32_t size, int32_t averaged); /* see tg_compile_average */
/* One more size of `owner`, for which the same model was traced: it steps and runs as the owner does. As model_sibling otherwise; destroyed
 * with its owner at the latest. */
WEB_EXPORT(tg_model *, model_size)(tg_model *owner, const void *bytes, uint32_t size);
WEB_EXPORT(void, model_destroy)(tg_model *model); /* with its siblings, whose addresses are dead then */
/* {"training":bool, "device":text, "inputs":[{"name","shape","dtype"}], "captures":[names], "output":{"shape","dtype"},
 *  "params":[{"name","shape","offset","count","decay","frozen"}]  (offset, count: elements of the states of parameters and gradients),
 *  "parameters":slot, "gradients" and "average":slot or -1, "states":[{"name","dtype","count"}]  (by slot), "total":elements of a flat
 * state, "info":{"parameters","nodes","kernels","dispatches","programBytes","peakBytes","workspaceBytes","contractionFlops","precision"}}.
 * States may become more when a call compiles a variant (captures, a run of a training model). 0: see error_*. */
WEB_EXPORT(const char *, model_describe)(tg_model *model);
WEB_EXPORT(const char *, model_text)(tg_model *model, int32_t what); /* tg_text; 0: see error_* */

/* One named array: 24 bytes, as tg_feed lies in memory: name u32 @0, dtype i32 @4, data u32 @8, count i64 @16. */
/* Everything is checked before anything is written. */
WEB_EXPORT(int32_t, model_upload)(tg_model *model, const tg_feed *params, int32_t n, int32_t partial);
/* CPU models: elements [first, first + count) of state `slot`, bool as bytes. (WebGPU: JavaScript reads its own buffers.) */
WEB_EXPORT(int32_t, model_read)(tg_model *model, int32_t slot, int32_t first, void *data, int32_t count);
/* TG_OK: gradients can be downloaded: a training model that has made a step since the last reset. Where "gradients" is -1 they are
 * all 0. */
WEB_EXPORT(int32_t, model_check_grads)(tg_model *model);
/* Resets, set_lr: as the public API. On WebGPU JavaScript takes a snapshot (below) right before model_reset_optimizer. */
WEB_EXPORT(int32_t, model_reset)(tg_model *model);
WEB_EXPORT(int32_t, model_reset_optimizer)(tg_model *model);
WEB_EXPORT(int32_t, model_set_lr)(tg_model *model, const double lr[WEB_LR]);
WEB_EXPORT(double, model_steps)(tg_model *model);

/* Snapshot of a WebGPU model, what model_recover goes back to: JavaScript reads every state first, then puts each here, without anything
 * between, then ends it. Compiling, uploads and model_reset keep it in step by themselves. */
WEB_EXPORT(void, snapshot_put)(tg_model *model, int32_t slot, const void *data); /* all of it, bool as bytes */
WEB_EXPORT(void, snapshot_end)(tg_model *model);
/* After JavaScript has opened another device, which the import gpu_open will hand out: states and programs go onto it. TG_OK and nothing
 * done where gpu_lost says 0. Calls in progress must have been ended. */
WEB_EXPORT(int32_t, model_recover)(tg_model *model);

/* ---------------------------------------------------------------- calls: a step or a run, in phases, so that a device may work between
 * them
 *
 *   status = call_begin(call, kind, feeds, n)              all checks; the inputs are bound
 *   while status == 0 and (e = call_program(call)) != 0:   execute e (WebGPU), write its outputs, then
 *       status = call_next(call, 0)
 *   call_result, call_captures; call_end
 * On the CPU: call_run(call) in place of the loop. A model has one call in progress at most (but see call_is_last); feeds stay where they
 * are until its end. */

typedef struct web_call web_call;
typedef enum web_call_kind { WEB_CALL_STEP, WEB_CALL_RUN, WEB_CALL_STEP_WITH_CAPTURES, WEB_CALL_RUN_WITH_CAPTURES } web_call_kind;
/* One object serves all calls of a model, one after another; it keeps room for the result. 0 without memory. */
WEB_EXPORT(web_call *, call_create)(tg_model *model);
WEB_EXPORT(void, call_destroy)(web_call *call); /* before the model */
WEB_EXPORT(int32_t, call_begin)(web_call *call, int32_t kind, const tg_feed *feeds, int32_t n);
/* The executable (number given by gpu_load) to execute now; 0: the call is done. */
WEB_EXPORT(int32_t, call_program)(const web_call *call);
/* 1: that program is the call's last. A step then depends on no other call: once its inputs are read (call_inputs, call_outputs too: they
 * are the program's, not the call's), another step of the model may begin with another web_call, before this one's outputs are there. */
WEB_EXPORT(int32_t, call_is_last)(const web_call *call);
/* Addresses of the program's inputs, and of where its outputs go (0: not wanted): arrays of u32, as many as the program says. */
WEB_EXPORT(const void *const *, call_inputs)(const web_call *call);
WEB_EXPORT(void *const *, call_outputs)(const web_call *call);
/* The program has been executed and its outputs are written; or it failed with `status`, recorded by error_set. Status of the call so far:
 * on one that is not 0 the call is over. TG_ERROR_NOT_FINITE: the step was made, result and captures are there. */
WEB_EXPORT(int32_t, call_next)(web_call *call, int32_t status);
WEB_EXPORT(int32_t, call_run)(web_call *call); /* CPU: execute and next until done */
/* The loss (f32) of a step, the output of a run: elements as model_describe says. Until the next call_begin. */
WEB_EXPORT(const void *, call_result)(const web_call *call);
/* [{"name","shape","dtype","count","data":address}]; "[]" where none were asked for. */
WEB_EXPORT(const char *, call_captures)(const web_call *call);
WEB_EXPORT(void, call_end)(web_call *call); /* gives captures back; also after an error, and in place of the loop to give up */

/* ---------------------------------------------------------------- many steps: tg_train in submissions
 *
 *   train = train_begin(model, data set, options, feeds, n)      0: see error_*
 *   while (most = train_most(train)) > 0:    at most so many steps (train_exact: so many), their losses written at train_losses, then
 *       status = train_next(train, 0, how many)
 *   train_result; train_end
 * On the CPU, train_run(train, count) is one submission with its train_next. Feeds stay where they are until the end. Other calls of the
 * model may come between. */

/* arrays as feeds. 0: see error_*. The model may be destroyed first. */
WEB_EXPORT(tg_dataset *, dataset_create)(tg_model *model, const tg_feed *arrays, int32_t n, int32_t rows);
WEB_EXPORT(void, dataset_destroy)(tg_dataset *dataset);
/* Its number, that gpu_feeder gave; 0: batches are made by the core: train_run, or on a GPU train_step. */
WEB_EXPORT(int32_t, dataset_feeder)(const tg_dataset *dataset);

typedef struct web_train web_train;
#define WEB_TRAIN 7 /* steps, order (tg_batch_order), seed's low and high 32 bits, steps per submission, target loss, patience */
WEB_EXPORT(web_train *, train_begin)
(tg_model *model, tg_dataset *dataset, const double options[WEB_TRAIN], const tg_feed *feeds, int32_t n);
WEB_EXPORT(int32_t, train_most)(const web_train *train);
WEB_EXPORT(int32_t, train_exact)(const web_train *train);
WEB_EXPORT(const uint32_t *, train_control)(web_train *train);         /* TG_DRAW_WORDS words for the drawing kernel */
WEB_EXPORT(int32_t, train_program)(const web_train *train);            /* the step's executable */
WEB_EXPORT(const void *const *, train_inputs)(const web_train *train); /* as call_inputs; of those of the data set nothing is to be read */
WEB_EXPORT(float *, train_losses)(const web_train *train);             /* room for TG_MOST_STEPS */
WEB_EXPORT(int32_t, train_next)(web_train *train, int32_t status, int32_t count);
WEB_EXPORT(int32_t, train_run)(web_train *train, int32_t count); /* CPU; fewer where training ends: *train_result says */
/* On a GPU without a feeder: begins one step in `call`, on a batch made by the core. Go on as after call_begin; but when its last program
 * has been executed, its loss is taken and call_end called in place of call_next, and train_next then. */
WEB_EXPORT(int32_t, train_step)(web_train *train, web_call *call);
WEB_EXPORT(const double *, train_result)(web_train *train); /* steps, end (tg_train_end), loss, best */
WEB_EXPORT(void, train_end)(web_train *train);

#endif
