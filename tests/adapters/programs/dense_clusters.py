"""Group sentences by the similarity of their embeddings."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2").eval().to("cpu")
texts = ["He tunes the piano.", "She plays the violin.", "The violin needs new strings.", "Plant the beans in May.",
         "Water the beans at dusk.", "The garden needs rain."]
embeddings = model.encode(texts, normalize_embeddings=True)
groups = []
for place, row in enumerate(embeddings @ embeddings.T):
    near = [other for other in range(place) if row[other] > 0.35]
    if near:
        next(group for group in groups if near[0] in group).append(place)
    else:
        groups.append([place])
print(groups)
