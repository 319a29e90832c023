/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Admin commands in the order in which help lists them, each followed by its
 * arguments. These rows generate the check of a request, fdctl's --help (from which
 * shells complete) and the table of doc/control.md.
 *
 * CTL_CMD(name, permission, effect, help)
 *   permission  READ or ADMIN: the users that doc/control.md names
 *   effect      SHOW or CHANGE: decides how the command is logged
 * CTL_ARG(command, name, letter, type, need, min, max, form, value, help)
 *   letter      fdctl's short option; 0: none
 *   type        BOOL, INT (from min to max), STR (min to max bytes) or ENUM (one of the
 *               words of value)
 *   need        ANY: optional; MUST: required; ONE: exactly one of the command's
 *               arguments with ONE
 *   form        its form in fdctl: OPT an option, WORD a word, OWN another form
 *   value       the value's placeholder in help texts; for ENUM the words, "a|b"
 */
CTL_CMD(help,     READ,  SHOW,   "list the commands")
CTL_CMD(status,   READ,  SHOW,   "state of the daemon, its worker and its model")
CTL_CMD(stat,     READ,  SHOW,   "all counters")
CTL_CMD(stat_fd,  READ,  SHOW,   "the statistics segment as a descriptor, for reading")
CTL_CMD(trace_fd, ADMIN, SHOW,   "the trace segment as a descriptor, for reading")
CTL_ARG(trace_fd, group, 'g', INT, ANY, 0, 31, OPT, "N",
    "the segment of this group (0)")
CTL_CMD(requests, ADMIN, SHOW,   "accepted requests that have not ended")
CTL_CMD(cancel,   ADMIN, CHANGE, "end one request, or all of a session")
CTL_ARG(cancel, id, 0, INT, ONE, 1, INT64_MAX, WORD, "ID",
    "the request with this number")
CTL_ARG(cancel, session, 0, INT, ONE, 1, INT64_MAX, OPT, "N",
    "every request of this session")
CTL_CMD(clients,  ADMIN, SHOW,   "client sessions")
CTL_CMD(config,   READ,  SHOW,   "parameters with value, origin and help")
CTL_ARG(config, name, 0, STR, ANY, 1, 255, WORD, "NAME",
    "only this parameter, or those that a name of another server stands for")
CTL_CMD(set,      ADMIN, CHANGE, "change a parameter that may change while running")
CTL_ARG(set, name, 0, STR, MUST, 1, 255, OWN, "NAME",
    "the parameter")
CTL_ARG(set, value, 0, STR, MUST, 0, 511, OWN, "VALUE",
    "its new value, written as in the configuration file")
CTL_CMD(reload,   ADMIN, CHANGE, "read the configuration file again, as SIGHUP does")
CTL_ARG(reload, rolling, 0, BOOL, ANY, 0, 0, OPT, NULL,
    "then start the workers of all groups again, one after another; requests go on")
CTL_CMD(model,    READ,  SHOW,   "the loaded model and its memory")
CTL_ARG(model, group, 'g', INT, ANY, 0, 31, OPT, "N",
    "the worker of this group (the first that is ready)")
CTL_CMD(memory,   READ,  SHOW,   "every buffer of the worker and the KV pool")
CTL_ARG(memory, group, 'g', INT, ANY, 0, 31, OPT, "N",
    "the worker of this group (the first that is ready)")
CTL_CMD(program,  READ,  SHOW,   "the model's list of operations")
CTL_ARG(program, tokens, 0, INT, ANY, 1, 1000000, OPT, "N",
    "for a step of that many tokens (1)")
CTL_ARG(program, rows, 0, INT, ANY, 1, 1000000, OPT, "N",
    "and that many sequences (as many as tokens)")
CTL_ARG(program, context, 0, INT, ANY, 1, 10000000, OPT, "TOKENS",
    "each with that many tokens in the KV cache (128)")
CTL_ARG(program, group, 'g', INT, ANY, 0, 31, OPT, "N",
    "as bound by the worker of this group (the first that is ready)")
CTL_CMD(profile,  ADMIN, CHANGE, "time of every operation of the next steps")
CTL_ARG(profile, steps, 'n', INT, ANY, 1, 10000, OPT, "N",
    "measure that many steps (32)")
CTL_ARG(profile, within_ms, 0, INT, ANY, 1, 600000, OWN, "MS",
    "and wait for them no longer (10000)")
CTL_ARG(profile, batch, 'b', INT, ANY, 0, INT32_MAX, OPT, "ROWS",
    "a synthetic step with that many rows that decode (0)")
CTL_ARG(profile, context, 'c', INT, ANY, 1, INT32_MAX, OPT, "TOKENS",
    "tokens in the KV cache of each of these rows (1024, or the model's length)")
CTL_ARG(profile, prefill, 'p', INT, ANY, 0, INT32_MAX, OPT, "TOKENS",
    "and one row with a prompt of that many tokens (0)")
CTL_ARG(profile, measure, 0, BOOL, ANY, 0, 0, OPT, NULL,
    "measure the device's peak again")
CTL_ARG(profile, group, 'g', INT, ANY, 0, 31, OPT, "N",
    "the worker of this group (the first that is ready)")
CTL_CMD(drain,    ADMIN, CHANGE, "reject new requests and let the running ones end")
CTL_ARG(drain, wait, 0, BOOL, ANY, 0, 0, OPT, NULL,
    "answer when no request is left")
CTL_ARG(drain, off, 0, BOOL, ANY, 0, 0, OPT, NULL,
    "take requests again")
CTL_ARG(drain, timeout_ms, 0, INT, ANY, 0, 86400000, OPT, "MS",
    "wait at most this long (daemon.drain_timeout_ms)")
CTL_CMD(pause,    ADMIN, CHANGE, "send no queued request to the worker, or resume")
CTL_ARG(pause, off, 0, BOOL, ANY, 0, 0, OPT, NULL,
    "resume")
CTL_CMD(stop,     ADMIN, CHANGE, "drain, then end the daemon")
CTL_ARG(stop, now, 0, BOOL, ANY, 0, 0, OPT, NULL,
    "end running requests at once")
CTL_ARG(stop, timeout_ms, 0, INT, ANY, 0, 86400000, OPT, "MS",
    "wait for running requests at most this long (daemon.drain_timeout_ms)")
CTL_CMD(debug,    ADMIN, CHANGE, "log levels, debug bits, last message of a dead worker")
CTL_ARG(debug, level, 0, ENUM, ANY, 0, 0, OPT, "error|warn|info|debug|trace",
    "level of all topics that have none of their own")
CTL_ARG(debug, topic, 0, STR, ANY, 1, 511, OPT, "TOPIC=LEVEL",
    "level of one topic; TOPIC=default removes it")
CTL_ARG(debug, bits, 0, STR, ANY, 0, 511, OWN, "BITS",
    "debug bits: +BIT and -BIT change one, a list replaces all")
CTL_ARG(debug, panic, 0, BOOL, ANY, 0, 0, WORD, NULL,
    "show the last message of the worker that died last")
CTL_ARG(debug, selfcheck, 0, BOOL, ANY, 0, 0, WORD, NULL,
    "check the gate's structures")
CTL_ARG(debug, kill_worker, 0, BOOL, ANY, 0, 0, WORD, NULL,
    "end the worker; it is started again")
CTL_ARG(debug, fail_device, 0, BOOL, ANY, 0, 0, WORD, NULL,
    "make the worker's device fail in the next step (tests; needs the bit faults)")
CTL_ARG(debug, stop_rank, 0, BOOL, ANY, 0, 0, WORD, NULL,
    "stop the launch thread of its last rank before the next step (tests; needs the bit faults)")
CTL_ARG(debug, rank, 0, INT, ANY, 0, 7, OWN, "N",
    "rank for fail_device (0) and stop_rank (the last)")
CTL_ARG(debug, group, 'g', INT, ANY, 0, 31, OPT, "N",
    "the group for panic, kill-worker, fail-device and stop-rank (the first that is ready)")
