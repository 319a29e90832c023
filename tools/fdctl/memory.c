/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

#include <string.h>

/* One place's buffers, from the row of sums of add_places(). */
static void
show_place(const json_t *o, const json_t *place)
{
    const json_t *rows = json_object_get(o, "rows");
    const char *where = fct_str(place, "where");
    char a[24], b[24], c[24];
    size_t i;

    printf("%s\n  %-24s %10s %10s %10s %7s  %s\n", fct_str(place, "place"), "buffer",
        "planned", "in use", "free", "share", "how");
    for (i = 0; i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        long long all = fct_num(place, "bytes");

        if (strcmp(fct_str(r, "where"), where) != 0)
            continue;
        fct_bytes((double)(fct_num(r, "bytes")), a);
        fct_bytes((double)(fct_num(r, "in_use")), b);
        fct_bytes((double)(fct_num(r, "bytes") - fct_num(r, "in_use")), c);
        printf("  %-24s %10s %10s %10s %5.1f %%  %s\n", fct_str(r, "name"), a, b, c,
            all > 0 ? 100.0 * (double)fct_num(r, "bytes") / (double)all : 0.0,
            fct_str(r, "how"));
    }
    fct_bytes((double)(fct_num(place, "bytes")), a);
    fct_bytes((double)(fct_num(place, "in_use")), b);
    fct_bytes((double)(fct_num(place, "free")), c);
    printf("  %-24s %10s %10s %10s\n", "sum", a, b, c);
    if (json_object_get(place, "headroom") != NULL) {
        fct_bytes((double)(fct_num(place, "limit")), a);
        fct_bytes((double)(fct_num(place, "headroom")), b);
        printf("  %-24s %10s, %s beyond the plan\n", "may be taken", a, b);
    }
    putchar('\n');
}

static void
show_blocks(const json_t *b, const char *what, const char *key)
{
    char size[24];

    fct_bytes((double)(fct_num(b, key) * fct_num(b, "block_bytes")), size);
    printf("  %-24s %10lld %10s\n", what, fct_num(b, key), size);
}

static void
show_memory(const json_t *o)
{
    const json_t *b = json_object_get(o, "blocks");
    const json_t *places = json_object_get(o, "places");

    for (size_t i = 0; i < json_array_size(places); i++)
        show_place(o, json_array_get(places, i));
    printf("KV cache, %lld blocks of %lld tokens, %s\n  %-24s %10s %10s\n",
        fct_num(b, "total"), fct_num(b, "block_size"), fct_str(b, "dtype"), "", "blocks",
        "bytes");
    show_blocks(b, "used", "used");
    show_blocks(b, "cached", "cached");
    show_blocks(b, "free", "free");
    show_blocks(b, "sum", "total");
    if (fct_num(b, "host_total") != 0) {
        show_blocks(b, "used on host", "host_used");
        show_blocks(b, "sum on host", "host_total");
    }
    printf("holds %lld tokens: %lld requests of max_model_len %lld at a time\n",
        fct_num(o, "tokens"), fct_num(o, "concurrency"), fct_num(o, "max_model_len"));
}

/* Sums per place, computed from the rows: "places". */
static void
add_places(json_t *o)
{
    static const struct {
        const char *place, *where;
    } at[] = { { "device 0", "device" }, { "host", "host" } };
    const json_t *rows = json_object_get(o, "rows");
    json_t *places = json_array();

    for (size_t p = 0; p < 2; p++) {
        long long bytes = 0, in_use = 0;
        json_t *place;

        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *r = json_array_get(rows, i);

            if (strcmp(fct_str(r, "where"), at[p].where) == 0) {
                bytes += fct_num(r, "bytes");
                in_use += fct_num(r, "in_use");
            }
        }
        place = json_pack("{s:s,s:s,s:I,s:I,s:I}", "place", at[p].place, "where",
            at[p].where, "bytes", (json_int_t)bytes, "in_use", (json_int_t)in_use, "free",
            (json_int_t)(bytes - in_use));
        if (p == 0) {
            long long limit = fct_num(o, "limit_bytes");

            json_object_set_new(place, "limit", json_integer(limit));
            json_object_set_new(place, "headroom",
                json_integer(limit > bytes ? limit - bytes : 0));
        }
        json_array_append_new(places, place);
    }
    json_object_set_new(o, "places", places);
}

const struct fct_line fct_line_memory = { .usage = "fdctl memory [--json]",
    .about =
        "Every buffer of the worker by where it is: bytes planned, in use and free, "
        "and its\nshare of the place; the blocks of the KV cache; what a device may give "
        "beyond the plan.",
    .opts = { fct_json_opts },
    .command = "memory",
    .hint = FCT_HINT_USAGE,
    .show = show_memory,
    .prepare = add_places };
