/* executor: what a device must offer a model session. One device per model family (a model and its siblings); it owns the
 * state buffers. Knows programs, not graphs. */
#ifndef TG_EXECUTOR_H
#define TG_EXECUTOR_H
#include "plan/program.h"

typedef struct tg_device tg_device;
typedef struct tg_executable tg_executable;

typedef struct tg_executor {
    const char *kind; /* "cpu", "webgpu" */
    tg_status (*open)(tg_context *ctx, int threads, tg_device **out);
    void (*close)(tg_device *device);                 /* NULL is fine; executables must be unloaded first */
    const char *(*describe)(const tg_device *device); /* "cpu (avx512, 2 threads)" */
    tg_limits (*limits)(const tg_device *device);
    /* Makes state `slot` (bytes, zeroed). Slots are the family's, numbered by the session. */
    tg_status (*make_state)(tg_device *device, int32_t slot, int64_t bytes);
    tg_status (*write_state)(tg_device *device, int32_t slot, int64_t offset, const void *data, int64_t bytes);
    tg_status (*read_state)(tg_device *device, int32_t slot, int64_t offset, void *data, int64_t bytes);
    /* program is borrowed until unload. state_slots[program state] = the family's slot. Allocates everything a run needs. */
    tg_status (*load)(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out);
    void (*unload)(tg_device *device, tg_executable *executable);
    /* inputs[i]: data of program.inputs[i], borrowed for the call. outputs[i]: where to copy program.outputs[i], NULL: not
     * wanted. No allocation. */
    tg_status (*run)(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs);
} tg_executor;

extern const tg_executor tg_cpu_executor;
#endif
