/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's statistics segment (daemon/common/counter.h). Its admin socket is asked
 * for the descriptor without waiting: each call of sta_get() goes on as far as it goes,
 * so that the first ones return NULL. After the daemon has ended, or has not
 * moved for STA_STILL_MS, it is asked for again. One thread.
 */
#ifndef FDD_HTTP_STATS_H
#define FDD_HTTP_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/counter.h"

#define STA_STILL_MS 3000
#define STA_REPLY    1024 /* bytes of an answer without a descriptor */

struct stats {
    const struct cnt_seg *seg; /* mapped; NULL: not there */
    int is_asked, fd;          /* the admin socket, until its answer is there */
    uint64_t asked_ms;         /* of the last question */
    uint64_t uptime_ns, moved_ms;
    uint64_t steps, stepped_ms; /* the worker's last step, or without a request: now */
    int is_still;               /* it was there, and did not move for STA_STILL_MS */
    char reply[STA_REPLY], why[STA_REPLY];
    size_t n_reply;
};

/* socket: that of the clients; "": fdc_default_socket(). NULL: not there (yet), for the
 * reason sta_why(). */
const struct cnt_seg *sta_get(struct stats *s, const char *socket, uint64_t now_ms);
/* As of the last sta_get(): how long the worker has had requests and made no step, ms. */
uint64_t sta_step_age_ms(const struct stats *s, uint64_t now_ms);
const char *sta_why(const struct stats *s);
void sta_fini(struct stats *s);

#endif
