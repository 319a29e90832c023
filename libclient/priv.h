/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal to libfdclient: the session and the request that the handles point to.
 *
 * Locks: mtx guards everything but the producer's side of the request ring and the arena,
 * which mtx_sq guards. mtx_sq may be taken with mtx held, never the other way round.
 *
 * One thread at a time sleeps on the completion ring ("parked" is its mark); it alone
 * writes cq_wait while it does. Other waiting threads each sleep on a futex of their own,
 * in struct waiter. The thread that holds mtx may drain the ring: the daemon has then
 * moved cq_tail past the value that the parked thread saw, so its FUTEX_WAIT returns.
 *
 * A request's tag is {generation, index into tags[]}. The entry stays taken until the
 * daemon's terminal record arrives, whether or not the handle still exists: the taken
 * entries are the requests that the daemon holds open for this session.
 *
 * The daemon's data is trusted, its geometry is checked: a record that does not fit ends
 * the session with FDP_E_PROTO.
 */
#ifndef FDD_LIBCLIENT_PRIV_H
#define FDD_LIBCLIENT_PRIV_H

#include <pthread.h>
#include <stdint.h>

#include "libclient/fdclient.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"
#include "libclient/reconnect.h"

#define FDC_MAGIC     0x43444601u
#define FDC_REQ_MAGIC 0x52444602u
#define FDC_PARK_NS   250000000ull /* a dead daemon wakes no futex: then check */
#define FDC_NEVER     UINT64_MAX   /* a deadline: none */
#define FDC_NOTHING   2            /* fdc__wait(): no request is open */
#define FDC_REQ_SLOT  128u
#define FDC_MAX_TAGS  65536u

/* Holds any record, header included. */
#define FDC_CHUNK_DATA (FDP_REC_MAX_SLOTS * FDP_SLOT)
struct chunk {
    struct chunk *next;
    uint32_t rd, wr; /* bytes */
    uint64_t data[FDC_CHUNK_DATA / 8];
};

struct tag_entry {
    struct fdc_req *req; /* NULL: handle freed, records are dropped */
    uint32_t gen;        /* never 0 */
    uint32_t next_free;  /* index + 1 of the next free entry, 0 at the end */
    uint8_t used;
    uint8_t cancel; /* a CANCEL is to be sent */
};

/* What a waiter waits for: something to read of one request, of any request; a free tag;
 * room in the request ring; a daemon. */
enum wait_kind { WAIT_REQ, WAIT_ANY, WAIT_TAG, WAIT_ROOM, WAIT_UP };
struct waiter {
    struct waiter *next;
    struct fdc_req *req;
    enum wait_kind kind;
    uint32_t wake; /* futex word, private */
};

struct fdc_req {
    uint32_t magic;
    uint32_t n; /* samples */
    struct fdc *s;
    uint64_t tag;
    struct fdc_req *all_prev, *all_next;
    struct fdc_req *rdy_prev, *rdy_next;
    struct chunk *first, *last;
    size_t unread; /* bytes queued */
    uint32_t n_waiter;
    uint8_t open;      /* the daemon may send more */
    uint8_t internal;  /* belongs to a blocking call, is not submitted yet or has an
                         exclusive reader: never in the ready list */
    uint8_t ready;     /* in the ready list */
    uint8_t lost;      /* open, without a tag: waits to be sent again */
    uint8_t cancelled; /* by fdc_cancel(): it is not sent again */
    uint8_t term;      /* 0, FDP_T_DONE or FDP_T_ERROR */
    uint8_t term_read;
    uint32_t sending;  /* has a tag, is not in the ring yet; guarded by mtx_sq, too */
    struct journal *j; /* NULL: it cannot be sent again */
    void *user;
    union {
        struct fdp_done done;
        struct fdp_error error;
    } end;
    const char *text; /* rest of a TEXT event, for fdc_read_text() */
    uint32_t text_len;
    uint32_t n_out[]; /* [n] output tokens so far */
};

enum { PARKED = 1, PARKED_ANY };

struct fdc {
    uint32_t magic;
    int32_t dead;              /* 0, or the status with which the session ended */
    uint32_t *alive;           /* 1; the kernel wipes it to 0 in a forked child */
    uint64_t pid;              /* process id where wiping is not available, else 0 */
    int sock, bell, ep, local; /* epoll set of sock and local, an eventfd */
    unsigned char *c2d;
    const unsigned char *d2c;
    struct fdp_welcome w;

    struct reopen re; /* guarded by mtx */

    pthread_mutex_t mtx_sq;
    struct fdr_prod sq;
    uint32_t *sq_wait;
    const uint32_t *need_wakeup;
    unsigned char *arena;
    uint32_t a_size, a_used, a_at; /* free space starts at a_at */
    uint32_t *a_span;              /* [sq slots] arena bytes of each slot's items */
    uint32_t a_retired;            /* ring cursor up to which spans were freed */

    pthread_mutex_t mtx;
    struct fdr_cons cq;
    uint32_t *cq_wait;
    const struct fdp_state *state;
    uint64_t spin_ns;
    uint64_t next_look; /* by the coarse clock: when a poll next looks for a hang-up */
    uint32_t max_unread;
    uint32_t flags; /* FDC_S_* */
    uint8_t parked; /* PARKED, PARKED_ANY: for any request */
    uint8_t fd_armed, eof;
    uint8_t room;       /* requests were taken since a thread asked for room */
    uint8_t wants_room; /* an event loop waits for room */
    uint8_t room_due;   /* it is to be told of room when fdc_dispatch() arms again */
    struct waiter *waiters;
    uint32_t n_any; /* waiters that any record may wake */
    struct tag_entry *tags;
    uint32_t n_tag, n_open, n_cancel;
    uint32_t tag_free; /* index + 1 of the first free tag, 0 = none */
    struct fdc_req *all, *rdy_first, *rdy_last;
    uint32_t n_ready;
    struct chunk *pool;          /* chunks that were given back */
    struct chunk *pool_base;     /* allocated at open, touched when needed */
    uint32_t pool_n, pool_fresh; /* its size; index of the first never used */
};

#pragma GCC visibility push(hidden)

/* A file calls only functions of the files listed before it. */

/* handle.c */
int fdc__check(const struct fdc *s); /* 0, FDP_E_INVAL or FDP_E_FORKED */
int fdc__check_req(const struct fdc_req *r);
uint64_t fdc__now(void);
uint64_t fdc__deadline(int timeout_ms);
int fdc__over(uint64_t deadline); /* 1: there is a limit and it has passed */

/* error.c */
/* Returns code if it is a failure that a daemon may send; else other: for a code that is
 * no failure, or one that only this library gives (AGAIN, TIMEOUT, ...), which callers
 * would misread. */
int fdc__told(int code, int other);

/* params.c */
struct ask { /* a request as described by the program */
    struct fdc_params p;
    struct fdc_submit_opts o;
    int has_lists; /* p has something that is sent as an item */
};
/* Copies the program's structs (NULL: defaults), which may be of an older or a newer
 * library. On failure opts->error_text has the reason. */
int fdc__read_ask(const struct fdc_params *p, const struct fdc_submit_opts *o,
    struct ask *ret);
/* Writes "E_ARENA: the request is larger than ...: " and the formatted text to
 * opts->error_text. Returns status. */
int fdc__explain(const struct fdc_submit_opts *o, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* record.c: returns 1 if the payload has the length that its type requires */
int fdc__payload_ok(const struct fdp_rec *h, const unsigned char *payload);

/* send.c: requests and their items */
struct blob { /* a request's items, whose size is computed before they are written */
    int type; /* type of the prompt item; 0: no prompt; -1: prompt holds whole items */
    const void *prompt;
    size_t prompt_bytes;
    const struct fdc_params *p; /* NULL: no items from parameters */
};
void fdc__fill_slot(struct fdp_req *slot, uint16_t op, const struct fdc_params *p,
    const struct fdc_submit_opts *o);
void fdc__fill_op(struct fdp_req *slot, uint16_t op, uint32_t flags);
/* Computes the bytes of its items. E_ARENA: they do not fit into the arena. *ret_bytes is
 * set in any case, saturated. */
int fdc__blob_bytes(const struct fdc *s, const struct blob *b, uint32_t *ret_bytes);
void fdc__write_items(const struct blob *b, unsigned char *dst, uint32_t bytes);
/* mtx_sq held. Writes a request and its items, of span bytes (b may be NULL with 0), to
 * the ring. E_FULL; E_ARENA: the arena is smaller than span; E_PROTO: sq_head is
 * impossible. fdc__publish() makes it visible to the daemon. */
int fdc__put(struct fdc *s, struct fdp_req *slot, const struct blob *b, uint32_t span);
void fdc__publish(struct fdc *s);
int fdc__push(struct fdc *s, struct fdp_req *slot, const struct blob *b, uint32_t span);
/* Rings the daemon's doorbell. */
void fdc__ring(const struct fdc *s);
/* mtx held. Sends the CANCELs that are due. E_PROTO: as fdc__push(), the session must
 * end. */
int fdc__flush_cancels(struct fdc *s);

/* tags.c: all with mtx held */
void fdc__wake_waiter(struct waiter *w);
void fdc__wake_for(struct fdc *s, const struct fdc_req *r); /* r NULL: wakes all */
void fdc__kick(struct fdc *s);         /* makes waiting threads check again */
void fdc__signal_local(struct fdc *s); /* makes fdc_fd() readable */
void fdc__signal_loop(struct fdc *s);  /* the same, if the descriptor is armed */
void fdc__ready(struct fdc_req *r);    /* r has something to read */
void fdc__append_ready(struct fdc *s, struct fdc_req *r);
void fdc__unready(struct fdc_req *r);
int fdc__tag_take(struct fdc *s, struct fdc_req *r);    /* 0: no tag is free */
void fdc__tag_untake(struct fdc *s, struct fdc_req *r); /* its request was not sent */
void fdc__tag_release(struct fdc *s, uint32_t i);       /* the daemon has ended it */
void fdc__end_error(struct fdc_req *r, const struct fdp_error *e);
void fdc__session_event(struct fdc *s, const void *payload, uint32_t len); /* of tag 0 */

/* poll.c */
int fdc__drain(struct fdc *s);           /* mtx held: records taken, or < 0 */
void fdc__queue_free(struct fdc_req *r); /* mtx held */
/* mtx held. Returns 1 if the condition holds, 0 at the deadline, FDC_NOTHING if no
 * request is open, or < 0 if the session is over. */
int fdc__wait(struct fdc *s, enum wait_kind kind, struct fdc_req *r, uint64_t deadline);
int fdc__next(struct fdc_req *r, struct fdc_event *ret_event, uint64_t deadline);
void fdc__look(struct fdc *s); /* mtx held: drain, notice a hang-up */
/* Sets how the daemon is to wake us; no thread is parked. 0: the ring has records. */
int fdc__arm(struct fdc *s);
int fdc__any_open(const struct fdc *s);

/* submit.c */
/* One request, ready to be sent. */
struct sub {
    struct fdp_req slot;
    struct blob b;
    uint32_t span; /* bytes that its items take */
    int internal;
    struct fdc_req *r;
};
/* Computes its size and makes its handle. */
int fdc__sub_init(struct fdc *s, struct sub *u, void *user);
/* Sends the first of u[0..n-1]. Returns how many, or the reason why none was sent. Frees
 * the handles of the others; *ret_why is the reason why the next one was not sent. */
int64_t fdc__send(struct fdc *s, struct sub *u, size_t n, int timeout_ms, int *ret_why);
void fdc__req_drop(struct fdc_req *r); /* mtx held: unlink, free */

#pragma GCC visibility pop

#endif
