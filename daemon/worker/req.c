/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/req.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

const char *
req_state_name(enum req_st st)
{
    static const char *const name[REQ_ST__N] = {
#define REQ_ST(n, text) [REQ_ST_##n] = text,
#include "daemon/tbl/req_states.h"
#undef REQ_ST
    };

    return (unsigned)st < REQ_ST__N ? name[st] : "?";
}

/* ---- pool -------------------------------------------------------------------- */

int
req_pool_init(struct req_pool *rp, uint32_t n)
{
    memset(rp, 0, sizeof(*rp));
    rp->n = rp->n_free = n;
    rp->n_hash = 16;
    while (rp->n_hash < n * 2)
        rp->n_hash *= 2;
    /* struct req has over-aligned members */
    rp->reqs = mem_aligned(_Alignof(struct req), (size_t)n * sizeof(struct req));
    rp->hash = mem_array(rp->n_hash, sizeof(struct req *));
    if (rp->reqs == NULL || rp->hash == NULL) {
        req_pool_fini(rp);
        return -ENOMEM;
    }
    for (uint32_t i = n; i-- > 0;) {
        rp->reqs[i].magic = REQ_MAGIC;
        rp->reqs[i].idx = i;
        rp->reqs[i].next = rp->free;
        rp->free = &rp->reqs[i];
    }
    return 0;
}

static void
req_clear(struct req *r)
{
    uint32_t idx = r->idx, serial = r->serial;

    free(r->ids);
    free(r->blob);
    free(r->body);
    free(r->words);
    (void)fin_set_free(r->stops);
    (void)rls_free(r->rules);
    memset(r, 0, sizeof(*r));
    r->magic = REQ_MAGIC;
    r->idx = idx;
    r->serial = serial;
}

void
req_pool_fini(struct req_pool *rp)
{
    for (uint32_t i = 0; rp->reqs != NULL && i < rp->n; i++)
        req_clear(&rp->reqs[i]);
    free(rp->reqs);
    free(rp->hash);
    memset(rp, 0, sizeof(*rp));
}

static uint32_t
req_hash(const struct req_pool *rp, uint64_t id)
{
    return (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32) & (rp->n_hash - 1);
}

struct req *
req_find(const struct req_pool *rp, uint64_t id)
{
    for (uint32_t h = req_hash(rp, id); rp->hash[h] != NULL; h = (h + 1) & (rp->n_hash - 1))
        if (rp->hash[h]->id == id)
            return rp->hash[h];
    return NULL;
}

struct req *
req_get(struct req_pool *rp, uint64_t id)
{
    struct req *r = rp->free;
    uint32_t h;

    if (r == NULL)
        return NULL;
    rp->free = r->next;
    rp->n_free--;
    r->next = NULL;
    r->serial++;
    r->id = id;
    r->order = rp->order++;
    for (h = req_hash(rp, id); rp->hash[h] != NULL; h = (h + 1) & (rp->n_hash - 1))
        continue;
    rp->hash[h] = r;
    return r;
}

void
req_put(struct req_pool *rp, struct req *r)
{
    uint32_t mask = rp->n_hash - 1, h = req_hash(rp, r->id), hole;

    OBJ_CHECK(r, REQ_MAGIC);
    ASSERT(r->where != REQ_IN_FREE && r->enc == NULL);
    while (rp->hash[h] != r) {
        ASSERT(rp->hash[h] != NULL);
        h = (h + 1) & mask;
    }
    /* Close the hole: move back the entries that were displaced past it. */
    rp->hash[h] = NULL;
    hole = h;
    for (h = (h + 1) & mask; rp->hash[h] != NULL; h = (h + 1) & mask) {
        uint32_t home = req_hash(rp, rp->hash[h]->id);

        if (((h - home) & mask) < ((h - hole) & mask))
            continue;
        rp->hash[hole] = rp->hash[h];
        rp->hash[h] = NULL;
        hole = h;
    }
    req_clear(r);
    r->next = rp->free;
    rp->free = r;
    rp->n_free++;
}

int
req_make_seqs(struct req *r)
{
    size_t n = (size_t)r->n_seq;
    size_t n_out = (size_t)(r->max_len - r->n_ids);
    int text = (r->p.flags & FDP_F_TEXT) != 0;
    size_t n_hash = r->block_size > 0 ? (size_t)(r->n_ids / r->block_size) : 0;
    size_t n_more = r->block_size > 0 ? (size_t)(r->max_len / r->block_size) - n_hash : 0;
    size_t at_choice = n * sizeof(struct seq);
    size_t n_run = r->repetition.count != 0 ? r->repetition.max_len : 0;
    size_t n_lp = n_out * (size_t)r->n_lp;
    size_t at_hash, at_out, at_run, at_text, at_lp, bytes;
    unsigned char *b;

    ASSERT(r->n_seq >= 1 && r->n_ids >= 1 && r->max_len >= r->n_ids);
    ASSERT((r->block_size > 0) == ((r->hash_root.a | r->hash_root.b) != 0));
    at_choice = (at_choice + 63) & ~(size_t)63;
    at_hash = (at_choice + n * sizeof(struct req_choice) + 63) & ~(size_t)63;
    at_out = at_hash + (n_hash + n * n_more) * sizeof(struct kv_hash);
    at_run = at_out + n * n_out * sizeof(uint32_t);
    at_text = at_run + n * n_run * sizeof(uint32_t);
    at_lp = (at_text + (text ? n * REQ_TEXT_BYTES : 0) + 63) & ~(size_t)63;
    bytes = at_lp + n * n_lp * sizeof(struct fdp_logprob);
    /* zeroed by calloc(): pages of a long output are allocated when they are written */
    b = mem_zalloc(bytes);
    if (b == NULL)
        return -ENOMEM;
    r->body = b;
    r->seqs = (struct seq *)b;
    r->choices = (struct req_choice *)(b + at_choice);
    r->hash = (struct kv_hash *)(b + at_hash);
    r->n_hash = (int32_t)n_hash;
    for (size_t i = 0; i < n; i++) {
        struct seq *s = &r->seqs[i];

        s->req = r;
        s->sample = (uint16_t)i;
        s->state = REQ_ST_NEW;
        s->slot = -1;
        s->n_tok = s->device_len = r->n_ids;
        s->max_len = r->max_len;
        s->n_scored = r->p.prompt_from > 1 ? (int32_t)r->p.prompt_from : 1;
        s->out = (uint32_t *)(b + at_out) + i * n_out;
        s->hash = r->hash + n_hash + i * n_more;
        s->n_hash = r->n_hash;
        s->penalty = -1;
        r->choices[i].shown = (uint16_t)i;
        if (n_lp > 0)
            r->choices[i].lp = (struct fdp_logprob *)(void *)(b + at_lp) + i * n_lp;
        if (n_run > 0)
            r->choices[i].run = (uint32_t *)(void *)(b + at_run) + i * n_run;
        if (text)
            r->choices[i].text = b + at_text + i * REQ_TEXT_BYTES;
    }
    r->n_live = r->n_seq;
    r->n_open = r->n_seq;
    return 0;
}

int
req_hash_step(struct req *r, const struct pfx_key *key, int32_t max_blocks)
{
    int32_t B = r->block_size, i = r->n_hashed;

    for (; i < r->n_hash && max_blocks > 0; i++, max_blocks--)
        pfx_next(key, i > 0 ? &r->hash[i - 1] : &r->hash_root,
            r->ids + (size_t)i * (size_t)B, B, &r->hash[i]);
    r->n_hashed = i;
    return i == r->n_hash;
}

/* ---- any owner ------------------------------------------------------------------ */

uint32_t
req_token(const struct seq *s, int32_t pos)
{
    const struct req *r = s->req;

    DIAG(pos >= 0 && pos < s->n_tok);
    return pos < r->n_ids ? r->ids[pos] : s->out[pos - r->n_ids];
}

const struct kv_hash *
req_block_hash(const struct seq *s, int32_t i)
{
    const struct req *r = s->req;

    DIAG(i >= 0 && i < s->n_hash);
    return i < r->n_hash ? &r->hash[i] : &s->hash[i - r->n_hash];
}

int32_t
req_given_up(const struct req *r, uint64_t now_ns)
{
    int32_t code = __atomic_load_n(&r->cancel, __ATOMIC_ACQUIRE);

    if (code == 0 && r->deadline_total_ns != 0 && r->deadline_total_ns <= now_ns)
        code = FDP_E_DEADLINE;
    return code;
}

int
req_echoes(const struct req *r)
{
    return (r->p.flags & (FDP_F_PROMPT_IDS | FDP_F_PROMPT_TEXT)) != 0;
}

int
req_via_egress(const struct req *r)
{
    return req_echoes(r) || r->n_ids > r->n_prompt;
}

int
req_has_stopped(const struct req *r)
{
    int32_t last = r->n_ids - 1;

    if (last < r->n_prompt || last < r->min_len)
        return 0;
    for (int32_t i = 0; i < r->n_stop; i++)
        if ((uint32_t)r->stop_ids[i] == r->ids[last])
            return 1;
    return 0;
}

int
req_is_prefill(const struct seq *s)
{
    return s->device_len - s->cached_len > 1;
}

int
req_wants_scores(const struct seq *s)
{
    return s->sample == 0 && (s->req->p.set & FDP_S_PROMPT_LOGPROBS) != 0;
}

int
req_is_scored(const struct req *r)
{
    return r->n_ids == r->max_len && r->n_ids == r->n_prompt &&
        req_wants_scores(&r->seqs[0]) && r->seqs[0].n_scored < r->n_prompt;
}

/* Only known tokens have hashes; only blocks that are computed, or will be by a step that
 * is already chosen, are indexed in the prefix cache. */
static void
req_check_hashes(const struct req *r, const struct seq *s)
{
    int64_t B = r->block_size;

    ASSERT(s->n_hash >= r->n_hash && s->n_hash * B <= s->n_tok);
    ASSERT(B > 0 || s->n_hash == 0);
    ASSERT(s->n_registered >= 0 && s->n_registered <= s->n_hash);
    ASSERT(s->slot < 0 || s->n_registered * B <= s->cached_len);
    ASSERT(s->state != REQ_ST_WAITING || s->n_registered == 0);
}

void
req_check(const struct req *r)
{
    int32_t live = 0, slots = 0;

    OBJ_CHECK(r, REQ_MAGIC);
    ASSERT(r->n_prompt >= 1 && r->n_ids >= r->n_prompt && r->max_len >= r->n_ids);
    ASSERT(r->block_size >= 0 && r->n_hashed == r->n_hash);
    ASSERT((r->block_size > 0) == ((r->hash_root.a | r->hash_root.b) != 0));
    ASSERT(r->n_hash == (r->block_size > 0 ? r->n_ids / r->block_size : 0));
    ASSERT(r->n_cached <= (uint32_t)r->n_prompt);
    for (int32_t i = 0; i < r->n_seq; i++) {
        const struct seq *s = &r->seqs[i];

        ASSERT(s->req == r && s->sample == i && s->state < REQ_ST__N);
        ASSERT(s->cached_len >= 0 && s->cached_len <= s->device_len);
        ASSERT(s->n_tok >= r->n_ids && s->n_tok <= s->device_len);
        ASSERT(s->device_len <= s->max_len && s->max_len == r->max_len);
        ASSERT((s->slot >= 0) ==
            (s->state == REQ_ST_RUNNING || s->state == REQ_ST_PREEMPT_PENDING ||
                s->state == REQ_ST_FINISHING));
        ASSERT(s->state != REQ_ST_WAITING || s->cached_len == 0);
        ASSERT(s->n_scored >= 1 && s->n_scored <= (r->n_prompt > 1 ? r->n_prompt : 1));
        ASSERT(s->penalty >= -1 && (s->penalty < 0 || (s->slot >= 0 && r->penalized)));
        ASSERT(s->state != REQ_ST_RUNNING || !r->penalized || s->penalty >= 0);
        req_check_hashes(r, s);
        live += s->state != REQ_ST_ENDED;
        slots += s->slot >= 0;
    }
    ASSERT(live == r->n_live && slots == r->n_slot);
}
