/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/memplan.h"

/* Granularity of mapping; every backend accepts it. */
#define RUN_MAP_BYTES (2ull << 20)

static uint64_t
run_map_round(uint64_t bytes)
{
    return (bytes + RUN_MAP_BYTES - 1) & ~(RUN_MAP_BYTES - 1);
}

static void
run_dev_free(struct run_dev *dev, void *p)
{
    if (p != NULL)
        dev->run->k->mem_free(dev->run->ctx, dev->idx, p);
}

static void
run_host_free(struct runner *run, void *p)
{
    if (p != NULL)
        run->k->host_free(run->ctx, p);
}

static void
run_event_free(struct run_dev *dev, fdk_event_t ev)
{
    if (ev != NULL)
        dev->run->k->event_free(ev);
}

static void
run_free_recs(struct runner *run)
{
    for (int32_t i = 0; run->rec != NULL && i < run->n_rec; i++) {
        struct bat_rec *rec = &run->rec[i];

        for (int32_t p = 0; rec->copy != NULL && p < run->n_copy; p++)
            run_host_free(run, rec->copy[p].plan);
        free(rec->copy);
        free(rec->split);
        run_host_free(run, rec->plan);
        run_host_free(run, rec->results);
        run_host_free(run, rec->h_table);
        free(rec->outs);
        run_host_free(run, rec->h_chosen);
        free(rec->entry);
        free(rec->table);
    }
    free(run->rec);
}

static void
run_free_events(struct run_dev *dev)
{
    for (int32_t i = 0; i < dev->run->n_rec; i++) {
        if (dev->ev_begin != NULL)
            run_event_free(dev, dev->ev_begin[i]);
        if (dev->ev_end != NULL)
            run_event_free(dev, dev->ev_end[i]);
    }
    free(dev->ev_begin);
    free(dev->ev_end);
    run_event_free(dev, dev->ev_copy[0]);
    run_event_free(dev, dev->ev_copy[1]);
}

static void
run_free_graph(struct run_dev *dev, struct run_pad *pad)
{
    if (pad->graph != NULL)
        dev->run->k->graph_free(pad->graph);
    pad->graph = NULL;
}

static void
run_free_graphs(struct run_dev *dev)
{
    for (int32_t i = 0; i < dev->n_pad; i++) {
        run_free_graph(dev, &dev->pad[i]);
        run_free_graph(dev, &dev->few[i]);
        run_free_graph(dev, &dev->divided[i]);
    }
    dev->n_pad = 0;
}

static void
run_teardown_dev(struct run_dev *dev)
{
    run_free_events(dev);
    run_free_graphs(dev);
    free(dev->eager);
    free(dev->pad);
    free(dev->few);
    free(dev->divided);
    free(dev->views);
    run_unbind(dev);
    run_host_free(dev->run, dev->h_kv);
    run_host_free(dev->run, dev->h_mark);
    run_dev_free(dev, dev->d_counts);
    run_dev_free(dev, dev->d_rules);
    run_dev_free(dev, dev->d_chosen);
    run_dev_free(dev, dev->d_results);
    run_dev_free(dev, dev->d_all);
    run_dev_free(dev, dev->d_plan);
    run_dev_free(dev, dev->d_others);
    run_dev_free(dev, dev->d_slots);
    run_dev_free(dev, dev->d_stage);
    run_dev_free(dev, dev->d_table);
    run_dev_free(dev, dev->d_state);
    run_dev_free(dev, dev->d_scratch);
    run_dev_free(dev, dev->d_act);
    run_dev_free(dev, dev->d_kv_scale);
    if (dev->kv_mapped > 0)
        (void)dev->run->k->mem_unmap(dev->run->ctx, dev->idx, dev->d_kv, 0,
            (size_t)dev->kv_mapped);
    if (dev->d_kv != NULL)
        (void)dev->run->k->mem_release(dev->run->ctx, dev->idx, dev->d_kv,
            (size_t)dev->kv_reserved);
}

void
run_teardown(struct runner *run)
{
    for (int32_t i = 0; i < run->n_rank; i++)
        run_teardown_dev(&run->dev[i]);
    run_free_recs(run);
    free(run->att_bytes);
    run_host_free(run, run->h_counts);
    run_host_free(run, run->h_rules);
    run_embed_free(run);
}

uint64_t
run_mem_free(const struct run_dev *dev)
{
    struct fdk_device_info di;

    return dev->run->k->device_info(dev->run->ctx, dev->idx, &di) == 0 ? di.mem_free : 0;
}

int
run_dev_alloc(struct run_dev *dev, const char *what, uint64_t bytes, void *ret_p,
    char *err, size_t err_bytes)
{
    void *p = NULL;
    int rc = bytes > SIZE_MAX / 2
        ? -ENOMEM
        : dev->run->k->mem_alloc(dev->run->ctx, dev->idx, bytes != 0 ? (size_t)bytes : 1,
              &p);

    if (rc != 0) {
        (void)snprintf(err, err_bytes, "%s: no memory for %s (%llu MiB, %llu MiB free)",
            dev->run->k->name, what, (unsigned long long)(bytes >> 20),
            (unsigned long long)(run_mem_free(dev) >> 20));
        return rc;
    }
    memcpy(ret_p, &p, sizeof(p));
    return 0;
}

static int
run_host_alloc(struct runner *run, const char *what, uint64_t bytes, void *ret_p,
    char *err, size_t err_bytes)
{
    void *p = NULL;
    int rc = bytes > SIZE_MAX / 2
        ? -ENOMEM
        : run->k->host_alloc(run->ctx, bytes != 0 ? (size_t)bytes : 1, &p);

    if (rc != 0) {
        (void)snprintf(err, err_bytes, "%s: no host memory for %s (%llu MiB)",
            run->k->name, what, (unsigned long long)(bytes >> 20));
        return rc;
    }
    memcpy(ret_p, &p, sizeof(p));
    return 0;
}

/* ---- step records ------------------------------------------------------------------ */

/* Allocate rec->split and, with several copies, a plan for each copy. */
static int
run_setup_copies(struct runner *run, struct bat_rec *rec, char *err, size_t err_bytes)
{
    uint64_t bytes = run_sizes(run).plan;
    int rc = 0;

    rec->split = mem_array((size_t)run->dims.S, sizeof(*rec->split));
    if (rec->split == NULL)
        return -ENOMEM;
    if (run->n_copy == 1)
        return 0;
    rec->copy = mem_array((size_t)run->n_copy, sizeof(*rec->copy));
    if (rec->copy == NULL)
        return -ENOMEM;
    for (int32_t p = 0; p < run->n_copy && rc == 0; p++) {
        rc = run_host_alloc(run, "step plans of copies", bytes, &rec->copy[p].plan, err,
            err_bytes);
        run->host += bytes;
    }
    return rc;
}

static int
run_setup_rec(struct runner *run, struct bat_rec *rec, char *err, size_t err_bytes)
{
    struct run_sizes z = run_sizes(run);
    uint64_t chosen = run_chosen_bytes(run->n_penalty);
    int rc;

    rec->outs = mem_array((size_t)run->dims.O, sizeof(*rec->outs));
    rec->entry = mem_array((size_t)run->dims.S, sizeof(*rec->entry));
    rec->table =
        mem_array((size_t)(run->dims.S * bat_groups(&run->dims)), sizeof(*rec->table));
    if (rec->outs == NULL || rec->entry == NULL || rec->table == NULL)
        return -ENOMEM;
    rc = run_setup_copies(run, rec, err, err_bytes);
    if (rc == 0)
        rc = run_host_alloc(run, "step plans", z.plan, &rec->plan, err, err_bytes);
    if (rc == 0)
        rc = run_host_alloc(run, "results", z.results, &rec->results, err, err_bytes);
    if (rc == 0)
        rc = run_host_alloc(run, "block tables", z.tables, &rec->h_table, err, err_bytes);
    if (rc == 0)
        rc = run_host_alloc(run, "logprobs of chosen ids", chosen, &rec->h_chosen, err,
            err_bytes);
    if (rc != 0)
        return rc;
    run->host_penalty += chosen;
    memset(rec->plan, 0, (size_t)z.plan);
    memset(rec->results, 0, (size_t)z.results);
    run->host += z.plan + z.tables + z.results;
    return 0;
}

static int
run_setup_recs(struct runner *run, char *err, size_t err_bytes)
{
    int rc = 0;

    run->rec = mem_array((size_t)run->n_rec, sizeof(*run->rec));
    if (run->rec == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < run->n_rec && rc == 0; i++)
        rc = run_setup_rec(run, &run->rec[i], err, err_bytes);
    return rc;
}

static int
run_setup_events(struct run_dev *dev)
{
    size_t n = (size_t)dev->run->n_rec;
    int rc = 0;

    dev->ev_begin = mem_array(n, sizeof(*dev->ev_begin));
    dev->ev_end = mem_array(n, sizeof(*dev->ev_end));
    dev->eager = mem_array(n, sizeof(*dev->eager));
    if (dev->ev_begin == NULL || dev->ev_end == NULL || dev->eager == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = dev->run->k->event_new(dev->run->ctx, dev->idx, &dev->ev_begin[i]);
        if (rc == 0)
            rc = dev->run->k->event_new(dev->run->ctx, dev->idx, &dev->ev_end[i]);
    }
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = dev->run->k->event_new(dev->run->ctx, dev->idx, &dev->ev_copy[i]);
    return rc;
}

/* ---- attention plans ------------------------------------------------------------------- */

#define RUN_ATT_ALIGN 64

static size_t
run_att_round(size_t bytes)
{
    return (bytes + RUN_ATT_ALIGN - 1) & ~(size_t)(RUN_ATT_ALIGN - 1);
}

static int32_t
run_n_work(const struct runner *run, int32_t T)
{
    return fdk_tiles_max(bat_pad_rows(&run->dims, T), T, run->att_a, run->att_b);
}

/* Number of attention plans that a step of T tokens may need: one per KV group, and one
 * for the tail. */
static int32_t
run_n_att(const struct runner *run, int32_t T)
{
    return run->att_op < 0
        ? 0
        : run->prog->n_kv_group + (run_tail(run, T, 1) == MDL_TAIL_OUTPUTS);
}

/* The KV group that plan i is for. */
static int32_t
run_att_group(const struct runner *run, int32_t i)
{
    const struct mdl_program *p = run->prog;

    return i < p->n_kv_group ? i : p->kv_at[p->cfg.n_layer - 1].group;
}

static struct fdk_attention_args
run_att_shape(const struct runner *run, int32_t T, int32_t group, const struct fdk_batch *b)
{
    const struct mdl_kv_group *g = &run->prog->kv_group[group];

    return (struct fdk_attention_args){ .H = run->prog->n_head,
        .K = g->n_kv_head,
        .D = g->head_dim,
        .kv = run->kv[group],
        .act = run->act,
        .T = T,
        .b = b,
        .window = g->window,
        .step_window = g->window,
        .scale = run->att_op < 0 ? 1 : run->prog->op[run->att_op].f };
}

static size_t
run_att_plan_bytes(const struct runner *run, int32_t T, int32_t i)
{
    struct fdk_batch b = { .max_row = bat_pad_rows(&run->dims, T),
        .table_stride = run->dims.stride };
    struct fdk_attention_args a = run_att_shape(run, T, run_att_group(run, i), &b);

    return run->k->att_plan_bytes == NULL
        ? 0
        : run->k->att_plan_bytes(&a, run_n_work(run, T));
}

/* Bytes of attention plan i: counts, tiles, the backend's data. */
static size_t
run_att_bytes(const struct runner *run, int32_t T, int32_t i)
{
    return RUN_ATT_ALIGN +
        run_att_round((size_t)run_n_work(run, T) * sizeof(struct fdk_work)) +
        run_att_round(run_att_plan_bytes(run, T, i));
}

struct run_att
run_att_at(const struct runner *run, int32_t T, int32_t i, unsigned char *base)
{
    struct bat_layout l;
    unsigned char *p;

    bat_layout(&run->dims, T, &l);
    p = base + l.more;
    for (int32_t k = 0; k < i; k++)
        p += run_att_bytes(run, T, k);
    return (struct run_att){ .group = run_att_group(run, i),
        .counts = (int32_t *)p,
        .work = (struct fdk_work *)(p + RUN_ATT_ALIGN),
        .plan = p + RUN_ATT_ALIGN +
            run_att_round((size_t)run_n_work(run, T) * sizeof(struct fdk_work)) };
}

/* The ranks share the plan made for rank 0: it is for every device of the context. */
int
run_att_plans(struct runner *run, const struct bat_rec *rec, unsigned char *plan,
    const struct run_pad *pad)
{
    int tail = pad->tail == MDL_TAIL_OUTPUTS && (pad->O > 0 || run->kv_copies > 1);
    int32_t n = run->att_op < 0 ? 0 : run->prog->n_kv_group + tail;
    struct fdk_attention_args att;
    struct fdk_batch b;
    int rc = 0;

    for (int32_t i = 0; i < n && rc == 0; i++) {
        struct run_att at = run_att_at(run, pad->T, i, plan);
        struct fdk_att_plan_args a = { .att = &att,
            .b = &b,
            .work = at.work,
            .n_work = at.counts,
            .n_done = (uint32_t *)at.counts + 1,
            .a = run->att_a,
            .bt = run->att_b,
            .n_max = pad->n_work,
            .outputs = i == run->prog->n_kv_group };

        bat_view(&run->dims, pad->T, plan, at.group,
            rec->tables + (size_t)at.group * rec->group_step, &b);
        /* The share of a row may begin at a token that earlier ones of this step precede:
         * an id of -1 there does not mean that they are old. */
        if (pad->split)
            b.ids = NULL;
        att = run_att_shape(run, pad->T, at.group, &b);
        a.plan_bytes = run_att_plan_bytes(run, pad->T, i);
        a.plan = a.plan_bytes > 0 ? at.plan : NULL;
        rc = run->k->att_plan_host(run->ctx, run_root(run)->idx, &a);
    }
    return rc;
}

int
run_tiles(struct runner *run)
{
    struct fdk_attention_args a;

    run->att_op = -1;
    for (int32_t i = run->prog->n_op - 1; i >= 0; i--)
        if (run->prog->op[i].kind == MDL_OP_ATTENTION)
            run->att_op = i;
    a = run_att_shape(run, run->dims.T, 0, NULL);
    run->att_a = run->att_b = 1;
    if (run->k->att_shape != NULL)
        run->k->att_shape(&a, &run->att_a, &run->att_b);
    run->att_bytes = mem_array((size_t)run->dims.T + 1, sizeof(*run->att_bytes));
    if (run->att_bytes == NULL)
        return -ENOMEM;
    for (int32_t T = 1; T <= run->dims.T && run->att_op >= 0; T++)
        for (int32_t i = 0; i < run_n_att(run, T); i++)
            run->att_bytes[T] += (uint32_t)run_att_bytes(run, T, i);
    run->dims.more = run->att_bytes;
    return 0;
}

/* ---- padded sizes --------------------------------------------------------------------- */

int32_t
run_few(const struct fdk_ops *k, const struct mdl_program *p, int32_t T)
{
    int32_t half = T / 2;

    if (!p->has_tails || T <= k->gemm_rows)
        return 0;
    return k->gemm_rows > 0 && half > k->gemm_rows ? k->gemm_rows : half;
}

int32_t
run_n_graph(const struct fdk_ops *k, const struct mdl_program *p, const struct cap *cap)
{
    int32_t n = cap->n;

    for (int32_t i = 0; i < cap->n; i++)
        n += (run_few(k, p, cap->size[i]) > 0) + (p->n_copy > 1);
    return n;
}

/* If the program has tails, a step of more tokens than dims.O always has OUTPUTS. */
enum mdl_tail
run_tail(const struct runner *run, int32_t T, int32_t O)
{
    int outputs = O <= run_few(run->k, run->prog, T) || T > run->dims.O;

    return run->prog->has_tails && outputs ? MDL_TAIL_OUTPUTS : MDL_TAIL_TOKENS;
}

/* Copies that share tokens all take part in the tail's attention, with or without outputs
 * of their own. So their tail follows from `most`, and a step without outputs counts as
 * having one, because that tail has a plan. */
static void
run_pad_of_copy(const struct run_dev *dev, int32_t T, int32_t O, int32_t most,
    struct run_pad *ret)
{
    *ret = (struct run_pad){ .T = T,
        .S = bat_pad_rows(&dev->run->dims, T),
        .O = O,
        .most = most,
        .tail = run_tail(dev->run, T,
            dev->run->kv_copies == 1 ? O
                : most > 0           ? most
                                     : 1) };
    ret->n_work = run_n_work(dev->run, T);
    for (int32_t g = 0; g < bat_groups(&dev->run->dims); g++)
        bat_view(&dev->run->dims, T, dev->d_plan, g,
            dev->d_table + bat_table_at(&dev->run->dims, g, 0), &ret->b[g]);
    for (int32_t i = 0; i < run_n_att(dev->run, T); i++)
        ret->att[i] = run_att_at(dev->run, T, i, dev->d_plan);
}

void
run_split_init(const struct run_dev *dev, int32_t T, int32_t O, int32_t most,
    struct run_pad *ret)
{
    struct bat_layout l;

    run_pad_of_copy(dev, T, O, most, ret);
    bat_layout(&dev->run->dims, T, &l);
    ret->split = 1;
    ret->out_at = (const int32_t *)(dev->d_plan + l.out_at);
}

void
run_pad_init(const struct run_dev *dev, int32_t T, int32_t O, struct run_pad *ret)
{
    run_pad_of_copy(dev, T, run_copy(dev) == 0 ? O : 0, O, ret);
}

#define RUN_PLAN_ALIGN 256

static uint64_t
run_plan_step(const struct bat_dims *d)
{
    return (bat_plan_bytes(d) + RUN_PLAN_ALIGN - 1) / RUN_PLAN_ALIGN * RUN_PLAN_ALIGN;
}

unsigned char *
run_plan_at(const struct run_dev *dev, int32_t p)
{
    return p == run_copy(dev)
        ? dev->d_plan
        : dev->d_others + (size_t)p * (size_t)run_plan_step(&dev->run->dims);
}

/* Set the views of a divided step if copies share tokens. at: index in run_dev.views. */
static void
run_views_init(const struct run_dev *dev, size_t at, struct run_pad *pad)
{
    const struct bat_dims *d = &dev->run->dims;
    struct run_views *v;

    if (dev->run->kv_copies == 1)
        return;
    pad->views = v = &dev->views[at];
    for (int32_t p = 0; p < dev->run->n_copy; p++) {
        unsigned char *plan = run_plan_at(dev, p);

        for (int32_t g = 0; g < bat_groups(d); g++)
            bat_view(d, pad->T, plan, g, dev->d_table + bat_table_at(d, g, 0), &v->b[p][g]);
        for (int32_t i = 0; i < run_n_att(dev->run, pad->T); i++)
            v->att[p][i] = run_att_at(dev->run, pad->T, i, plan);
    }
    v->stage = pad->b[0];
    v->stage.slot_map = dev->d_slots;
}

void
run_eager_split(const struct run_dev *dev, size_t rec, int32_t T, int32_t O, int32_t most)
{
    run_split_init(dev, T, O, most, &dev->eager[rec]);
    run_views_init(dev, CAP_MAX + 1 + rec, &dev->eager[rec]);
}

void
run_set_graph(struct runner *run, int on)
{
    __atomic_store_n(&run->use_graph, on, __ATOMIC_RELAXED);
}

void
run_pads(struct run_dev *dev, const struct cap *cap)
{
    run_free_graphs(dev);
    dev->n_pad = cap->n;
    for (int32_t i = 0; i < cap->n; i++) {
        int32_t T = cap->size[i], few = run_few(dev->run->k, dev->run->prog, T);
        int32_t outs = bat_pad_outs(&dev->run->dims, T);

        run_pad_init(dev, T, outs, &dev->pad[i]);
        dev->few[i] = (struct run_pad){ .T = 0 };
        if (few > 0)
            run_pad_init(dev, T, few, &dev->few[i]);
        few = few > 0 ? few : outs;
        run_split_init(dev, T, run_copy(dev) > 0 ? 0 : few, few, &dev->divided[i]);
        run_views_init(dev, (size_t)i, &dev->divided[i]);
    }
}

enum fdk_dtype
run_act(const struct fdk_ops *k, const struct mdl_program *p, const struct wts_plan *wp)
{
    for (int32_t i = 0; i < p->n_op && wp != NULL; i++)
        if (p->op[i].kind == MDL_OP_GEMM)
            return k->act(wts_dtype(wp, p->op[i].w));
    return FDK_F32;
}

/* Bytes of the stage: one layer of KV for the tokens of the largest step, in blocks as in
 * the cache. */
static uint64_t
run_stage_bytes(const struct runner *run)
{
    uint64_t most = 0;

    for (int32_t g = 0; g < run->prog->n_kv_group; g++) {
        const struct fdk_kv *kv = &run->kv[g];
        uint64_t n = (uint64_t)((run->dims.T - 1) / kv->block_size + 1) * kv->layer_bytes;

        most = n > most ? n : most;
    }
    return most;
}

struct run_sizes
run_sizes(const struct runner *run)
{
    const struct bat_dims *d = &run->dims;
    uint64_t S = (uint64_t)d->S + 1; /* rows, with the dummy row */
    struct run_sizes ret = { .rows = S * sizeof(struct fdk_row),
        .tables = (uint64_t)bat_groups(d) * S * (uint64_t)d->stride * sizeof(int32_t),
        .plan = bat_plan_bytes(d),
        .results = (uint64_t)d->O * sizeof(struct fdk_result),
        .all = d->n_copy > 1 ? (uint64_t)d->O * sizeof(struct fdk_result) : 0 };

    if (run->prog->kv_copies > 1) {
        ret.others = run_plan_step(d) * (uint64_t)d->n_copy;
        ret.slots = (uint64_t)d->T * sizeof(int32_t);
        ret.stage = run_stage_bytes(run);
    }
    return ret;
}

/* ---- device memory --------------------------------------------------------------------- */

struct run_part {
    const char *what;
    uint64_t bytes;
    void *ret_p;
    uint64_t *sum;
};

static uint64_t
run_counts_bytes(const struct runner *run)
{
    return (uint64_t)run->n_penalty * (uint64_t)run->prog->cfg.vocab * sizeof(uint16_t);
}

static uint64_t
run_rules_bytes(const struct runner *run)
{
    return (uint64_t)run->n_penalty * sizeof(int32_t) *
        (uint64_t)fdk_rules_words(run->prog->cfg.vocab);
}

static int
run_setup_host(struct runner *run, char *err, size_t err_bytes)
{
    uint64_t counts = run_counts_bytes(run), rules = run_rules_bytes(run);
    int rc = run_host_alloc(run, "penalty counts", counts, &run->h_counts, err, err_bytes);

    if (rc == 0)
        rc = run_host_alloc(run, "sampling rules", rules, &run->h_rules, err, err_bytes);
    run->host_penalty = counts + rules;
    return rc == 0 ? run_embed_new(run, err, err_bytes) : rc;
}

/* Upload the slot map of the stage: token t has slot t. */
static int
run_setup_slots(struct run_dev *dev, uint64_t bytes)
{
    int32_t *slot = mem_array((size_t)bytes, 1);
    int rc;

    if (slot == NULL)
        return -ENOMEM;
    for (int32_t t = 0; t < dev->run->dims.T; t++)
        slot[t] = t;
    rc = dev->run->k->copy(dev->stream, dev->d_slots, slot, (size_t)bytes);
    if (rc == 0)
        rc = dev->run->k->stream_sync(dev->stream);
    free(slot);
    return rc;
}

static int
run_setup_memory(struct run_dev *dev, const struct run_setup_args *a, char *err,
    size_t err_bytes)
{
    uint64_t counts = run_counts_bytes(dev->run), rules = run_rules_bytes(dev->run);
    struct run_mem *m = &dev->mem;
    struct run_sizes z = run_sizes(dev->run);
    const struct run_part parts[] = {
        { "row states", z.rows, &dev->d_state, &m->state },
        { "block tables", z.tables, &dev->d_table, &m->state },
        { "the step plan", z.plan, &dev->d_plan, &m->plan },
        { "step plans of other copies", z.others, &dev->d_others, &m->plan },
        { "slots of the stage", z.slots, &dev->d_slots, &m->plan },
        { "the stage of keys and values", z.stage, &dev->d_stage, &m->plan },
        { "results", z.results, &dev->d_results, &m->plan },
        { "results of all copies", z.all, &dev->d_all, &m->plan },
        { "penalty counts", counts, &dev->d_counts, &m->penalty },
        { "sampling rules", rules, &dev->d_rules, &m->penalty },
        { "logprobs of chosen ids", run_chosen_bytes(a->n_penalty), &dev->d_chosen,
            &m->penalty },
    };
    int rc = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && rc == 0; i++) {
        rc = run_dev_alloc(dev, parts[i].what, parts[i].bytes, parts[i].ret_p, err,
            err_bytes);
        *parts[i].sum += parts[i].bytes;
    }
    m->host_kv = (uint64_t)a->n_host * dev->kv[0].block_bytes;
    if (rc == 0)
        rc = run_host_alloc(dev->run, "the mark of steps", sizeof(*dev->h_mark),
            &dev->h_mark, err, err_bytes);
    if (rc == 0 && a->n_host > 0)
        rc = run_host_alloc(dev->run, "kv.swap_space", m->host_kv, &dev->h_kv, err,
            err_bytes);
    if (rc == 0 && z.slots > 0)
        rc = run_setup_slots(dev, z.slots);
    if (rc == 0)
        rc = dev->run->k->fill(dev->stream, dev->d_state, 0, (size_t)z.rows);
    if (rc == 0)
        rc = dev->run->k->fill(dev->stream, dev->d_table, 0, (size_t)z.tables);
    return rc;
}

static int
run_map_more(struct run_dev *dev, uint64_t want, char *err, size_t err_bytes)
{
    uint64_t more = run_map_round(want);
    int rc;

    if (more <= dev->kv_mapped)
        return 0;
    ASSERT(more <= dev->kv_reserved);
    rc = dev->run->k->mem_map(dev->run->ctx, dev->idx, dev->d_kv, (size_t)dev->kv_mapped,
        (size_t)(more - dev->kv_mapped));
    if (rc != 0) {
        (void)snprintf(err, err_bytes,
            "%s: no memory for the KV cache (%llu MiB, %llu MiB "
            "free)",
            dev->run->k->name, (unsigned long long)(want >> 20),
            (unsigned long long)(run_mem_free(dev) >> 20));
        return rc;
    }
    dev->kv_mapped = more;
    return 0;
}

/* Reserve addresses for the pool and map memory for the dummy block, filled with zeros:
 * it must not hold NaNs. */
static int
run_setup_kv(struct run_dev *dev, int32_t max_block, char *err, size_t err_bytes)
{
    uint64_t bytes;
    void *p = NULL;
    int rc;

    if (mem_mul_u64((uint64_t)max_block, dev->kv[0].block_bytes, &bytes) != 0 ||
        bytes > SIZE_MAX / 2)
        return -ENOMEM;
    dev->kv_reserved = run_map_round(bytes);
    rc = dev->run->k->mem_reserve(dev->run->ctx, dev->idx, (size_t)dev->kv_reserved, &p);
    if (rc != 0) {
        (void)snprintf(err, err_bytes, "%s: no addresses for a KV cache of %llu MiB: %s",
            dev->run->k->name, (unsigned long long)(bytes >> 20), strerror(-rc));
        return rc;
    }
    dev->d_kv = p;
    for (int32_t g = 0; g < dev->run->prog->n_kv_group; g++)
        dev->kv[g].base = p;
    rc = run_map_more(dev, dev->kv[0].block_bytes, err, err_bytes);
    return rc != 0
        ? rc
        : dev->run->k->fill(dev->stream, dev->d_kv, 0, (size_t)dev->kv[0].block_bytes);
}

/* Copy the scales, ordered by layer, to ret in the order of KV groups. */
static void
run_group_scales(const struct run_dev *dev, const float *scale, const size_t *at, float *ret)
{
    const struct mdl_program *p = dev->run->prog;

    for (int32_t l = 0; l < p->cfg.n_layer; l++) {
        size_t n = 2 * (size_t)p->kv_group[p->kv_at[l].group].n_kv_head;

        memcpy(ret + at[p->kv_at[l].group] + (size_t)p->kv_at[l].layer * n, scale,
            n * sizeof(*ret));
        scale += n;
    }
}

/* Upload the static scales and set dev->kv[].scale. Must precede the binding of
 * operations, which copies dev->kv. */
static int
run_setup_kv_scales(struct run_dev *dev, const float *scale, char *err, size_t err_bytes)
{
    uint64_t bytes = mpl_scale_bytes(dev->kv, dev->run->prog->n_kv_group);
    size_t n = (size_t)(bytes / sizeof(float)), at[FDK_MAX_KV_GROUPS] = { 0 };
    float *all, *own;
    int rc;

    if (bytes == 0)
        return 0;
    rc = run_dev_alloc(dev, "KV scales", bytes, &dev->d_kv_scale, err, err_bytes);
    if (rc != 0)
        return rc;
    dev->mem.kv_scales = bytes;
    all = mem_array(2 * n, sizeof(*all));
    if (all == NULL)
        return -ENOMEM;
    own = all + n;
    for (size_t i = 0; i < n; i++)
        all[i] = 1;
    for (int32_t g = 0; g < dev->run->prog->n_kv_group; g++) {
        if (g > 0)
            at[g] =
                at[g - 1] + (size_t)(mpl_scale_bytes(&dev->kv[g - 1], 1) / sizeof(float));
        dev->kv[g].scale = dev->d_kv_scale + at[g];
    }
    if (scale != NULL) {
        wts_kv_scales_of(dev->run->prog, scale, run_rank(dev) % dev->run->prog->n_rank, own);
        run_group_scales(dev, own, at, all);
    }
    rc = dev->run->k->copy(dev->stream, dev->d_kv_scale, all, (size_t)bytes);
    if (rc == 0)
        rc = dev->run->k->stream_sync(dev->stream);
    free(all);
    return rc;
}

int
run_map_kv(struct runner *run, int32_t n_block, char *err, size_t err_bytes)
{
    uint64_t bytes = (uint64_t)n_block * run->kv[0].block_bytes;
    int rc = 0;

    for (int32_t i = 0; i < run->n_rank && rc == 0; i++) {
        run->dev[i].mem.kv = bytes;
        rc = run_map_more(&run->dev[i], bytes, err, err_bytes);
    }
    return rc;
}

/* ---- the program ------------------------------------------------------------------------- */

static int
run_setup_program(struct run_dev *dev, char *err, size_t err_bytes)
{
    size_t *off = mem_array((size_t)dev->run->prog->n_buf, sizeof(*off)), bytes = 0;
    int rc = -ENOMEM;

    if (off == NULL)
        return rc;
    rc = run_place(dev->run->k, dev->run->prog, &dev->run->dims, dev->run->R,
        dev->run->act, dev->run->halves_least > 0, off, &bytes);
    dev->mem.activations = bytes;
    if (rc == 0)
        rc = run_dev_alloc(dev, "activations", bytes, &dev->d_act, err, err_bytes);
    dev->mem.scratch = run_scratch_bytes(dev->run);
    if (rc == 0)
        rc = run_dev_alloc(dev, "scratch", dev->mem.scratch, &dev->d_scratch, err,
            err_bytes);
    if (rc == 0)
        rc = run_bind(dev, off);
    free(off);
    return rc;
}

static int
run_setup_dev(struct run_dev *dev, const struct run_setup_args *a, char *err,
    size_t err_bytes)
{
    const struct bat_dims *d = &dev->run->dims;
    int rc;

    memcpy(dev->kv, a->kv, sizeof(dev->kv));
    for (int32_t g = 0; g < dev->run->prog->n_kv_group; g++)
        dev->kv[g].own = run_own(dev);
    rc = run_setup_memory(dev, a, err, err_bytes);
    if (rc == 0)
        rc = run_setup_kv(dev, a->max_block, err, err_bytes);
    if (rc == 0)
        rc = run_setup_kv_scales(dev, a->kv_scale, err, err_bytes);
    if (rc != 0)
        return rc;
    dev->pad = mem_array(CAP_MAX, sizeof(*dev->pad));
    dev->few = mem_array(CAP_MAX, sizeof(*dev->few));
    dev->divided = mem_array(CAP_MAX, sizeof(*dev->divided));
    if (dev->pad == NULL || dev->few == NULL || dev->divided == NULL)
        return -ENOMEM;
    run_pad_init(dev, d->T, bat_pad_outs(d, d->T), &dev->full);
    run_split_init(dev, d->T, bat_pad_outs(d, d->T), bat_pad_outs(d, d->T),
        &dev->full_split);
    if (dev->run->kv_copies > 1)
        dev->views = mem_array(CAP_MAX + 1 + (size_t)dev->run->n_rec, sizeof(*dev->views));
    if (dev->run->kv_copies > 1 && dev->views == NULL)
        return -ENOMEM;
    run_views_init(dev, CAP_MAX, &dev->full_split);
    return run_setup_events(dev);
}

int
run_setup_all(struct runner *run, const struct run_setup_args *a, char *err,
    size_t err_bytes)
{
    int rc;

    run->dims = a->dims;
    memcpy(run->kv, a->kv, sizeof(run->kv));
    ASSERT(bat_groups(&a->dims) == run->prog->n_kv_group);
    ASSERT(bat_copies(&a->dims) == run->n_copy);
    run->n_penalty = a->n_penalty;
    run->n_host = a->n_host;
    run->n_rec = a->n_rec;
    run->delay_ns = a->delay_ns;
    run->act = run_act(run->k, run->prog, run->wp);
    run->R = run_logits_rows(run->k, run->prog->cfg.vocab, a->dims.O);
    run_place_mark(run);
    rc = run_tiles(run);
    if (rc == 0)
        rc = run_setup_host(run, err, err_bytes);
    for (int32_t i = 0; i < run->n_rank && rc == 0; i++)
        rc = run_setup_dev(&run->dev[i], a, err, err_bytes);
    /* after the loop above: a bound operation may point to memory of other ranks */
    for (int32_t i = 0; i < run->n_rank && rc == 0; i++)
        rc = run_setup_program(&run->dev[i], err, err_bytes);
    return rc == 0 ? run_setup_recs(run, err, err_bytes) : rc;
}
