/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "libclient/fdwhere.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *
env(const char *name)
{
    const char *v = secure_getenv(name);

    return v != NULL && v[0] != '\0' ? v : NULL;
}

void
fdw_env_get(struct fdw_env *ret)
{
    ret->socket = env("FDD_SOCKET");
    ret->runtime_dir = env("FDD_RUNTIME_DIR");
    ret->instance = env("FDD_INSTANCE");
    ret->xdg = env("XDG_RUNTIME_DIR");
    if (ret->xdg != NULL && ret->xdg[0] != '/')
        ret->xdg = NULL;
    ret->unit_dir = env("RUNTIME_DIRECTORY");
    ret->system_dir = FDW_SYSTEM_DIR;
}

int
fdw_is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t n = strspn(name, letters);

    return n > 0 && n <= FDW_NAME_MAX && name[n] == '\0' && name[0] != '-' &&
        strcmp(name, FDW_DEVICES) != 0 && strcmp(name, "fdd") != 0;
}

/* Writes base, mid and, for an instance, its name; ignores slashes at the end of base. */
static int
join(const char *base, const char *mid, const char *instance, char *ret, size_t ret_bytes)
{
    char path[FDW_PATH_BYTES];
    size_t n = strlen(base);
    int k;

    if (instance != NULL && !fdw_is_name(instance))
        return -EINVAL;
    while (n > 1 && base[n - 1] == '/')
        n--;
    if (n >= sizeof(path))
        return -ENAMETOOLONG;
    k = snprintf(path, sizeof(path), "%.*s%s%s%s", (int)n, base, mid,
        instance != NULL ? "/" : "", instance != NULL ? instance : "");
    if (k < 0 || (size_t)k >= sizeof(path) || (size_t)k >= ret_bytes)
        return -ENAMETOOLONG;
    memcpy(ret, path, (size_t)k + 1);
    return 0;
}

/* Is dir the user's own folder, and does it have a socket, live or left over? */
static int
is_own(const char *dir)
{
    char path[FDW_PATH_BYTES + 16];
    struct stat st;

    if (stat(dir, &st) != 0 || st.st_uid != geteuid())
        return 0;
    (void)snprintf(path, sizeof(path), "%s/" FDW_SOCKET, dir);
    return stat(path, &st) == 0;
}

int
fdw_find(const struct fdw_env *e, const char *dir, const char *instance, char *ret,
    size_t ret_bytes)
{
    char path[FDW_PATH_BYTES];
    int rc;

    if (dir != NULL)
        return join(dir, "", instance, ret, ret_bytes);
    if (instance == NULL)
        instance = e->instance;
    if (e->runtime_dir != NULL)
        return join(e->runtime_dir, "", instance, ret, ret_bytes);
    if (e->xdg != NULL) {
        rc = join(e->xdg, "/fdd", instance, path, sizeof(path));
        if (rc == -EINVAL)
            return rc;
        if (rc == 0 && is_own(path))
            return join(path, "", NULL, ret, ret_bytes);
    }
    return join(e->system_dir, "", instance, ret, ret_bytes);
}

int
fdw_find_socket(const struct fdw_env *e, char *ret, size_t ret_bytes)
{
    char dir[FDW_PATH_BYTES];
    int rc;

    if (e->socket != NULL)
        return join(e->socket, "", NULL, ret, ret_bytes);
    rc = fdw_find(e, NULL, NULL, dir, sizeof(dir));
    return rc != 0 ? rc : join(dir, "/" FDW_SOCKET, NULL, ret, ret_bytes);
}

int
fdw_home(const struct fdw_env *e, const char *dir, const char *instance, int is_root,
    char *ret, size_t ret_bytes)
{
    char first[FDW_PATH_BYTES];
    size_t n;

    if (dir != NULL)
        return join(dir, "", NULL, ret, ret_bytes);
    if (e->runtime_dir != NULL)
        return join(e->runtime_dir, "", instance, ret, ret_bytes);
    if (e->unit_dir != NULL) {
        n = strcspn(e->unit_dir, ":");
        if (n >= sizeof(first))
            return -ENAMETOOLONG;
        memcpy(first, e->unit_dir, n);
        first[n] = '\0';
        return join(first, "", NULL, ret, ret_bytes);
    }
    if (is_root)
        return join(e->system_dir, "", instance, ret, ret_bytes);
    return e->xdg != NULL ? join(e->xdg, "/fdd", instance, ret, ret_bytes) : -ENOENT;
}

int
fdw_device_dir(const struct fdw_env *e, const char *home, unsigned long uid, char *ret,
    size_t ret_bytes)
{
    size_t n = strlen(e->system_dir);
    char parent[FDW_PATH_BYTES], name[64];
    const char *slash = strrchr(home, '/');

    if (strncmp(home, e->system_dir, n) == 0 && (home[n] == '\0' || home[n] == '/'))
        return join(e->system_dir, "/" FDW_DEVICES, NULL, ret, ret_bytes);
    if (e->xdg != NULL)
        return join(e->xdg, "/fdd/" FDW_DEVICES, NULL, ret, ret_bytes);
    (void)snprintf(parent, sizeof(parent), "%.*s",
        slash == NULL || slash == home ? 1 : (int)(slash - home),
        slash == NULL ? "." : home);
    if (access(parent, W_OK) != 0)
        return join(home, "/" FDW_DEVICES, NULL, ret, ret_bytes);
    (void)snprintf(name, sizeof(name), "/fdd-" FDW_DEVICES "-%lu", uid);
    return join(strcmp(parent, "/") == 0 ? "" : parent, name, NULL, ret, ret_bytes);
}
