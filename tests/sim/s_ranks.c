/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of ranks against one device: tiny random models, virtual devices with threads. Over
 * T ranks the sums have another order, so logprobs are near those of one device and tokens
 * differ where two were as likely. Among themselves T ranks have the same bits however steps
 * are composed, launched, preempted and resumed.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/worker/profile.h"
#include "kernels/cpu/cpu.h"
#include "tests/sim/sim.h"

enum { N_REQ = 5, N_TOK = 40, N_TOP = 3 };
#define NEAR 1e-5f

/* ---- models --------------------------------------------------------------------------- */

struct family {
    const char *name, *more; /* of config.json */
};

static const struct family families[] = {
    { "llama", "\"torch_dtype\":\"bfloat16\"" },
    { "qwen3", "\"torch_dtype\":\"float32\",\"tie_word_embeddings\":true" },
    { "qwen2", "\"torch_dtype\":\"float32\"" },
    { "mistral", "\"torch_dtype\":\"bfloat16\",\"sliding_window\":40" },
    { "gemma2",
        "\"torch_dtype\":\"float32\",\"sliding_window\":40,"
        "\"query_pre_attn_scalar\":24,\"final_logit_softcapping\":8,"
        "\"attn_logit_softcapping\":20" },
    { "gemma3_text",
        "\"torch_dtype\":\"float32\",\"sliding_window\":40,"
        "\"sliding_window_pattern\":2,\"query_pre_attn_scalar\":24" },
    { "phi3", "\"torch_dtype\":\"float16\"" },
    { "glm4", "\"torch_dtype\":\"float32\",\"partial_rotary_factor\":0.5" },
    { "smollm3", "\"torch_dtype\":\"float32\",\"no_rope_layer_interval\":2" },
    { "granite",
        "\"torch_dtype\":\"float32\",\"residual_multiplier\":0.3,"
        "\"embedding_multiplier\":4,\"attention_multiplier\":0.1,"
        "\"logits_scaling\":3" },
    { "ernie4_5", "\"torch_dtype\":\"bfloat16\",\"use_bias\":true" },
    { "olmo2", "\"torch_dtype\":\"bfloat16\"" },
};
#define N_FAMILY (sizeof(families) / sizeof(families[0]))

#ifdef FDD_SANITIZED
#define FEW 1
#else
#define FEW 0
#endif

/* Heads that T ranks can divide; with 4 and 6 of them they share KV heads. */
struct heads {
    int32_t T, n, kv;
};
static const struct heads all_heads[] = { { 2, 4, 2 }, { 4, 8, 2 }, { 3, 6, 3 },
    { 6, 12, 3 }, { 8, 16, 8 } };

static void
model(const struct family *f, const struct heads *h, char dir[64])
{
    char path[96];
    FILE *out;

    (void)snprintf(dir, 64, "/tmp/fdd-ranks-XXXXXX");
    SIM_CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    out = fopen(path, "w");
    SIM_CHECK(out != NULL);
    (void)fprintf(out,
        "{\"model_type\":\"%s\",\"hidden_size\":96,\"intermediate_size\":384,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,"
        "\"head_dim\":32,\"vocab_size\":259,\"max_position_embeddings\":512,"
        "\"rms_norm_eps\":1e-6,\"bos_token_id\":1,\"eos_token_id\":2,"
        "\"pad_token_id\":0,%s}",
        f->name, h->n, h->kv, f->more);
    (void)fclose(out);
}

/* ---- answers ------------------------------------------------------------------------------ */

struct answer {
    uint32_t n, ids[N_TOK];
    float lp[N_TOK];
    uint32_t top[N_TOK][N_TOP];
    float top_lp[N_TOK][N_TOP];
    uint64_t score; /* of all prompt logprobs' bits */
};
struct book {
    struct answer a[N_REQ];
    const struct sim_req *req[N_REQ];
};

static void
see(void *arg, struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_logprob *lp = (const struct fdp_logprob *)(rec + 1);
    struct book *b = arg;

    for (int i = 0; i < N_REQ && rec->type == FDP_T_LOGPROBS; i++) {
        struct answer *a = &b->a[i];

        if (b->req[i] != r || rec->position >= N_TOK)
            continue;
        a->lp[rec->position] = lp[0].logprob;
        for (int k = 0; k < N_TOP; k++) {
            a->top[rec->position][k] = lp[1 + k].id;
            a->top_lp[rec->position][k] = lp[1 + k].logprob;
        }
    }
}

static struct sim_req *
ask(struct sim *s, int i, uint32_t more)
{
    static const uint32_t len[N_REQ] = { 1, 17, 65, 90, 130 };
    struct sim_rng g = { 500u + (uint64_t)i };
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = len[i] + more;
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(&g, 3, 250);
    r->p.max_new = N_TOK;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = N_TOP;
    r->p.seed = (uint64_t)i;
    if (i == 2) {
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        r->p.prompt_logprobs = 2;
    }
    return r;
}

static void
take(const struct sim_req *r, struct answer *a)
{
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == N_TOK);
    a->n = N_TOK;
    memcpy(a->ids, r->s[0].ids, sizeof(a->ids));
    a->score = r->score_hash;
}

static struct sim_cfg
base(const char *dir, int32_t n_rank)
{
    return (struct sim_cfg){ .max_reqs = 8,
        .max_seqs = 8,
        .max_tokens = 256,
        .max_len = 192,
        .n_block = 80,
        .block_size = 16,
        .chunked = 1,
        .threads = 1,
        .exec = FDK_EXEC_THREAD,
        .n_rank = n_rank,
        .kv_dtype = FDK_F32 + 1,
        .model_dir = dir };
}

/* All requests at once, or one after the other; twice: the second time the cache has them. */
static void
answers(const struct sim_cfg *c, int together, int twice, struct book *ret, struct sim *now)
{
    struct sim *s = now != NULL ? now : sim_new(c);

    for (int again = 0; again <= twice; again++) {
        struct sim_req *r[N_REQ];

        memset(ret, 0, sizeof(*ret));
        s->record = see;
        s->record_arg = ret;
        for (int i = 0; i < N_REQ; i++) {
            r[i] = ask(s, i, 0);
            ret->req[i] = r[i];
            sim_submit(s, r[i], NULL);
            if (!together)
                sim_wait(s, r[i]);
        }
        sim_drain(s);
        for (int i = 0; i < N_REQ; i++) {
            take(r[i], &ret->a[i]);
            sim_forget(s, r[i]);
        }
        memset(ret->req, 0, sizeof(ret->req));
    }
    if (now == NULL)
        sim_free(s);
}

static void
same(const struct book *a, const struct book *b, const char *what)
{
    for (int i = 0; i < N_REQ; i++)
        if (memcmp(&a->a[i], &b->a[i], sizeof(a->a[i])) != 0) {
            (void)fprintf(stderr, "request %d differs: %s\n", i, what);
            SIM_CHECK(0);
        }
}

/* Logprob of id among those of a's position t; below all that are there. */
static float
of(const struct answer *a, uint32_t t, uint32_t id)
{
    for (int k = 0; k < N_TOP; k++)
        if (a->top[t][k] == id)
            return a->top_lp[t][k];
    return -INFINITY;
}

/* tol: of logprobs. Up to the first token that was chosen otherwise, which must have been as
 * likely. Returns how many there are. */
static int
near(const struct book *a, const struct book *b, float tol, const char *what)
{
    int ties = 0;

    for (int i = 0; i < N_REQ; i++)
        for (uint32_t t = 0; t < N_TOK; t++) {
            const struct answer *x = &a->a[i], *y = &b->a[i];
            int tie = x->ids[t] != y->ids[t];
            float d = fabsf(x->lp[t] - y->lp[t]);

            if (tie)
                d = fabsf(x->lp[t] - of(x, t, y->ids[t]));
            if (!(d <= tol)) {
                (void)fprintf(stderr, "%s: request %d token %u: %u %.7f, %u %.7f\n", what,
                    i, t, x->ids[t], (double)x->lp[t], y->ids[t], (double)y->lp[t]);
                SIM_CHECK(0);
            }
            ties += tie;
            if (tie)
                break;
        }
    return ties;
}

/* ---- one device and T ranks --------------------------------------------------------------- */

static void
rm(const char *dir)
{
    sim_model_rm(dir);
}

/* Every family by every number of ranks it divides. */
static void
families_on_ranks(struct sim_rng *g)
{
    (void)g;
    for (size_t i = 0; i < N_FAMILY; i++)
        for (size_t k = 0; k < sizeof(all_heads) / sizeof(all_heads[0]); k++) {
            static struct book one, got, again;
            const struct heads *h = &all_heads[k];
            char dir[64], what[64];
            struct sim_cfg c;
            int ties;

            if (FEW && k > 0 && (i + k) % 3 != 0)
                continue;
            model(&families[i], h, dir);
            (void)snprintf(what, sizeof(what), "%s on %d", families[i].name, h->T);
            c = base(dir, 1);
            answers(&c, 1, 0, &one, NULL);
            c = base(dir, h->T);
            answers(&c, 0, 0, &got, NULL);
            ties = near(&one, &got, NEAR, what);
            c.graph = 1;
            c.depth = 2;
            c.max_tokens = 48;
            answers(&c, 1, 0, &again, NULL);
            same(&got, &again, what);
            (void)printf("  %s: %d near ties\n", what, ties);
            rm(dir);
        }
}

/* The same bits whatever the steps are. */
static void
ways_of_running(struct sim_rng *g)
{
    static const int32_t tokens[] = { 1, 7, 64, 256 };
    static struct book ref, got;
    char dir[64], what[64];
    struct sim_cfg c;

    (void)g;
    for (size_t k = 0; k < 2; k++) {
        model(&families[k * 3], &all_heads[k], dir);
        c = base(dir, all_heads[k].T);
        answers(&c, 0, 0, &ref, NULL);
        for (int i = 0; i < 4; i++) {
            c.depth = i;
            c.max_tokens = tokens[i];
            c.max_seqs = tokens[i] < 8 ? tokens[i] : 8;
            c.graph = i % 2;
            c.unfused = i == 2;
            c.lazy = i == 3;
            (void)snprintf(what, sizeof(what), "%d tokens, depth %d", tokens[i], i);
            answers(&c, 1, 0, &got, NULL);
            same(&ref, &got, what);
        }
        rm(dir);
    }
}

/* Too few blocks: sequences are preempted; cached blocks go to the host and come back. */
static void
preempted_and_swapped(struct sim_rng *g)
{
    static struct book ref, got;
    char dir[64];
    struct sim_cfg c;
    struct sim *s;

    (void)g;
    for (size_t k = 0; k < 2; k++) {
        model(&families[k], &all_heads[k], dir);
        c = base(dir, all_heads[k].T);
        answers(&c, 0, 0, &ref, NULL);
        c.n_block = 11;
        c.max_tokens = 48;
        c.depth = 2;
        c.graph = 1;
        s = sim_new(&c);
        answers(&c, 1, 0, &got, s);
        SIM_CHECK(s->pip->eng->sch->n_preempted > 0);
        sim_free(s);
        same(&ref, &got, "preempted");
        c.prefix = 1;
        c.n_host = 40;
        s = sim_new(&c);
        answers(&c, 0, 2, &got, s);
        SIM_CHECK(s->pip->eng->kv->n_in > 0 && s->pip->eng->kv->n_out > 0);
        SIM_CHECK(s->pip->eng->kv->n_hit > 0);
        sim_free(s);
        /* prompts that are in the cache have no logprobs of their tokens */
        for (int i = 0; i < N_REQ; i++)
            SIM_CHECK(memcmp(got.a[i].ids, ref.a[i].ids, sizeof(ref.a[i].ids)) == 0 &&
                memcmp(got.a[i].lp, ref.a[i].lp, sizeof(ref.a[i].lp)) == 0);
        rm(dir);
    }
}

/* Weights in 8 and 4 bits, KV caches in 8 bits. */
static void
formats(struct sim_rng *g)
{
    static const struct {
        struct qnt q;
        int32_t kv;
    } kinds[] = { { { FDK_I8, 0 }, FDK_F32 + 1 }, { { FDK_I4, 32 }, FDK_F32 + 1 },
        { { FDK_F8E4M3, 0 }, FDK_F32 + 1 }, { { FDK_I8, 32 }, FDK_F32 + 1 },
        { { FDK_F32, 0 }, FDK_I8 + 1 }, { { FDK_F32, 0 }, FDK_F8E4M3 + 1 },
        { { FDK_F32, 0 }, FDK_BF16 + 1 } };
    static struct book one, got, again;

    (void)g;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            char dir[64], what[64];
            struct sim_cfg c;

            model(&families[0], &all_heads[k], dir);
            (void)snprintf(what, sizeof(what), "format %zu on %d", i, all_heads[k].T);
            c = base(dir, 1);
            c.quant = kinds[i].q;
            c.kv_dtype = kinds[i].kv;
            answers(&c, 1, 0, &one, NULL);
            c.n_rank = all_heads[k].T;
            answers(&c, 0, 0, &got, NULL);
            /* a key that is rounded to another number of 8 bits moves logprobs by more */
            (void)near(&one, &got, kinds[i].kv != FDK_F32 + 1 ? 2e-2f : NEAR, what);
            c.graph = 1;
            c.depth = 2;
            c.max_tokens = 33;
            answers(&c, 1, 0, &again, NULL);
            same(&got, &again, what);
            rm(dir);
        }
}

/* ---- faults ---------------------------------------------------------------------------------- */

static struct sim_rng delays[FDK_MAX_RANKS];

static void
late(void *arg, int32_t rank)
{
    (void)arg;
    if (sim_u32(&delays[rank]) % 8 == 0)
        clk_sleep_ns(sim_range(&delays[rank], 0, 50) * CLK_MS);
}

/* Launch threads that come late change nothing. */
static void
late_launches(struct sim_rng *g)
{
    static struct book ref, got;
    char dir[64];
    struct sim_cfg c;
    struct sim *s;

    for (uint64_t i = 0; i < FDK_MAX_RANKS; i++)
        delays[i].s = g->s + i;
    model(&families[0], &all_heads[1], dir);
    c = base(dir, all_heads[1].T);
    answers(&c, 1, 0, &ref, NULL);
    c.depth = 3;
    c.graph = 1;
    s = sim_new(&c);
    s->run->ranks->hook = late;
    answers(&c, 1, 0, &got, s);
    same(&ref, &got, "launched late");
    s->run->ranks->hook = NULL;
    sim_free(s);
    rm(dir);
}

/* A step by the runner alone: -EIO within the limit, and who it was. */
static void
broken(const char *dir, void (*fault)(struct sim *s), int other, const char *want)
{
    struct sim_cfg c = base(dir, 2);
    static const int32_t dummy[64];
    const struct bat_synth synth = { .n_prefill = 5, .table = dummy, .own = dummy };
    uint64_t t0, begin, end;
    struct bat_rec *rec;
    struct sim *s;
    int rc;

    c.spin_limit_ms = 300;
    s = sim_new(&c);
    rec = &s->run->rec[0];
    bat_make(s->pip->eng->bat, &synth, 1, rec);
    rec->marks = NULL;
    fault(s);
    t0 = clk_now_ns();
    rc = run_launch(s->run, rec);
    if (rc == 0)
        rc = run_collect(s->run, rec, &begin, &end);
    SIM_CHECK(rc == -EIO);
    /* the other one gives up too */
    while (s->run->k->error_text(s->run->ctx, other)[0] == '\0')
        SIM_CHECK(clk_now_ns() - t0 < 20 * CLK_S);
    if (strstr(run_error(s->run), want) == NULL) {
        (void)fprintf(stderr, "%s: not %s\n", run_error(s->run), want);
        SIM_CHECK(0);
    }
    (void)pip_free(s->pip);
    s->pip = NULL;
    s->run = run_free(s->run);
    sim_drop(s);
}

static void
fails(struct sim *s)
{
    SIM_CHECK(run_fail(s->run, 1) == 0);
}

static void
stops(struct sim *s)
{
    run_stall(s->run, 1);
}

static void
stops_first(struct sim *s)
{
    run_stall(s->run, 0);
}

static void
dies_inside(struct sim *s)
{
    fdk_cpu_fail_after(s->run->ctx, 1, 9);
}

static void
ranks_that_break(struct sim_rng *g)
{
    char dir[64];

    (void)g;
    model(&families[0], &all_heads[0], dir);
    broken(dir, fails, 0, "rank 1 (cpu-1): a test made the device fail");
    broken(dir, stops, 0, "rank 1 (cpu-1): collective: rank 1 did not come within 300 ms");
    broken(dir, stops_first, 1,
        "rank 0 (cpu-0): collective: rank 0 did not come within 300 ms");
    broken(dir, dies_inside, 0, "rank 1 (cpu-1): failure injected by a test");
    rm(dir);
}

/* A measured step: all ranks launch it as the one does that has the events. */
static void
measured(struct sim_rng *g)
{
    static const int32_t dummy[64];
    const struct bat_synth synth = { .n_prefill = 5, .table = dummy, .own = dummy };
    struct prf *p = NULL;
    uint64_t begin, end;
    struct sim_cfg c;
    struct sim *s;
    char dir[64];

    (void)g;
    model(&families[0], &all_heads[0], dir);
    c = base(dir, 2);
    s = sim_new(&c);
    SIM_CHECK(prf_new(s->run, 1, NULL, &p) == 0);
    for (int i = 0; i < 6; i++) {
        struct bat_rec *rec = &s->run->rec[0];

        bat_make(s->pip->eng->bat, &synth, i == 0, rec);
        rec->marks = i % 2 == 1 ? &p->marks[0] : NULL;
        SIM_CHECK(run_launch(s->run, rec) == 0);
        SIM_CHECK(run_collect(s->run, rec, &begin, &end) == 0);
        SIM_CHECK(rec->marks == NULL || rec->marks->n > s->prog->n_op / 2);
        rec->marks = NULL;
    }
    (void)prf_free(p);
    sim_free(s);
    rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(families_on_ranks),
        SIM_TEST(ways_of_running), SIM_TEST(preempted_and_swapped), SIM_TEST(formats),
        SIM_TEST(late_launches), SIM_TEST(ranks_that_break), SIM_TEST(measured) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
