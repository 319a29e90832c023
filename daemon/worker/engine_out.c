/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/engine_out.h"

#include "daemon/common/obj.h"
#include "daemon/worker/sampler.h"

/* Writes the alternatives of a token after the message in slot. */
static __attribute__((noinline)) void
eng_send_top(struct engine *e, union que_slot *slot, const struct que_msg *m,
    const struct fdk_result *res, const float *chosen)
{
    int32_t n = 0;

    slot->m.logprob = res->logprob;
    while (n < m->n_top) {
        slot = que_claim(e->cfg.q_out);
        for (int32_t i = 0; i < 4 && n < m->n_top; i++, n++) {
            int32_t k = n - res->n_top;

            slot->top[i] = k < 0
                ? (struct fdp_logprob){ (uint32_t)res->top_id[n], res->top_logprob[n] }
                : (struct fdp_logprob){ m->req->rules->chosen[k], chosen[k] };
        }
    }
}

/* chosen: logprobs of the ids that the request's rules name, sent after the alternatives;
 * or NULL. */
static void
eng_send(struct engine *e, const struct que_msg *m, const struct fdk_result *res,
    const float *chosen)
{
    union que_slot *slot = que_claim(e->cfg.q_out);

    slot->m = *m;
    if (m->n_top != QUE_NO_LOGPROB)
        eng_send_top(e, slot, m, res, chosen);
}

/* r's rules leave no id to sample: ends it with an error that names the rule. */
static void
eng_empty(struct engine *e, struct req *r)
{
    if (r->code == 0)
        r->detail = r->rules == NULL    ? FDP_D_MIN_NEW
            : r->rules->allowed != NULL ? FDP_D_ALLOWED
            : r->rules->n_ban > 0       ? FDP_D_BAD_WORDS
                                        : FDP_D_MIN_NEW;
    sch_end_req(e->sch, r, FDP_E_BAD_PARAM);
}

static void
eng_result(struct engine *e, struct seq *s, const struct bat_out *o,
    const struct fdk_result *res, int32_t n_top, const float *chosen)
{
    struct req *r = s->req;
    struct que_msg m = { .req = r,
        .sample = s->sample,
        .a = res->token,
        .n_top = n_top < 0 ? QUE_NO_LOGPROB : (uint8_t)res->n_top };

    if (res->bad == FDK_BAD_EMPTY) {
        eng_empty(e, r);
        return;
    }
    if (res->bad) {
        cnt_add(&e->cfg.cnt->numeric_errors, 1);
        sch_end_req(e->sch, r, FDP_E_NUMERIC);
        return;
    }
    if (o->kind == BAT_OUT_SCORE) {
        m.kind = QUE_SCORE;
        m.x = (uint32_t)o->pos;
        eng_send(e, &m, res, NULL);
        /* the last prompt token of a request without output tokens */
        if (o->pos == r->n_prompt - 1 && s->n_tok == s->max_len)
            sch_end(e->sch, s);
        return;
    }
    ASSERT(res->generation == o->generation && o->pos == s->n_tok);
    ASSERT(res->token >= 0 && res->token < e->bat->vocab);
    m.kind = QUE_TOKEN;
    m.x = (uint32_t)(s->n_tok - r->n_prompt);
    m.done = res->done;
    if (res->done == FDK_DONE_NO && s->n_tok + 1 >= s->max_len)
        m.done = FDK_DONE_LENGTH;
    cnt_add(&e->cfg.cnt->generation_tokens, 1);
    if (s->n_tok == r->n_ids)
        trc_put_event(e->cfg.sch.trc, e->now_ns, TRC_FIRST, r->id, s->sample, 0, 0);
    if (chosen != NULL && n_top >= 0 && s->penalty >= 0) {
        chosen += (size_t)s->penalty * FDK_MAX_CHOSEN;
        m.n_top = (uint8_t)(m.n_top + smp_n_chosen(r));
    }
    sch_append(e->sch, s, (uint32_t)res->token, m.done != FDK_DONE_NO);
    eng_send(e, &m, res, chosen);
}

void
eng_results(struct engine *e, const struct bat_rec *rec)
{
    const struct fdk_out *out = (const struct fdk_out *)(rec->plan + rec->layout.out);

    for (int32_t i = 0; i < rec->n_out; i++) {
        const struct bat_out *o = &rec->outs[i];
        struct seq *s = sch_slot(e->sch, o->slot, o->generation);

        /* it ended after the launch, or by an earlier result of this step */
        if (s == NULL || s->state == REQ_ST_FINISHING) {
            cnt_add(&e->cfg.cnt->rows_discarded, o->kind == BAT_OUT_SAMPLE);
            continue;
        }
        eng_result(e, s, o, &rec->results[i], out[i].n_top,
            rec->chosen ? rec->h_chosen : NULL);
    }
}

static int32_t
eng_n_out(const struct req *r)
{
    int32_t n = 0;

    for (int32_t i = 0; i < r->n_seq; i++)
        n += r->seqs[i].n_tok - r->n_ids;
    return n;
}

int
eng_send_ended(struct engine *e)
{
    uint32_t promised = e->room * (uint32_t)e->n_flight;
    int n = 0;

    while (e->sch->ended_head != NULL && que_has_room(e->cfg.q_out, promised + 1)) {
        struct req *r = sch_take_ended(e->sch);
        struct que_msg m = { .req = r, .kind = QUE_END, .a = r->code, .n_top = QUE_NO_LOGPROB };

        e->live[r->idx].req = NULL;
        e->n_live--;
        trc_put_event(e->cfg.sch.trc, e->now_ns, TRC_END, r->id, 0, r->code, eng_n_out(r));
        que_claim(e->cfg.q_out)->m = m;
        n++;
    }
    return n;
}
