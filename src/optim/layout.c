/* layout: the position of each parameter in the flat buffers, and the rewriting of parameters into
 * slices of one flat state. Must not know gradients or update formulas. */
#include "optim/optim.h"

#include <string.h>

static const char layout_state_name[] = "tg.parameters", layout_average_name[] = "tg.average";

/* ---------------------------------------------------------------- layout */

static int64_t layout_align(int64_t count) { return (count + TG_FLAT_ALIGN - 1) / TG_FLAT_ALIGN * TG_FLAT_ALIGN; }

bool tg_param_is_frozen(const tg_param_info *param) { return param->frozen || param->mark.frozen; }

static bool layout_decays(const tg_param_info *param) {
    return param->mark.decay != TG_DEFAULT ? param->mark.decay == TG_YES : param->decay;
}

static bool layout_fill_entry(const tg_param_info *param, tg_arena *arena, tg_layout_entry *entry) {
    entry->name = tg_arena_text(arena, param->name);
    entry->shape = param->shape;
    entry->count = tg_shape_count(param->shape);
    entry->frozen = tg_param_is_frozen(param);
    entry->decay = layout_decays(param);
    entry->matrix = param->mark.matrix && !entry->frozen;
    entry->offset = -1;
    return entry->name != NULL;
}

/* Makes a segment after the last one: gives an offset to each entry that has none yet and is
 * trained like parameter `first`. */
static void layout_add_segment(const tg_graph *g, tg_layout *layout, int first) {
    const tg_param_mark *like = &g->params.items[first].mark;
    const tg_layout_entry *leader = &layout->entries[first];
    tg_layout_segment *segment = &layout->segments[layout->segment_count];
    segment->end = layout->segment_count > 0 ? segment[-1].end : 0;
    segment->rate = like->rate;
    segment->decay = leader->decay;
    segment->weight_decay = like->weight_decay;
    for (int i = first; i < layout->count; i++) {
        const tg_param_mark *mark = &g->params.items[i].mark;
        tg_layout_entry *entry = &layout->entries[i];
        if (entry->offset >= 0 || entry->frozen || entry->matrix != leader->matrix || entry->decay != leader->decay) continue;
        if (mark->rate != like->rate || mark->weight_decay != like->weight_decay) continue;
        entry->offset = segment->end;
        segment->end += layout_align(entry->count);
    }
    layout->segment_count++;
}

/* Makes all segments of matrices or of others, that decay or do not. Returns the end of the last
 * segment. */
static int64_t layout_add_trained(const tg_graph *g, tg_layout *layout, bool matrix, bool decay) {
    for (int i = 0; i < layout->count; i++) {
        const tg_layout_entry *entry = &layout->entries[i];
        if (entry->offset < 0 && !entry->frozen && entry->matrix == matrix && entry->decay == decay) layout_add_segment(g, layout, i);
    }
    return layout->segment_count > 0 ? layout->segments[layout->segment_count - 1].end : 0;
}

static int64_t layout_add_frozen(tg_layout *layout) {
    int64_t end = layout->trained_end;
    for (int i = 0; i < layout->count; i++) {
        if (!layout->entries[i].frozen) continue;
        layout->entries[i].offset = end;
        end += layout_align(layout->entries[i].count);
    }
    return end;
}

tg_status tg_layout_make(const tg_graph *g, tg_arena *arena, tg_layout *out) {
    tg_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.count = (int)g->params.count;
    layout.entries = TG_NEW(arena, tg_layout_entry, layout.count + 1);
    layout.segments = TG_NEW(arena, tg_layout_segment, layout.count + 1);
    if (layout.entries == NULL || layout.segments == NULL) return TG_ERROR_MEMORY;
    for (int i = 0; i < layout.count; i++)
        if (!layout_fill_entry(&g->params.items[i], arena, &layout.entries[i])) return TG_ERROR_MEMORY;
    layout_add_trained(g, &layout, true, true);
    layout.matrix_end = layout_add_trained(g, &layout, true, false);
    layout_add_trained(g, &layout, false, true);
    layout.trained_end = layout_add_trained(g, &layout, false, false);
    layout.total = layout_add_frozen(&layout);
    if (layout.total == 0) layout.total = TG_FLAT_ALIGN;
    if (layout.total > INT32_MAX)
        return tg_fail(g->ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "the parameters together have %lld elements, over the limit of %d",
                       (long long)layout.total, INT32_MAX);
    *out = layout;
    return TG_OK;
}

const tg_layout_entry *tg_layout_find(const tg_layout *layout, const char *name) {
    for (int i = 0; i < layout->count; i++)
        if (strcmp(layout->entries[i].name, name) == 0) return &layout->entries[i];
    return NULL;
}

/* Parameter i of a graph is usually entry i; only sibling graphs need a search. */
static const tg_layout_entry *layout_entry_of(const tg_layout *layout, const char *name, int64_t i) {
    if (i < layout->count && strcmp(layout->entries[i].name, name) == 0) return &layout->entries[i];
    return tg_layout_find(layout, name);
}

/* ---------------------------------------------------------------- flattening */

static tg_status layout_unknown(const tg_graph *g, const tg_layout *layout, const char *name, tg_site site) {
    tg_text_buffer known;
    tg_text_init(&known, g->ctx);
    for (int i = 0; i < layout->count; i++) tg_text_add(&known, "%s%s", i == 0 ? "" : ", ", layout->entries[i].name);
    tg_status status =
        tg_fail(g->ctx, TG_ERROR_NOT_FOUND, site, "no parameter named \"%s\" (known: %s)", name, known.length > 0 ? known.data : "none");
    tg_text_free(&known);
    return status;
}

/* Finds the entry of each of g's parameters. */
static tg_status layout_match(const tg_graph *g, const tg_layout *layout, const tg_layout_entry **entries) {
    char have[TG_SHAPE_TEXT], want[TG_SHAPE_TEXT];
    for (int64_t i = 0; i < g->params.count; i++) {
        const tg_param_info *param = &g->params.items[i];
        tg_site site = tg_graph_node(g, param->node)->site;
        entries[i] = layout_entry_of(layout, param->name, i);
        if (entries[i] == NULL) return layout_unknown(g, layout, param->name, site);
        if (!tg_shape_equal(entries[i]->shape, param->shape))
            return tg_fail(g->ctx, TG_ERROR_SHAPE, site, "parameter \"%s\" is %s here and %s in the model", param->name,
                           tg_shape_text(param->shape, have, sizeof have), tg_shape_text(entries[i]->shape, want, sizeof want));
    }
    return TG_OK;
}

/* A graph that is being rebuilt: its new nodes, and where each old one went. */
typedef struct layout_rebuild {
    tg_graph *g;
    const tg_layout *layout;
    const tg_layout_entry **entries; /* by parameter */
    TG_LIST(tg_node) nodes;
    TG_LIST(tg_writeback_info) writebacks;
    int32_t *moved; /* old id -> new id */
    int32_t state;  /* new id of "tg.parameters" */
    /* New id of "tg.average", from which trained parameters are read; 0: they are read from `state`
     * too. */
    int32_t average;
} layout_rebuild;

int32_t tg_flat_state(tg_graph *g, const char *name, int64_t total) {
    const int32_t made = tg_ir_find_state(g, name);
    return made != 0 ? made : tg_ir_state(g, name, tg_shape_make(1, &total), TG_F32, 0.0);
}

static int32_t layout_push(layout_rebuild *r, const tg_node *node) {
    if (!tg_grow(r->g->ctx, (void **)&r->nodes.items, &r->nodes.capacity, r->nodes.count + 1, sizeof(tg_node))) return 0;
    r->nodes.items[r->nodes.count] = *node;
    return (int32_t)r->nodes.count++;
}

static int32_t layout_push_view(layout_rebuild *r, tg_op op, int32_t input, tg_shape shape, int64_t start, const tg_node *like) {
    tg_node node;
    memset(&node, 0, sizeof node);
    node.op = op;
    node.dtype = TG_F32;
    node.shape = shape;
    node.input_count = 1;
    node.inputs = tg_arena_copy(&r->g->arena, &input, sizeof input);
    node.attr.start[0] = start;
    node.name = like->name;
    node.site = like->site;
    return node.inputs != NULL ? layout_push(r, &node) : 0;
}

/* PARAM -> reshape(slice(tg.parameters)), each left out if it changes nothing. */
static int32_t layout_push_param(layout_rebuild *r, const tg_node *param) {
    const tg_layout_entry *entry = r->entries[param->attr.leaf];
    tg_shape flat = tg_shape_make(1, &entry->count);
    int32_t id = r->average != 0 && !entry->frozen ? r->average : r->state;
    if (entry->count != r->layout->total) id = layout_push_view(r, TG_OP_SLICE, id, flat, entry->offset, param);
    if (id != 0 && !tg_shape_equal(flat, param->shape)) id = layout_push_view(r, TG_OP_RESHAPE, id, param->shape, 0, param);
    return id;
}

static int32_t layout_push_moved(layout_rebuild *r, const tg_node *old) {
    tg_node node = *old;
    if (old->input_count > 0) {
        int32_t *inputs = TG_NEW(&r->g->arena, int32_t, old->input_count);
        if (inputs == NULL) return 0;
        for (int32_t i = 0; i < old->input_count; i++) inputs[i] = r->moved[old->inputs[i]];
        node.inputs = inputs;
    }
    return layout_push(r, &node);
}

/* Poison first, then the flat states (which may have been made late), then all others in the old
 * order. */
static bool layout_rebuild_nodes(layout_rebuild *r, int32_t old_state, int32_t old_average) {
    tg_graph *g = r->g;
    if (layout_push(r, tg_graph_node(g, 0)) != 0 || r->nodes.count != 1) return false;
    r->state = layout_push(r, tg_graph_node(g, old_state));
    if (old_average != 0) r->average = layout_push(r, tg_graph_node(g, old_average));
    if (r->state == 0 || (old_average != 0 && r->average == 0)) return false;
    for (int32_t id = 1; id < g->nodes.count; id++) {
        const tg_node *node = tg_graph_node(g, id);
        if (id == old_state) r->moved[id] = r->state;
        else if (id == old_average) r->moved[id] = r->average;
        else r->moved[id] = node->op == TG_OP_PARAM ? layout_push_param(r, node) : layout_push_moved(r, node);
        if (r->moved[id] == 0) return false;
    }
    return true;
}

/* ---- writebacks */

typedef struct layout_pieces {
    int32_t *sources;
    int64_t *offsets;
    tg_site *sites;
    int count;
} layout_pieces;

/* Keeps the pieces in order of offset. Insertion is cheap because they usually arrive in that
 * order. */
static tg_status layout_add_piece(layout_rebuild *r, layout_pieces *pieces, int32_t source, int64_t offset, tg_site site) {
    int at = pieces->count;
    while (at > 0 && pieces->offsets[at - 1] > offset) at--;
    int64_t count = tg_shape_count(r->nodes.items[source].shape);
    int64_t before_end = at > 0 ? pieces->offsets[at - 1] + tg_shape_count(r->nodes.items[pieces->sources[at - 1]].shape) : 0;
    if (before_end > offset || (at < pieces->count && offset + count > pieces->offsets[at]))
        return tg_fail(r->g->ctx, TG_ERROR_DUPLICATE, site,
                       "a parameter is written by the optimiser and by a writeback: freeze it or leave it");
    for (int i = pieces->count; i > at; i--) {
        pieces->sources[i] = pieces->sources[i - 1];
        pieces->offsets[i] = pieces->offsets[i - 1];
        pieces->sites[i] = pieces->sites[i - 1];
    }
    pieces->sources[at] = source;
    pieces->offsets[at] = offset;
    pieces->sites[at] = site;
    pieces->count++;
    return TG_OK;
}

/* Adds what one old writeback to the flat state or to a parameter stores. */
static tg_status layout_add_writeback(layout_rebuild *r, layout_pieces *pieces, const tg_writeback_info *writeback) {
    const tg_node *to = tg_graph_node(r->g, writeback->destination);
    int32_t source = r->moved[writeback->source];
    if (to->op == TG_OP_PARAM) return layout_add_piece(r, pieces, source, r->entries[to->attr.leaf]->offset, writeback->site);
    const tg_node *from = &r->nodes.items[source];
    if (from->op != TG_OP_PACK) return layout_add_piece(r, pieces, source, 0, writeback->site);
    const int32_t *parts = from->inputs;
    const int64_t *offsets = from->attr.offsets;
    int32_t count = from->input_count;
    for (int32_t i = 0; i < count; i++) {
        tg_status status = layout_add_piece(r, pieces, parts[i], offsets[i], writeback->site);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static bool layout_is_flat(const layout_rebuild *r, const tg_writeback_info *writeback) {
    return tg_graph_node(r->g, writeback->destination)->op == TG_OP_PARAM || r->moved[writeback->destination] == r->state;
}

static bool layout_push_writeback(layout_rebuild *r, int32_t destination, int32_t source, tg_site site) {
    if (!tg_grow(r->g->ctx, (void **)&r->writebacks.items, &r->writebacks.capacity, r->writebacks.count + 1, sizeof(tg_writeback_info)))
        return false;
    tg_writeback_info *to = &r->writebacks.items[r->writebacks.count++];
    to->destination = destination;
    to->source = source;
    to->site = site;
    return true;
}

static int64_t layout_piece_limit(const layout_rebuild *r) {
    int64_t limit = 0;
    for (int64_t i = 0; i < r->g->writebacks.count; i++) {
        const tg_writeback_info *writeback = &r->g->writebacks.items[i];
        if (layout_is_flat(r, writeback)) limit += 1 + r->nodes.items[r->moved[writeback->source]].input_count;
    }
    return limit;
}

/* The pieces as one PACK node. A single piece that covers the state is the state's new value
 * itself. */
static int32_t layout_push_pack(layout_rebuild *r, const layout_pieces *pieces) {
    tg_node node;
    int64_t total = r->layout->total;
    const tg_node *first = &r->nodes.items[pieces->sources[0]];
    if (pieces->count == 1 && first->shape.rank == 1 && first->shape.dim[0] == total) return pieces->sources[0];
    memset(&node, 0, sizeof node);
    node.op = TG_OP_PACK;
    node.dtype = TG_F32;
    node.shape = tg_shape_make(1, &total);
    node.input_count = pieces->count;
    node.inputs = tg_arena_copy(&r->g->arena, pieces->sources, sizeof(int32_t) * (size_t)pieces->count);
    node.attr.offsets = tg_arena_copy(&r->g->arena, pieces->offsets, sizeof(int64_t) * (size_t)pieces->count);
    node.site = pieces->sites[0];
    return node.inputs != NULL && node.attr.offsets != NULL ? layout_push(r, &node) : 0;
}

/* Turns all writes to parameters into one writeback of the flat state. The other writebacks move
 * along. */
static tg_status layout_rebuild_writebacks(layout_rebuild *r) {
    tg_graph *g = r->g;
    layout_pieces pieces;
    int64_t limit = layout_piece_limit(r);
    memset(&pieces, 0, sizeof pieces);
    pieces.sources = TG_NEW(&g->arena, int32_t, limit + 1);
    pieces.offsets = TG_NEW(&g->arena, int64_t, limit + 1);
    pieces.sites = TG_NEW(&g->arena, tg_site, limit + 1);
    if (pieces.sources == NULL || pieces.offsets == NULL || pieces.sites == NULL) return TG_ERROR_MEMORY;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_writeback_info *old = &g->writebacks.items[i];
        tg_status status = TG_OK;
        if (layout_is_flat(r, old)) status = layout_add_writeback(r, &pieces, old);
        else if (!layout_push_writeback(r, r->moved[old->destination], r->moved[old->source], old->site)) status = TG_ERROR_MEMORY;
        if (status != TG_OK) return status;
    }
    if (pieces.count == 0) return TG_OK;
    int32_t packed = layout_push_pack(r, &pieces);
    return packed != 0 && layout_push_writeback(r, r->state, packed, pieces.sites[0]) ? TG_OK : TG_ERROR_MEMORY;
}

/* Nothing can fail from here on. */
static void layout_commit(layout_rebuild *r) {
    tg_graph *g = r->g;
    tg_node *nodes = g->nodes.items;
    int64_t capacity = g->nodes.capacity;
    g->nodes.items = r->nodes.items;
    g->nodes.count = r->nodes.count;
    g->nodes.capacity = r->nodes.capacity;
    r->nodes.items = nodes;
    r->nodes.capacity = capacity;
    tg_writeback_info *writebacks = g->writebacks.items;
    capacity = g->writebacks.capacity;
    g->writebacks.items = r->writebacks.items;
    g->writebacks.count = r->writebacks.count;
    g->writebacks.capacity = r->writebacks.capacity;
    r->writebacks.items = writebacks;
    r->writebacks.capacity = capacity;
    for (int64_t i = 0; i < g->params.count; i++) g->params.items[i].node = 0;
    for (int64_t i = 0; i < g->inputs.count; i++) g->inputs.items[i].node = r->moved[g->inputs.items[i].node];
    for (int64_t i = 0; i < g->states.count; i++) g->states.items[i].node = r->moved[g->states.items[i].node];
    for (int64_t i = 0; i < g->captures.count; i++) g->captures.items[i].node = r->moved[g->captures.items[i].node];
    for (int64_t i = 0; i < g->checks.count; i++) g->checks.items[i].node = r->moved[g->checks.items[i].node];
    g->result = r->moved[g->result];
}

static void layout_release(layout_rebuild *r, int64_t old_nodes) {
    tg_context *ctx = r->g->ctx;
    if (r->nodes.items != NULL) tg_release(ctx, r->nodes.items, sizeof(tg_node) * (size_t)r->nodes.capacity);
    if (r->writebacks.items != NULL) tg_release(ctx, r->writebacks.items, sizeof(tg_writeback_info) * (size_t)r->writebacks.capacity);
    if (r->moved != NULL) tg_release(ctx, r->moved, sizeof(int32_t) * (size_t)old_nodes);
    if (r->entries != NULL) tg_release(ctx, r->entries, sizeof(r->entries[0]) * (size_t)(r->g->params.count + 1));
}

static tg_status layout_rebuild_all(layout_rebuild *r, int32_t state, int32_t average) {
    tg_status status = layout_match(r->g, r->layout, r->entries);
    if (status != TG_OK) return status;
    if (!layout_rebuild_nodes(r, state, average)) return TG_ERROR_MEMORY;
    status = layout_rebuild_writebacks(r);
    if (status == TG_OK) layout_commit(r);
    return status;
}

static tg_status layout_flatten(tg_graph *g, const tg_layout *layout, bool averages) {
    layout_rebuild r;
    if (g->params.count == 0) return TG_OK;
    int32_t state = tg_flat_state(g, layout_state_name, layout->total);
    int32_t average = averages ? tg_flat_state(g, layout_average_name, layout->total) : 0;
    if (state == 0 || (averages && average == 0)) return g->ctx->status;
    memset(&r, 0, sizeof r);
    r.g = g;
    r.layout = layout;
    int64_t old_nodes = g->nodes.count;
    r.moved = tg_alloc(g->ctx, sizeof(int32_t) * (size_t)old_nodes);
    r.entries = tg_alloc(g->ctx, sizeof(r.entries[0]) * (size_t)(g->params.count + 1));
    tg_status status = r.moved != NULL && r.entries != NULL ? layout_rebuild_all(&r, state, average) : TG_ERROR_MEMORY;
    layout_release(&r, old_nodes);
    return status;
}

tg_status tg_flatten_params(tg_graph *g, const tg_layout *layout) { return layout_flatten(g, layout, false); }

tg_status tg_flatten_averages(tg_graph *g, const tg_layout *layout) { return layout_flatten(g, layout, true); }
