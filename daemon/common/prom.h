/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics segment (counter.h) as text for Prometheus, under fdd's own names and
 * those of vLLM (daemon/tbl/vllm_names.h). Any thread.
 */
#ifndef FDD_DAEMON_COMMON_PROM_H
#define FDD_DAEMON_COMMON_PROM_H

#include <stdio.h>

#include "daemon/common/counter.h"

#define PRM_NAMES_FDD  1u /* fdd_num_requests_running */
#define PRM_NAMES_VLLM 2u /* vllm:num_requests_running */

/* Print in text format 0.0.4. s: the array of groups; NULL: no daemon runs. Each
 * group's samples have the label group, or engine under vLLM's names; if there is one
 * group, the label group is left out. label: name="value", added to each sample, or "".
 * Output errors stay in out. */
void prm_print(FILE *out, const struct cnt_seg *s, unsigned names, const char *label);
/* Escape text for the value of a label; without the quotes. */
void prm_escape(const char *text, char *ret, size_t ret_bytes);
/* Write the metric name of a counter, without labels, to ret. */
void prm_name(const struct cnt_row *row, char *ret, size_t ret_bytes);

#endif
