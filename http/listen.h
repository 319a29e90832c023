/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets on which fdd-http listens: at addresses of the configuration, or passed by
 * the service manager (LISTEN_FDS).
 */
#ifndef FDD_HTTP_LISTEN_H
#define FDD_HTTP_LISTEN_H

#include <stddef.h>

#include "daemon/common/param.h"

#define LIS_MAX 16

struct lis {
    int fd[LIS_MAX];
    int is_unix[LIS_MAX];
    int is_shared[LIS_MAX]; /* other loops accept from the same socket */
    unsigned n;
    int from_manager;     /* passed by the service manager, which keeps them open */
    char own_socket[108]; /* path to unlink at the end */
};

/* Check that the addresses are valid and, without keys, only of this machine. Returns 0,
 * or -EINVAL and a sentence in err. */
int lis_check(const struct par *p, char *err, size_t err_bytes);
/* Open and log the configured sockets. Returns 0, or -errno and a sentence in err. */
int lis_open(struct lis *l, const struct par *p, char *err, size_t err_bytes);
/* lis_open() for a further loop: sockets of its own at the addresses of first, among
 * which the kernel distributes connections (SO_REUSEPORT); UNIX sockets and those of the
 * service manager are shared. */
int lis_further(struct lis *l, struct lis *first, char *err, size_t err_bytes);
void lis_close(struct lis *l);
/* Is a Host header one of this machine's own names? */
int lis_is_local_name(const char *host, size_t n);

#endif
