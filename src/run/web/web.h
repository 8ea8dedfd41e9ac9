/* web: the WebGPU executor of a page or a worker: JavaScript owns the GPU, and answers later. So this executor is asynchronous (see
 * executor.h): it makes states, writes them and hands programs over; whoever drives a call (run/call.h) has them executed. */
#ifndef TG_WEB_H
#define TG_WEB_H
#include "run/executor.h"

/* The number gpu_load gave an executable of this executor. */
int32_t tg_web_executable_number(const tg_executable *executable);
int32_t tg_web_feeder_number(const tg_feeder *feeder); /* that gpu_feeder gave; 0: NULL */
/* "text" as JSON, quotes included. */
void tg_web_json_text(tg_text_buffer *json, const char *text);
/* [2, 3] */
void tg_web_json_shape(tg_text_buffer *json, tg_shape shape);

#if defined(__wasm__)
#  define TG_WEB_IMPORT(name) __attribute__((import_module("tg"), import_name(#  name)))

/* What JavaScript provides, module "tg". All answer at once: what takes time is started there, and awaited before a call executes. */

/* limits[0..8): maxStorageBufferBindingSize, storage buffers per stage (at most 64), invocations per workgroup, bytes of workgroup
 * memory, workgroups per dimension, maxBufferSize, 1 of a processor in disguise (else 0), 1 where shaders have f16. Returns the number of a
 * device opened beforehand, 0: there is none. */
TG_WEB_IMPORT(gpu_open) int32_t tg_web_gpu_open(double limits[8]);
TG_WEB_IMPORT(gpu_close) void tg_web_gpu_close(int32_t device);
TG_WEB_IMPORT(gpu_lost) int32_t tg_web_gpu_lost(int32_t device); /* 1: lost */
/* State `slot`: a buffer of `count` zeros. Device buffers hold 4 bytes an element, bool as u32 0 or 1; data in the module's memory has
 * bool as one byte: JavaScript widens and narrows. */
TG_WEB_IMPORT(gpu_make_state) void tg_web_gpu_make_state(int32_t device, int32_t slot, int32_t dtype, int32_t count);
/* Elements [first, first + count) from data, which is read before the call returns. Ordered after the submissions before it. */
TG_WEB_IMPORT(gpu_write_state)
void tg_web_gpu_write_state(int32_t device, int32_t slot, int32_t first, const void *data, int32_t count, int32_t dtype);
/* program: JSON, as below; data it points at is copied before the call returns. Returns the number of the executable, whose pipelines
 * may still be compiling; 0: refused. Numbers are never used twice. */
TG_WEB_IMPORT(gpu_load) int32_t tg_web_gpu_load(int32_t device, const char *program);
TG_WEB_IMPORT(gpu_unload) void tg_web_gpu_unload(int32_t device, int32_t executable);

/* A data set of an executable and the kernel that draws batches from it: info is JSON, {"executable", "source", "groups", "words":of the
 * data, "loss":buffer of the program, "arrays":[{"input", "from":word, "count":elements, "dtype", "data"}]}; data it
 * points at is copied before the call returns. Bindings and their use: emit/emit.h. Inputs that the data set lists are in "arrays" whether
 * or not a stage reads them; "from" -1: it is not drawn. Returns its number; 0: refused. */
TG_WEB_IMPORT(gpu_feeder) int32_t tg_web_gpu_feeder(int32_t device, const char *info);
TG_WEB_IMPORT(gpu_drop_feeder) void tg_web_gpu_drop_feeder(int32_t device, int32_t feeder);

/* {"workspace":bytes, "scratch":bytes, "inputBlock":bytes, "constantBlock":bytes,
 *  "buffers":[[storage, dtype, count, offset, slot, data]],
 *  "inputs":[{"name","dtype","count"}], "outputs":[{"buffer","dtype","count"}],
 *  "sources":[WGSL], entry point main,
 *  "stages":[{"source", "groups":[x, y, z], "bindings":[binding, ...], "scratch":bytes, "label"}]}   in order of execution.
 *
 * A buffer lies from byte `offset`, a multiple of 256, of
 *   storage 0   the workspace; slot -1: no stage binds it
 *   storage 1   the block of inputs; slot is the program's input
 *   storage 2   state `slot` of the device
 *   storage 3   the block of constants, filled from `count` elements at address `data`, bool as bytes
 * dtype: tg_dtype. bindings[i] is @group(0) @binding(i), a storage buffer bound read_write: count * 4 bytes of buffers[binding]; -1: the
 * scratch buffer from 0, stage.scratch bytes; -2, -3, -4: all of the workspace, of the block of inputs, of constants; -5 - slot: all of
 * a state. An output's buffer is of storage 0 or 2. No stages and nothing to read back: nothing to submit. */
#endif
#endif
