/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * States of a sequence.
 * REQ_ST(NAME, text)
 *
 *   WAITING -> RUNNING -> ENDED
 *   RUNNING -> PREEMPT_PENDING -> WAITING   blocks ran out
 *   RUNNING -> FINISHING -> ENDED           ended while a step holds its row
 *
 * PREEMPT_PENDING and FINISHING last until all launched steps with the row have
 * been collected: until then its last tokens may exist only on the device, and its
 * blocks may be written.
 */
REQ_ST(NEW,             "new")
REQ_ST(WAITING,         "waiting")
REQ_ST(RUNNING,         "running")
REQ_ST(PREEMPT_PENDING, "preempting")
REQ_ST(FINISHING,       "finishing")
REQ_ST(ENDED,           "ended")
