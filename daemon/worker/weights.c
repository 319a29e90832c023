/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: which files, which tensors, and the place of each in the arena.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/obj.h"
#include "daemon/worker/model_priv.h"
#include "daemon/common/sha256.h"

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"
#define SHOWN  4 /* names listed in a message */

/* ---- files ---- */

static int
add_tensors(struct wts_plan *wp, struct wts_tensor *t, size_t n)
{
    struct wts_tensor *all;

    all = realloc(wp->tensor, (wp->n_tensor + n + 1) * sizeof(*all));
    if (all == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        t[i].file = wp->n_file - 1;
        all[wp->n_tensor + i] = t[i];
    }
    wp->tensor = all;
    wp->n_tensor += n;
    free(t);
    return 0;
}

static int
read_header(struct wts_plan *wp, struct wts_file *f, char *err, size_t err_bytes)
{
    struct wts_tensor *t = NULL;
    unsigned char head[10];
    uint64_t size = (uint64_t)f->size, len = 0;
    size_t n_t = 0;
    char *text;
    int rc;

    if (size < sizeof(head))
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_HDRLEN: %s: %llu bytes are no safetensors "
            "file",
            f->path, (unsigned long long)size);
    rc = wts_read_exact(f, head, sizeof(head), 0, err, err_bytes);
    if (rc != 0)
        return rc;
    if (memcmp(head, "version ht", sizeof(head)) == 0)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_HDRLEN: %s: a Git LFS pointer, not the "
            "file; run `git lfs pull` in its directory",
            f->path);
    for (int i = 7; i >= 0; i--)
        len = len << 8 | head[i];
    if (len < 2 || len > WTS_MAX_HEADER_BYTES || len > size - 8)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_HDRLEN: %s: header of %llu bytes in a file "
            "of %llu (at least 2, at most %u)",
            f->path, (unsigned long long)len, (unsigned long long)size,
            WTS_MAX_HEADER_BYTES);
    text = malloc(len);
    if (text == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: %s: no memory for its header",
            f->path);
    rc = wts_read_exact(f, text, len, 8, err, err_bytes);
    if (rc == 0)
        rc = wts_header_read(f->path, text, len, 8 + len, size - 8 - len, &t, &n_t, err,
            err_bytes);
    free(text);
    if (rc == 0 && wp->n_tensor + n_t > WTS_MAX_TENSOR) {
        rc = mdl_fail(-EINVAL, err, err_bytes, "W_LIMIT: %s: more than %d tensors in all",
            f->path, WTS_MAX_TENSOR);
        wts_tensors_free(t, n_t);
    } else if (rc == 0 && add_tensors(wp, t, n_t) != 0) {
        wts_tensors_free(t, n_t);
        rc = mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory for the list of tensors");
    }
    return rc;
}

/* Adds a file; wp->file has room for it. */
static int
add_file(struct wts_plan *wp, const char *dir, const char *name, char *err, size_t err_bytes)
{
    struct wts_file *f = &wp->file[wp->n_file];
    char line[512];
    struct stat st;
    int fd;

    fd = mdl_open_file(dir, name, line, sizeof(line));
    if (fd < 0)
        return mdl_fail(fd, err, err_bytes, "W_PATH: %s", line);
    f->fd = fd;
    wp->n_file++;
    if (asprintf(&f->path, "%s/%s", dir, name) < 0) {
        f->path = NULL;
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    }
    f->name = f->path + strlen(dir) + 1;
    if (fstat(fd, &st) != 0)
        return mdl_fail(-EIO, err, err_bytes, "W_IO: %s: %s", f->path, strerror(errno));
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->size = st.st_size;
    f->mtime = st.st_mtim;
    return read_header(wp, f, err, err_bytes);
}

/* ---- the index of a sharded checkpoint ---- */

static int
check_basename(const char *dir, const char *name, char *err, size_t err_bytes)
{
    size_t n = strlen(name), ext = strlen(".safetensors");
    char shown[96];

    if (n > ext && n <= 255 && strchr(name, '/') == NULL && name[0] != '.' &&
        strcmp(name + n - ext, ".safetensors") == 0)
        return 0;
    return mdl_fail(-EINVAL, err, err_bytes,
        "W_PATH: %s/" INDEX ": %s is not the name of a "
        ".safetensors file in the same directory",
        dir, mdl_printable(shown, sizeof(shown), name, n));
}

static int
find_file(const struct wts_plan *wp, const char *name)
{
    for (int32_t i = wp->n_file - 1; i >= 0; i--)
        if (strcmp(wp->file[i].name, name) == 0)
            return i;
    return -1;
}

static int
open_shards(struct wts_plan *wp, const char *dir, const json_t *map, char *err,
    size_t err_bytes)
{
    const char *key;
    json_t *v;
    int rc;

    json_object_foreach((json_t *)(uintptr_t)map, key, v) {
        if (!json_is_string(v))
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_JSON: %s/" INDEX ": weight_map holds "
                "something other than file names",
                dir);
        if (find_file(wp, json_string_value(v)) >= 0)
            continue;
        if (wp->n_file == WTS_MAX_FILE)
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_LIMIT: %s/" INDEX ": more than %d "
                "files",
                dir, WTS_MAX_FILE);
        rc = check_basename(dir, json_string_value(v), err, err_bytes);
        if (rc == 0)
            rc = add_file(wp, dir, json_string_value(v), err, err_bytes);
        if (rc != 0)
            return rc;
    }
    rc = wts_sort(wp, err, err_bytes);
    if (rc != 0)
        return rc;
    json_object_foreach((json_t *)(uintptr_t)map, key, v) {
        const struct wts_tensor *t = wts_find(wp, key);
        char shown[96];

        if (t == NULL || t->file != find_file(wp, json_string_value(v)))
            return mdl_fail(-EINVAL, err, err_bytes,
                "W_MODEL: %s/%s: tensor %s is not in it, "
                "though " INDEX " says so%s%s",
                dir, json_string_value(v),
                mdl_printable(shown, sizeof(shown), key, strlen(key)),
                t != NULL ? "; it is in " : "", t != NULL ? wp->file[t->file].name : "");
    }
    return 0;
}

static int
open_index(struct wts_plan *wp, const char *dir, char *err, size_t err_bytes)
{
    json_t *o = NULL, *map;
    json_error_t e;
    char *text, line[512], shown[128];
    size_t n;
    int rc;

    rc = mdl_read_file(dir, INDEX, WTS_MAX_INDEX_BYTES, &text, &n, line, sizeof(line));
    if (rc == -ENOENT)
        return mdl_fail(rc, err, err_bytes,
            "W_PATH: %s: neither " SINGLE " nor " INDEX
            " is there (other formats, .bin and .gguf too, are not read)",
            dir);
    if (rc != 0)
        return mdl_fail(rc, err, err_bytes, "%s: %s", rc == -EFBIG ? "W_LIMIT" : "W_PATH",
            line);
    o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    free(text);
    map = json_object_get(o, "weight_map");
    if (o == NULL)
        rc = mdl_fail(-EINVAL, err, err_bytes,
            "W_JSON: %s/" INDEX ": line %d, column %d: %s", dir, e.line, e.column,
            mdl_printable(shown, sizeof(shown), e.text, strlen(e.text)));
    else if (!json_is_object(map))
        rc = mdl_fail(-EINVAL, err, err_bytes,
            "W_JSON: %s/" INDEX ": no object weight_map", dir);
    else
        rc = open_shards(wp, dir, map, err, err_bytes);
    json_decref(o);
    return rc;
}

static int
open_files(struct wts_plan *wp, const char *dir, char *err, size_t err_bytes)
{
    int rc;

    wp->file = calloc(WTS_MAX_FILE, sizeof(*wp->file));
    if (wp->file == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    rc = add_file(wp, dir, SINGLE, err, err_bytes);
    if (rc == -ENOENT && wp->n_file == 0)
        return open_index(wp, dir, err, err_bytes);
    if (rc == 0)
        rc = wts_sort(wp, err, err_bytes);
    return rc;
}

/* ---- tensors of the program ---- */

static int
check_tensor(const struct wts_plan *wp, const struct wts_tensor *t, int32_t rows,
    int32_t cols, char *err, size_t err_bytes)
{
    int64_t want[2] = { rows, cols };
    int n_dim = cols > 0 ? 2 : 1;
    char a[128], b[64];

    if (t->n_dim != n_dim || t->shape[0] != rows || (n_dim == 2 && t->shape[1] != cols)) {
        wts_shape_text(a, sizeof(a), t->shape, t->n_dim);
        wts_shape_text(b, sizeof(b), want, n_dim);
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s has shape %s; "
            "config.json asks for %s",
            wp->file[t->file].path, t->name, a, b);
    }
    if (t->dtype > FDK_BF16 && !(t->dtype == FDK_F8E4M3 && cols > 0))
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: tensor %s has dtype %s, which is "
            "not supported; supported: F32, F16, BF16%s",
            wp->file[t->file].path, t->name, t->dtype_name, cols > 0 ? ", F8_E4M3" : "");
    return 0;
}

static int
check_missing(const struct wts_plan *wp, const struct mdl_program *p, const char *dir,
    char *err, size_t err_bytes)
{
    char list[SHOWN * (MDL_NAME + 2)] = "";
    size_t n = 0;

    for (int32_t i = 0; i < p->n_w; i++) {
        const struct wts_ref *w = &p->w[i];

        for (int k = 0; k < w->n_part && w->alias < 0; k++) {
            if (wts_find(wp, w->name[k]) != NULL)
                continue;
            if (n++ < SHOWN)
                snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
                    n == 1 ? "" : ", ", w->name[k]);
        }
    }
    if (n == 0)
        return 0;
    return mdl_fail(-EINVAL, err, err_bytes,
        "W_MODEL: %s: %zu tensor%s that config.json asks "
        "for %s missing: %s%s",
        dir, n, n == 1 ? "" : "s", n == 1 ? "is" : "are", list, n > SHOWN ? ", ..." : "");
}

/* * matches one or more digits; a . at the end matches any rest. */
static int
match(const char *pat, const char *s)
{
    for (; *pat != '\0'; pat++) {
        if (pat[0] == '.' && pat[1] == '\0')
            return *s == '.';
        if (*pat != '*') {
            if (*s++ != *pat)
                return 0;
            continue;
        }
        if (*s < '0' || *s > '9')
            return 0;
        while (*s >= '0' && *s <= '9')
            s++;
    }
    return *s == '\0';
}

static int
is_harmless(const struct mdl_program *p, const char *name)
{
    /* old conversions stored the rotary frequencies, which follow from config.json */
    static const char *const of_all[] = { "model.layers.*.self_attn.rotary_emb.inv_freq",
        "model.rotary_emb.inv_freq", NULL };
    const char *const *lists[] = { of_all, mdl_family(p->cfg.family)->harmless };

    for (int i = 0; i < 2; i++)
        for (const char *const *h = lists[i]; h != NULL && *h != NULL; h++)
            if (match(*h, name))
                return 1;
    /* a copy of the embedding, which a tied head does not need */
    for (int32_t i = 0; i < p->n_w; i++)
        if (p->w[i].alias >= 0 && strcmp(p->w[i].name[0], name) == 0)
            return 1;
    return 0;
}

static int
cmp_str(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Tensors that the program does not use: harmless ones are listed, others are errors. */
static int
check_extra(struct wts_plan *wp, const struct mdl_program *p, const char *dir, char *err,
    size_t err_bytes)
{
    size_t n_want = 0, n_bad = 0, n_ok = 0;
    char bad[SHOWN * 100] = "", ok[SHOWN * 100] = "", shown[96];
    const char **want = calloc((size_t)p->n_w * MDL_MAX_PART + 1, sizeof(*want));

    if (want == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    for (int32_t i = 0; i < p->n_w; i++)
        for (int k = 0; k < p->w[i].n_part && p->w[i].alias < 0; k++)
            want[n_want++] = p->w[i].name[k];
    qsort(want, n_want, sizeof(*want), cmp_str);
    for (size_t i = 0; i < wp->n_tensor; i++) {
        const char *name = wp->tensor[i].name;
        enum wts_fp8_use use;
        int harmless;
        char *list;

        if (bsearch(&name, want, n_want, sizeof(*want), cmp_str) != NULL)
            continue;
        if (wts_is_kv_scale(p, name)) {
            wp->n_kv_scale++;
            continue;
        }
        use = wts_fp8_use(wp, name);
        if (use == WTS_FP8_SCALE)
            continue;
        harmless = use == WTS_FP8_UNUSED || is_harmless(p, name);
        list = harmless ? ok : bad;
        if ((harmless ? n_ok++ : n_bad++) < SHOWN)
            snprintf(list + strlen(list), sizeof(bad) - strlen(list), " %s",
                mdl_printable(shown, sizeof(shown), name, strlen(name)));
    }
    free(want);
    if (n_bad > 0)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: %s: %zu tensor%s not part of the %s "
            "model of config.json (%d layers):%s%s",
            dir, n_bad, n_bad == 1 ? " is" : "s are", p->cfg.family, p->cfg.n_layer, bad,
            n_bad > SHOWN ? " ..." : "");
    if (n_ok > 0 &&
        asprintf(&wp->ignored, "%zu:%s%s", n_ok, ok, n_ok > SHOWN ? " ..." : "") < 0) {
        wp->ignored = NULL;
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    }
    return 0;
}

/* ---- digest ---- */

static void
make_digest(struct wts_plan *wp, const struct mdl_program *p)
{
    struct sha256 s;

    sha256_init(&s);
    if (wp->dummy) {
        sha256_add(&s, p->cfg.digest, sizeof(p->cfg.digest));
        sha256_add(&s, &wp->seed, sizeof(wp->seed));
    }
    for (size_t i = 0; i < wp->n_tensor; i++) {
        const struct wts_tensor *t = &wp->tensor[i];

        sha256_add(&s, t->name, strlen(t->name) + 1);
        sha256_add(&s, t->dtype_name, strlen(t->dtype_name) + 1);
        sha256_add(&s, &t->n_dim, sizeof(t->n_dim));
        sha256_add(&s, t->shape, (size_t)t->n_dim * sizeof(t->shape[0]));
    }
    for (int32_t i = 0; i < wp->n_file; i++) {
        int64_t size = wp->file[i].size;

        sha256_add(&s, &size, sizeof(size));
    }
    if (wp->qnt.dtype != FDK_F32) {
        sha256_add(&s, qnt_name(&wp->qnt), strlen(qnt_name(&wp->qnt)));
        sha256_add(&s, &wp->qnt.group, sizeof(wp->qnt.group));
    }
    sha256_end(&s, wp->digest);
}

static int
match_program(struct wts_plan *wp, const struct mdl_program *p, const char *dir,
    char *err, size_t err_bytes)
{
    int rc = check_missing(wp, p, dir, err, err_bytes);

    for (int32_t i = 0; i < p->n_w && rc == 0; i++)
        for (int k = 0; k < p->w[i].n_part && p->w[i].alias < 0 && rc == 0; k++)
            rc = check_tensor(wp, wts_find(wp, p->w[i].name[k]), p->w[i].rows[k],
                p->w[i].cols, err, err_bytes);
    if (rc == 0)
        rc = wts_fp8_check(wp, p, err, err_bytes);
    return rc != 0 ? rc : check_extra(wp, p, dir, err, err_bytes);
}

/* ---- entry points ---- */

int
wts_plan_new(const char *dir, struct mdl_program *p, int dummy, uint64_t seed,
    struct wts_plan **ret, char *err, size_t err_bytes)
{
    struct wts_plan *wp;
    int rc = 0;

    OBJ_ALLOC(wp, WTS_PLAN_MAGIC);
    if (wp == NULL)
        return mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    wp->dummy = dummy;
    wp->seed = seed;
    if (dummy && p->cfg.quant != MDL_QUANT_NONE)
        wp->qnt = (struct qnt){ FDK_F8E4M3,
            p->cfg.quant == MDL_QUANT_BLOCK ? MDL_FP8_BLOCK : 0 };
    wp->n_rank = p->n_rank;
    wp->n_place = p->n_w;
    wp->place = calloc((size_t)p->n_w + 1, sizeof(*wp->place));
    wp->piece = calloc((size_t)p->n_w * MDL_MAX_PART * 2 + 1, sizeof(*wp->piece));
    wp->st = calloc(1, sizeof(*wp->st));
    if (wp->place == NULL || wp->piece == NULL || wp->st == NULL)
        rc = mdl_fail(-ENOMEM, err, err_bytes, "W_IO: no memory");
    if (rc == 0 && !dummy)
        rc = open_files(wp, dir, err, err_bytes);
    if (rc == 0 && !dummy)
        rc = wts_rename(wp, mdl_family(p->cfg.family)->renames, err, err_bytes);
    if (rc == 0 && !dummy)
        rc = wts_head_alone(wp, p, err, err_bytes);
    if (rc == 0 && !dummy)
        rc = wts_untie(wp, p, err, err_bytes);
    if (rc == 0 && !dummy)
        rc = match_program(wp, p, dir, err, err_bytes);
    if (rc == 0)
        rc = wts_place_all(wp, p, err, err_bytes);
    if (rc != 0) {
        wts_plan_free(wp);
        return rc;
    }
    make_digest(wp, p);
    wp->st->how = dummy ? "dummy" : "pread";
    *ret = wp;
    return 0;
}

int
wts_plan_quantize(struct wts_plan *wp, const struct mdl_program *p, const struct qnt *q,
    char *err, size_t err_bytes)
{
    int rc;

    OBJ_CHECK(wp, WTS_PLAN_MAGIC);
    if (p->cfg.quant != MDL_QUANT_NONE)
        return mdl_fail(-EINVAL, err, err_bytes,
            "W_MODEL: the checkpoint is quantized already (%s): quant.weights=%s cannot "
            "quantize it again; set it to none",
            mdl_quant_name(p->cfg.quant), qnt_name(q));
    wp->qnt = *q;
    rc = wts_place_all(wp, p, err, err_bytes);
    if (rc == 0)
        make_digest(wp, p);
    return rc;
}

struct wts_plan *
wts_plan_free(struct wts_plan *wp)
{
    if (wp == NULL)
        return NULL;
    OBJ_CHECK(wp, WTS_PLAN_MAGIC);
    for (int32_t i = 0; i < wp->n_file; i++) {
        close(wp->file[i].fd);
        free(wp->file[i].path);
    }
    wts_tensors_free(wp->tensor, wp->n_tensor);
    free(wp->file);
    free(wp->place);
    free(wp->piece);
    free(wp->ignored);
    free(wp->st);
    OBJ_FREE(wp, WTS_PLAN_MAGIC);
    return NULL;
}

int
wts_plan_layout(struct wts_plan *wp, const struct mdl_program *p, const struct fdk_ops *k,
    char *err, size_t err_bytes)
{
    OBJ_CHECK(wp, WTS_PLAN_MAGIC);
    wp->k = k;
    return wts_place_all(wp, p, err, err_bytes);
}

uint64_t
wts_bytes(const struct wts_plan *wp)
{
    return wp->bytes;
}

struct fdk_weight
wts_weight(const struct wts_plan *wp, int32_t i)
{
    return wp->place[i].w;
}

enum fdk_dtype
wts_dtype(const struct wts_plan *wp, int32_t i)
{
    return wp->place[i].w.format;
}

uint64_t
wts_offset(const struct wts_plan *wp, int32_t i)
{
    return wp->place[i].off;
}

double
wts_elt_bytes(const struct wts_plan *wp, int32_t i)
{
    const struct fdk_weight *w = &wp->place[i].w;

    return (double)w->bytes / (double)wts_n_elt(w);
}

enum fdk_dtype
wts_main_dtype(const struct wts_plan *wp)
{
    return wp->main_dtype;
}

void
wts_digest(const struct wts_plan *wp, uint8_t ret[32])
{
    memcpy(ret, wp->digest, 32);
}

const char *
wts_ignored(const struct wts_plan *wp)
{
    return wp->ignored != NULL ? wp->ignored : "";
}

const char *
wts_how(const struct wts_plan *wp)
{
    return wp->st->how;
}
