/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: reads requests (h1.h), hands each to its route, sends the answer. A
 * connection has one request at a time; requests sent ahead wait in the socket.
 *
 * A handler answers at once (conn_reply()), or later: it sets c->work and c->drop, and
 * calls conn_reply() or conn_stream() ... conn_end() when it can. If the client
 * disconnects first, c->drop is called and the work must forget the connection.
 *
 * Output is queued in c->out and sent at the end of the loop iteration, so that a stream
 * has one send() for all events of the iteration. The memory of c->out is the loop's: it
 * is reused for the next answer once the client has taken all of this one.
 */
#ifndef FDD_HTTP_CONN_H
#define FDD_HTTP_CONN_H

#include <stdint.h>

#include "http/buf.h"
#include "http/gateway.h"
#include "http/h1.h"
#include "http/problem.h"

enum conn_state {
    CN_HEAD,  /* waits for a request's head, or the rest of it */
    CN_BODY,  /* reads the body */
    CN_BUSY,  /* the request is being answered */
    CN_LINGER /* all is sent; bytes that still come are discarded */
};

struct conn {
    /* Members that each event of a stream needs come first, in few cache lines. */
    struct gw *g;
    STAILQ_ENTRY(conn) next_dirty;
    void *work;
    void (*flush)(struct conn *c); /* of a stream: put its pending events into out */
    struct buf out;                /* the answer; without memory when all is sent */
    size_t out_at;                 /* sent so far */
    uint64_t sent_ms;              /* when the client last took bytes */
    uint64_t sent;                 /* bytes of this answer */
    int fd;
    enum conn_state state;
    uint32_t events; /* registered with epoll */
    int is_dirty, is_dead;
    int is_behind; /* events are pending and wait until out is sent */
    int is_paced;  /* the rest of its body waits for the next millisecond */
    int status, is_streaming, is_chunked, is_over, must_close;
    int is_slow; /* too much is unsent because the client does not read: to be closed */

    void (*drop)(struct conn *c);
    void (*tick)(struct conn *c); /* called a few times a second in CN_BUSY */
    struct conn *prev, *next, *next_dead, *next_paced;
    int is_unix;

    /* the request */
    struct buf in;  /* the head, then what follows it */
    size_t scanned; /* see h1_head() */
    size_t head_n;
    struct h1 h;
    struct h1_chunks chunks;
    struct buf chunked; /* the decoded body, if it came in chunks */
    const char *body;   /* valid until conn_forget() */
    size_t body_n;
    unsigned path;   /* index in tbl/routes.h */
    struct key *key; /* the key that the request presented; NULL without keys */
    char id[130];    /* X-Request-Id as it came; "" */
    char peer[48];   /* address, "unix" or "unix:UID" */
    char group[48];  /* address, or /64 of IPv6, whose connections are counted together */
    uint64_t user;   /* the daemon's user for it without keys; 0: fdd-http itself */
    size_t held;     /* bytes of a long body, as counted in g->sh->held */
    uint64_t began_ms; /* when the request's first byte came, or since when it is idle */
    uint64_t body_ms;  /* when reading its body began */
};

/* Take over an accepted socket. */
void conn_new(struct gw *g, int fd, int is_unix);
/* Handle events of epoll. */
void conn_event(struct conn *c, uint32_t events);
/* Go on reading bodies that waited for the next millisecond. */
void conn_resume(struct gw *g);
/* Check its deadlines; a few times a second. Returns 1 if it ends or has output. */
int conn_tick(struct conn *c);
/* At the end of a loop iteration: put pending events into out; then send out. */
void conn_fill(struct conn *c);
void conn_send(struct conn *c);
/* It has output: conn_fill() and conn_send() will be called for it. */
void conn_dirty(struct conn *c);
/* Close now; its memory stays until conn_free(). */
void conn_kill(struct conn *c);
void conn_free(struct conn *c);

/* For handlers. */

/* Free the request's body. */
void conn_forget(struct conn *c);
/* Take the body over, to read it on another thread, and forget the request. *ret_at:
 * where the body begins in *ret. *ret_held: bytes that count as held until
 * conn_put_back(). */
void conn_take_body(struct conn *c, struct buf *ret, size_t *ret_at, size_t *ret_held);
void conn_put_back(struct gw *g, size_t held);
/* Send a whole answer. headers: further headers with their line ends, or NULL. */
void conn_reply(struct conn *c, int status, const char *type, const char *headers,
    const void *body, size_t n);
void conn_problem(struct conn *c, const struct problem *p);
/* Send the head of a stream of events; then pieces of it; then its end. */
void conn_stream(struct conn *c, const char *headers);
void conn_piece(struct conn *c, const struct buf *b);
void conn_end(struct conn *c);
/* Bytes that the client has not taken. */
static inline size_t
conn_unsent(const struct conn *c)
{
    return c->out.n - c->out_at;
}

#endif
