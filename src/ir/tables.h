/* tables: one entry of a graph's table of inputs, and one of its table of states. A program keeps a
 * copy. Must not know nodes. */
#ifndef TG_TABLES_H
#define TG_TABLES_H

#include "base/base.h"

typedef struct tg_input_info {
    const char *name;
    tg_shape shape;
    tg_dtype dtype;
    int32_t node; /* of the graph */
    int32_t any;  /* 1 + the axis declared as TG_ANY; 0: none. Not in the serial form */
} tg_input_info;

typedef struct tg_state_info {
    const char *name;
    tg_shape shape;
    tg_dtype dtype;
    double value; /* of each element before the first run */
    int32_t node;
} tg_state_info;

#endif
