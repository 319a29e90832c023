/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics segment (daemon/common/counter.h), from the gate's side: a memfd that
 * lives as long as the daemon. It has no name in a file system, so no other process can
 * take the name first and nothing is left over.
 */
#ifndef FDD_DAEMON_GATE_STATSEG_H
#define FDD_DAEMON_GATE_STATSEG_H

#include <stdint.h>

struct cnt_seg;

/* Makes the array of n_group segments. Returns 0 or -errno. */
int seg_open(const uint64_t boot_id[2], uint32_t n_group, struct cnt_seg **ret_seg,
    int *ret_fd);
void seg_close(struct cnt_seg *seg, int fd);

/* Current values of the gauges. */
struct seg_now {
    uint64_t uptime_ns;
    uint64_t sessions;
    uint64_t users; /* users with generating requests */
    uint64_t requests_queued, requests_running;
    uint64_t journal_bytes, queued_tokens, service_rate;
    uint64_t groups, groups_ready, placed_cached;
    const char *model; /* NULL: not known yet; stored once */
};
void seg_tick(struct cnt_seg *seg, const struct seg_now *now);
/* Sets the process of a group's worker; pid 0: none. */
void seg_worker(struct cnt_seg *seg, uint32_t group, int32_t pid, uint64_t generation);
/* It has ended: sets its gauges to 0. Its counters stay. */
void seg_worker_gone(struct cnt_seg *seg, uint32_t group);

#endif
