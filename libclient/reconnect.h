/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside libfdclient: a session that outlives its daemon, and requests that go on. What
 * that takes is in priv.h's structs; without fdc_open_opts.reconnect_ms nothing here runs.
 * Every function wants mtx held, but for fdc__dial() and fdc__session_free().
 */
#ifndef FDD_LIBCLIENT_RECONNECT_H
#define FDD_LIBCLIENT_RECONNECT_H

#include "libclient/fdclient.h"
#include "libclient/fdproto.h"

#pragma GCC visibility push(hidden)

/* journal.c: what a request needs to go on with another daemon or worker. */
struct journal {
    struct fdp_req slot;  /* as it was first sent; the seed is ACCEPTED's */
    unsigned char *items; /* without PRIOR_IDS */
    uint32_t n_items;     /* bytes */
    uint32_t *ids;        /* output so far, prior_ids included */
    uint32_t n_ids, cap;
    uint32_t safe; /* of these ids all that belongs to them has come */
    /* elements that the program has of each kind of record, by position */
    uint32_t n_prompt, n_prompt_text, n_text, n_lp, n_plp, n_tt, n_ptt;
    uint8_t accepted, ended, after_prompt_lp;
    uint8_t text_later;     /* n_text is not known before the first TEXT */
    uint8_t live;           /* accepted by the daemon that has it now */
    uint8_t n_try;          /* workers that died with it, no id in between */
    uint64_t t_submit;      /* its limits in time count from here */
    uint64_t t_lost, retry; /* since when, and not again before; 0: not lost */
    struct fdp_error why;   /* how it was lost */
    /* CHOICE_END of a sample that an error cuts off: nothing, if it goes on */
    struct fdp_rec end; /* type 0: none */
    struct fdp_choice_end end_data;
};

/* reconnect.c */
struct reopen {
    uint32_t ms; /* 0: off */
    struct fdc_open_opts o;
    char path[108], name[32];
    int timer;    /* in the epoll of fdc_fd() */
    int32_t down; /* 0: there is a daemon; else how it went */
    uint8_t dialing;
    uint32_t n_done;       /* times it came back */
    uint32_t n_lost;       /* requests without a tag */
    uint32_t wait_ms;      /* next pause */
    uint64_t t_down, next; /* next: try again, or send the first of the lost ones */
    uint8_t digest[32];    /* of the model, 0: not known */
};

struct sub;
struct ask;
struct fdc_req;

/* attach.c */
int fdc__dial(const struct fdc_open_opts *o, struct fdc **ret, struct fdc_open_error *e);
void fdc__session_free(struct fdc *s, int forked);

/* journal.c */
/* For a request that can be sent again; u is about to be sent. E_NOMEM. */
int fdc__journal_new(struct fdc *s, struct sub *u, const struct ask *a);
void fdc__journal_free(struct journal *j);
/* Takes a record: 1: deliver *h and *payload, cut to what is new; 0: all was delivered
 * before; -1: it is not what went before, the request cannot go on. */
int fdc__journal_take(struct journal *j, struct fdp_rec *h, const unsigned char **payload);
/* May an error of the daemon, or of the session, be survived? why->code. */
int
fdc__journal_outlives(const struct fdc *s, struct fdc_req *r, const struct fdp_error *why);

/* reconnect.c */
/* The session is over for why, or waits for another daemon. */
void fdc__die(struct fdc *s, int why);
/* r lost its place at the daemon. */
void fdc__lose(struct fdc_req *r, const struct fdp_error *why);
/* What is due: opens the session again, sends lost requests. May release mtx. */
void fdc__revive(struct fdc *s);

#pragma GCC visibility pop

#endif
