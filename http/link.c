/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LNK_TIMEOUT_MS   10000
#define LNK_RECONNECT_MS 30000 /* requests go on with a daemon that is back by then */
#define LNK_ARENA        (8u << 20) /* of the main session: the longest prompt */

/* ---- the helper thread ------------------------------------------------------------ */

static int
open_session(const struct link *l, const char *name, uint32_t arena, fdc_t **ret)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = l->path[0] != '\0' ? l->path : NULL,
        .name = name,
        .spin_us = FDC_SPIN_NONE,
        .sq_slots = arena != 0 ? 1024 : 0,
        .cq_slots = arena != 0 ? 16384 : 0,
        .arena_bytes = arena,
        .reconnect_ms = arena != 0 ? LNK_RECONNECT_MS : 0 };
    int rc = fdc_open(&o, ret);

    /* A daemon whose sessions are smaller says so; its own size then. */
    if (rc == FDC_E_LIMIT && arena != 0) {
        o.sq_slots = o.cq_slots = o.arena_bytes = 0;
        rc = fdc_open(&o, ret);
    }
    return rc;
}

static void
read_file(fdc_t *s, const char *name, char **ret, size_t *ret_n)
{
    if (fdc_file(s, name, ret, ret_n, LNK_TIMEOUT_MS) != 0) {
        *ret = NULL;
        *ret_n = 0;
    }
}

static void
look(const struct link *l, fdc_t **side, struct link_job *job)
{
    struct fdc_info info = { .size = sizeof(info), .model = &job->info };

    if (*side == NULL)
        job->rc = open_session(l, "fdd-http helper", 0, side);
    if (job->rc == 0 && job->want_main)
        job->rc = open_session(l, "fdd-http", LNK_ARENA, &job->main);
    job->info.size = sizeof(job->info);
    if (job->rc == 0)
        job->rc = fdc_info(*side, &info, LNK_TIMEOUT_MS);
    if (job->rc != 0 || job->info.vocab == 0)
        return;
    read_file(*side, "chat_template.jinja", &job->template_text, &job->template_n);
    read_file(*side, "tokenizer_config.json", &job->tokenizer_config, &job->config_n);
}

static void
work(const struct link *l, fdc_t **side, struct link_job *job)
{
    if (*side != NULL && fdc_state(*side, NULL) < 0) {
        fdc_close(*side);
        *side = NULL;
    }
    if (job->kind == LNK_LOOK)
        look(l, side, job);
    else if (*side == NULL)
        job->rc = FDC_E_DISCONNECTED;
    else if (job->kind == LNK_TOKENIZE)
        job->rc = fdc_tokenize_spans(*side, job->text, job->n_text, job->flags,
            job->spans, job->n_spans, &job->ids, &job->n_ids, LNK_TIMEOUT_MS);
    else
        job->rc = fdc_detokenize(*side, job->ids, job->n_ids, job->flags, &job->text,
            &job->n_text, LNK_TIMEOUT_MS);
}

static void *
run(void *arg)
{
    struct link *l = arg;
    fdc_t *side = NULL;
    static const uint64_t one = 1;

    (void)pthread_mutex_lock(&l->lock);
    for (;;) {
        struct link_job *job = l->todo;

        if (l->end)
            break;
        if (job == NULL) {
            (void)pthread_cond_wait(&l->more, &l->lock);
            continue;
        }
        l->todo = job->next;
        if (l->todo == NULL)
            l->todo_end = NULL;
        (void)pthread_mutex_unlock(&l->lock);
        work(l, &side, job);
        (void)pthread_mutex_lock(&l->lock);
        job->next = l->results;
        l->results = job;
        if (write(l->wake, &one, sizeof(one)) < 0)
            continue; /* the counter is full: the descriptor is readable already */
    }
    (void)pthread_mutex_unlock(&l->lock);
    fdc_close(side);
    return NULL;
}

/* ---- the main thread --------------------------------------------------------------- */

int
link_init(struct link *l, const char *path)
{
    int rc;

    memset(l, 0, sizeof(*l));
    (void)strncpy(l->path, path, sizeof(l->path) - 1);
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->more, NULL);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->wake < 0)
        return -errno;
    rc = pthread_create(&l->thread, NULL, run, l);
    l->has_thread = rc == 0;
    return -rc;
}

struct link_job *
link_job_new(enum link_kind kind, void (*done)(struct link_job *), void *arg)
{
    struct link_job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        return NULL;
    job->kind = kind;
    job->done = done;
    job->arg = arg;
    return job;
}

void
link_job_free(struct link_job *job)
{
    if (job == NULL)
        return;
    /* What the library returned is the library's to free; it uses malloc(), as we do. */
    fdc_free(job->text);
    fdc_free(job->ids);
    free(job->spans);
    fdc_free(job->template_text);
    fdc_free(job->tokenizer_config);
    free(job);
}

void
link_ask(struct link *l, struct link_job *job)
{
    job->next = NULL;
    (void)pthread_mutex_lock(&l->lock);
    if (l->todo_end != NULL)
        l->todo_end->next = job;
    else
        l->todo = job;
    l->todo_end = job;
    (void)pthread_cond_signal(&l->more);
    (void)pthread_mutex_unlock(&l->lock);
}

void
link_take(struct link *l)
{
    struct link_job *job, *next, *in_order = NULL;
    uint64_t n;

    if (read(l->wake, &n, sizeof(n)) < 0 && errno != EAGAIN)
        return;
    (void)pthread_mutex_lock(&l->lock);
    job = l->results;
    l->results = NULL;
    (void)pthread_mutex_unlock(&l->lock);
    for (; job != NULL; job = next) {
        next = job->next;
        job->next = in_order;
        in_order = job;
    }
    for (job = in_order; job != NULL; job = next) {
        next = job->next;
        job->done(job);
    }
}

static void
free_jobs(struct link_job *job)
{
    while (job != NULL) {
        struct link_job *next = job->next;

        fdc_close(job->main);
        link_job_free(job);
        job = next;
    }
}

void
link_fini(struct link *l)
{
    if (l->has_thread) {
        (void)pthread_mutex_lock(&l->lock);
        l->end = 1;
        (void)pthread_cond_signal(&l->more);
        (void)pthread_mutex_unlock(&l->lock);
        (void)pthread_join(l->thread, NULL);
    }
    free_jobs(l->todo);
    free_jobs(l->results);
    fdc_close(l->main);
    l->main = NULL;
    if (l->wake >= 0)
        (void)close(l->wake);
    (void)pthread_mutex_destroy(&l->lock);
    (void)pthread_cond_destroy(&l->more);
}
