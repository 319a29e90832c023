/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed load compared with references: requests of all kinds are first answered one at a
 * time, then for some minutes many at a time, drawn at random, with cancels. In
 * deterministic mode ids and logprobs of every answer must equal, to the bit, those of
 * the request alone.
 * Usage: g_mixed SOCKET SECONDS ROWS VOCAB LONGEST_PROMPT
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/fdclient.h"

#define N_REF         40
#define MAX_ROW       1024
#define CANCEL_ONE_IN 16

struct ref {
    uint32_t *ids;
    uint32_t n, max_new;
    struct fdc_params p;
    uint64_t hash[2]; /* hashes of ids and of logprobs, which arrive in
                       * pieces of any size */
};
struct run { /* an open request */
    fdc_req_t *req;
    const struct ref *ref;
    uint64_t hash[2];
    uint32_t n_out, cancel_at; /* cancel_at 0: never */
};

static struct ref refs[N_REF];
static uint64_t rng = 0x9e3779b97f4a7c15u;
static long n_done, n_wrong, n_failed, n_cancelled, n_tok;

static uint32_t
rnd(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}

static double
now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t
mix(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

/* Draws prompts of one token up to the longest; every other one begins like the one
 * before it, so that prefixes are found in the cache. */
static int
make_refs(uint32_t vocab, uint32_t longest)
{
    for (uint32_t i = 0; i < N_REF; i++) {
        struct ref *r = &refs[i];

        r->n = i % 4 == 0 ? 1 + rnd(64) : 1 + rnd(longest);
        r->max_new = 16 + rnd(i % 5 == 0 ? 512 : 128);
        r->ids = calloc(r->n, sizeof(*r->ids));
        if (r->ids == NULL)
            return -1;
        for (uint32_t k = 0; k < r->n; k++)
            r->ids[k] =
                i % 2 == 1 && k < refs[i - 1].n / 2 ? refs[i - 1].ids[k] : rnd(vocab);
        fdc_params_init(&r->p);
        r->p.flags = FDC_F_IGNORE_EOS;
        r->p.logprobs = i % 3 == 0 ? 5 : 0;
        r->p.seed = i;
        r->p.max_new = r->max_new;
        r->p.temperature = i % 2 == 0 ? 0 : 0.8f;
        r->p.top_k = i % 4 == 1 ? 40 : 0;
        r->p.top_p = i % 4 == 3 ? 0.9f : 1;
        r->p.repetition_penalty = i % 8 == 5 ? 1.2f : 1;
    }
    return 0;
}

static int
begin(fdc_t *s, struct run *u, const struct ref *r)
{
    struct fdc_submit_opts o = { .size = sizeof(o),
        .user_ptr = u,
        .submit_timeout_ms = 60000 };
    struct fdc_params p = r->p;
    int rc;

    *u = (struct run){ .ref = r, .hash = { 1, 1 } };
    rc = fdc_submit_ids(s, r->ids, r->n, &p, &o, &u->req);
    if (rc < 0)
        (void)fprintf(stderr, "submit: %s\n", fdc_strerror(rc));
    return rc;
}

/* Handles one event. Returns 1 if the request has ended;
 * *ret_status is then 0 or the error. */
static int
take(struct run *u, const struct fdc_event *ev, int *ret_status)
{
    switch (ev->type) {
    case FDC_T_IDS:
        u->hash[0] = mix(u->hash[0], ev->ids, ev->n * sizeof(*ev->ids));
        u->n_out += ev->n;
        n_tok += ev->n;
        break;
    case FDC_T_LOGPROBS:
        for (uint32_t i = 0; i < ev->n; i++)
            u->hash[1] =
                mix(u->hash[1], &ev->logprobs[i].logprob, sizeof(ev->logprobs[i].logprob));
        break;
    case FDC_T_ERROR:
        *ret_status = ev->error->code;
        return 1;
    case FDC_T_DONE:
        *ret_status = 0;
        return 1;
    default:
        break;
    }
    return 0;
}

static int
reference(fdc_t *s, struct ref *r)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    struct run u;
    int rc = begin(s, &u, r), over = 0, status = 0;

    while (rc >= 0 && !over && (rc = fdc_next(u.req, &ev, 120000)) == 1)
        over = take(&u, &ev, &status);
    fdc_req_free(u.req);
    if (rc < 0 || !over || status != 0 || u.n_out != r->max_new) {
        (void)fprintf(stderr, "reference of %u tokens: %s, %u of %u tokens\n", r->n,
            fdc_strerror(rc < 0 ? rc : status), u.n_out, r->max_new);
        return -1;
    }
    memcpy(r->hash, u.hash, sizeof(r->hash));
    return 0;
}

static void
finish(struct run *u, int status)
{
    n_done++;
    if (u->cancel_at > 0 && status == FDC_E_CANCELLED) {
        n_cancelled++;
    } else if (status != 0) {
        n_failed++;
        (void)fprintf(stderr, "failed: %s\n", fdc_strerror(status));
    } else if (memcmp(u->hash, u->ref->hash, sizeof(u->hash)) != 0 ||
        u->n_out != u->ref->max_new) {
        n_wrong++;
        (void)fprintf(stderr, "wrong: request %ld of %u tokens, %u out\n",
            (long)(u->ref - refs), u->ref->n, u->n_out);
    }
    fdc_req_free(u->req);
    u->req = NULL;
}

static int
next_run(fdc_t *s, struct run *u)
{
    int rc = begin(s, u, &refs[rnd(N_REF)]);

    if (rc >= 0 && rnd(CANCEL_ONE_IN) == 0)
        u->cancel_at = 1 + rnd(u->ref->max_new);
    return rc;
}

static int
load(fdc_t *s, double seconds, int rows)
{
    static struct run runs[MAX_ROW];
    double t_end = now() + seconds, t_say = now() + 30;
    int open = 0, rc = 0;

    for (int i = 0; i < rows && rc >= 0; i++, open++)
        rc = next_run(s, &runs[i]);
    while (open > 0 && rc >= 0) {
        struct fdc_event ev = FDC_EVENT_INIT;
        fdc_req_t *req;
        struct run *u;
        int status = 0;

        rc = fdc_wait_any(s, &req, 120000);
        if (rc != 1)
            return rc < 0 ? rc : -1;
        u = fdc_req_user(req);
        rc = fdc_next(req, &ev, 0);
        if (rc == FDC_E_AGAIN)
            rc = 0;
        else if (rc == 1 && take(u, &ev, &status)) {
            finish(u, status);
            open--;
            if (now() < t_end) {
                rc = next_run(s, u);
                open++;
            }
        } else if (rc == 1 && u->cancel_at > 0 && u->n_out >= u->cancel_at) {
            (void)fdc_cancel(req);
        }
        if (now() > t_say) {
            (void)printf("%ld answers, %ld tokens, %ld wrong, %ld failed, %ld cancelled\n",
                n_done, n_tok, n_wrong, n_failed, n_cancelled);
            (void)fflush(stdout);
            t_say += 30;
        }
    }
    return rc < 0 ? rc : 0;
}

int
main(int argc, char **argv)
{
    struct fdc_open_opts o = { .size = sizeof(o) };
    fdc_t *s = NULL;
    int rc, rows;

    if (argc != 6) {
        (void)fprintf(stderr, "usage: g_mixed SOCKET SECONDS ROWS VOCAB LONGEST\n");
        return 2;
    }
    o.path = argv[1];
    rows = atoi(argv[3]);
    if (rows < 1 || rows > MAX_ROW || atoi(argv[4]) < 2 || atoi(argv[5]) < 1)
        return 2;
    if (make_refs((uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5])) != 0)
        return 1;
    rc = fdc_open(&o, &s);
    for (int i = 0; i < N_REF && rc >= 0; i++)
        rc = reference(s, &refs[i]);
    if (rc >= 0)
        rc = load(s, atof(argv[2]), rows);
    if (rc < 0)
        (void)fprintf(stderr, "%s\n", fdc_strerror(rc));
    (void)printf("note: %d references, %ld answers, %ld tokens, %ld wrong, %ld failed, %ld "
                 "cancelled\n",
        N_REF, n_done, n_tok, n_wrong, n_failed, n_cancelled);
    fdc_close(s);
    for (int i = 0; i < N_REF; i++)
        free(refs[i].ids);
    return rc < 0 || n_wrong != 0 || n_failed != 0 || n_done == 0;
}
