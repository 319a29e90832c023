/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Load generator for an HTTP server that streams completions; measures the times of the
 * answers. One thread, one epoll. Prints one line of JSON.
 *
 * http_load -p PORT [-n STREAMS] [-s SECONDS] [-t MAX_TOKENS] [-i IDLE] [-b BYTES]
 *           [-w] [-a] [-r] [-k KEY] [-m MODEL] [-u PID] [-f FILE]
 *   -n   requests that run at a time (256)
 *   -s   seconds to measure, after one second of warm-up (5)
 *   -t   max_tokens of a request (1000)
 *   -i   connections without a request, opened first (0)
 *   -b   while the streams run, another process sends bodies of this size, one after
 *        the other (0: none)
 *   -w   whole answers instead of streams
 *   -k   Authorization: Bearer KEY
 *   -m   the field model
 *   -u   process whose processor time and memory are reported
 *   -a   allow only letters: in a model whose tokens are bytes, as the null model's, each
 *        token is then a character and has an event
 *   -r   connect again if the server closes a connection after an answer
 *   -f   file with the request body, instead of a completion of "In the beginning"; the
 *        path is that of chat completions if the body has messages
 */
#include "config.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES (1u << 22)

struct stream {
    int fd;
    uint64_t sent_ns, last_ns; /* time of the request; of its last event, 0: none yet */
    char tail[8];              /* the last bytes received, as the end may be split */
    size_t left; /* body bytes still to come (not of a stream); SIZE_MAX: no head yet */
    char head[4096];
    size_t n_head;
};

struct samples {
    uint32_t *us;
    size_t n;
};

struct load {
    int port, n, seconds, max_tokens, idle, whole, bytes_apart, redial;
    size_t body;
    const char *key, *model, *file;
    long pid;
    int epoll;
    char *request;
    size_t n_request;
    int measuring;
    struct samples itl, ttft, e2e;
    uint64_t events, bytes, done, errors, dialled;
};

static uint64_t
now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
die(const char *what)
{
    (void)fprintf(stderr, "http_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void
sample(struct samples *s, uint64_t ns)
{
    if (s->n < SAMPLES)
        s->us[s->n++] = (uint32_t)(ns / 1000);
}

static int
dial(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        die("connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void
send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

        if (k < 0 && errno == EAGAIN)
            continue;
        if (k <= 0)
            die("send");
        p += k;
        n -= (size_t)k;
    }
}

static void
begin(struct load *l, struct stream *s)
{
    s->sent_ns = now_ns();
    s->last_ns = 0;
    s->n_head = 0;
    s->left = SIZE_MAX;
    memset(s->tail, 0, sizeof(s->tail));
    send_all(s->fd, l->request, l->n_request);
}

static void
dial_stream(struct load *l, struct stream *s)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };

    s->fd = dial(l->port);
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &ev) != 0)
        die("epoll");
    begin(l, s);
}

static void
finish(struct load *l, struct stream *s, uint64_t now)
{
    l->done += (uint64_t)l->measuring;
    if (l->measuring)
        sample(&l->e2e, now - s->sent_ns);
    begin(l, s);
}

/* Counts the events in p[n], and finds out whether the stream ends there. */
static void
take_events(struct load *l, struct stream *s, const char *p, size_t n)
{
    uint64_t now = now_ns();
    const char *at = p, *end = p + n;
    char joint[16];
    size_t k = n < 7 ? n : 7;
    int over;

    l->bytes += l->measuring ? n : 0;
    while ((at = memmem(at, (size_t)(end - at), "data: {", 7)) != NULL) {
        l->events += (uint64_t)l->measuring;
        at += 7;
    }
    if (l->measuring && s->last_ns != 0)
        sample(&l->itl, now - s->last_ns);
    if (s->last_ns == 0 && memmem(p, n, "data: {", 7) != NULL) {
        if (l->measuring)
            sample(&l->ttft, now - s->sent_ns);
        s->last_ns = now;
    } else if (s->last_ns != 0) {
        s->last_ns = now;
    }
    /* The end of a chunked body, perhaps in two pieces. */
    memcpy(joint, s->tail, 7);
    memcpy(joint + 7, p + n - k, k);
    over = memcmp(joint + k, "\r\n0\r\n\r\n", 7) == 0;
    memmove(s->tail, joint + k, 7);
    if (over)
        finish(l, s, now);
}

static void
take_whole(struct load *l, struct stream *s, const char *p, size_t n)
{
    if (s->left == SIZE_MAX) {
        size_t k =
            n < sizeof(s->head) - 1 - s->n_head ? n : sizeof(s->head) - 1 - s->n_head;
        char *end, *len;

        memcpy(s->head + s->n_head, p, k);
        s->n_head += k;
        s->head[s->n_head] = '\0';
        end = strstr(s->head, "\r\n\r\n");
        len = strcasestr(s->head, "content-length: ");
        if (end == NULL || len == NULL)
            return;
        if (strncmp(s->head, "HTTP/1.1 200", 12) != 0)
            l->errors++;
        s->left = (size_t)strtoul(len + 16, NULL, 10);
        n = s->n_head - (size_t)(end + 4 - s->head);
    }
    s->left -= n < s->left ? n : s->left;
    if (s->left == 0)
        finish(l, s, now_ns());
}

static void
take(struct load *l, struct stream *s)
{
    static char buf[262144];
    ssize_t n = recv(s->fd, buf, sizeof(buf), MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 && l->redial && s->last_ns == 0 && s->n_head == 0) {
        l->dialled += (uint64_t)l->measuring;
        (void)close(s->fd);
        dial_stream(l, s);
        return;
    }
    if (n <= 0) {
        l->errors++;
        (void)fprintf(stderr, "http_load: a stream was closed: %s\n",
            n < 0 ? strerror(errno) : "end");
        exit(1);
    }
    if (l->whole)
        take_whole(l, s, buf, (size_t)n);
    else
        take_events(l, s, buf, (size_t)n);
}

/* ---- the other process -------------------------------------------------------------------- */

/* A body that is read to its end and then refused: its prompt is longer than any model's. */
static void
send_bodies(const struct load *l)
{
    char *body = malloc(l->body + 200), head[200], answer[8192];
    size_t n = 0;
    uint64_t sent = 0;

    if (body == NULL)
        die("malloc");
    n += (size_t)sprintf(body, "{\"prompt\":\"");
    while (n < l->body - 20) {
        memcpy(body + n, "abcdefgh ijklmn\\n", 17);
        n += 17;
    }
    n += (size_t)sprintf(body + n, "\"}");
    for (;;) {
        int fd = dial(l->port);

        (void)snprintf(head, sizeof(head),
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
            n);
        send_all(fd, head, strlen(head));
        send_all(fd, body, n);
        if (recv(fd, answer, sizeof(answer), 0) <= 0)
            die("no answer to a long body");
        (void)close(fd);
        sent++;
        if (write(STDOUT_FILENO, &sent, sizeof(sent)) < 0)
            exit(0);
    }
}

static pid_t
start_bodies(const struct load *l, int *ret_fd)
{
    int p[2];
    pid_t pid;

    if (pipe2(p, O_NONBLOCK) != 0)
        die("pipe");
    pid = fork();
    if (pid == 0) {
        (void)dup2(p[1], STDOUT_FILENO);
        send_bodies(l);
    }
    (void)close(p[1]);
    *ret_fd = p[0];
    return pid;
}

static uint64_t
bodies_sent(int fd)
{
    uint64_t v, last = 0;

    while (read(fd, &v, sizeof(v)) == (ssize_t)sizeof(v))
        last = v;
    return last;
}

/* ---- resources of the server ---------------------------------------------------------------- */

/* CPU time of all threads of a process, ns. */
static uint64_t
cpu_ns(long pid)
{
    char path[300];
    struct dirent *e;
    uint64_t sum = 0;
    DIR *d;

    (void)snprintf(path, sizeof(path), "/proc/%ld/task", pid);
    d = pid != 0 ? opendir(path) : NULL;
    while (d != NULL && (e = readdir(d)) != NULL) {
        unsigned long long v;
        FILE *f;

        (void)snprintf(path, sizeof(path), "/proc/%ld/task/%s/schedstat", pid, e->d_name);
        f = e->d_name[0] != '.' ? fopen(path, "re") : NULL;
        if (f != NULL) {
            if (fscanf(f, "%llu", &v) == 1)
                sum += v;
            (void)fclose(f);
        }
    }
    if (d != NULL)
        (void)closedir(d);
    return sum;
}

static long
status_kib(long pid, const char *name)
{
    char path[64], line[256];
    long v = -1;
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/%ld/status", pid);
    f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            v = strtol(line + strlen(name) + 1, NULL, 10);
    if (f != NULL)
        (void)fclose(f);
    return v;
}

/* ---- run ------------------------------------------------------------------------------------ */

static int
by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void
put_samples(const char *name, struct samples *s)
{
    static const double at[] = { 0.5, 0.9, 0.99, 0.999 };
    double sum = 0;

    for (size_t i = 0; i < s->n; i++)
        sum += s->us[i];
    qsort(s->us, s->n, sizeof(*s->us), by_value);
    (void)printf("\"%s\":{\"n\":%zu,\"mean\":%.1f", name, s->n,
        s->n > 0 ? sum / (double)s->n : 0);
    for (size_t i = 0; i < 4 && s->n > 0; i++)
        (void)printf(",\"p%g\":%u", at[i] * 100,
            s->us[(size_t)((double)(s->n - 1) * at[i])]);
    (void)printf(",\"max\":%u},", s->n > 0 ? s->us[s->n - 1] : 0);
}

static void
make_request(struct load *l)
{
    static char body[1 << 20];
    char model[200] = "", key[300] = "";
    size_t n;
    const char *path = "/v1/completions";

    if (l->model != NULL)
        (void)snprintf(model, sizeof(model), "\"model\":\"%s\",", l->model);
    if (l->key != NULL)
        (void)snprintf(key, sizeof(key), "Authorization: Bearer %s\r\n", l->key);
    n = (size_t)snprintf(body, sizeof(body),
        "{%s\"prompt\":\"In the beginning\",\"max_tokens\":%d,\"ignore_eos\":true%s%s}",
        model, l->max_tokens, l->whole ? "" : ",\"stream\":true",
        l->bytes_apart ? ",\"allowed_token_ids\":[97,98,99,100,101,102,103,104]" : "");
    if (l->file != NULL) {
        FILE *f = fopen(l->file, "re");

        if (f == NULL)
            die(l->file);
        n = fread(body, 1, sizeof(body) - 1, f);
        body[n] = '\0';
        (void)fclose(f);
        if (strstr(body, "\"messages\"") != NULL)
            path = "/v1/chat/completions";
    }
    l->request = malloc(n + 1000);
    if (l->request == NULL)
        die("malloc");
    l->n_request = (size_t)sprintf(l->request,
        "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "%sContent-Length: %zu\r\n\r\n%s",
        path, key, n, body);
}

static void
run_until(struct load *l, uint64_t end)
{
    struct epoll_event ev[256];
    uint64_t now;

    while ((now = now_ns()) < end) {
        int n = epoll_wait(l->epoll, ev, 256, (int)((end - now) / 1000000) + 1);

        for (int i = 0; i < n; i++)
            take(l, ev[i].data.ptr);
    }
}

static void
args(struct load *l, int argc, char **argv)
{
    int c;

    while ((c = getopt(argc, argv, "p:n:s:t:i:b:wark:m:u:f:")) != -1)
        switch (c) {
        case 'p':
            l->port = atoi(optarg);
            break;
        case 'n':
            l->n = atoi(optarg);
            break;
        case 's':
            l->seconds = atoi(optarg);
            break;
        case 't':
            l->max_tokens = atoi(optarg);
            break;
        case 'i':
            l->idle = atoi(optarg);
            break;
        case 'b':
            l->body = (size_t)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            l->whole = 1;
            break;
        case 'a':
            l->bytes_apart = 1;
            break;
        case 'r':
            l->redial = 1;
            break;
        case 'k':
            l->key = optarg;
            break;
        case 'm':
            l->model = optarg;
            break;
        case 'u':
            l->pid = atol(optarg);
            break;
        case 'f':
            l->file = optarg;
            break;
        default:
            exit(64);
        }
}

int
main(int argc, char **argv)
{
    struct load l = { .n = 256, .seconds = 5, .max_tokens = 1000 };
    struct stream *all;
    struct rlimit r;
    int bodies_fd = -1;
    pid_t bodies = 0;
    uint64_t began, cpu, sent = 0;

    args(&l, argc, argv);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    all = calloc((size_t)l.n, sizeof(*all));
    l.itl.us = malloc(SAMPLES * 4);
    l.ttft.us = malloc(SAMPLES * 4);
    l.e2e.us = malloc(SAMPLES * 4);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (all == NULL || l.itl.us == NULL || l.ttft.us == NULL || l.e2e.us == NULL ||
        l.epoll < 0)
        die("setup");
    make_request(&l);
    for (int i = 0; i < l.idle; i++)
        (void)dial(l.port);
    for (int i = 0; i < l.n; i++)
        dial_stream(&l, &all[i]);
    if (l.body > 0)
        bodies = start_bodies(&l, &bodies_fd);
    run_until(&l, now_ns() + 1000000000u);
    if (bodies != 0)
        sent = bodies_sent(bodies_fd);
    l.measuring = 1;
    began = now_ns();
    cpu = cpu_ns(l.pid);
    run_until(&l, began + (uint64_t)l.seconds * 1000000000u);
    cpu = cpu_ns(l.pid) - cpu;
    began = now_ns() - began;
    if (bodies != 0) {
        sent = bodies_sent(bodies_fd) - sent;
        (void)kill(bodies, SIGKILL);
        (void)waitpid(bodies, NULL, 0);
    }
    (void)printf("{\"seconds\":%.3f,\"events\":%llu,\"bytes\":%llu,\"done\":%llu,"
                 "\"errors\":%llu,\"dialled\":%llu,\"bodies\":%llu,\"cpu_s\":%.4f,"
                 "\"rss_kib\":%ld,",
        (double)began / 1e9, (unsigned long long)l.events, (unsigned long long)l.bytes,
        (unsigned long long)l.done, (unsigned long long)l.errors,
        (unsigned long long)l.dialled, (unsigned long long)sent, (double)cpu / 1e9,
        l.pid != 0 ? status_kib(l.pid, "VmRSS:") : -1);
    put_samples("itl_us", &l.itl);
    put_samples("ttft_us", &l.ttft);
    put_samples("e2e_us", &l.e2e);
    (void)printf("\"streams\":%d}\n", l.n);
    return 0;
}
