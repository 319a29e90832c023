/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
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
#include "daemon/gate/conf.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/offloop.h"
#include "daemon/gate/places.h"
#include "libclient/fdwhere.h"

#define MAIN_FDS 256u /* descriptors besides the sessions' */
#define MAIN_CONF_DIR FDD_SYSCONFDIR "/fdd"
#define MAIN_CONF MAIN_CONF_DIR "/fdd.ini"

static const char main_help[] =
    "usage: fdd [-c FILE] [--set section.key=value]... [option]\n"
    "The inference daemon: gate and supervisor. Runs in the foreground.\n"
    "\n"
    "  -c, --config FILE   read this file, then FILE.d/*.ini (" MAIN_CONF " if it\n"
    "                      exists, then fdd.ini.d/*.ini, see fdd.ini(5))\n"
    "  -s, --set K=V       set a parameter; overrides the file; may be repeated\n"
    "  -i, --instance NAME a further daemon on this machine: reads\n"
    "                      " MAIN_CONF_DIR "/NAME.ini, lives in a folder of that\n"
    "                      name, /run/fdd/NAME ($FDD_INSTANCE)\n"
    "      --check-config  check the configuration and whether this user can read\n"
    "                      the model, print every error, exit 0 or 78\n"
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
main_tell(struct par_say *say)
{
    const char *text = NULL;
    int is_error;

    while ((text = par_say_next(say, text, &is_error)) != NULL) {
        if (is_error)
            log_error("config: %s", text);
        else
            log_warn("config: %s", text);
    }
    par_say_clear(say);
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
    return 0;
}

/* The parameters from files and command line. 0 or an exit code. */
static int
main_config(struct par_set *ps, const struct args *a, struct par_src *ret_src)
{
    struct par_say say = { .text = NULL };
    int rc;

    par_src_init(ret_src, a->conf, a->instance);
    ret_src->sets = a->sets;
    ret_src->n_sets = a->n_sets;
    rc = cnf_load(ps, ret_src, &say);
    main_tell(&say);
    if (rc == 0 && a->instance != NULL && par_n_files(ps) == 0 &&
        par_get(ps)->model_path[0] == '\0') {
        log_error("config: instance %s has neither %s nor a model.path; write that file "
            "(fdd --print-ini shows a whole one), or name one with -c", a->instance,
            ret_src->file);
        rc = -EINVAL;
    }
    return rc == 0 ? 0 : rc == -EACCES && !a->check ? EX_NOPERM : EX_CONFIG;
}

/* --check-config: also what a worker would find. 0 or an exit code. */
static int
main_check(struct par_set *ps)
{
    struct par_say say = { .text = NULL };
    struct gate *g = mem_aligned(128, sizeof(*g));

    if (g == NULL)
        return EX_OSERR;
    g->ps = ps;
    g->par = par_get(ps);
    cnf_warn_names(ps, &say);
    cnf_check_model(g, &say);
    par_say_end(&say);
    main_tell(&say);
    free(g);
    return say.n_errors == 0 ? 0 : EX_CONFIG;
}

/* Descriptors for ipc.max_clients sessions; with fewer, for fewer sessions, so
 * that some are left for administrators. */
static void
main_limits(struct gate *g)
{
    struct rlimit rl;
    rlim_t need = ((rlim_t)g->par->ipc_max_clients + PLC_KEPT) * 2 + MAIN_FDS;

    if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
        return;
    if (rl.rlim_cur < need) {
        rl.rlim_cur = rl.rlim_max < need ? rl.rlim_max : need;
        if (setrlimit(RLIMIT_NOFILE, &rl) != 0 || rl.rlim_cur < need)
            log_warn("gate: at most %llu descriptors, ipc.max_clients wants %llu; raise "
                "LimitNOFILE", (unsigned long long)rl.rlim_cur, (unsigned long long)need);
    }
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur / 2 < g->max_ses + MAIN_FDS / 2)
        g->max_ses = rl.rlim_cur > MAIN_FDS + 2 ? (uint32_t)(rl.rlim_cur - MAIN_FDS) / 2 : 1;
}

/* The kernel's table of descriptors grows with the first one that does not fit,
 * and that call waits for all CPUs where a process has threads: it grows here
 * for all that there will be, and not under accept4(). */
static void
main_grow_table(const struct par *par, int any_fd)
{
    struct rlimit rl;
    rlim_t n = ((rlim_t)par->ipc_max_clients * 2 + MAIN_FDS) * 2;
    int fd;

    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < n)
        n = rl.rlim_cur;
    fd = fcntl(any_fd, F_DUPFD_CLOEXEC, (int)n - 1);
    if (fd >= 0)
        (void)close(fd);
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
    int rc;

    rtd_groups(&g->rt, g->par);
    rc = rtd_open_dir(&g->rt, g->par, err, sizeof(err));
    if (rc == 0) {
        g->crash_fd = crs_open(g->rt.dir, &g->before);
        if (g->before.program[0] != '\0')
            log_warn("gate: the daemon before did not end well: %s (pid %lld): %s; fdctl "
                "status tells more", g->before.program, (long long)g->before.pid,
                g->before.how);
    }
    if (rc == 0)
        rc = rtd_open_sockets(&g->rt, g->par, err, sizeof(err));
    if (rc != 0) {
        log_error("gate: %s", err);
        return rc;
    }
    rc = gate_open(g);
    if (rc != 0) {
        log_error("gate: cannot make the statistics and trace segments: %s",
            strerror(-rc));
        return EX_OSERR;
    }
    /* Each session has a socket to close and two regions to empty. */
    g->ofl = ofl_new((uint32_t)g->par->ipc_max_clients * 4 + MAIN_FDS);
    if (g->ofl == NULL) {
        log_error("gate: no thread for closing sockets");
        return EX_OSERR;
    }
    rc = main_signals(g);
    if (rc == 0)
        rc = gate_watch(g, g->rt.listen_fd, LSN_EVENTS, GATE_EV_LISTEN, NULL);
    if (rc == 0)
        rc = gate_watch(g, g->rt.admin_fd, LSN_EVENTS, GATE_EV_ADMIN, NULL);
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

/* A gate with the parameters; NULL: *ret_rc is the exit code. */
static struct gate *
main_gate(struct args *a, int *ret_rc)
{
    struct par_set *ps = par_new();
    struct par_src src;
    struct gate *g = NULL;
    int rc;

    *ret_rc = EX_OSERR;
    if (ps == NULL) {
        log_error("gate: no memory");
        return NULL;
    }
    *ret_rc = main_instance(a);
    if (*ret_rc == 0) {
        *ret_rc = main_config(ps, a, &src);
        rc = a->check ? main_check(ps) : 0;
        *ret_rc = *ret_rc != 0 ? *ret_rc : rc;
    }
    if (*ret_rc != 0 || a->check) {
        (void)par_free(ps);
        return NULL;
    }
    g = gate_new(ps, clk_now_ns());
    if (g == NULL) {
        log_error("gate: no memory for sched.max_concurrency requests");
        *ret_rc = EX_OSERR;
        return NULL;
    }
    g->src = src;
    g->rt.is_named = a->is_named;
    if (a->instance != NULL)
        (void)snprintf(g->rt.instance, sizeof(g->rt.instance), "%s", a->instance);
    return g;
}

/* All of it; the exit code. */
static int
main_run(struct gate *g)
{
    struct par_say say = { .text = NULL };
    int rc;

    (void)log_apply(g->par->log_level, g->par->log_levels, g->par->log_format,
        g->par->log_rate);
    (void)log_set_debug(g->par->log_debug, NULL, 0);
    if (log_start(NULL) != 0)
        log_warn("log: no thread to write it; a slow reader of the log holds fdd up");
    cnf_warn_names(g->ps, &say);
    main_tell(&say);
    main_limits(g);
    main_grow_table(g->par, g->epfd);
    rc = main_open(g);
    if (rc == 0)
        rc = gate_run(g);
    log_info("gate: ends with exit code %d", rc);
    crs_close(g->rt.dir, g->crash_fd, rc != 0 ? &g->wrk[0].crash : NULL);
    return rc;
}

int
main(int argc, char **argv)
{
    struct args a = { .conf = NULL };
    struct gate *g = NULL;
    int rc;

    log_init("fdd", NULL);
    pan_install(NULL, 0);
    a.sets = mem_array((size_t)argc, sizeof(char *));
    if (a.sets == NULL) {
        log_error("gate: no memory");
        return EX_OSERR;
    }
    rc = main_args(argc, argv, &a);
    if (rc < 0)
        g = main_gate(&a, &rc);
    if (g != NULL)
        rc = main_run(g);
    (void)gate_free(g);
    free(a.sets);
    return rc;
}
