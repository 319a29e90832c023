/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a generating request: its JSON is checked against the table of fields
 * (tbl/fields.h) and becomes parameters of libfdclient.
 */
#ifndef FDD_HTTP_ASK_H
#define FDD_HTTP_ASK_H

#include <stdint.h>

#include "http/json.h"
#include "http/problem.h"

#define ASK_MAX_VALUES (1u << 21) /* JSON values of a body: 32 MiB of nodes */
#define ASK_MAX_STOP   16
/* The most that any fdd takes; each daemon checks its own limits. */
#define ASK_MAX_STOP_LEN 256
#define ASK_MAX_STOP_IDS 64
#define ASK_MAX_BIAS     1024
#define ASK_MAX_BAD      256
#define ASK_MAX_ALLOWED  (1u << 20)
#define ASK_MAX_PROMPTS  256
#define ASK_MAX_UNKNOWN  1000 /* fields of a body */
#define ASK_TEXT_MAX     16u  /* max_tokens of completions if left out */

#define ASK_UNSET        UINT32_MAX
#define ASK_I32_UNSET    INT32_MIN

struct ask {
    struct jr j;
    int is_chat;
    uint32_t max_tokens, max_completion_tokens, min_tokens, n, best_of, stream_interval;
    int32_t top_k, top_logprobs, logprobs, prompt_logprobs, priority, truncate;
    float temperature, top_p, min_p, presence, frequency, repetition;
    /* 0, 1; 255: not given */
    uint8_t keep_stop, ignore_eos, skip_special, add_special, chat_logprobs, echo, stream,
        add_generation_prompt, include_reasoning, continue_final, return_ids, as_ids,
        parallel_tool_calls;
    /* node indexes in j; JR_NONE: not given */
    uint32_t model, messages, prompt, seed, stop, stop_token_ids, stream_options,
        request_id, cache_salt, logit_bias, bad_words, allowed_token_ids, tools,
        tool_choice, response_format, modalities, documents, reasoning_effort,
        template_kwargs, truncation_side, user;

    /* results of reading these fields */
    int include_usage, continuous_usage, no_calls, keep_first;
    int max_is_ours; /* max_tokens was left out: it is ASK_TEXT_MAX, or what fits */
    struct buf stop_text[ASK_MAX_STOP], bad_text; /* bad_text: each ends with a zero */
    uint32_t n_stop, n_bad;
    const char *stop_p[ASK_MAX_STOP];
    uint32_t stop_len[ASK_MAX_STOP];
    const char **bad_p;
    uint32_t *stop_ids, *allowed;
    uint32_t n_stop_ids, n_allowed, n_bias;
    struct fdc_bias *bias;
    struct buf ignored;    /* names of unknown fields, comma separated */
    struct buf id;         /* request_id */
    uint8_t user_hash[32]; /* SHA-256 of the field user, */
    int has_user;          /* if the request has it */
    struct fdc_params p;
    struct fdc_submit_opts o;
};

/* Read a body, which must outlive ask->j. Returns 0; -1: *bad says why. Call ask_fini()
 * in either case. */
int ask_read(struct ask *a, const char *body, size_t n, int is_chat, struct problem *bad);
/* Free the JSON nodes: the body is not needed any more. */
void ask_forget(struct ask *a);
void ask_fini(struct ask *a);

/* Read an array of token ids into malloc()ed memory. field: its name, for the error. */
int ask_ids(const struct jr *j, uint32_t i, const char *field, uint32_t most,
    uint32_t **ret, uint32_t *ret_n, struct problem *bad);
/* Does the value switch a field off: null, false, 0, "", "none", [] or {}? */
int ask_is_off(const struct jr *j, uint32_t i);
/* Add the name of a field to a list for a header; key: the node of its name. */
void ask_ignore(struct buf *b, const struct jr *j, uint32_t key);
/* Read any JSON body: jr_read(), with its errors in *bad. */
int ask_json(struct jr *j, const char *body, size_t n, struct problem *bad);

#endif
