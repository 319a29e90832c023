/*
 * Operations that take each row for itself: one block per row.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#define ROW_THREADS 256

/* ---- row states ---------------------------------------------------------- */

/* state[idx[i]] = rows[i]: one block per row, whole words; then the deltas. */
static __global__ void
row_update_kernel(struct fdk_row_update_args a)
{
    static_assert(sizeof(struct fdk_row) % 4 == 0, "copied by words");
    int i = (int)blockIdx.x;
    if (i < cu_clip(a.n, a.n_max)) {
        const uint32_t *src = (const uint32_t *)&a.rows[i];
        uint32_t *dst = (uint32_t *)&a.state[a.idx[i]];
        for (unsigned w = threadIdx.x; w < sizeof(struct fdk_row) / 4; w += blockDim.x)
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
    row_update_kernel<<<n, 128, 0, cu_raw(st)>>>(*a);
    return cu_launched(st, "row_update");
}

/* ---- embed, gather ------------------------------------------------------- */

/* The batch travels by value: a->b is the host's. */
template<typename W>
static __global__ void
embed_kernel(struct fdk_embed_args a, struct fdk_batch b, struct cu_claim *claim)
{
    int t = (int)blockIdx.x;
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    int32_t id = b.ids[t];
    if (id < 0)
        id = a.state[b.state[b.row[t]]].last_token;
    int bad = id < 0 || id >= a.V;
    if (bad && threadIdx.x == 0)
        cu_report(claim, CU_BAD_TOKEN, id, t, a.V);
    const W *w = (const W *)a.w + (size_t)(bad ? 0 : id) * (size_t)a.C;
    float *y = a.y + (size_t)t * (size_t)a.C;
    for (int i = (int)threadIdx.x; i < a.C; i += (int)blockDim.x)
        y[i] = cu_widen(w[i]) * a.scale;
}

int
cu_embed(const struct fdk_embed_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->C <= 0 || a->V <= 0 || a->y == NULL || a->w == NULL ||
        a->b == NULL)
        return -EINVAL;
    struct cu_claim *c = cu_stream_of(st)->dev->claim;
    unsigned n = (unsigned)a->T;
    if (a->w_dtype == FDK_F32)
        embed_kernel<float><<<n, ROW_THREADS, 0, cu_raw(st)>>>(*a, *a->b, c);
    else if (a->w_dtype == FDK_F16)
        embed_kernel<__half><<<n, ROW_THREADS, 0, cu_raw(st)>>>(*a, *a->b, c);
    else if (a->w_dtype == FDK_BF16)
        embed_kernel<__nv_bfloat16><<<n, ROW_THREADS, 0, cu_raw(st)>>>(*a, *a->b, c);
    else
        return (unsigned)a->w_dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    return cu_launched(st, "embed");
}

static __global__ void
gather_kernel(struct fdk_gather_args a, struct fdk_batch b)
{
    int o = (int)blockIdx.x;
    if (o >= cu_clip(b.n_out, a.O))
        return;
    const float *x = a.x + (size_t)b.out[o].tok * (size_t)a.C;
    float *y = a.y + (size_t)o * (size_t)a.C;
    for (int i = (int)threadIdx.x; i < a.C; i += (int)blockDim.x)
        y[i] = x[i];
}

int
cu_gather(const struct fdk_gather_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->O <= 0 || a->C <= 0 || a->y == NULL || a->x == NULL || a->b == NULL)
        return -EINVAL;
    gather_kernel<<<(unsigned)a->O, ROW_THREADS, 0, cu_raw(st)>>>(*a, *a->b);
    return cu_launched(st, "gather");
}

/* To 16 bytes, all of them. */
static int
aligned(const void *a, const void *b, const void *c, const void *d)
{
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) & 15) == 0;
}

/* ---- rmsnorm, silu_mul --------------------------------------------------- */

#define NORM_THREADS 512
#define NORM_VECTORS 8           /* of 4 numbers, per thread: rows of up to 16,384 */

/* Sum over the block, the same in every thread. */
static __device__ float
norm_sum(float sum, float *part)
{
    sum = cu_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++)
        sum += part[i];
    return sum;
}

/* The row stays in registers: all of it is asked for at once. */
template<int N>
static __global__ void __launch_bounds__(NORM_THREADS)
rmsnorm_vectors(struct fdk_rmsnorm_args a)
{
    __shared__ float part[NORM_THREADS / 32];
    const int n = a.C / 4, t = (int)blockIdx.x, first = (int)threadIdx.x;
    float4 v[N], w[N], add[N];
    float sum = 0;
    cu_dep_next();
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * NORM_THREADS < n)
            w[k] = __ldg((const float4 *)a.w + first + k * NORM_THREADS);
    cu_dep_wait();
    if (t >= cu_clip(a.n, a.T))
        return;
    float4 *x = (float4 *)a.x + (size_t)t * n, *y = (float4 *)a.y + (size_t)t * n;
    const float4 *plus = a.add != NULL ? (const float4 *)a.add + (size_t)t * n : NULL;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int i = first + k * NORM_THREADS;
        v[k] = i < n ? x[i] : make_float4(0, 0, 0, 0);
        add[k] = i < n && plus != NULL ? plus[i] : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        int i = first + k * NORM_THREADS;
        v[k].x += add[k].x;
        v[k].y += add[k].y;
        v[k].z += add[k].z;
        v[k].w += add[k].w;
        if (i < n && plus != NULL)
            x[i] = v[k];
        sum = fmaf(v[k].x, v[k].x, sum);
        sum = fmaf(v[k].y, v[k].y, sum);
        sum = fmaf(v[k].z, v[k].z, sum);
        sum = fmaf(v[k].w, v[k].w, sum);
    }
    float inv = 1.0f / sqrtf(norm_sum(sum, part) / (float)a.C + a.eps);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * NORM_THREADS < n)
            y[first + k * NORM_THREADS] = make_float4(w[k].x * (v[k].x * inv),
                w[k].y * (v[k].y * inv), w[k].z * (v[k].z * inv), w[k].w * (v[k].w * inv));
}

/* Rows of any length. */
static __global__ void
rmsnorm_kernel(struct fdk_rmsnorm_args a)
{
    __shared__ float part[ROW_THREADS / 32];
    int t = (int)blockIdx.x;
    if (t >= cu_clip(a.n, a.T))
        return;
    float *x = a.x + (size_t)t * (size_t)a.C, *y = a.y + (size_t)t * (size_t)a.C;
    const float *add = a.add != NULL ? a.add + (size_t)t * (size_t)a.C : NULL;
    float sum = 0;
    for (int i = (int)threadIdx.x; i < a.C; i += ROW_THREADS) {
        float v = x[i];
        if (add != NULL) {
            v += add[i];
            x[i] = v;
        }
        sum = fmaf(v, v, sum);
    }
    float inv = 1.0f / sqrtf(norm_sum(sum, part) / (float)a.C + a.eps);
    /* Each thread reads what it wrote itself; y may be x. */
    for (int i = (int)threadIdx.x; i < a.C; i += ROW_THREADS)
        y[i] = a.w[i] * (x[i] * inv);
}

int
cu_rmsnorm(const struct fdk_rmsnorm_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->C <= 0 || a->y == NULL || a->x == NULL || a->w == NULL ||
        a->n == NULL)
        return -EINVAL;
    dim3 grid((unsigned)a->T);
    if (a->C % 4 != 0 || a->C > 4 * NORM_THREADS * NORM_VECTORS ||
        !aligned(a->x, a->y, a->add, a->w))
        rmsnorm_kernel<<<grid, ROW_THREADS, 0, cu_raw(st)>>>(*a);
    else if (a->C <= 4 * NORM_THREADS)
        cu_chain(rmsnorm_vectors<1>, grid, NORM_THREADS, 0, cu_raw(st), *a);
    else if (a->C <= 8 * NORM_THREADS)
        cu_chain(rmsnorm_vectors<2>, grid, NORM_THREADS, 0, cu_raw(st), *a);
    else
        cu_chain(rmsnorm_vectors<NORM_VECTORS>, grid, NORM_THREADS, 0, cu_raw(st), *a);
    return cu_launched(st, "rmsnorm");
}

static __device__ __forceinline__ float
silu_mul(float g, float u)
{
    return g / (1.0f + expf(-g)) * u;
}

/* A vector of 4 a thread. */
static __global__ void
silu_mul_vectors(struct fdk_silu_mul_args a)
{
    int t = (int)blockIdx.x, i = (int)(blockIdx.y * blockDim.x + threadIdx.x), n = a.F / 4;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(a.n, a.T) || i >= n)
        return;
    const float4 *row = (const float4 *)a.gu + (size_t)t * 2 * n;
    float4 g = row[i], u = row[n + i];
    ((float4 *)a.y)[(size_t)t * n + i] = make_float4(silu_mul(g.x, u.x),
        silu_mul(g.y, u.y), silu_mul(g.z, u.z), silu_mul(g.w, u.w));
}

static __global__ void
silu_mul_kernel(struct fdk_silu_mul_args a)
{
    int t = (int)blockIdx.x;
    if (t >= cu_clip(a.n, a.T))
        return;
    const float *g = a.gu + (size_t)t * 2 * (size_t)a.F, *u = g + a.F;
    float *y = a.y + (size_t)t * (size_t)a.F;
    for (int i = (int)(blockIdx.y * blockDim.x + threadIdx.x); i < a.F;
         i += (int)(gridDim.y * blockDim.x))
        y[i] = silu_mul(g[i], u[i]);
}

int
cu_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->F <= 0 || a->y == NULL || a->gu == NULL || a->n == NULL)
        return -EINVAL;
    if (a->F % 4 == 0 && aligned(a->gu, a->y, NULL, NULL)) {
        cu_chain(silu_mul_vectors, dim3((unsigned)a->T, ((unsigned)a->F / 4 + 127) / 128), 128,
            0, cu_raw(st), *a);
        return cu_launched(st, "silu_mul");
    }
    unsigned parts = ((unsigned)a->F + 4 * ROW_THREADS - 1) / (4 * ROW_THREADS);
    dim3 grid((unsigned)a->T, parts < 64 ? parts : 64);
    silu_mul_kernel<<<grid, ROW_THREADS, 0, cu_raw(st)>>>(*a);
    return cu_launched(st, "silu_mul");
}

cudaError_t
cu_rows_load(void)
{
    const void *const k[] = {
        (const void *)row_update_kernel, (const void *)embed_kernel<float>,
        (const void *)embed_kernel<__half>, (const void *)embed_kernel<__nv_bfloat16>,
        (const void *)gather_kernel, (const void *)rmsnorm_kernel,
        (const void *)rmsnorm_vectors<1>, (const void *)rmsnorm_vectors<2>,
        (const void *)rmsnorm_vectors<NORM_VECTORS>, (const void *)silu_mul_vectors,
        (const void *)silu_mul_kernel,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}
