/* cost: the numbers by which fusion and the search for launches decide, each with its source. Must
 * not know devices: their rates are in the device model. */
#ifndef TG_COST_H
#define TG_COST_H

/* Rough cost of one element of an operation in the unit "one add on the tile VM"; ops.def says
 * which op has which. */
#define TG_COST_FREE 0 /* never computed: leaves and views */
#define TG_COST_CHEAP 1
#define TG_COST_DIVIDE 3
#define TG_COST_TRANSCENDENTAL 8 /* exp, log, tanh: 8 to 12 vector instructions */
#define TG_COST_GATHER 6
#define TG_COST_RANDOM 60 /* 20 wide products; measured: 50 adds with AVX-512, 110 with AVX2 */

/* A value that several kernels read is stored if recomputing it costs more than this. A write and a
 * read through the second-level cache of a CPU cost about 16; the bandwidth of a GPU is worth 60.
 * With 24, gelu and its gradient share the stored x alone: no slower on the CPU, and a GPT keeps two
 * activations less in each layer. */
#define TG_COST_STORE 24

/* Longest body: the registers of a tile (1 KiB each) should fit in the second-level cache, and the
 * time to compile WGSL should stay linear. */
#define TG_MAX_BODY 224

/* A reduction over few rows keeps its own kernel (elementwise users read its result) if it covers
 * more than this many elements: one row is one unit of parallel work. */
#define TG_ROWS_FOR_FUSION 8
#define TG_FEW_ROWS_ELEMENTS 8192
/* A row longer than this is not worth holding or recomputing. */
#define TG_LONGEST_FUSED_ROW 32768

/* ---- launches (tg_launch). The time that they take is in the rates of the device model. */

/* Kernels in one launch: the time to compile a shader grows with its length. */
#define TG_MAX_JOINED 96
/* Slices of a chain: fewer leave most processors idle; more are single rows, which share
 * nothing. */
#define TG_FEWEST_SLICES 16
#define TG_MOST_SLICES 1024
/* How often the search for a chain tries to run a kernel that blocks the chain's middle before the
 * chain: each try costs a walk over the kernels. */
#define TG_CHAIN_TRIES 64
/* Kernels that the search looks at from the first one that has no launch yet. */
#define TG_LAUNCH_WINDOW 1024
#endif
