/* fuzz: shared by the fuzzers. A reader that turns bytes into choices, contexts that must give all
 * their memory back, and a way to end with a reason. Must not know any single fuzzer. */
#ifndef TENSORGRAD_FUZZ_H
#define TENSORGRAD_FUZZ_H

#include "base/base.h"

/* Says why on stderr and traps, so that the input is kept. */
_Noreturn void fuzz_fail(const char *format, ...) TG_PRINTF(1, 2);

/* Choices from bytes; 0 after the last one, so a short input is a short program. */
typedef struct fuzz_reader {
    const uint8_t *at;
    size_t left;
} fuzz_reader;
uint32_t fuzz_bits(fuzz_reader *r, int bytes);
int fuzz_below(fuzz_reader *r, int n); /* [0, n); a byte */
/* one in `of`, never after the end */
bool fuzz_chance(fuzz_reader *r, int of);
/* mostly in there; at times far outside */
int64_t fuzz_whole(fuzz_reader *r, int64_t low, int64_t high);
/* plain ones, and at times infinite, NaN, huge, tiny, -0 */
double fuzz_number(fuzz_reader *r);

tg_context *fuzz_context(void);
/* Fails where a block is still alive, or where the error is a fault of the library itself. */
void fuzz_context_done(tg_context *ctx);
/* A status other than TG_OK comes with a message, and is never TG_ERROR_INTERNAL. */
void fuzz_check_status(const tg_context *ctx, tg_status status, const char *what);

/* A name for a file of this process, in memory where the system has such a folder: writing it
 * through to a disk takes most of a run. */
void fuzz_temporary(char *path, size_t size, const char *what);

#endif
