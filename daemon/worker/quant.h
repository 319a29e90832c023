/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight-only quantization: which weights become integers or 8-bit floats with fp32
 * scales while they are loaded, and their groups. The backend makes them
 * (fdk_ops.weight_pack); activations, accumulation and everything else stay as they are.
 *
 * What is quantized: the matrices of the layers' GEMMs (qkv, attention
 * output, gate and up, down). Embedding, output head, norms and biases keep
 * their type: the embedding is only looked up, the output head decides between
 * near candidates, norms and biases are small.
 *
 * Scheme, for each row and each group of `group` inputs (0: the whole row;
 * the last group of a row may be shorter):
 *
 *   wint8  scale = |largest| / 127, values -127..127
 *   wint4  scale = -(element of largest magnitude) / 8, values -8..7; if a
 *          positive and a negative element tie, the negative one counts. The scale
 *          may be negative. Compared with |largest| / 7 and -7..7, the error of the
 *          demo model's weights is 12 % smaller (0.114 instead of 0.130 of their rms
 *          per row, 0.095 instead of 0.108 in groups of 64); its loss on held-out
 *          text is the same per row and 0.0025 nats smaller in groups of 64.
 *   fp8    scale = |largest| / 448, values of e4m3 (4 exponent bits of bias 7,
 *          3 of mantissa, no infinity), never NaN
 *
 * value = w / scale in fp32, rounded to the nearest integer or e4m3 number,
 * ties to even, then clamped (fp8: to +-448); a group of zeros has scale 0 (as
 * has one whose scale is too small for fp32). The GEMM computes with
 * value * scale, rounded to fp32. All of this is exact fp32 arithmetic, so a
 * checkpoint gives the same bits on every machine and for every way of
 * reading it.
 *
 * wint4 needs rows of even length.
 *
 * Tensor parallelism: weights split by rows keep each row's scales. A rank's columns must
 * be whole groups (for wint4 an even number of columns); with one group per row each rank
 * has the scale computed from the whole row.
 */
#ifndef FDD_DAEMON_WORKER_QUANT_H
#define FDD_DAEMON_WORKER_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/param.h"
#include "kernels/fdk.h"

struct qnt {
    enum fdk_dtype dtype; /* FDK_I8, FDK_I4, FDK_F8E4M3; FDK_F32: none */
    int32_t group;        /* inputs that share a scale; 0: a scale per row */
};

/* Parse quant.weights and quant.group_size. Returns 0, or -EINVAL with one line in
 * err that names the group size and the allowed values. */
int qnt_parse(enum par_quant_weights weights, int64_t group, struct qnt *ret, char *err,
    size_t err_bytes);
/* "none", "wint8", "wint4", "fp8" */
const char *qnt_name(const struct qnt *q);

/* Number of groups in a row of n weights, and number of weights in a group. */
int32_t qnt_groups(const struct qnt *q, int32_t n);
int32_t qnt_group(const struct qnt *q, int32_t n);

#endif
