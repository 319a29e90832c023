/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fdd-worker process: everything it holds. main.c fills it in the order
 * of the members and takes it down in reverse.
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
    struct cnt_seg *stat; /* the gate's segment, or own when there is none */
    int stat_mapped;
    struct trc_seg *trc_seg; /* NULL: started without */
    struct trc trc;
    struct par par;  /* as it was at the start */
    struct par next; /* of the last reload; main thread */
    struct mdl_config cfg;
    struct mdl_program *prog;
    struct wts_plan *wp;   /* NULL: null model */
    struct io_uring *ring; /* [n_ring], confine.h; until the weights are there */
    int n_ring;
    struct tok *tok; /* NULL: ids only */
    char tok_path[PAR_STR_BYTES];
    struct files *files;
    struct dvc devs;                   /* of device.list */
    int32_t first_dev;                 /* which of them rank 0 has; the others follow */
    int dev_lock[DVL_MAX], n_dev_lock; /* devlock.h; never given back before the end */
    struct runner *run;
    struct cap cap; /* sizes with a graph, as planned at the start */
    int use_graph;
    struct mpl mpl;                      /* every buffer, before it was made */
    struct fdk_kv kv[FDK_MAX_KV_GROUPS]; /* of the program's KV groups */
    float *kv_scale; /* the checkpoint's, until run_setup(); or NULL */
    int32_t n_block, n_host, max_len;
    struct pfx_key key; /* of the prefix cache */
    uint64_t load_ns;
    struct lnk_ready ready;
    struct pipeline *pip;
    struct admin *admin;
    struct peak_cache peak;     /* admin thread, */
    int peak_busy;              /* and whether the last ones were measured under load */
    int peak_fixed;             /* what is known of them stays: adm_measure() */
    struct fdk_group_ways ways; /* up to which sizes sums over ranks go which way */
    double link_bps;            /* of another rank's memory, 0: not measured */
};

/* load.c: program, device, weights, KV plan, runner. 0, or an exit status of
 * sysexits.h with one line in err that names cause and fix. */
int wrk_load(struct worker *w, char *err, size_t err_bytes);
void wrk_unload(struct worker *w);
/* Of the parameters: how devices are opened, but for the cache folder; how
 * weights are read; what the plan of memory starts from, but for device and
 * layout. */
struct wrk_open {
    struct run_open_args a;
    int32_t device[DVL_MAX]; /* of a */
    int32_t rank[FDK_MAX_RANKS];
    const char *name[DVL_MAX];
};
void wrk_open_args(const struct worker *w, struct wrk_open *to);
void wrk_load_args(struct worker *w, struct wts_load_args *ret);
void wrk_plan_args(struct worker *w, struct mpl_in *ret);
/* load_sums.c: several ranks' collectives are checked, and the ways of their sums chosen,
 * or taken from the cache folder. 0 or -errno with one line in err. */
int wrk_load_sums(struct worker *w, char *err, size_t err_bytes);
/* How sums go, for status. */
void wrk_sums_text(const struct worker *w, char *ret, size_t ret_bytes);
/* Its parts. The file of a group like this one; -ENOENT: there is no folder. */
int wrk_sums_path(const struct worker *w, char *ret, size_t ret_bytes);
/* What a file says: 0, -ENOENT, or -EINVAL for one that makes no sense. */
int wrk_sums_read(const char *path, struct fdk_group_ways *ret);
int wrk_sums_write(const char *path, const struct fdk_group_ways *ways);

/* load_shape.c: engine shape from parameters and the KV plan. */
void wrk_eng_cfg(const struct worker *w, struct eng_cfg *ret);
/* Blocks of a KV group that a sequence holds at most, 0: as many as its tokens fill. */
int32_t wrk_kv_most(const struct worker *w, const struct eng_cfg *ec, int32_t group);
/* What graph.* asks for. -EINVAL with one line in err. */
int wrk_capture(const struct worker *w, const struct par *p, int *ret_use_graph,
    struct cap *ret, char *err, size_t err_bytes);

/* Devices that compute: parallel.tensor_parallel_size of each copy. */
int32_t wrk_n_rank(const struct worker *w);
/* Copies of the model among them, each of as many. */
int32_t wrk_n_copy(const struct worker *w);
/* Do ranks share the host's memory in place of each other's? */
int wrk_meets_in_host(const struct worker *w);
/* Is this the echo model? */
int wrk_is_null(const struct worker *w);
/* Does the model run on the host? auto: as the runner takes it. */
int wrk_on_cpu(const struct worker *w);
/* Which devices device.list means, and their locks; sets devs, first_dev and a
 * definite par.device_backend. Takes no memory of a device. 0 or -errno with one
 * line in err. */
int wrk_claim_device(struct worker *w, char *err, size_t err_bytes);

/* load_memory.c, with a device open. Before anything is allocated: mpl, kv,
 * n_block, n_host, max_len. */
int wrk_plan_memory(struct worker *w, char *err, size_t err_bytes);
/* Graphs are recorded: the KV pool gets its memory, and all memory taken is
 * compared with the plan (panics). */
int wrk_settle_memory(struct worker *w, char *err, size_t err_bytes);
void wrk_log_memory(const struct worker *w);
/* What the workers of all groups need of the machine, by the plan of this one: bytes, of them
 * those of kv.swap_space, and threads. */
struct wrk_need {
    uint64_t bytes, pinned, tasks;
};
void wrk_host_need(const struct worker *w, struct wrk_need *ret);
/* As kv.dtype says it. */
const char *wrk_kv_dtype_name(enum fdk_dtype t);

/* Resolved ipc.spin_us. */
int32_t wrk_spin_us(const struct par *p);

#endif
