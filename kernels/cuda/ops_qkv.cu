/*
 * Rotary tables, and query and key norms, rotation and the KV write. A head's
 * vector is eight numbers of each lane of a group of lanes; head dimensions that
 * do not fit that have a warp per head and their vector in shared memory.
 */
#include "kernels/cuda/kv.cuh"
#include "kernels/cuda/vec8.cuh"

#define QKV_WARPS   8
#define QKV_THREADS 128
/* From here on a group of lanes takes several heads of a token with the same cos
 * and sin. */
#define QKV_TOKENS  264
#define QKV_HEADS   6

int
cu_kv_valid(const struct fdk_kv *kv, int T, int H, int K, int D, int layer)
{
    if (T <= 0 || H <= 0 || K <= 0 || D <= 0 || H % K != 0 || kv->base == NULL ||
        kv->block_size <= 0 || kv->n_kv_head != K || kv->head_dim != D || layer < 0)
        return -EINVAL;
    if (D > CU_MAX_HEAD_DIM)
        return -ENOTSUP;
    if (kv->dtype != FDK_F32 && kv->dtype != FDK_BF16 && kv->dtype != FDK_I8 &&
        kv->dtype != FDK_F8E4M3)
        return (unsigned)kv->dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    uint64_t tokens = (uint64_t)K * (uint64_t)kv->block_size;
    uint64_t half = tokens * (uint64_t)D * fdk_dtype_bytes(kv->dtype);
    if (kv->v_bytes < half || kv->layer_bytes < kv->v_bytes + half ||
        kv->block_bytes < kv->layer_bytes)
        return -EINVAL;
    /* Vectors that are whole multiples of 16 bytes are read so. */
    if ((uint64_t)D * fdk_dtype_bytes(kv->dtype) % 16 == 0 &&
        ((uintptr_t)kv->base | kv->block_bytes | kv->layer_bytes | kv->v_bytes) % 16 != 0)
        return -ENOTSUP;
    if (kv->dtype == FDK_I8 && (kv->k_scale_off % 4 != 0 || kv->v_scale_off % 4 != 0 ||
        kv->k_scale_off + 4 * tokens > kv->layer_bytes ||
        kv->v_scale_off + 4 * tokens > kv->layer_bytes))
        return -EINVAL;
    return 0;
}

static __global__ void
rope_table_kernel(struct fdk_rope_table_args a, struct fdk_batch b)
{
    int t = (int)blockIdx.x, half = a.rot / 2;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    float *cs = a.cs + (size_t)t * (size_t)a.rot;
    for (int i = (int)threadIdx.x; i < half; i += (int)blockDim.x) {
        float sin, cos;
        sincosf(__fmul_rn((float)b.pos[t], a.inv_freq[i]), &sin, &cos);
        cs[i] = cos * a.scale;
        cs[half + i] = sin * a.scale;
    }
}

int
cu_rope_table(const struct fdk_rope_table_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->rot <= 0 || a->rot % 2 != 0 || a->cs == NULL ||
        a->inv_freq == NULL || a->b == NULL)
        return -EINVAL;
    cu_chain(rope_table_kernel, dim3((unsigned)a->T), 64, 0, cu_raw(st), *a, *a->b);
    return cu_launched(st, "rope_table");
}

/* Where the head's vector of token slot is kept: which = 0 for keys, 1 for values. */
template<typename E>
static __device__ __forceinline__ E *
kv_at(const struct fdk_qkv_args &a, int slot, int head, int which, float **ret_scale)
{
    const struct fdk_kv &kv = a.kv;
    int off = slot % kv.block_size;
    char *layer = kv_layer(kv, slot / kv.block_size, a.layer);
    *ret_scale = kv_token_scale(kv, layer, which, head, off);
    return (E *)(layer + (which ? kv.v_bytes : 0)) +
        ((size_t)head * (size_t)kv.block_size + (size_t)off) * (size_t)a.D;
}

/* ---- a group of lanes per head ------------------------------------------- */

struct lanes {
    int n;                       /* lanes of a group: 1, 2, 4 .. 32 */
    int at;                      /* this one's place in it */
    int used;                    /* D / 8: the others hold zeros */
    int half;                    /* rot / 16 */
};

/* Over the lanes of the group, the same in each. */
static __device__ __forceinline__ float
lanes_sum(const struct lanes &g, float x)
{
    for (int i = g.n / 2; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

/* As integers, so that NaN is largest and shows in the scale. */
static __device__ __forceinline__ float
lanes_largest(const struct lanes &g, const float v[8])
{
    uint32_t m = 0;
#pragma unroll
    for (int k = 0; k < 8; k++)
        m = max(m, __float_as_uint(v[k]) & 0x7fffffffu);
    for (int i = g.n / 2; i > 0; i /= 2)
        m = max(m, __shfl_xor_sync(0xffffffffu, m, i));
    return __uint_as_float(m);
}

/* norm: the head's weights; NULL for none, though other groups of the warp have. */
static __device__ __forceinline__ void
lanes_norm(const struct lanes &g, const struct fdk_qkv_args &a, const float *norm,
    float v[8])
{
    float sum = 0, w[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
        sum = fmaf(v[k], v[k], sum);
    float inv = 1.0f / sqrtf(lanes_sum(g, sum) / (float)a.D + a.eps);
    if (norm == NULL || g.at >= g.used)
        return;
    cu_widen8(cu_load8(norm, (size_t)g.at), w);
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = w[k] * (v[k] * inv);
}

/* Halves of the first rot numbers are the real and imaginary parts: the other
 * part of a pair is with the lane half a rotation away. turn: not a value. */
static __device__ __forceinline__ void
lanes_rotate(const struct lanes &g, const struct cu_raw8<float> cs[2], int turn,
    float v[8])
{
    int real = g.at < g.half, rotated = g.at < 2 * g.half;
    int other = !rotated ? g.at : real ? g.at + g.half : g.at - g.half;
    float c[8], s[8];
    cu_widen8(cs[0], c);
    cu_widen8(cs[1], s);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float o = __shfl_sync(0xffffffffu, v[k], other, g.n);
        float r = __fmul_rn(o, s[k]);
        if (turn && rotated)
            v[k] = fmaf(v[k], c[k], real ? -r : r);
    }
}

/* cos and sin of the pairs that this lane holds a part of. */
static __device__ __forceinline__ void
lanes_cs(const struct lanes &g, const struct fdk_qkv_args &a, int t,
    struct cu_raw8<float> ret[2])
{
    const float *cs = a.cs + (size_t)t * (size_t)a.rot;
    int i = g.at < g.half ? g.at : g.at - g.half;
    ret[0] = ret[1] = cu_zero8<float>();
    if (g.at < 2 * g.half) {
        ret[0] = cu_load8(cs, (size_t)i);
        ret[1] = cu_load8(cs, (size_t)(g.half + i));
    }
}

static __device__ __forceinline__ void
kv_put8(float *p, int i, const float v[8], float scale)
{
    (void)scale;
    cu_store8(p, (size_t)i, v);
}

static __device__ __forceinline__ void
kv_put8(__nv_bfloat16 *p, int i, const float v[8], float scale)
{
    (void)scale;
    cu_store8(p, (size_t)i, v);
}

template<typename E>
static __device__ __forceinline__ void
kv_put8(E *p, int i, const float v[8], float scale)
{
    __align__(8) E e[8];
    static_assert(sizeof(e) == 8, "bytes");
#pragma unroll
    for (int k = 0; k < 8; k++)
        e[k] = kv_narrow<E>(v[k], scale);
    ((uint2 *)p)[i] = *reinterpret_cast<const uint2 *>(e);
}

template<typename E>
static __device__ __forceinline__ void
lanes_kv(const struct lanes &g, const struct fdk_qkv_args &a, const float v[8], int slot,
    int head, int which, int write)
{
    float scale = 1, *token_scale;
    E *dst = kv_at<E>(a, slot, head, which, &token_scale);
    if (sizeof(E) == 1 && a.kv.dtype == FDK_I8) {
        scale = lanes_largest(g, v) / 127.0f;
        if (write && g.at == 0)
            *token_scale = scale;
    } else if (sizeof(E) == 1) {
        scale = kv_head_scale(a.kv, a.layer, which, head);
    }
    if (write)
        kv_put8(dst, g.at, v, scale);
}

/* One head of each group, all lanes of the warp together: one group may hold a
 * query beside another's key. dead: a group without a head. */
template<typename A, typename E>
static __device__ __forceinline__ void
lanes_head(const struct lanes &g, const struct fdk_qkv_args &a, A *row, int h, int slot,
    const struct cu_raw8<A> &raw, const struct cu_raw8<float> cs[2], int dead)
{
    float v[8];
    int value = h >= a.H + a.K, write = !dead && g.at < g.used;
    cu_widen8(raw, v);
    if (a.q_norm != NULL || a.k_norm != NULL)
        lanes_norm(g, a, h < a.H ? a.q_norm : value ? NULL : a.k_norm, v);
    lanes_rotate(g, cs, !value, v);
    if (write && h < a.H)
        cu_store8(row + (size_t)h * (size_t)a.D, (size_t)g.at, v);
    if (slot < 0 || !__any_sync(0xffffffffu, h >= a.H))
        return;
    int head = dead || h < a.H ? 0 : value ? h - a.H - a.K : h - a.H;
    lanes_kv<E>(g, a, v, slot, head, value, write && h >= a.H);
}

/* Each group takes heads first, first + step, ...; the next one's vector is asked
 * for while this one's is rotated. */
template<typename A, typename E>
static __global__ void __launch_bounds__(QKV_THREADS)
qkv_vectors(struct fdk_qkv_args a, struct fdk_batch b, int n_lane)
{
    struct lanes g = { n_lane, (int)threadIdx.x % n_lane, a.D / 8, a.rot / 16 };
    int t = (int)blockIdx.x, groups = QKV_THREADS / n_lane;
    int h = (int)blockIdx.y * groups + (int)threadIdx.x / n_lane;
    int step = groups * (int)gridDim.y, rest = (int)threadIdx.x / n_lane;
    A *row = (A *)a.qkv + (size_t)t * (size_t)(a.H + 2 * a.K) * (size_t)a.D;
    struct cu_raw8<float> cs[2];
    cu_dep_next();
    if (a.q_norm != NULL && g.at < g.used)
        cu_prefetch(a.q_norm + 8 * g.at);
    if (a.k_norm != NULL && g.at < g.used)
        cu_prefetch(a.k_norm + 8 * g.at);
    cu_dep_wait();
    int live = cu_clip(b.n_tok, a.T), all = a.H + 2 * a.K;
    if (a.T >= QKV_TOKENS && t >= live)
        return;
    struct cu_raw8<A> raw = cu_zero8<A>();
    if (h < all && g.at < g.used)
        raw = cu_load8(row + (size_t)h * (size_t)a.D, (size_t)g.at);
    lanes_cs(g, a, t, cs);
    if (t >= live)
        return;
    int slot = b.slot_map[t];
    if (slot < 0)
        all = a.H;
    for (; h - rest < all; h += step) {
        struct cu_raw8<A> next = cu_zero8<A>();
        if (h + step < all && g.at < g.used)
            next = cu_load8(row + (size_t)(h + step) * (size_t)a.D, (size_t)g.at);
        lanes_head<A, E>(g, a, row, h, slot, raw, cs, h >= all);
        raw = next;
    }
}

/* ---- a warp per head ----------------------------------------------------- */

/* x: the head's vector in shared memory, this warp's own. */
static __device__ void
rotate(float *x, const float *norm, const float *cs, const struct fdk_qkv_args &a,
    int lane)
{
    int half = a.rot / 2;
    if (norm != NULL) {
        float sum = 0;
        for (int i = lane; i < a.D; i += 32)
            sum = fmaf(x[i], x[i], sum);
        float inv = 1.0f / sqrtf(cu_warp_sum(sum) / (float)a.D + a.eps);
        for (int i = lane; i < a.D; i += 32)
            x[i] = norm[i] * (x[i] * inv);
        __syncwarp();
    }
    for (int i = lane; i < half; i += 32) {
        float re = x[i], im = x[half + i], c = cs[i], s = cs[half + i];
        x[i] = fmaf(re, c, -__fmul_rn(im, s));
        x[half + i] = fmaf(im, c, __fmul_rn(re, s));
    }
    __syncwarp();
}

static __device__ float
largest(const float *x, int n, int lane)
{
    uint32_t m = 0;
    for (int i = lane; i < n; i += 32)
        m = max(m, __float_as_uint(x[i]) & 0x7fffffffu);
    return __uint_as_float(__reduce_max_sync(0xffffffffu, m));
}

template<typename E>
static __device__ void
kv_write(const struct fdk_qkv_args &a, const float *x, int slot, int head, int which,
    int lane)
{
    float scale = 1, *token_scale;
    E *dst = kv_at<E>(a, slot, head, which, &token_scale);
    if (sizeof(E) == 1 && a.kv.dtype == FDK_I8) {
        scale = largest(x, a.D, lane) / 127.0f;
        if (lane == 0)
            *token_scale = scale;
    } else if (sizeof(E) == 1) {
        scale = kv_head_scale(a.kv, a.layer, which, head);
    }
    for (int i = lane; i < a.D; i += 32)
        dst[i] = kv_narrow<E>(x[i], scale);
}

template<typename A, typename E>
static __global__ void __launch_bounds__(QKV_WARPS * 32)
qkv_kernel(struct fdk_qkv_args a, struct fdk_batch b)
{
    __shared__ float buf[QKV_WARPS][CU_MAX_HEAD_DIM];
    int t = (int)blockIdx.x, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    A *row = (A *)a.qkv + (size_t)t * (size_t)(a.H + 2 * a.K) * (size_t)a.D;
    const float *cs = a.cs + (size_t)t * (size_t)a.rot;
    float *x = buf[warp];
    int slot = b.slot_map[t];
    int heads = slot < 0 ? a.H : a.H + 2 * a.K;
    int h = (int)blockIdx.y * QKV_WARPS + warp;
    if (h >= heads)
        return;
    A *src = row + (size_t)h * (size_t)a.D;
    for (int i = lane; i < a.D; i += 32)
        x[i] = cu_widen(src[i]);
    __syncwarp();
    if (h < a.H) {
        rotate(x, a.q_norm, cs, a, lane);
        for (int i = lane; i < a.D; i += 32)
            cu_round(&src[i], x[i]);
    } else if (h < a.H + a.K) {
        rotate(x, a.k_norm, cs, a, lane);
        kv_write<E>(a, x, slot, h - a.H, 0, lane);
    } else {
        kv_write<E>(a, x, slot, h - a.H - a.K, 1, lane);
    }
}

/* ---- launching ----------------------------------------------------------- */

/* Lanes of a group, or 0: this shape has a warp per head. Nothing here depends
 * on T. */
static int
group_lanes(const struct fdk_qkv_args *a)
{
    int n = 1;
    if (a->D % 8 != 0 || a->rot % 16 != 0 || !cu_aligned(a->qkv, a->q_norm, a->k_norm,
        a->cs) || (size_t)a->D * fdk_dtype_bytes(a->kv.dtype) % 16 != 0)
        return 0;
    while (n < a->D / 8)
        n *= 2;
    return n;
}

template<typename A, typename E>
static void
qkv_launch(const struct fdk_qkv_args *a, cudaStream_t s)
{
    unsigned heads = (unsigned)(a->H + 2 * a->K), T = (unsigned)a->T, parts;
    int n = group_lanes(a);
    if (n == 0) {
        cu_chain(qkv_kernel<A, E>, dim3(T, (heads + QKV_WARPS - 1) / QKV_WARPS),
            QKV_WARPS * 32, 0, s, *a, *a->b);
        return;
    }
    parts = (heads * (unsigned)n + QKV_THREADS - 1) / QKV_THREADS;
    if (a->T >= QKV_TOKENS)
        parts = (parts + QKV_HEADS - 1) / QKV_HEADS;
    cu_chain(qkv_vectors<A, E>, dim3(T, parts), QKV_THREADS, 0, s, *a, *a->b, n);
}

template<typename A>
static void
qkv_dispatch(const struct fdk_qkv_args *a, cudaStream_t s)
{
    if (a->kv.dtype == FDK_F32)
        qkv_launch<A, float>(a, s);
    else if (a->kv.dtype == FDK_BF16)
        qkv_launch<A, __nv_bfloat16>(a, s);
    else if (a->kv.dtype == FDK_I8)
        qkv_launch<A, int8_t>(a, s);
    else
        qkv_launch<A, __nv_fp8_e4m3>(a, s);
}

int
cu_qkv(const struct fdk_qkv_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->rot < 0 || a->rot > a->D || a->rot % 2 != 0 || a->qkv == NULL ||
        (a->rot != 0 && a->cs == NULL) || a->b == NULL)
        return -EINVAL;
    rc = cu_kv_valid(&a->kv, a->T, a->H, a->K, a->D, a->layer);
    if (rc == 0)
        rc = cu_act_valid(a->act);
    if (rc != 0)
        return rc;
    if (a->act == FDK_F32)
        qkv_dispatch<float>(a, cu_raw(st));
    else
        qkv_dispatch<__nv_bfloat16>(a, cu_raw(st));
    return cu_launched(st, "qkv");
}

template<typename A>
static cudaError_t
act_load(void)
{
    const void *const k[] = {
        (const void *)qkv_kernel<A, float>, (const void *)qkv_vectors<A, float>,
        (const void *)qkv_kernel<A, __nv_bfloat16>,
        (const void *)qkv_vectors<A, __nv_bfloat16>,
        (const void *)qkv_kernel<A, int8_t>, (const void *)qkv_vectors<A, int8_t>,
        (const void *)qkv_kernel<A, __nv_fp8_e4m3>,
        (const void *)qkv_vectors<A, __nv_fp8_e4m3>,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}

cudaError_t
cu_qkv_load(void)
{
    const void *const k[] = { (const void *)rope_table_kernel };
    cudaError_t e = cu_load(k, 1);
    if (e == cudaSuccess)
        e = act_load<float>();
    return e != cudaSuccess ? e : act_load<__nv_bfloat16>();
}
