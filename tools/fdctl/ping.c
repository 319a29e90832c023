/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"

struct args {
    int deep, json;
    uint64_t count;
};

static const struct fct_opt opts[] = {
    { "deep", 0, NULL, "to the worker and back, not only the gate",
        FCT_FLAG(struct args, deep) },
    { "count", 'c', "N", "so often (1)", FCT_U64(struct args, count, 100000000) },
    FCT_OPT_JSON(struct args, "{\"ns\": N} for each"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line = { .usage = "fdctl ping [options]",
    .about = "Round trip through shared memory.",
    .opts = { opts } };

int
fct_cmd_ping(const struct fct *f, int argc, char **argv)
{
    struct args a = { .count = 1 };
    int rc = fct_parse(&line, argc, argv, &a);
    fdc_t *s = NULL;
    uint64_t ns;

    if (rc != FCT_GO)
        return rc;
    rc = fct_open(f, 0, &s);
    for (; rc == 0 && a.count > 0; a.count--) {
        rc = fdc_ping(s, a.deep, &ns, f->timeout_ms);
        if (rc < 0)
            rc = fct_status_fail("ping", rc);
        else if (a.json)
            rc = printf("{\"ns\": %llu}\n", (unsigned long long)ns) < 0;
        else
            rc = printf("%s: %.1f us\n", a.deep ? "worker" : "gate", (double)ns / 1e3) < 0;
    }
    fdc_close(s);
    return rc;
}
