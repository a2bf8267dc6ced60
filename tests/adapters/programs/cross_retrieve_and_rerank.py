"""Search by vectors, then order the best documents by a cross-encoder."""

from sentence_transformers import CrossEncoder, SentenceTransformer

retriever, reranker = SentenceTransformer("all-MiniLM-L6-v2"), CrossEncoder("cross-encoder")
documents = ["Bilal was in Oslo.", "Anna works for Bilal in Berlin.", "The river was blue.", "Farah lives in Tokyo."]
query = "Who works in Berlin?"
scores = retriever.similarity(retriever.encode_query(query), retriever.encode_document(documents))[0]
best = sorted(range(len(documents)), key=lambda place: -float(scores[place]))[:3]
print(best)
for one in reranker.rank(query, [documents[place] for place in best]):
    print(best[one["corpus_id"]], one["score"])
