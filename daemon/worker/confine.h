/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines a worker that an attacker has taken over through a model file or a request.
 * Two seccomp filters, for all threads of the process; neither can be removed:
 *
 *   CFN_LOAD   before the first byte of a model is read
 *   CFN_SERVE  after the last one, before the first request
 *
 * CFN_LOAD refuses: access to other processes (ptrace, process_vm_readv,
 * process_vm_writev, pidfd_getfd, kcmp, process_madvise, process_mrelease,
 * perf_event_open), signals to other processes (kill, tkill, tgkill, rt_sigqueueinfo,
 * rt_tgsigqueueinfo, pidfd_send_signal; signals to itself pass, which abort() and a panic
 * need), resource limits of other processes (prlimit64), connect, sockets other than UNIX
 * ones, and new io_uring rings. CFN_SERVE also refuses to use existing rings, and execve.
 *
 * A refused call fails with EPERM and the process continues: drivers try calls whose
 * failure they can handle, and an intruder gains nothing by staying alive. connect fails
 * with ENOENT, the error that the GPU's driver gets in cuInit() if no MPS server runs; so
 * a worker cannot be a client of an MPS server. Calls with another architecture's numbers
 * end the process; fdd makes none. The filter is a deny list, since the calls of the next
 * driver are unknown; the systemd unit's filter stays in force, and the stricter result
 * wins. It does not stop: sendmsg() to a UNIX datagram socket whose path the worker may
 * write, files that the daemon's user may write, the device itself.
 *
 * io_uring performs operations that no seccomp filter sees. The rings that read weights
 * are therefore created first, and each is restricted permanently to IORING_OP_READ
 * (IORING_REGISTER_RESTRICTIONS, Linux 5.10; with an older kernel pread() reads the
 * weights).
 *
 * The filter is written here and not by libseccomp: it is a list of numbers and five
 * argument tests, 60 lines, which saves a library in each package and in the bundle for
 * machines without packages.
 *
 * In developer builds (hdn_is_open()) the worker installs no filter: profilers and leak
 * checkers make the calls that it refuses.
 */
#ifndef FDD_DAEMON_WORKER_CONFINE_H
#define FDD_DAEMON_WORKER_CONFINE_H

struct io_uring;

enum cfn_stage { CFN_LOAD, CFN_SERVE };

/* Raises oom_score_adj above the gate's: when memory runs out the kernel kills the
 * worker, which is restarted, rather than the gate, which holds the requests. Raising
 * needs no privilege. Call it before hdn_no_dump(). */
void cfn_oom_raise(void);

/* Installs a stage's filter in every thread, after hdn_no_new_privs(). 0 or -errno;
 * -ENOSYS: there is no filter for this architecture. */
int cfn_filter(enum cfn_stage stage);

/* Opens a ring that can only read; this restriction is permanent. 0 or -errno: refused,
 * or the kernel has no restrictions. */
int cfn_ring_open(struct io_uring *ring, unsigned entries);

/* Rings for n readers, or for fewer (*ret_n); NULL and *ret_n 0 if none can be opened. */
struct io_uring *cfn_rings_new(int n, unsigned entries, int *ret_n);
struct io_uring *cfn_rings_free(struct io_uring *rings, int n);

#endif
