/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Which daemons fdd-http serves: that of [daemon] and [model], or one for each section
 * [model NAME].
 */
#ifndef FDD_HTTP_SERVED_H
#define FDD_HTTP_SERVED_H

#include <stddef.h>

#include "daemon/common/param.h"

#define SRV_MAX 32

struct served {
    char label[64];             /* NAME; "": there are no sections */
    char socket[PAR_STR_BYTES]; /* "": fdc_default_socket() */
    char names[PAR_STR_BYTES];  /* in requests, comma separated; "": the name fdd says */
    char template[PAR_STR_BYTES];
    char parser[PAR_STR_BYTES];
};

struct served_list {
    struct served *s;
    size_t n;
};

/* What the parameters say. 0 or -ENOMEM; the list is empty then. */
int srv_read(const struct par_set *ps, struct served_list *ret);
void srv_free(struct served_list *l);
/* Do two say the same? */
int srv_same(const struct served *a, const struct served *b);

#endif
