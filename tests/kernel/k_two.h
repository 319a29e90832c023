/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests that compare the cuda backend with the cpu backend: both opened side by side,
 * device buffers filled with poison and followed by a guard, a step's arrays on the
 * device, and numbers from a seed that is printed. Include config.h first, as for
 * k_util.h.
 */
#ifndef FDD_TESTS_KERNEL_K_TWO_H
#define FDD_TESTS_KERNEL_K_TWO_H

#include "tests/kernel/k_util.h"

#include <time.h>

#define TW_POISON 0x7f
#define TW_GUARD  256
#define TW_BUFS   256

struct two_dev {
    struct k_dev d;
    struct {
        char *p;
        size_t bytes;
    } buf[TW_BUFS];
    int n_buf;
};

struct two {
    struct two_dev cpu, gpu;
    uint64_t seed;
    int deterministic; /* fdk_open_args.deterministic of the GPU */
};

static struct two tw;

#define OK(call) assert_int_equal((call), 0)

static inline int32_t
tw_int(int32_t low, int32_t high)
{
    return low + (int32_t)(k_rand(&tw.seed) % (uint64_t)(high - low + 1));
}

/* Returns whether case i is run. With FDD_TEST_FEW set it is only every `every`-th case,
 * for tools under which a GPU is some hundred times slower. */
static inline int
tw_takes(size_t i, size_t every)
{
    return getenv("FDD_TEST_FEW") == NULL || i % every == 0;
}

static inline void
tw_normal(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = k_normal(&tw.seed);
}

/* Opens both backends. Returns 0, 77 with the reason printed if there is
 * no GPU, or 1 on an error. */
static inline int
tw_open(void)
{
    const struct fdk_open_args args = { .n_device = 1,
        .n_thread = 4,
        .spin_us = 50,
        .deterministic = tw.deterministic };
    const char *seed = getenv("FDD_TEST_SEED");
    char err[256] = "";
    tw.cpu.d.ops = &fdk_ops_cpu;
    tw.gpu.d.ops = &fdk_ops_cuda;
    if (fdk_ops_cuda.available(err, sizeof(err)) <= 0) {
        printf("SKIP: %s\n", err);
        return 77;
    }
    if (fdk_ops_cuda.open(&args, &tw.gpu.d.ctx, err, sizeof(err)) != 0) {
        printf("FAIL: %s\n", err);
        return 1;
    }
    if (fdk_ops_cpu.open(&args, &tw.cpu.d.ctx, err, sizeof(err)) != 0 ||
        fdk_ops_cpu.stream_new(tw.cpu.d.ctx, 0, &tw.cpu.d.st) != 0 ||
        fdk_ops_cuda.stream_new(tw.gpu.d.ctx, 0, &tw.gpu.d.st) != 0)
        return 1;
    tw.seed = seed != NULL ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    printf("FDD_TEST_SEED=%llu\n", (unsigned long long)tw.seed);
    return 0;
}

static inline void
tw_close(void)
{
    k_close(&tw.gpu.d);
    k_close(&tw.cpu.d);
}

/* Opens both backends again, the GPU in deterministic mode. */
static inline int
tw_open_deterministic(void)
{
    tw_close();
    tw.deterministic = 1;
    return tw_open() != 0;
}

/* New device memory with a copy of src, or poison if src is NULL;
 * a guard of poison follows. */
static inline void *
tw_new(struct two_dev *t, const void *src, size_t bytes)
{
    void *p;
    assert_true(t->n_buf < TW_BUFS);
    OK(t->d.ops->mem_alloc(t->d.ctx, 0, bytes + TW_GUARD, &p));
    OK(t->d.ops->fill(t->d.st, p, TW_POISON, bytes + TW_GUARD));
    if (src != NULL)
        OK(t->d.ops->copy(t->d.st, p, src, bytes));
    k_sync(&t->d);
    t->buf[t->n_buf].p = p;
    t->buf[t->n_buf++].bytes = bytes;
    return p;
}

static inline void
tw_put(struct two_dev *t, void *dst, const void *src, size_t bytes)
{
    OK(t->d.ops->copy(t->d.st, dst, src, bytes));
    k_sync(&t->d);
}

#define tw_get tw_put /* any direction */

/* A malloc'd copy of a device buffer. */
static inline void *
tw_read(struct two_dev *t, const void *src, size_t bytes)
{
    void *p = malloc(bytes);
    assert_non_null(p);
    tw_get(t, p, src, bytes);
    return p;
}

/* ---- activations --------------------------------------------------------- */

/* Rounds x to the activation type, so that both backends begin with the same numbers. */
static inline void
tw_as_act(float *x, size_t n, enum fdk_dtype act)
{
    for (size_t i = 0; i < n && act == FDK_BF16; i++)
        x[i] = (float)k_from_half(k_to_bf16(x[i]), FDK_BF16);
}

/* n activations on the device: x converted to their type, or poison if x is NULL. */
static inline void *
tw_new_act(struct two_dev *t, const float *x, size_t n, enum fdk_dtype act)
{
    uint16_t *h = malloc(n * 2);
    assert_non_null(h);
    for (size_t i = 0; i < n && x != NULL; i++)
        h[i] = k_to_bf16(x[i]);
    void *p = tw_new(t,
        x == NULL             ? NULL
            : act == FDK_BF16 ? (const void *)h
                              : x,
        n * fdk_dtype_bytes(act));
    free(h);
    return p;
}

/* A malloc'd copy of n activations, as floats. */
static inline float *
tw_read_act(struct two_dev *t, const void *src, size_t n, enum fdk_dtype act)
{
    float *x = malloc(n * 4);
    assert_non_null(x);
    tw_get(t, x, src, n * fdk_dtype_bytes(act));
    for (size_t i = n; act == FDK_BF16 && i-- > 0;) {
        uint16_t h;
        memcpy(&h, (const char *)x + 2 * i, 2);
        x[i] = (float)k_from_half(h, act);
    }
    return x;
}

/* Checks the guard after every buffer and frees all buffers. */
static inline void
tw_free(struct two_dev *t)
{
    for (int i = 0; i < t->n_buf; i++) {
        unsigned char guard[TW_GUARD];
        tw_get(t, guard, t->buf[i].p + t->buf[i].bytes, TW_GUARD);
        for (int j = 0; j < TW_GUARD; j++)
            assert_int_equal(guard[j], TW_POISON);
        t->d.ops->mem_free(t->d.ctx, 0, t->buf[i].p);
    }
    t->n_buf = 0;
}

/* Checks that the plans made by the device and by the host are equal to the
 * byte; bytes that neither writes are poison in both. s: host copy of the step
 * that p's batch refers to. */
static inline void
tw_same_plan(struct two_dev *t, const struct fdk_att_plan_args *p, const struct k_step *s)
{
    size_t work = (size_t)p->n_max * sizeof(*p->work);
    size_t bytes = (p->plan_bytes + 15) / 16 * 16;
    struct fdk_attention_args att = *p->att;
    struct fdk_att_plan_args h = *p;
    int32_t n_work = -7;
    uint32_t n_done = 99;
    void *got;
    att.b = h.b = &s->b;
    h.att = &att;
    h.work = malloc(work);
    h.plan = bytes > 0 ? aligned_alloc(16, bytes) : NULL;
    assert_true(h.work != NULL && (h.plan != NULL || bytes == 0));
    if (bytes > 0)
        memset(h.plan, TW_POISON, bytes);
    h.n_work = &n_work;
    h.n_done = &n_done;
    OK(t->d.ops->att_plan_host(t->d.ctx, 0, &h));
    if (bytes > 0)
        OK(t->d.ops->fill(t->d.st, p->plan, TW_POISON, p->plan_bytes));
    OK(t->d.ops->att_plan(p, t->d.st));
    got = tw_read(t, p->work, work);
    assert_memory_equal(got, h.work, work);
    free(got);
    got = bytes > 0 ? tw_read(t, p->plan, p->plan_bytes) : NULL;
    if (got != NULL)
        assert_memory_equal(got, h.plan, p->plan_bytes);
    free(got);
    tw_get(t, &work, p->n_work, 4);
    assert_int_equal((int32_t)work, n_work);
    assert_int_equal(n_done, 0);
    free(h.work);
    free(h.plan);
}

/* Copies the step's arrays to the device: to *d_step, or to new memory if that is NULL. */
static inline struct fdk_batch
tw_step(struct two_dev *t, const struct k_step *s, char **d_step)
{
    struct fdk_batch b;
    char *p = *d_step;
    if (p == NULL)
        p = *d_step = tw_new(t, s, sizeof(*s));
    else
        tw_put(t, p, s, sizeof(*s));
    b = k_batch_at((struct k_step *)(void *)p, s->b.max_row);
    b.table_stride = s->b.table_stride;
    return b;
}

/* Checks |got - want| <= tol + rel |want|; equal bits, such as poison, always pass. */
static inline void
tw_near(const float *got, const float *want, size_t n, double rel, double tol,
    const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) != 0)
            k_assert_near(got[i], want[i], tol + rel * fabs((double)want[i]), what, i);
}

/* tw_near() for activations: the bounds of the tolerance are rounded to the
 * type. Poison must stay poison. */
static inline void
tw_near_act(const float *got, const float *want, size_t n, enum fdk_dtype act, double rel,
    double tol, const char *what)
{
    const uint32_t poison = 0x01010101u * TW_POISON;
    if (act != FDK_BF16)
        tw_near(got, want, n, rel, tol, what);
    for (size_t i = 0; i < n && act == FDK_BF16; i++) {
        int same = memcmp(&want[i], &poison, 4) == 0;
        double e = same ? 0 : tol + rel * fabs((double)want[i]);
        double low = k_from_half(k_to_bf16((float)(want[i] - e)), act);
        double high = k_from_half(k_to_bf16((float)(want[i] + e)), act);
        if (!(got[i] >= low && got[i] <= high))
            k_assert_near(got[i], (low + high) / 2, (high - low) / 2, what, i);
    }
}

static inline void
tw_same(const void *a, const void *b, size_t bytes, const char *what)
{
    const unsigned char *p = a, *q = b;
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != q[i]) {
            print_error("%s: byte %zu is %#x, expected %#x\n", what, i, p[i], q[i]);
            fail();
        }
}

/* ||got - want|| / ||want|| */
static inline double
tw_distance(const float *got, const float *want, size_t n)
{
    double d = 0, w = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        w += (double)want[i] * want[i];
    }
    return sqrt(d / (w > 0 ? w : 1));
}

#endif
