"""Search texts with LangChain: a vector store over the engine's embeddings, and a reranker behind it.

    pip install langchain-core
    python examples/langchain_search.py ENCODER RERANKER "Which cats purr?" texts.txt

ENCODER is a sentence-transformers model such as all-MiniLM-L6-v2; RERANKER is a cross-encoder such as
ms-marco-MiniLM-L6-v2, or a language model such as Qwen3-Reranker-0.6B. The file has a text on each line.
"""

import sys
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from engine.adapters.langchain import EngineEmbeddings, EngineReranker


def make_chain(encoder: str, reranker: str, texts: list[str]) -> RunnableLambda:
    """Return a chain from a query to the best documents, each with metadata["relevance_score"]."""
    embeddings = EngineEmbeddings(encoder, encode_options={"normalize_embeddings": True})
    documents = [Document(text, metadata={"line": number}) for number, text in enumerate(texts, 1)]
    retriever = InMemoryVectorStore.from_documents(documents, embeddings).as_retriever(search_kwargs={"k": 20})
    best = EngineReranker(model=reranker, top_n=5)

    def search(query: str) -> list[Document]:
        return best.compress_documents(retriever.invoke(query), query)

    return RunnableLambda(search)


def main(encoder: str, reranker: str, query: str, file: str) -> None:
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    for document in make_chain(encoder, reranker, texts).invoke(query):
        print(f"{document.metadata['relevance_score']:8.4f}  line {document.metadata['line']}: {document.page_content}")


if __name__ == "__main__":
    main(*sys.argv[1:])
