/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/link.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "http/gateway.h"
#include "http/model.h"

#define LNK_TIMEOUT_MS   10000
#define LNK_RECONNECT_MS 30000      /* requests continue if the daemon is back by then */
#define LNK_ARENA        (8u << 20) /* bytes of the main session's arena: longest prompt */

/* ---- the helper thread ------------------------------------------------------------ */

static int
open_session(const struct link *l, const char *name, uint32_t arena, fdc_t **ret)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = l->conf.socket[0] != '\0' ? l->conf.socket : NULL,
        .name = name,
        .spin_us = FDC_SPIN_NONE,
        .sq_slots = arena != 0 ? 1024 : 0,
        .cq_slots = arena != 0 ? 16384 : 0,
        .arena_bytes = arena,
        .reconnect_ms = arena != 0 ? LNK_RECONNECT_MS : 0 };
    int rc = fdc_open(&o, ret);

    /* The daemon limits sessions to a smaller size: take its default. */
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

/* May requests of this process name a user? A request with a user and an invalid token id
 * is submitted: it is refused for its user if that is not allowed, else for the id. */
static int
is_trusted(fdc_t *side)
{
    static const uint32_t none = UINT32_MAX;
    struct fdc_submit_opts o = { .size = sizeof(o), .user = 1 };
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    int yes = 0;

    if (fdc_submit_ids(side, &none, 1, NULL, &o, &r) != 0)
        return 0;
    while (fdc_next(r, &ev, LNK_TIMEOUT_MS) == 1)
        if (ev.type == FDC_T_ERROR)
            yes = ev.error->detail != FDC_D_USER;
    fdc_req_free(r);
    return yes;
}

static int
read_vocabulary(fdc_t *side, struct vocab *v)
{
    char *file = NULL;
    size_t n = 0;
    int rc = v->file == NULL ? fdc_file(side, "vocabulary", &file, &n, LNK_TIMEOUT_MS) : 0;

    return rc == 0 && file != NULL && voc_take(v, file, n) != 0 ? FDC_E_NOMEM : rc;
}

static void
look(const struct link *l, fdc_t **side, struct link_job *job)
{
    struct fdc_info info = { .size = sizeof(info), .model = &job->info };
    struct vocab v = { NULL };

    if (*side == NULL)
        job->rc = open_session(l, "fdd-http helper", 0, side);
    if (job->rc == 0 && job->want_main)
        job->rc = open_session(l, "fdd-http", LNK_ARENA, &job->main);
    job->info.size = sizeof(job->info);
    if (job->rc == 0)
        job->rc = fdc_info(*side, &info, LNK_TIMEOUT_MS);
    if (job->rc != 0 || job->info.vocab == 0)
        return;
    job->is_trusted = is_trusted(*side);
    read_file(*side, "chat_template.jinja", &job->template_text, &job->template_n);
    read_file(*side, "tokenizer_config.json", &job->tokenizer_config, &job->config_n);
    if ((job->info.offers & FDC_HAS_FILE) != 0 && read_vocabulary(*side, &v) == 0 &&
        voc_special(&v, &job->special, &job->n_special) != 0)
        job->rc = FDC_E_NOMEM;
    voc_fini(&v);
}

static void
work(const struct link *l, fdc_t **side, struct vocab *v, struct link_job *job)
{
    if (*side != NULL && fdc_state(*side, NULL) < 0) {
        fdc_close(*side);
        *side = NULL;
    }
    if (job->kind == LNK_LOOK || *side == NULL)
        voc_fini(v); /* read it again: the model may have changed */
    if (job->kind == LNK_LOOK)
        look(l, side, job);
    else if (*side == NULL)
        job->rc = open_session(l, "fdd-http helper", 0, side);
    if (job->kind == LNK_LOOK || job->rc != 0)
        return;
    if (job->kind == LNK_TOKENIZE)
        job->rc = fdc_tokenize_spans(*side, job->text, job->n_text, job->flags,
            job->spans, job->n_spans, &job->ids, &job->n_ids, LNK_TIMEOUT_MS);
    else
        job->rc = fdc_detokenize(*side, job->ids, job->n_ids, job->flags, &job->text,
            &job->n_text, LNK_TIMEOUT_MS);
    if (job->rc == 0 && job->want_strs) {
        job->rc = read_vocabulary(*side, v);
        job->vocab = v;
    }
    if (job->rc == 0 && job->shape != NULL)
        job->shape(job);
}

static void *
run(void *arg)
{
    struct link *l = arg;
    struct vocab vocab = { NULL };
    fdc_t *side = NULL;

    (void)pthread_mutex_lock(&l->lock);
    while (!l->end) {
        struct link_job *job = l->todo;

        if (job == NULL) {
            (void)pthread_cond_wait(&l->more, &l->lock);
            continue;
        }
        l->todo = job->next;
        (void)pthread_mutex_unlock(&l->lock);
        work(l, &side, &vocab, job);
        ibx_put(&l->g->inbox, &job->post);
        (void)pthread_mutex_lock(&l->lock);
    }
    (void)pthread_mutex_unlock(&l->lock);
    fdc_close(side);
    voc_fini(&vocab);
    ibx_put(&l->g->inbox, &l->ended);
    return NULL;
}

/* ---- the loop ------------------------------------------------------------------------ */

struct link *
link_new(struct gw *g, const struct served *conf, void (*ended)(struct post *p))
{
    struct link *l = calloc(1, sizeof(*l));
    sigset_t all, was;

    if (l == NULL)
        return NULL;
    l->g = g;
    l->conf = *conf;
    l->ended.fn = ended;
    l->served = model_new(conf);
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->more, NULL);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &was);
    l->has_thread = l->served != NULL && pthread_create(&l->thread, NULL, run, l) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (l->has_thread)
        return l;
    link_free(l);
    return NULL;
}

void
link_end(struct link *l)
{
    (void)pthread_mutex_lock(&l->lock);
    l->end = 1;
    (void)pthread_cond_signal(&l->more);
    (void)pthread_mutex_unlock(&l->lock);
}

void
link_free(struct link *l)
{
    struct link_job *job;

    link_end(l);
    if (l->has_thread)
        (void)pthread_join(l->thread, NULL);
    while ((job = l->todo) != NULL) { /* jobs that were not begun */
        l->todo = job->next;
        job->rc = FDC_E_DISCONNECTED;
        job->done(job);
    }
    sta_fini(&l->stats);
    fdc_close(l->main);
    model_unref(l->served);
    (void)pthread_mutex_destroy(&l->lock);
    (void)pthread_cond_destroy(&l->more);
    free(l);
}

const char *
link_path(const struct link *l)
{
    return l->conf.socket[0] != '\0' ? l->conf.socket : fdc_default_socket();
}

const struct cnt_seg *
link_stats(struct link *l)
{
    return sta_get(&l->stats, l->conf.socket, l->g->now_ms);
}

/* post is the first member of struct link_job. */
static void
done(struct post *p)
{
    struct link_job *job = (struct link_job *)(void *)p;

    job->done(job);
}

struct link_job *
link_job_new(enum link_kind kind, void (*fn)(struct link_job *), void *arg)
{
    struct link_job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        return NULL;
    job->post.fn = done;
    job->kind = kind;
    job->done = fn;
    job->arg = arg;
    return job;
}

void
link_job_free(struct link_job *job)
{
    if (job == NULL)
        return;
    /* The library frees what it has returned; text and ids may be ours, as it too uses
     * malloc(). */
    fdc_close(job->main);
    fdc_free(job->text);
    fdc_free(job->ids);
    free(job->spans);
    fdc_free(job->template_text);
    fdc_free(job->tokenizer_config);
    free(job->special);
    buf_fini(&job->out);
    free(job);
}

void
link_ask(struct link *l, struct link_job *job)
{
    job->next = NULL;
    (void)pthread_mutex_lock(&l->lock);
    if (l->todo != NULL)
        l->todo_end->next = job;
    else
        l->todo = job;
    l->todo_end = job;
    (void)pthread_cond_signal(&l->more);
    (void)pthread_mutex_unlock(&l->lock);
}
