/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The statistics segment (counter.h) as text for Prometheus, by names of ours and by those
 * of vLLM (daemon/tbl/vllm_names.h). Any thread.
 */
#ifndef FDD_DAEMON_COMMON_PROM_H
#define FDD_DAEMON_COMMON_PROM_H

#include <stdio.h>

#include "daemon/common/counter.h"

#define PRM_NAMES_FDD  1u /* fdd_num_requests_running */
#define PRM_NAMES_VLLM 2u /* vllm:num_requests_running */

/* Text format 0.0.4. s: the array of its groups, of which each has the label group, or in
 * names of vLLM engine; one alone has no group. NULL: no daemon runs. label, name="value", is one of each sample; "":
 * none. Errors stay in out. */
void prm_print(FILE *out, const struct cnt_seg *s, unsigned names, const char *label);
/* The text as the value of a label: without its quotes. */
void prm_escape(const char *text, char *ret, size_t ret_bytes);
/* Name of a counter there, without labels; written to ret. */
void prm_name(const struct cnt_row *row, char *ret, size_t ret_bytes);

#endif
