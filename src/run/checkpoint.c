/* checkpoint: a model as a safetensors file. A parameter is stored under its own name, a user state
 * (statistics of a batch norm) as "tg.state/NAME"; of a training model also the optimiser's flat
 * states, cut up per trained parameter ("tg.m/l1.W"), "tg.step" and "tg.lr" (the schedule, so that
 * a resumed run continues bit for bit); metadata: format, version, and of a training model step,
 * seed and how many steps were skipped. A load checks all of it before it writes any of it. Must
 * not know devices. */
#include "run/model.h"

#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of the file and where it lives on the device. */
typedef struct checkpoint_entry {
    const char *name;
    tg_dtype dtype;
    tg_shape shape;
    int32_t slot;
    int64_t first, count;
} checkpoint_entry;

typedef struct checkpoint_map {
    tg_context *ctx;
    tg_arena arena;
    TG_LIST(checkpoint_entry) entries;
} checkpoint_map;

static bool checkpoint_is_training_name(const char *name) { return strncmp(name, "tg.", 3) == 0; }
static bool checkpoint_is_state_name(const char *name) { return strncmp(name, "tg.state/", 9) == 0; }

static void checkpoint_map_free(checkpoint_map *map) {
    if (map->entries.items != NULL) tg_release(map->ctx, map->entries.items, (size_t)map->entries.capacity * sizeof *map->entries.items);
    tg_arena_free(&map->arena);
}

static tg_status checkpoint_add(checkpoint_map *map, checkpoint_entry entry) {
    if (entry.name == NULL) return TG_ERROR_MEMORY; /* a name that could not be made */
    bool room;
    TG_LIST_ROOM(map, entries, room);
    if (!room) return TG_ERROR_MEMORY;
    map->entries.items[map->entries.count++] = entry;
    return TG_OK;
}

/* Parameter by parameter of a flat state: all under their names, or the trained ones under
 * "STATE/NAME". */
static tg_status checkpoint_add_flat(checkpoint_map *map, const tg_family *family, int32_t slot, const char *prefix) {
    for (int i = 0; i < family->layout.count; i++) {
        const tg_layout_entry *param = &family->layout.entries[i];
        if (prefix != NULL && param->frozen) continue;
        checkpoint_entry entry = {param->name, TG_F32, param->shape, slot, param->offset, param->count};
        if (prefix != NULL) entry.name = tg_arena_format(&map->arena, "%s/%s", prefix, param->name);
        tg_status status = checkpoint_add(map, entry);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

/* Leaves out a state that only a sibling has: the file must fit the model without its siblings. */
static bool checkpoint_has_state(const tg_model *model, const char *name) { return tg_ir_find_state(model->traced, name) != 0; }

/* User states and, of a training model, all training state except the parameters. Gradients are not
 * kept. */
static tg_status checkpoint_add_states(checkpoint_map *map, const tg_model *model) {
    const tg_family *family = model->family;
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const tg_family_state *state = &family->states.items[slot];
        if (strcmp(state->name, "tg.parameters") == 0 || strcmp(state->name, "tg.gradients") == 0) continue;
        if (strcmp(state->name, TG_RANDOM_RUNS) == 0) continue; /* runs begin anew */
        bool of_training = checkpoint_is_training_name(state->name);
        if (of_training ? !model->training : !checkpoint_has_state(model, state->name)) continue;
        bool flat = of_training && state->dtype == TG_F32 && state->shape.rank == 1 && state->count == family->layout.total;
        checkpoint_entry entry = {state->name, state->dtype, state->shape, slot, 0, state->count};
        if (!of_training) entry.name = tg_arena_format(&map->arena, "tg.state/%s", state->name);
        tg_status status = flat ? checkpoint_add_flat(map, family, slot, state->name) : checkpoint_add(map, entry);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static tg_status checkpoint_map_make(checkpoint_map *map, const tg_model *model) {
    memset(map, 0, sizeof *map);
    map->ctx = model->ctx;
    tg_arena_init(&map->arena, model->ctx);
    int32_t slot = tg_family_find(model->family, "tg.parameters");
    tg_status status = slot >= 0 ? checkpoint_add_flat(map, model->family, slot, NULL) : TG_OK;
    return status == TG_OK ? checkpoint_add_states(map, model) : status;
}

/* ---------------------------------------------------------------- saving */

static tg_status checkpoint_read_entries(checkpoint_map *map, tg_family *family, tg_file_item *items) {
    for (int64_t i = 0; i < map->entries.count; i++) {
        const checkpoint_entry *entry = &map->entries.items[i];
        void *data = tg_arena_alloc(&map->arena, (size_t)entry->count * tg_dtype_bytes(entry->dtype));
        if (data == NULL) return TG_ERROR_MEMORY;
        tg_status status = tg_family_read_snapshot(family, entry->slot, entry->first, data, entry->count);
        if (status != TG_OK) return status;
        items[i].name = entry->name;
        items[i].dtype = entry->dtype;
        items[i].shape = entry->shape;
        items[i].data = data;
    }
    return TG_OK;
}

static tg_status checkpoint_save(const tg_model *model, checkpoint_map *map, const char *path) {
    char step[32], seed[32], skipped[32];
    tg_file_item *items = TG_NEW(&map->arena, tg_file_item, map->entries.count + 1);
    if (items == NULL) return TG_ERROR_MEMORY;
    tg_status status = tg_family_snapshot(model->family);
    if (status == TG_OK) status = checkpoint_read_entries(map, model->family, items);
    if (status != TG_OK) return status;
    snprintf(step, sizeof step, "%lld", (long long)model->family->steps);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)model->family->seed);
    snprintf(skipped, sizeof skipped, "%lld", (long long)model->family->skipped);
    const tg_file_text metadata[] = {
        {"format", "tensorgrad"}, {"version", TG_VERSION}, {"step", step}, {"seed", seed}, {"skipped", skipped}};
    const int pairs = !model->training ? 2 : model->family->skipped == 0 ? 4 : 5;
    return tg_safetensors_save(model->ctx, path, items, map->entries.count, metadata, pairs);
}

tg_status tg_model_save_at(tg_site site, tg_model *model, const char *path) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    if (path == NULL || path[0] == '\0') return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "save: no path");
    checkpoint_map map;
    tg_status status = checkpoint_map_make(&map, model);
    if (status == TG_OK) status = checkpoint_save(model, &map, path);
    checkpoint_map_free(&map);
    return status;
}

/* ---------------------------------------------------------------- loading */

typedef struct checkpoint_load {
    const tg_model *model;
    const char *path;
    tg_safetensors *file;
    const checkpoint_map *map;
    bool training; /* the model trains and the file holds training state */
    int64_t steps, skipped;
    uint64_t seed;
} checkpoint_load;

/* A model that predicts needs its states; training may begin them again if the file has none. */
static bool checkpoint_wanted(const checkpoint_load *load, const checkpoint_entry *entry) {
    if (load->training || !checkpoint_is_training_name(entry->name)) return true;
    if (entry->slot == tg_family_find(load->model->family, "tg.parameters")) return true;
    if (!checkpoint_is_state_name(entry->name)) return false;
    return !load->model->training || tg_safetensors_find(load->file, entry->name) != NULL;
}

/* NULL for a tensor that is in the file */
static const char *checkpoint_missing_name(const void *user, int64_t i) {
    const checkpoint_load *load = user;
    const checkpoint_entry *entry = &load->map->entries.items[i];
    return !checkpoint_wanted(load, entry) || tg_safetensors_find(load->file, entry->name) != NULL ? NULL : entry->name;
}

static const checkpoint_entry *checkpoint_entry_named(const checkpoint_map *map, const char *name) {
    for (int64_t i = 0; i < map->entries.count; i++)
        if (strcmp(map->entries.items[i].name, name) == 0) return &map->entries.items[i];
    return NULL;
}

/* NULL for a tensor that the model has, or may ignore: a forward model needs no optimiser state */
static const char *checkpoint_unknown_name(const void *user, int64_t i) {
    const checkpoint_load *load = user;
    const char *name = load->file->tensors.items[i].name;
    if (!load->training && checkpoint_is_training_name(name)) return NULL;
    return checkpoint_entry_named(load->map, name) != NULL ? NULL : name;
}

static tg_status checkpoint_check_names(const checkpoint_load *load) {
    char names[TG_NAMES_TEXT];
    tg_context *ctx = load->model->ctx;
    for (int64_t i = 0; i < load->map->entries.count; i++)
        if (checkpoint_missing_name(load, i) != NULL)
            return tg_fail(ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "load: %s lacks tensors of the model: %s", load->path,
                           tg_names_text(names, sizeof names, checkpoint_missing_name, load, load->map->entries.count));
    for (int64_t i = 0; i < load->file->tensors.count; i++)
        if (checkpoint_unknown_name(load, i) != NULL)
            return tg_fail(ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "load: %s has tensors the model lacks: %s", load->path,
                           tg_names_text(names, sizeof names, checkpoint_unknown_name, load, load->file->tensors.count));
    return TG_OK;
}

/* tg.lr as versions wrote it that knew one warm-up. */
static bool checkpoint_is_old_lr(const tg_file_tensor *tensor) {
    return strcmp(tensor->name, "tg.lr") == 0 && tensor->shape.rank == 1 && tensor->shape.dim[0] == TG_LR_STATE_BEFORE;
}

static tg_status checkpoint_check_entry(const checkpoint_load *load, const checkpoint_entry *entry) {
    const tg_file_tensor *tensor = tg_safetensors_find(load->file, entry->name);
    char have[TG_SHAPE_TEXT], want[TG_SHAPE_TEXT];
    if (strcmp(tensor->dtype, tg_safetensors_dtype(entry->dtype)) != 0)
        return tg_fail(load->model->ctx, TG_ERROR_DTYPE, TG_SITE_NONE, "load: %s: tensor %s is %s, the model's is %s", load->path,
                       entry->name, tensor->dtype, tg_safetensors_dtype(entry->dtype));
    if (!tg_shape_equal(tensor->shape, entry->shape) && !checkpoint_is_old_lr(tensor))
        return tg_fail(load->model->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "load: %s: tensor %s is %s, the model's is %s", load->path,
                       entry->name, tg_shape_text(tensor->shape, have, sizeof have), tg_shape_text(entry->shape, want, sizeof want));
    const uint8_t *bytes = tensor->data;
    for (int64_t i = 0; entry->dtype == TG_BOOL && i < entry->count; i++)
        if (bytes[i] > 1)
            return tg_fail(load->model->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: bool tensor %s holds %d", load->path, entry->name,
                           bytes[i]);
    return TG_OK;
}

/* A whole number of decimal digits in the metadata; absent: *out stays. */
static tg_status checkpoint_number(const checkpoint_load *load, const char *key, uint64_t limit, uint64_t *out) {
    const char *text = tg_safetensors_metadata(load->file, key);
    if (text == NULL) return TG_OK;
    uint64_t value = 0;
    size_t digits = strspn(text, "0123456789");
    bool ok = digits > 0 && text[digits] == '\0';
    for (size_t i = 0; i < digits && ok; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        ok = value <= (UINT64_MAX - digit) / 10;
        value = ok ? value * 10 + digit : 0;
    }
    if (!ok || value > limit)
        return tg_fail(load->model->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: metadata %s is no such number: %.100s", load->path, key,
                       text);
    *out = value;
    return TG_OK;
}

/* The numbers of tg.lr are what rates are made of. */
static tg_status checkpoint_check_lr(const checkpoint_load *load) {
    const tg_file_tensor *lr = tg_safetensors_find(load->file, "tg.lr");
    const int64_t count = lr != NULL ? lr->shape.dim[0] : 0;
    for (int64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)lr->data + (size_t)i * sizeof value, sizeof value);
        if (!isfinite(value))
            return tg_fail(load->model->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: tg.lr holds %g", load->path, (double)value);
    }
    return TG_OK;
}

/* The counter on the device and the metadata must agree about the steps, if both are there. */
static tg_status checkpoint_counters(checkpoint_load *load) {
    const tg_file_tensor *counter = tg_safetensors_find(load->file, "tg.step");
    int32_t value = 0;
    if (counter != NULL) memcpy(&value, counter->data, sizeof value);
    if (value < 0) return tg_fail(load->model->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: tg.step is %d", load->path, (int)value);
    uint64_t skipped = 0;
    tg_status status = checkpoint_number(load, "skipped", (uint64_t)(INT32_MAX - value), &skipped);
    uint64_t steps = (uint64_t)value + skipped;
    if (status == TG_OK) status = checkpoint_number(load, "step", INT32_MAX, &steps);
    if (status == TG_OK) status = checkpoint_number(load, "seed", UINT64_MAX, &load->seed);
    if (status != TG_OK) return status;
    load->steps = (int64_t)steps;
    load->skipped = (int64_t)skipped;
    if (load->skipped > load->steps || (counter != NULL && load->steps - load->skipped != value))
        return tg_fail(load->model->ctx, TG_ERROR_FORMAT, TG_SITE_NONE,
                       "load: %s: %lld steps by its metadata, %lld of them skipped, %d by tg.step", load->path, (long long)load->steps,
                       (long long)load->skipped, (int)value);
    return checkpoint_check_lr(load);
}

static tg_status checkpoint_check(checkpoint_load *load) {
    tg_status status = checkpoint_check_names(load);
    for (int64_t i = 0; i < load->map->entries.count && status == TG_OK; i++)
        if (checkpoint_wanted(load, &load->map->entries.items[i])) status = checkpoint_check_entry(load, &load->map->entries.items[i]);
    return status == TG_OK && load->training ? checkpoint_counters(load) : status;
}

static tg_status checkpoint_write(const checkpoint_load *load) {
    tg_family *family = load->model->family;
    const int32_t parameters = tg_family_find(family, "tg.parameters");
    const uint64_t seed = family->seed;
    if (load->training) family->seed = load->seed;
    /* parameters alone into a training model: a fresh start from them */
    tg_status status = load->model->training ? tg_family_reset(family, TG_RESET_OPTIMIZER_AND_USER) : TG_OK;
    for (int64_t i = 0; i < load->map->entries.count && status == TG_OK; i++) {
        const checkpoint_entry *entry = &load->map->entries.items[i];
        if (!checkpoint_wanted(load, entry)) continue;
        const tg_file_tensor *tensor = tg_safetensors_find(load->file, entry->name);
        const void *data = tensor->data;
        float rates[TG_LR_STATE], old_rates[TG_LR_STATE_BEFORE];
        if (checkpoint_is_old_lr(tensor)) {
            memcpy(old_rates, data, sizeof old_rates);
            tg_lr_upgrade(old_rates, rates);
            data = rates;
        }
        if (entry->slot != parameters) status = tg_family_write(family, entry->slot, entry->first, data, entry->count);
        else status = tg_family_write_parameters(family, entry->first, data, entry->count);
    }
    if (status != TG_OK) {
        family->seed = seed;
        return status;
    }
    if (load->training) {
        family->steps = load->steps;
        family->skipped = load->skipped;
    }
    return tg_family_snapshot(family);
}

/* Its step is in the metadata or is a tensor; a file with only user states is that of a model that
 * predicts. */
static bool checkpoint_has_training(const tg_safetensors *file, const checkpoint_map *map, int32_t parameters) {
    if (tg_safetensors_metadata(file, "step") != NULL) return true;
    for (int64_t i = 0; i < file->tensors.count; i++) {
        if (!checkpoint_is_training_name(file->tensors.items[i].name) || checkpoint_is_state_name(file->tensors.items[i].name)) continue;
        const checkpoint_entry *entry = checkpoint_entry_named(map, file->tensors.items[i].name);
        /* not a parameter that happens to be called so */
        if (entry == NULL || entry->slot != parameters) return true;
    }
    return false;
}

static tg_status checkpoint_load_file(const tg_model *model, const checkpoint_map *map, const char *path) {
    checkpoint_load load;
    memset(&load, 0, sizeof load);
    load.model = model;
    load.path = path;
    load.map = map;
    load.seed = model->family->seed;
    tg_status status = tg_safetensors_open(model->ctx, path, &load.file);
    if (status != TG_OK) return status;
    load.training = model->training && checkpoint_has_training(load.file, map, tg_family_find(model->family, "tg.parameters"));
    status = checkpoint_check(&load);
    if (status == TG_OK) status = checkpoint_write(&load);
    tg_safetensors_destroy(load.file);
    return status;
}

tg_status tg_model_load_at(tg_site site, tg_model *model, const char *path) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    if (path == NULL || path[0] == '\0') return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "load: no path");
    checkpoint_map map;
    tg_status status = checkpoint_map_make(&map, model);
    if (status == TG_OK) status = checkpoint_load_file(model, &map, path);
    checkpoint_map_free(&map);
    return status;
}
