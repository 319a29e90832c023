/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /fdd/live: the current load of the daemon and the gateway, as one flat JSON object
 * of at most 1 KiB, for the plots of the page (page.h). All requests within a second get
 * the same object, so that many pages cost no more than one. Unknown values are null.
 */
#ifndef FDD_HTTP_LIVE_H
#define FDD_HTTP_LIVE_H

#include <stdint.h>

#include "http/buf.h"
#include "http/stats.h"

/* The counters at one moment. */
struct live_at {
    uint64_t ms; /* 0: none */
    const struct cnt_seg *seg;
    uint64_t boot_id[2];             /* of the daemon */
    uint64_t generation;             /* of the worker; each begins its counters at zero */
    uint64_t output, prompt, cached; /* tokens */
    struct cnt_hist ttft, itl;
};

struct live {
    struct live_at old, now;
    struct buf text; /* the answer of now.ms */
};

/* Input of live_json(): the gateway's own values, and the daemon's segment. */
struct live_gateway {
    const struct cnt_seg *seg; /* NULL: not available, for the reason why */
    const char *why, *model;
    uint64_t now_ms;
    uint32_t connections, streams;
};

/* Write the current object into l->text. */
void live_json(struct live *l, const struct live_gateway *g);
void live_fini(struct live *l);

#endif
