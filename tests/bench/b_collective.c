/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce over operands of 8 KB to 128 MB: in packets with flags, with whole operands
 * (one meeting) and in shares (two meetings); with residual and norm, with two ranks also
 * in two launches. For comparison: the rate at which all ranks copy to their neighbour at
 * once, and NCCL if libnccl.so.2 is found (FDD_NCCL: another file). A time is that of one
 * launch in a recorded chain; NCCL and two launches are not recorded, but their chain is
 * queued completely before the devices begin. The median of several counts, by the clock
 * of rank 0's stream. The methods take turns, TURNS times.
 *
 * Bus bandwidth: bytes * 2 (n - 1) / n / time, the least that each rank must send.
 *
 * Usage: b_collective [cpu|cuda [RANKS [MOST_BYTES [JSON_FILE]]]]; the default is cuda if
 * there are two GPUs. The file gets every time: {"sizes": [{"bytes": 8192, "WAY_us":
 * [..]}], "peak": GB/s}.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/collective.h"
#include "tests/bench/nccl.h"

#define LEAST   (8u << 10)
#define MOST    (128u << 20)
#define TURNS   3
#define REPLAYS 3
#define TIMES   (TURNS * REPLAYS)
#define HOLD_NS 4000000
#define ROW     4096 /* elements of a row with a residual */

enum way { PACKETS, WHOLE, SHARES, CHOSEN, FUSED, AHEAD, NCCL, COPY, N_WAY };

struct bench {
    const struct fdk_ops *ops;
    struct fdk_ctx *ctx;
    int n;
    enum fdk_dtype act;
    struct fdk_group *g[AHEAD + 1]; /* by enum way */
    fdk_stream_t st[FDK_MAX_RANKS];
    char *x[FDK_MAX_RANKS], *y[FDK_MAX_RANKS];
    float *residual[FDK_MAX_RANKS], *w[FDK_MAX_RANKS];
    fdk_event_t from, to;
    struct nccl nccl;
    FILE *json; /* or NULL */
};

static void
must(int rc, const char *what)
{
    if (rc == 0)
        return;
    printf("b_collective: %s: error %d\n", what, rc);
    exit(1);
}

/* ---- one size --------------------------------------------------------------------- */

static int
reduce(struct bench *b, enum way way, int q, size_t bytes)
{
    int32_t n = (int32_t)(bytes / fdk_dtype_bytes(b->act)),
            fused = way == FUSED || way == AHEAD;
    const struct fdk_all_reduce_args a = {
        .group = b->g[way],
        .y = b->y[q],
        .x = b->x[q],
        .residual = fused ? b->residual[q] : NULL,
        .w = fused ? b->w[q] : NULL,
        .T = fused ? n / ROW : 1,
        .C = fused ? ROW : n,
        .eps = 1e-5f,
        .act = b->act,
    };
    if (way != AHEAD)
        return b->ops->all_reduce(&a, b->st[q]);
    int rc = b->ops->reduce_send(&a, b->st[q]);
    return rc != 0 ? rc : b->ops->reduce_take(&a, b->st[q]);
}

/* Launches one all-reduce on rank q; with NCCL on all ranks. */
static void
launch_rank(struct bench *b, enum way way, int q, size_t bytes)
{
    int next = (q + 1) % b->n;
    must(way == COPY ? b->ops->copy_peer(b->st[q], next, b->y[next], q, b->x[q], bytes)
                     : reduce(b, way, q, bytes),
        "launch");
}

static void
launch(struct bench *b, enum way way, size_t bytes)
{
    if (way == NCCL) {
        must(nccl_reduce(&b->nccl, (void *const *)b->x, (void *const *)b->y,
                 bytes / fdk_dtype_bytes(b->act), b->act, b->st),
            "ncclAllReduce");
        return;
    }
    for (int q = 0; q < b->n; q++)
        launch_rank(b, way, q, bytes);
}

static int
by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void
sync_all(struct bench *b)
{
    for (int q = 0; q < b->n; q++)
        if (b->ops->stream_sync(b->st[q]) != 0) {
            printf("rank %d: %s\n", q, b->ops->error_text(b->ctx, q));
            exit(1);
        }
}

/* Bytes per microsecond of each rank, without a graph: copies between
 * devices cannot be recorded. */
static double
copy_rate(struct bench *b, size_t bytes)
{
    double best = 0;
    for (int i = 0; i < REPLAYS; i++) {
        must(b->ops->event_record(b->from, b->st[0]), "event_record");
        for (int k = 0; k < 2; k++)
            launch(b, COPY, bytes);
        must(b->ops->event_record(b->to, b->st[0]), "event_record");
        sync_all(b);
        double ns = (double)(b->ops->event_ns(b->to) - b->ops->event_ns(b->from));
        double rate = 2e3 * (double)bytes / ns;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Launches a chain on every rank: recorded, or one by one. */
static void
run_chain(struct bench *b, enum way way, size_t bytes, int chain, struct fdk_graph **g)
{
    for (int q = 0; q < b->n && g != NULL; q++)
        must(b->ops->graph_launch(g[q], b->st[q]), "graph_launch");
    for (int i = 0; i < chain && g == NULL; i++)
        launch(b, way, bytes);
}

/* Returns whether this method can be recorded. NCCL's calls cannot: each is for all
 * ranks, and a thread records one stream at a time. The two launches of an
 * all-reduce cannot either. */
static int
is_recorded(enum way way)
{
    return way != NCCL && way != AHEAD;
}

/* Fills in us: the microseconds of each of REPLAYS replays. */
static void
measure(struct bench *b, enum way way, size_t bytes, double us[REPLAYS])
{
    int chain = bytes < 1u << 20 ? 100 : 4;
    struct fdk_graph *g[FDK_MAX_RANKS] = { NULL };
    launch(b, way, bytes); /* the first launch loads code, which cannot be recorded */
    sync_all(b);
    for (int q = 0; q < b->n && is_recorded(way); q++) {
        must(b->ops->graph_begin(b->st[q]), "graph_begin");
        for (int i = 0; i < chain; i++)
            launch_rank(b, way, q, bytes);
        must(b->ops->graph_end(b->st[q], &g[q]), "graph_end");
    }
    for (int i = -1; i < REPLAYS; i++) {
        /* everything is queued before the first begins, so that launching is not timed */
        for (int q = 0; q < b->n && !b->ops->on_host; q++)
            must(b->ops->stream_delay(b->st[q], HOLD_NS), "stream_delay");
        launch(b, CHOSEN, LEAST); /* all others begin after this one */
        must(b->ops->event_record(b->from, b->st[0]), "event_record");
        run_chain(b, way, bytes, chain, is_recorded(way) ? g : NULL);
        must(b->ops->event_record(b->to, b->st[0]), "event_record");
        sync_all(b);
        if (i >= 0)
            us[i] = (double)(b->ops->event_ns(b->to) - b->ops->event_ns(b->from)) * 1e-3 /
                chain;
    }
    for (int q = 0; q < b->n && is_recorded(way); q++)
        b->ops->graph_free(g[q]);
}

static const char *const way_names[N_WAY] = { "packets", "whole", "shares", "default",
    "fused", "ahead", "nccl", "copy" };

static void
put_json(const struct bench *b, size_t bytes, double us[N_WAY][TIMES], const int *there)
{
    if (b->json == NULL)
        return;
    (void)fprintf(b->json, "%s{\"bytes\": %zu", bytes > LEAST ? ",\n" : "", bytes);
    for (enum way w = 0; w < N_WAY; w++) {
        if (!there[w])
            continue;
        (void)fprintf(b->json, ", \"%s_us\": [", way_names[w]);
        for (int i = 0; i < TIMES; i++)
            (void)fprintf(b->json, "%s%.3f", i > 0 ? ", " : "", us[w][i]);
        (void)fprintf(b->json, "]");
    }
    (void)fprintf(b->json, "}");
}

/* The median; us is sorted. */
static double
median(double us[TIMES])
{
    qsort(us, TIMES, sizeof(us[0]), by_value);
    return us[TIMES / 2];
}

static void
line(struct bench *b, size_t bytes, double peak)
{
    double all[N_WAY][TIMES],
        us[N_WAY] = { 0 }, bus = 2.0 * (b->n - 1) / b->n * (double)bytes * 1e-3;
    int there[N_WAY];
    for (enum way w = 0; w < N_WAY; w++)
        there[w] = w == NCCL ? b->nccl.all_reduce != NULL
            : w == FUSED     ? bytes / fdk_dtype_bytes(b->act) % ROW == 0
            : w == AHEAD     ? b->n == 2 && bytes / fdk_dtype_bytes(b->act) % ROW == 0
                             : w != COPY;
    for (int r = 0; r < TURNS; r++)
        for (enum way w = 0; w < N_WAY; w++)
            if (there[w])
                measure(b, w, bytes, all[w] + (size_t)r * REPLAYS);
    put_json(b, bytes, all, there);
    for (enum way w = 0; w < N_WAY; w++)
        us[w] = there[w] ? median(all[w]) : 0;
    enum way best = PACKETS;
    for (enum way w = WHOLE; w <= SHARES; w++)
        best = us[w] < us[best] ? w : best;
    printf("%10zu %9.1f %9.1f %9.1f %8s %9.1f", bytes, us[PACKETS], us[WHOLE], us[SHARES],
        way_names[best], us[CHOSEN]);
    us[FUSED] > 0 ? (void)printf(" %9.1f", us[FUSED]) : (void)printf(" %9s", "-");
    us[AHEAD] > 0 ? (void)printf(" %9.1f", us[AHEAD]) : (void)printf(" %9s", "-");
    us[NCCL] > 0 ? (void)printf(" %9.1f", us[NCCL]) : (void)printf(" %9s", "-");
    printf(" %8.1f %8.1f %5.0f%%\n", bus / us[best], peak, 100 * bus / us[best] / peak);
    fflush(stdout);
}

/* ---- all of them -------------------------------------------------------------------- */

static void
open_all(struct bench *b, size_t most)
{
    const struct fdk_open_args args = { .n_device = b->n, .n_thread = 1 };
    static const uint64_t limit[] = { UINT64_MAX, UINT64_MAX, 1, 0, 0, 0 };
    static const uint64_t packets[] = { UINT64_MAX, 1, 1, 0, 0, 0 };
    char err[256] = "";
    if (b->ops->open(&args, &b->ctx, err, sizeof(err)) != 0) {
        printf("b_collective: %s\n", err);
        exit(1);
    }
    for (int q = 0; q < b->n; q++) {
        size_t wide = most / fdk_dtype_bytes(b->act) * 4;
        must(b->ops->stream_new(b->ctx, q, &b->st[q]), "stream_new");
        must(b->ops->mem_alloc(b->ctx, q, most, (void **)&b->x[q]), "mem_alloc");
        must(b->ops->mem_alloc(b->ctx, q, most, (void **)&b->y[q]), "mem_alloc");
        must(b->ops->mem_alloc(b->ctx, q, wide, (void **)&b->residual[q]), "mem_alloc");
        must(b->ops->mem_alloc(b->ctx, q, ROW * 4, (void **)&b->w[q]), "mem_alloc");
        must(b->ops->fill(b->st[q], b->x[q], 0, most), "fill");
        must(b->ops->fill(b->st[q], b->y[q], 0, most), "fill");
        must(b->ops->fill(b->st[q], b->residual[q], 0, wide), "fill");
        must(b->ops->fill(b->st[q], b->w[q], 0, ROW * 4), "fill");
    }
    sync_all(b);
    for (int i = 0; i <= AHEAD; i++) {
        const struct fdk_group_args a = { .n_rank = b->n,
            .one_shot_bytes = limit[i],
            .packet_bytes = packets[i],
            .ahead_bytes = i == AHEAD ? most : 0 };
        if (b->ops->group_new(b->ctx, &a, &b->g[i], err, sizeof(err)) != 0) {
            printf("b_collective: %s\n", err);
            exit(1);
        }
    }
    must(b->ops->event_new(b->ctx, 0, &b->from), "event_new");
    must(b->ops->event_new(b->ctx, 0, &b->to), "event_new");
}

static void
close_all(struct bench *b)
{
    nccl_close(&b->nccl);
    for (int q = 0; q < b->n; q++) {
        b->ops->mem_free(b->ctx, q, b->x[q]);
        b->ops->mem_free(b->ctx, q, b->y[q]);
        b->ops->mem_free(b->ctx, q, b->residual[q]);
        b->ops->mem_free(b->ctx, q, b->w[q]);
        b->ops->stream_free(b->st[q]);
    }
    for (int i = 0; i <= AHEAD; i++)
        b->ops->group_free(b->g[i]);
    b->ops->event_free(b->from);
    b->ops->event_free(b->to);
    b->ops->close(b->ctx);
}

int
main(int argc, char **argv)
{
    char why[256] = "";
    int gpus = fdk_ops_cuda.available(why, sizeof(why));
    const char *name = argc > 1 ? argv[1] : gpus >= 2 ? "cuda" : "cpu";
    int cuda = strcmp(name, "cuda") == 0;
    struct bench b = { .ops = cuda ? &fdk_ops_cuda : &fdk_ops_cpu,
        .n = argc > 2              ? atoi(argv[2])
            : !cuda                ? 2
            : gpus < FDK_MAX_RANKS ? gpus
                                   : FDK_MAX_RANKS,
        .act = cuda ? FDK_BF16 : FDK_F32 };
    size_t most = argc > 3 ? strtoull(argv[3], NULL, 0) : MOST;
    if ((cuda && gpus < 2) || b.n < 2 || b.n > FDK_MAX_RANKS || most < LEAST) {
        printf("b_collective: 2 to %d devices, at least %u bytes; cuda: %d devices %s\n",
            FDK_MAX_RANKS, LEAST, gpus < 0 ? 0 : gpus, why);
        return 77;
    }
    if (argc > 4 && (b.json = fopen(argv[4], "w")) == NULL) {
        printf("b_collective: %s cannot be written\n", argv[4]);
        return 1;
    }
    open_all(&b, most);
    if (cuda && nccl_open(&b.nccl, b.n, why, sizeof(why)) != 0)
        printf("nccl: %s\n", why);
    else if (cuda)
        printf("nccl: %d.%d.%d\n", b.nccl.version / 10000, b.nccl.version / 100 % 100,
            b.nccl.version % 100);
    double peak = copy_rate(&b, most) * 1e-3;
    printf("%s, %d ranks, %s; us, GB/s\n", name, b.n, fdk_dtype_name(b.act));
    printf("%10s %9s %9s %9s %8s %9s %9s %9s %9s %8s %8s %6s\n", "bytes", "packets",
        "whole", "shares", "fastest", "default", "fused", "ahead", "nccl", "bus", "peak",
        "");
    if (b.json != NULL)
        (void)fprintf(b.json, "{\"sizes\": [");
    for (size_t bytes = LEAST; bytes <= most; bytes *= 2)
        line(&b, bytes, peak);
    if (b.json != NULL &&
        (fprintf(b.json, "],\n\"peak\": %.3f, \"nccl\": %d, \"act\": \"%s\"}\n", peak,
             b.nccl.version, fdk_dtype_name(b.act)) < 0 ||
            fclose(b.json) != 0)) {
        printf("b_collective: %s cannot be written\n", argv[4]);
        return 1;
    }
    close_all(&b);
    return 0;
}
