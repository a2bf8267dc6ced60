#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Number of pauses before a worker sleeps, or yields in the middle of a job. Each takes 40 to 140 cycles, all about 50
 * microseconds: long beside the gaps between phases of a forward pass, and short beside those between calls. */
enum { SPINS = 4000 };

/* Number of yields before a thread sleeps in the middle of a job: about 0.2 ms where nobody else wants its CPU,
 * which is long beside the 50 microseconds that it takes to wake up. */
enum { YIELDS = 400 };

/* The stack of a worker. Kernels with tiles keep up to 80 KB in one frame, and musl gives a thread 128 KB. */
enum { STACK_BYTES = 1 << 20 };

/* A caller with less of its stack left than this does not compute: a thread with a larger stack takes its place. */
enum { STACK_NEEDED = 160 << 10 };

/* The time between two looks of a caller that waits. */
enum { LOOK_NANOSECONDS = 50000000 };

typedef struct {
    pthread_mutex_t mutex; /* guards `asleep` and `kept_off`; tickets are atomic */
    pthread_cond_t wake;
    atomic_int asleep;
    atomic_uint ticket; /* number of jobs given to this worker */
    int rank;
#ifdef __linux__
    atomic_int id;     /* the kernel's id of the thread; 0 until the thread has started */
    int kept_off;      /* 1 while the caller's CPU is removed from the worker's affinity */
    cpu_set_t allowed; /* the affinity to restore when the worker is awake */
#endif
} worker;

static struct {
    pthread_mutex_t turn; /* held during a pool_run */
    worker *workers[POOL_MAX_THREADS];
    int count;
    pool_work work;
    void *arg;
    int size;
    atomic_int first_step; /* of each wait: 0, or SPINS where all shall yield or sleep at once */
    atomic_uint pending;
    atomic_int dozing; /* threads that sleep in `wait_step` */
    atomic_int orphaned; /* 1 in a child that the caller of a pool_run forked in its middle, until that pool_run ends */
} pool = {.turn = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int inside; /* 1 while this thread is the caller of a pool_run, and has the turn */

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait one step for a thread that works and then changes `*place` from `seen`: spin at first; then yield, because that
 * thread may have lost its core and can use this one; then sleep, so that this core, now idle, takes threads. */
static void wait_step(int step, atomic_uint *place, unsigned seen) {
    if (step < SPINS) relax();
#ifdef __linux__
    else if (step == SPINS + YIELDS) {
        atomic_fetch_add(&pool.dozing, 1);
        syscall(SYS_futex, place, FUTEX_WAIT_PRIVATE, seen, &(struct timespec){0, LOOK_NANOSECONDS}, NULL, 0);
        atomic_fetch_sub(&pool.dozing, 1);
    }
#endif
    else sched_yield();
}

/* Wake the threads that wait at this place, which was changed before. */
static void wake_all(atomic_uint *place) {
#ifdef __linux__
    if (atomic_load(&pool.dozing)) syscall(SYS_futex, place, FUTEX_WAKE_PRIVATE, POOL_MAX_THREADS, NULL, NULL, 0);
#endif
}

/* Return the first step of a job's waits: with more threads than CPUs, one that spins keeps another from its work. */
static int first_step(int threads) {
#ifdef __linux__
    cpu_set_t usable;
    if (!sched_getaffinity(0, sizeof usable, &usable) && threads > CPU_COUNT(&usable)) return SPINS;
#endif
    return 0;
}

void pool_barrier_wait(pool_barrier *barrier, int size) {
    unsigned phase = atomic_load_explicit(&barrier->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) + 1 == (unsigned)size) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store(&barrier->phase, phase + 1);
        wake_all(&barrier->phase);
        return;
    }
    int step = atomic_load_explicit(&pool.first_step, memory_order_relaxed);
    for (; atomic_load_explicit(&barrier->phase, memory_order_acquire) == phase; step += step < SPINS + YIELDS) {
        if (step >= SPINS && pool_is_orphaned()) return;
        wait_step(step, &barrier->phase, phase);
    }
}

/* Linux tends to wake a thread on the CPU of the thread that wakes it, and then lets it wait there for milliseconds
 * while another CPU is idle. Therefore a sleeping worker may not use the caller's CPU until it is awake. */
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
    for (int step = atomic_load(&pool.first_step); step < SPINS; step++) {
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
        if (atomic_fetch_sub(&pool.pending, 1) == 1) wake_all(&pool.pending);
    }
    return NULL;
}

/* Give a worker the next job. The job's fields were written before and become visible with the ticket. */
static void give_ticket(worker *to) {
    atomic_fetch_add(&to->ticket, 1);
    if (atomic_load(&to->asleep)) {
        pthread_mutex_lock(&to->mutex);
        if (atomic_load(&to->asleep)) keep_off_this_cpu(to);
        pthread_cond_signal(&to->wake);
        pthread_mutex_unlock(&to->mutex);
    }
}

/* Start a thread with a large stack. It blocks every signal: Python's handlers belong to its main thread. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = pthread_create(thread, &attributes, run, arg);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int start_worker(int rank) {
    worker *self = calloc(1, sizeof *self);
    if (!self) return ENOMEM;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->wake, NULL);
    self->rank = rank;
    pthread_t thread;
    int error = start_thread(&thread, worker_main, self);
    if (error) {
        free(self);
        return error;
    }
    pthread_detach(thread);
    pool.workers[pool.count++] = self;
    return 0;
}

/* Reset the pool in a forked child, which has no workers, and perhaps not the thread that held the turn. */
static void forget_workers(void) {
    pthread_mutex_init(&pool.turn, NULL);
    pool.count = pool.dozing = 0;
    atomic_store(&pool.orphaned, inside);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

int pool_is_orphaned(void) { return inside && atomic_load_explicit(&pool.orphaned, memory_order_relaxed); }

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Wait until no other call runs. Return 0, or ECANCELED if `look` ends the wait. */
static int take_turn(pool_look look, void *arg) {
    if (!look) return pthread_mutex_lock(&pool.turn);
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!pthread_mutex_timedlock(&pool.turn, &until)) return 0;
        if (look(arg)) return ECANCELED;
    }
}

/* Wait until the workers have done their parts. */
static void wait_for_workers(pool_look look, void *arg) {
    double looked = 0;
    int step = atomic_load_explicit(&pool.first_step, memory_order_relaxed);
    for (unsigned left; (left = atomic_load(&pool.pending)); step += step < SPINS + YIELDS) {
        wait_step(step, &pool.pending, left);
        if (pool_is_orphaned()) return;
        if (step < SPINS || !look) continue;
        double now = seconds();
        if (!looked) looked = now;
        if (now - looked < 1e-9 * LOOK_NANOSECONDS) continue;
        look(arg);
        looked = now;
    }
}

/* Return about how many bytes of its stack the calling thread has left. */
static size_t stack_left(void) {
    static _Thread_local char *end; /* the lowest address of the stack */
    char here;
    if (!end) {
        pthread_attr_t attributes;
        void *lowest = NULL;
        size_t size;
        if (pthread_getattr_np(pthread_self(), &attributes)) return STACK_NEEDED;
        pthread_attr_getstack(&attributes, &lowest, &size);
        pthread_attr_destroy(&attributes);
        end = lowest;
    }
    return (size_t)(&here - end);
}

typedef struct {
    int threads;
    pool_work work;
    void *arg;
    pool_look look;
    int error;
} call;

static void *run_call(void *arg) {
    call *c = arg;
    c->error = pool_run(c->threads, c->work, c->arg, c->look);
    return NULL;
}

/* Run a call in a thread with a stack that is large enough, and wait for it. */
static int run_on_a_large_stack(call *c) {
    pthread_t thread;
    int error = start_thread(&thread, run_call, c);
    if (error) return error;
    pthread_join(thread, NULL);
    return c->error;
}

int pool_run(int threads, pool_work work, void *arg, pool_look look) {
    if (stack_left() < STACK_NEEDED) return run_on_a_large_stack(&(call){threads, work, arg, look, 0});
    if (threads <= 1) {
        work(arg, 0, 1);
        return 0;
    }
    if (threads > POOL_MAX_THREADS) return EINVAL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    int error = take_turn(look, arg);
    if (error) return error;
    inside = 1;
    while (pool.count < threads - 1 && !start_worker(pool.count + 1)) continue;
    /* Where the system grants fewer threads, fewer do the work: the result is the same. */
    if (threads > pool.count + 1) threads = pool.count + 1;
    pool.work = work;
    pool.arg = arg;
    pool.size = threads;
    atomic_store(&pool.first_step, first_step(threads));
    atomic_store(&pool.pending, threads - 1);
    for (int i = 0; i < threads - 1; i++) give_ticket(pool.workers[i]);
    work(arg, 0, threads);
    wait_for_workers(look, arg);
    int orphaned = pool_is_orphaned();
    inside = 0;
    if (orphaned) { /* the turn is a new one, which nobody has */
        atomic_store(&pool.orphaned, 0);
        return ECHILD;
    }
    pthread_mutex_unlock(&pool.turn);
    return 0;
}
