/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "http/route.h"

#define CN_READ      GW_SCRATCH    /* most bytes read from a connection per iteration */
#define CN_DIRECT    4096          /* a body missing this many bytes is read in place */
#define CN_WHOLE     (1 << 20)     /* bytes read before a body is allocated in full */
#define CN_KEEP      512           /* bytes of the largest buffer kept between requests */
#define CN_OUT       16384         /* a larger buffer is not kept for the next answer */
#define CN_PACE      (4 * CN_READ) /* bytes of bodies read per ms while streams run */
#define CN_LINGER_MS 2000
#define CN_GRACE_MS  10000 /* time before http.min_body_rate_bytes applies to a body */

/* ---- beginning and end -------------------------------------------------------------- */

/* Set the connection's peer and group. An IPv4 address mapped to IPv6 is named as IPv4.
 * An IPv6 machine has all addresses of a /64, so these are one group. */
static void
name_address(struct conn *c, const struct in6_addr *a)
{
    struct in6_addr net = *a;

    if (IN6_IS_ADDR_V4MAPPED(a)) {
        (void)inet_ntop(AF_INET, &a->s6_addr[12], c->peer, sizeof(c->peer));
        memcpy(c->group, c->peer, sizeof(c->group));
        return;
    }
    (void)inet_ntop(AF_INET6, a, c->peer, sizeof(c->peer));
    if (!IN6_IS_ADDR_LOOPBACK(a))
        memset(&net.s6_addr[8], 0, 8);
    (void)inet_ntop(AF_INET6, &net, c->group, sizeof(c->group));
}

static void
name_peer(struct conn *c)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } a;
    socklen_t len = sizeof(a);
    struct ucred cred;
    socklen_t cred_len = sizeof(cred);

    memset(&a, 0, sizeof(a));
    (void)snprintf(c->peer, sizeof(c->peer), "unix");
    if (c->is_unix) {
        if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len) == 0) {
            (void)snprintf(c->peer, sizeof(c->peer), "unix:%u", (unsigned)cred.uid);
            c->user = cred.uid;
        }
        return;
    }
    (void)snprintf(c->peer, sizeof(c->peer), "?");
    memcpy(c->group, c->peer, sizeof(c->group));
    if (getpeername(c->fd, &a.sa, &len) != 0)
        return;
    if (a.sa.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a.in.sin_addr, c->peer, sizeof(c->peer));
        memcpy(c->group, c->peer, sizeof(c->group));
    } else {
        name_address(c, &a.in6.sin6_addr);
    }
    c->user = peer_user("address", c->group, strlen(c->group));
}

void
conn_new(struct gw *g, int fd, int is_unix)
{
    struct conn *c = calloc(1, sizeof(*c));
    struct epoll_event ev;
    int one = 1;

    if (c == NULL) {
        (void)close(fd);
        return;
    }
    c->g = g;
    c->fd = fd;
    c->is_unix = is_unix;
    c->began_ms = c->sent_ms = g->now_ms;
    name_peer(c);
    c->events = EPOLLIN | EPOLLRDHUP;
    ev = (struct epoll_event){ .events = c->events, .data.ptr = c };
    if (!is_unix &&
        peer_add(&g->sh->peers, c->group, (uint32_t)g->par->http_max_per_address) != 0) {
        g->met.refused++;
        (void)close(fd);
        free(c);
        return;
    }
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &ev) != 0) {
        if (!is_unix)
            peer_drop(&g->sh->peers, c->group);
        g->met.refused++;
        (void)close(fd);
        free(c);
        return;
    }
    if (!is_unix)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->next = g->conns;
    if (c->next != NULL)
        c->next->prev = c;
    g->conns = c;
    g->n_conn++;
    (void)atomic_fetch_add(&g->sh->n_conn, 1);
    g->met.accepted++;
}

static void
unlink_conn(struct conn *c)
{
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        c->g->conns = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    if (c->g->tick_at == c)
        c->g->tick_at = c->next;
    c->g->n_conn--;
    (void)atomic_fetch_sub(&c->g->sh->n_conn, 1);
    if (!c->is_unix)
        peer_drop(&c->g->sh->peers, c->group);
}

void
conn_kill(struct conn *c)
{
    if (c->is_dead)
        return;
    if (c->state == CN_BUSY && !c->is_over)
        c->g->met.left++;
    if (c->drop != NULL)
        c->drop(c);
    c->work = NULL;
    c->drop = c->flush = c->tick = NULL;
    c->is_dead = 1;
    for (struct conn **at = &c->g->paced; c->is_paced && *at != NULL;)
        if (*at == c)
            *at = c->next_paced;
        else
            at = &(*at)->next_paced;
    conn_put_back(c->g, c->held);
    c->held = 0;
    (void)close(c->fd);
    unlink_conn(c);
    c->next_dead = c->g->dead;
    c->g->dead = c;
}

void
conn_free(struct conn *c)
{
    buf_fini(&c->in);
    buf_fini(&c->chunked);
    buf_fini(&c->out);
    free(c);
}

void
conn_dirty(struct conn *c)
{
    if (c->is_dirty || c->is_dead)
        return;
    c->is_dirty = 1;
    STAILQ_INSERT_TAIL(&c->g->dirty, c, next_dirty);
}

static void
watch(struct conn *c, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = c };

    if (c->is_dead || c->events == events)
        return;
    c->events = events;
    (void)epoll_ctl(c->g->epoll, EPOLL_CTL_MOD, c->fd, &ev);
}

/* While a request is answered nothing is read, but a client that disconnects
 * is noticed. */
static void
watch_state(struct conn *c)
{
    uint32_t events = EPOLLRDHUP;

    if (c->state != CN_BUSY && !c->is_paced)
        events |= EPOLLIN;
    if (conn_unsent(c) > 0)
        events |= EPOLLOUT;
    watch(c, events);
}

/* ---- answers --------------------------------------------------------------------------- */

/* The client's time to take bytes counts from when there are some. */
static void
wait_begins(struct conn *c)
{
    if (conn_unsent(c) == 0)
        c->sent_ms = c->g->now_ms;
}

static void
put_head(struct conn *c, int status, const char *type, const char *headers)
{
    c->status = status;
    wait_begins(c);
    buf_fmt(&c->out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", status, h1_reason(status),
        type);
    if (c->id[0] != '\0')
        buf_fmt(&c->out, "X-Request-Id: %s\r\n", c->id);
    if (headers != NULL)
        buf_str(&c->out, headers);
    if (c->must_close || c->g->draining || (!c->h.keep_alive && c->h.minor == 1)) {
        buf_str(&c->out, "Connection: close\r\n");
        c->must_close = 1;
    } else if (c->h.minor == 0) {
        c->must_close = !c->h.keep_alive;
        if (c->h.keep_alive)
            buf_str(&c->out, "Connection: keep-alive\r\n");
    }
}

void
conn_reply(struct conn *c, int status, const char *type, const char *headers,
    const void *body, size_t n)
{
    put_head(c, status, type, headers);
    buf_fmt(&c->out, "Content-Length: %zu\r\n\r\n", n);
    if (c->h.method != H1_HEAD)
        buf_add(&c->out, body, n);
    c->is_over = 1;
    conn_dirty(c);
}

void
conn_problem(struct conn *c, const struct problem *p)
{
    struct buf b = { NULL };
    char headers[200] = "";

    if (p->status == 401)
        (void)snprintf(headers, sizeof(headers), "WWW-Authenticate: Bearer\r\n");
    else if (p->retry_ms != 0)
        (void)snprintf(headers, sizeof(headers),
            "Retry-After: %u\r\nretry-after-ms: %u\r\nx-should-retry: true\r\n",
            (p->retry_ms + 999) / 1000, p->retry_ms);
    else
        (void)snprintf(headers, sizeof(headers), "x-should-retry: false\r\n");
    rt_error(rt_path(c->path), p, &b);
    conn_reply(c, p->status, "application/json", headers, b.p, b.n);
    buf_fini(&b);
}

void
conn_stream(struct conn *c, const char *headers)
{
    c->is_streaming = 1;
    c->is_chunked = c->h.minor == 1;
    if (!c->is_chunked)
        c->must_close = 1;
    put_head(c, 200, "text/event-stream; charset=utf-8", headers);
    buf_str(&c->out, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    if (c->is_chunked)
        buf_str(&c->out, "Transfer-Encoding: chunked\r\n");
    buf_str(&c->out, "\r\n");
    conn_dirty(c);
}

/* Write the line before a chunk. Each event of a stream has one. */
static void
put_size(struct buf *b, size_t n)
{
    char text[2 * sizeof(n) + 2], *p = text + sizeof(text);

    *--p = '\n';
    *--p = '\r';
    do
        *--p = "0123456789abcdef"[n % 16];
    while ((n /= 16) != 0);
    buf_add(b, p, (size_t)(text + sizeof(text) - p));
}

void
conn_piece(struct conn *c, const struct buf *b)
{
    if (b->n == 0)
        return;
    wait_begins(c);
    if (c->is_chunked)
        put_size(&c->out, b->n);
    buf_add(&c->out, b->p, b->n);
    if (c->is_chunked)
        buf_add(&c->out, "\r\n", 2);
    conn_dirty(c);
}

void
conn_end(struct conn *c)
{
    if (c->is_chunked)
        buf_str(&c->out, "0\r\n\r\n");
    c->is_over = 1;
    conn_dirty(c);
}

static void
log_access(const struct conn *c)
{
    const struct log_field f[] = { LOG_S("peer", c->peer),
        LOG_S("key", c->key != NULL ? c->key->name : "-"),
        LOG_S("path", rt_path(c->path)), LOG_I("status", c->status),
        LOG_I("bytes", c->sent), LOG_I("ms", c->g->now_ms - c->began_ms),
        LOG_S("id", c->id[0] != '\0' ? c->id : "-") };

    log_fields(LOG_LV_INFO, LOG_F_UNLIMITED, "access: request", f, sizeof(f) / sizeof(f[0]));
}

/* The answer is sent: go on to the next request, or end the connection. */
static void
finish(struct conn *c)
{
    met_request(&c->g->met, c->path, c->status, c->g->now_ms - c->began_ms);
    if (c->g->par->log_access)
        log_access(c);
    c->work = NULL;
    c->drop = c->flush = c->tick = NULL;
    conn_forget(c);
    if (c->must_close) {
        /* Read the bytes that the client still sends: with unread bytes close() would
         * reset the connection, and the answer could be lost. */
        (void)shutdown(c->fd, SHUT_WR);
        c->state = CN_LINGER;
        c->began_ms = c->g->now_ms;
        buf_clear(&c->in, CN_KEEP);
        watch(c, EPOLLIN | EPOLLRDHUP);
        return;
    }
    c->state = CN_HEAD;
    c->is_streaming = c->is_chunked = c->is_over = 0;
    c->sent = 0;
    c->scanned = 0;
    c->key = NULL;
    c->id[0] = '\0';
    c->began_ms = c->g->now_ms;
    if (c->in.n == 0)
        buf_clear(&c->in, CN_KEEP);
}

static void advance(struct conn *c);

static void
borrow_out(struct conn *c)
{
    if (c->out.p == NULL && c->g->n_out > 0)
        c->out = c->g->out[--c->g->n_out];
}

/* Give the memory of out back to the loop: all of it is sent. */
static void
return_out(struct conn *c)
{
    c->out_at = 0;
    if (c->out.p == NULL || c->g->n_out == GW_FLUSH || c->out.room > CN_OUT) {
        buf_clear(&c->out, 0);
        return;
    }
    c->out.n = 0;
    c->g->out[c->g->n_out++] = c->out;
    c->out = (struct buf){ NULL };
}

void
conn_fill(struct conn *c)
{
    /* is_dirty stays set until the stream has put its events into out: these are sent in
     * this iteration, so that it need not be queued again. */
    if (c->is_dead)
        return;
    if (c->is_slow) {
        c->g->met.slow++;
        conn_kill(c);
        return;
    }
    c->is_behind = c->flush != NULL && conn_unsent(c) > 0;
    if (c->flush != NULL && !c->is_behind) {
        borrow_out(c);
        c->flush(c);
    }
    c->is_dirty = 0;
}

void
conn_send(struct conn *c)
{
    if (c->is_dead)
        return;
    if (c->out.failed) {
        conn_kill(c);
        return;
    }
    if (conn_unsent(c) > 0) {
        ssize_t n =
            send(c->fd, c->out.p + c->out_at, conn_unsent(c), MSG_NOSIGNAL | MSG_DONTWAIT);

        c->g->met.sends++;
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            conn_kill(c);
            return;
        }
        if (n > 0) {
            c->out_at += (size_t)n;
            c->sent += (uint64_t)n;
            c->g->met.bytes += (uint64_t)n;
            c->sent_ms = c->g->now_ms;
        }
    }
    if (conn_unsent(c) == 0) {
        return_out(c);
        if (c->is_over && c->state != CN_LINGER) {
            finish(c);
            if (c->state == CN_HEAD && c->in.n > 0)
                advance(c);
        } else {
            c->sent_ms = c->g->now_ms;
        }
        if (c->is_behind)
            conn_dirty(c);
    }
    watch_state(c);
}

/* ---- requests --------------------------------------------------------------------------- */

static int hold(struct conn *c);

void
conn_forget(struct conn *c)
{
    size_t n = c->head_n + (c->h.chunked ? 0 : (size_t)c->h.length);

    if (c->head_n == 0)
        return;
    buf_drop(&c->in, n);
    buf_clear(&c->chunked, 0);
    if (c->in.n == 0)
        buf_clear(&c->in, CN_KEEP);
    c->head_n = 0;
    c->body = NULL;
    c->body_n = 0;
    (void)hold(c);
}

/* The bytes of long bodies are counted over all connections. */
void
conn_put_back(struct gw *g, size_t held)
{
    if (held > 0)
        (void)atomic_fetch_sub(&g->sh->held, held);
}

/* Count the body bytes that the connection holds now. Returns 0; -ENOMEM: all connections
 * together hold too many. */
static int
hold(struct conn *c)
{
    size_t n = c->in.n + c->chunked.n, more;

    n = n > CN_READ ? n : 0;
    if (n <= c->held) {
        conn_put_back(c->g, c->held - n);
        c->held = n;
        return 0;
    }
    more = n - c->held;
    c->held = n;
    return atomic_fetch_add(&c->g->sh->held, more) + more >
            (uint64_t)c->g->par->http_max_bodies_bytes
        ? -ENOMEM
        : 0;
}

void
conn_take_body(struct conn *c, struct buf *ret, size_t *ret_at, size_t *ret_held)
{
    size_t end = c->head_n + (size_t)c->h.length;
    struct buf rest = { NULL };

    if (c->h.chunked) {
        *ret = c->chunked;
        *ret_at = 0;
        memset(&c->chunked, 0, sizeof(c->chunked));
    } else {
        if (c->in.n > end)
            buf_add(&rest, c->in.p + end, c->in.n - end);
        *ret = c->in;
        *ret_at = c->head_n;
        c->in = rest;
        c->head_n = 0;
        c->body = NULL;
        c->body_n = 0;
    }
    if (rest.failed)
        c->out.failed = 1;
    *ret_held = c->held;
    c->held = 0;
    conn_forget(c);
}

/* Refuse a malformed request and close: the bytes after it cannot be
 * understood either. */
static void
refuse(struct conn *c, int status, const char *why)
{
    struct problem p;

    (void)prb_set(&p, status, NULL, "%s", why);
    p.retry_ms = status == 503 ? 1000 : 0;
    c->must_close = 1;
    c->state = CN_BUSY;
    c->path = MET_PATHS - 1;
    c->h.method = H1_OTHER;
    conn_problem(c, &p);
}

static void
copy_id(struct conn *c)
{
    const char *p = c->in.p + c->h.request_id.at;
    uint32_t n = c->h.request_id.n;

    c->id[0] = '\0';
    if (n == 0 || n > 128)
        return;
    for (uint32_t i = 0; i < n; i++)
        if ((unsigned char)p[i] <= 0x20 || (unsigned char)p[i] > 0x7e)
            return;
    memcpy(c->id, p, n);
    c->id[n] = '\0';
}

/* Returns 1 if the head is complete; 0: more bytes are needed, or it was refused. */
static int
take_head(struct conn *c)
{
    const struct par *par = c->g->par;
    int n = h1_head(&c->h, c->in.p != NULL ? c->in.p : "", c->in.n,
        (size_t)par->http_max_header_bytes, &c->scanned);

    if (n == 0)
        return 0;
    if (n < 0) {
        refuse(c, -n, c->h.why);
        return 0;
    }
    c->head_n = (size_t)n;
    copy_id(c);
    if (c->h.length > (uint64_t)par->http_max_body_bytes) {
        refuse(c, 413, "the body is longer than http.max_body_bytes");
        return 0;
    }
    c->state = CN_BODY;
    c->body_ms = c->g->now_ms;
    memset(&c->chunks, 0, sizeof(c->chunks));
    if (c->h.wants_continue && c->in.n == c->head_n && (c->h.chunked || c->h.length > 0)) {
        buf_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        conn_dirty(c);
    }
    return 1;
}

static int
take_body(struct conn *c)
{
    size_t have = c->in.n - c->head_n, used = 0;
    const char *why = NULL;
    int rc;

    if (!c->h.chunked) {
        if (have < c->h.length)
            return 0;
        c->body = c->in.p + c->head_n;
        c->body_n = (size_t)c->h.length;
        return 1;
    }
    rc = h1_chunk(&c->chunks, c->in.p + c->head_n, have, &used, &c->chunked,
        (size_t)c->g->par->http_max_body_bytes, &why);
    if (rc < 0 || c->chunked.failed) {
        refuse(c, rc < 0 ? -rc : 503, rc < 0 ? why : "out of memory");
        return 0;
    }
    memmove(c->in.p + c->head_n, c->in.p + c->head_n + used, have - used);
    c->in.n -= used;
    if (rc == 0)
        return 0;
    c->body = c->chunked.p != NULL ? c->chunked.p : "";
    c->body_n = c->chunked.n;
    return 1;
}

static void
advance(struct conn *c)
{
    if (c->state == CN_HEAD && !take_head(c))
        return;
    if (c->state != CN_BODY || !take_body(c))
        return;
    c->state = CN_BUSY;
    c->sent_ms = c->g->now_ms;
    rt_handle(c);
    conn_dirty(c);
}

/* ---- events ------------------------------------------------------------------------------ */

/* Receive bytes: those of a body directly into its buffer, others through the loop's
 * buffer, so that a connection holds no more memory than it has bytes. */
static ssize_t
receive_bytes(struct conn *c)
{
    size_t end = c->head_n + (size_t)c->h.length, want = CN_READ;
    char *to = c->g->scratch;
    ssize_t n;

    if (c->state == CN_BODY && !c->h.chunked && end - c->in.n >= CN_DIRECT) {
        want = end - c->in.n < CN_READ ? end - c->in.n : CN_READ;
        to = buf_room(&c->in, c->in.n < CN_WHOLE ? want : end - c->in.n);
    }
    if (to == NULL) {
        errno = ENOMEM;
        return -1;
    }
    n = recv(c->fd, to, want, MSG_DONTWAIT);
    if (n > 0 && c->state != CN_LINGER) {
        if (to == c->g->scratch)
            buf_add(&c->in, to, (size_t)n);
        else
            c->in.n += (size_t)n;
    }
    return n;
}

/* Count n bytes of a long body. Once the limit of this millisecond is reached the rest
 * waits in the socket: read as fast as it comes, a body would take a whole processor, and
 * its sender another. */
static void
pace(struct conn *c, size_t n)
{
    struct gw *g = c->g;

    if (g->paced_ms != g->now_ms)
        g->paced_n = 0;
    g->paced_ms = g->now_ms;
    g->paced_n += n;
    if (g->paced_n < CN_PACE || g->met.streams == 0 || c->state != CN_BODY)
        return;
    g->met.paced++;
    c->is_paced = 1;
    c->next_paced = g->paced;
    g->paced = c;
}

void
conn_resume(struct gw *g)
{
    struct conn *c;

    while (g->paced_ms != g->now_ms && (c = g->paced) != NULL) {
        g->paced = c->next_paced;
        c->is_paced = 0;
        watch_state(c);
    }
}

static void
receive(struct conn *c)
{
    size_t was = c->in.n;
    ssize_t n = receive_bytes(c);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || c->in.failed) {
        conn_kill(c);
        return;
    }
    if (n <= 0 || c->state == CN_LINGER)
        return;
    if (hold(c) != 0) {
        c->g->met.refused++;
        refuse(c, 503, "all long bodies together are more than http.max_bodies_bytes");
        watch_state(c);
        return;
    }
    if (was == 0 && c->state == CN_HEAD)
        c->began_ms = c->g->now_ms;
    advance(c);
    if (c->state == CN_HEAD && c->in.n == 0)
        buf_clear(&c->in, CN_KEEP);
    pace(c, (size_t)n);
    watch_state(c);
}

void
conn_event(struct conn *c, uint32_t events)
{
    if (c->is_dead)
        return;
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        conn_kill(c);
        return;
    }
    if ((events & EPOLLOUT) != 0)
        conn_dirty(c);
    if ((events & EPOLLIN) != 0 && c->state != CN_BUSY)
        receive(c);
}

/* Does the body arrive too slowly? */
static int
is_dribble(const struct conn *c, uint64_t now)
{
    uint64_t got = c->h.chunked ? c->chunked.n : c->in.n - c->head_n;
    uint64_t ms = now - c->body_ms;

    return ms > CN_GRACE_MS &&
        got < (ms - CN_GRACE_MS) * (uint64_t)c->g->par->http_min_body_rate_bytes / 1000;
}

int
conn_tick(struct conn *c)
{
    const struct par *p = c->g->par;
    uint64_t now = c->g->now_ms, age = now - c->began_ms;

    if (conn_unsent(c) > 0 && now - c->sent_ms > (uint64_t)p->http_send_timeout_ms) {
        c->g->met.slow += c->is_streaming;
        conn_kill(c);
        return 1;
    }
    switch (c->state) {
    case CN_HEAD:
        if (c->in.n > 0 && age > (uint64_t)p->http_header_timeout_ms)
            refuse(c, 408, "the headers did not arrive within http.header_timeout_ms");
        else if (c->in.n == 0 &&
            (c->g->draining || age > (uint64_t)p->http_keep_alive_s * 1000))
            conn_kill(c);
        break;
    case CN_BODY:
        if (is_dribble(c, now))
            refuse(c, 408, "the body arrives more slowly than http.min_body_rate_bytes");
        break;
    case CN_BUSY:
        if (c->tick != NULL)
            c->tick(c);
        break;
    case CN_LINGER:
        if (age > CN_LINGER_MS)
            conn_kill(c);
        break;
    }
    return c->is_dead || c->is_dirty;
}
