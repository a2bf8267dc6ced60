"""A static model, which is a table of vectors."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("static")
texts = ["Anna lives in Berlin.", "it was very good", "Chen"]
print(model.encode(texts), model.encode(texts, prompt_name="query"), model.encode_document(texts))
