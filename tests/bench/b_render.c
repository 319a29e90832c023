/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a chat template: parsing it, and rendering it with the variables of a JSON
 * object, which is parsed each time. tests/bench/render prints Jinja's times next to it.
 *
 * Usage: b_render TEMPLATE JSON
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/fdchat.h"
#include "daemon/common/clk.h"

#define MIN_NS  (500 * CLK_MS)
#define MOST    (1u << 20)
#define SAMPLES 100000

static char *
slurp(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    char *p = f != NULL ? malloc(MOST) : NULL;

    if (p == NULL) {
        perror(path);
        exit(1);
    }
    *ret_n = fread(p, 1, MOST, f);
    (void)fclose(f);
    return p;
}

static void
must(int rc, const char *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "b_render: %s: %s\n", strerror(-rc), err);
    exit(1);
}

static int
by_time(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

struct times {
    uint64_t at[SAMPLES];
    size_t n;
};

static double
median_us(struct times *t)
{
    qsort(t->at, t->n, sizeof(t->at[0]), by_time);
    return (double)t->at[t->n / 2] / 1e3;
}

int
main(int argc, char **argv)
{
    static struct times read, render;
    struct fdchat_args a = { .size = sizeof(a) };
    struct fdchat_prompt p = { NULL };
    char err[FDCHAT_ERR_BYTES] = "", *text;
    fdchat_template_t *t = NULL;
    size_t n = 0, bytes = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: b_render TEMPLATE JSON\n");
        return 64;
    }
    text = slurp(argv[1], &n);
    a.request = slurp(argv[2], &a.request_bytes);
    for (uint64_t t0 = clk_now_ns(), at = t0; at - t0 < MIN_NS && read.n < SAMPLES;) {
        uint64_t end;

        fdchat_template_free(t);
        at = clk_now_ns();
        must(fdchat_template_new(text, n, &t, err), err);
        end = clk_now_ns();
        read.at[read.n++] = end - at;
    }
    for (uint64_t t0 = clk_now_ns(), at = t0; at - t0 < MIN_NS && render.n < SAMPLES;) {
        uint64_t end;

        at = clk_now_ns();
        must(fdchat_render(t, &a, &p, err), err);
        end = clk_now_ns();
        bytes = p.bytes;
        fdchat_prompt_free(&p);
        render.at[render.n++] = end - at;
    }
    printf("read_us %.1f render_us %.1f bytes %zu\n", median_us(&read),
        median_us(&render), bytes);
    fdchat_template_free(t);
    free(text);
    free((char *)a.request);
    return 0;
}
