/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/panic.h"
#include "daemon/common/version.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/statseg.h"
#include "libclient/fdwhere.h"

#ifndef FDD_SYSCONFDIR
#define FDD_SYSCONFDIR "/etc"
#endif
#define MAIN_CONF_DIR FDD_SYSCONFDIR "/fdd"
#define MAIN_CONF MAIN_CONF_DIR "/fdd.ini"

static const char main_help[] =
    "usage: fdd [-c FILE] [--set section.key=value]... [option]\n"
    "The inference daemon: gate and supervisor. Runs in the foreground.\n"
    "\n"
    "  -c, --config FILE   read this file (" MAIN_CONF " if it exists)\n"
    "  -s, --set K=V       set a parameter; overrides the file; may be repeated\n"
    "  -i, --instance NAME a further daemon on this machine: reads\n"
    "                      " MAIN_CONF_DIR "/NAME.ini, lives in a folder of that\n"
    "                      name, /run/fdd/NAME ($FDD_INSTANCE)\n"
    "      --check-config  check the configuration, print nothing, exit 0 or 78\n"
    "      --foreground    what it does anyway\n"
    "      --print-ini     print a commented configuration file\n"
    "      --print-man     print the parameters as fdd.ini(5)\n"
    "  -h, --help          this text\n"
    "  -V, --version       the version\n"
    "\n"
    "example: fdd --set model.path=/models/llama --set daemon.runtime_dir=/tmp/fdd\n"
    "See fdd(8), fdd.ini(5), fdctl(1).\n";

struct args {
    const char *conf;   /* NULL: the default file, if there */
    const char *instance; /* NULL: the main one */
    int is_named;       /* by --instance */
    char conf_path[PATH_MAX];
    char **sets;
    int n_sets;
    int check;
};

enum { OPT_CHECK = 256, OPT_FOREGROUND, OPT_INI, OPT_MAN };

/* -1: go on; else the exit code. */
static int
main_args(int argc, char **argv, struct args *a)
{
    static const struct option opts[] = {
        { "config", required_argument, NULL, 'c' },
        { "set", required_argument, NULL, 's' },
        { "instance", required_argument, NULL, 'i' },
        { "check-config", no_argument, NULL, OPT_CHECK },
        { "foreground", no_argument, NULL, OPT_FOREGROUND },
        { "print-ini", no_argument, NULL, OPT_INI },
        { "print-man", no_argument, NULL, OPT_MAN },
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },
        { NULL, 0, NULL, 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "c:s:i:hV", opts, NULL)) != -1) {
        switch (c) {
        case 'c':
            a->conf = optarg;
            break;
        case 's':
            if (strchr(optarg, '=') == NULL) {
                (void)fprintf(stderr, "fdd: --set %s: no \"=\"; write --set "
                    "section.key=value\n", optarg);
                return EX_USAGE;
            }
            a->sets[a->n_sets++] = optarg;
            break;
        case 'i':
            a->instance = optarg;
            a->is_named = 1;
            break;
        case OPT_CHECK:
            a->check = 1;
            break;
        case OPT_FOREGROUND:
            break;
        case OPT_INI:
            par_print_ini(stdout);
            return 0;
        case OPT_MAN:
            par_print_man(stdout);
            return 0;
        case 'h':
            (void)fputs(main_help, stdout);
            return 0;
        case 'V':
            (void)printf("fdd %s\n", ver_text());
            return 0;
        default:
            (void)fprintf(stderr, "try: fdd --help\n");
            return EX_USAGE;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "fdd: unexpected argument \"%s\"; try: fdd --help\n",
            argv[optind]);
        return EX_USAGE;
    }
    return -1;
}

static void
main_warn(void *arg, const char *text)
{
    (void)arg;
    log_warn("config: %s", text);
}

/* Which daemon this is, and its default file. 0 or an exit code. */
static int
main_instance(struct args *a)
{
    struct fdw_env e;

    fdw_env_get(&e);
    if (a->instance == NULL)
        a->instance = e.instance;
    if (a->instance != NULL && !fdw_is_name(a->instance)) {
        (void)fprintf(stderr, "fdd: --instance %s: no instance's name: " FDW_NAME_RULE
            "\n", a->instance);
        return EX_USAGE;
    }
    (void)snprintf(a->conf_path, sizeof(a->conf_path), MAIN_CONF_DIR "/%s.ini",
        a->instance != NULL ? a->instance : "fdd");
    if (a->conf == NULL && access(a->conf_path, F_OK) == 0)
        a->conf = a->conf_path;
    return 0;
}

/* The parameters from file and command line. 0 or an exit code. */
static int
main_config(struct par_set *ps, struct args *a)
{
    char err[RTD_ERR_BYTES] = "";
    int rc = main_instance(a);

    if (rc != 0)
        return rc;
    if (a->conf != NULL)
        rc = par_read_file(ps, a->conf, main_warn, NULL, err, sizeof(err));
    for (int i = 0; rc >= 0 && i < a->n_sets; i++) {
        char name[128];
        const char *eq = strchr(a->sets[i], '=');

        (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - a->sets[i]), a->sets[i]);
        rc = par_set_text(ps, name, eq + 1, PAR_FROM_SET, err, sizeof(err));
        if (rc > 0)
            log_warn("config: %s", err);
    }
    if (rc >= 0)
        rc = par_check(ps, err, sizeof(err));
    if (rc >= 0)
        rc = gate_check_par(par_get(ps), err, sizeof(err));
    if (rc >= 0 && a->instance != NULL && a->conf == NULL &&
        par_get(ps)->model_path[0] == '\0') {
        (void)snprintf(err, sizeof(err), "instance %s has neither %s nor a model.path; "
            "write that file (fdd --print-ini shows a whole one), or name one with -c",
            a->instance, a->conf_path);
        rc = -EINVAL;
    }
    if (rc < 0) {
        log_error("config: %s", err[0] != '\0' ? err : strerror(-rc));
        return rc == -EACCES ? EX_NOPERM : EX_CONFIG;
    }
    return 0;
}

static void
main_limits(const struct par *par)
{
    struct rlimit rl;
    rlim_t need = (rlim_t)par->ipc_max_clients * 2 + 256;

    if (getrlimit(RLIMIT_NOFILE, &rl) != 0 || rl.rlim_cur >= need)
        return;
    rl.rlim_cur = rl.rlim_max < need ? rl.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &rl) != 0 || rl.rlim_cur < need)
        log_warn("gate: at most %llu descriptors, ipc.max_clients wants %llu; raise "
            "LimitNOFILE", (unsigned long long)rl.rlim_cur, (unsigned long long)need);
}

static int
main_signals(struct gate *g)
{
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -errno;
    g->sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (g->sigfd < 0)
        return -errno;
    return gate_watch(g, g->sigfd, EPOLLIN, GATE_EV_SIGNAL, NULL);
}

/* Everything before the first client. 0 or an exit code. */
static int
main_open(struct gate *g)
{
    char err[RTD_ERR_BYTES] = "";
    char name[SEG_NAME_BYTES];
    int rc;

    rtd_groups(&g->rt, g->par);
    rc = rtd_open_dir(&g->rt, g->par, err, sizeof(err));
    if (rc == 0)
        rc = rtd_open_sockets(&g->rt, g->par, err, sizeof(err));
    if (rc != 0) {
        log_error("gate: %s", err);
        return rc;
    }
    seg_name(g->rt.dir, name);
    rc = gate_open(g, name);
    if (rc != 0) {
        log_error("gate: cannot make the statistics segments /dev/shm%s*: %s", name,
            strerror(-rc));
        return EX_OSERR;
    }
    rc = main_signals(g);
    if (rc == 0)
        rc = gate_watch(g, g->rt.listen_fd, EPOLLIN, GATE_EV_LISTEN, NULL);
    if (rc == 0)
        rc = gate_watch(g, g->rt.admin_fd, EPOLLIN, GATE_EV_ADMIN, NULL);
    if (rc != 0) {
        log_error("gate: cannot watch the sockets: %s", strerror(-rc));
        return EX_OSERR;
    }
    log_info("gate: fdd %s, pid %d, clients at %s", ver_text(), (int)getpid(),
        g->rt.socket);
    rc = sup_start(g, &g->wrk[0], clk_now_ns());
    if (rc != 0) {
        log_error("supervise: %s%s%s", g->wrk[0].error,
            g->wrk[0].fix[0] != '\0' ? "; fix: " : "", g->wrk[0].fix);
        return rc == -ENOENT || rc == -EACCES ? EX_CONFIG : EX_OSERR;
    }
    return 0;
}

int
main(int argc, char **argv)
{
    struct args a = { .conf = NULL };
    struct par_set *ps;
    struct gate *g;
    char bad[64];
    int rc;

    log_init("fdd", NULL);
    pan_install(NULL, 0);
    a.sets = mem_array((size_t)argc, sizeof(char *));
    ps = par_new();
    if (a.sets == NULL || ps == NULL) {
        log_error("gate: no memory");
        return EX_OSERR;
    }
    rc = main_args(argc, argv, &a);
    if (rc < 0) {
        rc = main_config(ps, &a);
        if (rc == 0 && !a.check)
            rc = -1;
    }
    if (rc >= 0) {
        (void)par_free(ps);
        free(a.sets);
        return rc;
    }
    (void)log_apply(par_get(ps)->log_level, par_get(ps)->log_levels,
        par_get(ps)->log_format, par_get(ps)->log_rate);
    if (log_set_debug(par_get(ps)->log_debug, bad, sizeof(bad)) != 0)
        log_warn("config: log.debug: unknown bit \"%s\"", bad);
    if (log_start(NULL) != 0)
        log_warn("log: no thread to write it; a slow reader of the log holds fdd up");
    main_limits(par_get(ps));
    g = gate_new(ps, clk_now_ns());
    if (g == NULL) {
        log_error("gate: no memory for sched.max_concurrency requests");
        free(a.sets);
        return EX_OSERR;
    }
    g->rt.is_named = a.is_named;
    if (a.instance != NULL)
        (void)snprintf(g->rt.instance, sizeof(g->rt.instance), "%s", a.instance);
    if (a.conf != NULL)
        (void)snprintf(g->conf_file, sizeof(g->conf_file), "%s", a.conf);
    g->sets = a.sets;
    g->n_sets = a.n_sets;
    rc = main_open(g);
    if (rc == 0)
        rc = gate_run(g);
    log_info("gate: ends with exit code %d", rc);
    (void)gate_free(g);
    free(a.sets);
    return rc;
}
