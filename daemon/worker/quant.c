/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/quant.h"

#include <errno.h>
#include <stdio.h>

/* ---- parameters ---- */

int
qnt_parse(enum par_quant_weights weights, int64_t group, struct qnt *ret, char *err,
    size_t err_bytes)
{
    static const enum fdk_dtype types[] = { [PAR_QUANT_WEIGHTS_NONE] = FDK_F32,
        [PAR_QUANT_WEIGHTS_WINT8] = FDK_I8,
        [PAR_QUANT_WEIGHTS_WINT4] = FDK_I4,
        [PAR_QUANT_WEIGHTS_FP8] = FDK_F8E4M3 };
    struct qnt q = { types[weights], (int32_t)group };

    if (group != 0 && group != 32 && group != 64 && group != 128) {
        (void)snprintf(err, err_bytes,
            "quant.group_size=%lld is not one of 0 (a scale "
            "per row), 32, 64, 128",
            (long long)group);
        return -EINVAL;
    }
    if (q.dtype == FDK_F32 && group != 0) {
        (void)snprintf(err, err_bytes,
            "quant.group_size=%lld has nothing to act on: set "
            "quant.weights to wint8, wint4 or fp8, or leave the group size at 0",
            (long long)group);
        return -EINVAL;
    }
    *ret = q;
    return 0;
}

const char *
qnt_name(const struct qnt *q)
{
    return q->dtype == FDK_I8    ? "wint8"
        : q->dtype == FDK_I4     ? "wint4"
        : q->dtype == FDK_F8E4M3 ? "fp8"
                                 : "none";
}

int32_t
qnt_group(const struct qnt *q, int32_t n)
{
    return q->group == 0 || q->group > n ? n : q->group;
}

int32_t
qnt_groups(const struct qnt *q, int32_t n)
{
    return (n - 1) / qnt_group(q, n) + 1;
}
