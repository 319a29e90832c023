/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors of a session before anything is mapped: memfds for its two regions
 * (region.h describes both kinds) and its doorbell. Making one takes ten system calls,
 * some of which take locks of the whole machine: 0.1 ms and more. Any thread.
 */
#ifndef FDD_DAEMON_GATE_MEMFILE_H
#define FDD_DAEMON_GATE_MEMFILE_H

#include <stdint.h>

#define MEMFILE_STEP 65536u /* bytes of a memfd of ours that have pages from the start */

enum memfile_kind { MEMFILE_THEIRS = 0, MEMFILE_OURS };

struct memfile {
    enum memfile_kind kind;
    uint32_t bytes; /* a multiple of the page size */
    int fd;         /* descriptor for the mapping; -1: closed or taken over */
    int share;      /* descriptor that is sent to the client */
};

/* The descriptors of one session; the caller sets kind and bytes. */
struct memfiles {
    struct memfile c2d, d2c;
    int bell; /* an eventfd */
};

/* Makes a memfd of this kind and size, sealed; one of ours gets its first pages and a
 * read-only share. Returns 0, or -errno: then no descriptor is open. */
int memfile_make(struct memfile *f, const char *name);
void memfile_close(struct memfile *f);
/* Forbids holes and new writable mappings. Returns 0 or -errno; -EINVAL: the kernel has
 * no such seal. Waits while a process punches holes into the file. */
int memfile_seal(int fd);
/* Makes all descriptors of a session. Returns as memfile_make(). */
int memfiles_make(struct memfiles *m);

#endif
