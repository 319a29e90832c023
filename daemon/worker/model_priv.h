/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the model and weights modules and their tests:
 * reading small files of a model directory, and fields of config.json.
 */
#ifndef FDD_DAEMON_WORKER_MODEL_PRIV_H
#define FDD_DAEMON_WORKER_MODEL_PRIV_H

#include <jansson.h>

#include "daemon/worker/model.h"

extern const struct mdl_family mdl_ernie4_5, mdl_gemma2, mdl_gemma3, mdl_gemma3_text,
    mdl_glm, mdl_glm4, mdl_granite, mdl_llama, mdl_mistral, mdl_olmo2, mdl_olmo3,
    mdl_phi3, mdl_qwen2, mdl_qwen3, mdl_smollm3;

#define MDL_MAX_CONFIG_BYTES (1u << 20)
/* A number beyond this is refused wherever it stands: keeps float math finite. */
#define MDL_MAX_REAL 1e15

/* ---- model_file.c --------------------------------------------------------------- */

/* err = the formatted line, cut to err_bytes. Returns rc. */
__attribute__((format(printf, 4, 5))) int
mdl_fail(int rc, char *err, size_t err_bytes, const char *fmt, ...);

/* Copy text for a message: control bytes and bytes over 126 become '?', and
 * what exceeds n - 1 bytes is cut with "...". Returns dst. */
char *mdl_printable(char *dst, size_t n, const char *text, size_t text_n);

/* Open a regular file of a model directory for reading. Returns the
 * descriptor or -errno; err says which path failed, why, and what helps. */
int mdl_open_file(const char *dir, const char *name, char *err, size_t err_bytes);

/* Read a whole file of at most max bytes. *ret is NUL ended and the
 * caller's to free. -EFBIG when larger. */
int mdl_read_file(const char *dir, const char *name, size_t max, char **ret,
    size_t *ret_n, char *err, size_t err_bytes);

/* ---- model_json.c --------------------------------------------------------------- */

/*
 * Fields of a JSON object. A field that is absent or null leaves *ret as it
 * was and returns 0; one that is there and not as wanted returns -EINVAL
 * with a line "FILE: FIELD = VALUE is not ..." in err.
 */
struct mdl_json {
    const json_t *o;
    const char *file;   /* for messages: "config.json" */
    const char *prefix; /* of the field's name: "", "rope_scaling." */
    char *err;
    size_t err_bytes;
};
/* NULL: absent or null. */
const json_t *mdl_json_field(const struct mdl_json *j, const char *key);
/* -EINVAL, "FILE: FIELD is missing". */
int mdl_json_must_have(const struct mdl_json *j, const char *key);
int mdl_json_has(const struct mdl_json *j, const char *key);
int mdl_json_i32(const struct mdl_json *j, const char *key, int32_t min, int32_t max,
    int32_t *ret);
/* min < value <= max */
int mdl_json_real(const struct mdl_json *j, const char *key, double min, double max,
    double *ret);
int mdl_json_bool(const struct mdl_json *j, const char *key, int *ret);
/* *ret borrows from the document. */
int mdl_json_str(const struct mdl_json *j, const char *key, const char **ret);
/* -EINVAL, "FILE: FIELD = VALUE WHY". */
int mdl_json_refuse(const struct mdl_json *j, const char *key, const char *why);

/* ---- parts of mdl_config_read() and mdl_build() ---------------------------------- */

/* model_quant.c: cfg->quant from quantization_config. -EINVAL: a checkpoint that
 * is quantized in a way that is not supported. */
int mdl_quant_read(const struct mdl_json *j, struct mdl_config *cfg);
/* model_rope.c: rope_*, rot and max_pos of a cfg that has its other lengths. */
int
mdl_rope_read(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c);
/* inv_freq, n_freq, rot and rope_scale of a program that has its cfg. -EDOM: not finite;
 * -ENOMEM. */
int mdl_rope_freqs(struct mdl_program *p);
/* model_fields.c: is it a field of the family's own? */
int mdl_fields_reads(const struct mdl_family *f, const char *key);
/* -EINVAL for a field that is not read and would change results; the other ones that are
 * not read to c->ignored. */
int mdl_fields_check(const struct mdl_json *j, const struct mdl_family *f,
    struct mdl_config *c);
/* The same of the fields around a nested object (mdl_family.nested), but for those taken. */
int mdl_fields_check_parent(const struct mdl_json *j, const struct mdl_family *f,
    const char *const *taken, struct mdl_config *c);
/* model_shard.c: n_rank, kv_split, n_split and what a rank has. -EINVAL: the model cannot be
 * split so. */
int mdl_set_ranks(struct mdl_program *p, const struct mdl_ranks *ranks, char *err,
    size_t err_bytes);
/* model_kv.c: the KV groups of a program that has its operations. -ENOTSUP: too many kinds
 * of attention layers. */
int mdl_set_kv_groups(struct mdl_program *p);
/* From which operation to which each buffer is alive. */
void mdl_set_lives(struct mdl_program *p);

#endif
