/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * KV blocks divided among the ranks that hold the same KV heads (decode context
 * parallel), compared with ranks that hold all of their tokens and with one device: tiny
 * random models on virtual devices. A query's sums over its keys are made in shares, so
 * logprobs are near; for all compositions of steps the bits are the same.
 */
#include "config.h"

#include "tests/sim/ranks.h"

/* P copies of T ranks; C of all ranks share tokens; B tokens in a block. */
struct split {
    struct heads h;
    int32_t C, B, P;
};
static const struct split splits[] = { { { 2, 4, 1 }, 2, 16, 1 }, { { 4, 8, 2 }, 2, 16, 1 },
    { { 4, 8, 1 }, 4, 32, 1 }, { { 6, 12, 2 }, 3, 24, 1 }, { { 4, 4, 1 }, 2, 16, 1 },
    { { 8, 16, 1 }, 8, 16, 1 }, { { 1, 4, 2 }, 2, 16, 2 }, { { 2, 4, 1 }, 4, 16, 2 },
    { { 1, 4, 2 }, 3, 24, 3 }, { { 2, 4, 2 }, 2, 32, 2 }, { { 4, 8, 2 }, 4, 16, 2 } };
#define N_SPLIT (sizeof(splits) / sizeof(splits[0]))

static int
is_taken(const struct split *p)
{
    return sim_has(p->h.T * p->P);
}

static struct sim_cfg
shared(const char *dir, const struct split *p)
{
    struct sim_cfg c = base(dir, p->h.T);

    c.kv_split = p->C;
    c.n_copy = p->P;
    c.min_split = 1;
    c.block_size = p->B;
    return c;
}

/* Every family with every split. */
static void
families_in_shares(struct sim_rng *g)
{
    (void)g;
    for (size_t i = 0; i < N_FAMILY; i++)
        for (size_t k = 0; k < N_SPLIT; k++) {
            static struct book one, whole, got, again;
            const struct split *p = &splits[k];
            char dir[64], what[64];
            struct sim_cfg c;
            int ties;

            /* FEW: each split once, with another family */
            if ((FEW ? (i + k) % N_FAMILY != 0 : (i + k) % 3 != 0 && i > 0) || !is_taken(p))
                continue;
            model(&families[i], &p->h, dir);
            (void)snprintf(what, sizeof(what), "%s, %d of %d ranks", families[i].name,
                p->C, p->h.T * p->P);
            c = base(dir, 1);
            answers(&c, 1, 0, &one, NULL);
            c = base(dir, p->h.T);
            answers(&c, 1, 0, &whole, NULL);
            c = shared(dir, p);
            answers(&c, 0, 0, &got, NULL);
            ties = near(&one, &got, NEAR, what) + near(&whole, &got, NEAR, what);
            c.graph = 1;
            c.depth = 2;
            c.max_tokens = 48;
            answers(&c, 1, 0, &again, NULL);
            same(&got, &again, what);
            (void)printf("  %s: %d near ties\n", what, ties);
            sim_model_rm(dir);
        }
}

/* The same bits for all compositions of steps, with cached prefixes, with too few blocks,
 * and with blocks copied to the host and back. */
static void
ways_of_running(struct sim_rng *g)
{
    static const int32_t tokens[] = { 1, 7, 64, 256 };
    static struct book ref, got;

    (void)g;
    for (size_t k = 0; k < N_SPLIT; k++) {
        const struct split *p = &splits[k];
        char dir[64], what[64];
        struct sim_cfg c;
        struct sim *s;

        if ((k >= 3 && p->P == 1) || (FEW && k % 6 != 0) || !is_taken(p))
            continue;

        model(&families[k < 3 ? k * 3 : k % 3], &p->h, dir);
        c = shared(dir, p);
        answers(&c, 0, 0, &ref, NULL);
        for (int i = 0; i < 4; i++) {
            c.depth = i;
            c.max_tokens = tokens[i];
            c.max_seqs = tokens[i] < 8 ? tokens[i] : 8;
            c.graph = i % 2;
            c.unfused = i == 2;
            (void)snprintf(what, sizeof(what), "split %zu, %d tokens, depth %d", k,
                tokens[i], i);
            answers(&c, 1, 0, &got, NULL);
            same(&ref, &got, what);
        }
        c = shared(dir, p);
        c.n_block = 11 * 16 / p->B + 1;
        c.max_tokens = 48;
        c.depth = 2;
        c.graph = 1;
        s = sim_new(&c);
        answers(&c, 1, 0, &got, s);
        SIM_CHECK(s->pip->eng->sch->n_preempted > 0);
        SIM_CHECK((s->run->n_split > 0) == (p->P > 1));
        sim_free(s);
        same(&ref, &got, "preempted");
        c.prefix = 1;
        c.n_host = 40;
        s = sim_new(&c);
        answers(&c, 0, 2, &got, s);
        SIM_CHECK(s->pip->eng->kv->n_in > 0 && s->pip->eng->kv->n_hit > 0);
        sim_free(s);
        for (int i = 0; i < N_REQ; i++)
            SIM_CHECK(memcmp(got.a[i].ids, ref.a[i].ids, sizeof(ref.a[i].ids)) == 0 &&
                memcmp(got.a[i].lp, ref.a[i].lp, sizeof(ref.a[i].lp)) == 0);
        sim_model_rm(dir);
    }
}

static int32_t layer_window;

static void
set_windows(struct mdl_program *p)
{
    for (int32_t i = 0; i < p->n_op; i++)
        if (p->op[i].kind == MDL_OP_ATTENTION)
            p->op[i].window = p->op[i].layer == 0 ? layer_window : 0;
}

/* Windows whose tokens may all be on another rank. */
static void
short_windows(struct sim_rng *g)
{
    static const int32_t windows[] = { 1, 3, 7, 8, 9, 24, 25 };
    static struct book whole, got;

    (void)g;
    for (size_t k = 0; k < N_SPLIT; k += k == 2 ? 4 : 2)
        for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i += FEW ? 3 : 1) {
            const struct split *p = &splits[k];
            char dir[64], what[64];
            struct sim_cfg c;

            if (!is_taken(p))
                continue;
            layer_window = windows[i];
            model(&families[1], &p->h, dir);
            (void)snprintf(what, sizeof(what), "window %d, %d ranks", layer_window, p->C);
            c = base(dir, p->h.T);
            c.edit = set_windows;
            c.block_size = p->B;
            answers(&c, 1, 0, &whole, NULL);
            c = shared(dir, p);
            c.edit = set_windows;
            answers(&c, 1, 0, &got, NULL);
            (void)near(&whole, &got, NEAR, what);
            sim_model_rm(dir);
        }
}

/* KV caches in 8 and 16 bits. */
static void
formats(struct sim_rng *g)
{
    static const int32_t kinds[] = { FDK_I8 + 1, FDK_F8E4M3 + 1, FDK_BF16 + 1 };
    static struct book one, got, again;

    (void)g;
    for (size_t i = 0; i < 6; i++) {
        const struct split *p = &splits[i < 3 ? 1 : 7];
        int32_t kind = kinds[i % 3];
        char dir[64], what[64];
        struct sim_cfg c;

        if (!is_taken(p))
            continue;
        model(&families[i], &p->h, dir);
        (void)snprintf(what, sizeof(what), "KV format %d", kind - 1);
        c = base(dir, p->h.T);
        c.kv_dtype = kind;
        answers(&c, 1, 0, &one, NULL);
        c = shared(dir, p);
        c.kv_dtype = kind;
        answers(&c, 0, 0, &got, NULL);
        (void)near(&one, &got, NEAR_KV8, what);
        c.graph = 1;
        c.depth = 2;
        c.max_tokens = 33;
        answers(&c, 1, 0, &again, NULL);
        same(&got, &again, what);
        sim_model_rm(dir);
    }
}

/* A rank holds 1 / C of each block, so the same memory holds C times the blocks. */
static void
memory(struct sim_rng *g)
{
    (void)g;
    for (size_t k = 0; k < N_SPLIT; k++) {
        const struct split *p = &splits[k];
        struct sim_cfg c;
        struct sim *a, *b;
        char dir[64];

        if (!is_taken(p))
            continue;
        model(&families[0], &p->h, dir);
        c = base(dir, p->h.T);
        c.block_size = p->B;
        a = sim_new(&c);
        c = shared(dir, p);
        b = sim_new(&c);
        SIM_CHECK(a->run->kv[0].block_bytes == (uint64_t)p->C * b->run->kv[0].block_bytes);
        for (int32_t r = 0; r < b->run->n_rank; r++) {
            int32_t each = p->C / p->P, t = r % p->h.T; /* ranks of a copy */

            SIM_CHECK(b->run->kv_copies == p->P && b->run->dev[r].kv[0].n_own == p->C);
            SIM_CHECK(b->run->dev[r].kv[0].own == r / p->h.T * each + t % each);
        }
        sim_free(a);
        sim_free(b);
        sim_model_rm(dir);
    }
}

/* P7: 1,000 requests of 1 to 64 tokens whose KV needs three times the blocks: all blocks
 * are used, each on all ranks, so that no rank runs out before the others. */
static void
short_requests(struct sim_rng *g)
{
    enum { N = FEW ? 250 : 1000 };
    /* 4 ranks share a KV head's tokens, or 2 */
    const struct split *p = &splits[sim_has(4) ? 2 : 0];
    int32_t used, most = 0, need = 0, len[N];
    static struct sim_req *r[N];
    struct sim_cfg c;
    struct sim *s;
    char dir[64];

    model(&families[0], &p->h, dir);
    c = shared(dir, p);
    for (int i = 0; i < N; i++) {
        len[i] = (int32_t)sim_range(g, 1, 64);
        need += (len[i] - 1) / c.block_size + 1;
    }
    c.max_reqs = c.max_seqs = N;
    c.max_tokens = 2048;
    c.n_block = need / 3;
    s = sim_new(&c);
    SIM_CHECK(s->prog->kv_split == p->C);
    for (int i = 0; i < N; i++) {
        r[i] = sim_req(s);
        r[i]->n_prompt = 1;
        r[i]->prompt = mem_array(1, 4);
        r[i]->prompt[0] = sim_range(g, 3, 250);
        r[i]->p.max_new = (uint32_t)len[i];
        r[i]->p.flags |= FDP_F_IGNORE_EOS;
        sim_submit(s, r[i], NULL);
    }
    for (int idle = 0; s->n_open > 0 && idle < 10000;) {
        idle = sim_poll(s) ? 0 : idle + 1;
        used = s->cfg.n_block - s->pip->eng->kv->n_free - s->pip->eng->kv->n_cached;
        most = used > most ? used : most;
    }
    for (int i = 0; i < N; i++)
        SIM_CHECK(r[i]->code == 0 && r[i]->s[0].n_ids == r[i]->p.max_new);
    (void)printf("  %d of %d blocks used at once\n", most, s->cfg.n_block);
    SIM_CHECK(most * 100 >= s->cfg.n_block * 98);
    sim_free(s);
    sim_model_rm(dir);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(families_in_shares),
        SIM_TEST(ways_of_running), SIM_TEST(short_windows), SIM_TEST(formats),
        SIM_TEST(memory), SIM_TEST(short_requests) };

    return sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
