/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * KV groups with windows: blocks that left a window are freed while a sequence runs,
 * and no answer depends on that. The reference keeps all blocks, has no prefix cache,
 * no overlap and no shortage. A model of six layers on the cpu backend, with
 * different windows.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "tests/sim/ref.h"

#define B          16
#define N_LAYER    6
#define TEXT       160 /* most tokens that prompts have in common */
#define OWN        5   /* their own tokens after those */
#define STEP       8   /* each prompt has this many more tokens in common than the last */
#define N_CUT      (TEXT / STEP + 1)
#define SAMPLES    N_CUT       /* from here on: samples, */
#define LONG       (2 * N_CUT) /* long answers */
#define N_LONG     8
#define N_CONTENT  (LONG + N_LONG)

#define MOST_POLLS 200000 /* eight long answers need a few thousand */

static char dir[] = "/tmp/fdd-s-window-XXXXXX";

/* Windows by layer. */
static const int32_t patterns[][N_LAYER] = {
    { 40, 40, 40, 40, 40, 0 },
    { 17, 17, 17, 17, 17, 17 },
    { 0, 0, 0, 64, 64, 64 },
    { 5, 33, 0, 100, 33, 5 },
};
#define N_PATTERN (sizeof(patterns) / sizeof(patterns[0]))
static const int32_t *pattern;

static void
set_windows(struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == MDL_OP_ATTENTION)
            p->op[i].window = pattern[p->op[i].layer];
}

static void
config(void)
{
    char name[80];
    FILE *f;

    SIM_CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(name, sizeof(name), "%s/config.json", dir);
    f = fopen(name, "w");
    SIM_CHECK(f != NULL);
    (void)fprintf(f,
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":%d,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":16,"
        "\"vocab_size\":259,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,"
        "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,"
        "\"torch_dtype\":\"float32\",\"bos_token_id\":1,\"eos_token_id\":2}",
        N_LAYER);
    (void)fclose(f);
}

static struct sim_cfg
base(int depth)
{
    return (struct sim_cfg){ .max_reqs = 64,
        .max_seqs = 8,
        .max_tokens = 48,
        .max_len = 384,
        .n_block = 200,
        .block_size = B,
        .chunked = 1,
        .depth = depth,
        .exec = depth > 0 ? FDK_EXEC_DEFER : FDK_EXEC_INLINE,
        .prefix = 1,
        .model_dir = dir,
        .edit = set_windows,
        .graph = depth % 2 };
}

static void
fill(struct sim_req *r, uint32_t i)
{
    struct sim_rng text = { 77 }, own = { 1000 + i };
    uint32_t same = i < LONG ? i % N_CUT * STEP : 8 * (i - LONG);

    r->n_prompt = same + OWN;
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = sim_range(k < same ? &text : &own, 3, 250);
    r->p.max_new = i < LONG ? 12 : 200 + (i - LONG) * 10;
    r->p.seed = i;
    r->p.flags |= FDP_F_IGNORE_EOS;
    r->p.set |= FDP_S_LOGPROBS;
    r->p.logprobs = 3;
    r->p.n = i >= SAMPLES && i < LONG ? SIM_MAX_N : 1;
    if (i % 3 > 0)
        r->p.temperature = 0.8f;
    if (i % 7 == 3)
        r->p.set |= FDP_S_PROMPT_LOGPROBS;
}

static struct ref *
reference(size_t i)
{
    const struct ref_cfg rc = { .n_content = N_CONTENT, .fill = fill };
    struct sim_cfg c = base(0);

    pattern = patterns[i];
    return ref_new(&c, &rc);
}

/* Number of blocks that the running sequences would hold if none were freed. */
static int64_t
kept_for_ever(const struct sim *s)
{
    const struct kv *kv = s->pip->eng->kv;
    int64_t n = 0;

    for (int32_t i = 0; i < kv->n_slot; i++)
        n += kv->n_held[i] * kv->n_group;
    return n;
}

/* If nothing was evicted, each prompt finds all full blocks that it has in common with
 * earlier ones, wherever its windows begin. */
static void
hits_at_every_boundary(struct sim_rng *g)
{
    for (size_t p = 0; p < N_PATTERN; p++) {
        struct ref *f = reference(p);

        for (int depth = 0; depth <= ENG_MAX_DEPTH; depth += 2) {
            struct sim_cfg c = base(depth);
            struct sim *s;

            c.seed = sim_u32(g);
            s = sim_new(&c);
            ref_watch(f, s);
            sim_wait(s, ref_ask(f, s, N_CUT - 1));
            for (uint32_t i = 0; i < N_CUT; i++) {
                struct sim_req *r = ref_ask(f, s, i);

                sim_wait(s, r);
                SIM_CHECK(r->code == 0);
                if (i % 7 != 3)
                    SIM_CHECK(r->done.cached_tokens ==
                        (i == N_CUT - 1 ? r->n_prompt - 1 : i * STEP) / B * B);
            }
            sim_drain(s);
            SIM_CHECK(s->pip->eng->kv->n_evicted == 0);
            sim_free(s);
        }
        ref_free(f);
    }
}

/* The samples of a request compute its prompt once, with the prefix cache or without it. */
static void
samples_compute_a_prompt_once(struct sim_rng *g)
{
    for (size_t p = 0; p < N_PATTERN; p++) {
        struct ref *f = reference(p);

        for (int depth = 0; depth <= ENG_MAX_DEPTH; depth += 2)
            for (uint32_t i = SAMPLES + 4; i < LONG; i += 5) {
                struct sim_cfg c = base(depth);
                struct sim *s;

                if (i % 7 == 3)
                    continue;
                c.seed = sim_u32(g);
                c.prefix = i % 2;
                s = sim_new(&c);
                ref_watch(f, s);
                sim_wait(s, ref_ask(f, s, i));
                SIM_CHECK(cnt_get(&s->cnt->w.prompt_tokens) ==
                    (i - SAMPLES) * STEP + OWN + SIM_MAX_N - 1);
                sim_drain(s);
                sim_free(s);
            }
        ref_free(f);
    }
}

/* A pool too small for one sequence of full length without windows serves
 * several that are longer than it. */
static void
memory_is_what_windows_allow(struct sim_rng *g)
{
    struct ref *f = reference(0);

    for (int depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
        struct sim_cfg c = base(depth);
        int64_t most = 0;
        struct sim *s;

        c.seed = sim_u32(g);
        c.max_tokens = 16;
        c.max_seqs = 2;
        c.n_block = 14; /* more if attention reads tokens before the windows */
        c.backend = "cpu";
        c.prefix = depth % 2;
        s = sim_new(&c);
        SIM_CHECK(s->prog->n_kv_group == N_LAYER);
        SIM_CHECK(s->cfg.n_block < N_LAYER * c.max_len / B);
        ref_watch(f, s);
        for (uint32_t i = 0; i < N_LONG; i++)
            (void)ref_ask(f, s, LONG + i);
        for (int n = 0; s->n_open > 0; n++) {
            SIM_CHECK(n < MOST_POLLS);
            (void)sim_poll(s);
            sim_check_errors(s);
            most = kept_for_ever(s) > most ? kept_for_ever(s) : most;
        }
        SIM_CHECK(s->n_error == 0 && most > 2 * s->cfg.n_block);
        SIM_CHECK(s->pip->eng->sch->n_preempted == 0);
        sim_drain(s);
        sim_free(s);
    }
    ref_free(f);
}

/* Prompts in one step, longer than windows: blocks that left them are
 * freed while the step runs. */
static void
long_chunks(struct sim_rng *g)
{
    for (size_t p = 0; p < N_PATTERN; p++) {
        struct ref *f = reference(p);

        for (int depth = 1; depth <= ENG_MAX_DEPTH; depth++) {
            struct sim_cfg c = base(depth);
            struct sim *s;

            c.seed = sim_u32(g);
            c.max_tokens = 384;
            c.pace = SIM_PACE_SLOW;
            s = sim_new(&c);
            ref_watch(f, s);
            for (int i = 0; i < 4; i++) {
                struct sim_req *r = ref_ask(f, s, N_CUT - 1);

                r->user = (uint64_t)i;
                sim_wait(s, r);
                SIM_CHECK(r->code == 0);
            }
            sim_drain(s);
            sim_free(s);
        }
        ref_free(f);
    }
}

/* Preemption, and copies to the host and back, with every window. */
static void
shortage_and_swap(struct sim_rng *g)
{
    uint64_t preempted = 0, in = 0, hit = 0, evicted = 0;

    for (size_t p = 0; p < N_PATTERN; p++) {
        struct ref *f = reference(p);

        for (int depth = 0; depth <= ENG_MAX_DEPTH; depth++) {
            struct sim_cfg c = base(depth);
            const struct kv *kv;
            struct sim *s;

            c.seed = sim_u32(g);
            c.max_tokens = 32;
            c.n_block = 24;
            c.n_host = depth % 2 ? 150 : 0;
            s = sim_new(&c);
            kv = s->pip->eng->kv;
            ref_watch(f, s);
            for (int i = 0; i < 60; i++) {
                uint32_t k = sim_range(g, 0, N_CONTENT - 1);

                (void)ref_ask(f, s, k);
                for (uint32_t n = sim_range(g, 0, 40); n > 0 || s->n_open > 40; n -= n > 0) {
                    (void)sim_poll(s);
                    sim_check_errors(s);
                }
            }
            sim_drain(s);
            SIM_CHECK(s->n_error == 0);
            preempted += s->pip->eng->sch->n_preempted;
            in += kv->n_in;
            hit += kv->n_hit;
            evicted += kv->n_evicted;
            sim_free(s);
        }
        ref_free(f);
    }
    (void)printf("  %llu preempted, %llu blocks evicted, %llu brought back, %llu places found\n",
        (unsigned long long)preempted, (unsigned long long)evicted,
        (unsigned long long)in, (unsigned long long)hit);
    SIM_CHECK(preempted > 0 && in > 0 && hit > 0 && evicted > 0);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = {
        SIM_TEST(hits_at_every_boundary),
        SIM_TEST(samples_compute_a_prompt_once),
        SIM_TEST(memory_is_what_windows_allow),
        SIM_TEST(long_chunks),
        SIM_TEST(shortage_and_swap),
    };
    int rc;

    config();
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
