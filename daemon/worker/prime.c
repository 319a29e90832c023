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

/* A device that reads weights faster than this is not known; one on the host reads
 * them at this speed at least. */
#define PRM_BYTES_NS      4
#define PRM_HOST_BYTES_NS 10
/* A step that takes longer is measured once: what only its first run does is little
 * of it. */
#define PRM_LONG_NS (10 * CLK_MS)
/* Fewest shapes that tell anything of others. */
#define PRM_FEW         4
#define PRM_FEW_PREFILL 2

struct prm {
    struct runner *run;
    struct bat *bat;
    struct cost *cost;
    struct bat_synth synth;
    int32_t *table;              /* bat_synth.table */
    uint64_t least_ns;           /* of any step, as far as is known */
    uint64_t tok_ns;             /* and of a token, at most */
    int32_t n_decode, n_prefill; /* shapes measured */
};

/* Short ones first: they tell what the others will take. There is a prefill of each range
 * of rows for which a backend chooses how to multiply them: it measures that when they
 * first come, for as long as a step or two take. */
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

/* Each row has blocks of its own. */
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
    uint64_t n_graph = p->run->n_graph, n_eager = p->run->n_eager, t0 = 0, t1 = 0;
    int rc;

    bat_make(p->bat, &p->synth, fresh, rec);
    rec->marks = NULL;
    rc = run_launch(p->run, rec);
    p->run->n_graph = n_graph;
    p->run->n_eager = n_eager;
    if (rc == 0)
        rc = run_collect(p->run, rec, &t0, &t1);
    *ret_ns = t1 - t0;
    return rc;
}

static struct cost_step
prm_cost(const struct bat_synth *m)
{
    return (struct cost_step){ .n_tok = m->n_decode + m->n_prefill,
        .n_ctx = (int64_t)m->n_decode * m->context,
        .n_pair = (int64_t)m->n_prefill * (m->n_prefill + 1) / 2 };
}

static void
prm_learn(struct prm *p, uint64_t ns)
{
    struct cost_step s = prm_cost(&p->synth);

    cost_learn(p->cost, &s, ns);
    p->n_decode += p->synth.n_decode > 0;
    p->n_prefill += p->synth.n_prefill > 0;
    p->tok_ns = ns / (uint64_t)s.n_tok;
    p->least_ns = p->least_ns == 0 || p->n_decode + p->n_prefill == 1 ? ns : p->least_ns;
}

/* What a shape will take, rather too much: a device takes no more for a token of a
 * larger step than of a smaller one. */
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

int
prm_run(struct runner *run, struct bat *bat, struct cost *cost, int32_t max_len,
    uint64_t budget_ns, struct prm_result *ret)
{
    struct prm p = { .run = run, .bat = bat, .cost = cost };
    uint64_t t0 = clk_now_ns();
    int rc;

    OBJ_CHECK(run, RUN_MAGIC);
    p.least_ns = run_root(run)->mem.weights /
        (run->k->on_host ? PRM_HOST_BYTES_NS : PRM_BYTES_NS * 1000);
    p.table =
        mem_array((size_t)(bat_groups(&run->dims) * run->dims.S) * (size_t)run->dims.stride,
            sizeof(*p.table));
    if (p.table == NULL)
        return -ENOMEM;
    p.synth.table = p.synth.own = p.table;
    rc = prm_shapes_run(&p, max_len, t0 + budget_ns);
    free(p.table);
    if (rc == 0 && p.n_decode + p.n_prefill >= PRM_FEW && p.n_prefill >= PRM_FEW_PREFILL)
        cost_trust(cost);
    ret->n_shape = p.n_decode + p.n_prefill;
    ret->ns = clk_now_ns() - t0;
    return rc;
}
