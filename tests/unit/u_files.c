/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Files of a model that clients may read: which are kept, from where, how large. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/log.h"
#include "daemon/worker/files.h"
#include "daemon/worker/null_tok.h"
#include "daemon/worker/runner.h"
#include "daemon/worker/tokenizer.h"
#include "tests/tok_fixture.h"
#include "tests/unit/tmp_fixture.h"

static const char *
in_root(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", tmp_root, name);
    return path;
}

static void
put(const char *name, const char *text)
{
    FILE *f = fopen(in_root(name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void
is(const struct files *fs, const char *name, const char *text)
{
    const struct fil_file *f = fil_find(fs, name, strlen(name));

    assert_non_null(f);
    assert_string_equal(f->name, name);
    assert_int_equal(f->n, text != NULL ? strlen(text) : 0);
    assert_true((f->bytes == NULL) == (text == NULL));
    if (text != NULL)
        assert_memory_equal(f->bytes, text, f->n);
}

/* From two folders, one of them named by its file; what cannot be kept is left out. */
static void
t_folders(void **state)
{
    char model[80];
    struct files *fs;

    (void)state;
    assert_int_equal(mkdir(in_root("m"), 0700), 0);
    assert_int_equal(mkdir(in_root("t"), 0700), 0);
    put("m/generation_config.json", "{\"top_p\":1}");
    put("m/tokenizer_config.json", "{}");
    put("m/chat_template.jinja", "wrong folder");
    put("t/tokenizer.json", "");
    put("t/tokenizer_config.json", "{\"bos_token\":null}");
    put("t/chat_template.jinja", "{{ x }}");
    put("t/generation_config.json", "wrong folder");
    assert_int_equal(symlink("/nowhere", in_root("t/chat_parser.json")), 0);
    (void)snprintf(model, sizeof(model), "%s/m", tmp_root);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fil_load(model, in_root(i ? "t/tokenizer.json" : "t"), NULL, 259,
                             &fs),
            0);
        is(fs, "generation_config.json", "{\"top_p\":1}");
        is(fs, "tokenizer_config.json", "{\"bos_token\":null}");
        is(fs, "chat_template.jinja", "{{ x }}");
        is(fs, "chat_parser.json", NULL);
        is(fs, "vocabulary", NULL);
        assert_null(fil_find(fs, "config.json", 11));
        assert_null(fil_find(fs, "vocabulary2", 11));
        assert_null(fil_find(fs, "vocabular", 9));
        fil_free(fs);
    }
    assert_int_equal(fil_load("", "", NULL, 0, &fs), 0);
    for (int i = 0; i < FIL__N; i++)
        assert_null(fs->f[i].bytes);
    fil_free(fs);
    assert_null(fil_find(NULL, "vocabulary", 10));
    assert_null(fil_free(NULL));
}

/* A byte too many, a folder and a pipe in their place. */
static void
t_not_kept(void **state)
{
    struct files *fs;
    const struct fil_file *f;

    (void)state;
    put("chat_template.jinja", "");
    assert_int_equal(truncate(in_root("chat_template.jinja"), FIL_MAX_BYTES + 1), 0);
    assert_int_equal(mkdir(in_root("chat_parser.json"), 0700), 0);
    assert_int_equal(mkfifo(in_root("tokenizer_config.json"), 0600), 0);
    assert_int_equal(fil_load(tmp_root, tmp_root, NULL, 0, &fs), 0);
    f = fil_find(fs, "chat_template.jinja", 19);
    assert_null(f->bytes);
    assert_int_equal(f->too_large, FIL_MAX_BYTES + 1);
    assert_int_equal(f->limit, FIL_MAX_BYTES);
    is(fs, "chat_parser.json", NULL);
    is(fs, "tokenizer_config.json", NULL);
    fil_free(fs);
    assert_int_equal(truncate(in_root("chat_template.jinja"), FIL_MAX_BYTES), 0);
    assert_int_equal(fil_load(tmp_root, tmp_root, NULL, 0, &fs), 0);
    assert_int_equal(fil_find(fs, "chat_template.jinja", 19)->n, FIL_MAX_BYTES);
    fil_free(fs);
}

/* Each id with its bytes and its kind; two ids more than there are tokens. */
static void
t_vocabulary(void **state)
{
    char err[256] = "";
    struct tok *tok;
    struct files *fs;
    const struct fil_file *f;
    size_t at = 0;

    (void)state;
    assert_int_equal(ntk_load(&tok, err, sizeof(err)), 0);
    assert_int_equal(fil_load("", "", tok, RUN_NULL_VOCAB + 2, &fs), 0);
    f = fil_find(fs, "vocabulary", 10);
    for (uint32_t id = 0; id < RUN_NULL_VOCAB + 2; id++) {
        const uint8_t *b = NULL;
        unsigned flags = 0;
        uint16_t n;
        size_t want = 0;

        assert_true(at + 3 <= f->n);
        memcpy(&n, f->bytes + at, 2);
        if (tok_id_bytes(tok, id, &b, &want, &flags) != 0)
            flags = 255;
        assert_int_equal(flags, id < 256 ? 0 : id < RUN_NULL_VOCAB ? 3 : 255);
        assert_int_equal(f->bytes[at + 2], flags);
        assert_int_equal(n, want);
        assert_true(n == 0 || memcmp(f->bytes + at + 3, b, n) == 0);
        at += 3 + n;
    }
    assert_int_equal(at, f->n);
    fil_free(fs);
    tok_free(tok);
}

/* Loads a tokenizer whose only token decodes to 65,520 + n bytes. */
static int
long_token(int n, struct tok **ret, char *err, size_t err_bytes)
{
    char json[8192], a[4096], b[17];
    int len;

    memset(a, 'a', sizeof(a) - 1);
    a[sizeof(a) - 1] = '\0';
    memset(b, 'b', sizeof(b));
    len = snprintf(json, sizeof(json),
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%.16s\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"%.*s\"}]},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"%sb\":0}}}",
        a, n, b, a);
    return load_bytes("tokenizer.json", json, (size_t)len, ret, err, err_bytes);
}

/* Regression: the length of a token of 65,536 bytes was sent as 0, so that all ids after
 * it got wrong bytes. */
static void
t_longest_token(void **state)
{
    const struct fil_file *f;
    struct tok *tok = NULL;
    struct files *fs;
    char err[512];
    uint16_t n;

    (void)state;
    assert_int_equal(long_token(15, &tok, err, sizeof(err)), 0);
    assert_int_equal(fil_load("", "", tok, 1, &fs), 0);
    f = fil_find(fs, "vocabulary", 10);
    assert_int_equal(f->n, 3 + UINT16_MAX);
    memcpy(&n, f->bytes, sizeof(n));
    assert_int_equal(n, UINT16_MAX);
    fil_free(fs);
    tok_free(tok);
    tok = NULL;
    assert_int_equal(long_token(16, &tok, err, sizeof(err)), -EINVAL);
    assert_non_null(strstr(err, "65536 bytes of the token of id 0, more than the 65535"));
    assert_null(tok);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(t_folders, tmp_make, tmp_drop),
        cmocka_unit_test_setup_teardown(t_not_kept, tmp_make, tmp_drop),
        cmocka_unit_test(t_vocabulary),
        cmocka_unit_test(t_longest_token),
    };

    log_init("test", "off");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
