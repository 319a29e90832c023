/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files of the CUDA backend. Handles of fdk.h point to
 * objects of this backend: a stream has a pointer to its device, so that every call can
 * reject a failed device. Launchers are called by one thread per stream; functions for
 * memory, events and errors by any thread.
 *
 * Errors: the first CUDA error of a device is kept with the name of the failed
 * call (cu_result); from then on cu_enter() returns -EIO and no CUDA call
 * reaches the device. Out of memory and calls that a capture forbids are errors
 * of the call, not of the device. A kernel reports bad input through cu_fault,
 * pinned host memory that cu_enter() reads.
 */
#ifndef FDD_KERNELS_CUDA_FDK_CUDA_CUH
#define FDD_KERNELS_CUDA_FDK_CUDA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/collective.h"
#include "kernels/program.h"

#define CU_CTX_MAGIC    0xc0dac001u
#define CU_STREAM_MAGIC 0xc0dac002u
#define CU_EVENT_MAGIC  0xc0dac003u
#define CU_GRAPH_MAGIC  0xc0dac004u

#define CU_MAX_HEAD_DIM 256

enum cu_bad {
    CU_BAD_TOKEN = 1,            /* token id, its index, vocabulary */
    CU_BAD_PLAN,                 /* row, rows, room for tiles */
    CU_BAD_WORK,                 /* row, work item, tile */
    CU_BAD_LATE,                 /* rank at fault, this rank, spin limit in ms */
    CU_BAD_OTHER,                /* rank at fault, this rank */
    CU_BAD_GONE                  /* rank at fault, this rank */
};
struct cu_fault {                /* pinned host memory, written once */
    int32_t code;                /* enum cu_bad; 0: none yet */
    int32_t value, at, bound;
};
struct cu_claim {                /* device memory: claims the right to write cu_fault, as
                                    not every system has atomics on host memory */
    int32_t taken;
    struct cu_fault *to;
    uint64_t looked;             /* %globaltimer at the last read of a group's
                                    failure value in host memory (collective_wait.cuh) */
};
struct cu_lt;                    /* gemm_lt.cu: the cuBLASLt library */
struct cu_lt_dev;                /* gemm_lt.cu: handle and chosen algorithms */
struct cu_vmm;                   /* memory.cu: the driver's virtual memory calls */
struct cu_range;                 /* memory.cu: a reserved range */
struct mega_state;               /* mega.cuh */
struct coll_space;               /* kernels/collective_plan.h */

struct cu_dev {
    struct fdk_ctx *ctx;
    int idx;
    uint32_t failed;             /* 1: text is being written, 2: text is complete */
    char text[256];
    volatile struct cu_fault *fault;
    struct cu_claim *claim;      /* kernels report through it */
    pthread_mutex_t lock;        /* ranges, clock, creation of algorithms */
    struct cu_range *ranges;
    struct cu_lt_dev *lt;
    struct mega_state *mega;     /* device memory; NULL: the device has no megakernel */
    int n_proc;
    int sm90a;                   /* 1: the device runs the code for sm_90a */
    int fell_back;               /* 1: a launch could not make its tensor map */
    cudaStream_t aux;            /* stream of the clock's events */
    cudaEvent_t base, next_base;
    uint64_t base_ns;            /* CLOCK_MONOTONIC when base completed */
    int next_pending;
};

struct cu_stream {
    uint32_t magic;
    int capturing;
    struct cu_dev *dev;
    cudaStream_t s;
    struct cu_stream *next;
};

struct cu_event {
    uint32_t magic;
    struct cu_dev *dev;
    cudaEvent_t e;
    struct cu_event *next;
};

struct fdk_ctx {
    uint32_t magic;
    int n_dev;
    pthread_mutex_t lock;        /* streams, events */
    struct cu_stream *streams;
    struct cu_event *events;
    struct cu_lt *lt;
    struct cu_vmm *vmm;
    int deterministic;
    struct cu_dev *dev;
    pthread_mutex_t group_lock;  /* groups */
    struct fdk_group *groups;
};

struct fdk_graph {
    uint32_t magic;
    struct cu_dev *dev;
    cudaGraphExec_t exec;
};

static inline struct cu_stream *
cu_stream_of(fdk_stream_t st)
{
    return reinterpret_cast<struct cu_stream *>(st);
}

static inline cudaStream_t
cu_raw(fdk_stream_t st)
{
    return cu_stream_of(st)->s;
}

/* backend_cuda.cu */

/* Makes the device current in this thread. Returns 0, or -EIO once it has failed. */
int cu_enter(struct cu_dev *dev);
int cu_enter_idx(struct fdk_ctx *ctx, int dev); /* -EINVAL: no such device */
/* Converts the result of a CUDA call: 0, -ENOMEM, -EBUSY if a capture forbids the call,
 * else -EIO, and the device has failed. call: its name, a string with static lifetime. */
int cu_result(struct cu_dev *dev, const char *call, cudaError_t e);
/* Stores the driver's function of that name and CUDA version in the pointer at ret.
 * Returns 0, or -ENOTSUP if the driver does not have it. */
int cu_driver_call(const char *name, unsigned version, void *ret);
/* Checks a kernel launch on st. */
int cu_launched(fdk_stream_t st, const char *op);
/* -EINVAL for no stream, else cu_enter() of its device. */
int cu_stream_enter(fdk_stream_t st);
uint64_t cu_now_ns(void);
/* Loads kernels k[n], so that their first use during a capture loads nothing. */
cudaError_t cu_load(const void *const *k, size_t n);

/* memory.cu */
int cu_vmm_open(struct fdk_ctx *ctx, char *err, size_t err_bytes);
void cu_vmm_close(struct fdk_ctx *ctx);
int cu_mem_alloc(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret);
void cu_mem_free(struct fdk_ctx *ctx, int dev, void *p);
int cu_host_alloc(struct fdk_ctx *ctx, size_t bytes, void **ret);
void cu_host_free(struct fdk_ctx *ctx, void *p);
int cu_mem_reserve(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret);
int cu_mem_map(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes);
int cu_mem_unmap(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes);
int cu_mem_release(struct fdk_ctx *ctx, int dev, void *base, size_t bytes);

/* stream.cu */
int cu_clock_open(struct cu_dev *dev);
void cu_clock_close(struct cu_dev *dev);
int cu_stream_new(struct fdk_ctx *ctx, int dev, fdk_stream_t *ret);
void cu_stream_free(fdk_stream_t st);
int cu_stream_sync(fdk_stream_t st);
int cu_stream_wait(fdk_stream_t st, fdk_event_t ev);
int cu_stream_delay(fdk_stream_t st, uint64_t ns);
int cu_stream_fail(fdk_stream_t st);
int cu_stream_mark(fdk_stream_t st, uint32_t *host, const uint32_t *value);
cudaError_t cu_stream_load(void);
int cu_event_new(struct fdk_ctx *ctx, int dev, fdk_event_t *ret);
void cu_event_free(fdk_event_t ev);
int cu_event_record(fdk_event_t ev, fdk_stream_t st);
int cu_event_query(fdk_event_t ev);
int cu_event_sync(fdk_event_t ev);
int cu_event_wait(fdk_event_t ev, uint64_t expect_ns, uint64_t until_ns);
uint64_t cu_event_ns(fdk_event_t ev);
int cu_copy(fdk_stream_t st, void *dst, const void *src, size_t bytes);
int cu_copy_peer(fdk_stream_t st, int dst_dev, void *dst, int src_dev, const void *src,
    size_t bytes);
int cu_fill(fdk_stream_t st, void *dst, int byte, size_t bytes);
int cu_graph_begin(fdk_stream_t st);
int cu_graph_end(fdk_stream_t st, struct fdk_graph **ret);
int cu_graph_launch(struct fdk_graph *g, fdk_stream_t st);
void cu_graph_free(struct fdk_graph *g);

/* Operations. Each file's _load makes the driver load its kernels, so that
 * nothing is loaded during a capture. */
cudaError_t cu_rows_load(void);
int cu_row_update(const struct fdk_row_update_args *a, fdk_stream_t st);
int cu_embed(const struct fdk_embed_args *a, fdk_stream_t st);
int cu_rmsnorm(const struct fdk_rmsnorm_args *a, fdk_stream_t st);
int cu_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st);
int cu_merge(const struct fdk_merge_args *a, fdk_stream_t st);
int cu_softcap(const struct fdk_softcap_args *a, fdk_stream_t st);
int cu_gather(const struct fdk_gather_args *a, fdk_stream_t st);

cudaError_t cu_attention_load(void);
void cu_att_shape(const struct fdk_attention_args *a, int32_t *ret_a, int32_t *ret_bt);
size_t cu_attention_scratch(struct fdk_ctx *ctx, const struct fdk_attention_args *a);
size_t cu_att_plan_bytes(const struct fdk_attention_args *a, int32_t n_work_max);
int cu_att_plan(const struct fdk_att_plan_args *a, fdk_stream_t st);
int cu_att_plan_host(struct fdk_ctx *, int dev, const struct fdk_att_plan_args *);
int cu_attention(const struct fdk_attention_args *a, fdk_stream_t st);

cudaError_t cu_qkv_load(void);
int cu_rope_table(const struct fdk_rope_table_args *a, fdk_stream_t st);
int cu_qkv(const struct fdk_qkv_args *a, fdk_stream_t st);

cudaError_t cu_sample_load(void);
size_t cu_sample_scratch(const struct fdk_sample_args *a);
int cu_sample(const struct fdk_sample_args *a, fdk_stream_t st);

cudaError_t cu_gemm_load(int sm90a); /* cu_dev.sm90a of the current device */
int cu_gemm_open(struct fdk_ctx *ctx, const char *cache_dir, char *err,
    size_t err_bytes);
void cu_gemm_close(struct fdk_ctx *ctx);
size_t cu_gemm_scratch(const struct fdk_gemm_args *a);
int cu_gemm(const struct fdk_gemm_args *a, fdk_stream_t st);
int cu_gemm_choose(const struct fdk_gemm_args *a, fdk_stream_t st);
int32_t cu_gemm_class(struct fdk_ctx *ctx, int dev, const struct fdk_gemm_args *a);
/* Is the GEMM computed by the generic kernel in the table's last row? */
int cu_gemm_slow(const struct cu_dev *d, const struct fdk_gemm_args *a);
/* gemm_lt.cu: 16-bit weights, many rows. cu_lt_gemm() returns 1 if the library cannot
 * compute the GEMM after all. */
int cu_lt_open(struct fdk_ctx *ctx, const char *cache_dir, char *err, size_t err_bytes);
void cu_lt_close(struct fdk_ctx *ctx);
int cu_lt_fits(const struct fdk_gemm_args *a);
size_t cu_lt_scratch(const struct fdk_gemm_args *a);
int cu_lt_gemm(const struct fdk_gemm_args *a, fdk_stream_t st);
/* Largest number of rows in the class of T. */
int32_t cu_lt_class(const struct cu_dev *d, int32_t T);
/* Chooses an algorithm for every class of rows from least to a->T. */
int cu_lt_choose(const struct fdk_gemm_args *a, int32_t least, fdk_stream_t st);
cudaError_t cu_lt_load(void);
/* generic/gemm_tile.cu: every type and shape, on every device. */
int cu_gemm_tile(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
cudaError_t cu_gemm_tile_load(void);

/* fusion.cu */
extern "C" {
extern const struct fdk_fusion cu_fusions[];
}
#define CU_FUSIONS 5
const char *cu_fell_back(struct fdk_ctx *ctx, int dev);
int cu_op_takes(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, char *why,
    size_t why_bytes);
const char *cu_op_kernels(struct fdk_ctx *ctx, int dev, const struct fdk_op *op);
/* ops_gemm.cu, ops_attention.cu: kernels of an operation, as in fdk_ops.op_kernels(). */
const char *cu_gemm_kernels(const struct cu_dev *d, const struct fdk_gemm_args *a);
const char *cu_attention_kernels(const struct cu_dev *d,
    const struct fdk_attention_args *a);
/* Are decoding rows computed by the generic kernel, which supports every shape? */
int cu_attention_slow(const struct cu_dev *d, const struct fdk_attention_args *a);

/* The functions below need a device with cu_dev.sm90a; on others their kernels are empty.
 * n_proc: multiprocessors of the device.
 *
 * gemm_stream.cu, _mid, _wide: bf16 weights and activations. The bits of a row do not
 * depend on T or on which of the three kernels computes it. */
#define CU_STREAM_ROWS 128       /* most rows for which memory bandwidth is the limit */
int cu_gemm_stream_fits(const struct fdk_gemm_args *a);
int cu_gemm_stream_mid_fits(const struct fdk_gemm_args *a);
/* Number of rows from which gemm_stream_mid.cu is faster than gemm_stream.cu. */
int cu_gemm_stream_mid_least(const struct fdk_gemm_args *a);
int cu_gemm_stream(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
int cu_gemm_stream_mid(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
int cu_gemm_stream_wide(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
cudaError_t cu_gemm_stream_load(void);
/* GEMM g fused with silu_mul s; the input of s is not stored. cu_gemm_stream_mid_silu():
 * up to CU_STREAM_ROWS rows, with the bits of separate launches. cu_gemm_silu(): more
 * rows; gate and up are rounded once, after the bias; their sums have the bits of a GEMM
 * of cuBLASLt that does not split K. */
int cu_gemm_stream_mid_silu(const struct fdk_gemm_args *g,
    const struct fdk_silu_mul_args *s, int n_proc, fdk_stream_t st);
int cu_gemm_silu(const struct fdk_gemm_args *g, const struct fdk_silu_mul_args *s,
    int n_proc, fdk_stream_t st);
/* gemm_quant*.cu: int8, int4 and e4m3 weights, x fp32 or bf16. The table in ops_gemm.cu
 * has the range of rows of each; each has one fixed order of sums. */
#define CU_QUANT_ROWS 16
#define CU_QUANT_MID  32
#define CU_QUANT_FEW  128
int cu_gemm_quant_fits(const struct fdk_gemm_args *a);
int cu_quant_widen_fits(const struct fdk_gemm_args *a);
size_t cu_gemm_quant_scratch(const struct fdk_gemm_args *a);
size_t cu_quant_wide_scratch(const struct fdk_gemm_args *a);
int cu_quant_narrow(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
int cu_quant_mid(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
int cu_quant_widen(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
int cu_quant_wide(const struct fdk_gemm_args *a, int n_proc, fdk_stream_t st);
cudaError_t cu_gemm_quant_load(void);

/* load.cu */
cudaError_t cu_weights_load(void);
int cu_weight_layout(struct fdk_weight *w);
const char *cu_layout_name(int32_t layout);
int cu_weight_pack(const struct fdk_pack_args *a, fdk_stream_t st);
int cu_dummy_weights(const struct fdk_dummy_args *a, fdk_stream_t st);

/* mega.cu: members of struct fdk_fusion. */
#define CU_MEGA_KINDS FDK_OP_RMSNORM, FDK_OP_GEMM, FDK_OP_QKV, FDK_OP_ATTENTION, \
    FDK_OP_GEMM, FDK_OP_RMSNORM, FDK_OP_GEMM, FDK_OP_SILU_MUL, FDK_OP_GEMM
#define CU_MEGA_RANKS_KINDS FDK_OP_RMSNORM, FDK_OP_GEMM, FDK_OP_QKV, FDK_OP_ATTENTION, \
    FDK_OP_GEMM, FDK_OP_ALL_REDUCE, FDK_OP_RMSNORM, FDK_OP_GEMM, FDK_OP_SILU_MUL
int32_t cu_mega_covers(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    int32_t *ret_least, int32_t *ret_most);
int cu_mega_prepare(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, int32_t n,
    void **ret);
void cu_mega_release(struct fdk_ctx *ctx, int dev, void *data);
int cu_mega_run(void *data, const struct fdk_op *op, int32_t n, const struct fdk_step *s,
    fdk_stream_t st);
int cu_mega_open(struct cu_dev *d);
void cu_mega_close(struct cu_dev *d);
cudaError_t cu_mega_load(int sm90a);

/* collective.cu */
int cu_group_new(struct fdk_ctx *ctx, const struct fdk_group_args *a, struct fdk_group **ret,
    char *err, size_t err_bytes);
void cu_group_free(struct fdk_group *g);
uint64_t cu_group_bytes(struct fdk_ctx *ctx, const struct fdk_group_args *a);
void cu_group_abort(struct fdk_group *g, int32_t rank);
void cu_group_ways(struct fdk_group *g, const struct fdk_group_ways *set,
    struct fdk_group_ways *was);
/* The device has failed: makes the other ranks of its groups fail. Makes no CUDA call. */
void cu_groups_tell(const struct cu_dev *dev);
int cu_all_reduce(const struct fdk_all_reduce_args *a, fdk_stream_t st);
int cu_all_gather(const struct fdk_all_gather_args *a, fdk_stream_t st);
int cu_reduce_send(const struct fdk_all_reduce_args *a, fdk_stream_t st);
int cu_reduce_take(const struct fdk_all_reduce_args *a, fdk_stream_t st);
int cu_kv_share(const struct fdk_kv_share_args *a, fdk_stream_t st);
int cu_row_share(const struct fdk_row_share_args *a, fdk_stream_t st);
/* For all-reduces inside the megakernel (mega.cuh). *ret: the group's space as seen by
 * the rank of device d. *ret_at: offset in every workspace of CU_MEET_BYTES that only the
 * megakernels write. Returns 0, or -ENOTSUP if a rank cannot run the megakernel. */
#define CU_MEET_RANKS 4
#define CU_MEET_BYTES (1 << 20)
int cu_group_room(struct fdk_group *g, const struct cu_dev *d, struct coll_space *ret,
    uint64_t *ret_at);
/* Records that the rank of d has bound a megakernel; `what` is a value that identifies
 * the kernel. Called with -what when it is released. */
void cu_group_bound(struct fdk_group *g, const struct cu_dev *d, uint64_t what);
/* Have all ranks bound the same megakernels? If not, none launches its own. */
int cu_group_agrees(struct fdk_group *g);
cudaError_t cu_collective_load(void);

/* probe.cu */
cudaError_t cu_probe_load(void);
int cu_probe(struct fdk_ctx *ctx, int dev, enum fdk_probe what, enum fdk_dtype t,
    double *ret);

/* Checks arguments that qkv and attention share. Returns 0, -EINVAL or -ENOTSUP. */
int cu_kv_valid(const struct fdk_kv *kv, int T, int H, int K, int D, int layer);

/* hooks.cu: returns 1 if a test makes every tensor map fail, and then counts the call. */
int cu_map_refused(void);

/* A shared memory address as an operand of PTX instructions. */
static __device__ __forceinline__ uint32_t
cu_smem(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- dependent launches ------------------------------------------------------
 * A kernel launched by cu_chain() may start while the previous kernel of the
 * stream still runs. Each of its threads must call cu_dep_wait() before it reads
 * results of another kernel or writes to memory; before that call it may load
 * constant data. cu_dep_next() lets the next kernel of the stream start
 * as soon as every block has called it. Both do nothing after a plain launch. */

static __device__ __forceinline__ void
cu_dep_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void
cu_dep_next(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Number of groups of `blocks` blocks for which each block has a multiprocessor; at least
 * 1. */
static inline int
cu_slots(int n_proc, int blocks)
{
    return n_proc < blocks ? 1 : n_proc / blocks;
}

/* Grid with a group of blocks for each tile, limited to cu_slots() groups. */
static inline dim3
cu_groups(int n_tile, int blocks, int n_proc)
{
    const int slots = cu_slots(n_proc, blocks);
    return dim3((unsigned)((n_tile < slots ? n_tile : slots) * blocks));
}

static inline cudaLaunchConfig_t
cu_chain_config(cudaLaunchAttribute at[2], unsigned cluster, dim3 grid, unsigned threads,
    size_t shared, cudaStream_t s)
{
    at[0] = at[1] = {};
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    at[1].id = cudaLaunchAttributeClusterDimension;
    at[1].val.clusterDim.x = cluster;
    at[1].val.clusterDim.y = 1;
    at[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = dim3(threads);
    c.dynamicSmemBytes = shared;
    c.stream = s;
    c.attrs = at;
    c.numAttrs = cluster > 0 ? 2 : 1;
    return c;
}

template<typename... P, typename... A>
static inline void
cu_chain_clusters(void (*kernel)(P...), unsigned cluster, dim3 grid, unsigned threads,
    size_t shared, cudaStream_t s, const A &...args)
{
    cudaLaunchAttribute at[2];
    cudaLaunchConfig_t c = cu_chain_config(at, cluster, grid, threads, shared, s);
    (void)cudaLaunchKernelEx(&c, kernel, P(args)...);
}

template<typename... P, typename... A>
static inline void
cu_chain(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared, cudaStream_t s,
    const A &...args)
{
    cu_chain_clusters(kernel, 0, grid, threads, shared, s, args...);
}

/* ---- device helpers ------------------------------------------------------ */

static __device__ __forceinline__ int
cu_clip(const int32_t *live, int padded)
{
    int n = *live;
    return n < 0 ? 0 : n < padded ? n : padded;
}

static __device__ __forceinline__ float
cu_round_bf16(float v)
{
    return __bfloat162float(__float2bfloat16_rn(v));
}

/* silu(g) u for results rounded to bf16: exp and quotient are accurate to a few fp32
 * ulp. */
static __device__ __forceinline__ float
cu_silu_mul_bf16(float g, float u)
{
    return __fdividef(g, 1.0f + __expf(-g)) * u;
}

static __device__ __forceinline__ float
cu_warp_sum(float x)
{
    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

static __device__ __forceinline__ float
cu_warp_max(float x)
{
    for (int i = 16; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

static __device__ __forceinline__ void
cu_report(struct cu_claim *c, int code, int value, int at, int bound)
{
    if (atomicCAS(&c->taken, 0, 1) != 0)
        return;
    volatile struct cu_fault *f = c->to;
    f->value = value;
    f->at = at;
    f->bound = bound;
    __threadfence_system();           /* pairs with cu_fail_input() */
    f->code = code;
}

static __device__ __forceinline__ float
cu_widen(float x)
{
    return x;
}

static __device__ __forceinline__ float
cu_widen(__half x)
{
    return __half2float(x);
}

static __device__ __forceinline__ float
cu_widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

#endif
