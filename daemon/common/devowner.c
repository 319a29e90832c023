/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/devowner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/dir.h"

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

/* Open a regular file only. A FIFO in its place must not block us. */
static int
open_regular(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    (void)close(fd);
    return -EINVAL;
}

void
dow_read(const char *path, struct dow *ret)
{
    char name[DOW_TEXT + 100], text[DOW_TEXT];

    (void)snprintf(name, sizeof(name), "%.700s" DOW_SUFFIX, path);
    (void)dir_read(name, O_NOFOLLOW, text, sizeof(text));
    (void)dow_parse(text, ret);
}

int
dow_is_alive(long pid)
{
    char path[64], text[512], *p, *name;

    if (pid <= 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
        return 0;
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    if (dir_read(path, O_NOFOLLOW, text, sizeof(text)) <= 0)
        return 1; /* /proc may hide the processes of other users */
    name = strchr(text, '(');
    p = strrchr(text, ')');
    if (name == NULL || p == NULL || p[1] != ' ')
        return 1;
    *p = '\0';
    return p[2] != 'Z' && p[2] != 'X' && strstr(name, "fdd") != NULL;
}

int
dow_look(const char *path, struct dow *ret)
{
    int fd = open_regular(path), rc = 0;

    if (fd == -EACCES) {
        dow_read(path, ret);
        return dow_is_alive(ret->pid);
    }
    if (fd < 0)
        return fd;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        rc = errno == EWOULDBLOCK ? 1 : -errno;
    (void)close(fd); /* releases the lock */
    if (rc == 1)
        dow_read(path, ret);
    return rc;
}
