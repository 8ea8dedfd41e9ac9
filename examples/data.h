/* What the examples share: random numbers for drawing batches, and reading the files that some
 * train on. Knows no model. */
#ifndef TENSORGRAD_EXAMPLES_DATA_H
#define TENSORGRAD_EXAMPLES_DATA_H

#include <stddef.h>
#include <stdint.h>

/* Where the data is: `folder` if it is not NULL, else what TENSORGRAD_DATA names, else where
 * scripts/get-data puts it: tensorgrad in XDG_DATA_HOME or  /.local/share. */
/* The contents of a file there, as allocated bytes with a 0 after them. NULL on an error: then
 * *problem says why, valid until the next call. */
unsigned char *tg_example_read(const char *folder, const char *name, size_t *size, const char **problem);

/* Number i of batch t: SplitMix64 (Steele, Lea & Flood 2014) as a hash. */
uint64_t tg_example_random(uint64_t seed, uint64_t t, uint64_t i);

#endif
