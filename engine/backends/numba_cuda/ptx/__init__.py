"""PTX, a module for each group of instructions; each instruction also has a meaning in Python, for the emulator.

    inline.py    how an instruction becomes a function that kernels call
    emulate.py   runs kernels as Python, thread by thread
    warp.py copy.py mma.py    arithmetic and shuffles; addresses and asynchronous copies; matrices
    hopper.py, emulate_hopper.py       mbarriers, TMA, products of a warpgroup
    softmax.py   the middle of flash attention; epilogue.py the end of a linear layer
"""
