/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain attention kernel: any types and head dimensions, on every device, for
 * launches that the other kernels (attention.cuh) do not support. One block per (work
 * item, KV head); a work item is some query tokens of a row. The block processes the
 * row's history in chunks of FDK_ATT_CHUNK tokens at absolute multiples, with keys and
 * values of a chunk in shared memory, and a running maximum and sum per query vector.
 *
 * Chunk c belongs to split c mod PARTS; splits are summed separately and
 * merged in their order. With few query tokens each split of a row has its own block
 * and a second kernel merges; with many, one block computes all splits, with the
 * same bits. The arithmetic of a query vector does not depend on the
 * others in its block.
 *
 * Where ranks share the keys (fdk_kv.n_own), this rank's tokens are a history of their
 * own, counted from 0.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/generic/kv.cuh"
#include "kernels/cuda/generic/vec8.cuh"

#define ATT_THREADS 256
#define ATT_QUERIES CU_ATT_QUERIES /* query vectors processed at a time */
#define CHUNK FDK_ATT_CHUNK
#define PARTS 8
#define SPLIT_ROWS 4096          /* most query vectors for one block per split */

static_assert(CHUNK == 64, "two scores per lane");

/* Number of ranks whose queries are computed, from rank a.asks on. */
static inline __host__ __device__ int
att_asks(const struct fdk_attention_args &a)
{
    return a.n_ask > 0 ? a.n_ask : cu_att_ranks(&a.kv);
}

/* ---- attention ----------------------------------------------------------- */

struct att_shared {              /* laid out in dynamic shared memory */
    float *q, *o, *all;          /* [ATT_QUERIES][D]; o: sums of a split */
    float *k, *v;                /* [CHUNK][D + 1]: no bank conflicts between tokens */
    float *p;                    /* [ATT_QUERIES][CHUNK] */
    float *m, *l, *alpha;        /* [ATT_QUERIES] */
    float *all_m, *all_l;        /* [ATT_QUERIES] m, l of the splits merged so far */
    int *first, *see;            /* [ATT_QUERIES] the query sees tokens [first, see) */
};

static __host__ __device__ size_t
att_shared_bytes(int D)
{
    return sizeof(float) * (size_t)(3 * ATT_QUERIES * D + 2 * CHUNK * (D + 1) +
        ATT_QUERIES * CHUNK + 7 * ATT_QUERIES);
}

static __device__ struct att_shared
att_shared_of(float *mem, int D)
{
    struct att_shared s;
    s.q = mem;
    s.o = s.q + ATT_QUERIES * D;
    s.all = s.o + ATT_QUERIES * D;
    s.k = s.all + ATT_QUERIES * D;
    s.v = s.k + CHUNK * (D + 1);
    s.p = s.v + CHUNK * (D + 1);
    s.m = s.p + ATT_QUERIES * CHUNK;
    s.l = s.m + ATT_QUERIES;
    s.alpha = s.l + ATT_QUERIES;
    s.all_m = s.alpha + ATT_QUERIES;
    s.all_l = s.all_m + ATT_QUERIES;
    s.first = (int *)(s.all_l + ATT_QUERIES);
    s.see = s.first + ATT_QUERIES;
    return s;
}

struct att_item {                /* work of a block */
    const int32_t *table;        /* the row's blocks */
    int tok, n_tok;              /* query tokens of the step */
    int kv_len, head;            /* KV head */
    int rank;                    /* rank of the queries, of kv.n_own */
    int h0, n_head;              /* query heads being processed */
    int part;                    /* split, or -1: all of them */
};

struct chunk_token {             /* one token of the current chunk */
    const char *k, *v;           /* its head's vectors */
    float k_scale, v_scale;
};

/* Finds the addresses of the n tokens from pos on. */
static __device__ void
find_chunk(const struct fdk_attention_args &a, const struct att_item &it,
    struct chunk_token *tok, int pos, int n)
{
    const struct fdk_kv &kv = a.kv;
    size_t eb = kv.dtype == FDK_F32 ? 4 : kv.dtype == FDK_BF16 ? 2 : 1;
    int j = (int)threadIdx.x;
    if (j >= n)
        return;
    int block = (pos + j) / kv.block_size, off = (pos + j) % kv.block_size;
    char *layer = kv_layer(kv, it.table[block], a.layer);
    tok[j].k = layer + ((size_t)it.head * (size_t)kv.block_size + (size_t)off) *
        (size_t)a.D * eb;
    tok[j].v = tok[j].k + kv.v_bytes;
    tok[j].k_scale = tok[j].v_scale = 1;
    if (kv.dtype == FDK_I8) {
        tok[j].k_scale = *kv_token_scale(kv, layer, 0, it.head, off);
        tok[j].v_scale = *kv_token_scale(kv, layer, 1, it.head, off);
    } else if (kv.dtype == FDK_F8E4M3) {
        tok[j].k_scale = kv_head_scale(kv, a.layer, 0, it.head);
        tok[j].v_scale = kv_head_scale(kv, a.layer, 1, it.head);
    }
}

/* Loads n tokens as floats; the rest of the chunk is 0. Reads 16 bytes at a time if
 * vectors are multiples of that. */
template<typename E>
static __device__ void
load_chunk(const struct att_shared &s, const struct chunk_token *tok, int D, int n)
{
    const int W = 16 / (int)sizeof(E);
    int per = D / W;
    if (D % W != 0) {
        for (int i = (int)threadIdx.x; i < CHUNK * D; i += ATT_THREADS) {
            int j = i / D, d = i % D, at = j * (D + 1) + d;
            s.k[at] = j < n ? cu_widen(((const E *)tok[j].k)[d]) * tok[j].k_scale : 0;
            s.v[at] = j < n ? cu_widen(((const E *)tok[j].v)[d]) * tok[j].v_scale : 0;
        }
        return;
    }
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < CHUNK * per; i += ATT_THREADS) {
        int j = i / per, d = i % per * W, at = j * (D + 1) + d;
        union {
            uint4 u;
            E e[W];
        } k = {}, v = {};
        float ks = 1, vs = 1;
        if (j < n) {
            k.u = *(const uint4 *)(tok[j].k + (size_t)d * sizeof(E));
            v.u = *(const uint4 *)(tok[j].v + (size_t)d * sizeof(E));
            ks = tok[j].k_scale;
            vs = tok[j].v_scale;
        }
        for (int e = 0; e < W; e++) {
            s.k[at + e] = cu_widen(k.e[e]) * ks;
            s.v[at + e] = cu_widen(v.e[e]) * vs;
        }
    }
}

static __device__ void
load_queries(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct att_item &it, const struct att_shared &s, int n_q)
{
    size_t stride = (size_t)(a.H + 2 * a.K) * (size_t)a.D, n_rank = (size_t)cu_att_ranks(&a.kv);
    for (int i = (int)threadIdx.x; i < n_q * a.D; i += ATT_THREADS) {
        int q = i / a.D, d = i % a.D;
        int t = it.tok + q / it.n_head, h = it.h0 + q % it.n_head;
        size_t at = ((size_t)t * n_rank + (size_t)it.rank) * stride +
            (size_t)h * (size_t)a.D + (size_t)d;
        s.q[i] = a.act == FDK_F32 ? ((const float *)a.qkv)[at] :
            cu_widen(((const __nv_bfloat16 *)a.qkv)[at]);
        s.all[i] = 0;
    }
    for (int q = (int)threadIdx.x; q < n_q; q += ATT_THREADS) {
        int see = b.pos[it.tok + q / it.n_head] + 1;
        see = see < it.kv_len ? see : it.kv_len;
        s.first[q] = fdk_kv_count(&a.kv, cu_att_first(see, a.window));
        s.see[q] = fdk_kv_count(&a.kv, see);
        s.all_m[q] = -INFINITY;
        s.all_l[q] = 0;
    }
}

/* Merges (pm, pl) of a split into (m, l). *a: factor of the values so far, *b: of the
 * split's. */
static __device__ __forceinline__ void
merge(float *m, float *l, float pm, float pl, float *a, float *b)
{
    float top = fmaxf(*m, pm), ref = top == -INFINITY ? 0 : top;
    *a = expf(*m - ref);
    *b = expf(pm - ref);
    *m = top;
    *l = fmaf(*l, *a, __fmul_rn(pl, *b));
}

static __device__ __forceinline__ float
merge_value(float all, float a, float part, float b)
{
    return fmaf(all, a, __fmul_rn(part, b));
}

static __device__ void
chunk_scores(const struct fdk_attention_args &a, const struct att_shared &s, int n_q,
    int pos)
{
    for (int i = (int)threadIdx.x; i < n_q * CHUNK; i += ATT_THREADS) {
        int q = i / CHUNK, j = i % CHUNK;
        const float *x = s.q + q * a.D, *k = s.k + j * (a.D + 1);
        float sum = 0;
        for (int d = 0; d < a.D; d++)
            sum = fmaf(x[d], k[d], sum);
        sum *= a.scale;
        if (a.softcap > 0)
            sum = a.softcap * tanhf(sum / a.softcap);
        s.p[i] = pos + j >= s.first[q] && pos + j < s.see[q] ? sum : -INFINITY;
    }
}

/* Online softmax: converts scores to weights, one warp per query vector. */
static __device__ void
chunk_softmax(const struct att_shared &s, int n_q)
{
    int lane = (int)threadIdx.x % 32;
    for (int q = (int)threadIdx.x / 32; q < n_q; q += ATT_THREADS / 32) {
        float *p = s.p + q * CHUNK, a = p[lane], b = p[lane + 32];
        float m = s.m[q], top = fmaxf(m, cu_warp_max(fmaxf(a, b)));
        /* No token seen so far: weights are 0, not NaN. */
        float ref = top == -INFINITY ? 0 : top;
        a = expf(a - ref);
        b = expf(b - ref);
        float sum = cu_warp_sum(a + b), alpha = expf(m - ref);
        p[lane] = a;
        p[lane + 32] = b;
        __syncwarp();
        if (lane == 0) {
            s.alpha[q] = alpha;
            s.l[q] = fmaf(s.l[q], alpha, sum);
            s.m[q] = top;
        }
    }
}

static __device__ void
chunk_values(const struct fdk_attention_args &a, const struct att_shared &s, int n_q)
{
    for (int i = (int)threadIdx.x; i < n_q * a.D; i += ATT_THREADS) {
        int q = i / a.D, d = i % a.D;
        const float *p = s.p + q * CHUNK, *v = s.v + d;
        float sum = s.o[i] * s.alpha[q];
        for (int j = 0; j < CHUNK; j++)
            sum = fmaf(p[j], v[j * (a.D + 1)], sum);
        s.o[i] = sum;
    }
}

/* Position of the first chunk of split i that has tokens from `first` on. */
static __device__ __forceinline__ int
part_begin(int i, int first)
{
    int behind = first / CHUNK - i;
    return (i + (behind > 0 ? (behind + PARTS - 1) / PARTS * PARTS : 0)) * CHUNK;
}

/* Processes the chunks of one split from token `first` on, up to the last that a query
 * sees. */
template<typename E>
static __device__ void
attend_part(const struct fdk_attention_args &a, const struct att_item &it,
    const struct att_shared &s, struct chunk_token *tok, int n_q, int part, int first,
    int last)
{
    for (int i = (int)threadIdx.x; i < n_q * a.D; i += ATT_THREADS)
        s.o[i] = 0;
    for (int q = (int)threadIdx.x; q < n_q; q += ATT_THREADS) {
        s.m[q] = -INFINITY;
        s.l[q] = 0;
    }
    __syncthreads();                  /* needed here: a split may have no chunk */
    for (int pos = part_begin(part, first); pos < last; pos += PARTS * CHUNK) {
        int n = last - pos < CHUNK ? last - pos : CHUNK;
        find_chunk(a, it, tok, pos, n);
        __syncthreads();
        load_chunk<E>(s, tok, a.D, n);
        __syncthreads();
        chunk_scores(a, s, n_q, pos);
        __syncthreads();
        chunk_softmax(s, n_q);
        __syncthreads();
        chunk_values(a, s, n_q);
        __syncthreads();
    }
}

/* Sums of a query vector's split in the scratch: D values, m, l. h counts the heads of
 * all ranks. */
static __device__ __forceinline__ float *
part_of(const struct fdk_attention_args &a, int t, int h, int part)
{
    return (float *)a.scratch + (((size_t)t * (size_t)(a.H * cu_att_ranks(&a.kv)) + (size_t)h) *
        PARTS + (size_t)part) * (size_t)(a.D + 2);
}

/* Stores element d of a query vector's result and, if d is 0, the log-sum-exp m + log(l)
 * of its scores. */
static __device__ __forceinline__ void
put_share(const struct fdk_attention_args &a, int t, int h, int d, float x, float m, float l)
{
    size_t D = (size_t)a.D, H = (size_t)a.H, rank = (size_t)h / H, own = (size_t)h % H;
    float *row = (float *)a.y + ((size_t)t * (size_t)a.kv.n_own + rank) * H * (D + 1);
    row[own * D + (size_t)d] = x;
    if (d == 0)
        row[H * D + own] = l == 0 ? -INFINITY : m + logf(l);
}

static __device__ __forceinline__ void
put_result(const struct fdk_attention_args &a, int t, int h, int d, float x, float m, float l)
{
    if (a.kv.n_own > 1) {
        put_share(a, t, h, d, x, m, l);
        return;
    }
    size_t at = ((size_t)t * (size_t)a.H + (size_t)h) * (size_t)a.D + (size_t)d;
    if (a.act == FDK_F32)
        ((float *)a.y)[at] = x;
    else
        ((__nv_bfloat16 *)a.y)[at] = __float2bfloat16_rn(x);
}

/* Rows of less than `least` tokens, or of at least long_min, are computed by another
 * kernel. */
struct att_rows {
    int least, long_min;
};

static __device__ __forceinline__ bool
is_others(const struct fdk_batch &b, int row, int n_tok, struct att_rows r)
{
    int n = min(b.q_start[row + 1], n_tok) - b.q_start[row];
    return n < r.least || n >= r.long_min;
}

template<typename E>
static __device__ void
attend_heads(const struct fdk_attention_args &a, const struct fdk_batch &b,
    const struct att_item &it, const struct att_shared &s)
{
    __shared__ struct chunk_token tok[CHUNK];
    int n_q = it.n_tok * it.n_head, first = INT32_MAX, last = 0;
    load_queries(a, b, it, s, n_q);
    __syncthreads();
    for (int q = 0; q < n_q; q++) {
        first = min(first, s.first[q]);
        last = max(last, s.see[q]);
    }
    for (int part = it.part < 0 ? 0 : it.part; part < PARTS && part * CHUNK < last;
        part++) {
        attend_part<E>(a, it, s, tok, n_q, part, first, last);
        for (int i = (int)threadIdx.x; i < n_q * a.D && it.part >= 0; i += ATT_THREADS) {
            int q = i / a.D, d = i % a.D;
            float *p = part_of(a, it.tok + q / it.n_head,
                it.rank * a.H + it.h0 + q % it.n_head, part);
            p[d] = s.o[i];
            if (d == 0) {
                p[a.D] = s.m[q];
                p[a.D + 1] = s.l[q];
            }
        }
        if (it.part >= 0)
            break;
        for (int q = (int)threadIdx.x; q < n_q; q += ATT_THREADS) {
            float x, y;
            merge(&s.all_m[q], &s.all_l[q], s.m[q], s.l[q], &x, &y);
            s.alpha[q] = x;
            s.p[q] = y;
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n_q * a.D; i += ATT_THREADS)
            s.all[i] = merge_value(s.all[i], s.alpha[i / a.D], s.o[i], s.p[i / a.D]);
        __syncthreads();
    }
    for (int i = (int)threadIdx.x; i < n_q * a.D && it.part < 0; i += ATT_THREADS) {
        int q = i / a.D;
        put_result(a, it.tok + q / it.n_head, it.rank * a.H + it.h0 + q % it.n_head, i % a.D,
            s.all_l[q] > 0 ? s.all[i] / s.all_l[q] : s.all_l[q], s.all_m[q], s.all_l[q]);
    }
    __syncthreads();
}

/* Merges splits, with one block per token and head. */
static __global__ void
merge_kernel(struct fdk_attention_args a, struct fdk_batch b, struct att_rows rows)
{
    int t = (int)blockIdx.x, h = a.asks * a.H + (int)blockIdx.y;
    cu_dep_next();
    cu_dep_wait();
    int n_tok = cu_clip(b.n_tok, a.T);
    if (t >= n_tok || is_others(b, b.row[t], n_tok, rows))
        return;
    int n = (fdk_kv_count(&a.kv, b.pos[t] + 1) + CHUNK - 1) / CHUNK;
    for (int d = (int)threadIdx.x; d < a.D; d += (int)blockDim.x) {
        float m = -INFINITY, l = 0, all = 0;
        for (int part = 0; part < PARTS && part < n; part++) {
            const float *p = part_of(a, t, h, part);
            float x, y;
            merge(&m, &l, p[a.D], p[a.D + 1], &x, &y);
            all = merge_value(all, x, p[d], y);
        }
        put_result(a, t, h, d, l > 0 ? all / l : l, m, l);
    }
}

/* Has the block no work? Not if its entry of the plan is invalid, which it reports. */
static __device__ __forceinline__ bool
is_idle(const struct fdk_attention_args &a, const struct fdk_batch &b, int w,
    struct att_rows rows)
{
    if (w >= cu_clip(a.n_work, a.n_work_max))
        return true;
    int row = a.work[w].row;
    return row >= 0 && row < cu_clip(b.n_row, b.max_row) &&
        is_others(b, row, cu_clip(b.n_tok, a.T), rows);
}

template<typename E>
static __global__ void
attention_kernel(struct fdk_attention_args a, struct fdk_batch b, int bt,
    struct att_rows rows, struct cu_claim *claim)
{
    extern __shared__ float mem[];
    int w = (int)blockIdx.x;
    cu_dep_next();
    /* The plan may be read before the wait. So that the grid ends after the one before it,
     * a block without work waits as well. */
    if ((w | (int)blockIdx.y | (int)blockIdx.z) == 0 || !is_idle(a, b, w, rows))
        cu_dep_wait();
    if (w >= cu_clip(a.n_work, a.n_work_max))
        return;
    int row = a.work[w].row, tile = a.work[w].tile, n_tok = cu_clip(b.n_tok, a.T);
    int known = row >= 0 && row < cu_clip(b.n_row, b.max_row) && tile >= 0 && tile < a.T;
    int64_t tok = known ? b.q_start[row] + (int64_t)tile * bt : 0;
    int end = !known ? 0 : b.q_start[row + 1] < n_tok ? b.q_start[row + 1] : n_tok;
    if (tok >= end) {
        if (threadIdx.x == 0)
            cu_report(claim, CU_BAD_WORK, row, w, tile);
        return;
    }
    if (is_others(b, row, n_tok, rows))
        return;
    struct att_item it;
    int group = a.H / a.K;
    it.table = b.block_table + (size_t)b.state[row] * (size_t)b.table_stride;
    it.tok = (int)tok;
    it.n_tok = end - it.tok < bt ? end - it.tok : bt;
    it.kv_len = b.kv_len[row];
    it.head = (int)blockIdx.y;
    it.part = gridDim.z > 1 ? (int)blockIdx.z : -1;
    struct att_shared s = att_shared_of(mem, a.D);
    for (it.rank = a.asks; it.rank < a.asks + att_asks(a); it.rank++)
        for (int h = 0; h < group; h += ATT_QUERIES) {
            it.h0 = it.head * group + h;
            it.n_head = group - h < ATT_QUERIES ? group - h : ATT_QUERIES;
            attend_heads<E>(a, b, it, s);
        }
    if (it.head == 0 && it.part <= 0 && threadIdx.x == 0)
        atomicAdd(a.n_done, 1u);
}

/* Does each split have its own block? */
static int
att_splits(const struct fdk_attention_args *a)
{
    return (int64_t)a->T * a->H * cu_att_ranks(&a->kv) <= SPLIT_ROWS;
}

size_t
cu_att_plain_scratch(const struct fdk_attention_args *a)
{
    int64_t rows = (int64_t)a->T * a->H * cu_att_ranks(&a->kv);
    return (size_t)(rows < SPLIT_ROWS ? rows : SPLIT_ROWS) * PARTS * (size_t)(a->D + 2) *
        sizeof(float);
}

/* *ret: most dynamic shared memory of a block of attention_kernel. */
static cudaError_t
shared_most(int dev, int *ret)
{
    cudaError_t e = cudaDeviceGetAttribute(ret, cudaDevAttrMaxSharedMemoryPerBlockOptin,
        dev);
    *ret -= CHUNK * (int)sizeof(struct chunk_token);
    return e;
}

int
cu_att_plain(const struct fdk_attention_args *a, int least, int long_min, fdk_stream_t st)
{
    const struct att_rows rows = { least, long_min };
    int32_t qa, bt;
    int split = att_splits(a);
    cu_att_shape(a, &qa, &bt);
    if (split && (a->scratch == NULL || a->scratch_bytes < cu_att_plain_scratch(a)))
        return -EINVAL;
    dim3 grid((unsigned)a->n_work_max, (unsigned)a->K, split ? PARTS : 1);
    size_t mem = att_shared_bytes(a->D);
    cudaStream_t s = cu_raw(st);
    struct cu_dev *dev = cu_stream_of(st)->dev;
    struct cu_claim *c = dev->claim;
    int most = 0;
    int rc = cu_result(dev, "cudaDeviceGetAttribute", shared_most(dev->idx, &most));
    if (rc != 0)
        return rc;
    if (mem > (size_t)most)
        return -ENOTSUP;
    void (*kernel)(struct fdk_attention_args, struct fdk_batch, int, struct att_rows,
        struct cu_claim *) = attention_kernel<__nv_fp8_e4m3>;
    if (a->kv.dtype == FDK_F32)
        kernel = attention_kernel<float>;
    else if (a->kv.dtype == FDK_BF16)
        kernel = attention_kernel<__nv_bfloat16>;
    else if (a->kv.dtype == FDK_I8)
        kernel = attention_kernel<int8_t>;
    cu_chain(kernel, grid, ATT_THREADS, mem, s, *a, *a->b, bt, rows, c);
    if (split)
        cu_chain(merge_kernel, dim3((unsigned)a->T, (unsigned)(a->H * att_asks(*a))), 128, 0, s,
            *a, *a->b, rows);
    return cu_launched(st, "attention");
}

/* ---- shares ---------------------------------------------------------------- */

static __device__ __forceinline__ void
round_to(float *p, float x)
{
    *p = x;
}

static __device__ __forceinline__ void
round_to(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

/* Weight of a share whose log-sum-exp is `sum`; 0 for a share without keys. */
static __device__ __forceinline__ float
share_weight(float sum, float top)
{
    return sum == -INFINITY ? 0 : expf(sum - top);
}

/* Like the cpu backend: computes the weights first, then the sum in the order of
 * shares. */
template<typename A>
static __global__ void __launch_bounds__(ATT_THREADS)
merge_shares_kernel(struct fdk_merge_args a)
{
    int t = (int)blockIdx.x, i = (int)(blockIdx.y * ATT_THREADS + threadIdx.x);
    size_t D = (size_t)a.D, width = (size_t)a.H * (D + 1);
    cu_dep_next();
    cu_dep_wait();
    if (t >= cu_clip(a.n, a.T) || i >= a.H * a.D)
        return;
    const float *x = a.x + (size_t)t * (size_t)a.n_own * width;
    const float *sums = x + (size_t)a.H * D + (size_t)(i / a.D);
    float top = -INFINITY, all = 0, y = 0;
    for (int p = 0; p < a.n_own; p++)
        top = fmaxf(top, sums[(size_t)p * width]);
    for (int p = 0; p < a.n_own; p++)
        all += share_weight(sums[(size_t)p * width], top);
    for (int p = 0; p < a.n_own && all != 0; p++) /* not all > 0: NaN must propagate */
        y = fmaf(share_weight(sums[(size_t)p * width], top) / all,
            x[(size_t)p * width + (size_t)i], y);
    round_to((A *)a.y + (size_t)t * (size_t)(a.H * a.D) + (size_t)i, y);
}

int
cu_merge(const struct fdk_merge_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    if (a->T <= 0 || a->H <= 0 || a->D <= 0 || a->n_own < 1 || a->n_own > FDK_MAX_RANKS ||
        a->y == NULL || a->x == NULL || a->n == NULL)
        return -EINVAL;
    rc = cu_act_valid(a->act);
    if (rc != 0)
        return rc;
    dim3 grid((unsigned)a->T, ((unsigned)(a->H * a->D) + ATT_THREADS - 1) / ATT_THREADS);
    if (a->act == FDK_F32)
        cu_chain(merge_shares_kernel<float>, grid, ATT_THREADS, 0, cu_raw(st), *a);
    else
        cu_chain(merge_shares_kernel<__nv_bfloat16>, grid, ATT_THREADS, 0, cu_raw(st), *a);
    return cu_launched(st, "merge");
}

cudaError_t
cu_att_plain_load(void)
{
    const void *const k[] = {
        (const void *)attention_kernel<float>,
        (const void *)attention_kernel<__nv_bfloat16>,
        (const void *)attention_kernel<int8_t>,
        (const void *)attention_kernel<__nv_fp8_e4m3>,
    };
    struct cudaFuncAttributes attr;
    int dev = 0, most = 0, want = (int)att_shared_bytes(CU_MAX_HEAD_DIM);
    cudaError_t e = cudaFuncGetAttributes(&attr, merge_kernel);
    if (e == cudaSuccess)
        e = cudaFuncGetAttributes(&attr, merge_shares_kernel<float>);
    if (e == cudaSuccess)
        e = cudaFuncGetAttributes(&attr, merge_shares_kernel<__nv_bfloat16>);
    if (e == cudaSuccess)
        e = cudaGetDevice(&dev);
    if (e == cudaSuccess)
        e = shared_most(dev, &most);
    for (size_t i = 0; i < sizeof(k) / sizeof(k[0]) && e == cudaSuccess; i++)
        e = cudaFuncSetAttribute(k[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
            want < most ? want : most);
    return e;
}
