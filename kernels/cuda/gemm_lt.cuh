/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by gemm_lt.cu and gemm_lt_file.cu: the library's entry points, and the
 * algorithms chosen so far.
 */
#ifndef FDD_KERNELS_CUDA_GEMM_LT_CUH
#define FDD_KERNELS_CUDA_GEMM_LT_CUH

#include "kernels/cuda/fdk_cuda.cuh"

#include <cublasLt.h>
#include <string.h>

#define N_ALGO    2048           /* most classes of a process; a model has about 100 */
#define N_FILE    (N_ALGO - 512) /* most classes read from the file */

struct cu_lt {
    void *so;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtGetVersion) version;
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
    int32_t N, K, ldy, range;    /* range: of T (lt_range), -1: every T */
    enum fdk_dtype w, y;
    int usable;                  /* 1; 0: no algorithm found; LT_*: not decided yet */
    cublasLtMatmulAlgo_t algo;
};

#define LT_UNSEEN (-1)           /* read from the file, not checked yet */
#define LT_NONE   (-2)           /* not chosen yet */

struct cu_lt_dev {
    cublasLtHandle_t handle;
    char path[512];              /* of the file of algorithms; "": none */
    int n_algo;                  /* entries; those below n_algo are complete */
    struct lt_algo algo[N_ALGO];
};

/* Entry of the class of key, or NULL. Compares the six members before `usable`. */
static inline struct lt_algo *
lt_algo_find(struct cu_lt_dev *l, const struct lt_algo *key)
{
    int n = __atomic_load_n(&l->n_algo, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++)
        if (memcmp(&l->algo[i], key, offsetof(struct lt_algo, usable)) == 0)
            return &l->algo[i];
    return NULL;
}

/* gemm_lt_file.cu: the file that keeps choices for later starts. */

/* Sets l->path: a file in dir named after device, driver and library; "" for none. */
void lt_file_name(struct cu_lt_dev *l, const struct cu_lt *lt, int dev, const char *dir);
/* Reads the file's entries; each is checked at its first use. */
void lt_file_read(struct cu_lt_dev *l);
/* Appends a choice. A lost one costs a measurement at the next start. */
void lt_file_add(const struct cu_lt_dev *l, const struct lt_algo *g);

#endif
