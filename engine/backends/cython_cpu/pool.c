#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* A pause takes 40 to 140 cycles: about 50 microseconds, long against the gaps between the phases of a forward pass
 * and short against the gaps between calls. */
enum { SPINS = 4000 };

typedef struct {
    pthread_mutex_t mutex; /* guards sleeping, and kept_off: tickets are atomic */
    pthread_cond_t wake;
    atomic_int asleep;
    atomic_uint ticket; /* one more for every job given to this worker */
    int rank;
#ifdef __linux__
    atomic_int id;     /* the kernel's; 0 until it has started */
    int kept_off;      /* whether it was kept off the caller's CPU, and ... */
    cpu_set_t allowed; /* ... what it may use again once it is awake */
#endif
} worker;

static struct {
    pthread_mutex_t turn; /* held for the length of a pool_run */
    worker *workers[POOL_MAX_THREADS];
    int count;
    pool_work work;
    void *arg;
    int size;
    atomic_int pending;
} pool = {.turn = PTHREAD_MUTEX_INITIALIZER};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* One step of waiting for another thread that is known to be at work: if it lost its core, it may have this one. */
static inline void wait_step(int step) {
    if (step < SPINS) relax();
    else sched_yield();
}

void pool_barrier_wait(pool_barrier *barrier, int size) {
    unsigned phase = atomic_load_explicit(&barrier->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) + 1 == (unsigned)size) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&barrier->phase, phase + 1, memory_order_release);
        return;
    }
    for (int step = 0; atomic_load_explicit(&barrier->phase, memory_order_acquire) == phase; step += step < SPINS)
        wait_step(step);
}

/* The kernel likes to wake a thread on the CPU of the one that wakes it, and lets it wait there for milliseconds while
 * another CPU is idle. So a sleeping worker is kept off the caller's CPU until it is awake. */
static void keep_off_this_cpu(worker *sleeper) {
#ifdef __linux__
    int id = atomic_load(&sleeper->id);
    if (id && !sched_getaffinity(id, sizeof sleeper->allowed, &sleeper->allowed)) {
        cpu_set_t others = sleeper->allowed;
        CPU_CLR(sched_getcpu(), &others);
        sleeper->kept_off = CPU_COUNT(&others) && !sched_setaffinity(id, sizeof others, &others);
    }
#endif
}

static void allow_all_cpus(worker *self) {
#ifdef __linux__
    if (self->kept_off) sched_setaffinity(0, sizeof self->allowed, &self->allowed);
    self->kept_off = 0;
#endif
}

static void sleep_until_next(worker *self, unsigned seen) {
    for (int step = 0; step < SPINS; step++) {
        if (atomic_load_explicit(&self->ticket, memory_order_acquire) != seen) return;
        relax();
    }
    pthread_mutex_lock(&self->mutex);
    atomic_store(&self->asleep, 1);
    while (atomic_load(&self->ticket) == seen) pthread_cond_wait(&self->wake, &self->mutex);
    atomic_store(&self->asleep, 0);
    allow_all_cpus(self);
    pthread_mutex_unlock(&self->mutex);
}

static void *worker_main(void *arg) {
    worker *self = arg;
#ifdef __linux__
    atomic_store(&self->id, (int)syscall(SYS_gettid));
#endif
    for (unsigned seen = 0;; seen++) {
        sleep_until_next(self, seen);
        pool.work(pool.arg, self->rank, pool.size);
        atomic_fetch_sub_explicit(&pool.pending, 1, memory_order_release);
    }
    return NULL;
}

/* The job's fields, written before, become visible with the ticket. */
static void give_ticket(worker *to) {
    atomic_fetch_add(&to->ticket, 1);
    if (atomic_load(&to->asleep)) {
        pthread_mutex_lock(&to->mutex);
        if (atomic_load(&to->asleep)) keep_off_this_cpu(to);
        pthread_cond_signal(&to->wake);
        pthread_mutex_unlock(&to->mutex);
    }
}

/* Python's signal handlers belong to its main thread, so workers block every signal. */
static int start_worker(int rank) {
    worker *self = calloc(1, sizeof *self);
    if (!self) return ENOMEM;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->wake, NULL);
    self->rank = rank;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, worker_main, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        free(self);
        return error;
    }
    pthread_detach(thread);
    pool.workers[pool.count++] = self;
    return 0;
}

/* A forked child has none of the workers, and the turn may have been taken by a thread that it does not have either. */
static void forget_workers(void) {
    pthread_mutex_init(&pool.turn, NULL);
    pool.count = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

int pool_run(int threads, pool_work work, void *arg) {
    if (threads <= 1) {
        work(arg, 0, 1);
        return 0;
    }
    if (threads > POOL_MAX_THREADS) return EINVAL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&pool.turn);
    int error = 0;
    while (pool.count < threads - 1 && !error) error = start_worker(pool.count + 1);
    if (!error) {
        pool.work = work;
        pool.arg = arg;
        pool.size = threads;
        atomic_store(&pool.pending, threads - 1);
        for (int i = 0; i < threads - 1; i++) give_ticket(pool.workers[i]);
        work(arg, 0, threads);
        for (int step = 0; atomic_load_explicit(&pool.pending, memory_order_acquire); step += step < SPINS)
            wait_step(step);
    }
    pthread_mutex_unlock(&pool.turn);
    return error;
}
