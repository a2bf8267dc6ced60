"""Clients of other servers ask this one, unchanged: `make clients` installs them. Each gets the library's bits."""

import asyncio
import json
import shutil
import subprocess

import numpy as np
import pytest

from engine import Engine
from engine.weights.modules import shortened

from ..tools.encoders import engine_of
from ..tools.head_models import folder_of
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

pytest.importorskip("uvicorn")
openai = pytest.importorskip("openai")
cohere = pytest.importorskip("cohere")
litellm = pytest.importorskip("litellm")
langchain_openai = pytest.importorskip("langchain_openai")
llama_index = pytest.importorskip("llama_index.embeddings.openai")
llama_index_like = pytest.importorskip("llama_index.embeddings.openai_like")

from ..tools.serving import serving  # noqa: E402

TEXTS = ["the cat sat", "a dog ran far and away"]
KEY = "secret"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def vectors():
    model = engine_of(random_model(tiny_text(max_seq_length=12, prompts={"query": "query : ", "document": "a "})),
                      threads=1)
    with serving(model, keys=[KEY]) as client:
        client.url = f"http://127.0.0.1:{client.port}"
        yield client


@pytest.fixture(scope="module")
def ranks():
    with serving(Engine.load(folder_of("bert_pairs"), threads=1), keys=[KEY]) as client:
        client.url = f"http://127.0.0.1:{client.port}"
        yield client


def same(found, expected):
    return np.array_equal(np.array(found, np.float32), expected)


def test_openai(vectors):
    options = {"base_url": f"{vectors.url}/v1", "api_key": KEY}
    expected = vectors.model.encode(TEXTS)
    found = openai.OpenAI(**options).embeddings.create(model="tiny", input=TEXTS)      # the client asks for base64
    assert same([row.embedding for row in found.data], expected)
    assert found.usage.prompt_tokens == found.usage.total_tokens > 0
    # The client's own answers in base64 fail its strict validation, which it does before it reads them.
    client = openai.OpenAI(**options, _strict_response_validation=True)
    found = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
    assert same([row.embedding for row in found.data], expected)
    found = client.embeddings.create(model="tiny", input=TEXTS[0], dimensions=5, user="u", encoding_format="float")
    assert same(found.data[0].embedding, shortened(vectors.model.encode(TEXTS[:1], truncate_dim=5), 5)[0])
    ids = vectors.model.tokenizer.encode(TEXTS[0])
    found = client.embeddings.create(model="tiny", input=ids, encoding_format="float")
    assert same(found.data[0].embedding, expected[0])
    assert [model.id for model in client.models.list()] == ["tiny", "other name"]
    assert client.models.retrieve("tiny").owned_by == "encoder-engine"
    with pytest.raises(openai.NotFoundError) as error:
        client.embeddings.create(model="large", input="a")
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="tiny", input="a", dimensions=50)
    assert error.value.param == "dimensions"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=options["base_url"], api_key="x").models.list()


def test_openai_async(vectors):
    async def ask(**options):
        async with openai.AsyncOpenAI(base_url=f"{vectors.url}/v1", api_key=KEY,
                                      _strict_response_validation=bool(options)) as client:
            return await asyncio.gather(*(client.embeddings.create(model="tiny", input=text, **options)
                                          for text in TEXTS * 8))

    for options in ({}, {"encoding_format": "float"}):
        found = asyncio.run(ask(**options))
        assert same([one.data[0].embedding for one in found], vectors.model.encode(TEXTS * 8))


def test_cohere(vectors, ranks):
    client = cohere.ClientV2(base_url=vectors.url, api_key=KEY)
    found = client.embed(model="tiny", texts=TEXTS, input_type="search_query", embedding_types=["float", "ubinary"],
                         output_dimension=8)
    queries = shortened(vectors.model.encode_query(TEXTS, truncate_dim=8), 8)
    assert same(found.embeddings.float_, queries)
    assert found.embeddings.ubinary == vectors.model.encode_query(TEXTS, truncate_dim=8, precision="ubinary").tolist()
    client = cohere.ClientV2(base_url=ranks.url, api_key=KEY)
    found = client.rerank(model="tiny", query="a cat", documents=TEXTS, top_n=2)
    assert [(one.index, one.relevance_score) for one in found.results] == [
        (one["corpus_id"], pytest.approx(one["score"])) for one in ranks.model.rank("a cat", TEXTS)]
    with pytest.raises(cohere.errors.NotFoundError):
        client.rerank(model="large", query="a", documents=["b"])


def test_litellm(vectors, ranks):
    found = litellm.embedding(model="openai/tiny", input=TEXTS, api_base=f"{vectors.url}/v1", api_key=KEY)
    assert same([row["embedding"] for row in found.data], vectors.model.encode(TEXTS))
    for provider in ("cohere", "jina_ai"):
        found = litellm.rerank(model=f"{provider}/tiny", query="a cat", documents=TEXTS, top_n=2, api_key=KEY,
                               api_base=f"{ranks.url}/v1/rerank")
        assert [one["index"] for one in found.results] == [
            one["corpus_id"] for one in ranks.model.rank("a cat", TEXTS)]


def test_langchain(vectors):
    # Without this option it sends the ids of OpenAI's own tokenizer.
    client = langchain_openai.OpenAIEmbeddings(model="tiny", base_url=f"{vectors.url}/v1", api_key=KEY,
                                               check_embedding_ctx_length=False)
    assert same(client.embed_documents(TEXTS), vectors.model.encode(TEXTS))
    assert same(client.embed_query(TEXTS[0]), vectors.model.encode(TEXTS[0]))


def test_llama_index(vectors):
    for client in (llama_index.OpenAIEmbedding(model_name="tiny", api_base=f"{vectors.url}/v1", api_key=KEY),
                   llama_index_like.OpenAILikeEmbedding(model_name="tiny", api_base=f"{vectors.url}/v1", api_key=KEY)):
        assert same(client.get_text_embedding_batch(TEXTS), vectors.model.encode(TEXTS))
        assert same(client.get_query_embedding(TEXTS[0]), vectors.model.encode(TEXTS[0]))


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(vectors):
    def curl(path, body, *options):
        return subprocess.run(["curl", "-sS", "-H", f"authorization: Bearer {KEY}", "-H",
                               "content-type: application/json", "-d", "@-", *options, f"{vectors.url}{path}"],
                              input=json.dumps(body), capture_output=True, text=True, check=True).stdout

    assert same(json.loads(curl("/embed", {"inputs": TEXTS, "normalize": False})), vectors.model.encode(TEXTS))
    large = curl("/embed", {"inputs": "x" * 2**25}, "-w", "%{http_code}", "-o", "/dev/null")
    assert large == "413"       # curl sends "expect: 100-continue" first
