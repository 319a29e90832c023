/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>
#include <string.h>

#include "libclient/fdname.h"
#include "libclient/priv.h"

/* What a function returned: every number that is no error is success. */
static const struct fdn_status *
result(int status)
{
    return fdn_status(status > 0 ? 0 : status);
}

int
fdc__told(int code, int other)
{
    const struct fdn_status *st = fdn_status(code);

    return code < 0 && (st == NULL || strcmp(st->cls, "LIBRARY") != 0) ? code : other;
}

const char *
fdc_strerror(int status)
{
    const struct fdn_status *s = result(status);

    return s != NULL ? s->text : "unknown status";
}

const char *
fdc_status_name(int status)
{
    return fdn_status_name(status > 0 ? 0 : status);
}

int
fdc_is_retryable(int status)
{
    const struct fdn_status *s = fdn_status(status);

    return s != NULL && s->retry;
}

const char *
fdc_detail_name(uint32_t detail)
{
    static const char *const names[FDP_D__N] = {
        [FDP_D_NONE] = "", [FDP_D_OP] = "op", [FDP_D_FLAGS] = "flags",
        [FDP_D_N] = "n", [FDP_D_MAX_NEW] = "max_new", [FDP_D_MIN_NEW] = "min_new",
        [FDP_D_TEMPERATURE] = "temperature", [FDP_D_TOP_P] = "top_p",
        [FDP_D_TOP_K] = "top_k", [FDP_D_MIN_P] = "min_p",
        [FDP_D_PENALTY] = "penalty", [FDP_D_LOGPROBS] = "logprobs",
        [FDP_D_STREAM] = "stream_interval", [FDP_D_PRIORITY] = "priority",
        [FDP_D_TTL] = "ttl", [FDP_D_PRIOR] = "prior_ids", [FDP_D_USER] = "user",
        [FDP_D_RESERVED] = "reserved bytes", [FDP_D_TAG] = "tag",
        [FDP_D_BLOB] = "blob", [FDP_D_ITEM] = "item", [FDP_D_PROMPT] = "prompt",
        [FDP_D_PROMPT_ID] = "prompt id", [FDP_D_STOP] = "stop",
        [FDP_D_BIAS] = "logit_bias", [FDP_D_ALLOWED] = "allowed_ids",
        [FDP_D_GRAMMAR] = "grammar", [FDP_D_CHAT] = "chat",
        [FDP_D_BAD_WORDS] = "bad_words",
    };
    return detail < FDP_D__N && names[detail] ? names[detail] : "?";
}

const char *
fdc_finish_name(uint32_t finish)
{
    return fdn_finish_name(finish);
}
