/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/param_priv.h"

#include "daemon/common/devlist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The default for sched.max_num_batched_tokens = 0, and its upper bound. */
#define AUTO_CPU    512
#define AUTO_DEVICE 8192
#define AUTO_MOST   131072

const char par_program[] = "fdd", par_about[] = "the inference daemon";
const char par_named_kind[] = "", par_named_keys[] = "";

static int
is_pow2(int64_t v)
{
    return v > 0 && (v & (v - 1)) == 0;
}

static void
check_ipc(const struct par *p, struct par_say *say)
{
    /* Socket addresses hold 108 bytes with the NUL at the end. */
    static const size_t path_max = 107;
    int64_t bytes;

    if (!is_pow2(p->ipc_sq_slots))
        par_say_error(say, "ipc.sq_slots = %lld: must be a power of two",
            (long long)p->ipc_sq_slots);
    if (!is_pow2(p->ipc_cq_slots))
        par_say_error(say, "ipc.cq_slots = %lld: must be a power of two",
            (long long)p->ipc_cq_slots);
    /* two pages of shared words, 128 bytes per request slot, 64 per completion slot */
    bytes = p->ipc_sq_slots * 128 + p->ipc_cq_slots * 64 + p->ipc_arena_bytes + 8192;
    if (bytes > p->ipc_max_session_bytes)
        par_say_error(say,
            "ipc.max_session_bytes = %lld: a session of the "
            "default size needs %lld bytes (ipc.sq_slots %lld, ipc.cq_slots %lld, "
            "ipc.arena_bytes %lld)",
            (long long)p->ipc_max_session_bytes, (long long)bytes,
            (long long)p->ipc_sq_slots, (long long)p->ipc_cq_slots,
            (long long)p->ipc_arena_bytes);
    if (strlen(p->ipc_socket) > path_max)
        par_say_error(say,
            "ipc.socket: the path has %zu bytes; the limit for "
            "a socket is %zu",
            strlen(p->ipc_socket), path_max);
    if (strlen(p->ipc_admin_socket) > path_max)
        par_say_error(say,
            "ipc.admin_socket: the path has %zu bytes; the limit "
            "for a socket is %zu",
            strlen(p->ipc_admin_socket), path_max);
    if (p->ipc_socket[0] != '\0' && strcmp(p->ipc_socket, p->ipc_admin_socket) == 0)
        par_say_error(say, "ipc.admin_socket: it is the path of ipc.socket too");
    if (strlen(p->daemon_runtime_dir) > path_max - strlen("/admin.sock"))
        par_say_error(say,
            "daemon.runtime_dir: the path has %zu bytes; the "
            "limit, due to the sockets in it, is %zu",
            strlen(p->daemon_runtime_dir), path_max - strlen("/admin.sock"));
}

/* Check the tokens of a step against sequences, blocks and lengths. For 0 a fitting
 * number up to AUTO_MOST is chosen. */
static void
check_batch(const struct par *p, struct par_say *say)
{
    long long batch = p->sched_max_num_batched_tokens, seqs = p->sched_max_num_seqs,
              len = p->model_max_model_len, block = p->kv_block_size;

    if (batch == 0) {
        if (!p->sched_enable_chunked_prefill && len > AUTO_MOST)
            par_say_error(say,
                "model.max_model_len = %lld: without "
                "sched.enable_chunked_prefill a prompt must fit one step, which has at "
                "most %d tokens",
                len, AUTO_MOST);
        return;
    }
    if (batch < seqs)
        par_say_error(say,
            "sched.max_num_batched_tokens = %lld is less than "
            "sched.max_num_seqs = %lld: each sequence of a step needs a token",
            batch, seqs);
    if (p->sched_enable_chunked_prefill && batch < block)
        par_say_error(say,
            "sched.max_num_batched_tokens = %lld is less than "
            "kv.block_size = %lld: a split prompt advances by a block",
            batch, block);
    if (!p->sched_enable_chunked_prefill && len != 0 && batch < len)
        par_say_error(say,
            "sched.max_num_batched_tokens = %lld is less than "
            "model.max_model_len = %lld, and without sched.enable_chunked_prefill a "
            "prompt must fit one step",
            batch, len);
    if (len != 0 && batch > len * seqs)
        par_say_error(say,
            "sched.max_num_batched_tokens = %lld is more than "
            "model.max_model_len * sched.max_num_seqs = %lld * %lld",
            batch, len, seqs);
}

static void
check_prefills(const struct par *p, struct par_say *say)
{
    long long partial = p->sched_max_num_partial_prefills,
              many = p->sched_max_long_partial_prefills, len = p->model_max_model_len,
              threshold = p->sched_long_prefill_token_threshold;

    if (partial > 1 && !p->sched_enable_chunked_prefill)
        par_say_error(say,
            "sched.max_num_partial_prefills = %lld needs "
            "sched.enable_chunked_prefill = yes; else set it to 1",
            partial);
    if (partial > 0 && many > partial)
        par_say_error(say,
            "sched.max_long_partial_prefills = %lld is more "
            "than sched.max_num_partial_prefills = %lld",
            many, partial);
    if (partial > 1 && len != 0 && threshold >= len)
        par_say_error(say,
            "sched.long_prefill_token_threshold = %lld must be "
            "less than model.max_model_len = %lld when sched.max_num_partial_prefills = "
            "%lld is more than 1: no prompt would be long",
            threshold, len, partial);
}

static void
check_kv(const struct par *p, struct par_say *say)
{
    long long len = p->model_max_model_len, block = p->kv_block_size,
              blocks = p->kv_num_blocks;

    if (block != 16 && block != 32 && block != 64 && block != 128)
        par_say_error(say, "kv.block_size = %lld: must be 16, 32, 64 or 128", block);
    if (len != 0 && len < 16)
        par_say_error(say,
            "model.max_model_len = %lld: must be 0 "
            "or at least 16",
            len);
    if (blocks != 0 && p->kv_memory_bytes != 0)
        par_say_error(say,
            "kv.num_blocks = %lld and kv.memory_bytes = %lld "
            "both give the size of the KV cache: leave one of them 0",
            blocks, (long long)p->kv_memory_bytes);
    if (p->kv_swap_space > 0 && !p->kv_enable_prefix_caching)
        par_say_error(say,
            "kv.swap_space = %g needs kv.enable_prefix_caching "
            "= yes: it holds cached blocks; without them write 0",
            p->kv_swap_space);
    if (p->output_default_max_tokens != 0 && len != 0 && p->output_default_max_tokens >= len)
        par_say_error(say,
            "output.default_max_tokens = %lld leaves no token "
            "of model.max_model_len = %lld for a prompt",
            (long long)p->output_default_max_tokens, len);
}

static void
check_graph(const struct par *p, struct par_say *say)
{
    long long group = p->quant_group_size, batch = p->sched_max_num_batched_tokens, most,
              limit = p->graph_prefill_max_tokens;
    int on_cpu = p->device_backend == PAR_DEVICE_BACKEND_CPU ||
        p->device_backend == PAR_DEVICE_BACKEND_NULL;
    const char *last = strrchr(p->graph_capture_sizes, ',');

    if (group != 0 && group != 32 && group != 64 && group != 128)
        par_say_error(say, "quant.group_size = %lld: must be 0, 32, 64 or 128", group);
    /* The list is sorted. */
    most = strtoll(last != NULL ? last + 1 : p->graph_capture_sizes, NULL, 10);
    if (batch == 0)
        batch = par_max_batched_tokens(p, on_cpu);
    if (limit != 0 && most > limit)
        par_say_error(say,
            "graph.capture_sizes: %lld is more than "
            "graph.prefill_max_tokens = %lld; remove it or raise that",
            most, limit);
    if (most > batch)
        par_say_error(say,
            "graph.capture_sizes: %lld is more than the tokens "
            "of a step, sched.max_num_batched_tokens = %lld; remove it",
            most, batch);
}

static void
check_device(const struct par *p, struct par_say *say)
{
    char why[512];

    if (dvl_check(p->device_list, p->device_backend, p->device_test_entry,
            p->parallel_data_parallel_size, p->parallel_tensor_parallel_size,
            p->parallel_prefill_context_parallel_size, why, sizeof(why)) != 0)
        par_say_error(say, "%s", why);
}

/* Most devices of a group. */
#define MAX_RANKS 8

static void
check_copies(const struct par *p, struct par_say *say)
{
    long long n = p->parallel_tensor_parallel_size,
              m = p->parallel_prefill_context_parallel_size;

    if (n * m > MAX_RANKS)
        par_say_error(say,
            "parallel.prefill_context_parallel_size = %lld times "
            "parallel.tensor_parallel_size = %lld are %lld devices; a group has at most %d",
            m, n, n * m, MAX_RANKS);
}

static void
check_parallel(const struct par *p, struct par_say *say)
{
    long long n = p->parallel_tensor_parallel_size;

    check_copies(p, say);
    if (p->parallel_reference_splits > 1 &&
        n * p->parallel_prefill_context_parallel_size > 1)
        par_say_error(say,
            "parallel.reference_splits = %lld: it is for one device, and "
            "parallel.tensor_parallel_size = %lld, prefill_context_parallel_size = %lld; leave "
            "it at 1, or both of them",
            (long long)p->parallel_reference_splits, n,
            (long long)p->parallel_prefill_context_parallel_size);
    if (n * p->parallel_prefill_context_parallel_size == 1)
        return;
    if (p->parallel_prefill_context_parallel_size > 1 &&
        p->parallel_custom_all_reduce == PAR_PARALLEL_CUSTOM_ALL_REDUCE_NO)
        par_say_error(say,
            "parallel.custom_all_reduce = no: parallel.prefill_context_parallel_size = %lld "
            "copies write to each other's memory; write auto, or 1 copy",
            (long long)p->parallel_prefill_context_parallel_size);
    if (p->daemon_worker_hang_ms != 0 &&
        p->parallel_spin_limit_ms >= p->daemon_worker_hang_ms)
        par_say_error(say,
            "parallel.spin_limit_ms = %lld is not below daemon.worker_hang_ms = %lld: the "
            "worker would be killed before it can say which device did not answer",
            (long long)p->parallel_spin_limit_ms, (long long)p->daemon_worker_hang_ms);
}

/* The daemon has no named sections. */
void
par_check_named(const struct par_set *ps, struct par_say *say)
{
    (void)ps;
    (void)say;
}

void
par_check_each(const struct par *p, struct par_say *say)
{
    check_ipc(p, say);
    check_kv(p, say);
    check_batch(p, say);
    check_prefills(p, say);
    check_graph(p, say);
    check_device(p, say);
    check_parallel(p, say);
}

/* ---- values that follow from others ---------------------------------------------- */

int32_t
par_max_batched_tokens(const struct par *p, int is_cpu)
{
    int64_t n = p->sched_max_num_batched_tokens;

    if (n != 0)
        return (int32_t)n;
    n = is_cpu ? AUTO_CPU : AUTO_DEVICE;
    if (n < p->sched_max_num_seqs)
        n = p->sched_max_num_seqs;
    if (!p->sched_enable_chunked_prefill && n < p->model_max_model_len)
        n = p->model_max_model_len;
    return (int32_t)(n < AUTO_MOST ? n : AUTO_MOST);
}

int32_t
par_max_logprobs(const struct par *p)
{
    return p->output_enable_logprob ? (int32_t)p->output_max_logprobs : -1;
}

uint64_t
par_descriptors(const struct par *p)
{
    return ((uint64_t)p->ipc_max_clients + PAR_KEPT_CLIENTS) * PAR_SESSION_FDS + PAR_OWN_FDS;
}

int32_t
par_partial_prefills(const struct par *p)
{
    if (p->sched_max_num_partial_prefills != 0)
        return (int32_t)p->sched_max_num_partial_prefills;
    return p->sched_enable_chunked_prefill
        ? (int32_t)p->sched_max_long_partial_prefills + 1
        : 1;
}

int32_t
par_long_prefill(const struct par *p, int32_t max_model_len)
{
    int64_t n = p->sched_long_prefill_token_threshold;

    return (int32_t)(n != 0 ? n : (int64_t)max_model_len * 4 / 100);
}
