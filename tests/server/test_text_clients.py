"""Clients of models that write texts ask this server, unchanged: `make clients` installs them.

Each gets the texts and the figures of the library.
"""

import asyncio
import json
import shutil
import subprocess
import sys

import pytest

from engine import Generator, Transcriber

from ..tools import smollm2, whisper
from ..tools.text_models import text_model

pytest.importorskip("uvicorn")
openai = pytest.importorskip("openai")
litellm = pytest.importorskip("litellm")
langchain_openai = pytest.importorskip("langchain_openai")
langchain_tests = pytest.importorskip("langchain_tests.integration_tests")
llama_index = pytest.importorskip("llama_index.llms.openai_like")
requests = pytest.importorskip("requests")
from llama_index.core.llms import ChatMessage  # noqa: E402

from ..tools.serving import serving  # noqa: E402

KEY, PROMPT, MOST = "secret", "the cat sat", 8
ASKED = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Count to 3."}]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def texts():
    with serving(text_model(), keys=[KEY]) as client:
        client.url = f"http://127.0.0.1:{client.port}/v1"
        yield client


@pytest.fixture(scope="module")
def expected(texts):
    """Return what the library writes to a chat and to a prompt, greedily."""
    settings = {"max_new_tokens": MOST, "do_sample": False}
    return (texts.model.chat(ASKED, **settings).text, texts.model.generate(PROMPT, **settings).text)


def options(client, **others):
    return {"base_url": client.url, "api_key": KEY, **others}


ASK = {"model": "tiny", "max_tokens": MOST, "temperature": 0}


def test_openai(texts, expected):
    client = openai.OpenAI(**options(texts, _strict_response_validation=True))
    chat, completion = expected
    found = client.chat.completions.create(messages=ASKED, logprobs=True, top_logprobs=2, **ASK)
    assert (found.choices[0].message.content, found.usage.completion_tokens) == (chat, MOST)
    assert [len(one.top_logprobs) for one in found.choices[0].logprobs.content] == [2] * MOST
    pieces = [*client.chat.completions.create(messages=ASKED, stream=True, stream_options={"include_usage": True},
                                              **ASK)]
    assert "".join(one.choices[0].delta.content or "" for one in pieces[:-1]) == chat
    assert (pieces[-1].usage, {one.id for one in pieces}) == (found.usage, {pieces[0].id})
    several = client.chat.completions.create(messages=ASKED, n=2, seed=5, **ASK | {"temperature": 1})
    again = client.chat.completions.create(messages=ASKED, n=2, seed=5, **ASK | {"temperature": 1})
    assert [one.message for one in several.choices] == [one.message for one in again.choices]
    found = client.completions.create(prompt=[PROMPT, PROMPT], logprobs=1, **ASK)
    assert [one.text for one in found.choices] == [completion] * 2
    # OpenAI's own streams of completions, and its first token of a prompt, fail this client's strict validation.
    client = openai.OpenAI(**options(texts))
    stream = client.completions.create(prompt=PROMPT, stream=True, **ASK)
    assert "".join(one.choices[0].text for one in stream) == completion
    found = client.completions.create(prompt=PROMPT, echo=True, logprobs=1, **ASK).choices[0]
    assert (found.text, found.logprobs.token_logprobs[0]) == (PROMPT + completion, None)
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(messages=ASKED, tools=[{"type": "function", "function": {"name": "a"}}], **ASK)
    assert error.value.param == "tools"
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(prompt=PROMPT * 300, **ASK)
    assert error.value.code == "context_length_exceeded"


def test_openai_async(texts, expected):
    async def ask(content):
        async with openai.AsyncOpenAI(**options(texts, _strict_response_validation=True)) as client:
            whole = [client.chat.completions.create(messages=ASKED, **ASK) for _ in range(8)]
            stream = await client.chat.completions.create(messages=ASKED, stream=True, **ASK)
            pieces = [piece.choices[0].delta.content or "" async for piece in stream]
            return [one.choices[0].message.content for one in await asyncio.gather(*whole)], "".join(pieces)

    assert asyncio.run(ask(expected[0])) == ([expected[0]] * 8, expected[0])


def test_litellm(texts, expected):
    reach = {"api_base": texts.url, "api_key": KEY, "max_tokens": MOST, "temperature": 0}
    for provider in ("openai", "hosted_vllm"):
        found = litellm.completion(model=f"{provider}/tiny", messages=ASKED, **reach)
        assert found.choices[0].message.content == expected[0]
        stream = litellm.completion(model=f"{provider}/tiny", messages=ASKED, stream=True, **reach)
        assert "".join(one.choices[0].delta.content or "" for one in stream) == expected[0]
    found = litellm.text_completion(model="text-completion-openai/tiny", prompt=PROMPT, **reach)
    assert found.choices[0].text == expected[1]


def test_llama_index(texts, expected):
    reach = {"model": "tiny", "api_base": texts.url, "api_key": KEY, "max_tokens": MOST, "temperature": 0}
    client = llama_index.OpenAILike(is_chat_model=True, **reach)
    messages = [ChatMessage(**one) for one in ASKED]
    assert client.chat(messages).message.content == expected[0]
    assert "".join(one.delta or "" for one in client.stream_chat(messages)) == expected[0]
    client = llama_index.OpenAILike(is_chat_model=False, **reach)
    assert client.complete(PROMPT).text == expected[1]
    assert "".join(one.delta or "" for one in client.stream_complete(PROMPT)) == expected[1]


def test_langchain_completions(texts, expected):
    client = langchain_openai.OpenAI(**options(texts, **ASK))
    assert client.invoke(PROMPT) == expected[1]
    assert "".join(client.stream(PROMPT)) == expected[1]


class TestLangchain(langchain_tests.ChatModelIntegrationTests):
    """LangChain's standard tests of chat models; those of tools, forms and media are skipped by what is said here."""

    @pytest.fixture(autouse=True)
    def _served(self, texts):
        type(self).params = options(texts, model="tiny", max_tokens=MOST, stream_usage=True,
                                    extra_body={"ignore_eos": True})        # a random model may end at once

    chat_model_class = property(lambda self: langchain_openai.ChatOpenAI)
    chat_model_params = property(lambda self: self.params)
    has_tool_calling = has_tool_choice = has_structured_output = property(lambda self: False)

    @pytest.fixture
    def model(self, _served):
        return self.chat_model_class(**self.chat_model_params)


def test_open_webui(texts, expected):
    """Its requests: the models of a connection, a chat, and the title of a chat, which it asks for in one piece."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    models = requests.get(f"{texts.url}/models", headers=headers, timeout=30).json()["data"]
    assert [one["id"] for one in models] == ["tiny", "other name"]
    body = {"model": "tiny", "messages": ASKED, "temperature": 0, "stream": True, "max_tokens": MOST}
    with requests.post(f"{texts.url}/chat/completions", json=body, headers=headers, stream=True, timeout=30) as answer:
        lines = [line.removeprefix(b"data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == b"[DONE]"
    assert "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines) == expected[0]
    body |= {"stream": False, "max_completion_tokens": MOST, "user": {"name": "a", "id": "1", "role": "admin"}}
    body.pop("max_tokens")
    found = requests.post(f"{texts.url}/chat/completions", json=body, headers=headers, timeout=30).json()
    assert found["choices"][0]["message"]["content"] == expected[0]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(texts, expected):
    body = json.dumps(ASK | {"messages": ASKED, "stream": True})
    found = subprocess.run(["curl", "-sSN", "-H", f"authorization: Bearer {KEY}", "-H",
                            "content-type: application/json", "-d", body, f"{texts.url}/chat/completions"],
                           capture_output=True, text=True, check=True).stdout
    assert found.endswith("data: [DONE]\n\n")


ROWS = [{"question": "The capital of France is", "choices": [" Paris", " London", " Rome"], "label": 0},
        {"question": "Two and two make", "choices": [" five", " four apples"], "label": 1},
        {"question": "The sun rises in the", "choices": [" east", " west, and not in the east"], "label": 0}]
CHOICES = """
task: tiny_choices
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: label
doc_to_choice: "{{choices}}"
target_delimiter: ""
metric_list: [{metric: acc}]
"""
WORDS = """
task: tiny_words
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[label]}}"
generation_kwargs: {until: ["."], max_gen_toks: 8, do_sample: false, temperature: 0}
metric_list: [{metric: exact_match}]
"""
"""Two tasks in the form of lm-evaluation-harness, whose own data sets come from a network."""


@pytest.mark.skipif(not smollm2.FILE.exists(), reason=smollm2.MISSING)
def test_lm_evaluation_harness(tmp_path, monkeypatch):
    """Its figures are those of `Generator.score` and `generate`, to all digits."""
    harness = pytest.importorskip("lm_eval")
    tasks = pytest.importorskip("lm_eval.tasks")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for name, text in (("choices", CHOICES), ("words", WORDS)):
        (tmp_path / f"{name}.yaml").write_text(text % data)
    manager = tasks.TaskManager(include_path=str(tmp_path), include_defaults=False)
    model = Generator.load(smollm2.FILE)

    def run(kind, path, names, **others):
        found = harness.simple_evaluate(
            model=kind, model_args={"model": "tiny", "base_url": f"http://127.0.0.1:{client.port}/v1/{path}"},
            tasks=names, task_manager=manager, log_samples=True, bootstrap_iters=0, **others)
        return found, [[one for one, in sample["resps"]] for name in names for sample in found["samples"][name]]

    with serving(model) as client:
        found, (*scores, _, _, _) = run("local-completions", "completions", ["tiny_choices", "tiny_words"])
        assert found["results"]["tiny_choices"]["acc,none"] == sum(
            max(range(len(one)), key=lambda i: one[i][0]) == row["label"]
            for one, row in zip(scores, ROWS, strict=True)) / len(ROWS)
        for row, sample in zip(ROWS, scores, strict=True):
            for (figure, greedy), choice in zip(sample, row["choices"], strict=True):
                logs = model.score(row["question"], choice).log_probabilities.tolist()
                assert figure == sum(logs)
                most = model.generate(row["question"], max_new_tokens=len(logs), do_sample=False).text
                assert greedy == (most == choice)
        settings = {"max_new_tokens": 8, "do_sample": False, "stop_strings": ["."]}
        _, answers = run("local-completions", "completions", ["tiny_words"])
        assert answers == [[model.generate(row["question"], **settings).text] for row in ROWS]
        _, answers = run("local-chat-completions", "chat/completions", ["tiny_words"], apply_chat_template=True)
        assert answers == [[model.chat([{"role": "user", "content": row["question"]}], **settings).text]
                           for row in ROWS]


@pytest.mark.skipif(not whisper.FOLDER.exists(), reason=whisper.MISSING)
@pytest.mark.skipif(not whisper.SPEECH.exists(), reason=whisper.SILENT)
def test_recordings(tmp_path):
    """Whisper tiny.en by OpenAI's client, LiteLLM, and as Open WebUI and curl send a recording."""
    path = whisper.SPEECH / "beckett.wav"
    model = Transcriber.load(whisper.FOLDER)
    text, words = model.transcribe(path).strip(), model.transcribe(path, timestamps="word")
    with serving(model, keys=[KEY]) as served:
        served.url = f"http://127.0.0.1:{served.port}/v1"
        client = openai.OpenAI(**options(served, _strict_response_validation=True)).audio.transcriptions
        asked = {"model": "tiny", "file": path}
        assert client.create(**asked).text == text
        found = client.create(**asked, response_format="verbose_json", timestamp_granularities=["word", "segment"])
        assert [(one.start, one.end, one.word) for one in found.words] == [
            (one.start, one.end, one.text.strip()) for segment in words.segments for one in segment.words]
        assert [(one.start, one.end, one.text) for one in found.segments] == [
            (one.start, one.end, one.text) for one in words.segments]
        assert client.create(**asked, response_format="text") == f"{text}\n"
        subprocess.run([sys.executable, "-m", "engine", "transcribe", str(whisper.FOLDER), str(path), "-o",
                        str(tmp_path / "a.srt")], check=True)
        assert client.create(**asked, response_format="srt") == (tmp_path / "a.srt").read_text()
        *pieces, last = client.create(**asked, stream=True)
        assert "".join(one.delta for one in pieces) == last.text == text

        async def ask():
            async with openai.AsyncOpenAI(**options(served, _strict_response_validation=True)) as client:
                return (await client.audio.transcriptions.create(**asked)).text

        assert asyncio.run(ask()) == text
        with path.open("rb") as file:
            found = litellm.transcription(model="openai/tiny", file=file, api_base=served.url, api_key=KEY)
            assert found.text == text
        with path.open("rb") as file:       # as Open WebUI does
            found = requests.post(f"{served.url}/audio/transcriptions", headers={"Authorization": f"Bearer {KEY}"},
                                  files={"file": ("recording.wav", file)}, data={"model": "tiny"}, timeout=60)
        assert found.json()["text"] == text
        found = subprocess.run(["curl", "-sS", "-H", f"authorization: Bearer {KEY}", "-F", f"file=@{path}",
                                f"{served.url}/audio/transcriptions"], capture_output=True, check=True).stdout
        assert json.loads(found)["text"] == text
