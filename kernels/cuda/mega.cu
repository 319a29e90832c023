/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the operations of a stream to find the layers of a single-token decode
 * for mega_kernel.cu. Operations on one row of 16-bit activations are kept in a list; any
 * other operation first launches that list (cu_stream_enter). Two layers in a row
 * and more are one launch, all else is launched one by one, as it would have been. Products
 * of more rows wait too, for silu_mul, where that may be their end (gemm_stream_mid.cu,
 * gemm_silu.cu).
 */
#include "kernels/cuda/mega.cuh"
#include "kernels/cuda/vec8.cuh"

#include <stdlib.h>
#include <string.h>

#define MEGA_MAPS  4096              /* matrices of a device */
#define OPS        1200              /* that wait, at most */
#define LAYERS_MIN 2                 /* of a launch */

enum kind { NORM, GEMM, QKV, ATTENTION, SILU, GATHER };

struct op {
    enum kind kind;
    union {
        struct fdk_rmsnorm_args norm;
        struct fdk_gemm_args gemm;
        struct fdk_qkv_args qkv;
        struct fdk_attention_args attention;
        struct fdk_silu_mul_args silu;
        struct fdk_gather_args gather;
    };
};

/* The operations of a layer, in the order in which they come. */
enum { L_NORM, L_QKV_GEMM, L_QKV, L_ATTENTION, L_O, L_POST_NORM, L_GU, L_SILU, L_DOWN,
    L_OPS };
static const int product[MEGA_PRODUCTS] = { L_QKV_GEMM, L_O, L_GU, L_DOWN };

struct map_key {
    const void *w, *scale;
    int32_t N, K, type, scaled;
};

/* Of a device: one stream at a time runs steps. A map is written once, before a kernel
 * first uses it, and stays as it is. */
struct cu_mega_dev {
    struct mega_state *state;        /* on the device */
    struct mega_maps *maps;          /* on the device, [MEGA_MAPS] */
    struct map_key key[MEGA_MAPS];   /* their matrices, by address; w NULL: unused */
};

struct cu_mega {
    int n;                           /* operations */
    int has_b;
    struct fdk_batch b;              /* of all that have one */
    struct op op[OPS];
    struct mega_list list;           /* of a launch */
};

/* ---- the list ------------------------------------------------------------ */

static void
list_clear(struct cu_mega *m)
{
    m->n = m->has_b = 0;
}

void
cu_mega_drop(struct cu_stream *s)
{
    if (s->mega != NULL)
        list_clear(s->mega);
}

void
cu_mega_free(struct cu_stream *s)
{
    free(s->mega);
    s->mega = NULL;
}

/* A place at the end of the list for an operation on T rows; NULL: it does not wait. b: of
 * the operation, NULL if it has none. */
static struct op *
list_add(fdk_stream_t st, enum kind kind, int T, enum fdk_dtype act,
    const struct fdk_batch *b, int *ret_rc)
{
    struct cu_stream *s = cu_stream_of(st);
    const struct cu_dev *d = s->dev;
    const int row = T == 1 && !d->ctx->deterministic;
    const int gate = T > 1 && (kind == GEMM || kind == SILU);
    const int may = d->mega != NULL && !d->ctx->unfused && (row || gate) && act == FDK_BF16;
    *ret_rc = 0;
    if (may && s->mega == NULL)
        s->mega = (struct cu_mega *)calloc(1, sizeof(*s->mega));
    struct cu_mega *m = s->mega;
    if (m != NULL && (!may || m->n == OPS ||
        (b != NULL && m->has_b && memcmp(b, &m->b, sizeof(*b)) != 0)))
        *ret_rc = cu_mega_flush(st);
    if (!may || m == NULL || *ret_rc != 0)
        return NULL;
    if (b != NULL)
        m->b = *b;
    m->has_b |= b != NULL;
    m->op[m->n].kind = kind;
    return &m->op[m->n++];
}

/* 1: it is in the list. Else the list has been launched: 0 or an error. */
template<typename A>
static int
list_take(fdk_stream_t st, enum kind kind, A op::*place, const A *a, int T,
    const struct fdk_batch *b)
{
    int rc;
    struct op *o = list_add(st, kind, T, a->act, b, &rc);
    if (o == NULL)
        return rc;
    o->*place = *a;
    return 1;
}

int
cu_mega_rmsnorm(const struct fdk_rmsnorm_args *a, fdk_stream_t st)
{
    return list_take(st, NORM, &op::norm, a, a->T, NULL);
}

int
cu_mega_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    return list_take(st, GEMM, &op::gemm, a, a->T, NULL);
}

int
cu_mega_qkv(const struct fdk_qkv_args *a, fdk_stream_t st)
{
    return list_take(st, QKV, &op::qkv, a, a->T, a->b);
}

int
cu_mega_attention(const struct fdk_attention_args *a, fdk_stream_t st)
{
    return list_take(st, ATTENTION, &op::attention, a, a->T, a->b);
}

int
cu_mega_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    return list_take(st, SILU, &op::silu, a, a->T, NULL);
}

int
cu_mega_gather(const struct fdk_gather_args *a, fdk_stream_t st)
{
    return list_take(st, GATHER, &op::gather, a, a->O, a->b);
}

static int
launch_one(struct op *op, const struct fdk_batch *b, fdk_stream_t st)
{
    switch (op->kind) {
    case NORM:
        return cu_rmsnorm_launch(&op->norm, st);
    case GEMM:
        return cu_gemm_launch(&op->gemm, st);
    case QKV:
        op->qkv.b = b;
        return cu_qkv_launch(&op->qkv, st);
    case ATTENTION:
        op->attention.b = b;
        return cu_attention_launch(&op->attention, st);
    case SILU:
        return cu_silu_mul_launch(&op->silu, st);
    default:
        op->gather.b = b;
        return cu_gather_launch(&op->gather, st);
    }
}

/* ---- maps of matrices ----------------------------------------------------------- */

/* 128 elements of a row share a scale. */
static int
scaled(const struct fdk_gemm_args *a)
{
    return a->w_dtype != FDK_BF16 && a->w_group < a->K;
}

/* A recording in this thread does not hear of the copy. */
static int
maps_put(struct cu_dev *d, struct mega_maps *to, const struct mega_maps *from)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int rc = cu_result(d, "cudaThreadExchangeStreamCaptureMode",
        cudaThreadExchangeStreamCaptureMode(&mode));
    if (rc != 0)
        return rc;
    rc = cu_result(d, "cudaMemcpyAsync", cudaMemcpyAsync(to, from, sizeof(*from),
        cudaMemcpyHostToDevice, d->aux));
    if (rc == 0)
        rc = cu_result(d, "cudaStreamSynchronize", cudaStreamSynchronize(d->aux));
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return rc;
}

/* The maps of a matrix on the device; NULL: there is no room, or it has none. */
static const struct mega_maps *
maps_of(struct cu_dev *d, const struct fdk_gemm_args *a)
{
    const struct map_key key = { a->w, a->w_scale, a->N, a->K, (int32_t)a->w_dtype,
        scaled(a) };
    struct cu_mega_dev *m = d->mega;
    const struct mega_maps *r = NULL;
    struct mega_maps maps = {};
    pthread_mutex_lock(&d->lock);
    size_t at = (uintptr_t)a->w / 256 % MEGA_MAPS;
    for (int i = 0; i < MEGA_MAPS; i++, at = (at + 1) % MEGA_MAPS) {
        if (memcmp(&m->key[at], &key, sizeof(key)) == 0)
            r = &m->maps[at];
        if (r != NULL || m->key[at].w == NULL)
            break;
    }
    if (r == NULL && m->key[at].w == NULL && mega_maps_make(&maps, a->w, a->w_scale, a->N,
        a->K, (int)a->w_dtype, scaled(a)) == 0 &&
        maps_put(d, &m->maps[at], &maps) == 0) {
        m->key[at] = key;
        r = &m->maps[at];
    }
    pthread_mutex_unlock(&d->lock);
    return r;
}

/* ---- layers ------------------------------------------------------------------ */

/* One row, weights that the kernel has, in whole chunks. */
static int
gemm_fits(const struct fdk_gemm_args *a)
{
    const int type = (int)a->w_dtype;
    if (type != FDK_BF16 && type != FDK_F8E4M3 && type != FDK_I8 && type != FDK_I4)
        return 0;
    if (scaled(a) && (a->w_group != 128 || a->K % 512 != 0 || (uintptr_t)a->w_scale % 16))
        return 0;
    return a->T == 1 && a->first == 0 && a->y_dtype == FDK_BF16 && a->N % 32 == 0 &&
        a->K % mega_chunk(type) == 0 && a->K % 128 == 0 && cu_aligned(a->w, a->y, NULL,
        NULL) && mega_x_bytes(type, a->K) <= MEGA_X_BYTES;
}

static int
kv_fits(const struct fdk_kv *kv)
{
    return kv->dtype == FDK_BF16 && (kv->head_dim == 64 || kv->head_dim == 128) &&
        kv->block_size % 16 == 0 && (((uintptr_t)kv->base | kv->block_bytes |
        kv->layer_bytes | kv->v_bytes) & 15) == 0;
}

/* The same row lives in all of them. */
static int
layer_lives(const struct op *o)
{
    const int32_t *n = o[L_NORM].norm.n;
    return o[L_QKV_GEMM].gemm.n == n && o[L_O].gemm.n == n && o[L_POST_NORM].norm.n == n &&
        o[L_GU].gemm.n == n && o[L_SILU].silu.n == n && o[L_DOWN].gemm.n == n;
}

/* Each reads what the one before it has written, and in the sizes that it has. */
static int
layer_linked(const struct op *o)
{
    static const enum kind kinds[L_OPS] = { NORM, GEMM, QKV, ATTENTION, GEMM, NORM, GEMM,
        SILU, GEMM };
    for (int i = 0; i < L_OPS; i++)
        if (o[i].kind != kinds[i])
            return 0;
    const struct fdk_qkv_args *q = &o[L_QKV].qkv;
    const struct fdk_attention_args *t = &o[L_ATTENTION].attention;
    const struct fdk_gemm_args *gq = &o[L_QKV_GEMM].gemm, *go = &o[L_O].gemm;
    const struct fdk_gemm_args *gg = &o[L_GU].gemm, *gd = &o[L_DOWN].gemm;
    const int C = o[L_NORM].norm.C, F = o[L_SILU].silu.F;
    return gq->x == o[L_NORM].norm.y && q->qkv == gq->y && t->qkv == gq->y &&
        go->x == t->y && o[L_POST_NORM].norm.add == go->y &&
        o[L_POST_NORM].norm.x == o[L_NORM].norm.x && gg->x == o[L_POST_NORM].norm.y &&
        o[L_SILU].silu.gu == gg->y && gd->x == o[L_SILU].silu.y &&
        o[L_POST_NORM].norm.C == C && gq->K == C && gq->N == (q->H + 2 * q->K) * q->D &&
        q->H == t->H && q->K == t->K && q->D == t->D && q->layer == t->layer &&
        go->K == t->H * t->D && go->N == C && gg->K == C && gg->N == 2 * F &&
        gd->K == F && gd->N == C &&
        memcmp(&q->kv, &t->kv, sizeof(q->kv)) == 0;
}

/* Can the megakernel run this layer? */
static int
layer_fits(const struct op *o)
{
    const struct fdk_qkv_args *q = &o[L_QKV].qkv;
    const struct fdk_rmsnorm_args *n = &o[L_NORM].norm, *p = &o[L_POST_NORM].norm;
    for (int i = 0; i < MEGA_PRODUCTS; i++)
        if (!gemm_fits(&o[product[i]].gemm) ||
            o[product[i]].gemm.w_dtype != o[L_DOWN].gemm.w_dtype)
            return 0;
    return o[L_SILU].silu.T == 1 && kv_fits(&q->kv) && q->kv.head_dim == q->D &&
        q->rot % 16 == 0 &&
        q->H % q->K == 0 && q->H / q->K <= MEGA_GROUP &&
        n->C <= MEGA_C_MOST && n->eps == p->eps &&
        cu_aligned(n->x, n->add, n->w, p->w) &&
        cu_aligned(q->cs, q->q_norm, q->k_norm, NULL) &&
        o[L_ATTENTION].attention.scale > 0 &&
        o[L_ATTENTION].attention.window == 0 && o[L_ATTENTION].attention.softcap == 0;
}

/* Layer o can follow layer before. */
static int
layer_follows(const struct op *before, const struct op *o)
{
    const struct fdk_qkv_args *a = &before[L_QKV].qkv, *b = &o[L_QKV].qkv;
    const struct fdk_attention_args *t = &before[L_ATTENTION].attention;
    const struct fdk_attention_args *u = &o[L_ATTENTION].attention;
    for (int i = 0; i < MEGA_PRODUCTS; i++) {
        const struct fdk_gemm_args *g = &before[product[i]].gemm, *h = &o[product[i]].gemm;
        if (g->N != h->N || g->K != h->K || g->w_dtype != h->w_dtype ||
            scaled(g) != scaled(h))
            return 0;
    }
    return o[L_NORM].norm.add == before[L_DOWN].gemm.y &&
        o[L_NORM].norm.x == before[L_NORM].norm.x &&
        o[L_NORM].norm.n == before[L_NORM].norm.n &&
        o[L_NORM].norm.eps == before[L_NORM].norm.eps && a->H == b->H && a->D == b->D &&
        a->rot == b->rot && a->cs == b->cs && a->eps == b->eps && t->scale == u->scale &&
        t->n_work == u->n_work && t->n_done == u->n_done &&
        t->n_work_max == u->n_work_max &&
        memcmp(&a->kv, &b->kv, sizeof(a->kv)) == 0;
}

/* Blocks that share a KV head: a power of two, so that results can be dealt out evenly. */
static int
splits_of(int n_block, int H, int K, int D)
{
    int s = 1;
    while (2 * s <= MEGA_SPLITS && 2 * s * K <= n_block && H / K * D % (4 * s) == 0)
        s *= 2;
    return s;
}

static void
places_of(struct mega_places *p, const struct mega_list *l)
{
    p->qkv = 0;
    p->att = p->qkv + mega_vector_words((l->H + 2 * l->K) * l->D);
    p->o = p->att + mega_vector_words(l->H * l->D);
    p->hidden = p->o + mega_vector_words(l->C);
    p->down = p->hidden + mega_vector_words(l->F);
    p->part = p->down + mega_vector_words(l->C);
    p->ml = p->part + l->H * l->D * l->splits;
    p->n = p->ml + 2 * l->H * l->splits;
}

/* What all layers share, of the first one. Blocks: every one must have a part of each
 * layer's hidden vector (mega_words.cuh). 0: the kernel does not take it. */
static int
list_start(struct mega_list *l, const struct op *o, const struct cu_dev *d)
{
    const struct fdk_qkv_args *q = &o[L_QKV].qkv;
    const struct fdk_attention_args *t = &o[L_ATTENTION].attention;
    const int n_block = min(d->n_proc, o[L_SILU].silu.F / 16);
    l->kv = q->kv;
    l->state = d->mega->state;
    l->x = o[L_NORM].norm.x;
    l->add = o[L_NORM].norm.add;
    l->cs = q->cs;
    l->n_work = t->n_work;
    l->n_done = t->n_done;
    l->n_work_max = t->n_work_max;
    l->type = (int)o[L_DOWN].gemm.w_dtype;
    l->C = o[L_NORM].norm.C;
    l->F = o[L_SILU].silu.F;
    l->H = q->H;
    l->K = q->K;
    l->D = q->D;
    l->rot = q->rot;
    l->group = q->H / q->K;
    l->eps = o[L_NORM].norm.eps;
    l->qk_eps = q->eps;
    l->scale = t->scale;
    l->splits = splits_of(n_block, q->H, q->K, q->D);
    places_of(&l->at, l);
    return q->K <= n_block && n_block <= MEGA_BLOCKS && l->at.n <= MEGA_WORDS ? n_block : 0;
}

static int
matrix_put(struct mega_matrix *m, struct mega_shape *s, struct cu_dev *d,
    const struct fdk_gemm_args *a)
{
    const struct mega_maps *maps = maps_of(d, a);
    if (maps == NULL)
        return 0;
    m->map = &maps->w;
    m->scale_map = &maps->scale;
    m->scale = a->w_dtype == FDK_BF16 || scaled(a) ? NULL : a->w_scale;
    m->bias = a->bias;
    s->N = a->N;
    s->K = a->K;
    s->scaled = scaled(a);
    return 1;
}

/* Layer o at the end of the list. 0: there is no room for its maps. */
static int
layer_put(struct mega_list *l, const struct op *o, struct cu_dev *d)
{
    struct mega_layer *y = &l->layer[l->n];
    for (int i = 0; i < MEGA_PRODUCTS; i++)
        if (!matrix_put(&y->m[i], &l->shape[i], d, &o[product[i]].gemm))
            return 0;
    y->norm[0] = o[L_NORM].norm.w;
    y->norm[1] = o[L_POST_NORM].norm.w;
    y->q_norm = o[L_QKV].qkv.q_norm;
    y->k_norm = o[L_QKV].qkv.k_norm;
    y->kv_layer = o[L_QKV].qkv.layer;
    l->y = o[L_DOWN].gemm.y;
    l->n++;
    return 1;
}

/* Layers from the first of n operations on, as far as they go together, in m->list.
 * ret_block: blocks of the launch. Returns their number, 0: too few. */
static int
layers_from(struct cu_mega *m, const struct op *first, int n, struct cu_dev *d,
    int *ret_block)
{
    struct mega_list *l = &m->list;
    l->n = 0;
    for (const struct op *o = first; l->n < MEGA_LAYERS &&
         o + L_OPS <= first + n && layer_linked(o) && layer_lives(o) && layer_fits(o);
         o += L_OPS) {
        if (l->n == 0)
            *ret_block = list_start(l, o, d);
        if (*ret_block == 0 || (l->n > 0 && !layer_follows(o - L_OPS, o)) ||
            !layer_put(l, o, d))
            break;
    }
    l->b = m->b;
    return l->n >= LAYERS_MIN ? l->n : 0;
}

/* Launches what comes next of n operations from o on. Returns how many, or an error. */
static int
launch_some(struct cu_mega *m, struct op *o, int n, fdk_stream_t st)
{
    struct cu_stream *s = cu_stream_of(st);
    int rc, n_block = 0, layers = layers_from(m, o, n, s->dev, &n_block);
    if (layers > 0) {
        rc = cu_result(s->dev, "decode step", mega_launch(&m->list, n_block, s->s));
        return rc != 0 ? rc : layers * L_OPS;
    }
    if (n > 1 && o[0].kind == GEMM && o[1].kind == SILU &&
        (o[0].gemm.T <= CU_STREAM_ROWS || !s->dev->ctx->deterministic) &&
        cu_gemm_stream_silu_fits(&o[0].gemm, &o[1].silu)) {
        rc = cu_gemm_stream_silu(&o[0].gemm, &o[1].silu, s->dev->n_proc, st);
        return rc != 0 ? rc : 2;
    }
    rc = launch_one(o, &m->b, st);
    return rc != 0 ? rc : 1;
}

int
cu_mega_flush(fdk_stream_t st)
{
    struct cu_mega *m = cu_stream_of(st)->mega;
    int rc = 0, n = m == NULL ? 0 : m->n;
    if (n == 0)
        return 0;
    list_clear(m);                   /* launching comes back here */
    for (int i = 0; i < n && rc >= 0; i += rc)
        rc = launch_some(m, &m->op[i], n - i, st);
    return rc < 0 ? rc : 0;
}

/* ---- devices ----------------------------------------------------------------- */

int
cu_mega_open(struct cu_dev *d)
{
    if (!d->sm90a || !mega_kernel_fits(d->idx))
        return 0;
    struct cu_mega_dev *m = (struct cu_mega_dev *)calloc(1, sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    d->mega = m;
    int rc = cu_result(d, "cudaMalloc", cudaMalloc((void **)&m->state, sizeof(*m->state)));
    if (rc == 0)
        rc = cu_result(d, "cudaMemset", cudaMemset(m->state, 0, sizeof(*m->state)));
    if (rc == 0)
        rc = cu_result(d, "cudaStreamSynchronize", cudaStreamSynchronize(0));
    if (rc == 0)
        rc = cu_result(d, "cudaMalloc", cudaMalloc((void **)&m->maps, MEGA_MAPS *
            sizeof(*m->maps)));
    return rc;
}

void
cu_mega_close(struct cu_dev *d)
{
    if (d->mega != NULL && cu_enter(d) == 0 &&
        cu_result(d, "cudaFree", cudaFree(d->mega->maps)) == 0)
        (void)cu_result(d, "cudaFree", cudaFree(d->mega->state));
    free(d->mega);
    d->mega = NULL;
}

cudaError_t
cu_mega_load(int sm90a)
{
    return sm90a ? mega_kernel_load() : cudaSuccess;
}
