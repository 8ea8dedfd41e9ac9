/* support: see support.h. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "emit/emit.h"
#include "optim/optim.h"
#include "pass/pass.h"
#include "run/executor.h"

#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- allocation */

typedef struct support_header {
    size_t size;
    void *raw;
} support_header;

static void *support_counting_alloc(void *user, size_t size) {
    support_allocator *state = user;
    state->calls++;
    if (state->fail_at > 0 && (state->calls == state->fail_at || (state->fail_on && state->calls > state->fail_at))) return NULL;
    char *raw = malloc(size + 128);
    if (!raw) return NULL;
    char *block = raw + 128 - (uintptr_t)raw % 64; /* at least 64 bytes of room before an aligned block */
    const support_header header = {size, raw};
    memcpy(block - sizeof header, &header, sizeof header);
    memset(block, 0xA5, size); /* the library must not rely on fresh memory being zero */
    state->live_blocks++;
    state->live_bytes += (int64_t)size;
    return block;
}

static void support_counting_release(void *user, void *block, size_t size) {
    support_allocator *state = user;
    if (!block) return;
    support_header header;
    memcpy(&header, (char *)block - sizeof header, sizeof header);
    if (header.size != size) state->size_mismatch = true;
    state->live_blocks--;
    state->live_bytes -= (int64_t)header.size;
    memset(block, 0x5A, header.size);
    free(header.raw);
}

tg_allocator support_allocator_interface(support_allocator *state) {
    const tg_allocator allocator = {support_counting_alloc, support_counting_release, state};
    return allocator;
}

tg_context *support_context(void) {
    tg_context *ctx = tg_context_create(NULL);
    assert_non_null(ctx);
    return ctx;
}

tg_context *support_context_counting(support_allocator *state) {
    const tg_allocator allocator = support_allocator_interface(state);
    const tg_context_options options = {&allocator, NULL, NULL};
    return tg_context_create(&options);
}

bool support_leaked(const support_allocator *state) {
    if (state->live_blocks == 0 && state->live_bytes == 0 && !state->size_mismatch) return false;
    fprintf(stderr, "%lld blocks, %lld bytes left%s\n", (long long)state->live_blocks, (long long)state->live_bytes,
            state->size_mismatch ? ", a size mismatch" : "");
    return true;
}

void support_assert_no_error(tg_context *ctx) {
    if (tg_error(ctx) == TG_OK) return;
    const tg_site site = tg_error_site(ctx);
    fail_msg("%s: %s (%s:%d)", tg_status_name(tg_error(ctx)), tg_error_message(ctx), site.file, site.line);
}

static void *support_allocate(size_t bytes) {
    void *block = calloc(1, bytes ? bytes : 1);
    if (!block) fail_msg("the test itself ran out of memory");
    return block;
}

/* Remembers the blocks of about `bytes` that are allocated while it is on. */
typedef struct support_watch {
    support_allocator counts;
    bool on;
    size_t bytes;
    void *block;
    size_t block_bytes;
    int matches;
} support_watch;

static void *support_watch_alloc(void *user, size_t size) {
    support_watch *w = user;
    void *block = support_counting_alloc(&w->counts, size);
    if (!block || !w->on || size < w->bytes || size > w->bytes + 256) return block;
    w->matches++;
    w->block = block;
    w->block_bytes = size;
    return block;
}

static void support_watch_release(void *user, void *block, size_t size) {
    support_watch *w = user;
    if (block && block == w->block) w->matches = 0;
    support_counting_release(&w->counts, block, size);
}

/* NaN as f32, -1 as i32. Only when it is certain which block it is. */
static bool support_watch_poison(support_watch *w) {
    if (w->matches != 1) return false;
    memset(w->block, 0xFF, w->block_bytes);
    return true;
}

/* ---------------------------------------------------------------- random numbers */

support_random support_random_make(uint64_t seed) {
    support_random r = {seed};
    support_random_bits(&r);
    return r;
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t support_random_bits(support_random *r) {
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t support_random_below(support_random *r, int64_t n) { return (int64_t)(support_random_bits(r) % (uint64_t)n); }

double support_random_uniform(support_random *r, double lo, double hi) {
    return lo + (hi - lo) * ((double)(support_random_bits(r) >> 11) * 0x1p-53);
}

float support_random_float(support_random *r, double lo, double hi) { return (float)support_random_uniform(r, lo, hi); }

uint64_t support_seed(uint64_t standard) {
    const char *text = getenv("TG_TEST_SEED");
    return text && *text ? strtoull(text, NULL, 0) : standard;
}

int support_env_int(const char *name, int standard) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : standard;
}

/* ---------------------------------------------------------------- files */

static const char *support_temporary(size_t room) {
    const char *folder = getenv("TMPDIR");
    return folder && *folder && strlen(folder) < room ? folder : P_tmpdir;
}

void support_path(char *path, size_t room, const char *name) {
    snprintf(path, room, "%s/tensorgrad-%ld-%s", support_temporary(room - strlen(name) - 40), (long)getpid(), name);
}

void support_folder(char *path, size_t room) {
    snprintf(path, room, "%s/tensorgrad-test-XXXXXX", support_temporary(room - 40));
    if (!mkdtemp(path)) fail_msg("cannot make a directory like %s", path);
}

/* ---------------------------------------------------------------- comparison */

double support_ulp(double got, double want) {
    const double limit = 0x1p128; /* f32's infinity begins half a unit below */
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0.0 : INFINITY;
    if (isinf(want)) return got == want ? 0.0 : INFINITY;
    if (fabs(want) > limit) want = copysign(limit, want);
    if (fabs(got) > limit) got = copysign(limit, got);
    int exponent = want == 0.0 ? -126 : ilogb(want);
    if (exponent < -126) exponent = -126;
    if (exponent > 127) exponent = 127;
    return fabs(got - want) / ldexp(1.0, exponent - 23);
}

bool support_close(double got, double want, support_tolerance tolerance) {
    if (support_ulp(got, want) <= tolerance.ulp) return true;
    const double difference = fabs(got - want); /* NaN or infinite when they differ in kind */
    return difference <= tolerance.absolute || difference <= tolerance.relative * fabs(want);
}

bool support_compare(const char *what, const double *got, const double *want, int64_t count, support_tolerance tolerance) {
    int64_t bad = 0, worst = 0;
    double worst_ulp = -1.0;
    for (int64_t i = 0; i < count; i++) {
        if (support_close(got[i], want[i], tolerance)) continue;
        bad++;
        if (support_ulp(got[i], want[i]) <= worst_ulp) continue;
        worst_ulp = support_ulp(got[i], want[i]);
        worst = i;
    }
    if (bad == 0) return true;
    fprintf(stderr, "%s: %lld of %lld differ; worst at %lld: got %.9g, want %.9g (%.3g ulp; allowed %.3g ulp, %.3g, %.3g relative)\n", what,
            (long long)bad, (long long)count, (long long)worst, got[worst], want[worst], worst_ulp, tolerance.ulp, tolerance.absolute,
            tolerance.relative);
    return false;
}

void support_assert_floats(const char *what, const float *got, const double *want, int64_t count, double relative, double absolute) {
    double *wide = support_allocate(sizeof *wide * (size_t)count);
    for (int64_t i = 0; i < count; i++) wide[i] = (double)got[i];
    const bool same = support_compare(what, wide, want, count, (support_tolerance){0.0, absolute, relative});
    free(wide);
    if (!same) fail_msg("%s: values differ", what);
}

/* ---------------------------------------------------------------- outputs */

static int64_t support_count(tg_shape shape) {
    int64_t count = 1;
    for (int d = 0; d < shape.rank; d++) count *= shape.dim[d];
    return count;
}

static size_t support_element_bytes(tg_dtype dtype) { return dtype == TG_BOOL ? 1 : 4; }

static double *support_outputs_add(support_outputs *outputs, const char *prefix, const char *name, tg_shape shape, tg_dtype dtype) {
    if (outputs->count == outputs->capacity) {
        outputs->capacity = outputs->capacity ? 2 * outputs->capacity : 8;
        outputs->items = realloc(outputs->items, sizeof *outputs->items * (size_t)outputs->capacity);
        if (!outputs->items) fail_msg("the test itself ran out of memory");
    }
    support_value *value = &outputs->items[outputs->count++];
    snprintf(value->name, sizeof value->name, "%s%s", prefix, name);
    value->shape = shape;
    value->dtype = dtype;
    value->count = support_count(shape);
    value->data = support_allocate(sizeof(double) * (size_t)value->count);
    return value->data;
}

void support_outputs_free(support_outputs *outputs) {
    for (int i = 0; i < outputs->count; i++) free(outputs->items[i].data);
    free(outputs->items);
    memset(outputs, 0, sizeof *outputs);
}

static const support_value *support_outputs_look(const support_outputs *outputs, const char *name) {
    for (int i = 0; i < outputs->count; i++)
        if (strcmp(outputs->items[i].name, name) == 0) return &outputs->items[i];
    return NULL;
}

const support_value *support_outputs_find(const support_outputs *outputs, const char *name) {
    const support_value *value = support_outputs_look(outputs, name);
    if (!value) fail_msg("no output '%s' (status %s: %s)", name, tg_status_name(outputs->status), outputs->message);
    return value;
}

static bool support_outputs_failed(support_outputs *out, tg_context *ctx) {
    out->status = tg_error(ctx) == TG_OK ? TG_ERROR_INTERNAL : tg_error(ctx);
    snprintf(out->message, sizeof out->message, "%s",
             tg_error(ctx) == TG_OK ? "a call failed and recorded no error" : tg_error_message(ctx));
    return false;
}

bool support_outputs_equal(const char *what, const support_outputs *got, const support_outputs *want, support_tolerance tolerance) {
    char label[256];
    bool same = true;
    if (got->status != TG_OK || want->status != TG_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, tg_status_name(got->status != TG_OK ? got->status : want->status),
                got->status != TG_OK ? got->message : want->message);
        return false;
    }
    for (int i = 0; i < want->count; i++) {
        const support_value *w = &want->items[i], *g = support_outputs_look(got, w->name);
        snprintf(label, sizeof label, "%s: %s", what, w->name);
        if (!g || g->count != w->count || g->dtype != w->dtype) {
            fprintf(stderr, "%s: missing, or of another shape or dtype\n", label);
            same = false;
            continue;
        }
        const support_tolerance exact = {0.0, 0.0, 0.0};
        same = support_compare(label, g->data, w->data, w->count, w->dtype == TG_F32 ? tolerance : exact) && same;
    }
    return same;
}

bool support_outputs_identical(const char *what, const support_outputs *a, const support_outputs *b) {
    if (!support_outputs_equal(what, a, b, (support_tolerance){0.0, 0.0, 0.0})) return false;
    for (int i = 0; i < b->count; i++) {
        const support_value *va = support_outputs_look(a, b->items[i].name), *vb = &b->items[i];
        for (int64_t k = 0; k < vb->count; k++) {
            if (isnan(vb->data[k]) || signbit(va->data[k]) == signbit(vb->data[k])) continue;
            fprintf(stderr, "%s: %s[%lld]: zeros of different sign\n", what, vb->name, (long long)k);
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------- leaves */

static uint64_t support_hash_name(const char *name) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return h;
}

void support_fill_default(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    (void)shape;
    support_random r = support_random_make(support_hash_name(name) ^ (user ? *(const uint64_t *)user : 1));
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TG_F32) out[i] = support_random_uniform(&r, -2.0, 2.0);
        else if (dtype == TG_I32) out[i] = (double)(support_random_below(&r, 11) - 5);
        else out[i] = (double)(support_random_bits(&r) >> 63);
    }
}

static void support_round(double *data, int64_t count, tg_dtype dtype) {
    for (int64_t i = 0; i < count && dtype == TG_F32; i++) data[i] = (double)(float)data[i];
}

/* A leaf's values; states of the library itself ("tg.") start as the library says. */
static void support_fill_leaf(const support_case *c, const char *name, tg_shape shape, tg_dtype dtype, double value, double *out) {
    const int64_t count = support_count(shape);
    for (int64_t i = 0; i < count; i++) out[i] = value;
    if (strncmp(name, "tg.", 3) != 0) {
        if (c->fill) c->fill(c->fill_user, name, shape, dtype, out, count);
        else support_fill_default(c->fill_user, name, shape, dtype, out, count);
    }
    support_round(out, count, dtype);
}

/* doubles <-> elements of `dtype` */
static void support_encode(void *to, const double *from, int64_t count, tg_dtype dtype) {
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TG_F32) ((float *)to)[i] = (float)from[i];
        else if (dtype == TG_I32) ((int32_t *)to)[i] = (int32_t)from[i];
        else ((uint8_t *)to)[i] = from[i] != 0.0;
    }
}

static void support_decode(double *to, const void *from, int64_t count, tg_dtype dtype) {
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TG_F32) to[i] = (double)((const float *)from)[i];
        else if (dtype == TG_I32) to[i] = (double)((const int32_t *)from)[i];
        else to[i] = (double)((const uint8_t *)from)[i];
    }
}

/* ---------------------------------------------------------------- the reference */

tg_graph *support_trace(tg_context *ctx, const support_case *c) {
    tg_tensor result = {NULL, 0};
    tg_graph *g = tg_trace(ctx, c->build, c->build_user, &result);
    if (!g) return NULL;
    if (tg_error(ctx) != TG_OK || result.id == 0) {
        tg_graph_destroy(g);
        return NULL;
    }
    g->result = result.id;
    return g;
}

static const char *support_leaf_name(const tg_graph *g, int32_t id) {
    const tg_node *node = &g->nodes.items[id];
    const int32_t i = node->attr.leaf;
    if (node->op == TG_OP_INPUT) return g->inputs.items[i].name;
    if (node->op == TG_OP_PARAM) return g->params.items[i].name;
    if (node->op == TG_OP_STATE) return g->states.items[i].name;
    return NULL;
}

static double **support_leaves_make(const support_case *c, const tg_graph *g) {
    double **leaves = support_allocate(sizeof *leaves * (size_t)g->nodes.count);
    for (int32_t id = 1; id < g->nodes.count; id++) {
        const char *name = support_leaf_name(g, id);
        const tg_node *node = &g->nodes.items[id];
        if (!name) continue;
        leaves[id] = support_allocate(sizeof(double) * (size_t)support_count(node->shape));
        const double value = node->op == TG_OP_STATE ? g->states.items[node->attr.leaf].value : 0.0;
        support_fill_leaf(c, name, node->shape, node->dtype, value, leaves[id]);
    }
    return leaves;
}

static void support_leaves_free(double **leaves, const tg_graph *g) {
    for (int64_t id = 0; id < g->nodes.count; id++) free(leaves[id]);
    free(leaves);
}

static void support_reference_writebacks(const tg_graph *g, const tg_reference *r, double **leaves) {
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_writeback_info *w = &g->writebacks.items[i];
        const tg_node *node = &g->nodes.items[w->destination];
        const int64_t count = support_count(node->shape);
        memcpy(leaves[w->destination], tg_reference_value(r, w->source), sizeof(double) * (size_t)count);
        support_round(leaves[w->destination], count, node->dtype);
    }
}

static void support_reference_add(support_outputs *out, const tg_graph *g, const tg_reference *r, const char *prefix, const char *name,
                                  int32_t id) {
    const tg_node *node = &g->nodes.items[id];
    double *data = support_outputs_add(out, prefix, name, node->shape, node->dtype);
    memcpy(data, tg_reference_value(r, id), sizeof(double) * (size_t)support_count(node->shape));
}

static void support_reference_collect(const tg_graph *g, const tg_reference *r, support_outputs *out) {
    support_reference_add(out, g, r, "", "result", g->result);
    for (int64_t i = 0; i < g->captures.count; i++)
        support_reference_add(out, g, r, "", g->captures.items[i].name, g->captures.items[i].node);
    for (int64_t i = 0; i < g->writebacks.count; i++)
        support_reference_add(out, g, r, "after ", support_leaf_name(g, g->writebacks.items[i].destination), g->writebacks.items[i].source);
}

bool support_run_reference(const support_case *c, int runs, support_outputs *out) {
    memset(out, 0, sizeof *out);
    tg_context *ctx = support_context();
    tg_graph *g = support_trace(ctx, c);
    bool ok = g != NULL;
    double **leaves = g ? support_leaves_make(c, g) : NULL;
    for (int run = 0; ok && run < (runs > 0 ? runs : 1); run++) {
        tg_reference *r = tg_reference_run(g, (const double *const *)leaves);
        ok = r != NULL;
        if (ok && run + 1 >= runs) support_reference_collect(g, r, out);
        if (ok) support_reference_writebacks(g, r, leaves);
        tg_reference_destroy(r);
    }
    if (!ok) support_outputs_failed(out, ctx);
    if (g) support_leaves_free(leaves, g);
    if (g) tg_graph_destroy(g);
    tg_context_destroy(ctx);
    return ok;
}

/* ---------------------------------------------------------------- the WebGPU device */

/* One device for all cases of a process: opening one takes tens of milliseconds. */
static struct {
    support_allocator counts;
    tg_context *ctx;
    tg_device *device;
    bool tried;
    char reason[1024];
} support_gpu;

static void support_gpu_close(void) {
    if (!support_gpu.ctx) return;
    if (support_gpu.device) tg_webgpu_executor.close(support_gpu.device);
    tg_context_destroy(support_gpu.ctx);
    support_gpu.device = NULL;
    support_gpu.ctx = NULL;
}

/* After the last test: it can only end the process with a failure. */
static void support_gpu_at_exit(void) {
    support_gpu_close();
    if (!support_leaked(&support_gpu.counts)) return;
    fprintf(stderr, "the WebGPU device left them\n");
    fflush(NULL);
    _Exit(1);
}

static bool support_gpu_open(void) {
    const tg_open_options open = {.threads = 1};
    support_gpu.ctx = support_context_counting(&support_gpu.counts);
    if (support_gpu.ctx && tg_webgpu_executor.open(support_gpu.ctx, &open, &support_gpu.device) == TG_OK) return true;
    snprintf(support_gpu.reason, sizeof support_gpu.reason, "%s", support_gpu.ctx ? tg_error_message(support_gpu.ctx) : "out of memory");
    support_gpu_close();
    return false;
}

bool support_webgpu_available(const char **reason) {
    const char *library = getenv("TENSORGRAD_WEBGPU_LIB");
    if (!support_gpu.tried && library && *library) {
        setenv("TENSORGRAD_POISON", "1", 0);
        setenv("TENSORGRAD_TUNING", "off", 0);
        support_gpu_open();
        atexit(support_gpu_at_exit); /* after the library has registered what it does at exit, so that this comes first */
    } else if (!support_gpu.tried) {
        snprintf(support_gpu.reason, sizeof support_gpu.reason, "TENSORGRAD_WEBGPU_LIB names no library");
    }
    support_gpu.tried = true;
    if (reason) *reason = support_gpu.reason;
    return support_gpu.device != NULL;
}

/* A lost device is opened again, so that one bad case does not fail all that come after it. */
static void support_gpu_after_error(void) {
    const bool lost = tg_error(support_gpu.ctx) == TG_ERROR_DEVICE_LOST;
    tg_clear_error(support_gpu.ctx);
    if (!lost) return;
    support_gpu_close();
    support_gpu_open();
}

support_home support_home_now(void) {
    const char *home = getenv("TENSORGRAD_TEST_HOME");
    return home && strcmp(home, "webgpu") == 0 ? SUPPORT_WEBGPU : SUPPORT_CPU;
}

tg_device_kind support_device(void) { return support_home_now() == SUPPORT_WEBGPU ? TG_DEVICE_WEBGPU : TG_DEVICE_CPU; }

static bool support_webgpu_required(void) {
    const char *text = getenv("TENSORGRAD_TEST_WEBGPU");
    return text && strcmp(text, "required") == 0;
}

int support_home_refuses(const char *suite) {
    const char *reason;
    if (support_home_now() != SUPPORT_WEBGPU || support_webgpu_available(&reason)) return 0;
    fprintf(stderr, "%s: %s: no WebGPU: %s\n", suite, support_webgpu_required() ? "failed" : "skipped", reason);
    return support_webgpu_required() ? 1 : SUPPORT_SKIPPED;
}

void support_need_webgpu(void) {
    const char *reason;
    if (support_webgpu_available(&reason)) return;
    if (support_webgpu_required()) fail_msg("no WebGPU: %s", reason);
    print_message("no WebGPU: %s\n", reason);
    skip();
}

/* ---------------------------------------------------------------- programs */

static tg_device_model support_model(const support_options *options) {
    tg_device_model model = {.max_arguments = 64, .max_binding_bytes = INT64_MAX, .rates = &tg_h200_rates};
    if (options->home == SUPPORT_WEBGPU)
        model = support_webgpu_available(NULL) ? *tg_webgpu_executor.model(support_gpu.device) : tg_device_guaranteed;
    if (options->max_arguments > 0) model.max_arguments = options->max_arguments;
    if (options->joins) model.joins = true;
    return model;
}

static void support_shift(tg_affine *at, int64_t points) { at->offset += at->stride[0] * points; }

/* The kernel for block `slice` of its first loop. */
static tg_kernel support_slice(const support_program *p, const tg_kernel *kernel, int32_t slices, int32_t slice) {
    tg_arena *arena = &p->program->arena;
    tg_kernel k = *kernel;
    k.extent[0] /= slices;
    const int64_t begin = k.extent[0] * slice;
    k.body = tg_arena_copy(arena, kernel->body, sizeof *k.body * (size_t)k.body_count);
    assert_non_null(k.body);
    for (int i = 0; i < k.body_count; i++) {
        support_shift(&k.body[i].at, begin);
        if (k.body[i].bound_count == 0) continue;
        tg_bound *bounds = tg_arena_copy(arena, k.body[i].bounds, sizeof *bounds * (size_t)k.body[i].bound_count);
        assert_non_null(bounds);
        for (int b = 0; b < k.body[i].bound_count; b++) support_shift(&bounds[b].at, begin);
        k.body[i].bounds = bounds;
    }
    support_shift(&k.a.at, begin);
    support_shift(&k.b.at, begin);
    return k;
}

void support_shuffle(support_program *p) {
    tg_program *program = p->program;
    int64_t total = 0, made = 0;
    for (int i = 0; i < program->launch_count; i++)
        total += (int64_t)program->launches[i].count * (program->launches[i].slices > 0 ? program->launches[i].slices : 1);
    tg_kernel *kernels = TG_NEW(&program->arena, tg_kernel, total + 1);
    assert_non_null(kernels);
    for (int i = 0; i < program->launch_count; i++) {
        const tg_launch *l = &program->launches[i];
        for (int k = l->count - 1; k >= 0 && l->slices == 0; k--) kernels[made++] = program->kernels[l->first + k];
        for (int s = l->slices - 1; s >= 0; s--)
            for (int k = 0; k < l->count; k++) kernels[made++] = support_slice(p, &program->kernels[l->first + k], l->slices, s);
    }
    program->kernels = kernels;
    program->kernel_count = (int32_t)total;
    program->launch_count = 0;
}

bool support_program_make(const support_case *c, const support_options *options, support_program *out, support_outputs *error) {
    memset(out, 0, sizeof *out);
    out->watch = support_allocate(sizeof *out->watch);
    const tg_allocator allocator = {support_watch_alloc, support_watch_release, out->watch};
    const tg_context_options context_options = {&allocator, NULL, NULL};
    out->ctx = tg_context_create(&context_options);
    assert_non_null(out->ctx);
    tg_arena_init(&out->layout_arena, out->ctx);
    out->graph = support_trace(out->ctx, c);
    if (!out->graph) return support_outputs_failed(error, out->ctx);
    tg_graph *g = out->graph;
    if (g->params.count > 0) {
        out->layout = tg_arena_alloc(&out->layout_arena, sizeof *out->layout);
        if (!out->layout || tg_layout_make(g, &out->layout_arena, out->layout) != TG_OK) return support_outputs_failed(error, out->ctx);
        if (tg_flatten_params(g, out->layout) != TG_OK) return support_outputs_failed(error, out->ctx);
        out->flat_count = out->layout->total;
    }
    if (tg_graph_verify(g) != TG_OK) return support_outputs_failed(error, out->ctx);
    if (!options->no_passes && tg_pass_run(g, true) != TG_OK) return support_outputs_failed(error, out->ctx);
    if (tg_graph_verify(g) != TG_OK) return support_outputs_failed(error, out->ctx);
    const tg_device_model model = support_model(options);
    const tg_plan_options plan = {.device = &model, .no_fusion = options->no_fusion, .captures = true};
    out->program = tg_program_make(g, &plan);
    if (!out->program) return support_outputs_failed(error, out->ctx);
    if (!options->unchecked && tg_program_check(out->program, out->ctx) != TG_OK) return support_outputs_failed(error, out->ctx);
    if (options->shuffled) support_shuffle(out);
    return true;
}

void support_program_free(support_program *p) {
    if (p->program) tg_program_destroy(p->program, p->ctx);
    if (p->graph) tg_graph_destroy(p->graph);
    tg_arena_free(&p->layout_arena);
    if (p->ctx) tg_context_destroy(p->ctx);
    if (p->watch && (p->watch->counts.live_blocks != 0 || p->watch->counts.size_mismatch))
        fail_msg("%d blocks left after a run%s", (int)p->watch->counts.live_blocks,
                 p->watch->counts.size_mismatch ? ", a size mismatch" : "");
    free(p->watch);
    memset(p, 0, sizeof *p);
}

static void support_fill_flat(const support_program *p, const support_case *c, double *flat) {
    for (int i = 0; i < p->layout->count; i++) {
        const tg_layout_entry *e = &p->layout->entries[i];
        support_fill_leaf(c, e->name, e->shape, TG_F32, 0.0, flat + e->offset);
    }
}

/* Device-ready bytes of a leaf of the program. Free with free. */
static void *support_leaf_bytes(const support_program *p, const support_case *c, const char *name, tg_shape shape, tg_dtype dtype,
                                double value) {
    const int64_t count = support_count(shape);
    double *wide = support_allocate(sizeof(double) * (size_t)count);
    void *bytes = support_allocate(support_element_bytes(dtype) * (size_t)count);
    if (strcmp(name, "tg.parameters") == 0 && p->layout) support_fill_flat(p, c, wide);
    else support_fill_leaf(c, name, shape, dtype, value, wide);
    support_encode(bytes, wide, count, dtype);
    free(wide);
    return bytes;
}

/* Everything fed to a program and read back from it, as device-ready bytes. */
typedef struct support_bindings {
    void **inputs, **states, **outputs;
} support_bindings;

static support_bindings support_bindings_make(const support_program *p, const support_case *c) {
    const tg_program *program = p->program;
    support_bindings b;
    b.inputs = support_allocate(sizeof(void *) * (size_t)program->input_count);
    b.states = support_allocate(sizeof(void *) * (size_t)program->state_count);
    b.outputs = support_allocate(sizeof(void *) * (size_t)program->output_count);
    for (int i = 0; i < program->input_count; i++) {
        const tg_input_info *in = &program->inputs[i];
        b.inputs[i] = support_leaf_bytes(p, c, in->name, in->shape, in->dtype, 0.0);
    }
    for (int i = 0; i < program->state_count; i++) {
        const tg_state_info *s = &program->states[i];
        b.states[i] = support_leaf_bytes(p, c, s->name, s->shape, s->dtype, s->value);
    }
    for (int i = 0; i < program->output_count; i++) {
        const tg_output *o = &program->outputs[i];
        b.outputs[i] = support_allocate(support_element_bytes(o->dtype) * (size_t)support_count(o->shape));
    }
    return b;
}

static void support_bindings_free(support_bindings *b, const tg_program *program) {
    for (int i = 0; i < program->input_count; i++) free(b->inputs[i]);
    for (int i = 0; i < program->state_count; i++) free(b->states[i]);
    for (int i = 0; i < program->output_count; i++) free(b->outputs[i]);
    free(b->inputs);
    free(b->states);
    free(b->outputs);
}

static void support_collect_parameters(const support_program *p, const float *flat, const bool *written, support_outputs *out) {
    for (int i = 0; p->layout && i < p->layout->count; i++) {
        const tg_layout_entry *e = &p->layout->entries[i];
        if (!written[i]) continue;
        double *data = support_outputs_add(out, "after ", e->name, e->shape, TG_F32);
        support_decode(data, flat + e->offset, e->count, TG_F32);
    }
}

/* The states' values after the step, those that the graph writes. Every parameter is reported when any is written. */
static void support_collect_states(const support_program *p, const support_bindings *b, support_outputs *out) {
    for (int64_t w = 0; w < p->graph->writebacks.count; w++) {
        const char *name = support_leaf_name(p->graph, p->graph->writebacks.items[w].destination);
        for (int i = 0; i < p->program->state_count; i++) {
            const tg_state_info *s = &p->program->states[i];
            if (strcmp(s->name, name) != 0) continue;
            if (strcmp(name, "tg.parameters") == 0 && p->layout) {
                bool *all = support_allocate(sizeof(bool) * (size_t)p->layout->count);
                memset(all, 1, sizeof(bool) * (size_t)p->layout->count);
                support_collect_parameters(p, b->states[i], all, out);
                free(all);
            } else {
                double *data = support_outputs_add(out, "after ", name, s->shape, s->dtype);
                support_decode(data, b->states[i], support_count(s->shape), s->dtype);
            }
        }
    }
}

static void support_collect(const support_program *p, const support_bindings *b, support_outputs *out) {
    const tg_program *program = p->program;
    for (int i = 0; i < program->output_count; i++) {
        const tg_output *o = &program->outputs[i];
        const bool is_capture = i >= program->capture_begin && i < program->capture_begin + program->capture_count;
        if (i != 0 && !is_capture) continue;
        double *data = support_outputs_add(out, "", i == 0 ? "result" : o->name, o->shape, o->dtype);
        support_decode(data, b->outputs[i], support_count(o->shape), o->dtype);
    }
    support_collect_states(p, b, out);
    out->kernels = program->kernel_count;
    out->workspace_bytes = program->workspace_bytes;
}

/* ---------------------------------------------------------------- on an executor */

typedef struct support_device_run {
    const tg_executor *executor;
    tg_device *device;
    tg_executable *executable;
    bool poisoned;
    int dispatches;
} support_device_run;

static bool support_device_states(const support_program *p, const support_device_run *run, const support_bindings *b, bool write) {
    const tg_executor *x = run->executor;
    for (int i = 0; i < p->program->state_count; i++) {
        const tg_state_info *s = &p->program->states[i];
        const int64_t count = support_count(s->shape);
        if (write && x->make_state(run->device, i, s->name, s->dtype, count) != TG_OK) return false;
        if (write && x->write_state(run->device, i, 0, b->states[i], count) != TG_OK) return false;
        if (!write && x->read_state(run->device, i, 0, b->states[i], count) != TG_OK) return false;
    }
    return true;
}

/* The CPU's workspace is found and filled here; the WebGPU executor does it itself under TENSORGRAD_POISON=1. */
static bool support_device_load(const support_program *p, support_device_run *run) {
    int32_t *slots = support_allocate(sizeof *slots * (size_t)(p->program->state_count + 1));
    for (int i = 0; i < p->program->state_count; i++) slots[i] = i;
    p->watch->bytes = (size_t)p->program->workspace_bytes;
    p->watch->on = p->program->workspace_bytes > 0;
    const bool ok = run->executor->load(run->device, p->program, slots, &run->executable) == TG_OK;
    p->watch->on = false;
    free(slots);
    return ok;
}

static bool support_device_steps(const support_program *p, int runs, const support_bindings *b, support_device_run *run) {
    const tg_executor *x = run->executor;
    bool ok = support_device_states(p, run, b, true) && support_device_load(p, run);
    if (ok) run->dispatches = x->dispatches(run->executable);
    for (int i = 0; ok && i < (runs > 0 ? runs : 1); i++) {
        run->poisoned = x == &tg_cpu_executor ? support_watch_poison(p->watch) : p->program->workspace_bytes > 0;
        ok = x->run(run->device, run->executable, (const void *const *)b->inputs, b->outputs) == TG_OK;
    }
    ok = ok && support_device_states(p, run, b, false);
    if (run->executable) x->unload(run->device, run->executable);
    run->executable = NULL;
    return ok;
}

static bool support_device_collect(const support_program *p, const support_bindings *b, const support_device_run *run, bool ok,
                                   tg_context *ctx, support_outputs *out) {
    out->poisoned = run->poisoned;
    if (!ok) return support_outputs_failed(out, ctx);
    support_collect(p, b, out);
    out->dispatches = run->dispatches;
    return true;
}

bool support_program_run_cpu(const support_program *p, const support_case *c, const support_options *options, support_outputs *out) {
    support_bindings b = support_bindings_make(p, c);
    support_device_run run = {.executor = &tg_cpu_executor};
    const tg_open_options open = {.threads = options->threads > 0 ? options->threads : 1};
    char *kept = getenv("TENSORGRAD_ISA");
    kept = kept ? strdup(kept) : NULL;
    if (options->isa) setenv("TENSORGRAD_ISA", options->isa, 1);
    bool ok = tg_cpu_executor.open(p->ctx, &open, &run.device) == TG_OK;
    ok = ok && support_device_steps(p, options->runs, &b, &run);
    tg_cpu_executor.close(run.device);
    if (options->isa && kept) setenv("TENSORGRAD_ISA", kept, 1);
    else if (options->isa) unsetenv("TENSORGRAD_ISA");
    free(kept);
    ok = support_device_collect(p, &b, &run, ok, p->ctx, out);
    support_bindings_free(&b, p->program);
    return ok;
}

bool support_program_run_webgpu(const support_program *p, const support_case *c, const support_options *options, support_outputs *out) {
    support_bindings b = support_bindings_make(p, c);
    support_device_run run = {.executor = &tg_webgpu_executor, .device = support_gpu.device};
    const bool done = support_device_steps(p, options->runs, &b, &run);
    const bool ok = support_device_collect(p, &b, &run, done, support_gpu.ctx, out);
    if (!ok) support_gpu_after_error();
    support_bindings_free(&b, p->program);
    return ok;
}

static bool support_run_on(support_home home, const support_case *c, const support_options *options, support_outputs *out) {
    support_program p;
    support_options here = *options;
    here.home = home;
    memset(out, 0, sizeof *out);
    bool ok = support_program_make(c, &here, &p, out);
    if (ok && home == SUPPORT_WEBGPU) ok = support_program_run_webgpu(&p, c, &here, out);
    else if (ok) ok = support_program_run_cpu(&p, c, &here, out);
    support_program_free(&p);
    return ok;
}

bool support_run_cpu(const support_case *c, const support_options *options, support_outputs *out) {
    return support_run_on(SUPPORT_CPU, c, options, out);
}

bool support_run_webgpu(const support_case *c, const support_options *options, support_outputs *out) {
    const char *reason;
    if (support_webgpu_available(&reason)) return support_run_on(SUPPORT_WEBGPU, c, options, out);
    memset(out, 0, sizeof *out);
    out->status = TG_ERROR_DEVICE;
    snprintf(out->message, sizeof out->message, "%.500s", reason);
    return false;
}

bool support_run_home(const support_case *c, const support_options *options, support_outputs *out) {
    return (support_home_now() == SUPPORT_WEBGPU ? support_run_webgpu : support_run_cpu)(c, options, out);
}

/* ---------------------------------------------------------------- programs in plain memory */

static void *support_buffer_address(const tg_program *program, int i, const support_bindings *b, char *workspace) {
    const tg_buffer *buffer = &program->buffers[i];
    switch (buffer->storage) {
    case TG_STORAGE_WORKSPACE: return workspace + buffer->offset;
    case TG_STORAGE_INPUT: return b->inputs[buffer->slot];
    case TG_STORAGE_STATE: return (char *)b->states[buffer->slot] + buffer->offset;
    case TG_STORAGE_CONSTANT: break;
    }
    return (void *)(uintptr_t)buffer->data;
}

bool support_program_run(const support_program *p, const support_case *c, int runs, support_step_fn step, void *user,
                         support_outputs *out) {
    const tg_program *program = p->program;
    support_bindings b = support_bindings_make(p, c);
    const size_t workspace_bytes = (size_t)program->workspace_bytes;
    char *workspace = support_allocate(workspace_bytes + 64);
    void **buffers = support_allocate(sizeof *buffers * (size_t)(program->buffer_count + 1));
    memset(out, 0, sizeof *out);
    for (int i = 0; i < program->buffer_count; i++) buffers[i] = support_buffer_address(program, i, &b, workspace);
    for (int run = 0; run < (runs > 0 ? runs : 1); run++) {
        memset(workspace, 0xFF, workspace_bytes); /* NaN as f32, -1 as i32 */
        step(user, buffers);
    }
    for (int i = 0; i < program->output_count; i++) {
        const tg_output *o = &program->outputs[i];
        memcpy(b.outputs[i], buffers[o->buffer], support_element_bytes(o->dtype) * (size_t)support_count(o->shape));
    }
    support_collect(p, &b, out);
    free(buffers);
    free(workspace);
    support_bindings_free(&b, program);
    return true;
}

/* ---------------------------------------------------------------- emitted C */

struct support_emitted {
    char directory[512], source[600], library[600];
    FILE *file;
    int count;
    void *handle;
    void (**steps)(void *const *);
};

support_emitted *support_emitted_create(void) {
    support_emitted *e = support_allocate(sizeof *e);
    support_folder(e->directory, sizeof e->directory);
    snprintf(e->source, sizeof e->source, "%s/emitted.c", e->directory);
    snprintf(e->library, sizeof e->library, "%s/emitted.so", e->directory);
    e->file = fopen(e->source, "w");
    if (!e->file) fail_msg("cannot write %s", e->source);
    return e;
}

/* Writes the text with every identifier tg_... made p<index>_tg_..., so that many programs fit in one file. */
static void support_emitted_write(support_emitted *e, const char *text) {
    for (const char *at = text; *at;) {
        const char *next = strstr(at, "tg_");
        if (!next) next = at + strlen(at);
        fwrite(at, 1, (size_t)(next - at), e->file);
        if (!*next) break;
        const bool begins =
            next == text || !(next[-1] == '_' || (next[-1] >= 'a' && next[-1] <= 'z') || (next[-1] >= 'A' && next[-1] <= 'Z'));
        if (begins) fprintf(e->file, "p%d_", e->count);
        fwrite(next, 1, 3, e->file);
        at = next + 3;
    }
    fputc('\n', e->file);
}

int support_emitted_add(support_emitted *e, const tg_program *program, tg_context *ctx) {
    tg_text_buffer text;
    tg_text_init(&text, ctx);
    const bool ok = tg_emit_c(program, &text) == TG_OK;
    if (ok) support_emitted_write(e, text.data);
    tg_text_free(&text);
    return ok ? e->count++ : -1;
}

int support_emitted_add_text(support_emitted *e, const char *text) {
    support_emitted_write(e, text);
    return e->count++;
}

static const char *support_compiler(void) {
    const char *cc = getenv("CC");
    return cc && *cc ? cc : "cc";
}

bool support_emitted_compile(support_emitted *e) {
    char command[2048], name[64];
    fclose(e->file);
    e->file = NULL;
    snprintf(command, sizeof command, "%s -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -fPIC -shared -o %s %s -lm", support_compiler(),
             e->library, e->source);
    if (system(command) != 0) {
        fprintf(stderr, "failed: %s\n", command);
        return false;
    }
    e->handle = dlopen(e->library, RTLD_NOW | RTLD_LOCAL);
    if (!e->handle) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    e->steps = support_allocate(sizeof *e->steps * (size_t)(e->count + 1));
    for (int i = 0; i < e->count; i++) {
        snprintf(name, sizeof name, "p%d_tg_emitted_run", i);
        void *symbol = dlsym(e->handle, name);
        if (!symbol) return false;
        memcpy(&e->steps[i], &symbol, sizeof symbol); /* ISO C has no cast from object to function pointer */
    }
    return true;
}

static void support_emitted_call(void *user, void *const *buffers) { (*(void (**)(void *const *))user)(buffers); }

support_step_fn support_emitted_step(support_emitted *e, int index, void **user) {
    *user = &e->steps[index];
    return support_emitted_call;
}

bool support_emitted_available(void) {
    char command[1024];
    snprintf(command, sizeof command, "%s --version >%s 2>&1", support_compiler(), "/dev/null");
    if (system(command) != 0) return false;
    support_emitted *e = support_emitted_create();
    fputs("int support_probe(void);\nint support_probe(void) { return 1; }\n", e->file);
    const bool ok = support_emitted_compile(e);
    support_emitted_destroy(e);
    return ok;
}

void support_emitted_destroy(support_emitted *e) {
    if (!e) return;
    if (e->file) fclose(e->file);
    if (e->handle) dlclose(e->handle);
    unlink(e->source);
    unlink(e->library);
    rmdir(e->directory);
    free(e->steps);
    free(e);
}
