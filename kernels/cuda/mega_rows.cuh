/*
 * Operations on rows, for mega_kernel.cu. What other blocks have written is there after
 * the barrier, whose acquire empties this processor's first cache.
 */
#ifndef FDD_KERNELS_CUDA_MEGA_ROWS_CUH
#define FDD_KERNELS_CUDA_MEGA_ROWS_CUH

#include "kernels/cuda/mega_gemm.cuh"
#include "kernels/cuda/qkv_lanes.cuh"

/* The same in every thread. part: a float for each warp. */
static __device__ __forceinline__ float
block_sum(float sum, float *part)
{
    sum = cu_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    mega_sync();
    sum = 0;
#pragma unroll
    for (int i = 0; i < MEGA_WARPS; i++)
        sum += part[i];
    return sum;
}

/* Vector k of this thread, x += add, and the sum of its squares. */
static __device__ __forceinline__ float
norm_add(const struct mega_norm &a, size_t row, size_t i, float v[8],
    const struct cu_raw8<__nv_bfloat16> &add)
{
    float plus[8], sum = 0;
    cu_widen8(add, plus);
#pragma unroll
    for (int e = 0; e < 8; e++) {
        v[e] += plus[e];
        sum = fmaf(v[e], v[e], sum);
    }
    if (a.add != NULL)
        cu_store8(a.x + row, i, v);
    return sum;
}

/* A row a block, in registers; rows of up to N * 8 * MEGA_THREADS numbers. */
template<int N>
static __device__ __forceinline__ void
norm_row(const struct mega_norm &a, float *part)
{
    const size_t row = (size_t)blockIdx.x * (size_t)a.C, n = (size_t)a.C / 8;
    struct cu_raw8<float> raw[N], w[N];
    struct cu_raw8<__nv_bfloat16> add[N];
    float v[N][8], sum = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        size_t i = threadIdx.x + (size_t)k * MEGA_THREADS;
        raw[k] = i < n ? cu_load8(a.x + row, i) : cu_zero8<float>();
        add[k] = i < n && a.add != NULL ? cu_load8((const __nv_bfloat16 *)a.add + row, i) :
            cu_zero8<__nv_bfloat16>();
        w[k] = i < n ? cu_load8(a.w, i) : cu_zero8<float>();
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        size_t i = threadIdx.x + (size_t)k * MEGA_THREADS;
        cu_widen8(raw[k], v[k]);
        if (i < n)
            sum += norm_add(a, row, i, v[k], add[k]);
    }
    float inv = rsqrtf(block_sum(sum, part) / (float)a.C + a.eps), s[8];
#pragma unroll
    for (int k = 0; k < N; k++) {
        size_t i = threadIdx.x + (size_t)k * MEGA_THREADS;
        if (i >= n)
            continue;
        cu_widen8(w[k], s);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[k][e] = s[e] * (v[k][e] * inv);
        cu_store8((__nv_bfloat16 *)a.y + row, i, v[k]);
    }
}

static __device__ __forceinline__ void
mega_run_norm(const struct mega_norm &a, float *part, int rows)
{
    if ((int)blockIdx.x >= rows)
        return;
    if (a.C <= 8 * MEGA_THREADS)
        norm_row<1>(a, part);
    else
        norm_row<2>(a, part);
}

/* A warp takes the heads of its groups of lanes, for one token. */
static __device__ void
mega_run_qkv(const struct mega_list &l, const struct mega_qkv &q, int rows)
{
    const int n_lane = q.D / 8, groups = 32 / n_lane, all = q.H + 2 * q.K;
    const int units = (all + groups - 1) / groups, lane = (int)threadIdx.x % 32;
    const struct lanes g = { n_lane, lane % n_lane, q.D / 8, q.rot / 16 };
    struct fdk_qkv_args a = {};
    a.q_norm = q.q_norm;
    a.k_norm = q.k_norm;
    a.cs = q.cs;
    a.kv = l.kv;
    a.H = q.H;
    a.K = q.K;
    a.D = q.D;
    a.rot = q.rot;
    a.layer = q.layer;
    a.eps = q.eps;
    int step = (int)gridDim.x * MEGA_WARPS;
    for (int i = (int)(blockIdx.x + gridDim.x * (threadIdx.x / 32)); i < rows * units;
         i += step) {
        int t = i / units, h = i % units * groups + lane / n_lane;
        __nv_bfloat16 *row = (__nv_bfloat16 *)q.qkv + (size_t)t * (size_t)all * (size_t)q.D;
        struct cu_raw8<__nv_bfloat16> raw = cu_zero8<__nv_bfloat16>();
        struct cu_raw8<float> cs[2];
        if (h < all)
            raw = cu_load8(row + (size_t)h * (size_t)q.D, (size_t)g.at);
        lanes_cs(g, a, t, cs);
        lanes_head<__nv_bfloat16, __nv_bfloat16>(g, a, row, h, l.b.slot_map[t], raw, cs,
            h >= all);
    }
}

static __device__ void
mega_run_silu(const struct mega_silu &a, int rows)
{
    const int n = a.F / 8, step = (int)gridDim.x * MEGA_THREADS;
    for (int i = (int)(threadIdx.x / 32 * gridDim.x + blockIdx.x) * 32 +
         (int)threadIdx.x % 32; i < rows * n; i += step) {
        int t = i / n, k = i % n;
        const __nv_bfloat16 *row = (const __nv_bfloat16 *)a.gu + (size_t)t * 2 *
            (size_t)a.F;
        float g[8], u[8];
        cu_widen8(cu_load8(row, (size_t)k), g);
        cu_widen8(cu_load8(row, (size_t)(n + k)), u);
#pragma unroll
        for (int e = 0; e < 8; e++)
            g[e] = __fdividef(g[e], 1.0f + __expf(-g[e])) * u[e];
        cu_store8((__nv_bfloat16 *)a.y + (size_t)t * (size_t)a.F, (size_t)k, g);
    }
}

static __device__ void
mega_run_gather(const struct mega_list &l, const struct mega_gather &a, int rows)
{
    const int n = a.C / 8;
    if ((int)blockIdx.x >= rows)
        return;
    const uint4 *x = (const uint4 *)a.x + (size_t)l.b.out[blockIdx.x].tok * (size_t)n;
    uint4 *y = (uint4 *)a.y + (size_t)blockIdx.x * (size_t)n;
    for (int i = (int)threadIdx.x; i < n; i += MEGA_THREADS)
        y[i] = x[i];
}

#endif
