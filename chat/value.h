/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a template: those of Python that chat templates use. All live in the arena
 * of one rendering and are freed with it. A value does not change, except for
 * namespaces and variables, so copies share storage.
 *
 * Origin. Each byte of a string has a mark: 1: it came from the request (content, role,
 * name, tool, document, argument of the template); 0: it came from the template. Every
 * operation keeps the marks of the bytes, so that the caller knows which ranges of the
 * prompt must not be read as special tokens. Where an operation mixes both and the
 * origin of a byte is unclear, its whole result is marked.
 *
 * Failure. An operation that fails calls val_fail(), which does not return: it jumps
 * (longjmp) to the frame of the rendering. Nothing has to be freed on the way.
 */
#ifndef FDD_CHAT_VALUE_H
#define FDD_CHAT_VALUE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "chat/arena.h"

enum val_type {
    VAL_UNDEF,
    VAL_NONE,
    VAL_BOOL,
    VAL_INT,
    VAL_BIG,
    VAL_FLOAT,
    VAL_STR,
    VAL_LIST,
    VAL_TUPLE,
    VAL_DICT,
    VAL_NAMESPACE,
    VAL_LOOP,
    VAL_MACRO,
    VAL_FUNC,
    VAL_METHOD,
    VAL__N
};

struct val_str;
struct val_list;
struct val_dict;
struct val_call; /* a macro, function or bound method: eval.h */
struct tpl_loop;

struct val {
    enum val_type type;
    union {
        int b;
        int64_t i;
        double f;
        const struct val_str *s; /* VAL_STR; VAL_BIG: its digits; VAL_UNDEF: its name */
        struct val_list *l;      /* VAL_LIST, VAL_TUPLE */
        struct val_dict *d;      /* VAL_DICT, VAL_NAMESPACE */
        const struct tpl_loop *loop;
        const struct val_call *call;
    };
};

struct val_str {
    size_t n;
    const char *p;       /* valid UTF-8, not terminated */
    const uint8_t *mark; /* [n]; NULL: every byte's mark is `marked` */
    int marked;
    int is_safe; /* result of `safe` or `escape`: text added to it is escaped */
};

struct val_list {
    size_t n;
    struct val *at;
    int lazy;  /* a generator, not a list */
    int group; /* of groupby: its two elements are also .grouper and .list */
};

struct val_pair {
    struct val key, value;
    uint32_t hash;
};
struct val_dict { /* in the order of insertion */
    size_t n, room;
    struct val_pair *at;
    uint32_t *index; /* [n_index]: hash table of indexes in at, + 1; NULL: few pairs */
    size_t n_index;
};

#define VAL_ERR 512
struct val_ctx { /* one rendering */
    struct arena *mem;
    uint64_t steps; /* steps left: val_steps() */
    int depth;      /* levels of nesting left */
    jmp_buf fail;
    char *err; /* [VAL_ERR] */
};

__attribute__((noreturn, format(printf, 2, 3))) void
val_fail(struct val_ctx *c, const char *fmt, ...);
/* Count n steps of work. Fails if fewer are left. */
static inline void
val_steps(struct val_ctx *c, uint64_t n)
{
    if (n > c->steps)
        val_fail(c, "the template takes too many steps");
    c->steps -= n;
}

/* Does the name equal these n bytes? */
static inline int
val_is_name(const char *name, const char *p, size_t n)
{
    return n > 0 && name[0] == p[0] && strlen(name) == n && memcmp(name, p, n) == 0;
}

/* Never NULL. */
void *val_get(struct val_ctx *c, size_t bytes);
void *val_array(struct val_ctx *c, size_t n, size_t bytes);

/* ---- making ------------------------------------------------------------------- */

extern const struct val val_none, val_undef;
struct val val_bool(int b);
struct val val_int(int64_t i);
struct val val_float(double f);
/* The bytes are not copied. */
struct val val_str(struct val_ctx *c, const char *p, size_t n, int marked);
struct val val_text(struct val_ctx *c, const char *text); /* unmarked */
struct val val_sub(struct val_ctx *c, const struct val_str *s, size_t at, size_t n);
struct val val_undefined(struct val_ctx *c, const char *name, size_t n);
/* An empty list with room for n elements. */
struct val val_list(struct val_ctx *c, enum val_type type, size_t n);
struct val val_dict(struct val_ctx *c);
/* Append an element; *room is kept by the caller, 0 at first. */
void val_push(struct val_ctx *c, struct val_list *l, size_t *room, struct val v);
/* Reverses the list in place. */
void val_reverse(struct val_list *l);
void val_put(struct val_ctx *c, struct val_dict *d, struct val key, struct val value);
/* NULL: no such key. Fails for a key that Python cannot hash. */
const struct val *val_find(struct val_ctx *c, const struct val_dict *d, struct val key);

/* ---- asking ------------------------------------------------------------------- */

const char *val_type_name(struct val v); /* Python's name */
int val_true(struct val v);
int val_is_number(struct val v); /* a bool is one */
double val_number(struct val_ctx *c, struct val v);
int val_equal(struct val_ctx *c, struct val a, struct val b);
/* < 0, 0 or > 0. Fails where Python does. */
int val_compare(struct val_ctx *c, struct val a, struct val b);
int val_contains(struct val_ctx *c, struct val where, struct val what);
/* The elements of an iterable: a string's characters, a list's elements, a
 * dict's keys. */
struct val_list *val_iter(struct val_ctx *c, struct val v);
/* Number of code points of a string. */
size_t val_chars(const struct val_str *s);
/* Byte offset of code point i, or s->n. */
size_t val_char_at(const struct val_str *s, size_t i);
int val_same(const struct val_str *s, const char *text);
/* Is any byte marked? */
int val_marked(const struct val_str *s);

/* ---- building text --------------------------------------------------------------- */

struct val_buf {
    size_t n, room;
    char *p;
    uint8_t *mark;
    size_t limit;
};
/* Make room for n more bytes; val_add() does so itself. */
void val_room(struct val_ctx *c, struct val_buf *b, size_t n);
void val_add(struct val_ctx *c, struct val_buf *b, const char *p, size_t n, int marked);
void val_add_text(struct val_ctx *c, struct val_buf *b, const char *text);
void val_add_str(struct val_ctx *c, struct val_buf *b, const struct val_str *s);
/* str() and repr(). */
void val_add_value(struct val_ctx *c, struct val_buf *b, struct val v);
void val_add_repr(struct val_ctx *c, struct val_buf *b, struct val v);
struct val val_built(struct val_ctx *c, const struct val_buf *b);
struct val val_to_str(struct val_ctx *c, struct val v);
/* Python's repr() of a number. */
#define VAL_FLOAT_BYTES 40
void val_float_text(double f, char text[VAL_FLOAT_BYTES]);

/* ---- code points ------------------------------------------------------------------ */

/* The code point at p, of n bytes; *ret_n: its length in bytes. */
uint32_t val_code(const char *p, size_t n, size_t *ret_n);
size_t val_code_put(uint32_t code, char out[4]);
int val_is_space(uint32_t code); /* str.isspace() */

#endif
