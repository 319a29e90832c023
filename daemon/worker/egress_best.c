/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests with more samples drawn than returned (best_of). Tokens are taken as usual
 * when they come, but their records are not sent. A sample's ids (in its sequence),
 * requested logprobs and end are kept. When all samples have ended, those with the
 * highest mean logprob are replayed and sent, best first and in turn with other long
 * answers.
 */
#include "config.h"

#include "daemon/worker/egress_priv.h"

#include <string.h>

#include "daemon/common/obj.h"

/* Tokens replayed per poll; ids that a record collects. */
#define EGR_BEST_TOKENS 512u
#define EGR_BEST_IDS    64u

#define EGR_NOT_SHOWN   UINT16_MAX

int
egr_hold(struct egress *g, struct req *r, unsigned sample, const struct que_msg *m,
    const struct egr_lp *lp)
{
    static const struct egr_lp none = { .n = 0 };
    struct req_choice *ch = &r->choices[sample];
    int ends;

    ASSERT(lp->n > 0);
    ch->sum += (double)lp->p[0].logprob;
    if (ch->lp != NULL) {
        ch->n_lp = lp->n < (uint32_t)r->n_lp ? lp->n : (uint32_t)r->n_lp;
        memcpy(ch->lp + (size_t)ch->n_got * (size_t)r->n_lp, lp->p,
            ch->n_lp * sizeof(lp->p[0]));
    }
    g->mute = 1;
    ends = egr_take(g, r, sample, (uint32_t)m->a, m->done, &none, EGR_BEST_IDS);
    g->mute = 0;
    if (!ends)
        return 0;
    ch->n_all = ch->n_got;
    ch->done = m->done;
    ch->closed = 1;
    r->n_open--;
    return m->done == FDK_DONE_NO;
}

static double
egr_mean(const struct req_choice *ch)
{
    return ch->n_all > 0 ? ch->sum / ch->n_all : 0;
}

/* Does sample a rank before b? Equal ones rank by number. */
static int
egr_is_better(const struct req *r, int32_t a, int32_t b)
{
    double x = egr_mean(&r->choices[a]), y = egr_mean(&r->choices[b]);

    return x > y || (x == y && a < b);
}

void
egr_best_begin(struct egress *g, struct req *r)
{
    for (int32_t i = 0; i < r->n_seq; i++) {
        struct req_choice *ch = &r->choices[i];
        int32_t rank = 0;

        ASSERT(ch->closed);
        for (int32_t k = 0; k < r->n_seq; k++)
            rank += k != i && egr_is_better(r, k, i);
        ch->shown = rank < r->n_shown ? (uint16_t)rank : EGR_NOT_SHOWN;
        if (ch->shown == EGR_NOT_SHOWN)
            continue;
        ch->closed = 0;
        r->n_open++;
        if (ch->run != NULL)
            memset(ch->run, 0, r->repetition.max_len * sizeof(*ch->run));
        egr_prime(g, r, (unsigned)i);
    }
    r->job_at = 0;
}

static unsigned
egr_of_rank(const struct req *r, uint32_t rank)
{
    unsigned i = 0;

    while (r->choices[i].shown != rank)
        i++;
    return i;
}

/* Replays the next token of a sample. Returns 1 if it was the last; the sample is then
 * closed. */
static int
egr_best_token(struct egress *g, struct req *r, unsigned sample)
{
    struct req_choice *ch = &r->choices[sample];
    uint32_t at = ch->n_got, due = EGR_BEST_IDS;
    int last = at + 1 == ch->n_all, ends;
    struct egr_lp lp = { .n = ch->lp != NULL ? ch->n_lp : 0 };

    if (lp.n > 0) {
        due = 1;
        memcpy(lp.p, ch->lp + (size_t)at * (size_t)r->n_lp, lp.n * sizeof(lp.p[0]));
    }
    ends = egr_take(g, r, sample, egr_out_id(r, sample, at),
        last ? ch->done : FDK_DONE_NO, &lp, due);
    ASSERT(last == ends);
    if (!last)
        return 0;
    ch->end.mean_logprob = (float)egr_mean(ch);
    egr_close(g, r, sample, ch->end);
    return 1;
}

void
egr_best_close(struct egress *g, struct req *r)
{
    const struct fdp_choice_end end = { .finish = FDP_FIN_ERROR,
        .stop_id = -1,
        .stop_str = -1 };

    for (uint32_t k = r->job_at; k < (uint32_t)r->n_shown; k++)
        egr_close(g, r, egr_of_rank(r, k), end);
}

int
egr_best_piece(struct egress *g, struct req *r)
{
    unsigned sample = egr_of_rank(r, r->job_at);
    uint32_t most = r->choices[sample].lp != NULL ? EGR_BEST_TOKENS / 8 : EGR_BEST_TOKENS;

    for (uint32_t n = 0; n < most; n++) {
        if (!egr_best_token(g, r, sample))
            continue;
        if (++r->job_at == (uint32_t)r->n_shown)
            return 0;
        sample = egr_of_rank(r, r->job_at);
    }
    return 1;
}
