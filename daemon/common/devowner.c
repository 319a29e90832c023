/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/devowner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DOW_TEXT 700

int
dow_parse(const char *text, struct dow *ret)
{
    struct dow o = { .pid = 0 };

    memset(ret, 0, sizeof(*ret));
    if (sscanf(text, "%ld %63s %599[^\n]", &o.pid, o.instance, o.home) != 3 || o.pid <= 0)
        return -EINVAL;
    if (strcmp(o.instance, "-") == 0)
        o.instance[0] = '\0';
    *ret = o;
    return 0;
}

void
dow_text(const struct dow *o, char *ret, size_t ret_bytes)
{
    if (o->pid == 0)
        (void)snprintf(ret, ret_bytes, "fdd");
    else
        (void)snprintf(ret, ret_bytes, "fdd (pid %ld, %s%s, in %s)", o->pid,
            o->instance[0] == '\0' ? "no instance" : "instance ", o->instance, o->home);
}

int
dow_look(const char *path, struct dow *ret)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc = 0;
    char text[DOW_TEXT];
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return -EINVAL;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        rc = errno == EWOULDBLOCK ? 1 : -errno;
    if (rc == 1) {
        n = pread(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        (void)dow_parse(text, ret);
    }
    (void)close(fd); /* and with it the lock */
    return rc;
}
