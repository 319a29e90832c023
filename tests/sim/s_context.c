/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts divided among copies of a model. A row's numbers do not depend on the rows beside it
 * here, so that P copies of T ranks have the bits of T ranks, whatever the prompts' lengths, their
 * chunks, the cache, preemption and order of arrival.
 */
#include "config.h"

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

/* Groups of query heads: of several sizes, of one head, of all. */
static const struct shape heads[] = {
    { "llama", "\"torch_dtype\":\"float32\"", 8, 2 },
    { "llama", "\"torch_dtype\":\"float32\"", 20, 4 },
    { "llama", "\"torch_dtype\":\"float32\"", 6, 6 },
    { "llama", "\"torch_dtype\":\"float32\"", 6, 1 },
};

/* Ranks of a copy and copies. */
static const struct split {
    int32_t T, P;
} splits[] = { { 1, 2 }, { 2, 2 }, { 1, 3 }, { 1, 4 } };
#define N_SPLIT (sizeof(splits) / sizeof(splits[0]))

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
        "{\"model_type\":\"%s\",\"hidden_size\":64,\"intermediate_size\":96,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,"
        "\"head_dim\":16,\"vocab_size\":259,\"max_position_embeddings\":8192,"
        "\"rms_norm_eps\":1e-6,\"bos_token_id\":1,\"eos_token_id\":2,"
        "\"pad_token_id\":0,%s}",
        m->family, m->n, m->kv, m->more);
    (void)fclose(out);
}

/* ---- answers --------------------------------------------------------------------------- */

struct ask {
    uint32_t n_prompt, max_new;
    int scores; /* of the prompt's tokens */
};
struct answer {
    uint32_t n, ids[MAX_TOK];
    uint64_t lp, score; /* of all logprobs' bits, of the prompt's */
};
struct book {
    struct answer a[MAX_REQ];
};

static const struct ask mixed[] = { { 1, 40, 0 }, { 17, 40, 0 }, { 65, 40, 1 }, { 90, 40, 0 },
    { 130, 40, 1 } };
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
        .min_split = 1,
        .kv_dtype = FDK_F32 + 1,
        .model_dir = dir };
}

/* Without copies. */
static struct sim_cfg
alone(const char *dir, const struct split *x)
{
    struct sim_cfg c = base(dir, x);

    c.n_copy = 1;
    return c;
}

/* All at once, or one after the other. */
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

/* With a simulation of its own. *ret_split: steps that copies divided. */
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

/* Every length to 130, eight prompts at a time. */
static void
lengths(struct sim_rng *g)
{
    static struct book want, got;
    char dir[64], what[64];

    (void)g;
    model(&plain, dir);
    for (size_t k = 0; k < N_SPLIT; k++) {
        struct sim_cfg c = alone(dir, &splits[k]);
        struct sim *one = sim_new(&c), *s;

        c = base(dir, &splits[k]);
        c.depth = 1;
        s = sim_new(&c);
        for (uint32_t from = 1; from < 130; from += FEW ? 41 : MAX_REQ) {
            struct ask a[MAX_REQ];

            for (uint32_t i = 0; i < MAX_REQ; i++)
                a[i] = (struct ask){ from + i, 4, i % 3 == 0 };
            (void)snprintf(what, sizeof(what), "%d ranks, %d copies, from %u", splits[k].T,
                splits[k].P, from);
            answer(one, a, MAX_REQ, 0, &want);
            answer(s, a, MAX_REQ, 1, &got);
            same(&want, &got, what);
        }
        SIM_CHECK(s->run->n_split > 0 && one->run->n_split == 0);
        sim_free(one);
        sim_free(s);
    }
    rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(lengths) };

    (void)families;
    (void)heads;
    (void)mixed;
    (void)answers;
    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
