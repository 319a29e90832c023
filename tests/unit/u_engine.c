/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Once it is ready, the engine thread must not allocate, take a lock, make a system call
 * or wait for the device. malloc() and its like and pthread_mutex_lock() are interposed
 * here and counted while eng_poll() runs. Device calls that wait are counted if they
 * would have waited. The kernel reports any system call (PR_SET_SYSCALL_USER_DISPATCH).
 * The virtual device has its own thread, or runs between polls.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

/* volatile, because the compiler assumes that malloc() reads no variable of this file */
static __thread volatile int counting;
static volatile unsigned long n_alloc, n_lock, n_wait;

/* A sanitizer has its own malloc(): nothing is counted then, and only the
 * sanitizer checks the run. */
#ifndef FDD_SANITIZED

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *
malloc(size_t n)
{
    n_alloc += (unsigned long)counting;
    return __libc_malloc(n);
}

void *
calloc(size_t n, size_t size)
{
    n_alloc += (unsigned long)counting;
    return __libc_calloc(n, size);
}

void *
realloc(void *p, size_t n)
{
    n_alloc += (unsigned long)counting;
    return __libc_realloc(p, n);
}

void
free(void *p)
{
    n_alloc += (unsigned long)(counting && p != NULL);
    __libc_free(p);
}

static int (*real_lock)(pthread_mutex_t *);

__attribute__((constructor)) static void
find_lock(void)
{
    void *p = dlsym(RTLD_NEXT, "pthread_mutex_lock");

    memcpy(&real_lock, &p, sizeof(p));
}

int
pthread_mutex_lock(pthread_mutex_t *m)
{
    n_lock += (unsigned long)counting;
    return real_lock != NULL ? real_lock(m) : 0;
}

#endif

/* ---- device calls that wait ----------------------------------------------------------- */

static const struct fdk_ops *spied;
static struct fdk_ops spy;

static int
spy_stream_sync(fdk_stream_t st)
{
    n_wait += (unsigned long)counting;
    return spied->stream_sync(st);
}

static int
spy_event_sync(fdk_event_t ev)
{
    n_wait += (unsigned long)(counting && spied->event_query(ev) == 0);
    return spied->event_sync(ev);
}

static void
spy_on(struct sim *s)
{
    spied = s->run->k;
    spy = *spied;
    spy.stream_sync = spy_stream_sync;
    spy.event_sync = spy_event_sync;
    s->run->k = &spy;
}

/* ---- the load -------------------------------------------------------------------------- */

static void
ask(struct sim *s, struct sim_rng *g, uint32_t max_new)
{
    struct sim_req *r = sim_req(s);

    if (r == NULL)
        return;
    r->n_prompt = sim_u32(g) % 3 == 0 ? sim_range(g, 1, 100) : sim_range(g, 1, 12);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 200);
    r->p.max_new = max_new;
    r->p.n = (uint16_t)sim_range(g, 1, 3);
    r->p.set |= FDP_S_LOGPROBS | FDP_S_PROMPT_LOGPROBS;
    r->p.logprobs = r->p.prompt_logprobs = 5;
    if (sim_u32(g) % 2 == 0) {
        r->p.set &= ~(unsigned)FDP_S_PROMPT_LOGPROBS;
        r->p.presence_penalty = 0.5f;
    }
    sim_submit(s, r, NULL);
}

/* Runs a load with prefills, decodes, mixed steps, ends, cancels,
 * preemptions, cache hits and swaps. */
static void
run(struct sim_cfg cfg, int polls)
{
    struct sim *s = sim_new(&cfg);
    struct sim_rng g = { 3 };

    spy_on(s);
    n_alloc = n_lock = n_wait = 0;
    for (int i = 0; i < polls || s->n_open > 0; i++) {
        if (i < polls && sim_u32(&g) % 4 == 0)
            ask(s, &g, sim_range(&g, 1, 40));
        if (sim_u32(&g) % 20 == 0 && s->reqs[0].used && !s->reqs[0].terminal)
            sim_cancel(s, &s->reqs[0], FDP_E_CANCELLED);
        (void)ing_poll(s->pip->ing, s->now_ns);
        counting = 1;
        (void)eng_poll(s->pip->eng, s->now_ns);
        counting = 0;
        (void)sim_poll(s);
    }
    (void)printf("  depth %d, %llu steps, %llu tokens, %llu preempted, %llu found, %llu "
                 "brought back: %lu allocations, %lu locks, %lu waits\n",
        cfg.depth, (unsigned long long)s->pip->eng->epoch,
        (unsigned long long)s->n_tokens, (unsigned long long)s->pip->eng->sch->n_preempted,
        (unsigned long long)s->pip->eng->kv->n_hit,
        (unsigned long long)s->pip->eng->kv->n_in, n_alloc, n_lock, n_wait);
    SIM_CHECK(s->n_tokens > 100);
    /* a GPU's driver may allocate and lock: there only waiting is checked */
    SIM_CHECK(n_alloc == 0 || !sim_is_virtual(s));
    SIM_CHECK(cfg.exec == FDK_EXEC_DEFER || n_lock == 0 || !sim_is_virtual(s));
    SIM_CHECK(cfg.depth == 0 || n_wait == 0);
    s->run->k = spied;
    sim_free(s);
}

static struct sim_cfg
small(int depth, int graph, enum fdk_exec exec)
{
    return (struct sim_cfg){ .max_reqs = 16,
        .max_seqs = 8,
        .max_tokens = 64,
        .max_len = 144,
        .n_block = 13,
        .block_size = 16,
        .chunked = 1,
        .threads = 2,
        .depth = depth,
        .graph = graph,
        .exec = exec,
        .prefix = 1,
        .n_host = 20,
        .n_penalty = 8 };
}

#ifndef FDD_SANITIZED
/* The counters do count. */
static void
counters_count(struct sim_rng *g)
{
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    void *volatile p;

    (void)g;
    n_alloc = n_lock = 0;
    counting = 1;
    p = malloc(10);
    free(p);
    (void)pthread_mutex_lock(&m);
    (void)pthread_mutex_unlock(&m);
    counting = 0;
    SIM_CHECK(n_alloc == 2 && n_lock == 1);
}
#endif

static void
d1_nothing_forbidden_null(struct sim_rng *g)
{
    (void)g;
    for (int depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
        struct sim_cfg c = small(depth, depth % 2, FDK_EXEC_THREAD);

        c.check_tokens = 1;
        run(c, 600);
        c.exec = FDK_EXEC_DEFER;
        run(c, 600);
    }
}

static void
d1_nothing_forbidden_cpu(struct sim_rng *g)
{
    char dir[64];

    (void)g;
    sim_model(dir);
    for (int depth = 0; depth <= 2; depth += 2) {
        struct sim_cfg c = small(depth, 1, FDK_EXEC_THREAD);

        c.model_dir = dir;
        run(c, 150);
        c.graph = 0;
        run(c, 150);
    }
    sim_model_rm(dir);
}

/* ---- system calls ------------------------------------------------------------------------ */

/* A sanitizer makes system calls itself. */
#ifndef FDD_SANITIZED

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON           1
#endif
#define BLOCK 1 /* value of the selector byte; 0: allow */

static volatile char selector;
static volatile sig_atomic_t n_call;

/* Handles SIGSYS: the call was not made, and its number becomes its result. */
static void
on_call(int sig, siginfo_t *si, void *uc)
{
    (void)sig;
    (void)si;
    (void)uc;
    selector = 0;
    n_call++;
}

/* A thousand steps without a system call. The device needs no wake-up: it executes in the
 * caller, and its steps count as done 20 us later. */
static int
call_free(int graph)
{
    struct sim_cfg c = small(2, graph, FDK_EXEC_INLINE);
    struct sim_rng g = { 17 };
    struct sim *s;
    uint64_t first;

    c.n_block = 60;
    c.check_tokens = 1;
    c.delay_ns = 20000;
    s = sim_new(&c);
    for (uint64_t i = 0; (first = s->pip->eng->epoch) < 50; i++) {
        ask(s, &g, 40);
        (void)sim_poll(s);
    }
    while (s->pip->eng->epoch < first + 1000) {
        if (s->n_open < 8)
            ask(s, &g, sim_range(&g, 1, 40));
        (void)ing_poll(s->pip->ing, s->now_ns);
        selector = BLOCK;
        (void)eng_poll(s->pip->eng, s->now_ns);
        selector = 0;
        (void)egr_poll(s->pip->egr, s->now_ns);
        sim_records(s);
    }
    sim_drain(s);
    sim_free(s);
    return n_call != 0;
}

static int
in_child(int graph)
{
    struct sigaction sa = { .sa_sigaction = on_call, .sa_flags = SA_SIGINFO };

    (void)sigaction(SIGSYS, &sa, NULL);
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector) != 0)
        return 77;
    /* a system call is caught */
    selector = BLOCK;
    (void)getppid();
    selector = 0;
    if (n_call != 1)
        return 2;
    n_call = 0;
    return call_free(graph);
}

static void
d1_no_system_call(struct sim_rng *g)
{
    (void)g;
    for (int graph = 0; graph < 2; graph++) {
        pid_t pid = fork();
        int st = 0;

        SIM_CHECK(pid >= 0);
        if (pid == 0)
            _exit(in_child(graph));
        SIM_CHECK(waitpid(pid, &st, 0) == pid);
        if (WIFEXITED(st) && WEXITSTATUS(st) == 77) {
            (void)printf("  left out: this kernel cannot report system calls\n");
            return;
        }
        SIM_CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    }
}

#endif

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
#ifndef FDD_SANITIZED
        SIM_TEST(counters_count),
        SIM_TEST(d1_no_system_call),
#endif
        SIM_TEST(d1_nothing_forbidden_null),
        SIM_TEST(d1_nothing_forbidden_cpu),
    };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
