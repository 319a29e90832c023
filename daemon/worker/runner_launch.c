/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's work for its own device: launching a step, copying blocks, capturing a graph.
 * Called by the rank's launch thread, or by the engine thread if there is one rank.
 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"

int
run_can_mark(const struct runner *run, int32_t T_pad)
{
    return T_pad > run->k->gemm_rows;
}

/* Assumed host time of one launch and its event until a measured step has been
 * launched. */
#define RUN_MARK_NS 10000u

int32_t
run_max_marks(const struct runner *run)
{
    return run->prog->n_op * run->kv_copies + RUN_LINE__N +
        4 * ((run->dims.O + run->R - 1) / run->R);
}

/* ---- graphs ------------------------------------------------------------------------------ */

/* Index of that size in the capture list. */
static int32_t
run_pad_at(const struct run_dev *dev, int32_t T_pad)
{
    int32_t lo = 0, hi = dev->n_pad - 1;

    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;

        if (dev->pad[mid].T < T_pad)
            lo = mid + 1;
        else
            hi = mid;
    }
    ASSERT(dev->pad[lo].T == T_pad);
    return lo;
}

struct run_pad *
run_pad_of(struct run_dev *dev, int32_t T_pad, int32_t n_out)
{
    int32_t i = run_pad_at(dev, T_pad);
    const struct run_pad *few = &dev->few[i];
    int32_t O = dev->run->kv_copies > 1 ? few->most : few->O;

    return few->T > 0 && n_out <= O ? &dev->few[i] : &dev->pad[i];
}

struct run_pad *
run_divided_of(const struct run_dev *dev, int32_t T_pad)
{
    return &dev->divided[run_pad_at(dev, T_pad)];
}

int32_t
run_most_outs(const struct runner *run, const struct bat_rec *rec)
{
    int32_t most = 0;

    for (int32_t p = 0; p < run->n_copy; p++)
        most = rec->copy[p].n_out > most ? rec->copy[p].n_out : most;
    return most;
}

int
run_split_fits(const struct runner *run, const struct bat_rec *rec)
{
    int fits = rec->copy[0].n_out <= run_divided_of(run_root(run), rec->copy_pad)->O;

    for (int32_t p = 1; p < run->n_copy; p++)
        fits &= rec->copy[p].n_out == 0;
    return fits;
}

static int
run_record(struct run_dev *dev, struct run_pad *pad)
{
    int rc, rc2;

    rc = dev->run->k->graph_begin(dev->stream);
    if (rc == -ENOTSUP) {
        run_set_graph(dev->run, 0);
        return 0;
    }
    if (rc != 0)
        return rc;
    dev->marking = run_can_mark(dev->run, pad->T);
    rc = run_program(dev, pad);
    dev->marking = 0;
    rc2 = dev->run->k->graph_end(dev->stream, &pad->graph);
    if (rc != 0 && rc2 == 0) { /* the graph lacks some launches of the step */
        dev->run->k->graph_free(pad->graph);
        pad->graph = NULL;
    }
    rc = rc != 0 ? rc : rc2;
    if (rc == 0)
        log_debug("runner: recorded a graph of %d tokens, %d outputs%s", pad->T, pad->O,
            pad->split ? ", divided" : "");
    if (rc != -ENOMEM || dev->mem.kv == 0)
        return rc;
    /* the KV pool has the memory and requests are running: go on without graphs */
    log_error("runner: no memory to record a graph of %d tokens; steps are launched "
              "operation by operation",
        pad->T);
    run_set_graph(dev->run, 0);
    return 0;
}

/* ---- blocks ------------------------------------------------------------------------------ */

int
run_copies_begin(struct run_dev *dev)
{
    return dev->run->k->event_record(dev->ev_copy[0], dev->copy_stream);
}

int
run_copy_one(struct run_dev *dev, const struct kv_copy *c)
{
    size_t bytes = (size_t)dev->kv[0].block_bytes;
    unsigned char *on_dev = dev->d_kv + (size_t)c->dev * bytes;
    unsigned char *on_host = dev->h_kv + (size_t)c->host * bytes;

    ASSERT(c->host >= 0 && c->host < dev->run->n_host);
    return c->to_host ? dev->run->k->copy(dev->copy_stream, on_host, on_dev, bytes)
                      : dev->run->k->copy(dev->copy_stream, on_dev, on_host, bytes);
}

int
run_copies_end(struct run_dev *dev, int32_t n)
{
    int rc = dev->run->k->event_record(dev->ev_copy[1], dev->copy_stream);

    dev->n_copy = n;
    return rc != 0 ? rc : dev->run->k->stream_wait(dev->stream, dev->ev_copy[1]);
}

int
run_dup_one(struct run_dev *dev, const struct kv_dup *d)
{
    size_t bytes = (size_t)dev->kv[0].block_bytes;

    return dev->run->k->copy(dev->stream, dev->d_kv + (size_t)d->to * bytes,
        dev->d_kv + (size_t)d->from * bytes, bytes);
}

int
run_clear_one(struct run_dev *dev, int32_t block)
{
    size_t bytes = (size_t)dev->kv[0].block_bytes;

    return dev->run->k->fill(dev->stream, dev->d_kv + (size_t)block * bytes, 0, bytes);
}

/* ---- steps -------------------------------------------------------------------------------- */

static int
run_entry(struct run_dev *dev, const struct bat_entry *e)
{
    size_t V = (size_t)dev->run->prog->cfg.vocab;
    size_t counts = (size_t)e->at * V, rules = (size_t)e->at * fdk_rules_words((int32_t)V);
    int rc = 0;

    if (e->counts)
        rc = dev->run->k->copy(dev->stream, dev->d_counts + counts,
            dev->run->h_counts + counts, V * sizeof(uint16_t));
    if (rc == 0 && e->n_rules > 0)
        rc = dev->run->k->copy(dev->stream, dev->d_rules + rules,
            dev->run->h_rules + rules, (size_t)e->n_rules * sizeof(int32_t));
    return rc;
}

/* The share of a divided step that the device's copy computes; NULL: it is not
 * divided. */
static const struct bat_copy *
run_copy_of(const struct run_dev *dev, const struct bat_rec *rec)
{
    return rec->n_split > 0 ? &rec->copy[run_copy(dev)] : NULL;
}

static const struct bat_updates *
run_upd(const struct run_dev *dev, const struct bat_rec *rec)
{
    const struct bat_copy *c = run_copy_of(dev, rec);

    return c != NULL ? &c->upd : &rec->upd;
}

static int
run_upload(struct run_dev *dev, const struct bat_rec *rec)
{
    const struct bat_copy *c = run_copy_of(dev, rec);
    int rc = dev->run->k->copy(dev->stream, dev->d_plan, c != NULL ? c->plan : rec->plan,
        run_upd(dev, rec)->bytes);

    for (int32_t p = 0; p < dev->run->n_copy && c != NULL && rc == 0; p++)
        if (dev->run->kv_copies > 1 && p != run_copy(dev))
            rc = dev->run->k->copy(dev->stream, run_plan_at(dev, p), rec->copy[p].plan,
                rec->copy[p].layout.bytes);
    return rc;
}

static int
run_updates(struct run_dev *dev, const struct bat_rec *rec)
{
    const struct bat_updates *u = run_upd(dev, rec);
    const int32_t *counts = (const int32_t *)(dev->d_plan + rec->layout.counts);
    struct fdk_row_update_args ua = { .state = dev->d_state,
        .rows = (const struct fdk_row *)(dev->d_plan + u->rows),
        .idx = (const int32_t *)(dev->d_plan + u->idx),
        .n = counts + BAT_N_UPDATE,
        .n_max = rec->n_update,
        .table = dev->d_table,
        .delta = (const struct fdk_delta *)(dev->d_plan + u->delta),
        .n_delta = counts + BAT_N_DELTA,
        .n_delta_max = rec->n_delta };
    int rc = 0;

    if (rec->n_update > 0 || rec->n_delta > 0)
        rc = dev->run->k->row_update(&ua, dev->stream);
    for (int32_t i = 0; i < rec->n_table && rc == 0; i++) {
        const struct bat_table *t = &rec->table[i];

        rc = dev->run->k->copy(dev->stream, dev->d_table + t->at, rec->h_table + t->at,
            (size_t)t->n * sizeof(int32_t));
    }
    for (int32_t i = 0; i < rec->n_entry && rc == 0; i++)
        rc = run_entry(dev, &rec->entry[i]);
    return rc;
}

/* The launch bounds of a step: those of its captured size, which a measured step uses
 * too, or bounds of its own in run_dev.eager. */
static struct run_pad *
run_pad_for(struct run_dev *dev, const struct bat_rec *rec)
{
    struct run_pad *pad = &dev->eager[rec - dev->run->rec];
    const struct bat_copy *c = run_copy_of(dev, rec);

    if (c != NULL && rec->graph)
        return run_divided_of(dev, rec->copy_pad);
    if (c != NULL) {
        run_eager_split(dev, (size_t)(rec - dev->run->rec), rec->copy_pad, c->n_out,
            run_most_outs(dev->run, rec));
        return pad;
    }
    if (rec->graph)
        return run_pad_of(dev, rec->T_pad, rec->n_out);
    run_pad_init(dev, rec->T_pad, rec->n_out, pad);
    return pad;
}

int
run_replays(const struct runner *run, const struct bat_rec *rec)
{
    return rec->graph && run_uses_graph(run) && rec->marks == NULL;
}

/* Does the step run in halves? The answer is the same on all ranks, whichever graphs each
 * of them has captured. */
static int
run_in_halves(const struct runner *run, const struct bat_rec *rec, const struct run_pad *pad)
{
    return run->halves_least > 0 && pad->T >= run->halves_least && !rec->graph &&
        rec->marks == NULL;
}

/* Launch the program without a graph. A measured step has no mark; it has an event after
 * each operation. */
static int
run_eagerly(struct run_dev *dev, const struct bat_rec *rec, const struct run_pad *pad)
{
    int rc;

    dev->marking = rec->mark && rec->marks == NULL;
    dev->halves = run_in_halves(dev->run, rec, pad);
    rc = run_program(dev, pad);
    if (dev->halves)
        (void)__atomic_fetch_add(&dev->n_halves, 1, __ATOMIC_RELAXED);
    dev->marking = dev->halves = 0;
    return rc;
}

static int
run_steps_program(struct run_dev *dev, const struct bat_rec *rec, struct run_pad *pad)
{
    int rc = 0;

    if (!run_replays(dev->run, rec))
        return run_eagerly(dev, rec, pad);
    if (pad->graph == NULL)
        rc = run_record(dev, pad);
    if (rc != 0)
        return rc;
    if (pad->graph == NULL)
        return run_eagerly(dev, rec, pad);
    return dev->run->k->graph_launch(pad->graph, dev->stream);
}

/* Delay the device until the whole step is launched, so that its operations run without
 * gaps even if the device is faster than the launching host. */
static int
run_hold(struct run_dev *dev)
{
    uint64_t ns = dev->run->t_marked_ns > 0
        ? dev->run->t_marked_ns + dev->run->t_marked_ns / 4
        : (uint64_t)run_max_marks(dev->run) * RUN_MARK_NS;

    return dev->run->k->on_host ? 0 : dev->run->k->stream_delay(dev->stream, ns);
}

/* Copy rank 0's results to the host. */
static int
run_results(struct run_dev *dev, const struct bat_rec *rec)
{
    int rc = 0;

    if (dev != run_root(dev->run))
        return 0;
    if (rec->n_out > 0)
        rc = dev->run->k->copy(dev->stream, rec->results,
            rec->n_split > 0 ? dev->d_all : dev->d_results,
            (size_t)rec->n_out * sizeof(struct fdk_result));
    if (rc == 0 && rec->chosen)
        rc = dev->run->k->copy(dev->stream, rec->h_chosen, dev->d_chosen,
            (size_t)run_chosen_bytes(dev->run->n_penalty));
    return rc;
}

static int
run_launch_parts(struct run_dev *dev, struct bat_rec *rec, struct run_pad *pad)
{
    const struct runner *run = dev->run;
    int32_t line = run->prog->n_op;
    size_t at = (size_t)(rec - run->rec);
    uint64_t after_ns = rec->mark ? run->delay_ns / 4 : 0; /* delay after the mark */
    int rc = dev->run->k->event_record(dev->ev_begin[at], dev->stream);

    if (rc == 0 && run->delay_ns > 0) {
        rc = dev->run->k->stream_delay(dev->stream, run->delay_ns - after_ns);
        if (rc == 0)
            rc = run_mark(dev, line + RUN_LINE_DELAY);
    }
    if (rc == 0)
        rc = run_upload(dev, rec);
    if (rc == 0)
        rc = run_mark(dev, line + RUN_LINE_UPLOAD);
    if (rc == 0)
        rc = run_updates(dev, rec);
    if (rc == 0)
        rc = run_mark(dev, line + RUN_LINE_UPDATES);
    if (rc == 0)
        rc = run_steps_program(dev, rec, pad);
    if (rc == 0 && after_ns > 0)
        rc = dev->run->k->stream_delay(dev->stream, after_ns);
    if (rc == 0)
        rc = run_results(dev, rec);
    if (rc == 0)
        rc = run_mark(dev, line + RUN_LINE_RESULTS);
    return rc != 0 ? rc : dev->run->k->event_record(dev->ev_end[at], dev->stream);
}

/* A measured step is launched operation by operation on all ranks, so that all run the
 * same collectives. Rank 0 begins once its whole step is launched; the others wait for it
 * in the first collective. */
int
run_launch_rank(struct run_dev *dev, struct bat_rec *rec)
{
    struct run_pad *pad = run_pad_for(dev, rec);
    int root = dev == run_root(dev->run), rc = 0;
    uint64_t t0, ns;

    dev->single = rec->marks != NULL;
    if (rec->marks == NULL)
        return run_launch_parts(dev, rec, pad);
    dev->marks = rec->marks + run_rank(dev);
    dev->marks->n = 0;
    if (root)
        rc = run_hold(dev);
    t0 = clk_now_ns();
    if (rc == 0)
        rc = run_launch_parts(dev, rec, pad);
    /* keep the shortest: with a full queue the host waits for the device that it
     * delays */
    ns = clk_now_ns() - t0;
    if (root && (dev->run->t_marked_ns == 0 || ns < dev->run->t_marked_ns))
        dev->run->t_marked_ns = ns;
    dev->marks = NULL;
    return rc;
}

/* ---- phases of all ranks ------------------------------------------------------------------ */

/* Capture the graphs of size i. Of few and divided only the largest size is launched
 * before, since the smaller sizes use the same kernels. */
int
run_record_size(struct run_dev *dev, int32_t i)
{
    struct run_pad *few = &dev->few[i], *divided = &dev->divided[i];
    int rc = 0;

    if (dev->pad[i].graph == NULL) {
        rc = run_program(dev, &dev->pad[i]);
        if (rc == 0)
            rc = run_record(dev, &dev->pad[i]);
    }
    if (rc == 0 && dev->run->n_copy > 1 && divided->graph == NULL &&
        run_uses_graph(dev->run)) {
        if (i == dev->n_pad - 1)
            rc = run_program(dev, divided);
        if (rc == 0)
            rc = run_record(dev, divided);
    }
    if (rc != 0 || few->T == 0 || few->graph != NULL || !run_uses_graph(dev->run))
        return rc;
    if (i == dev->n_pad - 1)
        rc = run_program(dev, few);
    /* a copy without outputs launches it because copy 0 does, but needs its graph only if
     * copies share tokens */
    return rc != 0 || (few->O == 0 && dev->run->kv_copies == 1) ? rc : run_record(dev, few);
}

int
run_warm_choose(struct run_dev *dev, int32_t arg)
{
    int rc =
        dev->run->k->fill(dev->stream, dev->d_plan, 0, bat_plan_bytes(&dev->run->dims));

    for (int32_t p = 0; p < dev->run->n_copy && dev->run->kv_copies > 1 && rc == 0; p++)
        rc = dev->run->k->fill(dev->stream, run_plan_at(dev, p), 0,
            bat_plan_bytes(&dev->run->dims));

    (void)arg;
    if (rc == 0)
        rc = run_choose(dev);
    return rc != 0 ? rc : dev->run->k->stream_sync(dev->stream);
}

/* Launch the largest step once: the first launch of an operation may load its code. */
int
run_warm_full(struct run_dev *dev, int32_t arg)
{
    int rc = run_program(dev, &dev->full);

    (void)arg;
    dev->halves = dev->run->halves_least > 0;
    if (rc == 0 && dev->halves)
        rc = run_program(dev, &dev->full);
    dev->halves = 0;
    if (rc == 0 && dev->run->n_copy > 1)
        rc = run_program(dev, &dev->full_split);
    if (rc == 0)
        rc = dev->run->k->stream_sync(dev->stream);
    dev->mem_before = run_mem_free(dev);
    return rc;
}

int
run_warm_end(struct run_dev *dev, int32_t arg)
{
    int rc = dev->run->k->stream_sync(dev->stream);
    uint64_t now = run_mem_free(dev);

    (void)arg;
    if (dev->mem_before > now)
        dev->mem.graphs += dev->mem_before - now;
    return rc;
}

int
run_new_pads(struct run_dev *dev, int32_t arg)
{
    (void)arg;
    run_pads(dev, &dev->run->cap);
    return 0;
}

int
run_sync_dev(struct run_dev *dev, int32_t arg)
{
    (void)arg;
    return dev->run->k->stream_sync(dev->stream);
}
