/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/fct.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"
#include "libclient/fdname.h"

int
fct_result_init(struct fct_result *r, const struct fct_req *req, size_t index)
{
    memset(r, 0, sizeof(*r));
    r->req = req;
    r->index = index;
    r->n_choices = req->p.n > 0 ? req->p.n : 1;
    r->choices = calloc(r->n_choices, sizeof(*r->choices));
    return r->choices != NULL ? 0 : -ENOMEM;
}

void
fct_result_fini(struct fct_result *r)
{
    unsigned i;

    for (i = 0; r->choices != NULL && i < r->n_choices; i++) {
        free(r->choices[i].ids);
        free(r->choices[i].text);
        free(r->choices[i].lp);
        free(r->choices[i].special);
    }
    free(r->choices);
    free(r->prompt_ids);
    free(r->prompt_text);
    free(r->texts);
    free(r->plp);
    free(r->lps);
    memset(r, 0, sizeof(*r));
}

/* Append add elements of size bytes to the array behind the pointer at p. */
static int
append(void *p, size_t *n, size_t *cap, const void *src, size_t add, size_t size)
{
    char *base;

    if (fct_room(p, *n + add, cap, size) != 0)
        return -ENOMEM;
    memcpy(&base, p, sizeof(base));
    if (add > 0)
        memcpy(base + *n * size, src, add * size);
    *n += add;
    return 0;
}

static int
add_logprobs(struct fct_result *r, const struct fdc_event *ev, struct fct_choice *c)
{
    struct fct_lp lp = { .at = (uint32_t)r->n_lps, .n = ev->n, .position = ev->position };
    int rc = append(&r->lps, &r->n_lps, &r->cap_lps, ev->logprobs, ev->n, sizeof(*r->lps));

    if (rc != 0)
        return rc;
    r->last_lp_is_prompt = ev->type == FDC_T_PROMPT_LOGPROBS;
    return ev->type == FDC_T_LOGPROBS
        ? append(&c->lp, &c->n_lp, &c->cap_lp, &lp, 1, sizeof(lp))
        : append(&r->plp, &r->n_plp, &r->cap_plp, &lp, 1, sizeof(lp));
}

/* Of the tokens of the logprobs that came last. */
static int
add_token_text(struct fct_result *r, const struct fdc_event *ev, struct fct_choice *c)
{
    struct fct_lp *lp = r->last_lp_is_prompt && r->n_plp > 0 ? &r->plp[r->n_plp - 1]
        : !r->last_lp_is_prompt && c->n_lp > 0
        ? &c->lp[c->n_lp - 1]
        : NULL;

    size_t at = r->n_texts, n;
    const char *text;
    uint16_t len;
    int rc = 0;

    if (lp == NULL || lp->position != ev->position || ev->n != lp->n)
        return 0;
    for (uint32_t i = 0; i < ev->n && rc == 0; i++) {
        text = fdc_event_text(ev, i, &n);
        len = text != NULL ? (uint16_t)n : 0;
        rc = append(&r->texts, &r->n_texts, &r->cap_texts, &len, sizeof(len), 1);
        if (rc == 0)
            rc = append(&r->texts, &r->n_texts, &r->cap_texts, text, len, 1);
    }
    lp->text = (uint32_t)at + 1;
    return rc;
}

static int
add_special(struct fct_result *r, const struct fdc_event *ev, struct fct_choice *c)
{
    struct fct_special sp = { .id = ev->special->id,
        .position = ev->position,
        .at = r->n_texts,
        .n = ev->special->n_text };
    int rc = append(&r->texts, &r->n_texts, &r->cap_texts, ev->special + 1, sp.n, 1);

    if (rc == 0)
        rc = append(&c->ids, &c->n_ids, &c->cap_ids, &sp.id, 1, sizeof(sp.id));
    return rc != 0
        ? rc
        : append(&c->special, &c->n_special, &c->cap_special, &sp, 1, sizeof(sp));
}

int
fct_result_add(struct fct_result *r, const struct fdc_event *ev, uint64_t now_ns)
{
    struct fct_choice *c = &r->choices[ev->sample < r->n_choices ? ev->sample : 0];

    switch (ev->type) {
    case FDC_T_ACCEPTED:
        r->accepted = *ev->accepted;
        r->is_accepted = 1;
        return 0;
    case FDC_T_PROMPT_IDS:
        return append(&r->prompt_ids, &r->n_prompt_ids, &r->cap_prompt_ids, ev->ids,
            ev->n, sizeof(*r->prompt_ids));
    case FDC_T_IDS:
        if (r->t_first == 0)
            r->t_first = now_ns;
        return append(&c->ids, &c->n_ids, &c->cap_ids, ev->ids, ev->n, sizeof(*c->ids));
    case FDC_T_SPECIAL:
        if (r->t_first == 0)
            r->t_first = now_ns;
        return add_special(r, ev, c);
    case FDC_T_PROMPT_TEXT:
        return append(&r->prompt_text, &r->n_prompt_text, &r->cap_prompt_text, ev->text,
            ev->n, 1);
    case FDC_T_TOKEN_TEXT:
        return add_token_text(r, ev, c);
    case FDC_T_TEXT:
        return append(&c->text, &c->n_text, &c->cap_text, ev->text, ev->n, 1);
    case FDC_T_LOGPROBS:
    case FDC_T_PROMPT_LOGPROBS:
        return add_logprobs(r, ev, c);
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
    static const char mark[] = "\xef\xbf\xbd";
    size_t i, len, at = 0;
    uint32_t cp;
    json_t *j;
    char *buf;

    if (text == NULL)
        return json_string("");
    if (txt_utf8(text, n) == n)
        return json_stringn_nocheck(text, n);
    buf = malloc(3 * n + 1);
    if (buf == NULL)
        return NULL;
    for (i = 0; i<n; i += len> 0 ? len : 1) {
        len = txt_char(text + i, n - i, &cp);
        memcpy(buf + at, len > 0 ? text + i : mark, len > 0 ? len : 3);
        at += len > 0 ? len : 3;
    }
    j = json_stringn_nocheck(buf, at);
    free(buf);
    return j;
}

json_t *
fct_json_ids(const uint32_t *ids, size_t n)
{
    json_t *a = json_array();
    size_t i;

    for (i = 0; a != NULL && i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

/* The text of token i of lp; NULL: none came. */
static json_t *
token_json(const struct fct_result *r, const struct fct_lp *lp, uint32_t i)
{
    const char *at;
    uint16_t len;

    if (lp->text == 0)
        return NULL;
    at = r->texts + lp->text - 1;
    memcpy(&len, at, sizeof(len));
    for (uint32_t k = 0; k < i; k++) {
        at += sizeof(len) + len;
        memcpy(&len, at, sizeof(len));
    }
    return fct_json_text(at + sizeof(len), len);
}

/* {id, text, logprob, top: [[id, logprob, text], ...]}, without the texts where none
 * came */
static json_t *
logprob_json(const struct fct_result *r, const struct fct_lp *lp)
{
    const struct fdc_logprob *p = &r->lps[lp->at];
    json_t *top = json_array();
    uint32_t i;

    for (i = 1; i < lp->n; i++) {
        json_t *one = json_array();

        json_array_append_new(one, json_integer(p[i].id));
        json_array_append_new(one, fct_json_real((double)p[i].logprob));
        if (lp->text != 0)
            json_array_append_new(one, token_json(r, lp, i));
        json_array_append_new(top, one);
    }
    return json_pack("{s:I, s:o*, s:o, s:o}", "id", (json_int_t)(lp->n > 0 ? p[0].id : 0),
        "text", token_json(r, lp, 0), "logprob",
        fct_json_real(lp->n > 0 ? (double)p[0].logprob : NAN), "top", top);
}

/* [[position, id, text], ...] */
static json_t *
special_json(const struct fct_result *r, const struct fct_choice *c)
{
    json_t *a = json_array();

    for (size_t i = 0; i < c->n_special; i++) {
        const struct fct_special *sp = &c->special[i];

        json_array_append_new(a,
            json_pack("[I, I, o]", (json_int_t)sp->position, (json_int_t)sp->id,
                fct_json_text(r->texts + sp->at, sp->n)));
    }
    return a;
}

/* Entry i for position i; null where none came. */
static json_t *
logprobs_json(const struct fct_result *r, const struct fct_lp *lp, size_t n, size_t n_min)
{
    json_t *a = json_array();
    size_t i;

    for (i = 0; i < n; i++) {
        while (json_array_size(a) < lp[i].position && json_array_size(a) < n_min + n)
            json_array_append_new(a, json_null());
        json_array_append_new(a, logprob_json(r, &lp[i]));
    }
    while (json_array_size(a) < n_min)
        json_array_append_new(a, json_null());
    return a;
}

static const char *
finish_name(const struct fct_result *r, const struct fct_choice *c)
{
    if (c->end.finish != FDC_FIN_NONE && c->end.finish != FDC_FIN_ERROR)
        return fdc_finish_name(c->end.finish);
    return r->error.code == FDC_E_CANCELLED ? "cancelled" : "error";
}

static json_t *
stop_reason(const struct fct_result *r, const struct fct_choice *c)
{
    const struct fct_req *q = r->req;

    if (c->end.finish != FDC_FIN_STOP)
        return json_null();
    if (c->end.stop_str >= 0 && (uint32_t)c->end.stop_str < q->n_stop)
        return fct_json_text(q->stop[c->end.stop_str], q->stop_len[c->end.stop_str]);
    return c->end.stop_id >= 0 ? json_integer(c->end.stop_id) : json_null();
}

static json_t *
choice_json(const struct fct_result *r, const struct fct_choice *c)
{
    uint32_t flags = r->req->p.flags;

    return json_pack("{s:o, s:o, s:o*, s:o*, s:o*, s:s, s:o, s:o*}", "ids",
        fct_json_ids(c->ids, c->n_ids), "text", fct_json_text(c->text, c->n_text),
        "special", (flags & FDC_F_ALONE) != 0 ? special_json(r, c) : NULL, "logprobs",
        r->req->p.logprobs >= 0 ? logprobs_json(r, c->lp, c->n_lp, 0) : NULL,
        "mean_logprob",
        r->req->p.best_of > r->req->p.n ? fct_json_real((double)c->end.mean_logprob) : NULL,
        "finish_reason", finish_name(r, c), "stop_reason", stop_reason(r, c),
        "reasoning_tokens",
        c->end.n_reasoning > 0 ? json_integer(c->end.n_reasoning) : NULL);
}

/* Of more than one, all. */
static json_t *
choices_json(const struct fct_result *r)
{
    json_t *list = r->n_choices > 1 ? json_array() : NULL;

    for (unsigned i = 0; list != NULL && i < r->n_choices; i++) {
        json_t *c = json_pack("{s:i}", "index", (int)i);

        json_object_update_new(c, choice_json(r, &r->choices[i]));
        json_array_append_new(list, c);
    }
    return list;
}

static double
ms(uint64_t from, uint64_t to)
{
    return to > from && from != 0 ? (double)(to - from) / 1e6 : 0;
}

static json_t *
timings_json(const struct fct_result *r)
{
    const struct fdc_done *d = &r->done;
    double gen = ms(d->t_first, d->t_end), total = ms(d->t_submit, d->t_end);
    /* The first tokens come at t_first; the rest takes gen. */
    double tok_s = d->output_tokens > r->n_choices && gen > 0
        ? (d->output_tokens - r->n_choices) / gen * 1e3
        : total > 0 ? d->output_tokens / total * 1e3
                    : 0;

    return json_pack("{s:o, s:o, s:o, s:o}", "queue_ms",
        fct_json_real(ms(d->t_submit, d->t_start)), "ttft_ms",
        fct_json_real(ms(d->t_submit, d->t_first)), "total_ms", fct_json_real(total),
        "tokens_per_s", fct_json_real(tok_s));
}

/* The daemon sends a refused float as its bits. 1: *ret is the float. */
static int
float_arg(const struct fdc_error *e, float *ret)
{
    if (e->code != FDC_E_BAD_PARAM && e->code != FDC_E_UNSUPPORTED)
        return 0;
    if (!fdn_detail_is_float(e->detail))
        return 0;
    memcpy(ret, &e->arg, sizeof(*ret));
    return 1;
}

static json_t *
limit_json(const struct fdc_error *e)
{
    float f, lim;

    if (e->limit == 0 && !float_arg(e, &f))
        return json_null();
    if (!float_arg(e, &f))
        return json_integer(e->limit);
    memcpy(&lim, &e->limit, sizeof(lim));
    return fct_json_real((double)lim);
}

static json_t *
error_json(const struct fdc_error *e)
{
    float f;

    return json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:I}", "code", (int)e->code,
        "name", fdc_status_name(e->code), "message", fdc_strerror(e->code), "detail",
        e->detail != FDC_D_NONE ? json_string(fdc_detail_name(e->detail)) : json_null(),
        "arg", float_arg(e, &f) ? fct_json_real((double)f) : json_integer(e->arg),
        "limit", limit_json(e), "item",
        e->item != 0 ? json_string(fdn_item_name(e->item)) : json_null(),
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
        out += r->choices[i].n_ids;
    return json_pack("{s:I, s:I, s:I, s:I}", "prompt_tokens",
        (json_int_t)(done ? d->prompt_tokens : acc->prompt_len), "cached_tokens",
        (json_int_t)(done ? d->cached_tokens : acc->cached_len), "output_tokens",
        (json_int_t)out, "preempted", (json_int_t)d->n_preempted);
}

/* As text where JSON's integers end. */
static json_t *
seed_json(uint64_t seed)
{
    char text[24];

    if (seed <= INT64_MAX)
        return json_integer((json_int_t)seed);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
    return json_string(text);
}

json_t *
fct_result_json(const struct fct_result *r)
{
    json_t *usage = usage_json(r);
    int is_ok = r->error.code == FDC_OK;
    /* Before the daemon gives them back, the ids are those that were sent. */
    json_t *o = json_pack("{s:I, s:O*, s:o}", "index", (json_int_t)r->index, "id",
        r->req->label, "prompt_ids",
        r->n_prompt_ids > 0 ? fct_json_ids(r->prompt_ids, r->n_prompt_ids)
                            : fct_json_ids(r->req->ids, r->req->n_ids));

    if ((r->req->p.flags & FDC_F_PROMPT_TEXT) != 0)
        json_object_set_new(o, "prompt_text",
            fct_json_text(r->prompt_text, r->n_prompt_text));
    json_object_update_new(o, choice_json(r, &r->choices[0]));
    json_object_update_new(o,
        json_pack("{s:o*, s:O, s:o, s:o*, s:o*, s:o*, s:o*}", "prompt_logprobs",
            r->req->p.prompt_logprobs >= 0
                ? logprobs_json(r, r->plp, r->n_plp,
                      r->is_accepted ? r->accepted.prompt_len : 0)
                : NULL,
            "cached_tokens", json_object_get(usage, "cached_tokens"), "usage", usage,
            "seed", r->is_accepted ? seed_json(r->accepted.seed) : NULL, "timings",
            is_ok ? timings_json(r) : NULL, "choices", choices_json(r), "error",
            is_ok ? NULL : error_json(&r->error)));
    return o;
}

/* Was it refused for want of an entry of the pool? arg is the number of the item where
 * the daemon takes it never. */
static int
needs_entry(const struct fdc_error *e)
{
    return e->arg == 0 &&
        (e->detail == FDC_D_BIAS_IDS || e->detail == FDC_D_ALLOWED ||
            e->detail == FDC_D_BAD_WORDS || e->detail == FDC_D_LOGPROB_IDS ||
            e->detail == FDC_D_REASONING);
}

void
fct_error_text(const struct fdc_error *e, char *ret, size_t ret_bytes)
{
    const char *why = "";
    size_t n;

    fdc_error_text(e, ret, ret_bytes);
    if (e->code != FDC_E_UNSUPPORTED)
        return;
    if (e->detail == FDC_D_PRESENCE || e->detail == FDC_D_FREQUENCY ||
        e->detail == FDC_D_PENALTY || needs_entry(e))
        why = "; sched.max_penalty_seqs is 0";
    else if (e->detail == FDC_D_LOGPROBS || e->detail == FDC_D_PROMPT_LOGPROBS ||
        e->detail == FDC_D_BEST_OF)
        why = "; output.enable_logprob is no";
    n = strlen(ret);
    snprintf(ret + n, ret_bytes - n, "%s", why);
}
