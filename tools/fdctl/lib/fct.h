/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdctl: the daemon from the command line. main.c has the table of commands, and
 * program.c what all programs do with theirs. Each command is a function of the
 * connection and its arguments and returns fdctl's exit code. Commands know this folder
 * and not each other.
 *
 *   cli.c       options, messages, exit codes
 *   conn.c      paths, sessions, admin socket, waiting for the daemon
 *   params.c    a request's parameters from options and JSON
 *   input.c     prompts, token ids and batch files
 *   result.c    what came of a request
 *   seg.c       the statistics and trace segments
 *   show.c      JSON as text, by shape or by a template
 *
 * All but main.c is a library that fdbench links too (fct_prog). The headers of C that most
 * of these files need come with this one. What returns int returns 0, or an exit code with
 * the message printed, unless its comment says otherwise.
 */
#ifndef FDD_TOOLS_FDCTL_LIB_FCT_H
#define FDD_TOOLS_FDCTL_LIB_FCT_H

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/counter.h"
#include "daemon/common/trace.h"
#include "libclient/fdclient.h"

/* Exit codes besides those of sysexits.h; fdctl(1) lists them. */
#define FCT_EX_ENDED 1 /* a request was cancelled or its deadline passed */
#define FCT_EX_INT   130

/* ---- command lines -----------------------------------------------------------------
 * A command's line is a table: what --help prints, and where values go. Help and value of
 * an admin command's options come from daemon/tbl/ctl_cmds.h. */

/* What an option does with its value: the commands' arguments are a struct, in which
 * the row's field lies at an offset. */
enum fct_take {
    FCT_T_HELP, /* nothing: fn(), or the command's help, and no more of the line */
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
/* A row; the others' fields are those of FCT_ARGS, which a command defines. Behind the help
 * FCT_HAS() and further members may follow. */
#define FCT_ROW(...) \
    { \
        __VA_ARGS__ \
    }
#define FCT_OF(how, field) .take = how, .at = offsetof(FCT_ARGS, field)
#define FCT_FLAG(letter, name, field, ...) \
    FCT_ROW(name, letter, NULL, FCT_OF(FCT_T_FLAG, field), .help = __VA_ARGS__)
#define FCT_TEXT(letter, name, value, field, ...) \
    FCT_ROW(name, letter, value, FCT_OF(FCT_T_TEXT, field), .help = __VA_ARGS__)
#define FCT_U64(letter, name, value, field, max, ...) \
    FCT_ROW(name, letter, value, FCT_OF(FCT_T_U64, field), .hi = max, .help = __VA_ARGS__)
#define FCT_U32(letter, name, value, field, min, max, ...) \
    FCT_ROW(name, letter, value, FCT_OF(FCT_T_U32, field), .lo = min, .hi = max, \
        .help = __VA_ARGS__)
#define FCT_REAL(letter, name, value, field, min, max, ...) \
    FCT_ROW(name, letter, value, FCT_OF(FCT_T_REAL, field), .from = min, .to = max, \
        .help = __VA_ARGS__)
#define FCT_BITS(letter, name, field, set, clear, ...) \
    FCT_ROW(name, letter, NULL, FCT_OF(FCT_T_BITS, field), .lo = set, .hi = clear, \
        .help = __VA_ARGS__)
#define FCT_FN(letter, name, value, function, ...) \
    FCT_ROW(name, letter, value, .take = FCT_T_FN, .fn = function, .help = __VA_ARGS__)
/* into the question of a struct fct_plain */
#define FCT_ASK(letter, name, value, max, ...) \
    FCT_ROW(name, letter, value, .take = FCT_T_ASK, \
        .at = offsetof(struct fct_plain, ask), .hi = max, .help = __VA_ARGS__)
#define FCT_HAS(field) .has = 1 + offsetof(FCT_ARGS, field)
/* value of an option that is written "--name=value" or left out; not in the help */
#define FCT_MAYBE          "[]"
#define FCT_OPT_END        FCT_ROW(.name = NULL)
#define FCT_OPT_HEAD(text) FCT_ROW("", 0, NULL, .help = text)
#define FCT_OPT_HELP       FCT_ROW("help", 'h', NULL, .help = "this text")

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
    const char *prefix; /* before an option's name in messages, NULL: none */
    size_t req;         /* 1 + offset of the struct fct_req that fct_param_opts
                                set; 0: it has none */
    int is_main; /* options before a command: they end at the first word, argv[optind] */
    const char *const *less; /* parameters that are not offered, to NULL; or NULL */
    void (*above)(void), (*below)(void); /* printed around the options, or NULL */
};
/* Usage, about, a table of options; further members may follow. */
#define FCT_LINE(usage_text, about_text, table, ...) \
    { \
        .usage = usage_text, .about = about_text, .opts = { table }, __VA_ARGS__ \
    }
#define FCT_GO (-1)
/* FCT_GO, or an exit code: help or a message has been printed. Options have no abbreviations;
 * one whose arg begins with "[" may have a value, behind "=" alone: it is NULL without. */
int fct_parse(const struct fct_line *l, int argc, char **argv, void *args);
int fct_help(const struct fct_line *l); /* 0 */
/* As if --name value were in the line. 0 or an exit code. */
int fct_set(const struct fct_line *l, const char *name, const char *value, void *args);

#define FCT_OPTS_MAX 96
void fct_help_opts(const struct fct_opt *opts);
/* Which BOOL argument a word means; NULL: none. */
const char *fct_table_word(const char *cmd, const char *word);

/* ---- connection ------------------------------------------------------------- */

struct fct {
    char dir[512]; /* runtime folder */
    char socket[512], admin[512];
    char instance[64]; /* "": the main one, or only a path is known */
    int is_found;      /* nothing names a place: by what is there now */
    int dir_given;     /* by an option */
    int timeout_ms;    /* of one answer, -1: as long as it takes */
    int timeout_given; /* by an option: a command that takes long does not extend it */
    double wait_s;     /* wait so long for a ready daemon, 0: not */
    uint32_t spin_us;  /* of sessions: struct fdc_open_opts */
};

/* Find the sockets from what the options and the environment name
 * (libclient/fdwhere.h); the arguments may be NULL. */
int fct_paths(struct fct *f, const char *socket, const char *admin, const char *dir,
    const char *instance);
/* Says that group gid may use what, and how to get into it; returns 77. */
int fct_no_permission(const char *what, gid_t gid);
/* Says that there is none at a place, whose folder is dir, and how to start it; returns 69. */
int fct_no_daemon(const struct fct *f, const char *place, const char *dir, const char *why);
/* Open a session whose arena holds prompts of prompt_bytes. */
int fct_open(const struct fct *f, size_t prompt_bytes, fdc_t **ret_session);
/* fdc_info() with the model's part. A status. */
int fct_info(fdc_t *s, int timeout_ms, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model);
/* --wait: 0 when the daemon is ready. Waits for one that is not yet there, and
 * gives up on one that has ended or failed. */
int fct_wait_ready(struct fct *f);
/* The daemon of the runtime folder by its lock: its pid, 0: none runs, -1: the
 * lock does not say. */
pid_t fct_daemon_pid(const struct fct *f);

/* A connection to the admin socket: a line of JSON each way. */
struct fct_admin {
    int fd, timeout_ms; /* -1: none */
    char *buf;          /* what is read of an answer */
    size_t n, cap;
    int got_fd; /* came with it; -1: none */
};
/* quiet: without a message. */
int fct_admin_open(const struct fct *f, int quiet, struct fct_admin *ret_admin);
void fct_admin_close(struct fct_admin *a);
/* Connect: flags are those of socket(), connecting takes timeout_ms at most (-1: as long
 * as it takes). A descriptor or -errno. */
int fct_dial(const char *path, int flags, int timeout_ms);
/* Send a question, whose reference passes. 0; 1: no room for all of it now; -errno. */
int fct_admin_send(struct fct_admin *a, json_t *ask);
/* Read what is there, at most most bytes of an answer. 0: *ret_answer is it, an object; 1: not
 * yet; -errno, -EPIPE: hung up, -EPROTO: it is no object. */
int fct_admin_receive(struct fct_admin *a, size_t most, json_t **ret_answer);
/* One question; takes over the reference to ask. *ret_answer is a new
 * reference, an object with "ok" true. */
int fct_ask(struct fct_admin *a, json_t *ask, int quiet, json_t **ret_answer);
/* The same over a connection of its own. */
int fct_ask_once(const struct fct *f, json_t *ask, int quiet, json_t **ret_answer);

/* The descriptor that the daemon sends with its answer to cmd, about this group, or -errno: -ENOENT and
 * -ECONNREFUSED no daemon, -EACCES, -ETIMEDOUT no answer, -EPIPE it ended, -EPROTO.
 * Nothing is printed. */
int fct_ask_fd(const struct fct *f, const char *cmd, uint32_t group, int timeout_ms);

/* ---- shared memory -------------------------------------------------------------- */

/* Map the daemon's counters: what it sends a descriptor of, or where it gives no
 * answer, what is found of it in /proc by who may look there. What is mapped has
 * the layout that this program was made with, and cannot shrink; its numbers and its
 * text are still whatever its daemon wrote. With timeout_ms, the most to wait for the
 * daemon, there is no message: 0, -ENOENT: no daemon, or another negative errno. */
int fct_seg_open(const struct fct *f, int timeout_ms, const struct cnt_seg **ret_seg);
/* 0: the daemon has ended. */
int fct_seg_alive(const struct cnt_seg *seg);
/* A copy of its numbers, and of the model's name as fct_plain() has it: of one group or of
 * CNT_ALL_GROUPS, as cnt_of_group() sums them up; of each group, as an array to be freed
 * with free() (NULL: no memory). */
int fct_seg_snap_group(const struct cnt_seg *seg, uint32_t group, struct cnt_seg *ret_seg);
struct cnt_seg *fct_seg_snap_each(const struct cnt_seg *seg);
/* The same for the step trace of a group, which is for administrators. Never unmapped. */
int fct_trace_open(const struct fct *f, uint32_t group, int timeout_ms,
    const struct trc_seg **ret_seg);

/* ---- messages and values ------------------------------------------------------- */

/* Name of the program in messages: "fdctl" unless set. */
extern const char *fct_prog;
/* "fdctl: text" on standard error; returns code. */
int fct_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define fct_usage(...) fct_fail(EX_USAGE, __VA_ARGS__)
#define fct_data(...)  fct_fail(EX_DATAERR, __VA_ARGS__)
#define fct_unav(...)  fct_fail(EX_UNAVAILABLE, __VA_ARGS__)
#define fct_oom()      fct_fail(EX_SOFTWARE, "out of memory")
/* The same with "what: text of the status (its name)". */
int fct_status_fail(const char *what, int status);
/* Flush standard output. */
int fct_flush(void);
/* The signal becomes fct_interrupted; flags are those of sigaction(). */
extern volatile sig_atomic_t fct_interrupted;
void fct_catch(int sig, unsigned flags);
/* Exit code that stands for a status; 0 for FDC_OK. */
int fct_exit_code(int status);
/* The most similar of the names that fct_near() has seen, if one is nearer than best. */
struct fct_near {
    const char *like, *name;
    unsigned best;
};
void fct_near(struct fct_near *n, const char *name);
/* Name of a user, or its number as text; ret. */
const char *fct_user(uid_t uid, char ret[64]);
/* name with one character for another, cut at 63 bytes. */
void fct_swap(const char *name, char from, char to, char ret[64]);
/* Numbers from text. */
int fct_u64(const char *what, const char *text, uint64_t max, uint64_t *ret);
int fct_u32(const char *what, const char *text, uint32_t lo, uint32_t hi, uint32_t *ret);
int fct_dbl(const char *what, const char *text, double *ret);
int fct_dbl_in(const char *what, const char *text, double lo, double hi, double *ret);

/* ---- a request ------------------------------------------------------------- */

/* Parameters that are lists: JSON arrays. */
enum fct_list {
    FCT_L_STOP,      /* texts */
    FCT_L_STOP_ID,   /* ids */
    FCT_L_BIAS,      /* [id, bits of the bias as a float] each */
    FCT_L_ALLOW,     /* lists of ids */
    FCT_L_BAD_WORD,  /* texts */
    FCT_L_BAD_IDS,   /* lists of ids, each a sequence */
    FCT_L_LOGPROB,   /* lists of ids */
    FCT_L_REASONING, /* [tokens at most, opening id, closing id] each; the last counts */
    FCT_N_LIST
};
struct fct_req {
    char *text; /* prompt, or */
    size_t n_text;
    uint32_t *ids; /* these ids, or neither */
    size_t n_ids;
    int has_prompt;
    struct fdc_submit_opts o;
    struct fdc_params p;      /* without lists: */
    json_t *list[FCT_N_LIST]; /* NULL: empty */
    json_t *label;            /* "id" of a batch line, shown in the result */
};

void fct_req_init(struct fct_req *r);
void fct_req_fini(struct fct_req *r);
/* dst has no contents before. 0 or -ENOMEM. */
int fct_req_copy(struct fct_req *dst, const struct fct_req *src);
/* Its parameters, whose pointers are valid until r changes and the result is freed with
 * free(). NULL: no memory. */
void *fct_req_params(const struct fct_req *r, struct fdc_params *ret);
/* Send its prompt with them. A status. */
int fct_req_submit(fdc_t *s, const struct fct_req *r, fdc_req_t **ret);
/* Options that set a parameter. */
extern const struct fct_opt fct_param_opts[];
/* Set by one of them. */
int fct_req_set_opt(struct fct_req *r, const struct fct_opt *row, const char *value);
/* Set by JSON key ("max_tokens" or "max-tokens"). 0 or -EINVAL/-ENOMEM
 * with the reason in err. */
int fct_req_set_json(struct fct_req *r, const char *key, const json_t *value, char *err,
    size_t err_bytes);

/* ---- input ------------------------------------------------------------------ */

/* Room for need elements of size bytes behind the pointer that p points to. -ENOMEM. */
int fct_room(void *p, size_t need, size_t *cap, size_t size);
/* Whole file, "-" is standard input; a NUL follows the n bytes. */
int fct_slurp(const char *path, char **ret_text, size_t *ret_n);
/* Are the n bytes digits alone, of a number of at most max (9 or more)? *ret is it. */
int fct_digits(const char *text, size_t n, uint64_t max, uint64_t *ret);
/* A JSON array of numbers, or numbers between blanks or commas. 0, or
 * -ENODATA (none), -EINVAL or -ENOMEM with the reason in err. */
int fct_parse_ids(const char *text, size_t n, uint32_t **ret_ids, size_t *ret_n,
    char *err, size_t err_bytes);
/* Its message names the first byte that is not UTF-8. */
int fct_check_utf8(const char *what, const char *text, size_t n);
/* Requests of a batch file's text, one JSON object a line; dflt gives what
 * a line does not name. The message names path and line. */
int fct_parse_batch(const char *path, const char *text, size_t n,
    const struct fct_req *dflt, struct fct_req **ret_reqs, size_t *ret_n);

/* ---- results ------------------------------------------------------------------ */

/* Text that grows; behind its n bytes there is a NUL. */
struct fct_buf {
    char *p;
    size_t n, cap;
};
/* 0 or -ENOMEM. */
int fct_buf_add(struct fct_buf *b, const void *p, size_t n);

struct fct_choice {  /* or the prompt */
    json_t *ids;     /* list */
    json_t *special; /* [[position, id, name], ...] */
    json_t *lp;      /* [[position, {id, text, logprob, top}], ...] */
    struct fct_buf text;
    struct fdc_choice_end end; /* finish FDC_FIN_NONE: has not come */
};

struct fct_result {
    const struct fct_req *req;
    size_t index;
    struct fct_choice *choices, *prompt; /* prompt: behind the last choice */
    unsigned n_choices;
    json_t *last_lp; /* the lp that was added to last */
    struct fdc_accepted accepted;
    int is_accepted, is_over;
    struct fdc_done done;
    struct fdc_error error;            /* code FDC_OK: DONE came */
    uint64_t t_submit, t_first, t_end; /* client's CLOCK_MONOTONIC, 0: not yet */
};

/* 0 or -ENOMEM. */
int fct_result_init(struct fct_result *r, const struct fct_req *req, size_t index);
void fct_result_fini(struct fct_result *r);
/* Take an event in. 0 or -ENOMEM. */
int fct_result_add(struct fct_result *r, const struct fdc_event *ev, uint64_t now_ns);
/* New reference, NULL without memory. */
json_t *fct_result_json(const struct fct_result *r);
/* json_stringn that replaces what is not UTF-8. */
json_t *fct_json_text(const char *text, size_t n);
json_t *fct_json_real(double v);
/* ms between two moments in ns; 0 where the first has not come, or comes later. */
double fct_ms(uint64_t from, uint64_t to);
json_t *fct_json_ids(const uint32_t *ids, size_t n);
/* "E_TOO_LONG: prompt plus ... (max_new, 4096)" */
void fct_error_text(const struct fdc_error *e, char *ret, size_t ret_bytes);

/* ---- output -------------------------------------------------------------------- */

/* Text that is not ours, for a terminal: a control character becomes \xNN, what is no
 * UTF-8 U+FFFD; it ends at a NUL, after n bytes or where ret is full. */
void fct_plain(const char *text, size_t n, char *ret, size_t ret_bytes);
/* One object or array on one line, numbers with 9 digits, and a newline. Takes over the
 * reference; NULL: no memory. */
int fct_print_json(json_t *j);
/* A member's text or number; "" or 0 where it is none. */
const char *fct_str(const json_t *o, const char *key);
long long fct_num(const json_t *o, const char *key);
double fct_real(const json_t *o, const char *key);
void fct_add_num(json_t *o, const char *key, long long n);
/* Member "a.b" of o; of "" o itself. */
const json_t *fct_member(const json_t *o, const char *path);
/* Order the elements of an array, as qsort_r() does pointers to them; without memory they
 * stay as they are. */
void fct_sort(json_t *list, int (*cmp)(const void *a, const void *b, void *arg), void *arg);
/* Readable text of any JSON value: names and values aligned, arrays of
 * objects as tables. */
void fct_show(FILE *out, const json_t *j, int indent);
/* "0.2.0 (abc1234)" of an answer to "status". Returns 1 when this program was
 * made from another version, or both commits are known and not the same. */
int fct_daemon_version(const json_t *status, char *ret, size_t ret_bytes);
/* "2.5 GiB"; ret has 24 bytes. Returns ret. */
const char *fct_bytes(double bytes, char *ret);
/* Three significant digits at least, "-" for NAN; ret has 24 bytes. Returns ret. */
char *fct_figure(double v, char *ret);
/* The text with members of o in it:
 *   {a.b}        member b of member a, an index if that is a list; {} is o itself, {^a} a member of what o is in
 *   {a:FORM}     FORM is a printf width, then .DIGITS for a number, or one of: bytes, MiB,
 *                fig (as fct_figure()), age (of ms: 850 ms, 5 min), d and ds (date of a UNIX time, ds with seconds)
 *   {a/1e3-b:.1} members and numbers, from left to right with + - * /; what 0 divides is 0
 *   [a|TEXT]     TEXT if a is not empty, 0, false or null; [!a|TEXT] if it is;
 *                [a=x|TEXT] if it is the text x; [a?|TEXT] if it is there and not null;
 *                [a*b>1|TEXT] of numbers
 *   [*a|TEXT]    TEXT with each element of the list a, or with the object a, as o */
void fct_text(FILE *out, const char *text, const json_t *o);
/* Into ret, cut where it is full. */
void fct_fill(char *ret, size_t ret_bytes, const char *text, const json_t *o);

/* ---- programs ------------------------------------------------------------------ */

/* Arguments of a command that asks one question. */
struct fct_plain {
    json_t *ask; /* options add to it: FCT_ASK() */
    int json;
};
/* {"cmd": name} */
#define fct_question(name) json_pack("{s:s}", "cmd", name)
/* Print the answer, which passes, without its "ok"; fdctl's exit code. */
int fct_finish(const struct fct_line *l, json_t *answer, const void *args, int json);

typedef int fct_cmd_fn(const struct fct *f, int argc, char **argv);
struct fct_cmd {
    const char *name, *help;
    fct_cmd_fn *fn;             /* NULL: */
    const struct fct_line *ask; /* asks the question of this line */
    int starts_one;             /* 1: starts a daemon of its own, waits for none */
};
/* A program of commands: the options before the command, help, version. Returns
 * its exit code. */
int fct_main(const char *prog, const struct fct_cmd *cmds, int argc, char **argv);

/* ---- daemons of a command's own -------------------------------------------------- */

/* A program next to this one, as installed or in the build tree. 0, or -ENOENT with the
 * folder in ret. */
int fct_find_program(const char *name, char ret[PATH_MAX]);
/* Run one with the option config[0] and its value config[1] (NULL: without), and --set for
 * each of set. It is in no process group of this program's, so that Ctrl-C reaches it by
 * this program alone, and ends when this program does. log (may be NULL) becomes its
 * standard output and error. What cannot be run says so there, behind who, and exits with
 * 127. Its pid, or -1 with errno set. */
#define FCT_SETS_MAX 64
pid_t fct_spawn(const char *path, const char *const *config, const char *const *set,
    size_t n_set, const char *log, const char *who);
void fct_remove_tree(const char *dir);

#endif
