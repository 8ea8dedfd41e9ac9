/* fake_webgpu: a WebGPU library without a GPU, for tests of the executor: a function table (and a look-up by name) over objects in
 * host memory. Every object is counted, every use is checked as a validator would, buffers hold their bytes, answers come when
 * the program waits for them. Any call can be made to fail in each way that its function can; the device can be lost at any
 * call. A dispatch mixes the bytes it binds in a fixed way: results depend on every byte, binding and order. Only the proof that a
 * new device is asked for is computed as it should be.
 * One library at a time: fake_webgpu_begin makes it new. Must not know the executor beyond its table. */
#ifndef TENSORGRAD_TESTS_FAKE_WEBGPU_H
#define TENSORGRAD_TESTS_FAKE_WEBGPU_H

#include "run/webgpu/api.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum fake_call { /* FAKE_queue_submit, ...: named as the fields of the table */
#define FAKE_NAME(need, result, field, symbol, parameters) FAKE_##field,
                         TG_WGPU_FUNCTIONS(FAKE_NAME)
#undef FAKE_NAME
                             FAKE_CALL_COUNT
} fake_call;

/* How a call fails. Creations: NULL; or a broken object and a validation, out-of-memory, internal error. Commands: the encoder is
 * broken, its commands too. Submissions and writes: not done, and an error. Questions with an answer to come: its four bad
 * statuses (a popped scope: or an error nobody made). Questions answered at once: refused. */
enum { FAKE_WAYS = 4 };

/* How well an adapter computes: it answers the proof of a new device; or it is off by a bit; or no dispatch does anything. */
typedef enum fake_skill { FAKE_RIGHT, FAKE_WRONG, FAKE_NOTHING } fake_skill;

typedef struct fake_adapter {
    const char *name, *vendor;
    uint32_t type, backend;
    uint32_t storage_buffers, invocations, groups, workgroup_bytes;
    uint64_t buffer_bytes, binding_bytes;
    fake_skill skill;
} fake_adapter;
fake_adapter fake_adapter_make(const char *name, uint32_t type); /* generous limits, Vulkan */

typedef enum fake_flavour { FAKE_DAWN, FAKE_NATIVE, FAKE_MINIMAL } fake_flavour;

/* What adapters offer of halves, all with subgroups of 32. Matrices are seen by who asks for unsafe things; REFUSED: listed, granted,
 * and no pipeline is made of them. */
typedef enum fake_halves { FAKE_NO_F16, FAKE_F16, FAKE_MATRICES, FAKE_MATRICES_REFUSED } fake_halves;

typedef struct fake_options {
    fake_halves halves;   /* Dawn alone lists them */
    fake_flavour flavour; /* NATIVE: as wgpu-native of the older layout: devices are polled, adapters are enumerated, some functions
                             are there and may not be called. MINIMAL: nothing optional */
    bool at_once;         /* answers come inside the call that asks */
    int delay;            /* answers come that many waits late */
    int empty_asks;       /* that many requests for an adapter are answered with none at first */
    const fake_adapter *adapters;
    int adapter_count; /* adapters NULL: one discrete adapter, "Fake GPU" */
} fake_options;

typedef struct fake_counts {
    int64_t calls;               /* all calls */
    int64_t failable;            /* of them those that can fail */
    int64_t of[FAKE_CALL_COUNT]; /* by function */
    int64_t live;                /* objects alive */
    int64_t live_buffers, live_buffer_bytes;
    int64_t texts;                   /* answers not yet handed back (adapter info, features) */
    int64_t pipelines;               /* ever made */
    int64_t pipelines_before_a_wait; /* asked for between two waits, at most */
    int64_t mistakes;                /* uses that a validator would refuse, and worse */
    int64_t scope_depth;             /* error scopes open */
    int64_t dispatches;              /* carried out */
    bool failed;                     /* the call that was to fail came */
    fake_call failed_call;           /* which it was */
    bool failed_lost;                /* it came after a device was lost: of such errors nobody hears */
    bool lost;
} fake_counts;

/* Frees all that was before. options may be NULL. */
const tg_webgpu_api *fake_webgpu_begin(const fake_options *options);
void fake_webgpu_end(void);
const tg_webgpu_api *fake_webgpu_table(void); /* of the library that was begun last */
const fake_counts *fake_webgpu_counts(void);
const char *fake_webgpu_first_mistake(void); /* "" when there was none */
const char *fake_webgpu_call_name(fake_call call);
/* Whether one of the last 16 writes to buffers was of these bytes, taken from there: not from a copy of them. */
bool fake_webgpu_wrote(const void *data, int64_t bytes);
/* From now on: the n-th call that can fail does, in this way; the device is lost at the n-th call of any kind. 0: never. */
void fake_webgpu_fail(int64_t n, int way);
void fake_webgpu_lose_at(int64_t n);
void fake_webgpu_lose(void); /* now; the program hears of it when it next asks */
/* Prints what is alive. */
void fake_webgpu_print_live(void);
/* "wgpuDeviceCreateBuffer" and so on: for tg_webgpu_device.procedure. */
void *fake_webgpu_procedure(const char *name);
#endif
