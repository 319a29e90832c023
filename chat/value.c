/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

const struct val val_none = { .type = VAL_NONE };
const struct val val_undef = { .type = VAL_UNDEF };

void
val_fail(struct val_ctx *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(c->err, VAL_ERR, fmt, ap);
    va_end(ap);
    longjmp(c->fail, 1);
}

void *
val_get(struct val_ctx *c, size_t bytes)
{
    void *p = arn_get(c->mem, bytes);

    if (p == NULL)
        val_fail(c, "the template takes too much memory");
    return p;
}

void *
val_array(struct val_ctx *c, size_t n, size_t bytes)
{
    if (n > SIZE_MAX / 2 / bytes)
        val_fail(c, "the template takes too much memory");
    return val_get(c, n * bytes);
}

/* ---- making ------------------------------------------------------------------- */

struct val
val_bool(int b)
{
    return (struct val){ .type = VAL_BOOL, .b = b != 0 };
}

struct val
val_int(int64_t i)
{
    return (struct val){ .type = VAL_INT, .i = i };
}

struct val
val_float(double f)
{
    return (struct val){ .type = VAL_FLOAT, .f = f };
}

struct val
val_str(struct val_ctx *c, const char *p, size_t n, int marked)
{
    struct val_str *s = val_get(c, sizeof(*s));

    *s = (struct val_str){ .n = n, .p = p, .marked = marked };
    return (struct val){ .type = VAL_STR, .s = s };
}

struct val
val_text(struct val_ctx *c, const char *text)
{
    return val_str(c, text, strlen(text), 0);
}

struct val
val_sub(struct val_ctx *c, const struct val_str *s, size_t at, size_t n)
{
    struct val_str *r = val_get(c, sizeof(*r));

    *r = (struct val_str){ .n = n,
        .p = s->p + at,
        .marked = s->marked,
        .is_safe = s->is_safe,
        .mark = s->mark != NULL ? s->mark + at : NULL };
    return (struct val){ .type = VAL_STR, .s = r };
}

struct val
val_undefined(struct val_ctx *c, const char *name, size_t n)
{
    struct val v = val_str(c, name, n, 0);

    v.type = VAL_UNDEF;
    return v;
}

struct val
val_list(struct val_ctx *c, enum val_type type, size_t n)
{
    struct val_list *l = val_get(c, sizeof(*l));

    l->at = n > 0 ? val_array(c, n, sizeof(struct val)) : NULL;
    return (struct val){ .type = type, .l = l };
}

void
val_push(struct val_ctx *c, struct val_list *l, size_t *room, struct val v)
{
    if (l->n == *room) {
        struct val *was = l->at;

        *room = *room > 0 ? 2 * *room : 8;
        l->at = val_array(c, *room, sizeof(*l->at));
        if (l->n > 0)
            memcpy(l->at, was, l->n * sizeof(*was));
    }
    l->at[l->n++] = v;
}

void
val_reverse(struct val_list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct val t = l->at[i];

        l->at[i] = l->at[l->n - 1 - i];
        l->at[l->n - 1 - i] = t;
    }
}

struct val
val_dict(struct val_ctx *c)
{
    return (struct val){ .type = VAL_DICT, .d = val_get(c, sizeof(struct val_dict)) };
}

/* ---- dictionaries --------------------------------------------------------------- */

#define DICT_FEW 8 /* most pairs that are searched without an index */

static uint32_t
hash_bytes(uint32_t h, const void *p, size_t n)
{
    const unsigned char *b = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 16777619u;
    return h;
}

/* Equal values have equal hashes: 1, 1.0 and true are equal. */
static uint32_t
val_hash(struct val_ctx *c, struct val key)
{
    uint32_t h = 2166136261u;
    double f;

    switch (key.type) {
    case VAL_STR:
    case VAL_BIG:
        val_steps(c, key.s->n / 64);
        return hash_bytes(h, key.s->p, key.s->n);
    case VAL_BOOL:
    case VAL_INT:
    case VAL_FLOAT:
        f = val_number(c, key);
        f = f == 0 ? 0 : f;
        return hash_bytes(h, &f, sizeof(f));
    case VAL_TUPLE:
        for (size_t i = 0; i < key.l->n; i++)
            h = h * 31 + val_hash(c, key.l->at[i]);
        return h;
    case VAL_LIST:
    case VAL_DICT:
        val_fail(c, "unhashable type: '%s'", val_type_name(key));
    default:
        return h + (uint32_t)key.type;
    }
}

static void
dict_index(struct val_ctx *c, struct val_dict *d)
{
    d->n_index = d->room * 2;
    d->index = val_array(c, d->n_index, sizeof(*d->index));
    for (size_t i = 0; i < d->n; i++) {
        size_t k = d->at[i].hash & (d->n_index - 1);

        while (d->index[k] != 0)
            k = (k + 1) & (d->n_index - 1);
        d->index[k] = (uint32_t)i + 1;
    }
}

static struct val_pair *
dict_find(struct val_ctx *c, const struct val_dict *d, struct val key, uint32_t hash)
{
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++)
            if (d->at[i].hash == hash && val_equal(c, d->at[i].key, key))
                return &d->at[i];
        return NULL;
    }
    for (size_t k = hash & (d->n_index - 1); d->index[k] != 0;
         k = (k + 1) & (d->n_index - 1)) {
        struct val_pair *p = &d->at[d->index[k] - 1];

        val_steps(c, 1);
        if (p->hash == hash && val_equal(c, p->key, key))
            return p;
    }
    return NULL;
}

const struct val *
val_find(struct val_ctx *c, const struct val_dict *d, struct val key)
{
    struct val_pair *p = dict_find(c, d, key, val_hash(c, key));

    return p != NULL ? &p->value : NULL;
}

void
val_put(struct val_ctx *c, struct val_dict *d, struct val key, struct val value)
{
    uint32_t hash = val_hash(c, key);
    struct val_pair *p = dict_find(c, d, key, hash), *was = d->at;
    size_t k;

    if (p != NULL) {
        p->value = value;
        return;
    }
    if (d->n == UINT32_MAX / 4)
        val_fail(c, "a dict has too many keys");
    if (d->n == d->room) {
        d->room = d->room > 0 ? 2 * d->room : 4;
        d->at = val_array(c, d->room, sizeof(*d->at));
        if (d->n > 0)
            memcpy(d->at, was, d->n * sizeof(*d->at));
        if (d->room > DICT_FEW)
            dict_index(c, d);
    }
    d->at[d->n++] = (struct val_pair){ key, value, hash };
    if (d->index == NULL)
        return;
    k = hash & (d->n_index - 1);
    while (d->index[k] != 0)
        k = (k + 1) & (d->n_index - 1);
    d->index[k] = (uint32_t)d->n;
}

/* ---- asking --------------------------------------------------------------------- */

const char *
val_type_name(struct val v)
{
    static const char *const names[VAL__N] = { "Undefined", "NoneType", "bool", "int",
        "int", "float", "str", "list", "tuple", "dict", "Namespace", "LoopContext",
        "Macro", "function", "method" };

    return v.type == VAL_LIST && v.l->lazy ? "generator" : names[v.type];
}

int
val_true(struct val v)
{
    switch (v.type) {
    case VAL_UNDEF:
    case VAL_NONE:
        return 0;
    case VAL_BOOL:
        return v.b;
    case VAL_INT:
        return v.i != 0;
    case VAL_FLOAT:
        return v.f != 0;
    case VAL_STR:
        return v.s->n > 0;
    case VAL_LIST:
    case VAL_TUPLE:
        return v.l->n > 0 || v.l->lazy;
    case VAL_DICT:
        return v.d->n > 0;
    default:
        return 1;
    }
}

int
val_is_number(struct val v)
{
    return v.type == VAL_BOOL || v.type == VAL_INT || v.type == VAL_FLOAT ||
        v.type == VAL_BIG;
}

double
val_number(struct val_ctx *c, struct val v)
{
    char text[400];

    switch (v.type) {
    case VAL_BOOL:
        return v.b;
    case VAL_INT:
        return (double)v.i;
    case VAL_FLOAT:
        return v.f;
    case VAL_BIG:
        if (v.s->n >= sizeof(text))
            val_fail(c, "int too large to convert to float");
        memcpy(text, v.s->p, v.s->n);
        text[v.s->n] = '\0';
        return strtod(text, NULL);
    default:
        val_fail(c, "must be real number, not %s", val_type_name(v));
    }
}

static int
str_compare(struct val_ctx *c, const struct val_str *a, const struct val_str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int d;

    val_steps(c, n / 64);
    /* the order of UTF-8 bytes is that of the code points */
    d = n > 0 ? memcmp(a->p, b->p, n) : 0;
    return d != 0 ? d : (a->n > b->n) - (a->n < b->n);
}

static int
number_compare(struct val_ctx *c, struct val a, struct val b)
{
    double x, y;

    if (a.type == VAL_BIG && b.type == VAL_BIG) {
        int na = a.s->p[0] == '-', nb = b.s->p[0] == '-', d;

        if (na != nb)
            return nb - na;
        d = a.s->n != b.s->n ? (a.s->n > b.s->n) - (a.s->n < b.s->n)
                             : str_compare(c, a.s, b.s);
        return na ? -d : d;
    }
    if (a.type == VAL_INT && b.type == VAL_INT)
        return (a.i > b.i) - (a.i < b.i);
    x = val_number(c, a);
    y = val_number(c, b);
    return (x > y) - (x < y);
}

static int
dict_equal(struct val_ctx *c, const struct val_dict *a, const struct val_dict *b)
{
    if (a->n != b->n)
        return 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct val *v = val_find(c, b, a->at[i].key);

        if (v == NULL || !val_equal(c, a->at[i].value, *v))
            return 0;
    }
    return 1;
}

int
val_equal(struct val_ctx *c, struct val a, struct val b)
{
    val_steps(c, 1);
    if (val_is_number(a) && val_is_number(b))
        return number_compare(c, a, b) == 0;
    if (a.type != b.type)
        return 0;
    switch (a.type) {
    case VAL_UNDEF:
    case VAL_NONE:
        return 1;
    case VAL_STR:
        return a.s->n == b.s->n && str_compare(c, a.s, b.s) == 0;
    case VAL_LIST:
    case VAL_TUPLE:
        if (a.l == b.l)
            return 1;
        if (a.l->n != b.l->n || a.l->lazy || b.l->lazy)
            return 0;
        for (size_t i = 0; i < a.l->n; i++)
            if (!val_equal(c, a.l->at[i], b.l->at[i]))
                return 0;
        return 1;
    case VAL_DICT:
        return a.d == b.d || dict_equal(c, a.d, b.d);
    default:
        return a.d == b.d;
    }
}

int
val_compare(struct val_ctx *c, struct val a, struct val b)
{
    val_steps(c, 1);
    if (val_is_number(a) && val_is_number(b))
        return number_compare(c, a, b);
    if (a.type == VAL_STR && b.type == VAL_STR)
        return str_compare(c, a.s, b.s);
    if ((a.type == VAL_LIST || a.type == VAL_TUPLE) && a.type == b.type) {
        size_t n = a.l->n < b.l->n ? a.l->n : b.l->n;

        for (size_t i = 0; i < n; i++)
            if (!val_equal(c, a.l->at[i], b.l->at[i]))
                return val_compare(c, a.l->at[i], b.l->at[i]);
        return (a.l->n > b.l->n) - (a.l->n < b.l->n);
    }
    if (a.type == VAL_UNDEF || b.type == VAL_UNDEF) {
        const struct val_str *s = a.type == VAL_UNDEF ? a.s : b.s;

        val_fail(c, "'%.*s' is undefined", s != NULL ? (int)s->n : 0, s != NULL ? s->p : "");
    }
    val_fail(c, "'<' not supported between instances of '%s' and '%s'", val_type_name(a),
        val_type_name(b));
}

int
val_contains(struct val_ctx *c, struct val where, struct val what)
{
    struct val_list *l;

    if (where.type == VAL_STR) {
        if (what.type != VAL_STR)
            val_fail(c, "'in <string>' requires string as left operand, not %s",
                val_type_name(what));
        val_steps(c, where.s->n / 64);
        return what.s->n == 0 ||
            (what.s->n <= where.s->n &&
                memmem(where.s->p, where.s->n, what.s->p, what.s->n));
    }
    if (where.type == VAL_DICT)
        return val_find(c, where.d, what) != NULL;
    if (where.type != VAL_LIST && where.type != VAL_TUPLE && where.type != VAL_UNDEF)
        val_fail(c, "argument of type '%s' is not iterable", val_type_name(where));
    l = val_iter(c, where);
    for (size_t i = 0; i < l->n; i++)
        if (val_equal(c, l->at[i], what))
            return 1;
    return 0;
}

struct val_list *
val_iter(struct val_ctx *c, struct val v)
{
    struct val r;

    switch (v.type) {
    case VAL_UNDEF:
        return val_list(c, VAL_LIST, 0).l;
    case VAL_LIST:
    case VAL_TUPLE:
        return v.l;
    case VAL_DICT:
        r = val_list(c, VAL_LIST, v.d->n);
        for (size_t i = 0; i < v.d->n; i++)
            r.l->at[r.l->n++] = v.d->at[i].key;
        val_steps(c, v.d->n);
        return r.l;
    case VAL_STR:
        r = val_list(c, VAL_LIST, val_chars(v.s));
        for (size_t i = 0; i < v.s->n;) {
            size_t n;

            (void)val_code(v.s->p + i, v.s->n - i, &n);
            r.l->at[r.l->n++] = val_sub(c, v.s, i, n);
            i += n;
        }
        val_steps(c, v.s->n);
        return r.l;
    default:
        val_fail(c, "'%s' object is not iterable", val_type_name(v));
    }
}

size_t
val_chars(const struct val_str *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return n;
}

size_t
val_char_at(const struct val_str *s, size_t i)
{
    size_t at = 0, n;

    for (; i > 0 && at < s->n; i--, at += n)
        (void)val_code(s->p + at, s->n - at, &n);
    return at;
}

int
val_same(const struct val_str *s, const char *text)
{
    size_t n = strlen(text);

    return s->n == n && memcmp(s->p, text, n) == 0;
}

int
val_marked(const struct val_str *s)
{
    if (s->n == 0)
        return 0;
    return s->mark == NULL ? s->marked : memchr(s->mark, 1, s->n) != NULL;
}

/* ---- building text ----------------------------------------------------------------- */

void
val_room(struct val_ctx *c, struct val_buf *b, size_t n)
{
    size_t room = b->room;
    char *p;
    uint8_t *mark;

    if (b->limit > 0 && n > b->limit - b->n)
        val_fail(c, "the rendered text is longer than %zu bytes", b->limit);
    if (n <= b->room - b->n)
        return;
    if (n > SIZE_MAX / 4 || b->n > SIZE_MAX / 4)
        val_fail(c, "the template takes too much memory");
    while (room < b->n + n)
        room = room > 0 ? 2 * room : 64;
    if (b->limit > 0 && room > b->limit)
        room = b->limit;
    p = val_get(c, room);
    mark = val_get(c, room);
    if (b->n > 0) {
        memcpy(p, b->p, b->n);
        memcpy(mark, b->mark, b->n);
    }
    b->p = p;
    b->mark = mark;
    b->room = room;
}

void
val_add(struct val_ctx *c, struct val_buf *b, const char *p, size_t n, int marked)
{
    if (n == 0)
        return;
    val_steps(c, n / 64);
    if (n > b->room - b->n)
        val_room(c, b, n);
    memcpy(b->p + b->n, p, n);
    memset(b->mark + b->n, marked != 0, n);
    b->n += n;
}

void
val_add_text(struct val_ctx *c, struct val_buf *b, const char *text)
{
    val_add(c, b, text, strlen(text), 0);
}

void
val_add_str(struct val_ctx *c, struct val_buf *b, const struct val_str *s)
{
    size_t at = b->n;

    val_add(c, b, s->p, s->n, s->marked);
    if (s->mark != NULL && s->n > 0)
        memcpy(b->mark + at, s->mark, s->n);
}

struct val
val_built(struct val_ctx *c, const struct val_buf *b)
{
    struct val_str *s = val_get(c, sizeof(*s));

    *s = (struct val_str){ .n = b->n, .p = b->n > 0 ? b->p : "", .mark = b->mark };
    return (struct val){ .type = VAL_STR, .s = s };
}

/* The shortest digits that give the same double, as repr() writes them. */
void
val_float_text(double f, char text[VAL_FLOAT_BYTES])
{
    char e[VAL_FLOAT_BYTES], digits[VAL_FLOAT_BYTES], *x;
    int exp10, n = 0, k = 0;

    if (isnan(f) || isinf(f)) {
        (void)snprintf(text, VAL_FLOAT_BYTES, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    for (int p = 0; p < 17; p++) {
        (void)snprintf(e, sizeof(e), "%.*e", p, f);
        if (strtod(e, NULL) == f)
            break;
    }
    x = strchr(e, 'e');
    exp10 = atoi(x + 1);
    for (const char *q = e; q < x; q++)
        if (*q >= '0' && *q <= '9')
            digits[n++] = *q;
    if (e[0] == '-')
        text[k++] = '-';
    if (exp10 < -4 || exp10 >= 16) {
        text[k++] = digits[0];
        if (n > 1)
            text[k++] = '.';
        for (int i = 1; i < n; i++)
            text[k++] = digits[i];
        (void)snprintf(text + k, (size_t)(VAL_FLOAT_BYTES - k), "e%c%02d",
            exp10 < 0 ? '-' : '+', abs(exp10));
        return;
    }
    if (exp10 < 0) {
        text[k++] = '0';
        text[k++] = '.';
        for (int i = -1; i > exp10; i--)
            text[k++] = '0';
    }
    for (int i = 0; i < n || i <= exp10; i++) {
        text[k++] = i < n ? digits[i] : '0';
        if (exp10 >= 0 && i == exp10) {
            text[k++] = '.';
            if (i + 1 >= n)
                text[k++] = '0';
        }
    }
    text[k] = '\0';
}

/* The quote of repr(): a double one if the text has single but no double ones. */
static char
repr_quote(const struct val_str *s)
{
    return memchr(s->p, '\'', s->n) != NULL && memchr(s->p, '"', s->n) == NULL ? '"' : '\'';
}

/* Does repr() print the character unescaped? It escapes controls, format characters,
 * surrogates, private use and separators. */
static int
repr_prints(uint32_t code)
{
    static const uint32_t not [][2] = { { 0, 0x1f }, { 0x7f, 0xa0 }, { 0xad, 0xad },
        { 0x378, 0x379 }, { 0x600, 0x605 }, { 0x61c, 0x61c }, { 0x6dd, 0x6dd },
        { 0x70f, 0x70f }, { 0x890, 0x891 }, { 0x8e2, 0x8e2 }, { 0x1680, 0x1680 },
        { 0x180e, 0x180e }, { 0x2000, 0x200f }, { 0x2028, 0x202f }, { 0x205f, 0x206f },
        { 0x3000, 0x3000 }, { 0xd800, 0xf8ff }, { 0xfeff, 0xfeff }, { 0xfff0, 0xfffb },
        { 0xfffe, 0xffff }, { 0xe0000, 0xe00ff }, { 0xf0000, 0x10ffff } };

    for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++)
        if (code >= not [i][0] && code <= not [i][1])
            return 0;
    return 1;
}

static void
add_repr_str(struct val_ctx *c, struct val_buf *b, const struct val_str *s)
{
    char q = s->n > 0 ? repr_quote(s) : '\'', esc[16];

    val_add(c, b, &q, 1, 0);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t code = val_code(s->p + i, s->n - i, &n);
        int marked = s->mark != NULL ? s->mark[i] : s->marked;

        if (code == (unsigned char)q || code == '\\')
            (void)snprintf(esc, sizeof(esc), "\\%c", (int)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            (void)snprintf(esc, sizeof(esc), "\\%c",
                code == '\n'       ? 'n'
                    : code == '\r' ? 'r'
                                   : 't');
        else if (repr_prints(code)) {
            val_add(c, b, s->p + i, n, marked);
            continue;
        } else
            (void)snprintf(esc, sizeof(esc),
                code < 0x100         ? "\\x%02x"
                    : code < 0x10000 ? "\\u%04x"
                                     : "\\U%08x",
                code);
        val_add(c, b, esc, strlen(esc), marked);
    }
    val_add(c, b, &q, 1, 0);
}

static void
add_repr_list(struct val_ctx *c, struct val_buf *b, struct val v)
{
    if (v.l->lazy) {
        val_add_text(c, b, "<generator object>");
        return;
    }
    val_add_text(c, b, v.type == VAL_TUPLE ? "(" : "[");
    for (size_t i = 0; i < v.l->n; i++) {
        val_add_text(c, b, i > 0 ? ", " : "");
        val_add_repr(c, b, v.l->at[i]);
    }
    val_add_text(c, b, v.type == VAL_LIST ? "]" : v.l->n == 1 ? ",)" : ")");
}

static void
add_repr_dict(struct val_ctx *c, struct val_buf *b, const struct val_dict *d)
{
    val_add_text(c, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        val_add_text(c, b, i > 0 ? ", " : "");
        val_add_repr(c, b, d->at[i].key);
        val_add_text(c, b, ": ");
        val_add_repr(c, b, d->at[i].value);
    }
    val_add_text(c, b, "}");
}

void
val_add_repr(struct val_ctx *c, struct val_buf *b, struct val v)
{
    char text[VAL_FLOAT_BYTES];

    val_steps(c, 1);
    if (--c->depth < 0)
        val_fail(c, "values are nested too deeply");
    switch (v.type) {
    case VAL_UNDEF:
        val_add_text(c, b, "Undefined");
        break;
    case VAL_NONE:
        val_add_text(c, b, "None");
        break;
    case VAL_BOOL:
        val_add_text(c, b, v.b ? "True" : "False");
        break;
    case VAL_INT:
        (void)snprintf(text, sizeof(text), "%lld", (long long)v.i);
        val_add_text(c, b, text);
        break;
    case VAL_FLOAT:
        val_float_text(v.f, text);
        val_add_text(c, b, text);
        break;
    case VAL_BIG:
        val_add_str(c, b, v.s);
        break;
    case VAL_STR:
        add_repr_str(c, b, v.s);
        break;
    case VAL_LIST:
    case VAL_TUPLE:
        add_repr_list(c, b, v);
        break;
    case VAL_DICT:
        add_repr_dict(c, b, v.d);
        break;
    case VAL_NAMESPACE:
        val_add_text(c, b, "<Namespace ");
        add_repr_dict(c, b, v.d);
        val_add_text(c, b, ">");
        break;
    default:
        val_fail(c, "a %s cannot be printed", val_type_name(v));
    }
    c->depth++;
}

void
val_add_value(struct val_ctx *c, struct val_buf *b, struct val v)
{
    if (v.type == VAL_STR)
        val_add_str(c, b, v.s);
    else if (v.type != VAL_UNDEF)
        val_add_repr(c, b, v);
}

struct val
val_to_str(struct val_ctx *c, struct val v)
{
    struct val_buf b = { 0 };

    if (v.type == VAL_STR)
        return v;
    val_add_value(c, &b, v);
    return val_built(c, &b);
}

/* ---- code points ------------------------------------------------------------------ */

uint32_t
val_code(const char *p, size_t n, size_t *ret_n)
{
    const unsigned char *b = (const unsigned char *)p;
    size_t need = b[0] < 0x80 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    uint32_t code = need == 1 ? b[0] : b[0] & (0xffu >> (need + 1));

    if (need > n)
        need = n;
    for (size_t i = 1; i < need; i++)
        code = code << 6 | (b[i] & 0x3f);
    *ret_n = need;
    return code;
}

size_t
val_code_put(uint32_t code, char out[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

int
val_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
        code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
        code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
        code == 0x3000;
}
