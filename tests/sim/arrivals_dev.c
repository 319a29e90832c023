/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sim/arrivals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Decode at context 1,024, batch 1, 8, 32, 128, 256: 3.83, 4.16, 5.08, 8.60 and 14.18 ms;
 * prefill of 128, 2,048, 8,192 tokens: 4.78, 46.1 and 201.7 ms. A row's context takes 128
 * KiB per token at 4.2 TB/s, a query-key product 16,384 x 32 operations at 671 TFLOP/s;
 * the points are the remaining times. From 256 tokens on, GEMMs compute tiles of 128
 * rows; every multiple up to 2,048 was measured (tests/bench/gpu prefill). A step of one
 * token more takes nearly the time of the next multiple.
 */
void
arr_dev_h200_8b(struct arr_dev *ret)
{
    static const struct arr_point point[] = { { 1, 3790 }, { 8, 3915 }, { 32, 4060 },
        { 64, 4380 }, { 128, 4660 }, { 256, 6400 }, { 257, 9400 }, { 384, 9600 },
        { 385, 11300 }, { 512, 11400 }, { 513, 14500 }, { 640, 14600 }, { 641, 16700 },
        { 768, 16800 }, { 769, 20000 }, { 896, 20200 }, { 897, 22000 }, { 1024, 22100 },
        { 1025, 25400 }, { 1152, 25600 }, { 1153, 27300 }, { 1280, 27500 },
        { 1281, 31200 }, { 1408, 31500 }, { 1409, 33600 }, { 1536, 33900 },
        { 1537, 37400 }, { 1664, 37700 }, { 1665, 39500 }, { 1792, 39800 },
        { 1793, 42200 }, { 1920, 42400 }, { 1921, 44000 }, { 2048, 44500 },
        { 4096, 88000 }, { 8192, 176000 } };

    *ret = (struct arr_dev){ .name = "h200-8b",
        .n_point = sizeof(point) / sizeof(point[0]),
        .ctx_us = 0.0312,
        .pair_us = 0.000776,
        .scale = 1.03,
        .hot = 0.2,
        .gap_us = 1.3,
        .noise = 0.01,
        .graph_tok = 512,
        .graph_us = 60,
        .eager_us = 300,
        .row_us = 0.1,
        .collect_us = 15,
        .eager_cmds = 400,
        .queue_cmds = 1024,
        .in_us = 250,
        .out_us = 200,
        .n_block = 50000,
        .max_len = 16384 };
    memcpy(ret->point, point, sizeof(point));
}

static int
dev_line(struct arr_dev *d, const char *line, int *ret_points)
{
    struct {
        const char *name;
        double *v;
        int32_t *i;
    } f[] = { { "ctx_us", &d->ctx_us, NULL }, { "pair_us", &d->pair_us, NULL },
        { "scale", &d->scale, NULL }, { "hot", &d->hot, NULL },
        { "gap_us", &d->gap_us, NULL }, { "noise", &d->noise, NULL },
        { "graph_us", &d->graph_us, NULL }, { "eager_us", &d->eager_us, NULL },
        { "row_us", &d->row_us, NULL }, { "collect_us", &d->collect_us, NULL },
        { "in_us", &d->in_us, NULL }, { "out_us", &d->out_us, NULL },
        { "graph_tok", NULL, &d->graph_tok }, { "eager_cmds", NULL, &d->eager_cmds },
        { "queue_cmds", NULL, &d->queue_cmds }, { "n_block", NULL, &d->n_block },
        { "max_len", NULL, &d->max_len } };
    char name[32];
    double a, b;
    int n = sscanf(line, "%31s %lf %lf", name, &a, &b);

    if (n < 1 || name[0] == '#')
        return 0;
    if (n == 3 && strcmp(name, "point") == 0) {
        if (*ret_points == 0)
            d->n_point = 0;
        *ret_points = 1;
        if (d->n_point == ARR_MAX_POINT || a < 1 || b <= 0 ||
            (d->n_point > 0 && a <= d->point[d->n_point - 1].n_tok))
            return -EINVAL;
        d->point[d->n_point++] = (struct arr_point){ (int32_t)a, b };
        return 0;
    }
    for (size_t i = 0; n == 2 && a >= 0 && i < sizeof(f) / sizeof(f[0]); i++) {
        if (strcmp(name, f[i].name) != 0)
            continue;
        if (f[i].v != NULL)
            *f[i].v = a;
        else
            *f[i].i = (int32_t)a;
        return 0;
    }
    return -EINVAL;
}

int
arr_dev_read(const char *path, struct arr_dev *ret, char *err, size_t err_bytes)
{
    FILE *f = fopen(path, "re");
    int points = 0, no = 0, rc = 0;
    char line[256];

    arr_dev_h200_8b(ret);
    (void)snprintf(ret->name, sizeof(ret->name), "%.31s", path);
    if (f == NULL) {
        (void)snprintf(err, err_bytes, "%s: %s", path, strerror(errno));
        return -ENOENT;
    }
    while (rc == 0 && fgets(line, sizeof(line), f) != NULL) {
        no++;
        rc = dev_line(ret, line, &points);
    }
    (void)fclose(f);
    if (rc != 0)
        (void)snprintf(err, err_bytes,
            "%s: line %d is not \"NAME VALUE\" of a device, nor "
            "\"point TOKENS US\" in ascending order",
            path, no);
    return rc;
}

/* Interpolates between two points; beyond the last point it extends
 * the line of the last two. */
static double
dev_base(const struct arr_dev *d, int32_t n_tok)
{
    int32_t i = 1;
    const struct arr_point *a, *b;

    if (n_tok <= d->point[0].n_tok || d->n_point == 1)
        return d->point[0].us;
    while (i < d->n_point - 1 && d->point[i].n_tok < n_tok)
        i++;
    a = &d->point[i - 1];
    b = &d->point[i];
    return a->us + (b->us - a->us) * (n_tok - a->n_tok) / (b->n_tok - a->n_tok);
}

double
arr_dev_ns(const struct arr_dev *d, const struct cost_step *s, int32_t n_pad)
{
    return (dev_base(d, n_pad) + d->ctx_us * (double)s->n_ctx +
               d->pair_us * (double)s->n_pair) *
        d->scale * 1000;
}
