/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/fdctl/lib/admin.h"

const struct fct_opt fct_json_opts[] = {
    FCT_OPT_JSON(struct fct_plain, "the answer as JSON"), FCT_OPT_HELP, FCT_OPT_END
};

json_t *
fct_question(const char *name)
{
    return json_pack("{s:s}", "cmd", name);
}

void
fct_age(long long ms, char *ret, size_t ret_bytes)
{
    if (ms < 1000)
        snprintf(ret, ret_bytes, "%lld ms", ms);
    else if (ms < 120000)
        snprintf(ret, ret_bytes, "%.1f s", (double)ms / 1e3);
    else if (ms < 7200000)
        snprintf(ret, ret_bytes, "%lld min", ms / 60000);
    else if (ms < 172800000)
        snprintf(ret, ret_bytes, "%.1f h", (double)ms / 3.6e6);
    else
        snprintf(ret, ret_bytes, "%lld days", ms / 86400000);
}

int
fct_finish(json_t *answer, int json, void (*show)(const json_t *answer))
{
    json_object_del(answer, "ok");
    if (json)
        return fct_print_json(answer);
    show(answer);
    json_decref(answer);
    return 0;
}

int
fct_plain_cmd(const struct fct *f, const struct fct_line *l, int argc, char **argv)
{
    struct fct_plain a = { .ask = fct_question(l->command) };
    json_t *answer = NULL;
    int rc = fct_parse(l, argc, argv, &a);

    if (rc == FCT_GO)
        rc = fct_ask_once(f, json_incref(a.ask), 0, &answer);
    json_decref(a.ask);
    if (answer == NULL)
        return rc;
    if (l->prepare != NULL)
        l->prepare(answer);
    return fct_finish(answer, a.json, l->show);
}
