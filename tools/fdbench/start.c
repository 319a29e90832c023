/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LOG_LINES 12
#define N_PROMPT  16
#define NAP_NS    200000

/* Times of a start, in ms since just before fork(). */
static const char *const fields[] = { "socket_ms", "ready_ms", "first_token_ms", "load_ms" };
#define N_FIELD (sizeof(fields) / sizeof(fields[0]))

struct starter {
    const char *fdd, *opt_model, *config; /* from the options */
    const char *set[FCT_SETS_MAX + 2];
    uint32_t n_set, n_repeat;
    double timeout_s;
    int no_cold, json;
    char next_to[PATH_MAX]; /* path of fdd if no option gives it */
    char model[PATH_MAX], dir[256], run[300], log[300];
    struct fct f; /* the daemon's folder */
    pid_t pid;    /* 0 or below: none */
    uint64_t model_bytes, t0, t_end;
    double still_cached; /* largest share of the files that a cold start found cached */
    uint32_t vocab;
    json_t *runs; /* the starts, in order */
};

/* ---- the model's files ------------------------------------------------------------ */

/* Number of a file's bytes in the page cache; 0 if not known. */
static uint64_t
resident(int fd, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size + page - 1) / page, i;
    unsigned char *vec = malloc(n);
    void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    uint64_t bytes = 0;

    if (vec != NULL && p != MAP_FAILED && mincore(p, size, vec) == 0)
        for (i = 0; i < n; i++)
            bytes += (vec[i] & 1) == 0 ? 0 : i + 1 < n ? page : size - i * page;
    if (p != MAP_FAILED)
        munmap(p, size);
    free(vec);
    return bytes;
}

/* Drops the model's files from the page cache, or reads them into it. */
static int
page_cache(struct starter *s, int cold, double *ret_cached)
{
    DIR *d = opendir(s->model);
    uint64_t total = 0, cached = 0;
    const struct dirent *e;
    char buf[1 << 16];
    struct stat st;
    int fd;

    if (d == NULL)
        return fct_fail(EX_NOINPUT, "--model %s: %s", s->opt_model, strerror(errno));
    while ((e = readdir(d)) != NULL) {
        fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
            if (cold) {
                /* dirty pages cannot be dropped */
                (void)fdatasync(fd);
                (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            } else {
                while (!fct_interrupted && read(fd, buf, sizeof(buf)) > 0)
                    ;
            }
            cached += resident(fd, (size_t)st.st_size);
            total += (uint64_t)st.st_size;
        }
        close(fd);
    }
    closedir(d);
    s->model_bytes = total;
    *ret_cached = total > 0 ? (double)cached / (double)total : 0;
    return 0;
}

/* ---- the daemon -------------------------------------------------------------------- */

static int
prepare(struct starter *s)
{
    const char *tmp = getenv("TMPDIR");
    DIR *d = opendir(s->opt_model);

    if (d == NULL || realpath(s->opt_model, s->model) == NULL)
        return fct_fail(EX_NOINPUT,
            errno == ENOTDIR
                ? "--model %s: not a folder; name the one that holds config.json"
                : "--model %s: %s",
            s->opt_model, strerror(errno));
    closedir(d);
    /* fdd next to fdbench, else in the path */
    if (s->fdd == NULL)
        s->fdd = fct_find_program("fdd", s->next_to) == 0 ? s->next_to : "fdd";
    else if (access(s->fdd, X_OK) != 0)
        return fct_fail(EX_NOINPUT, "--fdd %s: %s", s->fdd, strerror(errno));
    snprintf(s->dir, sizeof(s->dir), "%.200s/fdbench.XXXXXX",
        tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    if (mkdtemp(s->dir) == NULL)
        return fct_fail(EX_IOERR, "%s: %s (TMPDIR names another place)", s->dir,
            strerror(errno));
    snprintf(s->run, sizeof(s->run), "%s/run", s->dir);
    snprintf(s->log, sizeof(s->log), "%s/log", s->dir);
    s->f = (struct fct){ .timeout_ms = 1000 };
    return fct_paths(&s->f, NULL, NULL, s->run, NULL);
}

static void
end_daemon(struct starter *s)
{
    uint64_t t_end = clk_now_ns() + 10000000000u;

    if (s->pid <= 0)
        return;
    kill(s->pid, SIGTERM);
    while (waitpid(s->pid, NULL, WNOHANG) == 0) {
        if (clk_now_ns() >= t_end) {
            kill(-s->pid, SIGKILL);
            (void)waitpid(s->pid, NULL, 0);
            break;
        }
        clk_sleep_ns(NAP_NS);
    }
    s->pid = 0;
}

/* Print the end of the daemon's log, after the reason. Returns the exit code. */
static int
last_lines(const struct starter *s)
{
    size_t n, lines = 0;
    char *text, *at;

    if (access(s->log, R_OK) != 0 || fct_slurp(s->log, &text, &n) != 0)
        return EX_UNAVAILABLE;
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    for (at = text + n; at > text && lines < LOG_LINES; at--)
        lines += at[-1] == '\n';
    at += lines == LOG_LINES;
    fputs(n > 0 ? "its last lines:\n" : "it wrote no line\n", stderr);
    for (char *line; n > 0 && (line = strsep(&at, "\n")) != NULL;)
        fprintf(stderr, "  %s\n", line);
    free(text);
    return EX_UNAVAILABLE;
}

/* Returns 0 while the daemon runs and there is time left, else an exit code. */
static int
still_there(struct starter *s, const char *phase)
{
    int status, killed;

    if (fct_interrupted)
        return fct_fail(FCT_EX_INT, "interrupted");
    if (waitpid(s->pid, &status, WNOHANG) == s->pid) {
        s->pid = 0;
        killed = WIFSIGNALED(status);
        fct_fail(0, "%s %s %d before %s", s->fdd,
            killed ? "was killed by signal" : "ended with",
            killed ? WTERMSIG(status) : WEXITSTATUS(status), phase);
        return last_lines(s);
    }
    if (clk_now_ns() < s->t_end)
        return 0;
    fct_fail(0, "no sign of %s within %g s (--timeout)", phase, s->timeout_s);
    return last_lines(s);
}

/* ---- one start ------------------------------------------------------------------- */

static void
note_time(const struct starter *s, json_t *t, size_t field)
{
    json_object_set_new(t, fields[field], json_real((double)(clk_now_ns() - s->t0) / 1e6));
}

static int
wait_ready(struct starter *s, json_t *t, fdc_t **ret)
{
    struct fdc_open_opts opts = { .size = sizeof(opts),
        .path = s->f.socket,
        .name = fct_prog,
        .connect_timeout_ms = 1000 };
    struct fdc_model_info model;
    struct fdc_info info;
    uint64_t t_look = clk_now_ns();
    json_t *st = NULL;
    const char *error;
    int rc = 0;

    while (rc == 0 && (access(s->f.socket, F_OK) != 0 || fdc_open(&opts, ret) < 0)) {
        rc = still_there(s, "its socket was there");
        clk_sleep_ns(NAP_NS);
    }
    note_time(s, t, 0);
    while (rc == 0 && (fct_info(*ret, 1000, &info, &model) < 0 || model.vocab == 0)) {
        rc = still_there(s, "the model was ready");
        if (rc == 0 && clk_now_ns() > t_look + 200000000u) {
            (void)fct_ask_once(&s->f, fct_question("status"), 1, &st);
            error = fct_str(json_object_get(st, "worker"), "error");
            if (strcmp(fct_str(st, "state"), "degraded") == 0) {
                fct_fail(0, "the model does not start: %s",
                    error[0] != '\0' ? error : "see below");
                rc = last_lines(s);
            }
            json_decref(st);
            st = NULL;
            t_look = clk_now_ns();
        }
        clk_sleep_ns(NAP_NS);
    }
    note_time(s, t, 1);
    s->vocab = model.vocab;
    return rc;
}

static int
first_token(struct starter *s, json_t *t, fdc_t *c)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    fdc_req_t *r;
    int rc = fdb_submit_plain(c, s->vocab, N_PROMPT, 2, &r);

    if (rc < 0)
        return fct_status_fail("the first request", rc);
    for (rc = 0; rc == 0;) {
        int got = fdc_next(r, &ev, 50);

        if (got == 1 && ev.type == FDC_T_IDS)
            break;
        if (got == 1 && ev.type == FDC_T_ERROR)
            got = ev.error->code;
        if (got == FDC_E_TIMEOUT || got == FDC_E_AGAIN)
            rc = still_there(s, "the first token");
        else if (got < 0)
            rc = fct_status_fail("the first request", got);
        else if (got == 0)
            rc = fct_fail(EX_SOFTWARE, "the first request: ended without a token");
    }
    note_time(s, t, 2);
    fdc_req_free(r);
    return rc;
}

static int
one(struct starter *s, int cold)
{
    const char *const config[] = { s->config != NULL ? "--config" : NULL, s->config };
    char run[340], model[PATH_MAX + 16];
    double cached = 0, load_ms = 0;
    const struct cnt_seg *seg;
    fdc_t *c = NULL;
    json_t *t;
    int rc = page_cache(s, cold, &cached);

    if (rc == 0 && fct_interrupted)
        rc = fct_fail(FCT_EX_INT, "interrupted");
    if (rc != 0)
        return rc;
    t = json_pack("{s:b, s:f}", "cold", cold, "cached_share", cached);
    s->t0 = clk_now_ns();
    s->t_end = s->t0 + (uint64_t)(s->timeout_s * 1e9);
    snprintf(run, sizeof(run), "daemon.runtime_dir=%s", s->run);
    snprintf(model, sizeof(model), "model.path=%s", s->model);
    s->set[s->n_set] = run;
    s->set[s->n_set + 1] = model;
    /* the log gets its output, or the reason why it could not be run */
    s->pid = fct_spawn(s->fdd, config, s->set, s->n_set + 2, s->log, "");
    if (s->pid < 0)
        rc = fct_fail(EX_SOFTWARE, "fork: %s", strerror(errno));
    if (rc == 0)
        rc = wait_ready(s, t, &c);
    if (rc == 0)
        rc = first_token(s, t, c);
    if (rc == 0 && fct_seg_open(&s->f, 0, &seg) == 0) {
        load_ms = (double)cnt_get(&seg->w.load_ns) / 1e6;
        cnt_unlook(seg);
    }
    json_object_set_new(t, "load_ms", json_real(load_ms));
    s->still_cached = cold ? fmax(cached, s->still_cached) : s->still_cached;
    fdc_close(c);
    end_daemon(s);
    if (rc == 0)
        json_array_append(s->runs, t);
    json_decref(t);
    return rc;
}

/* ---- results --------------------------------------------------------------------- */

static json_t *
to_json(const struct starter *s)
{
    json_t *o = json_pack("{s:s, s:I, s:o, s:o}", "command", "start", "model_bytes",
        (json_int_t)s->model_bytes, "fdd", fdb_text(s->fdd), "model", fdb_text(s->model));
    json_t *one;
    size_t i;

    for (int cold = 1; cold >= 0; cold--) {
        json_t *kind = json_object(), *of = json_array();

        json_array_foreach(s->runs, i, one)
            if (json_is_true(json_object_get(one, "cold")) == cold)
                json_array_append(of, one);
        for (i = 0; json_array_size(of) > 0 && i < N_FIELD; i++)
            json_object_set_new(kind, fields[i], fdb_mmm_of(of, fields[i], NULL, 0));
        json_object_set_new(kind, "starts", json_integer((json_int_t)json_array_size(of)));
        json_object_set_new(o, cold ? "cold" : "warm", kind);
        json_decref(of);
    }
    if (!s->json && s->still_cached > 0.01)
        json_object_set_new(o, "still_cached", json_real(s->still_cached * 100));
    json_object_set(o, "runs", s->runs);
    return o;
}

#define ROW(name, key) \
    name " {" key ".median:10fig} {" key ".min:10fig} {" key ".max:10fig}\n"
#define ROWS \
    ROW("socket there                  ", "socket_ms") \
    ROW("      model ready                   ", "ready_ms") \
    ROW("      first token                   ", "first_token_ms") \
    ROW("      model's load, by the worker   ", "load_ms")
static const char text[] =
    "{fdd}, model {model}, {model_bytes/1e6:.1} MB\n"
    "ms from the start of the process, {warm.starts} starts of a kind\n\n"
    "                                         median        min        max\n"
    "[cold.starts|[*cold|cold  " ROWS "]][*warm|warm  " ROWS "][cold.starts|\n"
    "cold: the model's files, not the programs, were dropped from the page cache before\n"
    "(posix_fadvise); warm: they were read before\n]"
    "[still_cached|of the cold starts one still found {still_cached:.0} % of them in the page "
    "cache: another\nprogram uses them, or their file system keeps them\n]";

static int
take_set(void *args, const char *value)
{
    struct starter *s = args;

    if (strchr(value, '=') == NULL)
        return fct_usage("--set %s: no \"=\"; write --set section.key=value", value);
    if (strncmp(value, "daemon.runtime_dir=", 19) == 0)
        return fct_usage("--set %s: the daemon gets a folder of its own", value);
    if (strncmp(value, "model.path=", 11) == 0)
        return fct_usage("--set %s: use --model DIR", value);
    if (s->n_set == FCT_SETS_MAX)
        return fct_usage("--set %s: at most %d", value, FCT_SETS_MAX);
    s->set[s->n_set++] = value;
    return 0;
}

#define FCT_ARGS struct starter
static const struct fct_opt start_opts[] = {
    FCT_TEXT('m', "model", "DIR", opt_model, "the model's folder"),
    FCT_TEXT(0, "fdd", "PATH", fdd, "the daemon (fdd next to fdbench)"),
    FCT_TEXT(0, "config", "FILE", config, "its configuration file"),
    FCT_FN('s', "set", "K=V", take_set, "set a parameter of the daemon; may be repeated"),
    FCT_U32('r', "repeats", "N", n_repeat, 1, 1000, "starts, cold and warm each (3)"),
    FCT_FLAG(0, "warm-only", no_cold, "no cold starts"),
    FCT_REAL(0, "timeout", "S", timeout_s, 0.001, 86400,
        "give a start up after this many seconds (600)"),
    FCT_FLAG(0, "json", json, "one JSON object"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line start_line = FCT_LINE("fdbench start --model DIR [options]",
    "Starts a daemon of its own again and again and measures the time to its "
    "socket,\nto a ready model and to the first token.",
    start_opts, .text = text);

int
fdb_cmd_start(const struct fct *f, int argc, char **argv)
{
    struct starter s = { .n_repeat = 3, .timeout_s = 600 };
    int rc = fct_parse(&start_line, argc, argv, &s);

    (void)f;
    if (rc == FCT_GO && s.opt_model == NULL)
        rc = fct_usage("start: --model DIR is missing");
    if (rc != FCT_GO)
        return rc;
    s.runs = json_array();
    rc = prepare(&s);
    fct_catch(SIGINT, 0);
    fct_catch(SIGTERM, 0);
    fct_catch(SIGHUP, 0);
    for (uint32_t i = 0; rc == 0 && i < s.n_repeat; i++) {
        rc = s.no_cold ? 0 : one(&s, 1);
        if (rc == 0)
            rc = one(&s, 0);
    }
    if (s.run[0] != '\0')
        fct_remove_tree(s.dir);
    if (rc == 0)
        rc = fct_finish(&start_line, to_json(&s), &s, s.json);
    json_decref(s.runs);
    return rc;
}
