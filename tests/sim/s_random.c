/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Random workloads with every way to run them: steps ahead 0 to 4, graphs, prefix cache,
 * host blocks, pools so small that sequences preempt each other, priorities, samples,
 * penalties, salts and users, stops by id and by string, cancels, deadlines, a gate that
 * reads late, a device that is fast, slow or both in turn. All structures are checked
 * after each poll, and every answer equals the simple loop's (ref.h) to the bit.
 *
 * Most steps use the null model; a smaller share uses a tiny model on the cpu backend,
 * whose tokens depend on every byte of KV. $FDD_SIM_STEPS: number of engine steps in all.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/ref.h"

#define N_CONTENT     500
#define N_CONTENT_CPU 60
#define CPU_SHARE     8 /* one step in this many uses the tiny model */

/* Environments: the settings of a run besides the switches. */
static const struct sim_cfg envs[] = {
    /* plenty of room */
    { .max_reqs = 64,
        .max_seqs = 32,
        .max_tokens = 128,
        .max_len = 512,
        .n_block = 400,
        .block_size = 16,
        .chunked = 1,
        .n_penalty = 32 },
    /* one request fits, the rest compete for blocks */
    { .max_reqs = 64,
        .max_seqs = 16,
        .max_tokens = 64,
        .max_len = 256,
        .n_block = 17,
        .block_size = 16,
        .chunked = 1,
        .n_penalty = 3 },
    /* prompts in one piece, a gate that reads late */
    { .max_reqs = 48,
        .max_seqs = 8,
        .max_tokens = 256,
        .max_len = 256,
        .n_block = 40,
        .block_size = 16,
        .chunked = 0,
        .n_penalty = 8,
        .drain_every = 50 },
    /* one token in a step */
    { .max_reqs = 8,
        .max_seqs = 1,
        .max_tokens = 1,
        .max_len = 64,
        .n_block = 8,
        .block_size = 16,
        .chunked = 1,
        .n_penalty = 1 },
    /* odd sizes, few partial prompts, reserves */
    { .max_reqs = 32,
        .max_seqs = 24,
        .max_tokens = 31,
        .max_len = 200,
        .n_block = 26,
        .block_size = 16,
        .chunked = 1,
        .n_penalty = 2,
        .capture = "1,3,5,7,9,20",
        .sch = { .max_partial = 2,
            .max_long = 1,
            .long_threshold = 50,
            .reserve_blocks = 3,
            .decode_blocks = 2,
            .fcfs = 1 } },
};

/* KV type of the tiny model in each environment. */
static const int kv_dtypes[] = { FDK_F32, FDK_F32, FDK_BF16, FDK_F8E4M3, FDK_I8 };

/* Windows of the tiny model's two layers. */
static void
set_windows(struct mdl_program *p, int32_t first, int32_t second)
{
    for (int32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == MDL_OP_ATTENTION)
            p->op[i].window = p->op[i].layer == 0 ? first : second;
}

static void
window_and_none(struct mdl_program *p)
{
    set_windows(p, 20, 0);
}

static void
none_and_window(struct mdl_program *p)
{
    set_windows(p, 0, 33);
}

static void
one_window(struct mdl_program *p)
{
    set_windows(p, 7, 7);
}

static void
two_windows(struct mdl_program *p)
{
    set_windows(p, 50, 9);
}

static void (*const windows[])(struct mdl_program *) = { two_windows, window_and_none,
    none_and_window, one_window, one_window };

static void
submit(struct sim *s, struct sim_rng *g, const struct ref *f, uint32_t n_content)
{
    struct sim_req *r = sim_req(s);

    if (r == NULL)
        return;
    ref_fill(f, r, sim_range(g, 0, n_content - 1));
    r->p.priority = sim_u32(g) % 4 == 0 ? (int32_t)sim_range(g, 0, 4) - 2 : 0;
    r->p.stream_interval = sim_u32(g) % 4 == 0 ? (uint16_t)sim_range(g, 1, 40) : 0;
    r->user = 1000 + (sim_u32(g) % 4 == 0);
    if (sim_u32(g) % 8 == 0)
        r->p.salt[0] = 1;
    if (sim_u32(g) % 16 == 0)
        r->p.ttl_total_ms = sim_range(g, 1, 200);
    if (sim_u32(g) % 16 == 0)
        r->p.ttl_queue_ms = sim_range(g, 1, 100);
    sim_submit(s, r, NULL);
}

struct sums {
    uint64_t steps, done, errors, preempted, late, graph, hit, in;
};

/* Runs `steps` engine steps, then goes on until no request is open. */
static void
run(struct sim *s, struct sim_rng *g, struct ref *f, uint64_t steps, uint32_t n_content,
    struct sums *sum)
{
    const struct engine *e = s->pip->eng;
    uint32_t rate = s->cfg.max_seqs > 1 ? 20 : 5;

    ref_watch(f, s);
    for (uint64_t i = 0; e->epoch < steps; i++) {
        SIM_CHECK(i < steps * 1000 + 100000);
        if (s->n_open == 0 || (i / 200 % 3 != 2 && sim_u32(g) % 100 < rate))
            submit(s, g, f, n_content);
        if (sim_u32(g) % 50 == 0)
            sim_cancel_some(s, g, 8);
        if (sim_u32(g) % 500 == 0)
            sim_cancel_some(s, g, 1);
        (void)sim_poll(s);
        sim_check_errors(s);
    }
    sim_drain(s);
    sum->steps += e->epoch;
    sum->done += s->n_done;
    sum->errors += s->n_error;
    sum->preempted += e->sch->n_preempted;
    sum->late += cnt_get(&s->cnt->w.rows_discarded);
    sum->graph += s->run->n_graph;
    sum->hit += e->kv->n_hit;
    sum->in += e->kv->n_in;
}

static void
draw(struct sim_rng *g, struct sim_cfg *c, unsigned turn)
{
    c->depth = (int32_t)(turn % 5);
    c->graph = turn / 5 % 2;
    c->prefix = turn / 10 % 2;
    c->n_host = c->prefix && sim_u32(g) % 2 ? (int32_t)sim_range(g, 1, 40) : 0;
    c->exec = sim_u32(g) % 8 == 0 ? FDK_EXEC_INLINE : FDK_EXEC_DEFER;
    c->pace = (enum sim_pace)sim_range(g, 0, 2);
    c->seed = sim_u32(g);
    c->lazy = sim_u32(g) % 2;
    /* these depend on the clock too */
    c->learn = sim_u32(g) % 8 == 0;
    if (c->learn && sim_u32(g) % 2 == 0)
        c->sch.itl_target_ns = 20000;
    c->delay_ns = sim_u32(g) % 4 == 0 ? 1000 : 0;
}

static void
report(const char *what, const struct sums *m)
{
    (void)printf("  %s: %llu steps, %llu done, %llu errors, %llu preempted, %llu late "
                 "rows, %llu replays, %llu blocks found, %llu brought back\n",
        what, (unsigned long long)m->steps, (unsigned long long)m->done,
        (unsigned long long)m->errors, (unsigned long long)m->preempted,
        (unsigned long long)m->late, (unsigned long long)m->graph,
        (unsigned long long)m->hit, (unsigned long long)m->in);
    /* the workload covered its cases */
    SIM_CHECK(m->done > m->steps / 200 && m->graph > 0 && m->late > 0);
    SIM_CHECK(m->steps < 20000 || (m->preempted > 0 && m->hit > 0 && m->in > 0));
}

static uint64_t
total(void)
{
    const char *v = getenv("FDD_SIM_STEPS");

#ifdef FDD_SANITIZED
    return v != NULL ? strtoull(v, NULL, 10) : 10000;
#else
    return v != NULL ? strtoull(v, NULL, 10) : 60000;
#endif
}

/* Every environment with every switch in turn: 100 runs cover all. */
static void
workloads(struct sim_rng *g, uint64_t steps, const struct ref_cfg *rc,
    const char *model_dir, int windowed, const char *what)
{
    const size_t n_env = sizeof(envs) / sizeof(envs[0]);
    struct ref *f[sizeof(envs) / sizeof(envs[0])];
    uint64_t each = steps / 100 < 2000 ? steps / 100 + 1 : 2000;
    struct sums sum = { 0 };

    for (size_t i = 0; i < n_env; i++) {
        struct ref_cfg c = *rc;
        struct sim_cfg like = envs[i];

        like.model_dir = model_dir;
        like.kv_dtype = model_dir != NULL ? kv_dtypes[i] + 1 : 0;
        like.edit = windowed ? windows[i] : NULL;
        c.max_prompt = (uint32_t)like.max_len - 1;
        if (model_dir != NULL && c.max_prompt > 100)
            c.max_prompt = 100;
        f[i] = ref_new(&like, &c);
    }
    for (unsigned turn = 0; sum.steps < steps || turn < 20; turn++) {
        size_t i = turn / 20 % n_env;
        struct sim_cfg c = envs[i];
        struct sim *s;

        c.model_dir = model_dir;
        c.kv_dtype = model_dir != NULL ? kv_dtypes[i] + 1 : 0;
        c.check_tokens = model_dir == NULL;
        c.edit = windowed ? windows[i] : NULL;
        if (windowed && i == 1) /* for two groups, one of which has too few blocks */
            c.n_block = 12;
        draw(g, &c, turn);
        s = sim_new(&c);
        run(s, g, f[i], each, rc->n_content, &sum);
        sim_free(s);
    }
    report(what, &sum);
    for (size_t i = 0; i < n_env; i++)
        ref_free(f[i]);
}

static void
e9_e10_random_null(struct sim_rng *g)
{
    const struct ref_cfg rc = { .ask = REF_ALL,
        .n_content = N_CONTENT,
        .max_new = 60,
        .seed = 1 };

    workloads(g, total() - total() / CPU_SHARE, &rc, NULL, 0, "null model");
}

static void
e9_e10_random_cpu(struct sim_rng *g)
{
    const struct ref_cfg rc = { .ask = REF_ALL & ~REF_TEXT,
        .n_content = N_CONTENT_CPU,
        .max_new = 40,
        .seed = 2 };
    char dir[64];

    sim_model(dir);
    workloads(g, total() / CPU_SHARE, &rc, dir, 0, "tiny model");
    sim_model_rm(dir);
}

/* KV groups with windows drop blocks; the simple loop keeps all. */
static void
e9_e10_random_windows(struct sim_rng *g)
{
    const struct ref_cfg rc = { .ask = REF_ALL & ~REF_TEXT,
        .n_content = N_CONTENT_CPU,
        .max_new = 40,
        .seed = 3 };
    char dir[64];

    sim_model(dir);
    workloads(g, total() / CPU_SHARE, &rc, dir, 1, "windows");
    sim_model_rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(e9_e10_random_null),
        SIM_TEST(e9_e10_random_cpu),
        SIM_TEST(e9_e10_random_windows),
    };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
