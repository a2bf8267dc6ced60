/* One pool of threads for the process. The calling thread has rank 0; idle workers spin for about 50 microseconds, then
 * sleep on a futex. The pool replaces OpenMP, which deadlocks in a forked child and keeps one team per runtime. */
#pragma once
#include <stdatomic.h>

typedef void (*pool_work)(void *arg, int rank, int size);
typedef int (*pool_look)(void *arg);

/* Run work(arg, rank, size) on `size` threads: `threads`, or fewer if the system grants no more. Calls from several
 * threads run one after the other, but a call with threads == 1 runs at once, outside the pool.
 *
 * look: NULL, or a function that the caller's thread calls about every 50 ms while it waits. While it waits for other
 * calls, a result other than 0 ends the call; while it waits for the threads of its own work, the result means nothing.
 *
 * A caller with a small stack does not compute itself: a thread that is made for the call takes its place.
 *
 * Return 0 when all have finished, the error of pthread_create where a call needs a thread and gets none, EINVAL for
 * more than POOL_MAX_THREADS, ECANCELED if `look` ended the call before the work began, and ECHILD in a child that was
 * forked inside the work, whose other threads do not exist there: then the results of the work mean nothing. In a
 * forked child the pool starts anew. */
int pool_run(int threads, pool_work work, void *arg, pool_look look);

/* Return whether this process was forked inside the work that the calling thread is doing. */
int pool_is_orphaned(void);

/* A barrier for `size` threads of one pool_run, which can be used any number of times. It must be zero-initialized.
 * Nobody waits at it in a child that was forked inside the work. */
typedef struct {
    atomic_uint arrived;
    atomic_uint phase;
} pool_barrier;

void pool_barrier_wait(pool_barrier *barrier, int size);

enum { POOL_MAX_THREADS = 1024 };
