/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Byte pair encoding by itself: the heap and the scan against plain merging. */
#include "config.h"

#include "daemon/worker/bpe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct bpe_opts plain = { .unk_id = -1 };

static void
add(struct bpe *bpe, uint32_t id, const char *s)
{
    assert_int_equal(bpe_add_token(bpe, id, (const uint8_t *)s, strlen(s), BPE_TOK_VOCAB),
        0);
}

static size_t
run(struct bpe_work *w, const struct bpe *bpe, const void *s, size_t n, size_t step,
    uint32_t *out)
{
    const uint32_t *ids;
    size_t n_ids, budget;

    assert_int_equal(bpe_begin(w, bpe, s, n), 0);
    do {
        budget = step;
    } while (!bpe_step(w, &budget));
    ids = bpe_ids(w, &n_ids);
    if (n_ids)
        memcpy(out, ids, n_ids * sizeof(*out));
    return n_ids;
}

static void
alphabet(void **state)
{
    bool seen[512] = { false };
    unsigned b, cp, n = 0;

    (void)state;
    for (b = 0; b < 256; b++) {
        cp = bpe_byte_to_char((uint8_t)b);
        assert_true(cp > 32 && cp < 324 && !seen[cp]);
        seen[cp] = true;
        assert_int_equal(bpe_char_to_byte(cp), b);
    }
    for (cp = 0; cp < 70000; cp++)
        n += bpe_char_to_byte(cp) >= 0;
    assert_int_equal(n, 256);
    assert_int_equal(bpe_byte_to_char(' '), 0x120);
    assert_int_equal(bpe_byte_to_char('\n'), 0x10a);
    assert_int_equal(bpe_byte_to_char(0xad), 0x143);
    assert_int_equal(bpe_byte_to_char(0xa0), 0x142);
}

/* The definition: merge the best pair of the whole word, leftmost
 * first, until none is left. */
static size_t
reference(const uint16_t rank[64][64], const uint16_t into[64][64], uint32_t *w, size_t n)
{
    for (;;) {
        unsigned best = UINT16_MAX;
        size_t i, at = 0;

        for (i = 0; i + 1 < n; i++) {
            if (rank[w[i]][w[i + 1]] < best) {
                best = rank[w[i]][w[i + 1]];
                at = i;
            }
        }
        if (best == UINT16_MAX)
            return n;
        w[at] = into[w[at]][w[at + 1]];
        memmove(w + at + 1, w + at + 2, (n - at - 2) * sizeof(*w));
        n--;
    }
}

static void
random_words(void **state)
{
    static uint16_t rank[64][64], into[64][64];
    struct bpe *bpe = bpe_new(64, 60);
    struct bpe_work *w = bpe_work_new();
    uint32_t id, m = 0, want[400], got[400];
    char text[64][80];
    unsigned round, i, j;

    (void)state;
    assert_non_null(bpe);
    assert_non_null(w);
    srandom(3);
    memset(rank, 0xff, sizeof(rank));
    for (id = 0; id < 4; id++) {
        snprintf(text[id], sizeof(text[id]), "%c", 'a' + (int)id);
        add(bpe, id, text[id]);
    }
    while (id < 64) {
        unsigned a = (unsigned)random() % id, b = (unsigned)random() % id;
        char both[160];
        bool known = false;

        snprintf(both, sizeof(both), "%s%s", text[a], text[b]);
        for (i = 0; i < id; i++)
            known |= !strcmp(text[i], both);
        if (known || strlen(both) > 70)
            continue;
        strcpy(text[id], both);
        add(bpe, id, both);
        assert_int_equal(bpe_add_merge(bpe, a, b, m, id), 0);
        rank[a][b] = (uint16_t)m++;
        into[a][b] = (uint16_t)id++;
    }
    assert_int_equal(bpe_add_merge(bpe, 0, 63, 99, 1), -ENOSPC);
    assert_int_equal(bpe_seal(bpe, &plain), 0);
    for (round = 0; round < 20000; round++) {
        size_t n = 1 + (unsigned)random() % (round % 10 ? 50 : 390), k;
        uint8_t word[400];

        for (j = 0; j < n; j++) {
            want[j] = (unsigned)random() % 4;
            word[j] = (uint8_t)('a' + want[j]);
        }
        k = reference((const uint16_t(*)[64])rank, (const uint16_t(*)[64])into, want, n);
        assert_int_equal(run(w, bpe, word, n, round % 3 ? SIZE_MAX : 1 + round % 7, got), k);
        assert_memory_equal(got, want, k * sizeof(*got));
    }
    bpe_work_free(w);
    bpe_free(bpe);
}

static void
long_word(void **state)
{
    struct bpe *bpe = bpe_new(20, 19);
    struct bpe_work *w = bpe_work_new();
    size_t n = 1 << 20, i, budget, steps = 0, n_ids;
    uint8_t *word = malloc(n);
    char s[5000] = "a";
    const uint32_t *ids;
    uint32_t id;

    (void)state;
    add(bpe, 0, "a");
    for (id = 1; id < 13; id++) {
        memcpy(s + (1 << (id - 1)), s, (size_t)1 << (id - 1));
        s[1 << id] = 0;
        if (id == 12)
            break;
        add(bpe, id, s);
        assert_int_equal(bpe_add_merge(bpe, id - 1, id - 1, id, id), 0);
    }
    assert_int_equal(bpe_seal(bpe, &plain), 0);
    memset(word, 'a', n);
    assert_int_equal(bpe_begin(w, bpe, word, n), 0);
    do {
        budget = 10000;
        steps++;
    } while (!bpe_step(w, &budget));
    assert_true(steps > 100 && steps < 4 * n / 10000 + 2);
    ids = bpe_ids(w, &n_ids);
    assert_int_equal(n_ids, n >> 11);
    for (i = 0; i < n_ids; i++)
        assert_int_equal(ids[i], 11);
    bpe_work_trim(w);
    free(word);
    bpe_work_free(w);
    bpe_free(bpe);
}

static void
unknown_bytes(void **state)
{
    struct bpe_opts opts = plain;
    struct bpe *bpe;
    struct bpe_work *w;
    uint32_t got[200];
    char word[101];
    unsigned kind;

    (void)state;
    for (kind = 0; kind < 4; kind++) {
        bpe = bpe_new(10, 0);
        add(bpe, 0, "a");
        add(bpe, 1, "<u>");
        add(bpe, 2, "<0x78>");
        add(bpe, 3, "<0xC4>");
        add(bpe, 4, "<0xA0>");
        opts.unk_id = kind ? 1 : -1;
        opts.fuse_unk = kind == 2;
        opts.byte_fallback = kind == 3;
        assert_int_equal(bpe_seal(bpe, &opts), 0);
        w = bpe_work_new(); /* words of another vocabulary */
        switch (kind) {
        case 0:
            assert_int_equal(run(w, bpe, "axxa", 4, 9, got), 2);
            break;
        case 1:
            assert_int_equal(run(w, bpe, "axxa", 4, 9, got), 4);
            assert_int_equal(got[1], 1);
            assert_int_equal(got[2], 1);
            break;
        case 2:
            assert_int_equal(run(w, bpe, "axxax", 5, 9, got), 4);
            assert_int_equal(got[1], 1);
            assert_int_equal(got[3], 1);
            memset(word, 'x', 100);
            assert_int_equal(run(w, bpe, word, 100, 9, got), 1);
            break;
        default:
            /* A space is spelled U+0120, which is C4 A0. */
            assert_int_equal(run(w, bpe, "ax y", 4, 9, got), 5);
            assert_int_equal(got[1], 2);
            assert_int_equal(got[2], 3);
            assert_int_equal(got[3], 4);
            assert_int_equal(got[4], 1);
        }
        bpe_work_free(w);
        bpe_free(bpe);
    }
}

static void
table(void **state)
{
    struct bpe_opts opts = { .unk_id = -1, .ignore_merges = true };
    struct bpe *bpe = bpe_new(6, 2);
    struct bpe_work *w = bpe_work_new();
    const uint8_t *p;
    uint32_t got[8];
    unsigned flags;
    size_t n;

    (void)state;
    add(bpe, 0, "a");
    add(bpe, 1, "b");
    add(bpe, 2, "ab");
    add(bpe, 3, "abab");
    assert_int_equal(bpe_add_token(bpe, 4, (const uint8_t *)"ba", 2,
                         BPE_TOK_VOCAB | BPE_TOK_RAW),
        0);
    assert_int_equal(bpe_add_token(bpe, 0, (const uint8_t *)"a", 1, BPE_TOK_ADDED), 0);
    assert_int_equal(bpe_add_token(bpe, 0, (const uint8_t *)"x", 1, 0), -EEXIST);
    assert_int_equal(bpe_add_token(bpe, 6, (const uint8_t *)"x", 1, 0), -EINVAL);
    assert_int_equal(bpe_add_merge(bpe, 0, 6, 0, 1), -EINVAL);
    assert_int_equal(bpe_add_merge(bpe, 0, 1, 5, 2), 0);
    opts.unk_id = 6;
    assert_int_equal(bpe_seal(bpe, &opts), -EINVAL);
    opts.unk_id = -1;
    assert_int_equal(bpe_seal(bpe, &opts), 0);
    assert_int_equal(bpe_find(bpe, (const uint8_t *)"ab", 2), 2);
    assert_int_equal(bpe_find(bpe, (const uint8_t *)"ba", 2), -ENOENT);
    assert_int_equal(bpe_token(bpe, 0, &p, &n, &flags), 0);
    assert_int_equal(flags, BPE_TOK_ADDED | BPE_TOK_VOCAB);
    assert_int_equal(bpe_token(bpe, 5, &p, &n, &flags), -ENOENT);
    assert_int_equal(bpe_token(bpe, 99, &p, &n, &flags), -ENOENT);
    /* No merge leads to "abab": it is found as a word and only as one. */
    assert_int_equal(run(w, bpe, "abab", 4, 9, got), 1);
    assert_int_equal(got[0], 3);
    assert_int_equal(run(w, bpe, "ababa", 5, 9, got), 3);
    assert_int_equal(run(w, bpe, "ababa", 5, 9, got), 3);
    assert_int_equal(got[2], 0);
    assert_int_equal(run(w, bpe, "", 0, 9, got), 0);
    bpe_work_free(w);
    bpe_free(bpe);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alphabet),
        cmocka_unit_test(random_words),
        cmocka_unit_test(long_word),
        cmocka_unit_test(unknown_bytes),
        cmocka_unit_test(table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
