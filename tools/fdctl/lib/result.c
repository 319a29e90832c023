/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include "daemon/common/text.h"
#include "libclient/fdname.h"

int
fct_result_init(struct fct_result *r, const struct fct_req *req, size_t index)
{
    memset(r, 0, sizeof(*r));
    r->req = req;
    r->index = index;
    r->n_choices = req->p.n > 0 ? req->p.n : 1;
    r->choices = calloc(r->n_choices + 1, sizeof(*r->choices));
    if (r->choices == NULL)
        return -ENOMEM;
    r->prompt = &r->choices[r->n_choices];
    for (struct fct_choice *c = r->choices; c <= r->prompt; c++) {
        c->ids = json_array();
        c->lp = json_array();
        c->special = json_array();
    }
    return 0;
}

void
fct_result_fini(struct fct_result *r)
{
    for (struct fct_choice *c = r->choices; c != NULL && c <= r->prompt; c++) {
        json_decref(c->ids);
        json_decref(c->lp);
        json_decref(c->special);
        free(c->text.p);
    }
    free(r->choices);
    memset(r, 0, sizeof(*r));
}

int
fct_buf_add(struct fct_buf *b, const void *p, size_t n)
{
    if (fct_room(&b->p, b->n + n + 1, &b->cap, 1) != 0)
        return -ENOMEM;
    if (n > 0)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
    return 0;
}

static int
add(json_t *list, json_t *element)
{
    return json_array_append_new(list, element) == 0 ? 0 : -ENOMEM;
}

static int
add_ids(json_t *list, const uint32_t *ids, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = add(list, json_integer(ids[i]));
    return rc;
}

/* Add [position, {id, logprob, top: [[id, logprob], ...]}]. */
static int
add_logprobs(struct fct_result *r, const struct fdc_event *ev, json_t *list)
{
    const struct fdc_logprob *p = ev->logprobs;
    json_t *top = json_array();

    for (uint32_t i = 1; i < ev->n; i++)
        json_array_append_new(top,
            json_pack("[I, o]", (json_int_t)p[i].id, fct_json_real((double)p[i].logprob)));
    r->last_lp = list;
    return add(list,
        json_pack("[I, {s:I, s:o, s:o}]", (json_int_t)ev->position, "id",
            (json_int_t)(ev->n > 0 ? p[0].id : 0), "logprob",
            fct_json_real(ev->n > 0 ? (double)p[0].logprob : NAN), "top", top));
}

/* Add "text" to the tokens of the last logprobs. */
static int
add_token_text(const struct fct_result *r, const struct fdc_event *ev)
{
    json_t *entry = json_array_get(r->last_lp, json_array_size(r->last_lp) - 1);
    json_t *lp = json_array_get(entry, 1), *top = json_object_get(lp, "top"), *o = NULL;

    if (entry == NULL || json_integer_value(json_array_get(entry, 0)) != ev->position ||
        json_array_size(top) + 1 != ev->n)
        return 0;
    for (uint32_t i = 0; i < ev->n; i++) {
        size_t n = 0;
        const char *text = fdc_event_text(ev, i, &n);
        json_t *j = fct_json_text(text, text != NULL ? n : 0);

        if (i == 0)
            o = json_pack("{s:O, s:o}", "id", json_object_get(lp, "id"), "text", j);
        else
            json_array_append_new(json_array_get(top, i - 1), j);
    }
    (void)json_object_update_missing(o, lp);
    return json_array_set_new(entry, 1, o) == 0 ? 0 : -ENOMEM;
}

int
fct_result_add(struct fct_result *r, const struct fdc_event *ev, uint64_t now_ns)
{
    int is_prompt = ev->type == FDC_T_PROMPT_IDS || ev->type == FDC_T_PROMPT_TEXT ||
        ev->type == FDC_T_PROMPT_LOGPROBS;
    struct fct_choice *c =
        is_prompt ? r->prompt : &r->choices[ev->sample < r->n_choices ? ev->sample : 0];
    int rc;

    if ((ev->type == FDC_T_IDS || ev->type == FDC_T_SPECIAL) && r->t_first == 0)
        r->t_first = now_ns;
    switch (ev->type) {
    case FDC_T_ACCEPTED:
        r->accepted = *ev->accepted;
        r->is_accepted = 1;
        return 0;
    case FDC_T_PROMPT_IDS:
    case FDC_T_IDS:
        return add_ids(c->ids, ev->ids, ev->n);
    case FDC_T_SPECIAL:
        rc = add(c->special,
            json_pack("[I, I, o]", (json_int_t)ev->position, (json_int_t)ev->special->id,
                fct_json_text((const char *)(ev->special + 1), ev->special->n_text)));
        return rc == 0 ? add_ids(c->ids, &ev->special->id, 1) : rc;
    case FDC_T_TOKEN_TEXT:
        return add_token_text(r, ev);
    case FDC_T_PROMPT_TEXT:
    case FDC_T_TEXT:
        return fct_buf_add(&c->text, ev->text, ev->n);
    case FDC_T_PROMPT_LOGPROBS:
    case FDC_T_LOGPROBS:
        return add_logprobs(r, ev, c->lp);
    case FDC_T_CHOICE_END:
        c->end = *ev->choice_end;
        return 0;
    case FDC_T_DONE:
        r->done = *ev->done;
        break;
    case FDC_T_ERROR:
        r->error = *ev->error;
        break;
    default:
        return 0;
    }
    r->is_over = 1;
    r->t_end = now_ns;
    return 0;
}

json_t *
fct_json_real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *
fct_json_text(const char *text, size_t n)
{
    struct fct_buf b = { NULL, 0, 0 };
    size_t i, len;
    json_t *j;

    if (text == NULL)
        return json_string("");
    for (i = 0; i<n; i += len> 0 ? len : 1) {
        /* copy valid UTF-8, replace an invalid byte by U+FFFD */
        len = txt_utf8(text + i, n - i);
        if (fct_buf_add(&b, len > 0 ? text + i : "\xef\xbf\xbd", len > 0 ? len : 3) != 0)
            break;
    }
    j = i < n ? NULL : json_stringn_nocheck(b.p != NULL ? b.p : "", b.n);
    free(b.p);
    return j;
}

/* A list with entry i for position i; null if none came. */
static json_t *
logprobs_json(const json_t *list, size_t n_min)
{
    json_t *a = json_array();
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n; i++) {
        json_t *entry = json_array_get(list, i);
        size_t at = (size_t)json_integer_value(json_array_get(entry, 0));

        while (json_array_size(a) < at && json_array_size(a) < n_min + n)
            json_array_append_new(a, json_null());
        json_array_append(a, json_array_get(entry, 1));
    }
    while (json_array_size(a) < n_min)
        json_array_append_new(a, json_null());
    return a;
}

json_t *
fct_json_ids(const uint32_t *ids, size_t n)
{
    json_t *a = json_array();

    (void)add_ids(a, ids, n);
    return a;
}

static json_t *
stop_reason(const struct fct_result *r, const struct fct_choice *c)
{
    /* index -1 has no element */
    const json_t *text = json_array_get(r->req->list[FCT_L_STOP], (size_t)c->end.stop_str);

    if (c->end.finish != FDC_FIN_STOP)
        return json_null();
    if (text != NULL)
        return fct_json_text(json_string_value(text), json_string_length(text));
    return c->end.stop_id >= 0 ? json_integer(c->end.stop_id) : json_null();
}

static json_t *
choice_json(const struct fct_result *r, const struct fct_choice *c)
{
    uint32_t flags = r->req->p.flags, fin = c->end.finish;
    const char *finish = fin != FDC_FIN_NONE && fin != FDC_FIN_ERROR ? fdc_finish_name(fin)
        : r->error.code == FDC_E_CANCELLED
        ? "cancelled"
        : "error";

    return json_pack("{s:O, s:o, s:O*, s:o*, s:o*, s:s, s:o, s:o*}", "ids", c->ids,
        "text", fct_json_text(c->text.p, c->text.n), "special",
        (flags & FDC_F_ALONE) != 0 ? c->special : NULL, "logprobs",
        r->req->p.logprobs >= 0 ? logprobs_json(c->lp, 0) : NULL, "mean_logprob",
        r->req->p.best_of > r->req->p.n ? fct_json_real((double)c->end.mean_logprob) : NULL,
        "finish_reason", finish, "stop_reason", stop_reason(r, c), "reasoning_tokens",
        c->end.n_reasoning > 0 ? json_integer(c->end.n_reasoning) : NULL);
}

double
fct_ms(uint64_t from, uint64_t to)
{
    return to > from && from != 0 ? (double)(to - from) / 1e6 : 0;
}

static json_t *
timings_json(const struct fct_result *r)
{
    const struct fdc_done *d = &r->done;
    double gen = fct_ms(d->t_first, d->t_end), total = fct_ms(d->t_submit, d->t_end);
    /* Each choice's first token comes at t_first; the others take gen. */
    double tok_s = d->output_tokens > r->n_choices && gen > 0
        ? (d->output_tokens - r->n_choices) / gen * 1e3
        : total > 0 ? d->output_tokens / total * 1e3
                    : 0;

    return json_pack("{s:o, s:o, s:o, s:o}", "queue_ms",
        fct_json_real(fct_ms(d->t_submit, d->t_start)), "ttft_ms",
        fct_json_real(fct_ms(d->t_submit, d->t_first)), "total_ms", fct_json_real(total),
        "tokens_per_s", fct_json_real(tok_s));
}

static json_t *
error_json(const struct fdc_error *e)
{
    /* The daemon sends a refused float as its bits. */
    int is_float = (e->code == FDC_E_BAD_PARAM || e->code == FDC_E_UNSUPPORTED) &&
        fdn_detail_is_float(e->detail);
    float arg, limit;

    memcpy(&arg, &e->arg, sizeof(arg));
    memcpy(&limit, &e->limit, sizeof(limit));
    return json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:I}", "code", (int)e->code,
        "name", fdc_status_name(e->code), "message", fdc_strerror(e->code), "detail",
        e->detail != FDC_D_NONE ? json_string(fdc_detail_name(e->detail)) : json_null(),
        "arg", is_float ? fct_json_real((double)arg) : json_integer(e->arg), "limit",
        is_float            ? fct_json_real((double)limit)
            : e->limit != 0 ? json_integer(e->limit)
                            : json_null(),
        "item", e->item != 0 ? json_string(fdn_item_name(e->item)) : json_null(),
        "retry_after_ms", (json_int_t)e->retry_after_ms);
}

static json_t *
usage_json(const struct fct_result *r)
{
    const struct fdc_done *d = &r->done;
    uint64_t out = d->output_tokens;
    const struct fdc_accepted *acc = &r->accepted;
    int done = d->prompt_tokens != 0;

    for (unsigned i = 0; r->error.code != FDC_OK && i < r->n_choices; i++)
        out += json_array_size(r->choices[i].ids);
    return json_pack("{s:I, s:I, s:I, s:I}", "prompt_tokens",
        (json_int_t)(done ? d->prompt_tokens : acc->prompt_len), "cached_tokens",
        (json_int_t)(done ? d->cached_tokens : acc->cached_len), "output_tokens",
        (json_int_t)out, "preempted", (json_int_t)d->n_preempted);
}

json_t *
fct_result_json(const struct fct_result *r)
{
    json_t *usage = usage_json(r), *choices = r->n_choices > 1 ? json_array() : NULL, *c;
    int is_ok = r->error.code == FDC_OK;
    /* Until the daemon returns the prompt's ids, show those that were sent. */
    json_t *o = json_pack("{s:I, s:O*, s:o}", "index", (json_int_t)r->index, "id",
        r->req->label, "prompt_ids",
        json_array_size(r->prompt->ids) > 0 ? json_incref(r->prompt->ids)
                                            : fct_json_ids(r->req->ids, r->req->n_ids));

    for (unsigned i = 0; choices != NULL && i < r->n_choices; i++) {
        c = json_pack("{s:i}", "index", (int)i);
        json_object_update_new(c, choice_json(r, &r->choices[i]));
        json_array_append_new(choices, c);
    }
    if ((r->req->p.flags & FDC_F_PROMPT_TEXT) != 0)
        json_object_set_new(o, "prompt_text",
            fct_json_text(r->prompt->text.p, r->prompt->text.n));
    json_object_update_new(o, choice_json(r, &r->choices[0]));
    json_object_update_new(o,
        json_pack("{s:o*, s:O, s:o, s:o*, s:o*, s:o*, s:o*}", "prompt_logprobs",
            r->req->p.prompt_logprobs >= 0
                ? logprobs_json(r->prompt->lp, r->is_accepted ? r->accepted.prompt_len : 0)
                : NULL,
            "cached_tokens", json_object_get(usage, "cached_tokens"), "usage", usage, "seed",
            !r->is_accepted                     ? NULL
                : r->accepted.seed <= INT64_MAX ? json_integer((json_int_t)r->accepted.seed)
                                                : /* as text above JSON's integers */
                json_sprintf("%llu", (unsigned long long)r->accepted.seed),
            "timings", is_ok ? timings_json(r) : NULL, "choices", choices, "error",
            is_ok ? NULL : error_json(&r->error)));
    return o;
}

void
fct_error_text(const struct fdc_error *e, char *ret, size_t ret_bytes)
{
    uint32_t d = e->code == FDC_E_UNSUPPORTED ? e->detail : FDC_D_NONE;
    const char *why = "";
    size_t n;

    fdc_error_text(e, ret, ret_bytes);
    /* Lists need an entry of the pool; arg is set for an item that is never accepted. */
    if (d == FDC_D_PRESENCE || d == FDC_D_FREQUENCY || d == FDC_D_PENALTY ||
        (e->arg == 0 &&
            (d == FDC_D_BIAS_IDS || d == FDC_D_ALLOWED || d == FDC_D_BAD_WORDS ||
                d == FDC_D_LOGPROB_IDS || d == FDC_D_REASONING)))
        why = "; sched.max_penalty_seqs is 0";
    else if (d == FDC_D_LOGPROBS || d == FDC_D_PROMPT_LOGPROBS || d == FDC_D_BEST_OF)
        why = "; output.enable_logprob is no";
    n = strlen(ret);
    snprintf(ret + n, ret_bytes - n, "%s", why);
}
