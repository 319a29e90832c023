/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/tokenizer_json.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"

#define JS_MAX_DEPTH  1024
#define JS_MAX_NUMBER 64 /* characters */
#define JS_MAX_POWER  308
#define JS_MAX_EXP    100000
#define JS_MAX_INT    ((int64_t)1 << 53)

static bool
js_bad(struct tok_js *js, const char *why)
{
    if (!js->why)
        js->why = why;
    return false;
}

/* Number of spaces at the beginning of the 8 bytes at s. */
static unsigned
js_spaces(const char *s)
{
    uint64_t v;

    memcpy(&v, s, 8);
    v = le64toh(v) ^ 0x2020202020202020u;
    return v ? (unsigned)__builtin_ctzll(v) / 8 : 8;
}

void
tok_js_space(struct tok_js *js)
{
    const char *s = js->s;
    size_t at = js->at, n = js->n;
    unsigned k;

    while (at < n && (s[at] == ' ' || s[at] == '\n' || s[at] == '\r' || s[at] == '\t')) {
        at++;
        /* files are indented */
        for (k = 8; k == 8 && n - at >= 8; at += k)
            k = js_spaces(s + at);
    }
    js->at = at;
}

bool
tok_js_take(struct tok_js *js, char c)
{
    static const struct {
        char c;
        const char *why;
    } rows[] = { { ':', "expected ':'" }, { '{', "expected '{'" }, { '[', "expected '['" },
        { ']', "expected ',' or ']'" }, { '}', "expected ',' or '}'" },
        { ',', "expected ','" }, { '"', "expected a string" } };
    size_t i;

    if (tok_js_maybe(js, c))
        return true;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].c == c)
            return js_bad(js, js->at < js->n ? rows[i].why : "unexpected end of file");
    return false;
}

static int
js_hex4(const char *s, size_t n)
{
    int v = 0, i;

    if (n < 4)
        return -1;
    for (i = 0; i < 4; i++) {
        int c = (unsigned char)s[i];
        if (c >= '0' && c <= '9')
            c -= '0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            c = (c | 32) - 'a' + 10;
        else
            return -1;
        v = v << 4 | c;
    }
    return v;
}

/* Checks the escape at s, after its backslash; returns its length, or 0 if it is
 * invalid. */
static size_t
js_escape(const char *s, size_t n)
{
    int cp;

    if (!n || !s[0])
        return 0;
    if (s[0] != 'u')
        return strchr("\"\\/bfnrt", s[0]) ? 1 : 0;
    cp = js_hex4(s + 1, n - 1);
    if (cp < 0 || (cp >= 0xdc00 && cp < 0xe000))
        return 0;
    if (cp < 0xd800 || cp >= 0xe000)
        return 5;
    if (n < 11 || s[5] != '\\' || s[6] != 'u')
        return 0;
    cp = js_hex4(s + 7, n - 7);
    return cp >= 0xdc00 && cp < 0xe000 ? 11 : 0;
}

#define JS_EACH(c) (0x0101010101010101u * (uint64_t)(c))

/* Number of the 8 bytes at s that precede a quote, a backslash or a control character. */
static unsigned
js_plain_bytes(const char *s)
{
    uint64_t v, quote, slash, hit;

    memcpy(&v, s, 8);
    v = le64toh(v);
    quote = v ^ JS_EACH('"');
    slash = v ^ JS_EACH('\\');
    /* the lowest bit set is of a byte that matches; higher ones may come from a borrow */
    hit = ((v - JS_EACH(0x20)) & ~v) | ((quote - JS_EACH(1)) & ~quote) |
        ((slash - JS_EACH(1)) & ~slash);
    hit &= JS_EACH(0x80);
    return hit ? (unsigned)__builtin_ctzll(hit) / 8 : 8;
}

bool
tok_js_string(struct tok_js *js, struct tok_js_text *ret)
{
    size_t i, len;

    if (!tok_js_take(js, '"'))
        return false;
    *ret = (struct tok_js_text){ .s = js->s + js->at };
    for (i = js->at; i < js->n; i++) {
        unsigned char c;
        unsigned k;

        for (k = 8; k == 8 && js->n - i >= 8; i += k)
            k = js_plain_bytes(js->s + i);
        if (i == js->n)
            break;
        c = (unsigned char)js->s[i];
        if (c == '"')
            break;
        if (c >= 0x20 && c != '\\')
            continue;
        if (c < 0x20) {
            js->at = i;
            return js_bad(js, "control character in a string");
        }
        ret->escaped = true;
        len = js_escape(js->s + i + 1, js->n - i - 1);
        if (!len) {
            js->at = i;
            return js_bad(js, "invalid escape");
        }
        i += len;
    }
    if (i >= js->n) {
        js->at = js->n;
        return js_bad(js, "unexpected end of file in a string");
    }
    ret->n = i - js->at;
    js->at = i + 1;
    return true;
}

size_t
tok_js_plain(const struct tok_js_text *t, uint8_t *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    size_t i = 0, k = 0;

    if (!t->escaped) {
        memcpy(out, t->s, t->n);
        return t->n;
    }
    while (i < t->n) {
        const char *s = t->s + i, *known;
        uint32_t cp;

        if (*s != '\\') {
            out[k++] = (uint8_t)*s;
            i++;
            continue;
        }
        if (s[1] != 'u') {
            known = strchr(from, s[1]);
            out[k++] = (uint8_t)(known ? to[known - from] : s[1]);
            i += 2;
            continue;
        }
        cp = (uint32_t)js_hex4(s + 2, 4);
        i += 6;
        if (cp >= 0xd800 && cp < 0xdc00) {
            cp = 0x10000 + ((cp - 0xd800) << 10) + ((uint32_t)js_hex4(s + 8, 4) - 0xdc00);
            i += 6;
        }
        k += txt_put(cp, out + k);
    }
    return k;
}

/* The length of the number at `at` by JSON's rules; 0: not a number. */
static size_t
js_number_len(const struct tok_js *js)
{
    const char *s = js->s + js->at;
    size_t n = js->n - js->at, i = 0, from;

    if (i < n && s[i] == '-')
        i++;
    from = i;
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    if (i == from || (s[from] == '0' && i - from > 1))
        return 0;
    if (i < n && s[i] == '.') {
        for (from = ++i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            ;
        if (i == from)
            return 0;
    }
    if (i < n && (s[i] | 32) == 'e') {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-'))
            i++;
        for (from = i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            ;
        if (i == from)
            return 0;
    }
    return i;
}

/* Ten to the power of n >= 0, rounded once. */
static double
js_power(int n)
{
    static const double exact[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
        1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    char text[16];

    if (n < (int)(sizeof(exact) / sizeof(exact[0])))
        return exact[n];
    snprintf(text, sizeof(text), "1e%d", n);
    return strtod(text, NULL);
}

/*
 * The digits that fit 64 bits, times a power of ten. That is rounded twice, as in the
 * reference's reader; otherwise scores that differ in the last bit could tie.
 */
static double
js_value(const char *s, size_t n)
{
    uint64_t digits = 0;
    bool full = false, minus = *s == '-';
    int power = 0, behind = 0;
    double v;
    size_t i;

    for (i = minus; i < n && (s[i] | 32) != 'e'; i++) {
        unsigned d = (unsigned)s[i] - '0';

        if (s[i] == '.') {
            behind = 1;
            continue;
        }
        full = full || digits > UINT64_MAX / 10 ||
            (digits == UINT64_MAX / 10 && d > UINT64_MAX % 10);
        if (!full)
            digits = digits * 10 + d;
        power += full ? !behind : -behind;
    }
    if (i < n) {
        long e = strtol(s + i + 1, NULL, 10);
        power += (int)(e > JS_MAX_EXP ? JS_MAX_EXP : e < -JS_MAX_EXP ? -JS_MAX_EXP : e);
    }
    v = (double)digits;
    for (; power < -JS_MAX_POWER && v != 0.0; power += JS_MAX_POWER)
        v /= js_power(JS_MAX_POWER);
    v = power < 0              ? v / js_power(power < -JS_MAX_POWER ? 0 : -power)
        : power > JS_MAX_POWER ? (digits ? HUGE_VAL : 0.0)
                               : v * js_power(power);
    return minus ? -v : v;
}

bool
tok_js_number(struct tok_js *js, double *ret)
{
    char text[JS_MAX_NUMBER + 1];
    size_t n;

    tok_js_peek(js);
    n = js_number_len(js);
    if (!n || n > JS_MAX_NUMBER)
        return js_bad(js, "expected a number");
    memcpy(text, js->s + js->at, n);
    text[n] = 0;
    *ret = js_value(text, n);
    if (!isfinite(*ret))
        return js_bad(js, "number out of range");
    js->at += n;
    return true;
}

bool
tok_js_integer(struct tok_js *js, int64_t *ret)
{
    size_t i, n;
    int64_t v = 0;

    tok_js_peek(js);
    n = js_number_len(js);
    for (i = 0; i < n && v < JS_MAX_INT; i++) {
        char c = js->s[js->at + i];
        if (c < '0' || c > '9')
            break;
        v = v * 10 + (c - '0');
    }
    if (!n || i < n || v > JS_MAX_INT)
        return js_bad(js, "expected an integer that is not negative");
    *ret = v;
    js->at += n;
    return true;
}

static bool
js_word(struct tok_js *js)
{
    static const char *const literals[] = { "true", "false", "null" };
    size_t i, n;

    for (i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
        n = strlen(literals[i]);
        if (js->n - js->at >= n && !memcmp(js->s + js->at, literals[i], n)) {
            js->at += n;
            return true;
        }
    }
    return js_bad(js, js->at < js->n ? "expected a value" : "unexpected end of file");
}

/* A value that is neither an object nor an array. */
static bool
js_scalar(struct tok_js *js, char c)
{
    struct tok_js_text text;
    size_t n;

    if (c == '"')
        return tok_js_string(js, &text);
    if (c != '-' && (c < '0' || c > '9'))
        return js_word(js);
    n = js_number_len(js);
    js->at += n;
    return n || js_bad(js, "expected a number");
}

bool
tok_js_skip(struct tok_js *js)
{
    char open[JS_MAX_DEPTH];
    struct tok_js_text key;
    unsigned depth = 0;
    bool fresh = false; /* a container has just begun */

    js->n_items = 0;
    for (;;) {
        char c = tok_js_peek(js), end = depth ? (open[depth - 1] == '{' ? '}' : ']') : 0;

        if (depth && c == end) {
            js->at++;
            depth--;
            fresh = false;
            if (!depth)
                return true;
            continue;
        }
        if (depth && !fresh && !tok_js_take(js, ','))
            return js_bad(js, "expected ',' or the end");
        if (depth && end == '}' && (!tok_js_string(js, &key) || !tok_js_take(js, ':')))
            return false;
        c = tok_js_peek(js);
        fresh = c == '{' || c == '[';
        js->n_items += depth == 1;
        if (fresh) {
            if (depth == JS_MAX_DEPTH)
                return js_bad(js, "nested too deep");
            open[depth++] = c;
            js->at++;
            continue;
        }
        if (!js_scalar(js, c))
            return false;
        if (!depth)
            return true;
    }
}

bool
tok_js_is(const struct tok_js_text *t, const char *literal)
{
    return !t->escaped && t->n == strlen(literal) && !memcmp(t->s, literal, t->n);
}

void
tok_js_place(const struct tok_js *js, size_t *ret_line, size_t *ret_column)
{
    size_t i;

    *ret_line = *ret_column = 1;
    for (i = 0; i < js->at && i < js->n; i++) {
        if (js->s[i] == '\n') {
            ++*ret_line;
            *ret_column = 0;
        }
        *ret_column += 1;
    }
}
