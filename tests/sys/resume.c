/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams on a session with reconnect_ms, while the caller kills the worker and restarts
 * the daemon. First each request runs once, undisturbed, as the reference. Then they run
 * again and again until standard input ends; each id and each byte of text must arrive
 * once, at its place, and equal the reference. Prints "ready" between the two phases, and
 * at the end "N requests, M resumed" and the session's reconnections.
 *
 *   resume SOCKET STREAMS TOKENS [loop]     loop: through fdc_dispatch() and poll()
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdclient.h"

#define MAX_STREAMS 64
#define MAX_TOKENS  512
#define MAX_TEXT    (16 * MAX_TOKENS)

struct answer {
    uint32_t ids[MAX_TOKENS], n_ids, n_lp, accepted, finish;
    char text[MAX_TEXT];
    uint32_t n_text;
};

struct stream {
    fdc_req_t *r;
    uint32_t k;
    struct answer ref, now;
};

static struct stream streams[MAX_STREAMS];
static uint32_t n_stream, n_token, n_request;
static int checking, failed;

static void
bad(const struct stream *s, const char *what, uint32_t at)
{
    if (failed++ < 10)
        fprintf(stderr, "stream %u: %s at %u\n", s->k, what, at);
}

static void
begin(fdc_t *f, struct stream *s)
{
    struct fdc_submit_opts o = { .size = sizeof(o),
        .submit_timeout_ms = -1,
        .stream_interval = s->k % 5 == 4 ? 3 : 0,
        .user_ptr = s };
    struct fdc_params p;
    char prompt[64], why[200] = "";
    int rc;

    o.error_text = why;
    o.error_text_bytes = sizeof(why);
    fdc_params_init(&p);
    p.max_new = n_token;
    p.seed = s->k % 3 == 2 ? FDC_UNSET64 : 1000 + s->k;
    p.temperature = s->k % 3 ? 0.8f : 0;
    /* A seed drawn by the daemon differs each time, so without a
     * seed requests are greedy. */
    if (p.seed == FDC_UNSET64)
        p.temperature = 0;
    p.flags = FDC_F_TEXT | (s->k % 2 ? FDC_F_IGNORE_EOS : 0);
    p.logprobs = s->k % 4 == 1 ? 2 : -1;
    p.repetition_penalty = s->k % 7 == 3 ? 1.2f : 1;
    snprintf(prompt, sizeof(prompt), "In the beginning of day %u there was", s->k);
    memset(&s->now, 0, sizeof(s->now));
    rc = fdc_submit_text(f, prompt, strlen(prompt), &p, &o, &s->r);
    if (rc < 0) {
        fprintf(stderr, "submit: %s\n", why);
        exit(1);
    }
}

static void
take(struct stream *s, const struct fdc_event *ev)
{
    struct answer *a = &s->now;

    switch (ev->type) {
    case FDC_T_ACCEPTED:
        if (a->accepted++)
            bad(s, "a second ACCEPTED", 0);
        break;
    case FDC_T_IDS:
        if (ev->position != a->n_ids || a->n_ids + ev->n > MAX_TOKENS) {
            bad(s, "ids out of place", ev->position);
            break;
        }
        memcpy(a->ids + a->n_ids, ev->ids, ev->n * 4);
        a->n_ids += ev->n;
        break;
    case FDC_T_TEXT:
        if (ev->position != a->n_text || a->n_text + ev->n > MAX_TEXT) {
            bad(s, "text out of place", ev->position);
            break;
        }
        memcpy(a->text + a->n_text, ev->text, ev->n);
        a->n_text += ev->n;
        break;
    case FDC_T_LOGPROBS:
        if (ev->position != a->n_lp++)
            bad(s, "logprobs out of place", ev->position);
        break;
    case FDC_T_CHOICE_END:
        if (a->finish)
            bad(s, "a second CHOICE_END", ev->position);
        a->finish = ev->choice_end->finish;
        if (ev->choice_end->n_tokens != a->n_ids)
            bad(s, "another number of tokens", ev->choice_end->n_tokens);
        break;
    case FDC_T_ERROR: {
        char text[200];
        bad(s, fdc_error_text(ev->error, text, sizeof(text)), a->n_ids);
    }
    }
}

static void
judge(struct stream *s)
{
    n_request++;
    if (!checking)
        s->ref = s->now;
    else if (s->ref.n_ids != s->now.n_ids ||
        memcmp(s->ref.ids, s->now.ids, s->ref.n_ids * 4) != 0)
        bad(s, "other ids", s->now.n_ids);
    else if (s->ref.n_text != s->now.n_text ||
        memcmp(s->ref.text, s->now.text, s->ref.n_text) != 0)
        bad(s, "other text", s->now.n_text);
    else if (s->ref.n_lp != s->now.n_lp || s->ref.finish != s->now.finish)
        bad(s, "other logprobs or another end", s->now.n_lp);
}

static int
stopped(void)
{
    char c;

    return read(STDIN_FILENO, &c, 1) == 0;
}

/* Reads the events of r. Returns 1 if it has ended. */
static int
read_all(struct stream *s)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    int rc;

    while ((rc = fdc_next(s->r, &ev, 0)) > 0)
        take(s, &ev);
    if (rc == FDC_E_AGAIN)
        return 0;
    if (rc < 0)
        bad(s, fdc_strerror(rc), 0);
    judge(s);
    fdc_req_free(s->r);
    s->r = NULL;
    return 1;
}

/* Returns a request with events to read, or NULL if there is none now. */
static fdc_req_t *
wait_one(fdc_t *f, int loop)
{
    struct pollfd p = { .fd = fdc_fd(f), .events = POLLIN };
    fdc_req_t *r = NULL;
    int rc;

    if (loop) {
        rc = fdc_dispatch(f);
        if (rc == 0)
            (void)poll(&p, 1, 1000);
        rc = rc > 0 ? fdc_wait_any(f, &r, 0) : rc;
    } else {
        rc = fdc_wait_any(f, &r, 1000);
    }
    if (rc < 0 && rc != FDC_E_TIMEOUT && rc != FDC_E_AGAIN) {
        fprintf(stderr, "wait: %s\n", fdc_strerror(rc));
        exit(1);
    }
    return rc == 1 ? r : NULL;
}

/* Runs the requests once, or until standard input ends. */
static void
run(fdc_t *f, int loop, int again)
{
    uint32_t open = n_stream;
    fdc_req_t *r;

    for (uint32_t k = 0; k < n_stream; k++)
        begin(f, &streams[k]);
    while (open && failed < 10) {
        r = wait_one(f, loop);
        if (r == NULL || !read_all(fdc_req_user(r)))
            continue;
        open--;
        if (!again)
            continue;
        if (stopped()) {
            again = 0;
            continue;
        }
        for (uint32_t k = 0; k < n_stream; k++)
            if (streams[k].r == NULL) {
                begin(f, &streams[k]);
                open++;
            }
    }
}

int
main(int argc, char **argv)
{
    struct fdc_open_error e = { .size = sizeof(e) };
    struct fdc_open_opts o = { .size = sizeof(o),
        .name = "resume",
        .reconnect_ms = 60000,
        .ret_error = &e };
    struct fdc_info i = { .size = sizeof(i) };
    fdc_t *f;
    int loop = argc > 4;

    if (argc < 4)
        return 64;
    o.path = argv[1];
    n_stream = (uint32_t)atoi(argv[2]);
    n_token = (uint32_t)atoi(argv[3]);
    if (n_stream > MAX_STREAMS || n_token > MAX_TOKENS)
        return 64;
    for (uint32_t k = 0; k < n_stream; k++)
        streams[k].k = k;
    if (fdc_open(&o, &f) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    run(f, loop, 0);
    printf("ready\n");
    fflush(stdout);
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    checking = 1;
    n_request = 0;
    run(f, loop, 1);
    if (fdc_info(f, &i, 20000) < 0)
        failed++;
    printf("%u requests, session opened again %u times, %d errors\n", n_request,
        i.n_reconnect, failed);
    fdc_close(f);
    return failed != 0;
}
