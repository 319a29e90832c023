/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of the virtual device, for the ops tables of the cpu and null
 * backends. The contracts are those of kernels/fdk.h.
 */
#ifndef FDD_KERNELS_CPU_VDEV_H
#define FDD_KERNELS_CPU_VDEV_H

#include "kernels/cpu/cpu.h"
#include "kernels/program.h"

int vdev_device_info(struct fdk_ctx *ctx, int dev, struct fdk_device_info *ret);
const char *vdev_error_text(struct fdk_ctx *ctx, int dev);
int vdev_probe(struct fdk_ctx *ctx, int dev, enum fdk_probe what, enum fdk_dtype t,
    double *ret);
int vdev_mem_alloc(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret);
void vdev_mem_free(struct fdk_ctx *ctx, int dev, void *p);
int vdev_host_alloc(struct fdk_ctx *ctx, size_t bytes, void **ret);
void vdev_host_free(struct fdk_ctx *ctx, void *p);
int vdev_mem_reserve(struct fdk_ctx *ctx, int dev, size_t bytes, void **ret);
int vdev_mem_map(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes);
int vdev_mem_unmap(struct fdk_ctx *ctx, int dev, void *base, size_t off, size_t bytes);
int vdev_mem_release(struct fdk_ctx *ctx, int dev, void *base, size_t bytes);

int vdev_stream_new(struct fdk_ctx *ctx, int dev, fdk_stream_t *ret);
void vdev_stream_free(fdk_stream_t st);
int vdev_stream_sync(fdk_stream_t st);
int vdev_stream_wait(fdk_stream_t st, fdk_event_t ev);
int vdev_stream_delay(fdk_stream_t st, uint64_t ns);
int vdev_stream_fail(fdk_stream_t st);
int vdev_stream_mark(fdk_stream_t st, uint32_t *host, const uint32_t *value);
int vdev_event_new(struct fdk_ctx *ctx, int dev, fdk_event_t *ret);
void vdev_event_free(fdk_event_t ev);
int vdev_event_record(fdk_event_t ev, fdk_stream_t st);
int vdev_event_query(fdk_event_t ev);
int vdev_event_sync(fdk_event_t ev);
int vdev_event_wait(fdk_event_t ev, uint64_t expect_ns, uint64_t until_ns);
uint64_t vdev_event_ns(fdk_event_t ev);
int vdev_copy(fdk_stream_t st, void *dst, const void *src, size_t bytes);
int vdev_copy_peer(fdk_stream_t st, int dst_dev, void *dst, int src_dev, const void *src,
    size_t bytes);
int vdev_fill(fdk_stream_t st, void *dst, int byte, size_t bytes);
int vdev_graph_begin(fdk_stream_t st);
int vdev_graph_end(fdk_stream_t st, struct fdk_graph **ret);
int vdev_graph_launch(struct fdk_graph *g, fdk_stream_t st);
void vdev_graph_free(struct fdk_graph *g);

void vdev_att_shape(const struct fdk_attention_args *a, int32_t *ret_a, int32_t *ret_bt);
enum fdk_dtype vdev_act(enum fdk_dtype w);
size_t vdev_gemm_scratch(const struct fdk_gemm_args *a);
size_t vdev_attention_scratch(struct fdk_ctx *ctx, const struct fdk_attention_args *a);
size_t vdev_sample_scratch(const struct fdk_sample_args *a);
/* Executes CMD_ROW_UPDATE on the virtual devices of both backends. */
void cpu_row_update(const struct fdk_row_update_args *a);
/* Returns -1, or the first row whose tiles do not fit. */
int cpu_att_plan(const struct fdk_att_plan_args *a);
int vdev_row_update(const struct fdk_row_update_args *a, fdk_stream_t st);
int vdev_att_plan_host(struct fdk_ctx *, int dev, const struct fdk_att_plan_args *);
int vdev_att_plan(const struct fdk_att_plan_args *a, fdk_stream_t st);
int vdev_embed(const struct fdk_embed_args *a, fdk_stream_t st);
int vdev_rmsnorm(const struct fdk_rmsnorm_args *a, fdk_stream_t st);
int vdev_gemm(const struct fdk_gemm_args *a, fdk_stream_t st);
int vdev_rope_table(const struct fdk_rope_table_args *a, fdk_stream_t st);
int vdev_qkv(const struct fdk_qkv_args *a, fdk_stream_t st);
int vdev_attention(const struct fdk_attention_args *a, fdk_stream_t st);
int vdev_silu_mul(const struct fdk_silu_mul_args *a, fdk_stream_t st);
int vdev_merge(const struct fdk_merge_args *a, fdk_stream_t st);
int vdev_softcap(const struct fdk_softcap_args *a, fdk_stream_t st);
int vdev_gather(const struct fdk_gather_args *a, fdk_stream_t st);
int vdev_sample(const struct fdk_sample_args *a, fdk_stream_t st);
int vdev_op_takes(struct fdk_ctx *ctx, int dev, const struct fdk_op *op, char *why,
    size_t why_bytes);
int vdev_weight_layout(struct fdk_weight *w);
const char *vdev_layout_name(int32_t layout);
int vdev_weight_pack(const struct fdk_pack_args *a, fdk_stream_t st);
int vdev_group_new(struct fdk_ctx *ctx, const struct fdk_group_args *a,
    struct fdk_group **ret, char *err, size_t err_bytes);
void vdev_group_free(struct fdk_group *g);
uint64_t vdev_group_bytes(struct fdk_ctx *ctx, const struct fdk_group_args *a);
void vdev_group_abort(struct fdk_group *g, int32_t rank);
void vdev_group_ways(struct fdk_group *g, const struct fdk_group_ways *set,
    struct fdk_group_ways *was);
int vdev_all_reduce(const struct fdk_all_reduce_args *a, fdk_stream_t st);
int vdev_all_gather(const struct fdk_all_gather_args *a, fdk_stream_t st);
int vdev_reduce_send(const struct fdk_all_reduce_args *a, fdk_stream_t st);
int vdev_reduce_take(const struct fdk_all_reduce_args *a, fdk_stream_t st);
int vdev_kv_share(const struct fdk_kv_share_args *a, fdk_stream_t st);
int vdev_row_share(const struct fdk_row_share_args *a, fdk_stream_t st);
/* Only for the cpu backend. */
#define CPU_OWN 2 /* columns.c */
extern const struct fdk_own cpu_own[CPU_OWN];
#define CPU_FUSIONS 1
extern const struct fdk_fusion cpu_fusions[CPU_FUSIONS];

/* Members of an ops table that both backends share. */
#define VDEV_OPS \
    .on_host = 1, .close = cpu_ctx_free, .device_info = vdev_device_info, \
    .error_text = vdev_error_text, .probe = vdev_probe, .mem_alloc = vdev_mem_alloc, \
    .mem_free = vdev_mem_free, .host_alloc = vdev_host_alloc, \
    .host_free = vdev_host_free, .mem_reserve = vdev_mem_reserve, \
    .mem_map = vdev_mem_map, .mem_unmap = vdev_mem_unmap, \
    .mem_release = vdev_mem_release, .stream_new = vdev_stream_new, \
    .stream_free = vdev_stream_free, .stream_sync = vdev_stream_sync, \
    .stream_wait = vdev_stream_wait, .stream_delay = vdev_stream_delay, \
    .stream_fail = vdev_stream_fail, .stream_mark = vdev_stream_mark, \
    .event_new = vdev_event_new, .event_free = vdev_event_free, \
    .event_record = vdev_event_record, .event_query = vdev_event_query, \
    .event_sync = vdev_event_sync, .event_wait = vdev_event_wait, \
    .event_ns = vdev_event_ns, .copy = vdev_copy, .copy_peer = vdev_copy_peer, \
    .fill = vdev_fill, .graph_begin = vdev_graph_begin, .graph_end = vdev_graph_end, \
    .graph_launch = vdev_graph_launch, .graph_free = vdev_graph_free, .act = vdev_act, \
    .att_shape = vdev_att_shape, .gemm_scratch = vdev_gemm_scratch, \
    .attention_scratch = vdev_attention_scratch, .sample_scratch = vdev_sample_scratch, \
    .row_update = vdev_row_update, .att_plan = vdev_att_plan, \
    .att_plan_host = vdev_att_plan_host, .embed = vdev_embed, .rmsnorm = vdev_rmsnorm, \
    .op_takes = vdev_op_takes, .weight_layout = vdev_weight_layout, \
    .layout_name = vdev_layout_name, .weight_pack = vdev_weight_pack, .gemm = vdev_gemm, \
    .rope_table = vdev_rope_table, .qkv = vdev_qkv, .attention = vdev_attention, \
    .silu_mul = vdev_silu_mul, .softcap = vdev_softcap, .merge = vdev_merge, \
    .gather = vdev_gather, .sample = vdev_sample, .group_new = vdev_group_new, \
    .group_free = vdev_group_free, .group_bytes = vdev_group_bytes, \
    .group_abort = vdev_group_abort, .group_ways = vdev_group_ways, \
    .all_reduce = vdev_all_reduce, .all_gather = vdev_all_gather, \
    .reduce_send = vdev_reduce_send, .reduce_take = vdev_reduce_take, \
    .kv_share = vdev_kv_share, .row_share = vdev_row_share

#endif
