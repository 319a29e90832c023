/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sys/fair_load.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdclient.h"

#define OTHER_USER 70001u
#define OWN_USER   70002u
#define WAIT_MS    60000

struct shared {
    uint64_t done, refused;
};

static uint64_t
now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int
cmp_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

uint64_t
fair_quantile(uint64_t *v, size_t n, double q)
{
    size_t at = (size_t)((double)n * q);

    if (n == 0)
        return 0;
    qsort(v, n, sizeof(*v), cmp_u64);
    return v[at < n ? at : n - 1];
}

static int
say(const char *what, int rc)
{
    fprintf(stderr, "fair_load: %s: %s\n", what, fdc_strerror(rc));
    return -1;
}

static fdc_t *
attach(const char *sock)
{
    struct fdc_open_opts o = { .size = sizeof(o), .path = sock, .name = "fair" };
    uint64_t ns;
    fdc_t *s;

    for (int i = 0; i < 500; i++) {
        if (fdc_open(&o, &s) == 0) {
            if (fdc_ping(s, 1, &ns, 20000) == 0)
                return s;
            fdc_close(s);
        }
        usleep(20000);
    }
    return NULL;
}

static int
submit(fdc_t *s, uint64_t user, uint32_t n_tokens, fdc_req_t **ret)
{
    static const uint32_t ids[4] = { 5, 6, 7, 8 };
    struct fdc_submit_opts o = { .size = sizeof(o),
        .user = user,
        .submit_timeout_ms = WAIT_MS };
    struct fdc_params p;

    fdc_params_init(&p);
    p.max_new = n_tokens;
    p.flags = FDC_F_IGNORE_EOS;
    p.temperature = 0;
    return fdc_submit_ids(s, ids, 4, &p, &o, ret);
}

/* Keeps n_open requests open, for ever. */
static int
other_user(const struct fair_load *cfg, struct shared *sh)
{
    fdc_t *s = attach(cfg->sock);
    fdc_req_t *r;

    if (s == NULL)
        return 1;
    for (uint32_t i = 0; i < cfg->n_open; i++) {
        if (submit(s, OTHER_USER, cfg->other_tokens, &r) != 0)
            return 1;
    }
    while (fdc_wait_any(s, &r, WAIT_MS) == 1) {
        struct fdc_event e = FDC_EVENT_INIT;
        int rc;

        while ((rc = fdc_next(r, &e, 0)) == 1) {
            if (e.type == FDC_T_ERROR)
                __atomic_fetch_add(&sh->refused, 1, __ATOMIC_RELAXED);
            else if (e.type == FDC_T_DONE)
                __atomic_fetch_add(&sh->done, 1, __ATOMIC_RELAXED);
        }
        if (rc != 0)
            continue;
        fdc_req_free(r);
        if (submit(s, OTHER_USER, cfg->other_tokens, &r) != 0)
            return 1;
    }
    return 1;
}

static int
one_request(fdc_t *s, const struct fair_load *cfg, struct fair_seen *seen,
    uint64_t *ret_total)
{
    uint64_t t0 = now_ns(), last = 0;
    struct fdc_event e = FDC_EVENT_INIT;
    fdc_req_t *r;
    int rc = submit(s, OWN_USER, cfg->n_tokens, &r);

    if (rc != 0)
        return say("submit", rc);
    while ((rc = fdc_next(r, &e, WAIT_MS)) == 1) {
        uint64_t t = now_ns();

        if (e.type == FDC_T_ERROR) {
            fdc_req_free(r);
            return say("request", e.error->code);
        }
        if (e.type != FDC_T_IDS)
            continue;
        /* Tokens that arrive together count as one gap, with none between them. */
        if (last != 0 && seen->n_gap < (size_t)cfg->n_requests * cfg->n_tokens)
            seen->gap[seen->n_gap++] = t - last;
        last = t;
    }
    fdc_req_free(r);
    *ret_total = now_ns() - t0;
    return rc == 0 ? 0 : say("read", rc);
}

static int
measure(const struct fair_load *cfg, struct shared *sh, struct fair_seen *seen)
{
    fdc_t *s = attach(cfg->sock);
    uint64_t done, refused;
    int rc = 0;

    if (s == NULL)
        return say("attach", FDC_E_CONNECT);
    usleep(cfg->settle_ms * 1000);
    done = __atomic_load_n(&sh->done, __ATOMIC_RELAXED);
    refused = __atomic_load_n(&sh->refused, __ATOMIC_RELAXED);
    for (uint32_t i = 0; rc == 0 && i < cfg->n_requests; i++)
        rc = one_request(s, cfg, seen, &seen->total[i]);
    seen->other_done = __atomic_load_n(&sh->done, __ATOMIC_RELAXED) - done;
    seen->other_refused = __atomic_load_n(&sh->refused, __ATOMIC_RELAXED) - refused;
    fdc_close(s);
    return rc;
}

int
fair_load_run(const struct fair_load *cfg, struct fair_seen *ret)
{
    struct shared *sh =
        mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct fair_seen seen = { .n_gap = 0 };
    pid_t pid = 0;
    int rc = -1;

    seen.gap = calloc((size_t)cfg->n_requests * cfg->n_tokens, sizeof(*seen.gap));
    seen.total = calloc(cfg->n_requests, sizeof(*seen.total));
    if (sh == MAP_FAILED || seen.gap == NULL || seen.total == NULL) {
        rc = say("memory", FDC_E_NOMEM);
        goto free_seen;
    }
    if (cfg->n_open != 0 && (pid = fork()) == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(other_user(cfg, sh));
    }
    if (pid >= 0)
        rc = measure(cfg, sh, &seen);
    if (pid > 0) {
        if (waitpid(pid, NULL, WNOHANG) == pid) {
            fprintf(stderr, "fair_load: the other user gave up\n");
            rc = -1;
        } else {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
        }
    }
free_seen:
    if (sh != MAP_FAILED)
        (void)munmap(sh, sizeof(*sh));
    if (rc != 0) {
        free(seen.gap);
        free(seen.total);
        return rc;
    }
    *ret = seen;
    return 0;
}
