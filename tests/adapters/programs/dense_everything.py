"""Ask for everything that the model makes of one text."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
found = model.encode("Snow lies on the roof.", output_value=None)
print(found["input_ids"].tolist(), found["attention_mask"].tolist())
print(found["sentence_embedding"], found["token_embeddings"])
