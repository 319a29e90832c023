/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/route.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http/conn.h"

struct route {
    enum h1_method method;
    const char *method_name, *path;
    void (*fn)(struct conn *c);
    int open;
};
static const struct route routes[] = {
#define ROUTE(method, path, fn, open) { H1_##method, #method, path, fn, open },
#include "http/tbl/routes.h"
#undef ROUTE
};
#define N_ROUTES (sizeof(routes) / sizeof(routes[0]))
_Static_assert(N_ROUTES < MET_PATHS, "metrics has a place for each");

const char *
rt_path(unsigned path)
{
    return path < N_ROUTES ? routes[path].path : "other";
}

void
rt_error(const char *path, const struct problem *p, struct buf *b)
{
    if (strncmp(path, "/v1/messages", 12) == 0)
        prb_json_messages(p, b);
    else
        prb_json(p, b);
}

/* The path without http.root_path. */
static struct h1_str
own_path(const struct conn *c)
{
    const char *root = c->g->par->http_root_path;
    struct h1_str p = c->h.path;
    size_t n = strlen(root);

    if (n > 0 && p.n > n && memcmp(c->in.p + p.at, root, n) == 0 &&
        c->in.p[p.at + n] == '/') {
        p.at += (uint32_t)n;
        p.n -= (uint32_t)n;
    }
    return p;
}

static int
fits(const struct conn *c, struct h1_str p, const struct route *r)
{
    size_t n = strlen(r->path);
    const char *text = c->in.p + p.at;

    if (n > 1 && r->path[n - 1] == '/')
        return p.n > n && memcmp(text, r->path, n) == 0;
    return p.n == n && memcmp(text, r->path, n) == 0;
}

int
rt_tail(const struct conn *c, char *ret, int ret_bytes)
{
    struct h1_str p = own_path(c);
    const char *s = c->in.p + p.at + strlen(routes[c->path].path),
               *end = c->in.p + p.at + p.n;
    int n = 0;

    while (s < end && n + 1 < ret_bytes) {
        int v = (unsigned char)*s;

        if (*s == '%') {
            if (end - s < 3 || buf_hex(s[1]) < 0 || buf_hex(s[2]) < 0)
                return -1;
            v = buf_hex(s[1]) * 16 + buf_hex(s[2]);
            s += 2;
        }
        s++;
        if (v == 0)
            return -1;
        ret[n++] = (char)v;
    }
    ret[n] = '\0';
    return s == end ? n : -1;
}

/* ---- access ---------------------------------------------------------------------------- */

/* Without keys, refuse a Host that does not name this machine: a page of another site
 * could reach it by a name of that site that resolves to this machine (DNS rebinding). */
static int
check_host(const struct conn *c, struct problem *bad)
{
    const char *host = c->in.p + c->h.host.at;

    if (c->g->keys->in_use || c->is_unix || c->h.host.n == 0 ||
        lis_is_local_name(host, c->h.host.n))
        return 0;
    return prb_set(bad, 403, "host_not_local",
        "the Host header does not name this machine; without keys only localhost, 127.0.0.1 "
        "and [::1] are served");
}

static int
check_key(struct conn *c, struct problem *bad)
{
    const char *p = c->in.p + c->h.authorization.at;
    uint32_t n = c->h.authorization.n;

    if (!c->g->keys->in_use)
        return 0;
    if (n > 7 && strncasecmp(p, "Bearer ", 7) == 0) {
        p += 7;
        n -= 7;
        for (; n > 0 && *p == ' '; n--)
            p++;
    } else if (n == 0 && c->h.api_key.n > 0) {
        p = c->in.p + c->h.api_key.at;
        n = c->h.api_key.n;
    } else {
        n = 0;
    }
    if (n == 0)
        return prb_set(bad, 401, "invalid_api_key",
            "no API key; send the header Authorization: Bearer KEY");
    c->key = keys_find(c->g->keys, p, n);
    return c->key != NULL
        ? 0
        : prb_set(bad, 401, "invalid_api_key", "the API key is not known");
}

/* Accept only JSON: a page of another site can send forms here, but JSON only after a
 * CORS preflight. */
static int
check_type(const struct conn *c, struct problem *bad)
{
    const char *p = c->in.p + c->h.content_type.at, *semi;
    struct h1_str s = c->h.content_type;

    if (c->h.method != H1_POST)
        return 0;
    semi = memchr(p, ';', s.n);
    if (semi != NULL)
        s.n = (uint32_t)(semi - p);
    while (s.n > 0 && (p[s.n - 1] == ' ' || p[s.n - 1] == '\t'))
        s.n--;
    return h1_same(c->in.p, s, "application/json")
        ? 0
        : prb_set(bad, 415, "content_type",
              "the body must be JSON, with the header Content-Type: application/json");
}

static int
not_found(const struct conn *c, struct problem *bad)
{
    static const char *const known[] = { "/v1/embeddings", "/v1/audio/transcriptions",
        "/v1/images/generations", "/v1/moderations", "/v1/files", "/v1/batches",
        "/v1/rerank", "/v1/score", "/pooling" };
    struct h1_str p = own_path(c);

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strlen(known[i]) == p.n && memcmp(known[i], c->in.p + p.at, p.n) == 0)
            return prb_set(bad, 404, "not_offered",
                "fdd-http does not offer %s; it has /v1/chat/completions, /v1/completions, "
                "/v1/responses, /v1/messages and /v1/models",
                known[i]);
    return prb_set(bad, 404, "unknown_path",
        "no such path; there are /v1/chat/completions, /v1/completions, /v1/responses, "
        "/v1/messages, /v1/models, /tokenize, /detokenize, /health, /version, /metrics and the page "
        "at /");
}

void
rt_handle(struct conn *c)
{
    struct h1_str p = own_path(c);
    const struct route *other = NULL;
    struct problem bad = { .status = 0 };
    char headers[64];

    for (c->path = 0; c->path < N_ROUTES; c->path++) {
        const struct route *r = &routes[c->path];

        if (!fits(c, p, r))
            continue;
        if (r->method == c->h.method || (r->method == H1_GET && c->h.method == H1_HEAD)) {
            if (check_host(c, &bad) == 0 && (r->open || check_key(c, &bad) == 0) &&
                check_type(c, &bad) == 0)
                r->fn(c);
            else
                conn_problem(c, &bad);
            return;
        }
        other = r;
    }
    c->path = MET_PATHS - 1;
    if (other == NULL) {
        (void)not_found(c, &bad);
        conn_problem(c, &bad);
        return;
    }
    (void)prb_set(&bad, 405, "method", "%s takes only %s", other->path, other->method_name);
    {
        struct buf b = { NULL };

        (void)snprintf(headers, sizeof(headers), "Allow: %s\r\n", other->method_name);
        rt_error(other->path, &bad, &b);
        conn_reply(c, 405, "application/json", headers, b.p, b.n);
        buf_fini(&b);
    }
}
