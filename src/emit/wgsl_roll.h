/* wgsl_roll: kernels of a chain that repeat: the steps of a recurrence, forward and back. Printed
 * once and run in a loop, they take a shader whose length does not grow with the number of steps.
 * Must not know how kernels are printed. */
#ifndef TG_EMIT_WGSL_ROLL_H
#define TG_EMIT_WGSL_ROLL_H
#include "plan/program.h"

enum { TG_WGSL_LONGEST_PERIOD = 16, TG_WGSL_FEWEST_TURNS = 3 };

/* Kernels [first, first + period) of a launch, `turns` times: kernel first + turn * period + j is
 * kernel first + j, except that each argument's elements lie `turn` steps further on in its
 * block. */
typedef struct tg_wgsl_roll {
    int32_t first, period, turns;
    /* words[j][i]: the length of a step of argument i of kernel first + j */
    int64_t *words[TG_WGSL_LONGEST_PERIOD];
} tg_wgsl_roll;

/* The longest repetition that begins with kernel number `at` of the launch, counted from its first
 * kernel; turns is 1 if there is none. Lists of words are made in the arena. NULL-free unless it
 * returns false: out of memory, recorded. vectors[k][i]: argument i of kernel k is read as vec4s. */
bool tg_wgsl_find_roll(const tg_program *program, const tg_launch *launch, int32_t at, bool *const *vectors, tg_arena *arena,
                       tg_wgsl_roll *out);
#endif
