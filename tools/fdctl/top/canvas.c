/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/top.h"

#include <stdarg.h>
#include <wchar.h>

#include "daemon/common/text.h"

#define BLOCK 0x2580u /* + 1 to 8: U+2581 to U+2588, filled by eighths from below */
#define LEFT  0x2590u /* - 1 to 8: U+258F to U+2588, filled by eighths from the left */

/* ---- cells --------------------------------------------------------------- */

int
top_canvas_init(struct top_canvas *c, int w, int h, int utf8)
{
    size_t n = (size_t)w * (size_t)h;

    *c = (struct top_canvas){ .w = w, .h = h, .utf8 = utf8 };
    c->cell = calloc(n, sizeof(*c->cell));
    if (c->cell == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        c->cell[i].ch = ' ';
    return 0;
}

/* Get the next character, '?' if invalid or not printable. Returns its columns. */
static int
next_char(const char **text, int utf8, uint32_t *ret)
{
    size_t n = txt_char(*text, strnlen(*text, 4), ret);
    int w = n > 0 && (utf8 || *ret < 0x7f) ? wcwidth((wchar_t)*ret) : -1;

    *text += n > 0 ? n : 1;
    if (w < 0)
        *ret = '?';
    return w < 0 ? 1 : w;
}

int
top_width(const char *text)
{
    uint32_t ch;
    int n = 0;

    while (*text != '\0')
        n += next_char(&text, 1, &ch);
    return n;
}

static void
set(struct top_canvas *c, int y, int x, enum top_attr attr, uint32_t ch)
{
    c->cell[y * c->w + x] =
        (struct top_cell){ ch, (uint8_t)(c->dim && attr != TOP_HEAD ? TOP_DIM : attr) };
}

int
top_text(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr, const char *text)
{
    if (x_end <= 0 || x_end > c->w)
        x_end = c->w;
    if (y < 0 || y >= c->h || x < 0)
        return x;
    while (*text != '\0') {
        uint32_t ch;
        int w = next_char(&text, c->utf8, &ch);

        if (x + w > x_end)
            break;
        if (w > 0)
            set(c, y, x, attr, ch);
        if (w > 1)
            set(c, y, x + 1, attr, 0);
        x += w;
    }
    return x;
}

int
top_print(struct top_canvas *c, int y, int x, enum top_attr attr, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return top_text(c, y, x, 0, attr, text);
}

void
top_right(struct top_canvas *c, int y, int x_end, enum top_attr attr, const char *text)
{
    top_text(c, y, x_end - top_width(text), x_end, attr, text);
}

int
top_wrapped(struct top_canvas *c, int y, int y_end, int x, int x_end, enum top_attr attr,
    const char *text)
{
    size_t w = x_end > x ? (size_t)(x_end - x) : 0, n;
    const char *blank;

    for (; w > 0 && y < y_end && *text != '\0'; y++) {
        n = strcspn(text, "\n");
        blank = n > w ? memrchr(text + 1, ' ', w) : NULL;
        n = blank != NULL ? (size_t)(blank - text) : n < w ? n : w;
        top_print(c, y, x, attr, "%.*s", (int)n, text);
        text += n;
        text += strspn(text, " \n");
    }
    return y;
}

void
top_paint(struct top_canvas *c, int y, enum top_attr attr)
{
    for (int x = 0; x < c->w; x++)
        c->cell[y * c->w + x].attr = (uint8_t)attr;
}

void
top_canvas_print(const struct top_canvas *c, FILE *out)
{
    int empty = 0, end;
    char text[4];

    for (int y = 0; y < c->h; y++) {
        const struct top_cell *row = c->cell + y * c->w;

        for (end = c->w; end > 0 && row[end - 1].ch == ' '; end--)
            ;
        if (end == 0) {
            empty++;
            continue;
        }
        for (; empty > 0; empty--)
            fputc('\n', out);
        for (int x = 0; x < end; x++)
            if (row[x].ch != 0)
                fwrite(text, 1, txt_put(row[x].ch, text), out);
        fputc('\n', out);
    }
}

/* ---- pictures ------------------------------------------------------------ */

/* Eighths filled in cell at of a bar of n cells; a share above 0 fills at least one. */
static int
eighths(double share, int n, int at)
{
    int all = share > 0 ? (int)fmax(fmin(share, 1) * 8 * n + 0.5, 1) : 0;

    return (int)fmax(0, fmin(8, all - 8 * at));
}

void
top_bar(struct top_canvas *c, int y, int x, int w, double share)
{
    if (y < 0 || y >= c->h || x < 0 || x + w > c->w || w < 3)
        return;
    set(c, y, x, TOP_NAME, '[');
    for (int i = 0; i < w - 2; i++) {
        int e = eighths(share, w - 2, i);
        uint32_t ascii = e >= 4 ? '#' : '.', full = e > 0 ? LEFT - (uint32_t)e : 0xb7;

        set(c, y, x + 1 + i, e > 0 ? TOP_BAR : TOP_DIM, c->utf8 ? full : ascii);
    }
    set(c, y, x + w - 1, TOP_NAME, ']');
}

void
top_history_add(struct top_history *h, double v)
{
    h->v[h->n++ % TOP_HISTORY] = (float)v;
}

static double
value(const struct top_history *h, int back)
{
    size_t i = (size_t)back;

    return i < h->n && i < TOP_HISTORY ? (double)h->v[(h->n - 1 - i) % TOP_HISTORY] : -1;
}

double
top_history_max(const struct top_history *h, int w)
{
    double max = 0;

    for (int i = 0; i < w; i++)
        max = fmax(max, value(h, i));
    return max;
}

void
top_chart(struct top_canvas *c, int y, int x, int w, int h, const struct top_history *s,
    double max)
{
    const char *ascii = h == 1 ? " _.-=+*#@" : " __===###"; /* index: eighths */

    if (x < 0 || x + w > c->w || y < 0 || y + h > c->h)
        return;
    for (int i = 0; i < w; i++) {
        double v = value(s, w - 1 - i);

        for (int row = 0; row < h; row++) {
            int e = eighths(v / max, h, h - 1 - row);

            if (e > 0)
                set(c, y + row, x + i, TOP_BAR,
                    c->utf8 ? BLOCK + (uint32_t)e : (uint32_t)ascii[e]);
            else if (row == h - 1 && v >= 0) /* a 0 is visible */
                set(c, y + row, x + i, TOP_DIM, c->utf8 ? BLOCK + 1 : '_');
        }
    }
}

/* ---- numbers ------------------------------------------------------------- */

#define N 24

/* Each suffix stands for `step` times the previous one. The first one is used with which
 * the number is below `most`. */
static const struct scale {
    double step, most;
    int digits; /* decimals, fewer for large numbers; none in the first unit */
    const char *units[8];
} scales[] = {
    [TOP_COUNT] = { 1e3, 9999.5, 1, { "", "K", "M", "G", "T", "P", "E" } },
    [TOP_NS] = { 1e3, 999.5, 2, { " ns", " us", " ms", " s" } },
    [TOP_SHARE] = { 1, HUGE_VAL, 0, { " %" } },
    [TOP_BYTES] = { 1024, 1023.5, 1, { " B", " KiB", " MiB", " GiB", " TiB" } },
};

static void
age(double ms, char *ret)
{
    long long s = (long long)(ms / 1e3);

    if (ms < 99950)
        snprintf(ret, N, "%.1f s", ms / 1e3);
    else if (s < 3600)
        snprintf(ret, N, "%lld m %02lld", s / 60, s % 60);
    else if (s < 48 * 3600)
        snprintf(ret, N, "%lld h %02lld", s / 3600, s / 60 % 60);
    else
        snprintf(ret, N, "%lld d", s / 86400 < 99999 ? s / 86400 : 99999);
}

const char *
top_form(enum top_form form, double v, char *ret)
{
    const struct scale *s;
    int at, u = 0;

    if (form == TOP_RATE && v >= 99.95)
        form = TOP_COUNT;
    s = &scales[form];
    if (form == TOP_INT) {
        snprintf(ret, N, "%.0f", v);
    } else if (v < 0) {
        snprintf(ret, N, "-");
    } else if (form == TOP_RATE) {
        snprintf(ret, N, v == 0 ? "%.0f" : "%.1f", v);
    } else if (form == TOP_AGE) {
        age(v, ret);
    } else if (form == TOP_COUNT && v < 9999999.5) {
        /* commas between groups of three digits */
        for (at = snprintf(ret, N, "%.0f", v) - 3; at > 0; at -= 3) {
            memmove(ret + at + 1, ret + at, strlen(ret + at) + 1);
            ret[at] = ',';
        }
    } else {
        v = form == TOP_SHARE ? fmin(v, 1) * 100 : v;
        for (; v >= s->most && s->units[u + 1] != NULL; u++)
            v /= s->step;
        at = u == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : s->digits;
        snprintf(ret, N, "%.*f%s", at, v, s->units[u]);
    }
    return ret;
}
