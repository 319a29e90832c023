/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "tools/fdctl/commands.h"

/* A group that takes longer hangs in the kernel or in a driver. */
#define GROUP_MS 30000
/* Of the daemon: doctor is for daemons that do not answer, too. */
#define ASK_MS      3000
#define CONFIG_FILE FDD_SYSCONFDIR "/fdd/fdd.ini"

static const struct group {
    const char *name;
    void (*run)(struct doc *d);
    const char *hang; /* what to do when it does not come back */
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

const char *
doc_state_name(enum doc_state st)
{
    return st < DOC__N ? state_names[st] : "unknown";
}

static size_t
n_marks(const char *text)
{
    size_t n = 0;

    while ((text = strchr(text, FIX[0])) != NULL)
        text++, n++;
    return n;
}

void
doc_add(struct doc *d, enum doc_state st, const char *name, const char *fmt, ...)
{
    char text[4096], *fix = NULL;
    va_list ap;
    json_t *o;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* A name in the text that holds the mark must not look like a fix. */
    if (n_marks(text) != n_marks(fmt))
        for (char *p = text; (p = strchr(p, FIX[0])) != NULL;)
            *p = '?';
    fix = strchr(text, FIX[0]);
    if (fix != NULL)
        *fix++ = '\0';
    if (fix == NULL)
        fix = text + strlen(text);
    o = json_pack("{s:s, s:s, s:s, s:o, s:o}", "group", d->group, "name", name, "state",
        doc_state_name(st), "value", fct_json_text(text, strlen(text)), "fix",
        fct_json_text(fix, st == DOC_OK ? 0 : strlen(fix)));
    d->last = json_array_append_new(d->checks, o) == 0 ? o : NULL;
}

void
doc_data(struct doc *d, const char *key, json_t *value)
{
    json_t *data = json_object_get(d->last, "data");

    if (data == NULL && d->last != NULL) {
        data = json_object();
        json_object_set_new(d->last, "data", data);
    }
    json_object_set_new(data, key, value);
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

    for (size_t i = 0; i < json_array_size(checks); i++)
        if (state_of(json_array_get(checks, i)) > worst)
            worst = state_of(json_array_get(checks, i));
    return worst;
}

/* A text of several lines, the further ones under the first. */
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
    size_t n[DOC__N] = { 0 };

    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *c = json_array_get(checks, i);
        enum doc_state st = state_of(c);

        n[st]++;
        if (quiet && st == DOC_OK)
            continue;
        if (strcmp(group, fct_str(c, "group")) != 0) {
            group = fct_str(c, "group");
            fprintf(out, "%s\n", group);
        }
        fprintf(out, "  %-7s %-18s ", doc_state_name(st), fct_str(c, "name"));
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

ssize_t
doc_read(const struct doc *d, const char *path, char *ret, size_t ret_bytes)
{
    char full[1024];
    struct stat st;
    size_t n = 0;
    ssize_t k = 0;
    int fd, e;

    ret[0] = '\0';
    if ((size_t)snprintf(full, sizeof(full), "%s%s", d->root, path) >= sizeof(full))
        return -ENAMETOOLONG;
    fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EINVAL;
    }
    while (n + 1 < ret_bytes) {
        k = read(fd, ret + n, ret_bytes - 1 - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        n += (size_t)k;
    }
    e = errno;
    close(fd);
    ret[n] = '\0';
    return k < 0 && n == 0 ? -e : (ssize_t)n;
}

int
doc_read_line(const struct doc *d, const char *path, char *ret, size_t ret_bytes)
{
    ssize_t n = doc_read(d, path, ret, ret_bytes);

    if (n < 0)
        return (int)n;
    ret[strcspn(ret, "\n")] = '\0';
    return ret[0] != '\0' ? 0 : -ENODATA;
}

static int
parse_u64(const char *text, uint64_t *ret)
{
    unsigned long long v;
    char *end;

    if (*text < '0' || *text > '9')
        return -ERANGE;
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno != 0)
        return -ERANGE;
    while (*end == ' ' || *end == '\t')
        end++;
    if (strncmp(end, "kB", 2) == 0) {
        if (v > UINT64_MAX / 1024)
            return -ERANGE;
        v *= 1024;
    }
    *ret = v;
    return 0;
}

int
doc_read_u64(const struct doc *d, const char *path, uint64_t *ret)
{
    char line[64];
    int rc = doc_read_line(d, path, line, sizeof(line));

    return rc != 0 ? rc : parse_u64(line, ret);
}

int
doc_field(const char *text, const char *key, char *ret, size_t ret_bytes)
{
    size_t n = strlen(key), len;
    const char *end;

    for (; *text != '\0'; text = end + 1) {
        end = text + strcspn(text, "\n");
        if (strncmp(text, key, n) != 0 || strchr(" \t:=", text[n]) == NULL) {
            if (*end == '\0')
                break;
            continue;
        }
        text += n;
        text += strspn(text, " \t:=");
        len = strcspn(text, "\n");
        while (len > 0 && strchr(" \t\r\"", text[len - 1]) != NULL)
            len--;
        if (len > 0 && *text == '"') {
            text++;
            len--;
        }
        snprintf(ret, ret_bytes, "%.*s", (int)(len < 65536 ? len : 65536), text);
        return 0;
    }
    return -ENOENT;
}

int
doc_field_u64(const char *text, const char *key, uint64_t *ret)
{
    char value[64];
    int rc = doc_field(text, key, value, sizeof(value));

    return rc != 0 ? rc : parse_u64(value, ret);
}

unsigned
doc_count_list(const char *list)
{
    unsigned n = 0;

    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long a = strtoul(list, &end, 10), b = a;

        if (*end == '-')
            b = strtoul(end + 1, &end, 10);
        if (b < a || b > 1u << 20)
            return 0;
        n += (unsigned)(b - a) + 1;
        list = *end == ',' ? end + 1 : end;
    }
    return *list == '\0' || *list == '\n' ? n : 0;
}

const char *
doc_proc(const struct doc *d, char *ret, size_t ret_bytes)
{
    char path[64], line[128];

    snprintf(path, sizeof(path), "/proc/%ld/limits", (long)d->daemon_pid);
    if (d->daemon_pid > 0 && doc_read(d, path, line, sizeof(line)) > 0)
        snprintf(ret, ret_bytes, "/proc/%ld", (long)d->daemon_pid);
    else
        snprintf(ret, ret_bytes, "/proc/self");
    return ret;
}

void
doc_cgroup(const struct doc *d, struct cgr *ret)
{
    char proc[64];

    cgr_read_of(d->root, doc_proc(d, proc, sizeof(proc)), ret);
}

const char *
doc_user(uid_t uid, char *ret, size_t ret_bytes)
{
    const struct passwd *pw = getpwuid(uid);

    if (pw != NULL)
        snprintf(ret, ret_bytes, "%s", pw->pw_name);
    else
        snprintf(ret, ret_bytes, "%lu", (unsigned long)uid);
    return ret;
}

/* Other files than status wait for a lock of the process. */
void
doc_process(const struct doc *d, long pid, struct doc_process *ret)
{
    char path[64], text[4096], uid[64];

    *ret = (struct doc_process){ .pid = pid, .uid = -1, .bytes = UINT64_MAX };
    snprintf(path, sizeof(path), "/proc/%ld/status", pid);
    if (doc_read(d, path, text, sizeof(text)) <= 0)
        return;
    (void)doc_field(text, "Name", ret->name, sizeof(ret->name));
    (void)doc_field_u64(text, "VmRSS", &ret->bytes);
    if (doc_field(text, "Uid", uid, sizeof(uid)) == 0)
        ret->uid = strtol(uid, NULL, 10);
}

void
doc_list(const struct doc_process *p, json_t *list, char *text, size_t bytes)
{
    const char *name = p->name[0] != '\0' ? p->name : "not of this namespace";
    char user[64] = "unknown", size[32] = "unknown";
    int known = p->bytes != UINT64_MAX;
    size_t at = strlen(text);

    if (p->uid >= 0)
        (void)doc_user((uid_t)p->uid, user, sizeof(user));
    if (known)
        (void)fct_bytes((double)p->bytes, size);
    if (at + 256 < bytes)
        snprintf(text + at, bytes - at, "%s%10s  %s (pid %ld, %s)", at > 0 ? "\n" : "",
            size, name, p->pid, user);
    json_array_append_new(list,
        json_pack("{s:I,s:o,s:s,s:o}", "pid", (json_int_t)p->pid, "bytes",
            known ? json_integer((json_int_t)p->bytes) : json_null(), "user", user,
            "command", fct_json_text(name, strlen(name))));
}

/* ---- groups, each in a process of its own -------------------------------------- */

void
doc_run(struct doc *d, size_t group)
{
    d->group = groups[group].name;
    groups[group].run(d);
}

struct answer {
    int fd, is_late;
    uint64_t t_end;
};

/* What comes until t_end, for json_load_callback(). */
static size_t
collect(void *ret, size_t bytes, void *arg)
{
    struct answer *a = arg;
    struct pollfd pfd = { .fd = a->fd, .events = POLLIN };
    uint64_t now = clk_now_ns();
    ssize_t k;

    a->is_late =
        now >= a->t_end || poll(&pfd, 1, (int)((a->t_end - now) / 1000000) + 1) == 0;
    do
        k = a->is_late ? 0 : read(a->fd, ret, bytes);
    while (k < 0 && errno == EINTR);
    return k > 0 ? (size_t)k : 0;
}

static void
run_apart(struct doc *d, size_t group)
{
    struct answer a = { .t_end = clk_now_ns() + GROUP_MS * UINT64_C(1000000) };
    json_t *checks = NULL;
    struct doc_nvml nvml;
    int p[2], status = 0;
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
        a.fd = p[0];
        if (pid > 0)
            checks = json_load_callback(collect, &a, 0, NULL);
        close(p[0]);
    }
    if (pid < 0) {
        doc_add(d, DOC_FAIL, "check",
            "could not be made: %s" FIX "raise the limit of processes: ulimit -u",
            strerror(errno));
        return;
    }
    if (a.is_late) {
        /* One that hangs in the kernel is not waited for. */
        kill(pid, SIGKILL);
        doc_add(d, DOC_FAIL, "check", "no answer within %d s" FIX "%s", GROUP_MS / 1000,
            groups[group].hang);
        (void)waitpid(pid, &status, WNOHANG);
        return;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!json_is_array(checks))
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
    size_t at = 0;

    for (size_t i = 0; i < N_GROUPS; i++) {
        if (strcmp(groups[i].name, name) == 0) {
            w->groups[i] = w->any = 1;
            return 0;
        }
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", i > 0 ? " " : "",
            groups[i].name);
    }
    return fct_usage("doctor: unknown group '%s'; known: %s", name, known);
}

#define A struct want
static const struct fct_opt opts[] = { FCT_OPT_JSON(A, "the report as JSON"),
    { "quiet", 'q', NULL, "only what is not well", FCT_FLAG(A, quiet) },
    { "model", 0, "DIR", "model directory (else the daemon's)", FCT_TEXT(A, model) },
    { "config", 'c', "FILE", "configuration (else the daemon's, else " CONFIG_FILE ")",
        FCT_TEXT(A, config) },
    FCT_OPT_HELP, FCT_OPT_END };

static void
list_groups(void)
{
    for (size_t i = 0; i < N_GROUPS; i++)
        printf("  %s\n", groups[i].name);
    putchar('\n');
}

static const struct fct_line line = {
    .usage = "fdctl doctor [group ...] [-q] [--model DIR] [-c FILE] [--json]",
    .about =
        "What this machine has and lacks, and what repairs it. Needs no daemon. Groups:",
    .opts = { opts },
    .operand = want_group,
    .above = list_groups
};

/* The daemon's status, and its parameters into ps; NULL: it does not answer. */
static json_t *
ask_daemon(const struct fct *f, struct par_set *ps, int *ret_has_par)
{
    struct fct g = *f;
    struct fct_admin *a;
    json_t *status = NULL, *config = NULL;
    const json_t *rows;
    char err[512];

    if (g.timeout_ms < 0 || g.timeout_ms > ASK_MS)
        g.timeout_ms = ASK_MS;
    if (fct_admin_open(&g, 1, &a) != 0)
        return NULL;
    if (fct_ask(a, json_pack("{s:s}", "cmd", "status"), 1, &status) == 0)
        (void)fct_ask(a, json_pack("{s:s}", "cmd", "config"), 1, &config);
    fct_admin_close(a);
    rows = json_object_get(config, "config");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *name = fct_str(json_array_get(rows, i), "name");

        /* One this fdctl does not know keeps its default. */
        (void)par_set_text(ps, name, fct_str(json_array_get(rows, i), "value"),
            PAR_FROM_RUNTIME, err, sizeof(err));
    }
    *ret_has_par = json_array_size(rows) > 0;
    json_decref(config);
    return status;
}

/* A relative path is the daemon's. Who may not see its folder is told so where
 * the model is looked at. */
static void
resolve_model(const struct doc *d, struct par_set *ps)
{
    const char *path = d->par->model_path;
    char link[64], dir[2048], full[4200], err[512];
    ssize_t n;

    if (path[0] == '\0' || path[0] == '/' || strcmp(path, "null") == 0)
        return;
    snprintf(link, sizeof(link), "/proc/%ld/cwd", (long)d->daemon_pid);
    n = readlink(link, dir, sizeof(dir) - 1);
    if (n <= 0)
        return;
    dir[n] = '\0';
    if ((size_t)snprintf(full, sizeof(full), "%s/%s", strcmp(dir, "/") == 0 ? "" : dir,
            path) < sizeof(full))
        (void)par_set_text(ps, "model.path", full, PAR_FROM_RUNTIME, err, sizeof(err));
}

/* Fills d's view of the daemon; 0 or an exit code with the message printed. */
static int
learn(struct doc *d, const struct want *w, struct par_set *ps, json_t **ret_status)
{
    char err[1024] = "";
    struct par_say say = { .text = NULL };
    struct par_src src;
    const char *text = NULL;
    int has_par = 0, is_error = 0, rc;

    d->daemon_pid = fct_daemon_pid(d->f);
    d->par_from = "the defaults";
    /* A daemon that has left its lock behind is not started by a connection. */
    if (d->daemon_pid != 0)
        *ret_status = ask_daemon(d->f, ps, &has_par);
    if (d->daemon_pid < 0)
        d->daemon_pid = (pid_t)json_integer_value(json_object_get(*ret_status, "pid"));
    d->status = *ret_status;
    if (has_par && w->config == NULL) {
        d->par_from = "the daemon";
        resolve_model(d, ps);
    } else {
        par_src_init(&src, w->config, d->f->instance[0] != '\0' ? d->f->instance : NULL);
        rc = par_load(ps, &src, &say);
        do
            text = par_say_next(&say, text, &is_error);
        while (text != NULL && !is_error);
        (void)snprintf(err, sizeof(err), "%s", text != NULL ? text : "");
        par_say_clear(&say);
        if (rc < 0 && w->config != NULL)
            return fct_data("%s", err[0] != '\0' ? err : strerror(-rc));
        if (par_n_files(ps) > 0)
            d->par_from = par_file(ps, 0);
    }
    rc = w->model != NULL
        ? par_set_text(ps, "model.path", w->model, PAR_FROM_SET, err, sizeof(err))
        : 0;
    return rc < 0 ? fct_usage("--model: %s", err) : 0;
}

static int
report(struct doc *d, const struct want *w)
{
    enum doc_state worst = doc_worst(d->checks);
    int rc = 0;

    if (w->json) {
        json_t *shown = json_array();

        for (size_t i = 0; i < json_array_size(d->checks); i++)
            if (!w->quiet || state_of(json_array_get(d->checks, i)) != DOC_OK)
                json_array_append(shown, json_array_get(d->checks, i));
        rc = fct_print_json(
            json_pack("{s:s,s:o}", "worst", doc_state_name(worst), "checks", shown));
    } else {
        doc_print(stdout, d->checks, w->quiet);
        rc = fct_flush();
    }
    return rc != 0 ? rc : worst >= DOC_WARN ? 1 : 0;
}

int
fct_cmd_doctor(const struct fct *f, int argc, char **argv)
{
    struct doc d = { .root = "", .tries = &doc_real_tries, .f = f, .uid = geteuid() };
    struct want w = { 0 };
    struct par_set *ps;
    struct utsname un;
    json_t *status = NULL;
    int rc = fct_parse(&line, argc, argv, &w);

    if (rc != FCT_GO)
        return rc;
    ps = par_new();
    d.checks = json_array();
    if (ps == NULL || d.checks == NULL || uname(&un) != 0) {
        rc = fct_oom();
        goto done;
    }
    d.kernel = un.release;
    d.machine = un.machine;
    d.par = par_get(ps);
    rc = learn(&d, &w, ps, &status);
    if (rc != 0)
        goto done;
    for (size_t i = 0; i < N_GROUPS; i++)
        if (!w.any || w.groups[i])
            run_apart(&d, i);
    rc = report(&d, &w);
done:
    json_decref(status);
    json_decref(d.checks);
    par_free(ps);
    return rc;
}
