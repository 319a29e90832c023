/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Small all-reduces, for collective.cu only: every rank sends its full operand to every
 * other rank in packets of 16 bytes, half of them data, half the number of the piece,
 * which the receiving thread polls. This needs no barrier of the block and no separate
 * flag, so that a rank's sum is complete one store over the link after the last addend.
 *
 * A channel's portion is one piece, and a thread of a channel has the same packets on all
 * ranks. There are two buffers, selected by the parity of the number. A buffer may be
 * overwritten in piece s + 2: its launch follows the one in which this channel
 * synchronized with all others in piece s + 1, which a rank starts after its own launch
 * of piece s ended.
 */
#ifndef FDD_KERNELS_CUDA_COLLECTIVE_PACKET_CUH
#define FDD_KERNELS_CUDA_COLLECTIVE_PACKET_CUH

struct packet {
    uint64_t data, flag;
};

/* Stores a packet such that both halves arrive together. */
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

/* Packets that rank `from` sends to rank `rank`. */
static __device__ __forceinline__ struct packet *
packets_at(const struct coll_run *r, int rank, int from)
{
    uint64_t slot = ((uint64_t)r->channel * 2 + (r->seq & 1)) * (uint32_t)r->s->n +
        (uint32_t)from;
    return (struct packet *)(r->s->base[rank] + r->s->packet_at + slot * 2 * COLL_PACKET_BYTES);
}

/* Has rank q launched an operation without packets for this piece? */
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
    return waited_for(r, q, begin);
}

/* Waits for packet i from rank q and returns its data; after a failure returns 0 and sets
 * *bad. */
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

/* The 8 bytes of packet i of the m elements at x, padded with 0. */
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

/* Packets per thread whose loads are issued before the first is waited for: a load from
 * memory takes as long as a store over the link. */
template<int N>
static __device__ __forceinline__ constexpr int
packets_at_once(void)
{
    return N == 2 ? PACKETS_OF_ROW : 1;
}

template<typename U, int N>
static __device__ __forceinline__ void
packets_send(const struct coll_run *r, const char *x, uint32_t m)
{
    const uint32_t E = 8 / sizeof(U), n = (m + E - 1) / E;
    const int G = PACKETS_OF_ROW;
    for (uint32_t first = threadIdx.x; first < n; first += G * THREADS) {
        uint64_t v[G];
#pragma unroll
        for (int g = 0; g < G; g++)
            if (first + (uint32_t)g * THREADS < n)
                v[g] = packet_of<U>(x, first + (uint32_t)g * THREADS, m);
        for (int k = 1; k < (N == 2 ? 2 : r->s->n); k++) {
            struct packet *to = packets_at(r, coll_peer(r, k), r->s->rank) + first;
#pragma unroll
            for (int g = 0; g < G; g++)
                if (first + (uint32_t)g * THREADS < n)
                    packet_put(to + (uint32_t)g * THREADS, v[g], coll_flag(r));
        }
    }
}

/* Reads packet i of all other ranks, in their order, once. */
template<int N>
static __device__ __forceinline__ void
packet_ask(const struct coll_run *r, uint32_t i, struct packet now[N - 1])
{
#pragma unroll
    for (int k = 0; k < N - 1; k++)
        if (k < r->s->n - 1)
            now[k] = packet_now(packets_at(r, r->s->rank, k + (k >= r->s->rank)) + i);
}

/* Packet i summed over the ranks in their order, rounded once. now: result of
 * packet_ask(). */
template<typename A, typename U, int N>
static __device__ __forceinline__ void
packet_sum(const struct coll_run *r, const char *x, uint32_t i, uint32_t m,
    const struct packet now[N - 1], A sum[8 / sizeof(A)], int *bad)
{
    const int E = 8 / sizeof(A);
    uint64_t own = packet_of<U>(x, i, m), other[N - 1];
    float v[E];
#pragma unroll
    for (int k = 0; k < N - 1; k++)
        if (k < r->s->n - 1)
            other[k] = now[k].flag == coll_flag(r) ? now[k].data :
                packet_wait(r, k + (k >= r->s->rank), i, bad);
#pragma unroll
    for (int q = 0; q < N; q++)
#pragma unroll
        for (int k = 0; k < E && q < r->s->n; k++) {
            uint64_t in = q == r->s->rank ? own : q < r->s->rank ? other[q < N - 1 ? q : 0] :
                other[q > 0 ? q - 1 : 0];
            float e = cu_widen(reinterpret_cast<const A *>(&in)[k]);
            v[k] = q == 0 ? e : __fadd_rn(v[k], e);
        }
#pragma unroll
    for (int k = 0; k < E; k++)
        round_to(&sum[k], v[k]);
}

/* Waits for the previous kernels, whose results may be read afterwards. The live count
 * may be read before: it is part of the step's upload, which ends before any kernel of
 * the step begins. */
static __device__ __forceinline__ void
packets_begin(struct coll_run *r)
{
    cu_dep_wait();
    r->seq = coll_channel_of(r, r->s->rank)->seq + 1;
}

template<typename A, typename U, int N>
static __device__ __forceinline__ int
packets_plain(struct coll_run *r, uint64_t at, uint32_t m)
{
    const uint32_t E = 8 / sizeof(A), n = (m + E - 1) / E;
    const int G = packets_at_once<N>();
    const char *x = coll_x(r, at);
    A *y = (A *)r->j->y + at;
    int bad = 0;
    packets_begin(r);
    packets_send<U, N>(r, x, m);
    for (uint32_t first = threadIdx.x; first < n; first += G * THREADS) {
        struct packet now[G][N - 1];
#pragma unroll
        for (int g = 0; g < G; g++)
            if (first + (uint32_t)g * THREADS < n)
                packet_ask<N>(r, first + (uint32_t)g * THREADS, now[g]);
#pragma unroll
        for (int g = 0; g < G; g++) {
            uint32_t i = first + (uint32_t)g * THREADS;
            alignas(8) A sum[E];
            if (i >= n)
                break;
            packet_sum<A, U, N>(r, x, i, m, now[g], sum, &bad);
            if (bad != 0)
                return bad;
            if (((uintptr_t)y & 7) == 0 && (i + 1) * E <= m)
                *((uint64_t *)y + i) = *reinterpret_cast<const uint64_t *>(sum);
            else
                for (uint32_t k = 0; k < E && i * E + k < m; k++)
                    y[i * E + k] = sum[k];
        }
    }
    return bad;
}

/* Full rows with a residual: adds the sums to it and computes the norm, each row by all
 * threads. The norm's weights, which no kernel of a step writes, are prefetched before
 * the wait for the previous kernel. */
template<typename A, typename U, int N>
static __device__ __forceinline__ int
packets_rows(struct coll_run *r, uint64_t at, uint32_t m)
{
    const int E = 8 / sizeof(A), P = PACKETS_OF_ROW, G = packets_at_once<N>();
    const uint32_t C = (uint32_t)r->j->C, per = C / E;
    const char *x = coll_x(r, at);
    int bad = 0;
    for (uint32_t i = threadIdx.x; i < per; i += THREADS)
        asm volatile("prefetch.global.L2 [%0];" :: "l"(r->j->w + i * E));
    packets_begin(r);
    packets_send<U, N>(r, x, m);
    for (uint32_t first = 0; first < m; first += C) {
        float v[P][E], sum = 0;
        float *res = r->j->residual + at + first;
#pragma unroll
        for (int p = 0; p < P; p++) {
            uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
            if (i < per)
                get_floats<E>(res + i * E, v[p]);
        }
#pragma unroll
        for (int p0 = 0; p0 < P; p0 += G) {
            struct packet now[G][N - 1];
#pragma unroll
            for (int g = 0; g < G; g++)
                if (threadIdx.x + (uint32_t)(p0 + g) * THREADS < per)
                    packet_ask<N>(r, first / E + threadIdx.x + (uint32_t)(p0 + g) * THREADS,
                        now[g]);
#pragma unroll
            for (int g = 0; g < G; g++) {
                const int p = p0 + g;
                uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
                A add[E];
                if (i >= per)
                    break;
                packet_sum<A, U, N>(r, x, first / E + i, m, now[g], add, &bad);
#pragma unroll
                for (int k = 0; k < E; k++) {
                    v[p][k] += cu_widen(add[k]);
                    sum = fmaf(v[p][k], v[p][k], sum);
                }
                if (bad == 0)
                    put_floats<E>(res + i * E, v[p]);
            }
        }
        float inv = row_scale(r->j, sum);
#pragma unroll
        for (int p = 0; p < P; p++) {
            uint32_t i = threadIdx.x + (uint32_t)p * THREADS;
            float w[E];
            if (i >= per || bad != 0)
                break;
            get_floats<E>(r->j->w + i * E, w);
            put_normed<A, E>(r->j, (A *)r->j->y + at + first, i * E, w, v[p], inv);
        }
    }
    return bad;
}

template<typename A, typename U, int N>
static __device__ __forceinline__ int
packets_run(struct coll_run *r)
{
    struct coll_span span = coll_span_of(r->j, r->count, r->channel);
    uint32_t m = (uint32_t)(span.end - span.first);
    int bad = 0;
    r->tag = coll_tag(r->j, r->count, COLL_PACKETS);
    if (m == 0) {
        cu_dep_wait();
        r->seq = coll_channel_of(r, r->s->rank)->seq;
    } else if (r->j->residual != NULL)
        bad = packets_rows<A, U, N>(r, span.first, m);
    else
        bad = packets_plain<A, U, N>(r, span.first, m);
    return __syncthreads_or(bad);
}

/* Like collective_kernel, for operations that are one piece of packets for any live
 * count. */
template<typename A, typename U, int N>
static __global__ void __launch_bounds__(THREADS)
collective_kernel_packets(const __grid_constant__ struct coll_space s,
    const __grid_constant__ struct coll_job j, struct cu_claim *claim)
{
    struct coll_run r = {};
    cu_dep_next();
    r.s = &s;
    r.j = &j;
    r.own = claim;
    r.channel = (int32_t)blockIdx.x;
    r.count = coll_count(&j);
    if (packets_run<A, U, N>(&r) == 0 && threadIdx.x == 0)
        coll_channel_of(&r, s.rank)->seq = r.seq;
}

/* Do rows fit in the threads' registers, in multiples of 8 bytes? */
static __host__ __device__ __forceinline__ bool
rows_fit(const struct coll_job *j)
{
    const uint32_t E = 8 / (uint32_t)j->eb, C = (uint32_t)j->C;
    return C % E == 0 && C / E <= PACKETS_OF_ROW * THREADS;
}

/* Host: is the operation sent in packets? Has the same result on all ranks. */
static int
packets_take(const struct coll_space *s, const struct coll_job *j)
{
    uint64_t count = (uint64_t)j->T * (uint32_t)j->C, eb = (uint32_t)j->eb;
    struct coll_span most = coll_span_of(j, count, 0);
    if (j->op != COLL_REDUCE || count * eb > s->packet_bytes ||
        (most.end - most.first) * eb > COLL_PACKET_BYTES)
        return 0;
    return j->residual == NULL || rows_fit(j);
}

#endif
