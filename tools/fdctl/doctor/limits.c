/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <dirent.h>
#include <fnmatch.h>
#include <glob.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "daemon/common/link.h"
#include "libclient/fdproto.h"

#define N_HOLDERS 5
#define MEMINFO   "/proc/meminfo"

/* ---- limits --------------------------------------------------------------------- */

/* Get the soft and hard value of a line of /proc/PID/limits; UINT64_MAX: unlimited. */
static int
limit_of(const char *text, const char *name, uint64_t *ret_soft, uint64_t *ret_hard)
{
    char value[128], soft[24], hard[24];

    if (txt_field(text, name, value, sizeof(value)) != 0 ||
        sscanf(value, "%23s %23s", soft, hard) != 2)
        return -ENOENT;
    *ret_soft = *ret_hard = UINT64_MAX;
    return (strcmp(soft, "unlimited") == 0 || doc_u64(soft, ret_soft) == 0) &&
            (strcmp(hard, "unlimited") == 0 || doc_u64(hard, ret_hard) == 0)
        ? 0
        : -EINVAL;
}

/* Does CAP_IPC_LOCK lift the limit? It counts only in the initial user namespace. */
static int
may_lock_all(const struct doc *d)
{
    unsigned long long inside = 1, outside = 1, n = 0;
    char path[64], line[128], caps[32];

    return doc_value(d, doc_proc(d, "/uid_map", path), NULL, line, sizeof(line)) == 0 &&
        sscanf(line, "%llu %llu %llu", &inside, &outside, &n) == 3 && inside == 0 &&
        outside == 0 && n == UINT32_MAX &&
        doc_value(d, doc_proc(d, "/status", path), "CapEff", caps, sizeof(caps)) == 0 &&
        (strtoull(caps, NULL, 16) >> CAP_IPC_LOCK & 1) != 0;
}

static void
check_memlock(struct doc *d, const char *who, uint64_t soft)
{
    /* The gate locks the answer ring of every session. */
    uint64_t per = (uint64_t)d->par->ipc_cq_slots * FDP_SLOT + FDP_D2C_SLOTS;
    uint64_t lock = (uint64_t)d->par->ipc_max_clients * per;
    int is_free = may_lock_all(d);

    doc_add(d, soft >= lock || is_free ? DOC_OK : DOC_WARN, "memlock",
        "%s %s%s; %lld sessions lock %s" FIX
        "LimitMEMLOCK=infinity in the service (fdd.service has it), else "
        "ulimit -l unlimited before fdd, allowed by\n'* - memlock unlimited' in "
        "/etc/security/limits.d/fdd.conf",
        soft == UINT64_MAX ? "unlimited" : DOC_BYTES(soft), who,
        soft < lock && is_free ? ", which may lock more (CAP_IPC_LOCK)" : "",
        (long long)d->par->ipc_max_clients, DOC_BYTES(lock));
    doc_data(d, "{s:o?, s:I}", "soft",
        soft == UINT64_MAX ? NULL : json_integer((json_int_t)soft), "wanted",
        (json_int_t)lock);
}

static void
check_rlimits(struct doc *d)
{
    char path[64], text[4096], who[48] = "of this shell";
    uint64_t files = par_descriptors(d->par), soft, hard;

    if (strncmp(doc_proc(d, "/limits", path), "/proc/self", 10) != 0)
        snprintf(who, sizeof(who), "of the daemon, pid %ld", (long)d->daemon_pid);
    (void)doc_read(d, path, text, sizeof(text));
    if (limit_of(text, "Max locked memory", &soft, &hard) != 0)
        doc_unknown(d, "memlock", path);
    else
        check_memlock(d, who, soft);
    if (text[0] == '\0')
        return;
    if (limit_of(text, "Max open files", &soft, &hard) != 0) {
        doc_unknown(d, "nofile", path);
        return;
    }
    /* The daemon raises the soft limit itself. */
    doc_add(d, hard >= files ? DOC_OK : DOC_WARN, "nofile",
        "%llu, at most %llu %s; %llu needed" FIX
        "LimitNOFILE=65536 in the service, else ulimit -Hn, or a smaller "
        "ipc.max_clients (%lld)",
        (unsigned long long)soft, (unsigned long long)hard, who,
        (unsigned long long)files, (long long)d->par->ipc_max_clients);
    doc_data(d, "{s:o?, s:I}", "hard",
        hard == UINT64_MAX ? NULL : json_integer((json_int_t)hard), "wanted",
        (json_int_t)files);
}

static void
check_cgroup(struct doc *d)
{
    struct cgr c;

    doc_cgroup(d, &c);
    if (c.memory_max == CGR_NO_LIMIT) {
        doc_add(d, DOC_OK, "cgroup memory", "no limit");
        return;
    }
    doc_add(d, c.memory_used > c.memory_max / 10 * 9 ? DOC_WARN : DOC_OK, "cgroup memory",
        "%s of %s used" FIX "raise the limit (systemd: MemoryMax=, docker: --memory), or the "
        "kernel ends the daemon",
        DOC_BYTES(c.memory_used), DOC_BYTES(c.memory_max));
    doc_data(d, "{s:I, s:I}", "limit", (json_int_t)c.memory_max, "used",
        (json_int_t)c.memory_used);
}

static void
check_shm(struct doc *d)
{
    uint64_t need = sizeof(struct lnk_seg), size, left;
    struct statvfs vfs;

    if (statvfs(DOC_BELOW(d, "/dev/shm"), &vfs) != 0) {
        doc_add(d, DOC_FAIL, "/dev/shm",
            "%s: fdd starts no worker, for what they share is made there" FIX
            "sudo mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm",
            strerror(errno));
        return;
    }
    size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
    left = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    doc_add(d, left >= need ? DOC_OK : DOC_WARN, "/dev/shm",
        "%s of %s free; %s needed" FIX
        "remove unused files (ls -l /dev/shm), or make it larger: sudo "
        "mount -o remount,size=1G /dev/shm (docker: --shm-size)",
        DOC_BYTES(left), DOC_BYTES(size), DOC_BYTES(need));
    doc_data(d, "{s:I, s:I}", "size", (json_int_t)size, "free", (json_int_t)left);
}

static void
check_overcommit(struct doc *d)
{
    uint64_t v;

    if (doc_number(d, "/proc/sys/vm/overcommit_memory", NULL, &v) != 0)
        doc_unknown(d, "overcommit", "/proc/sys/vm/overcommit_memory");
    else
        doc_add(d, v == 2 ? DOC_WARN : DOC_OK, "overcommit",
            "vm.overcommit_memory = %llu%s" FIX "sudo sysctl -w vm.overcommit_memory=0",
            (unsigned long long)v,
            v == 2 ? ": the KV pool's reserved addresses and CUDA's count as memory" : "");
}

static void
check_swap(struct doc *d)
{
    uint64_t total, left;

    if (doc_number(d, MEMINFO, "SwapTotal", &total) != 0 ||
        doc_number(d, MEMINFO, "SwapFree", &left) != 0 || left > total)
        doc_unknown(d, "swap", MEMINFO);
    else
        doc_add(d, (total - left) / 2 > left ? DOC_NOTE : DOC_OK, "swap",
            total == 0 ? "none"
                       : "%s of %s used" FIX
                         "memory is short: weights that are swapped out make every step "
                         "wait; look at fdctl doctor memory",
            DOC_BYTES(total - left), DOC_BYTES(total));
}

/* Get the choice in brackets in "always [madvise] never". Returns 0 or -ENOENT. */
static int
chosen(const struct doc *d, const char *path, char ret[32])
{
    char line[128];

    return doc_value(d, path, NULL, line, sizeof(line)) == 0 &&
            sscanf(strchrnul(line, '['), "[%31[^]]", ret) == 1
        ? 0
        : -ENOENT;
}

static void
check_pages(struct doc *d)
{
    static const char thp[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    uint64_t total = 0, left = 0, size = 0;
    char mode[32];

    if (chosen(d, thp, mode) != 0)
        doc_unknown(d, "huge pages", thp);
    else if (strcmp(mode, "never") != 0)
        doc_add(d, DOC_OK, "huge pages", "transparent: %s", mode);
    else
        doc_add(d, DOC_WARN, "huge pages",
            "transparent: never; the CPU backend keeps weights and KV cache in small pages" FIX
            "echo madvise | sudo tee %s",
            thp);
    if (chosen(d, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", mode) == 0)
        doc_add(d, DOC_OK, "shared huge pages", "%s (rings are small)", mode);
    (void)doc_number(d, MEMINFO, "HugePages_Total", &total);
    (void)doc_number(d, MEMINFO, "HugePages_Free", &left);
    (void)doc_number(d, MEMINFO, "Hugepagesize", &size);
    if (total == 0 || left > total || __builtin_mul_overflow(total, size, &total))
        doc_add(d, DOC_OK, "reserved pages", "none");
    else
        doc_add(d, left > 0 ? DOC_NOTE : DOC_OK, "reserved pages",
            "%s in hugetlb pages, %s of it free; fdd uses none" FIX
            "if no other program wants them: sudo sysctl -w vm.nr_hugepages=0",
            DOC_BYTES(total), DOC_BYTES(left * size));
}

void
doc_limits(struct doc *d)
{
    check_rlimits(d);
    check_cgroup(d);
    check_shm(d);
    check_overcommit(d);
    check_swap(d);
    check_pages(d);
}

/* ---- memory ------------------------------------------------------------------------ */

int
doc_weights(const struct doc *d, const char *dir, uint64_t *ret_bytes, unsigned *ret_n)
{
    DIR *dp = opendir(DOC_BELOW(d, dir));
    const struct dirent *e;
    struct stat st;

    if (dp == NULL)
        return -errno;
    *ret_bytes = *ret_n = 0;
    while ((e = readdir(dp)) != NULL)
        if (fnmatch("*.safetensors", e->d_name, 0) == 0 &&
            fstatat(dirfd(dp), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) {
            *ret_bytes += (uint64_t)st.st_size;
            ++*ret_n;
        }
    closedir(dp);
    return 0;
}

/* Does the model fit into host memory? On a GPU the worker's memory plan decides. */
static void
check_model(struct doc *d, uint64_t room)
{
    const char *phase = fct_str(json_object_get(d->status, "worker"), "phase");
    const char *model = d->par->model_path;
    int is_loaded = strcmp(phase, "ready") == 0;
    int on_cpu = d->par->device_backend == PAR_DEVICE_BACKEND_CPU;
    uint64_t bytes;
    unsigned n;

    if (model[0] == '\0' || strcmp(model, "null") == 0 ||
        doc_weights(d, model, &bytes, &n) != 0 || n == 0)
        return; /* group fdd reports why */
    if (bytes <= room || is_loaded)
        doc_add(d, DOC_OK, "model", "%s of weights in %u file%s%s", DOC_BYTES(bytes), n,
            n == 1 ? "" : "s", is_loaded ? ", loaded" : "");
    else
        doc_add(d, on_cpu ? DOC_FAIL : DOC_NOTE, "model",
            "%s of weights in %u file%s; %s of host memory available" FIX
            "on the CPU backend: end processes that hold memory (below), set quant.weights "
            "= wint8, or take a smaller model",
            DOC_BYTES(bytes), n, n == 1 ? "" : "s", DOC_BYTES(room));
    doc_data(d, "{s:I, s:i}", "bytes", (json_int_t)bytes, "files", n);
}

static void
check_holders(struct doc *d)
{
    struct doc_process top[N_HOLDERS + 1]; /* the largest, and room for one more */
    char text[1024] = "";
    size_t n = 0, i;
    glob_t g = { 0 };
    json_t *list;

    (void)glob(DOC_BELOW(d, "/proc/[0-9]*"), GLOB_NOSORT, NULL, &g);
    for (size_t k = 0; k < g.gl_pathc; k++) {
        struct doc_process p;

        doc_process(d, strtol(strrchr(g.gl_pathv[k], '/') + 1, NULL, 10), &p);
        if (p.bytes == UINT64_MAX || p.uid < 0 || p.name[0] == '\0')
            continue;
        for (i = n; i > 0 && top[i - 1].bytes < p.bytes; i--)
            top[i] = top[i - 1];
        top[i] = p;
        n += n < N_HOLDERS;
    }
    globfree(&g);
    if (n == 0) {
        doc_unknown(d, "held by", "/proc/PID/status");
        return;
    }
    list = json_array();
    for (i = 0; i < n; i++)
        doc_list(&top[i], list, text, sizeof(text));
    doc_add(d, DOC_OK, "held by", "%s", text);
    doc_data(d, "{s:o}", "processes", list);
}

void
doc_memory(struct doc *d)
{
    uint64_t total, room;
    struct cgr c;

    if (doc_number(d, MEMINFO, "MemTotal", &total) != 0 ||
        doc_number(d, MEMINFO, "MemAvailable", &room) != 0) {
        doc_unknown(d, "host", MEMINFO);
    } else {
        doc_add(d, room < total / 20 ? DOC_WARN : DOC_OK, "host",
            "%s of %s available" FIX
            "end processes that hold memory (below), or the kernel kills one",
            DOC_BYTES(room), DOC_BYTES(total));
        doc_data(d, "{s:I, s:I}", "total", (json_int_t)total, "available", (json_int_t)room);
        doc_cgroup(d, &c);
        if (c.memory_max != CGR_NO_LIMIT && c.memory_used <= c.memory_max &&
            c.memory_max - c.memory_used < room)
            room = c.memory_max - c.memory_used;
        check_model(d, room);
    }
    check_holders(d);
}
