/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Every parameter of the daemon. This table generates struct par, the parser, --set,
 * fdctl config, conf/fdd.ini and fdd.ini(5).
 *
 * PAR_INT (section, key, aliases, unit, min, default, max, flags, help)
 * PAR_DBL (section, key, aliases, unit, min, default, max, flags, help)
 * PAR_BOOL(section, key, aliases, default, flags, help)
 * PAR_ENUM(section, key, aliases, PAR_C(SECTION_KEY_A, "a") PAR_C(...), "default", flags,
 *     help)
 * PAR_STR (section, key, aliases, "default", flags, help)
 *
 * A key is written with - or _. Aliases, comma separated, are names that --set and the
 * file accept without a section, or section.key; "name*1000" is an alias whose unit is
 * 1000 times as large, and whose negative values mean 0. param_notes.h has the accepted
 * names that have no row here.
 * Flags: RELOAD: may change while fdd runs (SIGHUP, fdctl set); RESTART: needs a restart
 * of fdd. LIST: comma-separated entries that accumulate over the files of fdd.ini.d; of
 * two with the same text before = or :, the later applies.
 * A number may be followed by its unit (bytes, GiB, tokens, us, ms, s) or a multiple of
 * it (param_value.c). Keys of sizes end in _bytes.
 */

PAR_STR(daemon, runtime_dir, "", "", RESTART,
    "Folder of the sockets and the lock. Empty: $FDD_RUNTIME_DIR, else "
    "$RUNTIME_DIRECTORY (systemd), else /run/fdd for root, else $XDG_RUNTIME_DIR/fdd; "
    "an instance uses the folder of its name in there.")
PAR_STR(daemon, worker, "", "", RESTART,
    "Path of the fdd-worker program. Empty: fdd-worker in the folder of fdd, else the "
    "installed one; fdd-worker-cuda (package fdd-cuda) instead where it is installed, "
    "unless device.backend is cpu or null.")
PAR_INT(daemon, drain_timeout_ms, "timeout_graceful_shutdown*1000", "ms", 0, 30000,
    3600000, RELOAD,
    "How long fdctl drain, fdctl stop and SIGTERM wait for running requests.")
PAR_INT(daemon, worker_start_timeout_ms, "", "ms", 1000, 600000, 86400000, RELOAD,
    "A worker that is not ready after this time is ended and started again.")
PAR_INT(daemon, worker_hang_ms, "", "ms", 0, 5000, 86400000, RELOAD,
    "A ready worker that has shown no sign of life for this long, and for ten times the "
    "expected time of its step, is killed and replaced; its requests end with "
    "E_GPU_RESET. Not while it records graphs, is profiled or is held by a debugger. 0: "
    "no worker is killed.")
PAR_INT(daemon, crash_max, "", "", 1, 5, 1000, RELOAD,
    "Worker deaths within crash_window_s after which no further worker is started.")
PAR_INT(daemon, crash_window_s, "", "s", 1, 600, 86400, RELOAD,
    "Time over which crash_max counts worker deaths.")
PAR_INT(daemon, restart_max_ms, "", "ms", 100, 10000, 600000, RELOAD,
    "Longest pause before a worker that died is started again. The pause is 100 ms at "
    "first, and doubles each time the worker dies before it was ready for a minute.")
PAR_STR(daemon, cache_dir, "CacheDirectory", "", RESTART,
    "Folder for measured peaks and tuned choices. Empty: $CACHE_DIRECTORY, else "
    "/var/cache/fdd for root, else $XDG_CACHE_HOME/fdd.")

PAR_STR(ipc, socket, "", "", RESTART,
    "Client socket. Empty: $FDD_SOCKET, unless daemon.runtime_dir or an instance is "
    "named; else fdd.sock in daemon.runtime_dir.")
PAR_STR(ipc, admin_socket, "", "", RESTART,
    "Admin socket. Empty: admin.sock in daemon.runtime_dir.")
PAR_STR(ipc, group, "", "fdd", RESTART,
    "Group that may use the client socket (mode 0660) and read status and statistics. "
    "Ignored when it does not exist.")
PAR_STR(ipc, admin_group, "", "fdd-admin", RESTART,
    "Group that may use every admin command. Ignored when it does not exist.")
PAR_STR(ipc, trusted_users, "", "", RELOAD | LIST,
    "User names or uids, comma separated, that may act for other users (request.user) "
    "and exceed the limits per client.")
PAR_INT(ipc, max_clients, "", "sessions", 1, 256, 65536, RELOAD,
    "Most sessions at a time; root, the daemon's own user and trusted users have 16 "
    "more. When all are taken, a new session of a user with fewer sessions replaces the "
    "one that was idle longest among those of the user with most.")
PAR_INT(ipc, max_clients_per_user, "", "sessions", 1, 64, 65536, RELOAD,
    "Sessions of one user at a time.")
PAR_INT(ipc, connects_per_second, "", "1/s", 1, 50, 1000000, RELOAD,
    "Connections of one user accepted per second, with a burst of three times as many.")
PAR_BOOL(ipc, refuse_own_uid, "", 0, RELOAD,
    "Refuse clients that run as the daemon's own user, as its worker does, and do not "
    "accept that user as an administrator.")
PAR_INT(ipc, handshake_timeout_ms, "", "ms", 10, 2000, 60000, RELOAD,
    "A connection that has not finished its handshake after this time is closed.")
PAR_INT(ipc, sq_slots, "", "slots", 16, 256, 65536, RESTART,
    "Request slots of a session (power of two) when the client names no number.")
PAR_INT(ipc, cq_slots, "", "slots", 64, 4096, 1048576, RESTART,
    "Completion slots of a session (power of two) when the client names no number.")
PAR_INT(ipc, arena_bytes, "", "bytes", 65536, 1048576, 67108864, RESTART,
    "Memory for the prompts of a session when the client names no size.")
PAR_INT(ipc, max_session_bytes, "", "bytes", 1048576, 16777216, 268435456, RESTART,
    "Shared memory that one session may ask for.")
PAR_INT(ipc, slow_client_ms, "", "ms", 100, 30000, 3600000, RELOAD,
    "The requests of a client whose completion ring stays full for this long end with "
    "E_SLOW.")
PAR_INT(ipc, spin_us, "", "us", -1, -1, 10000, RESTART,
    "How long gate and worker poll after traffic before they sleep. -1: 50 with eight "
    "or more processors, else 0. Unless it is set to 0 or there is only one processor, "
    "the gate also polls for 40 us after it sent the worker something.")

PAR_INT(sched, max_concurrency, "max_concurrency,ipc.max_concurrency", "requests", 1, 512,
    65536, RESTART,
    "Requests accepted at a time, running and waiting. The last of these places, one in "
    "16 and at most 64, are kept for users who have no request.")
PAR_INT(sched, max_inflight_per_client, "", "requests", 1, 128, 65536, RELOAD,
    "Requests of one session at a time.")
PAR_INT(sched, max_inflight_per_user, "", "requests", 1, 512, 65536, RELOAD,
    "Requests of one user at a time.")
PAR_INT(sched, max_bytes_per_user, "", "bytes", 1048576, 268435456, 17179869184, RELOAD,
    "Prompt bytes the daemon holds for one user at a time.")
PAR_INT(sched, max_num_seqs, "max_num_seqs", "sequences", 1, 256, 1024, RESTART,
    "Sequences in one step.")
PAR_INT(sched, reserved_seqs, "", "sequences", -1, -1, 1024, RELOAD,
    "Places among max_num_seqs that only users without a sequence there may take, so "
    "that one user's long answers do not keep another from starting. In force where "
    "members of ipc.group may connect, else while there are two users or more. -1: one "
    "in 128, but at least one where max_num_seqs is 16 or more.")
PAR_INT(sched, max_num_batched_tokens, "max_num_batched_tokens", "tokens", 0, 0,
    131072, RESTART,
    "Most tokens in one step, which sets the size of its buffers. A prompt may have all "
    "of them while no answers run; else sched.itl_target_ms limits a step to fewer. 0: "
    "512 on the CPU, else 8192; without chunked prefill as many as a prompt may have: "
    "model.max_model_len, or the model's own length up to 8192.")
PAR_BOOL(sched, enable_chunked_prefill, "enable_chunked_prefill,chunked_prefill", 1,
    RESTART,
    "Split prompts over steps.")
PAR_INT(sched, max_num_partial_prefills, "max_num_partial_prefills", "prompts", 0, 0,
    1024, RESTART,
    "Prompts that may be split over steps at a time. More than 1 needs "
    "sched.enable_chunked_prefill. 0: one more than sched.max_long_partial_prefills, so "
    "that a shorter prompt never waits for a long one; 1 without "
    "sched.enable_chunked_prefill.")
PAR_INT(sched, max_long_partial_prefills, "max_long_partial_prefills", "prompts", 1, 1,
    1024, RESTART,
    "How many of the sched.max_num_partial_prefills prompts may be long.")
PAR_INT(sched, long_prefill_token_threshold, "long_prefill_token_threshold", "tokens", 0,
    0, 16777216, RESTART,
    "A prompt of more tokens than this is long. 0: 4 % of model.max_model_len.")
PAR_ENUM(sched, policy, "",
    PAR_C(SCHED_POLICY_PRIORITY, "priority") PAR_C(SCHED_POLICY_FCFS, "fcfs"), "priority",
    RESTART,
    "Order of waiting requests. priority: by their priority, then as "
    "sched.max_overtake_ms says; a request that lacks KV blocks or a place among "
    "max_num_seqs preempts running ones of a worse priority. fcfs: by arrival only.")
PAR_INT(sched, max_overtake_ms, "", "ms", 0, 1000, 3600000, RESTART,
    "A prompt, waiting or partly computed, is passed by prompts with less work left "
    "until it has been with the worker for this long. Such a prompt passes one of "
    "another user only if its own user holds no more rows. Without effect with "
    "sched.policy = fcfs. 0: prompts are passed only by priority.")
PAR_DBL(sched, itl_target_ms, "", "ms", -1, -1, 100000, RESTART,
    "Prompt tokens of a step are cut so that its predicted time keeps running answers "
    "within this time per token, and a first token does not wait for other prompts of "
    "its step. Where no answers run, one prompt may have all of "
    "sched.max_num_batched_tokens. -1: prompts take at most 18 ms of a step; the more of "
    "them wait, up to 80 % of the step, from 18 to 39 ms. A long prompt takes 39 ms, or "
    "as much as makes a step of 44 ms. If the device needs longer to reach 80 % of its "
    "prompt speed, that long. fdctl status shows the longest of these for one answer. "
    "Without sched.enable_chunked_prefill, none. 0: no such limit.")
PAR_INT(sched, max_penalty_seqs, "", "sequences", 0, 64, 1024, RESTART,
    "Running sequences that may use penalties, biases, allowed or banned tokens, "
    "logprobs of chosen ids or a limit on reasoning at a time; further ones wait until "
    "one of them ends. Each takes two bytes and one bit per vocabulary entry, and 45 "
    "KiB, on the device and on the host. 0: such requests are rejected.")
PAR_INT(sched, max_queued_tokens, "", "tokens", 0, 0, 1099511627776, RELOAD,
    "Prompt and output tokens of the requests that may wait for the worker; beyond "
    "that, requests are rejected with a time after which to retry. 0: 1024 for each of "
    "sched.max_concurrency, so that requests of usual length reach that limit first and "
    "long ones this one. While none waits, no request is too long for it. Users without "
    "a request share another sixteenth on top, or have one request of any length.")
PAR_STR(sched, user_weights, "", "", RELOAD | LIST,
    "Shares of users in fair queueing: name or uid, a colon, the weight (1 to 1000), "
    "comma separated (alice:4,1000:2). Others have 1.")
PAR_INT(sched, max_waiting_time_ms, "max_waiting_time*1000,ipc.max_waiting_time*1000",
    "ms", 0, 0, 86400000, RELOAD,
    "Requests that have not started after this time end with E_DEADLINE. 0: no limit.")
PAR_INT(sched, seed, "seed", "", 0, 0, 9223372036854775807, RESTART,
    "Seed from which the seeds of requests that name none are drawn. 0: from the "
    "system.")

PAR_STR(model, path, "model", "", RESTART,
    "Model directory in the Hugging Face layout. The word null runs the echo model "
    "that answers with the prompt (tests).")
PAR_STR(model, name, "served_model_name", "", RESTART,
    "Name shown to clients. Empty: the directory's name.")
PAR_STR(model, tokenizer, "tokenizer", "", RESTART,
    "Folder of tokenizer.json. Empty: model.path.")
PAR_ENUM(model, generation_config, "generation_config",
    PAR_C(MODEL_GENERATION_CONFIG_AUTO, "auto") PAR_C(MODEL_GENERATION_CONFIG_OFF, "off"),
    "auto", RESTART,
    "auto: a request that does not set temperature, top_p, top_k, min_p or "
    "repetition_penalty gets the value of the model's generation_config.json; a model "
    "with do_sample false is greedy unless the request sets a temperature. off: it gets "
    "1, 1, 0, 0 and 1.")
PAR_INT(model, max_model_len, "max_model_len", "tokens", 0, 0, 16777216, RESTART,
    "Most tokens of a request, prompt and output together. 0: as many as the model and "
    "the KV cache allow; else at least 16.")
PAR_ENUM(model, load_format, "load_format,load_choices",
    PAR_C(MODEL_LOAD_FORMAT_AUTO, "auto")
    PAR_C(MODEL_LOAD_FORMAT_SAFETENSORS, "safetensors")
    PAR_C(MODEL_LOAD_FORMAT_DUMMY, "dummy"), "auto", RESTART,
    "dummy: random weights of realistic scale, made from config.json only.")
PAR_BOOL(model, load_uring, "", 1, RESTART,
    "Read weights by io_uring where the system allows it, else by pread.")
PAR_INT(model, load_buffer_bytes, "", "bytes", 1048576, 67108864, 1073741824, RESTART,
    "Staging memory for reading weights.")
PAR_INT(model, dummy_seed, "", "", 0, 1, 9223372036854775807, RESTART,
    "Seed of dummy weights.")

PAR_ENUM(quant, weights, "quantization",
    PAR_C(QUANT_WEIGHTS_NONE, "none") PAR_C(QUANT_WEIGHTS_WINT8, "wint8")
    PAR_C(QUANT_WEIGHTS_WINT4, "wint4") PAR_C(QUANT_WEIGHTS_FP8, "fp8"), "none", RESTART,
    "Quantize 16-bit or 32-bit weights of the model to integers or to 8-bit floats "
    "(e4m3) while they are loaded; activations stay as they are. A checkpoint that is "
    "already fp8 is served as it is, with the value none; one quantized in another way "
    "is refused.")
PAR_INT(quant, group_size, "", "inputs", 0, 0, 128, RESTART,
    "Number of inputs of an output that share a scale: 32, 64 or 128. 0: all of them.")

PAR_ENUM(device, backend, "",
    PAR_C(DEVICE_BACKEND_AUTO, "auto") PAR_C(DEVICE_BACKEND_CPU, "cpu")
    PAR_C(DEVICE_BACKEND_CUDA, "cuda") PAR_C(DEVICE_BACKEND_NULL, "null"), "auto", RESTART,
    "Where the model runs. auto: cuda when there is a CUDA device, else cpu.")
PAR_STR(device, list, "", "", RESTART,
    "Devices of the model, comma separated: cuda:0 (by number), GPU-1a2b3c or MIG-1a2b3c (start of "
    "a UUID as nvidia-smi -L prints it, with or without cuda:), cuda:* (all, in the order of their "
    "numbers) or cpu:4 (four virtual devices on the processors). List as many as "
    "parallel.tensor_parallel_size times parallel.prefill_context_parallel_size times "
    "parallel.data_parallel_size. Empty: the first devices of device.backend. CUDA devices, and "
    "those of cpu:N if it is listed, are locked against the user's other daemons.")
PAR_INT(device, test_entry, "", "", -1, -1, 31, RESTART,
    "Run the model on this entry of device.list, counted from 0, and let every call to "
    "a device of another entry fail (tests). -1: each group uses its own entries.")
PAR_BOOL(device, shared, "", 0, RESTART,
    "Use the device together with other daemons of the user; each of them must set "
    "this.")
PAR_INT(device, threads, "", "threads", 0, 0, 1024, RESTART,
    "Threads of each device of the CPU backend. 0: one per processor, shared out among "
    "the devices.")
PAR_INT(device, nice, "", "", 0, 10, 19, RESTART,
    "Nice value that is added for the threads of the CPU backend that compute. They occupy "
    "all processors: with equal nice values a client that is answered would wait for one. In a "
    "control group of its own, as systemd starts it, the daemon's share does not depend on it.")
PAR_INT(device, overlap_depth, "", "steps", 0, 2, 4, RESTART,
    "Steps launched ahead of the one whose results are awaited, so that the device never "
    "waits for the host. 0 is the simple loop, the reference.")
PAR_BOOL(device, deterministic, "enable_deterministic_inference", 0, RESTART,
    "The results of a request never depend on the rest of the batch, bit for bit; on a "
    "GPU, this slows down prompts and steps of more than 128 rows. On the CPU they "
    "never do, whatever is set here.")
PAR_BOOL(device, fused_step, "", 1, RESTART,
    "On a GPU, a step of one row runs all layers as one kernel where that is possible, "
    "and a step of up to 128 rows runs the MLP's gate, up and their product as one "
    "kernel. no: each operation is a kernel of its own, the reference.")
PAR_INT(device, step_delay_us, "", "us", 0, 0, 10000000, RESTART,
    "Least time for which a step keeps the CPU or the null backend busy (tests).")

PAR_INT(parallel, tensor_parallel_size, "tensor_parallel_size", "devices", 1, 1, 8, RESTART,
    "Devices of a group, which share the model's weights and compute each step "
    "together: consecutive ones of device.list. Their number must divide the model's "
    "attention heads and MLP, and divide its KV heads or be a multiple of them; an "
    "error lists the possible sizes.")
PAR_INT(parallel, prefill_context_parallel_size,
    "prefill_context_parallel_size,sequence_parallel_size", "copies", 1, 1, 8, RESTART,
    "Copies of the model in a group, which divide the tokens of long prompts and each "
    "compute everything else, for a shorter time to the first token. Each has "
    "parallel.tensor_parallel_size devices, and holds the whole KV cache, or its share "
    "of the tokens (parallel.decode_context_parallel_size).")
PAR_INT(parallel, context_parallel_min_tokens, "", "tokens", 0, 0, 1048576, RESTART,
    "Copies divide a prompt of which a step computes this many tokens or more. 0: the "
    "number from which on dividing was faster, as measured at the start.")
PAR_INT(parallel, decode_context_parallel_size, "decode_context_parallel_size", "devices", 0, 0, 8,
    RESTART,
    "Number of devices that divide the tokens of each KV block among them, so that the "
    "KV cache holds that many times the tokens. They are some of the devices that hold "
    "the same KV heads, as several do where the model has fewer KV heads than there are "
    "devices. With parallel.prefill_context_parallel_size copies they may also be all "
    "that hold them in all copies. 0: all of one copy on the CPU, 1 on a GPU.")
PAR_INT(parallel, overlap_min_tokens, "", "tokens", -1, 0, 1048576, RESTART,
    "Where two devices share the weights, steps of this many tokens and more that are "
    "not recorded as graphs go through the layers in two halves: the sums of one half "
    "travel between the devices while the other half is computed. Takes memory for "
    "these sums, and buffers of one layer no longer share memory. 0: on GPUs from 1,024 "
    "tokens on, never on the CPU. -1: never.")
PAR_INT(parallel, data_parallel_size, "data_parallel_size", "groups", 1, 1, 32, RESTART,
    "Groups of devices, each with a copy of the model and a worker of its own; requests "
    "are spread over them. Sizes that are set for a step, the KV cache and the host's "
    "memory apply to each group.")
PAR_INT(parallel, reference_splits, "", "", 1, 1, 8, RESTART,
    "One device of the CPU backend adds in the order of this many ranks, so that its "
    "answers equal theirs bit for bit (tests).")
PAR_INT(parallel, spin_limit_ms, "", "ms", 10, 2000, 600000, RESTART,
    "A device that has waited this long, from its own arrival, for another one of its "
    "group gives up: the worker ends and names the device that did not arrive. Less "
    "than daemon.worker_hang_ms.")
PAR_ENUM(parallel, custom_all_reduce, "enable_custom_all_reduce",
    PAR_C(PARALLEL_CUSTOM_ALL_REDUCE_AUTO, "auto")
    PAR_C(PARALLEL_CUSTOM_ALL_REDUCE_YES, "yes")
    PAR_C(PARALLEL_CUSTOM_ALL_REDUCE_NO, "no"), "auto", RESTART,
    "Sum over the devices by kernels that write to the other devices' memory. no: "
    "exchanged data and the table of embeddings are in the host's memory, which is "
    "slower. auto: no where devices of a group do not reach each other's memory "
    "(nvidia-smi topo -p2p r), else yes. Copies "
    "(parallel.prefill_context_parallel_size) need yes.")

PAR_BOOL(graph, use_cudagraph, "use_cudagraph,device.graph", 1, RELOAD,
    "Replay recorded graphs where the backend has them. no: each operation is launched "
    "by itself (the reference).")
PAR_STR(graph, capture_sizes, "cudagraph_capture_sizes", "", RELOAD,
    "Padded token counts to record, comma separated. Empty: 1, 2, 4, 8 to 128 by 8, 144 "
    "to 256 by 16, 288 to 1024 by 32, up to graph.prefill_max_tokens.")
PAR_INT(graph, prefill_max_tokens, "max_capture_shape_prefill", "tokens", 0, 512, 131072,
    RESTART,
    "Largest padded token count that is recorded; larger steps are launched operation "
    "by operation.")
PAR_ENUM(graph, capture, "",
    PAR_C(GRAPH_CAPTURE_LAZY, "lazy") PAR_C(GRAPH_CAPTURE_EAGER, "eager"), "eager", RESTART,
    "eager: record all sizes before the worker is ready. lazy: record each at its first "
    "use.")

PAR_INT(kv, block_size, "block_size", "tokens", 16, 64, 128, RESTART,
    "Tokens in a KV block: 16, 32, 64 or 128.")
PAR_INT(kv, num_blocks, "num_gpu_blocks_override", "blocks", 0, 0, 16777216, RESTART,
    "Number of KV blocks. 0: as many as fit in kv.memory_bytes.")
PAR_INT(kv, memory_bytes, "", "bytes", 0, 0, 1099511627776, RESTART,
    "Memory of the KV cache. 0: on a GPU the memory that kv.gpu_memory_utilization "
    "leaves; on the CPU a quarter of the free memory, but at most 4 GiB and at most "
    "what max_num_seqs sequences of max_model_len need.")
PAR_DBL(kv, gpu_memory_utilization, "gpu_memory_utilization", "", 0.05, 0.9, 0.98, RESTART,
    "Share of a device's free memory that fdd may take at its start; memory that other "
    "programs hold does not count. Weights, buffers and graphs come first, the KV cache "
    "gets the rest. No effect on the CPU.")
PAR_DBL(kv, kv_cache_ratio, "kv_cache_ratio", "", 0.05, 1, 1, RESTART,
    "Share of the blocks that may be in use after a new prompt is admitted; answers that "
    "grow may use the rest too.")
PAR_INT(kv, static_decode_blocks, "static_decode_blocks", "blocks", 0, 2, 64, RESTART,
    "Blocks granted beyond the prompt when a request is admitted.")
PAR_BOOL(kv, enable_prefix_caching, "enable_prefix_caching,prefix_caching", 1, RESTART,
    "Keep the blocks of ended requests and use them again for prompts of the same user "
    "that begin with the same tokens.")
PAR_DBL(kv, swap_space, "swap_space,swap_space_gb", "GiB", 0, 0, 4096, RESTART,
    "Host memory of each group for cached blocks that are evicted from the device.")
PAR_ENUM(kv, dtype, "kv_dtype,kv_cache_dtype",
    PAR_C(KV_DTYPE_AUTO, "auto") PAR_C(KV_DTYPE_FP32, "fp32") PAR_C(KV_DTYPE_BF16, "bf16")
    PAR_C(KV_DTYPE_FP8, "fp8") PAR_C(KV_DTYPE_INT8, "int8"), "auto", RESTART,
    "Type of cached keys and values. fp8 (e4m3) has a scale per layer and head, taken "
    "from the checkpoint (k_scale and v_scale tensors), else 1; int8 has one per token "
    "and head. auto: fp32 on the CPU, whose activations are fp32; elsewhere fp32 for "
    "F32 weights, else bf16.")

PAR_BOOL(output, enable_logprob, "enable_logprob", 1, RELOAD,
    "Requests may ask for logprobs. no: requests that do are rejected with "
    "E_UNSUPPORTED.")
PAR_INT(output, max_logprobs, "max_logprobs", "", 0, 20, 20, RELOAD,
    "Alternatives a request may ask for per token.")
PAR_INT(output, default_max_tokens, "", "tokens", 0, 0, 16777216, RELOAD,
    "Output limit of requests that name none. 0: what max_model_len leaves after the "
    "prompt.")

PAR_ENUM(log, level, "",
    PAR_C(LOG_LEVEL_ERROR, "error") PAR_C(LOG_LEVEL_WARN, "warn")
    PAR_C(LOG_LEVEL_INFO, "info") PAR_C(LOG_LEVEL_DEBUG, "debug")
    PAR_C(LOG_LEVEL_TRACE, "trace"), "info", RELOAD,
    "Log level of all topics that log.levels does not name.")
PAR_STR(log, levels, "", "", RELOAD | LIST,
    "Levels of single topics: topic=level, comma separated (gate=debug,control=warn). "
    "The topics are config gate session intake relay request supervise control worker "
    "load peak memory ingress engine sched runner log.")
PAR_ENUM(log, format, "",
    PAR_C(LOG_FORMAT_TEXT, "text") PAR_C(LOG_FORMAT_JSON, "json"), "text", RELOAD,
    "Form of a log line. json: one object a line with time, level, prog, pid, topic and "
    "msg, and for the request log its values as members.")
PAR_INT(log, rate, "", "lines/s", 0, 100, 1000000, RELOAD,
    "Lines a second that one place in the code may log; further ones are counted "
    "(log_dropped), and a line says how many were not shown. 0: no limit.")
PAR_STR(log, debug, "", "", RELOAD | LIST,
    "Debug bits, comma separated: sched batch kv ring selfcheck faults.")
PAR_ENUM(log, requests, "",
    PAR_C(LOG_REQUESTS_NO, "no") PAR_C(LOG_REQUESTS_ERRORS, "errors")
    PAR_C(LOG_REQUESTS_ALL, "all"), "no", RELOAD,
    "Log a line of topic request for each request that ends: its user, its tokens, how "
    "it ended and its times. errors: only for requests that end without an answer, "
    "rejected ones included. Prompts and answers are never logged.")
PAR_INT(log, slow_request_ms, "", "ms", 0, 0, 86400000, RELOAD,
    "A generating request that takes longer than this from submission to its end is "
    "logged, with a warning that says where the time went. 0: none.")
PAR_INT(log, slow_first_token_ms, "", "ms", 0, 0, 86400000, RELOAD,
    "As log.slow_request_ms, for the time from submission to the first token. 0: none.")
