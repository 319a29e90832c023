/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/eval.h"

#include <math.h>
#include <string.h>

__attribute__((noreturn)) static void
bad_operands(struct render *r, const char *op, struct val a, struct val b)
{
    if (a.type == VAL_UNDEF)
        rnd_undefined(r, a);
    if (b.type == VAL_UNDEF)
        rnd_undefined(r, b);
    val_fail(&r->c, "unsupported operand type(s) for %s: '%s' and '%s'", op,
        val_type_name(a), val_type_name(b));
}

/* ---- text that is safe for HTML ------------------------------------------------ */

int
rnd_is_safe(struct val v)
{
    return v.type == VAL_STR && v.s->is_safe;
}

struct val
rnd_mark_safe(struct render *r, struct val v)
{
    struct val_str *s = val_get(&r->c, sizeof(*s));

    *s = *v.s;
    s->is_safe = 1;
    return (struct val){ .type = VAL_STR, .s = s };
}

/* Escapes &, <, >, " and ' for HTML; the escapes keep the marks of the characters. */
static struct val
escape(struct render *r, const struct val_str *s)
{
    static const char chars[] = "&<>\"'";
    static const char *const names[] = { "&amp;", "&lt;", "&gt;", "&#34;", "&#39;" };
    struct val_buf b = { 0 };

    for (size_t i = 0; i < s->n; i++) {
        const char *e = s->p[i] != '\0' ? strchr(chars, s->p[i]) : NULL;
        int marked = s->mark != NULL ? s->mark[i] : s->marked;

        if (e != NULL)
            val_add(&r->c, &b, names[e - chars], strlen(names[e - chars]), marked);
        else
            val_add(&r->c, &b, s->p + i, 1, marked);
    }
    return val_built(&r->c, &b);
}

struct val
rnd_safe(struct render *r, struct val v)
{
    return rnd_is_safe(v) ? v : rnd_mark_safe(r, escape(r, val_to_str(&r->c, v).s));
}

/* ---- operators -------------------------------------------------------------------- */

static struct val
concat(struct render *r, struct val a, struct val b)
{
    struct val_buf out = { 0 };

    val_add_value(&r->c, &out, a);
    val_add_value(&r->c, &out, b);
    return val_built(&r->c, &out);
}

static struct val
add_texts(struct render *r, struct val a, struct val b)
{
    if (!rnd_is_safe(a) && !rnd_is_safe(b))
        return concat(r, a, b);
    return rnd_mark_safe(r, concat(r, rnd_safe(r, a), rnd_safe(r, b)));
}

static struct val
add_lists(struct render *r, struct val a, struct val b)
{
    struct val v = val_list(&r->c, a.type, a.l->n + b.l->n);

    val_steps(&r->c, (a.l->n + b.l->n) / 16);
    v.l->n = a.l->n + b.l->n;
    if (a.l->n > 0)
        memcpy(v.l->at, a.l->at, a.l->n * sizeof(*a.l->at));
    if (b.l->n > 0)
        memcpy(v.l->at + a.l->n, b.l->at, b.l->n * sizeof(*b.l->at));
    return v;
}

static struct val
repeat(struct render *r, struct val v, int64_t times)
{
    struct val out;
    struct val_buf b = { 0 };

    if (v.type == VAL_STR) {
        for (int64_t i = 0; i < times && v.s->n > 0; i++) {
            val_steps(&r->c, 1);
            val_add_str(&r->c, &b, v.s);
        }
        out = val_built(&r->c, &b);
        return v.s->is_safe ? rnd_mark_safe(r, out) : out;
    }
    if (times > 0 && v.l->n > RND_MAX_STEPS / (uint64_t)times)
        val_fail(&r->c, "the template takes too much memory");
    out = val_list(&r->c, v.type, times > 0 ? v.l->n * (size_t)times : 0);
    for (int64_t i = 0; i < times && v.l->n > 0; i++)
        for (size_t k = 0; k < v.l->n; k++)
            out.l->at[out.l->n++] = v.l->at[k];
    val_steps(&r->c, out.l->n);
    return out;
}

__attribute__((noreturn)) static void
too_large(struct render *r)
{
    val_fail(&r->c, "an integer beyond 64 bits");
}

static struct val
int_pow(struct render *r, int64_t a, int64_t b)
{
    int64_t v = 1;

    if (b < 0)
        return val_float(pow((double)a, (double)b));
    if (b > 64 && a != 0 && a != 1 && a != -1)
        too_large(r);
    if (b > 64)
        b = 64 + (b & 1);
    for (int64_t i = 0; i < b; i++)
        if (__builtin_mul_overflow(v, a, &v))
            too_large(r);
    return val_int(v);
}

static struct val
int_op(struct render *r, enum tok_op op, int64_t a, int64_t b)
{
    int64_t v;

    switch (op) {
    case OP_ADD:
        if (__builtin_add_overflow(a, b, &v))
            too_large(r);
        return val_int(v);
    case OP_SUB:
        if (__builtin_sub_overflow(a, b, &v))
            too_large(r);
        return val_int(v);
    case OP_MUL:
        if (__builtin_mul_overflow(a, b, &v))
            too_large(r);
        return val_int(v);
    case OP_POW:
        return int_pow(r, a, b);
    default:
        break;
    }
    if (b == 0)
        val_fail(&r->c,
            op == OP_MOD       ? "integer modulo by zero"
                : op == OP_DIV ? "division by zero"
                               : "integer division or modulo by zero");
    if (op == OP_DIV)
        return val_float((double)a / (double)b);
    if (a == INT64_MIN && b == -1) {
        if (op == OP_MOD)
            return val_int(0);
        too_large(r);
    }
    v = a / b;
    if (a % b != 0 && (a < 0) != (b < 0))
        v--;
    return val_int(op == OP_MOD ? a - v * b : v);
}

static struct val
float_op(struct render *r, enum tok_op op, double a, double b)
{
    double m;

    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        val_fail(&r->c, "float division by zero");
    switch (op) {
    case OP_ADD:
        return val_float(a + b);
    case OP_SUB:
        return val_float(a - b);
    case OP_MUL:
        return val_float(a * b);
    case OP_DIV:
        return val_float(a / b);
    case OP_POW:
        return val_float(pow(a, b));
    default:
        m = fmod(a, b);
        if (m != 0 && (m < 0) != (b < 0))
            m += b;
        return val_float(op == OP_MOD ? m : floor((a - m) / b + 0.5));
    }
}

static const char *
op_text(enum tok_op op)
{
    static const char *const text[] = { "+", "-", "*", "/", "//", "%", "** or pow()" };

    return text[op];
}

struct val
rnd_binary(struct render *r, enum tok_op op, struct val a, struct val b)
{
    if (op == OP_CONCAT)
        return concat(r, a, b);
    if (rnd_is_int(a) && rnd_is_int(b))
        return int_op(r, op, rnd_int(a), rnd_int(b));
    if (a.type == VAL_BIG || b.type == VAL_BIG) {
        if (val_is_number(a) && val_is_number(b))
            too_large(r);
    } else if (val_is_number(a) && val_is_number(b)) {
        return float_op(r, op, val_number(&r->c, a), val_number(&r->c, b));
    }
    if (op == OP_MOD && a.type == VAL_STR)
        return rnd_percent(r, a.s, b);
    if (op == OP_ADD) {
        if (a.type == VAL_STR && b.type == VAL_STR)
            return add_texts(r, a, b);
        if (a.type == b.type && (a.type == VAL_LIST || a.type == VAL_TUPLE) &&
            !a.l->lazy && !b.l->lazy)
            return add_lists(r, a, b);
        if (a.type == VAL_STR && b.type != VAL_UNDEF)
            val_fail(&r->c, "can only concatenate str (not \"%s\") to str",
                val_type_name(b));
    }
    if (op == OP_MUL) {
        if ((a.type == VAL_STR || a.type == VAL_LIST || a.type == VAL_TUPLE) &&
            rnd_is_int(b))
            return repeat(r, a, rnd_int(b));
        if ((b.type == VAL_STR || b.type == VAL_LIST || b.type == VAL_TUPLE) &&
            rnd_is_int(a))
            return repeat(r, b, rnd_int(a));
    }
    bad_operands(r, op_text(op), a, b);
}

int
rnd_compare(struct render *r, enum tok_op op, struct val a, struct val b)
{
    int d;

    switch (op) {
    case OP_EQ:
        return val_equal(&r->c, a, b);
    case OP_NE:
        return !val_equal(&r->c, a, b);
    case OP_IN:
        return val_contains(&r->c, b, a);
    case OP_NOT_IN:
        return !val_contains(&r->c, b, a);
    default:
        d = val_compare(&r->c, a, b);
        return op == OP_LT ? d < 0 : op == OP_LE ? d <= 0 : op == OP_GT ? d > 0 : d >= 0;
    }
}
