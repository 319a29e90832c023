/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Turns the tokens of a sample into records: ids, text, stop strings, logprobs, its
 * end. */
#include "config.h"

#include "daemon/worker/egress_priv.h"

#include <string.h>

#include "daemon/common/obj.h"
#include "daemon/worker/rules.h"
#include "daemon/worker/tokenizer.h"

/* A TOKENS record longer than a slot saves nothing over IDS and TEXT. */
#define EGR_TOKENS_LEN (FDP_SLOT - sizeof(struct fdp_rec))

/* Limit of a piece of earlier output, in steps: a byte of text takes one, and one per stop
 * string; an id takes EGR_ID_STEPS, and one per length of a repetition. */
#define EGR_REPLAY_STEPS 65536u
#define EGR_ID_STEPS     16u

_Static_assert(REQ_TEXT_BYTES >= 2 * FDP_MAX_STOP_LEN && REQ_TEXT_BYTES <= FDP_REC_MAX_LEN,
    "a sample's text buffer holds a stop string and fits a record");

/* ---- ids ------------------------------------------------------------------------- */

static const uint32_t *
egr_unsent(const struct req *r, unsigned sample)
{
    uint32_t n_prior = (uint32_t)(r->n_ids - r->n_prompt);

    return r->seqs[sample].out + (r->choices[sample].n_sent - n_prior);
}

static void
egr_flush_ids(struct egress *g, const struct req *r, unsigned sample)
{
    struct req_choice *ch = &r->choices[sample];

    if (ch->n_sent == ch->n_got)
        return;
    if (ch->n_got - ch->n_sent == 1) /* the usual case */
        *(uint32_t *)egr_claim(g, r->id, FDP_T_IDS, ch->shown, ch->n_sent, 4) =
            *egr_unsent(r, sample);
    else
        egr_ids(g, r->id, FDP_T_IDS, ch->shown, ch->n_sent, egr_unsent(r, sample),
            ch->n_got - ch->n_sent);
    ch->n_sent = ch->n_got;
}

uint32_t
egr_out_id(const struct req *r, unsigned sample, uint32_t at)
{
    uint32_t n_prior = (uint32_t)(r->n_ids - r->n_prompt);

    return at < n_prior ? r->ids[(uint32_t)r->n_prompt + at]
                        : r->seqs[sample].out[at - n_prior];
}

/* ---- text ------------------------------------------------------------------------ */

/* quiet: text of PRIOR_IDS */
void
egr_text_send(struct egress *g, const struct req *r, unsigned sample, uint32_t keep,
    int quiet)
{
    struct req_choice *ch = &r->choices[sample];
    uint32_t n = ch->n_text - keep;

    if (ch->text == NULL || keep >= ch->n_text)
        return;
    if (!quiet)
        memcpy(egr_claim(g, r->id, FDP_T_TEXT, ch->shown, ch->text_off, n), ch->text, n);
    ch->text_off += n;
    ch->n_text = keep;
    memmove(ch->text, ch->text + n, keep);
}

void
egr_text_add(struct egress *g, const struct req *r, unsigned sample,
    const unsigned char *b, size_t n, int quiet)
{
    struct req_choice *ch = &r->choices[sample];

    if (ch->text == NULL)
        return;
    if (n <= REQ_TEXT_BYTES - ch->n_text) { /* the usual case */
        memcpy(ch->text + ch->n_text, b, n);
        ch->n_text += (uint32_t)n;
        return;
    }
    while (n > 0) {
        size_t k = REQ_TEXT_BYTES - ch->n_text;

        if (k == 0) {
            uint32_t cut = ch->n_text - FDP_MAX_STOP_LEN;

            while (cut > 0 && (ch->text[cut] & 0xc0) == 0x80)
                cut--;
            if (!quiet)
                egr_flush_ids(g, r, sample); /* ids are sent before their text */
            egr_text_send(g, r, sample, ch->n_text - cut, quiet);
            continue;
        }
        if (k > n)
            k = n;
        memcpy(ch->text + ch->n_text, b, k);
        ch->n_text += (uint32_t)k;
        b += k;
        n -= k;
    }
}

/* Takes n bytes of text of a sample, in g->buf; returns the stop string that they
 * complete, or -1. */
static int
egr_text(struct egress *g, const struct req *r, unsigned sample, size_t n, int quiet)
{
    struct req_choice *ch = &r->choices[sample];
    size_t end = n;
    int hit = -1;

    if (r->stops != NULL)
        hit = fin_push(r->stops, &ch->fin, g->buf, n, &end);
    egr_text_add(g, r, sample, g->buf, hit >= 0 ? end : n, quiet);
    if (hit >= 0 && ch->text != NULL && (r->p.flags & FDP_F_KEEP_STOP) == 0)
        ch->n_text -= r->stops->len[hit];
    return hit;
}

/* Bytes of text that may begin a stop string. */
static uint32_t
egr_keeps(const struct req *r, unsigned sample)
{
    return r->stops != NULL ? fin_hold(r->stops, &r->choices[sample].fin) : 0;
}

int
egr_wants_text(const struct egress *g, const struct req *r)
{
    return g->cfg.tok != NULL && ((r->p.flags & FDP_F_TEXT) != 0 || r->stops != NULL);
}

/* Ends an unfinished character with U+FFFD. Returns the bytes written to g->buf. */
static size_t
egr_unfinished(struct egress *g, const struct req *r, unsigned sample)
{
    return egr_wants_text(g, r)
        ? dtk_finish(&r->choices[sample].dtk, g->buf, g->buf_bytes)
        : 0;
}

/* Sends pending ids, then text except its last keep bytes. */
static void
egr_flush(struct egress *g, const struct req *r, unsigned sample, uint32_t keep)
{
    struct req_choice *ch = &r->choices[sample];
    uint32_t n_ids = ch->n_got - ch->n_sent, n_text;
    struct fdp_tokens *t;

    if (ch->text == NULL) {
        egr_flush_ids(g, r, sample);
        return;
    }
    n_text = ch->n_text > keep ? ch->n_text - keep : 0;
    if (n_ids == 0 || n_text == 0 || FDP_TOKENS_LEN(n_ids, n_text) > EGR_TOKENS_LEN) {
        egr_flush_ids(g, r, sample);
        egr_text_send(g, r, sample, keep, 0);
        return;
    }
    t = egr_claim(g, r->id, FDP_T_TOKENS, ch->shown, ch->n_sent,
        FDP_TOKENS_LEN(n_ids, n_text));
    *t = (struct fdp_tokens){ .text_off = ch->text_off,
        .n_ids = (uint16_t)n_ids,
        .n_text = (uint16_t)n_text };
    memcpy(t + 1, egr_unsent(r, sample), n_ids * 4u);
    memcpy((unsigned char *)(t + 1) + n_ids * 4u, ch->text, n_text);
    ch->n_sent = ch->n_got;
    ch->text_off += n_text;
    ch->n_text = keep;
    if (keep > 0)
        memmove(ch->text, ch->text + n_text, keep);
}

/* ---- logprobs -------------------------------------------------------------------- */

void
egr_read_lp(struct que *q, uint32_t at, struct egr_lp *ret)
{
    const struct que_msg *m = &que_peek(q, at)->m;

    ret->n = 0;
    if (m->n_top == QUE_NO_LOGPROB)
        return;
    ret->p[0] = (struct fdp_logprob){ (uint32_t)m->a, m->logprob };
    for (uint32_t i = 0; i < m->n_top; i++)
        ret->p[1 + i] = que_peek(q, at + 1 + i / 4)->top[i % 4];
    ret->n = 1u + m->n_top;
}

/* Sends the bytes of each token. If they exceed a record, tokens longer than an equal
 * share of it are cut. */
static void
egr_token_text(struct egress *g, const struct req *r, unsigned shown, uint32_t position,
    const struct egr_lp *lp)
{
    uint32_t head = (uint32_t)(sizeof(uint16_t) * (1 + lp->n)), sum = head, most;
    const uint8_t *b[EGR_MAX_LP];
    size_t n[EGR_MAX_LP];
    uint16_t *len;
    unsigned flags;
    unsigned char *at;
    int cut;

    most = (FDP_REC_MAX_LEN - head) / lp->n;
    for (uint32_t i = 0; i < lp->n; i++) {
        if (tok_id_bytes(g->cfg.tok, lp->p[i].id, &b[i], &n[i], &flags) != 0)
            n[i] = 0;
        sum += (uint32_t)n[i];
    }
    cut = sum > FDP_REC_MAX_LEN;
    for (uint32_t i = 0; cut && i < lp->n; i++) {
        if (n[i] <= most)
            continue;
        sum -= (uint32_t)n[i] - most;
        n[i] = most;
    }
    len = egr_claim(g, r->id, FDP_T_TOKEN_TEXT, shown, position, sum);
    len[0] = (uint16_t)lp->n;
    at = (unsigned char *)len + head;
    for (uint32_t i = 0; i < lp->n; i++) {
        len[1 + i] = (uint16_t)n[i];
        if (n[i] > 0)
            memcpy(at, b[i], n[i]);
        at += n[i];
    }
}

void
egr_logprobs(struct egress *g, const struct req *r, unsigned type, unsigned shown,
    uint32_t position, const struct egr_lp *lp)
{
    if (lp->n == 0)
        return;
    memcpy(egr_claim(g, r->id, type, shown, position, lp->n * sizeof(lp->p[0])), lp->p,
        lp->n * sizeof(lp->p[0]));
    if ((r->p.flags & FDP_F_TOKEN_TEXT) != 0)
        egr_token_text(g, r, shown, position, lp);
}

/* ---- tokens sent separately -------------------------------------------------------- */

/* Does FDP_F_ALONE send this token separately? If so, also returns its name. */
static int
egr_is_alone(const struct egress *g, const struct req *r, uint32_t id,
    const uint8_t **ret, size_t *ret_n)
{
    unsigned flags = 0;

    return (r->p.flags & FDP_F_ALONE) != 0 &&
        tok_id_bytes(g->cfg.tok, id, ret, ret_n, &flags) == 0 && flags != 0;
}

/* Before a separate token all earlier text is sent; no stop string matches across it.
 * Returns the stop string that the text held back completes, or -1. */
static int
egr_before_alone(struct egress *g, const struct req *r, unsigned sample, int quiet)
{
    struct req_choice *ch = &r->choices[sample];
    int hit = egr_text(g, r, sample, egr_unfinished(g, r, sample), quiet);

    if (hit >= 0)
        return hit;
    if (quiet)
        egr_text_send(g, r, sample, 0, 1);
    else
        egr_flush(g, r, sample, 0);
    fin_init(&ch->fin);
    return -1;
}

/* Sends a token separately, unless the text before it completes a stop string. Returns
 * that stop string, or -1. */
static int
egr_alone(struct egress *g, const struct req *r, unsigned sample, uint32_t id,
    const uint8_t *name, size_t n)
{
    struct req_choice *ch = &r->choices[sample];
    struct fdp_special *sp;
    int hit = egr_before_alone(g, r, sample, 0);

    if (hit >= 0)
        return hit;
    if (n > FDP_REC_MAX_LEN - sizeof(*sp))
        n = FDP_REC_MAX_LEN - sizeof(*sp);
    sp = egr_claim(g, r->id, FDP_T_SPECIAL, ch->shown, ch->n_got, sizeof(*sp) + n);
    *sp = (struct fdp_special){ .id = id, .n_text = (uint32_t)n };
    memcpy(sp + 1, name, n);
    ch->n_sent = ch->n_got + 1;
    return -1;
}

/* ---- repetition ------------------------------------------------------------------- */

/* Takes output token at; all before it were taken. Returns 1 if it completes a sequence
 * repeated often enough. */
static int
egr_repeats(const struct req *r, unsigned sample, uint32_t at)
{
    const struct fdp_repetition *rep = &r->repetition;
    uint32_t *run = r->choices[sample].run, id, most;
    int hit = 0;

    if (run == NULL)
        return 0;
    id = egr_out_id(r, sample, at);
    most = rep->max_len < at ? rep->max_len : at;
    for (uint32_t p = rep->min_len; p <= most; p++) {
        run[p - 1] = id == egr_out_id(r, sample, at - p) ? run[p - 1] + 1 : 0;
        hit |= run[p - 1] >= p * (rep->count - 1);
    }
    return hit;
}

/* ---- ends ------------------------------------------------------------------------- */

void
egr_close(struct egress *g, struct req *r, unsigned sample, struct fdp_choice_end end)
{
    struct req_choice *ch = &r->choices[sample];
    int failed = end.finish == FDP_FIN_ERROR;
    struct fdp_choice_end *ce;
    int hit = -1;

    ASSERT(!ch->closed && r->n_open > 0);
    /* A program may continue output that an error cut off, by PRIOR_IDS: so text that the
     * next token could still change is not sent then. */
    if (end.stop_str < 0 && !failed)
        hit = egr_text(g, r, sample, egr_unfinished(g, r, sample), 0);
    if (hit >= 0) { /* in text held back until now */
        end.finish = FDP_FIN_STOP;
        end.stop_id = -1;
        end.stop_str = hit;
    }
    egr_flush(g, r, sample, failed ? egr_keeps(r, sample) : 0);
    end.n_tokens = ch->n_got;
    end.n_reasoning = (uint32_t)ch->reason.n;
    ce = egr_claim(g, r->id, FDP_T_CHOICE_END, ch->shown, ch->n_got, sizeof(*ce));
    *ce = end;
    ch->closed = 1;
    r->n_open--;
    if (end.finish == FDP_FIN_STOP)
        cnt_add(&g->cfg.cnt->finished_stop, 1);
    else if (end.finish == FDP_FIN_LENGTH)
        cnt_add(&g->cfg.cnt->finished_length, 1);
}

/* How a sample ends with token id; FDP_FIN_NONE: it continues. */
static struct fdp_choice_end
egr_ends(uint32_t id, int32_t done, int hit, int repeats)
{
    struct fdp_choice_end end = { .stop_id = -1, .stop_str = -1 };

    if (hit >= 0) {
        end.finish = FDP_FIN_STOP;
        end.stop_str = hit;
    } else if (repeats) {
        end.finish = FDP_FIN_REPETITION;
    } else if (done == FDK_DONE_STOP) {
        end.finish = FDP_FIN_STOP;
        end.stop_id = (int32_t)id;
    } else if (done == FDK_DONE_LENGTH) {
        end.finish = FDP_FIN_LENGTH;
    }
    return end;
}

/* ---- one token -------------------------------------------------------------------- */

/* Is the text of a stop id part of the output? */
static int
egr_shows_stop_id(const struct req *r)
{
    return (r->p.flags & (FDP_F_KEEP_STOP | FDP_F_KEEP_SPECIAL)) != 0;
}

/* Adds the token's text, if it belongs to the output; returns the stop string that it
 * completes, or -1. */
static int
egr_push(struct egress *g, const struct req *r, unsigned sample, uint32_t id, int32_t done)
{
    if (!egr_wants_text(g, r) || (done == FDK_DONE_STOP && !egr_shows_stop_id(r)))
        return -1;
    return egr_text(g, r, sample,
        dtk_push(&r->choices[sample].dtk, id, g->buf, g->buf_bytes), 0);
}

int
egr_looks_at_each(const struct req *r)
{
    return r->repetition.count != 0 || r->rules != NULL || (r->p.flags & FDP_F_ALONE) != 0;
}

/* Examines a token. Returns 1 if it is a separate one: it was sent, unless *ret_hit is the
 * stop string that the text before it completes. */
static __attribute__((noinline)) int
egr_look(struct egress *g, const struct req *r, unsigned sample, uint32_t id,
    int *ret_repeats, int *ret_hit)
{
    struct req_choice *ch = &r->choices[sample];
    const uint8_t *name = NULL;
    size_t n = 0;
    int alone = egr_is_alone(g, r, id, &name, &n);

    *ret_repeats = egr_repeats(r, sample, ch->n_got);
    if (alone)
        *ret_hit = egr_alone(g, r, sample, id, name, n);
    if (r->rules != NULL)
        rls_took(r->rules, &ch->reason, id);
    return alone;
}

int
egr_take(struct egress *g, struct req *r, unsigned sample, uint32_t id, int32_t done,
    const struct egr_lp *lp, uint32_t due)
{
    struct req_choice *ch = &r->choices[sample];
    int repeats = 0, alone = 0, hit = -1, ends;

    if (r->looked_at)
        alone = egr_look(g, r, sample, id, &repeats, &hit);
    ch->n_got++;
    if (lp->n > 0) { /* before the text, the begin of which egr_push() may send */
        egr_flush_ids(g, r, sample);
        egr_logprobs(g, r, FDP_T_LOGPROBS, ch->shown, ch->n_got - 1, lp);
    }
    if (!alone)
        hit = egr_push(g, r, sample, id, done);
    ends = hit >= 0 || repeats || done != FDK_DONE_NO;
    if (!ends && (alone || lp->n > 0 || ch->n_got - ch->n_sent >= due))
        egr_flush(g, r, sample, egr_keeps(r, sample));
    if (ends)
        ch->end = egr_ends(id, done, hit, repeats && done == FDK_DONE_NO);
    return ends;
}

/* ---- output that was delivered before ---------------------------------------------- */

/* Is id i the stop id that ended the earlier output, whose text is hidden? */
static int
egr_is_hidden_stop(const struct req *r, int32_t i)
{
    return i == r->n_ids - 1 && !egr_shows_stop_id(r) && req_has_stopped(r);
}

/* Takes the text of id i and adds its bytes to *n; returns the stop string that it
 * completes, or -1. */
static int
egr_replay_text(struct egress *g, const struct req *r, int32_t i, size_t *n)
{
    struct req_choice *ch = &r->choices[0];
    const uint8_t *name;
    size_t k;
    int hit;

    if (egr_is_alone(g, r, r->ids[i], &name, &k))
        return egr_before_alone(g, r, 0, 1);
    if (egr_is_hidden_stop(r, i))
        return -1;
    k = dtk_push(&ch->dtk, r->ids[i], g->buf, g->buf_bytes);
    *n += k;
    hit = egr_text(g, r, 0, k, 1);
    if (hit < 0)
        egr_text_send(g, r, 0, egr_keeps(r, 0), 1);
    return hit;
}

/* Takes output token number `at`; returns its cost in steps. */
static size_t
egr_replay_id(struct egress *g, const struct req *r, uint32_t at)
{
    struct req_choice *ch = &r->choices[0];
    int32_t i = r->n_prompt + (int32_t)at;
    size_t n = 0;
    int hit = -1;

    if (egr_repeats(r, 0, at) && ch->end.finish == FDP_FIN_NONE)
        ch->end.finish = FDP_FIN_REPETITION;
    if (r->rules != NULL)
        rls_took(r->rules, &ch->reason, r->ids[i]);
    if (egr_wants_text(g, r) && ch->end.stop_str < 0)
        hit = egr_replay_text(g, r, i, &n);
    if (hit >= 0)
        ch->end = egr_ends(0, FDK_DONE_NO, hit, 0);
    return EGR_ID_STEPS + (ch->run != NULL ? r->repetition.max_len : 0) +
        n * (1 + (r->stops != NULL ? r->stops->n : 0));
}

int
egr_replay_piece(struct egress *g, struct req *r)
{
    struct req_choice *ch = &r->choices[0];

    for (size_t n = 0; r->job_at < ch->n_got && n < EGR_REPLAY_STEPS; r->job_at++)
        n += egr_replay_id(g, r, r->job_at);
    if (r->job_at < ch->n_got)
        return 1;
    if (ch->end.finish != FDP_FIN_NONE)
        egr_close(g, r, 0, ch->end);
    return 0;
}

void
egr_prime(struct egress *g, struct req *r, unsigned sample)
{
    struct req_choice *ch = &r->choices[sample];

    ch->n_got = ch->n_sent = (uint32_t)(r->n_ids - r->n_prompt);
    ch->n_text = ch->text_off = 0;
    ch->end = egr_ends(0, FDK_DONE_NO, -1, 0);
    fin_init(&ch->fin);
    if (r->rules != NULL)
        ch->reason =
            (struct rls_reason){ .in = rls_begins_inside(r->rules, r->ids, r->n_prompt) };
    if (egr_wants_text(g, r)) {
        dtk_init(&ch->dtk, g->cfg.tok, (r->p.flags & FDP_F_KEEP_SPECIAL) == 0);
        dtk_resume(&ch->dtk, r->ids, (size_t)r->n_prompt);
    }
}
