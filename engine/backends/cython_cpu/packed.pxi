# Weights as the kernels take them: C structs, and the arrays that keep their memory alive.

cdef class Kernels


cdef class PackedLinear:
    """A linear map y = activation(a w^T + bias), its weights in panels.

    `panels` is float32 [N*K] of zeros to be filled by `fill`, `bias` float32 [N], N a multiple of VL.
    """

    cdef Linear y
    cdef Kernels kernels
    cdef float[::1] panels
    cdef const float[::1] bias

    def __init__(self, Kernels kernels, float[::1] panels, const float[::1] bias, int activation=IDENTITY):
        if bias.shape[0] % kernels.VL or panels.shape[0] % bias.shape[0]:
            raise ValueError(f"{panels.shape[0]} weights do not fit {bias.shape[0]} columns of a multiple of {kernels.VL}")
        self.kernels, self.panels, self.bias = kernels, panels, bias
        self.y.panels, self.y.bias = &panels[0], &bias[0]
        self.y.N, self.y.K = bias.shape[0], panels.shape[0] // bias.shape[0]
        self.y.activation = activation

    def fill(self, const float[:, ::1] w, Py_ssize_t column=0):
        """Put the rows of w [n,K] at columns [column, column+n)."""
        if w.shape[1] != self.y.K or column < 0 or column + w.shape[0] > self.y.N:
            raise ValueError(f"[{w.shape[0]}, {w.shape[1]}] at column {column} is outside [{self.y.N}, {self.y.K}]")
        with nogil:
            self.kernels.table.pack(&self.y, &self.panels[0], column, &w[0, 0], w.shape[0])


cdef class NormWeights:
    """Weight and bias [D] of a LayerNorm, and its epsilon."""

    cdef Norm norm
    cdef const float[::1] weight
    cdef const float[::1] bias

    def __init__(self, const float[::1] weight, const float[::1] bias, float eps):
        if weight.shape[0] != bias.shape[0]:
            raise ValueError(f"a weight of {weight.shape[0]} and a bias of {bias.shape[0]} entries do not belong together")
        self.weight, self.bias = weight, bias
        self.norm.weight, self.norm.bias, self.norm.D, self.norm.eps = &weight[0], &bias[0], weight.shape[0], eps
