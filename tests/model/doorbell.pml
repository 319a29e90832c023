/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The doorbell of a ring under total store order: one store buffer a side.
 *
 *   producer   fdr_publish(tail), fdr_flag_check(waiting), ring
 *   consumer   fdr_flag_raise(waiting), fdr_cons_recheck(tail), sleep
 *
 * FENCE=1    the publishing and the raising store leave the buffer before
 *            the load that follows (the sequentially consistent exchange)
 * RECHECK=1  the consumer looks at the ring once more before it sleeps
 *
 * A lost wake-up is a consumer that sleeps for ever: an invalid end state.
 * The bell stays rung until it is heard, as an eventfd's counter does and as
 * FUTEX_WAIT does by comparing the cursor.
 */
#ifndef FENCE
#define FENCE 1
#endif
#ifndef RECHECK
#define RECHECK 1
#endif
#define N 4               /* records */

byte tail = 0;
byte head = 0;
bit waiting = 0;
bit bell = 0;

byte tail_val = 0;        /* the producer's buffered store */
bit tail_full = 0;
bit wait_val = 0;         /* the consumer's */
bit wait_full = 0;

inline store_tail(v)
{
    atomic { (!tail_full) -> tail_val = v; tail_full = 1 }
}

inline store_wait(v)
{
    atomic { (!wait_full) -> wait_val = v; wait_full = 1 }
}

active proctype drain_producer()
{
end:
    do
    :: atomic { tail_full -> tail = tail_val; tail_full = 0 }
    od
}

active proctype drain_consumer()
{
end:
    do
    :: atomic { wait_full -> waiting = wait_val; wait_full = 0 }
    od
}

active proctype producer()
{
    byte i = 0;
    bit w;
    do
    :: i < N ->
        i++;
        store_tail(i);
#if FENCE
        (!tail_full);
#endif
        w = waiting;
        if
        :: w -> bell = 1
        :: else
        fi
    :: else -> break
    od
}

active proctype consumer()
{
    byte t;
    do
    :: head == N -> break
    :: else ->
        t = tail;
        if
        :: t > head ->
            assert(t <= N);
            head = t
        :: else ->
            store_wait(1);
#if FENCE
            (!wait_full);
#endif
#if RECHECK
            t = tail;
            if
            :: t > head -> store_wait(0); goto again
            :: else
            fi;
#endif
            atomic { bell -> bell = 0 };
            store_wait(0)
        fi;
again:
        skip
    od
}
