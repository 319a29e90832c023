/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/harden.h"

#include <errno.h>
#include <sys/prctl.h>

int
hdn_is_open(void)
{
#if defined(FDD_DEVELOPER) || defined(FDD_SANITIZED)
    return 1;
#else
    return 0;
#endif
}

int
hdn_no_new_privs(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : -errno;
}

int
hdn_no_dump(void)
{
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : -errno;
}
