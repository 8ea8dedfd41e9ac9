/* tuning_table: the file that keeps, beside the user's caches, which schedules were found fastest
 * on which adapter. A file is looked for where TENSORGRAD_TUNING says ("off": nowhere); else it is
 * tensorgrad/tuning.txt in XDG_CACHE_HOME or  /.cache (Windows: %LOCALAPPDATA%). Must not know what
 * a schedule means, nor devices.
 *
 * Text: a first line "tensorgrad tuning 1", then lines of an adapter, a key and a schedule, parted
 * by tabs. */
#ifndef TG_TUNING_TABLE_H
#define TG_TUNING_TABLE_H
#include "tile/schedule.h"

#define TG_TUNING_PATH 1024
#define TG_TUNING_ADAPTER 512 /* room for what names an adapter, its driver included */

typedef struct tg_tuning {
    tg_arena arena;
    tg_schedules table;
} tg_tuning;

/* Into `path`. False: there is to be no file, or no place for one is known. */
bool tg_tuning_path(char path[TG_TUNING_PATH]);
/* The file's entries for one adapter. No file is an empty table; one that cannot be read or is not
 * such a file is too, and a warning in the log. TG_ERROR_MEMORY is all that can go wrong. */
tg_status tg_tuning_load(tg_context *ctx, const char *adapter, tg_tuning *out);
void tg_tuning_free(tg_tuning *tuning); /* zeroed is fine */
/* Puts entries into the file, in place of those of the same adapter and key; of a kind
 * TG_SCHEDULE_NONE: takes such out. What else is there stays; folders are made. The file is
 * replaced as a whole, or stays as it was. TG_ERROR_IO; TG_ERROR_FORMAT: what is there is no such
 * file, and is left alone. TG_ERROR_STATE: there is no place for it. */
tg_status tg_tuning_store(tg_context *ctx, const char *adapter, const tg_schedule_entry *items, int32_t count);
#endif
