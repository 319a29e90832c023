/*
 * The kernel that runs a list of operations (mega.cuh): all of its blocks are resident,
 * which a cooperative launch sees to.
 */
#include "kernels/cuda/mega_attention.cuh"
#include "kernels/cuda/mega_rows.cuh"

struct mega_shared {
    struct mega_ring ring;
    __align__(16) float sums[SUMS_BYTES / 4];
    __align__(16) float2 ml[(MEGA_WARPS + 1) * QUERIES];
    float part[MEGA_WARPS];
    struct mega_op op[2];            /* the one that runs and the next one */
    int rows[2];                     /* that live */
    struct att_deal deal;
    int flag;
};
static_assert(sizeof(struct mega_shared) <= 232448, "what a block may have");

/* All blocks have come here, and what they wrote before can be read. goal: arrivals
 * until then, of this thread alone. */
static __device__ __forceinline__ void
grid_sync(struct mega_state *s, unsigned long long &goal)
{
    mega_sync();
    if (threadIdx.x == 0) {
        unsigned long long now;
        goal += gridDim.x;
        asm volatile("red.release.gpu.global.add.u64 [%0], 1;"
            :: "l"(&s->arrived) : "memory");
        do
            asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                : "=l"(now) : "l"(&s->arrived) : "memory");
        while (now < goal);
    }
    mega_sync();
}

/* Operation i of the list where its turn finds it: in shared memory. A barrier follows. */
static __device__ __forceinline__ void
fetch_op(const struct mega_list &l, struct mega_shared *s, int i)
{
    const uint32_t *from = (const uint32_t *)&l.op[i];
    const int words = sizeof(struct mega_op) / 4, w = (int)threadIdx.x;
    if (w < words)
        ((uint32_t *)&s->op[i & 1])[w] = from[w];
    else if (w == words)
        s->rows[i & 1] = max(0, min(l.op[i].T, *l.op[i].n));
}

template<int W, int D>
static __device__ __forceinline__ void
run(const struct mega_list &l, struct mega_shared *s, int i)
{
    const struct mega_op &op = s->op[i & 1];
    const int rows = s->rows[i & 1];
    if (op.kind == MEGA_GEMM) {
        mega_run_gemm<W>(op.gemm, &s->ring, s->sums, rows, { &l, &s->deal, op.kv_layer });
    } else if (op.kind == MEGA_NORM) {
        mega_run_norm(op.norm, s->part, rows);
    } else if (op.kind == MEGA_QKV) {
        mega_run_qkv(l, op.qkv, rows);
    } else if (op.kind == MEGA_ATTENTION) {
        mega_run_attention<D>(s->deal, l, op.attention, { s->sums, s->ml, &s->flag });
    } else if (op.kind == MEGA_SILU) {
        mega_run_silu(op.silu, rows);
    } else {
        mega_run_gather(l, op.gather, rows);
    }
}

/* The warps that compute. */
template<int W, int D>
static __device__ __forceinline__ void
run_all(const struct mega_list &l, struct mega_shared *s)
{
    unsigned long long goal = 0;
    /* Blocks that are ahead may have come to the first barrier already, but not passed. */
    if (threadIdx.x == 0) {
        goal = *(volatile unsigned long long *)&l.state->arrived;
        goal -= goal % gridDim.x;
    }
    fetch_op(l, s, 0);
    att_deal_out(s->deal, l, max(0, min(l.T, *l.b.n_tok)));
    mega_sync();
    for (int i = 0; i < l.n; i++) {
        run<W, D>(l, s, i);
        if (i + 1 == l.n)
            break;
        fetch_op(l, s, i + 1);
        grid_sync(l.state, goal);
    }
}

template<int W, int D>
static __global__ void __launch_bounds__(MEGA_THREADS + 32, 1)
mega_kernel(const __grid_constant__ struct mega_list l)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct mega_shared *s = (struct mega_shared *)shared;
    if (threadIdx.x == 0)
        ring_start(&s->ring);
    __syncthreads();
    if (threadIdx.x < MEGA_THREADS)
        run_all<W, D>(l, s);
    else if (threadIdx.x == MEGA_THREADS)
        ring_feed(l, &s->ring);
}

static cu_encode_fn encode;          /* cuTensorMapEncodeTiled; written once, by load */

int
mega_maps_make(struct mega_maps *m, const void *w, const float *scale, int N, int K,
    int element, int scales)
{
    const cuuint64_t row = (cuuint64_t)K * (cuuint64_t)element;
    const cuuint64_t dim[3] = { 128, (cuuint64_t)N, row / 128 }, stride[2] = { row, 128 };
    const cuuint32_t box[3] = { 128, 16, MEGA_WARPS }, one[3] = { 1, 1, 1 };
    const cuuint64_t s_dim[2] = { (cuuint64_t)K / 128, (cuuint64_t)N };
    const cuuint64_t s_stride[1] = { (cuuint64_t)K / 128 * 4 };
    const cuuint32_t s_box[2] = { MEGA_WARPS, 16 };
    if (encode == NULL || encode(&m->w, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, (void *)w, dim,
        stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != 0)
        return -ENOTSUP;
    if (scales == 0 || encode(&m->scale, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
        (void *)scale, s_dim, s_stride, s_box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == 0)
        return 0;
    return -ENOTSUP;
}

size_t
mega_attention_scratch(int T, int K, int D, int n_proc)
{
    return (size_t)(n_proc + T * K) * (D == 64 ? sizeof(struct att_part<64>) :
        sizeof(struct att_part<128>));
}

typedef void (*mega_fn)(const struct mega_list);

static const struct {
    enum fdk_dtype type;
    int D;
    mega_fn kernel;
} kernels[] = {
    { FDK_I8, 64, mega_kernel<FDK_I8, 64> },
    { FDK_I8, 128, mega_kernel<FDK_I8, 128> },
    { FDK_F8E4M3, 64, mega_kernel<FDK_F8E4M3, 64> },
    { FDK_F8E4M3, 128, mega_kernel<FDK_F8E4M3, 128> },
};
#define N_KERNEL (sizeof(kernels) / sizeof(kernels[0]))

cudaError_t
mega_launch(const struct mega_list *l, int n_proc, cudaStream_t s)
{
    cudaLaunchAttribute at = {};
    at.id = cudaLaunchAttributeCooperative;
    at.val.cooperative = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)n_proc);
    c.blockDim = dim3(MEGA_THREADS + 32);
    c.dynamicSmemBytes = sizeof(struct mega_shared);
    c.stream = s;
    c.attrs = &at;
    c.numAttrs = 1;
    for (size_t i = 0; i < N_KERNEL; i++)
        if (kernels[i].type == l->type && kernels[i].D == l->kv.head_dim)
            return cudaLaunchKernelEx(&c, kernels[i].kernel, *l);
    return cudaErrorInvalidValue;
}

int
mega_kernel_fits(int dev)
{
    int n = 0, together = 0;
    cudaError_t e = cudaDeviceGetAttribute(&together, cudaDevAttrCooperativeLaunch, dev);
    for (size_t i = 0; i < N_KERNEL && e == cudaSuccess && together; i++) {
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, kernels[i].kernel,
            MEGA_THREADS + 32, sizeof(struct mega_shared));
        if (n < 1)
            break;
    }
    (void)cudaGetLastError();
    return e == cudaSuccess && n >= 1;
}

cudaError_t
mega_kernel_load(void)
{
    cudaError_t e = cu_find_encode(&encode);
    for (size_t i = 0; i < N_KERNEL && e == cudaSuccess; i++)
        e = cudaFuncSetAttribute((const void *)kernels[i].kernel,
            cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(struct mega_shared));
    return e;
}
