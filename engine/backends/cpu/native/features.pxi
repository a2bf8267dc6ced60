# Name the instruction sets; find out which of them this CPU and its operating system can run, and why not the others.

cdef extern from *:
    """
    #include <errno.h>
    #include <string.h>
    #if defined(__x86_64__)
    #define ARCHITECTURE "x86_64"
    #include <cpuid.h>
    #include <unistd.h>
    #include <sys/syscall.h>
    /* clang 14's __builtin_cpu_supports does not know its name. */
    static int has_avxvnni(void) {
        unsigned eax, ebx, ecx, edx;
        return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && eax & 1 << 4;
    }
    static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
    static int has_avx512(void) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && has_avx2();
    }
    static int has_avx512vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
    static int cpu_has(const char *isa) {
        __builtin_cpu_init();
        if (!strcmp(isa, "avx2")) return has_avx2();
        if (!strcmp(isa, "avxvnni")) return has_avx2() && has_avxvnni();
        if (!strcmp(isa, "avx512")) return has_avx512();
        if (!strcmp(isa, "avx512vnni")) return has_avx512vnni();
        if (!strcmp(isa, "avx512bf16")) return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
        return 0;       /* a name that is not known here is never confirmed */
    }
    static int cpu_is_amd(void) { return __builtin_cpu_init(), __builtin_cpu_is("amd"); }

    /* AMX's tiles. CPUID names the instructions, XCR0 says whether the operating system saves the tiles, and Linux
     * wants to be asked: the answer holds for all threads of the process and cannot be taken back. The first answer is
     * kept, so that all models of a process run on the same kernels. */
    static int cpu_has_tiles(void) {
        unsigned eax, ebx, ecx, edx, wanted = 1u << 22 | 1u << 24 | 1u << 25;   /* AMX-BF16, AMX-TILE, AMX-INT8 */
        return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & wanted) == wanted;
    }
    static int system_saves_tiles(void) {
        unsigned eax, ebx, ecx, edx, low, high, wanted = 3u << 17;              /* XTILECFG, XTILEDATA */
        if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return 0;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        return (low & wanted) == wanted;
    }
    static int ask_for_tiles(void) {    /* 0, or the number of an error */
        static int answer = -1;
    #ifdef __linux__
        enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
        if (answer < 0) answer = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) ? errno : 0;
    #else
        answer = ENOSYS;
    #endif
        return answer;
    }
    #else
    #if defined(__aarch64__)
    #define ARCHITECTURE "aarch64"
    #if defined(__linux__)
    #include <sys/auxv.h>
    /* The bits are those of Linux's asm/hwcap.h, whose older versions lack the last one. */
    static int has_vectors(void) { return getauxval(AT_HWCAP) >> 1 & 1; }
    static int has_dot_products(void) { return getauxval(AT_HWCAP) >> 20 & getauxval(AT_HWCAP) >> 8 & 1; }
    static int has_matrix_products(void) { return getauxval(AT_HWCAP2) >> 14 & getauxval(AT_HWCAP2) >> 13 & 1; }
    #elif defined(__APPLE__)
    #include <sys/sysctl.h>
    static int lists(const char *feature) {
        int answer = 0;
        size_t size = sizeof answer;
        return !sysctlbyname(feature, &answer, &size, NULL, 0) && answer;
    }
    static int has_vectors(void) { return 1; }      /* all of Apple's CPUs for arm64 */
    static int has_dot_products(void) { return lists("hw.optional.arm.FEAT_DotProd"); }
    static int has_matrix_products(void) {
        return lists("hw.optional.arm.FEAT_BF16") && lists("hw.optional.arm.FEAT_I8MM");
    }
    #else
    static int has_vectors(void) { return 0; }      /* we know of no way to ask */
    static int has_dot_products(void) { return 0; }
    static int has_matrix_products(void) { return 0; }
    #endif
    static int cpu_has(const char *isa) {
        if (!strcmp(isa, "neon")) return has_vectors();
        if (!strcmp(isa, "neondot")) return has_vectors() && has_dot_products();
        if (!strcmp(isa, "neonbf16")) return has_vectors() && has_dot_products() && has_matrix_products();
        return 0;       /* a name that is not known here is never confirmed */
    }
    #else
    #define ARCHITECTURE ""
    static int cpu_has(const char *isa) { return 0; }
    #endif
    static int cpu_is_amd(void) { return 0; }
    static int cpu_has_tiles(void) { return 0; }
    static int system_saves_tiles(void) { return 0; }
    static int ask_for_tiles(void) { return 0; }
    #endif
    """
    enum:
        ENOSPC
    const char* CPU_ARCHITECTURE "ARCHITECTURE"
    bint cpu_has(const char* isa)       # False for a name that it does not know
    bint cpu_is_amd()
    bint cpu_has_tiles()
    bint system_saves_tiles()
    int ask_for_tiles()     # 0, or an errno; the first answer holds for the process

ARCHITECTURE = CPU_ARCHITECTURE.decode()

# The instruction sets of each architecture, the fastest first on AMD's CPUs (`isa.fastest_first`); cpu_has has a check
# for each. Sets with vnni or dot have instructions for int8 products, bf16 also for bfloat16 products, and amx
# multiplies whole tiles of both.
OF_ARCHITECTURE = {"x86_64": ("amx", "avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2"),
                   "aarch64": ("neonbf16", "neondot", "neon")}
_LISTED_AS = {"neon": " (asimd)", "neondot": " (atomics and asimddp)",         # by Linux
              "neonbf16": " (atomics, asimddp, bf16 and i8mm)"}


def refusal(str isa):
    """Return why this CPU or its operating system cannot run the kernels of an instruction set, or None if they can.

    A name that has no check here is always refused; "baseline", "wide" and "amxemulated" need no check.
    """
    cdef int error
    cdef bytes vectors = b"avx512bf16" if isa == "amx" else isa.encode()
    if not cpu_has(vectors):
        return f"this CPU, or its operating system, lacks {isa}{_LISTED_AS.get(isa, '')}"
    if isa != "amx":
        return None
    if not cpu_has_tiles():
        return "this CPU lacks amx: it has no tiles with bfloat16 and int8 products"
    if not system_saves_tiles():
        return "the operating system, or the monitor of this virtual machine, does not enable amx"
    error = ask_for_tiles()
    if error == ENOSPC:
        return "Linux does not let this process use amx: the signal stack of a thread is smaller than 12 KB"
    if error:
        return f"Linux does not let this process use amx ({os.strerror(error)}); it needs Linux 5.16"
    return None


def made_by_amd():
    """Return whether AMD made this CPU."""
    return cpu_is_amd()
