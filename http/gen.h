/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A generating HTTP request: its prompts are requests of fdd, whose records become the
 * choices of one answer, whole or as a stream of events. What differs between the APIs by
 * which it may come, its body and the JSON of its answer, is behind struct face.
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

/* An API. Its functions write into b what goes out. */
struct face {
    const char *id; /* with which the ids of answers begin */
    int is_chat;
    /* A body, which j has, as one of chat completions. said: what the answer repeats of
     * it; ignored: names of fields without effect, comma separated. 0 or -1. NULL: it is
     * one already. Any thread. */
    int (*translate)(const struct jr *j, struct buf *b, struct buf *said,
        struct buf *ignored, struct problem *bad);
    const char *const (*names)[2]; /* fields of chat completions, and what they are here */
    void (*begin)(struct gen *g);  /* the request is read: set g->prefix */
    void (*piece)(struct gen *g, struct choice *ch, const struct fdchat_piece *p);
    int (*has_news)(const struct gen *g, const struct choice *ch);
    void (*event)(struct gen *g, struct choice *ch, struct buf *b); /* its news */
    void (*end)(struct gen *g, struct buf *b);                      /* of a stream */
    void (*whole)(struct gen *g, struct buf *b);
    const char *silence;          /* sent when a stream has nothing else to send */
    const struct item_ops *items; /* of piece and event of items.h */
};
extern const struct face face_text, face_chat, face_messages, face_responses;

/* What an answer is made of where reasoning, text and calls keep their order (items.h). */
enum item_kind { ITM_NONE, ITM_REASONING, ITM_TEXT, ITM_CALL };
struct items {
    enum item_kind open;
    uint32_t n;             /* that were opened */
    struct buf fresh, said; /* text of the open one: not yet passed on; all */
    struct buf name;        /* of a call */
    char id[FDCHAT_ID_BYTES];
    struct buf out;  /* events */
    struct buf done; /* JSON of those that were closed, with commas */
};

/* One answer. What is in the buffers has not been sent yet. */
struct choice {
    fdchat_answer_t *answer; /* NULL: all is content */
    struct buf text;
    const char *finish; /* NULL: goes on */
    uint32_t index;
    int role_sent, finish_sent;
    struct buf reasoning, calls, args;
    uint32_t n_calls;
    int call_is_open, call_has_begun;
    struct buf lp, lp_values, lp_top, lp_offset; /* of logprobs: see shape.h */
    uint32_t offset;                             /* code points of text so far */
    struct fdc_logprob *taken;                   /* whose text is to come */
    uint32_t n_taken;
    struct buf ids; /* for return_token_ids */
    struct items items;
    int stop_id, stop_str;
};

/* One prompt. */
struct prompt {
    struct gen *gen;
    uint32_t index;
    fdc_req_t *r; /* NULL: not submitted, or over */
    int is_accepted, is_over;
    uint32_t accepted_tokens, accepted_cached; /* of the prompt, while it is open */
    char *text; /* what is submitted, and then freed: text, or ids */
    uint32_t *ids;
    size_t n;
    struct fdc_span *spans;
    uint32_t n_span;
    struct buf echo; /* the prompt again, for echo */
    int echo_is_done;
    struct choice scored; /* echo with logprobs: those of its tokens from the second on, */
    struct buf starts;    /* and where each begins, uint32_t[] */
    struct buf lp;        /* prompt_logprobs: the elements of its tokens */
    struct buf seen;      /* its ids, with commas, as the daemon has them */
    uint32_t first_id;    /* the first of them */
    int seen_is_sent;
};

struct gen {
    /* What each event needs comes first. */
    struct gw *g;
    struct conn *c;
    struct link *link; /* of its daemon; NULL: not begun */
    const struct face *face;
    struct prompt *prompt;
    struct choice *choice;
    uint32_t n_prompt, n_choice;
    int accepted, head_sent, is_over;
    struct buf prefix; /* of each event, up to the choice's index */
    uint64_t event_ms;
    size_t pending; /* bytes in the choices' buffers, about */
    struct ask a;
    struct problem bad; /* status 0: none */

    struct model *model; /* a reference */
    const char *src;     /* the body, while it is read */
    size_t n_src;
    int is_literal;           /* names of special tokens in messages are text */
    int user_is_named;        /* by its key, not by where it came from */
    struct buf body, ignored; /* what face->translate() made, and named */
    struct link_job *job;     /* that turns a prompt into ids */
    struct gen *prev_wait, *next_wait;
    int is_waiting;
    uint32_t n_submitted, n_accepted, n_open; /* prompts */
    char id[160];
    int64_t created_s;
    uint64_t began_ms;
    uint64_t prompt_tokens, cached_tokens, output_tokens, reasoning_tokens;
    /* of the faces with items */
    struct buf said;   /* what the answer repeats of the request */
    uint64_t sequence; /* number of the next event */
    int is_begun;
};

/* What has come for a request of the session. */
void gen_event(struct prompt *p, const struct fdc_event *ev);
/* There may be room in the session again. */
void gen_submit_waiting(struct link *l);
/* The session is lost: those that wait get the error. */
void gen_fail_waiting(struct link *l, int status);

#endif
