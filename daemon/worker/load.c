#include "config.h"

#include "daemon/worker/worker.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/log.h"
#include "daemon/worker/null_tok.h"
#include "daemon/worker/tokenizer.h"

/* Polling after work on machines where it costs nobody anything. */
#define WRK_SPIN_US    50
#define WRK_SPIN_PROCS 8

int
wrk_is_null(const struct worker *w)
{
    return strcmp(w->par.model_path, "null") == 0;
}

int32_t
wrk_spin_us(const struct par *p)
{
    if (p->ipc_spin_us >= 0)
        return (int32_t)p->ipc_spin_us;
    return sysconf(_SC_NPROCESSORS_ONLN) >= WRK_SPIN_PROCS ? WRK_SPIN_US : 0;
}

/* Exit status for an error of the model's files. */
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

static void
wrk_progress(void *arg, uint64_t done, uint64_t total)
{
    struct worker *w = arg;

    __atomic_store_n(&w->seg->w.load_total_bytes, total, __ATOMIC_RELAXED);
    __atomic_store_n(&w->seg->w.load_done_bytes, done, __ATOMIC_RELAXED);
}

static int
wrk_load_program(struct worker *w, char *err, size_t err_bytes)
{
    const struct par *p = &w->par;
    int rc;

    if (p->model_path[0] == '\0') {
        (void)snprintf(err, err_bytes, "model.path is not set; name a model directory in "
            "the Hugging Face layout: --set model.path=DIR");
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
        rc = mdl_build(&w->cfg, &w->prog, err, err_bytes);
    if (rc == 0)
        rc = wts_plan_new(p->model_path, w->prog, strcmp(p->model_load_format, "dummy") == 0,
            (uint64_t)p->model_dummy_seed, &w->wp, err, err_bytes);
    return rc != 0 ? wrk_fail(rc, err, err_bytes, p->model_path) : 0;
}

/* Without a tokenizer requests by ids work; a broken one is an error. */
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
    rc = tok_load(w->tok_path, &w->tok, err, err_bytes);
    if (rc == -ENOTSUP && !named) {
        n = strlen(err);
        (void)snprintf(err + n, err_bytes - n, "; token ids alone are served from a "
            "folder with links to config.json and the weights only");
    }
    if (rc == 0 && tok_vocab_size(w->tok) > (uint32_t)w->cfg.vocab)
        log_warn("load: the tokenizer knows %u ids, the model %d: a text with tokens "
            "beyond is refused", (unsigned)tok_vocab_size(w->tok), w->cfg.vocab);
    if (rc == -ENOENT && !named) {
        log_warn("load: %s has no tokenizer.json: requests by token ids only", w->tok_path);
        w->tok_path[0] = '\0';
        err[0] = '\0';
        return 0;
    }
    return rc != 0 ? wrk_fail(rc, err, err_bytes, w->tok_path) : 0;
}

static int
wrk_load_device(struct worker *w, char *err, size_t err_bytes)
{
    const struct par *p = &w->par;
    struct run_open_args oa = { .backend = wrk_is_null(w) ? "null" : p->device_backend,
        .n_thread = (int32_t)p->device_threads, .spin_us = wrk_spin_us(p),
        .max_token = (int32_t)p->sched_max_num_batched_tokens };
    struct wts_load_args la = { .use_uring = p->model_load_uring != 0,
        .buffer_bytes = (size_t)p->model_load_buffer_bytes, .progress = wrk_progress,
        .arg = w };
    int rc;

    /* Operations follow each other at once: their threads must not go to
     * sleep between two of them wherever there is a second processor. */
    if (oa.spin_us == 0 && p->ipc_spin_us < 0 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        oa.spin_us = WRK_SPIN_US;
    rc = run_new(&oa, &w->run, err, err_bytes);
    if (rc == 0)
        rc = run_load(w->run, w->prog, w->wp, &la, err, err_bytes);
    return rc != 0 ? wrk_fail(rc, err, err_bytes, "device") : 0;
}

/* auto keeps the precision of the activations: bf16 keys and values moved
 * logprobs of 16-bit checkpoints by up to 0.14 from a fp32 reference. */
static enum fdk_dtype
wrk_kv_dtype(const struct worker *w)
{
    if (strcmp(w->par.kv_dtype, "fp32") == 0)
        return FDK_F32;
    if (strcmp(w->par.kv_dtype, "bf16") == 0)
        return FDK_BF16;
    if (w->run->k->act_dtype == FDK_F32 || w->wp == NULL)
        return FDK_F32;
    return wts_main_dtype(w->wp) == FDK_F32 ? FDK_F32 : FDK_BF16;
}

static int
wrk_load_kv(struct worker *w, char *err, size_t err_bytes)
{
    const struct par *p = &w->par;
    struct kv_plan_args a = { .memory_bytes = (uint64_t)p->kv_memory_bytes,
        .num_blocks = p->kv_num_blocks, .model_len = w->cfg.max_pos,
        .want_len = p->model_max_model_len, .max_num_seqs = (int32_t)p->sched_max_num_seqs };
    struct eng_cfg ec;
    struct bat_dims dims;
    int rc;

    rc = kv_layout(w->cfg.n_layer, w->cfg.n_kv_head, w->cfg.head_dim,
        (int32_t)p->kv_block_size, wrk_kv_dtype(w), &a.kv);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "KV layout");
    a.mem_free = run_mem_free(w->run);
    rc = kv_plan(&a, &w->n_block, &w->max_len, err, err_bytes);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "KV cache");
    w->kv = a.kv;
    wrk_eng_cfg(w, &ec);
    eng_dims(&ec, &dims);
    rc = run_setup(w->run, &dims, &w->kv, w->n_block + 1, ec.depth + 1,
        p->device_graph != 0, err, err_bytes);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "runner");
    w->kv = w->run->kv;
    return 0;
}

void
wrk_eng_cfg(const struct worker *w, struct eng_cfg *ret)
{
    const struct par *p = &w->par;

    *ret = (struct eng_cfg) {
        .max_reqs = (int32_t)p->sched_max_concurrency,
        .max_seqs = (int32_t)p->sched_max_num_seqs,
        .max_tokens = (int32_t)p->sched_max_num_batched_tokens,
        .chunked = p->sched_enable_chunked_prefill != 0, .max_len = w->max_len,
        .n_block = w->n_block, .block_size = (int32_t)p->kv_block_size,
        .depth = (int32_t)p->device_overlap_depth, .heartbeat = &w->seg->w.heartbeat
    };
}

static void
wrk_info(struct worker *w)
{
    struct fdp_info *in = &w->ready.info;
    const char *name = w->par.model_name, *slash;
    char path[PAR_STR_BYTES];

    w->ready.credits = (uint32_t)w->par.sched_max_concurrency;
    in->vocab = (uint32_t)w->cfg.vocab;
    in->max_model_len = (uint32_t)w->max_len;
    in->bos_id = w->tok != NULL && tok_bos_id(w->tok) >= 0 ? tok_bos_id(w->tok) : w->cfg.bos;
    in->has_tokenizer = w->tok != NULL;
    in->n_eos = (uint32_t)w->cfg.n_eos;
    for (int32_t i = 0; i < w->cfg.n_eos && i < 8; i++)
        in->eos_ids[i] = (uint32_t)w->cfg.eos[i];
    in->block_size = (uint32_t)w->par.kv_block_size;
    in->max_logprobs = (uint32_t)w->par.output_max_logprobs;
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

static void
wrk_log_plan(const struct worker *w)
{
    const struct run_mem *m = &w->run->mem;

    log_info("load: model %s family %s %.1f M parameters vocabulary %d",
        w->ready.info.model_name, w->cfg.family, (double)mdl_n_param(w->prog) / 1e6,
        w->cfg.vocab);
    log_info("load: backend %s memory MiB: weights %.1f kv %.1f activations %.1f scratch "
        "%.1f", w->run->k->name, (double)m->weights / 1048576.0,
        (double)m->kv / 1048576.0, (double)m->activations / 1048576.0,
        (double)m->scratch / 1048576.0);
    log_info("load: kv %d blocks of %d tokens %s, max_model_len %d, %.1f s", w->n_block,
        w->kv.block_size, fdk_dtype_name(w->kv.dtype), w->max_len,
        (double)w->load_ns / 1e9);
    if (w->wp != NULL && wts_ignored(w->wp)[0] != '\0')
        log_info("load: tensors without use: %s", wts_ignored(w->wp));
}

static void
wrk_count(const struct worker *w)
{
    struct cnt_worker *c = &w->stat->w;

    cnt_set(&c->weight_bytes, w->run->mem.weights);
    cnt_set(&c->kv_bytes, w->run->mem.kv);
    cnt_set(&c->kv_blocks_total, (uint64_t)w->n_block);
    cnt_set(&c->kv_blocks_free, (uint64_t)w->n_block);
    cnt_set(&c->load_ns, w->load_ns);
}

int
wrk_load(struct worker *w, char *err, size_t err_bytes)
{
    uint64_t t0 = clk_now_ns();
    int rc = wrk_load_program(w, err, err_bytes);

    if (rc == 0)
        rc = wrk_load_tokenizer(w, err, err_bytes);
    if (rc == 0)
        rc = wrk_load_device(w, err, err_bytes);
    if (rc == 0)
        rc = wrk_load_kv(w, err, err_bytes);
    if (rc != 0)
        return rc;
    __atomic_store_n(&w->seg->w.phase, LNK_PH_WARM, __ATOMIC_RELEASE);
    rc = run_warm(w->run, (int32_t)w->par.sched_max_num_batched_tokens);
    if (rc != 0)
        return wrk_fail(rc, err, err_bytes, "recording graphs");
    /* jansson keeps what a large vocabulary took while it was parsed */
    (void)malloc_trim(0);
    w->load_ns = clk_now_ns() - t0;
    wrk_info(w);
    wrk_count(w);
    wrk_log_plan(w);
    return 0;
}

void
wrk_unload(struct worker *w)
{
    w->run = run_free(w->run);
    w->tok = tok_free(w->tok);
    w->wp = wts_plan_free(w->wp);
    w->prog = mdl_free(w->prog);
}
