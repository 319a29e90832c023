/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/capture.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/obj.h"

/* The size after n in the default list. */
static int32_t
cap_next(int32_t n)
{
    int32_t p = 1024;

    if (n < 4)
        return n * 2;
    if (n < 8)
        return 8;
    if (n < 128)
        return n + 8;
    if (n < 256)
        return n + 16;
    if (n < 1024)
        return n + 32;
    while (p * 2 <= n)
        p *= 2;
    return n + p / 8;
}

void
cap_default(int32_t max, struct cap *ret)
{
    ASSERT(max >= 1 && max <= CAP_MAX_TOKENS);
    ret->n = 0;
    for (int32_t n = 1; n < max; n = cap_next(n))
        ret->size[ret->n++] = n;
    ret->size[ret->n++] = max;
}

static int
cap_compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static int
cap_number(const char **at, int32_t max, int32_t *ret, char *err, size_t err_bytes)
{
    const char *p = *at;
    size_t word = strcspn(p, ", \t]");
    char *end;
    intmax_t v;

    errno = 0;
    v = strtoimax(p, &end, 10);
    if (end != p + word || !isdigit((unsigned char)*p)) {
        (void)snprintf(err, err_bytes, "capture size \"%.*s\" is not a number",
            (int)(word < 40 ? word : 40), p);
        return -EINVAL;
    }
    if (errno != 0 || v < 1 || v > max) {
        (void)snprintf(err, err_bytes,
            "capture size %.*s is out of range: 1 to %d, the "
            "smaller of graph.prefill_max_tokens and sched.max_num_batched_tokens",
            (int)(word < 40 ? word : 40), p, max);
        return -EINVAL;
    }
    *at = end;
    *ret = (int32_t)v;
    return 0;
}

static int
cap_numbers(const char *p, int32_t max, struct cap *c, char *err, size_t err_bytes)
{
    const char *sep = ", \t";
    int bracket;

    p += strspn(p, " \t");
    bracket = *p == '[';
    p += bracket;
    for (p += strspn(p, sep); *p != '\0' && *p != ']'; p += strspn(p, sep)) {
        int rc;

        if (c->n == CAP_MAX) {
            (void)snprintf(err, err_bytes, "more than %d capture sizes", CAP_MAX);
            return -EINVAL;
        }
        rc = cap_number(&p, max, &c->size[c->n], err, err_bytes);
        if (rc != 0)
            return rc;
        c->n++;
    }
    if ((*p == ']') != bracket || (bracket && p[1 + strspn(p + 1, " \t")] != '\0')) {
        (void)snprintf(err, err_bytes, "capture sizes: brackets do not match");
        return -EINVAL;
    }
    return 0;
}

int
cap_parse(const char *text, int32_t max, struct cap *ret, char *err, size_t err_bytes)
{
    struct cap c = { .n = 0 };
    int32_t n = 0;
    int rc = cap_numbers(text, max, &c, err, err_bytes);

    if (rc != 0)
        return rc;
    if (c.n == 0) {
        (void)snprintf(err, err_bytes,
            "the list of capture sizes is empty; name sizes such "
            "as 1,2,4,8, or leave graph.capture_sizes unset for the default list, or set "
            "graph.use_cudagraph to no");
        return -EINVAL;
    }
    qsort(c.size, (size_t)c.n, sizeof(c.size[0]), cap_compare);
    for (int32_t i = 0; i < c.n; i++)
        if (i == 0 || c.size[i] != c.size[i - 1])
            c.size[n++] = c.size[i];
    c.n = n;
    *ret = c;
    return 0;
}

int32_t
cap_map(const struct cap *c, int32_t n)
{
    int32_t lo = 0, hi = c->n;

    if (n < 1)
        return 0;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;

        if (c->size[mid] < n)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->n ? c->size[lo] : 0;
}

int
cap_cuts(const struct cap *c, const int32_t *most, struct cap_cut *ret)
{
    for (int32_t i = 1; i < c->n; i++) {
        int32_t end = most[i - 1];

        if (end <= c->size[i - 1] || end >= c->size[i])
            continue;
        *ret = (struct cap_cut){ c->size[i - 1] + 1, end, c->size[i] };
        return 1;
    }
    return 0;
}
