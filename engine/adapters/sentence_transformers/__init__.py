"""The classes of the package sentence-transformers, by name and signature, over the engine.

    from engine.adapters.sentence_transformers import SentenceTransformer

    model = SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")
    vectors = model.encode(["a first sentence", "a second one"])

Neither sentence-transformers nor torch is needed. A call that asks for tensors of torch imports torch. The results of
all other calls are NumPy arrays, also where sentence-transformers would return tensors. Where a program has imported
torch, `device` is a `torch.device`, `activation_fn` an object of torch.nn, and `encode` returns token vectors as
tensors. An option that the engine lacks raises an error that names it.
"""

from .cross_encoder import CrossEncoder
from .multi_vector_encoder import MultiVectorEncoder
from .sentence_transformer import SentenceTransformer
from .sparse_encoder import SparseEncoder

__all__ = ["CrossEncoder", "MultiVectorEncoder", "SentenceTransformer", "SparseEncoder"]
