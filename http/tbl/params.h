/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Every parameter of fdd-http, in the form of daemon/tbl/params.h, which explains the
 * columns. The section log is that of the daemon, with the enums of log.h.
 */

PAR_STR(http, host, "host", "127.0.0.1", RESTART | LIST,
    "Addresses to listen on, comma separated: IPv4, IPv6 (without brackets), or * for "
    "all. Addresses that other machines reach need keys.file. Sockets from systemd "
    "replace them. Empty: none.")
PAR_INT(http, port, "port", "", 0, 8000, 65535, RESTART,
    "TCP port. 0: the kernel chooses one; the log says which.")
PAR_STR(http, socket, "uds", "", RESTART,
    "Path of a UNIX socket to listen on as well. Empty: none.")
PAR_STR(http, root_path, "root_path", "", RELOAD,
    "Path prefix, like /llm, that a proxy leaves in front of every path; fdd-http removes it.")
PAR_BOOL(http, page, "", 1, RELOAD,
    "Serve a page at / for a conversation with the model and plots of what fdd does. "
    "The page itself needs no key; its requests do.")
PAR_INT(http, loops, "workers", "threads", 1, 1, 16, RESTART,
    "Threads that serve connections, each with its own session with each daemon. One "
    "serves about a million tokens a second.")
PAR_INT(http, prep_threads, "", "threads", 1, 1, 16, RESTART,
    "Threads that read bodies of more than 32 KiB, so that no stream waits for them.")
PAR_INT(http, max_connections, "", "connections", 1, 4096, 65536, RESTART,
    "Connections at a time; beyond that they wait to be accepted.")
PAR_INT(http, max_per_address, "", "connections", 1, 1024, 65536, RELOAD,
    "Connections of one address at a time; beyond that they are closed.")
PAR_INT(http, max_header_bytes, "", "bytes", 1024, 32768, 262144, RELOAD,
    "Request line and headers together; a request with more is answered with 431.")
PAR_INT(http, max_body_bytes, "", "bytes", 1024, 33554432, 67108864, RELOAD,
    "Body of a request; a larger one is answered with 413.")
PAR_INT(http, max_bodies_bytes, "", "bytes", 1048576, 536870912, 68719476736, RELOAD,
    "All bodies of more than 64 KiB together that are being received or wait to be "
    "read; a request beyond that is answered with 503.")
PAR_INT(http, header_timeout_ms, "", "ms", 100, 10000, 600000, RELOAD,
    "Time from the first byte of a request to the end of its headers; a slower request "
    "is answered with 408.")
PAR_INT(http, min_body_rate_bytes, "", "bytes/s", 1, 16384, 1048576, RELOAD,
    "A request whose body arrives more slowly than this, after the first 10 s, is "
    "answered with 408.")
PAR_INT(http, keep_alive_s, "timeout_keep_alive,timeout", "s", 1, 75, 86400, RELOAD,
    "A connection without a request is closed after this time.")
PAR_INT(http, max_unsent_bytes, "", "bytes", 16384, 262144, 16777216, RELOAD,
    "Most bytes of a stream that its client has not read; beyond that the request is "
    "cancelled.")
PAR_INT(http, send_timeout_ms, "", "ms", 100, 30000, 3600000, RELOAD,
    "The connection of a client that reads nothing for this long is closed.")
PAR_INT(http, max_step_age_ms, "", "ms", 0, 30000, 86400000, RELOAD,
    "/health and /ping answer 503 while the only daemon, or every daemon, has requests "
    "and has made no step for this long. This needs the daemon's statistics "
    "(ipc.group). 0: steps are not checked.")
PAR_INT(http, drain_timeout_ms, "timeout_graceful_shutdown*1000", "ms", 0, 30000, 3600000,
    RELOAD, "How long SIGTERM waits for running requests.")

PAR_STR(keys, file, "", "", RESTART,
    "File of keys; its format is in fdd-http(8). SIGHUP reads it again. Empty: no key is "
    "asked for, and only this machine is served.")

PAR_STR(daemon, socket, "", "", RESTART,
    "Client socket of fdd; sections [model NAME] replace it. Empty: the one that fdctl "
    "finds: $FDD_SOCKET, $FDD_RUNTIME_DIR, the user's own, /run/fdd/fdd.sock.")

PAR_STR(model, name, "served_model_name", "", RELOAD | LIST,
    "Names of the model in requests and answers, comma separated; the first is the one "
    "that is shown. Empty: the name that fdd reports.")

PAR_STR(chat, template, "chat_template", "", RELOAD,
    "File with the model's chat template (Jinja). Empty: the template in the model's "
    "directory, if fdd provides it; without a template chat requests are rejected.")
PAR_STR(chat, parser, "tool_call_parser,reasoning_parser", "", RELOAD,
    "Format of reasoning and tool calls in answers: a name that fdchat(3) lists, or "
    "none. Empty: the format whose markers the template contains.")
PAR_ENUM(chat, special_in_content, "",
    PAR_C(CHAT_SPECIAL_IN_CONTENT_LITERAL, "literal")
    PAR_C(CHAT_SPECIAL_IN_CONTENT_PARSE, "parse"), "literal", RELOAD,
    "How names of special tokens in the texts of a request are read. literal: as text. "
    "parse: as the tokens, as transformers does, so that a user can write turns of "
    "other roles.")

PAR_ENUM(log, level, "",
    PAR_C(LOG_LEVEL_ERROR, "error") PAR_C(LOG_LEVEL_WARN, "warn")
    PAR_C(LOG_LEVEL_INFO, "info") PAR_C(LOG_LEVEL_DEBUG, "debug")
    PAR_C(LOG_LEVEL_TRACE, "trace"), "info", RELOAD,
    "Log level.")
PAR_ENUM(log, format, "",
    PAR_C(LOG_FORMAT_TEXT, "text") PAR_C(LOG_FORMAT_JSON, "json"), "text", RELOAD,
    "Form of a log line. json: one object a line.")
PAR_INT(log, rate, "", "lines/s", 0, 100, 1000000, RELOAD,
    "Lines a second that one place in the code may log; further ones are counted, and a "
    "line says how many were not shown. 0: no limit.")
PAR_BOOL(log, access, "", 0, RELOAD,
    "Log a line for each request that was answered: address, key, path, status, bytes "
    "and time. Prompts and answers are never logged.")
