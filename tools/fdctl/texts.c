/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl tokenize and detokenize: an argument, a file or stdin, whole or line by line. */
#include "config.h"

#include "tools/fdctl/commands.h"

struct args {
    const char *text, *file; /* neither: standard input */
    struct fct_buf words;    /* ids given as operands */
    uint32_t flags;
    int lines, json_lines, json, has_source;
    int timeout_ms;
    /* Convert and print a text; name is its source in messages. */
    int (*one)(fdc_t *s, const struct args *a, const char *name, const char *text, size_t n);
};

static int
run(const struct fct *f, struct args *a)
{
    const char *file = a->file != NULL ? a->file : "-", *text = a->text, *nl;
    const char *name = text != NULL ? "argument"
        : strcmp(file, "-") == 0    ? "standard input"
                                    : file;
    char *read = NULL, place[600];
    size_t n = text != NULL ? strlen(text) : 0, at, len, line = 1;
    int rc = text == NULL ? fct_slurp(file, &read, &n) : 0;
    int by_line = a->lines || a->json_lines;
    fdc_t *s = NULL;

    if (text == NULL)
        text = read;
    a->timeout_ms = f->timeout_ms;
    if (rc == 0)
        rc = fct_open(f, n, &s);
    if (rc == 0 && !by_line)
        rc = a->one(s, a, name, text, n);
    for (at = 0; by_line && at < n && rc == 0; at += len + 1, line++) {
        nl = memchr(text + at, '\n', n - at);
        len = nl != NULL ? (size_t)(nl - (text + at)) : n - at;
        snprintf(place, sizeof(place), "%s:%zu", name, line);
        rc = a->one(s, a, place, text + at, len);
    }
    if (rc == 0)
        rc = fct_flush();
    fdc_close(s);
    free(read);
    return rc;
}

static int
tokenize(fdc_t *s, const struct args *a, const char *name, const char *text, size_t n)
{
    json_error_t je;
    json_t *j = NULL;
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = 0;

    if (a->json_lines) {
        j = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
        text = json_string_value(j);
        n = json_string_length(j);
    }
    if (text == NULL)
        rc = fct_data("%s: not a JSON string%s%s", name, j == NULL ? ": " : "",
            j == NULL ? je.text : "");
    if (rc == 0)
        rc = fct_check_utf8(name, text, n);
    if (rc == 0) {
        rc = fdc_tokenize(s, text, n, a->flags, &ids, &n_ids, a->timeout_ms);
        rc = rc < 0 ? fct_status_fail(name, rc) : 0;
    }
    if (rc == 0 && a->json) {
        rc = fct_print_json(json_pack("{s:o, s:I}", "ids", fct_json_ids(ids, n_ids), "n",
            (json_int_t)n_ids));
    } else if (rc == 0) {
        for (size_t i = 0; i < n_ids; i++)
            printf("%s%u", i > 0 ? " " : "", ids[i]);
        putchar('\n');
    }
    fdc_free(ids);
    json_decref(j);
    return rc;
}

#define FCT_ARGS struct args
#define ONE      FCT_HAS(has_source), .once = "tokenize: one text only"
static const struct fct_opt tokenize_opts[] = {
    FCT_TEXT('p', "prompt", "TEXT", text, "the text", ONE),
    FCT_TEXT(0, "file", "FILE", file, "the file's text", ONE),
    FCT_FLAG(0, "lines", lines, "each line is a text of its own"),
    FCT_FLAG(0, "json-lines", json_lines, "each line is a text, written as a JSON string"),
    FCT_BITS(0, "no-special", flags, FDC_F_NO_SPECIAL, 0, "add no begin-of-text token"),
    FCT_BITS(0, "literal", flags, FDC_LITERAL, 0, "names of special tokens are text"),
    FCT_FLAG(0, "json", json, "{\"ids\": [...], \"n\": N}"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line tokenize_line =
    FCT_LINE("fdctl tokenize [-p TEXT | FILE | -] [options]",
        "Token ids of a text; without a text, of standard input.", tokenize_opts,
        .operand_is = "file");

int
fct_cmd_tokenize(const struct fct *f, int argc, char **argv)
{
    struct args a = { .one = tokenize };
    int rc = fct_parse(&tokenize_line, argc, argv, &a);

    return rc == FCT_GO ? run(f, &a) : rc;
}

static int
detokenize(fdc_t *s, const struct args *a, const char *name, const char *text, size_t n)
{
    char err[256], *out = NULL;
    uint32_t *ids = NULL;
    size_t n_ids = 0, n_out = 0;
    int rc = fct_parse_ids(text, n, &ids, &n_ids, err, sizeof(err));

    /* No ids give an empty text, as an empty line gives no ids in tokenize. */
    if (rc != 0 && rc != -ENODATA)
        return fct_data("%s: %s", name, err);
    rc = rc == 0 ? fdc_detokenize(s, ids, n_ids, a->flags, &out, &n_out, a->timeout_ms) : 0;
    free(ids);
    if (rc < 0)
        return fct_status_fail(name, rc);
    rc = 0;
    if (a->json)
        rc = fct_print_json(json_pack("{s:o}", "text", fct_json_text(out, n_out)));
    else if (n_out > 0)
        fwrite(out, 1, n_out, stdout);
    if (!a->json)
        putchar('\n');
    fdc_free(out);
    return rc;
}

static int
take_word(void *args, const char *word)
{
    struct args *a = args;

    if (strcmp(word, "-") == 0)
        a->file = word;
    else if (fct_buf_add(&a->words, word, strlen(word)) != 0 ||
        fct_buf_add(&a->words, " ", 1) != 0)
        return fct_oom();
    return 0;
}

static const struct fct_opt detokenize_opts[] = {
    FCT_TEXT(0, "ids-file", "FILE", file,
        "token ids: JSON list or numbers; - is standard input"),
    FCT_FLAG(0, "lines", lines, "each line is a list of its own"),
    FCT_BITS(0, "skip-special", flags, 0, FDC_F_KEEP_SPECIAL, "leave special tokens out"),
    FCT_FLAG(0, "json", json, "{\"text\": \"...\"}"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line detokenize_line =
    FCT_LINE("fdctl detokenize [ID... | --ids-file FILE | -] [options]",
        "Text of token ids; without ids, of those on standard input.", detokenize_opts,
        .operand = take_word);

int
fct_cmd_detokenize(const struct fct *f, int argc, char **argv)
{
    struct args a = { .one = detokenize, .flags = FDC_F_KEEP_SPECIAL };
    int rc = fct_parse(&detokenize_line, argc, argv, &a);

    if (rc == FCT_GO && a.words.n > 0 && a.file != NULL)
        rc = fct_usage("detokenize: ids or a file, not both");
    a.text = a.words.p;
    if (rc == FCT_GO)
        rc = run(f, &a);
    free(a.words.p);
    return rc;
}
