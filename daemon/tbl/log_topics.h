/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Topics of log lines: the word before the colon in each line's text. Each topic may
 * have a level of its own (log.levels, `fdctl debug --topic`).
 * LOG_TOPIC(name, help)
 */
LOG_TOPIC(config,    "the configuration and its warnings")
LOG_TOPIC(gate,      "start, end and state of the daemon")
LOG_TOPIC(session,   "client connections")
LOG_TOPIC(intake,    "requests as clients hand them in")
LOG_TOPIC(relay,     "records between clients and worker")
LOG_TOPIC(request,   "one line per ended request (log.requests), slow requests")
LOG_TOPIC(supervise, "start, death and restart of the worker")
LOG_TOPIC(control,   "changes made through the admin socket")
LOG_TOPIC(worker,    "life of the worker")
LOG_TOPIC(load,      "reading the model")
LOG_TOPIC(peak,      "what the device can do, as measured")
LOG_TOPIC(memory,    "memory of the worker and the KV cache")
LOG_TOPIC(ingress,   "requests as the worker takes them")
LOG_TOPIC(engine,    "steps and what ends them")
LOG_TOPIC(sched,     "decisions of the scheduler")
LOG_TOPIC(runner,    "graphs and launches")
LOG_TOPIC(log,       "the log itself: lines that were lost")
