/*
 * A decode step's operations as one kernel. With few rows, a step is a few
 * hundred short operations, and between two of them the memory stands still: the last
 * blocks end, the next kernel starts, its first weights are asked for. Here one block
 * per processor stays for the whole list and runs it operation by operation, with a
 * barrier of all blocks between. Weights do not depend on what ran before: those of the
 * products ahead are asked for while others still wait at a barrier.
 *
 * mega.cu collects what a stream is told to run and launches it, mega_kernel.cu runs it:
 * mega_gemm.cuh, mega_attention.cuh and mega_rows.cuh have the operations.
 */
#ifndef FDD_KERNELS_CUDA_MEGA_CUH
#define FDD_KERNELS_CUDA_MEGA_CUH

#include "kernels/cuda/fdk_cuda.cuh"
#include "kernels/cuda/tensor_map.cuh"

#define MEGA_ROWS    8           /* of x: columns of the tensor cores' product */
#define MEGA_OPS     334         /* of a launch: a kernel's arguments are at most 32,764
                                    bytes */
#define MEGA_WARPS   16
#define MEGA_THREADS (32 * MEGA_WARPS)
#define MEGA_NORM_MOST (16 * MEGA_THREADS) /* length of a row */
#define MEGA_HEADS   256         /* KV heads: MEGA_ROWS * heads arrivals */

enum mega_kind {
    MEGA_NORM,
    MEGA_GEMM,
    MEGA_QKV,
    MEGA_ATTENTION,
    MEGA_SILU,
    MEGA_GATHER
};

struct mega_norm {               /* fdk_rmsnorm_args */
    void *y;
    float *x;
    const void *add;
    const float *w;
    int32_t C;
    float eps;
};
struct mega_gemm {               /* fdk_gemm_args with first = 0 */
    void *y;
    const void *x;
    const void *w;               /* tensor map on the device: w in boxes of 128 bytes, 16
                                    rows, MEGA_WARPS times */
    const void *scale_map;       /* the same of scales: MEGA_WARPS chunks', 16 rows */
    const float *scale, *bias;
    int32_t N, K, ldy;           /* N: a multiple of 16 */
    int32_t y32;                 /* y is fp32 */
    int32_t shift;               /* 0: 128 elements share a scale, -1: a row does */
};
struct mega_qkv {                /* fdk_qkv_args */
    void *qkv;
    const float *q_norm, *k_norm, *cs;
    int32_t H, K, D, rot, layer;
    float eps;
};
struct mega_attention {          /* fdk_attention_args */
    void *y;
    const void *qkv;
    const int32_t *n_work;
    uint32_t *n_done;
    void *scratch;
    int32_t H, layer, n_work_max;
    int16_t K, D;
    float scale;
};
struct mega_silu {               /* fdk_silu_mul_args */
    void *y;
    const void *gu;
    int32_t F;
};
struct mega_gather {             /* fdk_gather_args */
    void *y;
    const void *x;
    int32_t C;
};

struct mega_op {
    int16_t kind;                /* enum mega_kind */
    int16_t next;                /* the next product in the list, -1: none */
    int16_t T;
    int16_t kv_layer;            /* whose keys and values are wanted soon, -1: none's */
    const int32_t *n;            /* [1] live rows */
    union {
        struct mega_norm norm;
        struct mega_gemm gemm;
        struct mega_qkv qkv;
        struct mega_attention attention;
        struct mega_silu silu;
        struct mega_gather gather;
    };
};

/* Device memory, all 0 at first. */
struct mega_state {
    unsigned long long arrived;  /* blocks, over all barriers there ever were */
    uint32_t parts[MEGA_ROWS * MEGA_HEADS]; /* of a token's KV head; 0 between launches */
    uint32_t claimed[MEGA_OPS];  /* row groups of a product; the same */
};

struct mega_list {
    struct fdk_batch b;
    struct fdk_kv kv;
    struct mega_state *state;
    int32_t n;
    int32_t first;               /* the first product, -1: none */
    int32_t T;                   /* tokens of the step, at most */
    int32_t type;                /* of all weights: FDK_I8 or FDK_F8E4M3 */
    struct mega_op op[MEGA_OPS];
};
static_assert(sizeof(struct mega_list) <= 32764, "arguments of a kernel");

struct mega_maps {               /* of one matrix, as the kernel takes them */
    CUtensorMap w, scale;
};

/* Of w (N, K), elements of so many bytes; scales: 0, or K / 128 of a row. -ENOTSUP. */
int mega_maps_make(struct mega_maps *m, const void *w, const float *scale, int N, int K,
    int element, int scales);
/* Bytes of scratch that attention over T tokens needs on n_proc processors. */
size_t mega_attention_scratch(int T, int K, int D, int n_proc);
/* All of the list, in order, on n_proc processors, which it has for itself. */
cudaError_t mega_launch(const struct mega_list *l, int n_proc, cudaStream_t s);
cudaError_t mega_kernel_load(void);
/* Device dev can run it, once it is loaded. */
int mega_kernel_fits(int dev);

#endif
