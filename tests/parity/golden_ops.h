/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_ops: shared by its files. A case runs one operation on seeded numbers and prints
 * a line: name and shape, a space, a hash of the bytes that the operation wrote.
 */
#ifndef FDD_TESTS_PARITY_GOLDEN_OPS_H
#define FDD_TESTS_PARITY_GOLDEN_OPS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fdk.h"

struct golden {
    const struct fdk_ops *ops;
    struct fdk_ctx *ctx;
    fdk_stream_t st;
    enum fdk_dtype act;
    double most;      /* most multiplications of a case; larger cases are left out */
    const char *only; /* only cases whose name begins with this are run */
    uint64_t seed;    /* of the case's random numbers */
    char name[160];   /* of the case */
    void *buf[64];    /* device memory of the case, freed at its end */
    int n_buf;
};
extern struct golden g;

#define GO_N(a) (sizeof(a) / sizeof((a)[0]))

/* Ends the program unless the operation returned 0. */
#define GO(call) go_must((call), #call)
void go_must(int rc, const char *what);

/* Begins a case; its seed follows from its name. Returns 0 if the case is left out. */
int go_begin(double multiplications, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends a case: prints the hash of the bytes that the operation wrote. rc: the operation's
 * return code; -ENOTSUP is printed as such. */
void go_end(int rc, const void *const out[], const size_t bytes[], int n);
void go_end1(int rc, const void *out, size_t bytes);

uint64_t go_rand(void);
int go_int(int low, int high);
float go_normal(void); /* variance 1, at most 3.5 */

/* Device memory until the case ends: filled with 0x7f; with a copy of src; with n
 * numbers of about `scale`. */
void *go_new(size_t bytes);
void *go_copy(const void *src, size_t bytes);
void *go_numbers(size_t n, enum fdk_dtype t, float scale);
/* n numbers on the host; free() them. Numbers of 8-bit and 4-bit types take all
 * values except the NaN of e4m3. */
void *go_host(size_t n, enum fdk_dtype t, float scale);

enum { GO_TOK = 2304, GO_ROW = 128, GO_STRIDE = 160, GO_BLOCK = 16, GO_LAYERS = 2 };

struct go_step { /* the arrays of a step, in one block of memory */
    int32_t n_tok, n_row, n_out;
    int32_t ids[GO_TOK], pos[GO_TOK], slot_map[GO_TOK], row[GO_TOK];
    int32_t q_start[GO_ROW + 1], kv_len[GO_ROW], state[GO_ROW];
    int32_t block_table[GO_ROW * GO_STRIDE];
    struct fdk_out out[GO_ROW];
    int n_block; /* blocks given to rows so far */
};
void go_step_init(struct go_step *s);
/* Appends a row of n tokens after `before` cached ones, with an output for the last. */
void go_step_row(struct go_step *s, int n, int before);
struct fdk_batch go_batch(const struct go_step *s); /* on the device */
/* Makes a pool of random KV for the step's blocks. *ret_bytes is the size of kv.base. */
struct fdk_kv
go_kv(const struct go_step *s, int K, int D, enum fdk_dtype t, size_t *ret_bytes);

void go_rows_cases(void);      /* golden_rows.c */
void go_load_cases(void);      /* golden_rows.c */
void go_gemm_cases(void);      /* golden_gemm.c */
void go_attention_cases(void); /* golden_attention.c */
void go_sample_cases(void);    /* golden_sample.c */

#endif
