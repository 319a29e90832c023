/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/bench/gpu_bench.h"

#include <math.h>

#include "daemon/common/mem.h"

#define N_RUN 5
#define PART  ((size_t)64 << 20)

struct gpu_bench gb;

int
gb_open(const char *program, const struct fdk_open_args *args)
{
    char why[256] = "";

    if (ops->available(why, sizeof(why)) <= 0) {
        (void)printf("skipped: %s\n", why);
        return 77;
    }
    if (ops->open(args, &gb.ctx, why, sizeof(why)) != 0) {
        (void)fprintf(stderr, "%s: %s\n", program, why);
        return 1;
    }
    OK(ops->device_info(gb.ctx, 0, &gb.info));
    OK(ops->stream_new(gb.ctx, 0, &gb.st));
    OK(ops->event_new(gb.ctx, 0, &gb.ev[0]));
    OK(ops->event_new(gb.ctx, 0, &gb.ev[1]));
    OK(ops->probe(gb.ctx, 0, FDK_PROBE_READ, FDK_F32, &gb.read_rate));
    return 0;
}

void *
gb_device(size_t bytes)
{
    void *p;

    OK(ops->mem_alloc(gb.ctx, 0, bytes > 0 ? bytes : 1, &p));
    return p;
}

void
gb_upload(void *dst, const void *src, size_t bytes)
{
    OK(ops->copy(gb.st, dst, src, bytes));
    OK(ops->stream_sync(gb.st));
}

void
gb_fill(void *dst, size_t bytes, uint32_t keep, uint32_t with)
{
    uint32_t *h = mem_array(PART / 4, 4);
    uint64_t s = 88172645463325252u;

    if (h == NULL)
        exit(1);
    for (size_t i = 0; i < PART / 4; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        h[i] = ((uint32_t)s & keep) | with;
    }
    for (size_t at = 0; at < bytes; at += PART)
        gb_upload((char *)dst + at, h, bytes - at < PART ? bytes - at : PART);
    free(h);
}

double
gb_replay(size_t n)
{
    struct fdk_graph *g;
    double best = INFINITY;

    OK(ops->graph_end(gb.st, &g));
    for (int i = 0; i <= N_RUN; i++) {
        double s;

        OK(ops->event_record(gb.ev[0], gb.st));
        OK(ops->graph_launch(g, gb.st));
        OK(ops->event_record(gb.ev[1], gb.st));
        OK(ops->event_sync(gb.ev[1]));
        s = (double)(ops->event_ns(gb.ev[1]) - ops->event_ns(gb.ev[0])) * 1e-9 / (double)n;
        if (i > 0 && s < best)
            best = s;
    }
    ops->graph_free(g);
    return best;
}
