"""Find the nearest documents of a query."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
documents = ["Tomatoes grow best in full sun.", "The museum is closed on Mondays.", "Basil needs warm soil.",
             "Trains to the coast leave every hour."]
query_embeddings = model.encode_query(["When can I see the paintings?", "Which herbs like heat?"])
document_embeddings = model.encode_document(documents)
scores = model.similarity(query_embeddings, document_embeddings)
for row in scores:
    best = int(row.argmax())
    print(documents[best], float(row[best]))
