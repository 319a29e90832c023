/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to fdd. The main thread has a session for requests, in whose descriptor its
 * loop sleeps. What the library does blocking (connect, ask for the model, read its
 * files, tokenize) a helper thread does, over a session of its own; its results come
 * back through a descriptor and are handed on in the main thread.
 */
#ifndef FDD_HTTP_LINK_H
#define FDD_HTTP_LINK_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/fdclient.h"

enum link_kind { LNK_LOOK, LNK_TOKENIZE, LNK_DETOKENIZE };

struct link_job {
    enum link_kind kind;
    void (*done)(struct link_job *job); /* in the main thread; it frees the job */
    void *arg;                          /* the asker's; NULL once it is not interested */
    uint32_t flags;                     /* of fdc_tokenize() and fdc_detokenize() */
    char *text;                         /* malloc()ed, as all that follows */
    size_t n_text;
    struct fdc_span *spans; /* of text: names of special tokens there are text */
    size_t n_spans;
    uint32_t *ids;
    size_t n_ids;
    int want_main; /* LOOK: open the main session too */
    /* what came of it */
    int rc;      /* enum fdp_status */
    fdc_t *main; /* LOOK: a new session, or NULL */
    struct fdc_model_info info;
    char *template_text, *tokenizer_config; /* LOOK: files of the model, or NULL */
    size_t template_n, config_n;
    struct link_job *next;
};

struct link {
    fdc_t *main; /* NULL: not connected */
    int wake;    /* descriptor: results are there */
    char path[512];
    struct fdc_model_info model; /* vocab 0: not ready */
    int looking;
    uint64_t look_at_ms; /* when to look again */
    /* between the threads, under lock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct link_job *todo, *todo_end, *results;
    int end, has_thread;
};

/* path "": fdc_default_socket(). 0 or -errno. */
int link_init(struct link *l, const char *path);
/* Ends the thread, which may take as long as its call does, and both sessions. */
void link_fini(struct link *l);
/* A zeroed job; NULL: no memory. */
struct link_job *
link_job_new(enum link_kind kind, void (*done)(struct link_job *), void *arg);
void link_job_free(struct link_job *job);
/* Hand a job over. */
void link_ask(struct link *l, struct link_job *job);
/* Results that are there: done() of each. */
void link_take(struct link *l);

#endif
