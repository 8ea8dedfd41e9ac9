/* The tuning table: where its file is looked for, what it may hold, how other files are refused,
 * and how it is rewritten. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "run/tuning_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD "tensorgrad tuning 1\n"
#define CHAIN "chain size=256 panel=8"
#define BESIDE "beside size=256 overlap=4"

typedef struct fixture {
    tg_context *ctx;
    support_allocator allocator;
    char folder[128], path[192];
    int warnings;
    char warning[1024];
} fixture;

static void on_log(void *user, tg_log_level level, const char *message) {
    fixture *f = user;
    f->warnings += level == TG_LOG_WARNING;
    snprintf(f->warning, sizeof f->warning, "%s", message);
}

static int begin(void **state) {
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    f->ctx = tg_context_create(&(tg_context_options){.log = on_log, .log_user = f});
    support_folder(f->folder, sizeof f->folder);
    if (f->ctx == NULL) return -1;
    snprintf(f->path, sizeof f->path, "%s/tuning.txt", f->folder);
    setenv("TENSORGRAD_TUNING", f->path, 1);
    *state = f;
    return 0;
}

static int end(void **state) {
    fixture *f = *state;
    char command[256];
    assert_int_equal(f->ctx->live_blocks, 0);
    tg_context_destroy(f->ctx);
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    const int status = system(command);
    setenv("TENSORGRAD_TUNING", "off", 1);
    free(f);
    return status;
}

static void put(const char *path, const char *text, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void text_is(const char *path, const char *wanted) {
    char text[4096] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, wanted);
}

/* Entries for "a"; nothing leaks, and there is no error. */
static int32_t load(fixture *f, const char *key, char *found, size_t room) {
    tg_tuning tuning;
    assert_int_equal(tg_tuning_load(f->ctx, "a", &tuning), TG_OK);
    assert_int_equal(tg_error(f->ctx), TG_OK);
    const int32_t count = tuning.table.count;
    const tg_schedule *schedule = key != NULL ? tg_schedule_find(&tuning.table, key) : NULL;
    if (found != NULL) snprintf(found, room, "none");
    if (found != NULL && schedule != NULL) tg_schedule_print(schedule, found, room);
    tg_tuning_free(&tuning);
    return count;
}

static void what_is_there_is_loaded(void **state) {
    fixture *f = *state;
    char found[TG_SCHEDULE_TEXT];
    const char *text = HEAD "a\tk 1\t" CHAIN "\nb\tk 1\t" BESIDE "\na\tk 2\t" BESIDE "\na b\tk 2\t" CHAIN "\na\tk 1\t" BESIDE "\n";
    assert_int_equal(load(f, NULL, NULL, 0), 0); /* no file: no table, and no word about it */
    assert_int_equal(f->warnings, 0);
    put(f->path, text, strlen(text));
    assert_int_equal(load(f, "k 2", found, sizeof found), 3);
    assert_string_equal(found, BESIDE);
    load(f, "k 1", found, sizeof found);
    assert_string_equal(found, BESIDE); /* the last one */
    load(f, "k 3", found, sizeof found);
    assert_string_equal(found, "none");
    put(f->path, HEAD, strlen(HEAD));
    assert_int_equal(load(f, NULL, NULL, 0), 0);
    setenv("TENSORGRAD_TUNING", "off", 1);
    assert_int_equal(load(f, NULL, NULL, 0), 0);
    assert_int_equal(f->warnings, 0);
}

/* One warning that names the file; it is not written over either. */
static void is_ignored(fixture *f, const char *says) {
    const tg_schedule_entry entry = {"k", {.kind = TG_SCHEDULE_CHAIN, .size = 128, .panel = 4}};
    f->warnings = 0;
    assert_int_equal(load(f, NULL, NULL, 0), 0);
    if (f->warnings != 1 || !strstr(f->warning, f->path) || !strstr(f->warning, says))
        fail_msg("%d warnings, not one that says '%s': %s", f->warnings, says, f->warning);
    assert_int_not_equal(tg_tuning_store(f->ctx, "a", &entry, 1), TG_OK);
    assert_int_not_equal(tg_error(f->ctx), TG_OK);
    tg_clear_error(f->ctx);
}

static void what_is_no_table_is_ignored(void **state) {
    fixture *f = *state;
    static const char good[] = HEAD "a\tk 1\t" CHAIN "\nb\tk 2\t" BESIDE "\n";
    static const char *const bad[] = {
        "",
        "garbage",
        "tensorgrad tuning 2\n",
        "{\"version\": 1}\n",
        HEAD "a\n",
        HEAD "\n",
        HEAD "a\tk\n",
        HEAD "a\tk\t\n",
        HEAD "a\t\t" CHAIN "\n",
        HEAD "\tk\t" CHAIN "\n",
        HEAD "a\tk\t" CHAIN,
        HEAD "a\tk\t" CHAIN " \n",
        HEAD "a\tk\tchain size=256\n",
        HEAD "a\tk\t" CHAIN "\textra\n",
        HEAD "a\tk\t" CHAIN "\r\n",
        HEAD "a\tk\t" CHAIN "\n\n",
        HEAD "a\tk\n\t" CHAIN "\n",
        HEAD "a\n\tk\t" CHAIN "\n",
    };
    for (int i = 0; i < SUPPORT_COUNT(bad); i++) {
        put(f->path, bad[i], strlen(bad[i]));
        is_ignored(f, "ignored");
        text_is(f->path, bad[i]);
    }
    for (size_t length = 1; length < sizeof good - 1; length++) { /* cut anywhere but between lines */
        put(f->path, good, length);
        if (good[length - 1] != '\n') is_ignored(f, "ignored");
    }
    char zeros[] = HEAD "a\tk 1\t" CHAIN "\n"; /* a NUL in any place */
    for (size_t i = 0; i < sizeof zeros - 1; i++) {
        char copy[sizeof zeros];
        memcpy(copy, zeros, sizeof zeros);
        copy[i] = '\0';
        put(f->path, copy, sizeof zeros - 1);
        is_ignored(f, "ignored");
    }
    char *huge = malloc((4 << 20) + 1);
    assert_non_null(huge);
    memset(huge, '\n', (4 << 20) + 1);
    memcpy(huge, HEAD, strlen(HEAD));
    put(f->path, huge, (4 << 20) + 1);
    free(huge);
    is_ignored(f, "too large");
    assert_int_equal(remove(f->path), 0);
    assert_int_equal(mkdir(f->path, 0700), 0);
    is_ignored(f, "regular file");
}

static void storing_merges(void **state) {
    fixture *f = *state;
    const tg_schedule chain = {.kind = TG_SCHEDULE_CHAIN, .size = 256, .panel = 8}, none = {.kind = TG_SCHEDULE_NONE};
    const tg_schedule beside = {.kind = TG_SCHEDULE_BESIDE, .size = 256, .overlap = 4};
    char deep[256];
    snprintf(deep, sizeof deep, "%s/one/two/tuning.txt", f->folder); /* folders are made */
    setenv("TENSORGRAD_TUNING", deep, 1);
    assert_int_equal(tg_tuning_store(f->ctx, "a", &(tg_schedule_entry){"k 1", chain}, 1), TG_OK);
    text_is(deep, HEAD "a\tk 1\t" CHAIN "\n");
    assert_int_equal(tg_tuning_store(f->ctx, "b", &(tg_schedule_entry){"k 1", beside}, 1), TG_OK);
    text_is(deep, HEAD "a\tk 1\t" CHAIN "\nb\tk 1\t" BESIDE "\n");
    const tg_schedule_entry both[] = {{"k 1", beside}, {"k 2", chain}};
    assert_int_equal(tg_tuning_store(f->ctx, "a", both, 2), TG_OK);
    text_is(deep, HEAD "b\tk 1\t" BESIDE "\na\tk 1\t" BESIDE "\na\tk 2\t" CHAIN "\n");
    const tg_schedule_entry less[] = {{"k 1", none}, {"k 9", none}};
    assert_int_equal(tg_tuning_store(f->ctx, "a", less, 2), TG_OK);
    text_is(deep, HEAD "b\tk 1\t" BESIDE "\na\tk 2\t" CHAIN "\n");
    assert_int_equal(f->warnings, 0);
}

static void where_nothing_can_be_stored(void **state) {
    fixture *f = *state;
    const tg_schedule_entry entry = {"k", {.kind = TG_SCHEDULE_CHAIN, .size = 128, .panel = 4}};
    char path[256];
    setenv("TENSORGRAD_TUNING", "off", 1);
    assert_int_equal(tg_tuning_store(f->ctx, "a", &entry, 1), TG_ERROR_STATE);
    tg_clear_error(f->ctx);
    put(f->path, HEAD, strlen(HEAD)); /* below a file there is no folder */
    snprintf(path, sizeof path, "%s/below/tuning.txt", f->path);
    setenv("TENSORGRAD_TUNING", path, 1);
    assert_int_equal(tg_tuning_store(f->ctx, "a", &entry, 1), TG_ERROR_IO);
    assert_non_null(strstr(tg_error_message(f->ctx), path));
    tg_clear_error(f->ctx);
    assert_int_equal(load(f, NULL, NULL, 0), 0);
    assert_int_equal(f->warnings, 0);
    if (geteuid() == 0) return; /* may write anywhere */
    setenv("TENSORGRAD_TUNING", f->path, 1);
    assert_int_equal(chmod(f->folder, 0500), 0);
    assert_int_equal(tg_tuning_store(f->ctx, "a", &entry, 1), TG_ERROR_IO);
    tg_clear_error(f->ctx);
    text_is(f->path, HEAD);
    assert_int_equal(chmod(f->folder, 0700), 0);
}

static void the_path_follows_the_environment(void **state) {
    (void)state;
    char path[TG_TUNING_PATH];
    const char *home = getenv("HOME"), *cache = getenv("XDG_CACHE_HOME");
    char kept_home[256], kept_cache[256];
    snprintf(kept_home, sizeof kept_home, "%s", home ? home : "");
    snprintf(kept_cache, sizeof kept_cache, "%s", cache ? cache : "");
    setenv("TENSORGRAD_TUNING", "", 1); /* as if it were not set */
    setenv("HOME", "/h", 1);
    setenv("XDG_CACHE_HOME", "/c", 1);
    assert_true(tg_tuning_path(path));
    assert_string_equal(path, "/c/tensorgrad/tuning.txt");
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_true(tg_tuning_path(path));
    assert_string_equal(path, "/h/.cache/tensorgrad/tuning.txt");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_false(tg_tuning_path(path));
    setenv("TENSORGRAD_TUNING", "off", 1);
    assert_false(tg_tuning_path(path));
    char long_path[2 * TG_TUNING_PATH];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    setenv("TENSORGRAD_TUNING", long_path, 1);
    assert_false(tg_tuning_path(path));
    if (kept_home[0]) setenv("HOME", kept_home, 1);
    if (kept_cache[0]) setenv("XDG_CACHE_HOME", kept_cache, 1);
}

/* Four processes that store at the same time: whatever is read is a whole table, and in the end each entry is there. */
static void many_store_at_once(void **state) {
    fixture *f = *state;
    pid_t children[4];
    for (int c = 0; c < 4; c++) {
        children[c] = fork();
        assert_true(children[c] >= 0);
        if (children[c] > 0) continue;
        tg_context *ctx = tg_context_create(NULL);
        bool fine = ctx != NULL;
        char key[16];
        for (int i = 0; i < 50 && fine; i++) {
            snprintf(key, sizeof key, "k %d %d", c, i);
            const tg_schedule_entry entry = {key, {.kind = TG_SCHEDULE_CHAIN, .size = 128, .panel = i}};
            fine = tg_tuning_store(ctx, "a", &entry, 1) == TG_OK;
        }
        tg_context_destroy(ctx);
        _exit(fine ? 0 : 1);
    }
    for (int i = 0; i < 50; i++) load(f, NULL, NULL, 0);
    for (int c = 0; c < 4; c++) {
        int status = 1;
        assert_int_equal(waitpid(children[c], &status, 0), children[c]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(load(f, NULL, NULL, 0), 200);
    assert_int_equal(f->warnings, 0);
}

static void every_allocation_fails(void **state) {
    fixture *f = *state;
    const char *text = HEAD "a\tk 1\t" CHAIN "\na\tk 2\t" BESIDE "\n";
    const tg_schedule_entry entry = {"k 3", {.kind = TG_SCHEDULE_CHAIN, .size = 128, .panel = 4}};
    for (int64_t at = 2;; at++) {
        support_allocator allocator = {.fail_at = at};
        tg_context *ctx = support_context_counting(&allocator);
        if (ctx == NULL) continue;
        put(f->path, text, strlen(text));
        tg_tuning tuning;
        tg_status status = tg_tuning_load(ctx, "a", &tuning);
        if (status == TG_OK) assert_int_equal(tuning.table.count, 2);
        tg_tuning_free(&tuning);
        if (status == TG_OK) status = tg_tuning_store(ctx, "a", &entry, 1);
        const bool reached = allocator.calls >= at;
        tg_context_destroy(ctx);
        assert_int_equal(allocator.live_blocks, 0);
        assert_int_equal(status, reached ? TG_ERROR_MEMORY : TG_OK);
        if (!reached) break;
        text_is(f->path, text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_there_is_loaded, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_table_is_ignored, begin, end),
        cmocka_unit_test_setup_teardown(storing_merges, begin, end),
        cmocka_unit_test_setup_teardown(where_nothing_can_be_stored, begin, end),
        cmocka_unit_test_setup_teardown(the_path_follows_the_environment, begin, end),
        cmocka_unit_test_setup_teardown(many_store_at_once, begin, end),
        cmocka_unit_test_setup_teardown(every_allocation_fails, begin, end),
    };
    return cmocka_run_group_tests_name("tuning", tests, NULL, NULL);
}
