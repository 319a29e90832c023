/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, events, copies and graphs.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#include <stdlib.h>
#include <time.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#define nvtxRangePushA(name) 0
#define nvtxRangePop()       0
#endif

/* A float in milliseconds resolves microseconds up to about 8 s. */
#define CLOCK_REBASE_MS 1000.0f
#define CLOCK_FAR_MS    8000.0f
#define CLOCK_WAIT_NS   100000     /* longest wait for a new base */
#define CLOCK_STEP_NS   50000      /* most that a new base corrects the clock */

/* ---- streams ------------------------------------------------------------- */

int
cu_stream_new(struct fdk_ctx *ctx, int dev, fdk_stream_t *ret)
{
    int rc = cu_enter_idx(ctx, dev);
    if (rc != 0)
        return rc;
    struct cu_stream *st = (struct cu_stream *)calloc(1, sizeof(*st));
    if (st == NULL)
        return -ENOMEM;
    st->magic = CU_STREAM_MAGIC;
    st->dev = &ctx->dev[dev];
    rc = cu_result(st->dev, "cudaStreamCreate",
        cudaStreamCreateWithFlags(&st->s, cudaStreamNonBlocking));
    if (rc != 0) {
        free(st);
        return rc;
    }
    pthread_mutex_lock(&ctx->lock);
    st->next = ctx->streams;
    ctx->streams = st;
    pthread_mutex_unlock(&ctx->lock);
    *ret = reinterpret_cast<fdk_stream_t>(st);
    return 0;
}

/* Abandons an unfinished capture. */
static void
capture_drop(struct cu_stream *st)
{
    cudaGraph_t g = NULL;
    if (!st->capturing)
        return;
    st->capturing = 0;
    if (cudaStreamEndCapture(st->s, &g) == cudaSuccess && g != NULL)
        cudaGraphDestroy(g);
    (void)cudaGetLastError();
}

void
cu_stream_free(fdk_stream_t s)
{
    struct cu_stream *st = cu_stream_of(s);
    if (st == NULL)
        return;
    struct fdk_ctx *ctx = st->dev->ctx;
    if (cu_enter(st->dev) == 0) {
        capture_drop(st);
        int rc = cu_result(st->dev, "cudaStreamSynchronize",
            cudaStreamSynchronize(st->s));
        if (rc == 0)
            (void)cu_result(st->dev, "cudaStreamDestroy", cudaStreamDestroy(st->s));
    }
    pthread_mutex_lock(&ctx->lock);
    for (struct cu_stream **p = &ctx->streams; *p != NULL; p = &(*p)->next)
        if (*p == st) {
            *p = st->next;
            break;
        }
    pthread_mutex_unlock(&ctx->lock);
    st->magic = 0;
    free(st);
}

int
cu_stream_sync(fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (cu_stream_of(st)->capturing)
        return -EBUSY;
    rc = cu_result(cu_stream_of(st)->dev, "cudaStreamSynchronize",
        cudaStreamSynchronize(cu_raw(st)));
    /* A kernel may have found bad input meanwhile. */
    return rc != 0 ? rc : cu_stream_enter(st);
}

int
cu_stream_wait(fdk_stream_t st, fdk_event_t ev)
{
    struct cu_event *e = reinterpret_cast<struct cu_event *>(ev);
    int rc = ev == NULL ? -EINVAL : cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (cu_stream_of(st)->capturing)
        return -EBUSY;
    if (e->dev->ctx != cu_stream_of(st)->dev->ctx)
        return -EINVAL;
    return cu_result(cu_stream_of(st)->dev, "cudaStreamWaitEvent",
        cudaStreamWaitEvent(cu_raw(st), e->e, 0));
}

static __global__ void
delay_kernel(uint64_t ns)
{
    uint64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

int
cu_stream_delay(fdk_stream_t st, uint64_t ns)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    delay_kernel<<<1, 1, 0, cu_raw(st)>>>(ns);
    return cu_launched(st, "stream_delay");
}

static __global__ void
wild_kernel(volatile int *p)
{
    *p = 1;
}

int
cu_stream_fail(fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    wild_kernel<<<1, 1, 0, cu_raw(st)>>>((volatile int *)(uintptr_t)64);
    return cu_launched(st, "stream_fail");
}

/* Does not call cu_dep_next(): the next kernel starts after this one has ended, so that
 * it cannot read results earlier than it could without the mark. */
static __global__ void
mark_kernel(uint32_t *host, const uint32_t *value)
{
    cu_dep_wait();
    asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(host), "r"(*value)
        : "memory");
}

int
cu_stream_mark(fdk_stream_t st, uint32_t *host, const uint32_t *value)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (host == NULL || value == NULL)
        return -EINVAL;
    cu_chain(mark_kernel, dim3(1), 1, 0, cu_raw(st), host, value);
    return cu_launched(st, "stream_mark");
}

cudaError_t
cu_stream_load(void)
{
    static const void *const k[] = { (const void *)mark_kernel };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}

/* ---- events -------------------------------------------------------------- */

int
cu_event_new(struct fdk_ctx *ctx, int dev, fdk_event_t *ret)
{
    int rc = cu_enter_idx(ctx, dev);
    if (rc != 0)
        return rc;
    struct cu_event *ev = (struct cu_event *)calloc(1, sizeof(*ev));
    if (ev == NULL)
        return -ENOMEM;
    ev->magic = CU_EVENT_MAGIC;
    ev->dev = &ctx->dev[dev];
    rc = cu_result(ev->dev, "cudaEventCreate", cudaEventCreate(&ev->e));
    if (rc != 0) {
        free(ev);
        return rc;
    }
    pthread_mutex_lock(&ctx->lock);
    ev->next = ctx->events;
    ctx->events = ev;
    pthread_mutex_unlock(&ctx->lock);
    *ret = reinterpret_cast<fdk_event_t>(ev);
    return 0;
}

void
cu_event_free(fdk_event_t e)
{
    struct cu_event *ev = reinterpret_cast<struct cu_event *>(e);
    if (ev == NULL)
        return;
    struct fdk_ctx *ctx = ev->dev->ctx;
    if (cu_enter(ev->dev) == 0)
        (void)cu_result(ev->dev, "cudaEventDestroy", cudaEventDestroy(ev->e));
    pthread_mutex_lock(&ctx->lock);
    for (struct cu_event **p = &ctx->events; *p != NULL; p = &(*p)->next)
        if (*p == ev) {
            *p = ev->next;
            break;
        }
    pthread_mutex_unlock(&ctx->lock);
    ev->magic = 0;
    free(ev);
}

int
cu_event_record(fdk_event_t e, fdk_stream_t st)
{
    struct cu_event *ev = reinterpret_cast<struct cu_event *>(e);
    int rc = ev == NULL ? -EINVAL : cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (cu_stream_of(st)->capturing)
        return -EBUSY;
    if (ev->dev != cu_stream_of(st)->dev)
        return -EINVAL;
    return cu_result(ev->dev, "cudaEventRecord", cudaEventRecord(ev->e, cu_raw(st)));
}

int
cu_event_query(fdk_event_t e)
{
    struct cu_event *ev = reinterpret_cast<struct cu_event *>(e);
    int rc = ev == NULL ? -EINVAL : cu_enter(ev->dev);
    if (rc != 0)
        return rc;
    cudaError_t err = cudaEventQuery(ev->e);
    if (err == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    rc = cu_result(ev->dev, "cudaEventQuery", err);
    if (rc == 0)
        rc = cu_enter(ev->dev);
    return rc == 0 ? 1 : rc;
}

int
cu_event_sync(fdk_event_t e)
{
    struct cu_event *ev = reinterpret_cast<struct cu_event *>(e);
    int rc = ev == NULL ? -EINVAL : cu_enter(ev->dev);
    if (rc == 0)
        rc = cu_result(ev->dev, "cudaEventSynchronize", cudaEventSynchronize(ev->e));
    return rc != 0 ? rc : cu_enter(ev->dev);
}

/* Returns how long to sleep before the next query of the event; 0: query at once. A sleep
 * ends up to WAIT_EARLY_NS late, so it is planned to end that long before the expected
 * time. It is at most WAIT_NAP_NS long, so that an event that is much too early is
 * noticed soon. */
#define WAIT_EARLY_NS 100000
#define WAIT_NAP_NS   250000
/* If an event is later than expected by more than this, its delay is unknown: sleep
 * again. */
#define WAIT_LATE_NS  2000000
static uint64_t
wait_nap(uint64_t now, uint64_t expect_ns, uint64_t until_ns)
{
    uint64_t next = expect_ns > now && expect_ns < until_ns ? expect_ns : until_ns;
    if (expect_ns < now && now - expect_ns < WAIT_LATE_NS)
        return 0;
    if (next - now <= WAIT_EARLY_NS + WAIT_EARLY_NS / 2)
        return 0;
    next -= now + WAIT_EARLY_NS;
    if (expect_ns < now)
        return WAIT_EARLY_NS / 2;
    return next < WAIT_NAP_NS ? next : WAIT_NAP_NS;
}

/* Pause between two queries if other threads launch on other devices: each query takes a
 * lock of the driver, and without a pause another thread may wait milliseconds for that
 * lock. */
#define WAIT_PAUSE_NS 5000

static void
wait_pause(const struct cu_dev *d, uint64_t now)
{
    if (d->ctx->n_dev == 1)
        return;
    while (cu_now_ns() - now < WAIT_PAUSE_NS) {
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
}

int
cu_event_wait(fdk_event_t e, uint64_t expect_ns, uint64_t until_ns)
{
    for (;;) {
        int rc = cu_event_query(e);
        uint64_t now = cu_now_ns();
        if (rc != 0)
            return rc;
        if (now >= until_ns)
            return 0;
        uint64_t ns = wait_nap(now, expect_ns, until_ns);
        if (ns == 0) {
            wait_pause(reinterpret_cast<struct cu_event *>(e)->dev, now);
            continue;
        }
        struct timespec ts = { 0, (long)ns };
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
    }
}

/* ---- the clock: time of events relative to one of known time ------------- */

int
cu_clock_open(struct cu_dev *d)
{
    int rc = cu_result(d, "cudaStreamCreate",
        cudaStreamCreateWithFlags(&d->aux, cudaStreamNonBlocking));
    if (rc == 0)
        rc = cu_result(d, "cudaEventCreate", cudaEventCreate(&d->base));
    if (rc == 0)
        rc = cu_result(d, "cudaEventCreate", cudaEventCreate(&d->next_base));
    /* Twice: the first record of a context is late. */
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = cu_result(d, "cudaEventRecord", cudaEventRecord(d->base, d->aux));
        if (rc == 0)
            rc = cu_result(d, "cudaEventSynchronize", cudaEventSynchronize(d->base));
        d->base_ns = cu_now_ns();
    }
    return rc;
}

void
cu_clock_close(struct cu_dev *d)
{
    if (d->aux == NULL || cu_enter(d) != 0)
        return;
    if (d->base != NULL)
        cudaEventDestroy(d->base);
    if (d->next_base != NULL)
        cudaEventDestroy(d->next_base);
    cudaStreamDestroy(d->aux);
    d->aux = NULL;
}

/* Moves the base event forward, so that time differences stay within a float's
 * precision. The device's clock drifts from the host's, so if the event completes at once,
 * its time is corrected towards the host's, after a long pause to the host's. Returns 1
 * if the base has moved. */
static int
clock_rebase(struct cu_dev *d)
{
    const int is_new = !d->next_pending;
    const uint64_t t0 = cu_now_ns();
    uint64_t t1 = t0;
    float ms = 0;
    if (is_new && cu_result(d, "cudaEventRecord", cudaEventRecord(d->next_base, d->aux)) != 0)
        return 0;
    d->next_pending = 1;
    cudaError_t err = cudaEventQuery(d->next_base);
    while (is_new && err == cudaErrorNotReady && t1 - t0 < CLOCK_WAIT_NS) {
        err = cudaEventQuery(d->next_base);
        t1 = cu_now_ns();
    }
    if (err == cudaSuccess)
        err = cudaEventElapsedTime(&ms, d->base, d->next_base);
    if (err == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return 0;
    }
    if (cu_result(d, "cudaEventElapsedTime", err) != 0)
        return 0;
    d->base_ns += (uint64_t)((double)ms * 1e6);
    const int64_t off = is_new ? (int64_t)(t0 + (t1 - t0) / 2 - d->base_ns) : 0;
    d->base_ns += (uint64_t)(ms > CLOCK_FAR_MS ? off : off > CLOCK_STEP_NS ? CLOCK_STEP_NS :
        off < -CLOCK_STEP_NS ? -CLOCK_STEP_NS : off);
    const cudaEvent_t e = d->base;
    d->base = d->next_base;
    d->next_base = e;
    d->next_pending = 0;
    return 1;
}

uint64_t
cu_event_ns(fdk_event_t e)
{
    struct cu_event *ev = reinterpret_cast<struct cu_event *>(e);
    float ms = 0;
    if (ev == NULL || cu_enter(ev->dev) != 0)
        return 0;
    struct cu_dev *d = ev->dev;
    cudaError_t err = cudaSuccess;
    uint64_t ns = 0;
    pthread_mutex_lock(&d->lock);
    /* After a long pause the time is computed from a new base; the next one may still be
     * from before the pause. */
    for (int more = 3; more > 0; more--) {
        err = cudaEventElapsedTime(&ms, d->base, ev->e);
        ns = d->base_ns + (uint64_t)(int64_t)((double)ms * 1e6);
        if (err != cudaSuccess || ms <= CLOCK_REBASE_MS || !clock_rebase(d) ||
            ms <= CLOCK_FAR_MS)
            break;
    }
    pthread_mutex_unlock(&d->lock);
    if (err == cudaSuccess)
        return ns;
    /* Not recorded or not completed: no time yet, but the device has not failed. */
    (void)cudaGetLastError();
    if (err != cudaErrorNotReady && err != cudaErrorInvalidResourceHandle)
        (void)cu_result(d, "cudaEventElapsedTime", err);
    return 0;
}

/* ---- copies -------------------------------------------------------------- */

int
cu_copy(fdk_stream_t st, void *dst, const void *src, size_t bytes)
{
    int rc = cu_stream_enter(st);
    if (rc != 0 || bytes == 0)
        return rc;
    if (dst == NULL || src == NULL)
        return -EINVAL;
    return cu_result(cu_stream_of(st)->dev, "cudaMemcpyAsync",
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, cu_raw(st)));
}

int
cu_copy_peer(fdk_stream_t st, int dst_dev, void *dst, int src_dev, const void *src,
    size_t bytes)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    struct fdk_ctx *ctx = cu_stream_of(st)->dev->ctx;
    if (dst_dev < 0 || dst_dev >= ctx->n_dev || src_dev < 0 || src_dev >= ctx->n_dev ||
        ((dst == NULL || src == NULL) && bytes != 0))
        return -EINVAL;
    rc = cu_enter_idx(ctx, dst_dev);
    if (rc == 0)
        rc = cu_enter_idx(ctx, src_dev);
    if (rc == 0)
        rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (bytes == 0)
        return 0;
    return cu_result(cu_stream_of(st)->dev, "cudaMemcpyPeerAsync",
        cudaMemcpyPeerAsync(dst, ctx->dev[dst_dev].idx, src, ctx->dev[src_dev].idx, bytes,
        cu_raw(st)));
}

int
cu_fill(fdk_stream_t st, void *dst, int byte, size_t bytes)
{
    int rc = cu_stream_enter(st);
    if (rc != 0 || bytes == 0)
        return rc;
    if (dst == NULL)
        return -EINVAL;
    return cu_result(cu_stream_of(st)->dev, "cudaMemsetAsync",
        cudaMemsetAsync(dst, byte, bytes, cu_raw(st)));
}

/* ---- graphs -------------------------------------------------------------- */

/* ThreadLocal: calls that a capture forbids fail only in this thread; other
 * threads may meanwhile load weights or read results. */
int
cu_graph_begin(fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    struct cu_stream *s = cu_stream_of(st);
    if (s->capturing)
        return -EINVAL;
    rc = cu_result(s->dev, "cudaStreamBeginCapture",
        cudaStreamBeginCapture(s->s, cudaStreamCaptureModeThreadLocal));
    s->capturing = rc == 0;
    return rc;
}

int
cu_graph_end(fdk_stream_t st, struct fdk_graph **ret)
{
    if (st == NULL || !cu_stream_of(st)->capturing)
        return -EINVAL;
    struct cu_stream *s = cu_stream_of(st);
    int rc = cu_enter(s->dev);
    if (rc != 0)
        return rc;
    cudaGraph_t g = NULL;
    s->capturing = 0;
    cudaError_t e = cudaStreamEndCapture(s->s, &g);
    if (e == cudaErrorStreamCaptureInvalidated) {
        (void)cudaGetLastError();
        return -EBUSY;                /* a forbidden call was made meanwhile */
    }
    rc = cu_result(s->dev, "cudaStreamEndCapture", e);
    if (rc != 0)
        return rc;
    struct fdk_graph *ng = (struct fdk_graph *)calloc(1, sizeof(*ng));
    if (ng == NULL) {
        rc = -ENOMEM;
    } else {
        ng->magic = CU_GRAPH_MAGIC;
        ng->dev = s->dev;
        rc = cu_result(s->dev, "cudaGraphInstantiate",
            cudaGraphInstantiate(&ng->exec, g, 0));
    }
    cudaGraphDestroy(g);
    if (rc != 0) {
        free(ng);
        return rc;
    }
    *ret = ng;
    return 0;
}

int
cu_graph_launch(struct fdk_graph *g, fdk_stream_t st)
{
    int rc = g == NULL ? -EINVAL : cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (cu_stream_of(st)->capturing || cu_stream_of(st)->dev != g->dev)
        return -EINVAL;
    /* A range for profilers; costs only a test of a pointer if none is attached. */
    (void)nvtxRangePushA("step");
    rc = cu_result(g->dev, "cudaGraphLaunch", cudaGraphLaunch(g->exec, cu_raw(st)));
    (void)nvtxRangePop();
    return rc;
}

void
cu_graph_free(struct fdk_graph *g)
{
    if (g == NULL)
        return;
    /* CUDA frees the nodes of a replay in flight when it is done. */
    if (cu_enter(g->dev) == 0)
        (void)cu_result(g->dev, "cudaGraphExecDestroy", cudaGraphExecDestroy(g->exec));
    g->magic = 0;
    free(g);
}
