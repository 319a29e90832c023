/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What /metrics says of the gateway itself and, by vLLM's names too, of the daemon. */
#ifndef FDD_HTTP_METRICS_H
#define FDD_HTTP_METRICS_H

#include <stdint.h>

#include "http/buf.h"

#define MET_PATHS 24 /* of tbl/routes.h; the last is for all else */

enum { MET_2XX, MET_4XX, MET_429, MET_5XX, MET__CLASSES };
#define MET_BOUNDS 12

struct gw;

/* Of one loop. */
struct metrics {
    uint64_t requests[MET_PATHS][MET__CLASSES];
    uint64_t seconds[MET_BOUNDS + 1]; /* requests by how long they took */
    double seconds_sum;
    uint64_t accepted, refused; /* connections */
    uint64_t events, sends, bytes, left, slow, paced, stream_errors;
    uint64_t prompt_tokens, output_tokens;
    uint32_t streams; /* running now */
};

/* What a loop counted, for the others to print. A few times a second. */
void met_publish(struct gw *g);
/* This loop's of now and the others' of a moment ago. Returns the sessions. */
uint32_t met_all(const struct gw *g, struct metrics *ret);
void met_request(struct metrics *m, unsigned path, int status, uint64_t ms);
/* The exposition format of Prometheus: all loops together. */
void met_print(const struct gw *g, struct buf *b);
/* Those of all daemons whose statistics are here. Of [model NAME] each sample has the label
 * daemon="NAME". */
void met_print_daemons(struct gw *g, struct buf *b);
/* Texts of n daemons as one: the samples of a metric stand together, behind one head. */
void met_join(const struct buf *text, size_t n, struct buf *b);

#endif
