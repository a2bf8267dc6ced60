# Find out which instruction sets this CPU can run.

cdef extern from *:
    """
    #include <string.h>
    #if defined(__x86_64__)
    #include <cpuid.h>
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
    #else
    static int cpu_has(const char *isa) { return 0; }
    #endif
    """
    bint cpu_has(const char* isa)


def supports(str isa):
    """Return whether this CPU and its operating system can run the kernels of an instruction set.

    False for a name that has no check here; "portable" and "wide" need none.
    """
    return cpu_has(isa.encode())
