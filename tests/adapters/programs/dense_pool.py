"""Encode with a pool of processes, and in chunks."""

from sentence_transformers import SentenceTransformer

if __name__ == "__main__":
    model = SentenceTransformer("all-MiniLM-L6-v2", device="cpu")
    texts = [f"Ship {number} enters the harbour." for number in range(20)]
    pool = model.start_multi_process_pool(["cpu"])
    embeddings = model.encode(texts, pool=pool, chunk_size=5, batch_size=4)
    model.stop_multi_process_pool(pool)
    print(embeddings.shape, embeddings)
