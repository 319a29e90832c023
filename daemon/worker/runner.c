#include "config.h"

#include "daemon/worker/runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

/* Changed table rows go up in one copy while it stays below this. */
#define RUN_TABLE_COPY (64u << 10)

/* ---- opening ---------------------------------------------------------------------- */

static int
run_backend(const char *name, const struct fdk_ops **ret, char *err, size_t err_bytes)
{
    static const struct fdk_ops *const all[] = {
        &fdk_ops_cpu, &fdk_ops_cuda, &fdk_ops_null
    };
    char why[256] = "";

    if (strcmp(name, "auto") == 0) {
        *ret = fdk_ops_cuda.available(why, sizeof(why)) > 0 ? &fdk_ops_cuda : &fdk_ops_cpu;
        if (*ret == &fdk_ops_cpu)
            log_info("runner: device.backend = auto takes the cpu: %s", why);
        return 0;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(name, all[i]->name) != 0)
            continue;
        if (all[i]->available(why, sizeof(why)) <= 0) {
            (void)snprintf(err, err_bytes, "device.backend = %s: %s", name,
                why[0] != '\0' ? why : "no device; set device.backend = cpu");
            return -ENODEV;
        }
        *ret = all[i];
        return 0;
    }
    (void)snprintf(err, err_bytes, "device.backend = %s is not a backend", name);
    return -ENOTSUP;
}

int
run_new(const struct run_open_args *a, struct runner **ret, char *err, size_t err_bytes)
{
    struct fdk_open_args oa = { .n_device = 1, .n_thread = a->n_thread,
        .max_token = a->max_token, .spin_us = a->spin_us };
    const struct fdk_ops *k;
    struct runner *run;
    int rc = run_backend(a->backend, &k, err, err_bytes);

    if (rc != 0)
        return rc;
    OBJ_ALLOC(run, RUN_MAGIC);
    if (run == NULL) {
        (void)snprintf(err, err_bytes, "out of memory");
        return -ENOMEM;
    }
    run->k = k;
    rc = k->open(&oa, &run->ctx, err, err_bytes);
    if (rc == 0) {
        rc = k->stream_new(run->ctx, 0, &run->stream);
        if (rc != 0)
            (void)snprintf(err, err_bytes, "%s: no stream: %s", k->name, strerror(-rc));
    }
    if (rc != 0) {
        (void)run_free(run);
        return rc == -ENOMEM ? rc : -ENODEV;
    }
    *ret = run;
    return 0;
}

uint64_t
run_mem_free(const struct runner *run)
{
    struct fdk_device_info di;

    return run->k->device_info(run->ctx, 0, &di) == 0 ? di.mem_free : 0;
}

const char *
run_error(const struct runner *run)
{
    const char *t = run->k->error_text(run->ctx, 0);

    return t != NULL ? t : "unknown";
}

static void
run_dev_free(struct runner *run, void *p)
{
    if (p != NULL)
        run->k->mem_free(run->ctx, 0, p);
}

static void
run_free_recs(struct runner *run)
{
    for (int32_t i = 0; run->rec != NULL && i < run->n_rec; i++) {
        struct bat_rec *rec = &run->rec[i];

        if (rec->plan != NULL)
            run->k->host_free(run->ctx, rec->plan);
        if (rec->results != NULL)
            run->k->host_free(run->ctx, rec->results);
        if (rec->ev != NULL)
            run->k->event_free(rec->ev);
        if (run->ev_begin != NULL && run->ev_begin[i] != NULL)
            run->k->event_free(run->ev_begin[i]);
        free(rec->outs);
    }
    free(run->rec);
    free(run->ev_begin);
}

struct runner *
run_free(struct runner *run)
{
    if (run == NULL)
        return NULL;
    OBJ_CHECK(run, RUN_MAGIC);
    if (run->stream != NULL)
        (void)run->k->stream_sync(run->stream);
    run_free_recs(run);
    for (int32_t i = 0; run->pad != NULL && i < run->n_pad; i++)
        if (run->pad[i].graph != NULL)
            run->k->graph_free(run->pad[i].graph);
    free(run->pad);
    free(run->op);
    if (run->ctx != NULL) {
        run_dev_free(run, run->d_kv);
        run_dev_free(run, run->d_results);
        run_dev_free(run, run->d_plan);
        run_dev_free(run, run->d_state);
        run_dev_free(run, run->d_scratch);
        run_dev_free(run, run->d_act);
        run_dev_free(run, run->d_inv_freq);
        run_dev_free(run, run->d_weights);
        if (run->stream != NULL)
            run->k->stream_free(run->stream);
        run->k->close(run->ctx);
    }
    OBJ_FREE(run, RUN_MAGIC);
    return NULL;
}

/* ---- loading ------------------------------------------------------------------------- */

static int
run_dev_alloc(struct runner *run, const char *what, uint64_t bytes, void *ret_p, char *err,
    size_t err_bytes)
{
    void *p = NULL;
    int rc = bytes > SIZE_MAX / 2 ? -ENOMEM :
        run->k->mem_alloc(run->ctx, 0, bytes != 0 ? (size_t)bytes : 1, &p);

    if (rc != 0) {
        (void)snprintf(err, err_bytes, "%s: no memory for %s (%llu MiB, %llu MiB free)",
            run->k->name, what, (unsigned long long)(bytes >> 20),
            (unsigned long long)(run_mem_free(run) >> 20));
        return rc;
    }
    memcpy(ret_p, &p, sizeof(p));
    return 0;
}

int
run_load(struct runner *run, struct mdl_program *prog, const struct wts_plan *wp,
    const struct wts_load_args *la, char *err, size_t err_bytes)
{
    size_t n = (size_t)(prog->rot / 2) * sizeof(float);
    int rc;

    OBJ_CHECK(run, RUN_MAGIC);
    run->prog = prog;
    run->wp = wp;
    if (wp != NULL) {
        run->mem.weights = wts_bytes(wp);
        rc = run_dev_alloc(run, "weights", run->mem.weights, &run->d_weights, err, err_bytes);
        if (rc == 0)
            rc = wts_load(wp, run->k, run->ctx, 0, run->d_weights, la, err, err_bytes);
        if (rc != 0)
            return rc;
    }
    rc = run_dev_alloc(run, "rope frequencies", n, &run->d_inv_freq, err, err_bytes);
    if (rc == 0 && n > 0)
        rc = run->k->copy(run->stream, run->d_inv_freq, prog->inv_freq, n);
    if (rc == 0)
        rc = run->k->stream_sync(run->stream);
    return rc;
}

static int
run_setup_recs(struct runner *run, int32_t n_rec)
{
    int rc = 0;

    run->rec = mem_array((size_t)n_rec, sizeof(*run->rec));
    run->ev_begin = mem_array((size_t)n_rec, sizeof(*run->ev_begin));
    if (run->rec == NULL || run->ev_begin == NULL)
        return -ENOMEM;
    run->n_rec = n_rec;
    for (int32_t i = 0; i < n_rec && rc == 0; i++) {
        struct bat_rec *rec = &run->rec[i];
        void *p = NULL;

        rec->outs = mem_array((size_t)run->dims.O, sizeof(*rec->outs));
        if (rec->outs == NULL)
            return -ENOMEM;
        rc = run->k->host_alloc(run->ctx, run->layout.bytes, &p);
        rec->plan = p;
        if (rc == 0) {
            memset(p, 0, run->layout.bytes);
            p = NULL;
            rc = run->k->host_alloc(run->ctx, (size_t)run->dims.O *
                sizeof(struct fdk_result), &p);
            rec->results = p;
        }
        if (rc == 0)
            rc = run->k->event_new(run->ctx, 0, &rec->ev);
        if (rc == 0)
            rc = run->k->event_new(run->ctx, 0, &run->ev_begin[i]);
    }
    return rc;
}

static int
run_setup_pads(struct runner *run)
{
    int32_t n = 0;

    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (int32_t t = 1; t <= run->dims.T; t++) {
            int32_t T = bat_pad(t, run->dims.T);

            if (pass == 1) {
                struct run_pad *pad = &run->pad[n];

                pad->T = T;
                pad->S = bat_pad_rows(&run->dims, T);
                pad->O = bat_pad_outs(&run->dims, T);
                bat_view(&run->dims, &run->layout, run->d_plan, &pad->b);
                pad->b.max_row = pad->S;
            }
            n++;
            t = T;
        }
        if (pass == 0) {
            run->pad = mem_array((size_t)n, sizeof(*run->pad));
            if (run->pad == NULL)
                return -ENOMEM;
        }
    }
    run->n_pad = n;
    return 0;
}

static int
run_setup_memory(struct runner *run, int32_t n_block, char *err, size_t err_bytes)
{
    const struct bat_dims *d = &run->dims;
    int rc;

    run->mem.kv = (uint64_t)n_block * run->kv.block_bytes;
    run->mem.state = ((uint64_t)d->S + 1) * sizeof(struct fdk_row);
    run->mem.plan = run->layout.bytes + (uint64_t)d->O * sizeof(struct fdk_result);
    rc = run_dev_alloc(run, "the KV cache", run->mem.kv, &run->d_kv, err, err_bytes);
    if (rc == 0)
        rc = run_dev_alloc(run, "row states", run->mem.state, &run->d_state, err, err_bytes);
    if (rc == 0)
        rc = run_dev_alloc(run, "the step plan", run->layout.bytes, &run->d_plan, err,
            err_bytes);
    if (rc == 0)
        rc = run_dev_alloc(run, "results", (uint64_t)d->O * sizeof(struct fdk_result),
            &run->d_results, err, err_bytes);
    if (rc == 0)
        rc = run->k->fill(run->stream, run->d_state, 0, (size_t)run->mem.state);
    if (rc == 0)
        rc = run->k->fill(run->stream, run->d_plan, 0, run->layout.bytes);
    /* the dummy block must hold numbers */
    if (rc == 0)
        rc = run->k->fill(run->stream, run->d_kv, 0, (size_t)run->kv.block_bytes);
    run->kv.base = run->d_kv;
    return rc;
}

static int
run_setup_program(struct runner *run, char *err, size_t err_bytes)
{
    size_t *off = mem_array((size_t)run->prog->n_buf, sizeof(*off)), bytes = 0;
    int rc = -ENOMEM;

    if (off == NULL)
        return rc;
    rc = run_place(run->prog, &run->dims, run->R, off, &bytes);
    run->mem.activations = bytes;
    if (rc == 0)
        rc = run_dev_alloc(run, "activations", bytes, &run->d_act, err, err_bytes);
    if (rc == 0)
        rc = run_bind(run, off);
    free(off);
    if (rc != 0)
        return rc;
    run->mem.scratch = run_scratch_bytes(run);
    rc = run_dev_alloc(run, "scratch", run->mem.scratch, &run->d_scratch, err, err_bytes);
    for (int32_t i = 0; i < run->prog->n_op && rc == 0; i++) {
        struct run_op *op = &run->op[i];

        if (op->kind == MDL_OP_ATTENTION) {
            op->att.scratch = run->d_scratch;
            op->att.scratch_bytes = (size_t)run->mem.scratch;
        } else if (op->kind == MDL_OP_SAMPLE) {
            op->sample.scratch = run->d_scratch;
            op->sample.scratch_bytes = (size_t)run->mem.scratch;
        }
    }
    return rc;
}

int
run_setup(struct runner *run, const struct bat_dims *dims, const struct fdk_kv *kv,
    int32_t n_block, int32_t n_rec, int use_graph, char *err, size_t err_bytes)
{
    uint64_t row = (uint64_t)run->prog->cfg.vocab * sizeof(float);
    int rc;

    OBJ_CHECK(run, RUN_MAGIC);
    err[0] = '\0';
    run->dims = *dims;
    run->kv = *kv;
    run->use_graph = use_graph;
    bat_layout(dims, &run->layout);
    run->R = (int32_t)(RUN_LOGITS_BYTES / row);
    if (run->R < 1)
        run->R = 1;
    if (run->R > dims->O)
        run->R = dims->O;
    rc = run_setup_memory(run, n_block, err, err_bytes);
    if (rc == 0)
        rc = run_setup_pads(run);
    if (rc == 0)
        rc = run_setup_program(run, err, err_bytes);
    if (rc == 0)
        rc = run_setup_recs(run, n_rec);
    if (rc == 0)
        rc = run->k->stream_sync(run->stream);
    if (rc != 0 && err[0] == '\0')
        (void)snprintf(err, err_bytes, "%s: cannot set up the runner: %s", run->k->name,
            strerror(-rc));
    return rc;
}

/* ---- graphs ------------------------------------------------------------------------------ */

static struct run_pad *
run_pad_of(struct runner *run, int32_t T_pad)
{
    int32_t lo = 0, hi = run->n_pad - 1;

    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;

        if (run->pad[mid].T < T_pad)
            lo = mid + 1;
        else
            hi = mid;
    }
    ASSERT(run->pad[lo].T == T_pad);
    return &run->pad[lo];
}

static int
run_record(struct runner *run, struct run_pad *pad)
{
    int rc, rc2;

    rc = run->k->graph_begin(run->stream);
    if (rc == -ENOTSUP) {
        run->use_graph = 0;
        return 0;
    }
    if (rc != 0)
        return rc;
    rc = run_program(run, pad);
    rc2 = run->k->graph_end(run->stream, &pad->graph);
    return rc != 0 ? rc : rc2;
}

int
run_warm(struct runner *run, int32_t max_tokens)
{
    for (int32_t i = 0; i < run->n_pad && run->use_graph; i++) {
        int rc;

        if (run->pad[i].T > max_tokens)
            break;
        rc = run->pad[i].graph == NULL ? run_record(run, &run->pad[i]) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- steps -------------------------------------------------------------------------------- */

static int
run_upload(struct runner *run, const struct bat_rec *rec, size_t off, size_t bytes)
{
    return bytes == 0 ? 0 :
        run->k->copy(run->stream, run->d_plan + off, rec->plan + off, bytes);
}

static int
run_upload_tables(struct runner *run, const struct bat_rec *rec)
{
    size_t row = (size_t)run->dims.stride * sizeof(int32_t);
    size_t n = (size_t)(rec->table_hi - rec->table_lo);
    int rc = 0;

    if (n * row <= RUN_TABLE_COPY)
        return run_upload(run, rec, run->layout.table + (size_t)rec->table_lo * row, n * row);
    for (int32_t r = rec->table_lo; r < rec->table_hi && rc == 0; r++) {
        const int32_t *kv_len = (const int32_t *)(rec->plan + run->layout.kv_len);
        size_t n_block = ((size_t)kv_len[r] + (size_t)run->dims.block_size - 1) /
            (size_t)run->dims.block_size;

        rc = run_upload(run, rec, run->layout.table + (size_t)r * row,
            n_block * sizeof(int32_t));
    }
    return rc;
}

static int
run_upload_updates(struct runner *run, const struct bat_rec *rec)
{
    size_t n = (size_t)rec->n_update;
    struct fdk_row_update_args ua = {
        .state = run->d_state,
        .rows = (const struct fdk_row *)(run->d_plan + run->layout.upd_rows),
        .idx = (const int32_t *)(run->d_plan + run->layout.upd_idx),
        .n = (const int32_t *)(run->d_plan + run->layout.counts) + 3,
        .n_max = rec->n_update
    };
    int rc = run_upload(run, rec, run->layout.upd_idx, n * sizeof(int32_t));

    if (rc == 0)
        rc = run_upload(run, rec, run->layout.upd_rows, n * sizeof(struct fdk_row));
    return rc != 0 ? rc : run->k->row_update(&ua, run->stream);
}

static int
run_upload_plan(struct runner *run, const struct bat_rec *rec)
{
    const struct bat_layout *l = &run->layout;
    size_t head = l->out + (size_t)rec->n_out * sizeof(struct fdk_out);
    size_t tok = (size_t)rec->T_pad * sizeof(int32_t);
    int rc = run_upload(run, rec, l->counts, head);

    if (rc == 0)
        rc = run_upload(run, rec, l->ids, tok);
    if (rc == 0)
        rc = run_upload(run, rec, l->pos, tok);
    if (rc == 0)
        rc = run_upload(run, rec, l->slot_map, tok);
    if (rc == 0)
        rc = run_upload(run, rec, l->row, tok);
    if (rc == 0 && rec->table_hi > rec->table_lo)
        rc = run_upload_tables(run, rec);
    if (rc == 0 && rec->n_update > 0)
        rc = run_upload_updates(run, rec);
    return rc;
}

int
run_launch(struct runner *run, struct bat_rec *rec)
{
    struct run_pad *pad = run_pad_of(run, rec->T_pad);
    int rc = run->k->event_record(run->ev_begin[rec - run->rec], run->stream);

    if (rc == 0)
        rc = run_upload_plan(run, rec);
    if (rc == 0 && run->use_graph && pad->graph == NULL)
        rc = run_record(run, pad);
    if (rc == 0)
        rc = pad->graph != NULL && run->use_graph ?
            run->k->graph_launch(pad->graph, run->stream) : run_program(run, pad);
    if (rc == 0 && rec->n_out > 0)
        rc = run->k->copy(run->stream, rec->results, run->d_results,
            (size_t)rec->n_out * sizeof(struct fdk_result));
    return rc != 0 ? rc : run->k->event_record(rec->ev, run->stream);
}

int
run_collect(struct runner *run, struct bat_rec *rec, uint64_t *ret_model_ns)
{
    int rc = run->k->event_sync(rec->ev);
    uint64_t t0, t1;

    if (rc != 0)
        return rc;
    t0 = run->k->event_ns(run->ev_begin[rec - run->rec]);
    t1 = run->k->event_ns(rec->ev);
    *ret_model_ns = t1 > t0 ? t1 - t0 : 0;
    return 0;
}
