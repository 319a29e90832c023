/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole path, from outside: a daemon on the null model, then on the demo model,
 * driven through libfdclient. Prints session set-up, round trips to the gate and to the
 * worker (spinning and parked), CPU use when idle, memory, and for the demo model time to
 * first token and token periods.
 *
 *   b_path [FDD [FDD_WORKER [DEMO_DIR]]]; defaults from FDD_BUILD, FDD_SRC
 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/fdclient.h"

static const char *fdd, *worker, *demo;
static char run_dir[128], sock[160];
static pid_t pid;

static uint64_t
now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int
cmp_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void
quantiles(const char *what, uint64_t *v, size_t n, double unit, const char *unit_name,
    const char *goal)
{
    if (n == 0)
        return;
    qsort(v, n, sizeof(*v), cmp_u64);
    printf("%-44s p50 %9.2f  p99 %9.2f  max %10.2f %s   %s\n", what,
        (double)v[n / 2] / unit, (double)v[n - 1 - n / 100] / unit,
        (double)v[n - 1] / unit, unit_name, goal);
}

static void
start(const char *model, const char *backend, const char *spin)
{
    char a[3][700];
    snprintf(a[0], sizeof(a[0]), "daemon.runtime_dir=%s", run_dir);
    snprintf(a[1], sizeof(a[1]), "daemon.worker=%s", worker);
    snprintf(a[2], sizeof(a[2]), "model.path=%s", model);
    char b[64], c[64];
    snprintf(b, sizeof(b), "device.backend=%s", backend);
    snprintf(c, sizeof(c), "ipc.spin_us=%s", spin);
    pid = fork();
    if (pid == 0) {
        execl(fdd, "fdd", "--set", a[0], "--set", a[1], "--set", a[2], "--set", b,
            "--set", c, "--set", "log.level=warn", "--set",
            "ipc.connects_per_second=100000", (char *)NULL);
        perror(fdd);
        _exit(127);
    }
}

static void
stop(void)
{
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

static fdc_t *
attach(uint32_t spin_us)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .path = sock,
        .name = "b_path",
        .spin_us = spin_us };
    fdc_t *s;
    for (int i = 0; i < 1000; i++) {
        uint64_t ns;
        if (fdc_open(&o, &s) == 0) {
            if (fdc_ping(s, 1, &ns, 20000) == 0)
                return s;
            fdc_close(s);
        }
        usleep(20000);
    }
    fprintf(stderr, "b_path: the daemon does not answer on %s\n", sock);
    kill(pid, SIGKILL);
    exit(1);
}

static double
cpu_seconds(pid_t p)
{
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)p);
    FILE *f = fopen(path, "r");
    if (f == NULL || fgets(line, sizeof(line), f) == NULL) {
        if (f != NULL)
            fclose(f);
        return 0;
    }
    fclose(f);
    unsigned long ut = 0, st = 0;
    const char *q = strrchr(line, ')');
    if (q == NULL ||
        sscanf(q + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &ut, &st) != 2)
        return 0;
    return (double)(ut + st) / (double)sysconf(_SC_CLK_TCK);
}

static long
rss_kb(pid_t p)
{
    char path[64], line[256];
    long kb = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)p);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return kb;
}

static pid_t
child_of(pid_t p)
{
    char cmd[96];
    int c = 0;
    snprintf(cmd, sizeof(cmd), "pgrep -P %d", (int)p);
    FILE *f = popen(cmd, "r");
    if (f != NULL) {
        if (fscanf(f, "%d", &c) != 1)
            c = 0;
        pclose(f);
    }
    return (pid_t)c;
}

static void
pings(fdc_t *s, const char *what, int deep, unsigned n, unsigned gap_us, const char *goal)
{
    uint64_t *v = calloc(n, sizeof(*v));
    for (unsigned i = 0; v != NULL && i < n; i++) {
        if (gap_us > 0)
            usleep(gap_us);
        if (fdc_ping(s, deep, &v[i], 5000) < 0)
            v[i] = 0;
    }
    if (v != NULL)
        quantiles(what, v, n, 1e3, "us", goal);
    free(v);
}

static void
null_model(void)
{
    /* polling needs a core for each of the client, the gate and the worker's
     * three threads */
    if (sysconf(_SC_NPROCESSORS_ONLN) >= 6) {
        start("null", "null", "200");
        fdc_t *s = attach(1000);
        pings(s, "round trip to the gate, spinning", 0, 20000, 0, "");
        pings(s, "client-worker-client, spinning", 1, 20000, 0, "goal <= 3 us");
        fdc_close(s);
        stop();
    } else
        printf("%-44s skipped: needs 6 processors, there are %ld\n",
            "client-worker-client, spinning", sysconf(_SC_NPROCESSORS_ONLN));
    /* the daemon with defaults: all threads sleep when a request arrives */
    start("null", "null", "-1");
    fdc_t *s = attach(FDC_SPIN_NONE);
    pings(s, "round trip to the gate, parked", 0, 1000, 2000, "");
    pings(s, "client-worker-client, parked", 1, 1000, 2000, "goal <= 60 us");
    uint64_t v[300];
    for (int i = 0; i < 300; i++) {
        struct fdc_open_opts o = { .size = sizeof(o), .path = sock };
        fdc_t *t;
        uint64_t t0 = now_ns();
        if (fdc_open(&o, &t) < 0)
            break;
        v[i] = now_ns() - t0;
        fdc_close(t);
    }
    quantiles("session set-up", v, 300, 1e6, "ms", "goal <= 1 ms");
    long one = rss_kb(pid);
    fdc_t *more[32];
    for (int i = 0; i < 32; i++)
        more[i] = attach(FDC_SPIN_NONE);
    printf("%-44s %ld kB, and %ld kB for each further session   goal <= 16 MB + 1.5 MiB\n",
        "gate memory with one session", one, (rss_kb(pid) - one) / 32);
    for (int i = 0; i < 32; i++)
        fdc_close(more[i]);
    usleep(300000);
    pid_t w = child_of(pid);
    double c0 = cpu_seconds(pid) + cpu_seconds(w);
    sleep(3);
    printf("%-44s %.2f %% of a core   goal < 1 %%\n", "idle daemon (gate and worker)",
        (cpu_seconds(pid) + cpu_seconds(w) - c0) / 3 * 100);
    fdc_close(s);
    stop();
}

static void
demo_model(void)
{
    struct stat st;
    if (stat(demo, &st) != 0) {
        printf("demo model: %s is not there\n", demo);
        return;
    }
    start(demo, "cpu", "-1");
    fdc_t *s = attach(0);
    enum { N = 5, TOK = 200 };
    uint64_t first[N], gap[N * TOK], n_gap = 0;
    for (int i = 0; i < N; i++) {
        struct fdc_params p;
        fdc_params_init(&p);
        p.max_new = TOK;
        p.flags |= FDC_F_IGNORE_EOS;
        p.temperature = 0;
        fdc_req_t *r;
        uint64_t t0 = now_ns(), last = 0;
        if (fdc_submit_text(s, "In the beginning", 16, &p, NULL, &r) < 0)
            break;
        struct fdc_event e = FDC_EVENT_INIT;
        first[i] = 0;
        while (fdc_next(r, &e, 10000) == 1) {
            if (e.type != FDC_T_IDS)
                continue;
            uint64_t t = now_ns();
            if (last == 0)
                first[i] = t - t0;
            else if (n_gap < N * TOK)
                gap[n_gap++] = t - last;
            last = t;
        }
        fdc_req_free(r);
    }
    quantiles("demo model: time to first token", first, N, 1e3, "us", "");
    quantiles("demo model: token period at the client", gap, n_gap, 1e3, "us", "");
    pid_t w = child_of(pid);
    printf("%-44s %ld kB\n", "demo model: worker memory", rss_kb(w));
    fdc_close(s);
    stop();
}

int
main(int argc, char **argv)
{
    static char path[3][4096];
    const char *b = getenv("FDD_BUILD"), *src = getenv("FDD_SRC");
    snprintf(path[0], sizeof(path[0]), "%s/fdd", b ? b : ".");
    snprintf(path[1], sizeof(path[1]), "%s/fdd-worker", b ? b : ".");
    snprintf(path[2], sizeof(path[2]), "%s/conf/models/demo", src ? src : "..");
    fdd = argc > 1 ? argv[1] : path[0];
    worker = argc > 2 ? argv[2] : path[1];
    demo = argc > 3 ? argv[3] : path[2];
    snprintf(run_dir, sizeof(run_dir), "/tmp/fdd-bench.%d", (int)getpid());
    snprintf(sock, sizeof(sock), "%s/fdd.sock", run_dir);
    null_model();
    demo_model();
    char cmd[160];
    snprintf(cmd, sizeof(cmd), "rm -rf %s", run_dir);
    return system(cmd) != 0;
}
