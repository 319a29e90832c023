/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages on their own threads: requests, cancels and a drain, with the queues,
 * doorbells and link as in the daemon.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#ifdef FDD_SANITIZED
#define N_REQ 150
#else
#define N_REQ 1500
#endif

#define LONG (2 * ENC_SLICE) /* of a text for the thread of encode.h */

static struct sim_req *
ask(struct sim *s, struct sim_rng *g)
{
    struct sim_req *r = sim_req(s);

    if (r == NULL)
        return NULL;
    r->n_prompt = sim_range(g, 1, 100);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 258);
    r->p.max_new = sim_range(g, 1, 60);
    r->p.n = (uint16_t)sim_range(g, 1, 3);
    if (sim_u32(g) % 16 == 0) { /* too long for the model, which is known at its end */
        char *text = malloc(LONG + 1);

        SIM_CHECK(text != NULL);
        memset(text, 'x', LONG);
        text[LONG] = '\0';
        sim_submit(s, r, text);
        free(text);
        return r;
    }
    if (sim_u32(g) % 2)
        r->p.flags |= FDP_F_TEXT;
    else
        r->p.set |= FDP_S_LOGPROBS;
    if (sim_u32(g) % 3 == 0 && r->p.n == 1) {
        r->n_stop_text = 1;
        (void)snprintf(r->stop_text[0], sizeof(r->stop_text[0]), "%c",
            (int)sim_range(g, 'a', 'z'));
    }
    sim_submit(s, r, NULL);
    return r;
}

/* ---- threads that cannot be started ---------------------------------------------- */

#ifndef FDD_SANITIZED

static int n_left = -1; /* threads until one cannot be started; -1: all can */

int
pthread_create(pthread_t *th, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *p = dlsym(RTLD_NEXT, "pthread_create");

    if (n_left == 0)
        return EAGAIN;
    n_left -= n_left > 0;
    memcpy(&real, &p, sizeof(p));
    return real(th, attr, fn, arg);
}

/* Regression: threads started before the one that failed went on in freed memory. */
static void
start_fails(const struct sim_cfg *cfg)
{
    for (int i = 0; i < 4; i++) {
        struct sim *s = sim_new(cfg);

        n_left = i;
        SIM_CHECK(pip_start(s->pip) == -EAGAIN);
        n_left = -1;
        SIM_CHECK(s->pip->n_thread == 0);
        sim_drop(s);
    }
}

#else

/* A sanitizer needs the name pthread_create itself. */
static void
start_fails(const struct sim_cfg *cfg)
{
    (void)cfg;
}

#endif

int
main(int argc, char **argv)
{
    struct sim_rng g = { sim_seed(argc, argv) };
    struct sim_cfg cfg = { .max_reqs = 48,
        .max_seqs = 16,
        .max_tokens = 128,
        .max_len = 256,
        .n_block = 40,
        .block_size = 16,
        .chunked = 1,
        .real_clock = 1,
        .check_tokens = 1 };
    struct sim *s;
    uint64_t until;
    int n = 0;

    start_fails(&cfg);
    s = sim_new(&cfg);
    SIM_CHECK(pip_start(s->pip) == 0);
    until = clk_now_ns() + 60 * CLK_S;
    while (n < N_REQ || s->n_open > 0) {
        struct sim_req *r = n < N_REQ ? ask(s, &g) : NULL;

        n += r != NULL;
        if (r != NULL && sim_u32(&g) % 7 == 0)
            sim_cancel(s, r, FDP_E_CANCELLED);
        if (sim_u32(&g) % 64 == 0)
            clk_sleep_ns(sim_range(&g, 1, 3) * 100000);
        sim_records(s);
        SIM_CHECK(clk_now_ns() < until);
    }
    (void)lnk_claim(&s->gate, 0, LNK_T_DRAIN, 0, 0, 0);
    lnk_flush(&s->gate);
    pip_join(s->pip);
    (void)printf("%llu done, %llu errors, %llu tokens\n", (unsigned long long)s->n_done,
        (unsigned long long)s->n_error, (unsigned long long)s->n_tokens);
    SIM_CHECK(s->n_done + s->n_error == N_REQ && s->n_done > N_REQ / 2);
    eng_check(s->pip->eng);
    sim_free(s);
    return 0;
}
