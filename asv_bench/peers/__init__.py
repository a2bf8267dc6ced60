"""Compare the engine with other libraries on the same work, in turns: `make peers`, or `python -m peers` in asv_bench.

    work        the models, shapes and text to run
    libraries   the setup of each library, as fast as its documentation allows
    machine     the CPU, and the environment variables of a library
    worker      a process for each library and precision, kept alive while the others have their turn
    measure     the turns, and the comparison of each answer with PyTorch's
    report      the numbers as a Markdown table and a figure

`llama_language` runs language models with llama.cpp, for `language.py` in the folder above.
"""
