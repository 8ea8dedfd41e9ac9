/* device_model: what planning, the printers and the session know of a device: what it can bind, how
 * large a launch may be, how fast it is. Data only: an executor fills it in when it opens a device;
 * tests and exports take tg_device_guaranteed. Must not know how a device is reached. */
#ifndef TG_DEVICE_MODEL_H
#define TG_DEVICE_MODEL_H
#include "ir/dtype.h"

/* Cycles of one processor in which a warp fetches four k of one row of an operand. */
typedef struct tg_device_fetch {
    double together;   /* all lanes read the same place, or places next to each other */
    double neighbours; /* each lane reads the k after those of the lane before */
    double scattered;  /* lanes read places far apart */
} tg_device_fetch;

/* How a GPU is built, and what operations cost on it. */
typedef struct tg_device_rates {
    /* multiprocessors; workgroups of a chain that run at once, one on each */
    int32_t processors;
    double clock;             /* cycles of a processor in a microsecond */
    int32_t lanes;            /* multiply-adds of one processor in a cycle */
    int32_t warps;            /* resident on one processor */
    int32_t busy_invocations; /* this many keep the whole GPU busy */

    /* a launch, microseconds */
    double launch; /* from one dispatch to the next that needs it, if nothing is computed */
    /* operations a microsecond of a kernel that has the GPU to itself; contractions have an
     * estimate of their own (tg_tile_time_alone) */
    double alone_rate;
    /* a kernel of a chain: its barrier, and the latency of its first loads */
    double chained;
    double slice_rate; /* operations a microsecond of one workgroup of a chain */
    /* a kernel that takes longer is launched alone: its own tiling is worth more than the saved
     * launch */
    double longest_joined;

    /* the inside of a contraction, cycles of one processor */
    double read_wait; /* a step of four k never takes less: a read, mostly from a cache */
    /* a slice of a tile never takes less: a read from memory and two barriers */
    double slice_wait;
    double tile_start;  /* addresses, first slice */
    double tile_finish; /* a tile's epilogue, for each output */
    double warp_start;  /* addresses and epilogue of a warp */
    double barrier;     /* one level of the tree that adds the sums of invocations */
    double next_stage;  /* a second stage of the same kernel: a launch */
    double traffic;     /* bytes a cycle at which partial sums move */
    /* one, of a warp that reads its operands from memory, with its share of the loop */
    double multiply_add;
    tg_device_fetch words; /* four loads with their addresses */
    tg_device_fetch wide;  /* one load of a vec4 */
    double crowded;        /* outside a chain a fetch of what others fetch too takes this many times as long */
} tg_device_rates;

struct tg_schedules; /* tile/schedule.h */

typedef struct tg_device_model {
    /* what a program may bind */
    int32_t max_arguments;     /* buffers of a kernel: 7 guaranteed, one is for scratch; CPU: 64 */
    int64_t max_binding_bytes; /* CPU: INT64_MAX */
    /* WebGPU: buffers hold words, an element takes tg_dtype_device_bytes. CPU: it takes
     * tg_dtype_bytes */
    bool in_words;
    /* one launch may hold several kernels (tg_launch): for devices where launches dominate the time
     * of a step */
    bool joins;

    /* what a WGSL kernel may take; all 0 where kernels are not WGSL */
    int32_t invocations;     /* per workgroup, and along x: 256 guaranteed */
    int32_t workgroup_bytes; /* 16384 guaranteed */
    int32_t groups;          /* workgroups per dimension: 65535 guaranteed */
    int32_t storage_buffers; /* per stage, scratch included: 8 guaranteed */
    /* a software adapter: it switches contexts at each barrier of each invocation, so work is laid
     * out without workgroup memory */
    bool slow_barriers;
    /* round operands of contractions to halves where that helps: the device accepts
     * tg_wgsl_f16_probe */
    bool f16;
    /* with f16: invocations of each subgroup, if the device accepts tg_wgsl_matrix_probe; else 0 */
    int32_t matrix_subgroup;
    /* those found to be best on this adapter, or NULL; borrowed */
    const struct tg_schedules *schedules;

    /* NULL is allowed where kernels are not WGSL and `joins` is false */
    const tg_device_rates *rates;
} tg_device_model;

/* The GPU that we have measured most. Also used for all others: they differ in size, hardly in
 * proportion. */
extern const tg_device_rates tg_h200_rates;
/* What every WebGPU device offers, with the rates of the H200. */
extern const tg_device_model tg_device_guaranteed;

#endif
