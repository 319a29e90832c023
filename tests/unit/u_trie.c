/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The trie of the Unigram and WordPiece models, against a search of all entries. */
#include "config.h"

#include "daemon/worker/tokenizer_trie.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONGEST 12u

/* Entry i: random bytes below `bytes`, in store; some are the same, some empty. */
static void
draw(struct tri_entry *e, size_t n, uint8_t (*store)[LONGEST], unsigned bytes, uint64_t seed)
{
    size_t i, k;

    for (i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        e[i] = (struct tri_entry){ store[i], (uint32_t)(seed >> 40) % (LONGEST + 1),
            (int32_t)i };
        for (k = 0; k < e[i].n; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            store[i][k] = (uint8_t)((seed >> 33) % bytes);
        }
    }
}

/* The last entry of these bytes, -1: none. */
static int32_t
search(const struct tri_entry *e, size_t n, const uint8_t *s, size_t len)
{
    while (n--)
        if (e[n].n == len && memcmp(e[n].s, s, len) == 0)
            return e[n].value;
    return -1;
}

static int32_t
find(const struct tri *t, const uint8_t *s, size_t n)
{
    uint32_t node = TRI_ROOT;
    size_t i;

    for (i = 0; i < n; i++) {
        node = tri_step(t, node, s[i]);
        if (!node)
            return -1;
        assert_true(node < t->n);
    }
    return n ? tri_value(t, node) : -1;
}

static void
check(size_t n, unsigned bytes, uint64_t seed)
{
    struct tri_entry *e = calloc(n, sizeof(*e)), *moved = calloc(n, sizeof(*e));
    uint8_t(*store)[LONGEST] = calloc(2 * n, sizeof(*store));
    struct tri t;
    size_t i, len;

    assert_non_null(e);
    assert_non_null(moved);
    assert_non_null(store);
    draw(e, n, store, bytes, seed);
    memcpy(moved, e, n * sizeof(*e));
    assert_int_equal(tri_build(&t, moved, n), 0);
    draw(moved, n, store + n, bytes, ~seed);
    for (i = 0; i < n; i++) {
        for (len = 0; len <= e[i].n; len++)
            assert_int_equal(find(&t, e[i].s, len), len ? search(e, n, e[i].s, len) : -1);
        for (len = 1; len <= moved[i].n; len++)
            assert_int_equal(find(&t, moved[i].s, len), search(e, n, moved[i].s, len));
    }
    tri_fini(&t);
    free(e);
    free(moved);
    free(store);
}

static void
random_entries(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        check(300, 2, seed);
        check(300, 5, seed);
        check(600, 256, seed);
    }
}

/* Every byte behind every byte, and one of many bytes. */
static void
full(void **state)
{
    static uint8_t store[65536][2], line[4096];
    struct tri_entry *e = calloc(65537, sizeof(*e));
    struct tri t;
    unsigned i;

    (void)state;
    assert_non_null(e);
    for (i = 0; i < 65536; i++) {
        store[i][0] = (uint8_t)(i >> 8);
        store[i][1] = (uint8_t)i;
        e[i] = (struct tri_entry){ store[i], 2, (int32_t)i };
    }
    memset(line, 'x', sizeof(line));
    e[i] = (struct tri_entry){ line, sizeof(line), (int32_t)i };
    assert_int_equal(tri_build(&t, e, 65537), 0);
    for (i = 0; i < 65536; i++)
        assert_int_equal(find(&t, store[i], 2), (int)i);
    assert_int_equal(find(&t, line, sizeof(line)), 65536);
    assert_int_equal(find(&t, line, sizeof(line) - 1), -1);
    tri_fini(&t);
    free(e);
}

static void
none(void **state)
{
    struct tri_entry e = { (const uint8_t *)"", 0, 7 };
    struct tri t;

    (void)state;
    assert_int_equal(tri_build(&t, &e, 1), 0);
    assert_int_equal(tri_value(&t, TRI_ROOT), -1);
    for (unsigned i = 0; i < 256; i++)
        assert_int_equal(tri_step(&t, TRI_ROOT, (uint8_t)i), 0);
    tri_fini(&t);
}

/* Few cells for a node: the array of a large vocabulary stays in the cache. */
static void
dense(void **state)
{
    size_t n = 40000, i, nodes = 1;
    struct tri_entry *e = calloc(n, sizeof(*e));
    char(*store)[8] = calloc(n, sizeof(*store));
    struct tri t;

    (void)state;
    assert_non_null(e);
    assert_non_null(store);
    for (i = 0; i < n; i++) {
        snprintf(store[i], sizeof(store[i]), "%05zx", i * 26 + i % 26);
        e[i] = (struct tri_entry){ (const uint8_t *)store[i], 5, (int32_t)i };
    }
    assert_int_equal(tri_build(&t, e, n), 0);
    for (i = 1; i < t.n; i++)
        nodes += t.cell[i].from != 0;
    assert_true(nodes > n);
    assert_true(t.n < nodes + nodes / 4);
    tri_fini(&t);
    free(e);
    free(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_entries),
        cmocka_unit_test(full), cmocka_unit_test(none), cmocka_unit_test(dense) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
