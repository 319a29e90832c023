/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

#include <errno.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct cpu_isa *forced; /* set by tests */

#if defined(__x86_64__)
/* Some compilers' __builtin_cpu_supports() lacks f16c. */
static int
has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

static int
runs_here(const struct cpu_isa *isa)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == &cpu_isa_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (isa == &cpu_isa_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            has_f16c();
#endif
    return isa == &cpu_isa_generic;
}

static const struct cpu_isa *const all[] = {
#if defined(__x86_64__)
    &cpu_isa_avx512,
    &cpu_isa_avx2,
#endif
    &cpu_isa_generic,
};

const struct cpu_isa *
cpu_isa_pick(void)
{
    if (forced != NULL)
        return forced;
    size_t i = 0;
    while (!runs_here(all[i]))
        i++;
    return all[i];
}

int
fdk_cpu_isa_force(const char *name)
{
    if (name == NULL) {
        forced = NULL;
        return 0;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i]->name, name) == 0 && runs_here(all[i])) {
            forced = all[i];
            return 0;
        }
    return -ENOTSUP;
}
