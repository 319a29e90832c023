/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fdd-worker process: all its state. main.c fills it in the order of the members
 * and takes it down in reverse.
 */
#ifndef FDD_DAEMON_WORKER_WORKER_H
#define FDD_DAEMON_WORKER_WORKER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/counter.h"
#include "daemon/common/link.h"
#include "daemon/common/param.h"
#include "daemon/common/trace.h"
#include "daemon/worker/devices.h"
#include "daemon/worker/peak.h"
#include "daemon/worker/memplan.h"
#include "daemon/worker/pipeline.h"
#include "daemon/worker/runner.h"

struct tok;
struct files;
struct admin;
struct io_uring;
struct wts_load_args;

struct worker {
    uint32_t magic;
#define WRK_MAGIC 0x57524b31u
    int link_fd, event_fd, admin_fd, stat_fd;
    pid_t gate;
    struct lnk_seg *seg;
    struct lnk lnk;
    struct cnt_seg *stat; /* the gate's segment, or an own one without a gate */
    int stat_mapped;
    struct trc_seg *trc_seg; /* NULL: no trace */
    struct trc trc;
    struct par par;  /* parameters at the start */
    struct par next; /* parameters of the last reload; main thread */
    struct mdl_config cfg;
    struct mdl_program *prog;
    struct wts_plan *wp;   /* NULL: null model */
    struct io_uring *ring; /* [n_ring], confine.h; closed once the weights are loaded */
    int n_ring;
    struct tok *tok; /* NULL: ids only */
    char tok_path[PAR_STR_BYTES];
    struct files *files;
    struct dvc devs;                   /* devices of device.list */
    int32_t first_dev;                 /* the device in devs of rank 0; the other ranks'
                                          follow */
    int dev_lock[DVL_MAX], n_dev_lock; /* devlock.h; not released before the end */
    struct runner *run;
    struct cap cap; /* sizes to capture, as planned at the start */
    int use_graph;
    struct mpl mpl;                      /* the memory plan, made before any allocation */
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* by KV group of the program */
    float *kv_scale; /* the checkpoint's scales, until run_setup(); or NULL */
    int32_t n_block, n_host, max_len;
    struct pfx_key key; /* hash key of the prefix cache */
    uint64_t load_ns;
    struct lnk_ready ready;
    struct pipeline *pip;
    struct admin *admin;
    struct peak_cache peak;     /* measured peaks; admin thread */
    int peak_busy;              /* 1: the last peaks were measured under load */
    int peak_fixed;             /* 1: the peaks are not measured again: adm_measure() */
    struct fdk_group_ways ways; /* the sizes up to which each way of summing over ranks
                                   is used */
    double link_bps;            /* bandwidth to another rank's memory, bytes/s; 0: not
                                   measured */
};

/* load.c: load program, device, weights, KV plan, runner. Returns 0, or an exit status
 * of sysexits.h with one line in err that names cause and fix. */
int wrk_load(struct worker *w, char *err, size_t err_bytes);
void wrk_unload(struct worker *w);
/* Arguments made from the parameters: to open devices, without the cache folder; to
 * read weights; and to plan memory, without device and layout. */
struct wrk_open {
    struct run_open_args a;
    int32_t device[DVL_MAX]; /* storage for pointers in a */
    int32_t rank[FDK_MAX_RANKS];
    const char *name[DVL_MAX];
};
void wrk_open_args(const struct worker *w, struct wrk_open *to);
void wrk_load_args(struct worker *w, struct wts_load_args *ret);
void wrk_plan_args(struct worker *w, struct mpl_in *ret);
/* load_sums.c: with several ranks, check their collectives and choose how they sum, or
 * read the choice from the cache folder. 0 or -errno with one line in err. */
int wrk_load_sums(struct worker *w, char *err, size_t err_bytes);
/* Text for the status: how ranks sum. */
void wrk_sums_text(const struct worker *w, char *ret, size_t ret_bytes);
/* Steps of wrk_load_sums(). The path of the cache file for a group like this one;
 * -ENOENT: there is no folder. */
int wrk_sums_path(const struct worker *w, char *ret, size_t ret_bytes);
/* Read that file. 0, -ENOENT, or -EINVAL if its contents are invalid. */
int wrk_sums_read(const char *path, struct fdk_group_ways *ret);
int wrk_sums_write(const char *path, const struct fdk_group_ways *ways);

/* load_shape.c: engine shape from parameters and the KV plan. */
void wrk_eng_cfg(const struct worker *w, struct eng_cfg *ret);
/* Most blocks of a KV group that a sequence holds; 0: as many as its tokens fill. */
int32_t wrk_kv_most(const struct worker *w, const struct eng_cfg *ec, int32_t group);
/* Read the graph.* parameters. 0, or -EINVAL with one line in err. */
int wrk_capture(const struct worker *w, const struct par *p, int *ret_use_graph,
    struct cap *ret, char *err, size_t err_bytes);

/* Number of devices that compute: parallel.tensor_parallel_size for each copy. */
int32_t wrk_n_rank(const struct worker *w);
/* Number of copies of the model, which these devices are divided into. */
int32_t wrk_n_copy(const struct worker *w);
/* Do ranks exchange data in host memory instead of each other's device memory? */
int wrk_meets_in_host(const struct worker *w);
/* Is this the echo model? */
int wrk_is_null(const struct worker *w);
/* Does the model run on the host? auto is resolved as the runner does. */
int wrk_on_cpu(const struct worker *w);
/* Resolve device.list and lock the devices; sets devs, first_dev and a definite
 * par.device_backend. Takes no device memory. 0 or -errno with one line in err. */
int wrk_claim_device(struct worker *w, char *err, size_t err_bytes);

/* load_memory.c, with an open device, before any allocation: plan mpl, kv, n_block,
 * n_host and max_len. */
int wrk_plan_memory(struct worker *w, char *err, size_t err_bytes);
/* After graph capture: allocate the KV pool, and compare all memory taken with the plan
 * (panics). */
int wrk_settle_memory(struct worker *w, char *err, size_t err_bytes);
void wrk_log_memory(const struct worker *w);
/* What the workers of all groups need of the machine, computed from this worker's plan:
 * bytes of memory, pinned bytes among them for kv.swap_space, and threads. */
struct wrk_need {
    uint64_t bytes, pinned, tasks;
};
void wrk_host_need(const struct worker *w, struct wrk_need *ret);
/* Processors that this process may use. */
int32_t wrk_processors(void);
/* The name of t as in kv.dtype. */
const char *wrk_kv_dtype_name(enum fdk_dtype t);

/* Resolved ipc.spin_us. */
int32_t wrk_spin_us(const struct par *p);

#endif
