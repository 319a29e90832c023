/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/common/panic.h"
#include "daemon/common/param.h"

#define CRS_FILE_BYTES (LNK_PANIC_BYTES + CRS_LINES_BYTES + 2048)

void
crs_worker(struct crs *c, const struct lnk_seg *seg, int64_t pid, const char *how)
{
    char error[sizeof(seg->w.error)];

    memset(c, 0, sizeof(*c));
    (void)snprintf(c->program, sizeof(c->program), "fdd-worker");
    c->pid = pid;
    c->t_end_s = (int64_t)time(NULL);
    memcpy(error, seg->w.error, sizeof(error));
    error[sizeof(error) - 1] = '\0';
    (void)snprintf(c->how, sizeof(c->how), "%.100s%s%s", how,
        error[0] != '\0' ? ": " : "", error);
    memcpy(c->panic, seg->panic, sizeof(c->panic));
    c->panic[sizeof(c->panic) - 1] = '\0';
    (void)lgq_last(&seg->log, c->lines, sizeof(c->lines));
}

/* ---- the file: lines "key value", then two texts -------------------------- */

/* Copies the text between the mark and the next mark; "" if the mark is missing. */
static void
crs_section(const char *text, const char *mark, char *ret, size_t ret_bytes)
{
    const char *p = strstr(text, mark), *end;
    size_t n;

    ret[0] = '\0';
    if (p == NULL)
        return;
    p += strlen(mark);
    end = strchr(p, PAN_MARK[0]);
    n = end != NULL ? (size_t)(end - p) : strlen(p);
    if (n >= ret_bytes)
        n = ret_bytes - 1;
    memcpy(ret, p, n);
    ret[n] = '\0';
}

static void
crs_parse(const char *text, const struct stat *st, struct crs *c)
{
    char head[1024];
    long long pid, start;

    crs_section(text, "fdd-crash 1\n", head, sizeof(head));
    if (sscanf(head, "program %15s\npid %lld\nstart %lld\n", c->program, &pid, &start) !=
        3) {
        c->program[0] = '\0';
        return;
    }
    c->pid = pid;
    c->t_start_s = start;
    crs_section(text, PAN_MARK "how ", c->how, sizeof(c->how));
    c->how[strcspn(c->how, "\n")] = '\0';
    crs_section(text, PAN_MARK "panic\n", c->panic, sizeof(c->panic));
    crs_section(text, PAN_MARK "lines\n", c->lines, sizeof(c->lines));
    if (c->panic[0] != '\0' || c->how[0] != '\0')
        c->t_end_s = (int64_t)st->st_mtime;
    if (c->how[0] == '\0' && c->panic[0] != '\0')
        (void)snprintf(c->how, sizeof(c->how), "%.*s", (int)strcspn(c->panic, "\n"),
            c->panic);
    else if (c->how[0] == '\0')
        (void)snprintf(c->how, sizeof(c->how),
            "it was killed without a last message, "
            "for example for lack of memory");
}

static void
crs_read(const char *path, struct crs *c)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *text = calloc(1, CRS_FILE_BYTES + 1);
    struct stat st;
    ssize_t n;

    /* Marks are single bytes; the text ends at a NUL. */
    if (fd >= 0 && text != NULL && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_uid == geteuid() && (n = read(fd, text, CRS_FILE_BYTES)) > 0)
        crs_parse(text, &st, c);
    free(text);
    if (fd >= 0)
        (void)close(fd);
}

static void
crs_put(int fd, const char *s)
{
    if (write(fd, s, strlen(s)) < 0) {
        /* ignored: the next daemon will have less to report */
    }
}

int
crs_open(const char *dir, struct crs *ret_before)
{
    char path[PAR_STR_BYTES + sizeof(CRS_FILE) + 1], head[128];
    int fd;

    memset(ret_before, 0, sizeof(*ret_before));
    (void)snprintf(path, sizeof(path), "%s/" CRS_FILE, dir);
    crs_read(path, ret_before);
    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    (void)snprintf(head, sizeof(head), "fdd-crash 1\nprogram fdd\npid %lld\nstart %lld\n",
        (long long)getpid(), (long long)time(NULL));
    crs_put(fd, head);
    pan_file(fd);
    return fd;
}

void
crs_close(const char *dir, int fd, const struct crs *last)
{
    char path[PAR_STR_BYTES + sizeof(CRS_FILE) + 1];
    char head[128];

    if (fd < 0)
        return;
    pan_file(-1);
    (void)snprintf(path, sizeof(path), "%s/" CRS_FILE, dir);
    if (last == NULL || last->program[0] == '\0') {
        (void)unlink(path);
    } else if (ftruncate(fd, 0) == 0) {
        (void)snprintf(head, sizeof(head),
            "fdd-crash 1\nprogram %s\npid %lld\nstart %lld\n" PAN_MARK "how ",
            last->program, (long long)last->pid, (long long)last->t_start_s);
        crs_put(fd, head);
        crs_put(fd, last->how);
        crs_put(fd, "\n" PAN_MARK "panic\n");
        crs_put(fd, last->panic);
        crs_put(fd, PAN_MARK "lines\n");
        crs_put(fd, last->lines);
    }
    (void)close(fd);
}

/* ---- the answer in JSON ------------------------------------------------------- */

static json_t *
crs_clean(const char *s, size_t n)
{
    char b[LOG_LINE_BYTES];

    return json_stringn(b, log_clean(s, n, b, sizeof(b)));
}

/* One element for each line, without the "<N>" that the system journal wants before
 * each. */
static json_t *
crs_lines(const char *s)
{
    json_t *list = json_array();

    while (*s != '\0') {
        size_t n = strcspn(s, "\n");
        size_t skip =
            n >= 3 && s[0] == '<' && s[1] >= '0' && s[1] <= '7' && s[2] == '>' ? 3 : 0;

        (void)json_array_append_new(list, crs_clean(s + skip, n - skip));
        s += n + (s[n] == '\n');
    }
    return list;
}

json_t *
crs_json(const struct crs *c, int all)
{
    json_t *o;

    if (c->program[0] == '\0')
        return json_null();
    o = json_pack("{s:o, s:I, s:I, s:I, s:o}", "program",
        crs_clean(c->program, strlen(c->program)), "pid", (json_int_t)c->pid, "started_s",
        (json_int_t)c->t_start_s, "ended_s", (json_int_t)c->t_end_s, "how",
        crs_clean(c->how, strlen(c->how)));
    (void)json_object_set_new(o, "panic", all ? crs_lines(c->panic) : json_null());
    (void)json_object_set_new(o, "lines", all ? crs_lines(c->lines) : json_null());
    return o;
}
