/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Formatting of values: the operator % of strings, and the specifications of
 * str.format(). */
#include "config.h"

#include "chat/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_DIGITS 300   /* after the point */
#define MOST_WIDTH  65536 /* of one value, in characters */

struct spec {
    uint32_t fill;
    char align; /* one of <>^=, or 0: the default of the value's type */
    char sign;  /* one of +-, a blank, or 0 */
    int alt;
    char group;               /* , or _ between groups of digits, or 0 */
    int64_t width, precision; /* precision -1: none */
    char type;
};

static int
is_one_of(const char *set, char c)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* ---- writing ------------------------------------------------------------------------- */

/* Add s, padded to the width; = puts the fill after the first `sign` bytes. */
static void
pad(struct render *r, struct val_buf *b, const struct val_str *s, size_t sign,
    const struct spec *p, char align)
{
    int64_t have = (int64_t)val_chars(s), more = p->width > have ? p->width - have : 0,
            left;
    char fill[4];
    size_t n = val_code_put(p->fill, fill);

    align = p->align != '\0' ? p->align : align;
    left = align == '<' || align == '=' ? 0 : align == '^' ? more / 2 : more;
    val_steps(&r->c, (uint64_t)more);
    for (int64_t i = 0; i < left; i++)
        val_add(&r->c, b, fill, n, 0);
    if (align == '=') {
        val_add_str(&r->c, b, val_sub(&r->c, s, 0, sign).s);
        for (int64_t i = 0; i < more; i++)
            val_add(&r->c, b, fill, n, 0);
        val_add_str(&r->c, b, val_sub(&r->c, s, sign, s->n - sign).s);
        return;
    }
    val_add_str(&r->c, b, s);
    for (int64_t i = left; i < more; i++)
        val_add(&r->c, b, fill, n, 0);
}

/* Add a number: sign, prefix, and digits with groups. */
static void
number(struct render *r, struct val_buf *b, int negative, const char *prefix,
    const char *digits, const struct spec *p)
{
    struct val_buf t = { 0 };
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), by = 3, sign;

    if (strpbrk(digits, ".n%") != NULL || is_one_of("eEgGfF%", p->type) || p->type == '\0')
        whole = strspn(digits, "0123456789");
    else if (is_one_of("xXob", p->type))
        by = 4;
    if (negative || p->sign == '+' || p->sign == ' ')
        val_add(&r->c, &t, negative ? "-" : &p->sign, 1, 0);
    val_add_text(&r->c, &t, prefix);
    sign = t.n;
    for (size_t i = 0; i < whole; i++) {
        if (p->group != '\0' && i > 0 && (whole - i) % by == 0)
            val_add(&r->c, &t, &p->group, 1, 0);
        val_add(&r->c, &t, digits + i, 1, 0);
    }
    val_add_text(&r->c, &t, digits + whole);
    pad(r, b, val_built(&r->c, &t).s, sign, p, '>');
}

static void
add_int(struct render *r, struct val_buf *b, struct val v, const struct spec *p)
{
    int64_t i = v.type == VAL_BIG ? 0 : rnd_int(v);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = is_one_of("xX", p->type) ? 16
        : p->type == 'o'                     ? 8
        : p->type == 'b'                     ? 2
                                             : 10;
    const char *set = p->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    const char prefix[3] = { '0', p->type, '\0' };
    char text[72], *at = text + sizeof(text) - 1;

    if (v.type == VAL_BIG) {
        char *digits = val_get(&r->c, v.s->n + 1);
        int negative = v.s->p[0] == '-';

        if (base != 10)
            val_fail(&r->c, "an integer beyond 64 bits");
        memcpy(digits, v.s->p + negative, v.s->n - (size_t)negative);
        digits[v.s->n - (size_t)negative] = '\0';
        number(r, b, negative, "", digits, p);
        return;
    }
    *at = '\0';
    do {
        *--at = set[u % base];
        u /= base;
    } while (u > 0);
    number(r, b, i < 0, p->alt && base != 10 ? prefix : "", at, p);
}

static void
add_float(struct render *r, struct val_buf *b, double f, const struct spec *p)
{
    char form[8] = "%.*", *text, whole[VAL_FLOAT_BYTES];
    int precision = p->precision < 0 ? 6 : (int)p->precision;
    size_t n = 0;

    if (precision > MOST_DIGITS)
        val_fail(&r->c, "more than %d digits", MOST_DIGITS);
    if (p->alt)
        val_fail(&r->c, "# in the format of a float is not supported");
    text = val_get(&r->c, 400 + MOST_DIGITS);
    if (p->type == '\0' && p->precision < 0) {
        val_float_text(fabs(f), whole);
        number(r, b, signbit(f) && !isnan(f), "", whole, p);
        return;
    }
    form[3] = p->type == '\0' ? 'g' : p->type == '%' ? 'f' : p->type;
    n = (size_t)snprintf(text, 400 + MOST_DIGITS, form, precision,
        fabs(p->type == '%' ? f * 100 : f));
    if (p->type == '\0' && isfinite(f) && strpbrk(text, ".e") == NULL)
        memcpy(text + n, ".0", 3);
    if (p->type == '%')
        memcpy(text + n, "%", 2);
    number(r, b, signbit(f) && !isnan(f), "", text, p);
}

static void
add_text(struct render *r, struct val_buf *b, const struct val_str *s,
    const struct spec *p, char align)
{
    if (p->precision >= 0)
        s = val_sub(&r->c, s, 0, val_char_at(s, (size_t)p->precision)).s;
    pad(r, b, s, 0, p, align);
}

/* ---- str.format ------------------------------------------------------------------------ */

static int64_t
digits_of(struct render *r, const struct val_str *s, size_t *at)
{
    int64_t n = 0;

    for (; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; (*at)++) {
        n = n * 10 + (s->p[*at] - '0');
        if (n > MOST_WIDTH)
            val_fail(&r->c, "Too many decimal digits in format string");
    }
    return n;
}

static struct spec
spec_read(struct render *r, const struct val_str *s)
{
    struct spec p = { .fill = ' ', .precision = -1 };
    size_t at = 0, n = 0;
    int given = 0;

    if (s->n > 0)
        p.fill = val_code(s->p, s->n, &n);
    if (s->n > n && is_one_of("<>^=", s->p[n])) {
        given = 1;
        p.align = s->p[n];
        at = n + 1;
    } else {
        p.fill = ' ';
        if (s->n > 0 && is_one_of("<>^=", s->p[0]))
            p.align = s->p[at++];
    }
    if (at < s->n && is_one_of("+- ", s->p[at]))
        p.sign = s->p[at++];
    if (at < s->n && s->p[at] == '#') {
        p.alt = 1;
        at++;
    }
    if (at < s->n && s->p[at] == '0') {
        p.fill = given ? p.fill : '0';
        p.align = p.align == '\0' ? '0' : p.align;
        at++;
    }
    p.width = digits_of(r, s, &at);
    if (at < s->n && is_one_of(",_", s->p[at]))
        p.group = s->p[at++];
    if (at < s->n && s->p[at] == '.') {
        at++;
        p.precision = digits_of(r, s, &at);
    }
    if (at < s->n)
        p.type = s->p[at++];
    if (p.group == ',' && is_one_of("xXob", p.type))
        val_fail(&r->c, "Cannot specify ',' with '%c'.", p.type);
    if (at < s->n || (p.group != '\0' && p.fill == '0'))
        val_fail(&r->c, "Invalid format specifier");
    return p;
}

void
rnd_add_format(struct render *r, struct val_buf *b, struct val v, const struct val_str *s)
{
    struct spec p;
    int is_int = rnd_is_int(v) || v.type == VAL_BIG;

    if (s->n == 0) {
        val_add_value(&r->c, b, v);
        return;
    }
    p = spec_read(r, s);
    if (v.type == VAL_STR && is_one_of("s", p.type == '\0' ? 's' : p.type)) {
        if (p.align == '=' || p.sign != '\0' || p.alt || p.group != '\0')
            val_fail(&r->c, "Invalid format specifier for object of type 'str'");
        p.align = p.align == '0' ? '<' : p.align;
        add_text(r, b, v.s, &p, '<');
        return;
    }
    p.align = p.align == '0' ? '=' : p.align;
    if (is_int && (p.type == '\0' || is_one_of("dxXob", p.type))) {
        if (p.precision >= 0)
            val_fail(&r->c, "Precision not allowed in integer format specifier");
        p.type = p.type == '\0' ? 'd' : p.type;
        add_int(r, b, v, &p);
    } else if (val_is_number(v) && (p.type == '\0' || is_one_of("eEfFgG%", p.type))) {
        add_float(r, b, val_number(&r->c, v), &p);
    } else if (v.type == VAL_STR || val_is_number(v)) {
        val_fail(&r->c, "Unknown format code '%c' for object of type '%s'", p.type,
            val_type_name(v));
    } else {
        val_fail(&r->c, "unsupported format string passed to %s.__format__",
            val_type_name(v));
    }
}

/* ---- % ------------------------------------------------------------------------------- */

struct percent {
    const struct val_str *s;
    size_t at;
    struct val args;
    size_t next; /* index of the next element if args is a tuple */
};

static struct val
percent_arg(struct render *r, struct percent *p)
{
    size_t n = p->args.type == VAL_TUPLE ? p->args.l->n : 1;

    if (p->next >= n)
        val_fail(&r->c, "not enough arguments for format string");
    p->next++;
    return p->args.type == VAL_TUPLE ? p->args.l->at[p->next - 1] : p->args;
}

static int64_t
percent_number(struct render *r, struct percent *p)
{
    struct val v;

    if (p->at == p->s->n || p->s->p[p->at] != '*')
        return digits_of(r, p->s, &p->at);
    p->at++;
    v = percent_arg(r, p);
    if (v.type != VAL_INT || v.i < 0 || v.i > MOST_WIDTH)
        val_fail(&r->c, "* wants int");
    return v.i;
}

/* The value of %(key)s, of the dict p->args. */
static struct val
percent_key(struct render *r, struct percent *p)
{
    const char *from = p->s->p + p->at + 1;
    const char *end = memchr(from, ')', p->s->n - p->at - 1);
    const struct val *v;

    if (p->args.type != VAL_DICT)
        val_fail(&r->c, "format requires a mapping");
    if (end == NULL)
        val_fail(&r->c, "incomplete format key");
    v = val_find(&r->c, p->args.d, val_str(&r->c, from, (size_t)(end - from), 0));
    if (v == NULL)
        val_fail(&r->c, "'%.*s'", end - from < 64 ? (int)(end - from) : 64, from);
    p->at += (size_t)(end - from) + 2;
    return *v;
}

static void
percent_value(struct render *r, struct val_buf *b, struct val v, struct spec *p)
{
    struct val_buf text = { 0 };
    char ch[4];

    switch (p->type) {
    case 's':
        p->fill = ' ';
        add_text(r, b, val_to_str(&r->c, v).s, p, '>');
        return;
    case 'r':
        p->fill = ' ';
        val_add_repr(&r->c, &text, v);
        add_text(r, b, val_built(&r->c, &text).s, p, '>');
        return;
    case 'c':
        if (v.type == VAL_INT && v.i >= 0 && v.i < 0xd800)
            val_add(&r->c, &text, ch, val_code_put((uint32_t)v.i, ch), 0);
        else if (v.type == VAL_STR && val_chars(v.s) == 1)
            val_add_str(&r->c, &text, v.s);
        else
            val_fail(&r->c, "%%c requires int or char");
        p->fill = ' ';
        p->precision = -1;
        add_text(r, b, val_built(&r->c, &text).s, p, '>');
        return;
    case 'd':
    case 'i':
    case 'u':
        p->type = 'd';
        if (v.type == VAL_FLOAT && fabs(v.f) < 9e18)
            v = val_int((int64_t)v.f);
        break;
    case 'o':
    case 'x':
    case 'X':
        break;
    default:
        if (v.type == VAL_UNDEF || !val_is_number(v))
            val_fail(&r->c, "must be real number, not %s", val_type_name(v));
        add_float(r, b, val_number(&r->c, v), p);
        return;
    }
    if (!rnd_is_int(v) && v.type != VAL_BIG)
        val_fail(&r->c, "%%%c format: a real number is required, not %s", p->type,
            val_type_name(v));
    if (p->precision > 0)
        val_fail(&r->c, "digits of an integer are not supported");
    add_int(r, b, v, p);
}

static void
percent_one(struct render *r, struct val_buf *b, struct percent *p)
{
    struct spec f = { .fill = ' ', .precision = -1 };
    struct val v = val_undef;
    int keyed = 0, zero = 0;

    if (p->at < p->s->n && p->s->p[p->at] == '(') {
        v = percent_key(r, p);
        keyed = 1;
    }
    for (; p->at < p->s->n && is_one_of("#0- +", p->s->p[p->at]); p->at++) {
        char c = p->s->p[p->at];

        f.alt |= c == '#';
        zero |= c == '0';
        if (c == '-')
            f.align = '<';
        if (c == '+' || (c == ' ' && f.sign == '\0'))
            f.sign = c;
    }
    if (zero && f.align == '\0') {
        f.fill = '0';
        f.align = '=';
    }
    f.width = percent_number(r, p);
    if (p->at < p->s->n && p->s->p[p->at] == '.') {
        p->at++;
        f.precision = percent_number(r, p);
    }
    while (p->at < p->s->n && is_one_of("hlL", p->s->p[p->at]))
        p->at++;
    if (p->at == p->s->n)
        val_fail(&r->c, "incomplete format");
    f.type = p->s->p[p->at++];
    if (f.type == '%') {
        val_add(&r->c, b, "%", 1, 0);
        return;
    }
    if (!is_one_of("srcdiuoxXeEfFgG", f.type))
        val_fail(&r->c, "unsupported format character '%c'", f.type);
    if (is_one_of("src", f.type) && f.align == '=')
        f.align = '>';
    percent_value(r, b, keyed ? v : percent_arg(r, p), &f);
}

struct val
rnd_percent(struct render *r, const struct val_str *s, struct val args)
{
    struct percent p = { .s = s, .args = args };
    struct val_buf b = { 0 };

    while (p.at < s->n) {
        const char *e = memchr(s->p + p.at, '%', s->n - p.at);
        size_t n = e != NULL ? (size_t)(e - s->p) - p.at : s->n - p.at;

        val_add_str(&r->c, &b, val_sub(&r->c, s, p.at, n).s);
        p.at += n + (e != NULL);
        if (e != NULL)
            percent_one(r, &b, &p);
    }
    if (args.type != VAL_DICT && args.type != VAL_LIST &&
        p.next < (args.type == VAL_TUPLE ? args.l->n : 1))
        val_fail(&r->c, "not all arguments converted during string formatting");
    return val_built(&r->c, &b);
}

struct val
rnd_padded(struct render *r, const struct val_str *s, int64_t width, uint32_t fill,
    char align)
{
    struct spec p = { .fill = fill, .width = width };
    struct val_buf b = { 0 };
    int64_t n = (int64_t)val_chars(s);

    /* str.center() puts the odd blank on the left if the width is odd */
    if (align == '^' && width > n && (width - n) % 2 != 0 && width % 2 != 0) {
        s = rnd_padded(r, s, n + 1, fill, '>').s;
    }
    pad(r, &b, s, 0, &p, align);
    return val_built(&r->c, &b);
}
