/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Stop strings: limits, overlaps, and every split of random texts against a
 * naive search. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/finish.h"

static int
push(const struct fin_set *fs, struct fin *f, const char *s, size_t *ret_end)
{
    return fin_push(fs, f, (const unsigned char *)s, strlen(s), ret_end);
}

static void
limits(void **state)
{
    struct fin_set *fs = fin_set_new();
    char longest[FDP_MAX_STOP_LEN + 1];

    (void)state;
    memset(longest, 'x', sizeof(longest));
    assert_int_equal(fin_set_add(fs, "", 0), -EINVAL);
    assert_int_equal(fin_set_add(fs, longest, FDP_MAX_STOP_LEN + 1), -EINVAL);
    for (int i = 0; i < FDP_MAX_STOP; i++)
        assert_int_equal(fin_set_add(fs, longest, FDP_MAX_STOP_LEN), 0);
    assert_int_equal(fin_set_add(fs, "a", 1), -EINVAL);
    fin_set_free(fs);
    assert_null(fin_set_free(NULL));
}

static void
overlap_is_found(void **state)
{
    struct fin_set *fs = fin_set_new();
    struct fin f;
    size_t end = 0;

    (void)state;
    assert_int_equal(fin_set_add(fs, "aab", 3), 0);
    fin_init(&f);
    assert_int_equal(push(fs, &f, "aa", &end), -1);
    assert_int_equal(fin_hold(fs, &f), 2);
    /* the third a moves the match on instead of losing it */
    assert_int_equal(push(fs, &f, "a", &end), -1);
    assert_int_equal(fin_hold(fs, &f), 2);
    assert_int_equal(push(fs, &f, "bxx", &end), 0);
    assert_int_equal(end, 1);
    fin_set_free(fs);
}

static void
first_complete_wins_then_longest(void **state)
{
    struct fin_set *fs = fin_set_new();
    struct fin f;
    size_t end = 0;

    (void)state;
    assert_int_equal(fin_set_add(fs, "bc", 2), 0);
    assert_int_equal(fin_set_add(fs, "abcd", 4), 0);
    assert_int_equal(fin_set_add(fs, "abc", 3), 0);
    fin_init(&f);
    assert_int_equal(push(fs, &f, "zabcd", &end), 2);
    assert_int_equal(end, 4);
    fin_set_free(fs);
}

static int
naive(char stops[][8], uint32_t n, const char *text, size_t len, size_t *ret_end)
{
    for (size_t end = 1; end <= len; end++) {
        int best = -1;

        for (uint32_t k = 0; k < n; k++) {
            size_t m = strlen(stops[k]);

            if (m <= end && memcmp(text + end - m, stops[k], m) == 0 &&
                (best < 0 || m > strlen(stops[best])))
                best = (int)k;
        }
        if (best >= 0) {
            *ret_end = end;
            return best;
        }
    }
    return -1;
}

static void
every_split(void **state)
{
    unsigned seed = 11;
    int hits = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct fin_set *fs = fin_set_new();
        char stops[4][8], text[40];
        uint32_t n = 1 + (uint32_t)rand_r(&seed) % 4;
        size_t want_end = 0, got_end = 0, at = 0;
        struct fin f;
        int want, got = -1;

        for (uint32_t k = 0; k < n; k++) {
            size_t m = 1 + (size_t)rand_r(&seed) % 6;

            for (size_t i = 0; i < m; i++)
                stops[k][i] = (char)('a' + rand_r(&seed) % 3);
            stops[k][m] = '\0';
            assert_int_equal(fin_set_add(fs, stops[k], m), 0);
        }
        for (size_t i = 0; i < sizeof(text); i++)
            text[i] = (char)('a' + rand_r(&seed) % 3);
        want = naive(stops, n, text, sizeof(text), &want_end);
        fin_init(&f);
        while (at < sizeof(text) && got < 0) {
            size_t k = 1 + (size_t)rand_r(&seed) % 5, end = 0, hold = 0;

            if (k > sizeof(text) - at)
                k = sizeof(text) - at;
            got = fin_push(fs, &f, (const unsigned char *)text + at, k, &end);
            got_end = at + end;
            at += k;
            if (got >= 0)
                break;
            for (uint32_t j = 0; j < n; j++)
                for (size_t m = 1; m < strlen(stops[j]) && m <= at; m++)
                    if (memcmp(text + at - m, stops[j], m) == 0 && m > hold)
                        hold = m;
            assert_int_equal(fin_hold(fs, &f), hold);
        }
        assert_int_equal(got, want);
        if (want >= 0)
            assert_int_equal(got_end, want_end);
        hits += want >= 0;
        fin_set_free(fs);
    }
    assert_true(hits > 1000 && hits < 3000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),
        cmocka_unit_test(overlap_is_found),
        cmocka_unit_test(first_complete_wins_then_longest),
        cmocka_unit_test(every_split),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
