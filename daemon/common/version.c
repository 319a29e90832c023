/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "daemon/common/version.h"

#include "daemon/common/commit.h"

const char *
ver_commit(void)
{
    return FDD_COMMIT;
}

const char *
ver_text(void)
{
    return sizeof(FDD_COMMIT) > 1 ? PACKAGE_VERSION " (" FDD_COMMIT ")" : PACKAGE_VERSION;
}
