/* tickets: steps that nobody waits for. A step is checked and submitted like any other, and counted
 * then. The device's answer is kept under its ticket until the entry is used again. Owns the order
 * in which steps end. Must not know how a device runs ahead. */
#include "run/call.h"

#include <stdio.h>
#include <string.h>

#define TICKETS_MESSAGE 512

static tg_ticket_entry *tickets_entry(tg_tickets *tickets, tg_ticket ticket) { return &tickets->entries[ticket % TG_TICKETS]; }

/* ---------------------------------------------------------------- ends */

static void tickets_forget(tg_context *ctx, tg_ticket_entry *entry) {
    if (entry->message != NULL) tg_release(ctx, entry->message, TICKETS_MESSAGE);
    entry->message = NULL;
}

void tg_tickets_destroy(tg_family *family) {
    for (int i = 0; family->tickets != NULL && i < TG_TICKETS; i++) tickets_forget(family->ctx, &family->tickets->entries[i]);
    if (family->tickets != NULL) tg_release(family->ctx, family->tickets, sizeof *family->tickets);
    family->tickets = NULL;
}

/* An error here belongs to the ticket, not to the call that collects it. */
static void tickets_end(tg_family *family, tg_ticket_entry *entry, tg_status executed) {
    tg_context *ctx = family->ctx;
    entry->status = executed;
    if (executed == TG_OK) {
        entry->end = tg_model_step_end(entry->model, entry->loss);
        if (entry->end.skipped) family->skipped++;
        return;
    }
    family->steps--; /* it was not made */
    entry->message = tg_alloc(ctx, TICKETS_MESSAGE);
    if (entry->message != NULL)
        snprintf(entry->message, TICKETS_MESSAGE, "step %lld: %.450s", (long long)entry->step, tg_error_message(ctx));
}

/* The oldest step under way, when there is one. *done false: it goes on. */
static void tickets_collect(tg_family *family, bool wait, bool *done) {
    tg_tickets *tickets = family->tickets;
    tg_context *ctx = family->ctx;
    const bool had_error = ctx->status != TG_OK;
    *done = true;
    tg_status executed = family->executor->collect(family->device, wait, done);
    if (!*done) return;
    tickets_end(family, tickets_entry(tickets, ++tickets->finished), executed);
    if (!had_error) tg_clear_error(ctx);
}

void tg_tickets_settle(tg_family *family) {
    bool done = true;
    while (family->tickets != NULL && family->tickets->finished < family->tickets->given) tickets_collect(family, true, &done);
}

void tg_model_enter(const tg_model *model, tg_site site) {
    tg_model_begin(model->ctx, site);
    tg_tickets_settle(model->family);
}

/* ---------------------------------------------------------------- steps */

static bool tickets_run_ahead(const tg_model *model, const tg_variant *variant) {
    return model->family->executor->start != NULL && model->variants[TG_VARIANT_CHECK] == NULL && !model->check_finite &&
           variant->program->kernel_count > 0;
}

static tg_ticket_entry *tickets_give(tg_family *family) {
    tg_tickets *tickets = family->tickets;
    tg_ticket_entry *entry = tickets_entry(tickets, ++tickets->given);
    tickets_forget(family->ctx, entry);
    *entry = (tg_ticket_entry){.status = TG_OK};
    return entry;
}

static tg_status tickets_start(tg_model *model, tg_variant *variant) {
    tg_family *family = model->family;
    tg_tickets *tickets = family->tickets;
    bool done = true;
    while (tickets->given - tickets->finished >= TG_FLIGHTS) tickets_collect(family, true, &done);
    tg_ticket_entry *entry = tickets_entry(tickets, tickets->given + 1);
    tg_status status = family->executor->start(family->device, variant->executable, variant->inputs, &entry->loss);
    if (status != TG_OK) return status;
    entry = tickets_give(family);
    entry->step = ++family->steps;
    entry->model = model;
    family->has_gradients = true;
    return TG_OK;
}

/* Done when it returns; the ticket reports a loss that is not finite. */
static tg_status tickets_in_place(tg_model *model) {
    tg_family *family = model->family;
    tg_model_call call;
    tg_status status = tg_model_call_begin_fed(&call, model);
    if (status == TG_OK) status = tg_model_call_run(&call);
    if ((status != TG_OK && status != TG_ERROR_NOT_FINITE) || call.refused) return status;
    tg_clear_error(model->ctx);
    tg_ticket_entry *entry = tickets_give(family);
    entry->end = call.end;
    entry->step = family->steps;
    family->tickets->finished++;
    return TG_OK;
}

static tg_status tickets_step(tg_model *model, const tg_feed *feeds, int n) {
    tg_family *family = model->family;
    if (!model->training) return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE, "step_async: this is a forward model: use tg_run");
    if (family->executor->asynchronous) return TG_INTERNAL(model->ctx, "a step that nobody waits for, on a device driven from outside");
    tg_status status = tg_sizes_choose(&model, "step_async", feeds, n);
    if (status == TG_OK) status = tg_feeds_check(model, "step_async", feeds, n);
    if (status == TG_OK) status = tg_model_check_room(model, "step_async");
    if (status != TG_OK) return status;
    if (family->tickets == NULL) family->tickets = tg_alloc(family->ctx, sizeof *family->tickets);
    if (family->tickets == NULL) return TG_ERROR_MEMORY;
    tg_variant *variant = tg_model_variant(model, TG_VARIANT_STEP);
    if (variant == NULL) return model->ctx->status;
    if (!tickets_run_ahead(model, variant)) {
        status = tickets_in_place(model);
    } else {
        status = tg_feeds_bind(model, variant);
        if (status == TG_OK) status = tickets_start(model, variant);
    }
    if (status == TG_OK) tg_sizes_used(model);
    return status;
}

tg_status tg_step_async_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, tg_ticket *ticket) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx, site);
    if (ticket == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "step_async: ticket is NULL");
    *ticket = 0;
    tg_status status = tickets_step(model, feeds, n);
    if (status == TG_OK) *ticket = model->family->tickets->given;
    return status;
}

/* ---------------------------------------------------------------- what became of them */

static tg_status tickets_check(const tg_model *model, const char *call, tg_ticket ticket) {
    const tg_tickets *tickets = model->family->tickets;
    const tg_ticket given = tickets != NULL ? tickets->given : 0;
    if (ticket < 1 || ticket > given)
        return tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "%s: there is no ticket %lld", call, (long long)ticket);
    if (ticket > given - TG_TICKETS) return TG_OK;
    return tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "%s: ticket %lld is too old: %d are remembered", call, (long long)ticket,
                   TG_TICKETS);
}

tg_status tg_wait_at(tg_site site, tg_model *model, tg_ticket ticket, float *loss) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx, site);
    tg_status status = tickets_check(model, "wait", ticket);
    if (status != TG_OK) return status;
    tg_tickets *tickets = model->family->tickets;
    bool done = true;
    while (tickets->finished < ticket) tickets_collect(model->family, true, &done);
    const tg_ticket_entry *entry = tickets_entry(tickets, ticket);
    if (entry->status != TG_OK && entry->message == NULL)
        return tg_fail(model->ctx, entry->status, TG_SITE_NONE, "step %lld: the device failed it", (long long)entry->step);
    if (entry->status != TG_OK) return tg_fail(model->ctx, entry->status, TG_SITE_NONE, "%s", entry->message);
    if (loss != NULL) *loss = entry->end.loss;
    return tg_model_check_step(model->ctx, entry->step, &entry->end);
}

tg_status tg_poll_at(tg_site site, tg_model *model, tg_ticket ticket, bool *done) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx, site);
    if (done == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "poll: done is NULL");
    tg_status status = tickets_check(model, "poll", ticket);
    if (status != TG_OK) return status;
    tg_tickets *tickets = model->family->tickets;
    bool one = true;
    while (tickets->finished < ticket && one) tickets_collect(model->family, false, &one);
    *done = tickets->finished >= ticket;
    return TG_OK;
}

#undef TICKETS_MESSAGE
