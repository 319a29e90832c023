/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl stat --textfile: the metrics in a file that Prometheus's node exporter reads. */
#include "config.h"

#include "tools/fdctl/stat/stat.h"

#include <fcntl.h>
#include <sys/stat.h>

#define ASK_MS 5000 /* for the daemon's answer */

/* The metrics into fd, which is closed. 0 or an errno. */
static int
fill(int fd, const struct cnt_seg *s, unsigned names)
{
    FILE *out = fdopen(fd, "w");
    int e = errno;

    if (out == NULL) {
        close(fd);
        return e;
    }
    prm_print(out, s, names, "");
    e = fchmod(fd, 0644) != 0 || fflush(out) != 0 ? errno : ferror(out) ? EIO : 0;
    return fclose(out) != 0 && e == 0 ? errno : e;
}

int
stt_textfile(const char *path, const struct cnt_seg *s, unsigned names)
{
    const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
    char *tmp;
    int fd, e;

    if (base[0] == '\0')
        return fct_usage("stat: --textfile '%s': names no file", path);
    /* its collector reads *.prom: this one it does not */
    if (asprintf(&tmp, "%.*s.%s.XXXXXX", (int)(base - path), path, base) < 0)
        return fct_oom();
    fd = mkostemp(tmp, O_CLOEXEC);
    e = fd >= 0 ? fill(fd, s, names) : errno;
    if (e == 0 && rename(tmp, path) != 0)
        e = errno;
    if (e != 0 && fd >= 0)
        (void)unlink(tmp);
    free(tmp);
    if (e == 0)
        return 0;
    return fct_fail(e == EACCES || e == EPERM || e == EROFS ? FCT_EX_PERM : FCT_EX_IO,
        "stat: --textfile %s: %s", path, strerror(e));
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
    struct cnt_seg *all = NULL;
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
    if (rc != 0 && rc != -ENOENT) {
        rc = fct_seg_open(f, seg); /* for its message */
        if (rc != 0)
            return rc;
    }
    if (rc == 0 && (all = fct_seg_snap_each(*seg)) == NULL)
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
