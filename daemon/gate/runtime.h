/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's resources in the system: runtime folder, lock, sockets, groups, service
 * manager. Functions return 0 or a sysexits code, with one line in err that names the
 * error and its fix.
 */
#ifndef FDD_DAEMON_GATE_RUNTIME_H
#define FDD_DAEMON_GATE_RUNTIME_H

#include <stddef.h>
#include <sys/types.h>

#include "daemon/common/param.h"

#define RTD_ERR_BYTES 1024

struct rtd {
    char instance[64]; /* "": the main instance; set after rtd_init() */
    int is_named;      /* instance was given by an option; $FDD_SOCKET does not count */
    char dir[PAR_STR_BYTES];
    char device_dir[PAR_STR_BYTES]; /* folder of device locks: libclient/fdwhere.h */
    char socket[PAR_STR_BYTES], admin_socket[PAR_STR_BYTES];
    int lock_fd;
    int listen_fd, admin_fd;
    int own_socket, own_admin; /* the daemon made the socket file and will unlink it */
    char socket_unit[128];     /* "fdd.socket", which starts the daemon again; "": none */
    gid_t group, admin_group;  /* (gid_t)-1: no such group */
    int is_shared;             /* users other than the daemon's and root may connect */
};

void rtd_init(struct rtd *rt);
/* Folder (by the rule of libclient/fdwhere.h) and lock. 73: cannot create it, or another
 * daemon runs; 77: no permission; 78: configuration error. */
int rtd_open_dir(struct rtd *rt, const struct par *par, char *err, size_t err_bytes);
/* Opens the sockets: taken from the service manager (LISTEN_FDS) or bound. */
int rtd_open_sockets(struct rtd *rt, const struct par *par, char *err, size_t err_bytes);
void rtd_groups(struct rtd *rt, const struct par *par);
void rtd_fini(struct rtd *rt);
/* Interval in ns at which WATCHDOG=1 is due, 0 = none. */
unsigned long long rtd_watchdog_ns(void);
/* Is `want` the peer's gid or one of its supplementary groups (SO_PEERGROUPS of fd)? */
int rtd_peer_in_group(int fd, gid_t gid, gid_t want);

#endif
