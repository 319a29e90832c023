/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's statistics segment (daemon/common/counter.h). The descriptor is requested
 * on the admin socket without blocking: each call of sta_get() goes on as far as it can,
 * so that the first calls return NULL. It is requested again after the daemon has ended
 * or its uptime has not changed for STA_STILL_MS. One thread.
 */
#ifndef FDD_HTTP_STATS_H
#define FDD_HTTP_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/counter.h"

#define STA_STILL_MS 3000
#define STA_REPLY    1024 /* bytes of an answer without a descriptor */

struct stats {
    const struct cnt_seg *seg; /* mapped; NULL: not available */
    int is_asked, fd;          /* the admin socket, while its answer is awaited */
    uint64_t asked_ms;         /* time of the last request */
    uint64_t uptime_ns, moved_ms;
    uint64_t steps, stepped_ms; /* when the worker made its last step, or had no requests */
    int is_still;               /* the segment did not change for STA_STILL_MS */
    char reply[STA_REPLY], why[STA_REPLY];
    size_t n_reply;
};

/* The segment; NULL: not available (yet), for the reason sta_why(). socket: the clients'
 * socket; "": fdc_default_socket(). */
const struct cnt_seg *sta_get(struct stats *s, const char *socket, uint64_t now_ms);
/* Milliseconds since the worker last made a step or had no requests, as of the last
 * sta_get(). */
uint64_t sta_step_age_ms(const struct stats *s, uint64_t now_ms);
const char *sta_why(const struct stats *s);
void sta_fini(struct stats *s);

#endif
