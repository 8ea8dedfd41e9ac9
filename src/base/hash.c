/* hash: 64-bit hashes of bytes for tables inside the process. The same on every machine. Does not
 * resist an attacker. Must not know what is hashed. */
#include "base/base.h"

#include <string.h>

/* Reads little-endian on every machine, so that the value does not depend on the machine. */
static uint64_t hash_word(const unsigned char *at, size_t bytes) {
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++) word |= (uint64_t)at[i] << (8 * i);
    return word;
}

/* The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection in which each input bit
 * flips about half the output bits. */
static uint64_t hash_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t tg_hash(uint64_t seed, const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t state = hash_mix(seed + UINT64_C(0x9E3779B97F4A7C15)) ^ (uint64_t)bytes;
    size_t left = bytes;
    for (; left >= 8; left -= 8, at += 8) state = hash_mix(state ^ hash_word(at, 8)) + UINT64_C(0x9E3779B97F4A7C15);
    if (left) state = hash_mix(state ^ hash_word(at, left)) + UINT64_C(0x9E3779B97F4A7C15);
    return hash_mix(state);
}

uint64_t tg_hash_text(uint64_t seed, const char *text) { return tg_hash(seed, text, strlen(text)); }
