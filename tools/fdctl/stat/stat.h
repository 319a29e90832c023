/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What fdctl stat is made of: a copy of the daemon's counters, its histograms in
 * figures, and the text that Prometheus reads.
 */
#ifndef FDD_TOOLS_FDCTL_STAT_STAT_H
#define FDD_TOOLS_FDCTL_STAT_STAT_H

#include "daemon/common/prom.h"
#include "tools/fdctl/lib/fct.h"

/* "1.25 ms" of ns, else the number. */
void stt_human(const char *unit, double v, char *ret, size_t ret_bytes);

/* Which rows are shown: counters by their place in cnt_row(), then histograms. */
#define STT_N_ROW (CNT_N_GATE + CNT_N_WORKER + CNT_H__N)
/* Mark those that word (a name, group.name with the group gate, worker or hist, or
 * a glob of either) names. 0, or EX_USAGE with the message printed: none. */
int stt_pick(const char *word, uint8_t pick[STT_N_ROW]);

/* What prm_print() writes, into a file that appears under path when it is complete, mode 0644.
 * 0 or an exit code, with the message printed. */
int stt_textfile(const char *path, const struct cnt_seg *s, unsigned names);

#endif
