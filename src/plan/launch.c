/* launch: see plan.h and tg_launch. Looks for chains first: for each number of slices, the kernels
 * that can follow each other slice by slice. Kernels that must run before the best chain, and those
 * left over, go side by side, as soon as their operands are there. Owns which kernels start
 * together and the order that this needs. Must not know buffers or places. */
#include "kernel/cost.h"
#include "plan/plan.h"
#include "tile/choice.h"

#include <string.h>

typedef enum launch_role {
    LAUNCH_FREE,   /* needs nothing of the chain: may run before it */
    LAUNCH_MEMBER, /* of the chain */
    LAUNCH_AFTER   /* needs a member, without being one */
} launch_role;

typedef struct launch_need {
    int32_t position; /* of a kernel that must have run */
    bool aligned;     /* all reads of it are slice by slice, for the slices looked at */
} launch_need;

typedef struct launch_kernel {
    const tg_kernel *kernel;
    int32_t group;
    int32_t need_begin, need_end; /* of launcher.needs */
    double alone;                 /* microseconds in a launch of its own */
    double chained;               /* microseconds in a chain of the slices looked at */
    bool sliced;                  /* can be in such a chain */
    bool feeds;                   /* something sliced needs it, directly or not */
    bool done;
} launch_kernel;

/* A choice of members; arrays by position. */
typedef struct launch_chain {
    uint8_t *role;
    bool *banned; /* must not be members: something that the chain waits for needs them */
    int32_t slices, members;
    double gain; /* microseconds saved against launches side by side */
} launch_chain;

typedef struct launcher {
    tg_planner *p;
    int32_t count;
    int32_t begin, end;     /* positions looked at: from the first that is not done on */
    launch_kernel *kernels; /* by position in the order of the trace */
    launch_need *needs;
    int32_t *depth; /* of the members of a chain; scratch */
    bool *wanted;   /* scratch */
    bool *among;    /* kernels that the next launch is chosen from */
    launch_chain best, now, trial, waiting;
    bool *bound;     /* by state: bound by the launch that is being put together */
    int32_t binding; /* how many */
    int32_t *order, ordered;
} launcher;

/* ---- kernels and what they need */

static double kernel_operations(const tg_kernel *k) {
    double points = 1;
    for (int d = 0; d < k->loop_count; d++) points *= (double)k->extent[d];
    if (k->flops > 0) return k->flops;
    /* every point is compared with every row of the table */
    for (int32_t i = 0; i < k->body_count; i++)
        if (k->body[i].op == TG_K_SCATTER) points *= (double)k->body[i].rows;
    return points * (double)k->body_count;
}

static double time_alone(const tg_device_model *device, const tg_kernel *k) {
    const tg_device_rates *rates = device->rates;
    if (k->kind == TG_KERNEL_CONTRACT) return rates->launch + tg_tile_time_alone(k, device);
    return rates->launch + kernel_operations(k) / rates->alone_rate;
}

/* One of these has a launch of its own: its workgroups and their memory are laid out for it. */
static bool launches_alone(const tg_kernel *k) { return k->kind == TG_KERNEL_ATTENTION; }

/* A scatter adds to rows of all slices. */
static bool never_sliced(const tg_kernel *k) { return k->kind == TG_KERNEL_SCATTER_ADD || launches_alone(k); }

static double time_in_chain(const tg_device_rates *rates, const tg_kernel *k, int32_t slices) {
    double rounds = (double)((slices + rates->processors - 1) / rates->processors);
    return rates->chained + rounds * (kernel_operations(k) / (double)slices) / rates->slice_rate;
}

static void collect_kernels(launcher *l, int32_t *position_of_group) {
    const tg_planner *p = l->p;
    for (int64_t g = 0; g < p->fusion.groups.count; g++) position_of_group[g] = -1;
    for (int32_t i = 0; i < l->count; i++) {
        launch_kernel *k = &l->kernels[i];
        k->group = p->order[i];
        k->kernel = p->fusion.groups.items[k->group].kernel;
        k->alone = time_alone(p->options->device, k->kernel);
        position_of_group[k->group] = i;
    }
}

static void collect_needs(launcher *l, const int32_t *position_of_group) {
    const tg_planner *p = l->p;
    for (int64_t e = 0; e < p->edges.count; e++) l->kernels[position_of_group[p->edges.items[e].after]].need_end++;
    int32_t begin = 0;
    for (int32_t i = 0; i < l->count; i++) {
        launch_kernel *k = &l->kernels[i];
        k->need_begin = begin;
        begin += k->need_end;
        k->need_end = k->need_begin;
    }
    for (int64_t e = 0; e < p->edges.count; e++) {
        launch_kernel *k = &l->kernels[position_of_group[p->edges.items[e].after]];
        l->needs[k->need_end++].position = position_of_group[p->edges.items[e].before];
    }
}

/* ---- slices */

static int64_t divide_down(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/* Narrows the range of a loop by a bound on that loop alone; bounds on several loops are
 * ignored. */
static void narrow_by_bound(const tg_kernel *k, const tg_bound *bound, int64_t *lowest, int64_t *highest) {
    int loop = -1;
    for (int d = 0; d < k->loop_count; d++) {
        if (bound->at.stride[d] == 0 || k->extent[d] == 1) continue;
        if (loop >= 0) return;
        loop = d;
    }
    const int64_t stride = loop < 0 ? 0 : bound->at.stride[loop];
    /* loop 0 is cut in slices: a bound on it does not hold in each in the same way */
    if (loop == 0 || stride == 0) return;
    const int64_t lo = bound->lo - bound->at.offset, hi = bound->hi - 1 - bound->at.offset;
    const int64_t first = stride > 0 ? -divide_down(-lo, stride) : -divide_down(-hi, stride);
    const int64_t last = stride > 0 ? divide_down(hi, stride) : divide_down(lo, stride);
    if (first > lowest[loop]) lowest[loop] = first;
    if (last < highest[loop]) highest[loop] = last;
}

/* x: the instruction whose bounds keep the access from memory, or NULL. */
static bool access_sliced(const tg_kernel *k, const tg_instruction *x, const tg_affine *at, int64_t count, int32_t slices) {
    if (k->outer_count < 1 || k->extent[0] % slices != 0 || count % slices != 0) return false;
    const int64_t block = k->extent[0] / slices, slice = count / slices;
    int64_t first[TG_MAX_LOOP] = {0}, last[TG_MAX_LOOP], lowest = at->offset, highest = at->offset;
    if (at->stride[0] * block != slice) return false;
    for (int d = 0; d < k->loop_count; d++) last[d] = (d == 0 ? block : k->extent[d]) - 1;
    for (int32_t i = 0; x && i < x->bound_count; i++) narrow_by_bound(k, &x->bounds[i], first, last);
    for (int d = 0; d < k->loop_count; d++) {
        if (first[d] > last[d]) return true; /* touches nothing */
        const bool up = at->stride[d] >= 0;
        lowest += at->stride[d] * (up ? first[d] : last[d]);
        highest += at->stride[d] * (up ? last[d] : first[d]);
    }
    return lowest >= 0 && highest < slice;
}

bool tg_kernel_sliced(const tg_kernel *kernel, int32_t argument, int64_t count, int32_t slices) {
    for (int32_t i = 0; i < kernel->body_count; i++) {
        const tg_instruction *x = &kernel->body[i];
        bool by_row = x->op == TG_K_GATHER || x->op == TG_K_SCATTER;
        if ((!by_row && x->op != TG_K_LOAD && x->op != TG_K_STORE) || x->argument != argument) continue;
        if (by_row || !access_sliced(kernel, x, &x->at, count, slices)) return false;
    }
    const tg_operand_access *operands[2] = {&kernel->a, &kernel->b};
    for (int i = 0; i < 2 && kernel->kind == TG_KERNEL_CONTRACT; i++)
        if (operands[i]->argument == argument && !access_sliced(kernel, NULL, &operands[i]->at, count, slices)) return false;
    return true;
}

static int64_t elements_of(const tg_planner *p, int32_t node) { return tg_shape_count(p->graph->nodes.items[node].shape); }

/* For any reads: could the kernel write slice by slice, in no more time than alone? */
static bool writes_slices(const launcher *l, const tg_kernel *k, int32_t slices) {
    if (never_sliced(k) || k->outer_count < 1 || k->extent[0] % slices != 0) return false;
    for (int32_t i = 0; i < k->argument_count; i++) {
        const int32_t reference = k->arguments[i].reference;
        if (!tg_reference_is_item(reference)) continue;
        if (tg_plan_state_of(l->p, reference) >= 0) return false;
        const int32_t whole = tg_fusion_whole_of(&l->p->fusion, reference);
        const int32_t node = whole >= 0 ? whole : l->p->fusion.items.items[tg_reference_item(reference)].node;
        if (!tg_kernel_sliced(k, i, elements_of(l->p, node), slices)) return false;
    }
    return true;
}

/* Does `reader` read all that `group` makes slice by slice? */
static bool reads_slices(const launcher *l, const tg_kernel *reader, int32_t group, int32_t slices) {
    const tg_fusion *f = &l->p->fusion;
    for (int32_t i = 0; i < reader->argument_count; i++) {
        const int32_t node = reader->arguments[i].reference;
        if (node < 0) continue;
        const bool made = f->whole[node] ? tg_fusion_writes_part(f, group, node)
                                         : f->item_of[node] >= 0 && f->items.items[f->item_of[node]].group == group;
        if (!made) continue;
        if (!tg_kernel_sliced(reader, i, elements_of(l->p, node), slices)) return false;
    }
    return true;
}

/* The most that a chain of these slices could save. Members must be among the given kernels. */
static double prepare_slices(launcher *l, const bool *among, int32_t slices) {
    double most = 0;
    for (int32_t i = l->begin; i < l->end; i++) {
        launch_kernel *k = &l->kernels[i];
        k->feeds = false;
        k->chained = time_in_chain(l->p->options->device->rates, k->kernel, slices);
        k->sliced =
            among[i] && !k->done && k->chained <= k->alone + l->p->options->device->rates->launch && writes_slices(l, k->kernel, slices);
        for (int32_t n = k->need_begin; n < k->need_end && k->sliced; n++)
            l->needs[n].aligned = reads_slices(l, k->kernel, l->kernels[l->needs[n].position].group, slices);
        if (k->sliced) most += k->alone - k->chained;
    }
    for (int32_t i = l->end - 1; i >= l->begin; i--) {
        const launch_kernel *k = &l->kernels[i];
        for (int32_t n = k->need_begin; n < k->need_end; n++)
            if (k->sliced || k->feeds) l->kernels[l->needs[n].position].feeds = true;
    }
    return most;
}

/* ---- bindings */

static void bind_nothing(launcher *l) {
    memset(l->bound, 0, sizeof(bool) * (size_t)(l->p->graph->states.count + 1));
    l->binding = 0;
}

/* The state that argument i is the first of the kernel's to name, unless the launch binds it
 * already; else -1. */
static int32_t state_to_bind(const launcher *l, const tg_kernel *k, int32_t i) {
    const int32_t state = tg_plan_state_of(l->p, k->arguments[i].reference);
    for (int32_t j = 0; j < i && state >= 0; j++)
        if (tg_plan_state_of(l->p, k->arguments[j].reference) == state) return -1;
    return state >= 0 && !l->bound[state] ? state : -1;
}

/* Adds the states that a kernel touches to what the launch binds, unless that is too much. The
 * workspace, inputs, constants and a scratch are always counted. */
static bool bind_states(launcher *l, const tg_kernel *k) {
    int32_t more = 0;
    for (int32_t i = 0; i < k->argument_count; i++) more += state_to_bind(l, k, i) >= 0;
    if (4 + l->binding + more > l->p->options->device->max_arguments) return false;
    for (int32_t i = k->argument_count - 1; i >= 0; i--) {
        const int32_t state = state_to_bind(l, k, i);
        if (state >= 0) l->bound[state] = true;
    }
    l->binding += more;
    return true;
}

/* ---- chains */

/* Takes position's kernel into the chain if it can be. */
static void grow_by(launcher *l, launch_chain *c, int32_t position) {
    const launch_kernel *k = &l->kernels[position];
    bool joins = k->sliced && !c->banned[position] && c->members < TG_MAX_JOINED, after = false;
    int32_t depth = 1;
    for (int32_t n = k->need_begin; n < k->need_end; n++) {
        const int32_t need = l->needs[n].position;
        if (l->kernels[need].done || c->role[need] == LAUNCH_FREE) continue;
        after = true;
        if (c->role[need] == LAUNCH_AFTER || !l->needs[n].aligned) joins = false;
        else if (l->depth[need] >= depth) depth = l->depth[need] + 1;
    }
    joins = joins && bind_states(l, k->kernel);
    c->role[position] = (uint8_t)(joins ? LAUNCH_MEMBER : after ? LAUNCH_AFTER : LAUNCH_FREE);
    if (!joins) return;
    l->depth[position] = depth;
    c->members++;
}

/* Members that neither need a member nor are needed by one gain nothing by a chain. Kernels that
 * wait for them keep waiting. */
static void drop_loners(launcher *l, launch_chain *c) {
    memset(l->wanted + l->begin, 0, sizeof(bool) * (size_t)(l->end - l->begin));
    for (int32_t i = l->end - 1; i >= l->begin; i--) {
        const launch_kernel *k = &l->kernels[i];
        if (k->done || c->role[i] != LAUNCH_MEMBER) continue;
        if (l->depth[i] == 1 && !l->wanted[i]) {
            c->role[i] = LAUNCH_FREE;
            c->members--;
        }
        for (int32_t n = k->need_begin; n < k->need_end; n++) l->wanted[l->needs[n].position] = true;
    }
}

/* Walks the kernels and takes into the chain what can be. */
static void grow_chain(launcher *l, launch_chain *c) {
    int32_t deepest = 1;
    const double launch = l->p->options->device->rates->launch;
    c->members = 0;
    c->gain = 0;
    bind_nothing(l);
    for (int32_t i = l->begin; i < l->end; i++)
        if (!l->kernels[i].done) grow_by(l, c, i);
    drop_loners(l, c);
    for (int32_t i = l->begin; i < l->end; i++) {
        if (l->kernels[i].done || c->role[i] != LAUNCH_MEMBER) continue;
        if (l->depth[i] > deepest) deepest = l->depth[i];
        c->gain += (l->kernels[i].alone - launch) - l->kernels[i].chained;
    }
    c->gain += launch * (deepest - 1); /* side by side, the members would be `deepest` launches */
}

/* Is the kernel the first that blocks the chain: it waits for members, the chain could go on after
 * it, and it is no member itself? */
static bool blocks_chain(const launcher *l, const launch_chain *c, int32_t position) {
    const launch_kernel *k = &l->kernels[position];
    if (k->done || !k->feeds || c->role[position] != LAUNCH_AFTER) return false;
    for (int32_t n = k->need_begin; n < k->need_end; n++) {
        const int32_t need = l->needs[n].position;
        if (!l->kernels[need].done && c->role[need] == LAUNCH_AFTER) return false;
    }
    return true;
}

/* What `position` needs, directly or not, must not be in the chain. */
static void ban_needs(launcher *l, int32_t position, bool *banned) {
    memset(l->wanted + l->begin, 0, sizeof(bool) * (size_t)(l->end - l->begin));
    l->wanted[position] = true;
    for (int32_t i = position; i >= l->begin; i--) {
        if (!l->wanted[i] || l->kernels[i].done) continue;
        banned[i] = banned[i] || i != position;
        for (int32_t n = l->kernels[i].need_begin; n < l->kernels[i].need_end; n++) l->wanted[l->needs[n].position] = true;
    }
}

static void swap_chains(launch_chain *a, launch_chain *b) {
    launch_chain kept = *a;
    *a = *b;
    *b = kept;
}

/* A chain that leaves out the members before a blocking kernel may reach beyond it. */
static void unblock_chain(launcher *l, launch_chain *c, launch_chain *trial) {
    int32_t tries = 0;
    for (int32_t i = l->begin; i < l->end && tries < TG_CHAIN_TRIES; i++) {
        if (!blocks_chain(l, c, i)) continue;
        memcpy(trial->banned + l->begin, c->banned + l->begin, sizeof(bool) * (size_t)(l->end - l->begin));
        trial->slices = c->slices;
        ban_needs(l, i, trial->banned);
        grow_chain(l, trial);
        tries++;
        if (trial->gain <= c->gain) continue;
        swap_chains(c, trial);
        i = l->begin - 1;
    }
}

static bool make_chain(launcher *l, launch_chain *c) {
    c->role = TG_NEW(&l->p->scratch, uint8_t, l->count + 1);
    c->banned = TG_NEW(&l->p->scratch, bool, l->count + 1);
    return c->role && c->banned;
}

/* Numbers of slices that some kernel's first loop would take. */
static void find_slices(const launcher *l, const bool *among, bool *possible) {
    int64_t last = 0; /* neighbours often have the same extent */
    memset(possible, 0, TG_MOST_SLICES + 1);
    for (int32_t i = l->begin; i < l->end; i++) {
        const launch_kernel *k = &l->kernels[i];
        if (!among[i] || k->done || k->kernel->outer_count < 1 || never_sliced(k->kernel)) continue;
        if (k->kernel->extent[0] == last) continue;
        last = k->kernel->extent[0];
        for (int32_t s = TG_FEWEST_SLICES; s <= TG_MOST_SLICES && s <= last; s++)
            if (last % s == 0) possible[s] = true;
    }
}

/* Leaves the best chain among the given kernels in l->best; false when none is worth it. */
static bool find_chain(launcher *l, const bool *among) {
    bool possible[TG_MOST_SLICES + 1];
    launch_chain *best = &l->best, *now = &l->now;
    find_slices(l, among, possible);
    best->members = 0;
    best->gain = 0;
    for (int32_t slices = TG_FEWEST_SLICES; slices <= TG_MOST_SLICES; slices++) {
        if (!possible[slices] || prepare_slices(l, among, slices) <= best->gain) continue;
        memset(now->banned + l->begin, 0, sizeof(bool) * (size_t)(l->end - l->begin));
        now->slices = slices;
        grow_chain(l, now);
        unblock_chain(l, now, &l->trial);
        if (now->members >= 2 && now->gain > best->gain) swap_chains(best, now);
    }
    return best->members > 0;
}

/* The kernels that must run before l->best; false when there are none. May be `among` itself. */
static bool find_needs(launcher *l, bool *needs) {
    bool any = false;
    memset(l->wanted + l->begin, 0, sizeof(bool) * (size_t)(l->end - l->begin));
    for (int32_t i = l->end - 1; i >= l->begin; i--) {
        const launch_kernel *k = &l->kernels[i];
        const bool member = !k->done && l->best.role[i] == LAUNCH_MEMBER;
        needs[i] = !k->done && !member && l->wanted[i];
        any = any || needs[i];
        for (int32_t n = k->need_begin; n < k->need_end && (member || needs[i]); n++) l->wanted[l->needs[n].position] = true;
    }
    return any;
}

/* ---- launches */

static void start_launch(launcher *l, int32_t slices) {
    tg_program *program = l->p->program;
    program->launches[program->launch_count++] = (tg_launch){l->ordered, 0, slices};
}

static void launch_kernel_at(launcher *l, int32_t position) {
    l->order[l->ordered++] = l->kernels[position].group;
    l->p->program->launches[l->p->program->launch_count - 1].count++;
}

/* Only now: kernels of one launch must not need each other. */
static void end_launch(launcher *l, const int32_t *positions, int32_t count) {
    for (int32_t i = 0; i < count; i++) l->kernels[positions[i]].done = true;
}

static bool ready(const launcher *l, int32_t position) {
    const launch_kernel *k = &l->kernels[position];
    for (int32_t n = k->need_begin; n < k->need_end; n++)
        if (!l->kernels[l->needs[n].position].done) return false;
    return !k->done;
}

/* One launch that begins with the first kernel of `wanted` that is ready; false when none is. Small
 * ones join, also those that are not wanted yet unless they are `kept` for a chain. */
static bool launch_beside(launcher *l, const bool *wanted, const uint8_t *kept) {
    int32_t joined[TG_MAX_JOINED], count = 0, first = l->begin;
    const double longest = l->p->options->device->rates->longest_joined;
    while (first < l->end && !(wanted[first] && ready(l, first))) first++;
    if (first == l->end) return false;
    joined[count++] = first;
    bind_nothing(l);
    const bool alone =
        launches_alone(l->kernels[first].kernel) || l->kernels[first].alone > longest || !bind_states(l, l->kernels[first].kernel);
    for (int32_t i = l->begin; i < l->end && !alone && count < TG_MAX_JOINED; i++) {
        if (i == first || (kept && kept[i] == LAUNCH_MEMBER) || l->kernels[i].alone > longest || !ready(l, i)) continue;
        if (launches_alone(l->kernels[i].kernel)) continue;
        if (bind_states(l, l->kernels[i].kernel)) joined[count++] = i;
    }
    start_launch(l, 0);
    for (int32_t i = 0; i < count; i++) launch_kernel_at(l, joined[i]);
    end_launch(l, joined, count);
    return true;
}

static void launch_best_chain(launcher *l) {
    int32_t members[TG_MAX_JOINED], count = 0;
    start_launch(l, l->best.slices);
    for (int32_t i = l->begin; i < l->end; i++) {
        if (l->kernels[i].done || l->best.role[i] != LAUNCH_MEMBER) continue;
        launch_kernel_at(l, i);
        members[count++] = i;
    }
    end_launch(l, members, count);
}

/* The first of what the waiting chain needs; in a very large program all of it, as finding the
 * chain again would take too long. */
static bool launch_needs(launcher *l) {
    bool any = launch_beside(l, l->among, l->waiting.role);
    while (any && l->count > TG_LAUNCH_WINDOW && launch_beside(l, l->among, l->waiting.role)) continue;
    return any;
}

/* One launch on the way to the best chain: that chain, or the best one among the kernels that it
 * needs, and so on. If no needed kernels make a chain, the first of them side by side. False: there
 * is no chain left. */
static bool launch_towards_chain(launcher *l) {
    for (int32_t i = l->begin; i < l->end; i++) l->among[i] = !l->kernels[i].done;
    if (!find_chain(l, l->among)) return false;
    while (find_needs(l, l->among)) {
        swap_chains(&l->best, &l->waiting);
        if (!find_chain(l, l->among)) return launch_needs(l);
    }
    launch_best_chain(l);
    return true;
}

static bool make_launcher(launcher *l, tg_planner *p) {
    const int32_t n = p->order_count;
    int32_t *position = TG_NEW(&p->scratch, int32_t, p->fusion.groups.count + 1);
    *l = (launcher){.p = p, .count = n};
    l->kernels = TG_NEW(&p->scratch, launch_kernel, n + 1);
    l->needs = TG_NEW(&p->scratch, launch_need, p->edges.count + 1);
    l->depth = TG_NEW(&p->scratch, int32_t, n + 1);
    l->wanted = TG_NEW(&p->scratch, bool, n + 1);
    l->among = TG_NEW(&p->scratch, bool, n + 1);
    l->bound = TG_NEW(&p->scratch, bool, p->graph->states.count + 1);
    l->order = TG_NEW(&p->scratch, int32_t, n + 1);
    p->program->launches = TG_NEW(&p->program->arena, tg_launch, n + 1);
    if (!make_chain(l, &l->best) || !make_chain(l, &l->now) || !make_chain(l, &l->trial) || !make_chain(l, &l->waiting)) return false;
    if (!position || !l->kernels || !l->needs || !l->depth || !l->wanted || !l->among || !l->bound || !l->order || !p->program->launches)
        return false;
    p->program->launch_count = 0;
    collect_kernels(l, position);
    collect_needs(l, position);
    return true;
}

/* Moves the window to what is not done; false: all is. */
static bool look_on(launcher *l) {
    while (l->begin < l->count && l->kernels[l->begin].done) l->begin++;
    l->end = l->count - l->begin > TG_LAUNCH_WINDOW ? l->begin + TG_LAUNCH_WINDOW : l->count;
    return l->begin < l->count;
}

tg_status tg_plan_launches(tg_planner *p, bool *joined) {
    launcher l;
    if (!make_launcher(&l, p)) return p->ctx->status;
    while (look_on(&l)) {
        if (launch_towards_chain(&l)) continue;
        memset(l.among + l.begin, 1, sizeof(bool) * (size_t)(l.end - l.begin));
        while (launch_beside(&l, l.among, NULL)) continue;
    }
    if (l.ordered != l.count) return TG_INTERNAL(p->ctx, "a kernel is in no launch");
    p->order = l.order;
    *joined = p->program->launch_count < p->order_count;
    return TG_OK;
}

tg_status tg_plan_launches_apart(tg_planner *p) {
    tg_program *program = p->program;
    program->launches = TG_NEW(&program->arena, tg_launch, p->order_count + 1);
    if (!program->launches) return p->ctx->status;
    program->launch_count = p->order_count;
    for (int32_t k = 0; k < p->order_count; k++) program->launches[k] = (tg_launch){k, 1, 0};
    return TG_OK;
}
