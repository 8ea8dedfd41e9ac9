/* schedule: how a contraction, or a launch of several kernels, is laid out on a GPU, as data. Rules
 * choose one; a table of schedules, with a key for each contraction or launch, overrides the rules.
 * A schedule that is no candidate for that key within these limits is ignored, so a table never
 * changes what can be compiled. It does change the order of summation, and with it the last bits of
 * results. Must not know files, devices or languages. */
#ifndef TG_TILE_SCHEDULE_H
#define TG_TILE_SCHEDULE_H
#include "base/base.h"

typedef enum tg_schedule_kind {
    TG_SCHEDULE_NONE,
    TG_SCHEDULE_DIRECT, /* a contraction: an invocation owns a few outputs */
    TG_SCHEDULE_TILES,  /* a contraction: a workgroup owns a tile */
    TG_SCHEDULE_CHAIN,  /* kernels of a chain */
    TG_SCHEDULE_BESIDE, /* kernels side by side */
    TG_SCHEDULE_KINDS
} tg_schedule_kind;

/* Fields that a kind does not have are 0. */
typedef struct tg_schedule {
    int32_t kind;
    int32_t size;           /* invocations of a workgroup; of TILES it follows from the others */
    int32_t tile_m, tile_n; /* TILES: outputs of a workgroup */
    int32_t rows, columns;  /* DIRECT, TILES: outputs of an invocation */
    int32_t tile_k;         /* TILES: of k in workgroup memory at a time */
    /* TILES: pieces of k in workgroup memory; 1, or 2: one barrier each, not two */
    int32_t buffers;
    /* TILES: four k of the left operand are multiplied row by row, not k by k */
    int32_t by_rows;
    int32_t unrolled;   /* TILES: the epilogue is printed once for each output, not in a loop */
    int32_t ways;       /* DIRECT: invocations that share an output's k */
    int32_t ways_first; /* DIRECT: neighbouring invocations are ways, not outputs */
    /* DIRECT, TILES: of k, by workgroups; their sums are added afterwards */
    int32_t parts;
    int32_t panel;   /* CHAIN: rows that a contraction keeps in workgroup memory, at most */
    int32_t overlap; /* BESIDE: kernels that together take about as long as one alone */
} tg_schedule;

typedef struct tg_schedule_entry {
    const char *key;
    tg_schedule schedule;
} tg_schedule_entry;
typedef struct tg_schedules {
    const tg_schedule_entry *items;
    int32_t count;
} tg_schedules;

/* The last entry with that key; NULL if there is none, or no table. */
const tg_schedule *tg_schedule_find(const tg_schedules *table, const char *key);
bool tg_schedule_equal(const tg_schedule *a, const tg_schedule *b);
/* The number of fields in which two of one kind differ. */
int tg_schedule_distance(const tg_schedule *a, const tg_schedule *b);

#define TG_SCHEDULE_TEXT 192
/* "tiles tile_m=128 tile_n=128 rows=16 .."; cut at `room`. Returns text. */
const char *tg_schedule_print(const tg_schedule *schedule, char *text, size_t room);
/* The reverse: each field of the kind, once, in any order. For anything else false, and *out
 * unchanged. Does not check whether the values make sense. */
bool tg_schedule_parse(const char *text, size_t length, tg_schedule *out);
#endif
