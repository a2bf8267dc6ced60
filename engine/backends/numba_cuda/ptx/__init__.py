"""Provide PTX instructions to kernels, and a definition of each in Python for the emulator of the tests.

    inline.py                makes a function that kernels call from an instruction
    emulated.py              the thread of the emulator, for the definitions in Python
    warp.py copy.py mma.py   arithmetic and shuffles; addresses and asynchronous copies; tensor cores
    tensor_cores.py          the sums of tensor cores, to the bit, for the emulator
    hopper.py                mbarriers, TMA, products of a warpgroup
    softmax.py epilogue.py   the softmax of flash attention; the epilogue of a linear layer
"""
