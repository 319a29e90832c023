/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The megakernel for a single-token decode (mega.cuh). A cooperative launch ensures that
 * all of its blocks are resident.
 */
#include "kernels/cuda/sm90/mega_attention.cuh"

struct mega_shared {
    struct mega_ring ring;
    __align__(16) float sums[2][ROUND * SUMS];
    __align__(16) struct mega_layer layer[2]; /* current and next layer */
    struct att_place place;
    struct mega_meet meet;
    float part[MEGA_WARPS];
    unsigned char *x;            /* input of a GEMM, or struct att_room */
};
#define SHARED_MOST 232448       /* shared memory of a block */

/* Shared memory: the stages of the ring, their scales, struct mega_shared, x. */
static __host__ __device__ constexpr int
shared_offset(int depth, int scaled)
{
    return depth * 2 * (HALF + (scaled ? SCALES * 4 : 0));
}

/* Offset of x, whose size is x_most(). */
static __host__ __device__ constexpr int
x_offset(int depth, int scaled)
{
    return shared_offset(depth, scaled) + (int)sizeof(struct mega_shared);
}
static_assert(sizeof(struct mega_shared) % 16 == 0 &&
    x_offset(DEPTH_LEAST, 1) + MEGA_X_BYTES <= SHARED_MOST, "fits");

static int
x_most(const struct mega_list *l)
{
    int n = att_room_bytes(l->group, l->D);
    for (int i = 0; i < MEGA_PRODUCTS; i++)
        n = max(n, mega_x_bytes(l->type, l->shape[i].K));
    return n;
}

void
mega_room_divide(struct mega_list *l)
{
    l->scaled = 0;
    for (int i = 0; i < MEGA_PRODUCTS; i++)
        l->scaled |= l->shape[i].scaled;
    l->depth = DEPTH_MOST;
    while (l->depth > DEPTH_LEAST && x_offset(l->depth, l->scaled) + x_most(l) > SHARED_MOST)
        l->depth--;
}

/* Copies the arguments of layer i to shared memory. A barrier must follow. */
static __device__ __forceinline__ void
fetch_layer(const struct mega_list &l, struct mega_shared *s, int i)
{
    const uint32_t *from = (const uint32_t *)&l.layer[i];
    if (threadIdx.x < sizeof(struct mega_layer) / 4)
        ((uint32_t *)&s->layer[i & 1])[threadIdx.x] = from[threadIdx.x];
}

/* Location of the packets of layer i; i -1: none. */
template<bool RANKS>
static __device__ __forceinline__ struct meet_at
meet_of(const struct mega_shared *s, uint32_t met, int i, int sum)
{
    struct meet_at m = { RANKS && i >= 0 ? &s->meet : NULL, met + 1 + (uint32_t)i, sum };
    return m;
}

/* The norm before product p of layer i. */
template<bool RANKS>
static __device__ __forceinline__ struct norm_of
norm_before(const struct mega_list &l, const struct mega_shared *s, int i,
    enum mega_product p, const struct words &w, uint32_t met)
{
    const struct mega_layer &y = s->layer[i & 1];
    const int first = i == 0 && p == MEGA_QKV;
    float *mine = l.state->x[blockIdx.x];
    struct norm_of n;
    n.from = first ? l.x : mine;
    n.add = first ? (const uint4 *)l.add : NULL;
    n.words = words_of(l, p == MEGA_QKV ? w.epoch - 1 : w.epoch, !RANKS);
    n.at = first ? -1 : p == MEGA_QKV ? l.at.down : l.at.o;
    n.meet = meet_of<RANKS>(s, met, p == MEGA_QKV ? i - 1 : i, p == MEGA_QKV);
    n.to = mine;
    n.weight = y.norm[p == MEGA_GU];
    return n;
}

/* Prepares the input of GEMM p in s->x. */
template<int W, bool RANKS>
static __device__ __forceinline__ void
input(const struct mega_list &l, struct mega_shared *s, int i, enum mega_product p,
    const struct words &w, uint32_t met)
{
    if (p == MEGA_QKV || p == MEGA_GU)
        x_norm<W, RANKS>(s->x, norm_before<RANKS>(l, s, i, p, w, met), l.C, l.eps, s->part);
    else if ((int)blockIdx.x < l.shape[p].N / 16)
        x_take<W>(s->x, w, p == MEGA_O ? l.at.att : l.at.hidden, l.shape[p].K);
}

/* Destination of the results of GEMM p. */
template<bool RANKS>
static __device__ __forceinline__ struct gemm_to
output(const struct mega_list &l, const struct mega_shared *s, int i, enum mega_product p,
    const struct words &w, uint32_t met)
{
    const int at = p == MEGA_QKV ? l.at.qkv : p == MEGA_O ? l.at.o : p == MEGA_GU ?
        l.at.hidden : l.at.down;
    struct gemm_to to = { w, at, p == MEGA_DOWN && i + 1 == l.n ? l.y : NULL,
        meet_of<RANKS>(s, met, p == MEGA_O || p == MEGA_DOWN ? i : -1, p == MEGA_DOWN) };
    return to;
}

/* Sets the room of rank q, and for q = 0 the other members; a barrier must follow. */
static __device__ __forceinline__ void
meet_begin(struct mega_meet *m, const struct mega_list &l, int q)
{
    m->room[q] = q < l.space.n ? (struct mega_room *)(l.space.base[q] + l.room_at) : NULL;
    if (q != 0)
        return;
    m->space = &l.space;
    m->claim = l.claim;
    m->n = l.space.n;
    m->rank = l.space.rank;
}

/* The consumer warps: all layers. */
template<int W, int D, bool RANKS>
static __device__ __forceinline__ void
run_all(const struct mega_list &l, struct mega_shared *s)
{
    const uint32_t before = *(volatile uint32_t *)&l.state->epoch;
    const uint32_t met = RANKS ?
        *(volatile uint32_t *)&s->meet.room[s->meet.rank]->epoch : 0;
    struct ring_at at = { { 0, 0 }, in_register(l.depth) };
    int turn = 0;
    fetch_layer(l, s, 0);
    att_place_find(s->place, l);
#pragma unroll 1
    for (int j = 0; j < l.n * MEGA_PRODUCTS; j++) {
        const enum mega_product p = (enum mega_product)(j % MEGA_PRODUCTS);
        const int i = j / MEGA_PRODUCTS;
        const struct words w = words_of(l, before + 1 + (uint32_t)i, !RANKS);
        if (p == MEGA_QKV)
            att_prefetch(s->place, l, s->layer[i & 1].kv_layer);
        if (p == MEGA_GU && i + 1 < l.n)
            fetch_layer(l, s, i + 1);
        input<W, RANKS>(l, s, i, p, w, met);
        ring_waits(&s->ring, 0);
        mega_run_product<W, RANKS>(s->layer[i & 1].m[p], l.shape[p], p == MEGA_GU, &s->ring,
            at, s->x, s->sums, turn, output<RANKS>(l, s, i, p, w, met));
        ring_waits(&s->ring, 1);
        if (p == MEGA_QKV)
            mega_run_attention<D>((struct att_room<D> *)s->x, s->place, l,
                s->layer[i & 1], w);
    }
    if (blockIdx.x != 0)
        return;
    /* All blocks have contributed to the last layer, so they have read `before` and x. */
    for (int i = (int)threadIdx.x; i < l.C; i += MEGA_THREADS)
        l.x[i] = l.state->x[0][i];
    if (threadIdx.x == 0) {
        l.state->epoch = before + (uint32_t)l.n;
        if (RANKS)
            s->meet.room[s->meet.rank]->epoch = met + (uint32_t)l.n;
        atomicAdd(l.n_done, (uint32_t)(l.n * max(0, min(l.n_work_max, *l.n_work))));
    }
}

template<int W, int D, bool RANKS>
static __global__ void __launch_bounds__(MEGA_THREADS + 32, 1)
mega_kernel(const __grid_constant__ struct mega_list l)
{
    struct mega_shared *s = (struct mega_shared *)(mega_memory +
        shared_offset(l.depth, l.scaled));
    if (*l.b.n_tok < 1)
        return;
    if (threadIdx.x == 0) {
        s->x = mega_memory + x_offset(l.depth, l.scaled);
        ring_start(&s->ring, (float *)(mega_memory + l.depth * 2 * HALF));
    }
    if (RANKS && threadIdx.x < MEGA_RANKS)
        meet_begin(&s->meet, l, (int)threadIdx.x);
    __syncthreads();
    if (threadIdx.x < MEGA_THREADS)
        run_all<W, D, RANKS>(l, s);
    else if (threadIdx.x == MEGA_THREADS)
        ring_feed<W>(l, &s->ring);
}

static cu_encode_fn encode;          /* cuTensorMapEncodeTiled; written once, by load */

int
mega_maps_make(struct mega_maps *m, const void *w, const float *scale, int N, int K,
    int type, int scaled, int rows)
{
    const cuuint64_t chunks = (cuuint64_t)(K / mega_chunk(type)), row = 128 * chunks;
    const cuuint64_t dim[3] = { 128, (cuuint64_t)N, chunks }, stride[2] = { row, 128 };
    const cuuint32_t box[3] = { 128, (cuuint32_t)rows, MEGA_WARPS }, one[3] = { 1, 1, 1 };
    const cuuint64_t s_dim[2] = { (cuuint64_t)K / 128, (cuuint64_t)N };
    const cuuint64_t s_stride[1] = { (cuuint64_t)K / 128 * 4 };
    const cuuint32_t s_box[2] = { (cuuint32_t)(MEGA_WARPS * mega_chunk(type) / 128), box[1] };
    if (cu_make_map(encode, &m->w, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, (void *)w, dim,
        stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != 0)
        return -ENOTSUP;
    if (scaled == 0 || cu_make_map(encode, &m->scale, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
        (void *)scale, s_dim, s_stride, s_box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
        type == FDK_I4 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == 0)
        return 0;
    return -ENOTSUP;
}

typedef void (*mega_fn)(const struct mega_list);

#define OF(type, D) { type, D, { mega_kernel<type, D, false>, mega_kernel<type, D, true> } }
static const struct {
    enum fdk_dtype type;
    int D;
    mega_fn kernel[2];               /* for one rank; for several ranks */
} kernels[] = {
    OF(FDK_BF16, 64), OF(FDK_BF16, 128), OF(FDK_F8E4M3, 64), OF(FDK_F8E4M3, 128),
    OF(FDK_I8, 64), OF(FDK_I8, 128), OF(FDK_I4, 64), OF(FDK_I4, 128),
};
#define N_KERNEL (sizeof(kernels) / sizeof(kernels[0]))

cudaError_t
mega_launch(const struct mega_list *l, int n_block, cudaStream_t s)
{
    cudaLaunchAttribute at = {};
    at.id = cudaLaunchAttributeCooperative;
    at.val.cooperative = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)n_block);
    c.blockDim = dim3(MEGA_THREADS + 32);
    c.dynamicSmemBytes = (size_t)(x_offset(l->depth, l->scaled) + x_most(l));
    c.stream = s;
    c.attrs = &at;
    c.numAttrs = 1;
    for (size_t i = 0; i < N_KERNEL; i++)
        if (kernels[i].type == l->type && kernels[i].D == l->D)
            return cudaLaunchKernelEx(&c, kernels[i].kernel[l->space.n > 0], *l);
    return cudaErrorInvalidValue;
}

int
mega_kernel_fits(int dev)
{
    int n = 0, together = 0;
    cudaError_t e = cudaDeviceGetAttribute(&together, cudaDevAttrCooperativeLaunch, dev);
    for (size_t i = 0; i < 2 * N_KERNEL && e == cudaSuccess && together; i++) {
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, kernels[i / 2].kernel[i % 2],
            MEGA_THREADS + 32, SHARED_MOST);
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
    for (size_t i = 0; i < 2 * N_KERNEL && e == cudaSuccess; i++)
        e = cudaFuncSetAttribute((const void *)kernels[i / 2].kernel[i % 2],
            cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MOST);
    return e;
}
