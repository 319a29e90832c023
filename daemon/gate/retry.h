/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that was ready once and now cannot start, for a cause that only somebody
 * outside can remove: a model folder that is gone, a configuration that does not
 * fit, a device that does not answer. It is tried again for as long as the daemon
 * runs; this counts the tries and says when the log tells of one: of the first, of
 * one with another error, and else after RTY_TELL_NS, twice as long, and so on up
 * to RTY_TELL_MAX_NS. No system calls; the caller says what time it is.
 */
#ifndef FDD_DAEMON_GATE_RETRY_H
#define FDD_DAEMON_GATE_RETRY_H

#include <stddef.h>
#include <stdint.h>

#define RTY_TELL_NS     60000000000ull
#define RTY_TELL_MAX_NS 3600000000000ull

/* One worker's. Zeroed: it does not wait. */
struct rty {
    uint32_t n;               /* starts that ended so; 0: it does not wait */
    int code;                 /* exit code of the last */
    uint64_t t_since;         /* end of the first */
    uint64_t t_tell, tell_ns; /* the log tells again, and the interval before */
    char error[512];          /* what the last said */
    char fix[768];
};

/* A start ended with this exit code. Returns 1 when the log is to tell of it. */
int
rty_failed(struct rty *y, int code, const char *error, const char *fix, uint64_t now_ns);
/* What it waits for: "the model's files". */
const char *rty_what(int code);
/* "waits for the model's files since 12 min, tried 80 times". */
void rty_text(const struct rty *y, uint64_t now_ns, char *ret, size_t ret_bytes);

#endif
