/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/engine_count.h"

#include "daemon/common/clk.h"
#include "daemon/common/log.h"

static int32_t
eng_blocks_used(const struct engine *e)
{
    return e->cfg.n_block - e->kv->n_free - e->kv->n_deferred - e->kv->n_cached;
}

uint64_t
eng_gap(const struct engine *e, const struct bat_rec *rec, uint64_t begin_ns)
{
    uint64_t from = e->t_end_ns > rec->t_work_ns ? e->t_end_ns : rec->t_work_ns;

    return begin_ns > from ? begin_ns - from : 0;
}

/* When each rank's device began and ended the step, relative to its begin. */
static void
eng_trace_ranks(const struct engine *e, struct bat_rec *rec)
{
    _Static_assert(TRC_RANKS == FDK_MAX_RANKS, "a group fits");
    struct trc_step *t = &rec->trace;
    uint64_t begin, end;

    t->n_rank = e->run->n_rank > 1 ? e->run->n_rank : 0;
    for (int32_t i = 0; i < t->n_rank; i++) {
        run_times(e->run, rec, i, &begin, &end);
        t->rank_begin_ns[i] = (int32_t)((int64_t)begin - (int64_t)t->t_begin_ns);
        t->rank_end_ns[i] = (int32_t)((int64_t)end - (int64_t)t->t_begin_ns);
    }
}

/* Completes a collected step's trace. */
static void
eng_trace_done(struct engine *e, struct bat_rec *rec, uint64_t begin_ns, uint64_t end_ns,
    uint64_t now)
{
    uint64_t gap = eng_gap(e, rec, begin_ns);
    struct trc_step *t = &rec->trace;

    cnt_add(&e->cfg.cnt->gap_ns, gap);
    cnt_see(e->cfg.hist, CNT_H_gap_ns, gap, 1);
    cnt_see(e->cfg.hist, CNT_H_step_ns, end_ns - begin_ns, 1);
    cnt_see(e->cfg.hist, CNT_H_step_tokens, (uint64_t)rec->n_tok, 1);
    cnt_see(e->cfg.hist, CNT_H_ahead_ns,
        begin_ns > t->t_pick_ns ? begin_ns - t->t_pick_ns : 0, 1);
    t->flags |= TRC_DONE | (rec->t_work_ns <= e->t_end_ns ? TRC_FOLLOWS : 0);
    t->t_begin_ns = begin_ns;
    t->t_end_ns = end_ns;
    t->t_done_ns = now;
    eng_trace_ranks(e, rec);
    e->t_end_ns = end_ns;
    trc_put_step(e->cfg.sch.trc, t);
}

void
eng_count(struct engine *e, struct bat_rec *rec, uint64_t begin_ns, uint64_t end_ns)
{
    struct cnt_worker *c = e->cfg.cnt;
    uint64_t now = clk_now_ns();

    eng_trace_done(e, rec, begin_ns, end_ns, now);
    cnt_add(&c->steps, 1);
    /* overlapping time of several launched steps counts once */
    cnt_add(&c->step_ns,
        now - (rec->t_launch_ns > e->t_collect_ns ? rec->t_launch_ns : e->t_collect_ns));
    e->t_collect_ns = now;
    cnt_add(&c->model_ns, end_ns - begin_ns);
    cnt_add(&c->prompt_tokens, (uint64_t)(rec->n_tok - rec->n_decode));
    cnt_set(&c->preemptions, e->sch->n_preempted);
    cnt_set(&c->batch_tokens, (uint64_t)rec->n_tok);
    cnt_set(&c->batch_seqs, (uint64_t)rec->n_row);
    cnt_add(&c->step_seqs, (uint64_t)rec->n_row);
    cnt_set(&c->steps_graph, e->run->n_graph);
    cnt_set(&c->steps_eager, e->run->n_eager);
    cnt_set(&c->steps_halved, run_halved(e->run));
}

void
eng_gauges(struct engine *e)
{
    struct cnt_worker *c = e->cfg.cnt;

    cnt_set(&c->seqs_running, (uint64_t)e->sch->running.n);
    cnt_set(&c->requests_running, (uint64_t)e->sch->n_req_running);
    cnt_set(&c->requests_waiting, (uint64_t)(e->n_live - e->sch->n_req_running));
    cnt_set(&c->kv_blocks_free, (uint64_t)e->kv->n_free);
    cnt_set(&c->kv_blocks_cached, (uint64_t)e->kv->n_cached);
    cnt_set(&c->kv_blocks_used, (uint64_t)eng_blocks_used(e));
    cnt_set(&c->kv_blocks_host, (uint64_t)e->kv->n_host_used);
    cnt_set(&c->prefix_lookups, e->kv->n_lookup);
    cnt_set(&c->prefix_hits, e->kv->n_hit);
    cnt_set(&c->prefix_evictions, e->kv->n_evicted);
    cnt_set(&c->kv_swapped_out, e->kv->n_out);
    cnt_set(&c->kv_swapped_in, e->kv->n_in);
    cnt_set(&c->steps_in_flight, (uint64_t)e->n_flight);
}

void
eng_tell_target(struct engine *e)
{
    uint64_t ns = sch_itl_target(e->sch);

    if (e->cfg.beat != NULL)
        __atomic_store_n(&e->cfg.beat->itl_target_ns, ns, __ATOMIC_RELAXED);
    if (ns == 0 || e->told_target || e->cfg.sch.itl_target_ns != SCH_ITL_AUTO)
        return;
    e->told_target = 1;
    log_info("engine: sched.itl_target_ms is %.1f: prompts share steps with answers for so "
             "long, or for the least time in which they are efficient",
        (double)ns / 1e6);
}

void
eng_trace_launch(struct engine *e, struct bat_rec *rec, int32_t n_copy, int graph)
{
    const struct sch_step *st = &e->step;

    rec->trace = (struct trc_step){ .epoch = rec->epoch,
        .flags = (graph ? TRC_GRAPH : 0) | (rec->marks != NULL ? TRC_PROFILED : 0) |
            (rec->n_split > 0 ? TRC_DIVIDED : 0),
        .n_tok = rec->n_tok,
        .n_pad = rec->n_split > 0 ? rec->copy_pad : rec->T_pad,
        .n_row = rec->n_row,
        .n_decode = rec->n_decode,
        .n_out = rec->n_out,
        .n_preempted = st->n_preempted,
        .n_cached = st->n_cached,
        .n_copy = n_copy,
        .n_waiting = e->sch->waiting.n,
        .blocks_used = eng_blocks_used(e),
        .blocks_free = e->kv->n_free,
        .t_pick_ns = e->t_pick_ns,
        .t_launch_ns = rec->t_launch_ns,
        .t_queued_ns = clk_now_ns() };
    trc_put_step(e->cfg.sch.trc, &rec->trace);
}
