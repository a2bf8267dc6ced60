# Report the sizes of the structs to modules that fill a kernel table without including table.pxd.

from engine.backends.cython_cpu.table cimport (
    Attention, Best, CachedAttention, Embedding, EmbeddingTable, KernelTable, Linear, Norm, Output, Relative, Rotary,
)


def struct_sizes():
    """Return the size in bytes of each struct of the kernel table, by name."""
    return {
        "Linear": sizeof(Linear),
        "Output": sizeof(Output),
        "Relative": sizeof(Relative),
        "Attention": sizeof(Attention),
        "CachedAttention": sizeof(CachedAttention),
        "Best": sizeof(Best),
        "Rotary": sizeof(Rotary),
        "EmbeddingTable": sizeof(EmbeddingTable),
        "Embedding": sizeof(Embedding),
        "Norm": sizeof(Norm),
        "Product": sizeof(ProductRow),
        "KernelTable": sizeof(KernelTable),
    }
