/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/sampler.h"

#include <string.h>

/* Penalty counts, see fdk_sample_args. */
#define SMP_IN_PROMPT 0x8000u
#define SMP_COUNT     0x7fffu

/* The inverse of a lower temperature is no number of fp32, which kernels compute with. */
#define SMP_LEAST_TEMPERATURE 1e-30f

void
smp_row(const struct seq *s, struct fdk_row *ret)
{
    const struct req *r = s->req;

    /* clear only the used part of stop_ids, which is most of the struct */
    memset(ret, 0, offsetof(struct fdk_row, stop_ids));
    ret->seed = r->p.seed;
    ret->sample = s->sample;
    ret->top_k = r->p.top_k;
    ret->temperature = r->p.temperature;
    if (ret->temperature > 0 && ret->temperature < SMP_LEAST_TEMPERATURE)
        ret->temperature = SMP_LEAST_TEMPERATURE;
    ret->top_p = r->p.top_p;
    ret->min_p = r->p.min_p;
    ret->last_token = s->n_tok > 0 ? (int32_t)req_token(s, s->n_tok - 1) : 0;
    ret->len = s->n_tok;
    ret->min_len = r->min_len;
    ret->max_len = r->max_len;
    ret->done = FDK_DONE_NO;
    ret->penalty = smp_counted(r) ? s->penalty : -1;
    ret->presence = r->p.presence_penalty;
    ret->frequency = r->p.frequency_penalty;
    ret->repetition = r->p.repetition_penalty;
    ret->generation = s->generation;
    ret->n_stop = r->n_stop;
    memcpy(ret->stop_ids, r->stop_ids, (size_t)r->n_stop * sizeof(r->stop_ids[0]));
}

void
smp_counts(const struct seq *s, int32_t vocab, uint16_t *row)
{
    const struct req *r = s->req;

    memset(row, 0, (size_t)vocab * sizeof(*row));
    for (int32_t p = 0; p < s->n_tok; p++) {
        uint16_t *c = &row[req_token(s, p)];

        if (p < r->n_prompt)
            *c |= SMP_IN_PROMPT;
        else if ((*c & SMP_COUNT) < SMP_COUNT)
            ++*c;
    }
}

int
smp_counted(const struct req *r)
{
    return r->penalized &&
        (r->rules == NULL || r->p.presence_penalty != 0 || r->p.frequency_penalty != 0 ||
            r->p.repetition_penalty != 1);
}

int32_t
smp_rules(const struct seq *s, int32_t *entry)
{
    const struct req *r = s->req;
    struct fdk_rules *head = (struct fdk_rules *)(void *)entry;
    int32_t p = s->n_tok > FDK_MAX_BAN_LEN ? s->n_tok - FDK_MAX_BAN_LEN : 0;

    memcpy(entry, r->rules->words, (size_t)r->rules->n_words * sizeof(*entry));
    head->in_reason = rls_begins_inside(r->rules, r->ids, r->n_prompt);
    for (; p < r->n_prompt; p++)
        head->recent[p % FDK_MAX_BAN_LEN] = (int32_t)r->ids[p];
    for (p = r->n_prompt; p < s->n_tok; p++)
        fdk_rules_took(head, head, p, (int32_t)req_token(s, p));
    return r->rules->n_words;
}

int32_t
smp_n_chosen(const struct req *r)
{
    return r->rules != NULL ? r->rules->n_chosen : 0;
}

int32_t
smp_n_top(const struct req *r)
{
    if ((r->p.set & FDP_S_LOGPROBS) != 0)
        return r->p.logprobs;
    return r->held ? 0 : -1;
}

int32_t
smp_n_top_prompt(const struct req *r)
{
    return (r->p.set & FDP_S_PROMPT_LOGPROBS) != 0 ? r->p.prompt_logprobs : -1;
}
