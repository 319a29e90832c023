/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Admin commands, in the order in which help lists them.
 * CTL_CMD(name, permission, help)
 * permission: READ (root, the daemon's user, ipc.group, ipc.admin_group) or
 * ADMIN (root, the daemon's user, ipc.admin_group).
 * Arguments and reply fields: daemon/gate/CONTROL.md.
 */
CTL_CMD(help,     READ,  "list the commands")
CTL_CMD(status,   READ,  "state of the daemon, its worker and its model")
CTL_CMD(stat,     READ,  "all counters")
CTL_CMD(stat_fd,  READ,  "the statistics segment as a descriptor, for reading")
CTL_CMD(trace_fd, ADMIN, "the trace segment as a descriptor, for reading")
CTL_CMD(requests, ADMIN, "accepted requests that have not ended")
CTL_CMD(cancel,   ADMIN, "end one request, or all of a session")
CTL_CMD(clients,  ADMIN, "client sessions")
CTL_CMD(config,   READ,  "all parameters with value, origin and help")
CTL_CMD(set,      ADMIN, "change a parameter that may change while running")
CTL_CMD(reload,   ADMIN, "read the configuration file again, as SIGHUP does")
CTL_CMD(model,    READ,  "the loaded model and its memory")
CTL_CMD(memory,   READ,  "every buffer of the worker and the KV pool")
CTL_CMD(program,  READ,  "the model's list of operations")
CTL_CMD(profile,  ADMIN, "time of every operation of the next steps")
CTL_CMD(drain,    ADMIN, "refuse new requests and let the running ones end")
CTL_CMD(pause,    ADMIN, "hand no queued request to the worker, or go on")
CTL_CMD(stop,     ADMIN, "drain, then end the daemon")
CTL_CMD(debug,    ADMIN, "debug bits, panic text, selfcheck, kill-worker, fail-device")
