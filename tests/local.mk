# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Names say the kind (doc/testing.md). A program's source is its name with
# .c unless listed; everything links what it uses of the libraries.
LDADD = $(GATE_LIBS) $(WORKER_TEST_LIBS) $(CMOCKA_LIBS)
AM_CPPFLAGS += $(CMOCKA_CFLAGS) $(JANSSON_CFLAGS)

GATE_FIXTURE = %D%/unit/gate_fixture.c %D%/unit/gate_fixture.h
SIM_FIXTURE = %D%/sim/sim.c %D%/sim/sim.h %D%/sim/sim_more.c
ARRIVALS = %D%/sim/arrivals.c %D%/sim/arrivals.h %D%/sim/arrivals_dev.c \
	%D%/sim/arrivals_load.c %D%/sim/arrivals_tool.c
REF_FIXTURE = $(SIM_FIXTURE) %D%/sim/ref.c %D%/sim/ref.h
FAIR_LOAD = %D%/sys/fair_load.c %D%/sys/fair_load.h
GPU_BENCH = %D%/bench/gpu_bench.c %D%/bench/gpu_bench.h
KERNEL_KV = %D%/kernel/k_kv.h %D%/kernel/k_util.h
SCHED_FIXTURE = %D%/unit/sched_fixture.c %D%/unit/sched_fixture.h
DOCTOR_FIXTURE = %D%/unit/doctor_fixture.h
FDBENCH_FIXTURE = %D%/unit/fdbench_fixture.h
KV_FIXTURE = %D%/unit/kv_fixture.h
PARAM_FIXTURE = %D%/unit/param_fixture.h
TMP_FIXTURE = %D%/unit/tmp_fixture.h
WEIGHTS_FIXTURE = %D%/unit/weights_fixture.h
HOSTILE_RAW = %D%/sys/hostile/raw.c %D%/sys/hostile/raw.h
MOCK_GATE = %D%/unit/mock_gate.c %D%/unit/mock_gate.h

UNIT_TESTS = \
	%D%/unit/u_ring \
	%D%/unit/u_ring_interleave \
	%D%/unit/u_proto \
	%D%/unit/u_client \
	%D%/unit/u_client_lies \
	%D%/unit/u_client_tokens \
	%D%/unit/u_client_loop %D%/unit/u_client_parked \
	%D%/unit/u_client_room \
	%D%/unit/u_client_reconnect \
	%D%/unit/u_abi \
	%D%/unit/u_param \
	%D%/unit/u_param_load \
	%D%/unit/u_params40 \
	%D%/unit/u_link \
	%D%/unit/u_load \
	%D%/unit/u_loopstat \
	%D%/unit/u_log \
	%D%/unit/u_log_out \
	%D%/unit/u_log_queue \
	%D%/unit/u_reqlog \
	%D%/unit/u_intake \
	%D%/unit/u_budget \
	%D%/unit/u_slice \
	%D%/unit/u_rest \
	%D%/unit/u_share \
	%D%/unit/u_session \
	%D%/unit/u_region \
	%D%/unit/u_sleep \
	%D%/unit/u_wake \
	%D%/unit/u_places \
	%D%/unit/u_reap \
	%D%/unit/u_pages \
	%D%/unit/u_opening \
	%D%/unit/u_peer \
	%D%/unit/u_heap %D%/unit/u_fair %D%/unit/u_families %D%/unit/u_fair_shares %D%/unit/u_admission \
	%D%/unit/u_shed \
	%D%/unit/u_gate \
	%D%/unit/u_cgroup \
	%D%/unit/u_segment \
	%D%/unit/u_service \
	%D%/unit/u_supervise \
	%D%/unit/u_hang \
	%D%/unit/u_http \
	%D%/unit/u_http_live \
	%D%/unit/u_http_served \
	%D%/unit/u_http_shape \
	%D%/unit/u_offloop \
	%D%/unit/u_deadline \
	%D%/unit/u_affinity %D%/unit/u_dispatch \
	%D%/unit/u_groups \
	%D%/unit/u_pause \
	%D%/unit/u_control \
	%D%/unit/u_names \
	%D%/unit/u_bpe \
	%D%/unit/u_tok_formats %D%/unit/u_tok_json %D%/unit/u_tok_large %D%/unit/u_tokenizer \
	%D%/unit/u_tok_unset %D%/unit/u_trie \
	%D%/unit/u_answer %D%/unit/u_chat \
	%D%/unit/u_text \
	%D%/unit/u_tok_norm %D%/unit/u_tok_cases \
	%D%/unit/u_detok \
	%D%/unit/u_kv_groups \
	%D%/unit/u_model %D%/unit/u_shards \
	%D%/unit/u_safetensors \
	%D%/unit/u_weights \
	%D%/unit/u_weights_load \
	%D%/unit/u_weights_fp8 \
	%D%/unit/u_weights_quant %D%/unit/u_weights_ranks \
	%D%/unit/u_quant \
	%D%/unit/u_cpudev \
	%D%/unit/u_kvcache \
	%D%/unit/u_kvcache_random \
	%D%/unit/u_kv_windows \
	%D%/unit/u_prefix \
	%D%/unit/u_prom \
	%D%/unit/u_ingress \
	%D%/unit/u_kv_scale \
	%D%/unit/u_memplan \
	%D%/unit/u_req \
	%D%/unit/u_confine \
	%D%/unit/u_cost \
	%D%/unit/u_lookahead \
	%D%/unit/u_scheduler \
	%D%/unit/u_sched_blocks \
	%D%/unit/u_sched_cache \
	%D%/unit/u_sched_order \
	%D%/unit/u_sched_preempt \
	%D%/unit/u_sched_prefill \
	%D%/unit/u_sched_random \
	%D%/unit/u_batch %D%/unit/u_context \
	%D%/unit/u_capture \
	%D%/unit/u_rules \
	%D%/unit/u_runner \
	%D%/unit/u_sums \
	%D%/unit/u_near \
	%D%/unit/u_files \
	%D%/unit/u_finish \
	%D%/unit/u_engine \
	%D%/unit/u_engine_limits \
	%D%/unit/u_pipeline \
	%D%/unit/u_prime \
	%D%/unit/u_profile \
	%D%/unit/u_doctor \
	%D%/unit/u_doctor_gpu \
	%D%/unit/u_fdbench \
	%D%/unit/u_fdbench_against \
	%D%/unit/u_fdbench_load \
	%D%/unit/u_fdbench_report \
	%D%/unit/u_fdctl \
	%D%/unit/u_trace \
	%D%/unit/u_top \
	%D%/unit/u_egress \
	%D%/unit/u_where \
	%D%/unit/u_devlist %D%/unit/u_devices \
	%D%/unit/u_devlock

SIM_TESTS = \
	%D%/sim/s_arrivals \
	%D%/sim/s_backend \
	%D%/sim/s_context \
	%D%/sim/s_copies \
	%D%/sim/s_takes \
	%D%/sim/s_fusion \
	%D%/sim/s_graph \
	%D%/sim/s_lookahead \
	%D%/sim/s_mix \
	%D%/sim/s_overlap \
	%D%/sim/s_groups %D%/sim/s_halves %D%/sim/s_ranks %D%/sim/s_owners \
	%D%/sim/s_ranks_faults \
	%D%/sim/s_preempt \
	%D%/sim/s_prefix \
	%D%/sim/s_random \
	%D%/sim/s_output \
	%D%/sim/s_samples \
	%D%/sim/s_window \
	%D%/sim/s_text \
	%D%/sim/s_threads

KERNEL_TESTS = \
	%D%/kernel/k_attention \
	%D%/kernel/k_collective \
	%D%/kernel/k_collective_ahead \
	%D%/kernel/k_collective_b \
	%D%/kernel/k_collective_late \
	%D%/kernel/k_copies \
	%D%/kernel/k_cuda \
	%D%/kernel/k_cuda_attention \
	%D%/kernel/k_cuda_gemm \
	%D%/kernel/k_cuda_graph \
	%D%/kernel/k_cuda_load \
	%D%/kernel/k_cuda_mega \
	%D%/kernel/k_cuda_mega_ranks \
	%D%/kernel/k_cuda_prefill \
	%D%/kernel/k_cuda_quant %D%/kernel/k_cuda_rows \
	%D%/kernel/k_cuda_sample \
	%D%/kernel/k_embed \
	%D%/kernel/k_gemm \
	%D%/kernel/k_plan \
	%D%/kernel/k_program \
	%D%/kernel/k_qkv \
	%D%/kernel/k_rmsnorm \
	%D%/kernel/k_rules \
	%D%/kernel/k_sample \
	%D%/kernel/k_silu

PARITY_TESTS = \
	%D%/parity/p_engine \
	%D%/parity/p_model \
	%D%/parity/p_quant

FUZZ_TARGETS = \
	%D%/fuzz/f_admin \
	%D%/fuzz/f_answer \
	%D%/fuzz/f_bpe_input \
	%D%/fuzz/f_client \
	%D%/fuzz/f_config \
	%D%/fuzz/f_http \
	%D%/fuzz/f_ini \
	%D%/fuzz/f_json \
	%D%/fuzz/f_record \
	%D%/fuzz/f_safetensors \
	%D%/fuzz/f_template \
	%D%/fuzz/f_tokenizer \
	%D%/fuzz/f_worker

if FUZZ
FUZZ_MAIN =
FUZZ_LD = -fsanitize=fuzzer
# The sources of the worker that the targets need: the other ones, and the kernels, are
# half of the build.
EXTRA_LIBRARIES += libfddfuzz.a
libfddfuzz_a_SOURCES = \
	daemon/worker/bpe.c \
	daemon/worker/bpe_merge.c \
	daemon/worker/detok.c \
	daemon/worker/model.c \
	daemon/worker/model_build.c \
	daemon/worker/model_kv.c \
	daemon/worker/model_config.c \
	daemon/worker/model_ernie4_5.c \
	daemon/worker/model_fields.c \
	daemon/worker/model_file.c \
	daemon/worker/model_gemma2.c \
	daemon/worker/model_gemma3_text.c \
	daemon/worker/model_glm.c \
	daemon/worker/model_granite.c \
	daemon/worker/model_json.c \
	daemon/worker/model_llama.c \
	daemon/worker/model_mistral.c \
	daemon/worker/model_olmo2.c \
	daemon/worker/model_olmo3.c \
	daemon/worker/model_phi3.c \
	daemon/worker/model_program.c \
	daemon/worker/model_quant.c \
	daemon/worker/model_qwen2.c \
	daemon/worker/model_qwen3.c \
	daemon/worker/model_rope.c \
	daemon/worker/model_shard.c \
	daemon/worker/model_smollm3.c \
	daemon/worker/safetensors.c \
	daemon/worker/tokenizer.c \
	daemon/worker/tokenizer_added.c \
	daemon/worker/tokenizer_base.c \
	daemon/worker/tokenizer_dec.c \
	daemon/worker/tokenizer_json.c \
	daemon/worker/tokenizer_load.c \
	daemon/worker/tokenizer_load_member.c \
	daemon/worker/tokenizer_load_norm.c \
	daemon/worker/tokenizer_load_post.c \
	daemon/worker/tokenizer_load_pre.c \
	daemon/worker/tokenizer_merges.c \
	daemon/worker/tokenizer_norm.c \
	daemon/worker/tokenizer_norm_char.c \
	daemon/worker/tokenizer_norm_form.c \
	daemon/worker/tokenizer_norm_map.c \
	daemon/worker/tokenizer_pre.c \
	daemon/worker/tokenizer_put.c \
	daemon/worker/tokenizer_ranks.c \
	daemon/worker/tokenizer_regex.c \
	daemon/worker/tokenizer_spm.c \
	daemon/worker/tokenizer_tables.c \
	daemon/worker/tokenizer_trie.c \
	daemon/worker/tokenizer_vocab.c \
	daemon/worker/tokenizer_words.c \
	daemon/worker/unigram.c \
	daemon/worker/wordpiece.c
libfddfuzz_a_CFLAGS = $(libfddworker_a_CFLAGS)
FUZZ_WORKER_LIBS = libfddfuzz.a $(COMMON_LIBS) $(WORKER_OTHER_LIBS)
else
FUZZ_MAIN = %D%/fuzz/replay.c
FUZZ_LD =
FUZZ_WORKER_LIBS = $(WORKER_TEST_LIBS)
endif

tests_unit_u_client_SOURCES = %D%/unit/u_client.c $(MOCK_GATE)
tests_unit_u_client_lies_SOURCES = %D%/unit/u_client_lies.c $(MOCK_GATE)
tests_unit_u_client_room_SOURCES = %D%/unit/u_client_room.c %D%/unit/client_fixture.h $(MOCK_GATE)
tests_unit_u_client_reconnect_SOURCES = %D%/unit/u_client_reconnect.c %D%/unit/client_fixture.h $(MOCK_GATE)
tests_unit_u_client_tokens_SOURCES = %D%/unit/u_client_tokens.c $(MOCK_GATE)
tests_unit_u_client_loop_SOURCES = %D%/unit/u_client_loop.c $(MOCK_GATE)
tests_unit_u_client_parked_SOURCES = %D%/unit/u_client_parked.c %D%/unit/client_fixture.h $(MOCK_GATE)
tests_unit_u_cgroup_SOURCES = %D%/unit/u_cgroup.c $(TMP_FIXTURE)
tests_unit_u_devlock_SOURCES = %D%/unit/u_devlock.c $(TMP_FIXTURE)
tests_unit_u_param_SOURCES = %D%/unit/u_param.c $(PARAM_FIXTURE)
tests_unit_u_params40_SOURCES = %D%/unit/u_params40.c $(PARAM_FIXTURE)
tests_unit_u_where_SOURCES = %D%/unit/u_where.c $(TMP_FIXTURE)
tests_unit_u_intake_SOURCES = %D%/unit/u_intake.c $(GATE_FIXTURE)
tests_unit_u_rules_SOURCES = %D%/unit/u_rules.c $(GATE_FIXTURE)
tests_unit_u_budget_SOURCES = %D%/unit/u_budget.c $(GATE_FIXTURE)
tests_unit_u_slice_SOURCES = %D%/unit/u_slice.c $(GATE_FIXTURE)
tests_unit_u_rest_SOURCES = %D%/unit/u_rest.c $(GATE_FIXTURE)
tests_unit_u_share_SOURCES = %D%/unit/u_share.c $(GATE_FIXTURE)
tests_unit_u_reqlog_SOURCES = %D%/unit/u_reqlog.c $(GATE_FIXTURE)
tests_unit_u_opening_SOURCES = %D%/unit/u_opening.c $(GATE_FIXTURE)
tests_unit_u_peer_SOURCES = %D%/unit/u_peer.c $(GATE_FIXTURE)
tests_unit_u_places_SOURCES = %D%/unit/u_places.c $(GATE_FIXTURE)
tests_unit_u_sleep_SOURCES = %D%/unit/u_sleep.c $(GATE_FIXTURE)
tests_unit_u_reap_SOURCES = %D%/unit/u_reap.c $(GATE_FIXTURE)
tests_unit_u_pages_SOURCES = %D%/unit/u_pages.c
tests_unit_u_wake_SOURCES = %D%/unit/u_wake.c $(GATE_FIXTURE)
tests_unit_u_region_SOURCES = %D%/unit/u_region.c $(GATE_FIXTURE)
tests_unit_u_session_SOURCES = %D%/unit/u_session.c $(GATE_FIXTURE)
tests_unit_u_heap_SOURCES = %D%/unit/u_heap.c
tests_unit_u_fair_SOURCES = %D%/unit/u_fair.c $(GATE_FIXTURE)
tests_unit_u_fair_shares_SOURCES = %D%/unit/u_fair_shares.c $(SCHED_FIXTURE)
tests_unit_u_admission_SOURCES = %D%/unit/u_admission.c $(GATE_FIXTURE)
tests_unit_u_shed_SOURCES = %D%/unit/u_shed.c $(GATE_FIXTURE)
tests_unit_u_names_SOURCES = %D%/unit/u_names.c $(GATE_FIXTURE)
tests_unit_u_control_SOURCES = %D%/unit/u_control.c $(GATE_FIXTURE)
tests_unit_u_segment_SOURCES = %D%/unit/u_segment.c $(GATE_FIXTURE)
tests_unit_u_deadline_SOURCES = %D%/unit/u_deadline.c $(GATE_FIXTURE)
tests_unit_u_affinity_SOURCES = %D%/unit/u_affinity.c
tests_unit_u_dispatch_SOURCES = %D%/unit/u_dispatch.c $(GATE_FIXTURE)
tests_unit_u_groups_SOURCES = %D%/unit/u_groups.c $(GATE_FIXTURE)
tests_unit_u_pause_SOURCES = %D%/unit/u_pause.c $(GATE_FIXTURE)
tests_unit_u_service_SOURCES = %D%/unit/u_service.c $(GATE_FIXTURE)
tests_unit_u_gate_SOURCES = %D%/unit/u_gate.c $(GATE_FIXTURE)
tests_unit_u_kvcache_SOURCES = %D%/unit/u_kvcache.c $(KV_FIXTURE)
tests_unit_u_kvcache_random_SOURCES = %D%/unit/u_kvcache_random.c $(KV_FIXTURE)
tests_unit_u_kv_windows_SOURCES = %D%/unit/u_kv_windows.c $(KV_FIXTURE)
tests_unit_u_weights_SOURCES = %D%/unit/u_weights.c $(WEIGHTS_FIXTURE)
tests_unit_u_weights_load_SOURCES = %D%/unit/u_weights_load.c $(WEIGHTS_FIXTURE)
tests_unit_u_scheduler_SOURCES = %D%/unit/u_scheduler.c $(SCHED_FIXTURE)
tests_unit_u_sched_blocks_SOURCES = %D%/unit/u_sched_blocks.c $(SCHED_FIXTURE)
tests_unit_u_sched_cache_SOURCES = %D%/unit/u_sched_cache.c $(SCHED_FIXTURE)
tests_unit_u_sched_order_SOURCES = %D%/unit/u_sched_order.c $(SCHED_FIXTURE)
tests_unit_u_sched_preempt_SOURCES = %D%/unit/u_sched_preempt.c $(SCHED_FIXTURE)
tests_unit_u_sched_prefill_SOURCES = %D%/unit/u_sched_prefill.c $(SCHED_FIXTURE)
tests_unit_u_sched_random_SOURCES = %D%/unit/u_sched_random.c $(SCHED_FIXTURE)
# Only members taken from the archive need the shared object of the CUDA side.
tests_unit_u_load_LDFLAGS = $(AM_LDFLAGS) -Wl,--no-as-needed
tests_sim_s_arrivals_LDFLAGS = $(AM_LDFLAGS) -Wl,--no-as-needed
tests_unit_u_engine_SOURCES = %D%/unit/u_engine.c $(SIM_FIXTURE)
tests_unit_u_engine_limits_SOURCES = %D%/unit/u_engine_limits.c $(SIM_FIXTURE)
tests_unit_u_kv_scale_SOURCES = %D%/unit/u_kv_scale.c $(SIM_FIXTURE)
tests_unit_u_pipeline_SOURCES = %D%/unit/u_pipeline.c $(SIM_FIXTURE)
tests_unit_u_prime_SOURCES = %D%/unit/u_prime.c $(SIM_FIXTURE)
tests_unit_u_near_SOURCES = %D%/unit/u_near.c $(SIM_FIXTURE)
tests_unit_u_sums_SOURCES = %D%/unit/u_sums.c $(SIM_FIXTURE)
tests_unit_u_profile_SOURCES = %D%/unit/u_profile.c $(SIM_FIXTURE)
tests_sim_s_arrivals_SOURCES = %D%/sim/s_arrivals.c $(ARRIVALS)
tests_sim_s_backend_SOURCES = %D%/sim/s_backend.c $(SIM_FIXTURE)
tests_sim_s_context_SOURCES = %D%/sim/s_context.c $(SIM_FIXTURE)
tests_sim_s_copies_SOURCES = %D%/sim/s_copies.c $(SIM_FIXTURE)
tests_sim_s_takes_SOURCES = %D%/sim/s_takes.c $(SIM_FIXTURE)
tests_sim_s_fusion_SOURCES = %D%/sim/s_fusion.c $(SIM_FIXTURE)
tests_sim_s_graph_SOURCES = %D%/sim/s_graph.c $(REF_FIXTURE)
tests_sim_s_lookahead_SOURCES = %D%/sim/s_lookahead.c $(SIM_FIXTURE)
tests_sim_s_mix_SOURCES = %D%/sim/s_mix.c $(SIM_FIXTURE)
tests_sim_s_ranks_SOURCES = %D%/sim/s_ranks.c %D%/sim/ranks.h $(SIM_FIXTURE)
tests_sim_s_halves_SOURCES = %D%/sim/s_halves.c %D%/sim/ranks.h $(SIM_FIXTURE)
tests_sim_s_owners_SOURCES = %D%/sim/s_owners.c %D%/sim/ranks.h $(SIM_FIXTURE)
tests_sim_s_groups_SOURCES = %D%/sim/s_groups.c %D%/sim/ranks.h $(SIM_FIXTURE)
tests_sim_s_ranks_faults_SOURCES = %D%/sim/s_ranks_faults.c $(SIM_FIXTURE)
tests_sim_s_ranks_faults_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=syscall,--wrap=clock_nanosleep,--wrap=sched_yield
tests_sim_s_overlap_SOURCES = %D%/sim/s_overlap.c $(REF_FIXTURE)
tests_sim_s_preempt_SOURCES = %D%/sim/s_preempt.c $(SIM_FIXTURE)
tests_sim_s_prefix_SOURCES = %D%/sim/s_prefix.c $(REF_FIXTURE)
tests_sim_s_random_SOURCES = %D%/sim/s_random.c $(REF_FIXTURE)
tests_sim_s_window_SOURCES = %D%/sim/s_window.c $(REF_FIXTURE)
tests_sim_s_output_SOURCES = %D%/sim/s_output.c $(SIM_FIXTURE)
tests_sim_s_samples_SOURCES = %D%/sim/s_samples.c $(SIM_FIXTURE)
tests_sim_s_text_SOURCES = %D%/sim/s_text.c $(SIM_FIXTURE)
tests_sim_s_threads_SOURCES = %D%/sim/s_threads.c $(REF_FIXTURE)
tests_kernel_k_attention_SOURCES = %D%/kernel/k_attention.c $(KERNEL_KV)
tests_kernel_k_collective_SOURCES = %D%/kernel/k_collective.c %D%/kernel/k_ranks.h \
	%D%/kernel/k_util.h
tests_kernel_k_collective_b_SOURCES = %D%/kernel/k_collective_b.c %D%/kernel/k_ranks.h \
	%D%/kernel/k_util.h %D%/bench/nccl.h
tests_bench_b_collective_SOURCES = %D%/bench/b_collective.c %D%/bench/nccl.h
tests_kernel_k_collective_ahead_SOURCES = %D%/kernel/k_collective_ahead.c \
	%D%/kernel/k_ranks.h %D%/kernel/k_util.h
tests_kernel_k_collective_late_SOURCES = %D%/kernel/k_collective_late.c %D%/kernel/k_ranks.h \
	%D%/kernel/k_util.h
tests_kernel_k_copies_SOURCES = %D%/kernel/k_copies.c %D%/kernel/k_ranks.h %D%/kernel/k_util.h
tests_kernel_k_cuda_SOURCES = %D%/kernel/k_cuda.c %D%/kernel/k_two.h %D%/kernel/k_util.h
tests_kernel_k_cuda_gemm_SOURCES = %D%/kernel/k_cuda_gemm.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_attention_SOURCES = %D%/kernel/k_cuda_attention.c %D%/kernel/k_two.h $(KERNEL_KV)
tests_kernel_k_cuda_graph_SOURCES = %D%/kernel/k_cuda_graph.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_load_SOURCES = %D%/kernel/k_cuda_load.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_mega_ranks_SOURCES = %D%/kernel/k_cuda_mega_ranks.c %D%/kernel/k_ranks.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_mega_SOURCES = %D%/kernel/k_cuda_mega.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_prefill_SOURCES = %D%/kernel/k_cuda_prefill.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_quant_SOURCES = %D%/kernel/k_cuda_quant.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_rows_SOURCES = %D%/kernel/k_cuda_rows.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_cuda_sample_SOURCES = %D%/kernel/k_cuda_sample.c %D%/kernel/k_two.h \
	%D%/kernel/k_util.h
tests_kernel_k_embed_SOURCES = %D%/kernel/k_embed.c %D%/kernel/k_util.h
tests_kernel_k_gemm_SOURCES = %D%/kernel/k_gemm.c %D%/kernel/k_util.h
tests_kernel_k_plan_SOURCES = %D%/kernel/k_plan.c $(KERNEL_KV)
tests_kernel_k_program_SOURCES = %D%/kernel/k_program.c
tests_kernel_k_qkv_SOURCES = %D%/kernel/k_qkv.c $(KERNEL_KV)
tests_kernel_k_rmsnorm_SOURCES = %D%/kernel/k_rmsnorm.c %D%/kernel/k_util.h
tests_kernel_k_rules_SOURCES = %D%/kernel/k_rules.c %D%/kernel/k_util.h %D%/kernel/k_draws.h
tests_kernel_k_sample_SOURCES = %D%/kernel/k_sample.c %D%/kernel/k_util.h %D%/kernel/k_draws.h
tests_kernel_k_silu_SOURCES = %D%/kernel/k_silu.c %D%/kernel/k_util.h
tests_gpu_g_parity_SOURCES = %D%/gpu/g_parity.c $(SIM_FIXTURE)
tests_parity_p_engine_SOURCES = %D%/parity/p_engine.c $(SIM_FIXTURE)
tests_parity_p_quant_SOURCES = %D%/parity/p_quant.c $(SIM_FIXTURE)
tests_fuzz_f_admin_LDADD = $(GATE_LIBS)
tests_fuzz_f_admin_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_admin_SOURCES = %D%/fuzz/f_admin.c $(GATE_FIXTURE) $(FUZZ_MAIN)
tests_fuzz_f_answer_LDADD = $(CHAT_LIBS)
tests_fuzz_f_answer_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_answer_SOURCES = %D%/fuzz/f_answer.c $(FUZZ_MAIN)
tests_fuzz_f_bpe_input_LDADD = $(FUZZ_WORKER_LIBS)
tests_fuzz_f_bpe_input_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_bpe_input_SOURCES = %D%/fuzz/f_bpe_input.c $(FUZZ_MAIN)
tests_fuzz_f_client_LDADD = $(CLIENT_LIBS)
tests_fuzz_f_client_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_client_SOURCES = %D%/fuzz/f_client.c $(FUZZ_MAIN)
tests_fuzz_f_config_LDADD = $(FUZZ_WORKER_LIBS)
tests_fuzz_f_config_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_config_SOURCES = %D%/fuzz/f_config.c $(FUZZ_MAIN)
tests_fuzz_f_http_LDADD = $(HTTP_LIBS)
tests_fuzz_f_http_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_http_SOURCES = %D%/fuzz/f_http.c $(FUZZ_MAIN)
tests_fuzz_f_ini_LDADD = $(COMMON_LIBS)
tests_fuzz_f_ini_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_ini_SOURCES = %D%/fuzz/f_ini.c $(PARAM_FIXTURE) $(FUZZ_MAIN)
tests_fuzz_f_json_LDADD = $(HTTP_LIBS) -lm
tests_fuzz_f_json_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_json_SOURCES = %D%/fuzz/f_json.c $(FUZZ_MAIN)
tests_fuzz_f_record_LDADD = $(GATE_LIBS)
tests_fuzz_f_record_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_record_SOURCES = %D%/fuzz/f_record.c $(GATE_FIXTURE) $(FUZZ_MAIN)
tests_fuzz_f_safetensors_LDADD = $(FUZZ_WORKER_LIBS)
tests_fuzz_f_safetensors_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_safetensors_SOURCES = %D%/fuzz/f_safetensors.c $(FUZZ_MAIN)
tests_fuzz_f_template_LDADD = $(CHAT_LIBS)
tests_fuzz_f_template_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_template_SOURCES = %D%/fuzz/f_template.c $(FUZZ_MAIN)
tests_fuzz_f_tokenizer_LDADD = $(FUZZ_WORKER_LIBS)
tests_fuzz_f_tokenizer_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_tokenizer_SOURCES = %D%/fuzz/f_tokenizer.c $(FUZZ_MAIN)
tests_fuzz_f_worker_LDADD = $(GATE_LIBS)
tests_fuzz_f_worker_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LD)
tests_fuzz_f_worker_SOURCES = %D%/fuzz/f_worker.c $(GATE_FIXTURE) $(FUZZ_MAIN)
tests_bench_b_cache_SOURCES = %D%/bench/b_cache.c $(SIM_FIXTURE)
tests_bench_b_engine_SOURCES = %D%/bench/b_engine.c $(SIM_FIXTURE)
tests_bench_b_instruments_SOURCES = %D%/bench/b_instruments.c $(SIM_FIXTURE)
tests_bench_b_ppl_SOURCES = %D%/bench/b_ppl.c $(SIM_FIXTURE)
tests_bench_b_gpu_SOURCES = %D%/bench/b_gpu.c $(GPU_BENCH)
tests_bench_b_gpu_attention_SOURCES = %D%/bench/b_gpu_attention.c $(GPU_BENCH)
tests_bench_b_gpu_quant_SOURCES = %D%/bench/b_gpu_quant.c $(GPU_BENCH)
tests_bench_b_gpu_sample_SOURCES = %D%/bench/b_gpu_sample.c $(GPU_BENCH)
tests_bench_b_gate_SOURCES = %D%/bench/b_gate.c $(GATE_FIXTURE)
tests_unit_u_client_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
tests_unit_u_client_lies_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
tests_unit_u_client_room_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
tests_unit_u_client_reconnect_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
tests_unit_u_client_tokens_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
tests_unit_u_client_loop_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
tests_unit_u_client_parked_LDADD = $(CLIENT_LIBS) $(CMOCKA_LIBS)
tests_unit_u_where_LDADD = $(FDTOOLS_LIBS) $(CMOCKA_LIBS)
tests_unit_u_top_LDADD = $(FDTOOLS_LIBS) $(CMOCKA_LIBS)
tests_unit_u_doctor_SOURCES = %D%/unit/u_doctor.c $(DOCTOR_FIXTURE)
tests_unit_u_doctor_LDADD = $(FDTOOLS_LIBS) $(CMOCKA_LIBS)
tests_unit_u_doctor_gpu_SOURCES = %D%/unit/u_doctor_gpu.c $(DOCTOR_FIXTURE)
tests_unit_u_doctor_gpu_LDADD = $(FDTOOLS_LIBS) $(CMOCKA_LIBS)
tests_unit_u_fdbench_SOURCES = %D%/unit/u_fdbench.c $(FDBENCH_FIXTURE)
tests_unit_u_fdbench_LDADD = $(FDBENCH_LIBS) $(CMOCKA_LIBS)
tests_unit_u_fdbench_against_SOURCES = %D%/unit/u_fdbench_against.c
tests_unit_u_fdbench_against_LDADD = $(FDBENCH_LIBS) $(CMOCKA_LIBS)
tests_unit_u_fdbench_load_SOURCES = %D%/unit/u_fdbench_load.c $(FDBENCH_FIXTURE) $(MOCK_GATE)
tests_unit_u_fdbench_load_LDADD = $(FDBENCH_LIBS) $(CMOCKA_LIBS)
tests_unit_u_fdbench_report_SOURCES = %D%/unit/u_fdbench_report.c
tests_unit_u_fdbench_report_LDADD = $(FDBENCH_LIBS) $(CMOCKA_LIBS)
tests_unit_u_answer_LDADD = $(CHAT_LIBS) $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_chat_render_SOURCES = %D%/chat/render.c
tests_chat_render_LDADD = $(CHAT_LIBS)
tests_unit_u_chat_LDADD = $(CHAT_LIBS) $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_unit_u_http_CPPFLAGS = $(AM_CPPFLAGS) $(HTTP_TABLES)
tests_unit_u_http_LDADD = $(HTTP_LIBS) -lm $(CMOCKA_LIBS)
tests_unit_u_http_live_CPPFLAGS = $(AM_CPPFLAGS) $(HTTP_TABLES)
tests_unit_u_http_live_LDADD = $(HTTP_LIBS) -lm $(CMOCKA_LIBS)
tests_unit_u_http_served_CPPFLAGS = $(AM_CPPFLAGS) $(HTTP_TABLES)
tests_unit_u_http_served_LDADD = $(HTTP_LIBS) -lm $(CMOCKA_LIBS)
tests_unit_u_http_shape_CPPFLAGS = $(AM_CPPFLAGS) $(HTTP_TABLES)
tests_unit_u_http_shape_LDADD = $(HTTP_LIBS) $(JANSSON_LIBS) -lm $(CMOCKA_LIBS)
tests_unit_u_fdctl_LDADD = $(FDTOOLS_LIBS) $(CMOCKA_LIBS)
tests_unit_u_trace_LDADD = $(FDTOOLS_LIBS) $(CMOCKA_LIBS)
tests_unit_u_prom_LDADD = $(FDTOOLS_LIBS) $(CMOCKA_LIBS)
tests_bench_b_client_LDADD = $(CLIENT_LIBS)
tests_bench_b_path_LDADD = $(CLIENT_LIBS)
tests_bench_b_render_LDADD = $(CHAT_LIBS) $(COMMON_LIBS)
tests_bench_b_fair_SOURCES = %D%/bench/b_fair.c $(FAIR_LOAD)
tests_bench_b_fair_LDADD = $(CLIENT_LIBS)

# the longest first, so that the others run meanwhile
SYS_TESTS = \
	%D%/sys/048-hostile-load.sh \
	%D%/sys/031-boot.sh \
	%D%/sys/053-tools.sh \
	%D%/sys/054-output.sh \
	%D%/sys/001-minimal.sh \
	%D%/sys/002-demo.sh \
	%D%/sys/003-bad-start.sh \
	%D%/sys/004-client-death.sh \
	%D%/sys/005-worker-death.sh \
	%D%/sys/006-admin.sh \
	%D%/sys/007-bad-requests.sh \
	%D%/sys/008-hostile.sh \
	%D%/sys/009-soak.sh \
	%D%/sys/010-install.sh \
	%D%/sys/011-reference.sh \
	%D%/sys/012-commands.sh \
	%D%/sys/013-fairness.sh \
	%D%/sys/014-config.sh \
	%D%/sys/015-kv-fp8.sh \
	%D%/sys/016-graphs.sh \
	%D%/sys/017-prefix-cache.sh \
	%D%/sys/018-parameters.sh \
	%D%/sys/020-fdbench.sh \
	%D%/sys/021-trace.sh \
	%D%/sys/022-top.sh \
	%D%/sys/023-metrics.sh \
	%D%/sys/024-doctor.sh \
	%D%/sys/025-logs.sh \
	%D%/sys/026-profile.sh \
	%D%/sys/027-device-fault.sh \
	%D%/sys/028-fp8-weights.sh \
	%D%/sys/029-mixed.sh \
	%D%/sys/030-service.sh \
	%D%/sys/032-log-stalled.sh \
	%D%/sys/033-restricted.sh \
	%D%/sys/033-waiting.sh \
	%D%/sys/034-other-user.sh \
	%D%/sys/035-dist.sh \
	%D%/sys/036-progress.sh \
	%D%/sys/037-last-words.sh \
	%D%/sys/041-program.sh \
	%D%/sys/042-instances.sh \
	%D%/sys/043-completion.sh \
	%D%/sys/060-python.sh \
	%D%/sys/061-python-requests.sh \
	%D%/sys/062-python-faults.sh \
	%D%/sys/063-python-wheel.sh \
	%D%/sys/064-cplusplus.sh \
	%D%/sys/065-examples.sh \
	%D%/sys/045-segments.sh \
	%D%/sys/046-hang.sh \
	%D%/sys/048-confined.sh \
	%D%/sys/044-boot-instance.sh \
	%D%/sys/047-special-text.sh \
	%D%/sys/049-admin-lockout.sh \
	%D%/sys/050-locks.sh \
	%D%/sys/051-blocked.sh \
	%D%/sys/052-wait.sh \
	%D%/sys/054-rules.sh \
	%D%/sys/054-reconnect.sh \
	%D%/sys/055-chat.sh \
	%D%/sys/056-up.sh \
	%D%/sys/057-clock.sh \
	%D%/sys/066-demo-chat.sh \
	%D%/sys/067-ranks.sh \
	%D%/sys/070-groups.sh \
	%D%/sys/071-placement.sh \
	%D%/sys/072-groups-equal.sh \
	%D%/sys/073-gpu-multi.sh \
	%D%/sys/074-slices.sh \
	%D%/sys/075-context.sh
# fdd-http; the numbers are those of the points of acceptance that they show
GATEWAY_TESTS = \
	%D%/gateway/G09-stopped.sh \
	%D%/gateway/G01-clients.sh \
	%D%/gateway/G02-fields.sh \
	%D%/gateway/G03-messages.sh \
	%D%/gateway/G03-responses.sh \
	%D%/gateway/G03-streams.sh \
	%D%/gateway/G04-logprobs.sh \
	%D%/gateway/G05-status.sh \
	%D%/gateway/G06-smuggling.sh \
	%D%/gateway/G07-dribble.sh \
	%D%/gateway/G08-leave.sh \
	%D%/gateway/G10-idle.sh \
	%D%/gateway/G11-fuzz.sh \
	%D%/gateway/G12-memory.sh \
	%D%/gateway/G13-shares.sh \
	%D%/gateway/G14-death.sh \
	%D%/gateway/G15-drain.sh \
	%D%/gateway/G16-templates.sh \
	%D%/gateway/G17-endless.sh \
	%D%/gateway/G18-special.sh \
	%D%/gateway/G19-parsers.sh \
	%D%/gateway/G20-arguments.sh \
	%D%/gateway/G21-calls.sh \
	%D%/gateway/G22-metrics.sh \
	%D%/gateway/G23-page.sh \
	%D%/gateway/bodies.sh \
	%D%/gateway/lengths.sh %D%/gateway/odd.sh %D%/gateway/pauses.sh \
	%D%/gateway/room.sh \
	%D%/gateway/quickstart.sh \
	%D%/gateway/loops.sh \
	%D%/gateway/hang.sh \
	%D%/gateway/models.sh \
	%D%/gateway/users.sh
SYS_HELPERS = %D%/bench/b_collective %D%/bench/http_bare %D%/bench/http_load %D%/chat/render %D%/sys/soak %D%/sys/resume %D%/sys/hostile/attack %D%/sys/hostile/lies %D%/sys/hostile/probe \
	%D%/sys/fair %D%/sys/groups %D%/gpu/g_mixed %D%/gpu/g_parity \
	%D%/gpu/g_restricted %D%/gateway/dribble %D%/gateway/says %D%/parity/golden_ops
tests_parity_golden_ops_SOURCES = %D%/parity/golden_ops.c %D%/parity/golden_ops.h \
	%D%/parity/golden_attention.c %D%/parity/golden_gemm.c %D%/parity/golden_rows.c \
	%D%/parity/golden_sample.c
tests_gateway_says_SOURCES = %D%/gateway/says.c $(MOCK_GATE)
tests_gateway_says_LDADD = $(CLIENT_LIBS)
tests_gateway_dribble_LDADD =
tests_sys_fair_SOURCES = %D%/sys/fair.c $(FAIR_LOAD)
tests_bench_http_bare_LDADD =
tests_bench_http_load_LDADD =
tests_sys_fair_LDADD = $(CLIENT_LIBS)
tests_sys_groups_LDADD = $(CLIENT_LIBS) -lm
tests_sys_soak_LDADD = $(CLIENT_LIBS)
tests_sys_resume_LDADD = $(CLIENT_LIBS)
tests_gpu_g_mixed_LDADD = $(CLIENT_LIBS)
tests_gpu_g_restricted_LDADD =
tests_sys_hostile_attack_SOURCES = %D%/sys/hostile/attack.c %D%/sys/hostile/attack.h \
	%D%/sys/hostile/attack_admin.c %D%/sys/hostile/attack_connect.c \
	%D%/sys/hostile/attack_request.c %D%/sys/hostile/attack_ring.c $(HOSTILE_RAW)
tests_sys_hostile_attack_LDADD =
tests_sys_hostile_lies_SOURCES = %D%/sys/hostile/lies.c $(HOSTILE_RAW)
tests_sys_hostile_lies_LDADD =
tests_sys_hostile_probe_SOURCES = %D%/sys/hostile/probe.c $(HOSTILE_RAW)
tests_sys_hostile_probe_LDADD = $(CLIENT_LIBS)

SOURCE_TESTS = \
	tools/dev/check_layers.sh \
	tools/dev/check_headers.sh \
	tools/dev/check_style.sh \
	tools/dev/check_format.sh \
	tools/dev/check_docs.sh \
	tools/dev/check_findings.sh \
	tools/dev/check_glossary.sh \
	tools/dev/check_words.sh \
	%D%/unit/abi.sh %D%/unit/layers.sh %D%/unit/format.sh \
	%D%/unit/ci_sample.sh \
	%D%/unit/man_chat_example.sh %D%/unit/man_example.sh

FDD_TEST_BINS = $(UNIT_TESTS) $(SIM_TESTS) $(KERNEL_TESTS) $(PARITY_TESTS) \
	$(FUZZ_TARGETS) $(SYS_HELPERS)
FDD_BENCHES = \
	%D%/bench/b_cache \
	%D%/bench/b_client \
	%D%/bench/b_engine \
	%D%/bench/b_fair \
	%D%/bench/b_gate \
	%D%/bench/b_gpu \
	%D%/bench/b_gpu_attention \
	%D%/bench/b_gpu_quant \
	%D%/bench/b_gpu_sample \
	%D%/bench/b_instruments \
	%D%/bench/b_log \
	%D%/bench/b_kernels \
	%D%/bench/b_load \
	%D%/bench/b_path \
	%D%/bench/b_ppl \
	%D%/bench/b_prefix \
	%D%/bench/b_render \
	%D%/bench/b_ring \
	%D%/bench/b_tokenizer
BENCHES += $(FDD_BENCHES)

if HAVE_CMOCKA
check_PROGRAMS += $(FDD_TEST_BINS)
TESTS += $(SOURCE_TESTS) $(UNIT_TESTS) %D%/model/run $(SIM_TESTS) $(KERNEL_TESTS) \
	$(PARITY_TESTS) $(FUZZ_TARGETS) $(SYS_TESTS) $(GATEWAY_TESTS)
endif
EXTRA_PROGRAMS += $(FDD_TEST_BINS) $(FDD_BENCHES)

fuzzers: $(FUZZ_TARGETS)
# Names of the tests that run built programs.
built-tests:
	@echo $(filter-out $(SOURCE_TESTS) %D%/model/run,$(TESTS))
# Programs that tests start.
test-helpers:
	@echo $(SYS_HELPERS)
.PHONY: fuzzers built-tests test-helpers
