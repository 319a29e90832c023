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
        [FDP_OP_SUBMIT] = "submit",
        [FDP_OP_CANCEL] = "cancel",
        [FDP_OP_TOKENIZE] = "tokenize",
        [FDP_OP_DETOKENIZE] = "detokenize",
        [FDP_OP_INFO] = "info",
        [FDP_OP_PING] = "ping",
        [FDP_OP_FILE] = "file",
    };

    return op < FDP_OP__N && names[op] != NULL ? names[op] : "?";
}

const char *
fdn_finish_name(uint32_t finish)
{
    static const char *const names[] = {
        [FDP_FIN_NONE] = "none",
        [FDP_FIN_STOP] = "stop",
        [FDP_FIN_LENGTH] = "length",
        [FDP_FIN_ERROR] = "error",
        [FDP_FIN_REPETITION] = "repetition",
    };

    return finish < sizeof(names) / sizeof(names[0]) ? names[finish] : "?";
}

static const struct {
    const char *name;
    char kind;
} details[FDP_D__N] = {
    [FDP_D_NONE] = { "", 'U' },
#define FDP_DETAIL(name, kind, text) [FDP_D_##name] = { text, #kind[0] },
#include "libclient/tbl/details.h"
#undef FDP_DETAIL
};

const char *
fdn_detail_name(uint32_t detail)
{
    return detail < FDP_D__N ? details[detail].name : "?";
}

int
fdn_detail_is_float(uint32_t detail)
{
    return detail < FDP_D__N && details[detail].kind == 'F';
}

const char *
fdn_item_name(uint32_t type)
{
    static const char *const names[FDP_IT__N] = {
#define FDP_ITEM(name, value, version, text, ops, size, least, most, times, detail) \
    [FDP_IT_##name] = text,
#include "libclient/tbl/items.h"
#undef FDP_ITEM
    };

    return type < FDP_IT__N && names[type] != NULL ? names[type] : "?";
}
