/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x w^T with 16-bit weights through cuBLASLt, for many rows. The library is
 * loaded with dlopen() when a context is opened.
 *
 * One algorithm serves a class of launches: (N, K, types, range of T). The first
 * launch of a class measures the library's candidates on its own operands and
 * keeps the fastest; it is stored in a file of fdk_open_args.cache_dir, keyed by device,
 * driver and library, and read at later starts. An algorithm may split K, with partial
 * sums in the workspace that are added in a fixed order: a row's sums do not depend on T
 * within a class, and may differ in the last bits between classes. A deterministic
 * context has one class for every T and no algorithm that splits K; most of its GEMMs
 * are computed by other kernels (gemm_stream.cu).
 *
 * If x has another type than the weights, it is first converted in the scratch.
 */
#include "kernels/cuda/gemm_lt.cuh"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define N_TRY     12             /* candidates measured, in the order of the heuristic */
#define N_TIMED   3              /* launches of each; the shortest counts */
#define LT_WORK   (32u << 20)    /* workspace; before x in the scratch */

struct lt_problem {              /* column-major: D (N, T) = A^T (K, N) B (K, T) */
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

/*
 * Classes of T: up to 64, then steps of LT_ROWS up to LT_FINE, then each twice the one
 * before. The tiles that leave the fewest multiprocessors idle differ between these
 * classes: with one class from 513 to 1,024, a GEMM of 640 rows took as long as one of
 * 768.
 */
#define LT_ROWS 128
#define LT_FINE 2048
#define LT_MOST 16384            /* the last class has all T above half of this */

static int
is_half(enum fdk_dtype t)
{
    return t == FDK_F16 || t == FDK_BF16;
}

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
        { "cublasLtGetVersion", (void **)&lt->version },
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

/* FDD_CUBLASLT can name the library's file if the loader does not find it. */
static int
lt_open_library(struct cu_lt *lt, char *err, size_t err_bytes)
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

/* ---- problems ------------------------------------------------------------ */

static cudaDataType_t
lt_type(enum fdk_dtype t)
{
    return t == FDK_F32 ? CUDA_R_32F : t == FDK_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static cublasStatus_t
lt_problem_init(const struct cu_lt *lt, const struct fdk_gemm_args *a, int32_t T,
    struct lt_problem *p)
{
    cudaDataType_t t = lt_type(a->w_dtype);
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
    return lt->layout_init((cublasLtMatrixLayout_t)&p->d, sizeof(p->d),
        lt_type(a->y_dtype), (uint64_t)a->N, (uint64_t)T, a->ldy);
}

static cublasStatus_t
lt_preference(const struct cu_lt *lt, int deterministic,
    cublasLtMatmulPreferenceOpaque_t *opaque)
{
    cublasLtMatmulPreference_t p = (cublasLtMatmulPreference_t)opaque;
    uint64_t workspace = LT_WORK;
    uint32_t reduction = deterministic ? CUBLASLT_REDUCTION_SCHEME_NONE :
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, align = 16;
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

static const unsigned char *
lt_x(const struct fdk_gemm_args *a)
{
    if (a->act != a->w_dtype)
        return (unsigned char *)a->scratch + LT_WORK;
    return (const unsigned char *)a->x + (size_t)a->first * (size_t)a->K * 2;
}

static cublasStatus_t
lt_run(const struct cu_dev *d, const struct fdk_gemm_args *a, const struct lt_problem *p,
    const cublasLtMatmulAlgo_t *algo, cudaStream_t s)
{
    const float one = 1, zero = 0;
    return d->ctx->lt->matmul(d->lt->handle, (cublasLtMatmulDesc_t)&p->desc, &one, a->w,
        (cublasLtMatrixLayout_t)&p->a, lt_x(a), (cublasLtMatrixLayout_t)&p->b, &zero, a->y,
        (cublasLtMatrixLayout_t)&p->d, a->y, (cublasLtMatrixLayout_t)&p->d, algo,
        a->scratch, LT_WORK, s);
}

/* ---- classes ------------------------------------------------------------- */

static int
lt_range(const struct cu_dev *d, int32_t T)
{
    int i = LT_FINE / LT_ROWS + 1;
    if (d->ctx->deterministic)
        return -1;
    if (T <= LT_ROWS / 2)
        return 0;
    if (T <= LT_FINE)
        return (T - 1) / LT_ROWS + 1;
    for (int32_t most = 2 * LT_FINE; T > most && most < LT_MOST; most *= 2)
        i++;
    return i;
}

/* Least and most rows of a class. */
static void
lt_range_rows(int range, int32_t *ret_lo, int32_t *ret_hi)
{
    const int fine = LT_FINE / LT_ROWS;
    if (range < 0) {
        *ret_lo = 1;
        *ret_hi = LT_MOST;
    } else if (range <= 1) {
        *ret_lo = range * LT_ROWS / 2 + 1;
        *ret_hi = (range + 1) * LT_ROWS / 2;
    } else if (range <= fine) {
        *ret_lo = (range - 1) * LT_ROWS + 1;
        *ret_hi = range * LT_ROWS;
    } else {
        *ret_lo = (LT_FINE << (range - fine - 1)) + 1;
        *ret_hi = LT_FINE << (range - fine);
    }
}

int32_t
cu_lt_class(const struct cu_dev *d, int32_t T)
{
    int32_t lo, hi;
    lt_range_rows(lt_range(d, T), &lo, &hi);
    return T <= hi ? hi : INT32_MAX;
}

/* ---- algorithms ---------------------------------------------------------- */

/* Does the algorithm fit in the workspace and support every number of rows of the
 * class? */
static int
lt_algo_serves(const struct cu_dev *d, const struct fdk_gemm_args *a, int range,
    const cublasLtMatmulAlgo_t *algo)
{
    const struct cu_lt *lt = d->ctx->lt;
    int32_t lo, hi, split = 1;
    uint32_t scheme = 0;
    size_t n;
    lt_range_rows(range, &lo, &hi);
    const int32_t rows[3] = { lo, (lo + hi) / 2, hi };
    if (d->ctx->deterministic && lt->config(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        &split, sizeof(split), &n) == CUBLAS_STATUS_SUCCESS && split > 1)
        return 0;
    if (lt->config(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme),
        &n) == CUBLAS_STATUS_SUCCESS && scheme != CUBLASLT_REDUCTION_SCHEME_NONE &&
        (d->ctx->deterministic || scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
        return 0;
    for (int i = 0; i < 3; i++) {
        struct lt_problem p;
        cublasLtMatmulHeuristicResult_t res;
        memset(&res, 0, sizeof(res));
        if (lt_problem_init(lt, a, rows[i], &p) != CUBLAS_STATUS_SUCCESS ||
            lt->check(d->lt->handle, (cublasLtMatmulDesc_t)&p.desc,
                (cublasLtMatrixLayout_t)&p.a, (cublasLtMatrixLayout_t)&p.b,
                (cublasLtMatrixLayout_t)&p.d, (cublasLtMatrixLayout_t)&p.d, algo, &res) !=
                CUBLAS_STATUS_SUCCESS || res.workspaceSize > LT_WORK)
            return 0;
    }
    return 1;
}

/* Time of one launch in milliseconds; negative if it fails. Uses the operands of the
 * actual launch, which writes y again afterwards; x may hold anything. */
static float
lt_time(struct cu_dev *d, const struct fdk_gemm_args *a, const cublasLtMatmulAlgo_t *algo,
    cudaEvent_t ev[2])
{
    struct lt_problem p;
    float best = -1, ms = 0;
    if (lt_problem_init(d->ctx->lt, a, a->T, &p) != CUBLAS_STATUS_SUCCESS)
        return -1;
    for (int i = 0; i <= N_TIMED; i++) {
        if (cudaEventRecord(ev[0], d->aux) != cudaSuccess ||
            lt_run(d, a, &p, algo, d->aux) != CUBLAS_STATUS_SUCCESS ||
            cudaEventRecord(ev[1], d->aux) != cudaSuccess ||
            cudaEventSynchronize(ev[1]) != cudaSuccess ||
            cudaEventElapsedTime(&ms, ev[0], ev[1]) != cudaSuccess)
            return -1;
        if (i > 0 && (best < 0 || ms < best))
            best = ms;
    }
    return best;
}

/* Chooses an algorithm. measure 0: the first usable one in the library's order. */
static void
lt_algo_choose(struct cu_dev *d, const struct fdk_gemm_args *a, int measure,
    struct lt_algo *ret)
{
    const struct cu_lt *lt = d->ctx->lt;
    cublasLtMatmulHeuristicResult_t res[N_TRY];
    cublasLtMatmulPreferenceOpaque_t pref;
    struct lt_problem p;
    cudaEvent_t ev[2] = { NULL, NULL };
    float best = -1;
    int n = 0;
    ret->usable = 0;
    if (lt_problem_init(lt, a, a->T, &p) != CUBLAS_STATUS_SUCCESS ||
        lt_preference(lt, d->ctx->deterministic, &pref) != CUBLAS_STATUS_SUCCESS ||
        lt->heuristic(d->lt->handle, (cublasLtMatmulDesc_t)&p.desc,
            (cublasLtMatrixLayout_t)&p.a, (cublasLtMatrixLayout_t)&p.b,
            (cublasLtMatrixLayout_t)&p.d, (cublasLtMatrixLayout_t)&p.d,
            (cublasLtMatmulPreference_t)&pref, N_TRY, res, &n) != CUBLAS_STATUS_SUCCESS)
        return;
    if (measure && (cudaEventCreate(&ev[0]) != cudaSuccess ||
        cudaEventCreate(&ev[1]) != cudaSuccess))
        measure = 0;
    for (int i = 0; i < n && (measure || !ret->usable); i++) {
        if (res[i].state != CUBLAS_STATUS_SUCCESS ||
            !lt_algo_serves(d, a, ret->range, &res[i].algo))
            continue;
        float ms = measure ? lt_time(d, a, &res[i].algo, ev) : 0;
        if (ms < 0 || (ret->usable && ms >= best))
            continue;
        best = ms;
        ret->algo = res[i].algo;
        ret->usable = 1;
    }
    for (int i = 0; i < 2; i++)
        if (ev[i] != NULL)
            cudaEventDestroy(ev[i]);
    (void)cudaGetLastError();         /* of a candidate; a failed device reports it
                                         again */
}

/* ---- opening ------------------------------------------------------------- */

int
cu_lt_open(struct fdk_ctx *ctx, const char *cache_dir, char *err, size_t err_bytes)
{
    ctx->lt = (struct cu_lt *)calloc(1, sizeof(*ctx->lt));
    if (ctx->lt == NULL) {
        snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    int rc = lt_open_library(ctx->lt, err, err_bytes);
    for (int i = 0; i < ctx->n_dev && rc == 0; i++) {
        struct cu_dev *d = &ctx->dev[i];
        d->lt = (struct cu_lt_dev *)calloc(1, sizeof(*d->lt));
        rc = d->lt == NULL ? -ENOMEM : cu_enter(d);
        cublasStatus_t s = CUBLAS_STATUS_ALLOC_FAILED;
        if (rc == 0 && (s = ctx->lt->create(&d->lt->handle)) != CUBLAS_STATUS_SUCCESS)
            rc = -EIO;
        if (rc != 0) {
            snprintf(err, err_bytes, "cublasLtCreate on CUDA device %d: status %d", d->idx,
                (int)s);
            break;
        }
        lt_file_name(d->lt, ctx->lt, d->idx, cache_dir);
        if (d->lt->path[0] != '\0')
            lt_file_read(d->lt);
    }
    return rc;
}

/* The library stays loaded, because its threads and handlers outlive a handle. */
void
cu_lt_close(struct fdk_ctx *ctx)
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

/* ---- selection ----------------------------------------------------------- */

/* Called with the device's lock held. Does not measure during a capture, because earlier
 * steps of the stream may still use the operands. */
static void
lt_algo_decide(struct cu_dev *d, const struct fdk_gemm_args *a, fdk_stream_t st,
    struct lt_algo *g)
{
    struct lt_algo c = *g;
    if (c.usable == LT_UNSEEN && lt_algo_serves(d, a, c.range, &c.algo)) {
        c.usable = 1;
    } else {
        int measure = !cu_stream_of(st)->capturing && cu_result(d,
            "cudaStreamSynchronize", cudaStreamSynchronize(cu_raw(st))) == 0;
        lt_algo_choose(d, a, measure, &c);
        if (measure)
            lt_file_add(d->lt, &c);
    }
    g->algo = c.algo;
    __atomic_store_n(&g->usable, c.usable, __ATOMIC_RELEASE);
}

/* Returns NULL if no algorithm is usable. *ret_first: 1 if this call has chosen it. */
static const struct lt_algo *
lt_algo_get(struct cu_dev *d, const struct fdk_gemm_args *a, fdk_stream_t st,
    int *ret_first)
{
    const struct lt_algo key = { a->N, a->K, a->ldy, lt_range(d, a->T), a->w_dtype,
        a->y_dtype, LT_NONE, {} };
    struct lt_algo *g = lt_algo_find(d->lt, &key);
    int usable = g != NULL ? __atomic_load_n(&g->usable, __ATOMIC_ACQUIRE) : LT_NONE;
    *ret_first = 0;
    if (usable >= 0)
        return usable ? g : NULL;
    pthread_mutex_lock(&d->lock);
    g = lt_algo_find(d->lt, &key);
    if (g == NULL && d->lt->n_algo < N_ALGO) {
        g = &d->lt->algo[d->lt->n_algo];
        *g = key;
        __atomic_store_n(&d->lt->n_algo, d->lt->n_algo + 1, __ATOMIC_RELEASE);
    }
    if (g != NULL && g->usable < 0) {
        lt_algo_decide(d, a, st, g);
        *ret_first = 1;
    }
    usable = g != NULL && g->usable == 1;
    pthread_mutex_unlock(&d->lock);
    return usable ? g : NULL;
}

/* ---- launching ----------------------------------------------------------- */

static __device__ __forceinline__ void
narrow(float x, __nv_bfloat16 *ret)
{
    *ret = __float2bfloat16_rn(x);
}

/* Finite numbers stay finite: saturates at 65504, the largest half. */
static __device__ __forceinline__ void
narrow(float x, __half *ret)
{
    if (isfinite(x))
        x = fminf(fmaxf(x, -65504.0f), 65504.0f);
    *ret = __float2half_rn(x);
}

/* Converts x. Rows that are not live become 0. */
template<typename X, typename W>
static __global__ void
narrow_kernel(struct fdk_gemm_args a)
{
    cu_dep_next();
    cu_dep_wait();
    int live = *a.n - a.first;
    size_t n = (size_t)a.T * (size_t)a.K;
    const X *x = (const X *)a.x + (size_t)a.first * (size_t)a.K;
    W *dst = (W *)((char *)a.scratch + LT_WORK);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        narrow((int)(i / (size_t)a.K) < live ? cu_widen(x[i]) : 0, &dst[i]);
}

template<typename Y>
static __global__ void
bias_kernel(struct fdk_gemm_args a)
{
    cu_dep_next();
    cu_dep_wait();
    int m = a.first + (int)blockIdx.x;
    if (m >= *a.n)
        return;
    Y *y = (Y *)a.y + (size_t)(m - a.first) * (size_t)a.ldy;
    for (int i = (int)threadIdx.x; i < a.N; i += (int)blockDim.x)
        y[i] = (Y)(cu_widen(y[i]) + a.bias[i]);
}

static void
lt_narrow(const struct fdk_gemm_args *a, cudaStream_t s)
{
    unsigned blocks = (unsigned)(((size_t)a->T * (size_t)a->K + 1023) / 1024);
    dim3 grid(blocks < 2048 ? blocks : 2048);
    if (a->w_dtype == FDK_F16 && a->act == FDK_F32)
        cu_chain(narrow_kernel<float, __half>, grid, 256, 0, s, *a);
    else if (a->w_dtype == FDK_F16)
        cu_chain(narrow_kernel<__nv_bfloat16, __half>, grid, 256, 0, s, *a);
    else
        cu_chain(narrow_kernel<float, __nv_bfloat16>, grid, 256, 0, s, *a);
}

/* Are shapes and addresses supported by every algorithm? */
int
cu_lt_fits(const struct fdk_gemm_args *a)
{
    return is_half(a->w_dtype) && a->K % 8 == 0 && a->N % 8 == 0 && a->ldy % 8 == 0 &&
        (uintptr_t)a->w % 16 == 0 && (uintptr_t)a->y % 16 == 0 &&
        (uintptr_t)a->x % 16 == 0 && (a->y_dtype == FDK_F32 || a->y_dtype == FDK_BF16) &&
        (a->w_dtype == FDK_BF16 || a->y_dtype == FDK_F32);
}

size_t
cu_lt_scratch(const struct fdk_gemm_args *a)
{
    return LT_WORK + (a->act == a->w_dtype ? 0 :
        ((size_t)a->T * (size_t)a->K * 2 + 255) / 256 * 256);
}

static int
lt_launch(const struct fdk_gemm_args *a, const struct lt_algo *g, fdk_stream_t st)
{
    struct cu_dev *d = cu_stream_of(st)->dev;
    struct lt_problem p;
    int rc = 0;
    if (lt_problem_init(d->ctx->lt, a, a->T, &p) != CUBLAS_STATUS_SUCCESS)
        return 1;
    if (a->act != a->w_dtype) {
        lt_narrow(a, cu_raw(st));
        rc = cu_launched(st, "gemm");
    }
    if (rc != 0)
        return rc;
    cublasStatus_t s = lt_run(d, a, &p, &g->algo, cu_raw(st));
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE) {
        (void)cudaGetLastError();     /* or the kernel used instead would report it */
        return 1;
    }
    rc = cu_launched(st, "gemm");
    if (rc == 0 && s != CUBLAS_STATUS_SUCCESS)
        rc = cu_result(d, "cublasLtMatmul", cudaErrorUnknown);
    if (rc != 0 || a->bias == NULL)
        return rc;
    if (a->y_dtype == FDK_F32)
        cu_chain(bias_kernel<float>, dim3((unsigned)a->T), 256, 0, cu_raw(st), *a);
    else
        cu_chain(bias_kernel<__nv_bfloat16>, dim3((unsigned)a->T), 256, 0, cu_raw(st), *a);
    return cu_launched(st, "gemm");
}

/* Choosing an algorithm and its first launch may load code, which must not be part
 * of a capture. */
int
cu_lt_gemm(const struct fdk_gemm_args *a, fdk_stream_t st)
{
    struct cu_stream *s = cu_stream_of(st);
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int first = 0;
    if (s->capturing)
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    const struct lt_algo *g = lt_algo_get(s->dev, a, st, &first);
    if (s->capturing && !first)
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    int rc = g != NULL ? lt_launch(a, g, st) : 1;
    if (s->capturing && first)
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return rc;
}

/* If no algorithm is usable, each launch finds that out itself. Each algorithm is launched
 * once, as one from the file has not been measured: the library loads its kernel at its
 * first launch, and may then wait for the device, which in a step may be waiting for
 * another rank. */
int
cu_lt_choose(const struct fdk_gemm_args *a, int32_t least, fdk_stream_t st)
{
    struct cu_dev *d = cu_stream_of(st)->dev;
    struct fdk_gemm_args b = *a;
    int32_t lo, hi = least - 1;
    int first, rc = 0;
    while (hi < a->T && rc >= 0) {
        lt_range_rows(lt_range(d, hi + 1), &lo, &hi);
        b.T = hi < a->T ? hi : a->T;
        const struct lt_algo *g = lt_algo_get(d, &b, st, &first);
        if (g != NULL && first)
            rc = lt_launch(&b, g, st);
        if (hi >= LT_MOST)
            break;
    }
    return rc < 0 ? rc : cu_launched(st, "gemm");
}

cudaError_t
cu_lt_load(void)
{
    static const void *const k[] = {
        (const void *)bias_kernel<float>, (const void *)bias_kernel<__nv_bfloat16>,
        (const void *)narrow_kernel<float, __half>,
        (const void *)narrow_kernel<__nv_bfloat16, __half>,
        (const void *)narrow_kernel<float, __nv_bfloat16>,
    };
    return cu_load(k, sizeof(k) / sizeof(k[0]));
}
