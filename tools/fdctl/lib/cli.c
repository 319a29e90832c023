/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/cmdtable.h"
#include "daemon/common/text.h"
#include "libclient/fdname.h"

const char *fct_prog = "fdctl";

int
fct_fail(int code, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", fct_prog);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return code;
}

/* "fdctl: generate: what" or, for main(), "fdctl: what". */
__attribute__((format(printf, 2, 3)))
static int
bad(const struct fct_cli *c, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fct_fail(0, "%s%s%s", c->is_main ? "" : c->argv[0], c->is_main ? "" : ": ", text);
    return FCT_CLI_BAD;
}

static int
unknown_option(const struct fct_cli *c, const struct fct_opt *opts, const char *name)
{
    const struct fct_opt *o, *nearest = NULL;
    const char *cmd = c->is_main ? "" : c->argv[0];
    unsigned best = ~0u, n;

    for (o = opts; o->name != NULL; o++) {
        n = txt_distance(name, o->name);
        if (n < best) {
            best = n;
            nearest = o;
        }
    }
    if (nearest != NULL && best <= 3 && best < strlen(name))
        return bad(c, "unknown option --%s; did you mean --%s?", name, nearest->name);
    return bad(c, "unknown option --%s; see %s %s%s--help", name, fct_prog, cmd,
        cmd[0] ? " " : "");
}

static int
take_value(struct fct_cli *c, const struct fct_opt *o)
{
    if (c->at >= c->argc)
        return bad(c, "--%s needs a value: --%s %s", o->name, o->name, o->arg);
    c->value = c->argv[c->at++];
    return o->id;
}

static int
long_option(struct fct_cli *c, const struct fct_opt *opts, const char *word)
{
    const char *eq = strchr(word, '=');
    size_t n = eq != NULL ? (size_t)(eq - word) : strlen(word);
    const struct fct_opt *o;
    char name[64];

    for (o = opts; o->name != NULL; o++) {
        if (strlen(o->name) != n || strncmp(o->name, word, n) != 0)
            continue;
        if (o->arg == NULL && eq != NULL)
            return bad(c, "--%s takes no value", o->name);
        if (o->arg == NULL)
            return o->id;
        if (eq == NULL)
            return take_value(c, o);
        c->value = eq + 1;
        return o->id;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(n < 60 ? n : 60), word);
    return unknown_option(c, opts, name);
}

static int
short_option(struct fct_cli *c, const struct fct_opt *opts, const char *word)
{
    const struct fct_opt *o;

    for (o = opts; o->name != NULL; o++) {
        if (o->letter != word[0])
            continue;
        if (o->arg == NULL) {
            c->rest = word[1] != '\0' ? word + 1 : NULL;
            return o->id;
        }
        c->rest = NULL;
        if (word[1] == '\0')
            return take_value(c, o);
        c->value = word + 1;
        return o->id;
    }
    return bad(c, "unknown option -%c; see --help", word[0]);
}

int
fct_cli_next(struct fct_cli *c, const struct fct_opt *opts)
{
    const char *word;

    if (c->at == 0)
        c->at = 1;
    if (c->rest != NULL)
        return short_option(c, opts, c->rest);
    if (c->at >= c->argc)
        return FCT_CLI_END;
    word = c->argv[c->at++];
    if (!c->no_more && strcmp(word, "--") == 0) {
        c->no_more = 1;
        if (c->at >= c->argc)
            return FCT_CLI_END;
        word = c->argv[c->at++];
    }
    if (c->no_more || word[0] != '-' || word[1] == '\0') {
        c->value = word;
        return FCT_CLI_WORD;
    }
    return word[1] == '-' ? long_option(c, opts, word + 2) : short_option(c, opts, word
        + 1);
}

void
fct_help_opts(FILE *out, const struct fct_opt *opts)
{
    const struct fct_opt *o;
    char left[64];

    for (o = opts; o->name != NULL; o++) {
        snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
            o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
            o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
        fprintf(out, "  %-28s %s\n", left, o->help);
    }
}

/* "timeout-ms" for "timeout_ms". */
static void
dashed(const char *name, char *ret, size_t ret_bytes)
{
    snprintf(ret, ret_bytes, "%s", name);
    for (char *p = ret; *p != '\0'; p++)
        *p = *p == '_' ? '-' : *p;
}

static const struct cmd_arg *
arg_of(const char *cmd, const char *option, int form)
{
    char name[64];

    for (size_t i = 0; i < cmd_n_args; i++) {
        dashed(cmd_args[i].name, name, sizeof(name));
        if (cmd_args[i].form == form && strcmp(name, option) == 0 &&
            strcmp(cmd_rows[cmd_args[i].cmd].name, cmd) == 0)
            return &cmd_args[i];
    }
    return NULL;
}

void
fct_table_opts(const char *cmd, const struct fct_opt *opts, struct fct_opt *ret)
{
    const struct cmd_arg *a;
    size_t i;

    for (i = 0; opts[i].name != NULL && i + 1 < FCT_OPTS_MAX; i++) {
        ret[i] = opts[i];
        a = opts[i].help == NULL ? arg_of(cmd, opts[i].name, CMD_OPT) : NULL;
        if (a == NULL)
            continue;
        ret[i].arg = a->value;
        ret[i].help = a->help;
        ret[i].letter = a->letter;
    }
    ret[i] = (struct fct_opt)FCT_OPT_END;
}

void
fct_help_words(FILE *out, const char *cmd)
{
    char name[64];

    for (size_t i = 0; i < cmd_n_args; i++) {
        if (cmd_args[i].form != CMD_WORD || cmd_args[i].type != CMD_BOOL ||
            strcmp(cmd_rows[cmd_args[i].cmd].name, cmd) != 0)
            continue;
        dashed(cmd_args[i].name, name, sizeof(name));
        fprintf(out, "  %-28s %s\n", name, cmd_args[i].help);
    }
}

const char *
fct_table_word(const char *cmd, const char *word)
{
    char name[64];
    const struct cmd_arg *a;

    dashed(word, name, sizeof(name));
    a = arg_of(cmd, name, CMD_WORD);
    return a != NULL && a->type == CMD_BOOL ? a->name : NULL;
}

int
fct_exit_code(int status)
{
    const struct fdn_status *s = fdn_status(status);
    const char *cls = s != NULL ? s->cls : "NODE";

    if (status >= 0)
        return 0;
    if (status == FDP_E_PERM)
        return FCT_EX_PERM;
    if (status == FDP_E_CONNECT || status == FDP_E_DISCONNECTED)
        return FCT_EX_UNAV;
    if (strcmp(cls, "REQUEST") == 0 || status == FDP_E_INVAL)
        return FCT_EX_DATA;
    if (strcmp(cls, "RETRY") == 0 || status == FDP_E_TIMEOUT || status == FDP_E_AGAIN
        || status == FDP_E_SLOW)
        return FCT_EX_TEMP;
    if (strcmp(cls, "ENDED") == 0)
        return FCT_EX_ENDED;
    return strcmp(cls, "SESSION") == 0 ? FCT_EX_PROTO : FCT_EX_SOFT;
}

int
fct_u64(const char *what, const char *text, uint64_t max, uint64_t *ret)
{
    unsigned long long v;
    char *end;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || strchr(text, '-') != NULL)
        return fct_fail(FCT_EX_USAGE, "%s %s: not a whole number", what, text);
    if (errno == ERANGE || v > max)
        return fct_fail(FCT_EX_USAGE, "%s %s: at most %llu", what, text,
            (unsigned long long)max);
    *ret = v;
    return 0;
}

int
fct_dbl(const char *what, const char *text, double *ret)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0')
        return fct_fail(FCT_EX_USAGE, "%s %s: not a number", what, text);
    *ret = v;
    return 0;
}

uint64_t
fct_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
