/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the group that has the beginning of a prompt in its prefix cache. The gate does
 * not see the caches. It remembers to which group it sent which prompt, as a chain of
 * hashes over the prompt's bytes, text or ids as the client wrote them, in one table of
 * bounded size with least-recently-used eviction.
 *
 * The chain of a prompt has a hash at each multiple of 256 bytes up to 4 KiB, and then at
 * each multiple of 1 KiB; each hash covers all bytes before it. The chain begins with the
 * user, the salt and a secret that is drawn at start: a prompt is compared only with
 * prompts of the same user and salt, so that response times do not reveal what another
 * user sent. Bytes after the first AFF_BYTES do not count.
 *
 * An entry has a group and the generation of its worker: entries of a worker that died
 * are not found any more.
 */
#ifndef FDD_DAEMON_GATE_AFFINITY_H
#define FDD_DAEMON_GATE_AFFINITY_H

#include <stdint.h>

#define AFF_ENTRIES 65536u
#define AFF_PIECE   1024u
#define AFF_SHORT   256u /* bytes between the first AFF_N_SHORT hashes */
#define AFF_N_SHORT 16u
#define AFF_HASHES  140u
#define AFF_BYTES   (AFF_N_SHORT * AFF_SHORT + (AFF_HASHES - AFF_N_SHORT) * AFF_PIECE)
#define AFF_NONE    UINT32_MAX

struct aff_entry {
    uint64_t hash;
    uint32_t generation; /* of its group's worker; 0: the entry is free */
    uint32_t group;
    uint32_t next;         /* next entry of its bucket */
    uint32_t newer, older; /* neighbours in the list by last use */
};

struct aff {
    struct aff_entry *entry; /* [n_max]; NULL: one group, no table */
    uint32_t *bucket;        /* [mask + 1] */
    uint32_t n_max, n, mask;
    uint32_t newest, oldest;
    uint64_t key[2];
};

struct aff_chain {
    uint32_t n;
    uint64_t hash[AFF_HASHES];
};

/* n_max: size of the table, a power of two. 0 or -ENOMEM. */
int aff_init(struct aff *a, uint32_t n_max, const uint64_t key[2]);
void aff_fini(struct aff *a);

/* Number of prompt bytes that hash i of a chain covers. */
static inline uint32_t
aff_bytes(uint32_t i)
{
    return i < AFF_N_SHORT ? (i + 1) * AFF_SHORT
                           : AFF_N_SHORT * AFF_SHORT + (i + 1 - AFF_N_SHORT) * AFF_PIECE;
}

/* Computes the chain of a prompt of n bytes; ret->n is 0 if the prompt is too short.
 * kind: item type of the prompt, text or ids. At most AFF_BYTES are read. */
void aff_chain(const struct aff *a, uint64_t user, const uint8_t salt[16], uint32_t kind,
    const unsigned char *prompt, uint64_t n, struct aff_chain *ret);
/* Returns the group that has most of the chain, with the number of bytes in *ret_bytes.
 * generation[g], for n_group groups: generation of group g's worker, 0 if it takes no
 * requests. AFF_NONE: no group has any of it. */
uint32_t aff_find(const struct aff *a, const struct aff_chain *c,
    const uint32_t *generation, uint32_t n_group, uint32_t *ret_bytes);
/* Records that the prompt was sent to this group. */
void
aff_note(struct aff *a, const struct aff_chain *c, uint32_t group, uint32_t generation);
/* Counts and lists agree; aborts when they do not. */
void aff_check(const struct aff *a);

#endif
