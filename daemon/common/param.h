/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters: one table (daemon/tbl/params.h), one struct of effective
 * values, which the gate fills and hands to the worker as it is.
 *
 * Field names are section_key: par->sched_max_num_seqs. Integers and
 * booleans are int64_t, reals double, strings char[PAR_STR_BYTES], choices
 * enum par_section_key. The struct is plain data.
 */
#ifndef FDD_DAEMON_COMMON_PARAM_H
#define FDD_DAEMON_COMMON_PARAM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PAR_STR_BYTES 512

/* The program's tables; fdd-http compiles this module once more, with its own. */
#ifndef PAR_TABLE
#define PAR_TABLE "daemon/tbl/params.h"
#define PAR_NOTES "daemon/tbl/param_notes.h"
#endif

/* enum par_sched_policy { PAR_SCHED_POLICY_PRIORITY, ... }, and their words:
 * par_sched_policy_words[PAR_SCHED_POLICY_FCFS] is "fcfs"; NULL ends them. */
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

/* Set one parameter from text. name is section.key or a bare alias, - and _
 * alike. 0, or -EINVAL/-ENOENT with one line in err that names the value,
 * what is allowed and, for an unknown name, the nearest known one. 1: taken,
 * with a warning in err (daemon/tbl/param_notes.h). */
int par_set_text(struct par_set *ps, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes);

/* The same for a set that is in force: what par_check() then refuses changes
 * nothing. */
int par_set_checked(struct par_set *ps, const char *name, const char *value,
    enum par_origin from, char *err, size_t err_bytes);

/* ---- reading ------------------------------------------------------------------ */

/* Messages, a line each; all zero is none. What no memory is left for is lost, and
 * counted if it is an error. */
#define PAR_MAX_ERRORS 20
struct par_say {
    unsigned n_errors; /* so far; the first PAR_MAX_ERRORS of them are said */
    char *text;        /* of each message E or W, the line, a NUL */
    size_t bytes;
};

__attribute__((format(printf, 2, 3))) void
par_say_error(struct par_say *say, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) void
par_say_warning(struct par_say *say, const char *fmt, ...);
/* The message behind at, the first with NULL; NULL: no more. Valid until the next one
 * is said. */
const char *par_say_next(const struct par_say *say, const char *at, int *ret_is_error);
/* Log the messages, errors and warnings each at their level, and forget them. */
void par_say_log(struct par_say *say);
/* Forget the messages, keep their number. */
void par_say_clear(struct par_say *say);
/* An error or warning about values, with the places that set the parameters it names,
 * before "; fix: " if it has that. */
void par_say_about(struct par_say *say, const struct par_set *ps, int is_error,
    const char *text);
/* Behind the last error: "N more errors" where there were more than were said. */
void par_say_end(struct par_say *say);

/* What the parameters of a daemon come from. */
struct par_src {
    char file[PAR_STR_BYTES];       /* "": none */
    int may_miss;                   /* the file need not exist */
    char dir[2][PAR_STR_BYTES + 8]; /* folders of further files; "": none */
    char *const *sets;              /* "name=value" of the command line; not ours */
    int n_sets;
};

/* conf is what -c says: FILE and FILE.d. NULL: NAME.ini in SYSCONFDIR/fdd, where it
 * exists, and the folders NAME.ini.d of PREFIX/lib/fdd and of SYSCONFDIR/fdd. NAME is
 * the instance's, without one fdd. */
void par_src_init(struct par_src *src, const char *conf, const char *instance);

/* Read all of it into ps, which has the defaults: the file, then *.ini of the folders
 * in the order of their names, of which dir[1] hides those of dir[0], then --set. A
 * value read later holds, lists add up, --set replaces both; then what must fit
 * together is checked. All errors are said. 0; -EINVAL; what opening a file gave. */
int par_load(struct par_set *ps, const struct par_src *src, struct par_say *say);

/* One ini file (inih through a line reader of our own: refuses NUL, over-long lines and
 * invalid UTF-8, keeps line numbers right). On error nothing is changed; errors are
 * said as file:line: reason. -ENOENT, -EACCES, -EINVAL, -ENOMEM. */
int par_read_file(struct par_set *ps, const char *path, struct par_say *say);

/* The files that were read, in their order. */
size_t par_n_files(const struct par_set *ps);
const char *par_file(const struct par_set *ps, size_t i);

/* Constraints over several parameters (max_num_batched_tokens >=
 * max_num_seqs, powers of two, ...): the first that does not hold, in err. */
int par_check(const struct par_set *ps, char *err, size_t err_bytes);
int par_check_values(const struct par *p, char *err, size_t err_bytes);
/* All that do not hold are said. */
void par_check_each(const struct par *p, struct par_say *say);

/* Tokens of a step: sched.max_num_batched_tokens, or what 0 there means. */
int32_t par_max_batched_tokens(const struct par *p, int is_cpu);
/* Alternatives a request may ask for; -1 without output.enable_logprob: not even the
 * log-probability of its own tokens. */
int32_t par_max_logprobs(const struct par *p);
/* Unfinished prompts after a step: sched.max_num_partial_prefills, or what 0 there means. */
int32_t par_partial_prefills(const struct par *p);
/* Prompts longer than this are long: sched.long_prefill_token_threshold, or
 * 4 % of the served length. */
int32_t par_long_prefill(const struct par *p, int32_t max_model_len);

/* Descriptors that the gate may have open: for each session, also of those kept for
 * administrators, and its own. */
#define PAR_SESSION_FDS  4u /* socket, doorbell, two regions */
#define PAR_KEPT_CLIENTS 16u
#define PAR_OWN_FDS      256u
uint64_t par_descriptors(const struct par *p);

/* Does the row's value differ? */
int par_differs(const struct par_set *ps, const struct par_set *ps_new, size_t row);
/* Take over from ps_new what may change while running (RELOAD). Returns the number of
 * values changed. */
int par_reload(struct par_set *ps, const struct par_set *ps_new);
/* Do the values fit together that par_reload() would leave in force? 0, or
 * -EINVAL with a message. */
int par_reload_check(const struct par_set *ps, const struct par_set *ps_new, char *err,
    size_t err_bytes);
/* What a name stands for: 0 and the one row; 1 and the rows that a name of another
 * server sets, maybe none, and in text what holds for it; -ENOENT with the reason and
 * the nearest name in text. */
#define PAR_NAME_ROWS 4
int par_look_up(const char *name, size_t ret_rows[PAR_NAME_ROWS], size_t *ret_n,
    char *text, size_t text_bytes);

/* Sections that bear a name, which a program may have: of "[model small]" a row for each
 * key that is set, in the order of the files. */
#define PAR_WHERE_BYTES 256
struct par_named {
    char name[64]; /* small */
    char key[32];
    char value[PAR_STR_BYTES];
    char where[PAR_WHERE_BYTES]; /* "file:line" */
};
size_t par_n_named(const struct par_set *ps);
const struct par_named *par_named(const struct par_set *ps, size_t i);

/* Documentation and listing, in table order. */
struct par_row {
    const char *section, *key, *aliases, *unit, *help, *type;
    const char *const *words; /* the choices, NULL behind the last; NULL: no choice */
    const char *def;          /* as written in the file */
    char min[32], max[32];    /* empty where none */
    int reload, list;
};
size_t par_count(void);
void par_row(size_t i, struct par_row *ret);
/* The choices with sep between them; returns ret. words may be NULL. */
const char *
par_words(const char *const *words, const char *sep, char *ret, size_t ret_bytes);
/* Current value of row i as text, and its origin. */
void par_value(const struct par_set *ps, size_t i, char *ret, size_t ret_bytes,
    enum par_origin *ret_from);
/* "file:line" that set row i, several for a list; "" where no file did. */
const char *par_where(const struct par_set *ps, size_t i);
/* The commented configuration file, and the PARAMETERS part of fdd.ini(5). */
void par_print_ini(FILE *f);
void par_print_man(FILE *f);

/* Copy text for a message: at most 60 bytes, control bytes shown as '?'. */
const char *par_show(const char *text, char *buf, size_t buf_bytes);

#endif
