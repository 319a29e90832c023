/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Copies and checks the parameters and options of a program. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libclient/priv.h"

void
fdc_params_init_sized(struct fdc_params *p, size_t size)
{
    struct fdc_params d = { .size = (uint32_t)size,
        .flags = FDC_F_TEXT,
        .n = 1,
        .max_new = FDC_UNSET,
        .temperature = FDC_UNSET_F,
        .top_p = FDC_UNSET_F,
        .top_k = FDC_UNSET,
        .min_p = FDC_UNSET_F,
        .presence_penalty = FDC_UNSET_F,
        .frequency_penalty = FDC_UNSET_F,
        .repetition_penalty = FDC_UNSET_F,
        .logprobs = -1,
        .prompt_logprobs = -1,
        .seed = FDC_UNSET64 };
    if (p == NULL)
        return;
    memset(p, 0, size);
    memcpy(p, &d, size < sizeof(d) ? size : sizeof(d));
}

int
fdc__explain(const struct fdc_submit_opts *o, int status, const char *fmt, ...)
{
    uint32_t n = o ? o->error_text_bytes : 0;
    va_list ap;
    int k;

    if (n == 0 || o->error_text == NULL)
        return status;
    k = snprintf(o->error_text, n, "%s: %s", fdc_status_name(status), fdc_strerror(status));
    if (k < 0 || (uint32_t)k + 2 >= n)
        return status;
    memcpy(o->error_text + k, ": ", 3);
    va_start(ap, fmt);
    vsnprintf(o->error_text + k + 2, n - (uint32_t)k - 2, fmt, ap);
    va_end(ap);
    return status;
}

/* Copies the caller's struct, whose size may be that of an older or a newer library:
 * fields that this library does not have must be zero. least: its size in the oldest
 * library. */
static int
copy_sized(void *out, size_t out_size, const void *in, size_t least, const char *what,
    const struct fdc_submit_opts *o)
{
    uint32_t size;

    memcpy(&size, in, sizeof(size));
    if (size < least)
        return fdc__explain(o, FDP_E_INVAL, "%s.size is %u, must be at least %zu", what,
            size, least);
    memcpy(out, in, size < out_size ? size : out_size);
    for (size_t i = out_size; i < size; i++)
        if (((const unsigned char *)in)[i])
            return fdc__explain(o, FDP_E_UNSUPPORTED,
                "byte %zu of struct %s, which this library (%s) does not know, is set", i,
                what, FDC_VERSION_STRING);
    return 0;
}

/* Reports which list is NULL although its count is not 0. */
static int
name_list(const struct ask *a)
{
    const struct fdc_params *p = &a->p;
    const struct {
        const char *name;
        uint32_t n;
        const void *list;
    } v[] = { { "stop", p->n_stop, p->stop }, { "stop_ids", p->n_stop_ids, p->stop_ids },
        { "prior_ids", p->n_prior, p->prior_ids }, { "bias", p->n_bias, p->bias },
        { "allowed_ids", p->n_allowed, p->allowed_ids },
        { "bad_words", p->n_bad_words, p->bad_words },
        { "bad_ids", p->n_bad_ids, p->bad_ids },
        { "bad_ids_len", p->n_bad_ids, p->bad_ids_len },
        { "logprob_ids", p->n_logprob_ids, p->logprob_ids },
        { "spans", p->n_spans, p->spans }, { "grammar", p->grammar_len, p->grammar } };

    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (v[i].n && v[i].list == NULL)
            return fdc__explain(&a->o, FDP_E_INVAL, "%s is NULL with %u elements",
                v[i].name, v[i].n);
    return 0;
}

/* Reports which element of a list is NULL. */
static int
name_element(const struct ask *a, const char *name, uint32_t i)
{
    return fdc__explain(&a->o, FDP_E_INVAL, "%s[%u] is NULL", name, i);
}

/* Checks the elements that are pointers. */
static int
check_elements(const struct ask *a)
{
    const struct fdc_params *p = &a->p;

    for (uint32_t i = 0; i < p->n_stop; i++)
        if (p->stop[i] == NULL && (p->stop_len == NULL || p->stop_len[i] != 0))
            return name_element(a, "stop", i);
    for (uint32_t i = 0; i < p->n_bad_words; i++)
        if (p->bad_words[i] == NULL)
            return name_element(a, "bad_words", i);
    for (uint32_t i = 0; i < p->n_bad_ids; i++)
        if (p->bad_ids[i] == NULL && p->bad_ids_len[i] != 0)
            return name_element(a, "bad_ids", i);
    return 0;
}

/* Reports which value needs more bits than the protocol has for it. */
static int
name_value(const struct ask *a)
{
    const struct {
        const char *name;
        int64_t value, most;
    } v[] = { { "n", a->p.n, FDP_MAX_N }, { "best_of", a->p.best_of, FDP_MAX_N },
        { "logprobs", a->p.logprobs, FDP_MAX_LOGPROBS },
        { "prompt_logprobs", a->p.prompt_logprobs, FDP_MAX_LOGPROBS },
        { "stream_interval", a->o.stream_interval, UINT16_MAX } };

    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
        if (v[i].value > UINT8_MAX && v[i].value > v[i].most)
            return fdc__explain(&a->o, FDP_E_BAD_PARAM, "%s is %lld, at most %lld",
                v[i].name, (long long)v[i].value, (long long)v[i].most);
    return 0;
}

/* Checks what the daemon cannot; the daemon checks the rest. */
static int
check(struct ask *a)
{
    const struct fdc_params *p = &a->p;

    a->has_lists = (p->n_stop | p->n_stop_ids | p->n_prior | p->n_bias | p->n_allowed |
                       p->n_bad_words | p->grammar_len | p->n_spans | p->n_bad_ids |
                       p->n_logprob_ids) != 0;
    if (a->has_lists &&
        ((p->n_stop && !p->stop) || (p->n_stop_ids && !p->stop_ids) ||
            (p->n_prior && !p->prior_ids) || (p->n_bias && !p->bias) ||
            (p->n_allowed && !p->allowed_ids) || (p->n_bad_words && !p->bad_words) ||
            (p->grammar_len && !p->grammar) || (p->n_spans && !p->spans) ||
            (p->n_bad_ids && (!p->bad_ids || !p->bad_ids_len)) ||
            (p->n_logprob_ids && !p->logprob_ids)))
        return name_list(a);
    a->has_lists |= p->repetition || p->reasoning || p->adapter;
    if (p->n > UINT8_MAX || p->best_of > UINT8_MAX || p->logprobs > UINT8_MAX ||
        p->prompt_logprobs > UINT8_MAX || a->o.stream_interval > UINT16_MAX)
        return name_value(a);
    return a->has_lists ? check_elements(a) : 0;
}

int
fdc__read_ask(const struct fdc_params *p, const struct fdc_submit_opts *o, struct ask *ret)
{
    int rc = 0;

    memset(&ret->o, 0, sizeof(ret->o));
    if (p == NULL || p->size < sizeof(*p))
        fdc_params_init(&ret->p);
    if (o)
        rc = copy_sized(&ret->o, sizeof(ret->o), o, offsetof(struct fdc_submit_opts, rsv),
            "fdc_submit_opts", NULL);
    if (rc == 0 && p)
        rc = copy_sized(&ret->p, sizeof(ret->p), p, offsetof(struct fdc_params, adapter),
            "fdc_params", &ret->o);
    return rc ? rc : check(ret);
}
