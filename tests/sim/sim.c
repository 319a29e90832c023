/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/worker/memplan.h"
#include "daemon/worker/model_priv.h"
#include "daemon/worker/null_tok.h"
#include "daemon/worker/tokenizer.h"
#include "kernels/cpu/cpu.h"
#include "tests/test_device.h"

#define SIM_BLOB     (1u << 20)
#define SIM_LIMIT_MS 60000

static uint64_t sim_seed_now;
static const struct pfx_key sim_key = { 0x1234, 0x5678 };

void
sim_fail(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: %s (SEED=%llu)\n", file, line, what,
        (unsigned long long)sim_seed_now);
    abort();
}

uint32_t
sim_u32(struct sim_rng *r)
{
    uint64_t z = r->s += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)(z >> 32);
}

uint32_t
sim_range(struct sim_rng *r, uint32_t lo, uint32_t hi)
{
    return lo + (uint32_t)((uint64_t)sim_u32(r) * (hi - lo + 1) >> 32);
}

uint64_t
sim_seed(int argc, char **argv)
{
    const char *s = argc > 1 ? argv[1] : getenv("SEED");

    sim_seed_now = s != NULL ? strtoull(s, NULL, 10) : 1;
    (void)printf("seed %llu\n", (unsigned long long)sim_seed_now);
    return sim_seed_now;
}

uint64_t
sim_steps(uint64_t def)
{
    const char *s = getenv("FDD_SIM_STEPS");

    if (s != NULL)
        return strtoull(s, NULL, 10) / 3;
#ifdef FDD_SANITIZED
    def /= 4;
#endif
    return def;
}

/* ---- life --------------------------------------------------------------------------- */

/* The up ring is full: lets the gate read. */
static void
sim_room(void *arg)
{
    sim_records(arg);
}

static int32_t
sim_at_least_one(int32_t n)
{
    return n > 0 ? n : 1;
}

static void
sim_program(struct sim *s)
{
    struct mdl_config mc;
    char err[512] = "";
    int rc, dummy;
    char path[512];

    if (s->cfg.model_dir == NULL) {
        s->prog = run_null_program();
        SIM_CHECK(s->prog != NULL);
        if (ntk_load(&s->tok, err, sizeof(err)) != 0)
            sim_fail(__FILE__, __LINE__, err);
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", s->cfg.model_dir);
    dummy = access(path, R_OK) != 0;
    rc = mdl_config_read(s->cfg.model_dir, &mc, err, sizeof(err));
    if (rc == 0)
        rc = mdl_build_ranks(&mc,
            &(struct mdl_ranks){ .n = sim_at_least_one(s->cfg.n_rank),
                .n_copy = sim_at_least_one(s->cfg.n_copy),
                .kv_split = sim_at_least_one(s->cfg.kv_split),
                .n_split = sim_at_least_one(s->cfg.n_split) },
            &s->prog, err, sizeof(err));
    if (rc == 0 && s->cfg.edit != NULL) {
        s->cfg.edit(s->prog);
        rc = mdl_set_kv_groups(s->prog);
    }
    if (rc == 0)
        rc = wts_plan_new(s->cfg.model_dir, s->prog, dummy, 7, &s->wp, err, sizeof(err));
    if (rc == 0)
        rc = wts_plan_quantize(s->wp, s->prog, &s->cfg.quant, err, sizeof(err));
    if (rc != 0)
        sim_fail(__FILE__, __LINE__, err);
    s->prog->has_tails &= !s->cfg.all_tokens;
    s->cfg.n_block *= s->prog->n_kv_group;
}

static void
sim_eng_cfg(const struct sim *s, struct eng_cfg *ret)
{
    const struct sim_cfg *c = &s->cfg;

    *ret = (struct eng_cfg){ .max_reqs = c->max_reqs,
        .max_len = c->max_len,
        .n_block = c->n_block,
        .block_size = c->block_size,
        .n_host = c->n_host,
        .depth = c->depth,
        .n_copy = c->n_copy,
        .min_split = c->min_split,
        .sch = c->sch,
        .beat = &s->seg->w.beat };
    ret->sch.max_seqs = c->max_seqs;
    ret->sch.max_tokens = c->max_tokens;
    ret->sch.chunked = c->chunked;
    ret->sch.n_penalty = c->n_penalty;
    ret->sch.key = sim_key;
    ret->n_group = s->prog->n_kv_group;
    for (int32_t g = 0; g < ret->n_group && !c->keep_all; g++)
        if (s->prog->kv_group[g].window > 0)
            ret->window[g] =
                s->prog->kv_group[g].window + (s->run != NULL ? s->run->k->att_back : 0);
}

static enum fdk_dtype
sim_kv_dtype(const struct sim *s)
{
    /* on GPUs keys and values have no more bits than the activations */
    if (s->cfg.kv_dtype > 0 && (s->cfg.kv_dtype != FDK_F32 + 1 || sim_gpus() == 0))
        return (enum fdk_dtype)(s->cfg.kv_dtype - 1);
    return s->wp != NULL && wts_main_dtype(s->wp) != FDK_F32 ? FDK_BF16 : FDK_F32;
}

static const char *
sim_backend(const struct sim *s)
{
    const char *env = getenv("FDD_SIM_BACKEND");

    if (s->wp == NULL)
        return "null";
    if (s->cfg.backend != NULL)
        return s->cfg.backend;
    return env != NULL ? env : "cpu";
}

static void
sim_runner(struct sim *s)
{
    int32_t dev = td_dev();
    struct run_open_args oa = { .backend = sim_backend(s),
        .n_device = dev + 1,
        .dead = td_dead(),
        .rank = &dev,
        .deterministic = !s->cfg.any_order,
        .n_thread = s->cfg.threads > 0 ? s->cfg.threads : 1,
        .max_token = s->cfg.max_tokens,
        .spin_us = s->cfg.real_clock ? 50 : 0,
        .unfused = s->cfg.unfused,
        .halves_least = s->cfg.halves,
        .prog = s->prog,
        .wp = s->wp,
        .exec = s->cfg.exec };
    struct run_setup_args sa = { .max_block = s->cfg.n_block + 1,
        .n_rec = s->cfg.depth + 1,
        .n_host = s->cfg.n_host,
        .n_penalty = s->cfg.n_penalty,
        .use_graph = s->cfg.graph,
        .delay_ns = s->cfg.delay_ns };
    struct wts_load_args la = { .buffer_bytes = 4u << 20 };
    struct eng_cfg ec;
    char err[512] = "";
    float *scale = NULL;
    int rc = 0;

    if (s->cfg.n_rank > 1 || s->cfg.n_copy > 1) {
        oa.n_copy = sim_at_least_one(s->cfg.n_copy);
        oa.n_device = oa.n_rank = sim_at_least_one(s->cfg.n_rank) * oa.n_copy;
        oa.dead = 0;
        oa.rank = NULL;
        oa.in_host = s->cfg.in_host;
        oa.kv_split = s->prog->kv_split;
        oa.kv_copies = s->prog->kv_copies;
        oa.spin_limit_us = 1000 *
            (uint32_t)(s->cfg.spin_limit_ms > 0 ? s->cfg.spin_limit_ms : SIM_LIMIT_MS);
    }
    sim_eng_cfg(s, &ec);
    eng_dims(&ec, &sa.dims);
    if (s->cfg.capture == NULL)
        cap_default(s->cfg.max_tokens, &sa.cap);
    else
        rc = cap_parse(s->cfg.capture, s->cfg.max_tokens, &sa.cap, err, sizeof(err));
    if (rc == 0)
        rc = run_new(&oa, &s->run, err, sizeof(err));
    if (rc == 0 && s->cfg.ops != NULL)
        s->run->k = s->cfg.ops;
    if (rc == 0 && s->wp != NULL)
        rc = wts_plan_layout(s->wp, s->prog, s->run->k, err, sizeof(err));
    if (rc == 0)
        rc = run_load(s->run, s->prog, s->wp, &la, err, sizeof(err));
    for (int32_t g = 0; g < ec.n_group && rc == 0; g++) {
        const struct mdl_kv_group *k = &s->prog->kv_group[g];

        rc = mpl_layout(k->n_layer, 0, k->n_kv_head, k->head_dim,
            s->cfg.block_size / s->prog->kv_split, sim_kv_dtype(s), &sa.kv[g]);
        sa.kv[g].n_own = s->prog->kv_split;
    }
    mpl_share(sa.kv, ec.n_group);
    if (rc == 0 && sa.kv[0].dtype == FDK_F8E4M3 && s->wp != NULL) {
        scale = mem_array(2 * (size_t)s->prog->cfg.n_layer * (size_t)s->prog->cfg.n_kv_head,
            sizeof(*scale));
        SIM_CHECK(scale != NULL);
        rc = wts_kv_scales(s->wp, s->prog, scale, err, sizeof(err));
        sa.kv_scale = scale;
    }
    if (rc == 0)
        rc = run_setup(s->run, &sa, err, sizeof(err));
    free(scale);
    if (rc == 0)
        rc = run_check(s->run, err, sizeof(err));
    if (rc == 0)
        rc = run_warm(s->run, !s->cfg.lazy);
    if (rc == 0)
        rc = run_load_wait(s->run, err, sizeof(err));
    if (rc == 0)
        rc = run_load_embed(s->run, err, sizeof(err));
    if (rc == 0)
        rc = run_map_kv(s->run, s->cfg.n_block + 1, err, sizeof(err));
    if (rc != 0 && err[0] == '\0' && s->run != NULL)
        (void)snprintf(err, sizeof(err), "%s: %s", strerror(-rc), run_error(s->run));
    if (rc != 0)
        sim_fail(__FILE__, __LINE__, err);
}

struct sim *
sim_new(const struct sim_cfg *cfg)
{
    struct sim *s = mem_zalloc(sizeof(*s));
    const uint64_t boot[2] = { 1, 2 };
    struct pip_cfg pc;
    char err[512] = "";

    SIM_CHECK(s != NULL);
    s->cfg = *cfg;
    s->now_ns = 1000000000u;
    s->last_req = -1;
    s->rng.s = cfg->seed;
    if (getenv("SIM_TRACE") != NULL)
        (void)printf("  depth %d graph %d prefix %d host %d exec %d pace %d seed %llu lazy %d "
                     "seqs %d tokens %d blocks %d\n",
            cfg->depth, cfg->graph, cfg->prefix, cfg->n_host, (int)cfg->exec,
            (int)cfg->pace, (unsigned long long)cfg->seed, cfg->lazy, cfg->max_seqs,
            cfg->max_tokens, cfg->n_block);
    log_init("sim", "error");
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    SIM_CHECK(lnk_create(NULL, 1, &s->seg, &s->fd) == 0);
    lnk_init_gate(&s->gate, s->seg, -1);
    lnk_init_worker(&s->worker, s->seg, -1);
    s->cnt = mem_aligned(128, sizeof(*s->cnt));
    s->reqs = mem_array((size_t)cfg->max_reqs, sizeof(*s->reqs));
    s->blob = mem_zalloc(SIM_BLOB);
    if (!cfg->no_instruments)
        SIM_CHECK(trc_create(boot, &s->trc_seg, &s->trc_fd) == 0);
    trc_init(&s->trc, s->trc_seg, 1);
    SIM_CHECK(s->cnt != NULL && s->reqs != NULL && s->blob != NULL);
    sim_program(s);
    sim_runner(s);
    pc = (struct pip_cfg){ .lnk = &s->worker,
        .run = s->run,
        .tok = s->tok,
        .ready = &s->ready,
        .cnt = &s->cnt->w,
        .hist = cfg->no_instruments ? NULL : s->cnt->h,
        .trc = &s->trc,
        .wait_room = sim_room,
        .arg = s,
        .ing = { .max_reqs = (uint32_t)cfg->max_reqs,
            .vocab = s->prog->cfg.vocab,
            .max_len = cfg->max_len,
            .n_eos = s->prog->cfg.n_eos,
            .max_logprobs = 20,
            .block_size = cfg->block_size,
            .prefix = cfg->prefix,
            .files = cfg->files,
            .key = sim_key,
            .n_penalty = cfg->n_penalty } };
    sim_eng_cfg(s, &pc.eng);
    memcpy(pc.ing.eos, s->prog->cfg.eos, sizeof(pc.ing.eos));
    s->ready.credits = (uint32_t)cfg->max_reqs;
    s->ready.info.vocab = (uint32_t)s->prog->cfg.vocab;
    if (pip_new(&pc, &s->pip, err, sizeof(err)) != 0)
        sim_fail(__FILE__, __LINE__, err);
    if (!cfg->learn && !cfg->real_clock)
        s->pip->eng->sch->cfg.cost = NULL;
    pip_ready(s->pip);
    (void)sim_poll(s);
    sim_records(s);
    SIM_CHECK(s->ready_seen == 1);
    return s;
}

void
sim_free(struct sim *s)
{
    (void)sim_poll(s);
    SIM_CHECK(s->n_open == 0 && ing_open(s->pip->ing) == 0);
    SIM_CHECK(s->pip->eng->n_live == 0 && s->pip->eng->n_flight == 0);
    SIM_CHECK(s->pip->eng->kv->n_free + s->pip->eng->kv->n_cached == s->cfg.n_block);
    SIM_CHECK(s->pip->egr->n_terminal == s->n_done + s->n_error);
    for (int32_t i = 0; i < s->cfg.max_reqs; i++)
        if (s->reqs[i].used)
            sim_forget(s, &s->reqs[i]);
    sim_drop(s);
}

void
sim_drop(struct sim *s)
{
    (void)pip_free(s->pip);
    (void)run_free(s->run);
    (void)tok_free(s->tok);
    (void)wts_plan_free(s->wp);
    (void)mdl_free(s->prog);
    lnk_leave(s->seg);
    if (s->trc_seg != NULL)
        trc_destroy(s->trc_seg, s->trc_fd);
    (void)close(s->fd);
    free(s->cnt);
    free(s->reqs);
    free(s->blob);
    free(s);
}

/* ---- requests ---------------------------------------------------------------------------- */

struct sim_req *
sim_req(struct sim *s)
{
    for (int32_t i = 0; i < s->cfg.max_reqs; i++) {
        /* the entry that ended last is tried last */
        struct sim_req *r = &s->reqs[(s->last_req + 1 + i) % s->cfg.max_reqs];

        if (r->used && !r->terminal)
            continue;
        s->last_req = (int32_t)(r - s->reqs);
        if (r->used)
            sim_forget(s, r);
        r->used = 1;
        r->id = ++s->next_id;
        r->p = (struct fdp_req){ .op = FDP_OP_SUBMIT,
            .n = 1,
            .top_p = 1,
            .repetition_penalty = 1,
            .set = FDP_S__ALL & ~(FDP_S_LOGPROBS | FDP_S_PROMPT_LOGPROBS | FDP_S_MAX_NEW) };
        r->next_score = 1;
        return r;
    }
    return NULL;
}

void
sim_forget(struct sim *s, struct sim_req *r)
{
    (void)s;
    SIM_CHECK(r->terminal);
    free(r->prompt);
    free(r->prior);
    free(r->prompt_ids);
    sim_more_forget(r);
    free(r->items);
    for (int i = 0; i < SIM_SAMPLES; i++) {
        free(r->s[i].ids);
        free(r->s[i].text);
    }
    memset(r, 0, sizeof(*r));
}

void
sim_item(struct sim *s, struct sim_req *r, unsigned type, const void *p, uint32_t len)
{
    struct fdp_item *it = (struct fdp_item *)((char *)s->blob + r->p.len);

    SIM_CHECK(r->p.len + FDP_ITEM_SPAN(len) <= SIM_BLOB);
    memset(it, 0, FDP_ITEM_SPAN(len));
    it->type = (uint16_t)type;
    it->len = len;
    if (len > 0)
        memcpy(it + 1, p, len);
    r->p.len += (uint32_t)FDP_ITEM_SPAN(len);
}

static void *
sim_claim(struct sim *s, uint64_t id, unsigned type, uint32_t len)
{
    for (;;) {
        void *p = lnk_claim(&s->gate, id, type, 0, 0, len);

        if (p != NULL)
            return p;
        lnk_flush(&s->gate);
        (void)sim_poll(s);
    }
}

void
sim_submit(struct sim *s, struct sim_req *r, const char *text)
{
    struct lnk_submit *ls;
    uint32_t at = 0, room = (uint32_t)s->cfg.max_len;

    /* the gate refuses more */
    room -= r->prompt != NULL && r->n_prompt < room ? r->n_prompt : 0;
    if (r->prompt != NULL && text == NULL && r->p.max_new > room)
        r->p.max_new = room;
    r->p.len = 0;
    if (text != NULL)
        sim_item(s, r, FDP_IT_PROMPT_TEXT, text, (uint32_t)strlen(text));
    else if (r->prompt != NULL)
        sim_item(s, r, FDP_IT_PROMPT_IDS, r->prompt, r->n_prompt * 4);
    if (r->n_prior > 0)
        sim_item(s, r, FDP_IT_PRIOR_IDS, r->prior, r->n_prior * 4);
    r->p.n_prior = r->n_prior;
    if (r->p.max_new > 0)
        r->p.set |= FDP_S_MAX_NEW;
    if (r->n_stop > 0)
        sim_item(s, r, FDP_IT_STOP_IDS, r->stop, r->n_stop * 4);
    for (uint32_t i = 0; i < r->n_stop_text; i++)
        sim_item(s, r, FDP_IT_STOP_STRING, r->stop_text[i],
            (uint32_t)strlen(r->stop_text[i]));
    sim_more_items(s, r);
    if (r->n_items > 0) {
        SIM_CHECK(r->p.len + r->n_items <= SIM_BLOB);
        memcpy((char *)s->blob + r->p.len, r->items, r->n_items);
        r->p.len += r->n_items;
    }
    ls = sim_claim(s, r->id, LNK_T_SUBMIT, sizeof(*ls));
    *ls = (struct lnk_submit){ .req = r->p, .t_submit_ns = s->now_ns, .user = r->user };
    if (r->p.ttl_queue_ms > 0)
        ls->deadline_queue_ns = s->now_ns + r->p.ttl_queue_ms * 1000000ull;
    if (r->p.ttl_total_ms > 0)
        ls->deadline_total_ns = s->now_ns + r->p.ttl_total_ms * 1000000ull;
    while (at < r->p.len) {
        uint32_t k = r->p.len - at < FDP_REC_MAX_LEN ? r->p.len - at : FDP_REC_MAX_LEN;

        memcpy(sim_claim(s, r->id, LNK_T_BLOB, k), (char *)s->blob + at, k);
        at += k;
    }
    lnk_flush(&s->gate);
    s->n_open++;
    r->next_score = r->p.prompt_from > 1 ? r->p.prompt_from : 1;
    for (uint32_t i = 0; i < r->p.n; i++) {
        r->s[i].n_ids = r->n_prior;
        r->s[i].ids = mem_array(r->n_prior + 1u, 4);
        if (r->n_prior > 0)
            memcpy(r->s[i].ids, r->prior, r->n_prior * 4u);
    }
}

void
sim_cancel(struct sim *s, struct sim_req *r, int32_t code)
{
    struct lnk_cancel *c = sim_claim(s, r->id, LNK_T_CANCEL, sizeof(*c));

    *c = (struct lnk_cancel){ .code = code };
    lnk_flush(&s->gate);
    r->cancelled = 1;
}

void
sim_cancel_some(struct sim *s, struct sim_rng *g, uint32_t share)
{
    for (int32_t i = 0; i < s->cfg.max_reqs; i++) {
        struct sim_req *r = &s->reqs[i];

        if (r->used && !r->terminal && sim_u32(g) % share == 0)
            sim_cancel(s, r, sim_u32(g) % 2 ? FDP_E_CANCELLED : FDP_E_SLOW);
    }
}

void
sim_check_errors(const struct sim *s)
{
    for (int32_t i = 0; i < s->cfg.max_reqs; i++) {
        const struct sim_req *r = &s->reqs[i];

        if (!r->used || !r->terminal || r->code == 0)
            continue;
        SIM_CHECK(r->cancelled ||
            (r->code == FDP_E_DEADLINE && (r->p.ttl_total_ms > 0 || r->p.ttl_queue_ms > 0)));
    }
}

/* ---- records from the worker ----------------------------------------------------------------- */

uint32_t
sim_expect(const struct sim *s, const struct sim_req *r, uint32_t i, uint32_t prev,
    int *ret_stop)
{
    int32_t t;

    (void)s;
    t = fdk_null_token((int32_t)prev, (int32_t)(r->n_prompt + i), RUN_NULL_VOCAB);
    for (;;) {
        *ret_stop = (r->p.flags & FDP_F_IGNORE_EOS) == 0 && t == RUN_NULL_EOS;
        for (uint32_t k = 0; k < r->n_stop; k++)
            *ret_stop |= (uint32_t)t == r->stop[k];
        if (!*ret_stop || i >= r->p.min_new)
            return (uint32_t)t;
        t = (t + 1) % RUN_NULL_VOCAB;
    }
}

/* Checks that the delivered ids are the expected ones, and end where expected. */
static void
sim_check_chain(const struct sim *s, const struct sim_req *r, const struct sim_sample *sm)
{
    uint32_t prev = r->n_prompt > 0 ? r->prompt[r->n_prompt - 1] : 0;
    uint32_t limit = r->p.max_new, room = (uint32_t)s->cfg.max_len - r->n_prompt;
    int stop = 0;

    if (limit == 0 || limit > room)
        limit = room;
    SIM_CHECK(sm->n_ids <= limit);
    for (uint32_t i = 0; i < sm->n_ids; i++) {
        SIM_CHECK(!stop);
        SIM_CHECK(sm->ids[i] == sim_expect(s, r, i, prev, &stop));
        prev = sm->ids[i];
    }
    if (!sm->ended || sm->end.finish == FDP_FIN_ERROR)
        return;
    SIM_CHECK(sm->end.n_tokens == sm->n_ids);
    if (sm->end.stop_str >= 0)
        return;
    if (stop)
        SIM_CHECK(sm->end.finish == FDP_FIN_STOP && (uint32_t)sm->end.stop_id == prev);
    else
        SIM_CHECK(sm->end.finish == FDP_FIN_LENGTH && sm->n_ids == limit);
}

static void
sim_terminal(struct sim *s, struct sim_req *r)
{
    SIM_CHECK(!r->terminal);
    r->terminal = 1;
    s->n_open--;
    if (s->ended != NULL)
        s->ended(s->ended_arg, r);
    if (r->p.op != FDP_OP_SUBMIT || !r->accepted)
        return;
    for (uint32_t i = 0; i < r->p.n; i++) {
        SIM_CHECK(r->s[i].ended);
        if (s->cfg.check_tokens && r->prompt != NULL && r->n_items == 0)
            sim_check_chain(s, r, &r->s[i]);
        if (r->code == 0 && (r->p.set & FDP_S_LOGPROBS) != 0)
            SIM_CHECK(r->s[i].n_logprobs == r->s[i].n_ids - r->n_prior);
    }
    if (r->code == 0 && (r->p.set & FDP_S_PROMPT_LOGPROBS) != 0)
        SIM_CHECK(
            r->n_scores == r->prompt_len - (r->p.prompt_from > 1 ? r->p.prompt_from : 1));
}

void
sim_ids(struct sim *s, struct sim_sample *sm, uint32_t position, const void *ids, uint32_t n)
{
    SIM_CHECK(!sm->ended && position == sm->n_ids && n > 0);
    sm->ids = mem_regrow(sm->ids, sm->n_ids + n + 1, 4);
    memcpy(sm->ids + sm->n_ids, ids, (size_t)n * 4);
    sm->n_ids += n;
    s->n_tokens += n;
}

static void
sim_text(struct sim_sample *sm, uint32_t position, const void *text, uint32_t n)
{
    if (sm->n_text == 0)
        sm->text_at = position;
    SIM_CHECK(!sm->ended && position == sm->text_at + sm->n_text && n > 0);
    sm->text = mem_regrow(sm->text, sm->n_text + n + 1, 1);
    memcpy(sm->text + sm->n_text, text, n);
    sm->n_text += n;
    sm->text[sm->n_text] = '\0';
}

/* Checks a TOKENS record: one slot, text was requested, and no
 * LOGPROBS record belongs between. */
static void
sim_tokens(struct sim *s, const struct sim_req *r, struct sim_sample *sm,
    const struct fdp_rec *rec)
{
    const struct fdp_tokens *t = (const struct fdp_tokens *)(rec + 1);
    const unsigned char *ids = (const unsigned char *)(t + 1);

    SIM_CHECK((r->p.flags & FDP_F_TEXT) != 0 && (r->p.set & FDP_S_LOGPROBS) == 0);
    SIM_CHECK(rec->n_slot == 1 && rec->len == FDP_TOKENS_LEN(t->n_ids, t->n_text));
    sim_ids(s, sm, rec->position, ids, t->n_ids);
    sim_text(sm, t->text_off, ids + t->n_ids * 4u, t->n_text);
    s->n_combined++;
}

static void
sim_hash(uint64_t *h, const struct fdp_rec *rec)
{
    const unsigned char *b = (const unsigned char *)(rec + 1);

    for (uint32_t i = 0; i < rec->len; i++)
        *h = (*h ^ b[i]) * 0x100000001b3ull;
}

static void
sim_scores(struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_logprob *lp = (const struct fdp_logprob *)(rec + 1);

    SIM_CHECK(rec->position == r->next_score && rec->sample == 0);
    SIM_CHECK(rec->len / 8 == 1u + r->p.prompt_logprobs);
    if (r->prompt != NULL)
        SIM_CHECK(lp[0].id == r->prompt[rec->position]);
    sim_hash(&r->score_hash, rec);
    r->next_score++;
    r->n_scores++;
}

static void
sim_record(struct sim *s, struct sim_req *r, const struct fdp_rec *rec)
{
    struct sim_sample *sm = &r->s[rec->sample];
    const void *body = rec + 1;
    const struct fdp_error *e;

    SIM_CHECK(!r->owes_text || rec->type == FDP_T_TOKEN_TEXT);
    SIM_CHECK(!r->terminal && rec->sample < SIM_SAMPLES);
    switch (rec->type) {
    case LNK_T_TOKENIZED:
        SIM_CHECK(!r->accepted);
        return;
    case FDP_T_ACCEPTED:
        SIM_CHECK(!r->accepted);
        r->accepted = 1;
        r->prompt_len = ((const struct fdp_accepted *)body)->prompt_len;
        return;
    case FDP_T_PROMPT_IDS:
        SIM_CHECK(rec->position == r->n_prompt_ids);
        r->prompt_ids = mem_regrow(r->prompt_ids, r->n_prompt_ids + rec->len / 4, 4);
        memcpy(r->prompt_ids + r->n_prompt_ids, body, rec->len);
        r->n_prompt_ids += rec->len / 4;
        return;
    case FDP_T_IDS:
        SIM_CHECK(r->accepted);
        sim_ids(s, sm, rec->position, body, rec->len / 4);
        return;
    case FDP_T_TEXT:
        sim_text(sm, rec->position, body, rec->len);
        return;
    case FDP_T_TOKENS:
        SIM_CHECK(r->accepted);
        sim_tokens(s, r, sm, rec);
        return;
    case FDP_T_LOGPROBS:
        SIM_CHECK(rec->position == r->n_prior + sm->n_logprobs && !sm->ended);
        SIM_CHECK(rec->len / 8 == 1u + r->p.logprobs + r->n_chosen);
        SIM_CHECK(((const struct fdp_logprob *)body)->id == sm->ids[rec->position]);
        sim_hash(&sm->lp_hash, rec);
        sm->n_logprobs++;
        sim_more_logprobs(r, rec);
        return;
    case FDP_T_PROMPT_LOGPROBS:
        sim_scores(r, rec);
        sim_more_logprobs(r, rec);
        return;
    case FDP_T_CHOICE_END:
        SIM_CHECK(!sm->ended && r->accepted);
        sm->ended = 1;
        memcpy(&sm->end, body, sizeof(sm->end));
        return;
    case FDP_T_DONE:
        memcpy(&r->done, body, sizeof(r->done));
        s->n_done++;
        sim_terminal(s, r);
        return;
    case FDP_T_ERROR:
        e = body;
        r->code = e->code;
        r->detail = e->detail;
        r->arg = e->arg;
        r->limit = e->limit;
        SIM_CHECK(e->code != 0);
        s->n_error++;
        sim_terminal(s, r);
        return;
    default:
        if (!sim_more_record(s, r, rec))
            sim_fail(__FILE__, __LINE__, "record of unknown type");
    }
}

void
sim_records(struct sim *s)
{
    const struct fdp_rec *rec;

    while ((rec = lnk_peek(&s->gate)) != NULL) {
        struct sim_req *r = NULL;

        if (rec->type == LNK_T_READY) {
            s->ready_seen++;
            lnk_next(&s->gate, rec);
            continue;
        }
        for (int32_t i = 0; i < s->cfg.max_reqs && r == NULL; i++)
            if (s->reqs[i].used && s->reqs[i].id == rec->tag)
                r = &s->reqs[i];
        SIM_CHECK(r != NULL);
        if (s->record != NULL)
            s->record(s->record_arg, r, rec);
        sim_record(s, r, rec);
        lnk_next(&s->gate, rec);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

int
sim_is_virtual(const struct sim *s)
{
    return strcmp(s->run->k->name, fdk_ops_cuda.name) != 0;
}

int32_t
sim_device(struct sim *s, int32_t n)
{
    return s->cfg.exec == FDK_EXEC_DEFER && sim_is_virtual(s)
        ? fdk_vdev_step(s->run->ctx, n)
        : 0;
}

/* The device's share of a poll. */
static int
sim_pace(struct sim *s)
{
    int32_t step = s->cfg.graph ? 8 : s->prog->n_op + 8;

    if (s->cfg.exec != FDK_EXEC_DEFER || s->cfg.pace == SIM_PACE_NONE)
        return 0;
    if (s->cfg.pace == SIM_PACE_FAST)
        return sim_device(s, INT32_MAX) > 0;
    if (s->cfg.pace == SIM_PACE_SLOW) {
        s->burst = step * 2 / 3;
    } else if (s->burst_left-- <= 0) {
        const int32_t most[] = { 0, step / 3, step, step * 3, 1000000 };

        s->burst = most[sim_range(&s->rng, 0, 4)];
        s->burst_left = (int32_t)sim_range(&s->rng, 1, 30);
    }
    return sim_device(s, (int32_t)sim_range(&s->rng, 0, (uint32_t)s->burst)) > 0;
}

int
sim_poll(struct sim *s)
{
    int work = pip_poll(s->pip, s->now_ns);

    work |= sim_pace(s);
    /* a device that runs by itself */
    if (!work && (s->cfg.exec != FDK_EXEC_DEFER || !sim_is_virtual(s)))
        work = eng_wait(s->pip->eng);
    if (s->cfg.real_clock) {
        s->now_ns = clk_now_ns();
    } else {
        eng_check(s->pip->eng);
        s->now_ns += 1000000;
    }
    s->n_poll++;
    if (s->cfg.drain_every <= 1 || s->n_poll % (uint64_t)s->cfg.drain_every == 0 || !work)
        sim_records(s);
    return work;
}

void
sim_wait(struct sim *s, struct sim_req *r)
{
    for (int idle = 0; !r->terminal;) {
        idle = sim_poll(s) ? 0 : idle + 1;
        SIM_CHECK(idle < 10000);
    }
}

void
sim_drain(struct sim *s)
{
    for (int idle = 0; s->n_open > 0;) {
        idle = sim_poll(s) ? 0 : idle + 1;
        SIM_CHECK(idle < 10000);
    }
}

int
sim_gpus(void)
{
    const char *env = getenv("FDD_SIM_BACKEND");
    char why[256];

    if (env == NULL || strcmp(env, fdk_ops_cuda.name) != 0)
        return 0;
    return fdk_ops_cuda.available(why, sizeof(why));
}

int
sim_has(int32_t n)
{
    return sim_gpus() == 0 || n <= sim_gpus();
}

/* ---- for the programs ------------------------------------------------------------------------ */

int
sim_run(int argc, char **argv, const struct sim_test *t, size_t n)
{
    const char *only = getenv("SIM_TEST");
    uint64_t seed = sim_seed(argc, argv);
    int ran = 0;

    for (size_t i = 0; i < n; i++) {
        struct sim_rng g = { seed + i };

        if (only != NULL && strcmp(only, t[i].name) != 0)
            continue;
        (void)printf("%s\n", t[i].name);
        t[i].fn(&g);
        ran++;
    }
    if (ran == 0)
        (void)fprintf(stderr, "SIM_TEST=%s is no part of this program\n", only);
    return ran == 0;
}
