/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libfdchat: for programs that speak with a model. Rendering takes the messages of a
 * request and the template that a model ships, and gives the text of the prompt, to the
 * byte what transformers' apply_chat_template() gives. An answer's parser takes the
 * model's text as it comes and gives content, reasoning and tool calls.
 *
 * A string of the request never becomes markup: the prompt says which ranges came out
 * of the request, whatever the template did with them, so that names of special
 * tokens in them stay text.
 *
 * Functions return 0 or -errno and one line in err. A template may be used by any
 * number of threads at once, an answer by one.
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
    char *text; /* [bytes], and a zero behind it */
    size_t bytes;
    struct fdchat_span *spans; /* what came out of the request, in order */
    size_t n_span;
};

struct fdchat_args {
    size_t size; /* sizeof(struct fdchat_args) */
    /* Variables of the model: a JSON object (bos_token, eos_token, ...), or NULL. */
    const char *model;
    size_t model_bytes;
    /* Variables of the request: a JSON object (messages, tools, documents,
     * add_generation_prompt, ...). They win over those of the model. */
    const char *request;
    size_t request_bytes;
    int64_t now_s; /* for strftime_now(); 0: now */
};

/* -EINVAL: the template refuses (raise_exception), does what Python refuses, takes too
 * many steps (2 million) or too much memory, or renders more than 16 MiB; -ENOMEM. */
int fdchat_render(const fdchat_template_t *t, const struct fdchat_args *a,
    struct fdchat_prompt *ret, char err[FDCHAT_ERR_BYTES]);
/* Frees what it holds. */
void fdchat_prompt_free(struct fdchat_prompt *p);

/* ---- answers ------------------------------------------------------------------- */

/* Formats have names: "hermes", "glm-4.5", ... The i-th, or NULL behind the last. */
const char *fdchat_format_name(size_t i);
/* The format whose markers the template holds, or NULL: all is content. */
const char *fdchat_format_of_template(const char *text, size_t bytes);

enum fdchat_kind {
    FDCHAT_CONTENT,
    FDCHAT_REASONING,
    FDCHAT_CALL,      /* a call begins: text is the function's name */
    FDCHAT_ARGUMENTS, /* of that call: more of a JSON object's text */
    FDCHAT_CALL_END   /* not sent for a call that the answer's end cut off */
};

#define FDCHAT_ID_BYTES 64
struct fdchat_piece {
    enum fdchat_kind kind;
    uint32_t call;    /* 0, 1, ...: which call */
    const char *text; /* [bytes], no zero behind it; whole UTF-8 if the answer is */
    size_t bytes;
    const char *id; /* FDCHAT_CALL: the call's id, ending with zero; else NULL */
};

struct fdchat_answer_opts {
    size_t size;        /* sizeof(struct fdchat_answer_opts) */
    const char *format; /* a name; NULL: all is content */
    const char *prompt; /* its end says whether the answer begins within reasoning */
    size_t prompt_bytes;
    /* The request's tools, a JSON array; NULL: not known. A format without markers takes
     * text for a call of a known tool alone; formats that write values without quotes
     * take their types from here. */
    const char *tools;
    size_t tools_bytes;
    int no_calls; /* 1: calls stay content (no tools, or tool_choice none) */
    /* Names of the tokenizer's special tokens, where the caller can tell them from text
     * that reads the same (fdchat_answer_special()): then a marker that is such a name is
     * no marker in text. NULL: by text alone. */
    const char *const *special;
    size_t n_special;
    uint64_t seed;   /* for the calls' ids: another one for each answer */
    size_t max_held; /* bytes that may be held undecided; 0: 1 MiB */
};

typedef struct fdchat_answer fdchat_answer_t;

/* -EINVAL: no such format, or tools are no such array; -ENOMEM. */
int fdchat_answer_new(const struct fdchat_answer_opts *o, fdchat_answer_t **ret,
    char err[FDCHAT_ERR_BYTES]);
void fdchat_answer_free(fdchat_answer_t *a);

/* More of the answer. How it is cut makes no difference to what the pieces say when those
 * of a kind that follow each other are joined. -ENOMEM: also from then on. */
int fdchat_answer_feed(fdchat_answer_t *a, const char *text, size_t bytes);
/* The same of one special token, whole. */
int fdchat_answer_special(fdchat_answer_t *a, const char *name, size_t bytes);
/* No more comes. What was held, and is no call, is text. */
int fdchat_answer_end(fdchat_answer_t *a);
/* 1: *ret is the next piece, valid until the answer is fed, ended or freed; 0: none. */
int fdchat_answer_next(fdchat_answer_t *a, struct fdchat_piece *ret);

#ifdef __cplusplus
}
#endif
#endif
