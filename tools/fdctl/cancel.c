/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/commands.h"
#include "tools/fdctl/lib/admin.h"

#include <stdlib.h>

struct args {
    int all, json, has_session;
    uint64_t session;
    struct fct_operands ids;
};

static const struct fct_opt opts[] = {
    { "all", 0, NULL, "every request of every client", FCT_FLAG(struct args, all) },
    { "session", 0, "", NULL, FCT_U64(struct args, session, INT64_MAX),
        FCT_HAS(struct args, has_session) },
    FCT_OPT_JSON(struct args, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
};

static const struct fct_line line = {
    .usage = "fdctl cancel ID... | --session N | --all [--json]",
    .about = "End requests; fdctl requests shows their ids.",
    .opts = { opts },
    .command = "cancel",
    .operands = 1 + offsetof(struct args, ids),
    .max_operands = FCT_OPERANDS_MAX,
    .hint = FCT_HINT_USAGE
};

static int
cancel_one(struct fct_admin *a, const char *what, long long id, long long *n)
{
    json_t *answer;
    int rc = fct_ask(a, json_pack("{s:s, s:I}", "cmd", "cancel", what, (json_int_t)id), 0,
        &answer);

    if (rc != 0)
        return rc;
    *n += fct_num(answer, "cancelled");
    json_decref(answer);
    return 0;
}

static int
cancel_all(struct fct_admin *a, long long *n)
{
    json_t *answer, *r;
    size_t i;
    int rc = fct_ask(a, fct_question("requests"), 0, &answer);

    if (rc != 0)
        return rc;
    json_array_foreach(json_object_get(answer, "requests"), i, r) {
        json_t *one = NULL;

        /* It may have ended since. */
        rc = fct_ask(a,
            json_pack("{s:s, s:I}", "cmd", "cancel", "id", (json_int_t)fct_num(r, "id")),
            1, &one);
        if (rc == 0)
            *n += fct_num(one, "cancelled");
        json_decref(one);
        if (rc != 0 && rc != FCT_EX_DATA)
            break;
        rc = 0;
    }
    json_decref(answer);
    return rc;
}

static int
cancel(struct fct_admin *adm, const struct args *a, long long *n)
{
    int rc = a->all ? cancel_all(adm, n) : 0;

    if (rc == 0 && a->has_session)
        rc = cancel_one(adm, "session", (long long)a->session, n);
    for (int i = 0; i < a->ids.n && rc == 0; i++)
        rc = cancel_one(adm, "id", strtoll(a->ids.text[i], NULL, 10), n);
    return rc;
}

int
fct_cmd_cancel(const struct fct *f, int argc, char **argv)
{
    struct args a = { .all = 0 };
    struct fct_admin *adm;
    long long n = 0;
    uint64_t id;
    int rc = fct_parse(&line, argc, argv, &a);

    if (rc != FCT_GO)
        return rc;
    if (a.ids.n == 0 && !a.all && !a.has_session)
        return fct_fail(FCT_EX_USAGE,
            "cancel: which? give ids (fdctl requests), "
            "--session or --all");
    for (int i = 0; i < a.ids.n; i++)
        if ((rc = fct_u64("cancel", a.ids.text[i], INT64_MAX, &id)) != 0)
            return rc;
    rc = fct_admin_open(f, 0, &adm);
    if (rc != 0)
        return rc;
    rc = cancel(adm, &a, &n);
    fct_admin_close(adm);
    if (rc == 0)
        printf(a.json ? "{\"cancelled\": %lld}\n" : "%lld cancelled\n", n);
    return rc;
}
