/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdctl stat: a copy of the daemon's counters, figures of its histograms, and the text
 * that Prometheus reads. */
#ifndef FDD_TOOLS_FDCTL_STAT_STAT_H
#define FDD_TOOLS_FDCTL_STAT_STAT_H

#include "daemon/common/prom.h"
#include "tools/fdctl/lib/fct.h"

/* "1.25 ms" for ns, else the number. */
void stt_human(const char *unit, double v, char *ret, size_t ret_bytes);

/* Number of rows: counters by their index in cnt_row(), then histograms. */
#define STT_N_ROW (CNT_N_GATE + CNT_N_WORKER + CNT_H__N)
/* Mark the rows that match word: a name, group.name with the group gate, worker or hist,
 * or a glob of either. Returns 0, or EX_USAGE after a message if none does. */
int stt_pick(const char *word, uint8_t pick[STT_N_ROW]);

/* Write prm_print()'s output to path, which appears when it is complete, with mode 0644.
 * Returns 0, or an exit code after a message. */
int stt_textfile(const char *path, const struct cnt_seg *s, unsigned names);

#endif
