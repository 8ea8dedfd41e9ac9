/* setjmp: wasi-libc has none. The tests' headers ask for it; the stand-in for cmocka does without. */
#ifndef TENSORGRAD_TESTS_WASM_SETJMP_H
#define TENSORGRAD_TESTS_WASM_SETJMP_H
#endif
