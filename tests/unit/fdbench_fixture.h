/* What fdbench's two unit tests share: a model, a workload, and what a call
 * prints on standard error. Included behind cmocka.h. */
#ifndef FDD_TESTS_UNIT_FDBENCH_FIXTURE_H
#define FDD_TESTS_UNIT_FDBENCH_FIXTURE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/fdbench/work.h"

#define VOCAB 777u
#define BOS 5u
#define EOS 7u

static char said[4096];
static int saved_stderr;

static void
listen_begin(void)
{
    FILE *f = tmpfile();

    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    assert_non_null(f);
    dup2(fileno(f), STDERR_FILENO);
    fclose(f);
}

static const char *
listen_end(void)
{
    ssize_t n;

    fflush(stderr);
    n = pread(STDERR_FILENO, said, sizeof(said) - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    return said;
}

#define SAYS(call, code, text)                                          \
    do {                                                                \
        int rc_;                                                        \
        listen_begin();                                                 \
        rc_ = (call);                                                   \
        assert_string_equal(listen_end(), text);                        \
        assert_int_equal(rc_, code);                                    \
    } while (0)

static const struct fdp_info model = { .vocab = VOCAB, .max_model_len = 100000,
    .bos_id = BOS, .n_eos = 1, .eos_ids = { EOS } };

static void
cfg_of(struct fdb_cfg *c, enum fdb_arrival arrival, double rate, uint32_t n)
{
    fdb_cfg_init(c);
    c->seed = 11;
    c->arrival = arrival;
    c->rate = rate;
    c->n_request = n;
    c->n_warm = 0;
    c->concurrency = arrival == FDB_CLOSED ? 4 : 0;
    c->in = (struct fdb_len){ FDB_UNIFORM, 3, 9 };
    c->out = (struct fdb_len){ FDB_UNIFORM, 2, 6 };
}

#endif
