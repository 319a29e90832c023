/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "daemon/common/clk.h"
#include "daemon/common/harden.h"
#include "daemon/common/log.h"
#include "daemon/common/mem.h"
#include "daemon/common/obj.h"
#include "daemon/common/slice.h"
#include "daemon/common/version.h"
#include "daemon/worker/admin.h"
#include "daemon/worker/confine.h"
#include "daemon/worker/worker.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

static const char usage[] =
    "usage: fdd-worker --check DIR\n"
    "       fdd-worker --link-fd N --event-fd N --admin-fd N [--stat-fd N]\n"
    "                  [--trace-fd N]\n"
    "\n"
    "Runs the model for fdd, which starts it with the second form.\n"
    "\n"
    "  --check DIR   check a model directory and report; needs no daemon\n"
    "  --help        this text\n"
    "  --version     version\n"
    "\n"
    "Exit status: 0, 64 wrong usage, 66 no such model, 69 no device, 71 out of\n"
    "memory or I/O error, 77 no permission, 78 configuration or model refused.\n";

struct args {
    const char *check;
    int fd[5];
};

static int
parse_fd(const char *s)
{
    char *end;
    long v = strtol(s, &end, 10);

    return *end == '\0' && end != s && v >= 0 && v < 1 << 20 ? (int)v : -1;
}

/* Returns 0 to go on, -1 if the program is done, else an exit status. */
static int
parse_args(int argc, char **argv, struct args *a)
{
    static const struct option opts[] = { { "link-fd", 1, NULL, 0 },
        { "event-fd", 1, NULL, 1 }, { "admin-fd", 1, NULL, 2 }, { "stat-fd", 1, NULL, 3 },
        { "trace-fd", 1, NULL, 4 }, { "check", 1, NULL, 'c' }, { "help", 0, NULL, 'h' },
        { "version", 0, NULL, 'V' }, { NULL, 0, NULL, 0 } };
    int c;

    while ((c = getopt_long(argc, argv, "hV", opts, NULL)) != -1) {
        switch (c) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
            a->fd[c] = parse_fd(optarg);
            if (a->fd[c] < 0) {
                (void)fprintf(stderr, "fdd-worker: %s is not a descriptor\n", optarg);
                return EX_USAGE;
            }
            break;
        case 'c':
            a->check = optarg;
            break;
        case 'h':
            (void)fputs(usage, stdout);
            return -1;
        case 'V':
            (void)printf("fdd-worker %s\n", ver_text());
            return -1;
        default:
            (void)fputs(usage, stderr);
            return EX_USAGE;
        }
    }
    if (optind < argc || (a->check == NULL && (a->fd[0] < 0 || a->fd[1] < 0))) {
        (void)fputs(usage, stderr);
        return EX_USAGE;
    }
    return 0;
}

/* ---- the gate's side --------------------------------------------------------------------- */

static int
open_stat(struct worker *w)
{
    size_t bytes = (w->seg->group + 1u) * sizeof(struct cnt_seg);
    struct cnt_seg *p;
    struct stat st;

    if (w->stat_fd >= 0 && fstat(w->stat_fd, &st) == 0 && st.st_size >= (off_t)bytes) {
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->stat_fd, 0);
        if (p != MAP_FAILED && cnt_fits(&p[w->seg->group])) {
            w->stat = &p[w->seg->group];
            w->stat_mapped = 1;
            return 0;
        }
        if (p != MAP_FAILED)
            (void)munmap(p, bytes);
    }
    w->stat = mem_aligned(_Alignof(struct cnt_seg), sizeof(struct cnt_seg));
    return w->stat != NULL ? 0 : -ENOMEM;
}

static int
join_gate(struct worker *w, const struct args *a)
{
    int rc;

    w->link_fd = a->fd[0];
    w->event_fd = a->fd[1];
    w->admin_fd = a->fd[2];
    w->stat_fd = a->fd[3];
    rc = lnk_join(w->link_fd, &w->seg);
    if (rc != 0) {
        (void)fprintf(stderr,
            "fdd-worker: --link-fd %d is no link segment of this "
            "version: %s\n",
            w->link_fd, strerror(-rc));
        return EX_USAGE;
    }
    w->gate = (pid_t)w->seg->gate_pid;
    /* the gate may have died before prctl took effect */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != w->gate)
        return EX_TEMPFAIL;
    lnk_init_worker(&w->lnk, w->seg, w->event_fd);
    if (lnk_get_par(w->seg, &w->par) != 0)
        return EX_TEMPFAIL;
    log_init("fdd-worker", NULL);
    (void)log_apply(w->par.log_level, w->par.log_levels, w->par.log_format, w->par.log_rate);
    if (w->par.log_debug[0] != '\0')
        (void)log_set_debug(w->par.log_debug, NULL, 0);
    log_mute(w->seg->is_quiet != 0);
    pan_install(w->seg->panic, sizeof(w->seg->panic));
    if (open_stat(w) != 0)
        return EX_OSERR;
    memset(&w->stat->w, 0, sizeof(w->stat->w));
    memset(w->stat->h, 0, sizeof(w->stat->h));
    if (a->fd[4] >= 0 && trc_join(a->fd[4], &w->trc_seg) != 0) {
        (void)fprintf(stderr, "fdd-worker: --trace-fd %d is no trace of this version\n",
            a->fd[4]);
        return EX_USAGE;
    }
    log_count(&w->stat->w.log_dropped);
    trc_init(&w->trc, w->trc_seg, (uint32_t)w->seg->generation);
    w->stat->worker_pid = (int32_t)getpid();
    if (log_start(&w->seg->log) != 0)
        log_warn("log: no writer thread; a slow reader of the log will block the worker");
    return 0;
}

/* Restrict the process before it reads the first byte of a model. If the kernel refuses a
 * restriction, the worker logs it and serves all the same. */
static void
confine(struct worker *w)
{
    int rc = 0;

    if (w != NULL && w->par.model_load_uring && !wrk_is_null(w))
        w->ring = cfn_rings_new(WTS_MAX_RINGS, WTS_RING_ENTRIES, &w->n_ring);
    if (!hdn_is_open())
        rc = hdn_no_dump();
    if (rc == 0 && !hdn_is_open())
        rc = cfn_filter(CFN_LOAD);
    if (rc != 0)
        log_warn("worker: this process may do more than it should, if it is taken over: %s",
            strerror(-rc));
}

/* Restrict the process further once all files are read, or reading them has failed. */
static void
confine_more(struct worker *w)
{
    int rc = 0;

    w->ring = cfn_rings_free(w->ring, w->n_ring);
    w->n_ring = 0;
    if (!hdn_is_open())
        rc = cfn_filter(CFN_SERVE);
    if (rc != 0)
        log_warn("worker: io_uring stays open to what takes this process over: %s",
            strerror(-rc));
}

static void
set_phase(struct worker *w, enum lnk_phase ph)
{
    __atomic_store_n(&w->seg->w.phase, (uint32_t)ph, __ATOMIC_RELEASE);
    /* called only before the threads start and after they end: no other thread writes the
     * ring then */
    if (lnk_claim(&w->lnk, 0, LNK_T_STATE, 0, 0, 0) != NULL)
        lnk_flush(&w->lnk);
}

static int
fail(struct worker *w, int status, const char *err)
{
    log_error("worker: %s", err);
    (void)snprintf(w->seg->w.error, sizeof(w->seg->w.error), "%s", err);
    set_phase(w, LNK_PH_FAILED);
    return status;
}

/* Apply p's parameters for graphs; the engine does so when no other step is in flight.
 * Returns 0, or 1: try again, the previous change is still under way. */
static int
reload_graphs(struct worker *w, const struct par *p)
{
    struct cap cap;
    char err[256] = "";
    int use_graph = 0, rc;

    if (p->graph_use_cudagraph == w->par.graph_use_cudagraph &&
        strcmp(p->graph_capture_sizes, w->par.graph_capture_sizes) == 0)
        return 0;
    rc = wrk_capture(w, p, &use_graph, &cap, err, sizeof(err));
    if (rc != 0) {
        log_error("worker: graphs stay as they are: %s", err);
        return 0;
    }
    if (eng_set_graph(w->pip->eng, use_graph, &cap) != 0)
        return 1;
    w->par.graph_use_cudagraph = p->graph_use_cudagraph;
    (void)snprintf(w->par.graph_capture_sizes, sizeof(w->par.graph_capture_sizes), "%s",
        p->graph_capture_sizes);
    pip_ring_engine(w->pip);
    return 0;
}

static struct ing_limits
limits(const struct par *p)
{
    return (struct ing_limits){ .max_logprobs = par_max_logprobs(p),
        .default_max_tokens = p->output_default_max_tokens,
        .max_waiting_ms = p->sched_max_waiting_time_ms };
}

/* Apply new parameters after LNK_T_RELOAD. */
static void
reload(struct worker *w)
{
    const struct par *p = &w->next;
    struct ing_limits l;

    /* retry while the gate is writing the parameters */
    while (lnk_get_par(w->seg, &w->next) != 0 && !pip_stopped(w->pip))
        clk_sleep_ns(CLK_MS);
    /* keep the value, which the model may have limited */
    w->next.sched_max_num_batched_tokens = w->par.sched_max_num_batched_tokens;
    (void)log_apply(p->log_level, p->log_levels, p->log_format, p->log_rate);
    (void)log_set_debug(p->log_debug, NULL, 0);
    l = limits(p);
    ing_set_limits(w->pip->ing, &l);
    while (reload_graphs(w, p) && !pip_stopped(w->pip))
        clk_sleep_ns(CLK_MS);
    log_info("worker: parameters reloaded");
}

static void
pip_config(struct worker *w, struct pip_cfg *ret)
{
    const struct fdp_info *in = &w->ready.info;
    const struct par *p = &w->par;

    *ret = (struct pip_cfg){ .lnk = &w->lnk,
        .run = w->run,
        .tok = w->tok,
        .ready = &w->ready,
        .cnt = &w->stat->w,
        .hist = w->stat->h,
        .trc = &w->trc,
        .spin_ns = (uint64_t)wrk_spin_us(p) * CLK_US,
        .ing = { .max_reqs = (uint32_t)p->sched_max_concurrency,
            .vocab = w->cfg.vocab,
            .max_len = w->max_len,
            .n_eos = w->cfg.n_eos,
            .max_logprobs = par_max_logprobs(p),
            .default_max_tokens = p->output_default_max_tokens,
            .max_waiting_ms = p->sched_max_waiting_time_ms,
            .block_size = (int32_t)p->kv_block_size,
            .key = w->key,
            .files = w->files,
            .prefix = p->kv_enable_prefix_caching != 0 } };
    ret->ing.rope_from = mdl_rope_from(&w->cfg, &ret->ing.rope_each);
    memcpy(ret->ing.eos, w->cfg.eos, sizeof(ret->ing.eos));
    ret->ing.dflt = (struct ing_defaults){ .temperature = in->temperature,
        .top_p = in->top_p,
        .min_p = in->min_p,
        .top_k = in->top_k,
        .repetition_penalty = in->repetition_penalty };
    wrk_eng_cfg(w, &ret->eng);
    ret->ing.n_penalty = ret->eng.sch.n_penalty;
}

/* Budget of priming, which delays "ready". */
#define PRIME_NS     (250 * CLK_MS)
#define PRIME_CPU_NS (40 * CLK_MS)

/* Prime the cost model. Not for the null backend, whose steps take no time, nor with lazy
 * capture, which must not capture a graph before a request needs it. */
static int
prime(struct worker *w)
{
    if (w->run->k->echo || w->par.graph_capture != PAR_GRAPH_CAPTURE_EAGER)
        return 0;
    return eng_prime(w->pip->eng, wrk_on_cpu(w) ? PRIME_CPU_NS : PRIME_NS);
}

/* Largest value of parallel.context_parallel_min_tokens. */
#define MOST_SPLIT 1048576

/* Log and publish the bat.min_split that priming has measured. */
static void
say_split(struct worker *w)
{
    struct lnk_worker_state *ws = &w->seg->w;
    size_t n = strlen(ws->effective);
    int32_t least = eng_min_split(w->pip->eng);

    if (wrk_n_copy(w) == 1)
        return;
    if (least == INT32_MAX)
        log_warn("worker: dividing prompts among %d copies was not faster for any number of "
                 "tokens measured, so that none is divided; "
                 "parallel.context_parallel_min_tokens sets a number",
            wrk_n_copy(w));
    else
        log_info("worker: %d copies divide prompts of which a step computes %d tokens or more",
            wrk_n_copy(w), least);
    if (least == INT32_MAX)
        (void)snprintf(ws->copies, sizeof(ws->copies), "never");
    else
        (void)snprintf(ws->copies, sizeof(ws->copies),
            "when a step computes %d or more tokens of one prompt", least);
    (void)snprintf(ws->effective + n, sizeof(ws->effective) - n,
        "parallel.context_parallel_min_tokens=%d\n",
        least < MOST_SPLIT ? least : MOST_SPLIT);
}

static int
run(struct worker *w)
{
    struct pip_cfg pc;
    char err[sizeof(w->seg->w.error)] = "";
    int rc;

    set_phase(w, LNK_PH_LOAD);
    confine(w);
    rc = wrk_load(w, err, sizeof(err));
    if (rc != 0 && w->wp != NULL)
        wts_load_stop(w->wp); /* readers in the background use the rings */
    confine_more(w);
    if (rc != 0)
        return fail(w, rc, err);
    pip_config(w, &pc);
    rc = pip_new(&pc, &w->pip, err, sizeof(err));
    if (rc != 0)
        return fail(w, rc == -ENOMEM ? EX_OSERR : EX_CONFIG, err);
    rc = prime(w);
    if (rc != 0)
        return fail(w, EX_OSERR, run_error(w->run));
    adm_measure(w);
    say_split(w);
    __atomic_store_n(&w->seg->w.beat.activity, (uint32_t)LNK_ACT_SERVE, __ATOMIC_RELAXED);
    log_mute(0);
    set_phase(w, LNK_PH_READY);
    pip_ready(w->pip);
    rc = pip_start(w->pip);
    if (rc != 0)
        return fail(w, EX_OSERR, "cannot start threads");
    if (w->admin_fd >= 0)
        w->admin = adm_new(w);
    log_info("worker: ready");
    while (pip_wait_reload(w->pip))
        reload(w);
    pip_join(w->pip);
    w->admin = adm_free(w->admin);
    set_phase(w, LNK_PH_EXIT);
    log_info("worker: drained");
    return 0;
}

int
main(int argc, char **argv)
{
    struct args a = { .fd = { -1, -1, -1, -1, -1 } };
    struct worker *w;
    int logs, rc = parse_args(argc, argv, &a);

    if (rc != 0)
        return rc < 0 ? 0 : rc;
    (void)hdn_no_new_privs();
    if (a.check != NULL) {
        confine(NULL);
        return wts_check_dir(a.check, stdout);
    }
    cfn_oom_raise();
    (void)slc_set(SLC_WORKER_NS);
    (void)signal(SIGPIPE, SIG_IGN);
    /* Ctrl-C in the terminal is handled by the gate, which drains the worker. */
    (void)signal(SIGINT, SIG_IGN);
    OBJ_ALLOC(w, WRK_MAGIC);
    if (w == NULL)
        return EX_OSERR;
    rc = join_gate(w, &a);
    if (rc == 0)
        rc = run(w);
    if (w->pip == NULL || w->pip->n_thread == 0) {
        w->pip = pip_free(w->pip);
        wrk_unload(w);
    }
    logs = log_fini();
    if (w->stat != NULL && w->stat_mapped)
        (void)munmap(w->stat - w->seg->group, (w->seg->group + 1u) * sizeof(*w->stat));
    else
        free(w->stat);
    trc_leave(w->trc_seg);
    if (logs == 0) /* not 0: the log thread hangs and may still use the segment */
        lnk_leave(w->seg);
    OBJ_FREE(w, WRK_MAGIC);
    return rc;
}
