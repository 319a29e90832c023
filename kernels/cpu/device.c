/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vdev.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define MEM_MAGIC  0x6d656d31u
#define MEM_ALIGN  256u
#define HUGE_BYTES (2u << 20)

/* Header in the 256 bytes before every allocation. */
struct mem_head {
    uint32_t magic;
    int32_t dev; /* -1 = host */
    size_t bytes;
    void *base;
};

/* ---- errors -------------------------------------------------------------- */

void
cpu_fail(struct cpu_dev *dev, const char *fmt, ...)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&dev->failed, &none, 1))
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(dev->text, sizeof(dev->text), fmt, ap);
    va_end(ap);
    atomic_store(&dev->failed, 2);
    cpu_groups_tell(dev);
}

int
cpu_failed(const struct cpu_dev *dev)
{
    return atomic_load_explicit(&dev->failed, memory_order_acquire) != 0;
}

const char *
vdev_error_text(struct fdk_ctx *ctx, int dev)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return "no such device";
    while (atomic_load(&ctx->dev[dev].failed) == 1) /* the text is being written */
        sched_yield();
    return atomic_load(&ctx->dev[dev].failed) == 2 ? ctx->dev[dev].text : "";
}

void
fdk_cpu_fail_after(struct fdk_ctx *ctx, int dev, int64_t n)
{
    atomic_store(&ctx->dev[dev].fail_after, n);
}

void
fdk_cpu_limit_memory(struct fdk_ctx *ctx, int dev, uint64_t bytes)
{
    pthread_mutex_lock(&ctx->dev[dev].mem_lock);
    ctx->dev[dev].mem_limit = bytes;
    pthread_mutex_unlock(&ctx->dev[dev].mem_lock);
}

uint64_t
fdk_cpu_memory_used(struct fdk_ctx *ctx, int dev)
{
    pthread_mutex_lock(&ctx->dev[dev].mem_lock);
    uint64_t used = ctx->dev[dev].mem_used;
    pthread_mutex_unlock(&ctx->dev[dev].mem_lock);
    return used;
}

/* ---- contexts ------------------------------------------------------------ */

static int
n_processor(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static int
check_devices(const struct fdk_open_args *args, const struct fdk_ops *ops, char *err,
    size_t err_bytes)
{
    uint32_t seen = 0;
    if (args->n_device < 1 || args->n_device > FDK_MAX_DEVICES) {
        snprintf(err, err_bytes, "%d devices asked for: the %s backend has 1 to %d",
            args->n_device, ops->name, FDK_MAX_DEVICES);
        return -EINVAL;
    }
    for (int i = 0; i < args->n_device && args->device != NULL; i++) {
        int32_t at = args->device[i];
        if (at < 0 || at >= FDK_MAX_DEVICES || (seen >> at & 1) != 0) {
            snprintf(err, err_bytes,
                "virtual device %d: numbers are 0 to %d, and each may be listed once", at,
                FDK_MAX_DEVICES - 1);
            return -EINVAL;
        }
        seen |= UINT32_C(1) << at;
    }
    return 0;
}

int
cpu_ctx_new(const struct fdk_open_args *args, const struct fdk_ops *ops,
    cpu_exec_fn *exec, struct fdk_ctx **ret_ctx, char *err, size_t err_bytes)
{
    int rc = check_devices(args, ops, err, err_bytes);
    if (rc != 0)
        return rc;
    if (args->n_thread < 0 || args->n_thread > 1024) {
        snprintf(err, err_bytes, "%d threads per device asked for: 0 (all) to 1024",
            args->n_thread);
        return -EINVAL;
    }
    if (args->nice < 0 || args->nice > 19) {
        snprintf(err, err_bytes, "nice value %d asked for: 0 to 19", args->nice);
        return -EINVAL;
    }
    if ((unsigned)args->exec > FDK_EXEC_DEFER) {
        snprintf(err, err_bytes, "execution mode %d asked for: see enum fdk_exec",
            (int)args->exec);
        return -EINVAL;
    }
    struct fdk_ctx *ctx = calloc(1, sizeof(*ctx));
    if (ctx == NULL)
        goto no_memory;
    ctx->magic = CPU_CTX_MAGIC;
    ctx->ops = ops;
    ctx->exec = exec;
    ctx->math = exec == cpu_exec;
    ctx->mode = args->exec != FDK_EXEC_DEFAULT ? args->exec
        : ctx->math                            ? FDK_EXEC_THREAD
                                               : FDK_EXEC_INLINE;
    ctx->isa = cpu_isa_pick();
    ctx->nice = args->nice;
    ctx->spin.ns = args->spin_us > 0 ? (uint64_t)args->spin_us * 1000 : 0;
    ctx->n_thread = args->n_thread > 0 ? args->n_thread : n_processor() / args->n_device;
    if (ctx->n_thread < 1)
        ctx->n_thread = 1;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->run_lock, NULL);
    pthread_mutex_init(&ctx->group_lock, NULL);
    ctx->dev = calloc((size_t)args->n_device, sizeof(*ctx->dev));
    if (ctx->dev == NULL)
        goto no_memory;
    for (int i = 0; i < args->n_device; i++) {
        struct cpu_dev *d = &ctx->dev[i];
        d->ctx = ctx;
        d->idx = args->device != NULL ? args->device[i] : i;
        pthread_mutex_init(&d->mem_lock, NULL);
        ctx->n_dev++;
        if ((args->dead >> i & 1) != 0) {
            cpu_fail(d, "device %d fails every call: fdk_open_args.dead", d->idx);
            continue; /* no thread is needed */
        }
        rc = ctx->math ? cpu_pool_new(ctx->n_thread, ctx->nice, &ctx->spin, &d->pool) : 0;
        if (rc != 0) {
            snprintf(err, err_bytes, "cannot start %d threads: %s", ctx->n_thread - 1,
                strerror(-rc));
            cpu_ctx_free(ctx);
            return rc;
        }
    }
    *ret_ctx = ctx;
    return 0;
no_memory:
    snprintf(err, err_bytes, "out of memory");
    cpu_ctx_free(ctx);
    return -ENOMEM;
}

void
cpu_ctx_free(struct fdk_ctx *ctx)
{
    if (ctx == NULL)
        return;
    while (ctx->streams != NULL)
        vdev_stream_free(ctx->streams);
    for (struct CUevent_st *ev = ctx->events, *next; ev != NULL; ev = next) {
        next = ev->next;
        free(ev);
    }
    for (int i = 0; i < ctx->n_dev; i++) {
        struct cpu_dev *d = &ctx->dev[i];
        cpu_pool_free(d->pool);
        while (d->ranges != NULL)
            vdev_mem_release(ctx, i, d->ranges->base, d->ranges->bytes);
        pthread_mutex_destroy(&d->mem_lock);
    }
    pthread_mutex_destroy(&ctx->lock);
    pthread_mutex_destroy(&ctx->run_lock);
    pthread_mutex_destroy(&ctx->group_lock);
    free(ctx->dev);
    ctx->magic = 0;
    free(ctx);
}

int
vdev_device_info(struct fdk_ctx *ctx, int dev, struct fdk_device_info *ret)
{
    struct sysinfo si;
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    if (cpu_failed(&ctx->dev[dev]))
        return -EIO;
    if (sysinfo(&si) != 0)
        return -errno;
    struct cpu_dev *d = &ctx->dev[dev];
    memset(ret, 0, sizeof(*ret));
    snprintf(ret->name, sizeof(ret->name), "%s (%s, %d threads)", ctx->ops->name,
        ctx->isa->name, ctx->n_thread);
    uint64_t n = (uint64_t)ctx->n_dev;
    ret->mem_total = (uint64_t)si.totalram * si.mem_unit / n;
    ret->mem_free = fdk_host_mem_free() / n;
    pthread_mutex_lock(&d->mem_lock);
    if (d->mem_limit != 0) {
        uint64_t left = d->mem_limit > d->mem_used ? d->mem_limit - d->mem_used : 0;
        ret->mem_total = d->mem_limit;
        if (left < ret->mem_free)
            ret->mem_free = left;
    }
    pthread_mutex_unlock(&d->mem_lock);
    ret->n_proc = ctx->n_thread;
    ret->peer_mask = UINT32_MAX >> (32 - ctx->n_dev);
    return 0;
}

/* ---- memory -------------------------------------------------------------- */

static int
mem_account(struct cpu_dev *d, size_t bytes)
{
    int rc = 0;
    pthread_mutex_lock(&d->mem_lock);
    if (d->mem_limit != 0 && (bytes > d->mem_limit || d->mem_used > d->mem_limit - bytes))
        rc = -ENOMEM;
    else
        d->mem_used += bytes;
    pthread_mutex_unlock(&d->mem_lock);
    return rc;
}

static void
mem_unaccount(struct cpu_dev *d, size_t bytes)
{
    pthread_mutex_lock(&d->mem_lock);
    d->mem_used -= bytes;
    pthread_mutex_unlock(&d->mem_lock);
}

static int
block_alloc(int dev, size_t bytes, void **ret)
{
    size_t align = bytes >= 2 * HUGE_BYTES ? HUGE_BYTES : MEM_ALIGN;
    if (bytes == 0)
        return -EINVAL;
    if (bytes > SIZE_MAX / 2)
        return -ENOMEM;
    char *base;
    if (posix_memalign((void **)&base, align, bytes + MEM_ALIGN) != 0)
        return -ENOMEM;
    /* Streaming weights with 4 KiB pages misses the TLB on every row. */
    if (align == HUGE_BYTES)
        madvise(base, bytes + MEM_ALIGN, MADV_HUGEPAGE);
    char *p = base + MEM_ALIGN;
    struct mem_head *h = (struct mem_head *)(void *)base;
    *h = (struct mem_head){ MEM_MAGIC, dev, bytes, base };
    *ret = p;
    return 0;
}

static struct mem_head *
block_head(void *p, int dev)
{
    struct mem_head *h = (struct mem_head *)(void *)((char *)p - MEM_ALIGN);
    if (h->magic != MEM_MAGIC || h->dev != dev)
        abort(); /* a wild or doubly freed pointer */
    h->magic = 0;
    return h;
}

int
vdev_mem_alloc(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    if (cpu_failed(&ctx->dev[dev]))
        return -EIO;
    int rc = mem_account(&ctx->dev[dev], bytes);
    if (rc != 0)
        return rc;
    rc = block_alloc(dev, bytes, ret);
    if (rc != 0)
        mem_unaccount(&ctx->dev[dev], bytes);
    return rc;
}

void
vdev_mem_free(struct fdk_ctx *ctx, int dev, void *p)
{
    if (p == NULL)
        return;
    struct mem_head *h = block_head(p, dev);
    mem_unaccount(&ctx->dev[dev], h->bytes);
    free(h->base);
}

int
vdev_host_alloc(struct fdk_ctx *ctx, size_t bytes, void **ret)
{
    (void)ctx;
    return block_alloc(-1, bytes, ret);
}

void
vdev_host_free(struct fdk_ctx *ctx, void *p)
{
    (void)ctx;
    if (p != NULL)
        free(block_head(p, -1)->base);
}

static size_t
page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

int
vdev_mem_reserve(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret)
{
    size_t page = page_bytes();
    if (dev < 0 || dev >= ctx->n_dev || bytes == 0 || bytes % page != 0)
        return -EINVAL;
    if (cpu_failed(&ctx->dev[dev]))
        return -EIO;
    struct cpu_range *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    r->bytes = bytes;
    r->n_page = bytes / page;
    r->mapped = calloc(1, r->n_page);
    void *p = MAP_FAILED;
    if (r->mapped != NULL)
        p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(r->mapped);
        free(r);
        return -ENOMEM;
    }
    r->base = p;
    pthread_mutex_lock(&ctx->dev[dev].mem_lock);
    r->next = ctx->dev[dev].ranges;
    ctx->dev[dev].ranges = r;
    pthread_mutex_unlock(&ctx->dev[dev].mem_lock);
    *ret = p;
    return 0;
}

/* Returns 0 if the pages are in one reserved range and all are mapped (mapped 1) or
 * unmapped (mapped 0), else -EINVAL. */
static int
range_pages(struct cpu_dev *d, void *base, size_t off, size_t bytes, int mapped,
    struct cpu_range **ret_range)
{
    size_t page = page_bytes();
    if (off % page != 0 || bytes == 0 || bytes % page != 0)
        return -EINVAL;
    struct cpu_range *r = d->ranges;
    while (r != NULL && r->base != base)
        r = r->next;
    if (r == NULL || off > r->bytes || bytes > r->bytes - off)
        return -EINVAL;
    for (size_t i = 0; i < bytes / page; i++)
        if (r->mapped[off / page + i] != mapped)
            return -EINVAL;
    *ret_range = r;
    return 0;
}

int
vdev_mem_map(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    struct cpu_dev *d = &ctx->dev[dev];
    if (cpu_failed(d))
        return -EIO;
    struct cpu_range *r;
    pthread_mutex_lock(&d->mem_lock);
    int rc = range_pages(d, base, off, bytes, 0, &r);
    if (rc == 0 && d->mem_limit != 0 &&
        (bytes > d->mem_limit || d->mem_used > d->mem_limit - bytes))
        rc = -ENOMEM;
    if (rc == 0 && mprotect(r->base + off, bytes, PROT_READ | PROT_WRITE) != 0)
        rc = -ENOMEM;
    if (rc == 0) {
        madvise(r->base + off, bytes, MADV_HUGEPAGE);
        memset(r->mapped + off / page_bytes(), 1, bytes / page_bytes());
        d->mem_used += bytes;
    }
    pthread_mutex_unlock(&d->mem_lock);
    return rc;
}

int
vdev_mem_unmap(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    struct cpu_dev *d = &ctx->dev[dev];
    struct cpu_range *r;
    pthread_mutex_lock(&d->mem_lock);
    int rc = range_pages(d, base, off, bytes, 1, &r);
    if (rc == 0) {
        madvise(r->base + off, bytes, MADV_DONTNEED);
        mprotect(r->base + off, bytes, PROT_NONE);
        memset(r->mapped + off / page_bytes(), 0, bytes / page_bytes());
        d->mem_used -= bytes;
    }
    pthread_mutex_unlock(&d->mem_lock);
    return rc;
}

int
vdev_mem_release(struct fdk_ctx *ctx, int dev, void *base, size_t bytes)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    struct cpu_dev *d = &ctx->dev[dev];
    int rc = -EINVAL;
    pthread_mutex_lock(&d->mem_lock);
    for (struct cpu_range **p = &d->ranges; *p != NULL; p = &(*p)->next) {
        struct cpu_range *r = *p;
        if (r->base != base || r->bytes != bytes)
            continue;
        for (size_t i = 0; i < r->n_page; i++)
            d->mem_used -= r->mapped[i] ? page_bytes() : 0;
        *p = r->next;
        munmap(r->base, r->bytes);
        free(r->mapped);
        free(r);
        rc = 0;
        break;
    }
    pthread_mutex_unlock(&d->mem_lock);
    return rc;
}
