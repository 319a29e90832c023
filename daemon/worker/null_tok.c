/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/null_tok.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/worker/runner.h"
#include "daemon/worker/tokenizer.h"

/* Does the byte-level alphabet represent this byte by itself? */
static int
ntk_is_plain(int b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

static void
ntk_write(FILE *f)
{
    static const char *const special[] = { "<|bos|>", "<|eos|>", "<|pad|>" };
    int other = 256;

    (void)fputs("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                "\"added_tokens\":[",
        f);
    for (int i = 0; i < 3; i++)
        (void)fprintf(f,
            "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,"
            "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}",
            i > 0 ? "," : "", RUN_NULL_BOS + i, special[i]);
    (void)fputs("],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},"
                "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
                "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false},"
                "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{",
        f);
    for (int b = 0; b < 256; b++)
        (void)fprintf(f, "%s\"\\u%04x\":%d", b > 0 ? "," : "",
            (unsigned)(ntk_is_plain(b) ? b : other++), b);
    (void)fputs("},\"merges\":[]}}\n", f);
}

int
ntk_load(struct tok **ret, char *err, size_t err_bytes)
{
    int fd = memfd_create("fdd-null-tokenizer", MFD_CLOEXEC), rc;
    char path[64];
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (f == NULL) {
        rc = -errno;
        (void)snprintf(err, err_bytes, "null tokenizer: %s", strerror(-rc));
        if (fd >= 0)
            (void)close(fd);
        return rc;
    }
    ntk_write(f);
    if (fflush(f) != 0) {
        rc = -errno;
        (void)snprintf(err, err_bytes, "null tokenizer: %s", strerror(-rc));
    } else {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        rc = tok_load(path, ret, err, err_bytes);
    }
    (void)fclose(f);
    return rc;
}
