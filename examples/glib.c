/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to several prompts at a time, in GLib's main loop, which GTK uses too.
 *
 *   cc -o glib glib.c answers.c $(pkg-config --cflags --libs libfdclient glib-2.0)
 *   ./glib "In the beginning" "And he said"
 */
#include <glib-unix.h>

#include "answers.h"

struct program {
    struct answers answers;
    GMainLoop *loop;
};

static gboolean
on_readable(gint fd, GIOCondition condition, gpointer data)
{
    struct program *p = data;

    (void)fd;
    (void)condition;
    if (answers_take(&p->answers))
        return G_SOURCE_CONTINUE;
    g_main_loop_quit(p->loop);
    return G_SOURCE_REMOVE;
}

int
main(int argc, char **argv)
{
    struct program p = { { 0 }, g_main_loop_new(NULL, FALSE) };

    if (answers_begin(&p.answers, argc - 1, argv + 1) < 0)
        return 1;
    /* Events that came before the loop runs do not make the descriptor readable again. */
    if (answers_take(&p.answers)) {
        g_unix_fd_add(fdc_fd(p.answers.session), G_IO_IN, on_readable, &p);
        g_main_loop_run(p.loop);
    }
    g_main_loop_unref(p.loop);
    return answers_end(&p.answers);
}
