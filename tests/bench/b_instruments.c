/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the instruments: the trace, the histograms and readers of both, compared
 * with the same engine without them. Throughput of 256 rows on the virtual device with
 * steps of 1 ms, on the pipeline's real threads; the engine thread's own work with a
 * device that takes no time; and each call by itself.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define N_ROW   256
#define N_STEP  600 /* of one run with steps of 1 ms */
#define N_PAIR  9
#define N_FREE  2000 /* steps of a run without */
#define N_CALL  1000000
#define READ_NS (100 * CLK_MS)

/* ---- readers: as fdctl top and fdctl trace --follow, ten times a second ------------ */

struct reader {
    pthread_t th;
    const struct sim *s;
    uint32_t stop;
    uint64_t sum, rounds;
};

static void *
reader_main(void *arg)
{
    struct reader *r = arg;
    uint64_t step = 1, event = 1;

    while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
        const uint64_t *c = (const uint64_t *)(const void *)&r->s->cnt->w;
        const uint64_t *h = (const uint64_t *)(const void *)r->s->cnt->h;
        struct trc_step st;
        struct trc_event ev;

        for (size_t i = 0; i < CNT_N_WORKER; i++)
            r->sum += cnt_get(&c[i]);
        for (size_t i = 0; i < sizeof(r->s->cnt->h) / (sizeof(uint64_t)); i++)
            r->sum += cnt_get(&h[i]);
        for (; step <= trc_n_step(r->s->trc_seg); step++)
            r->sum += (uint64_t)trc_get_step(r->s->trc_seg, step, &st);
        for (; event <= trc_n_event(r->s->trc_seg); event++)
            r->sum += (uint64_t)trc_get_event(r->s->trc_seg, event, &ev);
        r->rounds++;
        clk_sleep_ns(READ_NS);
    }
    return NULL;
}

/* ---- runs --------------------------------------------------------------------------- */

static struct sim *
start(int on, uint64_t delay_ns, uint32_t max_new)
{
    struct sim_cfg cfg = { .max_reqs = N_ROW,
        .max_seqs = N_ROW,
        .max_tokens = 2048,
        .max_len = 4096,
        .n_block = N_ROW * 40,
        .block_size = 64,
        .chunked = 1,
        .graph = 1,
        .real_clock = 1,
        .depth = 2,
        .exec = FDK_EXEC_THREAD,
        .prefix = 1,
        .delay_ns = delay_ns,
        .no_instruments = !on };
    struct sim *s = sim_new(&cfg);

    for (int i = 0; i < N_ROW; i++) {
        struct sim_req *r = sim_req(s);

        SIM_CHECK(r != NULL);
        r->n_prompt = 16;
        r->prompt = mem_array(16, 4);
        for (uint32_t k = 0; k < 16; k++)
            r->prompt[k] = 20 + (k + (uint32_t)i) % 200;
        r->p.max_new = max_new;
        r->p.flags |= FDP_F_IGNORE_EOS;
        sim_submit(s, r, NULL);
    }
    return s;
}

static void
cancel_all(struct sim *s)
{
    for (int i = 0; i < N_ROW; i++)
        sim_cancel(s, &s->reqs[i], FDP_E_CANCELLED);
}

/* Tokens per second at 256 rows and steps of 1 ms. */
static double
throughput(int on)
{
    struct sim *s = start(on, CLK_MS, N_STEP + 600);
    const struct cnt_worker *c = &s->cnt->w;
    struct reader r = { .s = s };
    uint64_t t0, n;

    SIM_CHECK(pip_start(s->pip) == 0);
    if (on)
        SIM_CHECK(pthread_create(&r.th, NULL, reader_main, &r) == 0);
    while (cnt_get(&c->steps) < 100)
        sim_records(s);
    n = cnt_get(&c->generation_tokens);
    t0 = clk_now_ns();
    while (cnt_get(&c->steps) < 100 + N_STEP) {
        sim_records(s);
        clk_sleep_ns(100 * CLK_US);
    }
    n = cnt_get(&c->generation_tokens) - n;
    t0 = clk_now_ns() - t0;
    if (on) {
        __atomic_store_n(&r.stop, 1, __ATOMIC_RELEASE);
        (void)pthread_join(r.th, NULL);
        SIM_CHECK(r.rounds > 0 && trc_n_step(s->trc_seg) >= N_STEP);
    }
    cancel_all(s);
    while (s->n_open > 0)
        sim_records(s);
    (void)lnk_claim(&s->gate, 0, LNK_T_DRAIN, 0, 0, 0);
    lnk_flush(&s->gate);
    pip_join(s->pip);
    sim_free(s);
    return (double)n * 1e9 / (double)t0;
}

/* The engine thread's own work and egress's, ns per step, with a device that
 * takes no time. */
static void
host_work(int on, double *ret_eng, double *ret_egr)
{
    struct sim *s = start(on, 0, N_FREE + 300);
    const struct cnt_worker *c = &s->cnt->w;
    uint64_t steps, host, egr = 0;

    for (int i = 0; i < 200; i++)
        (void)sim_poll(s);
    steps = cnt_get(&c->steps);
    host = cnt_get(&c->host_ns);
    while (cnt_get(&c->steps) < steps + N_FREE) {
        uint64_t t;

        if (eng_poll(s->pip->eng, clk_now_ns()) == 0)
            (void)eng_wait(s->pip->eng);
        t = clk_now_ns();
        (void)egr_poll(s->pip->egr, t);
        egr += clk_now_ns() - t;
        sim_records(s);
    }
    steps = cnt_get(&c->steps) - steps;
    *ret_eng = (double)(cnt_get(&c->host_ns) - host) / (double)steps;
    *ret_egr = (double)egr / (double)steps;
    cancel_all(s);
    sim_drain(s);
    sim_free(s);
}

/* ---- figures --------------------------------------------------------------------------- */

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    return v[n / 2];
}

static void
row(const char *what, double v, double limit, const char *unit)
{
    (void)printf("%-52s %8.3f %s  limit %4.0f %s  ratio %5.2f\n", what, v, unit, limit,
        unit, v / limit);
}

static void
calls(void)
{
    const uint64_t boot[2] = { 1, 2 };
    static struct cnt_hist h[CNT_H__N];
    struct trc_step st = { .n_tok = 256 };
    struct trc_seg *seg;
    struct trc t;
    uint64_t t0, put, see, ev;
    int fd;

    SIM_CHECK(trc_create(boot, &seg, &fd) == 0);
    trc_init(&t, seg, 1);
    t0 = clk_now_ns();
    for (uint64_t i = 1; i <= N_CALL; i++) {
        st.epoch = i;
        trc_put_step(&t, &st);
    }
    put = clk_now_ns() - t0;
    t0 = clk_now_ns();
    for (uint64_t i = 1; i <= N_CALL; i++)
        trc_put_event(&t, i, TRC_START, i, 0, 1, 2);
    ev = clk_now_ns() - t0;
    t0 = clk_now_ns();
    for (uint64_t i = 0; i < N_CALL; i++)
        cnt_see(h, CNT_H_itl, 1000000 + i, 1);
    see = clk_now_ns() - t0;
    row("a step in the trace (launched and collected)", 2.0 * (double)put / N_CALL / 1e3,
        1, "us");
    (void)printf("%-52s %8.1f ns\n", "an event in the trace", (double)ev / N_CALL);
    (void)printf("%-52s %8.1f ns\n", "a value in a histogram, 1 ms between tokens",
        (double)see / N_CALL);
    trc_destroy(seg, fd);
}

int
main(void)
{
    double with[N_PAIR], without[N_PAIR], eng[2][N_PAIR], egr[2][N_PAIR], a, b;

    calls();
    for (int i = 0; i < N_PAIR; i++)
        for (int on = 0; on < 2; on++)
            host_work(on, &eng[on][i], &egr[on][i]);
    a = median(eng[0], N_PAIR) / 1e3;
    b = median(eng[1], N_PAIR) / 1e3;
    (void)printf("%-52s %8.3f us without  %8.3f us with\n",
        "engine thread per step, 256 rows", a, b);
    row("  its instruments", b - a, 1, "us");
    a = median(egr[0], N_PAIR) / 1e3;
    b = median(egr[1], N_PAIR) / 1e3;
    (void)printf("%-52s %8.3f us without  %8.3f us with\n", "egress per step, 256 rows",
        a, b);
    /* both in turn, so that a slow moment affects both */
    for (int i = 0; i < N_PAIR; i++) {
        without[i] = throughput(0);
        with[i] = throughput(1);
    }
    a = median(without, N_PAIR);
    b = median(with, N_PAIR);
    (void)printf("%-52s %8.0f tokens/s without  %8.0f with\n",
        "256 rows, steps of 1 ms, overlap 2", a, b);
    row("  lost by instruments and their readers", (a - b) * 100 / a, 1, "% ");
    return 0;
}
