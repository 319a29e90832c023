#include "config.h"

#include "tools/fdctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/log.h"
#include "daemon/common/param_priv.h"

static const struct cmd {
    const char *name;
    fct_cmd_fn *fn;
    const char *help;
} cmds[] = {
    { "status", fct_cmd_status, "state of the daemon, its worker and its model" },
    { "generate", fct_cmd_generate, "text or tokens for a prompt" },
    { "tokenize", fct_cmd_tokenize, "token ids of a text" },
    { "detokenize", fct_cmd_detokenize, "text of token ids" },
    { "ping", fct_cmd_ping, "round trip through shared memory" },
    { "stat", fct_cmd_stat, "counters" },
    { "requests", fct_cmd_requests, "requests that have not ended" },
    { "clients", fct_cmd_clients, "sessions of client programs" },
    { "cancel", fct_cmd_cancel, "end requests" },
    { "config", fct_cmd_config, "parameters in force" },
    { "set", fct_cmd_set, "change a parameter while the daemon runs" },
    { "reload", fct_cmd_reload, "read the configuration file again" },
    { "model", fct_cmd_model, "the model's sizes and memory" },
    { "memory", fct_cmd_memory, "every buffer of the worker and the KV pool" },
    { "program", fct_cmd_program, "the operations of one step" },
    { "top", fct_cmd_top, "what the daemon does now, on the terminal" },
    { "trace", fct_cmd_trace, "the last steps and requests" },
    { "profile", fct_cmd_profile, "time of every operation of a step" },
    { "doctor", fct_cmd_doctor, "what this machine has and lacks" },
    { "drain", fct_cmd_drain, "take no new requests" },
    { "pause", fct_cmd_pause, "start no queued request, or go on" },
    { "stop", fct_cmd_stop, "end the daemon" },
    { "debug", fct_cmd_debug, "debug bits, self-check, text of a dead worker" },
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

    puts("usage: fdctl [options] command [arguments]\n\ncommands:");
    for (i = 0; i < N_CMDS; i++)
        printf("  %-12s %s\n", cmds[i].name, cmds[i].help);
    puts("  help         this text, or that of a command\n"
        "  version      version of fdctl and of the protocol\n\noptions:");
    fct_help_opts(stdout, opts);
    puts("\nfdctl COMMAND --help shows a command's options; fdctl(1) says it all.");
    return 0;
}

static int
version(void)
{
    printf("fdctl %s, protocol %d.%d\n", VERSION, FDP_MAJOR, FDP_MINOR);
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
    fct_fail(0, best < 3 ? "unknown command '%s'; did you mean fdctl %s?"
        : "unknown command '%s'; see fdctl %s", name, nearest);
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
    /* Help needs no daemon. */
    for (i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            f->wait_s = 0;
    if (f->wait_s > 0 && (rc = fct_wait_ready(f)) != 0)
        return rc;
    return cmd->fn(f, argc, argv);
}

int
main(int argc, char **argv)
{
    const char *socket = NULL, *admin = NULL, *dir = NULL;
    struct fct_cli c = { .argc = argc, .argv = argv, .is_main = 1 };
    struct fct f = { .timeout_ms = 30000 };
    double timeout;
    int id = 0, rc = 0;

    log_fill_std();
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
            rc = fct_dbl("--timeout", c.value, &timeout);
            if (rc == 0 && !(timeout >= 0 && timeout <= 86400))
                rc = fct_fail(FCT_EX_USAGE, "--timeout %s: must be 0 to 86400", c.value);
            if (rc == 0)
                f.timeout_ms = timeout > 0 ? (int)(timeout * 1e3) : -1;
            break;
        case O_WAIT:
            rc = fct_dbl("--wait", c.value, &f.wait_s);
            if (rc == 0 && !(f.wait_s >= 0 && f.wait_s <= 864000))
                rc = fct_fail(FCT_EX_USAGE, "--wait %s: must be 0 to 864000", c.value);
            break;
        default:
            return FCT_EX_USAGE;
        }
    }
    if (rc != 0)
        return rc;
    if (id != FCT_CLI_WORD)
        return fct_fail(FCT_EX_USAGE, "no command; see fdctl help");
    rc = fct_paths(&f, socket, admin, dir);
    if (rc != 0)
        return rc;
    rc = run(&f, argc - (c.at - 1), argv + c.at - 1);
    if (fflush(stdout) != 0 && rc == 0)
        return fct_fail(FCT_EX_IO, "standard output: %s", strerror(errno));
    return rc;
}
