/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the protocol's numbers, for libfdclient, the gate and the tools. Not
 * installed. Compiled into the library and into the daemon's common library. Any number
 * may be passed; the name of an unknown one contains a '?'. Any thread.
 */
#ifndef FDD_LIBCLIENT_FDNAME_H
#define FDD_LIBCLIENT_FDNAME_H

#include <stdint.h>

/* A row of tbl/status.h. */
struct fdn_status {
    int value, retry;
    const char *cls, *name, *text;
};

/* NULL: unknown. */
const struct fdn_status *fdn_status(int status);

const char *fdn_status_name(int status);      /* "E_QUEUE_FULL" */
const char *fdn_op_name(uint32_t op);         /* "submit" (enum fdp_op) */
const char *fdn_finish_name(uint32_t finish); /* "length" (enum fdp_finish) */
const char *fdn_detail_name(uint32_t detail); /* "top_p" (enum fdp_detail) */
int fdn_detail_is_float(uint32_t detail);     /* arg and limit are a float's bits */
const char *fdn_item_name(uint32_t type);     /* "spans" (enum fdp_item_type) */

#endif
