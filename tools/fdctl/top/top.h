/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdctl top: what the daemon does now, from its statistics segment and its
 * admin socket and nothing else. One thread, nothing blocks it for long.
 *
 *   top.c     the command: terminal, keys, the loop
 *   daemon.c  the admin socket, without waiting; what is kept of the daemon
 *   rows.c    counters to rates and quantiles; answers to rows: requests, users,
 *             clients; sorting, the row selected
 *   canvas.c  cells, text, bars, charts, numbers
 *   draw.c    the screen on a canvas
 *
 * The screen is drawn on a canvas first, which goes to ncurses or, with
 * --once, to a file. Text from the daemon is cleaned when it gets there.
 */
#ifndef FDD_TOOLS_FDCTL_TOP_TOP_H
#define FDD_TOOLS_FDCTL_TOP_TOP_H

#include <poll.h>

#include "tools/fdctl/lib/fct.h"

#define TOP_MIN_W 60
#define TOP_MIN_H 12

/* ---- canvas --------------------------------------------------------------
 * Cells of a screen: text, bars, sparklines, charts, and numbers as short text.
 * Where they are shown is not its business. */

#define TOP_NONE (-1.0) /* a figure that the interval does not give */

/* What a cell means; top.c knows how it looks. */
enum top_attr {
    TOP_PLAIN,
    TOP_NAME,
    TOP_VALUE,
    TOP_DIM,
    TOP_GOOD,
    TOP_WARN,
    TOP_BAD,
    TOP_BAR,
    TOP_HEAD,
    TOP_SELECTED,
    TOP_ATTR__N
};

struct top_cell {
    uint32_t ch; /* Unicode; 0: right half of the one before */
    uint8_t attr;
};

struct top_canvas {
    int w, h;
    int utf8;              /* else ASCII only */
    int dim;               /* everything is old: TOP_DIM whatever was asked */
    struct top_cell *cell; /* [h * w]; to be freed with free() */
};

/* 0 or -ENOMEM; blank. w and h at least 1. */
int top_canvas_init(struct top_canvas *c, int w, int h, int utf8);
/* Text at (y, x), UTF-8, cut at column x_end (<= 0: the canvas' width). Control
 * characters become '?', as does what the canvas cannot show. Returns the column
 * behind it. Outside of the canvas nothing is written. */
int top_text(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr,
    const char *text);
int top_print(struct top_canvas *c, int y, int x, enum top_attr attr, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Text that ends at column x_end. */
void
top_right(struct top_canvas *c, int y, int x_end, enum top_attr attr, const char *text);
/* Lines of it, broken at blanks, from y on, before y_end, between x and x_end. Returns the
 * line behind it. Outside of the canvas lines are counted. */
int top_wrapped(struct top_canvas *c, int y, int y_end, int x, int x_end,
    enum top_attr attr, const char *text);
/* The line gets this attribute, whatever is in it. */
void top_paint(struct top_canvas *c, int y, enum top_attr attr);
/* Columns that the text takes. */
int top_width(const char *text);
/* w cells, filled by share (0 to 1), in brackets. */
void top_bar(struct top_canvas *c, int y, int x, int w, double share);
/* What a figure was; below 0: a gap. All 0: nothing yet. */
#define TOP_HISTORY 1024u
struct top_history {
    float v[TOP_HISTORY];
    size_t n; /* added; the newest is v[(n - 1) % TOP_HISTORY] */
};
void top_history_add(struct top_history *h, double v);
/* Highest of the last w values. */
double top_history_max(const struct top_history *h, int w);
/* The last w values, newest right, h cells high, full at max. */
void top_chart(struct top_canvas *c, int y, int x, int w, int h,
    const struct top_history *s, double max);
/* The canvas as lines without trailing blanks, the last empty ones left out. */
void top_canvas_print(const struct top_canvas *c, FILE *out);

/* A number as short text; TOP_NONE is "-". ret has 24 bytes. */
enum top_form {
    TOP_TEXT,  /* no number */
    TOP_INT,   /* -3: all its digits */
    TOP_COUNT, /* 1,234,567 or 12.3M */
    TOP_RATE,  /* 0.4, 12.3, 1,234 */
    TOP_NS,    /* 850 ns, 12.3 us, 1.23 s */
    TOP_SHARE, /* 45 % */
    TOP_BYTES, /* 64 MiB */
    TOP_AGE    /* of ms: 12.3 s, 5 m 03, 2 h 05, 3 d */
};
const char *top_form(enum top_form form, double v, char *ret);
/* The same as a text of the block that it stands in. */
#define TOP_FORM(form, v) top_form(form, v, (char[24]){ 0 })

/* ---- figures ------------------------------------------------------------- */

enum top_latency { TOP_L_TTFT, TOP_L_ITL, TOP_L_TPOT, TOP_L_QUEUE, TOP_L_E2E, TOP_L__N };

struct top_quant {
    double p50, p90, p99, n;
}; /* ns, and how many were seen; or TOP_NONE */

/* An interval. Rates are per second, shares 0 to 1; TOP_NONE: it had none. */
struct top_rates {
    double in, in_cached, out;       /* tokens; in: prompts, cached ones too */
    double steps, busy;              /* busy: share in which the model ran */
    double step_ns, gap_ns;          /* mean of a step */
    double batch_seqs, batch_tokens; /* means of a step */
    double graph;                    /* share of the steps that were replayed */
    double kv, hit;                  /* blocks in use; found in the prefix cache */
    double done, errors, rejected, cancelled, preempted, evicted;
    struct top_quant lat[TOP_L__N];
};

/* What changed in secs; 0: nothing is known yet. A counter that went down was reset: its
 * growth is 0. */
void top_rates(const struct cnt_seg *old, const struct cnt_seg *now, double secs,
    struct top_rates *ret);
/* The value below which the share q of what the buckets count lies, evenly spread
 * within its range; the last bound for what is above it. TOP_NONE: empty. */
double top_quantile(const uint64_t *bucket, const struct cnt_hist_row *row, double q);

/* Figures whose history is shown. */
enum top_line { TOP_S_OUT, TOP_S_IN, TOP_S_BUSY, TOP_S_KV, TOP_S__N };

/* ---- rows ---------------------------------------------------------------- */

enum top_view { TOP_V_USERS, TOP_V_REQUESTS, TOP_V_CLIENTS, TOP_V__N };

/* Rows are JSON objects in a list: those of the daemon, with "running", "queued", "rate"
 * (output tokens per second) and "share" (of max_new), which are TOP_NONE where they are
 * not known. */

/* Answers to "requests" and "clients"; the old rows give the rates: what grew in secs. New
 * references. */
json_t *top_rows_requests(const json_t *answer, const json_t *old, double secs);
json_t *top_rows_clients(const json_t *answer, const json_t *requests);
/* One per user, of those two. */
json_t *top_rows_users(const json_t *requests, const json_t *clients);
int64_t top_row_id(const json_t *row);

struct top_col {
    const char *name;   /* NULL: behind the last one */
    enum top_form form; /* TOP_SHARE: a bar */
    const char *key;
    int width;
    int from; /* shown on screens at least so wide */
};
/* Is it sorted with the greatest first? Texts and ids are not. */
#define TOP_IS_DOWN(col) ((col)->form > TOP_INT)
extern const struct top_table {
    const char *title, *key; /* key: the member that tells its rows apart */
    const struct top_col *cols;
    const char *cancel; /* the key k: template of what is asked; of users, what is said */
} top_tables[TOP_V__N];
/* By this column; equal ones by id and user. */
void top_rows_sort(json_t *rows, const struct top_col *col, int reverse);

/* ---- admin socket -------------------------------------------------------- */

#define TOP_ASK_NS 1000000000u /* an answer that takes longer does not come */

/* Called for each question. answer is borrowed; NULL: none came, and why has the reason. */
typedef void top_answer(void *arg, const char *cmd, const json_t *answer, const char *why);
struct top_link {
    const char *path;
    struct fct_admin admin;
    int failed;       /* errno of the last connect, 0: none failed */
    json_t *q;        /* questions by their "cmd", of which the first is being asked: */
    uint64_t t_asked; /* of it; 0: it waits */
    top_answer *on_answer;
    void *arg;
};

/* path is borrowed. */
void top_link_init(struct top_link *l, const char *path, top_answer *on_answer, void *arg);
/* Who asked gets no answer. */
void top_link_fini(struct top_link *l);
/* Takes over the reference. -EEXIST: one with this "cmd" is waiting; or -ENOMEM. */
int top_link_ask(struct top_link *l, json_t *question);
/* What to wait for; ns until top_link_step() must be called, at most max_ns. */
uint64_t top_link_wait(const struct top_link *l, uint64_t now_ns, uint64_t max_ns,
    struct pollfd *ret);
/* Go on as far as it goes. */
void top_link_step(struct top_link *l, uint64_t now_ns);

/* ---- the screen ---------------------------------------------------------- */

struct top {
    uint32_t group; /* shown; CNT_ALL_GROUPS */
    double interval;
    int once, ascii, no_color; /* options */
    int utf8;
    const struct fct *f;
    const struct cnt_seg *seg;
    int gone;           /* the daemon has ended, the figures are its last */
    int silent;         /* it does not move: s since it did, 0: it does */
    struct cnt_seg raw; /* of the group at t_raw */
    uint64_t t_raw;     /* 0: none */
    struct top_rates r; /* of the interval before */
    struct top_history hist[TOP_S__N];
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
    json_t *followed;  /* the key of the row that is; NULL: none */
    size_t sel, first; /* place of the selected row; the first row shown */
    int page;          /* rows that fit, of the last drawing */
    int frozen, help;
    json_t *ask;       /* the question whose y/n is open; NULL: none */
    char message[600]; /* last answer, "" none */
    int message_bad;
    int message_own; /* of a query that the user did not make */
    uint64_t t_next; /* when the interval ends */
};

/* Fill t with this moment; rates are those since the last time. */
void top_update(struct top *t, uint64_t now_ns);
/* The rates become the newest of the history. */
void top_remember(struct top *t);
void top_ask_all(struct top *t, uint64_t now_ns);
/* Begin with this daemon; what there was of another is closed. */
void top_adopt(struct top *t, const struct cnt_seg *seg, uint64_t now_ns);
/* Go over to a new daemon, if there is one: 1. */
int top_reconnect(struct top *t, uint64_t now_ns);
void top_say(struct top *t, int is_bad, const char *text);

/* Draw it all. Sets page and first, so that the selected row is on the screen. */
void top_draw(struct top *t, struct top_canvas *c);
/* The row selected, NULL: there is none. */
const json_t *top_selected(const struct top *t);
/* Follow this row; NULL: what is in its place. */
void top_follow(struct top *t, const json_t *row);
/* After new rows, another order or another view: sorts, and sel is where the row followed
 * is. */
void top_select(struct top *t);

#endif
