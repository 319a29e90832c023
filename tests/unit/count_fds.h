/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Counts the open descriptors of this process; a test compares two counts. */
#ifndef FDD_TESTS_UNIT_COUNT_FDS_H
#define FDD_TESTS_UNIT_COUNT_FDS_H

#include <dirent.h>

/* Number of entries of /proc/self/fd, or -1 if it cannot be opened. */
static inline int
count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    if (d == NULL)
        return -1;
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

#endif
