/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics that vLLM has under these names too, with the same meaning, kind, unit, labels
 * and bounds, for dashboards and alerts made for vLLM. vLLM's metrics of features that
 * fdd lacks (speculative decoding, LoRA, ...) are left out.
 *
 * s is a const struct cnt_seg *. label is "" or one more label with its value.
 *
 * VLN_ONE(kind, name, label, field, help)   one counter, unchanged; it has no other name
 * VLN_VALUE(kind, name, label, value, help) computed from several counters
 * VLN_OLD(kind, name, label, value, help)   a name vLLM dropped; printed only after vllm:
 * VLN_BOUNDS(bounds, ...)                   seconds or counts, a subset of fdd's bounds
 * VLN_HIST(name, own, hist, bounds, help)   own: its name after fdd_; "": it has none.
 *     own differs from name if promtool's linter refuses name.
 *
 * A file that includes this defines the macros it needs; all are undefined at the end.
 */
#ifndef VLN_ONE
#define VLN_ONE(kind, name, label, field, help)
#endif
#ifndef VLN_VALUE
#define VLN_VALUE(kind, name, label, value, help)
#endif
#ifndef VLN_OLD
#define VLN_OLD(kind, name, label, value, help)
#endif
#ifndef VLN_BOUNDS
#define VLN_BOUNDS(bounds, ...)
#endif
#ifndef VLN_HIST
#define VLN_HIST(name, own, hist, bounds, help)
#endif
VLN_ONE(gauge, num_requests_running, "", w.requests_running,
    "Requests with at least one sequence in the batch")
VLN_VALUE(gauge, num_requests_waiting, "", s->w.requests_waiting + s->g.requests_queued,
    "Requests that wait, in the daemon's queue or for blocks and rows")
VLN_VALUE(gauge, kv_cache_usage_perc, "",
    s->w.kv_blocks_total == 0 ? 0 :
    (double)s->w.kv_blocks_used / (double)s->w.kv_blocks_total,
    "Part of the KV blocks that sequences hold, 1 is all")
VLN_OLD(gauge, gpu_cache_usage_perc, "",
    s->w.kv_blocks_total == 0 ? 0 :
    (double)s->w.kv_blocks_used / (double)s->w.kv_blocks_total,
    "Older name of kv_cache_usage_perc")
VLN_VALUE(counter, prefix_cache_queries_total, "",
    s->w.prefix_lookups * s->w.kv_block_tokens,
    "Tokens looked for in the prefix cache, in whole blocks")
VLN_VALUE(counter, prefix_cache_hits_total, "", s->w.prefix_hits * s->w.kv_block_tokens,
    "Tokens found in the prefix cache, in whole blocks")
VLN_ONE(counter, num_preemptions_total, "", w.preemptions, "Sequences preempted")
VLN_VALUE(counter, prompt_tokens_total, "", s->w.prompt_tokens + s->w.cached_tokens,
    "Prompt tokens, computed or found in the prefix cache")
VLN_ONE(counter, prompt_tokens_by_source_total, "source=\"local_compute\"",
    w.prompt_tokens, "Prompt tokens by where they came from")
VLN_ONE(counter, prompt_tokens_by_source_total, "source=\"local_cache_hit\"",
    w.cached_tokens, "Prompt tokens by where they came from")
VLN_VALUE(counter, prompt_tokens_cached_total, "", s->w.cached_tokens,
    "Prompt tokens found in the prefix cache")
VLN_ONE(counter, generation_tokens_total, "", w.generation_tokens, "Tokens sampled")
VLN_ONE(counter, request_success_total, "finished_reason=\"stop\"", w.finished_stop,
    "Sequences and requests that ended, by reason")
VLN_ONE(counter, request_success_total, "finished_reason=\"length\"", w.finished_length,
    "Sequences and requests that ended, by reason")
VLN_ONE(counter, request_success_total, "finished_reason=\"abort\"", w.cancelled,
    "Sequences and requests that ended, by reason")
VLN_ONE(counter, request_success_total, "finished_reason=\"error\"", w.requests_broken,
    "Sequences and requests that ended, by reason")
VLN_ONE(counter, corrupted_requests_total, "", w.numeric_errors,
    "Sequences ended by NaN or infinity")

VLN_BOUNDS(ttft, 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5,
    5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
VLN_BOUNDS(token_time, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1,
    2.5, 5, 7.5, 10, 20, 40, 80)
VLN_BOUNDS(request, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120,
    240, 480, 960, 1920, 7680)
VLN_BOUNDS(step, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
VLN_BOUNDS(tokens, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000,
    50000, 100000, 200000, 500000, 1000000)
VLN_BOUNDS(n, 1, 2, 5, 10, 20)

VLN_HIST(time_to_first_token_seconds, "time_to_first_token_seconds", ttft, ttft,
    "Seconds from submit to the first token")
VLN_HIST(inter_token_latency_seconds, "inter_token_latency_seconds", itl, token_time,
    "Seconds between two tokens of a sequence that follow each other")
VLN_HIST(time_per_output_token_seconds, "", itl, token_time,
    "Older name of inter_token_latency_seconds")
VLN_HIST(request_time_per_output_token_seconds, "request_time_per_output_token_seconds",
    tpot, token_time, "Mean seconds per output token after the first, of a request")
VLN_HIST(e2e_request_latency_seconds, "e2e_request_latency_seconds", e2e, request,
    "Seconds from submit to the end of a request")
VLN_HIST(request_queue_time_seconds, "request_queue_time_seconds", queue, request,
    "Seconds from submit until a request is first scheduled")
VLN_HIST(request_prefill_time_seconds, "request_prefill_time_seconds", prefill, request,
    "Seconds from first scheduled to the first token")
VLN_HIST(request_decode_time_seconds, "request_decode_time_seconds", decode, request,
    "Seconds from the first token to the end of a request")
VLN_HIST(request_inference_time_seconds, "request_inference_time_seconds", inference,
    request, "Seconds from first scheduled to the end of a request")
VLN_HIST(request_prompt_tokens, "request_prompt_tokens", prompt_tokens, tokens,
    "Tokens of a request's prompt")
VLN_HIST(request_generation_tokens, "request_generation_tokens", gen_tokens, tokens,
    "Output tokens of a request, all samples")
VLN_HIST(request_max_num_generation_tokens, "request_max_num_generation_tokens",
    max_gen_tokens, tokens, "Output tokens of a request's longest sample")
VLN_HIST(request_params_n, "request_params_n", params_n, n, "Samples a request asks for")
VLN_HIST(request_params_max_tokens, "request_params_max_tokens", params_max_tokens,
    tokens, "Output tokens a request may have")
VLN_HIST(iteration_tokens_total, "iteration_tokens", step_tokens, step,
    "Tokens of an engine step")
#undef VLN_ONE
#undef VLN_VALUE
#undef VLN_OLD
#undef VLN_BOUNDS
#undef VLN_HIST
