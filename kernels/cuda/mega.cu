/*
 * What a stream is told to run, collected as a list for mega_kernel.cu. Operations on up
 * to ROWS_TAKEN rows of 16-bit activations wait in the list, products with 8-bit weights
 * alone; whatever else a stream is asked for comes after what waits (cu_stream_enter). A
 * list without products, or without two layers' attention, is launched one by one, as its
 * operations would have been.
 */
#include "kernels/cuda/mega.cuh"
#include "kernels/cuda/vec8.cuh"

#include <stdlib.h>
#include <string.h>

#define MEGA_MAPS  4096              /* matrices of a device */
#define ROWS_TAKEN 4                 /* beyond, kernels of their own take as long */

/* The same operation as its own kernel takes it. */
union mega_args {
    struct fdk_rmsnorm_args norm;
    struct fdk_gemm_args gemm;
    struct fdk_qkv_args qkv;
    struct fdk_attention_args attention;
    struct fdk_silu_mul_args silu;
    struct fdk_gather_args gather;
};

struct map_key {
    const void *w, *scale;
    int32_t N, K, type, scales;
};

/* Of a device: one stream at a time runs steps. A map is written once, before a kernel
 * first uses it, and stays as it is. */
struct cu_mega_dev {
    struct mega_state *state;        /* on the device */
    struct mega_maps *maps;          /* on the device, [MEGA_MAPS] */
    struct map_key key[MEGA_MAPS];   /* whose they are, by address; w: NULL: nobody's */
};

struct cu_mega {
    struct mega_list list;
    union mega_args args[MEGA_OPS];
    int last;                        /* the last product, -1 */
    int attention;                   /* how many there are */
    int has_b, has_kv;               /* list.b, list.kv are those of an operation */
};

/* ---- the list ------------------------------------------------------------ */

static void
list_clear(struct cu_mega *m)
{
    m->list.n = 0;
    m->list.first = m->last = -1;
    m->attention = m->has_b = m->has_kv = 0;
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

static int
launch_one(const struct mega_op *op, union mega_args *a, const struct fdk_batch *b,
    fdk_stream_t st)
{
    switch (op->kind) {
    case MEGA_NORM:
        return cu_rmsnorm_launch(&a->norm, st);
    case MEGA_GEMM:
        return cu_gemm_launch(&a->gemm, st);
    case MEGA_QKV:
        a->qkv.b = b;
        return cu_qkv_launch(&a->qkv, st);
    case MEGA_ATTENTION:
        a->attention.b = b;
        return cu_attention_launch(&a->attention, st);
    case MEGA_SILU:
        return cu_silu_mul_launch(&a->silu, st);
    default:
        a->gather.b = b;
        return cu_gather_launch(&a->gather, st);
    }
}

int
cu_mega_flush(fdk_stream_t st)
{
    struct cu_stream *s = cu_stream_of(st);
    struct cu_mega *m = s->mega;
    if (m == NULL || m->list.n == 0)
        return 0;
    int rc = 0, n = m->list.n;
    int whole = m->attention > 1 && m->last >= 0;
    if (whole)
        rc = cu_result(s->dev, "decode step", mega_launch(&m->list, s->dev->n_proc, s->s));
    list_clear(m);
    for (int i = 0; i < n && !whole && rc == 0; i++)
        rc = launch_one(&m->list.op[i], &m->args[i], &m->list.b, st);
    return rc;
}

/* A place at the end of the list for an operation over this batch and KV, if any; NULL:
 * it is not for this kernel. */
static struct mega_op *
list_add(fdk_stream_t st, enum mega_kind kind, int T, const int32_t *n,
    const struct fdk_batch *b, const struct fdk_kv *kv, int *ret_rc)
{
    struct cu_stream *s = cu_stream_of(st);
    *ret_rc = 0;
    if (s->mega == NULL) {
        s->mega = (struct cu_mega *)calloc(1, sizeof(*s->mega));
        if (s->mega == NULL)
            return NULL;
        list_clear(s->mega);
    }
    struct cu_mega *m = s->mega;
    if (m->list.n == MEGA_OPS ||
        (b != NULL && m->has_b && memcmp(b, &m->list.b, sizeof(*b)) != 0) ||
        (kv != NULL && m->has_kv && memcmp(kv, &m->list.kv, sizeof(*kv)) != 0))
        *ret_rc = cu_mega_flush(st);
    if (*ret_rc != 0)
        return NULL;
    if (b != NULL)
        m->list.b = *b;
    if (kv != NULL)
        m->list.kv = *kv;
    m->has_b |= b != NULL;
    m->has_kv |= kv != NULL;
    m->list.state = s->dev->mega->state;
    struct mega_op *op = &m->list.op[m->list.n];
    memset(op, 0, sizeof(*op));
    op->kind = (int16_t)kind;
    op->next = op->kv_layer = -1;
    op->T = (int16_t)T;
    op->n = n;
    return op;
}

static union mega_args *
list_added(fdk_stream_t st)
{
    struct cu_mega *m = cu_stream_of(st)->mega;
    return &m->args[m->list.n++];
}

/* Taken: 1. Else what waits is launched first: 0 or an error. */
static int
not_taken(fdk_stream_t st, int rc)
{
    return rc != 0 ? rc : cu_mega_flush(st);
}

static int
may_take(fdk_stream_t st, int T, enum fdk_dtype act)
{
    const struct cu_dev *d = cu_stream_of(st)->dev;
    return d->mega != NULL && !d->ctx->deterministic && !d->ctx->unfused &&
        T <= ROWS_TAKEN && act == FDK_BF16;
}

/* ---- operations ------------------------------------------------------------ */

int
cu_mega_rmsnorm(const struct fdk_rmsnorm_args *a, fdk_stream_t st)
{
    int rc = 0;
    struct mega_op *op = may_take(st, a->T, a->act) && a->C % 8 == 0 &&
        a->C <= MEGA_NORM_MOST && cu_aligned(a->x, a->y, a->add, a->w) ?
        list_add(st, MEGA_NORM, a->T, a->n, NULL, NULL, &rc) : NULL;
    if (op == NULL)
        return not_taken(st, rc);
    op->norm = { a->y, a->x, a->add, a->w, a->C, a->eps };
    list_added(st)->norm = *a;
    return 1;
}

/* Scales of a row of w that the kernel reads beside it, 0: one or none; -1: neither. */
static int
scales_of(const struct fdk_gemm_args *a)
{
    if (a->w_group >= a->K)
        return 0;
    return a->w_group == 128 && a->K % 512 == 0 && (uintptr_t)a->w_scale % 16 == 0 ?
        a->K / 128 : -1;
}

static int
gemm_fits(const struct fdk_gemm_args *a)
{
    return (a->w_dtype == FDK_I8 || a->w_dtype == FDK_F8E4M3) && a->first == 0 &&
        a->N % 16 == 0 && a->K % 128 == 0 && a->K <= 1 << 20 && scales_of(a) >= 0 &&
        cu_aligned(a->w, a->x, NULL, NULL);
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
        scales_of(a) };
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
        a->K, (int)fdk_dtype_bytes(a->w_dtype), scales_of(a)) == 0 &&
        maps_put(d, &m->maps[at], &maps) == 0) {
        m->key[at] = key;
        r = &m->maps[at];
    }
    pthread_mutex_unlock(&d->lock);
    return r;
}

int
cu_mega_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    int rc = 0;
    struct cu_dev *d = cu_stream_of(st)->dev;
    const struct mega_maps *maps = may_take(st, a->T, a->act) && gemm_fits(a) ?
        maps_of(d, a) : NULL;
    struct cu_mega *m = cu_stream_of(st)->mega;
    if (maps != NULL && m != NULL && m->last >= 0 && m->list.type != (int)a->w_dtype)
        rc = cu_mega_flush(st);                  /* a list has one type of weights */
    struct mega_op *op = maps != NULL && rc == 0 ?
        list_add(st, MEGA_GEMM, a->T, a->n, NULL, NULL, &rc) : NULL;
    if (op == NULL)
        return not_taken(st, rc);
    m = cu_stream_of(st)->mega;
    m->list.type = (int)a->w_dtype;
    op->gemm = { a->y, a->x, &maps->w, &maps->scale, a->w_scale, a->bias, a->N, a->K,
        a->ldy, a->y_dtype == FDK_F32, scales_of(a) > 0 ? 0 : -1 };
    if (m->last >= 0)
        m->list.op[m->last].next = (int16_t)m->list.n;
    else
        m->list.first = (int16_t)m->list.n;
    m->last = m->list.n;
    list_added(st)->gemm = *a;
    return 1;
}

static int
kv_fits(const struct fdk_kv *kv, int D)
{
    return kv->dtype == FDK_BF16 && (D == 64 || D == 128) && kv->block_size % 16 == 0 &&
        (((uintptr_t)kv->base | kv->block_bytes | kv->layer_bytes | kv->v_bytes) & 15) == 0;
}

int
cu_mega_qkv(const struct fdk_qkv_args *a, fdk_stream_t st)
{
    int rc = 0;
    struct mega_op *op = may_take(st, a->T, a->act) && kv_fits(&a->kv, a->D) &&
        a->rot % 16 == 0 && cu_aligned(a->qkv, a->q_norm, a->k_norm, a->cs) ?
        list_add(st, MEGA_QKV, a->T, a->b->n_tok, a->b, &a->kv, &rc) : NULL;
    if (op == NULL)
        return not_taken(st, rc);
    struct cu_mega *m = cu_stream_of(st)->mega;
    if (m->list.n > 0)
        m->list.op[m->list.n - 1].kv_layer = (int16_t)a->layer;
    op->qkv = { a->qkv, a->q_norm, a->k_norm, a->cs, a->H, a->K, a->D, a->rot, a->layer,
        a->eps };
    list_added(st)->qkv = *a;
    return 1;
}

int
cu_mega_attention(const struct fdk_attention_args *a, fdk_stream_t st)
{
    int rc = 0, n_proc = cu_stream_of(st)->dev->n_proc;
    struct cu_mega *m = cu_stream_of(st)->mega;
    if (m != NULL && m->attention > 0 && m->list.T != a->T)
        rc = cu_mega_flush(st);                  /* a list has one number of tokens */
    struct mega_op *op = rc == 0 && may_take(st, a->T, a->act) && kv_fits(&a->kv, a->D) &&
        a->H / a->K <= 8 && a->K <= MEGA_HEADS && a->scale > 0 && a->scratch != NULL &&
        a->scratch_bytes >= mega_attention_scratch(a->T, a->K, a->D, n_proc) &&
        cu_aligned(a->qkv, a->y, a->scratch, NULL) ?
        list_add(st, MEGA_ATTENTION, a->T, a->b->n_tok, a->b, &a->kv, &rc) : NULL;
    if (op == NULL)
        return not_taken(st, rc);
    op->attention = { a->y, a->qkv, a->n_work, a->n_done, a->scratch, a->H, a->layer,
        a->n_work_max, (int16_t)a->K, (int16_t)a->D, a->scale };
    m = cu_stream_of(st)->mega;
    m->attention++;
    m->list.T = a->T;
    list_added(st)->attention = *a;
    return 1;
}

int
cu_mega_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    int rc = 0;
    struct mega_op *op = may_take(st, a->T, a->act) && a->F % 8 == 0 &&
        cu_aligned(a->gu, a->y, NULL, NULL) ?
        list_add(st, MEGA_SILU, a->T, a->n, NULL, NULL, &rc) : NULL;
    if (op == NULL)
        return not_taken(st, rc);
    op->silu = { a->y, a->gu, a->F };
    list_added(st)->silu = *a;
    return 1;
}

int
cu_mega_gather(const struct fdk_gather_args *a, fdk_stream_t st)
{
    int rc = 0;
    struct mega_op *op = may_take(st, a->O, a->act) && a->C % 8 == 0 &&
        cu_aligned(a->x, a->y, NULL, NULL) ?
        list_add(st, MEGA_GATHER, a->O, a->b->n_out, a->b, NULL, &rc) : NULL;
    if (op == NULL)
        return not_taken(st, rc);
    op->gather = { a->y, a->x, a->C };
    list_added(st)->gather = *a;
    return 1;
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
