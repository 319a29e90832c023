/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The memory plan: block layouts, sizing by memory, lengths that fit. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/memplan.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static char err[512];

/* ---- layout ------------------------------------------------------------------ */

static void
e5_block_bytes(void **state)
{
    /* bytes of a value, bytes of scale per token, head and K or V */
    static const struct {
        enum fdk_dtype t;
        unsigned value, scale;
    } types[] = { { FDK_F32, 4, 0 }, { FDK_BF16, 2, 0 }, { FDK_F8E4M3, 1, 0 },
        { FDK_I8, 1, 4 } };
    /* layers, draft layers, KV heads, head size: GQA, MHA, MQA, odd shapes */
    static const unsigned shapes[][4] = { { 32, 0, 8, 128 }, { 32, 1, 8, 128 },
        { 28, 0, 32, 64 }, { 18, 0, 1, 256 }, { 4, 0, 2, 16 }, { 61, 1, 3, 80 },
        { 1, 0, 1, 2 } };
    static const unsigned blocks[] = { 16, 32, 64, 128 };

    (void)state;
    for (size_t t = 0; t < 4; t++)
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            for (size_t b = 0; b < 4; b++) {
                const unsigned *z = shapes[s], B = blocks[b];
                /* Token by token: every head has a key and a value. */
                uint64_t token = 2ull * z[2] * (z[3] * types[t].value + types[t].scale);
                uint64_t layer = B * token, block = (z[0] + z[1]) * layer;
                struct fdk_kv kv;

                assert_int_equal(mpl_layout((int32_t)z[0], (int32_t)z[1], (int32_t)z[2],
                                     (int32_t)z[3], (int32_t)B, types[t].t, &kv),
                    0);
                assert_int_equal(kv.block_bytes, block);
                assert_int_equal(kv.layer_bytes, layer);
                assert_int_equal(kv.v_bytes, (uint64_t)B * z[2] * z[3] * types[t].value);
                if (types[t].scale != 0) {
                    assert_int_equal(kv.k_scale_off, 2 * kv.v_bytes);
                    assert_int_equal(kv.v_scale_off,
                        kv.k_scale_off + (uint64_t)B * z[2] * 4);
                    assert_int_equal(kv.v_scale_off + (uint64_t)B * z[2] * 4, layer);
                    assert_int_equal(kv.k_scale_off % 4, 0);
                } else {
                    assert_int_equal(kv.k_scale_off | kv.v_scale_off, 0);
                }
                assert_int_equal(kv.n_kv_head, z[2]);
                assert_int_equal(kv.head_dim, z[3]);
                assert_int_equal(kv.block_size, B);
            }
}

static void
e5_known_models(void **state)
{
    struct fdk_kv kv;

    (void)state;
    /* An 8B model of 32 layers, 8 KV heads of 128: 8 MiB per 64 tokens. */
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_BF16, &kv), 0);
    assert_int_equal(kv.block_bytes, 8388608);
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_F32, &kv), 0);
    assert_int_equal(kv.block_bytes, 16777216);
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_F8E4M3, &kv), 0);
    assert_int_equal(kv.block_bytes, 4194304);
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_I8, &kv), 0);
    assert_int_equal(kv.block_bytes, 4194304 + 131072);
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_F16, &kv), -EINVAL);
    assert_int_equal(mpl_layout(32, 0, 0, 128, 64, FDK_BF16, &kv), -EINVAL);
    assert_int_equal(mpl_layout(INT32_MAX, 0, INT32_MAX, INT32_MAX, INT32_MAX, FDK_F32, &kv),
        -EOVERFLOW);
    assert_int_equal(mpl_layout(INT32_MAX, 1, 1 << 20, 1 << 20, 128, FDK_I8, &kv),
        -EOVERFLOW);
    assert_int_equal(mpl_layout(0, 0, 1, 1, 16, FDK_F32, &kv), -EINVAL);
    assert_int_equal(mpl_layout(0, 1, 1, 1, 16, FDK_F32, &kv), 0);
    assert_int_equal(kv.block_bytes, 128);
}

/* Static scales: a float for each layer, K and V, and head; other types have
 * none, or keep them in the blocks. */
static void
e5_static_scales(void **state)
{
    static const enum fdk_dtype others[] = { FDK_F32, FDK_BF16, FDK_I8 };
    struct fdk_kv kv;

    (void)state;
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_F8E4M3, &kv), 0);
    assert_int_equal(mpl_scale_bytes(&kv, 1), 32 * 2 * 8 * 4);
    assert_int_equal(mpl_layout(61, 1, 3, 80, 16, FDK_F8E4M3, &kv), 0);
    assert_int_equal(mpl_scale_bytes(&kv, 1), 62 * 2 * 3 * 4);
    assert_int_equal(mpl_layout(1, 0, 1, 1, 16, FDK_F8E4M3, &kv), 0);
    assert_int_equal(mpl_scale_bytes(&kv, 1), 8);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(mpl_layout(32, 0, 8, 128, 64, others[i], &kv), 0);
        assert_int_equal(mpl_scale_bytes(&kv, 1), 0);
    }
}

/* ---- plans ------------------------------------------------------------------- */

struct fix {
    uint64_t tables_per_token;
    int32_t asked[8];
    int n;
};

static void
sizes(struct fix *f, int32_t max_len, struct mpl_sizes *ret)
{
    f->asked[f->n++ % 8] = max_len;
    *ret = (struct mpl_sizes){ .rows = 1000,
        .tables = (uint64_t)max_len * f->tables_per_token,
        .plan = 2000,
        .results = 340,
        .activations = 5 * MIB,
        .scratch = MIB,
        .host_plan = 2000,
        .host_results = 300 };
}

/* A device of 80 GiB with 79 free, 16 GiB of weights, 8 MiB blocks. */
static struct mpl_rank rank80 = { 80 * GIB, 79 * GIB };
static struct fix fix;

static struct mpl_in
device(void)
{
    struct mpl_in in = { .rank = &rank80,
        .n_rank = 1,
        .utilization = 0.9,
        .max_num_seqs = 256,
        .max_tokens = 8192,
        .decode_blocks = 2,
        .n_penalty = 64,
        .n_rec = 3,
        .n_graph = 35,
        .chunked = 1,
        .max_partial = 1,
        .model_len = 131072,
        .vocab = 128256,
        .n_op = 200,
        .weights = 16 * GIB,
        .rope = 256,
        .n_kv = 1 };

    fix = (struct fix){ 0 };
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_BF16, &in.kv[0]), 0);
    return in;
}

static int
plan(const struct mpl_in *in, struct mpl *m, char *text, size_t text_bytes)
{
    struct mpl_sizes z;
    int rc = mpl_begin(in, m, text, text_bytes);

    if (rc != 0)
        return rc;
    do {
        sizes(&fix, m->max_len, &z);
        rc = mpl_round(in, &z, m, text, text_bytes);
    } while (rc > 0);
    return rc;
}

static struct mpl
planned(const struct mpl_in *in)
{
    struct mpl m;

    memset(&m, 0, sizeof(m));
    if (plan(in, &m, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    return m;
}

/* Every sum equals the sum of its rows. */
static void
check_sums(const struct mpl *m)
{
    uint64_t dev = 0, host = 0, groups = 0;

    for (int32_t i = 0; i < m->n_row; i++) {
        assert_true(m->row[i].name[0] != '\0' && m->row[i].how[0] != '\0');
        *(m->row[i].host ? &host : &dev) += m->row[i].bytes;
    }
    for (int g = 0; g < MPL__N; g++)
        groups += mpl_bytes(m, (enum mpl_group)g);
    assert_int_equal(dev, m->device_bytes);
    assert_int_equal(host, m->host_bytes);
    assert_int_equal(groups, dev + host);
    assert_int_equal(mpl_bytes(m, MPL_KV), ((uint64_t)m->n_block + 1) * m->block_bytes);
    assert_int_equal(m->fixed, dev - mpl_bytes(m, MPL_KV));
    assert_int_equal(m->tokens, (int64_t)m->n_block * m->block_size);
}

/* Memory that ranks write to each other is not available for blocks. */
static void
collectives(void **state)
{
    struct mpl_in in = device();
    struct mpl one = planned(&in), m;

    (void)state;
    assert_int_equal(mpl_bytes(&one, MPL_COLLECTIVES), 0);
    in.collectives = 80 * MIB;
    m = planned(&in);
    check_sums(&m);
    assert_int_equal(mpl_bytes(&m, MPL_COLLECTIVES), 80 * MIB);
    assert_true(one.n_block - m.n_block >= 10 && one.n_block - m.n_block <= 11);
    assert_string_equal(mpl_group_name(MPL_COLLECTIVES), "collectives");
}

static void
blocks_by_utilization(void **state)
{
    struct mpl_in in = device();
    struct mpl_rank r = rank80;
    struct mpl m = planned(&in);
    uint64_t room;

    (void)state;
    check_sums(&m);
    /* 90 % of the 79 GiB that are free. */
    assert_int_equal(m.limit, (uint64_t)(0.9 * (double)(79 * GIB)));
    room = m.limit - m.fixed;
    assert_int_equal(m.n_block, room / in.kv[0].block_bytes - 1);
    assert_true(m.device_bytes <= m.limit);
    assert_true(m.limit - m.device_bytes < in.kv[0].block_bytes);
    /* Graphs come first: their budget is among the fixed bytes. */
    assert_int_equal(mpl_bytes(&m, MPL_GRAPHS), 35ull * 200 * 16384);
    assert_int_equal(mpl_bytes(&m, MPL_PENALTY),
        64ull * (128256 * 2 + fdk_rules_words(128256) * 4 + FDK_MAX_CHOSEN * 4));
    assert_int_equal(mpl_bytes(&m, MPL_HOST_PENALTY),
        64ull *
            (128256 * 2 + fdk_rules_words(128256) * 4 +
                (uint64_t)in.n_rec * FDK_MAX_CHOSEN * 4));
    assert_int_equal(m.max_len, 131072);
    assert_int_equal(m.concurrency, m.n_block / 2048);
    /* Memory of other processes cannot be used, and not all of the rest either. */
    r.mem_free = 30 * GIB;
    in.rank = &r;
    m = planned(&in);
    assert_int_equal(m.limit, 27 * GIB);
    assert_true(m.device_bytes <= 27 * GIB);
    check_sums(&m);
    in.utilization = 0.75;
    m = planned(&in);
    assert_int_equal(m.limit, 45 * GIB / 2);
    check_sums(&m);
}

static void
static_scales_are_planned(void **state)
{
    struct mpl_in in = device();
    struct mpl m = planned(&in), with;

    (void)state;
    assert_int_equal(mpl_bytes(&m, MPL_KV_SCALES), 0);
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_F8E4M3, &in.kv[0]), 0);
    with = planned(&in);
    check_sums(&with);
    assert_int_equal(mpl_bytes(&with, MPL_KV_SCALES), 2048);
    assert_int_equal(with.n_row, m.n_row + 1);
    /* one row more adds another 2 MiB of rounding */
    assert_int_equal(with.fixed, m.fixed + 2048 + 2 * MIB);
}

static void
blocks_by_order(void **state)
{
    struct mpl_in in = device();
    struct mpl m;
    int32_t most;

    (void)state;
    in.num_blocks = 3000;
    in.want_len = 8192;
    m = planned(&in);
    check_sums(&m);
    assert_int_equal(m.n_block, 3000);
    assert_int_equal(m.max_block, 3001);
    assert_int_equal(m.max_len, 8192);
    assert_int_equal(m.concurrency, 3000 / 128);
    in.num_blocks = 0;
    in.memory_bytes = 1001 * in.kv[0].block_bytes + 5;
    m = planned(&in);
    assert_int_equal(m.n_block, 1000);
    /* Checked against the free memory: the largest pool that fits, and one block more. */
    in.memory_bytes = 0;
    most = planned(&in).n_block;
    in.num_blocks = most;
    assert_int_equal(planned(&in).n_block, most);
    in.num_blocks = most + 1;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_non_null(strstr(err, "kv.num_blocks asks for a KV cache of "));
    assert_non_null(strstr(err, ": at most "));
    assert_int_equal(atoi(strstr(err, ": at most ") + 10), most);
    in.num_blocks = 0;
    in.memory_bytes = ((uint64_t)most + 2) * in.kv[0].block_bytes;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_non_null(strstr(err, "kv.memory_bytes asks for"));
}

static void
e6_least_free_memory_decides(void **state)
{
    struct mpl_in in = device();
    struct mpl_rank r[8];
    struct mpl m, alone;

    (void)state;
    in.rank = r;
    in.n_rank = 8;
    for (int worst = 0; worst < 8; worst++) {
        for (int i = 0; i < 8; i++)
            r[i] = (struct mpl_rank){ 80 * GIB, 70 * GIB + (uint64_t)i * GIB / 8 };
        r[worst].mem_free = 40 * GIB + (uint64_t)worst * 64 * MIB;
        m = planned(&in);
        assert_int_equal(m.limit, (uint64_t)(0.9 * (double)r[worst].mem_free));
        in.rank = &r[worst];
        in.n_rank = 1;
        alone = planned(&in);
        assert_int_equal(m.n_block, alone.n_block);
        in.rank = r;
        in.n_rank = 8;
    }
    /* With devices of different size the smaller one decides. */
    for (int i = 0; i < 8; i++)
        r[i] = rank80;
    r[5] = (struct mpl_rank){ 40 * GIB, 40 * GIB };
    m = planned(&in);
    assert_int_equal(m.limit, 36 * GIB);
    /* This also holds after graphs are recorded. */
    for (int i = 0; i < 8; i++)
        r[i] = (struct mpl_rank){ 80 * GIB, 60 * GIB };
    r[2].mem_free = 10 * GIB;
    assert_int_equal(mpl_settle(&m, 0, 2 * MIB, r, 8, err, sizeof(err)), -ENOSPC);
    in.rank = &rank80;
    in.n_rank = 1;
    in.want_len = 16384;
    m = planned(&in);
    assert_int_equal(mpl_settle(&m, 0, 2 * MIB, r, 8, err, sizeof(err)), 0);
    assert_int_equal(m.n_block, (10 * GIB + 2 * MIB) / in.kv[0].block_bytes - 1);
    check_sums(&m);
}

static void
recorded_graphs_settle_the_pool(void **state)
{
    struct mpl_in in = device();
    struct mpl m = planned(&in), was = m;
    uint64_t budget = mpl_bytes(&m, MPL_GRAPHS);
    struct mpl_rank r = rank80;

    (void)state;
    /* Graphs took their budget: nothing changes. */
    assert_int_equal(mpl_settle(&m, budget, 0, &r, 1, err, sizeof(err)), 0);
    assert_int_equal(m.n_block, was.n_block);
    assert_int_equal(m.device_bytes, was.device_bytes);
    check_sums(&m);
    /* Graphs took nothing: all of the budget becomes blocks,
     * within the reserved addresses. */
    m = was;
    assert_int_equal(mpl_settle(&m, 0, 0, &r, 1, err, sizeof(err)), 0);
    assert_true(m.n_block >= was.n_block + (int32_t)(budget / m.block_bytes));
    assert_true(m.n_block < m.max_block);
    assert_true(m.device_bytes <= m.limit);
    check_sums(&m);
    /* Graphs took more than the budget: fewer blocks, and the limit holds. */
    m = was;
    assert_int_equal(mpl_settle(&m, budget + GIB, 0, &r, 1, err, sizeof(err)), 0);
    assert_int_equal(was.n_block - m.n_block, GIB / m.block_bytes);
    assert_true(m.device_bytes <= m.limit);
    check_sums(&m);
    /* A configured number of blocks does not change. */
    in.num_blocks = 3000;
    m = planned(&in);
    assert_int_equal(mpl_settle(&m, budget + GIB, 0, &r, 1, err, sizeof(err)), 0);
    assert_int_equal(m.n_block, 3000);
    assert_int_equal(mpl_bytes(&m, MPL_GRAPHS), budget + GIB);
}

static void
length_that_fits(void **state)
{
    struct mpl_in in = device();
    struct mpl m;

    (void)state;
    /* 1000 blocks, 2 of them beyond the prompt: 998 x 64 tokens. */
    in.num_blocks = 1000;
    m = planned(&in);
    assert_int_equal(m.max_len, 998 * 64);
    in.want_len = 998 * 64;
    assert_int_equal(planned(&in).max_len, 998 * 64);
    in.want_len = 998 * 64 + 1;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_string_equal(err,
        "model.max_model_len = 63873 needs 999 KV blocks of 64 tokens "
        "and kv.static_decode_blocks = 2 more, but 1000 fit; the largest "
        "model.max_model_len that fits is 63872; this one needs a KV cache of 7.8 GiB, "
        "24.0 GiB in all");
    in.decode_blocks = 1;
    assert_int_equal(planned(&in).n_block, 1000);
    in.decode_blocks = 0;
    in.want_len = 64000;
    assert_int_equal(planned(&in).concurrency, 1);
    in.want_len = 131073;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "model.max_model_len = 131073 exceeds the model's own limit "
        "131072; set model.max_model_len to at most 131072, or to 0");
    in.want_len = 0;
    in.num_blocks = 1;
    in.decode_blocks = 1;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_non_null(strstr(err,
        "the KV cache has 1 blocks of 64 tokens, too few for any "
        "request with kv.static_decode_blocks = 1"));
    in.num_blocks = 2;
    assert_int_equal(planned(&in).max_len, 64);
    /* The weights by themselves are too much. */
    in = device();
    in.weights = 73 * GIB;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_non_null(strstr(err, "weights and buffers need 73."));
    assert_non_null(strstr(err, "but 71.1 GiB may be used"));
}

/* Tables follow the length, and the plan has those of the length served. */
static void
tables_of_the_served_length(void **state)
{
    struct mpl_in in = device();
    struct mpl m;

    (void)state;
    fix.tables_per_token = 64 * 1024;
    in.num_blocks = 100;
    m = planned(&in);
    assert_int_equal(m.max_len, 98 * 64);
    assert_int_equal(fix.n, 2);
    assert_int_equal(fix.asked[0], 131072);
    assert_int_equal(fix.asked[1], 98 * 64);
    assert_int_equal(mpl_bytes(&m, MPL_STATE), 1000 + 98ull * 64 * 64 * 1024);
}

static void
e2_whole_prompts_in_a_step(void **state)
{
    struct mpl_in in = device();
    struct mpl m;

    (void)state;
    in.chunked = 0;
    m = planned(&in);
    assert_int_equal(m.max_len, 8192);
    in.want_len = 8192;
    assert_int_equal(planned(&in).max_len, 8192);
    in.want_len = 8193;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "model.max_model_len = 8193 is more than "
        "sched.max_num_batched_tokens = 8192, and without sched.enable_chunked_prefill a "
        "prompt must fit one step");
}

static void
e2_long_threshold_of_the_served_length(void **state)
{
    struct mpl_in in = device();
    struct mpl m;

    (void)state;
    in.max_partial = 2;
    in.long_threshold = 131071;
    assert_int_equal(planned(&in).max_len, 131072);
    in.long_threshold = 131072;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "sched.long_prefill_token_threshold = 131072 must be less than "
        "the served length of 131072 tokens when sched.max_num_partial_prefills = 2 is more "
        "than 1: no prompt would be long");
    in.max_partial = 1;
    assert_int_equal(planned(&in).max_len, 131072);
}

static void
blocks_on_the_cpu(void **state)
{
    struct mpl_rank r = { 64 * GIB, 9 * GIB };
    struct mpl_in in = device();
    struct mpl m;

    (void)state;
    in.is_cpu = 1;
    in.rank = &r;
    in.weights = GIB;
    in.utilization = 0.05; /* not used here */
    in.want_len = 8192;
    m = planned(&in);
    check_sums(&m);
    assert_int_equal(m.limit, 9 * GIB);
    assert_int_equal(m.n_block, (9 * GIB - m.fixed) / 4 / in.kv[0].block_bytes - 1);
    assert_int_equal(m.max_block, m.n_block + 1);
    /* At most 4 GiB. */
    r.mem_free = 60 * GIB;
    m = planned(&in);
    assert_int_equal(m.n_block, 4 * GIB / in.kv[0].block_bytes - 1);
    /* At most the blocks that the sequences can use, and those given in advance. */
    in.max_num_seqs = 2;
    m = planned(&in);
    assert_int_equal(m.n_block, 2 * (128 + 2));
    assert_int_equal(m.concurrency, 2);
    in.max_num_seqs = 1;
    in.want_len = 100;
    assert_int_equal(planned(&in).n_block, 2 + 2);
    assert_int_equal(planned(&in).concurrency, 1);
    assert_int_equal(mpl_settle(&m, 123, 0, &r, 1, err, sizeof(err)), 0);
    assert_int_equal(m.n_block, 260);
    check_sums(&m);
}

static void
swap_space_in_blocks(void **state)
{
    struct mpl_in in = device();
    struct mpl m;

    (void)state;
    assert_int_equal(planned(&in).n_host, 0);
    in.swap_gib = 4;
    m = planned(&in);
    assert_int_equal(m.n_host, 512);
    assert_int_equal(mpl_bytes(&m, MPL_HOST_KV), 4 * GIB);
    check_sums(&m);
    in.host_free = 4 * GIB;
    assert_int_equal(planned(&in).n_host, 512);
    in.host_free--;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_non_null(strstr(err, "kv.swap_space = 4 GiB, but the machine has 4.0 GiB"));
    in.host_free = 0;
    in.swap_gib = 4.0 - 1.0 / 1024; /* one MiB less gives one block less */
    assert_int_equal(planned(&in).n_host, 511);
    in.swap_gib = 1.0 / 128;
    assert_int_equal(planned(&in).n_host, 1);
    in.swap_gib = 1.0 / 129;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "kv.swap_space = 0.00775194 GiB: less than a block of 8388608 bytes; set it to 0.007813 "
        "or more, or to 0");
    /* Ranks share it. Regression: the line named one rank's
     * share, not the configured size. */
    in.n_share = 2;
    in.swap_gib = 1.0 / 64;
    assert_int_equal(planned(&in).n_host, 1);
    in.swap_gib = 0.015;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -EINVAL);
    assert_string_equal(err,
        "kv.swap_space = 0.015 GiB: less than a block of 8388608 bytes on each of 2 devices; "
        "set it to 0.015625 or more, or to 0");
    in.swap_gib = 4;
    m = planned(&in);
    assert_int_equal(m.n_host, 256);
    /* Regression: the host's sum had the share of one rank. */
    assert_int_equal(mpl_bytes(&m, MPL_HOST_KV), 4 * GIB);
    in.in_host = 3 * MIB;
    m = planned(&in);
    assert_int_equal(mpl_bytes(&m, MPL_HOST_SHARED), 6 * MIB);
    check_sums(&m);
    in.in_host = 0;
    in.host_free = 3 * GIB;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_string_equal(err,
        "kv.swap_space = 4 GiB, but the machine has 3.0 GiB of memory left; set kv.swap_space "
        "to less");
    in.host_free = in.n_share = 0;
    /* Regression: each of several groups counted the memory that all of
     * them were to take as its own. */
    in.host_free = 7 * GIB;
    in.host_total = 8 * GIB;
    in.n_group = 2;
    assert_int_equal(planned(&in).n_host, 512);
    in.n_group = 3;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_string_equal(err,
        "kv.swap_space = 4 GiB for each of parallel.data_parallel_size = 3 groups, but the "
        "machine has 8.0 GiB of memory; set kv.swap_space to less");
    in.host_free = in.host_total = in.n_group = 0;
    /* int8 blocks are smaller: the values shrink, the scales do not. */
    assert_int_equal(mpl_layout(32, 0, 8, 128, 64, FDK_I8, &in.kv[0]), 0);
    in.swap_gib = 4;
    assert_int_equal(planned(&in).n_host, 4 * GIB / (4194304 + 131072));
}

static void
e7_ratio(void **state)
{
    (void)state;
    assert_int_equal(mpl_prompt_blocks(17220, 0.75), 12915);
    assert_int_equal(mpl_prompt_blocks(17220, 1), 17220);
    assert_int_equal(mpl_prompt_blocks(17220, 0.05), 861);
    assert_int_equal(mpl_prompt_blocks(7, 0.5), 3);
    assert_int_equal(mpl_prompt_blocks(0, 0.5), 0);
    assert_int_equal(mpl_prompt_blocks(INT32_MAX, 1), INT32_MAX);
}

/* Numbers that overflow are refused, not wrapped. */
/* One group of 8 layers without a window and five of 8 with one of 1,024 tokens: a
 * sequence holds at most 577 blocks of each of these, however long it is. */
static void
windows_bound_what_a_sequence_holds(void **state)
{
    struct mpl_in in = device();
    struct mpl m;
    int64_t need;

    (void)state;
    in.n_kv = 6;
    for (int32_t g = 0; g < 6; g++) {
        /* the last group has fewer layers, and blocks as large as the others */
        assert_int_equal(mpl_layout(g == 5 ? 7 : 8, 0, 8, 128, 16, FDK_BF16, &in.kv[g]), 0);
        in.most[g] = g == 0 ? 0 : 577;
    }
    mpl_share(in.kv, 6);
    assert_int_equal(in.kv[5].block_bytes, 8 * 2 * 8 * 128 * 16 * 2);
    in.max_num_seqs = 1000;
    m = planned(&in);
    need = 131072 / 16 + 5 * 577;
    assert_int_equal(m.max_len, 131072);
    assert_int_equal(mpl_need(&m, 131072 / 16), need);
    assert_int_equal(mpl_need(&m, 10), 60);
    assert_int_equal(mpl_most(&m, 0), 131072 / 16);
    assert_int_equal(mpl_most(&m, 5), 577);
    assert_int_equal(m.concurrency, m.n_block / need);
    assert_int_equal(m.tokens, (int64_t)m.n_block * (131072 / 16) / need * 16);
    /* without windows a sequence would hold six times as many */
    memset(in.most, 0, sizeof(in.most));
    m = planned(&in);
    assert_int_equal(m.concurrency, m.n_block / (6 * 131072 / 16));
    /* a pool too small for the model's length serves the length that it holds */
    for (int32_t g = 1; g < 6; g++)
        in.most[g] = 577;
    in.num_blocks = 5 * 577 + 2 + 1000;
    m = planned(&in);
    assert_int_equal(m.max_len, 1000 * 16);
    assert_int_equal(m.concurrency, 1);
    in.num_blocks = 6 * 102;
    m = planned(&in);
    assert_int_equal(m.max_len, 100 * 16);
    in.want_len = 100 * 16 + 1;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    assert_non_null(strstr(err, "needs 606 KV blocks of 16 tokens"));
    assert_non_null(strstr(err, "largest model.max_model_len that fits is 1600"));
    /* with a window in all layers any length needs no more than the windows */
    for (int32_t g = 0; g < 6; g++)
        in.most[g] = 90;
    m = planned(&in);
    assert_int_equal(m.max_len, 100 * 16 + 1);
}

static void
absurd_sizes(void **state)
{
    struct mpl_in in = device();
    struct mpl m;

    (void)state;
    in.weights = UINT64_MAX - 5;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    in = device();
    in.num_blocks = INT64_MAX - 1;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -ENOSPC);
    in = device();
    in.swap_gib = 1e12;
    assert_int_equal(plan(&in, &m, err, sizeof(err)), -EINVAL);
    in = device();
    in.kv[0].block_bytes = 1;
    m = planned(&in);
    assert_int_equal(m.n_block, INT32_MAX / 64 - 1);
    assert_true(m.max_block <= INT32_MAX / 64);
    mpl_show_bytes(UINT64_MAX, err, sizeof(err));
    assert_string_equal(err, "16777216.0 TiB");
    mpl_show_bytes(1023, err, sizeof(err));
    assert_string_equal(err, "1023 B");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives),
        cmocka_unit_test(e5_block_bytes),
        cmocka_unit_test(e5_known_models),
        cmocka_unit_test(e5_static_scales),
        cmocka_unit_test(static_scales_are_planned),
        cmocka_unit_test(blocks_by_utilization),
        cmocka_unit_test(blocks_by_order),
        cmocka_unit_test(e6_least_free_memory_decides),
        cmocka_unit_test(recorded_graphs_settle_the_pool),
        cmocka_unit_test(length_that_fits),
        cmocka_unit_test(tables_of_the_served_length),
        cmocka_unit_test(e2_whole_prompts_in_a_step),
        cmocka_unit_test(e2_long_threshold_of_the_served_length),
        cmocka_unit_test(blocks_on_the_cpu),
        cmocka_unit_test(swap_space_in_blocks),
        cmocka_unit_test(e7_ratio),
        cmocka_unit_test(absurd_sizes),
        cmocka_unit_test(windows_bound_what_a_sequence_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
