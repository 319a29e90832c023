/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of every copy of a step are pinned or device memory: other copies would
 * wait for the stream.
 */
#include "config.h"

#include <string.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

static char dir[64];
static struct fdk_ops extra;

/* Memory from host_alloc, mem_alloc and mem_reserve: all that a device reads
 * without the driver's help. */
static struct {
    char *at;
    size_t bytes;
} pinned[512];
static int n_pinned, n_copied, n_tables, watch_copies;

static void
pinned_add(int rc, void *p, size_t bytes)
{
    SIM_CHECK(n_pinned < (int)(sizeof(pinned) / sizeof(pinned[0])));
    if (rc == 0) {
        pinned[n_pinned].at = p;
        pinned[n_pinned++].bytes = bytes;
    }
}

static int
pinned_host(struct fdk_ctx *ctx, size_t bytes, void **ret)
{
    int rc = fdk_ops_cpu.host_alloc(ctx, bytes, ret);

    pinned_add(rc, *ret, bytes);
    return rc;
}

static int
pinned_alloc(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    int rc = fdk_ops_cpu.mem_alloc(ctx, dev, bytes, ret);

    pinned_add(rc, *ret, bytes);
    return rc;
}

static int
pinned_reserve(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    int rc = fdk_ops_cpu.mem_reserve(ctx, dev, bytes, ret);

    pinned_add(rc, *ret, bytes);
    return rc;
}

static int
is_pinned(const void *p, size_t bytes)
{
    for (int i = 0; i < n_pinned; i++)
        if ((const char *)p >= pinned[i].at &&
            (const char *)p + bytes <= pinned[i].at + pinned[i].bytes)
            return 1;
    return 0;
}

static int
pinned_copy(fdk_stream_t st, void *dst, const void *src, size_t bytes)
{
    if (watch_copies)
        SIM_CHECK(is_pinned(src, bytes) && is_pinned(dst, bytes));
    n_copied += watch_copies;
    n_tables += watch_copies && bytes > BAT_MAX_DELTA * sizeof(int32_t) && bytes < 512;
    return fdk_ops_cpu.copy(st, dst, src, bytes);
}

/* A prompt with more blocks than a plan has room for, all new in one step. */
static void
a_step_copies_pinned_memory(struct sim_rng *rng)
{
    const struct sim_cfg c = { .max_reqs = 4,
        .max_seqs = 2,
        .max_tokens = 512,
        .max_len = 512,
        .n_block = 200,
        .block_size = 4,
        .chunked = 1,
        .exec = FDK_EXEC_DEFER,
        .pace = SIM_PACE_FAST,
        .backend = "cpu",
        .ops = &extra,
        .model_dir = dir };
    struct sim *s;
    struct sim_req *r;

    (void)rng;
    extra = fdk_ops_cpu;
    extra.host_alloc = pinned_host;
    extra.mem_alloc = pinned_alloc;
    extra.mem_reserve = pinned_reserve;
    extra.copy = pinned_copy;
    n_pinned = 0;
    s = sim_new(&c);
    r = sim_req(s);
    r->n_prompt = 4 * (BAT_MAX_DELTA + 16);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = 3 + i % 200;
    r->p.max_new = 3;
    r->p.flags |= FDP_F_IGNORE_EOS;
    watch_copies = 1;
    sim_submit(s, r, NULL);
    sim_drain(s);
    watch_copies = 0;
    SIM_CHECK(r->code == 0 && r->s[0].n_ids == 3);
    SIM_CHECK(n_copied > 0 && n_tables > 0);
    sim_free(s);
}

int
main(int argc, char **argv)
{
    static const struct sim_test tests[] = { SIM_TEST(a_step_copies_pinned_memory) };
    int rc;

    sim_model(dir);
    rc = sim_run(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
    sim_model_rm(dir);
    return rc;
}
