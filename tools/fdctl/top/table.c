/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

static const char *const titles[TOP_V__N] = { "users", "requests", "clients" };

/* ---- selection ----------------------------------------------------------- */

const json_t *
top_selected(const struct top *t)
{
    return json_array_get(t->rows[t->view], t->sel);
}

void
top_select(struct top *t)
{
    size_t i, n = json_array_size(t->rows[t->view]);
    const json_t *r;

    json_array_foreach(t->rows[t->view], i, r) {
        if (t->view == TOP_V_USERS ? strcmp(fct_str(r, "user"), t->sel_user) == 0
                                   : top_row_id(r) == t->sel_id) {
            t->sel = i;
            return;
        }
    }
    /* It has gone: whatever is in its place. */
    t->sel_id = -1;
    t->sel_user[0] = '\0';
    if (t->sel >= n)
        t->sel = n > 0 ? n - 1 : 0;
}

/* ---- cells --------------------------------------------------------------- */

/* Blanks that the columns leave go to text and bars, 14 cells at most each. */
static int
spare(const struct top_col *cols, int w, int *ret_n_text)
{
    int sum = 1, n = 0;

    for (; cols->name != NULL; cols++) {
        if (cols->from > w)
            continue;
        sum += cols->width + 1;
        n += cols->kind == TOP_K_TEXT || cols->kind == TOP_K_BAR;
    }
    *ret_n_text = n;
    return w > sum ? w - sum : 0;
}

static void
cell(struct top_canvas *c, int y, int x, int w, const json_t *r, const struct top_col *col)
{
    char text[24];
    double share;
    int n;

    if (col->kind == TOP_K_TEXT) {
        top_text(c, y, x, x + w, TOP_PLAIN, fct_str(r, col->key));
    } else if (col->kind == TOP_K_BAR) {
        share = top_row_real(r, col->key);
        if (share >= 0)
            top_bar(c, y, x, w, share);
    } else {
        if (col->kind == TOP_K_RATE)
            top_rate(top_row_real(r, col->key), text);
        else if (col->kind == TOP_K_AGE)
            top_age(fct_real(r, col->key), text);
        else if (col->kind == TOP_K_COUNT)
            top_count(fct_real(r, col->key), text);
        else
            snprintf(text, sizeof(text), "%lld", fct_num(r, col->key));
        n = (int)strlen(text);
        /* A number that is cut would be another one. */
        top_text(c, y, n <= w ? x + w - n : x, x + w, TOP_PLAIN, n <= w ? text : "...");
    }
}

static void
line(struct top_canvas *c, int y, const struct top_col *cols, const json_t *r,
    const struct top_col *sorted, int reverse)
{
    int n_text, left = spare(cols, c->w, &n_text), x = 1, w;
    const struct top_col *col;
    char name[32];

    for (col = cols; col->name != NULL; col++) {
        if (col->from > c->w)
            continue;
        w = col->width;
        if (col->kind == TOP_K_TEXT || col->kind == TOP_K_BAR)
            w += left / n_text < 14 ? left / n_text : 14;
        if (r != NULL) {
            cell(c, y, x, w, r, col);
        } else {
            int down = (col->down != 0) != (reverse != 0);

            snprintf(name, sizeof(name), "%s%s", col->name,
                col != sorted ? ""
                    : c->utf8 ? down ? "\u25be" : "\u25b4"
                    : down    ? "v"
                              : "^");
            if (top_width(name) > w)
                snprintf(name, sizeof(name), "%s", col->name);
            top_text(c, y,
                col->kind == TOP_K_TEXT || col->kind == TOP_K_BAR
                    ? x
                    : x + w - top_width(name),
                x + w, TOP_HEAD, name);
        }
        x += w + 1;
    }
}

/* ---- the table ----------------------------------------------------------- */

/* "requests 12 of 345, by AGE" in a rule. */
static void
title(const struct top *t, struct top_canvas *c, int y)
{
    size_t n_row = json_array_size(t->rows[t->view]);
    const struct top_col *col = &top_cols((enum top_view)t->view)[t->sort[t->view]];
    char n[24], to[24];
    int x;

    for (x = 0; x < c->w; x++)
        top_text(c, y, x, 0, TOP_DIM, c->utf8 ? "\u2500" : "-");
    x = top_print(c, y, 2, 0, TOP_VALUE, " %s ", titles[t->view]);
    if (t->deny[0] != '\0')
        return;
    x = top_print(c, y, x, 0, TOP_VALUE, "%s", top_count((double)n_row, n));
    if (t->page > 0 && n_row > (size_t)t->page)
        x = top_print(c, y, x, 0, TOP_PLAIN, ", %s to %s",
            top_count((double)t->first + 1, n),
            top_count((double)(t->first + (size_t)t->page < n_row ? t->first + (size_t)t->page
                                                                  : n_row),
                to));
    top_print(c, y, x, 0, TOP_PLAIN, ", by %s%s ", col->name,
        t->reverse[t->view] ? " reversed" : "");
}

/* Words wrapped between x and the canvas' end; the line behind it. */
static int
wrapped(struct top_canvas *c, int y, int y_end, int x, enum top_attr attr, const char *text)
{
    char part[256];

    while (y < y_end && top_wrap(&text, c->w - x - 2, part, sizeof(part)))
        top_text(c, y++, x, 0, attr, part);
    return y;
}

void
top_draw_table(struct top *t, struct top_canvas *c, int y, int y_end)
{
    const struct top_col *cols = top_cols((enum top_view)t->view);
    size_t n_row = json_array_size(t->rows[t->view]);
    int has_title = y_end - y >= 4;

    t->page = y_end - y - 1 - has_title;
    if (t->page < 1)
        t->page = 1;
    if (t->first > t->sel)
        t->first = t->sel;
    if (t->sel >= t->first + (size_t)t->page)
        t->first = t->sel - (size_t)t->page + 1;
    if (t->first > 0 && t->first + (size_t)t->page > n_row)
        t->first = n_row > (size_t)t->page ? n_row - (size_t)t->page : 0;
    if (has_title)
        title(t, c, y++);
    top_paint(c, y, 0, 0, TOP_HEAD);
    line(c, y++, cols, NULL, &cols[t->sort[t->view]], t->reverse[t->view]);
    if (t->deny[0] != '\0') {
        y = wrapped(c, y, y_end, 2, TOP_WARN, "No table: the daemon answered");
        wrapped(c, y, y_end, 4, TOP_PLAIN, t->deny);
        return;
    }
    if (n_row == 0 && t->t_rows != 0)
        top_print(c, y, 2, 0, TOP_DIM, "no %s", titles[t->view]);
    else if (n_row == 0 && !t->gone)
        top_text(c, y, 2, 0, TOP_DIM, "asking the daemon ...");
    for (size_t i = t->first; i < n_row && y < y_end; i++, y++) {
        line(c, y, cols, json_array_get(t->rows[t->view], i), NULL, 0);
        if (i == t->sel && !t->once) {
            top_text(c, y, 0, 0, TOP_SELECTED, ">");
            top_paint(c, y, 0, 0, TOP_SELECTED);
        }
    }
}
