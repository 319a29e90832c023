/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to several prompts at a time, in a loop of epoll(7).
 *
 *   cc -o epoll epoll.c answers.c $(pkg-config --cflags --libs libfdclient)
 *   ./epoll "In the beginning" "And he said"
 *
 * The session has one descriptor for all its requests. It is readable when fdc_dispatch()
 * has something to do; a program never reads from it.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "answers.h"

int
main(int argc, char **argv)
{
    struct answers a = { 0 };
    struct epoll_event ev = { .events = EPOLLIN };
    int ep = epoll_create1(EPOLL_CLOEXEC);

    if (ep < 0) {
        perror("epoll_create1");
        return 1;
    }
    if (answers_begin(&a, argc - 1, argv + 1) < 0)
        return 1;
    if (epoll_ctl(ep, EPOLL_CTL_ADD, fdc_fd(a.session), &ev) < 0) {
        perror("epoll_ctl");
        return 1;
    }
    /* A program would add its own descriptors to ep and handle their events here. */
    while (answers_take(&a))
        if (epoll_wait(ep, &ev, 1, -1) < 0 && errno != EINTR) {
            perror("epoll_wait");
            a.failed = 1;
            break;
        }
    close(ep);
    return answers_end(&a);
}
