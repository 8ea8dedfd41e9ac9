/* A stand-in for the part of cmocka the tests use, for cross builds where the library cannot be had: runs the group,
 * reports like cmocka, ends a failed test with longjmp. Weak definitions, so that several files may include it. */
#ifndef CMOCKA_SHIM_H
#define CMOCKA_SHIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

CMOCKA_SHIM_WEAK jmp_buf cmocka_shim_jump;

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
    longjmp(cmocka_shim_jump, code);
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
#define assert_ptr_equal(a, b) CMOCKA_SHIM_CHECK((const void *)(a) == (const void *)(b), "pointers differ: %s, %s\n", #a, #b)
#define assert_ptr_not_equal(a, b) CMOCKA_SHIM_CHECK((const void *)(a) != (const void *)(b), "same pointer: %s, %s\n", #a, #b)
#define assert_int_equal(a, b) \
  CMOCKA_SHIM_CHECK((long long)(a) == (long long)(b), "%s = %lld, not %lld\n", #a, (long long)(a), (long long)(b))
#define assert_int_not_equal(a, b) CMOCKA_SHIM_CHECK((long long)(a) != (long long)(b), "%s = %lld\n", #a, (long long)(a))
#define assert_float_equal(a, b, epsilon) \
  CMOCKA_SHIM_CHECK((double)(a) - (double)(b) <= (double)(epsilon) && (double)(b) - (double)(a) <= (double)(epsilon), \
                    "%s = %.9g, not %.9g\n", #a, (double)(a), (double)(b))
#define assert_string_equal(a, b) CMOCKA_SHIM_CHECK(strcmp((a), (b)) == 0, "\"%s\" is not \"%s\"\n", (a), (b))
#define assert_string_not_equal(a, b) CMOCKA_SHIM_CHECK(strcmp((a), (b)) != 0, "both are \"%s\"\n", (a))
#define assert_memory_equal(a, b, size) CMOCKA_SHIM_CHECK(memcmp((a), (b), (size)) == 0, "memory differs: %s, %s\n", #a, #b)
#define assert_memory_not_equal(a, b, size) CMOCKA_SHIM_CHECK(memcmp((a), (b), (size)) != 0, "memory is equal: %s, %s\n", #a, #b)
#define assert_in_range(value, low, high) \
  CMOCKA_SHIM_CHECK((value) >= (low) && (value) <= (high), "%s = %lld is out of range\n", #value, (long long)(value))
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

/* 0 passed, 1 failed, 2 skipped */
CMOCKA_SHIM_WEAK int cmocka_shim_one(const struct CMUnitTest *test, void *group_state);
CMOCKA_SHIM_WEAK int cmocka_shim_one(const struct CMUnitTest *test, void *group_state) {
    void *state = test->initial_state ? test->initial_state : group_state;
    printf("[ RUN      ] %s\n", test->name);
    fflush(stdout);
    volatile int result = setjmp(cmocka_shim_jump);
    if (result == 0) {
        if (test->setup_func && test->setup_func(&state) != 0) result = 1;
        if (result == 0) test->test_func(&state);
    }
    if (test->teardown_func && test->teardown_func(&state) != 0) result = 1;
    printf("[  %s ] %s\n", result == 0 ? "     OK" : result == 1 ? "FAILED " : "SKIPPED", test->name);
    return result;
}

CMOCKA_SHIM_WEAK int cmocka_shim_group(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                       CMFixtureFunction teardown);
CMOCKA_SHIM_WEAK int cmocka_shim_group(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                       CMFixtureFunction teardown) {
    int results[3] = {0, 0, 0};
    void *state = NULL;
    printf("[==========] %s: Running %d test(s).\n", name, (int)count);
    if (setup && setup(&state) != 0) results[1] = (int)count;
    else
        for (size_t i = 0; i < count; i++) results[cmocka_shim_one(&tests[i], state)]++;
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
