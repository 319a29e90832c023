/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Memory of items: a long blob is given back to the kernel piece by piece. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/gate/blob.h"

static size_t unmapped, longest;

/* Replaces libc's function. */
int
munmap(void *p, size_t n)
{
    unmapped += n;
    longest = n > longest ? n : longest;
    return (int)syscall(SYS_munmap, p, n);
}

static void
t_pieces(void **state)
{
    static const uint32_t sizes[] = { BLB_LONG + 1, BLB_PIECE, BLB_PIECE + 1, 16u << 20,
        (5u << 20) + 12345 };
    struct blobs b = { NULL };
    size_t all = 0;

    (void)state;
    unmapped = longest = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *p = blb_new(sizes[i]);

        assert_non_null(p);
        memset(p, 1, sizes[i]);
        all += sizes[i];
        blb_free(&b, p, sizes[i]);
    }
    assert_int_equal(unmapped, 0);
    assert_int_equal(blb_sweep(&b), 1);
    assert_in_range(unmapped, 1, BLB_PIECE);
    while (blb_sweep(&b))
        continue;
    assert_int_equal(unmapped, all);
    assert_true(longest <= 256u << 10);
}

static void
t_short(void **state)
{
    struct blobs b = { NULL };

    (void)state;
    unmapped = 0;
    blb_free(&b, NULL, 1u << 20);
    blb_free(&b, blb_new(1), 1);
    blb_free(&b, blb_new(BLB_LONG), BLB_LONG);
    assert_int_equal(blb_sweep(&b), 0);
    blb_free(&b, blb_new(3u << 20), 3u << 20);
    blb_fini(&b);
    assert_null(b.first);
    assert_int_equal(unmapped, 3u << 20);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_pieces),
        cmocka_unit_test(t_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
