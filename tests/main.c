/* main: one program for every suite, tests/test_NAME.c, whose main() the build names test_NAME.
 * Runs the suite that the first argument names, or the name the program is called by. A second
 * argument picks the cases whose names fit ("a_*"). Must not know a test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define SUITE(name) int name(void);
#include "suites.def"
#undef SUITE

typedef struct test_suite {
    const char *name;
    int (*run)(void);
} test_suite;
static const test_suite test_suites[] = {
#define SUITE(name) {#name, name},
#include "suites.def"
#undef SUITE
};

static const test_suite *test_find(const char *name) {
    for (size_t i = 0; i < sizeof test_suites / sizeof *test_suites; i++)
        if (strcmp(test_suites[i].name, name) == 0) return &test_suites[i];
    return NULL;
}

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    const test_suite *suite = test_find(slash != NULL ? slash + 1 : argv[0]);
    const int first = suite != NULL ? 1 : 2;
    if (suite == NULL && argc > 1) suite = test_find(argv[1]);
    if (suite == NULL || argc > first + 1) {
        fprintf(stderr, "usage: tensorgrad_tests SUITE [CASE]\n");
        for (size_t i = 0; i < sizeof test_suites / sizeof *test_suites; i++) fprintf(stderr, "  %s\n", test_suites[i].name);
        return 2;
    }
    if (argc > first) cmocka_set_test_filter(argv[first]);
    return suite->run();
}
