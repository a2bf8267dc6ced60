# Measure the machine's peak FLOP/s and memory bandwidth with the kernels' vectors, for engine.backends.peak.

cdef double fma_rounds(Py_ssize_t n, float* sink) noexcept nogil:
    # Run n rounds of MR*NV independent FMAs, one for each accumulator of a tile, and return how many operations.
    cdef vf acc[MR * NV]
    cdef vf x = v_set1(<float>0.999), y = v_set1(<float>1e-3)
    cdef int i, j
    cdef Py_ssize_t k
    for i in range(MR):
        for j in range(NV):
            acc[i * NV + j] = v_set1(<float>(i * NV + j))
    for k in range(n):
        for i in range(MR):
            for j in range(NV):
                acc[i * NV + j] = v_fma(acc[i * NV + j], x, y)
    for i in range(MR):
        for j in range(NV):
            if i or j:
                acc[0] = v_add(acc[0], acc[i * NV + j])
    sink[0] = v_sum(acc[0])
    return 2.0 * VL * MR * NV * n


cdef float read(const float* x, Py_ssize_t n) noexcept nogil:
    # Return the sum of x[n]; n is a multiple of 4*VL. With four sums the loop waits for loads, not for additions.
    cdef vf acc[4]
    cdef int j
    cdef Py_ssize_t i
    for j in range(4):
        acc[j] = v_set1(0.0)
    for i in range(n // (4 * VL)):
        for j in range(4):
            acc[j] = v_add(acc[j], v_load(x + j * VL))
            fetch_near(<const char*>(x + AHEAD + j * VL))
        x += 4 * VL
    return v_sum(v_add(v_add(acc[0], acc[1]), v_add(acc[2], acc[3])))
