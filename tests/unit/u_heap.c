/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The heap of users' turns against a list that is searched. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/gate/heap.h"

#define N     400
#define STEPS 200000

static uint64_t rng = 1;

static uint32_t
draw(uint32_t n)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(rng >> 33) % n;
}

/* Of those that are in, by a search; -1: none. */
static int
least(const struct heap_node *v, const uint8_t *is_in)
{
    int best = -1;

    for (int i = 0; i < N; i++) {
        if (is_in[i] &&
            (best < 0 || v[i].key < v[best].key ||
                (v[i].key == v[best].key && v[i].seq < v[best].seq)))
            best = i;
    }
    return best;
}

static void
t_random(void **state)
{
    static struct heap_node v[N];
    static uint8_t is_in[N];
    struct heap h = { NULL };
    uint64_t seq = 0;

    (void)state;
    for (int step = 0; step < STEPS; step++) {
        uint32_t i = draw(N);
        int best = least(v, is_in);

        assert_ptr_equal(h.first, best < 0 ? NULL : &v[best]);
        if (is_in[i] || (best >= 0 && draw(3) == 0)) {
            i = is_in[i] ? i : (uint32_t)best; /* any, or the first */
            heap_remove(&h, &v[i]);
            is_in[i] = 0;
        } else {
            v[i].key = (int64_t)draw(50) - 25; /* many are alike */
            v[i].seq = ++seq;
            heap_add(&h, &v[i]);
            is_in[i] = 1;
        }
    }
    for (int best; (best = least(v, is_in)) >= 0; is_in[best] = 0) {
        assert_ptr_equal(h.first, &v[best]);
        heap_remove(&h, &v[best]);
    }
    assert_null(h.first);
}

/* The first is removed and put behind all others again, as turns are. */
static void
t_order(void **state)
{
    static struct heap_node v[N];
    struct heap h = { NULL };
    int64_t before = INT64_MIN;

    (void)state;
    memset(v, 0, sizeof(v));
    for (uint32_t i = 0; i < N; i++) {
        v[i].key = (int64_t)i * 7919 % N;
        heap_add(&h, &v[i]);
    }
    for (int step = 0; step < 20 * N; step++) {
        struct heap_node *n = h.first;

        assert_true(n->key >= before);
        before = n->key;
        heap_remove(&h, n);
        n->key += N; /* behind all others */
        heap_add(&h, n);
    }
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_random),
        cmocka_unit_test(t_order),
    };

    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
