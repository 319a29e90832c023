/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The state with which a request continues after the daemon or its worker was restarted:
 * the request as it was sent, the ids received, and how many elements of each kind of
 * record the program has. The request is sent again with those ids as PRIOR_IDS and the
 * seed that ACCEPTED reported; elements that come twice are cut off by their position.
 *
 * A step's records of a sample come in this order: IDS, LOGPROBS, TOKEN_TEXT, TEXT. A
 * connection may end between them, and TEXT may be missing because the daemon holds it
 * back. So ids count as safe only once a later record has arrived. Ids that are not safe
 * are computed once more and must be the same.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "libclient/priv.h"

#define MAX_TRIES 5 /* a request with which the worker dies every time ends then */

int
fdc__journal_new(struct fdc *s, struct sub *u, const struct ask *a)
{
    struct journal *j = (struct journal *)calloc(1, sizeof(*j));
    struct fdc_params p = a->p;
    struct blob b = u->b;

    u->r->j = j;
    if (j == NULL)
        return FDP_E_NOMEM;
    p.n_prior = 0;
    b.p = &p;
    (void)fdc__blob_bytes(s, &b, &j->n_items); /* fits: it is smaller than u's */
    j->items = (unsigned char *)malloc(j->n_items ? j->n_items : 1);
    j->cap = a->p.n_prior + 64;
    j->ids = (uint32_t *)malloc((size_t)j->cap * 4);
    if (j->items == NULL || j->ids == NULL)
        return FDP_E_NOMEM;
    fdc__write_items(&b, j->items, j->n_items);
    if (a->p.n_prior)
        memcpy(j->ids, a->p.prior_ids, (size_t)a->p.n_prior * 4);
    j->n_ids = j->safe = a->p.n_prior;
    j->text_later = a->p.n_prior != 0;
    j->slot = u->slot;
    j->t_submit = fdc__now();
    return 0;
}

void
fdc__journal_free(struct journal *j)
{
    if (j == NULL)
        return;
    free(j->items);
    free(j->ids);
    free(j);
}

static int
add_id(struct journal *j, uint32_t id)
{
    uint32_t *ids = j->ids;

    if (j->n_ids == j->cap) {
        ids = (uint32_t *)realloc(ids, (size_t)j->cap * 2 * 4);
        if (ids == NULL)
            return -1;
        j->ids = ids;
        j->cap *= 2;
    }
    ids[j->n_ids++] = id;
    j->n_try = 0;
    return 0;
}

/* Do other records than the ids come for each token? */
static int
has_more(const struct journal *j)
{
    return (j->slot.flags & FDP_F_TEXT) != 0 || (j->slot.set & FDP_S_LOGPROBS) != 0;
}

/* Cuts off the elements of a record (size bytes each, the first at h->position) that are
 * among the first *have. Returns 1 if any are left, 0 if none, -1 if elements are missing
 * between. */
static int
cut(struct fdp_rec *h, const unsigned char **payload, uint32_t size, uint32_t *have)
{
    uint32_t n = h->len / size, k;

    if (h->position > *have)
        return -1;
    k = *have - h->position;
    if (k >= n)
        return 0;
    *have = h->position + n;
    *payload += (size_t)k * size;
    h->position += k;
    h->len -= k * size;
    return 1;
}

static int
take_ids(struct journal *j, struct fdp_rec *h, const unsigned char **payload, uint32_t n)
{
    const uint32_t *ids = (const uint32_t *)(const void *)*payload;
    uint32_t had = j->n_ids;

    if (h->position > had)
        return -1;
    if (has_more(j) && h->position > j->safe)
        j->safe = h->position;
    for (uint32_t i = 0; i < n; i++)
        if (h->position + i < had ? j->ids[h->position + i] != ids[i] : add_id(j, ids[i]))
            return -1;
    if (!has_more(j))
        j->safe = j->n_ids;
    return h->type == FDP_T_SPECIAL ? h->position >= had : cut(h, payload, 4, &had);
}

/* A record of logprobs or of token texts. Returns 0 if its position was received
 * before. */
static int
take_one(const struct fdp_rec *h, uint32_t *have)
{
    if (h->position < *have)
        return 0;
    *have = h->position + 1;
    return 1;
}

static int
take_accepted(struct journal *j, const unsigned char *payload)
{
    struct fdp_accepted a;
    int first = !j->accepted;

    memcpy(&a, payload, sizeof(a));
    j->slot.seed = a.seed;
    j->slot.set |= FDP_S_SEED;
    j->accepted = 1;
    j->live = 1;
    j->end.type = 0;
    j->t_lost = 0;
    return first;
}

int
fdc__journal_take(struct journal *j, struct fdp_rec *h, const unsigned char **payload)
{
    int first, rc;

    switch (h->type) {
    case FDP_T_ACCEPTED:
        return take_accepted(j, *payload);
    case FDP_T_PROMPT_IDS:
        return cut(h, payload, 4, &j->n_prompt);
    case FDP_T_PROMPT_TEXT:
        return cut(h, payload, 1, &j->n_prompt_text);
    case FDP_T_IDS:
        return take_ids(j, h, payload, h->len / 4);
    case FDP_T_SPECIAL:
        return take_ids(j, h, payload, 1);
    case FDP_T_TEXT:
        if (j->text_later) /* the length of the text of the program's own PRIOR_IDS */
            j->n_text = h->position;
        j->text_later = 0;
        rc = cut(h, payload, 1, &j->n_text);
        j->safe = j->n_ids;
        return rc;
    case FDP_T_LOGPROBS:
        j->after_prompt_lp = 0;
        if ((j->slot.flags & (FDP_F_TEXT | FDP_F_TOKEN_TEXT)) == 0)
            j->safe = j->n_ids;
        return take_one(h, &j->n_lp);
    case FDP_T_PROMPT_LOGPROBS:
        j->after_prompt_lp = 1;
        return take_one(h, &j->n_plp);
    case FDP_T_TOKEN_TEXT:
        if (j->after_prompt_lp)
            return take_one(h, &j->n_ptt);
        if ((j->slot.flags & FDP_F_TEXT) == 0)
            j->safe = j->n_ids;
        return take_one(h, &j->n_tt);
    case FDP_T_CHOICE_END:
        memcpy(&j->end_data, *payload, sizeof(j->end_data));
        if (j->end_data.finish == FDP_FIN_ERROR) {
            j->end = *h;
            j->end.len = sizeof(j->end_data);
            return 0;
        }
        first = !j->ended;
        j->ended = 1;
        j->safe = j->n_ids;
        return first;
    }
    return 1;
}

int
fdc__journal_outlives(const struct fdc *s, struct fdc_req *r, const struct fdp_error *why)
{
    struct journal *j = r->j;
    int live = j->live;

    j->live = 0;
    if (s->re.ms == 0)
        return 0;
    if (j->t_lost && s->re.ms != UINT32_MAX &&
        fdc__now() - j->t_lost > (uint64_t)s->re.ms * 1000000u)
        return 0;
    switch (why->code) {
    case FDP_E_GPU_RESET:
        return !live || ++j->n_try < MAX_TRIES;
    case FDP_E_GPU_LOST: /* the daemon ends, and another one may follow */
    case FDP_E_DRAINING:
    case FDP_E_DISCONNECTED:
        return 1;
    case FDP_E_LOADING:
    case FDP_E_QUEUE_FULL:
    case FDP_E_OVERLOAD:
    case FDP_E_LIMIT:
        return j->t_lost != 0; /* it was accepted before */
    }
    return 0;
}
