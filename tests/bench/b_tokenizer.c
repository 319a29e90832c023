/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The speed of a tokenizer: loading it, and encoding and decoding each text, with
 * one megabyte of a single letter last. tests/bench/tokenizer prints the
 * reference's times next to it.
 *
 * Usage: b_tokenizer TOKENIZER TEXT...
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/clk.h"
#include "daemon/worker/detok.h"
#include "daemon/worker/tokenizer.h"

#define MIN_NS  (300 * CLK_MS)
#define LETTERS 1000000

static double
ms_since(uint64_t t)
{
    return (double)(clk_now_ns() - t) / 1e6;
}

static const uint32_t *
encode(struct tok_enc *enc, const char *text, size_t n, size_t *ret_n)
{
    int rc = tok_enc_begin(enc, text, n, 0);

    while (rc == 0)
        rc = tok_enc_step(enc, 1 << 16);
    if (rc != 1) {
        fprintf(stderr, "b_tokenizer: encoding: %s\n", strerror(-rc));
        exit(1);
    }
    return tok_enc_ids(enc, ret_n);
}

static void
decode(const struct tok *tok, const uint32_t *ids, size_t n, uint8_t *out)
{
    struct dtk d;
    size_t max = dtk_max_bytes(tok);

    dtk_init(&d, tok, false);
    for (size_t i = 0; i < n; i++)
        (void)dtk_push(&d, ids[i], out, max);
    (void)dtk_finish(&d, out, max);
}

static void
measure(const struct tok *tok, const char *name, const char *text, size_t n)
{
    struct tok_enc *enc = tok_enc_new(tok);
    uint8_t *out = malloc(dtk_max_bytes(tok));
    double best[2] = { 1e30, 1e30 }, ms;
    const uint32_t *ids = NULL;
    size_t n_ids = 0;

    if (enc == NULL || out == NULL)
        exit(1);
    for (uint64_t t0 = clk_now_ns(), t = t0; t - t0 < MIN_NS; t = clk_now_ns()) {
        ids = encode(enc, text, n, &n_ids);
        ms = ms_since(t);
        best[0] = ms < best[0] ? ms : best[0];
        t = clk_now_ns();
        decode(tok, ids, n_ids, out);
        ms = ms_since(t);
        best[1] = ms < best[1] ? ms : best[1];
    }
    printf("%s encode %.1f decode %.1f ids %zu\n", name, (double)n / best[0] / 1e3,
        (double)n / best[1] / 1e3, n_ids);
    free(out);
    (void)tok_enc_free(enc);
}

static char *
slurp(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    char *p = NULL;
    long n;

    if (f != NULL && fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) >= 0) {
        rewind(f);
        p = malloc((size_t)n + 1);
        *ret_n = p != NULL ? fread(p, 1, (size_t)n, f) : 0;
    }
    if (f != NULL)
        (void)fclose(f);
    return p;
}

int
main(int argc, char **argv)
{
    struct tok *tok = NULL;
    struct tok_enc *enc;
    char err[512] = "", *text;
    double best = 1e30, ms;
    size_t n = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: b_tokenizer TOKENIZER TEXT...\n");
        return 64;
    }
    for (int i = 0; i < 3; i++) {
        uint64_t t = clk_now_ns();

        tok = tok_free(tok);
        if (tok_load(argv[1], &tok, err, sizeof(err)) != 0) {
            fprintf(stderr, "b_tokenizer: %s\n", err);
            return 1;
        }
        ms = ms_since(t);
        best = ms < best ? ms : best;
    }
    printf("load_ms %.1f ids %u\n", best, (unsigned)tok_vocab_size(tok));
    for (int i = 2; i < argc; i++) {
        text = slurp(argv[i], &n);
        if (text == NULL) {
            perror(argv[i]);
            return 1;
        }
        measure(tok, argv[i], text, n);
        free(text);
    }
    text = malloc(LETTERS);
    enc = tok_enc_new(tok);
    if (text == NULL || enc == NULL)
        return 1;
    memset(text, 'a', LETTERS);
    best = 1e30;
    for (int i = 0; i < 3; i++) {
        uint64_t t = clk_now_ns();

        (void)encode(enc, text, LETTERS, &n);
        ms = ms_since(t);
        best = ms < best ? ms : best;
    }
    printf("letters_ms %.1f ids %zu\n", best, n);
    free(text);
    (void)tok_enc_free(enc);
    (void)tok_free(tok);
    return 0;
}
