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

int
top_wrap(const char **text, int w, char *ret, size_t ret_bytes)
{
    size_t n = strcspn(*text, "\n"), max = w > 0 ? (size_t)w : 0;

    max = max < ret_bytes - 1 ? max : ret_bytes - 1;
    if (**text == '\0' || max == 0)
        return 0;
    if (n > max) {
        for (n = max; n > 0 && (*text)[n] != ' '; n--)
            ;
        n = n > 0 ? n : max;
    }
    snprintf(ret, ret_bytes, "%.*s", (int)n, *text);
    *text += n;
    *text += strspn(*text, " \n");
    return 1;
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
    int x, y, end, last = -1;
    char text[4];

    for (y = 0; y < c->h; y++)
        for (x = 0; x < c->w; x++)
            if (c->cell[(size_t)y * (size_t)c->w + (size_t)x].ch != ' ')
                last = y;
    for (y = 0; y <= last; y++) {
        const struct top_cell *row = &c->cell[(size_t)y * (size_t)c->w];

        for (end = c->w; end > 0 && row[end - 1].ch == ' '; end--)
            ;
        for (x = 0; x < end; x++) {
            uint32_t ch = row[x].ch;

            if (ch != 0)
                fwrite(text, 1, txt_put(ch, text), out);
        }
        fputc('\n', out);
    }
}

/* ---- pictures ------------------------------------------------------------ */

/* A cell of which n eighths are filled. */
static uint32_t
filled(const struct top_canvas *c, int eighths, int is_spark)
{
    if (c->utf8)
        return eighths <= 0 ? ' ' : BLOCK + (uint32_t)eighths;
    if (is_spark)
        return (uint32_t) " _.-=+*#@"[eighths];
    return eighths >= 6 ? '#' : eighths >= 3 ? '=' : eighths >= 1 ? '_' : ' ';
}

void
top_bar(struct top_canvas *c, int y, int x, int w, double share)
{
    int in = w - 2, eighths;

    if (y < 0 || y >= c->h || x < 0 || x + w > c->w || w < 3)
        return;
    if (!(share > 0))
        share = 0;
    if (share > 1)
        share = 1;
    eighths = (int)(share * 8 * in + 0.5);
    if (eighths == 0 && share > 0)
        eighths = 1;
    set(c, y, x, TOP_NAME, '[');
    for (int i = 0; i < in; i++) {
        int e = eighths - 8 * i;

        e = e < 0 ? 0 : e > 8 ? 8 : e;
        /* Left blocks: U+258F one eighth to U+2588 whole. */
        if (c->utf8)
            set(c, y, x + 1 + i, TOP_BAR, e == 0 ? 0xb7 : 0x2590u - (uint32_t)e);
        else
            set(c, y, x + 1 + i, TOP_BAR, e >= 4 ? '#' : '.');
        if (e == 0)
            top_paint(c, y, x + 1 + i, x + 2 + i, TOP_DIM);
    }
    set(c, y, x + w - 1, TOP_NAME, ']');
}

static double
value(const struct top_series *s, int back)
{
    if (back < 0 || (size_t)back >= s->n)
        return -1;
    return (double)s->v[(s->at + 2 * s->n_v - 1 - (size_t)back) % s->n_v];
}

double
top_series_max(const struct top_series *s, int w)
{
    double max = 0;

    for (int i = 0; i < w; i++)
        if (value(s, i) > max)
            max = value(s, i);
    return max;
}

void
top_chart(struct top_canvas *c, int y, int x, int w, int h, enum top_attr attr,
    const struct top_series *s, double max)
{
    int row;

    if (x < 0 || x + w > c->w || y < 0 || y + h > c->h)
        return;
    for (int i = 0; i < w; i++) {
        double v = value(s, w - 1 - i);
        int eighths = max > 0 && v > 0 ? (int)(v / max * 8 * h + 0.5) : 0;

        if (v > 0 && eighths == 0)
            eighths = 1;
        for (row = 0; row < h; row++) {
            int e = eighths - 8 * (h - 1 - row);

            e = e < 0 ? 0 : e > 8 ? 8 : e;
            if (e > 0)
                set(c, y + row, x + i, attr, filled(c, e, h == 1));
            else if (row == h - 1) /* the ground, so that a 0 is seen as one */
                set(c, y + row, x + i, TOP_DIM, v < 0 ? ' ' : c->utf8 ? 0x2581u : '_');
        }
    }
}

/* ---- numbers ------------------------------------------------------------- */

#define N 24

static const char *
none(char *ret)
{
    return strcpy(ret, "-");
}

/* With commas between groups of three digits. */
static const char *
grouped(double v, char *ret)
{
    char digits[N];
    int n = snprintf(digits, sizeof(digits), "%.0f", v), at = 0;

    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            ret[at++] = ',';
        ret[at++] = digits[i];
    }
    ret[at] = '\0';
    return ret;
}

const char *
top_count(double v, char *ret)
{
    static const char units[] = { 'M', 'G', 'T', 'P', 'E' };
    size_t u = 0;

    if (v < 0)
        return none(ret);
    if (v < 9999999.5)
        return grouped(v, ret);
    for (v /= 1e6; v >= 9999.5 && u < 4; u++)
        v /= 1e3;
    snprintf(ret, N, v < 99.95 ? "%.1f%c" : "%.0f%c", v, units[u]);
    return ret;
}

const char *
top_rate(double v, char *ret)
{
    if (v < 0)
        return none(ret);
    if (v >= 99.95)
        return top_count(v, ret);
    snprintf(ret, N, v == 0 ? "%.0f" : "%.1f", v);
    return ret;
}

const char *
top_ns(double ns, char *ret)
{
    static const char *const units[] = { "ns", "us", "ms", "s" };
    size_t u = 0;

    if (ns < 0)
        return none(ret);
    for (; ns >= 999.5 && u < 3; u++)
        ns /= 1e3;
    snprintf(ret, N,
        u == 0 || ns >= 99.95 ? "%.0f %s"
            : ns >= 9.995     ? "%.1f %s"
                              : "%.2f %s",
        ns, units[u]);
    return ret;
}

const char *
top_share(double share, char *ret)
{
    if (share < 0)
        return none(ret);
    snprintf(ret, N, "%.0f %%", share > 1 ? 100.0 : share * 100);
    return ret;
}

const char *
top_bytes(double bytes, char *ret)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t u = 0;

    if (bytes < 0)
        return none(ret);
    for (; bytes >= 1023.5 && u < 4; u++)
        bytes /= 1024;
    snprintf(ret, N, u == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
    return ret;
}

const char *
top_age(double ms, char *ret)
{
    long long s = (long long)(ms / 1e3);

    if (ms < 0)
        return none(ret);
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
