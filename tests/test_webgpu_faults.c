/* Tests of the WebGPU executor on a fake library: every call fails in turn and in each of its ways,
 * the device is lost at every call, every allocation fails, limits are small, adapters differ. Each
 * time there is an error value with a message, nothing leaks, no use is one that a validator would
 * refuse, and another try works. Also the cost of a step: submissions, copies, allocations. */
#define _XOPEN_SOURCE 700
#include "fake_webgpu.h"
#include "support.h"

#include "emit/emit.h"
#include "run/model.h"
#include "run/webgpu/webgpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Each test has a library of its own: what an earlier one keeps open would be of a library that is gone. */
static const tg_webgpu_api *begin_fake(const fake_options *options) {
    tg_close_idle_devices();
    return fake_webgpu_begin(options);
}

/* ---------------------------------------------------------------- a program and its data */

enum { SCENE_RUNS = 3, SCENE_STATES = 8, SCENE_OUTPUTS = 16 };

typedef struct scene {
    support_program program;
    void *inputs[8];
    int32_t slots[SCENE_STATES];
} scene;

/* What a scenario saw: everything a caller gets, in order. */
typedef struct seen {
    uint8_t bytes[1 << 16];
    size_t used;
} seen;

static int64_t item_bytes(tg_dtype dtype) { return dtype == TG_BOOL ? 1 : 4; }

/* x [4, 3] -> l1 [3, 5], relu, masked -> l2 [5, 1], squared distance; descent by hand, a counter, captures of three dtypes */
static tg_tensor build_training(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 3), TG_F32), mask = tg_input(g, "mask", TG_SHAPE(4, 5), TG_BOOL);
    tg_linear l1 = tg_nn_linear(g, "l1", 3, 5), l2 = tg_nn_linear(g, "l2", 5, 1);
    tg_tensor h = tg_capture("h", tg_where(mask, tg_relu(tg_nn_linear_fwd(l1, x)), 0.0));
    tg_tensor loss = tg_mean(tg_square(tg_nn_linear_fwd(l2, h)), TG_ALL);
    const tg_tensor params[4] = {l1.W, l1.b, l2.W, l2.b};
    tg_tensor gradients[4], n = tg_state(g, "n", TG_SHAPE(3), TG_I32, 5.0);
    tg_grad(loss, params, 4, gradients);
    for (int i = 0; i < 4; i++) tg_writeback(params[i], tg_sub(params[i], tg_mul(gradients[i], 0.1)));
    tg_writeback(n, tg_add(n, 1.0));
    tg_capture("positive", tg_greater(h, 0.0));
    tg_capture("best", tg_argmax(h, 1));
    tg_capture("x as it is", x);
    return loss;
}

static void scene_make_with(scene *s, tg_build_fn build, void *user, int32_t max_arguments) {
    const support_case c = {.build = build, .build_user = user};
    const support_options options = {.home = SUPPORT_WEBGPU, .max_arguments = max_arguments};
    support_outputs error;
    memset(s, 0, sizeof *s);
    memset(&error, 0, sizeof error);
    if (!support_program_make(&c, &options, &s->program, &error)) fail_msg("no program: %s", error.message);
    const tg_program *program = s->program.program;
    assert_true(program->state_count <= SCENE_STATES && program->output_count <= SCENE_OUTPUTS && program->input_count <= 8);
    for (int i = 0; i < program->input_count; i++) {
        const tg_input_info *input = &program->inputs[i];
        const int64_t count = tg_shape_count(input->shape);
        uint8_t *data = calloc((size_t)count, 4);
        for (int64_t k = 0; k < count * item_bytes(input->dtype); k++) data[k] = (uint8_t)(input->dtype == TG_BOOL ? k % 3 == 0 : k % 60);
        s->inputs[i] = data;
    }
    for (int i = 0; i < SCENE_STATES; i++) s->slots[i] = i;
}

static void scene_make(scene *s) { scene_make_with(s, build_training, NULL, 7); }

static void scene_free(scene *s) {
    for (int i = 0; i < 8; i++) free(s->inputs[i]);
    support_program_free(&s->program);
}

static void *seen_room(seen *r, int64_t bytes) {
    void *at = r->bytes + r->used;
    if (r->used + (size_t)bytes > sizeof r->bytes) fail_msg("the test's record is too small");
    memset(at, 0xEE, (size_t)bytes);
    r->used += (size_t)bytes;
    return at;
}

/* ---------------------------------------------------------------- the scenario, step by step */

typedef struct session {
    const scene *scene;
    tg_context *ctx;
    tg_device *device;
    tg_executable *executable;
    seen *seen;
    int retries;  /* of a failed call on the same device */
    double slow;  /* seconds; 0: as opened */
    bool foreign; /* of such a device a map that fails is all that we hear of a loss */
    bool was_lost;
    int64_t failures;
} session;

/* What a failed call must have said. The error is cleared. After a loss nothing but loss is heard. */
static void session_failed(session *s, const char *what, tg_status status) {
    const char *message = tg_error_message(s->ctx);
    if (status != tg_error(s->ctx) || message[0] == '\0')
        fail_msg("%s returned %d, recorded %d: '%s'", what, (int)status, (int)tg_error(s->ctx), message);
    if (s->was_lost && status != TG_ERROR_DEVICE_LOST) fail_msg("%s after a loss: %d, %s", what, (int)status, message);
    const fake_counts *c = fake_webgpu_counts();
    const bool taken_for_loss = s->foreign && c->failed && c->failed_call == FAKE_buffer_map_async;
    if (status == TG_ERROR_DEVICE_LOST && !c->lost && !taken_for_loss) fail_msg("%s: no device was lost: %s", what, message);
    if (status == TG_ERROR_INTERNAL) fail_msg("%s: %s", what, message);
    s->was_lost = s->was_lost || status == TG_ERROR_DEVICE_LOST;
    s->failures++;
    tg_clear_error(s->ctx);
}

/* One call, tried again when asked to. After a loss it must fail at once: no wait for the library. */
#define SESSION_TRY(s, what, call) \
  do { \
    for (int try_ = 0;; try_++) { \
      const bool lost_ = (s)->was_lost; \
      const tg_status status_ = (call); \
      if (status_ == TG_OK && lost_) fail_msg("%s succeeds on a lost device", (what)); \
      if (status_ == TG_OK) break; \
      session_failed((s), (what), status_); \
      if (try_ >= (s)->retries && !(s)->was_lost) return status_; \
      if ((s)->was_lost && lost_) break; \
    } \
  } while (0)

static tg_status session_states(session *s, bool write) {
    const tg_program *program = s->scene->program.program;
    for (int i = 0; i < program->state_count; i++) {
        const tg_state_info *info = &program->states[i];
        const int64_t count = tg_shape_count(info->shape), bytes = count * item_bytes(info->dtype);
        if (write) {
            uint8_t *data = calloc((size_t)bytes, 1);
            for (int64_t k = 0; k < bytes; k++) data[k] = (uint8_t)(info->dtype == TG_BOOL ? k % 2 : k % 60 + 1);
            const tg_status status = tg_webgpu_executor.write_state(s->device, i, 0, data, count);
            free(data);
            if (status != TG_OK) return status;
            continue;
        }
        const tg_status status = tg_webgpu_executor.read_state(s->device, i, 0, seen_room(s->seen, bytes), count);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static tg_status session_read(session *s) {
    const size_t used = s->seen->used;
    const tg_status status = session_states(s, false);
    if (status != TG_OK) s->seen->used = used;
    return status;
}

static tg_status session_run(session *s) {
    const tg_program *program = s->scene->program.program;
    void *outputs[SCENE_OUTPUTS];
    const size_t used = s->seen->used;
    for (int i = 0; i < program->output_count; i++)
        outputs[i] = seen_room(s->seen, tg_shape_count(program->outputs[i].shape) * item_bytes(program->outputs[i].dtype));
    const tg_status status = tg_webgpu_executor.run(s->device, s->executable, (const void *const *)s->scene->inputs, outputs);
    if (status != TG_OK) s->seen->used = used;
    return status;
}

/* Nothing is wanted back. */
static tg_status session_run_blind(session *s) {
    void *outputs[SCENE_OUTPUTS] = {NULL};
    return tg_webgpu_executor.run(s->device, s->executable, (const void *const *)s->scene->inputs, outputs);
}

static tg_status session_make_states(session *s) {
    const tg_program *program = s->scene->program.program;
    for (int i = 0; i < program->state_count; i++)
        SESSION_TRY(s, "make_state",
                    tg_webgpu_executor.make_state(s->device, i, program->states[i].name, program->states[i].dtype,
                                                  tg_shape_count(program->states[i].shape)));
    return TG_OK;
}

static tg_status session_work(session *s) {
    tg_status status = session_make_states(s);
    if (status != TG_OK) return status;
    SESSION_TRY(s, "write_state", session_states(s, true));
    if (s->was_lost && s->device == NULL) return TG_ERROR_DEVICE_LOST;
    SESSION_TRY(s, "load", tg_webgpu_executor.load(s->device, s->scene->program.program, s->scene->slots, &s->executable));
    for (int i = 0; i < SCENE_RUNS && s->executable != NULL; i++) SESSION_TRY(s, "run", session_run(s));
    if (s->executable != NULL) SESSION_TRY(s, "run without outputs", session_run_blind(s));
    SESSION_TRY(s, "read_state", session_read(s));
    return s->was_lost ? TG_ERROR_DEVICE_LOST : TG_OK;
}

/* Opens, works, closes. What is left when it returns is a fault of the executor. */
static tg_status session_all(session *s, const tg_webgpu_api *api, const tg_open_options *options) {
    tg_status status = TG_OK;
    for (int try = 0; try <= s->retries; try++) {
        status = tg_webgpu_open_with(s->ctx, api, options, &s->device);
        if (status == TG_OK) break;
        session_failed(s, "open", status);
        s->was_lost = false;
    }
    if (status != TG_OK) return status;
    if (s->slow > 0) tg_webgpu_set_slow(s->device, s->slow);
    status = session_work(s);
    if (s->executable != NULL) tg_webgpu_executor.unload(s->device, s->executable);
    tg_webgpu_executor.close(s->device);
    s->executable = NULL;
    s->device = NULL;
    return status;
}

/* Idle devices are let go first: each test has a library of its own. */
static void assert_nothing_left(const char *what, int64_t n, int way, const tg_context *ctx) {
    const fake_counts *c = fake_webgpu_counts();
    tg_close_idle_devices();
    if (c->mistakes > 0) fail_msg("%s %lld, way %d: %s", what, (long long)n, way, fake_webgpu_first_mistake());
    if (c->live > 0) fake_webgpu_print_live();
    if (c->live != 0 || c->live_buffers != 0 || c->texts != 0 || c->scope_depth != 0)
        fail_msg("%s %lld, way %d: %lld objects, %lld buffers, %lld texts, %lld scopes left", what, (long long)n, way, (long long)c->live,
                 (long long)c->live_buffers, (long long)c->texts, (long long)c->scope_depth);
    if (ctx->live_blocks != 0 || ctx->live_bytes != 0)
        fail_msg("%s %lld, way %d: %lld blocks left", what, (long long)n, way, (long long)ctx->live_blocks);
}

typedef struct arming {
    int64_t fail_at, lose_at;
    int way, retries;
    bool foreign; /* the device is the application's */
    double slow;
} arming;

/* An application with a device of its own. */
typedef struct application {
    const tg_webgpu_api *api;
    tg_wgpu_instance instance;
    tg_wgpu_adapter adapter;
    tg_wgpu_device device;
    int64_t errors; /* that it hears of */
} application;

static void application_on_adapter(uint32_t status, tg_wgpu_adapter adapter, tg_wgpu_string message, void *user, void *more) {
    (void)message;
    (void)more;
    if (status == TG_WGPU_SUCCESS) ((application *)user)->adapter = adapter;
}

static void application_on_device(uint32_t status, tg_wgpu_device device, tg_wgpu_string message, void *user, void *more) {
    (void)message;
    (void)more;
    if (status == TG_WGPU_SUCCESS) ((application *)user)->device = device;
}

static void application_on_error(const tg_wgpu_device *device, uint32_t error, tg_wgpu_string message, void *user, void *more) {
    (void)device;
    (void)error;
    (void)message;
    (void)more;
    ((application *)user)->errors++;
}

static void application_pump(const application *a) {
    for (int i = 0; i < 8; i++) a->api->instance_process_events(a->instance);
}

static void application_open(application *a, const tg_webgpu_api *api) {
    const tg_wgpu_device_descriptor descriptor = {.error = {NULL, application_on_error, a, NULL}};
    memset(a, 0, sizeof *a);
    a->api = api;
    a->instance = api->create_instance(NULL);
    api->instance_request_adapter(a->instance, NULL,
                                  (tg_wgpu_adapter_callback){NULL, TG_WGPU_MODE_PROCESS_EVENTS, application_on_adapter, a, NULL});
    application_pump(a);
    api->adapter_request_device(a->adapter, &descriptor,
                                (tg_wgpu_device_callback){NULL, TG_WGPU_MODE_PROCESS_EVENTS, application_on_device, a, NULL});
    application_pump(a);
    assert_non_null(a->device);
}

/* Its device is as it was, one reference and no open scope. */
static void application_close(const application *a) {
    application_pump(a);
    if (fake_webgpu_counts()->live != 3) fake_webgpu_print_live();
    assert_int_equal(fake_webgpu_counts()->live, 3);
    assert_int_equal(fake_webgpu_counts()->scope_depth, 0);
    assert_int_equal(fake_webgpu_counts()->of[FAKE_device_destroy], 0);
    a->api->device_release(a->device);
    a->api->adapter_release(a->adapter);
    a->api->instance_release(a->instance);
}

/* One life on a new fake library. */
static tg_status one_life(const scene *scene_, const fake_options *options, const arming *arm, seen *out, session *s) {
    tg_open_options open = {.threads = 1};
    tg_webgpu_device foreign;
    application app;
    support_allocator counts;
    memset(&counts, 0, sizeof counts);
    memset(s, 0, sizeof *s);
    memset(out, 0, sizeof *out);
    const tg_webgpu_api *api = begin_fake(options);
    if (arm->foreign) {
        application_open(&app, api);
        foreign = (tg_webgpu_device){(void *)app.instance, (void *)app.device, NULL};
        open.foreign = &foreign;
    }
    fake_webgpu_fail(arm->fail_at, arm->way);
    fake_webgpu_lose_at(arm->lose_at);
    s->scene = scene_;
    s->seen = out;
    s->retries = arm->retries;
    s->slow = arm->slow;
    s->foreign = arm->foreign;
    s->ctx = support_context_counting(&counts);
    const tg_status status = session_all(s, api, &open);
    fake_webgpu_lose_at(0);
    if (arm->foreign) application_close(&app);
    if (arm->foreign && arm->fail_at == 0 && app.errors > 0) fail_msg("the application hears of %lld errors", (long long)app.errors);
    assert_nothing_left(arm->lose_at > 0 ? "loss at call" : "failure of call", arm->lose_at > 0 ? arm->lose_at : arm->fail_at, arm->way,
                        s->ctx);
    tg_context_destroy(s->ctx);
    s->ctx = NULL;
    assert_int_equal(counts.live_blocks, 0);
    assert_false(counts.size_mismatch);
    return status;
}

static seen reference, result;

/* With the arming's kind of device and nothing failing; *counts gets what it took. */
static void make_reference(const scene *s, const fake_options *options, const arming *like, fake_counts *counts) {
    arming none = *like;
    session life;
    none.fail_at = none.lose_at = 0;
    const tg_status status = one_life(s, options, &none, &reference, &life);
    if (counts != NULL) *counts = *fake_webgpu_counts();
    if (status != TG_OK) fail_msg("without any fault: %d", (int)status);
    assert_true(reference.used > 0);
}

static bool same_as_reference(void) { return result.used == reference.used && memcmp(result.bytes, reference.bytes, result.used) == 0; }

static const fake_flavour flavours[] = {FAKE_DAWN, FAKE_NATIVE, FAKE_MINIMAL};

static void a_life_without_faults(void **state) {
    (void)state;
    scene s;
    scene_make(&s);
    const arming plain = {.way = 0};
    make_reference(&s, NULL, &plain, NULL);
    for (int flavour = 0; flavour < 3; flavour++)
        for (int variant = 0; variant < 6; variant++) {
            const fake_options options = {.flavour = flavours[flavour], .at_once = variant % 3 == 1, .delay = variant % 3 == 2 ? 3 : 0};
            const arming none = {.foreign = variant >= 3};
            session life;
            assert_int_equal(one_life(&s, &options, &none, &result, &life), TG_OK);
            if (!none.foreign) assert_true(same_as_reference()); /* such a device has other limits, and other shaders with them */
        }
    scene_free(&s);
}

/* ---------------------------------------------------------------- every call fails */

/* Without the answer to this one a device can be opened and used all the same: it asks again, or with less. */
static bool may_not_matter(fake_call call) {
    return call == FAKE_instance_request_adapter || call == FAKE_adapter_request_device || call == FAKE_adapter_get_features ||
           call == FAKE_adapter_get_info || call == FAKE_adapter_get_limits || call == FAKE_instance_enumerate_adapters ||
           call == FAKE_shader_module_get_compilation_info || call == FAKE_device_get_adapter || call == FAKE_get_version;
}

/* `like`: its way, retries and device. */
static void fail_every_call(const fake_options *options, const arming *like) {
    scene s;
    fake_counts whole;
    scene_make(&s);
    make_reference(&s, options, like, &whole);
    for (int64_t n = 1; n <= whole.failable; n++) {
        arming arm = *like;
        session life;
        arm.fail_at = n;
        const tg_status status = one_life(&s, options, &arm, &result, &life);
        const fake_call call = fake_webgpu_counts()->failed_call;
        const char *name = fake_webgpu_call_name(call);
        if (!fake_webgpu_counts()->failed && like->foreign) break; /* those that the application makes were counted too */
        if (!fake_webgpu_counts()->failed) fail_msg("call %lld of %lld did not come", (long long)n, (long long)whole.failable);
        if (life.failures == 0 && !may_not_matter(call))
            fail_msg("call %lld, %s, failed in way %d and nobody said so", (long long)n, name, arm.way);
        if (arm.retries > 0 && status != TG_OK)
            fail_msg("call %lld, %s, failed once in way %d, and never works again: %d", (long long)n, name, arm.way, (int)status);
        const bool other_limits = call == FAKE_adapter_get_limits || call == FAKE_instance_enumerate_adapters; /* other shaders then */
        if (life.failures == 0 && !other_limits && !same_as_reference())
            fail_msg("call %lld, %s, failed in way %d: other results", (long long)n, name, arm.way);
    }
    scene_free(&s);
}

static void every_call_fails(void **state) {
    (void)state;
    for (int flavour = 0; flavour < 3; flavour++)
        for (int way = 0; way < FAKE_WAYS; way++) {
            if (flavours[flavour] == FAKE_NATIVE && way % 2 == 1) continue; /* each map that fails costs a tenth of a second */
            if (flavours[flavour] == FAKE_MINIMAL && way % 2 == 0) continue;
            const fake_options options = {.flavour = flavours[flavour]};
            const arming arm = {.way = way}, foreign = {.way = way, .foreign = true};
            fail_every_call(&options, &arm);
            fail_every_call(&options, &foreign);
        }
}

static void every_call_fails_with_other_timing(void **state) {
    (void)state;
    for (int way = 0; way < FAKE_WAYS; way++) {
        const fake_options at_once = {.at_once = true}, late = {.delay = 2};
        const arming arm = {.way = way}, slow = {.way = way, .slow = 1e-9};
        fail_every_call(&at_once, &arm);
        fail_every_call(&late, &arm);
        if (way == 0 || way == 3) fail_every_call(&late, &slow);
    }
}

static void a_second_try_works(void **state) {
    (void)state;
    for (int way = 0; way < FAKE_WAYS; way++) {
        const fake_options options = {.flavour = FAKE_DAWN};
        const arming arm = {.way = way, .retries = 2};
        fail_every_call(&options, &arm);
    }
}

/* The message of a load whose n-th shader module is refused. */
static void shader_error(const scene *sc, fake_flavour flavour, char *text, size_t size) {
    const fake_options options = {.flavour = flavour};
    const tg_open_options open = {.threads = 1};
    for (int64_t n = 1;; n++) {
        seen ignored;
        session s = {.scene = sc, .seen = &ignored, .ctx = support_context()};
        assert_int_equal(tg_webgpu_open_with(s.ctx, begin_fake(&options), &open, &s.device), TG_OK);
        assert_int_equal(session_make_states(&s), TG_OK);
        fake_webgpu_fail(n, 1);
        const tg_status status = tg_webgpu_executor.load(s.device, sc->program.program, sc->slots, &s.executable);
        const bool found = fake_webgpu_counts()->failed_call == FAKE_device_create_shader_module;
        assert_true(fake_webgpu_counts()->failed);
        assert_int_equal(status == TG_OK, s.executable != NULL);
        if (found) assert_int_equal(status, TG_ERROR_DEVICE);
        snprintf(text, size, "%s", tg_error_message(s.ctx));
        if (s.executable != NULL) tg_webgpu_executor.unload(s.device, s.executable);
        tg_webgpu_executor.close(s.device);
        assert_nothing_left("shader", n, 1, s.ctx);
        tg_context_destroy(s.ctx);
        if (found) return;
    }
}

static void a_shader_that_does_not_compile_is_shown(void **state) {
    (void)state;
    static char text[16384];
    scene s;
    scene_make(&s);
    for (int flavour = 0; flavour < 3; flavour++) {
        bool named = false;
        shader_error(&s, flavours[flavour], text, sizeof text);
        for (int k = 0; k < s.program.program->kernel_count; k++) named = named || strstr(text, s.program.program->kernels[k].name) != NULL;
        if (!named || strstr(text, "Fake GPU") == NULL || strstr(text, "fn main(") == NULL) fail_msg("%s", text);
        /* the compiler's own words where it can be asked */
        if (flavours[flavour] == FAKE_DAWN) assert_non_null(strstr(text, "expected something else"));
        else assert_non_null(strstr(text, "wgpuDeviceCreateShaderModule"));
    }
    scene_free(&s);
}

/* ---------------------------------------------------------------- loss */

static void lose_at_every_call(const fake_options *options, bool foreign) {
    scene s;
    fake_counts whole;
    const arming like = {.foreign = foreign};
    scene_make(&s);
    make_reference(&s, options, &like, &whole);
    int64_t heard = 0;
    for (int64_t n = 1; n <= whole.calls; n++) {
        const arming arm = {.lose_at = n, .foreign = foreign};
        session life;
        const tg_status status = one_life(&s, options, &arm, &result, &life);
        if (status != TG_OK && status != TG_ERROR_DEVICE_LOST) fail_msg("loss at call %lld: %d", (long long)n, (int)status);
        if (status == TG_ERROR_DEVICE_LOST) heard++;
        /* what was handed over before the loss is right */
        if (memcmp(result.bytes, reference.bytes, result.used < reference.used ? result.used : reference.used) != 0)
            fail_msg("loss at call %lld: other results", (long long)n);
        if (status == TG_OK && result.used != reference.used) fail_msg("loss at call %lld: something is missing", (long long)n);
    }
    assert_true(heard * 2 > whole.calls);
    scene_free(&s);
}

static void the_device_is_lost_at_every_call(void **state) {
    (void)state;
    for (int flavour = 0; flavour < 3; flavour++) {
        const fake_options options = {.flavour = flavours[flavour]}, late = {.flavour = flavours[flavour], .delay = 2},
                           at_once = {.flavour = flavours[flavour], .at_once = true};
        lose_at_every_call(&options, false);
        lose_at_every_call(&options, true);
        lose_at_every_call(&late, false);
        lose_at_every_call(&at_once, false);
    }
}

/* ---------------------------------------------------------------- memory */

static void every_allocation_fails(void **state) {
    (void)state;
    scene s;
    scene_make(&s);
    const arming plain = {.way = 0};
    make_reference(&s, NULL, &plain, NULL);
    bool done = false;
    for (int64_t n = 2; !done; n++) { /* the first is the context */
        const tg_open_options open = {.threads = 1};
        support_allocator counts;
        session life;
        memset(&counts, 0, sizeof counts);
        memset(&life, 0, sizeof life);
        memset(&result, 0, sizeof result);
        counts.fail_at = n;
        const tg_webgpu_api *api = begin_fake(NULL);
        life.scene = &s;
        life.seen = &result;
        life.ctx = support_context_counting(&counts);
        const tg_status status = session_all(&life, api, &open);
        if (status != TG_OK && status != TG_ERROR_MEMORY) fail_msg("allocation %lld failed: status %d", (long long)n, (int)status);
        done = counts.calls < n;
        if (status == TG_OK && !done) fail_msg("allocation %lld failed and nobody said so", (long long)n);
        if (status == TG_OK) assert_true(same_as_reference());
        assert_nothing_left("allocation", n, 0, life.ctx);
        tg_context_destroy(life.ctx);
        assert_int_equal(counts.live_blocks, 0);
        assert_false(counts.size_mismatch);
        assert_true(n < 10000);
    }
    scene_free(&s);
}

/* ---------------------------------------------------------------- what things cost */

/* Opens a device of the fake library, makes and fills the states, loads. */
static void session_begin(session *s, const scene *scene_, support_allocator *counts, const tg_webgpu_api *api, seen *out) {
    const tg_open_options open = {.threads = 1};
    memset(counts, 0, sizeof *counts);
    memset(s, 0, sizeof *s);
    memset(out, 0, sizeof *out);
    s->scene = scene_;
    s->seen = out;
    s->ctx = support_context_counting(counts);
    if (tg_webgpu_open_with(s->ctx, api, &open, &s->device) != TG_OK || session_make_states(s) != TG_OK ||
        session_states(s, true) != TG_OK ||
        tg_webgpu_executor.load(s->device, scene_->program.program, scene_->slots, &s->executable) != TG_OK)
        fail_msg("%s", tg_error_message(s->ctx));
}

static void session_end(session *s) {
    tg_webgpu_executor.unload(s->device, s->executable);
    tg_webgpu_executor.close(s->device);
    assert_nothing_left("no", 0, 0, s->ctx);
    tg_context_destroy(s->ctx);
}

static void session_must(const session *s, tg_status status) {
    if (status != TG_OK) fail_msg("%d: %s", (int)status, tg_error_message(s->ctx));
}

/* Only the first output is read, as in training. */
static void session_step(session *s, float *loss) {
    void *outputs[SCENE_OUTPUTS] = {loss};
    session_must(s, tg_webgpu_executor.run(s->device, s->executable, (const void *const *)s->scene->inputs, outputs));
}

static tg_tensor build_step(tg_graph *g, void *user) { /* two inputs, one output */
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 3), TG_F32), y = tg_input(g, "y", TG_SHAPE(4, 1), TG_F32);
    tg_linear l1 = tg_nn_linear(g, "l1", 3, 5), l2 = tg_nn_linear(g, "l2", 5, 1);
    tg_tensor loss = tg_mean(tg_square(tg_sub(tg_nn_linear_fwd(l2, tg_relu(tg_nn_linear_fwd(l1, x))), y)), TG_ALL);
    const tg_tensor params[4] = {l1.W, l1.b, l2.W, l2.b};
    tg_tensor gradients[4];
    (void)user;
    tg_grad(loss, params, 4, gradients);
    for (int i = 0; i < 4; i++) tg_writeback(params[i], tg_sub(params[i], tg_mul(gradients[i], 0.1)));
    return loss;
}

static void what_a_step_costs(void **state) {
    (void)state;
    scene sc;
    session s;
    support_allocator counts;
    float loss = 0;
    scene_make_with(&sc, build_step, NULL, 7);
    session_begin(&s, &sc, &counts, begin_fake(NULL), &result);
    for (int i = 0; i < 10; i++) session_step(&s, &loss);
    const fake_counts tenth = *fake_webgpu_counts();
    const int64_t allocations = counts.calls;
    session_step(&s, &loss);
    const fake_counts *now = fake_webgpu_counts();
    const tg_webgpu_counters *own = tg_webgpu_count(s.device);
    const int64_t *a = tenth.of, *b = now->of;
    const int dispatches = tg_webgpu_executor.dispatches(s.executable);
    assert_int_equal(b[FAKE_queue_submit] - a[FAKE_queue_submit], 1);
    assert_int_equal(b[FAKE_encoder_copy_buffer_to_buffer] - a[FAKE_encoder_copy_buffer_to_buffer], 1);
    assert_int_equal(b[FAKE_queue_write_buffer] - a[FAKE_queue_write_buffer], 1);
    assert_int_equal(b[FAKE_buffer_map_async] - a[FAKE_buffer_map_async], 1);
    assert_int_equal(b[FAKE_encoder_begin_compute_pass] - a[FAKE_encoder_begin_compute_pass], 1);
    assert_int_equal(b[FAKE_pass_dispatch] - a[FAKE_pass_dispatch], dispatches);
    assert_int_equal(b[FAKE_device_create_bind_group] - a[FAKE_device_create_bind_group], 0);
    assert_int_equal(b[FAKE_device_create_buffer] - a[FAKE_device_create_buffer], 0);
    assert_int_equal(now->dispatches - tenth.dispatches, dispatches);
    assert_int_equal(own->submissions, 1);
    assert_int_equal(own->copies, 1);
    assert_int_equal(own->writes, 1);
    assert_int_equal(own->maps, 1);
    assert_int_equal(own->dispatches, dispatches);
    assert_int_equal(own->objects + tg_webgpu_count_shared(s.device).objects, now->live - 3); /* but instance, device, queue */
    assert_int_equal(own->buffers, now->live_buffers);
    assert_int_equal(own->buffer_bytes, now->live_buffer_bytes);
    for (int i = 11; i < 1000; i++) session_step(&s, &loss);
    assert_int_equal(now->live, tenth.live);
    for (int i = 0; i < 20; i++) {
        session_must(&s, session_read(&s));
        result.used = 0;
    }
    assert_int_equal(now->live, tenth.live);
    assert_int_equal(now->live_buffer_bytes, tenth.live_buffer_bytes);
    assert_int_equal(counts.calls, allocations);
    session_end(&s);
    scene_free(&sc);
}

enum { LARGE = 64 * 64 };
static tg_tensor build_large_inputs(tg_graph *g, void *user) { /* in this order: small ones beside each other, and one alone */
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(64, 64), TG_F32), a = tg_input(g, "a", TG_SHAPE(64), TG_F32);
    const tg_tensor b = tg_input(g, "b", TG_SHAPE(7), TG_BOOL), m = tg_input(g, "m", TG_SHAPE(64, 64), TG_BOOL);
    const tg_tensor i = tg_input(g, "i", TG_SHAPE(64, 64), TG_I32), c = tg_input(g, "c", TG_SHAPE(64), TG_F32);
    (void)user;
    const tg_tensor all = tg_where(m, tg_mul(tg_mul(x, a), c), tg_cast(i, TG_F32));
    return tg_add(tg_mean(all, TG_ALL), tg_sum(tg_cast(b, TG_F32), TG_ALL));
}
/* What is 32 bits wide and not small is copied by the library alone. */
static void large_inputs_are_written_from_where_they_lie(void **state) {
    (void)state;
    scene sc;
    session s;
    support_allocator counts;
    float loss = 0;
    scene_make_with(&sc, build_large_inputs, NULL, 7);
    session_begin(&s, &sc, &counts, begin_fake(NULL), &result);
    session_step(&s, &loss);
    const tg_webgpu_counters *own = tg_webgpu_count(s.device);
    assert_true(fake_webgpu_wrote(sc.inputs[0], LARGE * 4));
    assert_true(fake_webgpu_wrote(sc.inputs[4], LARGE * 4));
    assert_false(fake_webgpu_wrote(sc.inputs[3], LARGE)); /* bools are widened */
    assert_int_equal(own->writes, 5);                     /* x; a and b; m; i; c */
    assert_int_equal(own->write_bytes, 3 * LARGE * 4 + 256 + 28 + 256);
    session_end(&s);
    scene_free(&sc);
}

static tg_tensor build_product(tg_graph *g, void *user) {
    (void)user;
    return tg_matmul(tg_input(g, "x", TG_SHAPE(64, 64), TG_F32), tg_input(g, "y", TG_SHAPE(64, 64), TG_F32));
}

static int warnings;
static void count_warnings(void *user, tg_log_level level, const char *message) {
    (void)user;
    (void)message;
    warnings += level == TG_LOG_WARNING;
}

/* Whatever fails while a program is loaded by a table, it is loaded without; the table stays for the next one. */
static void a_table_that_does_not_work_is_not_followed(void **state) {
    (void)state;
    scene sc;
    session s;
    support_allocator counts;
    tg_wgsl_candidates choices;
    tg_arena arena;
    scene_make_with(&sc, build_product, NULL, 7);
    session_begin(&s, &sc, &counts, begin_fake(NULL), &result);
    assert_int_equal(tg_webgpu_executor.tuned(s.executable), 0);
    tg_arena_init(&arena, s.ctx);
    session_must(&s, tg_wgsl_find_candidates(sc.program.program, 0, tg_webgpu_executor.model(s.device), &arena, &choices));
    assert_true(choices.count > 1);
    const tg_schedule_entry entry = {choices.key, choices.items[choices.count - 1]};
    const tg_schedules table = {&entry, 1};
    int fallbacks = 0;
    s.ctx->log = count_warnings;
    warnings = 0;
    for (int64_t n = 1;; n++) {
        tg_executable *executable = NULL;
        tg_webgpu_set_schedules(s.device, &table);
        fake_webgpu_fail(n, 1);
        session_must(&s, tg_webgpu_executor.load(s.device, sc.program.program, sc.slots, &executable));
        const bool failed = fake_webgpu_counts()->failed;
        fake_webgpu_fail(0, 0);
        fallbacks += tg_webgpu_executor.tuned(executable) == 0;
        assert_int_equal(warnings, fallbacks);
        assert_ptr_equal(tg_webgpu_executor.model(s.device)->schedules, &table);
        tg_webgpu_executor.unload(s.device, executable);
        if (!failed) break;
        assert_true(n < 1000);
    }
    assert_true(fallbacks > 3);
    tg_arena_free(&arena);
    session_end(&s);
    scene_free(&sc);
}

/* Seven steps in a submission: what one costs beyond its dispatches is one for its batch. Nothing is made or allocated. */
static void what_many_steps_cost(void **state) {
    (void)state;
    enum { N = 7 };
    scene sc;
    session s;
    support_allocator counts;
    float losses[N], loss = 0;
    tg_feeder *feeder = NULL;
    int64_t count = 0;
    bool done = false;
    scene_make_with(&sc, build_step, NULL, 7);
    session_begin(&s, &sc, &counts, begin_fake(NULL), &result);
    const tg_feeder_array arrays[] = {{0, sc.inputs[0], 3}, {1, sc.inputs[1], 1}};
    const tg_feeder_options options = {arrays, 2, 4, 4};
    session_must(&s, tg_webgpu_executor.make_feeder(s.device, s.executable, &options, &feeder));
    const tg_feeder_run run = {.draw = {TG_BATCH_RANDOM, 1, 0, 4, 4}, .inputs = (const void *const *)sc.inputs, .most = N, .exact = true};
    session_must(&s, tg_webgpu_executor.run_feeder(s.device, feeder, &run, losses, &count));
    session_must(&s, tg_webgpu_executor.start(s.device, s.executable, run.inputs, &loss));
    session_must(&s, tg_webgpu_executor.collect(s.device, true, &done));
    for (int i = 0; i < TG_FLIGHTS; i++) session_must(&s, tg_webgpu_executor.start(s.device, s.executable, run.inputs, &loss));
    for (int i = 0; i < TG_FLIGHTS; i++) session_must(&s, tg_webgpu_executor.collect(s.device, true, &done));
    const fake_counts before = *fake_webgpu_counts();
    const int64_t allocations = counts.calls;
    const tg_webgpu_counters *own = tg_webgpu_count(s.device);
    session_must(&s, tg_webgpu_executor.run_feeder(s.device, feeder, &run, losses, &count));
    assert_int_equal(count, N);
    assert_int_equal(own->submissions, 1);
    assert_int_equal(own->maps, 1);
    assert_int_equal(own->copies, 2);
    assert_int_equal(own->writes, 1);
    assert_int_equal(own->dispatches, N * (tg_webgpu_executor.dispatches(s.executable) + 1));
    for (int i = 0; i < TG_FLIGHTS; i++) {
        session_must(&s, tg_webgpu_executor.start(s.device, s.executable, run.inputs, &loss));
        assert_int_equal(own->submissions, 1);
        assert_int_equal(own->copies, 1);
    }
    for (int i = 0; i < TG_FLIGHTS; i++) session_must(&s, tg_webgpu_executor.collect(s.device, true, &done));
    assert_int_equal(fake_webgpu_counts()->live, before.live);
    assert_int_equal(fake_webgpu_counts()->of[FAKE_device_create_buffer], before.of[FAKE_device_create_buffer]);
    assert_int_equal(counts.calls, allocations);
    tg_webgpu_set_slow(s.device, 0); /* now every submission takes too long: a step is cut, as it is without a data set */
    for (int i = 0; i < 4; i++) {
        session_must(&s, tg_webgpu_executor.run_feeder(s.device, feeder, &run, losses, &count));
        session_must(&s, tg_webgpu_executor.start(s.device, s.executable, run.inputs, &loss));
        session_must(&s, tg_webgpu_executor.collect(s.device, true, &done));
        session_step(&s, &loss);
    }
    assert_int_equal(count, 1);
    session_must(&s, tg_webgpu_executor.run_feeder(s.device, feeder, &run, losses, &count));
    assert_true(own->submissions > 1);
    tg_webgpu_executor.drop_feeder(s.device, feeder);
    session_end(&s);
    scene_free(&sc);
}

static void a_long_step_is_cut(void **state) { /* into submissions of fewer and fewer dispatches, with the same results */
    (void)state;
    scene sc;
    session s;
    const arming plain = {.way = 0}, slow = {.slow = 1e-9};
    scene_make(&sc);
    make_reference(&sc, NULL, &plain, NULL);
    assert_int_equal(one_life(&sc, NULL, &slow, &result, &s), TG_OK);
    assert_true(same_as_reference());
    support_allocator counts;
    float loss;
    session_begin(&s, &sc, &counts, begin_fake(NULL), &result);
    const int dispatches = tg_webgpu_executor.dispatches(s.executable);
    tg_webgpu_set_slow(s.device, 1e-9);
    for (int i = 0; i < 12; i++) session_step(&s, &loss);
    const int64_t before = fake_webgpu_counts()->of[FAKE_encoder_begin_compute_pass];
    session_step(&s, &loss);
    assert_int_equal(fake_webgpu_counts()->of[FAKE_encoder_begin_compute_pass] - before, dispatches);
    tg_webgpu_set_slow(s.device, 3600);
    for (int i = 0; i < 40; i++) session_step(&s, &loss);
    session_step(&s, &loss);
    assert_int_equal(tg_webgpu_count(s.device)->submissions, 1); /* and whole again */
    session_end(&s);
    scene_free(&sc);
}

/* The same work five times on different data, each too large to share a launch, then something else. */
static tg_tensor build_twins(tg_graph *g, void *user) {
    tg_tensor sum = tg_full(g, TG_SCALAR, 0.0, TG_F32);
    (void)user;
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        tg_tensor x = tg_input(g, name, TG_SHAPE(1536, 1536), TG_F32);
        sum = tg_add(sum, tg_sum_all(tg_matmul(x, x)));
    }
    return sum;
}

static void pipelines_are_shared_and_made_together(void **state) {
    (void)state;
    scene sc;
    session s;
    support_allocator counts;
    scene_make_with(&sc, build_twins, NULL, 7);
    session_begin(&s, &sc, &counts, begin_fake(NULL), &result);
    const fake_counts *c = fake_webgpu_counts();
    const int dispatches = tg_webgpu_executor.dispatches(s.executable);
    assert_true(c->pipelines < dispatches); /* equal sources, one pipeline */
    assert_true(c->pipelines > 1);
    assert_int_equal(c->pipelines_before_a_wait, c->of[FAKE_device_create_compute_pipeline_async] - 1); /* one is the proof's */
    assert_int_equal(c->pipelines, c->of[FAKE_device_create_compute_pipeline_async]);
    assert_int_equal(c->of[FAKE_device_create_shader_module], c->pipelines);
    assert_int_equal(tg_webgpu_count(s.device)->pipelines, c->pipelines - 1);
    session_end(&s);
    scene_free(&sc);
}

/* ---------------------------------------------------------------- limits */

static tg_tensor build_many_operands(tg_graph *g, void *user) {
    tg_tensor sum = tg_input(g, "a", TG_SHAPE(6), TG_F32);
    (void)user;
    for (int i = 0; i < 25; i++) {
        char name[8];
        snprintf(name, sizeof name, "s%d", i);
        sum = tg_add(tg_mul(sum, 0.5), tg_state(g, name, TG_SHAPE(6), TG_F32, 1.0 + i));
    }
    return sum;
}

static fake_adapter small_adapter(void) {
    fake_adapter a = fake_adapter_make("Small GPU", TG_WGPU_ADAPTER_DISCRETE);
    a.storage_buffers = 8;
    a.invocations = 256;
    a.workgroup_bytes = 16384;
    a.binding_bytes = UINT64_C(128) << 20;
    a.buffer_bytes = UINT64_C(256) << 20;
    return a;
}

static void guaranteed_limits_suffice(void **state) {
    (void)state;
    const fake_adapter small = small_adapter();
    const fake_options options = {.adapters = &small, .adapter_count = 1};
    assert_int_equal(tg_device_guaranteed.max_arguments, 7); /* and one for the scratch buffer */
    assert_true(tg_device_guaranteed.in_words);
    const support_case c = {.build = build_many_operands};
    const support_options plan = {.home = SUPPORT_WEBGPU, .max_arguments = 7};
    support_program p;
    support_outputs error;
    support_allocator counts;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6], ones[6] = {1, 1, 1, 1, 1, 1};
    const void *inputs[1] = {x};
    void *outputs[1] = {y};
    int32_t slots[32];
    memset(&counts, 0, sizeof counts);
    memset(&error, 0, sizeof error);
    assert_true(support_program_make(&c, &plan, &p, &error));
    assert_true(p.program->kernel_count > 1);
    tg_context *ctx = support_context_counting(&counts);
    const tg_open_options open = {.threads = 1};
    tg_device *device = NULL;
    tg_executable *executable = NULL;
    assert_int_equal(tg_webgpu_open_with(ctx, begin_fake(&options), &open, &device), TG_OK);
    assert_int_equal(tg_webgpu_executor.model(device)->max_arguments, 7);
    for (int i = 0; i < p.program->state_count; i++) {
        slots[i] = i;
        assert_int_equal(tg_webgpu_executor.make_state(device, i, "s", TG_F32, 6), TG_OK);
        assert_int_equal(tg_webgpu_executor.write_state(device, i, 0, ones, 6), TG_OK);
    }
    if (tg_webgpu_executor.load(device, p.program, slots, &executable) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    assert_int_equal(tg_webgpu_executor.run(device, executable, inputs, outputs), TG_OK);
    tg_webgpu_executor.unload(device, executable);
    tg_webgpu_executor.close(device);
    assert_nothing_left("limits", 0, 0, ctx);
    tg_context_destroy(ctx);
    support_program_free(&p);
}

static void limits_of_the_adapter_are_asked_for(void **state) {
    (void)state;
    const tg_open_options open = {.threads = 1};
    tg_context *ctx = support_context();
    tg_device *device = NULL;
    assert_int_equal(tg_webgpu_open_with(ctx, begin_fake(NULL), &open, &device), TG_OK);
    assert_int_equal(tg_webgpu_executor.model(device)->max_arguments, 9); /* 10, one for the scratch buffer */
    assert_true(tg_webgpu_executor.model(device)->max_binding_bytes >= (INT64_C(2) << 30) - 4);
    assert_true(tg_webgpu_executor.model(device)->in_words);
    assert_true(tg_webgpu_executor.model(device)->invocations >= 256);
    assert_true(tg_webgpu_executor.model(device)->storage_buffers == 10);
    tg_webgpu_executor.close(device);
    assert_nothing_left("limits", 0, 0, ctx);
    tg_context_destroy(ctx);
}

/* A context that holds TG_ERROR_LIMIT with all of these in its message. */
static void assert_limit_message(tg_context *ctx, tg_status status, const char *const *says, int count) {
    if (status != TG_ERROR_LIMIT || tg_error(ctx) != TG_ERROR_LIMIT) fail_msg("%d: %s", (int)status, tg_error_message(ctx));
    for (int i = 0; i < count; i++)
        if (strstr(tg_error_message(ctx), says[i]) == NULL) fail_msg("no '%s' in: %s", says[i], tg_error_message(ctx));
    tg_clear_error(ctx);
}

static tg_tensor build_large(tg_graph *g, void *user) {
    (void)user;
    tg_tensor table = tg_state(g, "table", TG_SHAPE(1024), TG_F32, 1.0);
    return tg_sum_all(tg_mul(table, tg_input(g, "great_input", TG_SHAPE(1024, 1024), TG_F32)));
}

static void what_is_too_large_is_named(void **state) {
    (void)state;
    fake_adapter small = small_adapter();
    small.binding_bytes = 1 << 20; /* below what is guaranteed: a driver that lies, or a test that is small */
    small.buffer_bytes = 1 << 20;
    const fake_options options = {.adapters = &small, .adapter_count = 1};
    const tg_open_options open = {.threads = 1};
    static const char *const of_state[] = {"4194304", "1048576", "tg.parameters, 1048576 elements"};
    static const char *const of_input[] = {"4194304", "1048576", "great_input"};
    const support_case c = {.build = build_large};
    const support_options plan = {.home = SUPPORT_WEBGPU, .max_arguments = 7};
    support_program p;
    support_outputs error;
    tg_device *device = NULL;
    tg_executable *executable = NULL;
    const int32_t slots[2] = {0, 1};
    memset(&error, 0, sizeof error);
    assert_true(support_program_make(&c, &plan, &p, &error));
    tg_context *ctx = support_context();
    if (tg_webgpu_open_with(ctx, begin_fake(&options), &open, &device) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    assert_limit_message(ctx, tg_webgpu_executor.make_state(device, 0, "tg.parameters", TG_F32, 1024 * 1024), of_state, 3);
    assert_int_equal(tg_webgpu_executor.make_state(device, 0, "tg.parameters", TG_F32, 1024), TG_OK);
    assert_limit_message(ctx, tg_webgpu_executor.load(device, p.program, slots, &executable), of_input, 3);
    assert_null(executable);
    tg_webgpu_executor.close(device);
    assert_nothing_left("limits", 0, 0, ctx);
    tg_context_destroy(ctx);
    support_program_free(&p);
}

/* ---------------------------------------------------------------- adapters */

/* The adapter that is opened, or "error N: message". */
static const char *opened_adapter(const fake_options *options, const char *wanted, bool real_gpu) {
    static char text[2048];
    const tg_open_options open = {.threads = 1, .adapter = wanted, .real_gpu = real_gpu};
    tg_context *ctx = support_context();
    tg_device *device = NULL;
    const tg_status status = tg_webgpu_open_with(ctx, begin_fake(options), &open, &device);
    if (status == TG_OK) snprintf(text, sizeof text, "%s", tg_webgpu_executor.adapter(device));
    else snprintf(text, sizeof text, "error %d: %.1900s", (int)status, tg_error_message(ctx));
    if (status == TG_OK) assert_non_null(strstr(tg_webgpu_executor.describe(device), tg_webgpu_executor.adapter(device)));
    if (status == TG_OK) tg_webgpu_executor.close(device);
    assert_nothing_left("adapters", 0, 0, ctx);
    tg_context_destroy(ctx);
    return text;
}

static void assert_error(const char *text, tg_status code, const char *a, const char *b) {
    char begin[32];
    snprintf(begin, sizeof begin, "error %d:", (int)code);
    if (strncmp(text, begin, strlen(begin)) != 0 || strstr(text, a) == NULL || strstr(text, b) == NULL)
        fail_msg("%s (wanted %d, %s, %s)", text, (int)code, a, b);
}

static void adapters_are_chosen(void **state) {
    (void)state;
    const fake_adapter both[] = {fake_adapter_make("Bank Graphics 770", TG_WGPU_ADAPTER_INTEGRATED),
                                 fake_adapter_make("Tower RTX", TG_WGPU_ADAPTER_DISCRETE),
                                 fake_adapter_make("Slow Raster", TG_WGPU_ADAPTER_CPU)};
    for (int flavour = 0; flavour < 3; flavour++) {
        const fake_options all = {.flavour = flavours[flavour], .adapters = both, .adapter_count = 3},
                           one = {.flavour = flavours[flavour], .adapters = both, .adapter_count = 1},
                           slow = {.flavour = flavours[flavour], .adapters = &both[2], .adapter_count = 1},
                           none = {.flavour = flavours[flavour], .adapters = both, .adapter_count = 0},
                           shy = {.flavour = flavours[flavour], .adapters = both, .adapter_count = 1, .empty_asks = 1};
        assert_string_equal(opened_adapter(&all, NULL, false), "Tower RTX");
        assert_string_equal(opened_adapter(&all, "#0", false), "Tower RTX");
        assert_string_equal(opened_adapter(&all, "#1", false), "Bank Graphics 770");
        assert_string_equal(opened_adapter(&all, "bank", false), "Bank Graphics 770");
        assert_string_equal(opened_adapter(&all, "770", false), "Bank Graphics 770");
        assert_string_equal(opened_adapter(&all, "raster", false), "Slow Raster");
        assert_string_equal(opened_adapter(&all, "fake vendor", false), "Tower RTX");
        assert_string_equal(opened_adapter(&all, "VULKAN", false), "Tower RTX");
        assert_string_equal(opened_adapter(&one, NULL, true), "Bank Graphics 770");
        assert_string_equal(opened_adapter(&slow, NULL, false), "Slow Raster");
        assert_string_equal(opened_adapter(&shy, NULL, false), "Bank Graphics 770");
        assert_error(opened_adapter(&all, "unicorn", false), TG_ERROR_DEVICE, "unicorn", "Tower RTX");
        assert_error(opened_adapter(&all, "unicorn", false), TG_ERROR_DEVICE, "Bank Graphics 770", "Slow Raster");
        assert_error(opened_adapter(&all, "#3", false), TG_ERROR_DEVICE, "#3", "Tower RTX");
        assert_error(opened_adapter(&all, "#", false), TG_ERROR_DEVICE, "#", "Tower RTX");
        assert_error(opened_adapter(&all, "#1x", false), TG_ERROR_DEVICE, "#1x", "Tower RTX");
        assert_error(opened_adapter(&none, NULL, false), TG_ERROR_DEVICE, "adapter", "");
        assert_error(opened_adapter(&slow, NULL, true), TG_ERROR_NOT_FOUND, "Slow Raster", "");
    }
}

/* An adapter that executes nothing is chosen by nobody, unless it is named: then it is taken as it is. */
static void an_adapter_that_executes_nothing(void **state) {
    (void)state;
    fake_adapter list[] = {fake_adapter_make("Null backend", TG_WGPU_ADAPTER_CPU), fake_adapter_make("Slow Raster", TG_WGPU_ADAPTER_CPU)};
    list[0].backend = TG_WGPU_BACKEND_NULL;
    list[0].skill = FAKE_NOTHING;
    for (int flavour = 0; flavour < 3; flavour++) {
        const fake_options alone = {.flavour = flavours[flavour], .adapters = list, .adapter_count = 1},
                           both = {.flavour = flavours[flavour], .adapters = list, .adapter_count = 2};
        assert_error(opened_adapter(&alone, NULL, false), TG_ERROR_DEVICE, "no adapter that executes anything", "Null backend");
        assert_error(opened_adapter(&alone, NULL, true), TG_ERROR_DEVICE, "no adapter that executes anything", "Null backend");
        assert_error(opened_adapter(&alone, "", false), TG_ERROR_DEVICE, "no adapter that executes anything", "driver");
        assert_string_equal(opened_adapter(&alone, "null", false), "Null backend");
        assert_string_equal(opened_adapter(&alone, "#0", false), "Null backend");
        assert_string_equal(opened_adapter(&both, NULL, false), "Slow Raster");
        assert_string_equal(opened_adapter(&both, "NULL BACKEND", false), "Null backend");
        assert_error(opened_adapter(&both, "null", true), TG_ERROR_NOT_FOUND, "Slow Raster", "Null backend");
    }
}

/* One that says nothing of the kind, and computes nothing or is off by a bit, is found out. */
static void a_device_that_computes_wrongly(void **state) {
    (void)state;
    for (int skill = FAKE_WRONG; skill <= FAKE_NOTHING; skill++)
        for (int flavour = 0; flavour < 3; flavour++) {
            fake_adapter broken = fake_adapter_make("Tower RTX", TG_WGPU_ADAPTER_DISCRETE);
            broken.skill = (fake_skill)skill;
            const fake_options options = {.flavour = flavours[flavour], .adapters = &broken, .adapter_count = 1};
            for (int real_gpu = 0; real_gpu < 2; real_gpu++) {
                const char *text = opened_adapter(&options, NULL, real_gpu != 0);
                assert_error(text, TG_ERROR_DEVICE, "the adapter Tower RTX does not pass its first computation",
                             "executes nothing, or wrongly");
                if (skill == FAKE_WRONG) assert_non_null(strstr(text, "word 63"));
                else assert_non_null(strstr(text, "word 0 of the answer is 00000000"));
            }
        }
}

/* AUTO goes on to the next real GPU, and says so; who asks for WebGPU hears of the first. */
static void the_next_adapter_is_tried(void **state) {
    (void)state;
    fake_adapter list[] = {fake_adapter_make("Tower RTX", TG_WGPU_ADAPTER_DISCRETE),
                           fake_adapter_make("Bank Graphics", TG_WGPU_ADAPTER_INTEGRATED),
                           fake_adapter_make("Slow Raster", TG_WGPU_ADAPTER_CPU)};
    for (int skill = FAKE_WRONG; skill <= FAKE_NOTHING; skill++)
        for (int flavour = 0; flavour < 3; flavour++) {
            const fake_options options = {.flavour = flavours[flavour], .adapters = list, .adapter_count = 3};
            list[0].skill = (fake_skill)skill;
            list[1].skill = FAKE_RIGHT;
            assert_string_equal(opened_adapter(&options, NULL, true), "Bank Graphics");
            assert_error(opened_adapter(&options, NULL, false), TG_ERROR_DEVICE, "Tower RTX", "first computation");
            assert_string_equal(opened_adapter(&options, "bank", false), "Bank Graphics");
            list[1].skill = (fake_skill)skill; /* the software adapter is no choice of AUTO */
            assert_error(opened_adapter(&options, NULL, true), TG_ERROR_DEVICE, "Bank Graphics", "first computation");
        }
}

/* ---------------------------------------------------------------- several models, one GPU */

enum { CROWD = 4 };

static tg_device *crowd_open(tg_context *ctx, const tg_webgpu_api *api, const char *adapter, bool alone) {
    const tg_open_options open = {.threads = 1, .adapter = adapter, .alone = alone};
    tg_device *device = NULL;
    if (tg_webgpu_open_with(ctx, api, &open, &device) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    return device;
}

/* Equal wishes share; a device is kept when its last model goes, two at most, those used last; one that was lost, or alone, is not. */
static void devices_are_shared_and_kept(void **state) {
    (void)state;
    for (int flavour = 0; flavour < 3; flavour++) {
        const fake_options options = {.flavour = flavours[flavour]};
        const tg_webgpu_api *api = begin_fake(&options);
        const int64_t *calls = fake_webgpu_counts()->of;
        tg_context *ctx = support_context(), *other = support_context();
        tg_device *a = crowd_open(ctx, api, NULL, false), *b = crowd_open(other, api, "", false), *c = crowd_open(ctx, api, "fake", false),
                  *d = crowd_open(ctx, api, NULL, true);
        assert_true(tg_webgpu_same_gpu(a, b) && !tg_webgpu_same_gpu(a, c) && !tg_webgpu_same_gpu(a, d));
        assert_int_equal(calls[FAKE_create_instance], 1);
        assert_int_equal(calls[FAKE_adapter_request_device], 3);
        tg_webgpu_executor.close(d); /* alone: not kept */
        assert_int_equal(calls[FAKE_device_destroy], 1);
        tg_webgpu_executor.close(a);
        assert_int_equal(calls[FAKE_device_destroy], 1);
        tg_webgpu_executor.close(b);
        a = crowd_open(other, api, NULL, false);
        assert_int_equal(calls[FAKE_adapter_request_device], 3);
        tg_webgpu_executor.close(a);
        tg_webgpu_executor.close(c);
        d = crowd_open(ctx, api, "#0", false);
        assert_int_equal(calls[FAKE_device_destroy], 1);
        tg_webgpu_executor.close(d); /* the third that is idle: the first goes */
        assert_int_equal(calls[FAKE_device_destroy], 2);
        c = crowd_open(ctx, api, "fake", false);
        assert_int_equal(calls[FAKE_adapter_request_device], 4);
        a = crowd_open(ctx, api, NULL, false);
        assert_int_equal(calls[FAKE_adapter_request_device], 5);
        tg_webgpu_executor.close(a);
        tg_webgpu_executor.close(c);
        fake_webgpu_lose(); /* while nobody uses them: the next one opens another all the same */
        a = crowd_open(ctx, api, NULL, false);
        assert_int_equal(calls[FAKE_adapter_request_device], 6);
        support_assert_no_error(ctx);
        tg_webgpu_executor.close(a);
        tg_close_idle_devices();
        assert_int_equal(fake_webgpu_counts()->live, 0);
        assert_nothing_left("sharing", flavour, 0, other);
        assert_nothing_left("sharing", flavour, 0, ctx);
        tg_context_destroy(other);
        tg_context_destroy(ctx);
    }
}

/* Each model has its own states, results and errors, whatever goes wrong for another; and what has the same source is compiled once. */
static void one_models_faults_are_not_anothers(void **state) {
    (void)state;
    scene sc;
    scene_make_with(&sc, build_step, NULL, 7);
    const tg_webgpu_api *api = begin_fake(NULL);
    support_allocator counts[CROWD];
    static seen records[CROWD];
    session crowd[CROWD];
    float want[8] = {0}, loss = 0;
    for (int i = 0; i < CROWD; i++) session_begin(&crowd[i], &sc, &counts[i], api, &records[i]);
    const int64_t made = fake_webgpu_counts()->pipelines;
    assert_int_equal(made - 1, tg_webgpu_count(crowd[0].device)->pipelines); /* and the proof's */
    for (int i = 0; i < 8; i++) session_step(&crowd[0], &want[i]);
    for (int way = 0; way < FAKE_WAYS; way++)
        for (int64_t n = 1; n < 200; n++) { /* every call of a step of the second one fails */
            void *outputs[SCENE_OUTPUTS] = {&loss};
            fake_webgpu_fail(n, way);
            const tg_status status = tg_webgpu_executor.run(crowd[1].device, crowd[1].executable, (const void *const *)sc.inputs, outputs);
            const bool failed = fake_webgpu_counts()->failed;
            fake_webgpu_fail(0, 0);
            if (!failed) break;
            if (status == TG_OK) fail_msg("call %lld failed in way %d and nobody said so", (long long)n, way);
            tg_clear_error(crowd[1].ctx);
            void *others[SCENE_OUTPUTS] = {NULL};
            session_must(&crowd[3], tg_webgpu_executor.run(crowd[3].device, crowd[3].executable, (const void *const *)sc.inputs, others));
            support_assert_no_error(crowd[3].ctx);
        }
    for (int i = 0; i < 8; i++) { /* as the first */
        session_step(&crowd[2], &loss);
        assert_memory_equal(&loss, &want[i], sizeof loss);
    }
    assert_int_equal(fake_webgpu_counts()->pipelines, made);
    for (int i = 0; i < CROWD; i++) {
        tg_webgpu_executor.unload(crowd[i].device, crowd[i].executable);
        tg_webgpu_executor.close(crowd[i].device);
    }
    for (int i = 0; i < CROWD; i++) {
        assert_nothing_left("crowd", i, 0, crowd[i].ctx);
        tg_context_destroy(crowd[i].ctx);
    }
    scene_free(&sc);
}

/* The fake is for one thread: what two threads do is right only if each call of it is made under the lock. */
static void *run_in_a_thread(void *user) {
    session *s = user;
    float loss = 0;
    void *outputs[SCENE_OUTPUTS] = {&loss};
    for (int i = 0; i < 200 && s->failures == 0; i++) {
        const void *const *inputs = (const void *const *)s->scene->inputs;
        if (tg_webgpu_executor.run(s->device, s->executable, inputs, outputs) != TG_OK) s->failures++;
        if (i % 8 == 0 && session_states(s, i % 16 == 0) != TG_OK) s->failures++;
        s->seen->used = 0;
        if (i % 20 != 0) continue;
        tg_webgpu_executor.unload(s->device, s->executable);
        tg_webgpu_executor.close(s->device);
        tg_close_idle_devices();
        s->device = NULL;
        s->executable = NULL;
        const tg_open_options open = {.threads = 1};
        if (tg_webgpu_open_with(s->ctx, fake_webgpu_table(), &open, &s->device) != TG_OK || session_make_states(s) != TG_OK ||
            tg_webgpu_executor.load(s->device, s->scene->program.program, s->scene->slots, &s->executable) != TG_OK)
            s->failures++;
    }
    return NULL;
}

static void threads_share_one_gpu(void **state) {
    (void)state;
    scene sc;
    scene_make_with(&sc, build_step, NULL, 7);
    for (int timing = 0; timing < 3; timing++) {
        const fake_options options = {.at_once = timing == 1, .delay = timing == 2 ? 2 : 0};
        const tg_webgpu_api *api = begin_fake(&options);
        support_allocator counts[CROWD];
        static seen records[CROWD];
        session crowd[CROWD];
        pthread_t threads[CROWD];
        for (int i = 0; i < CROWD; i++) session_begin(&crowd[i], &sc, &counts[i], api, &records[i]);
        for (int i = 0; i < CROWD; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_in_a_thread, &crowd[i]), 0);
        for (int i = 0; i < CROWD; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < CROWD; i++) {
            if (crowd[i].failures > 0) fail_msg("thread %d: %s", i, tg_error_message(crowd[i].ctx));
            tg_webgpu_executor.unload(crowd[i].device, crowd[i].executable);
            tg_webgpu_executor.close(crowd[i].device);
        }
        for (int i = 0; i < CROWD; i++) {
            assert_nothing_left("threads", i, 0, crowd[i].ctx);
            tg_context_destroy(crowd[i].ctx);
        }
    }
    scene_free(&sc);
}

static void adapters_are_listed(void **state) {
    (void)state;
    const fake_adapter both[] = {fake_adapter_make("Bank Graphics 770", TG_WGPU_ADAPTER_INTEGRATED),
                                 fake_adapter_make("Tower RTX", TG_WGPU_ADAPTER_DISCRETE)};
    for (int flavour = 0; flavour < 3; flavour++) {
        const fake_options options = {.flavour = flavours[flavour], .adapters = both, .adapter_count = 2};
        const fake_options none = {.flavour = flavours[flavour], .adapters = both, .adapter_count = 0};
        tg_context *ctx = support_context();
        tg_adapter_info list[4];
        int count = -1;
        memset(list, 0, sizeof list);
        assert_int_equal(tg_webgpu_adapters_with(ctx, begin_fake(&options), list, 4, &count), TG_OK);
        assert_nothing_left("list", 0, 0, ctx);
        assert_int_equal(count, 2);
        assert_string_equal(list[0].name, "Tower RTX");
        assert_string_equal(list[0].type, "discrete");
        assert_string_equal(list[0].backend, "vulkan");
        assert_string_equal(list[0].vendor, "Fake Vendor");
        assert_string_equal(list[1].name, "Bank Graphics 770");
        assert_string_equal(list[1].type, "integrated");
        assert_int_equal(list[0].max_storage_buffers, 10);
        assert_true(list[0].max_buffer_bytes == INT64_C(4) << 30 && list[0].max_binding_bytes == INT64_C(2) << 30);
        assert_int_equal(list[0].max_workgroup_bytes, 32768);
        assert_int_equal(list[0].max_workgroup_invocations, 1024);
        list[0].name[0] = list[1].name[0] = '?';
        assert_int_equal(tg_webgpu_adapters_with(ctx, begin_fake(&options), list, 1, &count), TG_OK);
        assert_int_equal(count, 2);
        assert_string_equal(list[0].name, "Tower RTX");
        assert_true(list[1].name[0] == '?');
        assert_int_equal(tg_webgpu_adapters_with(ctx, begin_fake(&none), list, 4, &count), TG_OK);
        assert_int_equal(count, 0);
        assert_nothing_left("list", 0, 0, ctx);
        tg_context_destroy(ctx);
    }
}

/* ---------------------------------------------------------------- halves */

static tg_status open_halves(tg_context *ctx, fake_flavour flavour, fake_halves offered, uint32_t type, bool wanted, bool *f16,
                             int *subgroup) {
    const fake_adapter adapter = fake_adapter_make("Fake GPU", type);
    const fake_options options = {.flavour = flavour, .halves = offered, .adapters = &adapter, .adapter_count = 1};
    const tg_open_options open = {.threads = 1, .f16 = wanted};
    tg_device *device = NULL;
    const tg_status status = tg_webgpu_open_with(ctx, begin_fake(&options), &open, &device);
    if (status != TG_OK) return status;
    *f16 = tg_webgpu_executor.model(device)->f16;
    *subgroup = tg_webgpu_executor.model(device)->matrix_subgroup;
    tg_webgpu_executor.close(device);
    return TG_OK;
}

/* A device uses what was wanted, is listed, and makes a pipeline when it is tried; nothing is tried where nothing is wanted. */
static void halves_are_tried_out(void **state) {
    (void)state;
    static const struct {
        fake_halves offered;
        bool wanted, f16;
        int subgroup, pipelines;
    } cases[] = {{FAKE_NO_F16, true, false, 0, 1},   {FAKE_F16, true, true, 0, 2},        {FAKE_F16, false, false, 0, 1},
                 {FAKE_MATRICES, true, true, 32, 3}, {FAKE_MATRICES, false, false, 0, 1}, {FAKE_MATRICES_REFUSED, true, true, 0, 3}};
    tg_context *ctx = support_context();
    bool f16 = false;
    int subgroup = 0;
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) {
        if (open_halves(ctx, FAKE_DAWN, cases[i].offered, TG_WGPU_ADAPTER_DISCRETE, cases[i].wanted, &f16, &subgroup) != TG_OK)
            fail_msg("case %d: %s", i, tg_error_message(ctx));
        assert_nothing_left("halves", i, 0, ctx);
        assert_int_equal(f16, cases[i].f16);
        assert_int_equal(subgroup, cases[i].subgroup);
        assert_in_range(fake_webgpu_counts()->pipelines, cases[i].pipelines, cases[i].pipelines + (cases[i].offered < FAKE_MATRICES));
        support_assert_no_error(ctx); /* what a device does not take is no error */
    }
    /* a processor in disguise gets no tiles; other libraries list no numbers that are certain */
    assert_int_equal(open_halves(ctx, FAKE_DAWN, FAKE_MATRICES, TG_WGPU_ADAPTER_CPU, true, &f16, &subgroup), TG_OK);
    assert_true(!f16 && subgroup == 0);
    assert_int_equal(open_halves(ctx, FAKE_MINIMAL, FAKE_MATRICES, TG_WGPU_ADAPTER_DISCRETE, true, &f16, &subgroup), TG_OK);
    assert_true(!f16 && subgroup == 0);
    assert_nothing_left("halves", 9, 0, ctx);
    tg_context_destroy(ctx);
}

/* A failure on the way leaks nothing. A device that opens all the same may be without tiles of
 * halves. */
static void trying_out_may_fail(void **state) {
    (void)state;
    const fake_options options = {.halves = FAKE_MATRICES};
    const tg_open_options open = {.threads = 1, .f16 = true};
    int64_t calls = 0;
    for (int way = -1; way < FAKE_WAYS; way++) /* first without a failure, to count the calls */
        for (int64_t n = way < 0 ? 0 : 1; n <= (way < 0 ? 0 : calls); n++) {
            tg_context *ctx = support_context();
            tg_device *device = NULL;
            const tg_webgpu_api *api = begin_fake(&options);
            fake_webgpu_fail(n, way);
            const tg_status status = tg_webgpu_open_with(ctx, api, &open, &device);
            if (way < 0) calls = fake_webgpu_counts()->failable;
            if (status == TG_OK) {
                const tg_device_model *limits = tg_webgpu_executor.model(device);
                assert_true(limits->f16 || limits->matrix_subgroup == 0);
                assert_true(way >= 0 || limits->matrix_subgroup == 32);
                support_assert_no_error(ctx);
                tg_webgpu_executor.close(device);
            } else assert_int_equal(tg_error(ctx), status);
            assert_nothing_left("failure while opening", n, way, ctx);
            tg_context_destroy(ctx);
        }
    assert_in_range(calls, 20, 200);
}

/* ---------------------------------------------------------------- whole models on the fake library */

#if defined(FAKE_WEBGPU_LIBRARY)
static struct { /* the functions of the library that the loader opens: not those linked here */
    const tg_webgpu_api *(*begin)(const fake_options *options);
    void (*end)(void);
    const fake_counts *(*counts)(void);
    const char *(*first_mistake)(void);
    const char *(*call_name)(fake_call call);
    void (*fail_call)(int64_t n, int way);
    void (*lose_at)(int64_t n);
    void (*lose)(void);
} library;

static void begin_library(const fake_options *options) {
    tg_close_idle_devices();
    (void)library.begin(options);
}

static void library_symbol(void *handle, const char *name, void *function, size_t size) {
    void *symbol = dlsym(handle, name);
    assert_non_null(symbol);
    memcpy(function, &symbol, size);
}

#  define LIBRARY_SYMBOL(handle, name) library_symbol(handle, "fake_webgpu_" #  name, &library.name, sizeof library.name)

static int library_open(void **state) {
    (void)state;
    void *handle = dlopen(FAKE_WEBGPU_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fail_msg("%s", dlerror());
    LIBRARY_SYMBOL(handle, begin);
    LIBRARY_SYMBOL(handle, end);
    LIBRARY_SYMBOL(handle, counts);
    LIBRARY_SYMBOL(handle, first_mistake);
    LIBRARY_SYMBOL(handle, call_name);
    library_symbol(handle, "fake_webgpu_fail", &library.fail_call, sizeof library.fail_call);
    LIBRARY_SYMBOL(handle, lose_at);
    LIBRARY_SYMBOL(handle, lose);
    setenv("TENSORGRAD_WEBGPU_LIB", FAKE_WEBGPU_LIBRARY, 1);
    return 0;
}

static int library_close(void **state) {
    (void)state;
    unsetenv("TENSORGRAD_WEBGPU_LIB");
    library.end();
    return 0;
}

static const float model_x[12] = {0.5f, -1, 2, 0.25f, 1, -0.5f, -2, 1.5f, 0, 1, 1, 1}, model_y[4] = {1, -1, 0.5f, 2};
#  define MODEL_FEEDS \
    { tg_feed_f32("x", model_x, 12), tg_feed_f32("y", model_y, 4) }
#  define MODEL_COUNT 26

/* user: NULL, or a model for any number of rows */
static tg_tensor build_model_output(tg_graph *g, void *user) {
    tg_tensor x = tg_input(g, "x", TG_SHAPE(user != NULL ? TG_ANY : 4, 3), TG_F32);
    tg_linear l1 = tg_nn_linear(g, "l1", 3, 5), l2 = tg_nn_linear(g, "l2", 5, 1);
    return tg_nn_linear_fwd(l2, tg_relu(tg_nn_linear_fwd(l1, x)));
}

static tg_tensor build_model(tg_graph *g, void *user) {
    tg_tensor out = build_model_output(g, user);
    return tg_nn_mse(out, tg_input(g, "y", TG_SHAPE(user != NULL ? TG_ANY : 4, 1), TG_F32));
}

/* What can be seen of a model: parameters, gradients of one, the step count. */
typedef struct view {
    float params[MODEL_COUNT], gradient[15], loss;
    int64_t steps;
} view;

static tg_status view_take(tg_model *m, view *v) {
    tg_status status = tg_param_download(m, "l1.W", v->params, 15);
    if (status == TG_OK) status = tg_param_download(m, "l1.b", v->params + 15, 5);
    if (status == TG_OK) status = tg_param_download(m, "l2.W", v->params + 20, 5);
    if (status == TG_OK) status = tg_param_download(m, "l2.b", v->params + 25, 1);
    if (status == TG_OK && tg_model_step_count(m) > 0) status = tg_param_grad_download(m, "l1.W", v->gradient, 15);
    v->steps = tg_model_step_count(m);
    return status;
}

/* With AUTO a device that computes wrongly is no device: the CPU, and the log says why. An application's own is an error. */
static char last_log[1024];
static void keep_log(void *user, tg_log_level level, const char *message) {
    (void)user;
    (void)level;
    snprintf(last_log, sizeof last_log, "%s", message);
}

static void auto_takes_the_cpu_instead(void **state) {
    (void)state;
    fake_adapter broken[] = {fake_adapter_make("Tower RTX", TG_WGPU_ADAPTER_DISCRETE),
                             fake_adapter_make("Null backend", TG_WGPU_ADAPTER_CPU)};
    broken[0].skill = broken[1].skill = FAKE_NOTHING;
    broken[1].backend = TG_WGPU_BACKEND_NULL;
    for (int first = 0; first < 2; first++) {
        const fake_options options = {.adapters = &broken[first], .adapter_count = 1};
        const tg_context_options context = {.log = keep_log};
        tg_compile_options o = {.optimizer = tg_sgd(.lr = tg_lr_constant(0.1))};
        tg_context *ctx = tg_context_create(&context);
        tg_model_info info;
        begin_library(&options);
        tg_model *m = tg_compile(ctx, build_model, NULL, &o);
        if (m == NULL) fail_msg("%s", tg_error_message(ctx));
        assert_int_equal(tg_model_get_info(m, &info), TG_OK);
        assert_int_equal(strncmp(info.device, "cpu", 3), 0);
        assert_non_null(strstr(last_log, "no GPU, the CPU is used"));
        assert_non_null(strstr(last_log, broken[first].name));
        tg_model_destroy(m);
        o.device = TG_DEVICE_WEBGPU;
        assert_null(tg_compile(ctx, build_model, NULL, &o));
        assert_int_equal(tg_error(ctx), TG_ERROR_DEVICE);
        assert_non_null(strstr(tg_error_message(ctx), broken[first].name));
        setenv("TENSORGRAD_ADAPTER", "null", 1);
        m = first == 1 ? tg_compile(ctx, build_model, NULL, &o) : NULL;
        unsetenv("TENSORGRAD_ADAPTER");
        if (m != NULL) assert_int_equal(tg_model_get_info(m, &info), TG_OK);
        if (m != NULL) assert_string_equal(info.device, "webgpu (Null backend, which executes nothing)");
        assert_int_equal(m != NULL, first == 1);
        tg_model_destroy(m);
        tg_close_idle_devices();
        assert_int_equal(library.counts()->live, 0);
        tg_context_destroy(ctx);
    }
}

static tg_model *model_make(tg_context *ctx) {
    tg_compile_options o;
    memset(&o, 0, sizeof o);
    o.optimizer = tg_adam(.lr = tg_lr_constant(0.05));
    o.device = TG_DEVICE_WEBGPU;
    return tg_compile(ctx, build_model, NULL, &o);
}

static tg_status model_steps(tg_model *m, int count, view *v) {
    const tg_feed feeds[] = MODEL_FEEDS;
    tg_status status = TG_OK;
    for (int i = 0; i < count && status == TG_OK; i++) status = tg_step(m, feeds, 2, &v->loss);
    return status == TG_OK ? view_take(m, v) : status;
}

static void model_must(tg_context *ctx, tg_status status) {
    if (status != TG_OK) fail_msg("%d: %s", (int)status, tg_error_message(ctx));
}

static void model_end(const char *what, int64_t n, tg_context *ctx, tg_model *m) {
    const fake_counts *c = library.counts();
    tg_model_destroy(m);
    tg_close_idle_devices();
    if (c->mistakes > 0) fail_msg("%s %lld: %s", what, (long long)n, library.first_mistake());
    if (c->live != 0 || c->texts != 0 || ctx->live_blocks != 0)
        fail_msg("%s %lld: %lld objects, %lld texts, %lld blocks left", what, (long long)n, (long long)c->live, (long long)c->texts,
                 (long long)ctx->live_blocks);
}

/* Two steps, then three more from what is there. */
static void model_reference(view *v, fake_counts *counts) {
    tg_context *ctx = support_context();
    memset(v, 0, sizeof *v);
    begin_library(NULL);
    tg_model *m = model_make(ctx);
    if (m == NULL) fail_msg("%s", tg_error_message(ctx));
    model_must(ctx, model_steps(m, 3, v));
    *counts = *library.counts();
    model_end("reference", 0, ctx, m);
    tg_context_destroy(ctx);
}

static void a_model_recovers_from_every_loss(void **state) {
    (void)state;
    view want, got;
    fake_counts whole;
    model_reference(&want, &whole);
    int64_t recovered = 0;
    for (int64_t n = 1; n <= whole.calls; n++) {
        tg_context *ctx = support_context();
        memset(&got, 0, sizeof got);
        begin_library(NULL);
        library.lose_at(n);
        tg_model *m = model_make(ctx);
        if (m == NULL && tg_error(ctx) != TG_ERROR_DEVICE_LOST) fail_msg("loss at call %lld: %s", (long long)n, tg_error_message(ctx));
        tg_status status = m != NULL ? model_steps(m, 3, &got) : TG_OK;
        if (status != TG_OK) {
            const tg_feed feeds[] = MODEL_FEEDS;
            assert_int_equal(status, TG_ERROR_DEVICE_LOST);
            assert_int_equal(tg_step(m, feeds, 2, NULL), TG_ERROR_DEVICE_LOST);
            assert_int_equal(tg_model_snapshot(m), TG_ERROR_DEVICE_LOST);
            model_must(ctx, tg_model_recover(m)); /* the snapshot is that of compiling: the same steps again */
            assert_int_equal(tg_model_step_count(m), 0);
            model_must(ctx, model_steps(m, 3, &got));
            recovered++;
        }
        if (m != NULL && memcmp(&got, &want, sizeof got) != 0) fail_msg("loss at call %lld: other values", (long long)n);
        model_end("loss at call", n, ctx, m);
        tg_context_destroy(ctx);
    }
    assert_true(recovered > 20);
}

static void recovery_goes_on_from_the_snapshot(void **state) {
    (void)state;
    view kept, now, again;
    char path[256];
    tg_context *ctx = support_context();
    const tg_feed x = tg_feed_f32("x", model_x, 12);
    float out[4];
    support_path(path, sizeof path, "faults.safetensors");
    memset(&kept, 0, sizeof kept);
    memset(&now, 0, sizeof now);
    memset(&again, 0, sizeof again);
    begin_library(NULL);
    tg_model *m = model_make(ctx);
    assert_non_null(m);
    model_must(ctx, tg_model_recover(m)); /* nothing is lost: nothing happens */
    model_must(ctx, model_steps(m, 3, &kept));
    model_must(ctx, tg_model_save(m, path)); /* which takes a snapshot */
    model_must(ctx, model_steps(m, 2, &now));
    assert_memory_not_equal(now.params, kept.params, sizeof now.params);
    library.lose();
    assert_int_equal(model_steps(m, 1, &now), TG_ERROR_DEVICE_LOST);
    model_must(ctx, tg_model_recover(m));
    model_must(ctx, tg_model_recover(m));
    now.loss = kept.loss;
    model_must(ctx, view_take(m, &now));
    assert_memory_equal(&now, &kept, sizeof now);
    tg_model *sibling = tg_compile_sibling(m, build_model_output, NULL);
    assert_non_null(sibling);
    model_must(ctx, model_steps(m, 2, &now));
    library.lose();
    assert_int_equal(tg_run(sibling, &x, 1, out, 4), TG_ERROR_DEVICE_LOST);
    model_must(ctx, tg_model_recover(sibling)); /* through either handle, to the same place again */
    model_must(ctx, model_steps(m, 2, &again));
    assert_memory_equal(&now, &again, sizeof now);
    model_must(ctx, tg_model_snapshot(sibling));
    library.lose();
    assert_int_equal(tg_model_snapshot(m), TG_ERROR_DEVICE_LOST);
    model_must(ctx, tg_model_recover(m));
    model_must(ctx, view_take(m, &again));
    assert_memory_equal(&now, &again, sizeof now);
    model_must(ctx, tg_run(sibling, &x, 1, out, 4));
    model_end("recovery", 0, ctx, m);
    tg_context_destroy(ctx);
    remove(path);
}

/* All models on a device are lost with it, and recover one by one onto one new device. */
static void models_are_lost_and_recovered_together(void **state) {
    (void)state;
    enum { MODELS = 3 };
    view kept[MODELS], again;
    tg_model *models[MODELS];
    tg_context *contexts[MODELS];
    begin_library(NULL);
    memset(kept, 0, sizeof kept);
    memset(&again, 0, sizeof again);
    for (int i = 0; i < MODELS; i++) {
        contexts[i] = support_context();
        models[i] = model_make(contexts[i]);
        assert_non_null(models[i]);
        model_must(contexts[i], model_steps(models[i], i + 1, &kept[i]));
        model_must(contexts[i], tg_model_snapshot(models[i]));
        assert_true(tg_webgpu_same_gpu(models[0]->family->device, models[i]->family->device));
    }
    for (int round = 0; round < 3; round++) {
        const int64_t opened = library.counts()->of[FAKE_adapter_request_device];
        library.lose();
        for (int i = 0; i < MODELS; i++) assert_int_equal(model_steps(models[i], 1, &again), TG_ERROR_DEVICE_LOST);
        for (int i = 0; i < MODELS; i++) {
            const int m = (i + round) % MODELS;
            for (int j = i; j < MODELS; j++) /* those that have not recovered are lost still */
                assert_int_equal(model_steps(models[(j + round) % MODELS], 1, &again), TG_ERROR_DEVICE_LOST);
            model_must(contexts[m], tg_model_recover(models[m]));
            again = kept[m];
            model_must(contexts[m], view_take(models[m], &again));
            assert_memory_equal(&again, &kept[m], sizeof again);
            assert_true(tg_webgpu_same_gpu(models[round % MODELS]->family->device, models[m]->family->device));
        }
        assert_int_equal(library.counts()->of[FAKE_adapter_request_device], opened + 1);
    }
    for (int i = 0; i < MODELS; i++) model_must(contexts[i], model_steps(models[i], 1, &again));
    for (int i = 1; i < MODELS; i++) tg_model_destroy(models[i]);
    model_end("together", 0, contexts[0], models[0]);
    for (int i = 0; i < MODELS; i++) {
        assert_int_equal(contexts[i]->live_blocks, 0);
        tg_context_destroy(contexts[i]);
    }
}

/* Steps of three sizes, one of which goes for another in between. */
static tg_status sizes_steps(tg_model *m, view *v) {
    static const int64_t sizes[] = {4, 2, 3, 4, 1, 3, 2};
    tg_status status = TG_OK;
    for (int i = 0; i < SUPPORT_COUNT(sizes) && status == TG_OK; i++) {
        const tg_feed feeds[] = {tg_feed_f32("x", model_x, 3 * sizes[i]), tg_feed_f32("y", model_y, sizes[i])};
        status = tg_step(m, feeds, 2, &v->loss);
    }
    return status == TG_OK ? view_take(m, v) : status;
}

static tg_model *sizes_make(tg_context *ctx) {
    static int any;
    tg_compile_options o;
    memset(&o, 0, sizeof o);
    o.optimizer = tg_adam(.lr = tg_lr_constant(0.05));
    o.device = TG_DEVICE_WEBGPU;
    o.max_sizes = 2;
    return tg_compile(ctx, build_model, &any, &o);
}

/* The GPU objects of a size go with it; and whenever the device is lost, all sizes there are come back with the model. */
static void sizes_are_freed_and_recovered(void **state) {
    (void)state;
    view want, got;
    memset(&want, 0, sizeof want);
    tg_context *ctx = support_context();
    begin_library(NULL);
    tg_model *m = sizes_make(ctx);
    assert_non_null(m);
    model_must(ctx, sizes_steps(m, &want));
    const fake_counts whole = *library.counts();
    got = want;
    model_must(ctx, sizes_steps(m, &got));
    assert_int_equal(library.counts()->live, whole.live);
    assert_int_equal(library.counts()->live_buffer_bytes, whole.live_buffer_bytes);
    model_end("sizes", 0, ctx, m);
    tg_context_destroy(ctx);
    int64_t recovered = 0;
    for (int64_t n = 1; n <= whole.calls; n += 11) {
        ctx = support_context();
        memset(&got, 0, sizeof got);
        begin_library(NULL);
        library.lose_at(n);
        m = sizes_make(ctx);
        if (m != NULL && sizes_steps(m, &got) != TG_OK) {
            if (tg_error(ctx) != TG_ERROR_DEVICE_LOST) fail_msg("loss at call %lld: %s", (long long)n, tg_error_message(ctx));
            model_must(ctx, tg_model_recover(m));
            assert_int_equal(tg_model_step_count(m), 0);
            model_must(ctx, sizes_steps(m, &got));
            recovered++;
        }
        if (m != NULL && memcmp(&got, &want, sizeof got) != 0) fail_msg("loss at call %lld: other values", (long long)n);
        model_end("sizes, loss at call", n, ctx, m);
        tg_context_destroy(ctx);
    }
    assert_true(recovered > 20);
}

/* A size whose compiling and running fail at any call of the library, in any way, may be tried again. */
static void every_call_of_compiling_a_size_fails(void **state) {
    (void)state;
    const tg_feed two[] = {tg_feed_f32("x", model_x, 6), tg_feed_f32("y", model_y, 2)}, four[] = MODEL_FEEDS;
    float loss = 0;
    bool done = false;
    for (int way = 0; way < FAKE_WAYS; way++, done = false)
        for (int64_t n = 1 + way; !done; n += 5) {
            tg_context *ctx = support_context();
            begin_library(NULL);
            tg_model *m = sizes_make(ctx);
            assert_non_null(m);
            model_must(ctx, tg_step(m, two, 2, NULL));
            library.fail_call(n, way);
            const tg_status status = tg_run(m, four, 2, &loss, 1);
            done = !library.counts()->failed;
            library.fail_call(0, 0);
            assert_int_equal(tg_model_step_count(m), 1);
            if (status != TG_OK && tg_error(ctx) != TG_ERROR_DEVICE_LOST) { /* the values of a fake GPU are those of all it has done */
                model_must(ctx, tg_run(m, four, 2, &loss, 1));
                model_must(ctx, tg_step(m, four, 2, &loss));
                model_must(ctx, tg_step(m, two, 2, &loss));
            }
            model_end("compiling a size", n, ctx, m);
            tg_context_destroy(ctx);
        }
}

/* A recovery that fails at any call leaves the model lost; the next try works. */
static void every_call_of_a_recovery_fails(void **state) {
    (void)state;
    view want, got;
    fake_counts whole;
    model_reference(&want, &whole);
    bool done = false;
    for (int way = 0; way < FAKE_WAYS; way++, done = false)
        for (int64_t n = 1; !done; n++) {
            tg_context *ctx = support_context();
            begin_library(NULL);
            tg_model *m = model_make(ctx);
            assert_non_null(m);
            memset(&got, 0, sizeof got);
            model_must(ctx, model_steps(m, 2, &got));
            library.lose();
            assert_int_equal(model_steps(m, 1, &got), TG_ERROR_DEVICE_LOST);
            library.fail_call(n, way);
            tg_status status = tg_model_recover(m);
            done = !library.counts()->failed;
            library.fail_call(0, 0);
            if (status != TG_OK && tg_error_message(ctx)[0] == '\0') fail_msg("call %lld: no message", (long long)n);
            if (status != TG_OK) {
                const tg_status step = model_steps(m, 1, &got);
                if (step != TG_ERROR_DEVICE_LOST) fail_msg("call %lld failed: then a step: %d", (long long)n, (int)step);
                model_must(ctx, tg_model_recover(m));
            }
            memset(&got, 0, sizeof got);
            model_must(ctx, model_steps(m, 3, &got));
            if (library.counts()->failed_call != FAKE_adapter_get_limits && memcmp(&got, &want, sizeof got) != 0)
                fail_msg("call %lld, %s, in way %d: other values", (long long)n, library.call_name(library.counts()->failed_call), way);
            model_end("recovery", n, ctx, m);
            tg_context_destroy(ctx);
            assert_true(n < 10000);
        }
}

/* Two steps that are not waited for, then five on a data set, two a submission; then the tickets. What the fake computes is no number. */
static tg_status train_model(tg_model *m, tg_dataset *d) {
    const tg_feed feeds[] = MODEL_FEEDS;
    const tg_train_options options = {.steps = 5, .order = TG_BATCH_SEQUENTIAL, .steps_per_submission = 2};
    tg_ticket tickets[2] = {0, 0};
    tg_status status = TG_OK;
    for (int i = 0; i < 2 && status == TG_OK; i++) status = tg_step_async(m, feeds, 2, &tickets[i]);
    if (status == TG_OK) status = tg_train(m, d, &options, NULL, NULL);
    for (int i = 0; i < 2 && (status == TG_OK || status == TG_ERROR_NOT_FINITE); i++) status = tg_wait(m, tickets[i], NULL);
    return status == TG_ERROR_NOT_FINITE ? TG_OK : status;
}

static tg_status whole_training(tg_context *ctx, tg_model *m) {
    const tg_feed feeds[] = MODEL_FEEDS;
    tg_dataset *d = tg_dataset_create(m, feeds, 2, 4), *second = d != NULL ? tg_dataset_create(m, feeds, 2, 4) : NULL;
    tg_status status = second != NULL ? train_model(m, d) : tg_error(ctx);
    tg_dataset_destroy(d);
    if (status == TG_OK) status = train_model(m, second);
    if (status == TG_OK) library.lose();
    const tg_train_options options = {.steps = 1};
    tg_status trained = status == TG_OK ? tg_train(m, second, &options, NULL, NULL) : TG_ERROR_DEVICE_LOST;
    if (trained != TG_OK && library.counts()->failed_lost) trained = tg_train(m, second, &options, NULL, NULL); /* that came first */
    if (trained != TG_ERROR_DEVICE_LOST) fail_msg("training on a lost device");
    if (status == TG_OK) status = tg_model_recover(m);
    if (status == TG_OK && (tg_train(m, second, &options, NULL, NULL) != TG_ERROR_STATE || tg_model_step_count(m) != 0))
        fail_msg("training on data that is lost");
    tg_dataset_destroy(second);
    return status;
}

static tg_status whole_model(tg_context *ctx, tg_model **m) {
    const tg_feed x = tg_feed_f32("x", model_x, 12);
    view v;
    float out[4];
    *m = model_make(ctx);
    tg_status status = *m != NULL ? whole_training(ctx, *m) : tg_error(ctx);
    if (status == TG_OK) status = model_steps(*m, 2, &v);
    tg_model *sibling = status == TG_OK ? tg_compile_sibling(*m, build_model_output, NULL) : NULL;
    if (status == TG_OK) status = sibling != NULL ? tg_run(sibling, &x, 1, out, 4) : tg_error(ctx);
    if (status == TG_OK) status = tg_model_snapshot(*m);
    if (status == TG_OK) library.lose();
    if (status == TG_OK && model_steps(*m, 1, &v) == TG_OK) fail_msg("a step of a lost device");
    if (status == TG_OK) status = tg_model_recover(*m);
    if (status == TG_OK) status = tg_model_reset(*m);
    return status == TG_OK ? model_steps(*m, 1, &v) : status;
}

/* Lost at any call of training: steps under way too say so on their tickets, and the count is that of the steps made. */
static void training_meets_every_loss(void **state) {
    (void)state;
    const tg_feed feeds[] = MODEL_FEEDS;
    int64_t lost = 0, made = 0;
    for (int64_t n = 1; lost == n - 1; n++) {
        tg_context *ctx = support_context();
        begin_library(NULL);
        tg_model *m = model_make(ctx);
        tg_dataset *d = tg_dataset_create(m, feeds, 2, 4);
        assert_non_null(d);
        library.lose_at(n);
        const tg_status status = train_model(m, d);
        if (status != TG_OK && status != TG_ERROR_DEVICE_LOST) fail_msg("loss at call %lld: %s", (long long)n, tg_error_message(ctx));
        made = tg_model_step_count(m);
        if (status != TG_OK) {
            lost++;
            assert_true(made < 7);
            model_must(ctx, tg_model_recover(m));
            assert_int_equal(tg_model_step_count(m), 0);
            tg_dataset_destroy(d);
            d = tg_dataset_create(m, feeds, 2, 4);
            model_must(ctx, train_model(m, d));
        }
        if (n % 2 == 0) tg_dataset_destroy(d);
        const fake_counts *c = library.counts();
        tg_ticket ticket = 0;
        if (n % 3 == 0) (void)tg_step_async(m, feeds, 2, &ticket); /* under way while all is destroyed */
        tg_model_destroy(m);
        if (n % 2 != 0) tg_dataset_destroy(d);
        tg_close_idle_devices();
        if (c->mistakes > 0 || c->live != 0 || ctx->live_blocks != 0)
            fail_msg("loss at call %lld: %s, %lld objects left", (long long)n, library.first_mistake(), (long long)c->live);
        tg_context_destroy(ctx);
    }
    assert_true(lost > 40);
}

/* Each ticket keeps its own message, however many failed. */
static void tickets_tell_their_own_messages(void **state) {
    (void)state;
    const tg_feed feeds[] = MODEL_FEEDS;
    tg_context *ctx = support_context();
    tg_ticket tickets[3];
    begin_library(NULL);
    tg_model *m = model_make(ctx);
    assert_non_null(m);
    for (int i = 0; i < 3; i++) model_must(ctx, tg_step_async(m, feeds, 2, &tickets[i]));
    library.lose();
    for (int i = 2; i >= -2; i--) { /* down and up again */
        char begins[16];
        snprintf(begins, sizeof begins, "step %d: ", (i < 0 ? -i : i) + 1);
        assert_int_equal(tg_wait(m, tickets[i < 0 ? -i : i], NULL), TG_ERROR_DEVICE_LOST);
        if (strncmp(tg_error_message(ctx), begins, strlen(begins)) != 0)
            fail_msg("ticket %d says: %s", (i < 0 ? -i : i), tg_error_message(ctx));
    }
    model_end("tickets", 0, ctx, m);
    tg_context_destroy(ctx);
}

static tg_tensor build_two_large_inputs(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor a = tg_input(g, "a", TG_SHAPE(200, 64), TG_F32), b = tg_input(g, "b", TG_SHAPE(200, 64), TG_F32);
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(64), .init = tg_init_ones());
    return tg_add(tg_mean(tg_mul(a, w), TG_ALL), tg_mean(tg_mul(b, w), TG_ALL));
}

/* Every input fits a binding, and the data does, but not all inputs of a batch together, which the kernel that draws binds whole. */
static void a_batch_that_is_too_large_is_named(void **state) {
    (void)state;
    static const float rows[2 * 64] = {1.0f};
    static const char *const said[] = {"a batch", "102400", "65536", "maxStorageBufferBindingSize"};
    const tg_feed feeds[] = {tg_feed_f32("a", rows, 128), tg_feed_f32("b", rows, 128)};
    const tg_compile_options o = {.optimizer = tg_sgd(.lr = tg_lr_constant(0.1)), .device = TG_DEVICE_WEBGPU};
    fake_adapter small = small_adapter();
    small.binding_bytes = 65536;
    const fake_options options = {.adapters = &small, .adapter_count = 1};
    tg_context *ctx = support_context();
    begin_library(&options);
    tg_model *m = tg_compile(ctx, build_two_large_inputs, NULL, &o);
    if (m == NULL) fail_msg("%s", tg_error_message(ctx));
    const tg_status status = tg_dataset_create(m, feeds, 2, 2) != NULL ? TG_OK : tg_error(ctx);
    assert_limit_message(ctx, status, said, SUPPORT_COUNT(said));
    model_end("a batch", 0, ctx, m);
    tg_context_destroy(ctx);
}

/* A row of a table that the model computes, some of them dropped: a run checks the index before it draws. */
static tg_tensor build_drawn_row(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor row = tg_cast(tg_input(g, "x", TG_SHAPE(1), TG_F32), TG_I32);
    return tg_dropout(tg_embedding(tg_param(g, "table", TG_SHAPE(4, 8), .init = tg_init_ones()), row), 0.5);
}

/* Recovery compiles again all that compiling did: the first run after it compiles nothing. */
static void recovery_leaves_nothing_to_compile(void **state) {
    (void)state;
    const float x[1] = {2.0f};
    const tg_feed feed = tg_feed_f32("x", x, 1);
    const tg_compile_options o = {.device = TG_DEVICE_WEBGPU};
    float out[8];
    tg_context *ctx = support_context();
    begin_library(NULL);
    tg_model *m = tg_compile_forward(ctx, build_drawn_row, NULL, &o);
    if (m == NULL) fail_msg("%s", tg_error_message(ctx));
    library.lose();
    assert_int_equal(tg_run(m, &feed, 1, out, 8), TG_ERROR_DEVICE_LOST);
    model_must(ctx, tg_model_recover(m));
    const int64_t pipelines = library.counts()->pipelines;
    const tg_status status = tg_run(m, &feed, 1, out, 8); /* what the fake computes is no index */
    if (status != TG_ERROR_INDEX) model_must(ctx, status);
    assert_int_equal(library.counts()->pipelines, pipelines);
    model_end("recovery", 0, ctx, m);
    tg_context_destroy(ctx);
}

static void every_allocation_of_a_model_fails(void **state) {
    (void)state;
    bool done = false;
    for (int64_t n = 2; !done; n++) {
        support_allocator counts;
        memset(&counts, 0, sizeof counts);
        counts.fail_at = n;
        begin_library(NULL);
        tg_context *ctx = support_context_counting(&counts);
        tg_model *m = NULL;
        const tg_status status = whole_model(ctx, &m);
        done = counts.calls < n;
        if (done ? status != TG_OK : status != TG_ERROR_MEMORY)
            fail_msg("allocation %lld: %d, %s", (long long)n, (int)status, tg_error_message(ctx));
        model_end("allocation", n, ctx, m);
        tg_context_destroy(ctx);
        assert_int_equal(counts.live_blocks, 0);
        assert_false(counts.size_mismatch);
    }
}

static void every_call_of_a_model_fails(void **state) {
    (void)state;
    fake_counts whole;
    tg_context *ctx = support_context();
    tg_model *m = NULL;
    begin_library(NULL);
    model_must(ctx, whole_model(ctx, &m));
    whole = *library.counts();
    model_end("whole", 0, ctx, m);
    for (int64_t n = 1; n <= whole.failable; n++) {
        begin_library(NULL);
        library.fail_call(n, (int)(n % FAKE_WAYS));
        const tg_status status = whole_model(ctx, &m);
        const fake_call call = library.counts()->failed_call;
        if (status == TG_OK && !may_not_matter(call) && !library.counts()->failed_lost)
            fail_msg("call %lld, %s, failed and nobody said so", (long long)n, library.call_name(call));
        if (status == TG_ERROR_INTERNAL || (status != TG_OK && tg_error_message(ctx)[0] == '\0'))
            fail_msg("call %lld, %s: %s", (long long)n, library.call_name(call), tg_error_message(ctx));
        model_end("call", n, ctx, m);
    }
    tg_context_destroy(ctx);
}

static void the_library_is_found_by_the_session(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model_info info;
    tg_adapter_info adapter;
    int count = 0;
    begin_library(NULL);
    model_must(ctx, tg_adapters(ctx, &adapter, 1, &count));
    assert_int_equal(count, 1);
    assert_string_equal(adapter.name, "Fake GPU");
    tg_compile_options o;
    memset(&o, 0, sizeof o);
    tg_model *m = tg_compile(ctx, build_model, NULL, &o); /* AUTO: it looks like a real GPU */
    assert_non_null(m);
    model_must(ctx, tg_model_get_info(m, &info));
    assert_string_equal(info.device, "webgpu (Fake GPU, vulkan)");
    assert_string_equal(info.adapter, "Fake GPU");
    assert_true(info.dispatches > 0);
    model_end("library", 0, ctx, m);
    tg_context_destroy(ctx);
}
#endif

/* Through the public API with an application's device: all functions come from its procedure. */
static void an_applications_functions(void **state) {
    (void)state;
    application app;
    application_open(&app, begin_fake(NULL));
    const tg_webgpu_device own = {(void *)app.instance, (void *)app.device, fake_webgpu_procedure};
    tg_context *ctx = support_context();
    tg_compile_options o;
    memset(&o, 0, sizeof o);
    o.webgpu = &own;
    tg_model *m = tg_compile(ctx, build_step, NULL, &o);
    if (m == NULL) fail_msg("%s", tg_error_message(ctx));
    const float x[12] = {1}, y[4] = {0};
    const tg_feed feeds[] = {tg_feed_f32("x", x, 12), tg_feed_f32("y", y, 4)};
    float loss = 0;
    assert_int_equal(tg_step(m, feeds, 2, &loss), TG_OK);
    assert_int_equal(tg_model_recover(m), TG_OK); /* it is not lost */
    fake_webgpu_lose();
    assert_int_equal(tg_step(m, feeds, 2, &loss), TG_ERROR_DEVICE_LOST);
    assert_int_equal(tg_step(m, feeds, 2, &loss), TG_ERROR_DEVICE_LOST);
    assert_int_equal(tg_model_recover(m), TG_ERROR_STATE);
    tg_model_destroy(m);
    assert_int_equal(app.errors, 0);
    application_close(&app);
    assert_nothing_left("own", 0, 0, ctx);
    tg_context_destroy(ctx);
}

int main(void) {
    unsetenv("TENSORGRAD_WEBGPU_LIB"); /* nothing here is for a real library */
    unsetenv("TENSORGRAD_ADAPTER");
    unsetenv("TENSORGRAD_POISON"); /* which writes more */
    unsetenv("TENSORGRAD_WEBGPU_LIMITS");
    unsetenv("TENSORGRAD_WEBGPU_TOGGLES");
    unsetenv("TENSORGRAD_WEBGPU_TIMEOUT");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_life_without_faults),
        cmocka_unit_test(every_call_fails),
        cmocka_unit_test(every_call_fails_with_other_timing),
        cmocka_unit_test(a_second_try_works),
        cmocka_unit_test(a_shader_that_does_not_compile_is_shown),
        cmocka_unit_test(the_device_is_lost_at_every_call),
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(what_a_step_costs),
        cmocka_unit_test(large_inputs_are_written_from_where_they_lie),
        cmocka_unit_test(a_table_that_does_not_work_is_not_followed),
        cmocka_unit_test(what_many_steps_cost),
        cmocka_unit_test(a_long_step_is_cut),
        cmocka_unit_test(pipelines_are_shared_and_made_together),
        cmocka_unit_test(guaranteed_limits_suffice),
        cmocka_unit_test(limits_of_the_adapter_are_asked_for),
        cmocka_unit_test(what_is_too_large_is_named),
        cmocka_unit_test(adapters_are_chosen),
        cmocka_unit_test(an_adapter_that_executes_nothing),
        cmocka_unit_test(a_device_that_computes_wrongly),
        cmocka_unit_test(the_next_adapter_is_tried),
        cmocka_unit_test(devices_are_shared_and_kept),
        cmocka_unit_test(one_models_faults_are_not_anothers),
        cmocka_unit_test(threads_share_one_gpu),
        cmocka_unit_test(adapters_are_listed),
        cmocka_unit_test(halves_are_tried_out),
        cmocka_unit_test(trying_out_may_fail),
        cmocka_unit_test(an_applications_functions),
#if defined(FAKE_WEBGPU_LIBRARY)
        cmocka_unit_test_setup_teardown(the_library_is_found_by_the_session, library_open, library_close),
        cmocka_unit_test_setup_teardown(auto_takes_the_cpu_instead, library_open, library_close),
        cmocka_unit_test_setup_teardown(a_model_recovers_from_every_loss, library_open, library_close),
        cmocka_unit_test_setup_teardown(recovery_goes_on_from_the_snapshot, library_open, library_close),
        cmocka_unit_test_setup_teardown(models_are_lost_and_recovered_together, library_open, library_close),
        cmocka_unit_test_setup_teardown(sizes_are_freed_and_recovered, library_open, library_close),
        cmocka_unit_test_setup_teardown(every_call_of_compiling_a_size_fails, library_open, library_close),
        cmocka_unit_test_setup_teardown(every_call_of_a_recovery_fails, library_open, library_close),
        cmocka_unit_test_setup_teardown(every_allocation_of_a_model_fails, library_open, library_close),
        cmocka_unit_test_setup_teardown(every_call_of_a_model_fails, library_open, library_close),
        cmocka_unit_test_setup_teardown(training_meets_every_loss, library_open, library_close),
        cmocka_unit_test_setup_teardown(tickets_tell_their_own_messages, library_open, library_close),
        cmocka_unit_test_setup_teardown(a_batch_that_is_too_large_is_named, library_open, library_close),
        cmocka_unit_test_setup_teardown(recovery_leaves_nothing_to_compile, library_open, library_close),
#endif
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fake_webgpu_end();
    return failed;
}
