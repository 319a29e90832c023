/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdd-http: what its modules share. One thread runs all of it: the loop sleeps in epoll
 * on listeners, connections, the session with fdd, results of the helper thread
 * (link.h) and signals. In each loop iteration everything that has arrived is taken first;
 * then each connection with news gets at most one send().
 */
#ifndef FDD_HTTP_GATEWAY_H
#define FDD_HTTP_GATEWAY_H

#include <stdint.h>

#include "daemon/common/param.h"
#include "http/keys.h"
#include "http/link.h"
#include "http/listen.h"
#include "http/live.h"
#include "http/metrics.h"
#include "http/model.h"
#include "http/stats.h"

struct conn;
struct gen;

struct gw {
    struct par_set *ps;
    const struct par *par;
    struct par_src src;
    int epoll, signals;
    uint64_t now_ms; /* CLOCK_MONOTONIC, of this loop iteration */
    struct lis lis;
    struct keys keys;
    struct link link;
    struct model model; /* names, template and limits, once fdd has said them */
    struct metrics met;
    struct live live;
    struct stats stats; /* of fdd, for /metrics */

    struct conn *conns, *dirty, *dead; /* all; with news; to be freed */
    uint32_t n_conn;
    struct gen *waiting, *waiting_end; /* for room in the session */
    int is_full;                       /* no more connections are accepted now */
    int draining;
    uint64_t drain_until_ms;
};

#endif
