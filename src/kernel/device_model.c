/* device_model: the numbers of the devices that are known by name, each with its source. Must not
 * know who reads them. */
#include "kernel/device_model.h"

const tg_device_rates tg_h200_rates = {
    .processors = 132,         /* data sheet */
    .clock = 1900.0,           /* data sheet */
    .lanes = 128,              /* data sheet */
    .warps = 64,               /* data sheet */
    .busy_invocations = 32768, /* about 132 x 256 */

    .launch = 4.0,     /* measured: about 4 */
    .alone_rate = 8e6, /* estimate: bound by memory */
    .chained = 0.6,    /* estimate */
    /* Measured by whole steps of GPTs, MLPs, CNNs and GRUs of two or more sizes each: with 0.045e6
     * to 0.06e6 all are quickest. Below, the chain of the smallest GPT falls apart (0.32 to
     * 0.45 ms); at 0.1e6 a CNN of 80 GFLOP is one chain (6.2 to 24 ms). */
    .slice_rate = 0.05e6,
    .longest_joined = 30.0, /* from 12 to 40 the same steps differ by less than 5 % */

    .read_wait = 250.0,
    .slice_wait = 800.0,
    .tile_start = 1000.0,
    .tile_finish = 25.0, /* instructions */
    .warp_start = 40.0,  /* about 160 instructions */
    .barrier = 60.0,
    .next_stage = 7000.0, /* 3.6 us measured */
    .traffic = 2500.0,
    .multiply_add = 1.25,
    .words = {.together = 10.0, .neighbours = 20.0, .scattered = 80.0},
    .wide = {.together = 3.0, .neighbours = 8.0, .scattered = 24.0},
    /* measured: 768 x 128 outputs of k = 512 and of k = 128 took 2.7 times what was expected */
    .crowded = 2.5,
};

const tg_device_model tg_device_guaranteed = {
    .max_arguments = 7, /* one of the 8 storage buffers is for scratch */
    .max_binding_bytes = INT64_C(128) << 20,
    .in_words = true,
    .joins = true,
    .invocations = 256,
    .workgroup_bytes = 16384,
    .groups = 65535,
    .storage_buffers = 8,
    .rates = &tg_h200_rates,
};
