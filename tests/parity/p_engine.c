/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * On the CPU a request's numbers depend only on the request: ids and the bits of every
 * logprob are the same for any max_num_batched_tokens, under preemption, in any batch
 * composition, for any number of threads and steps ahead, with and without graphs, and
 * after resuming. The reference computes all tokens of a step up to the final norm, the
 * other runs only output rows where possible; it keeps all KV blocks, the others only
 * those that windows still reach. Tiny random models made from a config.json.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

#define N_REQ 6
#ifdef FDD_TSAN
#define N_MODEL 1 /* slow there */
#else
#define N_MODEL (sizeof(configs) / sizeof(configs[0]))
#endif

struct answer {
    uint32_t ids[2][64];
    uint32_t n[2];
    uint64_t lp[2], score;
};

static const char *const configs[] = {
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
    "\"hidden_size\":96,\"intermediate_size\":200,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":16,"
    "\"vocab_size\":331,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,"
    "\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,\"eos_token_id\":2}",
    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\","
    "\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":32,"
    "\"vocab_size\":259,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-6,"
    "\"rope_theta\":1000000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,"
    "\"torch_dtype\":\"float32\",\"bos_token_id\":1,\"eos_token_id\":2}",
};

/* Every attribute that an operation may have: norms before and after a sublayer or only
 * after it, offsets, multipliers, soft caps, two rope tables, interleaved rotation,
 * layers without rotation, and frequencies that depend on a request's greatest length,
 * on both sides of the bound. */
#define SMALL(longest) \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":3," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16," \
    "\"vocab_size\":259,\"max_position_embeddings\":" longest ",\"rms_norm_eps\":1e-6," \
    "\"torch_dtype\":\"float32\",\"bos_token_id\":1,\"eos_token_id\":2,"
static const char *const more_configs[] = {
    "{" SMALL("512") "\"model_type\":\"gemma3_text\",\"sliding_window\":40,"
                     "\"sliding_window_pattern\":2,\"query_pre_attn_scalar\":24,"
                     "\"final_logit_softcapping\":8}",
    "{" SMALL("512") "\"model_type\":\"phi3\",\"original_max_position_embeddings\":100,"
                     "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
                     "\"long_factor\":[1,2,3,4,5,6,7,8]}}",
    "{" SMALL("100") "\"model_type\":\"olmo2\",\"rope_scaling\":{\"type\":\"dynamic\","
                     "\"factor\":4}}",
    "{" SMALL("512") "\"model_type\":\"glm4\",\"partial_rotary_factor\":0.5}",
    "{" SMALL("512") "\"model_type\":\"smollm3\",\"no_rope_layer_interval\":2,"
                     "\"use_sliding_window\":true,\"sliding_window\":40}",
    "{" SMALL(
        "512") "\"model_type\":\"granite\",\"residual_multiplier\":0.3,"
               "\"embedding_multiplier\":4,\"attention_multiplier\":0.1,\"logits_scaling\":3}",
};

/* Models that differ only in their layers' window, WINDOW or none. */
#define WINDOW 40
#define WINDOW_CONFIG(window) \
    "{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\"," \
    "\"hidden_size\":96,\"intermediate_size\":200,\"num_hidden_layers\":2," \
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":16," \
    "\"vocab_size\":331,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5," \
    "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false," \
    "\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,\"eos_token_id\":2," \
    "\"sliding_window\":" window "}"
static const char *const window_configs[] = { WINDOW_CONFIG("40"), WINDOW_CONFIG("null") };

static uint32_t
prompt_len(int i)
{
    static const uint32_t n[N_REQ] = { 1, 7, 64, 65, 130, 200 };

    return n[i];
}

static struct sim_req *
ask(struct sim *s, int i, uint32_t prior, const struct answer *of)
{
    struct sim_rng g = { 1000u + (uint64_t)i };
    struct sim_req *r = sim_req(s);

    SIM_CHECK(r != NULL);
    r->n_prompt = prompt_len(i);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(&g, 3, 250);
    r->p.max_new = 24 + (uint32_t)i * 5;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 5;
    r->p.seed = 77u + (uint64_t)i;
    if (prior == 0) {
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
        r->p.prompt_logprobs = 3;
    }
    if (i % 2 == 1) {
        r->p.temperature = 0.9f;
        r->p.top_p = 0.95f;
        r->p.top_k = 40;
    }
    r->p.n = i == 3 && prior == 0 ? 2 : 1;
    if (prior > 0) {
        r->n_prior = prior;
        r->prior = mem_array(prior, 4);
        memcpy(r->prior, of->ids[0], prior * 4u);
    }
    sim_submit(s, r, NULL);
    return r;
}

static void
take(const struct sim_req *r, struct answer *a)
{
    memset(a, 0, sizeof(*a));
    SIM_CHECK(r->code == 0);
    a->score = r->score_hash;
    for (uint32_t k = 0; k < r->p.n; k++) {
        SIM_CHECK(r->s[k].n_ids <= 64 && r->s[k].n_ids == r->p.max_new);
        a->n[k] = r->s[k].n_ids;
        memcpy(a->ids[k], r->s[k].ids, a->n[k] * 4u);
        a->lp[k] = r->s[k].lp_hash;
    }
}

/* Runs all requests, together or one after another. */
static void
run(const struct sim_cfg *cfg, int together, int warm, struct answer *ret,
    uint64_t *ret_preempted)
{
    struct sim *s = sim_new(cfg);
    struct sim_req *r[N_REQ];

    if (warm)
        SIM_CHECK(run_warm(s->run, cfg->max_tokens) == 0);
    for (int i = 0; i < N_REQ; i++) {
        r[i] = ask(s, i, 0, NULL);
        if (!together)
            sim_wait(s, r[i]);
    }
    sim_drain(s);
    for (int i = 0; i < N_REQ; i++)
        take(r[i], &ret[i]);
    *ret_preempted = s->pip->eng->sch->n_preempted;
    sim_free(s);
}

static void
same(const struct answer *a, const struct answer *b, const char *what)
{
    for (int i = 0; i < N_REQ; i++) {
        if (memcmp(&a[i], &b[i], sizeof(a[i])) == 0)
            continue;
        (void)fprintf(stderr, "request %d differs: %s (ids %s, logprobs %s, prompt %s)\n",
            i, what, memcmp(a[i].ids, b[i].ids, sizeof(a[i].ids)) ? "differ" : "same",
            memcmp(a[i].lp, b[i].lp, sizeof(a[i].lp)) ? "differ" : "same",
            a[i].score != b[i].score ? "differ" : "same");
        SIM_CHECK(0);
    }
}

/* Resumes each request after some token: the ids must be the same. */
static void
resume(const struct sim_cfg *cfg, const struct answer *ref)
{
    struct sim *s = sim_new(cfg);

    for (int i = 0; i < N_REQ; i++) {
        struct sim_req *r = ask(s, i, 1 + (uint32_t)i * 4, &ref[i]);

        sim_wait(s, r);
        SIM_CHECK(r->code == 0 && r->s[0].n_ids == ref[i].n[0]);
        SIM_CHECK(memcmp(r->s[0].ids, ref[i].ids[0], ref[i].n[0] * 4u) == 0);
    }
    sim_free(s);
}

static struct sim_cfg
base_cfg(const char *dir)
{
    return (struct sim_cfg){ .max_reqs = 16,
        .max_seqs = 8,
        .max_tokens = 512,
        .max_len = 320,
        .n_block = 160,
        .block_size = 16,
        .chunked = 1,
        .threads = 1,
        .all_tokens = 1,
        .keep_all = 1,
        .model_dir = dir };
}

/* ref: answers of one request after another. tight: numbers of blocks of 16 and of 32
 * tokens that are too few for all requests. */
static void
model(const char *dir, const int32_t tight[2], struct answer *ref)
{
    static const int32_t tokens[] = { 1, 7, 64, 512 };
    static struct answer got[N_REQ];
    struct sim_cfg base = base_cfg(dir), c;
    uint64_t pre;
    char what[96];

    run(&base, 0, 0, ref, &pre);
    base.all_tokens = base.keep_all = 0;
    for (size_t i = 0; i < 4; i++) {
        c = base;
        c.depth = (int32_t)i;
        c.max_tokens = tokens[i];
        c.max_seqs = tokens[i] < 8 ? tokens[i] : 8;
        c.threads = 1 + (int32_t)i % 3;
        c.graph = (int32_t)i % 2;
        (void)snprintf(what, sizeof(what),
            "%d tokens a step, %d threads, graph %d, "
            "overlap %d",
            c.max_tokens, c.threads, c.graph, c.depth);
        run(&c, 1, c.graph, got, &pre);
        same(ref, got, what);
    }
    c = base;
    c.threads = 3;
    c.graph = 1;
    run(&c, 0, 0, got, &pre);
    same(ref, got, "alone, 3 threads, graphs recorded as they come");
    c.depth = 4;
    c.capture = "3,40,300";
    run(&c, 1, 1, got, &pre);
    same(ref, got, "few sizes, overlap 4");
    c.all_tokens = 1;
    run(&c, 1, 1, got, &pre);
    same(ref, got, "few sizes, overlap 4, all tokens");
    c = base;
    c.n_block = tight[0];
    c.max_tokens = 48;
    c.threads = 2;
    run(&c, 1, 0, got, &pre);
    same(ref, got, "preempted");
    SIM_CHECK(pre > 0);
    c.block_size = 32;
    c.n_block = tight[1];
    run(&c, 1, 0, got, &pre);
    same(ref, got, "preempted, blocks of 32");
    SIM_CHECK(pre > 0);
    resume(&base, ref);
}

/* Runs some of these. */
static void
some(const char *dir, struct answer *ref)
{
    static struct answer got[N_REQ];
    struct sim_cfg base = base_cfg(dir), c;
    uint64_t pre;

    run(&base, 0, 0, ref, &pre);
    base.all_tokens = 0;
    c = base;
    c.max_tokens = 7;
    c.max_seqs = 7;
    c.threads = 2;
    run(&c, 1, 0, got, &pre);
    same(ref, got, "7 tokens a step");
    c = base;
    c.n_block = 16;
    c.max_tokens = 48;
    c.graph = 1;
    c.depth = 2;
    run(&c, 1, 1, got, &pre);
    same(ref, got, "preempted, graphs, overlap 2");
    SIM_CHECK(pre > 0);
    resume(&base, ref);
}

/* A vocabulary so large that a step's logits are computed in several slices: requests
 * that run together get the answers of each alone. */
#define N_WIDE 48
static void
wide(const char *dir, uint32_t (*ret)[4], int together)
{
    struct sim_cfg c = { .max_reqs = N_WIDE,
        .max_seqs = N_WIDE,
        .max_tokens = 256,
        .max_len = 32,
        .n_block = 3 * N_WIDE,
        .block_size = 16,
        .chunked = 1,
        .threads = 2,
        .model_dir = dir,
        .graph = together,
        .depth = together ? 2 : 0,
        .exec = FDK_EXEC_INLINE };
    struct sim *s = sim_new(&c);
    struct sim_req *r[N_WIDE];

    SIM_CHECK(s->run->R < N_WIDE / 2);
    for (uint32_t i = 0; i < N_WIDE; i++) {
        r[i] = sim_req(s);
        r[i]->n_prompt = 3;
        r[i]->prompt = mem_array(3, 4);
        for (uint32_t k = 0; k < 3; k++)
            r[i]->prompt[k] = 1000 * i + 7 * k + 3;
        r[i]->p.max_new = 4;
        r[i]->p.flags |= FDP_F_IGNORE_EOS;
        r[i]->p.temperature = i % 2 == 0 ? 0 : 0.8f;
        r[i]->p.seed = i;
        sim_submit(s, r[i], NULL);
        if (!together)
            sim_wait(s, r[i]);
    }
    sim_drain(s);
    for (uint32_t i = 0; i < N_WIDE; i++) {
        SIM_CHECK(r[i]->code == 0 && r[i]->s[0].n_ids == 4);
        memcpy(ret[i], r[i]->s[0].ids, sizeof(ret[i]));
    }
    sim_free(s);
}

static void
wide_vocabulary(const char *dir)
{
    static uint32_t alone[N_WIDE][4], together[N_WIDE][4];

    wide(dir, alone, 0);
    wide(dir, together, 1);
    SIM_CHECK(memcmp(alone, together, sizeof(alone)) == 0);
}

/* With plain logits, and with a soft cap. */
#define WIDE_CONFIG(fields) \
    "{\"hidden_size\":16,\"intermediate_size\":16,\"num_hidden_layers\":1," \
    "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"head_dim\":16," \
    "\"vocab_size\":200003,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5," \
    "\"rope_theta\":10000.0,\"tie_word_embeddings\":true," \
    "\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,\"eos_token_id\":2," fields "}"
static const char *const wide_configs[] = {
    WIDE_CONFIG("\"model_type\":\"llama\""),
    WIDE_CONFIG("\"model_type\":\"gemma2\",\"final_logit_softcapping\":0.5"),
};

/* Prompts with more blocks than fit into a plan: their tables are sent by a separate
 * copy. With larger blocks the tables are short; the answers are the same. */
#define N_LONG 3
static void
long_table(const char *dir, int32_t block_size, uint32_t (*ret)[8])
{
    struct sim_cfg c = { .max_reqs = N_LONG,
        .max_seqs = N_LONG,
        .max_tokens = 2048,
        .max_len = 1400,
        .n_block = 4800 / block_size,
        .block_size = block_size,
        .chunked = 1,
        .threads = 2,
        .model_dir = dir,
        .depth = 2,
        .exec = FDK_EXEC_INLINE };
    struct sim *s = sim_new(&c);
    struct sim_req *r[N_LONG];

    for (uint32_t i = 0; i < N_LONG; i++) {
        r[i] = sim_req(s);
        r[i]->n_prompt = 16 * (BAT_MAX_DELTA + 1) + 90 * i;
        r[i]->prompt = mem_array(r[i]->n_prompt, 4);
        for (uint32_t k = 0; k < r[i]->n_prompt; k++)
            r[i]->prompt[k] = 3 + (k * 7 + i * 31 + k / 5) % 240;
        r[i]->p.max_new = 8;
        r[i]->p.flags |= FDP_F_IGNORE_EOS;
        sim_submit(s, r[i], NULL);
    }
    sim_drain(s);
    for (uint32_t i = 0; i < N_LONG; i++) {
        SIM_CHECK(r[i]->code == 0 && r[i]->s[0].n_ids == 8);
        memcpy(ret[i], r[i]->s[0].ids, sizeof(ret[i]));
    }
    sim_free(s);
}

static void
long_tables(const char *dir)
{
    static uint32_t many[N_LONG][8], few[N_LONG][8];

    long_table(dir, 16, many);
    long_table(dir, 128, few);
    SIM_CHECK(memcmp(many, few, sizeof(many)) == 0);
}

/* A window changes only the answers of requests longer than it. */
static void
window(const struct answer *with, const char *dir)
{
    static struct answer without[N_REQ];
    struct sim_cfg base = base_cfg(dir);
    uint64_t pre;

    run(&base, 0, 0, without, &pre);
    for (int i = 0; i < N_REQ; i++) {
        int longer = prompt_len(i) + with[i].n[0] > WINDOW;

        SIM_CHECK((memcmp(&with[i], &without[i], sizeof(with[i])) != 0) == longer);
    }
}

static void
config(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    SIM_CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

int
main(void)
{
    static const int32_t tight[2] = { 16, 12 }, window_tight[2] = { 8, 5 };
    static struct answer ref[N_REQ];
    char dir[] = "/tmp/fdd-p-engine-XXXXXX", path[64];

    SIM_CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    for (size_t i = 0; i < N_MODEL; i++) {
        config(path, configs[i]);
        model(dir, tight, ref);
    }
    for (size_t i = 0; i < sizeof(more_configs) / sizeof(more_configs[0]); i++) {
        config(path, more_configs[i]);
        some(dir, ref);
    }
    config(path, window_configs[0]);
    model(dir, window_tight, ref);
    config(path, window_configs[1]);
    window(ref, dir);
    long_tables(dir);
    for (size_t i = 0; i < sizeof(wide_configs) / sizeof(wide_configs[0]); i++) {
        config(path, wide_configs[i]);
        wide_vocabulary(dir);
    }
    (void)unlink(path);
    (void)rmdir(dir);
    (void)printf("all configurations agree bit by bit\n");
    return 0;
}
