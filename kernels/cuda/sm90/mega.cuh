/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of a decode step of one row as one kernel. Such a step is a few hundred
 * short operations, and between two of them the memory stands still: the last blocks end,
 * the next kernel starts, its first weights are asked for. Here one block per processor
 * stays for all layers. Weights do not depend on what ran before: one warp of each block
 * asks for them, product after product, as far ahead as shared memory allows.
 *
 * Blocks never meet at a barrier. What one computes and others need goes through words of
 * 8 bytes, data and epoch (mega_words.cuh): who needs it reads until the epoch is there.
 * Every block keeps a residual stream and makes norms of its own; rotation belongs to
 * attention, and silu_mul to the product of gate and up.
 *
 * Ranks that share a model (kernels/collective.h) run it side by side and sum what o and down are
 * at each without leaving it (mega_meet.cuh).
 *
 * mega.cu finds the layers of a program and launches them, mega_kernel.cu runs them: mega_ring.cuh asks for weights, mega_x.cuh makes a product's
 * input, mega_gemm.cuh the product, mega_attention.cuh the rest.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_CUH

#include "kernels/collective_plan.h"
#include "kernels/cuda/fdk_cuda.cuh"
#include "kernels/cuda/sm90/sm90.cuh"

#define MEGA_BLOCKS  256         /* processors, at most */
#define MEGA_LAYERS  128         /* of a launch: a kernel's arguments are at most 32,764
                                    bytes */
#define MEGA_WARPS   8           /* that compute */
#define MEGA_THREADS (32 * MEGA_WARPS)
#define MEGA_UNITS   4           /* times 8 elements of the residual stream a thread has */
#define MEGA_C_MOST  (8 * MEGA_UNITS * MEGA_THREADS)
#define MEGA_X_BYTES 47104       /* of shared memory, for a product's input */
#define MEGA_GROUP   8           /* query heads of a KV head, at most */
#define MEGA_SPLITS  32          /* of a KV head's tokens, at most */
#define MEGA_WORDS   (1 << 19)   /* that blocks exchange in a layer, at most */
#define MEGA_RANKS   CU_MEET_RANKS /* that sum, at most: every block reads what all wrote */

enum mega_product { MEGA_QKV, MEGA_O, MEGA_GU, MEGA_DOWN, MEGA_PRODUCTS };

struct mega_matrix {             /* w (N, K), as fdk_gemm_args has it */
    const void *map;             /* tensor map on the device: w in tiles of 128 bytes, 16
                                    rows, MEGA_WARPS times */
    const void *scale_map;       /* the same of scales, 16 rows */
    const float *scale, *bias;   /* of rows; NULL: none */
};

struct mega_layer {
    struct mega_matrix m[MEGA_PRODUCTS];
    const float *norm[2], *q_norm, *k_norm;
    int64_t kv_layer;
};

struct mega_shape {
    int32_t N, K;
    int32_t scaled;              /* 128 elements of a row of w share a scale */
};

/* Where words lie: of 2 numbers in 16 bits each, of parts one. */
struct mega_places { int32_t qkv, att, o, hidden, down, part, ml, n; };

/* Device memory, all 0 at first. */
struct mega_state {
    uint32_t epoch;              /* of the last layer of the last launch */
    uint32_t claimed[MEGA_LAYERS]; /* pairs of row groups; 0 between launches */
    __align__(128) float x[MEGA_BLOCKS][MEGA_C_MOST]; /* residual stream of each block */
    __align__(128) uint2 word[2][MEGA_WORDS]; /* layers take turns */
};

/* The same of a rank's workspace, CU_MEET_BYTES that all ranks write to: sums of o and of down. */
struct mega_room {
    uint32_t epoch;              /* of the last layer of the last launch; its own rank's */
    __align__(128) uint64_t packet[2][2][MEGA_RANKS][MEGA_C_MOST / 2]; /* layers take turns */
};
static_assert(sizeof(struct mega_room) <= CU_MEET_BYTES, "what a group has for it");

struct mega_list {
    struct fdk_batch b;
    struct fdk_kv kv;
    struct mega_state *state;
    float *x;                    /* [C] residual stream */
    const void *add;             /* [C] before the first layer; NULL: nothing */
    void *y;                     /* [C] the last product */
    const float *cs;
    const int32_t *n_work;
    uint32_t *n_done;
    struct mega_shape shape[MEGA_PRODUCTS];
    struct mega_places at;
    struct coll_space space;     /* of the ranks that sum; n 0: there is one alone */
    uint64_t room_at;            /* in the workspaces */
    struct cu_claim *claim;
    int32_t type;                /* of weights */
    int32_t n;                   /* layers */
    int32_t C, F, H, K, D, rot;
    int32_t group;               /* H / K */
    int32_t splits, n_work_max;
    float eps, qk_eps, scale;
    struct mega_layer layer[MEGA_LAYERS];
};
static_assert(sizeof(struct mega_list) <= 32764, "arguments of a kernel");

struct mega_maps {               /* of one matrix, as the kernel takes them */
    CUtensorMap w, scale;
};

/* Elements of a row of w in 128 bytes. */
static __host__ __device__ constexpr int
mega_chunk(int type)
{
    return type == FDK_I4 ? 256 : type == FDK_BF16 ? 64 : 128;
}

/* Bytes of shared memory that x of K elements takes. */
static __host__ __device__ constexpr int
mega_x_bytes(int type, int K)
{
    return type == FDK_I4 || type == FDK_I8 ? 3 * (K + 16) + K / 128 * 4 :
        type == FDK_F8E4M3 ? 2 * K + K / 128 * 4 : 2 * K;
}

/* Words of a vector of n numbers, in whole runs (mega_words.cuh). */
static __host__ __device__ constexpr int
mega_vector_words(int n)
{
    return (n / 8 + 31) / 32 * 128;
}

/* Of w (N, K) of this type, with scales of 128 elements or not. -ENOTSUP. */
int mega_maps_make(struct mega_maps *m, const void *w, const float *scale, int N, int K,
    int type, int scaled);
/* All of the list on n_block processors, which it has for itself. */
cudaError_t mega_launch(const struct mega_list *l, int n_block, cudaStream_t s);
cudaError_t mega_kernel_load(void);
/* Device dev can run it, once it is loaded. */
int mega_kernel_fits(int dev);

#endif
