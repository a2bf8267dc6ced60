"""Check the CUDA backend on a GPU, and compare its speed with other libraries: `python -m asv_bench.gpu`.

    checks     every kernel, and whole models, against NumPy in float64; also without a GPU, emulated
    check attention_checks family_checks      what a check is; attention of every kind; small models of every family
    isolate    runs the checks in separate processes, and again under compute-sanitizer, if that is installed
    cases      the shapes and models that are timed
    goals      the ratios that must be reached
    data       random numbers, batches and models
    timing     the turns of the contenders, and the time limit of the run
    ours       the engine's side of the timed cases
    peers torch_models      PyTorch's side
    record     the results in a JSON file, which a later run does not measure again
    report     the tables
"""
