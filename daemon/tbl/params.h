/*
 * Every parameter of the daemon, once. From this table come struct par, the
 * parser, --set, fdctl config, conf/fdd.ini and fdd.ini(5).
 *
 * PAR_INT (section, key, aliases, unit, min, default, max, flags, help)
 * PAR_DBL (section, key, aliases, unit, min, default, max, flags, help)
 * PAR_BOOL(section, key, aliases, default, flags, help)
 * PAR_ENUM(section, key, aliases, "a|b|c", "default", flags, help)
 * PAR_STR (section, key, aliases, "default", flags, help)
 * PAR_NOTE(section, key, aliases, kind, text)    accepted or refused by name only
 *
 * A key is written with - or _. Aliases are bare names, comma separated,
 * that --set and the file take without a section; "name*1000" is an alias
 * whose unit is 1000 times as large, and whose negative values mean 0.
 * Flags: RELOAD may change while running (SIGHUP, fdctl set); RESTART needs
 * a new start of fdd. Size keys end in _bytes and take the suffixes k, m, g
 * (powers of 1024).
 *
 * Notes are names of other servers. Their key is an alias too. Kinds: WARN
 * is ignored with a warning; OFF is refused unless the value turns the
 * feature off (no, none, null, 0, {}, nothing); ONE takes 1 beside those,
 * MIXED the word mixed. The text says what holds instead.
 */

PAR_STR(daemon, runtime_dir, "", "", RESTART,
    "Folder of the sockets and the lock. Empty: $RUNTIME_DIRECTORY, else /run/fdd for "
    "root, else $XDG_RUNTIME_DIR/fdd.")
PAR_STR(daemon, worker, "", "", RESTART,
    "Path of the fdd-worker program. Empty: beside fdd, else the installed one.")
PAR_INT(daemon, drain_timeout_ms, "timeout_graceful_shutdown*1000", "ms", 0, 30000,
    3600000, RELOAD,
    "How long fdctl drain, fdctl stop and SIGTERM wait for running requests.")
PAR_INT(daemon, worker_start_timeout_ms, "", "ms", 1000, 600000, 86400000, RELOAD,
    "A worker that is not ready by then is ended and started again.")
PAR_INT(daemon, crash_max, "", "", 1, 5, 1000, RELOAD,
    "Worker deaths within crash_window_s after which no further worker is started.")
PAR_INT(daemon, crash_window_s, "", "s", 1, 600, 86400, RELOAD,
    "Window of crash_max.")
PAR_STR(daemon, cache_dir, "CacheDirectory", "", RESTART,
    "Folder for measured ceilings and tuned choices. Empty: $CACHE_DIRECTORY, else "
    "/var/cache/fdd for root, else $XDG_CACHE_HOME/fdd.")

PAR_STR(ipc, socket, "", "", RESTART,
    "Client socket. Empty: fdd.sock in daemon.runtime_dir.")
PAR_STR(ipc, admin_socket, "", "", RESTART,
    "Admin socket. Empty: admin.sock in daemon.runtime_dir.")
PAR_STR(ipc, group, "", "fdd", RESTART,
    "Group that may use the client socket (mode 0660) and read status and statistics. "
    "Ignored when it does not exist.")
PAR_STR(ipc, admin_group, "", "fdd-admin", RESTART,
    "Group that may use every admin command. Ignored when it does not exist.")
PAR_STR(ipc, trusted_users, "", "", RELOAD,
    "User names or uids, comma separated, that may act for other users (request.user) "
    "and exceed the limits per client.")
PAR_INT(ipc, max_clients, "", "sessions", 1, 256, 65536, RELOAD,
    "Sessions at a time.")
PAR_INT(ipc, max_clients_per_user, "", "sessions", 1, 64, 65536, RELOAD,
    "Sessions of one user at a time.")
PAR_INT(ipc, connects_per_second, "", "1/s", 1, 200, 1000000, RELOAD,
    "Connections of one user accepted per second, with a burst of three times as many.")
PAR_BOOL(ipc, refuse_own_uid, "", 0, RELOAD,
    "Refuse clients that run as the daemon's own user.")
PAR_INT(ipc, handshake_timeout_ms, "", "ms", 10, 2000, 60000, RELOAD,
    "A connection that has not finished its handshake by then is closed.")
PAR_INT(ipc, sq_slots, "", "slots", 16, 256, 65536, RESTART,
    "Request slots of a session (power of two) when the client asks for none.")
PAR_INT(ipc, cq_slots, "", "slots", 64, 4096, 1048576, RESTART,
    "Completion slots of a session (power of two) when the client asks for none.")
PAR_INT(ipc, arena_bytes, "", "bytes", 65536, 1048576, 67108864, RESTART,
    "Bytes for prompts of a session when the client asks for none.")
PAR_INT(ipc, max_session_bytes, "", "bytes", 1048576, 16777216, 268435456, RESTART,
    "Shared memory that one session may ask for.")
PAR_INT(ipc, slow_client_ms, "", "ms", 100, 30000, 3600000, RELOAD,
    "A client whose completion ring stays full that long loses its requests.")
PAR_INT(ipc, spin_us, "", "us", -1, -1, 10000, RESTART,
    "How long gate and worker poll after traffic before they sleep. -1: 50 with eight "
    "or more processors, else 0. Unless it is 0 or there is one processor, the gate "
    "also polls for 40 us after it sent the worker something.")

PAR_INT(sched, max_concurrency, "max_concurrency", "requests", 1, 512, 65536, RESTART,
    "Requests accepted at a time, running and waiting.")
PAR_INT(sched, max_inflight_per_client, "", "requests", 1, 128, 65536, RELOAD,
    "Requests of one session at a time.")
PAR_INT(sched, max_inflight_per_user, "", "requests", 1, 512, 65536, RELOAD,
    "Requests of one user at a time.")
PAR_INT(sched, max_bytes_per_user, "", "bytes", 1048576, 268435456, 17179869184, RELOAD,
    "Prompt bytes the daemon holds for one user at a time.")
PAR_INT(sched, max_num_seqs, "max_num_seqs", "sequences", 1, 256, 1024, RESTART,
    "Sequences in one step.")
PAR_INT(sched, max_num_batched_tokens, "max_num_batched_tokens", "tokens", 1, 512,
    131072, RESTART,
    "Tokens in one step.")
PAR_BOOL(sched, enable_chunked_prefill, "enable_chunked_prefill", 1, RESTART,
    "Split prompts over steps.")
PAR_INT(sched, max_waiting_time_ms, "max_waiting_time*1000", "ms", 0, 0, 86400000, RELOAD,
    "Requests not started by then end with E_DEADLINE. 0: wait as long as it takes.")
PAR_INT(sched, seed, "seed", "", 0, 0, 9223372036854775807, RESTART,
    "Seed of the seeds drawn for requests that name none. 0: from the system.")

PAR_STR(model, path, "model", "", RESTART,
    "Model directory in the Hugging Face layout. The word null runs the echo model "
    "that answers with the prompt (tests).")
PAR_STR(model, name, "served_model_name", "", RESTART,
    "Name shown to clients. Empty: the directory's name.")
PAR_STR(model, tokenizer, "tokenizer", "", RESTART,
    "Folder of tokenizer.json. Empty: model.path.")
PAR_INT(model, max_model_len, "max_model_len", "tokens", 0, 0, 16777216, RESTART,
    "Prompt and output of a request. 0: what the model and the KV cache allow; else at "
    "least 16.")
PAR_ENUM(model, load_format, "load_format", "auto|safetensors|dummy", "auto", RESTART,
    "dummy makes random weights of realistic scale from config.json alone.")
PAR_BOOL(model, load_uring, "", 1, RESTART,
    "Read weights by io_uring where the system allows it, else by pread.")
PAR_INT(model, load_buffer_bytes, "", "bytes", 1048576, 33554432, 1073741824, RESTART,
    "Staging memory for reading weights.")
PAR_INT(model, dummy_seed, "", "", 0, 1, 9223372036854775807, RESTART,
    "Seed of dummy weights.")

PAR_ENUM(device, backend, "", "auto|cpu|cuda|null", "auto", RESTART,
    "Where the model runs. auto: cuda when a device is there, else cpu.")
PAR_INT(device, threads, "", "threads", 0, 0, 1024, RESTART,
    "Threads of the CPU backend. 0: one per processor.")
PAR_BOOL(device, graph, "use_cudagraph", 1, RESTART,
    "Replay recorded graphs where the backend has them (nograph is the reference).")
PAR_INT(device, overlap_depth, "", "steps", 0, 0, 4, RESTART,
    "Steps launched ahead of their results. 0 is the simple loop.")

PAR_INT(kv, block_size, "block_size", "tokens", 16, 64, 128, RESTART,
    "Tokens in a KV block: 16, 32, 64 or 128.")
PAR_INT(kv, num_blocks, "num_gpu_blocks_override", "blocks", 0, 0, 16777216, RESTART,
    "KV blocks. 0: what kv.memory_bytes holds.")
PAR_INT(kv, memory_bytes, "", "bytes", 0, 0, 1099511627776, RESTART,
    "Memory of the KV cache. 0: on the CPU a quarter of the free memory, at most 4 GiB "
    "and at most what max_num_seqs sequences of max_model_len need.")
PAR_ENUM(kv, dtype, "kv_dtype", "auto|fp32|bf16", "auto", RESTART,
    "Type of cached keys and values. auto: fp32 on the CPU, whose activations are fp32; "
    "elsewhere fp32 for F32 weights, else bf16.")

PAR_INT(output, max_logprobs, "max_logprobs", "", 0, 20, 20, RELOAD,
    "Alternatives a request may ask for per token.")
PAR_INT(output, default_max_tokens, "", "tokens", 0, 0, 16777216, RELOAD,
    "Output limit of requests that name none. 0: what max_model_len leaves.")

PAR_ENUM(log, level, "", "error|warn|info|debug|trace", "info", RELOAD,
    "Log level.")
PAR_STR(log, debug, "", "", RELOAD,
    "Debug bits, comma separated: sched batch kv ring selfcheck.")

PAR_NOTE(compat, host, "", WARN, "fdd has no network port; clients use ipc.socket")
PAR_NOTE(compat, port, "", WARN, "fdd has no network port; clients use ipc.socket")
PAR_NOTE(compat, metrics_port, "", WARN,
    "fdd has no network port; fdctl stat reads the statistics")
PAR_NOTE(compat, engine_worker_queue_port, "", WARN,
    "gate and worker share memory and need no port")
PAR_NOTE(compat, cache_queue_port, "", WARN,
    "the KV cache is part of the worker and needs no port")
PAR_NOTE(compat, innode_prefill_ports, "", WARN, "fdd has no ports")
PAR_NOTE(compat, workers, "", WARN, "one gate serves all clients")
PAR_NOTE(compat, enable_mm, "", WARN, "the model's architecture decides")
PAR_NOTE(compat, use_warmup, "", WARN, "the worker always warms up before it is ready")
PAR_NOTE(compat, enable_logprob, "", WARN,
    "requests may always ask, up to output.max_logprobs; 0 there refuses them")
PAR_NOTE(compat, static_decode_blocks, "", WARN,
    "blocks are taken one by one as a sequence grows")
PAR_NOTE(compat, disable_custom_all_reduce, "", WARN, "there is one device")
PAR_NOTE(compat, enable_custom_all_reduce, "", WARN, "there is one device")
PAR_NOTE(kv, gpu_memory_utilization, "", WARN,
    "the KV cache takes kv.memory_bytes, or kv.num_blocks blocks")
PAR_NOTE(kv, kv_cache_ratio, "", ONE, "prompts and answers share one pool of blocks")
PAR_NOTE(kv, enable_prefix_caching, "prefix_caching", OFF,
    "every prompt is computed anew")
PAR_NOTE(kv, swap_space, "", OFF, "preempted requests are computed again")
PAR_NOTE(sched, max_num_partial_prefills, "", ONE,
    "prompts share a step as sched.max_num_batched_tokens allows")
PAR_NOTE(sched, max_long_partial_prefills, "", ONE,
    "prompts share a step as sched.max_num_batched_tokens allows")
PAR_NOTE(sched, long_prefill_token_threshold, "", OFF,
    "long and short prompts are treated alike")
PAR_NOTE(parallel, tensor_parallel_size, "", ONE, "the model runs on one device")
PAR_NOTE(parallel, data_parallel_size, "", ONE, "the model runs on one device")
PAR_NOTE(parallel, enable_expert_parallel, "", OFF, "the model runs on one device")
PAR_NOTE(parallel, splitwise_role, "", MIXED, "one worker computes prompts and answers")
PAR_NOTE(model, quantization, "", OFF,
    "weights are computed in the type they are stored in")
PAR_NOTE(model, dynamic_load_weight, "", OFF, "weights are loaded once, at the start")
PAR_NOTE(device, graph_optimization_config, "", OFF,
    "device.graph turns graphs on and off")
PAR_NOTE(sched, speculative_config, "", OFF, "each step adds one token to a sequence")
PAR_NOTE(output, guided_decoding_backend, "", OFF, "answers follow no grammar")
PAR_NOTE(output, guided_decoding_disable_any_whitespace, "", OFF,
    "answers follow no grammar")
PAR_NOTE(output, reasoning_parser, "", OFF, "the answer is one text")
PAR_NOTE(model, limit_mm_per_prompt, "", OFF, "prompts are text or token ids")
PAR_NOTE(model, mm_processor_kwargs, "", OFF, "prompts are text or token ids")
