/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Debug bits of log.debug and `fdctl debug +bit -bit`.
 * DBG_BIT(name, help)
 */
DBG_BIT(sched,     "decisions of the scheduler, one line per step")
DBG_BIT(batch,     "composition of each step")
DBG_BIT(kv,        "allocation and release of KV blocks")
DBG_BIT(ring,      "records between client, gate and worker")
DBG_BIT(selfcheck, "walk whole structures after each step and abort when they disagree")
DBG_BIT(faults,    "`fdctl debug fail-device` and `stop-rank` may break the next step")
