/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps measured operation by operation: the sums, results computed meanwhile, synthetic
 * steps, and the file of the measured peak.
 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/worker/admin_priv.h"
#include "daemon/worker/profile.h"
#include "daemon/worker/worker.h"
#include "tests/sim/sim.h"
#include "tests/test_device.h"

#define N_ASK  6
#define N_STEP 10

static char model[64];

static struct sim_cfg
small(int depth, int graph, enum fdk_exec exec)
{
    return (struct sim_cfg){ .max_reqs = 16,
        .max_seqs = 8,
        .max_tokens = 48,
        .max_len = 256,
        .n_block = 60,
        .block_size = 16,
        .chunked = 1,
        .threads = 2,
        .depth = depth,
        .graph = graph,
        .lazy = 1,
        .exec = exec,
        .prefix = 1,
        .n_host = 8,
        .n_penalty = 4,
        .model_dir = model };
}

static struct sim_req *
ask(struct sim *s, uint32_t i, uint32_t max_new)
{
    struct sim_req *r = sim_req(s);
    struct sim_rng g = { 77 + i };

    r->n_prompt = 40 + 9 * i;
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(&g, 3, 258);
    r->p.max_new = max_new;
    r->p.seed = i;
    r->p.temperature = i % 2 ? 1 : 0;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 3;
    if (i % 3 == 0)
        r->p.presence_penalty = 0.4f;
    sim_submit(s, r, NULL);
    return r;
}

/* Answers of the requests, and the number of prompt tokens found in the cache. */
struct got {
    uint32_t n[N_ASK], id[N_ASK][64];
    uint64_t lp[N_ASK];
    uint64_t hits;
};

static void
all(struct sim *s, struct got *ret)
{
    uint64_t hits = s->pip->eng->kv->n_hit;
    struct sim_req *r[N_ASK];

    memset(ret, 0, sizeof(*ret));
    for (uint32_t i = 0; i < N_ASK; i++)
        r[i] = ask(s, i, 30 + i);
    sim_drain(s);
    for (uint32_t i = 0; i < N_ASK; i++) {
        SIM_CHECK(r[i]->code == 0 && r[i]->s[0].n_ids <= 64);
        ret->n[i] = r[i]->s[0].n_ids;
        memcpy(ret->id[i], r[i]->s[0].ids, ret->n[i] * 4u);
        ret->lp[i] = r[i]->s[0].lp_hash;
    }
    ret->hits = s->pip->eng->kv->n_hit - hits;
    /* for the hang check: the last step and the time it was expected to take */
    SIM_CHECK(s->seg->w.beat.beats > 0 && s->seg->w.beat.step_began_ns > 0);
    SIM_CHECK(s->seg->w.beat.step_expect_ns > 0);
}

static void
same(const struct got *a, const struct got *b)
{
    SIM_CHECK(memcmp(a->n, b->n, sizeof(a->n)) == 0);
    SIM_CHECK(memcmp(a->id, b->id, sizeof(a->id)) == 0);
    SIM_CHECK(memcmp(a->lp, b->lp, sizeof(a->lp)) == 0);
}

static struct prf *
begin(struct sim *s, int32_t n_step, const struct bat_synth *made)
{
    struct prf *p = NULL;

    SIM_CHECK(prf_new(s->run, n_step, made, &p) == 0);
    SIM_CHECK(eng_profile(s->pip->eng, p) == 0);
    SIM_CHECK(eng_profile(s->pip->eng, p) == -EBUSY);
    return p;
}

static void
finish(struct sim *s)
{
    const struct lnk_beat *b = &s->seg->w.beat;

    for (int i = 0; !eng_profile_ready(s->pip->eng); i++) {
        (void)sim_poll(s);
        /* a measured step may take long: it must not count as hung */
        SIM_CHECK(eng_profile_ready(s->pip->eng) || b->activity == LNK_ACT_PROFILE);
        SIM_CHECK(i < 1000000);
    }
    SIM_CHECK(b->activity == LNK_ACT_SERVE);
}

/* Number of steps that ran the operations of a tail; it must be equal for all of them. */
static int32_t
tail_steps(const struct prf *p, enum mdl_tail tail)
{
    int32_t n = -1;

    for (int32_t i = 0; i < p->run->prog->n_op; i++) {
        if (p->run->prog->op[i].tail != tail)
            continue;
        SIM_CHECK(n < 0 || p->line[i].n == n);
        n = p->line[i].n;
    }
    SIM_CHECK(n >= 0);
    return n;
}

/* Number of measured steps that ran line i. A step without outputs
 * ends with the last attention. */
static int32_t
line_steps(const struct prf *p, int32_t i)
{
    int32_t n_op = p->run->prog->n_op;
    int32_t tokens = tail_steps(p, MDL_TAIL_TOKENS),
            outputs = tail_steps(p, MDL_TAIL_OUTPUTS);
    const struct mdl_op *op = i < n_op ? &p->run->prog->op[i] : NULL;

    SIM_CHECK(tokens + outputs <= p->measured.n);
    if (op == NULL)
        return i == n_op + RUN_LINE_DELAY && p->run->delay_ns == 0 ? 0 : p->measured.n;
    if (op->tail != MDL_TAIL_BOTH)
        return op->tail == MDL_TAIL_TOKENS ? tokens : outputs;
    return op->rows == MDL_PER_TOKEN ? p->measured.n : tokens + outputs;
}

/* Every operation is measured in every step that has it, and the lines
 * add up to the steps' time. */
static void
check_sums(const struct prf *p)
{
    int32_t n_op = p->run->prog->n_op;
    const struct prf_steps *m = &p->measured;
    uint64_t sum = 0;

    SIM_CHECK(p->n_line == n_op + RUN_LINE__N);
    for (int32_t i = 0; i < p->n_line; i++) {
        const struct prf_line *l = &p->line[i];

        SIM_CHECK(l->n == line_steps(p, i));
        SIM_CHECK(l->min_ns * (uint64_t)l->n <= l->sum_ns);
        sum += l->sum_ns;
    }
    SIM_CHECK(fabs((double)sum - (double)m->sum_ns) <= 0.05 * (double)m->sum_ns);
    SIM_CHECK(sum > 0 && m->n_graph == 0 && m->min_ns * (uint64_t)m->n <= m->sum_ns);
}

/* ---- steps of requests ---------------------------------------------------------------------- */

static uint32_t
n_profiled(const struct sim *s)
{
    uint32_t n = 0;

    for (uint64_t i = 1; i <= trc_n_step(s->trc_seg); i++) {
        struct trc_step t;

        SIM_CHECK(trc_get_step(s->trc_seg, i, &t));
        SIM_CHECK((t.flags & TRC_DONE) != 0);
        SIM_CHECK((t.flags & TRC_PROFILED) == 0 || (t.flags & TRC_GRAPH) == 0);
        n += (t.flags & TRC_PROFILED) != 0;
    }
    return n;
}

static void
live(int depth, int graph, enum fdk_exec exec)
{
    struct sim_cfg c = small(depth, graph, exec);
    struct sim *s = sim_new(&c), *t;
    struct got want, got;
    struct prf *p;

    all(s, &want);
    SIM_CHECK(n_profiled(s) == 0);
    sim_free(s);
    t = sim_new(&c);
    p = begin(t, N_STEP, NULL);
    all(t, &got);
    finish(t);
    same(&want, &got);
    check_sums(p);
    SIM_CHECK(p->measured.n == N_STEP && p->plain.n == N_STEP && p->n_busy == 0);
    SIM_CHECK(p->plain.n_graph == (graph ? N_STEP : 0));
    SIM_CHECK(n_profiled(t) == N_STEP);
    SIM_CHECK(p->measured.tok >= p->measured.row && p->measured.pad >= p->measured.tok);
    SIM_CHECK(p->measured.ctx > 0 && p->measured.pair >= p->measured.tok);
    (void)prf_free(p);
    all(t, &got);
    same(&want, &got);
    sim_free(t);
}

static void
live_steps_compute_the_same(struct sim_rng *g)
{
    (void)g;
    for (int depth = 0; depth <= 2; depth += 2)
        for (int graph = 0; graph <= 1; graph++) {
            live(depth, graph, FDK_EXEC_THREAD);
            live(depth, graph, FDK_EXEC_DEFER);
        }
}

/* Without steps it waits. When stopped it returns the measurements so far,
 * and later steps are normal. */
static void
live_stopped(struct sim_rng *g)
{
    struct sim_cfg c = small(2, 1, FDK_EXEC_DEFER);
    struct sim *s = sim_new(&c);
    struct prf *p = begin(s, 1000, NULL);
    struct sim_req *r;

    (void)g;
    for (int i = 0; i < 50; i++)
        (void)sim_poll(s);
    SIM_CHECK(!eng_profile_ready(s->pip->eng));
    SIM_CHECK(s->seg->w.beat.activity == LNK_ACT_PROFILE);
    prf_stop(p);
    SIM_CHECK(!eng_profile_ready(s->pip->eng));
    finish(s);
    SIM_CHECK(p->measured.n == 0 && p->plain.n == 0 && n_profiled(s) == 0);
    (void)prf_free(p);

    p = begin(s, 1000, NULL);
    r = ask(s, 1, 60);
    while (p->measured.n < 5)
        (void)sim_poll(s);
    prf_stop(p);
    finish(s);
    check_sums(p);
    SIM_CHECK(p->measured.n >= 5 && p->measured.n < 40 && p->plain.n == 0);
    SIM_CHECK(!r->terminal);
    sim_drain(s);
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == 60);
    SIM_CHECK(n_profiled(s) == (uint32_t)p->measured.n);
    (void)prf_free(p);
    sim_free(s);
}

/* A device's own delay has a line; steps in flight at the begin are not measured. */
static void
live_begins_between_steps(struct sim_rng *g)
{
    struct sim_cfg c = small(2, 0, FDK_EXEC_THREAD);
    struct sim *s;
    struct prf *p;

    (void)g;
    c.delay_ns = 300000;
    s = sim_new(&c);
    (void)ask(s, 2, 60);
    while (s->pip->eng->n_flight < 2)
        (void)sim_poll(s);
    p = begin(s, 6, NULL);
    sim_drain(s);
    finish(s);
    check_sums(p);
    SIM_CHECK(p->measured.n == 6);
    SIM_CHECK(p->line[s->run->prog->n_op + RUN_LINE_DELAY].min_ns >= 300000);
    (void)prf_free(p);
    sim_free(s);
}

/* A step hangs. A profile asked for meanwhile does not begin, and one whose time is over
 * does not keep the gate from seeing it. */
static void
live_step_hangs(struct sim_rng *g)
{
    (void)g;
    for (int depth = 1; depth <= 2; depth++) {
        struct sim_cfg c = small(depth, 0, FDK_EXEC_DEFER);
        struct sim *s;
        const struct lnk_beat *b;
        struct prf *p;

        c.pace = SIM_PACE_NONE;
        s = sim_new(&c);
        b = &s->seg->w.beat;
        (void)ask(s, 0, 20);
        while (s->pip->eng->n_flight == 0)
            (void)sim_poll(s);
        p = begin(s, 2, NULL);
        for (int i = 0; i < 10; i++)
            (void)sim_poll(s);
        SIM_CHECK(b->activity != LNK_ACT_PROFILE);
        while (p->n_out == 0) { /* begins with the next step */
            (void)sim_device(s, 1000);
            (void)sim_poll(s);
        }
        SIM_CHECK(b->activity == LNK_ACT_PROFILE);
        eng_profile_stop(s->pip->eng, p);
        for (int i = 0; i < 10; i++) {
            SIM_CHECK(b->activity == LNK_ACT_SERVE);
            (void)sim_poll(s);
        }
        SIM_CHECK(p->n_out > 0 && !eng_profile_ready(s->pip->eng));
        while (!eng_profile_ready(s->pip->eng) || s->n_open > 0) {
            (void)sim_device(s, 1000);
            (void)sim_poll(s);
        }
        SIM_CHECK(p->measured.n > 0 && b->activity == LNK_ACT_SERVE);
        (void)prf_free(p);
        sim_free(s);
    }
}

/* The engine runs in its own thread and is controlled from here. */
static void
live_threads(struct sim_rng *g)
{
    struct sim_cfg c = small(2, 1, FDK_EXEC_THREAD);
    const struct bat_synth made = { .n_decode = 3, .context = 50, .n_prefill = 5 };
    uint64_t until = clk_now_ns() + 60 * CLK_S;
    struct sim *s;
    struct prf *p;

    (void)g;
    c.real_clock = 1;
    s = sim_new(&c);
    SIM_CHECK(pip_start(s->pip) == 0);
    for (int round = 0; round < 4; round++) {
        if (round % 2 == 0)
            for (uint32_t i = 0; i < N_ASK; i++)
                (void)ask(s, i, 40);
        p = begin(s, 5, round % 2 ? &made : NULL);
        pip_ring_engine(s->pip);
        while (!eng_profile_ready(s->pip->eng) || s->n_open > 0) {
            sim_records(s);
            SIM_CHECK(clk_now_ns() < until);
            clk_sleep_ns(100000);
        }
        check_sums(p);
        SIM_CHECK(p->measured.n == 5 && p->plain.n == 5 && p->n_busy == 0);
        (void)prf_free(p);
    }
    (void)lnk_claim(&s->gate, 0, LNK_T_DRAIN, 0, 0, 0);
    lnk_flush(&s->gate);
    pip_join(s->pip);
    sim_free(s);
}

/* ---- synthetic steps -------------------------------------------------------------------------------- */

static void
made_leaves_no_trace(struct sim_rng *g)
{
    const struct bat_synth shapes[] = { { .n_decode = 1, .context = 1 },
        { .n_decode = 7, .context = 100, .n_prefill = 41 },
        { .context = 1, .n_prefill = 48 }, { .n_decode = 3, .context = 256 } };

    (void)g;
    for (int k = 0; k < 8; k++) {
        struct sim_cfg c =
            small(k % 2 * 2, k / 2 % 2, k < 4 ? FDK_EXEC_THREAD : FDK_EXEC_DEFER);
        struct sim *s = sim_new(&c);
        struct got want, cold, warm;

        all(s, &want);
        all(s, &cold);
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            const struct bat_synth *m = &shapes[i];
            uint64_t n = trc_n_step(s->trc_seg);
            struct prf *p = begin(s, 3, m);
            double rows = m->n_decode + (m->n_prefill > 0);

            finish(s);
            check_sums(p);
            SIM_CHECK(p->measured.n == 3 && p->plain.n == 3 && !p->interrupted);
            SIM_CHECK(p->plain.n_graph == (c.graph ? 3 : 0));
            SIM_CHECK(p->measured.tok == 3.0 * (m->n_decode + m->n_prefill));
            SIM_CHECK(p->measured.row == 3 * rows && p->measured.out == 3 * rows);
            SIM_CHECK(p->measured.ctx == 3.0 * (m->n_decode * m->context + m->n_prefill));
            SIM_CHECK(trc_n_step(s->trc_seg) == n);
            /* after the last attention a prompt has only its output rows */
            SIM_CHECK(
                tail_steps(p, m->n_prefill > 0 ? MDL_TAIL_OUTPUTS : MDL_TAIL_TOKENS) == 3);
            (void)prf_free(p);
            all(s, &warm);
            same(&want, &warm);
            SIM_CHECK(warm.hits == cold.hits && warm.hits > 10);
        }
        SIM_CHECK(s->run->n_graph + s->run->n_eager == trc_n_step(s->trc_seg));
        sim_free(s);
    }
}

/* A synthetic step reads blocks that others cached and does not write them;
 * missing memory is mapped. */
static void
made_reads_the_pool(struct sim_rng *g)
{
    struct sim_cfg c = small(0, 0, FDK_EXEC_THREAD);
    const struct bat_synth made = { .n_decode = 7, .context = 128, .n_prefill = 41 };
    struct sim *s = sim_new(&c);
    size_t bytes = (size_t)s->run->kv[0].block_bytes, n = 1;
    unsigned char *before;
    struct got got;
    struct prf *p;

    (void)g;
    all(s, &got);
    before = mem_zalloc((size_t)(c.n_block + 1) * bytes);
    memcpy(before, run_root(s->run)->d_kv, (size_t)(c.n_block + 1) * bytes);
    p = begin(s, 2, &made);
    for (int32_t i = 0; i < 7 * 8 + 3; i++) {
        int32_t b = p->table[i / 8 * s->run->dims.stride + i % 8];

        SIM_CHECK(b >= 1 && b <= c.n_block);
        for (int32_t k = 0; k < i; k++)
            SIM_CHECK(b != p->table[k / 8 * s->run->dims.stride + k % 8]);
    }
    finish(s);
    for (int32_t b = 1; b <= c.n_block; b++) {
        if (kv_is_empty(s->pip->eng->kv, b))
            continue;
        SIM_CHECK(memcmp(before + (size_t)b * bytes,
                      run_root(s->run)->d_kv + (size_t)b * bytes, bytes) == 0);
        n++;
    }
    SIM_CHECK(n > 10);
    free(before);
    (void)prf_free(p);
    sim_free(s);
}

static void
made_refused_and_interrupted(struct sim_rng *g)
{
    struct sim_cfg c = small(2, 1, FDK_EXEC_DEFER);
    const struct bat_synth made = { .n_decode = 4, .context = 64 };
    struct sim *s = sim_new(&c);
    struct sim_req *r;
    struct prf *p;

    (void)g;
    (void)ask(s, 0, 40);
    (void)ask(s, 1, 40);
    while (s->pip->eng->sch->running.n < 2)
        (void)sim_poll(s);
    p = begin(s, 3, &made);
    finish(s);
    SIM_CHECK(p->n_busy == 2 && p->measured.n == 0 && s->n_open == 2);
    (void)prf_free(p);
    sim_drain(s);

    p = begin(s, PRF_MAX_STEPS, &made);
    while (p->measured.n < 4)
        (void)sim_poll(s);
    r = ask(s, 2, 20);
    finish(s);
    SIM_CHECK(p->interrupted && p->measured.n >= 4 && p->measured.n < 100);
    check_sums(p);
    (void)prf_free(p);
    sim_drain(s);
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == 20);

    p = begin(s, PRF_MAX_STEPS, &made);
    while (p->measured.n < 1)
        (void)sim_poll(s);
    prf_stop(p);
    finish(s);
    SIM_CHECK(!p->interrupted && p->measured.n < 100);
    (void)prf_free(p);

    /* during the last step: nothing is left to be interrupted */
    p = begin(s, 2, &made);
    while (p->n_taken[0] + p->n_taken[1] < 4)
        (void)sim_poll(s);
    SIM_CHECK(p->n_out == 1);
    r = ask(s, 3, 5);
    finish(s);
    SIM_CHECK(p->measured.n == 2 && p->plain.n == 2 && !p->interrupted);
    (void)prf_free(p);
    sim_drain(s);
    SIM_CHECK(r->code == 0);
    sim_free(s);
}

static void
made_shapes_refused(struct sim_rng *g)
{
    static const struct {
        int32_t n_decode, context, n_prefill;
        const char *why;
    } bad[] = {
        { 0, 10, 0, "needs rows" }, { -1, 10, 0, "needs rows" },
        { 9, 10, 0, "max_num_seqs = 8" }, { 8, 10, 1, "max_num_seqs = 8" },
        { 7, 10, 42, "max_num_batched_tokens = 48" },
        { INT32_MAX, 10, INT32_MAX, "max_num_seqs" }, { 1, 257, 0, "context 257" },
        { 1, 0, 0, "context 0" },
        { 8, 128, 0, "64 KV blocks, the pool has 60" }, /* of 16 tokens */
    };
    struct sim_cfg c = small(0, 0, FDK_EXEC_INLINE);
    struct bat_synth fits = { .n_decode = 7, .context = 128, .n_prefill = 41 };
    struct sim *s = sim_new(&c);
    char err[512];

    (void)g;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct bat_synth m = { .n_decode = bad[i].n_decode,
            .context = bad[i].context,
            .n_prefill = bad[i].n_prefill };

        SIM_CHECK(prf_synth_check(s->run, &m, c.max_len, err, sizeof(err)) == -EINVAL);
        if (strstr(err, bad[i].why) == NULL)
            sim_fail(__FILE__, __LINE__, err);
    }
    fits.n_prefill = 41;
    SIM_CHECK(bat_synth_blocks(&s->run->dims, &fits) == 59);
    SIM_CHECK(prf_synth_check(s->run, &fits, c.max_len, err, sizeof(err)) == 0);
    SIM_CHECK(prf_synth_check(s->run, &fits, 40, err, sizeof(err)) == -EINVAL);
    fits.context = 20;
    SIM_CHECK(prf_synth_check(s->run, &fits, 40, err, sizeof(err)) == -EINVAL);
    SIM_CHECK(strstr(err, "prefill 41") != NULL);
    sim_free(s);
}

/* The peaks of a group of GPUs are not measured again: the old ones are no answer. */
static void
measured_once(struct sim_rng *g)
{
    struct worker *w = mem_aligned(128, sizeof(*w));
    json_t *q = json_pack("{s:b}", "measure", 1), *o;

    (void)g;
    w->peak_fixed = 1;
    o = adm_profile(w, q, -1);
    SIM_CHECK(json_is_false(json_object_get(o, "ok")));
    SIM_CHECK(strstr(json_string_value(json_object_get(o, "error")), "are measured only"));
    json_decref(o);
    json_decref(q);
    free(w);
}

/* ---- measured peak ------------------------------------------------------------------------------------ */

static int n_probe, probe_rc;

static int
fake_probe(struct fdk_ctx *ctx, int dev, enum fdk_probe what, enum fdk_dtype t, double *ret)
{
    (void)ctx, (void)dev;
    n_probe++;
    if (probe_rc != 0)
        return probe_rc;
    if (what == FDK_PROBE_FLOPS && t == FDK_F16)
        return -ENOTSUP;
    *ret = what == FDK_PROBE_READ ? 1e10 : t == FDK_F32 ? 2e11 : 4e11;
    return 0;
}

static void
put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    SIM_CHECK(f != NULL);
    SIM_CHECK(fputs(text, f) >= 0 && fclose(f) == 0);
}

struct peak_fix {
    struct fdk_ops k;
    struct fdk_ctx *ctx;
    struct peak_cache cc;
    char dir[64], cache[80];
    struct peak c;
};

static void
peak_open(struct peak_fix *f)
{
    struct fdk_open_args oa = { .n_device = 1, .n_thread = 1, .max_token = 8 };
    char err[256];

    td_open(&oa);
    memset(f, 0, sizeof(*f));
    f->k = fdk_ops_cpu;
    f->k.probe = fake_probe;
    SIM_CHECK(f->k.open(&oa, &f->ctx, err, sizeof(err)) == 0);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/fdd-peak-XXXXXX");
    SIM_CHECK(mkdtemp(f->dir) != NULL);
    (void)snprintf(f->cache, sizeof(f->cache), "%s/cache", f->dir);
    n_probe = probe_rc = 0;
}

/* Measures as another process would. Returns the number of probes it made. */
static int
peak_again(struct peak_fix *f, int busy)
{
    int n = n_probe;

    f->cc = (struct peak_cache){ 0 };
    (void)snprintf(f->cc.dir, sizeof(f->cc.dir), "%s", f->cache);
    SIM_CHECK(peak_get(&f->cc, &f->k, f->ctx, td_dev(), busy, 0, &f->c) == 0);
    SIM_CHECK(f->c.read_bps == 1e10 && f->c.flops[FDK_F32] == 2e11);
    SIM_CHECK(f->c.flops[FDK_BF16] == 4e11 && f->c.flops[FDK_F16] == 0);
    return n_probe - n;
}

static void
peaks_kept(struct sim_rng *g)
{
    static const char *const bad[] = { "", "{", "[]", "{\"version\":2}",
        "{\"version\":1,\"backend\":\"cuda\"}" };
    struct peak_fix f;
    struct peak_key key, other;
    struct peak c;
    char path[640], text[4096], err[256], *at;
    FILE *in;
    size_t n;

    (void)g;
    peak_open(&f);
    SIM_CHECK(peak_again(&f, 1) == 4); /* while the device has other work: not saved */
    SIM_CHECK(f.cc.have == 0 && f.cc.file[0] == '\0');
    SIM_CHECK(peak_again(&f, 0) == 4 && strcmp(f.cc.from, "measured") == 0);
    SIM_CHECK(peak_get(&f.cc, &f.k, f.ctx, td_dev(), 0, 0, &c) == 0 && n_probe == 8);
    SIM_CHECK(peak_again(&f, 0) == 0 && strcmp(f.cc.from, "file") == 0);
    SIM_CHECK(peak_get(&f.cc, &f.k, f.ctx, td_dev(), 0, 1, &c) == 0 && n_probe == 12);
    SIM_CHECK(strcmp(f.cc.from, "measured") == 0 && f.cc.have);
    (void)snprintf(path, sizeof(path), "%s", f.cc.file);
    SIM_CHECK(strncmp(path, f.cache, strlen(f.cache)) == 0);

    /* impossible numbers, another key, another version, no JSON */
    in = fopen(path, "r");
    SIM_CHECK(in != NULL);
    n = fread(text, 1, sizeof(text) - 1, in);
    (void)fclose(in);
    text[n] = '\0';
    at = strstr(text, "10000000000");
    SIM_CHECK(at != NULL);
    at[0] = '-';
    put(path, text);
    SIM_CHECK(peak_again(&f, 0) == 4 && peak_again(&f, 0) == 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put(path, bad[i]);
        SIM_CHECK(peak_again(&f, 0) == 4 && peak_again(&f, 0) == 0);
    }
    SIM_CHECK(peak_key(&f.k, f.ctx, td_dev(), &key) == 0);
    other = key;
    other.n_thread++;
    SIM_CHECK(peak_read(path, &other, &c, err, sizeof(err)) == -EINVAL);
    SIM_CHECK(peak_path(f.cache, &other, text, sizeof(text)) == 0);
    SIM_CHECK(strcmp(text, path) != 0);
    SIM_CHECK(peak_read(path, &key, &c, err, sizeof(err)) == 0);
    c.read_bps = NAN;
    SIM_CHECK(unlink(path) == 0);
    SIM_CHECK(peak_read(path, &key, &c, err, sizeof(err)) == -ENOENT);
    (void)rmdir(f.cache);
    (void)rmdir(f.dir);
    f.k.close(f.ctx);
}

/* A folder that cannot be created or written: measured once in each process. */
static void
peaks_without_a_folder(struct sim_rng *g)
{
    struct peak_fix f;
    struct peak c;
    char path[96];

    (void)g;
    peak_open(&f);
    put(f.cache, "");
    SIM_CHECK(peak_again(&f, 0) == 4 && f.cc.warned && f.cc.file[0] == '\0');
    SIM_CHECK(peak_get(&f.cc, &f.k, f.ctx, td_dev(), 0, 0, &c) == 0 && n_probe == 4);
    SIM_CHECK(peak_again(&f, 0) == 4);
    (void)unlink(f.cache);
    (void)snprintf(path, sizeof(path), "%s/x", f.cache);
    (void)snprintf(f.cache, sizeof(f.cache), "%s", path);
    SIM_CHECK(peak_again(&f, 0) == 4 && f.cc.warned);
    /* a failed measurement is reported, and nothing is saved */
    probe_rc = -ENOMEM;
    f.cc = (struct peak_cache){ 0 }; /* with its own folder, not the machine's */
    (void)snprintf(f.cc.dir, sizeof(f.cc.dir), "%s", f.cache);
    SIM_CHECK(peak_get(&f.cc, &f.k, f.ctx, td_dev(), 0, 0, &c) == -ENOMEM && !f.cc.have);
    (void)rmdir(f.dir);
    f.k.close(f.ctx);
}

static void
peaks_where(struct sim_rng *g)
{
    char d[128];

    (void)g;
    SIM_CHECK(peak_dir("/x", d, sizeof(d)) == 0 && strcmp(d, "/x") == 0);
    SIM_CHECK(setenv("CACHE_DIRECTORY", "/a:/b", 1) == 0);
    SIM_CHECK(peak_dir("", d, sizeof(d)) == 0 && strcmp(d, "/a") == 0);
    SIM_CHECK(unsetenv("CACHE_DIRECTORY") == 0);
    SIM_CHECK(setenv("XDG_CACHE_HOME", "/c", 1) == 0);
    SIM_CHECK(peak_dir("", d, sizeof(d)) == 0);
    SIM_CHECK(strcmp(d, geteuid() == 0 ? "/var/cache/fdd" : "/c/fdd") == 0);
    SIM_CHECK(peak_dir("/x", d, 2) == -ENAMETOOLONG);
}

static void
rooflines(struct sim_rng *g)
{
    struct peak c = { .read_bps = 1e9, .flops = { [FDK_F32] = 1e9, [FDK_BF16] = 4e9 } };

    (void)g;
    SIM_CHECK(peak_roofline_ns(&c, 1000, 10, FDK_F32) == 1000);
    SIM_CHECK(peak_roofline_ns(&c, 1000, 3000, FDK_F32) == 3000);
    SIM_CHECK(peak_roofline_ns(&c, 100, 4000, FDK_BF16) == 1000);
    SIM_CHECK(peak_roofline_ns(&c, 100, 4000, FDK_F16) == 4000); /* as fp32 */
}

/* This machine's peak is above 0, and that of the null device is 0. */
static void
probes(struct sim_rng *g)
{
    struct fdk_open_args oa = { .n_device = 1, .n_thread = 2, .max_token = 8 };
    struct fdk_ctx *ctx = NULL;
    char err[256];
    double v = 0;

    td_open(&oa);
    (void)g;
    SIM_CHECK(fdk_ops_cpu.open(&oa, &ctx, err, sizeof(err)) == 0);
    SIM_CHECK(
        fdk_ops_cpu.probe(ctx, td_dev(), FDK_PROBE_READ, FDK_F32, &v) == 0 && v > 1e7);
    SIM_CHECK(
        fdk_ops_cpu.probe(ctx, td_dev(), FDK_PROBE_FLOPS, FDK_F32, &v) == 0 && v > 1e7);
    SIM_CHECK(fdk_ops_cpu.probe(ctx, td_dev(), FDK_PROBE_FLOPS, FDK_BF16, &v) == -ENOTSUP);
    SIM_CHECK(fdk_ops_cpu.probe(ctx, td_dev() + 1, FDK_PROBE_READ, FDK_F32, &v) == -EINVAL);
    fdk_ops_cpu.close(ctx);
    SIM_CHECK(fdk_ops_null.open(&oa, &ctx, err, sizeof(err)) == 0);
    SIM_CHECK(fdk_ops_null.probe(ctx, td_dev(), FDK_PROBE_READ, FDK_F32, &v) == -ENOTSUP);
    fdk_ops_null.close(ctx);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(live_steps_compute_the_same),
        SIM_TEST(live_stopped),
        SIM_TEST(live_begins_between_steps),
        SIM_TEST(live_step_hangs),
        SIM_TEST(live_threads),
        SIM_TEST(made_leaves_no_trace),
        SIM_TEST(made_reads_the_pool),
        SIM_TEST(made_refused_and_interrupted),
        SIM_TEST(made_shapes_refused),
        SIM_TEST(measured_once),
        SIM_TEST(peaks_kept),
        SIM_TEST(peaks_without_a_folder),
        SIM_TEST(peaks_where),
        SIM_TEST(rooflines),
        SIM_TEST(probes),
    };
    int rc;

    sim_model(model);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(model);
    return rc;
}
