/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's line as a table: what --help prints, and where values go. getopt_long()
 * takes it apart; help and value of an admin command's options come from
 * daemon/tbl/ctl_cmds.h.
 */
#ifndef FDD_TOOLS_FDCTL_LIB_CLI_H
#define FDD_TOOLS_FDCTL_LIB_CLI_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What an option does with its value: the commands' arguments are a struct, in which
 * the row's field lies at an offset. */
enum fct_take {
    FCT_BY_ID,  /* nothing: fct_cli_next() returns the row's id */
    FCT_T_FLAG, /* int: 1 */
    FCT_T_TEXT, /* const char *: the value, not copied */
    FCT_T_U64,  /* uint64_t, at most hi */
    FCT_T_U32,  /* uint32_t, from lo to hi */
    FCT_T_REAL, /* double, from from to to */
    FCT_T_ASK,  /* json_t *: an admin command's question, which gets the
                                argument of that name; a number is at most hi */
    FCT_T_BITS, /* uint32_t: lo are set, then hi cleared */
    FCT_T_FN,   /* fn() takes it */
    FCT_T_PARAM /* the line's struct fct_req: a row of fct_param_opts */
};
struct fct_opt {
    const char *name; /* without dashes; "": help is a heading */
    char letter;      /* 0: none */
    const char *arg;  /* name of its value in the help; NULL: has none */
    const char *help; /* "": the help leaves it out */
    int id;           /* > 0, for FCT_BY_ID */
    enum fct_take take;
    size_t at;
    size_t has; /* 1 + offset of an int that becomes 1; 0: none */
    uint64_t lo, hi;
    double from, to;
    int (*fn)(void *args, const char *value); /* 0 or an exit code, message printed */
    const char *range; /* of FCT_T_REAL, in its message; NULL: the form of numbers
                                "must be a number from 0 to 1" */
    const char *once;  /* the message when has is 1 before; NULL: the last counts */
};
#define FCT_OPT_END \
    { \
        .name = NULL \
    }
#define FCT_OPT_HEAD(text) \
    { \
        .name = "", .help = text \
    }
#define FCT_FLAG(s, f)     .take = FCT_T_FLAG, .at = offsetof(s, f)
#define FCT_TEXT(s, f)     .take = FCT_T_TEXT, .at = offsetof(s, f)
#define FCT_U64(s, f, max) .take = FCT_T_U64, .at = offsetof(s, f), .hi = max
#define FCT_U32(s, f, min, max) \
    .take = FCT_T_U32, .at = offsetof(s, f), .lo = min, .hi = max
#define FCT_REAL(s, f, min, max) \
    .take = FCT_T_REAL, .at = offsetof(s, f), .from = min, .to = max
#define FCT_ASK(s, f, max) .take = FCT_T_ASK, .at = offsetof(s, f), .hi = max
#define FCT_BITS(s, f, set, clear) \
    .take = FCT_T_BITS, .at = offsetof(s, f), .lo = set, .hi = clear
#define FCT_FN(function) .take = FCT_T_FN, .fn = function
#define FCT_HAS(s, f)    .has = 1 + offsetof(s, f)
/* arg of an option whose value is written "--name=value" or left out; not in the help */
#define FCT_MAYBE "[]"
#define FCT_OPT_HELP \
    { \
        "help", 'h', NULL, "this text", .id = FCT_ID_HELP \
    }
#define FCT_ID_HELP 1
#define FCT_OPT_JSON(s, text) \
    { \
        "json", 0, NULL, text, FCT_FLAG(s, json) \
    }

enum fct_hint { FCT_HINT_NONE, FCT_HINT_USAGE, FCT_HINT_SEE };
#define FCT_OPERANDS_MAX 16
struct fct_operands {
    int n;
    const char *text[FCT_OPERANDS_MAX];
};
struct fct;
/* A command's line: what --help prints of it, and where its operands go. */
struct fct_line {
    const char *usage; /* behind "usage: ": further lines as they are */
    const char *about;
    const struct fct_opt *opts[5];                 /* 4 tables at most, to NULL */
    int (*operand)(void *args, const char *value); /* NULL: by the next ones */
    const char *operand_is; /* one is the value of this option; NULL: */
    size_t operands;        /* 1 + offset of a struct fct_operands; 0: none is taken */
    int max_operands;
    enum fct_hint hint;  /* for one too many */
    const char *command; /* an admin command: options without help have that of
                                daemon/tbl/ctl_cmds.h */
    /* of one that asks one question, print the answer: a function, a template
     * (fct_text()), the member of that name (fct_show()), or all of it */
    void (*show)(json_t *answer, const void *args);
    const char *text, *list;
    size_t args_bytes; /* its arguments begin with a struct fct_plain; 0: they are one */
    /* or NULL: check and complete the arguments (FCT_GO, or an exit code), change the
     * answer, say the exit code */
    int (*before)(struct fct *f, void *args);
    void (*prepare)(json_t *answer);
    int (*code)(const json_t *answer, const void *args);
    const char *prefix;      /* before an option's name in messages, NULL: none */
    size_t req;              /* 1 + offset of the struct fct_req that fct_param_opts
                                set; 0: it has none */
    const char *const *less; /* parameters that are not offered, to NULL; or NULL */
    void (*above)(void), (*below)(void); /* printed around the options, or NULL */
};
#define FCT_GO (-1)
/* FCT_GO, or an exit code: help or a message has been printed. */
int fct_parse(const struct fct_line *l, int argc, char **argv, void *args);
int fct_help(const struct fct_line *l); /* 0 */
/* Put an option's value where its row says. 0 or an exit code. */
int
fct_take(const struct fct_line *l, const struct fct_opt *o, const char *value, void *args);
/* As if --name value were in the line. 0 or an exit code. */
int fct_set(const struct fct_line *l, const char *name, const char *value, void *args);

struct fct_cli {
    int argc, is_main;         /* is_main: ends at the first word */
    char **argv;               /* argv[0] is the command's name, unless is_main */
    const char *value;         /* of the last option, or the word itself */
    int at;                    /* the next word; 0: not begun */
    int no_more;               /* only words follow */
    const struct fct_opt *row; /* of the last option */
};
#define FCT_OPTS_MAX 96
#define FCT_CLI_END  0
#define FCT_CLI_WORD (-1)
#define FCT_CLI_BAD  (-2) /* message printed */
#define FCT_CLI_ROW  (-3) /* an option without an id: row */
/* Next option's id, or FCT_CLI_*. No abbreviations. An option whose arg begins with
 * "[" may have a value, behind "=" alone: value is NULL without. One line at a time. */
int fct_cli_next(struct fct_cli *c, const struct fct_opt *opts);
void fct_help_opts(const struct fct_opt *opts);
/* Which BOOL argument a word means; NULL: none. */
const char *fct_table_word(const char *cmd, const char *word);

#endif
