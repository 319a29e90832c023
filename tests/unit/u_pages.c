/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Memory in pages: what was freed is given back piece by piece, and never unmapped. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/gate/blob.h"
#include "daemon/gate/pages.h"

static size_t given, longest, small;
static int n_mmap, n_munmap, fails, keeps;

/* These replace libc's functions. */
int
madvise(void *p, size_t n, int advice)
{
    if (advice == MADV_NOHUGEPAGE)
        small += n;
    if (advice == MADV_DONTNEED) {
        given += n;
        longest = n > longest ? n : longest;
    }
    if (advice == MADV_DONTNEED && keeps) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, p, n, advice);
}

void *
mmap(void *p, size_t n, int prot, int flags, int fd, off_t at)
{
    n_mmap++;
    if (fails) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, p, n, prot, flags, fd, at);
}

int
munmap(void *p, size_t n)
{
    n_munmap++;
    return (int)syscall(SYS_munmap, p, n);
}

static void
reset(void)
{
    given = longest = small = 0;
    n_mmap = n_munmap = 0;
}

static int
is_zero(const unsigned char *p, size_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

/* How many pages of p are in memory. */
static uint32_t
pages_of(void *p, uint32_t bytes)
{
    static unsigned char there[(32u << 20) / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (bytes + page - 1) / page;
    uint32_t found = 0;

    assert_true(n <= sizeof(there));
    assert_int_equal(mincore(p, bytes, there), 0);
    for (size_t i = 0; i < n; i++)
        found += there[i] & 1;
    return found;
}

static const uint32_t sizes[] = { 16, 16384, PGS_PIECE, PGS_PIECE + 1, 16u << 20,
    (5u << 20) + 12345, 20u << 20 };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void
t_pieces(void **state)
{
    struct pages g = { 0 };
    unsigned char *p[N_SIZES];
    size_t all = 0;

    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        p[i] = pgs_new(&g, sizes[i]);
        assert_non_null(p[i]);
        memset(p[i], 1, sizes[i]);
        all += sizes[i];
    }
    reset();
    for (size_t i = 0; i < N_SIZES; i++)
        pgs_free(&g, p[i], sizes[i], sizes[i]);
    assert_int_equal(given, 0);
    assert_int_equal(pgs_sweep(&g), 1);
    assert_in_range(given, 1, PGS_PIECE);
    while (pgs_sweep(&g))
        continue;
    assert_int_equal(given, all);
    assert_true(longest <= 256u << 10);
    assert_int_equal(n_munmap, 0);
    for (size_t i = 0; i < N_SIZES; i++)
        assert_int_equal(pages_of(p[i], sizes[i]), 0);
    pgs_fini(&g);
}

/* The same use again maps nothing; memory comes back as zeros. */
static void
t_again(void **state)
{
    struct pages g = { 0 };
    unsigned char *p[N_SIZES];

    (void)state;
    for (int k = 0; k < 3; k++) {
        reset();
        for (size_t i = 0; i < N_SIZES; i++) {
            p[i] = pgs_new(&g, sizes[i]);
            assert_non_null(p[i]);
            assert_true(is_zero(p[i], sizes[i]));
            memset(p[i], 7, sizes[i]);
        }
        assert_true(k == 0 ? n_mmap > 0 : n_mmap == 0);
        for (size_t i = 0; i < N_SIZES; i++)
            pgs_free(&g, p[i], sizes[i], sizes[i]);
        while (pgs_sweep(&g))
            continue;
        assert_int_equal(n_munmap, 0);
    }
    pgs_fini(&g);
    assert_true(n_munmap > 0);
    assert_null(g.slabs);
}

/* Slots in use at the same time do not overlap, over more than one slab. */
static void
t_apart(void **state)
{
    enum { N = 40 };
    struct pages g = { 0 };
    unsigned char *p[N];

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        p[i] = pgs_new(&g, 1000000);
        assert_non_null(p[i]);
        memset(p[i], (int)i + 1, 1000000);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(p[i][0], i + 1);
        assert_int_equal(memcmp(p[i], p[i] + 1, 999999), 0);
    }
    pgs_fini(&g);
}

static void
t_no_memory(void **state)
{
    struct pages g = { 0 };
    void *p;

    (void)state;
    fails = 1;
    assert_null(pgs_new(&g, 100000));
    assert_null(pgs_new(&g, 100000));
    fails = 0;
    p = pgs_new(&g, 100000);
    assert_non_null(p);
    assert_null(pgs_new(&g, (1u << 31) + 1));
    pgs_free(&g, p, 100000, 100000);
    pgs_fini(&g);
}

/* Of 16 MiB only what was written is given back. */
static void
t_used(void **state)
{
    struct pages g = { 0 };
    unsigned char *p;

    (void)state;
    for (int k = 0; k < 2; k++) {
        p = pgs_new(&g, 16u << 20);
        assert_non_null(p);
        assert_true(is_zero(p, 16u << 20));
        if (k == 0)
            memset(p, 3, 70000);
        reset();
        pgs_free(&g, p, 16u << 20, k == 0 ? 70000 : 0);
        assert_int_equal(pgs_sweep(&g), 1);
        assert_int_equal(pgs_sweep(&g), 0);
        assert_in_range(given, 16, 70000);
    }
    pgs_fini(&g);
}

/* A huge page is freed only as a whole. */
static void
t_small_pages(void **state)
{
    struct pages g = { 0 };

    (void)state;
    reset();
    assert_non_null(pgs_new(&g, 100000));
    assert_int_equal(small, PGS_SLAB);
    assert_non_null(pgs_new(&g, 20u << 20));
    assert_int_equal(small, PGS_SLAB + (32u << 20));
    pgs_fini(&g);
}

/* The kernel keeps the pages: their bytes are 0 all the same. */
static void
t_kept(void **state)
{
    struct pages g = { 0 };
    unsigned char *p = pgs_new(&g, 1u << 20);

    (void)state;
    assert_non_null(p);
    memset(p, 5, 1u << 20);
    keeps = 1;
    pgs_free(&g, p, 1u << 20, 1u << 20);
    while (pgs_sweep(&g))
        continue;
    keeps = 0;
    assert_ptr_equal(pgs_new(&g, 1u << 20), p);
    assert_true(is_zero(p, 1u << 20));
    pgs_fini(&g);
}

static void
t_short(void **state)
{
    struct pages g = { 0 };

    (void)state;
    reset();
    blb_free(&g, NULL, 1u << 20, 1u << 20);
    blb_free(&g, blb_new(&g, 1), 1, 1);
    blb_free(&g, blb_new(&g, BLB_LONG), BLB_LONG, BLB_LONG);
    assert_int_equal(pgs_sweep(&g), 0);
    assert_int_equal(n_mmap, 0);
    blb_free(&g, blb_new(&g, 3u << 20), 3u << 20, 3u << 20);
    while (pgs_sweep(&g))
        continue;
    assert_int_equal(given, 3u << 20);
    pgs_fini(&g);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_pieces),
        cmocka_unit_test(t_again),
        cmocka_unit_test(t_apart),
        cmocka_unit_test(t_no_memory),
        cmocka_unit_test(t_used),
        cmocka_unit_test(t_small_pages),
        cmocka_unit_test(t_kept),
        cmocka_unit_test(t_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
