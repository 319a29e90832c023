/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the b_gpu programs: an open GPU, device memory, and the time of a recorded
 * graph. Any error ends the program with a line on stderr.
 */
#ifndef FDD_TESTS_BENCH_GPU_BENCH_H
#define FDD_TESTS_BENCH_GPU_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/fdk.h"

#define OK(e) \
    do { \
        int rc_ = (e); \
        if (rc_ != 0) { \
            (void)fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #e, rc_); \
            exit(1); \
        } \
    } while (0)

static const struct fdk_ops *const ops = &fdk_ops_cuda;

struct gpu_bench {
    struct fdk_ctx *ctx;
    fdk_stream_t st;
    fdk_event_t ev[2];
    struct fdk_device_info info;
    double read_rate; /* bytes/s: peak read rate, measured at the start */
};
extern struct gpu_bench gb;

/* Returns 0, else the exit status for the program: 77 if there is no GPU. */
int gb_open(const char *program, const struct fdk_open_args *args);
void *gb_device(size_t bytes);
void gb_upload(void *dst, const void *src, size_t bytes);
/* Fills device memory with 32-bit numbers: random bits where `keep` has
 * ones, then or'ed with `with`. */
void gb_fill(void *dst, size_t bytes, uint32_t keep, uint32_t with);
/* Ends the recording and replays it several times. Returns the seconds of the fastest
 * replay, divided by the n operations recorded in it. */
double gb_replay(size_t n);

#endif
