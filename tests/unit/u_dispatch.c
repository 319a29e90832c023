/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Long items on their way to a worker: among short ones, with the loop asleep in between,
 * and when the worker dies. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "tests/unit/gate_fixture.h"

#define TEXT 3000000u

/* Sends a text of TEXT bytes as the request `tag`. Returns its items. */
static unsigned char *
send_text(struct fcl *c, uint64_t tag)
{
    struct fdp_item it = { .type = FDP_IT_PROMPT_TEXT, .len = TEXT };
    unsigned char *blob = calloc(1, FDP_ITEM_SPAN(TEXT));
    struct fdp_req q;

    assert_non_null(blob);
    memcpy(blob, &it, sizeof(it));
    for (uint32_t i = 0; i < TEXT; i++)
        blob[sizeof(it) + i] = (unsigned char)('a' + i / 1000 % 26);
    fcl_req(&q, FDP_OP_SUBMIT, tag);
    fcl_send(c, &q, blob, (uint32_t)FDP_ITEM_SPAN(TEXT), 0);
    return blob;
}

/* Long items leave half of the link free for new requests. */
static void
t_room(void **state)
{
    static const char *const sets[] = { "ipc.arena_bytes=8388608", NULL };
    unsigned char *blob;
    uint32_t n_got = 0;
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    blob = send_text(&c, 1);
    fix_step(&f, 0);
    assert_true(dsp_is_sending(&f.g->dsp));
    for (uint64_t tag = 2; tag <= FIX_CREDITS; tag++) {
        fcl_submit(&c, tag, 900, 4);
        fix_step(&f, 0);
        assert_int_equal(f.g->fair.n_queued, 0);
    }
    for (uint64_t tag = 2; tag <= FIX_CREDITS; tag++) {
        assert_true(fix_take(&f, NULL, NULL, &n_got) != 0);
        assert_int_equal(n_got, FDP_ITEM_SPAN(900 * 4));
    }
    fcl_close(&c);
    fix_step(&f, 0);
    fix_close(&f);
    free(blob);
}

/* An item that was half sent when the worker died is not lost: the next worker gets it
 * from the start. A request that the worker had completely ends. */
static void
t_death(void **state)
{
    static const char *const sets[] = { "ipc.arena_bytes=8388608", NULL };
    unsigned char *blob, *got = malloc(FDP_ITEM_SPAN(TEXT));
    uint32_t n_got = 0;
    uint64_t id;
    struct fix f;
    struct fcl c;
    struct frec r;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    blob = send_text(&c, 1);
    fix_step(&f, 0);
    fcl_submit(&c, 2, 1, 4);
    fix_step(&f, 0);
    assert_true(dsp_is_sending(&f.g->dsp));
    fix_die(&f, 9);
    assert_false(dsp_is_sending(&f.g->dsp));
    assert_int_equal(f.g->wrk[0].link.credits_used, 0);
    assert_int_equal(f.g->jnl.n_open, 1);
    assert_int_equal(f.g->fair.n_queued, 1);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT);
    fcl_want_error(&c, 2, FDP_E_GPU_RESET, 0);
    while (f.n_part != 0)
        free(f.part[--f.n_part].blob);
    fix_step(&f, 1000);
    assert_int_equal(f.n_spawn, 2);
    fix_ready(&f);
    id = fix_take(&f, NULL, got, &n_got);
    assert_true(id != 0 && n_got == FDP_ITEM_SPAN(TEXT));
    assert_memory_equal(got, blob, n_got);
    fix_wdone(&f, id);
    fix_step(&f, 0);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_EVENT);
    assert_true(fcl_recv(&c, &r) && r.h.type == FDP_T_DONE && r.h.tag == 1);
    fcl_close(&c);
    fix_close(&f);
    free(blob);
    free(got);
}

/* If many items are half sent when the worker dies, the next worker gets each
 * once, in order of arrival. */
static void
t_death_order(void **state)
{
    static const char *const sets[] = { "ipc.arena_bytes=8388608", NULL };
    struct lnk_submit sub;
    struct fix f;
    struct fcl c;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    for (uint64_t tag = 1; tag <= 5; tag++)
        free(send_text(&c, tag));
    fix_step(&f, 0);
    assert_int_equal(f.g->wrk[0].link.n_sending, 5);
    fix_die(&f, 9);
    assert_int_equal(f.g->fair.n_queued, 5);
    while (f.n_part != 0)
        free(f.part[--f.n_part].blob);
    fix_step(&f, 1000);
    fix_ready(&f);
    for (uint64_t tag = 1; tag <= 5; tag++) {
        uint64_t id = fix_take(&f, &sub, NULL, NULL);

        assert_int_equal(sub.req.tag, tag);
        fix_wdone(&f, id);
        fix_step(&f, 0);
    }
    assert_int_equal(f.g->jnl.n_open, 0);
    fcl_close(&c);
    fix_close(&f);
}

/* Reads the link until the items of a request are complete. Returns the ns it took. */
static uint64_t
read_items(struct fix *f, uint64_t t0)
{
    uint32_t n = 0;

    while (n < FDP_ITEM_SPAN(TEXT)) {
        const struct fdp_rec *r = fix_wpeek(f);

        assert_true(clk_now_ns() - t0 < 20 * CLK_S);
        if (r == NULL) {
            clk_sleep_ns(200 * CLK_US);
            continue;
        }
        n += r->type == LNK_T_BLOB ? r->len : 0;
        fix_wnext(f, r);
    }
    return clk_now_ns() - t0;
}

/* A worker does not ring the doorbell when it has made room, so the loop must
 * look again soon. Half of the ring is sent between two looks, so the text needs
 * a dozen; with sleeps of 100 ms that took a second. The gate is a forked
 * process, as in u_admission. */
static void
t_by_the_wall(void **state)
{
    static const char *const sets[] = { "ipc.arena_bytes=8388608",
        "daemon.worker_hang_ms=0", NULL };
    uint64_t best_ns = UINT64_MAX;
    struct fix f;
    struct fcl c;
    pid_t pid;

    (void)state;
    fix_open(&f, sets);
    fix_ready(&f);
    assert_int_equal(fcl_open(&f, &c, 1000, NULL), FDP_OK);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* if this test fails */
        _exit(gate_run(f.g));
    }
    /* The best of three counts, as other programs run here too. */
    for (uint64_t tag = 1; tag <= 3; tag++) {
        uint64_t t0 = clk_now_ns(), one = 1, ns;
        unsigned char *blob = send_text(&c, tag);

        assert_int_equal(write(c.bell, &one, sizeof(one)), sizeof(one));
        ns = read_items(&f, t0);
        best_ns = ns < best_ns ? ns : best_ns;
        free(blob);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    print_message("%.1f ms\n", (double)best_ns / 1e6);
    assert_true(best_ns < 500 * CLK_MS);
    fcl_close(&c);
    fix_close(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_room),
        cmocka_unit_test(t_death),
        cmocka_unit_test(t_death_order),
        cmocka_unit_test(t_by_the_wall),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
