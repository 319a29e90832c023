/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libfdchat: for programs that chat with a model. Rendering takes the messages of a
 * request and the template that a model ships, and gives the text of the prompt, byte for
 * byte that of transformers' apply_chat_template(). The parser of an answer takes the
 * model's text as it comes and gives content, reasoning and tool calls.
 *
 * A string of the request never becomes markup: the prompt says which of its ranges came
 * from the request, whatever the template did with them, so that names of special
 * tokens in them stay text.
 *
 * Functions return 0, or -errno with one line of text in err. A template may be used by
 * any number of threads at once, an answer by one.
 */
#ifndef FDCHAT_H
#define FDCHAT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FDCHAT_ERR_BYTES 512

typedef struct fdchat_template fdchat_template_t;

/* text: a Jinja template of at most 1 MiB. -EINVAL: err names line and cause;
 * -E2BIG; -ENOMEM. */
int fdchat_template_new(const char *text, size_t bytes, fdchat_template_t **ret,
    char err[FDCHAT_ERR_BYTES]);
void fdchat_template_free(fdchat_template_t *t);

struct fdchat_span {
    size_t at, bytes;
};

struct fdchat_prompt {
    char *text; /* [bytes], and a zero after it */
    size_t bytes;
    struct fdchat_span *spans; /* the ranges that came from the request, in order */
    size_t n_span;
};

struct fdchat_args {
    size_t size; /* sizeof(struct fdchat_args) */
    /* Variables of the model: a JSON object (bos_token, eos_token, ...), or NULL. */
    const char *model;
    size_t model_bytes;
    /* Variables of the request: a JSON object (messages, tools, documents,
     * add_generation_prompt, ...). They replace the model's of the same name. */
    const char *request;
    size_t request_bytes;
    int64_t now_s; /* for strftime_now(); 0: now */
};

/* -EINVAL: the template calls raise_exception(), does something that Python refuses,
 * takes too many steps (2 million) or too much memory, or renders more than 16 MiB;
 * -ENOMEM. */
int fdchat_render(const fdchat_template_t *t, const struct fdchat_args *a,
    struct fdchat_prompt *ret, char err[FDCHAT_ERR_BYTES]);
/* Frees the text and the spans, not the structure. */
void fdchat_prompt_free(struct fdchat_prompt *p);

/* ---- answers ------------------------------------------------------------------- */

/* The name of format i, such as "hermes" or "glm-4.5"; NULL: i is past the last one. */
const char *fdchat_format_name(size_t i);
/* The format whose markers the template holds; NULL: none, the whole answer
 * is content. */
const char *fdchat_format_of_template(const char *text, size_t bytes);
/* Does one of the format's markers hold this text, such as the name of a special token? A
 * parser needs such tokens; others are not for it. 0: also for an unknown format. */
int fdchat_format_holds(const char *format, const char *text, size_t bytes);

enum fdchat_kind {
    FDCHAT_CONTENT,
    FDCHAT_REASONING,
    FDCHAT_CALL,      /* a call begins: text is the function's name */
    FDCHAT_ARGUMENTS, /* more of the call's arguments, the text of a JSON object */
    FDCHAT_CALL_END /* the call is complete; none for one that the answer's end cut off */
};

#define FDCHAT_ID_BYTES 64
struct fdchat_piece {
    enum fdchat_kind kind;
    uint32_t call;    /* number of the call: 0, 1, ... */
    const char *text; /* [bytes], no zero after it; whole UTF-8 if the answer is */
    size_t bytes;
    const char *id; /* FDCHAT_CALL: the call's id, ending with zero; else NULL */
};

struct fdchat_answer_opts {
    size_t size;        /* sizeof(struct fdchat_answer_opts) */
    const char *format; /* a name; NULL: the whole answer is content */
    const char *prompt; /* its end tells whether the answer begins within reasoning */
    size_t prompt_bytes;
    /* The request's tools, a JSON array; NULL: not known. A format without markers takes
     * text for a call only if it names a known tool; formats that write values without
     * quotes take the values' types from here. */
    const char *tools;
    size_t tools_bytes;
    int no_calls; /* 1: calls stay content (no tools, or tool_choice none) */
    /* Names of the tokenizer's special tokens, for a caller that passes those of the
     * answer to fdchat_answer_special(): such a name then counts as a marker only there,
     * not in text. NULL: markers are found by their text only. */
    const char *const *special;
    size_t n_special;
    uint64_t seed;   /* for the ids of calls: a different one for each answer */
    size_t max_held; /* most bytes held until they are known to be a call; 0: 1 MiB */
};

typedef struct fdchat_answer fdchat_answer_t;

/* -EINVAL: no such format, or tools is not such an array; -ENOMEM. */
int fdchat_answer_new(const struct fdchat_answer_opts *o, fdchat_answer_t **ret,
    char err[FDCHAT_ERR_BYTES]);
void fdchat_answer_free(fdchat_answer_t *a);

/* Feed more of the answer. Where it is cut makes no difference once successive pieces of
 * one kind are joined. -ENOMEM: every later call fails too. */
int fdchat_answer_feed(fdchat_answer_t *a, const char *text, size_t bytes);
/* As fdchat_answer_feed(), for one whole special token. */
int fdchat_answer_special(fdchat_answer_t *a, const char *name, size_t bytes);
/* The answer has ended. Held bytes that are not a call become text. */
int fdchat_answer_end(fdchat_answer_t *a);
/* 1: *ret is the next piece, valid until the answer is fed, ended or freed; 0: none. */
int fdchat_answer_next(fdchat_answer_t *a, struct fdchat_piece *ret);

#ifdef __cplusplus
}
#endif
#endif
