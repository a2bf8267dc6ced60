/* One pool of threads for the process. The calling thread has rank 0; idle workers spin for about 50 microseconds, then
 * sleep on a futex. The pool replaces OpenMP, which deadlocks in a forked child and keeps one team per runtime. */
#pragma once
#include <stdatomic.h>

typedef void (*pool_work)(void *arg, int rank, int size);

/* Run work(arg, rank, size) on `size` threads: `threads`, or fewer if the system grants no more. Return 0 when all have
 * finished, or EINVAL for more than POOL_MAX_THREADS. Calls from several threads run one after the other, but a call with threads == 1 runs at once, outside the
 * pool. In a forked child the pool starts anew. */
int pool_run(int threads, pool_work work, void *arg);

/* A barrier for `size` threads of one pool_run, which can be used any number of times. It must be zero-initialized. */
typedef struct {
    atomic_uint arrived;
    atomic_uint phase;
} pool_barrier;

void pool_barrier_wait(pool_barrier *barrier, int size);

enum { POOL_MAX_THREADS = 1024 };
