/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 requests out of bytes. Strict: what two readers could take for different
 * requests is refused with 400, and the connection is closed behind it. Pure functions.
 *
 * Refused: bare CR or LF, NUL and other controls, blanks around a header's name, folded
 * lines, two of a header that frames or names the request, Content-Length next to
 * Transfer-Encoding, a Content-Length that is not digits alone, any transfer coding but
 * chunked, chunk extensions and trailers, a missing or second Host, a target that is not a
 * path.
 */
#ifndef FDD_HTTP_H1_H
#define FDD_HTTP_H1_H

#include <stddef.h>
#include <stdint.h>

#include "http/buf.h"

#define H1_MAX_LINE    8192 /* of the request */
#define H1_MAX_HEADERS 100

enum h1_method { H1_GET, H1_HEAD, H1_POST, H1_OPTIONS, H1_OTHER };

struct h1_str { /* of the head */
    uint32_t at, n;
};

struct h1 {
    enum h1_method method;
    int minor; /* HTTP/1.minor */
    struct h1_str path, query;
    struct h1_str host, authorization, api_key, content_type, request_id, origin;
    uint64_t length; /* of the body, without chunked */
    int has_length, chunked, keep_alive, wants_continue;
    uint32_t seen;   /* headers that may come once */
    const char *why; /* of a refusal: one sentence */
};

/* The head at p. > 0: its bytes; 0: not all of it is there; < 0: minus the status with
 * which it is refused. *scanned says how far earlier calls looked, 0 at first. */
int h1_head(struct h1 *h, const char *p, size_t n, size_t max_bytes, size_t *scanned);

/* Does the header, whose value is at s of the head p, hold this text, case aside? */
int h1_same(const char *p, struct h1_str s, const char *text);

struct h1_chunks {
    int state;
    unsigned digits;
    uint64_t left;
};

/* More of a chunked body, of which data goes to body. 1: it has ended; 0: not yet; < 0:
 * minus a status (413: more than max_body). *used: bytes taken. */
int h1_chunk(struct h1_chunks *c, const char *p, size_t n, size_t *used, struct buf *body,
    size_t max_body, const char **ret_why);

const char *h1_reason(int status);

#endif
