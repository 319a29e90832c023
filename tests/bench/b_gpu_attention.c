/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of the CUDA backend over a paged KV cache, in recorded graphs, layer after
 * layer so that nothing is in a cache by accident. Prompts in operations per second,
 * counting only the causal half, with the rate of a large GEMM. Decoding in bytes of keys
 * and values per second, with the device's peak read rate; with a window only keys in it
 * count. All in one run. With -o, instead, decoding with 16 query heads and one KV head, and
 * where two such ranks divide the tokens: the launch of one of them.
 * Usage: b_gpu_attention [-d] [-l] [-p] [-o] [D ...] (-d: opened
 * deterministic; -l: prompts of 131,072 tokens too; -p: only prompts; D: head dims)
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "tests/bench/gpu_bench.h"

#define PART ((size_t)64 << 20)
#define SPREAD \
    ((size_t)1 << 30) /* about as many bytes of KV in a graph: no cache holds them */

enum { MAX_LAYER = 64 };

static int32_t H = 32, K = 8, B = 16; /* heads, KV heads, tokens of a block */
static int32_t n_own = 1;             /* ranks that divide a block */
static int32_t least_layer;           /* as far apart as a model's */

static double flop_rate;
static int is_long;
static void *buf[32];
static int n_buf;

static void *
device(size_t bytes)
{
    return buf[n_buf++] = gb_device(bytes);
}

static void *
upload(const int32_t *src, size_t n)
{
    void *p = device(n * 4);

    gb_upload(p, src, n * 4);
    return p;
}

/* bf16 numbers, about normal. */
static void *
numbers(size_t bytes)
{
    char *p = device(bytes);
    uint16_t *h = mem_array(PART / 2, 2);
    uint64_t s = 88172645463325252u;

    if (h == NULL)
        exit(1);
    for (size_t i = 0; i < PART / 2; i++) {
        float x;
        uint32_t u;

        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        x = (float)((s & 0xffff) + (s >> 16 & 0xffff) + (s >> 32 & 0xffff) + (s >> 48)) /
                37837.0f -
            3.4641f;
        memcpy(&u, &x, 4);
        h[i] = (uint16_t)(u >> 16);
    }
    for (size_t at = 0; at < bytes; at += PART)
        OK(ops->copy(gb.st, p + at, at == 0 ? (char *)h : p,
            bytes - at < PART ? bytes - at : PART));
    OK(ops->stream_sync(gb.st));
    free(h);
    return p;
}

struct step { /* n_row rows of n new tokens after `before` others */
    int32_t n_row, n, before, D;
    int32_t window; /* 0: none */
    float softcap;  /* 0: none */
    struct fdk_batch b;
};

/* Gives all rows KV blocks in random order. */
static void
make_batch(struct step *s)
{
    int32_t T = s->n_row * s->n, len = s->n + s->before;
    int32_t stride = (len + B * n_own - 1) / (B * n_own);
    size_t n_block = (size_t)s->n_row * (size_t)stride;
    int32_t *v = mem_array((size_t)T + 1, 4), *table = mem_array(n_block, 4);

    if (v == NULL || table == NULL)
        exit(1);
    s->b = (struct fdk_batch){ .table_stride = stride, .max_row = s->n_row };
    s->b.n_tok = upload(&T, 1);
    s->b.n_row = upload(&s->n_row, 1);
    for (int32_t t = 0; t < T; t++)
        v[t] = s->before + t % s->n;
    s->b.pos = upload(v, (size_t)T);
    for (int32_t t = 0; t < T; t++)
        v[t] = -1; /* rows continue, as from step to step */
    s->b.ids = upload(v, (size_t)T);
    for (int32_t t = 0; t < T; t++)
        v[t] = t / s->n;
    s->b.row = upload(v, (size_t)T);
    for (int32_t r = 0; r <= s->n_row; r++)
        v[r] = r * s->n;
    s->b.q_start = upload(v, (size_t)s->n_row + 1);
    for (int32_t r = 0; r < s->n_row; r++)
        v[r] = len;
    s->b.kv_len = upload(v, (size_t)s->n_row);
    for (int32_t r = 0; r < s->n_row; r++)
        v[r] = r;
    s->b.state = upload(v, (size_t)s->n_row);
    for (size_t i = 0; i < n_block; i++)
        table[i] = (int32_t)(i * 7919 % n_block); /* 7919 is prime */
    s->b.block_table = upload(table, n_block);
    free(v);
    free(table);
}

/* Seconds of one layer: the best of several replays of a graph of all layers. */
static double
timed(struct fdk_attention_args *a, int32_t n_layer, int32_t n_launch)
{

    OK(ops->attention(a, gb.st));
    OK(ops->graph_begin(gb.st));
    for (int32_t i = 0; i < n_launch; i++) {
        a->layer = i % n_layer;
        OK(ops->attention(a, gb.st));
    }
    return gb_replay(n_launch);
}

static double
attention(struct step *s, int32_t n_launch)
{
    int32_t T = s->n_row * s->n, D = s->D;
    struct fdk_attention_args a = { .T = T,
        .H = H,
        .K = K,
        .D = D,
        .b = &s->b,
        .window = s->window,
        .step_window = s->window,
        .softcap = s->softcap,
        .scale = 1 / sqrtf((float)D),
        .act = FDK_BF16 };
    struct fdk_att_plan_args p = { .b = &s->b, .att = &a };
    int32_t whole = B * n_own;
    size_t layer,
        n_block = (size_t)s->n_row * (size_t)((s->n + s->before + whole - 1) / whole);
    size_t vectors = (size_t)T * (size_t)(n_own * (H + 2 * K));
    int32_t n_layer;
    double ret;

    n_buf = 0;
    make_batch(s);
    a.kv = (struct fdk_kv){ .block_size = B,
        .n_kv_head = K,
        .head_dim = D,
        .dtype = FDK_BF16,
        .n_own = n_own,
        .v_bytes = (uint64_t)(K * B * D) * 2 };
    a.kv.layer_bytes = 2 * a.kv.v_bytes;
    layer = n_block * a.kv.layer_bytes;
    n_layer = SPREAD / layer >= MAX_LAYER ? MAX_LAYER
        : SPREAD / layer >= 2             ? (int32_t)(SPREAD / layer)
                                          : 2;
    if (n_layer < least_layer)
        n_layer = least_layer;
    a.kv.block_bytes = (uint64_t)n_layer * a.kv.layer_bytes;
    a.kv.base = numbers(n_block * a.kv.block_bytes);
    a.qkv = numbers(vectors * (size_t)D * 2);
    a.y = device(vectors * (size_t)(D + 1) * 4); /* shares: fp32 with the log-sum-exp */
    ops->att_shape(&a, &p.a, &p.bt);
    p.n_max = a.n_work_max = fdk_tiles_max(s->n_row, T, p.a, p.bt);
    p.work = device((size_t)p.n_max * sizeof(*p.work));
    p.n_work = device(4);
    p.n_done = device(4);
    a.work = p.work;
    a.n_work = p.n_work;
    a.n_done = p.n_done;
    p.plan_bytes = ops->att_plan_bytes != NULL ? ops->att_plan_bytes(&a, p.n_max) : 0;
    p.plan = device(p.plan_bytes);
    a.plan = p.plan;
    a.scratch_bytes = ops->attention_scratch(gb.ctx, &a);
    a.scratch = device(a.scratch_bytes);
    OK(ops->att_plan(&p, gb.st));
    ret = timed(&a, n_layer, n_launch > 0 ? n_launch : n_layer < 16 ? 16 : n_layer);
    while (n_buf > 0)
        ops->mem_free(gb.ctx, 0, buf[--n_buf]);
    return ret;
}

/* Number of keys that the queries of one row attend to, summed over its queries. */
static double
keys_seen(const struct step *s)
{
    double n = s->n, all = n * (s->before + 0.5 * n), w = s->window;

    if (s->window == 0 || s->before + s->n <= s->window)
        return all;
    if (s->before >= s->window)
        return n * w;
    n = w - s->before; /* queries that see their whole history */
    return n * (s->before + 0.5 * n) + (s->n - n) * w;
}

static void
prompts(int32_t D)
{
    static const int32_t shape[][4] = { { 1, 2048, 0, 0 }, { 1, 8192, 0, 0 },
        { 1, 32768, 0, 0 }, { 1, 2048, 6144, 0 }, { 16, 512, 0, 0 }, { 1, 8192, 0, 1024 },
        { 1, 32768, 0, 4096 }, { 1, 8192, 0, -1 }, { 1, 131072, 0, 0 } };
    size_t n = sizeof(shape) / sizeof(shape[0]) - !is_long;

    (void)printf("\nprompts, head dim %d: us, TFLOP/s (share of a large product)\n", D);
    for (size_t i = 0; i < n; i++) {
        struct step s = { .n_row = shape[i][0],
            .n = shape[i][1],
            .before = shape[i][2],
            .D = D,
            .window = shape[i][3] > 0 ? shape[i][3] : 0,
            .softcap = shape[i][3] < 0 ? 50 : 0 };
        double pairs = s.n_row * keys_seen(&s), t, rate;

        t = attention(&s, (int32_t)(pairs > 3e8 ? 2 : pairs > 1e7 ? 8 : 32));
        rate = 4 * pairs * H * D / t;
        (void)printf("%3d x %-5d after %-5d %10.1f %7.1f (%.0f%%)", s.n_row, s.n,
            s.before, t * 1e6, rate * 1e-12, 100 * rate / flop_rate);
        if (s.window > 0)
            (void)printf(" window %d", s.window);
        (void)printf("%s\n", s.softcap > 0 ? " soft cap" : "");
        (void)fflush(stdout);
    }
}

static void
decoding(int32_t D)
{
    static const int32_t rows[] = { 1, 8, 32, 64, 128, 256 }, context[] = { 1024, 8192 };
    static const int32_t windowed[][3] = { { 32, 8192, 1024 }, { 64, 32768, 1024 },
        { 64, 32768, 4096 } };

    (void)printf("\ndecoding, head dim %d: us, TB/s (%% of peak read)\n", D);
    for (size_t c = 0; c < 2; c++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            struct step s = { .n_row = rows[i], .n = 1, .before = context[c] - 1, .D = D };
            double t = attention(&s, 0);
            double rate = (double)rows[i] * context[c] * K * D * 4 / t;

            (void)printf("%3d rows at %-5d %10.2f %6.2f (%.0f%%)\n", rows[i], context[c],
                t * 1e6, rate * 1e-12, 100 * rate / gb.read_rate);
            (void)fflush(stdout);
        }
    for (size_t i = 0; i < sizeof(windowed) / sizeof(windowed[0]); i++) {
        struct step s = { .n_row = windowed[i][0],
            .n = 1,
            .before = windowed[i][1] - 1,
            .D = D,
            .window = windowed[i][2] };
        double t = attention(&s, 0), rate = (double)s.n_row * s.window * K * D * 4 / t;

        (void)printf("%3d rows at %-5d %10.2f %6.2f (%.0f%%) window %d\n", s.n_row,
            s.before + 1, t * 1e6, rate * 1e-12, 100 * rate / gb.read_rate, s.window);
        (void)fflush(stdout);
    }
}

static void
shared(void)
{
    static const int32_t rows[] = { 1, 8, 32, 64 }, context[] = { 8192, 32768 };

    H = 16, K = 1, B = 64, least_layer = 32;
    for (n_own = 1; n_own <= 2; n_own++) {
        (void)printf("\ndecoding, %s, %d query heads: us, TB/s (%% of peak read)\n",
            n_own == 1 ? "one KV head" : "half of the tokens of one KV head", n_own * H);
        for (size_t c = 0; c < 2; c++)
            for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct step s = { .n_row = rows[i],
                    .n = 1,
                    .before = context[c] - 1,
                    .D = 128 };
                double t = attention(&s, 0);
                double rate = (double)rows[i] * context[c] / n_own * K * s.D * 4 / t;

                (void)printf("%3d rows at %-5d %10.2f %6.2f (%.0f%%)\n", rows[i],
                    context[c], t * 1e6, rate * 1e-12, 100 * rate / gb.read_rate);
                (void)fflush(stdout);
            }
    }
}

int
main(int argc, char **argv)
{
    static const int32_t all[] = { 128, 64, 80, 96, 192, 256 };
    struct fdk_open_args args = { .n_device = 1, .max_token = 131072 };
    int rc, first = 1, prompts_alone = 0, is_shared = 0;

    for (; first < argc && argv[first][0] == '-'; first++) {
        args.deterministic |= strcmp(argv[first], "-d") == 0;
        is_long |= strcmp(argv[first], "-l") == 0;
        prompts_alone |= strcmp(argv[first], "-p") == 0;
        is_shared |= strcmp(argv[first], "-o") == 0;
    }
    rc = gb_open("b_gpu_attention", &args);
    if (rc != 0)
        return rc;
    OK(ops->probe(gb.ctx, 0, FDK_PROBE_FLOPS, FDK_BF16, &flop_rate));
    (void)printf("%s, %d multiprocessors%s; peak read %.2f TB/s, large GEMM %.0f "
                 "TFLOP/s; %d heads, %d KV heads\n",
        gb.info.name, gb.info.n_proc, args.deterministic ? ", deterministic" : "",
        gb.read_rate / 1e12, flop_rate / 1e12, H, K);
    if (is_shared) {
        shared();
        return 0;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int wanted = argc <= first;

        for (int k = first; k < argc; k++)
            wanted |= atoi(argv[k]) == all[i];
        if (wanted) {
            prompts(all[i]);
            if (!prompts_alone)
                decoding(all[i]);
        }
    }
    return 0;
}
