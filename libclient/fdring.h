/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Single-producer single-consumer ring of 64- or 128-byte slots over memory that two
 * processes share. Header only; used by the client library, the gate, and between gate
 * and worker.
 *
 * Cursors are free-running u32 in slot units. The producer owns tail, the consumer owns
 * head; each keeps a private copy of its own cursor and of the other side's last seen
 * value. It reads the other side's shared word only when the ring looks full (producer)
 * or empty (consumer), so that the cache line does not bounce with every record.
 *
 * A record is 1 to n contiguous slots. A claim that would wrap is preceded by padding,
 * which the record format must be able to express; the rings of completions and of the
 * gate-worker link use struct fdp_rec with type FDP_T_PAD.
 *
 * The peer may be hostile: fdr_prod_room() and fdr_cons_avail() return -1 when the peer's
 * cursor is impossible (moved back, or beyond the ring's capacity), and nothing here uses
 * a length or an offset read from shared memory. Data of a hostile peer is copied once by
 * fdr_copy_in(), and only the copy is read.
 *
 * Parking (tests/model/doorbell.pml proves it): the side that wants to sleep raises its
 * flag by fdr_flag_raise(), checks the ring once more and only then sleeps; the other
 * side publishes with fdr_publish() and then reads the flag with fdr_flag_check(). The
 * sequentially consistent exchange and load order the store before the load on both
 * sides; without them each side may miss the other (store buffering).
 */
#ifndef FDD_LIBCLIENT_FDRING_H
#define FDD_LIBCLIENT_FDRING_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shared words: every access to shared memory goes through these ------ */

static inline uint32_t
fdr_load_acquire(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint32_t
fdr_load_relaxed(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline void
fdr_store_release(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static inline void
fdr_store_relaxed(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* Publish a cursor, followed by a full barrier; matches the sleeping side's
 * fdr_flag_raise(). */
static inline void
fdr_publish(uint32_t *p, uint32_t v)
{
    (void)__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

/* Raise (or lower) a parking flag, followed by a full barrier. */
static inline void
fdr_flag_raise(uint32_t *p, uint32_t v)
{
    (void)__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

/* Lower a raised parking flag. Of several wakers exactly one gets 1; the others get 0, as
 * all do when it is not raised. Call it after fdr_publish(), as fdr_flag_check(). */
static inline int
fdr_flag_lower(uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST) != 0 &&
        __atomic_exchange_n(p, 0, __ATOMIC_SEQ_CST) != 0;
}

/* Read the other side's parking flag. Call it after fdr_publish(). */
static inline uint32_t
fdr_flag_check(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

/* Copy n bytes (a multiple of 8, both sides 8-byte aligned) out of memory that another
 * process may be writing: each word is loaded exactly once. */
static inline void
fdr_copy_in(void *dst, const void *src, uint32_t n)
{
    unsigned char *d = (unsigned char *)dst;
    const uint64_t *s = (const uint64_t *)src;
    for (uint32_t i = 0; i < n / 8; i++) {
        uint64_t w = __atomic_load_n(&s[i], __ATOMIC_RELAXED);
        memcpy(d + (size_t)i * 8, &w, 8);
    }
}

/* ---- producer ------------------------------------------------------------ */

struct fdr_prod {
    unsigned char *slots;
    uint32_t *p_tail;       /* shared, we write */
    const uint32_t *p_head; /* shared, peer writes */
    uint32_t n_slot;        /* power of two */
    uint32_t slot_bytes;
    uint32_t tail; /* own cursor: next slot to claim */
    uint32_t pub;  /* own cursor as last published */
    uint32_t head; /* peer's cursor, last seen */
};

static inline void
fdr_prod_init(struct fdr_prod *p, void *slots, uint32_t *p_tail, const uint32_t *p_head,
    uint32_t n_slot, uint32_t slot_bytes)
{
    p->slots = (unsigned char *)slots;
    p->p_tail = p_tail;
    p->p_head = p_head;
    p->n_slot = n_slot;
    p->slot_bytes = slot_bytes;
    p->tail = p->pub = fdr_load_relaxed(p_tail);
    p->head = fdr_load_acquire(p_head);
}

/* Free slots as far as known; reads the peer's cursor when fewer than want are known to
 * be free. -1: the peer's cursor is impossible. */
static inline int64_t
fdr_prod_room(struct fdr_prod *p, uint32_t want)
{
    uint32_t used = p->tail - p->head;
    if (p->n_slot - used < want) {
        /* pairs with the release store in fdr_cons_release() */
        uint32_t h = fdr_load_acquire(p->p_head);
        if (h - p->head > used)
            return -1;
        p->head = h;
        used = p->tail - h;
    }
    return (int64_t)(p->n_slot - used);
}

/* Slots that a record of n slots takes at the current position, padding included. */
static inline uint32_t
fdr_prod_cost(const struct fdr_prod *p, uint32_t n)
{
    uint32_t at = p->tail & (p->n_slot - 1);
    return at + n > p->n_slot ? n + (p->n_slot - at) : n;
}

static inline void *
fdr_prod_slot(const struct fdr_prod *p, uint32_t idx)
{
    return p->slots + (size_t)(idx & (p->n_slot - 1)) * p->slot_bytes;
}

/* Make the claimed slots visible to the consumer. The cheap form, without a wake-up
 * check. */
static inline void
fdr_prod_commit(struct fdr_prod *p)
{
    if (p->pub != p->tail) {
        p->pub = p->tail;
        fdr_store_release(p->p_tail, p->tail);
    }
}

/* ---- consumer ------------------------------------------------------------ */

struct fdr_cons {
    const unsigned char *slots;
    const uint32_t *p_tail; /* shared, peer writes */
    uint32_t *p_head;       /* shared, we write */
    uint32_t n_slot;
    uint32_t slot_bytes;
    uint32_t head; /* own cursor */
    uint32_t tail; /* peer's cursor, last seen */
};

static inline void
fdr_cons_init(struct fdr_cons *c, const void *slots, const uint32_t *p_tail,
    uint32_t *p_head, uint32_t n_slot, uint32_t slot_bytes)
{
    c->slots = (const unsigned char *)slots;
    c->p_tail = p_tail;
    c->p_head = p_head;
    c->n_slot = n_slot;
    c->slot_bytes = slot_bytes;
    c->head = fdr_load_relaxed(p_head);
    c->tail = c->head;
}

/* Slots ready to read; reads the peer's cursor when none are known. -1: the peer's cursor
 * is impossible. */
static inline int64_t
fdr_cons_avail(struct fdr_cons *c)
{
    if (c->tail == c->head) {
        /* pairs with the release store in fdr_prod_commit() */
        uint32_t t = fdr_load_acquire(c->p_tail);
        /* Prefetch the next slot together with the cursor, not after it: this saves a
         * tenth of a round trip (tests/bench/b_ring). */
        __builtin_prefetch(c->slots + (size_t)(c->head & (c->n_slot - 1)) * c->slot_bytes);
        if (t - c->head > c->n_slot)
            return -1;
        c->tail = t;
    }
    return (int64_t)(uint32_t)(c->tail - c->head);
}

/* As fdr_cons_avail(), but always reads the peer's cursor. Used before parking. */
static inline int64_t
fdr_cons_recheck(struct fdr_cons *c)
{
    uint32_t t = __atomic_load_n(c->p_tail, __ATOMIC_SEQ_CST);
    if (t - c->head > c->n_slot || t - c->head < c->tail - c->head)
        return -1;
    c->tail = t;
    return (int64_t)(uint32_t)(t - c->head);
}

static inline const void *
fdr_cons_slot(const struct fdr_cons *c, uint32_t idx)
{
    return c->slots + (size_t)(idx & (c->n_slot - 1)) * c->slot_bytes;
}

/* Give n slots back to the producer. */
static inline void
fdr_cons_release(struct fdr_cons *c, uint32_t n)
{
    c->head += n;
    fdr_store_release(c->p_head, c->head);
}

#ifdef __cplusplus
}
#endif
#endif
