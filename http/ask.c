/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "http/ask.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/sha256.h"

enum { C = 1, T = 2, CT = 3 };
enum kind { U32, I32, REAL, BOOL, NODE, ANY, OFF };

static const struct field {
    const char *name;
    int where;
    enum kind kind;
    size_t at;
    double least, most;
    const char *text;
} fields[] = {
#define FIELD(name, where, kind, member, least, most, text) \
    { #name, where, kind, offsetof(struct ask, member), least, most, text },
#include "http/tbl/fields.h"
#undef FIELD
};
#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))
_Static_assert(N_FIELDS <= 128, "seen has a bit for each");

/* ---- single fields --------------------------------------------------------------------- */

static void *
place(struct ask *a, const struct field *f)
{
    return (char *)a + f->at;
}

static int
take_number(struct ask *a, const struct field *f, uint32_t i, struct problem *bad)
{
    int64_t v = 0;
    double d;

    if (jr_type(&a->j, i) != JR_NUMBER)
        return prb_field(bad, f->name, "%s is %s; it must be a number", f->name,
            jr_type_name(jr_type(&a->j, i)));
    d = jr_real(&a->j, i);
    if (!(d >= f->least && d <= f->most))
        return prb_field(bad, f->name, "%s is %.10g; it must be from %.10g to %.10g",
            f->name, d, f->least, f->most);
    if (f->kind != REAL && jr_int(&a->j, i, &v) != 0)
        return prb_field(bad, f->name, "%s is %g; it must be a whole number", f->name, d);
    if (f->kind == REAL)
        *(float *)place(a, f) = (float)d;
    else if (f->kind == U32)
        *(uint32_t *)place(a, f) = (uint32_t)v;
    else
        *(int32_t *)place(a, f) = (int32_t)v;
    return 0;
}

int
ask_is_off(const struct jr *j, uint32_t i)
{
    switch (jr_type(j, i)) {
    case JR_NULL:
    case JR_FALSE:
        return 1;
    case JR_NUMBER:
        return jr_real(j, i) == 0;
    case JR_STRING:
        return jr_is(j, i, "") || jr_is(j, i, "none");
    case JR_ARRAY:
    case JR_OBJECT:
        return jr_count(j, i) == 0;
    default:
        return 0;
    }
}

static int
take_field(struct ask *a, const struct field *f, uint32_t i, struct problem *bad)
{
    enum jr_type t = jr_type(&a->j, i);

    if (t == JR_NULL)
        return 0;
    switch (f->kind) {
    case U32:
    case I32:
    case REAL:
        return take_number(a, f, i, bad);
    case BOOL:
        if (t != JR_TRUE && t != JR_FALSE)
            return prb_field(bad, f->name, "%s is %s; it must be true or false", f->name,
                jr_type_name(t));
        *(uint8_t *)place(a, f) = t == JR_TRUE;
        return 0;
    case NODE:
        *(uint32_t *)place(a, f) = i;
        return 0;
    case OFF:
        return ask_is_off(&a->j, i)
            ? 0
            : prb_field(bad, f->name, "%s is not supported: %s; leave it out", f->name,
                  f->text);
    case ANY:
        break;
    }
    return 0;
}

/* The names go into a header: characters that could end it are left out. */
void
ask_ignore(struct buf *b, const struct jr *j, uint32_t key)
{
    const struct jr_node *k = &j->node[key];
    const char *p = j->text + k->at + 1;

    if (k->bytes < 3 || k->bytes > 64 || b->n > 400)
        return;
    for (uint32_t i = 0; i < k->bytes - 2; i++)
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') ||
                (p[i] >= '0' && p[i] <= '9') || p[i] == '_' || p[i] == '-' || p[i] == '.'))
            return;
    if (b->n > 0)
        buf_str(b, ", ");
    buf_add(b, p, k->bytes - 2);
}

static int
take_fields(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint64_t seen[2] = { 0, 0 };
    unsigned unknown = 0;

    if (jr_type(j, 0) != JR_OBJECT)
        return prb_set(bad, 400, "invalid_json", "the body is %s; it must be an object",
            jr_type_name(jr_type(j, 0)));
    for (uint32_t k = 1; k < j->node[0].next; k = j->node[k + 1].next) {
        size_t f = 0;

        while (f < N_FIELDS &&
            !((fields[f].where & (a->is_chat ? C : T)) != 0 && jr_is(j, k, fields[f].name)))
            f++;
        if (f == N_FIELDS) {
            if (++unknown > ASK_MAX_UNKNOWN)
                return prb_set(bad, 400, "invalid_json",
                    "the body has more than %d fields", ASK_MAX_UNKNOWN);
            ask_ignore(&a->ignored, j, k);
            continue;
        }
        if ((seen[f / 64] & 1ull << f % 64) != 0)
            return prb_field(bad, fields[f].name, "%s comes twice", fields[f].name);
        seen[f / 64] |= 1ull << f % 64;
        if (take_field(a, &fields[f], k + 1, bad) != 0)
            return -1;
    }
    return 0;
}

/* ---- fields with a form of their own ------------------------------------------------------ */

static int
read_stop(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint32_t i = a->stop, from = i, to;

    if (i == JR_NONE)
        return 0;
    to = j->node[i].next;
    if (jr_type(j, i) == JR_ARRAY)
        from = i + 1;
    for (uint32_t k = from; k < to; k = j->node[k].next) {
        struct buf *b = &a->stop_text[a->n_stop];

        if (jr_type(j, k) != JR_STRING)
            return prb_field(bad, "stop", "stop is not a string or an array of strings");
        if (a->n_stop == ASK_MAX_STOP)
            return prb_field(bad, "stop", "stop has more than %d strings", ASK_MAX_STOP);
        jr_text(j, k, b);
        if (b->n == 0 || b->n > ASK_MAX_STOP_LEN)
            return prb_field(bad, "stop",
                "a stop string has %zu bytes; it must have 1 to %d", b->n,
                ASK_MAX_STOP_LEN);
        a->stop_p[a->n_stop] = b->p;
        a->stop_len[a->n_stop++] = (uint32_t)b->n;
    }
    a->p.stop = a->stop_p;
    a->p.stop_len = a->stop_len;
    a->p.n_stop = a->n_stop;
    return 0;
}

int
ask_ids(const struct jr *j, uint32_t i, const char *field, uint32_t most, uint32_t **ret,
    uint32_t *ret_n, struct problem *bad)
{
    uint32_t n = jr_count(j, i), at = 0;
    uint32_t *ids;

    if (jr_type(j, i) != JR_ARRAY)
        return prb_field(bad, field, "%s is %s; it must be an array of token ids", field,
            jr_type_name(jr_type(j, i)));
    if (n > most)
        return prb_field(bad, field, "%s has %u ids; at most %u are taken", field, n, most);
    ids = malloc((n + 1) * sizeof(*ids));
    if (ids == NULL)
        return prb_set(bad, 503, "out_of_memory", "out of memory");
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next) {
        int64_t v;

        if (jr_int(j, k, &v) != 0 || v < 0 || v > UINT32_MAX) {
            free(ids);
            return prb_field(bad, field, "%s holds what is no token id: %.*s", field,
                (int)(j->node[k].bytes < 40 ? j->node[k].bytes : 40),
                j->text + j->node[k].at);
        }
        ids[at++] = (uint32_t)v;
    }
    *ret = ids;
    *ret_n = n;
    return 0;
}

static int
read_bias(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint32_t i = a->logit_bias, n = jr_count(j, i) / 2;

    if (i == JR_NONE || (jr_type(j, i) == JR_OBJECT && n == 0))
        return 0;
    if (jr_type(j, i) != JR_OBJECT || n > ASK_MAX_BIAS)
        return prb_field(bad, "logit_bias",
            "logit_bias must be an object of at most %d token ids and their biases",
            ASK_MAX_BIAS);
    a->bias = calloc(n, sizeof(*a->bias));
    if (a->bias == NULL)
        return prb_set(bad, 503, "out_of_memory", "out of memory");
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k + 1].next) {
        struct buf b = { NULL };
        char *end = NULL;
        double v = jr_real(j, k + 1);
        unsigned long id;

        jr_text(j, k, &b);
        id = b.n > 0 && b.p[0] >= '0' && b.p[0] <= '9' ? strtoul(b.p, &end, 10) : 0;
        if (end == NULL || end != b.p + b.n || id > UINT32_MAX || !(v >= -100 && v <= 100)) {
            buf_fini(&b);
            return prb_field(bad, "logit_bias",
                "logit_bias must give token ids a number from -100 to 100 each");
        }
        buf_fini(&b);
        a->bias[a->n_bias++] = (struct fdc_bias){ (uint32_t)id, (float)v };
    }
    a->p.bias = a->bias;
    a->p.n_bias = a->n_bias;
    return 0;
}

static int
read_bad_words(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint32_t i = a->bad_words, n = jr_count(j, i), at = 0;
    const char *p;

    if (i == JR_NONE || (jr_type(j, i) == JR_ARRAY && n == 0))
        return 0;
    if (jr_type(j, i) != JR_ARRAY || n > ASK_MAX_BAD)
        return prb_field(bad, "bad_words",
            "bad_words must be an array of at most %d strings", ASK_MAX_BAD);
    for (uint32_t k = i + 1; k < j->node[i].next; k = j->node[k].next) {
        size_t was = a->bad_text.n;

        jr_text(j, k, &a->bad_text);
        if (a->bad_text.n == was ||
            memchr(a->bad_text.p + was, '\0', a->bad_text.n - was) != NULL)
            return prb_field(bad, "bad_words", "bad_words holds what is no word");
        buf_add(&a->bad_text, "", 1);
    }
    a->bad_p = calloc(n, sizeof(*a->bad_p));
    if (a->bad_p == NULL || a->bad_text.failed)
        return prb_set(bad, 503, "out_of_memory", "out of memory");
    for (p = a->bad_text.p; at < n; p += strlen(p) + 1)
        a->bad_p[at++] = p;
    a->p.bad_words = a->bad_p;
    a->p.n_bad_words = a->n_bad = n;
    return 0;
}

/* Check one of tools: templates use its members without checking them. */
static int
read_tool(const struct jr *j, uint32_t i, struct problem *bad)
{
    uint32_t type = jr_member(j, i, "type"), f = jr_member(j, i, "function");
    uint32_t name = jr_member(j, f, "name"), schema = jr_member(j, f, "parameters");

    if (jr_type(j, i) != JR_OBJECT)
        return prb_field(bad, "tools", "an element of tools is %s; each must be an object",
            jr_type_name(jr_type(j, i)));
    if (type != JR_NONE && !jr_is(j, type, "function"))
        return prb_field(bad, "tools", "tools holds one of type %.*s; it must be function",
            (int)(j->node[type].bytes < 40 ? j->node[type].bytes : 40),
            j->text + j->node[type].at);
    if (jr_type(j, name) != JR_STRING || jr_is(j, name, ""))
        return prb_field(bad, "tools",
            "tools holds one whose function has no name, which must be a string");
    if (schema != JR_NONE && jr_type(j, schema) != JR_NULL &&
        jr_type(j, schema) != JR_OBJECT)
        return prb_field(bad, "tools",
            "tools holds a function whose parameters are %s; they must be an object",
            jr_type_name(jr_type(j, schema)));
    return 0;
}

static int
read_tools(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint32_t i = a->tool_choice;

    if (a->tools != JR_NONE && jr_type(j, a->tools) != JR_ARRAY)
        return prb_field(bad, "tools", "tools is %s; it must be an array",
            jr_type_name(jr_type(j, a->tools)));
    for (uint32_t k = a->tools + 1; a->tools != JR_NONE && k < j->node[a->tools].next;
         k = j->node[k].next)
        if (read_tool(j, k, bad) != 0)
            return -1;
    a->no_calls = a->tools == JR_NONE || jr_count(j, a->tools) == 0 || jr_is(j, i, "none");
    if (i != JR_NONE && !jr_is(j, i, "none") && !jr_is(j, i, "auto"))
        return prb_field(bad, "tool_choice",
            "tool_choice takes auto and none; required and named functions need guided "
            "decoding, which is not offered");
    if (a->parallel_tool_calls == 0 && !a->no_calls)
        return prb_field(bad, "parallel_tool_calls",
            "parallel_tool_calls must be true: the model decides how many calls it makes");
    return 0;
}

static int
read_formats(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint32_t i = a->response_format, m = a->modalities;
    int is_text = 1;

    if (i != JR_NONE && !jr_is(j, jr_member(j, i, "type"), "text"))
        return prb_field(bad, "response_format",
            "response_format takes only {\"type\": \"text\"}; guided decoding is not offered");
    for (uint32_t k = m + 1; m != JR_NONE && k < j->node[m].next; k = j->node[k].next)
        is_text &= jr_is(j, k, "text");
    if (m != JR_NONE && (jr_type(j, m) != JR_ARRAY || !is_text))
        return prb_field(bad, "modalities", "modalities takes only [\"text\"]");
    return 0;
}

/* The boolean option of stream_options, 0 or 1; -1: refused. null is the same
 * as absent. */
static int
read_option(const struct jr *j, uint32_t i, const char *name, struct problem *bad)
{
    uint32_t k = jr_member(j, i, name);
    enum jr_type t = k == JR_NONE ? JR_NULL : jr_type(j, k);

    if (t != JR_NULL && t != JR_TRUE && t != JR_FALSE)
        return prb_field(bad, "stream_options",
            "stream_options.%s is %s; it must be true or false", name, jr_type_name(t));
    return t == JR_TRUE;
}

static int
read_stream(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint32_t i = a->stream_options;
    int usage, always;

    if (i == JR_NONE)
        return 0;
    if (jr_type(j, i) != JR_OBJECT)
        return prb_field(bad, "stream_options",
            "stream_options is %s; it must be an object", jr_type_name(jr_type(j, i)));
    if (a->stream != 1)
        return prb_field(bad, "stream_options", "stream_options needs stream: true");
    usage = read_option(j, i, "include_usage", bad);
    always = read_option(j, i, "continuous_usage_stats", bad);
    a->include_usage = usage == 1;
    a->continuous_usage = usage == 1 && always == 1;
    return usage < 0 || always < 0 ? -1 : 0;
}

static int
read_texts(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    struct buf salt = { NULL };
    struct sha256 s;
    uint8_t hash[32];
    int64_t seed;

    if (a->request_id != JR_NONE) {
        jr_text(j, a->request_id, &a->id);
        if (a->id.n == 0 || a->id.n > 128)
            return prb_field(bad, "request_id",
                "request_id must be a string of 1 to 128 bytes");
    }
    if (a->cache_salt != JR_NONE) {
        jr_text(j, a->cache_salt, &salt);
        if (salt.n == 0 || salt.n > 128) {
            buf_fini(&salt);
            return prb_field(bad, "cache_salt",
                "cache_salt must be a string of 1 to 128 bytes");
        }
        sha256_init(&s);
        sha256_add(&s, salt.p, salt.n);
        sha256_end(&s, hash);
        memcpy(a->o.salt, hash, sizeof(a->o.salt));
        buf_fini(&salt);
    }
    if (a->user != JR_NONE && jr_type(j, a->user) != JR_STRING)
        return prb_field(bad, "user", "user is %s; it must be a string",
            jr_type_name(jr_type(j, a->user)));
    if (a->user != JR_NONE && !jr_is(j, a->user, "")) {
        jr_text(j, a->user, &salt);
        sha256_init(&s);
        sha256_add(&s, salt.p, salt.n);
        sha256_end(&s, a->user_hash);
        a->has_user = !salt.failed;
        buf_fini(&salt);
    }
    if (a->model != JR_NONE && jr_type(j, a->model) != JR_STRING)
        return prb_field(bad, "model", "model is %s; it must be a string",
            jr_type_name(jr_type(j, a->model)));
    if (a->seed != JR_NONE) {
        if (jr_int(j, a->seed, &seed) != 0)
            return prb_field(bad, "seed", "seed must be a whole number of 64 bits");
        if (seed != -1)
            a->p.seed = (uint64_t)seed;
    }
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int
read_lengths(struct ask *a, struct problem *bad)
{
    uint32_t most = a->max_completion_tokens != ASK_UNSET ? a->max_completion_tokens
        : a->max_tokens != ASK_UNSET                      ? a->max_tokens
        : a->is_chat                                      ? FDC_UNSET
                                                          : ASK_TEXT_MAX;
    const char *name =
        a->max_completion_tokens != ASK_UNSET ? "max_completion_tokens" : "max_tokens";

    if (a->top_p == 0)
        return prb_field(bad, "top_p",
            "top_p is 0; it must be above 0 and at most 1 (temperature 0 is greedy)");
    if (most == 0 && (a->echo != 1 || a->is_chat))
        return prb_field(bad, name, "%s is 0; it must be at least 1%s", name,
            a->is_chat ? "" : ", or echo be true");
    a->p.max_new = most;
    a->max_is_ours = !a->is_chat && a->max_completion_tokens == ASK_UNSET &&
        a->max_tokens == ASK_UNSET;
    if (a->min_tokens != ASK_UNSET)
        a->p.min_new = a->min_tokens;
    if (a->best_of != ASK_UNSET && a->best_of != 0 && a->best_of != a->n &&
        (a->best_of < a->n || a->stream == 1))
        return prb_field(bad, "best_of",
            "best_of is %u; it must be at least n = %u, and equal to n when streaming",
            a->best_of, a->n);
    return 0;
}

static int
read_logprobs(struct ask *a, struct problem *bad)
{
    if (a->is_chat && a->top_logprobs > 0 && a->chat_logprobs != 1)
        return prb_field(bad, "top_logprobs", "top_logprobs needs logprobs: true");
    if (a->is_chat)
        a->logprobs = a->chat_logprobs != 1 ? ASK_I32_UNSET
            : a->top_logprobs > 0           ? a->top_logprobs
                                            : 0;
    if (a->logprobs >= 0) {
        a->p.logprobs = a->logprobs;
        a->p.flags |= FDC_F_TOKEN_TEXT;
    }
    return 0;
}

/* Fields about the prompt: its logprobs, its ids, its truncation. */
static int
read_prompt(struct ask *a, struct problem *bad)
{
    const struct jr *j = &a->j;
    uint32_t side = a->truncation_side;
    int32_t echoed = a->echo == 1 && !a->is_chat ? a->logprobs : ASK_I32_UNSET;

    if (a->prompt_logprobs >= 0 && a->stream == 1)
        return prb_field(bad, "prompt_logprobs",
            "prompt_logprobs are not sent in a stream; leave stream out");
    if (a->prompt_logprobs >= 0 || echoed >= 0) {
        a->p.prompt_logprobs = a->prompt_logprobs > echoed ? a->prompt_logprobs : echoed;
        a->p.flags |= FDC_F_TOKEN_TEXT;
    }
    if (a->return_ids == 1 || (a->as_ids == 1 && echoed >= 0))
        a->p.flags |= FDC_F_PROMPT_IDS;
    if (a->truncate == 0)
        return prb_field(bad, "truncate_prompt_tokens",
            "truncate_prompt_tokens is 0; it must be at least 1, or -1 for what fits");
    if (side != JR_NONE && !jr_is(j, side, "left") && !jr_is(j, side, "right"))
        return prb_field(bad, "truncation_side", "truncation_side must be left or right");
    a->keep_first = jr_is(j, side, "right");
    return 0;
}

/* Fields that become variables of the chat template. */
static int
read_template(struct ask *a, struct problem *bad)
{
    static const char *const efforts[] = { "none", "minimal", "low", "medium", "high",
        "xhigh", "max" };
    const struct jr *j = &a->j;
    uint32_t i = a->documents, effort = a->reasoning_effort;
    int known = 0;

    if (i != JR_NONE && jr_type(j, i) != JR_ARRAY)
        return prb_field(bad, "documents",
            "documents is %s; it must be an array of objects", jr_type_name(jr_type(j, i)));
    for (uint32_t k = i + 1; i != JR_NONE && k < j->node[i].next; k = j->node[k].next)
        if (jr_type(j, k) != JR_OBJECT)
            return prb_field(bad, "documents",
                "an element of documents is %s; each must be an object with title and text",
                jr_type_name(jr_type(j, k)));
    for (size_t k = 0; k < sizeof(efforts) / sizeof(efforts[0]); k++)
        known |= jr_is(j, effort, efforts[k]);
    if (effort != JR_NONE && !known)
        return prb_field(bad, "reasoning_effort",
            "reasoning_effort must be none, minimal, low, medium, high, xhigh or max");
    if (a->continue_final == 1 && a->add_generation_prompt == 1)
        return prb_field(bad, "continue_final_message",
            "continue_final_message and add_generation_prompt are both true; a message that "
            "goes on has no new turn after it");
    return 0;
}

static void
fill(struct ask *a)
{
    struct fdc_params *p = &a->p;

    if (a->temperature != FDC_UNSET_F)
        p->temperature = a->temperature;
    p->top_p = a->top_p;
    p->min_p = a->min_p;
    p->presence_penalty = a->presence;
    p->frequency_penalty = a->frequency;
    p->repetition_penalty = a->repetition;
    if (a->top_k != ASK_I32_UNSET)
        p->top_k = a->top_k < 0 ? 0 : (uint32_t)a->top_k;
    p->n = a->n;
    if (a->best_of != ASK_UNSET && a->best_of != a->n)
        p->best_of = a->best_of;
    if (a->stream_interval != ASK_UNSET)
        a->o.stream_interval = a->stream_interval;
    if (a->priority != ASK_I32_UNSET)
        a->o.priority = a->priority;
    if (a->ignore_eos == 1)
        p->flags |= FDC_F_IGNORE_EOS;
    if (a->keep_stop == 1)
        p->flags |= FDC_F_KEEP_STOP;
    if (a->skip_special == 0)
        p->flags |= FDC_F_KEEP_SPECIAL;
    /* Chat: the template writes the begin-of-text token itself. */
    if (a->is_chat ? a->add_special != 1 : a->add_special == 0)
        p->flags |= FDC_F_NO_SPECIAL;
    p->stop_ids = a->stop_ids;
    p->n_stop_ids = a->n_stop_ids;
    p->allowed_ids = a->allowed;
    p->n_allowed = a->n_allowed;
}

int
ask_json(struct jr *j, const char *body, size_t n, struct problem *bad)
{
    int rc = jr_read(j, body, n, ASK_MAX_VALUES);

    if (rc == -E2BIG)
        return prb_set(bad, 400, "invalid_json",
            "the body holds more than %u JSON values", ASK_MAX_VALUES);
    if (rc == -ENOMEM)
        return prb_set(bad, 503, "out_of_memory", "out of memory");
    if (rc != 0)
        return prb_set(bad, 400, "invalid_json", "the body is not JSON: %s at byte %zu",
            j->err, j->err_at);
    return 0;
}

int
ask_read(struct ask *a, const char *body, size_t n, int is_chat, struct problem *bad)
{
    memset(a, 0, sizeof(*a));
    a->is_chat = is_chat;
    fdc_params_init(&a->p);
    a->o.size = sizeof(a->o);
    for (size_t i = 0; i < N_FIELDS; i++) { /* mark all as not given */
        void *at = place(a, &fields[i]);

        if (fields[i].kind == U32 || fields[i].kind == NODE)
            *(uint32_t *)at = UINT32_MAX;
        else if (fields[i].kind == I32)
            *(int32_t *)at = ASK_I32_UNSET;
        else if (fields[i].kind == REAL)
            *(float *)at = FDC_UNSET_F;
        else if (fields[i].kind == BOOL)
            *(uint8_t *)at = 255;
    }
    a->n = 1;
    if (ask_json(&a->j, body, n, bad) != 0 || take_fields(a, bad) != 0)
        return -1;
    if (read_stop(a, bad) != 0 || read_bias(a, bad) != 0 || read_bad_words(a, bad) != 0 ||
        read_tools(a, bad) != 0 || read_formats(a, bad) != 0 || read_stream(a, bad) != 0 ||
        read_texts(a, bad) != 0 || read_lengths(a, bad) != 0 || read_logprobs(a, bad) != 0 ||
        read_prompt(a, bad) != 0 || read_template(a, bad) != 0)
        return -1;
    if (a->stop_token_ids != JR_NONE &&
        ask_ids(&a->j, a->stop_token_ids, "stop_token_ids", ASK_MAX_STOP_IDS,
            &a->stop_ids, &a->n_stop_ids, bad) != 0)
        return -1;
    if (a->allowed_token_ids != JR_NONE &&
        ask_ids(&a->j, a->allowed_token_ids, "allowed_token_ids", ASK_MAX_ALLOWED,
            &a->allowed, &a->n_allowed, bad) != 0)
        return -1;
    fill(a);
    return 0;
}

void
ask_forget(struct ask *a)
{
    jr_fini(&a->j);
}

void
ask_fini(struct ask *a)
{
    jr_fini(&a->j);
    for (int i = 0; i < ASK_MAX_STOP; i++)
        buf_fini(&a->stop_text[i]);
    buf_fini(&a->bad_text);
    buf_fini(&a->ignored);
    buf_fini(&a->id);
    free(a->bad_p);
    free(a->stop_ids);
    free(a->allowed);
    free(a->bias);
    memset(a, 0, sizeof(*a));
}
