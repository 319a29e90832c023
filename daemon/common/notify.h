/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Messages to the service manager that started this process. Any thread. */
#ifndef FDD_DAEMON_COMMON_NOTIFY_H
#define FDD_DAEMON_COMMON_NOTIFY_H

/* Send text to $NOTIFY_SOCKET, as sd_notify(3); does nothing without that variable.
 * Does not block. */
void ntf_send(const char *text);

#endif
