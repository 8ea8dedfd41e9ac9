/* A stand-in for the part of cmocka the tests use, for cross builds where the library cannot be had: runs the group,
 * reports like cmocka, ends a failed test with longjmp (in a WebAssembly module, which has none, with an exception of JavaScript's: see
 * web/test/suite.ts). Weak definitions, so that several files may include it. */
#ifndef CMOCKA_SHIM_H
#define CMOCKA_SHIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CMOCKA_SHIM_WEAK __attribute__((weak, unused))

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);
struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

#ifdef __wasm__
__attribute__((noreturn, import_module("tg_test"), import_name("end"))) void cmocka_shim_throw(int code);
/* Calls body(test, state), and gives what it returned or what ended it. By its pointer: wasm-ld lets the exit handlers run after every
 * exported function of a command. */
typedef int (*cmocka_shim_body_function)(const struct CMUnitTest *test, void **state);
__attribute__((import_module("tg_test"), import_name("call"))) int cmocka_shim_catch(cmocka_shim_body_function body,
                                                                                     const struct CMUnitTest *test, void **state);
#else
CMOCKA_SHIM_WEAK jmp_buf cmocka_shim_jump;
#endif

CMOCKA_SHIM_WEAK __attribute__((format(printf, 1, 2))) void print_message(const char *format, ...);
CMOCKA_SHIM_WEAK void print_message(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
}
#define print_error print_message

CMOCKA_SHIM_WEAK __attribute__((noreturn)) void cmocka_shim_end(const char *file, int line, int code);
CMOCKA_SHIM_WEAK __attribute__((noreturn)) void cmocka_shim_end(const char *file, int line, int code) {
    if (code == 1) printf("%s:%d: error: Failure!\n", file, line);
#ifdef __wasm__
    fflush(stdout);
    cmocka_shim_throw(code);
#else
    longjmp(cmocka_shim_jump, code);
#endif
}

#define CMOCKA_SHIM_CHECK(condition, ...) \
  do { \
    if (!(condition)) { \
      print_message(__VA_ARGS__); \
      cmocka_shim_end(__FILE__, __LINE__, 1); \
    } \
  } while (0)

#define fail() cmocka_shim_end(__FILE__, __LINE__, 1)
#define skip() cmocka_shim_end(__FILE__, __LINE__, 2)
#define fail_msg(...) \
  do { \
    print_message(__VA_ARGS__); \
    print_message("\n"); \
    fail(); \
  } while (0)

#define assert_true(c) CMOCKA_SHIM_CHECK(c, "not true: %s\n", #c)
#define assert_false(c) CMOCKA_SHIM_CHECK(!(c), "not false: %s\n", #c)
#define assert_non_null(c) CMOCKA_SHIM_CHECK((c) != NULL, "null: %s\n", #c)
#define assert_null(c) CMOCKA_SHIM_CHECK((c) == NULL, "not null: %s\n", #c)
/* Arguments are evaluated once, as cmocka does. */
#define CMOCKA_SHIM_COMPARE(type, a, b, condition, ...) \
  do { \
    const type shim_a = (type)(a), shim_b = (type)(b); \
    CMOCKA_SHIM_CHECK(condition, __VA_ARGS__); \
  } while (0)
typedef const void *cmocka_shim_pointer;
typedef const char *cmocka_shim_text;

#define assert_ptr_equal(a, b) CMOCKA_SHIM_COMPARE(cmocka_shim_pointer, a, b, shim_a == shim_b, "%s = %p, not %p\n", #a, shim_a, shim_b)
#define assert_ptr_not_equal(a, b) CMOCKA_SHIM_COMPARE(cmocka_shim_pointer, a, b, shim_a != shim_b, "%s = %p\n", #a, shim_a)
#define assert_int_equal(a, b) CMOCKA_SHIM_COMPARE(long long, a, b, shim_a == shim_b, "%s = %lld, not %lld\n", #a, shim_a, shim_b)
#define assert_int_not_equal(a, b) CMOCKA_SHIM_COMPARE(long long, a, b, shim_a != shim_b, "%s = %lld\n", #a, shim_a)
#define assert_float_equal(a, b, epsilon) \
  CMOCKA_SHIM_COMPARE(double, a, b, shim_a - shim_b <= (double)(epsilon) && shim_b - shim_a <= (double)(epsilon), "%s = %.9g, not %.9g\n", \
                      #a, shim_a, shim_b)
#define assert_string_equal(a, b) \
  CMOCKA_SHIM_COMPARE(cmocka_shim_text, a, b, strcmp(shim_a, shim_b) == 0, "\"%s\" is not \"%s\"\n", shim_a, shim_b)
#define assert_string_not_equal(a, b) CMOCKA_SHIM_COMPARE(cmocka_shim_text, a, b, strcmp(shim_a, shim_b) != 0, "both are \"%s\"\n", shim_a)
#define assert_memory_equal(a, b, size) \
  CMOCKA_SHIM_COMPARE(cmocka_shim_pointer, a, b, memcmp(shim_a, shim_b, (size)) == 0, "memory differs: %s, %s\n", #a, #b)
#define assert_memory_not_equal(a, b, size) \
  CMOCKA_SHIM_COMPARE(cmocka_shim_pointer, a, b, memcmp(shim_a, shim_b, (size)) != 0, "memory is equal: %s, %s\n", #a, #b)
#define assert_in_range(value, low, high) \
  CMOCKA_SHIM_COMPARE(long long, value, low, shim_a >= shim_b && shim_a <= (long long)(high), "%s = %lld is out of range\n", #value, shim_a)
#define assert_return_code(code, error) CMOCKA_SHIM_CHECK((code) >= 0, "%s failed\n", #code)

#define cmocka_unit_test(f) \
  { #f, f, NULL, NULL, NULL }
#define cmocka_unit_test_setup(f, setup) \
  { #f, f, setup, NULL, NULL }
#define cmocka_unit_test_teardown(f, teardown) \
  { #f, f, NULL, teardown, NULL }
#define cmocka_unit_test_setup_teardown(f, setup, teardown) \
  { #f, f, setup, teardown, NULL }
#define cmocka_unit_test_prestate(f, state) \
  { #f, f, NULL, NULL, state }
#define cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, state) \
  { #f, f, setup, teardown, state }

CMOCKA_SHIM_WEAK int cmocka_shim_body(const struct CMUnitTest *test, void **state);
CMOCKA_SHIM_WEAK int cmocka_shim_body(const struct CMUnitTest *test, void **state) {
    if (test->setup_func && test->setup_func(state) != 0) return 1;
    test->test_func(state);
    return 0;
}

/* 0 passed, 1 failed, 2 skipped */
CMOCKA_SHIM_WEAK int cmocka_shim_one(const struct CMUnitTest *test, void *group_state);
CMOCKA_SHIM_WEAK int cmocka_shim_one(const struct CMUnitTest *test, void *group_state) {
    void *state = test->initial_state ? test->initial_state : group_state;
    printf("[ RUN      ] %s\n", test->name);
    fflush(stdout);
#ifdef __wasm__
    int result = cmocka_shim_catch(cmocka_shim_body, test, &state);
#else
    volatile int result = setjmp(cmocka_shim_jump);
    if (result == 0) result = cmocka_shim_body(test, &state);
#endif
    if (test->teardown_func && test->teardown_func(&state) != 0) result = 1;
    printf("[  %s ] %s\n", result == 0 ? "     OK" : result == 1 ? "FAILED " : "SKIPPED", test->name);
    return result;
}

CMOCKA_SHIM_WEAK const char *cmocka_shim_filter; /* names of the tests to run: "a*", "a_test" */
CMOCKA_SHIM_WEAK void cmocka_set_test_filter(const char *pattern);
CMOCKA_SHIM_WEAK void cmocka_set_test_filter(const char *pattern) { cmocka_shim_filter = pattern; }
CMOCKA_SHIM_WEAK int cmocka_shim_fits(const char *name, const char *pattern);
CMOCKA_SHIM_WEAK int cmocka_shim_fits(const char *name, const char *pattern) {
    if (*pattern == '*') return cmocka_shim_fits(name, pattern + 1) || (*name && cmocka_shim_fits(name + 1, pattern));
    return *pattern == '\0' ? *name == '\0' : (*pattern == *name || (*pattern == '?' && *name)) && cmocka_shim_fits(name + 1, pattern + 1);
}
CMOCKA_SHIM_WEAK int cmocka_shim_group(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                       CMFixtureFunction teardown);
CMOCKA_SHIM_WEAK int cmocka_shim_group(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                       CMFixtureFunction teardown) {
    const char *only = cmocka_shim_filter ? cmocka_shim_filter : getenv("CMOCKA_SHIM_ONLY");
    int results[3] = {0, 0, 0};
    void *state = NULL;
    printf("[==========] %s: Running %d test(s).\n", name, (int)count);
    if (setup && setup(&state) != 0) results[1] = (int)count;
    else
        for (size_t i = 0; i < count; i++)
            if (!only || cmocka_shim_fits(tests[i].name, only)) results[cmocka_shim_one(&tests[i], state)]++;
    if (teardown && teardown(&state) != 0) results[1]++;
    printf("[  PASSED  ] %d test(s).\n", results[0]);
    if (results[2]) printf("[  SKIPPED ] %d test(s), listed above\n", results[2]);
    if (results[1]) printf("[  FAILED  ] %d test(s), listed above\n", results[1]);
    return results[1];
}
#define _cmocka_run_group_tests cmocka_shim_group
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
  cmocka_shim_group(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_group_tests_name(#tests, tests, setup, teardown)

#endif
