/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Attacks with requests: too many, too large, never read, expensive to refuse. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sys/hostile/attack.h"

#define RQ_SESSIONS 64
#define RQ_BLOBS    16
#define RQ_BIG      4
#define RQ_ARENA    (64u << 20) /* more than any daemon gives */
#define RQ_OPEN     8           /* refused requests at a time in each session */
#define RQ_PAUSE_US 500
#define RQ_LONG     1000 /* output tokens: nearly the demo model's length */

static struct raw ses[RQ_SESSIONS];
static uint32_t n_open[RQ_SESSIONS], req_len[RQ_SESSIONS];

/* All completion rings full, and requests for more. */
void
atk_noread(struct attack *a)
{
    int n = atk_sessions(a, ses, RQ_SESSIONS, NULL);
    uint64_t tag = 0;

    while (atk_left(a)) {
        for (int i = 0; i < n; i++) {
            struct fdp_req q;

            if (raw_room(&ses[i]) == 0)
                continue;
            q = raw_generate(&ses[i], ++tag, ses[i].tail % 64, 200);
            q.flags |= FDP_F_TEXT;
            q.set |= FDP_S_LOGPROBS;
            q.logprobs = FDP_MAX_LOGPROBS;
            q.n = 4;
            raw_put(&ses[i], &q);
            raw_publish(&ses[i]);
            a->n_op++;
        }
        usleep(1000);
    }
    for (int i = 0; i < n; i++)
        a->n_ended += raw_gone(&ses[i]) != 0;
}

/* Sends as many valid requests as are accepted, and reads all answers. */
static void
greedy(struct attack *a, int longest)
{
    int n = atk_sessions(a, ses, RQ_SESSIONS, NULL);
    uint64_t tag = 0;

    while (atk_left(a)) {
        for (int i = 0; i < n; i++) {
            struct raw *r = &ses[i];

            while (n_open[i] < r->w.max_inflight && raw_room(r) != 0) {
                struct fdp_req q = raw_generate(r, ++tag, r->tail % 256, 64);

                if (longest) { /* then fills the remaining room, with half
                                * the size each time */
                    unsigned k = tag % 16;

                    q.n = k < 6 ? FDP_MAX_N >> k : 1;
                    q.max_new = k < 6 ? RQ_LONG : RQ_LONG >> (k - 6);
                }
                raw_put(r, &q);
                n_open[i]++;
                a->n_op++;
            }
            raw_publish(r);
            n_open[i] -= raw_skip(r);
        }
        usleep(RQ_PAUSE_US);
    }
}

void
atk_greedy(struct attack *a)
{
    greedy(a, 0);
}

/* A few requests, so large that they use all the tokens that may be queued. */
void
atk_greedy_long(struct attack *a)
{
    greedy(a, 1);
}

/* Writes a text of two-byte characters of `want` bytes or as long as the arena, then an
 * unknown item, which is found only after the text was checked. */
static uint32_t
refused_blob(const struct raw *r, uint32_t want)
{
    uint32_t n = (r->w.arena_bytes < want ? r->w.arena_bytes : want) - 64, span;
    unsigned char *text = malloc(n);

    if (text == NULL)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        text[i] = i % 2 == 0 ? 0xc3 : 0xa9;
    span = raw_item(r, 0, FDP_IT_PROMPT_TEXT, text, n & ~7u);
    span += raw_item(r, span, FDP_IT__N, NULL, 0);
    free(text);
    return span;
}

static void
refused(struct attack *a, int max, uint32_t want)
{
    struct fdp_hello h = raw_hello();
    uint64_t tag = 0;
    int n;

    h.arena_bytes = want;
    n = atk_sessions(a, ses, max, &h);
    for (int i = 0; i < n; i++)
        req_len[i] = refused_blob(&ses[i], want);
    while (atk_left(a)) {
        for (int i = 0; i < n; i++) {
            struct raw *r = &ses[i];

            while (r->w.sq_slots - raw_room(r) < RQ_OPEN) {
                struct fdp_req q = raw_req(++tag, FDP_OP_SUBMIT);

                q.len = req_len[i];
                q.max_new = 1;
                q.set = FDP_S_MAX_NEW;
                raw_put(r, &q);
                a->n_op++;
            }
            raw_publish(r);
            (void)raw_skip(r);
        }
        usleep(RQ_PAUSE_US);
    }
    for (int i = 0; i < n; i++)
        a->n_ended += raw_gone(&ses[i]) != 0;
}

/* The largest texts, which are copied, checked and then refused. */
void
atk_blob(struct attack *a)
{
    refused(a, RQ_BLOBS, RQ_ARENA);
}

/* A smaller item, published again and again by every session. */
void
atk_republish(struct attack *a)
{
    refused(a, RQ_SESSIONS, 1u << 20);
}

/* The largest text of one kind. */
static struct fdp_req
big_req(struct attack *a, const struct raw *r, uint64_t tag)
{
    static const char *const kinds[] = { "a", " ", "aaaaaaa ", "\xf0\x9f\x98\x80",
        "\xcc\x81", "1", "'", "\n", "<|endoftext|>", "\xe0\xa4\x95\xe0\xa5\x8d" };
    const char *k = kinds[atk_rnd(a) % (sizeof(kinds) / sizeof(kinds[0]))];
    uint32_t l = (uint32_t)strlen(k), n = (r->w.arena_bytes - 16) / l * l;
    struct fdp_req q = raw_req(tag, tag % 2 != 0 ? FDP_OP_TOKENIZE : FDP_OP_SUBMIT);
    char *text = malloc(n);

    if (text == NULL)
        return q;
    for (uint32_t i = 0; i < n; i += l)
        memcpy(text + i, k, l);
    q.len = raw_item(r, 0, FDP_IT_PROMPT_TEXT, text, n);
    if (q.op == FDP_OP_SUBMIT) {
        q.max_new = 4;
        q.set = FDP_S_MAX_NEW;
    }
    free(text);
    return q;
}

/* Accepted texts that fill the link to the worker. */
void
atk_big(struct attack *a)
{
    struct fdp_hello h = raw_hello();
    uint64_t tag = 0;
    int n;

    h.arena_bytes = RQ_ARENA;
    n = atk_sessions(a, ses, RQ_BIG, &h);
    while (atk_left(a)) {
        for (int i = 0; i < n; i++) {
            n_open[i] -= raw_skip(&ses[i]);
            if (n_open[i] == 0 && !raw_gone(&ses[i])) {
                struct fdp_req q = big_req(a, &ses[i], ++tag);

                raw_put(&ses[i], &q);
                raw_publish(&ses[i]);
                n_open[i]++;
                a->n_op++;
            }
        }
        usleep(RQ_PAUSE_US);
    }
}

/* A client name that begins a new line in the log and clears a terminal; then
 * requests that cause log lines. */
void
atk_log(struct attack *a)
{
    static const char name[sizeof(((struct fdp_hello *)0)->name)] =
        "x\nforged: line\x1b[2J\r\x07";
    struct fdp_hello h = raw_hello();
    struct raw r;
    uint64_t tag = 0;

    memcpy(h.name, name, sizeof(h.name));
    while (atk_left(a)) {
        if (atk_session(a, &r, &h) != 0)
            return;
        for (int i = 0; i < 20; i++) {
            struct fdp_req q = raw_req(++tag, FDP_OP_SUBMIT);

            q.rsv[0] = 1;
            raw_put(&r, &q);
            a->n_op++;
        }
        raw_publish(&r);
        usleep(20000);
        a->n_ended += raw_gone(&r) != 0;
        raw_close(&r);
    }
}
