/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/memplan.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

#define MPL_MIN_LEN  16
#define MPL_CPU_MOST (4ull << 30)
/* Estimated bytes of a captured operation. The real size of graphs is known only after
 * capture; mpl_settle() then gives the difference to the pool. */
#define MPL_GRAPH_OP     (16u << 10)
#define MPL_GRAPH_OP_CPU 512u
/* Granularity of a device's allocations. */
#define MPL_PIECE (2u << 20)

static const char *const group_names[MPL__N] = { "weights", "activations", "scratch",
    "row states and tables", "step plan", "penalty counts", "graphs", "collectives",
    "KV scales", "kv", "pinned step records", "swap space", "pinned penalty counts",
    "shared by ranks", "other" };

const char *
mpl_group_name(enum mpl_group group)
{
    return group_names[group];
}

void
mpl_show_bytes(uint64_t bytes, char *ret, size_t ret_bytes)
{
    static const char units[][4] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double v = (double)bytes;
    size_t u = 0;

    while (v >= 1024 && u < 4) {
        v /= 1024;
        u++;
    }
    (void)snprintf(ret, ret_bytes, u == 0 ? "%.0f %s" : "%.1f %s", v, units[u]);
}

__attribute__((format(printf, 4, 5))) static int
mpl_fail(int rc, char *err, size_t err_bytes, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(err, err_bytes, fmt, ap);
    va_end(ap);
    return rc;
}

int
mpl_layout(int32_t n_layer, int32_t n_draft_layer, int32_t n_kv_head, int32_t head_dim,
    int32_t block_size, enum fdk_dtype dtype, struct fdk_kv *ret)
{
    uint64_t v = (uint64_t)fdk_dtype_bytes(dtype), scales = 0, layer, block, n;

    if (dtype != FDK_F32 && dtype != FDK_BF16 && dtype != FDK_F8E4M3 && dtype != FDK_I8)
        return -EINVAL;
    if (n_layer < 0 || n_draft_layer < (n_layer == 0) || n_kv_head < 1 || head_dim < 1 ||
        block_size < 1)
        return -EINVAL;
    if (mem_mul_u64((uint64_t)n_kv_head, (uint64_t)block_size, &n) != 0 ||
        mem_mul_u64(n, (uint64_t)head_dim, &layer) != 0 || mem_mul_u64(v, layer, &v) != 0)
        return -EOVERFLOW;
    if (dtype == FDK_I8 && mem_mul_u64(n, sizeof(float), &scales) != 0)
        return -EOVERFLOW;
    if (mem_add_u64(v, scales, &layer) != 0 || mem_mul_u64(layer, 2, &layer) != 0 ||
        mem_mul_u64(layer, (uint64_t)n_layer + (uint64_t)n_draft_layer, &block) != 0)
        return -EOVERFLOW;
    *ret = (struct fdk_kv){ .block_bytes = block,
        .layer_bytes = layer,
        .v_bytes = v,
        .k_scale_off = scales != 0 ? 2 * v : 0,
        .v_scale_off = scales != 0 ? 2 * v + scales : 0,
        .block_size = block_size,
        .n_kv_head = n_kv_head,
        .head_dim = head_dim,
        .dtype = dtype };
    return 0;
}

void
mpl_share(struct fdk_kv *kv, int32_t n)
{
    uint64_t most = 0;

    for (int32_t g = 0; g < n; g++)
        most = kv[g].block_bytes > most ? kv[g].block_bytes : most;
    for (int32_t g = 0; g < n; g++)
        kv[g].block_bytes = most;
}

uint64_t
mpl_scale_bytes(const struct fdk_kv *kv, int32_t n)
{
    uint64_t sum = 0;

    for (int32_t g = 0; g < n; g++)
        if (kv[g].dtype == FDK_F8E4M3)
            sum += kv[g].block_bytes / kv[g].layer_bytes * 2 * (uint64_t)kv[g].n_kv_head *
                sizeof(float);
    return sum;
}

int32_t
mpl_prompt_blocks(int32_t n_block, double ratio)
{
    return (int32_t)((double)n_block * ratio);
}

uint64_t
mpl_bytes(const struct mpl *m, enum mpl_group group)
{
    uint64_t sum = 0;

    for (int32_t i = 0; i < m->n_row; i++)
        if (m->row[i].group == group)
            sum += m->row[i].bytes;
    return sum;
}

/* ---- the table ----------------------------------------------------------------------- */

/* Sums and products saturate: a plan that large does not fit anyway. */
static uint64_t
mpl_sum(uint64_t a, uint64_t b)
{
    return mem_add_u64(a, b, &a) == 0 ? a : UINT64_MAX;
}

static uint64_t
mpl_times(uint64_t a, uint64_t b)
{
    return mem_mul_u64(a, b, &a) == 0 ? a : UINT64_MAX;
}

__attribute__((format(printf, 6, 7))) static void
mpl_add(struct mpl *m, const char *name, enum mpl_group group, int host, uint64_t bytes,
    const char *how, ...)
{
    struct mpl_row *r = &m->row[m->n_row];
    va_list ap;

    if (bytes == 0 && group != MPL_GRAPHS)
        return;
    ASSERT(m->n_row < MPL_MAX_ROW);
    m->n_row++;
    *r = (struct mpl_row){ .name = name, .group = group, .host = host, .bytes = bytes };
    va_start(ap, how);
    (void)vsnprintf(r->how, sizeof(r->how), how, ap);
    va_end(ap);
    if (host)
        m->host_bytes = mpl_sum(m->host_bytes, bytes);
    else
        m->device_bytes = mpl_sum(m->device_bytes, bytes);
}

/* Add all rows except those of the KV pool. */
static void
mpl_fixed_rows(const struct mpl_in *in, const struct mpl_sizes *z, struct mpl *m)
{
    uint64_t op = in->is_cpu ? MPL_GRAPH_OP_CPU : MPL_GRAPH_OP;
    uint64_t counts = mpl_times(mpl_times((uint64_t)in->n_penalty, (uint64_t)in->vocab),
        sizeof(uint16_t));
    uint64_t rec = (uint64_t)in->n_rec;
    uint64_t words = fdk_rules_words(in->vocab);
    uint64_t rules = mpl_times(mpl_times((uint64_t)in->n_penalty, words), sizeof(int32_t));
    uint64_t chosen = mpl_times((uint64_t)in->n_penalty, FDK_MAX_CHOSEN * sizeof(float));

    m->n_row = 0;
    m->device_bytes = m->host_bytes = 0;
    mpl_add(m, "weights", MPL_WEIGHTS, 0, in->weights, "tensors as they are computed with");
    mpl_add(m, "quantized weights", MPL_WEIGHTS, 0, in->quant_weights,
        "packed values and their scales");
    mpl_add(m, "rope frequencies", MPL_OTHER, 0, in->rope, "a float for two of rot");
    mpl_add(m, "graphs", MPL_GRAPHS, 0,
        mpl_times(mpl_times((uint64_t)in->n_graph, (uint64_t)in->n_op), op),
        "%d x %d operations x %" PRIu64 " bytes at most", in->n_graph, in->n_op, op);
    mpl_add(m, "activations", MPL_ACTIVATIONS, 0, z->activations,
        "buffers of %d tokens, placed by lifetime", in->max_tokens);
    mpl_add(m, "scratch", MPL_SCRATCH, 0, z->scratch, "the largest operation's");
    mpl_add(m, "row states", MPL_STATE, 0, z->rows, "%d sequences and the dummy row",
        in->max_num_seqs);
    mpl_add(m, "block tables", MPL_STATE, 0, z->tables, "rows x blocks of a sequence x 4");
    mpl_add(m, "step plan", MPL_PLAN, 0, z->plan,
        "tokens, rows, outputs, attention, updates");
    mpl_add(m, "results", MPL_PLAN, 0, z->results, "outputs of a step");
    mpl_add(m, "penalty counts", MPL_PENALTY, 0, counts,
        "%d sequences x %d vocabulary x 2", in->n_penalty, in->vocab);
    mpl_add(m, "sampling rules", MPL_PENALTY, 0, mpl_sum(rules, chosen),
        "%d sequences x (%" PRIu64 " words + %d logprobs) x 4", in->n_penalty, words,
        FDK_MAX_CHOSEN);
    mpl_add(m, "KV scales", MPL_KV_SCALES, 0, mpl_scale_bytes(in->kv, in->n_kv),
        "a float per layer, head, K and V");
    mpl_add(m, "collectives", MPL_COLLECTIVES, 0, in->collectives,
        "what ranks write to each other");
    if (!in->is_cpu)
        mpl_add(m, "rounding", MPL_OTHER, 0, (uint64_t)m->n_row * MPL_PIECE,
            "each buffer to pieces of 2 MiB");
    m->fixed = m->device_bytes;
    mpl_add(m, "step records", MPL_HOST, 1,
        mpl_times(rec, mpl_sum(z->host_plan, z->host_results)),
        "%d records x (plan + results), pinned", in->n_rec);
    mpl_add(m, "shared by ranks", MPL_HOST_SHARED, 1,
        mpl_times(in->in_host, (uint64_t)m->n_share),
        "embeddings and workspace of collectives x %d devices, pinned", m->n_share);
    mpl_add(m, "penalty counts", MPL_HOST_PENALTY, 1, counts, "as on the device, pinned");
    mpl_add(m, "sampling rules", MPL_HOST_PENALTY, 1,
        mpl_sum(rules, mpl_times(rec, chosen)),
        "rules as on the device, logprobs for %d records, pinned", in->n_rec);
}

static void
mpl_pool_rows(struct mpl *m)
{
    char each[24] = "";

    mpl_add(m, "KV dummy block", MPL_KV, 0, m->block_bytes, "where padding writes");
    mpl_add(m, "KV blocks", MPL_KV, 0, (uint64_t)m->n_block * m->block_bytes,
        "%d blocks x %" PRIu64 " bytes", m->n_block, m->block_bytes);
    if (m->n_share > 1)
        (void)snprintf(each, sizeof(each), " x %d devices", m->n_share);
    mpl_add(m, "swap space", MPL_HOST_KV, 1,
        (uint64_t)m->n_host * m->block_bytes * (uint64_t)m->n_share,
        "%d blocks%s, pinned", m->n_host, each);
}

/* ---- blocks -------------------------------------------------------------------------- */

static int64_t
mpl_blocks_of(int64_t len, int64_t B)
{
    return (len + B - 1) / B;
}

int64_t
mpl_need(const struct mpl *m, int64_t n)
{
    int64_t sum = 0;

    for (int32_t g = 0; g < m->n_kv; g++)
        sum += m->most[g] > 0 && m->most[g] < n ? m->most[g] : n;
    return sum;
}

int32_t
mpl_most(const struct mpl *m, int32_t group)
{
    int64_t n = mpl_blocks_of(m->max_len, m->block_size);

    return (int32_t)(m->most[group] > 0 && m->most[group] < n ? m->most[group] : n);
}

/* Tokens of the longest sequence that fits in n blocks besides its decode blocks. */
static int64_t
mpl_longest(const struct mpl *m, int64_t n)
{
    int64_t lo = 0, hi = INT32_MAX;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (mpl_need(m, mid) <= n)
            lo = mid;
        else
            hi = mid;
    }
    return (lo - m->decode_blocks) * m->block_size;
}

/* Bytes that each rank may use: the utilization's share of the free memory, on the rank
 * with the least. Taken of free memory, so other processes on the device do not change
 * the share that stays free. */
static uint64_t
mpl_limit(const struct mpl_in *in)
{
    double share = in->is_cpu ? 1 : in->utilization;
    uint64_t limit = UINT64_MAX;

    for (int32_t i = 0; i < in->n_rank; i++) {
        uint64_t most = (uint64_t)((double)in->rank[i].mem_free * share);

        if (most < limit)
            limit = most;
    }
    return limit;
}

/* Usable blocks in this many bytes, not counting the dummy block. */
static int64_t
mpl_fit(uint64_t bytes, uint64_t block_bytes)
{
    uint64_t n = bytes / block_bytes;

    return n == 0 ? 0 : n > INT64_MAX ? INT64_MAX : (int64_t)n - 1;
}

/* Bytes of the pool on the CPU if no parameter sets them. Groups on the same machine
 * divide the share of one. */
static uint64_t
mpl_cpu_room(const struct mpl_in *in, uint64_t room)
{
    uint64_t bytes = room / 4 < MPL_CPU_MOST ? room / 4 : MPL_CPU_MOST;

    return in->n_group > 1 ? bytes / in->n_group : bytes;
}

/* Usable blocks for sequences of at most len tokens. */
static int
mpl_blocks(const struct mpl_in *in, const struct mpl *m, int64_t len, int64_t *ret,
    char *err, size_t err_bytes)
{
    uint64_t room = m->limit > m->fixed ? m->limit - m->fixed : 0, bytes = room;
    int64_t B = mpl_block_tokens(&in->kv[0]), n, cap = INT32_MAX / B - 1, most;
    char a[32], b[32], c[32];

    mpl_show_bytes(m->fixed, a, sizeof(a));
    mpl_show_bytes(m->limit, b, sizeof(b));
    if (m->fixed >= m->limit)
        return mpl_fail(-ENOSPC, err, err_bytes,
            "weights and buffers need %s but %s may be "
            "used; lower sched.max_num_batched_tokens or sched.max_num_seqs%s",
            a, b, in->is_cpu ? "" : ", raise kv.gpu_memory_utilization");
    if (in->num_blocks > 0)
        bytes = mpl_times((uint64_t)in->num_blocks + 1, m->block_bytes);
    else if (in->memory_bytes > 0)
        bytes = in->memory_bytes;
    else if (in->is_cpu)
        bytes = mpl_cpu_room(in, room);
    if (bytes > room) {
        mpl_show_bytes(bytes, a, sizeof(a));
        mpl_show_bytes(room, c, sizeof(c));
        return mpl_fail(-ENOSPC, err, err_bytes,
            "%s asks for a KV cache of %s but %s of %s "
            "are left after weights and buffers: at most %" PRId64 " blocks",
            in->num_blocks > 0 ? "kv.num_blocks" : "kv.memory_bytes", a, c, b,
            mpl_fit(room, m->block_bytes));
    }
    n = mpl_fit(bytes, m->block_bytes);
    most = mpl_need(m, mpl_blocks_of(len, B) + in->decode_blocks) * in->max_num_seqs;
    if (in->is_cpu && in->num_blocks == 0 && in->memory_bytes == 0 && n > most)
        n = most;
    /* block ids and KV slots are int32 */
    *ret = n < cap ? n : cap;
    return 0;
}

/* Check that a pool of n blocks holds a sequence of len tokens. */
static int
mpl_check_len(const struct mpl *m, int64_t len, int64_t n, uint64_t fixed, char *err,
    size_t err_bytes)
{
    int32_t B = m->block_size, extra = m->decode_blocks;
    int64_t need = mpl_need(m, mpl_blocks_of(len, B) + extra), fits = mpl_longest(m, n);
    uint64_t bytes = mpl_times((uint64_t)need + 1, m->block_bytes);
    char pool[32], all[32];

    if (need <= n)
        return 0;
    mpl_show_bytes(bytes, pool, sizeof(pool));
    mpl_show_bytes(mpl_sum(fixed, bytes), all, sizeof(all));
    if (fits < MPL_MIN_LEN)
        return mpl_fail(-ENOSPC, err, err_bytes,
            "the KV cache has %" PRId64 " blocks of %d "
            "tokens, too few for any request with kv.static_decode_blocks = %d; a block "
            "is %" PRIu64 " bytes: raise kv.gpu_memory_utilization, kv.memory_bytes or "
            "kv.num_blocks",
            n, B, extra, m->block_bytes);
    return mpl_fail(-ENOSPC, err, err_bytes,
        "model.max_model_len = %" PRId64 " needs %" PRId64
        " KV blocks of %d tokens and kv.static_decode_blocks = %d more, but %" PRId64
        " fit; the largest model.max_model_len that fits is %" PRId64 "; this one needs a "
        "KV cache of %s, %s in all",
        len, mpl_need(m, mpl_blocks_of(len, B)), B, extra, n, fits, pool, all);
}

static int
mpl_length(const struct mpl_in *in, int64_t *ret, char *err, size_t err_bytes)
{
    int64_t len = in->want_len;

    if (len > in->model_len)
        return mpl_fail(-EINVAL, err, err_bytes,
            "model.max_model_len = %" PRId64
            " exceeds the model's own limit %d; set model.max_model_len to at most %d, or "
            "to 0",
            len, in->model_len, in->model_len);
    if (!in->chunked && len > in->max_tokens)
        return mpl_fail(-EINVAL, err, err_bytes,
            "model.max_model_len = %" PRId64 " is more "
            "than sched.max_num_batched_tokens = %d, and without "
            "sched.enable_chunked_prefill a prompt must fit one step",
            len, in->max_tokens);
    if (len == 0)
        len = in->model_len;
    if (!in->chunked && len > in->max_tokens)
        len = in->max_tokens;
    *ret = len;
    return 0;
}

/* Check parameters that depend on the served length. */
static int
mpl_check_model(const struct mpl_in *in, const struct mpl *m, char *err, size_t err_bytes)
{
    if (in->max_partial > 1 && in->long_threshold >= m->max_len)
        return mpl_fail(-EINVAL, err, err_bytes,
            "sched.long_prefill_token_threshold = %" PRId64
            " must be less than the served length of %d tokens when "
            "sched.max_num_partial_prefills = %d is more than 1: no prompt would be long",
            in->long_threshold, m->max_len, in->max_partial);
    return 0;
}

static void
mpl_finish(struct mpl *m, int64_t n)
{
    int64_t places = mpl_blocks_of(m->max_len, m->block_size), need = mpl_need(m, places);

    m->n_block = (int32_t)n;
    m->tokens = n * places / need * m->block_size;
    n /= need;
    m->concurrency = n < m->max_seqs ? (int32_t)n : m->max_seqs;
}

static int32_t
mpl_n_share(const struct mpl_in *in)
{
    return in->n_share > 1 ? in->n_share : 1;
}

/* Number of host blocks in kv.swap_space GiB; each block takes block_bytes per rank. */
static int
mpl_host_blocks(const struct mpl_in *in, int32_t *ret, char *err, size_t err_bytes)
{
    const struct fdk_kv *kv = &in->kv[0];
    int32_t B = mpl_block_tokens(kv), n_share = mpl_n_share(in);
    double block_gib = (double)kv->block_bytes * n_share / 1073741824.0;
    double n = in->swap_gib / block_gib;
    char each[40] = "";

    if (n_share > 1)
        (void)snprintf(each, sizeof(each), " on each of %d devices", n_share);
    if (n > (double)(INT32_MAX / B - 1))
        return mpl_fail(-EINVAL, err, err_bytes,
            "kv.swap_space = %g GiB: more than %d blocks of %" PRIu64
            " bytes%s; set it to less",
            in->swap_gib, INT32_MAX / B - 1, kv->block_bytes, each);
    if (in->host_free > 0 && in->swap_gib * 1073741824.0 > (double)in->host_free)
        return mpl_fail(-ENOSPC, err, err_bytes,
            "kv.swap_space = %g GiB, but the machine has "
            "%.1f GiB of memory left; set kv.swap_space to less",
            in->swap_gib, (double)in->host_free / 1073741824.0);
    /* compare with the total: other groups may have allocated theirs already, or not
     * yet */
    if (in->n_group > 1 && in->host_total > 0 &&
        in->swap_gib * 1073741824.0 * in->n_group > (double)in->host_total)
        return mpl_fail(-ENOSPC, err, err_bytes,
            "kv.swap_space = %g GiB for each of parallel.data_parallel_size = %" PRIu32
            " groups, but the machine has %.1f GiB of memory; set kv.swap_space to less",
            in->swap_gib, in->n_group, (double)in->host_total / 1073741824.0);
    if (in->swap_gib > 0 && n < 1)
        return mpl_fail(-EINVAL, err, err_bytes,
            "kv.swap_space = %g GiB: less than a block of %" PRIu64
            " bytes%s; set it to %g or more, or to 0",
            in->swap_gib, kv->block_bytes, each, ceil(block_gib * 1e6) / 1e6);
    *ret = (int32_t)n;
    return 0;
}

int
mpl_begin(const struct mpl_in *in, struct mpl *ret, char *err, size_t err_bytes)
{
    struct mpl m = { .block_bytes = in->kv[0].block_bytes,
        .block_size = mpl_block_tokens(&in->kv[0]),
        .n_kv = in->n_kv,
        .n_share = mpl_n_share(in),
        .decode_blocks = in->decode_blocks,
        .max_seqs = in->max_num_seqs };
    int64_t len = 0;
    int rc = mpl_length(in, &len, err, err_bytes);

    if (rc == 0)
        rc = mpl_host_blocks(in, &m.n_host, err, err_bytes);
    if (rc != 0)
        return rc;
    m.limit = mpl_limit(in);
    m.by_limit = !in->is_cpu && in->num_blocks == 0 && in->memory_bytes == 0;
    m.max_len = (int32_t)len;
    memcpy(m.most, in->most, sizeof(m.most));
    *ret = m;
    return 0;
}

/* Complete the plan with a pool of n blocks. */
static int
mpl_end(const struct mpl_in *in, int64_t n, struct mpl *m, char *err, size_t err_bytes)
{
    int64_t B = m->block_size, max;

    mpl_finish(m, n);
    /* Reserve addresses for the blocks that mpl_settle() may add if graphs take less. */
    max = n + 1;
    if (m->by_limit)
        max += (int64_t)(mpl_bytes(m, MPL_GRAPHS) / m->block_bytes);
    m->max_block = (int32_t)(max < INT32_MAX / B ? max : INT32_MAX / B);
    mpl_pool_rows(m);
    return mpl_check_model(in, m, err, err_bytes);
}

/* Tables grow with the length. The second iteration has the final length, which is not
 * larger, so neither are its buffers. */
int
mpl_round(const struct mpl_in *in, const struct mpl_sizes *z, struct mpl *m, char *err,
    size_t err_bytes)
{
    int64_t len = m->max_len, n = 0;
    int rc;

    mpl_fixed_rows(in, z, m);
    rc = mpl_blocks(in, m, len, &n, err, err_bytes);
    if (rc != 0)
        return rc;
    if (m->round == 0 && in->want_len == 0 && mpl_longest(m, n) < len)
        len = mpl_longest(m, n);
    if (len < MPL_MIN_LEN && len < in->model_len)
        len = MPL_MIN_LEN;
    rc = mpl_check_len(m, len, n, m->fixed, err, err_bytes);
    if (rc != 0)
        return rc;
    m->max_len = (int32_t)len;
    return m->round++ == 0 ? 1 : mpl_end(in, n, m, err, err_bytes);
}

int
mpl_settle(struct mpl *m, uint64_t graphs, uint64_t mapped, const struct mpl_rank *rank,
    int32_t n_rank, char *err, size_t err_bytes)
{
    uint64_t fixed = m->fixed - mpl_bytes(m, MPL_GRAPHS) + graphs, room;
    int64_t n = m->n_block;
    struct mpl now = *m;
    int rc;

    if (m->by_limit) {
        room = m->limit > fixed ? m->limit - fixed : 0;
        for (int32_t i = 0; i < n_rank; i++)
            if (rank[i].mem_free + mapped < room)
                room = rank[i].mem_free + mapped;
        n = mpl_fit(room, m->block_bytes);
        if (n > m->max_block - 1)
            n = m->max_block - 1;
    }
    rc = mpl_check_len(m, m->max_len, n, fixed, err, err_bytes);
    if (rc != 0)
        return rc;
    now.fixed = fixed;
    now.device_bytes = fixed;
    now.host_bytes = 0;
    now.n_row = 0;
    mpl_finish(&now, n);
    for (int32_t i = 0; i < m->n_row; i++) {
        const struct mpl_row *r = &m->row[i];

        if (r->group == MPL_KV || r->group == MPL_HOST_KV)
            continue;
        now.row[now.n_row] = *r;
        if (r->group == MPL_GRAPHS && r->bytes != graphs) {
            now.row[now.n_row].bytes = graphs;
            (void)snprintf(now.row[now.n_row].how, sizeof(r->how), "as recorded");
        }
        if (r->host)
            now.host_bytes += r->bytes;
        now.n_row++;
    }
    mpl_pool_rows(&now);
    *m = now;
    return 0;
}
