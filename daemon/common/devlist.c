/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/devlist.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HEX_CHARS    36 /* characters of a full UUID, dashes included */
#define PREFIX_CHARS 4  /* "GPU-", "MIG-" */

__attribute__((format(printf, 3, 4))) static int
refuse(char *err, size_t err_bytes, const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(err, err_bytes, "device.list: ");

    va_start(ap, fmt);
    if (n >= 0 && (size_t)n < err_bytes)
        (void)vsnprintf(err + n, err_bytes - (size_t)n, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

/* A number of at most 4 digits, or -1. */
static int32_t
number(const char *s)
{
    int32_t v = 0;
    size_t n = strspn(s, "0123456789");

    if (n == 0 || n > 4 || s[n] != '\0')
        return -1;
    for (; *s != '\0'; s++)
        v = v * 10 + (*s - '0');
    return v;
}

static int
is_uuid(const char *s)
{
    return strncmp(s, "GPU-", PREFIX_CHARS) == 0 || strncmp(s, "MIG-", PREFIX_CHARS) == 0;
}

static int
parse_uuid(const char *entry, const char *uuid, struct dvl_dev *d, char *err,
    size_t err_bytes)
{
    const char *hex = uuid + PREFIX_CHARS;
    size_t digits = 0, i;

    for (i = 0; hex[i] != '\0'; i++) {
        int is_dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (i == HEX_CHARS)
            return refuse(err, err_bytes,
                "\"%s\": a UUID has %d characters after %.4s, "
                "this one has %zu",
                entry, HEX_CHARS, uuid, strlen(hex));
        if (is_dash ? hex[i] != '-' : !isxdigit((unsigned char)hex[i]))
            return refuse(err, err_bytes,
                "\"%s\": '%c' is no %s of a UUID; write its "
                "start as nvidia-smi -L prints it (GPU-1a2b3c4d-5e6f-...)",
                entry, hex[i], is_dash ? "dash" : "hex digit");
        digits += !is_dash;
        d->uuid[PREFIX_CHARS + i] = (char)tolower((unsigned char)hex[i]);
    }
    if (digits < DVL_UUID_LEAST)
        return refuse(err, err_bytes,
            "\"%s\": a UUID of %zu hex digits is too short; "
            "write at least %d",
            entry, digits, DVL_UUID_LEAST);
    memcpy(d->uuid, uuid, PREFIX_CHARS);
    d->uuid[PREFIX_CHARS + i] = '\0';
    d->idx = -1;
    return 0;
}

static int
parse_cuda(const char *entry, const char *what, struct dvl *l, char *err, size_t err_bytes)
{
    struct dvl_dev d = { .idx = number(what) };
    int rc = 0;

    if (strcmp(what, "*") == 0) {
        if (l->all || l->n > 0)
            return refuse(err, err_bytes,
                "\"%s\" stands for all devices: remove the other "
                "entries",
                entry);
        l->all = 1;
        return 0;
    }
    if (is_uuid(what))
        rc = parse_uuid(entry, what, &d, err, err_bytes);
    else if (d.idx < 0 && (*what == '\0' || strspn(what, "0123456789") != strlen(what)))
        rc = refuse(err, err_bytes,
            "\"%s\": \"%s\" is neither a number, nor the start of a "
            "UUID (GPU-1a2b3c), nor *",
            entry, what);
    else if (d.idx < 0 || d.idx >= DVL_MAX)
        rc = refuse(err, err_bytes,
            "\"%s\": the number is too large; devices are counted "
            "from 0 to %d",
            entry, DVL_MAX - 1);
    if (rc != 0)
        return rc;
    if (l->all)
        return refuse(err, err_bytes,
            "\"%s\": cuda:* lists all devices already: remove one of the two", entry);
    for (int32_t i = 0; i < l->n; i++) {
        const struct dvl_dev *o = &l->dev[i];

        if (d.idx >= 0 ? o->idx == d.idx
                       : o->idx < 0 &&
                    (dvl_uuid_is(d.uuid, o->uuid) || dvl_uuid_is(o->uuid, d.uuid)))
            return refuse(err, err_bytes,
                "\"%s\": the same device is listed before; "
                "remove one of them",
                entry);
    }
    /* All entries differ, so more indices than this cannot be valid. */
    if (l->n == DVL_MAX)
        return refuse(err, err_bytes, "\"%s\": more than %d devices", entry, DVL_MAX);
    l->dev[l->n++] = d;
    return 0;
}

static int
parse_cpu(const char *entry, const char *what, struct dvl *l, char *err, size_t err_bytes)
{
    int32_t n = number(what);

    if (n < 1 || n > DVL_MAX)
        return refuse(err, err_bytes,
            "\"%s\": the number after cpu: counts virtual devices, "
            "1 to %d",
            entry, DVL_MAX);
    if (l->n > 0)
        return refuse(err, err_bytes,
            "\"%s\": cpu is listed twice; write one entry with the "
            "sum",
            entry);
    for (l->n = 0; l->n < n; l->n++)
        l->dev[l->n] = (struct dvl_dev){ .idx = l->n };
    return 0;
}

static int
parse_entry(const char *entry, struct dvl *l, char *err, size_t err_bytes)
{
    const char *colon = strchr(entry, ':');
    size_t n = colon != NULL ? (size_t)(colon - entry) : strlen(entry);
    enum dvl_kind kind = n == 4 && memcmp(entry, "cuda", 4) == 0 ? DVL_CUDA
        : n == 3 && memcmp(entry, "cpu", 3) == 0
        ? DVL_CPU
        : DVL_NONE;
    const char *what = colon != NULL ? colon + 1 : NULL;

    if (n == 0 && colon == NULL)
        return refuse(err, err_bytes, "there is an empty entry; remove a comma");
    if (colon == NULL && is_uuid(entry)) {
        kind = DVL_CUDA;
        what = entry;
    }
    if (number(entry) >= 0)
        return refuse(err, err_bytes, "\"%s\" says no kind of device; write cuda:%d",
            entry, (int)number(entry));
    if (kind == DVL_NONE)
        return refuse(err, err_bytes,
            "\"%s\": \"%.*s\" is no kind of device; write cuda:0 "
            "or cpu:1",
            entry, (int)n, entry);
    if (what == NULL)
        return refuse(err, err_bytes, "\"%s\" says no device; write %s", entry,
            kind == DVL_CUDA ? "cuda:0" : "cpu:1");
    if (l->kind != DVL_NONE && l->kind != kind)
        return refuse(err, err_bytes,
            "\"%s\" is of another kind than the entries before; "
            "all are cuda or all are cpu",
            entry);
    l->kind = kind;
    return kind == DVL_CUDA ? parse_cuda(entry, what, l, err, err_bytes)
                            : parse_cpu(entry, what, l, err, err_bytes);
}

int
dvl_parse(const char *list, struct dvl *ret, char *err, size_t err_bytes)
{
    struct dvl l = { .kind = DVL_NONE };
    const char *p = list;
    char entry[64];
    size_t n, left;
    int rc;

    if (list[strspn(list, " \t")] == '\0') {
        *ret = l;
        return 0;
    }
    for (;;) {
        p += strspn(p, " \t");
        n = left = strcspn(p, ",");
        while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
            n--;
        if (n >= sizeof(entry))
            return refuse(err, err_bytes,
                "\"%.*s...\" is longer than a device's name can "
                "be; write cuda:0",
                20, p);
        memcpy(entry, p, n);
        entry[n] = '\0';
        rc = parse_entry(entry, &l, err, err_bytes);
        if (rc != 0)
            return rc;
        p += left;
        if (*p == '\0')
            break;
        p++;
    }
    *ret = l;
    return 0;
}

/* Does a kind of device fit the backend? The null backend's devices are virtual, too. */
static int
fits(enum dvl_kind kind, enum par_device_backend backend)
{
    return backend == PAR_DEVICE_BACKEND_AUTO ||
        (kind == DVL_CUDA) == (backend == PAR_DEVICE_BACKEND_CUDA);
}

/* The text for the parameters that set how many devices a group has. */
static const char *
each_of(int64_t n_rank, int64_t n_copy, char ret[128])
{
    if (n_copy == 1)
        (void)snprintf(ret, 128, "parallel.tensor_parallel_size = %lld", (long long)n_rank);
    else if (n_rank == 1)
        (void)snprintf(ret, 128, "parallel.prefill_context_parallel_size = %lld",
            (long long)n_copy);
    else
        (void)snprintf(ret, 128,
            "parallel.tensor_parallel_size = %lld times "
            "parallel.prefill_context_parallel_size = %lld",
            (long long)n_rank, (long long)n_copy);
    return ret;
}

/* The error for a wrong number of devices when there is one group. */
static int
wrong_of_one(const char *list, int64_t n, int64_t n_rank, int64_t n_copy, char *err,
    size_t err_bytes)
{
    int64_t want = n_rank * n_copy;
    char each[128];

    (void)each_of(n_rank, n_copy, each);
    if (n == 0)
        return refuse(err, err_bytes,
            "it is empty, and %s needs %lld devices; list them (cuda:0,cuda:1)", each,
            (long long)want);
    if (want == 1)
        return refuse(err, err_bytes,
            "\"%s\" has %lld devices, and %s uses one; name "
            "one, or set parallel.tensor_parallel_size or parallel.data_parallel_size = %lld",
            list, (long long)n, each, (long long)n);
    return refuse(err, err_bytes, "\"%s\" has %lld device%s, and %s uses %lld; %s %lld",
        list, (long long)n, n == 1 ? "" : "s", each, (long long)want,
        n > want ? "remove" : "add", (long long)(n > want ? n - want : want - n));
}

int
dvl_check_sizes(const char *list, int64_t n, int64_t n_group, int64_t n_rank,
    int64_t n_copy, char *err, size_t err_bytes)
{
    int64_t own = n_rank * n_copy;
    char each[64] = "";

    if (n == n_group * own)
        return 0;
    if (n_group == 1)
        return wrong_of_one(list, n, n_rank, n_copy, err, err_bytes);
    if (own > 1)
        (void)snprintf(each, sizeof(each), ", %lld for each", (long long)own);
    if (n == 0)
        return refuse(err, err_bytes,
            "it is empty, and parallel.data_parallel_size = %lld takes %lld devices%s; list "
            "them (cuda:0,cuda:1)",
            (long long)n_group, (long long)(n_group * own), each);
    return refuse(err, err_bytes,
        "\"%s\" has %lld device%s, and parallel.data_parallel_size = %lld takes %lld%s; list "
        "as many",
        list, (long long)n, n == 1 ? "" : "s", (long long)n_group,
        (long long)(n_group * own), each);
}

int
dvl_check(const char *list, enum par_device_backend backend, int64_t test_entry,
    int64_t n_group, int64_t n_rank, int64_t n_copy, char *err, size_t err_bytes)
{
    int64_t all = n_group * n_rank * n_copy;
    struct dvl l = { .kind = DVL_NONE };
    int rc = dvl_parse(list, &l, err, err_bytes);

    if (rc != 0)
        return rc;
    if (l.kind != DVL_NONE && !fits(l.kind, backend))
        return refuse(err, err_bytes,
            "\"%s\" does not fit device.backend = %s; clear it, "
            "or set device.backend to %s",
            list, par_device_backend_words[backend],
            par_device_backend_words[l.kind == DVL_CUDA ? PAR_DEVICE_BACKEND_CUDA
                                                        : PAR_DEVICE_BACKEND_CPU]);
    if (test_entry >= 0 && !l.all && test_entry >= l.n)
        return refuse(err, err_bytes,
            "\"%s\" has %d entries, counted from 0, and device.test_entry = %lld is none "
            "of them",
            list, (int)l.n, (long long)test_entry);
    if (test_entry >= 0 && all > 1)
        return refuse(err, err_bytes,
            "device.test_entry = %lld has one device compute, and parallel.%s = %lld several; "
            "leave one of them out",
            (long long)test_entry,
            n_rank > 1       ? "tensor_parallel_size"
                : n_copy > 1 ? "prefill_context_parallel_size"
                             : "data_parallel_size",
            (long long)(n_rank > 1 ? n_rank
                    : n_copy > 1   ? n_copy
                                   : n_group));
    if (test_entry >= 0 || l.all || (l.n == 0 && all == 1))
        return 0;
    return dvl_check_sizes(list, l.n, n_group, n_rank, n_copy, err, err_bytes);
}

int
dvl_uuid_is(const char *uuid, const char *start)
{
    return strlen(uuid) > PREFIX_CHARS && strlen(start) > PREFIX_CHARS &&
        strncasecmp(uuid + PREFIX_CHARS, start + PREFIX_CHARS,
            strlen(start) - PREFIX_CHARS) == 0;
}
