/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters: one table (daemon/tbl/params.h) and one struct of effective values, which
 * the gate fills and hands to the worker unchanged.
 *
 * Field names are section_key: par->sched_max_num_seqs. Integers and booleans are
 * int64_t, reals double, strings char[PAR_STR_BYTES], choices enum par_section_key. The
 * struct is plain data.
 */
#ifndef FDD_DAEMON_COMMON_PARAM_H
#define FDD_DAEMON_COMMON_PARAM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAR_STR_BYTES 512

/* The daemon's tables. fdd-http compiles this module a second time, with its own. */
#ifndef PAR_TABLE
#define PAR_TABLE "daemon/tbl/params.h"
#define PAR_NOTES "daemon/tbl/param_notes.h"
#endif

/* enum par_sched_policy { PAR_SCHED_POLICY_PRIORITY, ... }, and the words for its
 * values: par_sched_policy_words[PAR_SCHED_POLICY_FCFS] is "fcfs"; NULL ends the
 * array. */
#define PAR_INT(s, k, a, u, lo, d, hi, f, h)
#define PAR_DBL(s, k, a, u, lo, d, hi, f, h)
#define PAR_BOOL(s, k, a, d, f, h)
#define PAR_C(name, word) PAR_##name,
#define PAR_ENUM(s, k, a, c, d, f, h) \
    enum par_##s##_##k{ c }; \
    extern const char *const par_##s##_##k##_words[];
#define PAR_STR(s, k, a, d, f, h)
#include PAR_TABLE
#undef PAR_INT
#undef PAR_DBL
#undef PAR_BOOL
#undef PAR_C
#undef PAR_ENUM
#undef PAR_STR

struct par {
#define PAR_INT(s, k, a, u, lo, d, hi, f, h) int64_t s##_##k;
#define PAR_DBL(s, k, a, u, lo, d, hi, f, h) double s##_##k;
#define PAR_BOOL(s, k, a, d, f, h)           int64_t s##_##k;
#define PAR_ENUM(s, k, a, c, d, f, h)        enum par_##s##_##k s##_##k;
#define PAR_STR(s, k, a, d, f, h)            char s##_##k[PAR_STR_BYTES];
#include PAR_TABLE
#undef PAR_INT
#undef PAR_DBL
#undef PAR_BOOL
#undef PAR_ENUM
#undef PAR_STR
};

/* Where a value came from. */
enum par_origin { PAR_FROM_DEFAULT, PAR_FROM_FILE, PAR_FROM_SET, PAR_FROM_RUNTIME };

/* A set of values with their origins; heap, about 64 KiB. */
struct par_set;

struct par_set *par_new(void); /* all defaults; NULL: no memory */
struct par_set *par_free(struct par_set *ps);
const struct par *par_get(const struct par_set *ps);

/* Set one parameter from text. name is section.key or a bare alias; - and _ are
 * equivalent. 0, or -EINVAL/-ENOENT with one line in err that names the value, the
 * allowed values and, for an unknown name, the nearest known one. 1: set, with a
 * warning in err (daemon/tbl/param_notes.h). */
int par_set_text(struct par_set *ps, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes);

/* As par_set_text(), for a set that is in force: if par_check() fails on the result,
 * nothing is changed. */
int par_set_checked(struct par_set *ps, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes);

/* ---- reading ------------------------------------------------------------------ */

/* Error and warning messages, one line each; all zero is an empty list. A message for
 * which there is no memory is lost; an error is still counted. */
#define PAR_MAX_ERRORS 20
struct par_say {
    unsigned n_errors; /* so far; only the first PAR_MAX_ERRORS are reported */
    char *text;        /* for each message: E or W, the line, a NUL */
    size_t bytes;
};

__attribute__((format(printf, 2, 3))) void
par_say_error(struct par_say *say, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) void
par_say_warning(struct par_say *say, const char *fmt, ...);
/* Returns the message after at, or the first one if at is NULL; NULL at the end. The
 * message is valid until the next one is added. */
const char *par_say_next(const struct par_say *say, const char *at, int *ret_is_error);
/* Log the messages, each at its level, and forget them. */
void par_say_log(struct par_say *say);
/* Forget the messages but keep the number of errors. */
void par_say_clear(struct par_say *say);
/* Add an error or warning about values. The file and line that set the parameters it
 * names are inserted before "; fix: ", or appended if the text has none. */
void par_say_about(struct par_say *say, const struct par_set *ps, int is_error,
    const char *text);
/* Add "N more errors" if there were more errors than were reported. */
void par_say_end(struct par_say *say);

/* The sources of a daemon's parameters. */
struct par_src {
    char file[PAR_STR_BYTES];       /* "": none */
    int may_miss;                   /* the file need not exist */
    char dir[2][PAR_STR_BYTES + 8]; /* folders of additional files; "": none */
    char *const *sets;              /* "name=value" of the command line; not owned */
    int n_sets;
};

/* Set the sources. If conf (FILE of -c) is not NULL: FILE and the folder FILE.d. If it is
 * NULL: NAME.ini in SYSCONFDIR/fdd, if it exists, and the folders NAME.ini.d of
 * PREFIX/lib/fdd and SYSCONFDIR/fdd. NAME is the instance's name; fdd if it has none. */
void par_src_init(struct par_src *src, const char *conf, const char *instance);

/* Read all sources into ps, which has the defaults: the file, then *.ini of the folders
 * in the order of their names (a file in dir[1] replaces the file of the same name in
 * dir[0]), then --set. A later value replaces an earlier one, lists are joined, --set
 * replaces both. Then constraints between values are checked. All errors are reported.
 * 0; -EINVAL; -ENOMEM; or the error of opening a file. */
int par_load(struct par_set *ps, const struct par_src *src, struct par_say *say);

/* Read one ini file. inih gets its lines from a reader of our own, which refuses NUL,
 * over-long lines and invalid UTF-8 and keeps line numbers right. On error nothing is
 * changed; errors are reported as "file:line: reason". 0, -ENOENT, -EACCES, -EINVAL,
 * -ENOMEM. */
int par_read_file(struct par_set *ps, const char *path, struct par_say *say);

/* The files that were read, in order. */
size_t par_n_files(const struct par_set *ps);
const char *par_file(const struct par_set *ps, size_t i);

/* Constraints over several parameters (max_num_batched_tokens >= max_num_seqs, powers
 * of two, ...). 0, or -EINVAL with the first violation in err. */
int par_check(const struct par_set *ps, char *err, size_t err_bytes);
int par_check_values(const struct par *p, char *err, size_t err_bytes);
/* Report all violations. */
void par_check_each(const struct par *p, struct par_say *say);

/* Tokens of a step: sched.max_num_batched_tokens, or the default if that is 0. */
int32_t par_max_batched_tokens(const struct par *p, int is_cpu);
/* Most alternatives that a request may ask for; -1 without output.enable_logprob: not
 * even the log-probability of its own tokens. */
int32_t par_max_logprobs(const struct par *p);
/* Most unfinished prompts after a step: sched.max_num_partial_prefills, or the default
 * if that is 0. */
int32_t par_partial_prefills(const struct par *p);
/* Prompts longer than this count as long: sched.long_prefill_token_threshold, or 4 % of
 * the served length. */
int32_t par_long_prefill(const struct par *p, int32_t max_model_len);

/* Most descriptors that the gate may have open: those of each session, sessions kept
 * for administrators included, and its own. */
#define PAR_SESSION_FDS  4u /* socket, doorbell, two regions */
#define PAR_KEPT_CLIENTS 16u
#define PAR_OWN_FDS      256u
uint64_t par_descriptors(const struct par *p);

/* Does the value of a row differ? */
int par_differs(const struct par_set *ps, const struct par_set *ps_new, size_t row);
/* Copy from ps_new the values that may change while running (RELOAD). Returns the
 * number of values changed. */
int par_reload(struct par_set *ps, const struct par_set *ps_new);
/* Check the constraints between the values that par_reload() would leave in force. 0,
 * or -EINVAL with a message. */
int par_reload_check(const struct par_set *ps, const struct par_set *ps_new, char *err,
    size_t err_bytes);
/* Look up a parameter name. 0: ret_rows has the one row. 1: a name of another server;
 * ret_rows has the rows that it sets, maybe none, and text says what is done with it.
 * -ENOENT: text has the reason and the nearest name. */
#define PAR_NAME_ROWS 4
int par_look_up(const char *name, size_t ret_rows[PAR_NAME_ROWS], size_t *ret_n,
    char *text, size_t text_bytes);

/* Named sections, which a program may have: for "[model small]" a row for each key that
 * is set, in the order of the files. */
#define PAR_WHERE_BYTES 256
struct par_named {
    char name[64]; /* of the section: small */
    char key[32];
    char value[PAR_STR_BYTES];
    char where[PAR_WHERE_BYTES]; /* "file:line" */
};
size_t par_n_named(const struct par_set *ps);
const struct par_named *par_named(const struct par_set *ps, size_t i);

/* For documentation and listings, in table order. */
struct par_row {
    const char *section, *key, *aliases, *unit, *help, *type;
    const char *const *words; /* the choices, NULL after the last; NULL: not a choice */
    const char *def;          /* default, as written in the file */
    char min[32], max[32];    /* empty if there is no limit */
    int reload, list;
};
size_t par_count(void);
void par_row(size_t i, struct par_row *ret);
/* Join the choices with sep between them; returns ret. words may be NULL. */
const char *
par_words(const char *const *words, const char *sep, char *ret, size_t ret_bytes);
/* The current value of row i as text, and its origin. */
void par_value(const struct par_set *ps, size_t i, char *ret, size_t ret_bytes,
    enum par_origin *ret_from);
/* The "file:line" that set row i, several for a list; "" if no file set it. */
const char *par_where(const struct par_set *ps, size_t i);
/* Print the commented configuration file, and the PARAMETERS section of fdd.ini(5). */
void par_print_ini(FILE *f);
void par_print_man(FILE *f);

/* Copy text for a message: at most 60 bytes, control bytes replaced by '?'. */
const char *par_show(const char *text, char *buf, size_t buf_bytes);

#endif
