/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl chat: lines of a person, or of a pipe, and the model's answers. */
#include "config.h"

#include "tools/fdctl/commands.h"

#include <editline/readline.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/fdctl/chat/talk.h"

#define CHAT_HISTORY 1000 /* lines */

struct chat_args {
    const char *system, *template;
    int json, no_history;
    struct fct_req req;
};

static const struct fct_opt opts[] = { { "system", 0, "TEXT", "what the model is told first",
                                           FCT_TEXT(struct chat_args, system) },
    { "template", 0, "FILE", "a chat template (Jinja) instead of the model's",
        FCT_TEXT(struct chat_args, template) },
    { "no-history", 0, NULL, "neither read nor write the file of earlier lines",
        FCT_FLAG(struct chat_args, no_history) },
    FCT_OPT_JSON(struct chat_args,
        "an object for each answer: content, finish_reason, tokens"),
    FCT_OPT_HELP, FCT_OPT_HEAD("parameters:"), FCT_OPT_END };

static const struct fct_line line = {
    .usage = "fdctl chat [--system TEXT] [--template FILE] [--json] [options]",
    .about =
        "Speak with the model. Lines come from the terminal, or from standard input, one a\n"
        "turn; /help lists what a line may ask for.",
    .opts = { opts, fct_param_opts },
    .req = 1 + offsetof(struct chat_args, req)
};

struct chat {
    struct talk t;
    const struct chat_args *a;
    int is_person, is_over, code;
    char history[512]; /* file; "": none */
};

/* ---- one turn -------------------------------------------------------------------------- */

static void
answer(struct chat *c)
{
    json_t *result = NULL;
    int rc;

    fct_interrupted = 0;
    rc = tlk_answer(&c->t, c->a->json ? &result : NULL);
    if (result != NULL)
        (void)fct_print_json(result);
    if (rc == FCT_EX_INT && c->is_person)
        rc = 0; /* the next line may come */
    if (rc != 0) {
        /* What was said stays, for /regenerate; a pipe has no one to try again. */
        c->code = rc;
        c->is_over = !c->is_person || rc == FCT_EX_INT;
    } else {
        c->code = 0;
    }
}

static void
regenerate(struct chat *c)
{
    size_t n = json_array_size(c->t.messages);

    if (n > 0 &&
        strcmp(fct_str(json_array_get(c->t.messages, n - 1), "role"), "assistant") == 0)
        (void)json_array_remove(c->t.messages, --n);
    if (n == 0 ||
        strcmp(fct_str(json_array_get(c->t.messages, n - 1), "role"), "user") != 0) {
        (void)fct_fail(0, "there is nothing to answer yet");
        return;
    }
    answer(c);
}

/* ---- commands --------------------------------------------------------------------------- */

static int
save(struct chat *c, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char *text = json_dumps(c->t.messages, JSON_INDENT(1));
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    int bad = f == NULL || text == NULL || fprintf(f, "%s\n", text) < 0;

    bad |= f != NULL && fclose(f) != 0;
    free(text);
    return bad ? fct_fail(FCT_EX_IO, "%s: %s", path, strerror(errno)) : 0;
}

/* Only what a conversation is: an array of objects with a role. */
static int
load(struct chat *c, const char *path)
{
    json_error_t je;
    json_t *m, *all;
    char *text;
    size_t n, i;
    int rc = fct_slurp(path, &text, &n);

    if (rc != 0)
        return rc;
    all = json_loadb(text, n, 0, &je);
    free(text);
    if (all == NULL)
        return fct_fail(FCT_EX_DATA, "%s: line %d: %s", path, je.line, je.text);
    rc = json_is_array(all) ? 0 : -1;
    json_array_foreach(all, i, m)
        rc = json_is_string(json_object_get(m, "role")) ? rc : -1;
    if (rc != 0) {
        json_decref(all);
        return fct_fail(FCT_EX_DATA,
            "%s: a conversation is an array of objects with role and content", path);
    }
    json_decref(c->t.messages);
    c->t.messages = all;
    if (c->is_person)
        printf("%zu messages\n", json_array_size(all));
    return 0;
}

static void
help(void)
{
    puts("/system TEXT   tell the model this first; without TEXT nothing\n"
         "/regenerate    another answer to the last line\n"
         "/save FILE     write the conversation as JSON\n"
         "/load FILE     go on with one\n"
         "/clear         forget what was said\n"
         "/exit          end, as Ctrl-D does; Ctrl-C ends an answer\n"
         "//TEXT         say /TEXT");
}

/* A line that begins with a slash. */
static void
command(struct chat *c, const char *text)
{
    size_t n = strcspn(text, " ");
    const char *rest = text + n + strspn(text + n, " ");
    int rc = 0;

    if (strncmp(text, "/system", n) == 0 && n == 7)
        rc = tlk_system(&c->t, rest);
    else if (strcmp(text, "/regenerate") == 0)
        regenerate(c);
    else if (strncmp(text, "/save", n) == 0 && n == 5 && rest[0] != '\0')
        rc = save(c, rest);
    else if (strncmp(text, "/load", n) == 0 && n == 5 && rest[0] != '\0')
        rc = load(c, rest);
    else if (strcmp(text, "/clear") == 0)
        (void)json_array_clear(c->t.messages);
    else if (strcmp(text, "/help") == 0)
        help();
    else if (strcmp(text, "/exit") == 0)
        c->is_over = 1;
    else
        rc = fct_fail(FCT_EX_USAGE, "%.*s: no such command, or no file; /help lists them",
            (int)n, text);
    if (rc != 0) {
        c->code = rc;
        c->is_over = !c->is_person;
    }
}

static void
take_line(struct chat *c, const char *text)
{
    size_t n = strlen(text);

    if (n == 0)
        return;
    if (text[0] == '/' && text[1] != '/') {
        command(c, text);
        return;
    }
    text += text[0] == '/';
    c->code = fct_check_utf8("the line", text, strlen(text));
    if (c->code == 0)
        c->code = tlk_say(&c->t, "user", text);
    if (c->code == 0)
        answer(c);
    else
        c->is_over = !c->is_person;
}

/* ---- lines --------------------------------------------------------------------------------- */

/* $XDG_STATE_HOME/fdd-chat, else below $HOME; the user's alone. */
static void
find_history(struct chat *c)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (c->a->no_history)
        return;
    if (state != NULL && state[0] == '/')
        (void)snprintf(c->history, sizeof(c->history), "%s/fdd-chat", state);
    else if (home != NULL && home[0] == '/')
        (void)snprintf(c->history, sizeof(c->history), "%s/.fdd-chat", home);
}

static void
converse(struct chat *c)
{
    char *text;

    (void)using_history();
    stifle_history(CHAT_HISTORY);
    find_history(c);
    if (c->history[0] != '\0')
        (void)read_history(c->history);
    while (!c->is_over) {
        text = readline("> ");
        if (text == NULL && !fct_interrupted)
            break;
        if (text == NULL) { /* Ctrl-C: the line is given up */
            fct_interrupted = 0;
            putchar('\n');
            continue;
        }
        if (text[0] != '\0')
            (void)add_history(text);
        take_line(c, text);
        free(text);
    }
    if (!c->is_over)
        putchar('\n');
    if (c->history[0] != '\0') {
        mode_t was = umask(0077);

        (void)write_history(c->history);
        (void)umask(was);
    }
    c->code = 0;
}

static void
read_pipe(struct chat *c)
{
    char *text = NULL;
    size_t cap = 0;
    ssize_t n;

    while (!c->is_over && (n = getline(&text, &cap, stdin)) >= 0) {
        if (n > 0 && text[n - 1] == '\n')
            text[--n] = '\0';
        if (strlen(text) != (size_t)n) {
            c->code = fct_fail(FCT_EX_DATA, "chat: a line holds a zero byte");
            break;
        }
        take_line(c, text);
    }
    free(text);
}

/* 0 or an exit code. */
static int
run(struct chat *c, const struct fct *f)
{
    int rc;

    c->is_person = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    c->t.is_terminal = isatty(STDOUT_FILENO);
    c->t.quiet = c->a->json;
    rc = fct_open(f, 1 << 20, &c->t.s);
    if (rc == 0)
        rc = tlk_open(&c->t, c->a->template);
    if (rc == 0 && c->a->system != NULL)
        rc = tlk_system(&c->t, c->a->system);
    if (rc != 0)
        return rc;
    fct_catch(SIGINT, 0);
    if (c->is_person)
        converse(c);
    else
        read_pipe(c);
    rc = fct_flush();
    return c->code != 0 ? c->code : rc;
}

int
fct_cmd_chat(const struct fct *f, int argc, char **argv)
{
    struct chat_args a = { .system = NULL };
    struct chat c = { .a = &a };
    int rc;

    fct_req_init(&a.req);
    rc = fct_parse(&line, argc, argv, &a);
    if (rc == FCT_GO && a.req.p.n != 1)
        rc = fct_fail(FCT_EX_USAGE, "chat: --n: a conversation goes on with one answer");
    c.t.req = &a.req;
    if (rc == FCT_GO)
        rc = run(&c, f);
    tlk_close(&c.t);
    fct_req_fini(&a.req);
    return rc;
}
