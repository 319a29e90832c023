/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"
#include "tools/fdbench/report_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "daemon/common/version.h"
#include "libclient/fdproto.h"

static const char style[] =
    ":root{color-scheme:light dark;--bg:#f3f5f8;--panel:#ffffff;--plot:#fafbfe;"
    "--ink:#161a20;--dim:#59636f;--line:#e2e6ec;--axis:#8b96a3;--c1:#1f5fd0;"
    "--c2:#d2540c;--c3:#0a8462;--c4:#8a3cc4;--c5:#0f7f9c;--c0:#c4262e}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#101317;--panel:#181c22;"
    "--plot:#14181d;--ink:#e6eaf0;--dim:#9aa6b4;--line:#2a313a;--axis:#5f6b78;"
    "--c1:#6ea6ff;--c2:#ff9a57;--c3:#43cfa2;--c4:#c893ff;--c5:#53c6e3;--c0:#ff7b7b}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,"
    "-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1360px;margin:0 auto;padding:28px 24px 48px}\n"
    "h1{font-size:26px;line-height:1.2;margin:0 0 6px}\n"
    "h1 span{color:var(--dim);font-weight:400}\n"
    "h2{font-size:17px;margin:34px 0 12px}\n"
    "p{margin:4px 0;color:var(--dim)}\n"
    "code,pre{font:13px/1.5 ui-monospace,\"DejaVu Sans Mono\",monospace}\n"
    "pre{margin:12px 0 0;padding:10px 14px;background:var(--panel);"
    "border:1px solid var(--line);border-radius:8px;white-space:pre-wrap;"
    "overflow-wrap:anywhere}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:12px;margin-top:20px}\n"
    ".tiles div{flex:1 1 225px;background:var(--panel);border:1px solid var(--line);"
    "border-radius:10px;padding:12px 16px}\n"
    ".tiles b{display:block;font-size:25px;line-height:1.3;font-weight:600;"
    "white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    ".tiles b small{font-size:14px;font-weight:400;color:var(--dim)}\n"
    ".tiles span,.tiles i{display:block;color:var(--dim);font-size:13px;"
    "font-style:normal}\n"
    ".tiles .bad b{color:var(--c0)}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),"
    "1fr));gap:16px}\n"
    "figure{margin:0;background:var(--panel);border:1px solid var(--line);"
    "border-radius:10px;padding:14px 16px 10px}\n"
    "figcaption{display:flex;flex-wrap:wrap;gap:2px 16px;align-items:baseline;"
    "margin-bottom:6px}\n"
    "figure .note{font-size:13px}\n"
    "figure .none{height:250px;display:grid;place-items:center}\n"
    ".key{color:var(--dim);font-size:13px}\n"
    ".key svg{margin-right:6px;vertical-align:-1px}\n"
    "figure>svg{display:block;width:100%;height:auto}\n"
    "svg text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\","
    "sans-serif;fill:var(--dim);font-variant-numeric:tabular-nums}\n"
    ".p{fill:var(--plot)}\n"
    ".g{stroke:var(--line);stroke-width:1}\n"
    ".b{fill:none;stroke:var(--axis)}\n"
    ".l{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".f{opacity:.3}\n"
    ".d,.D{stroke-linecap:round;stroke-width:5;stroke-opacity:.5}\n"
    ".D{stroke-width:8;stroke-opacity:1}\n"
    ".x{fill:none;stroke-width:1.8}\n"
    ".r{stroke:var(--dim);stroke-dasharray:5 4}\n"
    "svg .n{fill:var(--ink);paint-order:stroke;stroke:var(--plot);stroke-width:4px;"
    "stroke-linejoin:round}\n"
    ".e{text-anchor:end}\n"
    ".m{text-anchor:middle}\n"
    ".c0{stroke:var(--c0)}\n"
    ".c1{stroke:var(--c1)}\n"
    ".c2{stroke:var(--c2)}\n"
    ".c3{stroke:var(--c3)}\n"
    ".c4{stroke:var(--c4)}\n"
    ".c5{stroke:var(--c5)}\n"
    ".k1,.k2,.k3,.k4,.k5{stroke:var(--plot);stroke-width:1.5}\n"
    ".k1{fill:var(--c1)}\n"
    ".k2{fill:var(--c2)}\n"
    ".k3{fill:var(--c3)}\n"
    ".k4{fill:var(--c4)}\n"
    ".k5{fill:var(--c5)}\n"
    ".a5{fill:var(--c5);opacity:.16}\n"
    ".wide{overflow-x:auto;background:var(--panel);border:1px solid var(--line);"
    "border-radius:10px}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:7px 10px;text-align:right;white-space:nowrap;"
    "border-top:1px solid var(--line)}\n"
    "tr:first-child>*{border-top:0}\n"
    "th{font-weight:600}\n"
    "thead th{color:var(--dim);font-weight:400;white-space:normal;"
    "vertical-align:bottom}\n"
    "th:first-child,td.w{text-align:left;padding-left:16px}\n"
    "td small{display:block;color:var(--dim);font-size:12px}\n"
    "td.w{white-space:normal}\n"
    ".two th{white-space:normal}\n"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),"
    "1fr));gap:16px;align-items:start}\n"
    "dl{margin:0;display:grid;grid-template-columns:max-content 1fr;gap:4px 16px}\n"
    "dt{font-weight:600}\n"
    "dd{margin:0;color:var(--dim)}\n"
    "@media print{body{background:#fff}figure,.tiles div{break-inside:avoid}}\n";

static void
words(FILE *out, const char *text)
{
    plt_text(out, text, strlen(text));
}

static void
head(FILE *out, const struct fdb_result *r)
{
    const struct fdc_model_info *m = &r->model;
    size_t n = strnlen(m->name, sizeof(m->name));
    char text[1024];

    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'\">\n<title>fdbench ",
        out);
    words(out, r->command);
    fputs(": ", out);
    plt_text(out, m->name, n);
    fprintf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>", style);
    plt_text(out, m->name, n);
    fputs(" <span>fdbench ", out);
    words(out, r->command);
    fputs("</span></h1>\n<p>", out);
    words(out, r->host);
    fputs(" &middot; ", out);
    words(out, r->time);
    fputs("</p>\n<p>", out);
    rep_workload(&r->cfg, text, sizeof(text));
    words(out, text);
    fputs("</p>\n", out);
    rep_limits(&r->cfg.slo, text, sizeof(text));
    if (text[0] != '\0') {
        fputs("<p>Limits: ", out);
        words(out, text);
        fputs("</p>\n", out);
    }
    fputs("<pre>", out);
    words(out, r->args);
    fputs("</pre>\n", out);
}

/* ---- the numbers that matter first ---------------------------------------------- */

static void
tile(FILE *out, const char *name, double v, const char *unit, const char *below, int bad)
{
    char num[24];

    fprintf(out, "<div%s><span>%s</span><b>%s <small>%s</small></b><i>%s</i></div>\n",
        bad ? " class=\"bad\"" : "", name, rep_num(v, num), unit, below);
}

/* Medians over the repeats. */
static double
scalar(const struct fdb_result *r, const char *key)
{
    struct rep_mmm m;
    size_t i;

    for (i = 0; i < REP_N_SCALAR; i++)
        if (strcmp(rep_scalars[i].key, key) == 0 && rep_across_scalar(r, i, &m) == 0)
            return m.median;
    return (double)NAN;
}

static double
stat(const struct fdb_result *r, size_t dist, size_t i)
{
    struct rep_mmm m;

    return rep_across_stat(r, dist, i, &m) == 0 ? m.median : (double)NAN;
}

static void
tiles(FILE *out, const struct fdb_result *r)
{
    static const char *const names[] = { "TTFT, median", "TPOT, median", NULL,
        "E2E, median" };
    char text[128], a[24], b[24];
    double failed = scalar(r, "requests_failed"), good = scalar(r, "goodput_per_s");
    size_t i;

    fputs("<div class=\"tiles\">\n", out);
    snprintf(text, sizeof(text), "%s with the prompts",
        rep_num(scalar(r, "total_tokens_per_s"), a));
    tile(out, "Output throughput", scalar(r, "output_tokens_per_s"), "tokens/s", text, 0);
    for (i = 0; i < 4; i++)
        if (names[i] != NULL) {
            snprintf(text, sizeof(text), "p90 %s, p99 %s ms", rep_num(stat(r, i, 4), a),
                rep_num(stat(r, i, 6), b));
            tile(out, names[i], stat(r, i, 3), "ms", text, 0);
        }
    snprintf(text, sizeof(text), "%s tokens/s for a user",
        rep_num(scalar(r, "output_tokens_per_s_per_user"), a));
    tile(out, "Requests", scalar(r, "requests_per_s"), "per s", text, 0);
    if (!isnan(good)) {
        snprintf(text, sizeof(text), "%s %% within the limits",
            rep_num(scalar(r, "attainment") * 100, a));
        tile(out, "Goodput", good, "requests/s", text, 0);
    }
    if (r->found > 0) {
        snprintf(text, sizeof(text), "%s%s", rep_load_unit(&r->cfg),
            rep_is_bound(r) ? ", the most tried" : "");
        tile(out, "Load within the limits", r->found, "", text, 0);
    }
    snprintf(text, sizeof(text), "%s ended well%s", rep_num(scalar(r, "requests_ok"), a),
        r->n > 1 ? " in a repeat" : "");
    tile(out, "Failed requests", failed, "", text, failed > 0);
    fputs("</div>\n", out);
}

/* ---- all numbers ------------------------------------------------------------------ */

static void
cell(FILE *out, const struct rep_mmm *m, int several)
{
    char a[24], b[24];

    fprintf(out, "<td>%s", rep_num(m->median, a));
    if (several && !isnan(m->median))
        fprintf(out, "<small>%s&thinsp;&ndash;&thinsp;%s</small>", rep_num(m->min, a),
            rep_num(m->max, b));
    fputs("</td>", out);
}

static void
table_dists(FILE *out, const struct fdb_result *r)
{
    struct rep_mmm m;
    size_t d, i;

    fputs("<h2>Distributions</h2>\n", out);
    if (r->n > 1)
        fprintf(out,
            "<p>Median of %u repeats, and from the smallest to the "
            "largest.</p>\n",
            r->n);
    fputs("<div class=\"wide\"><table><thead><tr><th></th>", out);
    for (i = 0; i < REP_N_STAT; i++)
        fprintf(out, "<th>%s</th>", rep_stats[i]);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (d = 0; d < REP_N_DIST; d++) {
        fprintf(out, "<tr><th>%s, %s</th>", rep_dists[d].label, rep_dists[d].unit);
        for (i = 0; i < REP_N_STAT; i++) {
            if (rep_across_stat(r, d, i, &m) != 0)
                m.median = (double)NAN;
            cell(out, &m, r->n > 1);
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void
table_scalars(FILE *out, const struct fdb_result *r)
{
    struct rep_mmm m;
    size_t i;

    fputs("<div class=\"wide\"><table>\n", out);
    for (i = 0; i < REP_N_SCALAR; i++) {
        if (rep_across_scalar(r, i, &m) != 0 || isnan(m.median))
            continue;
        fprintf(out, "<tr><th>%s</th>", rep_scalars[i].label);
        cell(out, &m, r->n > 1);
        fprintf(out, "<td class=\"w\">%s</td></tr>\n", rep_scalars[i].unit);
    }
    fputs("</table></div>\n", out);
}

static void
table_errors(FILE *out, const struct fdb_result *r)
{
    uint32_t i, j;

    for (i = 0; i < r->n && r->sum[i].n_fail == 0; i++)
        ;
    if (i == r->n)
        return;
    fputs("<h2>Failures</h2>\n<div class=\"wide\"><table><thead><tr><th>status</th>"
          "<th>requests</th><th>repeat</th><th></th></tr></thead>\n",
        out);
    for (i = 0; i < r->n; i++)
        for (j = 0; j < r->sum[i].n_fail; j++) {
            const struct fdb_fail *e = &r->sum[i].fail[j];

            fprintf(out, "<tr><th>%s</th><td>%u</td><td>%u</td><td class=\"w\">",
                fdc_status_name(e->code), e->n, i + 1);
            words(out, fdc_strerror(e->code));
            fputs("</td></tr>\n", out);
        }
    fputs("</table></div>\n", out);
}

static void
table_steps(FILE *out, const struct fdb_result *r)
{
    double v[9];
    char num[24];
    uint32_t i;
    size_t j;

    fprintf(out,
        "<div class=\"wide\"><table><thead><tr><th>%s</th><th>TTFT p50, ms</th>"
        "<th>TTFT p99, ms</th><th>TPOT p50, ms</th><th>TPOT p99, ms</th>"
        "<th>output tokens/s</th><th>tokens/s for a user</th><th>goodput, 1/s</th>"
        "<th>within, %%</th><th>met</th></tr></thead>\n",
        rep_load_unit(&r->cfg));
    for (i = 0; i < r->n_step; i++) {
        const struct fdb_step *s = &r->step[i];

        v[0] = s->load;
        v[1] = rep_stat(&s->sum.ttft, 3);
        v[2] = rep_stat(&s->sum.ttft, 6);
        v[3] = rep_stat(&s->sum.tpot, 3);
        v[4] = rep_stat(&s->sum.tpot, 6);
        v[5] = s->sum.out_tok_s;
        v[6] = rep_scalar(&s->sum, REP_PER_USER);
        v[7] = s->goodput < 0 ? (double)NAN : s->goodput;
        v[8] = s->attain < 0 ? (double)NAN : s->attain * 100;
        fputs("<tr>", out);
        for (j = 0; j < sizeof(v) / sizeof(v[0]); j++)
            fprintf(out, j == 0 ? "<th>%s</th>" : "<td>%s</td>", rep_num(v[j], num));
        fprintf(out, "<td>%s</td></tr>\n", rep_step_within(s));
    }
    fputs("</table></div>\n", out);
}

static void
about(FILE *out, const struct fdb_result *r)
{
    const struct fdc_model_info *m = &r->model;
    size_t i;

    fputs("<h2>Numbers and definitions</h2>\n<div class=\"two\">\n", out);
    table_scalars(out, r);
    fputs("<dl><dt>TTFT</dt><dd>sending of a request to its first token</dd>\n"
          "<dt>TPOT</dt><dd>(end &minus; first token) / (output tokens &minus; 1), of "
          "requests with two tokens or more</dd>\n<dt>ITL</dt><dd>every gap between two "
          "successive arrivals of a request, of all requests "
          "together</dd>\n<dt>E2E</dt><dd>sending of a request to its last "
          "record</dd>\n<dt>queue</dt><dd>in the daemon, before the request was first "
          "scheduled</dd>\n<dt>goodput</dt><dd>requests per second that met every "
          "limit</dd>\n<dt>percentiles</dt><dd>linear between the two nearest "
          "ranks</dd>\n<dt>clock</dt><dd>the client's CLOCK_MONOTONIC; warm-up and failed "
          "requests are in no distribution</dd>\n",
        out);
    fprintf(out, "<dt>model</dt><dd>%u ids, at most %u tokens, digest ", m->vocab,
        m->max_model_len);
    for (i = 0; i < 8; i++)
        fprintf(out, "%02x", m->digest[i]);
    fprintf(out, "</dd>\n<dt>fdbench</dt><dd>%s, protocol %d.%d</dd></dl>\n</div>\n",
        ver_text(), FDP_MAJOR, FDP_MINOR);
}

int
fdb_report_html(FILE *out, const struct fdb_result *r)
{
    int rc = 0;

    errno = 0;
    head(out, r);
    if (r->n > 0) {
        tiles(out, r);
        table_errors(out, r);
        table_dists(out, r);
        if (r->n > 1)
            fputs("<h2>Latency</h2>\n<p>The repeat with the median output throughput, "
                  "the others pale.</p>\n<div class=\"plots\">\n",
                out);
        else
            fputs("<h2>Latency</h2>\n<div class=\"plots\">\n", out);
        rc = crv_latency(out, r);
        fputs("</div>\n<h2>Over time</h2>\n", out);
        if (r->n > 1)
            fprintf(out,
                "<p>Repeat %u of %u, the one with the median output "
                "throughput.</p>\n",
                rep_middle(r) + 1, r->n);
        fputs("<div class=\"plots\">\n", out);
        rc = rc == 0 ? crv_time(out, r) : rc;
        fputs("</div>\n", out);
    }
    if (r->n_step > 0 && rc == 0) {
        fputs("<h2>Search</h2>\n<div class=\"plots\">\n", out);
        rc = crv_search(out, r);
        fputs("</div>\n<p>&nbsp;</p>\n", out);
        table_steps(out, r);
    }
    about(out, r);
    fputs("</main>\n</body>\n</html>\n", out);
    if (rc == 0 && (ferror(out) || fflush(out) != 0))
        rc = errno != 0 ? -errno : -EIO;
    return rc;
}
