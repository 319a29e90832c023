#include "config.h"

#include "daemon/worker/sampler.h"

#include <string.h>

void
smp_row(const struct seq *s, struct fdk_row *ret)
{
    const struct req *r = s->req;

    /* cleared by a loop over the used part only: stop_ids is most of it */
    memset(ret, 0, offsetof(struct fdk_row, stop_ids));
    ret->seed = r->p.seed;
    ret->sample = s->sample;
    ret->top_k = r->p.top_k;
    ret->temperature = (r->p.flags & FDP_F_GREEDY) != 0 ? 0 : r->p.temperature;
    ret->top_p = r->p.top_p;
    ret->min_p = r->p.min_p;
    ret->last_token = s->n_tok > 0 ? (int32_t)req_token(s, s->n_tok - 1) : 0;
    ret->len = s->n_tok;
    ret->min_len = r->min_len;
    ret->max_len = r->max_len;
    ret->done = FDK_DONE_NO;
    ret->penalty = -1;
    ret->generation = s->generation;
    ret->n_stop = r->n_stop;
    memcpy(ret->stop_ids, r->stop_ids, (size_t)r->n_stop * sizeof(r->stop_ids[0]));
}

int32_t
smp_n_top(const struct req *r)
{
    return (r->p.flags & FDP_F_LOGPROBS) != 0 ? r->p.logprobs : -1;
}

int32_t
smp_n_top_prompt(const struct req *r)
{
    return (r->p.flags & FDP_F_PROMPT_LOGPROBS) != 0 ? r->p.prompt_logprobs : -1;
}
