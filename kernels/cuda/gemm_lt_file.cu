/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of cuBLASLt's algorithms: text, one line per class, lines are appended.
 */
#include "kernels/cuda/gemm_lt.cuh"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FORMAT         2         /* format 1 had other classes */
#define LINE_MAX_BYTES 256
#define FILE_MAX_BYTES (1 << 20)

/* Parses a line: N K ldy range w y and the algorithm's bytes in hex. Returns 0 or
 * -EINVAL. */
static int
lt_line(const char *s, struct lt_algo *ret)
{
    struct lt_algo g = {};
    unsigned char *b = (unsigned char *)&g.algo;
    int w, y, at = 0;
    if (sscanf(s, "%d %d %d %d %d %d %n", &g.N, &g.K, &g.ldy, &g.range, &w, &y, &at) !=
        6 || at == 0 || strlen(s + at) != 2 * sizeof(g.algo))
        return -EINVAL;
    for (size_t k = 0; k < sizeof(g.algo); k++)
        if (sscanf(s + at + 2 * k, "%2hhx", &b[k]) != 1)
            return -EINVAL;
    g.w = (enum fdk_dtype)w;
    g.y = (enum fdk_dtype)y;
    g.usable = LT_UNSEEN;
    *ret = g;
    return 0;
}

/* Lines are appended, so the last one of a class counts; malformed lines are
 * skipped, algorithms are checked at their first use. */
void
lt_file_read(struct cu_lt_dev *l)
{
    int fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *text = fd >= 0 ? (char *)malloc(FILE_MAX_BYTES) : NULL, *save = NULL;
    ssize_t n = text != NULL ? read(fd, text, FILE_MAX_BYTES - 1) : -1;
    if (n >= 0)
        text[n] = '\0';
    for (char *s = n > 0 ? strtok_r(text, "\n", &save) : NULL; s != NULL;
         s = strtok_r(NULL, "\n", &save)) {
        struct lt_algo g, *to;
        if (lt_line(s, &g) != 0)
            continue;
        to = lt_algo_find(l, &g);
        if (to == NULL && l->n_algo < N_FILE)
            to = &l->algo[l->n_algo++];
        if (to != NULL)
            *to = g;
    }
    free(text);
    if (fd >= 0)
        close(fd);
}

void
lt_file_add(const struct cu_lt_dev *l, const struct lt_algo *g)
{
    char line[LINE_MAX_BYTES + 2 * sizeof(g->algo)];
    const unsigned char *b = (const unsigned char *)&g->algo;
    if (l->path[0] == '\0' || g->usable != 1)
        return;
    int n = snprintf(line, sizeof(line), "%d %d %d %d %d %d ", g->N, g->K, g->ldy,
        g->range, (int)g->w, (int)g->y);
    for (size_t i = 0; i < sizeof(g->algo); i++)
        n += snprintf(line + n, sizeof(line) - (size_t)n, "%02x", b[i]);
    line[n++] = '\n';
    int fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return;
    off_t end = lseek(fd, 0, SEEK_END);
    if (end >= 0 && end < FILE_MAX_BYTES - (off_t)sizeof(line))
        (void)!write(fd, line, (size_t)n);
    close(fd);
}

void
lt_file_name(struct cu_lt_dev *l, const struct cu_lt *lt, int dev, const char *dir)
{
    struct cudaDeviceProp prop;
    int driver = 0;
    if (dir == NULL || dir[0] == '\0' ||
        cudaGetDeviceProperties(&prop, dev) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess)
        return;
    for (char *s = prop.name; *s != '\0'; s++)
        if (!((*s >= '0' && *s <= '9') || (*s >= 'A' && *s <= 'Z') ||
            (*s >= 'a' && *s <= 'z')))
            *s = '_';
    int n = snprintf(l->path, sizeof(l->path), "%s/gemm%d-%s-%d-driver%d-cublaslt%zu.txt",
        dir, FORMAT, prop.name, prop.multiProcessorCount, driver, lt->version());
    if (n < 0 || (size_t)n >= sizeof(l->path))
        l->path[0] = '\0';
}
