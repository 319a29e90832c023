/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Small all-reduces, for collective.cu only: every rank sends its operand whole to every
 * other one in packets of 16 bytes, half of them data, half the number of the piece, which
 * the receiving thread polls. No barrier of the block and no flag behind the data is on the
 * way, so that a rank's sum is there one store over the link after the last addend.
 *
 * A channel's portion is one piece, and a thread of a channel has the same packets on all
 * ranks. Buffers are double by the parity of the number. They may be overwritten in piece
 * s + 2: its launch follows one in which this channel met all others in piece s + 1, and a
 * rank begins that launch when its own of piece s has ended.
 */
#ifndef FDD_KERNELS_CUDA_COLLECTIVE_PACKET_CUH
#define FDD_KERNELS_CUDA_COLLECTIVE_PACKET_CUH

struct packet {
    uint64_t data, flag;
};

/* Both halves arrive together. */
static __device__ __forceinline__ void
packet_put(struct packet *p, uint64_t data, uint64_t flag)
{
    asm volatile("{\n\t.reg .b128 q;\n\tmov.b128 q, {%1, %2};\n\t"
        "st.relaxed.sys.global.b128 [%0], q;\n\t}"
        :: "l"(p), "l"(data), "l"(flag) : "memory");
}

static __device__ __forceinline__ struct packet
packet_now(const struct packet *p)
{
    struct packet v;
    asm volatile("{\n\t.reg .b128 q;\n\tld.relaxed.sys.global.b128 q, [%2];\n\t"
        "mov.b128 {%0, %1}, q;\n\t}"
        : "=l"(v.data), "=l"(v.flag) : "l"(p) : "memory");
    return v;
}

/* Those that rank `from` sends to rank `rank`. */
static __device__ __forceinline__ struct packet *
packets_at(const struct coll_run *r, int rank, int from)
{
    uint64_t slot = ((uint64_t)r->channel * 2 + (r->seq & 1)) * (uint32_t)r->s->n +
        (uint32_t)from;
    return (struct packet *)(r->s->base[rank] + r->s->packet_at + slot * 2 * COLL_PACKET_BYTES);
}

/* Has rank q come to this piece with an operation that does not take packets? */
static __device__ __forceinline__ int
came_otherwise(const struct coll_run *r, int q)
{
    uint64_t v = flag_now(coll_flag_at(r, r->s->rank, 0, q));
    return v >> COLL_TAG_BITS == r->seq && v != coll_flag(r);
}

static __device__ __noinline__ int
packet_late(const struct coll_run *r, int q, uint64_t flag, uint64_t begin)
{
    uint64_t bad = bad_now(r);
    if (bad != 0)
        return fail(r, bad);
    if ((flag >> COLL_TAG_BITS == r->seq && flag != coll_flag(r)) || came_otherwise(r, q))
        return give_up(r, COLL_OTHER, q);
    return waited_for(r, q, clock_ns() - begin);
}

/* Packet i from rank q: its data, 0 and *bad after a failure. */
static __device__ __forceinline__ uint64_t
packet_wait(const struct coll_run *r, int q, uint32_t i, int *bad)
{
    const struct packet *at = packets_at(r, r->s->rank, q) + i;
    struct packet v = packet_now(at);
    uint64_t begin = 0;
    for (uint32_t n = 1; v.flag != coll_flag(r); n++) {
        if (n % SPINS == 0) {
            begin = begin == 0 ? clock_ns() : begin;
            if (*bad != 0 || (*bad = packet_late(r, q, v.flag, begin)) != 0)
                return 0;
        }
        v = packet_now(at);
    }
    return v.data;
}

/* Elements i .. of the m from x on, 0 behind them. */
template<typename U>
static __device__ __forceinline__ uint64_t
packet_of(const char *x, uint32_t i, uint32_t m)
{
    const uint32_t E = 8 / sizeof(U);
    if (((uintptr_t)x & 7) == 0 && (i + 1) * E <= m)
        return __ldcg((const uint64_t *)x + i);
    uint64_t v = 0;
    for (uint32_t k = 0; k < E && i * E + k < m; k++)
        v |= (uint64_t)__ldcg((const U *)x + i * E + k) << 8 * sizeof(U) * k;
    return v;
}

template<typename U>
static __device__ __forceinline__ void
packets_send(const struct coll_run *r, const char *x, uint32_t m)
{
    const uint32_t E = 8 / sizeof(U);
    for (uint32_t i = threadIdx.x; i < (m + E - 1) / E; i += THREADS) {
        uint64_t v = packet_of<U>(x, i, m);
        for (int k = 1; k < r->s->n; k++)
            packet_put(packets_at(r, coll_peer(r, k), r->s->rank) + i, v, coll_flag(r));
    }
}

/* Packet i summed over the ranks in their order, rounded once. */
template<typename A, typename U>
static __device__ __forceinline__ void
packet_sum(const struct coll_run *r, const char *x, uint32_t i, uint32_t m,
    A sum[8 / sizeof(A)], int *bad)
{
    const int E = 8 / sizeof(A);
    uint64_t in[FDK_MAX_RANKS];
    float v[E];
#pragma unroll
    for (int q = 0; q < FDK_MAX_RANKS; q++)
        if (q < r->s->n)
            in[q] = q == r->s->rank ? packet_of<U>(x, i, m) : packet_wait(r, q, i, bad);
#pragma unroll
    for (int q = 0; q < FDK_MAX_RANKS; q++)
#pragma unroll
        for (int k = 0; k < E && q < r->s->n; k++) {
            float e = cu_widen(reinterpret_cast<const A *>(&in[q])[k]);
            v[k] = q == 0 ? e : __fadd_rn(v[k], e);
        }
#pragma unroll
    for (int k = 0; k < E; k++)
        round_to(&sum[k], v[k]);
}

template<typename A, typename U>
static __device__ __forceinline__ int
packets_plain(const struct coll_run *r, uint64_t at, uint32_t m)
{
    const uint32_t E = 8 / sizeof(A);
    const char *x = coll_x(r, at);
    A *y = (A *)r->j->y + at;
    int bad = 0;
    packets_send<U>(r, x, m);
    for (uint32_t i = threadIdx.x; i < (m + E - 1) / E; i += THREADS) {
        A sum[E];
        packet_sum<A, U>(r, x, i, m, sum, &bad);
        if (bad != 0)
            break;
        if (((uintptr_t)y & 7) == 0 && (i + 1) * E <= m)
            *((uint64_t *)y + i) = *reinterpret_cast<const uint64_t *>(sum);
        else
            for (uint32_t k = 0; k < E && i * E + k < m; k++)
                y[i * E + k] = sum[k];
    }
    return bad;
}

/* Whole rows: onto the residual, and normed, each by all threads. */
template<typename A, typename U>
static __device__ __forceinline__ int
packets_rows(const struct coll_run *r, uint64_t at, uint32_t m)
{
    const int E = 8 / sizeof(A);
    const uint32_t C = (uint32_t)r->j->C, per = C / E;
    const char *x = coll_x(r, at);
    int bad = 0;
    packets_send<U>(r, x, m);
    for (uint32_t first = 0; first < m; first += C) {
        float v[PACKETS_OF_ROW][E], sum = 0;
        float *res = r->j->residual + at + first;
#pragma unroll
        for (int p = 0; p < PACKETS_OF_ROW; p++) {
            uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
            if (i < per)
                get_floats<E>(res + i * E, v[p]);
        }
#pragma unroll
        for (int p = 0; p < PACKETS_OF_ROW; p++) {
            uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
            A add[E];
            if (i >= per)
                break;
            packet_sum<A, U>(r, x, first / E + i, m, add, &bad);
#pragma unroll
            for (int k = 0; k < E; k++) {
                v[p][k] += cu_widen(add[k]);
                sum = fmaf(v[p][k], v[p][k], sum);
            }
            if (bad == 0)
                put_floats<E>(res + i * E, v[p]);
        }
        float inv = row_scale(r->j, sum);
#pragma unroll
        for (int p = 0; p < PACKETS_OF_ROW; p++) {
            uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
            if (i < per && bad == 0)
                put_normed<A, E>(r->j, (A *)r->j->y + at + first, i * E, v[p], inv);
        }
    }
    return bad;
}

/* Is the operation one piece of packets, on all ranks? */
template<typename A>
static __device__ __forceinline__ int
takes_packets(const struct coll_run *r)
{
    const struct coll_job *j = r->j;
    const uint32_t E = 8 / sizeof(A), C = (uint32_t)j->C;
    struct coll_span most = coll_span_of(j, r->count, 0);
    if (j->op != COLL_REDUCE || r->count * sizeof(A) > r->s->packet_bytes ||
        (most.end - most.first) * sizeof(A) > COLL_PACKET_BYTES)
        return 0;
    return j->residual == NULL || (C % E == 0 && C / E <= PACKETS_OF_ROW * THREADS);
}

template<typename A, typename U>
static __device__ __forceinline__ int
packets_run(struct coll_run *r)
{
    struct coll_span span = coll_span_of(r->j, r->count, r->channel);
    uint32_t m = (uint32_t)(span.end - span.first);
    int bad = 0;
    r->tag = coll_tag(r->j, r->count, COLL_PACKETS);
    r->seq = coll_channel_of(r, r->s->rank)->seq + (m > 0);
    if (m > 0)
        bad = r->j->residual != NULL ? packets_rows<A, U>(r, span.first, m) :
            packets_plain<A, U>(r, span.first, m);
    return __syncthreads_or(bad);
}

#endif
