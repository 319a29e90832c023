/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Flagged 8-byte packets (LL protocol) between blocks of mega_kernel.cu: data and its
 * epoch, written and read as one. A writer waits for no barrier and a reader polls no
 * counter: an exchange costs one write and one read through L2.
 *
 * Epochs are layers, counted over all launches. A packet is overwritten two layers later,
 * after every block has read it: each block computes a slice of each layer's hidden
 * vector, and none continues without the slices of all.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_WORDS_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_WORDS_CUH

#include "kernels/cuda/sm90/mega.cuh"

#define SPINS_MOST (1u << 25)    /* of about a microsecond: then something is wrong. Next to
                                    blocks that wait for another rank, which have a limit, none */

struct words {
    uint2 *word;                 /* of this layer */
    uint32_t epoch;
    bool ends;                   /* SPINS_MOST holds */
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

/* Words at and at + 1, as they are now. at is even. */
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

/* A fault is better than a processor that never comes back. */
static __device__ __forceinline__ void
words_spin(bool ends, uint32_t *spins)
{
    if (ends && ++*spins == SPINS_MOST)
        __trap();
}

/* Data of words at and at + 1. */
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
 * Vectors of numbers in 16 bits, two in a word. A thread takes eight at a time, a piece:
 * four words, and a warp 32 pieces. Each piece's first two words lie side by side for all
 * 32, then the others, so that what a warp reads at once is 512 bytes without a gap.
 */

/* Of elements 2 i and 2 i + 1. */
static __device__ __forceinline__ int
word_of_pair(int i)
{
    return (i & ~127) | (i & 2) << 5 | (i >> 1 & 62) | (i & 1);
}

/* The first of piece i. */
static __device__ __forceinline__ int
word_of_piece(int i)
{
    return (i >> 5) * 128 + (i & 31) * 2;
}

/* N pieces, i < n of them, each `step` words from the one before: asked for at once. Others
 * are 0. at: word_of_piece(). */
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

/* The data of piece i. Until it is there, it and the next one are asked for again. */
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

/* All of them: r[i] is the data of piece i. */
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
