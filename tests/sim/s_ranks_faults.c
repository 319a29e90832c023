/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that fail, stop, end or are late, and the engine thread's cost for eight ranks. A
 * worker that gives up ends its process, so each try is a separate process.
 */
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#ifdef FDD_SANITIZED
#define SLOWER 10
#else
#define SLOWER 1
#endif

/* ---- system calls ---------------------------------------------------------------------- */

static __thread uint64_t n_call;

long __wrap_syscall(long n, ...);
long __real_syscall(long n, ...);
int __wrap_clock_nanosleep(clockid_t c, int flags, const struct timespec *t,
    struct timespec *left);
int __real_clock_nanosleep(clockid_t c, int flags, const struct timespec *t,
    struct timespec *left);
int __wrap_sched_yield(void);
int __real_sched_yield(void);

long
__wrap_syscall(long n, ...)
{
    long a[6];
    va_list ap;

    va_start(ap, n);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    n_call++;
    return __real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int
__wrap_clock_nanosleep(clockid_t c, int flags, const struct timespec *t,
    struct timespec *left)
{
    n_call++;
    return __real_clock_nanosleep(c, flags, t, left);
}

int
__wrap_sched_yield(void)
{
    n_call++;
    return __real_sched_yield();
}

/* ---- the model --------------------------------------------------------------------------- */

/* Makes a model with heads for up to eight ranks. */
static void
model(char dir[64])
{
    char path[96];
    FILE *out;

    (void)snprintf(dir, 64, "/tmp/fdd-faults-XXXXXX");
    SIM_CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    out = fopen(path, "w");
    SIM_CHECK(out != NULL);
    (void)fputs("{\"model_type\":\"llama\",\"hidden_size\":96,\"intermediate_size\":384,"
                "\"num_hidden_layers\":2,\"num_attention_heads\":16,"
                "\"num_key_value_heads\":8,\"head_dim\":32,\"vocab_size\":259,"
                "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,"
                "\"bos_token_id\":1,\"eos_token_id\":2,\"pad_token_id\":0,"
                "\"torch_dtype\":\"bfloat16\"}",
        out);
    (void)fclose(out);
}

static struct sim_cfg
base(const char *dir, int32_t n_rank)
{
    return (struct sim_cfg){ .max_reqs = 8,
        .max_seqs = 8,
        .max_tokens = 64,
        .max_len = 192,
        .n_block = 80,
        .block_size = 16,
        .chunked = 1,
        .threads = 1,
        .graph = 1,
        .depth = 2,
        .exec = FDK_EXEC_THREAD,
        .n_rank = n_rank,
        .kv_dtype = FDK_F32 + 1,
        .model_dir = dir };
}

/* ---- tries --------------------------------------------------------------------------------- */

enum { N_REQ = 4, N_TOK = 24, RANKS = 4 };
enum fault { NONE, FAILS, STOPS, ENDS, LATE };

struct plan {
    enum fault kind;
    int32_t rank, step; /* the fault begins with this step */
    int32_t limit_ms;
    int out; /* pipe to which a process writes the time of the fault and the results */
    int32_t seen[FDK_MAX_RANKS];
    struct sim_rng rng[FDK_MAX_RANKS];
    struct sim *s;
};
struct came {
    uint64_t fault_ns; /* time of the fault, 0: not yet */
    uint32_t hash;     /* hash of all tokens */
};

static void
tell(const struct plan *p, struct came c)
{
    SIM_CHECK(write(p->out, &c, sizeof(c)) == sizeof(c));
}

static void
on_step(void *arg, int32_t rank)
{
    struct plan *p = arg;
    struct sim_rng *g = &p->rng[rank];

    if (p->kind == LATE && sim_u32(g) % 8 == 0)
        clk_sleep_ns(sim_range(g, 0, 50) * CLK_MS);
    if (rank != p->rank || p->kind == LATE || ++p->seen[rank] < p->step)
        return;
    if (p->kind != NONE && p->seen[rank] == p->step)
        tell(p, (struct came){ .fault_ns = clk_now_ns() });
    if (p->kind == FAILS)
        (void)p->s->run->k->stream_fail(p->s->run->dev[rank].stream);
    if (p->kind == ENDS)
        pthread_exit(NULL);
    while (p->kind == STOPS && !__atomic_load_n(&p->s->run->ranks->stop, __ATOMIC_RELAXED))
        clk_sleep_ns(CLK_MS);
}

static uint32_t
answers(struct sim *s)
{
    struct sim_req *r[N_REQ];
    uint32_t h = 1;

    for (int i = 0; i < N_REQ; i++) {
        r[i] = sim_req(s);
        r[i]->n_prompt = (uint32_t)(1 + 23 * i);
        r[i]->prompt = mem_array(r[i]->n_prompt, 4);
        for (uint32_t k = 0; k < r[i]->n_prompt; k++)
            r[i]->prompt[k] = 3 + (k * 31 + (uint32_t)i) % 200;
        r[i]->p.max_new = N_TOK;
        r[i]->p.flags |= FDP_F_IGNORE_EOS;
        sim_submit(s, r[i], NULL);
    }
    sim_drain(s);
    for (int i = 0; i < N_REQ; i++)
        for (int k = 0; k < N_TOK; k++)
            h = (h ^ r[i]->s[0].ids[k]) * 16777619u;
    return h;
}

/* A worker that ends because of a rank does not wait for threads. */
#ifdef __SANITIZE_THREAD__
const char *__tsan_default_options(void);
const char *
__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}
#endif

/* Body of a try's process: it writes the answers, or ends as a worker does. */
static void
try(const char *dir, struct plan *p)
{
    struct sim_cfg c = base(dir, RANKS);

    c.spin_limit_ms = p->limit_ms;
    p->s = sim_new(&c);
    p->s->run->ranks->hook_arg = p;
    p->s->run->ranks->hook = on_step;
    tell(p, (struct came){ .hash = answers(p->s) });
    p->s->run->ranks->hook = NULL;
    sim_free(p->s);
    exit(0);
}

struct end {
    int status;
    uint64_t took_ns; /* since the fault */
    struct came came;
    char text[4096]; /* its error text */
};

static void
run_try(const char *dir, struct plan *p, struct end *ret)
{
    int out[2], err[2];
    struct came c;
    ssize_t n;
    size_t at = 0;
    pid_t pid;

    *ret = (struct end){ .status = -1 };
    SIM_CHECK(pipe(out) == 0 && pipe(err) == 0);
    (void)fflush(stdout);
    pid = fork();
    SIM_CHECK(pid >= 0);
    if (pid == 0) {
        (void)dup2(err[1], 2);
        p->out = out[1];
        try(dir, p);
    }
    (void)close(out[1]);
    (void)close(err[1]);
    while ((n = read(err[0], ret->text + at, sizeof(ret->text) - 1 - at)) > 0)
        at += (size_t)n;
    SIM_CHECK(waitpid(pid, &ret->status, 0) == pid);
    ret->took_ns = clk_now_ns();
    while (read(out[0], &c, sizeof(c)) == sizeof(c)) {
        ret->came.fault_ns = c.fault_ns > 0 ? c.fault_ns : ret->came.fault_ns;
        ret->came.hash = c.hash > 0 ? c.hash : ret->came.hash;
    }
    ret->took_ns -= ret->came.fault_ns;
    (void)close(out[0]);
    (void)close(err[0]);
}

static struct plan
plan(struct sim_rng *g, enum fault kind, int32_t limit_ms)
{
    struct plan p = { .kind = kind,
        .rank = (int32_t)sim_range(g, 0, RANKS - 1),
        .step = (int32_t)sim_range(g, 1, 20),
        .limit_ms = limit_ms };

    for (uint64_t i = 0; i < FDK_MAX_RANKS; i++)
        p.rng[i].s = g->s + i;
    return p;
}

static void
ended_by(const struct end *e, const char *what)
{
    int ok = WIFEXITED(e->status) && WEXITSTATUS(e->status) == 70 &&
        strstr(e->text, what) != NULL;

    if (!ok)
        (void)fprintf(stderr, "not \"%s\": status %x, %s\n", what, e->status, e->text);
    SIM_CHECK(ok);
}

/* ---- the tests ------------------------------------------------------------------------------ */

/* A device that fails ends the worker at once, long before the limit. The best of some
 * tries counts, as machines are busy. */
#define LEAVE_NS (100 * CLK_MS)
static void
failures_end_at_once(struct sim_rng *g)
{
    uint64_t least = UINT64_MAX;
    char dir[64], what[96];

    model(dir);
    for (int i = 0; i < 6; i++) {
        struct plan p = plan(g, FAILS, 60000);
        struct end e;

        run_try(dir, &p, &e);
        (void)snprintf(what, sizeof(what),
            "rank %d (cpu-%d): a test made the device fail", p.rank, p.rank);
        ended_by(&e, what);
        least = e.took_ns < least ? e.took_ns : least;
    }
    (void)printf("  from the failure to the end of the worker, at best: %.1f ms\n",
        (double)least / 1e6);
    SIM_CHECK(least < LEAVE_NS * SLOWER);
    sim_model_rm(dir);
}

/* A thread is stopped, ended or delayed at random, FDD_RANK_FAULTS times: the worker ends
 * and names the rank, or the answer is right. On a machine that stalls another rank may
 * be late: a few tries are repeated. */
static void
faults_at_random(struct sim_rng *g)
{
    const char *n_text = getenv("FDD_RANK_FAULTS");
    int n = n_text != NULL ? atoi(n_text) : 9, again = 1 + n / 50;
    int32_t limit_ms = 400 * SLOWER;
    char dir[64], what[96];
    struct plan p = plan(g, NONE, 60000);
    struct end want, e;

    model(dir);
    run_try(dir, &p, &want);
    SIM_CHECK(want.status == 0 && want.came.hash != 0);
    for (int i = 0; i < n; i++) {
        enum fault kind = STOPS + i % 3;
        uint64_t bound = (uint64_t)limit_ms * CLK_MS + CLK_S * SLOWER;

        p = plan(g, kind, kind == LATE ? 60000 : limit_ms);
        run_try(dir, &p, &e);
        if (kind == LATE) {
            SIM_CHECK(e.status == 0 && e.came.hash == want.came.hash);
            continue;
        }
        (void)snprintf(what, sizeof(what),
            "rank %d (cpu-%d): collective: rank %d did not arrive within %d ms", p.rank,
            p.rank, p.rank, limit_ms);
        if ((strstr(e.text, what) == NULL || e.took_ns > bound) && again-- > 0) {
            i--;
            continue;
        }
        ended_by(&e, what);
        SIM_CHECK(e.took_ns <= bound);
    }
    sim_model_rm(dir);
}

/* ---- cost for the engine thread --------------------------------------------------------------- */

enum { ROWS = 256, STEPS = 40 };

static struct fdk_ops counted;
static int (*real_query)(fdk_event_t);
static uint64_t n_query;

static int
count_query(fdk_event_t ev)
{
    n_query++;
    return real_query(ev);
}

struct paid {
    uint64_t steps, polls, calls, queries;
};

static struct paid
pay(const char *dir, int32_t n_rank)
{
    struct sim_cfg c = base(dir, n_rank);
    struct paid sum = { 0 };
    struct engine *e;
    struct sim *s;

    c.max_reqs = c.max_seqs = c.max_tokens = ROWS;
    c.n_block = 5 * ROWS;
    c.capture = "256";
    c.depth = 1;
    s = sim_new(&c);
    e = s->pip->eng;
    counted = *s->run->k;
    real_query = counted.event_query;
    counted.event_query = count_query;
    s->run->k = &counted;
    for (uint32_t i = 0; i < ROWS; i++) {
        struct sim_req *r = sim_req(s);

        r->n_prompt = 1;
        r->prompt = mem_array(1, 4);
        r->prompt[0] = 3 + i % 200;
        r->p.max_new = STEPS;
        r->p.flags |= FDP_F_IGNORE_EOS;
        sim_submit(s, r, NULL);
    }
    while (s->n_open > 0) {
        uint64_t epoch = e->epoch, calls = n_call, queries = n_query;

        (void)ing_poll(s->pip->ing, s->now_ns);
        (void)eng_poll(e, s->now_ns);
        sum.calls += n_call - calls;
        sum.queries += n_query - queries;
        sum.steps += e->epoch > epoch;
        sum.polls++;
        (void)egr_poll(s->pip->egr, s->now_ns);
        sim_records(s);
    }
    s->run->k = &fdk_ops_cpu;
    sim_free(s);
    SIM_CHECK(sum.steps >= STEPS);
    return sum;
}

/* One wake-up serves the threads of all ranks, and a rank whose step has
 * ended is not queried again. */
static void
engine_pays(struct sim_rng *g)
{
    struct paid p;
    char dir[64];

    (void)g;
    model(dir);
    for (int32_t n = 1; n <= 8; n *= 8) {
        p = pay(dir, n);
        (void)printf("  %d rank%s, %d rows: %.2f system calls a step, %.1f queries of events "
                     "in %.1f polls\n",
            n, n > 1 ? "s" : "", ROWS, (double)p.calls / (double)p.steps,
            (double)p.queries / (double)p.steps, (double)p.polls / (double)p.steps);
    }
    SIM_CHECK(p.calls <= p.steps);
    SIM_CHECK(p.queries <= 8 * p.steps + 2 * p.polls);
    sim_model_rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(failures_end_at_once),
        SIM_TEST(faults_at_random), SIM_TEST(engine_pays) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
