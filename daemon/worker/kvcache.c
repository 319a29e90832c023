#include "config.h"

#include "daemon/worker/kvcache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/mem.h"
#include "daemon/common/obj.h"

#define KV_MIN_LEN 16
#define KV_DEFAULT_BYTES (4ull << 30)

int32_t
kv_owner(int32_t pos)
{
    (void)pos;
    return 0;
}

int32_t
kv_slot(const struct kv *kv, int32_t slot, int32_t pos)
{
    int32_t b = pos / kv->block_size;

    DIAG(slot >= 0 && slot < kv->n_slot && b < kv->n_held[slot]);
    return kv->table[(size_t)slot * (size_t)kv->stride + (size_t)b] * kv->block_size +
        pos % kv->block_size;
}

struct kv *
kv_new(int32_t n_block, int32_t block_size, int32_t n_slot, int32_t max_len)
{
    struct kv *kv;

    ASSERT(n_block > 0 && block_size > 0 && n_slot > 0 && max_len > 0);
    OBJ_ALLOC(kv, KV_MAGIC);
    if (kv == NULL)
        return NULL;
    kv->n_block = n_block + 1;
    kv->block_size = block_size;
    kv->n_slot = n_slot;
    kv->stride = (int32_t)(((int64_t)max_len + block_size - 1) / block_size);
    kv->table = mem_array((size_t)n_slot * (size_t)kv->stride, sizeof(int32_t));
    kv->n_held = mem_array((size_t)n_slot, sizeof(int32_t));
    kv->ref = mem_array((size_t)kv->n_block, sizeof(int32_t));
    kv->next = mem_array((size_t)kv->n_block, sizeof(int32_t));
    kv->epoch = mem_array((size_t)kv->n_block, sizeof(uint64_t));
    if (kv->table == NULL || kv->n_held == NULL || kv->ref == NULL || kv->next == NULL ||
        kv->epoch == NULL)
        return kv_free(kv);
    kv->defer_head = kv->defer_tail = kv->free_head = -1;
    for (int32_t b = kv->n_block - 1; b > 0; b--) {
        kv->next[b] = kv->free_head;
        kv->free_head = b;
    }
    kv->n_free = n_block;
    return kv;
}

struct kv *
kv_free(struct kv *kv)
{
    if (kv == NULL)
        return NULL;
    free(kv->table);
    free(kv->n_held);
    free(kv->ref);
    free(kv->next);
    free(kv->epoch);
    OBJ_FREE(kv, KV_MAGIC);
    return NULL;
}

int32_t
kv_blocks(const struct kv *kv, int32_t n_tok)
{
    return (int32_t)(((int64_t)n_tok + kv->block_size - 1) / kv->block_size);
}

int
kv_grow(struct kv *kv, int32_t slot, int32_t n_tok)
{
    int32_t want = kv_blocks(kv, n_tok), have, *t;

    ASSERT(slot >= 0 && slot < kv->n_slot && want <= kv->stride);
    have = kv->n_held[slot];
    if (want <= have)
        return 0;
    if (want - have > kv->n_free)
        return -ENOSPC;
    t = kv->table + (size_t)slot * (size_t)kv->stride;
    for (; have < want; have++) {
        int32_t b = kv->free_head;

        kv->free_head = kv->next[b];
        kv->ref[b] = 1;
        t[have] = b;
        kv->n_free--;
    }
    kv->n_held[slot] = have;
    return 0;
}

static void
kv_unref(struct kv *kv, int32_t b, uint64_t last_epoch)
{
    ASSERT(b > 0 && b < kv->n_block && kv->ref[b] > 0);
    if (--kv->ref[b] > 0)
        return;
    if (last_epoch <= kv->collected) {
        kv->next[b] = kv->free_head;
        kv->free_head = b;
        kv->n_free++;
        return;
    }
    ASSERT(kv->defer_tail < 0 || kv->epoch[kv->defer_tail] <= last_epoch);
    kv->epoch[b] = last_epoch;
    kv->next[b] = -1;
    if (kv->defer_tail < 0)
        kv->defer_head = b;
    else
        kv->next[kv->defer_tail] = b;
    kv->defer_tail = b;
    kv->n_deferred++;
}

void
kv_drop(struct kv *kv, int32_t slot, uint64_t last_epoch)
{
    int32_t *t = kv->table + (size_t)slot * (size_t)kv->stride;

    ASSERT(slot >= 0 && slot < kv->n_slot);
    for (int32_t i = kv->n_held[slot] - 1; i >= 0; i--) {
        kv_unref(kv, t[i], last_epoch);
        t[i] = 0;
    }
    kv->n_held[slot] = 0;
}

void
kv_collect(struct kv *kv, uint64_t epoch)
{
    ASSERT(epoch >= kv->collected);
    kv->collected = epoch;
    while (kv->defer_head >= 0 && kv->epoch[kv->defer_head] <= epoch) {
        int32_t b = kv->defer_head;

        kv->defer_head = kv->next[b];
        if (kv->defer_head < 0)
            kv->defer_tail = -1;
        kv->next[b] = kv->free_head;
        kv->free_head = b;
        kv->n_deferred--;
        kv->n_free++;
    }
}

void
kv_check(const struct kv *kv)
{
    int32_t n_free = 0, n_defer = 0, n_ref = 0;
    int64_t refs = 0, held = 0;
    uint64_t last = kv->collected;

    OBJ_CHECK(kv, KV_MAGIC);
    for (int32_t b = kv->free_head; b >= 0; b = kv->next[b], n_free++)
        ASSERT(b > 0 && b < kv->n_block && kv->ref[b] == 0 && n_free < kv->n_block);
    for (int32_t b = kv->defer_head; b >= 0; b = kv->next[b], n_defer++) {
        ASSERT(b > 0 && b < kv->n_block && kv->ref[b] == 0 && n_defer < kv->n_block);
        ASSERT(kv->epoch[b] > kv->collected && kv->epoch[b] >= last);
        last = kv->epoch[b];
        ASSERT(kv->next[b] >= 0 || b == kv->defer_tail);
    }
    for (int32_t b = 1; b < kv->n_block; b++) {
        ASSERT(kv->ref[b] >= 0);
        n_ref += kv->ref[b] > 0;
        refs += kv->ref[b];
    }
    ASSERT(kv->ref[0] == 0);
    for (int32_t s = 0; s < kv->n_slot; s++) {
        const int32_t *t = kv->table + (size_t)s * (size_t)kv->stride;

        ASSERT(kv->n_held[s] >= 0 && kv->n_held[s] <= kv->stride);
        for (int32_t i = 0; i < kv->n_held[s]; i++)
            ASSERT(t[i] > 0 && t[i] < kv->n_block && kv->ref[t[i]] > 0);
        held += kv->n_held[s];
    }
    ASSERT(n_free == kv->n_free && n_defer == kv->n_deferred && refs == held);
    ASSERT(1 + n_free + n_defer + n_ref == kv->n_block);
}

int
kv_layout(int32_t n_layer, int32_t n_kv_head, int32_t head_dim, int32_t block_size,
    enum fdk_dtype dtype, struct fdk_kv *ret)
{
    uint64_t v = (uint64_t)fdk_dtype_bytes(dtype), layer, block;

    if (mem_mul_u64(v, (uint64_t)n_kv_head, &v) != 0 ||
        mem_mul_u64(v, (uint64_t)head_dim, &v) != 0 ||
        mem_mul_u64(v, (uint64_t)block_size, &v) != 0 || mem_mul_u64(v, 2, &layer) != 0 ||
        mem_mul_u64(layer, (uint64_t)n_layer, &block) != 0)
        return -EOVERFLOW;
    *ret = (struct fdk_kv) {
        .block_bytes = block, .layer_bytes = layer, .v_bytes = v, .block_size = block_size,
        .n_kv_head = n_kv_head, .head_dim = head_dim, .dtype = dtype
    };
    return 0;
}

/* Blocks by memory alone, the dummy not counted. */
static int64_t
kv_plan_blocks(const struct kv_plan_args *a, int64_t len_blocks)
{
    uint64_t bytes = a->memory_bytes;
    int64_t n, most = len_blocks * a->max_num_seqs;

    if (a->num_blocks > 0)
        return a->num_blocks;
    if (bytes == 0) {
        bytes = a->mem_free / 4;
        if (bytes > KV_DEFAULT_BYTES)
            bytes = KV_DEFAULT_BYTES;
    }
    n = (int64_t)(bytes / a->kv.block_bytes) - 1;
    if (n < 0)
        n = 0;
    return a->memory_bytes == 0 && n > most ? most : n;
}

int
kv_plan(const struct kv_plan_args *a, int32_t *ret_blocks, int32_t *ret_len, char *err,
    size_t err_bytes)
{
    int64_t B = a->kv.block_size, len = a->want_len, n, fits;

    if (len > a->model_len) {
        (void)snprintf(err, err_bytes, "model.max_model_len %" PRId64 " exceeds the model's "
            "own limit %d; set model.max_model_len to at most %d, or to 0", len,
            a->model_len, a->model_len);
        return -EINVAL;
    }
    if (len == 0)
        len = a->model_len;
    n = kv_plan_blocks(a, (len + B - 1) / B);
    /* block ids and KV slots are int32 */
    if (n > INT32_MAX / B - 1)
        n = INT32_MAX / B - 1;
    fits = n * B;
    if (a->want_len == 0 && fits < len)
        len = fits;
    if (len < KV_MIN_LEN && len < a->model_len) {
        (void)snprintf(err, err_bytes, "the KV cache has %" PRId64 " blocks of %" PRId64
            " tokens, too few for any request; raise kv.memory_bytes (a block is %" PRIu64
            " bytes) or kv.num_blocks", n, B, a->kv.block_bytes);
        return -ENOSPC;
    }
    if ((len + B - 1) / B > n) {
        (void)snprintf(err, err_bytes, "model.max_model_len %" PRId64 " needs %" PRId64
            " KV blocks but the KV cache has %" PRId64 "; the largest model.max_model_len "
            "that fits is %" PRId64 ", or raise kv.memory_bytes to %" PRIu64, len,
            (len + B - 1) / B, n, fits, ((uint64_t)((len + B - 1) / B) + 1) *
            a->kv.block_bytes);
        return -ENOSPC;
    }
    *ret_blocks = (int32_t)n;
    *ret_len = (int32_t)len;
    return 0;
}
