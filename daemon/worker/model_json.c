/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/worker/model_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const json_t *
mdl_json_field(const struct mdl_json *j, const char *key)
{
    const json_t *v = json_object_get(j->o, key);

    return v == NULL || json_is_null(v) ? NULL : v;
}

int
mdl_json_has(const struct mdl_json *j, const char *key)
{
    return mdl_json_field(j, key) != NULL;
}

int
mdl_json_refuse(const struct mdl_json *j, const char *key, const char *why)
{
    const json_t *v = json_object_get(j->o, key);
    char *text = v == NULL ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    char shown[64], name[64];

    mdl_printable(name, sizeof(name), key, strlen(key)); /* key may be untrusted */
    mdl_printable(shown, sizeof(shown), text != NULL ? text : "(absent)",
        text != NULL ? strlen(text) : 8);
    free(text);
    return mdl_fail(-EINVAL, j->err, j->err_bytes, "%s: %s%s = %s %s", j->file, j->prefix,
        name, shown, why);
}

int
mdl_json_must_have(const struct mdl_json *j, const char *key)
{
    if (mdl_json_has(j, key))
        return 0;
    return mdl_fail(-EINVAL, j->err, j->err_bytes, "%s: %s%s is missing", j->file,
        j->prefix, key);
}

int
mdl_json_i32(const struct mdl_json *j, const char *key, int32_t min, int32_t max,
    int32_t *ret)
{
    const json_t *v = mdl_json_field(j, key);
    char why[64];

    if (v == NULL)
        return 0;
    if (!json_is_integer(v))
        return mdl_json_refuse(j, key, "is not an integer");
    if (json_integer_value(v) < min || json_integer_value(v) > max) {
        snprintf(why, sizeof(why), "is not in %d..%d", min, max);
        return mdl_json_refuse(j, key, why);
    }
    *ret = (int32_t)json_integer_value(v);
    return 0;
}

int
mdl_json_real(const struct mdl_json *j, const char *key, double min, double max, double *ret)
{
    const json_t *v = mdl_json_field(j, key);
    char why[96];
    double x;

    if (v == NULL)
        return 0;
    if (!json_is_number(v))
        return mdl_json_refuse(j, key, "is not a number");
    x = json_number_value(v);
    if (!(x > min && x <= max)) {
        snprintf(why, sizeof(why), "is not above %g and at most %g", min, max);
        return mdl_json_refuse(j, key, why);
    }
    *ret = x;
    return 0;
}

int
mdl_json_bool(const struct mdl_json *j, const char *key, int *ret)
{
    const json_t *v = mdl_json_field(j, key);

    if (v == NULL)
        return 0;
    if (!json_is_boolean(v))
        return mdl_json_refuse(j, key, "is not true or false");
    *ret = json_is_true(v);
    return 0;
}

int
mdl_json_str(const struct mdl_json *j, const char *key, const char **ret)
{
    const json_t *v = mdl_json_field(j, key);

    if (v == NULL)
        return 0;
    if (!json_is_string(v))
        return mdl_json_refuse(j, key, "is not a string");
    *ret = json_string_value(v);
    return 0;
}
