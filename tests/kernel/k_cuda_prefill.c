/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#define K_STRIDE  272 /* a row of 34,816 tokens, in blocks of 128 */
#define K_MAX_TOK 2560
#include "tests/kernel/k_two.h"

/*
 * Attention of many query tokens of a row on the cuda backend, bf16 queries and KV,
 * compared with the cpu backend on the same numbers in fp32. Weights are rounded to bf16
 * before they multiply the values: with values of about 1, an output has an error of up
 * to 2^-9 of the sum of weights times values, plus its own rounding.
 *
 * Cache that a row has not written is NaN, and entries of its table after its last block
 * are ids of blocks that do not exist.
 */

enum { MAX_KV = 6000, PAD = 9, LAYERS = 2, NO_BLOCK = 0x7ffffff0 };

struct job {
    int H, K, D, B;
    int window;       /* window of the launches on both devices; 0: none */
    int other_window; /* the plan is also for layers without a window */
    float softcap;
    struct k_step s;
    float *qkv;   /* (n_tok, (H + 2 K) D), bf16 numbers */
    uint16_t *kv; /* the pool as on the GPU, with NaNs */
    struct fdk_kv layout;
    size_t kv_bytes;
    int n_block, next; /* blocks in all; next free one */
    uint32_t done;     /* n_done after the last run, and the expected number */
    int32_t tiles;
};

static struct job job;

/* Makes a job with room for rows of max_kv tokens in all. */
static void
job_new_of(int H, int K, int D, int B, int max_kv)
{
    job = (struct job){ .H = H, .K = K, .D = D, .B = B, .n_block = max_kv / B + K_MAX_ROW };
    job.n_block += job.n_block % 5 == 0;
    k_step_init(&job.s);
    for (int i = 0; i < K_MAX_ROW * K_STRIDE; i++)
        job.s.block_table[i] = NO_BLOCK;
    uint64_t half = (uint64_t)(K * B * D) * 2;
    job.layout = (struct fdk_kv){ .v_bytes = half,
        .layer_bytes = 2 * half,
        .block_bytes = LAYERS * 2 * half,
        .block_size = B,
        .n_kv_head = K,
        .head_dim = D,
        .dtype = FDK_BF16 };
    job.kv_bytes = (size_t)job.n_block * job.layout.block_bytes;
    job.kv = malloc(job.kv_bytes);
    job.qkv = malloc((size_t)K_MAX_TOK * (size_t)((H + 2 * K) * D) * 4);
    assert_non_null(job.kv);
    assert_non_null(job.qkv);
    memset(job.kv, 0xff, job.kv_bytes);
}

static void
job_new(int H, int K, int D, int B)
{
    job_new_of(H, K, D, B, MAX_KV);
}

static void
job_free(void)
{
    free(job.kv);
    free(job.qkv);
}

/* Adds a row of n tokens after `before` others; its numbers depend only on seed. */
static void
job_row(int n, int before, uint64_t seed)
{
    struct k_step *s = &job.s;
    int r = s->n_row, first = s->n_tok, at = K_SLOT(r) * K_STRIDE;
    size_t width = (size_t)((job.H + 2 * job.K) * job.D);
    int blocks = (before + n + job.B - 1) / job.B;
    assert_true(first + n <= K_MAX_TOK && blocks <= K_STRIDE);
    k_step_row(s, n, before, job.B, 1, 0);
    for (int i = 0; i < blocks; i++)
        s->block_table[at + i] = job.next++ * 5 % job.n_block;
    assert_true(job.next <= job.n_block);
    for (int t = first; t < first + n; t++)
        s->slot_map[t] = s->block_table[at + s->pos[t] / job.B] * job.B + s->pos[t] % job.B;
    /* By position, so that other chunks of the same row have the same queries. */
    for (int p = 0; p < before + n; p++) {
        uint64_t x = seed * 1000003 + (uint64_t)p * 2, y = x + 1;
        int slot = s->block_table[at + p / job.B] * job.B + p % job.B;
        for (size_t i = 0; i < width && p >= before; i++)
            job.qkv[(size_t)(first + p - before) * width + i] = k_normal(&x);
        uint16_t *l = job.kv + (size_t)(slot / job.B) * job.layout.block_bytes / 2 +
            job.layout.layer_bytes / 2;
        for (int i = 0; i < 2 * job.K * job.D; i++)
            l[(size_t)((i / job.D * job.B + slot % job.B) * job.D + i % job.D)] =
                k_to_bf16(k_normal(&y));
    }
    tw_as_act(job.qkv + (size_t)first * width, (size_t)n * width, FDK_BF16);
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
    size_t width = (size_t)((job.H + 2 * job.K) * job.D);
    *l = (struct launch){ .step = NULL };
    l->b = tw_step(t, &job.s, &l->step);
    l->a = (struct fdk_attention_args){ .T = T,
        .H = job.H,
        .K = job.K,
        .D = job.D,
        .b = &l->b,
        .kv = job.layout,
        .layer = 1,
        .window = job.window,
        .step_window = job.window,
        .softcap = job.softcap,
        .scale = 1 / sqrtf((float)job.D),
        .act = act };
    l->a.qkv = tw_new_act(t, NULL, (size_t)T * width, act);
    l->a.y = tw_new_act(t, NULL, (size_t)(T * job.H * job.D), act);
    l->a.kv.base = tw_new(t, NULL, job.kv_bytes);
    l->plan_a = l->a;
    if (job.other_window)
        l->plan_a.window = 0;
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

/* Uploads the job; the cpu's cache has zeros instead of NaNs. */
static void
launch_fill(struct launch *l, struct two_dev *t)
{
    size_t n = (size_t)job.s.n_tok * (size_t)((job.H + 2 * job.K) * job.D);
    uint16_t *h = malloc(n * 2 > job.kv_bytes ? n * 2 : job.kv_bytes);
    assert_non_null(h);
    l->b = tw_step(t, &job.s, &l->step);
    for (size_t i = 0; i < n; i++)
        h[i] = k_to_bf16(job.qkv[i]);
    tw_put(t, (void *)(uintptr_t)l->a.qkv, l->a.act == FDK_BF16 ? (void *)h : job.qkv,
        n * fdk_dtype_bytes(l->a.act));
    for (size_t i = 0; i < job.kv_bytes / 2; i++)
        h[i] = t == &tw.cpu && job.kv[i] == 0xffff ? 0 : job.kv[i];
    tw_put(t, l->a.kv.base, h, job.kv_bytes);
    free(h);
    OK(t->d.ops->fill(t->d.st, l->a.y, TW_POISON,
        (size_t)(l->a.T * job.H * job.D) * fdk_dtype_bytes(l->a.act)));
}

static void
launch_ops(struct launch *l, struct two_dev *t)
{
    OK(t->d.ops->att_plan(&l->p, t->d.st));
    OK(t->d.ops->attention(&l->a, t->d.st));
}

/* Runs the launch. Returns y as floats; after the step's
 * tokens it must still be poison. */
static float *
launch_read(struct launch *l, struct two_dev *t)
{
    size_t n = (size_t)(l->a.T * job.H * job.D), size = fdk_dtype_bytes(l->a.act);
    size_t live = (size_t)(job.s.n_tok * job.H * job.D);
    unsigned char *raw = tw_read(t, l->a.y, n * size);
    for (size_t i = live * size; i < n * size; i++)
        assert_int_equal(raw[i], TW_POISON);
    free(raw);
    tw_get(t, &job.done, l->a.n_done, 4);
    tw_get(t, &job.tiles, l->a.n_work, 4);
    return tw_read_act(t, l->a.y, n, l->a.act);
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

static void
compare(const float *got, const float *want)
{
    size_t n = (size_t)(job.s.n_tok * job.H * job.D);
    assert_int_equal(job.done, job.tiles);
    tw_near_act(got, want, n, FDK_BF16, 0, 0.012, "y");
    assert_true(tw_distance(got, want, n) < 4e-3);
}

static void
check(int pad)
{
    float *want = run(&tw.cpu, job.s.n_tok, FDK_F32);
    float *got = run(&tw.gpu, job.s.n_tok + pad, FDK_BF16);
    compare(got, want);
    free(got);
    free(want);
}

static const int dims[] = { 64, 80, 96, 128, 192, 256 };

static const int heads[][2] = { { 4, 2 }, { 8, 1 }, { 3, 3 }, { 6, 2 }, { 10, 2 } };

static void
rows_of_all_lengths(void **state)
{
    static const int sizes[] = { 16, 32, 64, 128 };
    (void)state;
    for (int i = 0; i < 48; i++) {
        if (!tw_takes((size_t)i, 3))
            continue;
        job_new(heads[i % 5][0], heads[i % 5][1], dims[i % 6], sizes[i / 6 % 4]);
        for (int r = 0; r < 4 + i % 3; r++) {
            /* Short rows, just long ones, rows of a tile and more. */
            static const int most[] = { 3, 31, 33, 65, 130, 260 };
            int n = most[tw_int(0, 5)] - tw_int(0, 2);
            int before = tw_int(0, 3) > 0 ? tw_int(0, 400) : 0;
            if (job.s.n_tok + n + PAD <= K_MAX_TOK)
                job_row(n, before, (uint64_t)tw_int(1, 1 << 20));
        }
        check(i % 3 == 0 ? 0 : PAD);
        job_free();
    }
}

static void
windows_and_caps(void **state)
{
    static const int windows[] = { 1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256,
        700, 6000 };
    (void)state;
    for (int i = 0; i < 60; i++) {
        if (!tw_takes((size_t)i, 4))
            continue;
        job_new(heads[i % 5][0], heads[i % 5][1], dims[i / 5 % 6], 16 << tw_int(0, 3));
        job.window = i < 50 ? windows[(i + i / 14) % 14] : 0;
        job.other_window = i % 2;
        job.softcap = i < 20 ? 0 : i % 2 ? 1.5f : 30;
        job_row(tw_int(64, 400), tw_int(0, 3) > 0 ? tw_int(0, 600) : 0, 3);
        job_row(tw_int(1, 100), tw_int(0, 500), 4);
        check(i % 3 == 0 ? 0 : PAD);
        job_free();
    }
}

/* Every length at which a chunk of keys, a group of queries or a block ends. */
static void
edges(void **state)
{
    static const int n[] = { 32, 33, 63, 64, 65, 127, 128, 129, 256 };
    static const int before[] = { 0, 1, 95, 96, 127, 128, 129, 255, 500 };
    (void)state;
    for (int i = 0; i < 9; i++)
        for (int d = 0; d < 6 && tw_takes((size_t)i, 2); d++) {
            job_new(4, 1, dims[d], 16);
            job_row(n[i], before[(i * 4 + tw_int(0, 1)) % 9], 7);
            job_row(n[8 - i] / 2 + 1, before[i], 8);
            check(PAD);
            job_free();
        }
}

/* A token's bits depend only on its row: not on the other rows, nor on how the row was
 * divided into steps, if all of these are long rows. */
static void
rows_stand_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        int d = dims[i % 6], window = i < 6 ? 0 : 90;
        size_t width = (size_t)(8 * d);
        job_new(8, 2, d, 16);
        job.window = window;
        job_row(300, 20, 5);
        float *whole = run(&tw.gpu, 300, FDK_BF16);
        job_free();
        for (int cut = 70; cut <= 230; cut += 80) {
            job_new(8, 2, d, 16);
            job.window = window;
            job_row(70, 3, 9);
            job_row(cut, 20, 5);
            job_row(5, 200, 10);
            float *part = run(&tw.gpu, 400, FDK_BF16);
            tw_same(part + 70 * width, whole, (size_t)cut * width * 4, "first part");
            free(part);
            job_free();
            job_new(8, 2, d, 16);
            job.window = window;
            job_row(33, 500, 11);
            job_row(300 - cut, 20 + cut, 5);
            part = run(&tw.gpu, 350, FDK_BF16);
            tw_same(part + 33 * width, whole + (size_t)cut * width,
                (size_t)(300 - cut) * width * 4, "second part");
            free(part);
            job_free();
        }
        free(whole);
    }
}

/* On a deterministic device they also do not depend on whether the row is long enough for
 * this kernel, at the borders of splits of four chunks and of longer ones. */
static void
long_and_short(void **state)
{
    static const struct {
        int H, K, D, B, before, window;
        float softcap;
    } c[] = {
        { 8, 2, 128, 64, 0, 0, 0 },
        { 8, 2, 64, 128, 400, 0, 0 },
        { 8, 2, 128, 16, 1900, 0, 0 },
        { 3, 3, 64, 64, 1900, 0, 0 },
        { 3, 3, 128, 32, 400, 0, 0 },
        { 10, 2, 64, 32, 3000, 0, 0 },
        { 10, 2, 128, 64, 460, 0, 0 },
        { 24, 1, 128, 64, 900, 0, 0 },
        { 34, 2, 64, 64, 500, 0, 0 },
        { 4, 1, 128, 128, 32600, 0, 0 },
        { 2, 1, 64, 128, 33700, 0, 0 },
        { 8, 2, 128, 64, 1900, 300, 0 },
        { 3, 3, 64, 64, 1900, 1000, 0 },
        { 8, 2, 128, 16, 0, 65, 0 },
        { 4, 1, 128, 128, 32600, 3000, 0 },
        { 8, 2, 80, 64, 1900, 0, 0 },
        { 6, 2, 96, 32, 460, 0, 0 },
        { 8, 2, 96, 16, 1900, 300, 0 },
        { 8, 2, 128, 64, 700, 0, 2 },
        { 8, 2, 64, 64, 700, 129, 30 },
        { 4, 2, 80, 16, 500, 64, 5 },
    };
    static const int n[] = { 1, 2, 9, 63, 64, 130 };
    (void)state;
    for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
        int at = c[i].before, H = c[i].H, K = c[i].K, D = c[i].D;
        size_t width = (size_t)(H * D);
        if (!tw_takes(i, 5))
            continue;
        job_new_of(H, K, D, c[i].B, at + MAX_KV);
        job.window = c[i].window;
        job.softcap = c[i].softcap;
        job_row(200, at, 5);
        float *whole = run(&tw.gpu, 200, FDK_BF16);
        job_free();
        for (int k = 0; k < 6; k++) {
            int skip = tw_int(0, 200 - n[k]);
            job_new_of(H, K, D, c[i].B, at + MAX_KV);
            job.window = c[i].window;
            job.softcap = c[i].softcap;
            job_row(3, 700, 9);
            job_row(n[k], at + skip, 5);
            job_row(70, 130, 10);
            float *part = run(&tw.gpu, job.s.n_tok, FDK_BF16);
            tw_same(part + 3 * width, whole + (size_t)skip * width,
                (size_t)n[k] * width * 4, "a part of the row");
            free(part);
            job_free();
        }
        free(whole);
    }
}

/* Rows so long that tiles of head dim 64 have 192 tokens. The bits equal those of tiles
 * of 128, which are used with a second long row. */
static void
rows_of_thousands(void **state)
{
    static const int windows[] = { 0, 100, 0, 1500 };
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int n = 2048 + tw_int(0, 130), group = 1 + i, width = 2 * group * 64;
        if (!tw_takes((size_t)i, 2))
            continue;
        job_new(2 * group, 2, 64, 16 << i % 4);
        job.window = windows[i];
        job_row(n, 70 * i, 5);
        if (i > 0)
            job_row(i, 300, 6);
        check(PAD);
        float *whole = run(&tw.gpu, job.s.n_tok, FDK_BF16);
        job_row(100, 40, 7);
        float *other = run(&tw.gpu, job.s.n_tok, FDK_BF16);
        tw_same(other, whole, (size_t)(n * width) * 4, "the row");
        free(other);
        free(whole);
        job_free();
    }
}

/* Recorded once and replayed for steps with other rows, lengths and blocks. */
static void
steps_of_one_graph(void **state)
{
    const struct fdk_ops *ops = tw.gpu.d.ops;
    (void)state;
    for (int d = 64; d <= 128; d *= 2) {
        struct launch l;
        struct fdk_graph *g;
        job_new(6, 2, d, 32);
        job_row(40, 0, 1);
        launch_new(&l, &tw.gpu, 640, FDK_BF16);
        launch_fill(&l, &tw.gpu);
        launch_ops(&l, &tw.gpu);
        k_sync(&tw.gpu.d);
        OK(ops->graph_begin(tw.gpu.d.st));
        launch_ops(&l, &tw.gpu);
        OK(ops->graph_end(tw.gpu.d.st, &g));
        for (int i = 0; i < 4; i++) {
            job_free();
            job_new(6, 2, d, 32);
            job_row(200 - 50 * i, 10 + 90 * i, (uint64_t)(20 + i));
            for (int k = 0; k < i; k++)
                job_row(1 + 35 * k, 64 * k, (uint64_t)(30 + k));
            launch_fill(&l, &tw.gpu);
            OK(ops->graph_launch(g, tw.gpu.d.st));
            float *want = run(&tw.cpu, job.s.n_tok, FDK_F32);
            float *got = launch_read(&l, &tw.gpu);
            compare(got, want);
            free(got);
            free(want);
        }
        ops->graph_free(g);
        tw_free(&tw.gpu);
        job_free();
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_all_lengths),
        cmocka_unit_test(windows_and_caps),
        cmocka_unit_test(edges),
        cmocka_unit_test(rows_stand_alone),
        cmocka_unit_test(rows_of_thousands),
        cmocka_unit_test(steps_of_one_graph),
    };
    const struct CMUnitTest deterministic[] = {
        cmocka_unit_test(rows_of_all_lengths),
        cmocka_unit_test(windows_and_caps),
        cmocka_unit_test(edges),
        cmocka_unit_test(rows_stand_alone),
        cmocka_unit_test(long_and_short),
        cmocka_unit_test(rows_of_thousands),
        cmocka_unit_test(steps_of_one_graph),
    };
    int rc = tw_open();
    if (rc != 0)
        return rc;
    rc = cmocka_run_group_tests_name("k_cuda_prefill", tests, NULL, NULL);
    if (tw_open_deterministic())
        return 1;
    rc += cmocka_run_group_tests_name("k_cuda_prefill deterministic", deterministic, NULL,
        NULL);
    tw_close();
    return rc;
}
