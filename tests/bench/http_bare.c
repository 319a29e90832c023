/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A minimal streaming server as the baseline for fdd-http: epoll, one event of fixed size
 * for each stream and step, one send() for it. It only looks for the end of a request and
 * ignores its content.
 *
 * "http_bare [STEP_US]" prints its port. STEP_US is the length of a step (default 10000);
 * 0: no pause. A stream has 1,000 events.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define N_EVENT 1000
#define MOST    4096

struct conn {
    int fd, left; /* events */
};

static const char head[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
static struct conn *conns[MOST];
static int n_conn;

static void
take_connections(int ep, int listener)
{
    int fd, one = 1;

    while (n_conn < MOST &&
        (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *c = calloc(1, sizeof(*c));
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

        if (c == NULL)
            exit(1);
        c->fd = fd;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        conns[n_conn++] = c;
    }
}

static void
take_request(struct conn *c)
{
    char buf[65536];
    ssize_t n = recv(c->fd, buf, sizeof(buf), 0);

    if (n == 0)
        exit(0); /* the client has ended */
    if (n > 0) {
        (void)send(c->fd, head, sizeof(head) - 1, MSG_NOSIGNAL);
        c->left = N_EVENT;
    }
}

static void
step(void)
{
    char event[400], last[420];
    size_t n, n_last;

    n = (size_t)sprintf(event,
        "data: {\"id\":\"cmpl-0123456789abcdef0123456789abcdef\",\"object\":\"text_completion\","
        "\"created\":1764000000,\"model\":\"null\",\"choices\":[{\"index\":0,\"text\":\"a\","
        "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    memmove(event + 4, event, n);
    memcpy(event, "xx\r\n", 4);
    (void)snprintf(last, 3, "%02x", (unsigned)n);
    memcpy(event, last, 2);
    memcpy(event + 4 + n, "\r\n", 2);
    n += 6;
    n_last = n + 5;
    memcpy(last, event, n);
    memcpy(last + n, "0\r\n\r\n", 5);
    for (int i = 0; i < n_conn; i++) {
        struct conn *c = conns[i];

        if (c->left == 0)
            continue;
        c->left--;
        if (c->left > 0)
            (void)send(c->fd, event, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        else
            (void)send(c->fd, last, n_last, MSG_NOSIGNAL);
    }
}

int
main(int argc, char **argv)
{
    long us = argc > 1 ? atol(argv[1]) : 10000;
    struct itimerspec it = { .it_interval = { us / 1000000, us % 1000000 * 1000 },
        .it_value = { us / 1000000, us % 1000000 * 1000 } };
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof(a);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int ep = epoll_create1(EPOLL_CLOEXEC),
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &listener }, got[256];
    uint64_t n_tick;

    if (bind(listener, (struct sockaddr *)&a, sizeof(a)) != 0 ||
        listen(listener, 1024) != 0 ||
        getsockname(listener, (struct sockaddr *)&a, &len) != 0)
        return 1;
    (void)epoll_ctl(ep, EPOLL_CTL_ADD, listener, &ev);
    ev.data.ptr = &timer;
    if (us > 0) {
        (void)timerfd_settime(timer, 0, &it, NULL);
        (void)epoll_ctl(ep, EPOLL_CTL_ADD, timer, &ev);
    }
    (void)printf("%u\n", ntohs(a.sin_port));
    (void)fflush(stdout);
    for (;;) {
        int n = epoll_wait(ep, got, 256, us > 0 ? -1 : 0);

        for (int i = 0; i < n; i++) {
            if (got[i].data.ptr == &listener)
                take_connections(ep, listener);
            else if (got[i].data.ptr == &timer)
                n_tick = (uint64_t)read(timer, &n_tick, sizeof(n_tick)), step();
            else
                take_request(got[i].data.ptr);
        }
        if (us == 0)
            step();
    }
}
