/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a safetensors file: text checks before the JSON library parses it (so
 * that no small file can make it allocate much), then checks of each tensor and of the
 * layout, in the order of one table.
 */
#include "config.h"

#include "daemon/worker/weights_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text.h"
#include "daemon/worker/model_priv.h"

#define MAX_INT 9007199254740992ll /* 2^53: exact in every reader */

static const struct {
    const char *name;
    enum fdk_dtype dtype;
    uint32_t bits;
} dtypes[] = {
    { "F32", FDK_F32, 32 },
    { "F16", FDK_F16, 16 },
    { "BF16", FDK_BF16, 16 },
    { "F64", FDK_DTYPE__N, 64 },
    { "C64", FDK_DTYPE__N, 64 },
    { "I64", FDK_DTYPE__N, 64 },
    { "U64", FDK_DTYPE__N, 64 },
    { "I32", FDK_DTYPE__N, 32 },
    { "U32", FDK_DTYPE__N, 32 },
    { "I16", FDK_DTYPE__N, 16 },
    { "U16", FDK_DTYPE__N, 16 },
    { "I8", FDK_DTYPE__N, 8 },
    { "U8", FDK_DTYPE__N, 8 },
    { "BOOL", FDK_DTYPE__N, 8 },
    { "F8_E4M3", FDK_F8E4M3, 8 },
    { "F8_E5M2", FDK_DTYPE__N, 8 },
    { "F8_E8M0", FDK_DTYPE__N, 8 },
    { "F6_E2M3", FDK_DTYPE__N, 6 },
    { "F6_E3M2", FDK_DTYPE__N, 6 },
    { "F4", FDK_DTYPE__N, 4 },
};

struct hdr {
    const char *where, *code, *text;
    size_t n;
    uint64_t data_off, data_bytes;
    size_t n_object, max_list; /* counted by check_text */
    json_t *json;
    struct wts_tensor *t;
    size_t n_t;
    char *err;
    size_t err_bytes;
};

__attribute__((format(printf, 2, 3))) static int
refuse(struct hdr *h, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    return mdl_fail(-EINVAL, h->err, h->err_bytes, "%s: %s%s%s", h->code, h->where,
        h->where[0] != '\0' ? ": " : "", line);
}

/* ---- text ---- */

static int
check_utf8(struct hdr *h)
{
    size_t ok = txt_utf8(h->text, h->n);

    return ok == h->n ? 0 : refuse(h, "header byte %zu is not valid UTF-8", ok);
}

/* Outside of strings, only plain decimal numbers are allowed. */
static int
check_char(struct hdr *h, size_t i)
{
    char c = h->text[i];

    if (c == '-')
        return refuse(h, "header byte %zu: a negative number", i);
    if (c == '+' || c == '.')
        return refuse(h, "header byte %zu: a number that is not a plain decimal", i);
    if ((c == 'e' || c == 'E') && h->text[i - 1] >= '0' && h->text[i - 1] <= '9')
        return refuse(h, "header byte %zu: a number that is not a plain decimal", i);
    return 0;
}

static int
check_text(struct hdr *h)
{
    size_t depth = 0, list = 0, i;
    int in_string = 0, in_list = 0;

    if (h->n == 0 || h->text[0] != '{')
        return refuse(h, "the header does not begin with {");
    for (i = 0; i < h->n; i++) {
        char c = h->text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '{' || c == '[') {
            h->n_object += c == '{';
            in_list = c == '[';
            list = 1;
            if (++depth > 3)
                return refuse(h, "header byte %zu: nested deeper than 3", i);
        } else if (c == '}' || c == ']') {
            in_list = 0;
            if (--depth == 0)
                break;
        } else if (c == ',' && in_list) {
            list++;
            h->max_list = list > h->max_list ? list : h->max_list;
        } else if (check_char(h, i) != 0) {
            return -EINVAL;
        }
    }
    if (depth != 0)
        return refuse(h, "the header ends within its JSON");
    for (i++; i < h->n; i++)
        if (h->text[i] != ' ')
            return refuse(h, "header byte %zu: only spaces may follow the JSON", i);
    return 0;
}

static int
check_rank(struct hdr *h)
{
    if (h->max_list > WTS_MAX_DIM)
        return refuse(h, "a list of %zu numbers; a tensor has at most %d dimensions",
            h->max_list, WTS_MAX_DIM);
    return 0;
}

static int
check_count(struct hdr *h)
{
    /* the header itself and __metadata__ are objects, too */
    if (h->n_object > WTS_MAX_TENSOR + 2)
        return refuse(h, "%zu tensors, the limit is %d", h->n_object - 1, WTS_MAX_TENSOR);
    return 0;
}

static int
check_json(struct hdr *h)
{
    json_error_t e;
    char shown[128];

    h->json = json_loadb(h->text, h->n, JSON_REJECT_DUPLICATES, &e);
    if (h->json == NULL) {
        mdl_printable(shown, sizeof(shown), e.text, strlen(e.text));
        return refuse(h, "header byte %d: %s", e.position, shown);
    }
    return 0;
}

/* ---- tensors ---- */

static int
check_meta(struct hdr *h)
{
    json_t *m = json_object_get(h->json, "__metadata__"), *v;
    const char *key;
    size_t bytes = 0;

    if (m == NULL)
        return 0;
    if (!json_is_object(m))
        return refuse(h, "__metadata__ is not an object");
    json_object_foreach(m, key, v) {
        if (!json_is_string(v))
            return refuse(h, "__metadata__ holds something other than strings");
        bytes += strlen(key) + json_string_length(v);
    }
    if (bytes > WTS_MAX_META_BYTES)
        return refuse(h, "__metadata__ has %zu bytes, the limit is %u", bytes,
            WTS_MAX_META_BYTES);
    return 0;
}

static int
check_names(struct hdr *h)
{
    const char *key;
    json_t *v;

    json_object_foreach(h->json, key, v) {
        if (strlen(key) > WTS_MAX_NAME)
            return refuse(h, "a tensor's name has %zu bytes, the limit is %d",
                strlen(key), WTS_MAX_NAME);
    }
    return 0;
}

/* An integer in 0..2^53 - 1, or -1. */
static int64_t
plain(const json_t *v)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= MAX_INT)
        return -1;
    return json_integer_value(v);
}

static int
read_tensor(struct hdr *h, struct wts_tensor *t, const char *shown, const json_t *o)
{
    const json_t *shape = json_object_get(o, "shape"), *dtype = json_object_get(o, "dtype");
    const json_t *off = json_object_get(o, "data_offsets");
    int64_t begin, end;

    if (!json_is_object(o) || !json_is_string(dtype) || !json_is_array(shape) ||
        !json_is_array(off) || json_array_size(off) != 2 || json_object_size(o) != 3)
        return refuse(h, "tensor %s: not {dtype, shape, data_offsets: [begin, end]}", shown);
    begin = plain(json_array_get(off, 0));
    end = plain(json_array_get(off, 1));
    if (begin < 0 || end < 0)
        return refuse(h, "tensor %s: data_offsets are not plain integers below 2^53", shown);
    t->off = (uint64_t)begin;
    /* check_shape finds a negative size */
    t->bytes = (uint64_t)end - (uint64_t)begin;
    t->n_dim = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < t->n_dim; i++) {
        t->shape[i] = plain(json_array_get(shape, (size_t)i));
        if (t->shape[i] < 0)
            return refuse(h, "tensor %s: shape is not of plain integers below 2^53", shown);
    }
    return 0;
}

static int
read_tensors(struct hdr *h)
{
    size_t n = json_object_size(h->json);
    char shown[96];
    const char *key;
    json_t *v;

    h->t = calloc(n > 0 ? n : 1, sizeof(*h->t));
    if (h->t == NULL)
        return mdl_fail(-ENOMEM, h->err, h->err_bytes, "W_IO: no memory for %zu tensors", n);
    json_object_foreach(h->json, key, v) {
        struct wts_tensor *t = &h->t[h->n_t];

        if (strcmp(key, "__metadata__") == 0)
            continue;
        mdl_printable(shown, sizeof(shown), key, strlen(key));
        if (read_tensor(h, t, shown, v) != 0)
            return -EINVAL;
        t->name = strdup(key);
        if (t->name == NULL)
            return mdl_fail(-ENOMEM, h->err, h->err_bytes, "W_IO: no memory for names");
        h->n_t++;
    }
    return 0;
}

static int
check_shape(struct hdr *h, struct wts_tensor *t, const char *shown, const char *dtype)
{
    uint64_t bits = 0, end;
    size_t k = 0;

    while (k < sizeof(dtypes) / sizeof(dtypes[0]) && strcmp(dtype, dtypes[k].name) != 0)
        k++;
    if (k == sizeof(dtypes) / sizeof(dtypes[0])) {
        char d[32];

        mdl_printable(d, sizeof(d), dtype, strlen(dtype));
        return refuse(h, "tensor %s: dtype %s is not one of the format's", shown, d);
    }
    t->dtype = dtypes[k].dtype;
    t->dtype_name = dtypes[k].name;
    bits = dtypes[k].bits;
    for (int32_t i = 0; i < t->n_dim; i++)
        if (__builtin_mul_overflow(bits, (uint64_t)t->shape[i], &bits))
            return refuse(h, "tensor %s: its size overflows", shown);
    if (bits % 8 != 0)
        return refuse(h, "tensor %s: %llu bits are no whole bytes", shown,
            (unsigned long long)bits);
    if (t->bytes != bits / 8)
        return refuse(h, "tensor %s: dtype and shape give %llu bytes, data_offsets %lld",
            shown, (unsigned long long)(bits / 8), (long long)t->bytes);
    if (__builtin_add_overflow(t->off, t->bytes, &end) || end > h->data_bytes)
        return refuse(h, "tensor %s: its end is beyond the %llu bytes of data", shown,
            (unsigned long long)h->data_bytes);
    return 0;
}

static int
check_shapes(struct hdr *h)
{
    char shown[96];

    for (size_t i = 0; i < h->n_t; i++) {
        struct wts_tensor *t = &h->t[i];
        const json_t *o = json_object_get(h->json, t->name);

        mdl_printable(shown, sizeof(shown), t->name, strlen(t->name));
        if (check_shape(h, t, shown, json_string_value(json_object_get(o, "dtype"))) != 0)
            return -EINVAL;
    }
    return 0;
}

static int
by_offset(const void *a, const void *b)
{
    const struct wts_tensor *x = a, *y = b;

    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int
check_layout(struct hdr *h)
{
    uint64_t at = 0;
    char shown[96];

    qsort(h->t, h->n_t, sizeof(*h->t), by_offset);
    for (size_t i = 0; i < h->n_t; i++) {
        const struct wts_tensor *t = &h->t[i];

        mdl_printable(shown, sizeof(shown), t->name, strlen(t->name));
        if (t->off < at)
            return refuse(h,
                "tensor %s overlaps the one before it: begins at %llu, not %llu", shown,
                (unsigned long long)t->off, (unsigned long long)at);
        if (t->off > at)
            return refuse(h, "hole of %llu bytes before tensor %s",
                (unsigned long long)(t->off - at), shown);
        at = t->off + t->bytes;
    }
    if (at != h->data_bytes)
        return refuse(h, "the tensors end at byte %llu of %llu bytes of data",
            (unsigned long long)at, (unsigned long long)h->data_bytes);
    for (size_t i = 0; i < h->n_t; i++)
        h->t[i].off += h->data_off;
    return 0;
}

static const struct {
    const char *code;
    int (*check)(struct hdr *h);
} checks[] = {
    { "W_JSON", check_utf8 },
    { "W_JSON", check_text },
    { "W_SHAPE", check_rank },
    { "W_LIMIT", check_count },
    { "W_JSON", check_json },
    { "W_LIMIT", check_meta },
    { "W_LIMIT", check_names },
    { "W_JSON", read_tensors },
    { "W_SHAPE", check_shapes },
    { "W_LAYOUT", check_layout },
};

int
wts_header_read(const char *where, const char *json, size_t n, uint64_t data_off,
    uint64_t data_bytes, struct wts_tensor **ret, size_t *ret_n, char *err,
    size_t err_bytes)
{
    struct hdr h = { .where = where,
        .text = json,
        .n = n,
        .data_off = data_off,
        .data_bytes = data_bytes,
        .err = err,
        .err_bytes = err_bytes };
    int rc = 0;

    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && rc == 0; i++) {
        h.code = checks[i].code;
        rc = checks[i].check(&h);
    }
    json_decref(h.json);
    if (rc != 0) {
        wts_tensors_free(h.t, h.n_t);
        return rc;
    }
    *ret = h.t;
    *ret_n = h.n_t;
    return 0;
}

int
wts_header_parse(const char *json, size_t n, uint64_t data_bytes, struct wts_tensor **ret,
    size_t *ret_n, char *err, size_t err_bytes)
{
    return wts_header_read("", json, n, 8 + (uint64_t)n, data_bytes, ret, ret_n, err,
        err_bytes);
}

void
wts_tensors_free(struct wts_tensor *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(t[i].name);
    free(t);
}
