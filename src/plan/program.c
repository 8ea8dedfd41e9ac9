/* program: from a finished graph to a program. Prepares the graph (index checks on computed values
 * become outputs), has it fused, ordered and placed, and copies what executors and sessions need to
 * know. */
#include "plan/plan.h"

#include <string.h>

static const tg_node *plan_node(const tg_planner *p, int32_t id) { return &p->graph->nodes.items[id]; }

/* ---- index checks: none where it is known that they are right; on the host where they are fed,
 * else as a flag computed beside the step */

static int32_t fed_through_views(const tg_planner *p, int32_t node) {
    for (;;) {
        const tg_node *n = plan_node(p, node);
        if (n->op == TG_OP_INPUT) return n->attr.leaf;
        if (n->op != TG_OP_RESHAPE && n->op != TG_OP_PERMUTE && n->op != TG_OP_BROADCAST && n->op != TG_OP_FLIP) return -1;
        node = n->inputs[0];
    }
}

static int32_t scalar_i32(tg_graph *g, int64_t value) {
    int64_t clamped = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
    return tg_ir_const(g, tg_shape_make(0, NULL), TG_I32, (double)clamped);
}

/* i32 scalar: 1 when some index is bad. */
static int32_t check_flag(tg_graph *g, const tg_index_check *check) {
    g->current_site = check->site;
    int32_t low = tg_ir_binary(g, TG_OP_LESS, check->node, scalar_i32(g, check->lo));
    int32_t high = tg_ir_unary(g, TG_OP_NOT, tg_ir_binary(g, TG_OP_LESS, check->node, scalar_i32(g, check->hi)));
    int32_t bad = tg_ir_binary(g, TG_OP_OR, low, high);
    if (check->has_ignore)
        bad = tg_ir_binary(g, TG_OP_AND, bad, tg_ir_binary(g, TG_OP_NOT_EQUAL, check->node, scalar_i32(g, check->ignore)));
    int32_t flags = tg_ir_cast(g, bad, TG_I32);
    if (flags == 0) return 0;
    int32_t rank = g->nodes.items[flags].shape.rank;
    int32_t worst = rank == 0 ? flags : tg_ir_reduce(g, TG_OP_REDUCE_MAX, flags, (1u << rank) - 1u);
    return tg_ir_reshape(g, worst, tg_shape_make(0, NULL));
}

static bool make_checks(tg_planner *p) {
    tg_graph *g = p->graph;
    tg_program *program = p->program;
    program->feed_checks = TG_NEW(&program->arena, tg_feed_check, g->checks.count + 1);
    program->computed_checks = TG_NEW(&program->arena, tg_computed_check, g->checks.count + 1);
    tg_plan_range *known = g->checks.count > 0 ? TG_NEW(&p->scratch, tg_plan_range, g->nodes.count) : NULL;
    if (!program->feed_checks || !program->computed_checks || (g->checks.count > 0 && !known)) return false;
    if (known) tg_plan_ranges(g, known);
    for (int64_t i = 0; i < g->checks.count; i++) {
        const tg_index_check check = g->checks.items[i];
        /* always right */
        if (known[check.node].lo >= check.lo && known[check.node].hi < check.hi) continue;
        tg_site site = tg_site_make(tg_arena_text(&program->arena, check.site.file ? check.site.file : ""), check.site.line);
        const char *op = tg_arena_text(&program->arena, check.op);
        if (!site.file || !op) return false;
        int32_t input = fed_through_views(p, check.node);
        if (input >= 0) {
            program->feed_checks[program->feed_check_count++] =
                (tg_feed_check){input, check.lo, check.hi, check.has_ignore, check.ignore, op, site};
            continue;
        }
        int32_t flag = check_flag(g, &check);
        if (flag == 0) return false;
        program->computed_checks[program->computed_check_count++] = (tg_computed_check){p->output_count, op, site, check.lo, check.hi};
        p->outputs[p->output_count++] = flag;
    }
    return true;
}

/* A state that takes over the unchanged value of another state gets a view of it, so that it can be
 * held back if both move. */
static bool detach_state_sources(tg_planner *p) {
    tg_graph *g = p->graph;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        int32_t source = tg_strip_reshape(g, g->writebacks.items[i].source);
        if (g->nodes.items[source].op != TG_OP_STATE) continue;
        tg_attributes from_start;
        memset(&from_start, 0, sizeof from_start);
        int32_t same = tg_node_make(g, TG_OP_SLICE, g->nodes.items[source].dtype, g->nodes.items[source].shape, &source, 1, &from_start);
        if (same == 0) return false;
        g->writebacks.items[i].source = same;
    }
    return true;
}

/* ---- tables */

static bool copy_tables(tg_planner *p) {
    tg_graph *g = p->graph;
    tg_program *program = p->program;
    program->inputs = TG_NEW(&program->arena, tg_input_info, g->inputs.count + 1);
    program->states = TG_NEW(&program->arena, tg_state_info, g->states.count + 1);
    if (!program->inputs || !program->states) return false;
    for (int64_t i = 0; i < g->inputs.count; i++) {
        tg_input_info *in = &program->inputs[program->input_count++];
        *in = g->inputs.items[i];
        in->name = tg_arena_text(&program->arena, in->name);
        if (!in->name) return false;
        program->input_bytes += tg_shape_count(in->shape) * tg_program_element_bytes(program, in->dtype);
    }
    for (int64_t i = 0; i < g->states.count; i++) {
        tg_state_info *s = &program->states[program->state_count++];
        *s = g->states.items[i];
        s->name = tg_arena_text(&program->arena, s->name);
        if (!s->name) return false;
        program->state_bytes += tg_shape_count(s->shape) * tg_program_element_bytes(program, s->dtype);
    }
    return true;
}

static bool name_outputs(tg_planner *p) {
    tg_program *program = p->program;
    program->outputs = TG_NEW(&program->arena, tg_output, p->output_count + 1);
    if (!program->outputs) return false;
    program->output_count = p->output_count;
    for (int i = 0; i < p->output_count; i++) {
        const tg_node *n = plan_node(p, p->outputs[i]);
        int32_t capture = i - program->capture_begin;
        const char *name = i == 0 ? "result" : capture < program->capture_count ? p->graph->captures.items[capture].name : "index check";
        program->outputs[i] = (tg_output){tg_arena_text(&program->arena, name), -1, n->shape, n->dtype};
        if (!program->outputs[i].name) return false;
    }
    return true;
}

static bool choose_outputs(tg_planner *p) {
    tg_graph *g = p->graph;
    p->outputs = TG_NEW(&p->scratch, int32_t, 1 + g->captures.count + g->checks.count);
    if (!p->outputs) return false;
    p->outputs[p->output_count++] = g->result;
    p->program->capture_begin = 1;
    if (p->options->captures) p->program->capture_count = (int32_t)g->captures.count;
    for (int32_t i = 0; i < p->program->capture_count; i++) p->outputs[p->output_count++] = g->captures.items[i].node;
    return true;
}

/* ---- the whole */

/* Blocks that kernels of one launch share must be small enough to be bound whole. If not, each
 * kernel is launched alone and binds what it touches. */
static tg_status plan_launches_and_buffers(tg_planner *p) {
    bool joined = false, fits = true;
    const bool joins = p->options->device->joins && !p->options->no_fusion;
    int32_t *order = p->order;
    tg_status status = joins ? tg_plan_launches(p, &joined) : tg_plan_launches_apart(p);
    if (status == TG_OK) status = tg_plan_places(p, &fits);
    if (status == TG_OK && joined && !fits) {
        p->order = order;
        status = tg_plan_launches_apart(p);
        if (status == TG_OK) status = tg_plan_places(p, &fits);
    }
    return status != TG_OK ? status : tg_plan_kernels(p);
}

static tg_status plan_program(tg_planner *p) {
    if (!choose_outputs(p) || !make_checks(p) || !detach_state_sources(p) || !copy_tables(p) || !name_outputs(p))
        return p->ctx->status != TG_OK ? p->ctx->status : TG_INTERNAL(p->ctx, "the graph could not be prepared");
    p->program->node_count = (int32_t)p->graph->nodes.count - 1;
    tg_status status = tg_fuse(&p->fusion, p->graph, p->options->device, p->options->no_fusion, p->outputs, p->output_count);
    if (status == TG_OK) status = tg_plan_order(p);
    if (status == TG_OK) status = plan_launches_and_buffers(p);
    tg_release(p->ctx, p->edges.items, sizeof(tg_plan_edge) * (size_t)p->edges.capacity);
    tg_fusion_free(&p->fusion);
    return status;
}

tg_program *tg_program_make(tg_graph *g, const tg_plan_options *options) {
    tg_planner p;
    memset(&p, 0, sizeof p);
    if (g->result <= 0 || g->result >= g->nodes.count) {
        tg_fail(g->ctx, TG_ERROR_TRACE, g->current_site, "the graph has no result");
        return NULL;
    }
    p.graph = g;
    p.ctx = g->ctx;
    p.options = options;
    p.program = tg_alloc(g->ctx, sizeof(tg_program));
    if (!p.program) return NULL;
    p.program->in_words = options->device->in_words;
    tg_arena_init(&p.program->arena, g->ctx);
    tg_arena_init(&p.scratch, g->ctx);
    tg_status status = plan_program(&p);
    tg_arena_free(&p.scratch);
    if (status == TG_OK) return p.program;
    tg_program_destroy(p.program, g->ctx);
    return NULL;
}

void tg_program_destroy(tg_program *program, tg_context *ctx) {
    if (!program) return;
    tg_arena_free(&program->arena);
    tg_release(ctx, program, sizeof *program);
}

int64_t tg_program_bytes(const tg_program *program) {
    int64_t bytes = (int64_t)sizeof *program + program->buffer_count * (int64_t)sizeof(tg_buffer) +
                    program->launch_count * (int64_t)sizeof(tg_launch) + program->output_count * (int64_t)sizeof(tg_output) +
                    program->input_count * (int64_t)sizeof(tg_input_info) + program->state_count * (int64_t)sizeof(tg_state_info) +
                    program->constant_bytes;
    for (int32_t i = 0; i < program->kernel_count; i++) {
        const tg_kernel *k = &program->kernels[i];
        bytes += (int64_t)sizeof *k + k->body_count * (int64_t)sizeof(tg_instruction) + k->argument_count * (int64_t)sizeof(tg_argument) +
                 k->node_count * (int64_t)sizeof(int32_t);
        for (int32_t j = 0; j < k->body_count; j++) bytes += k->body[j].bound_count * (int64_t)sizeof(tg_bound);
    }
    return bytes;
}

int64_t tg_program_peak_bytes(const tg_program *program) {
    return program->workspace_bytes + program->constant_bytes + program->input_bytes + program->state_bytes;
}
