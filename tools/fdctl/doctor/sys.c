/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "daemon/common/mem.h"

#ifndef MADV_POPULATE_WRITE /* missing in the oldest headers supported */
#define MADV_POPULATE_WRITE 23
#endif
#define CPUINFO_BYTES ((size_t)64 << 10)
#define URING_ON \
    "sudo sysctl -w kernel.io_uring_disabled=0    (without it weights are read by pread, " \
    "which takes longer)"
#define MORE_LOCKED \
    "raise the limit of locked memory: ulimit -l unlimited, in a service " \
    "LimitMEMLOCK=infinity"

/* ---- trials of system calls ----------------------------------------------------- */

static void
try_uring(struct doc_uring *ret)
{
    static char page[4096] __attribute__((aligned(4096)));
    struct {
        struct io_uring_probe p;
        struct io_uring_probe_op op[IORING_OP_READ + 1];
    } probe;
    struct io_uring_params par = { 0 };
    struct iovec iov = { .iov_base = page, .iov_len = sizeof(page) };
    int fd = (int)syscall(SYS_io_uring_setup, 8, &par);

    memset(&probe, 0, sizeof(probe));
    *ret = (struct doc_uring){ fd < 0 ? -errno : 0, 1, 1 };
    if (fd < 0)
        return;
    ret->read_op = syscall(SYS_io_uring_register, fd, IORING_REGISTER_PROBE, &probe,
                       IORING_OP_READ + 1) == 0 &&
            probe.p.last_op >= IORING_OP_READ &&
            (probe.op[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED) != 0
        ? 0
        : -ENOSYS;
    ret->buffers = syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS, &iov, 1) < 0
        ? -errno
        : 0;
    close(fd);
}

static int
try_pidfd(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    return fd < 0 ? -errno : close(fd);
}

/* Try the calls that daemon/gate/region.c needs. */
static int
try_memfd(void)
{
    void *p = NULL;
    int fd = -1, rc = mem_share("fdctl-doctor", 4096, &p, &fd);

    if (rc == 0 && madvise(p, 4096, MADV_POPULATE_WRITE) != 0)
        rc = -errno;
    mem_unshare(p, 4096, fd);
    return rc;
}

static int
try_futex(void)
{
    uint32_t word = 0;

    return syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0) < 0 ? -errno : 0;
}

static int
try_lib(const char *name)
{
    /* Stays open: unloading a driver's library is rarely tested. */
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL) != NULL ? 0 : -ENOENT;
}

const struct doc_tries doc_real_tries = {
    .uring = try_uring,
    .pidfd = try_pidfd,
    .memfd = try_memfd,
    .futex = try_futex,
    .lib = try_lib,
};

/* ---- system --------------------------------------------------------------------- */

static void
check_kernel(struct doc *d)
{
    unsigned major = 0, minor = 0;
    char os[256];

    if (sscanf(d->kernel, "%u.%u", &major, &minor) != 2 || major > 1000 || minor > 1000)
        doc_add(d, DOC_NOTE, "kernel",
            "unknown: release '%s'" FIX "compare with 5.6 by hand: uname -r", d->kernel);
    else if (major * 1000 + minor >= 5006)
        doc_add(d, DOC_OK, "kernel", "%s (5.6 needed)", d->kernel);
    else
        doc_add(d, major * 1000 + minor < 5003 ? DOC_FAIL : DOC_WARN, "kernel",
            "%s%s" FIX "install a kernel of at least 5.6 and start the machine again",
            d->kernel,
            major * 1000 + minor < 5003
                ? ", too old: fdd needs 5.3 (pidfd_open), 5.6 to read weights by io_uring"
                : ": weights are read by pread, io_uring's reads came with 5.6");
    if (doc_value(d, "/etc/os-release", "PRETTY_NAME", os, sizeof(os)) == 0)
        doc_add(d, DOC_OK, "distribution", "%s", os);
    else
        doc_unknown(d, "distribution", "/etc/os-release");
}

static void
check_call(struct doc *d, const char *name, int rc, const char *since)
{
    if (rc == 0)
        doc_add(d, DOC_OK, name, "works");
    else
        doc_add(d, DOC_FAIL, name,
            rc == -EPERM || rc == -EACCES
                ? "refused: %s" FIX "a seccomp filter forbids it: allow it in the container's "
                  "profile (docker run --security-opt seccomp=FILE)"
                : "refused: %s" FIX
                  "a kernel of at least %s has it, unless a seccomp filter hides it",
            strerror(-rc), since);
}

static int
has_flag(const char *flags, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = flags; (p = strstr(p, name)) != NULL; p += n)
        if ((p == flags || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return 1;
    return 0;
}

static void
check_cpu(struct doc *d, const char *cpuinfo, const char *flags)
{
    static const char *const unused[] = { "avx512_bf16", "avx512_vnni", "amx_tile",
        "amx_bf16", "amx_int8" };
    /* as the CPU backend chooses: kernels/cpu/isa_pick.c */
    const char *isa = has_flag(flags, "avx512f") && has_flag(flags, "avx512bw") &&
            has_flag(flags, "avx512vl") && has_flag(flags, "avx512dq")
        ? "avx512"
        : has_flag(flags, "avx2") && has_flag(flags, "fma") && has_flag(flags, "f16c")
        ? "avx2"
        : "generic";
    char model[128] = "", more[128] = "";

    (void)txt_field(cpuinfo, "model name", model, sizeof(model));
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++)
        if (has_flag(flags, unused[i]))
            (void)txt_add(more, sizeof(more), " %s", unused[i]);
    if (strcmp(d->machine, "x86_64") != 0) {
        doc_add(d, DOC_WARN, "processor",
            "%s: the CPU backend has its plain code only" FIX
            "serve on a GPU, or on an x86_64 machine with AVX2",
            d->machine);
    } else if (flags[0] == '\0') {
        doc_unknown(d, "processor", "/proc/cpuinfo");
    } else {
        doc_add(d, strcmp(isa, "generic") == 0 ? DOC_WARN : DOC_OK, "processor",
            "%s%s%s, CPU backend: %s%s%s" FIX
            "no AVX2 with FMA and F16C: if this is a virtual machine, pass the "
            "host's processor through (-cpu host)",
            d->machine, model[0] != '\0' ? ", " : "", model, isa,
            more[0] != '\0' ? "; not used:" : "", more);
        doc_data(d, "{s:s}", "isa", isa);
    }
}

/* Count of the numbers in the list that doc_value() finds; 0: not known. */
static unsigned
count_of(const struct doc *d, const char *path, const char *key)
{
    char list[4096];

    return doc_value(d, path, key, list, sizeof(list)) == 0 ? doc_count_list(list) : 0;
}

static void
check_processors(struct doc *d)
{
    unsigned n_all = count_of(d, "/sys/devices/system/cpu/online", NULL), n;
    char path[64];
    struct cgr c;

    n = count_of(d, doc_proc(d, "/status", path), "Cpus_allowed_list");
    if (n == 0)
        n = n_all;
    if (n == 0) {
        doc_unknown(d, "processors", path);
        return;
    }
    doc_cgroup(d, &c);
    if (c.cpus > 0 && c.cpus < n)
        doc_add(d, DOC_WARN, "processors",
            "%u, but the control group gives the time of %.1f" FIX
            "set device.threads = %u, or lift the quota (systemd: CPUQuota=, "
            "docker: --cpus)",
            n, c.cpus, c.cpus < 2 ? 1 : (unsigned)c.cpus);
    else if (n < 2)
        doc_add(d, DOC_WARN, "processors",
            "1: daemon, worker and clients take turns" FIX
            "give the daemon at least two processors (taskset, CPUAffinity=)");
    else
        doc_add(d, DOC_OK, "processors", n_all > n ? "%u of %u" : "%u", n, n_all);
    doc_data(d, "{s:i, s:i, s:o?}", "allowed", n, "online", n_all, "quota",
        c.cpus > 0 ? json_real(c.cpus) : NULL);
}

static void
check_numa(struct doc *d)
{
    unsigned n = count_of(d, "/sys/devices/system/node/online", NULL);

    if (n < 2) {
        doc_add(d, DOC_OK, "numa", n == 0 ? "no nodes named" : "1 node");
        return;
    }
    doc_add(d, DOC_NOTE, "numa",
        "%u nodes: memory of another node is slower" FIX
        "on the CPU backend, keep the daemon on one: systemctl edit fdd, "
        "[Service] NUMAPolicy=bind NUMAMask=0 CPUAffinity=numa",
        n);
    doc_data(d, "{s:i}", "nodes", n);
}

/* Share of processor time that other machines on the host took; -1: unknown. */
static double
stolen(const struct doc *d)
{
    unsigned long long v[8], sum = 0;
    char text[256];

    if (doc_read(d, "/proc/stat", text, sizeof(text)) <= 0 ||
        sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2],
            &v[3], &v[4], &v[5], &v[6], &v[7]) != 8)
        return -1;
    for (int i = 0; i < 8; i++)
        sum += v[i];
    return sum > 0 ? (double)v[7] / (double)sum : -1;
}

static void
check_virtual(struct doc *d, const char *cpuinfo, const char *flags)
{
    char vendor[128] = "", kind[64] = "";
    double steal = stolen(d);
    int is_guest = has_flag(flags, "hypervisor");

    if (is_guest)
        (void)doc_value(d, "/sys/class/dmi/id/sys_vendor", NULL, vendor, sizeof(vendor));
    (void)doc_value(d, "/run/systemd/container", NULL, kind, sizeof(kind));
    if (kind[0] == '\0' && access(DOC_BELOW(d, "/.dockerenv"), F_OK) == 0)
        strcpy(kind, "docker");
    if (is_guest && steal >= 0.02)
        doc_add(d, DOC_NOTE, "virtualization",
            "virtual machine%s%s; others took %.0f %% of its processors' time" FIX
            "give it processors of its own on the host",
            vendor[0] != '\0' ? " of " : "", vendor, steal * 100);
    else
        doc_add(d, DOC_OK, "virtualization", "%s%s%s%s%s",
            is_guest                 ? "virtual machine"
                : cpuinfo[0] != '\0' ? "none seen"
                                     : "unknown",
            vendor[0] != '\0' ? " of " : "", vendor,
            kind[0] != '\0' ? ", container: " : "", kind);
}

void
doc_system(struct doc *d)
{
    char cpuinfo[CPUINFO_BYTES], flags[8192] = "";

    (void)doc_read(d, "/proc/cpuinfo", cpuinfo, sizeof(cpuinfo));
    (void)txt_field(cpuinfo, "flags", flags, sizeof(flags));
    check_kernel(d);
    check_call(d, "pidfd_open", d->tries->pidfd(), "5.3");
    check_call(d, "memfd seals", d->tries->memfd(), "5.14");
    check_call(d, "futex", d->tries->futex(), "2.6");
    check_cpu(d, cpuinfo, flags);
    check_virtual(d, cpuinfo, flags);
    check_processors(d);
    check_numa(d);
}

/* ---- io_uring ---------------------------------------------------------------------- */

static void
check_sysctl(struct doc *d)
{
    uint64_t v = 0, gid = 0;
    int rc = doc_number(d, "/proc/sys/kernel/io_uring_disabled", NULL, &v);

    (void)doc_number(d, "/proc/sys/kernel/io_uring_group", NULL, &gid);
    if (v == 0)
        doc_add(d, DOC_OK, "sysctl", "kernel.io_uring_disabled %s",
            rc == 0 ? "= 0" : "is not there");
    else
        doc_add(d, DOC_WARN, "sysctl",
            v == 1 ? "kernel.io_uring_disabled = 1: for root and the group of "
                     "kernel.io_uring_group (%" PRIu64 ") only" FIX URING_ON
                   : "kernel.io_uring_disabled = %" PRIu64 ": for nobody" FIX URING_ON,
            v == 1 ? gid : v);
}

static void
check_setup(struct doc *d)
{
    struct doc_uring u;

    d->tries->uring(&u);
    if (u.setup != 0) {
        doc_add(d, DOC_WARN, "setup",
            "io_uring_setup: %s; weights are read by pread, which takes longer" FIX "%s",
            strerror(-u.setup),
            u.setup == -ENOMEM ? MORE_LOCKED
                : u.setup == -ENOSYS
                ? "a kernel of at least 5.6 has it, unless a seccomp filter hides it"
                : "sysctl kernel.io_uring_disabled, or a seccomp filter: allow io_uring_setup, io_uring_enter and io_uring_register");
        return;
    }
    doc_add(d, DOC_OK, "setup", "works");
    doc_add(d, u.read_op == 0 ? DOC_OK : DOC_WARN, "read",
        "%s" FIX "install a kernel of at least 5.6",
        u.read_op == 0 ? "supported" : "not supported: weights are read by pread");
    doc_add(d, u.buffers == 0 ? DOC_OK : DOC_NOTE, "buffers",
        u.buffers == 0 ? "can be registered" : "cannot be registered: %s" FIX MORE_LOCKED,
        strerror(-u.buffers));
}

void
doc_io_uring(struct doc *d)
{
    char value[16];

    check_sysctl(d);
    check_setup(d);
    if (doc_value(d, "/proc/self/status", "Seccomp", value, sizeof(value)) != 0)
        doc_unknown(d, "seccomp", "/proc/self/status");
    else
        doc_add(d, DOC_OK, "seccomp",
            value[0] == '0'
                ? "no filter"
                : "a filter is in force (of fdctl; the daemon may have another)");
    if (d->par->model_load_uring == 0)
        doc_add(d, DOC_NOTE, "model.load_uring",
            "no: weights are read by pread" FIX "set model.load_uring = yes");
}
