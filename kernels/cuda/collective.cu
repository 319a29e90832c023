/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives over peer memory (kernels/collective_channel.h): a channel is a block.
 * Ranks write to each other's workspaces and read only their own. Data is transferred by
 * plain loads and stores; a flag is stored with release and loaded with acquire, both
 * with system scope. The block's barriers before the store and after the load extend them
 * to all of its threads. That also holds for workspaces in host memory. Packets, which
 * require that 16 bytes arrive together, are not sent there.
 *
 * Blocks wait for blocks of other devices, never for each other. There are no more of
 * them than the device has multiprocessors, so that all of them run.
 */
#include "kernels/cuda/generic/vec8.cuh"

#define COLL_FN   static __device__ __forceinline__
#define COLL_RARE static __device__ __noinline__
#include "kernels/collective_channel.h"
#include "kernels/cuda/collective_wait.cuh"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_MAGIC 0xc0dac005u
#define THREADS     512
#define WARPS       (THREADS / 32)
#define CHANNELS       128
#define PACKETS_OF_ROW 4         /* most packets per thread in a row with a residual */

typedef CUresult (*write_fn)(CUstream, CUdeviceptr, cuuint64_t, unsigned);

struct ahead {                   /* state of a rank for collective_ahead.cuh */
    struct coll_ahead launched;
    cudaStream_t st;             /* stream of its copies */
    cudaEvent_t ready;
};

struct fdk_group {
    uint32_t magic;
    struct fdk_ctx *ctx;
    struct coll_space space;     /* rank: not set */
    int32_t device[FDK_MAX_RANKS];
    uint64_t *told;              /* pinned: coll_space.told of all ranks */
    struct ahead ahead[2];       /* by rank; used if space.ahead_bytes is not 0 */
    uint64_t bound[FDK_MAX_RANKS]; /* per rank: sum of the values of cu_group_bound() */
    write_fn write;              /* cuStreamWriteValue64 */
    struct fdk_group *next;      /* of the context */
};

/* ---- synchronization ------------------------------------------------------- */

static __device__ __forceinline__ int
wait_for(const struct coll_run *r, int q, int stage)
{
    const uint64_t *at = coll_flag_at(r, r->s->rank, stage, q), want = coll_flag(r);
    uint64_t begin = clock_ns(), bad, v;
    for (uint32_t i = 1; bad = bad_now(r), (v = flag_now(at)) != want && bad == 0; i++) {
        if (v >> COLL_TAG_BITS == want >> COLL_TAG_BITS)
            return give_up(r, COLL_OTHER, q);
        if (i % SPINS == 0 && waited_for(r, q, begin) != 0)
            return -1;
    }
    return bad != 0 ? fail(r, bad) : 0;
}

COLL_FN int
coll_signal(const struct coll_run *r, int stage)
{
    int q = (int)threadIdx.x;
    __syncthreads();
    if (q < r->s->n && q != r->s->rank)
        flag_put(coll_flag_at(r, q, stage, r->s->rank), coll_flag(r));
    return 0;
}

COLL_FN int
coll_wait(const struct coll_run *r, int stage)
{
    int q = (int)threadIdx.x;
    return __syncthreads_or(q < r->s->n && q != r->s->rank ? wait_for(r, q, stage) : 0);
}

/* ---- copies ------------------------------------------------------------------ */

static __device__ __forceinline__ bool
aligned16(const void *a, const void *b)
{
    return (((uintptr_t)a | (uintptr_t)b) & 15) == 0;
}

/* Copies bytes first .. end, in items of type U. */
template<typename U>
static __device__ __forceinline__ void
copy_each(char *__restrict__ dst, const char *__restrict__ src, uint32_t first, uint32_t end)
{
#pragma unroll 4
    for (uint32_t i = first / sizeof(U) + threadIdx.x; i < end / sizeof(U); i += THREADS)
        ((U *)dst)[i] = __ldcg((const U *)src + i);
}

COLL_FN void
coll_push(const struct coll_run *r, char *dst, const char *x, uint32_t m)
{
    uint32_t end = m * (uint32_t)r->j->eb, whole = aligned16(dst, x) ? end & ~15u : 0;
    copy_each<uint4>(dst, x, 0, whole);
    if (r->j->eb == 4)
        copy_each<uint32_t>(dst, x, whole, end);
    else if (r->j->eb == 2)
        copy_each<uint16_t>(dst, x, whole, end);
    else
        copy_each<uint8_t>(dst, x, whole, end);
}

/* coll_place() in items of type U, `per` elements each, of which rows are a multiple. */
template<typename U>
static __device__ __forceinline__ void
place_each(const struct coll_run *r, int q, uint64_t at, uint32_t m, const char *src,
    uint32_t per)
{
    uint64_t C = (uint32_t)r->j->C / per, ldy = (uint32_t)r->j->ldy / per;
    for (uint32_t i = threadIdx.x; i < m / per; i += THREADS) {
        uint64_t e = at / per + i, t = e / C;
        ((U *)r->j->y)[t * ldy + (uint32_t)q * C + (e - t * C)] = __ldcg((const U *)src + i);
    }
}

COLL_FN void
coll_place(const struct coll_run *r, int q, uint64_t at, uint32_t m, const char *src)
{
    uint32_t eb = (uint32_t)r->j->eb;
    if (aligned16(src, r->j->y) && (uint32_t)r->j->C * (uint64_t)eb % 16 == 0 &&
        (uint32_t)r->j->ldy * (uint64_t)eb % 16 == 0)
        place_each<uint4>(r, q, at, m, src, 16 / eb);
    else if (eb == 4)
        place_each<uint32_t>(r, q, at, m, src, 1);
    else if (eb == 2)
        place_each<uint16_t>(r, q, at, m, src, 1);
    else
        place_each<uint8_t>(r, q, at, m, src, 1);
}

/* ---- sums -------------------------------------------------------------------- */

static __device__ __forceinline__ void
round_to(float *p, float x)
{
    *p = x;
}

static __device__ __forceinline__ void
round_to(__half *p, float x)
{
    *p = __float2half_rn(x);
}

static __device__ __forceinline__ void
round_to(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

/* Stores item i of the elements from `at` on in y, or adds it to the residual. An item of
 * several elements is aligned there, as checked by vectors(). */
template<typename A, typename U>
static __device__ __forceinline__ void
out_each(const struct coll_run *r, uint64_t at, uint32_t i, const U &sum)
{
    const int N = sizeof(U) / sizeof(A);
    if (r->j->residual == NULL) {
        ((U *)((A *)r->j->y + at))[i] = sum;
        return;
    }
    float *p = r->j->residual + at + (size_t)i * N;
    const A *add = reinterpret_cast<const A *>(&sum);
#pragma unroll
    for (int k = 0; k + 4 <= N; k += 4) {
        float4 v = *(const float4 *)(p + k);
        v.x += cu_widen(add[k]);
        v.y += cu_widen(add[k + 1]);
        v.z += cu_widen(add[k + 2]);
        v.w += cu_widen(add[k + 3]);
        *(float4 *)(p + k) = v;
    }
#pragma unroll
    for (int k = N / 4 * 4; k < N; k++)
        p[k] += cu_widen(add[k]);
}

/* Sums items first .. end over the ranks in their order. */
template<typename A, typename U>
static __device__ __forceinline__ void
sum_each(const struct coll_run *r, uint64_t at, uint32_t first, uint32_t end,
    const char *buf, uint32_t slot, uint32_t result)
{
    const int N = sizeof(U) / sizeof(A);
    for (uint32_t i = first + threadIdx.x; i < end; i += THREADS) {
        U in[FDK_MAX_RANKS], sum;
        float v[N];
#pragma unroll
        for (int q = 0; q < FDK_MAX_RANKS; q++)
            if (q < r->s->n)
                in[q] = __ldcg((const U *)(q == r->s->rank ? coll_x(r, at) :
                    buf + (size_t)slot * q) + i);
#pragma unroll
        for (int q = 0; q < FDK_MAX_RANKS; q++)
#pragma unroll
            for (int k = 0; k < N && q < r->s->n; k++) {
                float e = cu_widen(reinterpret_cast<const A *>(&in[q])[k]);
                v[k] = q == 0 ? e : __fadd_rn(v[k], e);
            }
#pragma unroll
        for (int k = 0; k < N; k++)
            round_to(reinterpret_cast<A *>(&sum) + k, v[k]);
        for (int k = 1; k < r->s->n && result != 0; k++)
            ((U *)(coll_buf_of(r, coll_peer(r, k)) + result))[i] = sum;
        out_each<A, U>(r, at, i, sum);
    }
}

/* Number of 16-byte vectors of m elements, or 0 if the buffers are not aligned. from:
 * data of the other ranks; if it begins at a row, its alignment may differ from that of
 * x. */
template<typename A>
static __device__ __forceinline__ uint32_t
vectors(const struct coll_run *r, uint64_t at, uint32_t m, const char *from)
{
    const void *to = r->j->residual != NULL ? (const void *)(r->j->residual + at) :
        (const void *)((const A *)r->j->y + at);
    return aligned16(coll_x(r, at), to) && aligned16(from, from) ? m / (16 / sizeof(A)) : 0;
}

template<typename A, typename E>
static __device__ __forceinline__ void
sum_as(const struct coll_run *r, uint64_t at, uint32_t m, const char *buf, uint32_t slot,
    uint32_t result)
{
    uint32_t n = vectors<A>(r, at, m, buf);
    sum_each<A, uint4>(r, at, 0, n, buf, slot, result);
    sum_each<A, E>(r, at, n * (16 / sizeof(A)), m, buf, slot, result);
}

COLL_FN void
coll_sum(const struct coll_run *r, uint64_t at, uint32_t m, const char *buf, uint32_t slot,
    uint32_t result)
{
    if (r->j->type == FDK_F32)
        sum_as<float, uint32_t>(r, at, m, buf, slot, result);
    else if (r->j->type == FDK_BF16)
        sum_as<__nv_bfloat16, uint16_t>(r, at, m, buf, slot, result);
    else
        sum_as<__half, uint16_t>(r, at, m, buf, slot, result);
}

template<typename A, typename U>
static __device__ __forceinline__ void
take_each(const struct coll_run *r, uint64_t at, uint32_t first, uint32_t end,
    const char *src)
{
#pragma unroll 4
    for (uint32_t i = first + threadIdx.x; i < end; i += THREADS)
        out_each<A, U>(r, at, i, __ldcg((const U *)src + i));
}

template<typename A, typename E>
static __device__ __forceinline__ void
take_as(const struct coll_run *r, uint64_t at, uint32_t m, const char *src)
{
    uint32_t n = vectors<A>(r, at, m, src);
    take_each<A, uint4>(r, at, 0, n, src);
    take_each<A, E>(r, at, n * (16 / sizeof(A)), m, src);
}

COLL_FN void
coll_take(const struct coll_run *r, uint64_t at, uint32_t m, const char *src)
{
    if (r->j->type == FDK_F32)
        take_as<float, uint32_t>(r, at, m, src);
    else if (r->j->type == FDK_BF16)
        take_as<__nv_bfloat16, uint16_t>(r, at, m, src);
    else
        take_as<__half, uint16_t>(r, at, m, src);
}

/* ---- rows -------------------------------------------------------------------- */

static __device__ __forceinline__ float
block_sum(float v)
{
    __shared__ float warp_sum[WARPS];
    v = cu_warp_sum(v);
    if (threadIdx.x % 32 == 0)
        warp_sum[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < WARPS; i++)
        v += warp_sum[i];
    __syncthreads();
    return v;
}

/* Loads E numbers at p, as a vector if p is aligned to it. */
template<int E>
static __device__ __forceinline__ void
get_floats(const float *p, float v[E])
{
    if (E == 4 && ((uintptr_t)p & 15) == 0) {
        *(float4 *)v = *(const float4 *)p;
        return;
    }
#pragma unroll
    for (int k = 0; k < E; k++)
        v[k] = p[k];
}

template<int E>
static __device__ __forceinline__ void
put_floats(float *p, const float v[E])
{
    if (E == 4 && ((uintptr_t)p & 15) == 0) {
        *(float4 *)p = *(const float4 *)v;
        return;
    }
#pragma unroll
    for (int k = 0; k < E; k++)
        p[k] = v[k];
}

/* Factor 1 / rms of a row, from each thread's sum of squares. */
static __device__ __forceinline__ float
row_scale(const struct coll_job *j, float sum)
{
    return rsqrtf(block_sum(sum) / (float)j->C + j->eps);
}

/* Stores elements c .. c + E of a row of y, multiplied by the norm's weights. */
template<typename A, int E>
static __device__ __forceinline__ void
put_normed(const struct coll_job *j, A *y, uint32_t c, const float w[E], const float v[E],
    float inv)
{
    alignas(8) A to[E];
#pragma unroll
    for (int k = 0; k < E; k++)
        round_to(&to[k], (w[k] + j->offset) * (v[k] * inv));
    if (((uintptr_t)(y + c) & 7) == 0)
        *(uint64_t *)(y + c) = *(const uint64_t *)to;
    else
        for (int k = 0; k < E; k++)
            y[c + (uint32_t)k] = to[k];
}

/* Each thread adds its squares in the order of packets_rows(), so that a row has the same
 * bits in any batch. */
template<typename A>
static __device__ __forceinline__ void
norm_as(const struct coll_run *r, uint64_t first, uint64_t end)
{
    const int E = 8 / sizeof(A);
    const uint32_t C = (uint32_t)r->j->C, whole = C / E * E;
    __syncthreads();                  /* other threads wrote the residual */
    for (uint64_t t = first; t < end; t++) {
        const float *x = r->j->residual + t * C;
        A *y = (A *)r->j->y + t * C;
        float sum = 0, v[E], w[E];
#pragma unroll 4
        for (uint32_t c = threadIdx.x * E; c < whole; c += THREADS * E) {
            get_floats<E>(x + c, v);
#pragma unroll
            for (int k = 0; k < E; k++)
                sum = fmaf(v[k], v[k], sum);
        }
        if (whole + threadIdx.x < C)
            sum = fmaf(x[whole + threadIdx.x], x[whole + threadIdx.x], sum);
        float inv = row_scale(r->j, sum);
#pragma unroll 4
        for (uint32_t c = threadIdx.x * E; c < whole; c += THREADS * E) {
            get_floats<E>(r->j->w + c, w);
            get_floats<E>(x + c, v);
            put_normed<A, E>(r->j, y, c, w, v, inv);
        }
        uint32_t c = whole + threadIdx.x;
        if (c < C)
            round_to(&y[c], (r->j->w[c] + r->j->offset) * (x[c] * inv));
    }
}

COLL_FN void
coll_norm(const struct coll_run *r, uint64_t first, uint64_t end)
{
    if (r->j->type == FDK_F32)
        norm_as<float>(r, first, end);
    else if (r->j->type == FDK_BF16)
        norm_as<__nv_bfloat16>(r, first, end);
    else
        norm_as<__half>(r, first, end);
}

/* ---- between copies -------------------------------------------------------------- */

/* Stores x at byte `at` of the cache of a copy, or of all other copies if copy is -1. */
template<typename U>
static __device__ __forceinline__ void
put_kv(const struct coll_run *r, const struct fdk_kv_share_args *a, int32_t copy, uint64_t at,
    U x)
{
    for (int k = 1; k < r->s->n && copy < 0; k++)
        *(U *)((char *)a->peer[coll_peer(r, k)] + at) = x;
    if (copy >= 0)
        *(U *)((char *)a->peer[copy] + at) = x;
}

/* Sends keys and values of this channel's tokens in items of type U, of which a vector is
 * a multiple. */
template<typename U>
static __device__ __forceinline__ void
push_kv_each(const struct coll_run *r, const struct fdk_kv_share_args *a, struct coll_span t)
{
    uint32_t per = (uint32_t)a->kv.head_dim * (uint32_t)r->j->eb / sizeof(U);
    uint32_t of = 2 * (uint32_t)a->kv.n_kv_head, n = (uint32_t)(t.end - t.first) * of * per;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t v = i / per % of;
        int32_t head = (int32_t)(v / 2);
        struct coll_kv_way w = coll_kv_way_of(a, r->s, (int32_t)(t.first + i / per / of));
        uint64_t in = (uint64_t)(i % per) * sizeof(U);
        if (w.slot < 0)
            continue;
        put_kv(r, a, w.copy, coll_kv_at(&a->kv, a->layer, w.slot, head, (int)(v % 2)) + in,
            __ldcg((const U *)((const char *)w.from->base +
                coll_kv_at(w.from, w.from_layer, w.from_slot, head, (int)(v % 2)) + in)));
    }
}

static __device__ __forceinline__ void
push_kv_scales(const struct coll_run *r, const struct fdk_kv_share_args *a,
    struct coll_span t)
{
    uint32_t of = 2 * (uint32_t)a->kv.n_kv_head, n = (uint32_t)(t.end - t.first) * of;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        int32_t head = (int32_t)(i % of / 2), value = (int32_t)(i % 2);
        struct coll_kv_way w = coll_kv_way_of(a, r->s, (int32_t)(t.first + i / of));
        if (w.slot < 0)
            continue;
        put_kv(r, a, w.copy, coll_kv_scale_at(&a->kv, a->layer, w.slot, head, value),
            __ldcg((const float *)((const char *)w.from->base +
                coll_kv_scale_at(w.from, w.from_layer, w.from_slot, head, value))));
    }
}

COLL_FN void
coll_push_kv(const struct coll_run *r)
{
    const struct fdk_kv_share_args *a = (const struct fdk_kv_share_args *)r->args;
    struct coll_span t = coll_kv_span(r->j, a, r->channel);
    uint64_t places = (uint64_t)a->kv.base | (uint64_t)a->stage.base | a->kv.block_bytes |
        a->kv.layer_bytes | a->kv.v_bytes | (uint64_t)a->kv.head_dim * (uint32_t)r->j->eb;
    if (places % 16 == 0)
        push_kv_each<uint4>(r, a, t);
    else if (places % 4 == 0)
        push_kv_each<uint32_t>(r, a, t);
    else
        push_kv_each<uint8_t>(r, a, t);
    if (a->kv.dtype == FDK_I8)
        push_kv_scales(r, a, t);
}

static __device__ __forceinline__ int32_t
outputs(const struct fdk_row_share_args *a)
{
    return a->O > 0 ? max(0, min(*a->b->n_out, a->O)) : 0;
}

COLL_FN void
coll_push_results(const struct coll_run *r)
{
    const struct fdk_row_share_args *a = (const struct fdk_row_share_args *)r->args;
    const uint32_t each = sizeof(struct fdk_result) / 4, n = (uint32_t)outputs(a) * each;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        ((uint32_t *)&a->all[a->at[i / each]])[i % each] =
            __ldcg((const uint32_t *)a->results + i);
}

COLL_FN void
coll_push_rows(const struct coll_run *r)
{
    const struct fdk_row_share_args *a = (const struct fdk_row_share_args *)r->args;
    for (int32_t o = (int32_t)threadIdx.x; o < outputs(a); o += THREADS) {
        const struct fdk_out *out = &a->b->out[o];
        int32_t slot = a->b->state[out->row];
        const struct fdk_row *own = &a->state[0][slot];
        for (int q = 1; q < r->s->n && out->kind == FDK_OUT_SAMPLE; q++) {
            struct fdk_row *to = &a->state[q][slot];
            to->last_token = own->last_token;
            to->len = own->len;
            to->done = own->done;
        }
    }
}

#include "kernels/cuda/collective_packet.cuh"

/* ---- launching ----------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
collective_kernel(const __grid_constant__ struct coll_space s,
    const __grid_constant__ struct coll_job j, struct cu_claim *claim)
{
    struct coll_run r = {};
    cu_dep_next();
    cu_dep_wait();
    r.s = &s;
    r.j = &j;
    r.own = claim;
    r.channel = (int32_t)blockIdx.x;
    r.count = coll_count(&j);
    int rc = coll_channel_run(&r);
    __syncthreads();                  /* all threads have read seq, even without a
                                         piece */
    if (rc == 0 && threadIdx.x == 0)
        coll_channel_of(&r, s.rank)->seq = r.seq;
}

/* Transfers between copies of the model. A is the type of the operation's arguments. Their batch is a
 * host struct, so it is passed by value and only the arrays it points to are read. */
template<typename A>
static __global__ void __launch_bounds__(THREADS)
copies_kernel(const __grid_constant__ struct coll_space s,
    const __grid_constant__ struct coll_job j, const __grid_constant__ A args,
    const __grid_constant__ struct fdk_batch b, struct cu_claim *claim)
{
    struct coll_run r = {};
    A a = args;
    cu_dep_next();
    cu_dep_wait();
    a.b = &b;
    r.s = &s;
    r.j = &j;
    r.own = claim;
    r.args = &a;
    r.channel = (int32_t)blockIdx.x;
    int rc = coll_copies_run(&r);
    __syncthreads();
    if (rc == 0 && threadIdx.x == 0)
        coll_channel_of(&r, s.rank)->seq = r.seq;
}

/* Gets the group's space with the rank of the stream's device. Returns 0 or -errno. */
static int
space_of(const struct fdk_group *g, fdk_stream_t st, struct coll_space *ret)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    struct cu_dev *d = cu_stream_of(st)->dev;
    if (g == NULL || g->magic != GROUP_MAGIC || g->ctx != d->ctx)
        return -EINVAL;
    *ret = g->space;
    ret->rank = coll_rank_of(g->device, ret->n, (int32_t)(d - d->ctx->dev));
    return ret->rank >= 0 ? 0 : -EINVAL;
}

static int
launch(const struct coll_space *s, const struct coll_job *j, fdk_stream_t st,
    const char *name)
{
    cu_chain(collective_kernel, dim3((unsigned)j->n_channel), THREADS, 0, cu_raw(st), *s, *j,
        cu_stream_of(st)->dev->claim);
    return cu_launched(st, name);
}

template<typename A, typename U>
static int
launch_packets(const struct coll_space *s, const struct coll_job *j, fdk_stream_t st)
{
    cu_chain(s->n == 2 ? collective_kernel_packets<A, U, 2> :
        collective_kernel_packets<A, U, FDK_MAX_RANKS>, dim3((unsigned)j->n_channel), THREADS, 0,
        cu_raw(st), *s, *j, cu_stream_of(st)->dev->claim);
    return cu_launched(st, "all_reduce");
}

int
cu_all_reduce(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    struct coll_space s;
    struct coll_job j;
    int rc = space_of(a->group, st, &s);
    if (rc == 0)
        rc = coll_reduce_job(a, &s, &j);
    if (rc != 0)
        return rc;
    if (!packets_take(&s, &j))
        return launch(&s, &j, st, "all_reduce");
    return j.type == FDK_F32 ? launch_packets<float, uint32_t>(&s, &j, st) :
        j.type == FDK_BF16 ? launch_packets<__nv_bfloat16, uint16_t>(&s, &j, st) :
        launch_packets<__half, uint16_t>(&s, &j, st);
}

int
cu_all_gather(const struct fdk_all_gather_args *a, fdk_stream_t st)
{
    struct coll_space s;
    struct coll_job j;
    int rc = space_of(a->group, st, &s);
    if (rc == 0)
        rc = coll_gather_job(a, &s, &j);
    return rc != 0 ? rc : launch(&s, &j, st, "all_gather");
}

#include "kernels/cuda/collective_ahead.cuh"

template<typename A>
static int
launch_copies(const struct coll_space *s, const struct coll_job *j, const A *a,
    fdk_stream_t st, const char *name)
{
    cu_chain(copies_kernel<A>, dim3((unsigned)j->n_channel), THREADS, 0, cu_raw(st), *s, *j,
        *a, *a->b, cu_stream_of(st)->dev->claim);
    return cu_launched(st, name);
}

int
cu_kv_share(const struct fdk_kv_share_args *a, fdk_stream_t st)
{
    struct coll_space s;
    struct coll_job j;
    int rc = space_of(a->group, st, &s);
    if (rc == 0)
        rc = coll_kv_job(a, &s, &j);
    return rc != 0 ? rc : launch_copies(&s, &j, a, st, "kv_share");
}

int
cu_row_share(const struct fdk_row_share_args *a, fdk_stream_t st)
{
    struct coll_space s;
    struct coll_job j;
    int rc = space_of(a->group, st, &s);
    if (rc == 0)
        rc = coll_rows_job(a, &s, &j);
    return rc != 0 ? rc : launch_copies(&s, &j, a, st, "row_share");
}

cudaError_t
cu_collective_load(void)
{
    const void *const k[] = { (const void *)collective_kernel, (const void *)ahead_kernel,
        (const void *)collective_kernel_packets<float, uint32_t, 2>,
        (const void *)collective_kernel_packets<float, uint32_t, FDK_MAX_RANKS>,
        (const void *)collective_kernel_packets<__nv_bfloat16, uint16_t, 2>,
        (const void *)collective_kernel_packets<__nv_bfloat16, uint16_t, FDK_MAX_RANKS>,
        (const void *)collective_kernel_packets<__half, uint16_t, 2>,
        (const void *)collective_kernel_packets<__half, uint16_t, FDK_MAX_RANKS>,
        (const void *)copies_kernel<struct fdk_kv_share_args>,
        (const void *)copies_kernel<struct fdk_row_share_args> };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}

/* ---- groups -------------------------------------------------------------------- */

static struct coll_default
defaults(int32_t n_rank, int in_host)
{
    const struct coll_default host = { 16u << 20, UINT64_C(64) << 10, 0, CHANNELS };
    if (in_host)
        return host;
    struct coll_default d = { 64u << 20, n_rank == 2 ? UINT64_MAX : n_rank <= 4 ? 512u << 10 :
        256u << 10, n_rank == 2 ? 512u << 10 : 64u << 10, CHANNELS };
    return d;
}

/* Sets the group's failure value, unless it is set already. */
static void
tell(struct fdk_group *g, int rank)
{
    uint64_t none = 0;
    (void)__atomic_compare_exchange_n(g->told, &none, coll_bad_of(COLL_GONE, rank), 0,
        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void
cu_groups_tell(const struct cu_dev *dev)
{
    struct fdk_ctx *ctx = dev->ctx;
    pthread_mutex_lock(&ctx->group_lock);
    for (struct fdk_group *g = ctx->groups; g != NULL; g = g->next) {
        int32_t rank = coll_rank_of(g->device, g->space.n, (int32_t)(dev - ctx->dev));
        if (rank >= 0)
            tell(g, rank);
    }
    pthread_mutex_unlock(&ctx->group_lock);
}

void
cu_group_ways(struct fdk_group *g, const struct fdk_group_ways *set,
    struct fdk_group_ways *was)
{
    coll_space_ways(&g->space, set, was);
}

void
cu_group_abort(struct fdk_group *g, int32_t rank)
{
    tell(g, rank);
}

static int
peers_check(struct fdk_group *g, char *err, size_t err_bytes)
{
    for (int i = 0; i < g->space.n * g->space.n && !g->space.in_host; i++) {
        int a = g->ctx->dev[g->device[i / g->space.n]].idx;
        int b = g->ctx->dev[g->device[i % g->space.n]].idx, can = 0;
        if (a == b)
            continue;
        if (cudaDeviceCanAccessPeer(&can, a, b) == cudaSuccess && can)
            continue;
        (void)cudaGetLastError();
        snprintf(err, err_bytes, "collectives: device %d cannot reach the memory of "
            "device %d", a, b);
        return -ENOTSUP;
    }
    return 0;
}

/* Allocates the failure value in pinned memory, at the same address on all devices. */
static int
told_new(struct fdk_group *g, char *err, size_t err_bytes)
{
    struct cu_dev *d = &g->ctx->dev[g->device[0]];
    void *p = NULL, *q = NULL;
    int rc = cu_enter(d);
    if (rc == 0)
        rc = cu_result(d, "cudaHostAlloc", cudaHostAlloc(&p, sizeof(*g->told),
            cudaHostAllocMapped | cudaHostAllocPortable));
    g->told = (uint64_t *)p;
    if (rc == 0)
        rc = cu_result(d, "cudaHostGetDevicePointer", cudaHostGetDevicePointer(&q, p, 0));
    if (rc != 0) {
        snprintf(err, err_bytes, "collectives: no pinned memory for the group: %s",
            strerror(-rc));
        return rc;
    }
    *g->told = 0;
    g->space.told = (const uint64_t *)q;
    return 0;
}

/* Can all ranks run the megakernel with its all-reduces? Each rank needs its own GPU for
 * that. */
static int
has_room(const struct fdk_ctx *ctx, const struct coll_space *s, const int32_t *device)
{
    if (s->in_host || s->n > CU_MEET_RANKS)
        return 0;
    for (int i = 0; i < s->n; i++) {
        const struct cu_dev *d = &ctx->dev[device != NULL ? device[i] : i];
        for (int k = 0; k < ctx->n_dev; k++)
            if (&ctx->dev[k] != d && ctx->dev[k].idx == d->idx)
                return 0;
        if (d->mega == NULL)
            return 0;
    }
    return 1;
}

/* Offset of the megakernel's CU_MEET_BYTES, after all else in a workspace. */
static uint64_t
room_at(const struct coll_space *s)
{
    return (coll_space_bytes(s) + 255) & ~UINT64_C(255);
}

static uint64_t
space_bytes(const struct fdk_ctx *ctx, const struct coll_space *s, const int32_t *device)
{
    return has_room(ctx, s, device) ? room_at(s) + CU_MEET_BYTES : coll_space_bytes(s);
}

int
cu_group_room(struct fdk_group *g, const struct cu_dev *d, struct coll_space *ret,
    uint64_t *ret_at)
{
    if (g == NULL || g->magic != GROUP_MAGIC || g->ctx != d->ctx ||
        !has_room(g->ctx, &g->space, g->device))
        return -ENOTSUP;
    *ret = g->space;
    ret->rank = coll_rank_of(g->device, ret->n, (int32_t)(d - d->ctx->dev));
    *ret_at = room_at(&g->space);
    return ret->rank >= 0 ? 0 : -ENOTSUP;
}

void
cu_group_bound(struct fdk_group *g, const struct cu_dev *d, uint64_t what)
{
    int32_t rank = coll_rank_of(g->device, g->space.n, (int32_t)(d - d->ctx->dev));
    (void)__atomic_fetch_add(&g->bound[rank], what, __ATOMIC_RELAXED);
}

int
cu_group_agrees(struct fdk_group *g)
{
    uint64_t first = __atomic_load_n(&g->bound[0], __ATOMIC_RELAXED);
    for (int i = 1; i < g->space.n; i++)
        if (__atomic_load_n(&g->bound[i], __ATOMIC_RELAXED) != first)
            return 0;
    return 1;
}

static int
host_spaces_new(struct fdk_group *g, char *err, size_t err_bytes)
{
    size_t bytes = coll_space_bytes(&g->space);
    for (int i = 0; i < g->space.n; i++) {
        void *p = NULL;
        int rc = cu_host_alloc(g->ctx, bytes, &p);
        if (rc != 0) {
            snprintf(err, err_bytes, "collectives: cannot set up a workspace of %zu bytes in "
                "pinned host memory: %s", bytes, strerror(-rc));
            return rc;
        }
        memset(p, 0, bytes);
        g->space.base[i] = (char *)p;
    }
    return 0;
}

static int
spaces_new(struct fdk_group *g, char *err, size_t err_bytes)
{
    for (int i = 0; i < g->space.n; i++) {
        size_t bytes = space_bytes(g->ctx, &g->space, g->device);
        struct cu_dev *d = &g->ctx->dev[g->device[i]];
        void *p = NULL;
        int rc = cu_mem_alloc(g->ctx, g->device[i], bytes, &p);
        g->space.base[i] = (char *)p;
        if (rc == 0)
            rc = cu_result(d, "cudaMemset", cudaMemset(p, 0, bytes));
        if (rc == 0)
            rc = cu_result(d, "cudaStreamSynchronize", cudaStreamSynchronize(0));
        if (rc != 0) {
            snprintf(err, err_bytes, "collectives: cannot set up a workspace of %zu bytes on "
                "device %d: %s", bytes, d->idx, strerror(-rc));
            return rc;
        }
    }
    return 0;
}

/* Can the driver write 64-bit flags in stream order on all of these devices? */
static int
writes_flags(const struct fdk_ctx *ctx, const struct fdk_group_args *a)
{
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice) = NULL;
    write_fn write;
    int can = cu_driver_call("cuStreamWriteValue64", 12000, &write) == 0 &&
        cu_driver_call("cuDeviceGetAttribute", 12000, &attribute) == 0;
    for (int i = 0; i < a->n_rank && can; i++)
        if (attribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
            ctx->dev[a->device != NULL ? a->device[i] : i].idx) != CUDA_SUCCESS)
            can = 0;
    return can;
}

static int
space_init(const struct fdk_ctx *ctx, const struct fdk_group_args *a, struct coll_space *ret,
    char *err, size_t err_bytes)
{
    struct coll_default d = defaults(a->n_rank, a->in_host);
    for (int i = 0; i < ctx->n_dev; i++) {
        int n = 0;                    /* devices on the same GPU, whose blocks must all
                                         run */
        for (int k = 0; k < ctx->n_dev; k++)
            n += ctx->dev[k].idx == ctx->dev[i].idx;
        n = ctx->dev[i].n_proc / n;
        d.n_channel = n < d.n_channel ? n : d.n_channel;
    }
    int rc = coll_space_init(a, ctx->n_dev, &d, ret, err, err_bytes);
    if (rc == 0 && ret->ahead_bytes > 0 && !writes_flags(ctx, a))
        ret->ahead_bytes = 0;
    return rc;
}

uint64_t
cu_group_bytes(struct fdk_ctx *ctx, const struct fdk_group_args *a)
{
    struct coll_space s;
    char err[256];
    return space_init(ctx, a, &s, err, sizeof(err)) == 0 ? space_bytes(ctx, &s, a->device) : 0;
}

int
cu_group_new(struct fdk_ctx *ctx, const struct fdk_group_args *a, struct fdk_group **ret,
    char *err, size_t err_bytes)
{
    struct coll_space s;
    int rc = space_init(ctx, a, &s, err, err_bytes);
    if (rc != 0)
        return rc;
    struct fdk_group *g = (struct fdk_group *)calloc(1, sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    g->magic = GROUP_MAGIC;
    g->ctx = ctx;
    for (int i = 0; i < s.n; i++)
        g->device[i] = a->device != NULL ? a->device[i] : i;
    g->space = s;
    if (s.ahead_bytes > 0)
        (void)cu_driver_call("cuStreamWriteValue64", 12000, &g->write);
    rc = peers_check(g, err, err_bytes);
    if (rc == 0)
        rc = told_new(g, err, err_bytes);
    if (rc == 0)
        rc = s.in_host ? host_spaces_new(g, err, err_bytes) : spaces_new(g, err, err_bytes);
    for (int i = 0; i < s.n && s.ahead_bytes > 0 && rc == 0; i++)
        rc = ahead_new(&ctx->dev[g->device[i]], &g->ahead[i], err, err_bytes);
    if (rc != 0) {
        cu_group_free(g);
        return rc;
    }
    pthread_mutex_lock(&ctx->group_lock);
    g->next = ctx->groups;
    ctx->groups = g;
    pthread_mutex_unlock(&ctx->group_lock);
    *ret = g;
    return 0;
}

void
cu_group_free(struct fdk_group *g)
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
    for (int i = 0; i < 2; i++)
        ahead_free(&g->ctx->dev[g->device[i]], &g->ahead[i]);
    cu_host_free(g->ctx, g->told);
    for (int i = 0; i < g->space.n; i++) {
        if (g->space.in_host)
            cu_host_free(g->ctx, g->space.base[i]);
        else
            cu_mem_free(g->ctx, g->device[i], g->space.base[i]);
    }
    g->magic = 0;
    free(g);
}
