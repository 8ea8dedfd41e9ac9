/* support: what the tests share. Contexts that count or fail allocations, a small random generator with printed seeds,
 * comparison in units in the last place, and running one traced case on the f64 reference, on the CPU and WebGPU executors
 * (through passes, fusion, planner and checker, below the session) and as emitted C. Must not know any single test. */
#ifndef TENSORGRAD_TESTS_SUPPORT_H
#define TENSORGRAD_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "ir/graph.h"
#include "plan/program.h"
#include "tensorgrad/tensorgrad.h"

#if defined(__SANITIZE_ADDRESS__)
#  define SUPPORT_SANITIZED 1
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#    define SUPPORT_SANITIZED 1
#  endif
#endif
#ifndef SUPPORT_SANITIZED
#  define SUPPORT_SANITIZED 0
#endif

#define SUPPORT_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- allocation */
typedef struct support_allocator {
    int64_t calls;       /* to alloc, failed ones too */
    int64_t live_blocks; /* allocated and not released */
    int64_t live_bytes;
    int64_t fail_at;    /* the call (from 1) that fails; 0: none */
    bool fail_on;       /* every later call fails too */
    bool size_mismatch; /* a release named another size than its alloc */
} support_allocator;
tg_allocator support_allocator_interface(support_allocator *state);
tg_context *support_context(void); /* malloc; fails the test when there is none */
/* Counts in `state`, which starts zeroed except for fail_at and fail_on. May be NULL when the allocation fails. */
tg_context *support_context_counting(support_allocator *state);
/* Blocks are left, or one was released with another size than it had: true, and printed. */
bool support_leaked(const support_allocator *state);
/* Fails the test with the context's message unless it holds no error. */
void support_assert_no_error(tg_context *ctx);

/* ---- random numbers (splitmix64), the same on every machine */
typedef struct support_random {
    uint64_t state;
} support_random;
support_random support_random_make(uint64_t seed);
uint64_t support_random_bits(support_random *r);
int64_t support_random_below(support_random *r, int64_t n); /* [0, n) */
double support_random_uniform(support_random *r, double lo, double hi);
float support_random_float(support_random *r, double lo, double hi); /* uniform, rounded to f32 */
/* TG_TEST_SEED from the environment, else `standard`. */
uint64_t support_seed(uint64_t standard);
int support_env_int(const char *name, int standard);

/* ---- files, below TMPDIR, or where the system keeps temporary ones when that is not set or does not fit in `room` */
/* The path of a file of this process. */
void support_path(char *path, size_t room, const char *name);
void support_folder(char *path, size_t room); /* a new folder; fails the test when it cannot be made */

/* ---- comparison */
/* Distance of `got` from `want` in f32 units in the last place at `want` (denormals: of the smallest normal). 0 for the same
 * NaN-ness or the same infinity; a value beyond f32's range is the infinity. */
double support_ulp(double got, double want);
typedef struct support_tolerance {
    double ulp, absolute, relative;
} support_tolerance; /* within any of them is close */
bool support_close(double got, double want, support_tolerance tolerance);
/* All elements; prints the worst offender's index, got and want (and how many differ) after `what` when false. */
bool support_compare(const char *what, const double *got, const double *want, int64_t count, support_tolerance tolerance);
/* assert that got[i] is close to want[i], for float results in a cmocka test */
void support_assert_floats(const char *what, const float *got, const double *want, int64_t count, double relative, double absolute);

/* ---- one case, run in several ways. All values are doubles (i32 and bool exact). */

/* Fills leaf `name`. f32 values are rounded to f32 by the caller. */
typedef void (*support_fill_fn)(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count);

typedef struct support_case {
    tg_build_fn build; /* public API; more outputs through tg_capture; writebacks allowed */
    void *build_user;
    support_fill_fn fill; /* NULL: support_fill_default */
    void *fill_user;      /* default fill: const uint64_t * seed, NULL: 1 */
} support_case;
/* f32: uniform in [-2, 2); i32: [-5, 5]; bool: coin. Depends on the name and the seed only. */
void support_fill_default(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count);

typedef struct support_value {
    char name[64];
    tg_shape shape;
    tg_dtype dtype;
    int64_t count;
    double *data;
} support_value;
/* [0] the built tensor ("result"), then captures, then every written state or parameter after the step ("after NAME"). */
typedef struct support_outputs {
    support_value *items;
    int count, capacity;
    tg_status status; /* of the run; items are valid only when TG_OK */
    char message[512];
    int kernels;    /* of the program, 0 for the reference */
    int dispatches; /* launches of one run, 0 for the reference */
    bool poisoned;  /* the executor's workspace was full of NaN before the run */
    int64_t workspace_bytes;
} support_outputs;
void support_outputs_free(support_outputs *outputs);
const support_value *support_outputs_find(const support_outputs *outputs, const char *name); /* fails the test if missing */

/* The executor that a suite runs on: TENSORGRAD_TEST_HOME=webgpu, else the CPU. A suite that has WebGPU rows opens its main()
 * with `const int refused = support_home_refuses("its name"); if (refused) return refused;` */
typedef enum support_home { SUPPORT_CPU, SUPPORT_WEBGPU } support_home;
support_home support_home_now(void);
tg_device_kind support_device(void); /* for tg_compile_options: CPU or WEBGPU, never AUTO */
/* A device could be opened: TENSORGRAD_WEBGPU_LIB names a library and that offers an adapter. The reason why not, else "", in
 * *reason when not NULL. One device for the whole process, opened at the first question; always false in a build without one. */
bool support_webgpu_available(const char **reason);
/* 0: go on. Else what main() is to return: the home is WebGPU and there is no device, which is printed. SUPPORT_SKIPPED, or 1 under
 * TENSORGRAD_TEST_WEBGPU=required. */
#define SUPPORT_SKIPPED 77
int support_home_refuses(const char *suite);
/* In a test that needs WebGPU whatever the home: skips it, or fails it under TENSORGRAD_TEST_WEBGPU=required. */
void support_need_webgpu(void);

typedef struct support_options {
    support_home home; /* WEBGPU: isa and threads are not looked at */
    bool no_fusion;
    bool no_passes;
    bool unchecked;        /* skip tg_program_check */
    int threads;           /* 0: 1 */
    const char *isa;       /* NULL: the best one; else TENSORGRAD_ISA for the run */
    int runs;              /* 0: 1. States carry over from run to run */
    int32_t max_arguments; /* 0: the executor's */
    bool joins;            /* launches of several kernels, whatever the executor asks for */
    bool shuffled;         /* on the CPU, that runs kernel after kernel: in another order that the launches allow. See support_shuffle */
} support_options;

tg_graph *support_trace(tg_context *ctx, const support_case *c); /* NULL with ctx's error when the build fails */
/* Each returns false on an error, which is in out->status and out->message. Free out in either case. */
bool support_run_reference(const support_case *c, int runs, support_outputs *out);
bool support_run_cpu(const support_case *c, const support_options *options, support_outputs *out);
bool support_run_webgpu(const support_case *c, const support_options *options, support_outputs *out);
bool support_run_home(const support_case *c, const support_options *options, support_outputs *out); /* on support_home_now() */
/* got against want by name, each f32 value with `tolerance` and i32, bool exactly; prints under `what`. */
bool support_outputs_equal(const char *what, const support_outputs *got, const support_outputs *want, support_tolerance tolerance);
bool support_outputs_identical(const char *what, const support_outputs *a, const support_outputs *b); /* bit for bit; NaN equals NaN */

/* Below that, for tests that look at programs: the program of a case and everything needed to run it. */
typedef struct support_program {
    tg_context *ctx;
    tg_graph *graph; /* after passes */
    tg_program *program;
    int64_t flat_count;          /* elements of the flat parameter state */
    struct support_watch *watch; /* finds the executor's workspace, to fill it with NaN before each run */
    struct tg_layout *layout;
    tg_arena layout_arena;
} support_program;
bool support_program_make(const support_case *c, const support_options *options, support_program *out, support_outputs *error);
void support_program_free(support_program *p);
/* Rewrites the program's kernels: those side by side run last to first; a chain runs whole for its last slice, then for the one before,
 * each kernel once for every slice. The same results are to be expected, if the launches are sound. The checker does not know this form. */
void support_shuffle(support_program *p);
/* Runs p with `fill`'s leaves by calling step(user, buffers) for each run, all buffers in plain memory: the workspace is
 * filled with NaN bits before each run. For emitted C and other walkers of programs. */
typedef void (*support_step_fn)(void *user, void *const *buffers);
bool support_program_run(const support_program *p, const support_case *c, int runs, support_step_fn step, void *user, support_outputs *out);
/* As support_run_cpu and support_run_webgpu, for a program already made with options of that home. */
bool support_program_run_cpu(const support_program *p, const support_case *c, const support_options *options, support_outputs *out);
bool support_program_run_webgpu(const support_program *p, const support_case *c, const support_options *options, support_outputs *out);

/* ---- emitted C: many programs compiled into one shared object by the system's C compiler ($CC, else cc) */
typedef struct support_emitted support_emitted;
support_emitted *support_emitted_create(void);
int support_emitted_add(support_emitted *e, const tg_program *program, tg_context *ctx); /* index; -1 on error */
int support_emitted_add_text(support_emitted *e, const char *text);                      /* one that is printed already; its index */
bool support_emitted_compile(support_emitted *e); /* with -Wall -Wextra -Wpedantic -Werror; false (printed) on failure */
support_step_fn support_emitted_step(support_emitted *e, int index, void **user);
bool support_emitted_available(void); /* there is a C compiler at run time and dlopen works */
void support_emitted_destroy(support_emitted *e);

#endif
