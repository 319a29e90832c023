/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/confine.h"
#include "tests/unit/weights_fixture.h"

#ifdef FDD_SANITIZED
#define LOADS 16
#else
#define LOADS 40
#endif

/*
 * Loads by several threads, in the background, and scales that are written more
 * often than the checkpoint has them.
 */

/* The reads of a few places fail, in whatever order threads come by. */
static int64_t
fail_late(void *arg, uint64_t off, size_t n, int64_t res)
{
    const struct wts_tensor *const *t = arg;

    (void)n;
    for (int i = 0; i < 3; i++)
        if (off >= t[i]->off && off < t[i]->off + t[i]->bytes) {
            usleep(i == 0 ? 2000 : 0);
            return i == 0 ? 0 : -EACCES;
        }
    return res;
}

static void
first_error_of_all(void **state)
{
    const struct wts_tensor *t[3];
    struct wts_plan *wp;

    (void)state;
    model("false", "float32", "F32");
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    t[0] = wts_find(wp, "model.layers.0.self_attn.o_proj.weight");
    t[1] = wts_find(wp, "model.layers.0.mlp.gate_proj.weight");
    t[2] = wts_find(wp, "model.layers.1.mlp.up_proj.weight");
    assert_true(t[0]->off < t[1]->off && t[1]->off < t[2]->off);
    wp->st->fault = fail_late;
    wp->st->fault_arg = t;
    n_reader = 16;
    for (int how = 0; how < LOADS; how++) {
        background = how & 1;
        use_device(how >> 1 & 1);
        free(load(wp, how >> 2 & 1, 1, -EINVAL, "W_TRUNC: "));
    }
    n_reader = background = 0;
    use_device(0);
    wts_plan_free(wp);
}

/* Signals interrupt reads, again and again: the load goes on. */
static int64_t
interrupt_some(void *arg, uint64_t off, size_t n, int64_t res)
{
    uint32_t *count = arg;

    (void)off;
    (void)n;
    return __atomic_add_fetch(count, 1, __ATOMIC_RELAXED) % 3 != 0 ? -EINTR : res;
}

static void
interrupted_reads(void **state)
{
    struct wts_plan *wp;
    uint32_t n_read = 0;
    char *want;

    (void)state;
    model("false", "float32", "F32");
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    want = load(wp, 0, 1 << 20, 0, "");
    wp->st->fault = interrupt_some;
    wp->st->fault_arg = &n_read;
    for (int how = 0; how < 8; how++) {
        char *got;

        n_reader = how & 1 ? 4 : 0;
        background = how >> 1 & 1;
        n_read = 0;
        got = load(wp, how >> 2 & 1, 1, 0, "");
        assert_true(n_read >= 3);
        assert_memory_equal(got, want, (size_t)wts_bytes(wp));
        free(got);
    }
    n_reader = background = 0;
    free(want);
    wts_plan_free(wp);
}

/* Rings made before, fewer than readers; the others read by pread. */
static void
rings_made_before(void **state)
{
    struct wts_plan *wp;
    char *want, *got;

    (void)state;
    ring = cfn_rings_new(2, WTS_RING_ENTRIES, &n_ring);
    if (ring == NULL)
        skip();
    model("false", "float32", "F32");
    write_tensors(SINGLE, 0, 1);
    wp = plan(0);
    want = load(wp, 0, 1 << 20, 0, "");
    assert_string_equal(wts_how(wp), "pread");
    n_reader = 4;
    for (int i = 0; i < 2; i++) {
        got = load(wp, 1, 1, 0, "");
        assert_string_equal(wts_how(wp), "io_uring");
        assert_memory_equal(got, want, (size_t)wts_bytes(wp));
        free(got);
    }
    n_reader = 0;
    free(want);
    wts_plan_free(wp);
    ring = cfn_rings_free(ring, n_ring);
    n_ring = 0;
}

/* A load that is given up leaves nothing running. */
static void
given_up(void **state)
{
    struct wts_load_args la = { 1, 1, NULL, NULL, 1, NULL, 0 };
    struct wts_plan *wp;
    char err[1024];
    void *arena;

    (void)state;
    model("false", "float32", "F32");
    write_tensors(SINGLE, 0, 1);
    for (int i = 0; i < 20; i++) {
        wp = plan(0);
        assert_int_equal(k->mem_alloc(ctx, td_dev(), wts_bytes(wp), &arena), 0);
        assert_int_equal(wts_load(wp, k, ctx, &(struct wts_at){ td_dev(), arena }, 1, &la,
                             err, sizeof(err)),
            0);
        if (i % 2 == 0)
            usleep((unsigned)i * 20);
        wts_load_stop(wp);
        assert_int_equal(wts_load_wait(wp, err, sizeof(err)), 0);
        k->mem_free(ctx, td_dev(), arena);
        wts_plan_free(wp);
    }
}

/* ---- scales that hold for several rows ---- */

static void
repeated_rows(void **state)
{
    static const char *const dtype[] = { "F32", "F16", "BF16" };
    static const struct {
        int32_t rows, cols, rep, of;
    } shape[] = { { 4, 3, 128, 500 }, { 4, 3, 128, 512 }, { 1, 1, 300, 300 },
        { 7, 1, 1, 7 }, { 2, 600, 9, 10 } };

    (void)state;
    model("false", "float32", "F32");
    for (size_t i = 0; i < 60 * sizeof(shape) / sizeof(shape[0]); i++) {
        int32_t rows = shape[i / 60].rows, cols = shape[i / 60].cols;
        int32_t rep = shape[i / 60].rep, n = shape[i / 60].of;
        int32_t t = (int32_t)(i % 3);
        struct spec *s = spec_of("model.norm.weight");
        struct wts_plan *wp;
        struct wts_piece *pc = NULL;
        char *arena;

        s->dtype = "F32";
        s->rows = 64;
        s->cols = 0;
        write_tensors(SINGLE, 0, 1);
        wp = plan(0);
        /* as many numbers as the tensor has bytes for; behind all others */
        for (int32_t j = 0; j < wp->n_piece; j++)
            if (strcmp(wp->piece[j].tensor, s->name) == 0)
                pc = &wp->piece[j];
        assert_non_null(pc);
        pc->src = (enum fdk_dtype)t;
        pc->rep = rep;
        pc->rep_cols = cols;
        pc->rep_rows = n;
        pc->n_elt = (uint64_t)(rows * cols);
        pc->off = wts_find(wp, "lm_head.weight")->off;
        pc->what = FDK_PACK_SCALES;
        pc->cols = 0;
        wp->place[pc->place].off = wp->bytes;
        wp->place[pc->place].w = (struct fdk_weight){ .format = FDK_F8E4M3,
            .rows = n,
            .cols = 32 * cols,
            .group = 32 };
        wp->place[pc->place].cut[0] = (struct wts_cut){ n, n, 1 };
        wp->bytes += (uint64_t)(n * cols) * 4;
        use_device(i / 3 % 2 != 0);
        n_reader = i / 6 % 2 != 0 ? 4 : 0;
        arena = load(wp, i / 12 % 2 != 0, i / 24 % 2 != 0 ? 1 : 1 << 20, 0, "");
        for (int32_t r = 0; r < n; r++)
            for (int32_t c = 0; c < cols; c++) {
                float got, want = 0;
                size_t at = (size_t)(r / rep * cols + c);
                char raw[4];
                const struct wts_tensor *head = wts_find(wp, "lm_head.weight");
                FILE *f = fopen(wp->file[0].path, "r");

                assert_true(f != NULL &&
                    fseek(f, (long)(head->off + at * width(dtype[t])), SEEK_SET) == 0);
                assert_int_equal(fread(raw, width(dtype[t]), 1, f), 1);
                fclose(f);
                memcpy(&got,
                    arena + wp->place[pc->place].off + 4 * (size_t)(r * cols + c), 4);
                if (t == 0)
                    memcpy(&want, raw, 4);
                else
                    fdk_to_f32(&want, raw, (enum fdk_dtype)t, 1);
                assert_memory_equal(&got, &want, 4);
            }
        free(arena);
        wts_plan_free(wp);
    }
    n_reader = 0;
    use_device(0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_of_all),
        cmocka_unit_test(interrupted_reads),
        cmocka_unit_test(rings_made_before),
        cmocka_unit_test(given_up),
        cmocka_unit_test(repeated_rows),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
