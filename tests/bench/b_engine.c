/*
 * The engine's own work: host time of a step at 256 rows with the null
 * backend, and on the demo model at batch 1 what a step costs beyond the
 * model's own time, on the pipeline's real threads.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define N_ROW  256
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
show(const char *what, double *v, size_t n, const char *ceiling)
{
    qsort(v, n, sizeof(*v), by_value);
    (void)printf("%-44s p50 %8.2f us  p99 %8.2f us  %s\n", what, v[n / 2] / 1e3,
        v[n * 99 / 100] / 1e3, ceiling);
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

static void
host_work(unsigned flags, const char *what)
{
    struct sim_cfg cfg = { .max_reqs = N_ROW, .max_seqs = N_ROW, .max_tokens = 2048,
        .max_len = 4096, .n_block = N_ROW * 40, .block_size = 64, .chunked = 1,
        .graph = 1, .real_clock = 1 };
    struct sim *s = sim_new(&cfg);
    static double eng[N_STEP], egr[N_STEP];
    char text[96];

    for (int i = 0; i < N_ROW; i++)
        (void)ask(s, 16, N_STEP + 100, flags);
    for (int i = 0; i < 50; i++)
        (void)sim_poll(s);
    for (int i = 0; i < N_STEP; i++) {
        uint64_t t0 = clk_now_ns(), t1;

        (void)eng_poll(s->pip->eng, t0);
        t1 = clk_now_ns();
        (void)egr_poll(s->pip->egr, t1);
        eng[i] = (double)(t1 - t0);
        egr[i] = (double)(clk_now_ns() - t1);
        sim_records(s);
    }
    (void)snprintf(text, sizeof(text), "engine step, %d rows, null, %s", N_ROW, what);
    show(text, eng, N_STEP, "");
    (void)snprintf(text, sizeof(text), "egress of it, %s", what);
    show(text, egr, N_STEP, "");
    sim_drain(s);
    sim_free(s);
}

static void
period(const char *dir, int graph)
{
    struct sim_cfg cfg = { .max_reqs = 4, .max_seqs = 4, .max_tokens = 512,
        .max_len = 1024, .n_block = 32, .block_size = 64, .chunked = 1, .graph = graph,
        .real_clock = 1, .model_dir = dir,
        .threads = (int32_t)sysconf(_SC_NPROCESSORS_ONLN) };
    struct sim *s = sim_new(&cfg);
    static double gap[N_TOK * N_RUN];
    struct cnt_worker *c = &s->cnt->w;
    uint64_t steps, step_ns, model_ns, t0 = 0, t_first = 0, t_last = 0;
    double host, wall = 0;
    size_t n = 0;

    SIM_CHECK(run_warm(s->run, 64) == 0);
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
    (void)printf("demo model, batch 1, graph %s:\n", graph ? "on" : "off");
    show("  token to token at the gate", gap, n, "");
    host = wall / (N_RUN * (N_TOK - 1)) - (double)model_ns / (double)steps;
    (void)printf("%-44s model %8.2f us  step %8.2f us  period %8.2f us\n", "  mean",
        (double)model_ns / (double)steps / 1e3, (double)step_ns / (double)steps / 1e3,
        wall / (N_RUN * (N_TOK - 1)) / 1e3);
    (void)printf("%-44s %8.2f us  ceiling 50 us\n", "  period beyond the model's own time",
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

    host_work(0, "ids");
    host_work(FDP_F_TEXT, "text");
    (void)snprintf(dir, sizeof(dir), "%s/conf/models/demo", src != NULL ? src : ".");
    if (access(dir, R_OK) != 0) {
        (void)printf("no demo model at %s: set FDD_SRC\n", dir);
        return 0;
    }
    period(dir, 1);
    period(dir, 0);
    return 0;
}
