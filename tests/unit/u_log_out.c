/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The thread that writes the log: a slow reader delays no thread, and no lines are
 * lost when a process ends. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/panic.h"

#define TEXT_BYTES (8u << 20)
#define PIPE_BYTES 4096
#define LONG_S     20 /* limit for events that must happen */

static char text[TEXT_BYTES];
static size_t text_n;
static int saved = -1, rd = -1;

static void
pipe_restore(void)
{
    if (saved >= 0) {
        (void)dup2(saved, STDERR_FILENO);
        (void)close(saved);
    }
    saved = -1;
}

/* A failure is printed to stderr, which must not be the pipe then. */
static void
check(int ok, const char *what, int line)
{
    if (!ok) {
        pipe_restore();
        print_error("%s:%d: %s\n", __FILE__, line, what);
        fail();
    }
}
#define CHECK(e) check((e) != 0, #e, __LINE__)

/* Counts in the complete lines of the text, up to `end`. */
static struct {
    size_t end;
    unsigned n;         /* lines "gate: number N ...", in order */
    long last;          /* N of the last one */
    unsigned long lost; /* lines the log says were lost */
} seen;

/* stderr becomes a small pipe that is not read yet. */
static void
pipe_begin(void)
{
    int fds[2];

    (void)unsetenv("JOURNAL_STREAM");
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    (void)fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES);
    saved = dup(STDERR_FILENO);
    CHECK(saved >= 0 && dup2(fds[1], STDERR_FILENO) >= 0);
    (void)close(fds[1]);
    rd = fds[0];
    text_n = 0;
    text[0] = '\0';
    memset(&seen, 0, sizeof(seen));
    seen.last = -1;
    log_init("test", "info");
    CHECK(log_apply(PAR_LOG_LEVEL_INFO, "", PAR_LOG_FORMAT_TEXT, 0) == 0);
}

/* Reads for at most ms. Returns 0 at the end of the pipe or of the time. */
static int
pipe_read(int ms)
{
    struct pollfd p = { .fd = rd, .events = POLLIN };
    ssize_t n;

    if (poll(&p, 1, ms) <= 0)
        return 0;
    n = read(rd, text + text_n, TEXT_BYTES - 1 - text_n);
    if (n <= 0)
        return 0;
    text_n += (size_t)n;
    text[text_n] = '\0';
    return 1;
}

static int
pipe_read_until(const char *what)
{
    uint64_t end = clk_now_ns() + LONG_S * CLK_S;

    while (strstr(text, what) == NULL && clk_now_ns() < end)
        (void)pipe_read(100);
    return strstr(text, what) != NULL;
}

static void
see_line(char *line, size_t n)
{
    static const char said[] = " lines were lost because the reader of the log is slow";
    const char *p;
    char *end;

    line[n] = '\0'; /* so that a search ends there: a text of 2 MB is read in one pass */
    if ((p = strstr(line, "gate: number ")) != NULL) {
        long i = strtol(p + 13, NULL, 10);

        if (i <= seen.last)
            print_error("number %ld behind %ld\n", i, seen.last);
        CHECK(i > seen.last);
        seen.last = i;
        seen.n++;
    } else if ((p = strstr(line, " W test: log: ")) != NULL) {
        seen.lost += strtoul(p + 14, &end, 10);
        CHECK(strcmp(end, said) == 0);
    }
    line[n] = '\n';
}

static void
see(void)
{
    char *nl;

    while ((nl = memchr(text + seen.end, '\n', text_n - seen.end)) != NULL) {
        see_line(text + seen.end, (size_t)(nl - text) - seen.end);
        seen.end = (size_t)(nl - text) + 1;
    }
}

static unsigned
count_lines(void)
{
    see();
    return seen.n;
}

static void
numbers(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        log_info("gate: number %u %080d", i, 0);
}

/* With a stopped reader, 20,000 lines take only the time of copying them. Lines without
 * room are counted; the loss is reported at its place when the reader goes on, and later
 * lines follow. No flag of stderr has changed. */
static void
t_stalled_reader(void **state)
{
    const unsigned n = 20000;
    uint64_t dropped = 0, t;

    (void)state;
    pipe_begin();
    log_count(&dropped);
    CHECK(log_start(NULL) == 0);
    CHECK(log_start(NULL) == -EBUSY);
    t = clk_now_ns();
    numbers(0, n);
    CHECK(clk_now_ns() - t < 20 * CLK_S);
    CHECK((fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(dropped > n / 2 && dropped < n);
    t = clk_now_ns();
    while (count_lines() + seen.lost < n && clk_now_ns() - t < LONG_S * CLK_S)
        (void)pipe_read(100);
    log_info("gate: later");
    CHECK(pipe_read_until("gate: later\n"));
    CHECK(log_fini() == 0);
    pipe_restore();
    CHECK(count_lines() + dropped == n);
    CHECK(seen.lost == dropped);
    CHECK(strstr(text, "lines were lost") < strstr(text, "gate: later"));
    (void)close(rd);
}

/* The end waits for a slow reader, so that nothing is lost. After it the logging
 * thread itself writes lines. */
static void
t_end_writes_the_rest(void **state)
{
    pid_t pid;
    int st;

    (void)state;
    pipe_begin();
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (log_start(NULL) != 0)
            _exit(9);
        numbers(0, 200);
        exit(0); /* which ends the log too */
    }
    pipe_restore();
    clk_sleep_ns(100 * CLK_MS);
    while (pipe_read(LONG_S * 1000))
        continue;
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(st == 0);
    CHECK(count_lines() == 200);
    (void)close(rd);
}

/* A reader that never goes on does not keep a process from ending. */
static void
t_end_is_bounded(void **state)
{
    uint64_t t;

    (void)state;
    pipe_begin();
    CHECK(log_start(NULL) == 0);
    numbers(0, 2000);
    t = clk_now_ns();
    CHECK(log_fini() == 0);
    CHECK(clk_now_ns() - t >= 900 * CLK_MS);
    CHECK(clk_now_ns() - t < 20 * CLK_S);
    log_info("gate: no thread waits for this");
    CHECK(log_fini() == 0);
    pipe_restore();
    (void)close(rd);
    /* and it can begin again */
    pipe_begin();
    CHECK(log_start(NULL) == 0);
    log_info("gate: again");
    CHECK(pipe_read_until("gate: again\n"));
    CHECK(log_fini() == 0);
    log_info("gate: directly");
    CHECK(pipe_read(0) && strstr(text, "gate: directly\n") != NULL);
    pipe_restore();
    (void)close(rd);
}

static pid_t
start_child(struct lgq *q, unsigned n, int sig)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid != 0)
        return pid;
    pan_install(NULL, 0);
    if (log_start(q) != 0)
        _exit(9);
    numbers(0, n);
    if (sig == SIGSEGV)
        (void)raise(SIGSEGV);
    if (sig == SIGABRT)
        pan_panic("number %d", 42);
    if (sig == 0)
        pan_exit(70, "device error");
    if (sig == SIGKILL)
        (void)raise(SIGKILL);
    _exit(9);
}

#define PANIC_LINES 400 /* more than the writer can finish */

/* A panic is the last line in the log, after all earlier lines. */
static void
t_panic_keeps_lines(void **state)
{
    static const int sigs[] = { SIGSEGV, SIGABRT, 0 };

    (void)state;
    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
        int st;
        pid_t pid;
        char *p;

        pipe_begin();
        pid = start_child(NULL, PANIC_LINES, sigs[i]);
        pipe_restore();
        while (pipe_read(LONG_S * 1000))
            continue;
        CHECK(waitpid(pid, &st, 0) == pid);
        CHECK(count_lines() == PANIC_LINES);
        p = strstr(text, "panic: ");
        CHECK(p != NULL);
        CHECK(strstr(p, "gate: number") == NULL);
        (void)close(rd);
    }
}

/* The process also ends if the log is not read. */
static void
t_panic_does_not_hang(void **state)
{
    uint64_t end = clk_now_ns() + LONG_S * CLK_S;
    int st = -1;
    pid_t pid;

    (void)state;
    pipe_begin();
    pid = start_child(NULL, 2000, SIGABRT);
    pipe_restore();
    while (waitpid(pid, &st, WNOHANG) == 0 && clk_now_ns() < end)
        clk_sleep_ns(5 * CLK_MS);
    (void)kill(pid, SIGKILL);
    CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
    (void)close(rd);
}

/* Lines that a killed process had queued are shown by the
 * process that shares its queue. */
static void
t_killed(void **state)
{
    struct lgq *q =
        mmap(NULL, sizeof(*q), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char last[256], *p;
    int st, fd;
    pid_t pid;

    (void)state;
    CHECK(q != MAP_FAILED);
    pipe_begin();
    pid = start_child(q, 500, SIGKILL);
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFSIGNALED(st));
    /* first the lines it wrote, then the others */
    fd = fcntl(STDERR_FILENO, F_DUPFD, 10);
    (void)fcntl(fd, F_SETPIPE_SZ, 1 << 20);
    CHECK(lgq_last(q, last, sizeof(last)) > 0);
    CHECK(strstr(last, "gate: number 499 ") != NULL);
    log_adopt(q);
    (void)close(fd);
    pipe_restore();
    while (pipe_read(0))
        continue;
    p = strstr(text, "gate: number 499 ");
    CHECK(p != NULL);
    CHECK(count_lines() == 500);
    (void)close(rd);
    (void)munmap(q, sizeof(*q));
}

/* The child of a fork has no writer and still logs. */
static void
t_fork(void **state)
{
    int st;
    pid_t pid;

    (void)state;
    pipe_begin();
    CHECK(log_start(NULL) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        log_info("gate: in the child");
        _exit(0);
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(st == 0);
    log_info("gate: in the parent");
    CHECK(pipe_read_until("gate: in the parent\n"));
    CHECK(strstr(text, "gate: in the child\n") != NULL);
    CHECK(log_fini() == 0);
    pipe_restore();
    (void)close(rd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_end_writes_the_rest),
        cmocka_unit_test(t_panic_keeps_lines),
        cmocka_unit_test(t_panic_does_not_hang),
        cmocka_unit_test(t_killed),
        cmocka_unit_test(t_fork),
        cmocka_unit_test(t_stalled_reader),
        cmocka_unit_test(t_end_is_bounded),
    };

    (void)alarm(3 * LONG_S); /* a test that hangs fails */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
