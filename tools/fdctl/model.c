/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

struct args {
    const char *file;
    int json;
};

static const struct fct_opt opts[] = {
    { "file", 0, "NAME",
        "write one of the model's files to standard output:", FCT_TEXT(struct args, file) },
    FCT_OPT_JSON(struct args, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
};

static void
list_files(void)
{
#define FDP_FILE(id, name, text) printf("                          " name "\n");
#include "libclient/tbl/files.h"
#undef FDP_FILE
}

static const struct fct_line line = { .usage = "fdctl model [--json | --file NAME]",
    .about = "The model: sizes, memory, where its files are; or one of its files.",
    .opts = { opts },
    .hint = FCT_HINT_USAGE,
    .below = list_files };

static int
write_file(const struct fct *f, const char *name)
{
    char *bytes = NULL;
    size_t n = 0;
    fdc_t *s = NULL;
    int rc = fct_open(f, 0, &s);

    if (rc != 0)
        return rc;
    rc = fdc_file(s, name, &bytes, &n, f->timeout_ms);
    fdc_close(s);
    if (rc < 0)
        return fct_status_fail(name, rc);
    if (n > 0)
        fwrite(bytes, 1, n, stdout);
    fdc_free(bytes);
    return fct_flush();
}

static void
show_model(const json_t *o)
{
    fct_show(stdout, o, 0);
}

int
fct_cmd_model(const struct fct *f, int argc, char **argv)
{
    struct args a = { 0 };
    json_t *answer = NULL;
    int rc = fct_parse(&line, argc, argv, &a);

    if (rc != FCT_GO)
        return rc;
    if (a.file != NULL && a.json)
        return fct_fail(FCT_EX_USAGE, "model: --file or --json, not both");
    if (a.file != NULL)
        return write_file(f, a.file);
    rc = fct_ask_once(f, fct_question("model"), 0, &answer);
    return answer == NULL ? rc : fct_finish(answer, a.json, show_model);
}
