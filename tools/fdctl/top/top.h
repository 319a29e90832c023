/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdctl top: shows the daemon's load, read only from its statistics segment and its admin
 * socket. One thread, which never blocks for long.
 *
 *   top.c     the command: terminal, keys, the loop
 *   daemon.c  the admin socket, without blocking; the state read from the daemon
 *   rows.c    rates and quantiles from counters; rows of requests, users and clients
 *             from answers; sorting, the selected row
 *   canvas.c  cells, text, bars, charts, numbers
 *   draw.c    the screen on a canvas
 *
 * The screen is drawn on a canvas first, which goes to ncurses or, with
 * --once, to a file. top_text() replaces control characters in the daemon's texts.
 */
#ifndef FDD_TOOLS_FDCTL_TOP_TOP_H
#define FDD_TOOLS_FDCTL_TOP_TOP_H

#include <poll.h>

#include "tools/fdctl/lib/fct.h"

#define TOP_MIN_W 60
#define TOP_MIN_H 12

/* ---- canvas --------------------------------------------------------------
 * Cells of a screen: text, bars, sparklines, charts, and numbers as short text. */

#define TOP_NONE (-1.0) /* the interval has no such figure */

/* Meaning of a cell; top.c maps it to colours. */
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
    uint32_t ch; /* Unicode; 0: right half of the wide character before it */
    uint8_t attr;
};

struct top_canvas {
    int w, h;
    int utf8;              /* else ASCII only */
    int dim;               /* the figures are old: all but TOP_HEAD is TOP_DIM */
    struct top_cell *cell; /* [h * w]; to be freed with free() */
};

/* Make a blank canvas; w and h are at least 1. Returns 0 or -ENOMEM. */
int top_canvas_init(struct top_canvas *c, int w, int h, int utf8);
/* Write UTF-8 text at (y, x), cut at column x_end (<= 0: the canvas' width). Control
 * characters and those that the canvas cannot show become '?'. Returns the column after
 * the text. Nothing is written outside the canvas. */
int top_text(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr,
    const char *text);
int top_print(struct top_canvas *c, int y, int x, enum top_attr attr, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Write text that ends at column x_end. */
void
top_right(struct top_canvas *c, int y, int x_end, enum top_attr attr, const char *text);
/* Write text in lines broken at blanks, from y to before y_end, between x and x_end.
 * Returns the line after it. Lines outside the canvas count too. */
int top_wrapped(struct top_canvas *c, int y, int y_end, int x, int x_end,
    enum top_attr attr, const char *text);
/* Set this attribute in all cells of a line. */
void top_paint(struct top_canvas *c, int y, enum top_attr attr);
/* Width of a text in columns. */
int top_width(const char *text);
/* w cells, filled by share (0 to 1), in brackets. */
void top_bar(struct top_canvas *c, int y, int x, int w, double share);
/* The past values of a figure; a value below 0 is a gap. All 0: empty. */
#define TOP_HISTORY 1024u
struct top_history {
    float v[TOP_HISTORY];
    size_t n; /* values added; the newest is v[(n - 1) % TOP_HISTORY] */
};
void top_history_add(struct top_history *h, double v);
double top_history_max(const struct top_history *h, int w); /* of the last w values */
/* Draw the last w values, the newest at the right, h cells high; max fills the height. */
void top_chart(struct top_canvas *c, int y, int x, int w, int h,
    const struct top_history *s, double max);
/* Print the lines without trailing blanks and without empty lines at the end. */
void top_canvas_print(const struct top_canvas *c, FILE *out);

/* A number as short text; TOP_NONE is "-". ret has 24 bytes. */
enum top_form {
    TOP_TEXT,  /* not a number */
    TOP_INT,   /* -3, all digits */
    TOP_COUNT, /* 1,234,567 or 12.3M */
    TOP_RATE,  /* 0.4, 12.3, 1,234 */
    TOP_NS,    /* 850 ns, 12.3 us, 1.23 s */
    TOP_SHARE, /* 45 % */
    TOP_BYTES, /* 64 MiB */
    TOP_AGE    /* of ms: 12.3 s, 5 m 03, 2 h 05, 3 d */
};
const char *top_form(enum top_form form, double v, char *ret);
/* top_form() into a temporary that lives as long as the enclosing block. */
#define TOP_FORM(form, v) top_form(form, v, (char[24]){ 0 })

/* ---- figures ------------------------------------------------------------- */

enum top_latency { TOP_L_TTFT, TOP_L_ITL, TOP_L_TPOT, TOP_L_QUEUE, TOP_L_E2E, TOP_L__N };

struct top_quant {
    double p50, p90, p99, n;
}; /* quantiles in ns, n: number of values; or TOP_NONE */

/* Figures of an interval. Rates are per second, shares 0 to 1; TOP_NONE: no value. */
struct top_rates {
    double in, in_cached, out;       /* tokens; in: prompts, cached ones too */
    double steps, busy;              /* busy: share of the time in which the model ran */
    double step_ns, gap_ns;          /* mean of a step */
    double batch_seqs, batch_tokens; /* means of a step */
    double graph;                    /* share of the steps that replayed a CUDA graph */
    double kv, hit;                  /* shares: KV blocks in use, prefix cache hits */
    double done, errors, rejected, cancelled, preempted, evicted;
    struct top_quant lat[TOP_L__N];
};

/* Rates from two samples that are secs apart; secs 0: none is known yet. A counter that
 * fell was reset and counts as unchanged. */
void top_rates(const struct cnt_seg *old, const struct cnt_seg *now, double secs,
    struct top_rates *ret);
/* Quantile q, spread evenly within a bucket, at most the last bound; TOP_NONE: empty. */
double top_quantile(const uint64_t *bucket, const struct cnt_hist_row *row, double q);

/* Figures with a chart of their history. */
enum top_line { TOP_S_OUT, TOP_S_IN, TOP_S_BUSY, TOP_S_KV, TOP_S__N };

/* ---- rows ---------------------------------------------------------------- */

enum top_view { TOP_V_USERS, TOP_V_REQUESTS, TOP_V_CLIENTS, TOP_V__N };

/* Rows are a list of the daemon's JSON objects, with "running", "queued", "rate" (output
 * tokens per second) and "share" (of max_new) added; the last two may be TOP_NONE. */

/* Rows from the answers to "requests" and "clients"; the rates are the growth since the
 * old rows, secs ago. New references. */
json_t *top_rows_requests(const json_t *answer, const json_t *old, double secs);
json_t *top_rows_clients(const json_t *answer, const json_t *requests);
/* One row per user, from the rows of requests and clients. */
json_t *top_rows_users(const json_t *requests, const json_t *clients);
int64_t top_row_id(const json_t *row);

struct top_col {
    const char *name;   /* NULL: end of the list */
    enum top_form form; /* TOP_SHARE: a bar */
    const char *key;
    int width;
    int from; /* width of the screen from which on it is shown */
};
/* Is it sorted with the greatest value first? Texts and ids are not. */
#define TOP_IS_DOWN(col) ((col)->form > TOP_INT)
extern const struct top_table {
    const char *title, *key; /* key: the member that identifies a row */
    const struct top_col *cols;
    const char *cancel; /* key k: template of the y/n question; for users, a message */
} top_tables[TOP_V__N];
/* Sort by this column, then by id and user. */
void top_rows_sort(json_t *rows, const struct top_col *col, int reverse);

/* ---- admin socket -------------------------------------------------------- */

#define TOP_ASK_NS 1000000000u /* longest wait for an answer */

/* Called once for each request. answer is borrowed; NULL: none, why is the reason. */
typedef void top_answer(void *arg, const char *cmd, const json_t *answer, const char *why);
struct top_link {
    const char *path;
    struct fct_admin admin;
    int failed; /* errno of the last connect(); 0: it succeeded */
    json_t *q;  /* requests by their "cmd"; the first one is sent, the others wait */
    uint64_t t_asked; /* when the first one was sent; 0: not sent */
    top_answer *on_answer;
    void *arg;
};

/* path is borrowed. */
void top_link_init(struct top_link *l, const char *path, top_answer *on_answer, void *arg);
/* Drops the waiting requests without a call of on_answer(). */
void top_link_fini(struct top_link *l);
/* Queue a request and take it over. Returns 0, -EEXIST (this "cmd" waits) or -ENOMEM. */
int top_link_ask(struct top_link *l, json_t *question);
/* Set *ret for poll(). Returns ns until top_link_step() is due, at most max_ns. */
uint64_t top_link_wait(const struct top_link *l, uint64_t now_ns, uint64_t max_ns,
    struct pollfd *ret);
/* Send and receive as much as possible without blocking. */
void top_link_step(struct top_link *l, uint64_t now_ns);

/* ---- the screen ---------------------------------------------------------- */

struct top {
    uint32_t group; /* the group shown, or CNT_ALL_GROUPS */
    double interval;
    int once, ascii, no_color; /* options */
    int utf8;
    const struct fct *f;
    const struct cnt_seg *seg;
    int gone;           /* the daemon has ended; the figures are its last */
    int silent;         /* s since its counters last changed; 0: they do change */
    struct cnt_seg raw; /* the group's counters at t_raw */
    uint64_t t_raw;     /* time of the sample; 0: none */
    struct top_rates r; /* of the interval that ended at t_raw */
    struct top_history hist[TOP_S__N];
    uint64_t t_moved; /* when uptime_ns last changed */
    char clock[16];   /* time of day of the sample: "14:02:11" */

    struct top_link link;
    json_t *status;              /* the answer, NULL: not known */
    json_t *rows[TOP_V__N];      /* NULL: none */
    uint64_t t_rows;             /* when "requests" was last answered */
    uint64_t t_asked, t_may_ask; /* last and next request for rows: they load the gate */
    char deny[512];              /* why there are no rows: "error\nfix" */

    int view; /* enum top_view */
    int sort[TOP_V__N], reverse[TOP_V__N];
    json_t *followed;  /* key of the row that stays selected when rows move; NULL: none */
    size_t sel, first; /* index of the selected row and of the first row shown */
    int page;          /* number of rows that fitted in the last drawing */
    int frozen, help;
    json_t *ask;       /* the request that waits for the user's y or n; NULL: none */
    char message[600]; /* last answer; "": none */
    int message_bad;
    int message_own; /* the message is about a query that the user did not make */
    uint64_t t_next; /* when the interval ends */
};

/* Take a sample; the rates are those since the sample before. */
void top_update(struct top *t, uint64_t now_ns);
/* Append the rates to the history. */
void top_remember(struct top *t);
void top_ask_all(struct top *t, uint64_t now_ns);
/* Begin with this daemon; clears the figures and rows of the one before. */
void top_adopt(struct top *t, const struct cnt_seg *seg, uint64_t now_ns);
/* Switch to a new daemon. Returns 1, or 0 if there is none. */
int top_reconnect(struct top *t, uint64_t now_ns);
void top_say(struct top *t, int is_bad, const char *text);

/* Draw the screen. Sets page, and first so that the selected row is on the screen. */
void top_draw(struct top *t, struct top_canvas *c);
/* The selected row; NULL: there is none. */
const json_t *top_selected(const struct top *t);
/* Keep this row selected when rows move; NULL: keep the place. */
void top_follow(struct top *t, const json_t *row);
/* After new rows, order or view: sort, and set sel to the place of the followed row. */
void top_select(struct top *t);

#endif
