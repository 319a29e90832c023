/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#define SPARE_MAX 14 /* cells that a text or a bar gets beyond its width */

const json_t *
top_selected(const struct top *t)
{
    return json_array_get(t->rows[t->view], t->sel);
}

void
top_follow(struct top *t, const json_t *row)
{
    json_decref(t->followed);
    t->followed = json_incref(json_object_get(row, top_tables[t->view].key));
}

void
top_select(struct top *t)
{
    const struct top_table *table = &top_tables[t->view];
    json_t *rows = t->rows[t->view], *r;
    size_t i, n = json_array_size(rows);

    top_rows_sort(rows, &table->cols[t->sort[t->view]], t->reverse[t->view]);
    json_array_foreach(rows, i, r) {
        if (json_equal(json_object_get(r, table->key), t->followed)) {
            t->sel = i;
            return;
        }
    }
    /* It has gone: whatever is in its place. */
    top_follow(t, NULL);
    if (t->sel >= n)
        t->sel = n > 0 ? n - 1 : 0;
}

static int
is_wide(const struct top_col *col)
{
    return col->form == TOP_TEXT || col->form == TOP_SHARE;
}

static void
cell(struct top_canvas *c, int y, int x, int w, const json_t *r, const struct top_col *col)
{
    double v = fct_real(r, col->key);
    char text[24];

    if (col->form == TOP_TEXT)
        top_text(c, y, x, x + w, TOP_PLAIN, fct_str(r, col->key));
    else if (col->form == TOP_SHARE && v >= 0)
        top_bar(c, y, x, w, v);
    else if (col->form == TOP_SHARE)
        return;
    /* A number that is cut would be another one. */
    else if (top_width(top_form(col->form, v, text)) <= w)
        top_right(c, y, x + w, TOP_PLAIN, text);
    else
        top_text(c, y, x, x + w, TOP_PLAIN, "...");
}

/* Row r, or the headings. Blanks that the columns leave go to text and bars. */
static void
line(const struct top *t, struct top_canvas *c, int y, const json_t *r)
{
    const struct top_col *cols = top_tables[t->view].cols, *col;
    const struct top_col *sorted = &cols[t->sort[t->view]];
    int down = (sorted->down != 0) != t->reverse[t->view], x = 1, left = c->w - 1, n = 0;
    const char *arrow = c->utf8 ? down ? "\u25be" : "\u25b4" : down ? "v" : "^";
    char name[32];

    for (col = cols; col->name != NULL; col++) {
        if (col->from <= c->w) {
            left -= col->width + 1;
            n += is_wide(col);
        }
    }
    left = left < 0 ? 0 : left / n < SPARE_MAX ? left / n : SPARE_MAX;
    for (col = cols; col->name != NULL; col++) {
        int w = col->width + (is_wide(col) ? left : 0);

        if (col->from > c->w)
            continue;
        snprintf(name, sizeof(name), "%s%s", col->name, col == sorted ? arrow : "");
        if (top_width(name) > w)
            name[strlen(col->name)] = '\0';
        if (r != NULL)
            cell(c, y, x, w, r, col);
        else if (is_wide(col))
            top_text(c, y, x, x + w, TOP_HEAD, name);
        else
            top_right(c, y, x + w, TOP_HEAD, name);
        x += w + 1;
    }
}

/* "requests 12 of 345, by AGE" in a rule. */
static void
title(const struct top *t, struct top_canvas *c, int y)
{
    const struct top_table *table = &top_tables[t->view];
    size_t n_row = json_array_size(t->rows[t->view]), end = t->first + (size_t)t->page;
    int x;

    for (x = 0; x < c->w; x++)
        top_text(c, y, x, 0, TOP_DIM, c->utf8 ? "\u2500" : "-");
    x = top_print(c, y, 2, 0, TOP_VALUE, " %s ", table->title);
    if (t->deny[0] != '\0')
        return;
    x = top_text(c, y, x, 0, TOP_VALUE, TOP_FORM(TOP_COUNT, (double)n_row));
    if (n_row > (size_t)t->page)
        x = top_print(c, y, x, 0, TOP_PLAIN, ", %s to %s",
            TOP_FORM(TOP_COUNT, (double)t->first + 1),
            TOP_FORM(TOP_COUNT, (double)(end < n_row ? end : n_row)));
    top_print(c, y, x, 0, TOP_PLAIN, ", by %s%s ", table->cols[t->sort[t->view]].name,
        t->reverse[t->view] ? " reversed" : "");
}

void
top_draw_table(struct top *t, struct top_canvas *c, int y, int y_end)
{
    size_t n_row = json_array_size(t->rows[t->view]), page;
    int has_title = y_end - y >= 4;

    t->page = y_end - y - 1 - has_title;
    if (t->page < 1)
        t->page = 1;
    page = (size_t)t->page;
    if (t->first > t->sel)
        t->first = t->sel;
    if (t->sel >= t->first + page)
        t->first = t->sel - page + 1;
    if (t->first > 0 && t->first + page > n_row)
        t->first = n_row > page ? n_row - page : 0;
    if (has_title)
        title(t, c, y++);
    top_paint(c, y, TOP_HEAD);
    line(t, c, y++, NULL);
    if (t->deny[0] != '\0') {
        y = top_wrapped(c, y, y_end, 2, c->w - 2, TOP_WARN, "No table: the daemon answered");
        top_wrapped(c, y, y_end, 4, c->w - 2, TOP_PLAIN, t->deny);
        return;
    }
    if (n_row == 0 && t->t_rows != 0)
        top_print(c, y, 2, 0, TOP_DIM, "no %s", top_tables[t->view].title);
    else if (n_row == 0 && !t->gone)
        top_text(c, y, 2, 0, TOP_DIM, "asking the daemon ...");
    for (size_t i = t->first; i < n_row && y < y_end; i++, y++) {
        line(t, c, y, json_array_get(t->rows[t->view], i));
        if (i == t->sel && !t->once) {
            top_text(c, y, 0, 0, TOP_SELECTED, ">");
            top_paint(c, y, TOP_SELECTED);
        }
    }
}
