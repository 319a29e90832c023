/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The request pool and its hash; sequences of a request. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/worker/req.h"

static void
pool_is_exhausted_and_recovers(void **state)
{
    struct req_pool rp;
    struct req *r[4];

    (void)state;
    assert_int_equal(req_pool_init(&rp, 4), 0);
    for (uint64_t i = 0; i < 4; i++) {
        r[i] = req_get(&rp, 100 + i);
        assert_non_null(r[i]);
        r[i]->where = REQ_IN_ENGINE;
    }
    assert_null(req_get(&rp, 200));
    assert_ptr_equal(req_find(&rp, 102), r[2]);
    assert_null(req_find(&rp, 200));
    req_put(&rp, r[2]);
    assert_null(req_find(&rp, 102));
    r[0] = req_get(&rp, 200);
    assert_ptr_equal(r[0], r[2]);
    /* a stale {idx, serial} of the old owner is recognised */
    assert_int_equal(r[0]->serial, 2);
    req_pool_fini(&rp);
}

static void
hash_survives_random_use(void **state)
{
    struct req_pool rp;
    struct req *held[64];
    uint64_t id[64], next = 0;
    uint32_t n = 0;
    unsigned seed = 5;

    (void)state;
    assert_int_equal(req_pool_init(&rp, 64), 0);
    for (int i = 0; i < 20000; i++) {
        if (n < 64 && rand_r(&seed) % 2 == 0) {
            /* ids that collide: few distinct high bits */
            id[n] = ++next << (rand_r(&seed) % 3 * 20);
            if (req_find(&rp, id[n]) != NULL)
                continue;
            held[n] = req_get(&rp, id[n]);
            assert_non_null(held[n]);
            held[n++]->where = REQ_IN_BLOB;
        } else if (n > 0) {
            uint32_t k = (uint32_t)rand_r(&seed) % n;

            req_put(&rp, held[k]);
            assert_null(req_find(&rp, id[k]));
            held[k] = held[--n];
            id[k] = id[n];
        }
        for (uint32_t k = 0; k < n; k++)
            assert_ptr_equal(req_find(&rp, id[k]), held[k]);
        assert_int_equal(rp.n_free + n, 64);
    }
    req_pool_fini(&rp);
}

static void
sequences(void **state)
{
    struct req_pool rp;
    struct req *r;

    (void)state;
    assert_int_equal(req_pool_init(&rp, 1), 0);
    r = req_get(&rp, 9);
    r->where = REQ_IN_TEXT;
    r->n_prompt = 3;
    r->n_ids = 5;
    r->max_len = 9;
    r->n_seq = 3;
    r->p.flags = FDP_F_TEXT;
    r->p.set |= FDP_S_PROMPT_LOGPROBS;
    r->ids = mem_array(5, 4);
    for (uint32_t i = 0; i < 5; i++)
        r->ids[i] = 10 + i;
    assert_int_equal(req_make_seqs(r), 0);
    req_check(r);
    for (int i = 0; i < 3; i++) {
        struct seq *s = &r->seqs[i];

        assert_int_equal(s->n_tok, 5);
        assert_int_equal(req_token(s, 4), 14);
        assert_true(req_is_prefill(s));
        assert_int_equal(req_wants_scores(s), i == 0);
        /* the last entry of one must not be the first of the next */
        for (int k = 0; k < 4; k++)
            s->out[k] = (uint32_t)(100 * i + k);
        memset(r->choices[i].text, 'a' + i, REQ_TEXT_BYTES);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->seqs[i].out[0], 100 * i);
        assert_int_equal(r->seqs[i].out[3], 100 * i + 3);
        assert_int_equal(r->choices[i].text[0], 'a' + i);
        r->seqs[i].n_tok = r->seqs[i].device_len = 6;
        assert_int_equal(req_token(&r->seqs[i], 5), 100 * i);
    }
    req_put(&rp, r);
    req_pool_fini(&rp);
}

/* The hashes of the prompt belong to the request, those of
 * later blocks to the sequence. */
static void
hashes_of_blocks(void **state)
{
    static const uint8_t salt[16] = { 9 };
    const struct pfx_key key = { 3, 4 };
    struct req_pool rp;
    struct kv_hash want[5], h;
    uint32_t ids[23];
    struct req *r;

    (void)state;
    assert_int_equal(req_pool_init(&rp, 1), 0);
    r = req_get(&rp, 9);
    r->where = REQ_IN_HASH;
    r->n_prompt = 20;
    r->n_ids = 23;
    r->max_len = 41;
    r->n_seq = 2;
    r->block_size = 4;
    r->ids = mem_array(23, 4);
    for (uint32_t i = 0; i < 23; i++)
        ids[i] = r->ids[i] = 10 + i;
    pfx_root(&key, 7, salt, 0, &r->hash_root);
    assert_int_equal(req_make_seqs(r), 0);
    assert_int_equal(r->n_hash, 5);
    h = r->hash_root;
    for (int32_t i = 0; i < 5; i++) {
        pfx_next(&key, &h, ids + (size_t)i * 4, 4, &h);
        want[i] = h;
    }
    /* in slices */
    assert_false(req_hash_step(r, &key, 0));
    assert_false(req_hash_step(r, &key, 1));
    assert_false(req_hash_step(r, &key, 3));
    assert_int_equal(r->n_hashed, 4);
    assert_true(req_hash_step(r, &key, 100));
    assert_memory_equal(r->hash, want, sizeof(want));
    req_check(r);
    /* the longest output fills ten blocks: five for each sequence */
    for (int i = 0; i < 2; i++) {
        struct seq *s = &r->seqs[i];

        assert_int_equal(s->n_hash, 5);
        assert_int_equal(s->penalty, -1);
        for (uint32_t k = 0; k < 5; k++)
            s->hash[k] = (struct kv_hash){ 100u * (uint32_t)i + k, 1 };
        s->out[0] = 70;
        s->n_tok = s->device_len = 41;
        s->n_hash = 10;
    }
    for (int i = 0; i < 2; i++) {
        const struct seq *s = &r->seqs[i];

        assert_memory_equal(req_block_hash(s, 4), &want[4], sizeof(h));
        assert_int_equal(req_block_hash(s, 5)->a, 100 * i);
        assert_int_equal(req_block_hash(s, 9)->a, 100 * i + 4);
        assert_int_equal(s->out[0], 70);
    }
    req_check(r);
    req_put(&rp, r);
    /* the next owner of the entry has none */
    r = req_get(&rp, 10);
    assert_int_equal(r->block_size + r->n_hash + r->n_hashed, 0);
    req_pool_fini(&rp);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_is_exhausted_and_recovers),
        cmocka_unit_test(hash_survives_random_use),
        cmocka_unit_test(sequences),
        cmocka_unit_test(hashes_of_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
