# A lock for `with` statements whose wait a `Stop` can end, and signals interrupt.
#
# It is compiled, because in Python an exception of a signal handler may come between taking a lock and the statement
# that would release it. No Python code runs between the two here.

from cpython.exc cimport PyErr_CheckSignals

cdef extern from "pythread.h" nogil:
    ctypedef void* PyThread_type_lock
    ctypedef enum PyLockStatus:
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    void PyThread_release_lock(PyThread_type_lock lock)
    unsigned long PyThread_get_thread_ident()
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds, int stops_at_signals)


# All turns, for a forked child to free. They are a list in C, because a `WeakSet` runs Python code when a turn dies, in
# which Python drops the exception of a signal handler.
cdef void* TURNS = NULL


cdef class TurnLock:
    """The right to use a plan's memory; calls of other threads wait for it."""

    cdef PyThread_type_lock lock
    cdef unsigned long holder       # the thread that has the turn; 0 if none has
    cdef readonly int waiting       # calls that wait for it
    cdef void* next                 # in the list of all turns
    cdef void* previous

    def __cinit__(self):
        # A turn without a lock does not come into the list of all turns.
        global TURNS
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError("no memory for a lock")
        self.next = TURNS
        if TURNS != NULL:
            (<TurnLock>TURNS).previous = <void*>self
        TURNS = <void*>self

    def __dealloc__(self):
        # Leave the list of all turns.
        global TURNS
        if self.lock == NULL:       # it never came into the list
            return
        PyThread_free_lock(self.lock)
        if self.next != NULL:
            (<TurnLock>self.next).previous = self.previous
        if self.previous != NULL:
            (<TurnLock>self.previous).next = self.next
        else:
            TURNS = self.next

    @property
    def held(self):
        """Whether the calling thread has the turn."""
        return self.holder == PyThread_get_thread_ident()

    def take(self, stop=None):
        """Return a context manager that waits for the turn, and has it inside.

        stop: None, or a `Stop`, which is checked while it waits. Entering raises `EngineError` in a signal handler, or
        a finalizer, that interrupted the call that has the turn.
        """
        return Taken(self, stop, True)      # True: waits

    def take_if_free(self):
        """Return a context manager that does not wait; entering it returns whether it has the turn inside."""
        return Taken(self, None, False)

    def free(self):
        """Free the turn in a forked child: the thread that held it does not exist there."""
        self.lock = PyThread_allocate_lock()    # nobody may free the old one, which another thread held at the fork
        self.holder = self.waiting = 0

    cdef int acquire(self, stop) except -1:
        # Wait for the lock, and look every 50 ms whether `stop` ends the wait; signals interrupt it at once.
        cdef PyLockStatus status
        cdef long long microseconds = -1
        cdef double seconds
        cdef PyThread_type_lock lock
        if self.holder == PyThread_get_thread_ident():
            raise EngineError("the engine was called from a signal handler that interrupted a call of the same engine; "
                              "let the handler set a flag, and call the engine afterwards")
        self.waiting += 1
        try:
            while True:
                if stop is not None:
                    stop.check()
                    microseconds = 50_000
                    if stop.deadline:
                        seconds = <double>stop.deadline - monotonic_seconds()
                        microseconds = <long long>(max(0.0, min(0.05, seconds)) * 1e6)
                lock = self.lock        # a signal handler may have forked, and the child has another lock
                with nogil:
                    status = PyThread_acquire_lock_timed(lock, microseconds, True)
                if status == PY_LOCK_ACQUIRED:
                    self.holder = PyThread_get_thread_ident()
                    return 0
                if status == PY_LOCK_INTR:
                    PyErr_CheckSignals()
        finally:
            self.waiting = max(0, self.waiting - 1)     # a fork has set it to 0


def _free_turns():
    # A forked child has none of the threads that may have held the turns.
    cdef void* turn = TURNS
    while turn != NULL:
        (<TurnLock>turn).free()
        turn = (<TurnLock>turn).next


os.register_at_fork(after_in_child=_free_turns)


cdef class Taken:
    """One `with` statement over a turn."""

    cdef TurnLock turn
    cdef object stop
    cdef bint waits
    cdef bint inside                # whether this statement has taken the turn

    def __cinit__(self, TurnLock turn, stop, bint waits):
        # Nothing is taken before __enter__.
        self.turn, self.stop, self.waits = turn, stop, waits

    def __enter__(self):
        # Return whether the thread has the turn inside of the statement.
        cdef TurnLock turn = self.turn
        if self.waits:
            turn.acquire(self.stop)
            self.inside = True
        elif turn.holder != PyThread_get_thread_ident():
            self.inside = PyThread_acquire_lock_timed(turn.lock, 0, False) == PY_LOCK_ACQUIRED
            if self.inside:
                turn.holder = PyThread_get_thread_ident()
        return bool(self.inside)

    def __exit__(self, *exception):
        # After a fork inside the turn the child has a new lock, which it did not take.
        if self.inside and self.turn.holder == PyThread_get_thread_ident():
            self.turn.holder = 0
            PyThread_release_lock(self.turn.lock)
        self.inside = False
