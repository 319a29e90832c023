# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfddworker.a
libfddworker_a_SOURCES = \
	%D%/admin.c \
	%D%/admin.h \
	%D%/admin_answer.c \
	%D%/admin_program.c \
	%D%/admin_priv.h \
	%D%/admin_profile.c \
	%D%/batch.c \
	%D%/batch.h \
	%D%/bpe.c \
	%D%/bpe.h \
	%D%/capture.c \
	%D%/capture.h \
	%D%/peak.c \
	%D%/peak.h \
	%D%/confine.c \
	%D%/confine.h \
	%D%/cost.c \
	%D%/cost.h \
	%D%/detok.c \
	%D%/device.c \
	%D%/devices.c \
	%D%/devices.h \
	%D%/devlock.c \
	%D%/devlock.h \
	%D%/detok.h \
	%D%/egress.c \
	%D%/egress.h \
	%D%/egress_answer.c \
	%D%/egress_best.c \
	%D%/egress_priv.h \
	%D%/egress_prompt.c \
	%D%/egress_record.c \
	%D%/egress_token.c \
	%D%/engine.c \
	%D%/engine.h \
	%D%/files.c \
	%D%/files.h \
	%D%/finish.c \
	%D%/finish.h \
	%D%/ingress.c \
	%D%/ingress.h \
	%D%/ingress_check.c \
	%D%/ingress_rules.c \
	%D%/kvcache.c \
	%D%/kvcache.h \
	%D%/kvcache_check.c \
	%D%/kvcache_priv.h \
	%D%/kvcache_setup.c \
	%D%/load.c \
	%D%/load_memory.c \
	%D%/load_shape.c \
	%D%/lookahead.c \
	%D%/lookahead.h \
	%D%/memplan.c \
	%D%/memplan.h \
	%D%/model.c \
	%D%/model.h \
	%D%/model_build.c \
	%D%/model_config.c \
	%D%/model_ernie4_5.c \
	%D%/model_fields.c \
	%D%/model_file.c \
	%D%/model_gemma2.c \
	%D%/model_gemma3_text.c \
	%D%/model_glm4.c \
	%D%/model_granite.c \
	%D%/model_json.c \
	%D%/model_llama.c \
	%D%/model_mistral.c \
	%D%/model_olmo2.c \
	%D%/model_phi3.c \
	%D%/model_program.c \
	%D%/model_priv.h \
	%D%/model_quant.c \
	%D%/model_qwen2.c \
	%D%/model_qwen3.c \
	%D%/model_rope.c \
	%D%/model_smollm3.c \
	%D%/null_tok.c \
	%D%/null_tok.h \
	%D%/pipeline.c \
	%D%/pipeline.h \
	%D%/prefix.c \
	%D%/prefix.h \
	%D%/profile.c \
	%D%/prime.c \
	%D%/prime.h \
	%D%/profile.h \
	%D%/quant.c \
	%D%/quant.h \
	%D%/queue.h \
	%D%/req.c \
	%D%/req.h \
	%D%/rules.c \
	%D%/rules.h \
	%D%/runner.c \
	%D%/runner.h \
	%D%/runner_check.c %D%/runner_program.c \
	%D%/runner_setup.c \
	%D%/safetensors.c \
	%D%/sampler.c \
	%D%/sampler.h \
	%D%/scheduler.c \
	%D%/scheduler.h \
	%D%/scheduler_admit.c \
	%D%/scheduler_budget.c \
	%D%/scheduler_order.c \
	%D%/scheduler_pick.c \
	%D%/scheduler_pick_priv.h \
	%D%/scheduler_priv.h \
	%D%/scheduler_urgent.c \
	%D%/tokenizer.c \
	%D%/tokenizer.h \
	%D%/tokenizer_base.c \
	%D%/tokenizer_load.c \
	%D%/tokenizer_norm.c \
	%D%/tokenizer_priv.h \
	%D%/tokenizer_regex.c \
	%D%/tokenizer_vocab.c \
	%D%/weights.c \
	%D%/weights.h \
	%D%/weights_check.c \
	%D%/weights_dummy.c \
	%D%/weights_fp8.c \
	%D%/weights_host.c \
	%D%/weights_kv.c \
	%D%/weights_load.c \
	%D%/weights_load.h \
	%D%/weights_place.c \
	%D%/weights_priv.h \
	%D%/weights_read.c \
	%D%/weights_tensor.c \
	%D%/weights_tied.c \
	%D%/worker.h \
	daemon/tbl/req_states.h
libfddworker_a_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(PCRE2_CFLAGS) \
	$(UTF8PROC_CFLAGS) $(URING_CFLAGS)
WORKER_OTHER_LIBS = $(JANSSON_LIBS) $(PCRE2_LIBS) $(UTF8PROC_LIBS) $(URING_LIBS)
WORKER_LIBS = libfddworker.a $(COMMON_LIBS) $(KERNEL_LIBS) $(WORKER_OTHER_LIBS)
WORKER_TEST_LIBS = libfddworker.a $(COMMON_LIBS) $(KERNEL_TEST_LIBS) $(WORKER_OTHER_LIBS)

pkglibexec_PROGRAMS += fdd-worker
fdd_worker_SOURCES = %D%/main.c
fdd_worker_LDADD = $(WORKER_LIBS)
