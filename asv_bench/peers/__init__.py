"""Compare the engine with other libraries on the same work, in turns: `make peers`, or `python -m peers` in asv_bench.

    work        the models, shapes and text to run
    libraries   the setup of each library, as fast as its documentation allows
    machine     the CPU, and the environment variables of a library
    worker      a process for each library and precision, kept alive while the others have their turn
    measure     the turns, and the comparison of each answer with PyTorch's
    report      the numbers as a Markdown table and a figure

    jobs        whole jobs, from a file of texts to files of vectors: `python -m peers.jobs`
    jobs_peers  each library doing the job, as a user runs it
    process_tree    what a process and all that it starts use, seen from outside
    jobs_report the numbers of jobs as a Markdown table and a figure

`llama_language` runs language models with llama.cpp, for `language.py` in the folder above.
"""
