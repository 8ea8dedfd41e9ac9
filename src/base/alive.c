/* alive: the list of objects that exist and that users hold handles of, for all contexts and
 * threads of the process. With it a call can tell a handle whose object is gone. Must not know what
 * the objects are. */
#include "base/base.h"

#include <stdatomic.h>

static atomic_flag alive_lock = ATOMIC_FLAG_INIT;
static tg_alive *alive_first;
static const void *alive_recent[TG_ALIVE_RECENT];
static unsigned alive_gone;

static void alive_enter(void) {
    while (atomic_flag_test_and_set_explicit(&alive_lock, memory_order_acquire)) continue;
}

static void alive_leave(void) { atomic_flag_clear_explicit(&alive_lock, memory_order_release); }

void tg_alive_add(tg_alive *entry, const void *object, const tg_context *ctx) {
    alive_enter();
    *entry = (tg_alive){.object = object, .ctx = ctx, .next = alive_first};
    if (alive_first != NULL) alive_first->before = entry;
    alive_first = entry;
    alive_leave();
}

/* Call with the lock held. A second call for the same entry does nothing. */
static void alive_take_out(tg_alive *entry) {
    if (entry->object == NULL) return;
    if (entry->before != NULL) entry->before->next = entry->next;
    else alive_first = entry->next;
    if (entry->next != NULL) entry->next->before = entry->before;
    if (entry->remembered) alive_recent[alive_gone++ % TG_ALIVE_RECENT] = entry->object;
    entry->object = NULL;
}

void tg_alive_remove(tg_alive *entry) {
    alive_enter();
    alive_take_out(entry);
    alive_leave();
}

void tg_alive_remove_all(const tg_context *ctx) {
    alive_enter();
    for (tg_alive *entry = alive_first, *next; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->ctx == ctx) alive_take_out(entry);
    }
    alive_leave();
}

bool tg_is_alive(const void *object) {
    bool found = false;
    alive_enter();
    for (const tg_alive *entry = alive_first; entry != NULL && !found; entry = entry->next) found = entry->object == object;
    alive_leave();
    return found;
}

bool tg_was_alive(const void *object) {
    bool found = false;
    alive_enter();
    for (int i = 0; i < TG_ALIVE_RECENT; i++) found = found || alive_recent[i] == object;
    alive_leave();
    return found;
}
