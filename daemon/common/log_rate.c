/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/log_priv.h"

#include "daemon/common/clk.h"

/* Call sites that ever dropped a line; they are static and are never removed. */
static struct log_site *log_places;
static uint32_t log_any;

static void
rate_drop(struct log_site *s)
{
    (void)__atomic_fetch_add(&s->dropped, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&s->listed, __ATOMIC_RELAXED) == 0 &&
        __atomic_exchange_n(&s->listed, 1, __ATOMIC_RELAXED) == 0) {
        struct log_site *head = __atomic_load_n(&log_places, __ATOMIC_RELAXED);

        do {
            s->next = head;
        } while (!__atomic_compare_exchange_n(&log_places, &head, s, 1, __ATOMIC_RELEASE,
            __ATOMIC_RELAXED)); /* pairs with log_rate_next() */
    }
    /* Always a release store: the thread that clears the mark must see everything
     * counted before it was set. */
    __atomic_store_n(&log_any, 1, __ATOMIC_RELEASE);
}

int
log_rate_take(struct log_site *s, uint64_t now_ns, uint32_t rate, uint32_t *ret_dropped)
{
    uint64_t sec = (now_ns / CLK_S) & UINT32_MAX;
    uint64_t old = __atomic_load_n(&s->window, __ATOMIC_RELAXED), next;

    *ret_dropped = 0;
    if (rate == 0) {
        if (__atomic_load_n(&s->dropped, __ATOMIC_RELAXED) != 0)
            *ret_dropped = __atomic_exchange_n(&s->dropped, 0, __ATOMIC_RELAXED);
        return 1;
    }
    do {
        /* A thread with an older time must not open a past second again. */
        if ((old >> 32) >= sec) {
            if ((uint32_t)old >= rate) {
                rate_drop(s);
                return 0;
            }
            next = old + 1;
        } else {
            next = sec << 32 | 1;
        }
    } while (!__atomic_compare_exchange_n(&s->window, &old, next, 1, __ATOMIC_RELAXED,
        __ATOMIC_RELAXED));
    if ((old >> 32) < sec)
        *ret_dropped = __atomic_exchange_n(&s->dropped, 0, __ATOMIC_RELAXED);
    return 1;
}

int
log_rate_any(void)
{
    return __atomic_load_n(&log_any, __ATOMIC_RELAXED) != 0 &&
        __atomic_exchange_n(&log_any, 0, __ATOMIC_ACQUIRE) != 0;
}

struct log_site *
log_rate_next(struct log_site **it, uint64_t now_ns, int all, uint32_t *ret_dropped)
{
    uint64_t sec = (now_ns / CLK_S) & UINT32_MAX;
    struct log_site *s =
        *it != NULL ? (*it)->next : __atomic_load_n(&log_places, __ATOMIC_ACQUIRE);

    for (; s != NULL; s = s->next) {
        if (__atomic_load_n(&s->dropped, __ATOMIC_RELAXED) == 0)
            continue;
        if (!all && (__atomic_load_n(&s->window, __ATOMIC_RELAXED) >> 32) >= sec) {
            __atomic_store_n(&log_any, 1, __ATOMIC_RELAXED);
            continue;
        }
        *ret_dropped = __atomic_exchange_n(&s->dropped, 0, __ATOMIC_RELAXED);
        if (*ret_dropped != 0)
            break;
    }
    if (s != NULL)
        *it = s;
    return s;
}
