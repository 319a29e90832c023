/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/log.h"

#define LIS_BACKLOG 1024
#define LIS_FIRST   3 /* SD_LISTEN_FDS_START */

union addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
};

/* Copy the next word of a comma-separated list. Returns 0 if there is none. */
static int
next_word(const char **list, char *ret, size_t ret_bytes)
{
    size_t n;

    while (**list == ',' || **list == ' ')
        (*list)++;
    n = strcspn(*list, ", ");
    if (n == 0)
        return 0;
    (void)snprintf(ret, ret_bytes, "%.*s", (int)n, *list);
    *list += n;
    return 1;
}

static int
parse(const char *word, int64_t port, union addr *a, socklen_t *ret_len)
{
    memset(a, 0, sizeof(*a));
    if (strcmp(word, "localhost") == 0)
        word = "127.0.0.1";
    if (strcmp(word, "*") == 0)
        word = "::";
    if (inet_pton(AF_INET, word, &a->in.sin_addr) == 1) {
        a->in.sin_family = AF_INET;
        a->in.sin_port = htons((uint16_t)port);
        *ret_len = sizeof(a->in);
        return 0;
    }
    if (inet_pton(AF_INET6, word, &a->in6.sin6_addr) == 1) {
        a->in6.sin6_family = AF_INET6;
        a->in6.sin6_port = htons((uint16_t)port);
        *ret_len = sizeof(a->in6);
        return 0;
    }
    return -EINVAL;
}

static int
is_loopback(const union addr *a)
{
    if (a->sa.sa_family == AF_INET)
        return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
    return a->sa.sa_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

int
lis_check(const struct par *p, char *err, size_t err_bytes)
{
    const char *list = p->http_host;
    char word[128];
    union addr a;
    socklen_t len;
    unsigned n = p->http_socket[0] != '\0';

    while (next_word(&list, word, sizeof(word))) {
        if (++n > LIS_MAX) {
            (void)snprintf(err, err_bytes, "http.host: more than %d addresses", LIS_MAX);
            return -EINVAL;
        }
        if (parse(word, p->http_port, &a, &len) != 0) {
            (void)snprintf(err, err_bytes,
                "http.host: %s is no IPv4 or IPv6 address; write one, or * for all", word);
            return -EINVAL;
        }
        if (p->keys_file[0] == '\0' && !is_loopback(&a)) {
            (void)snprintf(err, err_bytes,
                "http.host: %s is reached from other machines, and keys.file names no keys; "
                "fix: name a file of keys, or listen on 127.0.0.1",
                word);
            return -EINVAL;
        }
    }
    if (strlen(p->http_socket) > 107) {
        (void)snprintf(err, err_bytes, "http.socket: a socket's path has at most 107 bytes");
        return -EINVAL;
    }
    return 0;
}

/* ---- opening -------------------------------------------------------------------------- */

/* Open a socket that listens at the address. several: further ones may (SO_REUSEPORT).
 * Returns the descriptor or -errno. */
static int
socket_at(const union addr *a, socklen_t len, int several)
{
    int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
        one = 1, off = 0, rc;

    if (fd < 0)
        return -errno;
    if (a->sa.sa_family != AF_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (several)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    if (a->sa.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, &a->sa, len) == 0 && listen(fd, LIS_BACKLOG) == 0)
        return fd;
    rc = -errno;
    (void)close(fd);
    return rc;
}

/* Open the first of several. The address is first tried without SO_REUSEPORT, with which
 * another program of this user that listens there would go unnoticed. */
static int
first_at(const union addr *a, socklen_t len)
{
    union addr is = *a;
    socklen_t is_len = sizeof(is);
    int fd = socket_at(a, len, 0);

    if (fd < 0)
        return fd;
    (void)getsockname(fd, &is.sa, &is_len);
    (void)close(fd);
    return socket_at(&is, is_len, 1);
}

static int
listen_at(struct lis *l, const union addr *a, socklen_t len, int several,
    const char *name, char *err, size_t err_bytes)
{
    int is_unix = a->sa.sa_family == AF_UNIX;
    int fd = several && !is_unix ? first_at(a, len) : socket_at(a, len, 0);
    union addr is;
    socklen_t is_len = sizeof(is);

    memset(&is, 0, sizeof(is));
    if (fd < 0) {
        (void)snprintf(err, err_bytes, "cannot listen on %s: %s%s", name, strerror(-fd),
            fd == -EADDRINUSE ? "; fix: another port (http.port), or end the program there"
                              : "");
        return fd;
    }
    (void)getsockname(fd, &is.sa, &is_len);
    l->is_unix[l->n] = is_unix;
    l->is_shared[l->n] = several && is_unix;
    l->fd[l->n++] = fd;
    if (a->sa.sa_family == AF_INET)
        log_info("http: listening on http://%s:%u", name, ntohs(is.in.sin_port));
    else if (a->sa.sa_family == AF_INET6)
        log_info("http: listening on http://[%s]:%u", name, ntohs(is.in6.sin6_port));
    else
        log_info("http: listening on %s", name);
    return 0;
}

int
lis_further(struct lis *l, struct lis *first, char *err, size_t err_bytes)
{
    memset(l, 0, sizeof(*l));
    l->from_manager = first->from_manager;
    for (unsigned i = 0; i < first->n; i++) {
        int is_shared = first->is_unix[i] || first->from_manager, fd;
        union addr a;
        socklen_t len = sizeof(a);

        if (is_shared)
            fd = fcntl(first->fd[i], F_DUPFD_CLOEXEC, 0);
        else
            fd = getsockname(first->fd[i], &a.sa, &len) == 0
                ? socket_at(&a, len, 1)
                : -errno;
        if (fd < 0) {
            (void)snprintf(err, err_bytes, "cannot listen once more: %s",
                strerror(is_shared ? errno : -fd));
            return is_shared ? -errno : fd;
        }
        l->is_unix[l->n] = first->is_unix[i];
        l->is_shared[l->n] = first->is_shared[i] = is_shared;
        l->fd[l->n++] = fd;
    }
    return 0;
}

static int
listen_unix(struct lis *l, const char *path, int several, char *err, size_t err_bytes)
{
    union addr a;
    struct stat st;
    int fd, rc;

    memset(&a, 0, sizeof(a));
    a.un.sun_family = AF_UNIX;
    memcpy(a.un.sun_path, path, strlen(path) + 1);
    /* Remove the socket of an earlier process, unless a process listens there. */
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, &a.sa, sizeof(a.un)) != 0 && errno == ECONNREFUSED)
            (void)unlink(path);
        if (fd >= 0)
            (void)close(fd);
    }
    rc = listen_at(l, &a, sizeof(a.un), several, path, err, err_bytes);
    if (rc == 0) {
        (void)snprintf(l->own_socket, sizeof(l->own_socket), "%s", path);
        (void)chmod(path, 0660);
    }
    return rc;
}

/* Take over the sockets that the service manager passed. */
static void
take_passed(struct lis *l)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    int count = pid != NULL && n != NULL && atoi(pid) == (int)getpid() ? atoi(n) : 0;

    for (int fd = LIS_FIRST; fd < LIS_FIRST + count && l->n < LIS_MAX; fd++) {
        union addr a;
        socklen_t len = sizeof(a);
        int type = 0, fl = fcntl(fd, F_GETFL);
        socklen_t type_len = sizeof(type);

        if (fl < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) != 0 ||
            type != SOCK_STREAM || getsockname(fd, &a.sa, &len) != 0)
            continue;
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        (void)fcntl(fd, F_SETFL, fl | O_NONBLOCK);
        l->is_unix[l->n] = a.sa.sa_family == AF_UNIX;
        l->fd[l->n++] = fd;
        l->from_manager = 1;
    }
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    if (l->from_manager)
        log_info("http: listening on %u sockets passed by the service manager", l->n);
}

/* Refuse sockets that other machines can reach, unless there are keys. */
static int
check_passed(const struct lis *l, const struct par *p, char *err, size_t err_bytes)
{
    for (unsigned i = 0; i < l->n && p->keys_file[0] == '\0'; i++) {
        union addr a;
        socklen_t len = sizeof(a);

        if (getsockname(l->fd[i], &a.sa, &len) == 0 && !is_loopback(&a)) {
            (void)snprintf(err, err_bytes,
                "a socket passed by the service manager can be reached from other machines, and "
                "keys.file names no keys; fix: keys, or ListenStream=127.0.0.1:8000");
            return -EINVAL;
        }
    }
    return 0;
}

int
lis_open(struct lis *l, const struct par *p, char *err, size_t err_bytes)
{
    const char *list = p->http_host;
    char word[128];
    int rc = 0;

    memset(l, 0, sizeof(*l));
    take_passed(l);
    if (l->n > 0)
        return check_passed(l, p, err, err_bytes);
    while (rc == 0 && next_word(&list, word, sizeof(word))) {
        union addr a;
        socklen_t len = 0;

        rc = parse(word, p->http_port, &a, &len);
        if (rc == 0)
            rc = listen_at(l, &a, len, p->http_loops > 1, word, err, err_bytes);
    }
    if (rc == 0 && p->http_socket[0] != '\0')
        rc = listen_unix(l, p->http_socket, p->http_loops > 1, err, err_bytes);
    if (rc == 0 && l->n == 0) {
        (void)snprintf(err, err_bytes,
            "nothing to listen on: http.host and http.socket are empty");
        rc = -EINVAL;
    }
    return rc;
}

void
lis_close(struct lis *l)
{
    for (unsigned i = 0; i < l->n; i++)
        (void)close(l->fd[i]);
    l->n = 0;
    if (l->own_socket[0] != '\0')
        (void)unlink(l->own_socket);
    l->own_socket[0] = '\0';
}

int
lis_is_local_name(const char *host, size_t n)
{
    const char *colon =
        n > 0 && host[0] == '[' ? memchr(host, ']', n) : memchr(host, ':', n);
    char name[64];
    struct in_addr a;
    size_t len = colon == NULL ? n : (size_t)(colon - host) + (host[0] == '[');

    if (len >= sizeof(name))
        return 0;
    memcpy(name, host, len);
    name[len] = '\0';
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0)
        return 1;
    return inet_pton(AF_INET, name, &a) == 1 && ntohl(a.s_addr) >> 24 == 127;
}
