/* schedule: tables of schedules, and schedules as text. Must not know what a schedule means. */
#include "tile/schedule.h"

#include <stdio.h>
#include <string.h>

#define SCHEDULE_MOST 9999 /* largest value of a field */

typedef struct schedule_field {
    const char *name;
    size_t at;
    unsigned kinds; /* bit k: kind k has the field */
} schedule_field;

#define SCHEDULE_AT(name) #name, offsetof(tg_schedule, name)
#define SCHEDULE_BIT(kind) (1U << TG_SCHEDULE_##kind)
static const schedule_field schedule_fields[] = {
    {SCHEDULE_AT(tile_m), SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(tile_n), SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(rows), SCHEDULE_BIT(DIRECT) | SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(columns), SCHEDULE_BIT(DIRECT) | SCHEDULE_BIT(TILES)},
    {"slice", offsetof(tg_schedule, tile_k), SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(buffers), SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(by_rows), SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(unrolled), SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(size), SCHEDULE_BIT(DIRECT) | SCHEDULE_BIT(CHAIN) | SCHEDULE_BIT(BESIDE)},
    {SCHEDULE_AT(ways), SCHEDULE_BIT(DIRECT)},
    {SCHEDULE_AT(ways_first), SCHEDULE_BIT(DIRECT)},
    {SCHEDULE_AT(parts), SCHEDULE_BIT(DIRECT) | SCHEDULE_BIT(TILES)},
    {SCHEDULE_AT(panel), SCHEDULE_BIT(CHAIN)},
    {SCHEDULE_AT(overlap), SCHEDULE_BIT(BESIDE)},
};
enum { SCHEDULE_FIELDS = (int)(sizeof schedule_fields / sizeof schedule_fields[0]) };
static const char *const schedule_kinds[TG_SCHEDULE_KINDS] = {"none", "direct", "tiles", "chain", "beside"};

static int32_t schedule_get(const tg_schedule *schedule, const schedule_field *field) {
    int32_t value;
    memcpy(&value, (const char *)schedule + field->at, sizeof value);
    return value;
}
static void schedule_set(tg_schedule *schedule, const schedule_field *field, int32_t value) {
    memcpy((char *)schedule + field->at, &value, sizeof value);
}
static bool schedule_has(const tg_schedule *schedule, const schedule_field *field) { return (field->kinds >> schedule->kind & 1U) != 0; }

const tg_schedule *tg_schedule_find(const tg_schedules *table, const char *key) {
    for (int32_t i = table != NULL ? table->count : 0; i > 0; i--)
        if (strcmp(table->items[i - 1].key, key) == 0) return &table->items[i - 1].schedule;
    return NULL;
}

bool tg_schedule_equal(const tg_schedule *a, const tg_schedule *b) { return a->kind == b->kind && tg_schedule_distance(a, b) == 0; }

int tg_schedule_distance(const tg_schedule *a, const tg_schedule *b) {
    int fields = 0;
    for (int i = 0; i < SCHEDULE_FIELDS; i++)
        fields += schedule_has(a, &schedule_fields[i]) && schedule_get(a, &schedule_fields[i]) != schedule_get(b, &schedule_fields[i]);
    return fields;
}

const char *tg_schedule_print(const tg_schedule *schedule, char *text, size_t room) {
    int used = snprintf(text, room, "%s", schedule_kinds[schedule->kind]);
    for (int i = 0; i < SCHEDULE_FIELDS; i++) {
        const schedule_field *field = &schedule_fields[i];
        if (!schedule_has(schedule, field) || used < 0 || (size_t)used >= room) continue;
        used += snprintf(text + used, room - (size_t)used, " %s=%d", field->name, (int)schedule_get(schedule, field));
    }
    return text;
}

/* Moves past `word` when it begins at *at and ends before `end`. */
static bool schedule_word(const char **at, const char *end, const char *word) {
    const size_t length = strlen(word);
    if ((size_t)(end - *at) < length || memcmp(*at, word, length) != 0) return false;
    *at += length;
    return true;
}

/* "name=number". Returns the index of the field; -1: none of this kind. */
static int schedule_parse_field(const char **at, const char *end, const tg_schedule *schedule, int32_t *value) {
    for (int i = 0; i < SCHEDULE_FIELDS; i++) {
        const char *from = *at;
        if (!schedule_has(schedule, &schedule_fields[i]) || !schedule_word(&from, end, schedule_fields[i].name)) continue;
        if (!schedule_word(&from, end, "=")) continue;
        const char *digits = from;
        for (*value = 0; from < end && *from >= '0' && *from <= '9' && *value <= SCHEDULE_MOST; from++)
            *value = *value * 10 + (*from - '0');
        if (from == digits || *value > SCHEDULE_MOST) return -1;
        *at = from;
        return i;
    }
    return -1;
}

bool tg_schedule_parse(const char *text, size_t length, tg_schedule *out) {
    const char *at = text, *end = text + length;
    tg_schedule parsed = {0};
    unsigned seen = 0, wanted = 0;
    for (int32_t kind = 1; kind < TG_SCHEDULE_KINDS && parsed.kind == TG_SCHEDULE_NONE; kind++)
        if (schedule_word(&at, end, schedule_kinds[kind])) parsed.kind = kind;
    if (parsed.kind == TG_SCHEDULE_NONE) return false;
    while (schedule_word(&at, end, " ")) {
        int32_t value = 0;
        const int field = schedule_parse_field(&at, end, &parsed, &value);
        if (field < 0 || (seen >> field & 1U)) return false;
        seen |= 1U << field;
        schedule_set(&parsed, &schedule_fields[field], value);
    }
    for (int i = 0; i < SCHEDULE_FIELDS; i++) wanted |= schedule_has(&parsed, &schedule_fields[i]) ? 1U << i : 0;
    if (at != end || seen != wanted) return false;
    *out = parsed;
    return true;
}

#undef SCHEDULE_MOST
#undef SCHEDULE_AT
#undef SCHEDULE_BIT
