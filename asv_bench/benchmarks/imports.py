"""What `import engine` costs, beside the import of NumPy that it contains."""


def timeraw_import_engine():
    return "import engine"


def timeraw_import_numpy():
    return "import numpy"
