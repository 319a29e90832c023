/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/dir.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int
dir_one(const char *path)
{
    mode_t mode = geteuid() == 0 ? 0755 : 0700;

    return mkdir(path, mode) == 0 || errno == EEXIST ? 0 : -errno;
}

int
dir_make(const char *path, int with_parent)
{
    char parent[PATH_MAX];
    int rc = dir_one(path);
    char *slash;

    if (rc != -ENOENT || !with_parent)
        return rc;
    if (strlen(path) >= sizeof(parent))
        return -ENAMETOOLONG;
    memcpy(parent, path, strlen(path) + 1);
    slash = strrchr(parent, '/');
    if (slash == NULL || slash == parent)
        return -ENOENT;
    *slash = '\0';
    rc = dir_one(parent);
    return rc != 0 ? rc : dir_one(path);
}
