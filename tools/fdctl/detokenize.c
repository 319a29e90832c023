/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int
detokenize_text(fdc_t *s, const struct txa *a, const char *name, const char *text,
    size_t n, int timeout_ms)
{
    char err[256], *out = NULL;
    uint32_t *ids = NULL;
    size_t n_ids = 0, n_out = 0;
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
        return fct_status_fail(name, rc);
    if (!a->json) {
        if (n_out > 0)
            fwrite(out, 1, n_out, stdout);
        putchar('\n');
        rc = 0;
    } else {
        rc = fct_print_json(json_pack("{s:o}", "text", fct_json_text(out, n_out)));
    }
    fdc_free(out);
    return rc;
}

struct args {
    struct txa t;
    int n;
    char **word; /* [n] ids given as words */
};

static int
take_word(void *args, const char *word)
{
    struct args *a = args;

    if (strcmp(word, "-") == 0)
        a->t.file = word;
    else
        a->word[a->n++] = (char *)(uintptr_t)word;
    return 0;
}

static const struct fct_opt opts[] = {
    { "ids-file", 0, "FILE", "token ids: JSON list or numbers; - is standard input",
        FCT_TEXT(struct args, t.file) },
    { "lines", 0, NULL, "each line is a list of its own", FCT_FLAG(struct args, t.lines) },
    { "skip-special", 0, NULL, "leave special tokens out",
        FCT_BITS(struct args, t.flags, 0, FDC_F_KEEP_SPECIAL) },
    { "json", 0, NULL, "{\"text\": \"...\"}", FCT_FLAG(struct args, t.json) },
    FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line = {
    .usage = "fdctl detokenize [ID... | --ids-file FILE | -] [options]",
    .about = "Text of token ids; without ids, of those on standard input.",
    .opts = { opts },
    .operand = take_word
};

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
    struct args a = { .t = { .one = detokenize_text, .flags = FDC_F_KEEP_SPECIAL } };
    char *joined = NULL;
    int rc;

    a.word = calloc((size_t)argc + 1, sizeof(*a.word));
    rc = a.word != NULL ? fct_parse(&line, argc, argv, &a) : fct_oom();
    if (rc == FCT_GO && a.n > 0 && a.t.file != NULL)
        rc = fct_fail(FCT_EX_USAGE, "detokenize: ids or a file, not both");
    if (rc == FCT_GO && a.n > 0) {
        a.t.text = joined = join(a.word, a.n);
        rc = joined != NULL ? FCT_GO : fct_oom();
    }
    if (rc == FCT_GO)
        rc = txa_run(f, &a.t);
    free(joined);
    free(a.word);
    return rc;
}
