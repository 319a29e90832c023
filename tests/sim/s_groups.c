/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Every family with every format of weights and KV cache on (T, D) devices: D groups of T
 * ranks compared with one device that adds in the order of T ranks
 * (mdl_build_reference()). Tokens and logprobs are equal to the bit, although the groups
 * have graphs, steps of few tokens, a prefix cache, too few blocks and swapping, and the
 * one device has none of these.
 *
 * FDD_LONG: more tokens, more (T, D), prompts of up to 4,097 tokens.
 */
#include "config.h"

#include "tests/sim/ranks.h"

/* ---- cells --------------------------------------------------------------------------------- */

struct format {
    const char *name, *dtype; /* dtype: torch_dtype; NULL: that of the family */
    struct qnt q;
    int32_t kv;
};

static const struct format formats[] = {
    { "fp32", "float32", { FDK_F32, 0 }, FDK_F32 + 1 },
    { "bf16", "bfloat16", { FDK_F32, 0 }, FDK_F32 + 1 },
    { "f16", "float16", { FDK_F32, 0 }, FDK_F32 + 1 },
    { "wint8", NULL, { FDK_I8, 0 }, FDK_F32 + 1 },
    { "wint4", NULL, { FDK_I4, 32 }, FDK_F32 + 1 },
    { "fp8", NULL, { FDK_F8E4M3, 0 }, FDK_F32 + 1 },
    { "kv-int8", NULL, { FDK_F32, 0 }, FDK_I8 + 1 },
    { "kv-fp8", NULL, { FDK_F32, 0 }, FDK_F8E4M3 + 1 },
};
#define N_FORMAT (sizeof(formats) / sizeof(formats[0]))

/* T ranks of each of D groups; P = C = 1. */
struct shape {
    int32_t T, D;
    int is_long;
};

static const struct shape shapes[] = { { 2, 1, 0 }, { 4, 1, 0 }, { 1, 2, 0 }, { 2, 2, 0 },
    { 3, 1, 1 }, { 8, 1, 1 } };
#define N_SHAPE (sizeof(shapes) / sizeof(shapes[0]))

struct seen {
    uint64_t tokens, preempted, swapped_in, hits;
    int ties; /* different choices, compared with one device that adds each sum at once */
};

static int
is_long(void)
{
    return getenv("FDD_LONG") != NULL && !FEW;
}

/* Heads for T ranks, some of which share KV heads; for one device those of two ranks. */
static const struct heads *
heads_of(int32_t T)
{
    for (size_t i = 0; i < N_HEADS; i++)
        if (all_heads[i].T == T)
            return &all_heads[i];
    return &all_heads[0];
}

/* Compares tokens and their logprobs, but not prompt logprobs, which tokens in
 * cached blocks do not have. */
static int
same_tokens(const struct answer *a, const struct answer *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, sizeof(a->ids)) == 0 &&
        memcmp(a->lp, b->lp, sizeof(a->lp)) == 0 &&
        memcmp(a->top, b->top, sizeof(a->top)) == 0 &&
        memcmp(a->top_lp, b->top_lp, sizeof(a->top_lp)) == 0;
}

/* Runs request i, of len[i] tokens, in group i % D, as a gate would
 * place it; all at once, twice. */
static void
ask_groups(const struct sim_cfg *c, int32_t D, const uint32_t len[N_REQ],
    struct book *ret, struct seen *seen)
{
    static struct book mine;

    for (int32_t d = 0; d < D; d++) {
        struct sim *s = sim_new(c);

        for (int again = 0; again < 2; again++) {
            struct sim_req *r[N_REQ];

            memset(&mine, 0, sizeof(mine));
            s->record = see;
            s->record_arg = &mine;
            for (int i = d; i < N_REQ; i += D) {
                mine.req[i] = r[i] = ask(s, i, len[i]);
                sim_submit(s, r[i], NULL);
            }
            sim_drain(s);
            for (int i = d; i < N_REQ; i += D) {
                take(r[i], &mine.a[i]);
                ret->a[i] = mine.a[i];
                sim_forget(s, r[i]);
            }
        }
        seen->preempted += s->pip->eng->sch->n_preempted;
        seen->swapped_in += s->pip->eng->kv->n_in;
        seen->hits += s->pip->eng->kv->n_hit;
        sim_free(s);
    }
}

/* The reference for T ranks: one device that adds in their order; for T GPUs one request
 * at a time, without graphs. */
static void
alone(struct sim_cfg *c, int32_t T)
{
    if (sim_gpus() > 0)
        c->n_rank = T;
    else
        c->n_split = T;
}

static void
cell(const struct family *family, const struct format *f, const struct shape *shape,
    struct seen *seen)
{
    static struct book one, want, got;
    struct family as = *family;
    struct sim_cfg c;
    char dir[64], what[64];

    if (f->dtype != NULL)
        as.dtype = f->dtype;
    model(&as, heads_of(shape->T), dir);
    (void)snprintf(what, sizeof(what), "%s, %s, T %d, D %d", family->name, f->name,
        shape->T, shape->D);
    c = base(dir, 1);
    c.quant = f->q;
    c.kv_dtype = f->kv;
    answers(&c, 0, 0, &one, NULL);
    alone(&c, shape->T);
    answers(&c, 0, 0, &want, NULL);
    c.n_split = 0;
    c.n_rank = shape->T;
    c.graph = 1;
    c.depth = 2;
    c.max_tokens = 33;
    c.n_block = 11;
    c.prefix = 1;
    c.n_host = 40;
    memset(&got, 0, sizeof(got));
    ask_groups(&c, shape->D, prompt_len, &got, seen);
    for (int i = 0; i < N_REQ; i++) {
        if (!same_tokens(&want.a[i], &got.a[i])) {
            (void)fprintf(stderr, "%s: request %d differs\n", what, i);
            SIM_CHECK(0);
        }
        seen->tokens += got.a[i].n;
    }
    /* a key rounded to another 8-bit number changes logprobs by more */
    seen->ties += near(&one, &got, f->kv == FDK_F32 + 1 ? NEAR : NEAR_KV8, what);
    sim_model_rm(dir);
}

/* Family by format by (T, D); a cell of the table is the number of equal tokens. */
static void
p1_table(struct sim_rng *g)
{
    struct seen all = { 0 };

    (void)g;
    n_tok = is_long() || sim_gpus() > 0 ? N_TOK : 18; /* some requests are preempted */
    (void)printf(
        "  P1 tokens equal to those of one device that adds in the order of T ranks\n");
    (void)printf("  %-12s %2s %2s", "family", "T", "D");
    for (size_t k = 0; k < N_FORMAT; k++)
        (void)printf(" %8s", formats[k].name);
    (void)printf("\n");
    for (size_t i = 0; i < N_FAMILY; i++)
        for (size_t s = 0; s < N_SHAPE; s++) {
            if ((shapes[s].is_long && !is_long()) || !sim_has(shapes[s].T))
                continue;
            (void)printf("  %-12s %2d %2d", families[i].name, shapes[s].T, shapes[s].D);
            for (size_t k = 0; k < N_FORMAT; k++) {
                struct seen one = { 0 };

                if (!FEW || (i + k + s) % 8 == 0)
                    cell(&families[i], &formats[k], &shapes[s], &one);
                (void)printf(" %8llu", (unsigned long long)one.tokens);
                all.preempted += one.preempted;
                all.swapped_in += one.swapped_in;
                all.hits += one.hits;
                all.ties += one.ties;
            }
            (void)printf("\n");
            (void)fflush(stdout);
        }
    (void)printf("  %llu preempted, %llu blocks from the host, %llu found by prefix; %d "
                 "near ties against one device\n",
        (unsigned long long)all.preempted, (unsigned long long)all.swapped_in,
        (unsigned long long)all.hits, all.ties);
    SIM_CHECK(all.preempted > 0 && all.swapped_in > 0 && all.hits > 0);
    n_tok = N_TOK;
}

/* Prompts of 1 to 4,097 tokens in chunks, in steps with decoding rows. */
static void
p1_long_prompts(struct sim_rng *g)
{
    static const uint32_t few[N_REQ] = { 1, 65, 130, 499, 257 },
                          many[N_REQ] = { 1, 512, 1025, 4097, 2048 };
    static struct book want, got;
    const uint32_t *len = is_long() ? many : few;

    (void)g;
    n_tok = 12;
    for (size_t i = 0; i < (is_long() ? N_FAMILY : 2); i++)
        for (size_t k = 0; k < 2; k++) {
            struct seen seen = { 0 };
            struct sim_cfg c;
            char dir[64];

            if (!sim_has(all_heads[k].T))
                continue;
            model(&families[i], &all_heads[k], dir);
            c = base(dir, 1);
            c.max_len = is_long() ? 4352 : 768;
            c.n_block = c.max_len / c.block_size * 3;
            alone(&c, all_heads[k].T);
            memset(&want, 0, sizeof(want));
            ask_groups(&c, 1, len, &want, &seen);
            c.n_split = 0;
            c.n_rank = all_heads[k].T;
            c.max_tokens = 100;
            c.depth = 2;
            c.graph = 1;
            c.prefix = 1;
            memset(&got, 0, sizeof(got));
            ask_groups(&c, 1, len, &got, &seen);
            for (int r = 0; r < N_REQ; r++)
                SIM_CHECK(same_tokens(&want.a[r], &got.a[r]));
            (void)printf("  P1 %s, T %d: prompts of up to %u tokens in pieces of 100\n",
                families[i].name, all_heads[k].T, len[3]);
            sim_model_rm(dir);
        }
    n_tok = N_TOK;
}

/* B12: the first answer of a group that has just started equals the
 * second to the same request. */
static void
b12_first_request(struct sim_rng *g)
{
    static struct book first, second;

    (void)g;
    n_tok = 12;
    for (size_t i = 0; i < (is_long() ? N_FAMILY : 3); i++)
        for (size_t k = 0; k < N_FORMAT; k++)
            for (int32_t T = 2; T <= 4; T += 2) {
                struct sim_cfg c;
                struct sim *s;
                char dir[64];

                if ((FEW && (i + k) % 8 != 0) || !sim_has(T))
                    continue;
                model(&families[i], heads_of(T), dir);
                c = base(dir, T);
                c.quant = formats[k].q;
                c.kv_dtype = formats[k].kv;
                c.graph = 1;
                c.depth = 2;
                s = sim_new(&c);
                answers(&c, 0, 0, &first, s);
                answers(&c, 0, 0, &second, s);
                sim_free(s);
                same(&first, &second, "b12: the first and the second request");
                sim_model_rm(dir);
            }
    (void)printf("  B12 first and second answers after a start are equal, T 2 and 4\n");
    n_tok = N_TOK;
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(p1_table),
        SIM_TEST(p1_long_prompts), SIM_TEST(b12_first_request) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
