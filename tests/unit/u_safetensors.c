/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/worker/weights.h"

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape \
    "],\"data_offsets\":[" begin "," end "]}"

/* Returns rc; err is filled on failure. */
static int
parse_n(const char *text, size_t n, uint64_t data, char *err, size_t err_bytes)
{
    struct wts_tensor *t = NULL;
    size_t n_t = 0;
    int rc;

    /* A copy of exact size, so that ASan detects a read past its end. */
    char *p = malloc(n + 1 > 1 ? n : 1);

    assert_non_null(p);
    memcpy(p, text, n);
    err[0] = '\0';
    rc = wts_header_parse(p, n, data, &t, &n_t, err, err_bytes);
    free(p);
    if (rc == 0)
        wts_tensors_free(t, n_t);
    else
        assert_null(t);
    return rc;
}

static void
refused(const char *text, uint64_t data, const char *code, const char *part)
{
    char err[512];
    int rc = parse_n(text, strlen(text), data, err, sizeof(err));

    if (rc != -EINVAL || strncmp(err, code, strlen(code)) != 0 ||
        err[strlen(code)] != ':' || strstr(err, part) == NULL)
        fail_msg("%.80s: rc %d, '%s'; expected %s and '%s'", text, rc, err, code, part);
}

static void
good(void **state)
{
    static const char text[] = "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "F16", "3",
        "8", "14") "," T("a", "F32", "1,2", "0", "8") "," T("s", "BF16", "", "14",
        "16") "," T("q", "I64", "0,7", "16", "16") "}   ";
    struct wts_tensor *t;
    size_t n;
    char err[256];

    (void)state;
    assert_int_equal(wts_header_parse(text, sizeof(text) - 1, 16, &t, &n, err, sizeof(err)),
        0);
    assert_int_equal(n, 4);
    assert_string_equal(t[0].name, "a");
    assert_int_equal(t[0].dtype, FDK_F32);
    assert_int_equal(t[0].n_dim, 2);
    assert_int_equal(t[0].shape[1], 2);
    assert_int_equal(t[0].off, 8 + sizeof(text) - 1);
    assert_int_equal(t[1].bytes, 6);
    assert_string_equal(t[1].dtype_name, "F16");
    assert_int_equal(t[2].n_dim, 0);
    assert_int_equal(t[3].dtype, FDK_DTYPE__N);
    assert_string_equal(t[3].dtype_name, "I64");
    wts_tensors_free(t, n);
    assert_int_equal(parse_n("{}", 2, 0, err, sizeof(err)), 0);
}

static void
bad_text(void **state)
{
    char err[256];

    (void)state;
    refused("", 0, "W_JSON", "begin");
    refused(" {}", 0, "W_JSON", "begin");
    refused("[]", 0, "W_JSON", "begin");
    refused("{} x", 0, "W_JSON", "spaces");
    refused("{}\n", 0, "W_JSON", "spaces");
    refused("{", 0, "W_JSON", "ends within");
    refused("{\"a", 0, "W_JSON", "ends within");
    refused("{\"a\\", 0, "W_JSON", "ends within");
    refused("{\"\xff\":1}", 0, "W_JSON", "UTF-8");
    refused("{\"\xc0\xaf\":1}", 0, "W_JSON", "UTF-8");
    refused("{\"\xed\xa0\x80\":1}", 0, "W_JSON", "UTF-8");
    refused("{\"\xf4\x90\x80\x80\":1}", 0, "W_JSON", "UTF-8");
    refused("{\"\xe2\x82", 0, "W_JSON", "UTF-8");
    refused("{\"a\":[[[1]]]}", 0, "W_JSON", "nested");
    refused("{\"a\":{\"b\":{\"c\":{}}}}", 0, "W_JSON", "nested");
    refused("{\"a\":}", 0, "W_JSON", "byte");
    refused("{\"a\":1,\"a\":2}", 0, "W_JSON", "uplicate");
    refused("{" T("a", "U8", "1", "0", "1") "," T("a", "U8", "1", "0", "1") "}", 1,
        "W_JSON", "uplicate");
    refused("{\"a\":tru}", 0, "W_JSON", "byte");
    refused("{\"a\":[1}}", 0, "W_JSON", "byte");
    /* A NUL inside the text. */
    assert_int_equal(parse_n("{\"a\":\0 1}", 9, 0, err, sizeof(err)), -EINVAL);
    assert_memory_equal(err, "W_JSON", 6);
}

static void
bad_numbers(void **state)
{
    (void)state;
    refused("{" T("a", "U8", "-1", "0", "1") "}", 1, "W_JSON", "negative");
    refused("{" T("a", "U8", "1", "-0", "1") "}", 1, "W_JSON", "negative");
    refused("{" T("a", "U8", "1.0", "0", "1") "}", 1, "W_JSON", "decimal");
    refused("{" T("a", "U8", "1e0", "0", "1") "}", 1, "W_JSON", "decimal");
    refused("{" T("a", "U8", "1E2", "0", "1") "}", 1, "W_JSON", "decimal");
    refused("{" T("a", "U8", "01", "0", "1") "}", 1, "W_JSON", "byte");
    refused("{" T("a", "U8", "9007199254740992", "0", "1") "}", 1, "W_JSON", "2^53");
    refused("{" T("a", "U8", "1", "0", "9007199254740993") "}", 1, "W_JSON", "2^53");
    refused("{" T("a", "U8", "1", "0", "99999999999999999999999") "}", 1, "W_JSON", "byte");
    refused("{" T("a", "U8", "\"1\"", "0", "1") "}", 1, "W_JSON", "shape");
    refused("{" T("a", "U8", "true", "0", "1") "}", 1, "W_JSON", "shape");
}

static void
bad_fields(void **state)
{
    (void)state;
    refused("{\"a\":1}", 0, "W_JSON", "tensor a");
    refused("{\"a\":{}}", 0, "W_JSON", "tensor a");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0, "W_JSON", "tensor a");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1,
        "W_JSON", "tensor a");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "W_JSON",
        "tensor a");
    refused("{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "W_JSON",
        "tensor a");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
        "W_JSON", "tensor a");
    /* Control characters in a name do not reach a terminal. */
    refused("{\"a\\u001b[2J\":1}", 0, "W_JSON", "tensor a?[2J");
}

static void
bad_shapes(void **state)
{
    (void)state;
    refused("{" T("a", "Q4", "1", "0", "1") "}", 1, "W_SHAPE", "dtype Q4");
    refused("{" T("a", "F32", "2", "0", "4") "}", 4, "W_SHAPE", "8 bytes");
    refused("{" T("a", "F32", "1", "4", "0") "}", 4, "W_SHAPE", "-4");
    refused("{" T("a", "U8", "1,1,1,1,1,1,1,1,1", "0", "1") "}", 1, "W_SHAPE", "dimensions");
    refused("{" T("a", "F32", "4294967296,4294967296", "0", "0") "}", 0, "W_SHAPE",
        "overflow");
    refused("{" T("a", "F64", "4503599627370496,4503599627370496,2", "0", "0") "}", 0,
        "W_SHAPE", "overflow");
    refused("{" T("a", "F4", "3", "0", "1") "}", 1, "W_SHAPE", "12 bits");
    refused("{" T("a", "F6_E2M3", "3", "0", "2") "}", 2, "W_SHAPE", "18 bits");
    refused("{" T("a", "U8", "5", "0", "5") "}", 4, "W_SHAPE", "beyond");
}

static void
bad_layout(void **state)
{
    (void)state;
    refused("{" T("a", "U8", "1", "1", "2") "}", 2, "W_LAYOUT", "hole of 1");
    refused("{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "1", "3") "}", 3,
        "W_LAYOUT", "tensor b overlaps");
    refused("{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "0", "2") "}", 2,
        "W_LAYOUT", "overlaps");
    refused("{" T("a", "U8", "1", "0", "1") "," T("b", "U8", "1", "2", "3") "}", 3,
        "W_LAYOUT", "before tensor b");
    refused("{" T("a", "U8", "1", "0", "1") "}", 2, "W_LAYOUT", "end at byte 1 of 2");
    refused("{}", 1, "W_LAYOUT", "end at byte 0");
}

static void
limits(void **state)
{
    char err[256], *p, *q;
    size_t n = 9u << 20;

    (void)state;
    p = malloc(n);
    assert_non_null(p);
    q = p + sprintf(p, "{\"");
    memset(q, 'n', 513);
    q += 513;
    q += sprintf(q, "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}");
    assert_int_equal(parse_n(p, (size_t)(q - p), 1, err, sizeof(err)), -EINVAL);
    assert_memory_equal(err, "W_LIMIT: a tensor's name has 513", 32);
    refused("{\"__metadata__\":{\"a\":1}}", 0, "W_LIMIT", "strings");
    refused("{\"__metadata__\":\"a\"}", 0, "W_LIMIT", "object");

    q = p + sprintf(p, "{\"__metadata__\":{\"a\":\"");
    memset(q, 'm', 1u << 20);
    q += 1u << 20;
    q += sprintf(q, "\"}}");
    assert_int_equal(parse_n(p, (size_t)(q - p), 0, err, sizeof(err)), -EINVAL);
    assert_memory_equal(err, "W_LIMIT: __metadata__", 21);

    q = p + sprintf(p, "{");
    for (int i = 0; i < 262146; i++)
        q += sprintf(q, "%s\"%x\":{}", i == 0 ? "" : ",", i);
    q += sprintf(q, "}");
    assert_int_equal(parse_n(p, (size_t)(q - p), 0, err, sizeof(err)), -EINVAL);
    assert_memory_equal(err, "W_LIMIT: 262146 tensors", 23);
    free(p);
}

/* After any truncation and any change of one byte, a good header is either refused with a
 * code or still describes a complete layout. */
static void
mutations(void **state)
{
    static const char text[] =
        "{" T("a", "F32", "1,2", "0", "8") "," T("b", "F16", "3", "8", "14") "}";
    char copy[sizeof(text)], err[256];
    size_t n = sizeof(text) - 1;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(parse_n(text, i, 14, err, sizeof(err)), -EINVAL);
        assert_memory_equal(err, "W_JSON", 6);
    }
    for (size_t i = 0; i < n; i++) {
        for (int b = 0; b < 256; b++) {
            memcpy(copy, text, sizeof(text));
            copy[i] = (char)b;
            if (parse_n(copy, n, 14, err, sizeof(err)) != 0)
                assert_memory_equal(err, "W_", 2);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),
        cmocka_unit_test(bad_text),
        cmocka_unit_test(bad_numbers),
        cmocka_unit_test(bad_fields),
        cmocka_unit_test(bad_shapes),
        cmocka_unit_test(bad_layout),
        cmocka_unit_test(limits),
        cmocka_unit_test(mutations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
