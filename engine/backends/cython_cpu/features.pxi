# What this CPU can run.

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
    static int cpu_has(const char *isa) {
        __builtin_cpu_init();
        if (strncmp(isa, "avx512", 6)) {
            if (!strcmp(isa, "avxvnni") && !has_avxvnni()) return 0;
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        }
        if (strcmp(isa, "avx512") && !__builtin_cpu_supports("avx512vnni")) return 0;
        if (!strcmp(isa, "avx512bf16") && !__builtin_cpu_supports("avx512bf16")) return 0;
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    }
    #else
    static int cpu_has(const char *isa) { return 0; }
    #endif
    """
    bint cpu_has(const char* isa)


def supports(str isa):
    """Whether this CPU and its operating system can run the kernels of instruction set "avx2", "avxvnni", "avx512",
    "avx512vnni" or "avx512bf16"."""
    return cpu_has(isa.encode())
