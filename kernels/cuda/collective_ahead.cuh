/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * An all-reduce of two ranks in two launches, for collective.cu only. The operand is
 * copied by the device's copy engine, which takes no multiprocessor from other kernels,
 * on a stream of the group. After the copy cuStreamWriteValue64, which includes a
 * barrier, writes the flag to this rank's own memory, and a second copy sends it to the
 * other rank: drivers of CUDA 13.1 and later do not write another device's memory by that
 * call. The host numbers the operands, so neither launch can be captured.
 */
#ifndef FDD_KERNELS_CUDA_COLLECTIVE_AHEAD_CUH
#define FDD_KERNELS_CUDA_COLLECTIVE_AHEAD_CUH

/* A thread's elements of a row as loaded: both ranks' operands and the residual. */
template<typename A>
struct ahead_row {
    uint64_t x[2][PACKETS_OF_ROW];
    float v[PACKETS_OF_ROW][8 / sizeof(A)];
};

template<typename A>
static __device__ __forceinline__ void
ahead_read(const struct coll_run *r, const char *src, uint64_t at, struct ahead_row<A> *ret)
{
    const int E = 8 / sizeof(A), own = r->s->rank;
    const uint64_t *x[2] = { (const uint64_t *)(own == 0 ? coll_x(r, at) : src),
        (const uint64_t *)(own == 0 ? src : coll_x(r, at)) };
#pragma unroll
    for (int p = 0; p < PACKETS_OF_ROW; p++) {
        uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
        if (i >= (uint32_t)r->j->C / E)
            break;
        ret->x[0][p] = __ldcg(x[0] + i);
        ret->x[1][p] = __ldcg(x[1] + i);
        get_floats<E>(r->j->residual + at + i * E, ret->v[p]);
    }
}

/* Adds the sum to the residual, in memory and in row->v. Returns this thread's sum of
 * squares. */
template<typename A>
static __device__ __forceinline__ float
ahead_add(const struct coll_run *r, uint64_t at, struct ahead_row<A> *row)
{
    const int E = 8 / sizeof(A);
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PACKETS_OF_ROW; p++) {
        uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
        if (i >= (uint32_t)r->j->C / E)
            break;
#pragma unroll
        for (int k = 0; k < E; k++) {
            A add;
            round_to(&add, __fadd_rn(cu_widen(reinterpret_cast<const A *>(&row->x[0][p])[k]),
                cu_widen(reinterpret_cast<const A *>(&row->x[1][p])[k])));
            row->v[p][k] += cu_widen(add);
            sum = fmaf(row->v[p][k], row->v[p][k], sum);
        }
        put_floats<E>(r->j->residual + at + i * E, row->v[p]);
    }
    return sum;
}

/* Computes the rows of a channel in one pass, with the bits of coll_sum() and
 * coll_norm(): a row stays in registers, and the next one is loaded before the barrier
 * for this one's norm. */
template<typename A>
static __device__ __forceinline__ void
ahead_rows(const struct coll_run *r, struct coll_span t, const char *src)
{
    const int E = 8 / sizeof(A);
    const uint32_t C = (uint32_t)r->j->C;
    struct ahead_row<A> row, next;
    if (t.first < t.end)
        ahead_read(r, src, t.first, &row);
    for (uint64_t at = t.first; at < t.end; at += C) {
        float sum = ahead_add(r, at, &row), inv;
        if (at + C < t.end)
            ahead_read(r, src + (at + C - t.first) * sizeof(A), at + C, &next);
        inv = row_scale(r->j, sum);
#pragma unroll
        for (int p = 0; p < PACKETS_OF_ROW; p++) {
            uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
            float w[E];
            if (i >= C / E)
                break;
            get_floats<E>(r->j->w + i * E, w);
            put_normed<A, E>(r->j, (A *)r->j->y + at, i * E, w, row.v[p], inv);
        }
        row = next;
    }
}

static __device__ __forceinline__ void
ahead_sum(const struct coll_run *r, const char *src)
{
    struct coll_span t = coll_span_of(r->j, r->count, r->channel);
    if (r->j->residual == NULL || !rows_fit(r->j) || ((uintptr_t)r->j->x & 7) != 0) {
        coll_ahead_run(r, src);
        return;
    }
    src += t.first * (uint32_t)r->j->eb;
    if (r->j->type == FDK_F32)
        ahead_rows<float>(r, t, src);
    else if (r->j->type == FDK_BF16)
        ahead_rows<__nv_bfloat16>(r, t, src);
    else
        ahead_rows<__half>(r, t, src);
}

/* Waits for the other rank's operand and until this rank's own has been sent, then
 * sums. */
static __global__ void __launch_bounds__(THREADS)
ahead_kernel(const __grid_constant__ struct coll_space s,
    const __grid_constant__ struct coll_job j, uint64_t seq, uint32_t tag,
    struct cu_claim *claim)
{
    struct coll_run r = {};
    cu_dep_next();
    cu_dep_wait();
    r.s = &s;
    r.j = &j;
    r.own = claim;
    r.seq = seq;
    r.tag = tag;
    r.channel = s.n_channel;
    if (__syncthreads_or((int)threadIdx.x < s.n ? wait_for(&r, (int)threadIdx.x, 0) : 0) != 0)
        return;
    r.channel = (int32_t)blockIdx.x;
    r.count = coll_count(&j);
    ahead_sum(&r, coll_ahead_of(&s, s.rank, seq));
}

/* Start of both launches: checks the arguments and sets space, job and number. */
static int
ahead_begin(const struct fdk_all_reduce_args *a, fdk_stream_t st, int take,
    struct coll_space *s, struct coll_job *j, uint64_t *ret_seq)
{
    int rc = space_of(a->group, st, s);
    if (rc == 0)
        rc = coll_ahead_job(a, s, j);
    if (rc == 0 && cu_stream_of(st)->capturing)
        rc = -ENOTSUP;
    return rc != 0 ? rc : coll_ahead_next(&a->group->ahead[s->rank].launched, take, ret_seq);
}

/* Sends the flag of the operand copied before, through this rank's own flag, to the other
 * rank. This rank's flag means that the operand may be overwritten. */
static int
ahead_flag(const struct fdk_group *g, const struct coll_space *s, const struct coll_job *j,
    uint64_t seq, struct cu_dev *d)
{
    cudaStream_t st = g->ahead[s->rank].st;
    uint64_t *own = coll_ahead_flag_of(s, s->rank, s->rank, seq);
    CUresult e = g->write((CUstream)st, (CUdeviceptr)(uintptr_t)own,
        seq << COLL_TAG_BITS | coll_ahead_tag(j), CU_STREAM_WRITE_VALUE_DEFAULT);
    int rc = cu_result(d, "cuStreamWriteValue64", (cudaError_t)e);
    return rc != 0 ? rc : cu_result(d, "cudaMemcpyAsync",
        cudaMemcpyAsync(coll_ahead_flag_of(s, 1 - s->rank, s->rank, seq), own, sizeof(*own),
        cudaMemcpyDeviceToDevice, st));
}

/* Copies the operand, and then its flag, to the other rank's memory. */
static int
ahead_copy(const struct fdk_group *g, const struct coll_space *s, const struct coll_job *j,
    uint64_t seq, struct cu_dev *d)
{
    int rc = cu_result(d, "cudaMemcpyAsync", cudaMemcpyAsync(coll_ahead_of(s, 1 - s->rank, seq),
        j->x, (size_t)j->T * (size_t)j->C * (size_t)j->eb, cudaMemcpyDeviceToDevice,
        g->ahead[s->rank].st));
    return rc != 0 ? rc : ahead_flag(g, s, j, seq, d);
}

int
cu_reduce_send(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    struct coll_space s;
    struct coll_job j;
    uint64_t seq;
    int rc = ahead_begin(a, st, 0, &s, &j, &seq);
    if (rc != 0)
        return rc;
    struct cu_dev *d = cu_stream_of(st)->dev;
    struct ahead *h = &a->group->ahead[s.rank];
    rc = cu_result(d, "cudaEventRecord", cudaEventRecord(h->ready, cu_raw(st)));
    if (rc == 0)
        rc = cu_result(d, "cudaStreamWaitEvent", cudaStreamWaitEvent(h->st, h->ready, 0));
    if (rc == 0)
        rc = ahead_copy(a->group, &s, &j, seq, d);
    return rc;
}

int
cu_reduce_take(const struct fdk_all_reduce_args *a, fdk_stream_t st)
{
    struct coll_space s;
    struct coll_job j;
    uint64_t seq;
    int rc = ahead_begin(a, st, 1, &s, &j, &seq);
    if (rc != 0)
        return rc;
    cu_chain(ahead_kernel, dim3((unsigned)j.n_channel), THREADS, 0, cu_raw(st), s, j, seq,
        coll_ahead_tag(&j), cu_stream_of(st)->dev->claim);
    return cu_launched(st, "reduce_take");
}

/* ---- streams of a group ------------------------------------------------------ */

static int
ahead_new(struct cu_dev *d, struct ahead *h, char *err, size_t err_bytes)
{
    int rc = cu_enter(d);
    if (rc == 0)
        rc = cu_result(d, "cudaStreamCreate",
            cudaStreamCreateWithFlags(&h->st, cudaStreamNonBlocking));
    if (rc == 0)
        rc = cu_result(d, "cudaEventCreate",
            cudaEventCreateWithFlags(&h->ready, cudaEventDisableTiming));
    if (rc != 0)
        snprintf(err, err_bytes, "collectives: no stream of copies on device %d: %s", d->idx,
            strerror(-rc));
    return rc;
}

static void
ahead_free(struct cu_dev *d, struct ahead *h)
{
    if (h->st == NULL || cu_enter(d) != 0)
        return;
    (void)cu_result(d, "cudaStreamSynchronize", cudaStreamSynchronize(h->st));
    if (h->ready != NULL)
        (void)cudaEventDestroy(h->ready);
    (void)cudaStreamDestroy(h->st);
}

#endif
