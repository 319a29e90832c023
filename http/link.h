/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The link of one loop to one daemon. The loop has a session for requests and sleeps on
 * its descriptor. Blocking calls of the library (connect, query the model, read its
 * files, tokenize) run on a helper thread with a session of its own, whose results come
 * back through the loop's inbox. A daemon that does not answer delays no other.
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
    void (*done)(struct link_job *job);  /* called in the loop; frees the job */
    void (*shape)(struct link_job *job); /* helper thread, after success: fills out */
    void *arg;                           /* of the caller; NULL: it dropped the job */
    uint32_t flags;                      /* of fdc_tokenize() and fdc_detokenize() */
    char *text;                          /* malloc()ed, like spans and ids */
    size_t n_text;
    struct fdc_span *spans; /* ranges of text in which names of special tokens are text */
    size_t n_spans;
    uint32_t *ids;
    size_t n_ids;
    int want_strs; /* TOKENIZE: the vocabulary too */
    int want_main; /* LOOK: open the main session too */
    /* results */
    int rc;                    /* enum fdp_status */
    const struct vocab *vocab; /* TOKENIZE with want_strs: valid only during shape() */
    struct buf out;
    fdc_t *main;    /* LOOK: a new session, or NULL */
    int is_trusted; /* LOOK: requests may name a user */
    struct fdc_model_info info;
    char *template_text, *tokenizer_config; /* LOOK: files of the model, or NULL */
    size_t template_n, config_n;
    uint32_t *special; /* LOOK: ids of its special tokens, ascending; NULL: not known */
    uint32_t n_special;
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
    struct stats stats;          /* of the daemon, as the loop has last seen them */
    int is_touched;      /* requests were submitted or ended since take_records() */
    int looking;         /* a LOOK job runs */
    uint64_t look_at_ms; /* when to start the next one */
    uint32_t n_gen;      /* its generating requests */
    int is_leaving;      /* takes no requests; freed when it has none left */
    int is_ended;        /* its thread was told to end */
    struct gen *waiting, *waiting_end; /* requests that wait for room in the session */
    /* shared by the two threads, under lock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct link_job *todo, *todo_end;
    int end, has_thread;
    struct post ended; /* message that the thread has ended */
};

/* A link with its thread; NULL: no memory or no thread. ended: called in the loop when
 * the thread has ended after link_end(); it calls link_free(). */
struct link *
link_new(struct gw *g, const struct served *conf, void (*ended)(struct post *p));
/* Tell the thread to end once its current call has returned. */
void link_end(struct link *l);
/* Waits for the thread; ends both sessions. */
void link_free(struct link *l);
/* Path of the daemon's socket, for messages. */
const char *link_path(const struct link *l);
/* The daemon's statistics now; see sta_get(). */
const struct cnt_seg *link_stats(struct link *l);
/* A zeroed job; NULL: no memory. */
struct link_job *
link_job_new(enum link_kind kind, void (*done)(struct link_job *), void *arg);
void link_job_free(struct link_job *job);
/* Hand a job to the helper thread. */
void link_ask(struct link *l, struct link_job *job);

#endif
