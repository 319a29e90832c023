/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's measured peak: bytes read and operations per second,
 * measured once for each machine and kept in the cache folder's file
 * peaks-KEY.json. The roofline bound of an operation follows from it.
 *
 * KEY stands for backend, device, driver (of a virtual device the processor)
 * and threads. A file with another key, another version or impossible
 * numbers is measured again and replaced. A folder that cannot be written is
 * logged once; then every process measures for itself.
 */
#ifndef FDD_DAEMON_WORKER_PEAK_H
#define FDD_DAEMON_WORKER_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/fdk.h"

#define PEAK_VERSION 1

struct peak_key {
    char backend[16], device[64], driver[96];
    int32_t n_thread;
};
struct peak {
    double read_bps;            /* bytes/s */
    double flops[FDK_DTYPE__N]; /* operations/s; 0: the device has no such arithmetic */
    uint64_t measured_s;        /* seconds since 1970 */
};

/* One process's. Zeros, but for dir, before the first peak_get(). */
struct peak_cache {
    char dir[512]; /* as daemon.cache_dir says; empty: peak_dir() finds one */
    int have, warned;
    struct peak c;
    char from[16];  /* "measured" or "file" */
    char file[640]; /* where it is kept; empty: nowhere */
};

/* The measured peak: already known, read from the file, or measured, which takes a
 * few seconds. busy: the device has other work now, so that the figure is too low;
 * it is returned and not kept. remeasure: measure in any case.
 * -ENOTSUP: a device that computes nothing; -ENOMEM, -EIO. One thread at a time. */
int peak_get(struct peak_cache *cc, const struct fdk_ops *k, struct fdk_ctx *ctx, int dev,
    int busy, int remeasure, struct peak *ret);
/* Roofline bound in ns of this many bytes and operations of this type. */
double peak_roofline_ns(const struct peak *c, double bytes, double flops, enum fdk_dtype t);

/* ---- parts, for peak_get() and tests ------------------------------------------------ */

/* Folder for measurements: dir_cache(), for root that of the system. */
int peak_dir(const char *param, char *ret, size_t ret_bytes);
int peak_key(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev, struct peak_key *ret);
int peak_path(const char *dir, const struct peak_key *key, char *ret, size_t ret_bytes);
/* -ENOENT: no file; -EINVAL: not to be used, err says why; other -errno. */
int peak_read(const char *path, const struct peak_key *key, struct peak *ret, char *err,
    size_t err_bytes);
/* Makes the folder if its parent is there. Whole or not at all. -errno. */
int peak_write(const char *path, const struct peak_key *key, const struct peak *c);
/* The same of a text. */
int peak_put(const char *path, const char *text);
int peak_measure(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev, struct peak *ret);

#endif
