"""The code that both CPU backends share: everything but the kernels.

    packer.py     weights packed into panels  schedule.py     groups of sequences
    placing.py    where buffers lie           native/         the interpreter of instructions and its threads
    lowering.py   a program as instructions   native_ops.py   single operations
    plan.py       an encoder ready to run     decoder.py      a decoder, step by step; cache.py its keys and values
"""
