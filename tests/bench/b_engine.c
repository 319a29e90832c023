/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's own work: host time of a step at 256 and 1,024 rows on a null device whose
 * operations cost nothing, the utilization of a device with steps of 1 ms, the engine
 * thread's cost of steps of eight ranks compared with one, and with the demo model at
 * batch 1 the time of a step beyond the model's own time, on the pipeline's real threads.
 */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define N_ROW  256
#define N_BUSY 1000
#define N_STEP 2000
#define N_TOK  500
#define N_RUN  5

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void
show(const char *what, double *v, size_t n, const char *goal)
{
    qsort(v, n, sizeof(*v), by_value);
    (void)printf("%-44s p50 %8.2f us  p99 %8.2f us  %s\n", what, v[n / 2] / 1e3,
        v[n * 99 / 100] / 1e3, goal);
}

static struct sim_req *
ask(struct sim *s, uint32_t n_prompt, uint32_t max_new, unsigned flags)
{
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = n_prompt;
    r->prompt = mem_array(n_prompt, 4);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = 20 + i % 200;
    r->p.max_new = max_new;
    r->p.flags |= FDP_F_IGNORE_EOS | flags;
    sim_submit(s, r, NULL);
    return r;
}

/* Prints a value, its limit, and their ratio. */
static void
row(const char *what, double v, double limit, const char *unit)
{
    (void)printf("%-44s %8.2f %s  limit %6.0f %s  ratio %5.2f\n", what, v, unit, limit,
        unit, v / limit);
}

static struct sim_cfg
wide(int n_row, int depth)
{
    return (struct sim_cfg){ .max_reqs = n_row,
        .max_seqs = n_row,
        .max_tokens = 2048,
        .max_len = 4096,
        .n_block = n_row * 40,
        .block_size = 64,
        .chunked = 1,
        .graph = 1,
        .real_clock = 1,
        .depth = depth,
        .exec = FDK_EXEC_THREAD,
        .prefix = 1 };
}

/* Time to pick, plan, launch and collect; without the device and egress. */
static void
host_work(int n_row, unsigned flags, const char *text, double limit)
{
    struct sim_cfg cfg = wide(n_row, 2);
    struct sim *s = sim_new(&cfg);
    const struct cnt_worker *c = &s->cnt->w;
    static double egr[N_STEP], host[N_STEP];
    uint64_t steps, ns, first;
    char what[96];
    int n = 0, n_host = 0;

    for (int i = 0; i < n_row; i++)
        (void)ask(s, 16, N_STEP + 200, flags);
    for (int i = 0; i < 400; i++)
        (void)sim_poll(s);
    SIM_CHECK(s->pip->eng->sch->running.n == n_row);
    steps = cnt_get(&c->steps);
    first = ns = cnt_get(&c->host_ns);
    while (cnt_get(&c->steps) < steps + N_STEP / 2) {
        uint64_t t1, k = cnt_get(&c->steps);

        if (eng_poll(s->pip->eng, clk_now_ns()) == 0)
            (void)eng_wait(s->pip->eng);
        /* between two steps that were collected: all of one step's work */
        if (cnt_get(&c->steps) == k + 1 && n_host < N_STEP)
            host[n_host++] = (double)(cnt_get(&c->host_ns) - ns);
        if (cnt_get(&c->steps) > k)
            ns = cnt_get(&c->host_ns);
        t1 = clk_now_ns();
        if (egr_poll(s->pip->egr, t1) && n < N_STEP)
            egr[n++] = (double)(clk_now_ns() - t1);
        sim_records(s);
    }
    steps = cnt_get(&c->steps) - steps;
    ns = cnt_get(&c->host_ns) - first;
    (void)snprintf(what, sizeof(what), "host work per step, %d rows, %s", n_row, text);
    row(what, (double)ns / (double)steps / 1e3, limit, "us");
    show("  step by step", host, (size_t)n_host, "");
    (void)snprintf(what, sizeof(what), "egress of it, %s", text);
    show(what, egr, (size_t)n, "");
    for (int i = 0; i < n_row; i++)
        sim_cancel(s, &s->reqs[i], FDP_E_CANCELLED);
    sim_drain(s);
    sim_free(s);
}

/* Fraction of the time in which the device runs a step of 1 ms. */
static void
busy(int depth)
{
    struct sim_cfg cfg = wide(N_ROW, depth);
    const struct cnt_worker *c;
    uint64_t t0, steps;
    struct sim *s;
    char what[96];

    cfg.delay_ns = 1000000;
    s = sim_new(&cfg);
    c = &s->cnt->w;
    SIM_CHECK(pip_start(s->pip) == 0);
    for (int i = 0; i < N_ROW; i++)
        (void)ask(s, 16, N_BUSY + 400, 0);
    while (cnt_get(&c->steps) < 100)
        sim_records(s);
    steps = cnt_get(&c->steps);
    t0 = clk_now_ns();
    while (cnt_get(&c->steps) < steps + N_BUSY) {
        sim_records(s);
        clk_sleep_ns(100000);
    }
    steps = cnt_get(&c->steps) - steps;
    t0 = clk_now_ns() - t0;
    (void)snprintf(what, sizeof(what), "device busy, 1 ms steps, %d rows, overlap %d",
        N_ROW, depth);
    row(what, (double)steps * 1e8 / (double)t0, 95, "% ");
    for (int i = 0; i < N_ROW; i++)
        sim_cancel(s, &s->reqs[i], FDP_E_CANCELLED);
    while (s->n_open > 0)
        sim_records(s);
    (void)lnk_claim(&s->gate, 0, LNK_T_DRAIN, 0, 0, 0);
    lnk_flush(&s->gate);
    pip_join(s->pip);
    sim_free(s);
}

/* ---- ranks -------------------------------------------------------------------------- */

static uint64_t
thread_ns(void)
{
    struct timespec t;

    SIM_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * CLK_S + (uint64_t)t.tv_nsec;
}

static void
ranks_model(char dir[64])
{
    char path[96];
    FILE *out;

    (void)snprintf(dir, 64, "/tmp/fdd-bench-XXXXXX");
    SIM_CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    out = fopen(path, "w");
    SIM_CHECK(out != NULL);
    (void)fputs("{\"model_type\":\"llama\",\"hidden_size\":96,\"intermediate_size\":384,"
                "\"num_hidden_layers\":2,\"num_attention_heads\":16,"
                "\"num_key_value_heads\":8,\"head_dim\":32,\"vocab_size\":259,"
                "\"max_position_embeddings\":512,\"torch_dtype\":\"bfloat16\"}",
        out);
    (void)fclose(out);
}

/* Binds a thread to the first processor, or to all others, so that the ranks' work does
 * not use the engine thread's caches, as on a machine with a processor for every rank. */
static void
pin(int first)
{
    cpu_set_t set;

    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return;
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if ((i == 0) == first)
            CPU_SET(i, &set);
    SIM_CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

/* CPU time of the engine for a step: picking, planning,
 * launching, and taking its results. */
static uint64_t
engine_ns(const char *dir, int32_t n_rank, int graph)
{
    const struct sim_cfg c = { .max_reqs = N_ROW,
        .max_seqs = N_ROW,
        .max_tokens = N_ROW,
        .max_len = 192,
        .n_block = 5 * N_ROW,
        .block_size = 16,
        .chunked = 1,
        .threads = 1,
        .graph = graph,
        .capture = "256",
        .depth = 1,
        .exec = FDK_EXEC_THREAD,
        .n_rank = n_rank,
        .model_dir = dir };
    struct engine *e;
    uint64_t sum = 0, n = 0;
    struct sim *s;

    pin(0);
    s = sim_new(&c);
    e = s->pip->eng;
    pin(1);

    for (int i = 0; i < N_ROW; i++)
        (void)ask(s, 1, 40, 0);
    while (s->n_open > 0) {
        uint64_t epoch = e->epoch, t0;

        (void)ing_poll(s->pip->ing, s->now_ns);
        t0 = thread_ns();
        if (eng_poll(e, s->now_ns) && e->step.n_row == N_ROW) {
            sum += thread_ns() - t0;
            n += e->epoch > epoch;
        }
        (void)egr_poll(s->pip->egr, s->now_ns);
        sim_records(s);
    }
    sim_free(s);
    SIM_CHECK(n > 20);
    return sum / n;
}

/* The best of some runs, as other programs use the processors too. */
static void
ranks(int graph)
{
    uint64_t one = UINT64_MAX, eight = UINT64_MAX;
    char dir[64], what[96];

    ranks_model(dir);
    for (int i = 0; i < N_RUN; i++) {
        uint64_t a = engine_ns(dir, 1, graph), b = engine_ns(dir, 8, graph);

        one = a < one ? a : one;
        eight = b < eight ? b : eight;
    }
    sim_model_rm(dir);
    (void)snprintf(what, sizeof(what), "engine thread, %d rows, 8 ranks%s (one: %.1f us)",
        N_ROW, graph ? ", graph" : "", (double)one / 1e3);
    row(what, (double)eight / 1e3, 1.3 * (double)one / 1e3, "us");
}

static void
period(const char *dir, int graph, int depth)
{
    struct sim_cfg cfg = { .max_reqs = 4,
        .max_seqs = 4,
        .max_tokens = 512,
        .max_len = 1024,
        .n_block = 32,
        .block_size = 64,
        .chunked = 1,
        .graph = graph,
        .real_clock = 1,
        .model_dir = dir,
        .depth = depth,
        .threads = (int32_t)sysconf(_SC_NPROCESSORS_ONLN) };
    struct sim *s = sim_new(&cfg);
    static double gap[N_TOK * N_RUN];
    struct cnt_worker *c = &s->cnt->w;
    uint64_t steps, step_ns, model_ns, t0 = 0, t_first = 0, t_last = 0;
    double host, wall = 0;
    size_t n = 0;

    SIM_CHECK(pip_start(s->pip) == 0);
    steps = cnt_get(&c->steps);
    step_ns = model_ns = 0;
    for (int k = 0; k < N_RUN; k++) {
        struct sim_req *r = ask(s, 8, N_TOK, 0);
        uint64_t before = s->n_tokens, last = 0;

        while (!r->terminal) {
            uint64_t now;

            sim_records(s);
            if (s->n_tokens == before)
                continue;
            now = clk_now_ns();
            if (last == 0) {
                t_first = now;
                if (k == 0) {
                    steps = cnt_get(&c->steps);
                    step_ns = cnt_get(&c->step_ns);
                    model_ns = cnt_get(&c->model_ns);
                    t0 = now;
                }
            } else if (n < N_TOK * N_RUN) {
                gap[n++] = (double)(now - last);
            }
            last = now;
            before = s->n_tokens;
        }
        t_last = last;
        wall += (double)(t_last - t_first);
    }
    (void)t0;
    steps = cnt_get(&c->steps) - steps;
    step_ns = cnt_get(&c->step_ns) - step_ns;
    model_ns = cnt_get(&c->model_ns) - model_ns;
    (void)printf("demo model, batch 1, graph %s, overlap %d:\n", graph ? "on" : "off",
        depth);
    show("  token to token at the gate", gap, n, "");
    host = wall / (N_RUN * (N_TOK - 1)) - (double)model_ns / (double)steps;
    (void)printf("%-44s model %8.2f us  step %8.2f us  period %8.2f us\n", "  mean",
        (double)model_ns / (double)steps / 1e3, (double)step_ns / (double)steps / 1e3,
        wall / (N_RUN * (N_TOK - 1)) / 1e3);
    (void)printf("%-44s %8.2f us  goal 50 us\n", "  period beyond the model's own time",
        host / 1e3);
    (void)lnk_claim(&s->gate, 0, LNK_T_DRAIN, 0, 0, 0);
    lnk_flush(&s->gate);
    pip_join(s->pip);
    sim_free(s);
}

int
main(void)
{
    const char *src = getenv("FDD_SRC");
    char dir[512];

    host_work(N_ROW, 0, "ids", 150);
    host_work(N_ROW, FDP_F_TEXT, "text", 150);
    host_work(1024, 0, "ids", 300);
    busy(0);
    busy(2);
    ranks(0);
    ranks(1);
    (void)snprintf(dir, sizeof(dir), "%s/conf/models/demo", src != NULL ? src : ".");
    if (access(dir, R_OK) != 0) {
        (void)printf("no demo model at %s: set FDD_SRC\n", dir);
        return 0;
    }
    period(dir, 1, 0);
    period(dir, 1, 2);
    period(dir, 0, 0);
    return 0;
}
