/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/doctor/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* An object pointer as a function pointer, which C has no cast for. */
static void
find(void *lib, const char *name, const char *older, void *ret_fn)
{
    void *sym = dlsym(lib, name);

    if (sym == NULL && older != NULL)
        sym = dlsym(lib, older);
    memcpy(ret_fn, &sym, sizeof(sym));
}

int
doc_nvml_load(struct doc_nvml *ret)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    struct doc_nvml n = { 0 };

    if (lib == NULL)
        return -ENOENT;
    find(lib, "nvmlInit_v2", NULL, &n.init);
    find(lib, "nvmlShutdown", NULL, &n.shutdown);
    find(lib, "nvmlErrorString", NULL, &n.error);
    find(lib, "nvmlSystemGetDriverVersion", NULL, &n.driver_version);
    find(lib, "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion",
        &n.cuda_version);
    find(lib, "nvmlDeviceGetCount_v2", NULL, &n.count);
    find(lib, "nvmlDeviceGetHandleByIndex_v2", NULL, &n.handle);
    find(lib, "nvmlDeviceGetName", NULL, &n.name);
    find(lib, "nvmlDeviceGetCudaComputeCapability", NULL, &n.capability);
    find(lib, "nvmlDeviceGetMemoryInfo", NULL, &n.memory);
    find(lib, "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2", &n.compute_procs);
    find(lib, "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v2", &n.graphics_procs);
    find(lib, "nvmlDeviceGetPersistenceMode", NULL, &n.persistence);
    find(lib, "nvmlDeviceGetComputeMode", NULL, &n.compute_mode);
    find(lib, "nvmlDeviceGetEccMode", NULL, &n.ecc_mode);
    find(lib, "nvmlDeviceGetTotalEccErrors", NULL, &n.ecc_errors);
    find(lib, "nvmlDeviceGetMigMode", NULL, &n.mig_mode);
    find(lib, "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetCurrentClocksEventReasons", &n.throttle);
    find(lib, "nvmlDeviceGetTemperature", NULL, &n.temperature);
    find(lib, "nvmlDeviceGetCurrPcieLinkGeneration", NULL, &n.pcie_gen);
    find(lib, "nvmlDeviceGetMaxPcieLinkGeneration", NULL, &n.pcie_gen_max);
    find(lib, "nvmlDeviceGetCurrPcieLinkWidth", NULL, &n.pcie_width);
    find(lib, "nvmlDeviceGetMaxPcieLinkWidth", NULL, &n.pcie_width_max);
    find(lib, "nvmlDeviceGetP2PStatus", NULL, &n.p2p);
    find(lib, "nvmlDeviceGetTopologyCommonAncestor", NULL, &n.topology);
    find(lib, "nvmlDeviceGetNvLinkState", NULL, &n.nvlink);
    if (n.init == NULL || n.shutdown == NULL || n.error == NULL || n.count == NULL ||
        n.handle == NULL || n.name == NULL)
        return -ENOENT;
    *ret = n;
    return 0;
}
