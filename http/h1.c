/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/h1.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the head -------------------------------------------------------------------- */

static int
refuse(struct h1 *h, int status, const char *why)
{
    h->why = why;
    return -status;
}

/* May c be in a token (RFC 9110), such as a method or a header's name? */
static int
is_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
        (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* Find the end of the head. Returns 0, with *ret 0 if more bytes are needed, or minus a
 * status. A CR or LF without the other is refused, so that all parsers see the same
 * lines. */
static int
find_end(struct h1 *h, const char *p, size_t n, size_t *scanned, size_t *ret)
{
    size_t i = *scanned;

    for (; i < n; i++) {
        if (p[i] != '\n' && p[i] != '\r' && p[i] != '\0')
            continue;
        if (p[i] == '\0')
            return refuse(h, 400, "a zero byte in the head");
        if (p[i] == '\n')
            return refuse(h, 400, "a line feed without a carriage return");
        if (i + 1 >= n)
            break;
        if (p[i + 1] != '\n')
            return refuse(h, 400, "a carriage return without a line feed");
        i++;
        if (i == 1)
            return refuse(h, 400, "an empty line before the request");
        if (i >= 3 && p[i - 2] == '\n' && p[i - 3] == '\r') {
            *ret = i + 1;
            return 0;
        }
    }
    *scanned = i;
    *ret = 0;
    return 0;
}

static int
read_target(struct h1 *h, const char *p, struct h1_str t)
{
    const char *q;

    if (t.n == 0 || p[t.at] != '/')
        return refuse(h, 400, "the target is not a path");
    for (uint32_t i = 0; i < t.n; i++)
        if ((unsigned char)p[t.at + i] <= 0x20 || (unsigned char)p[t.at + i] >= 0x7f ||
            p[t.at + i] == '#')
            return refuse(h, 400, "the target holds a character that needs an escape");
    q = memchr(p + t.at, '?', t.n);
    h->path = t;
    if (q != NULL) {
        h->path.n = (uint32_t)(q - (p + t.at));
        h->query = (struct h1_str){ t.at + h->path.n + 1, t.n - h->path.n - 1 };
    }
    return 0;
}

static int
read_version(struct h1 *h, const char *v, size_t n)
{
    if (n != 8 || memcmp(v, "HTTP/", 5) != 0 || v[6] != '.' || v[5] < '0' || v[5] > '9' ||
        v[7] < '0' || v[7] > '9')
        return refuse(h, 400, "the request line does not end with HTTP/1.1");
    if (v[5] != '1' || v[7] > '1')
        return refuse(h, 505, "only HTTP/1.0 and HTTP/1.1 are spoken");
    h->minor = v[7] - '0';
    h->keep_alive = h->minor == 1;
    return 0;
}

static int
read_request_line(struct h1 *h, const char *p, size_t n)
{
    static const char *const names[] = { "GET", "HEAD", "POST", "OPTIONS" };
    size_t m = 0, t;
    int rc;

    if (n > H1_MAX_LINE)
        return refuse(h, 414, "the request line is longer than 8192 bytes");
    while (m < n && is_token(p[m]))
        m++;
    if (m == 0 || m >= n || p[m] != ' ')
        return refuse(h, 400, "the request line does not begin with a method");
    h->method = H1_OTHER;
    for (int i = 0; i < 4; i++)
        if (strlen(names[i]) == m && memcmp(names[i], p, m) == 0)
            h->method = (enum h1_method)i;
    for (t = m + 1; t < n && p[t] != ' ';)
        t++;
    if (t >= n)
        return refuse(h, 400, "the request line has no version");
    rc = read_version(h, p + t + 1, n - t - 1);
    return rc != 0
        ? rc
        : read_target(h, p, (struct h1_str){ (uint32_t)m + 1, (uint32_t)(t - m - 1) });
}

int
h1_same(const char *p, struct h1_str s, const char *text)
{
    return s.n == strlen(text) && strncasecmp(p + s.at, text, s.n) == 0;
}

static int
read_length(struct h1 *h, const char *p, struct h1_str v)
{
    h->length = 0;
    if (v.n == 0 || v.n > 18)
        return refuse(h, 400, "Content-Length is not a number of bytes");
    for (uint32_t i = 0; i < v.n; i++) {
        if (p[v.at + i] < '0' || p[v.at + i] > '9')
            return refuse(h, 400, "Content-Length is not a number of bytes");
        h->length = h->length * 10 + (uint64_t)(p[v.at + i] - '0');
    }
    h->has_length = 1;
    return 0;
}

static int
read_host(struct h1 *h, const char *p, struct h1_str v)
{
    if (v.n == 0)
        return refuse(h, 400, "Host is empty");
    for (uint32_t i = 0; i < v.n; i++) {
        char c = p[v.at + i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                (c >= '0' && c <= '9') || strchr("-._:[]", c) != NULL))
            return refuse(h, 400, "Host is no name and no address");
    }
    h->host = v;
    return 0;
}

static void
read_connection(struct h1 *h, const char *p, struct h1_str v)
{
    const char *s = p + v.at, *end = s + v.n;

    while (s < end) {
        size_t n = 0;

        while (s < end && (*s == ' ' || *s == '\t' || *s == ','))
            s++;
        while (s + n < end && s[n] != ',' && s[n] != ' ' && s[n] != '\t')
            n++;
        if (n == 5 && strncasecmp(s, "close", 5) == 0)
            h->keep_alive = 0;
        else if (n == 10 && strncasecmp(s, "keep-alive", 10) == 0 && h->minor == 0)
            h->keep_alive = 1;
        s += n;
    }
}

enum {
    HDR_LENGTH,
    HDR_CODING,
    HDR_HOST,
    HDR_AUTH,
    HDR_KEY,
    HDR_TYPE,
    HDR_ID,
    HDR_ORIGIN,
    HDR_EXPECT,
    HDR_CONNECTION, /* may be repeated, like all headers that are not listed */
    HDR_ENCODING,
    HDR__N
};

static int
read_header(struct h1 *h, const char *p, struct h1_str name, struct h1_str v)
{
    static const char *const names[HDR__N] = { "content-length", "transfer-encoding",
        "host", "authorization", "x-api-key", "content-type", "x-request-id", "origin",
        "expect", "connection", "content-encoding" };
    int i = 0;

    while (i < HDR__N && !h1_same(p, name, names[i]))
        i++;
    if (i == HDR__N)
        return 0;
    if (i < HDR_CONNECTION && (h->seen & 1u << i) != 0)
        return refuse(h, 400, "a header that may come once comes twice");
    h->seen |= 1u << i;
    switch (i) {
    case HDR_LENGTH:
        return read_length(h, p, v);
    case HDR_CODING:
        h->chunked = 1;
        return h1_same(p, v, "chunked")
            ? 0
            : refuse(h, 400, "a transfer coding other than chunked");
    case HDR_HOST:
        return read_host(h, p, v);
    case HDR_AUTH:
        h->authorization = v;
        break;
    case HDR_KEY:
        h->api_key = v;
        break;
    case HDR_TYPE:
        h->content_type = v;
        break;
    case HDR_ID:
        h->request_id = v;
        break;
    case HDR_ORIGIN:
        h->origin = v;
        break;
    case HDR_EXPECT:
        h->wants_continue = 1;
        return h1_same(p, v, "100-continue")
            ? 0
            : refuse(h, 417, "an unknown Expect header");
    case HDR_CONNECTION:
        read_connection(h, p, v);
        break;
    default:
        return h1_same(p, v, "identity")
            ? 0
            : refuse(h, 415, "a compressed body; send it as it is");
    }
    return 0;
}

/* Read one header line, without its line end. */
static int
read_line(struct h1 *h, const char *p, size_t at, size_t n)
{
    struct h1_str name = { (uint32_t)at, 0 }, v;
    size_t i = at;

    while (i < at + n && is_token(p[i]))
        i++;
    name.n = (uint32_t)(i - at);
    if (name.n == 0 || i >= at + n || p[i] != ':')
        return refuse(h, 400, "a header line does not begin with a name and a colon");
    for (i++; i < at + n && (p[i] == ' ' || p[i] == '\t');)
        i++;
    v.at = (uint32_t)i;
    v.n = (uint32_t)(at + n - i);
    while (v.n > 0 && (p[v.at + v.n - 1] == ' ' || p[v.at + v.n - 1] == '\t'))
        v.n--;
    for (uint32_t k = 0; k < v.n; k++) {
        unsigned char c = (unsigned char)p[v.at + k];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return refuse(h, 400, "a control character in a header");
    }
    return read_header(h, p, name, v);
}

static int
read_lines(struct h1 *h, const char *p, size_t at, size_t end)
{
    unsigned lines = 0;

    while (at < end - 2) {
        const char *cr = memchr(p + at, '\r', end - at);
        size_t n = (size_t)(cr - (p + at));
        int rc;

        if (++lines > H1_MAX_HEADERS)
            return refuse(h, 431, "more than 100 header lines");
        rc = read_line(h, p, at, n);
        if (rc != 0)
            return rc;
        at += n + 2;
    }
    if (h->minor == 1 && h->host.n == 0)
        return refuse(h, 400, "no Host header");
    if (h->chunked && (h->has_length || h->minor == 0))
        return refuse(h, 400,
            h->has_length ? "both Content-Length and Transfer-Encoding"
                          : "Transfer-Encoding in a request of HTTP/1.0");
    return 0;
}

int
h1_head(struct h1 *h, const char *p, size_t n, size_t max_bytes, size_t *scanned)
{
    size_t end, line;
    int rc;

    memset(h, 0, sizeof(*h));
    rc = find_end(h, p, n < max_bytes ? n : max_bytes, scanned, &end);
    if (rc != 0)
        return rc;
    if (end == 0) {
        if (memchr(p, '\n', n < H1_MAX_LINE + 2 ? n : H1_MAX_LINE + 2) == NULL &&
            n >= H1_MAX_LINE + 2)
            return refuse(h, 414, "the request line is longer than 8192 bytes");
        return n < max_bytes ? 0 : refuse(h, 431, "the headers are too long");
    }
    line = (size_t)((const char *)memchr(p, '\r', end) - p);
    rc = read_request_line(h, p, line);
    if (rc == 0)
        rc = read_lines(h, p, line + 2, end);
    return rc != 0 ? rc : (int)end;
}

/* ---- chunks ------------------------------------------------------------------------ */

enum {
    CHK_SIZE,
    CHK_SIZE_LF,
    CHK_DATA,
    CHK_DATA_CR,
    CHK_DATA_LF,
    CHK_END_CR,
    CHK_END_LF
};

/* Read one byte that is not data. Returns 1 at the body's end, 0 before it, or -400. */
static int
chunk_byte(struct h1_chunks *c, char b)
{
    static const struct {
        char want;
        int next;
    } ends[] = { [CHK_SIZE_LF] = { '\n', CHK_DATA },
        [CHK_DATA_CR] = { '\r', CHK_DATA_LF },
        [CHK_DATA_LF] = { '\n', CHK_SIZE },
        [CHK_END_CR] = { '\r', CHK_END_LF },
        [CHK_END_LF] = { '\n', CHK_SIZE } };

    if (c->state == CHK_SIZE) {
        if (buf_hex(b) >= 0 && c->digits < 8) {
            c->left = c->left * 16 + (uint64_t)buf_hex(b);
            c->digits++;
            return 0;
        }
        if (b != '\r' || c->digits == 0)
            return -400;
        c->state = CHK_SIZE_LF;
        return 0;
    }
    if (b != ends[c->state].want)
        return -400;
    if (c->state == CHK_END_LF)
        return 1;
    c->digits = 0;
    c->state = c->state == CHK_SIZE_LF && c->left == 0 ? CHK_END_CR : ends[c->state].next;
    return 0;
}

int
h1_chunk(struct h1_chunks *c, const char *p, size_t n, size_t *used, struct buf *body,
    size_t max_body, const char **ret_why)
{
    size_t i = 0;
    int rc = 0;

    while (i < n && rc == 0) {
        if (c->state == CHK_DATA) {
            size_t k = c->left < n - i ? (size_t)c->left : n - i;

            if (c->left > max_body || body->n > max_body - c->left) {
                *ret_why = "the body is too long";
                rc = -413;
                break;
            }
            buf_add(body, p + i, k);
            i += k;
            c->left -= k;
            if (c->left == 0)
                c->state = CHK_DATA_CR;
            continue;
        }
        rc = chunk_byte(c, p[i++]);
        if (rc < 0)
            *ret_why = "a chunk that is not size, line end, data and line end";
    }
    *used = i;
    return rc;
}

const char *
h1_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } all[] = { { 100, "Continue" }, { 200, "OK" }, { 204, "No Content" },
        { 400, "Bad Request" }, { 401, "Unauthorized" }, { 403, "Forbidden" },
        { 404, "Not Found" }, { 405, "Method Not Allowed" }, { 408, "Request Timeout" },
        { 413, "Content Too Large" }, { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" }, { 417, "Expectation Failed" },
        { 429, "Too Many Requests" }, { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" }, { 501, "Not Implemented" },
        { 503, "Service Unavailable" }, { 504, "Gateway Timeout" },
        { 505, "HTTP Version Not Supported" } };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].status == status)
            return all[i].reason;
    return "Error";
}
