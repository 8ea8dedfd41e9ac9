/* philox: counter-based random bits, so that element i of a stream is a pure function of (seed,
 * stream, i). Philox 4x32 with ten rounds: Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011. Must not know what the numbers are for. */
#include "base/base.h"

#include <math.h>

static void philox_round(uint32_t counter[4], const uint32_t key[2]) {
    const uint64_t left = (uint64_t)0xD2511F53u * counter[0];
    const uint64_t right = (uint64_t)0xCD9E8D57u * counter[2];
    const uint32_t second = counter[1], fourth = counter[3];
    counter[0] = (uint32_t)(right >> 32) ^ second ^ key[0];
    counter[1] = (uint32_t)right;
    counter[2] = (uint32_t)(left >> 32) ^ fourth ^ key[1];
    counter[3] = (uint32_t)left;
}

void tg_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t state[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t round_key[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        philox_round(state, round_key);
        round_key[0] += 0x9E3779B9u; /* golden ratio */
        round_key[1] += 0xBB67AE85u; /* sqrt 3 - 1 */
    }
    for (int i = 0; i < 4; i++) out[i] = state[i];
}

uint32_t tg_random_below(uint32_t high, uint32_t low, uint32_t bound) {
    return (uint32_t)(((uint64_t)high * bound + ((uint64_t)low * bound >> 32)) >> 32);
}

static void philox_element(uint64_t seed, uint64_t stream, uint64_t i, uint32_t out[4]) {
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    tg_philox(counter, key, out);
}

/* 52 random bits plus one half: strictly inside (0, 1) and exact in a double. */
static double philox_open_unit(uint32_t high, uint32_t low) {
    const uint64_t bits = ((uint64_t)high << 32 | low) >> 12;
    return ((double)bits + 0.5) * 0x1p-52;
}

double tg_random_uniform(uint64_t seed, uint64_t stream, uint64_t i) {
    uint32_t word[4];
    philox_element(seed, stream, i, word);
    return philox_open_unit(word[0], word[1]);
}

double tg_random_normal(uint64_t seed, uint64_t stream, uint64_t i) {
    uint32_t word[4];
    philox_element(seed, stream, i, word);
    const double radius = sqrt(-2.0 * log(philox_open_unit(word[0], word[1])));
    return radius * cos(6.283185307179586 * philox_open_unit(word[2], word[3]));
}
