/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal to libfdclient: a session that outlives its daemon, and requests that continue
 * with the next one. The state is in priv.h's structs; without fdc_open_opts.reconnect_ms
 * nothing here runs. Every function except fdc__dial() and fdc__session_free() is called
 * with mtx held.
 */
#ifndef FDD_LIBCLIENT_RECONNECT_H
#define FDD_LIBCLIENT_RECONNECT_H

#include "libclient/fdclient.h"
#include "libclient/fdproto.h"

#pragma GCC visibility push(hidden)

/* journal.c: the state with which a request continues on another daemon or worker. */
struct journal {
    struct fdp_req slot;  /* the request as first sent; the seed is ACCEPTED's */
    unsigned char *items; /* the items without PRIOR_IDS */
    uint32_t n_items;     /* bytes of items */
    uint32_t *ids;        /* output so far, prior_ids included */
    uint32_t n_ids, cap;
    uint32_t safe; /* number of these ids whose other records have all arrived */
    /* elements of each kind of record that the program has received */
    uint32_t n_prompt, n_prompt_text, n_text, n_lp, n_plp, n_tt, n_ptt;
    uint8_t accepted, ended, after_prompt_lp;
    uint8_t text_later;     /* n_text is unknown until the first TEXT */
    uint8_t live;           /* accepted by the current daemon */
    uint8_t n_try;          /* workers that died with it without an id in between */
    uint64_t t_submit;      /* its time limits count from here */
    uint64_t t_lost, retry; /* lost since, not sent again before; 0: not lost */
    struct fdp_error why;   /* the error with which it was lost */
    /* CHOICE_END of a sample that an error cuts off; dropped if the request continues */
    struct fdp_rec end; /* type 0: none */
    struct fdp_choice_end end_data;
};

/* reconnect.c */
struct reopen {
    uint32_t ms; /* 0: off */
    struct fdc_open_opts o;
    char path[108], name[32];
    int timer;    /* timerfd in the epoll set of fdc_fd() */
    int32_t down; /* 0: connected; else the status with which the daemon was lost */
    uint8_t dialing;
    uint32_t n_done;       /* times the session was opened again */
    uint32_t n_lost;       /* lost requests, which have no tag */
    uint32_t wait_ms;      /* next pause */
    uint64_t t_down, next; /* next: time of the next attempt or sending */
    uint8_t digest[32];    /* digest of the model, 0: not known */
};

struct sub;
struct ask;
struct fdc_req;

/* attach.c */
int fdc__dial(const struct fdc_open_opts *o, struct fdc **ret, struct fdc_open_error *e);
void fdc__session_free(struct fdc *s, int forked);
/* Of a descriptor that could not be made: the status, and errno if there are too many. */
int fdc__no_fd(int32_t *ret_os);

/* journal.c */
/* Makes the journal of a request that can be sent again; u is about to be sent. 0 or
 * E_NOMEM. */
int fdc__journal_new(struct fdc *s, struct sub *u, const struct ask *a);
void fdc__journal_free(struct journal *j);
/* Takes a record. Returns 1: deliver *h and *payload, cut to their new elements; 0: all
 * was delivered before; -1: it differs from what was delivered, the request cannot
 * continue. */
int fdc__journal_take(struct journal *j, struct fdp_rec *h, const unsigned char **payload);
/* Returns whether r continues after the error why of the daemon or the session. Depends
 * on why->code. */
int
fdc__journal_outlives(const struct fdc *s, struct fdc_req *r, const struct fdp_error *why);

/* reconnect.c */
/* Ends the session with status why, or makes it wait for another daemon. */
void fdc__die(struct fdc *s, int why);
/* r lost its place at the daemon: it is to be sent again. */
void fdc__lose(struct fdc_req *r, const struct fdp_error *why);
/* Does what is due: opens the session again, sends lost requests. May release mtx. */
void fdc__revive(struct fdc *s);

#pragma GCC visibility pop

#endif
