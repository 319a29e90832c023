/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny random models of every family that tensor parallelism supports, the requests that
 * tests of groups send, and the comparison of two sets of answers. Include config.h
 * first.
 */
#ifndef FDD_TESTS_SIM_RANKS_H
#define FDD_TESTS_SIM_RANKS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

enum { N_REQ = 5, N_TOK = 40, N_TOP = 3 };
/* Tolerance of logprobs; GPUs compute with tensor cores, and in 16
 * bits if the weights have 16. */
#define NEAR     (sim_gpus() > 0 ? 6e-2f : 1e-5f)
#define NEAR_KV8 (sim_gpus() > 0 ? 6e-2f : 2e-2f) /* keys and values in 8 bits */

/* Number of tokens requested of an answer. */
static uint32_t n_tok = N_TOK;

/* ---- models --------------------------------------------------------------------------- */

struct family {
    const char *name, *dtype,
        *more; /* model_type, torch_dtype and other fields of config.json */
};

static const struct family families[] = {
    { "llama", "bfloat16", "" },
    { "qwen3", "float32", ",\"tie_word_embeddings\":true" },
    { "qwen2", "float32", "" },
    { "mistral", "bfloat16", ",\"sliding_window\":40" },
    { "gemma2", "float32",
        ",\"sliding_window\":40,\"query_pre_attn_scalar\":24,\"final_logit_softcapping\":8,\"attn_logit_softcapping\":20" },
    { "gemma3_text", "float32",
        ",\"sliding_window\":40,\"sliding_window_pattern\":2,\"query_pre_attn_scalar\":24" },
    { "phi3", "float16", "" },
    { "glm4", "float32", ",\"partial_rotary_factor\":0.5" },
    { "smollm3", "float32", ",\"no_rope_layer_interval\":2" },
    { "granite", "float32",
        ",\"residual_multiplier\":0.3,\"embedding_multiplier\":4,\"attention_multiplier\":0.1,\"logits_scaling\":3" },
    { "ernie4_5", "bfloat16", ",\"use_bias\":true" },
    { "olmo2", "bfloat16", "" },
    { "olmo3", "float32", ",\"sliding_window\":40" },
    { "glm", "bfloat16", ",\"partial_rotary_factor\":0.5" },
};
#define N_FAMILY (sizeof(families) / sizeof(families[0]))

#ifdef FDD_SANITIZED
#define FEW 1
#else
#define FEW 0
#endif

/* Numbers of query and KV heads for T ranks; with 4 and 6 ranks, ranks share KV heads. */
struct heads {
    int32_t T, n, kv;
};
static const struct heads all_heads[] = { { 2, 4, 2 }, { 4, 8, 2 }, { 3, 6, 3 },
    { 6, 12, 3 }, { 8, 16, 8 } };
#define N_HEADS (sizeof(all_heads) / sizeof(all_heads[0]))

static inline void
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
        "\"head_dim\":%d,\"vocab_size\":259,\"max_position_embeddings\":8192,"
        "\"rms_norm_eps\":1e-6,\"bos_token_id\":1,\"eos_token_id\":2,"
        "\"pad_token_id\":0,\"torch_dtype\":\"%s\"%s}",
        f->name, h->n, h->kv, sim_gpus() > 0 ? 128 : 32, f->dtype, f->more);
    (void)fclose(out);
}

/* ---- answers ------------------------------------------------------------------------------ */

struct answer {
    uint32_t n, ids[N_TOK];
    float lp[N_TOK];
    uint32_t top[N_TOK][N_TOP];
    float top_lp[N_TOK][N_TOP];
    uint64_t score; /* hash of the bits of all prompt logprobs */
};
struct book {
    struct answer a[N_REQ];
    const struct sim_req *req[N_REQ];
};

static inline void
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

static const uint32_t prompt_len[N_REQ] = { 1, 17, 65, 90, 130 };

/* Makes request i, with a prompt of n tokens. */
static inline struct sim_req *
ask(struct sim *s, int i, uint32_t n)
{
    struct sim_rng g = { 500u + (uint64_t)i };
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = n;
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(&g, 3, 250);
    r->p.max_new = n_tok;
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

static inline void
take(const struct sim_req *r, struct answer *a)
{
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == n_tok);
    a->n = n_tok;
    memcpy(a->ids, r->s[0].ids, n_tok * sizeof(a->ids[0]));
    a->score = r->score_hash;
}

static inline struct sim_cfg
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

/* Runs all requests, together or one after another, and keeps their answers in ret.
 * twice: runs them again, and keeps the answers of the second time, when the prefix cache
 * holds their prompts. now: use this simulation; NULL: a new one. */
static inline void
answers(const struct sim_cfg *c, int together, int twice, struct book *ret, struct sim *now)
{
    struct sim *s = now != NULL ? now : sim_new(c);

    for (int again = 0; again <= twice; again++) {
        struct sim_req *r[N_REQ];

        memset(ret, 0, sizeof(*ret));
        s->record = see;
        s->record_arg = ret;
        for (int i = 0; i < N_REQ; i++) {
            r[i] = ask(s, i, prompt_len[i]);
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

/* By rank: decides when its launch thread is late, and for how long. */
static struct sim_rng late_rng[FDK_MAX_RANKS];

static inline void
late(void *arg, int32_t rank)
{
    (void)arg;
    if (sim_u32(&late_rng[rank]) % 8 == 0)
        clk_sleep_ns(sim_range(&late_rng[rank], 0, 50) * CLK_MS);
}

/* Runs all requests together, with launch threads that are late at random. */
static inline void
answers_late(const struct sim_cfg *c, const struct sim_rng *g, struct book *ret)
{
    struct sim *s;

    for (uint64_t i = 0; i < FDK_MAX_RANKS; i++)
        late_rng[i].s = g->s + i;
    s = sim_new(c);
    s->run->ranks->hook = late;
    answers(c, 1, 0, ret, s);
    s->run->ranks->hook = NULL;
    sim_free(s);
}

static inline void
same(const struct book *a, const struct book *b, const char *what)
{
    for (int i = 0; i < N_REQ; i++)
        if (memcmp(&a->a[i], &b->a[i], sizeof(a->a[i])) != 0) {
            (void)fprintf(stderr, "request %d differs: %s\n", i, what);
            SIM_CHECK(0);
        }
}

/* Logprob of id among the top ones at a's position t; minus
 * infinity if it is not there. */
static inline float
of(const struct answer *a, uint32_t t, uint32_t id)
{
    for (int k = 0; k < N_TOP; k++)
        if (a->top[t][k] == id)
            return a->top_lp[t][k];
    return -INFINITY;
}

/* Checks that logprobs differ by at most tol. A request is compared up to the first
 * token where the choices differ; both must have been about equally likely. Returns
 * the number of such requests. */
static inline int
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

#endif
