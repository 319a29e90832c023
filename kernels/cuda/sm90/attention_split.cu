/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Split-KV attention for rows with few query tokens, mainly decode. Every block has a run
 * of the step's list of splits (attention.cuh)
 * and streams their keys and values through shared memory. Each warp loads its own KV
 * tiles of 16 tokens, with several loads in flight, and computes 16 tokens of each chunk;
 * at the end of a split the sums (m, l, o) of the warps are merged in their order. A head
 * set whose splits are in several blocks is merged by the last block to finish, in the
 * order of splits.
 *
 * The arithmetic of a query vector does not depend on the others in its tile: tokens
 * that it does not see have weight 0 and change no bit. In deterministic mode splits
 * depend only on positions, and so do the results.
 */
#include "kernels/cuda/sm90/attention_split_merge.cuh"

/* ---- the kernel ---------------------------------------------------------- */

template<int D, typename E, int G>
static __device__ __forceinline__ void
run_parts(char *mem, const struct split_args &s, const CUtensorMap *map, struct feed &f,
    struct walk w, int total)
{
    typedef struct shape<D, E> sh;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, stage = 0, pos;
    bool own = w.part == 0, fresh = true, two = false;
    uint32_t parity = 0;
    struct queries<D> q;
    struct sums<D> u;
    float score = 0;
    load_queries<D, E, G>(q, s, w, lane);
    while (w.left > 0) {
        if (fresh) {
            begin_sums<D, E, G>(u, q, s, w, lane);
            score = s.a.scale * LOG2E;
            if (std::is_same<E, __nv_fp8_e4m3>::value)
                score *= kv_head_scale(s.a.kv, s.a.layer, 0, w.head);
            int h0;
            two = w.t.n_tok * set_heads<G>(s, w, &h0) > 8;
            fresh = false;
        }
        int n = unit_tokens<sh::n_unit, G>(w, s, warp, &pos), slot = warp * sh::n_stage + stage;
        if (n > 0) {
            float *scales = (float *)(mem + sh::scales) + slot * 2 * UNIT;
            cu_bar_wait(f.full + (uint32_t)stage * 8, parity >> stage & 1);
            parity ^= 1u << stage;
            if (n < UNIT)
                clear_values<D, E>(f.ring + (uint32_t)(stage * sh::stage), scales, n, lane);
            attend_unit<D, E, G>(u, q, s, score, scales, f.ring + (uint32_t)(stage *
                sh::stage), pos, two, lane);
        }
        __syncwarp();                 /* all have read the stage that is loaded next */
        feed_unit<D, E, G>(f, s, map, warp, lane, stage);
        if (next_chunk<G>(w, s) >= w.t.n_chunk && (s.det || w.left == 1 ||
            w.part + 1 == w.n_part)) {
            load_next_queries<D, E, G>(q, s, w, lane);
            finish<D, E, G>(mem, s, w, u, (G & RARE) && s.cap > 0 ? 1 : score, own, total);
            fresh = true;
        }
        step<G>(w, s);
        own |= w.part == 0;
        stage = stage + 1 == sh::n_stage ? 0 : stage + 1;
    }
}

template<int D, typename E, int G>
static __global__ void __maxnreg__(D > 128 && sizeof(E) == 1 ? 255 : REGISTERS)
split_kernel(const __grid_constant__ struct split_args s,
    const __grid_constant__ CUtensorMap map)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(1024) char mem[];
    struct walk w;
    struct feed f;
    int total = begin_parts<D, E, G>(mem, shape<D, E>::full, s, &map, f, w);
    if (total > 0)
        run_parts<D, E, G>(mem, s, &map, f, w, total);
#endif
}

/* ---- launching ----------------------------------------------------------- */

static cu_encode_fn encode;         /* set by cu_att_split_load(), always to the same */

/* Tensor map of a layer's keys and values. Dimensions: bytes of a line, rows of all heads
 * of a block, lines of a row, keys or values, blocks. If rows are contiguous, the lines
 * of all heads of a block are one list. */
static int
map_layer(CUtensorMap *m, const struct fdk_kv *kv, const char *layer)
{
    cuuint64_t row = (cuuint64_t)kv->head_dim * fdk_dtype_bytes(kv->dtype);
    cuuint64_t tokens = (cuuint64_t)kv->n_kv_head * (cuuint64_t)kv->block_size;
    const int lines = end_to_end((int)row);
    cuuint64_t box = lines || row > 128 ? 128 : row, per = lines ? 1 : row / box;
    const cuuint64_t dim[5] = { box, lines ? tokens * row / box : tokens, per, 2,
        (cuuint64_t)1 << 31 };
    const cuuint64_t stride[4] = { lines ? box : row, box, kv->v_bytes, kv->block_bytes };
    const cuuint32_t size[5] = { (cuuint32_t)box,
        (cuuint32_t)(lines ? UNIT * row / box : UNIT), (cuuint32_t)per, 2, 1 };
    const cuuint32_t one[5] = { 1, 1, 1, 1, 1 };
    CUresult r = cu_make_map(encode, m, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5,
        (void *)(uintptr_t)layer, dim, stride, size, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
        box < 128 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? 0 : -ENOTSUP;
}

static int
takes_dim(int D)
{
    return D == 64 || D == 80 || D == 96 || D == 128 || D == 192 || D == 256;
}

/* Does the kernel support the launch where ranks share the keys? Not with a window, which
 * applies to the history of all ranks, and not for the queries of only some ranks. Not in
 * deterministic contexts, where a token's bits must not depend on the number of tokens of
 * its row. */
static int
takes_shares(const struct fdk_attention_args *a, int deterministic)
{
    return a->kv.n_own <= 1 || (!deterministic && a->window == 0 && a->n_ask == 0);
}

int
cu_att_split_fits(const struct fdk_attention_args *a, int deterministic)
{
    const struct fdk_kv *kv = &a->kv;
    uint64_t odd = (uintptr_t)kv->base | kv->block_bytes | kv->layer_bytes | kv->v_bytes;
    if (kv->dtype == FDK_I8)
        odd |= kv->k_scale_off | kv->v_scale_off;
    return encode != NULL && a->act == FDK_BF16 && takes_dim(a->D) &&
        takes_shares(a, deterministic) && a->scale > 0 && kv->block_bytes < (uint64_t)1 << 40 &&
        (kv->dtype == FDK_BF16 || kv->dtype == FDK_I8 || kv->dtype == FDK_F8E4M3) &&
        kv->block_size >= UNIT && (kv->block_size & (kv->block_size - 1)) == 0 &&
        odd % 16 == 0;
}

/* One struct part_sum per slot and half of a head set. */
static size_t
scratch_bytes(const struct fdk_attention_args *a, int n_block, int slots)
{
    return (size_t)(n_block * slots * cu_set_halves(a)) * CU_ATT_QUERIES *
        (size_t)(a->D + 2) * sizeof(float);
}

/* A split is a chunk. In deterministic contexts, where splits must depend only on
 * positions, their size is that of cu_part_few(), or, with 8-bit KV, which
 * attention_prefill.cu does not support, four chunks. With a window there are as many
 * such splits as it needs; without one a split has four chunks of each 64, so that a row
 * has at most 16 splits. */
struct cu_split_cut
cu_split_cut_of(const struct fdk_attention_args *a, int deterministic)
{
    struct cu_split_cut c = { 0, INT32_MAX, 1 << 29, 0, 2 };
    if (!deterministic)
        return c;
    c.few = CU_SPLIT_FEW;
    if (cu_att_chunk_takes(a, 1)) {
        c.grow = 1;
        c.slots = a->b == NULL ? CU_SPLIT_PARTS : cu_split_parts((int)(((int64_t)
            a->b->table_stride * a->kv.block_size - 1) / cu_split_chunk(a) + 1), c);
    } else if (a->window > 0) {
        int chunks = (a->window + CU_ATT_QUERIES) / CU_SPLIT_CHUNK + 2;
        c.slots = (chunks >> CU_SPLIT_FEW) + 2;
    } else {
        c.most = c.slots = CU_SPLIT_PARTS;
        c.skip = (CU_SPLIT_PARTS - 1) << CU_SPLIT_FEW;
    }
    return c;
}

size_t
cu_att_split_scratch(const struct fdk_ctx *ctx, const struct fdk_attention_args *a)
{
    return a->act == FDK_BF16 && takes_dim(a->D) ? scratch_bytes(a, cu_split_blocks(ctx),
        cu_split_cut_of(a, ctx->deterministic).slots) : 0;
}

/* Only head dims 64 and 128, the usual ones, also have a kernel without support for a
 * window, a soft cap and keys shared among ranks. */
template<int D, typename E>
static void
launch(const struct split_args &s, const CUtensorMap &m, int n_block, cudaStream_t st)
{
    const int plain = D == 64 || D == 128 ? 0 : RARE;
    if (s.a.window == 0 && s.cap == 0 && s.n_rank == 1)
        cu_chain(split_kernel<D, E, plain>, n_block, THREADS, shape<D, E>::bytes, st, s, m);
    else
        cu_chain(split_kernel<D, E, RARE>, n_block, THREADS, shape<D, E>::bytes, st, s, m);
}

template<typename E>
static void
launch_8bit(const struct split_args &s, const CUtensorMap &m, int n_block, cudaStream_t st)
{
    switch (s.a.D) {
    case 64:
        return launch<64, E>(s, m, n_block, st);
    case 80:
        return launch<80, E>(s, m, n_block, st);
    case 96:
        return launch<96, E>(s, m, n_block, st);
    case 128:
        return launch<128, E>(s, m, n_block, st);
    case 192:
        return launch<192, E>(s, m, n_block, st);
    default:
        return launch<256, E>(s, m, n_block, st);
    }
}

int
cu_att_split(const struct fdk_attention_args *a, fdk_stream_t st)
{
    int rc = cu_stream_enter(st);
    if (rc != 0)
        return rc;
    const struct cu_dev *dev = cu_stream_of(st)->dev;
    int det = dev->ctx->deterministic, n = cu_split_blocks(dev->ctx);
    if (!cu_att_split_fits(a, det))
        return -ENOTSUP;
    struct split_args s = {};
    s.a = *a;
    s.table = a->b->block_table;
    s.table_stride = a->b->table_stride;
    s.block_shift = __builtin_ctz((unsigned)a->kv.block_size);
    s.n_rank = cu_att_ranks(&a->kv);
    s.n_set = cu_split_sets(a);
    s.n_head_set = s.n_set / a->K;
    s.rank_group = a->H / a->K;
    s.group = s.rank_group * s.n_rank;
    s.inv = 65536 / s.group + 1;
    s.det = det;
    s.cut = cu_split_cut_of(a, det);
    s.window = cu_att_window(a->window);
    if (a->softcap > 0) {
        s.cap = a->softcap * LOG2E;
        s.cap_by = 2 / a->softcap;
    }
    s.layer = (const char *)a->kv.base + (uint64_t)a->layer * a->kv.layer_bytes;
    if (a->plan == NULL || ((uintptr_t)a->qkv | (uintptr_t)a->y) % 8 != 0 ||
        a->scratch == NULL || a->scratch_bytes < scratch_bytes(a, n, s.cut.slots))
        return -EINVAL;
    cu_att_plan_lay_out(a, a->n_work_max, (void *)(uintptr_t)a->plan, &s.plan);
    cudaStream_t raw = cu_raw(st);
    if (cu_att_double(a)) {
        rc = cu_att_double_launch(s, encode, n, raw);
        return rc != 0 ? rc : cu_launched(st, "attention_split");
    }
    CUtensorMap m;
    rc = map_layer(&m, &a->kv, s.layer);
    if (rc != 0)
        return rc;
    enum fdk_dtype t = a->kv.dtype;
    if (cu_att_chunk_takes(a, det))
        cu_att_chunk_launch(s, m, n, raw);
    else if (t == FDK_BF16 && a->D == 64)
        launch<64, __nv_bfloat16>(s, m, n, raw);
    else if (t == FDK_BF16)
        launch<80, __nv_bfloat16>(s, m, n, raw);
    else if (t == FDK_I8)
        launch_8bit<int8_t>(s, m, n, raw);
    else
        launch_8bit<__nv_fp8_e4m3>(s, m, n, raw);
    return cu_launched(st, "attention_split");
}

template<int D, typename E>
static cudaError_t
load(void)
{
    const int plain = D == 64 || D == 128 ? 0 : RARE;
    cudaError_t e = cudaFuncSetAttribute((const void *)split_kernel<D, E, RARE>,
        cudaFuncAttributeMaxDynamicSharedMemorySize, shape<D, E>::bytes);
    return e != cudaSuccess ? e : cudaFuncSetAttribute((const void *)split_kernel<D, E,
        plain>, cudaFuncAttributeMaxDynamicSharedMemorySize, shape<D, E>::bytes);
}

/* Without the driver's encode function, or on devices other than Hopper, this kernel is
 * not used. */
cudaError_t
cu_att_split_load(void)
{
    struct cudaFuncAttributes attr;
    cu_encode_fn f = NULL;
    int dev = 0, major = 0;
    cudaError_t (*const all[])(void) = {
        load<64, __nv_bfloat16>, load<80, __nv_bfloat16>,
        load<64, int8_t>, load<64, __nv_fp8_e4m3>,
        load<80, int8_t>, load<80, __nv_fp8_e4m3>,
        load<96, int8_t>, load<96, __nv_fp8_e4m3>,
        load<128, int8_t>, load<128, __nv_fp8_e4m3>,
        load<192, int8_t>, load<192, __nv_fp8_e4m3>,
        load<256, int8_t>, load<256, __nv_fp8_e4m3>,
    };
    cudaError_t e = cudaFuncGetAttributes(&attr, split_kernel<64, int8_t, 0>);
    if (e == cudaSuccess)
        e = cudaGetDevice(&dev);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev);
    if (e == cudaSuccess)
        e = cu_find_encode(&f);
    if (f == NULL || attr.ptxVersion < 90 || major != 9) {
        (void)cudaGetLastError();
        return cudaSuccess;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && e == cudaSuccess; i++)
        e = all[i]();
    if (e == cudaSuccess)
        e = cu_att_chunk_load();
    if (e == cudaSuccess)
        e = cu_att_double_load();
    if (e == cudaSuccess)
        __atomic_store_n(&encode, f, __ATOMIC_RELEASE);
    return e;
}
