/*
 * y = x w^T for any number of rows of x, bf16, to the bits of gemm_stream.cu: where a
 * context is deterministic, a row's numbers must not depend on how many there are. K is cut
 * in the same places; what is 64 along K goes through the tensor cores in the same order,
 * 64 rows of w at a time, and a part's sums begin with 0.
 *
 * A tile is 128 rows of w by 128 of x. One thread asks for boxes of both; two warpgroups
 * have 64 rows of w each, and keep the sums of the parts that are done in registers.
 * Neighbouring blocks have the same rows of w, so that these come from memory once.
 */
#include "kernels/cuda/gemm_stream.cuh"

#define SIDE   128               /* rows of w, and of x, of a tile */
#define BOX    (SIDE * 128)      /* bytes: 64 numbers of each */
#define STAGES 6
#define GROUPS 2                 /* warpgroups that multiply; another one asks */
#define SUMS   (SIDE / 2)        /* of a lane: 64 rows of w by SIDE of x */

struct wide_args {
    void *y;
    const float *bias;
    const int32_t *n;
    int32_t first, T, N, K, ldy, y32;
};

struct wide_shared {
    unsigned char w[STAGES][BOX], x[STAGES][BOX];
    uint64_t full[STAGES], empty[STAGES];
};

/* Tiles of a block: at, at + step, ... below n, those of the same rows of w side by
 * side. */
struct wide_work {
    int at, step, n, across;
    int rows;                    /* of x that live */
};

typedef struct cu_ring_at<STAGES> wide_at;

/* One thread. */
static __device__ __forceinline__ void
wide_feed(const CUtensorMap *w, const CUtensorMap *x, const struct wide_args &a,
    const struct wide_work &k, struct wide_shared *s)
{
    wide_at at = { 0, 1 };
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    for (int v = k.at; v < k.n; v += k.step) {
        if (v % k.across * SIDE >= k.rows)
            continue;
        for (int kb = 0; kb < cut(a.K, PARTS); kb++, at.next()) {
            uint64_t *full = &s->full[at.slot];
            cu_bar_wait(cu_smem(&s->empty[at.slot]), at.parity);
            cu_bar_expect(cu_smem(full), 2 * BOX);
            load_box(cu_smem(s->w[at.slot]), w, v / k.across * SIDE, kb, full, policy);
            load_box(cu_smem(s->x[at.slot]), x, v % k.across * SIDE, kb, full, policy);
        }
    }
}

/* d = the sums of one part, for this warpgroup's 64 rows of w. */
static __device__ __forceinline__ void
wide_part(float (&d)[SUMS], struct wide_shared *s, wide_at &at, int n_block)
{
    const int group = (int)threadIdx.x / 128 - 1, lane = (int)threadIdx.x % 32;
    int before = 0;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        d[i] = 0;
    for (int kb = 0; kb < n_block; kb++) {
        cu_bar_wait(cu_smem(&s->full[at.slot]), at.parity);
        const uint32_t w = cu_smem(s->w[at.slot]) + (uint32_t)group * 8192;
        const uint32_t x = cu_smem(s->x[at.slot]);
        cu_wgmma_begin();
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile(WGMMA(128, P16A ", " P16B ", " P16C ", " P16D, 64, 65)
                : D64 : "l"(matrix(w + i * 32)), "l"(matrix(x + i * 32)));
        cu_wgmma_end();
        cu_wgmma_wait<1>();
        if (kb > 0 && lane == 0)
            cu_bar_arrive(cu_smem(&s->empty[before]));
        before = at.slot;
        at.next();
    }
    cu_wgmma_wait<0>();
    cu_wgmma_hold(d);
    if (n_block > 0 && lane == 0)
        cu_bar_arrive(cu_smem(&s->empty[before]));
}

/* Of a lane: rows n and n + 8 of w, rows m0 + 2 (lane % 4) + 8 i and the next of x. */
static __device__ __forceinline__ void
wide_store(const struct wide_args &a, const float (&d)[SUMS], int m0, int n0, int rows)
{
    const int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 128 - 1;
    const int n = n0 + group * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    const float b0 = a.bias != NULL && n < a.N ? a.bias[n] : 0;
    const float b1 = a.bias != NULL && n + 8 < a.N ? a.bias[n + 8] : 0;
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int m = m0 + i / 4 * 8 + lane % 4 * 2 + i % 2, at = n + i % 4 / 2 * 8;
        if (m < rows && at < a.N)
            stream_put(a, m, at, d[i] + (i % 4 < 2 ? b0 : b1));
    }
}

static __device__ __forceinline__ void
wide_multiply(const struct wide_args &a, const struct wide_work &k, struct wide_shared *s)
{
    wide_at at = { 0, 0 };
    for (int v = k.at; v < k.n; v += k.step) {
        float sum[SUMS], half[SUMS], d[SUMS];
        if (v % k.across * SIDE >= k.rows)
            continue;
        wide_part(sum, s, at, cut(a.K, 1));
        wide_part(d, s, at, cut(a.K, 2) - cut(a.K, 1));
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] += d[i];
        wide_part(half, s, at, cut(a.K, 3) - cut(a.K, 2));
        wide_part(d, s, at, cut(a.K, 4) - cut(a.K, 3));
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sum[i] += half[i] + d[i];
        wide_store(a, sum, v % k.across * SIDE, v / k.across * SIDE, k.rows);
    }
}

static __global__ void __launch_bounds__((GROUPS + 1) * 128, 1)
wide_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x,
    const __grid_constant__ struct wide_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    struct wide_shared *s = (struct wide_shared *)shared;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            cu_bar_init(cu_smem(&s->full[i]), 1);
            cu_bar_init(cu_smem(&s->empty[i]), GROUPS * 4);
        }
        cu_bar_ready();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    cu_dep_wait();
    const int across = (a.T - 1) / SIDE + 1;
    const struct wide_work k = { (int)blockIdx.x, (int)gridDim.x,
        ((a.N - 1) / SIDE + 1) * across, across, max(0, min(a.T, *a.n - a.first)) };
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
            wide_feed(&w, &x, a, k, s);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wide_multiply(a, k, s);
    }
    cu_dep_next();
#endif
}

int
cu_gemm_stream_wide(const struct fdk_gemm_args *g, int n_proc, fdk_stream_t st)
{
    const struct wide_args a = { g->y, g->bias, g->n, g->first, g->T, g->N, g->K, g->ldy,
        g->y_dtype == FDK_F32 };
    const int n_tile = ((g->N - 1) / SIDE + 1) * ((g->T - 1) / SIDE + 1);
    CUtensorMap w, x;
    int rc = stream_maps(&w, &x, g, SIDE, SIDE, 1);
    if (rc != 0)
        return rc;
    cu_chain(wide_kernel, cu_groups(n_tile, 1, n_proc), (GROUPS + 1) * 128,
        sizeof(struct wide_shared), cu_raw(st), w, x, a);
    return cu_launched(st, "gemm");
}

cudaError_t
cu_gemm_stream_wide_load(void)
{
    return cudaFuncSetAttribute((const void *)wide_kernel,
        cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(struct wide_shared));
}
