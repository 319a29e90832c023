/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/fdk_cuda.cuh"
#include "kernels/cuda/hooks.h"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>

/* Functions of the driver. */
struct calls {
    CUresult (*params)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
    CUresult (*of_function)(const char **, CUfunction);
    CUresult (*of_kernel)(const char **, CUkernel);
};

static int
calls_find(struct calls *c)
{
    int rc = cu_driver_call("cuGraphKernelNodeGetParams", 12000, &c->params);
    if (rc == 0)
        rc = cu_driver_call("cuFuncGetName", 12030, &c->of_function);
    return rc != 0 ? rc : cu_driver_call("cuKernelGetName", 12030, &c->of_kernel);
}

static int
name_add(const struct calls *c, cudaGraphNode_t node, char *ret, size_t ret_bytes)
{
    CUDA_KERNEL_NODE_PARAMS p = {};
    const char *name = NULL;
    size_t n = strlen(ret);
    if (c->params(node, &p) != CUDA_SUCCESS || (p.func != NULL ?
        c->of_function(&name, p.func) : c->of_kernel(&name, p.kern)) != CUDA_SUCCESS)
        return -ENOTSUP;
    if (n + strlen(name) + 2 > ret_bytes)
        return -ENOSPC;
    strcpy(ret + n, name);
    strcat(ret, "\n");
    return 0;
}

static int
names_of(struct cu_dev *d, cudaGraph_t g, char *ret, size_t ret_bytes)
{
    struct calls c;
    size_t n = 0;
    int rc = calls_find(&c);
    if (rc == 0)
        rc = cu_result(d, "cudaGraphGetNodes", cudaGraphGetNodes(g, NULL, &n));
    if (rc != 0)
        return rc;
    cudaGraphNode_t *node = (cudaGraphNode_t *)calloc(n + 1, sizeof(*node));
    if (node == NULL)
        return -ENOMEM;
    rc = cu_result(d, "cudaGraphGetNodes", cudaGraphGetNodes(g, node, &n));
    for (size_t i = 0; i < n && rc == 0; i++) {
        enum cudaGraphNodeType type;
        rc = cu_result(d, "cudaGraphNodeGetType", cudaGraphNodeGetType(node[i], &type));
        if (rc == 0 && type == cudaGraphNodeTypeKernel)
            rc = name_add(&c, node[i], ret, ret_bytes);
    }
    free(node);
    return rc;
}

int
fdk_cuda_kernels(fdk_stream_t st, int (*launch)(void *arg), void *arg, char *ret,
    size_t ret_bytes)
{
    struct cu_stream *s = cu_stream_of(st);
    cudaGraph_t g = NULL;
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    rc = cu_result(s->dev, "cudaStreamBeginCapture",
        cudaStreamBeginCapture(s->s, cudaStreamCaptureModeThreadLocal));
    if (rc != 0)
        return rc;
    s->capturing = 1;
    int launched = launch(arg);
    s->capturing = 0;
    rc = cu_result(s->dev, "cudaStreamEndCapture", cudaStreamEndCapture(s->s, &g));
    ret[0] = '\0';
    if (rc == 0)
        rc = launched != 0 ? launched : names_of(s->dev, g, ret, ret_bytes);
    if (g != NULL)
        cudaGraphDestroy(g);
    return rc;
}

/* ---- tensor maps ----------------------------------------------------------------- */

static int fail_maps, n_refused;

int
cu_map_refused(void)
{
    if (!__atomic_load_n(&fail_maps, __ATOMIC_RELAXED))
        return 0;
    (void)__atomic_fetch_add(&n_refused, 1, __ATOMIC_RELAXED);
    return 1;
}

int
fdk_cuda_fail_maps(int on)
{
    __atomic_store_n(&fail_maps, on, __ATOMIC_RELAXED);
    return __atomic_exchange_n(&n_refused, 0, __ATOMIC_RELAXED);
}

void *
fdk_cuda_stream(fdk_stream_t st)
{
    return cu_raw(st);
}
