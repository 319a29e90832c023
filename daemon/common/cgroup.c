/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGR_PATH_BYTES 1024
/* Version 1 says nearly 2^63 where there is no limit. */
#define CGR_HUGE (UINT64_C(1) << 60)

/* "max" and what cannot be read is no limit. */
static uint64_t
cgr_number(const char *path)
{
    FILE *fp = fopen(path, "re");
    char text[64] = "", *end;
    uint64_t v;

    if (fp == NULL)
        return CGR_NO_LIMIT;
    if (fgets(text, sizeof(text), fp) == NULL)
        text[0] = '\0';
    (void)fclose(fp);
    v = strtoull(text, &end, 10);
    return end == text || v >= CGR_HUGE ? CGR_NO_LIMIT : v;
}

/* The least value of this file from the group at path outwards. */
static uint64_t
cgr_least(const char *mount, char *path, const char *file)
{
    char name[CGR_PATH_BYTES * 2 + 64];
    uint64_t least = CGR_NO_LIMIT, v;
    char *slash;

    for (;;) {
        (void)snprintf(name, sizeof(name), "%s%s/%s", mount, path, file);
        v = cgr_number(name);
        least = v < least ? v : least;
        slash = strrchr(path, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* Is this word in a list with commas? */
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

/* One line "number:controllers:path". */
static void
cgr_line(const char *root, char *line, struct cgr *ret)
{
    static const struct { const char *controller, *v1, *v2; } what[] = {
        { "memory", "memory.limit_in_bytes", "memory.max" },
        { "pids", "pids.max", "pids.max" }
    };
    uint64_t *out[] = { &ret->memory_max, &ret->tasks_max };
    char *names = strchr(line, ':'), *path;

    if (names == NULL || (path = strchr(++names, ':')) == NULL)
        return;
    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
        char mount[CGR_PATH_BYTES], at[CGR_PATH_BYTES];
        int v2 = path == names;
        uint64_t v;

        if (!v2 && !cgr_has_word(names, (size_t)(path - names), what[i].controller))
            continue;
        (void)snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s%s", root,
            v2 ? "" : "/", v2 ? "" : what[i].controller);
        /* "/" is the mount itself; a path with ".." lies outside of what we see */
        (void)snprintf(at, sizeof(at), "%s",
            strcmp(path + 1, "/") == 0 || strstr(path, "..") != NULL ? "" : path + 1);
        v = cgr_least(mount, at, v2 ? what[i].v2 : what[i].v1);
        *out[i] = v < *out[i] ? v : *out[i];
    }
}

void
cgr_read(const char *root, struct cgr *ret)
{
    char name[CGR_PATH_BYTES], line[CGR_PATH_BYTES];
    FILE *fp;

    ret->memory_max = ret->tasks_max = CGR_NO_LIMIT;
    (void)snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    fp = fopen(name, "re");
    if (fp == NULL)
        return;
    while (fgets(line, sizeof(line), fp) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        cgr_line(root, line, ret);
    }
    (void)fclose(fp);
}

int
cgr_memory_short(const struct cgr *c, uint64_t bytes, uint64_t pinned, char *ret,
    size_t ret_bytes)
{
    if (c->memory_max == CGR_NO_LIMIT || c->memory_max >= bytes)
        return 0;
    (void)snprintf(ret, ret_bytes, "this control group may have %llu MiB, the plan needs "
        "%llu MiB (%llu MiB of it kv.swap_space, pinned); the worker will be killed when "
        "it uses them: raise MemoryMax of the unit, or lower kv.memory_bytes or "
        "kv.swap_space", (unsigned long long)(c->memory_max >> 20),
        (unsigned long long)(bytes >> 20), (unsigned long long)(pinned >> 20));
    return 1;
}

int
cgr_tasks_short(const struct cgr *c, uint64_t tasks, char *ret, size_t ret_bytes)
{
    if (c->tasks_max == CGR_NO_LIMIT || c->tasks_max >= tasks)
        return 0;
    (void)snprintf(ret, ret_bytes, "this control group may have %llu threads, fdd needs "
        "%llu; raise TasksMax of the unit, or lower device.threads",
        (unsigned long long)c->tasks_max, (unsigned long long)tasks);
    return 1;
}
