/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a step's attention, by one block, once per step. It processes PLAN_THREADS
 * rows at a time: computes prefix sums of their tile counts, in which each thread then
 * finds the rows of its tiles. attention.cuh describes the lists.
 */
#include "kernels/cuda/attention.cuh"

#include <algorithm>

#define PLAN_THREADS 1024
#define SORTED_LONG  1024        /* most long tiles that are sorted */
#define FIRST_TILES  4096        /* split tiles whose sums fit in shared memory */
#define COPIED_TILES 1024        /* split tiles that fit in shared memory */
#define WHOLE_MORE   2           /* chunks, see whole_sets() */

struct plan_args {
    struct fdk_att_plan_args a;
    struct fdk_batch b;
    struct cu_claim *claim;
    struct cu_att_plan *plan;    /* NULL: only the list of tiles is made */
    struct cu_split_plan split;
    int32_t n_long_max, n_block;
    int32_t n_set, n_count;      /* head sets, and counters of blocks, per tile */
    struct cu_split_cut cut;
    int32_t has_long, has_split;
    int32_t block_shift;
    int32_t window;              /* of the layers of the split tiles; 0: none */
    int32_t chunk;               /* tokens of a chunk of the split tiles */
    int32_t apart;               /* no block has splits of two head sets, if set_cut allows */
    struct cu_set_cut set_cut;   /* `total` not set */
    int32_t D;
    struct fdk_kv kv;            /* n_own > 1: split tiles are rows of one token, and
                                    chunks count this rank's tokens of a row. Other ranks,
                                    which use the same plan, have no more of them. */
};
struct plan_row {
    int tok, n;                  /* query tokens */
    int kv, state;
    int old;                     /* cu_split_tile.old */
};
struct plan_counts {             /* tiles of a row */
    int tiles, longs, splits;
};
struct plan_shared {
    struct cu_split_tile copy[COPIED_TILES];
    struct plan_row row[PLAN_THREADS];
    int sum[3][PLAN_THREADS + 1]; /* tiles, long tiles, split tiles of the rows before */
    int64_t warp[PLAN_THREADS / 32];
    int carry;
    int long_tile;               /* query tokens */
    int first[FIRST_TILES + 1];  /* splits of a tile, later of all tiles before it */
    struct cu_att_long tile[SORTED_LONG];
    int begin[CU_SPLIT_BLOCKS + 1]; /* first split of each block */
};
static_assert(sizeof(struct plan_shared) <= 99 * 1024, "what any device gives a block");

static __device__ struct plan_row
plan_row(const struct plan_args &p, int r)
{
    struct plan_row row = {};
    row.kv = p.b.kv_len[r];
    row.state = p.b.state[r];
    int n_tok = *p.b.n_tok, end = min(p.b.q_start[r + 1], n_tok);
    row.tok = p.b.q_start[r];
    row.n = max(end - row.tok, 0);
    return row;
}

static inline __host__ __device__ bool
is_split_row(const struct plan_args &p, const struct plan_row &row)
{
    return p.kv.n_own <= 1 || row.n == 1;
}

static __device__ struct plan_counts
count_tiles(const struct plan_args &p, const struct plan_row &row, int long_tile)
{
    struct plan_counts c = {};
    c.tiles = (int)(((int64_t)row.n * p.a.a + p.a.bt - 1) / p.a.bt);
    if (p.has_long && row.n >= CU_ATT_LONG_MIN)
        c.longs = (row.n + long_tile - 1) / long_tile;
    else if (p.has_split && is_split_row(p, row))
        c.splits = c.tiles;
    return c;
}

/* Inclusive prefix sum over the block's threads. */
static __device__ int64_t
block_sum(struct plan_shared &s, int64_t x)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = 1; i < 32; i *= 2) {
        int64_t y = __shfl_up_sync(0xffffffffu, x, i);
        x += lane >= i ? y : 0;
    }
    if (lane == 31)
        s.warp[warp] = x;
    __syncthreads();
    int64_t before = lane < warp ? s.warp[lane] : 0;
    for (int i = 16; i > 0; i /= 2)
        before += __shfl_xor_sync(0xffffffffu, before, i);
    return x + before;
}

/* The last i < n with at[i] <= e. */
static __device__ int
find(const int *at, int n, int e)
{
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (at[mid] <= e)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Number of tokens that token `tok` of the step, one of the row's, sees. */
static __device__ int
tokens_seen(const struct plan_row &row, int tok)
{
    return row.kv - (row.tok + row.n - 1 - tok);
}

static __device__ void
put_split(const struct plan_args &p, struct plan_shared &s, const struct plan_row &row,
    int tile, int e)
{
    struct cu_split_tile t = {};
    t.tok = row.tok + tile * p.a.bt;
    t.n_tok = min(p.a.bt, row.tok + row.n - t.tok);
    t.see = tokens_seen(row, t.tok);
    int n = (fdk_kv_count(&p.kv, t.see + t.n_tok - 1) + p.chunk - 1) / p.chunk;
    t.n_chunk = max(n, 1);
    t.begin = cu_att_first(t.see, p.window) / p.chunk;
    t.state = row.state;
    t.old = row.old;
    t.first = cu_tile_parts(t.begin, t.n_chunk, p.cut);
    if (e < FIRST_TILES)
        s.first[e] = t.first;
    if (e < COPIED_TILES)
        s.copy[e] = t;
    else
        p.split.tile[e] = t;
}

static __device__ void
put_long(const struct plan_args &p, struct plan_shared &s, int r,
    const struct plan_row &row, int tile, int e)
{
    struct cu_att_long t;
    t.row = r;
    t.tok = row.tok + tile * s.long_tile;
    t.n = min(s.long_tile, row.tok + row.n - t.tok);
    t.kv = max(tokens_seen(row, t.tok + t.n - 1), 1);
    if (e < SORTED_LONG)
        s.tile[e] = t;
    else
        ((struct cu_att_long *)(p.plan + 1))[e] = t;
}

/* Sorts the long tiles, most KV tokens first. */
static __device__ void
sort_long(const struct plan_args &p, struct plan_shared &s, int n)
{
    int i = (int)threadIdx.x, rank = 0;
    n = min(n, SORTED_LONG);
    if (i >= n)
        return;
    struct cu_att_long t = s.tile[i];
    for (int j = 0; j < n; j++)
        rank += s.tile[j].kv > t.kv || (s.tile[j].kv == t.kv && j < i);
    ((struct cu_att_long *)(p.plan + 1))[rank] = t;
}

/* Writes the tiles of the rows from base on. */
static __device__ void
plan_many(const struct plan_args &p, struct plan_shared &s, int base, const int *done)
{
    int tid = (int)threadIdx.x;
    for (int e = tid; e < s.sum[0][PLAN_THREADS] && done[0] + e < p.a.n_max;
        e += PLAN_THREADS) {
        int i = find(s.sum[0], PLAN_THREADS, e);
        p.a.work[done[0] + e] = fdk_work{ base + i, e - s.sum[0][i] };
    }
    for (int e = tid; e < s.sum[1][PLAN_THREADS] && done[1] + e < p.n_long_max;
        e += PLAN_THREADS) {
        int i = find(s.sum[1], PLAN_THREADS, e);
        put_long(p, s, base + i, s.row[i], e - s.sum[1][i], done[1] + e);
    }
    for (int e = tid; e < s.sum[2][PLAN_THREADS] && done[2] + e < p.a.n_max;
        e += PLAN_THREADS) {
        int i = find(s.sum[2], PLAN_THREADS, e);
        put_split(p, s, s.row[i], e - s.sum[2][i], done[2] + e);
    }
}

/* Plans the rows from base on; done: entries of the three lists so far. */
static __device__ void
plan_rows(const struct plan_args &p, struct plan_shared &s, int base, int n_row,
    int *done)
{
    int tid = (int)threadIdx.x, r = base + tid;
    struct plan_row row = {};
    struct plan_counts c = {};
    if (r < p.b.max_row)         /* loads without waiting for n_row */
        row = plan_row(p, r);
    if (r < n_row)
        c = count_tiles(p, row, s.long_tile);
    if (c.splits > 0 && p.b.ids != NULL && p.b.ids[row.tok] < 0)
        row.old = row.kv - row.n;
    s.row[tid] = row;
    /* The three counts in one number: each is below 2^21 in a step. */
    int64_t own = c.tiles | (int64_t)c.longs << 21 | (int64_t)c.splits << 42;
    int64_t sum = block_sum(s, own);
    for (int k = 0; k < 3; k++) {
        s.sum[k][tid + 1] = (int)(sum >> 21 * k & 0x1fffff);
        s.sum[k][0] = 0;
    }
    /* If no row has more than two tiles, each thread writes its own row's, else all
     * threads share the tiles. */
    if (!__syncthreads_or(c.tiles > 2)) {
        for (int i = 0; i < c.tiles && done[0] + s.sum[0][tid] + i < p.a.n_max; i++) {
            p.a.work[done[0] + s.sum[0][tid] + i] = fdk_work{ r, i };
            if (c.splits > 0)
                put_split(p, s, row, i, done[2] + s.sum[2][tid] + i);
        }
        for (int i = 0; i < c.longs && done[1] + s.sum[1][tid] + i < p.n_long_max; i++)
            put_long(p, s, r, row, i, done[1] + s.sum[1][tid] + i);
    } else {
        plan_many(p, s, base, done);
    }
    if (done[0] + s.sum[0][PLAN_THREADS] > p.a.n_max && tid == 0)
        cu_report(p.claim, CU_BAD_PLAN, base, n_row, p.a.n_max);
    done[0] = min(done[0] + s.sum[0][PLAN_THREADS], p.a.n_max);
    done[1] = min(done[1] + s.sum[1][PLAN_THREADS], p.n_long_max);
    done[2] = min(done[2] + s.sum[2][PLAN_THREADS], p.a.n_max);
    __syncthreads();
}

static __device__ struct cu_split_tile &
tile_at(const struct plan_args &p, struct plan_shared &s, int i)
{
    return i < COPIED_TILES ? s.copy[i] : p.split.tile[i];
}

/* Sets cu_split_tile.first of n tiles. Returns the number of splits of one head set. */
static __device__ int
sum_parts(const struct plan_args &p, struct plan_shared &s, int n)
{
    int total = 0;
    for (int base = 0; base < n; base += PLAN_THREADS) {
        int i = base + (int)threadIdx.x;
        int own = i >= n ? 0 : i < FIRST_TILES ? s.first[i] : p.split.tile[i].first;
        int sum = (int)block_sum(s, own);
        if (i < n) {
            tile_at(p, s, i).first = total + sum - own;
            if (i < FIRST_TILES)
                s.first[i] = total + sum - own;
            if (i < COPIED_TILES)
                p.split.tile[i] = s.copy[i];
        }
        if (threadIdx.x == PLAN_THREADS - 1)
            s.carry = total + sum;
        __syncthreads();
        total = s.carry;
        __syncthreads();
    }
    return total;
}

/* The tile with split e of one head set. */
static __device__ int
find_tile(const struct plan_args &p, const struct plan_shared &s, int n, int e)
{
    if (n <= FIRST_TILES)
        return find(s.first, n, e);
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (p.split.tile[mid].first <= e)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* First split of the head set of split i, and first split of the next head set. */
static __device__ int2
set_of(const struct plan_args &p, struct plan_shared &s, int n, int i)
{
    const struct cu_split_tile &t = tile_at(p, s, find_tile(p, s, n, i / p.n_set));
    int each = cu_tile_parts(t.begin, t.n_chunk, p.cut);
    int at = i - (i - t.first * p.n_set) % each;
    return make_int2(at, at + each);
}

static __device__ void
put_start(const struct plan_args &p, struct plan_shared &s, int n, int total, int b)
{
    struct cu_split_start t = {};
    t.total = total;
    t.at = s.begin[b];
    t.n = s.begin[b + 1] - t.at;
    if (t.n > 0) {
        t.tile = find_tile(p, s, n, t.at / p.n_set);
        t.first = t.tile < COPIED_TILES ? s.copy[t.tile] : p.split.tile[t.tile];
        int each = cu_tile_parts(t.first.begin, t.first.n_chunk, p.cut);
        int in = t.at - t.first.first * p.n_set;
        t.set = in / each;
        t.part = in - t.set * each;
        t.from = find(s.begin, p.n_block, set_of(p, s, n, t.at).x);
        t.to = find(s.begin, p.n_block, set_of(p, s, n, t.at + t.n - 1).y - 1);
        const int32_t *table = p.b.block_table +
            (int64_t)t.first.state * p.b.table_stride;
#pragma unroll
        for (int i = 0; i < CU_SPLIT_UNITS; i++) {
            int pos = cu_tile_chunk(t.part, t.first.begin, p.cut) * p.chunk +
                i * CU_SPLIT_UNIT;
            t.block[i] = pos < fdk_kv_count(&p.kv, t.first.see + t.first.n_tok - 1) ?
                table[pos >> p.block_shift] : 0;
        }
    }
    p.split.start[b] = t;
}

/* The split nearest to i that is the first of a head set. */
static __device__ int
nearest_set(const struct plan_args &p, struct plan_shared &s, int n, int total, int i)
{
    if (i <= 0 || i >= total)
        return i;
    int2 set = set_of(p, s, n, i);
    return 2 * (i - set.x) < set.y - set.x ? set.x : set.y;
}

/* Divides the splits such that each block has full head sets and so nothing to merge, at
 * the cost of a less even division. Returns 1 and sets s.begin, or 0 if a block would
 * have WHOLE_MORE chunks more than the mean. */
static __device__ int
whole_sets(const struct plan_args &p, struct plan_shared &s, int n, int total)
{
    int b = (int)threadIdx.x, longer = 0;
    if (b <= p.n_block)
        s.begin[b] = nearest_set(p, s, n, total, cu_split_begin(total, p.n_block, b));
    __syncthreads();
    if (b < p.n_block)
        longer = (((int64_t)(s.begin[b + 1] - s.begin[b]) * p.n_block - total) << p.cut.few) >
            (int64_t)WHOLE_MORE * p.n_block;
    return !__syncthreads_or(longer);
}

/* Divides the splits such that no block has splits of two head sets: it merges once, at its
 * end. Returns 1 and sets s.begin, or 0. */
static __device__ int
sets_apart(const struct plan_args &p, struct plan_shared &s, int n, int total)
{
    struct cu_set_cut cut = p.set_cut;
    int i = (int)threadIdx.x, each = 0, k = 0;
    cut.total = total;
    if (n == 0 || n > p.n_block)
        return 0;
    if (i < n) {
        int2 set = set_of(p, s, n, tile_at(p, s, i).first * p.n_set);
        each = set.y - set.x;
        k = cu_set_blocks(each, cut);
    }
    if (__syncthreads_or(i < n && cu_set_uneven(each, cut)))
        return 0;
    int at = (int)block_sum(s, k * p.n_set) - k * p.n_set;
    if (i <= p.n_block)
        s.begin[i] = total;
    __syncthreads();
    for (int m = 0; m < k * p.n_set; m++)
        s.begin[at + m] = tile_at(p, s, i).first * p.n_set + m / k * each + m % k * each / k;
    return 1;
}

static __device__ void
cut_parts(const struct plan_args &p, struct plan_shared &s, int n)
{
    int tid = (int)threadIdx.x, total = sum_parts(p, s, n) * p.n_set;
    bool done = p.apart && sets_apart(p, s, n, total);
    if (!done && !whole_sets(p, s, n, total) && tid <= p.n_block)
        s.begin[tid] = cu_split_begin(total, p.n_block, tid);
    __syncthreads();
    if (tid < p.n_block)
        put_start(p, s, n, total, tid);
    for (int i = tid; i < n * p.n_count; i += PLAN_THREADS)
        p.split.arrived[i] = 0;
}

/* Sets s.long_tile from the step's rows. */
static __device__ void
choose_tile(const struct plan_args &p, struct plan_shared &s, int n_row)
{
    int64_t own = 0;
    for (int r = (int)threadIdx.x; r < n_row && p.has_long && p.D == 64; r += PLAN_THREADS) {
        int n = plan_row(p, r).n;
        own += n >= CU_ATT_LONG_MIN ? n | (int64_t)1 << 32 : 0;
    }
    int64_t sum = block_sum(s, own);
    if (threadIdx.x == PLAN_THREADS - 1)
        s.long_tile = cu_att_long_tile(p.D, (int)(sum >> 32), (int)(sum & 0xffffffff));
    __syncthreads();
}

/* It does not call cu_dep_next(): the next kernel starts when the plan and all earlier
 * work are complete, and may read their results before its own wait. */
static __global__ void __launch_bounds__(PLAN_THREADS, 1)
plan_kernel(struct plan_args p)
{
    extern __shared__ char mem[];
    struct plan_shared &s = *(struct plan_shared *)mem;
    cu_dep_wait();
    int tid = (int)threadIdx.x, n_row = cu_clip(p.b.n_row, p.b.max_row);
    int done[3] = { 0, 0, 0 };
    choose_tile(p, s, n_row);
    for (int base = 0; base < n_row; base += PLAN_THREADS)
        plan_rows(p, s, base, n_row, done);
    for (int e = done[0] + tid; e < p.a.n_max; e += PLAN_THREADS) {
        p.a.work[e].row = -1;
        p.a.work[e].tile = -1;
    }
    if (tid == 0) {
        *p.a.n_work = done[0];
        *p.a.n_done = 0;
    }
    if (p.plan != NULL && tid == 0) {
        p.plan->n_long = done[1];
        p.plan->bt = p.a.bt;
        p.plan->n_split = done[2];
        p.plan->long_tile = s.long_tile;
    }
    if (p.has_long)
        sort_long(p, s, done[1]);
    if (p.has_split)
        cut_parts(p, s, done[2]);
    __threadfence();
}

/* ---- launching ----------------------------------------------------------- */

static size_t
take(size_t *at, size_t bytes)
{
    size_t r = *at;
    *at += (bytes + 15) / 16 * 16;
    return r;
}

size_t
cu_att_plan_lay_out(const struct fdk_attention_args *a, int n_work_max, void *plan,
    struct cu_split_plan *ret)
{
    size_t n = (size_t)n_work_max, at = sizeof(struct cu_att_plan);
    size_t counts = (size_t)cu_split_counts(a);
    int S = a->b != NULL ? a->b->max_row : a->T;
    take(&at, (size_t)cu_att_long_max(a->T, S) * sizeof(struct cu_att_long));
    for (int windowed = 0; windowed <= (a->step_window > 0); windowed++) {
        size_t start = take(&at, CU_SPLIT_BLOCKS * sizeof(struct cu_split_start));
        size_t tile = take(&at, n * sizeof(struct cu_split_tile));
        size_t arrived = take(&at, n * counts * sizeof(uint32_t));
        if (ret == NULL || windowed != (a->window > 0))
            continue;
        ret->start = (struct cu_split_start *)((char *)plan + start);
        ret->tile = (struct cu_split_tile *)((char *)plan + tile);
        ret->arrived = (uint32_t *)((char *)plan + arrived);
    }
    return at;
}

size_t
cu_att_plan_bytes(const struct fdk_attention_args *a, int32_t n_work_max)
{
    if (a->T <= 0 || a->H <= 0 || a->K <= 0 || a->H % a->K != 0 || n_work_max < 0)
        return 0;
    return cu_att_plan_lay_out(a, n_work_max, NULL, NULL);
}

/* Sets the arguments of the plan of the layers with this window (0: without one). Returns
 * 0 or -EINVAL. */
static int
plan_args_of(const struct fdk_att_plan_args *a, const struct cu_dev *dev, int window,
    struct plan_args *ret)
{
    if (a->a <= 0 || a->bt <= 0 || a->n_max <= 0 || a->work == NULL ||
        a->n_work == NULL || a->n_done == NULL || a->b == NULL || a->b->max_row <= 0)
        return -EINVAL;
    *ret = {};
    ret->a = *a;
    ret->b = *a->b;
    ret->claim = dev->claim;
    if (a->plan == NULL)
        return 0;
    int det = dev->ctx->deterministic;
    if (a->att == NULL)
        return -EINVAL;
    struct fdk_attention_args t = *a->att;
    t.window = window;
    if ((a->att->window > 0 && a->att->window != t.step_window) || t.T <= 0 || t.H <= 0 || t.K <= 0 || t.H % t.K != 0 ||
        t.step_window < 0 || t.b == NULL || t.b->max_row != a->b->max_row || a->a != 1 ||
        a->b->block_table == NULL ||
        (uintptr_t)a->plan % 16 != 0 ||
        cu_att_plan_lay_out(&t, a->n_max, a->plan, &ret->split) > a->plan_bytes)
        return -EINVAL;
    ret->plan = (struct cu_att_plan *)a->plan;
    ret->n_long_max = cu_att_long_max(t.T, t.b->max_row);
    ret->n_block = cu_split_blocks(dev->ctx);
    ret->n_set = cu_split_sets(&t);
    ret->n_count = cu_split_counts(&t);
    ret->cut = cu_split_cut_of(&t, det);
    ret->has_long = cu_att_sm90a(dev->ctx) && cu_att_long_fits(&t, det);
    ret->has_split = cu_att_sm90a(dev->ctx) && cu_att_split_fits(&t, det);
    ret->kv = t.kv;
    ret->block_shift = __builtin_ctz((unsigned)t.kv.block_size | 1u << 31);
    ret->window = window;
    ret->chunk = cu_split_chunk(&t);
    ret->apart = !det;
    ret->set_cut.n_block = ret->n_block;
    ret->set_cut.more = cu_att_double(&t) ? 8 : 2;
    ret->set_cut.n_q = std::min(t.H / t.K * cu_att_ranks(&t.kv), CU_ATT_QUERIES);
    ret->D = t.D;
    return 0;
}

/* Windows of the step's layers, 0 for layers without one: the plan has a list of splits
 * for each. Returns their number. */
static int
windows_of(const struct fdk_att_plan_args *a, int ret[2])
{
    int n = 0;
    if (a->att == NULL || a->plan == NULL || a->att->window == 0)
        ret[n++] = 0;
    if (a->att != NULL && a->plan != NULL && a->att->step_window > 0)
        ret[n++] = a->att->step_window;
    return n;
}

int
cu_att_plan(const struct fdk_att_plan_args *a, fdk_stream_t st)
{
    struct plan_args p;
    int window[2], n = windows_of(a, window);
    int rc = cu_stream_enter(st);
    if (rc == 0 && a->outputs)
        rc = -EINVAL;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = plan_args_of(a, cu_stream_of(st)->dev, window[i], &p);
        if (rc == 0)
            cu_chain(plan_kernel, 1, PLAN_THREADS, sizeof(struct plan_shared), cu_raw(st), p);
    }
    return rc != 0 ? rc : cu_launched(st, "att_plan");
}

/* ---- on the host --------------------------------------------------------- */

/* Makes the same lists on the host. */
struct host_plan {
    const struct plan_args *p;
    struct cu_att_long *tile;    /* the list of long tiles */
    int n_work, n_long, n_split;
    int long_tile;
    int32_t at, long_at;         /* *at of fdk_has_output(), for each list */
};

static int
host_wanted(const struct host_plan *h, int32_t *at, int tok, int n)
{
    return !h->p->a.outputs || fdk_has_output(&h->p->b, at, tok, tok + n);
}

static int
host_seen(const struct plan_row &row, int tok)
{
    return row.kv - (row.tok + row.n - 1 - tok);
}

static void
host_put_long(struct host_plan *h, int r, const struct plan_row &row, int tile)
{
    struct cu_att_long t;
    t.row = r;
    t.tok = row.tok + tile * h->long_tile;
    t.n = std::min(h->long_tile, row.tok + row.n - t.tok);
    t.kv = std::max(host_seen(row, t.tok + t.n - 1), 1);
    if (h->n_long < h->p->n_long_max && host_wanted(h, &h->long_at, t.tok, t.n))
        h->tile[h->n_long++] = t;
}

static void
host_put_split(struct host_plan *h, const struct plan_row &row, int tok, int n_tok)
{
    struct cu_split_tile t = {};
    t.tok = tok;
    t.n_tok = n_tok;
    t.see = host_seen(row, tok);
    t.n_chunk = std::max((fdk_kv_count(&h->p->kv, t.see + n_tok - 1) + h->p->chunk - 1) /
        h->p->chunk, 1);
    t.begin = cu_att_first(t.see, h->p->window) / h->p->chunk;
    t.state = row.state;
    t.old = row.old;
    t.first = cu_tile_parts(t.begin, t.n_chunk, h->p->cut);
    h->p->split.tile[h->n_split++] = t;
}

/* Adds the tiles of row r. Returns 0, or -EINVAL if they do not fit. */
static int
host_row(struct host_plan *h, int r, int n_tok)
{
    const struct fdk_batch &b = h->p->b;
    const int bt = h->p->a.bt, a = h->p->a.a;
    struct plan_row row = {};
    row.kv = b.kv_len[r];
    row.state = b.state[r];
    row.tok = b.q_start[r];
    row.n = std::max(std::min((int)b.q_start[r + 1], n_tok) - row.tok, 0);
    const int is_long = h->p->has_long && row.n >= CU_ATT_LONG_MIN;
    const int is_split = !is_long && h->p->has_split && is_split_row(*h->p, row);
    if (is_split && row.n > 0 && b.ids != NULL && b.ids[row.tok] < 0)
        row.old = row.kv - row.n;
    for (int i = 0; (int64_t)i * bt < (int64_t)row.n * a; i++) {
        const int tok = row.tok + (int)((int64_t)i * bt / a);
        const int n = std::min((int)(((int64_t)(i + 1) * bt - 1) / a) + 1, row.n) -
            (tok - row.tok);
        if (!host_wanted(h, &h->at, tok, n))
            continue;
        if (h->n_work == h->p->a.n_max)
            return -EINVAL;
        h->p->a.work[h->n_work++] = fdk_work{ r, i };
        if (is_split)
            host_put_split(h, row, tok, n);
    }
    for (int i = 0; is_long && i * h->long_tile < row.n; i++)
        host_put_long(h, r, row, i);
    return 0;
}

/* The tile with split e of one head set. */
static int
host_find(const struct host_plan *h, int e)
{
    const struct cu_split_tile *tile = h->p->split.tile;
    int lo = 0, hi = h->n_split;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (tile[mid].first <= e)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static int2
host_set_of(const struct host_plan *h, int i)
{
    const struct cu_split_tile &t = h->p->split.tile[host_find(h, i / h->p->n_set)];
    const int each = cu_tile_parts(t.begin, t.n_chunk, h->p->cut);
    const int at = i - (i - t.first * h->p->n_set) % each;
    return make_int2(at, at + each);
}

static int
host_nearest_set(const struct host_plan *h, int total, int i)
{
    if (i <= 0 || i >= total)
        return i;
    const int2 set = host_set_of(h, i);
    return 2 * (i - set.x) < set.y - set.x ? set.x : set.y;
}

/* Host version of sets_apart(). */
static int
host_sets_apart(const struct host_plan *h, int total, int *begin)
{
    const struct plan_args &p = *h->p;
    struct cu_set_cut cut = p.set_cut;
    int b = 0;
    cut.total = total;
    if (h->n_split == 0 || h->n_split > p.n_block)
        return 0;
    for (int i = 0; i < h->n_split; i++) {
        const int2 set = host_set_of(h, p.split.tile[i].first * p.n_set);
        const int each = set.y - set.x, k = cu_set_blocks(each, cut);
        if (cu_set_uneven(each, cut))
            return 0;
        for (int m = 0; m < k * p.n_set; m++)
            begin[b++] = set.x + m / k * each + m % k * each / k;
    }
    while (b <= p.n_block)
        begin[b++] = total;
    return 1;
}

static int
host_block(const struct plan_args &p, const int *begin, int split)
{
    return (int)(std::upper_bound(begin, begin + p.n_block, split) - begin) - 1;
}

static void
host_start(const struct host_plan *h, int total, const int *begin, int b)
{
    const struct plan_args &p = *h->p;
    struct cu_split_start t = {};
    t.total = total;
    t.at = begin[b];
    t.n = begin[b + 1] - t.at;
    if (t.n > 0) {
        t.tile = host_find(h, t.at / p.n_set);
        t.first = p.split.tile[t.tile];
        const int each = cu_tile_parts(t.first.begin, t.first.n_chunk, p.cut);
        const int in = t.at - t.first.first * p.n_set;
        t.set = in / each;
        t.part = in - t.set * each;
        t.from = host_block(p, begin, host_set_of(h, t.at).x);
        t.to = host_block(p, begin, host_set_of(h, t.at + t.n - 1).y - 1);
        const int32_t *table = p.b.block_table + (int64_t)t.first.state * p.b.table_stride;
        for (int i = 0; i < CU_SPLIT_UNITS; i++) {
            int pos = cu_tile_chunk(t.part, t.first.begin, p.cut) * p.chunk +
                i * CU_SPLIT_UNIT;
            t.block[i] = pos < fdk_kv_count(&p.kv, t.first.see + t.first.n_tok - 1) ?
                table[pos >> p.block_shift] : 0;
        }
    }
    p.split.start[b] = t;
}

/* Host version of cut_parts(). */
static void
host_cut(const struct host_plan *h)
{
    const struct plan_args &p = *h->p;
    int begin[CU_SPLIT_BLOCKS + 1], total = 0, whole = 1;
    for (int i = 0; i < h->n_split; i++) {
        const int own = p.split.tile[i].first;
        p.split.tile[i].first = total;
        total += own;
    }
    total *= p.n_set;
    const int apart = p.apart && host_sets_apart(h, total, begin);
    for (int b = 0; b <= p.n_block && !apart; b++)
        begin[b] = host_nearest_set(h, total, cu_split_begin(total, p.n_block, b));
    for (int b = 0; b < p.n_block && !apart; b++)
        whole &= ((int64_t)(begin[b + 1] - begin[b]) * p.n_block - total) *
            (1 << p.cut.few) <= (int64_t)WHOLE_MORE * p.n_block;
    for (int b = 0; b <= p.n_block && !whole; b++)
        begin[b] = cu_split_begin(total, p.n_block, b);
    for (int b = 0; b < p.n_block; b++)
        host_start(h, total, begin, b);
    memset(p.split.arrived, 0, sizeof(*p.split.arrived) * (size_t)h->n_split *
        (size_t)p.n_count);
}

static int
host_tile(const struct plan_args &p, int n_row)
{
    int rows = 0, tokens = 0;
    for (int r = 0; r < n_row && p.has_long; r++) {
        int n = std::min((int)p.b.q_start[r + 1], (int)*p.b.n_tok) - p.b.q_start[r];
        rows += n >= CU_ATT_LONG_MIN;
        tokens += n >= CU_ATT_LONG_MIN ? n : 0;
    }
    return cu_att_long_tile(p.D, rows, tokens);
}

static int
host_plan(const struct plan_args &p)
{
    struct host_plan h = {};
    const int n_row = std::min(std::max((int)*p.b.n_row, 0), (int)p.b.max_row);
    h.p = &p;
    h.long_tile = host_tile(p, n_row);
    h.tile = p.plan != NULL ? (struct cu_att_long *)(p.plan + 1) : NULL;
    for (int r = 0; r < n_row; r++) {
        int rc = host_row(&h, r, *p.b.n_tok);
        if (rc != 0)
            return rc;
    }
    for (int e = h.n_work; e < p.a.n_max; e++)
        p.a.work[e] = fdk_work{ -1, -1 };
    *p.a.n_work = h.n_work;
    *p.a.n_done = 0;
    if (p.plan == NULL)
        return 0;
    p.plan->n_long = h.n_long;
    p.plan->bt = p.a.bt;
    p.plan->n_split = h.n_split;
    p.plan->long_tile = h.long_tile;
    std::sort(h.tile, h.tile + std::min(h.n_long, SORTED_LONG),
        [](const struct cu_att_long &x, const struct cu_att_long &y) {
            return x.kv != y.kv ? x.kv > y.kv : x.tok < y.tok;
        });
    if (p.has_split)
        host_cut(&h);
    return 0;
}

int
cu_att_plan_host(struct fdk_ctx *ctx, int dev, const struct fdk_att_plan_args *a)
{
    struct plan_args p;
    int window[2], n = windows_of(a, window);
    int rc = dev < 0 || dev >= ctx->n_dev ? -EINVAL : 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = plan_args_of(a, &ctx->dev[dev], window[i], &p);
        if (rc == 0)
            rc = host_plan(p);
    }
    return rc;
}

cudaError_t
cu_att_plan_load(void)
{
    return cudaFuncSetAttribute((const void *)plan_kernel,
        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(struct plan_shared));
}
