/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "daemon/common/dir.h"
#include "tools/fdctl/commands.h"

#define GROUP_S     30 /* a group that takes longer hangs in the kernel or in a driver */
#define ASK_MS      3000 /* longest wait for the daemon, which may hang */
#define CONFIG_FILE FDD_SYSCONFDIR "/fdd/fdd.ini"

static const struct group {
    const char *name;
    doc_group_fn *run;
    const char *hang; /* repair if the group hangs */
} groups[] = {
    { "system", doc_system, "look at dmesg" },
    { "limits", doc_limits, "look at dmesg" },
    { "io_uring", doc_io_uring, "look at dmesg" },
    { "memory", doc_memory, "a file system may not answer: look at dmesg and mount" },
    { "gpu", doc_gpu,
        "the driver does not answer: look at dmesg for NVRM and Xid, "
        "then start the machine again" },
    { "fdd", doc_fdd, "a file system may not answer: look at dmesg and mount" },
};
#define N_GROUPS (sizeof(groups) / sizeof(groups[0]))

const char *
doc_group_name(size_t i)
{
    return i < N_GROUPS ? groups[i].name : NULL;
}

/* ---- report ------------------------------------------------------------------ */

static const char *const state_names[DOC__N] = { "ok", "info", "warning", "error" };

void
doc_add(struct doc *d, enum doc_state st, const char *name, const char *fmt, ...)
{
    char text[4096], *fix;
    va_list ap;
    json_t *o;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* A name in the text that has the character FIX must not begin the repair. */
    fix = strchr(text, FIX[0]);
    if (strchr(fmt, FIX[0]) == NULL || strrchr(text, FIX[0]) != fix)
        for (; fix != NULL; fix = strchr(fix, FIX[0]))
            *fix = '?';
    if (fix != NULL)
        *fix++ = '\0';
    if (fix == NULL || st == DOC_OK)
        fix = text + strlen(text);
    o = json_pack("{s:s, s:s+, s:s, s:o, s:o}", "group", d->group, "name",
        d->of != NULL ? d->of : "", name, "state", state_names[st], "value",
        fct_json_text(text, strlen(text)), "fix", fct_json_text(fix, strlen(fix)));
    d->last = json_array_append_new(d->checks, o) == 0 ? o : NULL;
}

void
doc_data(struct doc *d, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    json_object_set_new(d->last, "data", json_vpack_ex(NULL, 0, fmt, ap));
    va_end(ap);
}

void
doc_unknown(struct doc *d, const char *name, const char *path)
{
    doc_add(d, DOC_NOTE, name,
        "unknown: %s says nothing" FIX
        "if this is a container, run fdctl doctor %s on its host",
        path, d->group);
}

static enum doc_state
state_of(const json_t *check)
{
    for (int i = 0; i < DOC__N; i++)
        if (strcmp(fct_str(check, "state"), state_names[i]) == 0)
            return (enum doc_state)i;
    return DOC_FAIL;
}

enum doc_state
doc_worst(const json_t *checks)
{
    enum doc_state worst = DOC_OK;
    const json_t *c;
    size_t i;

    json_array_foreach(checks, i, c)
        worst = state_of(c) > worst ? state_of(c) : worst;
    return worst;
}

/* Print a text of several lines, each further one indented. */
static void
print_lines(FILE *out, const char *text, int indent)
{
    for (; *text != '\0'; text++) {
        fputc(*text, out);
        if (*text == '\n')
            fprintf(out, "%*s", indent, "");
    }
    fputc('\n', out);
}

void
doc_print(FILE *out, const json_t *checks, int quiet)
{
    const char *group = "";
    size_t n[DOC__N] = { 0 }, i;
    const json_t *c;

    json_array_foreach(checks, i, c) {
        enum doc_state st = state_of(c);

        n[st]++;
        if (quiet && st == DOC_OK)
            continue;
        if (strcmp(group, fct_str(c, "group")) != 0) {
            group = fct_str(c, "group");
            fprintf(out, "%s\n", group);
        }
        fprintf(out, "  %-7s %-18s ", state_names[st], fct_str(c, "name"));
        print_lines(out, fct_str(c, "value"), 29);
        if (fct_str(c, "fix")[0] != '\0') {
            fprintf(out, "%29sfix: ", "");
            print_lines(out, fct_str(c, "fix"), 34);
        }
    }
    if (!quiet)
        fprintf(out, "\n%zu ok, %zu info, %zu warnings, %zu errors\n", n[DOC_OK],
            n[DOC_NOTE], n[DOC_WARN], n[DOC_FAIL]);
}

/* ---- reading ------------------------------------------------------------------- */

const char *
doc_below(const struct doc *d, const char *path, char ret[PATH_MAX + 1])
{
    snprintf(ret, PATH_MAX + 1, "%s%s", d->root, path);
    return ret;
}

ssize_t
doc_read(const struct doc *d, const char *path, char *ret, size_t ret_bytes)
{
    return dir_read(DOC_BELOW(d, path), 0, ret, ret_bytes);
}

int
doc_u64(const char *text, uint64_t *ret)
{
    uint64_t v;
    char *end;

    if (!isdigit((unsigned char)*text))
        return -ERANGE;
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno != 0 ||
        (strncmp(end + strspn(end, " \t"), "kB", 2) == 0 &&
            __builtin_mul_overflow(v, 1024, &v)))
        return -ERANGE;
    *ret = v;
    return 0;
}

int
doc_value(const struct doc *d, const char *path, const char *key, char *ret,
    size_t ret_bytes)
{
    char text[8192];
    ssize_t n = doc_read(d, path, text, sizeof(text));

    if (key != NULL)
        return txt_field(text, key, ret, ret_bytes);
    snprintf(ret, ret_bytes, "%.*s", (int)strcspn(text, "\n"), text);
    return n < 0 ? (int)n : ret[0] != '\0' ? 0 : -ENODATA;
}

int
doc_number(const struct doc *d, const char *path, const char *key, uint64_t *ret)
{
    char value[64];
    int rc = doc_value(d, path, key, value, sizeof(value));

    return rc != 0 ? rc : doc_u64(value, ret);
}

unsigned
doc_count_list(const char *list)
{
    unsigned long a, b, n = 0;
    int rc;

    while ((rc = txt_range(&list, &a, &b)) == 1 && b <= 1u << 20)
        n += b - a + 1;
    return rc == 0 ? (unsigned)n : 0;
}

const char *
doc_proc(const struct doc *d, const char *file, char ret[64])
{
    char c[2];

    snprintf(ret, 64, "/proc/%ld/limits", (long)d->daemon_pid);
    if (d->daemon_pid > 0 && doc_read(d, ret, c, sizeof(c)) > 0)
        snprintf(ret, 64, "/proc/%ld%s", (long)d->daemon_pid, file);
    else
        snprintf(ret, 64, "/proc/self%s", file);
    return ret;
}

void
doc_cgroup(const struct doc *d, struct cgr *ret)
{
    cgr_read_of(d->root, doc_proc(d, "", (char[64]){ 0 }), ret);
}

/* Reads only status: other files may wait for a lock of the process. */
void
doc_process(const struct doc *d, long pid, struct doc_process *ret)
{
    char path[64], text[4096], value[64];

    *ret = (struct doc_process){ .pid = pid, .uid = -1, .bytes = UINT64_MAX };
    snprintf(path, sizeof(path), "/proc/%ld/status", pid);
    if (doc_read(d, path, text, sizeof(text)) <= 0)
        return;
    (void)txt_field(text, "Name", ret->name, sizeof(ret->name));
    if (txt_field(text, "VmRSS", value, sizeof(value)) == 0)
        (void)doc_u64(value, &ret->bytes);
    if (txt_field(text, "Uid", value, sizeof(value)) == 0)
        ret->uid = strtol(value, NULL, 10);
}

void
doc_list(const struct doc_process *p, json_t *list, char *text, size_t bytes)
{
    const char *name = p->name[0] != '\0' ? p->name : "not of this namespace";
    const char *user = p->uid >= 0 ? DOC_USER((uid_t)p->uid) : "unknown";
    int known = p->bytes != UINT64_MAX;

    (void)txt_add(text, bytes, "%s%10s  %s (pid %ld, %s)", text[0] != '\0' ? "\n" : "",
        known ? DOC_BYTES(p->bytes) : "unknown", name, p->pid, user);
    json_array_append_new(list,
        json_pack("{s:I,s:o?,s:s,s:o}", "pid", (json_int_t)p->pid, "bytes",
            known ? json_integer((json_int_t)p->bytes) : NULL, "user", user, "command",
            fct_json_text(name, strlen(name))));
}

/* ---- groups, each in a process of its own -------------------------------------- */

void
doc_run(struct doc *d, size_t group)
{
    d->group = groups[group].name;
    groups[group].run(d);
}

/* Run a group in a child, which sends all its checks at once, or none within GROUP_S. */
static void
run_apart(struct doc *d, size_t group)
{
    json_t *checks = NULL;
    struct doc_nvml nvml;
    struct pollfd said;
    int p[2], status = 0, is_late = 0;
    pid_t pid = -1;

    d->group = groups[group].name;
    if (pipe2(p, O_CLOEXEC) == 0) {
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            if (groups[group].run == doc_gpu && doc_nvml_load(&nvml) == 0)
                d->nvml = &nvml;
            d->checks = json_array();
            doc_run(d, group);
            (void)json_dumpfd(d->checks, p[1], JSON_COMPACT);
            _exit(0);
        }
        close(p[1]);
        said = (struct pollfd){ .fd = p[0], .events = POLLIN };
        is_late = pid > 0 && poll(&said, 1, GROUP_S * 1000) == 0;
        if (pid > 0 && !is_late)
            checks = json_loadfd(p[0], 0, NULL);
        close(p[0]);
    }
    if (pid < 0) {
        doc_add(d, DOC_FAIL, "check",
            "could not be made: %s" FIX "raise the limit of processes: ulimit -u",
            strerror(errno));
        return;
    }
    /* Do not wait for a child that hangs in the kernel. */
    if (is_late)
        kill(pid, SIGKILL);
    (void)waitpid(pid, &status, is_late ? WNOHANG : 0);
    if (is_late)
        doc_add(d, DOC_FAIL, "check", "no answer within %d s" FIX "%s", GROUP_S,
            groups[group].hang);
    else if (!json_is_array(checks))
        doc_add(d, DOC_FAIL, "check", "ended by %s %d" FIX "%s",
            WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
            groups[group].hang);
    else
        json_array_extend(d->checks, checks);
    json_decref(checks);
}

/* ---- command ------------------------------------------------------------------- */

struct want {
    int json, quiet, any, groups[N_GROUPS];
    const char *model, *config;
};

static int
want_group(void *args, const char *name)
{
    struct want *w = args;
    char known[128] = "";

    for (size_t i = 0; i < N_GROUPS; i++) {
        if (strcmp(groups[i].name, name) == 0) {
            w->groups[i] = w->any = 1;
            return 0;
        }
        (void)txt_add(known, sizeof(known), "%s%s", i > 0 ? " " : "", groups[i].name);
    }
    return fct_usage("doctor: unknown group '%s'; known: %s", name, known);
}

#define FCT_ARGS struct want
static const struct fct_opt opts[] = { FCT_FLAG(0, "json", json, "the report as JSON"),
    FCT_FLAG('q', "quiet", quiet, "only what is not well"),
    FCT_TEXT(0, "model", "DIR", model, "model directory (else the daemon's)"),
    FCT_TEXT('c', "config", "FILE", config,
        "configuration (else the daemon's, else " CONFIG_FILE ")"),
    FCT_OPT_HELP, FCT_OPT_END };

static void
list_groups(void)
{
    for (size_t i = 0; i < N_GROUPS; i++)
        printf("  %s\n", groups[i].name);
    putchar('\n');
}

static const struct fct_line line =
    FCT_LINE("fdctl doctor [group ...] [-q] [--model DIR] [-c FILE] [--json]",
        "What this machine has and lacks, and what repairs it. Needs no daemon. Groups:",
        opts, .operand = want_group, .above = list_groups);

/* Get the daemon's status and, into ps, its parameters; NULL: not these. Returns the
 * number of parameters. */
static size_t
ask_daemon(struct doc *d, struct par_set *ps)
{
    struct fct g = *d->f;
    json_t *status = NULL, *config = NULL, *row;
    char err[512];
    size_t i;

    if (g.timeout_ms < 0 || g.timeout_ms > ASK_MS)
        g.timeout_ms = ASK_MS;
    if (fct_ask_once(&g, fct_question("status"), 1, &status) == 0 && ps != NULL)
        (void)fct_ask_once(&g, fct_question("config"), 1, &config);
    d->status = status;
    /* Ignore a parameter that this fdctl does not know. */
    json_array_foreach(json_object_get(config, "config"), i, row)
        (void)par_set_text(ps, fct_str(row, "name"), fct_str(row, "value"),
            PAR_FROM_RUNTIME, err, sizeof(err));
    json_decref(config);
    return i;
}

/* Resolve a relative model path from the daemon's working directory. If that cannot be
 * read, the check of the model reports it. */
static void
resolve_model(const struct doc *d, struct par_set *ps)
{
    const char *path = d->par->model_path;
    char link[64], dir[PATH_MAX], full[2 * PATH_MAX], err[512];
    ssize_t n;

    if (path[0] == '\0' || path[0] == '/' || strcmp(path, "null") == 0)
        return;
    snprintf(link, sizeof(link), "/proc/%ld/cwd", (long)d->daemon_pid);
    n = readlink(link, dir, sizeof(dir));
    if (n <= 0)
        return;
    snprintf(full, sizeof(full), "%.*s/%s", n > 1 ? (int)n : 0, dir, path);
    (void)par_set_text(ps, "model.path", full, PAR_FROM_RUNTIME, err, sizeof(err));
}

/* Fill in the members of d about the daemon. Returns 0 or an exit code. */
static int
learn(struct doc *d, const struct want *w, struct par_set *ps)
{
    char err[512];
    struct par_say say = { .text = NULL };
    struct par_src src;
    const char *text = NULL;
    size_t n_par = 0;
    int is_error = 0, rc;

    d->par = par_get(ps);
    d->daemon_pid = fct_daemon_pid(d->f);
    d->par_from = "the defaults";
    /* Do not connect if the pid file shows no daemon: a connection could start one. */
    if (d->daemon_pid != 0)
        n_par = ask_daemon(d, w->config == NULL ? ps : NULL);
    if (d->daemon_pid < 0)
        d->daemon_pid = (pid_t)fct_num(d->status, "pid");
    if (n_par > 0) {
        d->par_from = "the daemon";
        resolve_model(d, ps);
    } else {
        par_src_init(&src, w->config, d->f->instance[0] != '\0' ? d->f->instance : NULL);
        rc = par_load(ps, &src, &say);
        while ((text = par_say_next(&say, text, &is_error)) != NULL && !is_error)
            ;
        if (rc < 0 && w->config != NULL)
            rc = fct_fail(rc == -EINVAL ? EX_DATAERR : EX_NOINPUT, "%s",
                text != NULL ? text : strerror(-rc));
        par_say_clear(&say);
        if (rc > 0)
            return rc;
        if (par_n_files(ps) > 0)
            d->par_from = par_file(ps, 0);
    }
    if (w->model != NULL &&
        par_set_text(ps, "model.path", w->model, PAR_FROM_SET, err, sizeof(err)) < 0)
        return fct_usage("--model: %s", err);
    return 0;
}

static int
report(struct doc *d, const struct want *w)
{
    enum doc_state worst = doc_worst(d->checks);
    int rc;

    if (w->json) {
        for (size_t i = json_array_size(d->checks); w->quiet && i-- > 0;)
            if (state_of(json_array_get(d->checks, i)) == DOC_OK)
                json_array_remove(d->checks, i);
        rc = fct_print_json(
            json_pack("{s:s,s:O}", "worst", state_names[worst], "checks", d->checks));
    } else {
        doc_print(stdout, d->checks, w->quiet);
        rc = fct_flush();
    }
    return rc != 0 ? rc : worst >= DOC_WARN;
}

int
fct_cmd_doctor(const struct fct *f, int argc, char **argv)
{
    struct doc d = { .root = "", .tries = &doc_real_tries, .f = f, .uid = geteuid() };
    struct want w = { 0 };
    struct par_set *ps;
    struct utsname un;
    int rc = fct_parse(&line, argc, argv, &w);

    if (rc != FCT_GO)
        return rc;
    ps = par_new();
    d.checks = json_array();
    d.kernel = un.release;
    d.machine = un.machine;
    rc = ps == NULL || d.checks == NULL || uname(&un) != 0 ? fct_oom() : learn(&d, &w, ps);
    for (size_t i = 0; rc == 0 && i < N_GROUPS; i++)
        if (!w.any || w.groups[i])
            run_apart(&d, i);
    if (rc == 0)
        rc = report(&d, &w);
    json_decref((json_t *)(uintptr_t)d.status);
    json_decref(d.checks);
    par_free(ps);
    return rc;
}
