/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The step trace in fdctl: a copy of the ring, taken while the worker writes to it,
 * reduced by filters, then printed as tables, JSON or Trace Event JSON.
 *
 *   trace/trace.c     the command and its options; --follow
 *   trace/read.c      copies, filters; no output
 *   trace/show.c      sums, tables and JSON
 *   trace/perfetto.c  Trace Event JSON
 *
 * Times: CLOCK_MONOTONIC, ns, unless a name says otherwise. A step's number is its number
 * in the ring (trc_step.seq), which a new worker continues.
 */
#ifndef FDD_TOOLS_FDCTL_TRACE_TRACE_H
#define FDD_TOOLS_FDCTL_TRACE_TRACE_H

#include "tools/fdctl/lib/fct.h"

#define FTR_NONE UINT64_MAX

struct ftr_step {
    struct trc_step s;
    uint64_t gap_ns; /* device's idle time before it; FTR_NONE: there was no work,
                                or the step before it is not known */
    int lost;        /* its worker ended before it was collected */
};

struct ftr_clock {
    uint64_t mono_ns, real_ns;
}; /* the same moment on two clocks */

#define FTR_BASES 32
struct ftr_base {
    uint32_t generation;
    uint64_t base;
}; /* base: a step's number in the ring - its worker's own number (epoch) */

struct ftr_snap {
    struct ftr_step *steps; /* sorted by number */
    size_t n_step;
    struct trc_event *events;
    size_t n_event;
    uint64_t lost_steps, lost_events; /* overwritten while reading */
    uint64_t torn_steps, torn_events; /* left incomplete by a worker that died */
    struct ftr_clock clock;
    int ended;                        /* the daemon has ended */
    uint32_t generation;              /* of the current worker; 0: not known */
    struct ftr_base bases[FTR_BASES]; /* of the last workers, newest first */
    size_t n_base;
};

/* Copy the ring, steps from first_step on; ftr_free() frees it. Returns 0 or -ENOMEM. */
int ftr_read(const struct trc_seg *seg, uint64_t first_step, struct ftr_snap *ret_snap);
/* Append steps first..last to snap->steps, which has room for last - first + 1 more. Adds
 * to n_step, lost_steps and torn_steps. */
void ftr_read_steps(const struct trc_seg *seg, uint64_t first, uint64_t last,
    struct ftr_snap *snap);
/* Fill in gap_ns, lost and bases; the caller has set generation and ended. */
void ftr_derive(struct ftr_snap *snap);
void ftr_free(struct ftr_snap *snap);

struct ftr_filter {
    uint64_t since_ns, until_ns; /* 0 and FTR_NONE: any time */
    uint64_t step_a, step_b;     /* 0 and FTR_NONE: any step */
    uint64_t slow_ns;   /* steps with a longer device time or gap; FTR_NONE: all */
    uint64_t request;   /* 0: all */
    uint64_t last;      /* keep only this many of the newest; 0: all */
    int whole_requests; /* all events of each request that was alive in the time
                                        chosen, sorted by request */
};
#define FTR_ALL \
    { \
        .until_ns = FTR_NONE, .step_b = FTR_NONE, .slow_ns = FTR_NONE \
    }
/* Reduce the steps and events to those that match. */
void ftr_filter(struct ftr_snap *snap, const struct ftr_filter *f);
int ftr_match_step(const struct ftr_step *s, const struct ftr_filter *f);
int ftr_match_event(const struct trc_event *e, const struct ftr_filter *f);

/* Parse "5s" (ago) or HH:MM:SS[.fraction] of the last 24 hours. Returns 0 or EX_USAGE. */
int ftr_time(const char *what, const char *text, const struct ftr_clock *now,
    uint64_t *ret_ns);
uint64_t ftr_real_ns(const struct ftr_clock *c, uint64_t t_ns);
/* HH:MM:SS.uuuuuu, local time. Returns ret. */
const char *ftr_time_text(const struct ftr_clock *c, uint64_t t_ns, char ret[32]);
/* ftr_time_text() into a temporary that lives as long as the enclosing block. */
#define FTR_TIME(c, t_ns) ftr_time_text(c, t_ns, (char[32]){ 0 })
/* b - a, 0 if it would be negative. */
uint64_t ftr_span(uint64_t a, uint64_t b);
#define FTR_US(ns) ((double)(ns) / 1e3)
/* Compare a with b, then c with d. ftr_by_request(): events by request, then number. */
int ftr_order(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
int ftr_by_request(const void *a, const void *b);

/* ---- one request ---------------------------------------------------------------- */

struct ftr_life { /* a request's history, from its events; FTR_NONE: not known */
    uint64_t id;
    uint64_t t_submit, t_start, t_first, t_end;
    uint64_t preempted_ns; /* sum over its samples */
    uint32_t n_preempted;
    int32_t n_out, code; /* valid if t_end is known */
    uint32_t generation; /* of its last worker */
    uint64_t from, to;   /* first and last step on that worker, by the worker's numbers */
    int lost;            /* its worker ended before the request did */
};
/* Returns 0, or -ENOENT if there is no event of request id. */
int ftr_life(const struct ftr_snap *snap, uint64_t id, struct ftr_life *ret_life);
/* The steps from..to by their numbers in the ring. Returns 0, or -ENOENT and FTR_NONE. */
int ftr_life_steps(const struct ftr_snap *snap, const struct ftr_life *l, uint64_t *ret_a,
    uint64_t *ret_b);
/* The number in the ring of the worker's step epoch; FTR_NONE: not known. */
uint64_t ftr_number(const struct ftr_snap *snap, uint32_t generation, uint64_t epoch);

/* ---- output --------------------------------------------------------------------- */

const char *ftr_kind(const struct trc_event *e);
/* Name of an FDP_E_* code, "ok" for 0. */
const char *ftr_code(int code);
/* Print the heading of the table of events, or of steps. */
void ftr_show_head(int events, int generations);
void ftr_show_step(const struct ftr_clock *c, const struct ftr_step *s, int generations);
void ftr_show_event(const struct ftr_snap *snap, const struct trc_event *e);
/* Print the line of sums; chosen: the steps are not consecutive, so without rates. */
int ftr_show_sum(const struct ftr_step *steps, size_t n, int chosen);
void ftr_show_life(const struct ftr_snap *snap, const struct ftr_life *l);
/* Return new references, NULL without memory. The first two have only the counts of a
 * step and the facts of an event's kind; the last two add the step's times, and the
 * event's time and request. */
json_t *ftr_counts_json(const struct ftr_step *s);
json_t *ftr_facts_json(const struct trc_event *e);
json_t *ftr_step_json(const struct ftr_clock *c, const struct ftr_step *s);
json_t *ftr_event_json(const struct ftr_snap *snap, const struct trc_event *e);
/* Sums over steps. span_us ends with the last step; it begins at the end of the step
 * before the first, or at the first's pick if it waited for work. p99 is the nearest
 * rank, gaps are of the steps that have one, ahead is the time from pick to begin. */
json_t *ftr_sum(const struct ftr_step *steps, size_t n);
json_t *ftr_json(const struct ftr_snap *snap, const struct ftr_life *life);
/* Write Trace Event JSON; sorts the events. Returns 0, -ENOMEM, or -errno of writing. */
int ftr_perfetto(FILE *out, struct ftr_snap *snap);

#endif
