/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Retries of a worker that was ready once and now cannot start for a cause that must be
 * removed from outside: a missing model folder, a configuration that does not fit, a
 * device that does not answer. Starts are tried for as long as the daemon runs; this
 * module counts them and decides which are logged: the first, one with another error, and
 * else one after RTY_TELL_NS, then after twice as long, and so on up to RTY_TELL_MAX_NS.
 * No system calls; the caller passes the time.
 */
#ifndef FDD_DAEMON_GATE_RETRY_H
#define FDD_DAEMON_GATE_RETRY_H

#include <stddef.h>
#include <stdint.h>

#define RTY_TELL_NS     60000000000ull
#define RTY_TELL_MAX_NS 3600000000000ull

/* State for one worker. Zeroed: it is not blocked. */
struct rty {
    uint32_t n;               /* failed starts; 0: it is not blocked */
    int code;                 /* exit code of the last start */
    uint64_t t_since;         /* end of the first failed start */
    uint64_t t_tell, tell_ns; /* time of the next log line; interval before it */
    char error[512];          /* error that the last start reported */
    char fix[768];
};

/* A start ended with this exit code. Returns 1 if it is to be logged. */
int
rty_failed(struct rty *y, int code, const char *error, const char *fix, uint64_t now_ns);
/* What the worker waits for: "the model's files". */
const char *rty_what(int code);
/* Writes a text such as "waits for the model's files since 12 min, tried 80 times". */
void rty_text(const struct rty *y, uint64_t now_ns, char *ret, size_t ret_bytes);

#endif
