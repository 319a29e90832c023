/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/vdev.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define COPY_SPLIT (512u << 10) /* bytes per item of copies by the pool */

static void run_cmd(struct CUstream_st *st, const struct cpu_cmd *cmd);

/* ---- execution ----------------------------------------------------------- */

struct mem_job {
    char *dst;
    const char *src;
    size_t bytes;
    int byte;
};

static void
mem_item(const void *arg, int item, void *scratch)
{
    const struct mem_job *j = arg;
    size_t off = (size_t)item * COPY_SPLIT;
    size_t n = j->bytes - off < COPY_SPLIT ? j->bytes - off : COPY_SPLIT;
    (void)scratch;
    if (j->src != NULL)
        memcpy(j->dst + off, j->src + off, n);
    else
        memset(j->dst + off, j->byte, n);
}

static void
run_mem(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    struct mem_job j = {
        cmd->u.mem.dst,
        cmd->u.mem.src,
        cmd->u.mem.bytes,
        cmd->u.mem.byte,
    };
    if (st->dev->pool != NULL && j.bytes > 2 * COPY_SPLIT &&
        (j.bytes - 1) / COPY_SPLIT < INT_MAX) {
        cpu_pool_run(st->dev->pool, mem_item, &j, (int)((j.bytes - 1) / COPY_SPLIT) + 1,
            st->scratch);
        return;
    }
    if (j.bytes == 0)
        return;
    if (j.src != NULL)
        memcpy(j.dst, j.src, j.bytes);
    else
        memset(j.dst, j.byte, j.bytes);
}

static void
run_event(struct CUstream_st *st, fdk_event_t ev, uint32_t ticket)
{
    uint64_t ns = cpu_now_ns(), ready = atomic_load(&st->ready_ns);
    if (ready > ns)
        ns = ready;
    uint32_t done = atomic_load(&ev->done);
    atomic_store_explicit(&ev->ns, ns, memory_order_relaxed);
    while ((int32_t)(ticket - done) > 0)
        if (atomic_compare_exchange_weak(&ev->done, &done, ticket))
            break;
    cpu_wake(&ev->done, &ev->n_wait);
}

static void
run_delay(struct CUstream_st *st, uint64_t ns)
{
    uint64_t now = cpu_now_ns();
    if (st->dev->ctx->mode != FDK_EXEC_THREAD) {
        uint64_t ready = atomic_load(&st->ready_ns);
        atomic_store(&st->ready_ns, (ready > now ? ready : now) + ns);
        return;
    }
    for (uint64_t end = now + ns; cpu_now_ns() < end && !atomic_load(&st->stop);)
        cpu_relax();
}

static void
run_wait(struct CUstream_st *st, fdk_event_t ev, uint32_t ticket)
{
    cpu_wait_ge(&ev->done, ticket, &ev->n_wait, &st->dev->ctx->spin);
    if (st->dev->ctx->mode == FDK_EXEC_THREAD)
        return;
    uint64_t ns = atomic_load_explicit(&ev->ns, memory_order_relaxed);
    if (ns > atomic_load(&st->ready_ns))
        atomic_store(&st->ready_ns, ns);
}

static void
run_cmd(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    struct cpu_dev *dev = st->dev;
    if (cmd->op == CMD_EVENT) {
        run_event(st, cmd->u.ev.event, cmd->u.ev.ticket);
        return;
    }
    if (cmd->op == CMD_WAIT) {
        run_wait(st, cmd->u.ev.event, cmd->u.ev.ticket);
        return;
    }
    if (cmd->op == CMD_GRAPH) {
        struct fdk_graph *g = cmd->u.graph;
        for (size_t i = 0; i < g->n; i++)
            run_cmd(st, &g->cmds[i]);
        atomic_fetch_sub(&g->pending, 1);
        return;
    }
    if (atomic_load_explicit(&dev->fail_after, memory_order_relaxed) > 0 &&
        atomic_fetch_sub(&dev->fail_after, 1) == 1)
        cpu_fail(dev, "failure injected by a test");
    if (cmd->op == CMD_FAIL)
        cpu_fail(dev, "a test made the device fail");
    if (cpu_failed(dev))
        return;
    if (cmd->op == CMD_COPY || cmd->op == CMD_FILL)
        run_mem(st, cmd);
    else if (cmd->op == CMD_DELAY)
        run_delay(st, cmd->u.delay_ns);
    else if (cmd->op == CMD_CALL)
        cmd->u.call.fn(cmd->u.call.args);
    else if (cmd->op == CMD_MARK)
        __atomic_store_n(cmd->u.mark.host, *cmd->u.mark.value, __ATOMIC_RELEASE);
    else
        dev->ctx->exec(st, cmd);
}

static void *
stream_main(void *arg)
{
    struct CUstream_st *st = arg;
    uint64_t until = 0;
    uint32_t head = 0;
    cpu_thread_nice(st->dev->ctx->nice);
    for (uint32_t i = 0;; i++) {
        if (atomic_load_explicit(&st->tail, memory_order_acquire) != head) {
            run_cmd(st, &st->ring[head & (CPU_QUEUE - 1)]);
            atomic_store(&st->head, ++head);
            cpu_wake(&st->head, &st->n_wait);
            until = 0;
            i = UINT32_MAX;
            continue;
        }
        if (atomic_load_explicit(&st->stop, memory_order_acquire))
            return NULL;
        cpu_relax();
        if ((i & 63) != 63 || cpu_spin_more(&st->dev->ctx->spin, &until))
            continue;
        atomic_store(&st->parked, 1);
        if (atomic_load(&st->tail) == head && !atomic_load(&st->stop))
            cpu_futex_wait(&st->parked, 1);
        atomic_store(&st->parked, 0);
        until = 0;
    }
}

/* ---- deferred execution -------------------------------------------------- */

/* The caller of these functions holds run_lock. */

static const struct cpu_cmd *
defer_head(const struct CUstream_st *st)
{
    uint32_t head = atomic_load(&st->head);
    return head == atomic_load(&st->tail) ? NULL : &st->ring[head & (CPU_QUEUE - 1)];
}

static void
defer_run_head(struct CUstream_st *st)
{
    run_cmd(st, defer_head(st));
    atomic_fetch_add(&st->head, 1);
}

static int
event_reached(const struct CUevent_st *ev, uint32_t ticket)
{
    return (int32_t)(atomic_load(&ev->done) - ticket) >= 0;
}

/* Finds the stream with this record of the event, or with a launch of the graph, in its
 * queue; *ret_end: value of the stream's head once that command has run. */
static struct CUstream_st *
defer_find(struct fdk_ctx *ctx, const struct CUevent_st *ev, uint32_t ticket,
    const struct fdk_graph *g, uint32_t *ret_end)
{
    for (struct CUstream_st *st = ctx->streams; st != NULL; st = st->next)
        for (uint32_t i = atomic_load(&st->head); i != atomic_load(&st->tail); i++) {
            const struct cpu_cmd *c = &st->ring[i & (CPU_QUEUE - 1)];
            if ((ev != NULL && c->op == CMD_EVENT && c->u.ev.event == ev &&
                    c->u.ev.ticket == ticket) ||
                (g != NULL && c->op == CMD_GRAPH && c->u.graph == g)) {
                *ret_end = i + 1;
                return st;
            }
        }
    return NULL;
}

/* A wait refers to a record that was issued before it, so the recursion into
 * other streams cannot lead back to later commands of this one. */
static void
defer_run_to(struct CUstream_st *st, uint32_t end)
{
    while ((int32_t)(atomic_load(&st->head) - end) < 0) {
        const struct cpu_cmd *c = defer_head(st);
        struct CUstream_st *other;
        uint32_t upto;
        if (c->op == CMD_WAIT && !event_reached(c->u.ev.event, c->u.ev.ticket)) {
            other = defer_find(st->dev->ctx, c->u.ev.event, c->u.ev.ticket, NULL, &upto);
            if (other != NULL)
                defer_run_to(other, upto);
        }
        defer_run_head(st);
    }
}

static void
defer_sync(struct fdk_ctx *ctx, struct CUevent_st *ev, struct fdk_graph *g)
{
    uint32_t end, ticket = ev != NULL ? atomic_load(&ev->issued) : 0;
    pthread_mutex_lock(&ctx->run_lock);
    while (ev != NULL ? !event_reached(ev, ticket) : atomic_load(&g->pending) != 0) {
        struct CUstream_st *st = defer_find(ctx, ev, ticket, g, &end);
        if (st == NULL)
            break;
        defer_run_to(st, end);
    }
    pthread_mutex_unlock(&ctx->run_lock);
}

int32_t
fdk_vdev_step(struct fdk_ctx *ctx, int32_t n)
{
    int32_t ran = 0;
    if (ctx == NULL || ctx->magic != CPU_CTX_MAGIC || ctx->mode != FDK_EXEC_DEFER)
        return 0;
    pthread_mutex_lock(&ctx->run_lock);
    for (int idle = 0; ran < n && idle < 2;) {
        struct CUstream_st *st = ctx->turn != NULL ? ctx->turn : ctx->streams;
        for (; st != NULL; st = st->next) {
            const struct cpu_cmd *c = defer_head(st);
            if (c != NULL &&
                (c->op != CMD_WAIT || event_reached(c->u.ev.event, c->u.ev.ticket)))
                break;
        }
        ctx->turn = st != NULL ? st->next : NULL;
        idle = st != NULL ? 0 : idle + 1;
        if (st != NULL) {
            defer_run_head(st);
            ran++;
        }
    }
    pthread_mutex_unlock(&ctx->run_lock);
    return ran;
}

/* Waits until all commands now in the stream have been executed. */
static void
stream_drain(struct CUstream_st *st)
{
    struct fdk_ctx *ctx = st->dev->ctx;
    if (ctx->mode == FDK_EXEC_THREAD) {
        cpu_wait_ge(&st->head, atomic_load(&st->tail), &st->n_wait, &ctx->spin);
    } else if (ctx->mode == FDK_EXEC_DEFER) {
        pthread_mutex_lock(&ctx->run_lock);
        defer_run_to(st, atomic_load(&st->tail));
        pthread_mutex_unlock(&ctx->run_lock);
    }
}

static void
event_drain(struct CUevent_st *ev)
{
    struct fdk_ctx *ctx = ev->dev->ctx;
    if (ctx->mode == FDK_EXEC_DEFER)
        defer_sync(ctx, ev, NULL);
    cpu_wait_ge(&ev->done, atomic_load(&ev->issued), &ev->n_wait, &ctx->spin);
}

/* ---- launching ----------------------------------------------------------- */

static int
graph_append(struct fdk_graph *g, const struct cpu_cmd *cmd)
{
    if (g->err != 0)
        return g->err;
    if (g->n == g->cap) {
        size_t cap = g->cap == 0 ? 64 : g->cap * 2;
        struct cpu_cmd *p = realloc(g->cmds, cap * sizeof(*p));
        if (p == NULL)
            return g->err = -ENOMEM;
        g->cmds = p;
        g->cap = cap;
    }
    g->cmds[g->n++] = *cmd;
    return 0;
}

static void
unpark(struct CUstream_st *st)
{
    if (atomic_load(&st->parked) != 0 && atomic_exchange(&st->parked, 0) != 0)
        cpu_futex_wake(&st->parked);
}

static void
defer_push(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    struct fdk_ctx *ctx = st->dev->ctx;
    pthread_mutex_lock(&ctx->run_lock);
    uint32_t tail = atomic_load(&st->tail);
    if (tail - atomic_load(&st->head) >= CPU_QUEUE)
        defer_run_to(st, tail - CPU_QUEUE + 1);
    st->ring[tail & (CPU_QUEUE - 1)] = *cmd;
    atomic_store(&st->tail, tail + 1);
    pthread_mutex_unlock(&ctx->run_lock);
}

static void
thread_push(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    uint32_t tail = atomic_load_explicit(&st->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&st->head, memory_order_acquire) >= CPU_QUEUE)
        cpu_wait_ge(&st->head, tail - CPU_QUEUE + 1, &st->n_wait, &st->dev->ctx->spin);
    st->ring[tail & (CPU_QUEUE - 1)] = *cmd;
    atomic_store(&st->tail, tail + 1);
}

/* Returns an error if the command was not accepted. */
static int
submit(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    enum fdk_exec mode = st->dev->ctx->mode;
    if (cpu_failed(st->dev))
        return -EIO;
    if (st->rec != NULL)
        return graph_append(st->rec, cmd);
    if (mode == FDK_EXEC_DEFER) {
        defer_push(st, cmd);
        return 0;
    }
    while (atomic_exchange_explicit(&st->push_lock, 1, memory_order_acquire) != 0)
        cpu_relax();
    if (mode == FDK_EXEC_INLINE)
        run_cmd(st, cmd);
    else
        thread_push(st, cmd);
    atomic_store_explicit(&st->push_lock, 0, memory_order_release);
    if (mode == FDK_EXEC_THREAD)
        unpark(st);
    return 0;
}

/* INLINE: returns the error of the command that has just run. */
static int
submitted(const struct CUstream_st *st)
{
    return st->dev->ctx->mode == FDK_EXEC_INLINE && cpu_failed(st->dev) ? -EIO : 0;
}

int
cpu_push(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    int err = submit(st, cmd);
    return err != 0 ? err : submitted(st);
}

int
vdev_copy(fdk_stream_t st, void *dst, const void *src, size_t bytes)
{
    struct cpu_cmd c = { .op = CMD_COPY };
    if (st == NULL || ((dst == NULL || src == NULL) && bytes != 0))
        return -EINVAL;
    c.u.mem.dst = dst;
    c.u.mem.src = src;
    c.u.mem.bytes = bytes;
    return cpu_push(st, &c);
}

int
vdev_copy_peer(fdk_stream_t st, int dst_dev, void *dst, int src_dev, const void *src,
    size_t bytes)
{
    if (st == NULL || dst_dev < 0 || dst_dev >= st->dev->ctx->n_dev || src_dev < 0 ||
        src_dev >= st->dev->ctx->n_dev)
        return -EINVAL;
    if (cpu_failed(&st->dev->ctx->dev[dst_dev]) || cpu_failed(&st->dev->ctx->dev[src_dev]))
        return -EIO;
    return vdev_copy(st, dst, src, bytes);
}

int
vdev_fill(fdk_stream_t st, void *dst, int byte, size_t bytes)
{
    struct cpu_cmd c = { .op = CMD_FILL };
    if (st == NULL || (dst == NULL && bytes != 0))
        return -EINVAL;
    c.u.mem.dst = dst;
    c.u.mem.byte = byte;
    c.u.mem.bytes = bytes;
    return cpu_push(st, &c);
}

/* ---- streams ------------------------------------------------------------- */

static void
stream_destroy(struct CUstream_st *st)
{
    free(st->scratch);
    free(st->ring);
    free(st);
}

/* Both locks: deferred execution iterates over the list of streams under run_lock. */
static void
streams_lock(struct fdk_ctx *ctx)
{
    pthread_mutex_lock(&ctx->run_lock);
    pthread_mutex_lock(&ctx->lock);
}

static void
streams_unlock(struct fdk_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
    pthread_mutex_unlock(&ctx->run_lock);
}

int
vdev_stream_new(struct fdk_ctx *ctx, int dev, fdk_stream_t *ret)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    if (cpu_failed(&ctx->dev[dev]))
        return -EIO;
    struct CUstream_st *st = calloc(1, sizeof(*st));
    if (st == NULL)
        return -ENOMEM;
    st->magic = CPU_STREAM_MAGIC;
    st->dev = &ctx->dev[dev];
    if (ctx->mode != FDK_EXEC_INLINE)
        st->ring = calloc(CPU_QUEUE, sizeof(*st->ring));
    if (ctx->math)
        st->scratch = aligned_alloc(CPU_CACHELINE, CPU_SCRATCH_BYTES);
    int err = 0;
    if ((ctx->mode != FDK_EXEC_INLINE && st->ring == NULL) ||
        (ctx->math && st->scratch == NULL))
        err = ENOMEM;
    else if (ctx->mode == FDK_EXEC_THREAD)
        err = pthread_create(&st->thread, NULL, stream_main, st);
    if (err != 0) {
        stream_destroy(st);
        return -err;
    }
    if (ctx->mode == FDK_EXEC_THREAD)
        pthread_setname_np(st->thread, "fdk-stream");
    streams_lock(ctx);
    struct CUstream_st **end = &ctx->streams;
    while (*end != NULL)
        end = &(*end)->next;
    *end = st;
    streams_unlock(ctx);
    *ret = st;
    return 0;
}

void
vdev_stream_free(fdk_stream_t st)
{
    if (st == NULL)
        return;
    struct fdk_ctx *ctx = st->dev->ctx;
    vdev_graph_free(st->rec);
    stream_drain(st);
    if (ctx->mode == FDK_EXEC_THREAD) {
        atomic_store(&st->stop, 1);
        atomic_store(&st->parked, 0);
        cpu_futex_wake(&st->parked);
        pthread_join(st->thread, NULL);
    }
    streams_lock(ctx);
    for (struct CUstream_st **p = &ctx->streams; *p != NULL; p = &(*p)->next)
        if (*p == st) {
            *p = st->next;
            break;
        }
    if (ctx->turn == st)
        ctx->turn = st->next;
    streams_unlock(ctx);
    st->magic = 0;
    stream_destroy(st);
}

static void
sleep_until(uint64_t ns)
{
    while (cpu_now_ns() < ns)
        cpu_relax();
}

int
vdev_stream_sync(fdk_stream_t st)
{
    if (st == NULL)
        return -EINVAL;
    if (st->rec != NULL)
        return -EBUSY;
    if (st->dev->ctx->mode == FDK_EXEC_INLINE)
        sleep_until(atomic_load(&st->ready_ns));
    else
        stream_drain(st);
    return cpu_failed(st->dev) ? -EIO : 0;
}

int
vdev_stream_delay(fdk_stream_t st, uint64_t ns)
{
    struct cpu_cmd c = { .op = CMD_DELAY };
    if (st == NULL)
        return -EINVAL;
    c.u.delay_ns = ns;
    return cpu_push(st, &c);
}

int
vdev_stream_fail(fdk_stream_t st)
{
    const struct cpu_cmd c = { .op = CMD_FAIL };
    return st == NULL ? -EINVAL : cpu_push(st, &c);
}

int
vdev_stream_mark(fdk_stream_t st, uint32_t *host, const uint32_t *value)
{
    struct cpu_cmd c = { .op = CMD_MARK };
    if (st == NULL || host == NULL || value == NULL)
        return -EINVAL;
    c.u.mark.host = host;
    c.u.mark.value = value;
    return cpu_push(st, &c);
}

int
vdev_stream_wait(fdk_stream_t st, fdk_event_t ev)
{
    struct cpu_cmd c = { .op = CMD_WAIT };
    if (st == NULL || ev == NULL || ev->dev->ctx != st->dev->ctx)
        return -EINVAL;
    if (st->rec != NULL)
        return -EBUSY;
    c.u.ev.event = ev;
    c.u.ev.ticket = atomic_load(&ev->issued);
    return cpu_push(st, &c);
}

/* ---- events -------------------------------------------------------------- */

/* Events live as long as the context: a stream's thread may still look for
 * sleepers on an event whose completion its owner has already seen. */
int
vdev_event_new(struct fdk_ctx *ctx, int dev, fdk_event_t *ret)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return -EINVAL;
    if (cpu_failed(&ctx->dev[dev]))
        return -EIO;
    pthread_mutex_lock(&ctx->lock);
    struct CUevent_st *ev = ctx->free_events;
    if (ev != NULL) {
        ctx->free_events = ev->next_free;
    } else if ((ev = calloc(1, sizeof(*ev))) != NULL) {
        ev->next = ctx->events;
        ctx->events = ev;
    }
    pthread_mutex_unlock(&ctx->lock);
    if (ev == NULL)
        return -ENOMEM;
    ev->magic = CPU_EVENT_MAGIC;
    ev->dev = &ctx->dev[dev];
    atomic_store(&ev->ns, 0);
    *ret = ev;
    return 0;
}

void
vdev_event_free(fdk_event_t ev)
{
    if (ev == NULL)
        return;
    struct fdk_ctx *ctx = ev->dev->ctx;
    event_drain(ev);
    pthread_mutex_lock(&ctx->lock);
    ev->magic = 0;
    ev->next_free = ctx->free_events;
    ctx->free_events = ev;
    pthread_mutex_unlock(&ctx->lock);
}

int
vdev_event_record(fdk_event_t ev, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_EVENT };
    if (st == NULL || ev == NULL || ev->dev->ctx != st->dev->ctx)
        return -EINVAL;
    if (st->rec != NULL)
        return -EBUSY;
    if (cpu_failed(st->dev))
        return -EIO;
    c.u.ev.event = ev;
    c.u.ev.ticket = atomic_fetch_add(&ev->issued, 1) + 1;
    int err = submit(st, &c);
    /* A device that failed in between accepts no commands: complete the ticket here, so
     * that no thread waits for it. */
    if (err != 0)
        run_event(st, ev, c.u.ev.ticket);
    return err != 0 ? err : submitted(st);
}

static int
event_state(fdk_event_t ev)
{
    if ((int32_t)(atomic_load(&ev->done) - atomic_load(&ev->issued)) < 0)
        return 0;
    if (ev->dev->ctx->mode == FDK_EXEC_INLINE && cpu_now_ns() < atomic_load(&ev->ns))
        return 0;
    return 1;
}

int
vdev_event_query(fdk_event_t ev)
{
    if (ev == NULL)
        return -EINVAL;
    return cpu_failed(ev->dev) ? -EIO : event_state(ev);
}

int
vdev_event_sync(fdk_event_t ev)
{
    if (ev == NULL)
        return -EINVAL;
    event_drain(ev);
    if (ev->dev->ctx->mode == FDK_EXEC_INLINE)
        sleep_until(atomic_load(&ev->ns));
    return cpu_failed(ev->dev) ? -EIO : 0;
}

/* INLINE: the commands have run; waits for the rest of their simulated time. */
static int
event_sleep(fdk_event_t ev, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = cpu_now_ns(), end = atomic_load(&ev->ns);
        if (now >= end)
            return 1;
        if (now >= until_ns)
            return 0;
        end = end < until_ns ? end : until_ns;
        if (end - now > 2 * CPU_NAP_EARLY_NS)
            cpu_nap(end - now - CPU_NAP_EARLY_NS);
        else
            cpu_relax();
    }
}

int
vdev_event_wait(fdk_event_t ev, uint64_t expect_ns, uint64_t until_ns)
{
    if (ev == NULL)
        return -EINVAL;
    struct fdk_ctx *ctx = ev->dev->ctx;
    int done = 1;
    if (ctx->mode == FDK_EXEC_INLINE)
        done = event_sleep(ev, until_ns);
    else if (ctx->mode == FDK_EXEC_DEFER)
        event_drain(ev);
    else
        done = cpu_wait_ge_until(&ev->done, atomic_load(&ev->issued), &ev->n_wait,
            &ctx->spin, expect_ns, until_ns);
    return cpu_failed(ev->dev) ? -EIO : done;
}

uint64_t
vdev_event_ns(fdk_event_t ev)
{
    return atomic_load(&ev->ns);
}

/* ---- graphs -------------------------------------------------------------- */

int
vdev_graph_begin(fdk_stream_t st)
{
    if (st == NULL || st->rec != NULL)
        return -EINVAL;
    if (cpu_failed(st->dev))
        return -EIO;
    struct fdk_graph *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    g->magic = CPU_GRAPH_MAGIC;
    g->dev = st->dev;
    st->rec = g;
    return 0;
}

int
vdev_graph_end(fdk_stream_t st, struct fdk_graph **ret)
{
    if (st == NULL || st->rec == NULL)
        return -EINVAL;
    struct fdk_graph *g = st->rec;
    int err = g->err;
    st->rec = NULL;
    if (err == 0 && cpu_failed(st->dev))
        err = -EIO;
    if (err != 0) {
        vdev_graph_free(g);
        return err;
    }
    *ret = g;
    return 0;
}

int
vdev_graph_launch(struct fdk_graph *g, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_GRAPH };
    if (g == NULL || st == NULL || st->rec != NULL || g->dev != st->dev)
        return -EINVAL;
    if (cpu_failed(st->dev))
        return -EIO;
    c.u.graph = g;
    atomic_fetch_add(&g->pending, 1);
    int err = submit(st, &c);
    if (err != 0)
        atomic_fetch_sub(&g->pending, 1);
    return err != 0 ? err : submitted(st);
}

void
vdev_graph_free(struct fdk_graph *g)
{
    if (g == NULL)
        return;
    if (g->dev->ctx->mode == FDK_EXEC_DEFER)
        defer_sync(g->dev->ctx, NULL, g);
    while (atomic_load(&g->pending) != 0)
        cpu_relax();
    g->magic = 0;
    free(g->cmds);
    free(g);
}
