/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program with the restrictions of fdd.service on a machine without systemd: no
 * new privileges, no memory that is both writable and executable, only AF_UNIX, no
 * namespaces, and the unit's system call filter.
 * Usage: g_restricted LIST PROGRAM [ARG
 * ...], LIST as tests/gpu/syscalls prints it. A call that is not allowed ends the program
 * (SIGSYS); one that systemd does not know gives ENOSYS, as under systemd.
 */
#include "config.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE              65 /* Linux 6.3 */
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif
#define MAX_INS 4000
#define X32_BIT 0x40000000u

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

struct code {
    struct sock_filter ins[MAX_INS];
    unsigned short n;
};

static void
put(struct code *c, unsigned op, unsigned k, unsigned jt, unsigned jf)
{
    if (c->n < MAX_INS)
        c->ins[c->n++] = (struct sock_filter){ (unsigned short)op, (unsigned char)jt,
            (unsigned char)jf, k };
}

static void
put_ret(struct code *c, unsigned action)
{
    put(c, BPF_RET | BPF_K, action, 0, 0);
}

static void
put_load(struct code *c, size_t offset)
{
    put(c, BPF_LD | BPF_W | BPF_ABS, (unsigned)offset, 0, 0);
}

/* Adds an action for this call. The number has been loaded. */
static void
put_call(struct code *c, unsigned nr, unsigned action)
{
    put(c, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1);
    put_ret(c, action);
}

/* Lets this call fail with err if argument i, masked with bits, is equal (or not). */
static void
put_arg(struct code *c, unsigned nr, int i, unsigned bits, unsigned value, int equal,
    unsigned err)
{
    put(c, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 5);
    /* little-endian: the low half comes first */
    put_load(c, offsetof(struct seccomp_data, args) + (size_t)i * 8);
    put(c, BPF_ALU | BPF_AND | BPF_K, bits, 0, 0);
    put(c, BPF_JMP | BPF_JEQ | BPF_K, value, equal ? 0 : 1, equal ? 1 : 0);
    put_ret(c, SECCOMP_RET_ERRNO | err);
    put_load(c, offsetof(struct seccomp_data, nr));
}

static void
put_rules(struct code *c)
{
    const unsigned wx = PROT_WRITE | PROT_EXEC;

    put_load(c, offsetof(struct seccomp_data, arch));
    put(c, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    put_ret(c, SECCOMP_RET_KILL_PROCESS);
    put_load(c, offsetof(struct seccomp_data, nr));
    put(c, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
    put_ret(c, SECCOMP_RET_KILL_PROCESS);
    /* MemoryDenyWriteExecute */
    put_arg(c, SYS_mmap, 2, wx, wx, 1, EPERM);
    put_arg(c, SYS_mprotect, 2, PROT_EXEC, PROT_EXEC, 1, EPERM);
    put_arg(c, SYS_pkey_mprotect, 2, PROT_EXEC, PROT_EXEC, 1, EPERM);
    /* RestrictAddressFamilies=AF_UNIX */
    put_arg(c, SYS_socket, 0, 0xffffffffu, AF_UNIX, 0, EAFNOSUPPORT);
    /* RestrictNamespaces: a filter cannot read clone3's structure */
    put_call(c, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
    put_call(c, SYS_unshare, SECCOMP_RET_ERRNO | EPERM);
    put_call(c, SYS_setns, SECCOMP_RET_ERRNO | EPERM);
}

/* Adds the lines of the list. Returns 0, or -EINVAL. */
static int
put_list(struct code *c, const char *path)
{
    FILE *fp = fopen(path, "re");
    char word[16], name[64];
    unsigned nr, n = 0;
    int rc;

    if (fp == NULL)
        return -errno;
    while ((rc = fscanf(fp, "%15s %u %63s", word, &nr, name)) == 3) {
        if (strcmp(word, "allow") != 0 && strcmp(word, "kill") != 0)
            break;
        n += word[0] == 'a';
        put_call(c, nr, word[0] == 'a' ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS);
    }
    (void)fclose(fp);
    put_ret(c, SECCOMP_RET_ERRNO | ENOSYS);
    return rc != EOF || n == 0 || c->n >= MAX_INS ? -EINVAL : 0;
}

int
main(int argc, char **argv)
{
    static struct code c;
    struct sock_fprog prog = { .filter = c.ins };
    int rc;

    if (argc < 3) {
        (void)fprintf(stderr, "usage: g_restricted LIST PROGRAM [ARG ...]\n");
        return 64;
    }
    put_rules(&c);
    rc = put_list(&c, argv[1]);
    if (rc != 0) {
        (void)fprintf(stderr, "g_restricted: %s: %s\n", argv[1], strerror(-rc));
        return 66;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        perror("g_restricted: no new privileges");
        return 71;
    }
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0)
        (void)fprintf(stderr,
            "note: this kernel has no PR_SET_MDWE (6.3): the filter's "
            "rules for mmap and mprotect alone\n");
    prog.len = c.n;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) != 0) {
        perror("g_restricted: system call filter");
        return 71;
    }
    (void)execvp(argv[2], argv + 2);
    perror(argv[2]);
    return errno == ENOENT ? 127 : 126;
}
