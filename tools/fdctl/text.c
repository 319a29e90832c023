/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { O_HELP = 1, O_PROMPT, O_FILE, O_IDS, O_LINES, O_JSON_LINES, O_NO_SPECIAL,
    O_LITERAL, O_SKIP_SPECIAL, O_JSON };

struct text_args {
    const char *text, *file;
    uint32_t flags;
    int lines, json_lines, json;
    int (*one)(fdc_t *s, const struct text_args *a, const char *name, const char *text,
        size_t n, int timeout_ms);
};

static int
out_of_memory(void)
{
    return fct_fail(FCT_EX_SOFT, "out of memory");
}

static int
status_failed(const char *name, int rc)
{
    return fct_fail(fct_exit_code(rc), "%s: %s (%s)", name, fdc_strerror(rc),
        fdc_status_name(rc));
}

/* ---- tokenize ------------------------------------------------------------------ */

static int
print_ids(const struct text_args *a, const uint32_t *ids, size_t n)
{
    json_t *o, *list;
    size_t i;
    int rc;

    if (!a->json) {
        for (i = 0; i < n; i++)
            printf("%s%u", i > 0 ? " " : "", ids[i]);
        putchar('\n');
        return 0;
    }
    o = json_object();
    list = json_array();
    for (i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    json_object_set_new(o, "ids", list);
    json_object_set_new(o, "n", json_integer((json_int_t)n));
    rc = fct_print_json(o);
    json_decref(o);
    return rc;
}

static int
tokenize_text(fdc_t *s, const struct text_args *a, const char *name, const char *text,
    size_t n, int timeout_ms)
{
    long long bad = fct_utf8_error(text, n);
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    int rc;

    if (bad >= 0)
        return fct_fail(FCT_EX_DATA, "%s: not valid UTF-8 at byte %lld (0x%02x)", name,
            bad, (unsigned char)text[bad]);
    rc = fdc_tokenize(s, text, n, a->flags, &ids, &n_ids, timeout_ms);
    if (rc < 0)
        return status_failed(name, rc);
    rc = print_ids(a, ids, n_ids);
    fdc_free(ids);
    return rc;
}

/* The line is a JSON string. */
static int
tokenize_json(fdc_t *s, const struct text_args *a, const char *name, const char *text,
    size_t n, int timeout_ms)
{
    json_error_t je;
    json_t *j;
    int rc;

    j = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!json_is_string(j))
        rc = fct_fail(FCT_EX_DATA, "%s: not a JSON string%s%s", name, j == NULL ? ": "
            : "", j == NULL ? je.text : "");
    else
        rc = tokenize_text(s, a, name, json_string_value(j), json_string_length(j),
            timeout_ms);
    json_decref(j);
    return rc;
}

/* ---- detokenize ---------------------------------------------------------------- */

static int
detokenize_text(fdc_t *s, const struct text_args *a, const char *name, const char *text,
    size_t n, int timeout_ms)
{
    char err[256], *out = NULL;
    uint32_t *ids = NULL;
    size_t n_ids = 0, n_out = 0;
    json_t *o;
    int rc;

    /* No ids are no text: so says tokenize of an empty line. */
    rc = fct_parse_ids(text, n, &ids, &n_ids, err, sizeof(err));
    if (rc != 0 && rc != -ENODATA)
        return fct_fail(FCT_EX_DATA, "%s: %s", name, err);
    if (rc == 0)
        rc = fdc_detokenize(s, ids, n_ids, a->flags, &out, &n_out, timeout_ms);
    else
        rc = 0;
    free(ids);
    if (rc < 0)
        return status_failed(name, rc);
    if (!a->json) {
        if (n_out > 0)
            fwrite(out, 1, n_out, stdout);
        putchar('\n');
        rc = 0;
    } else {
        o = json_pack("{s:o}", "text", fct_json_text(out, n_out));
        rc = o != NULL ? fct_print_json(o) : out_of_memory();
        json_decref(o);
    }
    fdc_free(out);
    return rc;
}

/* ---- both ---------------------------------------------------------------------- */

static int
run_lines(fdc_t *s, const struct text_args *a, const char *file, const char *text,
    size_t n,
    int timeout_ms)
{
    size_t at, len, line = 1;
    char name[600];
    int rc = 0;

    for (at = 0; at < n && rc == 0; at += len + 1, line++) {
        const char *nl = memchr(text + at, '\n', n - at);

        len = nl != NULL ? (size_t)(nl - (text + at)) : n - at;
        snprintf(name, sizeof(name), "%s:%zu", file, line);
        rc = a->one(s, a, name, text + at, len, timeout_ms);
    }
    return rc;
}

/* Text given, file or standard input, in lines or as a whole. */
static int
run_text(const struct fct *f, const struct text_args *a)
{
    const char *name = a->text != NULL ? "argument"
        : a->file == NULL || strcmp(a->file, "-") == 0 ? "standard input" : a->file;
    char *text = NULL;
    size_t n = 0;
    fdc_t *s = NULL;
    int rc;

    if (a->text != NULL) {
        text = strdup(a->text);
        rc = text != NULL ? 0 : out_of_memory();
        n = rc == 0 ? strlen(text) : 0;
    } else {
        rc = fct_slurp(a->file != NULL ? a->file : "-", &text, &n);
    }
    if (rc == 0)
        rc = fct_open(f, n, &s);
    if (rc == 0)
        rc = a->lines ? run_lines(s, a, name, text, n, f->timeout_ms)
            : a->one(s, a, name, text, n, f->timeout_ms);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        rc = fct_fail(FCT_EX_IO, "standard output: %s", strerror(errno));
    fdc_close(s);
    free(text);
    return rc;
}

int
fct_cmd_tokenize(const struct fct *f, int argc, char **argv)
{
    static const struct fct_opt opts[] = {
        { "prompt", 'p', "TEXT", "the text", O_PROMPT },
        { "file", 0, "FILE", "the file's text", O_FILE },
        { "lines", 0, NULL, "each line is a text of its own", O_LINES },
        { "json-lines", 0, NULL, "each line is a text, written as a JSON string",
            O_JSON_LINES },
        { "no-special", 0, NULL, "add no begin-of-text token", O_NO_SPECIAL },
        { "literal", 0, NULL, "names of special tokens are text", O_LITERAL },
        { "json", 0, NULL, "{\"ids\": [...], \"n\": N}", O_JSON },
        { "help", 'h', NULL, "this text", O_HELP },
        FCT_OPT_END
    };
    struct fct_cli c = { .argc = argc, .argv = argv };
    struct text_args a = { .one = tokenize_text };
    int id;

    while ((id = fct_cli_next(&c, opts)) != FCT_CLI_END) {
        if (id == FCT_CLI_BAD)
            return FCT_EX_USAGE;
        if (id == O_HELP) {
            puts("usage: fdctl tokenize [-p TEXT | FILE | -] [options]\n\n"
                "Token ids of a text; without a text, of standard input.\n");
            fct_help_opts(stdout, opts);
            return 0;
        }
        if (id == O_LINES || id == O_JSON_LINES) {
            a.lines = 1;
            a.one = id == O_JSON_LINES ? tokenize_json : a.one;
        } else if (id == O_NO_SPECIAL) {
            a.flags |= FDP_F_NO_SPECIAL;
        } else if (id == O_LITERAL) {
            a.flags |= FDC_LITERAL;
        } else if (id == O_JSON) {
            a.json = 1;
        } else if (a.text != NULL || a.file != NULL) {
            return fct_fail(FCT_EX_USAGE, "tokenize: one text only");
        } else if (id == O_PROMPT) {
            a.text = c.value;
        } else {
            a.file = c.value;
        }
    }
    return run_text(f, &a);
}

/* The words joined by blanks. NULL: no memory. */
static char *
join(char **words, int n)
{
    size_t bytes = 1;
    char *text, *p;
    int i;

    for (i = 0; i < n; i++)
        bytes += strlen(words[i]) + 1;
    p = text = malloc(bytes);
    for (i = 0; text != NULL && i < n; i++)
        p += sprintf(p, "%s ", words[i]);
    if (text != NULL)
        *p = '\0';
    return text;
}

int
fct_cmd_detokenize(const struct fct *f, int argc, char **argv)
{
    static const struct fct_opt opts[] = {
        { "ids-file", 0, "FILE", "token ids: JSON list or numbers; - is standard input",
            O_IDS },
        { "lines", 0, NULL, "each line is a list of its own", O_LINES },
        { "skip-special", 0, NULL, "leave special tokens out", O_SKIP_SPECIAL },
        { "json", 0, NULL, "{\"text\": \"...\"}", O_JSON },
        { "help", 'h', NULL, "this text", O_HELP },
        FCT_OPT_END
    };
    struct fct_cli c = { .argc = argc, .argv = argv };
    struct text_args a = { .one = detokenize_text,
        .flags = FDP_F_KEEP_SPECIAL };
    char *joined = NULL;
    int id, rc, n_words = 0;

    while ((id = fct_cli_next(&c, opts)) != FCT_CLI_END) {
        if (id == FCT_CLI_BAD)
            return FCT_EX_USAGE;
        if (id == O_HELP) {
            puts("usage: fdctl detokenize [ID... | --ids-file FILE | -] [options]\n\n"
                "Text of token ids; without ids, of those on standard input.\n");
            fct_help_opts(stdout, opts);
            return 0;
        }
        if (id == O_LINES)
            a.lines = 1;
        else if (id == O_JSON)
            a.json = 1;
        else if (id == O_SKIP_SPECIAL)
            a.flags = 0;
        else if (id == O_IDS || (id == FCT_CLI_WORD && strcmp(c.value, "-") == 0))
            a.file = c.value;
        else
            argv[n_words++] = (char *)(uintptr_t)c.value;
    }
    if (n_words > 0 && a.file != NULL)
        return fct_fail(FCT_EX_USAGE, "detokenize: ids or a file, not both");
    if (n_words > 0) {
        joined = join(argv, n_words);
        if (joined == NULL)
            return out_of_memory();
        a.text = joined;
    }
    rc = run_text(f, &a);
    free(joined);
    return rc;
}

int
fct_cmd_ping(const struct fct *f, int argc, char **argv)
{
    enum { P_HELP = 1, P_DEEP, P_COUNT, P_JSON };
    static const struct fct_opt opts[] = {
        { "deep", 0, NULL, "to the worker and back, not only the gate", P_DEEP },
        { "count", 'c', "N", "so often (1)", P_COUNT },
        { "json", 0, NULL, "{\"ns\": N} for each", P_JSON },
        { "help", 'h', NULL, "this text", P_HELP },
        FCT_OPT_END
    };
    struct fct_cli c = { .argc = argc, .argv = argv };
    uint64_t count = 1, ns;
    int id, rc, deep = 0, json = 0;
    fdc_t *s = NULL;

    while ((id = fct_cli_next(&c, opts)) != FCT_CLI_END) {
        if (id == FCT_CLI_BAD)
            return FCT_EX_USAGE;
        if (id == FCT_CLI_WORD)
            return fct_fail(FCT_EX_USAGE, "ping: unexpected '%s'", c.value);
        if (id == P_HELP) {
            puts("usage: fdctl ping [options]\n\nRound trip through shared memory.\n");
            fct_help_opts(stdout, opts);
            return 0;
        }
        deep |= id == P_DEEP;
        json |= id == P_JSON;
        if (id == P_COUNT && (rc = fct_u64("--count", c.value, 100000000, &count)) != 0)
            return rc;
    }
    rc = fct_open(f, 0, &s);
    for (; rc == 0 && count > 0; count--) {
        rc = fdc_ping(s, deep, &ns, f->timeout_ms);
        if (rc < 0)
            rc = fct_fail(fct_exit_code(rc), "ping: %s (%s)", fdc_strerror(rc),
                fdc_status_name(rc));
        else if (json)
            rc = printf("{\"ns\": %llu}\n", (unsigned long long)ns) < 0;
        else
            rc = printf("%s: %.1f us\n", deep ? "worker" : "gate", (double)ns / 1e3) < 0;
    }
    fdc_close(s);
    return rc;
}
