"""The engine and its peers on the same work, in turns: `make peers`, or `python -m peers` from the folder above.

    work        models, shapes and text: what is run
    libraries   how each library is set up, as fast as its documentation allows
    machine     what the CPU is, and what a library finds in its environment
    worker      a process for each library and precision, kept alive while the others have their turn
    measure     the turns, and each answer held against PyTorch's
    report      the numbers as a Markdown table and a figure
"""
