/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "daemon/common/harden.h"
#include "daemon/common/log.h"
#include "daemon/common/panic.h"
#include "daemon/common/param.h"
#include "daemon/common/version.h"
#include "http/loop.h"

#define MAIN_CONF FDD_SYSCONFDIR "/fdd/fdd-http.ini"

static const char main_help[] =
    "usage: fdd-http [-c FILE] [--set section.key=value]... [option]\n"
    "The HTTP gateway of fdd: OpenAI's API for the daemon of this machine.\n"
    "Runs in the foreground.\n"
    "\n"
    "  -c, --config FILE   read this file, then FILE.d/*.ini (" MAIN_CONF "\n"
    "                      if it exists, then fdd-http.ini.d/*.ini)\n"
    "  -s, --set K=V       set a parameter; overrides the file; may be repeated\n"
    "      --check-config  check the configuration and the keys, print every error,\n"
    "                      exit 0 or 78\n"
    "      --print-ini     print a commented configuration file\n"
    "      --print-man     print the parameters as fdd-http.ini(5)\n"
    "  -h, --help          this text\n"
    "  -V, --version       the version\n"
    "\n"
    "example: fdd-http --set http.port=8000\n"
    "See fdd-http(8), fdd-http.ini(5), fdd(8).\n";

struct args {
    const char *conf;
    char **sets;
    int n_sets, check;
};

enum { OPT_CHECK = 256, OPT_INI, OPT_MAN };

static int
add_set(struct args *a, char *word)
{
    if (strchr(word, '=') == NULL) {
        (void)fprintf(stderr,
            "fdd-http: --set %s: no \"=\"; write --set section.key=value\n", word);
        return EX_USAGE;
    }
    a->sets[a->n_sets++] = word;
    return -1;
}

/* Returns -1 to go on, else the exit code. */
static int
main_args(int argc, char **argv, struct args *a)
{
    static const struct option opts[] = {
        { "config", required_argument, NULL, 'c' },
        { "set", required_argument, NULL, 's' },
        { "check-config", no_argument, NULL, OPT_CHECK },
        { "print-ini", no_argument, NULL, OPT_INI },
        { "print-man", no_argument, NULL, OPT_MAN },
        { "help", no_argument, NULL, 'h' },
        { "version", no_argument, NULL, 'V' },
        { NULL, 0, NULL, 0 },
    };
    int c, rc = -1;

    while (rc < 0 && (c = getopt_long(argc, argv, "c:s:hV", opts, NULL)) != -1) {
        switch (c) {
        case 'c':
            a->conf = optarg;
            break;
        case 's':
            rc = add_set(a, optarg);
            break;
        case OPT_CHECK:
            a->check = 1;
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
            (void)printf("fdd-http %s\n", ver_text());
            return 0;
        default:
            (void)fprintf(stderr, "try: fdd-http --help\n");
            return EX_USAGE;
        }
    }
    if (rc < 0 && optind < argc) {
        (void)fprintf(stderr,
            "fdd-http: unexpected argument \"%s\"; try: fdd-http --help\n", argv[optind]);
        return EX_USAGE;
    }
    return rc;
}

/* Read the parameters from files and command line. Returns 0 or an exit code. */
static int
main_config(struct shared *sh, const struct args *a)
{
    struct par_say say = { .text = NULL };
    struct keys keys = { NULL };
    char err[512];
    int rc;

    par_src_init(&sh->src, a->conf, "fdd-http");
    sh->src.sets = a->sets;
    sh->src.n_sets = a->n_sets;
    rc = par_load(sh->ps, &sh->src, &say);
    par_say_end(&say);
    if (a->check && keys_load(&keys, par_get(sh->ps)->keys_file, err, sizeof(err)) != 0) {
        par_say_error(&say, "%s", err);
        rc = -EINVAL;
    }
    keys_fini(&keys);
    par_say_log(&say);
    return rc == 0 ? 0 : rc == -EACCES && !a->check ? EX_NOPERM : EX_CONFIG;
}

static int
main_run(const struct args *a)
{
    struct shared *sh = calloc(1, sizeof(*sh));
    const struct par *p;
    int rc;

    if (sh == NULL || (sh->ps = par_new()) == NULL) {
        free(sh);
        log_error("http: no memory");
        return EX_OSERR;
    }
    p = par_get(sh->ps);
    rc = main_config(sh, a);
    if (rc == 0 && !a->check) {
        (void)hdn_no_new_privs();
        (void)hdn_no_dump(); /* its memory contains prompts */
        (void)log_apply((enum par_log_level)p->log_level, "",
            (enum par_log_format)p->log_format, p->log_rate);
        rc = loops_open(sh);
        if (rc == 0)
            loops_run(sh);
        loops_close(sh);
        (void)log_fini();
    }
    (void)par_free(sh->ps);
    free(sh);
    return rc;
}

int
main(int argc, char **argv)
{
    struct args a = { .conf = NULL };
    int rc;

    log_init("fdd-http", NULL);
    pan_install(NULL, 0);
    a.sets = calloc((size_t)argc, sizeof(char *));
    if (a.sets == NULL)
        return EX_OSERR;
    rc = main_args(argc, argv, &a);
    if (rc < 0)
        rc = main_run(&a);
    free(a.sets);
    return rc;
}
