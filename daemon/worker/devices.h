/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps the entries of device.list to devices of this machine. It opens no device and
 * allocates none of its memory.
 */
#ifndef FDD_DAEMON_WORKER_DEVICES_H
#define FDD_DAEMON_WORKER_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/devlist.h"
#include "kernels/fdk.h"

#define DVC_NAME 16
#define DVC_UUID 48

struct dvc_dev {
    int32_t num;                         /* fdk_open_args.device */
    char name[DVC_NAME], uuid[DVC_UUID]; /* name "cuda:2" or "cpu-0"; uuid "": none */
};
struct dvc {
    int32_t n;
    struct dvc_dev at[DVL_MAX]; /* in the order of the list */
    int32_t apart[2]; /* set by dvc_cuda(): two entries of the group without peer access
                         to each other's memory; equal: all have access */
};

/* Resolves l (list: its text, for errors) to devices of the backend k, which have UUIDs.
 * Each must exist and none be listed twice. An empty list means the first device. 0 or
 * -errno with one line in err. */
int dvc_cuda(const struct dvl *l, const char *list, const struct fdk_ops *k,
    struct dvc *ret, char *err, size_t err_bytes);
/* Checks that the group's devices reach each other's memory. 0, or -ENOTSUP with one line
 * in err; `what` names the parameter that needs it. */
int dvc_together(const struct dvc *c, const char *what, char *err, size_t err_bytes);
/* Virtual CPU devices: one per entry of the list, 1 if it is empty. */
void dvc_cpu(const struct dvl *l, struct dvc *ret);

#endif
