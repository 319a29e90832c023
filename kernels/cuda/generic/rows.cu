/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that treat each row by itself. Most process vectors of eight numbers per
 * thread (vec8.cuh); there is also a plain kernel for rows of any length and alignment.
 * The choice depends only on the row's length and alignment, not on
 * the number of rows.
 */
#include "kernels/cuda/generic/vec8.cuh"

#define ROW_THREADS 256

/* Up to this number of rows, a row is loaded before it is known to be live, so that the
 * load does not wait for the live count. With more rows, loading padding would cost
 * bandwidth. */
#define ROWS_AT_ONCE 64

/* ---- row states ---------------------------------------------------------- */

/* state[idx[i]] = rows[i], one block per row; then the deltas. */
static __global__ void
row_update_kernel(struct fdk_row_update_args a)
{
    static_assert(sizeof(struct fdk_row) % 8 == 0, "copied by words");
    int i = (int)blockIdx.x;
    cu_dep_next();
    cu_dep_wait();
    if (i < cu_clip(a.n, a.n_max)) {
        const uint2 *src = (const uint2 *)&a.rows[i];
        uint2 *dst = (uint2 *)&a.state[a.idx[i]];
        for (unsigned w = threadIdx.x; w < sizeof(struct fdk_row) / 8; w += blockDim.x)
            dst[w] = src[w];
    }
    if (a.n_delta == NULL)
        return;
    int n = cu_clip(a.n_delta, a.n_delta_max);
    for (int j = i * (int)blockDim.x + (int)threadIdx.x; j < n;
         j += (int)(gridDim.x * blockDim.x))
        a.table[a.delta[j].at] = a.delta[j].block;
}

int
cu_row_update(const struct fdk_row_update_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->n_max < 0 || a->state == NULL || a->rows == NULL || a->idx == NULL ||
        a->n == NULL)
        return -EINVAL;
    if (a->n_delta != NULL &&
        (a->table == NULL || a->delta == NULL || a->n_delta_max < 0))
        return -EINVAL;
    unsigned n = (unsigned)(a->n_max > 0 ? a->n_max : 1);
    cu_chain(row_update_kernel, dim3(n), 64, 0, cu_raw(st), *a);
    return cu_launched(st, "row_update");
}

/* ---- embed, gather ------------------------------------------------------- */

/* The batch is passed by value, as a->b is a host struct. vectors: C is a multiple of 8
 * and rows are aligned. It does not call cu_dep_next(): the kernels after this one, the
 * step's first, start when all earlier work has ended, and may read the
 * step's plan, block tables and older tokens' KV before their own wait. */
template<typename W>
static __global__ void __launch_bounds__(ROW_THREADS)
embed_kernel(struct fdk_embed_args a, struct fdk_batch b, struct cu_claim *claim,
    int vectors)
{
    int t = (int)blockIdx.x;
    cu_dep_wait();
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    int32_t id = b.ids[t];
    if (id < 0)
        id = a.state[b.state[b.row[t]]].last_token;
    int bad = id < 0 || id >= a.V;
    if (bad && threadIdx.x == 0)
        cu_report(claim, CU_BAD_TOKEN, id, t, a.V);
    id = bad ? 0 : id;
    const void *table = a.w;
    if (a.shard_rows > 0) {
        table = a.shard[id / a.shard_rows];
        id %= a.shard_rows;
    }
    const W *w = (const W *)table + (size_t)id * (size_t)a.C;
    float *y = a.y + (size_t)t * (size_t)a.C, v[8];
    for (int i = (int)threadIdx.x; vectors && i < a.C / 8; i += ROW_THREADS) {
        cu_widen8(cu_load8(w, (size_t)i), v);
#pragma unroll
        for (int k = 0; k < 8; k++)
            v[k] *= a.scale;
        cu_store8(y, (size_t)i, v);
    }
    for (int i = (int)threadIdx.x; !vectors && i < a.C; i += ROW_THREADS)
        y[i] = cu_widen(w[i]) * a.scale;
}

/* Are all rows of the table aligned for vectors? */
static int
embed_aligned(const struct fdk_embed_args *a)
{
    if (a->shard_rows == 0)
        return cu_aligned(a->y, a->w, NULL, NULL);
    for (int64_t i = 0; i * a->shard_rows < a->V; i++)
        if (!cu_aligned(a->y, a->shard[i], NULL, NULL))
            return 0;
    return 1;
}

int
cu_embed(const struct fdk_embed_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->C <= 0 || a->V <= 0 || a->y == NULL || !fdk_embed_valid(a) ||
        a->b == NULL)
        return -EINVAL;
    struct cu_claim *c = cu_stream_of(st)->dev->claim;
    int vectors = a->C % 8 == 0 && embed_aligned(a);
    dim3 n((unsigned)a->T);
    cudaStream_t s = cu_raw(st);
    if (a->w_dtype == FDK_F32)
        cu_chain(embed_kernel<float>, n, ROW_THREADS, 0, s, *a, *a->b, c, vectors);
    else if (a->w_dtype == FDK_F16)
        cu_chain(embed_kernel<__half>, n, ROW_THREADS, 0, s, *a, *a->b, c, vectors);
    else if (a->w_dtype == FDK_BF16)
        cu_chain(embed_kernel<__nv_bfloat16>, n, ROW_THREADS, 0, s, *a, *a->b, c,
            vectors);
    else
        return (unsigned)a->w_dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    return cu_launched(st, "embed");
}

/* Gathers rows of n elements of type U. */
template<typename U>
static __global__ void __launch_bounds__(ROW_THREADS)
gather_kernel(struct fdk_gather_args a, struct fdk_batch b, size_t n)
{
    int o = (int)blockIdx.x;
    cu_dep_next();
    cu_dep_wait();
    if (o >= cu_clip(b.n_out, a.O))
        return;
    const U *x = (const U *)a.x + (size_t)b.out[o].tok * n;
    U *y = (U *)a.y + (size_t)o * n;
    for (size_t i = threadIdx.x; i < n; i += ROW_THREADS)
        y[i] = x[i];
}

static int
gather_run(const struct fdk_gather_args *a, fdk_stream_t st)
{
    size_t bytes = (size_t)a->C * fdk_dtype_bytes(a->act);
    dim3 n((unsigned)a->O);
    if (bytes % 16 == 0 && cu_aligned(a->x, a->y, NULL, NULL))
        cu_chain(gather_kernel<uint4>, n, ROW_THREADS, 0, cu_raw(st), *a, *a->b,
            bytes / 16);
    else
        cu_chain(gather_kernel<uint16_t>, n, ROW_THREADS, 0, cu_raw(st), *a, *a->b,
            bytes / 2);
    return cu_launched(st, "gather");
}

int
cu_gather(const struct fdk_gather_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->O <= 0 || a->C <= 0 || a->y == NULL || a->x == NULL || a->b == NULL)
        return -EINVAL;
    rc = cu_act_valid(a->act);
    return rc != 0 ? rc : gather_run(a, st);
}

/* ---- rmsnorm ------------------------------------------------------------- */

#define NORM_THREADS 512
#define NORM_WARPS   (NORM_THREADS / 32)
#define NORM_VECTORS 4           /* vectors of 8 per thread: rows of up to 16,384 */

/* Returns the block's sum in every thread. part: entries without a warp are 0. */
static __device__ __forceinline__ float
norm_sum(float sum, float *part)
{
    sum = cu_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    float4 p[NORM_WARPS / 4];
#pragma unroll
    for (int i = 0; i < NORM_WARPS / 4; i++)
        p[i] = ((const float4 *)part)[i];
    sum = 0;
#pragma unroll
    for (int i = 0; i < NORM_WARPS / 4; i++)
        sum += (p[i].x + p[i].y) + (p[i].z + p[i].w);
    return sum;
}

/* The row stays in registers: all of it is loaded at once. */
template<typename A, int N>
static __global__ void __launch_bounds__(NORM_THREADS, N == 4 ? 1 : 2)
rmsnorm_vectors(struct fdk_rmsnorm_args a)
{
    __shared__ __align__(16) float part[NORM_WARPS];
    const int n = a.C / 8, first = (int)threadIdx.x, step = (int)blockDim.x;
    const size_t row = (size_t)blockIdx.x * (size_t)a.C;
    const float share = 1.0f / (float)a.C;
    float *x = a.x + row, sum = 0;
    struct cu_raw8<float> raw[N], w[N];
    struct cu_raw8<A> add[N];
    cu_dep_next();
    if (first < NORM_WARPS && first >= step / 32)
        part[first] = 0;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * step < n)
            w[k] = cu_load8(a.w, (size_t)(first + k * step));
    cu_dep_wait();
    int live = cu_clip(a.n, a.T);
    if (a.T > ROWS_AT_ONCE && (int)blockIdx.x >= live)
        return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int i = first + k * step;
        raw[k] = i < n ? cu_load8(x, (size_t)i) : cu_zero8<float>();
        add[k] = i < n && a.add != NULL ? cu_load8((const A *)a.add + row, (size_t)i) :
            cu_zero8<A>();
    }
    if ((int)blockIdx.x >= live)
        return;
    float v[N][8];
#pragma unroll
    for (int k = 0; k < N; k++) {
        cu_widen8(raw[k], v[k]);
        sum += cu_norm_add8(v[k], add[k]);
        if (first + k * step < n && a.add != NULL)
            cu_store8(x, (size_t)(first + k * step), v[k]);
    }
    float inv = rsqrtf(fmaf(norm_sum(sum, part), share, a.eps));
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * step < n)
            cu_norm_out8((A *)a.y + row, w[k], (size_t)(first + k * step), v[k], inv);
}

/* Rows of any length. */
template<typename A>
static __global__ void __launch_bounds__(NORM_THREADS)
rmsnorm_kernel(struct fdk_rmsnorm_args a)
{
    __shared__ __align__(16) float part[NORM_WARPS];
    int t = (int)blockIdx.x;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(a.n, a.T))
        return;
    float *x = a.x + (size_t)t * (size_t)a.C, sum = 0;
    A *y = (A *)a.y + (size_t)t * (size_t)a.C;
    const A *add = a.add != NULL ? (const A *)a.add + (size_t)t * (size_t)a.C : NULL;
    for (int i = (int)threadIdx.x; i < a.C; i += NORM_THREADS) {
        float v = x[i];
        if (add != NULL) {
            v += cu_widen(add[i]);
            x[i] = v;
        }
        sum = fmaf(v, v, sum);
    }
    float inv = rsqrtf(norm_sum(sum, part) / (float)a.C + a.eps);
    /* Each thread reads only elements that it wrote itself; y may be x. */
    for (int i = (int)threadIdx.x; i < a.C; i += NORM_THREADS)
        cu_round(&y[i], a.w[i] * (x[i] * inv));
}

/* Supports all of struct fdk_rmsnorm_args, for rows of any length. */
template<typename A>
static __global__ void __launch_bounds__(NORM_THREADS)
rmsnorm_any(struct fdk_rmsnorm_args a)
{
    __shared__ __align__(16) float sums[NORM_WARPS];
    const int t = (int)blockIdx.x, post = a.norm == FDK_NORM_POST;
    const float scale = a.add_scale != 0 ? a.add_scale : 1;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(a.n, a.T))
        return;
    float *x = a.x + (size_t)t * (size_t)a.C, sum = 0;
    A *y = a.y != NULL ? (A *)a.y + (size_t)t * (size_t)a.C : NULL;
    const A *add = a.add != NULL ? (const A *)a.add + (size_t)t * (size_t)a.C : NULL;
    for (int i = (int)threadIdx.x; i < a.C; i += NORM_THREADS) {
        float v = add != NULL ? cu_widen(add[i]) : 0;
        if (!post) {
            v = fmaf(scale, v, x[i]);
            x[i] = v;
        }
        sum = fmaf(v, v, sum);
    }
    float inv = rsqrtf(norm_sum(sum, sums) / (float)a.C + a.eps);
    /* Each thread reads only elements that it wrote itself. */
    for (int i = (int)threadIdx.x; i < a.C; i += NORM_THREADS) {
        float v = x[i];
        if (!post) {
            v = (a.w[i] + a.offset) * (v * inv);
        } else if (add != NULL) {
            v = fmaf(scale, (a.w[i] + a.offset) * (cu_widen(add[i]) * inv), v);
            x[i] = v;
        }
        if (y != NULL)
            cu_round(&y[i], v);
    }
}

template<typename A>
static void
rmsnorm_launch(const struct fdk_rmsnorm_args *a, cudaStream_t s)
{
    dim3 grid((unsigned)a->T);
    if (!cu_norm_usual(a)) {
        cu_chain(rmsnorm_any<A>, grid, NORM_THREADS, 0, s, *a);
        return;
    }
    unsigned n = (unsigned)a->C / 8, many = (n + NORM_THREADS - 1) / NORM_THREADS;
    many = many > 2 ? NORM_VECTORS : many;
    if (a->C % 8 != 0 || many * NORM_THREADS < n ||
        !cu_aligned(a->x, a->y, a->add, a->w)) {
        cu_chain(rmsnorm_kernel<A>, grid, NORM_THREADS, 0, s, *a);
        return;
    }
    unsigned threads = ((n + many - 1) / many + 31) / 32 * 32;
    if (many == 1)
        cu_chain(rmsnorm_vectors<A, 1>, grid, threads, 0, s, *a);
    else if (many == 2)
        cu_chain(rmsnorm_vectors<A, 2>, grid, threads, 0, s, *a);
    else
        cu_chain(rmsnorm_vectors<A, NORM_VECTORS>, grid, threads, 0, s, *a);
}

static int
rmsnorm_run(const struct fdk_rmsnorm_args *a, fdk_stream_t st)
{
    if (a->act == FDK_F32)
        rmsnorm_launch<float>(a, cu_raw(st));
    else
        rmsnorm_launch<__nv_bfloat16>(a, cu_raw(st));
    return cu_launched(st, "rmsnorm");
}

int
cu_rmsnorm(const struct fdk_rmsnorm_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    int post = a->norm == FDK_NORM_POST;
    if (a->T <= 0 || a->C <= 0 || (a->y == NULL && !post) || a->x == NULL ||
        (a->w == NULL && (!post || a->add != NULL)) || a->n == NULL)
        return -EINVAL;
    rc = cu_act_valid(a->act);
    return rc != 0 ? rc : rmsnorm_run(a, st);
}

/* ---- silu_mul ------------------------------------------------------------ */

#define SILU_THREADS 128
#define SILU_FEW     128         /* most rows for one vector per thread: with more rows,
                                    two vectors save a wave of blocks */

static __device__ __forceinline__ void
silu_mul(float *y, float g, float u)
{
    *y = g / (1.0f + expf(-g)) * u;
}

static __device__ __forceinline__ void
silu_mul(__nv_bfloat16 *y, float g, float u)
{
    *y = __float2bfloat16_rn(cu_silu_mul_bf16(g, u));
}

template<typename A>
static __device__ __forceinline__ void
silu_mul_vector(A *y, size_t i, const struct cu_raw8<A> &gate, const struct cu_raw8<A> &up)
{
    struct cu_raw8<A> out;
    float g[8], u[8];
    cu_widen8(gate, g);
    cu_widen8(up, u);
#pragma unroll
    for (int k = 0; k < 8; k++)
        silu_mul(reinterpret_cast<A *>(&out) + k, g[k], u[k]);
#pragma unroll
    for (size_t k = 0; k < sizeof(A) / 2; k++)
        ((uint4 *)y)[i * (sizeof(A) / 2) + k] = out.word[k];
}

/* N vectors of 8 per thread, SILU_THREADS apart; a row has `parts` consecutive blocks. */
template<typename A, int N>
static __global__ void __launch_bounds__(SILU_THREADS)
silu_mul_vectors(struct fdk_silu_mul_args a, unsigned parts)
{
    unsigned t = blockIdx.x / parts, n = (unsigned)a.F / 8;
    unsigned first = (blockIdx.x - t * parts) * SILU_THREADS * N + threadIdx.x;
    cu_dep_next();
    cu_dep_wait();
    unsigned live = (unsigned)cu_clip(a.n, a.T);
    if (a.T > ROWS_AT_ONCE && t >= live)
        return;
    const A *row = (const A *)a.gu + (size_t)t * 2 * (size_t)a.F;
    struct cu_raw8<A> gate[N], up[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        unsigned i = min(first + k * SILU_THREADS, n - 1);
        gate[k] = cu_load8(row, i);
        up[k] = cu_load8(row, n + i);
    }
    if (t >= live)
        return;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * SILU_THREADS < n)
            silu_mul_vector((A *)a.y + (size_t)t * (size_t)a.F,
                first + k * SILU_THREADS, gate[k], up[k]);
}

template<typename A>
static __global__ void __launch_bounds__(ROW_THREADS)
silu_mul_kernel(struct fdk_silu_mul_args a)
{
    int t = (int)blockIdx.x;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(a.n, a.T))
        return;
    const A *g = (const A *)a.gu + (size_t)t * 2 * (size_t)a.F, *u = g + a.F;
    A *y = (A *)a.y + (size_t)t * (size_t)a.F;
    for (int i = (int)(blockIdx.y * ROW_THREADS + threadIdx.x); i < a.F;
         i += (int)(gridDim.y * ROW_THREADS))
        silu_mul(&y[i], cu_widen(g[i]), cu_widen(u[i]));
}

template<typename A>
static __global__ void __launch_bounds__(ROW_THREADS)
gelu_mul_kernel(struct fdk_silu_mul_args a)
{
    int t = (int)blockIdx.x;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(a.n, a.T))
        return;
    const A *row = (const A *)a.gu + (size_t)t * 2 * (size_t)a.F;
    A *y = (A *)a.y + (size_t)t * (size_t)a.F;
    for (int i = (int)(blockIdx.y * ROW_THREADS + threadIdx.x); i < a.F;
         i += (int)(gridDim.y * ROW_THREADS)) {
        float g = cu_widen(row[i]), u = cu_widen(row[a.F + i]);
        float h = tanhf(0.79788456080286535588f * fmaf(0.044715f * g * g, g, g));
        cu_round(&y[i], 0.5f * g * (1 + h) * u);
    }
}

template<typename A>
static void
silu_mul_launch(const struct fdk_silu_mul_args *a, cudaStream_t s)
{
    unsigned T = (unsigned)a->T, F = (unsigned)a->F;
    unsigned each = SILU_THREADS * (T > SILU_FEW ? 2 : 1);
    unsigned parts = (F / 8 + each - 1) / each;
    if (a->gate != FDK_GATE_SILU) {
        const unsigned n = (F + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS);
        cu_chain(gelu_mul_kernel<A>, dim3(T, n < 64 ? n : 64), ROW_THREADS, 0, s, *a);
        return;
    }
    if (F % 8 == 0 && cu_aligned(a->gu, a->y, NULL, NULL) && parts <= 0x7fffffffu / T) {
        cu_chain(T > SILU_FEW ? silu_mul_vectors<A, 2> : silu_mul_vectors<A, 1>,
            dim3(T * parts), SILU_THREADS, 0, s, *a, parts);
        return;
    }
    parts = (F + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS);
    cu_chain(silu_mul_kernel<A>, dim3(T, parts < 64 ? parts : 64), ROW_THREADS, 0, s, *a);
}

static int
silu_mul_run(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    if (a->act == FDK_F32)
        silu_mul_launch<float>(a, cu_raw(st));
    else
        silu_mul_launch<__nv_bfloat16>(a, cu_raw(st));
    return cu_launched(st, "silu_mul");
}

int
cu_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->F <= 0 || a->y == NULL || a->gu == NULL || a->n == NULL)
        return -EINVAL;
    rc = cu_act_valid(a->act);
    return rc != 0 ? rc : silu_mul_run(a, st);
}

/* ---- softcap --------------------------------------------------------------- */

static __global__ void __launch_bounds__(ROW_THREADS)
softcap_kernel(struct fdk_softcap_args a)
{
    int t = (int)blockIdx.x;
    cu_dep_next();
    cu_dep_wait();
    if (a.first + t >= *a.n)
        return;
    float *y = a.y + (size_t)t * (size_t)a.N;
    for (int i = (int)(blockIdx.y * ROW_THREADS + threadIdx.x); i < a.N;
         i += (int)(gridDim.y * ROW_THREADS)) {
        float v = a.scale * y[i];
        y[i] = a.cap > 0 ? a.cap * tanhf(v / a.cap) : v;
    }
}

int
cu_softcap(const struct fdk_softcap_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->N <= 0 || a->first < 0 || a->y == NULL || a->n == NULL ||
        !(a->cap >= 0))
        return -EINVAL;
    unsigned n = ((unsigned)a->N + 8 * ROW_THREADS - 1) / (8 * ROW_THREADS);
    cu_chain(softcap_kernel, dim3((unsigned)a->T, n), ROW_THREADS, 0, cu_raw(st), *a);
    return cu_launched(st, "softcap");
}

template<typename A>
static cudaError_t
act_load(void)
{
    const void *const k[] = {
        (const void *)rmsnorm_kernel<A>, (const void *)rmsnorm_vectors<A, 1>,
        (const void *)rmsnorm_vectors<A, 2>,
        (const void *)rmsnorm_vectors<A, NORM_VECTORS>,
        (const void *)silu_mul_vectors<A, 1>, (const void *)silu_mul_vectors<A, 2>,
        (const void *)silu_mul_kernel<A>, (const void *)rmsnorm_any<A>,
        (const void *)gelu_mul_kernel<A>,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}

cudaError_t
cu_rows_load(void)
{
    const void *const k[] = {
        (const void *)row_update_kernel, (const void *)softcap_kernel, (const void *)embed_kernel<float>,
        (const void *)embed_kernel<__half>, (const void *)embed_kernel<__nv_bfloat16>,
        (const void *)gather_kernel<uint4>, (const void *)gather_kernel<uint16_t>,
    };
    cudaError_t e = cu_load(k, sizeof(k) / sizeof(k[0]));
    if (e == cudaSuccess)
        e = act_load<float>();
    return e != cudaSuccess ? e : act_load<__nv_bfloat16>();
}
