/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/admin.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/common/slice.h"
#include "daemon/worker/admin_priv.h"
#include "daemon/worker/worker.h"

#define ADM_QUESTION 65536
#define ADM_SNAP_NS  (2 * CLK_S)

struct admin {
    uint32_t magic;
#define ADM_MAGIC 0x41444d31u
    struct worker *w;
    pthread_t th;
    int stop_fd;
    char *buf;
};

/* ---- model --------------------------------------------------------------------------------- */

static json_t *
adm_config(const struct mdl_config *c)
{
    json_t *o = json_object(), *eos = json_array();

    adm_set(o, "family", json_string(c->family));
    adm_set(o, "architecture", json_string(c->architecture));
    adm_set(o, "layers", json_integer(c->n_layer));
    adm_set(o, "heads", json_integer(c->n_head));
    adm_set(o, "kv_heads", json_integer(c->n_kv_head));
    adm_set(o, "head_dim", json_integer(c->head_dim));
    adm_set(o, "hidden", json_integer(c->hidden));
    adm_set(o, "ffn", json_integer(c->ffn));
    adm_set(o, "vocab", json_integer(c->vocab));
    adm_set(o, "max_position", json_integer(c->max_pos));
    adm_set(o, "norm_eps", json_real((double)c->norm_eps));
    adm_set(o, "tied", json_boolean(c->tied));
    adm_set(o, "qk_norm", json_boolean(c->qk_norm != MDL_QK_NONE));
    adm_set(o, "rope", json_string(mdl_rope_name(c->rope)));
    adm_set(o, "rope_theta", json_real(c->rope_theta));
    for (int32_t i = 0; i < c->n_eos; i++)
        (void)json_array_append_new(eos, json_integer(c->eos[i]));
    adm_set(o, "eos_ids", eos);
    adm_set(o, "bos_id", json_integer(c->bos));
    return o;
}

static json_t *
adm_memory(const struct worker *w)
{
    const struct run_mem *m = &run_root(w->run)->mem;
    json_t *o = json_object();

    adm_set(o, "weights", adm_int(m->weights));
    adm_set(o, "kv", adm_int(m->kv));
    adm_set(o, "activations", adm_int(m->activations));
    adm_set(o, "scratch", adm_int(m->scratch));
    adm_set(o, "rows", adm_int(m->state));
    adm_set(o, "plan", adm_int(m->plan));
    return o;
}

static void
adm_hex(const uint8_t digest[32], char ret[65])
{
    for (int i = 0; i < 32; i++)
        (void)snprintf(ret + (size_t)i * 2, 3, "%02x", digest[i]);
}

/* Values of parameters that a request does not set, and their source. */
static json_t *
adm_sampling(const struct worker *w)
{
    const struct fdp_info *in = &w->ready.info;
    json_t *o = json_object();

    adm_set(o, "from",
        json_string(w->par.model_generation_config == PAR_MODEL_GENERATION_CONFIG_OFF
                ? "model.generation_config = off"
                : in->set != 0 ? "generation_config.json"
                               : "fdd"));
    adm_set(o, "temperature", json_real((double)in->temperature));
    adm_set(o, "top_p", json_real((double)in->top_p));
    adm_set(o, "top_k", json_integer(in->top_k));
    adm_set(o, "min_p", json_real((double)in->min_p));
    adm_set(o, "repetition_penalty", json_real((double)in->repetition_penalty));
    return o;
}

static json_t *
adm_model(struct worker *w)
{
    json_t *o = json_object(), *kv = json_object();
    char hex[65];

    adm_hex(w->ready.info.model_digest, hex);
    adm_set(o, "ok", json_true());
    adm_set(o, "name", json_string(w->ready.info.model_name));
    adm_set(o, "path", json_string(w->par.model_path));
    adm_set(o, "digest", json_string(hex));
    adm_set(o, "parameters", adm_int(mdl_n_param(w->prog)));
    adm_set(o, "dtype",
        json_string(w->wp != NULL ? fdk_dtype_name(wts_main_dtype(w->wp)) : "none"));
    adm_set(o, "quantized",
        json_string(w->cfg.quant != MDL_QUANT_NONE
                ? mdl_quant_name(w->cfg.quant)
                : par_quant_weights_words[w->par.quant_weights]));
    adm_set(o, "max_model_len", json_integer(w->max_len));
    adm_set(o, "model_len", json_integer(w->cfg.max_pos));
    adm_set(o, "config", adm_config(&w->cfg));
    adm_set(o, "sampling", adm_sampling(w));
    adm_set(o, "backend", json_string(w->run->k->name));
    adm_set(o, "graph", json_boolean(run_uses_graph(w->run)));
    adm_set(o, "tokenizer", json_string(w->tok_path));
    adm_set(o, "loaded_by", json_string(w->wp != NULL ? wts_how(w->wp) : "none"));
    adm_set(o, "ignored_fields", json_string(w->cfg.ignored));
    adm_set(o, "ignored_tensors", json_string(w->wp != NULL ? wts_ignored(w->wp) : ""));
    adm_set(o, "load_ms", adm_int(w->load_ns / CLK_MS));
    adm_set(kv, "blocks", json_integer(w->n_block));
    adm_set(kv, "block_size", json_integer(mpl_block_tokens(&w->kv[0])));
    adm_set(kv, "block_bytes", adm_int(w->kv[0].block_bytes));
    adm_set(kv, "decode_context_parallel_size", json_integer(w->prog->kv_split));
    adm_set(kv, "dtype", json_string(fdk_dtype_name(w->kv[0].dtype)));
    adm_set(kv, "tokens", adm_int((uint64_t)w->mpl.tokens));
    adm_set(o, "kv", kv);
    adm_set(o, "memory_bytes", adm_memory(w));
    return o;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of a plan row that are in use now. */
static uint64_t
adm_in_use(const struct mpl *m, const struct mpl_row *r, const struct cnt_worker *c)
{
    if (r->group == MPL_HOST_KV)
        return cnt_get(&c->kv_blocks_host) * m->block_bytes * (uint64_t)m->n_share;
    if (r->group != MPL_KV || r->bytes != (uint64_t)m->n_block * m->block_bytes)
        return r->bytes;
    return (cnt_get(&c->kv_blocks_used) + cnt_get(&c->kv_blocks_cached)) * m->block_bytes;
}

/* The ranks, in order. The plan's device bytes are the same for each. */
static json_t *
adm_devices(const struct worker *w)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < w->run->n_rank; i++) {
        const struct dvc_dev *d = &w->devs.at[w->first_dev + i];
        struct fdk_device_info di = { .mem_free = 0 };
        json_t *o = json_object();

        (void)w->run->k->device_info(w->run->ctx, w->run->dev[i].idx, &di);
        adm_set(o, "device", json_string(d->name));
        adm_set(o, "uuid", json_string(d->uuid));
        adm_set(o, "rank", json_integer(i));
        adm_set(o, "bytes", adm_int(w->mpl.device_bytes));
        adm_set(o, "graph_bytes", adm_int(w->run->dev[i].mem.graphs));
        adm_set(o, "device_total_bytes", adm_int(di.mem_total));
        adm_set(o, "device_free_bytes", adm_int(di.mem_free));
        (void)json_array_append_new(list, o);
    }
    return list;
}

static json_t *
adm_plan(struct worker *w)
{
    const struct cnt_worker *c = &w->stat->w;
    const struct mpl *m = &w->mpl;
    json_t *o = json_object(), *rows = json_array(), *b = json_object();

    for (int32_t i = 0; i < m->n_row; i++) {
        const struct mpl_row *r = &m->row[i];
        json_t *e = json_object();

        adm_set(e, "name", json_string(r->name));
        adm_set(e, "where", json_string(r->host ? "host" : "device"));
        adm_set(e, "bytes", adm_int(r->bytes));
        adm_set(e, "in_use", adm_int(adm_in_use(m, r, c)));
        adm_set(e, "how", json_string(r->how));
        (void)json_array_append_new(rows, e);
    }
    adm_set(o, "ok", json_true());
    adm_set(o, "rows", rows);
    adm_set(o, "device_bytes", adm_int(m->device_bytes));
    adm_set(o, "host_bytes", adm_int(m->host_bytes));
    adm_set(o, "devices", adm_devices(w));
    adm_set(o, "limit_bytes", adm_int(m->limit));
    adm_set(b, "total", json_integer(m->n_block));
    adm_set(b, "used", adm_int(cnt_get(&c->kv_blocks_used)));
    adm_set(b, "cached", adm_int(cnt_get(&c->kv_blocks_cached)));
    adm_set(b, "free", adm_int(cnt_get(&c->kv_blocks_free)));
    adm_set(b, "host_total", json_integer(m->n_host));
    adm_set(b, "host_used", adm_int(cnt_get(&c->kv_blocks_host)));
    adm_set(b, "block_size", json_integer(m->block_size));
    adm_set(b, "block_bytes", adm_int(m->block_bytes));
    adm_set(b, "host_block_bytes", adm_int(m->block_bytes * (uint64_t)m->n_share));
    adm_set(b, "dtype", json_string(wrk_kv_dtype_name(w->kv[0].dtype)));
    adm_set(o, "blocks", b);
    adm_set(o, "kv_groups", adm_kv_groups(w));
    adm_set(o, "tokens", json_integer(m->tokens));
    adm_set(o, "max_model_len", json_integer(m->max_len));
    adm_set(o, "concurrency", json_integer(m->concurrency));
    return o;
}

/* ---- requests, debug ------------------------------------------------------------------------------ */

static json_t *
adm_requests(struct worker *w)
{
    struct engine *e = w->pip->eng;
    uint64_t until = clk_now_ns() + ADM_SNAP_NS;
    json_t *o, *a;

    eng_snap_ask(e);
    pip_ring_engine(w->pip);
    while (!eng_snap_ready(e)) {
        if (clk_now_ns() > until)
            return adm_error("the engine is in a long step; ask again");
        clk_sleep_ns(CLK_MS);
    }
    a = json_array();
    for (int32_t i = 0; i < e->snap.n; i++) {
        const struct eng_snap_row *r = &e->snap.rows[i];

        (void)json_array_append_new(a,
            json_pack("{s:I, s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "id",
                (json_int_t)r->id, "sample", r->sample, "state",
                req_state_name((enum req_st)r->state), "prompt", r->n_prompt, "tokens",
                r->n_tok, "computed", r->cached_len, "max_len", r->max_len, "blocks",
                r->n_block, "priority", r->priority, "preempted",
                (json_int_t)r->n_preempted));
    }
    o = json_object();
    adm_set(o, "ok", json_true());
    adm_set(o, "sequences", json_integer(e->snap.n_total));
    adm_set(o, "requests", a);
    return o;
}

/* The answer may not arrive: the process ends with that step. */
static json_t *
adm_fault(const struct worker *w, const json_t *q)
{
    int stall = json_is_true(json_object_get(q, "stop_rank"));
    const json_t *r = json_object_get(q, "rank");
    json_int_t rank = r != NULL ? json_integer_value(r) : stall ? w->run->n_rank - 1 : 0;

    if (!LOG_DBG(faults))
        return adm_error("the debug bit faults is not set");
    if ((r != NULL && !json_is_integer(r)) || rank < 0 || rank >= w->run->n_rank)
        return adm_error("no such rank");
    if (stall && w->run->n_rank == 1)
        return adm_error("there is one rank: it has no launch thread");
    log_warn("worker: %s of rank %d is made to %s in the next step",
        stall ? "the launch thread" : "the device", (int)rank, stall ? "stop" : "fail");
    if (stall) {
        eng_stall(w->pip->eng, (int32_t)rank);
        return json_pack("{s:b, s:s}", "ok", 1, "rank", "stops in the next step");
    }
    eng_fail(w->pip->eng, (int32_t)rank);
    return json_pack("{s:b, s:s}", "ok", 1, "device", "fails in the next step");
}

static json_t *
adm_debug(const struct worker *w, const json_t *q)
{
    const char *bits = json_string_value(json_object_get(q, "bits"));
    const char *level = json_string_value(json_object_get(q, "level"));
    char text[256];

    if (json_is_true(json_object_get(q, "fail_device")) ||
        json_is_true(json_object_get(q, "stop_rank")))
        return adm_fault(w, q);
    if (bits != NULL && log_set_debug(bits, text, sizeof(text)) != 0)
        return json_pack("{s:b, s:s+}", "ok", 0, "error", "unknown debug bit ", text);
    if (level != NULL && log_set_level(level) != 0)
        return json_pack("{s:b, s:s+}", "ok", 0, "error", "unknown log level ", level);
    log_get_debug(text, sizeof(text));
    return json_pack("{s:b, s:s, s:s}", "ok", 1, "bits", text, "level", log_level_name());
}

char *
adm_answer(struct worker *w, const char *text, size_t n, int stop_fd)
{
    json_error_t je;
    json_t *q = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je), *o, *id, *r = NULL;
    const char *cmd = json_string_value(json_object_get(q, "cmd"));
    char *s, *line;
    size_t len;

    if (cmd != NULL && strcmp(cmd, "cancel") == 0) {
        json_decref(q);
        return NULL;
    }
    if (cmd == NULL)
        o = adm_error("a question is a JSON object with a text \"cmd\"");
    else if (strcmp(cmd, "model") == 0)
        o = adm_model(w);
    else if (strcmp(cmd, "memory") == 0)
        o = adm_plan(w);
    else if (strcmp(cmd, "program") == 0)
        o = adm_program(w, q);
    else if (strcmp(cmd, "profile") == 0)
        o = adm_profile(w, q, stop_fd);
    else if (strcmp(cmd, "requests") == 0)
        o = adm_requests(w);
    else if (strcmp(cmd, "debug") == 0)
        o = adm_debug(w, q);
    else if (strcmp(cmd, "ping") == 0)
        o = json_pack("{s:b}", "ok", 1);
    else
        o = adm_error("unknown question; known: model, memory, program, profile, requests, "
                      "debug, ping");
    id = json_object_get(q, "id");
    if (o != NULL && json_object_get(o, "ok") == NULL)
        (void)json_object_set_new(o, "ok", json_true());
    if (o != NULL && id != NULL) { /* first member: the gate passes the rest on
                                      unchanged */
        r = json_pack("{s:O}", "id", id);
        (void)json_object_update(r, o);
    }
    s = o != NULL ? json_dumps(r != NULL ? r : o, JSON_COMPACT) : NULL;
    json_decref(r);
    json_decref(o);
    json_decref(q);
    if (s == NULL)
        return NULL;
    len = strlen(s);
    line = mem_regrow(s, len + 2, 1);
    if (line == NULL) {
        free(s);
        return NULL;
    }
    memcpy(line + len, "\n", 2);
    return line;
}

/* ---- thread ----------------------------------------------------------------------------------------- */

static void
adm_send(struct admin *a, const char *s)
{
    size_t n = strlen(s);

    while (n > 0) {
        size_t k = n < ADM_CHUNK ? n : ADM_CHUNK;

        if (send(a->w->admin_fd, s, k, MSG_NOSIGNAL) != (ssize_t)k)
            return;
        s += k;
        n -= k;
    }
}

static void *
adm_main(void *arg)
{
    struct admin *a = arg;
    struct pollfd pfd[2] = { { .fd = a->stop_fd, .events = POLLIN },
        { .fd = a->w->admin_fd, .events = POLLIN } };

    (void)slc_set(SLC_LONG_NS);
    for (;;) {
        ssize_t n;
        char *s;

        if (poll(pfd, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (pfd[0].revents != 0)
            return NULL;
        if (pfd[1].revents == 0)
            continue;
        n = recv(a->w->admin_fd, a->buf, ADM_QUESTION, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return NULL;
        if (n < 0)
            continue;
        s = adm_answer(a->w, a->buf, (size_t)n, a->stop_fd);
        if (s != NULL)
            adm_send(a, s);
        free(s);
    }
}

struct admin *
adm_new(struct worker *w)
{
    struct admin *a;

    OBJ_ALLOC(a, ADM_MAGIC);
    if (a == NULL)
        return NULL;
    a->w = w;
    a->buf = mem_zalloc(ADM_QUESTION);
    a->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->buf == NULL || a->stop_fd < 0 || pthread_create(&a->th, NULL, adm_main, a) != 0) {
        if (a->stop_fd >= 0)
            (void)close(a->stop_fd);
        free(a->buf);
        OBJ_FREE(a, ADM_MAGIC);
        return NULL;
    }
    (void)pthread_setname_np(a->th, "fdd-admin");
    return a;
}

struct admin *
adm_free(struct admin *a)
{
    uint64_t one = 1;

    if (a == NULL)
        return NULL;
    if (write(a->stop_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
        (void)pthread_join(a->th, NULL);
    (void)close(a->stop_fd);
    free(a->buf);
    OBJ_FREE(a, ADM_MAGIC);
    return NULL;
}
