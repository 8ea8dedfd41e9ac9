/* groups: writes what an optimiser's kind, decay filter and parameter groups say of each parameter
 * into the graph's table of parameters, which travels with the graph. Must not know updates or
 * layouts. */
#include "optim/optim.h"

#include <float.h>
#include <string.h>

/* '*' matches any run of characters, '?' any one. On a mismatch the last '*' takes one character
 * more. */
static bool group_matches(const char *pattern, const char *name) {
    const char *star = NULL, *resume = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++resume;
        } else return false;
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

static tg_status group_check(tg_context *ctx, tg_site site, const tg_param_group *group) {
    if (group->pattern == NULL || group->pattern[0] == '\0')
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: a group has no pattern");
    if (!(group->rate >= 0.0 && group->rate <= (double)FLT_MAX))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: group \"%s\": rate must be finite and at least 0, got %g", group->pattern,
                       group->rate);
    if (!(group->weight_decay >= 0.0 && group->weight_decay <= (double)FLT_MAX))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: group \"%s\": weight_decay must be finite and at least 0, got %g",
                       group->pattern, group->weight_decay);
    if (group->decay != TG_DEFAULT && group->decay != TG_YES && group->decay != TG_NO)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: group \"%s\": unknown choice %d of decay", group->pattern,
                       (int)group->decay);
    return TG_OK;
}

static tg_param_mark group_mark(const tg_param_group *group) {
    return (tg_param_mark){.grouped = true,
                           .frozen = group->frozen,
                           .plain = group->plain,
                           .decay = group->decay,
                           .rate = tg_value_or(group->rate, 1.0),
                           .weight_decay = tg_value_or(group->weight_decay, -1.0)};
}

/* The error if no name fits, or only names that earlier groups have. */
static tg_status group_refuse(const tg_graph *g, tg_site site, const char *pattern, const char *why) {
    tg_text_buffer known;
    tg_text_init(&known, g->ctx);
    for (int64_t i = 0; i < g->params.count; i++) tg_text_add(&known, "%s%s", i == 0 ? "" : ", ", g->params.items[i].name);
    tg_status status = tg_fail(g->ctx, TG_ERROR_NOT_FOUND, site, "optimizer: group \"%s\" %s (parameters: %s)", pattern, why,
                               known.length > 0 ? known.data : "none");
    tg_text_free(&known);
    return status;
}

void tg_unmark_params(tg_graph *g) {
    for (int64_t i = 0; i < g->params.count; i++) g->params.items[i].mark = (tg_param_mark){.rate = 1.0, .weight_decay = -1.0};
}

tg_status tg_mark_group(tg_graph *g, tg_site site, const tg_param_group *group) {
    tg_status status = group_check(g->ctx, site, group);
    if (status != TG_OK) return status;
    int fit = 0, taken = 0;
    for (int64_t i = 0; i < g->params.count; i++) {
        tg_param_info *param = &g->params.items[i];
        if (!group_matches(group->pattern, param->name)) continue;
        fit++;
        if (param->mark.grouped) continue;
        taken++;
        param->mark = group_mark(group);
    }
    if (fit == 0) return group_refuse(g, site, group->pattern, "matches no parameter");
    if (taken == 0) return group_refuse(g, site, group->pattern, "matches only parameters of earlier groups");
    return TG_OK;
}

/* Refuses a rate of 0 for all trained parameters: nothing would be trained. */
static tg_status group_check_rates(const tg_graph *g, tg_site site) {
    bool trains = false, still = false;
    for (int64_t i = 0; i < g->params.count; i++) {
        if (tg_param_is_frozen(&g->params.items[i])) continue;
        if (g->params.items[i].mark.rate > 0.0) trains = true;
        else still = true;
    }
    if (trains || !still) return TG_OK;
    return tg_fail(g->ctx, TG_ERROR_ARGUMENT, site, "optimizer: nothing would be trained: rate is 0 in every group");
}

tg_status tg_mark_params(tg_graph *g, tg_site site, const tg_optimizer *optimizer) {
    if (optimizer == NULL || optimizer->kind == TG_OPTIMIZER_NONE) return TG_OK;
    for (int64_t i = 0; i < g->params.count && optimizer->decay_filter != NULL; i++)
        g->params.items[i].decay = optimizer->decay_filter(optimizer->decay_user, g->params.items[i].name);
    if (optimizer->group_count < 0 || (optimizer->group_count > 0 && optimizer->groups == NULL))
        return tg_fail(g->ctx, TG_ERROR_ARGUMENT, site, "optimizer: %d groups at NULL", optimizer->group_count);
    tg_status status = TG_OK;
    if (optimizer->group_count > 0) tg_unmark_params(g);
    for (int i = 0; i < optimizer->group_count && status == TG_OK; i++) {
        const tg_param_group *group = &optimizer->groups[i];
        if (group->plain && optimizer->kind != TG_OPTIMIZER_MUON)
            status = tg_fail(g->ctx, TG_ERROR_ARGUMENT, site, "optimizer: group \"%s\": plain is an option of muon",
                             group->pattern != NULL ? group->pattern : "");
        else status = tg_mark_group(g, site, group);
    }
    for (int64_t i = 0; i < g->params.count; i++) {
        tg_param_info *param = &g->params.items[i];
        param->mark.matrix = optimizer->kind == TG_OPTIMIZER_MUON && param->shape.rank >= 2 && !param->mark.plain;
    }
    return status != TG_OK ? status : group_check_rates(g, site);
}
