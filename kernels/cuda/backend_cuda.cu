/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding, opening and closing devices, their errors, and the ops table.
 */
#include "kernels/cuda/attention.cuh"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_DEVICES 31           /* peer_mask is an int32_t */
#define MIN_MAJOR   9            /* compute capability: clusters of blocks */

/* ---- errors -------------------------------------------------------------- */

static int
cu_fail(struct cu_dev *dev, const char *fmt, ...)
{
    uint32_t none = 0;
    if (!__atomic_compare_exchange_n(&dev->failed, &none, 1, 0, __ATOMIC_ACQ_REL,
        __ATOMIC_ACQUIRE))
        return -EIO;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(dev->text, sizeof(dev->text), fmt, ap);
    va_end(ap);
    __atomic_store_n(&dev->failed, 2, __ATOMIC_RELEASE);
    cu_groups_tell(dev);
    return -EIO;
}

static int
cu_fail_input(struct cu_dev *dev)
{
    static const char *const text[] = {
        "", "embed: token id %d at index %d of the step is outside the vocabulary of %d",
        "att_plan: row %d of %d needs more than the %d tiles there is room for",
        "attention: row %d of work item %d (tile %d) is outside the step",
        "collective: rank %1$d did not arrive within %3$d ms (this is rank %2$d)",
        "collective: ranks launched different operations, seen at rank %d (this is rank %d)",
        "collective: rank %d failed (this is rank %d)",
    };
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return cu_fail(dev, text[dev->fault->code], dev->fault->value, dev->fault->at,
        dev->fault->bound);
}

int
cu_enter(struct cu_dev *dev)
{
    if (__atomic_load_n(&dev->failed, __ATOMIC_ACQUIRE) != 0)
        return -EIO;
    if (dev->fault->code > 0)
        return cu_fail_input(dev);
    return cu_result(dev, "cudaSetDevice", cudaSetDevice(dev->idx));
}

int
cu_enter_idx(struct fdk_ctx *ctx, int dev)
{
    return dev < 0 || dev >= ctx->n_dev ? -EINVAL : cu_enter(&ctx->dev[dev]);
}

int
cu_result(struct cu_dev *dev, const char *call, cudaError_t e)
{
    if (e == cudaSuccess)
        return 0;
    (void)cudaGetLastError();         /* or the next launch would report it */
    if (e == cudaErrorMemoryAllocation)
        return -ENOMEM;
    if (e >= cudaErrorStreamCaptureUnsupported && e <= cudaErrorStreamCaptureWrongThread)
        return -EBUSY;
    return cu_fail(dev, "%s on device %d: %s: %s", call, dev->idx, cudaGetErrorName(e),
        cudaGetErrorString(e));
}

int
cu_launched(fdk_stream_t st, const char *op)
{
    return cu_result(cu_stream_of(st)->dev, op, cudaGetLastError());
}

int
cu_stream_enter(fdk_stream_t st)
{
    return st == NULL ? -EINVAL : cu_enter(cu_stream_of(st)->dev);
}

static const char *
cu_error_text(struct fdk_ctx *ctx, int dev)
{
    if (dev < 0 || dev >= ctx->n_dev)
        return "no such device";
    return __atomic_load_n(&ctx->dev[dev].failed, __ATOMIC_ACQUIRE) == 2 ?
        ctx->dev[dev].text : "";
}

uint64_t
cu_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- devices ------------------------------------------------------------- */

#define PROBE_BYTES 2048

/* Uses PROBE_BYTES of shared memory if compiled for sm_90a, nearly none otherwise. */
static __global__ void
probe_kernel(int *p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ volatile int here[PROBE_BYTES / 4];
    here[*p] = 1;
    *p = here[0];
#else
    *p = 1;
#endif
}

/* Is code for the device in this build, or can the driver compile it? Asking
 * the driver opens the device, so the list of targets is checked first. */
static int
has_code(int dev)
{
    static const int built[] = { __CUDA_ARCH_LIST__ };
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev) !=
        cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, dev) !=
        cudaSuccess || major < MIN_MAJOR)
        return 0;
    for (size_t i = 0; i < sizeof(built) / sizeof(built[0]); i++)
        if (built[i] == major * 100 + minor * 10)
            return 1;
    struct cudaFuncAttributes attr;
    int ok = cudaSetDevice(dev) == cudaSuccess &&
        cudaFuncGetAttributes(&attr, probe_kernel) == cudaSuccess;
    (void)cudaGetLastError();
    return ok;
}

static int
no_device(char *why, size_t why_bytes, cudaError_t err, int version)
{
    if (err == cudaErrorInsufficientDriver)
        snprintf(why, why_bytes, "the NVIDIA driver supports CUDA %d.%d, this build "
            "needs %d.%d: update the driver, or set device.backend = cpu", version / 1000,
            version % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    else
        snprintf(why, why_bytes, "no CUDA device: %s; set device.backend = cpu",
            err == cudaSuccess ? "the driver lists none" : cudaGetErrorString(err));
    (void)cudaGetLastError();
    return -ENODEV;
}

/* Returns how many leading GPUs can be used, or -ENODEV and the reason in why. */
static int
gpus(char *why, size_t why_bytes)
{
    int n = 0, version = 0;
    if (why_bytes > 0)
        why[0] = '\0';
    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
        snprintf(why, why_bytes, "no NVIDIA driver found: install the driver for the "
            "GPU, or set device.backend = cpu");
        return -ENODEV;
    }
    cudaError_t err = cudaGetDeviceCount(&n);
    if (err != cudaSuccess || n == 0)
        return no_device(why, why_bytes, err, version);
    for (int i = 0; i < n && i < MAX_DEVICES; i++) {
        if (has_code(i))
            continue;
        if (i > 0)
            return i;
        int major = 0, minor = 0;
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i);
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i);
        snprintf(why, why_bytes, "CUDA device %d has compute capability %d.%d, %s set "
            "device.backend = cpu", i, major, minor, major < MIN_MAJOR ?
            "the cuda backend needs 9.0:" : "for which this build has no code: "
            "configure with --with-nvcc-gencode, or");
        return -ENODEV;
    }
    return n < MAX_DEVICES ? n : MAX_DEVICES;
}

/* For tests of several devices on fewer GPUs: FDD_CUDA_SHARE devices are mapped
 * to the GPUs in turn. Their streams need separate hardware queues, or one would wait for
 * another's collective. */
static int
shared(void)
{
    const char *env = getenv("FDD_CUDA_SHARE");
    int n = env != NULL ? atoi(env) : 0;
    if (n <= 0)
        return 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    return n < MAX_DEVICES ? n : MAX_DEVICES;
}

static int
cu_available(char *why, size_t why_bytes)
{
    int most = shared(), n = gpus(why, why_bytes);
    return n > 0 && most > n ? most : n;
}

/* Index of the GPU of a device. */
static int
gpu_of(int dev)
{
    char why[256];
    int n = shared() > 0 ? gpus(why, sizeof(why)) : 0;
    return n > 0 ? dev % n : dev;
}

static int
cu_device_uuid(int dev, char *ret, size_t ret_bytes)
{
    static const int dash[] = { 4, 6, 8, 10 };
    struct cudaDeviceProp prop;
    char text[64] = "GPU-";
    size_t n = 4, d = 0;
    if (cudaGetDeviceProperties(&prop, gpu_of(dev)) != cudaSuccess) {
        (void)cudaGetLastError();
        return -ENODEV;
    }
    for (int i = 0; i < 16; i++) {
        if (d < 4 && i == dash[d]) {
            text[n++] = '-';
            d++;
        }
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x",
            (unsigned)(unsigned char)prop.uuid.bytes[i]);
    }
    if (n >= ret_bytes)
        return -ENAMETOOLONG;
    memcpy(ret, text, n + 1);
    return 0;
}

static int
cu_device_peer(int dev, int other)
{
    int can = 0, a = gpu_of(dev), b = gpu_of(other);
    if (a == b && dev != other)
        return 1;
    cudaError_t e = cudaDeviceCanAccessPeer(&can, a, b);
    if (e == cudaSuccess)
        return can;
    (void)cudaGetLastError();
    return -ENODEV;
}

static int
cu_device_info(struct fdk_ctx *ctx, int dev, struct fdk_device_info *ret)
{
    struct cudaDeviceProp prop;
    struct fdk_device_info info = {};
    size_t free_bytes = 0, total = 0;
    int rc = cu_enter_idx(ctx, dev);
    if (rc == 0)
        rc = cu_result(&ctx->dev[dev], "cudaGetDeviceProperties",
            cudaGetDeviceProperties(&prop, ctx->dev[dev].idx));
    if (rc == 0)
        rc = cu_result(&ctx->dev[dev], "cudaMemGetInfo",
            cudaMemGetInfo(&free_bytes, &total));
    if (rc != 0)
        return rc;
    snprintf(info.name, sizeof(info.name), "%.63s", prop.name);
    info.mem_total = total;
    info.mem_free = free_bytes;
    info.n_proc = prop.multiProcessorCount;
    for (int i = 0; i < ctx->n_dev; i++) {
        int can = ctx->dev[i].idx == ctx->dev[dev].idx;
        if (can || (cudaDeviceCanAccessPeer(&can, ctx->dev[dev].idx, ctx->dev[i].idx) ==
            cudaSuccess && can))
            info.peer_mask |= UINT32_C(1) << i;
    }
    (void)cudaGetLastError();
    *ret = info;
    return 0;
}

static int
cu_device_cpus(struct fdk_ctx *ctx, int dev, char *ret, size_t ret_bytes)
{
    char bus_id[32] = "";
    int rc = cu_enter_idx(ctx, dev);
    if (rc == 0)
        rc = cu_result(&ctx->dev[dev], "cudaDeviceGetPCIBusId",
            cudaDeviceGetPCIBusId(bus_id, (int)sizeof(bus_id), ctx->dev[dev].idx));
    return rc != 0 ? rc : fdk_pci_cpus("/sys", bus_id, ret, ret_bytes);
}

/* ---- contexts ------------------------------------------------------------ */

static void
cu_close(struct fdk_ctx *ctx)
{
    if (ctx == NULL)
        return;
    while (ctx->streams != NULL)
        cu_stream_free(reinterpret_cast<fdk_stream_t>(ctx->streams));
    while (ctx->events != NULL)
        cu_event_free(reinterpret_cast<fdk_event_t>(ctx->events));
    cu_gemm_close(ctx);
    cu_vmm_close(ctx);
    for (int i = 0; i < ctx->n_dev; i++) {
        struct cu_dev *d = &ctx->dev[i];
        cu_clock_close(d);
        cu_mega_close(d);
        /* d->fault is NULL if opening failed before fault_open(). */
        if (d->fault != NULL && cu_enter(d) == 0 &&
            cu_result(d, "cudaFree", cudaFree(d->claim)) == 0)
            (void)cu_result(d, "cudaFreeHost", cudaFreeHost((void *)d->fault));
        pthread_mutex_destroy(&d->lock);
    }
    pthread_mutex_destroy(&ctx->lock);
    pthread_mutex_destroy(&ctx->group_lock);
    free(ctx->dev);
    ctx->magic = 0;
    free(ctx);
}

cudaError_t
cu_load(const void *const *k, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct cudaFuncAttributes attr;
        cudaError_t e = cudaFuncGetAttributes(&attr, k[i]);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}

static cudaError_t
load_kernels(struct cu_dev *d)
{
    cudaError_t (*const load[])(void) = {
        cu_stream_load, cu_rows_load, cu_attention_load, cu_qkv_load, cu_sample_load, cu_probe_load,
        cu_weights_load, cu_collective_load,
    };
    struct cudaFuncAttributes attr;
    cudaError_t e = cudaFuncGetAttributes(&attr, probe_kernel);
    if (e != cudaSuccess)
        return e;
    d->sm90a = attr.sharedSizeBytes >= PROBE_BYTES;
    for (size_t i = 0; i < sizeof(load) / sizeof(load[0]); i++) {
        e = load[i]();
        if (e != cudaSuccess)
            return e;
    }
    e = cu_gemm_load(d->sm90a);
    return e == cudaSuccess ? cu_mega_load(d->sm90a) : e;
}

/* Allocates the memory in which kernels report invalid input. */
static int
fault_open(struct cu_dev *d)
{
    struct cu_claim claim = {};
    void *p = NULL, *q = NULL;
    int rc = cu_result(d, "cudaHostAlloc", cudaHostAlloc(&p, sizeof(struct cu_fault),
        cudaHostAllocMapped | cudaHostAllocPortable));
    if (rc != 0)
        return rc;
    memset(p, 0, sizeof(struct cu_fault));
    d->fault = (volatile struct cu_fault *)p;
    rc = cu_result(d, "cudaHostGetDevicePointer", cudaHostGetDevicePointer(&q, p, 0));
    claim.to = (struct cu_fault *)q;
    if (rc == 0)
        rc = cu_result(d, "cudaMalloc", cudaMalloc((void **)&d->claim, sizeof(claim)));
    if (rc == 0)
        rc = cu_result(d, "cudaMemcpy", cudaMemcpy(d->claim, &claim, sizeof(claim),
            cudaMemcpyHostToDevice));
    return rc;
}

static int
device_open(struct cu_dev *d)
{
    int rc = cu_result(d, "cudaSetDevice", cudaSetDevice(d->idx));
    if (rc == 0)
        rc = fault_open(d);
    if (rc == 0)
        rc = cu_result(d, "cudaDeviceGetAttribute", cudaDeviceGetAttribute(&d->n_proc,
            cudaDevAttrMultiProcessorCount, d->idx));
    if (rc == 0)
        rc = cu_result(d, "loading kernels", load_kernels(d));
    if (rc == 0)
        rc = cu_mega_open(d);
    for (int i = 0; i < d->ctx->n_dev && rc == 0; i++) {
        int can = 0, peer = d->ctx->dev[i].idx;
        if (peer == d->idx ||
            cudaDeviceCanAccessPeer(&can, d->idx, peer) != cudaSuccess || !can)
            continue;
        cudaError_t e = cudaDeviceEnablePeerAccess(peer, 0);
        if (e == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError();
        else
            rc = cu_result(d, "cudaDeviceEnablePeerAccess", e);
    }
    return rc != 0 ? rc : cu_clock_open(d);
}

static int
ctx_new(const struct fdk_open_args *args, struct fdk_ctx **ret)
{
    struct fdk_ctx *ctx = (struct fdk_ctx *)calloc(1, sizeof(*ctx));
    if (ctx == NULL)
        return -ENOMEM;
    ctx->dev = (struct cu_dev *)calloc((size_t)args->n_device,
        sizeof(*ctx->dev));
    if (ctx->dev == NULL) {
        free(ctx);
        return -ENOMEM;
    }
    ctx->magic = CU_CTX_MAGIC;
    ctx->n_dev = args->n_device;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->group_lock, NULL);
    for (int i = 0; i < ctx->n_dev; i++) {
        ctx->dev[i].ctx = ctx;
        ctx->dev[i].idx = gpu_of(args->device != NULL ? args->device[i] : i);
        pthread_mutex_init(&ctx->dev[i].lock, NULL);
    }
    *ret = ctx;
    return 0;
}

static int
check_devices(const struct fdk_open_args *args, int n, char *err, size_t err_bytes)
{
    if (args->n_device < 1 || args->n_device > n || args->n_device > FDK_MAX_DEVICES) {
        snprintf(err, err_bytes, "%d devices requested: the cuda backend has 1 to %d here",
            args->n_device, n);
        return -EINVAL;
    }
    for (int i = 0; i < args->n_device && args->device != NULL; i++) {
        int bad = args->device[i] < 0 || args->device[i] >= n;
        for (int j = 0; j < i; j++)
            bad |= args->device[j] == args->device[i];
        if (!bad)
            continue;
        snprintf(err, err_bytes, "cuda:%d asked for: devices are counted from 0 to %d, "
            "each is listed once", args->device[i], n - 1);
        return -EINVAL;
    }
    return 0;
}

static int
cu_open(const struct fdk_open_args *args, struct fdk_ctx **ret, char *err,
    size_t err_bytes)
{
    struct fdk_ctx *ctx;
    int n = cu_available(err, err_bytes), bad = -1;
    if (n < 0)
        return n;
    int rc = check_devices(args, n, err, err_bytes);
    if (rc != 0)
        return rc;
    rc = ctx_new(args, &ctx);
    if (rc != 0) {
        snprintf(err, err_bytes, "out of memory");
        return rc;
    }
    ctx->deterministic = args->deterministic;
    for (int i = 0; i < ctx->n_dev && rc == 0; i++)
        if ((rc = device_open(&ctx->dev[i])) != 0)
            bad = i;
    if (bad >= 0)
        snprintf(err, err_bytes, "cannot open CUDA device %d: %s", ctx->dev[bad].idx,
            rc == -ENOMEM ? "out of device memory" : cu_error_text(ctx, bad));
    if (rc == 0)
        rc = cu_vmm_open(ctx, err, err_bytes);
    if (rc == 0)
        rc = cu_gemm_open(ctx, args->cache_dir, err, err_bytes);
    if (rc != 0) {
        cu_close(ctx);
        return rc;
    }
    for (int i = 0; i < ctx->n_dev; i++)
        if ((args->dead >> i & 1) != 0)
            (void)cu_fail(&ctx->dev[i], "cuda:%d fails every call: fdk_open_args.dead",
                ctx->dev[i].idx);
    *ret = ctx;
    return 0;
}

/* ---- the table ----------------------------------------------------------- */

/* Half precision has too short a range for activations: they stay fp32. */
static enum fdk_dtype
cu_act(enum fdk_dtype w)
{
    return w == FDK_BF16 || w == FDK_I8 || w == FDK_I4 || w == FDK_F8E4M3 ? FDK_BF16 :
        FDK_F32;
}

static constexpr void
table_devices(struct fdk_ops *o)
{
    o->name = "cuda";
    o->act = cu_act;
    o->available = cu_available;
    o->device_cpus = cu_device_cpus;
    o->device_uuid = cu_device_uuid;
    o->device_peer = cu_device_peer;
    o->open = cu_open;
    o->close = cu_close;
    o->device_info = cu_device_info;
    o->error_text = cu_error_text;
    o->probe = cu_probe;
    o->mem_alloc = cu_mem_alloc;
    o->mem_free = cu_mem_free;
    o->host_alloc = cu_host_alloc;
    o->host_free = cu_host_free;
    o->mem_reserve = cu_mem_reserve;
    o->mem_map = cu_mem_map;
    o->mem_unmap = cu_mem_unmap;
    o->mem_release = cu_mem_release;
    o->stream_new = cu_stream_new;
    o->stream_free = cu_stream_free;
    o->stream_sync = cu_stream_sync;
    o->stream_wait = cu_stream_wait;
    o->stream_delay = cu_stream_delay;
    o->stream_fail = cu_stream_fail;
    o->stream_mark = cu_stream_mark;
    o->event_new = cu_event_new;
    o->event_free = cu_event_free;
    o->event_record = cu_event_record;
    o->event_query = cu_event_query;
    o->event_sync = cu_event_sync;
    o->event_wait = cu_event_wait;
    o->event_ns = cu_event_ns;
    o->copy = cu_copy;
    o->copy_peer = cu_copy_peer;
    o->fill = cu_fill;
    o->graph_begin = cu_graph_begin;
    o->graph_end = cu_graph_end;
    o->graph_launch = cu_graph_launch;
    o->graph_free = cu_graph_free;
}

/* constexpr: the table must be complete before any constructor runs. */
static constexpr struct fdk_ops
make_ops(void)
{
    struct fdk_ops o = {};
    table_devices(&o);
    o.gemm_rows = CU_STREAM_ROWS;
    o.att_back = CU_SPLIT_CHUNK - 1;
    o.att_shape = cu_att_shape;
    o.gemm_scratch = cu_gemm_scratch;
    o.att_plan_bytes = cu_att_plan_bytes;
    o.attention_scratch = cu_attention_scratch;
    o.sample_scratch = cu_sample_scratch;
    o.row_update = cu_row_update;
    o.att_plan = cu_att_plan;
    o.att_plan_host = cu_att_plan_host;
    o.embed = cu_embed;
    o.rmsnorm = cu_rmsnorm;
    o.gemm = cu_gemm;
    o.gemm_choose = cu_gemm_choose;
    o.rope_table = cu_rope_table;
    o.qkv = cu_qkv;
    o.attention = cu_attention;
    o.silu_mul = cu_silu_mul;
    o.softcap = cu_softcap;
    o.merge = cu_merge;
    o.gather = cu_gather;
    o.sample = cu_sample;
    o.weight_layout = cu_weight_layout;
    o.layout_name = cu_layout_name;
    o.weight_pack = cu_weight_pack;
    o.dummy = cu_dummy_weights;
    o.fusion = cu_fusions;
    o.n_fusion = CU_FUSIONS;
    o.op_kernels = cu_op_kernels;
    o.op_takes = cu_op_takes;
    o.fell_back = cu_fell_back;
    o.gemm_class = cu_gemm_class;
    o.group_new = cu_group_new;
    o.group_free = cu_group_free;
    o.group_bytes = cu_group_bytes;
    o.group_abort = cu_group_abort;
    o.group_ways = cu_group_ways;
    o.all_reduce = cu_all_reduce;
    o.all_gather = cu_all_gather;
    o.reduce_send = cu_reduce_send;
    o.reduce_take = cu_reduce_take;
    o.kv_share = cu_kv_share;
    o.row_share = cu_row_share;
    return o;
}

extern "C" {
extern const struct fdk_ops fdk_ops_cuda;
constexpr struct fdk_ops fdk_ops_cuda = make_ops();
}
