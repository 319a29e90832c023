/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/lines.h"

static int
print_ids(const struct txa *a, const uint32_t *ids, size_t n)
{
    size_t i;

    if (!a->json) {
        for (i = 0; i < n; i++)
            printf("%s%u", i > 0 ? " " : "", ids[i]);
        putchar('\n');
        return 0;
    }
    return fct_print_json(
        json_pack("{s:o, s:I}", "ids", fct_json_ids(ids, n), "n", (json_int_t)n));
}

static int
tokenize_text(fdc_t *s, const struct txa *a, const char *name, const char *text, size_t n,
    int timeout_ms)
{
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = fct_check_utf8(name, text, n);

    if (rc != 0)
        return rc;
    rc = fdc_tokenize(s, text, n, a->flags, &ids, &n_ids, timeout_ms);
    if (rc < 0)
        return fct_status_fail(name, rc);
    rc = print_ids(a, ids, n_ids);
    fdc_free(ids);
    return rc;
}

/* The line is a JSON string. */
static int
tokenize_json(fdc_t *s, const struct txa *a, const char *name, const char *text, size_t n,
    int timeout_ms)
{
    json_error_t je;
    json_t *j;
    int rc;

    j = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!json_is_string(j))
        rc = fct_fail(FCT_EX_DATA, "%s: not a JSON string%s%s", name,
            j == NULL ? ": " : "", j == NULL ? je.text : "");
    else
        rc = tokenize_text(s, a, name, json_string_value(j), json_string_length(j),
            timeout_ms);
    json_decref(j);
    return rc;
}

static int
take_json_lines(void *args, const char *value)
{
    struct txa *a = args;

    (void)value;
    a->lines = 1;
    a->one = tokenize_json;
    return 0;
}

#define ONE FCT_HAS(struct txa, has_source), .once = "tokenize: one text only"
static const struct fct_opt opts[] = {
    { "prompt", 'p', "TEXT", "the text", FCT_TEXT(struct txa, text), ONE },
    { "file", 0, "FILE", "the file's text", FCT_TEXT(struct txa, file), ONE },
    { "lines", 0, NULL, "each line is a text of its own", FCT_FLAG(struct txa, lines) },
    { "json-lines", 0, NULL, "each line is a text, written as a JSON string",
        FCT_FN(take_json_lines) },
    { "no-special", 0, NULL, "add no begin-of-text token",
        FCT_BITS(struct txa, flags, FDC_F_NO_SPECIAL, 0) },
    { "literal", 0, NULL, "names of special tokens are text",
        FCT_BITS(struct txa, flags, FDC_LITERAL, 0) },
    FCT_OPT_JSON(struct txa, "{\"ids\": [...], \"n\": N}"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line = { .usage = "fdctl tokenize [-p TEXT | FILE | -] [options]",
    .about = "Token ids of a text; without a text, of standard input.",
    .opts = { opts },
    .operand_is = "file" };

int
fct_cmd_tokenize(const struct fct *f, int argc, char **argv)
{
    struct txa a = { .one = tokenize_text };
    int rc = fct_parse(&line, argc, argv, &a);

    return rc == FCT_GO ? txa_run(f, &a) : rc;
}
