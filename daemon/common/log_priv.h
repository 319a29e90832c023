/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the log's files: forming a line, and limiting the rate of lines. */
#ifndef FDD_DAEMON_COMMON_LOG_PRIV_H
#define FDD_DAEMON_COMMON_LOG_PRIV_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/log.h"

#define LOG_MSG_BYTES 2048 /* limit of a message, before escaping */

struct log_msg {
    int lv;
    const char *prog;
    const char *topic; /* not terminated */
    size_t topic_bytes;
    const char *text; /* after "topic: " */
    size_t text_bytes;
    int cut; /* 1: the text was cut */
    const struct log_field *f;
    size_t n_field;
    int journal;
};

/* log_form.c. Set how lines look from now on: the program's name, whether the journal
 * reads them, and JSON or text. */
void log_form_as(const char *prog, int journal);
void log_form_as_json(int json);
/* Take the topic off the message and write the line with its newline to
 * ret[LOG_LINE_BYTES]; returns its length. */
size_t log_form(struct log_msg *m, char *ret);
/* Write the line that says how many lines were lost, as log_form() does. */
size_t log_lost_line(uint64_t n, char *ret);
/* Bytes of the topic that a format or a message begins with. */
size_t log_prefix_bytes(const char *fmt);
const char *log_lv_name(int lv);

/* log_out.c. Write a line to stderr, or put it into the writer's queue. */
void log_put(const char *line, size_t n);
/* Count a dropped line. */
void log_count_one(void);
/* Start and end the writer, as log_start() and log_fini() say. */
int log_out_start(struct lgq *q);
int log_out_fini(void);

/* log_rate.c. Returns whether this call site may log now; if not (0), counts the line
 * as dropped. When a second has begun, *ret_dropped is the number of lines that the
 * summary reports, else 0. rate 0: no limit. */
int
log_rate_take(struct log_site *s, uint64_t now_ns, uint32_t rate, uint32_t *ret_dropped);
/* Next call site with dropped lines to report, of all or only of those whose second is
 * over; *it is NULL at first. Returns NULL at the end. */
struct log_site *
log_rate_next(struct log_site **it, uint64_t now_ns, int all, uint32_t *ret_dropped);
/* Returns 1 if lines may have been dropped since the last call. */
int log_rate_any(void);

#endif
