/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, and the distance of words. */
#include "config.h"

#include "daemon/common/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Returns whether the text has only complete characters by txt_goes_on(). */
static int
comes_byte_by_byte(const unsigned char *s, size_t n)
{
    size_t have = 0, len;

    for (size_t i = 0; i < n; i++) {
        len = txt_goes_on(s + i - have, have, s[i]);
        if (len == 0)
            return 0;
        have = have + 1 == len ? 0 : have + 1;
    }
    return have == 0;
}

/* Every scalar value and every class of ill-formed sequence. */
static void
t_utf8(void **state)
{
    static const struct {
        const char *s;
        size_t n, ok;
    } bad[] = { { "\x80", 1, 0 }, { "\xbf", 1, 0 }, { "\xc0\x80", 2, 0 },
        { "\xc1\xbf", 2, 0 }, { "\xe0\x9f\xbf", 3, 0 }, { "\xed\xa0\x80", 3, 0 },
        { "\xf0\x8f\xbf\xbf", 4, 0 }, { "\xf4\x90\x80\x80", 4, 0 },
        { "\xf5\x80\x80\x80", 4, 0 }, { "\xff", 1, 0 }, { "ab\xc3", 3, 2 },
        { "\xe2\x82", 2, 0 }, { "abcdefghij\xe2(\xa1", 13, 10 }, { "\xf0\x9f\x98", 3, 0 },
        { "\xf0\x9f\x98\x41", 4, 0 } };
    unsigned char b[64];
    unsigned char put[4];
    uint32_t got = 0;

    (void)state;
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        size_t n, pad = cp % 9;

        if (cp >= 0xd800 && cp <= 0xdfff)
            continue;
        memset(b, 'a', sizeof(b));
        if (cp < 0x80) {
            b[pad] = (unsigned char)cp;
            n = 1;
        } else if (cp < 0x800) {
            b[pad] = (unsigned char)(0xc0 | cp >> 6);
            b[pad + 1] = (unsigned char)(0x80 | (cp & 63));
            n = 2;
        } else if (cp < 0x10000) {
            b[pad] = (unsigned char)(0xe0 | cp >> 12);
            b[pad + 1] = (unsigned char)(0x80 | (cp >> 6 & 63));
            b[pad + 2] = (unsigned char)(0x80 | (cp & 63));
            n = 3;
        } else {
            b[pad] = (unsigned char)(0xf0 | cp >> 18);
            b[pad + 1] = (unsigned char)(0x80 | (cp >> 12 & 63));
            b[pad + 2] = (unsigned char)(0x80 | (cp >> 6 & 63));
            b[pad + 3] = (unsigned char)(0x80 | (cp & 63));
            n = 4;
        }
        if (txt_utf8(b, pad + n + 9) != pad + n + 9)
            fail_msg("U+%04X is refused", cp);
        if (n > 1 && txt_utf8(b, pad + n - 1) != pad)
            fail_msg("a cut U+%04X is taken", cp);
        if (txt_char(b + pad, 8, &got) != n || got != cp)
            fail_msg("U+%04X is U+%04X", cp, got);
        if (txt_put(cp, put) != n || memcmp(put, b + pad, n) != 0)
            fail_msg("U+%04X is written otherwise", cp);
        for (size_t k = 0; k < n; k++)
            if (txt_goes_on(b + pad, k, b[pad + k]) != n)
                fail_msg("byte %zu of U+%04X is refused", k, cp);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(txt_utf8(bad[i].s, bad[i].n), bad[i].ok);
        got = 7;
        assert_int_equal(txt_char(bad[i].s + bad[i].ok, bad[i].n - bad[i].ok, &got), 0);
        assert_int_equal(got, 7);
        assert_false(comes_byte_by_byte((const unsigned char *)bad[i].s, bad[i].n));
    }
}

static void
t_distance(void **state)
{
    static const struct {
        const char *a, *b;
        unsigned d;
    } rows[] = { { "", "", 0 }, { "stop", "stop", 0 }, { "", "abc", 3 }, { "abc", "", 3 },
        { "stpo", "stop", 2 }, { "sto", "stop", 1 }, { "statt", "stat", 1 },
        { "kitten", "sitting", 3 }, { "flaw", "lawn", 2 } };
    char a[200], b[200];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(txt_distance(rows[i].a, rows[i].b), rows[i].d);
        assert_int_equal(txt_distance(rows[i].b, rows[i].a), rows[i].d);
    }
    /* of long words only the beginning counts */
    memset(a, 'a', sizeof(a));
    memset(b, 'b', sizeof(b));
    a[199] = b[199] = '\0';
    assert_int_equal(txt_distance(a, b), 63);
    memset(b, 'a', 63);
    assert_int_equal(txt_distance(a, b), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_utf8),
        cmocka_unit_test(t_distance),
    };

    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
