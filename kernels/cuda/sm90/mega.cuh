/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The megakernel: all layers of a single-token decode as one kernel. Such a step is a few
 * hundred short operations, and between two of them the memory is idle: the last blocks
 * end, the next kernel starts and issues its first loads. Here one block per
 * multiprocessor runs for all layers. Weights do not depend on earlier results: one warp
 * of each block loads them, GEMM after GEMM, as far ahead as shared memory allows.
 *
 * There is no barrier between blocks. Results for other blocks are exchanged in flagged
 * 8-byte packets of data and epoch (mega_words.cuh): a reader polls until it sees the
 * epoch. Every block keeps its own residual stream and computes its own norms; rotary
 * embedding is done in the attention, silu_mul in the GEMM of gate and up.
 *
 * Ranks that share a model (kernels/collective.h) run the kernel at the same time and sum
 * the results of o and down inside it (mega_meet.cuh).
 *
 * mega.cu finds the layers of a program and launches them, mega_kernel.cu runs them.
 * mega_ring.cuh loads weights, mega_x.cuh prepares the input of a GEMM, mega_gemm.cuh
 * computes it, mega_attention.cuh computes the attention.
 */
#ifndef FDD_KERNELS_CUDA_SM90_MEGA_CUH
#define FDD_KERNELS_CUDA_SM90_MEGA_CUH

#include "kernels/collective_plan.h"
#include "kernels/cuda/fdk_cuda.cuh"
#include "kernels/cuda/sm90/sm90.cuh"

#define MEGA_BLOCKS  256         /* most blocks, one per multiprocessor */
#define MEGA_LAYERS  128         /* most layers of a launch: a kernel's arguments are at
                                    most 32,764 bytes */
#define MEGA_WARPS   8           /* consumer warps */
#define MEGA_THREADS (32 * MEGA_WARPS)
#define MEGA_UNITS   4           /* times 8 elements of the residual stream per thread */
#define MEGA_C_MOST  (8 * MEGA_UNITS * MEGA_THREADS)
#define MEGA_X_BYTES 47104       /* most shared memory for the input of a GEMM */
#define MEGA_GROUP   8           /* most query heads of a KV head */
#define MEGA_SPLITS  32          /* most splits of a KV head's tokens */
#define MEGA_WORDS   (1 << 19)   /* most packets that blocks exchange in a layer */
#define MEGA_RANKS   CU_MEET_RANKS /* most ranks: every block reads the packets of all */

enum mega_product { MEGA_QKV, MEGA_O, MEGA_GU, MEGA_DOWN, MEGA_PRODUCTS };

struct mega_matrix {             /* w (N, K), as fdk_gemm_args has it */
    const void *map;             /* tensor map on the device: w in tiles of 16 rows (gate
                                    and up: 8) and MEGA_WARPS times 128 bytes */
    const void *scale_map;       /* tensor map of the scales of these rows */
    const float *scale, *bias;   /* per row; NULL: none */
};

struct mega_layer {
    struct mega_matrix m[MEGA_PRODUCTS];
    const float *norm[2], *q_norm, *k_norm;
    int64_t kv_layer;
};

struct mega_shape {
    int32_t N, K;
    int32_t scaled;              /* 1: 128 elements of a row of w share a scale */
};

/* Offsets of the packets of each vector. A packet has two 16-bit numbers, or one fp32
 * number of an attention split. */
struct mega_places { int32_t qkv, att, o, hidden, down, part, ml, n; };

/* Device memory, initially all 0. */
struct mega_state {
    uint32_t epoch;              /* of the last layer of the last launch */
    uint32_t claimed[MEGA_LAYERS]; /* row groups of gate and up taken; 0 between
                                      launches */
    __align__(128) float x[MEGA_BLOCKS][MEGA_C_MOST]; /* residual stream of each block */
    __align__(128) uint2 word[2][MEGA_WORDS]; /* [epoch % 2] */
};

/* The CU_MEET_BYTES in a rank's workspace, to which all ranks write their results of o
 * and down. */
struct mega_room {
    uint32_t epoch;              /* of this rank's last layer of the last launch */
    __align__(128) uint64_t packet[2][2][MEGA_RANKS][MEGA_C_MOST / 2]; /* [epoch % 2][0:
                                    o, 1: down][rank that wrote it] */
};
static_assert(sizeof(struct mega_room) <= CU_MEET_BYTES, "what a group has for it");

struct mega_list {
    struct fdk_batch b;
    struct fdk_kv kv;
    struct mega_state *state;
    float *x;                    /* [C] residual stream */
    const void *add;             /* [C] added to x before the first layer; NULL:
                                    nothing */
    void *y;                     /* [C] result of the last GEMM */
    const float *cs;
    const int32_t *n_work;
    uint32_t *n_done;
    struct mega_shape shape[MEGA_PRODUCTS];
    struct mega_places at;
    struct coll_space space;     /* of the group of ranks; n 0: only one rank */
    uint64_t room_at;            /* offset of struct mega_room in the workspaces */
    struct cu_claim *claim;
    int32_t type;                /* enum fdk_dtype of the weights */
    int32_t n;                   /* layers */
    int32_t C, F, H, K, D, rot;
    int32_t group;               /* H / K */
    int32_t splits, n_work_max;
    int32_t depth, scaled;       /* stages of the ring; 1: any shape is scaled */
    float eps, qk_eps, scale;
    struct mega_layer layer[MEGA_LAYERS];
};
static_assert(sizeof(struct mega_list) <= 32764, "arguments of a kernel");

struct mega_maps {               /* tensor maps of one matrix */
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

/* Packets of a vector of n numbers, rounded up to full warps (mega_words.cuh). */
static __host__ __device__ constexpr int
mega_vector_words(int n)
{
    return (n / 8 + 31) / 32 * 128;
}

/* Makes the maps of w (N, K) in tiles of `rows` rows; scaled: 128 elements share a scale.
 * Returns 0 or -ENOTSUP. */
int mega_maps_make(struct mega_maps *m, const void *w, const float *scale, int N, int K,
    int type, int scaled, int rows);
/* Sets how much shared memory the ring gets; the list is complete but for that. */
void mega_room_divide(struct mega_list *l);
/* Launches the list on n_block multiprocessors, each with one block of it and no
 * other. */
cudaError_t mega_launch(const struct mega_list *l, int n_block, cudaStream_t s);
cudaError_t mega_kernel_load(void);
/* Can device dev run the loaded kernel? */
int mega_kernel_fits(int dev);

#endif
