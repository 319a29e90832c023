/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl up: runs a daemon for one model, and the HTTP gateway, until it ends. */
#include "config.h"

#include "tools/fdctl/commands.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define UP_WAIT 86400 /* s; a large model loads slowly, a failure is reported at once */

struct up {
    /* from the line */
    const char *given;
    uint32_t http; /* 0: none */
    const char *set[FCT_SETS_MAX];
    int n_set;
    char dir[PATH_MAX], model[PATH_MAX + 16];
    struct fct f; /* the daemon's folder */
    pid_t pid[2];
};

enum { FDD, HTTP };
static const char *const names[] = { "fdd", "fdd-http" };

static int
take_set(void *args, const char *value)
{
    struct up *u = args;

    if (u->n_set == FCT_SETS_MAX)
        return fct_usage("up: more than %d --set", FCT_SETS_MAX);
    if (strchr(value, '=') == NULL)
        return fct_usage("up: --set %s: write --set section.key=value", value);
    if (strncmp(value, "daemon.runtime_dir=", 19) == 0)
        return fct_usage("up: --set %s: the daemon gets a folder of its own", value);
    if (strncmp(value, "model.path=", 11) == 0)
        return fct_usage("up: --set %s: name the folder alone, as MODEL_DIR", value);
    u->set[u->n_set++] = value;
    return 0;
}

static int
take_model(void *args, const char *word)
{
    struct up *u = args;

    if (u->given != NULL)
        return fct_usage("up: one model only, not also %s", word);
    u->given = word;
    return 0;
}

#define FCT_ARGS struct up
static const struct fct_opt opts[] = {
    FCT_U32(0, "http", "PORT", http, 1, 65535,
        "answer OpenAI's API at 127.0.0.1:PORT, without a key"),
    FCT_FN('s', "set", "K=V", take_set, "a parameter of fdd; may be repeated"),
    FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line =
    FCT_LINE("fdctl up MODEL_DIR [--http PORT] [--set section.key=value]...",
        "Start a daemon for the model in a folder of its own, and end it with Ctrl-C.",
        opts, .operand = take_model);

/* Start one of the programs, without a configuration file, with these parameters. */
static int
start(struct up *u, int which, const char *const *set, size_t n_set)
{
    static const char *const none[] = { "-c", "/dev/null" };
    char path[PATH_MAX];

    if (fct_find_program(names[which], path) != 0)
        return fct_unav("up: %s is not installed next to fdctl in %s", names[which], path);
    u->pid[which] = fct_spawn(path, none, set, n_set, NULL, "fdctl: up: ");
    return u->pid[which] > 0 ? 0 : fct_unav("up: fork: %s", strerror(errno));
}

static void
end(struct up *u)
{
    for (int i = HTTP; i >= FDD; i--)
        if (u->pid[i] > 0) {
            (void)kill(u->pid[i], SIGTERM);
            (void)waitpid(u->pid[i], NULL, 0);
        }
    if (u->dir[0] != '\0')
        fct_remove_tree(u->dir);
}

/* Wait until a signal comes or one of the programs ends. */
static int
stay(struct up *u)
{
    while (!fct_interrupted) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        int which = pid == u->pid[HTTP] ? HTTP : FDD;

        if (pid > 0) {
            u->pid[which] = 0;
            return fct_unav("up: %s has ended (%s %d)", names[which],
                WIFSIGNALED(status) ? "signal" : "exit",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
        clk_sleep_ns(50 * CLK_MS);
    }
    return 0;
}

/* Check that the port is free before the model is loaded. Returns 0 or an exit code. */
static int
check_port(const struct up *u)
{
    const struct sockaddr_in at = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)u->http),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, error = 0;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0)
        error = errno;
    if (fd >= 0)
        (void)close(fd);
    return error == 0
        ? 0
        : fct_unav("up: --http %u: 127.0.0.1:%u cannot be listened at: %s; name "
                   "another port",
              u->http, u->http, strerror(error));
}

static int
run(struct up *u)
{
    char real[PATH_MAX], dir[PATH_MAX + 64], sock[PATH_MAX + 64], port[64];
    const char *base = getenv("XDG_RUNTIME_DIR"), *tmp = getenv("TMPDIR");
    const char *set[FCT_SETS_MAX + 3] = { dir, u->model, "log.level=warn" };
    struct sigaction was;
    int rc;

    if (realpath(u->given, real) == NULL)
        return fct_fail(EX_NOINPUT, "up: %s: %s", u->given, strerror(errno));
    if (u->http != 0 && (rc = check_port(u)) != 0)
        return rc;
    (void)snprintf(u->model, sizeof(u->model), "model.path=%s", real);
    if (base == NULL || base[0] != '/')
        base = tmp != NULL && tmp[0] == '/' ? tmp : "/tmp";
    (void)snprintf(u->dir, sizeof(u->dir), "%s/fdd-up.XXXXXX", base);
    if (mkdtemp(u->dir) == NULL) {
        u->dir[0] = '\0';
        return fct_unav("up: no folder in %s: %s", base, strerror(errno));
    }
    rc = fct_paths(&u->f, NULL, NULL, u->dir, NULL);
    fct_catch(SIGINT, 0);
    fct_catch(SIGTERM, 0);
    /* SIGHUP: the terminal was closed; under nohup it stays ignored */
    if (sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        fct_catch(SIGHUP, 0);
    (void)snprintf(dir, sizeof(dir), "daemon.runtime_dir=%s", u->dir);
    memcpy(set + 3, u->set, sizeof(u->set));
    if (rc == 0)
        rc = start(u, FDD, set, 3 + (size_t)u->n_set);
    u->f.wait_s = UP_WAIT;
    u->f.child = u->pid[FDD];
    if (rc == 0)
        (void)fct_fail(0, "up: loading %s", real);
    if (rc == 0)
        rc = fct_wait_ready(&u->f);
    (void)snprintf(sock, sizeof(sock), "daemon.socket=%s/fdd.sock", u->dir);
    (void)snprintf(port, sizeof(port), "http.port=%u", u->http);
    if (rc == 0 && u->http != 0)
        rc = start(u, HTTP, (const char *[]){ sock, port, "log.level=error" }, 3);
    if (rc != 0)
        return rc;
    printf("fdd is ready. Until Ctrl-C:\n\n"
           "    fdctl --runtime-dir %s generate -p 'In the beginning'\n"
           "    fdctl --runtime-dir %s chat\n",
        u->dir, u->dir);
    if (u->pid[HTTP] > 0)
        printf("    curl http://127.0.0.1:%u/v1/models\n"
               "    http://127.0.0.1:%u/    (in a browser)\n",
            u->http, u->http);
    (void)fct_flush();
    return stay(u);
}

int
fct_cmd_up(const struct fct *f, int argc, char **argv)
{
    struct up u = { .given = NULL };
    int rc = fct_parse(&line, argc, argv, &u);

    (void)f;
    if (rc == FCT_GO && u.given == NULL)
        rc = fct_usage("up: no model; fdctl up MODEL_DIR");
    if (rc != FCT_GO)
        return rc;
    rc = run(&u);
    end(&u);
    return rc;
}
