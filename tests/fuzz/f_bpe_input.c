/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile text for a good tokenizer: encoding in slices gives the same as at once, and it
 * decodes back. The first byte selects the tokenizer and the flags. The tokenizers are
 * those of tests/parity/tok, of every model: BPE of bytes and of characters, Unigram,
 * WordPiece, and files of SentencePiece. The folder is found from the corpus directory
 * given as an argument or else from $FDD_SRC or $srcdir.
 */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include "daemon/worker/detok.h"
#include "daemon/worker/tokenizer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/take.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))
#define MARK    "\xe2\x96\x81"

/* Selected by the low two bits of the first byte, then by its high four. */
static const struct {
    const char *name;
    bool lossless; /* except text of special tokens, and replacement marks */
} kinds[] = {
    { "gpt2", true },
    { "llama3", true },
    { "qwen2", false },
    { "mixed", false },
    { "spm-gemma", true },
    { "spm-llama", false },
    { "spm-first", false },
    { "spm-file-bpe", false },
    { "unigram-t5", false },
    { "unigram-xlmr", false },
    { "unigram-bytes", false },
    { "spm-file-unigram", false },
    { "bert", false },
    { "bert-cased", false },
    { "falcon", true },
    { "suffix-bpe", false },
    { "prefix-bpe", false },
    { "gpt2-prefix", false },
};
static struct tok *toks[N_KINDS];
static struct tok_enc *encs[N_KINDS];
static bool encoded[N_KINDS]; /* the kind has encoded a text of some length */

static char base[3000];

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *top = getenv("FDD_SRC"), *dir = top ? top : getenv("srcdir");
    char path[4096];
    int i;

    snprintf(base, sizeof(base), "%s/tests/parity/tok", dir ? dir : ".");
    for (i = 1; i < *argc; i++) {
        snprintf(path, sizeof(path), "%s/../../../parity/tok/gpt2", (*argv)[i]);
        if (strlen((*argv)[i]) < 2000 && !access(path, F_OK))
            snprintf(base, sizeof(base), "%.2000s/../../../parity/tok", (*argv)[i]);
    }
    return 0;
}

static void
load(void)
{
    char path[4096], err[512];
    unsigned i;

    for (i = 0; i < N_KINDS; i++) {
        snprintf(path, sizeof(path), "%s/%s", base, kinds[i].name);
        if (tok_load(path, &toks[i], err, sizeof(err))) {
            fprintf(stderr, "%s\n", err);
            exit(1);
        }
        encs[i] = tok_enc_new(toks[i]);
        if (!encs[i])
            exit(1);
    }
}

static int
encode(struct tok_enc *enc, const char *text, size_t n, unsigned flags, size_t step)
{
    int rc = tok_enc_begin(enc, text, n, flags);

    while (!rc)
        rc = tok_enc_step(enc, step);
    return rc;
}

static size_t
decode(const struct tok *tok, const uint32_t *ids, size_t n, uint8_t *out, size_t cap)
{
    struct dtk d;
    size_t i, at = 0, got;

    dtk_init(&d, tok, false);
    for (i = 0; i < n; i++) {
        got = dtk_push(&d, ids[i], out + at, cap - at);
        if (got == DTK_NO_SPACE)
            abort();
        at += got;
    }
    got = dtk_finish(&d, out + at, cap - at);
    if (got == DTK_NO_SPACE)
        abort();
    return at + got;
}

int
fuzz_missing(void)
{
    int missing = 0;

    for (size_t i = 0; i < N_KINDS; i++)
        if (!encoded[i]) {
            fprintf(stderr, "no input is a text for %s\n", kinds[i].name);
            missing++;
        }
    return missing;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    unsigned kind, flags;
    const uint32_t *ids;
    uint32_t *whole;
    uint8_t *out;
    size_t n_ids, n_again, cap, got;

    if (!toks[0])
        load();
    if (!n)
        return 0;
    kind = ((data[0] & 3) | (unsigned)data[0] >> 4 << 2) % N_KINDS;
    flags = data[0] >> 2 & 3;
    if (encode(encs[kind], (const char *)data + 1, n - 1, flags, SIZE_MAX) != 1)
        return 0;
    ids = tok_enc_ids(encs[kind], &n_ids);
    whole = malloc(n_ids * sizeof(*whole) + 1);
    cap = 4 * n + (n_ids + 1) * dtk_max_bytes(toks[kind]);
    out = malloc(cap);
    if (!whole || !out)
        abort();
    if (n_ids)
        memcpy(whole, ids, n_ids * sizeof(*whole));
    if (encode(encs[kind], (const char *)data + 1, n - 1, flags, 1) != 1)
        abort();
    ids = tok_enc_ids(encs[kind], &n_again);
    if (n_again != n_ids || (n_ids && memcmp(ids, whole, n_ids * sizeof(*ids))))
        abort();
    got = decode(toks[kind], whole, n_ids, out, cap);
    if (kinds[kind].lossless && !(flags & TOK_ADD_SPECIAL) &&
        !memmem(data + 1, n - 1, MARK, strlen(MARK)) &&
        (got != n - 1 || memcmp(out, data + 1, got)))
        abort();
    encoded[kind] |= n_ids > 4;
    free(whole);
    free(out);
    return 0;
}
