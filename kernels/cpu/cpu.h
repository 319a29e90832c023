/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual device of the cpu and null backends: declarations shared by kernels/cpu and
 * kernels/null.c, and hooks for tests.
 *
 * A stream is a FIFO of commands with their arguments by value. The context's enum
 * fdk_exec determines which thread executes them:
 *   THREAD   one thread per stream, with the device's pool; a delay spins
 *   INLINE   the caller, at the launch; a delay only moves the time at
 *            which the stream's events count as complete
 *   DEFER    the thread that waits or calls fdk_vdev_step(); a delay takes
 *            no time and only moves the result of event_ns(). A waiter runs only
 *            what it waits for: its stream up to that command, and the commands of
 *            other streams on which these depend. A full queue runs its
 *            oldest command. event_query() runs nothing.
 *
 * Threads: any thread may call any function, but only one thread captures a
 * stream, and a handle is not freed while another call uses it. Launchers do
 * not allocate, except during a capture, which grows the graph.
 *
 * A device fails once and for good: cpu_fail() keeps the first text; from
 * then on commands are skipped, but events still complete, so that no
 * thread hangs on a dead device.
 */
#ifndef FDD_KERNELS_CPU_CPU_H
#define FDD_KERNELS_CPU_CPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/collective.h"
#include "kernels/fdk.h"

/* ---- hooks for tests (cpu and null contexts) ----------------------------- */

/* The device fails when it executes its n-th command from now (1 = the next
 * operation, copy or fill; events and waits do not count); 0 disarms. */
void fdk_cpu_fail_after(struct fdk_ctx *ctx, int dev, int64_t n);
/* Limits the bytes allocated by mem_alloc and mem_map; 0 = no limit. */
void fdk_cpu_limit_memory(struct fdk_ctx *ctx, int dev, uint64_t bytes);
/* Bytes allocated now. */
uint64_t fdk_cpu_memory_used(struct fdk_ctx *ctx, int dev);
/* Contexts opened later use the instruction set of that name ("generic", "avx2",
 * "avx512"); NULL: the best one again. Returns 0, or -ENOTSUP if the machine or the build
 * lacks it. Not thread-safe. */
int fdk_cpu_isa_force(const char *name);
/* Called on the thread of a rank's stream before it signals the others in a piece of a
 * collective (pieces are numbered from 1, stage 0 or 1; met = 0), and after it has
 * synchronized with them (met = 1). If it returns not 0 with met = 0, the rank's device
 * fails without signalling the others. Set it while no collective runs. */
typedef int fdk_cpu_meet_fn(void *arg, int rank, int stage, uint64_t piece, int met);
void fdk_cpu_group_hook(struct fdk_group *g, fdk_cpu_meet_fn *fn, void *arg);
/* Sets the number of the group's last piece. Call it while no collective runs. */
void fdk_cpu_group_seq(struct fdk_group *g, uint64_t seq);
/* The token that the null backend samples after this input token (see kernels/null.c). */
int32_t fdk_null_token(int32_t input, int32_t pos, int32_t V);

/* ---- weights ------------------------------------------------------------- */

/* Quantizes a row: n weights of type t (F32, F16, BF16) at src become fdk_row_bytes(to,
 * n) bytes at dst and one scale per group of 1..n elements. The buffers do not overlap;
 * src and dst need no alignment. Returns 0, or -EDOM if a weight is not finite: *ret_at
 * is its index, dst and scale are undefined. */
int cpu_quant_row(void *dst, float *scale, const void *src, enum fdk_dtype t, int32_t n,
    enum fdk_dtype to, int32_t group, int32_t *ret_at);

/* ---- operations of other backends ---------------------------------------- */

/* For a backend that extends this one: runs fn(args), with a copy of the `bytes` bytes of
 * args, in the stream's order on its thread. Can be captured. */
#define FDK_CPU_CALL_BYTES 184
int fdk_cpu_call(fdk_stream_t st, void (*fn)(const void *args), const void *args,
    size_t bytes);

/* ---- worker pool --------------------------------------------------------- */

#define CPU_SCRATCH_BYTES (1u << 20) /* per thread; users assert that it suffices */
#define CPU_CACHELINE     64

struct cpu_pool;
struct cpu_spin;
/* One item of a job; scratch is the executing thread's, uninitialized. */
typedef void cpu_item_fn(const void *arg, int item, void *scratch);

/* Adds to the nice value of the calling thread. */
void cpu_thread_nice(int add);
/* n_thread includes the caller: n_thread - 1 threads are started, with cpu_thread_nice(nice).
 * spin outlives the pool. */
int cpu_pool_new(int n_thread, int nice, struct cpu_spin *spin, struct cpu_pool **ret_pool);
void cpu_pool_free(struct cpu_pool *pool);
/* Runs fn for items 0..n-1 in any order on any thread; returns when all are done.
 * If another stream uses the pool, the caller runs all items itself. */
void cpu_pool_run(struct cpu_pool *pool, cpu_item_fn *fn, const void *arg, int n,
    void *scratch);

/* ---- waiting ------------------------------------------------------------- */

uint64_t cpu_now_ns(void);
void cpu_relax(void);
/* How threads of a context poll before they sleep. They yield between polls, as
 * the awaited thread may need this processor. If a yield returns
 * late, other processes want the processors, and for a while no thread polls: a
 * sleeper is scheduled at once when woken, a poller waits for its time slice. */
struct cpu_spin {
    uint64_t ns; /* longest time of polling */
    _Atomic uint64_t crowded_until;
};
/* A polling thread calls it every few microseconds, with *until 0 at first. Returns 0
 * when the thread should sleep, else 1. */
int cpu_spin_more(struct cpu_spin *spin, uint64_t *until);
/* Waits until (int32_t)(*word - target) >= 0: polls, then sleeps on it. The
 * side that advances it calls cpu_wake() after its seq_cst store; n_wait is accessed
 * seq_cst on both sides, so that no wake-up is lost. */
void cpu_wait_ge(_Atomic uint32_t *word, uint32_t target, _Atomic uint32_t *n_wait,
    struct cpu_spin *spin);
/* cpu_wait_ge() with a timeout at until_ns: 1 reached, 0 not yet. Sleeps until
 * shortly before expect_ns and polls from then; expect_ns 0: polls at once. */
int cpu_wait_ge_until(_Atomic uint32_t *word, uint32_t target, _Atomic uint32_t *n_wait,
    struct cpu_spin *spin, uint64_t expect_ns, uint64_t until_ns);
/* A sleep lasts about this much longer than requested. */
#define CPU_NAP_EARLY_NS 100000
void cpu_nap(uint64_t ns);
void cpu_wake(_Atomic uint32_t *word, _Atomic uint32_t *n_wait);
void cpu_futex_wait(_Atomic uint32_t *word, uint32_t val);
void cpu_futex_wake(_Atomic uint32_t *word);

/* ---- commands ------------------------------------------------------------ */

enum cpu_cmd_op {
    CMD_ROW_UPDATE,
    CMD_ATT_PLAN,
    CMD_EMBED,
    CMD_RMSNORM,
    CMD_GEMM,
    CMD_ROPE_TABLE,
    CMD_QKV,
    CMD_ATTENTION,
    CMD_MERGE,
    CMD_SILU_MUL,
    CMD_SOFTCAP,
    CMD_GATHER,
    CMD_SAMPLE,
    CMD_CALL,
    CMD_ALL_REDUCE,
    CMD_ALL_GATHER,
    CMD_REDUCE_SEND,
    CMD_REDUCE_TAKE,
    CMD_KV_SHARE,
    CMD_ROW_SHARE,
    CMD_COPY,
    CMD_FILL,
    CMD_DELAY,
    CMD_MARK,
    CMD_FAIL,
    CMD_EVENT,
    CMD_WAIT,
    CMD_GRAPH
};

struct cpu_cmd {
    enum cpu_cmd_op op;
    union {
        struct fdk_row_update_args row_update;
        struct fdk_att_plan_args att_plan;
        struct fdk_embed_args embed;
        struct fdk_rmsnorm_args rmsnorm;
        struct fdk_gemm_args gemm;
        struct fdk_rope_table_args rope_table;
        struct fdk_qkv_args qkv;
        struct fdk_attention_args attention;
        struct fdk_merge_args merge;
        struct fdk_silu_mul_args silu_mul;
        struct fdk_softcap_args softcap;
        struct fdk_gather_args gather;
        struct fdk_sample_args sample;
        struct fdk_all_reduce_args all_reduce;
        struct fdk_all_gather_args all_gather;
        struct {
            struct fdk_all_reduce_args args;
            uint64_t seq;
        } ahead;
        struct fdk_kv_share_args kv_share;
        struct fdk_row_share_args row_share;
        struct {
            void (*fn)(const void *args);
            _Alignas(8) unsigned char args[FDK_CPU_CALL_BYTES];
        } call;
        struct {
            void *dst;
            const void *src;
            size_t bytes;
            int byte;
        } mem;
        uint64_t delay_ns;
        struct {
            uint32_t *host;
            const uint32_t *value;
        } mark;
        struct {
            fdk_event_t event;
            uint32_t ticket;
        } ev;
        struct fdk_graph *graph;
    } u;
};

/* ---- objects ------------------------------------------------------------- */

struct cpu_range { /* of mem_reserve */
    struct cpu_range *next;
    char *base;
    size_t bytes;
    size_t n_page;
    uint8_t *mapped; /* [n_page] */
};

struct cpu_dev {
    struct fdk_ctx *ctx;
    int idx;                 /* fdk_open_args.device */
    struct cpu_pool *pool;   /* NULL on the null backend */
    _Atomic uint32_t failed; /* 0, 1 text being written, 2 failed */
    _Atomic int64_t fail_after;
    char text[192];
    pthread_mutex_t mem_lock;
    uint64_t mem_used, mem_limit;
    struct cpu_range *ranges;
};

typedef void cpu_exec_fn(struct CUstream_st *st, const struct cpu_cmd *cmd);

struct fdk_ctx {
    uint32_t magic;
    int n_dev;
    int n_thread, nice;
    int math;           /* 0: the null backend */
    enum fdk_exec mode; /* never FDK_EXEC_DEFAULT */
    struct cpu_spin spin;
    const struct fdk_ops *ops;
    const struct cpu_isa *isa;
    cpu_exec_fn *exec; /* tensor operations */
    struct cpu_dev *dev;
    pthread_mutex_t lock; /* lists below */
    struct CUevent_st *events, *free_events;
    struct CUstream_st *streams; /* oldest first */
    pthread_mutex_t run_lock;    /* DEFER: queues, and the executing thread */
    struct CUstream_st *turn;    /* DEFER: stream of the next command; NULL: the first */
    pthread_mutex_t group_lock;  /* the list below */
    struct fdk_group *groups;
};

struct CUevent_st {
    uint32_t magic;
    struct cpu_dev *dev;
    struct CUevent_st *next; /* all events of the context */
    struct CUevent_st *next_free;
    _Atomic uint32_t issued; /* ticket of the last record */
    _Atomic uint32_t done;   /* ticket last completed */
    _Atomic uint32_t n_wait;
    _Atomic uint64_t ns;
};

struct fdk_graph {
    uint32_t magic;
    struct cpu_dev *dev;
    struct cpu_cmd *cmds;
    size_t n, cap;
    int err;                  /* first error of the capture, returned by graph_end */
    _Atomic uint32_t pending; /* launches not yet executed */
};

#define CPU_QUEUE 1024 /* commands per stream, a power of two */

struct CUstream_st {
    uint32_t magic;
    struct cpu_dev *dev;
    struct CUstream_st *next;
    pthread_t thread;
    struct cpu_cmd *ring;      /* [CPU_QUEUE]; NULL if INLINE */
    void *scratch;             /* of the executing thread */
    struct fdk_graph *rec;     /* graph being captured, or NULL */
    _Atomic uint64_t ready_ns; /* INLINE, DEFER: time at which its work counts as done */
    _Atomic uint32_t push_lock;
    _Atomic uint32_t stop;
    char pad0[CPU_CACHELINE];
    _Atomic uint32_t tail;   /* commands pushed */
    _Atomic uint32_t parked; /* the thread sleeps on this word */
    char pad1[CPU_CACHELINE];
    _Atomic uint32_t head;   /* commands executed */
    _Atomic uint32_t n_wait; /* sleepers on head */
};

#define CPU_CTX_MAGIC    0x63747831u
#define CPU_EVENT_MAGIC  0x65766e31u
#define CPU_STREAM_MAGIC 0x73747231u
#define CPU_GRAPH_MAGIC  0x67726831u

void
cpu_fail(struct cpu_dev *dev, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cpu_failed(const struct cpu_dev *dev);
/* Queues, captures or (INLINE) executes a command. Returns 0, -EIO, or -ENOMEM in a
 * capture. */
int cpu_push(struct CUstream_st *st, const struct cpu_cmd *cmd);

/* kernels/cpu/vdev.h has the other functions of an ops table. */
int cpu_ctx_new(const struct fdk_open_args *args, const struct fdk_ops *ops,
    cpu_exec_fn *exec, struct fdk_ctx **ret_ctx, char *err, size_t err_bytes);
void cpu_ctx_free(struct fdk_ctx *ctx);

cpu_exec_fn cpu_exec;       /* the cpu backend's operations */
cpu_exec_fn cpu_collective; /* sums and gathers */
cpu_exec_fn cpu_ahead;      /* an all-reduce in two launches */
cpu_exec_fn cpu_copies;     /* transfers between copies of the model */
/* The device has failed: makes the other ranks of its groups fail. */
void cpu_groups_tell(const struct cpu_dev *dev);

#endif
