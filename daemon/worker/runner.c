/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

/* ---- opening ---------------------------------------------------------------------- */

static int
run_backend(const char *name, const struct fdk_ops **ret, char *err, size_t err_bytes)
{
    static const struct fdk_ops *const all[] = { &fdk_ops_cpu, &fdk_ops_cuda,
        &fdk_ops_null };
    char why[256] = "";

    if (strcmp(name, "auto") == 0) {
        *ret = fdk_ops_cuda.available(why, sizeof(why)) > 0 ? &fdk_ops_cuda : &fdk_ops_cpu;
        if (*ret == &fdk_ops_cpu)
            log_info("runner: device.backend = auto takes the cpu: %s", why);
        return 0;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(name, all[i]->name) != 0)
            continue;
        if (all[i]->available(why, sizeof(why)) <= 0) {
            (void)snprintf(err, err_bytes, "device.backend = %s: %s", name,
                why[0] != '\0' ? why : "no device; set device.backend = cpu");
            return -ENODEV;
        }
        *ret = all[i];
        return 0;
    }
    (void)snprintf(err, err_bytes, "device.backend = %s is not a backend", name);
    return -ENOTSUP;
}

int
run_new(const struct run_open_args *a, struct runner **ret, char *err, size_t err_bytes)
{
    struct fdk_open_args oa = { .n_device = 1,
        .device = a->device,
        .n_thread = a->n_thread,
        .max_token = a->max_token,
        .spin_us = a->spin_us,
        .exec = a->exec,
        .deterministic = a->deterministic,
        .cache_dir = a->cache_dir };
    const struct fdk_ops *k;
    struct runner *run;
    int rc = run_backend(a->backend, &k, err, err_bytes);

    if (rc != 0)
        return rc;
    OBJ_ALLOC(run, RUN_MAGIC);
    if (run == NULL) {
        (void)snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    run->k = k;
    run->unfused = a->unfused;
    rc = k->open(&oa, &run->ctx, err, err_bytes);
    if (rc == 0) {
        rc = k->stream_new(run->ctx, 0, &run->stream);
        if (rc == 0)
            rc = k->stream_new(run->ctx, 0, &run->copy_stream);
        if (rc != 0)
            (void)snprintf(err, err_bytes, "%s: no stream: %s", k->name, strerror(-rc));
    }
    if (rc != 0) {
        (void)run_free(run);
        return rc == -ENOMEM ? rc : -ENODEV;
    }
    *ret = run;
    return 0;
}

const char *
run_error(const struct runner *run)
{
    const char *t = run->k->error_text(run->ctx, 0);

    return t != NULL ? t : "unknown";
}

struct runner *
run_free(struct runner *run)
{
    if (run == NULL)
        return NULL;
    OBJ_CHECK(run, RUN_MAGIC);
    if (run->stream != NULL)
        (void)run->k->stream_sync(run->stream);
    if (run->copy_stream != NULL)
        (void)run->k->stream_sync(run->copy_stream);
    if (run->ctx != NULL) {
        run_teardown(run);
        if (run->d_inv_freq != NULL)
            run->k->mem_free(run->ctx, 0, run->d_inv_freq);
        if (run->d_weights != NULL)
            run->k->mem_free(run->ctx, 0, run->d_weights);
        if (run->copy_stream != NULL)
            run->k->stream_free(run->copy_stream);
        if (run->stream != NULL)
            run->k->stream_free(run->stream);
        run->k->close(run->ctx);
    }
    OBJ_FREE(run, RUN_MAGIC);
    return NULL;
}

int
run_load(struct runner *run, struct mdl_program *prog, const struct wts_plan *wp,
    const struct wts_load_args *la, char *err, size_t err_bytes)
{
    size_t n = (size_t)(prog->rot / 2) * sizeof(float);
    int rc;

    OBJ_CHECK(run, RUN_MAGIC);
    run->prog = prog;
    run->wp = wp;
    if (wp != NULL) {
        run->mem.weights = wts_bytes(wp);
        rc = run_dev_alloc(run, "weights", run->mem.weights, &run->d_weights, err,
            err_bytes);
        if (rc == 0)
            rc = wts_load(wp, run->k, run->ctx, 0, run->d_weights, la, err, err_bytes);
        if (rc != 0)
            return rc;
    }
    rc = run_dev_alloc(run, "rope frequencies", n, &run->d_inv_freq, err, err_bytes);
    if (rc == 0 && n > 0)
        rc = run->k->copy(run->stream, run->d_inv_freq, prog->inv_freq, n);
    if (rc == 0)
        rc = run->k->stream_sync(run->stream);
    return rc;
}

/* ---- graphs ------------------------------------------------------------------------------ */

static struct run_pad *
run_pad_of(struct runner *run, int32_t T_pad, int32_t n_out)
{
    int32_t lo = 0, hi = run->n_pad - 1;

    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;

        if (run->pad[mid].T < T_pad)
            lo = mid + 1;
        else
            hi = mid;
    }
    ASSERT(run->pad[lo].T == T_pad);
    return run->few[lo].T > 0 && n_out <= run->few[lo].O ? &run->few[lo] : &run->pad[lo];
}

static int
run_record(struct runner *run, struct run_pad *pad)
{
    int rc, rc2;

    rc = run->k->graph_begin(run->stream);
    if (rc == -ENOTSUP) {
        run_set_graph(run, 0);
        return 0;
    }
    if (rc != 0)
        return rc;
    run->marking = run_can_mark(run, pad->T);
    rc = run_program(run, pad);
    run->marking = 0;
    rc2 = run->k->graph_end(run->stream, &pad->graph);
    if (rc != 0 && rc2 == 0) { /* a part of the step */
        run->k->graph_free(pad->graph);
        pad->graph = NULL;
    }
    rc = rc != 0 ? rc : rc2;
    if (rc == 0)
        log_debug("runner: recorded a graph of %d tokens, %d outputs", pad->T, pad->O);
    if (rc != -ENOMEM || run->mem.kv == 0)
        return rc;
    /* the KV pool has taken the memory, and requests run */
    log_error("runner: no memory to record a graph of %d tokens; steps are launched "
              "operation by operation",
        pad->T);
    run_set_graph(run, 0);
    return 0;
}

/* The largest of the sizes for few outputs is launched once: its kernels are those of
 * the others. */
static int
run_record_size(struct runner *run, int32_t i)
{
    struct run_pad *few = &run->few[i];
    int rc = 0;

    if (run->pad[i].graph == NULL) {
        rc = run_program(run, &run->pad[i]);
        if (rc == 0)
            rc = run_record(run, &run->pad[i]);
    }
    if (rc != 0 || few->T == 0 || few->graph != NULL || !run->use_graph)
        return rc;
    if (i == run->n_pad - 1)
        rc = run_program(run, few);
    return rc != 0 ? rc : run_record(run, few);
}

int
run_warm(struct runner *run, int record)
{
    uint64_t before;
    int rc = run->k->fill(run->stream, run->d_plan, 0, bat_plan_bytes(&run->dims));

    if (rc == 0)
        rc = run_choose(run);
    /* the first launch of an operation may load its code */
    if (rc == 0)
        rc = run_program(run, &run->full);
    if (rc == 0)
        rc = run->k->stream_sync(run->stream);
    before = run_mem_free(run);
    for (int32_t i = run->n_pad - 1; i >= 0 && record && run->use_graph && rc == 0; i--)
        rc = run_record_size(run, i);
    if (rc == 0)
        rc = run->k->stream_sync(run->stream);
    if (before > run_mem_free(run))
        run->mem.graphs += before - run_mem_free(run);
    return rc;
}

/* ---- block copies -------------------------------------------------------------------------- */

int
run_copies(struct runner *run, const struct kv_copy *copy, int32_t n)
{
    const struct fdk_ops *k = run->k;
    size_t bytes = (size_t)run->kv.block_bytes;
    int rc = n > 0 ? k->event_record(run->ev_copy[0], run->copy_stream) : 0;

    for (int32_t i = 0; i < n && rc == 0; i++) {
        unsigned char *dev = run->d_kv + (size_t)copy[i].dev * bytes;
        unsigned char *host = run->h_kv + (size_t)copy[i].host * bytes;

        ASSERT(copy[i].host >= 0 && copy[i].host < run->n_host);
        rc = copy[i].to_host ? k->copy(run->copy_stream, host, dev, bytes)
                             : k->copy(run->copy_stream, dev, host, bytes);
    }
    if (rc != 0 || n == 0)
        return rc;
    rc = k->event_record(run->ev_copy[1], run->copy_stream);
    run->n_copy = n;
    return rc != 0 ? rc : k->stream_wait(run->stream, run->ev_copy[1]);
}

int
run_dups(struct runner *run, const struct kv_dup *dup, int32_t n)
{
    size_t bytes = (size_t)run->kv.block_bytes;
    int rc = 0;

    for (int32_t i = 0; rc == 0 && i < n; i++)
        rc = run->k->copy(run->stream, run->d_kv + (size_t)dup[i].to * bytes,
            run->d_kv + (size_t)dup[i].from * bytes, bytes);
    return rc;
}

uint64_t
run_copy_ns(struct runner *run, int32_t *ret_n)
{
    uint64_t t0, t1;

    if (run->n_copy == 0 || run->k->event_query(run->ev_copy[1]) != 1)
        return 0;
    *ret_n = run->n_copy;
    run->n_copy = 0;
    t0 = run->k->event_ns(run->ev_copy[0]);
    t1 = run->k->event_ns(run->ev_copy[1]);
    return t1 > t0 ? t1 - t0 : 1;
}

/* ---- steps -------------------------------------------------------------------------------- */

static int
run_entry(struct runner *run, const struct bat_entry *e)
{
    size_t V = (size_t)run->prog->cfg.vocab;
    size_t counts = (size_t)e->at * V, rules = (size_t)e->at * fdk_rules_words((int32_t)V);
    int rc = 0;

    if (e->counts)
        rc = run->k->copy(run->stream, run->d_counts + counts, run->h_counts + counts,
            V * sizeof(uint16_t));
    if (rc == 0 && e->n_rules > 0)
        rc = run->k->copy(run->stream, run->d_rules + rules, run->h_rules + rules,
            (size_t)e->n_rules * sizeof(int32_t));
    return rc;
}

static int
run_updates(struct runner *run, const struct bat_rec *rec)
{
    const int32_t *counts = (const int32_t *)(run->d_plan + rec->layout.counts);
    struct fdk_row_update_args ua = { .state = run->d_state,
        .rows = (const struct fdk_row *)(run->d_plan + rec->upd.rows),
        .idx = (const int32_t *)(run->d_plan + rec->upd.idx),
        .n = counts + BAT_N_UPDATE,
        .n_max = rec->n_update,
        .table = run->d_table,
        .delta = (const struct fdk_delta *)(run->d_plan + rec->upd.delta),
        .n_delta = counts + BAT_N_DELTA,
        .n_delta_max = rec->n_delta };
    int rc = 0;

    if (rec->n_update > 0 || rec->n_delta > 0)
        rc = run->k->row_update(&ua, run->stream);
    for (int32_t i = 0; i < rec->n_table && rc == 0; i++) {
        const struct bat_table *t = &rec->table[i];

        rc = run->k->copy(run->stream, run->d_table + t->at, t->src,
            (size_t)t->n * sizeof(int32_t));
    }
    for (int32_t i = 0; i < rec->n_entry && rc == 0; i++)
        rc = run_entry(run, &rec->entry[i]);
    return rc;
}

/* The bounds of its size, which a measured step has too, or its own. */
static struct run_pad *
run_pad_for(struct runner *run, const struct bat_rec *rec)
{
    struct run_pad *pad = &run->eager[rec - run->rec];

    if (rec->graph)
        return run_pad_of(run, rec->T_pad, rec->n_out);
    run_pad_init(run, rec->T_pad, rec->n_out, pad);
    return pad;
}

int
run_can_mark(const struct runner *run, int32_t T_pad)
{
    return T_pad > run->k->gemm_rows;
}

int
run_marked(const struct runner *run, const struct bat_rec *rec)
{
    return __atomic_load_n(run->h_mark, __ATOMIC_ACQUIRE) == (uint32_t)rec->epoch;
}

/* A measured step has events enough. */
static int
run_eagerly(struct runner *run, const struct bat_rec *rec, const struct run_pad *pad)
{
    int rc;

    run->n_eager++;
    run->marking = rec->mark && run->marks == NULL;
    rc = run_program(run, pad);
    run->marking = 0;
    return rc;
}

static int
run_steps_program(struct runner *run, const struct bat_rec *rec, struct run_pad *pad)
{
    int rc = 0;

    if (!rec->graph || !run->use_graph || run->marks != NULL)
        return run_eagerly(run, rec, pad);
    if (pad->graph == NULL)
        rc = run_record(run, pad);
    if (rc != 0)
        return rc;
    if (pad->graph == NULL)
        return run_eagerly(run, rec, pad);
    run->n_graph++;
    return run->k->graph_launch(pad->graph, run->stream);
}

/* ---- measured steps ------------------------------------------------------------------------ */

/* An operation's launch and event, on a host that was never measured. */
#define RUN_MARK_NS 10000u

int32_t
run_max_marks(const struct runner *run)
{
    return run->prog->n_op + RUN_LINE__N + 2 * ((run->dims.O + run->R - 1) / run->R);
}

/* Keep a device that is faster than the host that launches waiting until all of
 * the step is with it: then its operations follow each other at once. */
static int
run_hold(struct runner *run)
{
    uint64_t ns = run->t_marked_ns > 0
        ? run->t_marked_ns + run->t_marked_ns / 4
        : (uint64_t)run_max_marks(run) * RUN_MARK_NS;

    return run->k == &fdk_ops_cuda ? run->k->stream_delay(run->stream, ns) : 0;
}

/* ---- launching ------------------------------------------------------------------------------ */

static int
run_launch_parts(struct runner *run, struct bat_rec *rec)
{
    int32_t line = run->prog->n_op;
    struct run_pad *pad = run_pad_for(run, rec);
    uint64_t after_ns = rec->mark ? run->delay_ns / 4 : 0; /* and before the mark the rest */
    int rc = run_att_plans(run, rec, pad);

    if (rc == 0)
        rc = run->k->event_record(run->ev_begin[rec - run->rec], run->stream);

    if (rc == 0 && run->delay_ns > 0) {
        rc = run->k->stream_delay(run->stream, run->delay_ns - after_ns);
        if (rc == 0)
            rc = run_mark(run, line + RUN_LINE_DELAY);
    }
    if (rc == 0)
        rc = run->k->copy(run->stream, run->d_plan, rec->plan, rec->upd.bytes);
    if (rc == 0)
        rc = run_mark(run, line + RUN_LINE_UPLOAD);
    if (rc == 0)
        rc = run_updates(run, rec);
    if (rc == 0)
        rc = run_mark(run, line + RUN_LINE_UPDATES);
    if (rc == 0)
        rc = run_steps_program(run, rec, pad);
    if (rc == 0 && after_ns > 0)
        rc = run->k->stream_delay(run->stream, after_ns);
    if (rc == 0 && rec->n_out > 0)
        rc = run->k->copy(run->stream, rec->results, run->d_results,
            (size_t)rec->n_out * sizeof(struct fdk_result));
    if (rc == 0 && rec->chosen)
        rc = run->k->copy(run->stream, rec->h_chosen, run->d_chosen,
            (size_t)run_chosen_bytes(run->n_penalty));
    if (rc == 0)
        rc = run_mark(run, line + RUN_LINE_RESULTS);
    return rc != 0 ? rc : run->k->event_record(rec->ev, run->stream);
}

int
run_launch(struct runner *run, struct bat_rec *rec)
{
    uint64_t t0, ns;
    int rc;

    if (rec->marks == NULL)
        return run_launch_parts(run, rec);
    run->marks = rec->marks;
    run->marks->n = 0;
    rc = run_hold(run);
    t0 = clk_now_ns();
    if (rc == 0)
        rc = run_launch_parts(run, rec);
    /* the shortest: a full queue makes the host wait for what it holds back */
    ns = clk_now_ns() - t0;
    if (run->t_marked_ns == 0 || ns < run->t_marked_ns)
        run->t_marked_ns = ns;
    run->marks = NULL;
    return rc;
}

int
run_done(struct runner *run, const struct bat_rec *rec)
{
    return run->k->event_query(rec->ev);
}

int
run_wait(struct runner *run, const struct bat_rec *rec)
{
    return run->k->event_sync(rec->ev);
}

int
run_wait_until(struct runner *run, const struct bat_rec *rec, uint64_t expect_ns,
    uint64_t until_ns)
{
    return run->k->event_wait(rec->ev, expect_ns, until_ns);
}

/* Two events, the plan, updates of rows, results, logprobs of chosen ids. */
#define RUN_CMD_STEP 6

int32_t
run_n_cmd(const struct runner *run, const struct bat_rec *rec)
{
    int graph = rec->graph && run->use_graph && rec->marks == NULL;

    return RUN_CMD_STEP + rec->n_table + 2 * rec->n_entry + (graph ? 1 : run->prog->n_op);
}

int
run_collect(struct runner *run, struct bat_rec *rec, uint64_t *ret_begin_ns,
    uint64_t *ret_end_ns)
{
    int rc = run->k->event_sync(rec->ev);
    uint64_t t0, t1;

    if (rc != 0)
        return rc;
    t0 = run->k->event_ns(run->ev_begin[rec - run->rec]);
    t1 = run->k->event_ns(rec->ev);
    *ret_begin_ns = t0;
    *ret_end_ns = t1 > t0 ? t1 : t0;
    return 0;
}
