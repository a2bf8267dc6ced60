"""Provide PTX instructions to kernels, and a definition of each in Python for the emulator.

    inline.py    makes a function that kernels call from an instruction
    emulate.py   runs kernels as Python, thread by thread
    warp.py copy.py mma.py             arithmetic and shuffles; addresses and asynchronous copies; tensor cores
    hopper.py, emulate_hopper.py       mbarriers, TMA, products of a warpgroup
    softmax.py epilogue.py             the softmax of flash attention; the epilogue of a linear layer
"""
