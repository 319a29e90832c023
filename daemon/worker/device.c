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

int32_t
wrk_n_rank(const struct worker *w)
{
    return (int32_t)w->par.parallel_tensor_parallel_size * wrk_n_copy(w);
}

int32_t
wrk_n_copy(const struct worker *w)
{
    return (int32_t)w->par.parallel_prefill_context_parallel_size;
}

int
wrk_is_null(const struct worker *w)
{
    return strcmp(w->par.model_path, "null") == 0;
}

int
wrk_on_cpu(const struct worker *w)
{
    char why[256];
    struct dvl l;

    if (w->run != NULL)
        return w->run->k->on_host;
    if (wrk_is_null(w) || w->par.device_backend != PAR_DEVICE_BACKEND_AUTO)
        return wrk_is_null(w) || w->par.device_backend != PAR_DEVICE_BACKEND_CUDA;
    if (dvl_parse(w->par.device_list, &l, why, sizeof(why)) == 0 && l.kind != DVL_NONE)
        return l.kind == DVL_CPU;
    return fdk_ops_cuda.available(why, sizeof(why)) <= 0;
}

static int
take_lock(struct worker *w, int32_t entry, const char *uuid, char *err, size_t err_bytes)
{
    const struct dlk_owner o = { .pid = w->gate,
        .instance = w->seg->instance,
        .home = w->seg->runtime_dir };

    if (entry < w->n_dev_lock)
        return 0;
    if (dlk_take(w->seg->device_dir, uuid, w->par.device_shared != 0, &o,
            &w->dev_lock[entry], err, err_bytes) != 0)
        return -EINVAL;
    w->n_dev_lock++;
    return 0;
}

/* The rank of an entry of the list, or -1. */
static int32_t
rank_of(const struct worker *w, int32_t entry)
{
    int32_t rank = entry - w->first_dev;

    return rank >= 0 && rank < wrk_n_rank(w) ? rank : -1;
}

/* Publishes and logs the devices for fdctl status. */
static void
announce(struct worker *w)
{
    struct lnk_worker_state *ws = &w->seg->w;
    uint32_t n = 0;

    for (int32_t i = 0; i < w->devs.n; i++) {
        const struct dvc_dev *d = &w->devs.at[i];
        struct lnk_device *to = &ws->device[n++];

        (void)snprintf(to->name, sizeof(to->name), "%s", d->name);
        (void)snprintf(to->uuid, sizeof(to->uuid), "%s", d->uuid);
        to->rank = rank_of(w, i) >= 0 ? (uint32_t)rank_of(w, i) : LNK_NO_RANK;
        if (rank_of(w, i) >= 0 && wrk_n_rank(w) > 1)
            log_info("load: device %s%s%s, rank %d", d->name,
                d->uuid[0] != '\0' ? " " : "", d->uuid, rank_of(w, i));
        else
            log_info("load: device %s%s%s%s", d->name, d->uuid[0] != '\0' ? " " : "",
                d->uuid, rank_of(w, i) >= 0 ? "" : ", not used");
    }
    ws->n_rank = (uint32_t)wrk_n_rank(w);
    ws->n_copy = (uint32_t)wrk_n_copy(w);
    __atomic_store_n(&ws->n_device, n, __ATOMIC_RELEASE);
}

/* Keeps this group's devices of those in the list. */
static int
own_devices(struct worker *w, char *err, size_t err_bytes)
{
    int32_t n = wrk_n_rank(w), first = (int32_t)w->seg->group * n;
    int rc = dvl_check_sizes(w->par.device_list, w->devs.n, w->seg->n_group,
        n / wrk_n_copy(w), wrk_n_copy(w), err, err_bytes);

    if (rc != 0)
        return rc;
    memmove(&w->devs.at[0], &w->devs.at[first], (size_t)n * sizeof(w->devs.at[0]));
    w->devs.n = n;
    return 0;
}

/* Chooses the entry of device.test_entry, or the group's entries. */
static int
choose_entries(struct worker *w, char *err, size_t err_bytes)
{
    int64_t entry = w->par.device_test_entry;

    if (entry < 0)
        return own_devices(w, err, err_bytes);
    if (entry >= w->devs.n) {
        (void)snprintf(err, err_bytes,
            "device.test_entry = %lld: device.list has %d entries, counted from 0",
            (long long)entry, (int)w->devs.n);
        return -EINVAL;
    }
    w->first_dev = (int32_t)entry;
    return 0;
}

/* The parameter that needs peer access between devices, or NULL. */
static const char *
needs_peers(const struct worker *w)
{
    if (wrk_n_copy(w) > 1)
        return "parallel.prefill_context_parallel_size";
    return wrk_n_rank(w) > 1 &&
            w->par.parallel_custom_all_reduce == PAR_PARALLEL_CUSTOM_ALL_REDUCE_YES
        ? "parallel.custom_all_reduce = yes"
        : NULL;
}

int
wrk_meets_in_host(const struct worker *w)
{
    return wrk_n_rank(w) > 1 && wrk_n_copy(w) == 1 &&
        (w->devs.apart[0] != w->devs.apart[1] ||
            w->par.parallel_custom_all_reduce == PAR_PARALLEL_CUSTOM_ALL_REDUCE_NO);
}

static int
claim_cuda(struct worker *w, const struct dvl *l, char *err, size_t err_bytes)
{
    int rc = dvc_cuda(l, w->par.device_list, &fdk_ops_cuda, &w->devs, err, err_bytes);

    if (rc == 0 && needs_peers(w) != NULL)
        rc = dvc_together(&w->devs, needs_peers(w), err, err_bytes);
    if (rc == 0)
        rc = choose_entries(w, err, err_bytes);
    for (int32_t i = 0; i < w->devs.n && rc == 0; i++)
        rc = take_lock(w, i, w->devs.at[i].uuid, err, err_bytes);
    if (rc != 0)
        return rc;
    w->par.device_backend = PAR_DEVICE_BACKEND_CUDA;
    announce(w);
    return 0;
}

/* Any daemon may compute on the processors; a daemon that lists cpu devices locks
 * them. */
static int
claim_cpu(struct worker *w, const struct dvl *l, char *err, size_t err_bytes)
{
    int rc;

    dvc_cpu(l, &w->devs);
    if (l->kind != DVL_CPU)
        (void)snprintf(w->devs.at[0].name, sizeof(w->devs.at[0].name), "%s",
            wrk_is_null(w) ? "none" : "cpu");
    rc = choose_entries(w, err, err_bytes);
    for (int32_t i = 0; i < w->devs.n && rc == 0 && l->kind == DVL_CPU; i++)
        rc = take_lock(w, i, w->devs.at[i].name, err, err_bytes);
    if (rc != 0)
        return rc;
    if (l->kind == DVL_CPU && w->par.device_backend == PAR_DEVICE_BACKEND_AUTO)
        w->par.device_backend = PAR_DEVICE_BACKEND_CPU;
    announce(w);
    return 0;
}

int
wrk_claim_device(struct worker *w, char *err, size_t err_bytes)
{
    struct dvl l;
    int rc = dvl_parse(w->par.device_list, &l, err, err_bytes);

    w->devs = (struct dvc){ .n = 0 };
    w->first_dev = 0;
    if (rc != 0)
        return rc;
    if (w->par.device_test_entry < 0) {
        l.n_own = wrk_n_rank(w);
        l.first = (int32_t)w->seg->group * l.n_own;
    }
    if (l.kind == DVL_CUDA && !wrk_is_null(w))
        return claim_cuda(w, &l, err, err_bytes);
    if (l.kind == DVL_NONE && !wrk_on_cpu(w) && fdk_ops_cuda.available(err, err_bytes) > 0)
        return claim_cuda(w, &l, err, err_bytes);
    err[0] = '\0';
    /* The requested backend is missing: opening it reports why. */
    if (!wrk_is_null(w) && !wrk_on_cpu(w) && l.kind != DVL_CPU)
        return 0;
    return claim_cpu(w, &l, err, err_bytes);
}
