/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/model_priv.h"

const struct mdl_family *const mdl_families[] = {
    &mdl_ernie4_5,
    &mdl_gemma2,
    &mdl_gemma3,
    &mdl_gemma3_text,
    &mdl_glm,
    &mdl_glm4,
    &mdl_granite,
    &mdl_llama,
    &mdl_mistral,
    &mdl_olmo2,
    &mdl_olmo3,
    &mdl_phi3,
    &mdl_qwen2,
    &mdl_qwen3,
    &mdl_smollm3,
    NULL,
};

const struct mdl_family *
mdl_family(const char *name)
{
    for (int i = 0; mdl_families[i] != NULL; i++)
        if (strcmp(mdl_families[i]->name, name) == 0)
            return mdl_families[i];
    return NULL;
}

int
mdl_build_ranks(const struct mdl_config *cfg, const struct mdl_ranks *ranks,
    struct mdl_program **ret, char *err, size_t err_bytes)
{
    const struct mdl_family *f = mdl_family(cfg->family);
    struct mdl_program *p;
    int rc = -EINVAL;

    if (f == NULL)
        return mdl_fail(-EINVAL, err, err_bytes, "no model family is named %.32s",
            cfg->family);
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "no memory for the model's program");
    p->cfg = *cfg;
    p->names = f->names;
    p->n_copy = ranks->n_copy;
    if (mdl_set_ranks(p, ranks, err, err_bytes) != 0) {
        mdl_free(p);
        return -EINVAL;
    }
    rc = mdl_rope_freqs(p);
    if (rc == 0)
        rc = f->build(p);
    if (rc == 0)
        rc = mdl_set_kv_groups(p);
    if (rc != 0) {
        mdl_free(p);
        if (rc == -EDOM)
            return mdl_fail(-EINVAL, err, err_bytes,
                "config.json: rope_theta = %g and factor = %g give infinite frequencies",
                cfg->rope_theta, cfg->rope_factor);
        return mdl_fail(rc, err, err_bytes, "model program: %s", strerror(-rc));
    }
    mdl_set_lives(p);
    *ret = p;
    return 0;
}

int
mdl_build(const struct mdl_config *cfg, int32_t n_rank, struct mdl_program **ret,
    char *err, size_t err_bytes)
{
    const struct mdl_ranks ranks = { .n = n_rank, .n_copy = 1, .kv_split = 1, .n_split = 1 };

    return mdl_build_ranks(cfg, &ranks, ret, err, err_bytes);
}

int
mdl_build_reference(const struct mdl_config *cfg, int32_t n_split,
    struct mdl_program **ret, char *err, size_t err_bytes)
{
    const struct mdl_ranks ranks = { .n = 1, .n_copy = 1, .kv_split = 1, .n_split = n_split };

    return mdl_build_ranks(cfg, &ranks, ret, err, err_bytes);
}
