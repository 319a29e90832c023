/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of an answer: it reads bytes and emits pieces of content, reasoning and
 * calls. It decides byte by byte, so the pieces do not depend on how the text is cut.
 *
 *         +---- marker of reasoning or its end, marker without meaning ----+
 *         v                                                                |
 *   +-> TEXT --- marker of a call ---> steps of the form (format.h) -------+
 *   |                                     |                    | the form's end
 *   |  not a call: the held bytes         |                    v
 *   +-- become text again ----------------+                  TEXT
 *
 * A call is reported when its name is complete and its arguments begin. Until then all
 * bytes since the marker are held (at most max_held); later ones are passed on as they
 * come.
 */
#ifndef FDD_CHAT_ANSWER_H
#define FDD_CHAT_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "chat/arena.h"
#include "chat/fdchat.h"
#include "chat/format.h"
#include "chat/types.h"

#define ANS_LIT    80  /* bytes of a marker */
#define ANS_NAME   256 /* bytes of a name or key */
#define ANS_OPS    32
#define ANS_MARKS  (2 * FMT_MARKS + FMT_CALLS + FMT_DROPS)
#define ANS_DEPTH  64
#define ANS_HELD   (1u << 20)
#define ANS_BLANKS 4096u

/* A marker. special[i] is 0 if byte i is text, 1 if it is the first byte of a special
 * token, 2 if it is a further byte of one. Each byte of an answer has such a value. */
struct ans_lit {
    uint8_t n;
    char p[ANS_LIT];
    uint8_t special[ANS_LIT];
};

enum ans_op {
    OP_END,
    OP_LIT,
    OP_NAME,
    OP_ARGS,
    OP_OBJECT,
    OP_MAYBE_OBJECT,
    OP_PYTHON,
    OP_GEMMA,
    OP_PARAMS,
    OP_PARAMS_END,
    OP_CALLS,
    OP_CALLS_END,
    OP_KEY,
    OP_ATTRS,
    OP_VALUE
};
struct ans_step {
    enum ans_op op;
    uint8_t other;
    struct ans_lit lit;
};
struct ans_form {
    struct ans_step step[ANS_OPS];
    size_t n;
    int at_start;
};

struct ans_mark { /* a marker that may end text */
    enum { MARK_THINK, MARK_ANSWER, MARK_DROP, MARK_CALL } what;
    const struct ans_form *form;
    struct ans_lit lit;
    int at_start;
};

enum ans_mode {
    ANS_TEXT,
    ANS_EXPECT,
    ANS_NAME_OF,
    ANS_KEY_OF,
    ANS_ATTRS_OF,
    ANS_VALUE_OF,
    ANS_ARGS,
    ANS_OBJECT,
    ANS_MAYBE,
    ANS_LITERAL
};

struct ans_buf {
    char *p;
    size_t n, room;
};

/* State of scanning a JSON value byte by byte. */
struct ans_scan {
    int depth, in_string, escape, begun;
};
/* State of decoding a string's escapes. */
struct ans_escape {
    int on, hex_left, python;
    uint32_t code, high;
};

struct ans_object { /* state of reading {"name": .., "arguments": ..} */
    enum { OBJ_OPEN, OBJ_KEY, OBJ_IN_KEY, OBJ_COLON, OBJ_VALUE, OBJ_AFTER, OBJ_NEXT } at;
    enum { OBJ_OTHER, OBJ_NAME, OBJ_ARGUMENTS } value;
    int list, nested, have_name, have_args;
    int told;   /* 1: its call was reported */
    char begun; /* first byte of the value */
    struct ans_scan scan;
    struct ans_escape escape;
    struct ans_buf args; /* arguments that came before the name */
};

struct ans_literal { /* state of converting Python's or Gemma's literals to JSON */
    enum {
        LIT_OPEN,
        LIT_FUNC,
        LIT_FIRST,
        LIT_KEY,
        LIT_IN_KEY,
        LIT_COLON,
        LIT_VALUE,
        LIT_SCALAR,
        LIT_STRING,
        LIT_CLOSED,
        LIT_AFTER,
        LIT_NEXT
    } at;
    int gemma, list, comma, key;
    int quote;
    struct ans_escape escape;
    int depth;
    char stack[ANS_DEPTH]; /* c: a call's arguments, d: a dict, l: a list, t: a tuple */
    struct ans_buf scalar;
    struct ans_lit delim;
};

struct ans_event {
    enum fdchat_kind kind;
    uint32_t call;
    size_t at, n;
    char id[FDCHAT_ID_BYTES];
};

struct fdchat_answer {
    struct arena mem;
    const struct fmt *fmt; /* NULL: the whole answer is content */
    const struct schema *schema;
    struct ans_form *form; /* [FMT_CALLS] */
    struct ans_mark mark[ANS_MARKS];
    size_t n_mark;
    uint8_t starts[256];     /* 1: a marker begins with this byte */
    struct ans_lit *special; /* names of special tokens, ended by one with n 0 */
    int has_bare;            /* the format has a form without a marker */
    int exact;               /* special tokens come by fdchat_answer_special() */
    uint64_t seed;
    size_t max_held;
    int rc; /* 0, or -ENOMEM from the first failure on */
    int ended;

    enum ans_mode mode;
    enum fdchat_kind base; /* content or reasoning */
    int lead;              /* blanks that come now are markup and dropped */
    int fresh;             /* the content so far is only blanks */
    int chain;             /* a call has just ended, one without a marker may follow */
    struct ans_buf blanks; /* blanks that may turn out to be markup */

    /* hold: bytes that may begin a marker; again: bytes that are to be read again */
    char hold[ANS_LIT];
    uint8_t hold_special[ANS_LIT];
    size_t n_hold;
    char again[2 * ANS_LIT];
    uint8_t again_special[2 * ANS_LIT];
    size_t n_again;

    const struct ans_form *now;
    size_t step;
    uint32_t call_before; /* n_call when the form began */
    int bare;             /* the form has no marker */
    struct ans_buf raw;   /* the form's bytes since the last call ended, without hold */
    int open;             /* a call was reported and has not ended */
    uint32_t n_call;      /* reported calls */
    char name[ANS_NAME + 1], key[ANS_NAME + 1], id[FDCHAT_ID_BYTES];
    size_t n_name, n_key;
    struct ans_scan scan;
    struct ans_object object;
    struct ans_literal literal;
    int in_params; /* the parser opened the arguments' object and must close it */
    size_t n_param;
    unsigned types;
    int streams; /* the value is passed on as it comes */
    int value_begun, newline;
    struct ans_buf value;

    struct ans_buf out;
    struct ans_event *event;
    size_t n_event, room_event, next_event;
};

/* ---- answer.c: output ------------------------------------------------------------- */

void ans_keep(struct fdchat_answer *a, struct ans_buf *b, const char *p, size_t n);
void ans_text(struct fdchat_answer *a, const char *p,
    size_t n); /* as base; blanks may be held back */
/* Report the begin of a call of the function a->name. */
void ans_tell(struct fdchat_answer *a);
void ans_args(struct fdchat_answer *a, const char *p, size_t n);
/* Add bytes to a JSON string of the arguments, escaped. */
void ans_args_string(struct fdchat_answer *a, const char *p, size_t n);
void ans_told_end(struct fdchat_answer *a);
/* The form turned out not to be a call: raw becomes text, and hold is read again. */
void ans_fail(struct fdchat_answer *a);
void ans_fail_at(struct fdchat_answer *a, char c, uint8_t special);
void ans_again(struct fdchat_answer *a, const char *p, const uint8_t *special, size_t n);
/* Append c to hold and compare it with n markers. Returns the index of the one that is
 * complete; -1: one may follow; -2: none: *ret_c is the first held byte, which is text,
 * and the others are read again. */
int ans_match(struct fdchat_answer *a, char c, uint8_t special,
    const struct ans_lit *const *lit, size_t n, char *ret_c);
void ans_lit_set(const struct fdchat_answer *a, struct ans_lit *l, const char *p, size_t n);

/* ---- call.c: steps of a form -------------------------------------------------------- */

int ans_form_read(const struct fdchat_answer *a, const char *text, struct ans_form *ret);
void ans_form_begin(struct fdchat_answer *a, const struct ans_form *f, size_t step);
void ans_step_next(struct fdchat_answer *a); /* go on after the step that ended */
void ans_form_byte(struct fdchat_answer *a, char c, uint8_t special);
/* The answer ends within a reported call: the held bytes belong to the call. */
void ans_form_end(struct fdchat_answer *a);
/* Close the arguments' object if in_params is set. */
void ans_params_close(struct fdchat_answer *a);
/* Returns 1 if a->name is a valid name and, in a form without marker, that of a tool. */
int ans_name_ok(struct fdchat_answer *a);

/* ---- object.c, literal.c -------------------------------------------------------------- */

enum { SCAN_MORE, SCAN_DONE, SCAN_OVER, SCAN_BAD };
/* Scan the next byte: SCAN_DONE: c is the value's last; SCAN_OVER: the one before was. */
int ans_scan(struct ans_scan *s, char c);
/* Decode the next byte of a string. Returns the number of bytes in out; 0: the escape
 * goes on; -1: there is no such escape. */
int ans_unescape(struct ans_escape *e, char c, char out[8]);
void ans_object_begin(struct fdchat_answer *a);
void ans_object_byte(struct fdchat_answer *a, char c, uint8_t special);
/* A byte of a JSON value as it is passed on: itself, or the escape of a control character
 * in a string. Returns the number of bytes in out. */
size_t ans_as_written(char c, int in_string, char out[8]);
void ans_literal_begin(struct fdchat_answer *a, int gemma);
void ans_literal_byte(struct fdchat_answer *a, char c, uint8_t special);
void ans_literal_end(struct fdchat_answer *a);

#endif
