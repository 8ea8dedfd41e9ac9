/* device_model: what planning, the printers and the session know of a device: what it can bind, how large a launch may be, how fast
 * it is. Data: an executor fills it in when it opens a device; tests and exports take tg_device_guaranteed. Must not know how a
 * device is reached. */
#ifndef TG_DEVICE_MODEL_H
#define TG_DEVICE_MODEL_H
#include "ir/dtype.h"

/* Cycles of one processor in which a warp fetches four k of one row of an operand. */
typedef struct tg_device_fetch {
    double together;   /* all lanes read the same place, or places next to each other */
    double neighbours; /* each lane reads the k after those of the lane before */
    double scattered;  /* lanes read places far apart */
} tg_device_fetch;

/* How a GPU is built, and what things cost on it. */
typedef struct tg_device_rates {
    int32_t processors;       /* multiprocessors; workgroups of a chain that run at once, one on each */
    int32_t lanes;            /* multiply-adds of one processor in a cycle */
    int32_t warps;            /* resident on one processor */
    int32_t busy_invocations; /* keep the whole GPU busy */

    /* a launch, microseconds */
    double launch;         /* from one dispatch to the next that needs it, when nothing is computed */
    double alone_rate;     /* operations a microsecond of a kernel that has the GPU to itself */
    double chained;        /* a kernel of a chain: its barrier, and the latency of its first loads */
    double slice_rate;     /* operations a microsecond of one workgroup of a chain */
    double longest_joined; /* a kernel that takes longer is launched alone: its own tiling is worth more than the launch it would save */

    /* the inside of a contraction, cycles of one processor */
    double read_wait;      /* a step of four k never takes less: a read, mostly from a cache */
    double slice_wait;     /* a slice of a tile never takes less: a read from memory and two barriers */
    double tile_start;     /* addresses, first slice */
    double tile_finish;    /* of a tile's epilogue, at an output */
    double warp_start;     /* addresses and epilogue of a warp */
    double barrier;        /* a level of the tree that adds up what invocations found */
    double next_stage;     /* a second stage of the same kernel: a launch */
    double traffic;        /* bytes a cycle at which partial sums move */
    double multiply_add;   /* one of a warp that reads its operands from memory, its share of the loop included */
    tg_device_fetch words; /* four loads with their addresses */
    tg_device_fetch wide;  /* one load of a vec4 */
} tg_device_rates;

struct tg_schedules; /* tile/schedule.h */

typedef struct tg_device_model {
    /* what a program may bind */
    int32_t max_arguments;     /* storage buffers of a kernel: 7 guaranteed, one is for scratch; CPU: 64 */
    int64_t max_binding_bytes; /* CPU: INT64_MAX */
    bool in_words;             /* WebGPU: buffers hold words, an element takes tg_dtype_device_bytes. CPU: it takes tg_dtype_bytes */
    bool joins;                /* one launch may hold several kernels (tg_launch): where launches are what a step costs */

    /* what a WGSL kernel may take; all 0 where kernels are not WGSL */
    int32_t invocations;                  /* per workgroup, and along x: 256 guaranteed */
    int32_t workgroup_bytes;              /* 16384 guaranteed */
    int32_t groups;                       /* workgroups per dimension: 65535 guaranteed */
    int32_t storage_buffers;              /* per stage, scratch included: 8 guaranteed */
    bool slow_barriers;                   /* a software adapter: it switches contexts at every barrier of every invocation, so work is
                                             laid out without workgroup memory */
    bool f16;                             /* round operands of contractions to halves where that helps: the device takes
                                             tg_wgsl_f16_probe */
    int32_t matrix_subgroup;              /* with f16: invocations of every subgroup, where the device takes tg_wgsl_matrix_probe; else 0 */
    const struct tg_schedules *schedules; /* what was found to be best on this adapter, or NULL; borrowed */

    /* NULL is allowed where kernels are not WGSL and `joins` is false */
    const tg_device_rates *rates;
} tg_device_model;

/* The GPU that we have measured most. It is the model for all others: they differ in size, hardly
 * in proportion. */
extern const tg_device_rates tg_h200_rates;
/* What every WebGPU device offers, with the rates of the H200. */
extern const tg_device_model tg_device_guaranteed;

#endif
