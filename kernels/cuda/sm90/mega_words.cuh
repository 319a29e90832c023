/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Flagged 8-byte packets (LL protocol) between blocks of mega_kernel.cu: data and its
 * epoch, written and read together. A writer waits for no barrier and a reader polls no
 * counter: an exchange costs one write and one read through L2.
 *
 * Epochs are layers, counted over all launches. A packet is overwritten two layers later,
 * after every block has read it: each block computes a slice of each layer's hidden
 * vector, and none continues without the slices of all.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_WORDS_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_WORDS_CUH

#include "kernels/cuda/sm90/mega.cuh"

#define SPINS_MOST (1u << 25)    /* polls, of about 1 us each, after which a reader traps.
                                    Not used with several ranks, where other blocks may
                                    wait for a rank and have a limit of their own */

struct words {
    uint2 *word;                 /* packets of this layer */
    uint32_t epoch;
    bool ends;                   /* SPINS_MOST applies */
};

static __device__ __forceinline__ struct words
words_of(const struct mega_list &l, uint32_t epoch, bool ends)
{
    struct words w = { l.state->word[epoch & 1], epoch, ends };
    return w;
}

static __device__ __forceinline__ void
word_put(const struct words &w, int at, uint32_t data)
{
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};"
        :: "l"(w.word + at), "r"(data), "r"(w.epoch) : "memory");
}

/* Reads packets at and at + 1 once. at is even. */
static __device__ __forceinline__ uint4
words_now(const struct words &w, int at)
{
    uint4 r;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(w.word + at) : "memory");
    return r;
}

static __device__ __forceinline__ bool
words_there(const struct words &w, const uint4 &v)
{
    return v.y == w.epoch && v.w == w.epoch;
}

/* Traps after SPINS_MOST polls, so that the device fails instead of hanging. */
static __device__ __forceinline__ void
words_spin(bool ends, uint32_t *spins)
{
    if (ends && ++*spins == SPINS_MOST)
        __trap();
}

/* Waits for packets at and at + 1 and returns their data. */
static __device__ __forceinline__ uint2
words_take2(const struct words &w, int at)
{
    uint32_t spins = 0;
    uint4 v;
    while (v = words_now(w, at), !words_there(w, v))
        words_spin(w.ends, &spins);
    return make_uint2(v.x, v.z);
}

/*
 * Vectors of 16-bit numbers, two in a packet. A thread reads eight numbers at a time, a
 * piece of four packets; a warp reads 32 pieces. Memory has the first two packets of all
 * 32 pieces, then the other two of all, so that each load of a warp reads 512 contiguous
 * bytes.
 */

/* Index of the packet with elements 2 i and 2 i + 1. */
static __device__ __forceinline__ int
word_of_pair(int i)
{
    return (i & ~127) | (i & 2) << 5 | (i >> 1 & 62) | (i & 1);
}

/* Index of the first packet of piece i. */
static __device__ __forceinline__ int
word_of_piece(int i)
{
    return (i >> 5) * 128 + (i & 31) * 2;
}

/* N pieces of which the first n are loaded at once, `step` packets apart; the others are
 * 0. at: word_of_piece(). */
template<int N>
struct words4 {
    uint4 v[N][2];
};

template<int N>
static __device__ __forceinline__ void
words_ask(struct words4<N> &a, const struct words &w, int at, int step, int n)
{
    const uint4 there = make_uint4(0, w.epoch, 0, w.epoch);
#pragma unroll
    for (int i = 0; i < N; i++) {
        a.v[i][0] = i < n ? words_now(w, at + i * step) : there;
        a.v[i][1] = i < n ? words_now(w, at + i * step + 64) : there;
    }
}

/* Waits for piece i and returns its data. Meanwhile it and the next piece are loaded
 * again. */
template<int N>
static __device__ __forceinline__ uint4
words_get(struct words4<N> &a, int i, const struct words &w, int at, int step)
{
    uint32_t spins = 0;
    while (!words_there(w, a.v[i][0]) || !words_there(w, a.v[i][1])) {
#pragma unroll
        for (int k = 0; k < 2; k++)
            if (i + k < N && (!words_there(w, a.v[i + k][0]) ||
                !words_there(w, a.v[i + k][1]))) {
                a.v[i + k][0] = words_now(w, at + (i + k) * step);
                a.v[i + k][1] = words_now(w, at + (i + k) * step + 64);
            }
        words_spin(w.ends, &spins);
    }
    return make_uint4(a.v[i][0].x, a.v[i][0].z, a.v[i][1].x, a.v[i][1].z);
}

/* Waits for all pieces: r[i] is the data of piece i. */
template<int N>
static __device__ __forceinline__ void
words_take4(uint4 r[N], const struct words &w, int at, int step, int n)
{
    struct words4<N> a;
    uint32_t spins = 0;
    bool all;
    words_ask(a, w, at, step, n);
    do {
        all = true;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (!words_there(w, a.v[i][0]) || !words_there(w, a.v[i][1])) {
                a.v[i][0] = words_now(w, at + i * step);
                a.v[i][1] = words_now(w, at + i * step + 64);
                all = false;
            }
        words_spin(w.ends, &spins);
    } while (!all);
#pragma unroll
    for (int i = 0; i < N; i++)
        r[i] = make_uint4(a.v[i][0].x, a.v[i][0].z, a.v[i][1].x, a.v[i][1].z);
}

#endif
