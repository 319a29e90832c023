/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#define FORM        "a line is time_s,prompt_tokens,output_tokens"
#define WORDS_BYTES 65536u

/* ---- trace --------------------------------------------------------------- */

static const struct {
    const char *name, *must;
    double lo, hi;
} columns[3] = { { "time_s", "must be a number of seconds from 0 to 31536000", 0, 31536000 },
    { "prompt_tokens", "must be a whole number from 1 to 16777216", 1, 16777216 },
    { "output_tokens", "must be a whole number from 1 to 16777216", 1, 16777216 } };

/* Fields between commas, without the blanks around them; returns how many there are. */
static unsigned
split(char *line, char *field[3])
{
    unsigned n = 0;
    char *one;
    size_t k;

    while ((one = strsep(&line, ",")) != NULL) {
        one += strspn(one, " \t\r");
        for (k = strlen(one); k > 0 && strchr(" \t\r", one[k - 1]) != NULL; k--)
            one[k - 1] = '\0';
        if (n < 3)
            field[n] = one;
        n++;
    }
    return n;
}

static int
take_line(struct fdb_cfg *cfg, size_t *cap, char *line, uint32_t number)
{
    struct fdb_row *rows = (struct fdb_row *)(uintptr_t)cfg->row;
    double v[3], before = cfg->n_row > 0 ? rows[cfg->n_row - 1].time_s : 0;
    char *field[3], *end;
    unsigned n = split(line, field), i;

    if (field[0][0] == '#' || (n == 1 && field[0][0] == '\0') ||
        (cfg->n_row == 0 && strcmp(field[0], columns[0].name) == 0))
        return 0;
    if (n != 3)
        return fct_data("%s:%u: %s%u fields; " FORM, cfg->trace, number,
            n > 3 ? "more than " : "", n > 3 ? 3 : n);
    for (i = 0; i < 3; i++) {
        v[i] = strtod(field[i], &end);
        if (end == field[i] || *end != '\0' || !(v[i] >= columns[i].lo) ||
            v[i] > columns[i].hi || (i > 0 && v[i] != floor(v[i])))
            return fct_data("%s:%u: %s \"%.40s\": %s", cfg->trace, number,
                columns[i].name, field[i], columns[i].must);
        if (v[0] < before)
            return fct_data("%s:%u: time_s \"%.40s\": is before the line above (%g)",
                cfg->trace, number, field[0], before);
    }
    if (fct_room(&rows, cfg->n_row + 1, cap, sizeof(*rows)) != 0)
        return fct_oom();
    rows[cfg->n_row++] = (struct fdb_row){ v[0], (uint32_t)v[1], (uint32_t)v[2], number };
    cfg->row = rows;
    return 0;
}

static int
read_trace(struct fdb_cfg *cfg)
{
    char *text = NULL, *line, *next;
    size_t n = 0, cap = 0;
    uint32_t number = 0;
    int rc = fct_slurp(cfg->trace, &text, &n);

    if (rc == 0 && memchr(text, '\0', n) != NULL)
        rc = fct_data("%s: has a NUL byte; a trace is text", cfg->trace);
    for (next = text; rc == 0 && (line = strsep(&next, "\n")) != NULL;)
        rc = take_line(cfg, &cap, line, ++number);
    if (rc == 0 && cfg->n_row == 0)
        rc = fct_data("%s: no requests; " FORM, cfg->trace);
    free(text);
    return rc;
}

/* ---- text ---------------------------------------------------------------- */

/* Words of two to four syllables: what tokenizers cut into about one token
 * a syllable. */
static int
make_words(char **ret_text, size_t *ret_n)
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
        for (k = 0; k < 2 + (x >> 62) % 3; k++)
            n = (size_t)(stpcpy(text + n, syllable[(x >> (40 + 4 * k)) & 15]) - text);
        text[n++] = ' ';
    }
    *ret_text = text;
    *ret_n = n;
    return 0;
}

int
fdb_cfg_read(struct fdb_cfg *cfg)
{
    const char *path = cfg->dataset;
    char *text = NULL;
    size_t n = 0;
    int rc = cfg->trace != NULL ? read_trace(cfg) : 0;

    if (rc == 0 && cfg->text)
        rc = path != NULL ? fct_slurp(path, &text, &n) : make_words(&text, &n);
    if (rc == 0 && text != NULL)
        rc = fct_check_utf8(path, text, n);
    if (rc == 0 && text != NULL && n < 64)
        rc = fct_data("%s: %zu bytes; prompts are cut from 64 bytes of text or more",
            path, n);
    cfg->words = text;
    cfg->n_words = n;
    if (rc != 0)
        fdb_cfg_fini(cfg);
    return rc;
}

void
fdb_cfg_fini(struct fdb_cfg *cfg)
{
    free((void *)(uintptr_t)cfg->row);
    free((void *)(uintptr_t)cfg->words);
    fct_req_fini(&cfg->req);
    cfg->row = NULL;
    cfg->n_row = 0;
    cfg->words = NULL;
}
