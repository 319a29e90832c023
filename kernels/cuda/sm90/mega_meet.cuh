/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces over the ranks of a group, for mega_kernel.cu. Each rank sends its results
 * of the GEMM o or down to all ranks in packets like those of mega_words.cuh, and every
 * block of every rank sums all of them: ((rank 0 + rank 1) + rank 2) + .., rounded once
 * to bf16, as in kernels/collective.h. So a rank waits only for the other's GEMM and a
 * store over the link, not for a launch.
 *
 * Epochs are counted per group, only by launches of the megakernel. A packet is
 * overwritten two layers later. The rank that overwrites it has received the sums of the
 * layer in between, which a rank sends only after all of its blocks have read this
 * layer's (mega_words.cuh).
 *
 * A rank that is late or has failed ends the wait as in other collectives: the error is
 * reported through the device's cu_claim, and the blocks run to their end with whatever
 * data they have.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_MEET_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_MEET_CUH

#include "kernels/cuda/collective_wait.cuh"
#include "kernels/cuda/sm90/attention_split_mma.cuh"
#include "kernels/cuda/sm90/mega_words.cuh"

/* State of a launch, in shared memory. */
struct mega_meet {
    const struct coll_space *space;
    struct cu_claim *claim;
    struct mega_room *room[MEGA_RANKS]; /* of each rank, as mapped on this one */
    int n, rank;                        /* n 0: only one rank */
};

/* Location of the packets of a GEMM's results. */
struct meet_at {
    const struct mega_meet *meet; /* NULL: nothing is summed */
    uint32_t epoch;
    int sum;                      /* 0: results of o, 1: of down */
};

static __device__ __forceinline__ uint64_t *
meet_packets(const struct meet_at &m, int at_rank, int of_rank)
{
    return m.meet->room[at_rank]->packet[m.epoch & 1][m.sum][of_rank];
}

/* Sends results 2 i and 2 i + 1 to all ranks, this one included. */
static __device__ __forceinline__ void
meet_put(const struct meet_at &m, int i, uint32_t two)
{
    const uint64_t v = (uint64_t)m.epoch << 32 | two;
    const int rank = m.meet->rank, n = m.meet->n;
#pragma unroll 1
    for (int k = 1; k <= n; k++) {
        const int q = rank + k < n ? rank + k : rank + k - n;
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;"
            :: "l"(meet_packets(m, q, rank) + word_of_pair(i)), "l"(v) : "memory");
    }
}

/* N pieces, as in words4. */
template<int N>
struct meet4 {
    ulonglong2 v[N][2];
};

static __device__ __forceinline__ ulonglong2
meet_now(const uint64_t *p)
{
    ulonglong2 v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
        : "=l"(v.x), "=l"(v.y) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ bool
meet_there(const ulonglong2 &v, uint32_t epoch)
{
    return (uint32_t)(v.x >> 32) == epoch && (uint32_t)(v.y >> 32) == epoch;
}

/* Loads the first n pieces of rank q, `step` packets apart; the others are 0. */
template<int N>
static __device__ __forceinline__ void
meet_ask(struct meet4<N> &a, const struct meet_at &m, int q, int at, int step, int n)
{
    const uint64_t *p = meet_packets(m, m.meet->rank, q) + at;
    const uint64_t none = (uint64_t)m.epoch << 32;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int k = 0; k < 2; k++)
            a.v[i][k] = i < n ? meet_now(p + i * step + 64 * k) : make_ulonglong2(none, none);
}

/* Checks a wait for rank q since *begin, 0 in the first call. Returns 0 to go on waiting,
 * not 0 if the group has failed. */
static __device__ __noinline__ int
meet_late(const struct mega_meet *meet, int q, uint64_t *begin)
{
    struct coll_run r = {};
    r.s = meet->space;
    r.own = meet->claim;
    const uint64_t bad = bad_now(&r);
    if (bad != 0)
        return fail(&r, bad);
    if (*begin == 0)
        *begin = clock_ns();
    return waited_for(&r, q, *begin);
}

template<int N>
static __device__ __forceinline__ void
meet_wait(struct meet4<N> &a, const struct meet_at &m, int q, int at, int step)
{
    const uint64_t *p = meet_packets(m, m.meet->rank, q) + at;
    uint64_t begin = 0;
#pragma unroll 1
    for (uint32_t spins = 1;; spins++) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (!meet_there(a.v[i][k], m.epoch)) {
                    a.v[i][k] = meet_now(p + i * step + 64 * k);
                    all = false;
                }
        if (all || (spins % SPINS == 0 && meet_late(m.meet, q, &begin) != 0))
            return;
    }
}

static __device__ __forceinline__ void
meet_widen(const ulonglong2 v[2], float f[8])
{
    const uint32_t two[4] = { (uint32_t)v[0].x, (uint32_t)v[0].y, (uint32_t)v[1].x,
        (uint32_t)v[1].y };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        f[2 * k] = __uint_as_float(two[k] << 16);
        f[2 * k + 1] = __uint_as_float(two[k] & 0xffff0000u);
    }
}

/* Sums of the first n pieces, bf16; the others are 0. The pieces of the next rank are
 * loaded before the wait for those of this one. */
template<int N>
static __device__ __forceinline__ void
meet_take(uint4 r[N], const struct meet_at &m, int at, int step, int n)
{
    struct meet4<N> now, next;
    float sum[N][8], f[8];
    const int ranks = n > 0 ? m.meet->n : 0;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum[i][k] = 0;
    meet_ask(now, m, 0, at, step, n);
#pragma unroll 1
    for (int q = 0; q < ranks; q++) {
        meet_ask(next, m, q + 1 < ranks ? q + 1 : q, at, step, n);
        meet_wait(now, m, q, at, step);
#pragma unroll
        for (int i = 0; i < N; i++) {
            meet_widen(now.v[i], f);
#pragma unroll
            for (int k = 0; k < 8; k++)
                sum[i][k] = q == 0 ? f[k] : __fadd_rn(sum[i][k], f[k]);
        }
        now = next;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        r[i] = make_uint4(pack<__nv_bfloat16>(sum[i][0], sum[i][1]),
            pack<__nv_bfloat16>(sum[i][2], sum[i][3]), pack<__nv_bfloat16>(sum[i][4], sum[i][5]),
            pack<__nv_bfloat16>(sum[i][6], sum[i][7]));
}

#endif
