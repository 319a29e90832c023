/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Who crashed last, when, how, and what it said: its panic text and its last
 * log lines. Of a worker this comes from the link segment, whatever ended the
 * process. Of the daemon itself it comes from a file in the runtime folder:
 * made at the start, removed by a clean end, filled by a panic or when the
 * daemon gives up; the next daemon reads it. A file that holds nothing says
 * that the daemon before was killed.
 *
 * The text may be anything: what is handed on is UTF-8 without controls.
 */
#ifndef FDD_DAEMON_GATE_CRASH_H
#define FDD_DAEMON_GATE_CRASH_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/common/link.h"

#define CRS_LINES_BYTES 4096u
#define CRS_FILE        "fdd.crash"

struct crs {
    char program[16]; /* "": nothing is known of a crash */
    int64_t pid;
    int64_t t_start_s, t_end_s; /* by the wall clock, 0: not known */
    char how[640];
    char panic[LNK_PANIC_BYTES];
    char lines[CRS_LINES_BYTES];
};

/* A worker's end, before its segment goes. */
void crs_worker(struct crs *c, const struct lnk_seg *seg, int64_t pid, const char *how);

/* Read and remove what the daemon before left in the folder, then leave a file
 * of our own and have panics fill it (panic.h). Returns its descriptor; -errno:
 * there is no file, and a crash of this daemon will not be known to the next. */
int crs_open(const char *dir, struct crs *ret_before);
/* The end. last: what to leave for the next daemon, NULL: nothing. */
void crs_close(const char *dir, int fd, const struct crs *last);

/* null if nothing is known. all: with panic text and lines, which tell who did
 * what and are for administrators. */
json_t *crs_json(const struct crs *c, int all);

#endif
