/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Many client processes, random requests, cancels, early frees and kills:
 * every accepted request must have exactly one terminal event.
 *
 *   soak SOCKET N_CLIENTS N_REQUESTS SEED VOCAB
 *
 * Only surviving clients count their events. Exit status 0, or 1 with the errors printed.
 * The caller checks afterwards that the daemon has no requests left.
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/fdclient.h"

struct tally {
    unsigned long accepted, done, error, cancelled, refused, double_end, missing, tokens;
    unsigned long started, short_output;
};

static uint32_t
next_rand(uint64_t *s)
{
    *s = *s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*s >> 33);
}

static void
add(unsigned long *p, unsigned long v)
{
    __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

#define OPEN 6

struct one {
    fdc_req_t *r;
    uint32_t max_new, n_tok, n_end;
    int accepted, cancelled;
};

static void
end_one(struct one *o, struct tally *t)
{
    if (o->accepted && o->n_end == 0)
        add(&t->missing, 1);
    if (o->n_end > 1)
        add(&t->double_end, 1);
    fdc_req_free(o->r);
    memset(o, 0, sizeof(*o));
}

/* Handles one event. Returns 1 if the request has ended. */
static int
step_one(struct one *o, struct tally *t)
{
    struct fdc_event e = FDC_EVENT_INIT;
    int rc = fdc_next(o->r, &e, 20000);
    if (rc < 0) {
        fprintf(stderr, "soak: fdc_next: %s\n", fdc_status_name(rc));
        add(&t->missing, 1);
        o->n_end = 1;
        return 1;
    }
    if (rc == 0)
        return 1;
    if (e.type == FDC_T_ACCEPTED) {
        o->accepted = 1;
        add(&t->accepted, 1);
    } else if (e.type == FDC_T_IDS) {
        o->n_tok += e.n;
        add(&t->tokens, e.n);
    } else if (e.type == FDC_T_DONE) {
        o->n_end++;
        add(&t->done, 1);
        if (!o->cancelled && o->n_tok != o->max_new)
            add(&t->short_output, 1);
    } else if (e.type == FDC_T_ERROR) {
        o->n_end++;
        if (e.error->code == FDC_E_CANCELLED)
            add(&t->cancelled, 1);
        else if (!o->accepted && fdc_is_retryable(e.error->code))
            add(&t->refused, 1);
        else {
            add(&t->error, 1);
            fprintf(stderr, "soak: error %s\n", fdc_status_name(e.error->code));
        }
    }
    return 0;
}

static void
submit_one(fdc_t *s, struct one *o, uint64_t *rng, uint32_t vocab)
{
    uint32_t ids[200];
    uint32_t n = 1 + next_rand(rng) % 200;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = next_rand(rng) % vocab;
    struct fdc_submit_opts so = { .size = sizeof(so), .submit_timeout_ms = 20000 };
    struct fdc_params p;
    fdc_params_init(&p);
    p.flags = FDC_F_IGNORE_EOS | (next_rand(rng) % 2 ? FDC_F_TEXT : 0);
    p.max_new = 1 + next_rand(rng) % 40;
    p.temperature = 0;
    int rc = fdc_submit_ids(s, ids, n, &p, &so, &o->r);
    if (rc < 0) {
        fprintf(stderr, "soak: submit: %s\n", fdc_status_name(rc));
        o->r = NULL;
        return;
    }
    o->max_new = p.max_new;
}

static int
client(const char *path, unsigned long n_req, uint64_t seed, uint32_t vocab, struct tally *t)
{
    struct fdc_open_opts opts = { .size = sizeof(opts),
        .path = path,
        .name = "soak",
        .connect_timeout_ms = 30000 };
    fdc_t *s = NULL;
    int rc = FDC_E_CONNECT;
    for (int i = 0; i < 200; i++) {
        rc = fdc_open(&opts, &s);
        if (rc == 0 || !fdc_is_retryable(rc))
            break;
        usleep(50000);
    }
    if (rc < 0) {
        fprintf(stderr, "soak: open: %s\n", fdc_status_name(rc));
        return 1;
    }
    struct one open[OPEN];
    memset(open, 0, sizeof(open));
    unsigned long left = n_req;
    unsigned busy = 0;
    while (left > 0 || busy > 0) {
        struct one *o = &open[next_rand(&seed) % OPEN];
        if (o->r == NULL) {
            if (left == 0)
                continue;
            submit_one(s, o, &seed, vocab);
            left--;
            add(&t->started, 1);
            if (o->r != NULL)
                busy++;
            else
                add(&t->error, 1);
            continue;
        }
        uint32_t dice = next_rand(&seed) % 100;
        if (dice < 3 && !o->cancelled) {
            o->cancelled = 1;
            fdc_cancel(o->r);
        }
        if (dice == 99) { /* disconnects without reading */
            fdc_req_free(o->r);
            memset(o, 0, sizeof(*o));
            busy--;
            continue;
        }
        if (step_one(o, t)) {
            end_one(o, t);
            busy--;
        }
    }
    fdc_close(s);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: soak SOCKET N_CLIENTS N_REQUESTS SEED VOCAB\n");
        return 64;
    }
    unsigned n_client = (unsigned)atoi(argv[2]);
    unsigned long n_req = strtoul(argv[3], NULL, 10);
    uint64_t seed = strtoull(argv[4], NULL, 10);
    uint32_t vocab = (uint32_t)atoi(argv[5]);
    struct tally *t =
        mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t *pid = calloc(n_client, sizeof(*pid));
    if (t == MAP_FAILED || pid == NULL || n_client == 0)
        return 71;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (unsigned i = 0; i < n_client; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(client(argv[1], n_req / n_client + (i < n_req % n_client),
                seed + i * 977 + 1, vocab, t));
    }
    /* Each kill is replaced, so that the load goes on. */
    unsigned killed = 0;
    for (unsigned k = 0; k < n_client / 4; k++) {
        usleep(20000 + next_rand(&seed) % 60000);
        unsigned i = next_rand(&seed) % n_client;
        if (waitpid(pid[i], NULL, WNOHANG) == 0) {
            kill(pid[i], SIGKILL);
            waitpid(pid[i], NULL, 0);
            killed++;
        }
        pid[i] = fork();
        if (pid[i] == 0)
            _exit(client(argv[1], n_req / n_client / 2 + 1, seed + 31337, vocab, t));
    }
    int bad = 0;
    for (unsigned i = 0; i < n_client; i++) {
        int st;
        if (waitpid(pid[i], &st, 0) > 0 && (!WIFEXITED(st) || WEXITSTATUS(st) != 0)) {
            fprintf(stderr, "soak: client %u ended with status %x\n", i, (unsigned)st);
            bad = 1;
        }
    }
    printf("started %lu accepted %lu done %lu cancelled %lu refused %lu error %lu tokens %lu "
           "killed clients %u missing %lu double %lu short %lu\n",
        t->started, t->accepted, t->done, t->cancelled, t->refused, t->error, t->tokens,
        killed, t->missing, t->double_end, t->short_output);
    if (t->missing || t->double_end || t->error || t->short_output || t->done == 0)
        bad = 1;
    free(pid);
    return bad;
}
