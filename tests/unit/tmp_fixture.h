/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A temporary folder for cmocka's setup and teardown: tmp_make() creates it and puts its
 * path into tmp_root; tmp_drop() removes it with its content.
 */
#ifndef FDD_TESTS_UNIT_TMP_FIXTURE_H
#define FDD_TESTS_UNIT_TMP_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char tmp_root[64];

static int
tmp_make(void **state)
{
    (void)state;
    strcpy(tmp_root, "/tmp/fdd-test.XXXXXX");
    return mkdtemp(tmp_root) == NULL;
}

static int
tmp_drop(void **state)
{
    char cmd[128];

    (void)state;
    (void)snprintf(cmd, sizeof(cmd), "rm -rf %s", tmp_root);
    return system(cmd);
}

#endif
