/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <getopt.h>
#include <pwd.h>
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
    return fct_fail(EX_IOERR, "standard output: %s", strerror(errno));
}

/* ---- words --------------------------------------------------------------------- */

void
fct_near(struct fct_near *n, const char *name)
{
    unsigned d = txt_distance(n->like, name);

    if (d < n->best) {
        n->best = d;
        n->name = name;
    }
}

const char *
fct_user(uid_t uid, char ret[64])
{
    const struct passwd *pw = getpwuid(uid);

    if (pw != NULL)
        snprintf(ret, 64, "%s", pw->pw_name);
    else
        snprintf(ret, 64, "%lu", (unsigned long)uid);
    return ret;
}

/* ---- help ---------------------------------------------------------------------- */

void
fct_help_opts(const struct fct_opt *opts)
{
    const char *arg;
    char left[64];

    for (const struct fct_opt *o = opts; o->name != NULL; o++) {
        if (o->name[0] == '\0')
            printf("%s%s\n", o > opts ? "\n" : "", o->help);
        if (o->name[0] == '\0' || o->help[0] == '\0')
            continue;
        arg = o->arg != NULL && o->arg[0] != '[' ? o->arg : "";
        snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
            o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
            arg[0] != '\0' ? " " : "", arg);
        printf("  %-28s %s\n", left, o->help);
    }
}

void
fct_swap(const char *name, char from, char to, char ret[64])
{
    snprintf(ret, 64, "%s", name);
    for (char *p = ret; *p != '\0'; p++)
        *p = *p == from ? to : *p;
}

/* The argument of an admin command that fdctl writes as word; NULL: none. */
static const struct cmd_arg *
arg_of(const char *cmd, const char *word, int form)
{
    const struct cmd_arg *a;
    char name[64];

    fct_swap(word, '-', '_', name);
    a = cmd_find_arg(cmd_find(cmd), name);
    return a != NULL && a->form == form ? a : NULL;
}

const char *
fct_table_word(const char *cmd, const char *word)
{
    const struct cmd_arg *a = arg_of(cmd, word, CMD_WORD);

    return a != NULL && a->type == CMD_BOOL ? a->name : NULL;
}

/* ---- a command's line ----------------------------------------------------------- */

static int
is_in(const char *const *list, const char *name)
{
    while (list != NULL && *list != NULL && strcmp(*list, name) != 0)
        list++;
    return list != NULL && *list != NULL;
}

/* All options of the line in the order of the help, and as tables for getopt_long(),
 * which returns A_LONG + index for a long option. */
#define A_LONG 256
struct tables {
    struct fct_opt opts[FCT_OPTS_MAX];
    struct option longs[FCT_OPTS_MAX];
    char shorts[2 * FCT_OPTS_MAX + 4];
};

static void
gather(const struct fct_line *l, struct tables *ret)
{
    char *s = stpcpy(ret->shorts, l->is_main ? "+:" : "-:");
    const struct cmd_arg *a;
    struct fct_opt *to;
    int n = 0;

    for (const struct fct_opt *const *t = l->opts; *t != NULL; t++)
        for (const struct fct_opt *o = *t; o->name != NULL; o++) {
            if (n == FCT_OPTS_MAX - 1 || (o->take == FCT_T_PARAM && is_in(l->less, o->name)))
                continue;
            to = &ret->opts[n];
            *to = *o;
            if (o->help == NULL && (a = arg_of(l->command, o->name, CMD_OPT)) != NULL) {
                to->arg = a->value;
                to->help = a->help;
                to->letter = a->letter;
            }
            ret->longs[n] = (struct option){ to->name,
                to->arg == NULL         ? no_argument
                    : to->arg[0] == '[' ? optional_argument
                                        : required_argument,
                NULL, A_LONG + n };
            if (to->letter != 0)
                s += sprintf(s, to->arg != NULL ? "%c:" : "%c", to->letter);
            n++;
        }
    ret->opts[n] = (struct fct_opt)FCT_OPT_END;
    ret->longs[n] = (struct option){ NULL, 0, NULL, 0 };
}

/* Store an option's value as its row says. Returns 0 or an exit code. */
static int
take(const struct fct_line *l, const struct fct_opt *o, const char *value, void *into)
{
    char what[64], key[64], *args = into;
    void *to = args + o->at;
    int *has = o->has != 0 ? (void *)(args + o->has - 1) : NULL, rc;
    uint64_t n;

    snprintf(what, sizeof(what), "%s--%s", l->prefix != NULL ? l->prefix : "", o->name);
    if (has != NULL && *has && o->once != NULL)
        return fct_usage("%s", o->once);
    if (has != NULL)
        *has = 1;
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
        if (o->range == NULL)
            return fct_dbl_in(what, value, o->from, o->to, to);
        rc = fct_dbl(what, value, to);
        if (rc == 0 && !(*(double *)to >= o->from && *(double *)to <= o->to))
            return fct_usage("%s %s: must be %s", what, value, o->range);
        return rc;
    case FCT_T_ASK:
        fct_swap(o->name, '-', '_', key);
        rc = o->arg != NULL ? fct_u64(what, value, o->hi, &n) : 0;
        if (rc == 0)
            json_object_set_new(*(json_t **)to, key,
                o->arg != NULL ? json_integer((json_int_t)n) : json_true());
        return rc;
    case FCT_T_BITS:
        *(uint32_t *)to |= (uint32_t)o->lo;
        *(uint32_t *)to &= ~(uint32_t)o->hi;
        return 0;
    case FCT_T_FN:
        return o->fn(args, value);
    case FCT_T_PARAM:
        return fct_req_set_opt((struct fct_req *)(void *)(args + l->req - 1), o, value);
    case FCT_T_HELP:
        break;
    }
    return 0;
}

int
fct_help(const struct fct_line *l)
{
    int cmd = l->command != NULL ? cmd_find(l->command) : -1, n = 0;
    struct tables t;
    char name[64];

    gather(l, &t);
    printf("usage: %s\n\n%s\n%s", l->usage, l->about, l->above != NULL ? "" : "\n");
    if (l->above != NULL)
        l->above();
    fct_help_opts(t.opts);
    for (const struct cmd_arg *a = cmd_args; a < cmd_args + cmd_n_args; a++)
        if (a->form == CMD_WORD && a->type == CMD_BOOL && a->cmd == cmd) {
            fct_swap(a->name, '_', '-', name);
            printf("%s  %-28s %s\n", n++ == 0 ? "\nwords:\n" : "", name, a->help);
        }
    if (l->below != NULL)
        l->below();
    return 0;
}

int
fct_set(const struct fct_line *l, const char *name, const char *value, void *args)
{
    const struct fct_opt *o;
    struct tables t;

    gather(l, &t);
    o = t.opts;
    while (strcmp(o->name, name) != 0)
        o++;
    return take(l, o, value, args);
}

static int
take_word(const struct fct_line *l, char **argv, char *word, char *args)
{
    const char *command = argv[0];
    struct fct_operands *w = l->operands != 0 ? (void *)(args + l->operands - 1) : NULL;
    char hint[256] = "";

    if (l->operand != NULL)
        return l->operand(args, word);
    if (l->operand_is != NULL)
        return fct_set(l, l->operand_is, word, args);
    if (w != NULL && w->n < l->max_operands) {
        w->text = argv + 1; /* which has been read so far */
        w->text[w->n++] = word;
        return 0;
    }
    if (l->hint == FCT_HINT_USAGE)
        snprintf(hint, sizeof(hint), "; usage: %s", l->usage);
    else if (l->hint == FCT_HINT_SEE)
        snprintf(hint, sizeof(hint), "; see %s %s --help", fct_prog, command);
    return fct_usage("%s: unexpected '%s'%s", command, word, hint);
}

/* Print "fdctl: generate: what" or, for main options, "fdctl: what"; gives NULL. */
#define BAD(who, fmt, ...) \
    ((void)fct_usage("%s%s" fmt, who, (who)[0] != '\0' ? ": " : "", __VA_ARGS__), NULL)

static const struct fct_opt *
unknown_option(const struct fct_opt *opts, const char *who, const char *word)
{
    char name[64];
    struct fct_near near = { .like = name, .best = 4 };

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    for (; opts->name != NULL; opts++)
        if (opts->name[0] != '\0')
            fct_near(&near, opts->name);
    if (near.name != NULL && near.best < strlen(name))
        return BAD(who, "unknown option --%s; did you mean --%s?", name, near.name);
    return BAD(who, "unknown option --%s; see %s %s%s--help", name, fct_prog, who,
        who[0] != '\0' ? " " : "");
}

/* The option for which getopt_long() returned id at word; NULL after a message: none. */
static const struct fct_opt *
option_of(const struct fct_opt *opts, const char *who, const char *word, int id)
{
    int which = id == '?' || id == ':' ? optopt : id, i = 0;
    size_t n = strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : 0;

    /* getopt_long() accepts abbreviated names */
    if (n > 0 && (n == 2 || which < A_LONG || strlen(opts[which - A_LONG].name) + 2 != n))
        return unknown_option(opts, who, word + 2);
    while (opts[i].name != NULL && i != which - A_LONG && opts[i].letter != which)
        i++;
    if (opts[i].name == NULL)
        return BAD(who, "unknown option -%c; see --help", optopt);
    if (id == '?')
        return BAD(who, "--%s takes no value", opts[i].name);
    if (id == ':')
        return BAD(who, "--%s needs a value: --%s %s", opts[i].name, opts[i].name,
            opts[i].arg);
    return &opts[i];
}

int
fct_parse(const struct fct_line *l, int argc, char **argv, void *args)
{
    const char *who = l->is_main ? "" : argv[0], *word;
    const struct fct_opt *o;
    struct tables t;
    int id, rc = 0;

    gather(l, &t);
    optind = opterr = 0; /* reset getopt; it prints no messages */
    while (rc == 0) {
        word = optind < argc ? argv[optind > 0 ? optind : 1] : "";
        id = getopt_long(argc, argv, t.shorts, t.longs, NULL);
        if (id == -1)
            break;
        o = id != 1 ? option_of(t.opts, who, word, id) : NULL;
        if (id != 1 && o == NULL)
            return EX_USAGE;
        if (o != NULL && o->take == FCT_T_HELP)
            return o->fn != NULL ? o->fn(args, NULL) : fct_help(l);
        rc = o == NULL ? take_word(l, argv, optarg, args) : take(l, o, optarg, args);
    }
    for (; rc == 0 && !l->is_main && optind < argc; optind++)
        rc = take_word(l, argv, argv[optind], args);
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
        return EX_NOPERM;
    if (status == FDC_E_CONNECT || status == FDC_E_DISCONNECTED)
        return EX_UNAVAILABLE;
    if (strcmp(cls, "REQUEST") == 0 || status == FDC_E_INVAL || status == FDC_E_ARENA)
        return EX_DATAERR;
    if (strcmp(cls, "RETRY") == 0 || status == FDC_E_TIMEOUT || status == FDC_E_AGAIN ||
        status == FDC_E_FULL || status == FDC_E_SLOW)
        return EX_TEMPFAIL;
    if (strcmp(cls, "ENDED") == 0)
        return FCT_EX_ENDED;
    return strcmp(cls, "SESSION") == 0 ? EX_PROTOCOL : EX_SOFTWARE;
}

/* Returns 0, -EINVAL if it is not a whole number, or -ERANGE if it exceeds 64 bits. */
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
