/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the effect of one user's load on another's stream. A daemon with the null
 * model and steps of fixed time (without that parameter: the demo model), with ROWS rows.
 * One user streams one answer after another and times its tokens: alone, with another
 * user that keeps its fair share of the rows busy, and with one that keeps hundreds of
 * requests queued. Goal: the p99 of the third at most 1.05 times that of the second.
 *
 *   b_fair [FDD [FDD_WORKER [DEMO_DIR]]]; defaults from FDD_BUILD, FDD_SRC
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sys/fair_load.h"

#define ROWS    32
#define GREEDY  400
#define STEP_US 10000

static char args[16][768];
static int n_args;

static void
set(const char *fmt, const char *value)
{
    snprintf(args[n_args++], sizeof(args[0]), "--set");
    snprintf(args[n_args++], sizeof(args[0]), fmt, value);
}

static pid_t
spawn(const char *fdd, int check)
{
    char *argv[24] = { args[0] };
    pid_t pid = fork();
    int n = 1;

    if (pid != 0)
        return pid;
    argv[0] = (char *)(uintptr_t) "fdd";
    for (int i = 0; i < n_args; i++)
        argv[n++] = args[i];
    if (check) {
        argv[n++] = (char *)(uintptr_t) "--check-config";
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(127);
    }
    argv[n] = NULL;
    execv(fdd, argv);
    perror(fdd);
    _exit(127);
}

/* The null model with slow steps, or the demo model. */
static const char *
choose_model(const char *fdd, const char *demo)
{
    char delay[32];
    int status;

    snprintf(delay, sizeof(delay), "%d", STEP_US);
    set("device.step_delay_us=%s", delay);
    if (waitpid(spawn(fdd, 1), &status, 0) > 0 && status == 0) {
        set("model.path=%s", "null");
        set("device.backend=%s", "null");
        return "null model, steps of 10 ms";
    }
    n_args -= 2;
    set("model.path=%s", demo);
    set("device.backend=%s", "cpu");
    return "demo model";
}

static double
phase(const char *what, const char *sock, uint32_t n_open)
{
    struct fair_load cfg = { .sock = sock,
        .n_open = n_open,
        .other_tokens = 80,
        .n_requests = 10,
        .n_tokens = 80,
        .settle_ms = 1000 };
    struct fair_seen seen;
    double p50, p99;

    if (fair_load_run(&cfg, &seen) != 0)
        return -1;
    p50 = (double)fair_quantile(seen.gap, seen.n_gap, 0.50) / 1e6;
    p99 = (double)fair_quantile(seen.gap, seen.n_gap, 0.99) / 1e6;
    printf("%-44s token period p50 %7.3f ms  p99 %7.3f ms; request p50 %6.0f ms; others "
           "ended %llu, refused %llu\n",
        what, p50, p99, (double)fair_quantile(seen.total, cfg.n_requests, 0.5) / 1e6,
        (unsigned long long)seen.other_done, (unsigned long long)seen.other_refused);
    free(seen.gap);
    free(seen.total);
    return p99;
}

int
main(int argc, char **argv)
{
    const char *b = getenv("FDD_BUILD"), *src = getenv("FDD_SRC");
    char path[3][4096], dir[64], sock[96], text[64];
    double alone, share, greedy;
    pid_t pid;

    snprintf(path[0], sizeof(path[0]), "%s/fdd", b ? b : ".");
    snprintf(path[1], sizeof(path[1]), "%s/fdd-worker", b ? b : ".");
    snprintf(path[2], sizeof(path[2]), "%s/conf/models/demo", src ? src : "..");
    for (int i = 1; i < argc && i < 4; i++)
        snprintf(path[i - 1], sizeof(path[0]), "%s", argv[i]);
    snprintf(dir, sizeof(dir), "/tmp/fdd-fair.%d", (int)getpid());
    snprintf(sock, sizeof(sock), "%s/fdd.sock", dir);
    set("daemon.runtime_dir=%s", dir);
    set("daemon.worker=%s", path[1]);
    set("log.level=%s", "warn");
    snprintf(text, sizeof(text), "%u", (unsigned)geteuid());
    set("ipc.trusted_users=%s", text);
    snprintf(text, sizeof(text), "%d", ROWS);
    set("sched.max_num_seqs=%s", text);
    printf("%s, %d rows\n", choose_model(path[0], path[2]), ROWS);
    pid = spawn(path[0], 0);
    alone = phase("alone", sock, 0);
    share = phase("with a user that has half of the rows", sock, ROWS / 2);
    greedy = phase("with a user that has 400 requests", sock, GREEDY);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    if (rmdir(dir) != 0) {
        char cmd[96];

        snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
        if (system(cmd) != 0)
            return 1;
    }
    if (alone < 0 || share <= 0 || greedy < 0)
        return 1;
    printf("%-44s %.3f   goal <= 1.05\n", "p99, greedy user to fair user", greedy / share);
    return 0;
}
