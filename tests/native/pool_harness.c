/* Many callers share the thread pool under ThreadSanitizer (`make tsan`): every job adds up all of its parts, with two
 * barriers between its phases, as a forward pass has them. Prints the number of jobs, and exits with 1 on a wrong sum.
 * Threads get small stacks unless they ask for more, as they do with musl, and a job needs a large one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "pool.h"

enum { CALLERS = 6, JOBS = 150, PARTS = 64 };
enum { SMALL_STACK = 128 << 10, LARGE_STACK = 1 << 20, FRAME = 192 << 10 };

typedef struct {
    pool_barrier barrier;
    long first[PARTS], second[PARTS];
    atomic_long next;
} job;

static void work(void *arg, int rank, int size) {
    job *j = arg;
    volatile char frame[FRAME];
    for (int i = 0; i < FRAME; i += 4096) frame[i] = (char)rank;
    for (int i = rank; i < PARTS; i += size) j->first[i] = i;
    pool_barrier_wait(&j->barrier, size);
    /* Each part reads a neighbour that another thread wrote. */
    for (long i = atomic_fetch_add(&j->next, 1); i < PARTS; i = atomic_fetch_add(&j->next, 1))
        j->second[i] = j->first[(i + 1) % PARTS];
    pool_barrier_wait(&j->barrier, size);
    if (rank == size - 1)
        for (int i = 1; i < PARTS; i++) j->second[0] += j->second[i];
}

static atomic_int wrong;

/* Nothing ends a wait; the job may be written meanwhile, so it is not read. */
static int look(void *arg) {
    (void)arg;
    return 0;
}

static void *call(void *arg) {
    unsigned seed = (unsigned)(size_t)arg;
    for (int i = 0; i < JOBS; i++) {
        job j = {0};
        int error = pool_run(1 + rand_r(&seed) % 5, work, &j, i % 2 ? look : NULL);
        if (error || j.second[0] != PARTS * (PARTS - 1) / 2) wrong++;
    }
    return NULL;
}

int main(void) {
    pthread_t callers[CALLERS];
    pthread_attr_t small, large;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, SMALL_STACK);
    pthread_setattr_default_np(&small);
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, LARGE_STACK);
    for (size_t i = 0; i < CALLERS; i++) pthread_create(&callers[i], &large, call, (void *)i);
    for (size_t i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    printf("%d jobs of %d callers, %d wrong\n", CALLERS * JOBS, CALLERS, atomic_load(&wrong));
    return wrong != 0;
}
