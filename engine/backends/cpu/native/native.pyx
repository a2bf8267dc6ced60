# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The native part of the CPU backends, on any CPU: the interpreter of programs, single operations, CPU features."""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.float cimport FLT_MAX, FLT_MIN
from libc.limits cimport INT_MAX
from libc.math cimport INFINITY, M_LOG2E, frexp, isfinite, ldexp, log
from libc.string cimport memcpy, memset

from engine.backends.cpu.native.table cimport (
    BFLOAT16, CELL, DISTANCES, FLOAT32, FLOAT32_PRODUCT, IDENTITY, INT8, PART, RANGE, Attention, CachedAttention,
    Embedding, EmbeddingTable, KernelTable, Linear, Norm, Output, Relative, Rotary, RowChoice, RowRange, ScoreMod,
)
from engine.backends.cpu.native.table cimport Product as ProductRow

import os

import numpy as np

from engine.base.errors import BackendUnavailable, EngineError
from engine.base.install import build_command

ctypedef int (*Look)(void* arg) noexcept nogil     # asked every 50 ms; not 0: stop waiting for other calls (pool.h)

cdef extern from "pool.h" nogil:
    ctypedef struct pool_barrier:
        pass
    int pool_run(int threads, void (*work)(void* arg, int rank, int size) noexcept nogil, void* arg, Look look)
    bint pool_is_orphaned()     # asked inside of work alone
    void pool_barrier_wait(pool_barrier* barrier, int size)     # all threads of the team, or none

cdef extern from "errno.h":
    enum:
        ECANCELED
        ECHILD


cdef extern from *:
    """
    static __thread int inside_a_call; /* of native code, by this thread */
    """
    int inside_a_call


FORKED = ("this process was forked by a signal handler inside a call of the engine, whose other threads do not exist "
          "in it; let the handler set a flag, and fork after the call has returned")


cdef int run_team(int threads, void (*work)(void* arg, int rank, int size) noexcept nogil, void* arg,
                  Look look=NULL) except -1:
    # Run work(arg, rank, size) on up to `threads` threads of the pool, without the GIL. `look` may end the wait for
    # other calls: then the work is not run, and its caller knows why, so that ECANCELED is no error here. A signal
    # handler that runs inside a call and calls the engine again would wait for itself.
    global inside_a_call
    cdef int error
    if inside_a_call:
        raise EngineError("the engine was called from a signal handler that interrupted another call of the same "
                          "thread; let the handler set a flag, and call the engine after the interrupted call has "
                          "returned")
    inside_a_call = True
    with nogil:
        error = pool_run(threads, work, arg, look)
    inside_a_call = False
    if error == ECHILD:
        raise EngineError(FORKED)
    if error and error != ECANCELED:
        raise OSError(error, f"cannot run on {threads} threads")
    return 0


include "features.pxi"
include "weights.pxi"
include "kernel_table.pxi"
include "machine.pxi"
include "program.pxi"
include "turn.pxi"
include "cells.pxi"
include "state.pxi"
include "best.pxi"
include "draw.pxi"
include "logits.pxi"
include "chooser.pxi"
include "schedule.pxi"
include "executor.pxi"
include "operations.pxi"
include "column_maxima.pxi"
include "attention_operation.pxi"
