/* One pool of threads for the process. The caller takes part as rank 0; idle workers spin for some tens of
 * microseconds, then sleep on a futex. Not OpenMP: that deadlocks in a forked child and keeps a team per runtime. */
#pragma once
#include <stdatomic.h>

typedef void (*pool_work)(void *arg, int rank, int size);

/* Runs work(arg, rank, threads) on `threads` threads and returns 0 when all are done, or errno if a thread cannot be
 * started. Calls from several threads take turns, except that threads == 1 runs at once, outside the pool. In a forked
 * child the pool starts anew. */
int pool_run(int threads, pool_work work, void *arg);

/* Lets `size` threads of one pool_run wait for each other, any number of times. Starts as zeros. */
typedef struct {
    atomic_uint arrived;
    atomic_uint phase;
} pool_barrier;

void pool_barrier_wait(pool_barrier *barrier, int size);

enum { POOL_MAX_THREADS = 1024 };
