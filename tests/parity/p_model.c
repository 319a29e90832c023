/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares model directories with the results of transformers (reference.txt, see
 * tools/dev/dump_reference.py): logprobs of the prompt and of a greedy
 * continuation. Executes the program in the simplest way: one row, no scheduler,
 * separate memory for each buffer.
 *
 *   p_model                     every directory under tests/parity/models
 *   p_model DIR [REFERENCE]     one directory
 */
#include "config.h"

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/worker/model.h"
#include "daemon/worker/weights.h"
#include "kernels/fdk.h"
#include "tests/test_device.h"

#define MAX_TOK 512
#define BLOCK   16
#define N_BLOCK ((2 * MAX_TOK) / BLOCK)
#define N_TOP   5
#define STATE   1 /* state slot of the only row */

/* Allowed |difference|, by the type of the KV cache; the
 * reference's cache is always fp32. */
#define TOL_F32  1e-4
#define TOL_BF16 2e-2

#define MUST(e) \
    do { \
        int rc_ = (e); \
        if (rc_ != 0) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #e, strerror(-rc_)); \
            exit(1); \
        } \
    } while (0)

static const struct fdk_ops *const k = &fdk_ops_cpu;

struct step_host { /* arrays that a step copies to the device */
    int32_t n_tok, n_row, n_out;
    int32_t ids[MAX_TOK], pos[MAX_TOK], slot_map[MAX_TOK], row[MAX_TOK];
    int32_t q_start[2], kv_len[1], block_table[STATE + 1][MAX_TOK / BLOCK], state[1];
    struct fdk_out out[MAX_TOK];
    struct fdk_work work[MAX_TOK];
    int32_t n_work;
    uint32_t n_done;
};

struct exec {
    struct fdk_ctx *ctx;
    fdk_stream_t stream;
    struct mdl_program *p;
    struct wts_plan *wp;
    char *arena;
    float **buf;
    float *inv_freq;
    struct step_host *dev;
    struct fdk_batch b;
    struct fdk_row *row;
    struct fdk_result *results;
    struct fdk_kv kv;
    void *scratch;
    size_t scratch_bytes;
};

static void *
dev_alloc(struct exec *x, size_t bytes)
{
    void *p;

    MUST(k->mem_alloc(x->ctx, td_dev(), bytes > 0 ? bytes : 1, &p));
    return p;
}

/* Synchronous. */
static void
copy(struct exec *x, void *dst, const void *src, size_t bytes)
{
    MUST(k->copy(x->stream, dst, src, bytes));
    MUST(k->stream_sync(x->stream));
}

/* ---- opening ---- */

static void
open_weights(struct exec *x, const char *dir)
{
    struct wts_load_args la = { .use_uring = 1, .buffer_bytes = 1 << 20 };
    struct mdl_config cfg;
    char err[1024];

    if (mdl_config_read(dir, &cfg, err, sizeof(err)) != 0 ||
        mdl_build(&cfg, 1, &x->p, err, sizeof(err)) != 0 ||
        wts_plan_new(dir, x->p, 0, 0, &x->wp, err, sizeof(err)) != 0) {
        fprintf(stderr, "%s\n", err);
        exit(1);
    }
    x->arena = dev_alloc(x, wts_bytes(x->wp));
    if (wts_load(x->wp, k, x->ctx, &(struct wts_at){ td_dev(), x->arena }, 1, &la, err,
            sizeof(err)) != 0) {
        fprintf(stderr, "%s\n", err);
        exit(1);
    }
}

static void
open_kv(struct exec *x, enum fdk_dtype dtype)
{
    const struct mdl_config *c = &x->p->cfg;
    struct fdk_kv *kv = &x->kv;

    kv->dtype = dtype;
    kv->block_size = BLOCK;
    kv->n_kv_head = c->n_kv_head;
    kv->head_dim = c->head_dim;
    kv->v_bytes = (uint64_t)c->n_kv_head * BLOCK * (uint64_t)c->head_dim *
        fdk_dtype_bytes(kv->dtype);
    kv->layer_bytes = 2 * kv->v_bytes;
    kv->block_bytes = (uint64_t)c->n_layer * kv->layer_bytes;
    kv->base = dev_alloc(x, N_BLOCK * kv->block_bytes);
    /* The content of unwritten slots must not matter. */
    MUST(k->fill(x->stream, kv->base, 0xff, N_BLOCK * kv->block_bytes));
}

static struct fdk_attention_args
attention_args(const struct exec *x, int32_t T)
{
    const struct mdl_config *c = &x->p->cfg;

    return (struct fdk_attention_args){ .b = &x->b,
        .kv = x->kv,
        .T = T,
        .H = c->n_head,
        .K = c->n_kv_head,
        .D = c->head_dim,
        .step_window = c->window,
        .work = x->dev->work,
        .n_work = &x->dev->n_work,
        .n_done = &x->dev->n_done,
        .n_work_max = MAX_TOK,
        .scratch = x->scratch,
        .scratch_bytes = x->scratch_bytes };
}

static struct exec *
exec_open(const char *dir, enum fdk_dtype kv_dtype)
{
    struct fdk_open_args oa = { .n_device = 1, .n_thread = 2, .max_token = MAX_TOK };
    struct exec *x = calloc(1, sizeof(*x));
    struct fdk_attention_args aa;
    struct fdk_sample_args sa;
    char err[512];
    size_t n;

    td_open(&oa);
    if (x == NULL || k->open(&oa, &x->ctx, err, sizeof(err)) != 0) {
        fprintf(stderr, "cpu backend: %s\n", x == NULL ? "no memory" : err);
        exit(1);
    }
    MUST(k->stream_new(x->ctx, td_dev(), &x->stream));
    open_weights(x, dir);
    open_kv(x, kv_dtype);
    x->buf = calloc((size_t)x->p->n_buf, sizeof(*x->buf));
    for (int32_t i = 0; i < x->p->n_buf; i++)
        x->buf[i] = dev_alloc(x, (size_t)x->p->buf[i].width * MAX_TOK * sizeof(float));
    x->inv_freq = dev_alloc(x, (size_t)x->p->n_freq * sizeof(float));
    copy(x, x->inv_freq, x->p->inv_freq, (size_t)x->p->n_freq * sizeof(float));
    x->dev = dev_alloc(x, sizeof(*x->dev));
    x->row = dev_alloc(x, (STATE + 1) * sizeof(*x->row));
    x->results = dev_alloc(x, MAX_TOK * sizeof(*x->results));
    x->b = (struct fdk_batch){ .n_tok = &x->dev->n_tok,
        .n_row = &x->dev->n_row,
        .n_out = &x->dev->n_out,
        .ids = x->dev->ids,
        .pos = x->dev->pos,
        .slot_map = x->dev->slot_map,
        .row = x->dev->row,
        .q_start = x->dev->q_start,
        .kv_len = x->dev->kv_len,
        .block_table = x->dev->block_table[0],
        .state = x->dev->state,
        .out = x->dev->out,
        .table_stride = MAX_TOK / BLOCK,
        .max_row = 1 };
    aa = attention_args(x, MAX_TOK);
    sa = (struct fdk_sample_args){ .b = &x->b, .R = MAX_TOK, .V = x->p->cfg.vocab };
    x->scratch_bytes = k->attention_scratch(x->ctx, &aa);
    n = k->sample_scratch(&sa);
    x->scratch_bytes = n > x->scratch_bytes ? n : x->scratch_bytes;
    x->scratch = dev_alloc(x, x->scratch_bytes);
    return x;
}

static void
exec_free(struct exec *x)
{
    void *const dev[] = { x->arena, x->kv.base, x->inv_freq, x->dev, x->row, x->results,
        x->scratch };

    MUST(k->stream_sync(x->stream));
    for (size_t i = 0; i < sizeof(dev) / sizeof(dev[0]); i++)
        k->mem_free(x->ctx, td_dev(), dev[i]);
    for (int32_t i = 0; i < x->p->n_buf; i++)
        k->mem_free(x->ctx, td_dev(), x->buf[i]);
    k->stream_free(x->stream);
    k->close(x->ctx);
    wts_plan_free(x->wp);
    mdl_free(x->p);
    free(x->buf);
    free(x);
}

/* ---- one step ---- */

static const void *
weight(const struct exec *x, int32_t i)
{
    return i < 0 ? NULL : x->arena + wts_offset(x->wp, i);
}

static const float *
scales(const struct exec *x, int32_t i)
{
    uint64_t at = wts_weight(x->wp, i).scale_at;

    return at == 0 ? NULL
                   : (const float *)(const void *)(x->arena + wts_offset(x->wp, i) + at);
}

static float *
buffer(const struct exec *x, int32_t i)
{
    return i < 0 ? NULL : x->buf[i];
}

static int
run_attention(struct exec *x, const struct mdl_op *op, int32_t T)
{
    struct fdk_attention_args a = attention_args(x, T);

    a.y = buffer(x, op->out);
    a.qkv = buffer(x, op->in);
    a.layer = op->layer;
    a.scale = op->f;
    a.window = op->window;
    a.softcap = op->softcap;
    if (op->layer == 0) {
        struct fdk_att_plan_args pa = { .work = x->dev->work,
            .n_work = &x->dev->n_work,
            .n_done = &x->dev->n_done,
            .b = &x->b,
            .n_max = MAX_TOK };

        k->att_shape(&a, &pa.a, &pa.bt);
        MUST(k->att_plan(&pa, x->stream));
    }
    return k->attention(&a, x->stream);
}

static int
run_qkv(struct exec *x, const struct mdl_op *op, int32_t T)
{
    const struct mdl_config *c = &x->p->cfg;
    struct fdk_qkv_args a = { .qkv = buffer(x, op->in),
        .q_norm = weight(x, op->w),
        .k_norm = weight(x, op->w2),
        .cs = buffer(x, op->in2),
        .b = &x->b,
        .kv = x->kv,
        .T = T,
        .H = c->n_head,
        .K = c->n_kv_head,
        .D = c->head_dim,
        .rot = op->in2 >= 0 ? x->p->rot : 0,
        .layer = op->layer,
        .eps = op->f,
        .norm_offset = c->norm_offset,
        .norm_all = c->qk_norm == MDL_QK_ALL,
        .interleaved = c->interleaved };

    return k->qkv(&a, x->stream);
}

static int
run_rope_table(struct exec *x, const struct mdl_op *op, int32_t T)
{
    struct fdk_rope_table_args a;

    mdl_rope_args(x->p, op, &a);
    a.cs = buffer(x, op->out);
    a.inv_freq = x->inv_freq + op->freq;
    a.state = x->row;
    a.b = &x->b;
    a.T = T;
    return k->rope_table(&a, x->stream);
}

static int
run_rmsnorm(struct exec *x, const struct mdl_op *op, int32_t rows, const int32_t *n)
{
    return k->rmsnorm(&(struct fdk_rmsnorm_args){ .y = buffer(x, op->out),
                          .x = buffer(x, op->in),
                          .add = buffer(x, op->in2),
                          .w = weight(x, op->w),
                          .n = n,
                          .T = rows,
                          .C = op->N,
                          .eps = op->f,
                          .offset = x->p->cfg.norm_offset,
                          .add_scale = op->scale,
                          .norm = op->norm },
        x->stream);
}

static int
run_op(struct exec *x, const struct mdl_op *op, int32_t T, int32_t O)
{
    int32_t rows = op->rows == MDL_PER_OUT ? O : T;
    const int32_t *n = op->rows == MDL_PER_OUT ? x->b.n_out : x->b.n_tok;
    float *in = buffer(x, op->in), *out = buffer(x, op->out);

    switch (op->kind) {
    case MDL_OP_EMBED:
        return k->embed(&(struct fdk_embed_args){ .y = out,
                            .w = weight(x, op->w),
                            .state = x->row,
                            .b = &x->b,
                            .T = T,
                            .C = op->K,
                            .V = op->N,
                            .w_dtype = wts_dtype(x->wp, op->w),
                            .scale = op->f },
            x->stream);
    case MDL_OP_ROPE_TABLE:
        return run_rope_table(x, op, T);
    case MDL_OP_RMSNORM:
        return run_rmsnorm(x, op, rows, n);
    case MDL_OP_GEMM:
    case MDL_OP_LOGITS:
        return k->gemm(&(struct fdk_gemm_args){ .y = out,
                           .x = in,
                           .w = weight(x, op->w),
                           .bias = weight(x, op->bias),
                           .n = n,
                           .T = rows,
                           .N = op->N,
                           .K = op->K,
                           .ldy = op->N,
                           .w_dtype = wts_dtype(x->wp, op->w),
                           .w_scale = scales(x, op->w),
                           .w_group = wts_weight(x->wp, op->w).group },
            x->stream);
    case MDL_OP_QKV:
        return run_qkv(x, op, T);
    case MDL_OP_ATTENTION:
        return run_attention(x, op, T);
    case MDL_OP_SILU_MUL:
        return k->silu_mul(&(struct fdk_silu_mul_args){ .y = out,
                               .gu = in,
                               .n = n,
                               .T = rows,
                               .F = op->N,
                               .gate = x->p->cfg.gate },
            x->stream);
    case MDL_OP_SOFTCAP:
        return k->softcap(&(struct fdk_softcap_args){ .y = in,
                              .n = n,
                              .T = rows,
                              .N = op->N,
                              .scale = op->scale,
                              .cap = op->softcap },
            x->stream);
    case MDL_OP_GATHER:
        return k->gather(
            &(struct fdk_gather_args){ .y = out, .x = in, .b = &x->b, .O = O, .C = op->N },
            x->stream);
    case MDL_OP_SAMPLE:
        return k->sample(&(struct fdk_sample_args){ .results = x->results,
                             .state = x->row,
                             .logits = in,
                             .b = &x->b,
                             .R = O,
                             .V = op->N,
                             .scratch = x->scratch,
                             .scratch_bytes = x->scratch_bytes },
            x->stream);
    default:
        return -ENOTSUP;
    }
}

/* Sets a fresh row state after a prompt of len tokens; the row ends at max_len tokens. */
static void
set_row(struct exec *x, int32_t len, int32_t max_len)
{
    struct fdk_row r = { .top_p = 1, .len = len, .max_len = max_len, .penalty = -1 };

    copy(x, &x->row[STATE], &r, sizeof(r));
}

/*
 * Runs one step of n tokens, ids[0..n), at positions from pos on; if ids is NULL, of one
 * token, the last sampled one. At its end only the operations of this tail run. res[i] is
 * the score of next[i] or, if next[i] < 0, a sampled token.
 */
static void
step(struct exec *x, enum mdl_tail tail, const int32_t *ids, const int32_t *next,
    int32_t n, int32_t pos, struct fdk_result *res)
{
    struct step_host *h = calloc(1, sizeof(*h));

    if (h == NULL)
        exit(1);
    h->n_tok = h->n_out = n;
    h->n_row = 1;
    for (int32_t i = 0; i < MAX_TOK / BLOCK; i++)
        h->block_table[STATE][i] = (i * 7 + 3) % N_BLOCK;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = pos + i;

        h->ids[i] = ids == NULL ? -1 : ids[i];
        h->pos[i] = at;
        h->slot_map[i] = h->block_table[STATE][at / BLOCK] * BLOCK + at % BLOCK;
        h->out[i] = (struct fdk_out){ .tok = i,
            .n_top = N_TOP,
            .pos = at + 1,
            .kind = next[i] < 0 ? FDK_OUT_SAMPLE : FDK_OUT_SCORE,
            .target = next[i] };
    }
    h->q_start[1] = n;
    h->kv_len[0] = pos + n;
    h->state[0] = STATE;
    copy(x, x->dev, h, sizeof(*h));
    for (int32_t i = 0; i < x->p->n_op; i++)
        if (mdl_op_runs(&x->p->op[i], tail))
            MUST(run_op(x, &x->p->op[i], n, n));
    copy(x, res, x->results, (size_t)n * sizeof(*res));
    free(h);
}

/* ---- the reference ---- */

struct line { /* p or g of reference.txt */
    int greedy, near_tie;
    int32_t pos, token;
    double logprob, gap, top[N_TOP];
    int32_t top_id[N_TOP];
};

struct ref_case {
    int32_t prompt[MAX_TOK], n_prompt;
    struct line line[MAX_TOK];
    int32_t n_line;
};

static int
parse_line(char *s, struct line *l)
{
    char *save = NULL, *w = strtok_r(s, " \n", &save);

    memset(l, 0, sizeof(*l));
    l->greedy = w[0] == 'g';
    if ((w = strtok_r(NULL, " \n", &save)) == NULL)
        return -1;
    l->pos = atoi(w);
    if ((w = strtok_r(NULL, " \n", &save)) == NULL)
        return -1;
    l->token = atoi(w);
    if ((w = strtok_r(NULL, " \n", &save)) == NULL)
        return -1;
    l->logprob = atof(w);
    if (l->greedy) {
        if ((w = strtok_r(NULL, " \n", &save)) == NULL)
            return -1;
        l->near_tie = w[0] == '~';
        l->gap = atof(w + l->near_tie);
    }
    for (int i = 0; i < N_TOP; i++)
        if ((w = strtok_r(NULL, " \n", &save)) == NULL ||
            sscanf(w, "%d:%lf", &l->top_id[i], &l->top[i]) != 2)
            return -1;
    return 0;
}

/* Reads the next case. Returns 1, 0 at the end, or -1 if the file is malformed. */
static int
read_case(FILE *f, struct ref_case *c)
{
    static char s[65536];
    char *save, *w;

    c->n_prompt = c->n_line = 0;
    while (fgets(s, sizeof(s), f) != NULL) {
        if (strncmp(s, "end", 3) == 0)
            return c->n_prompt > 0 && c->n_line >= c->n_prompt ? 1 : -1;
        if (strncmp(s, "prompt ", 7) == 0) {
            for (w = strtok_r(s + 7, " \n", &save); w != NULL;
                 w = strtok_r(NULL, " \n", &save))
                if (c->n_prompt < MAX_TOK)
                    c->prompt[c->n_prompt++] = atoi(w);
        } else if ((s[0] == 'p' || s[0] == 'g') && s[1] == ' ') {
            if (c->n_line == MAX_TOK || parse_line(s, &c->line[c->n_line++]) != 0)
                return -1;
        }
    }
    return c->n_prompt == 0 ? 0 : -1;
}

/* ---- comparing ---- */

struct score {
    double tol, worst;
    int n_bad, n_line, n_token;
};

static void
compare(const char *name, const struct line *l, const struct fdk_result *r, struct score *sc)
{
    double d = fabs(r->logprob - l->logprob);

    if (r->token == l->token)
        sc->worst = d > sc->worst ? d : sc->worst;
    for (int i = 0; i < N_TOP; i++) {
        double t = fabs(r->top_logprob[i] - l->top[i]);

        sc->worst = t > sc->worst ? t : sc->worst;
        d = t > d ? t : d;
        /* Two alternatives within the tolerance may be swapped. */
        if (r->top_id[i] != l->top_id[i] &&
            (i == 0 || l->top[i - 1] - l->top[i] > 2 * sc->tol) &&
            (i == N_TOP - 1 || l->top[i] - l->top[i + 1] > 2 * sc->tol) && i < N_TOP - 1)
            d = INFINITY;
    }
    sc->n_line++;
    if (!(d <= sc->tol) || r->bad || r->token != l->token) {
        sc->n_bad++;
        fprintf(stderr,
            "%s: position %d: token %d logprob %.7g, reference %d %.7g; worst "
            "difference %.3g\n",
            name, l->pos, r->token, r->logprob, l->token, l->logprob, d);
    }
}

/* Runs the prompt in chunks, then greedy steps; results by position - 1. */
static void
run_case(struct exec *x, enum mdl_tail tail, const struct ref_case *c, int32_t chunk,
    struct fdk_result *res)
{
    int32_t next[MAX_TOK], n, pos;

    for (int32_t i = 0; i < c->n_prompt; i++)
        next[i] = i + 1 < c->n_prompt ? c->prompt[i + 1] : -1;
    set_row(x, c->n_prompt, c->n_line + 1);
    for (pos = 0; pos < c->n_prompt; pos += n) {
        n = c->n_prompt - pos < chunk ? c->n_prompt - pos : chunk;
        step(x, tail, c->prompt + pos, next + pos, n, pos, res + pos);
    }
    for (; pos < c->n_line; pos++) {
        next[0] = -1;
        step(x, tail, NULL, next, 1, pos, res + pos);
    }
}

static void
check_case(struct exec *x, const char *name, const struct ref_case *c, struct score *sc)
{
    static const int32_t chunk[] = { MAX_TOK, 7, 64, 1 };
    struct fdk_result *a = calloc(MAX_TOK, sizeof(*a)), *b = calloc(MAX_TOK, sizeof(*b));

    if (a == NULL || b == NULL)
        exit(1);
    run_case(x, MDL_TAIL_TOKENS, c, chunk[0], a);
    for (int32_t i = 0; i < c->n_line; i++) {
        const struct line *l = &c->line[i];

        /* After a near-tie the two may differ, and both are right. */
        if (l->greedy && a[l->pos - 1].token != l->token &&
            (l->near_tie || l->gap < 2 * sc->tol))
            break;
        sc->n_token += l->greedy;
        compare(name, l, &a[l->pos - 1], sc);
        if (l->greedy && a[l->pos - 1].token != l->token)
            break;
    }
    /* The same bits for all chunk sizes, and with both tails. */
    for (size_t i = 0; i < sizeof(chunk) / sizeof(chunk[0]); i++) {
        run_case(x, i % 2 == 0 ? MDL_TAIL_OUTPUTS : MDL_TAIL_TOKENS, c, chunk[i], b);
        for (int32_t j = 0; j < c->n_line; j++) {
            if (a[j].token == b[j].token &&
                memcmp(&a[j].logprob, &b[j].logprob, sizeof(float)) == 0 &&
                memcmp(a[j].top_logprob, b[j].top_logprob, N_TOP * sizeof(float)) == 0)
                continue;
            fprintf(stderr,
                "%s: position %d differs in chunks of %d: %d %.9g, whole %d %.9g\n", name,
                j + 1, chunk[i], b[j].token, b[j].logprob, a[j].token, a[j].logprob);
            sc->n_bad++;
            break;
        }
    }
    free(a);
    free(b);
}

static int
check_kv(const char *dir, const char *ref, enum fdk_dtype kv_dtype, int *ret_half)
{
    struct score sc = { .tol = kv_dtype == FDK_F32 ? TOL_F32 : TOL_BF16 };
    struct ref_case *c = calloc(1, sizeof(*c));
    const char *name = strrchr(dir, '/') != NULL ? strrchr(dir, '/') + 1 : dir;
    FILE *f = fopen(ref, "r");
    struct exec *x;
    int rc, n_case = 0;

    if (f == NULL || c == NULL) {
        fprintf(stderr, "%s: %s\n", ref, strerror(errno));
        exit(1);
    }
    x = exec_open(dir, kv_dtype);
    while ((rc = read_case(f, c)) == 1) {
        check_case(x, name, c, &sc);
        n_case++;
    }
    fclose(f);
    if (rc != 0 || n_case == 0) {
        fprintf(stderr, "%s: not a reference file, or an empty one\n", ref);
        sc.n_bad++;
    }
    printf("%s: %s, weights %s, KV %s: %d cases, %d positions, %d greedy tokens, worst "
           "difference %.2g of %g\n",
        sc.n_bad == 0 ? "PASS" : "FAIL", name, fdk_dtype_name(wts_main_dtype(x->wp)),
        fdk_dtype_name(x->kv.dtype), n_case, sc.n_line, sc.n_token, sc.worst, sc.tol);
    *ret_half = wts_main_dtype(x->wp) != FDK_F32;
    exec_free(x);
    free(c);
    return sc.n_bad != 0;
}

/* With an fp32 KV cache the numbers equal the reference's for all types of weights;
 * models with 16-bit weights use bf16 by default. */
static int
check_dir(const char *dir, const char *ref)
{
    int half, unused, bad = check_kv(dir, ref, FDK_F32, &half);

    if (half)
        bad |= check_kv(dir, ref, FDK_BF16, &unused);
    return bad;
}

int
main(int argc, char **argv)
{
    const char *src = getenv("srcdir");
    char path[4096];
    int bad = 0;
    glob_t g;

    if (argc > 1) {
        snprintf(path, sizeof(path), "%s/reference.txt", argv[1]);
        return check_dir(argv[1], argc > 2 ? argv[2] : path);
    }
    snprintf(path, sizeof(path), "%s/tests/parity/models/*/config.json",
        src != NULL ? src : ".");
    if (glob(path, 0, NULL, &g) != 0 || g.gl_pathc < 8) {
        fprintf(stderr, "%s: fewer than 8 models; set srcdir\n", path);
        return 1;
    }
    for (size_t i = 0; i < g.gl_pathc; i++) {
        *strrchr(g.gl_pathv[i], '/') = '\0';
        snprintf(path, sizeof(path), "%s/reference.txt", g.gl_pathv[i]);
        bad |= check_dir(g.gl_pathv[i], path);
    }
    globfree(&g);
    /* the shipped model */
    char demo[4096];
    snprintf(demo, sizeof(demo), "%s/conf/models/demo", src != NULL ? src : ".");
    snprintf(path, sizeof(path), "%s/tests/parity/demo.txt", src != NULL ? src : ".");
    return bad | check_dir(demo, path);
}
