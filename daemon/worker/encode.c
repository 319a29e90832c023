/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/common/mem.h"
#include "daemon/worker/tokenizer.h"

void
enc_init(struct encode *e, const struct enc_cfg *cfg)
{
    *e = (struct encode){ .cfg = *cfg };
}

void
enc_fini(struct encode *e)
{
    while (e->n_idle > 0)
        (void)tok_enc_free(e->idle[--e->n_idle]);
}

int
enc_take(struct encode *e, struct req *r)
{
    r->enc = e->n_idle > 0 ? e->idle[--e->n_idle] : tok_enc_new(e->cfg.tok);
    return r->enc != NULL ? 0 : -ENOMEM;
}

void
enc_drop(struct encode *e, struct req *r)
{
    if (r->enc == NULL)
        return;
    if (e->n_idle < ENC_IDLE && r->n_text <= ENC_KEEP)
        e->idle[e->n_idle++] = r->enc;
    else
        (void)tok_enc_free(r->enc);
    r->enc = NULL;
}

static int
enc_begin(struct encode *e, struct req *r)
{
    unsigned flags = 0;
    int rc;

    if (enc_take(e, r) != 0)
        return -ENOMEM;
    if ((r->p.flags & FDP_F_NO_SPECIAL) == 0)
        flags |= TOK_ADD_SPECIAL;
    if ((r->p.flags & FDP_F_PARSE_SPECIAL) != 0)
        flags |= TOK_PARSE_SPECIAL;
    rc = tok_enc_begin(r->enc, r->text, r->n_text, flags);
    if (rc == 0 && r->n_spans > 0)
        tok_enc_spans(r->enc, r->spans, r->n_spans);
    return rc;
}

/* The encoder has all ids of r's text: puts them before the prior ids. */
static int
enc_ids(const struct encode *e, struct req *r, uint32_t *ret_id)
{
    size_t n = 0, n_prior = (size_t)(r->n_ids - r->n_prompt);
    const uint32_t *ids = tok_enc_ids(r->enc, &n);
    uint32_t *all;

    if (n + n_prior > INT32_MAX / 8)
        return -E2BIG;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= (uint32_t)e->cfg.vocab) {
            *ret_id = ids[i];
            return -ERANGE;
        }
    }
    all = mem_array(n + n_prior + 1, sizeof(*all));
    if (all == NULL)
        return -ENOMEM;
    if (n > 0)
        memcpy(all, ids, n * sizeof(*all));
    memcpy(all + n, r->ids, n_prior * sizeof(*all));
    free(r->ids);
    r->ids = all;
    r->n_prompt = (int32_t)n;
    r->n_ids = (int32_t)(n + n_prior);
    return 0;
}

uint32_t
enc_slice(struct encode *e, uint64_t now_ns, uint32_t max_bytes, struct enc_done *ret)
{
    struct req *r = req_first(&e->texts);
    uint32_t cost = r->n_text < max_bytes ? r->n_text + 64 : max_bytes;
    uint64_t t0 = clk_now_ns();
    int32_t code;
    int rc = 0;

    *ret = (struct enc_done){ .r = NULL };
    code = req_given_up(r, now_ns);
    if (code != 0) {
        enc_drop(e, r);
        *ret = (struct enc_done){ .r = r, .rc = -ECANCELED, .arg = (uint32_t)code };
        return 64;
    }
    if (r->enc == NULL)
        rc = enc_begin(e, r);
    if (rc == 0)
        rc = tok_enc_step(r->enc, max_bytes);
    if (rc == 0) {
        enc_put(e, r);
    } else {
        *ret = (struct enc_done){ .r = r, .rc = rc < 0 ? rc : 0 };
        if (rc > 0) {
            cnt_add_shared(&e->cfg.cnt->tokenized_bytes, r->n_text);
            ret->rc = enc_ids(e, r, &ret->arg);
        }
        enc_drop(e, r);
    }
    cnt_add_shared(&e->cfg.cnt->tokenize_ns, clk_now_ns() - t0);
    return cost;
}

int
enc_poll(struct encode *e, uint64_t now_ns, int *ret_ended)
{
    uint32_t n = que_recheck(e->cfg.in);
    struct enc_done d = { .r = NULL };
    int work = (int)n;

    for (uint32_t i = 0; i < n; i++)
        enc_put(e, que_peek(e->cfg.in, i)->m.req);
    que_pop(e->cfg.in, n);
    if (enc_is_busy(e))
        (void)enc_slice(e, now_ns, ENC_SLICE, &d);
    *ret_ended = d.r != NULL;
    if (d.r != NULL) {
        struct que_msg m = { .req = d.r,
            .kind = QUE_TEXT,
            .a = d.rc,
            .x = d.arg,
            .n_top = QUE_NO_LOGPROB };

        que_push(e->cfg.out, &m);
        work++;
    }
    return work + enc_is_busy(e);
}
