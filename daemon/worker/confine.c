/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CFN_OOM_RAISE 600 /* how far the worker's value is above the gate's */
#define CFN_OOM_MAX   1000
#define CFN_MAX_INS   256
#define CFN_X32_BIT   0x40000000u

#if defined(__x86_64__)
#define CFN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define CFN_ARCH AUDIT_ARCH_AARCH64
#else
#define CFN_ARCH 0
#endif

/* System call numbers, the same on every architecture; older headers lack them. */
#define CFN_PIDFD_SEND_SIGNAL 424
#define CFN_IO_URING_SETUP    425
#define CFN_IO_URING_ENTER    426
#define CFN_IO_URING_REGISTER 427
#define CFN_PIDFD_GETFD       438
#define CFN_PROCESS_MADVISE   440
#define CFN_PROCESS_MRELEASE  448

void
cfn_oom_raise(void)
{
    FILE *fp = fopen("/proc/self/oom_score_adj", "r+e");
    int v;

    if (fp == NULL)
        return; /* without /proc it cannot be changed */
    if (fscanf(fp, "%d", &v) == 1 && fseek(fp, 0, SEEK_SET) == 0) {
        v += CFN_OOM_RAISE;
        (void)fprintf(fp, "%d", v > CFN_OOM_MAX ? CFN_OOM_MAX : v);
    }
    (void)fclose(fp);
}

/* ---- the filter ----------------------------------------------------------------- */

/* The condition on the low half of the first argument under which a call passes. The
 * kernel reads no more than that half of a pid or an address family. */
enum cfn_if {
    CFN_NEVER,
    CFN_SELF, /* the pid of this process */
    CFN_SELF_OR_0,
    CFN_UNIX /* AF_UNIX */
};

struct cfn_rule {
    int nr;
    enum cfn_if pass; /* condition on the first argument */
    unsigned err;
};

static const struct cfn_rule cfn_load[] = { { SYS_ptrace, CFN_NEVER, EPERM },
    { SYS_process_vm_readv, CFN_NEVER, EPERM }, { SYS_process_vm_writev, CFN_NEVER, EPERM },
    { SYS_kcmp, CFN_NEVER, EPERM }, { SYS_perf_event_open, CFN_NEVER, EPERM },
    { CFN_PIDFD_GETFD, CFN_NEVER, EPERM }, { CFN_PROCESS_MADVISE, CFN_NEVER, EPERM },
    { CFN_PROCESS_MRELEASE, CFN_NEVER, EPERM }, { SYS_kill, CFN_SELF, EPERM },
    { SYS_tgkill, CFN_SELF, EPERM }, { SYS_tkill, CFN_NEVER, EPERM },
    { SYS_rt_sigqueueinfo, CFN_SELF, EPERM }, { SYS_rt_tgsigqueueinfo, CFN_SELF, EPERM },
    { CFN_PIDFD_SEND_SIGNAL, CFN_NEVER, EPERM }, { SYS_prlimit64, CFN_SELF_OR_0, EPERM },
    { SYS_connect, CFN_NEVER, ENOENT }, { SYS_socket, CFN_UNIX, EPERM },
    { CFN_IO_URING_SETUP, CFN_NEVER, EPERM }, { CFN_IO_URING_REGISTER, CFN_NEVER, EPERM } };

static const struct cfn_rule cfn_serve[] = { { CFN_IO_URING_ENTER, CFN_NEVER, EPERM },
    { SYS_execve, CFN_NEVER, EPERM }, { SYS_execveat, CFN_NEVER, EPERM } };

struct cfn_code {
    struct sock_filter ins[CFN_MAX_INS];
    unsigned short n;
};

static void
cfn_put(struct cfn_code *c, unsigned op, unsigned k, unsigned jt, unsigned jf)
{
    if (c->n < CFN_MAX_INS)
        c->ins[c->n++] = (struct sock_filter){ (unsigned short)op, (unsigned char)jt,
            (unsigned char)jf, k };
}

static void
cfn_put_load(struct cfn_code *c, size_t offset)
{
    cfn_put(c, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

static void
cfn_put_refuse(struct cfn_code *c, unsigned err)
{
    cfn_put(c, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err, 0, 0);
}

/* Adds a rule. The accumulator holds the call's number before and after it. */
static void
cfn_put_rule(struct cfn_code *c, const struct cfn_rule *r)
{
    unsigned want = r->pass == CFN_UNIX ? AF_UNIX : (unsigned)getpid();
    int or_0 = r->pass == CFN_SELF_OR_0;

    if (r->pass == CFN_NEVER) {
        cfn_put(c, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)r->nr, 0, 1);
        cfn_put_refuse(c, r->err);
        return;
    }
    cfn_put(c, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)r->nr, 0, or_0 ? 5 : 4);
    /* little-endian: the low half comes first */
    cfn_put_load(c, offsetof(struct seccomp_data, args));
    if (or_0)
        cfn_put(c, BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0);
    cfn_put(c, BPF_JMP | BPF_JEQ | BPF_K, want, 1, 0);
    cfn_put_refuse(c, r->err);
    cfn_put_load(c, offsetof(struct seccomp_data, nr));
}

static void
cfn_put_arch(struct cfn_code *c)
{
    cfn_put_load(c, offsetof(struct seccomp_data, arch));
    cfn_put(c, BPF_JMP | BPF_JEQ | BPF_K, CFN_ARCH, 1, 0);
    cfn_put(c, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    cfn_put_load(c, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    cfn_put(c, BPF_JMP | BPF_JGE | BPF_K, CFN_X32_BIT, 0, 1);
    cfn_put(c, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
#endif
}

int
cfn_filter(enum cfn_stage stage)
{
    const struct cfn_rule *r = stage == CFN_LOAD ? cfn_load : cfn_serve;
    size_t n = stage == CFN_LOAD ? sizeof(cfn_load) / sizeof(cfn_load[0])
                                 : sizeof(cfn_serve) / sizeof(cfn_serve[0]);
    struct cfn_code c = { .n = 0 };
    struct sock_fprog prog = { .filter = c.ins };
    long rc;

    if (CFN_ARCH == 0)
        return -ENOSYS;
    cfn_put_arch(&c);
    for (size_t i = 0; i < n; i++)
        cfn_put_rule(&c, &r[i]);
    cfn_put(&c, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    if (c.n == CFN_MAX_INS)
        return -E2BIG;
    prog.len = c.n;
    rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
    /* > 0: the id of a thread that has a different filter */
    return rc == 0 ? 0 : rc < 0 ? -errno : -EBUSY;
}

/* ---- rings ------------------------------------------------------------------------ */

/* liburing before 2.4 declares functions for these two operations but does not export
 * them. */
static int
cfn_register(const struct io_uring *ring, unsigned op, void *arg, unsigned n)
{
    return syscall(CFN_IO_URING_REGISTER, ring->ring_fd, op, arg, n) < 0 ? -errno : 0;
}

int
cfn_ring_open(struct io_uring *ring, unsigned entries)
{
    struct io_uring_restriction only_read = { .opcode = IORING_RESTRICTION_SQE_OP,
        .sqe_op = IORING_OP_READ };
    int rc = io_uring_queue_init(entries, ring, IORING_SETUP_R_DISABLED);

    if (rc != 0)
        return rc;
    rc = cfn_register(ring, IORING_REGISTER_RESTRICTIONS, &only_read, 1);
    if (rc == 0)
        rc = cfn_register(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    if (rc != 0)
        io_uring_queue_exit(ring);
    return rc;
}

struct io_uring *
cfn_rings_new(int n, unsigned entries, int *ret_n)
{
    struct io_uring *rings = calloc((size_t)n, sizeof(*rings));
    int have = 0;

    while (rings != NULL && have < n && cfn_ring_open(&rings[have], entries) == 0)
        have++;
    *ret_n = have;
    return have > 0 ? rings : cfn_rings_free(rings, 0);
}

struct io_uring *
cfn_rings_free(struct io_uring *rings, int n)
{
    for (int i = 0; i < n; i++)
        io_uring_queue_exit(&rings[i]);
    free(rings);
    return NULL;
}
