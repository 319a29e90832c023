/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The device that a test computes on. With FDD_TEST_DEVICE=1 it is virtual device 1 of 2,
 * and every call to device 0 fails (tests/check-device); otherwise it is device 0 of 1.
 */
#ifndef FDD_TESTS_TEST_DEVICE_H
#define FDD_TESTS_TEST_DEVICE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fdk.h"

static inline int32_t
td_dev(void)
{
    const char *s = getenv("FDD_TEST_DEVICE");

    return s != NULL && strcmp(s, "1") == 0;
}

static inline uint32_t
td_dead(void)
{
    return td_dev() != 0 ? 1 : 0;
}

/* Sets the number of devices and the failing ones, for a test that needs one device. */
static inline void
td_open(struct fdk_open_args *a)
{
    a->n_device = td_dev() + 1;
    a->dead = td_dead();
}

#endif
