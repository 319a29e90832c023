/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A generating HTTP request: its prompts are requests of fdd, whose records become the
 * choices of one answer, whole or as a stream of events. The APIs differ in the body and
 * in the JSON of the answer; struct face has both of one API.
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
struct choice;
struct link_job;
struct item_ops;

/* An API. Its functions write output into b. */
struct face {
    const char *id; /* prefix of the ids of answers */
    int is_chat;
    /* Translates the body j into a chat-completions body. said gets the fields that the
     * answer repeats, ignored the names of fields without effect, separated by commas.
     * Returns 0 or -1. Any thread. NULL: bodies need no translation. */
    int (*translate)(const struct jr *j, struct buf *b, struct buf *said,
        struct buf *ignored, struct problem *bad);
    const char *const (*names)[2]; /* fields of chat completions, and their names here */
    void (*begin)(struct gen *g);  /* called when the request is read: sets g->prefix */
    void (*piece)(struct gen *g, struct choice *ch, const struct fdchat_piece *p);
    int (*has_news)(const struct gen *g, const struct choice *ch);
    void (*event)(struct gen *g, struct choice *ch, struct buf *b); /* its new output */
    void (*end)(struct gen *g, struct buf *b);                      /* end of a stream */
    void (*whole)(struct gen *g, struct buf *b);
    const char *silence;          /* sent when a stream has nothing else to send */
    const struct item_ops *items; /* for faces that use itm_piece() and itm_event() */
};
extern const struct face face_text, face_chat, face_messages, face_responses;

/* The items of an answer, in APIs that keep the order of reasoning, text and calls
 * (items.h). */
enum item_kind { ITM_NONE, ITM_REASONING, ITM_TEXT, ITM_CALL };
struct items {
    enum item_kind open;
    uint32_t n;             /* items opened so far */
    struct buf fresh, said; /* text of the open item: not yet passed on; all of it */
    struct buf name;        /* of the function, if a call is open */
    char id[FDCHAT_ID_BYTES];
    struct buf out;  /* events to send */
    struct buf done; /* JSON of the closed items, with commas */
};

/* One answer. Its buffers hold output that has not been sent yet. */
struct choice {
    fdchat_answer_t *answer; /* NULL: the whole answer is content */
    struct buf text;
    const char *finish; /* finish_reason; NULL: the answer goes on */
    uint32_t index;
    int role_sent, finish_sent;
    struct buf reasoning, calls, args;
    uint32_t n_calls;
    int call_is_open, call_has_begun;
    struct buf lp, lp_values, lp_top, lp_offset; /* logprobs: see shape.h */
    uint32_t offset;                             /* code points of text so far */
    struct fdc_logprob *taken; /* logprobs whose TOKEN_TEXT is to come */
    uint32_t n_taken;
    struct buf ids;  /* token ids for return_token_ids */
    struct buf held; /* name of a special token, until it is known whether it ended the
                        answer */
    uint32_t held_id;
    struct items items;
    int stop_id, stop_str;
};

/* One prompt. */
struct prompt {
    struct gen *gen;
    uint32_t index;
    fdc_req_t *r; /* NULL: not submitted, or ended */
    int is_accepted, is_over;
    uint32_t accepted_tokens, accepted_cached; /* of the prompt, until its usage is known */
    char *text; /* the prompt, freed when submitted: text, or NULL and ids */
    uint32_t *ids;
    size_t n;
    struct fdc_span *spans;
    uint32_t n_span;
    struct buf echo; /* the prompt's text, for echo */
    int echo_is_done;
    struct choice scored; /* echo with logprobs: those of the tokens from the second on, */
    struct buf starts;    /* and the offset at which each begins, uint32_t[] */
    struct buf lp;        /* prompt_logprobs: the elements of the prompt's tokens */
    struct buf seen;      /* the prompt's ids as the daemon reports them, with commas */
    uint32_t n_seen;      /* their number, */
    uint32_t first_id;    /* and the first of them */
    int seen_is_sent;
};

struct gen {
    /* Members that each event needs come first. */
    struct gw *g;
    struct conn *c;
    struct link *link; /* to its daemon; NULL until it begins */
    const struct face *face;
    struct prompt *prompt;
    struct choice *choice;
    uint32_t n_prompt, n_choice;
    int accepted, head_sent, is_over;
    struct buf prefix; /* begin of each event, up to the choice's index */
    uint64_t event_ms;
    size_t pending; /* approximate bytes in the choices' buffers */
    struct ask a;
    struct problem bad; /* status 0: none */

    struct model *model; /* a reference */
    const char *src;     /* the body, while it is read */
    size_t n_src;
    int is_literal;           /* names of special tokens in messages are text */
    int user_is_named;        /* its user comes from its key, not from its address */
    struct buf body, ignored; /* output of face->translate() */
    struct link_job *job;     /* running job that tokenizes a prompt */
    struct gen *prev_wait, *next_wait;
    int is_waiting;
    uint32_t n_submitted, n_accepted, n_open; /* prompts */
    char id[160];
    int64_t created_s;
    uint64_t began_ms;
    uint64_t prompt_tokens, cached_tokens, output_tokens, reasoning_tokens;
    /* used by faces with items */
    struct buf said;   /* fields of the request that the answer repeats */
    uint64_t sequence; /* number of the next event */
    int is_begun;
};

/* Handle an event of a prompt's request. */
void gen_event(struct prompt *p, const struct fdc_event *ev);
/* Submit waiting prompts: the session may have room again. */
void gen_submit_waiting(struct link *l);
/* The session is lost: waiting requests end with the error. */
void gen_fail_waiting(struct link *l, int status);

#endif
