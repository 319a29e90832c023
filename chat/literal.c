/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/answer.h"

#include <string.h>

#define QUOTE 256 /* stands for Gemma's quote <|"|>, a special token */

static int
is_blank(int c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int
is_ident(int c, int first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80 ||
        (!first && ((c >= '0' && c <= '9') || c == '.' || c == '-'));
}

void
ans_literal_begin(struct fdchat_answer *a, int gemma)
{
    struct ans_literal *l = &a->literal;

    l->gemma = gemma;
    l->list = l->comma = l->key = l->depth = 0;
    l->scalar.n = 0;
    l->at = LIT_OPEN;
    a->mode = ANS_LITERAL;
    if (!gemma)
        return;
    ans_tell(a);
    ans_args(a, "{", 1);
    l->stack[l->depth++] = 'd';
    l->at = LIT_KEY;
}

static char
top(const struct ans_literal *l)
{
    return l->depth > 0 ? l->stack[l->depth - 1] : '\0';
}

static void
comma_out(struct fdchat_answer *a)
{
    if (a->literal.comma)
        ans_args(a, ", ", 2);
    a->literal.comma = 0;
}

static int
push(struct fdchat_answer *a, char kind)
{
    struct ans_literal *l = &a->literal;

    if (l->depth == ANS_DEPTH)
        return 0;
    comma_out(a);
    l->stack[l->depth++] = kind;
    ans_args(a, kind == 'd' || kind == 'c' ? "{" : "[", 1);
    l->at = kind == 'd' || kind == 'c' ? LIT_KEY : LIT_VALUE;
    return 1;
}

static int
closes(const struct ans_literal *l, int c)
{
    char t = top(l);

    return (c == ')' && (t == 'c' || t == 't')) || (c == ']' && t == 'l') ||
        (c == '}' && t == 'd');
}

/* Returns 0 if c closes nothing. */
static int
pop(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;
    char t = top(l);

    if (!closes(l, c))
        return 0;
    l->depth--;
    l->comma = 0;
    ans_args(a, t == 'd' || t == 'c' ? "}" : "]", 1);
    l->at = LIT_AFTER;
    if (l->depth > 0)
        return 1;
    ans_told_end(a);
    l->at = LIT_NEXT;
    if (l->gemma)
        ans_step_next(a);
    return 1;
}

static void
key_out(struct fdchat_answer *a)
{
    struct ans_buf *w = &a->literal.scalar;

    while (w->n > 0 && is_blank((unsigned char)w->p[w->n - 1]))
        w->n--;
    comma_out(a);
    ans_args(a, "\"", 1);
    ans_args_string(a, w->p, w->n);
    ans_args(a, "\": ", 3);
    w->n = 0;
    a->literal.at = LIT_VALUE;
}

static int
scalar_add(struct fdchat_answer *a, int c, size_t limit)
{
    char byte = (char)c;

    if (a->literal.scalar.n == limit)
        return 0;
    ans_keep(a, &a->literal.scalar, &byte, 1);
    return 1;
}

static void
scalar_out(struct fdchat_answer *a)
{
    static const unsigned any = TYP_NULL | TYP_NUMBER | TYP_BOOLEAN;
    struct ans_buf *w = &a->literal.scalar;
    const char *as;

    while (w->n > 0 && is_blank((unsigned char)w->p[w->n - 1]))
        w->n--;
    if (w->n == 4 && memcmp(w->p, "None", 4) == 0) {
        ans_args(a, "null", 4);
    } else if (typ_fits(w->p, w->n, any, &as)) {
        ans_args(a, as != NULL ? as : w->p, as != NULL ? strlen(as) : w->n);
    } else {
        ans_args(a, "\"", 1);
        ans_args_string(a, w->p, w->n);
        ans_args(a, "\"", 1);
    }
    w->n = 0;
    a->literal.at = LIT_AFTER;
}

static int
is_quote(const struct ans_literal *l, int c)
{
    return l->gemma ? c == QUOTE : c == '"' || c == '\'';
}

static void
string_begin(struct fdchat_answer *a, int c, int key)
{
    struct ans_literal *l = &a->literal;

    comma_out(a);
    ans_args(a, "\"", 1);
    l->key = key;
    l->quote = c;
    l->escape = (struct ans_escape){ .python = 1 };
    l->at = LIT_STRING;
}

static int
string_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;
    char out[8] = { (char)c };
    int n = 1;

    if (c == l->quote && !l->escape.on) {
        l->at = LIT_CLOSED;
        return 1;
    }
    if (!l->gemma)
        n = ans_unescape(&l->escape, (char)c, out);
    if (n > 0)
        ans_args_string(a, out, (size_t)n);
    return n >= 0;
}

static int next_byte(struct fdchat_answer *a, int c);

/* A byte after a string's closing quote. In Python, a quote here continues the string:
 * adjacent strings are joined. */
static int
closed_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;

    if (is_blank(c))
        return 1;
    if (!l->gemma && is_quote(l, c)) {
        l->quote = c;
        l->at = LIT_STRING;
        return 1;
    }
    ans_args(a, "\"", 1);
    l->at = l->key ? LIT_COLON : LIT_AFTER;
    return next_byte(a, c);
}

/* A byte after "f(": it is a call if a keyword argument or ")" follows. */
static int
first_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;

    if (is_blank(c))
        return 1;
    if (is_ident(c, l->scalar.n == 0))
        return scalar_add(a, c, ANS_NAME);
    if (!(c == ')' && l->scalar.n == 0) && !(c == '=' && l->scalar.n > 0))
        return 0;
    ans_tell(a);
    if (!push(a, 'c'))
        return 0;
    if (c == ')')
        return pop(a, c);
    key_out(a);
    return 1;
}

static int
open_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;
    char byte = (char)c;

    if (l->at == LIT_FUNC) {
        if (c == '(') {
            l->at = LIT_FIRST;
            l->scalar.n = 0;
            return ans_name_ok(a);
        }
        if (!is_ident(c, 0) || a->n_name == ANS_NAME)
            return 0;
        a->name[a->n_name++] = byte;
        return 1;
    }
    if (is_blank(c))
        return 1;
    if (c == '[' && !l->list && l->at == LIT_OPEN) {
        l->list = 1;
        return 1;
    }
    if (c == ']' && l->list) {
        ans_step_next(a);
        return 1;
    }
    if (!is_ident(c, 1))
        return 0;
    a->name[0] = byte;
    a->n_name = 1;
    l->at = LIT_FUNC;
    return 1;
}

static int
key_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;
    int end = top(l) == 'c' ? '=' : ':';

    if (is_blank(c) && l->scalar.n == 0)
        return 1;
    if (l->scalar.n == 0 && closes(l, c))
        return pop(a, c);
    if (l->scalar.n == 0 && top(l) == 'd' && is_quote(l, c)) {
        string_begin(a, c, 1);
        return 1;
    }
    if (c == end && l->scalar.n > 0) {
        key_out(a);
        return 1;
    }
    if (c == QUOTE || (top(l) == 'c' && !is_ident(c, l->scalar.n == 0) && !is_blank(c)))
        return 0;
    return scalar_add(a, c, ANS_NAME);
}

static int
value_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;

    if (is_blank(c))
        return 1;
    if (is_quote(l, c)) {
        string_begin(a, c, 0);
        return 1;
    }
    if (c == '{' || c == '[' || (c == '(' && !l->gemma))
        return push(a, c == '{' ? 'd' : c == '[' ? 'l' : 't');
    if (closes(l, c) && top(l) != 'c' && top(l) != 'd')
        return pop(a, c);
    if (c == QUOTE || c == ',' || c == ']' || c == '}' || c == ')')
        return 0;
    comma_out(a);
    l->at = LIT_SCALAR;
    return scalar_add(a, c, ANS_HELD);
}

static int
scalar_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;
    int over = c == ',' || c == ']' || c == '}' || (!l->gemma && (c == ')' || is_blank(c)));

    if (c == QUOTE || (!l->gemma && is_quote(l, c)))
        return 0;
    if (!over)
        return scalar_add(a, c, ANS_HELD);
    scalar_out(a);
    return next_byte(a, c);
}

static int
after_byte(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;

    if (is_blank(c))
        return 1;
    if (c != ',')
        return pop(a, c);
    l->comma = 1;
    l->at = top(l) == 'c' || top(l) == 'd' ? LIT_KEY : LIT_VALUE;
    return 1;
}

static int
between_calls(struct fdchat_answer *a, int c)
{
    struct ans_literal *l = &a->literal;
    char byte = (char)c;
    uint8_t text = 0;

    if (is_blank(c) || c == ',')
        return 1;
    if (c == ']' && l->list) {
        ans_step_next(a);
        return 1;
    }
    if (is_ident(c, 1))
        return open_byte(a, c);
    if (l->list)
        return 0;
    /* the byte after the calls is not part of the form */
    a->raw.n--;
    ans_step_next(a);
    ans_again(a, &byte, &text, 1);
    return 1;
}

/* Returns 0 if the text turns out not to be a call. */
static int
next_byte(struct fdchat_answer *a, int c)
{
    switch (a->literal.at) {
    case LIT_OPEN:
    case LIT_FUNC:
        return open_byte(a, c);
    case LIT_FIRST:
        return first_byte(a, c);
    case LIT_KEY:
    case LIT_IN_KEY:
        return key_byte(a, c);
    case LIT_COLON:
        if (c == ':') {
            ans_args(a, ": ", 2);
            a->literal.at = LIT_VALUE;
        }
        return c == ':' || is_blank(c);
    case LIT_VALUE:
        return value_byte(a, c);
    case LIT_SCALAR:
        return scalar_byte(a, c);
    case LIT_STRING:
        return string_byte(a, c);
    case LIT_CLOSED:
        return closed_byte(a, c);
    case LIT_AFTER:
        return after_byte(a, c);
    default:
        return between_calls(a, c);
    }
}

static void
plain_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    /* a special token between calls ends the form */
    if (special != 0 && a->literal.at == LIT_NEXT && !a->literal.list) {
        ans_step_next(a);
        ans_again(a, &c, &special, 1);
        return;
    }
    if (!a->open)
        ans_keep(a, &a->raw, &c, 1);
    if ((special != 0 && a->literal.at != LIT_STRING) || !next_byte(a, (unsigned char)c))
        ans_fail_at(a, c, special);
}

void
ans_literal_byte(struct fdchat_answer *a, char c, uint8_t special)
{
    const struct ans_lit *delim = &a->literal.delim;
    uint8_t s = special;
    char first = c;
    int k;

    if (!a->literal.gemma) {
        plain_byte(a, c, special);
        return;
    }
    if (a->n_hold > 0)
        s = a->hold_special[0];
    k = ans_match(a, c, special, &delim, 1, &first);
    if (k == -2)
        plain_byte(a, first, s);
    else if (k == 0 && !next_byte(a, QUOTE)) {
        ans_again(a, delim->p, delim->special, delim->n);
        ans_fail(a);
    }
}

void
ans_literal_end(struct fdchat_answer *a)
{
    struct ans_literal *l = &a->literal;

    if (l->at == LIT_SCALAR)
        ans_args(a, l->scalar.p, l->scalar.n);
    if (l->at == LIT_CLOSED)
        ans_args(a, "\"", 1);
    if (l->at == LIT_STRING)
        ans_args_string(a, a->hold, a->n_hold);
}
