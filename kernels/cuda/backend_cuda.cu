/*
 * The CUDA backend: what is there so far. Devices and the driver are looked
 * for and named; opening answers that this build cannot run on them yet.
 */
#include <cuda_runtime.h>

#include <errno.h>
#include <stdio.h>

#include "kernels/fdk.h"

/* state[idx[i]] = rows[i]: one block per row, whole words. */
static __global__ void
row_update_kernel(struct fdk_row *state, const struct fdk_row *rows, const int32_t *idx,
    const int32_t *n)
{
    static_assert(sizeof(struct fdk_row) % 4 == 0, "copied by words");
    int i = (int)blockIdx.x;
    if (i >= *n)
        return;
    const uint32_t *src = (const uint32_t *)&rows[i];
    uint32_t *dst = (uint32_t *)&state[idx[i]];
    for (unsigned w = threadIdx.x; w < sizeof(struct fdk_row) / 4; w += blockDim.x)
        dst[w] = src[w];
}

static int
cuda_row_update(const struct fdk_row_update_args *a, fdk_stream_t st)
{
    if (a->n_max < 0)
        return -EINVAL;
    if (a->n_max == 0)
        return 0;
    row_update_kernel<<<(unsigned)a->n_max, 96, 0, st>>>(a->state, a->rows, a->idx, a->n);
    return cudaPeekAtLastError() == cudaSuccess ? 0 : -EIO;
}

/* Devices that a driver offers, or why there are none. */
static int
cuda_devices(char *why, size_t why_bytes)
{
    int n = 0, version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
        snprintf(why, why_bytes, "no NVIDIA driver found: install the driver for the "
            "card, or set device.backend = cpu");
        return -ENODEV;
    }
    cudaError_t err = cudaGetDeviceCount(&n);
    if (err == cudaErrorInsufficientDriver) {
        snprintf(why, why_bytes, "the NVIDIA driver supports CUDA %d.%d, this build "
            "needs %d.%d: update the driver, or set device.backend = cpu", version / 1000,
            version % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
        return -ENODEV;
    }
    if (err != cudaSuccess || n == 0) {
        snprintf(why, why_bytes, "no CUDA device: %s; set device.backend = cpu",
            err == cudaSuccess ? "the driver lists none" : cudaGetErrorString(err));
        return -ENODEV;
    }
    return n;
}

/* Never available: device.backend = auto must fall to the cpu backend. */
static int
cuda_available(char *why, size_t why_bytes)
{
    int n = cuda_devices(why, why_bytes);
    if (n < 0)
        return n;
    snprintf(why, why_bytes, "%d CUDA device%s found, but the CUDA backend is not part of "
        "this build yet; set device.backend = cpu", n, n == 1 ? "" : "s");
    return -ENOTSUP;
}

static int
cuda_open(const struct fdk_open_args *args, struct fdk_ctx **ret, char *err,
    size_t err_bytes)
{
    (void)args;
    (void)ret;
    return cuda_available(err, err_bytes);
}

/* constexpr: the table must stand before any constructor has run. */
static constexpr struct fdk_ops
make_ops(void)
{
    struct fdk_ops ops = {};
    ops.name = "cuda";
    ops.act_dtype = FDK_BF16;
    ops.available = cuda_available;
    ops.open = cuda_open;
    ops.row_update = cuda_row_update;
    return ops;
}

extern "C" {
extern const struct fdk_ops fdk_ops_cuda;
constexpr struct fdk_ops fdk_ops_cuda = make_ops();
}
