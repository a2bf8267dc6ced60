"""Say whether float32 products run on AMX's tiles."""


def floats_on_tiles(backend: str) -> bool:
    """Return whether the backend of this name, cython or numba, multiplies floats on tiles here."""
    if backend == "cython":
        from engine.backends.cython_cpu import isa

        return isa.chosen().product("float32").strip > 1
    from engine.backends.numba_cpu import table

    return table.load().product("float32").strip > 1
