/*
 * y = x w^T for few rows: weights stream through shared memory into the
 * tensor cores once, at the memory's speed, and whatever else happens hides
 * behind that.
 *
 * One block per processor takes tiles of 16 or 32 rows of w in turn. A warp
 * holds 16 rows of w (RT times) as the A operand of mma.m16n8k16 and 8 rows of
 * x (NG times) as B. The order of k within a product is free as long as both
 * sides agree: lane (g, t) takes the E elements of LB bytes that follow each
 * other at k0 + E t of row g (and g + 8) of w, and x was put into that order
 * when it was rounded (order_x). A k block of 4 E elements is one warp's,
 * blocks go to the warps in turn, and the warps' sums are added in their order:
 * a row's result depends on its own numbers and on the weights' type alone,
 * never on how many rows there are.
 *
 * Each lane copies what it will use itself, DEPTH k blocks ahead and across the
 * borders of tiles: no thread waits for another one but at a tile's end. As the
 * weights do not depend on what ran before, the first copies are under way
 * before the kernel ahead has ended (cu_dep_wait).
 *
 * x is rounded to the weights' type, for quantized weights to bf16, in which
 * the integers are exact; a group's sum is multiplied by its scale.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#define WARPS   16
#define THREADS (32 * WARPS)
#define SHARED_MOST (224 * 1024)
#define SHARED_FULL (200 * 1024) /* enough on its way, with room for other kernels */

template<int W>
struct wt {                      /* bits of a stored weight */
    static const int bits = W == FDK_I4 ? 4 : W == FDK_I8 ? 8 : 16;
    static const int quantized = W == FDK_I4 || W == FDK_I8;
};

/* Sizes of a kernel of W weights, LB bytes a lane, RT x 16 rows of w, NG x 8
 * rows of x. */
template<int W, int LB, int RT, int NG>
struct shape {
    static const int E = LB * 8 / wt<W>::bits;
    static const int KB = 4 * E;                       /* elements of a k block */
    static const int XU = E / 8;                       /* 16 bytes of a row of x */
    static const int w_bytes = 2 * RT * LB * 32;       /* a warp's k block */
    static const int x_bytes = NG * XU * 16 * 32;
    static const int stage = WARPS * (w_bytes + x_bytes);
    static const int red = WARPS * 16 * RT * (8 * NG + 1); /* floats */
    static const int fit = (SHARED_FULL - red * 4) / stage;
    static const int most = (SHARED_MOST - red * 4) / stage;
    static const int depth = fit > 8 ? 8 : fit >= 3 ? fit : most > 3 ? 3 : most;
    static const int shared = red * 4 + depth * stage;
};

/* ---- copies ------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t
smem(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

template<int LB>
static __device__ __forceinline__ void
copy(void *dst, const void *src)
{
    if constexpr (LB == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
            :: "r"(smem(dst)), "l"(src) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
            :: "r"(smem(dst)), "l"(src), "n"(LB) : "memory");
}

static __device__ __forceinline__ void
copies_end(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template<int N>
static __device__ __forceinline__ void
copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

/* ---- weights as 16-bit numbers ------------------------------------------------------ */

template<int W>
static __device__ __forceinline__ void
mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    if constexpr (W == FDK_F16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t
sub2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Pair i of a lane's bytes. Which elements it holds is element_of(). 128 + u is
 * exact in bf16 for u below 128, and its last bits are u's: 0x4300 | u. */
template<int W>
static __device__ __forceinline__ uint32_t
pair_of(const uint32_t *v, int i)
{
    if constexpr (W == FDK_I8) {
        uint32_t w = v[i / 2] >> (8 * (i % 2));
        return sub2((w & 0x007f007fu) | 0x43004300u, (w & 0x00800080u) | 0x43004300u);
    } else if constexpr (W == FDK_I4) {
        uint32_t w = v[i / 4] >> (4 * (i % 4));
        return sub2((w & 0x000f000fu) ^ 0x43084308u, 0x43084308u);
    } else {
        return v[i];
    }
}

/* Element (of the E of a lane) that is half h of pair i. */
template<int W>
static __device__ __forceinline__ int
element_of(int i, int h)
{
    return W == FDK_I8 ? i / 2 * 4 + i % 2 + 2 * h :
        W == FDK_I4 ? i / 4 * 8 + i % 4 + 4 * h : 2 * i + h;
}

/* ---- x ------------------------------------------------------------------------------ */

/* Half precision ends at 65504: finite numbers stay finite. */
template<int W>
static __device__ __forceinline__ uint16_t
narrow(float x)
{
    if constexpr (W == FDK_F16) {
        __half h = __float2half_rn(isfinite(x) ? fminf(fmaxf(x, -65504.0f), 65504.0f) : x);
        return *reinterpret_cast<uint16_t *>(&h);
    } else {
        __nv_bfloat16 b = __float2bfloat16_rn(x);
        return *reinterpret_cast<uint16_t *>(&b);
    }
}

/* Rows of x as 16-bit numbers in the order in which lanes want them: of each k
 * block, for each pair of mma and each t, the 8 elements of lane t. Rows that
 * are not live become zeros. A thread makes 8 of them. */
template<int W, int LB>
static __global__ void __launch_bounds__(256)
order_x(struct fdk_gemm_args a)
{
    using S = shape<W, LB, 1, 1>;
    size_t i = blockIdx.x * (size_t)256 + threadIdx.x, n = (size_t)a.T * a.K / 8;
    uint16_t v[8];
    cu_dep_next();
    cu_dep_wait();
    if (i >= n)
        return;
    int m = (int)(i / ((size_t)a.K / 8)), p = (int)(i % ((size_t)a.K / 8));
    int k0 = p * 8 / S::KB * S::KB, jj = p * 8 % S::KB / 32, t = p % 4;
    const float *x = a.x + (size_t)(a.first + m) * (size_t)a.K + k0 + t * S::E;
    bool live = m < *a.n - a.first;
    for (int e = 0; e < 8; e++)
        v[e] = live ? narrow<W>(x[element_of<W>(4 * jj + e / 2, e % 2)]) : 0;
    ((uint4 *)a.scratch)[i] = *reinterpret_cast<const uint4 *>(v);
}

/* ---- the kernel ------------------------------------------------------------------------ */

struct tile { int n0, m0; };

template<int RT, int NG>
static __device__ __forceinline__ struct tile
tile_of(const struct fdk_gemm_args &a, int i)
{
    int chunks = (a.T + 8 * NG - 1) / (8 * NG);
    struct tile r = { i / chunks * 16 * RT, i % chunks * 8 * NG };
    return r;
}

/* One k block of a warp: rows of w and x in shared memory to sums. */
template<int W, int LB, int RT, int NG>
static __device__ __forceinline__ void
block_products(const unsigned char *ws, const unsigned char *xs, const float *const scale[RT][2],
    int group, float acc[RT][NG][4])
{
    using S = shape<W, LB, RT, NG>;
    const int lane = (int)threadIdx.x % 32;
    uint32_t w[RT][2][LB / 4];
    float c[RT][NG][4];
#pragma unroll
    for (int i = 0; i < 2 * RT; i++) {
        const unsigned char *at = ws + (i * 32 + lane) * LB;
        if constexpr (LB == 16)
            *reinterpret_cast<uint4 *>(w[i / 2][i % 2]) = *(const uint4 *)at;
        else if constexpr (LB == 8)
            *reinterpret_cast<uint2 *>(w[i / 2][i % 2]) = *(const uint2 *)at;
        else
            w[i / 2][i % 2][0] = *(const uint32_t *)at;
    }
#pragma unroll
    for (int i = 0; i < RT * NG * 4; i++)
        (&c[0][0][0])[i] = group < 0 ? (&acc[0][0][0])[i] : 0;
#pragma unroll
    for (int u = 0; u < S::XU; u++)
#pragma unroll
        for (int j = 0; j < NG; j++) {
            uint4 b = *(const uint4 *)(xs + ((j * S::XU + u) * 32 + lane) * 16);
#pragma unroll
            for (int i = 0; i < RT; i++) {
                const uint32_t *v0 = w[i][0], *v1 = w[i][1];
                mma<W>(c[i][j], pair_of<W>(v0, 4 * u), pair_of<W>(v1, 4 * u),
                    pair_of<W>(v0, 4 * u + 1), pair_of<W>(v1, 4 * u + 1), b.x, b.y);
                mma<W>(c[i][j], pair_of<W>(v0, 4 * u + 2), pair_of<W>(v1, 4 * u + 2),
                    pair_of<W>(v0, 4 * u + 3), pair_of<W>(v1, 4 * u + 3), b.z, b.w);
            }
        }
#pragma unroll
    for (int i = 0; i < RT; i++) {
        float s0 = group < 0 ? 1 : __ldg(scale[i][0] + group);
        float s1 = group < 0 ? 1 : __ldg(scale[i][1] + group);
#pragma unroll
        for (int j = 0; j < NG; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                acc[i][j][e] = group < 0 ? c[i][j][e] :
                    fmaf(e < 2 ? s0 : s1, c[i][j][e], acc[i][j][e]);
    }
}

/* The sums of all warps, in their order, to y. */
template<int W, int LB, int RT, int NG>
static __device__ __forceinline__ void
finish_tile(const struct fdk_gemm_args &a, struct tile at, const float acc[RT][NG][4],
    float *red, int rows, int whole)
{
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4;
    const int t = (int)threadIdx.x % 4, stride = 8 * NG + 1;
    __syncthreads();                  /* the last tile's sums have been read */
#pragma unroll
    for (int i = 0; i < RT; i++)
#pragma unroll
        for (int j = 0; j < NG; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                red[(warp * 16 * RT + 16 * i + 8 * (e / 2) + g) * stride + 8 * j + 2 * t +
                    e % 2] = acc[i][j][e];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 8 * NG * 16 * RT; i += THREADS) {
        int m = i / (16 * RT), n = i % (16 * RT);
        if (at.m0 + m >= rows || at.n0 + n >= a.N)
            continue;
        float y = red[n * stride + m];
#pragma unroll
        for (int k = 1; k < WARPS; k++)
            y += red[(k * 16 * RT + n) * stride + m];
        if (whole)
            y *= a.w_scale[at.n0 + n];
        if (a.bias != NULL)
            y += a.bias[at.n0 + n];
        a.y[(size_t)(at.m0 + m) * (size_t)a.ldy + (size_t)(at.n0 + n)] = y;
    }
}

template<int W, int LB, int RT, int NG>
static __global__ void __launch_bounds__(THREADS)
stream_kernel(struct fdk_gemm_args a, int n_tile)
{
    using S = shape<W, LB, RT, NG>;
    extern __shared__ __align__(128) unsigned char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4;
    const int t = lane % 4, groups = wt<W>::quantized ? (a.K - 1) / a.w_group + 1 : 1;
    const int per = (a.K / S::KB - warp + WARPS - 1) / WARPS;   /* k blocks of a tile */
    const int total = per * ((n_tile - 1 - (int)blockIdx.x) / (int)gridDim.x + 1);
    const size_t row_bytes = (size_t)a.K * wt<W>::bits / 8;
    unsigned char *ring = shared + warp * S::depth * (S::w_bytes + S::x_bytes);
    float *red = (float *)(shared + S::depth * S::stage);

    /* what is copied next */
    int f_tile = (int)blockIdx.x, f_kb = warp, f_stage = 0;
    const unsigned char *f_w[2 * RT], *f_x[NG];
    auto aim = [&]() {
        struct tile at = tile_of<RT, NG>(a, f_tile);
#pragma unroll
        for (int i = 0; i < 2 * RT; i++)
            f_w[i] = (const unsigned char *)a.w + (size_t)min(at.n0 + 8 * i + g, a.N - 1) *
                row_bytes + (size_t)(warp * 4 + t) * LB;
#pragma unroll
        for (int j = 0; j < NG; j++) {
            int m = at.m0 + 8 * j + g;
            f_x[j] = m < a.T ? (const unsigned char *)a.scratch + (size_t)m * (size_t)a.K * 2 +
                (size_t)(warp * S::KB * 2 + t * 16) : NULL;
        }
    };
    auto copy_w = [&](int stage) {
        unsigned char *to = ring + stage * (S::w_bytes + S::x_bytes);
#pragma unroll
        for (int i = 0; i < 2 * RT; i++)
            copy<LB>(to + (i * 32 + lane) * LB, f_w[i]);
    };
    auto copy_x = [&](int stage) {
        unsigned char *to = ring + stage * (S::w_bytes + S::x_bytes) + S::w_bytes;
#pragma unroll
        for (int j = 0; j < NG; j++)
#pragma unroll
            for (int u = 0; u < S::XU && f_x[j] != NULL; u++)
                copy<16>(to + ((j * S::XU + u) * 32 + lane) * 16, f_x[j] + u * 64);
    };
    auto step = [&]() {
        f_kb += WARPS;
        if (f_kb * S::KB < a.K) {
#pragma unroll
            for (int i = 0; i < 2 * RT; i++)
                f_w[i] += WARPS * 4 * LB;
#pragma unroll
            for (int j = 0; j < NG; j++)
                f_x[j] = f_x[j] != NULL ? f_x[j] + WARPS * S::KB * 2 : NULL;
            return;
        }
        f_kb = warp;
        f_tile += (int)gridDim.x;
        aim();
    };

    cu_dep_next();
    if (per > 0)
        aim();
    for (int i = 0; i < S::depth - 1 && i < total; i++) {
        copy_w(i);
        step();
    }
    cu_dep_wait();
    const int rows = min(a.T, *a.n - a.first);
    f_tile = (int)blockIdx.x;
    f_kb = warp;
    if (per > 0)
        aim();
    for (int i = 0; i < S::depth - 1; i++) {
        if (i < total) {
            copy_x(i);
            step();
        }
        copies_end();
    }
    f_stage = S::depth - 1;
    int ahead = S::depth - 1, stage = 0;
    for (int i = (int)blockIdx.x; i < n_tile; i += (int)gridDim.x) {
        struct tile at = tile_of<RT, NG>(a, i);
        const float *scale[RT][2];
        float acc[RT][NG][4] = {};
#pragma unroll
        for (int r = 0; r < 2 * RT; r++)
            scale[r / 2][r % 2] = wt<W>::quantized && groups > 1 ? a.w_scale +
                (size_t)min(at.n0 + 8 * r + g, a.N - 1) * groups : NULL;
        for (int k = 0; k < per; k++) {
            if (ahead < total) {
                copy_w(f_stage);
                copy_x(f_stage);
                step();
            }
            copies_end();
            ahead++;
            f_stage = f_stage + 1 == S::depth ? 0 : f_stage + 1;
            copies_wait<S::depth - 1>();
            const unsigned char *from = ring + stage * (S::w_bytes + S::x_bytes);
            block_products<W, LB, RT, NG>(from, from + S::w_bytes, scale,
                groups > 1 ? (warp + k * WARPS) * S::KB / a.w_group : -1, acc);
            stage = stage + 1 == S::depth ? 0 : stage + 1;
        }
        finish_tile<W, LB, RT, NG>(a, at, acc, red, rows, wt<W>::quantized && groups == 1);
    }
}

/* ---- launching --------------------------------------------------------------- */

template<int W, int LB, int RT, int NG>
static cudaError_t
prepare(void)
{
    cudaError_t e = cudaFuncSetAttribute((const void *)stream_kernel<W, LB, RT, NG>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, shape<W, LB, RT, NG>::shared);
    struct cudaFuncAttributes attr;
    return e != cudaSuccess ? e : cudaFuncGetAttributes(&attr,
        (const void *)order_x<W, LB>);
}

template<int W, int LB, int RT, int NG>
static void
launch(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    int n_tile = ((a->N - 1) / (16 * RT) + 1) * ((a->T - 1) / (8 * NG) + 1);
    size_t eighths = (size_t)a->T * (size_t)a->K / 8;
    cu_chain(order_x<W, LB>, dim3((unsigned)((eighths + 255) / 256)), 256, 0, s, *a);
    cu_chain(stream_kernel<W, LB, RT, NG>, dim3((unsigned)(n_tile < n_proc ? n_tile :
        n_proc)), THREADS, shape<W, LB, RT, NG>::shared, s, *a, n_tile);
}

/* How much of the last round of tiles is idle, as a share of all rounds. */
static double
waste(int n_tile, int n_proc)
{
    int rounds = (n_tile + n_proc - 1) / n_proc;
    return 1 - (double)n_tile / ((double)rounds * n_proc);
}

/* Groups of 8 rows of x beside 32 rows of w: 4 where three blocks of k fit then. */
template<int W, int LB>
static constexpr int
many_rows(void)
{
    return shape<W, LB, 2, 4>::most >= 3 ? 4 : 2;
}

template<int W, int LB>
static void
launch_rows(const struct fdk_gemm_args *a, int n_proc, cudaStream_t s)
{
    int wide = waste((a->N - 1) / 32 + 1, n_proc) <=
        waste((a->N - 1) / 16 + 1, n_proc) + 0.04;
    if (a->T <= 8 && wide)
        launch<W, LB, 2, 1>(a, n_proc, s);
    else if (a->T <= 8)
        launch<W, LB, 1, 1>(a, n_proc, s);
    else if (a->T <= 16)
        launch<W, LB, 2, 2>(a, n_proc, s);
    else
        launch<W, LB, 2, many_rows<W, LB>()>(a, n_proc, s);
}

template<int W, int LB>
static cudaError_t
prepare_rows(void)
{
    cudaError_t e = prepare<W, LB, 2, 1>();
    if (e == cudaSuccess)
        e = prepare<W, LB, 1, 1>();
    if (e == cudaSuccess)
        e = prepare<W, LB, 2, 2>();
    return e != cudaSuccess ? e : prepare<W, LB, 2, many_rows<W, LB>()>();
}

/* Bytes a lane takes at a time: k blocks must divide K, and of quantized
 * weights the groups. 0: none does. */
static int
lane_bytes(const struct fdk_gemm_args *a)
{
    int bits = a->w_dtype == FDK_I4 ? 4 : a->w_dtype == FDK_I8 ? 8 : 16;
    const int bytes[2] = { 16, bits == 16 ? 0 : bits };
    for (int i = 0; i < 2 && bytes[i] > 0; i++) {
        int kb = 4 * bytes[i] * 8 / bits;
        if (a->K % kb == 0 && (bits == 16 || a->w_group >= a->K || a->w_group % kb == 0))
            return bytes[i];
    }
    return 0;
}

/* Shapes and addresses the kernel takes. Rows of w are whole k blocks, so that each
 * lane's bytes are aligned to their number. */
int
cu_gemm_stream_fits(const struct fdk_gemm_args *a)
{
    return a->w_dtype != FDK_F32 && lane_bytes(a) > 0 && (uintptr_t)a->w % 16 == 0;
}

size_t
cu_gemm_stream_scratch(const struct fdk_gemm_args *a)
{
    return (size_t)a->T * (size_t)a->K * 2;
}

int
cu_gemm_stream(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st)
{
    cudaStream_t s = cu_raw(st);
    int lb = lane_bytes(a);
    if (a->w_dtype == FDK_BF16)
        launch_rows<FDK_BF16, 16>(a, n_proc, s);
    else if (a->w_dtype == FDK_F16)
        launch_rows<FDK_F16, 16>(a, n_proc, s);
    else if (a->w_dtype == FDK_I8 && lb == 16)
        launch_rows<FDK_I8, 16>(a, n_proc, s);
    else if (a->w_dtype == FDK_I8)
        launch_rows<FDK_I8, 8>(a, n_proc, s);
    else if (lb == 16)
        launch_rows<FDK_I4, 16>(a, n_proc, s);
    else
        launch_rows<FDK_I4, 4>(a, n_proc, s);
    return cu_launched(st, "gemm");
}

cudaError_t
cu_gemm_stream_load(void)
{
    cudaError_t e = prepare_rows<FDK_BF16, 16>();
    if (e == cudaSuccess)
        e = prepare_rows<FDK_F16, 16>();
    if (e == cudaSuccess)
        e = prepare_rows<FDK_I8, 16>();
    if (e == cudaSuccess)
        e = prepare_rows<FDK_I8, 8>();
    if (e == cudaSuccess)
        e = prepare_rows<FDK_I4, 16>();
    return e != cudaSuccess ? e : prepare_rows<FDK_I4, 4>();
}
