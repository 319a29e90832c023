/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/devices.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(DVL_MAX == FDK_MAX_DEVICES, "a list is opened as one context");

struct here { /* the backend's devices */
    const struct fdk_ops *k;
    int n;
    char uuid[DVL_MAX][DVC_UUID];
};

__attribute__((format(printf, 4, 5))) static int
refuse(int rc, char *err, size_t err_bytes, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(err, err_bytes, fmt, ap);
    va_end(ap);
    return rc;
}

static int
look(const struct fdk_ops *k, const char *list, struct here *ret, char *err,
    size_t err_bytes)
{
    char why[256] = "";

    ret->k = k;
    ret->n = k->available(why, sizeof(why));
    if (ret->n <= 0)
        return refuse(-ENODEV, err, err_bytes, "device.list = %s: %s", list, why);
    if (ret->n > DVL_MAX)
        ret->n = DVL_MAX;
    for (int i = 0; i < ret->n; i++) {
        int rc = k->device_uuid(i, ret->uuid[i], sizeof(ret->uuid[i]));

        if (rc != 0)
            ret->uuid[i][0] = '\0';
    }
    return 0;
}

/* The UUIDs of all devices, for an error. */
static void
list_uuids(const struct here *h, char *ret, size_t ret_bytes)
{
    size_t at = 0;

    (void)snprintf(ret, ret_bytes, "none");
    for (int i = 0; i < h->n; i++) {
        int k;

        if (h->uuid[i][0] == '\0')
            continue;
        k = snprintf(ret + at, ret_bytes - at, "%scuda:%d %s", at > 0 ? ", " : "", i,
            h->uuid[i]);
        if (k < 0 || (size_t)k >= ret_bytes - at)
            return;
        at += (size_t)k;
    }
}

static int
find_uuid(const struct here *h, const char *start, int32_t *ret, char *err, size_t err_bytes)
{
    char all[300];
    int32_t found = -1;

    list_uuids(h, all, sizeof(all));
    for (int i = 0; i < h->n; i++) {
        if (!dvl_uuid_is(h->uuid[i], start))
            continue;
        if (found >= 0)
            return refuse(-EINVAL, err, err_bytes,
                "device.list: the UUIDs of several devices begin with %s (%s); write more "
                "of it",
                start, all);
        found = i;
    }
    if (found < 0)
        return refuse(-ENODEV, err, err_bytes,
            "device.list: no device's UUID begins with %s; here are %s", start, all);
    *ret = found;
    return 0;
}

static int
find(const struct here *h, const struct dvl_dev *d, int32_t *ret, char *err,
    size_t err_bytes)
{
    if (d->idx < 0)
        return find_uuid(h, d->uuid, ret, err, err_bytes);
    if (d->idx >= h->n)
        return refuse(-ENODEV, err, err_bytes,
            "device.list: there is no cuda:%d; %d device%s here can be used, from cuda:0 "
            "on (nvidia-smi -L)",
            (int)d->idx, h->n, h->n == 1 ? "" : "s");
    *ret = d->idx;
    return 0;
}

static int
add(const struct here *h, int32_t num, struct dvc *ret, char *err, size_t err_bytes)
{
    struct dvc_dev *d = &ret->at[ret->n];

    /* A number and a UUID may name the same device. */
    for (int32_t i = 0; i < ret->n; i++)
        if (ret->at[i].num == num)
            return refuse(-EINVAL, err, err_bytes,
                "device.list: cuda:%d (%s) is listed twice, as entry %d and as entry %d; "
                "remove one of them",
                (int)num, h->uuid[num], (int)i + 1, (int)ret->n + 1);
    if (h->uuid[num][0] == '\0')
        return refuse(-ENODEV, err, err_bytes,
            "cuda:%d does not tell its UUID; see what nvidia-smi -L says", (int)num);
    d->num = num;
    (void)snprintf(d->name, sizeof(d->name), "cuda:%d", (int)num);
    (void)snprintf(d->uuid, sizeof(d->uuid), "%s", h->uuid[num]);
    ret->n++;
    return 0;
}

/* Looks for two devices of the same group without peer access. */
static void
find_apart(struct dvc *c, const struct dvl *l, const struct fdk_ops *k)
{
    int32_t from = l->n_own != 0 ? l->first : 0;
    int32_t to = l->n_own != 0 && from + l->n_own < c->n ? from + l->n_own : c->n;

    for (int32_t i = from; i < to && k->device_peer != NULL; i++)
        for (int32_t j = from; j < to && c->apart[0] == c->apart[1]; j++)
            if (i != j && k->device_peer(c->at[i].num, c->at[j].num) <= 0) {
                c->apart[0] = i;
                c->apart[1] = j;
            }
}

int
dvc_together(const struct dvc *c, const char *what, char *err, size_t err_bytes)
{
    const struct dvc_dev *a = &c->at[c->apart[0]], *b = &c->at[c->apart[1]];

    if (a == b)
        return 0;
    return refuse(-ENOTSUP, err, err_bytes,
        "device.list: %s (%s) cannot reach the memory of %s (%s), which %s needs; list devices "
        "with peer access (nvidia-smi topo -p2p r)",
        a->name, a->uuid, b->name, b->uuid, what);
}

int
dvc_cuda(const struct dvl *l, const char *list, const struct fdk_ops *k, struct dvc *ret,
    char *err, size_t err_bytes)
{
    int32_t n = l->n, num = 0;
    struct here h;
    struct dvc c = { .n = 0 };
    int rc = look(k, list, &h, err, err_bytes);

    if (rc == 0 && n == 0)
        n = l->all ? h.n : 1;
    for (int32_t i = 0; i < n && rc == 0; i++) {
        if (l->n == 0)
            num = i;
        else
            rc = find(&h, &l->dev[i], &num, err, err_bytes);
        if (rc == 0)
            rc = add(&h, num, &c, err, err_bytes);
    }
    if (rc != 0)
        return rc;
    find_apart(&c, l, k);
    *ret = c;
    return 0;
}

void
dvc_cpu(const struct dvl *l, struct dvc *ret)
{
    *ret = (struct dvc){ .n = l->n > 0 ? l->n : 1 };
    for (int32_t i = 0; i < ret->n; i++) {
        ret->at[i].num = i;
        (void)snprintf(ret->at[i].name, sizeof(ret->at[i].name), "cpu-%d", (int)i);
    }
}
