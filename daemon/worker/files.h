/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's files that clients may read (libclient/tbl/files.h): read once while the
 * model loads, then kept in memory and constant. Any thread may use them.
 */
#ifndef FDD_DAEMON_WORKER_FILES_H
#define FDD_DAEMON_WORKER_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/fdproto.h"

struct tok;

/* Size limits of one file, and of the vocabulary; larger ones are not kept. */
#define FIL_MAX_BYTES ((size_t)8 << 20)
#define FIL_MAX_VOCAB ((size_t)32 << 20)

enum fil_id {
#define FDP_FILE(id, name, text) FIL_##id,
#include "libclient/tbl/files.h"
#undef FDP_FILE
    FIL__N
};

struct fil_file {
    const char *name;
    unsigned char *bytes; /* NULL: there is no such file, or it is too large */
    size_t n;
    size_t too_large; /* its size if it is too large, else 0 */
    size_t limit;     /* largest size that is kept */
};

struct files {
    uint32_t magic;
#define FIL_MAGIC 0x46494c53u
    struct fil_file f[FIL__N];
};

/* Reads the files of the model's folder and the tokenizer's files from tok_path (a
 * folder, or its tokenizer.json); "": none. tok may be NULL; vocab is the model's number
 * of ids. A file that exists but cannot be kept is logged. 0 or -ENOMEM. */
int fil_load(const char *model_dir, const char *tok_path, const struct tok *tok,
    int32_t vocab, struct files **ret);
/* Accepts NULL, returns NULL. */
struct files *fil_free(struct files *fs);
/* Finds a file by its name of n bytes (not NUL-terminated); NULL: no such name. */
const struct fil_file *fil_find(const struct files *fs, const char *name, size_t n);

#endif
