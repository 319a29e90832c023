/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdctl: controls the daemon from the command line. main.c has the table of commands,
 * program.c the code that runs such a table. Each command is a function that takes the
 * connection and its arguments and returns fdctl's exit code. Commands use this folder,
 * but not each other.
 *
 *   cli.c       options, messages, exit codes
 *   conn.c      paths, sessions, admin socket, waiting for the daemon
 *   params.c    a request's parameters from options and JSON
 *   input.c     prompts, token ids and batch files
 *   result.c    the result of a request
 *   seg.c       the statistics and trace segments
 *   show.c      JSON as text, by shape or by a template
 *
 * This folder is a library that fdbench links too (fct_prog). This header includes the C
 * headers that most of its files need. A function that returns int returns 0, or an exit
 * code after it printed a message, unless its comment says otherwise.
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
 * A table describes a command's line: the text of --help and the places of the values.
 * Help and value name of an admin command's options come from daemon/tbl/ctl_cmds.h. */

/* How an option stores its value. A command's arguments are a struct; the field that the
 * option sets is at the row's offset. */
enum fct_take {
    FCT_T_HELP, /* calls fn() or prints the command's help; parsing ends */
    FCT_T_FLAG, /* int: 1 */
    FCT_T_TEXT, /* const char *: the value, not copied */
    FCT_T_U64,  /* uint64_t, at most hi */
    FCT_T_U32,  /* uint32_t, from lo to hi */
    FCT_T_REAL, /* double, in [from, to] */
    FCT_T_ASK,  /* json_t *: an admin request, which gets a member of the
                                option's name; a number is at most hi */
    FCT_T_BITS, /* uint32_t: the bits lo are set, then the bits hi cleared */
    FCT_T_FN,   /* fn() is called with the value */
    FCT_T_PARAM /* fct_param_opts: sets a parameter of the line's struct fct_req */
};
struct fct_opt {
    const char *name; /* without dashes; "": the row is a heading, its text in help */
    char letter;      /* short option; 0: none */
    const char *arg;  /* name of the value in the help; NULL: takes no value */
    const char *help; /* "": not shown in the help */
    enum fct_take take;
    size_t at;  /* offset of the field in the arguments */
    size_t has; /* 1 + offset of an int that is set to 1; 0: none */
    uint64_t lo, hi;
    double from, to;
    int (*fn)(void *args, const char *value); /* 0 or an exit code, message printed */
    const char *range; /* FCT_T_REAL: the range in the message; NULL: made from from and
                                to, as "must be a number from 0 to 1" */
    const char *once;  /* message if the option is repeated; NULL: the last one counts */
};
/* A row. The macros below take fields of the struct FCT_ARGS, which a command defines.
 * FCT_HAS() and further members may follow the help. */
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
/* stored in the request of a struct fct_plain */
#define FCT_ASK(letter, name, value, max, ...) \
    FCT_ROW(name, letter, value, .take = FCT_T_ASK, \
        .at = offsetof(struct fct_plain, ask), .hi = max, .help = __VA_ARGS__)
#define FCT_HAS(field) .has = 1 + offsetof(FCT_ARGS, field)
/* arg of an option with an optional value, "--name=value"; not shown in the help */
#define FCT_MAYBE          "[]"
#define FCT_OPT_END        FCT_ROW(.name = NULL)
#define FCT_OPT_HEAD(text) FCT_ROW("", 0, NULL, .help = text)
#define FCT_OPT_HELP       FCT_ROW("help", 'h', NULL, .help = "this text")

enum fct_hint { FCT_HINT_NONE, FCT_HINT_USAGE, FCT_HINT_SEE };
struct fct_operands {
    int n;
    char **text; /* in the argv that was parsed, whose order they change */
};
struct fct;
/* A command's line: its text for --help and the places of its operands. */
struct fct_line {
    const char *usage; /* printed after "usage: "; further lines unchanged */
    const char *about;
    const struct fct_opt *opts[5]; /* 4 tables at most, then NULL */
    /* an operand goes to operand(), else to the option operand_is, else to operands */
    int (*operand)(void *args, const char *value); /* 0 or an exit code; NULL: none */
    const char *operand_is;                        /* NULL: none */
    size_t operands; /* 1 + offset of a struct fct_operands; 0: takes no operand */
    int max_operands;
    enum fct_hint hint;  /* in the message about an operand too many */
    const char *command; /* name of an admin command, whose help in daemon/tbl/ctl_cmds.h
                                is used for options without help */
    /* prints the answer to a command's admin request: a function, a template (fct_text())
     * or only the member of this name (fct_show()); all NULL: the whole answer */
    void (*show)(json_t *answer, const void *args);
    const char *text, *list;
    size_t args_bytes; /* its arguments begin with a struct fct_plain; 0: no more than it */
    /* each may be NULL; before() checks and completes the arguments and returns FCT_GO or
     * an exit code, prepare() changes the answer, code() returns the exit code */
    int (*before)(struct fct *f, void *args);
    void (*prepare)(json_t *answer);
    int (*code)(const json_t *answer, const void *args);
    const char *prefix; /* before an option's name in messages; NULL: none */
    size_t req;         /* 1 + offset of the struct fct_req that fct_param_opts
                                set; 0: it has none */
    int is_main; /* options before a command: they end at the first word, argv[optind] */
    const char *const *less; /* parameters not offered, NULL at the end; NULL: all are */
    void (*above)(void), (*below)(void); /* print text around the options; may be NULL */
};
#define FCT_LINE(usage_text, about_text, table, ...) \
    { \
        .usage = usage_text, .about = about_text, .opts = { table }, __VA_ARGS__ \
    }
#define FCT_GO (-1)
/* Returns FCT_GO, or an exit code after help or a message. Options cannot be abbreviated.
 * If an option's arg begins with "[", its value follows "=" or is NULL. */
int fct_parse(const struct fct_line *l, int argc, char **argv, void *args);
int fct_help(const struct fct_line *l); /* returns 0 */
/* Act as if "--name value" were in the line; the option must exist. */
int fct_set(const struct fct_line *l, const char *name, const char *value, void *args);

#define FCT_OPTS_MAX 96
void fct_help_opts(const struct fct_opt *opts);
/* Name of cmd's BOOL argument that this word on the command line sets; NULL: none. */
const char *fct_table_word(const char *cmd, const char *word);

/* ---- connection ------------------------------------------------------------- */

struct fct {
    char dir[512]; /* runtime folder */
    char socket[512], admin[512];
    char instance[64]; /* "": the main instance, or only a path is known */
    int is_found;      /* no option or variable named a place: it was searched for */
    int dir_given;     /* an option gave dir */
    int timeout_ms;    /* for one answer; -1: no limit */
    int timeout_given; /* an option gave timeout_ms: long commands do not extend it */
    double wait_s;     /* time to wait for a ready daemon; 0: do not wait */
    uint32_t spin_us;  /* for sessions: struct fdc_open_opts */
    pid_t child;       /* the daemon, if this program started it; 0: it did not */
};

/* Find the sockets by options (may be NULL) and environment (libclient/fdwhere.h). */
int fct_paths(struct fct *f, const char *socket, const char *admin, const char *dir,
    const char *instance);
/* Print that members of group gid may use what, and how to join it. Returns 77. */
int fct_no_permission(const char *what, gid_t gid);
/* Print that no daemon is at a place (folder: dir) and how to start one. Returns 69. */
int fct_no_daemon(const struct fct *f, const char *place, const char *dir, const char *why);
/* Open a session whose arena holds prompts of prompt_bytes. */
int fct_open(const struct fct *f, size_t prompt_bytes, fdc_t **ret_session);
/* fdc_info() with the facts of the model. Returns a status. */
int fct_info(fdc_t *s, int timeout_ms, struct fdc_info *ret_info,
    struct fdc_model_info *ret_model);
/* --wait: wait until the daemon has started and is ready; fails if it ended or failed. */
int fct_wait_ready(struct fct *f);
/* The daemon's pid, from the folder's pid file. 0: none runs, -1: not known. */
pid_t fct_daemon_pid(const struct fct *f);

/* A connection to the admin socket: one line of JSON in each direction. */
struct fct_admin {
    int fd, timeout_ms; /* -1: no descriptor, no limit */
    char *buf;          /* the bytes read of an answer */
    size_t n, cap;
    int got_fd; /* descriptor that came with the answer; -1: none */
};
/* quiet: print no message. */
int fct_admin_open(const struct fct *f, int quiet, struct fct_admin *ret_admin);
void fct_admin_close(struct fct_admin *a);
/* Connect within timeout_ms (-1: no limit), with flags of socket(). A fd or -errno. */
int fct_dial(const char *path, int flags, int timeout_ms);
/* Send a request; takes over ask. Returns 0, 1 (the socket took only some) or -errno. */
int fct_admin_send(struct fct_admin *a, json_t *ask);
/* Read the available bytes of an answer of at most most bytes. Returns 0 if *ret_answer
 * is the whole answer, an object; 1 if more is to come; -EPIPE if the daemon hung up,
 * -EPROTO if the answer is not an object, or another -errno. */
int fct_admin_receive(struct fct_admin *a, size_t most, json_t **ret_answer);
/* Send a request, taking over ask, and get the answer: a new object with "ok" true. */
int fct_ask(struct fct_admin *a, json_t *ask, int quiet, json_t **ret_answer);
/* fct_ask() over a connection of its own. */
int fct_ask_once(const struct fct *f, json_t *ask, int quiet, json_t **ret_answer);

/* The descriptor that the daemon sends with its answer to cmd for this group, or -errno:
 * -ENOENT or -ECONNREFUSED: no daemon, -EACCES, -ETIMEDOUT: no answer, -EPIPE: the daemon
 * ended, -ENXIO: it has no such group, -EPROTO, or -EBUSY: it refused for the reason in
 * ret_why. Prints nothing. */
int fct_ask_fd(const struct fct *f, const char *cmd, uint32_t group, int timeout_ms,
    char *ret_why, size_t why_bytes);

/* ---- shared memory -------------------------------------------------------------- */

/* Map the daemon's counters. The daemon sends their descriptor; if it does not answer, a
 * caller with the right to do so finds it in /proc. The segment has the layout that this
 * program was built with and cannot shrink, but its numbers and text are unchecked. If
 * timeout_ms, the longest wait for the daemon, is not 0, prints no message and returns 0,
 * -ENOENT (no daemon) or another -errno. */
int fct_seg_open(const struct fct *f, int timeout_ms, const struct cnt_seg **ret_seg);
/* Returns 0 if the daemon has ended. */
int fct_seg_alive(const struct cnt_seg *seg);
/* Copy the numbers, with the model's name as fct_plain() makes it: of one group or of
 * CNT_ALL_GROUPS, as cnt_of_group() sums them up. fct_seg_snap_each() returns an array of
 * all groups, to be freed with free() (NULL: no memory). */
int fct_seg_snap_group(const struct cnt_seg *seg, uint32_t group, struct cnt_seg *ret_seg);
struct cnt_seg *fct_seg_snap_each(const struct cnt_seg *seg);
/* fct_seg_open() for a group's step trace, for administrators. Never unmapped. */
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
/* fct_fail() with "what: text of the status (its name)" and the status's exit code. */
int fct_status_fail(const char *what, int status);
int fct_flush(void); /* standard output */
/* The signal's number is stored in fct_interrupted; flags are those of sigaction(). */
extern volatile sig_atomic_t fct_interrupted;
void fct_catch(int sig, unsigned flags);
/* Exit code for a status; 0 for FDC_OK. */
int fct_exit_code(int status);
/* Search for the name most similar to like: call fct_near() for each one. Set best to the
 * least distance that is too large before; afterwards it is the distance of name, which
 * is NULL if none was near enough. */
struct fct_near {
    const char *like, *name;
    unsigned best;
};
void fct_near(struct fct_near *n, const char *name);
/* Name of a user, or its number as text. Returns ret. */
const char *fct_user(uid_t uid, char ret[64]);
/* Copy name with each character from replaced by to, cut at 63 bytes. */
void fct_swap(const char *name, char from, char to, char ret[64]);
/* Parse a number. */
int fct_u64(const char *what, const char *text, uint64_t max, uint64_t *ret);
int fct_u32(const char *what, const char *text, uint32_t lo, uint32_t hi, uint32_t *ret);
int fct_dbl(const char *what, const char *text, double *ret);
int fct_dbl_in(const char *what, const char *text, double lo, double hi, double *ret);

/* ---- a request ------------------------------------------------------------- */

/* Parameters that are lists: JSON arrays. */
enum fct_list {
    FCT_L_STOP,      /* texts */
    FCT_L_STOP_ID,   /* ids */
    FCT_L_BIAS,      /* [id, bits of the bias as a float], ... */
    FCT_L_ALLOW,     /* lists of ids */
    FCT_L_BAD_WORD,  /* texts */
    FCT_L_BAD_IDS,   /* lists of ids, each a sequence */
    FCT_L_LOGPROB,   /* lists of ids */
    FCT_L_REASONING, /* [most tokens, opening id, closing id] each; the last counts */
    FCT_N_LIST
};
struct fct_req {
    char *text; /* the prompt as text; NULL: not given so */
    size_t n_text;
    uint32_t *ids; /* the prompt as token ids; NULL: not given so */
    size_t n_ids;
    int has_prompt;
    struct fdc_submit_opts o;
    struct fdc_params p;      /* its lists are empty; they are in list */
    json_t *list[FCT_N_LIST]; /* NULL: empty */
    json_t *label;            /* "id" of a batch line, shown in the result */
};

void fct_req_init(struct fct_req *r);
void fct_req_fini(struct fct_req *r);
/* dst is overwritten without being freed. Returns 0 or -ENOMEM. */
int fct_req_copy(struct fct_req *dst, const struct fct_req *src);
/* Fill *ret with r's parameters and lists. Returns the memory of the lists, to be freed
 * with free(), or NULL without memory. *ret is valid until then, or until r changes. */
void *fct_req_params(const struct fct_req *r, struct fdc_params *ret);
/* Submit the prompt with the parameters. Returns a status. */
int fct_req_submit(fdc_t *s, const struct fct_req *r, fdc_req_t **ret);
/* Options that set a parameter. */
extern const struct fct_opt fct_param_opts[];
/* Set the parameter of a row of fct_param_opts. */
int fct_req_set_opt(struct fct_req *r, const struct fct_opt *row, const char *value);
/* Set the parameter of a JSON key ("max_tokens" or "max-tokens"). Returns 0, or -EINVAL
 * or -ENOMEM with the reason in err. */
int fct_req_set_json(struct fct_req *r, const char *key, const json_t *value, char *err,
    size_t err_bytes);

/* ---- input ------------------------------------------------------------------ */

/* Grow an array to at least need elements of size bytes. p points to the pointer to it,
 * *cap is its capacity. Returns 0 or -ENOMEM. */
int fct_room(void *p, size_t need, size_t *cap, size_t size);
/* Read a whole file; "-" is standard input. A NUL follows the n bytes. */
int fct_slurp(const char *path, char **ret_text, size_t *ret_n);
/* Are the n bytes only digits, of a number up to max (9 or more)? Then *ret is it. */
int fct_digits(const char *text, size_t n, uint64_t max, uint64_t *ret);
/* Parse a JSON array of numbers, or numbers separated by blanks or commas. Returns 0, or
 * -ENODATA (none), -EINVAL or -ENOMEM with the reason in err. */
int fct_parse_ids(const char *text, size_t n, uint32_t **ret_ids, size_t *ret_n,
    char *err, size_t err_bytes);
/* The message names the first byte that is not UTF-8. */
int fct_check_utf8(const char *what, const char *text, size_t n);
/* Parse the requests of a batch file's text, one JSON object a line; dflt has the
 * parameters that a line does not set. The message names path and line. */
int fct_parse_batch(const char *path, const char *text, size_t n,
    const struct fct_req *dflt, struct fct_req **ret_reqs, size_t *ret_n);

/* ---- results ------------------------------------------------------------------ */

/* Text that grows; a NUL follows its n bytes. */
struct fct_buf {
    char *p;
    size_t n, cap;
};
int fct_buf_add(struct fct_buf *b, const void *p, size_t n); /* 0 or -ENOMEM */

/* The output of a choice, or the prompt as the daemon returns it. */
struct fct_choice {
    json_t *ids;     /* token ids, a list */
    json_t *special; /* [[position, id, name], ...] */
    json_t *lp;      /* [[position, {id, text, logprob, top}], ...] */
    struct fct_buf text;
    struct fdc_choice_end end; /* finish FDC_FIN_NONE: not received yet */
};

struct fct_result {
    const struct fct_req *req;
    size_t index;
    struct fct_choice *choices, *prompt; /* prompt: the element after the last choice */
    unsigned n_choices;
    json_t *last_lp; /* the lp of a choice or the prompt that was extended last */
    struct fdc_accepted accepted;
    int is_accepted, is_over;
    struct fdc_done done;
    struct fdc_error error;            /* code FDC_OK: no error event came */
    uint64_t t_submit, t_first, t_end; /* client's CLOCK_MONOTONIC, ns; 0: not yet */
};

/* Returns 0 or -ENOMEM. */
int fct_result_init(struct fct_result *r, const struct fct_req *req, size_t index);
void fct_result_fini(struct fct_result *r);
/* Add an event to the result. Returns 0 or -ENOMEM. */
int fct_result_add(struct fct_result *r, const struct fdc_event *ev, uint64_t now_ns);
/* New reference, NULL without memory. */
json_t *fct_result_json(const struct fct_result *r);
/* json_stringn() that replaces bytes that are not UTF-8. */
json_t *fct_json_text(const char *text, size_t n);
json_t *fct_json_real(double v); /* null if v is not finite */
/* ms between two times in ns; 0 if from is 0 or not before to. */
double fct_ms(uint64_t from, uint64_t to);
json_t *fct_json_ids(const uint32_t *ids, size_t n);
/* "E_TOO_LONG: prompt plus ... (max_new, 4096)" */
void fct_error_text(const struct fdc_error *e, char *ret, size_t ret_bytes);

/* ---- output -------------------------------------------------------------------- */

/* Make foreign text safe for a terminal: a control character becomes \xNN, a byte that is
 * not UTF-8 becomes U+FFFD. Text ends at a NUL, after n bytes or when ret is full. */
void fct_plain(const char *text, size_t n, char *ret, size_t ret_bytes);
/* Print an object or array on one line, reals with 9 digits. Takes over the reference;
 * NULL means that there was no memory. */
int fct_print_json(json_t *j);
/* A member's text or number; "" or 0 if it has another type. */
const char *fct_str(const json_t *o, const char *key);
long long fct_num(const json_t *o, const char *key);
double fct_real(const json_t *o, const char *key);
void fct_add_num(json_t *o, const char *key, long long n);
/* The member "a.b" of o; "" is o itself. */
const json_t *fct_member(const json_t *o, const char *path);
/* Sort an array as qsort_r() sorts json_t pointers; without memory it stays as it is. */
void fct_sort(json_t *list, int (*cmp)(const void *a, const void *b, void *arg), void *arg);
/* Print JSON for people: names and values aligned, arrays of objects as tables. */
void fct_show(FILE *out, const json_t *j, int indent);
/* "0.2.0 (abc1234)" from "status". Returns 1 if our version or known commit differs. */
int fct_daemon_version(const json_t *status, char *ret, size_t ret_bytes);
/* "2.5 GiB"; ret has 24 bytes. Returns ret. */
const char *fct_bytes(double bytes, char *ret);
/* Three significant digits at least, "-" for NAN; ret has 24 bytes. Returns ret. */
char *fct_figure(double v, char *ret);
/* Print a template; these forms insert members of o:
 *   {a.b}        member b of member a, an index if a is a list; {} is o itself,
 *                {^a} a member of the object around [*] (below)
 *   {a:FORM}     FORM is a printf width, then .DIGITS for a number, or one of: bytes, MiB,
 *                fig (as fct_figure()), age (of ms: 850 ms, 5 min), d and ds (date of a
 *                UNIX time, ds with seconds)
 *   {a/1e3-b:.1} members and numbers, from left to right with + - * /; n / 0 is 0
 *   [a|TEXT]     TEXT if a is not empty, 0, false or null; [!a|TEXT] if a is;
 *                [a=x|TEXT] if a is the text x; [a?|TEXT] if a exists and is not null;
 *                [a*b>1|TEXT] compares numbers
 *   [*a|TEXT]    TEXT with each element of the list a, or with the object a, as o */
void fct_text(FILE *out, const char *text, const json_t *o);
/* fct_text() into ret, cut to its size. */
void fct_fill(char *ret, size_t ret_bytes, const char *text, const json_t *o);

/* ---- programs ------------------------------------------------------------------ */

/* Arguments of a command that sends one admin request. */
struct fct_plain {
    json_t *ask; /* the request; options add to it: FCT_ASK() */
    int json;
};
/* {"cmd": name} */
#define fct_question(name) json_pack("{s:s}", "cmd", name)
/* Print the answer without its "ok"; takes over the reference. Returns the exit code. */
int fct_finish(const struct fct_line *l, json_t *answer, const void *args, int json);

typedef int fct_cmd_fn(const struct fct *f, int argc, char **argv);
struct fct_cmd {
    const char *name, *help;
    fct_cmd_fn *fn;             /* NULL: ask describes the command */
    const struct fct_line *ask; /* sends the admin request of this line */
    int starts_one;             /* 1: starts a daemon of its own: --wait does not wait */
};
/* Run a program of commands, with options, help and version. Returns the exit code. */
int fct_main(const char *prog, const struct fct_cmd *cmds, int argc, char **argv);

/* ---- daemons of a command's own -------------------------------------------------- */

/* Find a program next to this one, as installed or in the build tree. Returns 0, or
 * -ENOENT with the folder in ret. */
int fct_find_program(const char *name, char ret[PATH_MAX]);
/* Start a program with option config[0] and its value config[1] (NULL: without the
 * option), and one --set for each of set. It has a process group of its own, so that
 * Ctrl-C reaches only this program, and gets SIGTERM when this one ends. log (may be
 * NULL) is the file for its standard output and error. If it cannot be run, the child
 * writes a message that begins with who, and exits with 127. Returns the pid, or -1
 * (errno). */
#define FCT_SETS_MAX 64
pid_t fct_spawn(const char *path, const char *const *config, const char *const *set,
    size_t n_set, const char *log, const char *who);
void fct_remove_tree(const char *dir);

#endif
