/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight-only quantization: which weights become integers or 8-bit floats with fp32 scales
 * while they are loaded, and their groups. The backend makes them (fdk_ops.weight_pack);
 * activations, accumulation and everything else stay as they are.
 *
 * What is quantized: the matrices of the layers' GEMMs (qkv, attention
 * output, gate and up, down). Embedding, output head, norms and biases keep
 * their type: the first is a table of rows, the second decides between near
 * candidates, the rest are small.
 *
 * Scheme, for each row and each group of `group` inputs (0: the whole row;
 * the last group of a row may be shorter):
 *
 *   wint8  scale = |largest| / 127, values -127..127
 *   wint4  scale = -(element of largest magnitude) / 8, values -8..7; of two
 *          such elements of either sign the negative one counts. The scale
 *          may be negative. Against |largest| / 7 and -7..7 the error of the
 *          demo model's weights is 12 % less (0.114 for 0.130 of their rms
 *          per row, 0.095 for 0.108 in groups of 64), its loss on held-out
 *          text the same per row and 0.0025 nats less in groups of 64.
 *   fp8    scale = |largest| / 448, values of e4m3 (4 exponent bits of bias 7,
 *          3 of mantissa, no infinity), never NaN
 *
 * value = w / scale in fp32, rounded to the nearest integer or e4m3 number,
 * ties to even, then clamped (fp8: to +-448); a group of zeros has scale 0 (as
 * one whose scale is too small for fp32). What the GEMM computes with is
 * value * scale, rounded to fp32. All of it is exact fp32 arithmetic, so a
 * checkpoint gives the same bits on every machine and for every way of
 * reading it.
 *
 * wint4 needs an even row.
 *
 * Tensor parallelism: a rank's rows have their scales. A rank's columns are whole groups (and
 * an even number for wint4); with one group a row each rank has the row's scale, made of the
 * whole row.
 */
#ifndef FDD_DAEMON_WORKER_QUANT_H
#define FDD_DAEMON_WORKER_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/param.h"
#include "kernels/fdk.h"

struct qnt {
    enum fdk_dtype dtype; /* FDK_I8, FDK_I4, FDK_F8E4M3; FDK_F32: none */
    int32_t group;        /* 0: a scale per row */
};

/* From quant.weights and quant.group_size. -EINVAL with one line in err that
 * names the group size and what is allowed. */
int qnt_parse(enum par_quant_weights weights, int64_t group, struct qnt *ret, char *err,
    size_t err_bytes);
/* "none", "wint8", "wint4", "fp8" */
const char *qnt_name(const struct qnt *q);

/* Groups of a row of n weights, and how many weights share a scale then. */
int32_t qnt_groups(const struct qnt *q, int32_t n);
int32_t qnt_group(const struct qnt *q, int32_t n);

#endif
