/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* How the worker uses the parameters of its device. Their effect on a device is tested by
 * kernel/k_cuda* and unit/u_memplan. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdlib.h>

#include <unistd.h>

#include "daemon/common/mem.h"
#include "daemon/worker/model.h"
#include "daemon/worker/weights.h"
#include "daemon/worker/worker.h"

static int n_may; /* processors that this process may use; 0: not known */

int
sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *ret)
{
    (void)pid;
    CPU_ZERO_S(bytes, ret);
    for (int i = 0; i < n_may; i++)
        CPU_SET_S((size_t)i, bytes, ret);
    return n_may > 0 ? 0 : -1;
}

struct fix {
    struct worker w;
    struct mdl_program prog;
    struct lnk_seg seg;
};

/* A worker with this parameter. */
static struct fix *
with(const char *name, const char *value)
{
    struct fix *f = mem_aligned(128, sizeof(*f));
    struct par_set *ps = par_new();
    char err[512];

    assert_true(f != NULL && ps != NULL);
    assert_int_equal(par_set_text(ps, "model.path", "null", PAR_FROM_SET, err, sizeof(err)),
        0);
    if (par_set_text(ps, name, value, PAR_FROM_SET, err, sizeof(err)) != 0)
        fail_msg("%s", err);
    f->w.par = *par_get(ps);
    f->w.prog = &f->prog;
    f->w.seg = &f->seg;
    par_free(ps);
    return f;
}

static void
t_open_args(void **state)
{
    struct wrk_open o;
    struct fix *f;

    (void)state;
    f = with("device.deterministic", "yes");
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.deterministic, 1);
    assert_int_equal(o.a.unfused, 0);
    free(f);
    f = with("device.fused_step", "no");
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.deterministic, 0);
    assert_int_equal(o.a.unfused, 1);
    free(f);
    f = with("device.nice", "7");
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.nice, 7);
    free(f);
    f = with("ipc.spin_us", "70");
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.spin_us, 70);
    assert_int_equal(o.a.dead, 0);
    free(f);
    f = with("parallel.tensor_parallel_size", "2");
    f->w.par.parallel_spin_limit_ms = 700;
    f->w.devs = (struct dvc){ .n = 2, .at = { { .num = 4, .name = "a" }, { .num = 2 } } };
    wrk_open_args(&f->w, &o);
    assert_true(o.a.n_rank == 2 && o.a.rank[0] == 0 && o.a.rank[1] == 1);
    assert_true(o.a.spin_limit_us >= 700000 && o.a.spin_limit_us % 700000 == 0);
    assert_true(o.a.dead == 0 && o.a.device[1] == 2);
    assert_string_equal(o.a.name[0], "a");
    assert_int_equal(o.a.n_copy, 1);
    assert_int_equal(o.a.in_host, 0);
    f->w.devs.apart[1] = 1;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.in_host, 1);
    free(f);
    f = with("parallel.custom_all_reduce", "no");
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.in_host, 0); /* one rank */
    f->w.par.parallel_tensor_parallel_size = 2;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.in_host, 1);
    free(f);
    f = with("parallel.overlap_min_tokens", "0");
    (void)snprintf(f->w.par.model_path, sizeof(f->w.par.model_path), "model");
    f->w.par.device_backend = PAR_DEVICE_BACKEND_CUDA;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.halves_least, 1024);
    f->w.par.device_backend = PAR_DEVICE_BACKEND_CPU;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.halves_least, 0);
    f->w.par.parallel_overlap_min_tokens = 7;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.halves_least, 7);
    f->w.par.device_backend = PAR_DEVICE_BACKEND_CUDA;
    f->w.par.parallel_overlap_min_tokens = -1;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.halves_least, 0);
    free(f);
    f = with("parallel.prefill_context_parallel_size", "3");
    wrk_open_args(&f->w, &o);
    assert_true(o.a.n_rank == 3 && o.a.n_copy == 3 && o.a.spin_limit_us > 0);
    f->w.par.parallel_tensor_parallel_size = 2;
    wrk_open_args(&f->w, &o);
    assert_true(o.a.n_rank == 6 && o.a.n_copy == 3);
    free(f);
    f = with("device.threads", "0");
    f->w.seg->n_group = 1;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.n_thread, 0);
    f->w.seg->n_group = 32; /* groups share the processors, at least one each */
    wrk_open_args(&f->w, &o);
    assert_in_range(o.a.n_thread, 1, (sysconf(_SC_NPROCESSORS_ONLN) + 31) / 32);
    f->w.seg->n_group = 2;
    f->w.par.parallel_tensor_parallel_size = 4; /* and so do the ranks of each group */
    wrk_open_args(&f->w, &o);
    assert_in_range(o.a.n_thread, 1, (sysconf(_SC_NPROCESSORS_ONLN) + 7) / 8);
    f->w.par.device_threads = 3;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.n_thread, 3);
    free(f);
    f = with("device.threads", "0"); /* only processors that they may use */
    f->w.seg->n_group = 2;
    n_may = 4 * (int)sysconf(_SC_NPROCESSORS_ONLN);
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.n_thread, n_may / 2);
    n_may = 0;
    free(f);
    f = with("device.test_entry", "1");
    f->w.devs = (struct dvc){ .n = 3, .at = { { .num = 4 }, { .num = 2 }, { .num = 0 } } };
    f->w.first_dev = 1;
    wrk_open_args(&f->w, &o);
    assert_int_equal(o.a.n_device, 3);
    assert_int_equal(o.a.device[0], 4);
    assert_int_equal(o.a.device[2], 0);
    assert_int_equal(o.a.rank[0], 1);
    assert_int_equal(o.a.dead, 5);
    free(f);
}

static void
t_load_args(void **state)
{
    struct wts_load_args a;
    struct fix *f;

    (void)state;
    f = with("model.load_buffer_bytes", "3m");
    wrk_load_args(&f->w, &a);
    assert_int_equal(a.buffer_bytes, 3 << 20);
    assert_int_equal(a.use_uring, 1);
    free(f);
    f = with("model.load_uring", "no");
    wrk_load_args(&f->w, &a);
    assert_int_equal(a.buffer_bytes, 64 << 20);
    assert_int_equal(a.use_uring, 0);
    free(f);
}

static void
t_plan_args(void **state)
{
    struct mpl_in in;
    struct fix *f;

    (void)state;
    f = with("kv.gpu_memory_utilization", "0.5");
    wrk_plan_args(&f->w, &in);
    assert_true(in.utilization == 0.5);
    free(f);
    f = with("kv.swap_space", "1.5");
    wrk_plan_args(&f->w, &in);
    assert_true(in.utilization == 0.9 && in.swap_gib == 1.5 && in.n_share == 1);
    f->w.par.parallel_tensor_parallel_size = 2;
    wrk_plan_args(&f->w, &in);
    assert_true(in.swap_gib == 1.5 && in.n_share == 2);
    free(f);
}

/* Regression: a memory limit below the need of two ranks or two groups was not reported:
 * it was compared with the plan of one device. */
static void
t_host_need(void **state)
{
    struct wrk_need one, need;
    struct fix *f = with("device.threads", "3");

    (void)state;
    f->w.mpl = (struct mpl){ .device_bytes = 1000,
        .host_bytes = 100,
        .n_row = 1,
        .row = { { .group = MPL_HOST_KV, .host = 1, .bytes = 70 } } };
    wrk_host_need(&f->w, &one);
    assert_int_equal(one.pinned, 70);
    f->w.par.parallel_tensor_parallel_size = 4;
    wrk_host_need(&f->w, &need);
    assert_int_equal(need.bytes, one.bytes + 3 * 1000);
    assert_int_equal(need.pinned, 70);
    assert_int_equal(need.tasks, one.tasks + 2 * 3 * 3);
    f->seg.n_group = 2;
    wrk_host_need(&f->w, &need);
    assert_int_equal(need.bytes, 2 * (one.bytes + 3 * 1000));
    assert_int_equal(need.pinned, 2 * 70);
    assert_int_equal(need.tasks, one.tasks + 2 * 3 * 7);
    f->w.par.device_threads = 0;
    n_may = CPU_SETSIZE;
    wrk_host_need(&f->w, &need);
    n_may = 0;
    assert_int_equal(need.tasks, one.tasks + 2 * (CPU_SETSIZE - 3));
    free(f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_open_args),
        cmocka_unit_test(t_load_args),
        cmocka_unit_test(t_plan_args),
        cmocka_unit_test(t_host_need),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
