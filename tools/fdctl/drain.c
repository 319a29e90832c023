/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

static const struct fct_opt opts[] = {
    { "wait", 0, NULL, NULL, FCT_ASK(struct fct_plain, ask, 0) },
    { "timeout-ms", 0, "", NULL, FCT_ASK(struct fct_plain, ask, INT64_MAX) },
    { "off", 0, NULL, NULL, FCT_ASK(struct fct_plain, ask, 0) },
    FCT_OPT_JSON(struct fct_plain, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line = {
    .usage = "fdctl drain [--wait] [--off] [--timeout-ms MS] [--json]",
    .about = "Take no new requests; those that run go on.",
    .opts = { opts },
    .command = "drain",
    .hint = FCT_HINT_USAGE
};

static void
show_drain(const json_t *o)
{
    printf("%s, %lld requests left\n", fct_str(o, "state"), fct_num(o, "requests"));
}

int
fct_cmd_drain(const struct fct *f, int argc, char **argv)
{
    struct fct_plain a = { .ask = fct_question("drain") };
    struct fct patient = *f;
    int rc = fct_parse(&line, argc, argv, &a), waits, drained;
    json_t *answer;

    waits = json_object_get(a.ask, "wait") != NULL;
    if (waits)
        patient.timeout_ms = -1;
    waits &= json_object_get(a.ask, "off") == NULL;
    if (rc != FCT_GO) {
        json_decref(a.ask);
        return rc;
    }
    rc = fct_ask_once(&patient, a.ask, 0, &answer);
    if (rc != 0)
        return rc;
    drained = json_is_true(json_object_get(answer, "drained"));
    rc = fct_finish(answer, a.json, show_drain);
    return rc == 0 && waits && !drained ? FCT_EX_TEMP : rc;
}
