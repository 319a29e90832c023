/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * fdctl doctor: checks whether this machine is fit for fdd. A check has a state, a
 * finding and, unless all is well, a repair; checks come in groups.
 *
 *   doctor/doctor.c  the command, the report, files under the root
 *   doctor/sys.c     groups system and io_uring
 *   doctor/limits.c  groups limits and memory
 *   doctor/fdd.c     group fdd
 *   doctor/gpu.c     group gpu, and the library it asks
 *
 * All files are read below doc.root, and the kernel's and the driver's calls go through
 * doc.tries and doc.nvml, so that tests can simulate machines. A missing or malformed
 * file gives a check "unknown", never an error. The command runs each group in a process
 * of its own and ends it if it hangs. One thread.
 */
#ifndef FDD_TOOLS_FDCTL_DOCTOR_DOCTOR_H
#define FDD_TOOLS_FDCTL_DOCTOR_DOCTOR_H

#include "daemon/common/cgroup.h"
#include "daemon/common/param.h"
#include "daemon/common/text.h"
#include "tools/fdctl/lib/fct.h"

enum doc_state { DOC_OK, DOC_NOTE, DOC_WARN, DOC_FAIL, DOC__N };

/* Trials of system calls; their results are 0 or -errno. */
struct doc_uring {
    int setup, read_op, buffers; /* 1: not tried */
};
struct doc_tries {
    void (*uring)(struct doc_uring *ret);
    int (*pidfd)(void);
    int (*memfd)(void); /* one sealed against future writes */
    int (*futex)(void);
    int (*lib)(const char *name); /* dlopen: 0 or -ENOENT */
};
extern const struct doc_tries doc_real_tries;

struct doc {
    const char *root; /* "" or a folder with proc/, sys/, ... */
    const struct doc_tries *tries;
    const struct doc_nvml *nvml; /* NULL: the library is not installed */
    const struct fct *f;
    const struct par *par; /* the daemon's parameters as far as known */
    const char *par_from;  /* their source, a text for messages */
    const json_t *status;  /* the daemon's answer; NULL: none */
    pid_t daemon_pid;      /* 0: none runs */
    uid_t uid;             /* the user whose rights are checked */
    const char *kernel;    /* release and machine of uname() */
    const char *machine;
    json_t *checks; /* the report: array of objects */
    json_t *last;   /* the check that doc_data() extends */
    const char *group;
    const char *of; /* prefix of the names of checks, ends with a blank; NULL: none */
};

/* ---- report ------------------------------------------------------------------ */

/* In a check's format, the repair follows FIX. A check that is ok leaves it out. */
#define FIX "\x1e"
/* Add a check: the finding, and after FIX the repair. */
void doc_add(struct doc *d, enum doc_state st, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Add data to the last check for --json: an object in the format of json_pack(). */
void doc_data(struct doc *d, const char *fmt, ...);
/* Add a note that path is missing or malformed. */
void doc_unknown(struct doc *d, const char *name, const char *path);
enum doc_state doc_worst(const json_t *checks);
/* Name of group i; NULL after the last one. */
const char *doc_group_name(size_t i);
void doc_run(struct doc *d, size_t group);
void doc_print(FILE *out, const json_t *checks, int quiet);

/* ---- reading ------------------------------------------------------------------- */

/* Values as texts, in temporaries that live as long as the enclosing block. */
#define DOC_BYTES(n)  fct_bytes((double)(n), (char[24]){ 0 })
#define DOC_USER(uid) fct_user(uid, (char[64]){ 0 })
/* A path below the root; if it is too long, it is cut so that the kernel refuses it. */
#define DOC_BELOW(d, path) doc_below(d, path, (char[PATH_MAX + 1]){ 0 })
const char *doc_below(const struct doc *d, const char *path, char ret[PATH_MAX + 1]);
/* dir_read() of a file below the root. */
ssize_t doc_read(const struct doc *d, const char *path, char *ret, size_t ret_bytes);
/* Parse an unsigned number, kB as bytes. Returns 0, or -ERANGE for "max" and the like. */
int doc_u64(const char *text, uint64_t *ret);
/* txt_field() of a file; key NULL: its first line, without the newline. 0 or -errno. */
int doc_value(const struct doc *d, const char *path, const char *key, char *ret,
    size_t ret_bytes);
int doc_number(const struct doc *d, const char *path, const char *key, uint64_t *ret);
/* Count of the numbers in a list such as "0-3,8"; 0: none or malformed. */
unsigned doc_count_list(const char *list);
/* Path of a file in /proc of the daemon, or of this process if none runs. Returns ret. */
const char *doc_proc(const struct doc *d, const char *file, char ret[64]);
struct doc_process {
    long pid, uid;  /* uid -1: not known */
    uint64_t bytes; /* memory used; all ones: not known */
    char name[64];  /* "": not known */
};
void doc_process(const struct doc *d, long pid, struct doc_process *ret);
/* Append a line to the text and an object to the list. */
void doc_list(const struct doc_process *p, json_t *list, char *text, size_t bytes);
/* Limits of the control groups of the daemon, or of this process if none runs. */
void doc_cgroup(const struct doc *d, struct cgr *ret);
/* Bytes and number of the *.safetensors files in a folder. Returns 0 or -errno. */
int doc_weights(const struct doc *d, const char *dir, uint64_t *ret_bytes, unsigned *ret_n);

/* ---- groups -------------------------------------------------------------------- */

typedef void doc_group_fn(struct doc *d);
doc_group_fn doc_system, doc_limits, doc_io_uring, doc_memory, doc_gpu, doc_fdd;

/* ---- NVML ---------------------------------------------------------------------- */

#define DOC_NVML_OK            0
#define DOC_NVML_NO_PERMISSION 4
#define DOC_NVML_TOO_SMALL     7
#define DOC_NVML_NO_DRIVER     9
#define DOC_NVML_LOST          15
#define DOC_NVML_MISMATCH      18

/* Layouts of the library. */
struct doc_nvml_mem {
    unsigned long long total, free, used;
};
struct doc_nvml_proc {
    unsigned pid;
    unsigned long long bytes; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
};

/* X(field, name in the library, name in older libraries or "", arguments). Only init,
 * shutdown, error, count, handle and name are never NULL. cuda_version: 12040 is 12.4. */
#define DOC_NVML(X) \
    X(init, "Init_v2", "", void) \
    X(shutdown, "Shutdown", "", void) \
    X(driver_version, "SystemGetDriverVersion", "", char *ret, unsigned bytes) \
    X(cuda_version, "SystemGetCudaDriverVersion_v2", "SystemGetCudaDriverVersion", \
        int *ret) \
    X(count, "DeviceGetCount_v2", "", unsigned *ret) \
    X(handle, "DeviceGetHandleByIndex_v2", "", unsigned i, void **ret) \
    X(name, "DeviceGetName", "", void *dev, char *ret, unsigned bytes) \
    X(capability, "DeviceGetCudaComputeCapability", "", void *dev, int *major, int *minor) \
    X(memory, "DeviceGetMemoryInfo", "", void *dev, struct doc_nvml_mem *ret) \
    X(compute_procs, "DeviceGetComputeRunningProcesses_v3", \
        "DeviceGetComputeRunningProcesses_v2", void *dev, unsigned *n, \
        struct doc_nvml_proc *ret) \
    X(graphics_procs, "DeviceGetGraphicsRunningProcesses_v3", \
        "DeviceGetGraphicsRunningProcesses_v2", void *dev, unsigned *n, \
        struct doc_nvml_proc *ret) \
    X(persistence, "DeviceGetPersistenceMode", "", void *dev, int *ret) \
    X(compute_mode, "DeviceGetComputeMode", "", void *dev, int *ret) \
    X(ecc_mode, "DeviceGetEccMode", "", void *dev, int *ret_now, int *ret_pending) \
    X(ecc_errors, "DeviceGetTotalEccErrors", "", void *dev, int kind, int counter, \
        unsigned long long *ret) \
    X(mig_mode, "DeviceGetMigMode", "", void *dev, unsigned *now, unsigned *pending) \
    X(throttle, "DeviceGetCurrentClocksThrottleReasons", \
        "DeviceGetCurrentClocksEventReasons", void *dev, unsigned long long *ret) \
    X(temperature, "DeviceGetTemperature", "", void *dev, int sensor, unsigned *ret) \
    X(pcie_gen, "DeviceGetCurrPcieLinkGeneration", "", void *dev, unsigned *ret) \
    X(pcie_gen_max, "DeviceGetMaxPcieLinkGeneration", "", void *dev, unsigned *ret) \
    X(pcie_width, "DeviceGetCurrPcieLinkWidth", "", void *dev, unsigned *ret) \
    X(pcie_width_max, "DeviceGetMaxPcieLinkWidth", "", void *dev, unsigned *ret) \
    X(p2p, "DeviceGetP2PStatus", "", void *a, void *b, int index, int *ret) \
    X(nvlink, "DeviceGetNvLinkState", "", void *dev, unsigned link, int *ret)
struct doc_nvml {
    const char *(*error)(int rc);
#define X(field, name, older, ...) int (*field)(__VA_ARGS__);
    DOC_NVML(X)
#undef X
};

/* Fill *ret from libnvidia-ml.so.1, which stays loaded. Returns 0 or -ENOENT. */
int doc_nvml_load(struct doc_nvml *ret);
/* Do flags such as "-gencode=...,code=sm_90a" make code that runs on this capability? */
int doc_runs_on(const char *gencode, int major, int minor);

#endif
