/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdctl top: what the daemon does now, from its statistics segment and its
 * admin socket and nothing else. One thread, nothing blocks it for long.
 *
 *   top/top.c         the command, and what it keeps of the daemon
 *   top/term.c    terminal, keys, the loop
 *   top/data.c    counters to rates and quantiles, history
 *   top/link.c    the admin socket, without waiting
 *   top/rows.c    answers to rows: requests, users, clients; sorting
 *   top/canvas.c  cells, text, bars, sparklines, charts, numbers
 *   top/draw.c    the screen on a canvas; top/table.c its lower part
 *
 * The screen is drawn on a canvas first, which goes to ncurses or, with
 * --once, to a file. Text from the daemon is cleaned when it gets there.
 */
#ifndef FDD_TOOLS_FDCTL_TOP_TOP_H
#define FDD_TOOLS_FDCTL_TOP_TOP_H

#include <poll.h>

#include "daemon/common/counter.h"
#include "tools/fdctl/lib/fct.h"
#include "tools/fdctl/top/canvas.h"

#define TOP_MIN_W   60
#define TOP_MIN_H   12
#define TOP_HISTORY 1024u

/* ---- figures ------------------------------------------------------------- */

/* The counters at one moment. */
struct top_raw {
    uint64_t t_ns; /* CLOCK_MONOTONIC */
    uint64_t generation;
    struct cnt_gate g;
    struct cnt_worker w;
    struct cnt_hist h[CNT_H__N];
};

enum top_latency { TOP_L_TTFT, TOP_L_ITL, TOP_L_TPOT, TOP_L_QUEUE, TOP_L_E2E, TOP_L__N };

struct top_quant {
    double p50, p90, p99;
    uint64_t n;
}; /* ns or TOP_NONE */

/* An interval. Rates are per second, shares 0 to 1; TOP_NONE: it had none. */
struct top_rates {
    double secs;
    double in, in_cached, out;       /* tokens; in: prompts, cached ones too */
    double steps, busy;              /* busy: share in which the model ran */
    double step_ns, gap_ns;          /* mean of a step */
    double batch_seqs, batch_tokens; /* means of a step */
    double graph;                    /* share of the steps that were replayed */
    double kv, hit;                  /* blocks in use; found in the prefix cache */
    double done, errors, rejected, cancelled, preempted, evicted;
    struct top_quant lat[TOP_L__N];
};

/* Of this group, or CNT_ALL_GROUPS. */
void top_sample(const struct cnt_seg *seg, uint32_t group, uint64_t now_ns,
    struct top_raw *ret);
/* A counter that went down was reset: its growth is 0. */
void top_rates(const struct top_raw *old, const struct top_raw *now, struct top_rates *ret);
/* The value below which the share q of what the buckets count lies, evenly spread
 * within its range; the last bound for what is above it. TOP_NONE: empty. */
double top_quantile(const uint64_t *bucket, const struct cnt_hist_row *row, double q);

enum top_line { TOP_S_OUT, TOP_S_IN, TOP_S_BUSY, TOP_S_KV, TOP_S__N };
struct top_history {
    float v[TOP_S__N][TOP_HISTORY];
    size_t at, n;
};
/* r NULL: a gap. */
void top_history_add(struct top_history *h, const struct top_rates *r);
struct top_series top_history_line(const struct top_history *h, enum top_line line);

/* ---- rows ---------------------------------------------------------------- */

enum top_view { TOP_V_USERS, TOP_V_REQUESTS, TOP_V_CLIENTS, TOP_V__N };

/* Rows are JSON objects in a list: those of the daemon, with "running", "queued", "rate"
 * (output tokens per second, missing: not known yet) and "share" (of max_new, missing: no
 * limit was named). */

/* Answers to "requests" and "clients"; the old rows give the rates: what grew in secs. New
 * references. */
json_t *top_rows_requests(const json_t *answer, const json_t *old, double secs);
json_t *top_rows_clients(const json_t *answer, const json_t *requests);
/* One per user, of those two. */
json_t *top_rows_users(const json_t *requests, const json_t *clients);
/* TOP_NONE where there is none. */
double top_row_real(const json_t *row, const char *key);
int64_t top_row_id(const json_t *row);

enum top_kind { TOP_K_TEXT, TOP_K_INT, TOP_K_COUNT, TOP_K_RATE, TOP_K_AGE, TOP_K_BAR };
struct top_col {
    const char *name;
    int kind; /* enum top_kind */
    const char *key;
    int width;
    int from; /* shown on screens at least so wide */
    int down; /* sorted: the greatest first */
};
/* Columns of a view, the last one's name is NULL. */
const struct top_col *top_cols(enum top_view view);
/* By this column; equal ones by id and user. */
void top_rows_sort(json_t *rows, const struct top_col *col, int reverse);

/* ---- admin socket -------------------------------------------------------- */

enum top_ask {
    TOP_A_NONE,
    TOP_A_STATUS,
    TOP_A_REQUESTS,
    TOP_A_CLIENTS,
    TOP_A_CANCEL,
    TOP_A_DRAIN,
    TOP_A_PAUSE,
    TOP_A__N
};
#define TOP_ASKS   8
#define TOP_ASK_NS 1000000000u /* an answer that takes longer does not come */

struct top_link {
    char path[512];
    int fd;     /* -1: none */
    int failed; /* errno of the last connect, 0: none failed */
    struct {
        int what;
        char *line;
    } q[TOP_ASKS];    /* q[0] is being asked */
    size_t n_q, sent; /* bytes of q[0] sent */
    uint64_t t_asked; /* 0: q[0] waits */
    struct fct_in in;
    /* Called for each question. answer is borrowed; NULL: none came, and why has the reason. */
    void (*on_answer)(void *arg, int what, const json_t *answer, const char *why);
    void *arg;
};

void top_link_init(struct top_link *l, const char *path);
void top_link_fini(struct top_link *l);
/* Hang up; who asked gets no answer. */
void top_link_reset(struct top_link *l);
/* Takes over the reference. -EBUSY: too many are waiting; -EEXIST: this one is. */
int top_link_ask(struct top_link *l, int what, json_t *question);
/* Answers are outstanding. */
int top_link_busy(const struct top_link *l);
/* What to wait for; ns until top_link_step() must be called, at most max_ns. */
uint64_t top_link_wait(const struct top_link *l, uint64_t now_ns, uint64_t max_ns,
    struct pollfd *ret);
/* Go on as far as it goes. */
void top_link_step(struct top_link *l, uint64_t now_ns);

/* ---- the screen ---------------------------------------------------------- */

struct top {
    const struct fct *f;
    const struct cnt_seg *seg;
    uint32_t group; /* shown; CNT_ALL_GROUPS */
    int32_t gate_pid;
    uint64_t boot_id[2];
    int gone;   /* the daemon has ended, the figures are its last */
    int silent; /* it does not move: s since it did, 0: it does */
    int has_rates;
    struct top_raw raw, base; /* base: begin of the interval shown */
    struct top_rates r;
    struct top_history hist;
    uint64_t t_moved; /* when uptime_ns last changed */
    char clock[16];   /* of the sample: "14:02:11" */

    struct top_link link;
    json_t *status;              /* the answer, NULL: not known */
    json_t *rows[TOP_V__N];      /* NULL: none */
    uint64_t t_rows;             /* of the last answer to "requests" */
    uint64_t t_asked, t_may_ask; /* requests and clients cost the gate time */
    char deny[512];              /* why there are no rows: "error\nfix" */

    int view; /* enum top_view */
    int sort[TOP_V__N], reverse[TOP_V__N];
    char sel_user[40]; /* the row that is followed: its id, of users the name */
    int64_t sel_id;    /* "" and -1: none is */
    size_t sel, first; /* place of the selected row; the first row shown */
    int page;          /* rows that fit, of the last drawing */
    int frozen, help, once;
    int ask; /* enum top_ask whose y/n is open */
    int64_t ask_id;
    int ask_off;
    char message[600]; /* last answer, "" none */
    int message_bad;
    int message_own; /* of a query that the user did not make */
    double interval;
};

/* Fill t with this moment; rates are those since the last time. */
void top_update(struct top *t, uint64_t now_ns);
void top_ask_all(struct top *t, uint64_t now_ns);
/* Go over to a new daemon, if there is one. */
void top_reconnect(struct top *t, uint64_t now_ns);
void top_sort_view(struct top *t, int view);
void top_say(struct top *t, int is_bad, const char *text);
int top_is_paused(const struct top *t);
void top_set_clock(struct top *t);
/* Wait for keys (unless once), answers or t_next, with these signals blocked. 0, or
 * -EIO: the terminal has gone. */
int top_wait_for(struct top *t, uint64_t t_next, const sigset_t *sigs, int *ret_keys);
/* Until a key or signal ends it; an exit code. */
int top_terminal(struct top *t, int utf8, int no_color);

/* Draw it all. Sets page and first, so that the selected row is on the screen. */
void top_draw(struct top *t, struct top_canvas *c);
/* The lower part: lines y to y_end. */
void top_draw_table(struct top *t, struct top_canvas *c, int y, int y_end);
/* The row selected, NULL: there is none. */
const json_t *top_selected(const struct top *t);
/* After new rows, another order or another view: sel follows sel_id. */
void top_select(struct top *t);

#endif
