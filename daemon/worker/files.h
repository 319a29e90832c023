/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The model's files that clients may read (libclient/tbl/files.h): read once while the
 * model loads, kept in memory, constant after. Every thread may use them.
 */
#ifndef FDD_DAEMON_WORKER_FILES_H
#define FDD_DAEMON_WORKER_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "libclient/fdproto.h"

struct tok;

/* Of one file, and of the vocabulary; what is larger is not kept. */
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
    unsigned char *bytes; /* NULL: there is none, or it is too large */
    size_t n;
    size_t too_large; /* its bytes where it is */
    size_t limit;     /* of what is kept */
};

struct files {
    uint32_t magic;
#define FIL_MAGIC 0x46494c53u
    struct fil_file f[FIL__N];
};

/* What the folder of the model has, and of the tokenizer's (a folder or its
 * tokenizer.json) what goes with a tokenizer; "": none. tok, with its model of vocab ids,
 * may be NULL. A file that is there and cannot be kept is logged. -ENOMEM. */
int fil_load(const char *model_dir, const char *tok_path, const struct tok *tok,
    int32_t vocab, struct files **ret);
/* Accepts NULL, returns NULL. */
struct files *fil_free(struct files *fs);
/* By its name, which ends with no NUL; NULL: no such name. */
const struct fil_file *fil_find(const struct files *fs, const char *name, size_t n);

#endif
