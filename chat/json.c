/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "chat/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

const struct jsn_form jsn_plain = { .item = ", ", .key = ": " };

/* ---- reading ------------------------------------------------------------------------ */

struct jsn_in {
    struct val_ctx *c;
    const char *p;
    size_t n, at;
    int depth, marked;
};

__attribute__((noreturn)) static void
jsn_bad(struct jsn_in *in, const char *what)
{
    val_fail(in->c, "JSON, byte %zu: %s", in->at, what);
}

static void
jsn_space(struct jsn_in *in)
{
    while (in->at < in->n &&
        (in->p[in->at] == ' ' || in->p[in->at] == '\n' || in->p[in->at] == '\r' ||
            in->p[in->at] == '\t'))
        in->at++;
}

static int
jsn_hex4(struct jsn_in *in, uint32_t *ret)
{
    uint32_t code = 0;

    if (in->n - in->at < 4)
        return 0;
    for (int i = 0; i < 4; i++) {
        char ch = in->p[in->at + (size_t)i];
        int v = ch >= '0' && ch <= '9' ? ch - '0'
            : ch >= 'a' && ch <= 'f'   ? ch - 'a' + 10
            : ch >= 'A' && ch <= 'F'   ? ch - 'A' + 10
                                       : -1;

        if (v < 0)
            return 0;
        code = code << 4 | (uint32_t)v;
    }
    in->at += 4;
    *ret = code;
    return 1;
}

/* The code point of a \u escape (of two, if surrogates), after the \u. */
static uint32_t
jsn_unicode(struct jsn_in *in)
{
    uint32_t code, low;

    if (!jsn_hex4(in, &code))
        jsn_bad(in, "bad \\u escape");
    if (code < 0xd800 || code >= 0xe000)
        return code;
    if (code >= 0xdc00 || in->n - in->at < 2 || in->p[in->at] != '\\' ||
        in->p[in->at + 1] != 'u')
        jsn_bad(in, "a lone surrogate");
    in->at += 2;
    if (!jsn_hex4(in, &low) || low < 0xdc00 || low >= 0xe000)
        jsn_bad(in, "a lone surrogate");
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

/* Length in bytes of the character at p; 0: not valid UTF-8. */
static size_t
jsn_utf8(const char *p, size_t n)
{
    utf8proc_int32_t code;
    utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)p,
        n < 4 ? (utf8proc_ssize_t)n : 4, &code);

    return got > 0 ? (size_t)got : 0;
}

/* Number of bytes from p that stand for themselves: ASCII without quote, backslash and
 * controls. Eight bytes are tested at a time. */
static size_t
jsn_run(const char *p, size_t n)
{
    const uint64_t ones = ~0ull / 255, high = ones << 7;
    size_t i = 0;

    for (uint64_t w; i + 8 <= n; i += 8) {
        uint64_t quote, back;

        memcpy(&w, p + i, 8);
        quote = w ^ ones * '"';
        back = w ^ ones * '\\';
        w = (w | (quote - ones) | (back - ones) | (w - ones * 0x20)) & high;
        if (w != 0) { /* the lowest bit set is exact; a borrow may set higher ones */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            return i + (size_t)__builtin_ctzll(w) / 8;
#else
            break;
#endif
        }
    }
    while (i < n && (unsigned char)p[i] >= 0x20 && (unsigned char)p[i] < 0x80 &&
        p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

static struct val
jsn_string(struct jsn_in *in)
{
    size_t from = ++in->at, end = from, k = 0;
    int plain = 1;
    char *out;

    end += jsn_run(in->p + end, in->n - end);
    if (end < in->n && in->p[end] == '"') { /* nothing to decode: the usual case */
        val_steps(in->c, (end - from) / 16 + 1);
        in->at = end + 1;
        return val_str(in->c, in->p + from, end - from, in->marked);
    }
    while (end < in->n && in->p[end] != '"') {
        size_t run = jsn_run(in->p + end, in->n - end);

        if (run > 0) {
            end += run;
            continue;
        }
        plain &= in->p[end] != '\\';
        end += in->p[end] == '\\' && end + 1 < in->n ? 2 : 1;
    }
    val_steps(in->c, (end - from) / 16 + 1);
    out = plain ? NULL : val_get(in->c, end - from + 4);
    while (in->at < in->n && in->p[in->at] != '"') {
        static const char from_ch[] = "\"\\/bfnrt", to_ch[] = "\"\\/\b\f\n\r\t";
        const char *e;
        size_t n = jsn_run(in->p + in->at, in->n - in->at);

        if (n > 0 || in->p[in->at] != '\\') {
            if ((unsigned char)in->p[in->at] < 0x20)
                jsn_bad(in, "a control character in a string");
            if (n == 0)
                n = jsn_utf8(in->p + in->at, in->n - in->at);
            if (n == 0)
                jsn_bad(in, "not UTF-8");
            if (!plain)
                memcpy(out + k, in->p + in->at, n);
            k += n;
            in->at += n;
            continue;
        }
        in->at++;
        if (in->at >= in->n)
            break;
        e = in->p[in->at] != '\0' ? strchr(from_ch, in->p[in->at]) : NULL;
        if (e == NULL && in->p[in->at] != 'u')
            jsn_bad(in, "unknown escape");
        in->at++;
        if (e != NULL)
            out[k++] = to_ch[e - from_ch];
        else
            k += val_code_put(jsn_unicode(in), out + k);
    }
    if (in->at >= in->n)
        jsn_bad(in, "unterminated string");
    in->at++;
    return val_str(in->c, plain ? in->p + from : out, k, in->marked);
}

static struct val
jsn_number(struct jsn_in *in)
{
    size_t from = in->at, digits;
    int real = 0;
    char text[512];
    struct val v;

    if (in->p[in->at] == '-')
        in->at++;
    digits = in->at;
    while (in->at < in->n && in->p[in->at] >= '0' && in->p[in->at] <= '9')
        in->at++;
    if (in->at == digits || (in->p[digits] == '0' && in->at > digits + 1))
        jsn_bad(in, "not a value");
    if (in->at < in->n && in->p[in->at] == '.') {
        real = 1;
        digits = ++in->at;
        while (in->at < in->n && in->p[in->at] >= '0' && in->p[in->at] <= '9')
            in->at++;
        if (in->at == digits)
            jsn_bad(in, "a number without digits after its decimal point");
    }
    if (in->at < in->n && (in->p[in->at] == 'e' || in->p[in->at] == 'E')) {
        real = 1;
        in->at++;
        if (in->at < in->n && (in->p[in->at] == '+' || in->p[in->at] == '-'))
            in->at++;
        digits = in->at;
        while (in->at < in->n && in->p[in->at] >= '0' && in->p[in->at] <= '9')
            in->at++;
        if (in->at == digits)
            jsn_bad(in, "a number without an exponent");
    }
    if (in->at - from >= sizeof(text))
        jsn_bad(in, "a number of more than 511 characters");
    memcpy(text, in->p + from, in->at - from);
    text[in->at - from] = '\0';
    if (real)
        return val_float(strtod(text, NULL));
    errno = 0;
    v = val_int(strtoll(text, NULL, 10));
    if (errno == ERANGE) {
        v = val_str(in->c, in->p + from, in->at - from, 0);
        v.type = VAL_BIG;
    }
    return v;
}

static struct val jsn_value(struct jsn_in *in);

static struct val
jsn_array(struct jsn_in *in)
{
    struct val v = val_list(in->c, VAL_LIST, 0);
    size_t room = 0;

    in->at++;
    jsn_space(in);
    if (in->at < in->n && in->p[in->at] == ']') {
        in->at++;
        return v;
    }
    for (;;) {
        val_push(in->c, v.l, &room, jsn_value(in));
        jsn_space(in);
        if (in->at < in->n && in->p[in->at] == ',') {
            in->at++;
            continue;
        }
        if (in->at < in->n && in->p[in->at] == ']') {
            in->at++;
            return v;
        }
        jsn_bad(in, "expected ',' or ']'");
    }
}

static struct val
jsn_object(struct jsn_in *in)
{
    struct val v = val_dict(in->c), key;

    in->at++;
    jsn_space(in);
    if (in->at < in->n && in->p[in->at] == '}') {
        in->at++;
        return v;
    }
    for (;;) {
        jsn_space(in);
        if (in->at >= in->n || in->p[in->at] != '"')
            jsn_bad(in, "expected a key");
        key = jsn_string(in);
        jsn_space(in);
        if (in->at >= in->n || in->p[in->at] != ':')
            jsn_bad(in, "expected ':'");
        in->at++;
        val_put(in->c, v.d, key, jsn_value(in));
        jsn_space(in);
        if (in->at < in->n && in->p[in->at] == ',') {
            in->at++;
            continue;
        }
        if (in->at < in->n && in->p[in->at] == '}') {
            in->at++;
            return v;
        }
        jsn_bad(in, "expected ',' or '}'");
    }
}

static struct val
jsn_value(struct jsn_in *in)
{
    static const struct {
        const char *word;
        struct val v;
    } words[] = { { "null", { .type = VAL_NONE } },
        { "true", { .type = VAL_BOOL, .b = 1 } }, { "false", { .type = VAL_BOOL } } };
    struct val v;

    val_steps(in->c, 1);
    jsn_space(in);
    if (in->at >= in->n)
        jsn_bad(in, "a value is missing");
    if (in->p[in->at] == '"')
        return jsn_string(in);
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i].word);

        if (n <= in->n - in->at && memcmp(in->p + in->at, words[i].word, n) == 0) {
            in->at += n;
            return words[i].v;
        }
    }
    if (in->p[in->at] != '[' && in->p[in->at] != '{')
        return jsn_number(in);
    if (--in->depth < 0)
        jsn_bad(in, "nested too deeply");
    v = in->p[in->at] == '[' ? jsn_array(in) : jsn_object(in);
    in->depth++;
    return v;
}

struct val
jsn_read(struct val_ctx *c, const char *p, size_t n, int marked)
{
    struct jsn_in in = { .c = c, .p = p, .n = n, .depth = JSN_MAX_DEPTH, .marked = marked };
    struct val v = jsn_value(&in);

    jsn_space(&in);
    if (in.at < in.n)
        jsn_bad(&in, "more after the value");
    return v;
}

/* ---- writing ------------------------------------------------------------------------- */

/* Number of bytes from p that are written unchanged. */
static size_t
plain_run(const char *p, size_t n, const struct jsn_form *f)
{
    size_t run = jsn_run(p, n);
    const char *del = f->ascii && run > 0 ? memchr(p, 0x7f, run) : NULL;

    return del != NULL ? (size_t)(del - p) : run;
}

static void
add_piece(struct val_ctx *c, struct val_buf *b, const struct val_str *s, size_t at, size_t n)
{
    struct val_str piece = { .n = n,
        .p = s->p + at,
        .marked = s->marked,
        .mark = s->mark != NULL ? s->mark + at : NULL };

    val_add_str(c, b, &piece);
}

static void
jsn_add_string(struct val_ctx *c, struct val_buf *b, const struct val_str *s,
    const struct jsn_form *f)
{
    val_add(c, b, "\"", 1, 0);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t code;
        int marked = s->mark != NULL ? s->mark[i] : s->marked;
        const char *e;
        char esc[16];

        n = plain_run(s->p + i, s->n - i, f);
        if (n > 0) {
            add_piece(c, b, s, i, n);
            continue;
        }
        code = val_code(s->p + i, s->n - i, &n);
        e = code > 0 && code < 128 ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", (int)code) : NULL;
        /* the string holds pairs of a character and the letter of its escape; e points to
         * the character */
        if (code == '"' || code == '\\' || (code < 0x20 && e != NULL))
            (void)snprintf(esc, sizeof(esc), "\\%c", e[1]);
        else if (code < 0x20 || (f->ascii && code > 0x7e && code < 0x10000))
            (void)snprintf(esc, sizeof(esc), "\\u%04x", code);
        else if (f->ascii && code >= 0x10000)
            (void)snprintf(esc, sizeof(esc), "\\u%04x\\u%04x",
                0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
        else {
            val_add(c, b, s->p + i, n, marked);
            continue;
        }
        val_add(c, b, esc, strlen(esc), marked);
    }
    val_add(c, b, "\"", 1, 0);
}

static void
jsn_add_key(struct val_ctx *c, struct val_buf *b, struct val key, const struct jsn_form *f)
{
    struct val text;

    switch (key.type) {
    case VAL_STR:
        jsn_add_string(c, b, key.s, f);
        return;
    case VAL_NONE:
        val_add_text(c, b, "\"null\"");
        return;
    case VAL_BOOL:
        val_add_text(c, b, key.b ? "\"true\"" : "\"false\"");
        return;
    case VAL_INT:
    case VAL_BIG:
    case VAL_FLOAT:
        text = val_to_str(c, key);
        jsn_add_string(c, b, text.s, f);
        return;
    default:
        val_fail(c, "keys must be str, int, float, bool or None, not %s",
            val_type_name(key));
    }
}

static void
jsn_line(struct val_ctx *c, struct val_buf *b, const struct jsn_form *f, int level)
{
    if (f->indent == NULL)
        return;
    val_add_text(c, b, "\n");
    for (int i = 0; i < level; i++)
        val_add_text(c, b, f->indent);
}

static void jsn_add(struct val_ctx *c, struct val_buf *b, struct val v,
    const struct jsn_form *f, int level);

static void
jsn_add_list(struct val_ctx *c, struct val_buf *b, const struct val_list *l,
    const struct jsn_form *f, int level)
{
    if (l->n == 0) {
        val_add_text(c, b, "[]");
        return;
    }
    val_add_text(c, b, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            val_add_text(c, b, f->item);
        jsn_line(c, b, f, level + 1);
        jsn_add(c, b, l->at[i], f, level + 1);
    }
    jsn_line(c, b, f, level);
    val_add_text(c, b, "]");
}

/* A dict's entries in the order of Python's sorted() by key; binary insertion sort. */
static const struct val_pair **
jsn_sorted(struct val_ctx *c, const struct val_dict *d)
{
    const struct val_pair **at = val_array(c, d->n + 1, sizeof(*at));

    for (size_t i = 0; i < d->n; i++) {
        size_t lo = 0, hi = i;

        while (lo < hi) {
            size_t mid = (lo + hi) / 2;

            if (val_compare(c, d->at[i].key, at[mid]->key) < 0)
                hi = mid;
            else
                lo = mid + 1;
        }
        val_steps(c, (i - lo) / 16);
        memmove(at + lo + 1, at + lo, (i - lo) * sizeof(*at));
        at[lo] = &d->at[i];
    }
    return at;
}

static void
jsn_add_dict(struct val_ctx *c, struct val_buf *b, const struct val_dict *d,
    const struct jsn_form *f, int level)
{
    const struct val_pair **sorted = f->sort ? jsn_sorted(c, d) : NULL;

    if (d->n == 0) {
        val_add_text(c, b, "{}");
        return;
    }
    val_add_text(c, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        const struct val_pair *p = f->sort ? sorted[i] : &d->at[i];

        if (i > 0)
            val_add_text(c, b, f->item);
        jsn_line(c, b, f, level + 1);
        jsn_add_key(c, b, p->key, f);
        val_add_text(c, b, f->key);
        jsn_add(c, b, p->value, f, level + 1);
    }
    jsn_line(c, b, f, level);
    val_add_text(c, b, "}");
}

static void
jsn_add(struct val_ctx *c, struct val_buf *b, struct val v, const struct jsn_form *f,
    int level)
{
    val_steps(c, 1);
    if (--c->depth < 0)
        val_fail(c, "values are nested too deeply");
    switch (v.type) {
    case VAL_NONE:
        val_add_text(c, b, "null");
        break;
    case VAL_BOOL:
        val_add_text(c, b, v.b ? "true" : "false");
        break;
    case VAL_FLOAT:
        if (isnan(v.f) || isinf(v.f))
            val_add_text(c, b, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
        else
            val_add_repr(c, b, v);
        break;
    case VAL_INT:
    case VAL_BIG:
        val_add_repr(c, b, v);
        break;
    case VAL_STR:
        jsn_add_string(c, b, v.s, f);
        break;
    case VAL_LIST:
    case VAL_TUPLE:
        if (!v.l->lazy) {
            jsn_add_list(c, b, v.l, f, level);
            break;
        }
        /* fall through */
    default:
        if (v.type != VAL_DICT)
            val_fail(c, "Object of type %s is not JSON serializable", val_type_name(v));
        jsn_add_dict(c, b, v.d, f, level);
    }
    c->depth++;
}

void
jsn_write(struct val_ctx *c, struct val_buf *b, struct val v, const struct jsn_form *f)
{
    jsn_add(c, b, v, f, 0);
}
