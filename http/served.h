/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemons that fdd-http serves: the one of [daemon] and [model], or one for each
 * section [model NAME].
 */
#ifndef FDD_HTTP_SERVED_H
#define FDD_HTTP_SERVED_H

#include <stddef.h>

#include "daemon/common/param.h"

#define SRV_MAX 32

struct served {
    char label[64];             /* NAME; "": there are no sections */
    char socket[PAR_STR_BYTES]; /* "": fdc_default_socket() */
    char names[PAR_STR_BYTES]; /* in requests, comma separated; "": the name fdd reports */
    char template[PAR_STR_BYTES];
    char parser[PAR_STR_BYTES];
};

struct served_list {
    struct served *s;
    size_t n;
};

/* Read the list from the parameters. 0, or -ENOMEM with an empty list. */
int srv_read(const struct par_set *ps, struct served_list *ret);
void srv_free(struct served_list *l);
/* Are two entries equal? */
int srv_same(const struct served *a, const struct served *b);

#endif
