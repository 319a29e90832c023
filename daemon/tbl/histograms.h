/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Every histogram of the statistics segment. The worker writes them, the gate those of
 * its loop. Append only.
 *
 * CNT_HIST(name, unit, bounds, help)
 * unit: ns or a count. bounds: cnt_bounds_<bounds> of counter.c. They include the bounds
 * that dashboards of other servers expect, and finer ones where fdd is faster.
 */
CNT_HIST(ttft,             ns,        ttft,    "from submit to the first token")
CNT_HIST(itl,              ns,        itl,     "between two successive tokens of a sequence")
CNT_HIST(tpot,             ns,        itl,     "mean time per output token of a request after the first token")
CNT_HIST(e2e,              ns,        request, "from submit to the end of a request")
CNT_HIST(queue,            ns,        request, "from submit until a request is first scheduled")
CNT_HIST(prefill,          ns,        request, "from first scheduled to the first token")
CNT_HIST(decode,           ns,        request, "from the first token to the end of a request")
CNT_HIST(inference,        ns,        request, "from first scheduled to the end of a request")
CNT_HIST(prompt_tokens,    tokens,    tokens,  "tokens of a request's prompt")
CNT_HIST(gen_tokens,       tokens,    tokens,  "output tokens of a request, all samples")
CNT_HIST(max_gen_tokens,   tokens,    tokens,  "output tokens of a request's longest sample")
CNT_HIST(params_n,         sequences, n,       "samples that a request wants")
CNT_HIST(params_max_tokens, tokens,   tokens,  "output tokens a request may have")
CNT_HIST(step_tokens,      tokens,    step,    "tokens of an engine step")
CNT_HIST(step_ns,          ns,        fine,    "device time of an engine step")
CNT_HIST(gap_ns,           ns,        fine,    "time the device was idle between two steps although there was work")
CNT_HIST(loop_ns,          ns,        loop,    "CPU time of an iteration of the gate's loop")
CNT_HIST(loop_wall_ns,     ns,        loop,    "wall time of an iteration of the gate's loop, without its sleep")
CNT_HIST(ahead_ns,         ns,        fine,    "from when an engine step is picked until the device begins it")
