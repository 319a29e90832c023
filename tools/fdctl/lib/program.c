/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/prctl.h>

#include "daemon/common/log.h"
#include "daemon/common/version.h"
#include "libclient/fdproto.h"

#define TIMEOUT_S 30

struct main_args {
    const char *socket, *admin, *dir, *instance;
    double timeout_s;
    const struct fct_cmd *cmds;
    struct fct f;
};

static int
version(void *args, const char *value)
{
    (void)args, (void)value;
    printf("%s %s, protocol %d.%d\n", fct_prog, ver_text(), FDP_MAJOR, FDP_MINOR);
    return 0;
}

static int help(void *args, const char *value);

#define FCT_ARGS struct main_args
static const struct fct_opt main_opts[] = {
    FCT_TEXT(0, "runtime-dir", "DIR", dir, "the daemon's runtime folder ($FDD_RUNTIME_DIR)"),
    FCT_TEXT(0, "instance", "NAME", instance,
        "the instance of that name ($FDD_INSTANCE); ls lists them"),
    FCT_TEXT(0, "socket", "PATH", socket, "its client socket ($FDD_SOCKET)"),
    FCT_TEXT(0, "admin", "PATH", admin, "its admin socket"),
    FCT_REAL(0, "timeout", "S", timeout_s, 0, 86400,
        "wait this many seconds for an answer (30; 0: for ever)", .range = "0 to 86400",
        FCT_HAS(f.timeout_given)),
    FCT_REAL(0, "wait", "S", f.wait_s, 0, 864000,
        "first wait until the daemon is ready, at most S seconds", .range = "0 to 864000"),
    FCT_ROW("help", 'h', NULL, "this text", .fn = help),
    FCT_ROW("version", 'V', NULL, "version", .fn = version), FCT_OPT_END
};

static int
help(void *args, const char *value)
{
    const struct fct_cmd *cmds = ((struct main_args *)args)->cmds;

    (void)value;
    printf("usage: %s [options] command [arguments]\n\ncommands:\n", fct_prog);
    for (size_t i = 0; cmds[i].name != NULL; i++)
        printf("  %-12s %s\n", cmds[i].name, cmds[i].help);
    printf("  help         this text, or that of a command\n"
           "  version      version of %s and of the protocol\n\noptions:\n",
        fct_prog);
    fct_help_opts(main_opts);
    printf("\n%s COMMAND --help shows a command's options; %s(1) says it all.\n",
        fct_prog, fct_prog);
    return 0;
}

int
fct_finish(const struct fct_line *l, json_t *answer, const void *args, int json)
{
    int code = l->code != NULL ? l->code(answer, args) : 0, rc;

    json_object_del(answer, "ok");
    if (json) {
        rc = fct_print_json(answer);
        return rc != 0 ? rc : code;
    }
    if (l->show != NULL)
        l->show(answer, args);
    else if (l->text != NULL)
        fct_text(stdout, l->text, answer);
    else
        fct_show(stdout, l->list != NULL ? json_object_get(answer, l->list) : answer, 0);
    json_decref(answer);
    return code;
}

/* Run a command that sends one admin request. */
static int
ask(struct fct f, const struct fct_line *l, int argc, char **argv)
{
    struct fct_plain *a = calloc(1, l->args_bytes + sizeof(*a));
    json_t *answer = NULL;
    int rc;

    if (a == NULL)
        return fct_oom();
    a->ask = fct_question(l->command);
    rc = fct_parse(l, argc, argv, a);
    if (rc == FCT_GO && l->before != NULL)
        rc = l->before(&f, a);
    if (rc == FCT_GO)
        rc = fct_ask_once(&f, json_incref(a->ask), 0, &answer);
    if (answer != NULL && l->prepare != NULL)
        l->prepare(answer);
    if (answer != NULL)
        rc = fct_finish(l, answer, a, a->json);
    json_decref(a->ask);
    free(a);
    return rc;
}

static int
run(struct main_args *a, int argc, char **argv)
{
    char *asked[] = { argc > 1 ? argv[1] : NULL, (char *)(uintptr_t) "--help", NULL };
    struct fct_near near = { .name = "help", .best = 3 };
    const struct fct_cmd *cmd;
    struct fct *f = &a->f;
    int rc;

    if (strcmp(argv[0], "version") == 0)
        return version(a, NULL);
    if (strcmp(argv[0], "help") == 0) {
        if (argc == 1 || strcmp(argv[1], "help") == 0)
            return help(a, NULL);
        argv = asked;
        argc = 2;
    }
    near.like = argv[0];
    for (cmd = a->cmds; cmd->name != NULL && strcmp(cmd->name, argv[0]) != 0; cmd++)
        fct_near(&near, cmd->name);
    if (cmd->name == NULL)
        return fct_usage(near.best < 3 ? "unknown command '%s'; did you mean %s %s?"
                                       : "unknown command '%s'; see %s %s",
            argv[0], fct_prog, near.name);
    /* Do not wait before help, or if the command starts a daemon. */
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            f->wait_s = 0;
    if (f->wait_s > 0 && !cmd->starts_one && (rc = fct_wait_ready(f)) != 0)
        return rc;
    return cmd->ask != NULL ? ask(*f, cmd->ask, argc, argv) : cmd->fn(f, argc, argv);
}

int
fct_main(const char *prog, const struct fct_cmd *cmds, int argc, char **argv)
{
    static const struct fct_line line = { .opts = { main_opts }, .is_main = 1 };
    struct main_args a = { .timeout_s = TIMEOUT_S, .cmds = cmds };
    int rc;

    log_fill_std();
    fct_prog = prog;
    rc = fct_parse(&line, argc, argv, &a);
    if (rc != FCT_GO)
        return rc;
    a.f.timeout_ms = a.timeout_s > 0 ? (int)(a.timeout_s * 1e3) : -1;
    rc = optind < argc ? fct_paths(&a.f, a.socket, a.admin, a.dir, a.instance)
                       : fct_usage("no command; see %s help", fct_prog);
    if (rc == 0)
        rc = run(&a, argc - optind, argv + optind);
    return rc == 0 ? fct_flush() : rc;
}

int
fct_find_program(const char *name, char ret[PATH_MAX])
{
    static const char *const places[] = { "", "../sbin/", "../" };
    char exe[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    exe[n > 0 ? n : 0] = '\0';
    if (strrchr(exe, '/') != NULL)
        *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s%.40s", exe, places[i], name);
        if (access(path, X_OK) == 0 && realpath(path, ret) != NULL)
            return 0;
    }
    snprintf(ret, PATH_MAX, "%s", exe);
    return -ENOENT;
}

pid_t
fct_spawn(const char *path, const char *const *config, const char *const *set,
    size_t n_set, const char *log, const char *who)
{
    const char *argv[2 * FCT_SETS_MAX + 16] = { path, config[0], config[1] };
    size_t n = config[0] != NULL ? 3 : 1;
    pid_t parent = getpid(), pid = fork();
    int fd;

    if (pid != 0)
        return pid;
    (void)setpgid(0, 0);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    fd = log != NULL ? open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600) : 0;
    if (getppid() != parent || fd < 0 ||
        (log != NULL && (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)))
        _exit(126);
    for (size_t i = 0; i < n_set; i++) {
        argv[n++] = "--set";
        argv[n++] = set[i];
    }
    execvp(path, (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "%s%s: %s\n", who, path, strerror(errno));
    _exit(127);
}

static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *w)
{
    (void)st, (void)kind, (void)w;
    (void)remove(path);
    return 0;
}

void
fct_remove_tree(const char *dir)
{
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
