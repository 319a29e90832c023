/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions shared by the model and weights modules and their tests: reading
 * small files of a model directory, and fields of config.json.
 */
#ifndef FDD_DAEMON_WORKER_MODEL_PRIV_H
#define FDD_DAEMON_WORKER_MODEL_PRIV_H

#include <jansson.h>

#include "daemon/worker/model.h"

extern const struct mdl_family mdl_ernie4_5, mdl_gemma2, mdl_gemma3, mdl_gemma3_text,
    mdl_glm, mdl_glm4, mdl_granite, mdl_llama, mdl_mistral, mdl_olmo2, mdl_olmo3,
    mdl_phi3, mdl_qwen2, mdl_qwen3, mdl_smollm3;

#define MDL_MAX_CONFIG_BYTES (1u << 20)
/* Upper bound of any number in a file; it keeps float arithmetic finite. */
#define MDL_MAX_REAL 1e15

/* ---- model_file.c --------------------------------------------------------------- */

/* Write the formatted line to err, cut to err_bytes. Returns rc. */
__attribute__((format(printf, 4, 5))) int
mdl_fail(int rc, char *err, size_t err_bytes, const char *fmt, ...);

/* Copy text for a message: control bytes and bytes over 126 become '?', and text
 * longer than n - 1 bytes is cut and ends in "...". Returns dst. */
char *mdl_printable(char *dst, size_t n, const char *text, size_t text_n);

/* Open a regular file of a model directory for reading. Returns the
 * descriptor or -errno; err names the path, the cause and a fix. */
int mdl_open_file(const char *dir, const char *name, char *err, size_t err_bytes);

/* Read a whole file of at most max bytes. *ret is NUL ended; the caller frees
 * it. Returns 0, -EFBIG (the file is larger) or another -errno. */
int mdl_read_file(const char *dir, const char *name, size_t max, char **ret,
    size_t *ret_n, char *err, size_t err_bytes);

/* ---- model_json.c --------------------------------------------------------------- */

/*
 * Fields of a JSON object. For a field that is absent or null the functions
 * leave *ret unchanged and return 0. For a value of the wrong type or range they
 * return -EINVAL with a line "FILE: FIELD = VALUE is not ..." in err.
 */
struct mdl_json {
    const json_t *o;
    const char *file;   /* for messages: "config.json" */
    const char *prefix; /* put before field names in messages: "", "rope_scaling." */
    char *err;
    size_t err_bytes;
};
/* The field's value; NULL: absent or null. */
const json_t *mdl_json_field(const struct mdl_json *j, const char *key);
/* Returns 0, or -EINVAL with "FILE: FIELD is missing" in err. */
int mdl_json_must_have(const struct mdl_json *j, const char *key);
int mdl_json_has(const struct mdl_json *j, const char *key);
int mdl_json_i32(const struct mdl_json *j, const char *key, int32_t min, int32_t max,
    int32_t *ret);
/* min < value <= max */
int mdl_json_real(const struct mdl_json *j, const char *key, double min, double max,
    double *ret);
int mdl_json_bool(const struct mdl_json *j, const char *key, int *ret);
/* *ret stays valid as long as the document. */
int mdl_json_str(const struct mdl_json *j, const char *key, const char **ret);
/* Returns -EINVAL with "FILE: FIELD = VALUE WHY" in err. */
int mdl_json_refuse(const struct mdl_json *j, const char *key, const char *why);

/* ---- called by mdl_config_read() and mdl_build() --------------------------------- */

/* model_quant.c: set cfg->quant from quantization_config. Returns 0, or -EINVAL: the
 * checkpoint's quantization is not supported. */
int mdl_quant_read(const struct mdl_json *j, struct mdl_config *cfg);
/* model_rope.c: set rope_*, rot and max_pos; head_dim and max_pos must be read before. */
int
mdl_rope_read(const struct mdl_json *j, const struct mdl_family *f, struct mdl_config *c);
/* Set inv_freq, n_freq, rot and rope_scale from p->cfg. Returns 0, -EDOM (a value is not
 * finite) or -ENOMEM. */
int mdl_rope_freqs(struct mdl_program *p);
/* model_fields.c: is the field one of mdl_family.fields? */
int mdl_fields_reads(const struct mdl_family *f, const char *key);
/* Check the fields that are not read: returns -EINVAL for one that would change results,
 * and lists the others in c->ignored. */
int mdl_fields_check(const struct mdl_json *j, const struct mdl_family *f,
    struct mdl_config *c);
/* Check the fields next to a nested object (mdl_family.nested), except those in
 * `taken`. */
int mdl_fields_check_parent(const struct mdl_json *j, const struct mdl_family *f,
    const char *const *taken, struct mdl_config *c);
/* model_shard.c: set n_rank, kv_split, n_split and the numbers of a rank. Returns 0, or
 * -EINVAL: the model cannot be split so. */
int mdl_set_ranks(struct mdl_program *p, const struct mdl_ranks *ranks, char *err,
    size_t err_bytes);
/* model_kv.c: set the KV groups from the program's operations. Returns 0, or -ENOTSUP:
 * too many kinds of attention layers. */
int mdl_set_kv_groups(struct mdl_program *p);
/* Set mdl_buf.first and last, the operations between which a buffer is alive. */
void mdl_set_lives(struct mdl_program *p);

#endif
