/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured peaks of the device: reading its memory, multiply-adds in fp32,
 * and large GEMMs in 16-bit types.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#include <stdlib.h>

#define READ_MOST  ((size_t)2 << 30)
#define READ_LEAST ((size_t)128 << 20)
#define RUNS       10
#define FMA_ITER   4096
#define FMA_CHAINS 8

#define LINK_BYTES ((size_t)256 << 20)

struct probe {
    struct cu_dev *d;
    fdk_stream_t st;
    fdk_event_t begin, end;
    unsigned n_sm;
    char *mem;
    size_t bytes;
};

/* ---- kernels ------------------------------------------------------------- */

/* The memory holds zeros, so the sum is never stored, but the compiler cannot
 * know that. */
static __global__ void __launch_bounds__(512)
read_kernel(const uint4 *p, size_t n, uint32_t *sink)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t sum = 0;
    for (; i + 7 * step < n; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] = __ldcs(p + i + (size_t)k * step);
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step)
        sum += p[i].x;
    if (sum != 0)
        *sink = sum;
}

static __global__ void __launch_bounds__(256)
fma_kernel(float x, float y, float *sink)
{
    float a[FMA_CHAINS];
#pragma unroll
    for (int k = 0; k < FMA_CHAINS; k++)
        a[k] = (float)(threadIdx.x + (unsigned)k);
    for (int i = 0; i < FMA_ITER; i++)
#pragma unroll
        for (int k = 0; k < FMA_CHAINS; k++)
            a[k] = fmaf(a[k], x, y);
#pragma unroll
    for (int k = 1; k < FMA_CHAINS; k++)
        a[0] += a[k];
    if (a[0] == -1)
        *sink = a[0];
}

static __device__ __forceinline__ float
noise(size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(int32_t)x * (1.0f / 2147483648.0f);
}

template<typename W>
static __global__ void
noise_kernel(W *x, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] = (W)noise(i);
}

/* ---- measuring ----------------------------------------------------------- */

typedef int probe_fn(struct probe *p, const void *arg);

/* *ret: time of the shortest of several launches, in seconds. */
static int
best_of(struct probe *p, probe_fn *fn, const void *arg, double *ret)
{
    double best = 0;
    for (int i = 0; i <= RUNS; i++) {
        int rc = cu_event_record(p->begin, p->st);
        if (rc == 0)
            rc = fn(p, arg);
        if (rc == 0)
            rc = cu_event_record(p->end, p->st);
        if (rc == 0)
            rc = cu_event_sync(p->end);
        if (rc != 0)
            return rc;
        float ms = 0;
        rc = cu_result(p->d, "cudaEventElapsedTime", cudaEventElapsedTime(&ms,
            reinterpret_cast<struct cu_event *>(p->begin)->e,
            reinterpret_cast<struct cu_event *>(p->end)->e));
        if (rc != 0)
            return rc;
        /* the first launch is a warm-up */
        if (i > 0 && ms > 0 && (best == 0 || ms * 1e-3 < best))
            best = ms * 1e-3;
    }
    *ret = best;
    return best > 0 ? 0 : -EIO;
}

static int
take(struct probe *p, size_t bytes)
{
    void *mem = NULL;
    int rc = cu_result(p->d, "cudaMalloc", cudaMalloc(&mem, bytes));
    p->mem = rc == 0 ? (char *)mem : NULL;
    p->bytes = bytes;
    return rc;
}

static int
read_once(struct probe *p, const void *arg)
{
    (void)arg;
    read_kernel<<<p->n_sm * 4, 512, 0, cu_raw(p->st)>>>((const uint4 *)p->mem,
        p->bytes / sizeof(uint4), (uint32_t *)p->mem);
    return cu_launched(p->st, "probe");
}

static int
probe_read(struct probe *p, double *ret)
{
    double s = 0;
    int rc = -ENOMEM;
    for (size_t n = READ_MOST; rc == -ENOMEM && n >= READ_LEAST; n /= 2)
        rc = take(p, n);
    if (rc == 0)
        rc = cu_fill(p->st, p->mem, 0, p->bytes);
    if (rc == 0)
        rc = best_of(p, read_once, NULL, &s);
    if (rc == 0)
        *ret = (double)p->bytes / s;
    return rc;
}

struct link {
    int from;
    const char *src;
};

static int
link_once(struct probe *p, const void *arg)
{
    const struct link *l = (const struct link *)arg;
    int dev = (int)(p->d - p->d->ctx->dev);
    return cu_copy_peer(p->st, dev, p->mem, l->from, l->src, p->bytes);
}

/* Copies from the next device of the context; the devices of a context reach each
 * other. */
static int
probe_link(struct fdk_ctx *ctx, int dev, struct probe *p, double *ret)
{
    struct link l = { (dev + 1) % ctx->n_dev, NULL };
    void *src = NULL;
    double s = 0;
    int rc = ctx->n_dev == 1 ? -ENOTSUP : take(p, LINK_BYTES);
    if (rc != 0)
        return rc;
    rc = cu_mem_alloc(ctx, l.from, LINK_BYTES, &src);
    if (rc != 0)
        return rc;
    l.src = (const char *)src;
    rc = cu_enter(p->d);
    if (rc == 0)
        rc = best_of(p, link_once, &l, &s);
    cu_mem_free(ctx, l.from, src);
    if (rc == 0)
        *ret = (double)p->bytes / s;
    return rc;
}

static int
fma_once(struct probe *p, const void *arg)
{
    (void)arg;
    fma_kernel<<<p->n_sm * 64, 256, 0, cu_raw(p->st)>>>(0.999f, 0.001f, (float *)p->mem);
    return cu_launched(p->st, "probe");
}

static int
probe_fma(struct probe *p, double *ret)
{
    double s = 0;
    int rc = take(p, 256);
    if (rc == 0)
        rc = best_of(p, fma_once, NULL, &s);
    if (rc == 0)
        *ret = 2.0 * FMA_CHAINS * FMA_ITER * 256 * 64 * p->n_sm / s;
    return rc;
}

/* Fills x with numbers of both signs: the clock of a device, and so its rate, depends on
 * the data. */
static void
fill_noise(struct probe *p, void *x, size_t n, enum fdk_dtype t)
{
    cudaStream_t s = cu_raw(p->st);
    if (t == FDK_F16)
        noise_kernel<<<p->n_sm * 4, 256, 0, s>>>((__half *)x, n);
    else if (t == FDK_BF16)
        noise_kernel<<<p->n_sm * 4, 256, 0, s>>>((__nv_bfloat16 *)x, n);
    else
        noise_kernel<<<p->n_sm * 4, 256, 0, s>>>((float *)x, n);
}

static int
gemm_once(struct probe *p, const void *arg)
{
    return cu_gemm((const struct fdk_gemm_args *)arg, p->st);
}

static size_t
whole(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Uses the activations of a model with such weights. N is much larger than T, because a
 * launch includes the conversion of x to the type of the weights. */
static int
probe_gemm(struct probe *p, enum fdk_dtype t, double *ret)
{
    struct fdk_gemm_args a = {};
    int rc = -ENOMEM;
    size_t x = 0, w = 0, y = 0;
    a.K = 4096;
    a.w_dtype = t;
    a.act = a.y_dtype = t == FDK_BF16 ? FDK_BF16 : FDK_F32;
    for (int32_t m = 4096; rc == -ENOMEM && m >= 1024; m /= 2) {
        a.T = m;
        a.N = a.ldy = 8 * m;
        x = whole((size_t)a.T * (size_t)a.K * fdk_dtype_bytes(a.act));
        w = whole((size_t)a.N * (size_t)a.K * 2);
        y = whole((size_t)a.T * (size_t)a.N * fdk_dtype_bytes(a.y_dtype));
        a.scratch_bytes = cu_gemm_scratch(&a);
        rc = take(p, x + w + y + whole(a.scratch_bytes) + 256);
    }
    if (rc != 0)
        return rc;
    a.x = p->mem;
    a.w = p->mem + x;
    a.y = p->mem + x + w;
    a.scratch = p->mem + x + w + y;
    a.n = (int32_t *)(p->mem + p->bytes - 256);
    fill_noise(p, p->mem, (size_t)a.T * (size_t)a.K, a.act);
    fill_noise(p, p->mem + x, (size_t)a.N * (size_t)a.K, t);
    rc = cu_launched(p->st, "probe");
    if (rc == 0)
        rc = cu_copy(p->st, p->mem + p->bytes - 256, &a.T, sizeof(a.T));
    if (rc == 0)
        rc = cu_stream_sync(p->st);
    double s = 0;
    if (rc == 0)
        rc = best_of(p, gemm_once, &a, &s);
    if (rc == 0)
        *ret = 2.0 * a.T * a.N * a.K / s;
    return rc;
}

int
cu_probe(struct fdk_ctx *ctx, int dev, enum fdk_probe what, enum fdk_dtype t, double *ret)
{
    struct probe p = {};
    int n_sm = 0, rc = cu_enter_idx(ctx, dev);
    if (rc != 0)
        return rc;
    if (what != FDK_PROBE_READ && what != FDK_PROBE_LINK && (what != FDK_PROBE_FLOPS ||
        (t != FDK_F32 && t != FDK_F16 && t != FDK_BF16)))
        return -ENOTSUP;
    p.d = &ctx->dev[dev];
    rc = cu_result(p.d, "cudaDeviceGetAttribute", cudaDeviceGetAttribute(&n_sm,
        cudaDevAttrMultiProcessorCount, p.d->idx));
    p.n_sm = (unsigned)n_sm;
    if (rc == 0)
        rc = cu_stream_new(ctx, dev, &p.st);
    if (rc == 0)
        rc = cu_event_new(ctx, dev, &p.begin);
    if (rc == 0)
        rc = cu_event_new(ctx, dev, &p.end);
    if (rc == 0 && what == FDK_PROBE_READ)
        rc = probe_read(&p, ret);
    else if (rc == 0 && what == FDK_PROBE_LINK)
        rc = probe_link(ctx, dev, &p, ret);
    else if (rc == 0 && t == FDK_F32)
        rc = probe_fma(&p, ret);
    else if (rc == 0)
        rc = probe_gemm(&p, t, ret);
    cu_stream_free(p.st);
    cu_event_free(p.begin);
    cu_event_free(p.end);
    if (p.mem != NULL && cu_enter(p.d) == 0)
        (void)cu_result(p.d, "cudaFree", cudaFree(p.mem));
    return rc;
}

cudaError_t
cu_probe_load(void)
{
    static const void *const k[] = {
        (const void *)read_kernel, (const void *)fma_kernel,
        (const void *)noise_kernel<float>, (const void *)noise_kernel<__half>,
        (const void *)noise_kernel<__nv_bfloat16>,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}
