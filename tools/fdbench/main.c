#include "config.h"

#include "tools/fdbench/fdbench.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/log.h"
#include "daemon/common/param_priv.h"

static const struct cmd {
    const char *name;
    fct_cmd_fn *fn;
    const char *help;
} cmds[] = {
    { "serve", fdb_cmd_serve, "load: latencies, throughput, goodput" },
    { "latency", fdb_cmd_latency, "fixed batches: prefill and time per step" },
    { "ipc", fdb_cmd_ipc, "round trips, wake-ups, processor time a token" },
    { "start", fdb_cmd_start, "time to the first token of a daemon that starts" },
};
#define N_CMDS (sizeof(cmds) / sizeof(cmds[0]))

enum { O_HELP = 1, O_VERSION, O_SOCKET, O_ADMIN, O_DIR, O_TIMEOUT, O_WAIT };

static const struct fct_opt opts[] = {
    { "runtime-dir", 0, "DIR", "the daemon's runtime folder ($FDD_RUNTIME_DIR)", O_DIR },
    { "socket", 0, "PATH", "its client socket ($FDD_SOCKET)", O_SOCKET },
    { "admin", 0, "PATH", "its admin socket", O_ADMIN },
    { "timeout", 0, "S", "wait for an answer so many seconds (30; 0: for ever)",
    O_TIMEOUT },
    { "wait", 0, "S", "first wait until the daemon is ready, at most S seconds", O_WAIT },
    { "help", 'h', NULL, "this text", O_HELP },
    { "version", 'V', NULL, "version", O_VERSION },
    FCT_OPT_END
};

static int
help(void)
{
    size_t i;

    puts("usage: fdbench [options] command [arguments]\n\ncommands:");
    for (i = 0; i < N_CMDS; i++)
        printf("  %-12s %s\n", cmds[i].name, cmds[i].help);
    puts("  help         this text, or that of a command\n"
        "  version      version of fdbench and of the protocol\n\noptions:");
    fct_help_opts(stdout, opts);
    puts("\nfdbench COMMAND --help shows a command's options; fdbench(1) says it all.");
    return 0;
}

static int
version(void)
{
    printf("fdbench %s, protocol %d.%d\n", VERSION, FDP_MAJOR, FDP_MINOR);
    return 0;
}

static const struct cmd *
find(const char *name)
{
    const char *nearest = "help";
    unsigned n, best = 3;
    size_t i;

    for (i = 0; i < N_CMDS; i++)
        if (strcmp(cmds[i].name, name) == 0)
            return &cmds[i];
    for (i = 0; i < N_CMDS; i++) {
        n = par_distance(cmds[i].name, name);
        if (n < best) {
            best = n;
            nearest = cmds[i].name;
        }
    }
    fct_fail(0, best < 3 ? "unknown command '%s'; did you mean fdbench %s?"
        : "unknown command '%s'; see fdbench %s", name, nearest);
    return NULL;
}

static int
run(struct fct *f, int argc, char **argv)
{
    const struct cmd *cmd;
    int rc, i;

    if (strcmp(argv[0], "version") == 0)
        return version();
    if (strcmp(argv[0], "help") == 0) {
        if (argc == 1)
            return help();
        cmd = find(argv[1]);
        if (cmd != NULL) {
            char *words[] = { argv[1], (char *)(uintptr_t)"--help", NULL };

            return cmd->fn(f, 2, words);
        }
        return FCT_EX_USAGE;
    }
    cmd = find(argv[0]);
    if (cmd == NULL)
        return FCT_EX_USAGE;
    /* Neither help nor a daemon that is yet to start is waited for. */
    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            f->wait_s = 0;
    if (f->wait_s > 0 && cmd->fn != fdb_cmd_start && (rc = fct_wait_ready(f)) != 0)
        return rc;
    return cmd->fn(f, argc, argv);
}

int
main(int argc, char **argv)
{
    const char *socket = NULL, *admin = NULL, *dir = NULL;
    struct fct_cli c = { .argc = argc, .argv = argv, .is_main = 1 };
    struct fct f = { .timeout_ms = 30000 };
    double timeout = 30;
    int id = 0, rc = 0;

    log_fill_std();
    fct_prog = "fdbench";
    while (rc == 0 && (id = fct_cli_next(&c, opts)) != FCT_CLI_END && id
        != FCT_CLI_WORD) {
        switch (id) {
        case O_HELP:
            return help();
        case O_VERSION:
            return version();
        case O_SOCKET:
            socket = c.value;
            break;
        case O_ADMIN:
            admin = c.value;
            break;
        case O_DIR:
            dir = c.value;
            break;
        case O_TIMEOUT:
            rc = fdb_opt_dbl("--timeout", c.value, 0, 86400, &timeout);
            f.timeout_ms = timeout > 0 ? (int)(timeout * 1e3) : -1;
            break;
        case O_WAIT:
            rc = fdb_opt_dbl("--wait", c.value, 0, 864000, &f.wait_s);
            break;
        default:
            return FCT_EX_USAGE;
        }
    }
    if (rc != 0)
        return rc;
    if (id != FCT_CLI_WORD)
        return fct_fail(FCT_EX_USAGE, "no command; see fdbench help");
    rc = fct_paths(&f, socket, admin, dir);
    if (rc == 0)
        rc = run(&f, argc - (c.at - 1), argv + c.at - 1);
    if (fflush(stdout) != 0 && rc == 0)
        return fct_fail(FCT_EX_IO, "standard output: %s", strerror(errno));
    return rc;
}
