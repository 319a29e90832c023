/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <ctype.h>
#include <dlfcn.h>
#include <glob.h>

#define N_GPU_MAX  32
#define N_PROC_MAX 256
#define N_LINK_MAX 18

#define P2P_READ   0
#define P2P_NVLINK 2

/* Does the library have the function, and does it succeed? */
#define ASK(fn, ...) (d->nvml->fn != NULL && d->nvml->fn(__VA_ARGS__) == DOC_NVML_OK)

struct gpu {
    void *dev;
    char name[64];
    unsigned i;
    int n_worker; /* number of fdd workers on it */
};

/* ---- without a GPU --------------------------------------------------------------- */

/* Count NVIDIA's display and compute functions on the PCI bus. */
static unsigned
count_pci(const struct doc *d)
{
    char path[64], line[32];
    unsigned n = 0;
    glob_t g = { 0 };

    (void)glob(DOC_BELOW(d, "/sys/bus/pci/devices/*"), 0, NULL, &g);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        const char *dev = strrchr(g.gl_pathv[i], '/') + 1;

        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.16s/vendor", dev);
        if (doc_value(d, path, NULL, line, sizeof(line)) != 0 || strcmp(line, "0x10de") != 0)
            continue;
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.16s/class", dev);
        n += doc_value(d, path, NULL, line, sizeof(line)) == 0 &&
            strncmp(line, "0x03", 4) == 0;
    }
    globfree(&g);
    return n;
}

/* Get the loaded module's version: the first number with a dot. Returns 0 or -ENOENT. */
static int
module_version(const struct doc *d, char ret[64])
{
    char line[256], *rest = line, *p;

    if (doc_value(d, "/proc/driver/nvidia/version", NULL, line, sizeof(line)) != 0)
        return -ENOENT;
    while ((p = strsep(&rest, " ")) != NULL)
        if (isdigit((unsigned char)*p) && p[strspn(p, "0123456789")] == '.') {
            snprintf(ret, 64, "%s", p);
            return 0;
        }
    return -ENOENT;
}

/* Returns 1 if the driver answers. */
static int
check_driver(struct doc *d)
{
    char module[64] = "", library[96] = "";
    unsigned n_pci = count_pci(d);
    int has_module = module_version(d, module) == 0, rc;

    if (d->nvml == NULL && has_module)
        doc_add(d, DOC_WARN, "driver",
            "module %s is loaded, but libnvidia-ml.so.1 is not found" FIX
            "install the driver's libraries of version %s (in a container: the "
            "NVIDIA container toolkit, --gpus all)",
            module, module);
    else if (d->nvml == NULL && n_pci > 0)
        doc_add(d, DOC_WARN, "driver",
            "%u NVIDIA device%s, but no driver is loaded" FIX
            "install the NVIDIA driver, or set device.backend = cpu",
            n_pci, n_pci == 1 ? "" : "s");
    else if (d->nvml == NULL)
        doc_add(d, DOC_NOTE, "driver",
            "no NVIDIA GPU" FIX "nothing to fix: device.backend = auto serves on the CPU");
    if (d->nvml == NULL)
        return 0;
    rc = d->nvml->init();
    if (rc == DOC_NVML_OK)
        doc_add(d, DOC_OK, "driver", "%s",
            ASK(driver_version, library, sizeof(library)) ? library : module);
    else
        doc_add(d, DOC_WARN, "driver", "%s%s%s" FIX "%s", d->nvml->error(rc),
            has_module ? "; module " : "", module,
            rc == DOC_NVML_MISMATCH
                ? "module and libraries differ since an update: start the machine again"
                : rc == DOC_NVML_NO_DRIVER ? "sudo modprobe nvidia; in a container: --gpus all"
                : rc == DOC_NVML_NO_PERMISSION ? "let this user read and write /dev/nvidia*"
                                               : "dmesg | grep -i nvrm says more");
    return rc == DOC_NVML_OK;
}

/* ---- libraries and files ----------------------------------------------------------- */

static void
check_libraries(struct doc *d)
{
    static const char *const usual[] = { "libcublasLt.so.13", "libcublasLt.so.12",
        "/usr/local/cuda/lib64/libcublasLt.so" };
    const char *named = getenv("FDD_CUBLASLT");
    int version = 0, is_there;

#ifndef FDD_HAVE_CUDA
    doc_add(d, DOC_WARN, "backend",
        "this build of fdd has no CUDA backend" FIX
        "build it with nvcc in reach: configure --with-cuda=/usr/local/cuda");
#endif
    if (ASK(cuda_version, &version))
        doc_add(d, version >= 12000 ? DOC_OK : DOC_WARN, "cuda",
            "the driver supports %d.%d" FIX
            "update the driver: CUDA 12 is the least that fdd is built with",
            version / 1000, version % 1000 / 10);
    is_there = d->tries->lib("libcuda.so.1") == 0;
    doc_add(d, is_there ? DOC_OK : DOC_FAIL, "libcuda",
        "libcuda.so.1%s" FIX
        "install the driver's CUDA library (Debian: libcuda1; in a container: "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
        is_there ? "" : " is not found");
    if (named != NULL && named[0] != '\0') {
        is_there = d->tries->lib(named) == 0;
        doc_add(d, is_there ? DOC_OK : DOC_FAIL, "cublasLt",
            is_there ? "%s (FDD_CUBLASLT)"
                     : "FDD_CUBLASLT names %s, which cannot be loaded" FIX
                       "correct FDD_CUBLASLT, or unset it",
            named);
        return;
    }
    /* In the order of the CUDA backend, kernels/cuda/ops_gemm.cu. */
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        if (d->tries->lib(usual[i]) == 0) {
            doc_add(d, DOC_OK, "cublasLt", "%s", usual[i]);
            return;
        }
    doc_add(d, DOC_FAIL, "cublasLt",
        "neither %s nor %s is found" FIX
        "install CUDA's cuBLAS, or name the file: FDD_CUBLASLT=/path/of/%s in the "
        "daemon's environment",
        usual[0], usual[1], usual[0]);
}

static void
check_device_file(struct doc *d, const char *path, int is_needed)
{
    const char *full = DOC_BELOW(d, path);
    int e = access(full, R_OK | W_OK) == 0 ? 0 : errno;

    if (e == 0 || (e == ENOENT && !is_needed))
        return;
    doc_add(d, DOC_WARN, path,
        access(full, F_OK) == 0
            ? "%s" FIX "ls -l %s says who may; add the daemon's user to its group (often "
              "video or render), or see NVreg_DeviceFileMode in the driver's README"
            : "%s" FIX "sudo nvidia-modprobe -c 0 -u makes it; in a container: --gpus all",
        strerror(e), path);
}

static void
check_device_files(struct doc *d, unsigned n_gpu)
{
    size_t before = json_array_size(d->checks);
    char path[64];

    check_device_file(d, "/dev/nvidiactl", 1);
    check_device_file(d, "/dev/nvidia-uvm", 1);
    /* A device's number may differ from its file's. */
    for (unsigned i = 0; i < N_GPU_MAX; i++) {
        snprintf(path, sizeof(path), "/dev/nvidia%u", i);
        check_device_file(d, path, 0);
    }
    if (json_array_size(d->checks) == before)
        doc_add(d, DOC_OK, "/dev/nvidia*", "can be read and written (%u device%s)", n_gpu,
            n_gpu == 1 ? "" : "s");
}

/* ---- one GPU ----------------------------------------------------------------------- */

int
doc_runs_on(const char *gencode, int major, int minor)
{
    int any = 0;

    for (const char *p = gencode; (p = strstr(p, "sm_")) != NULL;) {
        char *end;
        long sm = strtol(p + 3, &end, 10);

        any = 1;
        /* suffix a: only this capability; else also later minor ones */
        if (*end == 'a' ? sm == major * 10 + minor : sm / 10 == major && sm % 10 <= minor)
            return 1;
        p = end;
    }
    /* Flags with only compute_NN: the driver compiles the code for any GPU. */
    return !any;
}

static void
check_arch(struct doc *d, struct gpu *g)
{
    int major = 0, minor = 0, fits;

    if (!ASK(capability, g->dev, &major, &minor)) {
        doc_add(d, DOC_OK, "model", "%s", g->name);
        return;
    }
    fits = doc_runs_on(FDD_NVCC_GENCODE, major, minor);
    doc_add(d, fits ? DOC_OK : DOC_WARN, "model",
        "%s, capability %d.%d%s" FIX "configure "
        "--with-nvcc-gencode=-gencode=arch=compute_%d%d,code=sm_%d%d (now: %s)",
        g->name, major, minor, fits ? "" : ", for which this fdd has no code", major,
        minor, major, minor, FDD_NVCC_GENCODE);
    doc_data(d, "{s:s, s:f}", "name", g->name, "capability", major + minor / 10.0);
}

/* List the processes that hold memory of the GPU. Returns their number. */
static unsigned
list_procs(const struct doc *d, const struct gpu *g, struct doc_nvml_proc *ret)
{
    int (*const fn[])(void *, unsigned *,
        struct doc_nvml_proc *) = { d->nvml->compute_procs, d->nvml->graphics_procs };
    unsigned n = 0;

    for (size_t k = 0; k < 2; k++) {
        unsigned got = N_PROC_MAX - n, at = n;

        if (fn[k] == NULL || fn[k](g->dev, &got, ret + n) != DOC_NVML_OK ||
            got > N_PROC_MAX - n)
            continue;
        for (unsigned i = 0; i < got; i++) {
            unsigned j = 0;

            while (j < n && ret[j].pid != ret[at + i].pid)
                j++;
            if (j == n)
                ret[n++] = ret[at + i];
        }
    }
    return n;
}

static void
check_procs(struct doc *d, struct gpu *g)
{
    struct doc_nvml_proc proc[N_PROC_MAX];
    unsigned n = list_procs(d, g, proc), n_other = 0;
    char text[3072] = "", pids[256] = "";
    size_t k;
    json_t *list = json_array();
    const json_t *w;

    for (unsigned i = 0; i < n; i++) {
        struct doc_process p;
        int own = 0;

        json_array_foreach(json_object_get(d->status, "workers"), k, w)
            own |= fct_num(w, "pid") == (int)proc[i].pid;
        doc_process(d, proc[i].pid, &p);
        p.bytes = proc[i].bytes; /* all ones means not known in both */
        doc_list(&p, list, text, sizeof(text));
        json_object_set_new(json_array_get(list, i), "own", json_boolean(own));
        n_other += !own;
        if (strcmp(p.name, "fdd-worker") != 0 && !own)
            continue;
        g->n_worker++;
        (void)txt_add(pids, sizeof(pids), " %u", proc[i].pid);
    }
    doc_add(d, n_other > 0 ? DOC_NOTE : DOC_OK, "held by",
        "%s" FIX "its memory is not the daemon's: end it, or lower "
        "kv.gpu_memory_utilization (now %g)",
        n > 0 ? text : "no process", d->par->kv_gpu_memory_utilization);
    doc_data(d, "{s:o}", "processes", list);
    if (g->n_worker > 1)
        doc_add(d, DOC_WARN, "daemons",
            "%d workers of fdd share it: pids%s" FIX
            "stop one (fdctl --runtime-dir DIR stop), or give each a GPU of its "
            "own: CUDA_VISIBLE_DEVICES in its environment",
            g->n_worker, pids);
}

static void
check_memory(struct doc *d, struct gpu *g)
{
    double share = d->par->kv_gpu_memory_utilization;
    struct doc_nvml_mem m;
    uint64_t weights = 0;
    unsigned n;

    if (!ASK(memory, g->dev, &m))
        return;
    (void)doc_weights(d, d->par->model_path, &weights, &n);
    if (g->n_worker == 0 && weights > m.free)
        doc_add(d, DOC_WARN, "memory",
            "%s of %s free; the weights need %s" FIX
            "end processes that hold memory, set quant.weights = wint8, or take a smaller model",
            DOC_BYTES(m.free), DOC_BYTES(m.total), DOC_BYTES(weights));
    else if (g->n_worker == 0 && (double)m.free < share * (double)m.total)
        doc_add(d, DOC_NOTE, "memory",
            "%s of %s free, less than kv.gpu_memory_utilization = %g would take" FIX
            "end processes that hold memory; else the KV cache gets what is left",
            DOC_BYTES(m.free), DOC_BYTES(m.total), share);
    else
        doc_add(d, DOC_OK, "memory", "%s of %s free", DOC_BYTES(m.free), DOC_BYTES(m.total));
    doc_data(d, "{s:I, s:I}", "total", (json_int_t)m.total, "free", (json_int_t)m.free);
}

static void
check_modes(struct doc *d, struct gpu *g)
{
    int v = 0, pending = 0;
    unsigned mig = 0, mig_pending = 0;
    unsigned long long errors = 0;

    if (ASK(persistence, g->dev, &v))
        doc_add(d, v != 0 ? DOC_OK : DOC_NOTE, "persistence",
            "%s" FIX "sudo nvidia-smi -i %u -pm 1, or enable nvidia-persistenced",
            v != 0 ? "on" : "off: the driver unloads between uses, the start takes longer",
            g->i);
    if (ASK(compute_mode, g->dev, &v) && v == 2)
        doc_add(d, DOC_FAIL, "compute mode",
            "prohibited" FIX "sudo nvidia-smi -i %u -c 0", g->i);
    if (ASK(ecc_mode, g->dev, &v, &pending)) {
        if (v != 0)
            (void)ASK(ecc_errors, g->dev, 1, 0, &errors);
        if (v != 0 || errors > 0)
            doc_add(d, errors > 0 ? DOC_FAIL : DOC_OK, "ecc",
                "on, %llu uncorrectable errors" FIX
                "its memory fails: sudo nvidia-smi -i %u -r; if they come back, "
                "have it replaced",
                errors, g->i);
        else
            doc_add(d, DOC_NOTE, "ecc",
                "off" FIX "flipped bits go unseen: sudo nvidia-smi -i %u -e 1, then start "
                "the machine again",
                g->i);
    }
    if (ASK(mig_mode, g->dev, &mig, &mig_pending))
        doc_add(d, mig != 0 ? DOC_NOTE : DOC_OK, "mig",
            "%s" FIX "name the instance: CUDA_VISIBLE_DEVICES=MIG-... of nvidia-smi "
            "-L; or sudo nvidia-smi -i %u -mig 0",
            mig != 0 ? "on: fdd sees one instance" : "off", g->i);
}

static void
check_clocks(struct doc *d, struct gpu *g)
{
    /* bits of NVML */
    static const struct {
        unsigned bit;
        enum doc_state state;
        const char *text;
    } why[] = { { 0x04, DOC_NOTE, "power limit" }, { 0x08, DOC_WARN, "hardware" },
        { 0x20, DOC_WARN, "heat" }, { 0x40, DOC_WARN, "heat (hardware)" },
        { 0x80, DOC_WARN, "external power brake" } };
    enum doc_state worst = DOC_OK;
    unsigned long long bits = 0;
    unsigned heat = 0;
    char text[128] = "";

    if (!ASK(throttle, g->dev, &bits))
        return;
    (void)ASK(temperature, g->dev, 0, &heat);
    for (size_t i = 0; i < sizeof(why) / sizeof(why[0]); i++)
        if ((bits & why[i].bit) != 0) {
            (void)txt_add(text, sizeof(text), "%s%s",
                text[0] != '\0' ? ", " : "held back by: ", why[i].text);
            worst = why[i].state > worst ? why[i].state : worst;
        }
    doc_add(d, worst, "clocks",
        "%s%s%u C" FIX "nvidia-smi -q -i %u -d PERFORMANCE,POWER,TEMPERATURE; look at fans, "
        "air and power supply, or raise the limit: sudo nvidia-smi -i %u -pl WATTS",
        text[0] != '\0' ? text : "free", text[0] != '\0' ? "; " : ", ", heat, g->i, g->i);
    doc_data(d, "{s:I}", "reasons", (json_int_t)bits);
}

static void
check_links(struct doc *d, struct gpu *g)
{
    unsigned gen, gen_max, width, width_max, up = 0, n = 0;
    int on;

    if (ASK(pcie_gen, g->dev, &gen) && ASK(pcie_gen_max, g->dev, &gen_max) &&
        ASK(pcie_width, g->dev, &width) && ASK(pcie_width_max, g->dev, &width_max))
        doc_add(d, width < width_max ? DOC_WARN : DOC_OK, "pcie",
            "generation %u of %u, x%u of x%u%s" FIX
            "the GPU has fewer lanes than it can use: another slot, or seat it "
            "again; loading the weights takes longer",
            gen, gen_max, width, width_max,
            gen < gen_max ? " (an idle link is slower)" : "");
    for (unsigned i = 0; i < N_LINK_MAX; i++)
        if (ASK(nvlink, g->dev, i, &on)) {
            up += on != 0;
            n++;
        }
    if (n > 0)
        doc_add(d, DOC_OK, "nvlink", "%u of %u links up", up, n);
}

/* The path between two GPUs: "nv": NVLink, "pci": the bus, "no": through host memory. */
static const char *
peer(const struct doc *d, const struct gpu *a, const struct gpu *b)
{
    int st = -1;

    if (d->nvml->p2p(a->dev, b->dev, P2P_NVLINK, &st) == DOC_NVML_OK && st == 0)
        return "nv";
    if (d->nvml->p2p(a->dev, b->dev, P2P_READ, &st) != DOC_NVML_OK)
        return "?";
    return st == 0 ? "pci" : "no";
}

static void
check_peers(struct doc *d, const struct gpu *g, unsigned n)
{
    char text[8192] = "";
    unsigned missing = 0;
    json_t *rows, *row;

    if (n < 2 || d->nvml->p2p == NULL)
        return;
    rows = json_array();
    for (unsigned i = 0; i < n; i++) {
        row = json_array();
        (void)txt_add(text, sizeof(text), "%s%2u:", i > 0 ? "\n" : "", g[i].i);
        for (unsigned k = 0; k < n; k++) {
            const char *cell = i == k ? "-" : peer(d, &g[i], &g[k]);

            missing += strcmp(cell, "no") == 0;
            (void)txt_add(text, sizeof(text), " %3s", cell);
            json_array_append_new(row, json_string(cell));
        }
        json_array_append_new(rows, row);
    }
    doc_add(d, missing > 0 ? DOC_NOTE : DOC_OK, "peer access",
        "%s" FIX "%u of %u directions go through host memory: look at nvidia-smi topo "
        "-p2p r; in the firmware allow peer access (ACS, IOMMU), or use GPUs of one "
        "switch",
        text, missing, n * (n - 1));
    doc_data(d, "{s:o}", "matrix", rows);
}

void
doc_gpu(struct doc *d)
{
    static void (*const checks[])(struct doc * d, struct gpu * g) = { check_arch,
        check_procs, check_memory, check_modes, check_clocks, check_links };
    struct gpu good[N_GPU_MAX];
    unsigned n = 0, n_good = 0;
    char of[16];
    int rc;

    if (!check_driver(d))
        return;
    rc = d->nvml->count(&n);
    if (rc == DOC_NVML_OK && n > 0) {
        check_libraries(d);
        check_device_files(d, n);
    } else {
        doc_add(d, DOC_NOTE, "devices",
            "%s" FIX "nvidia-smi -L; in a container: --gpus all",
            rc != DOC_NVML_OK ? d->nvml->error(rc) : "a driver, but no GPU");
        n = 0;
    }
    for (unsigned i = 0; i < n && i < N_GPU_MAX; i++) {
        struct gpu *g = &good[n_good];

        *g = (struct gpu){ .i = i };
        snprintf(of, sizeof(of), "gpu %u ", i);
        d->of = of;
        rc = d->nvml->handle(i, &g->dev);
        if (rc == DOC_NVML_OK)
            rc = d->nvml->name(g->dev, g->name, sizeof(g->name));
        n_good += rc == DOC_NVML_OK;
        if (rc != DOC_NVML_OK)
            doc_add(d, DOC_FAIL, "model", "%s" FIX "%s", d->nvml->error(rc),
                rc == DOC_NVML_LOST
                    ? "it has left the bus: dmesg | grep -i xid, start the machine again"
                    : "dmesg | grep -i nvrm says more");
        for (size_t k = 0; rc == DOC_NVML_OK && k < sizeof(checks) / sizeof(checks[0]); k++)
            checks[k](d, g);
    }
    d->of = NULL;
    check_peers(d, good, n_good);
    (void)d->nvml->shutdown();
}

/* ---- the library ------------------------------------------------------------------- */

static const struct {
    size_t at;
    const char *name, *older; /* older: name in older libraries */
} symbols[] = { { offsetof(struct doc_nvml, error), "nvmlErrorString", "" },
#define X(field, name, older, ...) \
    { offsetof(struct doc_nvml, field), "nvml" name, "nvml" older },
    DOC_NVML(X)
#undef X
};

int
doc_nvml_load(struct doc_nvml *ret)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL), *sym;
    struct doc_nvml n = { 0 };

    for (size_t i = 0; lib != NULL && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        sym = dlsym(lib, symbols[i].name);
        if (sym == NULL)
            sym = dlsym(lib, symbols[i].older);
        /* memcpy: C has no cast from an object pointer to a function pointer */
        memcpy((char *)&n + symbols[i].at, &sym, sizeof(sym));
    }
    if (n.init == NULL || n.shutdown == NULL || n.error == NULL || n.count == NULL ||
        n.handle == NULL || n.name == NULL)
        return -ENOENT;
    *ret = n;
    return 0;
}
