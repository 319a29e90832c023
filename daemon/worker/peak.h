/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's measured peak: bytes read and operations per second,
 * measured once for each machine and kept in the cache folder's file
 * peaks-KEY.json. The roofline bound of an operation follows from it.
 *
 * KEY is a hash of backend, device, driver (for a virtual device the processor)
 * and number of threads. A file with another key, another version or impossible
 * numbers is ignored, measured again and replaced. If the folder cannot be
 * written, this is logged once and every process measures for itself.
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

/* The process's copy of the measured peak. All zeros except dir before the
 * first peak_get(). */
struct peak_cache {
    char dir[512]; /* daemon.cache_dir; empty: peak_dir() finds one */
    int have, warned;
    struct peak c;
    char from[16];  /* "measured" or "file" */
    char file[640]; /* path of its file; empty: there is none */
};

/* Get the measured peak: already known, read from the file, or measured, which takes a
 * few seconds. busy: the device has other work now, so the figure would be too low; it is
 * returned but not kept. remeasure: measure in any case. Returns 0, -ENOTSUP (the device
 * computes nothing), -ENOMEM or -EIO. One thread at a time. */
int peak_get(struct peak_cache *cc, const struct fdk_ops *k, struct fdk_ctx *ctx, int dev,
    int busy, int remeasure, struct peak *ret);
/* Roofline bound in ns of this many bytes and operations of this type. */
double peak_roofline_ns(const struct peak *c, double bytes, double flops, enum fdk_dtype t);

/* ---- used by peak_get() and tests --------------------------------------------------- */

/* Find the folder for measurements: param; if that is empty, the one of dir_cache(), for root
 * the system's. Returns 0 or -ENOENT: there is none. */
int peak_dir(const char *param, char *ret, size_t ret_bytes);
int peak_key(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev, struct peak_key *ret);
int peak_path(const char *dir, const struct peak_key *key, char *ret, size_t ret_bytes);
/* Read the file of a peak. Returns 0, -ENOENT (no file), -EINVAL (unusable, err says
 * why) or another -errno. */
int peak_read(const char *path, const struct peak_key *key, struct peak *ret, char *err,
    size_t err_bytes);
/* Write the file of a peak atomically. Makes the folder if its parent exists. Returns 0
 * or -errno. */
int peak_write(const char *path, const struct peak_key *key, const struct peak *c);
/* Write a file with this text in the same way. */
int peak_put(const char *path, const char *text);
int peak_measure(const struct fdk_ops *k, struct fdk_ctx *ctx, int dev, struct peak *ret);

#endif
