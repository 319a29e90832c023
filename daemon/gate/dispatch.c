/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/dispatch.h"

#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/link.h"
#include "daemon/common/obj.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/wlink.h"

void
dsp_init(struct dispatch *d)
{
    memset(d, 0, sizeof(*d));
}

void
dsp_fini(struct dispatch *d)
{
    aff_fini(&d->aff);
}

int
dsp_open(struct dispatch *d, const uint64_t key[2])
{
    return d->n > 1 ? aff_init(&d->aff, AFF_ENTRIES, key) : 0;
}

void
dsp_add(struct dispatch *d, struct wlk *l)
{
    ASSERT(d->n < DSP_LINKS);
    d->link[d->n++] = l;
}

/* ---- what the workers can do ----------------------------------------------- */

uint32_t
dsp_n_up(const struct dispatch *d)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->n; i++)
        n += d->link[i]->up != 0;
    return n;
}

uint32_t
dsp_credits(const struct dispatch *d, uint32_t *ret_one)
{
    uint32_t sum = 0;

    *ret_one = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct wlk *l = d->link[i];

        sum += l->up ? l->ready.credits : l->credits_used;
        if (l->up && l->ready.credits > *ret_one)
            *ret_one = l->ready.credits;
    }
    return sum;
}

void
dsp_measure(struct wlk *l, const struct cnt_worker *c)
{
    uint64_t ns = cnt_get(&c->step_ns), seqs = cnt_get(&c->step_seqs);
    uint64_t tokens = cnt_get(&c->prompt_tokens) + cnt_get(&c->generation_tokens);
    double token_ns, row_ns, share;

    if (ns > l->at_ns && seqs > l->at_seqs && tokens > l->at_tokens) {
        token_ns = (double)(ns - l->at_ns) / (double)(tokens - l->at_tokens);
        row_ns = (double)(ns - l->at_ns) / (double)(seqs - l->at_seqs);
        if (l->token_ns <= 0 || token_ns < l->token_ns)
            l->token_ns = token_ns;
        /* limits the effect of a pause of the machine */
        l->row_ns = l->row_ns <= 0 ? row_ns : l->row_ns + (row_ns - l->row_ns) / DSP_SMOOTH;
        share = l->row_ns / l->token_ns;
        l->row_tokens = share < 1 ? 1 : share > DSP_SHARE ? DSP_SHARE : (uint32_t)share;
    }
    l->at_ns = ns;
    l->at_seqs = seqs;
    l->at_tokens = tokens;
}

uint64_t
dsp_load(const struct wlk *l)
{
    uint64_t share = l->row_tokens != 0 ? l->row_tokens : 1;

    return l->due + (uint64_t)l->credits_used * share;
}

uint64_t
dsp_load_ms(const struct dispatch *d, uint64_t now_ns)
{
    uint64_t best = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct wlk *l = d->link[i];
        int percent = wlk_load_percent(l);
        uint64_t ms;

        if (l->up || percent <= 0 || now_ns <= l->t_join)
            continue;
        ms = (now_ns - l->t_join) / CLK_MS * (uint64_t)(100 - percent) / (uint64_t)percent;
        best = best == 0 || ms < best ? ms + 1 : best;
    }
    return best;
}

uint64_t
dsp_loaded_ms(const struct dispatch *d)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < d->n; i++)
        most = d->link[i]->loaded_ns > most ? d->link[i]->loaded_ns : most;
    return most / CLK_MS;
}

/* ---- down ------------------------------------------------------------------ */

/* Can l take r now? */
static int
dsp_has_room(struct wlk *l, const struct jreq *r)
{
    return l->up && wlk_is_open(l) &&
        (r->price == 0 || l->credits_used + r->price <= l->ready.credits) &&
        lnk_has_room(&l->lnk, FDP_REC_SLOTS(sizeof(struct lnk_submit)));
}

/* Does r fit l's maximum length, as far as known here? Groups have different memory, and
 * a request was checked against those that were up. */
static int
dsp_fits(const struct wlk *l, const struct jreq *r)
{
    return r->req.op != FDP_OP_SUBMIT || l->ready.info.max_model_len == 0 ||
        chk_tokens(&r->req, &r->items) <= l->ready.info.max_model_len;
}

/* The least loaded worker with room, among those that r fits if there are any; if equal,
 * the one with fewest requests sent. */
static struct wlk *
dsp_least(const struct dispatch *d, const struct jreq *r)
{
    struct wlk *best = NULL;
    uint64_t least = 0;
    int fits = 0;

    for (uint32_t i = 0; i < d->n; i++)
        fits |= d->link[i]->up && dsp_fits(d->link[i], r);
    for (uint32_t i = 0; i < d->n; i++) {
        struct wlk *l = d->link[i];
        uint64_t load = dsp_load(l);

        if (!dsp_has_room(l, r) || (fits && !dsp_fits(l, r)) ||
            (best != NULL && (load > least || (load == least && l->n_sent >= best->n_sent))))
            continue;
        best = l;
        least = load;
    }
    return best;
}

/* The chain of r's prompt. *ret_bytes: bytes of the whole prompt. */
static void
dsp_chain(const struct dispatch *d, const struct jreq *r, struct aff_chain *ret,
    uint32_t *ret_bytes)
{
    uint32_t at = 0;

    ret->n = 0;
    *ret_bytes = 0;
    if (r->kind != FAIR_GEN)
        return;
    while (r->blob_bytes - at >= sizeof(struct fdp_item)) {
        struct fdp_item it;

        memcpy(&it, r->blob + at, sizeof(it));
        at += (uint32_t)sizeof(it);
        if (it.type == FDP_IT_PROMPT_TEXT || it.type == FDP_IT_PROMPT_IDS) {
            *ret_bytes = it.len;
            aff_chain(&d->aff, r->usr->key, r->req.salt, it.type, r->blob + at, it.len, ret);
            return;
        }
        at += (uint32_t)(FDP_ITEM_SPAN(it.len) - sizeof(it));
    }
}

/* A move to another group costs the prompt tokens that are computed again, and evicts as
 * much from that group's cache. Measured: 16 users with 8 conversations each found 0.69
 * of their blocks on four groups without the factor; with it 0.79, as on one group. */
#define DSP_MOVE 2

/* The worker for r if n > 1. *ret_due: prompt tokens that it will have to compute. */
static struct wlk *
dsp_place(const struct dispatch *d, const struct jreq *r, const struct aff_chain *c,
    uint32_t bytes, uint32_t *ret_due)
{
    uint32_t generation[DSP_LINKS], has = 0, group;
    struct wlk *best = dsp_least(d, r), *l;
    uint64_t saved;

    *ret_due = r->est_prompt;
    if (best == NULL || c->n == 0)
        return best;
    for (uint32_t i = 0; i < d->n; i++)
        generation[i] = d->link[i]->up ? d->link[i]->generation : 0;
    group = aff_find(&d->aff, c, generation, d->n, &has);
    if (group == AFF_NONE)
        return best;
    l = d->link[group];
    saved = (uint64_t)r->est_prompt * has / bytes;
    if (!dsp_has_room(l, r) || (dsp_fits(best, r) && !dsp_fits(l, r)) ||
        dsp_load(l) > dsp_load(best) + DSP_MOVE * saved)
        return best;
    *ret_due -= (uint32_t)saved;
    return l;
}

/* Sends r's next items. Returns 1 if some were sent. */
static int
dsp_piece(struct wlk *l, struct jreq *r)
{
    int some = wlk_put_blob(l, r, DSP_PIECE);

    if (r->sent < r->blob_bytes)
        return some;
    if (r->in_sendq) {
        TAILQ_REMOVE(&l->sendq, r, send);
        l->n_sending--;
        r->in_sendq = 0;
    }
    if (r->st == JNL_SENDING)
        r->st = JNL_RUNNING;
    return 1;
}

static int
dsp_send_to(struct wlk *l, struct jreq *r, uint32_t place, uint32_t due)
{
    ASSERT(r->with == NULL);
    r->sent = 0;
    if (!wlk_put_submit(l, r, place))
        return 0;
    r->st = JNL_SENDING;
    r->with = l;
    r->due = due;
    l->due += due;
    l->n_with++;
    l->n_sent++;
    l->credits_used += r->price;
    if (fair_deadline(r) != 0 && r->kind == FAIR_GEN) {
        TAILQ_INSERT_TAIL(&l->startq, r, start);
        r->in_startq = 1;
    }
    (void)dsp_piece(l, r);
    if (r->st == JNL_SENDING) {
        TAILQ_INSERT_TAIL(&l->sendq, r, send);
        l->n_sending++;
        r->in_sendq = 1;
    }
    return 1;
}

int
dsp_send(struct dispatch *d, struct jreq *r, uint32_t place)
{
    struct aff_chain c;
    struct wlk *l = d->link[0];
    uint32_t bytes, due = 0;

    if (d->n == 1)
        return l->up && wlk_is_open(l) && dsp_send_to(l, r, place, due);
    dsp_chain(d, r, &c, &bytes);
    l = dsp_place(d, r, &c, bytes, &due);
    if (l == NULL || !dsp_send_to(l, r, place, due))
        return 0;
    aff_note(&d->aff, &c, (uint32_t)l->group, l->generation);
    d->n_cached += due < r->est_prompt;
    return 1;
}

/* Sends pieces of each request in turn, while half of the ring is free. */
static int
dsp_send_items(struct wlk *l)
{
    int n = 0;

    while (l->n_sending != 0 &&
        fdr_prod_room(&l->lnk.out, LNK_DOWN_SLOTS / 2) >= (int64_t)LNK_DOWN_SLOTS / 2) {
        struct jreq *r = TAILQ_FIRST(&l->sendq);

        if (!dsp_piece(l, r))
            break;
        n++;
        if (r->in_sendq) {
            TAILQ_REMOVE(&l->sendq, r, send);
            TAILQ_INSERT_TAIL(&l->sendq, r, send);
        }
    }
    return n;
}

int
dsp_send_due(struct dispatch *d)
{
    int n = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        struct wlk *l = d->link[i];

        if (!wlk_is_open(l))
            continue;
        if (l->pend != 0 || !TAILQ_EMPTY(&l->cancelq))
            n += wlk_send_due(l);
        n += dsp_send_items(l);
    }
    return n;
}

int
dsp_is_sending(const struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->link[i]->n_sending != 0)
            return 1;
    }
    return 0;
}

void
dsp_begun(struct jreq *r)
{
    if (r->in_startq)
        TAILQ_REMOVE(&r->with->startq, r, start);
    r->in_startq = 0;
}

void
dsp_end(struct jreq *r)
{
    struct wlk *l = r->with;

    if (l == NULL)
        return;
    ASSERT(l->credits_used >= r->price && l->n_with > 0 && l->due >= r->due);
    l->credits_used -= r->price;
    l->n_with--;
    dsp_computed(r);
    if ((r->in_cancelq | r->in_startq | r->in_sendq) != 0)
        wlk_forget(l, r);
    r->with = NULL;
}

void
dsp_flush(struct dispatch *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (wlk_is_open(d->link[i]))
            lnk_flush(&d->link[i]->lnk);
    }
}

void
dsp_check(const struct dispatch *d, uint32_t credits_used)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct wlk *l = d->link[i];
        const struct jreq *r;
        uint32_t n = 0;

        ASSERT(l->n_with != 0 || (l->due == 0 && l->credits_used == 0));
        TAILQ_FOREACH(r, &l->sendq, send)
        {
            ASSERT(r->with == l && r->in_sendq && r->sent < r->blob_bytes);
            n++;
        }
        ASSERT(n == l->n_sending);
        sum += l->credits_used;
    }
    ASSERT(sum == credits_used);
}
