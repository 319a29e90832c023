/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The metrics of /metrics: the gateway's own and, also by vLLM's names, the daemon's. */
#ifndef FDD_HTTP_METRICS_H
#define FDD_HTTP_METRICS_H

#include <stdint.h>

#include "http/buf.h"

#define MET_PATHS 24 /* indexes of tbl/routes.h; the last is for all other paths */

enum { MET_2XX, MET_4XX, MET_429, MET_5XX, MET__CLASSES };
#define MET_BOUNDS 12

struct gw;

/* Metrics of one loop. */
struct metrics {
    uint64_t requests[MET_PATHS][MET__CLASSES];
    uint64_t seconds[MET_BOUNDS + 1]; /* histogram of the requests' durations */
    double seconds_sum;
    uint64_t accepted, refused; /* connections */
    uint64_t events, sends, bytes, left, slow, paced, stream_errors;
    uint64_t prompt_tokens, output_tokens;
    uint32_t streams; /* running now */
};

/* Publish a loop's metrics for the other loops to print. A few times a second. */
void met_publish(struct gw *g);
/* Sum of this loop's current metrics and the last published ones of the others. Returns
 * the number of sessions with daemons. */
uint32_t met_all(const struct gw *g, struct metrics *ret);
void met_request(struct metrics *m, unsigned path, int status, uint64_t ms);
/* Write the sum of all loops in Prometheus' exposition format. */
void met_print(const struct gw *g, struct buf *b);
/* Write the metrics of all daemons whose statistics are available. With a section
 * [model NAME], each sample has the label daemon="NAME". */
void met_print_daemons(struct gw *g, struct buf *b);
/* Join the texts of n daemons: the samples of a metric follow one head. */
void met_join(const struct buf *text, size_t n, struct buf *b);

#endif
