/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/client.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/counter.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"

/* Held records, in order, each as its slots. Chunks do not come from malloc(): free() of
 * the last of many would give all of them back to the system at once. */
struct cli_chunk {
    struct cli_chunk *next;
    uint32_t used, taken;
    unsigned char data[CLI_CHUNK - 16];
};

_Static_assert(sizeof(struct cli_chunk) == CLI_CHUNK, "whole pages");
_Static_assert(CLI_CHUNK <= PGS_PIECE, "one piece");

void
cli_init(struct clients *k, const struct env *env)
{
    memset(k, 0, sizeof(*k));
    k->env = env;
    TAILQ_INIT(&k->outq);
    TAILQ_INIT(&k->holdq);
}

void
cli_kill(struct clients *k, struct client *c, int code)
{
    if (c->st == CLI_DOOMED)
        return;
    if (c->st == CLI_HELLO)
        k->n_hello--;
    c->why = code;
    c->quiet = c->st <= CLI_MAKES || code == FDP_OK;
    c->st = CLI_DOOMED;
    k->n_doomed++;
    if (code != FDP_OK)
        cnt_add(&k->env->cnt->sessions_killed, 1);
}

void
cli_bad_cursor(struct clients *k, struct client *c)
{
    log_warn("session: %llu (%s, pid %d) has an impossible completion cursor",
        (unsigned long long)c->id, c->shown, (int)c->pid);
    cli_kill(k, c, FDP_E_PROTO);
}

/* Time spent on fresh pages shortens the relay's. */
static void
cli_charge(struct clients *k, uint32_t slots)
{
    k->quota = k->quota > slots ? k->quota - slots : 0;
}

int
cli_grow(struct clients *k, struct client *c, uint32_t cost)
{
    uint64_t at = (uint64_t)(c->cq.slots - c->d2c.p);
    uint64_t until = at + ((uint64_t)c->cq.tail + cost) * FDP_SLOT;

    if (until > c->d2c.bytes) /* cost has padding: the record is at the start */
        until = c->d2c.bytes;
    if (until <= c->d2c.ready)
        return 1;
    cli_charge(k, CLI_PAGES);
    if (region_reserve(&c->d2c, (uint32_t)until, k->env->now) != 0)
        return 0;
    c->growing = c->d2c.ready < c->d2c.bytes;
    return 1;
}

/* ---- held records ---------------------------------------------------------- */

static int
cli_add_chunk(struct clients *k, struct client *c)
{
    struct cli_chunk *b = pgs_new(&k->pages, sizeof(*b));

    if (b == NULL)
        return -ENOMEM;
    b->next = NULL;
    b->used = b->taken = 0;
    cli_charge(k, CLI_CHUNK_PAGES);
    if (c->hold_last != NULL)
        c->hold_last->next = b;
    else
        c->hold_first = b;
    c->hold_last = b;
    c->held_bytes += sizeof(*b);
    c->usr->bytes += sizeof(*b);
    cnt_add(&k->env->cnt->held_bytes, sizeof(*b));
    return 0;
}

/* A chunk is one piece. */
static void
cli_give(struct clients *k, struct cli_chunk *b)
{
    pgs_free(&k->pages, b, sizeof(*b), sizeof(*b));
    (void)pgs_sweep(&k->pages);
}

static void
cli_drop_chunk(struct clients *k, struct client *c)
{
    struct cli_chunk *b = c->hold_first;

    c->hold_first = b->next;
    if (b->next == NULL)
        c->hold_last = NULL;
    c->held_bytes -= sizeof(*b);
    c->usr->bytes -= sizeof(*b);
    cnt_add(&k->env->cnt->held_bytes, -(uint64_t)sizeof(*b));
    cli_give(k, b);
}

/* Room for a record of n slots after the held ones. */
static struct fdp_rec *
cli_hold(struct clients *k, struct client *c, uint32_t n)
{
    uint32_t bytes = n * FDP_SLOT;

    if ((c->hold_last == NULL || c->hold_last->used + bytes > sizeof(c->hold_last->data)) &&
        cli_add_chunk(k, c) != 0)
        return NULL;
    if (c->n_held == 0) {
        c->t_full = k->env->now;
        c->full_head = c->cq.head;
        TAILQ_INSERT_TAIL(&k->holdq, c, hold);
    }
    c->n_held++;
    cnt_add(&k->env->cnt->records_held, 1);
    c->hold_last->used += bytes;
    return (struct fdp_rec *)(void *)(c->hold_last->data + c->hold_last->used - bytes);
}

/* Moves held records to the ring, as many as fit. *left: slots that may still be
 * copied. */
static void
cli_unhold(struct clients *k, struct client *c, uint32_t *left)
{
    while (c->n_held != 0) {
        struct cli_chunk *b = c->hold_first;
        const struct fdp_rec *from = (const void *)(b->data + b->taken);
        struct fdp_rec *to = *left != 0 ? cli_claim(k, c, from->n_slot) : NULL;

        if (to == NULL)
            return;
        *left -= from->n_slot < *left ? from->n_slot : *left;
        memcpy(to, from, sizeof(*from) + from->len);
        b->taken += from->n_slot * FDP_SLOT;
        c->n_held--;
        cnt_add(&k->env->cnt->records_held, -(uint64_t)1);
        cli_touch(k, c);
        if (b->taken == b->used)
            cli_drop_chunk(k, c);
    }
    c->slow = 0;
    TAILQ_REMOVE(&k->holdq, c, hold);
}

void
cli_drop(struct clients *k, struct client *c)
{
    if (c->hold_first != NULL) {
        c->hold_last->next = k->old;
        k->old = c->hold_first;
        c->hold_first = c->hold_last = NULL;
        c->usr->bytes -= c->held_bytes;
        cnt_add(&k->env->cnt->held_bytes, -c->held_bytes);
        c->held_bytes = 0;
    }
    if (c->n_held != 0) {
        cnt_add(&k->env->cnt->records_held, -(uint64_t)c->n_held);
        c->n_held = 0;
        TAILQ_REMOVE(&k->holdq, c, hold);
    }
    if (c->dirty)
        TAILQ_REMOVE(&k->outq, c, out);
    c->dirty = 0;
}

enum cli_slow
cli_check_slow(struct clients *k, struct client *c, uint64_t slow_ns)
{
    if (c->n_held == 0)
        return CLI_KEEPS_UP;
    /* Asking for the whole ring reads the client's cursor in any case. */
    if (fdr_prod_room(&c->cq, c->cq.n_slot) < 0) {
        cli_kill(k, c, FDP_E_PROTO);
        return CLI_KEEPS_UP;
    }
    if (c->cq.head != c->full_head) {
        c->full_head = c->cq.head;
        c->t_full = k->env->now;
        return CLI_KEEPS_UP;
    }
    if (k->env->now - c->t_full < slow_ns)
        return CLI_KEEPS_UP;
    if (c->slow && c->n_inflight == 0)
        return CLI_STUCK;
    c->t_full = k->env->now;
    return CLI_SLOW;
}

/* ---- records --------------------------------------------------------------- */

struct fdp_rec *
cli_place(struct clients *k, struct client *c, uint32_t n, int best_effort)
{
    struct fdp_rec *to;

    if (best_effort || c->st != CLI_OPEN)
        return NULL;
    to = cli_hold(k, c, n);
    if (to == NULL) {
        log_warn("session: no memory to hold records of session %llu",
            (unsigned long long)c->id);
        cli_kill(k, c, FDP_E_OVERLOAD);
    }
    return to;
}

int
cli_emit(struct clients *k, struct client *c, uint64_t tag, unsigned type,
    const void *payload, uint32_t len, int best_effort)
{
    struct fdp_rec head = { .type = (uint8_t)type, .len = len };

    ASSERT(len <= FDP_REC_MAX_LEN);
    return cli_put(k, c, tag, &head, payload, best_effort);
}

void
cli_error(struct clients *k, struct client *c, uint64_t tag, const struct fdp_error *e)
{
    (void)cli_emit(k, c, tag, FDP_T_ERROR, e, sizeof(*e), 0);
}

/* ---- publishing -------------------------------------------------------------- */

void
cli_wake_thread(const struct client *c)
{
    (void)syscall(SYS_futex, c->cq.p_tail, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void
cli_wake(struct clients *k, struct client *c)
{
    /* pairs with the client's fdr_flag_raise() of cq_wait */
    uint32_t how = fdr_flag_check(c->p_cq_wait);

    if (how == FDP_WAIT_FUTEX) {
        cli_wake_thread(c);
        cnt_add(&k->env->cnt->wakes_futex, 1);
    } else if (how == FDP_WAIT_FD) {
        /* A full socket has an unread wake-up already. */
        (void)send(c->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        cnt_add(&k->env->cnt->wakes_fd, 1);
    }
}

/* Moves held records of each client in turn, a piece each; a client with more left goes to
 * the end of the queue. Returns 1 when more could be moved. */
static int
cli_unhold_all(struct clients *k)
{
    struct client *c = TAILQ_FIRST(&k->holdq), *last = TAILQ_LAST(&k->holdq, client_q);
    uint32_t moved = 0;
    int more = 0;

    while (c != NULL) {
        struct client *next = c != last ? TAILQ_NEXT(c, hold) : NULL;
        uint32_t left = CLI_PIECE;

        if (c->st == CLI_OPEN)
            cli_unhold(k, c, &left);
        if (c->n_held != 0) {
            TAILQ_REMOVE(&k->holdq, c, hold);
            TAILQ_INSERT_TAIL(&k->holdq, c, hold);
        }
        more |= left == 0;
        moved += CLI_PIECE - left;
        if (moved >= CLI_PIECE) {
            if (env_is_late(k->env))
                return 1;
            moved = 0;
        }
        c = next;
    }
    return more;
}

void
cli_publish(struct clients *k)
{
    struct client *c;

    while ((c = TAILQ_FIRST(&k->outq)) != NULL) {
        TAILQ_REMOVE(&k->outq, c, out);
        c->dirty = 0;
        if (c->st != CLI_OPEN || c->cq.pub == c->cq.tail)
            continue;
        c->cq.pub = c->cq.tail;
        fdr_publish(c->cq.p_tail, c->cq.tail);
        cli_wake(k, c);
    }
}

int
cli_flush(struct clients *k)
{
    int more = cli_unhold_all(k);

    cli_publish(k);
    return more;
}

int
cli_sweep(struct clients *k)
{
    int n = 0;

    while (k->old != NULL && n < (int)CLI_CHUNKS) {
        struct cli_chunk *b = k->old;

        k->old = b->next;
        cli_give(k, b);
        n++;
    }
    return n;
}

void
cli_fini(struct clients *k)
{
    k->old = NULL;
    pgs_fini(&k->pages);
}
