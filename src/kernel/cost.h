/* cost: every number fusion decides by, with where it comes from. */
#ifndef TG_COST_H
#define TG_COST_H

/* Rough cost of one elementwise operation in the unit "one add on the tile VM". */
#define TG_COST_CHEAP 1
#define TG_COST_DIVIDE 3
#define TG_COST_TRANSCENDENTAL 8 /* exp, log, tanh: 8 to 12 vector instructions */
#define TG_COST_GATHER 6

/* A value wanted by several kernels is stored once its recomputation costs more than this: about what a write and a read
 * through the second-level cache cost per element. */
#define TG_COST_STORE 16

/* Longest body: registers of a tile (1 KiB each) should stay within the second-level cache, and WGSL compile time linear. */
#define TG_MAX_BODY 192

/* A reduction over few rows keeps its own kernel (elementwise users read its result) when more than this many elements are
 * involved: one row is one unit of parallel work. */
#define TG_ROWS_FOR_FUSION 8
#define TG_FEW_ROWS_ELEMENTS 8192
/* And a row longer than this is not worth holding or recomputing. */
#define TG_LONGEST_FUSED_ROW 32768
#endif
