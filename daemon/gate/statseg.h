/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics segment (daemon/common/counter.h), from the gate's side: a
 * memfd that lives as long as the daemon. It has no name in a file system,
 * so no other process can be there first and nothing stays behind.
 */
#ifndef FDD_DAEMON_GATE_STATSEG_H
#define FDD_DAEMON_GATE_STATSEG_H

#include <stdint.h>

struct cnt_seg;

/* The array of n_group segments. 0 or -errno. */
int seg_open(const uint64_t boot_id[2], uint32_t n_group, struct cnt_seg **ret_seg,
    int *ret_fd);
void seg_close(struct cnt_seg *seg, int fd);

/* Gauges that are computed, not counted: as they are now. */
struct seg_now {
    uint64_t uptime_ns;
    uint64_t sessions;
    uint64_t users; /* with requests that generate */
    uint64_t requests_queued, requests_running;
    uint64_t journal_bytes, queued_tokens, service_rate;
    uint64_t groups, groups_ready, placed_cached;
    const char *model; /* NULL: not known yet; told once */
};
void seg_tick(struct cnt_seg *seg, const struct seg_now *now);
/* The worker of a group: its process, 0: none. */
void seg_worker(struct cnt_seg *seg, uint32_t group, int32_t pid, uint64_t generation);
/* It has ended: what it said to have now, it has no more. What it counted stays. */
void seg_worker_gone(struct cnt_seg *seg, uint32_t group);

#endif
