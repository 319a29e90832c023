/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of device.list as devices of this machine. Nothing here opens a
 * device or takes memory of one.
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
    char name[DVC_NAME], uuid[DVC_UUID]; /* "cuda:2", "cpu-0"; "": none */
};
struct dvc {
    int32_t n;
    struct dvc_dev at[DVL_MAX]; /* in the order of the list */
    int32_t apart[2]; /* dvc_cuda(): entries of the group of which one cannot reach the other's
                         memory; the same ones: there are none */
};

/* What list (as written, for errors) means to the backend k, whose devices have UUIDs:
 * each is there, and none is listed twice. A list that names none: the first device.
 * 0 or -errno with one line in err. */
int dvc_cuda(const struct dvl *l, const char *list, const struct fdk_ops *k,
    struct dvc *ret, char *err, size_t err_bytes);
/* Refuse devices of the group that do not reach each other's memory: 0, or -ENOTSUP with one
 * line in err, which says what needs it. */
int dvc_together(const struct dvc *c, const char *what, char *err, size_t err_bytes);
/* Virtual devices: as many as the list has, 1 where it is empty. */
void dvc_cpu(const struct dvl *l, struct dvc *ret);

#endif
