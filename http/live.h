/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /fdd/live: what the daemon and the gateway do now, as one flat JSON object of at
 * most 1 KiB, for the plots of the page (page.h). All that ask within a second get the
 * same object, so that many pages cost no more than one. What is not known is null.
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
    uint64_t generation;             /* of the worker, whose counters begin at zero */
    uint64_t output, prompt, cached; /* tokens */
    struct cnt_hist ttft, itl;
};

struct live {
    struct live_at old, now;
    struct buf text; /* the answer of now.ms */
};

/* What the gateway says of itself and of the daemon. */
struct live_gateway {
    const struct cnt_seg *seg; /* NULL: it is not there, why */
    const char *why, *model;
    uint64_t now_ms;
    uint32_t connections, streams;
};

/* The object as it is now, in l->text. */
void live_json(struct live *l, const struct live_gateway *g);
void live_fini(struct live *l);

#endif
