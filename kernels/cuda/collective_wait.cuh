/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for another rank of a group, for kernels: how a rank detects that the group has
 * failed, and how it makes all others fail.
 */
#ifndef FDD_KERNELS_CUDA_COLLECTIVE_WAIT_CUH
#define FDD_KERNELS_CUDA_COLLECTIVE_WAIT_CUH

#include "kernels/collective_channel.h"
#include "kernels/cuda/fdk_cuda.cuh"

#define SPINS   16               /* polls between two reads of the clock */
#define TOLD_NS 100000           /* wait before the failure value in host memory is read,
                                    and least time between two reads by a device */

static __device__ __forceinline__ void
flag_put(uint64_t *p, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" :: "l"(p), "l"(v) : "memory");
}

static __device__ __forceinline__ uint64_t
flag_now(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ uint64_t *
bad_at(const struct coll_run *r, int rank)
{
    return (uint64_t *)r->s->base[rank];
}

static __device__ __forceinline__ uint64_t
bad_now(const struct coll_run *r)
{
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
        : "=l"(v) : "l"(bad_at(r, r->s->rank)) : "memory");
    return v;
}

static __device__ __forceinline__ uint64_t
clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* Reads the group's failure value from host memory. Such a read is slow, and several at
 * once delay all other traffic to the host, launches too. So only one thread of the
 * device reads at a time, and stores a value that is not 0 in the device's workspace,
 * which all threads poll. */
static __device__ __forceinline__ uint64_t
told_now(const struct coll_run *r, uint64_t now)
{
    unsigned long long *looked = (unsigned long long *)&((struct cu_claim *)r->own)->looked;
    uint64_t last = *(volatile unsigned long long *)looked, v;
    if (now - last < TOLD_NS || atomicCAS(looked, last, now) != last)
        return 0;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(r->s->told)
        : "memory");
    if (v != 0)
        flag_put(bad_at(r, r->s->rank), v);
    return v;
}

static __device__ __noinline__ int
fail(const struct coll_run *r, uint64_t bad)
{
    uint64_t kind = (bad - 1) >> 8;
    cu_report((struct cu_claim *)r->own, kind == COLL_LATE ? CU_BAD_LATE :
        kind == COLL_GONE ? CU_BAD_GONE : CU_BAD_OTHER,
        r->s->number[(bad - 1) & 0xff], r->s->number[r->s->rank],
        (int)(r->s->limit_ns / 1000000));
    return -1;
}

static __device__ __noinline__ int
give_up(const struct coll_run *r, enum coll_bad kind, int who)
{
    uint64_t bad = coll_bad_of(kind, who);
    for (int q = 0; q < r->s->n; q++)
        flag_put(bad_at(r, q), bad);
    return fail(r, bad);
}

/* Checks a wait for rank q since `begin`. Returns 0 to go on waiting, not 0 if the
 * operation has failed. */
static __device__ __forceinline__ int
waited_for(const struct coll_run *r, int q, uint64_t begin)
{
    uint64_t now = clock_ns(), bad = now - begin > TOLD_NS ? told_now(r, now) : 0;
    if (bad != 0)
        return fail(r, bad);
    return now - begin > r->s->limit_ns ? give_up(r, COLL_LATE, q) : 0;
}

#endif
