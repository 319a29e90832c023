/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors this process has open: a test compares two counts. */
#ifndef FDD_TESTS_UNIT_COUNT_FDS_H
#define FDD_TESTS_UNIT_COUNT_FDS_H

#include <dirent.h>

/* Entries of /proc/self/fd; -1 without it. */
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
