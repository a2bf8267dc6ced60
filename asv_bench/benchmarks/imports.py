"""Measure `import engine`, the import of what encodes, and that of NumPy, which it includes."""


def timeraw_import_engine():
    return "import engine"


def timeraw_import_the_engine_class():
    return "from engine import Engine"


def timeraw_import_numpy():
    return "import numpy"
