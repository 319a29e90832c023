/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/ingress.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/rules.h"
#include "daemon/worker/tokenizer.h"

/* ---- items ------------------------------------------------------------------------------ */

static int
ing_in_vocab(const struct ing_cfg *c, const uint32_t *ids, uint32_t n, uint32_t detail,
    struct ing_bad *bad)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= (uint32_t)c->vocab)
            return ing_over(bad, FDP_E_BAD_TOKEN, detail, ids[i], (uint32_t)c->vocab - 1);
    return 0;
}

static int
ing_bias(const struct ing_cfg *c, struct rls *r, const struct fdp_bias *b, uint32_t n,
    struct ing_bad *bad)
{
    uint32_t id = 0;
    int rc;

    if (n < 1 || n > FDP_MAX_BIAS || r->bias != NULL)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_BIAS_IDS, n, FDP_MAX_BIAS);
    for (uint32_t i = 0; i < n; i++)
        if (ing_in_vocab(c, &b[i].id, 1, FDP_D_BIAS_IDS, bad) != 0)
            return -1;
    rc = rls_bias(r, b, n, &id);
    if (rc == -EEXIST)
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_BIAS_TWICE, id);
    return rc == 0 ? 0 : ing_bad(bad, FDP_E_OVERLOAD, FDP_D_BIAS_IDS, n);
}

static int
ing_ban(struct rls *r, const uint32_t *ids, uint32_t n, struct ing_bad *bad)
{
    int rc;

    if (n < 1 || n > FDP_MAX_BAD_IDS)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS, n,
            n < 1 ? 1 : FDP_MAX_BAD_IDS);
    rc = rls_ban(r, ids, n);
    if (rc == -ENOSPC)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS, (uint64_t)r->n_ban_ids + n,
            FDK_MAX_BAN_IDS);
    return rc == 0 ? 0 : ing_bad(bad, FDP_E_OVERLOAD, FDP_D_BAD_WORDS, n);
}

/* Keeps a bad word; it is tokenized later. */
static int
ing_word(const struct ing_cfg *c, struct req *r, const unsigned char *p, uint32_t len,
    struct ing_bad *bad)
{
    uint32_t skip = 0;

    if (c->tok == NULL)
        return ing_bad(bad, FDP_E_NO_MODEL, FDP_D_BAD_WORDS, 0);
    if (r->words == NULL)
        r->words = mem_array(FDP_MAX_BAD, sizeof(*r->words));
    if (r->words == NULL)
        return ing_bad(bad, FDP_E_OVERLOAD, FDP_D_BAD_WORDS, len);
    while (skip < len && p[skip] == ' ')
        skip++;
    if (skip == len || len > FDP_MAX_BAD_LEN || r->n_words == FDP_MAX_BAD)
        return ing_over(bad, FDP_E_BAD_PARAM, FDP_D_BAD_WORDS, len - skip,
            skip == len ? 1 : FDP_MAX_BAD_LEN);
    r->words[r->n_words++] =
        (struct tok_span){ (uint32_t)(p + skip - r->blob), len - skip };
    return 0;
}

static int
ing_reasoning(const struct ing_cfg *c, struct rls *r, const unsigned char *p,
    uint32_t len, struct ing_bad *bad)
{
    struct fdp_reasoning a;

    if (len != sizeof(a))
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_REASONING, len);
    memcpy(&a, p, sizeof(a));
    if (ing_in_vocab(c, &a.open_id, 2, FDP_D_REASONING, bad) != 0)
        return -1;
    rls_reasoning(r, &a);
    return 0;
}

/* A sequence with rules needs an entry of the penalty pool. */
static int
ing_ruled(const struct ing_cfg *c, struct req *r, uint32_t detail, struct ing_bad *bad)
{
    if (c->n_penalty <= 0)
        return ing_bad(bad, FDP_E_UNSUPPORTED, detail, 0);
    if (r->rules == NULL)
        r->rules = rls_new(c->vocab);
    if (r->rules == NULL)
        return ing_bad(bad, FDP_E_OVERLOAD, detail, 0);
    r->penalized = 1;
    return 0;
}

/* Items that are lists of ids. */
static int
ing_rule_ids(const struct ing_cfg *c, struct req *r, const struct fdp_item *it,
    uint32_t detail, struct ing_bad *bad)
{
    const uint32_t *ids = (const uint32_t *)(it + 1);
    uint32_t n = it->len / 4;

    if (it->len % 4 != 0)
        return ing_bad(bad, FDP_E_BAD_PARAM, detail, it->len);
    if (ing_in_vocab(c, ids, n, detail, bad) != 0)
        return -1;
    if (it->type == FDP_IT_BAD_IDS)
        return ing_ban(r->rules, ids, n, bad);
    if (it->type == FDP_IT_ALLOWED_IDS) {
        if (n < 1 || r->rules->allowed != NULL)
            return ing_over(bad, FDP_E_BAD_PARAM, detail, n, 1);
        return rls_allow(r->rules, ids, n) == 0
            ? 0
            : ing_bad(bad, FDP_E_OVERLOAD, detail, n);
    }
    if (n < 1 || n > FDP_MAX_LOGPROB_IDS)
        return ing_over(bad, FDP_E_BAD_PARAM, detail, n, FDP_MAX_LOGPROB_IDS);
    if ((r->p.set & FDP_S_LOGPROBS) == 0)
        return ing_bad(bad, FDP_E_BAD_PARAM, FDP_D_SET, FDP_S_LOGPROBS);
    rls_choose(r->rules, ids, n);
    return 0;
}

int
ing_rule(const struct ing_cfg *c, struct req *r, const struct fdp_item *it,
    struct ing_bad *bad)
{
    static const uint8_t details[FDP_IT__N] = { [FDP_IT_LOGIT_BIAS] = FDP_D_BIAS_IDS,
        [FDP_IT_BAD_WORDS] = FDP_D_BAD_WORDS,
        [FDP_IT_ALLOWED_IDS] = FDP_D_ALLOWED,
        [FDP_IT_BAD_IDS] = FDP_D_BAD_WORDS,
        [FDP_IT_LOGPROB_IDS] = FDP_D_LOGPROB_IDS,
        [FDP_IT_REASONING] = FDP_D_REASONING };
    const unsigned char *p = (const unsigned char *)(it + 1);
    uint32_t detail = it->type < FDP_IT__N ? details[it->type] : FDP_D_NONE;

    if (detail == FDP_D_NONE)
        return ing_bad(bad, FDP_E_UNSUPPORTED, FDP_D_ITEM, it->type);
    if (ing_ruled(c, r, detail, bad) != 0)
        return -1;
    switch (it->type) {
    case FDP_IT_LOGIT_BIAS:
        return ing_bias(c, r->rules, (const struct fdp_bias *)(const void *)p,
            it->len / 8, bad);
    case FDP_IT_BAD_WORDS:
        return ing_word(c, r, p, it->len, bad);
    case FDP_IT_REASONING:
        return ing_reasoning(c, r->rules, p, it->len, bad);
    default:
        return ing_rule_ids(c, r, it, detail, bad);
    }
}

/* ---- bad words ------------------------------------------------------------------------ */

/* Tokenizes n bytes of text, at once since they are short. */
static int
ing_word_ids(struct ingress *g, struct req *r, const char *text, size_t n,
    const uint32_t **ret, size_t *ret_n)
{
    int rc = tok_enc_begin(r->enc, text, n,
        (r->p.flags & FDP_F_PARSE_SPECIAL) != 0 ? TOK_PARSE_SPECIAL : 0);

    while (rc == 0)
        rc = tok_enc_step(r->enc, n);
    if (rc < 0)
        return rc;
    *ret = tok_enc_ids(r->enc, ret_n);
    for (size_t i = 0; i < *ret_n; i++)
        if ((*ret)[i] >= (uint32_t)g->cfg.vocab)
            return -ERANGE;
    return 0;
}

int
ing_ban_word(struct ingress *g, struct req *r, struct ing_bad *bad)
{
    const struct tok_span *w = &r->words[r->word_at];
    char text[1 + FDP_MAX_BAD_LEN] = " ";

    memcpy(text + 1, r->blob + w->off, w->len);
    for (size_t skip = 0; skip <= 1; skip++) {
        const uint32_t *ids = NULL;
        size_t n = 0;
        int rc = ing_word_ids(g, r, text + skip, w->len + 1 - skip, &ids, &n);

        if (rc == 0)
            rc = ing_ban(r->rules, ids, (uint32_t)n, bad);
        else if (rc == -ENOMEM)
            rc = ing_bad(bad, FDP_E_OVERLOAD, FDP_D_BAD_WORDS, w->len);
        else
            rc = ing_bad(bad, FDP_E_BAD_TEXT, FDP_D_BAD_WORDS, r->word_at);
        if (rc == 0)
            continue;
        bad->item = FDP_IT_BAD_WORDS;
        return rc;
    }
    r->word_at++;
    return 0;
}
