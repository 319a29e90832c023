/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/kernel/k_kv.h"
#include "tests/kernel/k_two.h"

#include "kernels/cuda/hooks.h"

/*
 * Attention on the cuda backend, for all types of KV, activations and shapes of heads,
 * compared with the cpu backend on the same numbers in fp32; and its plans.
 *
 * On the GPU, cache that a row has not written is NaN, and entries of its table after its
 * last block are ids of blocks that do not exist.
 */

enum { PAD = 9, LAYERS = 2, LAYER = 1, NO_BLOCK = 0x7ffffff0 };

struct job {
    int H, K, D, B;
    enum fdk_dtype t; /* of the cache */
    int window;       /* window of the launches on both devices; 0: none */
    int other_window; /* the plan is also for layers without a window */
    int n_own;        /* number of ranks that share the tokens; the devices
                       * act as one of them */
    int first_plan;   /* use the plan of the first of them, as in a group */
    float softcap;
    struct k_step s;
    float *qkv;  /* (K_MAX_TOK, (H + 2 K) D), bf16 numbers */
    char *kv[2]; /* the pools of the cpu and of the gpu */
    float head_scale[LAYERS * 2 * 64];
    struct fdk_kv layout;
    size_t kv_bytes;
    int n_block, next; /* blocks in all; next free one */
    uint32_t done;     /* n_done after the last run, and the number of its plan's tiles */
    int32_t tiles;
};

static struct job job;

static void
job_new(int H, int K, int D, int B, enum fdk_dtype t)
{
    job = (struct job){ .H = H,
        .K = K,
        .D = D,
        .B = B,
        .n_own = 1,
        .t = t,
        .n_block = 7300 / B + 2 * K_MAX_ROW };
    job.n_block += job.n_block % 5 == 0;
    k_step_init(&job.s);
    for (int i = 0; i < K_MAX_ROW * K_STRIDE; i++)
        job.s.block_table[i] = NO_BLOCK;
    uint64_t tokens = (uint64_t)(K * B), half = tokens * (uint64_t)D * fdk_dtype_bytes(t);
    struct fdk_kv *kv = &job.layout;
    *kv = (struct fdk_kv){ .v_bytes = half,
        .block_size = B,
        .n_kv_head = K,
        .head_dim = D,
        .dtype = t };
    kv->k_scale_off = (2 * half + 15) / 16 * 16;
    kv->v_scale_off = kv->k_scale_off + 4 * tokens;
    kv->layer_bytes = kv->v_scale_off + 4 * tokens;
    kv->block_bytes = LAYERS * kv->layer_bytes;
    job.kv_bytes = (size_t)job.n_block * kv->block_bytes;
    for (int i = 0; i < 2; i++) {
        job.kv[i] = malloc(job.kv_bytes);
        assert_non_null(job.kv[i]);
        memset(job.kv[i], i == 0 ? 0 : 0xff, job.kv_bytes);
    }
    job.qkv = malloc((size_t)K_MAX_TOK * (size_t)((H + 2 * K) * D) * 4);
    assert_non_null(job.qkv);
    for (int i = 0; i < LAYERS * 2 * K; i++)
        job.head_scale[i] = 0.5f + 0.01f * (float)(i % 7);
}

static void
job_free(void)
{
    free(job.kv[0]);
    free(job.kv[1]);
    free(job.qkv);
}

/* Call it before adding rows: keys and values are in n_own
 * shares, and share `own` is here. */
static void
job_share(int n_own, int own)
{
    job.n_own = job.layout.n_own = n_own;
    job.layout.own = own;
    free(job.qkv);
    job.qkv =
        malloc((size_t)(K_MAX_TOK * n_own) * (size_t)((job.H + 2 * job.K) * job.D) * 4);
    assert_non_null(job.qkv);
}

/* Elements of a token: its queries, keys and values for all ranks; of its result. */
static size_t
qkv_row(void)
{
    return (size_t)(job.n_own * (job.H + 2 * job.K) * job.D);
}

static size_t
y_row(void)
{
    return (size_t)(job.n_own > 1 ? job.n_own * job.H * (job.D + 1) : job.H * job.D);
}

static enum fdk_dtype
y_type(enum fdk_dtype act)
{
    return job.n_own > 1 ? FDK_F32 : act;
}

/* Writes one head's vector at a slot, numbers of about 1. */
static void
put_vector(int slot, int head, int value, uint64_t *seed)
{
    size_t eb = fdk_dtype_bytes(job.t), n = (size_t)job.D;
    float scale = 0.005f + 0.0001f * (float)(k_rand(seed) % 100);
    unsigned char v[1024];
    for (size_t i = 0; i < n; i++) {
        float x = k_normal(seed);
        uint16_t h = k_to_bf16(x);
        unsigned c = (unsigned)k_rand(seed);
        if (job.t == FDK_F32)
            memcpy(v + 4 * i, &x, 4);
        else if (job.t == FDK_BF16)
            memcpy(v + 2 * i, &h, 2);
        else
            v[i] = (unsigned char)(job.t == FDK_I8 ? c : (c & 0x80) | (c >> 8) % 0x48);
    }
    for (int i = 0; i < 2; i++) {
        struct fdk_kv kv = job.layout;
        kv.base = job.kv[i];
        memcpy(k_kv_at(&kv, LAYER, slot, head, value), v, n * eb);
        if (job.t == FDK_I8)
            memcpy(k_kv_scale_at(&kv, LAYER, slot, head, value), &scale, 4);
    }
}

/* Adds a row of n tokens after `before` others. Its numbers follow from seed and
 * position, so other chunks of the same row have the same numbers. Every second row
 * continues from its state's last token: its history is there before the step. */
static void
job_row(int n, int before, uint64_t seed)
{
    struct k_step *s = &job.s;
    int r = s->n_row, first = s->n_tok, at = K_SLOT(r) * K_STRIDE;
    size_t width = qkv_row();
    int block = job.B * job.n_own, blocks = (before + n + block - 1) / block;
    assert_true(r < K_MAX_ROW && first + n <= K_MAX_TOK && blocks <= K_STRIDE);
    k_step_row(s, n, before, block, 1, 0);
    s->ids[first] = r % 2 ? -1 : 1;
    for (int i = 0; i < blocks; i++)
        s->block_table[at + i] = job.next++ * 5 % job.n_block;
    assert_true(job.next <= job.n_block);
    for (int p = 0; p < before + n; p++) {
        uint64_t x = seed * 1000003 + (uint64_t)p * 2, y = x + 1;
        int slot = s->block_table[at + p / block] * block + p % block;
        int here = fdk_kv_place(&job.layout, slot);
        for (size_t i = 0; i < width && p >= before; i++)
            job.qkv[(size_t)(first + p - before) * width + i] = k_normal(&x);
        for (int h = 0; h < 2 * job.K && here >= 0; h++)
            put_vector(here, h / 2, h % 2, &y);
    }
    tw_as_act(job.qkv + (size_t)first * width, (size_t)n * width, FDK_BF16);
}

/* Adds rows of up to `most` tokens, some of one token. */
static void
random_rows(int n_row, int most, int history)
{
    int limit = 60 * job.B < history ? 60 * job.B : history;
    for (int r = 0; r < n_row; r++) {
        int n = tw_int(0, 2) > 0 ? tw_int(1, most) : 1;
        int before = tw_int(0, 3) > 0 ? tw_int(0, limit - most) : 0;
        if (job.s.n_tok + n + PAD <= K_MAX_TOK &&
            job.next + (before + n) / job.B + 1 <= job.n_block)
            job_row(n, before, (uint64_t)tw_int(1, 1 << 20));
    }
}

struct launch { /* a plan and a layer's attention on a device */
    struct fdk_batch b;
    struct fdk_attention_args a, plan_a; /* plan_a: the layer for
                                          * which the plan is made */
    struct fdk_att_plan_args p;
    char *step;
};

static void
launch_new(struct launch *l, struct two_dev *t, int T, enum fdk_dtype act)
{
    const struct fdk_ops *ops = t->d.ops;
    *l = (struct launch){ .step = NULL };
    l->b = tw_step(t, &job.s, &l->step);
    l->a = (struct fdk_attention_args){ .T = T,
        .H = job.H,
        .K = job.K,
        .D = job.D,
        .b = &l->b,
        .kv = job.layout,
        .layer = LAYER,
        .window = job.window,
        .step_window = job.window,
        .softcap = job.softcap,
        .scale = 1 / sqrtf((float)job.D),
        .act = act };
    l->a.qkv = tw_new_act(t, NULL, (size_t)T * qkv_row(), act);
    l->a.y = tw_new_act(t, NULL, (size_t)T * y_row(), y_type(act));
    l->a.kv.base = tw_new(t, NULL, job.kv_bytes);
    if (job.t == FDK_F8E4M3)
        l->a.kv.scale = tw_new(t, job.head_scale, (size_t)(LAYERS * 2 * job.K) * 4);
    l->plan_a = l->a;
    if (job.other_window)
        l->plan_a.window = 0;
    if (job.first_plan)
        l->plan_a.kv.own = 0;
    l->p = (struct fdk_att_plan_args){ .b = &l->b, .att = &l->plan_a };
    ops->att_shape(&l->a, &l->p.a, &l->p.bt);
    l->p.n_max = l->a.n_work_max = fdk_tiles_max(K_MAX_ROW, T, l->p.a, l->p.bt);
    l->a.work = l->p.work = tw_new(t, NULL, (size_t)l->p.n_max * sizeof(*l->p.work));
    l->a.n_work = l->p.n_work = tw_new(t, NULL, 4);
    l->a.n_done = l->p.n_done = tw_new(t, NULL, 4);
    if (ops->att_plan_bytes != NULL)
        l->p.plan_bytes = ops->att_plan_bytes(&l->a, l->p.n_max);
    if (l->p.plan_bytes > 0)
        l->a.plan = l->p.plan = tw_new(t, NULL, l->p.plan_bytes);
    l->a.scratch_bytes = ops->attention_scratch(t->d.ctx, &l->a);
    if (l->a.scratch_bytes > 0)
        l->a.scratch = tw_new(t, NULL, l->a.scratch_bytes);
}

static void
launch_fill(struct launch *l, struct two_dev *t)
{
    size_t n = (size_t)job.s.n_tok * qkv_row();
    uint16_t *h = malloc(n * 2);
    assert_non_null(h);
    l->b = tw_step(t, &job.s, &l->step);
    for (size_t i = 0; i < n; i++)
        h[i] = k_to_bf16(job.qkv[i]);
    tw_put(t, (void *)(uintptr_t)l->a.qkv, l->a.act == FDK_BF16 ? (void *)h : job.qkv,
        n * fdk_dtype_bytes(l->a.act));
    free(h);
    tw_put(t, l->a.kv.base, job.kv[t == &tw.gpu], job.kv_bytes);
    OK(t->d.ops->fill(t->d.st, l->a.y, TW_POISON,
        (size_t)l->a.T * y_row() * fdk_dtype_bytes(y_type(l->a.act))));
}

static void
launch_ops(struct launch *l, struct two_dev *t)
{
    OK(t->d.ops->att_plan(&l->p, t->d.st));
    OK(t->d.ops->attention(&l->a, t->d.st));
}

/* Returns y as floats; after the step's tokens it must still be poison. */
static float *
launch_read(struct launch *l, struct two_dev *t)
{
    size_t n = (size_t)l->a.T * y_row(), size = fdk_dtype_bytes(y_type(l->a.act));
    size_t live = (size_t)job.s.n_tok * y_row();
    unsigned char *raw = tw_read(t, l->a.y, n * size);
    for (size_t i = live * size; i < n * size; i++)
        assert_int_equal(raw[i], TW_POISON);
    free(raw);
    tw_get(t, &job.done, l->a.n_done, 4);
    tw_get(t, &job.tiles, l->a.n_work, 4);
    return tw_read_act(t, l->a.y, n, y_type(l->a.act));
}

static float *
run(struct two_dev *t, int T, enum fdk_dtype act)
{
    struct launch l;
    launch_new(&l, t, T, act);
    launch_fill(&l, t);
    tw_same_plan(t, &l.p, &job.s);
    launch_ops(&l, t);
    float *y = launch_read(&l, t);
    tw_free(t);
    return y;
}

/* Tolerances. fp32: sums in another order change weights by some 1e-5 relative. bf16:
 * weights are rounded by 2^-9 relative before they multiply values of up to 4. */
static void
compare(const float *got, const float *want, enum fdk_dtype act)
{
    size_t n = (size_t)(job.s.n_tok * job.H * job.D);
    assert_int_equal(job.done, job.tiles);
    if (act == FDK_F32) {
        tw_near(got, want, n, 1e-5, 2e-4, "y");
        assert_true(tw_distance(got, want, n) < 2e-5);
    } else {
        tw_near_act(got, want, n, FDK_BF16, 0, 0.016, "y");
        assert_true(tw_distance(got, want, n) < 5e-3);
    }
}

static void
check(int pad, enum fdk_dtype act)
{
    float *want = run(&tw.cpu, job.s.n_tok, FDK_F32);
    float *got = run(&tw.gpu, job.s.n_tok + pad, act);
    compare(got, want, act);
    free(got);
    free(want);
}

static const enum fdk_dtype types[] = { FDK_BF16, FDK_I8, FDK_F8E4M3, FDK_F32 };
static const enum fdk_dtype acts[] = { FDK_BF16, FDK_F32 };

static void
every_type_and_shape(void **state)
{
    static const int shape[][4] = {
        /* H, K, D, B */
        { 4, 2, 32, 16 },
        { 32, 8, 64, 16 },
        { 8, 1, 128, 64 },
        { 3, 3, 20, 16 },
        { 6, 2, 96, 32 },
        { 40, 2, 64, 128 },
        { 2, 2, 256, 16 },
        { 10, 2, 128, 32 },
        { 5, 1, 17, 48 },
        { 6, 6, 128, 64 },
        { 17, 1, 128, 16 },
        { 2, 1, 192, 64 },
    };
    (void)state;
    for (int i = 0; i < 12; i++)
        for (int k = 0; k < 8; k++) {
            const int *h = shape[i];
            if (!tw_takes((size_t)(i + k), 5))
                continue;
            job_new(h[0], h[1], h[2], h[3], types[k / 2]);
            random_rows(tw_int(1, 7), 31, 500);
            if (k % 3 == 0)
                random_rows(1, 70, 300);
            check(k % 3 == 1 ? 0 : PAD, acts[k % 2]);
            job_free();
        }
}

static const int dims[] = { 64, 80, 96, 128, 192, 256 };

/* Every head dim with its own kernels, with windows and caps. */
static void
windows_and_caps(void **state)
{
    static const int windows[] = { 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129,
        300, 5000 };
    (void)state;
    for (int i = 0; i < 72; i++) {
        if (!tw_takes((size_t)i, 4))
            continue;
        int group = i % 4 == 3 ? 17 : 1 << tw_int(0, 3);
        job_new(2 * group, 2, dims[i % 6], i % 3 == 2 ? 64 : 16, types[i / 6 % 3]);
        job.window = i / 18 % 4 == 0 ? 0 : windows[tw_int(0, 14)];
        job.other_window = i % 2;
        job.softcap = i / 18 % 4 < 2 ? 0 : i % 2 ? 1.5f : 30;
        random_rows(tw_int(1, 7), 31, 700);
        job_row(1, tw_int(0, 900), (uint64_t)i);
        check(i % 3 ? PAD : 0, FDK_BF16);
        job_free();
    }
}

/* The plain kernel, for types and head dims without their own kernel. */
static void
windows_of_the_plain_kernel(void **state)
{
    static const int windows[] = { 1, 16, 63, 64, 65, 200, 511, 512, 513, 5000 };
    (void)state;
    for (int i = 0; i < 20; i++) {
        job_new(4, 2, i % 2 ? 72 : 128, 16, types[3 - i % 2 * 3]);
        job.window = windows[i % 10];
        job.softcap = i % 3 ? 0 : 5;
        random_rows(tw_int(1, 4), 31, 700);
        if (i % 4 == 0)
            job_row(300, 20, 3);
        check(PAD, acts[1]);
        job_free();
    }
}

/* Compares a share's results and the logarithms of its sums of weights;
 * -Inf: no key is in the share. */
static void
compare_shares(const float *got, const float *want)
{
    const int H = job.H, D = job.D;
    assert_int_equal(job.done, job.tiles);
    for (int r = 0; r < job.s.n_tok * job.n_own; r++) {
        const float *g = got + r * H * (D + 1), *w = want + r * H * (D + 1);
        tw_near_act(g, w, (size_t)(H * D), FDK_BF16, 0, 0.016, "y");
        for (int h = H * D; h < H * (D + 1); h++)
            if (w[h] == -INFINITY)
                assert_true(g[h] == -INFINITY);
            else
                k_assert_near(g[h], w[h], 0.02, "sum", (size_t)r);
    }
}

/* Runs two equal layers with one plan: the second must not see
 * anything left by the first. */
static float *
run_twice(struct two_dev *t, int T)
{
    struct launch l;
    launch_new(&l, t, T, FDK_BF16);
    launch_fill(&l, t);
    tw_same_plan(t, &l.p, &job.s);
    launch_ops(&l, t);
    float *y = launch_read(&l, t);
    size_t bytes = (size_t)T * y_row() * fdk_dtype_bytes(y_type(FDK_BF16));
    OK(t->d.ops->fill(t->d.st, l.a.y, TW_POISON, bytes));
    OK(t->d.ops->attention(&l.a, t->d.st));
    float *again = launch_read(&l, t);
    assert_int_equal(job.done, 2 * job.tiles);
    job.done = (uint32_t)job.tiles;
    tw_same(again, y, (size_t)job.s.n_tok * y_row() * 4, "again");
    free(again);
    tw_free(t);
    return y;
}

static void
check_shares(int twice)
{
    int T = job.s.n_tok + PAD;
    float *want = run(&tw.cpu, job.s.n_tok, FDK_F32);
    float *got = twice ? run_twice(&tw.gpu, T) : run(&tw.gpu, T, FDK_BF16);
    compare_shares(got, want);
    free(got);
    free(want);
}

/* Decoding rows, of which few or no tokens may be in the share, together
 * with rows of several tokens. */
static void
keys_in_shares(void **state)
{
    static const int shape[][4] = { { 16, 1, 128, 16 }, { 32, 1, 64, 64 },
        { 8, 2, 128, 32 }, { 20, 1, 96, 16 }, { 4, 4, 256, 16 } };
    (void)state;
    for (int i = 0; i < 30; i++) {
        const int *h = shape[i % 5];
        int n_own = i % 2 ? 2 : 4;
        if (!tw_takes((size_t)i, 4))
            continue;
        job_new(h[0], h[1], h[2], h[3], types[i / 5 % 3]);
        job_share(n_own, i / 2 % n_own);
        job.window = i % 7 == 6 ? 100 : 0;
        for (int r = 0; r < 6; r++) {
            static const int before[] = { 0, 1, 15, 16, 63, 64, 65, 127, 128, 500, 900 };
            int most = (K_STRIDE - 1) * h[3] * n_own, at = before[tw_int(0, 10)];
            job_row(1, at < most ? at : most - 1, (uint64_t)(i * 10 + r));
        }
        if (i % 3 == 0)
            job_row(7, 40, (uint64_t)i);
        check_shares(0);
        job_free();
    }
}

/* A share's results, with the query heads of all ranks in one head set, in one of
 * two halves, or in several, for rows with no tokens in the share, or about a
 * multiple of 16 or of a chunk. */
static void
heads_of_all_ranks(void **state)
{
    static const int group[] = { 1, 4, 8, 16 };
    static const int here[] = { 0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256,
        257, 500 };
    (void)state;
    for (int i = 0; i < 72; i++) {
        int n_own = 2 + i % 3, K = i % 5 == 4 ? 2 : 1;
        if (!tw_takes((size_t)i, 7))
            continue;
        job_new(group[i / 3 % 4] * K, K, i / 12 % 2 ? 64 : 128, i % 2 ? 16 : 64,
            types[i / 24]);
        job_share(n_own, i / 2 % n_own);
        job.first_plan = i % 4 > 1;
        job.softcap = i % 7 == 6 ? 30 : 0;
        for (int r = 0; r < 15; r++)
            job_row(1, here[r] * n_own + tw_int(0, n_own - 1), (uint64_t)(i * 20 + r));
        check_shares(0);
        job_free();
    }
}

/* Shares of rows that are divided among thread blocks, and thread
 * blocks with several rows. */
static void
shares_of_many_blocks(void **state)
{
    static const int shape[][4] = { /* H, K, D, ranks */
        { 16, 1, 128, 2 }, { 32, 4, 128, 3 }, { 32, 4, 128, 2 }, { 20, 1, 128, 2 },
        { 8, 2, 64, 4 }, { 8, 1, 128, 4 }, { 16, 4, 96, 3 }, { 12, 1, 64, 2 },
        { 4, 1, 128, 8 }
    };
    static const int some[] = { 3900, 0, 2600, 1, 1300, 63 };
    (void)state;
    for (int i = 0; i < 27; i++) {
        const int *h = shape[i % 9], n_own = h[3], even = (i + i / 9) % 3 == 2;
        if (!tw_takes((size_t)i, 7))
            continue;
        job_new(h[0], h[1], h[2], 128, i < 18 ? FDK_BF16 : types[i % 3]);
        job_share(n_own, (i + i / 9) % n_own);
        job.first_plan = i % 2;
        for (int r = 0; r < (even ? 12 : 6); r++)
            job_row(1, (even ? 600 : some[r]) * n_own + tw_int(0, 90),
                (uint64_t)(i * 20 + r));
        if (i % 5 == 0)
            job_row(7, 200, (uint64_t)i);
        check_shares(1);
        job_free();
    }
}

/* Each thread block reuses its buffer for chunks several times,
 * with head sets of two halves. */
static void
long_shares(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        job_new(108, 12, 128, 128, FDK_BF16);
        job_share(2, i);
        job_row(1, 7000 * 2 + 70, (uint64_t)i);
        job_row(1, 30, 2);
        job_row(1, 3600 * 2 + 100, (uint64_t)(3 + i));
        check_shares(1);
        job_free();
    }
}

/* Rows divided among many thread blocks, with short rows between them. */
static void
long_histories(void **state)
{
    (void)state;
    for (int i = 0; i < 18; i++) {
        if (!tw_takes((size_t)i, 4))
            continue;
        job_new(i % 2 ? 8 : 4, i % 2 ? 2 : 1, i < 4 ? (i < 2 ? 128 : 64) : dims[i % 6],
            128, types[i % 3]);
        job.window = i > 5 ? 1000 : 0;
        for (int r = 0; r <= i % 4; r++)
            job_row(1 + r * r, tw_int(0, 7000 / (1 + i % 4)), (uint64_t)(i + 50 * r));
        job_row(1, 0, 7);
        check(PAD, FDK_BF16);
        job_free();
    }
}

/* Lengths at the ends of KV tiles, chunks and blocks. */
static void
edges(void **state)
{
    static const int len[] = { 1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 256, 257 };
    (void)state;
    for (int i = 0; i < 36; i++) {
        job_new(4, 2, dims[i / 3 % 6], i % 2 ? 64 : 16, types[i % 3]);
        job.window = i < 18 ? 0 : 1 << i % 9;
        for (int k = 0; k < 14; k++)
            job_row(len[k] < 3 ? 1 : 1 + k % 3, len[k] - (len[k] < 3 ? 1 : 1 + k % 3),
                (uint64_t)k);
        check(0, FDK_BF16);
        job_free();
    }
}

/* One plan serves every layer, and the same launch gives the same bits. */
static void
layers_of_one_plan(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct launch l;
        job_new(8, 2, 128, 64, types[i]);
        random_rows(9, 20, 1500);
        launch_new(&l, &tw.gpu, job.s.n_tok + PAD, FDK_BF16);
        launch_fill(&l, &tw.gpu);
        launch_ops(&l, &tw.gpu);
        float *y = launch_read(&l, &tw.gpu);
        size_t bytes = (size_t)(l.a.T * job.H * job.D) * 4;
        for (int k = 2; k < 6; k++) {
            OK(tw.gpu.d.ops->fill(tw.gpu.d.st, l.a.y, TW_POISON, bytes / 2));
            OK(tw.gpu.d.ops->attention(&l.a, tw.gpu.d.st));
            float *again = launch_read(&l, &tw.gpu);
            assert_int_equal(job.done, k * job.tiles);
            tw_same(again, y, bytes, "again");
            free(again);
        }
        free(y);
        tw_free(&tw.gpu);
        job_free();
    }
}

/* Recorded once and replayed for steps with other rows, lengths and blocks. */
static void
steps_of_one_graph(void **state)
{
    const struct fdk_ops *ops = tw.gpu.d.ops;
    (void)state;
    for (int k = 0; k < 6; k++) {
        enum fdk_dtype act = acts[k / 4 % 2];
        struct launch l;
        struct fdk_graph *g;
        job_new(6, 2, k % 2 ? 128 : 64, 32, types[k % 4]);
        job_row(1, 0, 1);
        launch_new(&l, &tw.gpu, 300, act);
        launch_fill(&l, &tw.gpu);
        launch_ops(&l, &tw.gpu);
        k_sync(&tw.gpu.d);
        OK(ops->graph_begin(tw.gpu.d.st));
        launch_ops(&l, &tw.gpu);
        OK(ops->graph_end(tw.gpu.d.st, &g));
        for (int i = 0; i < 5; i++) {
            job_free();
            job_new(6, 2, k % 2 ? 128 : 64, 32, types[k % 4]);
            random_rows(i == 0 ? 1 : 3 * i, i % 2 ? 1 : 20, 400 + 300 * i);
            launch_fill(&l, &tw.gpu);
            OK(ops->graph_launch(g, tw.gpu.d.st));
            float *want = run(&tw.cpu, job.s.n_tok, FDK_F32);
            float *got = launch_read(&l, &tw.gpu);
            compare(got, want, act);
            free(got);
            free(want);
        }
        ops->graph_free(g);
        tw_free(&tw.gpu);
        job_free();
    }
}

/* New rows of a step that share blocks which its first row fills in the same step. The
 * earlier keys and values are finite, so reading too early shows only in the sums. */
static void
share_blocks(void)
{
    struct k_step *s = &job.s;
    const int32_t *from = s->block_table + K_SLOT(0) * K_STRIDE;
    for (int r = 1; r < s->n_row; r++)
        for (int i = 0; i < s->pos[s->q_start[r]] / job.B; i++)
            s->block_table[K_SLOT(r) * K_STRIDE + i] = from[i];
    for (int t = 0; t < s->n_tok; t++) {
        int at = K_SLOT(s->row[t]) * K_STRIDE + s->pos[t] / job.B;
        s->slot_map[t] = s->block_table[at] * job.B + s->pos[t] % job.B;
        s->ids[t] = 1;
    }
}

/* Runs as a step's second layer: the plan is older than the keys and values. */
static float *
run_layer(struct two_dev *t, enum fdk_dtype act)
{
    const struct fdk_ops *ops = t->d.ops;
    struct launch l;
    launch_new(&l, t, job.s.n_tok, act);
    launch_fill(&l, t);
    struct fdk_qkv_args q = { .qkv = (void *)(uintptr_t)l.a.qkv,
        .b = &l.b,
        .kv = l.a.kv,
        .T = l.a.T,
        .H = job.H,
        .K = job.K,
        .D = job.D,
        .layer = LAYER,
        .eps = 1e-6f,
        .act = act };
    OK(ops->stream_delay(t->d.st, 200000)); /* so that all launches are
                                             * queued and can overlap */
    OK(ops->att_plan(&l.p, t->d.st));
    OK(ops->qkv(&q, t->d.st));
    OK(ops->attention(&l.a, t->d.st));
    float *y = launch_read(&l, t);
    tw_free(t);
    return y;
}

static void
blocks_of_the_same_step(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        if (!tw_takes((size_t)i, 5))
            continue;
        job_new(8, 2, i % 2 ? 64 : 128, 16, types[i / 2 % 3]);
        job_row(i < 6 ? 161 : 31, 0, 3);
        for (int r = 1; r < 8; r++)
            job_row(i % 4 + 1, i < 6 ? 160 - 16 * (r % 4) : 16, (uint64_t)(3 + r));
        share_blocks();
        float *want = run_layer(&tw.cpu, FDK_F32);
        float *got = run_layer(&tw.gpu, FDK_BF16);
        compare(got, want, FDK_BF16);
        free(got);
        free(want);
        job_free();
    }
}

/* An empty step, as for warming a size up, and a step after it. */
static void
empty_steps(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        enum fdk_dtype act = acts[i / 4];
        struct launch l;
        job_new(8, 2, i % 2 ? 128 : 64, 16, types[i % 4]);
        launch_new(&l, &tw.gpu, K_MAX_TOK, act);
        for (int k = 0; k < 3; k++) {
            if (k == 1)
                random_rows(5, 60, 500);
            else
                k_step_init(&job.s);
            launch_fill(&l, &tw.gpu);
            launch_ops(&l, &tw.gpu);
            float *got = launch_read(&l, &tw.gpu);
            float *want = job.s.n_tok > 0 ? run(&tw.cpu, job.s.n_tok, FDK_F32) : NULL;
            compare(got, want, act);
            assert_int_equal(job.tiles > 0, k == 1);
            free(got);
            free(want);
        }
        tw_free(&tw.gpu);
        job_free();
    }
}

/* ---- deterministic devices ----------------------------------------------- */

static int window_of_rows, n_differ;

/* Compares tokens at .. at + n - 1 of the row of seed 5, alone or in a batch of two rows,
 * with `whole`, which begins at token `from`. */
static void
same_token(const int *shape, enum fdk_dtype t, enum fdk_dtype act, int at, int n,
    const float *whole, int from)
{
    size_t width = (size_t)(shape[0] * shape[2]);
    for (int batched = 0; batched < 2; batched++) {
        job_new(shape[0], shape[1], shape[2], shape[3], t);
        job.window = window_of_rows;
        if (batched) {
            job_row(3, 300, 8);
            job_row(40, 100, 9);
        }
        int first = job.s.n_tok;
        job_row(n, at, 5);
        if (batched)
            job_row(1, 900, 10);
        float *y = run(&tw.gpu, job.s.n_tok + 50 * batched, act);
        const float *want = whole + (size_t)(at - from) * width;
        if (memcmp(y + (size_t)first * width, want, (size_t)n * width * 4) != 0) {
            print_error("heads %d, %d of %d, %s, window %d: tokens %d .. %d%s\n",
                shape[0], shape[1], shape[2], fdk_dtype_name(t), window_of_rows, at,
                at + n, batched ? " in a batch" : "");
            n_differ++;
        }
        free(y);
        job_free();
    }
}

/* A token has the same bits whatever else is in the step and however the
 * row was divided into chunks. */
static void
rows_stand_alone(void **state)
{
    static const int shape[][4] = { { 8, 2, 128, 64 }, { 4, 4, 64, 64 },
        { 34, 2, 64, 64 }, { 6, 2, 96, 64 }, { 4, 1, 256, 32 }, { 4, 2, 80, 32 },
        { 8, 2, 192, 128 }, { 6, 2, 72, 32 } };
    static const int windows[] = { 0, 200, 1000, 33 };
    (void)state;
    for (int i = 0; i < 32; i++) {
        const int *h = shape[i % 8];
        if (!tw_takes((size_t)i, 5))
            continue;
        enum fdk_dtype t = types[i / 8], act = acts[t == FDK_F32];
        int from = i % 3 == 0 ? 0 : 1500, n = 160;
        window_of_rows = windows[i % 4];
        job_new(h[0], h[1], h[2], h[3], t);
        job.window = window_of_rows;
        job_row(n, from, 5);
        float *whole = run(&tw.gpu, n, act);
        job_free();
        same_token(h, t, act, from, 1, whole, from);
        same_token(h, t, act, from + 37, 1, whole, from);
        same_token(h, t, act, from + 127, 2, whole, from);
        same_token(h, t, act, from + 3, 30, whole, from);
        same_token(h, t, act, from + 60, 100, whole, from);
        free(whole);
    }
    window_of_rows = 0;
    assert_int_equal(n_differ, 0);
}

/* ---- plans and arguments ------------------------------------------------- */

static void
plan_equals_the_cpu(void **state)
{
    static struct k_step s;
    struct fdk_work *work[2];
    int32_t n_work[2];
    (void)state;
    for (int round = 0; round < 60; round++) {
        int most = round % 3 ? 40 : 2, n_row = tw_int(1, K_MAX_ROW);
        k_step_init(&s);
        for (int r = 0; r < n_row; r++)
            k_step_row(&s, tw_int(1, most), tw_int(0, 48), 16, 97, r);
        int qa = tw_int(1, 12), bt = 1 << tw_int(0, 6);
        int n_max = fdk_tiles_max(K_MAX_ROW, K_MAX_TOK, qa, bt);
        size_t bytes = (size_t)n_max * sizeof(**work);
        for (int i = 0; i < 2; i++) {
            struct two_dev *t = i == 0 ? &tw.cpu : &tw.gpu;
            char *d = NULL;
            struct fdk_batch b = tw_step(t, &s, &d);
            struct fdk_att_plan_args a = { .work = tw_new(t, NULL, bytes),
                .n_work = tw_new(t, NULL, 4),
                .n_done = tw_new(t, NULL, 4),
                .b = &b,
                .a = qa,
                .bt = bt,
                .n_max = n_max };
            uint32_t done = 1;
            OK(t->d.ops->att_plan(&a, t->d.st));
            work[i] = tw_read(t, a.work, bytes);
            tw_get(t, &n_work[i], a.n_work, 4);
            tw_get(t, &done, a.n_done, 4);
            assert_int_equal(done, 0);
            tw_free(t);
        }
        assert_int_equal(n_work[0], n_work[1]);
        tw_same(work[1], work[0], bytes, "plan");
        free(work[0]);
        free(work[1]);
    }
}

static void
bad_arguments(void **state)
{
    const struct fdk_ops *ops = tw.gpu.d.ops;
    struct launch l;
    (void)state;
    job_new(8, 2, 128, 64, FDK_BF16);
    job_row(1, 100, 1);
    launch_new(&l, &tw.gpu, 8, FDK_BF16);
    struct fdk_att_plan_args p = l.p;
    p.plan_bytes--;
    assert_int_equal(ops->att_plan(&p, tw.gpu.d.st), -EINVAL);
    p = l.p;
    p.att = NULL;
    assert_int_equal(ops->att_plan(&p, tw.gpu.d.st), -EINVAL);
    struct fdk_attention_args a = l.a;
    a.act = FDK_F16;
    assert_int_equal(ops->attention(&a, tw.gpu.d.st), -ENOTSUP);
    a = l.a;
    a.scratch = NULL;
    assert_int_equal(ops->attention(&a, tw.gpu.d.st), -EINVAL);
    a = l.a;
    a.window = 5;
    assert_int_equal(ops->attention(&a, tw.gpu.d.st), -EINVAL);
    a = l.a;
    a.softcap = -1;
    assert_int_equal(ops->attention(&a, tw.gpu.d.st), -EINVAL);
    a = l.a;
    a.n_work_max = 0;
    assert_int_equal(ops->attention(&a, tw.gpu.d.st), -EINVAL);
    tw_free(&tw.gpu);
    job_free();
}

/* If no tensor map can be made, other kernels compute the same result. */
static void
without_tensor_maps(void **state)
{
    assert_int_equal(fdk_cuda_fail_maps(1), 0);
    windows_and_caps(state);
    assert_true(fdk_cuda_fail_maps(0) > 0);
    assert_string_not_equal(tw.gpu.d.ops->fell_back(tw.gpu.d.ctx, 0), "");
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_shape),
        cmocka_unit_test(windows_and_caps),
        cmocka_unit_test(without_tensor_maps),
        cmocka_unit_test(windows_of_the_plain_kernel),
        cmocka_unit_test(keys_in_shares),
        cmocka_unit_test(heads_of_all_ranks),
        cmocka_unit_test(shares_of_many_blocks),
        cmocka_unit_test(long_shares),
        cmocka_unit_test(long_histories),
        cmocka_unit_test(edges),
        cmocka_unit_test(layers_of_one_plan),
        cmocka_unit_test(steps_of_one_graph),
        cmocka_unit_test(blocks_of_the_same_step),
        cmocka_unit_test(empty_steps),
        cmocka_unit_test(plan_equals_the_cpu),
        cmocka_unit_test(bad_arguments),
    };
    const struct CMUnitTest deterministic[] = {
        cmocka_unit_test(every_type_and_shape),
        cmocka_unit_test(windows_and_caps),
        cmocka_unit_test(windows_of_the_plain_kernel),
        cmocka_unit_test(keys_in_shares),
        cmocka_unit_test(long_histories),
        cmocka_unit_test(layers_of_one_plan),
        cmocka_unit_test(rows_stand_alone),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    if (argc > 1)
        cmocka_set_skip_filter(argv[1]);
    rc = cmocka_run_group_tests_name("k_cuda_attention", tests, NULL, NULL);
    if (tw_open_deterministic())
        return 1;
    rc += cmocka_run_group_tests_name("k_cuda_attention deterministic", deterministic,
        NULL, NULL);
    tw_close();
    return rc;
}
