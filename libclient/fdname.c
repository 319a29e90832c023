/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "libclient/fdname.h"

#include <stddef.h>

#include "libclient/fdproto.h"

static const struct fdn_status statuses[] = {
#define FDP_STATUS(name, value, cls, retry, text) { value, retry, #cls, #name, text },
#include "libclient/tbl/status.h"
#undef FDP_STATUS
};

const struct fdn_status *
fdn_status(int status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].value == status)
            return &statuses[i];
    return NULL;
}

const char *
fdn_status_name(int status)
{
    const struct fdn_status *s = fdn_status(status);

    return s != NULL ? s->name : "E_?";
}

const char *
fdn_op_name(uint32_t op)
{
    static const char *const names[FDP_OP__N] = {
        [FDP_OP_SUBMIT] = "submit", [FDP_OP_CANCEL] = "cancel",
        [FDP_OP_TOKENIZE] = "tokenize", [FDP_OP_DETOKENIZE] = "detokenize",
        [FDP_OP_INFO] = "info", [FDP_OP_PING] = "ping",
    };

    return op < FDP_OP__N && names[op] != NULL ? names[op] : "?";
}

const char *
fdn_finish_name(uint32_t finish)
{
    static const char *const names[] = {
        [FDP_FIN_NONE] = "none", [FDP_FIN_STOP] = "stop", [FDP_FIN_LENGTH] = "length",
        [FDP_FIN_ERROR] = "error",
    };

    return finish < sizeof(names) / sizeof(names[0]) ? names[finish] : "?";
}
