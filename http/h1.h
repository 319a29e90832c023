/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing of HTTP/1.1 requests. Strict: bytes that two parsers could read as different
 * requests are refused with 400, and the connection is closed afterwards. Pure functions.
 *
 * Refused: bare CR or LF, NUL and other controls, blanks around a header's name, folded
 * lines, a repeated header that frames or names the request, Content-Length together with
 * Transfer-Encoding, a Content-Length that is not only digits, any transfer coding but
 * chunked, chunk extensions and trailers, a missing or second Host, a target that is not
 * a path.
 */
#ifndef FDD_HTTP_H1_H
#define FDD_HTTP_H1_H

#include <stddef.h>
#include <stdint.h>

#include "http/buf.h"

#define H1_MAX_LINE    8192 /* bytes of the request line */
#define H1_MAX_HEADERS 100

enum h1_method { H1_GET, H1_HEAD, H1_POST, H1_OPTIONS, H1_OTHER };

struct h1_str { /* offset and bytes in the head */
    uint32_t at, n;
};

struct h1 {
    enum h1_method method;
    int minor; /* HTTP/1.minor */
    struct h1_str path, query;
    struct h1_str host, authorization, api_key, content_type, request_id, origin;
    uint64_t length; /* bytes of the body, unless it is chunked */
    int has_length, chunked, keep_alive, wants_continue;
    uint32_t seen;   /* bits of the headers seen that may not be repeated */
    const char *why; /* why it was refused: one sentence */
};

/* Parse the head at p. Returns its bytes; 0: it is not complete; < 0: minus the status
 * with which it is refused. *scanned: bytes that earlier calls have searched, 0
 * at first. */
int h1_head(struct h1 *h, const char *p, size_t n, size_t max_bytes, size_t *scanned);

/* Is the header's value, at s of the head p, this text, ignoring case? */
int h1_same(const char *p, struct h1_str s, const char *text);

struct h1_chunks {
    int state;
    unsigned digits;
    uint64_t left;
};

/* Decode n more bytes of a chunked body and add its data to body. Returns 1 if it has
 * ended; 0: not yet; < 0: minus a status (413: more than max_body). *used: bytes
 * consumed. */
int h1_chunk(struct h1_chunks *c, const char *p, size_t n, size_t *used, struct buf *body,
    size_t max_body, const char **ret_why);

const char *h1_reason(int status);

#endif
