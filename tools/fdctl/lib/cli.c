/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <getopt.h>
#include <stdarg.h>

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

int
fct_oom(void)
{
    return fct_fail(FCT_EX_SOFT, "out of memory");
}

int
fct_status_fail(const char *what, int status)
{
    return fct_fail(fct_exit_code(status), "%s: %s (%s)", what, fdc_strerror(status),
        fdc_status_name(status));
}

volatile sig_atomic_t fct_interrupted;

static void
on_interrupt(int sig)
{
    fct_interrupted = sig;
}

void
fct_catch(int sig, unsigned flags)
{
    struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = (int)flags };

    sigaction(sig, &sa, NULL);
}

int
fct_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return fct_fail(FCT_EX_IO, "standard output: %s", strerror(errno));
}

/* ---- words --------------------------------------------------------------------- */

/* "fdctl: generate: what" or, for main(), "fdctl: what". */
__attribute__((format(printf, 2, 3))) static int
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

void
fct_near(struct fct_near *n, const char *name)
{
    unsigned d = txt_distance(n->like, name);

    if (d < n->best) {
        n->best = d;
        n->name = name;
    }
}

static int
unknown_option(const struct fct_cli *c, const struct fct_opt *opts, const char *word)
{
    const char *cmd = c->is_main ? "" : c->argv[0];
    char name[64];
    struct fct_near near = { .like = name, .best = 4 };

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    for (; opts->name != NULL; opts++)
        if (opts->name[0] != '\0')
            fct_near(&near, opts->name);
    if (near.name != NULL && near.best < strlen(name))
        return bad(c, "unknown option --%s; did you mean --%s?", name, near.name);
    return bad(c, "unknown option --%s; see %s %s%s--help", name, fct_prog, cmd,
        cmd[0] ? " " : "");
}

/* The tables of getopt_long(): a long option stands for FIRST_LONG + its place. */
#define FIRST_LONG 256
struct tables {
    struct option longs[FCT_OPTS_MAX + 1];
    char shorts[2 * FCT_OPTS_MAX + 4];
};

static void
make_tables(const struct fct_opt *opts, int is_main, struct tables *ret)
{
    char *s = ret->shorts;
    size_t i;

    *s++ = is_main ? '+' : '-';
    *s++ = ':';
    for (i = 0; opts[i].name != NULL && i < FCT_OPTS_MAX; i++) {
        const struct fct_opt *o = &opts[i];

        ret->longs[i] = (struct option){ o->name,
            o->arg == NULL         ? no_argument
                : o->arg[0] == '[' ? optional_argument
                                   : required_argument,
            NULL, FIRST_LONG + (int)i };
        if (o->letter == 0)
            continue;
        *s++ = o->letter;
        if (o->arg != NULL)
            *s++ = ':';
    }
    *s = '\0';
    ret->longs[i] = (struct option){ NULL, 0, NULL, 0 };
}

static const struct fct_opt *
row_of(const struct fct_opt *opts, int id)
{
    for (; id < FIRST_LONG && opts->name != NULL; opts++)
        if (opts->letter == id)
            return opts;
    return id < FIRST_LONG ? NULL : &opts[id - FIRST_LONG];
}

/* Was the row's name written out, in the word "--name" or "--name=value"? */
static int
is_whole(const struct fct_opt *o, const char *word)
{
    return strcspn(word + 2, "=") == strlen(o->name);
}

static int
refused(const struct fct_cli *c, const struct fct_opt *opts, int id)
{
    const char *word = c->argv[optind - 1];
    const struct fct_opt *o = optopt != 0 ? row_of(opts, optopt) : NULL;

    if (id == '?' && optopt != 0 && optopt < FIRST_LONG)
        return bad(c, "unknown option -%c; see --help", optopt);
    if (o == NULL || (optopt >= FIRST_LONG && !is_whole(o, word)))
        return unknown_option(c, opts, word + 2);
    if (id == '?')
        return bad(c, "--%s takes no value", o->name);
    return bad(c, "--%s needs a value: --%s %s", o->name, o->name, o->arg);
}

int
fct_cli_next(struct fct_cli *c, const struct fct_opt *opts)
{
    const struct fct_opt *o;
    struct tables t;
    int id, before;

    if (c->at == 0)
        optind = 0; /* a new line */
    if (c->no_more && c->at >= c->argc)
        return FCT_CLI_END;
    c->value = c->no_more ? c->argv[c->at++] : NULL;
    if (c->no_more)
        return FCT_CLI_WORD;
    opterr = 0;
    before = c->at > 0 ? c->at : 1;
    make_tables(opts, c->is_main, &t);
    id = getopt_long(c->argc, c->argv, t.shorts, t.longs, NULL);
    c->at = optind;
    if (id == -1) {
        c->no_more = 1;
        return fct_cli_next(c, opts);
    }
    c->value = optarg;
    if (id == 1)
        return FCT_CLI_WORD;
    if (id == '?' || id == ':')
        return refused(c, opts, id);
    c->row = o = row_of(opts, id);
    return id >= FIRST_LONG && !is_whole(o, c->argv[before])
        ? unknown_option(c, opts, c->argv[before] + 2)
        : o->id != 0 ? o->id
                     : FCT_CLI_ROW;
}

/* ---- help ---------------------------------------------------------------------- */

static int
has_arg(const struct fct_opt *o)
{
    return o->arg != NULL && o->arg[0] != '[';
}

void
fct_help_opts(FILE *out, const struct fct_opt *opts)
{
    const struct fct_opt *o;
    char left[64];

    for (o = opts; o->name != NULL; o++) {
        if (o->name[0] == '\0')
            fprintf(out, "%s%s\n", o > opts ? "\n" : "", o->help);
        if (o->name[0] == '\0' || o->help[0] == '\0')
            continue;
        snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
            o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
            has_arg(o) ? " " : "", has_arg(o) ? o->arg : "");
        fprintf(out, "  %-28s %s\n", left, o->help);
    }
}

void
fct_swap(const char *name, char from, char to, char ret[64])
{
    snprintf(ret, 64, "%s", name);
    for (char *p = ret; *p != '\0'; p++)
        *p = *p == from ? to : *p;
}

static const struct cmd_arg *
arg_of(const char *cmd, const char *option, int form)
{
    char name[64];

    for (size_t i = 0; i < cmd_n_args; i++) {
        fct_swap(cmd_args[i].name, '_', '-', name);
        if (cmd_args[i].form == form && strcmp(name, option) == 0 &&
            strcmp(cmd_rows[cmd_args[i].cmd].name, cmd) == 0)
            return &cmd_args[i];
    }
    return NULL;
}

void
fct_help_words(FILE *out, const char *cmd)
{
    char name[64];

    for (size_t i = 0; i < cmd_n_args; i++) {
        if (cmd_args[i].form != CMD_WORD || cmd_args[i].type != CMD_BOOL ||
            strcmp(cmd_rows[cmd_args[i].cmd].name, cmd) != 0)
            continue;
        fct_swap(cmd_args[i].name, '_', '-', name);
        fprintf(out, "  %-28s %s\n", name, cmd_args[i].help);
    }
}

const char *
fct_table_word(const char *cmd, const char *word)
{
    char name[64];
    const struct cmd_arg *a;

    fct_swap(word, '_', '-', name);
    a = arg_of(cmd, name, CMD_WORD);
    return a != NULL && a->type == CMD_BOOL ? a->name : NULL;
}

/* ---- a command's line ----------------------------------------------------------- */

/* One table of all the line's options, in the order of the help. */
static void
gather(const struct fct_line *l, struct fct_opt ret[FCT_OPTS_MAX])
{
    const char *const *less;
    const struct fct_opt *o;
    const struct cmd_arg *a;
    size_t n = 0;

    for (size_t i = 0; i < sizeof(l->opts) / sizeof(l->opts[0]) && l->opts[i] != NULL; i++) {
        for (o = l->opts[i]; o->name != NULL && n + 1 < FCT_OPTS_MAX; o++) {
            less = o->take == FCT_T_PARAM ? l->less : NULL;
            while (less != NULL && *less != NULL && strcmp(*less, o->name) != 0)
                less++;
            if (less != NULL && *less != NULL)
                continue;
            ret[n++] = *o;
            a = o->help == NULL ? arg_of(l->command, o->name, CMD_OPT) : NULL;
            if (a == NULL)
                continue;
            ret[n - 1].arg = a->value;
            ret[n - 1].help = a->help;
            ret[n - 1].letter = a->letter;
        }
    }
    ret[n] = (struct fct_opt)FCT_OPT_END;
}

static int
take_real(const struct fct_opt *o, const char *what, const char *value, double *ret)
{
    double v = 0;
    int rc;

    if (o->range == NULL)
        return fct_dbl_in(what, value, o->from, o->to, ret);
    rc = fct_dbl(what, value, &v);
    if (rc == 0 && !(v >= o->from && v <= o->to))
        rc = fct_usage("%s %s: must be %s", what, value, o->range);
    if (rc == 0)
        *ret = v;
    return rc;
}

/* The argument of an admin command into its question. */
static int
take_ask(const struct fct_opt *o, const char *what, const char *value, json_t *ask)
{
    char key[64];
    uint64_t v;
    int rc;

    fct_swap(o->name, '-', '_', key);
    if (o->arg == NULL)
        return json_object_set_new(ask, key, json_true());
    rc = fct_u64(what, value, o->hi, &v);
    if (rc == 0)
        json_object_set_new(ask, key, json_integer((json_int_t)v));
    return rc;
}

int
fct_take(const struct fct_line *l, const struct fct_opt *o, const char *value, void *into)
{
    char what[64], *args = into;
    void *to = args + o->at;

    snprintf(what, sizeof(what), "%s--%s", l->prefix != NULL ? l->prefix : "", o->name);
    if (o->has != 0 && o->once != NULL && *(int *)(void *)(args + o->has - 1))
        return fct_usage("%s", o->once);
    if (o->has != 0)
        *(int *)(void *)(args + o->has - 1) = 1;
    switch (o->take) {
    case FCT_T_FLAG:
        *(int *)to = 1;
        return 0;
    case FCT_T_TEXT:
        *(const char **)to = value;
        return 0;
    case FCT_T_U64:
        return fct_u64(what, value, o->hi, to);
    case FCT_T_U32:
        return fct_u32(what, value, (uint32_t)o->lo, (uint32_t)o->hi, to);
    case FCT_T_REAL:
        return take_real(o, what, value, to);
    case FCT_T_ASK:
        return take_ask(o, what, value, *(json_t **)to);
    case FCT_T_BITS:
        *(uint32_t *)to |= (uint32_t)o->lo;
        *(uint32_t *)to &= ~(uint32_t)o->hi;
        return 0;
    case FCT_T_FN:
        return o->fn(args, value);
    case FCT_T_PARAM:
        return fct_req_set_opt((struct fct_req *)(void *)(args + l->req - 1), o, value);
    case FCT_BY_ID:
        break;
    }
    return 0;
}

int
fct_help(const struct fct_line *l)
{
    struct fct_opt opts[FCT_OPTS_MAX];

    gather(l, opts);
    printf("usage: %s\n\n%s\n%s", l->usage, l->about, l->above != NULL ? "" : "\n");
    if (l->above != NULL)
        l->above();
    fct_help_opts(stdout, opts);
    if (l->below != NULL)
        l->below();
    return 0;
}

int
fct_set(const struct fct_line *l, const char *name, const char *value, void *args)
{
    struct fct_opt opts[FCT_OPTS_MAX], *o = opts;

    gather(l, opts);
    while (strcmp(o->name, name) != 0)
        o++;
    return fct_take(l, o, value, args);
}

static int
take_word(const struct fct_line *l, const char *command, const char *word, char *args)
{
    struct fct_operands *w = (void *)(args + l->operands - 1);
    char hint[256] = "";

    if (l->operand != NULL)
        return l->operand(args, word);
    if (l->operand_is != NULL)
        return fct_set(l, l->operand_is, word, args);
    if (l->operands != 0 && w->n < l->max_operands) {
        w->text[w->n++] = word;
        return 0;
    }
    if (l->hint == FCT_HINT_USAGE)
        snprintf(hint, sizeof(hint), "; usage: %s", l->usage);
    else if (l->hint == FCT_HINT_SEE)
        snprintf(hint, sizeof(hint), "; see %s %s --help", fct_prog, command);
    return fct_usage("%s: unexpected '%s'%s", command, word, hint);
}

int
fct_parse(const struct fct_line *l, int argc, char **argv, void *args)
{
    struct fct_cli c = { .argc = argc, .argv = argv };
    struct fct_opt opts[FCT_OPTS_MAX];
    int id, rc = 0;

    gather(l, opts);
    while (rc == 0 && (id = fct_cli_next(&c, opts)) != FCT_CLI_END) {
        if (id == FCT_CLI_BAD)
            return FCT_EX_USAGE;
        if (id == FCT_ID_HELP)
            return fct_help(l);
        rc = id == FCT_CLI_WORD ? take_word(l, argv[0], c.value, args)
                                : fct_take(l, c.row, c.value, args);
    }
    return rc == 0 ? FCT_GO : rc;
}

/* ---- values --------------------------------------------------------------------- */

int
fct_exit_code(int status)
{
    const struct fdn_status *s = fdn_status(status);
    const char *cls = s != NULL ? s->cls : "NODE";

    if (status >= 0)
        return 0;
    if (status == FDC_E_PERM)
        return FCT_EX_PERM;
    if (status == FDC_E_CONNECT || status == FDC_E_DISCONNECTED)
        return FCT_EX_UNAV;
    if (strcmp(cls, "REQUEST") == 0 || status == FDC_E_INVAL || status == FDC_E_ARENA)
        return FCT_EX_DATA;
    if (strcmp(cls, "RETRY") == 0 || status == FDC_E_TIMEOUT || status == FDC_E_AGAIN ||
        status == FDC_E_FULL || status == FDC_E_SLOW)
        return FCT_EX_TEMP;
    if (strcmp(cls, "ENDED") == 0)
        return FCT_EX_ENDED;
    return strcmp(cls, "SESSION") == 0 ? FCT_EX_PROTO : FCT_EX_SOFT;
}

/* -EINVAL: not one; -ERANGE: of more than 64 bits. */
static int
whole(const char *text, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    return end == text || *end != '\0' || strchr(text, '-') != NULL ? -EINVAL : -errno;
}

int
fct_u64(const char *what, const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t v;
    int rc = whole(text, &v);

    if (rc == -EINVAL)
        return fct_usage("%s %s: not a whole number", what, text);
    if (rc != 0 || v > max)
        return fct_usage("%s %s: at most %llu", what, text, (unsigned long long)max);
    *ret = v;
    return 0;
}

int
fct_u32(const char *what, const char *text, uint32_t lo, uint32_t hi, uint32_t *ret)
{
    uint64_t v;

    if (whole(text, &v) != 0 || v < lo || v > hi)
        return fct_usage("%s %s: must be a whole number from %u to %u", what, text, lo, hi);
    *ret = (uint32_t)v;
    return 0;
}

int
fct_dbl_in(const char *what, const char *text, double lo, double hi, double *ret)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !(v >= lo && v <= hi))
        return fct_usage("%s %s: must be a number from %g to %.10g", what, text, lo, hi);
    *ret = v;
    return 0;
}

int
fct_dbl(const char *what, const char *text, double *ret)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0')
        return fct_usage("%s %s: not a number", what, text);
    *ret = v;
    return 0;
}
