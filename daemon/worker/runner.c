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
        if (run_backend(fdk_ops_cuda.name, ret, why, sizeof(why)) == 0)
            return 0;
        log_info("runner: device.backend = auto takes the cpu: %s", why);
        name = fdk_ops_cpu.name;
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

static void
run_name(struct run_dev *dev, const struct run_open_args *a)
{
    int known = dev->idx >= 0 && dev->idx < a->n_device;

    if (a->name != NULL && known)
        (void)snprintf(dev->name, sizeof(dev->name), "%s", a->name[dev->idx]);
    else
        (void)snprintf(dev->name, sizeof(dev->name), "%s-%d", dev->run->k->name,
            a->device != NULL && known ? a->device[dev->idx] : dev->idx);
}

/* Which device of the context each rank has. */
static int
run_ranks(struct runner *run, const struct run_open_args *a, int32_t n_device, char *err,
    size_t err_bytes)
{
    int32_t n = a->n_rank > 0 ? a->n_rank : 1;

    if (n > FDK_MAX_RANKS) {
        (void)snprintf(err, err_bytes, "%d ranks: a group has at most %d", n,
            FDK_MAX_RANKS);
        return -EINVAL;
    }
    run->dev = mem_array((size_t)n, sizeof(*run->dev));
    if (run->dev == NULL) {
        (void)snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    for (int32_t i = 0; i < n; i++) {
        struct run_dev *dev = &run->dev[i];
        int bad;

        *dev = (struct run_dev){ .run = run, .idx = a->rank != NULL ? a->rank[i] : i };
        run_name(dev, a);
        bad = dev->idx < 0 || dev->idx >= n_device;
        for (int32_t j = 0; j < i; j++)
            bad |= run->dev[j].idx == dev->idx;
        if (bad) {
            (void)snprintf(err, err_bytes,
                "rank %d on device %d: there are %d devices, and a rank has its own", i,
                dev->idx, n_device);
            return -EINVAL;
        }
    }
    run->n_rank = n;
    return 0;
}

static int
run_streams(struct runner *run, char *err, size_t err_bytes)
{
    for (int32_t i = 0; i < run->n_rank; i++) {
        struct run_dev *dev = &run->dev[i];
        int rc = dev->run->k->stream_new(dev->run->ctx, dev->idx, &dev->stream);

        if (rc == 0)
            rc = dev->run->k->stream_new(dev->run->ctx, dev->idx, &dev->copy_stream);
        if (rc == 0)
            continue;
        if (run->n_rank > 1)
            (void)snprintf(err, err_bytes, "rank %d (%s): no stream: %s", i, dev->name,
                run->k->error_text(run->ctx, dev->idx));
        else
            (void)snprintf(err, err_bytes, "%s: no stream: %s", dev->run->k->name,
                strerror(-rc));
        return rc;
    }
    return 0;
}

/* What the ranks meet in. */
static int
run_group(struct runner *run, uint32_t spin_limit_us, char *err, size_t err_bytes)
{
    int32_t device[FDK_MAX_RANKS];
    struct fdk_group_args a = { .n_rank = run->n_rank,
        .device = device,
        .spin_limit_us = spin_limit_us };

    if (run->n_rank == 1 || spin_limit_us == 0)
        return 0;
    for (int32_t i = 0; i < run->n_rank; i++)
        device[i] = run->dev[i].idx;
    return run->k->group_new(run->ctx, &a, &run->group, err, err_bytes);
}

int
run_new(const struct run_open_args *a, struct runner **ret, char *err, size_t err_bytes)
{
    struct fdk_open_args oa = { .n_device = a->n_device > 0 ? a->n_device : 1,
        .device = a->device,
        .dead = a->dead,
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
    run->spin = a->spin_us > 0;
    rc = k->open(&oa, &run->ctx, err, err_bytes);
    if (rc == 0)
        rc = run_ranks(run, a, oa.n_device, err, err_bytes);
    if (rc == 0)
        rc = run_streams(run, err, err_bytes);
    if (rc == 0)
        rc = run_group(run, a->spin_limit_us, err, err_bytes);
    if (rc != 0) {
        (void)run_free(run);
        return rc == -ENOMEM ? rc : -ENODEV;
    }
    *ret = run;
    return 0;
}

const char *
run_error(struct runner *run)
{
    const char *t = run->k->error_text(run->ctx, run_root(run)->idx);

    if (run->n_rank > 1) {
        run_ranks_error(run, run->error, sizeof(run->error));
        t = run->error;
    }
    if (t != NULL && t[0] != '\0')
        return t;
    return run->refused[0] != '\0' ? run->refused : "unknown";
}

static void
run_close_dev(struct run_dev *dev)
{
    if (dev->d_inv_freq != NULL)
        dev->run->k->mem_free(dev->run->ctx, dev->idx, dev->d_inv_freq);
    if (dev->d_weights != NULL)
        dev->run->k->mem_free(dev->run->ctx, dev->idx, dev->d_weights);
    if (dev->copy_stream != NULL)
        dev->run->k->stream_free(dev->copy_stream);
    if (dev->stream != NULL)
        dev->run->k->stream_free(dev->stream);
}

struct runner *
run_free(struct runner *run)
{
    if (run == NULL)
        return NULL;
    OBJ_CHECK(run, RUN_MAGIC);
    run_ranks_stop(run);
    for (int32_t i = 0; i < run->n_rank; i++) {
        if (run->dev[i].stream != NULL)
            (void)run->k->stream_sync(run->dev[i].stream);
        if (run->dev[i].copy_stream != NULL)
            (void)run->k->stream_sync(run->dev[i].copy_stream);
    }
    if (run->ctx != NULL) {
        run_teardown(run);
        for (int32_t i = 0; i < run->n_rank; i++)
            run_close_dev(&run->dev[i]);
        if (run->group != NULL)
            run->k->group_free(run->group);
        run->k->close(run->ctx);
    }
    free(run->dev);
    OBJ_FREE(run, RUN_MAGIC);
    return NULL;
}

static int
run_load_dev(struct run_dev *dev, char *err, size_t err_bytes)
{
    const struct runner *run = dev->run;
    size_t n = (size_t)run->prog->n_freq * sizeof(float);
    int rc;

    if (run->wp != NULL) {
        dev->mem.weights = wts_bytes(run->wp);
        rc = run_dev_alloc(dev, "weights", dev->mem.weights, &dev->d_weights, err,
            err_bytes);
        if (rc != 0)
            return rc;
    }
    rc = run_dev_alloc(dev, "rope frequencies", n, &dev->d_inv_freq, err, err_bytes);
    if (rc == 0 && n > 0)
        rc = dev->run->k->copy(dev->stream, dev->d_inv_freq, run->prog->inv_freq, n);
    return rc != 0 ? rc : dev->run->k->stream_sync(dev->stream);
}

int
run_load(struct runner *run, struct mdl_program *prog, const struct wts_plan *wp,
    const struct wts_load_args *la, char *err, size_t err_bytes)
{
    struct wts_at at[FDK_MAX_DEVICES];
    int rc = 0;

    OBJ_CHECK(run, RUN_MAGIC);
    run->prog = prog;
    run->wp = wp;
    for (int32_t i = 0; i < run->n_rank && rc == 0; i++)
        rc = run_load_dev(&run->dev[i], err, err_bytes);
    if (rc != 0 || wp == NULL)
        return rc;
    for (int32_t i = 0; i < run->n_rank; i++)
        at[i] = (struct wts_at){ run->dev[i].idx, run->dev[i].d_weights };
    return wts_load(wp, run->k, run->ctx, at, run->n_rank, la, err, err_bytes);
}

int
run_load_wait(struct runner *run, char *err, size_t err_bytes)
{
    return run->wp == NULL ? 0 : wts_load_wait(run->wp, err, err_bytes);
}

/* ---- graphs ------------------------------------------------------------------------------ */

static struct run_pad *
run_pad_of(struct run_dev *dev, int32_t T_pad, int32_t n_out)
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
    return dev->few[lo].T > 0 && n_out <= dev->few[lo].O ? &dev->few[lo] : &dev->pad[lo];
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
    if (rc != 0 && rc2 == 0) { /* a part of the step */
        dev->run->k->graph_free(pad->graph);
        pad->graph = NULL;
    }
    rc = rc != 0 ? rc : rc2;
    if (rc == 0)
        log_debug("runner: recorded a graph of %d tokens, %d outputs", pad->T, pad->O);
    if (rc != -ENOMEM || dev->mem.kv == 0)
        return rc;
    /* the KV pool has taken the memory, and requests run */
    log_error("runner: no memory to record a graph of %d tokens; steps are launched "
              "operation by operation",
        pad->T);
    run_set_graph(dev->run, 0);
    return 0;
}

/* The largest of the sizes for few outputs is launched once: its kernels are those of
 * the others. */
static int
run_record_size(struct run_dev *dev, int32_t i)
{
    struct run_pad *few = &dev->few[i];
    int rc = 0;

    if (dev->pad[i].graph == NULL) {
        rc = run_program(dev, &dev->pad[i]);
        if (rc == 0)
            rc = run_record(dev, &dev->pad[i]);
    }
    if (rc != 0 || few->T == 0 || few->graph != NULL || !run_uses_graph(dev->run))
        return rc;
    if (i == dev->n_pad - 1)
        rc = run_program(dev, few);
    return rc != 0 ? rc : run_record(dev, few);
}

/* ---- warming up ----------------------------------------------------------------------------
 *
 * In phases that all ranks end before the next begins: what the first launch of an operation
 * may take, loading code and trying algorithms, is more than the time limit of collectives. */

static int
run_warm_choose(struct run_dev *dev, int32_t arg)
{
    int rc =
        dev->run->k->fill(dev->stream, dev->d_plan, 0, bat_plan_bytes(&dev->run->dims));

    (void)arg;
    if (rc == 0)
        rc = run_choose(dev);
    return rc != 0 ? rc : dev->run->k->stream_sync(dev->stream);
}

/* The first launch of an operation may load its code. */
static int
run_warm_full(struct run_dev *dev, int32_t arg)
{
    int rc = run_program(dev, &dev->full);

    (void)arg;
    if (rc == 0)
        rc = dev->run->k->stream_sync(dev->stream);
    dev->mem_before = run_mem_free(dev);
    return rc;
}

static int
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
run_warm(struct runner *run, int record)
{
    int rc = run_on_all(run, run_warm_choose, 0);

    if (rc == 0)
        rc = run_on_all(run, run_warm_full, 0);
    for (int32_t i = run_root(run)->n_pad - 1; i >= 0 && record && rc == 0; i--)
        if (run_uses_graph(run))
            rc = run_on_all(run, run_record_size, i);
    return rc != 0 ? rc : run_on_all(run, run_warm_end, 0);
}

/* ---- block copies -------------------------------------------------------------------------- */

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
run_copies(struct runner *run, const struct kv_copy *copy, int32_t n)
{
    struct run_dev *root = run_root(run);
    int rc;

    if (run->ranks != NULL)
        return run_post_copies(run, copy, n);
    rc = n > 0 ? run_copies_begin(root) : 0;
    for (int32_t i = 0; i < n && rc == 0; i++)
        rc = run_copy_one(root, &copy[i]);
    return rc != 0 || n == 0 ? rc : run_copies_end(root, n);
}

int
run_dup_one(struct run_dev *dev, const struct kv_dup *d)
{
    size_t bytes = (size_t)dev->kv[0].block_bytes;

    return dev->run->k->copy(dev->stream, dev->d_kv + (size_t)d->to * bytes,
        dev->d_kv + (size_t)d->from * bytes, bytes);
}

int
run_dups(struct runner *run, const struct kv_dup *dup, int32_t n)
{
    int rc = 0;

    for (int32_t i = 0; rc == 0 && i < n; i++) {
        const struct run_post p = { .kind = RUN_POST_DUP, .dup = dup[i] };

        rc = run->ranks != NULL ? run_post(run, &p) : run_dup_one(run_root(run), &dup[i]);
    }
    return rc;
}

int
run_clear_one(struct run_dev *dev, int32_t block)
{
    size_t bytes = (size_t)dev->kv[0].block_bytes;

    return dev->run->k->fill(dev->stream, dev->d_kv + (size_t)block * bytes, 0, bytes);
}

int
run_clear(struct runner *run, int32_t block)
{
    const struct run_post p = { .kind = RUN_POST_CLEAR, .n = block };

    return run->ranks != NULL ? run_post(run, &p) : run_clear_one(run_root(run), block);
}

int
run_fail(struct runner *run, int32_t rank)
{
    const struct run_post p = { .kind = RUN_POST_FAIL, .n = rank };

    if (rank < 0 || rank >= run->n_rank)
        return -EINVAL;
    return run->ranks != NULL ? run_post(run, &p)
                              : run->k->stream_fail(run->dev[rank].stream);
}

uint64_t
run_copy_ns(struct runner *run, int32_t *ret_n)
{
    struct run_dev *dev = run_root(run);
    uint64_t t0, t1;

    /* while a launch thread may record the events again they are no pair */
    if (!run_ranks_idle(run) || dev->n_copy == 0 ||
        dev->run->k->event_query(dev->ev_copy[1]) != 1)
        return 0;
    *ret_n = dev->n_copy;
    dev->n_copy = 0;
    t0 = dev->run->k->event_ns(dev->ev_copy[0]);
    t1 = dev->run->k->event_ns(dev->ev_copy[1]);
    return t1 > t0 ? t1 - t0 : 1;
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

static int
run_updates(struct run_dev *dev, const struct bat_rec *rec)
{
    const int32_t *counts = (const int32_t *)(dev->d_plan + rec->layout.counts);
    struct fdk_row_update_args ua = { .state = dev->d_state,
        .rows = (const struct fdk_row *)(dev->d_plan + rec->upd.rows),
        .idx = (const int32_t *)(dev->d_plan + rec->upd.idx),
        .n = counts + BAT_N_UPDATE,
        .n_max = rec->n_update,
        .table = dev->d_table,
        .delta = (const struct fdk_delta *)(dev->d_plan + rec->upd.delta),
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

/* The bounds of its size, which a measured step has too, or its own. */
static struct run_pad *
run_pad_for(struct run_dev *dev, const struct bat_rec *rec)
{
    struct run_pad *pad = &dev->eager[rec - dev->run->rec];

    if (rec->graph)
        return run_pad_of(dev, rec->T_pad, rec->n_out);
    run_pad_init(dev, rec->T_pad, rec->n_out, pad);
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
    return __atomic_load_n(run_root(run)->h_mark, __ATOMIC_ACQUIRE) == (uint32_t)rec->epoch;
}

/* Is the step to be a graph? */
static int
run_replays(const struct runner *run, const struct bat_rec *rec)
{
    return rec->graph && run_uses_graph(run) && rec->marks == NULL;
}

/* A measured step has events enough. */
static int
run_eagerly(struct run_dev *dev, const struct bat_rec *rec, const struct run_pad *pad)
{
    int rc;

    dev->marking = rec->mark && rec->marks == NULL;
    rc = run_program(dev, pad);
    dev->marking = 0;
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

/* ---- measured steps ------------------------------------------------------------------------ */

/* An operation's launch and event, on a host that was never measured. */
#define RUN_MARK_NS 10000u

int32_t
run_max_marks(const struct runner *run)
{
    return run->prog->n_op + RUN_LINE__N + 4 * ((run->dims.O + run->R - 1) / run->R);
}

/* Keep a device that is faster than the host that launches waiting until all of
 * the step is with it: then its operations follow each other at once. */
static int
run_hold(struct run_dev *dev)
{
    uint64_t ns = dev->run->t_marked_ns > 0
        ? dev->run->t_marked_ns + dev->run->t_marked_ns / 4
        : (uint64_t)run_max_marks(dev->run) * RUN_MARK_NS;

    return dev->run->k->on_host ? 0 : dev->run->k->stream_delay(dev->stream, ns);
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Results of rank 0 to the host. */
static int
run_results(struct run_dev *dev, const struct bat_rec *rec)
{
    int rc = 0;

    if (dev != run_root(dev->run))
        return 0;
    if (rec->n_out > 0)
        rc = dev->run->k->copy(dev->stream, rec->results, dev->d_results,
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
    uint64_t after_ns = rec->mark ? run->delay_ns / 4 : 0; /* and before the mark the rest */
    int rc = dev->run->k->event_record(dev->ev_begin[at], dev->stream);

    if (rc == 0 && run->delay_ns > 0) {
        rc = dev->run->k->stream_delay(dev->stream, run->delay_ns - after_ns);
        if (rc == 0)
            rc = run_mark(dev, line + RUN_LINE_DELAY);
    }
    if (rc == 0)
        rc = dev->run->k->copy(dev->stream, dev->d_plan, rec->plan, rec->upd.bytes);
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

/* A copy from memory that is not pinned would wait for the device. */
static void
run_stage_tables(struct bat_rec *rec)
{
    for (int32_t i = 0; i < rec->n_table; i++) {
        const struct bat_table *t = &rec->table[i];

        memcpy(rec->h_table + t->at, t->src, (size_t)t->n * sizeof(int32_t));
    }
}

/* Rank 0 is the one that is measured; the others launch as it does, so that all meet in the
 * same collectives. */
int
run_launch_rank(struct run_dev *dev, struct bat_rec *rec)
{
    struct run_pad *pad = run_pad_for(dev, rec);
    int measured = rec->marks != NULL && dev == run_root(dev->run);
    uint64_t t0, ns;
    int rc;

    dev->single = rec->marks != NULL;
    if (!measured)
        return run_launch_parts(dev, rec, pad);
    dev->marks = rec->marks;
    dev->marks->n = 0;
    rc = run_hold(dev);
    t0 = clk_now_ns();
    if (rc == 0)
        rc = run_launch_parts(dev, rec, pad);
    /* the shortest: a full queue makes the host wait for what it holds back */
    ns = clk_now_ns() - t0;
    if (dev->run->t_marked_ns == 0 || ns < dev->run->t_marked_ns)
        dev->run->t_marked_ns = ns;
    dev->marks = NULL;
    return rc;
}

/* What all ranks read of the host: block tables and attention plans. */
static int
run_plan(struct runner *run, struct bat_rec *rec)
{
    struct run_pad own;

    run_stage_tables(rec);
    if (rec->graph)
        return run_att_plans(run, rec, run_pad_of(run_root(run), rec->T_pad, rec->n_out));
    run_pad_init(run_root(run), rec->T_pad, rec->n_out, &own);
    return run_att_plans(run, rec, &own);
}

int
run_launch(struct runner *run, struct bat_rec *rec)
{
    const struct run_post p = { .kind = RUN_POST_STEP, .rec = rec };
    int graph = run_replays(run, rec);
    int rc = run_plan(run, rec);

    if (rc == 0)
        rc = run->ranks != NULL ? run_post(run, &p) : run_launch_rank(run_root(run), rec);
    /* without memory to record it */
    graph = graph && run_uses_graph(run);
    run->n_graph += (uint64_t)graph;
    run->n_eager += (uint64_t)!graph;
    return rc;
}

int
run_done(struct runner *run, const struct bat_rec *rec)
{
    size_t at = (size_t)(rec - run->rec);

    return run->ranks != NULL ? run_ranks_query(run, at)
                              : run->k->event_query(run_root(run)->ev_end[at]);
}

int
run_wait(struct runner *run, const struct bat_rec *rec)
{
    size_t at = (size_t)(rec - run->rec);
    int rc;

    if (run->ranks == NULL)
        return run->k->event_sync(run_root(run)->ev_end[at]);
    rc = run_ranks_wait(run, at, 0, UINT64_MAX);
    return rc < 0 ? rc : 0;
}

int
run_wait_until(struct runner *run, const struct bat_rec *rec, uint64_t expect_ns,
    uint64_t until_ns)
{
    size_t at = (size_t)(rec - run->rec);

    return run->ranks != NULL
        ? run_ranks_wait(run, at, expect_ns, until_ns)
        : run->k->event_wait(run_root(run)->ev_end[at], expect_ns, until_ns);
}

/* Two events, the plan, updates of rows, results, logprobs of chosen ids. */
#define RUN_CMD_STEP 6

int32_t
run_n_cmd(const struct runner *run, const struct bat_rec *rec)
{
    int graph = run_replays(run, rec);

    return RUN_CMD_STEP + rec->n_table + 2 * rec->n_entry + (graph ? 1 : run->prog->n_op);
}

void
run_times(const struct runner *run, const struct bat_rec *rec, int32_t rank,
    uint64_t *ret_begin_ns, uint64_t *ret_end_ns)
{
    const struct run_dev *dev = &run->dev[rank];
    uint64_t t0 = run->k->event_ns(dev->ev_begin[rec - run->rec]);
    uint64_t t1 = run->k->event_ns(dev->ev_end[rec - run->rec]);

    *ret_begin_ns = t0;
    *ret_end_ns = t1 > t0 ? t1 : t0;
}

int
run_collect(struct runner *run, struct bat_rec *rec, uint64_t *ret_begin_ns,
    uint64_t *ret_end_ns)
{
    int rc = run_wait(run, rec);

    if (rc == 0)
        run_times(run, rec, 0, ret_begin_ns, ret_end_ns);
    return rc;
}
