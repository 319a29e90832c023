/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/eval.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "chat/json.h"

static const struct val_str *
text_of(struct render *r, struct val v)
{
    return val_to_str(&r->c, v).s;
}

/* ---- text ------------------------------------------------------------------------ */

/* Maps a character to up to 4; returns their number. */
typedef size_t char_map(uint32_t code, int first, utf8proc_uint32_t out[4]);

static struct val
map_text(struct render *r, const struct val_str *s, char_map *map, int words)
{
    struct val_buf b = { 0 };
    int first = 1;

    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t code = val_code(s->p + i, s->n - i, &n);
        utf8proc_uint32_t out[4];
        size_t k = map(code, first, out);

        for (size_t j = 0; j < k; j++) {
            char bytes[4];

            val_add(&r->c, &b, bytes, val_code_put(out[j], bytes),
                s->mark != NULL ? s->mark[i] : s->marked);
        }
        first = words &&
            !(utf8proc_category((utf8proc_int32_t)code) >= UTF8PROC_CATEGORY_LU &&
                utf8proc_category((utf8proc_int32_t)code) <= UTF8PROC_CATEGORY_LT);
    }
    return val_built(&r->c, &b);
}

static size_t
to_upper(uint32_t code, int first, utf8proc_uint32_t out[4])
{
    (void)first;
    static const struct {
        uint32_t code;
        utf8proc_uint32_t n, to[3];
    } longer[] = { { 0xdf, 2, { 'S', 'S' } }, { 0x149, 2, { 0x2bc, 'N' } },
        { 0x1f0, 2, { 'J', 0x30c } }, { 0x587, 2, { 0x535, 0x552 } },
        { 0xfb00, 2, { 'F', 'F' } }, { 0xfb01, 2, { 'F', 'I' } },
        { 0xfb02, 2, { 'F', 'L' } }, { 0xfb03, 3, { 'F', 'F', 'I' } },
        { 0xfb04, 3, { 'F', 'F', 'L' } }, { 0xfb05, 2, { 'S', 'T' } },
        { 0xfb06, 2, { 'S', 'T' } } };

    for (size_t i = 0; code >= 0xdf && i < sizeof(longer) / sizeof(longer[0]); i++)
        if (longer[i].code == code) {
            memcpy(out, longer[i].to, sizeof(longer[i].to));
            return longer[i].n;
        }
    out[0] = (utf8proc_uint32_t)utf8proc_toupper((utf8proc_int32_t)code);
    return 1;
}

static size_t
to_lower(uint32_t code, int first, utf8proc_uint32_t out[4])
{
    (void)first;
    if (code == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (utf8proc_uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    return 1;
}

static size_t
to_title(uint32_t code, int first, utf8proc_uint32_t out[4])
{
    out[0] = (utf8proc_uint32_t)(first ? utf8proc_totitle((utf8proc_int32_t)code)
                                       : utf8proc_tolower((utf8proc_int32_t)code));
    return 1;
}

static struct val
f_upper(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "upper", a, 0, 0, "");
    return map_text(r, text_of(r, v), to_upper, 0);
}

static struct val
f_lower(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "lower", a, 0, 0, "");
    return map_text(r, text_of(r, v), to_lower, 0);
}

static struct val
capitalized(struct render *r, const struct val_str *s)
{
    struct val_buf b = { 0 };
    size_t n = val_char_at(s, 1);

    val_add_str(&r->c, &b, map_text(r, val_sub(&r->c, s, 0, n).s, to_title, 0).s);
    val_add_str(&r->c, &b, map_text(r, val_sub(&r->c, s, n, s->n - n).s, to_lower, 0).s);
    return val_built(&r->c, &b);
}

static struct val
f_capitalize(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "capitalize", a, 0, 0, "");
    return capitalized(r, text_of(r, v));
}

/* Unlike the method title(), the filter splits at blanks, -, (, {, [ and <. The first
 * letter of each piece becomes upper case, its other letters lower case. */
static struct val
f_title(struct render *r, struct val v, const struct rnd_args *a)
{
    const struct val_str *s = text_of(r, v);
    struct val_buf b = { 0 };
    size_t from = 0, n;

    rnd_args_end(r, "title", a, 0, 0, "");
    for (size_t i = 0; i <= s->n; i += n) {
        uint32_t code = i < s->n ? val_code(s->p + i, s->n - i, &n) : ' ';

        n = i < s->n ? n : 1;
        if (!val_is_space(code) && (code > 0x7f || strchr("-({[<", (int)code) == NULL))
            continue;
        if (i > from)
            val_add_str(&r->c, &b, capitalized(r, val_sub(&r->c, s, from, i - from).s).s);
        if (i < s->n)
            val_add_str(&r->c, &b, val_sub(&r->c, s, i, n).s);
        from = i + n;
    }
    return val_built(&r->c, &b);
}

static struct val
method(struct render *r, struct val v, const char *name, const struct rnd_args *a)
{
    struct val s = val_to_str(&r->c, v);

    return rnd_call(r, rnd_method(r, s, name, strlen(name)), a);
}

static struct val
f_trim(struct render *r, struct val v, const struct rnd_args *a)
{
    struct rnd_args by = { .n = 1, .at = val_array(&r->c, 1, sizeof(struct val)) };

    rnd_args_end(r, "trim", a, 0, 1, "chars");
    by.at[0] = rnd_arg(r, a, 0, "chars", val_none);
    return method(r, v, "strip", &by);
}

static struct val
f_replace(struct render *r, struct val v, const struct rnd_args *a)
{
    struct rnd_args by = { .n = 2, .at = val_array(&r->c, 3, sizeof(struct val)) };
    struct val count = rnd_arg(r, a, 2, "count", val_none);

    rnd_args_end(r, "replace", a, 2, 3, "old,new,count");
    by.at[0] = val_to_str(&r->c, rnd_arg(r, a, 0, "old", val_undef));
    by.at[1] = val_to_str(&r->c, rnd_arg(r, a, 1, "new", val_undef));
    if (count.type != VAL_NONE) {
        by.n = 3;
        by.at[2] = count;
    }
    return method(r, v, "replace", &by);
}

static struct val
f_string(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "string", a, 0, 0, "");
    return val_to_str(&r->c, v);
}

static struct val
f_safe(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "safe", a, 0, 0, "");
    return rnd_is_safe(v) ? v : rnd_mark_safe(r, val_to_str(&r->c, v));
}

static struct val
f_escape(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "escape", a, 0, 0, "");
    return rnd_safe(r, v);
}

/* Lines are split as by str.splitlines() and joined with \n. */
static struct val
f_indent(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val width = rnd_arg(r, a, 0, "width", val_int(4)), pad = width;
    int first = val_true(rnd_arg(r, a, 1, "first", val_bool(0)));
    int blank = val_true(rnd_arg(r, a, 2, "blank", val_bool(0)));
    struct val_buf b = { 0 };
    size_t from = 0, end = 0;

    rnd_args_end(r, "indent", a, 0, 3, "width,first,blank");
    if (v.type == VAL_UNDEF)
        rnd_undefined(r, v);
    if (v.type != VAL_STR)
        val_fail(&r->c, "indent: expected a string, got %s", val_type_name(v));
    if (width.type != VAL_STR)
        pad = rnd_binary(r, OP_MUL, val_text(&r->c, " "), width);
    for (;;) {
        size_t n = 0, e = 0;

        while (end < v.s->n && (e = rnd_line_end(v.s, end)) == 0) {
            (void)val_code(v.s->p + end, v.s->n - end, &n);
            end += n;
        }
        if (from == 0 ? first : blank || end > from)
            val_add_str(&r->c, &b, pad.s);
        val_add_str(&r->c, &b, val_sub(&r->c, v.s, from, end - from).s);
        /* Jinja appends \n to the text before it splits it into lines */
        if (e == 0 || (end + 1 == v.s->n && v.s->p[end] == '\r'))
            return val_built(&r->c, &b);
        val_add(&r->c, &b, "\n", 1, v.s->mark != NULL ? v.s->mark[end] : v.s->marked);
        from = end += e;
    }
}

static struct val
f_tojson(struct render *r, struct val v, const struct rnd_args *a)
{
    struct jsn_form f = jsn_plain;
    struct val indent = rnd_arg(r, a, 1, "indent", val_none), sep;
    struct val_buf b = { 0 }, c = { 0 };

    rnd_args_end(r, "tojson", a, 0, 4, "ensure_ascii,indent,separators,sort_keys");
    f.ascii = val_true(rnd_arg(r, a, 0, "ensure_ascii", val_bool(0)));
    f.sort = val_true(rnd_arg(r, a, 3, "sort_keys", val_bool(0)));
    if (indent.type != VAL_NONE) {
        struct val pad = indent.type == VAL_STR
            ? indent
            : rnd_binary(r, OP_MUL, val_text(&r->c, " "), indent);

        val_add_str(&r->c, &c, pad.s);
        val_add(&r->c, &c, "", 1, 0);
        f.indent = c.p;
        f.item = ",";
    }
    sep = rnd_arg(r, a, 2, "separators", val_none);
    if (sep.type != VAL_NONE) {
        struct val_list *l = val_iter(&r->c, sep);
        char *text[2];

        if (l->n != 2 || l->at[0].type != VAL_STR || l->at[1].type != VAL_STR)
            val_fail(&r->c, "tojson: separators are two strings");
        for (int i = 0; i < 2; i++) {
            text[i] = val_get(&r->c, l->at[i].s->n + 1);
            memcpy(text[i], l->at[i].s->p, l->at[i].s->n);
        }
        f.item = text[0];
        f.key = text[1];
    }
    jsn_write(&r->c, &b, v, &f);
    return val_built(&r->c, &b);
}

/* ---- numbers ------------------------------------------------------------------------ */

/* Python's int() of a text. Returns 0 if it is no integer. */
static int
parse_int(const struct val_str *s, int base, int64_t *ret)
{
    char text[64];
    size_t from = 0, end = s->n, n = 0;
    char *e;

    while (from < end && val_is_space((unsigned char)s->p[from]))
        from++;
    while (end > from && val_is_space((unsigned char)s->p[end - 1]))
        end--;
    for (size_t i = from; i < end; i++) {
        if (s->p[i] == '_' && i > from && i + 1 < end && s->p[i + 1] != '_')
            continue;
        if (n + 1 == sizeof(text))
            return 0;
        text[n++] = s->p[i];
    }
    text[n] = '\0';
    if (n == 0)
        return 0;
    errno = 0;
    *ret = strtoll(text, &e, base);
    return *e == '\0' && errno == 0;
}

/* An integer beyond 64 bits, in base 10. Returns 0 if it is none. */
static int
parse_big(struct render *r, const struct val_str *s, struct val *ret)
{
    char *p = val_get(&r->c, s->n + 1);
    size_t n = 0, from = 0, end = s->n;

    while (from < end && val_is_space((unsigned char)s->p[from]))
        from++;
    while (end > from && val_is_space((unsigned char)s->p[end - 1]))
        end--;
    if (from < end && (s->p[from] == '-' || s->p[from] == '+')) {
        if (s->p[from] == '-')
            p[n++] = '-';
        from++;
    }
    while (from < end && s->p[from] == '0')
        from++;
    if (end - from < 19)
        return 0;
    for (; from < end; from++) {
        if (s->p[from] < '0' || s->p[from] > '9')
            return 0;
        p[n++] = s->p[from];
    }
    *ret = val_str(&r->c, p, n, val_marked(s));
    ret->type = VAL_BIG;
    return 1;
}

static int
parse_float(const struct val_str *s, double *ret)
{
    char text[128], *e;

    if (s->n == 0 || s->n >= sizeof(text))
        return 0;
    memcpy(text, s->p, s->n);
    text[s->n] = '\0';
    if (strpbrk(text, "xXpP(") != NULL)
        return 0;
    *ret = strtod(text, &e);
    while (val_is_space((unsigned char)*e))
        e++;
    return *e == '\0' && e > text;
}

static struct val
f_int(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val fallback = rnd_arg(r, a, 0, "default", val_int(0));
    struct val base = rnd_arg(r, a, 1, "base", val_int(10));
    double f;
    int64_t i;

    rnd_args_end(r, "int", a, 0, 2, "default,base");
    switch (v.type) {
    case VAL_INT:
    case VAL_BIG:
        return v;
    case VAL_BOOL:
        return val_int(v.b);
    case VAL_FLOAT:
        return fabs(v.f) < 9e18 ? val_int((int64_t)v.f) : fallback;
    case VAL_STR:
        if (parse_int(v.s, base.type == VAL_INT ? (int)base.i : 10, &i))
            return val_int(i);
        if ((base.type != VAL_INT || base.i == 10) && parse_big(r, v.s, &v))
            return v;
        return parse_float(v.s, &f) && fabs(f) < 9e18 ? val_int((int64_t)f) : fallback;
    case VAL_UNDEF:
        rnd_undefined(r, v);
    default:
        return fallback;
    }
}

static struct val
f_float(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val fallback = rnd_arg(r, a, 0, "default", val_float(0));
    double f;

    rnd_args_end(r, "float", a, 0, 1, "default");
    if (v.type == VAL_UNDEF)
        rnd_undefined(r, v);
    if (val_is_number(v))
        return val_float(val_number(&r->c, v));
    return v.type == VAL_STR && parse_float(v.s, &f) ? val_float(f) : fallback;
}

static struct val
f_abs(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "abs", a, 0, 0, "");
    if (v.type == VAL_FLOAT)
        return val_float(fabs(v.f));
    if (v.type == VAL_BOOL)
        return val_int(v.b);
    if (v.type != VAL_INT)
        val_fail(&r->c, "bad operand type for abs(): '%s'", val_type_name(v));
    return v.i < 0 ? rnd_binary(r, OP_SUB, val_int(0), v) : v;
}

/* The multiple of 10^digits nearest to i; a tie goes to the even multiple, as in
 * Python. */
static struct val
round_int(struct render *r, int64_t i, int64_t digits)
{
    int64_t by = 1, rest, over;

    if (digits > 18)
        return val_int(0);
    for (int64_t k = 0; k < digits; k++)
        by *= 10;
    rest = i % by;
    over = (rest < 0 ? -rest : rest) - by / 2;
    i -= rest;
    if (by == 1 || over < 0 || (over == 0 && i / by % 2 == 0))
        return val_int(i);
    return rnd_binary(r, rest < 0 ? OP_SUB : OP_ADD, val_int(i), val_int(by));
}

static struct val
f_round(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val p = rnd_arg(r, a, 0, "precision", val_int(0));
    struct val how = rnd_arg(r, a, 1, "method", val_text(&r->c, "common"));
    double f = val_number(&r->c, v), scale;
    char text[400];

    rnd_args_end(r, "round", a, 0, 2, "precision,method");
    if (p.type != VAL_INT || p.i < -300 || p.i > 300 || how.type != VAL_STR)
        val_fail(&r->c, "round: precision is an int");
    if (val_same(how.s, "common")) {
        if (rnd_is_int(v))
            return round_int(r, rnd_int(v), p.i < 0 ? -p.i : 0);
        if (p.i < 0) {
            scale = pow(10, (double)-p.i);
            return val_float(nearbyint(f / scale) * scale);
        }
        (void)snprintf(text, sizeof(text), "%.*f", (int)p.i, f);
        return val_float(strtod(text, NULL));
    }
    scale = pow(10, (double)p.i);
    if (val_same(how.s, "ceil"))
        return val_float(ceil(f * scale) / scale);
    if (val_same(how.s, "floor"))
        return val_float(floor(f * scale) / scale);
    val_fail(&r->c, "method must be common, ceil or floor");
}

/* ---- lists -------------------------------------------------------------------------- */

static struct val
f_length(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "length", a, 0, 0, "");
    switch (v.type) {
    case VAL_UNDEF:
        return val_int(0);
    case VAL_STR:
        return val_int((int64_t)val_chars(v.s));
    case VAL_DICT:
        return val_int((int64_t)v.d->n);
    case VAL_LIST:
    case VAL_TUPLE:
        if (!v.l->lazy)
            return val_int((int64_t)v.l->n);
        /* fall through */
    default:
        val_fail(&r->c, "object of type '%s' has no len()", val_type_name(v));
    }
}

static struct val
f_default(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val fallback = rnd_arg(r, a, 0, "default_value", val_text(&r->c, ""));
    int falsy = val_true(rnd_arg(r, a, 1, "boolean", val_bool(0)));

    rnd_args_end(r, "default", a, 0, 2, "default_value,boolean");
    return v.type == VAL_UNDEF || (falsy && !val_true(v)) ? fallback : v;
}

static struct val
f_items(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val l;

    rnd_args_end(r, "items", a, 0, 0, "");
    if (v.type == VAL_UNDEF)
        return val_list(&r->c, VAL_LIST, 0);
    if (v.type != VAL_DICT)
        val_fail(&r->c, "Can only get item pairs from a mapping.");
    l = rnd_call(r, rnd_method(r, v, "items", 5), a);
    l.l->lazy = 1;
    return l;
}

/* The value at the attribute path a.b.c of v. Names made of digits are indexes. A missing
 * attribute is replaced by fallback, unless fallback is None. */
static struct val
attribute(struct render *r, struct val v, struct val path, struct val fallback)
{
    const char *p, *end;

    if (path.type != VAL_STR) {
        v = rnd_item(r, v, path);
        return v.type == VAL_UNDEF && fallback.type != VAL_NONE ? fallback : v;
    }
    p = path.s->p;
    end = p + path.s->n;
    while (p <= end) {
        const char *e = p;
        int digits = 1;

        while (e < end && *e != '.') {
            digits &= *e >= '0' && *e <= '9';
            e++;
        }
        if (digits && e > p && e - p < 10) {
            int64_t i = 0;

            for (const char *q = p; q < e; q++)
                i = i * 10 + (*q - '0');
            v = rnd_item(r, v, val_int(i));
        } else {
            v = rnd_item(r, v, val_str(&r->c, p, (size_t)(e - p), 0));
        }
        if (v.type == VAL_UNDEF && fallback.type != VAL_NONE)
            v = fallback;
        p = e + 1;
    }
    return v;
}

static struct val
f_join(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val sep = rnd_arg(r, a, 0, "d", val_text(&r->c, "")), by;
    struct val_list *l = val_iter(&r->c, v);
    struct val_buf b = { 0 };

    rnd_args_end(r, "join", a, 0, 2, "d,attribute");
    by = rnd_arg(r, a, 1, "attribute", val_none);
    for (size_t i = 0; i < l->n; i++) {
        struct val e = l->at[i];

        if (by.type != VAL_NONE)
            e = attribute(r, e, by, val_none);
        if (i > 0)
            val_add_value(&r->c, &b, sep);
        val_add_value(&r->c, &b, e);
    }
    return val_built(&r->c, &b);
}

static struct val
copied(struct render *r, struct val v)
{
    struct val_list *l = val_iter(&r->c, v);
    struct val out = val_list(&r->c, VAL_LIST, l->n);

    val_steps(&r->c, l->n / 4);
    out.l->n = l->n;
    if (l->n > 0)
        memcpy(out.l->at, l->at, l->n * sizeof(*l->at));
    return out;
}

static struct val
f_list(struct render *r, struct val v, const struct rnd_args *a)
{
    rnd_args_end(r, "list", a, 0, 0, "");
    return copied(r, v);
}

static struct val
f_first(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val_list *l = val_iter(&r->c, v);

    rnd_args_end(r, "first", a, 0, 0, "");
    return l->n > 0 ? l->at[0]
                    : val_undefined(&r->c, "No first item, sequence was empty.", 34);
}

static struct val
f_last(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val_list *l;

    rnd_args_end(r, "last", a, 0, 0, "");
    if (v.type == VAL_LIST && v.l->lazy)
        val_fail(&r->c, "'generator' object is not reversible");
    l = val_iter(&r->c, v);
    return l->n > 0 ? l->at[l->n - 1]
                    : val_undefined(&r->c, "No last item, sequence was empty.", 33);
}

static struct val
f_reverse(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val out = copied(r, v);
    struct val_buf b = { 0 };

    rnd_args_end(r, "reverse", a, 0, 0, "");
    val_reverse(out.l);
    if (v.type != VAL_STR) {
        out.l->lazy = 1;
        return out;
    }
    for (size_t i = 0; i < out.l->n; i++)
        val_add_str(&r->c, &b, out.l->at[i].s);
    return val_built(&r->c, &b);
}

/* Returns the key by which sort, unique, min and max compare v. If exact is 0, the key of
 * a string is in lower case. */
static struct val
sort_key(struct render *r, struct val v, struct val by, int exact)
{
    struct rnd_args none = { 0 };

    if (by.type != VAL_NONE)
        v = attribute(r, v, by, val_none);
    return v.type == VAL_STR && !exact ? f_lower(r, v, &none) : v;
}

/* Stable merge sort of at by keys. down: in descending order. */
static void
sorted(struct render *r, struct val *keys, struct val *at, size_t n, int down)
{
    size_t half = n / 2, i = 0, k = half, out = 0;
    struct val *tk, *ta;

    if (n < 2)
        return;
    sorted(r, keys, at, half, down);
    sorted(r, keys + half, at + half, n - half, down);
    tk = val_array(&r->c, n, sizeof(*tk));
    ta = val_array(&r->c, n, sizeof(*ta));
    while (i < half || k < n) {
        int right = i == half;

        if (i < half && k < n)
            right = down ? val_compare(&r->c, keys[i], keys[k]) < 0
                         : val_compare(&r->c, keys[k], keys[i]) < 0;
        tk[out] = right ? keys[k] : keys[i];
        ta[out++] = right ? at[k++] : at[i++];
    }
    memcpy(keys, tk, n * sizeof(*tk));
    memcpy(at, ta, n * sizeof(*ta));
}

/* Returns the list of sort keys for the attributes in by ("a,b"). val_compare() skips
 * equal elements of two lists, even if their type has no order. */
static struct val
sort_keys(struct render *r, struct val v, struct val by, int exact)
{
    struct val keys = val_list(&r->c, VAL_LIST, 0);
    const char *p, *end;
    size_t room = 0;

    if (by.type != VAL_STR) {
        val_push(&r->c, keys.l, &room, sort_key(r, v, by, exact));
        return keys;
    }
    p = by.s->p;
    end = p + by.s->n;
    while (p <= end) {
        const char *e = p;

        while (e < end && *e != ',')
            e++;
        val_push(&r->c, keys.l, &room,
            sort_key(r, v, val_str(&r->c, p, (size_t)(e - p), 0), exact));
        p = e + 1;
    }
    return keys;
}

static struct val
sort_by(struct render *r, struct val v, struct val by, int exact, int down)
{
    struct val out = copied(r, v);
    struct val *keys = val_array(&r->c, out.l->n + 1, sizeof(*keys));

    for (size_t i = 0; i < out.l->n; i++)
        keys[i] = by.type == VAL_NONE ? sort_key(r, out.l->at[i], by, exact)
                                      : sort_keys(r, out.l->at[i], by, exact);
    sorted(r, keys, out.l->at, out.l->n, down);
    return out;
}

static struct val
f_sort(struct render *r, struct val v, const struct rnd_args *a)
{
    int down = val_true(rnd_arg(r, a, 0, "reverse", val_bool(0)));
    int exact = val_true(rnd_arg(r, a, 1, "case_sensitive", val_bool(0)));
    struct val by = rnd_arg(r, a, 2, "attribute", val_none);

    rnd_args_end(r, "sort", a, 0, 3, "reverse,case_sensitive,attribute");
    return sort_by(r, v, by, exact, down);
}

/* Groups the elements by the value of an attribute, in the order of the values: a list of
 * (value of the group's first element, elements). */
static struct val
f_groupby(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val by = rnd_arg(r, a, 0, "attribute", val_undef);
    struct val fallback = rnd_arg(r, a, 1, "default", val_none);
    int exact = val_true(rnd_arg(r, a, 2, "case_sensitive", val_bool(0)));
    struct val all = copied(r, v), out = val_list(&r->c, VAL_LIST, all.l->n);
    struct val *keys = val_array(&r->c, all.l->n + 1, sizeof(*keys));
    struct val_list *last = NULL;
    size_t room = 0;

    rnd_args_end(r, "groupby", a, 1, 3, "attribute,default,case_sensitive");
    for (size_t i = 0; i < all.l->n; i++)
        keys[i] = sort_key(r, attribute(r, all.l->at[i], by, fallback), val_none, exact);
    sorted(r, keys, all.l->at, all.l->n, 0);
    for (size_t i = 0; i < all.l->n; i++) {
        if (i == 0 || !val_equal(&r->c, keys[i - 1], keys[i])) {
            struct val entry = val_list(&r->c, VAL_TUPLE, 2);
            struct val group = val_list(&r->c, VAL_LIST, 0);

            entry.l->at[0] = attribute(r, all.l->at[i], by, fallback);
            entry.l->at[1] = group;
            entry.l->n = 2;
            entry.l->group = 1;
            out.l->at[out.l->n++] = entry;
            last = group.l;
            room = 0;
        }
        val_push(&r->c, last, &room, all.l->at[i]);
    }
    return out;
}

static struct val
f_format(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val args = val_list(&r->c, VAL_TUPLE, a->n);

    if (a->n > 0 && a->n_kw > 0)
        val_fail(&r->c, "can't handle positional and keyword arguments at the same time");
    for (size_t i = 0; i < a->n; i++)
        args.l->at[args.l->n++] = a->at[i];
    if (a->n_kw > 0)
        args = val_dict(&r->c);
    for (size_t i = 0; i < a->n_kw; i++)
        val_put(&r->c, args.d, val_str(&r->c, a->kw[i].p, a->kw[i].n, 0), a->kw_at[i]);
    return rnd_percent(r, text_of(r, v), args);
}

static struct val
f_dictsort(struct render *r, struct val v, const struct rnd_args *a)
{
    int exact = val_true(rnd_arg(r, a, 0, "case_sensitive", val_bool(0)));
    struct val by = rnd_arg(r, a, 1, "by", val_text(&r->c, "key"));
    int down = val_true(rnd_arg(r, a, 2, "reverse", val_bool(0)));
    struct rnd_args none = { 0 };

    rnd_args_end(r, "dictsort", a, 0, 3, "case_sensitive,by,reverse");
    if (v.type != VAL_DICT || by.type != VAL_STR)
        val_fail(&r->c, "dictsort: not a dict");
    if (!val_same(by.s, "value") && !val_same(by.s, "key"))
        val_fail(&r->c, "You can only sort by either \"key\" or \"value\"");
    return sort_by(r, rnd_call(r, rnd_method(r, v, "items", 5), &none),
        val_int(val_same(by.s, "value")), exact, down);
}

static struct val
f_unique(struct render *r, struct val v, const struct rnd_args *a)
{
    int exact = val_true(rnd_arg(r, a, 0, "case_sensitive", val_bool(0)));
    struct val by = rnd_arg(r, a, 1, "attribute", val_none);
    struct val_list *l = val_iter(&r->c, v);
    struct val out = val_list(&r->c, VAL_LIST, l->n), seen = val_dict(&r->c);

    rnd_args_end(r, "unique", a, 0, 2, "case_sensitive,attribute");
    for (size_t i = 0; i < l->n; i++) {
        struct val key = sort_key(r, l->at[i], by, exact);

        if (val_find(&r->c, seen.d, key) != NULL)
            continue;
        val_put(&r->c, seen.d, key, val_none);
        out.l->at[out.l->n++] = l->at[i];
    }
    out.l->lazy = 1;
    return out;
}

static struct val
extreme(struct render *r, struct val v, const struct rnd_args *a, const char *name, int sign)
{
    int exact = val_true(rnd_arg(r, a, 0, "case_sensitive", val_bool(0)));
    struct val by = rnd_arg(r, a, 1, "attribute", val_none), best, key;
    struct val_list *l = val_iter(&r->c, v);

    rnd_args_end(r, name, a, 0, 2, "case_sensitive,attribute");
    if (l->n == 0)
        return val_undefined(&r->c, "No aggregated item, sequence was empty.", 39);
    best = l->at[0];
    key = sort_key(r, best, by, exact);
    for (size_t i = 1; i < l->n; i++) {
        struct val k = sort_key(r, l->at[i], by, exact);

        if (val_compare(&r->c, k, key) * sign > 0) {
            best = l->at[i];
            key = k;
        }
    }
    return best;
}

static struct val
f_min(struct render *r, struct val v, const struct rnd_args *a)
{
    return extreme(r, v, a, "min", -1);
}

static struct val
f_max(struct render *r, struct val v, const struct rnd_args *a)
{
    return extreme(r, v, a, "max", 1);
}

static struct val
f_sum(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val by = rnd_arg(r, a, 0, "attribute", val_none);
    struct val sum = rnd_arg(r, a, 1, "start", val_int(0));
    struct val_list *l = val_iter(&r->c, v);

    rnd_args_end(r, "sum", a, 0, 2, "attribute,start");
    for (size_t i = 0; i < l->n; i++)
        sum = rnd_binary(r, OP_ADD, sum,
            by.type == VAL_NONE ? l->at[i] : attribute(r, l->at[i], by, val_none));
    return sum;
}

/* ---- select, map --------------------------------------------------------------------- */

static struct rnd_args
args_from(const struct rnd_args *a, size_t from)
{
    struct rnd_args rest = *a;

    rest.n = a->n > from ? a->n - from : 0;
    rest.at = rest.n > 0 ? a->at + from : NULL;
    return rest;
}

/* The elements for which the test holds (want 1) or does not (want 0). Without a test, an
 * element's truth value decides. A false v has no elements. by: the first argument names
 * an attribute, which is tested instead of the element. */
static struct val
chosen(struct render *r, struct val v, const struct rnd_args *a, int by, int want)
{
    struct val_list *l = val_iter(&r->c, val_true(v) ? v : val_undef);
    struct val out = val_list(&r->c, VAL_LIST, l->n);
    rnd_test_fn *test = NULL;
    struct rnd_args rest = args_from(a, (size_t)by + 1);

    if (by && a->n == 0)
        val_fail(&r->c, "Missing parameter for attribute name");
    if (a->n > (size_t)by) {
        struct val name = a->at[by];

        test = name.type == VAL_STR ? rnd_test(name.s->p, name.s->n) : NULL;
        if (test == NULL)
            val_fail(&r->c, "No test named '%.*s'.",
                name.type == VAL_STR ? (int)name.s->n : 0,
                name.type == VAL_STR ? name.s->p : "");
    }
    for (size_t i = 0; i < l->n; i++) {
        struct val e = by ? attribute(r, l->at[i], a->at[0], val_none) : l->at[i];

        if ((test != NULL ? test(r, e, &rest) : val_true(e)) == want)
            out.l->at[out.l->n++] = l->at[i];
    }
    out.l->lazy = 1;
    return out;
}

static struct val
f_select(struct render *r, struct val v, const struct rnd_args *a)
{
    return chosen(r, v, a, 0, 1);
}

static struct val
f_reject(struct render *r, struct val v, const struct rnd_args *a)
{
    return chosen(r, v, a, 0, 0);
}

static struct val
f_selectattr(struct render *r, struct val v, const struct rnd_args *a)
{
    return chosen(r, v, a, 1, 1);
}

static struct val
f_rejectattr(struct render *r, struct val v, const struct rnd_args *a)
{
    return chosen(r, v, a, 1, 0);
}

static struct val
f_map(struct render *r, struct val v, const struct rnd_args *a)
{
    struct val_list *l = val_iter(&r->c, val_true(v) ? v : val_undef);
    struct val out = val_list(&r->c, VAL_LIST, l->n), by, fallback;
    struct rnd_args rest = args_from(a, 1);

    out.l->lazy = 1;
    if (a->n == 0) {
        rnd_args_end(r, "map", a, 1, 0, "attribute,default");
        by = rnd_arg(r, a, 0, "attribute", val_none);
        fallback = rnd_arg(r, a, 1, "default", val_none);
        for (size_t i = 0; i < l->n; i++)
            out.l->at[out.l->n++] = attribute(r, l->at[i], by, fallback);
        return out;
    }
    if (a->at[0].type != VAL_STR || rnd_filter(a->at[0].s->p, a->at[0].s->n) == NULL)
        val_fail(&r->c, "No filter named '%.*s'.",
            a->at[0].type == VAL_STR ? (int)a->at[0].s->n : 0,
            a->at[0].type == VAL_STR ? a->at[0].s->p : "");
    for (size_t i = 0; i < l->n; i++)
        out.l->at[out.l->n++] =
            rnd_filter(a->at[0].s->p, a->at[0].s->n)(r, l->at[i], &rest);
    return out;
}

rnd_filter_fn *
rnd_filter(const char *name, size_t n)
{
    static const struct {
        const char *name;
        rnd_filter_fn *fn;
    } all[] = { { "abs", f_abs }, { "attr", rnd_attr_filter }, { "batch", rnd_batch },
        { "center", rnd_center }, { "format", f_format }, { "groupby", f_groupby },
        { "slice", rnd_slice }, { "truncate", rnd_truncate },
        { "wordcount", rnd_wordcount }, { "capitalize", f_capitalize },
        { "count", f_length }, { "d", f_default }, { "default", f_default },
        { "dictsort", f_dictsort }, { "e", f_escape }, { "escape", f_escape },
        { "first", f_first }, { "float", f_float }, { "indent", f_indent },
        { "int", f_int }, { "items", f_items }, { "join", f_join }, { "last", f_last },
        { "length", f_length }, { "list", f_list }, { "lower", f_lower },
        { "map", f_map }, { "max", f_max }, { "min", f_min }, { "reject", f_reject },
        { "rejectattr", f_rejectattr }, { "replace", f_replace }, { "reverse", f_reverse },
        { "round", f_round }, { "safe", f_safe }, { "select", f_select },
        { "selectattr", f_selectattr }, { "sort", f_sort }, { "string", f_string },
        { "sum", f_sum }, { "title", f_title }, { "tojson", f_tojson },
        { "trim", f_trim }, { "unique", f_unique }, { "upper", f_upper } };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (val_is_name(all[i].name, name, n))
            return all[i].fn;
    return NULL;
}
