/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What the files of the log share: forming a line, and holding lines back. */
#ifndef FDD_DAEMON_COMMON_LOG_PRIV_H
#define FDD_DAEMON_COMMON_LOG_PRIV_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/common/log.h"

#define LOG_MSG_BYTES 2048 /* of a message, before escaping */

struct log_msg {
    int lv;
    const char *prog;
    const char *topic; /* not terminated */
    size_t topic_bytes;
    const char *text; /* behind "topic: " */
    size_t text_bytes;
    int cut; /* text is not all */
    const struct log_field *f;
    size_t n_field;
    int journal;
};

/* log_form.c. How lines look from now on: whose they are, whether the journal
 * reads them, JSON or text. */
void log_form_as(const char *prog, int journal);
void log_form_as_json(int json);
/* Take the topic off the message and write the line with its newline to
 * ret[LOG_LINE_BYTES]; returns its length. */
size_t log_form(struct log_msg *m, char *ret);
/* The same of the line that says how many were lost. */
size_t log_lost_line(uint64_t n, char *ret);
/* Of the topic that a format or a message begins with. */
size_t log_prefix_bytes(const char *fmt);
const char *log_lv_name(int lv);

/* log_out.c. To stderr, or to the queue of the writer. */
void log_put(const char *line, size_t n);
/* One more dropped line. */
void log_count_one(void);
/* The writer, as log_start() and log_fini() say. */
int log_out_start(struct lgq *q);
int log_out_fini(void);

/* log_rate.c. May the place log a line now? 0: no, and it is counted. Writes
 * how many lines its summary is to name, when a second has begun. rate 0: no
 * limit. */
int
log_rate_take(struct log_site *s, uint64_t now_ns, uint32_t rate, uint32_t *ret_dropped);
/* Next place that has lines to tell of, of all or of those whose second is
 * over; *it is NULL at first. NULL: no more. */
struct log_site *
log_rate_next(struct log_site **it, uint64_t now_ns, int all, uint32_t *ret_dropped);
/* Is there anything to tell of? Clears the mark. */
int log_rate_any(void);

#endif
