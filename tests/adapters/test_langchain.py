"""LangChain's standard tests, unchanged, and what they leave out: the reranker, errors and equal bits."""

import asyncio
import pickle

import pytest

pytest.importorskip("langchain_core", reason="the package langchain-core is not installed")
pytest.importorskip("langchain_tests", reason="the package langchain-tests is not installed")

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import EmbeddingsIntegrationTests, RetrieversIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from engine import Engine, InputError, Reranker
from engine.adapters.langchain import EngineEmbeddings, EngineReranker

from ..tools.examples import example
from ..tools.head_models import folder_of
from ..tools.module_folders import write_router

MODEL, RERANKER = folder_of("bert_classify"), folder_of("bert_pairs")
TEXTS = ["Anna lives in Berlin.", "The cat sat on a mat.", "It was very good!", "Chen saw Dario in Tokyo."]


class OfOurs:
    embeddings_class = EngineEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": MODEL, "encode_options": {"normalize_embeddings": True}, "threads": 1}


class TestEmbeddingsUnit(OfOurs, EmbeddingsUnitTests):
    pass


class TestEmbeddingsIntegration(OfOurs, EmbeddingsIntegrationTests):
    pass


class SearchAndRerank(BaseRetriever):
    """Searches by vectors and orders what it finds by the reranker."""

    store: InMemoryVectorStore
    k: int = 2

    def _get_relevant_documents(self, query, *, run_manager, k=None):
        found = self.store.similarity_search(query, k=4)
        return EngineReranker(model=RERANKER, top_n=k or self.k).compress_documents(found, query)


class TestRetriever(RetrieversIntegrationTests):
    retriever_constructor = SearchAndRerank
    retriever_query_example = "Who lives in Berlin?"

    @property
    def retriever_constructor_params(self):
        return {"store": InMemoryVectorStore.from_texts(TEXTS, EngineEmbeddings(MODEL))}


def test_embeddings_are_the_engines(tmp_path):
    folder = write_router(tmp_path / "router", "static query")
    engine = Engine.load(folder)
    for ours in (EngineEmbeddings(str(folder)), EngineEmbeddings(engine)):
        assert ours.embed_documents(TEXTS) == engine.encode_document(TEXTS).tolist()
        assert ours.embed_query(TEXTS[0]) == engine.encode_query(TEXTS[0]).tolist()
    assert ours.embed_documents([]) == []


def test_calls_run_at_once():
    ours = EngineEmbeddings(MODEL)

    async def all_at_once():
        return await asyncio.gather(*(ours.aembed_query(text) for text in TEXTS))

    assert asyncio.run(all_at_once()) == [ours.embed_query(text) for text in TEXTS]


def test_the_reranker_keeps_the_best_with_their_scores():
    documents = [Document(text, metadata={"place": place}) for place, text in enumerate(TEXTS)]
    expected = Reranker.load(RERANKER).rank("Who lives in Berlin?", TEXTS)
    for ours in (EngineReranker(model=RERANKER, top_n=3), EngineReranker(model=Reranker.load(RERANKER))):
        found = ours.compress_documents(documents, "Who lives in Berlin?")
        assert [(one.metadata["place"], one.metadata["relevance_score"]) for one in found] == [
            (one["corpus_id"], one["score"]) for one in expected[:3]]
        assert asyncio.run(ours.acompress_documents(documents, "Who lives in Berlin?")) == found
    assert len(EngineReranker(model=RERANKER, top_n=None).compress_documents(documents, "a")) == 4
    assert ours.compress_documents([], "a") == []
    assert all("relevance_score" not in document.metadata for document in documents)


def test_the_example(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    example("langchain_search")["main"](str(MODEL), str(RERANKER), "Who lives in Berlin?", str(tmp_path / "texts.txt"))
    lines = capsys.readouterr().out.splitlines()
    expected = Reranker.load(RERANKER).rank("Who lives in Berlin?", TEXTS, return_documents=True)
    assert [line.partition(": ")[2] for line in lines] == [one["text"] for one in expected]


def test_objects_travel_as_pickles():
    ours = pickle.loads(pickle.dumps(EngineEmbeddings(MODEL)))
    assert ours.embed_query("a") == EngineEmbeddings(MODEL).embed_query("a")
    again = pickle.loads(pickle.dumps(EngineReranker(model=RERANKER)))
    assert again.compress_documents([Document("a")], "b")[0].metadata.keys() == {"relevance_score"}


def test_wrong_options_are_refused():
    with pytest.raises(InputError, match="no argument tread"):
        EngineEmbeddings(MODEL, tread=2)
    with pytest.raises(InputError, match="threads would change nothing"):
        EngineEmbeddings(Engine.load(MODEL), threads=2)
    with pytest.raises(ValueError, match="top_n"):
        EngineReranker(model=RERANKER, top_n=0)
    with pytest.raises(ValueError, match="extra"):
        EngineReranker(model=RERANKER, top_k=3)


def test_one_text_is_no_list_and_a_list_is_no_query():
    embeddings = EngineEmbeddings(MODEL)
    with pytest.raises(InputError, match="not one text"):
        embeddings.embed_documents("abc")
    with pytest.raises(InputError, match="must be one text"):
        embeddings.embed_query(["a", "b"])


def test_the_names_of_hugging_face_embeddings():
    one = EngineEmbeddings(model_name=folder_of("bert_tag"), model_kwargs={"threads": 1},
                           encode_kwargs={"normalize_embeddings": True})
    assert one.engine.threads == 1
    other = EngineEmbeddings(folder_of("bert_tag"), encode_options={"normalize_embeddings": True})
    assert one.embed_query("a") == other.embed_query("a")
    reranker = EngineReranker(folder_of("bert_pairs"), top_n=1, model_kwargs={"threads": 1})
    assert (reranker.top_n, reranker.reranker.threads) == (1, 1)
    for make in (EngineEmbeddings, EngineReranker):
        with pytest.raises(InputError, match="needs a model"):
            make()
