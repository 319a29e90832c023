/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

#include <string.h>

static int
debug_has(const char *bits, const char *bit)
{
    size_t n = strlen(bit);

    for (const char *p = bits; *p != '\0';) {
        size_t len = strcspn(p, ",");

        if (len == n && memcmp(p, bit, n) == 0)
            return 1;
        p += len + (p[len] == ',');
    }
    return 0;
}

static void
show_debug(const json_t *o)
{
    const json_t *panic = json_object_get(o, "panic"), *t;
    size_t i;

    if (json_is_string(panic)) {
        const char *text = json_string_value(panic);

        puts(text[0] != '\0' ? text : "no worker died in a panic");
        return;
    }
    if (!json_is_array(json_object_get(o, "topics"))) {
        fct_show(stdout, o, 0);
        return;
    }
    printf("level   %s\nformat  %s\nrate    %lld lines/s, %lld not shown\nrequests %s\n",
        fct_str(o, "level"), fct_str(o, "format"), fct_num(o, "rate"),
        fct_num(o, "dropped"), fct_str(o, "requests"));
    printf("bits    %s\n\n%-10s %-6s %s\n",
        fct_str(o, "bits")[0] != '\0' ? fct_str(o, "bits") : "none", "TOPIC", "LEVEL", "");
    json_array_foreach(json_object_get(o, "topics"), i, t)
        printf("%-10s %-6s %s\n", fct_str(t, "name"), fct_str(t, "level"),
            fct_str(t, "help"));
    printf("\n%-10s %-6s\n", "BIT", "SET");
    json_array_foreach(json_object_get(o, "known"), i, t)
        printf("%-10s %-6s %s\n", fct_str(t, "name"),
            debug_has(fct_str(o, "bits"), fct_str(t, "name")) ? "yes" : "no",
            fct_str(t, "help"));
}

/* Append a word to a list in text. 0: too long. */
static int
debug_word(char *list, size_t bytes, const char *sep, const char *w)
{
    size_t at = strlen(list);

    if (w[0] == '\0' || at + strlen(w) + 2 > bytes)
        return 0;
    (void)snprintf(list + at, bytes - at, "%s%s", at > 0 ? sep : "", w);
    return 1;
}

/* The value of an option in this word or the next; NULL: it is not this
 * option. *ret_bad: it lacks one. */
static const char *
debug_option(const char *name, int argc, char **argv, int *i, int *ret_bad)
{
    size_t n = strlen(name);

    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] != '\0' && argv[*i][n] != '='))
        return NULL;
    if (argv[*i][n] == '=')
        return argv[*i] + n + 1;
    if (*i + 1 >= argc) {
        *ret_bad = fct_fail(FCT_EX_USAGE, "debug: %s needs a value, such as %s", name,
            strcmp(name, "--level") == 0 ? "debug" : "gate=debug");
        return "";
    }
    return argv[++*i];
}

/* +bit, -bit and bit are words here, so "-kv" is not an option. */
static int
debug_question(int argc, char **argv, json_t *q, int *ret_json)
{
    char bits[512] = "", topics[512] = "";
    const char *v;
    int bad = 0, ok = 1;

    for (int i = 1; i < argc && bad == 0; i++) {
        const char *w = argv[i];

        if (strcmp(w, "--json") == 0)
            *ret_json = 1;
        else if ((v = debug_option("--level", argc, argv, &i, &bad)) != NULL)
            json_object_set_new(q, "level", fct_json_text(v, strlen(v)));
        else if ((v = debug_option("--topic", argc, argv, &i, &bad)) != NULL)
            ok = bad != 0 || debug_word(topics, sizeof(topics), ",", v);
        else if ((v = fct_table_word("debug", w)) != NULL)
            json_object_set_new(q, v, json_true());
        else
            ok = strncmp(w, "--", 2) != 0 && debug_word(bits, sizeof(bits), " ", w);
        if (!ok)
            return fct_fail(FCT_EX_USAGE, "debug: unknown '%s'; see fdctl debug --help", w);
    }
    if (bad != 0)
        return bad;
    if (bits[0] != '\0')
        json_object_set_new(q, "bits", fct_json_text(bits, strlen(bits)));
    if (topics[0] != '\0')
        json_object_set_new(q, "topic", fct_json_text(topics, strlen(topics)));
    return 0;
}

static void
help_words(void)
{
    puts("\nwords:");
    fct_help_words(stdout, "debug");
}

/* For the help alone: debug_question() takes the words. */
static const struct fct_opt opts[] = { { "level", 0, "", NULL, .id = 2 },
    { "topic", 0, "", NULL, .id = 2 },
    FCT_OPT_JSON(struct fct_plain, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END };

static const struct fct_line line = {
    .usage = "fdctl debug [--level LEVEL] [--topic TOPIC=LEVEL]... [+BIT -BIT... |\n"
             "                    BIT,BIT...] [--json]\n"
             "       fdctl debug WORD [--json]",
    .about = "Without words, show log level, topics and debug bits. +BIT and -BIT change "
             "one\nbit, a list replaces all.",
    .opts = { opts },
    .command = "debug",
    .below = help_words
};

int
fct_cmd_debug(const struct fct *f, int argc, char **argv)
{
    json_t *answer, *q;
    int rc, i, json = 0;

    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fct_help(&line);
    q = fct_question("debug");
    rc = debug_question(argc, argv, q, &json);
    if (rc != 0) {
        json_decref(q);
        return rc;
    }
    rc = fct_ask_once(f, q, 0, &answer);
    return rc == 0 ? fct_finish(answer, json, show_debug) : rc;
}
