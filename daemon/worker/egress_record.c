/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/egress_priv.h"

#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/obj.h"

/* retry_after_ms of errors that the client may retry. */
#define EGR_RETRY_MS 100
#define EGR_ROOM_NS  (50 * CLK_US) /* time between two looks at a full up ring */

/* ---- records ------------------------------------------------------------------------- */

void
egr_wait_room(const struct egress *g)
{
    if (g->cfg.wait_room != NULL) {
        g->cfg.wait_room(g->cfg.arg);
        return;
    }
    /* without a gate nothing reads the ring */
    if (getppid() != g->parent)
        _exit(0);
    clk_sleep_ns(EGR_ROOM_NS);
}

void *
egr_claim(struct egress *g, uint64_t id, unsigned type, unsigned sample,
    uint32_t position, size_t len)
{
    while (!g->mute) {
        void *p = lnk_claim(g->cfg.lnk, id, type, sample, position, (uint32_t)len);

        if (p != NULL)
            return p;
        lnk_flush(g->cfg.lnk);
        egr_wait_room(g);
    }
    return g->scratch;
}

void
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

/* Updates the histograms for a request that ended without error. */
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

void
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

void
egr_release(struct egress *g, struct req *r)
{
    struct que_msg m = { .req = r, .kind = QUE_FREED, .n_top = QUE_NO_LOGPROB };

    que_push(g->cfg.q_freed, &m);
}

void
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
