/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters in the statistics segment: a memfd that the gate makes and hands out for
 * reading by the admin command stat_fd. Gate and workers each write their own section;
 * a worker inherits the descriptor.
 *
 * The memfd is an array of struct cnt_seg, one for each group, each complete. The gate
 * writes its counters, and the histograms of its loop, in the first element only.
 *
 * Plain uint64_t, written with relaxed atomics. Each counter has one writing thread
 * (cnt_add, cnt_set), or several that only add (cnt_add_shared). Two counters that a
 * reader sees may be from different moments.
 *
 * Histograms follow the counters: the sum of the values, and a count per range.
 * cnt_see() costs a few comparisons. Each histogram has one writing thread, of the gate
 * or of the worker.
 *
 * Layout: magic is stored last. A reader checks magic, version, n_gate, n_worker and
 * n_hist, then indexes by the tables it was built with.
 */
#ifndef FDD_DAEMON_COMMON_COUNTER_H
#define FDD_DAEMON_COMMON_COUNTER_H

#include <stddef.h>
#include <stdint.h>

#define CNT_MAGIC   0x54534446u
#define CNT_VERSION 3u
#define CNT_MEMFD   "fdd-stat" /* as /proc/PID/fd of the gate shows it */

struct cnt_gate {
#define CNT_GATE(name, kind, unit, help) uint64_t name;
#define CNT_WORKER(name, kind, unit, help)
#include "daemon/tbl/counters.h"
#undef CNT_GATE
#undef CNT_WORKER
};

struct cnt_worker {
#define CNT_GATE(name, kind, unit, help)
#define CNT_WORKER(name, kind, unit, help) uint64_t name;
#include "daemon/tbl/counters.h"
#undef CNT_GATE
#undef CNT_WORKER
};

#define CNT_N_GATE   (sizeof(struct cnt_gate) / sizeof(uint64_t))
#define CNT_N_WORKER (sizeof(struct cnt_worker) / sizeof(uint64_t))

/* Most ranges of a histogram; the last one has no upper bound. */
#define CNT_MAX_BUCKET 40

struct cnt_hist {
    uint64_t sum;
    uint64_t bucket[CNT_MAX_BUCKET]; /* not cumulative; row->n_bound + 1 are used */
};

enum cnt_hist_idx {
#define CNT_HIST(name, unit, bounds, help) CNT_H_##name,
#include "daemon/tbl/histograms.h"
#undef CNT_HIST
    CNT_H__N
};

struct cnt_seg {
    uint32_t magic, version;
    uint32_t n_gate, n_worker; /* CNT_N_GATE, CNT_N_WORKER of the writer */
    uint32_t n_hist;           /* CNT_H__N */
    uint32_t n_group;          /* elements of the array, set in group 0's */
    uint64_t boot_id[2];
    uint64_t t_start_ns;          /* CLOCK_REALTIME of the daemon's start */
    int32_t gate_pid, worker_pid; /* worker_pid 0: none now */
    uint64_t generation;          /* of the worker */
    char model[128];              /* name of the model served, "" before it is known */
    struct cnt_gate g __attribute__((aligned(128)));
    struct cnt_worker w __attribute__((aligned(128)));
    struct cnt_hist h[CNT_H__N] __attribute__((aligned(128)));
};

enum cnt_kind { CNT_counter, CNT_gauge };

/* One row of the table, in struct order. */
struct cnt_row {
    const char *name, *unit, *help;
    int kind;      /* enum cnt_kind */
    int worker;    /* 1: struct cnt_worker, 0: struct cnt_gate */
    size_t offset; /* in struct cnt_seg */
};
size_t cnt_count(void);
/* Is the segment complete and of the layout that this program was built with? */
int cnt_fits(const struct cnt_seg *seg);
#define CNT_MAX_GROUPS 32u
#define CNT_ALL_GROUPS UINT32_MAX
/* Bytes of the array for n groups. */
static inline size_t
cnt_bytes(uint32_t n_group)
{
    return n_group * sizeof(struct cnt_seg);
}
/* Map the array that fd refers to for reading. Elements up to CNT_MAX_GROUPS can be
 * read, whatever n_group the daemon writes later. 0; -EPROTO: not a statistics segment,
 * or of another version; else -errno. */
int cnt_look(int fd, const struct cnt_seg **ret_seg);
void cnt_unlook(const struct cnt_seg *seg);
/* How many elements may be read, whatever the daemon wrote. */
static inline uint32_t
cnt_n_group(const struct cnt_seg *seg)
{
    uint32_t n = __atomic_load_n(&seg->n_group, __ATOMIC_RELAXED);

    return n == 0 ? 1 : n < CNT_MAX_GROUPS ? n : CNT_MAX_GROUPS;
}
/* One segment for a group, or for CNT_ALL_GROUPS together: the gate's section with the
 * worker's of that group, or with the sums over all groups. Gauges and generation are
 * summed too; kv_block_tokens, the same in all, and load_ns are the maximum. -ENOENT:
 * no such group. */
int cnt_of_group(const struct cnt_seg *seg, uint32_t group, struct cnt_seg *ret);
const struct cnt_row *cnt_row(size_t i);

/* One histogram, in the order of enum cnt_hist_idx. */
struct cnt_hist_row {
    const char *name, *unit, *help;
    const uint64_t *bound; /* [n_bound] upper bounds, each within its range */
    uint32_t n_bound;
};
const struct cnt_hist_row *cnt_hist_row(size_t i); /* NULL: i is out of range */
/* Number of values in all buckets of a histogram. */
uint64_t cnt_hist_count(const struct cnt_hist_row *row, const uint64_t *bucket);
/* Quantile q (0..1) of the values, by interpolation within its range. HUGE_VAL: above
 * the last bound. -1: the histogram is empty. */
double cnt_hist_quantile(const struct cnt_hist_row *row, const uint64_t *bucket, double q);

/* Count value v n times. h is the segment's array; NULL: nothing is counted. */
void cnt_see(struct cnt_hist *h, enum cnt_hist_idx i, uint64_t v, uint64_t n);

static inline void
cnt_set(uint64_t *c, uint64_t v)
{
    __atomic_store_n(c, v, __ATOMIC_RELAXED);
}

static inline uint64_t
cnt_get(const uint64_t *c)
{
    return __atomic_load_n(c, __ATOMIC_RELAXED);
}

static inline void
cnt_add(uint64_t *c, uint64_t n)
{
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* For a counter of several threads, all of which use it. */
static inline void
cnt_add_shared(uint64_t *c, uint64_t n)
{
    (void)__atomic_fetch_add(c, n, __ATOMIC_RELAXED);
}

#endif
