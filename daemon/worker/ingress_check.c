/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/ingress.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/files.h"
#include "daemon/worker/rules.h"
#include "daemon/worker/tokenizer.h"

/* Flags that need a tokenizer. */
#define ING_TEXT_FLAGS (FDP_F_TEXT | FDP_F_PROMPT_TEXT | FDP_F_TOKEN_TEXT | FDP_F_ALONE)

_Static_assert(sizeof(struct tok_span) == sizeof(struct fdp_span), "spans as they came");

/* ---- items ------------------------------------------------------------------------------ */

struct ing_walk {
    const uint32_t *prompt, *prior, *stop;
    uint32_t n_prompt, n_prior, n_stop;
    int has_ids;
};

static int
ing_ids(const struct ing_cfg *c, const unsigned char *p, uint32_t len, uint32_t detail,
    const uint32_t **ret, uint32_t *ret_n, struct ing_bad *bad)
{
    const uint32_t *ids = (const uint32_t *)p;

    if (len % 4 != 0 || *ret != NULL)
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_ITEM, len);
    for (uint32_t i = 0; i < len / 4; i++)
        if (ids[i] >= (uint32_t)c->vocab)
            return ing_over(bad, FDP_E_BAD_TOKEN, detail, ids[i], (uint32_t)c->vocab - 1);
    *ret = ids;
    *ret_n = len / 4;
    return 0;
}

static int
ing_stop_string(const struct ing_cfg *c, struct req *r, const unsigned char *p,
    uint32_t len, struct ing_bad *bad)
{
    if (c->tok == NULL)
        return ing_bad(bad, FDP_E_NO_MODEL, FDP_D_STOP, 0);
    if (r->stops == NULL)
        r->stops = fin_set_new();
    if (r->stops == NULL)
        return ing_bad(bad, FDP_E_OVERLOAD, FDP_D_STOP, 0);
    if (fin_set_add(r->stops, p, len) != 0)
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_STOP, len);
    return 0;
}

/* Reads an item that requests a file: struct fdp_file_ask and the name after it. */
static int
ing_file(const struct ing_cfg *c, struct req *r, const unsigned char *p, uint32_t len,
    struct ing_bad *bad)
{
    const struct fil_file *f;

    if (len <= sizeof(r->file_ask))
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_FILE, len);
    memcpy(&r->file_ask, p, sizeof(r->file_ask));
    f = fil_find(c->files, (const char *)p + sizeof(r->file_ask), len - sizeof(r->file_ask));
    if (f == NULL || f->bytes == NULL)
        return f != NULL && f->too_large > 0
            ? ing_over(bad, FDP_E_NO_FILE, FDP_D_FILE, f->too_large, f->limit)
            : ing_bad(bad, FDP_E_NO_FILE, FDP_D_FILE, 0);
    if (r->file_ask.off > f->n)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_FILE, r->file_ask.off, f->n);
    r->file = f;
    return 0;
}

static int
ing_item(const struct ing_cfg *c, struct req *r, const struct fdp_item *it,
    struct ing_walk *w, struct ing_bad *bad)
{
    const unsigned char *p = (const unsigned char *)(it + 1);

    switch (it->type) {
    case FDP_IT_PROMPT_TEXT:
        if (c->tok == NULL)
            return ing_bad(bad, FDP_E_NO_MODEL, FDP_D_PROMPT, 0);
        if (r->text != NULL)
            return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_ITEM, it->type);
        r->text = (const char *)p;
        r->n_text = it->len;
        return 0;
    case FDP_IT_PROMPT_IDS:
        w->has_ids = 1;
        return ing_ids(c, p, it->len, FDP_D_PROMPT_ID, &w->prompt, &w->n_prompt, bad);
    case FDP_IT_PRIOR_IDS:
        return ing_ids(c, p, it->len, FDP_D_PRIOR, &w->prior, &w->n_prior, bad);
    case FDP_IT_STOP_IDS:
        if (it->len > FDP_MAX_STOP_IDS * 4)
            return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_STOP, it->len / 4);
        return ing_ids(c, p, it->len, FDP_D_STOP, &w->stop, &w->n_stop, bad);
    case FDP_IT_SPANS: /* the gate has checked them */
        r->spans = (const struct tok_span *)(const void *)p;
        r->n_spans = it->len / (uint32_t)sizeof(*r->spans);
        return 0;
    case FDP_IT_REPETITION:
        if (it->len != sizeof(r->repetition))
            return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_REPETITION, it->len);
        memcpy(&r->repetition, p, sizeof(r->repetition));
        return 0;
    case FDP_IT_STOP_STRING:
        return ing_stop_string(c, r, p, it->len, bad);
    case FDP_IT_FILE:
        return ing_file(c, r, p, it->len, bad);
    default:
        return ing_rule(c, r, it, bad);
    }
}

/* Stores the prompt's ids and the prior ids after them. The ids of a prompt given as text
 * are inserted later. */
static int
ing_keep_ids(const struct ing_cfg *c, struct req *r, const struct ing_walk *w,
    struct ing_bad *bad)
{
    size_t n = (size_t)w->n_prompt + w->n_prior;

    if (w->n_prior != r->p.n_prior || (w->n_prior > 0 && (r->p.n != 1 || r->p.best_of > 1)))
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_PRIOR, r->p.n_prior);
    if (n > INT32_MAX / 8)
        return ing_over(bad, FDP_E_TOO_LONG, FDP_D_PROMPT, n, (uint64_t)c->max_len);
    r->ids = mem_array(n + 1, sizeof(uint32_t));
    if (r->ids == NULL)
        return ing_bad(bad, FDP_E_OVERLOAD, FDP_D_PROMPT, n);
    if (w->n_prompt > 0)
        memcpy(r->ids, w->prompt, (size_t)w->n_prompt * 4);
    if (w->n_prior > 0)
        memcpy(r->ids + w->n_prompt, w->prior, (size_t)w->n_prior * 4);
    r->n_prompt = (int32_t)w->n_prompt;
    r->n_ids = (int32_t)n;
    return 0;
}

/* Parameters that are not set get the model's defaults. */
static void
ing_defaults(const struct ing_defaults *d, struct fdp_req *p)
{
    if ((p->set & FDP_S_TEMPERATURE) == 0)
        p->temperature = d->temperature;
    if ((p->set & FDP_S_TOP_P) == 0)
        p->top_p = d->top_p;
    if ((p->set & FDP_S_TOP_K) == 0)
        p->top_k = d->top_k;
    if ((p->set & FDP_S_MIN_P) == 0)
        p->min_p = d->min_p;
    if ((p->set & FDP_S_REPETITION) == 0)
        p->repetition_penalty = d->repetition_penalty;
}

static int
ing_penalties(const struct ing_cfg *c, struct req *r, struct ing_bad *bad)
{
    const struct fdp_req *p = &r->p;

    if (!(p->presence_penalty >= -2 && p->presence_penalty <= 2))
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_PRESENCE, 0);
    if (!(p->frequency_penalty >= -2 && p->frequency_penalty <= 2))
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_FREQUENCY, 0);
    if (!(p->repetition_penalty >= FDP_MIN_REPETITION && p->repetition_penalty <= 2))
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_PENALTY, 0);
    r->penalized = p->presence_penalty != 0 || p->frequency_penalty != 0 ||
        p->repetition_penalty != 1;
    if (r->penalized && c->n_penalty <= 0)
        return ing_bad(bad, FDP_E_UNSUPPORTED,
            p->presence_penalty != 0        ? FDP_D_PRESENCE
                : p->frequency_penalty != 0 ? FDP_D_FREQUENCY
                                            : FDP_D_PENALTY,
            0);
    return 0;
}

static int
ing_logprobs(const struct ing_cfg *c, const struct fdp_req *p, struct ing_bad *bad)
{
    int64_t most = c->max_logprobs;

    if ((p->set & FDP_S_LOGPROBS) != 0 && p->logprobs > most)
        return ing_over(bad, most < 0 ? FDP_E_UNSUPPORTED : FDP_E_BAD_PARAM,
            FDP_D_LOGPROBS, p->logprobs, most < 0 ? 0 : (uint64_t)most);
    if ((p->set & FDP_S_PROMPT_LOGPROBS) != 0 && p->prompt_logprobs > most)
        return ing_over(bad, most < 0 ? FDP_E_UNSUPPORTED : FDP_E_BAD_PARAM,
            FDP_D_PROMPT_LOGPROBS, p->prompt_logprobs, most < 0 ? 0 : (uint64_t)most);
    return 0;
}

static int
ing_scalars(const struct ing_cfg *c, struct req *r, struct ing_bad *bad)
{
    const struct fdp_req *p = &r->p;

    if (p->op >= FDP_OP__N || p->op == 0 || p->op == FDP_OP_CANCEL)
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_OP, p->op);
    if (p->op != FDP_OP_SUBMIT)
        return 0;
    if (p->n < 1 || p->n > FDP_MAX_N)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_N, p->n, FDP_MAX_N);
    if (p->best_of != 0 && (p->best_of < p->n || p->best_of > FDP_MAX_N))
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_BEST_OF, p->best_of,
            p->best_of < p->n ? p->n : FDP_MAX_N);
    if (p->best_of > p->n && c->max_logprobs < 0)
        return ing_bad(bad, FDP_E_UNSUPPORTED, FDP_D_BEST_OF, p->best_of);
    ing_defaults(&c->dflt, &r->p);
    if (ing_penalties(c, r, bad) != 0 || ing_logprobs(c, p, bad) != 0)
        return -1;
    if (c->tok == NULL && (p->flags & ING_TEXT_FLAGS) != 0)
        return ing_bad(bad, FDP_E_NO_MODEL, FDP_D_FLAGS, p->flags & ING_TEXT_FLAGS);
    return 0;
}

static int
ing_stop_ids(const struct ing_cfg *c, struct req *r, const struct ing_walk *w,
    struct ing_bad *bad)
{
    int32_t n = 0;

    if ((r->p.flags & FDP_F_IGNORE_EOS) == 0)
        for (int32_t i = 0; i < c->n_eos; i++)
            r->stop_ids[n++] = c->eos[i];
    for (uint32_t i = 0; i < w->n_stop; i++) {
        if (n >= FDK_MAX_STOP_IDS)
            return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_STOP, w->n_stop);
        r->stop_ids[n++] = (int32_t)w->stop[i];
    }
    r->n_stop = n;
    return 0;
}

int
ing_items(const struct ing_cfg *c, struct req *r, struct ing_bad *ret_bad)
{
    struct ing_walk w = { 0 };
    uint64_t at = 0, len = r->p.len;

    if (ing_scalars(c, r, ret_bad) != 0)
        return -1;
    while (at < len) {
        const struct fdp_item *it = (const struct fdp_item *)(r->blob + at);

        if (len - at < sizeof(*it) || len - at < FDP_ITEM_SPAN(it->len))
            return ing_bad(ret_bad, FDP_E_BAD_PARAM, FDP_D_ITEM, at);
        if (ing_item(c, r, it, &w, ret_bad) != 0) {
            ret_bad->item = it->type;
            return -1;
        }
        at += FDP_ITEM_SPAN(it->len);
    }
    if (r->text != NULL && w.has_ids)
        return ing_bad(ret_bad, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (r->p.op == FDP_OP_DETOKENIZE && c->tok == NULL)
        return ing_bad(ret_bad, FDP_E_NO_MODEL, FDP_D_OP, r->p.op);
    if (r->p.op == FDP_OP_FILE && r->file == NULL)
        return ing_bad(ret_bad, FDP_E_BAD_PARAM, FDP_D_FILE, 0);
    if (ing_stop_ids(c, r, &w, ret_bad) != 0)
        return -1;
    return ing_keep_ids(c, r, &w, ret_bad);
}

/* ---- limits ------------------------------------------------------------------------------ */

/* Which RoPE frequencies rotate the request's keys; part of the hash. */
static int32_t
ing_rope(const struct ing_cfg *c, const struct req *r)
{
    if (c->rope_from == 0 || r->max_len <= c->rope_from)
        return 0;
    return c->rope_each ? r->max_len : 1;
}

static void
ing_cached(const struct ing_cfg *c, struct req *r)
{
    if (c->prefix == 0)
        return;
    r->block_size = c->block_size;
    pfx_root(&c->key, r->user, r->p.salt, ing_rope(c, r), &r->hash_root);
}

/* Is the prompt only scored, without output? */
static int
ing_is_scored(const struct req *r)
{
    return (r->p.set & FDP_S_MAX_NEW) != 0 && r->p.max_new == 0;
}

/* Checks the lengths of prompt and output. */
static int
ing_lengths(const struct ing_cfg *c, struct req *r, struct ing_bad *bad)
{
    uint64_t max_new = r->p.max_new, end;
    int scored = ing_is_scored(r);

    if (r->n_prompt < 1)
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_PROMPT, 0);
    if (r->n_prompt >= c->max_len + scored)
        return ing_over(bad, FDP_E_TOO_LONG, FDP_D_PROMPT, (uint64_t)r->n_prompt,
            (uint64_t)(c->max_len - 1 + scored));
    if ((r->p.set & FDP_S_MAX_NEW) == 0)
        max_new = (uint64_t)c->default_max_tokens;
    end = max_new == 0 && !scored ? (uint64_t)c->max_len : (uint64_t)r->n_prompt + max_new;
    if ((r->p.set & FDP_S_MAX_NEW) != 0 && end > (uint64_t)c->max_len) {
        (void)ing_over(bad, FDP_E_TOO_LONG, FDP_D_MAX_NEW, end, (uint64_t)c->max_len);
        bad->item = r->text != NULL ? FDP_IT_PROMPT_TEXT : FDP_IT_PROMPT_IDS;
        return -1;
    }
    /* the default was higher when PRIOR_IDS were computed: they are the whole output */
    if ((r->p.set & FDP_S_MAX_NEW) == 0 && end < (uint64_t)r->n_ids)
        end = (uint64_t)r->n_ids;
    r->max_len = end < (uint64_t)c->max_len ? (int32_t)end : c->max_len;
    end = (uint64_t)r->n_prompt + r->p.min_new;
    r->min_len = end < (uint64_t)r->max_len ? (int32_t)end : r->max_len;
    if (r->n_ids > r->max_len)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_PRIOR, r->p.n_prior,
            (uint64_t)(r->max_len > r->n_prompt ? r->max_len - r->n_prompt : 0));
    if (r->p.prompt_from > 1 && r->p.prompt_from >= (uint32_t)r->n_prompt)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_PROMPT_FROM, r->p.prompt_from,
            (uint64_t)r->n_prompt - 1);
    return 0;
}

/* Sets how many samples are drawn and returned, and limits the logprobs kept until all
 * have ended. */
static int
ing_samples(struct req *r, struct ing_bad *bad)
{
    size_t each;

    r->n_shown = r->n_seq = r->p.n;
    if (ing_is_scored(r))
        r->n_seq = 1;
    else if (r->p.best_of > r->p.n)
        r->n_seq = r->p.best_of;
    r->held = r->n_seq > r->n_shown;
    if (!r->held || (r->p.set & FDP_S_LOGPROBS) == 0)
        return 0;
    r->n_lp = 1 + r->p.logprobs + (r->rules != NULL ? r->rules->n_chosen : 0);
    each = (size_t)(r->max_len - r->n_ids) * (size_t)r->n_lp * sizeof(struct fdp_logprob);
    if (each > 0 && (size_t)r->n_seq > REQ_HELD_BYTES / each)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_BEST_OF, (uint64_t)r->n_seq,
            each < REQ_HELD_BYTES ? REQ_HELD_BYTES / each : 1);
    return 0;
}

int
ing_prompt(const struct ing_cfg *c, struct req *r, int32_t *ret_done,
    struct ing_bad *ret_bad)
{
    if (ing_lengths(c, r, ret_bad) != 0)
        return -1;
    if (ing_samples(r, ret_bad) != 0)
        return -1;
    ing_cached(c, r);
    if (req_make_seqs(r) != 0)
        return ing_bad(ret_bad, FDP_E_OVERLOAD, FDP_D_NONE, 0);
    if (req_has_stopped(r)) {
        *ret_done = FDK_DONE_STOP;
        return 1;
    }
    if (r->n_ids == r->max_len && !req_is_scored(r)) {
        *ret_done = FDK_DONE_LENGTH;
        return 1;
    }
    return 0;
}
