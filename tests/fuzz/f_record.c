/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile records, cursors and blobs through the intake, in one gate with a
 * fake worker.
 *
 * Input: byte 0 selects the target; the rest is a program:
 *   0  itk_check_items() and chk_model() on the rest as a blob
 *   1  commands against a session's shared memory: each is an opcode byte
 *      and its arguments (see one_command())
 * After each input all structures must be consistent and no request left; an honest client
 * at the same time gets its own answer and nothing else.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/log.h"
#include "daemon/common/obj.h"
#include "daemon/gate/check.h"
#include "daemon/gate/intake.h"
#include "tests/fuzz/take.h"
#include "tests/unit/gate_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define HONEST_UID 2000
#define HONEST_TAG 77 /* the hostile client may use any tag, also this one */

static uint32_t seen[FDP_IT__N]; /* items that were accepted, or sent where not offered */

int
fuzz_missing(void)
{
    int n = 0;

    for (unsigned i = 1; i < FDP_IT__N; i++) {
        if (seen[i] != 0 || i == 10) /* not used after version 2 */
            continue;
        fprintf(stderr, "f_record: no item of type %u was taken\n", i);
        n++;
    }
    return n;
}

/* how: bit 2 sets logprobs, bits 4 to 7 are n_prior. */
static void
fuzz_blob(uint32_t how, const uint8_t *data, size_t n)
{
    struct chk_limits lim = { FIX_VOCAB, FIX_MAX_LEN, 20, 0, 0, 1 };
    unsigned char *copy = malloc(n != 0 ? n : 1);
    struct chk_scan scan;
    struct chk_err e;
    struct fdp_req q;

    ASSERT(copy != NULL);
    memcpy(copy, data, n); /* exact size, so that ASan detects a read one byte too far */
    for (unsigned op = 1; op < FDP_OP__N; op++) {
        fcl_req(&q, op, 1);
        if (op == FDP_OP_CANCEL)
            continue;
        q.len = (uint32_t)n;
        q.n_prior = how >> 4;
        q.set |= (how & 4) != 0 ? FDP_S_LOGPROBS : 0;
        memset(&scan, 0, sizeof(scan));
        if (chk_scan(&scan, &q, copy, (uint32_t)n / 2, &e) == 0 &&
            chk_scan(&scan, &q, copy, (uint32_t)n, &e) == 0) {
            for (unsigned i = 0; i < FDP_IT__N; i++)
                seen[i] += scan.n[i];
            (void)chk_model(&q, &scan.items, &lim, &e);
        }
    }
    free(copy);
}

static void
put_request(struct fcl *c, struct in *in)
{
    unsigned char *slot = fdr_prod_slot(&c->sq, c->sq.tail);
    struct fdp_req q;
    uint32_t mode = take(in, 1);

    fcl_req(&q, mode % 8, 1 + mode / 64);
    q.flags = take(in, 2);
    q.off = take(in, 2) * 8u;
    q.len = take(in, 2) * 8u;
    q.max_new = take(in, 1);
    if (mode & 8) {
        /* random bytes at any place of the record */
        uint32_t at = take(in, 1) % sizeof(q);

        for (uint32_t k = take(in, 1) % 16; k > 0 && at < sizeof(q); k--, at++)
            ((unsigned char *)&q)[at] = (unsigned char)take(in, 1);
    }
    memcpy(slot, &q, sizeof(q));
    c->sq.tail++;
    fdr_store_release(c->sq.p_tail, c->sq.tail);
}

/* Sends a request of items with valid headers and any content. */
static void
put_items(struct fcl *c, struct in *in)
{
    unsigned char *blob = c->c2d + c->w.arena_off, payload[256];
    struct fdp_req q;
    uint32_t at = 0, n, len;

    fcl_req(&q, take(in, 1) % 2 ? FDP_OP_SUBMIT : 1 + take(in, 1) % (FDP_OP__N - 1),
        1 + take(in, 1));
    q.flags = take(in, 2) & FDP_F__ALL;
    q.set = take(in, 2) & FDP_S__ALL;
    for (n = 1 + take(in, 1) % 4; n > 0; n--) {
        uint32_t type = take(in, 1) % (FDP_IT__N + 1), version = take(in, 1);

        len = take(in, 1);
        for (uint32_t i = 0; i < len; i++)
            payload[i] = (unsigned char)take(in, 1);
        fcl_item(blob, at, type, payload, len);
        if (type == FDP_IT_GRAMMAR || type == FDP_IT_ADAPTER || type == FDP_IT_IMAGE)
            seen[type]++;
        blob[at + 2] = version < 250 ? 0 : (unsigned char)version;
        at += (uint32_t)FDP_ITEM_SPAN(len);
    }
    q.len = at;
    memcpy(fdr_prod_slot(&c->sq, c->sq.tail), &q, sizeof(q));
    c->sq.tail++;
    fdr_store_release(c->sq.p_tail, c->sq.tail);
}

static void
worker_turn(struct fix *f, struct in *in)
{
    static const struct {
        struct fdp_tokens t;
        uint32_t id;
        char text[4];
    } tokens = { { 11, 1, 4 }, 7, "more" };
    static const struct {
        struct fdp_special s;
        char name[4];
    } special = { { 7, 4 }, "name" };
    struct lnk_submit sub;
    uint64_t id;
    int code;

    for (;;) {
        if ((id = fix_take(f, &sub, NULL, NULL)) != 0) {
            if (in != NULL && sub.user != HONEST_UID && take(in, 1) % 3 == 0)
                continue; /* no answer: the request stays open until it is cancelled */
            fix_wsend(f, id, FDP_T_TEXT, "some output", 11);
            fix_wsend(f, id, FDP_T_TOKENS, &tokens, sizeof(tokens));
            if (sub.req.op == FDP_OP_FILE)
                fix_wsend(f, id, FDP_T_BYTES, "{}", 2);
            if ((sub.req.flags & FDP_F_ALONE) != 0)
                fix_wsend(f, id, FDP_T_SPECIAL, &special, sizeof(special));
            if ((sub.req.flags & FDP_F_TOKEN_TEXT) != 0)
                fix_wsend(f, id, FDP_T_TOKEN_TEXT, "\1\0\1\0a", 5);
            if ((sub.req.flags & FDP_F_PROMPT_TEXT) != 0)
                fix_wsend(f, id, FDP_T_PROMPT_TEXT, "a prompt", 8);
            fix_wdone(f, id);
        } else if ((id = fix_take_cancel(f, &code)) != 0) {
            fix_werror(f, id, code);
        } else if (fix_wpeek(f) != NULL) {
            fix_wnext(f, fix_wpeek(f));
        } else {
            return;
        }
    }
}

static void
one_command(struct fix *f, struct fcl *c, struct in *in)
{
    uint32_t at, k;

    switch (take(in, 1) % 10) {
    case 0: /* bytes into the arena */
        at = take(in, 2) * 8u;
        for (k = take(in, 1); k > 0 && at < c->w.arena_bytes; k--, at++)
            c->c2d[c->w.arena_off + at] = (unsigned char)take(in, 1);
        break;
    case 1: /* any field of the control block */
        at = take(in, 1) % (FDP_C2D_SLOTS / 4);
        ((uint32_t *)(void *)c->c2d)[at] = take(in, 4);
        break;
    case 2: /* tail moves a little */
        c->sq.tail += (uint32_t)(int32_t)(int8_t)take(in, 1);
        fdr_store_release(c->sq.p_tail, c->sq.tail);
        break;
    case 3: /* head, too */
        fdr_store_release((uint32_t *)(void *)(c->c2d + FDP_C2D_CQ_HEAD), take(in, 2));
        break;
    case 4:
        fix_step(f, take(in, 1));
        break;
    case 5:
        worker_turn(f, in);
        break;
    case 6: /* reads all records, as an honest client does */
        fdr_store_release((uint32_t *)(void *)(c->c2d + FDP_C2D_CQ_HEAD),
            fdr_load_acquire((const uint32_t *)(const void *)(c->d2c)));
        break;
    case 7:
        put_items(c, in);
        break;
    default:
        put_request(c, in);
        break;
    }
}

/* An honest client at the same time gets its complete answer and nothing else. */
static void
want_own_answer(struct fcl *h)
{
    struct frec r;
    int ended = 0;

    while (fcl_recv(h, &r)) {
        if (r.h.tag == 0 && r.h.type == FDP_T_EVENT)
            continue;
        ASSERT(r.h.tag == HONEST_TAG && !ended);
        ended = r.h.type == FDP_T_DONE || r.h.type == FDP_T_ERROR;
        ASSERT(r.h.type != FDP_T_TEXT || memcmp(r.data, "some output", r.h.len) == 0);
    }
    ASSERT(ended && fcl_state(h) == FDP_ST_RUN);
}

static void
fuzz_session(struct in *in)
{
    static const char *const sets[] = { "ipc.connects_per_second=1000000",
        "ipc.arena_bytes=65536", "ipc.cq_slots=128", "ipc.sq_slots=16",
        "sched.max_concurrency=64", NULL };
    static struct fix f;
    static int open;
    struct fcl c, h;

    if (!open) {
        fix_open(&f, sets);
        (void)log_set_level("error");
        fix_ready(&f);
        open = 1;
    }
    ASSERT(fcl_open(&f, &c, 1000, NULL) == FDP_OK);
    ASSERT(fcl_open(&f, &h, HONEST_UID, NULL) == FDP_OK);
    fcl_submit(&h, HONEST_TAG, 3, 5);
    while (in->n > 0)
        one_command(&f, &c, in);
    fix_step(&f, 0);
    fcl_close(&c);
    for (int i = 0; i < 200 && (f.g->jnl.n_open != 0 || f.g->ses.n != 1); i++) {
        fix_step(&f, 2);
        worker_turn(&f, NULL);
    }
    want_own_answer(&h);
    fcl_close(&h);
    for (int i = 0; i < 200 && f.g->ses.n != 0; i++)
        fix_step(&f, 2);
    ASSERT(f.g->jnl.n_open == 0 && f.g->ses.n == 0);
    ASSERT(f.g->env.cnt->held_bytes == 0 && f.g->wrk[0].link.credits_used == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct in in = { data, n };

    if (n < 2 || n > 65536)
        return 0;
    (void)take(&in, 1);
    if (data[0] % 4 == 0)
        fuzz_blob(data[0], in.p, in.n);
    else
        fuzz_session(&in);
    return 0;
}
