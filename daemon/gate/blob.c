/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/gate/blob.h"

#include <stdlib.h>

#include "daemon/gate/pages.h"

unsigned char *
blb_new(struct pages *g, uint32_t bytes)
{
    return bytes <= BLB_LONG ? malloc(bytes) : pgs_new(g, bytes);
}

void
blb_free(struct pages *g, unsigned char *p, uint32_t bytes, uint32_t used)
{
    if (bytes <= BLB_LONG || p == NULL)
        free(p);
    else
        pgs_free(g, p, bytes, used);
}
