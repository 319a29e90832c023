/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/egress_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/tokenizer.h"

struct egress *
egr_new(const struct egr_cfg *cfg)
{
    struct egress *g;

    OBJ_ALLOC(g, EGR_MAGIC);
    if (g == NULL)
        return NULL;
    g->cfg = *cfg;
    g->parent = getppid();
    g->buf_bytes = cfg->tok != NULL ? dtk_max_bytes(cfg->tok) : 16;
    g->buf = mem_zalloc(g->buf_bytes);
    if (g->buf == NULL)
        return egr_free(g);
    return g;
}

struct egress *
egr_free(struct egress *g)
{
    if (g == NULL)
        return NULL;
    free(g->buf);
    OBJ_FREE(g, EGR_MAGIC);
    return NULL;
}

/* ---- tokens ------------------------------------------------------------------------------------ */

static void
egr_ask_stop(struct egress *g, const struct req *r, unsigned sample)
{
    struct que_msg m = { .idx = r->idx,
        .serial = r->serial,
        .sample = (uint16_t)sample,
        .kind = QUE_STOP,
        .n_top = QUE_NO_LOGPROB };

    que_claim(g->cfg.q_stop)->m = m;
}

/* Updates the latency histograms at the time of a token. */
static void
egr_see_token(struct egress *g, struct req *r, struct req_choice *ch)
{
    if (r->t_first_ns == 0) {
        r->t_first_ns = g->now_ns;
        if (g->now_ns > r->t_submit_ns) {
            cnt_add(&g->cfg.cnt->ttft_ns, g->now_ns - r->t_submit_ns);
            cnt_add(&g->cfg.cnt->ttft_count, 1);
            cnt_see(g->cfg.hist, CNT_H_ttft, g->now_ns - r->t_submit_ns, 1);
        }
    }
    if (ch->t_last_ns != 0)
        cnt_see(g->cfg.hist, CNT_H_itl, g->now_ns - ch->t_last_ns, 1);
    ch->t_last_ns = g->now_ns;
}

/* Number of ids that are sent together. */
static uint32_t
egr_due(const struct req *r, const struct egr_lp *lp)
{
    uint32_t due = lp->n == 0 && r->p.stream_interval > 1 ? r->p.stream_interval : 1;

    return due < EGR_MAX_IDS ? due : EGR_MAX_IDS;
}

/* Takes the token of m, with its logprobs. */
static void
egr_took(struct egress *g, const struct que_msg *m, const struct egr_lp *lp)
{
    struct req *r = m->req;
    struct req_choice *ch = &r->choices[m->sample];

    if (ch->closed) {
        /* its QUE_STOP may have reached the engine before the request did */
        egr_ask_stop(g, r, m->sample);
        return;
    }
    ASSERT(m->x == ch->n_got);
    egr_see_token(g, r, ch);
    if (r->held) {
        if (egr_hold(g, r, m->sample, m, lp))
            egr_ask_stop(g, r, m->sample);
        return;
    }
    if (!egr_take(g, r, m->sample, (uint32_t)m->a, m->done, lp, egr_due(r, lp)))
        return;
    egr_close(g, r, m->sample, ch->end);
    if (m->done == FDK_DONE_NO)
        egr_ask_stop(g, r, m->sample);
}

static __attribute__((noinline)) void
egr_token_lp(struct egress *g, uint32_t at)
{
    struct egr_lp lp;

    egr_read_lp(g->cfg.q_eng, at, &lp);
    egr_took(g, &que_peek(g->cfg.q_eng, at)->m, &lp);
}

static void
egr_token(struct egress *g, uint32_t at)
{
    static const struct egr_lp none = { .n = 0 };
    const struct que_msg *m = &que_peek(g->cfg.q_eng, at)->m;

    if (m->n_top == QUE_NO_LOGPROB)
        egr_took(g, m, &none);
    else
        egr_token_lp(g, at);
}

static void
egr_score(struct egress *g, uint32_t at)
{
    const struct que_msg *m = &que_peek(g->cfg.q_eng, at)->m;
    struct egr_lp lp;

    egr_read_lp(g->cfg.q_eng, at, &lp);
    egr_logprobs(g, m->req, FDP_T_PROMPT_LOGPROBS, 0, m->x, &lp);
}

/* ---- requests --------------------------------------------------------------------------------------- */

static void
egr_open(struct egress *g, struct req *r, int32_t done)
{
    struct lnk_tokenized *t;
    struct fdp_accepted *a;

    OBJ_CHECK(r, REQ_MAGIC);
    t = egr_claim(g, r->id, LNK_T_TOKENIZED, 0, 0, sizeof(*t));
    *t = (struct lnk_tokenized){ .prompt_len = (uint32_t)r->n_prompt };
    a = egr_claim(g, r->id, FDP_T_ACCEPTED, 0, 0, sizeof(*a));
    *a = (struct fdp_accepted){ .prompt_len = (uint32_t)r->n_prompt, .seed = r->p.seed };
    r->ended = done;
    if (req_echoes(r)) {
        egr_prompt_begin(g, r);
        req_append(&g->jobs, r);
    } else {
        egr_begin(g, r);
    }
}

/* ---- poll ---------------------------------------------------------------------------------------------- */

static void
egr_ready(struct egress *g)
{
    struct lnk_ready *rd = egr_claim(g, 0, LNK_T_READY, 0, 0, sizeof(*rd));

    *rd = *g->cfg.ready;
}

static void
egr_ingress(struct egress *g, const struct que_msg *m)
{
    switch (m->kind) {
    case QUE_OPEN:
        egr_open(g, m->req, m->done);
        break;
    case QUE_REFUSE:
        egr_error(g, m->id, m->a, m);
        break;
    case QUE_FAIL:
        egr_error(g, m->req->id, m->a, m);
        egr_release(g, m->req);
        break;
    case QUE_ANSWER:
        egr_answer(g, m->req);
        break;
    case QUE_READY:
        egr_ready(g);
        break;
    case QUE_STATE:
        (void)egr_claim(g, 0, LNK_T_STATE, 0, 0, 0);
        break;
    default:
        WRONG("message from ingress");
    }
}

static void
egr_engine(struct egress *g, uint32_t at)
{
    const struct que_msg *m = &que_peek(g->cfg.q_eng, at)->m;

    switch (m->kind) {
    case QUE_TOKEN:
        egr_token(g, at);
        break;
    case QUE_SCORE:
        egr_score(g, at);
        break;
    case QUE_END:
        egr_end(g, m->req, m->a, m->done);
        break;
    default:
        WRONG("message from the engine");
    }
}

int
egr_poll(struct egress *g, uint64_t now_ns)
{
    /* Reads the engine's cursor first, then handles all of ingress: a request's QUE_OPEN
     * was pushed before any message of the engine about it. */
    uint32_t n = que_recheck(g->cfg.q_eng), m = que_recheck(g->cfg.q_ing), at = 0;
    int work;

    OBJ_CHECK(g, EGR_MAGIC);
    g->now_ns = now_ns;
    for (uint32_t i = 0; i < m; i++)
        egr_ingress(g, &que_peek(g->cfg.q_ing, i)->m);
    que_pop(g->cfg.q_ing, m);
    while (at < n) {
        uint32_t k = que_slots(que_peek(g->cfg.q_eng, at)->m.n_top);

        egr_engine(g, at);
        at += k;
    }
    que_pop(g->cfg.q_eng, n);
    que_publish(g->cfg.q_stop);
    work = egr_job(g, n == 0 && m == 0);
    lnk_flush(g->cfg.lnk);
    return work || n > 0 || m > 0;
}

int
egr_pending(struct egress *g)
{
    return g->jobs.head != NULL || que_recheck(g->cfg.q_eng) > 0 ||
        que_recheck(g->cfg.q_ing) > 0;
}
