/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and values of other servers' parameters that fdd accepts in addition to its own
 * (params.h), so that a command line written for those servers works, or fails with a
 * reason. No name is accepted and silently ignored.
 *
 * PAR_NOTE(section, key, aliases, kind, ok, known, text)
 *   key and aliases are accepted without a section and in any section; text says what
 *   applies instead. ok and known are lists separated by |, in lower case.
 *     WARN    is accepted, has no effect and prints a warning
 *     FLAG    is a boolean. A value listed in ok is accepted, the other one with a
 *             warning
 *     OFF     is accepted if it is off, empty or listed in ok. Values listed in known
 *             (* means any) are refused as not available, all others as invalid
 *     NEVER   is a boolean that must be no
 *     ONE     must be 1
 *     JSON    is an object without members, or with all members off. known: the keys that
 *             it may have
 *     SPEC    speculative_config: an object without method, or with method none. known:
 *             the keys that it may have
 *     GRAPH   graph_optimization_config: sets parameters of [graph]
 *     OVERLAP is a boolean: no sets device.overlap_depth to 0, yes to 2 if it is 0
 *     REDUCE  is a boolean: yes sets parallel.custom_all_reduce to no, no to auto
 *
 * PAR_VALUE(section, key, words, value)
 *   words are other spellings of value. If value is NULL, words are values that other
 *   servers know and fdd does not offer. The spelling {} means a JSON object.
 */

PAR_NOTE(compat, host, "", WARN, "", "",
    "fdd has no network port; clients use ipc.socket")
PAR_NOTE(compat, port, "", WARN, "", "",
    "fdd has no network port; clients use ipc.socket")
PAR_NOTE(compat, metrics_port, "", WARN, "", "",
    "fdd has no network port; fdctl stat reads the statistics")
PAR_NOTE(compat, engine_worker_queue_port, "", WARN, "", "",
    "gate and worker share memory and need no port")
PAR_NOTE(compat, cache_queue_port, "", WARN, "", "",
    "the KV cache is part of the worker and needs no port")
PAR_NOTE(compat, innode_prefill_ports, "", WARN, "", "", "fdd has no ports")
PAR_NOTE(compat, pd_comm_port, "", WARN, "", "", "fdd has no ports")
PAR_NOTE(compat, rdma_comm_ports, "", WARN, "", "", "fdd has no ports")
PAR_NOTE(compat, skip_port_check, "", WARN, "", "", "fdd has no ports")
PAR_NOTE(compat, workers, "", WARN, "", "", "one gate serves all clients")
PAR_NOTE(compat, api_key, "", WARN, "", "",
    "the permissions of ipc.socket and ipc.group decide who may connect")
PAR_NOTE(compat, timeout, "", WARN, "", "", "idle connections are kept")
PAR_NOTE(compat, enable_mm, "", FLAG, "", "",
    "it is deprecated; the model's architecture decides")
PAR_NOTE(compat, use_warmup, "daemon.warmup", FLAG, "yes|true|on|1", "",
    "the worker always warms up before it is ready")
PAR_NOTE(compat, enable_output_caching, "", FLAG, "", "",
    "outputs go straight to the clients")
PAR_NOTE(parallel, pipeline_parallel_size, "", ONE, "", "",
    "the devices of one machine compute each layer together")
PAR_NOTE(parallel, enable_expert_parallel, "parallel.expert_parallel", NEVER, "", "",
    "models with experts are not supported")
PAR_NOTE(parallel, disable_custom_all_reduce, "", REDUCE, "", "", "")
PAR_NOTE(parallel, enable_eplb, "", NEVER, "", "", "models with experts are not supported")
PAR_NOTE(parallel, splitwise_role, "pd.role", OFF, "mixed", "prefill|decode",
    "one worker computes prompts and answers")
PAR_NOTE(parallel, router, "", OFF, "", "*", "one daemon serves one machine")
PAR_NOTE(kv, kvcache_storage_backend, "", OFF, "", "*",
    "cached blocks are kept on the device and in kv.swap_space")
PAR_NOTE(model, dynamic_load_weight, "reload.enable", NEVER, "", "",
    "weights are loaded once, at the start")
PAR_NOTE(model, load_strategy, "", OFF, "normal", "ipc|ipc_snapshot|meta|rsync",
    "weights are read from the model's files")
PAR_NOTE(model, limit_mm_per_prompt, "", JSON, "", "image|video|audio",
    "prompts are text or token ids")
PAR_NOTE(model, mm_processor_kwargs, "", JSON, "",
    "spatial_conv_size|temporal_conv_size|image_min_pixels|image_max_pixels|"
    "video_min_pixels|video_max_pixels|video_target_frames|video_frames_sample|"
    "video_min_frames|video_max_frames|video_fps|min_pixels|max_pixels|num_crops|fps",
    "prompts are text or token ids")
PAR_NOTE(model, deploy_modality, "multimodal.deploy", OFF, "text", "mixed",
    "prompts are text or token ids")
PAR_NOTE(graph, graph_optimization_config, "", GRAPH, "", "",
    "there is one kind of graph, recorded at the start")
PAR_NOTE(device, enable_overlap_schedule, "", OVERLAP, "", "", "")
PAR_NOTE(sched, scheduler_name, "", OFF, "local", "global|splitwise|dp",
    "one scheduler per daemon")
PAR_NOTE(sched, speculative_config, "", SPEC, "",
    "method|mtp_strategy|num_speculative_tokens|num_model_steps|max_candidate_len|"
    "verify_window|min_ngram_size|max_ngram_size|suffix_decoding_max_tree_depth|"
    "suffix_decoding_max_cached_requests|suffix_decoding_max_spec_factor|"
    "suffix_decoding_min_token_prob|model|quantization|num_gpu_block_expand_ratio|"
    "model_type|sharing_model|benchmark_mode|enf_gen_phase_tag|enable_draft_logprob|"
    "num_extra_cache_layer|prompt_lookup_min|prompt_lookup_max|max_model_len|revision|"
    "draft_tensor_parallel_size|disable_by_batch_size",
    "each step adds one token to a sequence")
PAR_NOTE(output, guided_decoding_backend, "guided.backend", OFF, "",
    "auto|xgrammar|guidance|outlines|builtin", "guided decoding is not offered")
PAR_NOTE(output, guided_decoding_disable_any_whitespace, "guided.disable_any_whitespace",
    NEVER, "", "", "guided decoding is not offered")
PAR_NOTE(output, reasoning_parser, "", OFF, "",
    "ernie-45-vl|qwen3|ernie-x1|ernie-45-vl-thinking",
    "fdd sends each answer as one text")
PAR_NOTE(output, tool_call_parser, "", OFF, "", "*", "fdd sends each answer as one text")
PAR_NOTE(output, logits_processors, "", OFF, "", "*", "there are no plugins")
PAR_NOTE(output, logprobs_mode, "", OFF, "raw_logprobs",
    "processed_logprobs|raw_logits|processed_logits",
    "logprobs are those of the raw logits")
PAR_NOTE(output, enable_early_stop, "", NEVER, "", "", "there is no repetition detection")
PAR_NOTE(output, early_stop_config, "", JSON, "",
    "enable_early_stop|strategy|window_size|threshold", "there is no repetition detection")
PAR_NOTE(output, enable_entropy, "", NEVER, "", "", "there is no such statistic")

PAR_VALUE(sched, max_num_batched_tokens, "none|null", "0")
PAR_VALUE(model, max_model_len, "none|null", "0")
PAR_VALUE(model, load_format, "default|default_v1", "auto")
PAR_VALUE(quant, weights, "|none|no|null|off|false", "none")
PAR_VALUE(quant, weights,
    "block_wise_fp8|block_fp8|wfp8afp8|w4afp8|w4a8|wint2|mix_quant|{}", NULL)
PAR_VALUE(graph, capture_sizes, "none|null", "")
PAR_VALUE(parallel, tensor_parallel_size, "none|null", "1")
PAR_VALUE(parallel, prefill_context_parallel_size, "none|null", "1")
PAR_VALUE(parallel, decode_context_parallel_size, "none|null", "1")
PAR_VALUE(parallel, custom_all_reduce, "true|on|1", "yes")
PAR_VALUE(parallel, custom_all_reduce, "false|off|0|none|null", "no")
PAR_VALUE(kv, num_blocks, "none|null", "0")
PAR_VALUE(kv, swap_space, "none|null", "0")
PAR_VALUE(kv, dtype, "none|null", "auto")
PAR_VALUE(kv, dtype, "float32", "fp32")
PAR_VALUE(kv, dtype, "bfloat16", "bf16")
PAR_VALUE(kv, dtype, "float8_e4m3|float8_e4m3fn|fp8_e4m3", "fp8")
PAR_VALUE(kv, dtype, "int4|{}", NULL)
PAR_VALUE(output, max_logprobs, "-1", NULL)
