/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded single-producer single-consumer queues between the worker's
 * threads, and the bell a consumer sleeps on. Header only, since every push and
 * pop of the token path is inlined.
 *
 * Slots are 32 bytes: a message, or up to four {id, logprob} pairs that
 * continue the message before them (que_msg.n_top says how many pairs).
 * A message and its continuation are published together. Nothing allocates
 * after que_init().
 *
 * Waking follows fdring.h: the producer publishes with a sequentially
 * consistent exchange and then reads the flag; the consumer raises the flag
 * by an exchange, looks at all its queues once more and only then sleeps.
 * The flag itself is the futex word.
 */
#ifndef FDD_DAEMON_WORKER_QUEUE_H
#define FDD_DAEMON_WORKER_QUEUE_H

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/link.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "libclient/fdproto.h"
#include "libclient/fdring.h"

struct req;

/* ---- bell: one per consuming thread --------------------------------------
 * It is in the link segment, so that the gate can ring it too (lnk_ring). */

/* Consumer: raise the flag; look at every queue again, then que_sleep() or
 * que_unpark(). */
static inline void
que_park(struct lnk_cursor *b)
{
    fdr_flag_raise(&b->v, 1);
}

static inline void
que_unpark(struct lnk_cursor *b)
{
    fdr_flag_raise(&b->v, 0);
}

/* Sleep until the bell rings. Returns 1 if woken, 0 if timeout_ns passed. */
static inline int
que_sleep(struct lnk_cursor *b, uint64_t timeout_ns)
{
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
        .tv_nsec = (long)(timeout_ns % 1000000000u) };

    (void)syscall(SYS_futex, &b->v, FUTEX_WAIT, 1, &ts, NULL, 0);
    return __atomic_exchange_n(&b->v, 0, __ATOMIC_SEQ_CST) == 0;
}

/* ---- queue ------------------------------------------------------------------ */

enum que_kind {
    /* ingress to engine */
    QUE_ADD = 1, /* req: the engine may now run it; sent by egress if req_via_egress() */
    QUE_CANCEL,  /* idx, serial; a = FDP_E_* of the ERROR */
    /* egress to engine */
    QUE_STOP, /* idx, serial, sample: a stop string was found */
    /* ingress to egress */
    QUE_OPEN,   /* req: accepted, prompt known; QUE_ADD follows, unless done shows that it
                   ends without running */
    QUE_REFUSE, /* id: the request pool is full; a = code, other members as in QUE_FAIL */
    QUE_FAIL,   /* req: ends with error a = code before the engine got it;
                   idx = detail, x = arg, serial = limit, sample = item */
    QUE_ANSWER, /* req: non-generating request */
    QUE_READY,  /* send LNK_T_READY */
    QUE_STATE,  /* send LNK_T_STATE */
    /* ingress to encode, and back */
    QUE_TEXT, /* req, whose text is tokenized; back with a, x = rc, arg of struct enc_done */
    /* engine to egress */
    QUE_TOKEN, /* sample, a = token, x = output index, done; logprob */
    QUE_SCORE, /* prompt logprob: a = token, x = its position */
    QUE_END,   /* the engine no longer uses req: a = 0 or FDP_E_* */
    /* egress to ingress */
    QUE_FREED /* req: ingress frees it */
};

struct que_msg {
    union {
        struct req *req;
        uint64_t id; /* QUE_REFUSE: the gate's id of a request without struct req */
    };
    uint32_t idx; /* index in the request pool; or the detail of an error */
    union {
        uint32_t serial; /* req.serial of that request */
        int32_t done;    /* QUE_TOKEN, QUE_OPEN: FDK_DONE_* */
    };
    int32_t a;
    uint32_t x;
    uint16_t sample;
    uint8_t kind;  /* enum que_kind */
    uint8_t n_top; /* pairs that follow, or QUE_NO_LOGPROB */
    float logprob;
};
_Static_assert(sizeof(struct que_msg) == 32, "a message is one slot");

#define QUE_NO_LOGPROB   255
#define QUE_MAX_SLOTS    6  /* most slots of a message: 1 + FDP_MAX_LOGPROBS / 4 */
#define QUE_CHOSEN_SLOTS 16 /* more with chosen ids: FDP_MAX_LOGPROB_IDS / 4 */

union que_slot {
    struct que_msg m;
    struct fdp_logprob top[4];
};

struct que {
    uint32_t tail __attribute__((aligned(128))); /* written by the producer */
    uint32_t head __attribute__((aligned(128))); /* written by the consumer */
    struct fdr_prod p __attribute__((aligned(128)));
    struct fdr_cons c __attribute__((aligned(128)));
    struct lnk_cursor *bell __attribute__((aligned(128))); /* the consumer's */
    union que_slot *slots;
};

/* Allocate at least min_slots slots; bell may be NULL. Returns 0 or -ENOMEM. */
static inline int
que_init(struct que *q, uint32_t min_slots, struct lnk_cursor *bell)
{
    uint32_t n = 16;

    while (n < min_slots && n < (1u << 30))
        n *= 2;
    q->slots = mem_aligned(128, (size_t)n * sizeof(union que_slot));
    if (q->slots == NULL)
        return -ENOMEM;
    q->tail = q->head = 0;
    q->bell = bell;
    fdr_prod_init(&q->p, q->slots, &q->tail, &q->head, n, sizeof(union que_slot));
    fdr_cons_init(&q->c, q->slots, &q->tail, &q->head, n, sizeof(union que_slot));
    return 0;
}

static inline void
que_fini(struct que *q)
{
    free(q->slots);
    q->slots = NULL;
}

/* Producer: are want slots free? */
static inline int
que_has_room(struct que *q, uint32_t want)
{
    return fdr_prod_room(&q->p, want) >= (int64_t)want;
}

/* Producer: the next slot to fill; the caller has checked that there is room. The
 * consumer sees it after que_publish(). */
static inline union que_slot *
que_claim(struct que *q)
{
    ASSERT(fdr_prod_room(&q->p, 1) >= 1);
    return fdr_prod_slot(&q->p, q->p.tail++);
}

static inline void
que_publish(struct que *q)
{
    if (q->p.pub == q->p.tail)
        return;
    q->p.pub = q->p.tail;
    fdr_publish(&q->tail, q->p.tail);
    if (q->bell != NULL)
        lnk_ring(q->bell);
}

static inline void
que_push(struct que *q, const struct que_msg *m)
{
    que_claim(q)->m = *m;
    que_publish(q);
}

/* Consumer: number of slots ready; always reads the producer's cursor. */
static inline uint32_t
que_recheck(struct que *q)
{
    return (uint32_t)fdr_cons_recheck(&q->c);
}

/* Consumer: slot i of those ready. */
static inline const union que_slot *
que_peek(struct que *q, uint32_t i)
{
    return fdr_cons_slot(&q->c, q->c.head + i);
}

static inline void
que_pop(struct que *q, uint32_t n)
{
    fdr_cons_release(&q->c, n);
}

/* Slots of a message with n_top pairs. */
static inline uint32_t
que_slots(uint8_t n_top)
{
    return n_top == QUE_NO_LOGPROB ? 1 : 1 + (n_top + 3u) / 4;
}

#endif
