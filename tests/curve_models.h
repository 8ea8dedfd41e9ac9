/* Small networks whose first losses are held against stored PyTorch curves, in the form of the examples (examples.h): a convolutional
 * net, one with dropout, a recurrent one. Data is drawn from (seed, step), so that nothing needs to be read. */
#ifndef TENSORGRAD_TESTS_CURVE_MODELS_H
#define TENSORGRAD_TESTS_CURVE_MODELS_H

#include "examples.h"

/* "conv-bars", "dropout-sin", "recurrent-echo"; NULL when there is none. No forward model, no score. */
const tg_example *curve_model_find(const char *name);

#endif
