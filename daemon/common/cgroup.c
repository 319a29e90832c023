/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/dir.h"

#define CGR_PATH_BYTES 1024
/* Version 1 reports nearly 2^63 where there is no limit. */
#define CGR_HUGE (UINT64_C(1) << 60)

/* Reads the number in a file. "max" and an unreadable file count as no limit. */
static uint64_t
cgr_number(const char *path)
{
    char text[64], *end;
    uint64_t v;

    (void)dir_read(path, 0, text, sizeof(text));
    v = strtoull(text, &end, 10);
    return end == text || v >= CGR_HUGE ? CGR_NO_LIMIT : v;
}

/* Shorten path to the next group outwards. Returns 0 if there is none. */
static int
cgr_outwards(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash == NULL)
        return 0;
    *slash = '\0';
    return 1;
}

/* The least value of file in the group at from and the groups around it. With used,
 * also writes what that file says in the group with the least value. */
static uint64_t
cgr_least(const char *mount, const char *from, const char *file, const char *used,
    uint64_t *ret_used)
{
    char path[CGR_PATH_BYTES], name[CGR_PATH_BYTES * 2 + 64];
    uint64_t least = CGR_NO_LIMIT, v;

    (void)snprintf(path, sizeof(path), "%s", from);
    do {
        (void)snprintf(name, sizeof(name), "%s%s/%s", mount, path, file);
        v = cgr_number(name);
        if (v >= least)
            continue;
        least = v;
        if (used != NULL) {
            (void)snprintf(name, sizeof(name), "%s%s/%s", mount, path, used);
            v = cgr_number(name);
            *ret_used = v != CGR_NO_LIMIT ? v : 0;
        }
    } while (cgr_outwards(path));
    return least;
}

/* Quota divided by period of the group at path; 0: no limit. */
static double
cgr_quota(const char *mount, const char *path, int v2)
{
    char name[CGR_PATH_BYTES * 2 + 64], text[64];
    unsigned long long quota = 0, period = 0;
    uint64_t q, p;

    if (!v2) {
        (void)snprintf(name, sizeof(name), "%s%s/cpu.cfs_quota_us", mount, path);
        q = cgr_number(name); /* -1 reads as a huge number: no limit */
        (void)snprintf(name, sizeof(name), "%s%s/cpu.cfs_period_us", mount, path);
        p = cgr_number(name);
        return q != CGR_NO_LIMIT && p != CGR_NO_LIMIT && p != 0 ? (double)q / (double)p : 0;
    }
    (void)snprintf(name, sizeof(name), "%s%s/cpu.max", mount, path);
    (void)dir_read(name, 0, text, sizeof(text));
    return sscanf(text, "%llu %llu", &quota, &period) == 2 && period != 0
        ? (double)quota / (double)period
        : 0;
}

/* The least quota of the group at from and the groups around it; 0: no limit. */
static double
cgr_cpus(const char *mount, const char *from, int v2)
{
    char path[CGR_PATH_BYTES];
    double least = 0, v;

    (void)snprintf(path, sizeof(path), "%s", from);
    do {
        v = cgr_quota(mount, path, v2);
        if (v > 0 && (least <= 0 || v < least))
            least = v;
    } while (cgr_outwards(path));
    return least;
}

/* Is word in a comma-separated list? */
static int
cgr_has_word(const char *list, size_t list_len, const char *word)
{
    size_t n = strlen(word);

    for (const char *end = list + list_len; list < end;) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t len = (size_t)((comma != NULL ? comma : end) - list);

        if (len == n && strncmp(list, word, n) == 0)
            return 1;
        list += len + 1;
    }
    return 0;
}

/* Returns 1 if the line names the controller, with its mount in ret, else 0. */
static int
cgr_mount(const char *root, const char *names, size_t names_len, const char *controller,
    char *ret, size_t ret_bytes)
{
    if (names_len != 0 && !cgr_has_word(names, names_len, controller))
        return 0;
    (void)snprintf(ret, ret_bytes, "%s/sys/fs/cgroup%s%s", root,
        names_len == 0 ? "" : "/", names_len == 0 ? "" : controller);
    return 1;
}

/* One line "number:controllers:path"; version 2 names no controllers. */
static void
cgr_line(const char *root, char *line, struct cgr *ret)
{
    char mount[CGR_PATH_BYTES], *names = strchr(line, ':'), *path;
    uint64_t v, used = 0;
    size_t n;

    if (names == NULL || (path = strchr(++names, ':')) == NULL)
        return;
    n = (size_t)(path - names);
    /* "/" is the mount itself; a path with ".." lies outside our view */
    path = strcmp(path + 1, "/") == 0 || strstr(path, "..") != NULL
        ? strchr(path, '\0')
        : path + 1;
    if (cgr_mount(root, names, n, "memory", mount, sizeof(mount))) {
        v = cgr_least(mount, path, n == 0 ? "memory.max" : "memory.limit_in_bytes",
            n == 0 ? "memory.current" : "memory.usage_in_bytes", &used);
        if (v < ret->memory_max) {
            ret->memory_max = v;
            ret->memory_used = used;
        }
    }
    if (cgr_mount(root, names, n, "pids", mount, sizeof(mount))) {
        v = cgr_least(mount, path, "pids.max", NULL, NULL);
        ret->tasks_max = v < ret->tasks_max ? v : ret->tasks_max;
    }
    if (cgr_mount(root, names, n, "cpu", mount, sizeof(mount))) {
        double cpus = cgr_cpus(mount, path, n == 0);

        if (cpus > 0 && (ret->cpus <= 0 || cpus < ret->cpus))
            ret->cpus = cpus;
    }
}

void
cgr_read_of(const char *root, const char *proc, struct cgr *ret)
{
    char name[CGR_PATH_BYTES], line[CGR_PATH_BYTES];
    FILE *fp;

    *ret = (struct cgr){ .memory_max = CGR_NO_LIMIT, .tasks_max = CGR_NO_LIMIT };
    (void)snprintf(name, sizeof(name), "%s%s/cgroup", root, proc);
    fp = fopen(name, "re");
    if (fp == NULL)
        return;
    while (fgets(line, sizeof(line), fp) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        cgr_line(root, line, ret);
    }
    (void)fclose(fp);
}

void
cgr_read(const char *root, struct cgr *ret)
{
    cgr_read_of(root, "/proc/self", ret);
}

int
cgr_memory_short(const struct cgr *c, uint64_t bytes, uint64_t pinned, char *ret,
    size_t ret_bytes)
{
    if (c->memory_max == CGR_NO_LIMIT || c->memory_max >= bytes)
        return 0;
    (void)snprintf(ret, ret_bytes,
        "this control group may have %llu MiB, the plan needs "
        "%llu MiB (%llu MiB of it kv.swap_space, pinned); the worker will be killed when "
        "it uses them: raise MemoryMax of the unit, or lower kv.memory_bytes or "
        "kv.swap_space",
        (unsigned long long)(c->memory_max >> 20), (unsigned long long)(bytes >> 20),
        (unsigned long long)(pinned >> 20));
    return 1;
}

int
cgr_tasks_short(const struct cgr *c, uint64_t tasks, char *ret, size_t ret_bytes)
{
    if (c->tasks_max == CGR_NO_LIMIT || c->tasks_max >= tasks)
        return 0;
    (void)snprintf(ret, ret_bytes,
        "this control group may have %llu threads, fdd needs "
        "%llu; raise TasksMax of the unit, or lower device.threads",
        (unsigned long long)c->tasks_max, (unsigned long long)tasks);
    return 1;
}
