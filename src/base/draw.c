/* draw: the row of a data set that a batch takes, computed on the host, and the words a GPU needs
 * for the same. See draw.h. Must not know how a kernel is printed. */
#include "base/draw.h"

int64_t tg_draw_row(const tg_draw *draw, int64_t i) {
    const uint64_t step = (uint64_t)draw->step;
    if (draw->order == TG_BATCH_SEQUENTIAL) return (draw->step % draw->rows * (draw->batch % draw->rows) + i) % draw->rows;
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)step, (uint32_t)(step >> 32), TG_DRAW_TAG};
    const uint32_t key[2] = {(uint32_t)draw->seed, (uint32_t)(draw->seed >> 32)};
    uint32_t word[4];
    tg_philox(counter, key, word);
    return (int64_t)((uint64_t)word[0] * (uint64_t)draw->rows >> 32);
}

/* Word 1: whether the order is sequential. Word 2: the first row of this step in that order. Words
 * 3 and 4: the step, low and high. Words 5 and 6: the seed, low and high. */
void tg_draw_control(const tg_draw *draw, uint32_t words[TG_DRAW_WORDS]) {
    const uint64_t step = (uint64_t)draw->step;
    const tg_draw sequential = {TG_BATCH_SEQUENTIAL, 0, draw->step, draw->rows, draw->batch};
    words[0] = 0;
    words[1] = draw->order == TG_BATCH_SEQUENTIAL;
    words[2] = (uint32_t)tg_draw_row(&sequential, 0);
    words[3] = (uint32_t)step;
    words[4] = (uint32_t)(step >> 32);
    words[5] = (uint32_t)draw->seed;
    words[6] = (uint32_t)(draw->seed >> 32);
    words[7] = 0;
}

int64_t tg_draw_most_steps(int64_t batch) {
    /* first row + steps * batch + row in batch < 2^32 */
    const int64_t most = (INT64_C(1) << 30) / batch;
    return most < 1 ? 1 : most < TG_MOST_STEPS ? most : TG_MOST_STEPS;
}
