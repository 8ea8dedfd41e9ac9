/* device_model: the numbers of the devices that are known by name, each with its source. Must not
 * know who reads them. */
#include "kernel/device_model.h"

/* 1.9 GHz: 1900 cycles are a microsecond. */
const tg_device_rates tg_h200_rates = {
    .processors = 132,         /* data sheet */
    .lanes = 128,              /* data sheet */
    .warps = 64,               /* data sheet */
    .busy_invocations = 32768, /* about 132 x 256 */

    .launch = 4.0, /* measured: about 4 */
    /* The next four are estimates from the data sheet and the sizes that matter here; none of them
     * is measured by itself. */
    /* a kernel of a few million operations: far from the peak, because it has few tiles */
    .alone_rate = 8e6,
    .chained = 0.6,
    .slice_rate = 0.1e6,
    .longest_joined = 60.0,

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
