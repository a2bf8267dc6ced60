"""The CUDA backend on a GPU: is it right, and how fast is it beside its peers? `python -m asv_bench.gpu`.

    checks     every kernel, and whole models, against NumPy in float64; also without a GPU, emulated
    isolate    the checks in processes of their own, and again under compute-sanitizer, if that is installed
    cases      the shapes and models that are timed
    data       random numbers, batches and models
    timing     the turns, and the time that all of it may take
    ours       the engine's side of what is timed
    peers      PyTorch's side
    report     the table and the JSON file
"""
