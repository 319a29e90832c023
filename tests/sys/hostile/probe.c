/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * probe CLIENT_SOCKET SECONDS
 *
 * A correct client with two sessions that measures its times: round trips to the gate at
 * a steady rate in one, the first token of short requests in the other. Prints one JSON
 * object, with times in us. Exit status 1: a request was not answered.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libclient/fdclient.h"
#include "tests/sys/hostile/raw.h"

#define PROBE_MAX       200000
#define PROBE_PING_US   2000  /* pause after a ping */
#define PROBE_NEXT_US   16000 /* pause after a request */
#define PROBE_TOKENS    4
#define PROBE_ANSWER_MS 5000

struct times {
    double us[PROBE_MAX];
    size_t n;
};

/* One session and what it measured. */
struct probe {
    const char *path;
    uint64_t t_end;
    fdc_t *s;
    double open_us;
    struct times times;
    unsigned long errors;
    int last; /* status of the last error */
};

static void
times_add(struct times *t, uint64_t since_ns)
{
    if (t->n < PROBE_MAX)
        t->us[t->n++] = (double)(raw_now_ns() - since_ns) / 1e3;
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void
times_print(const char *name, struct times *t)
{
    size_t last = t->n == 0 ? 0 : t->n - 1;

    qsort(t->us, t->n, sizeof(t->us[0]), compare);
    printf(", \"%s\": {\"n\": %zu", name, t->n);
    if (t->n != 0)
        printf(", \"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f", t->us[last / 2],
            t->us[last * 99 / 100], t->us[last]);
    printf("}");
}

static void
probe_error(struct probe *p, int status)
{
    p->errors++;
    p->last = status;
}

static void
probe_ping(struct probe *p)
{
    uint64_t t = raw_now_ns();
    int rc = fdc_ping(p->s, 0, NULL, PROBE_ANSWER_MS);

    if (rc < 0)
        probe_error(p, rc);
    else
        times_add(&p->times, t);
}

static void
probe_generate(struct probe *p)
{
    static const uint32_t ids[4] = { 5, 6, 7, 8 };
    struct fdc_params par;
    struct fdc_event e = FDC_EVENT_INIT;
    fdc_req_t *r;
    uint64_t t = raw_now_ns();
    int rc, first = 1;

    fdc_params_init(&par);
    par.max_new = PROBE_TOKENS;
    par.temperature = 0;
    par.flags |= FDC_F_IGNORE_EOS;
    rc = fdc_submit_ids(p->s, ids, 4, &par, NULL, &r);
    if (rc < 0) {
        probe_error(p, rc);
        return;
    }
    while ((rc = fdc_next(r, &e, PROBE_ANSWER_MS)) > 0) {
        if (e.type == FDC_T_IDS && first) {
            times_add(&p->times, t);
            first = 0;
        } else if (e.type == FDC_T_ERROR) {
            rc = e.error->code;
            break;
        }
    }
    if (rc < 0)
        probe_error(p, rc);
    fdc_req_free(r);
}

static int
probe_open(struct probe *p)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = p->path,
        .name = "probe",
        .connect_timeout_ms = PROBE_ANSWER_MS };
    uint64_t t = raw_now_ns();
    int rc = fdc_open(&o, &p->s);

    p->open_us = (double)(raw_now_ns() - t) / 1e3;
    if (rc < 0)
        probe_error(p, rc);
    return rc;
}

/* Repeats what() until the end, with a pause after each. */
static void
probe_repeat(struct probe *p, void (*what)(struct probe *), unsigned pause_us)
{
    if (probe_open(p) < 0)
        return;
    while (raw_now_ns() < p->t_end && p->last != FDC_E_DISCONNECTED) {
        what(p);
        usleep(pause_us);
    }
    fdc_close(p->s);
}

static void *
pings(void *p)
{
    probe_repeat(p, probe_ping, PROBE_PING_US);
    return NULL;
}

int
main(int argc, char **argv)
{
    static struct probe ping, ttft;
    int last;
    pthread_t t;

    if (argc != 3) {
        fprintf(stderr, "usage: probe CLIENT_SOCKET SECONDS\n");
        return 64;
    }
    ping.path = ttft.path = argv[1];
    ping.t_end = ttft.t_end = raw_now_ns() + (uint64_t)(atof(argv[2]) * 1e9);
    if (pthread_create(&t, NULL, pings, &ping) != 0)
        return 71;
    probe_repeat(&ttft, probe_generate, PROBE_NEXT_US);
    (void)pthread_join(t, NULL);
    last = ping.last != 0 ? ping.last : ttft.last;
    printf("{\"open_us\": %.0f", ping.open_us);
    times_print("ping", &ping.times);
    times_print("ttft", &ttft.times);
    printf(", \"errors\": %lu, \"last\": \"%s\"}\n", ping.errors + ttft.errors,
        last != 0 ? fdc_status_name(last) : "");
    return last != 0 || ping.times.n == 0 || ttft.times.n == 0;
}
