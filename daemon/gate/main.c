/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/harden.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/panic.h"
#include "daemon/common/param.h"
#include "daemon/common/version.h"
#include "daemon/gate/conf.h"
#include "daemon/gate/gate.h"
#include "daemon/gate/runtime.h"
#include "libclient/fdwhere.h"

#define MAIN_CONF_DIR FDD_SYSCONFDIR "/fdd"
#define MAIN_CONF     MAIN_CONF_DIR "/fdd.ini"

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
    const char *conf;     /* NULL: the default file, if it exists */
    const char *instance; /* NULL: the main one */
    int is_named;         /* named by --instance */
    char **sets;
    int n_sets;
    int check;
};

enum { OPT_CHECK = 256, OPT_FOREGROUND, OPT_INI, OPT_MAN };

/* Returns -1 to continue, else the exit code. */
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
                (void)fprintf(stderr,
                    "fdd: --set %s: no \"=\"; write --set "
                    "section.key=value\n",
                    optarg);
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

/* Chooses the instance. Returns 0 or an exit code. */
static int
main_instance(struct args *a)
{
    struct fdw_env e;

    fdw_env_get(&e);
    if (a->instance == NULL)
        a->instance = e.instance;
    if (a->instance != NULL && !fdw_is_name(a->instance)) {
        (void)fprintf(stderr,
            "fdd: --instance %s: no instance's name: " FDW_NAME_RULE "\n", a->instance);
        return EX_USAGE;
    }
    return 0;
}

/* Reads the parameters from files and command line. Returns 0 or an exit code. */
static int
main_config(struct par_set *ps, const struct args *a, struct par_src *ret_src)
{
    struct par_say say = { .text = NULL };
    int rc;

    par_src_init(ret_src, a->conf, a->instance);
    ret_src->sets = a->sets;
    ret_src->n_sets = a->n_sets;
    rc = cnf_load(ps, ret_src, &say);
    par_say_log(&say);
    if (rc == 0 && a->instance != NULL && par_n_files(ps) == 0 &&
        par_get(ps)->model_path[0] == '\0') {
        log_error("config: instance %s has neither %s nor a model.path; write that file "
                  "(fdd --print-ini shows a whole one), or name one with -c",
            a->instance, ret_src->file);
        rc = -EINVAL;
    }
    return rc == 0 ? 0 : rc == -EACCES && !a->check ? EX_NOPERM : EX_CONFIG;
}

/* --check-config: also checks what a worker would find. Returns 0 or an exit code. */
static int
main_check(struct par_set *ps)
{
    struct par_say say = { .text = NULL };
    struct rtd rt;

    rtd_init(&rt);
    cnf_warn_names(ps, &say);
    cnf_check_model(ps, &rt, &say);
    par_say_end(&say);
    par_say_log(&say);
    return say.n_errors == 0 ? 0 : EX_CONFIG;
}

/* Called before the first client. A kernel that refuses this does not stop the daemon. */
static void
main_harden(void)
{
    int rc = hdn_no_new_privs();

    if (rc == 0 && !hdn_is_open())
        rc = hdn_no_dump();
    if (rc != 0)
        log_warn("gate: programs of this user can look into it: %s", strerror(-rc));
}

static int
main_serve(struct par_set *ps, const struct gate_opts *o)
{
    struct par_say say = { .text = NULL };

    main_harden();
    cnf_apply_log(par_get(ps));
    cnf_warn_names(ps, &say);
    par_say_log(&say);
    return gate_serve(ps, o);
}

/* Runs the daemon, or --check-config. Returns the exit code. */
static int
main_run(struct args *a)
{
    struct par_set *ps = par_new();
    struct par_src src;
    struct gate_opts o = { .src = &src };
    int rc, checked;

    if (ps == NULL) {
        log_error("gate: no memory");
        return EX_OSERR;
    }
    rc = main_instance(a);
    if (rc == 0) {
        rc = main_config(ps, a, &src);
        checked = a->check ? main_check(ps) : 0;
        rc = rc != 0 ? rc : checked;
    }
    o.instance = a->instance;
    o.is_named = a->is_named;
    if (rc == 0 && !a->check)
        return main_serve(ps, &o);
    (void)par_free(ps);
    return rc;
}

int
main(int argc, char **argv)
{
    struct args a = { .conf = NULL };
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
        rc = main_run(&a);
    free(a.sets);
    return rc;
}
