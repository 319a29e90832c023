/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The main loop of gemm_quant_mid.cu: a group of four warps computes the sums of a split
 * of K for a small batch from a ring of stages. S has the sizes of a stage.
 */
#ifndef FDD_KERNELS_CUDA_SM90_GEMM_QUANT_MID_CUH
#define FDD_KERNELS_CUDA_SM90_GEMM_QUANT_MID_CUH

#include "kernels/cuda/sm90/gemm_quant_wgmma.cuh"

/* Addresses of a ring, its scales and its barriers in shared memory. The first barrier of
 * a stage completes when it is full, the second one when it is empty. */
struct places { uint32_t ring, scales, bars; };

/* A warp loads the scales of block k of K, for the rows from n0 on. a.units: number of
 * runs of BK / S::units elements that share a scale; 0: all. */
template<class S, class A>
static __device__ __forceinline__ void
ask_scales(const A &a, const struct places &p, int n0, int k, int slot)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < S::units; u++) {
        int unit = min(k * S::units + u, (a.g.K - 1) / (BK / S::units));
        int at = a.units > 0 ? unit / a.units : 0;
#pragma unroll
        for (int i = 0; i < S::rows / 32; i++) {
            int row = lane + 32 * i;
            quant_copy<4>(p.scales + (uint32_t)(slot * S::scale + (u * S::rows + row) * 4),
                a.g.w_scale + (size_t)min(n0 + row, a.g.N - 1) * (size_t)a.groups + at);
        }
    }
    quant_copies_arrive(p.bars + (uint32_t)slot * 16);
}

/* State of a consumer: row is its first row of w. */
struct reader {
    struct places p;
    int row;
    struct ring r;
};

static __device__ __forceinline__ void
stage_wait(const struct reader &rd)
{
    cu_bar_wait(rd.p.bars + (uint32_t)rd.r.slot * 16, rd.r.parity);
}

/* Releases a stage that the group has read. */
static __device__ __forceinline__ void
stage_done(const struct reader &rd, int slot)
{
    if (threadIdx.x % 128 == 0)
        cu_bar_arrive(rd.p.bars + (uint32_t)slot * 16 + 8);
}

static __device__ __forceinline__ float
shared_float(uint32_t at)
{
    float r;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(r) : "r"(at));
    return r;
}

template<class S>
static __device__ __forceinline__ void
take_scales(float s[2], const struct reader &rd, int unit)
{
    uint32_t at = rd.p.scales + (uint32_t)(rd.r.slot * S::scale + (unit * S::rows +
        rd.row) * 4);
    s[0] = shared_float(at);
    s[1] = shared_float(at + 32);
}

/* Products of a stage in flight. */
template<int N>
struct under_way {
    uint32_t op[8][4];
    float d[N], s[2];
    int slot;
};

template<class S, int W, int N>
static __device__ __forceinline__ void
begin(struct under_way<N> &u, struct reader &rd, uint32_t ones)
{
    const uint32_t x = rd.p.ring + (uint32_t)(rd.r.slot * S::stage);
    uint32_t v[4][2][2];
    stage_wait(rd);
    u.slot = rd.r.slot;
    take_scales<S>(u.s, rd, 0);
#pragma unroll
    for (int j = 0; j < 4; j++)
        take_w<W>(v[j], x + S::x_bytes, rd.row, j);
#pragma unroll
    for (int j = 0; j < 4; j++)
        widen<W>(&u.op[2 * j], v[j], ones);
    cu_wgmma_hold(u.d);
    cu_wgmma_begin();
#pragma unroll
    for (int i = 0; i < 8; i++)
        multiply(u.d, u.op[i], operand(x, (uint32_t)(i / 4 * (S::x_bytes / 2) +
            i % 4 * 32)), i > 0);
    cu_wgmma_end();
    onward<S::depth>(&rd.r);
}

template<int LATER, int N>
static __device__ __forceinline__ void
end(struct under_way<N> &u, const struct reader &rd, float (&total)[N])
{
    cu_wgmma_wait<LATER>();
    cu_wgmma_hold(u.d);
    stage_done(rd, u.slot);
    scale_sums(total, u.d, u.s[0], u.s[1]);
}

/* Sums n stages, at least one, with UNIT = BK. The products of one stage depend on each
 * other and do not fill the tensor cores, so two stages are in flight. */
template<class S, int W, int N>
static __device__ __forceinline__ void
sum_turns(struct reader &rd, int n, uint32_t ones, float (&total)[N])
{
    struct under_way<N> a, b;
    int k = 1;
    begin<S, W>(a, rd, ones);
    for (; k + 1 < n; k += 2) {
        begin<S, W>(b, rd, ones);
        end<1>(a, rd, total);
        begin<S, W>(a, rd, ones);
        end<1>(b, rd, total);
    }
    if (k < n) {
        begin<S, W>(b, rd, ones);
        end<1>(a, rd, total);
        end<0>(b, rd, total);
    } else {
        end<0>(a, rd, total);
    }
}

/* Sums n stages with UNIT = 32: the four sums of a stage are in flight at a time. */
template<class S, int W, int N>
static __device__ __forceinline__ void
sum_units(struct reader &rd, int n, uint32_t ones, float (&total)[N])
{
    for (; n > 0; n--) {
        const uint32_t x = rd.p.ring + (uint32_t)(rd.r.slot * S::stage);
        uint32_t v[2][2], op[4][2][4];
        float d[4][N], s[4][2];
        stage_wait(rd);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            take_scales<S>(s[c], rd, c);
            take_w<W>(v, x + S::x_bytes, rd.row, c);
            widen<W>(op[c], v, ones);
            cu_wgmma_hold(d[c]);
        }
        cu_wgmma_begin();
#pragma unroll
        for (int i = 0; i < 8; i++)
            multiply(d[i % 4], op[i % 4][i / 4], operand(x, (uint32_t)(i % 4 / 2 *
                (S::x_bytes / 2) + i % 2 * 64 + i / 4 * 32)), i / 4);
        cu_wgmma_end();
        cu_wgmma_wait<0>();
#pragma unroll
        for (int c = 0; c < 4; c++) {
            cu_wgmma_hold(d[c]);
            scale_sums(total, d[c], s[c][0], s[c][1]);
        }
        stage_done(rd, rd.r.slot);
        onward<S::depth>(&rd.r);
    }
}

#endif
