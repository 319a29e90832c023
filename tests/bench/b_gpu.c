/*
 * Matrix products of the CUDA backend by few rows of x (bf16; y bf16, of a
 * vocabulary's size fp32), as a recorded graph replays them: up to 64 launches
 * in a row over weights that take turns, so that none is in a cache, beside the
 * device's read ceiling measured in the same run. The same by many rows, in
 * TFLOP/s.
 * Usage: b_gpu [-d] (-d: opened deterministic)
 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/bench/gpu_bench.h"

#define POOL    ((size_t)3 << 30)
#define BYTES   ((size_t)3 << 30)  /* read by one graph, about */
#define MANY    8192

/* Seconds of one launch of `most` at most, the best of several replays. */
static double
timed(struct fdk_gemm_args *a, unsigned char *pool, size_t most)
{
    size_t w_bytes = (size_t)a->N * (size_t)a->K * 2, turns = POOL / w_bytes;
    size_t n = BYTES / w_bytes;

    n = n < 16 ? 16 : n;
    n = n > most ? most : n;
    a->scratch_bytes = ops->gemm_scratch(a);
    a->scratch = a->scratch_bytes > 0 ? gb_device(a->scratch_bytes) : NULL;
    OK(ops->gemm(a, gb.st));
    OK(ops->graph_begin(gb.st));
    for (size_t i = 0; i < n; i++) {
        a->w = pool + i % turns * w_bytes;
        OK(ops->gemm(a, gb.st));
    }
    double s = gb_replay(n);
    if (a->scratch != NULL)
        ops->mem_free(gb.ctx, 0, a->scratch);
    return s;
}

static void
table(unsigned char *pool, void *x, void *y, int32_t *live)
{
    static const int32_t shape[][2] = { { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 },
        { 4096, 14336 }, { 128256, 4096 }, { 3072, 2048 }, { 2048, 2048 },
        { 16384, 2048 }, { 2048, 8192 } };
    static const int32_t rows[] = { 1, 8, 16, 32, 64, 128 };

    (void)printf("\nbf16 weights: us (share of the read ceiling)\n%-16s", "N x K");
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        (void)printf("  %6d rows   ", rows[k]);
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        struct fdk_gemm_args a = { .y = y, .x = x, .n = live, .N = shape[i][0],
            .K = shape[i][1], .ldy = shape[i][0], .w_dtype = FDK_BF16, .w = pool,
            .act = FDK_BF16, .y_dtype = shape[i][0] > 100000 ? FDK_F32 : FDK_BF16 };

        (void)printf("\n%6d x %-7d", a.N, a.K);
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            double s;

            a.T = rows[k];
            gb_upload(live, &rows[k], 4);
            s = timed(&a, pool, 64);
            (void)printf("  %7.2f (%3.0f%%)", s * 1e6,
                100 * (double)a.N * (double)a.K * 2 / s / gb.read_rate);
        }
        (void)fflush(stdout);
    }
    (void)printf("\n");
}

static void
table_of_many(unsigned char *pool, void *x, void *y, int32_t *live)
{
    static const int32_t shape[][2] = { { 6144, 4096 }, { 4096, 4096 }, { 28672, 4096 },
        { 4096, 14336 } };
    static const int32_t rows[] = { 256, 512, 2048, MANY };

    (void)printf("\nbf16 weights: us (TFLOP/s)\n%-16s", "N x K");
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
        (void)printf("  %6d rows   ", rows[k]);
    for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
        struct fdk_gemm_args a = { .y = y, .x = x, .n = live, .N = shape[i][0],
            .K = shape[i][1], .ldy = shape[i][0], .w_dtype = FDK_BF16, .w = pool,
            .act = FDK_BF16, .y_dtype = FDK_BF16 };

        (void)printf("\n%6d x %-7d", a.N, a.K);
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            double s;

            a.T = rows[k];
            gb_upload(live, &rows[k], 4);
            s = timed(&a, pool, a.T > 1000 ? 4 : 16);
            (void)printf("  %7.1f (%4.0f)", s * 1e6, 2e-12 * a.T * a.N * a.K / s);
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
    unsigned char *pool;
    void *x, *y;
    int32_t *live;
    int rc;

    rc = gb_open("b_gpu", &args);
    if (rc != 0)
        return rc;
    (void)printf("%s, %d multiprocessors%s; read ceiling %.0f GB/s\n", gb.info.name, gb.info.n_proc,
        args.deterministic ? ", deterministic" : "", gb.read_rate / 1e9);
    pool = gb_device(POOL);
    x = gb_device((size_t)MANY * 14336 * 2);
    y = gb_device((size_t)MANY * 28672 * 2);     /* more than 128 rows of logits */
    live = gb_device(4);
    gb_fill(x, (size_t)MANY * 14336 * 2, 0x807f807fu, 0x3f003f00u);
    gb_fill(pool, POOL, 0x807f807fu, 0x3c003c00u); /* finite and small */
    table(pool, x, y, live);
    table_of_many(pool, x, y, live);
    return 0;
}
