/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Device and pinned memory, and address ranges that are reserved before memory
 * is mapped to them. The latter use functions of the driver, looked up through
 * the runtime so that the program also starts without a driver.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cu_piece {                /* memory of one mem_map() */
    size_t off, bytes;
    CUmemGenericAllocationHandle handle;
    struct cu_piece *next;
};

struct cu_range {
    CUdeviceptr base;
    size_t bytes;
    struct cu_piece *pieces;
    struct cu_range *next;
};

struct cu_vmm {
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*free)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t,
        const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
        unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
        CUmemAllocationGranularity_flags);
    size_t page;
};

/* ---- plain memory -------------------------------------------------------- */

int
cu_mem_alloc(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    void *p = NULL;
    int rc = bytes == 0 ? -EINVAL : cu_enter_idx(ctx, dev);
    if (rc == 0)
        rc = cu_result(&ctx->dev[dev], "cudaMalloc", cudaMalloc(&p, bytes));
    if (rc == 0)
        *ret = p;
    return rc;
}

void
cu_mem_free(struct fdk_ctx *ctx, int dev, void *p)
{
    if (p != NULL && cu_enter_idx(ctx, dev) == 0)
        (void)cu_result(&ctx->dev[dev], "cudaFree", cudaFree(p));
}

/* Host memory belongs to all devices: enters one that works. Returns 0, or -EIO if none
 * does. */
static int
enter_any(struct fdk_ctx *ctx, struct cu_dev **ret)
{
    for (int i = 0; i < ctx->n_dev; i++)
        if (cu_enter(&ctx->dev[i]) == 0) {
            *ret = &ctx->dev[i];
            return 0;
        }
    return -EIO;
}

int
cu_host_alloc(struct fdk_ctx *ctx, size_t bytes, void **ret)
{
    struct cu_dev *d = NULL;
    void *p = NULL;
    int rc = bytes == 0 ? -EINVAL : enter_any(ctx, &d);
    if (rc == 0)
        rc = cu_result(d, "cudaHostAlloc",
            cudaHostAlloc(&p, bytes, cudaHostAllocPortable));
    if (rc == 0)
        *ret = p;
    return rc;
}

void
cu_host_free(struct fdk_ctx *ctx, void *p)
{
    struct cu_dev *d = NULL;
    if (p != NULL && enter_any(ctx, &d) == 0)
        (void)cu_result(d, "cudaFreeHost", cudaFreeHost(p));
}

/* ---- reserved ranges ----------------------------------------------------- */

static CUmemAllocationProp
device_memory(int dev)
{
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = dev;
    return p;
}

static int
vmm_result(struct cu_dev *d, const char *call, CUresult r)
{
    if (r == CUDA_SUCCESS)
        return 0;
    if (r == CUDA_ERROR_OUT_OF_MEMORY)
        return -ENOMEM;
    if (r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
        r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        return -EBUSY;
    /* The runtime uses the driver's error numbers. */
    return cu_result(d, call, (cudaError_t)r);
}

int
cu_driver_call(const char *name, unsigned version, void *ret)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *f = NULL;
    cudaError_t e = cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault,
        &found);
    (void)cudaGetLastError();
    if (e != cudaSuccess || found != cudaDriverEntryPointSuccess)
        return -ENOTSUP;
    memcpy(ret, &f, sizeof(f));
    return 0;
}

int
cu_vmm_open(struct fdk_ctx *ctx, char *err, size_t err_bytes)
{
    struct cu_vmm *v = (struct cu_vmm *)calloc(1, sizeof(*v));
    if (v == NULL) {
        snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    ctx->vmm = v;
    const struct {
        const char *name;
        void **at;
    } calls[] = {
        { "cuMemAddressReserve", (void **)&v->reserve },
        { "cuMemAddressFree", (void **)&v->free },
        { "cuMemCreate", (void **)&v->create },
        { "cuMemRelease", (void **)&v->release },
        { "cuMemMap", (void **)&v->map },
        { "cuMemUnmap", (void **)&v->unmap },
        { "cuMemSetAccess", (void **)&v->access },
        { "cuMemGetAllocationGranularity", (void **)&v->granularity },
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (cu_driver_call(calls[i].name, 12000, calls[i].at) != 0) {
            snprintf(err, err_bytes, "the NVIDIA driver lacks %s: update the driver",
                calls[i].name);
            return -ENODEV;
        }
    CUmemAllocationProp p = device_memory(ctx->dev[0].idx);
    CUresult r = v->granularity(&v->page, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (r != CUDA_SUCCESS || v->page == 0) {
        snprintf(err, err_bytes, "cuMemGetAllocationGranularity: error %d", (int)r);
        return -ENODEV;
    }
    return 0;
}

void
cu_vmm_close(struct fdk_ctx *ctx)
{
    for (int i = 0; i < ctx->n_dev; i++)
        while (ctx->dev[i].ranges != NULL) {
            struct cu_range *r = ctx->dev[i].ranges;
            (void)cu_mem_release(ctx, i, (void *)r->base, r->bytes);
        }
    free(ctx->vmm);
    ctx->vmm = NULL;
}

int
cu_mem_reserve(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    int rc = cu_enter_idx(ctx, dev);
    if (rc != 0)
        return rc;
    if (bytes == 0 || bytes % ctx->vmm->page != 0)
        return -EINVAL;
    struct cu_dev *d = &ctx->dev[dev];
    struct cu_range *r = (struct cu_range *)calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    r->bytes = bytes;
    rc = vmm_result(d, "cuMemAddressReserve",
        ctx->vmm->reserve(&r->base, bytes, 0, 0, 0));
    if (rc != 0) {
        free(r);
        return rc;
    }
    pthread_mutex_lock(&d->lock);
    r->next = d->ranges;
    d->ranges = r;
    pthread_mutex_unlock(&d->lock);
    *ret = (void *)r->base;
    return 0;
}

static struct cu_range *
range_find(struct cu_dev *d, void *base, size_t off, size_t bytes)
{
    size_t page = d->ctx->vmm->page;
    if (bytes == 0 || off % page != 0 || bytes % page != 0)
        return NULL;
    for (struct cu_range *r = d->ranges; r != NULL; r = r->next)
        if (r->base == (CUdeviceptr)base && off <= r->bytes && bytes <= r->bytes - off)
            return r;
    return NULL;
}

/* Maps memory to the piece's range and grants access to every device that can reach
 * it. */
static int
piece_map(struct cu_dev *d, struct cu_range *r, struct cu_piece *p)
{
    const struct cu_vmm *v = d->ctx->vmm;
    CUmemAllocationProp prop = device_memory(d->idx);
    int rc = vmm_result(d, "cuMemCreate", v->create(&p->handle, p->bytes, &prop, 0));
    if (rc != 0)
        return rc;
    rc = vmm_result(d, "cuMemMap", v->map(r->base + p->off, p->bytes, 0, p->handle, 0));
    for (int i = 0; i < d->ctx->n_dev && rc == 0; i++) {
        CUmemAccessDesc acc = {};
        int peer = d->ctx->dev[i].idx, can = peer == d->idx;
        acc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        acc.location.id = peer;
        acc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (!can && (cudaDeviceCanAccessPeer(&can, peer, d->idx) != cudaSuccess || !can))
            continue;
        rc = vmm_result(d, "cuMemSetAccess",
            v->access(r->base + p->off, p->bytes, &acc, 1));
        if (rc != 0 && cu_enter(d) == 0)
            (void)vmm_result(d, "cuMemUnmap", v->unmap(r->base + p->off, p->bytes));
    }
    if (rc != 0 && cu_enter(d) == 0)
        (void)vmm_result(d, "cuMemRelease", v->release(p->handle));
    return rc;
}

int
cu_mem_map(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes)
{
    int rc = cu_enter_idx(ctx, dev);
    if (rc != 0)
        return rc;
    struct cu_dev *d = &ctx->dev[dev];
    struct cu_piece *p = (struct cu_piece *)calloc(1, sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    p->off = off;
    p->bytes = bytes;
    pthread_mutex_lock(&d->lock);
    struct cu_range *r = range_find(d, base, off, bytes);
    rc = r == NULL ? -EINVAL : 0;
    for (struct cu_piece *q = rc == 0 ? r->pieces : NULL; q != NULL; q = q->next)
        if (q->off < off + bytes && off < q->off + q->bytes)
            rc = -EINVAL;
    if (rc == 0)
        rc = piece_map(d, r, p);
    if (rc == 0) {
        p->next = r->pieces;
        r->pieces = p;
    }
    pthread_mutex_unlock(&d->lock);
    if (rc != 0)
        free(p);
    return rc;
}

/* Unmaps the pieces within [off, off + bytes); the device does not use them any more. */
static int
pieces_drop(struct cu_dev *d, struct cu_range *r, size_t off, size_t bytes)
{
    const struct cu_vmm *v = d->ctx->vmm;
    int rc = 0;
    for (struct cu_piece **at = &r->pieces; *at != NULL;) {
        struct cu_piece *p = *at;
        if (p->off < off || p->off >= off + bytes) {
            at = &p->next;
            continue;
        }
        if (rc == 0)
            rc = vmm_result(d, "cuMemUnmap", v->unmap(r->base + p->off, p->bytes));
        if (rc == 0)
            rc = vmm_result(d, "cuMemRelease", v->release(p->handle));
        *at = p->next;
        free(p);
    }
    return rc;
}

int
cu_mem_unmap(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes)
{
    int rc = cu_enter_idx(ctx, dev);
    if (rc != 0)
        return rc;
    struct cu_dev *d = &ctx->dev[dev];
    size_t mapped = 0;
    pthread_mutex_lock(&d->lock);
    struct cu_range *r = range_find(d, base, off, bytes);
    for (struct cu_piece *p = r != NULL ? r->pieces : NULL; p != NULL; p = p->next) {
        if (p->off >= off + bytes || p->off + p->bytes <= off)
            continue;
        /* The driver can only unmap full pieces. */
        if (p->off < off || p->off + p->bytes > off + bytes)
            rc = -ENOTSUP;
        mapped += p->bytes;
    }
    if (r == NULL || (rc == 0 && mapped != bytes))
        rc = -EINVAL;
    if (rc == 0)
        rc = pieces_drop(d, r, off, bytes);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

int
cu_mem_release(struct fdk_ctx *ctx, int dev, void *base, size_t bytes)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    struct cu_dev *d = &ctx->dev[dev];
    int rc = -EINVAL, live = cu_enter(d) == 0;
    pthread_mutex_lock(&d->lock);
    for (struct cu_range **at = &d->ranges; *at != NULL; at = &(*at)->next) {
        struct cu_range *r = *at;
        if (r->base != (CUdeviceptr)base || r->bytes != bytes)
            continue;
        rc = live ? pieces_drop(d, r, 0, bytes) : -EIO;
        if (live && rc == 0)
            rc = vmm_result(d, "cuMemAddressFree", ctx->vmm->free(r->base, bytes));
        *at = r->next;
        for (struct cu_piece *p = r->pieces, *next; p != NULL; p = next) {
            next = p->next;
            free(p);
        }
        free(r);
        break;
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}
