/* test_dtype: the table of dtypes is complete, and elements survive every conversion of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/dtype.h"

#include <limits.h>
#include <string.h>

static bool is_text(const char *text) { return text != NULL && text[0] != '\0'; }

static void every_row_is_complete(void **state) {
    (void)state;
    assert_int_equal(TG_DTYPE_COUNT, 3); /* adding a dtype adds its values to the tests below */
    for (int d = 0; d < TG_DTYPE_COUNT; d++) {
        const tg_dtype_info *row = tg_dtype_row((tg_dtype)d);
        assert_true(tg_dtype_valid((tg_dtype)d));
        assert_true(is_text(row->name) && is_text(row->safetensors) && is_text(row->c_storage) && is_text(row->c_compute));
        assert_true(is_text(row->wgsl_storage) && is_text(row->wgsl_compute) && is_text(row->wgsl_zero));
        assert_true(row->host_bytes > 0 && row->device_bytes > 0 && row->device_bytes % TG_WORD_BYTES == 0);
        assert_true(tg_dtype_valid(row->compute));
        assert_int_equal(tg_dtype_row(row->compute)->compute, row->compute);
        assert_int_equal(tg_dtype_is_word((tg_dtype)d), d != TG_BOOL);
        /* a value that needs no conversion has one type in a buffer and in a shader */
        const bool converts = is_text(row->wgsl_load.before) || is_text(row->wgsl_load.after);
        assert_int_equal(converts, strcmp(row->wgsl_storage, row->wgsl_compute) != 0);
        assert_int_equal(converts, is_text(row->wgsl_store.before) || is_text(row->wgsl_store.after));
        for (int other = 0; other < d; other++) {
            assert_string_not_equal(row->name, tg_dtype_row((tg_dtype)other)->name);
            assert_string_not_equal(row->safetensors, tg_dtype_row((tg_dtype)other)->safetensors);
        }
    }
}

static void sizes_are_those_of_the_c_types(void **state) {
    (void)state;
    assert_int_equal(tg_dtype_bytes(TG_F32), sizeof(float));
    assert_int_equal(tg_dtype_bytes(TG_I32), sizeof(int32_t));
    assert_int_equal(tg_dtype_bytes(TG_BOOL), sizeof(uint8_t));
    assert_int_equal(tg_dtype_device_bytes(TG_F32), 4);
    assert_int_equal(tg_dtype_device_bytes(TG_I32), 4);
    assert_int_equal(tg_dtype_device_bytes(TG_BOOL), 4);
    assert_int_equal(TG_WORD_BYTES, sizeof(uint32_t));
}

static void a_number_that_is_no_dtype_has_an_empty_row(void **state) {
    (void)state;
    const int none[] = {-1, TG_DTYPE_COUNT, INT_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const tg_dtype dtype = (tg_dtype)none[i];
        assert_false(tg_dtype_valid(dtype));
        assert_string_equal(tg_dtype_name(dtype), "unknown");
        assert_int_equal(tg_dtype_bytes(dtype), 0);
        assert_false(tg_dtype_holds(dtype, 0.0));
    }
}

static void a_dtype_holds_what_it_can_give_back(void **state) {
    (void)state;
    assert_true(tg_dtype_holds(TG_F32, 0.1));
    assert_true(tg_dtype_holds(TG_I32, -2147483648.0) && tg_dtype_holds(TG_I32, 2147483647.0));
    assert_false(tg_dtype_holds(TG_I32, 2147483648.0) || tg_dtype_holds(TG_I32, 0.5));
    assert_true(tg_dtype_holds(TG_BOOL, 0.0) && tg_dtype_holds(TG_BOOL, 1.0));
    assert_false(tg_dtype_holds(TG_BOOL, 2.0));
}

static void lists_of_dtypes_read_well(void **state) {
    (void)state;
    static const struct {
        unsigned mask;
        const char *word, *text;
    } lists[] = {{0, "and", "nothing"},
                 {1u << TG_F32, "and", "f32"},
                 {1u << TG_BOOL, "or", "bool"},
                 {1u << TG_F32 | 1u << TG_I32, "and", "f32 and i32"},
                 {1u << TG_F32 | 1u << TG_BOOL, "or", "f32 or bool"},
                 {1u << TG_I32 | 1u << TG_BOOL, "and", "i32 and bool"},
                 {1u << TG_F32 | 1u << TG_I32 | 1u << TG_BOOL, "and", "f32, i32 and bool"}};
    char text[TG_DTYPE_LIST];
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        assert_string_equal(tg_dtype_list(lists[i].mask, lists[i].word, text, sizeof text), lists[i].text);
    assert_string_equal(tg_dtype_list(7, "and", text, 7), "f32, i"); /* cut */
}

/* Values of each dtype, as numbers. */
static const double samples[TG_DTYPE_COUNT][4] = {
    [TG_F32] = {-1.5, 0.0, 0x1p100, (double)0.1F}, [TG_I32] = {-2147483648.0, -1.0, 0.0, 2147483647.0}, [TG_BOOL] = {1.0, 0.0, 0.0, 1.0}};

static void elements_are_set_and_read(void **state) {
    (void)state;
    for (int d = 0; d < TG_DTYPE_COUNT; d++) {
        _Alignas(8) unsigned char data[64];
        const size_t bytes = tg_dtype_bytes((tg_dtype)d);
        memset(data, 0xA5, sizeof data);
        for (int i = 0; i < 4; i++) tg_dtype_put((tg_dtype)d, data + bytes, i, samples[d][i]);
        for (int i = 0; i < 4; i++) assert_true(tg_dtype_get((tg_dtype)d, data + bytes, i) == samples[d][i]);
        for (size_t i = 0; i < bytes; i++) assert_true(data[i] == 0xA5 && data[5 * bytes + i] == 0xA5); /* nothing around them */
    }
    uint8_t truth = 200;
    assert_true(tg_dtype_get(TG_BOOL, &truth, 0) == 1.0);
    tg_dtype_put(TG_BOOL, &truth, 0, -7.0);
    assert_int_equal(truth, 1);
    float rounded;
    tg_dtype_put(TG_F32, &rounded, 0, 0.1);
    assert_true(rounded == 0.1F);
}

static void elements_go_to_a_device_and_back(void **state) {
    (void)state;
    for (int d = 0; d < TG_DTYPE_COUNT; d++) {
        const tg_dtype dtype = (tg_dtype)d;
        _Alignas(8) unsigned char host[32], device[64], back[32];
        for (int i = 0; i < 4; i++) tg_dtype_put(dtype, host, i, samples[d][i]);
        memset(device, 0xA5, sizeof device);
        memset(back, 0xA5, sizeof back);
        tg_dtype_to_device(dtype, device, host, 4);
        assert_int_equal(device[4 * tg_dtype_device_bytes(dtype)], 0xA5);
        assert_int_not_equal(device[4 * tg_dtype_device_bytes(dtype) - 1], 0xA5);
        tg_dtype_from_device(dtype, back, device, 4);
        assert_memory_equal(back, host, 4 * tg_dtype_bytes(dtype));
        assert_int_equal(back[4 * tg_dtype_bytes(dtype)], 0xA5);
    }
    const uint8_t bools[3] = {0, 1, 255};
    uint32_t words[3];
    tg_dtype_to_device(TG_BOOL, words, bools, 3);
    assert_true(words[0] == 0 && words[1] == 1 && words[2] == 1);
    words[1] = UINT32_C(0x100);
    uint8_t read[3];
    tg_dtype_from_device(TG_BOOL, read, words, 3);
    assert_true(read[0] == 0 && read[1] == 1 && read[2] == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(sizes_are_those_of_the_c_types),
        cmocka_unit_test(a_number_that_is_no_dtype_has_an_empty_row),
        cmocka_unit_test(a_dtype_holds_what_it_can_give_back),
        cmocka_unit_test(lists_of_dtypes_read_well),
        cmocka_unit_test(elements_are_set_and_read),
        cmocka_unit_test(elements_go_to_a_device_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
