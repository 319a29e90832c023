/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl doctor and GPUs: a fake driver, no driver, a broken one. */
#include "config.h"

#include "tests/unit/doctor_fixture.h"

#include <limits.h>

static struct fake {
    int init_rc, n, cc, persistence, ecc, mig, nvlink, peer_status;
    int lost; /* the GPU that has fallen off the bus; -1: none */
    unsigned width;
    unsigned long long errors, reasons, used;
    struct doc_nvml_proc proc[4];
    unsigned n_proc;
    int shut;
} fake;

static int
f_init(void)
{
    return fake.init_rc;
}
static int
f_shutdown(void)
{
    fake.shut++;
    return 0;
}

static const char *
f_error(int rc)
{
    return rc == DOC_NVML_LOST ? "GPU is lost" : "some error";
}

static int
f_cuda(int *ret)
{
    *ret = 12040;
    return 0;
}
static int
f_count(unsigned *ret)
{
    *ret = (unsigned)fake.n;
    return 0;
}

static int
f_handle(unsigned i, void **ret)
{
    *ret = (void *)(uintptr_t)(i + 1);
    return (int)i == fake.lost ? DOC_NVML_LOST : 0;
}

static int
f_name(void *dev, char *ret, unsigned bytes)
{
    snprintf(ret, bytes, "Fake %u", (unsigned)(uintptr_t)dev);
    return 0;
}

static int
f_capability(void *dev, int *major, int *minor)
{
    (void)dev;
    *major = fake.cc / 10;
    *minor = fake.cc % 10;
    return 0;
}

static int
f_memory(void *dev, struct doc_nvml_mem *ret)
{
    (void)dev;
    *ret = (struct doc_nvml_mem){ 80ull << 30, (80ull << 30) - fake.used, fake.used };
    return 0;
}

static int
f_procs(void *dev, unsigned *n, struct doc_nvml_proc *ret)
{
    if ((uintptr_t)dev != 1) {
        *n = 0;
        return 0;
    }
    if (*n < fake.n_proc)
        return DOC_NVML_TOO_SMALL;
    memcpy(ret, fake.proc, sizeof(fake.proc));
    *n = fake.n_proc;
    return 0;
}

static int
f_int(void *dev, int *ret)
{
    (void)dev;
    *ret = fake.persistence;
    return 0;
}

static int
f_ecc(void *dev, int *now, int *pending)
{
    (void)dev;
    *now = *pending = fake.ecc;
    return 0;
}

static int
f_errors(void *dev, int kind, int counter, unsigned long long *ret)
{
    (void)dev;
    assert_int_equal(kind, 1);
    assert_int_equal(counter, 0);
    *ret = fake.errors;
    return 0;
}

static int
f_mig(void *dev, unsigned *now, unsigned *pending)
{
    (void)dev;
    *now = *pending = (unsigned)fake.mig;
    return 0;
}

static int
f_throttle(void *dev, unsigned long long *ret)
{
    (void)dev;
    *ret = fake.reasons;
    return 0;
}

static int
f_gen(void *dev, unsigned *ret)
{
    (void)dev;
    *ret = 5;
    return 0;
}
static int
f_width(void *dev, unsigned *ret)
{
    (void)dev;
    *ret = fake.width;
    return 0;
}
static int
f_width_max(void *dev, unsigned *ret)
{
    (void)dev;
    *ret = 16;
    return 0;
}

static int
f_p2p(void *a, void *b, int index, int *ret)
{
    assert_ptr_not_equal(a, b);
    *ret = index == 2 ? (fake.nvlink ? 0 : 5) : fake.peer_status;
    return 0;
}

static const struct doc_nvml nvml = { .init = f_init,
    .shutdown = f_shutdown,
    .error = f_error,
    .cuda_version = f_cuda,
    .count = f_count,
    .handle = f_handle,
    .name = f_name,
    .capability = f_capability,
    .memory = f_memory,
    .compute_procs = f_procs,
    .graphics_procs = f_procs,
    .persistence = f_int,
    .ecc_mode = f_ecc,
    .ecc_errors = f_errors,
    .mig_mode = f_mig,
    .throttle = f_throttle,
    .pcie_gen = f_gen,
    .pcie_gen_max = f_gen,
    .pcie_width = f_width,
    .pcie_width_max = f_width_max,
    .p2p = f_p2p };

static void
machine_with_gpus(void)
{
    fake = (struct fake){ .n = 2,
        .cc = 90,
        .persistence = 1,
        .ecc = 1,
        .nvlink = 1,
        .width = 16,
        .lost = -1 };
    d.nvml = &nvml;
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for "
        "x86_64  580.65.06  Release Build\nGCC version: 13.2\n");
    put("/dev/nvidiactl", "");
    put("/dev/nvidia-uvm", "");
    put("/dev/nvidia0", "");
    put("/dev/nvidia1", "");
}

static void
test_no_gpu(void **state)
{
    (void)state;
    run("gpu");
    is("driver", "info", "no NVIDIA GPU", "auto");
    assert_int_equal(doc_worst(d.checks), DOC_NOTE);
    put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
    run("gpu");
    is("driver", "warning", "1 NVIDIA device, but no driver", "install");
    machine_with_gpus();
    d.nvml = NULL;
    run("gpu");
    is("driver", "warning", "module 580.65.06 is loaded", "580.65.06");
    d.nvml = &nvml;
    fake.init_rc = DOC_NVML_MISMATCH;
    run("gpu");
    is("driver", "warning", "some error; module 580.65.06", "start the machine again");
}

static void
test_good_gpus(void **state)
{
    (void)state;
    machine_with_gpus();
    run("gpu");
    is("driver", "ok", "580.65.06", NULL);
    is("cuda", "ok", "12.4", NULL);
    is("libcuda", "ok", "libcuda.so.1", NULL);
    is("cublasLt", "ok", "libcublasLt.so.12", NULL);
    is("/dev/nvidia*", "ok", "2 devices", NULL);
    is("gpu 1 model", "ok", "Fake 2, capability 9.0", NULL);
    is("gpu 0 memory", "ok", "80.0 GiB of 80.0 GiB free", NULL);
    is("gpu 0 held by", "ok", "no process", NULL);
    is("gpu 0 ecc", "ok", "0 uncorrectable errors", NULL);
    is("gpu 0 pcie", "ok", "x16 of x16", NULL);
    is("peer access", "ok", "0:   -  nv\n 1:  nv   -", NULL);
    assert_int_equal(fake.shut, 1);
}

static void
test_bad_gpus(void **state)
{
    (void)state;
    machine_with_gpus();
    fake.cc = 75;
    fake.persistence = fake.nvlink = 0;
    fake.peer_status = 3;
    fake.errors = 4;
    fake.reasons = 0x64;
    fake.width = 8;
    fake.mig = 1;
    libs = 0;
    run("gpu");
    is("gpu 0 model", "warning", "capability 7.5", "arch=compute_75,code=sm_75");
    is("gpu 0 persistence", "info", "off", "-i 0 -pm 1");
    is("gpu 1 ecc", "error", "4 uncorrectable errors", "-i 1 -r");
    is("gpu 0 mig", "info", "on", "CUDA_VISIBLE_DEVICES");
    is("gpu 0 clocks", "warning", "power limit, heat, heat (hardware)", "-i 0");
    is("gpu 0 pcie", "warning", "x8 of x16", "slot");
    is("peer access", "info", "0:   -  no\n 1:  no   -", "2 of 2");
    is("libcuda", "error", "not found", "libcuda1");
    is("cublasLt", "error", "libcublasLt.so.13", "FDD_CUBLASLT");
    setenv("FDD_CUBLASLT", "/opt/other.so", 1);
    fake.reasons = 4;
    fake.peer_status = 0;
    fake.lost = 0;
    run("gpu");
    is("cublasLt", "error", "FDD_CUBLASLT names /opt/other.so", "correct");
    is("gpu 1 clocks", "info", "power limit", "-pl");
    is("gpu 0 model", "error", "GPU is lost", "left the bus");
    unsetenv("FDD_CUBLASLT");
}

static void
test_gpu_held(void **state)
{
    (void)state;
    machine_with_gpus();
    fake.used = 60ull << 30;
    fake.n_proc = 3;
    fake.proc[0] = (struct doc_nvml_proc){ 501, 50ull << 30, 0, 0 };
    fake.proc[1] = (struct doc_nvml_proc){ 502, ULLONG_MAX, 0, 0 };
    fake.proc[2] = (struct doc_nvml_proc){ 503, 1 << 20, 0, 0 };
    put("/proc/501/status", "Name:\tpython3\nUid:\t4000000001 1 1 1\n");
    put("/proc/502/status", "Name:\tfdd-worker\nUid:\t0 0 0 0\n");
    run("gpu");
    is("gpu 0 held by", "info",
        "50.0 GiB  python3 (pid 501, 4000000001)\n   unknown  "
        "fdd-worker (pid 502, root)\n   1.0 MiB  not of this namespace (pid 503, "
        "unknown)",
        "gpu_memory_utilization");
    is("gpu 1 held by", "ok", "no process", NULL);
    is("gpu 1 memory", "info", "20.0 GiB of 80.0 GiB free", "KV cache");
    /* the daemon's own worker does not count as another process; a second one does */
    d.status = json_pack("{s:[{s:i},{s:i}]}", "workers", "pid", 502, "pid", 9);
    fake.n_proc = 2;
    fake.proc[0] = fake.proc[1];
    fake.n_proc = 1;
    run("gpu");
    is("gpu 0 held by", "ok", "fdd-worker (pid 502", NULL);
    is("gpu 0 memory", "ok", "20.0 GiB", NULL);
    fake.n_proc = 2;
    fake.proc[1] = (struct doc_nvml_proc){ 504, 1 << 30, 0, 0 };
    put("/proc/504/status", "Name:\tfdd-worker\nUid:\t0 0 0 0\n");
    run("gpu");
    is("gpu 0 daemons", "warning", "2 workers of fdd share it: pids 502 504", "stop one");
    json_decref((json_t *)(uintptr_t)d.status);
}

static void
test_runs_on(void **state)
{
    (void)state;
    assert_true(doc_runs_on("-gencode=arch=compute_90a,code=sm_90a", 9, 0));
    assert_false(doc_runs_on("-gencode=arch=compute_90a,code=sm_90a", 10, 0));
    assert_false(doc_runs_on("-gencode=arch=compute_90a,code=sm_90a", 8, 9));
    assert_true(doc_runs_on("-gencode=arch=compute_80,code=sm_80", 8, 6));
    assert_false(doc_runs_on("-gencode=arch=compute_86,code=sm_86", 8, 0));
    assert_false(doc_runs_on("-gencode=arch=compute_80,code=sm_80", 9, 0));
    assert_true(
        doc_runs_on("arch=compute_80,code=sm_80 arch=compute_90a,code=sm_90a", 9, 0));
    assert_true(doc_runs_on("arch=compute_100,code=sm_100", 10, 3));
    assert_true(doc_runs_on("-arch=compute_80", 9, 0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_no_gpu),
        T(test_good_gpus),
        T(test_bad_gpus),
        T(test_gpu_held),
        T(test_runs_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
