/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * CPU time of the gate per relayed token: 256 sessions, one stream each, a fake
 * worker in this process that sends, for each stream and step, the records that
 * egress sends for a token: an IDS record; with text a TOKENS record, or IDS and TEXT
 * if they do not fit into one slot. Clients read as a spinning client does. Only the
 * gate's loop iterations are timed. Goal: 100 ns per token. A plain copy of the same
 * slots is shown for comparison.
 *
 * Also: short requests, requests while those of many users wait, an iteration over idle
 * sessions, and session set-up.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "tests/unit/gate_fixture.h"

#define N_STREAM  256
#define N_STEP    2000
#define N_REQUEST 20000
#define N_TURN    4000
#define TRUSTED   4242u

static struct fcl cl[N_STREAM];

static int
cmp_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* A client that reads: it touches all records and moves its head. */
static void
drain(struct fcl *c)
{
    static volatile uint32_t sink;
    int64_t n = fdr_cons_avail(&c->cq);

    while (n > 0) {
        const struct fdp_rec *r = fdr_cons_slot(&c->cq, c->cq.head);

        sink = r->len;
        n -= r->n_slot;
        fdr_cons_release(&c->cq, r->n_slot);
    }
    (void)sink;
}

static double
bench_copy(struct fix *f)
{
    unsigned char *dst = malloc((size_t)N_STREAM * FDP_SLOT * 64);
    uint64_t t0, n = 0;

    ASSERT(dst != NULL);
    memset(dst, 1, (size_t)N_STREAM * FDP_SLOT * 64);
    t0 = clk_now_ns();
    for (int s = 0; s < N_STEP; s++) {
        for (int i = 0; i < N_STREAM; i++, n++)
            memcpy(dst + (n % (N_STREAM * 64)) * FDP_SLOT,
                f->seg->up + (n % LNK_UP_SLOTS) * FDP_SLOT, FDP_SLOT);
        __asm__ volatile("" ::: "memory");
    }
    t0 = clk_now_ns() - t0;
    free(dst);
    return (double)t0 / (double)n;
}

enum form { IDS, TOKENS, PAIR };

static void
send_token(struct lnk *w, uint64_t id, uint32_t at, enum form form)
{
    static const char word[6] = " token";
    struct fdp_tokens *t;

    if (form == TOKENS) {
        t = lnk_claim(w, id, FDP_T_TOKENS, 0, at, FDP_TOKENS_LEN(1, sizeof(word)));
        *t = (struct fdp_tokens){ at * (uint32_t)sizeof(word), 1, sizeof(word) };
        memcpy(t + 1, &at, 4);
        memcpy((char *)(t + 1) + 4, word, sizeof(word));
        return;
    }
    *(uint32_t *)lnk_claim(w, id, FDP_T_IDS, 0, at, 4) = at;
    if (form == PAIR)
        memcpy(lnk_claim(w, id, FDP_T_TEXT, 0, at * (uint32_t)sizeof(word), sizeof(word)),
            word, sizeof(word));
}

static __attribute__((noinline)) double
bench_tokens(struct fix *f, const uint64_t *ids, enum form form)
{
    uint64_t spent = 0;

    for (int s = 0; s < N_STEP; s++) {
        uint64_t t0;

        for (int i = 0; i < N_STREAM; i++)
            send_token(&f->w, ids[i], (uint32_t)s, form);
        lnk_flush(&f->w);
        f->now += 10000;
        t0 = clk_now_ns();
        ASSERT(gate_poll(f->g, f->now) != 0);
        ASSERT(gate_poll(f->g, f->now) == 0);
        spent += clk_now_ns() - t0;
        for (int i = 0; i < N_STREAM; i++)
            drain(&cl[i]);
    }
    return (double)spent / N_STREAM / N_STEP;
}

/* A short request from its record to its DONE, with eight ids and one token. */
static __attribute__((noinline)) double
bench_requests(struct fix *f)
{
    uint64_t spent = 0, id;

    for (uint64_t tag = 10; tag < 10 + N_REQUEST; tag++) {
        struct fcl *c = &cl[tag % N_STREAM];
        uint64_t t0;

        fcl_submit(c, tag, 8, 4);
        f->now += 10000;
        t0 = clk_now_ns();
        (void)gate_poll(f->g, f->now);
        spent += clk_now_ns() - t0;
        id = fix_take(f, NULL, NULL, NULL);
        ASSERT(id != 0);
        send_token(&f->w, id, 0, TOKENS);
        fix_wdone(f, id);
        t0 = clk_now_ns();
        (void)gate_poll(f->g, f->now);
        spent += clk_now_ns() - t0;
        drain(c);
    }
    return (double)spent / N_REQUEST;
}

/* n users of a trusted client have one request each. When one ends the next is picked,
 * and its user sends another. */
static double
bench_turns(uint32_t n)
{
    static const char *const sets[] = { "ipc.trusted_users=4242",
        "sched.max_concurrency=8192", "sched.max_inflight_per_client=8192", NULL };
    uint64_t spent = 0, tag = 1;
    struct fix f;
    struct fcl c;

    fix_open(&f, sets);
    fix_ready(&f);
    f.g->wrk[0].link.ready.credits = 1;
    fair_grant(&f.g->fair, 1, 0);
    ASSERT(fcl_open(&f, &c, TRUSTED, NULL) == FDP_OK);
    for (uint32_t i = 0; i < n; i++) {
        fcl_submit_for(&c, tag++, 1, 4, 5000 + i);
        fix_step(&f, 0);
    }
    for (uint32_t i = 0; i < N_TURN; i++) {
        struct lnk_submit sub;
        uint64_t t0, id = fix_take(&f, &sub, NULL, NULL);

        ASSERT(id != 0);
        fix_waccept(&f, id, 1);
        fix_wtokens(&f, id, 4);
        fix_wdone(&f, id);
        f.now += 10000;
        t0 = clk_now_ns();
        (void)gate_poll(f.g, f.now);
        spent += clk_now_ns() - t0;
        drain(&c);
        fcl_submit_for(&c, tag++, 1, 4, sub.user);
        f.now += 10000;
        (void)gate_poll(f.g, f.now);
    }
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
    return (double)spent / N_TURN;
}

static __attribute__((noinline)) double
bench_idle(struct fix *f)
{
    uint64_t t0 = clk_now_ns();

    for (int i = 0; i < 10000; i++)
        ASSERT(gate_poll(f->g, f->now) == 0);
    return (double)(clk_now_ns() - t0) / 10000;
}

int
main(void)
{
    static const char *const sets[] = { "ipc.connects_per_second=1000000",
        "ipc.max_clients_per_user=1000", "ipc.max_clients=1000",
        "sched.max_inflight_per_user=1000", NULL };
    static uint64_t open_ns[N_STREAM], ids[N_STREAM];
    struct rusage before, ru;
    uint64_t wakes;
    struct fix f;

    (void)getrusage(RUSAGE_SELF, &before);
    fix_open(&f, sets);
    fix_ready(&f);
    f.g->wrk[0].link.ready.credits = N_STREAM;
    fair_grant(&f.g->fair, N_STREAM, 0);
    for (int i = 0; i < N_STREAM; i++) {
        uint64_t t0 = clk_now_ns();

        ASSERT(fcl_open(&f, &cl[i], 1000, NULL) == FDP_OK);
        open_ns[i] = clk_now_ns() - t0;
        fcl_submit(&cl[i], 1, 8, 4000);
    }
    fix_step(&f, 0);
    for (int i = 0; i < N_STREAM; i++)
        ASSERT((ids[i] = fix_take(&f, NULL, NULL, NULL)) != 0);
    qsort(open_ns, N_STREAM, sizeof(open_ns[0]), cmp_u64);
    (void)bench_tokens(&f, ids, IDS); /* warm */
    wakes = f.g->env.cnt->wakes_futex + f.g->env.cnt->wakes_fd;
    printf("relay, ids            %7.1f ns/token  (goal 100, bare copy %.1f)\n",
        bench_tokens(&f, ids, IDS), bench_copy(&f));
    printf("relay, ids and text   %7.1f ns/token  (goal 100; one TOKENS record)\n",
        bench_tokens(&f, ids, TOKENS));
    printf("  past one slot       %7.1f ns/token  (an IDS and a TEXT record)\n",
        bench_tokens(&f, ids, PAIR));
    f.g->wrk[0].link.ready.credits = 2 * N_STREAM;
    fair_grant(&f.g->fair, 2 * N_STREAM, 0);
    printf("request             %9.0f ns, to its DONE, %d sessions\n", bench_requests(&f),
        N_STREAM);
    printf("system calls for them %7llu\n",
        (unsigned long long)(f.g->env.cnt->wakes_futex + f.g->env.cnt->wakes_fd - wakes));
    printf("idle iteration        %7.0f ns, %d sessions  (goal 3000)\n", bench_idle(&f),
        N_STREAM);
    printf("session set-up        %7.0f us p50, %.0f us p99  (goal 1000 p50)\n",
        (double)open_ns[N_STREAM / 2] / 1e3, (double)open_ns[N_STREAM * 99 / 100] / 1e3);
    (void)getrusage(RUSAGE_SELF, &ru);
    printf("memory                %7.2f MiB for gate, client and worker side of %d "
           "sessions\n",
        (double)(ru.ru_maxrss - before.ru_maxrss) / 1024, N_STREAM);
    for (int i = 0; i < N_STREAM; i++)
        fcl_close(&cl[i]);
    fix_close(&f);
    for (uint32_t n = 16; n <= 4096; n *= 16)
        printf("end of a request      %7.0f ns, with the pick of the next one, %u users wait\n",
            bench_turns(n), n);
    return 0;
}
