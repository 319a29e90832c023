/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without libFuzzer: every file of its corpus, then seeded
 * mutations of them, so that `make check` and the sanitizer builds exercise it
 * briefly everywhere. No input may take FUZZ_SLOW_MS, and all that the mutations
 * allocate must be free again at the end.
 *
 *   f_NAME [DIR]    DIR: tests/fuzz/corpus/NAME below $FDD_SRC
 *   SEED, FDD_FUZZ_RUNS: seed and number of mutations
 */
#include "config.h"

#include <dirent.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
int fuzz_missing(void) __attribute__((weak)); /* take.h */

#define MAX_FILES 4096
#define MAX_BYTES (1u << 20)
/* CPU time, for a sanitizer build; in other builds the slowest input takes 0.1 s. */
#define FUZZ_SLOW_MS 5000
#define FUZZ_KEPT    (1u << 20) /* bytes that malloc() keeps for each size it has seen */

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

/* Runs an exact-size copy, so that a sanitizer detects a read one byte too far. */
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

/* Bytes in use; with a sanitizer's malloc() it is 0, and the
 * sanitizer checks for leaks. */
static size_t
bytes_in_use(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static uint64_t
cpu_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
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

/* Returns 0, or 1 with the reason printed. */
static int
run_mutations(const char *name, const struct input *in, size_t n_in, long runs,
    uint64_t seed)
{
    uint8_t *buf = malloc(MAX_BYTES);
    size_t used = bytes_in_use();
    uint64_t slowest = 0;
    int rc = 0;

    for (long i = 0; buf != NULL && i < runs; i++) {
        const struct input *a = &in[next_rand(&seed) % n_in];
        const struct input *b = &in[next_rand(&seed) % n_in];
        size_t n = mutate(a, b, buf, &seed);
        uint64_t began = cpu_us(), took;

        run_one(buf, n);
        took = cpu_us() - began;
        slowest = took > slowest ? took : slowest;
    }
    used = bytes_in_use() > used ? bytes_in_use() - used : 0;
    free(buf);
    printf("%s: %zu inputs, %ld mutations, the slowest %.1f ms, %zu bytes more in use\n",
        name, n_in, runs, (double)slowest / 1000, used);
    if (slowest / 1000 >= FUZZ_SLOW_MS) {
        fprintf(stderr, "%s: an input took %.1f s\n", name, (double)slowest / 1e6);
        rc = 1;
    }
    if (used > FUZZ_KEPT) {
        fprintf(stderr, "%s: %zu bytes are not freed after %ld mutations\n", name, used,
            runs);
        rc = 1;
    }
    return buf != NULL ? rc : 1;
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
    int rc = run_mutations(name, in, n_in, r != NULL ? atol(r) : 2000, seed);

    for (size_t i = 0; i < n_in; i++)
        free(in[i].data);
    return rc;
}
