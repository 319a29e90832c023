/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics segment: named POSIX shared memory, /fdd-<16 hex digits>,
 * the digits being the FNV-1a 64 hash of the runtime folder's path. Mode
 * 0640, group ipc.group. Unlinked at start (a killed daemon leaves one) and
 * at stop.
 */
#ifndef FDD_DAEMON_GATE_STATSEG_H
#define FDD_DAEMON_GATE_STATSEG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/counter.h"

#define SEG_NAME_BYTES 32

struct gate;

void seg_name(const char *runtime_dir, char *ret);
/* name NULL: anonymous (tests). gid (gid_t)-1: keep. 0 or -errno. */
int seg_open(const char *name, gid_t gid, const uint64_t boot_id[2],
    struct cnt_seg **ret_seg, int *ret_fd);
void seg_close(const char *name, struct cnt_seg *seg, int fd);
/* Gauges that are computed, not counted. */
void seg_tick(struct gate *g, uint64_t now_ns);

#endif
