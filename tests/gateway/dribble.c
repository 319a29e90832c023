/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that send a request byte by byte, and their effect on a client that sends
 * requests all the time. One thread has the slow clients, each of which sends a byte
 * every DRIBBLE_MS, spread evenly over that time. Another thread requests /version and
 * measures the time of each answer: first alone, then together with the slow clients.
 *
 *   dribble PORT CLIENTS BODIES SECONDS    BODIES of the clients send a head at once and
 *                                          dribble the body; all must end within SECONDS
 *
 * Prints one line. Exit status 0: all have ended, at least nine of ten with status 408;
 * slow readers of the answer are ended elsewhere.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DRIBBLE_MS  100
#define ASK_NS      200000u /* time between two requests */
#define MAX_ANSWERS (1u << 18)
#define MAX_CLIENTS 8192

struct slow {
    int fd; /* -1: the connection has ended */
    int told;
};

struct answers {
    uint32_t us[MAX_ANSWERS];
    size_t n;
};

struct all {
    int port, n, bodies, epoll;
    struct slow slow[MAX_CLIENTS];
    int left, told;
    atomic_int is_attack, is_over;
    struct answers alone, meanwhile;
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
    fprintf(stderr, "dribble: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void
sleep_until(uint64_t ns)
{
    struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000u),
        .tv_nsec = (long)(ns % 1000000000u) };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        ;
}

static int
dial(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        die("no connection");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* ---- the client that measures -------------------------------------------------------- */

static void
ask(int fd, struct answers *a)
{
    static const char question[] = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[4096];
    uint64_t began = now_ns();
    ssize_t n;

    if (send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) !=
        (ssize_t)sizeof(question) - 1)
        die("send");
    n = recv(fd, answer, sizeof(answer), 0); /* the answer is short and
                                              * arrives in one piece */
    if (n < 12 || memcmp(answer, "HTTP/1.1 200", 12) != 0)
        die("no answer to /version");
    if (a->n < MAX_ANSWERS)
        a->us[a->n++] = (uint32_t)((now_ns() - began) / 1000);
}

static void *
ask_on(void *arg)
{
    struct all *all = arg;
    int fd = dial(all->port);

    while (!atomic_load(&all->is_over)) {
        uint64_t next = now_ns() + ASK_NS;

        ask(fd, atomic_load(&all->is_attack) ? &all->meanwhile : &all->alone);
        sleep_until(next);
    }
    (void)close(fd);
    return NULL;
}

static int
by_time(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static uint32_t
quantile(struct answers *a, double q)
{
    if (a->n == 0)
        return UINT32_MAX;
    qsort(a->us, a->n, sizeof(*a->us), by_time);
    return a->us[(size_t)(q * (double)(a->n - 1))];
}

/* ---- the slow ------------------------------------------------------------------------- */

static void
begin(struct all *all, int i)
{
    static const char *const heads[] = { "GET /version HTTP/1.1\r\nX-A: ",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" };
    static const char body[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 1000000\r\n\r\n{\"prompt\": \"";
    const char *head = i < all->bodies ? body : heads[i % 2];
    struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP, .data.u32 = (uint32_t)i };
    struct slow *s = &all->slow[i];

    s->fd = dial(all->port);
    if (send(s->fd, head, strlen(head), MSG_NOSIGNAL) < 0 ||
        epoll_ctl(all->epoll, EPOLL_CTL_ADD, s->fd, &ev) != 0)
        die("a slow client");
    all->left++;
}

static void
take(struct all *all, struct slow *s)
{
    char text[4096];
    ssize_t n = recv(s->fd, text, sizeof(text) - 1, MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0) {
        text[n] = '\0';
        s->told |= strstr(text, " 408 ") != NULL;
        return;
    }
    all->told += s->told;
    all->left--;
    (void)close(s->fd);
    s->fd = -1;
}

/* Sends one byte for each client, a hundredth of the clients each millisecond. */
static void
dribble(struct all *all, uint64_t until)
{
    struct epoll_event ev[64];
    uint64_t next = now_ns();

    for (int tick = 0; all->left > 0 && next < until; tick = (tick + 1) % DRIBBLE_MS) {
        int n;

        for (int i = tick; i < all->n; i += DRIBBLE_MS)
            if (all->slow[i].fd >= 0 && !all->slow[i].told)
                (void)send(all->slow[i].fd, "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        n = epoll_wait(all->epoll, ev, 64, 0);
        for (int i = 0; i < n; i++)
            take(all, &all->slow[ev[i].data.u32]);
        next += 1000000;
        sleep_until(next);
    }
}

int
main(int argc, char **argv)
{
    static struct all all;
    struct rlimit files;
    pthread_t asks;
    uint64_t began;

    if (argc != 5 || (all.n = atoi(argv[2])) < 1 || all.n > MAX_CLIENTS) {
        fprintf(stderr, "usage: dribble PORT CLIENTS BODIES SECONDS, of 1 to %d clients\n",
            MAX_CLIENTS);
        return 64;
    }
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    all.port = atoi(argv[1]);
    all.bodies = atoi(argv[3]);
    all.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (all.epoll < 0 || pthread_create(&asks, NULL, ask_on, &all) != 0)
        die("beginning");
    sleep_until(now_ns() + 1000000000u);
    atomic_store(&all.is_attack, 1);
    began = now_ns();
    for (int i = 0; i < all.n; i++)
        begin(&all, i);
    dribble(&all, began + (uint64_t)atoi(argv[4]) * 1000000000u);
    atomic_store(&all.is_over, 1);
    (void)pthread_join(asks, NULL);
    printf("%d dribbling clients, %d of them in a body: ended after %.1f s, %d told why, %d left; "
           "others' p50 %u us, p99 %u, most %u, of %zu; alone %u, %u, %u, of %zu\n",
        all.n, all.bodies, (double)(now_ns() - began) / 1e9, all.told, all.left,
        quantile(&all.meanwhile, 0.5), quantile(&all.meanwhile, 0.99),
        quantile(&all.meanwhile, 1), all.meanwhile.n, quantile(&all.alone, 0.5),
        quantile(&all.alone, 0.99), quantile(&all.alone, 1), all.alone.n);
    return all.left != 0 || all.told * 10 < all.n * 9;
}
