/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * device.list: the devices that a daemon uses, in order. Entries, comma separated,
 * blanks around them allowed:
 *
 *   cuda:N         the N-th CUDA device, from 0
 *   cuda:GPU-HEX   the device whose UUID begins with HEX, at least 4 hex digits; also
 *                  MIG-HEX, and either without cuda: as nvidia-smi -L prints it
 *   cuda:*         all CUDA devices; then it is the only entry
 *   cpu:N          N virtual devices on the processors; then it is the only entry
 *
 * All entries are of one kind. Pure functions, any thread. No driver is called: the
 * worker finds out whether a device exists and which one has a UUID.
 */
#ifndef FDD_DAEMON_COMMON_DEVLIST_H
#define FDD_DAEMON_COMMON_DEVLIST_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/param.h"

#define DVL_MAX        32 /* most devices of a list; also the limit of N */
#define DVL_UUID_BYTES 41 /* "GPU-" or "MIG-", 36 characters, NUL */
#define DVL_UUID_LEAST 4  /* least hex digits of a UUID */

enum dvl_kind { DVL_NONE, DVL_CUDA, DVL_CPU };

struct dvl_dev {
    int32_t idx;               /* -1: identified by uuid */
    char uuid[DVL_UUID_BYTES]; /* prefix and lower case hex, or "" */
};
struct dvl {
    enum dvl_kind kind; /* DVL_NONE: the list is empty */
    int all;            /* cuda:*; then n is 0 */
    int32_t n;
    struct dvl_dev dev[DVL_MAX];
    int32_t first, n_own; /* the entries of the worker's own group of devices; n_own 0:
                             all */
};

/* 0, or -EINVAL with one line in err that names the entry and what to write. */
int dvl_parse(const char *list, struct dvl *ret, char *err, size_t err_bytes);

/* Check the list of a configuration. It must be well-formed, fit device.backend and
 * have as many devices as n_group groups (parallel.data_parallel_size) of n_copy copies
 * (parallel.prefill_context_parallel_size) of n_rank devices
 * (parallel.tensor_parallel_size) need; for cuda:* the worker checks the number. With
 * test_entry not -1 it needs more than test_entry entries instead. Returns as
 * dvl_parse(). */
int dvl_check(const char *list, enum par_device_backend backend, int64_t test_entry,
    int64_t n_group, int64_t n_rank, int64_t n_copy, char *err, size_t err_bytes);

/* Do n devices suit n_group groups of n_copy copies of n_rank devices? list is the text
 * for the message. Returns as dvl_parse(). */
int dvl_check_sizes(const char *list, int64_t n, int64_t n_group, int64_t n_rank,
    int64_t n_copy, char *err, size_t err_bytes);

/* Does the UUID of a device begin with start? The prefixes are not compared: CUDA
 * identifies a MIG instance by the same 16 bytes, without a kind. */
int dvl_uuid_is(const char *uuid, const char *start);

#endif
