/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/listened.h"

#include <stdio.h>
#include <string.h>

#define LSN_ACCEPTS 0x10000u /* __SO_ACCEPTCON */

int
lsn_is_listened(const char *path)
{
    char line[1024];
    unsigned flags;
    FILE *fp = fopen("/proc/net/unix", "re");
    int found = 0;

    while (fp != NULL && !found && fgets(line, sizeof(line), fp) != NULL) {
        const char *at = strchr(line, '/');

        line[strcspn(line, "\n")] = '\0';
        /* Num RefCount Protocol Flags ... Path */
        found = at != NULL && strcmp(at, path) == 0 &&
            sscanf(line, "%*s %*s %*s %x", &flags) == 1 && (flags & LSN_ACCEPTS) != 0;
    }
    if (fp != NULL)
        (void)fclose(fp);
    return found;
}
