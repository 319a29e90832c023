/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl stat --textfile: the metrics in a file that Prometheus's node exporter reads. */
#include "config.h"

#include "tools/fdctl/stat/stat.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#define ASK_MS 5000 /* for the daemon's answer */

static int
prm_file_fail(const char *path)
{
    int e = errno;

    return fct_fail(e == EACCES || e == EPERM || e == EROFS ? FCT_EX_PERM : FCT_EX_IO,
        "stat: --textfile %s: %s", path, strerror(e));
}

int
stt_textfile(const char *path, const struct cnt_seg *s, unsigned names)
{
    const char *base = strrchr(path, '/');
    char tmp[PATH_MAX];
    FILE *out = NULL;
    int fd, e;

    base = base != NULL ? base + 1 : path;
    if (base[0] == '\0')
        return fct_usage("stat: --textfile '%s': names no file", path);
    /* its collector reads *.prom: this one it does not */
    if ((size_t)snprintf(tmp, sizeof(tmp), "%.*s.%s.XXXXXX", (int)(base - path), path,
            base) >= sizeof(tmp)) {
        errno = ENAMETOOLONG;
        return prm_file_fail(path);
    }
    fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0)
        return prm_file_fail(path);
    if (fchmod(fd, 0644) == 0)
        out = fdopen(fd, "w");
    if (out == NULL) {
        e = errno;
        close(fd);
    } else {
        prm_print(out, s, names, "");
        e = ferror(out) ? EIO : 0;
        if (fflush(out) != 0)
            e = errno;
        if (fclose(out) != 0 && e == 0)
            e = errno;
    }
    if (e == 0 && rename(tmp, path) != 0)
        e = errno;
    if (e == 0)
        return 0;
    (void)unlink(tmp);
    errno = e;
    return prm_file_fail(path);
}

static void
stt_close(const struct cnt_seg **seg)
{
    if (*seg != NULL)
        fct_seg_close(*seg);
    *seg = NULL;
}

static int
stt_round(const struct fct *f, const char *path, unsigned names, const struct cnt_seg **seg)
{
    struct cnt_seg *all;
    int rc = 0;

    /* The segment before is kept while its daemon lives, for it may be too busy to send
     * another. */
    if (*seg == NULL || !fct_seg_alive(*seg)) {
        stt_close(seg);
        rc = fct_seg_try(f, ASK_MS, seg);
    }
    if (rc == 0 && !fct_seg_alive(*seg)) {
        stt_close(seg);
        rc = -ENOENT;
    }
    if (rc == -ENOENT)
        return stt_textfile(path, NULL, names);
    if (rc != 0) {
        rc = fct_seg_open(f, seg); /* for its message */
        if (rc != 0)
            return rc;
    }
    all = fct_seg_snap_each(*seg);
    if (all == NULL)
        return fct_oom();
    rc = stt_textfile(path, all, names);
    free(all);
    return rc;
}

int
stt_export(const struct fct *f, const char *path, unsigned names, double interval, int once)
{
    const struct timespec nap = { .tv_sec = (time_t)interval,
        .tv_nsec = (long)((interval - floor(interval)) * 1e9) };
    const struct cnt_seg *seg = NULL;
    sigset_t set;
    int rc;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (!once)
        sigprocmask(SIG_BLOCK, &set, NULL);
    do
        rc = stt_round(f, path, names, &seg);
    while (rc == 0 && !once && sigtimedwait(&set, NULL, &nap) <= 0);
    stt_close(&seg);
    return rc;
}
