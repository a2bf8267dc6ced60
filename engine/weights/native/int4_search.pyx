# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Search for the integers of 4-bit weights, in rows that threads may divide; see int4_search.h."""

from libc.stdlib cimport free, malloc

cdef extern from "int4_search.h" nogil:
    ctypedef struct int4_groups:
        pass
    Py_ssize_t int4_count(Py_ssize_t heads, Py_ssize_t width)
    int int4_search_row(const float* w, Py_ssize_t heads, Py_ssize_t width, const float* importance,
                        const float* widths, int widths_count, int rounds, int4_groups* groups, unsigned char* out,
                        float* scales)


def search_rows(const float[:, ::1] w, Py_ssize_t heads, const float[::1] importance, const float[::1] widths,
                int rounds, unsigned char[:, ::1] stored, float[:, ::1] scales):
    """Fill stored [N, bytes of a row] and scales [N, 2] for w [N, K], whose columns come from this number of heads.

    importance [K], or None: how much the squared error of each column counts. widths: what parts of the range of a
    group the steps cover, to choose from. rounds: how often groups choose. Returns the first row that holds NaN or
    infinity, or -1. The caller has checked all shapes.
    """
    cdef Py_ssize_t N = w.shape[0], width = w.shape[1] // heads, row, wrong = -1
    cdef const float* counts = &importance[0] if importance is not None else NULL
    cdef int4_groups* groups = <int4_groups*>malloc(int4_count(heads, width) * sizeof(int4_groups))
    if groups == NULL:
        raise MemoryError
    with nogil:
        for row in range(N):
            if not int4_search_row(&w[row, 0], heads, width, counts, &widths[0], <int>widths.shape[0], rounds, groups,
                                   &stored[row, 0], &scales[row, 0]):
                wrong = row
                break
    free(groups)
    return wrong
