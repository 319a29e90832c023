/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl chat: reads lines from a user or a pipe and prints the model's answers. */
#include "config.h"

#include "tools/fdctl/commands.h"

#include <editline/readline.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "chat/fdchat.h"

#define CHAT_HISTORY 1000 /* lines */
#define CHAT_FILE_MS 10000
#define VOC_HEAD     3 /* u16 bytes, u8 kind */
#define VOC_SPECIAL  3 /* kind */

/* A conversation: its messages, and the template that makes a prompt of them. The user's
 * lines are content: names of special tokens in them are text. */
struct chat {
    /* from the line */
    const char *system, *file; /* system message; path of a template */
    int json, no_history;
    struct fct_req req;

    fdc_t *s;
    fdchat_template_t *template;
    const char *format; /* format of answers; NULL: all is content */
    uint8_t *kind;      /* [n_kind]: of each token, if the parser gets special ones */
    uint32_t n_kind;
    char *variables;  /* JSON object for the template */
    json_t *messages; /* array */
    int is_terminal;  /* print colours, and no control characters of the model */
    int is_person, is_over, code;
    int is_unanswered; /* the last message is a line of the user whose answer failed */
    char history[512]; /* path of the history file; "": none */
};

#define FCT_ARGS struct chat
static const struct fct_opt opts[] = {
    FCT_TEXT(0, "system", "TEXT", system, "what the model is told first"),
    FCT_TEXT(0, "template", "FILE", file, "a chat template (Jinja) instead of the model's"),
    FCT_FLAG(0, "no-history", no_history,
        "neither read nor write the file of earlier lines"),
    FCT_FLAG(0, "json", json, "an object for each answer: content, finish_reason, tokens"),
    FCT_OPT_HELP, FCT_OPT_HEAD("parameters:"), FCT_OPT_END
};

static const struct fct_line line =
    FCT_LINE("fdctl chat [--system TEXT] [--template FILE] [--json] [options]",
        "Speak with the model. Lines come from the terminal, or from standard input, one a\n"
        "turn; /help lists what a line may ask for.",
        opts, .opts[1] = fct_param_opts, .req = 1 + offsetof(struct chat, req));

/* ---- the template ------------------------------------------------------------------- */

/* Read the model's tokens, and the template in path; NULL: the model's own. */
static int
read_template(struct chat *c, const char *path)
{
    static const char *const tokens[] = { "bos_token", "eos_token" };
    char err[FDCHAT_ERR_BYTES] = "", *config = NULL, *text = NULL;
    size_t n = 0;
    int rc = fdc_file(c->s, "tokenizer_config.json", &config, &n, CHAT_FILE_MS);
    json_t *all = rc == 0 ? json_loadb(config, n, 0, NULL) : NULL, *v = json_object();
    const char *own = json_string_value(json_object_get(all, "chat_template"));

    for (int i = 0; i < 2; i++) {
        json_t *token = json_object_get(all, tokens[i]); /* a text, or an object with one */

        if (json_is_object(token))
            token = json_object_get(token, "content");
        if (json_is_string(token))
            (void)json_object_set(v, tokens[i], token);
    }
    c->variables = json_dumps(v, JSON_COMPACT);
    rc = c->variables == NULL ? fct_oom() : path != NULL ? fct_slurp(path, &text, &n) : 0;
    if (path == NULL &&
        fdc_file(c->s, "chat_template.jinja", &text, &n, CHAT_FILE_MS) != 0 && own != NULL) {
        text = strdup(own);
        n = strlen(own);
    }
    json_decref(all);
    json_decref(v);
    fdc_free(config);
    if (rc == 0 && text == NULL)
        rc = fct_unav(
            "chat: the model has no chat template; generate goes on with a text, and "
            "--template names a file with a template");
    if (rc == 0 && fdchat_template_new(text, n, &c->template, err) != 0)
        rc = fct_data("chat: %s: %s", path != NULL ? path : "the model's chat template",
            err);
    if (rc == 0)
        c->format = fdchat_format_of_template(text, n);
    free(text);
    return rc;
}

/* Insert a message into the conversation. Returns 0 or an exit code. */
static int
put(struct chat *c, size_t at, const char *role, const char *text)
{
    return json_array_insert_new(c->messages, at,
               json_pack("{s:s,s:o}", "role", role, "content",
                   fct_json_text(text, strlen(text)))) == 0
        ? 0
        : fct_oom();
}

static int
is_from(const struct chat *c, size_t at, const char *role)
{
    return strcmp(fct_str(json_array_get(c->messages, at), "role"), role) == 0;
}

/* Replace the system message, or add one in front. */
static int
set_system(struct chat *c, const char *text)
{
    if (is_from(c, 0, "system"))
        (void)json_array_remove(c->messages, 0);
    return text[0] != '\0' ? put(c, 0, "system", text) : 0;
}

/* The answer's parser must tell special tokens from text that reads the same: the daemon
 * sends them apart. It leaves to us which of them show, so we must know their kinds, from
 * the file "vocabulary" (fdclient(3)). */
static int
read_kinds(struct chat *c)
{
    char *file = NULL;
    size_t n = 0, at = 0;
    uint16_t bytes;

    if (c->format == NULL || fdc_file(c->s, "vocabulary", &file, &n, CHAT_FILE_MS) != 0)
        return 0;
    c->kind = malloc(n / VOC_HEAD + 1);
    for (; c->kind != NULL && n - at >= VOC_HEAD; at += VOC_HEAD + bytes) {
        memcpy(&bytes, file + at, sizeof(bytes));
        if (n - at - VOC_HEAD < bytes)
            break;
        c->kind[c->n_kind++] = (uint8_t)file[at + 2];
    }
    fdc_free(file);
    return c->kind != NULL ? 0 : fct_oom();
}

/* ---- an answer ------------------------------------------------------------------------------ */

struct answer {
    struct chat *c;
    fdchat_answer_t *parser;
    fdc_req_t *r;
    struct fct_buf text[FDCHAT_ARGUMENTS + 1]; /* one for each kind of piece */
    struct fct_buf held; /* a token's name, until it is known whether it ended the answer */
    uint32_t held_id;
    json_t *calls, *call;
    int shows_reasoning;
    const char *finish;
    struct fdc_done done;
    struct fdc_error error;
};

static void
show(struct answer *a, int is_reasoning, const char *p, size_t n)
{
    if (a->c->json)
        return;
    if (is_reasoning != a->shows_reasoning) {
        if (a->c->is_terminal)
            fputs(is_reasoning ? "\033[2m" : "\033[0m\n", stdout);
        else
            fputs(is_reasoning ? "[reasoning] " : "\n[answer] ", stdout);
        a->shows_reasoning = is_reasoning;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        /* make the model's control characters visible on a terminal */
        if (a->c->is_terminal && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f))
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    (void)fflush(stdout);
}

static void
end_call(struct answer *a)
{
    json_t *f = json_object_get(a->call, "function");
    struct fct_buf *args = &a->text[FDCHAT_ARGUMENTS];

    if (a->call == NULL)
        return;
    (void)json_object_set_new(f, "arguments", fct_json_text(args->p, args->n));
    if (!a->c->json)
        printf("[call %s %s]\n", fct_str(f, "name"), fct_str(f, "arguments"));
    args->n = 0;
    a->call = NULL;
}

/* Take the parser's pieces, unless rc is an error. Returns rc. */
static int
take_pieces(struct answer *a, int rc)
{
    struct fdchat_piece p;

    while (rc == 0 && fdchat_answer_next(a->parser, &p) == 1) {
        if (p.kind == FDCHAT_CONTENT || p.kind == FDCHAT_REASONING)
            show(a, p.kind == FDCHAT_REASONING, p.text, p.bytes);
        if (p.kind == FDCHAT_CALL || p.kind == FDCHAT_CALL_END)
            end_call(a);
        if (p.kind == FDCHAT_CALL) {
            a->call = json_pack("{s:s,s:s,s:{s:o}}", "id", p.id, "type", "function",
                "function", "name", fct_json_text(p.text, p.bytes));
            rc = json_array_append_new(a->calls, a->call);
        } else if (p.kind <= FDCHAT_ARGUMENTS) {
            rc = fct_buf_add(&a->text[p.kind], p.text, p.bytes);
        }
    }
    return rc == 0 ? 0 : fct_oom();
}

/* Feed a held name, unless it is a special token's that was not asked for. */
static int
let_go(struct answer *a)
{
    const struct chat *c = a->c;
    int is_special = a->held_id < c->n_kind && c->kind[a->held_id] == VOC_SPECIAL;
    size_t n = a->held.n;

    a->held.n = 0;
    return n > 0 && (!is_special || (c->req.p.flags & FDC_F_KEEP_SPECIAL) != 0)
        ? take_pieces(a, fdchat_answer_feed(a->parser, a->held.p, n))
        : 0;
}

/* Names that belong to markers are fed. Another one may turn out to be the token that
 * ended the answer. */
static int
take_special(struct answer *a, uint32_t id, const char *name, size_t n)
{
    int rc = let_go(a);

    if (rc != 0)
        return rc;
    if (fdchat_format_holds(a->c->format, name, n))
        return take_pieces(a, fdchat_answer_special(a->parser, name, n));
    a->held_id = id;
    return fct_buf_add(&a->held, name, n) == 0 ? 0 : fct_oom();
}

static int
end_choice(struct answer *a, const struct fdc_choice_end *e)
{
    int ended = e->stop_id >= 0 && (uint32_t)e->stop_id == a->held_id;

    a->finish = fdc_finish_name(e->finish);
    if (ended && (a->c->req.p.flags & (FDC_F_KEEP_SPECIAL | FDC_F_KEEP_STOP)) == 0)
        a->held.n = 0;
    return let_go(a);
}

static int
take_event(struct answer *a, const struct fdc_event *ev)
{
    size_t n = 0;
    const char *text = fdc_event_text(ev, 0, &n);
    int rc;

    if (ev->type == FDC_T_TEXT)
        return (rc = let_go(a)) != 0
            ? rc
            : take_pieces(a, fdchat_answer_feed(a->parser, text, n));
    if (ev->type == FDC_T_SPECIAL)
        return take_special(a, ev->special->id, text, n);
    if (ev->type == FDC_T_CHOICE_END)
        return end_choice(a, ev->choice_end);
    if (ev->type == FDC_T_DONE)
        a->done = *ev->done;
    else if (ev->type == FDC_T_ERROR)
        a->error = *ev->error;
    return 0;
}

static int
read_answer(struct answer *a)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    int rc, failed = 0, cancelled = 0;
    char text[300];

    while ((rc = fdc_next(a->r, &ev, 100)) == 1 || rc == FDC_E_TIMEOUT) {
        if (rc == 1 && failed == 0)
            failed = take_event(a, &ev);
        if ((fct_interrupted || failed != 0) && !cancelled) {
            (void)fdc_cancel(a->r);
            cancelled = 1;
        }
    }
    if (failed == 0)
        failed = let_go(a);
    if (failed == 0)
        failed = take_pieces(a, fdchat_answer_end(a->parser));
    end_call(a);
    if (failed != 0)
        return failed;
    if (a->error.code == FDC_E_CANCELLED && fct_interrupted) {
        a->finish = "interrupted";
        return FCT_EX_INT;
    }
    if (a->error.code == FDC_OK)
        return 0;
    fct_error_text(&a->error, text, sizeof(text));
    return fct_fail(fct_exit_code(a->error.code), "%s", text);
}

static int
submit(struct answer *a, const struct fdchat_prompt *p)
{
    struct fdc_span *spans = calloc(p->n_span + 1, sizeof(*spans));
    struct fct_req q = a->c->req;
    char text[300] = "";
    int rc;

    if (spans == NULL)
        return fct_oom();
    for (size_t i = 0; i < p->n_span; i++)
        if (p->spans[i].bytes > 0)
            spans[q.p.n_spans++] =
                (struct fdc_span){ (uint32_t)p->spans[i].at, (uint32_t)p->spans[i].bytes };
    q.text = p->text;
    q.n_text = p->bytes;
    q.p.spans = spans;
    q.p.flags |= FDC_F_PARSE_SPECIAL | FDC_F_NO_SPECIAL;
    q.o.submit_timeout_ms = 10000;
    q.o.error_text = text;
    q.o.error_text_bytes = sizeof(text);
    if (a->c->n_kind > 0)
        q.p.flags |= FDC_F_ALONE;
    rc = fct_req_submit(a->c->s, &q, &a->r);
    free(spans);
    return rc == 0
        ? 0
        : fct_fail(fct_exit_code(rc), "%s", text[0] != '\0' ? text : fdc_strerror(rc));
}

static int
render(struct chat *c, struct fdchat_prompt *ret)
{
    json_t *o = json_pack("{s:O,s:b}", "messages", c->messages, "add_generation_prompt", 1);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    char err[FDCHAT_ERR_BYTES] = "";
    struct fdchat_args a = { .size = sizeof(a),
        .model = c->variables,
        .model_bytes = strlen(c->variables),
        .request = text,
        .request_bytes = text != NULL ? strlen(text) : 0 };
    int rc = text == NULL ? fct_oom() : 0;

    if (rc == 0 && fdchat_render(c->template, &a, ret, err) != 0)
        rc = fct_data("chat: the template refuses this: %s", err);
    free(text);
    json_decref(o);
    return rc;
}

/* Append the answer to the conversation; with --json print it, with counts of tokens. */
static int
keep(const struct answer *a)
{
    const struct fct_buf *said = &a->text[FDCHAT_CONTENT];
    const struct fct_buf *thought = &a->text[FDCHAT_REASONING];
    json_t *m = json_pack("{s:s, s:o, s:o*, s:O*}", "role", "assistant", "content",
        fct_json_text(said->p, strlen(said->p != NULL ? said->p : "")),
        "reasoning_content", thought->n > 0 ? fct_json_text(thought->p, thought->n) : NULL,
        "tool_calls", json_array_size(a->calls) > 0 ? a->calls : NULL);

    if (json_array_append_new(a->c->messages, m) != 0)
        return fct_oom();
    if (!a->c->json)
        return 0;
    m = json_copy(m);
    (void)json_object_update_new(m,
        json_pack("{s:s, s:I, s:I}", "finish_reason",
            a->finish != NULL ? a->finish : "error", "prompt_tokens",
            (json_int_t)a->done.prompt_tokens, "output_tokens",
            (json_int_t)a->done.output_tokens));
    (void)fct_print_json(m);
    return 0;
}

/* Print the model's answer to the conversation as it arrives and append it. Returns 0, or
 * an exit code; then nothing is appended and the user's message stays for /regenerate, until
 * the next line takes its place.
 * FCT_EX_INT: interrupted, the text so far is appended. */
static int
answer(struct chat *c)
{
    struct answer a = { .c = c, .calls = json_array() };
    struct fdchat_prompt p = { NULL };
    struct fdchat_answer_opts o = { .size = sizeof(o), .format = c->format, .no_calls = 0 };
    char err[FDCHAT_ERR_BYTES] = "";
    int rc, has_come;

    fct_interrupted = 0;
    rc = render(c, &p);
    o.prompt = p.text;
    o.prompt_bytes = p.bytes;
    o.seed = clk_now_ns();
    if (rc == 0 && fdchat_answer_new(&o, &a.parser, err) != 0)
        rc = fct_fail(EX_SOFTWARE, "chat: %s", err);
    if (rc == 0)
        rc = submit(&a, &p);
    fdchat_prompt_free(&p);
    if (rc == 0)
        rc = read_answer(&a);
    has_come = rc == 0 || rc == FCT_EX_INT;
    c->is_unanswered = !has_come;
    if (c->is_terminal && a.shows_reasoning)
        fputs("\033[0m", stdout);
    if (!c->json && has_come)
        putchar('\n');
    if (has_come && keep(&a) != 0)
        rc = EX_SOFTWARE;
    fdc_req_free(a.r);
    fdchat_answer_free(a.parser);
    free(a.held.p);
    json_decref(a.calls);
    for (int kind = 0; kind <= FDCHAT_ARGUMENTS; kind++)
        free(a.text[kind].p);
    if (rc != FCT_EX_INT || !c->is_person)
        return rc;
    fct_interrupted = 0; /* the user may go on */
    return 0;
}

static int
regenerate(struct chat *c)
{
    size_t n = json_array_size(c->messages);

    if (n > 0 && is_from(c, n - 1, "assistant"))
        (void)json_array_remove(c->messages, --n);
    if (n > 0 && is_from(c, n - 1, "user"))
        return answer(c);
    return fct_fail(0, "there is nothing to answer yet");
}

/* ---- commands --------------------------------------------------------------------------- */

static int
save(struct chat *c, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int bad = fd < 0 || json_dumpfd(c->messages, fd, JSON_INDENT(1)) != 0 ||
        write(fd, "\n", 1) != 1;

    bad |= fd >= 0 && close(fd) != 0;
    return bad ? fct_fail(EX_IOERR, "%s: %s", path, strerror(errno)) : 0;
}

/* Load a conversation: accepts only an array of objects with a role. */
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
        return fct_data("%s: line %d: %s", path, je.line, je.text);
    rc = json_is_array(all) ? 0 : -1;
    json_array_foreach(all, i, m)
        rc = json_is_string(json_object_get(m, "role")) ? rc : -1;
    if (rc != 0) {
        json_decref(all);
        return fct_data("%s: a conversation is an array of objects with role and content",
            path);
    }
    json_decref(c->messages);
    c->messages = all;
    c->is_unanswered = 0;
    if (c->is_person)
        printf("%zu messages\n", json_array_size(all));
    return 0;
}

/* Run a line that begins with a slash. Returns 0 or an exit code. */
static int
command(struct chat *c, const char *text)
{
    size_t n = strcspn(text, " ");
    const char *rest = text + n + strspn(text + n, " ");

    if (strncmp(text, "/system", n) == 0 && n == 7)
        return set_system(c, rest);
    if (strcmp(text, "/regenerate") == 0)
        return regenerate(c);
    if (strncmp(text, "/save", n) == 0 && n == 5 && rest[0] != '\0')
        return save(c, rest);
    if (strncmp(text, "/load", n) == 0 && n == 5 && rest[0] != '\0')
        return load(c, rest);
    if (strcmp(text, "/clear") == 0)
        (void)json_array_clear(c->messages);
    else if (strcmp(text, "/help") == 0)
        puts("/system TEXT   set the system message; remove it without TEXT\n"
             "/regenerate    another answer to the last line\n"
             "/save FILE     write the conversation as JSON\n"
             "/load FILE     continue a saved conversation\n"
             "/clear         forget what was said\n"
             "/exit          end, as Ctrl-D does; Ctrl-C ends an answer\n"
             "//TEXT         say /TEXT");
    else if (strcmp(text, "/exit") == 0)
        c->is_over = 1;
    else
        return fct_usage("%.*s: no such command, or no file; /help lists them", (int)n,
            text);
    return 0;
}

/* An error ends input from a pipe, as no user can try again. */
static void
take_line(struct chat *c, const char *text)
{
    size_t n = json_array_size(c->messages);

    if (text[0] == '/' && text[1] != '/') {
        c->code = command(c, text);
    } else if (text[0] != '\0') {
        text += text[0] == '/';
        c->code = fct_check_utf8("the line", text, strlen(text));
        /* Kept, it would make the next prompt too long, or two lines of the user follow
         * each other, which many templates refuse. */
        if (c->code == 0 && c->is_unanswered && n > 0 && is_from(c, n - 1, "user"))
            (void)json_array_remove(c->messages, --n);
        if (c->code == 0)
            c->code = put(c, n, "user", text);
        if (c->code == 0)
            c->code = answer(c);
    }
    c->is_over |= c->code != 0 && !c->is_person;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void
converse(struct chat *c)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *text;

    (void)using_history();
    stifle_history(CHAT_HISTORY);
    /* $XDG_STATE_HOME/fdd-chat, else $HOME/.fdd-chat; only the user may read it */
    if (!c->no_history && state != NULL && state[0] == '/')
        (void)snprintf(c->history, sizeof(c->history), "%s/fdd-chat", state);
    else if (!c->no_history && home != NULL && home[0] == '/')
        (void)snprintf(c->history, sizeof(c->history), "%s/.fdd-chat", home);
    if (c->history[0] != '\0')
        (void)read_history(c->history);
    while (!c->is_over && ((text = readline("> ")) != NULL || fct_interrupted)) {
        if (text == NULL) { /* Ctrl-C: drop the line */
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
        if (n > 0 && text[n - 1] == '\r')
            text[--n] = '\0';
        if (strlen(text) != (size_t)n) {
            c->code = fct_data("chat: a line holds a zero byte");
            break;
        }
        take_line(c, text);
    }
    free(text);
}

static int
run(struct chat *c, const struct fct *f)
{
    int rc = fct_open(f, 1 << 20, &c->s);

    c->is_person = isatty(STDIN_FILENO) && c->is_terminal;
    if (rc == 0)
        rc = read_template(c, c->file);
    if (rc == 0)
        rc = read_kinds(c);
    if (rc == 0 && c->system != NULL)
        rc = set_system(c, c->system);
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
    struct chat c = { .is_terminal = isatty(STDOUT_FILENO), .messages = json_array() };
    int rc;

    fct_req_init(&c.req);
    rc = fct_parse(&line, argc, argv, &c);
    if (rc == FCT_GO && c.req.p.n != 1)
        rc = fct_usage("chat: --n: a conversation goes on with one answer");
    if (rc == FCT_GO)
        rc = run(&c, f);
    fdchat_template_free(c.template);
    free(c.variables);
    free(c.kind);
    json_decref(c.messages);
    fdc_close(c.s);
    fct_req_fini(&c.req);
    return rc;
}
