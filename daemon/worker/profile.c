/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "libclient/fdring.h"

/* Blocks filled in one call of prf_poll(), between which requests are noticed. */
#define PRF_FILL 64
/* Warm-up steps before the first that counts: one uploads the rows and captures a missing
 * graph, one launches each operation once, and more of them, up to PRF_WARM_MOST in all,
 * until they have taken PRF_WARM_NS, in which time an idle GPU raises its clocks. */
#define PRF_WARM      2
#define PRF_WARM_MOST 64
#define PRF_WARM_NS   100000000u
/* Stride between consecutive blocks of a table, as a share of the pool: with the golden
 * ratio they are far from each other in memory. */
#define PRF_STRIDE 0.6180339887

/* ---- life ------------------------------------------------------------------------------- */

static int32_t
prf_gcd(int32_t a, int32_t b)
{
    while (b != 0) {
        int32_t t = a % b;

        a = b;
        b = t;
    }
    return a;
}

/* Fill the tables with distinct blocks of the pool, as far as it has enough. */
static int
prf_tables(struct prf *p)
{
    const struct bat_dims *d = &p->run->dims;
    int32_t rows = bat_synth_rows(&p->synth), stride;
    int32_t n_block = (int32_t)(run_root(p->run)->mem.kv / p->run->kv[0].block_bytes) - 1;
    int64_t at = 0;

    p->n_place = (int64_t)bat_synth_at(d, &p->synth, bat_groups(d), 0);
    p->table = mem_array((size_t)p->n_place, sizeof(*p->table));
    p->own = mem_array((size_t)p->n_place, sizeof(*p->own));
    if (p->table == NULL || p->own == NULL)
        return -ENOMEM;
    stride = (int32_t)(n_block * PRF_STRIDE) + 1;
    while (prf_gcd(stride, n_block) != 1)
        stride++;
    for (int32_t r = 0; r < rows; r++) {
        int32_t len = r < p->synth.n_decode ? p->synth.context : p->synth.n_prefill;
        int32_t n = (int32_t)(((int64_t)len + d->block_size - 1) / d->block_size);

        for (int32_t g = 0; g < bat_groups(d); g++)
            for (int32_t i = 0; i < n; i++, at++)
                p->table[bat_synth_at(d, &p->synth, g, r) + (size_t)i] =
                    1 + (int32_t)(at * stride % n_block);
    }
    p->synth.table = p->table;
    p->synth.own = p->own;
    return 0;
}

static int
prf_events(struct prf *p)
{
    struct runner *run = p->run;
    int32_t max = run_max_marks(run), n = run->n_rec * run->n_rank;
    int rc = 0;

    p->marks = mem_array((size_t)n, sizeof(*p->marks));
    p->mark = mem_array((size_t)n * (size_t)max, sizeof(*p->mark));
    if (p->marks == NULL || p->mark == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        int32_t dev = run->dev[i % run->n_rank].idx;

        p->marks[i] =
            (struct run_marks){ .max = max, .at = p->mark + (size_t)i * (size_t)max };
        for (int32_t k = 0; k < max && rc == 0; k++)
            rc = run->k->event_new(run->ctx, dev, &p->marks[i].at[k].ev);
    }
    return rc;
}

int
prf_new(struct runner *run, int32_t n_step, const struct bat_synth *synth, struct prf **ret)
{
    struct prf *p;
    int rc;

    ASSERT(n_step > 0 && n_step <= PRF_MAX_STEPS);
    OBJ_ALLOC(p, PRF_MAGIC);
    if (p == NULL)
        return -ENOMEM;
    p->run = run;
    p->n_step = n_step;
    p->n_line = run->prog->n_op + RUN_LINE__N;
    p->role = mem_array((size_t)run->n_rec, sizeof(*p->role));
    p->step_ns = mem_array((size_t)p->n_line, sizeof(*p->step_ns));
    p->line = mem_array((size_t)p->n_line, sizeof(*p->line));
    rc = p->role != NULL && p->step_ns != NULL && p->line != NULL ? 0 : -ENOMEM;
    if (rc == 0)
        rc = prf_events(p);
    if (rc == 0 && synth != NULL) {
        p->is_synthetic = 1;
        p->synth = *synth;
        rc = prf_tables(p);
    }
    if (rc != 0) {
        (void)prf_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

struct prf *
prf_free(struct prf *p)
{
    if (p == NULL)
        return NULL;
    OBJ_CHECK(p, PRF_MAGIC);
    for (int32_t i = 0; p->mark != NULL && p->marks != NULL &&
         i < p->run->n_rec * p->run->n_rank * run_max_marks(p->run);
         i++)
        p->run->k->event_free(p->mark[i].ev);
    free(p->marks);
    free(p->mark);
    free(p->role);
    free(p->table);
    free(p->own);
    free(p->step_ns);
    free(p->line);
    OBJ_FREE(p, PRF_MAGIC);
    return NULL;
}

int
prf_synth_check(const struct runner *run, const struct bat_synth *m, int32_t max_len,
    char *err, size_t err_bytes)
{
    const struct bat_dims *d = &run->dims;
    int64_t n_block = (int64_t)(run_root(run)->mem.kv / run->kv[0].block_bytes) - 1, need;
    int64_t n_tok = (int64_t)m->n_decode + m->n_prefill;
    int64_t n_row = (int64_t)m->n_decode + (m->n_prefill > 0);

    if (m->n_decode < 0 || m->n_prefill < 0 || n_row == 0)
        (void)snprintf(err, err_bytes,
            "a synthetic step needs rows: batch (rows that decode) "
            "or prefill (tokens of a prompt) of at least 1");
    else if (n_row > d->S)
        (void)snprintf(err, err_bytes, "batch %d%s is more than sched.max_num_seqs = %d",
            m->n_decode, m->n_prefill > 0 ? " and a row of prefill" : "", d->S);
    else if (n_tok > d->T)
        (void)snprintf(err, err_bytes,
            "batch %d + prefill %d is more than "
            "sched.max_num_batched_tokens = %d",
            m->n_decode, m->n_prefill, d->T);
    else if (m->n_decode > 0 && (m->context < 1 || m->context > max_len))
        (void)snprintf(err, err_bytes,
            "context %d is not between 1 and the model's "
            "length, %d",
            m->context, max_len);
    else if (m->n_prefill > max_len)
        (void)snprintf(err, err_bytes, "prefill %d is more than the model's length, %d",
            m->n_prefill, max_len);
    else if ((need = bat_synth_blocks(d, m)) > n_block)
        (void)snprintf(err, err_bytes,
            "batch %d of context %d and prefill %d take %lld KV "
            "blocks, the pool has %lld; ask for less, or enlarge it (kv.num_blocks, "
            "kv.gpu_memory_utilization)",
            m->n_decode, m->context, m->n_prefill, (long long)need, (long long)n_block);
    else
        return 0;
    return -EINVAL;
}

void
prf_stop(struct prf *p)
{
    fdr_publish(&p->stop, 1);
}

/* ---- sums ------------------------------------------------------------------------------- */

/* Copy 0's share of a step, to which the measured rank 0 belongs; the whole step if it is
 * not divided. */
static struct bat_copy
prf_share(const struct bat_rec *rec)
{
    return rec->n_split > 0
        ? rec->copy[0]
        : (struct bat_copy){ .plan = rec->plan,
              .n_tok = rec->n_tok,
              .n_row = rec->n_row,
              .n_out = rec->n_out,
              .layout = rec->layout };
}

static void
prf_add_step(struct prf_steps *s, const struct bat_rec *rec, int graph, uint64_t ns)
{
    const struct bat_copy own = prf_share(rec);
    const int32_t *kv_len = (const int32_t *)(own.plan + own.layout.kv_len);
    const int32_t *pos = (const int32_t *)(own.plan + own.layout.pos);

    s->min_ns = s->n == 0 || ns < s->min_ns ? ns : s->min_ns;
    s->sum_ns += ns;
    s->n++;
    s->n_graph += graph;
    s->n_split += rec->n_split > 0;
    s->tok += own.n_tok;
    s->pad += rec->n_split > 0 ? rec->copy_pad : rec->T_pad;
    s->row += own.n_row;
    s->decode += rec->n_decode;
    s->out += own.n_out;
    for (int32_t r = 0; r < own.n_row; r++)
        s->ctx += kv_len[r];
    for (int32_t t = 0; t < own.n_tok; t++)
        s->pair += (double)pos[t] + 1;
}

/* Set p->step_ns to the times of the lines in one step; UINT64_MAX: the line did not run.
 * A line may have several marks in a step: slices of logits and samples. The line of the
 * last mark gets the time up to the step's end, so that the lines add up to the step. */
static void
prf_times(struct prf *p, const struct run_marks *m, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t last = begin_ns;

    for (int32_t i = 0; i < p->n_line; i++)
        p->step_ns[i] = UINT64_MAX;
    for (int32_t i = 0; i < m->n; i++) {
        uint64_t *sum = &p->step_ns[m->at[i].line];
        uint64_t t = i + 1 < m->n ? p->run->k->event_ns(m->at[i].ev) : end_ns;

        *sum = (*sum == UINT64_MAX ? 0 : *sum) + (t > last ? t - last : 0);
        last = t > last ? t : last;
    }
}

static void
prf_add_lines(struct prf *p, const struct run_marks *m, uint64_t begin_ns, uint64_t end_ns)
{
    prf_times(p, m, begin_ns, end_ns);
    for (int32_t i = 0; i < p->n_line; i++) {
        struct prf_line *l = &p->line[i];

        if (p->step_ns[i] == UINT64_MAX)
            continue;
        l->min_ns = l->n == 0 || p->step_ns[i] < l->min_ns ? p->step_ns[i] : l->min_ns;
        l->sum_ns += p->step_ns[i];
        l->n++;
    }
}

static int
prf_is_exchange(enum mdl_op_kind kind)
{
    return kind == MDL_OP_ALLREDUCE || kind == MDL_OP_ALLGATHER ||
        kind == MDL_OP_KVSHARE || kind == MDL_OP_ROWSHARE;
}

/* The times of rank i in a step. */
static struct prf_rank
prf_rank_of(struct prf *p, const struct bat_rec *rec, int32_t i)
{
    const struct mdl_program *prog = p->run->prog;
    const struct run_dev *dev = &p->run->dev[i];
    size_t at = (size_t)(rec - p->run->rec);
    struct prf_rank ret = { 0 };

    prf_times(p, &rec->marks[i], p->run->k->event_ns(dev->ev_begin[at]),
        p->run->k->event_ns(dev->ev_end[at]));
    for (int32_t k = 0; k < prog->n_op; k++) {
        if (p->step_ns[k] == UINT64_MAX)
            continue;
        if (prf_is_exchange(prog->op[k].kind))
            ret.exchange_ns += p->step_ns[k];
        else
            ret.compute_ns += p->step_ns[k];
    }
    return ret;
}

static void
prf_add_ranks(struct prf *p, const struct bat_rec *rec)
{
    uint64_t least = UINT64_MAX;

    for (int32_t i = 0; i < p->run->n_rank; i++) {
        struct prf_rank r = prf_rank_of(p, rec, i);

        p->rank[i].compute_ns += r.compute_ns;
        p->rank[i].exchange_ns += r.exchange_ns;
        least = r.exchange_ns < least ? r.exchange_ns : least;
    }
    p->exposed_ns += least;
}

static void
prf_add(struct prf *p, enum prf_role role, const struct bat_rec *rec, uint64_t begin_ns,
    uint64_t end_ns)
{
    if (role == PRF_PLAIN)
        prf_add_step(&p->plain, rec, rec->graph && p->run->use_graph, end_ns - begin_ns);
    if (role != PRF_MEASURED)
        return;
    prf_add_step(&p->measured, rec, 0, end_ns - begin_ns);
    prf_add_lines(p, rec->marks, begin_ns, end_ns);
    if (p->run->n_rank > 1)
        prf_add_ranks(p, rec);
}

/* ---- steps of requests -------------------------------------------------------------------- */

void
prf_begin(struct prf *p, int32_t n_busy)
{
    OBJ_CHECK(p, PRF_MAGIC);
    p->n_busy = p->is_synthetic ? n_busy : 0;
}

struct run_marks *
prf_take(struct prf *p, const struct bat_rec *rec)
{
    size_t i = (size_t)(rec - p->run->rec);

    p->role[i] = PRF_NONE;
    if (p->is_synthetic || fdr_load_acquire(&p->stop) != 0)
        return NULL;
    if (p->n_taken[0] < p->n_step) {
        p->role[i] = PRF_MEASURED;
        p->n_taken[0]++;
    } else if (p->n_taken[1] < p->n_step) {
        p->role[i] = PRF_PLAIN;
        p->n_taken[1]++;
    } else {
        return NULL;
    }
    p->n_out++;
    return p->role[i] == PRF_MEASURED ? &p->marks[i * (size_t)p->run->n_rank] : NULL;
}

void
prf_collected(struct prf *p, const struct bat_rec *rec, uint64_t begin_ns, uint64_t end_ns)
{
    uint8_t *role = &p->role[rec - p->run->rec];

    /* not of this profile: launched before it began, or while it was being stopped */
    if (p->is_synthetic || *role == PRF_NONE)
        return;
    prf_add(p, (enum prf_role) * role, rec, begin_ns, end_ns);
    *role = PRF_NONE;
    p->n_out--;
}

/* ---- synthetic steps --------------------------------------------------------------------------- */

/* Fill free blocks of the tables with zeros: they may have no memory behind them yet, or
 * hold bytes that are NaNs. */
static int
prf_fill(struct prf *p, const struct prf_idle *idle)
{
    struct runner *run = p->run;
    int rc = 0;

    if (idle->kv->n_copy > 0) {
        rc = run_copies(run, idle->kv->copy, idle->kv->n_copy);
        kv_copied(idle->kv);
    }
    for (int i = 0; rc == 0 && i < PRF_FILL && p->fill_at < p->n_place; p->fill_at++) {
        int32_t b = p->table[p->fill_at];

        if (b == 0 || !kv_is_empty(idle->kv, b))
            continue;
        p->own[p->fill_at] = b;
        rc = run_clear(run, b);
        i++;
    }
    return rc;
}

static int
prf_is_warm(const struct prf *p)
{
    return p->n_warm >= PRF_WARM_MOST ||
        (p->n_warm >= PRF_WARM && p->warm_ns >= PRF_WARM_NS);
}

static int
prf_launch(struct prf *p, const struct prf_idle *idle)
{
    struct bat_rec *rec = &p->run->rec[0];
    uint64_t n_graph = p->run->n_graph, n_eager = p->run->n_eager;
    int plain =
        p->n_warm != PRF_WARM - 1 && (!prf_is_warm(p) || p->n_taken[1] < p->n_taken[0]);
    int rc;

    ASSERT(rec->epoch == 0);
    bat_make(idle->bat, &p->synth, p->n_warm == 0, rec);
    rec->marks = plain ? NULL : &p->marks[0];
    if (!prf_is_warm(p)) {
        p->n_warm++;
        p->role[0] = PRF_NONE;
    } else {
        p->role[0] = plain ? PRF_PLAIN : PRF_MEASURED;
        p->n_taken[plain]++;
    }
    rc = run_launch(p->run, rec);
    p->run->n_graph = n_graph;
    p->run->n_eager = n_eager;
    p->n_out = 1;
    return rc;
}

int
prf_poll(struct prf *p, const struct prf_idle *idle, int *ret_work)
{
    struct bat_rec *rec = &p->run->rec[0];
    uint64_t t0 = 0, t1 = 0;
    int rc;

    if (!p->is_synthetic || prf_over(p))
        return 0;
    if (p->n_out > 0) {
        rc = run_done(p->run, rec);
        if (rc <= 0)
            return rc;
        rc = run_collect(p->run, rec, &t0, &t1);
        if (rc != 0)
            return rc;
        if (p->role[0] == PRF_NONE && p->n_warm >= PRF_WARM)
            p->warm_ns += t1 - t0;
        prf_add(p, (enum prf_role)p->role[0], rec, t0, t1);
        rec->marks = NULL;
        p->n_out = 0;
    }
    *ret_work = 1;
    if (prf_over(p))
        return 0;
    p->interrupted = idle->busy;
    if (p->interrupted)
        return 0;
    if (p->fill_at < p->n_place)
        return prf_fill(p, idle);
    return prf_launch(p, idle);
}

int
prf_has_device(const struct prf *p)
{
    return p->is_synthetic && p->n_out > 0;
}

int
prf_wait(struct prf *p)
{
    return run_wait(p->run, &p->run->rec[0]);
}

int
prf_over(const struct prf *p)
{
    if (p->n_out > 0)
        return 0;
    return fdr_load_acquire(&p->stop) != 0 || p->n_busy > 0 || p->interrupted ||
        (p->n_taken[0] >= p->n_step && p->n_taken[1] >= p->n_step);
}
