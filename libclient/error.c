/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>

#include "libclient/fdclient.h"

static const struct {
    int value, retry;
    const char *name, *text;
} statuses[] = {
#define FDP_STATUS(name, value, cls, retry, text) { value, retry, #name, text },
#include "libclient/tbl/status.h"
#undef FDP_STATUS
};

static int
find(int status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].value == status)
            return (int)i;
    return -1;
}

const char *
fdc_strerror(int status)
{
    int i = status > 0 ? find(0) : find(status);
    return i < 0 ? "unknown status" : statuses[i].text;
}

const char *
fdc_status_name(int status)
{
    int i = status > 0 ? find(0) : find(status);
    return i < 0 ? "E_?" : statuses[i].name;
}

int
fdc_is_retryable(int status)
{
    int i = find(status);
    return i < 0 ? 0 : statuses[i].retry;
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
    switch (finish) {
    case FDP_FIN_NONE:
        return "none";
    case FDP_FIN_STOP:
        return "stop";
    case FDP_FIN_LENGTH:
        return "length";
    case FDP_FIN_ERROR:
        return "error";
    }
    return "?";
}
