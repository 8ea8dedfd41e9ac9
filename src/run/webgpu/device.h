/* device: the inside of the WebGPU executor, shared by its files. The structs of tg_device and
 * tg_executable have names of their own here, because each executor completes those two in its own
 * way.
 *
 * A process has few GPUs and may have many models. A webgpu_host is a library with an instance, a
 * webgpu_gpu a device of it: those are shared, counted and kept (share.c). A webgpu_device is what
 * one model family has on a GPU: its states, its runs, its errors. A call of the library, and a
 * read of what its answers write, needs the host's lock: tg_webgpu_enter and tg_webgpu_leave are
 * around each call of the executor. A wait lets others in, so no error scope is open during one. */
#ifndef TG_WEBGPU_DEVICE_H
#define TG_WEBGPU_DEVICE_H
#include "ir/dtype.h"
#include "run/replay.h"
#include "run/tuning_table.h"
#include "run/webgpu/webgpu.h"

#include <stdatomic.h>

#if defined(__wasm__) || defined(TG_NO_THREADS)
typedef struct webgpu_lock {
    uint32_t unused;
} webgpu_lock;
#else
#  include <pthread.h>
/* First come, first served: a call that waits for the GPU polls it again and again, and must not
 * keep others out. */
typedef struct webgpu_lock {
    _Atomic uint32_t next, serving;
    pthread_mutex_t mutex;
    pthread_cond_t moved;
} webgpu_lock;
#endif

#define TG_WEBGPU_MAX_ADAPTERS 32
#define TG_WEBGPU_MAX_BINDINGS 64         /* storage buffers of one stage that we use */
#define TG_WEBGPU_STAGING_BYTES (1 << 16) /* of host memory: converted or filled at a time */
#define TG_WEBGPU_ALIGN 256
#define TG_WEBGPU_TEXT 3072 /* of one message of the library, cut to this */
#define TG_WEBGPU_LINE 768  /* of one line for the log */
#define TG_WEBGPU_WISH_ADAPTER 256
#define TG_WEBGPU_WISH_TOGGLES 512
enum { WEBGPU_FEATURES = 4, WEBGPU_F16_TOGGLES = 2 };

/* Memory that answers are written to begins with this. It belongs to the process, not to a context:
 * an answer may come after the model that asked is gone. */
typedef struct webgpu_answers {
    struct webgpu_answers *next; /* among the host's orphans */
    int64_t pending;             /* answers still to come */
} webgpu_answers;
/* One call of the library that is answered later. It outlives the wait for it, which may be given
 * up. */
typedef struct webgpu_request {
    webgpu_answers *answers; /* the memory that it lies in */
    bool done;
    uint32_t status, error; /* error: of a scope */
    void *object;
    char *text; /* the library's text, cut at `room`; NULL: not wanted */
    size_t room;
    uint64_t line; /* of a shader's first error; 0: not known */
} webgpu_request;

typedef struct webgpu_adapter {
    tg_wgpu_adapter handle;
    tg_adapter_info info;
    tg_wgpu_limits limits;
    uint32_t device_id, features[WEBGPU_FEATURES]; /* numbers of the features we ask for */
    int feature_count;
    bool times; /* timestamps of passes can be used, if the feature is asked for */
    char driver[128];
} webgpu_adapter;

typedef struct webgpu_buffer {
    tg_wgpu_buffer handle;
    int64_t bytes;
} webgpu_buffer;

typedef struct webgpu_state {
    webgpu_buffer buffer;
    tg_dtype dtype;
    int64_t count;
} webgpu_state;

/* A fault that a callback reported and that belongs to no call: the first is kept. Callbacks may
 * come on a thread of the library. */
typedef struct webgpu_fault {
    atomic_int taken, ready;
    uint32_t kind;
    char text[512];
} webgpu_fault;

enum { WEBGPU_SCOPES = 3 };
/* Error scopes that were popped, until they are answered. */
typedef struct webgpu_scopes {
    webgpu_request request[WEBGPU_SCOPES];
    char text[WEBGPU_SCOPES][TG_WEBGPU_TEXT];
} webgpu_scopes;
/* A run that was submitted and not yet waited for. */
typedef struct webgpu_flight {
    struct webgpu_executable *executable;
    webgpu_buffer readback; /* kept from run to run */
    webgpu_request map;
    char text[TG_WEBGPU_TEXT]; /* the map's */
    webgpu_scopes scopes;
    float *result;
    int64_t start; /* ns */
    int32_t dispatches;
} webgpu_flight;
/* A library with an instance of its own, or with an application's. */
typedef struct webgpu_host {
    struct webgpu_host *next;
    tg_webgpu_api api;
    tg_wgpu_instance instance;
    bool foreign, dawn, wgpu_native, old_layout_entry;
    bool retired; /* a device of it was lost: it makes no more devices */
    int users;    /* models on it, and calls that look at its adapters */
    struct webgpu_gpu *gpus;
    /* freed after their answers have come, or with the instance */
    webgpu_answers *orphans;
    /* the model that has the lock and calls; NULL: events are being delivered, or nobody calls */
    _Atomic(struct webgpu_device *) who;
    webgpu_lock lock; /* of the library, and of all that its answers write */
} webgpu_host;

/* What decides whether two models can have the same GPU. */
typedef struct webgpu_wish {
    char adapter[TG_WEBGPU_WISH_ADAPTER], toggles[TG_WEBGPU_WISH_TOGGLES];
    bool f16, guaranteed;
} webgpu_wish;

/* A compute pipeline, found by its source. Of those that nobody uses, the latest stay for the next
 * model. */
typedef struct webgpu_cached {
    struct webgpu_cached *next;
    uint64_t hash;
    size_t length;
    int32_t binding_count, users;
    tg_wgpu_compute_pipeline handle;
    char source[];
} webgpu_cached;

/* A device of the library, and what is known of it. */
typedef struct webgpu_gpu {
    webgpu_answers answers; /* the library's message that the device is gone is an answer */
    struct webgpu_gpu *next;
    webgpu_host *host;
    webgpu_wish wish;
    bool alone;        /* its model shares it with nobody */
    bool software;     /* the adapter is the CPU */
    bool executes;     /* false: an adapter that does nothing, which was asked for by name */
    bool times;        /* timestamps of passes can be used */
    int subgroup_size; /* of each subgroup; 0: not known, or not always the same */
    tg_wgpu_device device;
    tg_wgpu_queue queue;
    tg_wgpu_limits raw;
    tg_device_model model; /* without schedules */
    char name[128], description[192], tuning_name[TG_TUNING_ADAPTER];
    /* uncaptured: it is not known of which model */
    webgpu_fault lost, uncaptured;
    /* somebody gave up waiting: nothing more is asked of it */
    atomic_bool silent;
    atomic_int users; /* models */
    /* the value of a counter that grows whenever a GPU becomes idle */
    int64_t idle_since;
    tg_wgpu_bind_group_layout layouts[TG_WEBGPU_MAX_BINDINGS + 1]; /* by number of bindings */
    tg_wgpu_pipeline_layout pipeline_layouts[TG_WEBGPU_MAX_BINDINGS + 1];
    webgpu_cached *cached; /* the latest first */
    tg_webgpu_shared_counters count;
} webgpu_gpu;

typedef struct webgpu_device {
    webgpu_answers answers;
    tg_context *ctx;
    webgpu_host *host;
    webgpu_gpu *gpu;
    bool joined;              /* the GPU counts this model */
    bool wants_f16;           /* halves may be used */
    webgpu_adapter *adapters; /* TG_WEBGPU_MAX_ADAPTERS; while opening */
    int adapter_count;
    tg_device_model model; /* the GPU's, with schedules */
    tg_tuning tuning;      /* the tuning table's entries for this adapter */
    webgpu_fault uncaptured;
    webgpu_request opening, map;
    webgpu_scopes scopes;
    char text[TG_WEBGPU_TEXT];
    webgpu_flight flights[TG_FLIGHTS];
    int32_t first_flight, flight_count; /* under way, in order, in a ring */
    int64_t landed;                     /* when the last of them had run, ns */
    TG_LIST(webgpu_state) states;
    webgpu_buffer fence_source, fence, readback; /* readback: of read_state */
    char *staging;                               /* TG_WEBGPU_STAGING_BYTES */
    /* ns: after which a wait is given up; above which a submission is too long */
    int64_t patience, slow;
    tg_webgpu_counters count;
} webgpu_device;

static inline webgpu_device *webgpu_of(tg_device *device) { return (webgpu_device *)(void *)device; }
static inline const webgpu_device *webgpu_of_const(const tg_device *device) { return (const webgpu_device *)(const void *)device; }
/* The limits for a replay that is made now. */
static inline tg_replay_limits webgpu_replay_limits(const webgpu_device *d) {
    const tg_wgpu_limits *raw = &d->gpu->raw;
    return (tg_replay_limits){.model = &d->model,
                              .max_binding_bytes =
                                  raw->max_storage_binding_bytes < INT64_MAX ? (int64_t)raw->max_storage_binding_bytes : INT64_MAX,
                              .max_buffer_bytes = raw->max_buffer_bytes < INT64_MAX ? (int64_t)raw->max_buffer_bytes : INT64_MAX};
}
static inline tg_wgpu_string webgpu_string(const char *text) { return (tg_wgpu_string){text, SIZE_MAX}; }
static inline int64_t webgpu_align(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

/* ---- share.c: hosts and GPUs of this process */
void tg_webgpu_enter(webgpu_device *d);
void tg_webgpu_leave(webgpu_device *d);
/* Lets others have the lock for about `nap` ns. */
void tg_webgpu_give_way(webgpu_device *d, int64_t nap);
/* around the calls below: openings and closings go one at a time */
void tg_webgpu_share_begin(void);
void tg_webgpu_share_end(void);
/* A host for the library, with an application's instance or its own: the host of a GPU that was
 * found, or another one, or a new one. Each is dropped again. */
tg_status tg_webgpu_take_host(tg_context *ctx, const tg_webgpu_api *api, tg_wgpu_instance foreign, const webgpu_gpu *found,
                              webgpu_host **out);
void tg_webgpu_drop_host(webgpu_host *host);
/* A GPU that is open, works and is as wished; NULL: there is none. For an application's device: the
 * GPU of that device. */
webgpu_gpu *tg_webgpu_find_gpu(const tg_webgpu_api *api, const webgpu_wish *wish, bool real_gpu, tg_wgpu_device foreign);
/* no device yet, and no users */
webgpu_gpu *tg_webgpu_make_gpu(tg_context *ctx, webgpu_host *host);
/* from now on it can be found */
void tg_webgpu_publish_gpu(webgpu_gpu *gpu);
void tg_webgpu_join_gpu(webgpu_gpu *gpu);
/* One model less. Closes what is of no more use. */
void tg_webgpu_leave_gpu(webgpu_gpu *gpu);
void tg_webgpu_discard_gpu(webgpu_gpu *gpu); /* that was never published */
/* Frees the memory of answers, now or after they have come. */
void tg_webgpu_bury(webgpu_host *host, webgpu_answers *answers);

/* ---- events.c: the library's answers and faults */
/* Prepares a request that is about to be made, in memory of answers; text: NULL, or `room` bytes of
 * the same memory. */
void tg_webgpu_ask(webgpu_request *request, webgpu_answers *answers, char *text, size_t room);
/* cut; always ends with NUL */
void tg_webgpu_copy_text(char *to, size_t room, tg_wgpu_string text);
/* for callbacks */
void tg_webgpu_answer(webgpu_request *request, uint32_t status, void *object, tg_wgpu_string text);
/* Waits until the request is done. TG_ERROR_DEVICE after the device's patience, naming `what`;
 * TG_ERROR_DEVICE_LOST. */
tg_status tg_webgpu_wait(webgpu_device *d, const webgpu_request *request, const char *what);
void tg_webgpu_pump(webgpu_device *d); /* delivers what is ready */
/* TG_OK, or the fault that makes the device useless. */
tg_status tg_webgpu_alive(webgpu_device *d);
bool tg_webgpu_is_lost(const webgpu_device *d);
void tg_webgpu_on_lost(const tg_wgpu_device *device, uint32_t reason, tg_wgpu_string text, void *user, void *more);
void tg_webgpu_on_error(const tg_wgpu_device *device, uint32_t error, tg_wgpu_string text, void *user, void *more);
void tg_webgpu_scopes_push(webgpu_device *d, int count); /* validation; memory; internal */
/* Pops them and reports the first error in any of them, naming `what`. */
tg_status tg_webgpu_scopes_pop(webgpu_device *d, int count, const char *what);
/* The same in two halves, so that other answers can be waited for meanwhile. */
void tg_webgpu_scopes_end(webgpu_device *d, int count, webgpu_scopes *scopes);
tg_status tg_webgpu_scopes_report(webgpu_device *d, int count, webgpu_scopes *scopes, const char *what);
/* Maps [offset, offset + bytes) of a buffer with usage MAP_READ and waits. *data is valid until the
 * buffer is unmapped. */
tg_status tg_webgpu_map(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, int64_t bytes, const void **data);
/* The same in two halves. text: TG_WEBGPU_TEXT bytes that live as long as the request. */
void tg_webgpu_map_begin(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, int64_t bytes, webgpu_request *request, char *text);
tg_status tg_webgpu_map_end(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, int64_t bytes, webgpu_request *request,
                            const void **data);
/* Waits until all that was submitted so far has run. */
tg_status tg_webgpu_finish(webgpu_device *d);

/* ---- adapters.c */
/* Dawn's, of adapters and devices, if f16 is wanted */
extern const char *const tg_webgpu_f16_toggles[WEBGPU_F16_TOGGLES];
tg_status tg_webgpu_find_adapters(webgpu_device *d);
void tg_webgpu_drop_adapters(webgpu_device *d);
/* The next adapter from number `from` on that may be opened; -1: none. */
int tg_webgpu_next_adapter(const webgpu_device *d, const tg_open_options *options, int from);
/* says why there is none */
tg_status tg_webgpu_no_adapter(webgpu_device *d, const tg_open_options *options);
/* false: it takes commands and does nothing, which is for tests of libraries */
bool tg_webgpu_executes(const tg_adapter_info *info);
void tg_webgpu_read_adapter(const webgpu_device *d, tg_wgpu_adapter handle, webgpu_adapter *out);

/* ---- prove.c */
/* TG_ERROR_DEVICE names the adapter that computes nothing, or wrongly */
tg_status tg_webgpu_prove(webgpu_device *d);

/* ---- open.c */
tg_status tg_webgpu_open_found(tg_context *ctx, const tg_open_options *options, tg_device **out);
void tg_webgpu_close(tg_device *device);

/* ---- buffers.c: buffers and states */
/* `what` names it in messages. TG_ERROR_LIMIT if it is larger than maxBufferSize. To be called
 * inside scopes. */
tg_status tg_webgpu_make_buffer(webgpu_device *d, int64_t bytes, uint64_t usage, const char *what, webgpu_buffer *out);
void tg_webgpu_drop_buffer(webgpu_device *d, webgpu_buffer *buffer);
/* Writes count elements of dtype, as they lie in host memory, at `offset` bytes of a buffer. */
void tg_webgpu_write(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, tg_dtype dtype, const void *data, int64_t count);
/* The same for much data, in bounded pieces, so that writes under way do not pile up; with scopes,
 * whose errors name `what`. */
tg_status tg_webgpu_write_long(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, tg_dtype dtype, const void *data, int64_t count,
                               const char *what);
tg_status tg_webgpu_make_state(tg_device *device, int32_t slot, const char *name, tg_dtype dtype, int64_t count);
tg_status tg_webgpu_write_state(tg_device *device, int32_t slot, int64_t first, const void *data, int64_t count);
tg_status tg_webgpu_read_state(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count);
/* NULL recorded. */
tg_wgpu_command_encoder tg_webgpu_encoder(webgpu_device *d);
/* Begins a compute pass of *encoder, which is made if it is NULL. timestamps: NULL is none. After an error *encoder is
 * released and NULL. */
tg_status tg_webgpu_begin_pass(webgpu_device *d, tg_wgpu_command_encoder *encoder, const tg_wgpu_pass_timestamps *timestamps,
                               tg_wgpu_compute_pass *pass);
void tg_webgpu_end_pass(webgpu_device *d, tg_wgpu_compute_pass pass);
/* Submits an encoder's commands; the encoder is released. */
tg_status tg_webgpu_submit(webgpu_device *d, tg_wgpu_command_encoder encoder);

/* ---- executables */
typedef struct webgpu_pipeline { /* one for each different source */
    const tg_replay_source *source;
    tg_wgpu_shader_module module;
    tg_wgpu_compute_pipeline handle;
    webgpu_cached *cached; /* the owner of the handle */
} webgpu_pipeline;
typedef struct webgpu_dispatch { /* one dispatch */
    int32_t pipeline;
    tg_wgpu_bind_group group;
    uint32_t groups[3];
} webgpu_dispatch;
/* No bind group yet. */
static inline webgpu_dispatch webgpu_dispatch_of(int32_t pipeline, const int32_t groups[3]) {
    return (webgpu_dispatch){pipeline, NULL, {(uint32_t)groups[0], (uint32_t)groups[1], (uint32_t)groups[2]}};
}
typedef struct webgpu_bundle { /* dispatches, in order, and the pipelines that they use */
    webgpu_pipeline *pipelines;
    webgpu_dispatch *dispatches;
    int32_t pipeline_count, dispatch_count;
} webgpu_bundle;
typedef struct webgpu_range { /* a slice of a buffer; handle NULL: of none */
    tg_wgpu_buffer handle;
    int64_t offset, bytes;
} webgpu_range;

typedef struct webgpu_executable {
    webgpu_device *device;
    tg_arena arena;
    tg_replay replay;
    webgpu_buffer blocks[TG_REPLAY_OWN], readback;
    webgpu_bundle bundle;
    tg_pace pace;
    bool poison;
    struct webgpu_timer *timer; /* NULL: launches are not timed */
    bool timing;                /* the run in progress is timed */
} webgpu_executable;
static inline webgpu_executable *webgpu_executable_of(tg_executable *e) { return (webgpu_executable *)(void *)e; }

/* pipelines.c: layouts, modules and pipelines of a bundle whose sources are known */
tg_status tg_webgpu_make_pipelines(webgpu_device *d, webgpu_bundle *bundle);
void tg_webgpu_release_pipelines(webgpu_device *d, webgpu_bundle *bundle);
void tg_webgpu_drop_shared(webgpu_gpu *gpu); /* all layouts and pipelines */
/* load.c */
webgpu_range tg_webgpu_range(const webgpu_executable *e, tg_replay_slice slice);
/* label: the name of its kernel, for messages */
tg_status tg_webgpu_bind(webgpu_device *d, const webgpu_range *ranges, int32_t count, const char *label, webgpu_dispatch *dispatch);
/* its bind groups and pipelines */
void tg_webgpu_drop_bundle(webgpu_device *d, webgpu_bundle *bundle);
tg_status tg_webgpu_load(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out);
void tg_webgpu_unload(tg_device *device, tg_executable *executable);
int tg_webgpu_dispatches(const tg_executable *executable);
int tg_webgpu_tuned(const tg_executable *executable);
/* run.c */
tg_status tg_webgpu_put_now(webgpu_device *d, tg_executable *executable, int32_t buffer, const void *data);
tg_status tg_webgpu_time_now(webgpu_device *d, tg_executable *executable, int times, double *seconds);
tg_status tg_webgpu_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs);
tg_status tg_webgpu_start(tg_device *device, tg_executable *executable, const void *const *inputs, float *result);
tg_status tg_webgpu_collect(tg_device *device, bool wait, bool *done);
void tg_webgpu_drop_flights(webgpu_device *d);
void tg_webgpu_reset_counters(tg_webgpu_counters *count);
/* Inputs that are NULL keep their values. */
void tg_webgpu_write_inputs(webgpu_executable *e, const void *const *inputs);
/* Encodes dispatches [begin, end) in a pass, and counts them. */
void tg_webgpu_encode(webgpu_device *d, const webgpu_bundle *bundle, tg_wgpu_compute_pass pass, int32_t begin, int32_t end);
/* Fills the workspace and the scratch with NaN, if e->poison. */
void tg_webgpu_poison(webgpu_executable *e);

/* timer.c: what each launch of a run takes */
tg_status tg_webgpu_time_launches(webgpu_device *d, tg_executable *executable, tg_kernel_time *times, int count);
void tg_webgpu_drop_timer(webgpu_executable *e);
/* Where the pass of a launch writes its times; false: it is not timed. */
bool tg_webgpu_timer_pass(const webgpu_executable *e, int32_t launch, tg_wgpu_pass_timestamps *out);
/* Encodes, after the last pass of a run, that its times become readable. */
void tg_webgpu_timer_resolve(const webgpu_executable *e, tg_wgpu_command_encoder encoder);
/* Reads the times of a run that is done. */
tg_status tg_webgpu_timer_take(webgpu_executable *e);

/* feeder.c */
tg_status tg_webgpu_make_feeder(tg_device *device, tg_executable *executable, const tg_feeder_options *options, tg_feeder **out);
void tg_webgpu_drop_feeder(tg_device *device, tg_feeder *feeder);
tg_status tg_webgpu_run_feeder(tg_device *device, tg_feeder *feeder, const tg_feeder_run *run, float *losses, int64_t *count);

#endif
