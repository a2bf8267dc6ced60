# What this CPU can run.

cdef extern from *:
    """
    #if defined(__x86_64__)
    static int cpu_has(const char *isa) {
        __builtin_cpu_init();
        if (isa[3] == '2') return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    }
    #else
    static int cpu_has(const char *isa) { return 0; }
    #endif
    """
    bint cpu_has(const char* isa)


def supports(str isa):
    """Whether this CPU and its operating system can run the kernels of instruction set "avx2" or "avx512"."""
    return cpu_has(isa.encode())
