/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Derives the engine's configuration from the parameters: step sizes, graph sizes. */
#include "config.h"

#include "daemon/worker/worker.h"

#include "daemon/common/log.h"

int
wrk_capture(const struct worker *w, const struct par *p, int *ret_use_graph,
    struct cap *ret, char *err, size_t err_bytes)
{
    int32_t tokens = par_max_batched_tokens(p, wrk_on_cpu(w)), max = tokens;
    int rc = 0;

    /* If both are automatic, the gate accepted the list without knowing the backend. */
    if (p->sched_max_num_batched_tokens == 0)
        max = CAP_MAX_TOKENS;
    if (p->graph_prefill_max_tokens > 0 && p->graph_prefill_max_tokens < max)
        max = (int32_t)p->graph_prefill_max_tokens;
    if (p->graph_capture_sizes[0] != '\0')
        rc = cap_parse(p->graph_capture_sizes, max, ret, err, err_bytes);
    else
        cap_default(max < tokens ? max : tokens, ret);
    if (rc == 0 && ret->size[ret->n - 1] > tokens) {
        log_warn("worker: graph.capture_sizes beyond %d, the tokens of a step, are left out",
            tokens);
        while (ret->n > 1 && ret->size[ret->n - 1] > tokens)
            ret->n--;
        if (ret->size[0] > tokens)
            ret->size[0] = tokens;
    }
    if (rc == 0)
        *ret_use_graph = p->graph_use_cudagraph != 0 && p->graph_prefill_max_tokens > 0;
    return rc;
}

/* Without chunked prefill there is no automatic ITL target, since prompts cannot be cut
 * by time. */
static uint64_t
wrk_itl_target(const struct par *p)
{
    if (p->sched_itl_target_ms < 0)
        return p->sched_enable_chunked_prefill ? SCH_ITL_AUTO : 0;
    return (uint64_t)(p->sched_itl_target_ms * 1e6);
}

/* Tokens that a token of the KV group's layers may read, including itself; 0: all before
 * it. */
static int32_t
wrk_kv_window(const struct worker *w, int32_t group)
{
    int32_t window = w->prog->kv_group[group].window;

    /* the backend counts tokens of one device */
    return window > 0 ? window + w->run->k->att_back * w->prog->kv_split : 0;
}

void
wrk_eng_cfg(const struct worker *w, struct eng_cfg *ret)
{
    const struct par *p = &w->par;
    int32_t n_seq = (int32_t)p->sched_max_num_seqs;

    *ret = (struct eng_cfg){ .max_reqs = (int32_t)p->sched_max_concurrency,
        .max_len = w->max_len,
        .n_block = w->n_block,
        .block_size = (int32_t)p->kv_block_size,
        .n_host = w->n_host,
        .n_copy = wrk_n_copy(w),
        .min_split = (int32_t)p->parallel_context_parallel_min_tokens,
        .depth = (int32_t)p->device_overlap_depth,
        .beat = &w->seg->w.beat,
        .sch = { .max_seqs = n_seq,
            .max_tokens = par_max_batched_tokens(p, wrk_on_cpu(w)),
            .chunked = p->sched_enable_chunked_prefill != 0,
            .max_partial = par_partial_prefills(p),
            .max_long = (int32_t)p->sched_max_long_partial_prefills,
            .long_threshold = par_long_prefill(p, w->max_len),
            .reserve_blocks =
                w->n_block - mpl_prompt_blocks(w->n_block, p->kv_kv_cache_ratio),
            .decode_blocks = (int32_t)p->kv_static_decode_blocks,
            .n_penalty = (int32_t)(p->sched_max_penalty_seqs < n_seq
                    ? p->sched_max_penalty_seqs
                    : n_seq),
            .fcfs = p->sched_policy == PAR_SCHED_POLICY_FCFS,
            .max_overtake_ns = p->sched_policy == PAR_SCHED_POLICY_FCFS
                ? 0
                : (uint64_t)p->sched_max_overtake_ms * 1000000,
            .itl_target_ns = wrk_itl_target(p),
            .key = w->key } };
    ret->n_group = w->prog->n_kv_group;
    for (int32_t g = 0; g < ret->n_group; g++)
        if (wrk_kv_window(w, g) < w->max_len)
            ret->window[g] = wrk_kv_window(w, g);
}

int32_t
wrk_kv_most(const struct worker *w, const struct eng_cfg *ec, int32_t group)
{
    int32_t window = wrk_kv_window(w, group);

    return window > 0 ? eng_kv_most(ec, window) : 0;
}
