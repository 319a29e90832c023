/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Functions of one struct cpu_isa; private to isa_*.c. */
#ifndef FDD_KERNELS_CPU_ISA_OPS_H
#define FDD_KERNELS_CPU_ISA_OPS_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

/* A multiple of every tile's columns in isa_gemm.c. */
enum { CPU_GEMM_ALIGN = CPU_ISA == 2 ? 24 : 4 };

void ISA_NAME(cpu_gemm)(const struct fdk_gemm_args *a, int m0, int m1, int n0, int n1,
    void *scratch);
void ISA_NAME(cpu_attend)(const struct cpu_attend *job, void *scratch);
void ISA_NAME(cpu_merge)(const struct fdk_merge_args *a, int t);
void ISA_NAME(cpu_qkv)(const struct fdk_qkv_args *a, int t);

#endif
