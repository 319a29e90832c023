/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between virtual devices. The stream's thread runs the channels one after
 * the other. Not for INLINE and DEFER, where one thread would run ranks that wait for
 * each other.
 */
#include "config.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vdev.h"
#include "kernels/program.h"

#include <stdlib.h>
#include <string.h>

#define COLL_FN   static inline
#define COLL_RARE static inline
#include "kernels/collective_channel.h"

#define GROUP_MAGIC 0x67727031u
#define CHUNK       256    /* elements that are converted at a time */
#define POLLS       64     /* polls before a rank reads the clock */
#define SPIN_NS     100000 /* time of polling after that, before it sleeps */

static const struct coll_default defaults = { .bytes = 1u << 20,
    .one_shot_bytes = 64u << 10,
    .n_channel = 4 };

/* Doorbell of a rank: rung after a write to its workspace. */
struct bell {
    _Atomic uint32_t rung, n_wait;
    char pad[CPU_CACHELINE - 2 * sizeof(uint32_t)];
};

struct fdk_group {
    uint32_t magic;
    struct fdk_ctx *ctx;
    struct fdk_group *next;  /* of the context */
    struct coll_space space; /* rank: not set */
    int32_t device[FDK_MAX_RANKS];
    struct bell bell[FDK_MAX_RANKS];
    struct coll_ahead ahead[FDK_MAX_RANKS];
    struct cpu_spin spin;
    fdk_cpu_meet_fn *hook;
    void *hook_arg;
};

struct own { /* coll_run.own */
    struct CUstream_st *st;
    struct fdk_group *g;
};

/* ---- numbers ------------------------------------------------------------------ */

static uint16_t
bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static uint16_t
f16_of(float x)
{
    uint32_t u, sign;
    memcpy(&u, &x, 4);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u >= 0x47800000) /* 65,536 */
        return (uint16_t)(sign | (u > 0x7f800000 ? 0x7e00 : 0x7c00));
    if (u < 0x38800000) { /* subnormal: 0.5's last place is 1 */
        memcpy(&x, &u, 4);
        x += 0.5f;
        memcpy(&u, &x, 4);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    u += 0xfff + (u >> 13 & 1) - (112u << 23);
    return (uint16_t)(sign | u >> 13);
}

static void
from_f32(char *dst, const float *v, uint32_t n, enum fdk_dtype t)
{
    if (t == FDK_F32)
        memcpy(dst, v, n * sizeof(*v));
    for (uint32_t i = 0; i < n && t != FDK_F32; i++) {
        uint16_t h = t == FDK_BF16 ? bf16_of(v[i]) : f16_of(v[i]);
        memcpy(dst + 2 * (size_t)i, &h, 2);
    }
}

static void
to_f32(const struct coll_run *r, float *dst, const char *src, uint32_t n)
{
    const struct own *own = r->own;
    own->st->dev->ctx->isa->load_row(dst, src, r->j->type, n, 1);
}

/* ---- functions used by collective_channel.h -------------------------------------- */

COLL_FN void
coll_push(const struct coll_run *r, char *dst, const char *x, uint32_t m)
{
    memcpy(dst, x, (size_t)m * (size_t)r->j->eb);
}

/* Stores sums at .. at + n, in the operands' type, in y, or adds them to the residual. */
static void
out(const struct coll_run *r, uint64_t at, uint32_t n, const char *sum)
{
    float v[CHUNK];
    if (r->j->residual == NULL) {
        memmove(r->j->y + at * (uint32_t)r->j->eb, sum, (size_t)n * (size_t)r->j->eb);
        return;
    }
    to_f32(r, v, sum, n);
    for (uint32_t i = 0; i < n; i++)
        r->j->residual[at + i] += v[i];
}

COLL_FN void
coll_take(const struct coll_run *r, uint64_t at, uint32_t m, const char *src)
{
    for (uint32_t i = 0, n; i < m; i += n) {
        n = m - i < CHUNK ? m - i : CHUNK;
        out(r, at + i, n, src + (size_t)i * (size_t)r->j->eb);
    }
}

COLL_FN void
coll_sum(const struct coll_run *r, uint64_t at, uint32_t m, const char *buf,
    uint32_t slot, uint32_t result)
{
    float sum[CHUNK], v[CHUNK];
    char done[CHUNK * sizeof(float)];
    size_t eb = (size_t)r->j->eb;
    for (uint32_t i = 0, n; i < m; i += n) {
        n = m - i < CHUNK ? m - i : CHUNK;
        for (int q = 0; q < r->s->n; q++) {
            const char *src = q == r->s->rank
                ? coll_x(r, at + i)
                : buf + (size_t)slot * (size_t)q + i * eb;
            to_f32(r, q == 0 ? sum : v, src, n);
            for (uint32_t k = 0; k < n && q > 0; k++)
                sum[k] += v[k];
        }
        from_f32(done, sum, n, r->j->type);
        for (int k = 1; k < r->s->n && result != 0; k++)
            memcpy(coll_buf_of(r, coll_peer(r, k)) + result + i * eb, done, n * eb);
        out(r, at + i, n, done);
    }
}

COLL_FN void
coll_norm(const struct coll_run *r, uint64_t first, uint64_t end)
{
    const struct own *own = r->own;
    const struct coll_job *j = r->j;
    size_t C = (size_t)j->C;
    for (uint64_t t = first; t < end; t++) {
        char *y = j->y + t * C * (size_t)j->eb;
        const struct fdk_rmsnorm_args a = {
            .y = j->type == FDK_F32 ? y : own->st->scratch,
            .x = j->residual + t * C,
            .w = j->w,
            .T = 1,
            .C = j->C,
            .eps = j->eps,
            .offset = j->offset,
        };
        own->st->dev->ctx->isa->rmsnorm(&a, 0);
        if (j->type != FDK_F32)
            from_f32(y, a.y, (uint32_t)C, j->type);
    }
}

COLL_FN void
coll_place(const struct coll_run *r, int q, uint64_t at, uint32_t m, const char *src)
{
    size_t eb = (size_t)r->j->eb, C = (size_t)r->j->C, n;
    for (uint64_t end = at + m; at < end; at += n, src += n * eb) {
        size_t t = at / C, c = at % C;
        n = C - c < end - at ? C - c : (size_t)(end - at);
        memcpy(r->j->y + (t * (size_t)r->j->ldy + (size_t)q * C + c) * eb, src, n * eb);
    }
}

/* Copies a head's vector and its scale to a peer's cache. */
static void
push_vector(const struct fdk_kv_share_args *a, const struct coll_kv_way *w, char *to,
    int32_t head, int value)
{
    const struct fdk_kv *kv = &a->kv;
    const char *from = w->from->base;
    memcpy(to + coll_kv_at(kv, a->layer, w->slot, head, value),
        from + coll_kv_at(w->from, w->from_layer, w->from_slot, head, value),
        (size_t)kv->head_dim * fdk_dtype_bytes(kv->dtype));
    if (kv->dtype == FDK_I8)
        memcpy(to + coll_kv_scale_at(kv, a->layer, w->slot, head, value),
            from + coll_kv_scale_at(w->from, w->from_layer, w->from_slot, head, value),
            sizeof(float));
}

COLL_FN void
coll_push_kv(const struct coll_run *r)
{
    const struct fdk_kv_share_args *a = r->args;
    struct coll_span t = coll_kv_span(r->j, a, r->channel);
    for (; t.first < t.end; t.first++) {
        struct coll_kv_way w = coll_kv_way_of(a, r->s, (int32_t)t.first);
        int n = w.slot < 0 ? 0 : w.copy >= 0 ? 1 : r->s->n - 1;
        for (int k = 1; k <= n; k++)
            for (int32_t h = 0; h < 2 * a->kv.n_kv_head; h++)
                push_vector(a, &w, a->peer[w.copy >= 0 ? w.copy : coll_peer(r, k)], h / 2,
                    h % 2);
    }
}

static int32_t
outputs(const struct fdk_row_share_args *a)
{
    int32_t n = a->O > 0 ? *a->b->n_out : 0;
    return n < 0 ? 0 : n < a->O ? n : a->O;
}

COLL_FN void
coll_push_results(const struct coll_run *r)
{
    const struct fdk_row_share_args *a = r->args;
    for (int32_t o = 0; o < outputs(a); o++)
        a->all[a->at[o]] = a->results[o];
}

COLL_FN void
coll_push_rows(const struct coll_run *r)
{
    const struct fdk_row_share_args *a = r->args;
    for (int32_t o = 0; o < outputs(a); o++) {
        int32_t slot = a->b->state[a->b->out[o].row];
        const struct fdk_row *own = &a->state[0][slot];
        for (int q = 1; q < r->s->n && a->b->out[o].kind == FDK_OUT_SAMPLE; q++) {
            struct fdk_row *to = &a->state[q][slot];
            to->last_token = own->last_token;
            to->len = own->len;
            to->done = own->done;
        }
    }
}

static uint64_t *
bad_at(const struct coll_space *s, int rank)
{
    return (uint64_t *)(void *)s->base[rank];
}

static int
fail(const struct coll_run *r, uint64_t bad)
{
    const struct own *own = r->own;
    int who = r->s->number[(bad - 1) & 0xff];
    if ((bad - 1) >> 8 == COLL_LATE)
        cpu_fail(own->st->dev, "collective: rank %d did not arrive within %u ms", who,
            (unsigned)(r->s->limit_ns / 1000000));
    else if ((bad - 1) >> 8 == COLL_GONE)
        cpu_fail(own->st->dev, "collective: rank %d failed", who);
    else
        cpu_fail(own->st->dev,
            "collective: ranks launched different operations, seen at rank %d", who);
    return -1;
}

static void
ring(struct fdk_group *g, int rank)
{
    atomic_fetch_add(&g->bell[rank].rung, 1);
    cpu_wake(&g->bell[rank].rung, &g->bell[rank].n_wait);
}

/* Sets the failure value for all ranks. The first one set is kept and returned. */
static uint64_t
tell(struct fdk_group *g, uint64_t bad)
{
    uint64_t first = 0;
    if (!__atomic_compare_exchange_n(bad_at(&g->space, 0), &first, bad, 0,
            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        bad = first;
    for (int q = 1; q < g->space.n; q++)
        __atomic_store_n(bad_at(&g->space, q), bad, __ATOMIC_RELEASE);
    for (int q = 0; q < g->space.n; q++)
        ring(g, q);
    return bad;
}

static struct fdk_group *
group_of(const struct coll_run *r)
{
    return ((const struct own *)r->own)->g;
}

static int
give_up(const struct coll_run *r, enum coll_bad kind, int who)
{
    return fail(r, tell(group_of(r), coll_bad_of(kind, who)));
}

void
cpu_groups_tell(const struct cpu_dev *dev)
{
    struct fdk_ctx *ctx = dev->ctx;
    pthread_mutex_lock(&ctx->group_lock);
    for (struct fdk_group *g = ctx->groups; g != NULL; g = g->next) {
        int32_t rank = coll_rank_of(g->device, g->space.n, (int32_t)(dev - ctx->dev));
        if (rank >= 0)
            tell(g, coll_bad_of(COLL_GONE, rank));
    }
    pthread_mutex_unlock(&ctx->group_lock);
}

/* Returns the lowest rank whose flag has not arrived, n if all have, or -1 - rank of a
 * rank that launched another operation. */
static int
missing(const struct coll_run *r, int stage)
{
    for (int q = 0; q < r->s->n; q++) {
        if (q == r->s->rank)
            continue;
        uint64_t v =
            __atomic_load_n(coll_flag_at(r, r->s->rank, stage, q), __ATOMIC_ACQUIRE);
        if (v >> COLL_TAG_BITS != coll_flag(r) >> COLL_TAG_BITS)
            return q;
        if (v != coll_flag(r))
            return -1 - q;
    }
    return r->s->n;
}

static int
wait_all(const struct coll_run *r, int stage)
{
    struct bell *bell = &group_of(r)->bell[r->s->rank];
    uint64_t end = 0, bad;
    for (int i = 0;; i++) {
        uint32_t rung = atomic_load(&bell->rung);
        int q = missing(r, stage);
        if (q == r->s->n)
            break;
        if (q < 0)
            return give_up(r, COLL_OTHER, -1 - q);
        if (i < POLLS) {
            cpu_relax();
            continue;
        }
        bad = __atomic_load_n(bad_at(r->s, r->s->rank), __ATOMIC_ACQUIRE);
        if (bad != 0)
            return fail(r, bad);
        if (end == 0)
            end = cpu_now_ns() + r->s->limit_ns;
        if (!cpu_wait_ge_until(&bell->rung, rung + 1, &bell->n_wait, &group_of(r)->spin,
                0, end))
            return give_up(r, COLL_LATE, q);
    }
    bad = __atomic_load_n(bad_at(r->s, r->s->rank), __ATOMIC_ACQUIRE);
    return bad != 0 ? fail(r, bad) : 0;
}

static int
hook(const struct coll_run *r, int stage, int met)
{
    const struct fdk_group *g = group_of(r);
    return g->hook != NULL ? g->hook(g->hook_arg, r->s->rank, stage, r->seq, met) : 0;
}

COLL_FN int
coll_signal(const struct coll_run *r, int stage)
{
    const struct own *own = r->own;
    if (hook(r, stage, 0) != 0) {
        cpu_fail(own->st->dev, "a test made the device fail in a collective");
        return -1;
    }
    for (int k = 1; k < r->s->n; k++)
        __atomic_store_n(coll_flag_at(r, coll_peer(r, k), stage, r->s->rank),
            coll_flag(r), __ATOMIC_RELEASE);
    for (int k = 1; k < r->s->n; k++)
        ring(own->g, coll_peer(r, k));
    return 0;
}

COLL_FN int
coll_wait(const struct coll_run *r, int stage)
{
    int rc = wait_all(r, stage);
    if (rc == 0)
        (void)hook(r, stage, 1);
    return rc;
}

/* ---- running --------------------------------------------------------------------- */

static void
run_job(struct CUstream_st *st, struct fdk_group *g, const struct coll_job *j,
    const void *args)
{
    struct coll_space s = g->space;
    struct own own = { st, g };
    struct coll_run r = { .s = &s, .j = j, .own = &own, .args = args };
    s.rank = coll_rank_of(g->device, s.n, (int32_t)(st->dev - g->ctx->dev));
    r.count = args == NULL ? coll_count(j) : 0;
    for (r.channel = 0; r.channel < j->n_channel; r.channel++) {
        if ((args != NULL ? coll_copies_run(&r) : coll_channel_run(&r)) != 0)
            return;
        coll_channel_of(&r, s.rank)->seq = r.seq;
    }
}

void
cpu_collective(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    const struct fdk_all_reduce_args *a = &cmd->u.all_reduce;
    const struct fdk_all_gather_args *b = &cmd->u.all_gather;
    struct fdk_group *g = cmd->op == CMD_ALL_REDUCE ? a->group : b->group;
    struct coll_job j;
    if ((cmd->op == CMD_ALL_REDUCE ? coll_reduce_job(a, &g->space, &j)
                                   : coll_gather_job(b, &g->space, &j)) == 0)
        run_job(st, g, &j, NULL);
}

/* Uses one channel: a virtual device runs channels one after the other, so more would
 * only add synchronizations. */
void
cpu_copies(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    const struct fdk_kv_share_args *a = &cmd->u.kv_share;
    const struct fdk_row_share_args *b = &cmd->u.row_share;
    struct fdk_group *g = cmd->op == CMD_KV_SHARE ? a->group : b->group;
    struct coll_job j;
    if ((cmd->op == CMD_KV_SHARE ? coll_kv_job(a, &g->space, &j)
                                 : coll_rows_job(b, &g->space, &j)) != 0)
        return;
    j.n_channel = 1;
    run_job(st, g, &j, &cmd->u);
}

/* Sends an operand to the other rank, or sums it with the one received from there. */
void
cpu_ahead(struct CUstream_st *st, const struct cpu_cmd *cmd)
{
    struct fdk_group *g = cmd->u.ahead.args.group;
    struct coll_space s = g->space;
    struct own own = { st, g };
    struct coll_job j;
    struct coll_run r = { .s = &s, .j = &j, .own = &own, .seq = cmd->u.ahead.seq };
    if (coll_ahead_job(&cmd->u.ahead.args, &s, &j) != 0)
        return;
    s.rank = coll_rank_of(g->device, s.n, (int32_t)(st->dev - g->ctx->dev));
    r.channel = s.n_channel;
    r.tag = coll_ahead_tag(&j);
    if (cmd->op == CMD_REDUCE_SEND) {
        memcpy(coll_ahead_of(&s, 1 - s.rank, r.seq), j.x,
            (size_t)j.T * (size_t)j.C * (size_t)j.eb);
        (void)coll_signal(&r, 0);
    } else if (coll_wait(&r, 0) == 0) {
        j.n_channel = 1;
        r.channel = 0;
        r.count = coll_count(&j);
        coll_ahead_run(&r, coll_ahead_of(&s, s.rank, r.seq));
    }
}

static int
group_valid(const struct fdk_group *g, fdk_stream_t st)
{
    return st != NULL && g != NULL && g->magic == GROUP_MAGIC && g->ctx == st->dev->ctx &&
        coll_rank_of(g->device, g->space.n, (int32_t)(st->dev - g->ctx->dev)) >= 0;
}

int
vdev_all_reduce(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ALL_REDUCE };
    struct coll_job j;
    if (!group_valid(a->group, st))
        return -EINVAL;
    int rc = coll_reduce_job(a, &a->group->space, &j);
    if (rc != 0)
        return rc;
    if (a->residual != NULL && a->act != FDK_F32 && a->C > FDK_CPU_NORM_MAX)
        return -ENOTSUP;
    c.u.all_reduce = *a;
    return cpu_push(st, &c);
}

static int
ahead_push(enum cpu_cmd_op op, const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = op, .u.ahead.args = *a };
    struct fdk_group *g = a->group;
    struct coll_job j;
    if (!group_valid(g, st))
        return -EINVAL;
    int rc = coll_ahead_job(a, &g->space, &j);
    if (rc != 0)
        return rc;
    if (st->rec != NULL ||
        (a->residual != NULL && a->act != FDK_F32 && a->C > FDK_CPU_NORM_MAX))
        return -ENOTSUP;
    rc = coll_ahead_next(
        &g->ahead[coll_rank_of(g->device, g->space.n, (int32_t)(st->dev - g->ctx->dev))],
        op == CMD_REDUCE_TAKE, &c.u.ahead.seq);
    return rc != 0 ? rc : cpu_push(st, &c);
}

int
vdev_reduce_send(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    return ahead_push(CMD_REDUCE_SEND, a, st);
}

int
vdev_reduce_take(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    return ahead_push(CMD_REDUCE_TAKE, a, st);
}

int
vdev_all_gather(const struct fdk_all_gather_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ALL_GATHER };
    struct coll_job j;
    if (!group_valid(a->group, st))
        return -EINVAL;
    int rc = coll_gather_job(a, &a->group->space, &j);
    if (rc != 0)
        return rc;
    c.u.all_gather = *a;
    return cpu_push(st, &c);
}

int
vdev_kv_share(const struct fdk_kv_share_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_KV_SHARE };
    struct coll_job j;
    if (!group_valid(a->group, st))
        return -EINVAL;
    int rc = coll_kv_job(a, &a->group->space, &j);
    if (rc != 0)
        return rc;
    c.u.kv_share = *a;
    return cpu_push(st, &c);
}

int
vdev_row_share(const struct fdk_row_share_args *a, fdk_stream_t st)
{
    struct cpu_cmd c = { .op = CMD_ROW_SHARE };
    struct coll_job j;
    if (!group_valid(a->group, st))
        return -EINVAL;
    int rc = coll_rows_job(a, &a->group->space, &j);
    if (rc != 0)
        return rc;
    c.u.row_share = *a;
    return cpu_push(st, &c);
}

static int
reduce_norm_launch(void *data, const struct fdk_op *op, int32_t n,
    const struct fdk_step *s, fdk_stream_t st)
{
    const struct fdk_all_reduce_args a = fdk_reduce_norm_args(op, s);
    (void)data;
    (void)n;
    return vdev_all_reduce(&a, st);
}

const struct fdk_fusion cpu_fusions[CPU_FUSIONS] = {
    { .name = "all_reduce_rmsnorm",
        .kernels = "all_reduce",
        .kind = { FDK_OP_ALL_REDUCE, FDK_OP_RMSNORM },
        .n = 2,
        .covers = fdk_reduce_norm_covers,
        .launch = reduce_norm_launch },
};

/* ---- groups ----------------------------------------------------------------------- */

static int
spaces_new(struct fdk_group *g)
{
    for (int i = 0; i < g->space.n; i++) {
        void *p;
        int rc = g->space.in_host
            ? vdev_host_alloc(g->ctx, coll_space_bytes(&g->space), &p)
            : vdev_mem_alloc(g->ctx, g->device[i], coll_space_bytes(&g->space), &p);
        if (rc != 0)
            return rc;
        memset(p, 0, coll_space_bytes(&g->space));
        g->space.base[i] = p;
    }
    return 0;
}

int
vdev_group_new(struct fdk_ctx *ctx, const struct fdk_group_args *a,
    struct fdk_group **ret, char *err, size_t err_bytes)
{
    _Static_assert(FDK_CPU_NORM_MAX * sizeof(float) <= CPU_SCRATCH_BYTES, "a row");
    struct coll_space s;
    int rc = coll_space_init(a, ctx->n_dev, &defaults, &s, err, err_bytes);
    if (rc != 0)
        return rc;
    if (ctx->math && ctx->mode != FDK_EXEC_THREAD) {
        snprintf(err, err_bytes,
            "collectives: devices without threads of their own cannot wait "
            "for each other");
        return -ENOTSUP;
    }
    struct fdk_group *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    g->magic = GROUP_MAGIC;
    g->ctx = ctx;
    g->space = s;
    g->spin.ns = SPIN_NS;
    for (int i = 0; i < s.n; i++)
        g->device[i] = a->device != NULL ? a->device[i] : i;
    rc = spaces_new(g);
    if (rc != 0) {
        snprintf(err, err_bytes, "collectives: cannot set up a workspace of %llu bytes: %s",
            (unsigned long long)coll_space_bytes(&s), strerror(-rc));
        vdev_group_free(g);
        return rc;
    }
    pthread_mutex_lock(&ctx->group_lock);
    g->next = ctx->groups;
    ctx->groups = g;
    pthread_mutex_unlock(&ctx->group_lock);
    *ret = g;
    return 0;
}

uint64_t
vdev_group_bytes(struct fdk_ctx *ctx, const struct fdk_group_args *a)
{
    struct coll_space s;
    char err[256];
    int rc = coll_space_init(a, ctx->n_dev, &defaults, &s, err, sizeof(err));
    return rc == 0 ? coll_space_bytes(&s) : 0;
}

void
vdev_group_ways(struct fdk_group *g, const struct fdk_group_ways *set,
    struct fdk_group_ways *was)
{
    coll_space_ways(&g->space, set, was);
}

void
vdev_group_abort(struct fdk_group *g, int32_t rank)
{
    tell(g, coll_bad_of(COLL_GONE, rank));
}

void
vdev_group_free(struct fdk_group *g)
{
    if (g == NULL)
        return;
    pthread_mutex_lock(&g->ctx->group_lock);
    for (struct fdk_group **p = &g->ctx->groups; *p != NULL; p = &(*p)->next)
        if (*p == g) {
            *p = g->next;
            break;
        }
    pthread_mutex_unlock(&g->ctx->group_lock);
    for (int i = 0; i < g->space.n; i++)
        if (g->space.base[i] == NULL)
            continue;
        else if (g->space.in_host)
            vdev_host_free(g->ctx, g->space.base[i]);
        else
            vdev_mem_free(g->ctx, g->device[i], g->space.base[i]);
    g->magic = 0;
    free(g);
}

void
fdk_cpu_group_hook(struct fdk_group *g, fdk_cpu_meet_fn *fn, void *arg)
{
    g->hook = fn;
    g->hook_arg = arg;
}

void
fdk_cpu_group_seq(struct fdk_group *g, uint64_t seq)
{
    struct coll_run r = { .s = &g->space };
    for (int q = 0; q < g->space.n; q++)
        for (r.channel = 0; r.channel < g->space.n_channel; r.channel++)
            coll_channel_of(&r, q)->seq = seq;
}
