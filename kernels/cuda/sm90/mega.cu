/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fusion of a single-token decode's layers for mega_kernel.cu: finds the operations
 * of the layers, prepares the launch when the program is bound, and launches.
 */
#include "kernels/cuda/generic/vec8.cuh"
#include "kernels/cuda/sm90/mega.cuh"

#include <stdlib.h>
#include <string.h>

#define LAYERS_MIN 2                 /* least layers of a launch */

/* The operations of a layer, in their order; with several ranks, an ALL_REDUCE follows
 * L_O and L_DOWN. */
enum { L_NORM, L_QKV_GEMM, L_QKV, L_ATTENTION, L_O, L_POST_NORM, L_GU, L_SILU, L_DOWN,
    L_OPS };
static const enum fdk_op_kind kinds[L_OPS] = { CU_MEGA_KINDS };
static const int product[MEGA_PRODUCTS] = { L_QKV_GEMM, L_O, L_GU, L_DOWN };

struct layer_ops {
    const struct fdk_op *o[L_OPS];
    const struct fdk_op *sum[2];     /* after L_O and L_DOWN; NULL: only one rank */
};

/* Number of operations from the first of a layer to the first of the next one. */
static int
layer_step(const struct fdk_op *op)
{
    return op[L_O + 1].kind == FDK_OP_ALL_REDUCE ? L_OPS + 2 : L_OPS;
}

/* The layer that begins with op[0]. The sum after the last layer is not fused. */
static struct layer_ops
layer_ops_of(const struct fdk_op *op)
{
    const int sums = layer_step(op) > L_OPS;
    struct layer_ops r;
    for (int i = 0; i < L_OPS; i++)
        r.o[i] = op + i + (sums && i > L_O);
    r.sum[0] = sums ? op + L_O + 1 : NULL;
    r.sum[1] = sums ? op + L_OPS + 1 : NULL;
    return r;
}

/* Data of a bound run of operations. */
struct mega_run {
    struct mega_list list;           /* arguments, without those of a step */
    struct mega_maps *maps;          /* on the device, [layers][MEGA_PRODUCTS] */
    struct fdk_group *group;         /* of the all-reduces; NULL: only one rank */
    int n_block;
};

/* Do 128 elements of a row share a scale? */
static int
scaled(const struct fdk_gemm_args *a)
{
    return a->w_dtype != FDK_BF16 && a->w_group < a->K;
}

/* ---- layers ------------------------------------------------------------------ */

/* Does the kernel support these weights? Rows must be full chunks. */
static int
gemm_fits(const struct fdk_gemm_args *a)
{
    const int type = (int)a->w_dtype;
    if (type != FDK_BF16 && type != FDK_F8E4M3 && type != FDK_I8 && type != FDK_I4)
        return 0;
    if (a->w_layout != FDK_LAYOUT_ROWS)
        return 0;
    if (scaled(a) && (a->w_group != 128 || a->K % 512 != 0 || (uintptr_t)a->w_scale % 16))
        return 0;
    return a->act == FDK_BF16 && a->y_dtype == FDK_BF16 && a->N % 32 == 0 &&
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

/* Do all operations have the same live row? */
static int
layer_lives(const struct fdk_op *const *o)
{
    const int32_t *n = o[L_NORM]->rmsnorm.n;
    return o[L_QKV_GEMM]->gemm.n == n && o[L_O]->gemm.n == n && o[L_POST_NORM]->rmsnorm.n == n &&
        o[L_GU]->gemm.n == n && o[L_SILU]->silu_mul.n == n && o[L_DOWN]->gemm.n == n;
}

/* The vector that the norm after o (k 0) or down (k 1) adds: the result of the
 * all-reduce, or of the GEMM. NULL: the kernel does not support this all-reduce. */
static const void *
added(const struct layer_ops *l, int k)
{
    const struct fdk_gemm_args *g = &l->o[k == 0 ? L_O : L_DOWN]->gemm;
    const struct fdk_all_reduce_args *a = l->sum[k] != NULL ? &l->sum[k]->all_reduce : NULL;
    if (a == NULL)
        return g->y;
    return l->sum[k]->kind == FDK_OP_ALL_REDUCE && l->sum[k]->slice == 0 && a->x == g->y &&
        a->group == l->sum[0]->all_reduce.group && a->residual == NULL && a->n == g->n &&
        a->C == g->N && a->act == FDK_BF16 ? a->y : NULL;
}

/* Does each operation read the result of the one before it, with matching sizes? */
static int
layer_linked(const struct layer_ops *l)
{
    const struct fdk_op *const *o = l->o;
    for (int i = 0; i < L_OPS; i++)
        if (o[i]->kind != kinds[i] || o[i]->slice != 0)
            return 0;
    const struct fdk_qkv_args *q = &o[L_QKV]->qkv;
    const struct fdk_attention_args *t = &o[L_ATTENTION]->attention;
    const struct fdk_gemm_args *gq = &o[L_QKV_GEMM]->gemm, *go = &o[L_O]->gemm;
    const struct fdk_gemm_args *gg = &o[L_GU]->gemm, *gd = &o[L_DOWN]->gemm;
    const int C = o[L_NORM]->rmsnorm.C, F = o[L_SILU]->silu_mul.F;
    return gq->x == o[L_NORM]->rmsnorm.y && q->qkv == gq->y && t->qkv == gq->y &&
        go->x == t->y && o[L_POST_NORM]->rmsnorm.add == added(l, 0) &&
        o[L_POST_NORM]->rmsnorm.x == o[L_NORM]->rmsnorm.x && gg->x == o[L_POST_NORM]->rmsnorm.y &&
        o[L_SILU]->silu_mul.gu == gg->y && gd->x == o[L_SILU]->silu_mul.y &&
        o[L_POST_NORM]->rmsnorm.C == C && gq->K == C && gq->N == (q->H + 2 * q->K) * q->D &&
        q->H == t->H && q->K == t->K && q->D == t->D && q->layer == t->layer &&
        go->K == t->H * t->D && go->N == C && gg->K == C && gg->N == 2 * F &&
        gd->K == F && gd->N == C &&
        memcmp(&q->kv, &t->kv, sizeof(q->kv)) == 0;
}

static int
acts_fit(const struct fdk_op *const *o)
{
    return o[L_NORM]->rmsnorm.act == FDK_BF16 && o[L_QKV]->qkv.act == FDK_BF16 &&
        o[L_ATTENTION]->attention.act == FDK_BF16 && o[L_POST_NORM]->rmsnorm.act == FDK_BF16 &&
        o[L_SILU]->silu_mul.act == FDK_BF16;
}

/* Does the megakernel support the kinds of norms, rotary embedding and gate? */
static int
attributes_fit(const struct fdk_op *const *o)
{
    const struct fdk_qkv_args *q = &o[L_QKV]->qkv;
    return cu_norm_usual(&o[L_NORM]->rmsnorm) && cu_norm_usual(&o[L_POST_NORM]->rmsnorm) &&
        q->norm_offset == 0 && !q->norm_all && !q->interleaved && q->rot > 0 &&
        o[L_SILU]->silu_mul.gate == FDK_GATE_SILU;
}

/* Can the megakernel run this layer? */
static int
layer_fits(const struct fdk_op *const *o)
{
    const struct fdk_qkv_args *q = &o[L_QKV]->qkv;
    const struct fdk_rmsnorm_args *n = &o[L_NORM]->rmsnorm, *p = &o[L_POST_NORM]->rmsnorm;
    for (int i = 0; i < MEGA_PRODUCTS; i++)
        if (!gemm_fits(&o[product[i]]->gemm) ||
            o[product[i]]->gemm.w_dtype != o[L_DOWN]->gemm.w_dtype)
            return 0;
    return acts_fit(o) && attributes_fit(o) && cu_kv_valid(&q->kv, 1, q->H, q->K, q->D, q->layer) == 0 &&
        kv_fits(&q->kv) && q->rot % 16 == 0 && q->H / q->K <= MEGA_GROUP &&
        n->C <= MEGA_C_MOST && n->eps == p->eps &&
        cu_aligned(n->x, n->add, n->w, p->w) &&
        cu_aligned(q->cs, q->q_norm, q->k_norm, NULL) &&
        o[L_ATTENTION]->attention.scale > 0 &&
        o[L_ATTENTION]->attention.kv.n_own <= 1 &&
        o[L_ATTENTION]->attention.window == 0 && o[L_ATTENTION]->attention.softcap == 0;
}

/* Can layer l follow layer `last` in a launch? */
static int
layer_follows(const struct layer_ops *last, const struct layer_ops *l)
{
    const struct fdk_op *const *before = last->o, *const *o = l->o;
    const struct fdk_qkv_args *a = &before[L_QKV]->qkv, *b = &o[L_QKV]->qkv;
    const struct fdk_attention_args *t = &before[L_ATTENTION]->attention;
    const struct fdk_attention_args *u = &o[L_ATTENTION]->attention;
    for (int i = 0; i < MEGA_PRODUCTS; i++) {
        const struct fdk_gemm_args *g = &before[product[i]]->gemm, *h = &o[product[i]]->gemm;
        if (g->N != h->N || g->K != h->K || g->w_dtype != h->w_dtype ||
            scaled(g) != scaled(h))
            return 0;
    }
    return o[L_NORM]->rmsnorm.add == added(last, 1) &&
        (l->sum[0] == NULL) == (last->sum[0] == NULL) && (l->sum[0] == NULL ||
        l->sum[0]->all_reduce.group == last->sum[0]->all_reduce.group) &&
        o[L_NORM]->rmsnorm.x == before[L_NORM]->rmsnorm.x &&
        o[L_NORM]->rmsnorm.n == before[L_NORM]->rmsnorm.n &&
        o[L_NORM]->rmsnorm.eps == before[L_NORM]->rmsnorm.eps && a->H == b->H && a->D == b->D &&
        a->rot == b->rot && a->cs == b->cs && a->eps == b->eps && t->scale == u->scale &&
        before[L_ATTENTION]->att == o[L_ATTENTION]->att &&
        before[L_QKV]->att == o[L_QKV]->att &&
        memcmp(&a->kv, &b->kv, sizeof(a->kv)) == 0;
}

/* Blocks per KV head: a power of two, so that results can be divided evenly. */
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

/* Sets the members of the list that all layers share, from the first one. Returns the
 * number of blocks, each of which must compute a slice of each layer's hidden vector
 * (mega_words.cuh), or 0 if the kernel does not support the layer. */
static int
list_start(struct mega_list *l, const struct layer_ops *of, const struct cu_dev *d)
{
    const struct fdk_op *const *o = of->o;
    const struct fdk_qkv_args *q = &o[L_QKV]->qkv;
    const struct fdk_attention_args *t = &o[L_ATTENTION]->attention;
    const int n_block = min(d->n_proc, o[L_SILU]->silu_mul.F / 16);
    if (of->sum[0] != NULL && cu_group_room(of->sum[0]->all_reduce.group, d, &l->space,
        &l->room_at) != 0)
        return 0;
    l->claim = d->claim;
    l->kv = q->kv;
    l->state = d->mega;
    l->x = o[L_NORM]->rmsnorm.x;
    l->add = o[L_NORM]->rmsnorm.add;
    l->cs = q->cs;
    l->type = (int)o[L_DOWN]->gemm.w_dtype;
    l->C = o[L_NORM]->rmsnorm.C;
    l->F = o[L_SILU]->silu_mul.F;
    l->H = q->H;
    l->K = q->K;
    l->D = q->D;
    l->rot = q->rot;
    l->group = q->H / q->K;
    l->eps = o[L_NORM]->rmsnorm.eps;
    l->qk_eps = q->eps;
    l->scale = t->scale;
    l->splits = splits_of(n_block, q->H, q->K, q->D);
    places_of(&l->at, l);
    return q->K <= n_block && n_block <= MEGA_BLOCKS && l->at.n <= MEGA_WORDS ? n_block : 0;
}

static void
matrix_put(struct mega_matrix *m, struct mega_shape *s, const struct mega_maps *maps,
    const struct fdk_gemm_args *a)
{
    m->map = &maps->w;
    m->scale_map = &maps->scale;
    m->scale = a->w_dtype == FDK_BF16 || scaled(a) ? NULL : a->w_scale;
    m->bias = a->bias;
    s->N = a->N;
    s->K = a->K;
    s->scaled = scaled(a);
}

/* Appends layer o to the list. maps: those of its matrices. */
static void
layer_put(struct mega_list *l, const struct fdk_op *const *o, const struct mega_maps *maps)
{
    struct mega_layer *y = &l->layer[l->n];
    for (int i = 0; i < MEGA_PRODUCTS; i++)
        matrix_put(&y->m[i], &l->shape[i], &maps[i], &o[product[i]]->gemm);
    y->norm[0] = o[L_NORM]->rmsnorm.w;
    y->norm[1] = o[L_POST_NORM]->rmsnorm.w;
    y->q_norm = o[L_QKV]->qkv.q_norm;
    y->k_norm = o[L_QKV]->qkv.k_norm;
    y->kv_layer = o[L_QKV]->qkv.layer;
    l->y = o[L_DOWN]->gemm.y;
    l->n++;
}

/* ---- the fusion -------------------------------------------------------------- */

/* Number of layers of the n operations from op[0] on. */
static int
layers_of(const struct fdk_op *op, int32_t n)
{
    return (n + 1) / layer_step(op);
}

static int
layer_valid(const struct layer_ops *l)
{
    return layer_linked(l) && layer_lives(l->o) && layer_fits(l->o);
}

int32_t
cu_mega_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most)
{
    const struct cu_dev *d = &ctx->dev[dev];
    const int step = layer_step(op), sums = step > L_OPS;
    struct layer_ops y = layer_ops_of(op), last;
    struct mega_list l = {};
    int layers = 0;
    *ret_least = *ret_most = 1;
    if (d->mega == NULL || ctx->deterministic || n < step - sums ||
        y.o[L_QKV]->qkv.K <= 0 || list_start(&l, &y, d) == 0)
        return 0;
    for (; layers < MEGA_LAYERS && (layers + 1) * step - sums <= n; layers++, last = y) {
        y = layer_ops_of(op + layers * step);
        if (!layer_valid(&y) || (layers > 0 && !layer_follows(&last, &y)))
            break;
    }
    return layers >= LAYERS_MIN ? layers * step - sums : 0;
}

static int
maps_make(struct mega_maps *maps, const struct fdk_op *op, int layers)
{
    int rc = 0;
    for (int i = 0; i < layers * MEGA_PRODUCTS && rc == 0; i++) {
        const struct layer_ops y = layer_ops_of(op + i / MEGA_PRODUCTS * layer_step(op));
        const struct fdk_gemm_args *a = &y.o[product[i % MEGA_PRODUCTS]]->gemm;
        rc = mega_maps_make(&maps[i], a->w, a->w_scale, a->N, a->K, (int)a->w_dtype,
            scaled(a), i % MEGA_PRODUCTS == MEGA_GU ? 8 : 16);
    }
    return rc;
}

/* Makes the tensor maps of all matrices and copies them to the device. */
static int
maps_put(struct cu_dev *d, const struct fdk_op *op, int layers, struct mega_maps **ret)
{
    const size_t n = (size_t)layers * MEGA_PRODUCTS;
    struct mega_maps *maps = (struct mega_maps *)calloc(n, sizeof(*maps)), *to = NULL;
    int rc = maps == NULL ? -ENOMEM : maps_make(maps, op, layers);
    if (rc == -ENOTSUP)
        __atomic_store_n(&d->fell_back, 1, __ATOMIC_RELAXED);
    if (rc == 0)
        rc = cu_result(d, "cudaMalloc", cudaMalloc((void **)&to, n * sizeof(*to)));
    if (rc == 0)
        rc = cu_result(d, "cudaMemcpyAsync", cudaMemcpyAsync(to, maps, n *
            sizeof(*to), cudaMemcpyHostToDevice, d->aux));
    if (rc == 0)
        rc = cu_result(d, "cudaStreamSynchronize", cudaStreamSynchronize(d->aux));
    if (rc != 0 && to != NULL)
        (void)cu_result(d, "cudaFree", cudaFree(to));
    free(maps);
    if (rc == 0)
        *ret = to;
    return rc;
}

/* Value that identifies the launch; equal on ranks whose kernels exchange data. */
static uint64_t
which(const struct mega_list *l)
{
    uint64_t h = (uint64_t)l->layer[0].kv_layer << 32 | (uint32_t)l->n;
    h = (h ^ (uint32_t)l->C) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

int
cu_mega_prepare(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n, void **ret)
{
    struct cu_dev *d = &ctx->dev[dev];
    int rc = cu_enter(d);
    if (rc != 0)
        return rc;
    struct mega_run *r = (struct mega_run *)calloc(1, sizeof(*r));
    if (r == NULL)
        return -ENOMEM;
    const int layers = layers_of(op, n), step = layer_step(op);
    struct layer_ops y = layer_ops_of(op);
    rc = maps_put(d, op, layers, &r->maps);
    if (rc != 0) {
        free(r);
        return rc;
    }
    r->n_block = list_start(&r->list, &y, d);
    for (int i = 0; i < layers; i++) {
        y = layer_ops_of(op + i * step);
        layer_put(&r->list, y.o, r->maps + i * MEGA_PRODUCTS);
    }
    mega_room_divide(&r->list);
    if (layer_ops_of(op).sum[0] != NULL) {
        r->group = op[L_O + 1].all_reduce.group;
        cu_group_bound(r->group, d, which(&r->list));
    }
    *ret = r;
    return 0;
}

void
cu_mega_release(struct fdk_ctx *ctx, int dev, void *data)
{
    struct mega_run *r = (struct mega_run *)data;
    if (r->group != NULL)
        cu_group_bound(r->group, &ctx->dev[dev], -which(&r->list));
    if (cu_enter(&ctx->dev[dev]) == 0)
        (void)cu_result(&ctx->dev[dev], "cudaFree", cudaFree(r->maps));
    free(r);
}

int
cu_mega_run(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st)
{
    struct mega_run *r = (struct mega_run *)data;
    const int32_t att = op[L_ATTENTION].att;
    int rc = cu_stream_enter(st);
    (void)n;
    if (rc == 0 && r->group != NULL && !cu_group_agrees(r->group))
        rc = -ENOTSUP;
    if (rc != 0)
        return rc;
    r->list.b = *s->att[att].b;
    r->list.n_work = s->att[att].n_work;
    r->list.n_done = s->att[att].n_done;
    r->list.n_work_max = s->n_work;
    return cu_result(cu_stream_of(st)->dev, "decode step", mega_launch(&r->list, r->n_block,
        cu_raw(st)));
}

/* ---- devices ----------------------------------------------------------------- */

int
cu_mega_open(struct cu_dev *d)
{
    if (!d->sm90a || !mega_kernel_fits(d->idx))
        return 0;
    int rc = cu_result(d, "cudaMalloc", cudaMalloc((void **)&d->mega, sizeof(*d->mega)));
    if (rc == 0)
        rc = cu_result(d, "cudaMemset", cudaMemset(d->mega, 0, sizeof(*d->mega)));
    if (rc == 0)
        rc = cu_result(d, "cudaStreamSynchronize", cudaStreamSynchronize(0));
    return rc;
}

void
cu_mega_close(struct cu_dev *d)
{
    if (d->mega != NULL && cu_enter(d) == 0)
        (void)cu_result(d, "cudaFree", cudaFree(d->mega));
    d->mega = NULL;
}

cudaError_t
cu_mega_load(int sm90a)
{
    return sm90a ? mega_kernel_load() : cudaSuccess;
}
