/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the GEMMs with quantized weights: converts stored weights
 * to pairs of bf16. Every stored value (int8, int4, e4m3) is exact in bf16.
 */
#ifndef FDD_KERNELS_CUDA_SM90_GEMM_QUANT_CUH
#define FDD_KERNELS_CUDA_SM90_GEMM_QUANT_CUH

#include "kernels/cuda/sm90/sm90.cuh"

template<int W>
static __host__ __device__ constexpr int
quant_bits(void)
{
    return W == FDK_I4 ? 4 : 8;
}

static __device__ __forceinline__ uint32_t
quant_sub2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

static __device__ __forceinline__ uint32_t
quant_mul2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Argument `ones` of quant_pair(). It is passed as a kernel argument: for a known
 * constant the compiler would emit an additional operation each time. */
template<int W>
static constexpr uint32_t
quant_ones(void)
{
    return W == FDK_I4 ? 0x43084308u : 0x43004300u;
}

/*
 * Pair i of the weights at v: a word of int4 has four, (0, 4) (1, 5) (2, 6) and
 * (3, 7), one of 8-bit weights two, (0, 2) and (1, 3); the first is in the low
 * half. For u below 128, 128 + u is exact in bf16, and its last bits are those of u:
 * 0x4300 | u. Exponent and mantissa of e4m3 at the place of those of bf16 give the value
 * times 2^-120, also for subnormal values; the two NaN become 480 and -480, which
 * quantized weights never hold.
 */
template<int W>
static __device__ __forceinline__ uint32_t
quant_pair(const uint32_t *v, int i, uint32_t ones)
{
    if constexpr (W == FDK_I8) {
        uint32_t w = v[i / 2] >> (8 * (i % 2));
        return quant_sub2((w & 0x007f007fu) | ones, (w & 0x00800080u) | ones);
    } else if constexpr (W == FDK_I4) {
        uint32_t w = v[i / 4] >> (4 * (i % 4));
        return quant_sub2((w & 0x000f000fu) ^ ones, 0x43084308u);
    } else {
        uint32_t w = i % 2 == 0 ? v[i / 2] << 8 : v[i / 2];
        return quant_mul2((w & 0x80008000u) | ((w >> 4) & 0x07f007f0u), 0x7b807b80u);
    }
}

/* Reorders eight elements of x to the pairs that quant_pair() makes of eight weights. */
template<int W>
static __device__ __forceinline__ void
quant_order(uint32_t b[4], uint4 x)
{
    uint32_t second = W == FDK_I4 ? x.z : x.y, third = W == FDK_I4 ? x.y : x.z;
    b[0] = __byte_perm(x.x, second, 0x5410);
    b[1] = __byte_perm(x.x, second, 0x7632);
    b[2] = __byte_perm(third, x.w, 0x5410);
    b[3] = __byte_perm(third, x.w, 0x7632);
}

/* Loads a lane's LB bytes from shared memory. */
template<int LB>
static __device__ __forceinline__ void
quant_take(uint32_t v[LB / 4], uint32_t at)
{
    if constexpr (LB == 16)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
            : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at));
    else if constexpr (LB == 8)
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1])
            : "r"(at));
    else
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v[0]) : "r"(at));
}

static __device__ __forceinline__ void
quant_mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
    uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- copies by each lane, and the epilogue ----------------------------------------- */

template<int LB>
static __device__ __forceinline__ void
quant_copy(uint32_t dst, const void *src)
{
    if constexpr (LB == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
            :: "r"(dst), "l"(src) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
            :: "r"(dst), "l"(src), "n"(LB) : "memory");
}

static __device__ __forceinline__ void
quant_copies_end(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template<int N>
static __device__ __forceinline__ void
quant_copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

/* Stores element `at` of y. */
static __device__ __forceinline__ void
quant_store(const struct fdk_gemm_args &a, size_t at, float v)
{
    if (a.y_dtype == FDK_BF16)
        ((__nv_bfloat16 *)a.y)[at] = __float2bfloat16_rn(v);
    else
        ((float *)a.y)[at] = v;
}

/* Scale and bias of a thread's output of a row group, loaded early because of the latency
 * of memory. */
struct quant_last { float scale, bias; };

static __device__ __forceinline__ struct quant_last
quant_last_of(const struct fdk_gemm_args &a, int row_group, int i)
{
    int n = min(row_group * 16 + i % 16, a.N - 1);
    struct quant_last r = { a.w_group >= a.K ? __ldg(a.w_scale + n) : 1,
        a.bias != NULL ? __ldg(a.bias + n) : 0 };
    return r;
}

static __device__ __forceinline__ void
quant_put(const struct fdk_gemm_args &a, int m, int n, float y, struct quant_last l)
{
    quant_store(a, (size_t)m * (size_t)a.ldy + (size_t)n, y * l.scale + l.bias);
}

/* ---- copies that complete on barriers
 * ----------------------------------------------- */

/* Arrives at the barrier when all cp.async copies of this thread so far are done. */
static __device__ __forceinline__ void
quant_copies_arrive(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
        :: "r"(bar) : "memory");
}

static __device__ __forceinline__ void
quant_box2(uint32_t dst, const CUtensorMap *map, int x, int y, uint32_t bar)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile."
        "mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        :: "r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory");
}

/* A tensor map of rows of bytes or of bf16 numbers; by gemm_quant_wide.cu. */
struct quant_map {
    int bf16;
    uint64_t dim[2], row_bytes;
    uint32_t box[2];
    CUtensorMapSwizzle swizzle;
};
int quant_make_map(CUtensorMap *ret, const void *base, const struct quant_map *m);

/* gemm_quant.cu: converts x from fp32 to bf16 in the scratch. */
void quant_round(const struct fdk_gemm_args *a, cudaStream_t s);
/* Called by cu_gemm_quant_load(). */
cudaError_t cu_quant_wide_load(void);
cudaError_t cu_quant_mid_load(void);
cudaError_t cu_quant_widen_load(void);

#endif
