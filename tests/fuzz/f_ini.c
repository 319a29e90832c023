/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a configuration file: accepted, or refused with file and line; accepted
 * values can be written and read again.
 */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/common/param.h"
#include "tests/unit/param_fixture.h"

#define MUST(e) \
    do { \
        if (!(e)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
            abort(); \
        } \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
write_down_and_read_again(const struct par_set *ps)
{
    struct par_set *again = par_new();
    char name[128], value[PAR_STR_BYTES], value2[PAR_STR_BYTES], err[512];
    enum par_origin from;
    struct par_row row;
    size_t i;

    MUST(again != NULL);
    for (i = 0; i < par_count(); i++) {
        par_row(i, &row);
        snprintf(name, sizeof(name), "%s.%s", row.section, row.key);
        par_value(ps, i, value, sizeof(value), &from);
        MUST(par_set_text(again, name, value, from, err, sizeof(err)) == 0);
        par_value(again, i, value2, sizeof(value2), &from);
        MUST(strcmp(value, value2) == 0);
    }
    MUST(memcmp(par_get(ps), par_get(again), sizeof(struct par)) == 0);
    par_free(again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct par_set *ps = par_new(), *before = par_new();
    char path[64], err[1024] = "", warned[1024];
    int fd = memfd_create("ini", MFD_CLOEXEC), rc;

    MUST(ps != NULL && before != NULL && fd >= 0);
    MUST(write(fd, data, n) == (ssize_t)n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    rc = read_file(ps, path, warned, sizeof(warned), err, sizeof(err));
    if (rc == 0) {
        (void)par_check(ps, err, sizeof(err));
        write_down_and_read_again(ps);
    } else {
        MUST(strncmp(err, path, strlen(path)) == 0 && err[strlen(path)] == ':');
        MUST(memcmp(par_get(ps), par_get(before), sizeof(struct par)) == 0);
    }
    close(fd);
    par_free(ps);
    par_free(before);
    return 0;
}
