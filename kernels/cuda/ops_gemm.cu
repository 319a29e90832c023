/*
 * y = x w^T. Quantized weights go through gemm_stream.cu. 16-bit weights do
 * so for few rows, else through cuBLASLt; both round x to the weights' type
 * (bf16 for quantized ones) and sum products in fp32. The rest (fp32 weights,
 * shapes the others would not take) goes through one plain tile kernel in
 * fp32, which sums in ascending order of k, from unrounded x.
 *
 * Numbers that depend on the number of rows: those of 16-bit weights, between
 * STREAM_T rows and more, and between CLASS_T and more, where last bits may
 * differ. Within these classes a row's sums are those of one kernel and tile
 * shape whatever its company: the algorithm of cuBLASLt is chosen once per (N,
 * K, type) and class, without split-K. An open with deterministic set knows
 * one class only.
 */
#include "kernels/cuda/fdk_cuda.cuh"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_T  8              /* rows of x at most, with 16-bit weights */
#define CLASS_T   512            /* rows of the largest launch of the first class */
#define N_ALGO    128            /* (N, K, type, class) of a model */
#define N_TRY     16
#define LT_WORK   4096           /* workspace: algorithms that deal tiles out keep a
                                    counter there; stands before x in the scratch */

struct cu_lt {
    void *so;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmulAlgoCheck) check;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) config;
    decltype(&cublasLtMatmulDescInit_internal) desc_init;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutInit_internal) layout_init;
    decltype(&cublasLtMatmulPreferenceInit_internal) pref_init;
    decltype(&cublasLtMatmulPreferenceSetAttribute) pref_set;
};

struct lt_algo {
    int32_t N, K, ldy, large;
    enum fdk_dtype t;
    int usable;                  /* 0: none found, take the tile kernel */
    cublasLtMatmulAlgo_t algo;
};

struct cu_lt_dev {
    cublasLtHandle_t handle;
    int n_algo;                  /* entries below stand still */
    struct lt_algo algo[N_ALGO];
};

struct lt_problem {              /* column-major: D (N, T) = A^T (K, N) B (K, T) */
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

/* ---- the library --------------------------------------------------------- */

static int
lt_symbols(struct cu_lt *lt, const char **ret_missing)
{
    const struct {
        const char *name;
        void **at;
    } sym[] = {
        { "cublasLtCreate", (void **)&lt->create },
        { "cublasLtDestroy", (void **)&lt->destroy },
        { "cublasLtMatmul", (void **)&lt->matmul },
        { "cublasLtMatmulAlgoGetHeuristic", (void **)&lt->heuristic },
        { "cublasLtMatmulAlgoCheck", (void **)&lt->check },
        { "cublasLtMatmulAlgoConfigGetAttribute", (void **)&lt->config },
        { "cublasLtMatmulDescInit_internal", (void **)&lt->desc_init },
        { "cublasLtMatmulDescSetAttribute", (void **)&lt->desc_set },
        { "cublasLtMatrixLayoutInit_internal", (void **)&lt->layout_init },
        { "cublasLtMatmulPreferenceInit_internal", (void **)&lt->pref_init },
        { "cublasLtMatmulPreferenceSetAttribute", (void **)&lt->pref_set },
    };
    for (size_t i = 0; i < sizeof(sym) / sizeof(sym[0]); i++) {
        *ret_missing = sym[i].name;
        *sym[i].at = dlsym(lt->so, sym[i].name);
        if (*sym[i].at == NULL)
            return -ENOENT;
    }
    return 0;
}

/* FDD_CUBLASLT names the file where the loader would not find it. */
static int
lt_load(struct cu_lt *lt, char *err, size_t err_bytes)
{
    const char *name[] = {
        getenv("FDD_CUBLASLT"), "libcublasLt.so.13", "libcublasLt.so.12",
        "/usr/local/cuda/lib64/libcublasLt.so",
    }, *missing;
    size_t i = name[0] != NULL && name[0][0] != '\0' ? 0 : 1;
    size_t n = i == 0 ? 1 : sizeof(name) / sizeof(name[0]);
    for (; i < n && lt->so == NULL; i++)
        lt->so = dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
    if (lt->so == NULL) {
        snprintf(err, err_bytes, "cannot load cuBLASLt (%s): install libcublasLt.so.13, "
            "or name the file in FDD_CUBLASLT, or set device.backend = cpu",
            n == 1 ? name[0] : "libcublasLt.so.13, .12");
        return -ENOENT;
    }
    if (lt_symbols(lt, &missing) != 0) {
        snprintf(err, err_bytes, "cuBLASLt lacks %s: a newer one is needed", missing);
        return -ENOENT;
    }
    return 0;
}

int
cu_gemm_open(struct fdk_ctx *ctx, char *err, size_t err_bytes)
{
    ctx->lt = (struct cu_lt *)calloc(1, sizeof(*ctx->lt));
    if (ctx->lt == NULL) {
        snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    int rc = lt_load(ctx->lt, err, err_bytes);
    for (int i = 0; i < ctx->n_dev && rc == 0; i++) {
        struct cu_dev *d = &ctx->dev[i];
        d->lt = (struct cu_lt_dev *)calloc(1, sizeof(*d->lt));
        rc = d->lt == NULL ? -ENOMEM : cu_enter(d);
        cublasStatus_t s = CUBLAS_STATUS_ALLOC_FAILED;
        if (rc == 0 && (s = ctx->lt->create(&d->lt->handle)) != CUBLAS_STATUS_SUCCESS)
            rc = -EIO;
        if (rc != 0)
            snprintf(err, err_bytes, "cublasLtCreate on CUDA device %d: status %d", i,
                (int)s);
    }
    return rc;
}

/* The library stays loaded: its threads and handlers outlive a handle. */
void
cu_gemm_close(struct fdk_ctx *ctx)
{
    for (int i = 0; i < ctx->n_dev; i++) {
        struct cu_dev *d = &ctx->dev[i];
        if (d->lt != NULL && d->lt->handle != NULL && cu_enter(d) == 0)
            ctx->lt->destroy(d->lt->handle);
        free(d->lt);
        d->lt = NULL;
    }
    free(ctx->lt);
    ctx->lt = NULL;
}

/* ---- algorithms ---------------------------------------------------------- */

static cublasStatus_t
lt_problem_init(const struct cu_lt *lt, const struct fdk_gemm_args *a, int32_t T,
    struct lt_problem *p)
{
    cudaDataType_t t = a->w_dtype == FDK_F16 ? CUDA_R_16F : CUDA_R_16BF;
    cublasOperation_t trans = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    cublasStatus_t s;
    if ((s = lt->desc_init((cublasLtMatmulDesc_t)&p->desc, sizeof(p->desc),
            CUBLAS_COMPUTE_32F, CUDA_R_32F)) != CUBLAS_STATUS_SUCCESS ||
        (s = lt->desc_set((cublasLtMatmulDesc_t)&p->desc, CUBLASLT_MATMUL_DESC_TRANSA,
            &trans, sizeof(trans))) != CUBLAS_STATUS_SUCCESS ||
        (s = lt->desc_set((cublasLtMatmulDesc_t)&p->desc, CUBLASLT_MATMUL_DESC_TRANSB,
            &plain, sizeof(plain))) != CUBLAS_STATUS_SUCCESS ||
        (s = lt->layout_init((cublasLtMatrixLayout_t)&p->a, sizeof(p->a), t,
            (uint64_t)a->K, (uint64_t)a->N, a->K)) != CUBLAS_STATUS_SUCCESS ||
        (s = lt->layout_init((cublasLtMatrixLayout_t)&p->b, sizeof(p->b), t,
            (uint64_t)a->K, (uint64_t)T, a->K)) != CUBLAS_STATUS_SUCCESS)
        return s;
    return lt->layout_init((cublasLtMatrixLayout_t)&p->d, sizeof(p->d), CUDA_R_32F,
        (uint64_t)a->N, (uint64_t)T, a->ldy);
}

static cublasStatus_t
lt_preference(const struct cu_lt *lt, cublasLtMatmulPreferenceOpaque_t *opaque)
{
    cublasLtMatmulPreference_t p = (cublasLtMatmulPreference_t)opaque;
    uint64_t workspace = LT_WORK;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE, align = 16;
    cublasStatus_t s = lt->pref_init(p, sizeof(*opaque));
    const struct {
        cublasLtMatmulPreferenceAttributes_t at;
        const void *value;
        size_t bytes;
    } set[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace) },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof(reduction) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof(align) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof(align) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof(align) },
    };
    const size_t n = sizeof(set) / sizeof(set[0]);
    for (size_t i = 0; i < n && s == CUBLAS_STATUS_SUCCESS; i++)
        s = lt->pref_set(p, set[i].at, set[i].value, set[i].bytes);
    return s;
}

/* Splits nothing, needs little and takes any number of rows of the class. */
static int
lt_algo_serves(const struct cu_dev *d, const struct fdk_gemm_args *a, int large,
    const cublasLtMatmulAlgo_t *algo)
{
    const struct cu_lt *lt = d->ctx->lt;
    const int32_t rows[2][3] = { { 1, 8, d->ctx->deterministic ? 8192 : CLASS_T },
        { CLASS_T + 1, 2048, 8192 } };
    int32_t split = 1;
    uint32_t scheme = 0;
    size_t n;
    if (lt->config(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof(split), &n) ==
        CUBLAS_STATUS_SUCCESS && split > 1)
        return 0;
    if (lt->config(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme),
        &n) == CUBLAS_STATUS_SUCCESS && scheme != CUBLASLT_REDUCTION_SCHEME_NONE)
        return 0;
    for (int i = 0; i < 3; i++) {
        struct lt_problem p;
        cublasLtMatmulHeuristicResult_t res;
        memset(&res, 0, sizeof(res));
        if (lt_problem_init(lt, a, rows[large][i], &p) != CUBLAS_STATUS_SUCCESS ||
            lt->check(d->lt->handle, (cublasLtMatmulDesc_t)&p.desc,
                (cublasLtMatrixLayout_t)&p.a, (cublasLtMatrixLayout_t)&p.b,
                (cublasLtMatrixLayout_t)&p.d, (cublasLtMatrixLayout_t)&p.d, algo, &res) !=
                CUBLAS_STATUS_SUCCESS || res.workspaceSize > LT_WORK)
            return 0;
    }
    return 1;
}

static void
lt_algo_choose(const struct cu_dev *d, const struct fdk_gemm_args *a, struct lt_algo *ret)
{
    const struct cu_lt *lt = d->ctx->lt;
    cublasLtMatmulHeuristicResult_t res[N_TRY];
    cublasLtMatmulPreferenceOpaque_t pref;
    struct lt_problem p;
    int n = 0;
    ret->usable = 0;
    if (lt_problem_init(lt, a, ret->large ? 2048 : 64, &p) != CUBLAS_STATUS_SUCCESS ||
        lt_preference(lt, &pref) != CUBLAS_STATUS_SUCCESS ||
        lt->heuristic(d->lt->handle, (cublasLtMatmulDesc_t)&p.desc,
            (cublasLtMatrixLayout_t)&p.a, (cublasLtMatrixLayout_t)&p.b,
            (cublasLtMatrixLayout_t)&p.d, (cublasLtMatrixLayout_t)&p.d,
            (cublasLtMatmulPreference_t)&pref, N_TRY, res, &n) != CUBLAS_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n && !ret->usable; i++)
        if (res[i].state == CUBLAS_STATUS_SUCCESS &&
            lt_algo_serves(d, a, ret->large, &res[i].algo)) {
            ret->algo = res[i].algo;
            ret->usable = 1;
        }
}

static struct lt_algo *
lt_algo_find(struct cu_lt_dev *l, const struct fdk_gemm_args *a, int large)
{
    int n = __atomic_load_n(&l->n_algo, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++) {
        struct lt_algo *g = &l->algo[i];
        if (g->N == a->N && g->K == a->K && g->ldy == a->ldy && g->large == large &&
            g->t == a->w_dtype)
            return g;
    }
    return NULL;
}

/* NULL: the tile kernel. ret_first: chosen by this very call. */
static const struct lt_algo *
lt_algo_get(struct cu_dev *d, const struct fdk_gemm_args *a, int *ret_first)
{
    int large = a->T > CLASS_T && !d->ctx->deterministic;
    struct lt_algo *g = lt_algo_find(d->lt, a, large);
    *ret_first = 0;
    if (g == NULL) {
        pthread_mutex_lock(&d->lock);
        g = lt_algo_find(d->lt, a, large);
        if (g == NULL && d->lt->n_algo < N_ALGO) {
            g = &d->lt->algo[d->lt->n_algo];
            g->N = a->N;
            g->K = a->K;
            g->ldy = a->ldy;
            g->large = large;
            g->t = a->w_dtype;
            lt_algo_choose(d, a, g);
            __atomic_store_n(&d->lt->n_algo, d->lt->n_algo + 1, __ATOMIC_RELEASE);
            *ret_first = 1;
        }
        pthread_mutex_unlock(&d->lock);
    }
    return g != NULL && g->usable ? g : NULL;
}

/* ---- 16-bit weights ------------------------------------------------------ */

static __device__ __forceinline__ void
narrow(float x, __nv_bfloat16 *ret)
{
    *ret = __float2bfloat16_rn(x);
}

/* Finite numbers stay finite: half precision ends at 65504. */
static __device__ __forceinline__ void
narrow(float x, __half *ret)
{
    if (isfinite(x))
        x = fminf(fmaxf(x, -65504.0f), 65504.0f);
    *ret = __float2half_rn(x);
}

/* Rows that are not live become zeros: nothing stale meets the arithmetic. */
template<typename W>
static __global__ void
narrow_kernel(struct fdk_gemm_args a)
{
    int live = *a.n - a.first;
    size_t n = (size_t)a.T * (size_t)a.K;
    const float *x = a.x + (size_t)a.first * (size_t)a.K;
    W *dst = (W *)((char *)a.scratch + LT_WORK);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        narrow((int)(i / (size_t)a.K) < live ? x[i] : 0, &dst[i]);
}

static __global__ void
bias_kernel(struct fdk_gemm_args a)
{
    int m = a.first + (int)blockIdx.x;
    if (m >= *a.n)
        return;
    float *y = a.y + (size_t)(m - a.first) * (size_t)a.ldy;
    for (int i = (int)threadIdx.x; i < a.N; i += (int)blockDim.x)
        y[i] += a.bias[i];
}

static int
is_half(enum fdk_dtype t)
{
    return t == FDK_F16 || t == FDK_BF16;
}

/* Shapes and addresses that every algorithm takes. */
static int
lt_fits(const struct fdk_gemm_args *a)
{
    return is_half(a->w_dtype) && a->K % 8 == 0 && a->N % 4 == 0 && a->ldy % 4 == 0 &&
        (uintptr_t)a->w % 16 == 0 && (uintptr_t)a->y % 16 == 0;
}

/* 1: cuBLASLt would not; the tile kernel must. */
static int
lt_gemm(const struct fdk_gemm_args *a, const struct lt_algo *g, fdk_stream_t st)
{
    struct cu_dev *d = cu_stream_of(st)->dev;
    const struct cu_lt *lt = d->ctx->lt;
    struct lt_problem p;
    float one = 1, zero = 0, *y = a->y;
    if (lt_problem_init(lt, a, a->T, &p) != CUBLAS_STATUS_SUCCESS)
        return 1;
    unsigned blocks = (unsigned)(((size_t)a->T * (size_t)a->K + 1023) / 1024);
    blocks = blocks < 2048 ? blocks : 2048;
    if (a->w_dtype == FDK_F16)
        narrow_kernel<__half><<<blocks, 256, 0, cu_raw(st)>>>(*a);
    else
        narrow_kernel<__nv_bfloat16><<<blocks, 256, 0, cu_raw(st)>>>(*a);
    int rc = cu_launched(st, "gemm");
    if (rc != 0)
        return rc;
    cublasStatus_t s = lt->matmul(d->lt->handle, (cublasLtMatmulDesc_t)&p.desc, &one,
        a->w, (cublasLtMatrixLayout_t)&p.a, (char *)a->scratch + LT_WORK,
        (cublasLtMatrixLayout_t)&p.b, &zero, y, (cublasLtMatrixLayout_t)&p.d, y,
        (cublasLtMatrixLayout_t)&p.d, &g->algo, a->scratch, LT_WORK, cu_raw(st));
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE)
        return 1;
    rc = cu_launched(st, "gemm");
    if (rc == 0 && s != CUBLAS_STATUS_SUCCESS)
        rc = cu_result(d, "cublasLtMatmul", cudaErrorUnknown);
    if (rc != 0 || a->bias == NULL)
        return rc;
    bias_kernel<<<(unsigned)a->T, 256, 0, cu_raw(st)>>>(*a);
    return cu_launched(st, "gemm");
}

/* ---- the tile kernel ----------------------------------------------------- */

#define TILE_K 32

/* One weight as fp32; quantized ones times their scale, rounded to fp32. */
template<int T>
static __device__ __forceinline__ float
weight_at(const struct fdk_gemm_args &a, int n, int k)
{
    size_t row = (size_t)n * (size_t)a.K;
    if (T == FDK_F32)
        return ((const float *)a.w)[row + (size_t)k];
    if (T == FDK_F16)
        return __half2float(((const __half *)a.w)[row + (size_t)k]);
    if (T == FDK_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)a.w)[row + (size_t)k]);
    int groups = (a.K - 1) / a.w_group + 1, q;
    if (T == FDK_I8) {
        q = ((const int8_t *)a.w)[row + (size_t)k];
    } else {
        int byte = ((const uint8_t *)a.w)[row / 2 + (size_t)(k / 2)];
        q = ((k % 2 != 0 ? byte >> 4 : byte & 15) ^ 8) - 8;
    }
    return __fmul_rn((float)q, a.w_scale[(size_t)n * (size_t)groups +
        (size_t)(k / a.w_group)]);
}

/* 256 threads, TM rows by TN columns; a thread's outputs are 16 apart. */
template<int T, int TM, int TN>
static __global__ void __launch_bounds__(256)
tile_kernel(struct fdk_gemm_args a)
{
    __shared__ float xs[TM][TILE_K + 1], ws[TN][TILE_K + 1];
    const int RM = TM / 16, RN = TN / 16;
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    int m0 = a.first + (int)blockIdx.y * TM, n0 = (int)blockIdx.x * TN;
    int end = a.first + a.T < *a.n ? a.first + a.T : *a.n;
    float acc[RM][RN] = {};
    if (m0 >= end)
        return;
    for (int k0 = 0; k0 < a.K; k0 += TILE_K) {
        for (int i = (int)threadIdx.x; i < TM * TILE_K; i += 256) {
            int m = m0 + i / TILE_K, k = k0 + i % TILE_K;
            xs[i / TILE_K][i % TILE_K] = m < end && k < a.K ?
                a.x[(size_t)m * (size_t)a.K + (size_t)k] : 0;
        }
        for (int i = (int)threadIdx.x; i < TN * TILE_K; i += 256) {
            int n = n0 + i / TILE_K, k = k0 + i % TILE_K;
            ws[i / TILE_K][i % TILE_K] = n < a.N && k < a.K ? weight_at<T>(a, n, k) : 0;
        }
        __syncthreads();
        for (int k = 0; k < TILE_K; k++)
            for (int i = 0; i < RM; i++)
                for (int j = 0; j < RN; j++)
                    acc[i][j] = fmaf(xs[ty + 16 * i][k], ws[tx + 16 * j][k], acc[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < RM; i++)
        for (int j = 0; j < RN; j++) {
            int m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
            if (m < end && n < a.N)
                a.y[(size_t)(m - a.first) * (size_t)a.ldy + (size_t)n] =
                    a.bias != NULL ? acc[i][j] + a.bias[n] : acc[i][j];
        }
}

template<int T>
static void
tile_launch(const struct fdk_gemm_args *a, cudaStream_t s)
{
    if (a->T <= 16)
        tile_kernel<T, 16, 16><<<dim3(((unsigned)a->N + 15) / 16, 1), 256, 0, s>>>(*a);
    else
        tile_kernel<T, 64, 64><<<dim3(((unsigned)a->N + 63) / 64,
            ((unsigned)a->T + 63) / 64), 256, 0, s>>>(*a);
}

static int
tile_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    cudaStream_t s = cu_raw(st);
    if (a->w_dtype == FDK_F32)
        tile_launch<FDK_F32>(a, s);
    else if (a->w_dtype == FDK_F16)
        tile_launch<FDK_F16>(a, s);
    else if (a->w_dtype == FDK_BF16)
        tile_launch<FDK_BF16>(a, s);
    else if (a->w_dtype == FDK_I8)
        tile_launch<FDK_I8>(a, s);
    else
        tile_launch<FDK_I4>(a, s);
    return cu_launched(st, "gemm");
}

/* ---- the operation ------------------------------------------------------- */

static int
gemm_valid(const struct fdk_gemm_args *a)
{
    if (a->T <= 0 || a->N <= 0 || a->K <= 0 || a->ldy < a->N || a->first < 0 ||
        a->y == NULL || a->x == NULL || a->w == NULL || a->n == NULL)
        return -EINVAL;
    if (a->w_dtype == FDK_F32 || is_half(a->w_dtype))
        return 0;
    if (a->w_dtype != FDK_I8 && a->w_dtype != FDK_I4)
        return (unsigned)a->w_dtype < FDK_DTYPE__N ? -ENOTSUP : -EINVAL;
    return a->w_scale == NULL || a->w_group <= 0 || a->w_group > a->K ||
        (a->w_dtype == FDK_I4 && a->K % 2 != 0) ? -EINVAL : 0;
}

size_t
cu_gemm_scratch(const struct fdk_gemm_args *a)
{
    if (a->T <= 0 || a->K <= 0)
        return 0;
    if (!is_half(a->w_dtype))
        return cu_gemm_stream_fits(a) ? cu_gemm_stream_scratch(a) : 0;
    return LT_WORK + ((size_t)a->T * (size_t)a->K * 2 + 255) / 256 * 256;
}

/* Choosing an algorithm and its first launch may load code: that is no part
 * of what is being recorded. */
int
cu_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st), first = 0;
    if (rc == 0)
        rc = gemm_valid(a);
    if (rc != 0)
        return rc;
    size_t need = cu_gemm_scratch(a);
    if (need > 0 && (a->scratch == NULL || a->scratch_bytes < need))
        return -EINVAL;
    if (cu_gemm_stream_fits(a) && (!is_half(a->w_dtype) ||
        (a->T <= STREAM_T && !cu_stream_of(st)->dev->ctx->deterministic)))
        return cu_gemm_stream(a, cu_stream_of(st)->dev->n_proc, st);
    if (!lt_fits(a))
        return tile_gemm(a, st);
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int capturing = cu_stream_of(st)->capturing;
    if (capturing)
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    const struct lt_algo *g = lt_algo_get(cu_stream_of(st)->dev, a, &first);
    if (capturing && !first)
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    rc = g != NULL ? lt_gemm(a, g, st) : 1;
    if (rc == 1)
        rc = tile_gemm(a, st);
    if (capturing && first)
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return rc;
}

cudaError_t
cu_gemm_load(void)
{
    static const void *const k[] = {
        (const void *)bias_kernel,
        (const void *)narrow_kernel<__half>, (const void *)narrow_kernel<__nv_bfloat16>,
        (const void *)tile_kernel<FDK_F32, 16, 16>, (const void *)tile_kernel<FDK_F32, 64, 64>,
        (const void *)tile_kernel<FDK_F16, 16, 16>, (const void *)tile_kernel<FDK_F16, 64, 64>,
        (const void *)tile_kernel<FDK_BF16, 16, 16>,
        (const void *)tile_kernel<FDK_BF16, 64, 64>,
        (const void *)tile_kernel<FDK_I8, 16, 16>, (const void *)tile_kernel<FDK_I8, 64, 64>,
        (const void *)tile_kernel<FDK_I4, 16, 16>, (const void *)tile_kernel<FDK_I4, 64, 64>,
    };
    cudaError_t e = cu_load(k, sizeof(k) / sizeof(k[0]));
    return e != cudaSuccess ? e : cu_gemm_stream_load();
}
