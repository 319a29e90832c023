/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/cgroup.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

/* auto keeps the precision of activations on the CPU: with bf16 keys and values logprobs
 * of 16-bit checkpoints differed by up to 0.14 from a fp32 reference. A GPU rounds
 * activations to the weights' type before every GEMM anyway. */
static enum fdk_dtype
wrk_kv_dtype(const struct worker *w)
{
    static const enum fdk_dtype types[] = { [PAR_KV_DTYPE_FP32] = FDK_F32,
        [PAR_KV_DTYPE_BF16] = FDK_BF16,
        [PAR_KV_DTYPE_FP8] = FDK_F8E4M3,
        [PAR_KV_DTYPE_INT8] = FDK_I8 };

    if (w->par.kv_dtype != PAR_KV_DTYPE_AUTO)
        return types[w->par.kv_dtype];
    if (w->run->k->on_host || w->wp == NULL)
        return FDK_F32;
    return wts_main_dtype(w->wp) == FDK_F32 && run_act(w->run->k, w->prog, w->wp) == FDK_F32
        ? FDK_F32
        : FDK_BF16;
}

const char *
wrk_kv_dtype_name(enum fdk_dtype t)
{
    return t == FDK_F32   ? "fp32"
        : t == FDK_F8E4M3 ? "fp8"
        : t == FDK_I8     ? "int8"
                          : fdk_dtype_name(t);
}

/* ---- sizes of the runner's buffers ----------------------------------------------- */

/* Computes the sizes of the runner's buffers for sequences of max_len tokens. */
static int
wrk_sizes(struct worker *w, int32_t max_len, struct mpl_sizes *ret)
{
    size_t *off = mem_array((size_t)w->prog->n_buf, sizeof(*off)), act = 0;
    struct runner shape = { .k = w->run->k, .ctx = w->run->ctx, .prog = w->prog, .wp = w->wp };
    const struct bat_dims *d = &shape.dims;
    struct eng_cfg ec;
    struct run_sizes z;
    uint64_t scratch = 0;
    int rc;

    if (off == NULL)
        return -ENOMEM;
    memcpy(shape.kv, w->kv, sizeof(shape.kv));
    w->max_len = max_len;
    wrk_eng_cfg(w, &ec);
    eng_dims(&ec, &shape.dims);
    shape.n_penalty = ec.sch.n_penalty;
    shape.R = run_logits_rows(shape.k, w->cfg.vocab, d->O);
    shape.act = run_act(shape.k, w->prog, w->wp);
    rc = run_tiles(&shape);
    if (rc == 0)
        rc = run_place(shape.k, w->prog, d, shape.R, shape.act, w->run->halves_least > 0,
            off, &act);
    if (rc == 0)
        scratch = run_scratch_bytes(&shape);
    free(off);
    z = run_sizes(&shape);
    free(shape.att_bytes);
    *ret = (struct mpl_sizes){ .rows = z.rows,
        .tables = z.tables,
        .plan = z.plan + z.others + z.slots + z.stage,
        .results = z.results + z.all,
        .activations = act,
        .scratch = scratch,
        .host_plan =
            (w->run->n_copy > 1 ? z.plan * ((uint64_t)w->run->n_copy + 1) : z.plan) +
            z.tables,
        .host_results = z.results };
    return rc;
}

/* Bytes of quantized weights, values and scales, in the weights' arena. */
static uint64_t
wrk_quant_bytes(const struct worker *w)
{
    uint64_t sum = 0;

    for (int32_t i = 0; w->wp != NULL && i < w->prog->n_w; i++) {
        const struct fdk_weight q = wts_weight(w->wp, i);

        if (w->prog->w[i].alias < 0 && q.group > 0)
            sum += q.bytes;
    }
    return sum;
}

/* ---- the plan ------------------------------------------------------------------------ */

/* Memory of the ranks' devices. taken: collectives are already allocated, but the plan
 * has a row for them, so they count as free. */
static int
wrk_ranks(const struct worker *w, int taken, struct mpl_rank ret[FDK_MAX_DEVICES])
{
    struct fdk_device_info di;
    int rc = 0;

    for (int32_t i = 0; i < w->run->n_rank && rc == 0; i++) {
        const struct run_dev *dev = &w->run->dev[i];

        rc = dev->run->k->device_info(dev->run->ctx, dev->idx, &di);
        if (rc == 0)
            ret[i] = (struct mpl_rank){ di.mem_total, di.mem_free };
        if (rc == 0 && taken)
            ret[i].mem_free += dev->mem.collectives;
    }
    return rc;
}

static uint64_t
wrk_host_total(void)
{
    long n = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);

    return n > 0 && bytes > 0 ? (uint64_t)n * (uint64_t)bytes : 0;
}

void
wrk_plan_args(struct worker *w, struct mpl_in *ret)
{
    const struct par *p = &w->par;
    uint64_t all = w->wp != NULL ? wts_bytes(w->wp) : 0, quant = wrk_quant_bytes(w);

    *ret = (struct mpl_in){ .is_cpu = wrk_on_cpu(w),
        .n_group = w->seg != NULL ? w->seg->n_group : 1,
        .utilization = p->kv_gpu_memory_utilization,
        .swap_gib = p->kv_swap_space,
        .host_free = fdk_host_mem_free(),
        .host_total = wrk_host_total(),
        .n_share = wrk_n_rank(w),
        .num_blocks = p->kv_num_blocks,
        .memory_bytes = (uint64_t)p->kv_memory_bytes,
        .want_len = p->model_max_model_len,
        .max_num_seqs = (int32_t)p->sched_max_num_seqs,
        .decode_blocks = (int32_t)p->kv_static_decode_blocks,
        .chunked = p->sched_enable_chunked_prefill != 0,
        .max_partial = (int32_t)p->sched_max_num_partial_prefills,
        .long_threshold = p->sched_long_prefill_token_threshold,
        .model_len = w->cfg.max_pos,
        .vocab = w->cfg.vocab,
        .n_op = w->prog->n_op,
        .weights = all - quant,
        .quant_weights = quant,
        .rope = (uint64_t)w->prog->n_freq * sizeof(float) };
}

static int
wrk_plan_rounds(struct worker *w, const struct mpl_in *in, char *err, size_t err_bytes)
{
    struct mpl_sizes z;
    int rc = mpl_begin(in, &w->mpl, err, err_bytes);

    if (rc != 0)
        return rc;
    do {
        rc = wrk_sizes(w, w->mpl.max_len, &z);
        if (rc != 0) {
            (void)snprintf(err, err_bytes, "cannot compute the buffer sizes: %s",
                strerror(-rc));
            return rc;
        }
        rc = mpl_round(in, &z, &w->mpl, err, err_bytes);
    } while (rc > 0);
    return rc;
}

/* Computes the layouts of the program's KV groups, which share blocks. */
static int
wrk_kv_layout(struct worker *w)
{
    const struct mdl_program *p = w->prog;
    int rc = 0;

    for (int32_t i = 0; i < p->n_kv_group && rc == 0; i++) {
        const struct mdl_kv_group *g = &p->kv_group[i];

        rc = mpl_layout(g->n_layer, 0, g->n_kv_head, g->head_dim,
            (int32_t)w->par.kv_block_size / p->kv_split, wrk_kv_dtype(w), &w->kv[i]);
        w->kv[i].n_own = p->kv_split;
    }
    mpl_share(w->kv, p->n_kv_group);
    return rc;
}

int
wrk_plan_memory(struct worker *w, char *err, size_t err_bytes)
{
    const struct par *p = &w->par;
    struct mpl_rank rank[FDK_MAX_DEVICES];
    struct mpl_in in;
    struct eng_cfg ec;
    int rc;

    wrk_plan_args(w, &in);
    in.rank = rank;
    in.n_rank = w->run->n_rank;
    in.collectives = run_root(w->run)->mem.collectives;
    if (w->run->in_host)
        in.in_host = run_root(w->run)->mem.in_host + run_embed_bytes(w->prog, w->wp);
    rc = wrk_kv_layout(w);
    if (rc == 0)
        rc = wrk_ranks(w, 1, rank);
    if (rc == 0)
        rc = wrk_capture(w, p, &w->use_graph, &w->cap, err, err_bytes);
    if (rc != 0)
        return rc;
    wrk_eng_cfg(w, &ec);
    memcpy(in.kv, w->kv, sizeof(in.kv));
    in.n_kv = ec.n_group;
    for (int32_t g = 0; g < in.n_kv; g++)
        in.most[g] = wrk_kv_most(w, &ec, g);
    in.max_tokens = ec.sch.max_tokens;
    in.n_penalty = ec.sch.n_penalty;
    in.n_rec = ec.depth + 1;
    in.n_graph = w->use_graph ? run_n_graph(w->run->k, w->prog, &w->cap) : 0;
    rc = wrk_plan_rounds(w, &in, err, err_bytes);
    if (rc != 0)
        return rc;
    w->n_block = w->mpl.n_block;
    w->n_host = w->mpl.n_host;
    w->max_len = w->mpl.max_len;
    return 0;
}

/* Checks that every group of buffers has its planned size on each rank's device. Each
 * rank uses the same amount of host memory. */
static void
wrk_check_memory(const struct worker *w, const struct run_mem *m)
{
    uint64_t n = (uint64_t)w->run->n_rank;
    const struct {
        enum mpl_group group;
        uint64_t bytes;
    } got[] = { { MPL_WEIGHTS, m->weights }, { MPL_ACTIVATIONS, m->activations },
        { MPL_SCRATCH, m->scratch }, { MPL_COLLECTIVES, m->collectives },
        { MPL_STATE, m->state }, { MPL_PLAN, m->plan }, { MPL_PENALTY, m->penalty },
        { MPL_KV, m->kv }, { MPL_KV_SCALES, m->kv_scales }, { MPL_HOST, w->run->host },
        { MPL_HOST_KV, n * m->host_kv }, { MPL_HOST_PENALTY, w->run->host_penalty },
        { MPL_HOST_SHARED, n * m->in_host } };
    int bad = 0;

    for (size_t i = 0; i < sizeof(got) / sizeof(got[0]); i++) {
        uint64_t want = mpl_bytes(&w->mpl, got[i].group);

        if (got[i].bytes == want)
            continue;
        log_error("memory: %s took %llu bytes, planned were %llu",
            mpl_group_name(got[i].group), (unsigned long long)got[i].bytes,
            (unsigned long long)want);
        bad = 1;
    }
    if (bad)
        WRONG("the memory taken is not the memory planned");
}

int
wrk_settle_memory(struct worker *w, char *err, size_t err_bytes)
{
    struct mpl_rank rank[FDK_MAX_DEVICES];
    /* On the host the memory of captured graphs cannot be measured: other code allocates
     * there too. */
    uint64_t graphs = wrk_on_cpu(w) ? mpl_bytes(&w->mpl, MPL_GRAPHS) : 0,
             mapped = UINT64_MAX;
    int rc = wrk_ranks(w, 0, rank);

    for (int32_t i = 0; i < w->run->n_rank; i++) {
        const struct run_dev *dev = &w->run->dev[i];

        if (!wrk_on_cpu(w) && dev->mem.graphs > graphs)
            graphs = dev->mem.graphs;
        if (dev->kv_mapped < mapped)
            mapped = dev->kv_mapped;
    }
    if (rc == 0)
        rc = mpl_settle(&w->mpl, graphs, mapped, rank, w->run->n_rank, err, err_bytes);
    if (rc != 0)
        return rc;
    w->n_block = w->mpl.n_block;
    rc = run_map_kv(w->run, w->n_block + 1, err, err_bytes);
    for (int32_t i = 0; i < w->run->n_rank && rc == 0; i++)
        wrk_check_memory(w, &w->run->dev[i].mem);
    return rc;
}

/* Memory of a worker beyond its plan: programs, libraries, rings; with CUDA, its
 * contexts. */
#define WRK_HOST_SPARE_CPU  (UINT64_C(256) << 20)
#define WRK_HOST_SPARE_CUDA (UINT64_C(2) << 30)
#define WRK_TASKS_SPARE     64 /* threads that load, serve and log, and fdd */

int32_t
wrk_processors(void)
{
    cpu_set_t set;
    long n;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int32_t)n : 1;
}

void
wrk_host_need(const struct worker *w, struct wrk_need *ret)
{
    const struct mpl *m = &w->mpl;
    uint64_t n_rank = (uint64_t)wrk_n_rank(w),
             n_group = w->seg->n_group > 1 ? w->seg->n_group : 1;
    uint64_t n = w->par.device_threads != 0
        ? (uint64_t)w->par.device_threads * n_rank * n_group
        : (uint64_t)wrk_processors();
    uint64_t bytes = m->host_bytes +
        (wrk_on_cpu(w) ? n_rank * m->device_bytes + WRK_HOST_SPARE_CPU
                       : WRK_HOST_SPARE_CUDA);

    *ret = (struct wrk_need){ .bytes = n_group * bytes,
        .pinned = n_group * mpl_bytes(m, MPL_HOST_KV),
        .tasks = WRK_TASKS_SPARE + 2 * n };
}

/* Warns if the systemd unit's limits are below the plans of all groups: fdd(8), UNDER
 * SYSTEMD. */
static void
wrk_check_group(const struct worker *w)
{
    struct wrk_need need;
    char text[512];
    struct cgr c;

    wrk_host_need(w, &need);
    cgr_read("", &c);
    if (cgr_memory_short(&c, need.bytes, need.pinned, text, sizeof(text)))
        log_warn("memory: %s", text);
    if (cgr_tasks_short(&c, need.tasks, text, sizeof(text)))
        log_warn("worker: %s", text);
}

static void
wrk_log_groups(const struct worker *w)
{
    const struct mpl *m = &w->mpl;
    char layers[256], bytes[32];

    mpl_show_bytes(m->block_bytes / (uint64_t)m->block_size, bytes, sizeof(bytes));
    for (int32_t i = 0; i < w->prog->n_kv_group; i++) {
        int32_t window = w->prog->kv_group[i].window;

        mdl_kv_layers(w->prog, i, layers, sizeof(layers));
        log_info("memory: KV group %d: layers %s, window %d%s, %s a token, at most %d blocks "
                 "a request",
            i, layers, window, window > 0 ? "" : " (none)", bytes, mpl_most(m, i));
    }
}

void
wrk_log_memory(const struct worker *w)
{
    const struct mpl *m = &w->mpl;
    char a[32], b[32];

    for (int32_t i = 0; i < m->n_row; i++) {
        mpl_show_bytes(m->row[i].bytes, a, sizeof(a));
        log_info("memory: %-6s %10s %s: %s", m->row[i].host ? "host" : "device", a,
            m->row[i].name, m->row[i].how);
    }
    wrk_log_groups(w);
    mpl_show_bytes(m->device_bytes, a, sizeof(a));
    mpl_show_bytes(m->limit, b, sizeof(b));
    log_info("memory: %s of %s, %lld tokens in %d blocks, %d requests of max_model_len %d",
        a, b, (long long)m->tokens, m->n_block, m->concurrency, m->max_len);
    wrk_check_group(w);
}
