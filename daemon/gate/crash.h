/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The last crash: which program, when, how, its panic text and its last log lines. A
 * worker's comes from the link segment, whatever ended the process. The daemon's own
 * comes from a file in the runtime folder: made at the start, removed by a clean end,
 * filled by a panic or when the daemon gives up; the next daemon reads it. A file without
 * a panic text or reason means that the previous daemon was killed.
 *
 * The recorded text may be anything; crs_json() passes it on as UTF-8 without control
 * characters.
 */
#ifndef FDD_DAEMON_GATE_CRASH_H
#define FDD_DAEMON_GATE_CRASH_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/common/link.h"

#define CRS_LINES_BYTES 4096u
#define CRS_FILE        "fdd.crash"

struct crs {
    char program[16]; /* "": no crash is known */
    int64_t pid;
    int64_t t_start_s, t_end_s; /* by the wall clock, 0: not known */
    char how[640];
    char panic[LNK_PANIC_BYTES];
    char lines[CRS_LINES_BYTES];
};

/* Fills c with a worker's end, before its segment is released. */
void crs_worker(struct crs *c, const struct lnk_seg *seg, int64_t pid, const char *how);

/* Reads and removes the file that the previous daemon left in the folder, then makes a
 * new one and has panics written to it (panic.h). Returns its descriptor; -errno: there
 * is no file, and the next daemon will not learn of a crash of this one. */
int crs_open(const char *dir, struct crs *ret_before);
/* At the end of the daemon. last: crash to record for the next daemon; NULL: remove the
 * file. */
void crs_close(const char *dir, int fd, const struct crs *last);

/* JSON null if no crash is known. all: with panic text and lines, which show who did what
 * and are only for administrators. */
json_t *crs_json(const struct crs *c, int all);

#endif
