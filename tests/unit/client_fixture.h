/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A client session with the mock gate of mock_gate.h. Include cmocka.h first. */
#ifndef FDD_TESTS_UNIT_CLIENT_FIXTURE_H
#define FDD_TESTS_UNIT_CLIENT_FIXTURE_H

#include "libclient/fdclient.h"
#include "tests/unit/mock_gate.h"

struct fix {
    struct mock m;
    fdc_t *s;
};

/* Setup of each test. A test may change m before it calls begin(). */
static int
setup(void **state)
{
    static struct fix f;

    mock_init(&f.m);
    f.s = NULL;
    *state = &f;
    return 0;
}

static void
begin(struct fix *f, uint32_t reconnect_ms)
{
    struct fdc_open_opts o = { .size = sizeof(o),
        .connect_timeout_ms = 2000,
        .reconnect_ms = reconnect_ms };

    mock_start(&f->m);
    o.path = f->m.path;
    assert_int_equal(fdc_open(&o, &f->s), 0);
}

static void
end(struct fix *f)
{
    fdc_close(f->s);
    mock_stop(&f->m);
}

#endif
