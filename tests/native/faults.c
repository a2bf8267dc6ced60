/* A library to preload into Python. It makes one call of a function of the C library fail: tests/faults/shim.py.
 *
 * "malloc" stands for malloc, calloc, realloc and aligned_alloc, and counts only calls that the engine's native modules
 * make, themselves or through the functions of Python and NumPy that they call, but not through Python code. All other
 * functions count every call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

enum { MODULES = 16, BLOCKS = 4096, DEPTH = 16 };

static char target[32]; /* the function whose calls are counted; empty while nothing is */
static int error_number; /* errno of the failure */
static int forever;      /* 1: all calls from the n-th on fail */
static long chosen;      /* n */
static atomic_long calls;
static atomic_int direct; /* 1 if the call that failed was made by a native module itself */

typedef struct { uintptr_t start, end; } range; /* of addresses */

static range modules[MODULES]; /* the code of the engine's native modules */
static int module_count;
static range interpreter; /* the function of Python that runs Python code */

static int is_within(range part, uintptr_t address) { return part.start <= address && address < part.end; }

static int is_native(uintptr_t address) {
    for (int i = 0; i < module_count; i++)
        if (is_within(modules[i], address)) return 1;
    return 0;
}

static void find_interpreter(void) {
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    void *start = dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault");
    if (start && dladdr1(start, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol)
        interpreter = (range){(uintptr_t)start, (uintptr_t)start + symbol->st_size};
}

static int note_module(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(info->dlpi_name, "/engine/backends/")) return 0;
    for (int i = 0; i < info->dlpi_phnum && module_count < MODULES; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            modules[module_count].start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            modules[module_count].end = modules[module_count].start + info->dlpi_phdr[i].p_memsz;
            module_count++;
        }
    return 0;
}

static int fails(const char *function) {
    if (strcmp(function, target)) return 0;
    long call = atomic_fetch_add(&calls, 1);
    if (call != chosen && !(forever && call > chosen)) return 0;
    errno = error_number;
    return 1;
}

/* Blocks that native modules have allocated themselves and not freed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *blocks[BLOCKS];
static atomic_int block_count;

static atomic_long heap_blocks; /* of the whole process */

static void *note_block(void *block, uintptr_t caller) {
    heap_blocks += block != NULL;
    if (block && is_native(caller)) {
        pthread_mutex_lock(&lock);
        if (block_count < BLOCKS) blocks[block_count++] = block;
        pthread_mutex_unlock(&lock);
    }
    return block;
}

static void forget_block(void *block) {
    heap_blocks -= block != NULL;
    if (!block || !block_count) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < block_count; i++)
        if (blocks[i] == block) {
            blocks[i] = blocks[--block_count];
            break;
        }
    pthread_mutex_unlock(&lock);
}

struct walk { int depth, found; };

static _Unwind_Reason_Code look_at_frame(struct _Unwind_Context *context, void *arg) {
    struct walk *walk = arg;
    uintptr_t address = _Unwind_GetIP(context);
    walk->found = is_native(address);
    if (walk->found || is_within(interpreter, address) || ++walk->depth == DEPTH) return _URC_END_OF_STACK;
    return _URC_NO_REASON;
}

static int allocation_fails(uintptr_t caller) {
    static __thread int walking; /* unwinding may allocate */
    if (walking || strcmp(target, "malloc")) return 0;
    struct walk walk = {0, 0};
    walking = 1;
    _Unwind_Backtrace(look_at_frame, &walk);
    walking = 0;
    if (!walk.found || !fails("malloc")) return 0;
    if (is_native(caller)) direct = 1;
    return 1;
}

#define CALLER ((uintptr_t)__builtin_return_address(0))

/* The names by which glibc exports its own functions; dlsym could allocate while it looks them up. */
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t size) { return allocation_fails(CALLER) ? NULL : note_block(__libc_malloc(size), CALLER); }
void *calloc(size_t n, size_t size) {
    return allocation_fails(CALLER) ? NULL : note_block(__libc_calloc(n, size), CALLER);
}
void *aligned_alloc(size_t alignment, size_t size) {
    return allocation_fails(CALLER) ? NULL : note_block(__libc_memalign(alignment, size), CALLER);
}
void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = aligned_alloc(alignment, size);
    return *block ? 0 : ENOMEM;
}
void *realloc(void *block, size_t size) {
    if (allocation_fails(CALLER)) return NULL;
    void *moved = __libc_realloc(block, size);
    if (moved || !size) {
        forget_block(block);
        note_block(moved, CALLER);
    }
    return moved;
}
void free(void *block) {
    forget_block(block);
    __libc_free(block);
}

#define NEXT(function) \
    static __typeof__(function) *next; \
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, #function)

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    NEXT(mmap);
    return fails("mmap") ? MAP_FAILED : next(address, length, protection, flags, file, offset);
}
void *mmap64(void *address, size_t length, int protection, int flags, int file, off64_t offset) {
    return mmap(address, length, protection, flags, file, offset);
}
int madvise(void *address, size_t length, int advice) {
    NEXT(madvise);
    return fails("madvise") ? -1 : next(address, length, advice);
}
ssize_t read(int file, void *data, size_t size) {
    NEXT(read);
    return fails("read") ? -1 : next(file, data, size);
}
ssize_t write(int file, const void *data, size_t size) {
    NEXT(write);
    return fails("write") ? -1 : next(file, data, size);
}
int fsync(int file) {
    NEXT(fsync);
    return fails("fsync") ? -1 : next(file);
}
int rename(const char *from, const char *to) {
    NEXT(rename);
    return fails("rename") ? -1 : next(from, to);
}
int open(const char *path, int flags, ...) {
    NEXT(open);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fails("open") ? -1 : next(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open(path, flags | O_LARGEFILE, mode);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg) {
    NEXT(pthread_create);
    return fails("pthread_create") ? error_number : next(thread, attributes, start, arg);
}

/* Let call n of a function fail, 0 being the next one; and all later ones too, if `on` is 1. */
void faults_arm(const char *function, long n, int error, int on) {
    find_interpreter();
    module_count = 0;
    dl_iterate_phdr(note_module, NULL);
    chosen = n;
    error_number = error;
    forever = on;
    calls = 0;
    direct = 0;
    snprintf(target, sizeof target, "%s", function);
}

/* End the counting, and return how many calls there were. */
long faults_disarm(void) {
    target[0] = 0;
    return calls;
}

int faults_direct(void) { return direct; }
int faults_live_blocks(void) { return block_count; }

/* Return how many blocks the process has allocated and not freed. */
long faults_heap_blocks(void) { return heap_blocks; }
