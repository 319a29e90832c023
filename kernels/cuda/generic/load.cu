/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading of weights: converted to fp32, quantized, or random. Every result has
 * the bits that the loader computes on the host (fdk_to_f32(), kernels/cpu/pack.c,
 * daemon/worker: wts_dummy_fill()), so each arithmetic step specifies its rounding.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#define THREADS 256
#define INF_BITS 0x7f800000u
#define DUMMY_BLOCK 2048         /* elements that share a hashed key */
#define MAX_BLOCKS 0x7fffffff

/* ---- 16-bit floats, by their bits: the bits of a NaN are kept -------------- */

static __device__ __forceinline__ uint32_t
f16_bits(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31)
        return sign | INF_BITS | m << 13;
    if (e != 0)
        return sign | (e + 112) << 23 | m << 13;
    return sign | __float_as_uint(__fmul_rn((float)m, 0x1p-24f));
}

static __device__ __forceinline__ uint32_t
bits_at(const void *x, uint64_t i, enum fdk_dtype t)
{
    if (t == FDK_F32)
        return ((const uint32_t *)x)[i];
    uint16_t h = ((const uint16_t *)x)[i];
    return t == FDK_BF16 ? (uint32_t)h << 16 : f16_bits(h);
}

static __global__ void __launch_bounds__(THREADS)
widen_kernel(uint32_t *y, const void *x, uint64_t n, enum fdk_dtype t)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
        y[i] = bits_at(x, i, t);
}

/* Converts the `cols` elements from x_at on of rows of x_cols; a block has every
 * gridDim-th row. */
static __global__ void __launch_bounds__(THREADS)
widen_window_kernel(uint32_t *y, const void *x, int64_t rows, int32_t cols, int32_t x_cols,
    int32_t x_at, enum fdk_dtype t)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (int32_t i = (int32_t)threadIdx.x; i < cols; i += THREADS)
            y[(uint64_t)r * (uint64_t)cols + (uint64_t)i] =
                bits_at(x, (uint64_t)r * (uint64_t)x_cols + (uint64_t)(x_at + i), t);
}

static int
widen_weights(const struct fdk_pack_args *a, fdk_stream_t st)
{
    uint32_t *y = (uint32_t *)fdk_weight_at(&a->w, FDK_PACK_VALUES, a->first);
    int32_t cols = a->w.cols, x_cols = fdk_pack_x_cols(a);
    uint64_t n = (uint64_t)a->n * (uint64_t)cols, blocks = (n - 1) / THREADS + 1;
    if (x_cols != cols)
        widen_window_kernel<<<a->n < 4096 ? (unsigned)a->n : 4096u, THREADS, 0,
            cu_raw(st)>>>(y, a->x, a->n, cols, x_cols, a->x_at, a->x_dtype);
    else
        widen_kernel<<<blocks < 4096 ? (unsigned)blocks : 4096u, THREADS, 0, cu_raw(st)>>>(
            y, a->x, n, a->x_dtype);
    return cu_launched(st, "widen");
}

/* ---- quantization ---------------------------------------------------------- */

/* Key of a float by (magnitude, sign): magnitudes have the same order as integers and as
 * floats, with NaN and Inf largest; of equal magnitudes the negative one is larger. */
static __device__ __forceinline__ uint32_t
order_of(uint32_t bits)
{
    return bits << 1 | bits >> 31;
}

static __device__ __forceinline__ float
scale_of(uint32_t most, enum fdk_dtype t)
{
    float f = __uint_as_float(most >> 1);
    if (t == FDK_I8)
        f = __fdiv_rn(f, 127.0f);
    else if (t == FDK_F8E4M3)
        f = __fdiv_rn(f, 448.0f);
    else
        f = __fdiv_rn((most & 1) != 0 ? f : -f, 8.0f);
    return f == 0 ? 0 : f;            /* not -0 */
}

/* Adding 1.5 * 2^23 rounds to an integer, which is in the low bits of the sum. */
static __device__ __forceinline__ uint32_t
stored(uint32_t bits, float scale, enum fdk_dtype t)
{
    if (scale == 0)
        return 0;
    float v = __fdiv_rn(__uint_as_float(bits), scale);
    if (t == FDK_F8E4M3)
        return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
    float lo = t == FDK_I8 ? -127.0f : -8.0f, hi = t == FDK_I8 ? 127.0f : 7.0f;
    v = v < lo ? lo : v;
    v = v > hi ? hi : v;
    return __float_as_uint(__fadd_rn(v, 12582912.0f)) - 0x4b400000u & 0xff;
}

template<int LANES>
static __device__ __forceinline__ uint32_t
team_max(uint32_t x)
{
    x = __reduce_max_sync(0xffffffffu, x);
    if (LANES == 32)
        return x;
    __shared__ uint32_t most[LANES / 32];
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < LANES / 32; i++)
        x = max(x, most[i]);
    return x;
}

/* LANES threads per group. Each thread processes two adjacent elements at a time: 4-bit
 * ones share a byte. */
struct quantize_args {
    void *y;
    float *scale;
    const void *x;
    uint64_t *bad;
    uint64_t first;
    int64_t rows;
    int32_t cols, group, x_cols, x_at, x_row_scale; /* as in fdk_pack_args */
    enum fdk_dtype x_dtype, y_dtype;
};

template<int LANES>
static __global__ void __launch_bounds__(THREADS)
quantize_kernel(struct quantize_args a, int32_t groups)
{
    int64_t g = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    int lane = 2 * (threadIdx.x % LANES);
    if (g >= a.rows * groups)
        return;
    int64_t row = g / groups;
    int32_t col = (int32_t)(g % groups) * a.group, n = min(a.group, a.cols - col);
    uint64_t x_row = (uint64_t)row * (uint64_t)a.x_cols;
    uint64_t at = x_row + (uint64_t)(a.x_at + col);
    uint64_t top = a.x_row_scale ? x_row : at; /* first element that counts for the
                                                  scale */
    int32_t n_top = a.x_row_scale ? a.x_cols : n;
    uint32_t most = 0;
    for (int i = lane; i < n_top; i += 2 * LANES) {
        most = max(most, order_of(bits_at(a.x, top + i, a.x_dtype)));
        if (i + 1 < n_top)
            most = max(most, order_of(bits_at(a.x, top + i + 1, a.x_dtype)));
    }
    most = team_max<LANES>(most);
    if (most >> 1 >= INF_BITS) {
        for (int i = lane; i < n_top; i += i % 2 == 0 ? 1 : 2 * LANES - 1)
            if ((bits_at(a.x, top + i, a.x_dtype) & INF_BITS) == INF_BITS)
                atomicMin((unsigned long long *)a.bad, a.first + top + i);
        return;
    }
    float scale = scale_of(most, a.y_dtype);
    if (lane == 0)
        a.scale[g] = scale;
    uint64_t y_at = (uint64_t)row * (uint64_t)a.cols + (uint64_t)col;
    uint8_t *y = (uint8_t *)a.y + (a.y_dtype == FDK_I4 ? y_at / 2 : y_at);
    for (int i = lane; i < n; i += 2 * LANES) {
        uint32_t v = stored(bits_at(a.x, at + i, a.x_dtype), scale, a.y_dtype), u = 0;
        if (i + 1 < n)
            u = stored(bits_at(a.x, at + i + 1, a.x_dtype), scale, a.y_dtype);
        if (a.y_dtype == FDK_I4) {
            y[i / 2] = (uint8_t)((v & 15) | u << 4);
            continue;
        }
        y[i] = (uint8_t)v;
        if (i + 1 < n)
            y[i + 1] = (uint8_t)u;
    }
}

static int
quantize_weights(const struct fdk_pack_args *p, fdk_stream_t st)
{
    const struct fdk_weight *w = &p->w;
    const struct quantize_args a = { fdk_weight_at(w, FDK_PACK_VALUES, p->first),
        (float *)fdk_weight_at(w, FDK_PACK_SCALES, p->first), p->x, p->bad, p->bad_first,
        p->n, w->cols, w->group, fdk_pack_x_cols(p), p->x_at, p->x_row_scale, p->x_dtype,
        w->format };
    int32_t groups = fdk_weight_groups(w);
    int small = w->group <= 256 && !p->x_row_scale, teams = small ? THREADS / 32 : 1;
    if (a.rows > (int64_t)MAX_BLOCKS / groups)
        return -ENOTSUP;
    unsigned blocks = (unsigned)((a.rows * groups - 1) / teams + 1);
    if (small)
        quantize_kernel<32><<<blocks, THREADS, 0, cu_raw(st)>>>(a, groups);
    else
        quantize_kernel<THREADS><<<blocks, THREADS, 0, cu_raw(st)>>>(a, groups);
    return cu_launched(st, "quantize");
}

/* ---- weights ----------------------------------------------------------------- */

static int
copy_rows(const struct fdk_pack_args *a, fdk_stream_t st)
{
    enum fdk_dtype t = a->what == FDK_PACK_SCALES ? FDK_F32 : a->w.format;
    size_t row = fdk_row_bytes(t, (size_t)fdk_pack_width(a)), n = (size_t)a->n;
    size_t x_row = fdk_row_bytes(t, (size_t)fdk_pack_x_cols(a));
    const char *x = (const char *)a->x + fdk_row_bytes(t, (size_t)a->x_at);
    void *y = fdk_weight_at(&a->w, a->what, a->first);
    if (row == x_row)
        return cu_copy(st, y, x, n * row);
    return cu_result(cu_stream_of(st)->dev, "cudaMemcpy2DAsync",
        cudaMemcpy2DAsync(y, row, x, x_row, row, n, cudaMemcpyDefault, cu_raw(st)));
}

int
cu_weight_pack(const struct fdk_pack_args *a, fdk_stream_t st)
{
    const struct fdk_weight *w = &a->w;
    int rc = fdk_pack_check(a);
    if (rc == 0)
        rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->what == FDK_PACK_VALUES && a->x_dtype != w->format)
        return w->group > 0 ? quantize_weights(a, st) : widen_weights(a, st);
    return copy_rows(a, st);
}

/* All kernels in the table of ops_gemm.cu read rows; the last one supports any shape. */
int
cu_weight_layout(struct fdk_weight *w)
{
    return fdk_is_float(w->format) || fdk_is_quant(w->format) ? fdk_weight_rows(w) :
        -ENOTSUP;
}

const char *
cu_layout_name(int32_t layout)
{
    return layout == FDK_LAYOUT_ROWS ? "rows" : "unknown";
}

/* ---- random weights -------------------------------------------------------- */

static __device__ __forceinline__ uint64_t
mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* The sum of four random bytes minus its mean. */
static __device__ __forceinline__ int32_t
sum_of_bytes(uint32_t i, uint64_t key)
{
    uint32_t x = i * 0x9e3779b9u + (uint32_t)key;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16 ^ (uint32_t)(key >> 32);
    x = (x & 0x00ff00ffu) + (x >> 8 & 0x00ff00ffu);
    return (int32_t)((x & 0xffffu) + (x >> 16)) - 510;
}

/* Values below the smallest normal half become 0. */
static __device__ __forceinline__ uint16_t
half_bits(uint32_t u, enum fdk_dtype t)
{
    if (t == FDK_BF16)
        return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    uint32_t m = (u & 0x7fffffff) + 0xfff + (u >> 13 & 1);
    return (uint16_t)((u >> 16 & 0x8000) | (m < 0x38800000 ? 0 : (m - 0x38000000) >> 13));
}

static __global__ void __launch_bounds__(THREADS)
dummy_kernel(struct fdk_dummy_args a)
{
    uint64_t block = a.first / DUMMY_BLOCK + blockIdx.x, key = mix64(a.key ^ block);
    for (uint32_t i = threadIdx.x; i < DUMMY_BLOCK; i += THREADS) {
        uint64_t e = block * DUMMY_BLOCK + i;
        if (e < a.first || e - a.first >= a.n)
            continue;
        float v = __fadd_rn(a.mean, __fmul_rn(a.scale, (float)sum_of_bytes(i, key)));
        if (a.y_dtype == FDK_F32)
            ((float *)a.y)[e - a.first] = v;
        else
            ((uint16_t *)a.y)[e - a.first] = half_bits(__float_as_uint(v), a.y_dtype);
    }
}

int
cu_dummy_weights(const struct fdk_dummy_args *a, fdk_stream_t st)
{
    if (a->y == NULL || a->n == 0 || a->first + a->n < a->n)
        return -EINVAL;
    if (a->y_dtype != FDK_F32 && a->y_dtype != FDK_F16 && a->y_dtype != FDK_BF16)
        return -ENOTSUP;
    uint64_t blocks = (a->first + a->n - 1) / DUMMY_BLOCK - a->first / DUMMY_BLOCK + 1;
    if (blocks > MAX_BLOCKS)
        return -ENOTSUP;
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    dummy_kernel<<<(unsigned)blocks, THREADS, 0, cu_raw(st)>>>(*a);
    return cu_launched(st, "dummy");
}

cudaError_t
cu_weights_load(void)
{
    const void *const k[] = {
        (const void *)widen_kernel, (const void *)widen_window_kernel,
        (const void *)quantize_kernel<32>,
        (const void *)quantize_kernel<THREADS>, (const void *)dummy_kernel,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}
