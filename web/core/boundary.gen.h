/* The exports of the core and the structs that they take. Written by scripts/make-boundary from web/core/boundary.def: change that. */
#ifndef TG_WEB_BOUNDARY_GEN_H
#define TG_WEB_BOUNDARY_GEN_H

#include "arguments.h"

/* ---------------------------------------------------------------- module */

/* Before anything else. 1; 0 without memory. */
WEB_EXPORT(web_flag, init)(void);
/* 1: this build has the CPU executor ("simd128" inside). */
WEB_EXPORT(web_flag, has_cpu)(void);
/* 16-byte aligned, not cleared. 0 without memory. */
WEB_EXPORT(void *, alloc)(uint32_t bytes);
WEB_EXPORT(void, free)(void *block);
WEB_EXPORT(int32_t, live_bytes)(void); /* held by the core: for tests */

WEB_EXPORT(web_status, error_status)(void);
WEB_EXPORT(const char *, error_message)(void);
WEB_EXPORT(const char *, error_file)(void); /* "": no site */
WEB_EXPORT(int32_t, error_line)(void);
WEB_EXPORT(void, error_clear)(void);
/* Records an error of JavaScript's own (a device that refused), so that call_next and others can report it. */
WEB_EXPORT(void, error_set)(web_status status, const char *message);

/* ---------------------------------------------------------------- traces and graphs */

/* Calls the import `build` in a fresh trace. Returned: graph_destroy. 0: see error_*, or the exception JavaScript kept. */
WEB_EXPORT(web_graph, trace)(void);
/* Goes on with a graph whose trace has ended: calls `build` as trace() does. What it gives is the graph's result from then on; when it gave
 * nothing the result stays. Status. Nodes that were made stay, whatever happens: unused ones cost nothing. */
WEB_EXPORT(web_status, trace_into)(web_graph graph);
WEB_EXPORT(void, graph_destroy)(web_graph graph);
/* What the trace holds, as JSON:
 * {"result":{"id","shape","dtype"}, "inputs":[{"name","shape","dtype"}], "params":[{"name","shape","decay","frozen"}],
 *  "states":[{"name","shape","dtype"}], "captures":[{"name","shape","dtype"}], "nodes":n}; dtype is the number of tg_dtype.
 * 0 without memory. */
WEB_EXPORT(const char *, graph_describe)(web_graph graph);
/* Its nodes and what they are for, as JSON; ids count from 0, a node's is its place:
 * {"ops":[{"kind","inputs":[id],"shape","dtype","name","file","line","attributes":{...}}],"result":id,
 *  "writebacks":[[destination, source]]}. attributes, where the op has them: axes, perm, start, value, count (of literal data), window [size,
 * step, dilation], offsets, init. 0 without memory. */
WEB_EXPORT(const char *, graph_nodes)(web_graph graph);
/* The values that parameter i (as listed by graph_describe) begins with, `count` of them. */
WEB_EXPORT(void, graph_initial)(web_graph graph, int32_t i, double seed_low, double seed_high, float *out, int32_t count);
/* The IR as text, before any pass. */
WEB_EXPORT(const char *, graph_text)(web_graph graph);
/* Overrides the decay flag of parameter i (as listed by graph_describe). May be called inside a trace. */
WEB_EXPORT(void, graph_set_decay)(web_graph graph, int32_t i, web_flag decay);
/* An optimiser's parameter groups: all are forgotten, then one after the other marked. May be called inside a trace. */
WEB_EXPORT(void, graph_unmark)(web_graph graph);
WEB_EXPORT(web_status, graph_mark_group)(web_graph graph, const char *pattern, const double *group);
/* Files and lines for the sites of a graph that JavaScript gave numbers as lines, and no files of their own: those whose line is one of
 * `sites`, which ascend by number, and whose file is WEB_NUMBERED. The files' names live as long as the module. */
WEB_EXPORT(void, graph_settle_sites)(web_graph graph, const web_site *sites, int32_t count);
/* The bytes for model_create: their number, and text_data() is where they lie. -1: see error_*. */
WEB_EXPORT(int32_t, graph_write)(web_graph graph);
WEB_EXPORT(const char *, text_data)(void);

/* ---------------------------------------------------------------- operations: inside a trace. id 0 is poison: see error_*.
 * file, line: the user's own; read during the call. */

/* The operation of a row `op`. Operands that must be tensors and are numbers, and a wrong number of operands or numbers, give
 * poison with TG_ERROR_INTERNAL: web/src/packing.ts passes what fits. */
WEB_EXPORT(int32_t, op)(int32_t op, const char *file, int32_t line, const web_operand *operands, int32_t operand_count,
    const double *numbers, int32_t count);

/* Leaves. dims: `rank` doubles. */
WEB_EXPORT(int32_t, param)(const char *file, int32_t line, web_graph graph, const char *name, const double *dims, int32_t rank,
    int32_t init, double scale, const float *data, int32_t count, int32_t decay, int32_t frozen); /* tg_init_kind; tg_choice */
WEB_EXPORT(int32_t, input)(const char *file, int32_t line, web_graph graph, const char *name, const double *dims, int32_t rank,
    int32_t dtype);
WEB_EXPORT(int32_t, state)(const char *file, int32_t line, web_graph graph, const char *name, const double *dims, int32_t rank,
    int32_t dtype, double value);
WEB_EXPORT(int32_t, full)(const char *file, int32_t line, web_graph graph, const double *dims, int32_t rank, double value, int32_t dtype);
WEB_EXPORT(int32_t, arange)(const char *file, int32_t line, web_graph graph, double n, int32_t dtype);
WEB_EXPORT(int32_t, constant)(const char *file, int32_t line, web_graph graph, const double *dims, int32_t rank, int32_t dtype,
    const void *data, int32_t count); /* bool: bytes */
/* Random numbers: of [lo, hi) where kind is WEB_RAND_INT; p, a tensor or a number, is looked at where it is WEB_BERNOULLI. */
WEB_EXPORT(int32_t, draw)(const char *file, int32_t line, web_graph graph, int32_t kind, const double *dims, int32_t rank, double lo,
    double hi, const web_operand *p);
WEB_EXPORT(int32_t, capture)(const char *file, int32_t line, const char *name, web_graph graph, int32_t id);

/* operands[0]: loss (vjp: y, then cotangent), then the wrt. out[i]: ids. Status. */
WEB_EXPORT(web_status, grad)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out);
WEB_EXPORT(web_status, vjp)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out);
/* numbers: the axis; 1 for equal parts, and how many; or 0, and the size of each. out[i]: ids. Status. */
WEB_EXPORT(web_status, split)(const char *file, int32_t line, const web_operand *operand, const double *numbers, int32_t count,
    int32_t *out);
WEB_EXPORT(web_status, writeback)(const char *file, int32_t line, const web_operand operands[2]); /* destination, source */
WEB_EXPORT(web_status, append_optimizer)(const char *file, int32_t line, const web_operand *loss, const double *optimizer);

/* dims (room for 8 doubles) get the shape; returns the rank. */
WEB_EXPORT(int32_t, shape)(web_graph graph, int32_t id, double *dims);
WEB_EXPORT(int32_t, dtype)(web_graph graph, int32_t id);

WEB_EXPORT(double, lr_value)(const double *lr, double t); /* NaN: the schedule is refused, see error_* */

/* ---------------------------------------------------------------- models */

/* training: 0 forward. The device is CPU or WEBGPU; the optimizer is looked at when training. bytes: what graph_write gave; read
 * during the call, nothing in them is trusted. Returned: model_destroy. 0: see error_*. */
WEB_EXPORT(tg_model *, model_create)(const void *bytes, uint32_t size, web_flag training, const double *options);
WEB_EXPORT(tg_model *, model_sibling)(tg_model *parent, const void *bytes, uint32_t size, web_flag averaged); /* see tg_compile_average */
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
/* The launches of a step or run on a GPU (tg_kernel_time), in order, as JSON: [{"kernel","loops","kernels","workgroups","flops","bytes"}]. Who
 * runs the program measures their times. 0: see error_*. */
WEB_EXPORT(const char *, model_launches)(tg_model *model);

/* One named array: 24 bytes, as tg_feed lies in memory: name u32 @0, dtype i32 @4, data u32 @8, count i64 @16. */
/* Everything is checked before anything is written. */
WEB_EXPORT(web_status, model_upload)(tg_model *model, const tg_feed *params, int32_t n, web_flag partial);
/* CPU models: elements [first, first + count) of state `slot`, bool as bytes. (WebGPU: JavaScript reads its own buffers.) */
WEB_EXPORT(web_status, model_read)(tg_model *model, int32_t slot, int32_t first, void *data, int32_t count);
/* TG_OK: gradients can be downloaded: a training model that has made a step since the last reset. Where "gradients" is -1 they are
 * all 0. */
WEB_EXPORT(web_status, model_check_grads)(tg_model *model);
/* Resets, set_lr: as the public API. On WebGPU JavaScript takes a snapshot (below) right before model_reset_optimizer. */
WEB_EXPORT(web_status, model_reset)(tg_model *model);
WEB_EXPORT(web_status, model_reset_optimizer)(tg_model *model);
WEB_EXPORT(web_status, model_set_lr)(tg_model *model, const double *lr);
WEB_EXPORT(double, model_steps)(tg_model *model);

/* Snapshot of a WebGPU model, what model_recover goes back to: JavaScript reads every state first, then puts each here, without anything
 * between, then ends it. Compiling, uploads and model_reset keep it in step by themselves. */
WEB_EXPORT(void, snapshot_put)(tg_model *model, int32_t slot, const void *data); /* all of it, bool as bytes */
WEB_EXPORT(void, snapshot_end)(tg_model *model);
/* After JavaScript has opened another device, which the import gpu_open will hand out: states and programs go onto it. TG_OK and nothing
 * done where gpu_lost says 0. Calls in progress must have been ended. */
WEB_EXPORT(web_status, model_recover)(tg_model *model);

/* ---------------------------------------------------------------- calls: a step or a run, in phases, so that a device may work between
 * them
 *
 *   status = call_begin(call, kind, feeds, n)              all checks; the inputs are bound
 *   while status == 0 and (e = call_program(call)) != 0:   execute e (WebGPU), write its outputs, then
 *       status = call_next(call, 0)
 *   call_result, call_captures; call_end
 * On the CPU: call_run(call) in place of the loop. A model has one call in progress at most (but see call_is_last); feeds stay where they
 * are until its end. */

/* One object serves all calls of a model, one after another; it keeps room for the result. 0 without memory. */
WEB_EXPORT(web_call *, call_create)(tg_model *model);
WEB_EXPORT(void, call_destroy)(web_call *call); /* before the model */
WEB_EXPORT(web_status, call_begin)(web_call *call, int32_t kind, const tg_feed *feeds, int32_t n);
/* The executable (number given by gpu_load) to execute now; 0: the call is done. */
WEB_EXPORT(int32_t, call_program)(const web_call *call);
/* 1: that program is the call's last. A step then depends on no other call: once its inputs are read (call_inputs, call_outputs too: they
 * are the program's, not the call's), another step of the model may begin with another web_call, before this one's outputs are there. */
WEB_EXPORT(web_flag, call_is_last)(const web_call *call);
/* Addresses of the program's inputs, and of where its outputs go (0: not wanted): arrays of u32, as many as the program says. */
WEB_EXPORT(const void *const *, call_inputs)(const web_call *call);
WEB_EXPORT(void *const *, call_outputs)(const web_call *call);
/* The program has been executed and its outputs are written; or it failed with `status`, recorded by error_set. Status of the call so far:
 * on one that is not 0 the call is over. TG_ERROR_NOT_FINITE: the step was made, result and captures are there. */
WEB_EXPORT(web_status, call_next)(web_call *call, web_status status);
WEB_EXPORT(web_status, call_run)(web_call *call); /* CPU: execute and next until done */
/* The loss (f32) of a step, the output of a run: elements as model_describe says. Until the next call_begin. */
WEB_EXPORT(const void *, call_result)(const web_call *call);
/* [{"name","shape","dtype","count","data":address}]; "[]" where none were asked for. */
WEB_EXPORT(const char *, call_captures)(const web_call *call);
WEB_EXPORT(void, call_end)(web_call *call); /* gives captures back; also after an error,
    and in place of the loop to give up */

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

WEB_EXPORT(web_train *, train_begin)(tg_model *model, tg_dataset *dataset, const double *options, const tg_feed *feeds, int32_t n);
WEB_EXPORT(int32_t, train_most)(const web_train *train);
WEB_EXPORT(web_flag, train_exact)(const web_train *train);
WEB_EXPORT(const uint32_t *, train_control)(web_train *train); /* TG_DRAW_WORDS words for the drawing kernel */
WEB_EXPORT(int32_t, train_program)(const web_train *train); /* the step's executable */
WEB_EXPORT(const void *const *, train_inputs)(const web_train *train); /* as call_inputs; of those of the data set nothing is to be read */
WEB_EXPORT(float *, train_losses)(const web_train *train); /* room for TG_MOST_STEPS */
WEB_EXPORT(web_status, train_next)(web_train *train, web_status status, int32_t count);
WEB_EXPORT(web_status, train_run)(web_train *train, int32_t count); /* CPU; fewer where training ends: *train_result says */
/* On a GPU without a feeder: begins one step in `call`, on a batch made by the core. Go on as after call_begin; but when its last program
 * has been executed, its loss is taken and call_end called in place of call_next, and train_next then. */
WEB_EXPORT(web_status, train_step)(web_train *train, web_call *call);
WEB_EXPORT(const double *, train_result)(web_train *train); /* steps, end (tg_train_end), loss, best */
WEB_EXPORT(void, train_end)(web_train *train);

/* Structs of their numbers. */
tg_lr web_lr_of(const double *numbers);
tg_optimizer web_optimizer_of(const double *numbers);
tg_param_group web_param_group_of(const double *numbers);
tg_padding web_padding_of(const double *numbers);
tg_compile_options web_compile_options_of(const double *numbers);
tg_train_options web_train_options_of(const double *numbers);

/* The operation `op` with these arguments. */
tg_tensor web_call_op(web_arguments *given, int32_t op);

#endif
