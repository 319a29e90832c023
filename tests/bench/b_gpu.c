/*
 * Matrix products of the CUDA backend by few rows of x (bf16; y bf16, of a
 * vocabulary's size fp32), as a recorded graph replays them: up to 64 launches
 * in a row over weights that take turns, so that none is in a cache, beside the
 * device's read ceiling measured in the same run.
 * Usage: b_gpu [-d] (-d: opened deterministic)
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "kernels/fdk.h"

#define POOL    ((size_t)3 << 30)
#define N_RUN   5
#define BYTES   ((size_t)3 << 30)  /* read by one graph, about */

#define OK(e)                                                                   \
    do {                                                                        \
        int rc_ = (e);                                                          \
        if (rc_ != 0) {                                                         \
            (void)fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #e, rc_); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

static const struct fdk_ops *const ops = &fdk_ops_cuda;
static struct fdk_ctx *ctx;
static fdk_stream_t st;
static fdk_event_t ev[2];
static double read_rate;

static void *
device(size_t bytes)
{
    void *p;

    OK(ops->mem_alloc(ctx, 0, bytes, &p));
    return p;
}

/* Random bits; of 16-bit weights finite and small ones. */
static void
fill_weights(unsigned char *dst, size_t bytes, enum fdk_dtype t)
{
    const size_t part = (size_t)64 << 20;
    uint32_t *h = mem_array(part / 4, 4);
    uint64_t s = 88172645463325252u;

    if (h == NULL)
        exit(1);
    for (size_t i = 0; i < part / 4; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        h[i] = t == FDK_BF16 ? ((uint32_t)s & 0x807f807fu) | 0x3c003c00u : (uint32_t)s;
    }
    for (size_t at = 0; at < bytes; at += part) {
        OK(ops->copy(st, dst + at, h, bytes - at < part ? bytes - at : part));
        OK(ops->stream_sync(st));
    }
    free(h);
}

/* n numbers from -value to value, fp32 or bf16. */
static void
upload(void *dst, float value, size_t n, enum fdk_dtype t)
{
    size_t unit = fdk_dtype_bytes(t);
    char *h = mem_array(n, unit);

    if (h == NULL)
        exit(1);
    for (size_t i = 0; i < n; i++) {
        float x = value * (float)((int)(i * 2654435761u % 2001) - 1000) / 1000;
        uint32_t u;

        memcpy(&u, &x, 4);
        u >>= 32 - 8 * unit;
        memcpy(h + i * unit, &u, unit);
    }
    OK(ops->copy(st, dst, h, n * unit));
    OK(ops->stream_sync(st));
    free(h);
}

/* Seconds of one launch, the best of several replays. */
static double
timed(struct fdk_gemm_args *a, unsigned char *pool, size_t w_bytes)
{
    size_t turns = POOL / w_bytes, n = BYTES / w_bytes;
    struct fdk_graph *g;
    double best = INFINITY;

    n = n < 16 ? 16 : n > 64 ? 64 : n;
    OK(ops->gemm(a, st));
    OK(ops->graph_begin(st));
    for (size_t i = 0; i < n; i++) {
        a->w = pool + i % turns * w_bytes;
        OK(ops->gemm(a, st));
    }
    OK(ops->graph_end(st, &g));
    for (int i = 0; i <= N_RUN; i++) {
        double s;

        OK(ops->event_record(ev[0], st));
        OK(ops->graph_launch(g, st));
        OK(ops->event_record(ev[1], st));
        OK(ops->event_sync(ev[1]));
        s = (double)(ops->event_ns(ev[1]) - ops->event_ns(ev[0])) * 1e-9 / (double)n;
        if (i > 0 && s < best)
            best = s;
    }
    ops->graph_free(g);
    return best;
}

static void
one_type(enum fdk_dtype t, int32_t group, unsigned char *pool, void *x, void *y,
    float *scale, int32_t *live)
{
    static const int32_t shape[][2] = { { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 },
        { 4096, 14336 }, { 128256, 4096 }, { 3072, 2048 }, { 2048, 2048 },
        { 16384, 2048 }, { 2048, 8192 } };
    static const int32_t rows[] = { 1, 8, 16, 32, 64, 128 };

    (void)printf("\n%s weights%s: us (share of the read ceiling)\n%-16s", fdk_dtype_name(t),
        group > 0 ? ", a scale per 128" : "", "N x K");
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        (void)printf("  %6d rows   ", rows[k]);
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        struct fdk_gemm_args a = { .y = y, .x = x, .n = live, .N = shape[i][0],
            .K = shape[i][1], .ldy = shape[i][0], .w_dtype = t, .w = pool, .act = FDK_BF16,
            .y_dtype = shape[i][0] > 100000 ? FDK_F32 : FDK_BF16,
            .w_scale = group > 0 ? scale : NULL, .w_group = group };
        size_t w_bytes = (size_t)a.N * fdk_row_bytes(t, (size_t)a.K);
        size_t bytes = w_bytes + (group > 0 ? (size_t)a.N * (size_t)(a.K / group) * 4 : 0);

        (void)printf("\n%6d x %-7d", a.N, a.K);
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            double s;

            a.T = rows[k];
            OK(ops->copy(st, live, &rows[k], 4));
            a.scratch_bytes = ops->gemm_scratch(&a);
            a.scratch = a.scratch_bytes > 0 ? device(a.scratch_bytes) : NULL;
            s = timed(&a, pool, w_bytes);
            (void)printf("  %7.2f (%3.0f%%)", s * 1e6, 100 * (double)bytes / s / read_rate);
            if (a.scratch != NULL)
                ops->mem_free(ctx, 0, a.scratch);
        }
        (void)fflush(stdout);
    }
    (void)printf("\n");
}

int
main(int argc, char **argv)
{
    const struct fdk_open_args args = { .n_device = 1,
        .deterministic = argc > 1 && strcmp(argv[1], "-d") == 0 };
    struct fdk_device_info info;
    unsigned char *pool;
    float *scale;
    void *x, *y;
    int32_t *live;
    char why[256] = "";

    if (ops->available(why, sizeof(why)) <= 0) {
        (void)printf("skipped: %s\n", why);
        return 77;
    }
    if (ops->open(&args, &ctx, why, sizeof(why)) != 0) {
        (void)fprintf(stderr, "b_gpu: %s\n", why);
        return 1;
    }
    OK(ops->device_info(ctx, 0, &info));
    OK(ops->stream_new(ctx, 0, &st));
    OK(ops->event_new(ctx, 0, &ev[0]));
    OK(ops->event_new(ctx, 0, &ev[1]));
    OK(ops->probe(ctx, 0, FDK_PROBE_READ, FDK_F32, &read_rate));
    (void)printf("%s, %d multiprocessors%s; read ceiling %.0f GB/s\n", info.name, info.n_proc,
        args.deterministic ? ", deterministic" : "", read_rate / 1e9);
    pool = device(POOL);
    x = device((size_t)128 * 14336 * 2);
    y = device((size_t)128 * 128256 * 4);
    scale = device((size_t)128256 * 112 * 4);
    live = device(4);
    upload(x, 1, (size_t)128 * 14336, FDK_BF16);
    upload(scale, 0.01f, (size_t)128256 * 112, FDK_F32);
    fill_weights(pool, POOL, FDK_BF16);
    one_type(FDK_BF16, 0, pool, x, y, scale, live);
    fill_weights(pool, POOL, FDK_I8);
    one_type(FDK_I8, 128, pool, x, y, scale, live);
    one_type(FDK_I4, 128, pool, x, y, scale, live);
    return 0;
}
