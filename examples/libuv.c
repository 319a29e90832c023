/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to several prompts at a time, in a loop of libuv.
 *
 *   cc -o libuv libuv.c answers.c $(pkg-config --cflags --libs libfdclient libuv)
 *   ./libuv "In the beginning" "And he said"
 */
#include <stdio.h>
#include <uv.h>

#include "answers.h"

static void
on_readable(uv_poll_t *poll, int status, int events)
{
    struct answers *a = poll->data;

    (void)events;
    if (status < 0)
        fprintf(stderr, "poll: %s\n", uv_strerror(status));
    /* Without active handles uv_run() returns. */
    if (status < 0 || !answers_take(a))
        uv_poll_stop(poll);
}

int
main(int argc, char **argv)
{
    struct answers a = { 0 };
    uv_loop_t *loop = uv_default_loop();
    uv_poll_t poll;

    if (answers_begin(&a, argc - 1, argv + 1) < 0)
        return 1;
    uv_poll_init(loop, &poll, fdc_fd(a.session));
    poll.data = &a;
    /* Events that came before the loop runs do not make the descriptor readable again. */
    if (answers_take(&a))
        uv_poll_start(&poll, UV_READABLE, on_readable);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&poll, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
    return answers_end(&a);
}
