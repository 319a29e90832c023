/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * wts_load() of a model directory: GB/s read, from the page cache (the first run of each
 * line fills it and does not count). Usage: b_load [-b cpu|cuda] [-d] [-p] [-q
 * none|wint8|wint4|fp8] [-g GROUP]
 *     [-t THREADS[,THREADS...]] [-B MIB[,MIB...]] [-n RUNS] DIR
 *   -d  dummy weights   -p  pread instead of io_uring
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/worker/weights_priv.h"

#define MAX_LIST 8

static const struct fdk_ops *k;
static struct fdk_ctx *ctx;
static struct mdl_program *prog;
static struct qnt q;
static int dummy, no_uring, n_run = 3;

static void
die(const char *what)
{
    (void)fprintf(stderr, "b_load: %s\n", what);
    exit(1);
}

static int
parse_list(const char *s, int64_t *ret)
{
    char *end;
    int n = 0;

    do
        ret[n++] = strtoll(s, &end, 10);
    while (*end == ',' && n < MAX_LIST && (s = end + 1) != NULL);
    if (*end != '\0' || ret[0] < 0)
        die("not a list of numbers");
    return n;
}

static struct wts_plan *
plan(const char *dir)
{
    struct wts_plan *wp = NULL;
    char err[1024];

    if (wts_plan_new(dir, prog, dummy, 1, &wp, err, sizeof(err)) != 0 ||
        (q.dtype != FDK_F32 && wts_plan_quantize(wp, prog, &q, err, sizeof(err)) != 0))
        die(err);
    return wp;
}

/* Bytes read; for dummy weights the bytes written. */
static double
read_bytes(const struct wts_plan *wp)
{
    double n = 0;

    for (int32_t i = 0; i < wp->n_piece && !wp->dummy; i++)
        n += (double)wp->piece[i].n_elt * (double)fdk_dtype_bytes(wp->piece[i].src);
    return wp->dummy ? (double)wts_bytes(wp) : n;
}

static void
one_line(struct wts_plan *wp, void *arena, int64_t threads, int64_t mib)
{
    const struct wts_load_args la = { .use_uring = !no_uring,
        .buffer_bytes = (size_t)mib << 20 };
    double bytes = read_bytes(wp), best = 0, worst = 0, inner = 0;
    char err[1024];

    wp->st->n_reader = (int)threads;
    for (int i = 0; i <= n_run; i++) {
        uint64_t t0 = clk_now_ns();
        double s;

        if (wts_load(wp, k, ctx, &(struct wts_at){ 0, arena }, 1, &la, err, sizeof(err)) !=
            0)
            die(err);
        s = (double)(clk_now_ns() - t0) * 1e-9;
        if (i == 0)
            continue;
        if (best == 0 || s < best) {
            best = s;
            inner = (double)wts_load_ns(wp) * 1e-9;
        }
        worst = s > worst ? s : worst;
    }
    (void)printf("%3lld threads %4lld MiB  %-8s %7.3f to %7.3f s, %6.1f GB/s; without "
                 "opening and closing %7.3f s, %6.1f GB/s\n",
        (long long)threads, (long long)mib, wts_how(wp), best, worst, bytes / best * 1e-9,
        inner, bytes / inner * 1e-9);
    (void)fflush(stdout);
}

static void
open_backend(const char *name)
{
    const struct fdk_open_args oa = { .n_device = 1, .n_thread = 1, .max_token = 8 };
    char err[256] = "";

    k = strcmp(name, "cuda") == 0 ? &fdk_ops_cuda : &fdk_ops_cpu;
    if (k->available(err, sizeof(err)) <= 0) {
        (void)printf("skipped: %s\n", err);
        exit(77);
    }
    if (k->open(&oa, &ctx, err, sizeof(err)) != 0)
        die(err);
}

static uint32_t
parse_quant(const char *word)
{
    uint32_t i = 0;

    while (strcmp(par_quant_weights_words[i], word) != 0)
        if (par_quant_weights_words[++i] == NULL)
            die("-q none, wint8, wint4 or fp8");
    return i;
}

int
main(int argc, char **argv)
{
    int64_t threads[MAX_LIST] = { 0 }, mib[MAX_LIST] = { 32 }, group = 0;
    int n_threads = 1, n_mib = 1, c;
    const char *backend = "cpu";
    uint32_t quant = PAR_QUANT_WEIGHTS_NONE;
    struct mdl_config cfg;
    struct wts_plan *wp;
    char err[1024];
    uint64_t t0;
    void *arena;

    while ((c = getopt(argc, argv, "b:dpq:g:t:B:n:")) != -1) {
        switch (c) {
        case 'b':
            backend = optarg;
            break;
        case 'd':
            dummy = 1;
            break;
        case 'p':
            no_uring = 1;
            break;
        case 'q':
            quant = parse_quant(optarg);
            break;
        case 'g':
            group = atoi(optarg);
            break;
        case 't':
            n_threads = parse_list(optarg, threads);
            break;
        case 'B':
            n_mib = parse_list(optarg, mib);
            break;
        case 'n':
            n_run = atoi(optarg);
            break;
        default:
            return 64;
        }
    }
    if (optind + 1 != argc)
        die("name a model directory");
    if (qnt_parse((enum par_quant_weights)quant, group, &q, err, sizeof(err)) != 0 ||
        mdl_config_read(argv[optind], &cfg, err, sizeof(err)) != 0 ||
        mdl_build(&cfg, 1, &prog, err, sizeof(err)) != 0)
        die(err);
    open_backend(backend);
    wp = plan(argv[optind]);
    t0 = clk_now_ns();
    if (k->mem_alloc(ctx, 0, wts_bytes(wp), &arena) != 0)
        die("no memory for the weights");
    (void)printf("%s, quant.weights=%s group %lld: %.2f GB %s, %.2f GB on the device "
                 "(allocated in %.3f s)\n",
        argv[optind], par_quant_weights_words[quant], (long long)group,
        read_bytes(wp) * 1e-9, dummy ? "made" : "read", (double)wts_bytes(wp) * 1e-9,
        (double)(clk_now_ns() - t0) * 1e-9);
    for (int i = 0; i < n_threads; i++)
        for (int j = 0; j < n_mib; j++)
            one_line(wp, arena, threads[i], mib[j]);
    k->mem_free(ctx, 0, arena);
    wts_plan_free(wp);
    mdl_free(prog);
    k->close(ctx);
    return 0;
}
