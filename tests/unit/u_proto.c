/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol's layout, byte for byte, as in every released client and daemon. A
 * difference here is a new major version, not a new golden table: only constants and new
 * fields in reserved room may be added.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "libclient/fdproto.h"

#define SIZE(s, n) { #s, sizeof(struct s), n, 0, 0 },
#define FIELD(s, f, o, n) \
    { #s "." #f, offsetof(struct s, f), o, sizeof(((struct s *)0)->f), n },
#define CONST(c, v) { #c, (long long)(c), v, 0, 0 },

static const struct {
    const char *name;
    long long is, golden, is_len, golden_len;
} table[] = {
    SIZE(fdp_hello, 80)
    FIELD(fdp_hello, magic, 0, 4)
    FIELD(fdp_hello, major, 4, 2)
    FIELD(fdp_hello, minor, 6, 2)
    FIELD(fdp_hello, size, 8, 4)
    FIELD(fdp_hello, rsv0, 12, 4)
    FIELD(fdp_hello, feat_want, 16, 8)
    FIELD(fdp_hello, feat_need, 24, 8)
    FIELD(fdp_hello, sq_slots, 32, 4)
    FIELD(fdp_hello, cq_slots, 36, 4)
    FIELD(fdp_hello, arena_bytes, 40, 4)
    FIELD(fdp_hello, rsv1, 44, 4)
    FIELD(fdp_hello, name, 48, 32)
    SIZE(fdp_welcome, 192)
    FIELD(fdp_welcome, magic, 0, 4)
    FIELD(fdp_welcome, major, 4, 2)
    FIELD(fdp_welcome, minor, 6, 2)
    FIELD(fdp_welcome, size, 8, 4)
    FIELD(fdp_welcome, err, 12, 4)
    FIELD(fdp_welcome, feat_on, 16, 8)
    FIELD(fdp_welcome, boot_id, 24, 16)
    FIELD(fdp_welcome, session_id, 40, 8)
    FIELD(fdp_welcome, c2d_bytes, 48, 4)
    FIELD(fdp_welcome, d2c_bytes, 52, 4)
    FIELD(fdp_welcome, sq_slots, 56, 4)
    FIELD(fdp_welcome, cq_slots, 60, 4)
    FIELD(fdp_welcome, sq_off, 64, 4)
    FIELD(fdp_welcome, arena_off, 68, 4)
    FIELD(fdp_welcome, arena_bytes, 72, 4)
    FIELD(fdp_welcome, cq_off, 76, 4)
    FIELD(fdp_welcome, max_inflight, 80, 4)
    FIELD(fdp_welcome, max_model_len, 84, 4)
    FIELD(fdp_welcome, vocab, 88, 4)
    FIELD(fdp_welcome, retry_after_ms, 92, 4)
    FIELD(fdp_welcome, model_digest, 96, 32)
    FIELD(fdp_welcome, model_name, 128, 64)
    SIZE(fdp_state, 24)
    FIELD(fdp_state, state, 0, 4)
    FIELD(fdp_state, reason, 4, 4)
    FIELD(fdp_state, boot_id, 8, 16)
    SIZE(fdp_req, 128)
    FIELD(fdp_req, tag, 0, 8)
    FIELD(fdp_req, op, 8, 2)
    FIELD(fdp_req, n, 10, 2)
    FIELD(fdp_req, flags, 12, 4)
    FIELD(fdp_req, max_new, 16, 4)
    FIELD(fdp_req, min_new, 20, 4)
    FIELD(fdp_req, temperature, 24, 4)
    FIELD(fdp_req, top_p, 28, 4)
    FIELD(fdp_req, top_k, 32, 4)
    FIELD(fdp_req, min_p, 36, 4)
    FIELD(fdp_req, presence_penalty, 40, 4)
    FIELD(fdp_req, frequency_penalty, 44, 4)
    FIELD(fdp_req, repetition_penalty, 48, 4)
    FIELD(fdp_req, logprobs, 52, 1)
    FIELD(fdp_req, prompt_logprobs, 53, 1)
    FIELD(fdp_req, stream_interval, 54, 2)
    FIELD(fdp_req, seed, 56, 8)
    FIELD(fdp_req, priority, 64, 4)
    FIELD(fdp_req, ttl_queue_ms, 68, 4)
    FIELD(fdp_req, ttl_total_ms, 72, 4)
    FIELD(fdp_req, n_prior, 76, 4)
    FIELD(fdp_req, user, 80, 8)
    FIELD(fdp_req, salt, 88, 16)
    FIELD(fdp_req, off, 104, 4)
    FIELD(fdp_req, len, 108, 4)
    FIELD(fdp_req, set, 112, 4)
    FIELD(fdp_req, prompt_from, 116, 4)
    FIELD(fdp_req, best_of, 120, 2)
    FIELD(fdp_req, rsv, 122, 6)
    SIZE(fdp_item, 8)
    FIELD(fdp_item, type, 0, 2)
    FIELD(fdp_item, version, 2, 1)
    FIELD(fdp_item, rsv, 3, 1)
    FIELD(fdp_item, len, 4, 4)
    SIZE(fdp_bias, 8)
    FIELD(fdp_bias, id, 0, 4)
    FIELD(fdp_bias, bias, 4, 4)
    SIZE(fdp_span, 8)
    FIELD(fdp_span, off, 0, 4)
    FIELD(fdp_span, len, 4, 4)
    SIZE(fdp_repetition, 16)
    FIELD(fdp_repetition, min_len, 0, 4)
    FIELD(fdp_repetition, max_len, 4, 4)
    FIELD(fdp_repetition, count, 8, 4)
    FIELD(fdp_repetition, rsv, 12, 4)
    SIZE(fdp_reasoning, 16)
    FIELD(fdp_reasoning, max_tokens, 0, 4)
    FIELD(fdp_reasoning, open_id, 4, 4)
    FIELD(fdp_reasoning, close_id, 8, 4)
    FIELD(fdp_reasoning, rsv, 12, 4)
    SIZE(fdp_file_ask, 16)
    FIELD(fdp_file_ask, off, 0, 8)
    FIELD(fdp_file_ask, len, 8, 4)
    FIELD(fdp_file_ask, rsv, 12, 4)
    SIZE(fdp_file, 8)
    FIELD(fdp_file, size, 0, 8)
    SIZE(fdp_rec, 24)
    FIELD(fdp_rec, tag, 0, 8)
    FIELD(fdp_rec, type, 8, 1)
    FIELD(fdp_rec, n_slot, 9, 1)
    FIELD(fdp_rec, sample, 10, 2)
    FIELD(fdp_rec, position, 12, 4)
    FIELD(fdp_rec, len, 16, 4)
    FIELD(fdp_rec, rsv, 20, 4)
    SIZE(fdp_accepted, 16)
    FIELD(fdp_accepted, prompt_len, 0, 4)
    FIELD(fdp_accepted, cached_len, 4, 4)
    FIELD(fdp_accepted, seed, 8, 8)
    SIZE(fdp_logprob, 8)
    FIELD(fdp_logprob, id, 0, 4)
    FIELD(fdp_logprob, logprob, 4, 4)
    SIZE(fdp_tokens, 8)
    FIELD(fdp_tokens, text_off, 0, 4)
    FIELD(fdp_tokens, n_ids, 4, 2)
    FIELD(fdp_tokens, n_text, 6, 2)
    SIZE(fdp_special, 8)
    FIELD(fdp_special, id, 0, 4)
    FIELD(fdp_special, n_text, 4, 4)
    SIZE(fdp_token_text, 2)
    FIELD(fdp_token_text, n, 0, 2)
    SIZE(fdp_choice_end, 24)
    FIELD(fdp_choice_end, finish, 0, 4)
    FIELD(fdp_choice_end, n_tokens, 4, 4)
    FIELD(fdp_choice_end, stop_id, 8, 4)
    FIELD(fdp_choice_end, stop_str, 12, 4)
    FIELD(fdp_choice_end, n_reasoning, 16, 4)
    FIELD(fdp_choice_end, mean_logprob, 20, 4)
    SIZE(fdp_done, 48)
    FIELD(fdp_done, prompt_tokens, 0, 4)
    FIELD(fdp_done, cached_tokens, 4, 4)
    FIELD(fdp_done, output_tokens, 8, 4)
    FIELD(fdp_done, n_preempted, 12, 4)
    FIELD(fdp_done, t_submit, 16, 8)
    FIELD(fdp_done, t_start, 24, 8)
    FIELD(fdp_done, t_first, 32, 8)
    FIELD(fdp_done, t_end, 40, 8)
    SIZE(fdp_error, 24)
    FIELD(fdp_error, code, 0, 4)
    FIELD(fdp_error, retry_after_ms, 4, 4)
    FIELD(fdp_error, detail, 8, 4)
    FIELD(fdp_error, arg, 12, 4)
    FIELD(fdp_error, limit, 16, 4)
    FIELD(fdp_error, item, 20, 4)
    SIZE(fdp_event, 8)
    FIELD(fdp_event, kind, 0, 4)
    FIELD(fdp_event, arg, 4, 4)
    SIZE(fdp_info, 216)
    FIELD(fdp_info, vocab, 0, 4)
    FIELD(fdp_info, max_model_len, 4, 4)
    FIELD(fdp_info, bos_id, 8, 4)
    FIELD(fdp_info, has_tokenizer, 12, 4)
    FIELD(fdp_info, n_eos, 16, 4)
    FIELD(fdp_info, eos_ids, 20, 32)
    FIELD(fdp_info, block_size, 52, 4)
    FIELD(fdp_info, max_logprobs, 56, 4)
    FIELD(fdp_info, model_digest, 60, 32)
    FIELD(fdp_info, model_name, 92, 64)
    FIELD(fdp_info, set, 156, 4)
    FIELD(fdp_info, temperature, 160, 4)
    FIELD(fdp_info, top_p, 164, 4)
    FIELD(fdp_info, top_k, 168, 4)
    FIELD(fdp_info, min_p, 172, 4)
    FIELD(fdp_info, repetition_penalty, 176, 4)
    FIELD(fdp_info, max_n, 180, 4)
    FIELD(fdp_info, max_stop, 184, 4)
    FIELD(fdp_info, max_stop_len, 188, 4)
    FIELD(fdp_info, max_stop_ids, 192, 4)
    FIELD(fdp_info, max_bias, 196, 4)
    FIELD(fdp_info, max_bad, 200, 4)
    FIELD(fdp_info, max_logprob_ids, 204, 4)
    FIELD(fdp_info, items, 208, 8)
    CONST(FDP_MAGIC, 826557510)
    CONST(FDP_MAJOR, 3)
    CONST(FDP_MAX_BLOB, 67108864)
    CONST(FDP_MAX_LOGPROBS, 20)
    CONST(FDP_MAX_STOP, 16)
    CONST(FDP_MAX_STOP_LEN, 256)
    CONST(FDP_MAX_STOP_IDS, 64)
    CONST(FDP_MAX_N, 64)
    CONST(FDP_MAX_BIAS, 1024)
    CONST(FDP_MAX_LOGPROB_IDS, 64)
    CONST(FDP_MAX_BAD, 256)
    CONST(FDP_MAX_BAD_LEN, 128)
    CONST(FDP_MAX_BAD_IDS, 32)
    CONST(FDP_MAX_ALLOWED, 1048576)
    CONST(FDP_MAX_SPANS, 16384)
    CONST(FDP_MAX_REPEAT, 256)
    CONST(FDP_MAX_REPEATS, 1024)
    CONST(FDP_MAX_FILE_NAME, 64)
    CONST(FDP_MAX_FILE_READ, 1048576)
    CONST(FDP_FEAT_TOKENIZE, 1)
    CONST(FDP_N_FDS, 3)
    CONST(FDP_C2D_SQ_TAIL, 0)
    CONST(FDP_C2D_CQ_HEAD, 128)
    CONST(FDP_C2D_CQ_WAIT, 256)
    CONST(FDP_C2D_SLOTS, 512)
    CONST(FDP_D2C_CQ_TAIL, 0)
    CONST(FDP_D2C_SQ_HEAD, 128)
    CONST(FDP_D2C_SQ_NEED_WAKEUP, 256)
    CONST(FDP_D2C_STATE, 384)
    CONST(FDP_D2C_SLOTS, 512)
    CONST(FDP_WAIT_SPIN, 0)
    CONST(FDP_WAIT_FUTEX, 1)
    CONST(FDP_WAIT_FD, 2)
    CONST(FDP_ST_RUN, 1)
    CONST(FDP_ST_DRAIN, 2)
    CONST(FDP_ST_GOODBYE, 3)
    CONST(FDP_F_TEXT, 1)
    CONST(FDP_F_PROMPT_IDS, 2)
    CONST(FDP_F_IGNORE_EOS, 4)
    CONST(FDP_F_PROMPT_TEXT, 8)
    CONST(FDP_F_TOKEN_TEXT, 16)
    CONST(FDP_F_ALONE, 32)
    CONST(FDP_F_NO_SPECIAL, 64)
    CONST(FDP_F_PARSE_SPECIAL, 4096)
    CONST(FDP_F_KEEP_SPECIAL, 256)
    CONST(FDP_F_KEEP_STOP, 512)
    CONST(FDP_F_DEEP, 1024)
    CONST(FDP_F__ALL, 0x177f)
    CONST(FDP_S_MAX_NEW, 1)
    CONST(FDP_S_TEMPERATURE, 2)
    CONST(FDP_S_TOP_P, 4)
    CONST(FDP_S_TOP_K, 8)
    CONST(FDP_S_MIN_P, 16)
    CONST(FDP_S_PRESENCE, 32)
    CONST(FDP_S_FREQUENCY, 64)
    CONST(FDP_S_REPETITION, 128)
    CONST(FDP_S_LOGPROBS, 256)
    CONST(FDP_S_PROMPT_LOGPROBS, 512)
    CONST(FDP_S_SEED, 1024)
    CONST(FDP_S__ALL, 2047)
    CONST(FDP_SLOT, 64)
    CONST(FDP_REC_MAX_SLOTS, 64)
    CONST(FDP_REC_MAX_LEN, 4072)
    CONST(FDP_EV_READY, 1)
    CONST(FDP_EV_DOWN, 2)
    CONST(FDP_EV_DRAIN, 3)
    CONST(FDP_OP_SUBMIT, 1)
    CONST(FDP_OP_CANCEL, 2)
    CONST(FDP_OP_TOKENIZE, 3)
    CONST(FDP_OP_DETOKENIZE, 4)
    CONST(FDP_OP_INFO, 5)
    CONST(FDP_OP_PING, 6)
    CONST(FDP_OP_FILE, 7)
    CONST(FDP_IT_PROMPT_TEXT, 1)
    CONST(FDP_IT_PROMPT_IDS, 2)
    CONST(FDP_IT_PRIOR_IDS, 3)
    CONST(FDP_IT_STOP_STRING, 4)
    CONST(FDP_IT_STOP_IDS, 5)
    CONST(FDP_IT_LOGIT_BIAS, 6)
    CONST(FDP_IT_BAD_WORDS, 7)
    CONST(FDP_IT_ALLOWED_IDS, 8)
    CONST(FDP_IT_GRAMMAR, 9)
    CONST(FDP_IT_BAD_IDS, 11)
    CONST(FDP_IT_LOGPROB_IDS, 12)
    CONST(FDP_IT_SPANS, 13)
    CONST(FDP_IT_REPETITION, 14)
    CONST(FDP_IT_REASONING, 15)
    CONST(FDP_IT_ADAPTER, 16)
    CONST(FDP_IT_IMAGE, 17)
    CONST(FDP_IT_FILE, 18)
    CONST(FDP_T_PAD, 0)
    CONST(FDP_T_ACCEPTED, 1)
    CONST(FDP_T_PROMPT_IDS, 2)
    CONST(FDP_T_IDS, 3)
    CONST(FDP_T_TEXT, 4)
    CONST(FDP_T_LOGPROBS, 5)
    CONST(FDP_T_PROMPT_LOGPROBS, 6)
    CONST(FDP_T_CHOICE_END, 7)
    CONST(FDP_T_DONE, 8)
    CONST(FDP_T_ERROR, 9)
    CONST(FDP_T_REPLY, 10)
    CONST(FDP_T_EVENT, 11)
    CONST(FDP_T_TOKENS, 12)
    CONST(FDP_T_PROMPT_TEXT, 13)
    CONST(FDP_T_TOKEN_TEXT, 14)
    CONST(FDP_T_SPECIAL, 15)
    CONST(FDP_T_BYTES, 16)
    CONST(FDP_FIN_NONE, 0)
    CONST(FDP_FIN_STOP, 1)
    CONST(FDP_FIN_LENGTH, 2)
    CONST(FDP_FIN_ERROR, 3)
    CONST(FDP_FIN_REPETITION, 4)
    CONST(FDP_D_NONE, 0)
    CONST(FDP_D_OP, 1)
    CONST(FDP_D_FLAGS, 2)
    CONST(FDP_D_N, 3)
    CONST(FDP_D_MAX_NEW, 4)
    CONST(FDP_D_MIN_NEW, 5)
    CONST(FDP_D_TEMPERATURE, 6)
    CONST(FDP_D_TOP_P, 7)
    CONST(FDP_D_TOP_K, 8)
    CONST(FDP_D_MIN_P, 9)
    CONST(FDP_D_PRESENCE, 10)
    CONST(FDP_D_FREQUENCY, 11)
    CONST(FDP_D_PENALTY, 12)
    CONST(FDP_D_LOGPROBS, 13)
    CONST(FDP_D_PROMPT_LOGPROBS, 14)
    CONST(FDP_D_STREAM, 15)
    CONST(FDP_D_PRIORITY, 16)
    CONST(FDP_D_TTL, 17)
    CONST(FDP_D_PRIOR, 18)
    CONST(FDP_D_USER, 19)
    CONST(FDP_D_RESERVED, 20)
    CONST(FDP_D_TAG, 21)
    CONST(FDP_D_BLOB, 22)
    CONST(FDP_D_ITEM, 23)
    CONST(FDP_D_PROMPT, 24)
    CONST(FDP_D_PROMPT_ID, 25)
    CONST(FDP_D_STOP, 26)
    CONST(FDP_D_BIAS, 27)
    CONST(FDP_D_ALLOWED, 28)
    CONST(FDP_D_GRAMMAR, 29)
    CONST(FDP_D_BAD_WORDS, 30)
    CONST(FDP_D_SET, 31)
    CONST(FDP_D_PROMPT_FROM, 32)
    CONST(FDP_D_BEST_OF, 33)
    CONST(FDP_D_LOGPROB_IDS, 34)
    CONST(FDP_D_SPANS, 35)
    CONST(FDP_D_REPETITION, 36)
    CONST(FDP_D_REASONING, 37)
    CONST(FDP_D_ADAPTER, 38)
    CONST(FDP_D_IMAGE, 39)
    CONST(FDP_D_FILE, 40)
    CONST(FDP_D_BIAS_IDS, 41)
    CONST(FDP_D_BIAS_TWICE, 42)
    CONST(FDP_OK, 0)
    CONST(FDP_E_PROTO, -1)
    CONST(FDP_E_VERSION, -2)
    CONST(FDP_E_PERM, -3)
    CONST(FDP_E_SLOW, -4)
    CONST(FDP_E_BAD_PARAM, -10)
    CONST(FDP_E_TOO_LONG, -11)
    CONST(FDP_E_BAD_TOKEN, -12)
    CONST(FDP_E_NO_MODEL, -13)
    CONST(FDP_E_NO_FILE, -14)
    CONST(FDP_E_BAD_TEXT, -15)
    CONST(FDP_E_UNSUPPORTED, -16)
    CONST(FDP_E_QUEUE_FULL, -20)
    CONST(FDP_E_LIMIT, -21)
    CONST(FDP_E_OVERLOAD, -22)
    CONST(FDP_E_LOADING, -23)
    CONST(FDP_E_DRAINING, -24)
    CONST(FDP_E_GPU_RESET, -25)
    CONST(FDP_E_DEADLINE, -30)
    CONST(FDP_E_CANCELLED, -31)
    CONST(FDP_E_GPU_LOST, -40)
    CONST(FDP_E_INTERNAL, -41)
    CONST(FDP_E_NUMERIC, -42)
    CONST(FDP_E_DISCONNECTED, -50)
    CONST(FDP_E_TIMEOUT, -51)
    CONST(FDP_E_FORKED, -52)
    CONST(FDP_E_AGAIN, -53)
    CONST(FDP_E_NOMEM, -54)
    CONST(FDP_E_INVAL, -55)
    CONST(FDP_E_CONNECT, -56)
};

static void
t_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].is != table[i].golden || table[i].is_len != table[i].golden_len)
            fail_msg("%s: is %lld (%lld bytes), released as %lld (%lld bytes)",
                table[i].name, table[i].is, table[i].is_len, table[i].golden,
                table[i].golden_len);
}

/* Structs without gaps: every byte of a message belongs to a field. */
static void
t_no_gaps(void **state)
{
    long long end = 0, size = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        size_t k = strcspn(table[i].name, ".");
        if (table[i].name[k] != '.') {
            assert_int_equal(end, size);
            size = end = table[i].is_len ? 0 : table[i].is;
            continue;
        }
        if (table[i].is != 0)
            assert_int_equal(table[i].is, end);
        end = table[i].is + table[i].is_len;
    }
}

static void
t_status_unique(void **state)
{
    static const int v[] = {
#define FDP_STATUS(name, value, cls, retry, text) value,
#include "libclient/tbl/status.h"
#undef FDP_STATUS
    };

    (void)state;
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(v[i], v[j]);
}

static void
t_spans(void **state)
{
    (void)state;
    assert_int_equal(FDP_ITEM_SPAN(0), 8);
    assert_int_equal(FDP_ITEM_SPAN(1), 16);
    assert_int_equal(FDP_ITEM_SPAN(8), 16);
    assert_int_equal(FDP_ITEM_SPAN(9), 24);
    assert_true(FDP_ITEM_SPAN(UINT32_MAX) == 8 + 0x100000000ull);
    assert_int_equal(FDP_TOKENS_LEN(1, 1), 13);
    assert_int_equal(FDP_TOKENS_LEN(UINT16_MAX, UINT16_MAX), 8 + 5 * 65535);
    assert_int_equal(FDP_REC_SLOTS(FDP_TOKENS_LEN(1, 28)), 1);
    assert_int_equal(FDP_REC_SLOTS(FDP_TOKENS_LEN(1, 29)), 2);
    assert_int_equal(FDP_REC_SLOTS(0), 1);
    assert_int_equal(FDP_REC_SLOTS(40), 1);
    assert_int_equal(FDP_REC_SLOTS(41), 2);
    assert_int_equal(FDP_REC_SLOTS(FDP_REC_MAX_LEN), FDP_REC_MAX_SLOTS);
    assert_int_equal(FDP_REC_SLOTS(FDP_REC_MAX_LEN + 1), FDP_REC_MAX_SLOTS + 1);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_golden), cmocka_unit_test(t_no_gaps),
        cmocka_unit_test(t_status_unique), cmocka_unit_test(t_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
