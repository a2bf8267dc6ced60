"""Measure `import engine`, and the import of NumPy that it includes."""


def timeraw_import_engine():
    return "import engine"


def timeraw_import_numpy():
    return "import numpy"
