/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/worker.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/dir.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/worker/files.h"
#include "daemon/worker/peak.h"
#include "daemon/worker/null_tok.h"
#include "daemon/worker/quant.h"
#include "daemon/worker/tokenizer.h"

/* Polling time after work on machines with at least this many processors. */
#define WRK_SPIN_US    50
#define WRK_SPIN_PROCS 8

/* Time limits are multiplied by this, since sanitizers slow the code. */
#ifdef FDD_SANITIZED
#define WRK_SLOWER 10
#else
#define WRK_SLOWER 1
#endif

/* Sequences that the worker gets beyond those that can run: an eighth, at least this
 * many. */
#define WRK_AHEAD       8
#define WRK_AHEAD_SHARE 8

/* Fewest tokens of a step that runs in halves on GPUs. On two H200, halves make steps of
 * 1,024 tokens 4 % faster, steps of 640 5 % slower (tests/bench/RESULTS.md, 17). */
#define WRK_HALVES_LEAST 1024

/* Durations of the phases of a start, as text. */
struct wrk_laps {
    uint64_t last;
    size_t n;
    char text[256];
};

static void
wrk_lap(struct wrk_laps *l, const char *what)
{
    uint64_t now = clk_now_ns();
    int n = snprintf(l->text + l->n, sizeof(l->text) - l->n, "%s%s %.3f",
        l->n > 0 ? ", " : "", what, (double)(now - l->last) / 1e9);

    l->last = now;
    if (n > 0 && (size_t)n < sizeof(l->text) - l->n)
        l->n += (size_t)n;
}

int32_t
wrk_spin_us(const struct par *p)
{
    if (p->ipc_spin_us >= 0)
        return (int32_t)p->ipc_spin_us;
    return sysconf(_SC_NPROCESSORS_ONLN) >= WRK_SPIN_PROCS ? WRK_SPIN_US : 0;
}

/* Exit status for an error in the model's files. */
static int
wrk_status(int rc)
{
    switch (rc) {
    case -ENOENT:
    case -ENOTDIR:
        return EX_NOINPUT;
    case -EACCES:
    case -EPERM:
        return EX_NOPERM;
    case -ENODEV:
        return EX_UNAVAILABLE;
    case -ENOMEM:
    case -EIO:
        return EX_OSERR;
    default:
        return EX_CONFIG;
    }
}

static int
wrk_fail(int rc, char *err, size_t err_bytes, const char *what)
{
    if (err[0] == '\0')
        (void)snprintf(err, err_bytes, "%s: %s", what, strerror(-rc));
    return wrk_status(rc);
}

/* Builds the program of a rank, or of one device that computes in place of several
 * ranks. */
static int
wrk_build(struct worker *w, char *err, size_t err_bytes)
{
    long long block = w->par.kv_block_size;
    struct mdl_ranks ranks = { .n = wrk_n_rank(w) / wrk_n_copy(w),
        .n_copy = wrk_n_copy(w),
        .n_split = (int32_t)w->par.parallel_reference_splits,
        .kv_split = (int32_t)w->par.parallel_decode_context_parallel_size,
        .block = (int32_t)block };

    if (ranks.n_split != 1 && !wrk_on_cpu(w)) {
        (void)snprintf(err, err_bytes,
            "parallel.reference_splits = %d: only the cpu backend adds in the order of ranks; "
            "set device.backend = cpu, or leave it at 1",
            ranks.n_split);
        return -EINVAL;
    }
    /* the default divides blocks only on the cpu backend, and if possible */
    if (ranks.kv_split == 0 &&
        (!wrk_on_cpu(w) || block % mdl_kv_share(&w->cfg, ranks.n) != 0))
        ranks.kv_split = 1;
    return mdl_build_ranks(&w->cfg, &ranks, &w->prog, err, err_bytes);
}

static int
wrk_load_program(struct worker *w, char *err, size_t err_bytes)
{
    const struct par *p = &w->par;
    struct qnt q;
    int rc;

    if (p->model_path[0] == '\0') {
        (void)snprintf(err, err_bytes,
            "model.path is not set; name a model directory in "
            "the Hugging Face layout: --set model.path=DIR");
        return EX_CONFIG;
    }
    if (qnt_parse(p->quant_weights, p->quant_group_size, &q, err, err_bytes) != 0)
        return EX_CONFIG;
    if (wrk_is_null(w) && q.dtype != FDK_F32) {
        (void)snprintf(err, err_bytes,
            "quant.weights=%s: model.path=null has no "
            "weights; leave it at none",
            qnt_name(&q));
        return EX_CONFIG;
    }
    if (wrk_is_null(w) && (wrk_n_rank(w) > 1 || p->parallel_reference_splits > 1)) {
        (void)snprintf(err, err_bytes,
            "parallel.%s = %d: model.path=null has no weights to share; leave it at 1",
            wrk_n_copy(w) > 1       ? "prefill_context_parallel_size"
                : wrk_n_rank(w) > 1 ? "tensor_parallel_size"
                                    : "reference_splits",
            wrk_n_copy(w) > 1       ? wrk_n_copy(w)
                : wrk_n_rank(w) > 1 ? wrk_n_rank(w)
                                    : (int32_t)p->parallel_reference_splits);
        return EX_CONFIG;
    }
    if (wrk_is_null(w)) {
        w->prog = run_null_program();
        if (w->prog == NULL)
            return wrk_fail(-ENOMEM, err, err_bytes, "null model");
        w->cfg = w->prog->cfg;
        return 0;
    }
    rc = mdl_config_read(p->model_path, &w->cfg, err, err_bytes);
    if (rc == 0)
        rc = wrk_build(w, err, err_bytes);
    if (rc == 0)
        rc = wts_plan_new(p->model_path, w->prog,
            p->model_load_format == PAR_MODEL_LOAD_FORMAT_DUMMY,
            (uint64_t)p->model_dummy_seed, &w->wp, err, err_bytes);
    if (rc == 0 && w->cfg.tied && !w->prog->cfg.tied)
        log_warn("load: %s: tie_word_embeddings is true, but lm_head.weight differs from "
                 "the embedding: it is used; set tie_word_embeddings to false in config.json",
            p->model_path);
    if (rc == 0)
        w->cfg.tied = w->prog->cfg.tied;
    if (rc == 0 && w->cfg.quant != MDL_QUANT_NONE)
        log_info("load: the checkpoint is %s; activations are not quantized",
            mdl_quant_name(w->cfg.quant));
    if (rc == 0 && q.dtype != FDK_F32) {
        rc = wts_plan_quantize(w->wp, w->prog, &q, err, err_bytes);
        if (rc == 0)
            log_info("load: weights of the layers become %s, group size %d%s",
                qnt_name(&q), q.group, q.group == 0 ? " (a scale per row)" : "");
    }
    return rc != 0 ? wrk_fail(rc, err, err_bytes, p->model_path) : 0;
}

static void
wrk_warn_beyond(const struct worker *w)
{
    uint32_t n_ids = tok_vocab_size(w->tok);
    const uint8_t *p = (const uint8_t *)"";
    unsigned flags;
    size_t n = 0;

    if (n_ids <= (uint32_t)w->cfg.vocab)
        return;
    (void)tok_id_bytes(w->tok, n_ids - 1, &p, &n, &flags);
    log_warn("load: %s: token \"%.*s\" has id %u, but config.json says vocab_size = %d: "
             "prompts with it are refused",
        w->tok_path, (int)(n > 60 ? 60 : n), (const char *)p, (unsigned)n_ids - 1,
        (int)w->cfg.vocab);
}

/* Without a tokenizer only requests by ids are served; a broken tokenizer is an error. */
static int
wrk_load_tokenizer(struct worker *w, char *err, size_t err_bytes)
{
    const struct par *p = &w->par;
    int named = p->model_tokenizer[0] != '\0', rc;
    size_t n;

    if (wrk_is_null(w)) {
        (void)snprintf(w->tok_path, sizeof(w->tok_path), "bytes");
        rc = ntk_load(&w->tok, err, err_bytes);
        return rc != 0 ? wrk_fail(rc, err, err_bytes, "null tokenizer") : 0;
    }
    (void)snprintf(w->tok_path, sizeof(w->tok_path), "%s",
        named ? p->model_tokenizer : p->model_path);
    rc = tok_load_for(w->tok_path, w->cfg.vocab, &w->tok, err, err_bytes);
    if (rc == -ENOTSUP && !named) {
        n = strlen(err);
        (void)snprintf(err + n, err_bytes - n,
            "; only token ids are served from a "
            "folder with links to config.json and the weights only");
    }
    if (rc == -ENOENT && !named) {
        log_warn("load: %s has no tokenizer.json: requests by token ids only", w->tok_path);
        w->tok_path[0] = '\0';
        err[0] = '\0';
        return 0;
    }
    if (rc == 0)
        wrk_warn_beyond(w);
    return rc != 0 ? wrk_fail(rc, err, err_bytes, w->tok_path) : 0;
}

/* Reads the files that clients may read. */
static int
wrk_load_files(struct worker *w, char *err, size_t err_bytes)
{
    int null = wrk_is_null(w);
    int rc = fil_load(null ? "" : w->par.model_path, null ? "" : w->tok_path, w->tok,
        w->cfg.vocab, &w->files);

    return rc != 0 ? wrk_fail(rc, err, err_bytes, "the model's files") : 0;
}

/* A thread that loads the tokenizer while the rest loads. */
struct wrk_tok_job {
    struct worker *w;
    pthread_t thread;
    int started, rc;
    uint64_t ns;
    char err[1024];
};

static void *
wrk_tok_main(void *arg)
{
    struct wrk_tok_job *j = arg;
    uint64_t t0 = clk_now_ns();

    j->rc = wrk_load_tokenizer(j->w, j->err, sizeof(j->err));
    if (j->rc == 0)
        j->rc = wrk_load_files(j->w, j->err, sizeof(j->err));
    j->ns = clk_now_ns() - t0;
    return NULL;
}

static void
wrk_tok_begin(struct wrk_tok_job *j, struct worker *w)
{
    *j = (struct wrk_tok_job){ .w = w };
    j->started = pthread_create(&j->thread, NULL, wrk_tok_main, j) == 0;
    if (!j->started)
        (void)wrk_tok_main(j);
}

/* Joins the thread. rc and err: the result of the rest of the load; an error of the
 * tokenizer replaces it. */
static int
wrk_tok_end(struct wrk_tok_job *j, int rc, char *err, size_t err_bytes)
{
    if (j->started)
        (void)pthread_join(j->thread, NULL);
    j->started = 0;
    if (j->rc != 0)
        (void)snprintf(err, err_bytes, "%s", j->err);
    return j->rc != 0 ? j->rc : rc;
}

/* Without chunked prefill a step holds a whole prompt: if neither length nor step size is
 * set, a step gets the model's length, but at most the default step of a GPU. */
static void
wrk_whole_prompts(struct worker *w)
{
    struct par *p = &w->par;
    int32_t n = par_max_batched_tokens(p, 0);

    if (p->sched_enable_chunked_prefill || p->sched_max_num_batched_tokens != 0 ||
        p->model_max_model_len != 0)
        return;
    if (w->cfg.max_pos < n)
        n = w->cfg.max_pos;
    if (n > par_max_batched_tokens(p, wrk_on_cpu(w)))
        p->sched_max_num_batched_tokens = n;
}

/* More tokens per step than all its sequences can have would enlarge the buffers for
 * nothing. The gate checks this against model.max_model_len; if that is not set, the
 * model's length is the limit here. */
static void
wrk_limit_tokens(struct worker *w)
{
    struct par *p = &w->par;
    int64_t most = (int64_t)w->cfg.max_pos * p->sched_max_num_seqs;

    if (most < p->kv_block_size)
        most = p->kv_block_size;
    if (p->sched_max_num_batched_tokens <= most)
        return;
    log_warn("load: sched.max_num_batched_tokens = %lld is more than the model's length "
             "of %d tokens times sched.max_num_seqs = %lld; a step has %lld",
        (long long)p->sched_max_num_batched_tokens, w->cfg.max_pos,
        (long long)p->sched_max_num_seqs, (long long)most);
    p->sched_max_num_batched_tokens = most;
}

/* Reads the checkpoint's scales for an fp8 KV cache into w->kv_scale, before the weights,
 * which take longer. */
static int
wrk_load_kv_scales(struct worker *w, char *err, size_t err_bytes)
{
    /* for the whole model, if a rank needs any */
    size_t n = mpl_scale_bytes(w->kv, w->prog->n_kv_group) == 0
        ? 0
        : 2 * (size_t)w->cfg.n_layer * (size_t)w->cfg.n_kv_head;
    int32_t have = w->wp != NULL ? wts_n_kv_scale(w->wp) : 0;
    int rc;

    if (n == 0 && have > 0)
        log_info("load: %d KV scales of the checkpoint are without use: kv.dtype = %s is "
                 "not fp8",
            have, par_kv_dtype_words[w->par.kv_dtype]);
    if (n > 0 && have == 0 && w->wp != NULL)
        log_info("load: the checkpoint has no KV scales: all are 1");
    if (n == 0 || have == 0)
        return 0;
    w->kv_scale = mem_array(n, sizeof(*w->kv_scale));
    if (w->kv_scale == NULL)
        return -ENOMEM;
    rc = wts_kv_scales(w->wp, w->prog, w->kv_scale, err, err_bytes);
    if (rc == 0)
        log_info("load: %d KV scales from the checkpoint", have);
    return rc;
}

/* Threads of a worker: workers of several groups share the processors. */
static int32_t
wrk_threads(const struct worker *w)
{
    uint32_t n_group = w->seg->n_group;
    int32_t n;

    if (w->par.device_threads != 0 || n_group <= 1)
        return (int32_t)w->par.device_threads;
    n = wrk_processors() / ((int32_t)n_group * wrk_n_rank(w));
    return n > 0 ? n : 1;
}

/* Fewest tokens of a step that runs in halves; 0: no step does. */
static int32_t
wrk_halves_least(const struct worker *w)
{
    int32_t n = (int32_t)w->par.parallel_overlap_min_tokens;

    if (n == 0 && !wrk_on_cpu(w))
        return WRK_HALVES_LEAST;
    return n > 0 ? n : 0;
}

void
wrk_open_args(const struct worker *w, struct wrk_open *to)
{
    const struct par *p = &w->par;
    struct run_open_args *ret = &to->a;

    for (int32_t i = 0; i < w->devs.n; i++) {
        to->device[i] = w->devs.at[i].num;
        to->name[i] = w->devs.at[i].name;
    }
    for (int32_t i = 0; i < wrk_n_rank(w); i++)
        to->rank[i] = w->first_dev + i;

    *ret = (struct run_open_args){
        .backend =
            par_device_backend_words[wrk_is_null(w) ? PAR_DEVICE_BACKEND_NULL : p->device_backend],
        .deterministic = p->device_deterministic,
        .unfused = !p->device_fused_step,
        .n_device = w->devs.n,
        .device = w->devs.n > 0 ? to->device : NULL,
        .n_rank = wrk_n_rank(w),
        .n_copy = wrk_n_copy(w),
        .rank = to->rank,
        .name = w->devs.n > 0 ? to->name : NULL,
        .spin_limit_us =
            wrk_n_rank(w) > 1 ? (uint32_t)p->parallel_spin_limit_ms * 1000 * WRK_SLOWER : 0,
        .in_host = wrk_meets_in_host(w),
        .kv_split = w->prog != NULL ? w->prog->kv_split : 1,
        .kv_copies = w->prog != NULL ? w->prog->kv_copies : 1,
        .n_thread = wrk_threads(w),
        .nice = (int32_t)p->device_nice,
        .spin_us = wrk_spin_us(p),
        .max_token = par_max_batched_tokens(p, wrk_on_cpu(w)),
        .halves_least = wrk_halves_least(w),
        .prog = w->prog,
        .wp = w->wp
    };
    /* all devices except the one under test */
    if (p->device_test_entry >= 0 && w->devs.n > 0)
        ret->dead = (UINT32_MAX >> (DVL_MAX - w->devs.n)) & ~(UINT32_C(1) << w->first_dev);
    /* Operations follow each other immediately: with more than one processor their
     * threads must not sleep between two of them. */
    if (ret->spin_us == 0 && p->ipc_spin_us < 0 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        ret->spin_us = WRK_SPIN_US;
}

/* Plans the memory; if halves are only a default and lack memory, again without
 * halves. */
static int
wrk_plan(struct worker *w, char *err, size_t err_bytes)
{
    int rc = wrk_plan_memory(w, err, err_bytes);

    if (rc != -ENOSPC || w->par.parallel_overlap_min_tokens != 0 ||
        w->run->halves_least == 0)
        return rc;
    w->run->halves_least = 0;
    rc = wrk_plan_memory(w, err, err_bytes);
    if (rc == 0)
        log_info("load: steps stay whole, since there is no memory for two halves "
                 "(parallel.overlap_min_tokens)");
    return rc;
}

static int
wrk_open_device(struct worker *w, struct wrk_laps *laps, char *err, size_t err_bytes)
{
    struct wrk_open o;
    char cache[512];
    int rc;

    wrk_open_args(w, &o);
    if (peak_dir(w->par.daemon_cache_dir, cache, sizeof(cache)) == 0) {
        rc = dir_make(cache, 1);
        if (rc != 0)
            log_warn("load: folder %s cannot be made: %s; what is measured is not kept "
                     "(daemon.cache_dir)",
                cache, strerror(-rc));
        o.a.cache_dir = cache;
    }
    rc = run_new(&o.a, &w->run, err, err_bytes);
    if (rc == 0 && w->par.parallel_overlap_min_tokens > 0 && w->run->halves_least == 0)
        log_warn("load: parallel.overlap_min_tokens = %d is without use: steps go in halves where "
                 "two devices share the weights and reach each other's memory, and have %d tokens "
                 "at most",
            o.a.halves_least, o.a.max_token);
    wrk_lap(laps, "device");
    if (rc == 0 && w->wp != NULL)
        rc = wts_plan_layout(w->wp, w->prog, w->run->k, err, err_bytes);
    if (rc == 0)
        rc = wrk_plan(w, err, err_bytes);
    if (rc == 0)
        rc = wrk_load_kv_scales(w, err, err_bytes);
    wrk_lap(laps, "plan");
    return rc != 0 ? wrk_fail(rc, err, err_bytes, "device") : 0;
}

/* On a GPU, weights are loaded while buffers are allocated and graphs captured: the
 * results of these empty steps do not matter. */
void
wrk_load_args(struct worker *w, struct wts_load_args *ret)
{
    *ret = (struct wts_load_args){ .use_uring = w->par.model_load_uring != 0,
        .buffer_bytes = (size_t)w->par.model_load_buffer_bytes,
        .done = &w->seg->w.load_done_bytes,
        .total = &w->seg->w.load_total_bytes,
        .background = !wrk_on_cpu(w),
        .ring = w->ring,
        .n_ring = w->n_ring };
}

static int
wrk_load_weights(struct worker *w, char *err, size_t err_bytes)
{
    struct wts_load_args la;
    int rc;

    wrk_load_args(w, &la);
    rc = run_load(w->run, w->prog, w->wp, &la, err, err_bytes);

    return rc != 0 ? wrk_fail(rc, err, err_bytes, "device") : 0;
}

static int
wrk_load_kv(struct worker *w, char *err, size_t err_bytes)
{
    const struct par *p = &w->par;
    struct run_setup_args sa = { 0 };
    struct eng_cfg ec;
    int rc;

    wrk_eng_cfg(w, &ec);
    eng_dims(&ec, &sa.dims);
    sa.use_graph = w->use_graph;
    sa.cap = w->cap;
    memcpy(sa.kv, w->kv, sizeof(sa.kv));
    sa.kv_scale = w->kv_scale;
    sa.max_block = w->mpl.max_block;
    sa.n_rec = ec.depth + 1;
    sa.n_host = w->n_host;
    sa.n_penalty = ec.sch.n_penalty;
    sa.delay_ns = (uint64_t)p->device_step_delay_us * 1000u;
    rc = run_setup(w->run, &sa, err, err_bytes);
    if (rc == 0)
        rc = run_check(w->run, err, err_bytes);
    free(w->kv_scale);
    w->kv_scale = NULL;
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "runner");
    memcpy(w->kv, w->run->kv, sizeof(w->kv));
    return 0;
}

/* How many sequences the gate may send: those that can run, and enough so that a row that
 * ends finds its next sequence here. The rest stays queued in the gate, where users take
 * turns. */
static uint32_t
wrk_credits(const struct par *p)
{
    int64_t ahead = p->sched_max_num_seqs / WRK_AHEAD_SHARE;

    return (uint32_t)(p->sched_max_num_seqs + (ahead > WRK_AHEAD ? ahead : WRK_AHEAD));
}

/* Reads one value of generation_config.json. Returns 1 and sets *ret if it is present and
 * in range, else 0. */
static int
wrk_default(const char *key, double v, double least, double most, int above, float *ret)
{
    if (isnan(v))
        return 0;
    if (above ? v > least && v <= most : v >= least && v <= most) {
        *ret = (float)v;
        return 1;
    }
    log_warn("load: generation_config.json: %s = %g is not in %s%g, %g] and not taken",
        key, v, above ? "(" : "[", least, most);
    return 0;
}

/* Sets the defaults of sampling parameters that a request does not set. */
static void
wrk_defaults(const struct worker *w, struct fdp_info *in)
{
    const struct mdl_sampling *g = &w->cfg.gen;
    float top_k = 0;

    in->temperature = in->top_p = in->repetition_penalty = 1;
    if (w->par.model_generation_config == PAR_MODEL_GENERATION_CONFIG_OFF || wrk_is_null(w))
        return;
    if (!g->do_sample) {
        in->temperature = 0;
        in->set |= FDP_S_TEMPERATURE;
    } else if (wrk_default("temperature", g->temperature, 0, 100, 0, &in->temperature)) {
        in->set |= FDP_S_TEMPERATURE;
    }
    if (wrk_default("top_p", g->top_p, 0, 1, 1, &in->top_p))
        in->set |= FDP_S_TOP_P;
    if (wrk_default("top_k", g->top_k, 0, 1 << 24, 0, &top_k))
        in->set |= FDP_S_TOP_K;
    in->top_k = (uint32_t)top_k;
    if (wrk_default("min_p", g->min_p, 0, 1, 0, &in->min_p))
        in->set |= FDP_S_MIN_P;
    if (w->par.sched_max_penalty_seqs > 0 &&
        wrk_default("repetition_penalty", g->repetition_penalty,
            (double)FDP_MIN_REPETITION, 2, 0, &in->repetition_penalty))
        in->set |= FDP_S_REPETITION;
}

static void
wrk_info(struct worker *w)
{
    struct fdp_info *in = &w->ready.info;
    const char *name = w->par.model_name, *slash;
    char path[PAR_STR_BYTES];

    w->ready.credits = wrk_credits(&w->par);
    w->ready.model_len = (uint32_t)w->cfg.max_pos;
    in->vocab = (uint32_t)w->cfg.vocab;
    in->max_model_len = (uint32_t)w->max_len;
    in->bos_id =
        w->tok != NULL && tok_bos_id(w->tok) >= 0 ? tok_bos_id(w->tok) : w->cfg.bos;
    in->has_tokenizer = w->tok != NULL;
    in->n_eos = (uint32_t)w->cfg.n_eos;
    for (int32_t i = 0; i < w->cfg.n_eos && i < 8; i++)
        in->eos_ids[i] = (uint32_t)w->cfg.eos[i];
    in->block_size = (uint32_t)w->par.kv_block_size;
    wrk_defaults(w, in);
    in->max_logprobs = FDP_MAX_LOGPROBS; /* the gate reports the configured limit */
    if (w->wp != NULL)
        wts_digest(w->wp, in->model_digest);
    (void)snprintf(path, sizeof(path), "%s", w->par.model_path);
    while (strlen(path) > 1 && path[strlen(path) - 1] == '/')
        path[strlen(path) - 1] = '\0';
    slash = strrchr(path, '/');
    if (name[0] == '\0')
        name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    (void)snprintf(in->model_name, sizeof(in->model_name), "%.63s", name);
}

/* Values that automatic parameters got, for fdctl config. */
static void
wrk_effective(struct worker *w)
{
    const struct par *p = &w->par;
    struct lnk_worker_state *ws = &w->seg->w;
    struct fdk_device_info di = { .n_proc = 0 };
    char cache[512] = "";

    (void)w->run->k->device_info(w->run->ctx, run_root(w->run)->idx, &di);
    if (peak_dir(p->daemon_cache_dir, cache, sizeof(cache)) != 0)
        cache[0] = '\0';
    (void)snprintf(ws->effective, sizeof(ws->effective),
        "daemon.cache_dir=%s\nmodel.name=%s\nmodel.tokenizer=%s\n"
        "model.max_model_len=%d\nsched.max_num_batched_tokens=%d\n"
        "sched.long_prefill_token_threshold=%d\n"
        "sched.max_num_partial_prefills=%d\ndevice.backend=%s\n"
        "kv.num_blocks=%d\nkv.memory_bytes=%llu\nkv.dtype=%s\n",
        cache, w->ready.info.model_name, w->tok_path, w->max_len,
        par_max_batched_tokens(p, wrk_on_cpu(w)), par_long_prefill(p, w->max_len),
        par_partial_prefills(p), w->run->k->name, w->n_block,
        (unsigned long long)run_root(w->run)->mem.kv, wrk_kv_dtype_name(w->kv[0].dtype));
    if (w->prog->n_rank > 1) {
        size_t n = strlen(ws->effective);

        if (p->parallel_custom_all_reduce == PAR_PARALLEL_CUSTOM_ALL_REDUCE_AUTO)
            (void)snprintf(ws->effective + n, sizeof(ws->effective) - n,
                "parallel.custom_all_reduce=%s\n", w->run->in_host ? "no" : "yes");
        wrk_sums_text(w, ws->all_reduce, sizeof(ws->all_reduce));
    }
    if (wrk_on_cpu(w) && !wrk_is_null(w)) {
        size_t n = strlen(ws->effective);

        (void)snprintf(ws->effective + n, sizeof(ws->effective) - n,
            "device.threads=%d\n", di.n_proc);
    }
}

/* Warns if the automatic length is below the model's. */
static void
wrk_warn_length(const struct worker *w)
{
    const struct par *p = &w->par;
    int32_t step = par_max_batched_tokens(p, wrk_on_cpu(w));

    if (p->model_max_model_len != 0 || w->max_len >= w->cfg.max_pos)
        return;
    if (!p->sched_enable_chunked_prefill && w->max_len == step)
        log_warn("load: requests have at most %d tokens, not the model's %d: without "
                 "sched.enable_chunked_prefill a prompt must fit one step; raise "
                 "sched.max_num_batched_tokens, or set model.max_model_len = %d",
            w->max_len, w->cfg.max_pos, w->max_len);
    else
        log_warn("load: requests have at most %d tokens, not the model's %d: the KV cache "
                 "has %d blocks of %d tokens; raise kv.memory_bytes, kv.num_blocks or "
                 "kv.gpu_memory_utilization, or set model.max_model_len = %d",
            w->max_len, w->cfg.max_pos, w->n_block, mpl_block_tokens(&w->kv[0]),
            w->max_len);
}

static void
wrk_log_plan(const struct worker *w)
{
    log_info("load: model %s family %s %.1f M parameters vocabulary %d",
        w->ready.info.model_name, w->cfg.family, (double)mdl_n_param(w->prog) / 1e6,
        w->cfg.vocab);
    log_info("load: backend %s", w->run->k->name);
    wrk_log_memory(w);
    log_info("load: kv %d blocks of %d tokens %s, max_model_len %d, %.1f s", w->n_block,
        mpl_block_tokens(&w->kv[0]), fdk_dtype_name(w->kv[0].dtype), w->max_len,
        (double)w->load_ns / 1e9);
    if (w->prog->kv_split > 1)
        log_info("load: a KV head is on %d ranks: each has %d tokens of a block",
            w->prog->kv_split, w->kv[0].block_size);
    if (w->cfg.ignored[0] != '\0')
        log_info("load: fields of config.json without use: %s", w->cfg.ignored);
    if (w->wp != NULL && wts_ignored(w->wp)[0] != '\0')
        log_info("load: tensors without use: %s", wts_ignored(w->wp));
}

static void
wrk_count(const struct worker *w)
{
    struct cnt_worker *c = &w->stat->w;

    cnt_set(&c->weight_bytes, run_root(w->run)->mem.weights);
    cnt_set(&c->kv_bytes, run_root(w->run)->mem.kv);
    cnt_set(&c->kv_blocks_total, (uint64_t)w->n_block);
    cnt_set(&c->kv_blocks_free, (uint64_t)w->n_block);
    cnt_set(&c->kv_block_tokens, (uint64_t)mpl_block_tokens(&w->kv[0]));
    cnt_set(&c->load_ns, w->load_ns);
}

/* From an open device to captured graphs, with all weights loaded. */
static int
wrk_load_run(struct worker *w, struct wrk_laps *laps, char *err, size_t err_bytes)
{
    int rc = wrk_load_weights(w, err, err_bytes);

    wrk_lap(laps, wrk_on_cpu(w) ? "weights" : "first weights");
    if (rc == 0)
        rc = wrk_load_kv(w, err, err_bytes);
    wrk_lap(laps, "buffers");
    if (rc != 0)
        return rc;
    __atomic_store_n(&w->seg->w.phase, LNK_PH_WARM, __ATOMIC_RELEASE);
    rc = wrk_load_sums(w, err, err_bytes);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "collectives");
    if (w->run->n_rank > 1)
        wrk_lap(laps, "collectives");
    rc = run_warm(w->run, w->par.graph_capture == PAR_GRAPH_CAPTURE_EAGER);
    wrk_lap(laps, "graphs");
    if (rc != 0 && run_error(w->run)[0] != '\0')
        (void)snprintf(err, err_bytes, "the first steps: %s", run_error(w->run));
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "recording graphs");
    run_check_launches(w->run);
    rc = run_load_wait(w->run, err, err_bytes);
    if (!wrk_on_cpu(w))
        wrk_lap(laps, "rest of the weights");
    if (rc == 0)
        rc = run_load_embed(w->run, err, err_bytes);
    return rc != 0 ? wrk_fail(rc, err, err_bytes, "device") : 0;
}

static void
wrk_log_laps(const struct worker *w, const struct wrk_laps *laps, uint64_t tok_ns)
{
    uint64_t ns = w->wp != NULL ? wts_load_ns(w->wp) : 0;

    log_info("load: %.3f s: %s; at the same time the tokenizer %.3f",
        (double)w->load_ns / 1e9, laps->text, (double)tok_ns / 1e9);
    if (ns > 0)
        log_info("load: weights %.2f GB on the device in %.3f s by %s: %.1f GB/s",
            (double)wts_bytes(w->wp) / 1e9, (double)ns / 1e9, wts_how(w->wp),
            (double)wts_bytes(w->wp) / (double)ns);
}

int
wrk_load(struct worker *w, char *err, size_t err_bytes)
{
    struct wrk_laps laps = { .last = clk_now_ns() };
    uint64_t t0 = laps.last;
    struct wrk_tok_job tok;
    int rc = par_check_values(&w->par, err, err_bytes);

    if (rc != 0)
        return EX_CONFIG;
    rc = pfx_key_new(&w->key);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "key of the prefix cache");
    rc = wrk_load_program(w, err, err_bytes);
    wrk_lap(&laps, "files");
    if (rc != 0)
        return rc;
    rc = wrk_claim_device(w, err, err_bytes);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "device.list");
    wrk_limit_tokens(w);
    wrk_whole_prompts(w);
    wrk_tok_begin(&tok, w);
    rc = wrk_open_device(w, &laps, err, err_bytes);
    if (rc != 0 || wrk_on_cpu(w))
        rc = wrk_tok_end(&tok, rc, err, err_bytes);
    if (rc == 0)
        rc = wrk_load_run(w, &laps, err, err_bytes);
    rc = wrk_tok_end(&tok, rc, err, err_bytes);
    if (rc != 0)
        return rc;
    rc = wrk_settle_memory(w, err, err_bytes);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "KV cache");
    wrk_lap(&laps, "KV");
    /* jansson keeps memory from parsing a large vocabulary */
    (void)malloc_trim(0);
    w->load_ns = clk_now_ns() - t0;
    wrk_info(w);
    wrk_count(w);
    wrk_effective(w);
    wrk_log_plan(w);
    wrk_warn_length(w);
    wrk_log_laps(w, &laps, tok.ns);
    return 0;
}

void
wrk_unload(struct worker *w)
{
    if (w->wp != NULL)
        wts_load_stop(w->wp);
    w->run = run_free(w->run);
    free(w->kv_scale);
    w->kv_scale = NULL;
    w->files = fil_free(w->files);
    w->tok = tok_free(w->tok);
    w->wp = wts_plan_free(w->wp);
    w->prog = mdl_free(w->prog);
}
