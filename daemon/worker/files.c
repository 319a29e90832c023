/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/worker/model_priv.h"
#include "daemon/worker/tokenizer.h"

#define FIL_KIND_NONE 255

/* Is the file in the model's folder, not in the tokenizer's? */
static int
fil_is_models(enum fil_id i)
{
    return i == FIL_GENERATION_CONFIG;
}

/* The folder path itself, or the folder of the file path. */
static void
fil_folder(const char *path, char *ret, size_t bytes)
{
    const char *slash = strrchr(path, '/');
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        (void)snprintf(ret, bytes, "%s", path);
    else if (slash == NULL)
        (void)snprintf(ret, bytes, ".");
    else
        (void)snprintf(ret, bytes, "%.*s", (int)(slash - path) + 1, path);
}

static int
fil_read(struct fil_file *f, const char *dir)
{
    char err[PATH_MAX + 256] = "", path[PATH_MAX], *text = NULL;
    struct stat st;
    int n, rc;

    f->limit = FIL_MAX_BYTES;
    n = snprintf(path, sizeof(path), "%s/%s", dir, f->name);
    if (dir[0] == '\0' || n < 0 || (size_t)n >= sizeof(path) || lstat(path, &st) != 0)
        return 0;
    rc = mdl_read_file(dir, f->name, FIL_MAX_BYTES, &text, &f->n, err, sizeof(err));
    if (rc == -ENOMEM)
        return rc;
    if (rc == -EFBIG && stat(path, &st) == 0)
        f->too_large = (size_t)st.st_size;
    if (rc != 0)
        log_warn("load: %s; clients do not get it", err);
    else
        f->bytes = (unsigned char *)text;
    return 0;
}

/* The tokenizer's bytes of an id. Returns its kind, FIL_KIND_NONE: no such id. */
static unsigned
fil_token(const struct tok *tok, uint32_t id, const uint8_t **ret, size_t *ret_n)
{
    unsigned flags = 0;

    *ret_n = 0;
    if (tok_id_bytes(tok, id, ret, ret_n, &flags) != 0)
        return FIL_KIND_NONE;
    return (flags & TOK_ID_SPECIAL) != 0 ? 3 : (flags & TOK_ID_ADDED) != 0;
}

static int
fil_vocabulary(struct fil_file *f, const struct tok *tok, int32_t vocab)
{
    const uint8_t *b = NULL;
    size_t n, bytes = 0;
    unsigned char *at;

    f->limit = FIL_MAX_VOCAB;
    for (int32_t i = 0; tok != NULL && i < vocab; i++) {
        (void)fil_token(tok, (uint32_t)i, &b, &n);
        bytes += sizeof(uint16_t) + 1 + n;
    }
    if (bytes > FIL_MAX_VOCAB) {
        log_warn("load: the vocabulary has %zu bytes, the limit is %zu; clients do not "
                 "get it",
            bytes, FIL_MAX_VOCAB);
        f->too_large = bytes;
    }
    if (bytes == 0 || bytes > FIL_MAX_VOCAB)
        return 0;
    f->bytes = at = mem_zalloc(bytes);
    if (at == NULL)
        return -ENOMEM;
    f->n = bytes;
    for (int32_t i = 0; i < vocab; i++) {
        unsigned kind = fil_token(tok, (uint32_t)i, &b, &n);
        uint16_t len = (uint16_t)n;

        memcpy(at, &len, sizeof(len));
        at[sizeof(len)] = (unsigned char)kind;
        at += sizeof(len) + 1;
        if (n > 0)
            memcpy(at, b, n);
        at += n;
    }
    return 0;
}

int
fil_load(const char *model_dir, const char *tok_path, const struct tok *tok,
    int32_t vocab, struct files **ret)
{
    static const char *const name[FIL__N] = {
#define FDP_FILE(id, name_, text) [FIL_##id] = name_,
#include "libclient/tbl/files.h"
#undef FDP_FILE
    };
    char tok_dir[PATH_MAX] = "";
    struct files *fs;
    int rc = 0;

    OBJ_ALLOC(fs, FIL_MAGIC);
    if (fs == NULL)
        return -ENOMEM;
    if (tok_path[0] != '\0')
        fil_folder(tok_path, tok_dir, sizeof(tok_dir));
    for (int i = 0; i < FIL__N && rc == 0; i++) {
        fs->f[i].name = name[i];
        if (i == FIL_VOCABULARY)
            rc = fil_vocabulary(&fs->f[i], tok, vocab);
        else
            rc = fil_read(&fs->f[i], fil_is_models((enum fil_id)i) ? model_dir : tok_dir);
    }
    if (rc != 0)
        fs = fil_free(fs);
    *ret = fs;
    return rc;
}

struct files *
fil_free(struct files *fs)
{
    if (fs == NULL)
        return NULL;
    for (int i = 0; i < FIL__N; i++)
        free(fs->f[i].bytes);
    OBJ_FREE(fs, FIL_MAGIC);
    return NULL;
}

const struct fil_file *
fil_find(const struct files *fs, const char *name, size_t n)
{
    for (int i = 0; fs != NULL && i < FIL__N; i++)
        if (strlen(fs->f[i].name) == n && memcmp(fs->f[i].name, name, n) == 0)
            return &fs->f[i];
    return NULL;
}
