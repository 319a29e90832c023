/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"

struct jr_in {
    struct jr *j;
    const char *p;
    size_t n, at;
};

static int
bad(struct jr_in *in, const char *why)
{
    in->j->err = why;
    in->j->err_at = in->at;
    return -EINVAL;
}

/* Add a node. Returns its index, or -E2BIG or -ENOMEM. */
static int64_t
node(struct jr_in *in, enum jr_type type)
{
    struct jr *j = in->j;

    if (j->n == j->room) {
        uint32_t room = j->room == 0 ? 64 : j->room * 2;
        struct jr_node *p;

        if (room > j->most)
            room = j->most;
        if (j->n >= room)
            return -E2BIG;
        p = realloc(j->node, (size_t)room * sizeof(*p));
        if (p == NULL)
            return -ENOMEM;
        j->node = p;
        j->room = room;
    }
    j->node[j->n] =
        (struct jr_node){ .at = (uint32_t)in->at, .next = j->n + 1, .type = (uint8_t)type };
    return j->n++;
}

static void
blanks(struct jr_in *in)
{
    while (in->at < in->n &&
        (in->p[in->at] == ' ' || in->p[in->at] == '\n' || in->p[in->at] == '\t' ||
            in->p[in->at] == '\r'))
        in->at++;
}

/* The value of four hex digits; negative: p has none. */
static int32_t
hex4(const char *p, size_t n)
{
    int32_t v = 0;

    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = buf_hex(p[i]);

        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Decode the escape at p, after its backslash. Returns its bytes; 0: it is none. */
static size_t
escape(const char *p, size_t n, uint32_t *ret_cp)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = n > 0 && p[0] != '\0' ? strchr(from, p[0]) : NULL;
    int32_t hi, lo;

    if (at != NULL) {
        *ret_cp = (unsigned char)to[at - from];
        return 1;
    }
    if (n == 0 || p[0] != 'u' || (hi = hex4(p + 1, n - 1)) < 0)
        return 0;
    *ret_cp = (uint32_t)hi;
    if (hi < 0xd800 || hi > 0xdfff)
        return 5;
    if (hi > 0xdbff || n < 11 || p[5] != '\\' || p[6] != 'u')
        return 0;
    lo = hex4(p + 7, n - 7);
    if (lo < 0xdc00 || lo > 0xdfff)
        return 0;
    *ret_cp = 0x10000u + ((uint32_t)(hi - 0xd800) << 10) + (uint32_t)(lo - 0xdc00);
    return 11;
}

/* Number of bytes from p on that a string contains unescaped: no quote, backslash or
 * control. Eight ASCII bytes are tested at a time. */
static size_t
plain(const char *p, size_t n)
{
    const uint64_t ones = ~0ull / 255, high = ones << 7;
    size_t i = 0;

    for (uint64_t w; i + 8 <= n; i += 8) {
        uint64_t quote, back;

        memcpy(&w, p + i, 8);
        quote = w ^ ones * '"';
        back = w ^ ones * '\\';
        if (((w | (quote - ones) | (back - ones) | (w - ones * 0x20)) & high) != 0)
            break;
    }
    while (i < n && (unsigned char)p[i] >= 0x20 && p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

static int
string(struct jr_in *in)
{
    int64_t at = node(in, JR_STRING);
    uint32_t cp;

    if (at < 0)
        return (int)at;
    for (in->at++; in->at < in->n; in->at++) {
        unsigned char c;

        in->at += plain(in->p + in->at, in->n - in->at);
        if (in->at == in->n)
            break;
        c = (unsigned char)in->p[in->at];

        if (c == '"') {
            in->at++;
            in->j->node[at].bytes = (uint32_t)in->at - in->j->node[at].at;
            return 0;
        }
        if (c < 0x20)
            return bad(in, "a control character in a string");
        if (c == '\\') {
            size_t k = escape(in->p + in->at + 1, in->n - in->at - 1, &cp);

            if (k == 0)
                return bad(in, "an escape that stands for no character");
            in->j->node[at].escaped = 1;
            in->at += k;
        }
    }
    return bad(in, "a string without end");
}

static size_t
digits(struct jr_in *in)
{
    size_t from = in->at;

    while (in->at < in->n && in->p[in->at] >= '0' && in->p[in->at] <= '9')
        in->at++;
    return in->at - from;
}

static int
number(struct jr_in *in)
{
    int64_t at = node(in, JR_NUMBER);
    size_t k, first;

    if (at < 0)
        return (int)at;
    if (in->p[in->at] == '-')
        in->at++;
    first = in->at;
    k = digits(in);
    if (k == 0 || (k > 1 && in->p[first] == '0'))
        return bad(in, "not a number");
    if (in->at < in->n && in->p[in->at] == '.') {
        in->at++;
        if (digits(in) == 0)
            return bad(in, "not a number");
    }
    if (in->at < in->n && (in->p[in->at] == 'e' || in->p[in->at] == 'E')) {
        in->at++;
        if (in->at < in->n && (in->p[in->at] == '+' || in->p[in->at] == '-'))
            in->at++;
        if (digits(in) == 0)
            return bad(in, "not a number");
    }
    in->j->node[at].bytes = (uint32_t)in->at - in->j->node[at].at;
    return 0;
}

static int
word(struct jr_in *in, const char *w, enum jr_type type)
{
    size_t n = strlen(w);
    int64_t at;

    if (in->n - in->at < n || memcmp(in->p + in->at, w, n) != 0)
        return bad(in, "not a value");
    at = node(in, type);
    if (at < 0)
        return (int)at;
    in->at += n;
    in->j->node[at].bytes = (uint32_t)n;
    return 0;
}

/* Read one value, or the beginning of a container. */
static int
value(struct jr_in *in, int64_t *ret_open)
{
    int c = in->at < in->n ? in->p[in->at] : 0;

    *ret_open = -1;
    switch (c) {
    case '{':
    case '[':
        *ret_open = node(in, c == '{' ? JR_OBJECT : JR_ARRAY);
        in->at++;
        return *ret_open < 0 ? (int)*ret_open : 0;
    case '"':
        return string(in);
    case 't':
        return word(in, "true", JR_TRUE);
    case 'f':
        return word(in, "false", JR_FALSE);
    case 'n':
        return word(in, "null", JR_NULL);
    case 0:
        return bad(in, in->at < in->n ? "not a value" : "the text ends early");
    default:
        return c == '-' || (c >= '0' && c <= '9') ? number(in) : bad(in, "not a value");
    }
}

/* Read a key and its colon. */
static int
key(struct jr_in *in)
{
    int rc;

    blanks(in);
    if (in->at >= in->n || in->p[in->at] != '"')
        return bad(in, "an object's key is a string");
    rc = string(in);
    if (rc != 0)
        return rc;
    blanks(in);
    if (in->at >= in->n || in->p[in->at] != ':')
        return bad(in, "no colon after a key");
    in->at++;
    return 0;
}

static void
close_node(struct jr_in *in, uint32_t i)
{
    in->at++;
    in->j->node[i].bytes = (uint32_t)in->at - in->j->node[i].at;
    in->j->node[i].next = in->j->n;
}

static int
read_all(struct jr_in *in)
{
    uint32_t open[JR_MAX_DEPTH];
    unsigned depth = 0;
    int fresh = 0, rc; /* fresh: a container was opened and has no value yet */
    int64_t at;

    for (;;) {
        int is_object = depth > 0 && in->j->node[open[depth - 1]].type == JR_OBJECT;
        char end = is_object ? '}' : ']';

        blanks(in);
        if (depth > 0 && in->at < in->n && in->p[in->at] == end) {
            close_node(in, open[--depth]);
            fresh = 0;
            if (depth == 0)
                break;
            continue;
        }
        if (depth > 0 && !fresh) {
            if (in->at >= in->n || in->p[in->at] != ',')
                return bad(in,
                    in->at < in->n ? "no comma between values" : "the text ends early");
            in->at++;
            blanks(in);
        }
        if (is_object && (rc = key(in)) != 0)
            return rc;
        blanks(in);
        rc = value(in, &at);
        if (rc != 0)
            return rc;
        fresh = at >= 0;
        if (at >= 0) {
            if (depth == JR_MAX_DEPTH)
                return bad(in, "nested more than 64 deep");
            open[depth++] = (uint32_t)at;
        } else if (depth == 0) {
            break;
        }
    }
    blanks(in);
    return in->at == in->n ? 0 : bad(in, "text after the value");
}

int
jr_read(struct jr *j, const char *text, size_t n, uint32_t most)
{
    struct jr_in in = { j, text, n, 0 };
    int rc;

    memset(j, 0, sizeof(*j));
    j->text = text;
    j->most = most;
    in.at = txt_utf8(text, n);
    if (in.at != n || n >= UINT32_MAX)
        rc = bad(&in, "not UTF-8");
    else {
        in.at = 0;
        rc = read_all(&in);
    }
    if (rc != 0) {
        free(j->node);
        j->node = NULL;
        j->n = j->room = 0;
    }
    return rc;
}

void
jr_fini(struct jr *j)
{
    free(j->node);
    memset(j, 0, sizeof(*j));
}

enum jr_type
jr_type(const struct jr *j, uint32_t i)
{
    return i < j->n ? (enum jr_type)j->node[i].type : JR_NULL;
}

const char *
jr_type_name(enum jr_type t)
{
    static const char *const names[] = { "null", "false", "true", "a number", "a string",
        "an array", "an object" };

    return names[t];
}

int
jr_is(const struct jr *j, uint32_t i, const char *s)
{
    size_t n = strlen(s);
    const struct jr_node *k = i < j->n ? &j->node[i] : NULL;
    struct buf b = { NULL };
    int same;

    if (k == NULL || k->type != JR_STRING)
        return 0;
    if (!k->escaped)
        return k->bytes == n + 2 && memcmp(j->text + k->at + 1, s, n) == 0;
    jr_text(j, i, &b);
    same = !b.failed && b.n == n && memcmp(b.p, s, n) == 0;
    buf_fini(&b);
    return same;
}

uint32_t
jr_member(const struct jr *j, uint32_t i, const char *name)
{
    uint32_t found = JR_NONE;

    if (jr_type(j, i) != JR_OBJECT)
        return JR_NONE;
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k + 1].next)
        if (jr_is(j, k, name))
            found = k + 1;
    return found;
}

uint32_t
jr_count(const struct jr *j, uint32_t i)
{
    uint32_t n = 0;

    if (i >= j->n || j->node[i].type < JR_ARRAY)
        return 0;
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next)
        n++;
    return n;
}

/* The number is copied because the text does not end with a zero. */
double
jr_real(const struct jr *j, uint32_t i)
{
    char text[400];
    const struct jr_node *k = &j->node[i];
    size_t n = k->bytes < sizeof(text) ? k->bytes : sizeof(text) - 1;

    if (jr_type(j, i) != JR_NUMBER)
        return NAN;
    memcpy(text, j->text + k->at, n);
    text[n] = '\0';
    return strtod(text, NULL);
}

int
jr_int(const struct jr *j, uint32_t i, int64_t *ret)
{
    char text[32];
    const struct jr_node *k = &j->node[i];
    double d;

    if (jr_type(j, i) != JR_NUMBER)
        return -ERANGE;
    if (k->bytes < sizeof(text)) {
        memcpy(text, j->text + k->at, k->bytes);
        text[k->bytes] = '\0';
        if (strpbrk(text, ".eE") == NULL) {
            errno = 0;
            *ret = strtoll(text, NULL, 10);
            return errno == 0 ? 0 : -ERANGE;
        }
    }
    d = jr_real(j, i);
    if (!(d >= -9.2e18 && d <= 9.2e18) || d != floor(d))
        return -ERANGE;
    *ret = (int64_t)d;
    return 0;
}

void
jr_text(const struct jr *j, uint32_t i, struct buf *b)
{
    const struct jr_node *k = &j->node[i];
    const char *p;
    size_t n;

    if (jr_type(j, i) != JR_STRING)
        return;
    p = j->text + k->at + 1;
    n = k->bytes - 2;
    (void)buf_room(b, n);
    while (n > 0) {
        const char *back = k->escaped ? memchr(p, '\\', n) : NULL;
        size_t run = back != NULL ? (size_t)(back - p) : n;
        char out[4];
        uint32_t cp;
        size_t used;

        buf_add(b, p, run);
        p += run;
        n -= run;
        if (n == 0)
            break;
        used = escape(p + 1, n - 1, &cp) + 1;
        buf_add(b, out, txt_put(cp, out));
        p += used;
        n -= used;
    }
}
