/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares greedy tokens of the CUDA backend with those of the CPU backend's simple loop,
 * for models given as directories (dummy weights if there are none). Each runs eager and
 * with graphs, with overlap 0 and 2, all requests together. These runs are deterministic
 * and must be equal to the bit. One more run may sum in any order.
 *
 * The CPU keeps activations in fp32, the GPU rounds them to the weights' type before a
 * matrix product. The first tokens that differ must be a near tie: by the CPU's logprobs
 * the two tokens may differ by at most FACTOR times the largest difference, in the same
 * run, between the backends' logprobs of equal tokens.
 *
 *   g_parity [-b backend] [-n max_new] DIR...
 */
#include "config.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define N_REQ   6
#define MAX_NEW 256
#define FACTOR  4.0f

struct answer {
    uint32_t n, ids[MAX_NEW];
    struct fdp_logprob top[MAX_NEW][1 + FDP_MAX_LOGPROBS];
    uint32_t n_top[MAX_NEW];
};

struct run {
    struct answer a[N_REQ];
    struct sim_req *r[N_REQ];
    uint64_t n_graph, n_eager, ns;
};

static uint32_t max_new = 48;

static void
on_record(void *arg, struct sim_req *r, const struct fdp_rec *rec)
{
    struct run *run = arg;

    if (rec->type != FDP_T_LOGPROBS || rec->position >= MAX_NEW)
        return;
    for (int i = 0; i < N_REQ; i++)
        if (run->r[i] == r) {
            run->a[i].n_top[rec->position] = rec->len / 8;
            memcpy(run->a[i].top[rec->position], rec + 1, rec->len);
        }
}

static void
answers(const char *dir, const char *backend, int graph, int depth, int any_order,
    struct run *ret)
{
    static const uint32_t len[N_REQ] = { 1, 7, 64, 65, 130, 300 };
    struct sim_cfg cfg = { .max_reqs = 8,
        .max_seqs = 8,
        .max_tokens = 256,
        .max_len = 768,
        .n_block = 96,
        .block_size = 64,
        .chunked = 1,
        .graph = graph,
        .depth = depth,
        .model_dir = dir,
        .backend = backend,
        .threads = 0,
        .real_clock = 1,
        .kv_dtype = FDK_F32 + 1,
        .any_order = any_order };
    long n_proc = sysconf(_SC_NPROCESSORS_ONLN);
    struct sim *s;
    uint64_t t0;

    cfg.threads = n_proc > 0 ? (int32_t)n_proc : 1;
    memset(ret, 0, sizeof(*ret));
    s = sim_new(&cfg);
    s->record = on_record;
    s->record_arg = ret;
    t0 = clk_now_ns();
    for (int i = 0; i < N_REQ; i++) {
        struct sim_rng g = { 500u + (uint64_t)i };
        struct sim_req *r = ret->r[i] = sim_req(s);

        r->n_prompt = len[i];
        r->prompt = mem_array(r->n_prompt, 4);
        for (uint32_t k = 0; k < r->n_prompt; k++)
            r->prompt[k] = sim_range(&g, 3, (uint32_t)s->prog->cfg.vocab - 1);
        r->p.max_new = max_new;
        r->p.flags |= FDP_F_IGNORE_EOS;
        r->p.set |= FDP_S_LOGPROBS;
        r->p.temperature = 0;
        r->p.logprobs = FDP_MAX_LOGPROBS;
        sim_submit(s, r, NULL);
    }
    sim_drain(s);
    ret->ns = clk_now_ns() - t0;
    for (int i = 0; i < N_REQ; i++) {
        SIM_CHECK(ret->r[i]->code == 0 && ret->r[i]->s[0].n_ids == max_new);
        ret->a[i].n = max_new;
        memcpy(ret->a[i].ids, ret->r[i]->s[0].ids, max_new * sizeof(uint32_t));
    }
    ret->n_graph = s->run->n_graph;
    ret->n_eager = s->run->n_eager;
    sim_free(s);
}

/* Largest difference of the logprobs of equal tokens that follow equal tokens. */
static float
noise(const struct run *ref, const struct run *got)
{
    float most = 0;

    for (int i = 0; i < N_REQ; i++)
        for (uint32_t k = 0; k < max_new; k++) {
            const struct answer *a = &ref->a[i], *b = &got->a[i];
            float d;

            if (a->ids[k] != b->ids[k])
                break;
            d = fabsf(a->top[k][0].logprob - b->top[k][0].logprob);
            most = d > most ? d : most;
        }
    return most;
}

/* By how much token is below the reference's choice at place k. */
static float
gap(const struct answer *ref, uint32_t k, uint32_t token)
{
    for (uint32_t j = 1; j < ref->n_top[k]; j++)
        if (ref->top[k][j].id == token)
            return ref->top[k][0].logprob - ref->top[k][j].logprob;
    return INFINITY;
}

static int
compare(const char *what, const struct run *ref, const struct run *got)
{
    float limit = FACTOR * noise(ref, got);
    uint32_t same = 0;
    int n_tie = 0, bad = 0;

    for (int i = 0; i < N_REQ; i++) {
        const struct answer *a = &ref->a[i], *b = &got->a[i];
        uint32_t k = 0;
        float g;

        while (k < max_new && a->ids[k] == b->ids[k])
            k++;
        same += k;
        if (k == max_new)
            continue;
        g = gap(a, k, b->ids[k]);
        n_tie++;
        if (g <= limit)
            continue;
        bad++;
        (void)printf("    request %d token %u: %u, the CPU has %u, %.4f above it (limit "
                     "%.4f)\n",
            i, k, b->ids[k], a->ids[k], (double)g, (double)limit);
    }
    (void)printf("  %-33s %4u of %4u tokens before a difference, %d near ties, %d wrong, "
                 "logprobs within %.2g, %.0f ms, %llu graph %llu eager steps\n",
        what, same, N_REQ * max_new, n_tie - bad, bad, (double)(limit / FACTOR),
        (double)got->ns / 1e6, (unsigned long long)got->n_graph,
        (unsigned long long)got->n_eager);
    return bad;
}

static int
one_model(const char *dir, const char *backend)
{
    static struct run ref, got, first;
    char what[64];
    int bad = 0;

    (void)printf("%s\n", dir);
    answers(dir, "cpu", 0, 0, 0, &ref);
    (void)printf("  cpu simple loop                   %.0f ms\n", (double)ref.ns / 1e6);
    for (int v = 0; v < 5; v++) {
        int any = v == 4, graph = any || (v & 1), depth = any ? 2 : v & 2;

        (void)snprintf(what, sizeof(what), "%s %s overlap %d%s", backend,
            graph ? "graphs" : "eager", depth, any ? ", any order" : "");
        answers(dir, backend, graph, depth, any, &got);
        bad += compare(what, &ref, &got);
        if (v == 0)
            first = got;
        else if (noise(&first, &got) > 0) {
            (void)printf("    logprobs differ from the first run's by %.2g\n",
                (double)noise(&first, &got));
            bad += !any;
        }
        if (graph && got.n_graph == 0) {
            (void)printf("    no step replayed a graph\n");
            bad++;
        }
    }
    return bad;
}

int
main(int argc, char **argv)
{
    const char *backend = "cuda";
    int bad = 0, o;

    while ((o = getopt(argc, argv, "b:n:")) != -1) {
        if (o == 'b')
            backend = optarg;
        else if (o == 'n')
            max_new = (uint32_t)strtoul(optarg, NULL, 10);
        else
            return 64;
    }
    if (optind == argc || max_new < 1 || max_new > MAX_NEW) {
        (void)fprintf(stderr, "usage: g_parity [-b backend] [-n 1..%d] MODEL_DIR...\n",
            MAX_NEW);
        return 64;
    }
    if (strcmp(backend, "cuda") == 0) {
        char why[128];

        if (fdk_ops_cuda.available(why, sizeof(why)) <= 0) {
            (void)printf("skipped: %s\n", why);
            return 77;
        }
    }
    for (int i = optind; i < argc; i++)
        bad += one_model(argv[i], backend);
    return bad != 0;
}
