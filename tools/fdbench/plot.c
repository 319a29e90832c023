/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/report_priv.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/common/text.h"

/* The drawing's size, and the frame of the axes in it; units of the SVG. */
#define W  620.0
#define H  330.0
#define X0 66.0
#define X1 604.0
#define Y0 14.0
#define Y1 282.0

struct axis {
    double lo, hi;
    int log;
    double at0, at1; /* where lo and hi lie in the drawing */
};

void
plt_init(struct plt *p, const char *title, const char *x_label, const char *y_label)
{
    memset(p, 0, sizeof(*p));
    p->title = title;
    p->x_label = x_label;
    p->y_label = y_label;
    p->x_lo = p->x_hi = p->y_lo = p->y_hi = (double)NAN;
}

void
plt_add(struct plt *p, enum plt_kind kind, int color, const double *x, const double *y,
    size_t n, const char *label)
{
    if (p->n_s < PLT_MAX_SERIES)
        p->s[p->n_s++] = (struct plt_series){ .x = x,
            .y = y,
            .n = n,
            .kind = kind,
            .color = color,
            .label = label };
}

void
plt_text(FILE *out, const char *text, size_t n)
{
    static const struct {
        char c;
        const char *html;
    } marks[] = { { '<', "&lt;" }, { '>', "&gt;" }, { '&', "&amp;" }, { '"', "&quot;" },
        { '\'', "&#39;" } };
    uint32_t cp;
    size_t i, k, len;

    for (i = 0; i<n; i += len> 0 ? len : 1) {
        len = txt_char(text + i, n - i, &cp);
        for (k = 0; k < 5 && marks[k].c != text[i]; k++)
            ;
        if (k < 5)
            fputs(marks[k].html, out);
        else if (len == 0 || (cp < 0x20 && cp != '\n' && cp != '\t') || cp == 0x7f)
            fputs("&#xfffd;", out);
        else
            fwrite(text + i, 1, len, out);
    }
}

static void
words(FILE *out, const char *text)
{
    plt_text(out, text, strlen(text));
}

/* ---- axes --------------------------------------------------------------------- */

void
plt_ticks(double lo, double hi, int want, double *ret_first, double *ret_step)
{
    double raw = (hi - lo) / want, step, part;

    if (!(raw > 0))
        raw = 1;
    step = pow(10, floor(log10(raw)));
    part = raw / step;
    step *= part <= 1.0000001 ? 1 : part <= 2.0000001 ? 2 : part <= 5.0000001 ? 5 : 10;
    *ret_first = ceil(lo / step - 1e-9) * step;
    *ret_step = step;
}

static double
place(const struct axis *a, double v)
{
    double t = a->log ? (log10(v) - log10(a->lo)) / (log10(a->hi) - log10(a->lo))
                      : (v - a->lo) / (a->hi - a->lo);

    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return a->at0 + (a->at1 - a->at0) * t;
}

static void
widen(double v, int is_log, double *lo, double *hi)
{
    if (!isfinite(v) || (is_log && v <= 0))
        return;
    *lo = isnan(*lo) || v < *lo ? v : *lo;
    *hi = isnan(*hi) || v > *hi ? v : *hi;
}

/* Limits of one axis from the points and what the plot asks for. 0: no data. */
static int
range(const struct plt *p, int vertical, struct axis *a)
{
    double lo = (double)NAN, hi = (double)NAN, want_lo = vertical ? p->y_lo : p->x_lo,
           want_hi = vertical ? p->y_hi : p->x_hi, first, step;
    size_t i, j;

    a->log = vertical ? p->y_log : p->x_log;
    for (i = 0; i < p->n_s; i++)
        for (j = 0; j < p->s[i].n; j++)
            if (isfinite(p->s[i].x[j]) && isfinite(p->s[i].y[j]))
                widen(vertical ? p->s[i].y[j] : p->s[i].x[j], a->log, &lo, &hi);
    if (isnan(lo))
        return 0;
    for (i = 0; i < (vertical ? p->n_h : p->n_v); i++)
        widen(vertical ? p->h[i].at : p->v[i].at, a->log, &lo, &hi);
    if (a->log) {
        lo = isnan(want_lo) ? lo / 1.1 : want_lo;
        hi = isnan(want_hi) ? hi * 1.15 : want_hi;
        a->lo = lo;
        a->hi = hi > lo * 2 ? hi : lo * 2;
        return 1;
    }
    lo = isnan(want_lo) ? lo : want_lo;
    hi = isnan(want_hi) ? hi : want_hi;
    if (!(hi > lo))
        hi = lo + (lo != 0 ? fabs(lo) : 1);
    plt_ticks(lo, hi, vertical ? 5 : 7, &first, &step);
    a->lo = isnan(want_lo) ? floor(lo / step + 1e-9) * step : lo;
    a->hi = isnan(want_hi) ? ceil(hi / step - 1e-9) * step : hi;
    return 1;
}

/* A tick's number: as many digits as its distance needs, k and M for large. */
static void
tick_text(double v, double step, char ret[32])
{
    double unit = fabs(v) >= 1e6 ? 1e6 : fabs(v) >= 1e4 ? 1e3 : 1;
    const char *suffix = unit >= 1e6 ? "M" : unit >= 1e3 ? "k" : "";
    double s = step / unit;
    int digits = s >= 1 ? 0 : (int)ceil(-log10(s) - 1e-9);

    if (fabs(v) < step * 1e-6)
        snprintf(ret, 32, "0");
    else
        snprintf(ret, 32, "%.*f%s", digits > 9 ? 9 : digits, v / unit, suffix);
}

static void
tick(FILE *out, int vertical, double at, const char *text)
{
    if (vertical) {
        fprintf(out, "<path class=\"g\" d=\"M%.0f %.1fH%.0f\"/>", X0, at, X1);
        fprintf(out, "<text class=\"t e\" x=\"%.0f\" y=\"%.1f\">%s</text>\n", X0 - 8,
            at + 4, text);
    } else {
        fprintf(out, "<path class=\"g\" d=\"M%.1f %.0fV%.0f\"/>", at, Y0, Y1);
        fprintf(out, "<text class=\"t m\" x=\"%.1f\" y=\"%.0f\">%s</text>\n", at, Y1 + 18,
            text);
    }
}

/* 1, 2 and 5 of every decade; only 1 over many decades. */
static void
ticks_log(FILE *out, const struct axis *a, int vertical)
{
    static const int parts[] = { 1, 2, 5 };
    int e, i, n = log10(a->hi / a->lo) > 3.2 ? 1 : 3;
    char text[32];

    for (e = (int)floor(log10(a->lo)); e <= (int)ceil(log10(a->hi)); e++)
        for (i = 0; i < n; i++) {
            double v = parts[i] * pow(10, e);

            if (v < a->lo * 0.9999 || v > a->hi * 1.0001)
                continue;
            tick_text(v, v, text);
            tick(out, vertical, place(a, v), text);
        }
}

static void
ticks(FILE *out, const struct axis *a, int vertical)
{
    double first, step, v;
    char text[32];
    int i;

    if (a->log) {
        ticks_log(out, a, vertical);
        return;
    }
    plt_ticks(a->lo, a->hi, vertical ? 5 : 7, &first, &step);
    for (i = 0; i < 20; i++) {
        v = first + i * step;
        if (v > a->hi + step * 1e-6)
            break;
        tick_text(v, step, text);
        tick(out, vertical, place(a, v), text);
    }
}

/* ---- contents ----------------------------------------------------------------- */

static int
usable(const struct plt_series *s, size_t i, const struct axis *x, const struct axis *y)
{
    return isfinite(s->x[i]) && isfinite(s->y[i]) && (!x->log || s->x[i] > 0) &&
        (!y->log || s->y[i] > 0);
}

static void
line(FILE *out, const struct plt_series *s, const struct axis *x, const struct axis *y)
{
    int open = 0, color = s->color, step = s->kind == PLT_STEP;
    double first = 0, last = 0, px, py;
    size_t i;

    if (s->kind == PLT_AREA) {
        fprintf(out, "<path class=\"a%d\" d=\"", color);
        for (i = 0; i < s->n; i++) {
            if (!usable(s, i, x, y))
                continue;
            last = place(x, s->x[i]);
            if (!open)
                first = last;
            fprintf(out, "%c%.1f %.1f", open ? 'L' : 'M', last, place(y, s->y[i]));
            open = 1;
        }
        if (open)
            fprintf(out, "L%.1f %.1fL%.1f %.1fZ", last, Y1, first, Y1);
        fputs("\"/>\n", out);
    }
    fprintf(out, "<path class=\"l c%d%s\" d=\"", color, s->faint ? " f" : "");
    for (i = 0, open = 0; i < s->n; i++) {
        if (!usable(s, i, x, y)) {
            open = 0;
            continue;
        }
        px = place(x, s->x[i]);
        py = place(y, s->y[i]);
        if (open && step)
            fprintf(out, "H%.1fV%.1f", px, py);
        else
            fprintf(out, "%c%.1f %.1f", open ? 'L' : 'M', px, py);
        open = 1;
    }
    fputs("\"/>\n", out);
}

static void
dots(FILE *out, const struct plt_series *s, const struct axis *x, const struct axis *y)
{
    size_t i;

    /* many dots of one size: lines without length, drawn with round ends */
    fprintf(out, "<path class=\"%s c%d\" d=\"",
        s->kind == PLT_CROSS ? "x"
            : s->faint       ? "d"
                             : "D",
        s->color);
    for (i = 0; i < s->n; i++) {
        if (!usable(s, i, x, y))
            continue;
        if (s->kind == PLT_CROSS)
            fprintf(out, "M%.1f %.1fl7 7m-7 0l7-7", place(x, s->x[i]) - 3.5,
                place(y, s->y[i]) - 3.5);
        else
            fprintf(out, "M%.1f %.1fh0", place(x, s->x[i]), place(y, s->y[i]));
    }
    fputs("\"/>\n", out);
}

static void
marks(FILE *out, const struct plt *p, const struct axis *x, const struct axis *y)
{
    size_t i;

    for (i = 0; i < p->n_mark; i++) {
        const struct plt_mark *m = &p->mark[i];
        double px = place(x, m->x), py = place(y, m->y);
        /* about the width of the words; a distribution is empty to the lower right */
        int fits = px + 9 + 7 * (double)strlen(m->text) < X1;

        fprintf(out, "<circle class=\"k%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>",
            m->color, px, py);
        fprintf(out, "<text class=\"n%s\" x=\"%.1f\" y=\"%.1f\">", fits ? "" : " e",
            fits ? px + 9 : X1 - 4, m->above ? py - 8 : py + 17);
        words(out, m->text);
        fputs("</text>\n", out);
    }
}

static void
rules(FILE *out, const struct plt *p, const struct axis *x, const struct axis *y)
{
    double at;
    size_t i;

    for (i = 0; i < p->n_h; i++) {
        at = place(y, p->h[i].at);
        fprintf(out,
            "<path class=\"r\" d=\"M%.0f %.1fH%.0f\"/><text class=\"n e\" "
            "x=\"%.0f\" y=\"%.1f\">",
            X0, at, X1, X1 - 6, at < Y0 + 16 ? at + 15 : at - 6);
        words(out, p->h[i].text);
        fputs("</text>\n", out);
    }
    for (i = 0; i < p->n_v; i++) {
        int left;

        at = place(x, p->v[i].at);
        left = at > X0 + (X1 - X0) * 0.6;
        fprintf(out,
            "<path class=\"r\" d=\"M%.1f %.0fV%.0f\"/><text class=\"n%s\" "
            "x=\"%.1f\" y=\"%.0f\">",
            at, Y0, Y1, left ? " e" : "", left ? at - 6 : at + 6, Y1 - 8);
        words(out, p->v[i].text);
        fputs("</text>\n", out);
    }
}

static void
legend(FILE *out, const struct plt *p)
{
    size_t i;

    for (i = 0; i < p->n_s; i++)
        if (p->s[i].label != NULL && p->s[i].n > 0) {
            fprintf(out,
                "<span class=\"key\"><svg width=\"18\" height=\"10\" "
                "aria-hidden=\"true\"><path class=\"%s c%d\" d=\"%s\"/></svg>",
                p->s[i].kind == PLT_DOTS        ? "D"
                    : p->s[i].kind == PLT_CROSS ? "x"
                                                : "l",
                p->s[i].color,
                p->s[i].kind == PLT_DOTS        ? "M9 5h0"
                    : p->s[i].kind == PLT_CROSS ? "M6 2l6 6m-6 0l6-6"
                                                : "M1 5h16");
            words(out, p->s[i].label);
            fputs("</span>", out);
        }
}

static void
svg(FILE *out, const struct plt *p, const struct axis *x, const struct axis *y)
{
    size_t i;

    fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", W, H);
    words(out, p->title);
    fprintf(out, "\">\n<path class=\"p\" d=\"M%.0f %.0fH%.0fV%.0fH%.0fZ\"/>\n", X0, Y0,
        X1, Y1, X0);
    ticks(out, x, 0);
    ticks(out, y, 1);
    for (i = 0; i < p->n_s; i++) {
        const struct plt_series *s = &p->s[i];

        if (s->kind != PLT_DOTS && s->kind != PLT_CROSS)
            line(out, s, x, y);
        if (s->kind == PLT_DOTS || s->kind == PLT_CROSS || s->kind == PLT_CHAIN)
            dots(out, s, x, y);
    }
    rules(out, p, x, y);
    fprintf(out, "<path class=\"b\" d=\"M%.0f %.0fV%.0fH%.0f\"/>\n", X0, Y0, Y1, X1);
    marks(out, p, x, y);
    fprintf(out, "<text class=\"u m\" x=\"%.0f\" y=\"%.0f\">", (X0 + X1) / 2, H - 8);
    words(out, p->x_label);
    fprintf(out,
        "</text><text class=\"u m\" transform=\"translate(15 %.0f) "
        "rotate(-90)\">",
        (Y0 + Y1) / 2);
    words(out, p->y_label);
    fputs("</text>\n</svg>\n", out);
}

void
plt_write(FILE *out, const struct plt *p)
{
    struct axis x = { .at0 = X0, .at1 = X1 }, y = { .at0 = Y1, .at1 = Y0 };

    fputs("<figure><figcaption><b>", out);
    words(out, p->title);
    fputs("</b>", out);
    legend(out, p);
    fputs("</figcaption>\n", out);
    if (range(p, 0, &x) && range(p, 1, &y))
        svg(out, p, &x, &y);
    else
        fputs("<p class=\"none\">no data</p>\n", out);
    if (p->note != NULL) {
        fputs("<p class=\"note\">", out);
        words(out, p->note);
        fputs("</p>\n", out);
    }
    fputs("</figure>\n", out);
}
