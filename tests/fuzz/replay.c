/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without libFuzzer: every file of its committed corpus,
 * then seeded mutations of them, so that `make check` and the sanitizer
 * builds exercise it briefly everywhere.
 *
 *   f_NAME [DIR]    DIR: tests/fuzz/corpus/NAME below $FDD_SRC
 *   SEED, FDD_FUZZ_RUNS: seed and number of mutations
 */
#include "config.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
int fuzz_missing(void) __attribute__((weak)); /* take.h */

#define MAX_FILES 4096
#define MAX_BYTES (1u << 20)

struct input {
    uint8_t *data;
    size_t n;
};

static uint64_t
next_rand(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static int
read_input(const char *path, struct input *ret)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return -1;
    uint8_t *p = malloc(MAX_BYTES);
    size_t n = p != NULL ? fread(p, 1, MAX_BYTES, f) : 0;
    fclose(f);
    *ret = (struct input){ p, n };
    return p != NULL ? 0 : -1;
}

/* An exact-size copy, so that a sanitizer sees the first byte too far. */
static void
run_one(const uint8_t *data, size_t n)
{
    uint8_t *p = malloc(n > 0 ? n : 1);
    if (p == NULL)
        return;
    memcpy(p, data, n);
    (void)LLVMFuzzerTestOneInput(p, n);
    free(p);
}

static size_t
mutate(const struct input *a, const struct input *b, uint8_t *out, uint64_t *s)
{
    size_t n = a->n;
    memcpy(out, a->data, n);
    unsigned times = 1 + (unsigned)(next_rand(s) % 4);
    for (unsigned i = 0; i < times; i++) {
        size_t at = n > 0 ? (size_t)(next_rand(s) % n) : 0;
        switch (next_rand(s) % 6) {
        case 0:
            if (n > 0)
                out[at] ^= (uint8_t)(1u << (next_rand(s) % 8));
            break;
        case 1:
            if (n > 0)
                out[at] = (uint8_t)next_rand(s);
            break;
        case 2:
            n = at;
            break;
        case 3: { /* a piece of another input */
            size_t from = b->n > 0 ? (size_t)(next_rand(s) % b->n) : 0;
            size_t len = b->n - from;
            if (len > 64)
                len = 64;
            if (at + len > MAX_BYTES)
                break;
            memcpy(out + at, b->data + from, len);
            if (at + len > n)
                n = at + len;
            break;
        }
        case 4: { /* a run repeated */
            size_t len = 1 + (size_t)(next_rand(s) % 32);
            if (at + len > n || n + len > MAX_BYTES)
                break;
            memmove(out + at + len, out + at, n - at);
            n += len;
            break;
        }
        default: { /* a number made large */
            static const char *const big[] = { "0", "-1", "4294967296",
                "18446744073709551616", "1e9", "null" };
            const char *v = big[next_rand(s) % 6];
            size_t len = strlen(v);
            if (at + len <= n)
                memcpy(out + at, v, len);
            break;
        }
        }
    }
    return n;
}

int
main(int argc, char **argv)
{
    char dir[4096];
    const char *src = getenv("FDD_SRC"), *name = strrchr(argv[0], '/');
    name = name != NULL ? name + 1 : argv[0];
    if (strncmp(name, "lt-", 3) == 0)
        name += 3;
    snprintf(dir, sizeof(dir), "%s/tests/fuzz/corpus/%s", src != NULL ? src : ".",
        strncmp(name, "f_", 2) == 0 ? name + 2 : name);
    const char *from = argc > 1 ? argv[1] : dir;
    if (LLVMFuzzerInitialize != NULL)
        LLVMFuzzerInitialize(&argc, &argv);

    static struct input in[MAX_FILES];
    size_t n_in = 0;
    DIR *d = opendir(from);
    if (d == NULL) {
        fprintf(stderr, "%s: cannot open %s\n", name, from);
        return 1;
    }
    const struct dirent *e;
    while ((e = readdir(d)) != NULL && n_in < MAX_FILES) {
        char path[8192];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", from, e->d_name);
        if (read_input(path, &in[n_in]) == 0)
            run_one(in[n_in].data, in[n_in].n), n_in++;
    }
    closedir(d);
    if (n_in == 0) {
        fprintf(stderr, "%s: no inputs in %s\n", name, from);
        return 1;
    }
    if (argc < 2 && fuzz_missing != NULL && fuzz_missing() != 0)
        return 1;
    const char *s = getenv("SEED"), *r = getenv("FDD_FUZZ_RUNS");
    uint64_t seed = s != NULL ? strtoull(s, NULL, 10) | 1 : 0x9e3779b97f4a7c15u;
    long runs = r != NULL ? atol(r) : 2000;
    uint8_t *buf = malloc(MAX_BYTES);
    for (long i = 0; buf != NULL && i < runs; i++) {
        const struct input *a = &in[next_rand(&seed) % n_in];
        const struct input *b = &in[next_rand(&seed) % n_in];
        size_t n = mutate(a, b, buf, &seed);
        run_one(buf, n);
    }
    printf("%s: %zu inputs, %ld mutations\n", name, n_in, runs);
    for (size_t i = 0; i < n_in; i++)
        free(in[i].data);
    free(buf);
    return 0;
}
