/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl doctor on fake machines: trees of /proc and /sys in a
 * folder, system calls that fail. */
#include "config.h"

#include <fcntl.h>
#include <sys/file.h>

#include "daemon/common/version.h"
#include "tests/unit/doctor_fixture.h"

/* ---- reading ---------------------------------------------------------------- */

static void
test_reading(void **state)
{
    uint64_t v = 7;
    char text[32], path[600];

    (void)state;
    assert_int_equal(doc_count_list("0-3,8,10-11\n"), 7);
    assert_int_equal(doc_count_list("0"), 1);
    assert_int_equal(doc_count_list(""), 0);
    assert_int_equal(doc_count_list("3-1"), 0);
    assert_int_equal(doc_count_list("0-99999999"), 0);
    assert_int_equal(doc_count_list("0-3x"), 0);
    put("/proc/numbers", "AB: 5\nA:   3 kB\n");
    assert_int_equal(doc_number(&d, "/proc/numbers", "A", &v), 0);
    assert_int_equal(v, 3072);
    assert_int_equal(doc_u64("max", &v), -ERANGE);
    assert_int_equal(doc_u64("99999999999999999999", &v), -ERANGE);
    assert_int_equal(doc_u64("18446744073709551615 kB", &v), -ERANGE);
    assert_int_equal(txt_field("", "A", text, sizeof(text)), -ENOENT);
    assert_int_equal(txt_field("X=1\nN=\"a b\"", "N", text, sizeof(text)), 0);
    assert_string_equal(text, "a b");
    assert_string_equal(fct_bytes((double)1536, text), "1.5 KiB");
    assert_string_equal(fct_bytes((double)5, text), "5 B");
    /* a folder and a fifo cannot be read as files */
    put("/proc/x/y", "1");
    assert_int_equal(doc_read(&d, "/proc/x", text, sizeof(text)), -EINVAL);
    snprintf(path, sizeof(path), "%s/proc/fifo", root);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(doc_read(&d, "/proc/fifo", text, sizeof(text)), -EINVAL);
    assert_int_equal(doc_read(&d, "/proc/none", text, sizeof(text)), -ENOENT);
    assert_int_equal(doc_value(&d, "/proc/x/y", NULL, text, 1), -ENODATA);
}

/* ---- system ----------------------------------------------------------------- */

#define FLAGS_2 "fpu avx fma avx2 f16c"

static void
test_kernel(void **state)
{
    (void)state;
    d.kernel = "4.18.0-553.el8";
    run("system");
    is("kernel", "error", "4.18", "at least 5.6");
    d.kernel = "5.4.0-generic";
    run("system");
    is("kernel", "warning", "pread", "5.6");
    d.kernel = "5.6.0";
    run("system");
    is("kernel", "ok", "5.6.0", NULL);
    d.kernel = "what?";
    run("system");
    is("kernel", "info", "unknown", "uname");
    pidfd_rc = -ENOSYS;
    run("system");
    is("pidfd_open", "error", "refused", "5.3");
    pidfd_rc = -EPERM;
    run("system");
    is("pidfd_open", "error", "refused", "seccomp");
}

static void
test_processor(void **state)
{
    (void)state;
    run("system");
    is("processor", "info", "unknown", "host");
    put("/proc/cpuinfo", "model name\t: Some CPU\nflags\t\t: fpu sse2 avx2x fma\n");
    run("system");
    is("processor", "warning", "generic", "-cpu host");
    put("/proc/cpuinfo",
        "model name\t: Some CPU\nflags\t\t: " FLAGS_2 " hypervisor\n\n"
        "model name\t: Some CPU\n");
    put("/sys/class/dmi/id/sys_vendor", "QEMU\n");
    put("/proc/stat", "cpu  10 0 10 70 0 0 0 10 0 0\n");
    run("system");
    is("processor", "ok", "Some CPU, CPU backend: avx2", NULL);
    is("virtualization", "info", "of QEMU; others took 10 %", "on the host");
    put("/proc/cpuinfo",
        "flags\t\t: " FLAGS_2 " avx512f avx512bw avx512vl avx512dq "
        "amx_tile\n");
    run("system");
    is("processor", "ok", "avx512; not used: amx_tile", NULL);
    d.machine = "aarch64";
    run("system");
    is("processor", "warning", "aarch64", "x86_64");
}

static void
test_processors(void **state)
{
    (void)state;
    put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-7\nSeccomp:\t2\n");
    put("/sys/devices/system/cpu/online", "0-15\n");
    put("/sys/devices/system/node/online", "0-1\n");
    run("system");
    is("processors", "ok", "8 of 16", NULL);
    is("numa", "info", "2 nodes", "NUMAPolicy");
    /* version 2: the lowest limit of all enclosing groups counts */
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    run("system");
    is("processors", "warning", "8, but the control group gives the time of 2.5",
        "threads = 2");
    /* version 1 */
    put("/proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/c\n0::/\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    run("system");
    is("processors", "warning", "0.5", "threads = 1");
    /* a running daemon has limits of its own */
    put("/proc/42/status", "Cpus_allowed_list:\t3\n");
    put("/proc/42/limits", "x\n");
    d.daemon_pid = 42;
    run("system");
    is("processors", "warning", "1: daemon", "two processors");
}

/* ---- limits ----------------------------------------------------------------- */

#define LIMITS(lock, files) \
    "Limit                     Soft Limit           Hard Limit           Units\n" \
    "Max open files            " files "            files     \n" \
    "Max locked memory         " lock "             bytes     \n"

static void
test_limits(void **state)
{
    (void)state;
    run("limits");
    is("memlock", "info", "unknown: /proc/self/limits", "host");
    is("huge pages", "info", "unknown", "host");
    is("/dev/shm", "error", "No such file", "mount -t tmpfs");
    put("/proc/self/limits", LIMITS("8388608              8388608 ", "1024 1048576"));
    put("/dev/shm/x", "");
    put("/proc/meminfo",
        "MemTotal: 1000 kB\nSwapTotal: 100 kB\nSwapFree: 10 kB\n"
        "HugePages_Total: 8\nHugePages_Free: 3\nHugepagesize: 2048 kB\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    put("/proc/sys/vm/overcommit_memory", "2\n");
    run("limits");
    is("memlock", "warning", "8.0 MiB of this shell", "LimitMEMLOCK=infinity");
    /* a capability lifts the limit, but not one within a user namespace */
    put("/proc/self/status", "Name:\tfdctl\nCapEff:\t0000000000004000\n");
    put("/proc/self/uid_map", "         0     100000      65536\n");
    run("limits");
    is("memlock", "warning", "8.0 MiB of this shell", "LimitMEMLOCK=infinity");
    put("/proc/self/uid_map", "         0          0 4294967295\n");
    run("limits");
    is("memlock", "ok", "8.0 MiB of this shell, which may lock more", NULL);
    put("/proc/self/status", "Name:\tfdctl\nCapEff:\t000001ffffffbfff\n");
    run("limits");
    is("memlock", "warning", "8.0 MiB of this shell;", "LimitMEMLOCK=infinity");
    is("nofile", "ok", "1024, at most 1048576", NULL);
    is("/dev/shm", "ok", "free", NULL);
    is("swap", "info", "90.0 KiB of 100.0 KiB", "swapped");
    is("huge pages", "warning", "never", "echo madvise");
    is("reserved pages", "info", "16.0 MiB in hugetlb pages, 6.0 MiB", "nr_hugepages=0");
    is("overcommit", "warning", "2", "overcommit_memory=0");
    is("cgroup memory", "ok", "no limit", NULL);
    /* the daemon's limits count, not the shell's */
    put("/proc/42/limits", LIMITS("unlimited            unlimited ", "512 512"));
    d.daemon_pid = 42;
    run("limits");
    is("memlock", "ok", "unlimited of the daemon, pid 42", NULL);
    is("nofile", "warning", "at most 512", "LimitNOFILE");
}

static void
test_odd_contents(void **state)
{
    static char big[200000];

    (void)state;
    memset(big, 'A', sizeof(big));
    put_n("/proc/self/limits", big, sizeof(big));
    put_n("/proc/self/status", "\0\0\0", 3);
    put_n("/proc/cpuinfo", big, sizeof(big));
    put("/proc/meminfo",
        "MemTotal:\nMemAvailable: -5 kB\nSwapTotal: 5\nSwapFree: 9\n"
        "HugePages_Total: 18446744073709551615\nHugepagesize: 2048 kB\n");
    put("/proc/self/cgroup", "::::\n:\n\n9:memory:/../..\n0::/x\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
    put("/proc/sys/kernel/io_uring_disabled", "yes\n");
    put("/proc/1/status", "Name:\t\nUid:\n");
    put("/proc/2/status", "VmRSS: 1 kB\nUid: abc\nName: \xff\xfe\n");
    put("/proc/driver/nvidia/version", "NVRM\n");
    for (size_t i = 0; doc_group_name(i) != NULL; i++)
        run(doc_group_name(i));
    run("limits");
    is("memlock", "info", "unknown", "host");
    assert_string_equal(get("reserved pages", "value"), "none");
    is("cgroup memory", "ok", "of 4.0 KiB", NULL);
    run("memory");
    is("held by", "ok", "1.0 KiB", NULL);
}

/* The lock tells which process has a device, not the file that the last holder left. */
static void
test_devices(void **state)
{
    char path[700];
    int fd;

    (void)state;
    put("/run/fdd/x", "");
    run("fdd");
    is("devices", "ok", "none is held", NULL);
    put("/run/fdd/devices/cpu-0", "");
    put("/run/fdd/devices/cpu-0.holder", "41 - /run/fdd\n");
    put("/run/fdd/devices/GPU-1", "");
    put("/run/fdd/devices/GPU-1.holder", "42 qwen /run/fdd/q\033[2Jwen\n");
    run("fdd");
    is("devices", "ok", "none is held", NULL);
    snprintf(path, sizeof(path), "%s/run/fdd/devices/GPU-1", root);
    fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    run("fdd");
    is("device GPU-1", "ok",
        "held by fdd (pid 42, instance qwen, in /run/fdd/q\\x1b[2Jwen)", NULL);
    for (size_t i = 0; i < json_array_size(d.checks); i++)
        assert_string_not_equal(json_string_value(
                                    json_object_get(json_array_get(d.checks, i), "name")),
            "device cpu-0");
    put("/run/fdd/devices/GPU-1.holder", "nonsense");
    run("fdd");
    is("device GPU-1", "ok", "held by fdd", NULL);
    close(fd);
    run("fdd");
    is("devices", "ok", "none is held", NULL);
}

static void
test_cgroup_memory(void **state)
{
    struct cgr c;

    (void)state;
    doc_cgroup(&d, &c);
    assert_true(c.memory_max == CGR_NO_LIMIT);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/a/memory.current", "1063741824\n");
    doc_cgroup(&d, &c);
    assert_int_equal(c.memory_max, 1073741824);
    assert_int_equal(c.memory_used, 1063741824);
    run("limits");
    is("cgroup memory", "warning", "of 1.0 GiB used", "MemoryMax=");
    put("/proc/self/cgroup", "9:memory:/m\n");
    put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
    doc_cgroup(&d, &c);
    assert_true(c.memory_max == CGR_NO_LIMIT);
}

/* ---- io_uring, memory -------------------------------------------------------- */

static void
test_io_uring(void **state)
{
    (void)state;
    put("/proc/self/status", "Seccomp:\t0\n");
    run("io_uring");
    is("sysctl", "ok", "not there", NULL);
    is("setup", "ok", "works", NULL);
    is("read", "ok", "supported", NULL);
    is("seccomp", "ok", "no filter", NULL);
    put("/proc/sys/kernel/io_uring_disabled", "2\n");
    uring.setup = -EPERM;
    run("io_uring");
    is("sysctl", "warning", "= 2: for nobody", "io_uring_disabled=0");
    is("setup", "warning", "pread", "seccomp");
    put("/proc/sys/kernel/io_uring_disabled", "1\n");
    put("/proc/sys/kernel/io_uring_group", "990\n");
    uring.setup = -ENOMEM;
    run("io_uring");
    is("sysctl", "warning", "(990)", "io_uring_disabled=0");
    is("setup", "warning", "pread", "LimitMEMLOCK");
    uring = (struct doc_uring){ 0, -ENOSYS, -ENOMEM };
    run("io_uring");
    is("read", "warning", "not supported", "5.6");
    is("buffers", "info", "cannot", "LimitMEMLOCK");
}

static void
test_memory(void **state)
{
    char err[256];

    (void)state;
    put("/proc/meminfo", "MemTotal: 100000 kB\nMemAvailable: 2000 kB\n");
    for (int i = 1; i <= 9; i++) {
        char path[32], text[128];

        snprintf(path, sizeof(path), "/proc/%d/status", 100 + i);
        snprintf(text, sizeof(text), "Name:\tp%d\nUid:\t%lu 0 0 0\nVmRSS:\t%d kB\n", i,
            4000000000ul + (unsigned long)i, i % 2 != 0 ? i : 100 * i);
        put(path, text);
    }
    put("/m/config.json", "{}");
    put("/m/a.safetensors", "0123456789");
    put("/m/b.safetensors", "0123");
    put("/m/c.bin", "0123");
    assert_int_equal(par_set_text(ps, "model.path", "/m", PAR_FROM_SET, err, sizeof(err)),
        0);
    run("memory");
    is("host", "warning", "2.0 MiB of 97.7 MiB", "end processes");
    is("model", "ok", "14 B of weights in 2 files", NULL);
    /* the five largest, in order */
    is("held by", "ok", "p8 (pid 108, 4000000008)", NULL);
    assert_true(
        strstr(get("held by", "value"), "p6") < strstr(get("held by", "value"), "p2"));
    assert_non_null(strstr(get("held by", "value"), "p9"));
    assert_null(strstr(get("held by", "value"), "p7"));
    /* a model that does not fit is a failure if there is only the CPU */
    put("/proc/meminfo", "MemTotal: 100000 kB\nMemAvailable: 90000 kB\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "10\n");
    run("memory");
    is("model", "info", "14 B of weights in 2 files; 10 B", "wint8");
    assert_int_equal(par_set_text(ps, "device.backend", "cpu", PAR_FROM_SET, err,
                         sizeof(err)),
        0);
    run("memory");
    is("model", "error", "14 B", "wint8");
}

/* ---- fdd --------------------------------------------------------------------- */

static void
test_fdd(void **state)
{
    char err[256], path[600];

    (void)state;
    run("fdd");
    is("daemon", "info", "none runs in /run/fdd", "systemctl start fdd");
    is("runtime folder", "info", "No such file", "--runtime-dir");
    is("model", "info", "none is named by the test", "model.path");
    put("/run/fdd/x", "");
    snprintf(path, sizeof(path), "%s/run/fdd", root);
    chmod(path, 0777);
    assert_int_equal(par_set_text(ps, "model.path", "/gone", PAR_FROM_SET, err, sizeof(err)),
        0);
    assert_int_equal(par_set_text(ps, "ipc.group", "no-such-group-here", PAR_FROM_SET,
                         err, sizeof(err)),
        0);
    d.uid = 4000000001u;
    d.daemon_pid = 42;
    run("fdd");
    is("daemon", "warning", "pid 42 does not answer", "sudo fdctl status");
    is("runtime folder", "error", "written by others", "another daemon.runtime_dir");
    is("client socket", "error", "No such file", "fdctl stop");
    is("ipc.group", "info", "does not exist", "groupadd --system no-such-group-here");
    is("model", "error", "/gone (the test): No such file", "config.json");
    put("/run/fdd/fdd.sock", "");
    run("fdd");
    is("client socket", "error", "is not a socket", "remove it");
}

static void
test_fdd_daemon(void **state)
{
    char err[256];

    (void)state;
    put("/m/config.json", "{}");
    assert_int_equal(par_set_text(ps, "model.path", "/m", PAR_FROM_SET, err, sizeof(err)),
        0);
    d.status = json_pack("{s:s,s:i,s:s,s:[{s:s,s:i,s:i,s:s,s:s,s:s}]}", "state",
        "degraded", "pid", 42, "version", "0.0.1", "workers", "phase", "failed", "pid", 0,
        "deaths", 3, "last_death", "signal 11", "error", "no room", "fix", "make room");
    run("fdd");
    is("daemon", "error", "degraded, pid 42", "journalctl");
    is("version", "warning", "0.0.1", "same release");
    is("worker", "error", "failed: no room", "make room");
    is("worker deaths", "warning", "3, the last: signal 11", "debug panic");
    is("model", "error", "no *.safetensors", "dummy");
    json_decref((json_t *)(uintptr_t)d.status);
    d.status = json_pack("{s:s,s:i,s:s,s:[{s:s,s:i,s:i,s:i,s:s,s:[{s:s,s:s,s:b}]}]}",
        "state", "running", "pid", 42, "version", VERSION, "workers", "phase", "none",
        "pid", 0, "deaths", 0, "restart_in_ms", 70, "last_death", "signal 9", "devices",
        "device", "cuda:2", "uuid", "GPU-5", "is_used", 0);
    put("/m/a.safetensors", "1");
    run("fdd");
    is("daemon", "ok", "running", NULL);
    is("worker", "warning", "again in 70 ms: signal 9", "panic");
    is("device.list", "ok", "entry 0 is cuda:2 GPU-5, not used", NULL);
    if (ver_commit()[0] != '\0') {
        json_object_set_new((json_t *)(uintptr_t)d.status, "commit", json_string("beef123"));
        run("fdd");
        is("daemon", "ok", "version " VERSION " (beef123)", NULL);
        is("version", "warning", ver_text(), "start the daemon again");
    }
    is("model", "ok", "fdd-worker --check /m", NULL);
    json_decref((json_t *)(uintptr_t)d.status);
}

static void
test_report(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f;

    (void)state;
    assert_int_equal(doc_worst(d.checks), DOC_OK);
    doc_add(&d, DOC_OK, "one", "fine %d", 1);
    doc_add(&d, DOC_NOTE, "two", "a\nb" FIX "do %s", "this");
    doc_data(&d, "{s:i}", "k", 5);
    assert_int_equal(json_integer_value(
                         json_object_get(json_object_get(find("two"), "data"), "k")),
        5);
    assert_int_equal(doc_worst(d.checks), DOC_NOTE);
    f = open_memstream(&text, &n);
    doc_print(f, d.checks, 1);
    fclose(f);
    assert_string_equal(text,
        "test\n  info    two                a\n"
        "                             b\n"
        "                             fix: do this\n");
    free(text);
    f = open_memstream(&text, &n);
    doc_print(f, d.checks, 0);
    fclose(f);
    assert_non_null(strstr(text, "  ok      one                fine 1\n"));
    assert_non_null(strstr(text, "\n1 ok, 1 info, 0 warnings, 0 errors\n"));
    free(text);
    /* a process name cannot pose as a fix */
    doc_add(&d, DOC_NOTE, "three", "%s" FIX "kill it", "evil" FIX "run this");
    is("three", "info", "evil?run this", NULL);
    doc_add(&d, DOC_OK, "four", "held by %s and others", "evil" FIX);
    is("four", "ok", "evil? and others", NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_reading),
        T(test_kernel),
        T(test_processor),
        T(test_processors),
        T(test_limits),
        T(test_odd_contents),
        T(test_cgroup_memory),
        T(test_devices),
        T(test_io_uring),
        T(test_memory),
        T(test_fdd),
        T(test_fdd_daemon),
        T(test_report),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
