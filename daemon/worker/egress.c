/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/egress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/tokenizer.h"

#define EGR_MAX_IDS (FDP_REC_MAX_LEN / 4)
/* A TOKENS record of more than a slot saves nothing over IDS and TEXT. */
#define EGR_TOKENS_LEN (FDP_SLOT - sizeof(struct fdp_rec))
/* Ids of a long answer per poll. */
#define EGR_JOB_IDS 4096u
/* Retry hint with errors of class RETRY. */
#define EGR_RETRY_MS 100
#define EGR_ROOM_NS  (50 * CLK_US) /* the gate has not drained the up ring */

_Static_assert(REQ_TEXT_BYTES >= 2 * FDP_MAX_STOP_LEN && REQ_TEXT_BYTES <= FDP_REC_MAX_LEN,
    "a sample's text buffer holds a stop string and fits a record");

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

/* ---- records ------------------------------------------------------------------------- */

static void
egr_wait_room(const struct egress *g)
{
    if (g->cfg.wait_room != NULL) {
        g->cfg.wait_room(g->cfg.arg);
        return;
    }
    /* without a gate no process reads the ring */
    if (getppid() != g->parent)
        _exit(0);
    clk_sleep_ns(EGR_ROOM_NS);
}

static void *
egr_claim(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, size_t len)
{
    for (;;) {
        void *p = lnk_claim(g->cfg.lnk, id, type, sample, position, (uint32_t)len);

        if (p != NULL)
            return p;
        lnk_flush(g->cfg.lnk);
        egr_wait_room(g);
    }
}

static void
egr_error(struct egress *g, uint64_t id, int32_t code, const struct que_msg *m)
{
    struct fdp_error *e = egr_claim(g, id, FDP_T_ERROR, 0, 0, sizeof(*e));

    *e = (struct fdp_error){ .code = code,
        .detail = m->idx,
        .arg = m->x,
        .limit = m->serial,
        .item = m->sample,
        .retry_after_ms =
            code <= FDP_E_QUEUE_FULL && code > FDP_E_DEADLINE ? EGR_RETRY_MS : 0 };
    g->n_terminal++;
    cnt_add(&g->cfg.cnt->requests_failed, 1);
    cnt_add(code == FDP_E_CANCELLED ? &g->cfg.cnt->cancelled : &g->cfg.cnt->requests_broken,
        1);
}

/* The histograms of a request that ended well. */
static void
egr_see_request(struct egress *g, const struct req *r, uint64_t n_out)
{
    struct cnt_hist *h = g->cfg.hist;
    uint64_t now = g->now_ns, longest = 0;

    for (int32_t i = 0; i < r->n_seq; i++)
        if (r->choices[i].n_got > longest)
            longest = r->choices[i].n_got;
    cnt_see(h, CNT_H_e2e, now - r->t_submit_ns, 1);
    cnt_see(h, CNT_H_prompt_tokens, (uint64_t)r->n_prompt, 1);
    cnt_see(h, CNT_H_gen_tokens, n_out, 1);
    cnt_see(h, CNT_H_max_gen_tokens, longest, 1);
    cnt_see(h, CNT_H_params_n, (uint64_t)r->n_seq, 1);
    cnt_see(h, CNT_H_params_max_tokens, (uint64_t)(r->max_len - r->n_prompt), 1);
    if (r->t_start_ns >= r->t_submit_ns && r->t_start_ns <= now) {
        cnt_see(h, CNT_H_queue, r->t_start_ns - r->t_submit_ns, 1);
        cnt_see(h, CNT_H_inference, now - r->t_start_ns, 1);
    }
    if (r->t_first_ns == 0)
        return;
    cnt_see(h, CNT_H_decode, now - r->t_first_ns, 1);
    if (r->t_start_ns != 0 && r->t_first_ns >= r->t_start_ns)
        cnt_see(h, CNT_H_prefill, r->t_first_ns - r->t_start_ns, 1);
    if (longest > 1)
        cnt_see(h, CNT_H_tpot, (now - r->t_first_ns) / (longest - 1), 1);
}

static void
egr_done(struct egress *g, const struct req *r)
{
    struct fdp_done *d = egr_claim(g, r->id, FDP_T_DONE, 0, 0, sizeof(*d));
    struct cnt_worker *c = g->cfg.cnt;
    uint64_t n_out = 0;

    for (int32_t i = 0; i < r->n_seq; i++)
        n_out += r->choices[i].n_got;
    *d = (struct fdp_done){ .prompt_tokens = (uint32_t)r->n_prompt,
        .cached_tokens = r->n_cached,
        .output_tokens = (uint32_t)n_out,
        .n_preempted = r->n_preempted,
        .t_submit = r->t_submit_ns,
        .t_start = r->t_start_ns,
        .t_first = r->t_first_ns,
        .t_end = g->now_ns };
    g->n_terminal++;
    cnt_add(&c->requests_finished, 1);
    if (r->p.op != FDP_OP_SUBMIT || g->now_ns < r->t_submit_ns)
        return;
    cnt_add(&c->e2e_ns, g->now_ns - r->t_submit_ns);
    cnt_add(&c->e2e_count, 1);
    if (r->t_start_ns > r->t_submit_ns) {
        cnt_add(&c->queue_ns, r->t_start_ns - r->t_submit_ns);
        cnt_add(&c->queue_count, 1);
    }
    egr_see_request(g, r, n_out);
}

/* The request goes back to ingress; nothing may touch it after. */
static void
egr_release(struct egress *g, struct req *r)
{
    struct que_msg m = { .req = r, .kind = QUE_FREED, .n_top = QUE_NO_LOGPROB };

    que_push(g->cfg.q_freed, &m);
}

static void
egr_ids(struct egress *g, uint64_t id, unsigned type, unsigned sample, uint32_t position,
    const uint32_t *ids, uint32_t n)
{
    while (n > 0) {
        uint32_t k = n < EGR_MAX_IDS ? n : EGR_MAX_IDS;

        memcpy(egr_claim(g, id, type, sample, position, k * 4), ids, (size_t)k * 4);
        ids += k;
        position += k;
        n -= k;
    }
}

/* ---- text of a sample ---------------------------------------------------------------------- */

/* Send all but the last keep bytes; quiet: count them only (PRIOR_IDS). */
static void
egr_text_send(struct egress *g, const struct req *r, unsigned sample, uint32_t keep,
    int quiet)
{
    struct req_choice *ch = &r->choices[sample];
    uint32_t n = ch->n_text - keep;

    if (ch->text == NULL || keep >= ch->n_text)
        return;
    if (!quiet)
        memcpy(egr_claim(g, r->id, FDP_T_TEXT, sample, ch->text_off, n), ch->text, n);
    ch->text_off += n;
    ch->n_text = keep;
    memmove(ch->text, ch->text + n, keep);
}

/* Append; what overflows is sent, but for enough to cut a stop string off. */
static void
egr_text_add(struct egress *g, const struct req *r, unsigned sample,
    const unsigned char *b, size_t n, int quiet)
{
    struct req_choice *ch = &r->choices[sample];

    if (ch->text == NULL)
        return;
    while (n > 0) {
        size_t k = REQ_TEXT_BYTES - ch->n_text;

        if (k == 0) {
            uint32_t cut = ch->n_text - FDP_MAX_STOP_LEN;

            while (cut > 0 && (ch->text[cut] & 0xc0) == 0x80)
                cut--;
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

/* Text that came for a sample; returns the stop string it completes, -1. */
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

static int
egr_wants_text(const struct egress *g, const struct req *r)
{
    return g->cfg.tok != NULL && ((r->p.flags & FDP_F_TEXT) != 0 || r->stops != NULL);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

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
    egr_ids(g, r->id, FDP_T_IDS, sample, ch->n_sent, egr_unsent(r, sample),
        ch->n_got - ch->n_sent);
    ch->n_sent = ch->n_got;
}

/* Ids, then text but for the last keep bytes. */
static void
egr_flush(struct egress *g, const struct req *r, unsigned sample, uint32_t keep)
{
    struct req_choice *ch = &r->choices[sample];
    uint32_t n_ids = ch->n_got - ch->n_sent;
    uint32_t n_text = ch->text != NULL && ch->n_text > keep ? ch->n_text - keep : 0;
    struct fdp_tokens *t;

    if (n_ids == 0 || n_text == 0 || FDP_TOKENS_LEN(n_ids, n_text) > EGR_TOKENS_LEN) {
        egr_flush_ids(g, r, sample);
        egr_text_send(g, r, sample, keep, 0);
        return;
    }
    t = egr_claim(g, r->id, FDP_T_TOKENS, sample, ch->n_sent, FDP_TOKENS_LEN(n_ids, n_text));
    *t = (struct fdp_tokens){ .text_off = ch->text_off,
        .n_ids = (uint16_t)n_ids,
        .n_text = (uint16_t)n_text };
    memcpy(t + 1, egr_unsent(r, sample), n_ids * 4u);
    memcpy((unsigned char *)(t + 1) + n_ids * 4u, ch->text, n_text);
    ch->n_sent = ch->n_got;
    egr_text_send(g, r, sample, keep, 1);
}

static void
egr_logprobs(struct egress *g, const struct req *r, unsigned type, struct que *q,
    uint32_t at)
{
    const struct que_msg *m = &que_peek(q, at)->m;
    struct fdp_logprob *lp;

    if (m->n_top == QUE_NO_LOGPROB)
        return;
    lp = egr_claim(g, r->id, type, m->sample, m->x, (1u + m->n_top) * sizeof(*lp));
    lp[0] = (struct fdp_logprob){ (uint32_t)m->a, m->logprob };
    for (uint32_t i = 0; i < m->n_top; i++)
        lp[1 + i] = que_peek(q, at + 1 + i / 4)->top[i % 4];
}

static void
egr_close(struct egress *g, struct req *r, unsigned sample, struct fdp_choice_end end)
{
    struct req_choice *ch = &r->choices[sample];
    int failed = end.finish == FDP_FIN_ERROR;
    struct fdp_choice_end *ce;
    uint32_t keep = 0;
    size_t n = 0;

    ASSERT(!ch->closed && r->n_open > 0);
    /* A program may go on with what an error cut off, by PRIOR_IDS: no text then that
     * the next token could have made another one. */
    if (failed && r->stops != NULL)
        keep = fin_hold(r->stops, &ch->fin);
    if (egr_wants_text(g, r) && end.stop_str < 0 && !failed)
        n = dtk_finish(&ch->dtk, g->buf, g->buf_bytes);
    if (ch->n_text + n > EGR_TOKENS_LEN)
        egr_flush_ids(g, r, sample); /* before text that may overflow */
    egr_text_add(g, r, sample, g->buf, n, 0);
    egr_flush(g, r, sample, keep);
    end.n_tokens = ch->n_got;
    ce = egr_claim(g, r->id, FDP_T_CHOICE_END, sample, ch->n_got, sizeof(*ce));
    *ce = end;
    ch->closed = 1;
    r->n_open--;
    if (end.finish == FDP_FIN_STOP)
        cnt_add(&g->cfg.cnt->finished_stop, 1);
    else if (end.finish == FDP_FIN_LENGTH)
        cnt_add(&g->cfg.cnt->finished_length, 1);
}

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

/* ---- repetition ------------------------------------------------------------------------------- */

static uint32_t
egr_out_id(const struct req *r, unsigned sample, uint32_t at)
{
    uint32_t n_prior = (uint32_t)(r->n_ids - r->n_prompt);

    return at < n_prior ? r->ids[(uint32_t)r->n_prompt + at]
                        : r->seqs[sample].out[at - n_prior];
}

/* Takes output token at, all of those before it were taken. 1: it completes a sequence
 * that came often enough. */
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

/* Is the text of the last token, a stop id, part of the output? */
static int
egr_shows_stop_id(const struct req *r)
{
    return (r->p.flags & (FDP_F_KEEP_STOP | FDP_F_KEEP_SPECIAL)) != 0;
}

static void
egr_token(struct egress *g, uint32_t at)
{
    const struct que_msg *m = &que_peek(g->cfg.q_eng, at)->m;
    struct req *r = m->req;
    struct req_choice *ch = &r->choices[m->sample];
    uint32_t due =
        r->p.stream_interval > 1 && m->n_top == QUE_NO_LOGPROB ? r->p.stream_interval : 1;
    int hit = -1, repeats;

    if (ch->closed) {
        /* its stop may have come to the engine before the request did */
        egr_ask_stop(g, r, m->sample);
        return;
    }
    ASSERT(m->x == ch->n_got);
    repeats = egr_repeats(r, m->sample, ch->n_got) && m->done == FDK_DONE_NO;
    ch->n_got++;
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
    if (egr_wants_text(g, r) && (m->done != FDK_DONE_STOP || egr_shows_stop_id(r)))
        hit = egr_text(g, r, m->sample,
            dtk_push(&ch->dtk, (uint32_t)m->a, g->buf, g->buf_bytes), 0);
    if (due > EGR_MAX_IDS)
        due = EGR_MAX_IDS;
    if (ch->n_got - ch->n_sent >= due || hit >= 0 || repeats || m->done != FDK_DONE_NO) {
        if (m->n_top != QUE_NO_LOGPROB) {
            egr_flush_ids(g, r, m->sample);
            egr_logprobs(g, r, FDP_T_LOGPROBS, g->cfg.q_eng, at);
        }
        if (hit < 0 && !repeats && m->done == FDK_DONE_NO)
            egr_flush(g, r, m->sample, r->stops != NULL ? fin_hold(r->stops, &ch->fin) : 0);
    }
    if (hit >= 0) {
        egr_close(g, r, m->sample,
            (struct fdp_choice_end){ .finish = FDP_FIN_STOP, .stop_id = -1, .stop_str = hit });
        if (m->done == FDK_DONE_NO)
            egr_ask_stop(g, r, m->sample);
    } else if (repeats) {
        egr_close(g, r, m->sample,
            (struct fdp_choice_end){ .finish = FDP_FIN_REPETITION,
                .stop_id = -1,
                .stop_str = -1 });
        egr_ask_stop(g, r, m->sample);
    } else if (m->done == FDK_DONE_STOP) {
        egr_close(g, r, m->sample,
            (struct fdp_choice_end){ .finish = FDP_FIN_STOP,
                .stop_id = m->a,
                .stop_str = -1 });
    } else if (m->done == FDK_DONE_LENGTH) {
        egr_close(g, r, m->sample,
            (struct fdp_choice_end){ .finish = FDP_FIN_LENGTH,
                .stop_id = -1,
                .stop_str = -1 });
    }
}

/* ---- requests --------------------------------------------------------------------------------------- */

/* Is id i of the output before the stop id that ended it, whose text was not
 * shown? */
static int
egr_is_hidden_stop(const struct req *r, int32_t i)
{
    if (i != r->n_ids - 1 || egr_shows_stop_id(r))
        return 0;
    for (int32_t k = 0; k < r->n_stop; k++)
        if ((uint32_t)r->stop_ids[k] == r->ids[i])
            return 1;
    return 0;
}

/* Go over the output that was delivered before. */
static void
egr_prime(struct egress *g, struct req *r, unsigned sample)
{
    struct req_choice *ch = &r->choices[sample];
    int hit = -1, repeats = 0;

    ch->n_got = ch->n_sent = (uint32_t)(r->n_ids - r->n_prompt);
    fin_init(&ch->fin);
    for (uint32_t k = 0; k < ch->n_got; k++)
        repeats |= egr_repeats(r, sample, k);
    if (!egr_wants_text(g, r)) {
        if (repeats)
            egr_close(g, r, sample,
                (struct fdp_choice_end){ .finish = FDP_FIN_REPETITION,
                    .stop_id = -1,
                    .stop_str = -1 });
        return;
    }
    dtk_init(&ch->dtk, g->cfg.tok, (r->p.flags & FDP_F_KEEP_SPECIAL) == 0);
    for (int32_t i = r->n_prompt; i < r->n_ids && hit < 0; i++) {
        if (egr_is_hidden_stop(r, i))
            continue;
        hit =
            egr_text(g, r, sample, dtk_push(&ch->dtk, r->ids[i], g->buf, g->buf_bytes), 1);
        if (hit < 0)
            egr_text_send(g, r, sample,
                r->stops != NULL ? fin_hold(r->stops, &ch->fin) : 0, 1);
    }
    if (hit >= 0)
        egr_close(g, r, sample,
            (struct fdp_choice_end){ .finish = FDP_FIN_STOP, .stop_id = -1, .stop_str = hit });
    else if (repeats)
        egr_close(g, r, sample,
            (struct fdp_choice_end){ .finish = FDP_FIN_REPETITION,
                .stop_id = -1,
                .stop_str = -1 });
}

static void
egr_open(struct egress *g, struct req *r)
{
    struct lnk_tokenized *t;
    struct fdp_accepted *a;

    OBJ_CHECK(r, REQ_MAGIC);
    t = egr_claim(g, r->id, LNK_T_TOKENIZED, 0, 0, sizeof(*t));
    *t = (struct lnk_tokenized){ .prompt_len = (uint32_t)r->n_prompt };
    a = egr_claim(g, r->id, FDP_T_ACCEPTED, 0, 0, sizeof(*a));
    *a = (struct fdp_accepted){ .prompt_len = (uint32_t)r->n_prompt, .seed = r->p.seed };
    if ((r->p.flags & FDP_F_PROMPT_IDS) != 0)
        egr_ids(g, r->id, FDP_T_PROMPT_IDS, 0, 0, r->ids, (uint32_t)r->n_prompt);
    for (int32_t i = 0; i < r->n_seq; i++)
        egr_prime(g, r, (unsigned)i);
}

/* The engine, or ingress for it, has done with r. */
static void
egr_end(struct egress *g, struct req *r, int32_t code, int32_t done)
{
    int32_t last = r->n_ids > 0 ? (int32_t)r->ids[r->n_ids - 1] : -1;

    for (int32_t i = 0; i < r->n_seq; i++) {
        struct fdp_choice_end end = { .finish = FDP_FIN_ERROR,
            .stop_id = -1,
            .stop_str = -1 };

        if (r->choices[i].closed)
            continue;
        if (code == 0 && done == FDK_DONE_STOP) {
            end.finish = FDP_FIN_STOP;
            end.stop_id = last;
        } else if (code == 0) {
            end.finish = FDP_FIN_LENGTH;
        }
        egr_close(g, r, (unsigned)i, end);
    }
    if (code == 0)
        egr_done(g, r);
    else
        egr_error(g, r->id, code, &(struct que_msg){ .kind = QUE_FAIL });
    egr_release(g, r);
}

static void
egr_answer(struct egress *g, struct req *r)
{
    struct fdp_info *info;

    switch (r->p.op) {
    case FDP_OP_INFO:
        info = egr_claim(g, r->id, FDP_T_REPLY, 0, 0, sizeof(*info));
        *info = g->cfg.ready->info;
        egr_done(g, r);
        egr_release(g, r);
        return;
    case FDP_OP_TOKENIZE:
    case FDP_OP_DETOKENIZE:
        r->job_at = 0;
        r->job_next = NULL;
        if (r->p.op == FDP_OP_DETOKENIZE)
            dtk_init(&r->choices[0].dtk, g->cfg.tok, (r->p.flags & FDP_F_KEEP_SPECIAL) == 0);
        if (g->job_tail != NULL)
            g->job_tail->job_next = r;
        else
            g->job_head = r;
        g->job_tail = r;
        return;
    default:
        WRONG("an op that egress cannot answer");
    }
}

/* A slice of the oldest long answer, which then goes to the end. */
static int
egr_job(struct egress *g)
{
    struct req *r = g->job_head;
    uint32_t n, end;

    if (r == NULL)
        return 0;
    n = (uint32_t)r->n_ids - r->job_at;
    if (n > EGR_JOB_IDS)
        n = EGR_JOB_IDS;
    end = r->job_at + n;
    if (r->p.op == FDP_OP_TOKENIZE)
        egr_ids(g, r->id, FDP_T_PROMPT_IDS, 0, r->job_at, r->ids + r->job_at, n);
    else
        for (uint32_t i = r->job_at; i < end; i++)
            egr_text_add(g, r, 0, g->buf,
                dtk_push(&r->choices[0].dtk, r->ids[i], g->buf, g->buf_bytes), 0);
    r->job_at = end;
    g->job_head = r->job_next;
    if (g->job_head == NULL)
        g->job_tail = NULL;
    r->job_next = NULL;
    if (end < (uint32_t)r->n_ids) {
        if (g->job_tail != NULL)
            g->job_tail->job_next = r;
        else
            g->job_head = r;
        g->job_tail = r;
        return 1;
    }
    if (r->p.op == FDP_OP_DETOKENIZE) {
        egr_text_add(g, r, 0, g->buf,
            dtk_finish(&r->choices[0].dtk, g->buf, g->buf_bytes), 0);
        egr_text_send(g, r, 0, 0, 0);
    }
    egr_done(g, r);
    egr_release(g, r);
    return 1;
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
        egr_open(g, m->req);
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
    case QUE_END:
        egr_end(g, m->req, m->a, m->done);
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
        egr_logprobs(g, m->req, FDP_T_PROMPT_LOGPROBS, g->cfg.q_eng, at);
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
    /* First the engine's cursor, then all of ingress: a request's QUE_OPEN was
     * pushed before anything the engine said of it. */
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
    work = egr_job(g);
    lnk_flush(g->cfg.lnk);
    return work || n > 0 || m > 0;
}

int
egr_pending(struct egress *g)
{
    return g->job_head != NULL || que_recheck(g->cfg.q_eng) > 0 ||
        que_recheck(g->cfg.q_ing) > 0;
}
