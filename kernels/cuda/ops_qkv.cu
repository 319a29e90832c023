/*
 * Rotary tables, and query and key norms, rotation and the KV write: one
 * block per token, one warp per head.
 */
#include "kernels/cuda/kv.cuh"

#define QKV_WARPS 8

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
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    float *cs = a.cs + (size_t)t * (size_t)a.rot;
    for (int i = (int)threadIdx.x; i < half; i += (int)blockDim.x) {
        float angle = __fmul_rn((float)b.pos[t], a.inv_freq[i]);
        cs[i] = cosf(angle) * a.scale;
        cs[half + i] = sinf(angle) * a.scale;
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
    rope_table_kernel<<<(unsigned)a->T, 64, 0, cu_raw(st)>>>(*a, *a->b);
    return cu_launched(st, "rope_table");
}

/* x: the head's vector in shared memory, this warp's own. Halves of the first
 * rot numbers are the real and imaginary parts. */
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

/* As integers, so that NaN is largest and shows in the scale. */
static __device__ float
largest(const float *x, int n, int lane)
{
    uint32_t m = 0;
    for (int i = lane; i < n; i += 32)
        m = max(m, __float_as_uint(x[i]) & 0x7fffffffu);
    return __uint_as_float(__reduce_max_sync(0xffffffffu, m));
}

/* Write the head's vector of token slot: which = 0 for keys, 1 for values. */
template<typename E>
static __device__ void
kv_write(const struct fdk_qkv_args &a, const float *x, int slot, int head, int which,
    int lane)
{
    const struct fdk_kv &kv = a.kv;
    int off = slot % kv.block_size;
    char *layer = kv_layer(kv, slot / kv.block_size, a.layer);
    E *dst = (E *)(layer + (which ? kv.v_bytes : 0)) +
        ((size_t)head * (size_t)kv.block_size + (size_t)off) * (size_t)a.D;
    float scale = 1;
    if (sizeof(E) == 1 && kv.dtype == FDK_I8) {
        scale = largest(x, a.D, lane) / 127.0f;
        if (lane == 0)
            *kv_token_scale(kv, layer, which, head, off) = scale;
    } else if (sizeof(E) == 1) {
        scale = kv_head_scale(kv, a.layer, which, head);
    }
    for (int i = lane; i < a.D; i += 32)
        dst[i] = kv_narrow<E>(x[i], scale);
}

template<typename E>
static __global__ void
qkv_kernel(struct fdk_qkv_args a, struct fdk_batch b)
{
    __shared__ float buf[QKV_WARPS][CU_MAX_HEAD_DIM];
    int t = (int)blockIdx.x, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(b.n_tok, a.T))
        return;
    float *row = a.qkv + (size_t)t * (size_t)(a.H + 2 * a.K) * (size_t)a.D;
    const float *cs = a.cs + (size_t)t * (size_t)a.rot;
    float *x = buf[warp];
    int slot = b.slot_map[t];
    int heads = slot < 0 ? a.H : a.H + 2 * a.K;
    int h = (int)blockIdx.y * QKV_WARPS + warp;
    if (h < heads) {
        float *src = row + (size_t)h * (size_t)a.D;
        for (int i = lane; i < a.D; i += 32)
            x[i] = src[i];
        __syncwarp();
        if (h < a.H) {
            rotate(x, a.q_norm, cs, a, lane);
            for (int i = lane; i < a.D; i += 32)
                src[i] = x[i];
        } else if (h < a.H + a.K) {
            rotate(x, a.k_norm, cs, a, lane);
            kv_write<E>(a, x, slot, h - a.H, 0, lane);
        } else {
            kv_write<E>(a, x, slot, h - a.H - a.K, 1, lane);
        }
    }
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
    if (rc != 0)
        return rc;
    unsigned threads = QKV_WARPS * 32;
    dim3 n((unsigned)a->T, ((unsigned)(a->H + 2 * a->K) + QKV_WARPS - 1) / QKV_WARPS);
    cudaStream_t s = cu_raw(st);
    if (a->kv.dtype == FDK_F32)
        cu_chain(qkv_kernel<float>, n, threads, 0, s, *a, *a->b);
    else if (a->kv.dtype == FDK_BF16)
        cu_chain(qkv_kernel<__nv_bfloat16>, n, threads, 0, s, *a, *a->b);
    else if (a->kv.dtype == FDK_I8)
        cu_chain(qkv_kernel<int8_t>, n, threads, 0, s, *a, *a->b);
    else
        cu_chain(qkv_kernel<__nv_fp8_e4m3>, n, threads, 0, s, *a, *a->b);
    return cu_launched(st, "qkv");
}

cudaError_t
cu_qkv_load(void)
{
    const void *const k[] = {
        (const void *)rope_table_kernel, (const void *)qkv_kernel<float>,
        (const void *)qkv_kernel<__nv_bfloat16>, (const void *)qkv_kernel<int8_t>,
        (const void *)qkv_kernel<__nv_fp8_e4m3>,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}
