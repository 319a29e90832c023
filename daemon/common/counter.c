/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/counter.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/common/mem.h"

static const struct cnt_row cnt_rows[] = {
#define CNT_GATE(name, kind, unit, help) \
    { #name, unit, help, CNT_##kind, 0, offsetof(struct cnt_seg, g.name) },
#define CNT_WORKER(name, kind, unit, help) \
    { #name, unit, help, CNT_##kind, 1, offsetof(struct cnt_seg, w.name) },
#include "daemon/tbl/counters.h"
#undef CNT_GATE
#undef CNT_WORKER
};

int
cnt_fits(const struct cnt_seg *seg)
{
    return __atomic_load_n(&seg->magic, __ATOMIC_ACQUIRE) == CNT_MAGIC &&
        seg->version == CNT_VERSION && seg->n_gate == CNT_N_GATE &&
        seg->n_worker == CNT_N_WORKER && seg->n_hist == CNT_H__N;
}

int
cnt_look(int fd, const struct cnt_seg **ret_seg)
{
    size_t most = cnt_bytes(CNT_MAX_GROUPS), n;
    const struct cnt_seg *seg;
    const void *file;
    struct stat st;
    void *p;
    int rc;

    if (fstat(fd, &st) != 0)
        return -errno;
    n = (size_t)st.st_size / sizeof(*seg);
    if (n == 0 || n > CNT_MAX_GROUPS || (size_t)st.st_size != cnt_bytes((uint32_t)n))
        return -EPROTO;
    rc = mem_look(fd, (size_t)st.st_size, &file);
    if (rc != 0)
        return rc;
    (void)munmap((void *)(uintptr_t)file, (size_t)st.st_size);
    p = mmap(NULL, most, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -errno;
    seg = p;
    if (mmap(p, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        rc = -errno;
    else if (!cnt_fits(seg) || seg->n_group != n)
        rc = -EPROTO;
    if (rc != 0)
        (void)munmap(p, most);
    else
        *ret_seg = seg;
    return rc;
}

void
cnt_unlook(const struct cnt_seg *seg)
{
    (void)munmap((void *)(uintptr_t)seg, cnt_bytes(CNT_MAX_GROUPS));
}

size_t
cnt_count(void)
{
    return sizeof(cnt_rows) / sizeof(cnt_rows[0]);
}

/* Is the maximum over groups taken, since a sum makes no sense? */
static int
cnt_is_alike(size_t offset)
{
    return offset == offsetof(struct cnt_seg, w.kv_block_tokens) ||
        offset == offsetof(struct cnt_seg, w.load_ns);
}

/* Is it a histogram of the gate's loop? The first element has those. */
static int
cnt_is_loop(size_t i)
{
    return i == CNT_H_loop_ns || i == CNT_H_loop_wall_ns;
}

static void
cnt_add_group(const struct cnt_seg *seg, struct cnt_seg *ret)
{
    for (size_t i = 0; i < cnt_count(); i++) {
        const struct cnt_row *row = cnt_row(i);
        uint64_t *to = (void *)((char *)ret + row->offset);
        uint64_t v = cnt_get((const void *)((const char *)seg + row->offset));

        if (!row->worker)
            continue;
        if (cnt_is_alike(row->offset))
            *to = v > *to ? v : *to;
        else
            *to += v;
    }
    for (size_t i = 0; i < CNT_H__N; i++) {
        if (cnt_is_loop(i))
            continue;
        ret->h[i].sum += cnt_get(&seg->h[i].sum);
        for (uint32_t b = 0; b < CNT_MAX_BUCKET; b++)
            ret->h[i].bucket[b] += cnt_get(&seg->h[i].bucket[b]);
    }
}

int
cnt_of_group(const struct cnt_seg *seg, uint32_t group, struct cnt_seg *ret)
{
    uint32_t n = cnt_n_group(seg), from = group == CNT_ALL_GROUPS ? 0 : group;
    uint32_t to = group == CNT_ALL_GROUPS ? n : group + 1;

    if (from >= n)
        return -ENOENT;
    *ret = seg[0];
    ret->worker_pid = seg[from].worker_pid;
    ret->generation = 0;
    ret->n_group = 1;
    for (uint32_t i = from; i < to; i++)
        ret->generation += seg[i].generation;
    if (n == 1)
        return 0;
    ret->w = (struct cnt_worker){ .steps = 0 };
    for (size_t i = 0; i < CNT_H__N; i++) {
        if (!cnt_is_loop(i))
            ret->h[i] = (struct cnt_hist){ .sum = 0 };
    }
    for (; from < to; from++)
        cnt_add_group(&seg[from], ret);
    return 0;
}

const struct cnt_row *
cnt_row(size_t i)
{
    return i < cnt_count() ? &cnt_rows[i] : NULL;
}

/* ---- histograms ---------------------------------------------------------------------- */

#define US(n) ((n)*1000ull)
#define MS(n) ((n)*1000000ull)
#define S(n)  ((n)*1000000000ull)

static const uint64_t cnt_bounds_ttft[] = { US(50), US(100), US(250), US(500), MS(1),
    US(2500), MS(5), MS(10), MS(20), MS(40), MS(60), MS(80), MS(100), MS(250), MS(500),
    MS(750), S(1), MS(2500), S(5), MS(7500), S(10), S(20), S(40), S(80), S(160), S(640),
    S(2560) };
static const uint64_t cnt_bounds_itl[] = { US(50), US(100), US(250), US(500), MS(1),
    US(2500), MS(5), MS(10), MS(25), MS(50), MS(75), MS(100), MS(150), MS(200), MS(300),
    MS(400), MS(500), MS(750), S(1), MS(2500), S(5), MS(7500), S(10), S(20), S(40), S(80) };
static const uint64_t cnt_bounds_request[] = { MS(1), MS(5), MS(10), MS(25), MS(50),
    MS(100), MS(200), MS(300), MS(500), MS(800), S(1), MS(1500), S(2), MS(2500), S(5),
    S(10), S(15), S(20), S(30), S(40), S(50), S(60), S(120), S(240), S(480), S(960),
    S(1920), S(7680) };
static const uint64_t cnt_bounds_tokens[] = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000,
    2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000 };
static const uint64_t cnt_bounds_n[] = { 1, 2, 5, 10, 20 };
static const uint64_t cnt_bounds_step[] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
    4096, 8192, 16384 };
static const uint64_t cnt_bounds_fine[] = { US(1), US(2), US(5), US(10), US(20), US(50),
    US(100), US(200), US(500), MS(1), MS(2), MS(5), MS(10), MS(20), MS(50), MS(100),
    MS(200), MS(500), S(1), S(5) };
static const uint64_t cnt_bounds_loop[] = { US(100), US(200), US(300), US(500), US(700),
    MS(1), US(1500), MS(2), MS(3), MS(5), MS(7), MS(10), MS(15), MS(20), MS(30), MS(50),
    MS(70), MS(100), MS(200), MS(300), MS(500), S(1), S(2), S(5), S(10), S(30) };

static const struct cnt_hist_row cnt_hist_rows[] = {
#define CNT_HIST(name, unit, bounds, help) \
    { #name, #unit, help, cnt_bounds_##bounds, \
        sizeof(cnt_bounds_##bounds) / sizeof(cnt_bounds_##bounds[0]) },
#include "daemon/tbl/histograms.h"
#undef CNT_HIST
};
_Static_assert(sizeof(cnt_bounds_request) / sizeof(uint64_t) < CNT_MAX_BUCKET, "room");
_Static_assert(sizeof(cnt_bounds_ttft) / sizeof(uint64_t) < CNT_MAX_BUCKET, "room");

const struct cnt_hist_row *
cnt_hist_row(size_t i)
{
    return i < CNT_H__N ? &cnt_hist_rows[i] : NULL;
}

void
cnt_see(struct cnt_hist *h, enum cnt_hist_idx i, uint64_t v, uint64_t n)
{
    const struct cnt_hist_row *row = &cnt_hist_rows[i];
    uint32_t b = 0;

    if (h == NULL || n == 0)
        return;
    while (b < row->n_bound && v > row->bound[b])
        b++;
    cnt_add(&h[i].sum, v * n);
    cnt_add(&h[i].bucket[b], n);
}

uint64_t
cnt_hist_count(const struct cnt_hist_row *row, const uint64_t *bucket)
{
    uint64_t n = 0;

    for (uint32_t b = 0; b <= row->n_bound; b++)
        n += bucket[b];
    return n;
}

double
cnt_hist_quantile(const struct cnt_hist_row *row, const uint64_t *bucket, double q)
{
    double rank = q * (double)cnt_hist_count(row, bucket), below = 0, from, in;

    if (!(rank >= 0) || cnt_hist_count(row, bucket) == 0)
        return -1;
    for (uint32_t b = 0; b < row->n_bound; b++) {
        in = (double)bucket[b];
        if (in > 0 && below + in >= rank) {
            from = b > 0 ? (double)row->bound[b - 1] : 0;
            return from + ((double)row->bound[b] - from) * (rank - below) / in;
        }
        below += in;
    }
    return HUGE_VAL;
}
