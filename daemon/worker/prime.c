/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/prime.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/profile.h"

/* Speed of reading weights, for a first estimate of the shortest step: of a fast GPU in
 * bytes per ps, of a slow host in bytes per ns. */
#define PRM_BYTES_NS      4
#define PRM_HOST_BYTES_NS 10
/* A step that takes longer is measured once: extra work of its first run, like capturing
 * a graph, is a small share of its time. */
#define PRM_LONG_NS (10 * CLK_MS)
/* The cost model is trusted after that many shapes, that many of them with prefill. */
#define PRM_FEW         4
#define PRM_FEW_PREFILL 2

struct prm {
    struct runner *run;
    struct bat *bat;
    struct cost *cost;
    struct bat_synth synth;
    int32_t *table;              /* bat_synth.table */
    uint64_t least_ns;           /* estimated time of the shortest step */
    uint64_t tok_ns;             /* time per token of the last step: an upper bound */
    int32_t n_decode, n_prefill; /* shapes measured */
};

/* Short shapes come first, to estimate the time of the longer ones. Each range of rows
 * for which a backend chooses its GEMM algorithm has a prefill: the backend measures
 * algorithms at the first step in the range, which takes the time of a step or two. */
static const struct {
    int32_t n_decode, context, n_prefill;
} prm_shapes[] = {
    { 1, 256, 0 },
    { 8, 512, 0 },
    { 0, 0, 64 },
    { 0, 0, 128 },
    { 32, 512, 0 },
    { 0, 0, 512 },
    { 64, 1024, 0 },
    { 128, 1024, 0 },
    { 0, 0, 1024 },
    { 0, 0, 2048 },
    { 256, 512, 0 },
};

/* Fill the tables of the step; each row has blocks of its own. */
static void
prm_tables(struct prm *p)
{
    const struct bat_dims *d = &p->run->dims;
    int32_t at = 1;

    for (int32_t r = 0; r < bat_synth_rows(&p->synth); r++) {
        int32_t len = r < p->synth.n_decode ? p->synth.context : p->synth.n_prefill;

        for (int32_t g = 0; g < bat_groups(d); g++)
            for (int32_t i = 0; i * d->block_size < len; i++)
                p->table[bat_synth_at(d, &p->synth, g, r) + (size_t)i] = at++;
    }
}

static int
prm_step(struct prm *p, int fresh, uint64_t *ret_ns)
{
    struct bat_rec *rec = &p->run->rec[0];
    uint64_t n_graph = p->run->n_graph, n_eager = p->run->n_eager,
             n_split = p->run->n_split;
    uint64_t t0 = 0, t1 = 0;
    int rc;

    bat_make(p->bat, &p->synth, fresh, rec);
    rec->marks = NULL;
    rc = run_launch(p->run, rec);
    p->run->n_graph = n_graph;
    p->run->n_eager = n_eager;
    p->run->n_split = n_split;
    if (rc == 0)
        rc = run_collect(p->run, rec, &t0, &t1);
    *ret_ns = t1 - t0;
    return rc;
}

/* The cost model's description of the step that was measured last. */
static struct cost_step
prm_cost(const struct prm *p)
{
    const struct bat_synth *m = &p->synth;
    int32_t n = p->run->rec[0].n_split > 0 ? p->run->n_copy : 1;
    struct cost_step s = { .n_tok = m->n_decode,
        .n_ctx = (int64_t)m->n_decode * m->context };

    cost_add_prompt(&s, m->n_prefill, (int64_t)m->n_prefill * (m->n_prefill + 1) / 2, n);
    return s;
}

static void
prm_learn(struct prm *p, uint64_t ns)
{
    struct cost_step s = prm_cost(p);

    cost_learn(p->cost, &s, ns);
    p->n_decode += p->synth.n_decode > 0;
    p->n_prefill += p->synth.n_prefill > 0;
    p->tok_ns = ns / (uint64_t)s.n_tok;
    p->least_ns = p->least_ns == 0 || p->n_decode + p->n_prefill == 1 ? ns : p->least_ns;
}

/* Upper estimate of the time to measure a shape: a larger step takes no more time per
 * token than a smaller one. */
static uint64_t
prm_guess(const struct prm *p)
{
    uint64_t ns = p->tok_ns * (uint64_t)(p->synth.n_decode + p->synth.n_prefill);

    ns = ns > p->least_ns ? ns : p->least_ns;
    return ns < PRM_LONG_NS ? 2 * ns : ns;
}

static int
prm_shape(struct prm *p)
{
    uint64_t ns;
    int rc;

    prm_tables(p);
    rc = prm_step(p, 1, &ns);
    if (rc == 0 && ns < PRM_LONG_NS)
        rc = prm_step(p, 0, &ns);
    if (rc == 0)
        prm_learn(p, ns);
    return rc;
}

static int
prm_shapes_run(struct prm *p, int32_t max_len, uint64_t until_ns)
{
    char err[256];
    int rc = 0;

    for (size_t i = 0; i < sizeof(prm_shapes) / sizeof(prm_shapes[0]) && rc == 0; i++) {
        p->synth.n_decode = prm_shapes[i].n_decode;
        p->synth.context = prm_shapes[i].context;
        p->synth.n_prefill = prm_shapes[i].n_prefill;
        if (prf_synth_check(p->run, &p->synth, max_len, err, sizeof(err)) != 0)
            continue;
        if (clk_now_ns() + prm_guess(p) > until_ns)
            break;
        rc = prm_shape(p);
    }
    return rc;
}

/* Set the members known before any step is measured, and allocate the tables. */
static int
prm_begin(struct prm *p, struct runner *run, struct bat *bat)
{
    OBJ_CHECK(run, RUN_MAGIC);
    p->run = run;
    p->bat = bat;
    p->least_ns = run_root(run)->mem.weights /
        (run->k->on_host ? PRM_HOST_BYTES_NS : PRM_BYTES_NS * 1000);
    p->table =
        mem_array((size_t)(bat_groups(&run->dims) * run->dims.S) * (size_t)run->dims.stride,
            sizeof(*p->table));
    p->synth.table = p->synth.own = p->table;
    return p->table != NULL ? 0 : -ENOMEM;
}

/* Measure a step twice and return the shorter time: the first may include the choice of
 * GEMM algorithms. */
static int
prm_twice(struct prm *p, int32_t min_split, uint64_t *ret_ns)
{
    uint64_t a = 0, b = 0;
    int rc;

    p->bat->min_split = min_split;
    prm_tables(p);
    rc = prm_step(p, 1, &a);
    if (rc == 0)
        rc = prm_step(p, 0, &b);
    *ret_ns = a < b ? a : b;
    return rc;
}

/* Is the divided step shorter by more than a twentieth? The margin covers noise. */
static int
prm_gains(uint64_t split_ns, uint64_t whole_ns)
{
    return split_ns + split_ns / 20 < whole_ns;
}

/* *ret: the smallest number of tokens from which on dividing gains; unchanged if none was
 * measured. */
static int
prm_split_run(struct prm *p, int32_t max_len, uint64_t until_ns, int32_t *ret)
{
    uint64_t whole = 0, split = 0;
    char err[256];
    int rc = 0;

    for (int32_t q = PRM_LEAST_SPLIT; q <= p->run->dims.T && rc == 0; q *= 2) {
        p->synth.n_prefill = q;
        if (prf_synth_check(p->run, &p->synth, max_len, err, sizeof(err)) != 0 ||
            clk_now_ns() + 2 * prm_guess(p) > until_ns)
            break;
        rc = prm_twice(p, INT32_MAX, &whole);
        if (rc == 0)
            rc = prm_twice(p, 1, &split);
        p->tok_ns = whole / (uint64_t)q;
        if (!prm_gains(split, whole))
            *ret = INT32_MAX;
        else if (*ret == INT32_MAX || q == PRM_LEAST_SPLIT)
            *ret = q;
    }
    return rc;
}

int
prm_split(struct runner *run, struct bat *bat, int32_t max_len, uint64_t budget_ns)
{
    uint64_t until_ns = clk_now_ns() + budget_ns;
    int32_t min_split = bat->min_split;
    struct prm p = { 0 };
    int rc = prm_begin(&p, run, bat);

    if (rc == 0)
        rc = prm_split_run(&p, max_len, until_ns, &min_split);
    free(p.table);
    bat->min_split = min_split;
    return rc;
}

int
prm_run(struct runner *run, struct bat *bat, struct cost *cost, int32_t max_len,
    uint64_t budget_ns, struct prm_result *ret)
{
    struct prm p = { .cost = cost };
    uint64_t t0 = clk_now_ns();
    int rc = prm_begin(&p, run, bat);

    if (rc != 0)
        return rc;
    rc = prm_shapes_run(&p, max_len, t0 + budget_ns);
    free(p.table);
    if (rc == 0 && p.n_decode + p.n_prefill >= PRM_FEW && p.n_prefill >= PRM_FEW_PREFILL)
        cost_trust(cost);
    ret->n_shape = p.n_decode + p.n_prefill;
    ret->ns = clk_now_ns() - t0;
    return rc;
}
