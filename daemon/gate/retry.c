/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/retry.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "daemon/common/clk.h"

const char *
rty_what(int code)
{
    switch (code) {
    case EX_NOINPUT:
        return "the model's files";
    case EX_NOPERM:
        return "permission to read the model";
    case EX_UNAVAILABLE:
        return "the device";
    case EX_USAGE:
        return "a program fdd-worker of its version";
    }
    return "a sound configuration or model";
}

int
rty_failed(struct rty *y, int code, const char *error, const char *fix, uint64_t now_ns)
{
    int is_new = y->n == 0 || y->code != code || strcmp(y->error, error) != 0;

    if (y->n++ == 0)
        y->t_since = now_ns;
    y->code = code;
    (void)snprintf(y->error, sizeof(y->error), "%s", error);
    (void)snprintf(y->fix, sizeof(y->fix), "%s", fix);
    if (!is_new && now_ns < y->t_tell)
        return 0;
    y->tell_ns = is_new ? RTY_TELL_NS
        : y->tell_ns < RTY_TELL_MAX_NS / 2
        ? y->tell_ns * 2
        : RTY_TELL_MAX_NS;
    y->t_tell = now_ns + y->tell_ns;
    return 1;
}

void
rty_text(const struct rty *y, uint64_t now_ns, char *ret, size_t ret_bytes)
{
    uint64_t s = (now_ns - y->t_since) / CLK_S;

    (void)snprintf(ret, ret_bytes, "waits for %s since %llu %s, tried %u time%s",
        rty_what(y->code), (unsigned long long)(s < 120 ? s : s / 60),
        s < 120 ? "s" : "min", y->n, y->n == 1 ? "" : "s");
}
