/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/chat/talk.h"

#include <stdlib.h>
#include <string.h>

#define TLK_FILE_MS 10000

/* ---- the template ------------------------------------------------------------------- */

/* A token of tokenizer_config.json: a text, or an object with one. */
static void
add_token(json_t *to, const json_t *config, const char *name)
{
    json_t *v = json_object_get(config, name);

    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (json_is_string(v))
        (void)json_object_set(to, name, v);
}

/* The model's files: *ret_text is the template, malloc()ed, or NULL. */
static int
read_model(struct talk *t, char **ret_text, size_t *ret_n)
{
    char *config = NULL;
    size_t n = 0;
    json_t *c, *v = json_object(), *text;
    int rc = fdc_file(t->s, "tokenizer_config.json", &config, &n, TLK_FILE_MS);

    c = rc == 0 ? json_loadb(config, n, 0, NULL) : NULL;
    add_token(v, c, "bos_token");
    add_token(v, c, "eos_token");
    t->variables = json_dumps(v, JSON_COMPACT);
    *ret_text = NULL;
    if (fdc_file(t->s, "chat_template.jinja", ret_text, ret_n, TLK_FILE_MS) != 0) {
        text = json_object_get(c, "chat_template");
        *ret_text = json_is_string(text) ? strdup(json_string_value(text)) : NULL;
        *ret_n = *ret_text != NULL ? strlen(*ret_text) : 0;
    }
    json_decref(c);
    json_decref(v);
    fdc_free(config);
    return t->variables == NULL ? fct_oom() : 0;
}

int
tlk_open(struct talk *t, const char *path)
{
    char err[FDCHAT_ERR_BYTES] = "", *text = NULL;
    size_t n = 0;
    int rc = read_model(t, &text, &n);

    if (rc == 0 && path != NULL) {
        free(text);
        text = NULL;
        rc = fct_slurp(path, &text, &n);
    }
    if (rc == 0 && text == NULL)
        rc = fct_fail(FCT_EX_UNAV,
            "chat: the model has no chat template; generate goes on with a text, and "
            "--template names a file with a template");
    if (rc == 0 && fdchat_template_new(text, n, &t->template, err) != 0)
        rc = fct_fail(FCT_EX_DATA, "chat: %s: %s",
            path != NULL ? path : "the model's chat template", err);
    if (rc == 0)
        t->format = fdchat_format_of_template(text, n);
    free(text);
    if (rc == 0 && t->messages == NULL && (t->messages = json_array()) == NULL)
        rc = fct_oom();
    return rc;
}

void
tlk_close(struct talk *t)
{
    fdchat_template_free(t->template);
    free(t->variables);
    json_decref(t->messages);
    fdc_close(t->s);
}

/* ---- messages --------------------------------------------------------------------------- */

static json_t *
message(const char *role, const char *text)
{
    return json_pack("{s:s,s:o}", "role", role, "content",
        fct_json_text(text, strlen(text)));
}

int
tlk_say(struct talk *t, const char *role, const char *text)
{
    return json_array_append_new(t->messages, message(role, text)) == 0 ? 0 : fct_oom();
}

int
tlk_system(struct talk *t, const char *text)
{
    json_t *first = json_array_get(t->messages, 0);

    if (strcmp(fct_str(first, "role"), "system") == 0)
        (void)json_array_remove(t->messages, 0);
    if (text[0] == '\0')
        return 0;
    return json_array_insert_new(t->messages, 0, message("system", text)) == 0
        ? 0
        : fct_oom();
}

/* ---- an answer ------------------------------------------------------------------------------ */

struct answer {
    struct talk *t;
    fdchat_answer_t *parser;
    fdc_req_t *r;
    char *content, *reasoning, *args;
    size_t n_content, cap_content, n_reasoning, cap_reasoning, n_args, cap_args;
    json_t *calls, *call;
    int shows_reasoning, code;
    const char *finish;
    struct fdc_done done;
    struct fdc_error error;
};

static int
add_text(char **p, size_t *n, size_t *cap, const char *text, size_t bytes)
{
    if (fct_room(p, *n + bytes + 1, cap, 1) != 0)
        return fct_oom();
    memcpy(*p + *n, text, bytes);
    *n += bytes;
    (*p)[*n] = '\0';
    return 0;
}

/* On a terminal a model's control characters are shown, not obeyed. */
static void
print_text(const struct talk *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if (t->is_terminal && ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f))
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void
show(struct answer *a, int is_reasoning, const char *p, size_t n)
{
    if (a->t->quiet)
        return;
    if (is_reasoning != a->shows_reasoning) {
        if (a->t->is_terminal)
            fputs(is_reasoning ? "\033[2m" : "\033[0m\n", stdout);
        else
            fputs(is_reasoning ? "[reasoning] " : "\n[answer] ", stdout);
        a->shows_reasoning = is_reasoning;
    }
    print_text(a->t, p, n);
    (void)fflush(stdout);
}

static void
end_call(struct answer *a)
{
    json_t *f = json_object_get(a->call, "function");

    if (a->call == NULL)
        return;
    (void)json_object_set_new(f, "arguments",
        fct_json_text(a->args != NULL ? a->args : "", a->n_args));
    if (!a->t->quiet)
        printf("[call %s %s]\n", fct_str(f, "name"), fct_str(f, "arguments"));
    a->n_args = 0;
    a->call = NULL;
}

static int
begin_call(struct answer *a, const struct fdchat_piece *p)
{
    end_call(a);
    if (a->calls == NULL)
        a->calls = json_array();
    a->call = json_pack("{s:s,s:s,s:{s:o}}", "id", p->id, "type", "function", "function",
        "name", fct_json_text(p->text, p->bytes));
    return json_array_append_new(a->calls, a->call) == 0 ? 0 : fct_oom();
}

static int
take_piece(struct answer *a, const struct fdchat_piece *p)
{
    switch (p->kind) {
    case FDCHAT_CONTENT:
        show(a, 0, p->text, p->bytes);
        return add_text(&a->content, &a->n_content, &a->cap_content, p->text, p->bytes);
    case FDCHAT_REASONING:
        show(a, 1, p->text, p->bytes);
        return add_text(&a->reasoning, &a->n_reasoning, &a->cap_reasoning, p->text,
            p->bytes);
    case FDCHAT_CALL:
        return begin_call(a, p);
    case FDCHAT_ARGUMENTS:
        return add_text(&a->args, &a->n_args, &a->cap_args, p->text, p->bytes);
    case FDCHAT_CALL_END:
        end_call(a);
        break;
    }
    return 0;
}

static int
take_pieces(struct answer *a, int rc)
{
    struct fdchat_piece p;

    if (rc != 0)
        return fct_oom();
    while (rc == 0 && fdchat_answer_next(a->parser, &p) == 1)
        rc = take_piece(a, &p);
    return rc;
}

static int
take_event(struct answer *a, const struct fdc_event *ev)
{
    const char *name;
    size_t n;

    switch (ev->type) {
    case FDC_T_TEXT:
        return take_pieces(a, fdchat_answer_feed(a->parser, ev->text, ev->n));
    case FDC_T_SPECIAL:
        name = fdc_event_text(ev, 0, &n);
        return take_pieces(a, fdchat_answer_special(a->parser, name, n));
    case FDC_T_CHOICE_END:
        a->finish = fdc_finish_name(ev->choice_end->finish);
        return 0;
    case FDC_T_DONE:
        a->done = *ev->done;
        return 0;
    case FDC_T_ERROR:
        a->error = *ev->error;
        return 0;
    default:
        return 0;
    }
}

static int
read_answer(struct answer *a)
{
    struct fdc_event ev = FDC_EVENT_INIT;
    int rc, failed = 0, cancelled = 0;

    while ((rc = fdc_next(a->r, &ev, 100)) == 1 || rc == FDC_E_TIMEOUT) {
        if (rc == 1 && failed == 0)
            failed = take_event(a, &ev);
        if ((fct_interrupted || failed != 0) && !cancelled) {
            (void)fdc_cancel(a->r);
            cancelled = 1;
        }
    }
    if (failed == 0)
        failed = take_pieces(a, fdchat_answer_end(a->parser));
    end_call(a);
    if (failed != 0)
        return failed;
    if (a->error.code == FDC_E_CANCELLED && fct_interrupted) {
        a->finish = "interrupted";
        return FCT_EX_INT;
    }
    if (a->error.code != FDC_OK) {
        char text[300];

        fct_error_text(&a->error, text, sizeof(text));
        return fct_fail(fct_exit_code(a->error.code), "%s", text);
    }
    return 0;
}

static int
submit(struct answer *a, const struct fdchat_prompt *p)
{
    struct talk *t = a->t;
    struct fdc_params par = t->req->p;
    struct fdc_span *spans = calloc(p->n_span + 1, sizeof(*spans));
    char text[300] = "";
    struct fdc_submit_opts o = t->req->o;
    int rc;

    if (spans == NULL)
        return fct_oom();
    for (size_t i = 0; i < p->n_span; i++)
        if (p->spans[i].bytes > 0)
            spans[par.n_spans++] =
                (struct fdc_span){ (uint32_t)p->spans[i].at, (uint32_t)p->spans[i].bytes };
    par.spans = spans;
    par.flags |= FDC_F_PARSE_SPECIAL | FDC_F_NO_SPECIAL;
    par.stop = (const char *const *)t->req->stop;
    par.stop_len = t->req->stop_len;
    par.n_stop = t->req->n_stop;
    par.stop_ids = t->req->stop_ids;
    par.n_stop_ids = t->req->n_stop_ids;
    o.submit_timeout_ms = 10000;
    o.error_text = text;
    o.error_text_bytes = sizeof(text);
    rc = fdc_submit_text(t->s, p->text, p->bytes, &par, &o, &a->r);
    free(spans);
    return rc == 0
        ? 0
        : fct_fail(fct_exit_code(rc), "%s", text[0] != '\0' ? text : fdc_strerror(rc));
}

static int
render(struct talk *t, struct fdchat_prompt *ret)
{
    json_t *o = json_pack("{s:O,s:b}", "messages", t->messages, "add_generation_prompt", 1);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    char err[FDCHAT_ERR_BYTES] = "";
    struct fdchat_args a = { .size = sizeof(a),
        .model = t->variables,
        .model_bytes = strlen(t->variables),
        .request = text,
        .request_bytes = text != NULL ? strlen(text) : 0 };
    int rc = text == NULL ? fct_oom() : 0;

    if (rc == 0 && fdchat_render(t->template, &a, ret, err) != 0)
        rc = fct_fail(FCT_EX_DATA, "chat: the template refuses this: %s", err);
    free(text);
    json_decref(o);
    return rc;
}

/* The message, and with further members the result. */
static int
keep(struct answer *a, json_t **ret)
{
    json_t *m = message("assistant", a->content != NULL ? a->content : "");

    if (m == NULL)
        return fct_oom();
    if (a->n_reasoning > 0)
        (void)json_object_set_new(m, "reasoning_content",
            fct_json_text(a->reasoning, a->n_reasoning));
    if (a->calls != NULL)
        (void)json_object_set(m, "tool_calls", a->calls);
    if (ret != NULL) {
        *ret = json_copy(m);
        (void)json_object_set_new(*ret, "finish_reason",
            json_string(a->finish != NULL ? a->finish : "error"));
        (void)json_object_set_new(*ret, "prompt_tokens",
            json_integer(a->done.prompt_tokens));
        (void)json_object_set_new(*ret, "output_tokens",
            json_integer(a->done.output_tokens));
    }
    return json_array_append_new(a->t->messages, m) == 0 ? 0 : fct_oom();
}

int
tlk_answer(struct talk *t, json_t **ret)
{
    struct answer a = { .t = t };
    struct fdchat_prompt p = { NULL };
    struct fdchat_answer_opts o = { .size = sizeof(o), .format = t->format, .no_calls = 0 };
    char err[FDCHAT_ERR_BYTES] = "";
    int rc = render(t, &p);

    o.prompt = p.text;
    o.prompt_bytes = p.bytes;
    o.seed = clk_now_ns();
    if (rc == 0 && fdchat_answer_new(&o, &a.parser, err) != 0)
        rc = fct_fail(FCT_EX_SOFT, "chat: %s", err);
    if (rc == 0)
        rc = submit(&a, &p);
    fdchat_prompt_free(&p);
    if (rc == 0)
        rc = read_answer(&a);
    if (!t->quiet && t->is_terminal && a.shows_reasoning)
        fputs("\033[0m", stdout);
    if (!t->quiet && (rc == 0 || rc == FCT_EX_INT))
        putchar('\n');
    if ((rc == 0 || rc == FCT_EX_INT) && keep(&a, ret) != 0)
        rc = FCT_EX_SOFT;
    fdc_req_free(a.r);
    fdchat_answer_free(a.parser);
    json_decref(a.calls);
    free(a.content);
    free(a.reasoning);
    free(a.args);
    return rc;
}
