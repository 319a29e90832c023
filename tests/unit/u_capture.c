/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which batch sizes have a graph, and which of them a step uses. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/worker/capture.h"

static void
expect(int32_t max, const int32_t *want, int32_t n)
{
    struct cap c;

    cap_default(max, &c);
    assert_int_equal(c.n, n);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(c.size[i], want[i]);
}

/* Written out by hand; each shorter list is a beginning of it. */
static const int32_t sizes[] = { 1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96,
    104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416,
    448, 480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800, 832, 864, 896, 928, 960,
    992, 1024 };

static void
a10_lists_are_exact(void **state)
{
    (void)state;
    expect(1, sizes, 1);
    expect(8, sizes, 4);
    expect(64, sizes, 11);
    expect(128, sizes, 19);
    expect(256, sizes, 27);
    expect(512, sizes, 35);
    expect(1024, sizes, 51);
}

static void
a10_288_to_512_are_there(void **state)
{
    struct cap c;

    (void)state;
    cap_default(2048, &c);
    for (int32_t n = 288; n <= 512; n += 32)
        assert_int_equal(cap_map(&c, n), n);
}

/* A limit between two sizes is itself the last size. */
static void
a10_the_limit_is_a_size(void **state)
{
    (void)state;
    for (int32_t max = 1; max <= CAP_MAX_TOKENS; max = max < 3000 ? max + 1 : max * 2) {
        struct cap c;

        cap_default(max, &c);
        assert_true(c.n >= 1 && c.n <= CAP_MAX);
        assert_int_equal(c.size[c.n - 1], max);
        for (int32_t i = 1; i < c.n; i++)
            assert_true(c.size[i] > c.size[i - 1]);
    }
}

static void
a10_user_list_is_honoured(void **state)
{
    static const char *const same[] = { "1,3,5,7,9", "[1, 3, 5, 7, 9]", "9 7 5 3 1",
        "5,1,9,3,7,3,9,1,,", "[9,9,9,7,5,3,1]", " [ 1,3,5,7,9 ] " };
    char err[256] = "";

    (void)state;
    for (size_t k = 0; k < sizeof(same) / sizeof(same[0]); k++) {
        struct cap c = { .n = -1 };

        assert_int_equal(cap_parse(same[k], 9, &c, err, sizeof(err)), 0);
        assert_int_equal(c.n, 5);
        for (int32_t i = 0; i < 5; i++)
            assert_int_equal(c.size[i], 2 * i + 1);
        assert_int_equal(cap_map(&c, 4), 5);
        assert_int_equal(cap_map(&c, 10), 0);
    }
}

static void
refused(const char *text, int32_t max, const char *says)
{
    struct cap c = { .n = 77 };
    char err[256] = "";

    assert_int_equal(cap_parse(text, max, &c, err, sizeof(err)), -EINVAL);
    assert_int_equal(c.n, 77);
    assert_non_null(strstr(err, says));
    assert_null(strchr(err, '\n'));
}

static void
a10_bad_lists_are_refused(void **state)
{
    char text[4 * CAP_MAX + 64] = "";
    size_t at = 0;

    (void)state;
    refused("", 512, "empty");
    refused("[]", 512, "empty");
    refused(" , ,", 512, "empty");
    refused("1,2,513", 512, "513");
    refused("1,2,513", 512, "512");
    refused("0", 512, "0");
    refused("-4", 512, "-4");
    refused("1,two,3", 512, "two");
    refused("1.5", 512, "1.5");
    refused("8x", 512, "8x");
    refused("0x10", 512, "0x10");
    refused("99999999999999999999", 512, "99999999999999999999");
    refused("[1,2", 512, "brackets");
    refused("1,2]", 512, "brackets");
    refused("[1,2] 3", 512, "brackets");
    for (int i = 0; i <= CAP_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%d ", i % 500 + 1);
    refused(text, 512, "256");
}

static void
a11_mapping_is_smallest_size(void **state)
{
    static const int32_t maxima[] = { 1, 2, 3, 7, 8, 64, 100, 128, 256, 512, 1000, 1024,
        8192, CAP_MAX_TOKENS };

    (void)state;
    for (size_t k = 0; k < sizeof(maxima) / sizeof(maxima[0]); k++) {
        struct cap c;

        cap_default(maxima[k], &c);
        for (int32_t n = 1; n <= maxima[k]; n++) {
            int32_t want = 0;

            for (int32_t i = 0; i < c.n && want == 0; i++)
                if (c.size[i] >= n)
                    want = c.size[i];
            assert_int_equal(cap_map(&c, n), want);
        }
    }
}

/* No size is found for 0 tokens or more than the largest size. */
static void
a11_nothing_and_too_much_have_none(void **state)
{
    struct cap c;

    (void)state;
    cap_default(512, &c);
    assert_int_equal(cap_map(&c, 0), 0);
    assert_int_equal(cap_map(&c, -1), 0);
    assert_int_equal(cap_map(&c, 513), 0);
    assert_int_equal(cap_map(&c, INT32_MAX), 0);
}

/* Up to 16 tokens, up to 64, and from there on twice as many each. */
static int32_t
class_most(int32_t n)
{
    int32_t most = 16;

    while (most < n)
        most = most == 16 ? 64 : 2 * most;
    return most;
}

static int
cuts(const struct cap *c, struct cap_cut *ret)
{
    int32_t most[CAP_MAX];

    for (int32_t i = 0; i < c->n; i++)
        most[i] = class_most(c->size[i]);
    return cap_cuts(c, most, ret);
}

static void
lists_that_cut_a_class(void **state)
{
    static const struct {
        const char *list;
        int32_t first, most, size;
    } t[] = { { "8", 0, 0, 0 }, { "1,2,4,8,16,64,128,512", 0, 0, 0 },
        { "1,8,64", 9, 16, 64 }, { "16,40,300", 41, 64, 300 },
        { "16,100,300", 101, 128, 300 },
        /* a class as a whole goes to another one's size */
        { "16,128", 0, 0, 0 }, { "16,64,256", 0, 0, 0 },
        /* of one class all */
        { "65,70,128", 0, 0, 0 } };
    char err[256];

    (void)state;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        struct cap_cut cut = { 0 };
        struct cap c;

        assert_int_equal(cap_parse(t[i].list, 512, &c, err, sizeof(err)), 0);
        assert_int_equal(cuts(&c, &cut), t[i].size > 0);
        assert_int_equal(cut.first, t[i].first);
        assert_int_equal(cut.most, t[i].most);
        assert_int_equal(cut.size, t[i].size);
    }
    for (int32_t max = 1; max <= 4096; max = max < 300 ? max + 1 : max + 97) {
        struct cap_cut cut;
        struct cap c;

        cap_default(max, &c);
        assert_int_equal(cuts(&c, &cut), 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a10_lists_are_exact),
        cmocka_unit_test(a10_288_to_512_are_there),
        cmocka_unit_test(a10_the_limit_is_a_size),
        cmocka_unit_test(a10_user_list_is_honoured),
        cmocka_unit_test(a10_bad_lists_are_refused),
        cmocka_unit_test(a11_mapping_is_smallest_size),
        cmocka_unit_test(a11_nothing_and_too_much_have_none),
        cmocka_unit_test(lists_that_cut_a_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
