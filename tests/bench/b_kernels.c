/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/fdk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Each operation's rate and the machine's measured peak in the same run: a plain
 * streaming read and a register-only multiply-add loop on all threads. Usage:
 * b_kernels [THREADS]
 */

#define ASSERT_OK(e) \
    do { \
        int rc_ = (e); \
        if (rc_ != 0) { \
            fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #e, rc_); \
            exit(1); \
        } \
    } while (0)

static const struct fdk_ops *const ops = &fdk_ops_cpu;
static struct fdk_ctx *ctx;
static fdk_stream_t st;
static const struct cpu_isa *isa;
static int n_thread;
static double peak_gbs, peak_gflops, cache_gbs;

static double
seconds_since(uint64_t t0)
{
    return (double)(cpu_now_ns() - t0) * 1e-9;
}

/* ---- measured peak ------------------------------------------------------------ */

struct probe {
    pthread_t thread;
    const float *x;
    size_t n;
    int reps, fma;
    float sink;
};

static void *
probe_main(void *arg)
{
    struct probe *p = arg;
    for (int i = 0; i < p->reps; i++)
        p->sink += p->fma ? isa->peak_fma(2000000) : isa->stream_read(p->x, p->n);
    return NULL;
}

/* Best of several runs: floats read, or multiply-adds, per second. */
static double
probe_all(const float *x, size_t n, int reps, int fma)
{
    struct probe p[256] = { 0 };
    double best = 0;
    for (int run = 0; run < 4; run++) {
        uint64_t t0 = cpu_now_ns();
        for (int i = 0; i < n_thread; i++) {
            p[i] = (struct probe){ .x = x + n / (size_t)n_thread * (size_t)i,
                .n = n / (size_t)n_thread,
                .reps = reps,
                .fma = fma };
            if (pthread_create(&p[i].thread, NULL, probe_main, &p[i]) != 0)
                exit(1);
        }
        for (int i = 0; i < n_thread; i++)
            pthread_join(p[i].thread, NULL);
        double work = fma ? 2000000.0 * 256 * reps * n_thread : (double)n * reps;
        double rate = work / seconds_since(t0);
        best = rate > best ? rate : best;
    }
    return best;
}

static void
measure_peak(void)
{
    size_t n = (size_t)512 << 18; /* 512 MiB of floats */
    void *x;
    ASSERT_OK(ops->mem_alloc(ctx, 0, n * 4, &x));
    memset(x, 0, n * 4);
    peak_gbs = probe_all(x, n, 1, 0) * 4e-9;
    cache_gbs = probe_all(x, 65536 * (size_t)n_thread, 2000, 0) * 4e-9;
    peak_gflops = probe_all(NULL, 0, 1, 1) * 2e-9;
    ops->mem_free(ctx, 0, x);
    printf("%d threads, %s; measured peak: memory read %.1f GB/s, 256 KiB per thread %.1f GB/s, "
           "fma %.1f GFLOP/s\n\n",
        n_thread, isa->name, peak_gbs, cache_gbs, peak_gflops);
}

/* ---- operations ---------------------------------------------------------- */

typedef void launch_fn(void *arg);

/* Seconds per launch: enough launches for 60 ms, the best of three such runs. */
static double
measure(launch_fn *fn, void *arg)
{
    double best = 1e9;
    int n = 1;
    fn(arg);
    ASSERT_OK(ops->stream_sync(st));
    for (int run = 0; run < 3;) {
        uint64_t t0 = cpu_now_ns();
        for (int i = 0; i < n; i++)
            fn(arg);
        ASSERT_OK(ops->stream_sync(st));
        double t = seconds_since(t0);
        if (t < 0.06) {
            n *= 2;
            continue;
        }
        best = t / n < best ? t / n : best;
        run++;
    }
    return best;
}

static void
report(const char *name, double s, double bytes, double flops)
{
    printf("%-34s %10.2f us %8.1f GB/s (%4.0f%%) %9.1f GFLOP/s (%4.0f%%)\n", name,
        s * 1e6, bytes / s * 1e-9, 100 * bytes / s * 1e-9 / peak_gbs, flops / s * 1e-9,
        100 * flops / s * 1e-9 / peak_gflops);
    fflush(stdout);
}

struct gemm_set { /* several weights in turn: no reuse in caches */
    struct fdk_gemm_args a;
    char *w;
    size_t bytes, scale_at; /* bytes of one with its scales; offset of the scales */
    int n, next;
};

static void
launch_gemm(void *arg)
{
    struct gemm_set *g = arg;
    g->a.w = g->w + (size_t)g->next * g->bytes;
    g->a.w_scale =
        (const float *)(const void *)(g->w + (size_t)g->next * g->bytes + g->scale_at);
    g->next = (g->next + 1) % g->n;
    ASSERT_OK(ops->gemm(&g->a, st));
}

/* group: group size of quantized types; 0: one scale per row. */
static void
bench_gemm_group(int T, int N, int K, enum fdk_dtype t, int group, size_t footprint)
{
    int32_t live = T;
    int quant = t == FDK_I8 || t == FDK_I4, G = group > 0 ? group : K;
    char name[64], kind[32];
    struct gemm_set g = { .scale_at = (size_t)N * fdk_row_bytes(t, (size_t)K) };
    g.bytes = g.scale_at + (quant ? (size_t)N * (size_t)((K + G - 1) / G) * 4 : 0);
    g.n = footprint / g.bytes > 1 ? (int)(footprint / g.bytes) : 1;
    void *p, *x, *y;
    ASSERT_OK(ops->mem_alloc(ctx, 0, g.bytes * (size_t)g.n, &p));
    ASSERT_OK(ops->mem_alloc(ctx, 0, (size_t)T * (size_t)K * 4, &x));
    ASSERT_OK(ops->mem_alloc(ctx, 0, (size_t)T * (size_t)N * 4, &y));
    memset(p, 0, g.bytes * (size_t)g.n);
    memset(x, 0, (size_t)T * (size_t)K * 4);
    g.w = p;
    g.a = (struct fdk_gemm_args){ .y = y,
        .x = x,
        .n = &live,
        .T = T,
        .N = N,
        .K = K,
        .ldy = N,
        .w_dtype = t,
        .w_group = G };
    snprintf(kind, sizeof(kind), "%s/%d", fdk_dtype_name(t), G);
    snprintf(name, sizeof(name), "gemm %dx%dx%d %s", T, N, K,
        quant ? kind : fdk_dtype_name(t));
    report(name, measure(launch_gemm, &g), (double)g.bytes, 2.0 * T * N * K);
    ops->mem_free(ctx, 0, p);
    ops->mem_free(ctx, 0, x);
    ops->mem_free(ctx, 0, y);
}

static void
bench_gemm(int T, int N, int K, enum fdk_dtype t, size_t footprint)
{
    bench_gemm_group(T, N, K, t, 0, footprint);
}

/* bf16 and the types that may replace it. */
static void
bench_quant(int T, int N, int K, size_t footprint)
{
    bench_gemm(T, N, K, FDK_BF16, footprint);
    for (int i = 0; i < 2; i++) {
        enum fdk_dtype t = i == 0 ? FDK_I8 : FDK_I4;
        bench_gemm_group(T, N, K, t, 0, footprint);
        bench_gemm_group(T, N, K, t, 128, footprint);
        bench_gemm_group(T, N, K, t, 32, footprint);
    }
}

static void
launch_norm(void *arg)
{
    ASSERT_OK(ops->rmsnorm(arg, st));
}

static void
launch_silu(void *arg)
{
    ASSERT_OK(ops->silu_mul(arg, st));
}

static void
launch_softcap(void *arg)
{
    ASSERT_OK(ops->softcap(arg, st));
}

static void
bench_rows(int T, int C, int F)
{
    int32_t live = T;
    char name[64];
    float *x = calloc((size_t)T * (size_t)F * 3, 4), *w = calloc((size_t)C, 4);
    if (x == NULL || w == NULL)
        exit(1);
    size_t n = (size_t)T * (size_t)C;
    struct fdk_rmsnorm_args r = { .y = x,
        .x = x + n,
        .add = x,
        .w = w,
        .n = &live,
        .T = T,
        .C = C,
        .eps = 1e-5f };
    snprintf(name, sizeof(name), "rmsnorm+add %dx%d", T, C);
    report(name, measure(launch_norm, &r), 16.0 * (double)n, 5.0 * (double)n);
    struct fdk_silu_mul_args s = { .y = x,
        .gu = x + (size_t)T * (size_t)F,
        .n = &live,
        .T = T,
        .F = F };
    snprintf(name, sizeof(name), "silu_mul %dx%d", T, F);
    report(name, measure(launch_silu, &s), 12.0 * T * F, 20.0 * T * F);
    s.gate = FDK_GATE_GELU_TANH;
    snprintf(name, sizeof(name), "gelu_mul %dx%d", T, F);
    report(name, measure(launch_silu, &s), 12.0 * T * F, 28.0 * T * F);
    struct fdk_softcap_args c = { .y = x, .n = &live, .T = T, .N = F, .scale = 1, .cap = 30 };
    snprintf(name, sizeof(name), "softcap %dx%d", T, F);
    report(name, measure(launch_softcap, &c), 8.0 * T * F, 20.0 * T * F);
    free(x);
    free(w);
}

static void
launch_attention(void *arg)
{
    ASSERT_OK(ops->attention(arg, st));
}

/* One row of T new tokens over len cached ones, or S rows of one token. */
static void
bench_attention(int S, int T, int len, int H, int K, int D, enum fdk_dtype t)
{
    enum { B = 64 };
    int blocks = (len + B - 1) / B, n = S * T;
    struct fdk_kv kv = { .block_size = B, .n_kv_head = K, .head_dim = D, .dtype = t };
    kv.v_bytes = (uint64_t)(K * B * D) * fdk_dtype_bytes(t);
    uint64_t scales = t == FDK_I8 ? (uint64_t)(K * B) * 4 : 0;
    kv.k_scale_off = 2 * kv.v_bytes;
    kv.v_scale_off = kv.k_scale_off + scales;
    kv.layer_bytes = kv.block_bytes = kv.v_scale_off + scales;
    int32_t *ints = calloc((size_t)(3 * n + 2 * S + 1 + S * blocks), 4);
    float *qkv = calloc((size_t)n * (size_t)((H + 2 * K) * D), 4);
    float *y = calloc((size_t)n * (size_t)(H * D), 4);
    kv.base = calloc((size_t)(S * blocks), kv.block_bytes);
    if (ints == NULL || qkv == NULL || y == NULL || kv.base == NULL)
        exit(1);
    int32_t *pos = ints, *q_start = ints + n, *kv_len = q_start + S + 1;
    int32_t *table = kv_len + S, *state = table + S * blocks;
    double pairs = 0;
    for (int s = 0; s < S; s++) {
        for (int i = 0; i < T; i++) {
            pos[s * T + i] = len - T + i;
            pairs += len - T + i + 1;
        }
        q_start[s + 1] = (s + 1) * T;
        kv_len[s] = len;
        state[s] = s;
        for (int i = 0; i < blocks; i++)
            table[s * blocks + i] = s * blocks + i;
    }
    int32_t n_tok = n, n_row = S;
    const struct fdk_batch b = { .n_tok = &n_tok,
        .n_row = &n_row,
        .pos = pos,
        .q_start = q_start,
        .kv_len = kv_len,
        .state = state,
        .block_table = table,
        .table_stride = blocks,
        .max_row = S };
    struct fdk_attention_args a = { .y = y,
        .qkv = qkv,
        .b = &b,
        .kv = kv,
        .T = n,
        .H = H,
        .K = K,
        .D = D,
        .scale = 0.1f };
    struct fdk_att_plan_args p = { .b = &b };
    int32_t n_work;
    uint32_t n_done;
    ops->att_shape(&a, &p.a, &p.bt);
    p.n_max = a.n_work_max = fdk_tiles_max(S, n, p.a, p.bt);
    a.work = p.work = calloc((size_t)p.n_max, sizeof(*p.work));
    a.n_work = p.n_work = &n_work;
    a.n_done = p.n_done = &n_done;
    if (p.work == NULL)
        exit(1);
    ASSERT_OK(ops->att_plan(&p, st));
    char name[64];
    snprintf(name, sizeof(name), "attention %dx%d over %d %dh/%d %s", S, T, len, H, K,
        fdk_dtype_name(t));
    report(name, measure(launch_attention, &a),
        (double)S * blocks * (double)kv.block_bytes, 4.0 * pairs * H * D);
    free(p.work);
    free(ints);
    free(qkv);
    free(y);
    free(kv.base);
}

static void
launch_sample(void *arg)
{
    ASSERT_OK(ops->sample(arg, st));
}

static void
bench_sample(const char *what, int R, int V, struct fdk_row params, int n_top)
{
    static struct fdk_row rows[64];
    static struct fdk_out out[64];
    static struct fdk_result res[64];
    static int32_t idx[64];
    int32_t n_out = R;
    float *x = malloc((size_t)R * (size_t)V * 4);
    if (x == NULL)
        exit(1);
    for (size_t i = 0; i < (size_t)R * (size_t)V; i++)
        x[i] = (float)(i * 2654435761u % 100003) * 1e-4f;
    for (int i = 0; i < R; i++) {
        rows[i] = params;
        rows[i].max_len = 1 << 30;
        out[i] = (struct fdk_out){ .row = i, .n_top = n_top };
        idx[i] = i;
    }
    const struct fdk_batch b = { .n_out = &n_out, .out = out, .state = idx };
    struct fdk_sample_args
        a = { .results = res, .state = rows, .logits = x, .b = &b, .R = R, .V = V };
    a.scratch_bytes = ops->sample_scratch(&a);
    a.scratch = malloc(a.scratch_bytes);
    char name[64];
    snprintf(name, sizeof(name), "sample %dx%d %s", R, V, what);
    report(name, measure(launch_sample, &a), 4.0 * R * V, 0);
    free(a.scratch);
    free(x);
}

/* ---- launches ------------------------------------------------------------ */

enum { STEP = 60 };

static void
bench_launch(void)
{
    struct fdk_graph *g;
    char a[64] = { 0 };
    double launch = 1, eager = 1, replay = 1, t;
    int rounds = 3000;
    for (int r = 0; r < rounds; r++) {
        uint64_t t0 = cpu_now_ns();
        for (int i = 0; i < STEP; i++)
            ASSERT_OK(ops->fill(st, a, i, 1));
        t = seconds_since(t0);
        launch = t < launch ? t : launch;
        ASSERT_OK(ops->stream_sync(st));
        t = seconds_since(t0);
        eager = t < eager ? t : eager;
    }
    ASSERT_OK(ops->graph_begin(st));
    for (int i = 0; i < STEP; i++)
        ASSERT_OK(ops->fill(st, a, i, 1));
    ASSERT_OK(ops->graph_end(st, &g));
    for (int r = 0; r < rounds; r++) {
        uint64_t t0 = cpu_now_ns();
        ASSERT_OK(ops->graph_launch(g, st));
        ASSERT_OK(ops->stream_sync(st));
        t = seconds_since(t0);
        replay = t < replay ? t : replay;
    }
    ops->graph_free(g);
    printf("\nbest of 3000: launch of an empty operation        %7.0f ns\n",
        launch / STEP * 1e9);
    printf("step of %d empty operations, eager   %7.1f us; as a graph %.1f us\n", STEP,
        eager * 1e6, replay * 1e6);
}

int
main(int argc, char **argv)
{
    const struct fdk_open_args args = { .n_device = 1,
        .n_thread = argc > 1 ? atoi(argv[1]) : 0,
        .max_token = 4096,
        .spin_us = 100 };
    struct fdk_device_info info;
    char err[256];
    if (ops->open(&args, &ctx, err, sizeof(err)) != 0) {
        fprintf(stderr, "b_kernels: %s\n", err);
        return 1;
    }
    ASSERT_OK(ops->device_info(ctx, 0, &info));
    n_thread = info.n_proc < 256 ? info.n_proc : 256;
    isa = cpu_isa_pick();
    ASSERT_OK(ops->stream_new(ctx, 0, &st));
    measure_peak();
    /* The demo model's shapes; launches go through its 10 MB of weights. */
    bench_gemm(1, 512, 256, FDK_BF16, 10 << 20);
    bench_gemm(1, 256, 256, FDK_BF16, 10 << 20);
    bench_gemm(1, 1376, 256, FDK_BF16, 10 << 20);
    bench_gemm(1, 256, 688, FDK_BF16, 10 << 20);
    bench_gemm(1, 4096, 256, FDK_BF16, 10 << 20);
    /* A 1B model's, from memory. */
    bench_gemm(1, 2048, 2048, FDK_BF16, 256 << 20);
    bench_gemm(1, 8192, 2048, FDK_BF16, 256 << 20);
    bench_gemm(1, 8192, 2048, FDK_F16, 256 << 20);
    bench_gemm(1, 8192, 2048, FDK_F32, 256 << 20);
    for (int T = 2; T <= 4; T++)
        bench_gemm(T, 8192, 2048, FDK_BF16, 256 << 20);
    bench_gemm(8, 8192, 2048, FDK_BF16, 256 << 20);
    bench_gemm(64, 2048, 2048, FDK_BF16, 1);
    bench_gemm(256, 2048, 2048, FDK_F32, 1);
    bench_gemm(128, 256, 256, FDK_BF16, 1);
    bench_quant(1, 1376, 256, 10 << 20);
    bench_quant(1, 8192, 2048, 256 << 20);
    bench_quant(4, 8192, 2048, 256 << 20);
    bench_quant(64, 2048, 2048, 1);
    bench_rows(1, 256, 688);
    bench_rows(64, 2048, 8192);
    bench_attention(1, 1, 512, 4, 4, 64, FDK_BF16);
    bench_attention(1, 1, 4096, 32, 8, 64, FDK_BF16);
    bench_attention(16, 1, 1024, 32, 8, 64, FDK_BF16);
    bench_attention(1, 256, 1024, 32, 8, 64, FDK_BF16);
    bench_attention(16, 1, 1024, 32, 8, 64, FDK_I8);
    bench_attention(16, 1, 1024, 32, 8, 64, FDK_F8E4M3);
    bench_sample("greedy", 1, 4096, (struct fdk_row){ .top_p = 1 }, -1);
    bench_sample("greedy, logprobs", 1, 4096, (struct fdk_row){ .top_p = 1 }, 5);
    bench_sample("T=1", 1, 4096, (struct fdk_row){ .temperature = 1, .top_p = 1 }, 0);
    bench_sample("T=1", 1, 131072, (struct fdk_row){ .temperature = 1, .top_p = 1 }, 0);
    bench_sample("top_k 50", 16, 131072,
        (struct fdk_row){ .temperature = 1, .top_p = 1, .top_k = 50 }, 0);
    bench_sample("top_p 0.9", 1, 131072,
        (struct fdk_row){ .temperature = 1, .top_p = 0.9f }, 0);
    bench_launch();
    ops->stream_free(st);
    ops->close(ctx);
    return 0;
}
