/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells of a screen: text, bars, sparklines, charts, and numbers as short text.
 * Where they are shown is not its business.
 */
#ifndef FDD_TOOLS_FDCTL_TOP_CANVAS_H
#define FDD_TOOLS_FDCTL_TOP_CANVAS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TOP_NONE (-1.0) /* a figure that the interval does not give */

/* What a cell means; top/term.c knows how it looks. */
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
int top_print(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr,
    const char *fmt, ...) __attribute__((format(printf, 6, 7)));
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

#endif
