/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "daemon/common/devlist.h"
#include "daemon/common/log.h"
#include "daemon/worker/devlock.h"
#include "kernels/fdk.h"

#define DEV_UUID 48

int
wrk_is_null(const struct worker *w)
{
    return strcmp(w->par.model_path, "null") == 0;
}

int
wrk_on_cpu(const struct worker *w)
{
    char why[256];

    if (w->run != NULL)
        return w->run->k != &fdk_ops_cuda;
    if (wrk_is_null(w) || w->par.device_backend != PAR_DEVICE_BACKEND_AUTO)
        return wrk_is_null(w) || w->par.device_backend != PAR_DEVICE_BACKEND_CUDA;
    return fdk_ops_cuda.available(why, sizeof(why)) <= 0;
}

/* The UUIDs of the devices here, for an error. */
static void
list_uuids(int n, char *ret, size_t ret_bytes)
{
    char uuid[DEV_UUID];
    size_t at = 0;

    ret[0] = '\0';
    for (int i = 0; i < n; i++) {
        int k;

        if (fdk_ops_cuda.device_uuid(i, uuid, sizeof(uuid)) != 0)
            continue;
        k = snprintf(ret + at, ret_bytes - at, "%scuda:%d %s", at > 0 ? ", " : "", i, uuid);
        if (k < 0 || (size_t)k >= ret_bytes - at)
            return;
        at += (size_t)k;
    }
}

/* The number of the device that a list of one names, among n. */
static int
find_cuda(const struct dvl *l, int n, int32_t *ret_idx, char *err, size_t err_bytes)
{
    const struct dvl_dev *d = &l->dev[0];
    char uuid[DEV_UUID], all[300];
    int32_t found = -1;

    if (l->all && n > 1) {
        (void)snprintf(err, err_bytes,
            "device.list = cuda:*: there are %d devices, and this "
            "version uses one; name it (cuda:0), and start an instance (fdd@NAME) for each "
            "other",
            n);
        return -EINVAL;
    }
    if (l->n == 0 || d->idx >= 0) {
        *ret_idx = l->n == 0 ? 0 : d->idx;
        if (*ret_idx < n)
            return 0;
        (void)snprintf(err, err_bytes,
            "device.list: there is no cuda:%d; %d device%s here "
            "can be used, from cuda:0 on (nvidia-smi -L)",
            (int)*ret_idx, n, n == 1 ? "" : "s");
        return -ENODEV;
    }
    list_uuids(n, all, sizeof(all));
    for (int i = 0; i < n; i++) {
        if (fdk_ops_cuda.device_uuid(i, uuid, sizeof(uuid)) != 0 ||
            !dvl_uuid_is(uuid, d->uuid))
            continue;
        if (found >= 0) {
            (void)snprintf(err, err_bytes,
                "device.list: the UUIDs of several devices begin "
                "with %s (%s); write more of it",
                d->uuid, all);
            return -EINVAL;
        }
        found = i;
    }
    if (found < 0) {
        (void)snprintf(err, err_bytes,
            "device.list: no device's UUID begins with %s; here "
            "are %s",
            d->uuid, all[0] != '\0' ? all : "none");
        return -ENODEV;
    }
    *ret_idx = found;
    return 0;
}

static int
take_lock(struct worker *w, const char *uuid, char *err, size_t err_bytes)
{
    const struct dlk_owner o = { .pid = w->gate,
        .instance = w->seg->instance,
        .home = w->seg->runtime_dir };

    if (w->dev_lock_taken)
        return 0;
    if (dlk_take(w->seg->device_dir, uuid, w->par.device_shared != 0, &o, &w->dev_lock,
            err, err_bytes) != 0)
        return -EINVAL;
    w->dev_lock_taken = 1;
    return 0;
}

static void
announce(struct worker *w, const char *name, const char *uuid)
{
    (void)snprintf(w->seg->w.device, sizeof(w->seg->w.device), "%s", name);
    (void)snprintf(w->seg->w.device_uuid, sizeof(w->seg->w.device_uuid), "%s", uuid);
    log_info("load: device %s%s%s", name, uuid[0] != '\0' ? " " : "", uuid);
}

static int
claim_cuda(struct worker *w, const struct dvl *l, char *err, size_t err_bytes)
{
    char why[256] = "", name[24], uuid[DEV_UUID] = "";
    int n = fdk_ops_cuda.available(why, sizeof(why)), rc;

    if (n <= 0) {
        (void)snprintf(err, err_bytes, "device.list = %s: %s", w->par.device_list, why);
        return -ENODEV;
    }
    rc = find_cuda(l, n, &w->device, err, err_bytes);
    if (rc == 0) {
        rc = fdk_ops_cuda.device_uuid(w->device, uuid, sizeof(uuid));
        if (rc != 0)
            (void)snprintf(err, err_bytes,
                "cuda:%d does not tell its UUID: %s; nvidia-smi "
                "-L",
                (int)w->device, strerror(-rc));
    }
    if (rc == 0)
        rc = take_lock(w, uuid, err, err_bytes);
    if (rc != 0)
        return rc;
    w->par.device_backend = PAR_DEVICE_BACKEND_CUDA;
    (void)snprintf(name, sizeof(name), "cuda:%d", (int)w->device);
    announce(w, name, uuid);
    return 0;
}

int
wrk_claim_device(struct worker *w, char *err, size_t err_bytes)
{
    struct dvl l;
    int rc = dvl_parse(w->par.device_list, &l, err, err_bytes);

    w->device = 0;
    if (rc != 0)
        return rc;
    if (!wrk_is_null(w) &&
        (l.kind == DVL_CUDA ||
            (l.kind == DVL_NONE && !wrk_on_cpu(w) &&
                fdk_ops_cuda.available(err, err_bytes) > 0)))
        return claim_cuda(w, &l, err, err_bytes);
    err[0] = '\0';
    /* Every daemon may compute on the processors; one that names them wants them
     * for itself. */
    if (l.kind == DVL_CPU) {
        rc = take_lock(w, "cpu-0", err, err_bytes);
        if (rc == 0 && !wrk_is_null(w))
            w->par.device_backend = PAR_DEVICE_BACKEND_CPU;
    }
    if (rc == 0 && (wrk_is_null(w) || wrk_on_cpu(w)))
        announce(w, l.kind == DVL_CPU ? "cpu:1" : wrk_is_null(w) ? "none" : "cpu", "");
    return rc;
}
