/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/priv.h"

#define SMALL_BYTES 4096u /* bytes of items that may be written with mtx held */

static struct fdc_req *
req_new(struct fdc *s, uint32_t n, uint32_t n_prior)
{
    struct fdc_req *r = (struct fdc_req *)calloc(1, sizeof(*r) + (size_t)n * 4);

    if (r == NULL)
        return NULL;
    r->magic = FDC_REQ_MAGIC;
    r->s = s;
    r->n = n;
    r->internal = 1; /* until it is submitted */
    for (uint32_t i = 0; i < n; i++)
        r->n_out[i] = n_prior;
    return r;
}

void
fdc__req_drop(struct fdc_req *r)
{
    struct fdc *s = r->s;

    fdc__unready(r);
    fdc__queue_free(r);
    fdc__journal_free(r->j);
    s->re.n_lost -= r->lost;
    if (r->all_prev)
        r->all_prev->all_next = r->all_next;
    else if (s->all == r)
        s->all = r->all_next;
    if (r->all_next)
        r->all_next->all_prev = r->all_prev;
    r->magic = 0;
    free(r);
}

/* ---- submit -------------------------------------------------------------- */

int
fdc__sub_init(struct fdc *s, struct sub *u, void *user)
{
    int rc = fdc__blob_bytes(s, &u->b, &u->span);

    if (rc)
        return rc;
    u->r = req_new(s, u->slot.n ? u->slot.n : 1, u->slot.n_prior);
    if (u->r == NULL)
        return FDP_E_NOMEM;
    u->r->user = user;
    return 0;
}

/* Takes tags for the first requests: *ret_n how many, *ret_turn the connection
 * (re.n_done). */
static int
take_tags(struct fdc *s, struct sub *u, size_t n, size_t *ret_n, uint32_t *ret_turn)
{
    int rc;

    *ret_n = 0;
    pthread_mutex_lock(&s->mtx);
    (void)fdc__drain(s);
    rc = s->dead ? s->dead : s->re.down ? FDP_E_DISCONNECTED : 0;
    *ret_turn = s->re.n_done;
    while (rc == 0 && *ret_n < n && fdc__tag_take(s, u[*ret_n].r)) {
        u[*ret_n].slot.tag = u[*ret_n].r->tag;
        u[*ret_n].r->sending = 1;
        ++*ret_n;
    }
    pthread_mutex_unlock(&s->mtx);
    return rc ? rc : *ret_n ? 0 : FDP_E_LIMIT;
}

/* Tries once to queue the first requests. *ret_n: how many. Returns why the next one was
 * not queued. */
static int
try_send(struct fdc *s, struct sub *u, size_t n, size_t *ret_n)
{
    size_t n_tag, k = 0;
    uint32_t turn;
    int rc = take_tags(s, u, n, &n_tag, &turn);

    *ret_n = 0;
    if (rc)
        return rc;
    pthread_mutex_lock(&s->mtx_sq);
    if (turn != s->re.n_done || s->re.down)
        rc = FDP_E_DISCONNECTED; /* the tags belong to a connection that was replaced */
    while (rc == 0 && k < n_tag) {
        rc = fdc__put(s, &u[k].slot, &u[k].b, u[k].span);
        if (rc == 0)
            u[k++].r->sending = 0;
    }
    fdc__publish(s);
    pthread_mutex_unlock(&s->mtx_sq);
    *ret_n = k;
    if (rc == 0)
        return n_tag < n ? FDP_E_LIMIT : 0;

    pthread_mutex_lock(&s->mtx);
    while (n_tag > k)
        fdc__tag_untake(s, u[--n_tag].r);
    if (rc == FDP_E_PROTO)
        fdc__die(s, rc);
    else
        (void)fdc__drain(s);
    rc = s->dead ? s->dead : rc;
    pthread_mutex_unlock(&s->mtx);
    return rc;
}

/* Requests an EV_ROOM event for when the daemon takes requests. Returns 1 if it has taken
 * some already. mtx held. */
static int
ask_room(struct fdc *s)
{
    int moved;

    s->room = 0;
    pthread_mutex_lock(&s->mtx_sq);
    /* pairs with the gate's fdr_publish() of sq_head */
    fdr_flag_raise(s->sq_wait, 1);
    moved = fdr_flag_check(s->sq.p_head) != s->sq.head;
    pthread_mutex_unlock(&s->mtx_sq);
    return moved;
}

/* Waits for what was lacking, by status why. Returns 0: try again; or the status to
 * return. */
static int
wait_room(struct fdc *s, int why, uint64_t deadline)
{
    uint64_t now = fdc__now(), until = now + FDC_PARK_NS;
    enum wait_kind kind = WAIT_UP;
    int rc = 0;

    if (why == FDP_E_FULL)
        kind = WAIT_ROOM;
    else if (why == FDP_E_LIMIT)
        kind = WAIT_TAG;
    pthread_mutex_lock(&s->mtx);
    if ((kind == WAIT_TAG && s->tag_free) ||
        (kind == WAIT_ROOM && !s->re.down && ask_room(s)))
        ; /* it has come meanwhile */
    else if (now < deadline)
        /* Not longer, since others may take the room first. */
        rc = fdc__wait(s, kind, NULL, until < deadline ? until : deadline);
    else if (deadline)
        rc = FDP_E_TIMEOUT;
    else
        rc = why == FDP_E_DISCONNECTED ? why : FDP_E_FULL;
    s->wants_room |= rc == FDP_E_FULL;
    if (s->dead) /* it may be E_LIMIT itself */
        rc = s->dead;
    pthread_mutex_unlock(&s->mtx);
    return rc < 0 ? rc : 0;
}

int64_t
fdc__send(struct fdc *s, struct sub *u, size_t n, int timeout_ms, int *ret_why)
{
    uint64_t deadline = fdc__deadline(timeout_ms);
    size_t done = 0, k;
    int rc = 0;

    while (rc == 0 && done < n) {
        rc = try_send(s, u + done, n - done, &k);
        done += k;
        if (rc == FDP_E_FULL || rc == FDP_E_LIMIT || rc == FDP_E_DISCONNECTED)
            rc = wait_room(s, rc, deadline);
    }
    pthread_mutex_lock(&s->mtx);
    for (size_t i = 0; i < n; i++) {
        struct fdc_req *r = u[i].r;
        if (i >= done) {
            fdc__req_drop(r);
            continue;
        }
        r->internal = (uint8_t)u[i].internal;
        if (r->unread || r->term)
            fdc__ready(r);
    }
    pthread_mutex_unlock(&s->mtx);
    *ret_why = rc;
    return done ? (int64_t)done : rc;
}

/* Sends one small request, if there is room, taking the locks once. Else changes nothing
 * and returns the reason. */
static int
send_small(struct fdc *s, struct sub *u)
{
    struct fdc_req *r = u->r;
    int rc;

    pthread_mutex_lock(&s->mtx);
    (void)fdc__drain(s);
    rc = s->dead ? s->dead : s->re.down ? FDP_E_DISCONNECTED : 0;
    if (rc == 0 && !fdc__tag_take(s, r))
        rc = FDP_E_LIMIT;
    if (rc) {
        pthread_mutex_unlock(&s->mtx);
        return rc;
    }
    u->slot.tag = r->tag;
    pthread_mutex_lock(&s->mtx_sq);
    rc = fdc__put(s, &u->slot, &u->b, u->span);
    if (rc == 0)
        r->internal = (uint8_t)u->internal;
    else
        fdc__tag_untake(s, r);
    pthread_mutex_unlock(&s->mtx);
    if (rc == 0)
        fdc__publish(s);
    pthread_mutex_unlock(&s->mtx_sq);
    return rc;
}

static int
explain_arena(const struct fdc *s, const struct fdc_submit_opts *o, uint32_t span)
{
    return fdc__explain(o, FDP_E_ARENA, "the request takes %u bytes, must be at most %u",
        span, __atomic_load_n(&s->a_size, __ATOMIC_RELAXED));
}

/* Fills u from the program's parameters. */
static int
describe(struct fdc *s, struct sub *u, const struct ask *a)
{
    int rc;

    if (u->b.prompt == NULL && u->b.prompt_bytes)
        return fdc__explain(&a->o, FDP_E_INVAL, "the prompt is NULL, its length %zu",
            u->b.prompt_bytes);
    u->b.p = a->has_lists ? &a->p : NULL;
    u->internal = a->o.exclusive_reader != 0;
    fdc__fill_slot(&u->slot, FDP_OP_SUBMIT, &a->p, &a->o);
    rc = fdc__sub_init(s, u, a->o.user_ptr);
    if (rc == FDP_E_ARENA)
        return explain_arena(s, &a->o, u->span);
    if (rc || s->re.ms == 0 || a->o.no_resume || a->p.n != 1 || a->p.best_of > 1)
        return rc;
    pthread_mutex_lock(&s->mtx);
    rc = fdc__journal_new(s, u, a);
    if (rc)
        fdc__req_drop(u->r);
    pthread_mutex_unlock(&s->mtx);
    return rc;
}

/* Bytes of n elements; SIZE_MAX if that overflows. */
static size_t
bytes_of(size_t n, size_t unit)
{
    return n > SIZE_MAX / unit ? SIZE_MAX : n * unit;
}

/* Writes why a request is not sent now. */
static void
why_full(struct fdc *s, char *buf, size_t n)
{
    pthread_mutex_lock(&s->mtx);
    if (s->dead)
        snprintf(buf, n, "the session is over, open another one");
    else if (s->re.down)
        snprintf(buf, n, "there is no daemon now, trying to reconnect");
    else
        snprintf(buf, n, "%u of %u requests are open", s->n_open, s->n_tag);
    pthread_mutex_unlock(&s->mtx);
}

static int
explain_full(struct fdc *s, const struct fdc_submit_opts *o, int rc)
{
    char why[64];

    why_full(s, why, sizeof(why));
    if (rc == FDP_E_TIMEOUT)
        return fdc__explain(o, rc, "no room within %d ms: %s", o->submit_timeout_ms, why);
    return fdc__explain(o, rc, "%s", why);
}

static int
submit_prompt(struct fdc *s, int type, const void *data, size_t n_bytes,
    const struct fdc_params *params, const struct fdc_submit_opts *opts,
    struct fdc_req **ret_req)
{
    struct sub u = { .b = { .type = type, .prompt = data, .prompt_bytes = n_bytes } };
    struct ask a;
    int rc = fdc__check(s);

    if (rc)
        return rc;
    if (ret_req == NULL)
        return FDP_E_INVAL;
    rc = fdc__read_ask(params, opts, &a);
    if (rc == 0)
        rc = describe(s, &u, &a);
    if (rc)
        return rc;
    if ((u.span > SMALL_BYTES || send_small(s, &u)) &&
        fdc__send(s, &u, 1, a.o.submit_timeout_ms, &rc) < 0)
        return rc == FDP_E_ARENA ? explain_arena(s, &a.o, u.span)
                                 : explain_full(s, &a.o, rc);
    *ret_req = u.r;
    return 0;
}

int
fdc_submit_text(fdc_t *s, const char *text, size_t n_bytes, const struct fdc_params *params,
    const struct fdc_submit_opts *opts, fdc_req_t **ret_req)
{
    return submit_prompt(s, FDP_IT_PROMPT_TEXT, text, n_bytes, params, opts, ret_req);
}

int
fdc_submit_ids(fdc_t *s, const uint32_t *ids, size_t n_ids, const struct fdc_params *params,
    const struct fdc_submit_opts *opts, fdc_req_t **ret_req)
{
    return submit_prompt(s, FDP_IT_PROMPT_IDS, ids, bytes_of(n_ids, 4), params, opts,
        ret_req);
}

/* Element i: the program's struct may be larger than this library's. */
static struct fdc_submit *
nth(struct fdc_submit *subs, size_t i)
{
    return (struct fdc_submit *)(void *)((char *)subs + i * subs->size);
}

/* Describes all requests. Returns how many; if fewer than n, the next one's status says
 * why it cannot be sent. */
static size_t
describe_many(struct fdc *s, struct fdc_submit *subs, size_t n, struct sub *u, struct ask *a)
{
    struct fdc_submit *b;
    size_t i = 0;
    int rc = 0;

    for (; rc == 0 && i < n; i++) {
        b = nth(subs, i);
        rc = b->size != subs->size ? FDP_E_INVAL : 0;
        u[i].b.type =
            b->ids || (b->n_ids && !b->text) ? FDP_IT_PROMPT_IDS : FDP_IT_PROMPT_TEXT;
        u[i].b.prompt = b->ids ? (const void *)b->ids : b->text;
        u[i].b.prompt_bytes = b->ids ? bytes_of(b->n_ids, 4) : b->n_text;
        if (rc == 0)
            rc = fdc__read_ask(b->params, b->opts, &a[i]);
        if (rc == 0 && b->text && b->ids)
            rc = fdc__explain(&a[i].o, FDP_E_INVAL,
                "text and ids are both set: give one of them");
        if (rc == 0)
            rc = describe(s, &u[i], &a[i]);
        b->status = rc;
    }
    return rc ? i - 1 : i;
}

/* Sends the described requests and sets each one's handle and status. */
static int64_t
send_many(struct fdc *s, struct fdc_submit *subs, size_t n, struct sub *u,
    const struct ask *a, int timeout_ms)
{
    int why;
    int64_t sent = fdc__send(s, u, n, timeout_ms, &why);
    char text[64] = "";

    if (why && why != FDP_E_ARENA)
        why_full(s, text, sizeof(text));
    for (size_t i = 0; i < n; i++) {
        struct fdc_submit *b = nth(subs, i);

        b->req = (int64_t)i < sent ? u[i].r : NULL;
        b->status = (int64_t)i < sent ? 0 : why;
        if (b->status)
            fdc__explain(&a[i].o, why, "request %zu of %zu%s%s", i + 1, n,
                text[0] ? ": " : "", text);
    }
    return sent;
}

int
fdc_submit_many(fdc_t *s, struct fdc_submit *subs, size_t n, int timeout_ms)
{
    int rc = fdc__check(s);
    struct ask *a;
    struct sub *u;
    int64_t sent;
    size_t k;

    if (rc)
        return rc;
    if (n == 0)
        return 0;
    if (subs == NULL || subs->size < sizeof(*subs) || n > INT32_MAX)
        return FDP_E_INVAL;
    for (size_t i = 0; i < n; i++)
        nth(subs, i)->req = NULL; /* the program may free it, also if this fails */
    u = (struct sub *)calloc(n, sizeof(*u));
    a = (struct ask *)calloc(n, sizeof(*a));
    k = u && a ? describe_many(s, subs, n, u, a) : 0;
    if (k == n) {
        sent = send_many(s, subs, n, u, a, timeout_ms);
    } else {
        sent = u && a ? nth(subs, k)->status : FDP_E_NOMEM;
        pthread_mutex_lock(&s->mtx);
        while (k > 0)
            fdc__req_drop(u[--k].r);
        pthread_mutex_unlock(&s->mtx);
    }
    free(u);
    free(a);
    return (int)sent;
}

/* ---- cancel and free ----------------------------------------------------- */

static void
cancel_open(struct fdc *s, struct fdc_req *r)
{
    struct tag_entry *t = &s->tags[(uint32_t)r->tag];

    if (!t->cancel) {
        t->cancel = 1;
        s->n_cancel++;
    }
    if (fdc__flush_cancels(s))
        fdc__die(s, FDP_E_PROTO);
}

/* Ends a lost request, which no daemon has now. */
static void
cancel_lost(struct fdc *s, struct fdc_req *r)
{
    struct fdp_error e = { .code = FDP_E_CANCELLED };

    r->lost = 0;
    s->re.n_lost--;
    fdc__end_error(r, &e);
}

int
fdc_cancel(fdc_req_t *r)
{
    int rc;

    if (r == NULL || r->magic != FDC_REQ_MAGIC)
        return FDP_E_INVAL;
    rc = fdc__check(r->s);
    if (rc)
        return rc;
    pthread_mutex_lock(&r->s->mtx);
    if (r->lost)
        cancel_lost(r->s, r);
    else if (r->open) {
        r->cancelled = 1;
        cancel_open(r->s, r);
    }
    pthread_mutex_unlock(&r->s->mtx);
    return 0;
}

void
fdc_req_free(fdc_req_t *r)
{
    struct fdc *s;
    int forked;

    if (r == NULL || r->magic != FDC_REQ_MAGIC)
        return;
    s = r->s;
    forked = fdc__check(s) != 0;
    if (forked) {
        fdc__req_drop(r);
        return;
    }
    pthread_mutex_lock(&s->mtx);
    if (r->open && !r->lost) {
        s->tags[(uint32_t)r->tag].req = NULL;
        cancel_open(s, r);
    }
    fdc__req_drop(r);
    if ((s->n_any || s->parked == PARKED_ANY) && !fdc__any_open(s))
        fdc__kick(s); /* fdc_wait_any() then returns 0 */
    pthread_mutex_unlock(&s->mtx);
}

void
fdc_req_set_user(fdc_req_t *r, void *ptr)
{
    if (r && r->magic == FDC_REQ_MAGIC)
        __atomic_store_n(&r->user, ptr, __ATOMIC_RELEASE);
}

void *
fdc_req_user(const fdc_req_t *r)
{
    return r && r->magic == FDC_REQ_MAGIC
        ? __atomic_load_n(&r->user, __ATOMIC_ACQUIRE)
        : NULL;
}

uint64_t
fdc_req_tag(const fdc_req_t *r)
{
    return r && r->magic == FDC_REQ_MAGIC ? r->tag : 0;
}

uint32_t
fdc_req_tokens(const fdc_req_t *r, uint32_t sample)
{
    if (r == NULL || r->magic != FDC_REQ_MAGIC || sample >= r->n)
        return 0;
    return __atomic_load_n(&r->n_out[sample], __ATOMIC_RELAXED);
}
