/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* KV groups of a program: which layers share blocks. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/worker/model.h"

/* Layers of a model of max_pos tokens: one without a window behind every `each` - 1 with
 * one; each 0: none has a window. */
static struct mdl_program *
program(int32_t n_layer, int32_t each, int32_t window, int32_t max_pos)
{
    static struct mdl_config c;
    struct mdl_program *p = NULL;
    char json[512], err[256] = "";

    (void)snprintf(json, sizeof(json),
        "{\"model_type\":\"llama\",\"num_hidden_layers\":%d,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"hidden_size\":64,\"intermediate_size\":96,"
        "\"vocab_size\":256,\"max_position_embeddings\":%d}",
        n_layer, max_pos);
    assert_int_equal(mdl_config_parse(json, strlen(json), NULL, 0, &c, err, sizeof(err)), 0);
    c.window = window;
    for (int32_t i = 0; i < n_layer; i++)
        c.windowed[i] = each > 0 && (i + 1) % each != 0;
    if (mdl_build(&c, 1, &p, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    return p;
}

/* Every layer is in one group, at a place of its own, with layers of its window. */
static void
check(const struct mdl_program *p)
{
    int32_t seen[FDK_MAX_KV_GROUPS] = { 0 };

    for (int32_t l = 0; l < p->cfg.n_layer; l++) {
        const struct mdl_kv_at *at = &p->kv_at[l];

        assert_in_range(at->group, 0, p->n_kv_group - 1);
        assert_int_equal(at->layer, seen[at->group]++);
        assert_int_equal(p->kv_group[at->group].window,
            p->cfg.windowed[l] ? p->cfg.window : 0);
    }
    for (int32_t g = 0; g < p->n_kv_group; g++) {
        assert_int_equal(seen[g], p->kv_group[g].n_layer);
        assert_int_equal(p->kv_group[g].n_kv_head, 2);
        assert_int_equal(p->kv_group[g].head_dim, 16);
    }
}

static void
alike_layers_are_one_group(void **state)
{
    static const int32_t each[] = { 0, 100 };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct mdl_program *p = program(31, each[i], 128, 4096);

        check(p);
        assert_int_equal(p->n_kv_group, 1);
        assert_int_equal(p->kv_group[0].n_layer, 31);
        p = mdl_free(p);
    }
}

/* The layers without a window fill a block, those with one as many such blocks as needed. */
static void
groups_fill_equal_blocks(void **state)
{
    static const struct {
        int32_t n_layer, each, window, max_pos;
        int32_t n_group, full; /* groups, layers of one without a window */
    } z[] = {
        { 48, 6, 1024, 131072, 6, 8 },
        { 62, 6, 1024, 131072, 7, 10 },
        { 34, 6, 1024, 131072, 7, 5 },
        { 26, 6, 512, 32768, 7, 4 },
        { 24, 2, 128, 131072, 2, 12 },
        { 42, 2, 4096, 8192, 2, 21 },
        /* blocks of the one layer would be 40 tables */
        { 40, 40, 1024, 131072, 8, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(z) / sizeof(z[0]); i++) {
        struct mdl_program *p = program(z[i].n_layer, z[i].each, z[i].window, z[i].max_pos);

        check(p);
        assert_int_equal(p->n_kv_group, z[i].n_group);
        for (int32_t g = 0; g < p->n_kv_group; g++)
            if (p->kv_group[g].window == 0)
                assert_int_equal(p->kv_group[g].n_layer, z[i].full);
        p = mdl_free(p);
    }
}

static void
layers_are_named(void **state)
{
    struct mdl_program *p = program(12, 4, 64, 4096);
    char text[64], cut[6];

    (void)state;
    assert_int_equal(p->n_kv_group, 4);
    mdl_kv_layers(p, p->kv_at[3].group, text, sizeof(text));
    assert_string_equal(text, "3 7 11");
    mdl_kv_layers(p, p->kv_at[0].group, text, sizeof(text));
    assert_string_equal(text, "0-2");
    mdl_kv_layers(p, p->kv_at[3].group, cut, sizeof(cut));
    assert_string_equal(cut, "3 7 1");
    p = mdl_free(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_layers_are_one_group),
        cmocka_unit_test(groups_fill_equal_blocks),
        cmocka_unit_test(layers_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
