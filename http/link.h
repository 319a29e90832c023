/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of one loop to one daemon. The loop has a session for requests, in whose
 * descriptor it sleeps. What the library does blocking (connect, ask for the model, read
 * its files, tokenize) a helper thread does, over a session of its own; its results come
 * back through the loop's inbox. A daemon that does not answer holds up no other.
 */
#ifndef FDD_HTTP_LINK_H
#define FDD_HTTP_LINK_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "http/buf.h"
#include "http/inbox.h"
#include "http/served.h"
#include "http/stats.h"
#include "http/vocab.h"
#include "libclient/fdclient.h"

struct gw;
struct gen;
struct model;

enum link_kind { LNK_LOOK, LNK_TOKENIZE, LNK_DETOKENIZE };

struct link_job {
    struct post post;
    enum link_kind kind;
    void (*done)(struct link_job *job);  /* in the loop; it frees the job */
    void (*shape)(struct link_job *job); /* on the helper thread, behind a success: out */
    void *arg;                           /* the asker's; NULL once it is not interested */
    uint32_t flags;                      /* of fdc_tokenize() and fdc_detokenize() */
    char *text;                          /* malloc()ed, as all that follows */
    size_t n_text;
    struct fdc_span *spans; /* of text: names of special tokens there are text */
    size_t n_spans;
    uint32_t *ids;
    size_t n_ids;
    int want_strs; /* TOKENIZE: the vocabulary too */
    int want_main; /* LOOK: open the main session too */
    /* what came of it */
    int rc;                    /* enum fdp_status */
    const struct vocab *vocab; /* TOKENIZE, for shape() alone */
    struct buf out;
    fdc_t *main;    /* LOOK: a new session, or NULL */
    int is_trusted; /* LOOK: requests may name a user */
    struct fdc_model_info info;
    char *template_text, *tokenizer_config; /* LOOK: files of the model, or NULL */
    size_t template_n, config_n;
    struct link_job *next;
};

struct link {
    struct gw *g;
    struct link *next;
    struct served conf;
    fdc_t *main;                 /* NULL: not connected */
    struct fdc_model_info model; /* vocab 0: not ready */
    struct model *served;        /* names, template and format; never NULL */
    int is_trusted;              /* requests may name a user */
    struct stats stats;          /* of the daemon, as the loop has seen them last */
    int is_touched; /* requests were submitted or ended since it was looked at */
    int looking;
    uint64_t look_at_ms;               /* when to look again */
    uint32_t n_gen;                    /* generating requests that it has */
    int is_leaving;                    /* no more requests; it goes when it has none */
    int is_ended;                      /* its thread was told to end */
    struct gen *waiting, *waiting_end; /* for room in the session */
    /* between the threads, under lock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct link_job *todo, *todo_end;
    int end, has_thread;
    struct post ended; /* the thread ends */
};

/* A link with its thread; NULL: no memory or no thread. ended: called in the loop when the
 * thread has ended behind link_end(); link_free() then. */
struct link *
link_new(struct gw *g, const struct served *conf, void (*ended)(struct post *p));
/* The thread ends once its call has returned. */
void link_end(struct link *l);
/* Waits for the thread; ends both sessions. */
void link_free(struct link *l);
/* The path for messages. */
const char *link_path(const struct link *l);
/* The daemon's statistics now; see sta_get(). */
const struct cnt_seg *link_stats(struct link *l);
/* A zeroed job; NULL: no memory. */
struct link_job *
link_job_new(enum link_kind kind, void (*done)(struct link_job *), void *arg);
void link_job_free(struct link_job *job);
/* Hand a job over. */
void link_ask(struct link *l, struct link_job *job);

#endif
