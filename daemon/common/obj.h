/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions and magic-checked objects. Assertions stay on in release; a failed one
 * ends the process through pan_assert(). Never assert a condition that a client or a
 * file can break.
 *
 * Every heap object begins with `uint32_t magic`.
 */
#ifndef FDD_DAEMON_COMMON_OBJ_H
#define FDD_DAEMON_COMMON_OBJ_H

#include <stdint.h>
#include <stdlib.h>

#include "daemon/common/panic.h"

#define ASSERT(e) \
    do { \
        if (__builtin_expect(!(e), 0)) \
            pan_assert(__FILE__, __LINE__, __func__, #e); \
    } while (0)

/* The call must return 0; it is evaluated in every build. */
#define ASSERT_Z(e) \
    do { \
        if (__builtin_expect((e) != 0, 0)) \
            pan_assert(__FILE__, __LINE__, __func__, #e " is 0"); \
    } while (0)

/* For code that cannot be reached. */
#define WRONG(text) pan_assert(__FILE__, __LINE__, __func__, text)

/* Costly checks, --enable-developer only. */
#ifdef FDD_DEVELOPER
#define DIAG(e) ASSERT(e)
#else
#define DIAG(e) \
    do { \
        if (0) \
            (void)(e); \
    } while (0)
#endif

#define OBJ_CHECK(p, m) ASSERT((p) != NULL && (p)->magic == (m))

/* Zeroed object with its magic set; p is NULL when there is no memory. */
#define OBJ_ALLOC(p, m) \
    do { \
        (p) = calloc(1, sizeof(*(p))); \
        if ((p) != NULL) \
            (p)->magic = (m); \
    } while (0)

/* Check, clear the magic, free, set the pointer to NULL. */
#define OBJ_FREE(p, m) \
    do { \
        OBJ_CHECK(p, m); \
        (p)->magic = 0; \
        free(p); \
        (p) = NULL; \
    } while (0)

#endif
