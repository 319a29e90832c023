/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The daemon's rule: FNV-1a of the runtime folder's path. */
static void
seg_path(const char *dir, char *ret, size_t ret_bytes)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *dir != '\0'; dir++)
        h = (h ^ (unsigned char)*dir) * 0x100000001b3u;
    snprintf(ret, ret_bytes, "/fdd-%016llx", (unsigned long long)h);
}

static int
map_stat(const char *name, const void **ret)
{
    struct cnt_seg *seg;
    struct stat st;
    int fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0), rc = 0;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(*seg)) {
        close(fd);
        return -EPROTO;
    }
    seg = mmap(NULL, sizeof(*seg), PROT_READ, MAP_SHARED, fd, 0);
    if (seg == MAP_FAILED)
        rc = -errno;
    close(fd);
    if (rc != 0)
        return rc;
    if (__atomic_load_n(&seg->magic, __ATOMIC_ACQUIRE) != CNT_MAGIC
        || seg->version != CNT_VERSION || seg->n_gate != CNT_N_GATE
        || seg->n_worker != CNT_N_WORKER || seg->n_hist != CNT_H__N) {
        munmap(seg, sizeof(*seg));
        return -EPROTO;
    }
    *ret = seg;
    return 0;
}

static int
map_trace(const char *name, const void **ret)
{
    const struct trc_seg *seg;
    char full[320];
    int rc;

    snprintf(full, sizeof(full), "%s" TRC_SUFFIX, name);
    rc = trc_open(full, &seg);
    if (rc == 0)
        *ret = seg;
    return rc;
}

/* By the folder's path as given or as resolved. */
static int
find_path(const struct fct *f, int (*map)(const char *, const void **), const void **ret)
{
    char name[300], *real;
    int rc;

    seg_path(f->dir, name, sizeof(name));
    rc = map(name, ret);
    if (rc == -ENOENT && (real = realpath(f->dir, NULL)) != NULL) {
        seg_path(real, name, sizeof(name));
        free(real);
        rc = map(name, ret);
    }
    return rc;
}

/* And by what the daemon says. */
static int
find(const struct fct *f, int (*map)(const char *, const void **), const void **ret)
{
    struct fct_admin *a;
    json_t *st = NULL;
    char name[300];
    int rc = find_path(f, map, ret);

    if (rc == -ENOENT && fct_admin_open(f, 1, &a) == 0) {
        if (fct_ask(a, json_pack("{s:s}", "cmd", "status"), 1, &st) == 0
            && json_is_string(json_object_get(st, "shm"))) {
            snprintf(name, sizeof(name), "%s",
                json_string_value(json_object_get(st, "shm")));
            rc = map(name, ret);
        }
        json_decref(st);
        fct_admin_close(a);
    }
    return rc;
}

/* The segment's group cannot be asked for; the client socket has the same. */
static int
no_permission(const char *what, const struct fct *f, const char *path)
{
    struct stat st = { .st_gid = 0 };
    char text[600];

    snprintf(text, sizeof(text), "%s of %s", what, f->dir);
    (void)stat(path, &st);
    return fct_no_permission(text, st.st_gid);
}

static int
explain(const struct fct *f, const char *what, int rc)
{
    if (rc == -EPROTO)
        return fct_fail(FCT_EX_PROTO, "%s of %s: made by another version of fdd", what,
            f->dir);
    return fct_fail(FCT_EX_UNAV, "no daemon with the runtime folder %s: %s; start it:\n"
        "  sudo systemctl start fdd\nor for yourself:\n  fdd --set model.path=DIR",
        f->dir, strerror(-rc));
}

int
fct_seg_open(const struct fct *f, const struct cnt_seg **ret_seg)
{
    const void *p = NULL;
    int rc = find(f, map_stat, &p);

    if (rc == 0)
        *ret_seg = p;
    if (rc == -EACCES || rc == -EPERM)
        return no_permission("statistics", f, f->socket);
    return rc == 0 ? 0 : explain(f, "statistics", rc);
}

int
fct_seg_try(const struct fct *f, const struct cnt_seg **ret_seg)
{
    const void *p = NULL;
    int rc = find_path(f, map_stat, &p);

    if (rc == 0)
        *ret_seg = p;
    return rc;
}

void
fct_seg_close(const struct cnt_seg *seg)
{
    munmap((void *)(uintptr_t)seg, sizeof(*seg));
}

int
fct_seg_alive(const struct cnt_seg *seg)
{
    return __atomic_load_n(&seg->magic, __ATOMIC_ACQUIRE) == CNT_MAGIC
        && (kill(seg->gate_pid, 0) == 0 || errno == EPERM);
}

uint64_t
fct_seg_value(const struct cnt_seg *seg, const struct cnt_row *row)
{
    return cnt_get((const uint64_t *)(const void *)((const char *)seg + row->offset));
}

int
fct_trace_open(const struct fct *f, const struct trc_seg **ret_seg)
{
    const void *p = NULL;
    int rc = find(f, map_trace, &p);

    if (rc == 0)
        *ret_seg = p;
    if (rc == -EACCES || rc == -EPERM)
        return fct_fail(FCT_EX_PERM, "trace of %s: permission denied; the administrators' "
            "group (ipc.admin_group) may read it, and root:\n"
            "  sudo fdctl trace", f->dir);
    return rc == 0 ? 0 : explain(f, "trace", rc);
}
