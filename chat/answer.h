/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser of an answer: bytes in, pieces of content, reasoning and calls out. One
 * byte after the other decides, so that it does not matter how the text arrives.
 *
 *         +---- marker of reasoning or its end, marker without meaning ----+
 *         v                                                                |
 *   +-> TEXT --- marker of a call ---> steps of the form (format.h) -------+
 *   |                                     |                    | the form's end
 *   |  no call after all: what was held   |                    v
 *   +-- becomes text again ---------------+                  TEXT
 *
 * A call is told when its name is there and its arguments begin. Until then all since the
 * marker is held, and bounded; what follows is passed on as it comes.
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
#define ANS_NAME   256 /* of a name or key */
#define ANS_OPS    32
#define ANS_MARKS  (2 * FMT_MARKS + FMT_CALLS + FMT_DROPS)
#define ANS_DEPTH  64
#define ANS_HELD   (1u << 20)
#define ANS_BLANKS 4096u

/* A byte of an answer or a marker: 0, text; 1, 2: the first, another of a special token */
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

struct ans_mark { /* where text may end */
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

/* Of a JSON value as it passes by. */
struct ans_scan {
    int depth, in_string, escape, begun;
};
/* Of a string with escapes. */
struct ans_escape {
    int on, hex_left, python;
    uint32_t code, high;
};

struct ans_object { /* {"name": .., "arguments": ..} as it passes by */
    enum { OBJ_OPEN, OBJ_KEY, OBJ_IN_KEY, OBJ_COLON, OBJ_VALUE, OBJ_AFTER, OBJ_NEXT } at;
    enum { OBJ_OTHER, OBJ_NAME, OBJ_ARGUMENTS } value;
    int list, nested, have_name, have_args;
    int told;   /* its call is */
    char begun; /* first byte of the value */
    struct ans_scan scan;
    struct ans_escape escape;
    struct ans_buf args; /* which came before the name */
};

struct ans_literal { /* Python's or Gemma's literals, on their way to JSON */
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
    const struct fmt *fmt; /* NULL: all is content */
    const struct schema *schema;
    struct ans_form *form; /* [FMT_CALLS] */
    struct ans_mark mark[ANS_MARKS];
    size_t n_mark;
    uint8_t starts[256];     /* bytes with which one begins */
    struct ans_lit *special; /* of the markers */
    int has_bare;            /* a form without a marker */
    int exact;               /* markers that are special tokens come as such */
    uint64_t seed;
    size_t max_held;
    int rc; /* -ENOMEM, for good */
    int ended;

    enum ans_mode mode;
    enum fdchat_kind base; /* content or reasoning */
    int lead;              /* blanks at this place are markup */
    int fresh;             /* of content there were blanks alone */
    int chain;             /* a call has just ended, one without a marker may follow */
    struct ans_buf blanks; /* which may turn out to be markup */

    /* what is not decided, and what must be read once more */
    char hold[ANS_LIT];
    uint8_t hold_special[ANS_LIT];
    size_t n_hold;
    char again[2 * ANS_LIT];
    uint8_t again_special[2 * ANS_LIT];
    size_t n_again;

    const struct ans_form *now;
    size_t step;
    uint32_t call_before; /* calls told when the form began */
    int bare;             /* the form has no marker */
    struct ans_buf raw;   /* of the form since the last call ended; without hold */
    int open;             /* a call is told and not ended */
    uint32_t n_call;      /* told */
    char name[ANS_NAME + 1], key[ANS_NAME + 1], id[FDCHAT_ID_BYTES];
    size_t n_name, n_key;
    struct ans_scan scan;
    struct ans_object object;
    struct ans_literal literal;
    int in_params; /* the object of the arguments is ours to close */
    size_t n_param;
    unsigned types;
    int streams; /* the value goes out as it comes */
    int value_begun, newline;
    struct ans_buf value;

    struct ans_buf out;
    struct ans_event *event;
    size_t n_event, room_event, next_event;
};

/* ---- answer.c: out ---------------------------------------------------------------- */

void ans_keep(struct fdchat_answer *a, struct ans_buf *b, const char *p, size_t n);
void
ans_text(struct fdchat_answer *a, const char *p, size_t n); /* by base, blanks in mind */
/* The call that name says begins. */
void ans_tell(struct fdchat_answer *a);
void ans_args(struct fdchat_answer *a, const char *p, size_t n);
/* Bytes of a JSON string, escaped. */
void ans_args_string(struct fdchat_answer *a, const char *p, size_t n);
void ans_told_end(struct fdchat_answer *a);
/* Is it no call, or none any more: what is held is text, and hold is read again. */
void ans_fail(struct fdchat_answer *a);
void ans_fail_at(struct fdchat_answer *a, char c, uint8_t special);
void ans_again(struct fdchat_answer *a, const char *p, const uint8_t *special, size_t n);
/* Does hold, with c behind it, become one of n markers? Its place; -1: perhaps; -2: no, and
 * *ret_c is the byte that is none of a marker's. */
int ans_match(struct fdchat_answer *a, char c, uint8_t special,
    const struct ans_lit *const *lit, size_t n, char *ret_c);
void ans_lit_set(const struct fdchat_answer *a, struct ans_lit *l, const char *p, size_t n);

/* ---- call.c: steps of a form -------------------------------------------------------- */

int ans_form_read(const struct fdchat_answer *a, const char *text, struct ans_form *ret);
void ans_form_begin(struct fdchat_answer *a, const struct ans_form *f, size_t step);
void ans_step_next(struct fdchat_answer *a); /* go on behind the step that ended */
void ans_form_byte(struct fdchat_answer *a, char c, uint8_t special);
/* The answer ends within a call that is told: what is held belongs to it. */
void ans_form_end(struct fdchat_answer *a);
/* The arguments' object is closed where it is ours to close. */
void ans_params_close(struct fdchat_answer *a);
/* 1: the name is one, and of a tool where that is asked. */
int ans_name_ok(struct fdchat_answer *a);

/* ---- object.c, literal.c -------------------------------------------------------------- */

enum { SCAN_MORE, SCAN_DONE, SCAN_OVER, SCAN_BAD };
/* The byte that comes: SCAN_DONE: it ends the value; SCAN_OVER: the one before did. */
int ans_scan(struct ans_scan *s, char c);
/* 1..8 bytes of what the string says, 0: not yet, -1: no such escape. */
int ans_unescape(struct ans_escape *e, char c, char out[8]);
void ans_object_begin(struct fdchat_answer *a);
void ans_object_byte(struct fdchat_answer *a, char c, uint8_t special);
/* A byte of a JSON value as it is to be passed on: itself, or the escape of a control
 * character in a string. Bytes of out. */
size_t ans_as_written(char c, int in_string, char out[8]);
void ans_literal_begin(struct fdchat_answer *a, int gemma);
void ans_literal_byte(struct fdchat_answer *a, char c, uint8_t special);
void ans_literal_end(struct fdchat_answer *a);

#endif
