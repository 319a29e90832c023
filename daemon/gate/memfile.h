/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors of a session before anything is mapped: files in memory for its two
 * regions (region.h says which is which) and its doorbell. To make them takes ten system calls
 * a file, some of which take locks of the whole machine: 0.1 ms and more. Any thread.
 */
#ifndef FDD_DAEMON_GATE_MEMFILE_H
#define FDD_DAEMON_GATE_MEMFILE_H

#include <stdint.h>

#define MEMFILE_STEP 65536u /* bytes that one of ours has pages for at the start */

enum memfile_kind { MEMFILE_THEIRS = 0, MEMFILE_OURS };

struct memfile {
    enum memfile_kind kind;
    uint32_t bytes; /* a multiple of the page size */
    int fd;         /* for the mapping; -1: closed or taken over */
    int share;      /* for the client alone */
};

/* Of one session; kind and bytes are the caller's to set. */
struct memfiles {
    struct memfile c2d, d2c;
    int bell; /* an eventfd */
};

/* Make one of this kind and size: sealed, one of ours with its first pages and a
 * read-only share. 0, or -errno: then no descriptor is open. */
int memfile_make(struct memfile *f, const char *name);
void memfile_close(struct memfile *f);
/* Forbid holes and new writable mappings. 0 or -errno; -EINVAL: the kernel has no such
 * seal. Waits while a process punches holes into it. */
int memfile_seal(int fd);
/* All of a session. The same. */
int memfiles_make(struct memfiles *m);

#endif
