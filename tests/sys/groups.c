/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Load for a daemon of several groups, from one trusted client that acts for all users.
 *
 *   groups load SOCKET OPEN MS        OPEN requests at a time, until a line comes on standard
 *                                     input; then waits at most MS for each to end. Prints
 *                                     done, reset (ended with E_GPU_RESET behind tokens), bad
 *                                     (failed without a token, or otherwise), lost (did not
 *                                     end), odd (tokens, ACCEPTED or end twice)
 *   groups talk SOCKET USERS CONVS    each user has conversations of 6 turns and goes from one
 *                                     to the next: a turn sends all before and 64 ids more.
 *                                     Prints done, bad, lost
 *   groups hot SOCKET N               N times: a user with 48 requests of one long prefix at a
 *                                     time, and another user's request meanwhile. Prints ms to
 *                                     the first token of both (median)
 *   groups spy SOCKET N               N times: user A sends a prompt, then user B the same or
 *                                     a fresh one, by turns. Prints mean us to the first token
 *                                     of B with both, z of Welch's test, and z of the control,
 *                                     in which A sends it again itself
 */
#include "config.h"

#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdclient.h"

#define WAIT_MS  60000
#define USER     70000u
#define VOCAB    3000u
#define OPEN_MAX 256u
#define TURNS    6u
#define TURN_IDS 64u
#define ANSWER   8u
#define TALK_IDS ((TURN_IDS + ANSWER) * TURNS + TURN_IDS)
#define HOT_OPEN 48u
#define HOT_IDS  448u
#define SPY_IDS  160u

static uint64_t rng = 88172645463325252ull;

static uint64_t
draw(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
}

static void
fill(uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = 300 + (uint32_t)(draw() % VOCAB);
}

static uint64_t
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
die(const char *what, int rc)
{
    fprintf(stderr, "groups: %s: %s\n", what, fdc_strerror(rc));
    exit(1);
}

static fdc_t *
attach(const char *sock)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = sock,
        .name = "groups",
        .arena_bytes = 8u << 20 };
    fdc_t *s = NULL;
    int rc = fdc_open(&o, &s);

    if (rc != 0)
        die("open", rc);
    return s;
}

static fdc_req_t *
submit(fdc_t *s, uint64_t user, const uint32_t *ids, size_t n, uint32_t max_new)
{
    struct fdc_submit_opts o = { .size = sizeof(o),
        .user = user,
        .submit_timeout_ms = WAIT_MS };
    struct fdc_params p;
    fdc_req_t *r = NULL;
    int rc;

    fdc_params_init(&p);
    p.max_new = max_new;
    p.flags = FDC_F_IGNORE_EOS;
    p.temperature = 0;
    rc = fdc_submit_ids(s, ids, n, &p, &o, &r);
    if (rc != 0)
        die("submit", rc);
    return r;
}

/* ---- load -------------------------------------------------------------------------- */

struct one {
    fdc_req_t *r;
    uint32_t want, n_tokens, n_accepted, n_end;
    int code;
};
struct sums {
    uint64_t done, reset, bad, lost, odd;
};

static void
begin(fdc_t *s, struct one *o)
{
    uint32_t ids[64], n = 8 + (uint32_t)(draw() % 56);

    memset(o, 0, sizeof(*o));
    o->want = 4 + (uint32_t)(draw() % 28);
    fill(ids, n);
    o->r = submit(s, USER + draw() % 8, ids, n, o->want);
    fdc_req_set_user(o->r, o);
}

static void
take(struct one *o, const struct fdc_event *e)
{
    switch (e->type) {
    case FDC_T_ACCEPTED:
        o->n_accepted++;
        break;
    case FDC_T_IDS:
        o->n_tokens += e->n;
        break;
    case FDC_T_DONE:
        o->n_end++;
        break;
    case FDC_T_ERROR:
        o->n_end++;
        o->code = e->error->code;
        break;
    default:
        break;
    }
}

static void
judge(const struct one *o, struct sums *sum)
{
    if (o->n_end != 1 || o->n_accepted > 1 || o->n_tokens > o->want ||
        (o->code == 0 && o->n_tokens != o->want))
        sum->odd++;
    else if (o->code == 0)
        sum->done++;
    else if (o->code == FDC_E_GPU_RESET && o->n_tokens != 0)
        sum->reset++;
    else
        sum->bad++;
}

static int
load(fdc_t *s, uint32_t n, int most_ms)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    static struct one all[OPEN_MAX];
    struct sums sum = { 0 };
    uint32_t n_open = n;
    int goes_on = 1;
    fdc_req_t *r;

    for (uint32_t i = 0; i < n; i++)
        begin(s, &all[i]);
    while (n_open != 0 && fdc_wait_any(s, &r, most_ms) == 1) {
        struct fdc_event e = FDC_EVENT_INIT;
        struct one *o = fdc_req_user(r);
        int rc;

        while ((rc = fdc_next(r, &e, 0)) == 1)
            take(o, &e);
        if (rc != 0)
            continue;
        judge(o, &sum);
        fdc_req_free(r);
        goes_on = goes_on && poll(&in, 1, 0) == 0;
        if (goes_on)
            begin(s, o);
        else
            n_open--;
    }
    sum.lost = n_open;
    printf("done %llu reset %llu bad %llu lost %llu odd %llu\n",
        (unsigned long long)sum.done, (unsigned long long)sum.reset,
        (unsigned long long)sum.bad, (unsigned long long)sum.lost,
        (unsigned long long)sum.odd);
    return 0;
}

/* ---- conversations ----------------------------------------------------------------- */

struct conv {
    uint64_t user;
    uint32_t ids[TALK_IDS], n, turn;
    fdc_req_t *r;
};

static void
next_turn(fdc_t *s, struct conv *c)
{
    fill(c->ids + c->n, TURN_IDS);
    c->n += TURN_IDS;
    c->turn++;
    c->r = submit(s, c->user, c->ids, c->n, ANSWER);
    fdc_req_set_user(c->r, c);
}

/* A user's conversations. */
struct talker {
    struct conv *convs;
    uint32_t n, at;
};

/* Sends the next turn of the conversation that is due. Returns
 * 0 if all have had theirs. */
static int
goes_on(fdc_t *s, struct talker *t)
{
    struct conv *c = &t->convs[t->at];

    if (c->turn == TURNS)
        return 0;
    t->at = (t->at + 1) % t->n;
    next_turn(s, c);
    return 1;
}

static int
talk(fdc_t *s, uint32_t n_users, uint32_t n_convs)
{
    uint32_t n_open = n_users, done = 0, bad = 0;
    struct conv *all = calloc((size_t)n_users * n_convs, sizeof(*all));
    struct talker *users = calloc(n_users, sizeof(*users));
    uint32_t first[TURN_IDS];
    fdc_req_t *r;

    if (all == NULL || users == NULL)
        die("memory", FDC_E_NOMEM);
    for (uint32_t i = 0; i < n_users; i++) {
        users[i] = (struct talker){ &all[i * n_convs], n_convs, 0 };
        fill(first, TURN_IDS); /* all conversations of a user have the same beginning */
        for (uint32_t k = 0; k < n_convs; k++) {
            struct conv *c = &users[i].convs[k];

            c->user = USER + i;
            memcpy(c->ids, first, sizeof(first));
            c->n = TURN_IDS;
        }
        (void)goes_on(s, &users[i]);
    }
    while (n_open != 0 && fdc_wait_any(s, &r, WAIT_MS) == 1) {
        struct fdc_event e = FDC_EVENT_INIT;
        struct conv *c = fdc_req_user(r);
        int rc;

        while ((rc = fdc_next(r, &e, 0)) == 1) {
            if (e.type == FDC_T_IDS && c->n + e.n <= TALK_IDS) {
                memcpy(c->ids + c->n, e.ids, e.n * 4u);
                c->n += e.n;
            }
            done += e.type == FDC_T_DONE;
            bad += e.type == FDC_T_ERROR;
        }
        if (rc != 0)
            continue;
        fdc_req_free(r);
        n_open -= !goes_on(s, &users[c->user - USER]);
    }
    printf("done %u bad %u lost %u\n", done, bad, n_open);
    free(all);
    free(users);
    return 0;
}

/* ---- times to the first token -------------------------------------------------------- */

/* Waits only for r and frees it. Returns the ns from t0 to its first ids. */
static uint64_t
first_token(fdc_req_t *r, uint64_t t0)
{
    struct fdc_event e = FDC_EVENT_INIT;
    uint64_t ns = 0;
    int rc;

    while ((rc = fdc_next(r, &e, WAIT_MS)) == 1) {
        if (e.type == FDC_T_ERROR)
            die("request", e.error->code);
        if (e.type == FDC_T_IDS && ns == 0)
            ns = now_ns() - t0;
    }
    if (rc != 0)
        die("read", rc);
    fdc_req_free(r);
    return ns;
}

static int
cmp_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), cmp_double);
    return v[n / 2];
}

static int
hot(fdc_t *s, uint32_t n)
{
    static uint32_t ids[HOT_IDS + 16], other[64];
    double *own = calloc((size_t)n * HOT_OPEN, sizeof(*own));
    double *his = calloc(n, sizeof(*his));
    fdc_req_t *r[HOT_OPEN], *h;

    if (own == NULL || his == NULL)
        die("memory", FDC_E_NOMEM);
    fill(ids, HOT_IDS);
    (void)first_token(submit(s, USER, ids, HOT_IDS, 1), now_ns());
    for (uint32_t i = 0; i < n; i++) {
        uint64_t t0 = now_ns(), t1;

        for (uint32_t k = 0; k < HOT_OPEN; k++) {
            fill(ids + HOT_IDS, 16);
            r[k] = submit(s, USER, ids, HOT_IDS + 16, ANSWER);
        }
        fill(other, 64);
        t1 = now_ns();
        h = submit(s, USER + 1, other, 64, ANSWER);
        his[i] = (double)first_token(h, t1) / 1e6;
        for (uint32_t k = 0; k < HOT_OPEN; k++)
            own[i * HOT_OPEN + k] = (double)first_token(r[k], t0) / 1e6;
    }
    printf("hot %.2f other %.2f\n", median(own, (size_t)n * HOT_OPEN), median(his, n));
    free(own);
    free(his);
    return 0;
}

struct sample {
    double sum, squares;
    uint32_t n;
};

static void
add(struct sample *v, double x)
{
    v->sum += x;
    v->squares += x * x;
    v->n++;
}

static double
variance(const struct sample *v)
{
    double mean = v->sum / v->n;

    return (v->squares / v->n - mean * mean) * v->n / (v->n - 1.0);
}

static double
welch(const struct sample *a, const struct sample *b)
{
    return (a->sum / a->n - b->sum / b->n) / sqrt(variance(a) / a->n + variance(b) / b->n);
}

/* Logarithms: so that a pause of the machine does not weigh as
 * much as a thousand tries. */
static double
timed(fdc_t *s, uint64_t user, const uint32_t *ids)
{
    uint64_t t0 = now_ns();

    return log((double)first_token(submit(s, user, ids, SPY_IDS, 1), t0) / 1e3);
}

static int
spy(fdc_t *s, uint32_t n)
{
    struct sample same = { 0 }, fresh = { 0 }, again = { 0 };
    uint32_t a[SPY_IDS], b[SPY_IDS];

    for (uint32_t i = 0; i < n; i++) {
        fill(a, SPY_IDS);
        fill(b, SPY_IDS);
        (void)timed(s, USER, a);
        if (draw() % 2 == 0)
            add(&same, timed(s, USER + 1, a));
        else
            add(&fresh, timed(s, USER + 1, b));
        if (i % 4 == 0)
            add(&again, timed(s, USER, a));
    }
    printf("same %.1f fresh %.1f z %.2f control %.2f tries %u\n", exp(same.sum / same.n),
        exp(fresh.sum / fresh.n), welch(&fresh, &same), welch(&fresh, &again), n);
    return 0;
}

int
main(int argc, char **argv)
{
    uint32_t a = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    uint32_t b = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    fdc_t *s;
    int rc = 64;

    if (argc < 4 || a == 0) {
        fprintf(stderr, "usage: groups load|talk|hot|spy SOCKET N [N]\n");
        return 64;
    }
    s = attach(argv[2]);
    if (strcmp(argv[1], "load") == 0 && a <= OPEN_MAX)
        rc = load(s, a, (int)b);
    else if (strcmp(argv[1], "talk") == 0 && b != 0)
        rc = talk(s, a, b);
    else if (strcmp(argv[1], "hot") == 0)
        rc = hot(s, a);
    else if (strcmp(argv[1], "spy") == 0)
        rc = spy(s, a);
    fdc_close(s);
    return rc;
}
