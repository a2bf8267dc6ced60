"""The native part of the CPU backends: one extension module, `native`, for any CPU.

    machine.pxi      the instructions of the interpreter    program.pxi      runs them; executor.pxi owns them
    schedule.pxi     how threads share the instructions     pool.c           the threads
    table.pxd        describes the kernel table             layout.py        reads it for Python and for ctypes
    kernel_table.pxi the kernel table for Python            weights.pxi      packed weights for Python
    state.pxi        attention over a decoder's cache       logits.pxi       logits of picked rows, or the best of them
    operations.pxi, attention_operation.pxi                 single operations
    features.pxi     the features of this CPU
"""
