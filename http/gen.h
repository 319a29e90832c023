/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A generating HTTP request: its prompts are requests of fdd, whose records become the
 * choices of one answer, whole or as a stream of events. completions and chat differ in
 * their prompt (gen.c) and in the JSON of a choice (shape.c).
 */
#ifndef FDD_HTTP_GEN_H
#define FDD_HTTP_GEN_H

#include <stdint.h>

#include "chat/fdchat.h"
#include "http/ask.h"
#include "http/buf.h"
#include "http/problem.h"
#include "libclient/fdclient.h"

struct conn;
struct gw;
struct gen;
struct link;
struct model;

/* One answer. What is in the buffers has not been sent yet. */
struct choice {
    uint32_t index;
    fdchat_answer_t *answer; /* NULL: all is content */
    struct buf text, reasoning, calls, args;
    uint32_t n_calls;
    int call_is_open, call_has_begun;
    struct buf lp, lp_values, lp_top, lp_offset; /* of logprobs: see shape.h */
    uint32_t offset;                             /* code points of text so far */
    struct fdc_logprob *taken;                   /* whose text is to come */
    uint32_t n_taken;
    const char *finish; /* NULL: goes on */
    int stop_id, stop_str, role_sent, finish_sent;
};

/* One prompt. */
struct prompt {
    struct gen *gen;
    uint32_t index;
    fdc_req_t *r; /* NULL: not submitted, or over */
    int is_over;
    char *text; /* what is submitted, and then freed: text, or ids */
    uint32_t *ids;
    size_t n;
    struct fdc_span *spans;
    uint32_t n_span;
    struct buf echo; /* the prompt again, for echo */
    int echo_is_done;
    struct choice scored; /* echo with logprobs: those of its tokens from the second on, */
    struct buf starts;    /* and where each begins, uint32_t[] */
};

struct gen {
    struct gw *g;
    struct conn *c;
    struct link *link;   /* of its daemon; NULL: not begun */
    struct model *model; /* a reference */
    const char *src;     /* the body, while it is read */
    size_t n_src;
    int is_literal;    /* names of special tokens in messages are text */
    int user_is_named; /* by its key, not by where it came from */
    struct gen *prev_wait, *next_wait;
    int is_waiting;
    struct ask a;
    struct prompt *prompt;
    uint32_t n_prompt, n_submitted, n_open;
    struct choice *choice;
    uint32_t n_choice;
    int accepted, head_sent, is_over;
    struct problem bad; /* status 0: none */
    char id[160];
    struct buf prefix; /* of each event, up to the choice's index */
    int64_t created_s;
    uint64_t began_ms, event_ms;
    size_t pending; /* bytes in the choices' buffers, about */
    uint64_t prompt_tokens, cached_tokens, output_tokens, reasoning_tokens;
};

/* What has come for a request of the session. */
void gen_event(struct prompt *p, const struct fdc_event *ev);
/* There may be room in the session again. */
void gen_submit_waiting(struct link *l);
/* The session is lost: those that wait get the error. */
void gen_fail_waiting(struct link *l, int status);

#endif
