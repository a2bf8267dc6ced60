"""Simulate a forward pass on many cores: `python -m simulation` in asv_bench.

    hardware    the machine that is simulated, and the measured times of kernels
    program     the instructions of a model, recorded from the engine's own lowering
    caches      which bytes of weights and rows come from memory, and over which wires
    threads     the schedules of schedule.pxi, as threads that work, meet and steal
    events      the passing of time, when threads share the bandwidth of wires
    calibrate   the measurement of the kernels on the machine at hand
    compare     real passes on the machine at hand, beside their simulation
    report      the figure and the table of docs/simulation.md

The schedule of a batch comes from the engine (`make_schedule`), and so do the instructions and their barriers
(`lowering`). schedule.pxi is compiled code, so `threads` repeats it.
"""
