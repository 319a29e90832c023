/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/log_queue.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"

#define LGQ_HEAD 8u

_Static_assert((LGQ_BYTES & (LGQ_BYTES - 1)) == 0, "positions are masked");

static uint64_t
lgq_stamp(uint64_t at, size_t n)
{
    return (at / 8 + 1) << 16 | n;
}

static uint64_t
lgq_span(size_t n)
{
    return LGQ_HEAD + ((n + 7) & ~(uint64_t)7);
}

static uint64_t *
lgq_head_at(const struct lgq *q, uint64_t at)
{
    return (uint64_t *)(uintptr_t)(q->data + (at & (LGQ_BYTES - 1)));
}

/* Length of the committed record at a position, or 0 if there is none. */
static size_t
lgq_length(const struct lgq *q, uint64_t at)
{
    uint64_t v = __atomic_load_n(lgq_head_at(q, at), __ATOMIC_SEQ_CST);
    size_t n = v & 0xffff;

    return v == lgq_stamp(at, n) && n <= LGQ_LINE_BYTES ? n : 0;
}

static void
lgq_copy_in(struct lgq *q, uint64_t at, const char *p, size_t n)
{
    size_t off = at & (LGQ_BYTES - 1);
    size_t first = n < LGQ_BYTES - off ? n : LGQ_BYTES - off;

    memcpy(q->data + off, p, first);
    memcpy(q->data, p + first, n - first);
}

static void
lgq_copy_out(const struct lgq *q, uint64_t at, char *p, size_t n)
{
    size_t off = at & (LGQ_BYTES - 1);
    size_t first = n < LGQ_BYTES - off ? n : LGQ_BYTES - off;

    memcpy(p, q->data + off, first);
    memcpy(p + first, q->data, n - first);
}

static long
lgq_futex(uint32_t *word, int op, uint32_t val, const struct timespec *ts)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, val, ts, NULL, 0);
}

void
lgq_init(struct lgq *q)
{
    memset(q, 0, sizeof(*q));
}

static int
lgq_drop(struct lgq *q, uint64_t at)
{
    if (__atomic_fetch_add(&q->n_lost, 1, __ATOMIC_ACQ_REL) == 0)
        __atomic_store_n(&q->lost_at, at, __ATOMIC_RELEASE);
    return -ENOBUFS;
}

int
lgq_put(struct lgq *q, const char *line, size_t n)
{
    uint64_t at = __atomic_load_n(&q->tail, __ATOMIC_RELAXED);
    uint64_t span = lgq_span(n);

    if (n == 0 || n > LGQ_LINE_BYTES)
        return -EINVAL;
    do {
        /* pairs with lgq_release(): the old bytes have been read */
        uint64_t head = __atomic_load_n(&q->head, __ATOMIC_ACQUIRE);

        /* head past at: our tail is outdated, and the exchange fails */
        if ((int64_t)(at + span - head) > (int64_t)LGQ_BYTES)
            return lgq_drop(q, at);
    } while (!__atomic_compare_exchange_n(&q->tail, &at, at + span, 1, __ATOMIC_RELAXED,
        __ATOMIC_RELAXED));
    lgq_copy_in(q, at + LGQ_HEAD, line, n);
    /* Commit, then check the flag; the reader raises the flag, then checks for a
     * commit. So at least one of the two sees the other's store. */
    (void)__atomic_exchange_n(lgq_head_at(q, at), lgq_stamp(at, n), __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&q->asleep, __ATOMIC_SEQ_CST) != 0)
        lgq_wake(q);
    return 0;
}

/* Is an unreported loss at this position? */
static int
lgq_lost_here(const struct lgq *q, uint64_t at)
{
    return __atomic_load_n(&q->n_lost, __ATOMIC_ACQUIRE) != 0 &&
        __atomic_load_n(&q->lost_at, __ATOMIC_ACQUIRE) == at;
}

size_t
lgq_take(const struct lgq *q, char *ret, size_t ret_bytes, uint64_t *ret_next)
{
    uint64_t at = __atomic_load_n(&q->head, __ATOMIC_RELAXED);
    uint64_t tail = __atomic_load_n(&q->tail, __ATOMIC_RELAXED);
    size_t used = 0, n;

    if (tail - at > LGQ_BYTES || (at & 7) != 0)
        return 0;
    while (at < tail && (n = lgq_length(q, at)) != 0 && n <= ret_bytes - used &&
        lgq_span(n) <= tail - at && (used == 0 || !lgq_lost_here(q, at))) {
        lgq_copy_out(q, at + LGQ_HEAD, ret + used, n);
        used += n;
        at += lgq_span(n);
    }
    *ret_next = at;
    return used;
}

void
lgq_release(struct lgq *q, uint64_t next)
{
    __atomic_store_n(&q->head, next, __ATOMIC_RELEASE); /* pairs with lgq_put() */
}

uint64_t
lgq_lost(struct lgq *q)
{
    if (__atomic_load_n(&q->n_lost, __ATOMIC_ACQUIRE) == 0 ||
        __atomic_load_n(&q->head, __ATOMIC_RELAXED) <
            __atomic_load_n(&q->lost_at, __ATOMIC_ACQUIRE))
        return 0;
    return __atomic_exchange_n(&q->n_lost, 0, __ATOMIC_ACQ_REL);
}

void
lgq_wait(struct lgq *q, uint64_t timeout_ns)
{
    struct timespec ts = { .tv_sec = (time_t)(timeout_ns / CLK_S),
        .tv_nsec = (long)(timeout_ns % CLK_S) };

    __atomic_store_n(&q->asleep, 1, __ATOMIC_SEQ_CST);
    if (lgq_length(q, __atomic_load_n(&q->head, __ATOMIC_RELAXED)) == 0)
        (void)lgq_futex(&q->asleep, FUTEX_WAIT, 1, &ts);
    __atomic_store_n(&q->asleep, 0, __ATOMIC_RELAXED);
}

void
lgq_wake(struct lgq *q)
{
    if (__atomic_exchange_n(&q->asleep, 0, __ATOMIC_SEQ_CST) != 0)
        (void)lgq_futex(&q->asleep, FUTEX_WAKE, 1, NULL);
}

size_t
lgq_last(const struct lgq *q, char *ret, size_t ret_bytes)
{
    uint64_t tail = __atomic_load_n(&q->tail, __ATOMIC_RELAXED) & ~(uint64_t)7;
    uint64_t room = ret_bytes - 1 < LGQ_BYTES ? ret_bytes - 1 : LGQ_BYTES;
    uint64_t at = tail > room ? (tail - room + 7) & ~(uint64_t)7 : 0;
    size_t used = 0, n;

    while (at < tail) {
        n = lgq_length(q, at);
        if (n == 0 || lgq_span(n) > tail - at || n > ret_bytes - 1 - used) {
            at += 8;
            continue;
        }
        lgq_copy_out(q, at + LGQ_HEAD, ret + used, n);
        used += n;
        at += lgq_span(n);
    }
    ret[used] = '\0';
    return used;
}
