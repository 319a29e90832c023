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
#include "daemon/common/slice.h"

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

/* Set each rank's device index in the context. */
static int
run_ranks(struct runner *run, const struct run_open_args *a, int32_t n_device, char *err,
    size_t err_bytes)
{
    int32_t n = a->n_rank > 0 ? a->n_rank : 1;

    if (n > FDK_MAX_RANKS) {
        (void)snprintf(err, err_bytes, "%d ranks: a group has at most %d", n, FDK_MAX_RANKS);
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
    run->n_copy = a->n_copy > 0 ? a->n_copy : 1;
    if (n % run->n_copy == 0)
        return 0;
    (void)snprintf(err, err_bytes, "%d ranks are no %d copies", n, run->n_copy);
    return -EINVAL;
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

/* Bytes of the largest operand of an all-reduce in half of the largest step; 0: no step
 * runs in halves. */
static uint64_t
run_ahead_bytes(const struct runner *run, const struct run_open_args *a)
{
    const struct mdl_program *p = a->prog;
    int32_t most = 0;

    if (a->halves_least <= 0 || a->max_token < a->halves_least || p == NULL ||
        run_copy_ranks(run) != 2 || run->in_host)
        return 0;
    for (int32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == MDL_OP_ALLREDUCE && p->op[i].rows == MDL_PER_TOKEN &&
            p->op[i].N > most)
            most = p->op[i].N;
    return (uint64_t)fdk_half_rows(a->max_token) * (uint64_t)most *
        fdk_dtype_bytes(run_act(run->k, p, a->wp));
}

/* Make the collectives of n ranks; none if n is 1. */
static int
run_group(struct runner *run, const int32_t *number, int32_t n, uint64_t ahead,
    struct fdk_group **ret, char *err, size_t err_bytes)
{
    int32_t device[FDK_MAX_RANKS];
    struct fdk_group_args a = { .n_rank = n,
        .device = device,
        .number = number,
        .spin_limit_us = run->spin_limit_us,
        .in_host = run->in_host,
        .ahead_bytes = ahead };

    if (n <= 1)
        return 0;
    for (int32_t i = 0; i < n; i++)
        device[i] = run->dev[number[i]].idx;
    for (int32_t i = 0; i < n; i++) {
        struct run_mem *m = &run->dev[number[i]].mem;

        *(run->in_host ? &m->in_host : &m->collectives) +=
            run->k->group_bytes(run->ctx, &a);
    }
    return run->k->group_new(run->ctx, &a, ret, err, err_bytes);
}

/* Make the groups for collectives: the ranks of each copy, the ranks at one place of all
 * copies, and the ranks that share tokens. */
static int
run_groups(struct runner *run, const struct run_open_args *a, char *err, size_t err_bytes)
{
    int32_t own[FDK_MAX_RANKS][FDK_MAX_RANKS] = { 0 }, n_own[FDK_MAX_RANKS] = { 0 };
    int32_t copy[FDK_MAX_RANKS][FDK_MAX_RANKS], place[FDK_MAX_RANKS][FDK_MAX_RANKS];
    int32_t n = run_copy_ranks(run);
    uint64_t ahead = run_ahead_bytes(run, a);
    struct fdk_group_ways ways = { 0 };
    int rc = 0;

    if (run->spin_limit_us == 0)
        return 0;
    for (int32_t i = 0; i < run->n_rank; i++) {
        const struct run_dev *dev = &run->dev[i];

        copy[run_copy(dev)][run_place_of(dev)] = i;
        place[run_place_of(dev)][run_copy(dev)] = i;
        own[run_owners_at(dev)][run_own(dev)] = i;
        n_own[run_owners_at(dev)] = run->kv_split;
    }
    for (int32_t p = 0; p < run->n_copy && rc == 0; p++)
        rc = run_group(run, copy[p], n, ahead, &run->group[p], err, err_bytes);
    if (rc == 0 && ahead > 0)
        run->k->group_ways(run->group[0], NULL, &ways);
    run->halves_least = ahead > 0 && ways.ahead_bytes >= ahead ? a->halves_least : 0;
    for (int32_t t = 0; t < n && rc == 0; t++)
        rc = run_group(run, place[t], run->n_copy, 0, &run->copies[t], err, err_bytes);
    for (int32_t i = 0; i < FDK_MAX_RANKS && rc == 0; i++)
        rc = run_group(run, own[i], n_own[i], 0, &run->owners[i], err, err_bytes);
    return rc;
}

int
run_new(const struct run_open_args *a, struct runner **ret, char *err, size_t err_bytes)
{
    struct fdk_open_args oa = { .n_device = a->n_device > 0 ? a->n_device : 1,
        .device = a->device,
        .dead = a->dead,
        .n_thread = a->n_thread,
        .nice = a->nice,
        .max_token = a->max_token,
        .spin_us = a->spin_us,
        .exec = a->exec,
        .deterministic = a->deterministic,
        .cache_dir = a->cache_dir };
    uint64_t slice = slc_get();
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
    run->spin_limit_us = a->spin_limit_us;
    run->in_host = a->in_host;
    ASSERT(!run->in_host || a->n_copy <= 1);
    run->kv_split = a->kv_split > 1 ? a->kv_split : 1;
    run->kv_copies = a->kv_copies > 1 ? a->kv_copies : 1;
    (void)slc_set(SLC_COMPUTE_NS); /* the threads of the pool and of streams have it */
    rc = k->open(&oa, &run->ctx, err, err_bytes);
    if (rc == 0)
        rc = run_ranks(run, a, oa.n_device, err, err_bytes);
    if (rc == 0)
        rc = run_streams(run, err, err_bytes);
    (void)slc_set(slice);
    if (rc == 0)
        rc = run_groups(run, a, err, err_bytes);
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
    t = run_root(run)->refused;
    return t[0] != '\0' ? t : "unknown";
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
        for (int32_t i = 0; i < FDK_MAX_RANKS; i++) {
            if (run->owners[i] != NULL)
                run->k->group_free(run->owners[i]);
            if (run->group[i] != NULL)
                run->k->group_free(run->group[i]);
            if (run->copies[i] != NULL)
                run->k->group_free(run->copies[i]);
        }
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
    ASSERT((prog->n_copy > 0 ? prog->n_copy : 1) == run->n_copy);
    ASSERT(prog->n_rank == 1 || prog->n_rank == run_copy_ranks(run));
    ASSERT(prog->n_rank == 1 || run->group[0] != NULL);
    ASSERT(run->n_copy == 1 || run->copies[0] != NULL);
    ASSERT(prog->kv_split == run->kv_split && prog->kv_copies == run->kv_copies);
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

/* ---- setting up -------------------------------------------------------------------------- */

/* Room in the ring for the posts of one record: its step, block copies and duplicates. */
#define RUN_POSTS_REC  2048
#define RUN_POSTS_MORE 64

int
run_setup(struct runner *run, const struct run_setup_args *a, char *err, size_t err_bytes)
{
    int rc;

    OBJ_CHECK(run, RUN_MAGIC);
    err[0] = '\0';
    rc = run_setup_all(run, a, err, err_bytes);
    if (rc == 0)
        rc = run_recapture(run, a->use_graph, &a->cap);
    if (rc == 0)
        rc = run_sync(run);
    if (rc == 0)
        rc = run_ranks_start(run, run->n_rec * RUN_POSTS_REC + RUN_POSTS_MORE);
    if (rc != 0 && err[0] == '\0')
        (void)snprintf(err, err_bytes, "%s: cannot set up the runner: %s", run->k->name,
            strerror(-rc));
    return rc;
}

int
run_recapture(struct runner *run, int use_graph, const struct cap *cap)
{
    int rc = run_sync(run);

    if (rc != 0)
        return rc;
    run->cap = *cap;
    rc = run_on_all(run, run_new_pads, 0);
    if (rc == 0)
        run_set_graph(run, use_graph);
    return rc;
}

int
run_sync(struct runner *run)
{
    return run_on_all(run, run_sync_dev, 0);
}

/* ---- warming up ----------------------------------------------------------------------------
 *
 * In phases: all ranks end one before any begins the next. The first launch of an operation
 * may load code and try algorithms, which takes longer than the time limit of collectives. */

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

    /* a launch thread may be recording one of the two events again */
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

int
run_marked(const struct runner *run, const struct bat_rec *rec)
{
    return __atomic_load_n(run_root(run)->h_mark, __ATOMIC_ACQUIRE) == (uint32_t)rec->epoch;
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Copy the block tables to pinned memory: an upload from other memory would wait for
 * the device. */
static void
run_stage_tables(struct bat_rec *rec)
{
    for (int32_t i = 0; i < rec->n_table; i++) {
        const struct bat_table *t = &rec->table[i];

        memcpy(rec->h_table + t->at, t->src, (size_t)t->n * sizeof(int32_t));
    }
}

/* Make the plans of all copies, with the launch bounds of copy 0's device. */
static int
run_plan_copies(struct runner *run, struct bat_rec *rec)
{
    int32_t most;
    int rc = 0;

    for (int32_t p = 0; p < run->n_copy; p++)
        bat_copy_fill(&run->dims, rec, p);
    most = run_most_outs(run, rec);
    rec->graph = rec->graph && run_split_fits(run, rec);
    for (int32_t p = 0; p < run->n_copy && rc == 0; p++) {
        int32_t O = rec->copy[p].n_out;
        struct run_pad pad;

        if (rec->graph)
            most = run_divided_of(run_root(run), rec->copy_pad)->most;
        if (rec->graph && p == 0)
            O = most;
        run_split_init(run_root(run), rec->copy_pad, O, most, &pad);
        rc = run_att_plans(run, rec, rec->copy[p].plan, &pad);
    }
    return rc;
}

/* Fill the host data that all ranks upload: block tables and attention plans. */
static int
run_plan(struct runner *run, struct bat_rec *rec)
{
    struct run_pad own;

    run_stage_tables(rec);
    if (rec->n_split > 0)
        return run_plan_copies(run, rec);
    if (rec->graph)
        return run_att_plans(run, rec, rec->plan,
            run_pad_of(run_root(run), rec->T_pad, rec->n_out));
    run_pad_init(run_root(run), rec->T_pad, rec->n_out, &own);
    return run_att_plans(run, rec, rec->plan, &own);
}

int
run_launch(struct runner *run, struct bat_rec *rec)
{
    const struct run_post p = { .kind = RUN_POST_STEP, .rec = rec };
    int rc = run_plan(run, rec), graph = run_replays(run, rec);

    if (rc == 0)
        rc = run->ranks != NULL ? run_post(run, &p) : run_launch_rank(run_root(run), rec);
    /* a failed capture, for lack of memory, turns graphs off */
    graph = graph && run_uses_graph(run);
    run->n_graph += (uint64_t)graph;
    run->n_eager += (uint64_t)!graph;
    run->n_split += rec->n_split > 0;
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

/* Commands of a step besides its program: two events, the plan, updates of rows, results,
 * logprobs of chosen ids. */
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
