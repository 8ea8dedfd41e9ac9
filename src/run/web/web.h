/* web: the WebGPU executor of a page or a worker: JavaScript owns the GPU, and answers later. So
 * this executor is asynchronous (see executor.h): it makes and writes states and hands programs
 * over; the driver of a call (run/call.h) has them executed. Must not know how JavaScript executes
 * them. */
#ifndef TG_WEB_H
#define TG_WEB_H
#include "run/executor.h"

/* The number that gpu_load gave an executable of this executor. */
int32_t tg_web_executable_number(const tg_executable *executable);
int32_t tg_web_feeder_number(const tg_feeder *feeder); /* that gpu_feeder gave; 0: NULL */
/* "text" as JSON, quotes included. */
void tg_web_json_text(tg_text_buffer *json, const char *text);
/* [2, 3] */
void tg_web_json_shape(tg_text_buffer *json, tg_shape shape);

#if defined(__wasm__)
#  define TG_WEB_IMPORT(name) __attribute__((import_module("tg"), import_name(#  name)))

/* What JavaScript provides, module "tg". All return at once: work that takes time is started there,
 * and awaited before a call executes. */

/* limits[0..8): maxStorageBufferBindingSize, storage buffers per stage (at most 64), invocations
 * per workgroup, bytes of workgroup memory, workgroups per dimension, maxBufferSize, 1 if the GPU
 * is a processor in disguise (else 0), 1 if shaders have f16. Returns the number of a device that
 * was opened before; 0: there is none. */
TG_WEB_IMPORT(gpu_open) int32_t tg_web_gpu_open(double limits[8]);
TG_WEB_IMPORT(gpu_close) void tg_web_gpu_close(int32_t device);
TG_WEB_IMPORT(gpu_lost) int32_t tg_web_gpu_lost(int32_t device); /* 1: lost */
/* State `slot`: a buffer of `count` zeros. Device buffers have 4 bytes for each element, bool as
 * u32 0 or 1; data in the module's memory has bool as one byte: JavaScript widens and narrows. */
TG_WEB_IMPORT(gpu_make_state) void tg_web_gpu_make_state(int32_t device, int32_t slot, int32_t dtype, int32_t count);
/* Writes elements [first, first + count) from data, which is read before the call returns. Comes
 * after all submissions before it. */
TG_WEB_IMPORT(gpu_write_state)
void tg_web_gpu_write_state(int32_t device, int32_t slot, int32_t first, const void *data, int32_t count, int32_t dtype);
/* program: JSON, as below; data that it points at is copied before the call returns. Returns the
 * number of the executable, whose pipelines may still be compiling; 0: refused. Numbers are never
 * used twice. */
TG_WEB_IMPORT(gpu_load) int32_t tg_web_gpu_load(int32_t device, const char *program);
TG_WEB_IMPORT(gpu_unload) void tg_web_gpu_unload(int32_t device, int32_t executable);

/* A data set of an executable and the kernel that draws batches from it. info: JSON, as below; data
 * that it points at is copied before the call returns. Returns its number; 0: refused. */
TG_WEB_IMPORT(gpu_feeder) int32_t tg_web_gpu_feeder(int32_t device, const char *info);
TG_WEB_IMPORT(gpu_drop_feeder) void tg_web_gpu_drop_feeder(int32_t device, int32_t feeder);

/* A replay (run/replay.h) as JSON. SLICE is [block, offset, bytes]; dtype: tg_dtype; "to": a byte,
 * -1: it is not wanted there; "data": an address in the module's memory, where a bool is a byte.
 *
 *   {"blocks":[bytes of the workspace, the scratch, the inputs, the constants],
 *    "readback":bytes,
 *    "inputs":[{"name", "dtype", "count", "to":in the inputs}],
 *    "outputs":[{"buffer", "dtype", "count", "to":in the readback, "slice":SLICE}],
 *    "constants":[{"dtype", "count", "to":in the constants, "data"}],
 *    "sources":[{"text":WGSL with entry point main, "bindings":how many, "label"}],
 *    "stages":[{"source", "groups":[x, y, z], "slices":[SLICE, ...], "launch":of the program,
 *               "bindings":[binding, ...], "label"}], in order of execution
 *    "buffers":[[storage, dtype, count, offset, slot]]}
 *
 * slices[i] is @group(0) @binding(i), a storage buffer bound read_write. If there are no stages and
 * nothing to read back, there is nothing to submit. For people: "buffers" of the program
 * (tg_buffer), and which of them a stage has as "bindings" (tg_wgsl_stage).
 *
 * A feeder (tg_replay_feeder):
 *
 *   {"executable", "blocks":[bytes of the data, of control, of the losses],
 *    "arrays":[{"input", "dtype", "count", "to":in the data, "data"}],
 *    "loss":SLICE, "turns":[[SLICE, ...], [SLICE, ...]], "source", "groups"}
 *
 * Inputs that the data set has are in "arrays" whether or not a stage reads them. */
#endif
#endif
