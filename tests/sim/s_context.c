/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts divided among copies of a model. Here a row's numbers do not depend on the
 * other rows of its step. So P copies of T ranks, C of which share tokens, give the
 * bits of one such copy, for all lengths of prompts, chunks, cache hits, preemption
 * and any order of arrival.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/worker/profile.h"
#include "kernels/cpu/cpu.h"
#include "tests/sim/sim.h"

#ifdef FDD_SANITIZED
#define FEW 1
#else
#define FEW 0
#endif

enum { MAX_REQ = 8, MAX_TOK = 256 };

/* ---- models --------------------------------------------------------------------------- */

struct shape {
    const char *family, *more; /* of config.json */
    int32_t n, kv;             /* heads */
};

static const struct shape plain = { "llama", "\"torch_dtype\":\"float32\"", 4, 2 };

static const struct shape families[] = {
    { "llama", "\"torch_dtype\":\"bfloat16\"", 4, 2 },
    { "qwen3", "\"torch_dtype\":\"float32\",\"tie_word_embeddings\":true", 4, 2 },
    { "qwen2", "\"torch_dtype\":\"float32\"", 4, 2 },
    { "mistral", "\"torch_dtype\":\"bfloat16\",\"sliding_window\":40", 4, 2 },
    { "gemma2",
        "\"torch_dtype\":\"float32\",\"sliding_window\":40,\"query_pre_attn_scalar\":24,"
        "\"final_logit_softcapping\":8,\"attn_logit_softcapping\":20",
        4, 2 },
    { "gemma3_text",
        "\"torch_dtype\":\"float32\",\"sliding_window\":40,\"sliding_window_pattern\":2,"
        "\"query_pre_attn_scalar\":24",
        4, 2 },
    { "phi3", "\"torch_dtype\":\"float16\"", 4, 2 },
    { "glm4", "\"torch_dtype\":\"float32\",\"partial_rotary_factor\":0.5", 4, 2 },
    { "smollm3", "\"torch_dtype\":\"float32\",\"no_rope_layer_interval\":2", 4, 2 },
    { "granite",
        "\"torch_dtype\":\"float32\",\"residual_multiplier\":0.3,\"embedding_multiplier\":4,"
        "\"attention_multiplier\":0.1,\"logits_scaling\":3",
        4, 2 },
    { "ernie4_5", "\"torch_dtype\":\"bfloat16\",\"use_bias\":true", 4, 2 },
    { "olmo2", "\"torch_dtype\":\"bfloat16\"", 4, 2 },
};

/* Groups of query heads: several sizes, one head, all heads. */
static const struct shape heads[] = {
    { "llama", "\"torch_dtype\":\"float32\"", 8, 2 },
    { "llama", "\"torch_dtype\":\"float32\"", 20, 4 },
    { "llama", "\"torch_dtype\":\"float32\"", 6, 6 },
    { "llama", "\"torch_dtype\":\"float32\"", 6, 1 },
};

/* Number of ranks of a copy, of copies, and of a copy's ranks that share tokens. */
struct split {
    int32_t T, P, C;
};

/* Number of the first splits, of n, for which there are devices. */
static size_t
taken(const struct split *x, size_t n)
{
    size_t k = 0;

    while (k < n && sim_has(x[k].T * x[k].P))
        k++;
    return k;
}

static const struct split splits[] = { { 1, 2, 1 }, { 2, 2, 1 }, { 1, 3, 1 }, { 1, 4, 1 },
    { 4, 2, 2 } };
#define N_SPLIT taken(splits, sizeof(splits) / sizeof(splits[0]))
/* The above, and more copies. */
static const struct split all_splits[] = { { 1, 2, 1 }, { 2, 2, 1 }, { 1, 3, 1 },
    { 1, 4, 1 }, { 4, 2, 2 }, { 1, 6, 1 }, { 1, 8, 1 } };
#define N_ALL \
    (FEW ? N_SPLIT : taken(all_splits, sizeof(all_splits) / sizeof(all_splits[0])))

/* Copies whose ranks all share tokens: the bits differ from those of one copy. */
static const struct split shared_splits[] = { { 1, 2, 2 }, { 2, 2, 2 }, { 1, 3, 3 } };
#define N_SHARED (sizeof(shared_splits) / sizeof(shared_splits[0]))

static int
is_long(void)
{
    return getenv("FDD_LONG") != NULL && !FEW;
}

static void
model(const struct shape *m, char dir[64])
{
    char path[96];
    FILE *out;

    (void)snprintf(dir, 64, "/tmp/fdd-context-XXXXXX");
    SIM_CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    out = fopen(path, "w");
    SIM_CHECK(out != NULL);
    (void)fprintf(out,
        "{\"model_type\":\"%s\",\"hidden_size\":64,\"intermediate_size\":128,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,"
        "\"head_dim\":%d,\"vocab_size\":259,\"max_position_embeddings\":40000,"
        "\"rms_norm_eps\":1e-6,\"bos_token_id\":1,\"eos_token_id\":2,"
        "\"pad_token_id\":0,%s}",
        m->family, m->n, m->kv, sim_gpus() > 0 ? 128 : 32, m->more);
    (void)fclose(out);
}

/* ---- answers --------------------------------------------------------------------------- */

struct ask {
    uint32_t n_prompt, max_new;
    uint32_t scores; /* logprobs of the prompt's tokens from this one on; 0: none */
};
struct answer {
    uint32_t n, ids[MAX_TOK];
    uint64_t lp, score; /* hash of the bits of all logprobs, and of those of the prompt */
};
struct book {
    struct answer a[MAX_REQ];
};

static const struct ask mixed[] = { { 1, 40, 0 }, { 17, 40, 0 }, { 65, 40, 1 },
    { 90, 40, 0 }, { 130, 40, 1 } };
#define N_MIXED (sizeof(mixed) / sizeof(mixed[0]))

static struct sim_req *
ask(struct sim *s, size_t i, const struct ask *a)
{
    struct sim_rng g = { 700u + 31 * (uint64_t)i + a->n_prompt };
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = a->n_prompt;
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(&g, 3, 250);
    r->p.max_new = a->max_new;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 3;
    r->p.seed = (uint64_t)i;
    if (i % 2 == 1) {
        r->p.set |= FDP_S_TEMPERATURE;
        r->p.temperature = 0.7f;
    }
    if (a->scores) {
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        r->p.prompt_logprobs = 2;
        r->p.prompt_from = a->scores;
    }
    return r;
}

static struct sim_cfg
base(const char *dir, const struct split *x)
{
    return (struct sim_cfg){ .max_reqs = MAX_REQ,
        .max_seqs = MAX_REQ,
        .max_tokens = 256,
        .max_len = 192,
        .n_block = 120,
        .block_size = 16,
        .chunked = 1,
        .threads = 1,
        .exec = FDK_EXEC_THREAD,
        .n_rank = x->T,
        .n_copy = x->P,
        .kv_split = x->C,
        .min_split = 1,
        .kv_dtype = FDK_F32 + 1,
        .model_dir = dir };
}

/* Settings without copies. */
static struct sim_cfg
alone(const char *dir, const struct split *x)
{
    struct sim_cfg c = base(dir, x);

    c.n_copy = 1;
    return c;
}

/* Runs all requests, together or one after another. */
static void
answer(struct sim *s, const struct ask *a, size_t n, int together, struct book *ret)
{
    struct sim_req *r[MAX_REQ];

    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < n; i++) {
        r[i] = ask(s, i, &a[i]);
        sim_submit(s, r[i], NULL);
        if (!together)
            sim_wait(s, r[i]);
    }
    sim_drain(s);
    for (size_t i = 0; i < n; i++) {
        struct answer *to = &ret->a[i];

        SIM_CHECK(r[i]->code == 0 && r[i]->s[0].n_ids == a[i].max_new);
        to->n = r[i]->s[0].n_ids;
        memcpy(to->ids, r[i]->s[0].ids, to->n * sizeof(to->ids[0]));
        to->lp = r[i]->s[0].lp_hash;
        to->score = r[i]->score_hash;
        sim_forget(s, r[i]);
    }
}

/* The same in a new simulation. *ret_split: number of steps that copies divided. */
static void
answers(const struct sim_cfg *c, const struct ask *a, size_t n, int together,
    struct book *ret, uint64_t *ret_split)
{
    struct sim *s = sim_new(c);

    answer(s, a, n, together, ret);
    if (ret_split != NULL)
        *ret_split = s->run->n_split;
    sim_free(s);
}

static void
same(const struct book *a, const struct book *b, const char *what)
{
    for (int i = 0; i < MAX_REQ; i++)
        if (memcmp(&a->a[i], &b->a[i], sizeof(a->a[i])) != 0) {
            uint32_t t = 0;

            while (t < a->a[i].n && a->a[i].ids[t] == b->a[i].ids[t])
                t++;
            (void)fprintf(stderr,
                "%s: request %d differs: token %u of %u, logprobs %d, of the prompt %d\n",
                what, i, t, a->a[i].n, a->a[i].lp != b->a[i].lp,
                a->a[i].score != b->a[i].score);
            SIM_CHECK(0);
        }
}

static void
rm(const char *dir)
{
    sim_model_rm(dir);
}

/* ---- lengths ------------------------------------------------------------------------------ */

/* Every length up to 130, eight prompts at a time. */
static void
lengths(struct sim_rng *g)
{
    static struct book want, got;
    char dir[64], what[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_ALL; k++) {
        struct sim_cfg c = alone(dir, &all_splits[k]);
        struct sim *one = sim_new(&c), *s;

        c = base(dir, &all_splits[k]);
        c.depth = 1;
        s = sim_new(&c);
        for (uint32_t from = 1; from < 130; from += FEW ? 41 : MAX_REQ) {
            struct ask a[MAX_REQ];

            for (uint32_t i = 0; i < MAX_REQ; i++)
                a[i] = (struct ask){ from + i, 4, i % 3 == 0 };
            (void)snprintf(what, sizeof(what), "%d ranks, %d copies, from %u",
                all_splits[k].T, all_splits[k].P, from);
            answer(one, a, MAX_REQ, 0, &want);
            answer(s, a, MAX_REQ, 1, &got);
            same(&want, &got, what);
        }
        SIM_CHECK(s->run->n_split > 0 && one->run->n_split == 0);
        SIM_CHECK(s->run->dev[0].kv[0].n_own == all_splits[k].C);
        sim_free(one);
        sim_free(s);
    }
    rm(dir);
}

/* Prompts of thousands of tokens, whole and in chunks. */
static void
long_prompts(struct sim_rng *g)
{
    static const struct ask all[] = { { 1023, 3, 0 }, { 1024, 3, 1 }, { 1025, 3, 0 },
        { 4097, 3, 0 }, { 32768, 3, 0 } };
    static struct book want, got;
    size_t n = FEW ? 1 : is_long() ? 5 : 4;
    int32_t most = is_long() ? 33000 : 4200;
    char dir[64], what[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++)
        for (int chunk = 0; chunk < 2; chunk++) {
            struct sim_cfg c = alone(dir, &splits[k]);
            uint64_t n_split;

            c.max_tokens = c.max_len = most;
            c.n_block = most / 7;
            answers(&c, all, n, 1, &want, NULL);
            c.n_copy = splits[k].P;
            c.max_tokens = chunk ? 500 : most;
            c.min_split = 100;
            (void)snprintf(what, sizeof(what), "%d ranks, %d copies, chunks %d",
                splits[k].T, splits[k].P, chunk);
            answers(&c, all, n, 1, &got, &n_split);
            same(&want, &got, what);
            SIM_CHECK(n_split > 0);
        }
    rm(dir);
}

/* ---- models and formats --------------------------------------------------------------------- */

static void
one_model(const struct shape *m, const struct split *x, const char *what)
{
    static struct book want, got;
    struct sim_cfg c;
    uint64_t n_split;
    char dir[64];

    model(m, dir);
    c = alone(dir, x);
    answers(&c, mixed, N_MIXED, 0, &want, NULL);
    c.n_copy = x->P;
    answers(&c, mixed, N_MIXED, 0, &got, &n_split);
    SIM_CHECK(n_split > 0);
    same(&want, &got, what);
    c.graph = 1;
    c.depth = 2;
    c.max_tokens = 64;
    c.min_split = 7;
    answers(&c, mixed, N_MIXED, 1, &got, &n_split);
    SIM_CHECK(n_split > 0);
    same(&want, &got, what);
    rm(dir);
}

static void
every_family(struct sim_rng *g)
{
    char what[64];

    (void)g;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        for (size_t k = 0; k < N_SPLIT; k++) {
            if (FEW && (i + k) % 4 != 0)
                continue;
            (void)snprintf(what, sizeof(what), "%s, %d ranks, %d copies",
                families[i].family, splits[k].T, splits[k].P);
            one_model(&families[i], &splits[k], what);
        }
}

static void
groups_of_heads(struct sim_rng *g)
{
    char what[64];

    (void)g;
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        for (size_t k = 0; k < N_SPLIT; k++) {
            if (heads[i].n % splits[k].T != 0 ||
                (splits[k].C > 1 && splits[k].T < splits[k].C * heads[i].kv))
                continue;
            (void)snprintf(what, sizeof(what), "%d heads, %d of keys, %d ranks, %d copies",
                heads[i].n, heads[i].kv, splits[k].T, splits[k].P);
            if (!FEW || k == i % N_SPLIT)
                one_model(&heads[i], &splits[k], what);
        }
}

/* KV caches in 8 and 16 bits, weights in 8 and 4 bits. */
static void
formats(struct sim_rng *g)
{
    static const struct {
        struct qnt q;
        int32_t kv;
    } kinds[] = { { { FDK_F32, 0 }, FDK_I8 + 1 }, { { FDK_F32, 0 }, FDK_F8E4M3 + 1 },
        { { FDK_F32, 0 }, FDK_BF16 + 1 }, { { FDK_I8, 0 }, FDK_F32 + 1 },
        { { FDK_I4, 32 }, FDK_I8 + 1 }, { { FDK_F8E4M3, 0 }, FDK_F8E4M3 + 1 } };
    static struct book want, got;
    char dir[64], what[64];

    (void)g;
    model(&families[0], dir);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        for (size_t k = 0; k < N_SPLIT; k++) {
            struct sim_cfg c = alone(dir, &splits[k]);

            if (FEW && k != i % N_SPLIT)
                continue;
            c.quant = kinds[i].q;
            c.kv_dtype = kinds[i].kv;
            answers(&c, mixed, N_MIXED, 1, &want, NULL);
            c.n_copy = splits[k].P;
            c.depth = 1;
            answers(&c, mixed, N_MIXED, 0, &got, NULL);
            (void)snprintf(what, sizeof(what), "format %zu, %d ranks, %d copies", i,
                splits[k].T, splits[k].P);
            same(&want, &got, what);
        }
    rm(dir);
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* A divided step is one graph, for all lengths of prompts, except with prompt logprobs. */
static void
replayed(struct sim_rng *g)
{
    static const struct ask plain_asks[] = { { 130, 1, 0 }, { 9, 1, 0 }, { 77, 1, 0 },
        { 130, 1, 0 } };
    static const struct ask scored = { 130, 1, 1 }, few_scored = { 130, 1, 96 };
    static struct book want, want_scores, got;
    char dir[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = alone(dir, &splits[k]);
        struct sim *s;

        answers(&c, plain_asks, 4, 0, &want, NULL);
        answers(&c, &few_scored, 1, 0, &want_scores, NULL);
        c.n_copy = splits[k].P;
        c.graph = 1;
        s = sim_new(&c);
        answer(s, plain_asks, 4, 0, &got);
        same(&want, &got, "graphs");
        SIM_CHECK(s->run->n_split == 4 && s->run->n_graph == 4 && s->run->n_eager == 0);
        answer(s, &scored, 1, 0, &got);
        SIM_CHECK(s->run->n_split == 5 && s->run->n_graph == 4 && s->run->n_eager == 1);
        /* outputs of copy 0 fit into the graph, but another copy has some too */
        answer(s, &few_scored, 1, 0, &got);
        SIM_CHECK(s->run->n_split == 6 && s->run->n_graph == 4 && s->run->n_eager == 2);
        same(&want_scores, &got, "scores of other copies");
        sim_free(s);
    }
    rm(dir);
}

/* Chunks of a prompt, with and without a divided one, together with decoding rows. */
static void
chunks(struct sim_rng *g)
{
    static const int32_t tokens[] = { 17, 64, 100, 256 };
    static struct book want, got;
    char dir[64], what[64];

    (void)g;
    model(&families[3], dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = alone(dir, &splits[k]);

        answers(&c, mixed, N_MIXED, 0, &want, NULL);
        c.n_copy = splits[k].P;
        for (int i = 0; i < 4; i++) {
            c.depth = i;
            c.max_tokens = tokens[i];
            c.graph = i % 2;
            c.lazy = i == 3;
            c.unfused = i == 2;
            c.min_split = i == 1 ? 40 : 1 + 3 * i;
            (void)snprintf(what, sizeof(what), "%d copies, %d tokens, depth %d",
                splits[k].P, tokens[i], i);
            answers(&c, mixed, N_MIXED, 1, &got, NULL);
            same(&want, &got, what);
        }
    }
    rm(dir);
}

/* The second time 0 to 200 tokens of each prompt are in the cache; blocks are
 * copied to the host and back. */
static void
cached(struct sim_rng *g)
{
    static const struct ask first[] = { { 40, 2, 0 }, { 90, 2, 0 }, { 150, 2, 0 },
        { 215, 2, 0 } };
    static struct book want, got;
    char dir[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = alone(dir, &splits[k]);
        struct sim *s;

        c.max_len = 256;
        answers(&c, first, 4, 0, &want, NULL);
        c.n_copy = splits[k].P;
        c.prefix = 1;
        c.n_block = 24;
        c.n_host = 60;
        c.depth = 2;
        c.max_tokens = 64;
        s = sim_new(&c);
        for (int again = 0; again < 3; again++) {
            answer(s, first, 4, 0, &got);
            same(&want, &got, "cached");
        }
        SIM_CHECK(s->pip->eng->kv->n_hit > 0 && s->pip->eng->kv->n_in > 0);
        SIM_CHECK(s->run->n_split > 0);
        sim_free(s);
    }
    rm(dir);
}

/* Too few blocks: sequences are preempted, and computed again with what they had generated. */
static void
preempted(struct sim_rng *g)
{
    static struct book want, got;
    char dir[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = alone(dir, &splits[k]);
        struct sim *s;

        answers(&c, mixed, N_MIXED, 0, &want, NULL);
        c.n_copy = splits[k].P;
        c.n_block = 12;
        c.max_tokens = 48;
        c.depth = 2;
        c.graph = 1;
        s = sim_new(&c);
        answer(s, mixed, N_MIXED, 1, &got);
        SIM_CHECK(s->pip->eng->sch->n_preempted > 0 && s->run->n_split > 0);
        sim_free(s);
        same(&want, &got, "preempted");
    }
    rm(dir);
}

/* 256 output tokens after divided prompts whose lengths have all remainders. */
static void
decoding(struct sim_rng *g)
{
    static struct book want, got;
    uint32_t n = FEW ? 40 : MAX_TOK;
    char dir[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = alone(dir, &splits[k]);
        struct ask a[MAX_REQ];

        for (uint32_t i = 0; i < MAX_REQ; i++)
            a[i] = (struct ask){ 64 + i, n, 0 };
        c.max_len = 400;
        c.n_block = 250;
        c.max_tokens = 600;
        answers(&c, a, MAX_REQ, 1, &want, NULL);
        c.n_copy = splits[k].P;
        c.depth = 2;
        c.graph = 1;
        answers(&c, a, MAX_REQ, 1, &got, NULL);
        same(&want, &got, "decoded");
    }
    rm(dir);
}

/* KV that no copy has computed is not read: all of the caches is filled with NaN first. */
static void
nothing_else_is_read(struct sim_rng *g)
{
    static struct book want, got;
    char dir[64];

    (void)g;
    model(&families[4], dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = alone(dir, &splits[k]);
        struct sim *s;

        answers(&c, mixed, N_MIXED, 1, &want, NULL);
        c.n_copy = splits[k].P;
        s = sim_new(&c);
        for (int32_t i = 0; i < s->run->n_rank; i++)
            memset(s->run->dev[i].d_kv, 0xff, (size_t)s->run->dev[i].mem.kv);
        answer(s, mixed, N_MIXED, 1, &got);
        same(&want, &got, "on NaNs");
        sim_free(s);
    }
    rm(dir);
}

/* All caches hold the same bytes in the end. */
static void
caches_are_alike(struct sim_rng *g)
{
    static struct book got;
    char dir[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = base(dir, &splits[k]);
        const struct run_dev *dev;
        struct sim *s;

        c.kv_dtype = FDK_I8 + 1;
        c.depth = 1;
        s = sim_new(&c);
        dev = s->run->dev;
        for (int32_t i = 0; i < s->run->n_rank; i++)
            memset(dev[i].d_kv, 0, (size_t)dev[i].mem.kv);
        answer(s, mixed, N_MIXED, 1, &got);
        for (int32_t i = splits[k].T; i < s->run->n_rank; i++) {
            /* block 0 is the dummy, to which padding writes */
            size_t at = (size_t)dev[i].kv[0].block_bytes;

            SIM_CHECK(memcmp(dev[i].d_kv + at, dev[i % splits[k].T].d_kv + at,
                          (size_t)dev[i].mem.kv - at) == 0);
        }
        sim_free(s);
    }
    rm(dir);
}

/* ---- shares ------------------------------------------------------------------------------------- */

/* The load of a copy in a divided step: tokens, planned attention
 * tiles, query-key products. */
struct share {
    int64_t tokens, tiles, products;
};

static struct share
share_of(const struct sim *s, const struct bat_rec *rec, int32_t p)
{
    const struct bat_copy *c = &rec->copy[p];
    const int32_t *kv = (const int32_t *)(c->plan + c->layout.kv_len);
    const int32_t *q = (const int32_t *)(c->plan + c->layout.q_start);
    int32_t rank = p * run_copy_ranks(s->run);
    struct share ret = { c->n_tok, s->run->dev[rank].eager[0].att[0].counts[0], 0 };

    for (int32_t r = 0; r < c->n_row; r++)
        for (int32_t t = q[r]; t < q[r + 1]; t++)
            ret.products += kv[r] - (q[r + 1] - 1 - t);
    return ret;
}

static int64_t
apart(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

/* Copies have about the same number of tokens, tiles and query-key products of a prompt:
 * shards and their tiles differ by at most one, and the products by less than those of
 * one shard with one other. */
static void
balanced(struct sim_rng *g)
{
    enum { LEN = 1000 };
    static int32_t table[LEN], own[LEN];
    char dir[64];

    (void)g;
    for (int32_t i = 0; i < LEN; i++)
        table[i] = own[i] = 1 + i % 100;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = base(dir, &splits[k]);
        struct sim *s;

        c.max_tokens = c.max_len = LEN;
        s = sim_new(&c);
        for (int32_t len = 1; len <= LEN; len = len * 3 + 1) {
            struct bat_synth synth = { .n_prefill = len, .table = table, .own = own };
            int64_t n = 2 * splits[k].P, tile = (len / n) * (len / n);
            struct bat_rec *rec = &s->run->rec[0];
            uint64_t begin, end;
            int64_t sum = 0;

            bat_make(s->pip->eng->bat, &synth, 1, rec);
            rec->marks = NULL;
            SIM_CHECK(run_launch(s->run, rec) == 0);
            SIM_CHECK(run_collect(s->run, rec, &begin, &end) == 0);
            for (int32_t p = 0; p < splits[k].P; p++) {
                struct share a = share_of(s, rec, 0), b = share_of(s, rec, p);

                SIM_CHECK(apart(a.tokens, b.tokens) <= 2 && apart(a.tiles, b.tiles) <= 2);
                SIM_CHECK(
                    apart(a.products, b.products) <= (tile > 2 * len ? tile : 2 * len));
                sum += b.products;
            }
            SIM_CHECK(sum == (int64_t)len * (len + 1) / 2);
        }
        sim_free(s);
    }
    rm(dir);
}

/* Block tables for the rows of a synthetic step, each with its own blocks. */
static const int32_t *
blocks(void)
{
    static int32_t table[64];

    for (int32_t i = 0; i < 64; i++)
        table[i] = 1 + i;
    return table;
}

/* A divided step that is measured is launched operation by operation on all copies. */
static void
measured(struct sim_rng *g)
{
    const struct bat_synth synth = { .n_decode = 2,
        .context = 9,
        .n_prefill = 50,
        .table = blocks(),
        .own = blocks() };
    char dir[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = base(dir, &splits[k]);
        struct prf *p = NULL;
        uint64_t begin, end;
        struct sim *s;

        c.min_split = 40;
        s = sim_new(&c);
        SIM_CHECK(prf_new(s->run, 1, NULL, &p) == 0);
        for (int i = 0; i < 6; i++) {
            struct bat_rec *rec = &s->run->rec[0];
            int shared = 0;

            bat_make(s->pip->eng->bat, &synth, i == 0, rec);
            SIM_CHECK(rec->n_split == 1);
            rec->marks = i % 2 == 1 ? &p->marks[0] : NULL;
            SIM_CHECK(run_launch(s->run, rec) == 0);
            SIM_CHECK(run_collect(s->run, rec, &begin, &end) == 0);
            for (int32_t m = 0; i % 2 == 1 && m < rec->marks->n; m++)
                if (rec->marks->at[m].line < s->prog->n_op)
                    shared += s->prog->op[rec->marks->at[m].line].kind == MDL_OP_KVSHARE;
            SIM_CHECK(i % 2 == 0 || shared == s->prog->cfg.n_layer);
            rec->marks = NULL;
        }
        (void)prf_free(p);
        sim_free(s);
    }
    rm(dir);
}

/* ---- the threshold ------------------------------------------------------------------------------ */

static struct fdk_ops slow;
static uint64_t token_ns, exchange_ns;

static int
slow_embed(const struct fdk_embed_args *a, fdk_stream_t st)
{
    int rc = fdk_ops_cpu.embed(a, st);

    return rc != 0 ? rc : fdk_ops_cpu.stream_delay(st, (uint64_t)a->T * token_ns);
}

static int
slow_share(const struct fdk_kv_share_args *a, fdk_stream_t st)
{
    int rc = fdk_ops_cpu.kv_share(a, st);

    return rc != 0 ? rc : fdk_ops_cpu.stream_delay(st, exchange_ns);
}

/* The threshold, in tokens, from which prompts are divided, as measured by priming. */
static int32_t
measured_split(const char *dir, uint64_t budget_ns, int32_t *ret_before)
{
    static const struct ask a[] = { { 150, 2, 0 } };
    struct sim_cfg c = base(dir, &splits[0]);
    static struct book got;
    struct sim *s;
    int32_t n;

    c.min_split = 0;
    c.ops = &slow;
    s = sim_new(&c);
    *ret_before = eng_min_split(s->pip->eng);
    SIM_CHECK(eng_prime(s->pip->eng, budget_ns) == 0 && s->run->n_split == 0);
    n = eng_min_split(s->pip->eng);
    SIM_CHECK(s->pip->eng->sch->cfg.min_split == n && s->pip->eng->sch->cfg.n_copy == 2);
    answer(s, a, 1, 1, &got);
    SIM_CHECK((s->run->n_split > 0) == (n <= 150));
    sim_free(s);
    return n;
}

/* Repeats the measurement a few times, as other programs use the machine too; one must
 * give the expected result. */
static void
measures(const char *dir, int32_t want)
{
    int32_t before, n = 0;

    for (int try = 0; try < 5 && n != want; try++) {
        n = measured_split(dir, 60 * CLK_S, &before);
        SIM_CHECK(before == 512);
    }
    if (n != want)
        (void)fprintf(stderr, "divided from %d tokens on, not %d\n", n, want);
    SIM_CHECK(n == want);
}

/* If tokens are slow, all prompts of 64 tokens are divided; if exchanges are slow, none
 * is; without time to measure, the threshold does not change. */
static void
crossover(struct sim_rng *g)
{
    int32_t before;
    char dir[64];

    (void)g;
    model(&plain, dir);
    slow = fdk_ops_cpu;
    slow.embed = slow_embed;
    slow.kv_share = slow_share;
    token_ns = 300000;
    exchange_ns = 0;
    measures(dir, 64);
    token_ns = 0;
    exchange_ns = 40 * CLK_MS;
    measures(dir, INT32_MAX);
    SIM_CHECK(measured_split(dir, 0, &before) == 512);
    rm(dir);
}

/* ---- faults ---------------------------------------------------------------------------------------- */

static struct sim_rng delays[FDK_MAX_RANKS];

static void
late(void *arg, int32_t rank)
{
    (void)arg;
    if (sim_u32(&delays[rank]) % 4 == 0)
        clk_sleep_ns(sim_range(&delays[rank], 0, 20) * CLK_MS);
}

/* The random numbers are taken at a meeting of ranks, by several threads. */
static int
late_inside(void *arg, int rank, int stage, uint64_t piece, int met)
{
    struct sim_rng g = { piece * 64 + (uint64_t)(rank * 4 + stage * 2 + met) };

    (void)arg;
    if (!met && sim_u32(&g) % 8 == 0)
        clk_sleep_ns(sim_range(&g, 0, 3000) * 1000u);
    return 0;
}

/* Copies that are late to a step or to an exchange in it change nothing. */
static void
late_copies(struct sim_rng *g)
{
    static struct book want, got;
    char dir[64];

    for (uint64_t i = 0; i < FDK_MAX_RANKS; i++)
        delays[i].s = g->s + i;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT + N_SHARED; k++) {
        const struct split *x = k < N_SPLIT ? &splits[k] : &shared_splits[k - N_SPLIT];
        struct sim_cfg c = k < N_SPLIT ? alone(dir, x) : base(dir, x);
        struct sim *s;

        c.block_size = x->C == 3 ? 24 : 16;
        answers(&c, mixed, N_MIXED, 1, &want, NULL);
        c.n_copy = x->P;
        c.depth = 3;
        c.graph = 1;
        c.n_block = 14;
        c.max_tokens = 64;
        c.prefix = 1;
        c.n_host = 20;
        s = sim_new(&c);
        s->run->ranks->hook = late;
        for (int32_t t = 0; t < x->T; t++)
            fdk_cpu_group_hook(s->run->copies[t], late_inside, NULL);
        for (uint64_t from = s->run->n_split; s->run->n_split == from ||
             (is_long() && s->run->n_split < 10000 / N_SPLIT);) {
            answer(s, mixed, N_MIXED, 1, &got);
            same(&want, &got, "late");
        }
        s->run->ranks->hook = NULL;
        sim_free(s);
    }
    rm(dir);
}

/* Runs a step in the runner only: it must return -EIO within
 * the limit and name the rank. */
static void
broken(const char *dir, const struct split *x, void (*fault)(struct sim *s),
    const char *want)
{
    const struct bat_synth synth = { .n_prefill = 33, .table = blocks(), .own = blocks() };
    struct sim_cfg c = base(dir, x);
    uint64_t t0, begin, end;
    struct bat_rec *rec;
    struct sim *s;
    int rc;

    c.spin_limit_ms = 300;
    c.block_size = x->C == 3 ? 24 : 16;
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
    if (strstr(run_error(s->run), want) == NULL) {
        (void)fprintf(stderr, "%s: not %s\n", run_error(s->run), want);
        SIM_CHECK(0);
    }
    SIM_CHECK(clk_now_ns() - t0 < 20 * CLK_S);
    (void)pip_free(s->pip);
    s->pip = NULL;
    s->run = run_free(s->run);
    sim_drop(s);
}

static void
last_fails(struct sim *s)
{
    SIM_CHECK(run_fail(s->run, s->run->n_rank - 1) == 0);
}

static void
last_stops(struct sim *s)
{
    run_stall(s->run, s->run->n_rank - 1);
}

static void
first_stops(struct sim *s)
{
    run_stall(s->run, 0);
}

static void
last_dies_inside(struct sim *s)
{
    fdk_cpu_fail_after(s->run->ctx, s->run->n_rank - 1, 12);
}

static void
copies_that_break(struct sim_rng *g)
{
    char dir[64], want[128];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT + N_SHARED; k++) {
        const struct split *x = k < N_SPLIT ? &splits[k] : &shared_splits[k - N_SPLIT];
        int last = x->T * x->P - 1;

        (void)snprintf(want, sizeof(want),
            "rank %d (cpu-%d): a test made the device fail", last, last);
        broken(dir, x, last_fails, want);
        (void)snprintf(want, sizeof(want),
            "rank %d (cpu-%d): collective: rank %d did not arrive within 300 ms", last,
            last, last);
        broken(dir, x, last_stops, want);
        broken(dir, x, first_stops,
            "rank 0 (cpu-0): collective: rank 0 did not arrive within 300 ms");
        (void)snprintf(want, sizeof(want), "rank %d (cpu-%d): failure injected by a test",
            last, last);
        broken(dir, x, last_dies_inside, want);
    }
    rm(dir);
}

int
main(int argc, char **argv)
{
    /* the last six need the internals of virtual devices */
    static const struct sim_test tests[] = { SIM_TEST(lengths), SIM_TEST(long_prompts),
        SIM_TEST(every_family), SIM_TEST(groups_of_heads), SIM_TEST(formats),
        SIM_TEST(replayed), SIM_TEST(chunks), SIM_TEST(cached), SIM_TEST(preempted),
        SIM_TEST(decoding), SIM_TEST(measured), SIM_TEST(nothing_else_is_read),
        SIM_TEST(caches_are_alike), SIM_TEST(balanced), SIM_TEST(crossover),
        SIM_TEST(late_copies), SIM_TEST(copies_that_break) };
    size_t n = sizeof(tests) / sizeof(tests[0]);

    return sim_run(argc, argv, tests, sim_gpus() > 0 ? n - 6 : n);
}
