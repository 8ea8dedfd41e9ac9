/* Tests of src/io: files that replace their target whole or not at all, and the safetensors reader and writer against good,
 * broken and mutated files. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- a folder and a context per test */

typedef struct io_fixture {
    tg_context *ctx;
    char folder[128];
    char path[160];
} io_fixture;

static int io_setup(void **state) {
    io_fixture *f = calloc(1, sizeof *f);
    f->ctx = tg_context_create(NULL);
    support_folder(f->folder, sizeof f->folder);
    if (f->ctx == NULL) return -1;
    snprintf(f->path, sizeof f->path, "%s/model.safetensors", f->folder);
    *state = f;
    return 0;
}

static int count_files(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int io_teardown(void **state) {
    io_fixture *f = *state;
    DIR *d = opendir(f->folder);
    char path[512];
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", f->folder, e->d_name);
        remove(path);
    }
    closedir(d);
    rmdir(f->folder);
    int leaked = f->ctx->live_bytes != 0 || f->ctx->live_blocks != 0;
    tg_context_destroy(f->ctx);
    free(f);
    return leaked;
}

static void put_file(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void assert_file_is(const char *path, const char *text) {
    char buffer[256];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(buffer, 1, sizeof buffer - 1, file);
    fclose(file);
    buffer[n] = '\0';
    assert_string_equal(buffer, text);
}

/* ---------------------------------------------------------------- files */

static void file_round_trip(void **state) {
    io_fixture *f = *state;
    tg_file_writer writer;
    void *bytes = NULL;
    size_t size = 0, held = 0;
    put_file(f->path, "old");
    assert_int_equal(tg_file_begin(&writer, f->ctx, "save", f->path), TG_OK);
    assert_int_equal(tg_file_put(&writer, "new ", 4), TG_OK);
    assert_int_equal(tg_file_put(&writer, "bytes", 5), TG_OK);
    assert_file_is(f->path, "old"); /* until the commit */
    assert_int_equal(tg_file_commit(&writer), TG_OK);
    assert_file_is(f->path, "new bytes");
    assert_int_equal(count_files(f->folder), 1);
    assert_int_equal(tg_file_read(f->ctx, "load", f->path, &bytes, &size, &held), TG_OK);
    assert_int_equal(size, 9);
    assert_memory_equal(bytes, "new bytes", 9);
    tg_release(f->ctx, bytes, held);
}

static void file_empty(void **state) {
    io_fixture *f = *state;
    void *bytes = NULL;
    size_t size = 7, held = 0;
    put_file(f->path, "");
    assert_int_equal(tg_file_read(f->ctx, "load", f->path, &bytes, &size, &held), TG_OK);
    assert_int_equal(size, 0);
    tg_release(f->ctx, bytes, held);
}

static void file_abandoned(void **state) {
    io_fixture *f = *state;
    tg_file_writer writer;
    put_file(f->path, "old");
    assert_int_equal(tg_file_begin(&writer, f->ctx, "save", f->path), TG_OK);
    assert_int_equal(tg_file_put(&writer, "new", 3), TG_OK);
    assert_int_equal(count_files(f->folder), 2);
    tg_file_abandon(&writer);
    assert_file_is(f->path, "old");
    assert_int_equal(count_files(f->folder), 1);
}

static void file_stale_temporary(void **state) { /* left by a crash: neither used nor touched */
    io_fixture *f = *state;
    tg_file_writer writer;
    char stale[256];
    snprintf(stale, sizeof stale, "%s.tmp0", f->path);
    put_file(stale, "stale");
    assert_int_equal(tg_file_begin(&writer, f->ctx, "save", f->path), TG_OK);
    assert_int_equal(tg_file_put(&writer, "new", 3), TG_OK);
    assert_int_equal(tg_file_commit(&writer), TG_OK);
    assert_file_is(f->path, "new");
    assert_file_is(stale, "stale");
}

static void assert_io_error(const io_fixture *f, tg_status got, const char *path) {
    assert_int_equal(got, TG_ERROR_IO);
    assert_int_equal(tg_error(f->ctx), TG_ERROR_IO);
    if (strstr(tg_error_message(f->ctx), path) == NULL) fail_msg("%s", tg_error_message(f->ctx));
    tg_clear_error(f->ctx);
}

/* A link stays one, what it names is replaced and keeps its mode; nothing is left beside it. */
static void file_through_links(void **state) {
    io_fixture *f = *state;
    tg_file_writer writer;
    char link[200], chain[200], circle[200];
    struct stat info;
    snprintf(link, sizeof link, "%s/link", f->folder);
    snprintf(chain, sizeof chain, "%s/chain", f->folder);
    snprintf(circle, sizeof circle, "%s/circle", f->folder);
    put_file(f->path, "old");
    assert_int_equal(chmod(f->path, 0640), 0);
    assert_int_equal(symlink(strrchr(f->path, '/') + 1, link), 0);
    assert_int_equal(symlink(link, chain), 0);
    assert_int_equal(symlink("circle", circle), 0);
    assert_int_equal(tg_file_begin(&writer, f->ctx, "save", chain), TG_OK);
    assert_int_equal(tg_file_put(&writer, "new", 3), TG_OK);
    assert_int_equal(tg_file_commit(&writer), TG_OK);
    assert_file_is(f->path, "new");
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(remove(f->path), 0); /* a link to what is not there makes it */
    assert_int_equal(tg_file_begin(&writer, f->ctx, "save", link), TG_OK);
    assert_int_equal(tg_file_commit(&writer), TG_OK);
    assert_file_is(f->path, "");
    assert_io_error(f, tg_file_begin(&writer, f->ctx, "save", circle), circle);
    assert_int_equal(count_files(f->folder), 4);
    assert_int_equal(remove(link) | remove(chain) | remove(circle), 0);
}

static void file_errors_name_the_path(void **state) {
    io_fixture *f = *state;
    tg_file_writer writer;
    void *bytes = NULL;
    size_t size = 0, held = 0;
    char path[256];
    snprintf(path, sizeof path, "%s/none/model", f->folder);
    assert_io_error(f, tg_file_begin(&writer, f->ctx, "save", path), path);
    assert_io_error(f, tg_file_read(f->ctx, "load", path, &bytes, &size, &held), path);
    assert_io_error(f, tg_file_read(f->ctx, "load", f->folder, &bytes, &size, &held), f->folder); /* a folder */
    snprintf(path, sizeof path, "%s/sub", f->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_io_error(f, tg_file_begin(&writer, f->ctx, "save", path), path); /* a folder stands where the file should go */
    assert_int_equal(count_files(f->folder), 1);
    assert_int_equal(rmdir(path), 0);
    assert_null(bytes);
}

/* Devices and pipes are neither replaced nor waited for, through a link either: root may put a file in the place of /dev/null. */
static void file_is_regular(void **state) {
    io_fixture *f = *state;
    tg_file_writer writer;
    void *bytes = NULL;
    size_t size = 0, held = 0;
    char pipe[200], link[200];
    struct stat info;
    snprintf(pipe, sizeof pipe, "%s/pipe", f->folder);
    snprintf(link, sizeof link, "%s/link", f->folder);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink(pipe, link), 0);
    const char *const paths[] = {pipe, link, "/dev/null"};
    for (int i = 0; i < 3; i++) {
        assert_io_error(f, tg_file_begin(&writer, f->ctx, "save", paths[i]), paths[i]);
        assert_io_error(f, tg_file_read(f->ctx, "load", paths[i], &bytes, &size, &held), "is not a regular file");
        assert_int_equal(stat(paths[i], &info), 0);
        assert_false(S_ISREG(info.st_mode));
    }
    assert_int_equal(count_files(f->folder), 2);
    assert_int_equal(remove(pipe) | remove(link), 0);
}

static void file_full_disk(void **state) { /* writes beyond a size limit fail as on a full disk */
    io_fixture *f = *state;
    struct rlimit old, small;
    tg_file_writer writer;
    char block[4096];
    memset(block, 'x', sizeof block);
    put_file(f->path, "old");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    small = old;
    small.rlim_cur = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(tg_file_begin(&writer, f->ctx, "save", f->path), TG_OK);
    tg_status status = TG_OK;
    for (int i = 0; i < 8 && status == TG_OK; i++) status = tg_file_put(&writer, block, sizeof block);
    if (status == TG_OK) status = tg_file_commit(&writer);
    else tg_file_abandon(&writer);
    tg_status small_status = TG_OK; /* what fits the stream's buffer fails in the commit */
    small.rlim_cur = 1;
    setrlimit(RLIMIT_FSIZE, &small);
    char message[256];
    snprintf(message, sizeof message, "%s", tg_error_message(f->ctx));
    tg_clear_error(f->ctx);
    tg_status begun = tg_file_begin(&writer, f->ctx, "save", f->path);
    if (begun == TG_OK) small_status = tg_file_put(&writer, block, 100);
    if (begun == TG_OK && small_status == TG_OK) small_status = tg_file_commit(&writer);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, TG_ERROR_IO);
    assert_non_null(strstr(message, f->path));
    assert_int_equal(begun, TG_OK);
    assert_int_equal(small_status, TG_ERROR_IO);
    assert_file_is(f->path, "old");
    assert_int_equal(count_files(f->folder), 1);
}

/* ---------------------------------------------------------------- safetensors: good files */

static const float W[6] = {1, -2, 3.5f, 0, -0.0f, 1e-45f};
static const int32_t steps[1] = {-7};
static const uint8_t mask[3] = {1, 0, 1};

static void make_items(tg_file_item items[3]) {
    items[0] = (tg_file_item){"mask", TG_BOOL, TG_SHAPE(3), mask};
    items[1] = (tg_file_item){"layers.0.W", TG_F32, TG_SHAPE(2, 3), W};
    items[2] = (tg_file_item){"tab\t\"quote\" \\ \xC3\xA9", TG_I32, TG_SCALAR, steps};
}

static void save_and_open(void **state) {
    io_fixture *f = *state;
    tg_file_item items[3];
    const tg_file_text metadata[] = {{"format", "x"}, {"note", "line\nbreak"}};
    tg_safetensors *file = NULL;
    make_items(items);
    assert_int_equal(tg_safetensors_save(f->ctx, f->path, items, 3, metadata, 2), TG_OK);
    assert_int_equal(tg_safetensors_open(f->ctx, f->path, &file), TG_OK);
    assert_int_equal(file->tensors.count, 3);
    for (int i = 0; i < 3; i++) {
        const tg_file_tensor *tensor = tg_safetensors_find(file, items[i].name);
        assert_non_null(tensor);
        assert_true(tg_shape_equal(tensor->shape, items[i].shape));
        assert_string_equal(tensor->dtype, tg_safetensors_dtype(items[i].dtype));
        assert_memory_equal(tensor->data, items[i].data, tensor->bytes);
        if (items[i].dtype != TG_BOOL) assert_int_equal(((uintptr_t)tensor->data - (uintptr_t)file->file) % 4, 0);
    }
    assert_int_equal(tg_safetensors_find(file, "layers.0.W")->bytes, 24);
    assert_null(tg_safetensors_find(file, "layers.0"));
    assert_string_equal(tg_safetensors_metadata(file, "note"), "line\nbreak");
    assert_null(tg_safetensors_metadata(file, "nothing"));
    tg_safetensors_destroy(file);
}

static void save_refuses_bad_names(void **state) {
    io_fixture *f = *state;
    tg_file_item items[3];
    make_items(items);
    items[2] = items[1];
    assert_int_equal(tg_safetensors_save(f->ctx, f->path, items, 3, NULL, 0), TG_ERROR_DUPLICATE);
    assert_non_null(strstr(tg_error_message(f->ctx), "layers.0.W"));
    tg_clear_error(f->ctx);
    items[2].name = "__metadata__";
    assert_int_equal(tg_safetensors_save(f->ctx, f->path, items, 3, NULL, 0), TG_ERROR_DUPLICATE);
    tg_clear_error(f->ctx);
    items[2].name = "\xC0\x80";
    assert_int_equal(tg_safetensors_save(f->ctx, f->path, items, 3, NULL, 0), TG_ERROR_ARGUMENT);
    assert_int_equal(count_files(f->folder), 0);
}

/* A file in memory: the header's length, the header, `data` bytes. Returns its size. */
static size_t make_bytes(uint8_t *out, const char *header, size_t data) {
    uint64_t length = strlen(header);
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    for (size_t i = 0; i < data; i++) out[8 + length + i] = (uint8_t)i;
    return 8 + (size_t)length + data;
}

static tg_status read_header(tg_context *ctx, const char *header, size_t data) {
    static uint8_t bytes[8192];
    tg_safetensors *file = NULL;
    size_t size = make_bytes(bytes, header, data);
    uint8_t *exact = malloc(size); /* so that reading past the end is seen by the sanitizer */
    memcpy(exact, bytes, size);
    tg_clear_error(ctx);
    tg_status status = tg_safetensors_read(ctx, "x", exact, size, &file);
    assert_true((status == TG_OK) == (file != NULL));
    assert_int_equal(tg_error(ctx), status);
    tg_safetensors_destroy(file);
    free(exact);
    return status;
}

static void reader_accepts(void **state) {
    io_fixture *f = *state;
    static const struct {
        const char *header;
        size_t data;
    } good[] = {
        {"{}", 0},
        {" {} \n ", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ", 4},
        {"{ \"a\" : { \"data_offsets\" : [ 0 , 8 ] , \"shape\" : [ 2 , 2 ] , \"dtype\" : \"F16\" } }", 8},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[0,3],\"data_offsets\":[0,0]}}", 0},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         7},
        {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2],\"extra\":{\"x\":[1,-2.5e3,true,null,\"s\",{}]}}}", 2},
        {"{\"\\u00e9\\ud83d\\ude00\\n\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (read_header(f->ctx, good[i].header, good[i].data) != TG_OK) fail_msg("%s: %s", good[i].header, tg_error_message(f->ctx));
}

static void reader_refuses(void **state) {
    io_fixture *f = *state;
#define A "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } bad[] = {
        {"", 0, "'{' expected"},
        {"[]", 0, "'{' expected"},
        {"{", 0, "string expected"},
        {"{}x", 0, "after the header's end"},
        {"{\"a\"}", 0, "':' expected"},
        {A, 4, "'}' expected"},
        {A ",}", 4, "string expected"},
        {A "}", 3, "beyond the file"},
        {A "}", 5, "cover 4 of 5"},
        {A ",\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "there twice"},
        {A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "overlaps"},
        {A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}", 6, "overlaps"},
        {A ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5,9]}}", 9, "gap"},
        {A ",\"__metadata__\":{},\"__metadata__\":{}}", 4, "there twice"},
        {A ",\"__metadata__\":{\"x\":1}}", 4, "string expected"},
        {A ",\"__metadata__\":[]}", 4, "'{' expected"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "backwards"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "',' expected"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "expected"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not fit"},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "do not fit"},
        {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "missing"},
        {"{\"a\":{}}", 0, "string expected"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}", 4, "whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}", 4, "leading zero"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,4]}}", 4, "over 2^63"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "over 2^63"}, /* wraps to 0 */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 4, "over 2^63"},   /* times 4 wraps to 4 */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "rank over 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", 4, "beyond the file"},
        {"{\"a\\u0000b\":{}}", 0, "escape"},
        {"{\"a\\ud800\":{}}", 0, "escape"},
        {"{\"a\\q\":{}}", 0, "escape"},
        {"{\"a\\u12\":{}}", 0, "escape"},
        {"{\"\xFF\":{}}", 0, "UTF-8"},
        {"{\"\xED\xA0\x80\":{}}", 0, "UTF-8"},
        {"{\"\xC0\x80\":{}}", 0, "UTF-8"},
        {"{\"a\nb\":{}}", 0, "control character"},
        {"{\"abc", 0, "without an end"},
        {"{\"abc\\", 0, "without an end"},
        {"{\"a\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}}", 0, "too deep"},
    };
#undef A
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tg_status status = read_header(f->ctx, bad[i].header, bad[i].data);
        if (status != TG_ERROR_FORMAT || strstr(tg_error_message(f->ctx), bad[i].says) == NULL)
            fail_msg("%s: status %d, message %s", bad[i].header, (int)status, tg_error_message(f->ctx));
    }
}

static void reader_refuses_lengths(void **state) {
    io_fixture *f = *state;
    static const uint64_t lengths[] = {3, 100, 100000001, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t bytes[10] = {0};
        tg_safetensors *file = NULL;
        memcpy(bytes, &lengths[i], 8);
        memcpy(bytes + 8, "{}", 2);
        assert_int_equal(tg_safetensors_read(f->ctx, "x", bytes, 10, &file), TG_ERROR_FORMAT);
        tg_clear_error(f->ctx);
        for (size_t size = 0; size < 8; size++) {
            assert_int_equal(tg_safetensors_read(f->ctx, "x", bytes, size, &file), TG_ERROR_FORMAT);
            tg_clear_error(f->ctx);
        }
    }
}

/* Every prefix of a good file, and thousands of mutations of it: an error or a file, never a crash, and nothing leaks. */
static void reader_survives_mutations(void **state) {
    io_fixture *f = *state;
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\\u00e9\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[8,12],\"x\":[1,{\"y\":null}]}}";
    uint8_t bytes[1024];
    size_t size = make_bytes(bytes, header, 12);
    int accepted = 0;
    for (size_t cut = 0; cut <= size; cut++) {
        uint8_t *exact = malloc(cut + 1);
        tg_safetensors *file = NULL;
        memcpy(exact, bytes, cut);
        tg_clear_error(f->ctx);
        assert_int_equal(tg_safetensors_read(f->ctx, "x", exact, cut, &file), cut == size ? TG_OK : TG_ERROR_FORMAT);
        tg_safetensors_destroy(file);
        free(exact);
    }
    for (uint64_t round = 0; round < 20000; round++) {
        uint8_t *exact = malloc(size);
        tg_safetensors *file = NULL;
        memcpy(exact, bytes, size);
        for (uint64_t i = 0; i <= round % 3; i++) {
            size_t at = (size_t)(tg_random_uniform(1, round, 2 * i) * (double)size);
            exact[at] =
                round % 2 == 0 ? (uint8_t)(tg_random_uniform(1, round, 2 * i + 1) * 256.0) : (uint8_t) "{}[]:,\"\\0129"[round / 2 % 12];
        }
        tg_clear_error(f->ctx);
        accepted += tg_safetensors_read(f->ctx, "x", exact, size, &file) == TG_OK;
        tg_safetensors_destroy(file);
        free(exact);
    }
    assert_true(accepted > 100 && accepted < 19000); /* data bytes may change freely, structure may not */
    assert_int_equal(f->ctx->live_bytes, 0);
}

/* A header with many names is read in reasonable time: nothing quadratic. */
static void reader_takes_many_tensors(void **state) {
    io_fixture *f = *state;
    const int64_t count = 100000;
    tg_text_buffer text;
    tg_safetensors *file = NULL;
    tg_text_init(&text, f->ctx);
    uint64_t length = 0;
    tg_text_bytes(&text, &length, 8);
    for (int64_t i = 0; i < count; i++)
        tg_text_add(&text, "%c\"n%lld\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i == 0 ? '{' : ',',
                    (long long)(i * 7919 % count));
    tg_text_add(&text, "}");
    assert_false(text.failed);
    length = text.length - 8;
    memcpy(text.data, &length, 8);
    assert_int_equal(tg_safetensors_read(f->ctx, "x", text.data, text.length, &file), TG_OK);
    assert_int_equal(file->tensors.count, count);
    assert_non_null(tg_safetensors_find(file, "n99999"));
    assert_null(tg_safetensors_find(file, "n100000"));
    tg_safetensors_destroy(file);
    tg_text_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(file_round_trip, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(file_empty, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(file_through_links, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(file_abandoned, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(file_stale_temporary, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(file_errors_name_the_path, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(file_is_regular, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(file_full_disk, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(save_and_open, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(save_refuses_bad_names, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(reader_accepts, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(reader_refuses, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(reader_refuses_lengths, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(reader_survives_mutations, io_setup, io_teardown),
        cmocka_unit_test_setup_teardown(reader_takes_many_tensors, io_setup, io_teardown),
    };
    return cmocka_run_group_tests_name("io", tests, NULL, NULL);
}
