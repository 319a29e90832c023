/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdd-worker --check: the plan for a model's folder, and its tokenizer, without a
 * device.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sysexits.h>

#include "daemon/worker/model_priv.h"
#include "daemon/worker/tokenizer.h"

static int
exit_status(int rc)
{
    switch (rc) {
    case -ENOENT:
    case -ENOTDIR:
        return EX_NOINPUT;
    case -EACCES:
        return EX_NOPERM;
    case -EIO:
        return EX_IOERR;
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
        return EX_OSERR;
    default:
        return EX_DATAERR;
    }
}

static void
report(FILE *out, const struct mdl_program *p, const struct wts_plan *wp,
    const struct tok *tok)
{
    static const char *const
        dtype[] = { [FDK_F32] = "F32", [FDK_F16] = "F16", [FDK_BF16] = "BF16", [FDK_F8E4M3] = "F8_E4M3" };
    const struct mdl_config *c = &p->cfg;
    uint64_t bytes = 0;

    for (int32_t i = 0; i < wp->n_file; i++)
        bytes += (uint64_t)wp->file[i].size;
    fprintf(out, "model       %s (%s)\n", c->family, c->architecture);
    fprintf(out, "layers      %d, hidden %d, ffn %d\n", c->n_layer, c->hidden, c->ffn);
    fprintf(out, "heads       %d query, %d kv, head_dim %d\n", c->n_head, c->n_kv_head,
        c->head_dim);
    fprintf(out, "vocabulary  %d, head %s\n", c->vocab, c->tied ? "tied" : "of its own");
    fprintf(out, "context     %d tokens, rope %s, theta %g\n", c->max_pos,
        mdl_rope_name(c->rope), c->rope_theta);
    fprintf(out, "parameters  %llu\n", (unsigned long long)mdl_n_param(p));
    fprintf(out, "weights     %s, %llu bytes in memory\n", dtype[wp->main_dtype],
        (unsigned long long)wp->bytes);
    if (c->quant != MDL_QUANT_NONE)
        fprintf(out, "quantized   %s\n", mdl_quant_name(c->quant));
    fprintf(out, "files       %d, %llu bytes, %zu tensors\n", wp->n_file,
        (unsigned long long)bytes, wp->n_tensor);
    if (tok != NULL)
        fprintf(out, "tokenizer   ids below %u\n", (unsigned)tok_vocab_size(tok));
    else
        fprintf(out, "tokenizer   none (requests by token ids only)\n");
    if (wp->n_kv_scale > 0)
        fprintf(out, "KV scales   %d tensors, for kv.dtype = fp8\n", wp->n_kv_scale);
    if (c->ignored[0] != '\0')
        fprintf(out, "fields      without use: %s\n", c->ignored);
    if (wp->ignored != NULL)
        fprintf(out, "ignored     %s\n", wp->ignored);
    fprintf(out, "ok\n");
}

static int
check_kv_scales(const struct wts_plan *wp, const struct mdl_program *p, char *err,
    size_t err_bytes)
{
    size_t n = 2 * (size_t)p->cfg.n_layer * (size_t)p->cfg.n_kv_head;
    float *scale = calloc(n, sizeof(*scale));
    int rc = -ENOMEM;

    if (scale == NULL)
        return mdl_fail(rc, err, err_bytes, "W_IO: no memory");
    rc = wts_kv_scales(wp, p, scale, err, err_bytes);
    free(scale);
    return rc;
}

int
wts_check_dir(const char *dir, FILE *out)
{
    struct mdl_program *p = NULL;
    struct wts_plan *wp = NULL;
    struct tok *tok = NULL;
    struct mdl_config cfg;
    char err[1024];
    int rc;

    rc = mdl_config_read(dir, &cfg, err, sizeof(err));
    if (rc == 0)
        rc = mdl_build(&cfg, 1, &p, err, sizeof(err));
    if (rc == 0)
        rc = wts_plan_new(dir, p, 0, 0, &wp, err, sizeof(err));
    if (rc == 0)
        rc = check_kv_scales(wp, p, err, sizeof(err));
    if (rc == 0) {
        rc = tok_load_for(dir, cfg.vocab, &tok, err, sizeof(err));
        rc = rc == -ENOENT ? 0 : rc;
    }
    if (rc == 0)
        report(out, p, wp, tok);
    else
        fprintf(out, "%s\n", err);
    tok_free(tok);
    wts_plan_free(wp);
    mdl_free(p);
    return rc == 0 ? EX_OK : exit_status(rc);
}
