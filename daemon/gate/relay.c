/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/relay.h"

#include <string.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/client.h"
#include "daemon/gate/dispatch.h"
#include "daemon/gate/env.h"
#include "daemon/gate/fair.h"
#include "daemon/gate/journal.h"
#include "daemon/gate/request.h"
#include "daemon/gate/wlink.h"
#include "libclient/fdproto.h"

#define RLY_AHEAD 12u /* link slots to prefetch ahead; measured with tests/bench/b_gate */

/* Malformed record: a dying worker may write anything, and a client would end its session
 * for a record that it cannot read. */
#define RLY_BROKEN UINT32_MAX
/* Record that its client already received from a worker that died. */
#define RLY_KNOWN (UINT32_MAX - 1)

/* Is this a well-formed TOKENS record? *ret_n: its ids. Its first slot can be read
 * whatever its length. */
static inline int
rly_is_tokens(const struct fdp_rec *rec, uint32_t *ret_n)
{
    const struct fdp_tokens *t = (const void *)(rec + 1);
    uint32_t n_ids = t->n_ids, n_text = t->n_text;

    *ret_n = n_ids;
    return n_ids != 0 && n_text != 0 && rec->len == FDP_TOKENS_LEN(n_ids, n_text);
}

/* Notes an ACCEPTED record. Returns 1 if its client has had one already. */
static int
rly_accepted(const struct reqs *rs, struct jreq *r, const struct fdp_rec *rec)
{
    int is_known = (r->told & JNL_TOLD_ACCEPTED) != 0;
    struct fdp_accepted a;

    memcpy(&a, rec + 1, sizeof(a));
    r->prompt_len = a.prompt_len;
    r->cached_len = a.cached_len;
    if (!r->accepted && r->kind == FAIR_GEN)
        svc_add(&rs->fair->svcrate, r->est_prompt);
    r->accepted = 1;
    r->told |= JNL_TOLD_ACCEPTED;
    return is_known;
}

static void
rly_choice_end(struct jreq *r, const struct fdp_rec *rec)
{
    struct fdp_choice_end c;

    memcpy(&c, rec + 1, sizeof(c));
    if (r->finish == FDP_FIN_NONE && c.finish <= FDP_FIN_REPETITION)
        r->finish = (uint8_t)c.finish;
    else if (r->finish != c.finish)
        r->finish = JREQ_FIN_MIXED;
}

/* Do its sizes match its length? */
static int
rly_is_special(const struct fdp_rec *rec)
{
    struct fdp_special sp;

    if (rec->len < sizeof(sp))
        return 0;
    memcpy(&sp, rec + 1, sizeof(sp));
    return sp.n_text == rec->len - sizeof(sp);
}

static int
rly_is_token_text(const struct fdp_rec *rec)
{
    const unsigned char *p = (const unsigned char *)(rec + 1);
    uint32_t sum;
    uint16_t n, len;

    if (rec->len < sizeof(n))
        return 0;
    memcpy(&n, p, sizeof(n));
    sum = (uint32_t)(sizeof(n) + n * sizeof(len));
    for (uint32_t i = 0; i < n && sum <= rec->len; i++) {
        memcpy(&len, p + sizeof(n) + i * sizeof(len), sizeof(len));
        sum += len;
    }
    return n != 0 && sum == rec->len;
}

/* Notes a record without ids. Returns its output tokens, RLY_BROKEN or RLY_KNOWN. */
static __attribute__((noinline)) uint32_t
rly_note_other(const struct reqs *rs, struct jreq *r, const struct fdp_rec *rec)
{
    if (rec->type == FDP_T_ACCEPTED) {
        if (rec->len != sizeof(struct fdp_accepted))
            return RLY_BROKEN;
        return rly_accepted(rs, r, rec) ? RLY_KNOWN : 0;
    }
    r->told |= JNL_TOLD_OUTPUT;
    switch (rec->type) {
    case FDP_T_CHOICE_END:
        if (rec->len != sizeof(struct fdp_choice_end))
            return RLY_BROKEN;
        rly_choice_end(r, rec);
        return 0;
    case FDP_T_PROMPT_IDS:
        return rec->len % 4 == 0 ? 0 : RLY_BROKEN;
    case FDP_T_LOGPROBS:
    case FDP_T_PROMPT_LOGPROBS:
        return rec->len != 0 && rec->len % sizeof(struct fdp_logprob) == 0 ? 0 : RLY_BROKEN;
    case FDP_T_SPECIAL:
        return rly_is_special(rec) ? 1 : RLY_BROKEN;
    case FDP_T_TOKEN_TEXT:
        return rly_is_token_text(rec) ? 0 : RLY_BROKEN;
    case FDP_T_PROMPT_TEXT:
    case FDP_T_BYTES:
    case FDP_T_REPLY:
        return 0;
    }
    return RLY_BROKEN;
}

/* Updates the request from its record. Returns its output tokens, RLY_BROKEN or
 * RLY_KNOWN. A sample's text comes after its ids; DETOKENIZE has no ids. */
static inline uint32_t
rly_note(const struct reqs *rs, struct jreq *r, const struct fdp_rec *rec)
{
    uint32_t n_tok;

    if (rec->type == FDP_T_IDS && rec->len % 4 == 0) {
        n_tok = rec->len / 4;
    } else if (rec->type == FDP_T_TEXT) {
        r->told |= JNL_TOLD_OUTPUT;
        return 0;
    } else if (rec->type != FDP_T_TOKENS || !rly_is_tokens(rec, &n_tok)) {
        n_tok = rly_note_other(rs, r, rec);
        if (n_tok == 0 || n_tok >= RLY_KNOWN)
            return n_tok;
    }
    r->n_out += n_tok;
    if (r->t_first == 0) {
        r->t_first = rs->env->now;
        dsp_computed(r);
    }
    return n_tok;
}

/* Ends the request with E_INTERNAL and drops the record. */
static __attribute__((noinline)) uint32_t
rly_broken(struct reqs *rs, struct jreq *r, const struct fdp_rec *rec)
{
    if (r->st != JNL_ENDING)
        log_error("relay: the worker sent %llu a record of type %u and %u bytes",
            (unsigned long long)r->id, rec->type, rec->len);
    rq_cancel(rs, r, FDP_E_INTERNAL, 0);
    return 0;
}

static uint32_t
rly_one(struct reqs *rs, const struct wlk *l, const struct fdp_rec *rec)
{
    struct jreq *r = jnl_find(rs->jnl, rec->tag);
    struct client *c;
    uint32_t n_tok;

    /* It may be queued again or with another worker, because this one was killed. */
    if (r == NULL || r->with != l) {
        log_debug("relay: record type %u for unknown request %llu", rec->type,
            (unsigned long long)rec->tag);
        return 0;
    }
    if (rec->type == FDP_T_DONE || rec->type == FDP_T_ERROR) {
        rq_end(rs, r, rec, NULL);
        return 0;
    }
    n_tok = rec->sample == 0 || rec->sample < r->req.n ? rly_note(rs, r, rec) : RLY_BROKEN;
    if (n_tok >= RLY_KNOWN)
        return n_tok == RLY_BROKEN ? rly_broken(rs, r, rec) : 0;
    c = r->cli;
    if (c == NULL)
        return n_tok;
    if (r->st == JNL_ENDING && r->end_code == FDP_E_SLOW && rec->type != FDP_T_CHOICE_END)
        return n_tok;
    (void)cli_put(rs->clients, c, r->tag, rec, rec + 1, 0);
    if (c->n_held != 0 && !c->trusted &&
        c->usr->bytes > (uint64_t)rs->env->par->sched_max_bytes_per_user)
        rq_slow(rs, c, "lets more output pile up than its user may hold");
    return n_tok;
}

/* Handles records about the worker itself. */
static void
rly_special(struct reqs *rs, struct wlk *l, const struct fdp_rec *rec)
{
    struct lnk_tokenized t;
    struct jreq *r;

    switch (rec->type) {
    case LNK_T_READY:
        if (rec->len >= sizeof(l->ready)) {
            memcpy(&l->ready, rec + 1, sizeof(l->ready));
            l->ready.info.model_name[sizeof(l->ready.info.model_name) - 1] = '\0';
            l->is_news = 1;
        }
        break;
    case LNK_T_TOKENIZED:
        r = jnl_find(rs->jnl, rec->tag);
        if (r != NULL && r->with == l && rec->len >= sizeof(t)) {
            memcpy(&t, rec + 1, sizeof(t));
            r->prompt_len = t.prompt_len;
        }
        break;
    case LNK_T_STATE: /* sup_poll() reads the state itself */
        break;
    default:
        log_warn("relay: worker %d sent a record of unknown type %u", l->group, rec->type);
    }
}

/* Number of consecutive records for one session, as seen by rly_prefetch(). */
struct rly_run {
    const struct client *c;
    uint32_t n;
};

/* Rings of many clients do not stay in the cache: prefetches the slot to which a later
 * record of the link will be written. The slot looked at may be the middle of a record;
 * then its tag matches no request. */
static inline void
rly_prefetch(const struct reqs *rs, const struct lnk *l, struct rly_run *run)
{
    const struct fdp_rec *rec;
    const struct jreq *r;

    if ((uint32_t)(l->in.tail - l->in.head) <= RLY_AHEAD)
        return;
    rec = fdr_cons_slot(&l->in, l->in.head + RLY_AHEAD);
    r = jnl_find(rs->jnl, rec->tag);
    if (r == NULL || r->cli == NULL)
        return;
    if (r->cli != run->c) {
        run->c = r->cli;
        run->n = 0;
    }
    __builtin_prefetch(fdr_prod_slot(&run->c->cq, run->c->cq.tail + run->n), 1);
    if (run->n < RLY_AHEAD)
        run->n++;
}

int
rly_poll(struct reqs *rs, struct wlk *l)
{
    struct cnt_gate *cnt = rs->env->cnt;
    struct clients *k = rs->clients;
    const struct fdp_rec *rec;
    struct rly_run run = { NULL, 0 };
    uint64_t n_tok = 0, n_slot = 0;
    uint32_t n = 0;

    if (l->seg == NULL)
        return 0;
    do {
        k->quota = n_slot + RLY_LOOK < RLY_SLOTS ? n_slot + RLY_LOOK : RLY_SLOTS;
        while (n_slot < k->quota && (rec = lnk_peek(&l->lnk)) != NULL) {
            rly_prefetch(rs, &l->lnk, &run);
            if (rec->type < FDP_T__N)
                n_tok += rly_one(rs, l, rec);
            else
                rly_special(rs, l, rec);
            n_slot += rec->n_slot;
            lnk_next(&l->lnk, rec);
            n++;
        }
    } while (n_slot >= k->quota && n_slot < RLY_SLOTS && !env_is_late(rs->env));
    if (n != 0) {
        cnt_add(&cnt->records_relayed, n);
        cnt_add(&cnt->slots_relayed, n_slot);
        cnt_add(&cnt->tokens_relayed, n_tok);
        svc_add(&rs->fair->svcrate, n_tok);
    }
    return (int)n;
}
