/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Records that few requests use, and a model for tests that need a real one. */
#include "config.h"

#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/mem.h"
#include "daemon/common/text.h"
#include "daemon/worker/tokenizer.h"

void
sim_more_items(struct sim *s, struct sim_req *r)
{
    unsigned char item[sizeof(r->file_ask) + FDP_MAX_FILE_NAME];
    size_t n;

    if (r->file == NULL)
        return;
    n = strlen(r->file);
    memcpy(item, &r->file_ask, sizeof(r->file_ask));
    memcpy(item + sizeof(r->file_ask), r->file, n);
    sim_item(s, r, FDP_IT_FILE, item, (uint32_t)(sizeof(r->file_ask) + n));
}

void
sim_more_forget(struct sim_req *r)
{
    free(r->bytes);
    free(r->prompt_text);
}

static void
sim_append(void *p, uint32_t *n, const struct fdp_rec *rec)
{
    char *b;

    SIM_CHECK(rec->position == *n && rec->len > 0);
    memcpy(&b, p, sizeof(b));
    b = mem_regrow(b, *n + rec->len + 1, 1);
    memcpy(b + *n, rec + 1, rec->len);
    *n += rec->len;
    b[*n] = 0;
    memcpy(p, &b, sizeof(b));
}

void
sim_more_logprobs(struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_logprob *lp = (const struct fdp_logprob *)(rec + 1);

    r->owes_text = (r->p.flags & FDP_F_TOKEN_TEXT) != 0;
    r->lp_n = rec->len / (uint32_t)sizeof(*lp);
    r->lp_position = rec->position;
    for (uint32_t i = 0; i < r->lp_n; i++)
        r->lp_ids[i] = lp[i].id;
}

/* Checks TOKEN_TEXT: the bytes of each id of the logprobs record before it. */
static void
sim_token_text(const struct sim *s, struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_token_text *t = (const struct fdp_token_text *)(rec + 1);
    const uint16_t *len = (const uint16_t *)(t + 1);
    const unsigned char *at = (const unsigned char *)(len + t->n);

    SIM_CHECK(r->owes_text && rec->position == r->lp_position && t->n == r->lp_n);
    r->owes_text = 0;
    r->n_token_text++;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint8_t *b = NULL;
        unsigned flags;
        size_t n = 0;

        SIM_CHECK(tok_id_bytes(s->tok, r->lp_ids[i], &b, &n, &flags) == 0);
        SIM_CHECK(len[i] == n && memcmp(at, b, n) == 0);
        at += len[i];
    }
    SIM_CHECK(at == (const unsigned char *)(rec + 1) + rec->len);
}

/* A special or added token, with its name. */
static void
sim_special(struct sim *s, struct sim_req *r, const struct fdp_rec *rec)
{
    const struct fdp_special *sp = (const struct fdp_special *)(rec + 1);
    const uint8_t *b = NULL;
    unsigned flags = 0;
    size_t n = 0;

    SIM_CHECK((r->p.flags & FDP_F_ALONE) != 0);
    SIM_CHECK(tok_id_bytes(s->tok, sp->id, &b, &n, &flags) == 0 && flags != 0);
    SIM_CHECK(rec->len == sizeof(*sp) + n && sp->n_text == n && memcmp(sp + 1, b, n) == 0);
    sim_ids(s, &r->s[rec->sample], rec->position, &sp->id, 1);
    r->s[rec->sample].n_special++;
}

int
sim_more_record(struct sim *s, struct sim_req *r, const struct fdp_rec *rec)
{
    switch (rec->type) {
    case FDP_T_REPLY:
        if (r->p.op == FDP_OP_FILE)
            memcpy(&r->file_size, rec + 1, sizeof(r->file_size));
        else
            memcpy(&r->info, rec + 1, sizeof(r->info));
        return 1;
    case FDP_T_BYTES:
        SIM_CHECK(r->p.op == FDP_OP_FILE);
        sim_append(&r->bytes, &r->n_bytes, rec);
        return 1;
    case FDP_T_PROMPT_TEXT:
        SIM_CHECK((r->p.flags & FDP_F_PROMPT_TEXT) != 0 && r->s[0].n_ids == r->n_prior);
        SIM_CHECK(txt_utf8((const char *)(rec + 1), rec->len) == rec->len);
        sim_append(&r->prompt_text, &r->n_prompt_text, rec);
        return 1;
    case FDP_T_TOKEN_TEXT:
        sim_token_text(s, r, rec);
        return 1;
    case FDP_T_SPECIAL:
        sim_special(s, r, rec);
        return 1;
    }
    return 0;
}

/* ---- for the programs ------------------------------------------------------------------------ */

const struct sim_cfg sim_small = { .max_reqs = 8,
    .max_seqs = 4,
    .max_tokens = 64,
    .max_len = 512,
    .n_block = 128,
    .block_size = 16,
    .chunked = 1 };

void
sim_everywhere(const struct sim_cfg *like, struct sim_rng *g,
    void (*fn)(struct sim *s, struct sim_rng *g))
{
    for (int32_t i = 0; i <= 2 * ENG_MAX_DEPTH + 1; i++) {
        struct sim_cfg c = *like;
        struct sim *s;

        c.depth = i / 2;
        c.graph = i % 2;
        c.prefix = i / 2 % 2;
        c.exec = c.depth > 0 ? FDK_EXEC_DEFER : FDK_EXEC_DEFAULT;
        c.seed = (uint64_t)i;
        s = sim_new(&c);
        fn(s, g);
        sim_drain(s);
        sim_free(s);
    }
}

void
sim_model(char *path)
{
    char name[80];
    FILE *f;

    (void)snprintf(path, 64, "/tmp/fdd-sim-XXXXXX");
    SIM_CHECK(mkdtemp(path) != NULL);
    (void)snprintf(name, sizeof(name), "%s/config.json", path);
    f = fopen(name, "w");
    SIM_CHECK(f != NULL);
    (void)fputs("{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
                "\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
                "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":16,"
                "\"vocab_size\":259,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,"
                "\"rope_theta\":10000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,"
                "\"torch_dtype\":\"float32\",\"bos_token_id\":1,\"eos_token_id\":2}",
        f);
    (void)fclose(f);
}

void
sim_model_rm(const char *path)
{
    char name[80];

    (void)snprintf(name, sizeof(name), "%s/config.json", path);
    (void)unlink(name);
    (void)rmdir(path);
}
