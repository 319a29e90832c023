/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that a program compiled against fdclient.h contains: offsets of the fields
 * of public structs, and values of constants. A line here never changes while the library
 * is libfdclient.so.1; each added field or constant gets a line. (Sizes of pointers are
 * those of 64 bits; elsewhere the test is skipped.)
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libclient/fdclient.h"

struct place {
    const char *name;
    size_t at, size, want_at, want_size;
};

struct value {
    const char *name;
    uint64_t is, want;
};

#define F(type, field, at, size) \
    { \
#type "." #field, offsetof(struct type, field), \
            sizeof(((struct type *)NULL)->field), at, size \
    }
#define S(type, size) \
    { \
#type, 0, sizeof(struct type), 0, size \
    }
#define V(name, want) \
    { \
#name, (uint64_t)(int64_t)(name), (uint64_t)(int64_t)(want) \
    }
#define M(name, want) \
    { \
#name, (uint64_t)(name), want \
    }

static const struct place places[] = {
    S(fdc_accepted, 16),
    F(fdc_accepted, prompt_len, 0, 4),
    F(fdc_accepted, cached_len, 4, 4),
    F(fdc_accepted, seed, 8, 8),
    S(fdc_logprob, 8),
    F(fdc_logprob, id, 0, 4),
    F(fdc_logprob, logprob, 4, 4),
    S(fdc_special, 8),
    F(fdc_special, id, 0, 4),
    F(fdc_special, n_text, 4, 4),
    S(fdc_choice_end, 24),
    F(fdc_choice_end, finish, 0, 4),
    F(fdc_choice_end, n_tokens, 4, 4),
    F(fdc_choice_end, stop_id, 8, 4),
    F(fdc_choice_end, stop_str, 12, 4),
    F(fdc_choice_end, n_reasoning, 16, 4),
    F(fdc_choice_end, mean_logprob, 20, 4),
    S(fdc_done, 48),
    F(fdc_done, prompt_tokens, 0, 4),
    F(fdc_done, cached_tokens, 4, 4),
    F(fdc_done, output_tokens, 8, 4),
    F(fdc_done, n_preempted, 12, 4),
    F(fdc_done, t_submit, 16, 8),
    F(fdc_done, t_start, 24, 8),
    F(fdc_done, t_first, 32, 8),
    F(fdc_done, t_end, 40, 8),
    S(fdc_error, 24),
    F(fdc_error, code, 0, 4),
    F(fdc_error, retry_after_ms, 4, 4),
    F(fdc_error, detail, 8, 4),
    F(fdc_error, arg, 12, 4),
    F(fdc_error, limit, 16, 4),
    F(fdc_error, item, 20, 4),
    S(fdc_bias, 8),
    F(fdc_bias, id, 0, 4),
    F(fdc_bias, bias, 4, 4),
    S(fdc_span, 8),
    F(fdc_span, off, 0, 4),
    F(fdc_span, len, 4, 4),
    S(fdc_repetition, 16),
    F(fdc_repetition, min_len, 0, 4),
    F(fdc_repetition, max_len, 4, 4),
    F(fdc_repetition, count, 8, 4),
    F(fdc_repetition, rsv, 12, 4),
    S(fdc_reasoning, 16),
    F(fdc_reasoning, max_tokens, 0, 4),
    F(fdc_reasoning, open_id, 4, 4),
    F(fdc_reasoning, close_id, 8, 4),
    F(fdc_reasoning, rsv, 12, 4),
    S(fdc_open_error, 256),
    F(fdc_open_error, size, 0, 4),
    F(fdc_open_error, os_error, 4, 4),
    F(fdc_open_error, retry_after_ms, 8, 4),
    F(fdc_open_error, major, 12, 2),
    F(fdc_open_error, minor, 14, 2),
    F(fdc_open_error, text, 16, 240),
    S(fdc_open_opts, 56),
    F(fdc_open_opts, size, 0, 4),
    F(fdc_open_opts, spin_us, 4, 4),
    F(fdc_open_opts, path, 8, 8),
    F(fdc_open_opts, name, 16, 8),
    F(fdc_open_opts, sq_slots, 24, 4),
    F(fdc_open_opts, cq_slots, 28, 4),
    F(fdc_open_opts, arena_bytes, 32, 4),
    F(fdc_open_opts, connect_timeout_ms, 36, 4),
    F(fdc_open_opts, max_unread_bytes, 40, 4),
    F(fdc_open_opts, reconnect_ms, 44, 4),
    F(fdc_open_opts, ret_error, 48, 8),
    S(fdc_model_info, 224),
    F(fdc_model_info, size, 0, 4),
    F(fdc_model_info, vocab, 4, 4),
    F(fdc_model_info, max_model_len, 8, 4),
    F(fdc_model_info, bos_id, 12, 4),
    F(fdc_model_info, has_tokenizer, 16, 4),
    F(fdc_model_info, n_eos, 20, 4),
    F(fdc_model_info, eos_ids, 24, 32),
    F(fdc_model_info, block_size, 56, 4),
    F(fdc_model_info, digest, 60, 32),
    F(fdc_model_info, name, 92, 64),
    F(fdc_model_info, set, 156, 4),
    F(fdc_model_info, temperature, 160, 4),
    F(fdc_model_info, top_p, 164, 4),
    F(fdc_model_info, top_k, 168, 4),
    F(fdc_model_info, min_p, 172, 4),
    F(fdc_model_info, repetition_penalty, 176, 4),
    F(fdc_model_info, max_logprobs, 180, 4),
    F(fdc_model_info, max_n, 184, 4),
    F(fdc_model_info, max_stop, 188, 4),
    F(fdc_model_info, max_stop_len, 192, 4),
    F(fdc_model_info, max_stop_ids, 196, 4),
    F(fdc_model_info, max_bias, 200, 4),
    F(fdc_model_info, max_bad, 204, 4),
    F(fdc_model_info, max_logprob_ids, 208, 4),
    F(fdc_model_info, offers, 216, 8),
    S(fdc_info, 64),
    F(fdc_info, size, 0, 4),
    F(fdc_info, max_inflight, 4, 4),
    F(fdc_info, boot_id, 8, 16),
    F(fdc_info, session_id, 24, 8),
    F(fdc_info, features, 32, 8),
    F(fdc_info, max_request_bytes, 40, 4),
    F(fdc_info, major, 44, 2),
    F(fdc_info, minor, 46, 2),
    F(fdc_info, n_reconnect, 48, 4),
    F(fdc_info, rsv, 52, 4),
    F(fdc_info, model, 56, 8),
    S(fdc_params, 232),
    F(fdc_params, size, 0, 4),
    F(fdc_params, flags, 4, 4),
    F(fdc_params, max_new, 8, 4),
    F(fdc_params, min_new, 12, 4),
    F(fdc_params, temperature, 16, 4),
    F(fdc_params, top_p, 20, 4),
    F(fdc_params, min_p, 24, 4),
    F(fdc_params, top_k, 28, 4),
    F(fdc_params, presence_penalty, 32, 4),
    F(fdc_params, frequency_penalty, 36, 4),
    F(fdc_params, repetition_penalty, 40, 4),
    F(fdc_params, n, 44, 4),
    F(fdc_params, best_of, 48, 4),
    F(fdc_params, logprobs, 52, 4),
    F(fdc_params, prompt_logprobs, 56, 4),
    F(fdc_params, prompt_from, 60, 4),
    F(fdc_params, seed, 64, 8),
    F(fdc_params, stop, 72, 8),
    F(fdc_params, stop_len, 80, 8),
    F(fdc_params, stop_ids, 88, 8),
    F(fdc_params, prior_ids, 96, 8),
    F(fdc_params, allowed_ids, 104, 8),
    F(fdc_params, bias, 112, 8),
    F(fdc_params, bad_words, 120, 8),
    F(fdc_params, bad_ids, 128, 8),
    F(fdc_params, bad_ids_len, 136, 8),
    F(fdc_params, logprob_ids, 144, 8),
    F(fdc_params, spans, 152, 8),
    F(fdc_params, grammar, 160, 8),
    F(fdc_params, n_stop, 168, 4),
    F(fdc_params, n_stop_ids, 172, 4),
    F(fdc_params, n_prior, 176, 4),
    F(fdc_params, n_allowed, 180, 4),
    F(fdc_params, n_bias, 184, 4),
    F(fdc_params, n_bad_words, 188, 4),
    F(fdc_params, n_bad_ids, 192, 4),
    F(fdc_params, n_logprob_ids, 196, 4),
    F(fdc_params, n_spans, 200, 4),
    F(fdc_params, grammar_len, 204, 4),
    F(fdc_params, repetition, 208, 8),
    F(fdc_params, reasoning, 216, 8),
    F(fdc_params, adapter, 224, 8),
    S(fdc_submit_opts, 80),
    F(fdc_submit_opts, size, 0, 4),
    F(fdc_submit_opts, priority, 4, 4),
    F(fdc_submit_opts, user, 8, 8),
    F(fdc_submit_opts, salt, 16, 16),
    F(fdc_submit_opts, ttl_queue_ms, 32, 4),
    F(fdc_submit_opts, ttl_total_ms, 36, 4),
    F(fdc_submit_opts, submit_timeout_ms, 40, 4),
    F(fdc_submit_opts, stream_interval, 44, 4),
    F(fdc_submit_opts, exclusive_reader, 48, 4),
    F(fdc_submit_opts, no_resume, 52, 4),
    F(fdc_submit_opts, user_ptr, 56, 8),
    F(fdc_submit_opts, error_text, 64, 8),
    F(fdc_submit_opts, error_text_bytes, 72, 4),
    F(fdc_submit_opts, rsv, 76, 4),
    S(fdc_submit, 64),
    F(fdc_submit, size, 0, 4),
    F(fdc_submit, status, 4, 4),
    F(fdc_submit, text, 8, 8),
    F(fdc_submit, ids, 16, 8),
    F(fdc_submit, n_text, 24, 8),
    F(fdc_submit, n_ids, 32, 8),
    F(fdc_submit, params, 40, 8),
    F(fdc_submit, opts, 48, 8),
    F(fdc_submit, req, 56, 8),
    S(fdc_event, 32),
    F(fdc_event, size, 0, 4),
    F(fdc_event, type, 4, 4),
    F(fdc_event, sample, 8, 4),
    F(fdc_event, position, 12, 4),
    F(fdc_event, n, 16, 4),
    F(fdc_event, more, 20, 4),
    F(fdc_event, data, 24, 8),
    F(fdc_event, ids, 24, 8),
    F(fdc_event, text, 24, 8),
    F(fdc_event, logprobs, 24, 8),
    F(fdc_event, special, 24, 8),
    F(fdc_event, accepted, 24, 8),
    F(fdc_event, choice_end, 24, 8),
    F(fdc_event, done, 24, 8),
    F(fdc_event, error, 24, 8),
};

static const struct value values[] = {
    V(FDC_OK, 0),
    V(FDC_E_PROTO, -1),
    V(FDC_E_VERSION, -2),
    V(FDC_E_PERM, -3),
    V(FDC_E_SLOW, -4),
    V(FDC_E_BAD_PARAM, -10),
    V(FDC_E_TOO_LONG, -11),
    V(FDC_E_BAD_TOKEN, -12),
    V(FDC_E_NO_MODEL, -13),
    V(FDC_E_NO_FILE, -14),
    V(FDC_E_BAD_TEXT, -15),
    V(FDC_E_UNSUPPORTED, -16),
    V(FDC_E_QUEUE_FULL, -20),
    V(FDC_E_LIMIT, -21),
    V(FDC_E_OVERLOAD, -22),
    V(FDC_E_LOADING, -23),
    V(FDC_E_DRAINING, -24),
    V(FDC_E_GPU_RESET, -25),
    V(FDC_E_DEADLINE, -30),
    V(FDC_E_CANCELLED, -31),
    V(FDC_E_GPU_LOST, -40),
    V(FDC_E_INTERNAL, -41),
    V(FDC_E_NUMERIC, -42),
    V(FDC_E_DISCONNECTED, -50),
    V(FDC_E_TIMEOUT, -51),
    V(FDC_E_FORKED, -52),
    V(FDC_E_AGAIN, -53),
    V(FDC_E_NOMEM, -54),
    V(FDC_E_INVAL, -55),
    V(FDC_E_CONNECT, -56),
    V(FDC_E_FULL, -57),
    V(FDC_E_UNREAD, -58),
    V(FDC_E_ARENA, -59),
    V(FDC_T_ACCEPTED, 1),
    V(FDC_T_PROMPT_IDS, 2),
    V(FDC_T_IDS, 3),
    V(FDC_T_TEXT, 4),
    V(FDC_T_LOGPROBS, 5),
    V(FDC_T_PROMPT_LOGPROBS, 6),
    V(FDC_T_CHOICE_END, 7),
    V(FDC_T_DONE, 8),
    V(FDC_T_ERROR, 9),
    V(FDC_T_PROMPT_TEXT, 13),
    V(FDC_T_TOKEN_TEXT, 14),
    V(FDC_T_SPECIAL, 15),
    V(FDC_FIN_NONE, 0),
    V(FDC_FIN_STOP, 1),
    V(FDC_FIN_LENGTH, 2),
    V(FDC_FIN_ERROR, 3),
    V(FDC_FIN_REPETITION, 4),
    V(FDC_D_NONE, 0),
    V(FDC_D_OP, 1),
    V(FDC_D_FLAGS, 2),
    V(FDC_D_N, 3),
    V(FDC_D_MAX_NEW, 4),
    V(FDC_D_MIN_NEW, 5),
    V(FDC_D_TEMPERATURE, 6),
    V(FDC_D_TOP_P, 7),
    V(FDC_D_TOP_K, 8),
    V(FDC_D_MIN_P, 9),
    V(FDC_D_PRESENCE, 10),
    V(FDC_D_FREQUENCY, 11),
    V(FDC_D_PENALTY, 12),
    V(FDC_D_LOGPROBS, 13),
    V(FDC_D_PROMPT_LOGPROBS, 14),
    V(FDC_D_STREAM, 15),
    V(FDC_D_PRIORITY, 16),
    V(FDC_D_TTL, 17),
    V(FDC_D_PRIOR, 18),
    V(FDC_D_USER, 19),
    V(FDC_D_RESERVED, 20),
    V(FDC_D_TAG, 21),
    V(FDC_D_BLOB, 22),
    V(FDC_D_ITEM, 23),
    V(FDC_D_PROMPT, 24),
    V(FDC_D_PROMPT_ID, 25),
    V(FDC_D_STOP, 26),
    V(FDC_D_BIAS, 27),
    V(FDC_D_ALLOWED, 28),
    V(FDC_D_GRAMMAR, 29),
    V(FDC_D_BAD_WORDS, 30),
    V(FDC_D_SET, 31),
    V(FDC_D_PROMPT_FROM, 32),
    V(FDC_D_BEST_OF, 33),
    V(FDC_D_LOGPROB_IDS, 34),
    V(FDC_D_SPANS, 35),
    V(FDC_D_REPETITION, 36),
    V(FDC_D_REASONING, 37),
    V(FDC_D_ADAPTER, 38),
    V(FDC_D_IMAGE, 39),
    V(FDC_D_FILE, 40),
    M(FDC_F_TEXT, 1u),
    M(FDC_F_PROMPT_IDS, 2u),
    M(FDC_F_IGNORE_EOS, 4u),
    M(FDC_F_PROMPT_TEXT, 8u),
    M(FDC_F_TOKEN_TEXT, 16u),
    M(FDC_F_ALONE, 32u),
    M(FDC_F_NO_SPECIAL, 64u),
    M(FDC_F_KEEP_SPECIAL, 256u),
    M(FDC_F_KEEP_STOP, 512u),
    M(FDC_F_PARSE_SPECIAL, 4096u),
    M(FDC_SPIN_NONE, 4294967295u),
    M(FDC_SET_TEMPERATURE, 2u),
    M(FDC_SET_TOP_P, 4u),
    M(FDC_SET_TOP_K, 8u),
    M(FDC_SET_MIN_P, 16u),
    M(FDC_SET_REPETITION, 128u),
    M(FDC_HAS_BIAS, 64u),
    M(FDC_HAS_BAD_WORDS, 128u),
    M(FDC_HAS_ALLOWED, 256u),
    M(FDC_HAS_GRAMMAR, 512u),
    M(FDC_HAS_BAD_IDS, 2048u),
    M(FDC_HAS_LOGPROB_IDS, 4096u),
    M(FDC_HAS_SPANS, 8192u),
    M(FDC_HAS_REPETITION, 16384u),
    M(FDC_HAS_REASONING, 32768u),
    M(FDC_HAS_ADAPTER, 65536u),
    M(FDC_HAS_FILE, 262144u),
    M(FDC_FEAT_TOKENIZE, 1u),
    M(FDC_UNSET, 4294967295u),
    M(FDC_UNSET64, UINT64_MAX),
    M(FDC_S_DOWN, 1u),
    M(FDC_S_DRAIN, 2u),
    M(FDC_S_RECONNECTING, 4u),
    M(FDC_LITERAL, 2147483648u),
};

static void
t_places(void **state)
{
    (void)state;
    if (sizeof(void *) != 8)
        skip();
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const struct place *p = &places[i];
        if (p->at != p->want_at || p->size != p->want_size)
            fail_msg("%s is %zu bytes at %zu, was %zu at %zu", p->name, p->size, p->at,
                p->want_size, p->want_at);
    }
}

static void
t_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (values[i].is != values[i].want)
            fail_msg("%s is %lld, was %lld", values[i].name, (long long)values[i].is,
                (long long)values[i].want);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(t_places),
        cmocka_unit_test(t_values) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
