/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MAX_S  31536000.0
#define TOKENS_MAX  16777216u
#define WORDS_BYTES 65536u

/* ---- trace --------------------------------------------------------------- */

struct trace {
    const char *path;
    unsigned long line;
    struct fdb_row *row;
    size_t n, cap;
};

/* "PATH:LINE: column VALUE: why" */
static int
bad_field(const struct trace *t, const char *column, const char *value, const char *why)
{
    return fct_fail(FCT_EX_DATA, "%s:%lu: %s \"%.40s\": %s", t->path, t->line, column,
        value, why);
}

static int
read_tokens(const struct trace *t, const char *column, char *text, uint32_t *ret)
{
    unsigned long long v;
    char why[64], *end;

    snprintf(why, sizeof(why), "must be a whole number from 1 to %u", TOKENS_MAX);
    errno = 0;
    v = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || strchr(text, '-') != NULL || errno != 0 || v < 1 ||
        v > TOKENS_MAX)
        return bad_field(t, column, text, why);
    *ret = (uint32_t)v;
    return 0;
}

/* One line's fields between commas, blanks around them removed. Returns how
 * many there are. */
static unsigned
split(char *line, char *field[4])
{
    unsigned n = 0;
    char *end;

    for (char *p = line; p != NULL && n < 4; n++) {
        char *comma = strchr(p, ',');

        if (comma != NULL)
            *comma = '\0';
        p += strspn(p, " \t");
        for (end = p + strlen(p); end > p && strchr(" \t\r", end[-1]) != NULL; end--)
            end[-1] = '\0';
        field[n] = p;
        p = comma != NULL ? comma + 1 : NULL;
    }
    return n;
}

static int
add_row(struct trace *t, const struct fdb_row *row)
{
    if (fct_room(&t->row, t->n + 1, &t->cap, sizeof(*row)) != 0)
        return fct_oom();
    t->row[t->n++] = *row;
    return 0;
}

static int
take_line(struct trace *t, char *line)
{
    struct fdb_row row = { .line = (uint32_t)t->line };
    char *field[4], *end, why[80];
    unsigned n = split(line, field);
    int rc;

    if (n == 1 && (field[0][0] == '\0' || field[0][0] == '#'))
        return 0;
    /* The header names its columns. */
    if (t->n == 0 && strcmp(field[0], "time_s") == 0)
        return 0;
    if (n != 3)
        return fct_fail(FCT_EX_DATA,
            "%s:%lu: %s fields; a line is "
            "time_s,prompt_tokens,output_tokens",
            t->path, t->line,
            n == 1       ? "1"
                : n == 2 ? "2"
                         : "more than 3");
    errno = 0;
    row.time_s = strtod(field[0], &end);
    if (end == field[0] || *end != '\0' || !(row.time_s >= 0 && row.time_s <= TIME_MAX_S))
        return bad_field(t, "time_s", field[0],
            "must be a number of seconds from 0 to 31536000");
    if (t->n > 0 && row.time_s < t->row[t->n - 1].time_s) {
        snprintf(why, sizeof(why), "is before the line above (%g)", t->row[t->n - 1].time_s);
        return bad_field(t, "time_s", field[0], why);
    }
    rc = read_tokens(t, "prompt_tokens", field[1], &row.n_prompt);
    if (rc == 0)
        rc = read_tokens(t, "output_tokens", field[2], &row.n_out);
    return rc == 0 ? add_row(t, &row) : rc;
}

static int
read_trace(struct fdb_cfg *cfg)
{
    struct trace t = { .path = cfg->trace };
    char *text = NULL, *line, *next;
    size_t n = 0;
    int rc = fct_slurp(cfg->trace, &text, &n);

    if (rc == 0 && memchr(text, '\0', n) != NULL)
        rc = fct_fail(FCT_EX_DATA, "%s: has a NUL byte; a trace is text", cfg->trace);
    for (line = text; rc == 0 && line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        t.line++;
        rc = take_line(&t, line);
    }
    if (rc == 0 && t.n == 0)
        rc = fct_fail(FCT_EX_DATA,
            "%s: no requests; a line is "
            "time_s,prompt_tokens,output_tokens",
            cfg->trace);
    free(text);
    if (rc != 0) {
        free(t.row);
        return rc;
    }
    cfg->row = t.row;
    cfg->n_row = t.n;
    return 0;
}

/* ---- text ---------------------------------------------------------------- */

/* Words of two to four syllables: what tokenizers cut into about one token
 * a syllable. */
static int
make_words(struct fdb_cfg *cfg)
{
    static const char syllable[16][4] = { "ba", "den", "fi", "gor", "hal", "in", "ka",
        "len", "mo", "nar", "pe", "ri", "sto", "tu", "ver", "wi" };
    char *text = malloc(WORDS_BYTES + 32);
    uint64_t x = 1;
    size_t n = 0;
    unsigned k;

    if (text == NULL)
        return fct_oom();
    while (n < WORDS_BYTES) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        for (k = 0; k < 2 + (x >> 62) % 3; k++) {
            const char *s = syllable[(x >> (40 + 4 * k)) & 15];

            memcpy(text + n, s, strlen(s));
            n += strlen(s);
        }
        text[n++] = ' ';
    }
    cfg->words = text;
    cfg->n_words = n;
    return 0;
}

static int
read_words(struct fdb_cfg *cfg)
{
    char *text;
    size_t n;
    int rc = fct_slurp(cfg->dataset, &text, &n);

    if (rc != 0)
        return rc;
    rc = fct_check_utf8(cfg->dataset, text, n);
    if (rc == 0 && n < 64)
        rc = fct_fail(FCT_EX_DATA,
            "%s: %zu bytes; prompts are cut from 64 bytes of text "
            "or more",
            cfg->dataset, n);
    if (rc != 0) {
        free(text);
        return rc;
    }
    cfg->words = text;
    cfg->n_words = n;
    return 0;
}

int
fdb_cfg_read(struct fdb_cfg *cfg)
{
    int rc = cfg->trace != NULL ? read_trace(cfg) : 0;

    if (rc == 0 && cfg->text)
        rc = cfg->dataset != NULL ? read_words(cfg) : make_words(cfg);
    return rc;
}

void
fdb_cfg_fini(struct fdb_cfg *cfg)
{
    free((void *)(uintptr_t)cfg->row);
    free((void *)(uintptr_t)cfg->words);
    fct_req_fini(&cfg->req);
    cfg->row = NULL;
    cfg->words = NULL;
}
