/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int
prb_field(struct problem *p, const char *field, const char *fmt, ...)
{
    va_list ap;

    memset(p, 0, sizeof(*p));
    p->status = 400;
    (void)snprintf(p->param, sizeof(p->param), "%s", field);
    va_start(ap, fmt);
    (void)vsnprintf(p->text, sizeof(p->text), fmt, ap);
    va_end(ap);
    return -1;
}

int
prb_set(struct problem *p, int status, const char *code, const char *fmt, ...)
{
    va_list ap;

    memset(p, 0, sizeof(*p));
    p->status = status;
    p->code = code;
    va_start(ap, fmt);
    (void)vsnprintf(p->text, sizeof(p->text), fmt, ap);
    va_end(ap);
    return -1;
}

/* The field for a parameter of fdd, whose name may differ. */
static const char *
field_of(uint32_t detail)
{
    switch (detail) {
    case FDC_D_MAX_NEW:
        return "max_tokens";
    case FDC_D_MIN_NEW:
        return "min_tokens";
    case FDC_D_PROMPT_ID:
        return "prompt";
    case FDC_D_BIAS_IDS:
        return "logit_bias";
    case FDC_D_ALLOWED:
        return "allowed_token_ids";
    case FDC_D_STREAM:
        return "stream_interval";
    case FDC_D_NONE:
    case FDC_D_OP:
    case FDC_D_FLAGS:
    case FDC_D_ITEM:
        return "";
    default:
        return fdc_detail_name(detail);
    }
}

struct kind {
    int code, status;
    const char *name;
};
static const struct kind kinds[] = { { FDC_E_TOO_LONG, 400, "context_length_exceeded" },
    { FDC_E_BAD_PARAM, 400, "invalid_value" }, { FDC_E_BAD_TOKEN, 400, "invalid_token" },
    { FDC_E_BAD_TEXT, 400, "invalid_text" }, { FDC_E_UNSUPPORTED, 400, "unsupported" },
    { FDC_E_NO_MODEL, 400, "no_tokenizer" }, { FDC_E_NO_FILE, 404, NULL },
    { FDC_E_PERM, 403, "permission_denied" }, { FDC_E_QUEUE_FULL, 429, "queue_full" },
    { FDC_E_LIMIT, 429, "rate_limit_exceeded" }, { FDC_E_OVERLOAD, 503, "overloaded" },
    { FDC_E_LOADING, 503, "model_loading" }, { FDC_E_DRAINING, 503, "draining" },
    { FDC_E_GPU_RESET, 503, "worker_restarted" }, { FDC_E_DEADLINE, 504, "deadline" },
    { FDC_E_CANCELLED, 503, "cancelled" }, { FDC_E_DISCONNECTED, 503, "daemon_lost" },
    { FDC_E_CONNECT, 503, "daemon_lost" }, { FDC_E_TIMEOUT, 503, "daemon_slow" },
    { FDC_E_SLOW, 503, "daemon_lost" }, { FDC_E_NOMEM, 503, "out_of_memory" },
    { FDC_E_ARENA, 400, "prompt_too_long" }, { FDC_E_UNREAD, 503, "out_of_memory" } };

void
prb_from_status(struct problem *p, int status)
{
    const struct kind *k = NULL;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (kinds[i].code == status)
            k = &kinds[i];
    (void)prb_set(p, k != NULL ? k->status : 500, k != NULL ? k->name : "internal", "%s",
        fdc_strerror(status));
    if (p->status == 503 || p->status == 429)
        p->retry_ms = 1000;
}

void
prb_from_error(struct problem *p, const struct fdc_error *e)
{
    char text[400];

    prb_from_status(p, e->code);
    (void)snprintf(p->param, sizeof(p->param), "%s", field_of(e->detail));
    if (e->retry_after_ms != 0)
        p->retry_ms = e->retry_after_ms;
    if (e->code == FDC_E_TOO_LONG && e->limit != 0)
        (void)snprintf(p->param, sizeof(p->param), "messages");
    if (e->code == FDC_E_TOO_LONG && e->detail == FDC_D_MAX_NEW && e->item != 0) {
        (void)snprintf(p->text, sizeof(p->text),
            "This model's maximum context length is %u tokens; the prompt and the tokens "
            "asked for are %u. Shorten the prompt or lower max_tokens.",
            e->limit, e->arg);
        return;
    }
    /* The user was set in the file of keys; fdd's configuration must allow it. */
    if (e->detail == FDC_D_USER) {
        p->status = 500;
        p->code = "configuration";
        (void)snprintf(p->text, sizeof(p->text),
            "fdd does not let fdd-http act for the user of this key; fix: name its user in "
            "ipc.trusted_users of fdd.ini");
        p->param[0] = '\0';
        return;
    }
    (void)snprintf(p->text, sizeof(p->text), "%s", fdc_error_text(e, text, sizeof(text)));
}

/* Is the match at `at`, of n bytes, a whole name and not part of a longer one? */
static int
is_whole(const char *text, const char *at, size_t n)
{
    static const char in_name[] = "abcdefghijklmnopqrstuvwxyz_0123456789";

    return (at == text || strchr(in_name, at[-1]) == NULL) &&
        (at[n] == '\0' || strchr(in_name, at[n]) == NULL);
}

static void
rename_in(struct problem *p, const char *was, const char *is)
{
    struct buf b = { NULL };
    const char *at = p->text, *hit;

    while ((hit = strstr(at, was)) != NULL) {
        int whole = is_whole(p->text, hit, strlen(was));

        buf_add(&b, at, (size_t)(hit - at));
        buf_str(&b, whole ? is : was);
        at = hit + strlen(was);
    }
    buf_str(&b, at);
    if (!b.failed)
        (void)snprintf(p->text, sizeof(p->text), "%s", b.p);
    buf_fini(&b);
}

void
prb_rename(struct problem *p, const char *const (*names)[2])
{
    for (; names != NULL && (*names)[0] != NULL; names++) {
        if (strcmp(p->param, (*names)[0]) == 0)
            (void)snprintf(p->param, sizeof(p->param), "%s", (*names)[1]);
        rename_in(p, (*names)[0], (*names)[1]);
    }
}

static const char *
type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "service_unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

void
prb_json(const struct problem *p, struct buf *b)
{
    buf_str(b, "{\"error\":{\"message\":");
    buf_json(b, p->text, strlen(p->text));
    buf_fmt(b,
        ",\"type\":\"%s\",\"param\":", p->type != NULL ? p->type : type_of(p->status));
    if (p->param[0] != '\0')
        buf_json(b, p->param, strlen(p->param));
    else
        buf_str(b, "null");
    if (p->code != NULL)
        buf_fmt(b, ",\"code\":\"%s\"}}", p->code);
    else
        buf_str(b, ",\"code\":null}}");
}

void
prb_json_messages(const struct problem *p, struct buf *b)
{
    static const struct {
        int status;
        const char *type;
    } types[] = { { 401, "authentication_error" }, { 403, "permission_error" },
        { 404, "not_found_error" }, { 413, "request_too_large" },
        { 429, "rate_limit_error" }, { 503, "overloaded_error" },
        { 504, "timeout_error" } };
    const char *type = p->status < 500 ? "invalid_request_error" : "api_error";
    struct buf text = { NULL };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].status == p->status)
            type = types[i].type;
    /* Programs recognise these texts and shorten the conversation or max_tokens. */
    if (p->n_asked != 0)
        buf_fmt(&text, "input length and `max_tokens` exceed context limit: %u + %u > %u. ",
            p->n_prompt, p->n_asked, p->limit);
    else if (p->code != NULL && strcmp(p->code, "context_length_exceeded") == 0 &&
        strcmp(p->param, "max_tokens") != 0)
        buf_str(&text, "prompt is too long: ");
    buf_str(&text, p->text);
    buf_fmt(b, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    buf_json(b, text.p, text.n);
    buf_str(b, "},\"request_id\":null}");
    buf_fini(&text);
}
