/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/top/canvas.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "daemon/common/text.h"

#define BLOCK 0x2580u /* U+2581 to U+2588: one eighth to a whole block */
#define LEFT  0x2590u /* U+258F to U+2588: the same from the left */

/* ---- cells --------------------------------------------------------------- */

int
top_canvas_init(struct top_canvas *c, int w, int h, int utf8)
{
    size_t n = (size_t)w * (size_t)h;

    c->cell = calloc(n, sizeof(*c->cell));
    if (c->cell == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        c->cell[i].ch = ' ';
    c->w = w;
    c->h = h;
    c->utf8 = utf8;
    c->dim = 0;
    return 0;
}

void
top_canvas_fini(struct top_canvas *c)
{
    free(c->cell);
    c->cell = NULL;
}

/* The next character; '?' for a byte that is none. */
static uint32_t
next_char(const char **text)
{
    uint32_t cp;
    size_t n = txt_char(*text, strnlen(*text, 4), &cp);

    *text += n > 0 ? n : 1;
    return n > 0 ? cp : '?';
}

/* Columns of a character; one that cannot be shown becomes '?'. */
static int
char_width(uint32_t *ch, int utf8)
{
    int w;

    if (*ch >= 0x20 && *ch < 0x7f)
        return 1;
    w = *ch >= 0xa0 && utf8 ? wcwidth((wchar_t)*ch) : -1;
    if (w < 0)
        *ch = '?';
    return w < 0 ? 1 : w;
}

int
top_width(const char *text)
{
    int n = 0;

    while (*text != '\0') {
        uint32_t ch = next_char(&text);

        n += char_width(&ch, 1);
    }
    return n;
}

static void
set(struct top_canvas *c, int y, int x, enum top_attr attr, uint32_t ch)
{
    struct top_cell *cell = &c->cell[(size_t)y * (size_t)c->w + (size_t)x];

    cell->ch = ch;
    cell->attr = (uint8_t)(c->dim && attr != TOP_HEAD ? TOP_DIM : attr);
}

int
top_text(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr, const char *text)
{
    if (x_end <= 0 || x_end > c->w)
        x_end = c->w;
    if (y < 0 || y >= c->h || x < 0)
        return x;
    while (*text != '\0') {
        uint32_t ch = next_char(&text);
        int w = char_width(&ch, c->utf8);

        if (w == 0)
            continue;
        if (x + w > x_end)
            break;
        set(c, y, x, attr, ch);
        if (w == 2)
            set(c, y, x + 1, attr, 0);
        x += w;
    }
    return x;
}

int
top_print(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr,
    const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return top_text(c, y, x, x_end, attr, text);
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

    for (; w > 0 && y < y_end && *text != '\0'; y++) {
        n = strcspn(text, "\n");
        if (n > w) {
            for (n = w; n > 0 && text[n] != ' '; n--)
                ;
            n = n > 0 ? n : w;
        }
        top_print(c, y, x, 0, attr, "%.*s", (int)n, text);
        text += n;
        text += strspn(text, " \n");
    }
    return y;
}

void
top_paint(struct top_canvas *c, int y, int x, int x_end, enum top_attr attr)
{
    if (x_end <= 0 || x_end > c->w)
        x_end = c->w;
    for (; y >= 0 && y < c->h && x >= 0 && x < x_end; x++)
        c->cell[(size_t)y * (size_t)c->w + (size_t)x].attr = (uint8_t)attr;
}

void
top_canvas_print(const struct top_canvas *c, FILE *out)
{
    int empty = 0, end;
    char text[4];

    for (int y = 0; y < c->h; y++) {
        const struct top_cell *row = &c->cell[(size_t)y * (size_t)c->w];

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

/* Eighths that the share fills of n cells; at least one of what is not 0. */
static int
eighths_of(double share, int n)
{
    return share > 0 ? (int)fmax(fmin(share, 1) * 8 * n + 0.5, 1) : 0;
}

/* Of these, those that are in the cell with n before it. */
static int
in_cell(int eighths, int n)
{
    int e = eighths - 8 * n;

    return e < 0 ? 0 : e > 8 ? 8 : e;
}

void
top_bar(struct top_canvas *c, int y, int x, int w, double share)
{
    int eighths = eighths_of(share, w - 2);

    if (y < 0 || y >= c->h || x < 0 || x + w > c->w || w < 3)
        return;
    set(c, y, x, TOP_NAME, '[');
    for (int i = 0; i < w - 2; i++) {
        int e = in_cell(eighths, i);
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
    const char *ascii = h == 1 ? " _.-=+*#@" : " __===###"; /* by eighths */

    if (x < 0 || x + w > c->w || y < 0 || y + h > c->h)
        return;
    for (int i = 0; i < w; i++) {
        double v = value(s, w - 1 - i);
        int eighths = v > 0 ? eighths_of(v / max, h) : 0;

        for (int row = 0; row < h; row++) {
            int e = in_cell(eighths, h - 1 - row);
            int ground = e == 0 && row == h - 1 && v >= 0; /* a 0 is seen as one */
            uint32_t block = BLOCK + (uint32_t)(ground ? 1 : e);

            if (e > 0 || ground)
                set(c, y + row, x + i, ground ? TOP_DIM : TOP_BAR,
                    c->utf8      ? block
                        : ground ? '_'
                                 : (uint32_t)ascii[e]);
        }
    }
}

/* ---- numbers ------------------------------------------------------------- */

#define N 24

/* In the first unit that leaves the number below most, each step times the one before it;
 * with digits behind the point, fewer when it is larger, and none in the first unit. */
static const char *
in_units(double v, double step, double most, int digits, const char *const *unit, char *ret)
{
    const char *const *first = unit;

    if (v < 0)
        return strcpy(ret, "-");
    for (; v >= most && unit[1] != NULL; unit++)
        v /= step;
    digits = unit == first || v >= 99.95 ? 0 : v >= 9.995 ? 1 : digits;
    snprintf(ret, N, "%.*f%s", digits, v, *unit);
    return ret;
}

const char *
top_count(double v, char *ret)
{
    static const char *const units[] = { "", "K", "M", "G", "T", "P", "E", NULL };

    if (v < 0 || v >= 9999999.5)
        return in_units(v, 1e3, 9999.5, 1, units, ret);
    /* with commas between groups of three digits */
    for (int at = snprintf(ret, N, "%.0f", v) - 3; at > 0; at -= 3) {
        memmove(ret + at + 1, ret + at, strlen(ret + at) + 1);
        ret[at] = ',';
    }
    return ret;
}

const char *
top_rate(double v, char *ret)
{
    if (v < 0 || v >= 99.95)
        return top_count(v, ret);
    snprintf(ret, N, v == 0 ? "%.0f" : "%.1f", v);
    return ret;
}

const char *
top_ns(double ns, char *ret)
{
    static const char *const units[] = { " ns", " us", " ms", " s", NULL };

    return in_units(ns, 1e3, 999.5, 2, units, ret);
}

const char *
top_share(double share, char *ret)
{
    static const char *const units[] = { " %", NULL };

    return in_units(fmin(share, 1) * 100, 1, 1, 0, units, ret);
}

const char *
top_bytes(double bytes, char *ret)
{
    static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB", NULL };

    return in_units(bytes, 1024, 1023.5, 1, units, ret);
}

const char *
top_age(double ms, char *ret)
{
    long long s = (long long)(ms / 1e3);

    if (ms < 0)
        return strcpy(ret, "-");
    if (ms < 99950)
        snprintf(ret, N, "%.1f s", ms / 1e3);
    else if (s < 3600)
        snprintf(ret, N, "%lld m %02lld", s / 60, s % 60);
    else if (s < 48 * 3600)
        snprintf(ret, N, "%lld h %02lld", s / 3600, s / 60 % 60);
    else
        snprintf(ret, N, "%lld d", s / 86400 < 99999 ? s / 86400 : 99999);
    return ret;
}
