/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: reads requests (h1.h), hands each to its route, sends the answer. A
 * connection has one request at a time; what a client sends ahead waits in the socket.
 *
 * A handler answers at once (conn_reply()), or later: it sets c->work and c->drop, and
 * calls conn_reply() or conn_stream() ... conn_end() when it can. If the client leaves
 * first, c->drop is called and the work must forget the connection.
 *
 * What is sent is queued in c->out and goes out at the end of the loop iteration, so that a
 * stream has one send() for all that came for it. The memory of c->out is the loop's: it
 * goes from answer to answer, and stays with one whose client has not taken all.
 */
#ifndef FDD_HTTP_CONN_H
#define FDD_HTTP_CONN_H

#include <stdint.h>

#include "http/buf.h"
#include "http/gateway.h"
#include "http/h1.h"
#include "http/problem.h"

enum conn_state {
    CN_HEAD,  /* a request's head, or none of it yet */
    CN_BODY,  /* its body */
    CN_BUSY,  /* its answer is being made */
    CN_LINGER /* all is sent, what still comes is thrown away */
};

struct conn {
    /* What each event of a stream needs comes first, in few cache lines. */
    struct gw *g;
    STAILQ_ENTRY(conn) next_dirty;
    void *work;
    void (*flush)(struct conn *c); /* a stream: put what is pending into out */
    struct buf out;                /* the answer; without memory when all is sent */
    size_t out_at;                 /* sent so far */
    uint64_t sent_ms;              /* last time the client took something */
    uint64_t sent;                 /* bytes of this answer */
    int fd;
    enum conn_state state;
    uint32_t events; /* of epoll, as registered */
    int is_dirty, is_dead;
    int is_behind; /* something is pending, and waits until out is sent */
    int is_paced;  /* the rest of its body waits for the next millisecond */
    int status, is_streaming, is_chunked, is_over, must_close;
    int is_slow; /* its reader has left too much untaken: it is closed */

    void (*drop)(struct conn *c);
    void (*tick)(struct conn *c); /* a few times a second while it works */
    struct conn *prev, *next, *next_dead, *next_paced;
    int is_unix;

    /* the request */
    struct buf in;  /* the head, then what follows it */
    size_t scanned; /* see h1_head() */
    size_t head_n;
    struct h1 h;
    struct h1_chunks chunks;
    struct buf chunked; /* the body, if it came so */
    const char *body;   /* valid until conn_forget() */
    size_t body_n;
    unsigned path;     /* index in tbl/routes.h */
    struct key *key;   /* whose; NULL without keys */
    char id[130];      /* X-Request-Id as it came; "" */
    char peer[48];     /* address, "unix" or "unix:UID" */
    char group[48];    /* the address, or the /64 of IPv6, that counts its connections */
    uint64_t user;     /* whom it counts under without keys; 0: fdd-http itself */
    size_t held;       /* bytes of a long body, as counted in g->sh->held */
    uint64_t began_ms; /* the request's first byte, or since when there is none */
    uint64_t body_ms;  /* its body's begin */
};

/* Take over an accepted socket. */
void conn_new(struct gw *g, int fd, int is_unix);
/* What epoll says of it. */
void conn_event(struct conn *c, uint32_t events);
/* Read on bodies that waited for this millisecond. */
void conn_resume(struct gw *g);
/* Deadlines; a few times a second. 1: it ends, or has something to send. */
int conn_tick(struct conn *c);
/* At the end of a loop iteration: put what is pending into out; then send it. */
void conn_fill(struct conn *c);
void conn_send(struct conn *c);
/* Something is to be sent: conn_fill() and conn_send() will come. */
void conn_dirty(struct conn *c);
/* Close now; its memory stays until conn_free(). */
void conn_kill(struct conn *c);
void conn_free(struct conn *c);

/* For handlers. */

/* The request's body is not needed any more. */
void conn_forget(struct conn *c);
/* Take the body over, to read it elsewhere; the request is not needed any more. *ret_at:
 * where it begins in *ret. Its bytes count on as held until conn_put_back(). */
void conn_take_body(struct conn *c, struct buf *ret, size_t *ret_at, size_t *ret_held);
void conn_put_back(struct gw *g, size_t held);
/* A whole answer. headers: further ones with their line ends, or NULL. */
void conn_reply(struct conn *c, int status, const char *type, const char *headers,
    const void *body, size_t n);
void conn_problem(struct conn *c, const struct problem *p);
/* The head of a stream of events; then pieces of it; then its end. */
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
