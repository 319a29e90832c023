/*
 * The engine thread allocates nothing once it is ready, whatever comes:
 * malloc and its kin are interposed here and counted while eng_poll() runs.
 * Null backend, and a tiny model on the cpu backend with and without graphs.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "tests/sim/sim.h"

/* volatile: the compiler knows that malloc reads nobody's variables */
static __thread volatile int counting;
static volatile unsigned long n_alloc;

/* A sanitizer has its own malloc: then the run counts nothing, and is looked at
 * by the sanitizer. */
#ifndef FDD_SANITIZED

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *
malloc(size_t n)
{
    n_alloc += (unsigned long)counting;
    return __libc_malloc(n);
}

void *
calloc(size_t n, size_t size)
{
    n_alloc += (unsigned long)counting;
    return __libc_calloc(n, size);
}

void *
realloc(void *p, size_t n)
{
    n_alloc += (unsigned long)counting;
    return __libc_realloc(p, n);
}

void
free(void *p)
{
    n_alloc += (unsigned long)(counting && p != NULL);
    __libc_free(p);
}

#endif

static void
ask(struct sim *s, struct sim_rng *g)
{
    struct sim_req *r = sim_req(s);

    if (r == NULL)
        return;
    r->n_prompt = sim_range(g, 1, 60);
    r->prompt = mem_array(r->n_prompt, 4);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        r->prompt[i] = sim_range(g, 0, 200);
    r->p.max_new = sim_range(g, 1, 40);
    r->p.n = (uint16_t)sim_range(g, 1, 3);
    r->p.flags |= FDP_F_LOGPROBS | FDP_F_PROMPT_LOGPROBS;
    r->p.logprobs = r->p.prompt_logprobs = 5;
    sim_submit(s, r, NULL);
}

static void
run(struct sim_cfg cfg, int polls)
{
    struct sim *s = sim_new(&cfg);
    struct sim_rng g = { 3 };

    SIM_CHECK(run_warm(s->run, cfg.max_tokens) == 0);
    n_alloc = 0;
    for (int i = 0; i < polls || s->n_open > 0; i++) {
        if (i < polls && sim_u32(&g) % 4 == 0)
            ask(s, &g);
        if (sim_u32(&g) % 20 == 0 && s->reqs[0].used && !s->reqs[0].terminal)
            sim_cancel(s, &s->reqs[0], FDP_E_CANCELLED);
        (void)ing_poll(s->pip->ing, s->now_ns);
        counting = 1;
        (void)eng_poll(s->pip->eng, s->now_ns);
        counting = 0;
        (void)sim_poll(s);
    }
    (void)printf("  %llu tokens, %llu preempted: %lu allocations\n",
        (unsigned long long)s->n_tokens,
        (unsigned long long)s->pip->eng->sch->n_preempted, n_alloc);
    SIM_CHECK(s->n_tokens > 100 && n_alloc == 0);
    sim_free(s);
}

int
main(void)
{
    struct sim_cfg cfg = { .max_reqs = 16, .max_seqs = 8, .max_tokens = 64, .max_len = 128,
        .n_block = 12, .block_size = 16, .chunked = 1, .check_tokens = 1, .threads = 2 };
    char dir[] = "/tmp/fdd-u-engine-XXXXXX", path[64];
    FILE *f;

#ifndef FDD_SANITIZED
    /* the count counts */
    void *volatile p;

    counting = 1;
    p = malloc(10);
    free(p);
    counting = 0;
    SIM_CHECK(n_alloc == 2);
#endif
    run(cfg, 800);
    cfg.graph = 1;
    run(cfg, 800);
    SIM_CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(path, sizeof(path), "%s/config.json", dir);
    f = fopen(path, "w");
    SIM_CHECK(f != NULL);
    (void)fputs("{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
        "\"vocab_size\":259,\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,"
        "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,"
        "\"torch_dtype\":\"bfloat16\",\"bos_token_id\":1,\"eos_token_id\":2}", f);
    (void)fclose(f);
    cfg.model_dir = dir;
    cfg.check_tokens = 0;
    run(cfg, 150);
    cfg.graph = 0;
    run(cfg, 150);
    (void)unlink(path);
    (void)rmdir(dir);
    return 0;
}
