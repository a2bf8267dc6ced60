"""Batches of any size give the same embeddings; texts may come as a tuple or as an array."""

import numpy as np
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
texts = ("short", "a text that is a little longer", "The longest of them all says more than the others do.", "")
print(model.encode(texts, batch_size=1, show_progress_bar=False), model.encode(np.array(texts), batch_size=64))
