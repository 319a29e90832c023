/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/engine_count.h"
#include "daemon/worker/engine_out.h"
#include "daemon/worker/prime.h"
#include "daemon/worker/profile.h"

void
eng_dims(const struct eng_cfg *cfg, struct bat_dims *ret)
{
    *ret = (struct bat_dims){ .T = cfg->sch.max_tokens,
        .S = cfg->sch.max_seqs,
        .O = cfg->sch.max_seqs + ENG_MAX_SCORES,
        .stride = (int32_t)(((int64_t)cfg->max_len + cfg->block_size - 1) / cfg->block_size),
        .block_size = cfg->block_size,
        .n_group = cfg->n_group,
        .n_copy = cfg->n_copy,
        .min_split = cfg->min_split > 0 ? cfg->min_split : PRM_LEAST_SPLIT };
}

int32_t
eng_kv_most(const struct eng_cfg *cfg, int32_t window)
{
    return kv_most(window, cfg->sch.max_tokens, cfg->block_size);
}

static void
eng_set_split(struct engine *e, int32_t n)
{
    e->bat->min_split = e->sch->cfg.min_split = n;
    e->sch->cfg.n_copy = e->cfg.n_copy;
}

int32_t
eng_min_split(const struct engine *e)
{
    return e->bat->min_split;
}

/* Slots for the results of the largest step. */
static uint32_t
eng_room(const struct eng_cfg *cfg)
{
    return (uint32_t)(cfg->sch.max_seqs + ENG_MAX_SCORES) * QUE_MAX_SLOTS +
        (uint32_t)cfg->sch.n_penalty * QUE_CHOSEN_SLOTS;
}

/* Slots for the results of all launched steps and one more, and an end for every
 * request. */
uint32_t
eng_out_slots(const struct eng_cfg *cfg)
{
    return (uint32_t)(cfg->depth + 2) * eng_room(cfg) + (uint32_t)cfg->max_reqs;
}

static int32_t
eng_max_copy(const struct runner *run)
{
    int64_t n = ENG_COPY_BYTES / (run->kv[0].block_bytes > 0 ? run->kv[0].block_bytes : 1);

    return n < ENG_MIN_COPY ? ENG_MIN_COPY : n > ENG_MAX_COPY ? ENG_MAX_COPY : (int32_t)n;
}

int
eng_new(const struct eng_cfg *cfg, struct runner *run, struct engine **ret, char *err,
    size_t err_bytes)
{
    struct kv_cfg kc = { .n_block = cfg->n_block,
        .block_size = cfg->block_size,
        .n_slot = cfg->sch.max_seqs,
        .max_len = cfg->max_len,
        .n_host = cfg->n_host,
        .n_group = cfg->n_group,
        .max_step = cfg->sch.max_tokens };
    struct engine *e;

    if (cfg->depth < 0 || cfg->depth > ENG_MAX_DEPTH) {
        (void)snprintf(err, err_bytes, "device.overlap_depth = %d is not between 0 and %d",
            cfg->depth, ENG_MAX_DEPTH);
        return -EINVAL;
    }
    OBJ_ALLOC(e, ENG_MAGIC);
    if (e == NULL)
        goto no_memory;
    e->cfg = *cfg;
    e->run = run;
    e->room = eng_room(cfg);
    memcpy(kc.window, cfg->window, sizeof(kc.window));
    kc.max_copy = eng_max_copy(run);
    cost_init(&e->cost);
    lka_init(&e->lka, cfg->depth);
    e->max_queued = ENG_MAX_QUEUED;
    e->cfg.sch.max_scores = ENG_MAX_SCORES;
    e->cfg.sch.cost = &e->cost;
    e->kv = kv_new(&kc);
    if (e->kv == NULL)
        goto no_memory;
    e->sch = sch_new(&e->cfg.sch, e->kv);
    e->bat = bat_new(&run->dims);
    e->live = mem_array((size_t)cfg->max_reqs, sizeof(*e->live));
    e->snap.rows = mem_array(ENG_SNAP_ROWS, sizeof(*e->snap.rows));
    if (e->sch == NULL || e->bat == NULL || e->live == NULL || e->snap.rows == NULL ||
        sch_step_init(&e->step, cfg->sch.max_seqs) != 0)
        goto no_memory;
    ASSERT(run->n_rec == cfg->depth + 1 && run->n_host == cfg->n_host);
    eng_set_split(e, cfg->min_split > 0 ? cfg->min_split : PRM_SPLIT);
    e->bat->cap = run->use_graph ? &run->cap : NULL;
    e->bat->counts = run->h_counts;
    e->bat->rules = run->h_rules;
    e->bat->vocab = run->prog->cfg.vocab;
    *ret = e;
    return 0;

no_memory:
    (void)snprintf(err, err_bytes, "out of memory for the engine's tables");
    (void)eng_free(e);
    return -ENOMEM;
}

struct engine *
eng_free(struct engine *e)
{
    if (e == NULL)
        return NULL;
    sch_step_fini(&e->step);
    free(e->snap.rows);
    free(e->live);
    (void)bat_free(e->bat);
    (void)sch_free(e->sch);
    (void)kv_free(e->kv);
    OBJ_FREE(e, ENG_MAGIC);
    return NULL;
}

int
eng_prime(struct engine *e, uint64_t budget_ns)
{
    struct prm_result res;
    int rc;

    ASSERT(e->epoch == 0 && e->n_live == 0);
    if (e->cfg.n_copy > 1 && e->cfg.min_split == 0) {
        rc = prm_split(e->run, e->bat, e->cfg.max_len, budget_ns);
        if (rc != 0)
            return rc;
        eng_set_split(e, e->bat->min_split);
    }
    rc = prm_run(e->run, e->bat, &e->cost, e->cfg.max_len, budget_ns, &res);
    if (rc == 0)
        log_info("engine: %d kinds of steps measured in %.1f ms%s", res.n_shape,
            (double)res.ns / 1e6,
            e->cost.n >= COST_MIN_STEPS ? "" : ": too few to predict what steps take");
    return rc;
}

/* ---- commands ------------------------------------------------------------------------ */

static struct req *
eng_live_req(const struct engine *e, uint32_t idx, uint32_t serial)
{
    if (idx >= (uint32_t)e->cfg.max_reqs || e->live[idx].serial != serial)
        return NULL;
    return e->live[idx].req;
}

static void
eng_add(struct engine *e, struct req *r)
{
    int32_t code;

    OBJ_CHECK(r, REQ_MAGIC);
    ASSERT(r->idx < (uint32_t)e->cfg.max_reqs && e->live[r->idx].req == NULL);
    e->live[r->idx] = (struct eng_live){ r, r->serial };
    e->n_live++;
    trc_put_event(e->cfg.sch.trc, r->t_submit_ns, TRC_SUBMIT, r->id, 0, r->n_prompt,
        r->max_len - r->n_prompt);
    trc_put_event(e->cfg.sch.trc, e->now_ns, TRC_READY, r->id, 0, 0, 0);
    if (r->n_seq == 0) {
        sch_pass(e->sch, r);
        return;
    }
    sch_add(e->sch, r);
    /* a QUE_CANCEL that came before the request had no effect */
    code = __atomic_load_n(&r->cancel, __ATOMIC_ACQUIRE);
    if (code != 0)
        sch_end_req(e->sch, r, code);
}

static int
eng_commands(struct engine *e, struct que *q)
{
    uint32_t n = que_recheck(q);

    for (uint32_t i = 0; i < n; i++) {
        const struct que_msg *m = &que_peek(q, i)->m;
        struct req *r;

        switch (m->kind) {
        case QUE_ADD:
            eng_add(e, m->req);
            break;
        case QUE_CANCEL:
            r = eng_live_req(e, m->idx, m->serial);
            if (r != NULL)
                sch_end_req(e->sch, r, m->a);
            break;
        case QUE_STOP:
            r = eng_live_req(e, m->idx, m->serial);
            if (r != NULL && m->sample < r->n_seq)
                sch_end(e->sch, &r->seqs[m->sample]);
            break;
        default:
            WRONG("engine command");
        }
    }
    que_pop(q, n);
    if (n > 0)
        e->nothing_due = 0;
    return n > 0;
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Errors of the device are final: the process ends. Results of earlier steps that are
 * still in the link segment are valid; nothing of this step is sent. */
__attribute__((noreturn)) static void
eng_lost_in(const struct engine *e, const char *what, int rc)
{
    log_error("engine: device error in %s: %s: %s", what, strerror(-rc), run_error(e->run));
    pan_exit(EX_SOFTWARE, "device error in %s: %s: %s", what, strerror(-rc),
        run_error(e->run));
}

static void
eng_lost(const struct engine *e, const struct bat_rec *rec, int rc)
{
    char what[96];

    (void)snprintf(what, sizeof(what), "step %llu (%d rows, %d tokens)",
        (unsigned long long)rec->epoch, rec->n_row, rec->n_tok);
    eng_lost_in(e, what, rc);
}

static struct bat_rec *
eng_rec(const struct engine *e, uint64_t epoch)
{
    return &e->run->rec[epoch % (uint64_t)e->run->n_rec];
}

static struct bat_rec *
eng_oldest(const struct engine *e)
{
    return eng_rec(e, e->epoch - (uint64_t)e->n_flight + 1);
}

/* The device's clock runs at its own rate and drifts from the host's over hours. A skew
 * below this is ignored. */
#define ENG_SKEW_NS (500 * CLK_US)
/* The estimate of the skew follows larger values by this share of the difference. */
#define ENG_SKEW 64

/* What to add to the device's times to get the host's, as far as it can be measured: the
 * recent minimum of now_ns - end_ns. */
static int64_t
eng_skew(struct engine *e, uint64_t end_ns, uint64_t now_ns)
{
    int64_t d = (int64_t)(now_ns - end_ns);

    if (e->t_end_ns == 0 || d < e->skew_ns)
        e->skew_ns = d;
    else
        e->skew_ns += (d - e->skew_ns) / ENG_SKEW;
    return e->skew_ns < 0 || e->skew_ns > (int64_t)ENG_SKEW_NS ? e->skew_ns : 0;
}

static void
eng_looked_ahead(struct engine *e, const struct bat_rec *rec, uint64_t begin_ns,
    uint64_t end_ns)
{
    uint64_t skew = (uint64_t)eng_skew(e, end_ns, rec->trace.t_collect_ns);

    lka_collected(&e->lka, begin_ns + skew, end_ns + skew,
        rec->held ? eng_gap(e, rec, begin_ns) : 0);
    e->n_queued -= rec->n_cmd;
    e->nothing_due = 0;
}

/* Collects the oldest launched step; waits for its results. */
static void
eng_collect(struct engine *e)
{
    struct bat_rec *rec = eng_oldest(e);
    uint64_t begin_ns = 0, end_ns = 0, copy_ns;
    int32_t n_copy = 0;
    int rc = run_collect(e->run, rec, &begin_ns, &end_ns);

    if (rc != 0)
        eng_lost(e, rec, rc);
    e->now_ns = rec->trace.t_collect_ns = clk_now_ns();
    e->n_flight--;
    eng_looked_ahead(e, rec, begin_ns, end_ns);
    /* tokens first: a preempted sequence must have them before it returns to the queue */
    eng_results(e, rec);
    sch_collected(e->sch, rec->epoch);
    if (e->profile.on != NULL)
        prf_collected(e->profile.on, rec, begin_ns, end_ns);
    if (rec->marks == NULL)
        cost_learn(&e->cost, &rec->cost, end_ns - begin_ns);
    eng_tell_target(e);
    copy_ns = run_copy_ns(e->run, &n_copy);
    if (copy_ns > 0)
        cost_learn_copy(&e->cost, n_copy, copy_ns);
    eng_count(e, rec, begin_ns, end_ns);
    rec->epoch = 0;
#ifdef FDD_DEVELOPER
    /* exposes a result that is read twice or was never written */
    memset(rec->results, 0x5a, (size_t)rec->n_out * sizeof(*rec->results));
#endif
}

/* Collects all finished steps. Returns how many. */
static int
eng_collect_done(struct engine *e)
{
    int n = 0;

    while (e->n_flight > 0) {
        struct bat_rec *rec = eng_oldest(e);
        int rc = run_done(e->run, rec);

        if (rc < 0)
            eng_lost(e, rec, rc);
        if (rc == 0)
            break;
        eng_collect(e);
        n++;
    }
    return n;
}

/* Tells the gate what the engine does: a profile or a capture may hold it up for long. */
static void
eng_activity(struct engine *e, enum lnk_activity act)
{
    if (e->cfg.beat != NULL)
        __atomic_store_n(&e->cfg.beat->activity, (uint32_t)act, __ATOMIC_RELAXED);
}

/* Publishes, for the gate's hang check, how long the launched steps may take. */
static void
eng_expect(struct engine *e, struct bat_rec *rec)
{
    uint64_t most;

    rec->expect_ns = most = cost_expect(&e->cost, &rec->cost);
    for (uint64_t i = 0; i < (uint64_t)e->n_flight; i++) {
        uint64_t ns = eng_rec(e, e->epoch - i)->expect_ns;

        most = ns > most ? ns : most;
    }
    if (e->cfg.beat == NULL)
        return;
    __atomic_store_n(&e->cfg.beat->step_expect_ns, most, __ATOMIC_RELAXED);
    __atomic_store_n(&e->cfg.beat->step_began_ns, rec->t_launch_ns, __ATOMIC_RELAXED);
}

/* When the device had enough commands of the step to begin it; the rest is queued while
 * it runs. */
#define ENG_FIRST 32
static uint64_t
eng_first_queued(const struct bat_rec *rec)
{
    uint64_t took = rec->trace.t_queued_ns - rec->t_launch_ns;

    if (rec->n_cmd > ENG_FIRST)
        took = took * ENG_FIRST / (uint64_t)rec->n_cmd;
    return rec->t_launch_ns + took;
}

/* Injects the faults that a test requested. */
static int
eng_faults(struct engine *e)
{
    int32_t fail = __atomic_load_n(&e->fail, __ATOMIC_RELAXED);
    int32_t stall = __atomic_load_n(&e->stall, __ATOMIC_RELAXED);

    if (stall > 0)
        run_stall(e->run, stall - 1);
    return fail > 0 ? run_fail(e->run, fail - 1) : 0;
}

static void
eng_launch(struct engine *e)
{
    struct bat_rec *rec = eng_rec(e, e->step.epoch);
    uint64_t n_graph = e->run->n_graph, predict_ns;
    int32_t n_copy = e->kv->n_copy, n_dup = e->kv->n_dup;
    int rc;

    ASSERT(rec->epoch == 0 && e->step.epoch == e->epoch + 1);
    bat_fill(e->bat, &e->step, e->kv, rec);
    rec->t_work_ns = e->t_work_ns;
    rec->marks = e->profile.on != NULL ? prf_take(e->profile.on, rec) : NULL;
    rec->t_launch_ns = clk_now_ns();
    eng_expect(e, rec);
    predict_ns = e->sch->cfg.cost != NULL ? cost_predict(e->sch->cfg.cost, &rec->cost) : 0;
    rec->mark = rec->marks == NULL && run_can_mark(e->run, rec->T_pad) &&
        lka_wants_mark(&e->lka, predict_ns);
    rec->held = e->held;
    e->held = 0;
    rc = run_copies(e->run, e->kv->copy, e->kv->n_copy);
    if (rc == 0)
        rc = run_dups(e->run, e->kv->dup, e->kv->n_dup);
    kv_copied(e->kv);
    if (rc == 0)
        rc = eng_faults(e);
    if (rc == 0)
        rc = run_launch(e->run, rec);
    if (rc != 0)
        eng_lost(e, rec, rc);
    e->epoch = rec->epoch;
    e->n_flight++;
    eng_trace_launch(e, rec, n_copy, e->run->n_graph > n_graph);
    rec->n_cmd = run_n_cmd(e->run, rec) + n_dup;
    e->n_queued += rec->n_cmd;
    lka_launched(&e->lka, rec->trace.t_pick_ns, eng_first_queued(rec), predict_ns);
    if (rec->mark)
        lka_will_mark(&e->lka);
    cnt_add(&e->cfg.cnt->cached_tokens, (uint64_t)e->step.n_cached);
    if (LOG_DBG(sched))
        log_line(LOG_LV_TRACE,
            "sched: step %llu rows %d tokens %d padded %d preempted %d "
            "waiting %d free %d",
            (unsigned long long)e->step.epoch, e->step.n_row, e->step.n_tok, rec->T_pad,
            e->step.n_preempted, e->sch->waiting.n, e->kv->n_free);
    if (e->cfg.depth == 0)
        eng_collect(e);
}

/* Is there a free record, and room for the results of every launched step? */
static int
eng_may_launch(struct engine *e)
{
    return e->n_flight <= e->cfg.depth && sch_busy(e->sch) && !e->nothing_due &&
        (e->n_flight < 2 || e->n_queued <= e->max_queued) &&
        (e->profile.on == NULL || !prf_has_device(e->profile.on)) &&
        fdr_load_acquire(&e->change.want) == e->change.have &&
        que_has_room(e->cfg.q_out, e->room * (uint32_t)(e->n_flight + 1));
}

/* When to pick the next step; UINT64_MAX: not before something changes. */
static uint64_t
eng_due(struct engine *e, uint64_t now_ns)
{
    const struct bat_rec *rec = eng_oldest(e);

    if (e->n_flight > 0 && rec->mark)
        lka_look(&e->lka, now_ns, run_marked(e->run, rec));
    return eng_may_launch(e) ? lka_due(&e->lka, now_ns) : UINT64_MAX;
}

/* Picks and launches a step if one is due. Returns 1 if it did. */
static int
eng_step(struct engine *e, uint64_t sched_ns)
{
    uint64_t now = clk_now_ns(), due = eng_due(e, now);

    if (due > now) {
        e->held |= due != UINT64_MAX;
        return 0;
    }
    e->t_pick_ns = now;
    if (sch_pick(e->sch, sched_ns, &e->step) == 0) {
        e->nothing_due = e->n_flight > 0;
        return 0;
    }
    eng_launch(e);
    return 1;
}

/* Begins, continues or gives back a profile. It begins only while the device moves: the
 * gate tolerates a long step of a profile. Returns nonzero if there was work. */
static int
eng_profiling(struct engine *e, int moves)
{
    struct eng_profile *p = &e->profile;
    int work = 0, rc;

    if (p->on == NULL) {
        if (!moves || fdr_load_acquire(&p->want) == p->have)
            return 0;
        p->on = p->ask;
        eng_activity(e, LNK_ACT_PROFILE);
        prf_begin(p->on, sch_busy(e->sch) ? e->n_live : 0);
    }
    if (e->n_flight == 0) {
        struct prf_idle idle = { .bat = e->bat, .kv = e->kv, .busy = sch_busy(e->sch) };

        rc = prf_poll(p->on, &idle, &work);
        if (rc != 0)
            eng_lost_in(e, "a measured step", rc);
    }
    if (!prf_over(p->on))
        return work;
    p->on = NULL;
    eng_activity(e, LNK_ACT_SERVE);
    fdr_store_release(&p->have, fdr_load_relaxed(&p->want));
    return 1;
}

/* Applies a requested change of how steps are launched: with graphs or without, and for
 * which sizes. No step may be in flight. A graph is captured when a step first needs it,
 * so that running requests do not wait until all are captured. */
static void
eng_apply(struct engine *e)
{
    int rc;

    eng_activity(e, LNK_ACT_CAPTURE);
    rc = run_recapture(e->run, e->change.use_graph, &e->change.cap);
    if (rc != 0)
        eng_lost_in(e, "recording graphs", rc);
    else
        run_check_sizes(e->run);
    eng_activity(e, e->profile.on != NULL ? LNK_ACT_PROFILE : LNK_ACT_SERVE);
    e->bat->cap = e->run->use_graph ? &e->run->cap : NULL;
    log_info("engine: graphs %s, %d sizes up to %d", e->run->use_graph ? "on" : "off",
        e->run->cap.n, e->run->cap.size[e->run->cap.n - 1]);
    fdr_store_release(&e->change.have, fdr_load_relaxed(&e->change.want));
}

static void
eng_snapshot(struct engine *e)
{
    const struct sch_list *lists[] = { &e->sch->running, &e->sch->leaving,
        &e->sch->waiting };
    int32_t n = 0, total = 0;

    for (size_t k = 0; k < 3; k++) {
        for (const struct seq *s = lists[k]->head; s != NULL; s = s->next, total++) {
            if (n >= ENG_SNAP_ROWS)
                continue;
            e->snap.rows[n++] = (struct eng_snap_row){ .id = s->req->id,
                .sample = s->sample,
                .state = s->state,
                .n_prompt = s->req->n_prompt,
                .n_tok = s->n_tok,
                .cached_len = s->cached_len,
                .max_len = s->max_len,
                .n_block = s->slot >= 0 ? kv_held(e->kv, s->slot) : 0,
                .priority = s->req->p.priority,
                .n_preempted = s->n_preempted };
        }
    }
    e->snap.n = n;
    e->snap.n_total = total;
    /* pairs with eng_snap_ready() */
    fdr_store_release(&e->snap.have, fdr_load_relaxed(&e->snap.want));
}

int
eng_poll(struct engine *e, uint64_t now_ns)
{
    uint64_t t0 = clk_now_ns();
    int work, moves;

    e->now_ns = t0;
    work = eng_commands(e, e->cfg.q_in) | eng_commands(e, e->cfg.q_stop);
    if (sch_busy(e->sch) && !e->busy) {
        e->t_work_ns = t0;
        e->held = 0;
    }
    e->busy = sch_busy(e->sch);

    if (fdr_load_acquire(&e->snap.want) != e->snap.have)
        eng_snapshot(e);
    moves = e->n_flight == 0;
    if (eng_collect_done(e) > 0) {
        /* tokens do not wait for the next step's launch */
        que_publish(e->cfg.q_out);
        moves = work = 1;
    }
    /* a command alone does not show that the device works */
    if (moves && e->cfg.beat != NULL)
        __atomic_fetch_add(&e->cfg.beat->beats, 1, __ATOMIC_RELAXED);
    work |= eng_profiling(e, moves);
    if (fdr_load_acquire(&e->change.want) != e->change.have && e->n_flight == 0 &&
        (e->profile.on == NULL || !prf_has_device(e->profile.on)))
        eng_apply(e);
    work |= eng_step(e, now_ns);
    /* no step is launched: free the blocks that kv_drop() deferred */
    if (e->kv->n_pending > 0 && e->n_flight == 0 && !sch_busy(e->sch)) {
        (void)kv_reclaim(e->kv, e->cfg.n_block);
        work = 1;
    }
    if (LOG_DBG(selfcheck))
        eng_check(e);
    work |= eng_send_ended(e) > 0;
    que_publish(e->cfg.q_out);
    if (work) {
        eng_gauges(e);
        cnt_add(&e->cfg.cnt->host_ns, clk_now_ns() - t0);
    }
    return work;
}

/* Longest time between two looks at the command queues during a wait. It is shorter when
 * there is no work, since a command that brings work must not wait. */
#define ENG_LOOK_NS      (CLK_MS)
#define ENG_LOOK_IDLE_NS (100 * CLK_US)

/* Is there a command that eng_poll() handles while steps are running? */
static int
eng_asked(struct engine *e)
{
    return que_recheck(e->cfg.q_in) > 0 || que_recheck(e->cfg.q_stop) > 0 ||
        fdr_load_acquire(&e->snap.want) != e->snap.have;
}

/* Waits until the launched step is done, the next is due or a command came. */
static int
eng_wait_step(struct engine *e, const struct bat_rec *rec)
{
    uint64_t look = sch_busy(e->sch) ? ENG_LOOK_NS : ENG_LOOK_IDLE_NS, look_at;
    int rc = 0;

    while (rc == 0 && !eng_asked(e)) {
        uint64_t now = clk_now_ns(), due = eng_due(e, now), until = now + look;

        if (due <= now)
            break;
        look_at = lka_look_at(&e->lka, now);
        until = look_at < until ? look_at : until;
        rc = run_wait_until(e->run, rec, lka_end(&e->lka), due < until ? due : until);
    }
    return rc < 0 ? rc : 0;
}

int
eng_wait(struct engine *e)
{
    struct bat_rec *rec;
    int rc;

    if (e->n_flight == 0) {
        if (e->profile.on == NULL || !prf_has_device(e->profile.on))
            return 0;
        rc = prf_wait(e->profile.on);
        if (rc != 0)
            eng_lost_in(e, "a measured step", rc);
        return 1;
    }
    rec = eng_oldest(e);
    rc = eng_wait_step(e, rec);
    if (rc != 0)
        eng_lost(e, rec, rc);
    return 1;
}

int
eng_pending(struct engine *e)
{
    return eng_asked(e) || fdr_load_acquire(&e->change.want) != e->change.have ||
        (e->profile.on != NULL ? prf_over(e->profile.on)
                               : fdr_load_acquire(&e->profile.want) != e->profile.have);
}

int
eng_profile(struct engine *e, struct prf *p)
{
    if (fdr_load_acquire(&e->profile.have) != fdr_load_relaxed(&e->profile.want))
        return -EBUSY;
    e->profile.ask = p;
    fdr_publish(&e->profile.want, fdr_load_relaxed(&e->profile.want) + 1);
    return 0;
}

void
eng_profile_stop(struct engine *e, struct prf *p)
{
    uint32_t act = LNK_ACT_PROFILE;

    prf_stop(p);
    /* the engine may be waiting for a step */
    if (!p->is_synthetic && e->cfg.beat != NULL)
        (void)__atomic_compare_exchange_n(&e->cfg.beat->activity, &act, LNK_ACT_SERVE, 0,
            __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

int
eng_profile_ready(const struct engine *e)
{
    return fdr_load_acquire(&e->profile.have) == fdr_load_relaxed(&e->profile.want);
}

int
eng_set_graph(struct engine *e, int use_graph, const struct cap *cap)
{
    if (fdr_load_acquire(&e->change.have) != fdr_load_relaxed(&e->change.want))
        return -EBUSY;
    e->change.use_graph = use_graph;
    e->change.cap = *cap;
    fdr_publish(&e->change.want, fdr_load_relaxed(&e->change.want) + 1);
    return 0;
}

void
eng_fail(struct engine *e, int32_t rank)
{
    __atomic_store_n(&e->fail, rank + 1, __ATOMIC_RELAXED);
}

void
eng_stall(struct engine *e, int32_t rank)
{
    __atomic_store_n(&e->stall, rank + 1, __ATOMIC_RELAXED);
}

int
eng_stalled(const struct engine *e)
{
    return sch_busy(e->sch) || e->sch->ended_head != NULL;
}

void
eng_snap_ask(struct engine *e)
{
    fdr_publish(&e->snap.want, fdr_load_relaxed(&e->snap.want) + 1);
}

int
eng_snap_ready(const struct engine *e)
{
    return fdr_load_acquire(&e->snap.have) == fdr_load_relaxed(&e->snap.want);
}

/* Blocks that a launched step may touch must not be available. */
static void
eng_check_flight(const struct engine *e, const struct bat_rec *rec)
{
    const int32_t *at = (const int32_t *)(rec->plan + rec->layout.slot_map);

    ASSERT(rec->epoch > e->kv->collected && rec->epoch <= e->epoch);
    for (int32_t g = 0; g < e->kv->n_group; g++, at += rec->T_pad)
        for (int32_t t = 0; t < rec->n_tok; t++)
            ASSERT(!kv_is_free(e->kv, at[t] / e->cfg.block_size));
}

void
eng_check(const struct engine *e)
{
    int32_t n = 0;

    OBJ_CHECK(e, ENG_MAGIC);
    sch_check(e->sch);
    ASSERT(e->n_flight >= 0 && e->n_flight <= e->cfg.depth + 1);
    for (uint64_t i = 0; i < (uint64_t)e->n_flight; i++)
        eng_check_flight(e, eng_rec(e, e->epoch - i));
    for (int32_t i = 0; i < e->cfg.max_reqs; i++) {
        if (e->live[i].req == NULL)
            continue;
        n++;
        ASSERT(e->live[i].req->idx == (uint32_t)i);
        ASSERT(e->live[i].req->serial == e->live[i].serial);
    }
    ASSERT(n == e->n_live);
}
