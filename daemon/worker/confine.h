/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker that was taken over, by a model file or a request, cannot do.
 * Two seccomp filters for all threads of the process, each for good:
 *
 *   CFN_LOAD   before the first byte of a model is read
 *   CFN_SERVE  after the last one, before the first request
 *
 * CFN_LOAD refuses: looking into other processes or taking from them (ptrace,
 * process_vm_readv, process_vm_writev, pidfd_getfd, kcmp, process_madvise,
 * process_mrelease, perf_event_open), signals to others (kill, tkill, tgkill,
 * rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal; those to itself work,
 * so that abort() and a panic do), others' resource limits (prlimit64), connect,
 * sockets other than UNIX ones, and new io_uring rings. CFN_SERVE also refuses
 * to use the rings that are there, and execve.
 *
 * A refused call fails with EPERM and the process goes on: drivers try calls
 * whose failure they are ready for, and an intruder gains nothing by staying
 * alive. connect fails with ENOENT, which is what the GPU's driver gets in
 * cuInit() where no MPS server runs; a worker cannot be a client of one. Calls of another
 * architecture's numbers, which no part of fdd makes, end the process.
 * The filter is a deny list, since the calls of the next driver are unknown; the
 * unit's filter stays in force, and the stricter answer wins. What it does not
 * stop: sendmsg() to a UNIX datagram socket whose path the worker may write,
 * files that the daemon's user may write, the device itself.
 *
 * io_uring makes system calls that no filter sees. The rings that read weights
 * are therefore made first, and each is restricted for good to IORING_OP_READ
 * (IORING_REGISTER_RESTRICTIONS, Linux 5.10; before that pread reads).
 *
 * The filter is written here and not by libseccomp: it is a list of numbers and
 * five argument tests, 60 lines, against one library more in each package and
 * in the bundle for machines without packages.
 *
 * In builds for work on fdd itself (hdn_is_open()) the worker installs no filter:
 * profilers and leak checks inject what it refuses.
 */
#ifndef FDD_DAEMON_WORKER_CONFINE_H
#define FDD_DAEMON_WORKER_CONFINE_H

struct io_uring;

enum cfn_stage { CFN_LOAD, CFN_SERVE };

/* Raise oom_score_adj over the gate's: short of memory, the kernel ends the worker,
 * which is started again, rather than the gate, which holds the requests. Raising
 * needs no privilege. Before hdn_no_dump(). */
void cfn_oom_raise(void);

/* Install a stage's filter, in every thread. hdn_no_new_privs() was called. -errno,
 * -ENOSYS where no filter is known for this architecture. */
int cfn_filter(enum cfn_stage stage);

/* A ring that can do nothing but read, and cannot be changed any more. -errno:
 * refused, or the kernel has no restrictions. */
int cfn_ring_open(struct io_uring *ring, unsigned entries);

/* Rings for n readers, or fewer; NULL and *ret_n 0 if there is none. */
struct io_uring *cfn_rings_new(int n, unsigned entries, int *ret_n);
struct io_uring *cfn_rings_free(struct io_uring *rings, int n);

#endif
