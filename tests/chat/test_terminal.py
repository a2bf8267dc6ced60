"""A talk in a terminal: commands, history, and what ends an answer or the talk."""

import io
import json
import os
import pty
import re
import select
import signal
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import engine
from engine import InputError
from engine.chat.terminal import Talk
from engine.cli.main import main
from engine.model.generation_config import GenerationConfig

from ..tools.chats import CHATML, chat_text
from ..tools.decoders import DECODERS, make_weights


class Echo:
    """Answers with what it was told; a message `stop` is interrupted, and `bad` is refused."""

    def __init__(self):
        self.calls = []

    def stream_chat(self, messages, **settings):
        self.calls.append(([dict(one) for one in messages], settings))
        last = messages[-1]["content"]
        if last == "bad":
            raise InputError("bad message")

        def pieces():
            yield SimpleNamespace(text=f"<{last}")
            if last == "stop":
                raise KeyboardInterrupt
            yield SimpleNamespace(text=">")

        class Stream:
            finish_reason = "length" if last == "long" else "stop"

            def __enter__(self):
                return self

            def __iter__(self):
                return pieces()

            def __exit__(self, *_):
                pass

        return Stream()


class Typed:
    """Lines of which one may be Ctrl-C."""

    def __init__(self, *lines):
        self._lines = iter(lines)

    def __iter__(self):
        return self

    def __next__(self):
        line = next(self._lines)
        if line is KeyboardInterrupt:
            raise KeyboardInterrupt
        return line


def talk(*lines, interactive=True, **settings):
    model, out = Echo(), io.StringIO()
    one = Talk(model, Typed(*lines), out, interactive=interactive, **settings)
    one.run()
    return one, model, out.getvalue()


def contents(messages):
    return [(one["role"][0], one["content"]) for one in messages]


def test_history():
    one, model, text = talk("a", "", "b", interactive=False)
    assert text == "<a>\n<b>\n"
    assert contents(model.calls[1][0]) == [("u", "a"), ("a", "<a>"), ("u", "b")]
    assert contents(one.messages)[-1] == ("a", "<b>")


def test_lines():
    one, _, _ = talk("a\\\n", "b\n", "//c", "d\\", "", "e\\", interactive=False)
    assert [text for role, text in contents(one.messages) if role == "u"] == ["a\nb", "/c", "d\n", "e"]


def test_system():
    one, model, text = talk("x", "/system Be short.", "a", "/system", "/clear", "b", system="First.")
    assert contents(model.calls[0][0]) == [("s", "First."), ("u", "x")]
    assert contents(model.calls[1][0]) == [("s", "Be short."), ("u", "a")]
    assert contents(one.messages) == [("s", "Be short."), ("u", "b"), ("a", "<b>")]
    assert "Be short.\n" in text
    assert "no instruction" in talk("/system")[2]


def test_retry():
    one, model, _ = talk("a", "b", "/retry", do_sample=True, seed=4)
    assert [settings["seed"] for _, settings in model.calls] == [4, 4, 5]
    assert contents(model.calls[2][0]) == [("u", "a"), ("a", "<a>"), ("u", "b")]
    assert len(one.messages) == 4
    for lines, system in (["/retry"], None), (["/retry"], "S"):
        assert "there is no answer to try again" in talk(*lines, system=system)[2]


def test_save_and_load(tmp_path):
    name = tmp_path / "talk with a space.json"
    talk("ä", f"/save {name}", system="S")
    assert contents(json.loads(name.read_text(encoding="utf-8"))) == [("s", "S"), ("u", "ä"), ("a", "<ä>")]
    one, _, text = talk(f"/load {name}", "b", "/clear")
    assert "3 messages are there" in text
    assert contents(one.messages) == [("s", "S")]
    name.write_text('[{"role": "user", "content": 5}]')
    errors = talk("/save", "/load", f"/load {name}", "/load /no/such", f"/save {tmp_path}/no/such")[2]
    for expected in ("/save needs the name", "/load needs the name", "must be a list of messages", "No such file",
                     "no such folder"):
        assert expected in errors
    name.write_text(r'[{"role": "user", "content": "\ud800"}]')
    errors = talk(f"/load {name}", "/load a\0b", "/save a\0b", "\ud800", "/system \udcff")[2]
    for expected in ("must be a list of messages", "'a\\x00b' is no name of a file", "the line is not UTF-8 text"):
        assert errors.count(expected) == (1 if "must" in expected else 2)
    name.write_text("[")
    assert "/load reads a file that /save wrote" in talk(f"/load {name}")[2]


def test_an_answer_to_a_conversation_that_was_loaded(tmp_path, monkeypatch):
    """Which ends with a message of the user, or has an answer to nothing; the name begins with a tilde."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a").write_text('[{"role": "system", "content": "S"}, {"role": "user", "content": "b"}]')
    one, _, _ = talk("/load ~/a", "/retry", "/save\t~/c")
    assert contents(one.messages) == [("s", "S"), ("u", "b"), ("a", "<b>")]
    assert json.loads((tmp_path / "c").read_text()) == one.messages
    (tmp_path / "a").write_text('[{"role": "system", "content": "S"}, {"role": "assistant", "content": "b"}]')
    assert "there is no answer to try again" in talk("/load ~/a", "/retry")[2]


def test_help_and_quit():
    for end in ("/quit ", "/exit", "/bye"):
        assert talk("/?", end, "a")[1].calls == []
    _, model, text = talk("/help", "/no", "/quit", "a")
    assert "/retry" in text
    assert "there is no command /no; /help lists" in text
    assert model.calls == []


def test_interrupts_end_an_answer_and_not_the_talk(monkeypatch):
    one, _, text = talk("a\\", KeyboardInterrupt, "stop", "b")
    assert "Ctrl-D or /quit ends the talk" in text
    assert "<stop [stopped]\n" in text
    assert contents(one.messages) == [("u", "stop"), ("a", "<stop"), ("u", "b"), ("a", "<b>")]
    def interrupt(self, _):
        raise KeyboardInterrupt

    monkeypatch.setattr(Talk, "_set_system", interrupt)     # as at any moment beside an answer
    assert contents(talk("a", "/system", "b")[0].messages)[2:] == [("u", "b"), ("a", "<b>")]
    with pytest.raises(KeyboardInterrupt):
        talk("stop", interactive=False)
    with pytest.raises(KeyboardInterrupt):
        talk(KeyboardInterrupt, interactive=False)


def test_settings_change_between_answers():
    lines = ("a", "/set temperature 0.7", "/set early-stopping never", "b", "/set", "/set temperature", "c")
    _, model, text = talk(*lines, top_k=5)
    assert [settings for _, settings in model.calls] == [
        {"top_k": 5}, {"top_k": 5, "temperature": 0.7, "early_stopping": "never"},
        {"top_k": 5, "early_stopping": "never"}]
    assert "top_k=5, temperature=0.7, early_stopping='never'\n" in text
    _, model, text = talk("/set", "/set temprature 1", "/set top_p high", "a")
    assert "no settings; the model's own hold" in text
    assert "no argument temprature (did you mean temperature?)" in text
    assert "top_p must be a number from 0 to 1" in text
    assert model.calls[0][1] == {}


def test_an_error_ends_an_answer_and_not_the_talk():
    one, _, text = talk("a", "bad", "b")
    assert "bad message\n" in text
    assert contents(one.messages) == [("u", "a"), ("a", "<a>"), ("u", "b"), ("a", "<b>")]
    with pytest.raises(InputError, match="bad message"):
        talk("a", "bad", interactive=False)


def test_a_person_gets_no_control_characters_and_is_told_of_the_limit():
    _, _, text = talk("a\x1b[2J", "long")
    assert text == ("<a\ufffd[2J>\n<long>\n"
                    "[the answer has its greatest length; /set max_new_tokens changes it]\n")
    assert talk("\x1b", interactive=False)[2] == "<\x1b>\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("chat") / "m.npz"
    config = replace(DECODERS["Llama"], vocab_size=280, max_positions=3000)
    engine.save(engine.Model(decoder=engine.Transformer(config, make_weights(config), chat_text(CHATML)),
                             generation=GenerationConfig(eos_token_id=[], max_new_tokens=6)), path)
    return path


def piped(data):
    """Return standard input over a pipe, in a locale that has ASCII alone."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="ascii")


def test_input_that_is_none(path, monkeypatch, capsys):
    for stdin, expected in ((piped("ä\n".encode() + b"\xff\n"), "line 2 of standard input is not UTF-8 text"),
                            (None, "standard input is closed")):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["chat", str(path), "--threads", "1", "--max-new-tokens", "1"]) == 1
        assert f"engine chat: {expected}" in capsys.readouterr().err


def test_the_command_over_a_pipe(path, tmp_path, monkeypatch, capsys):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    monkeypatch.setattr(sys, "stdin", piped(b"\xef\xbb\xbfHello\nWhat?\n"))
    assert main(["chat", str(path), "--template", str(template), "--system", "S", "--threads", "1"]) == 0
    with engine.load(path, threads=1) as generator:
        first = generator.chat([{"role": "user", "content": "SHello"}], template=template.read_text())
        ids = generator.tokenizer.encode(f"SHello{first.text}What?", add_special_tokens=False)
        second = generator.generate([ids])[0]
    assert capsys.readouterr().out == f"{first.text}\n{second.text}\n"


@pytest.mark.parametrize("text", ["Hello you", "/quit", "//a", "What?\\", "a\nb"])
def test_the_command_answers_a_text_once(path, monkeypatch, capsys, text):
    monkeypatch.setattr(sys, "stdin", None)     # which is not read
    with engine.load(path, threads=1) as generator:
        expected = generator.chat([{"role": "system", "content": "S"}, {"role": "user", "content": text}])
    assert main(["chat", str(path), text, "--system", "S", "--threads", "1"]) == 0
    assert capsys.readouterr() == (f"{expected.text}\n", "")


def test_the_command_answers_several_texts_in_turn(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Hello").touch()
    with engine.load(path, threads=1) as generator:
        first = generator.chat("Hello")
        second = generator.chat([{"role": "user", "content": "Hello"}, first.message, {"role": "user", "content": "b"}])
    assert main(["chat", str(path), "-p", "Hello", "--prompt", "b", "--threads", "1"]) == 0
    assert capsys.readouterr().out == f"{first.text}\n{second.text}\n"
    assert main(["chat", str(path), "Hello"]) == 1
    assert "engine chat MODEL < FILE sends each line of a file, and --prompt TEXT any text" in capsys.readouterr().err
    assert main(["chat", str(path), "--prompt", "\udc80"]) == 1
    assert "the message is not UTF-8 text" in capsys.readouterr().err


class Terminal:
    """The side of a terminal that a person sees, of a fork of this process that gets the other side."""

    def __init__(self, *arguments):
        self._process, self._ours = pty.fork()
        if self._process == 0:
            status = 3
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
                    setattr(sys, name, open(descriptor, mode, encoding="utf-8"))      # noqa: SIM115, for as long as it lives
                status = main(["chat", *map(str, arguments), "--threads", "1"])
            finally:
                os._exit(status)
        self._seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            self.wait()
        os.close(self._ours)

    def wait(self):
        """Return how the process has ended."""
        process, self._process = self._process, 0
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def wait_for(self, pattern):
        """Read until a pattern comes, and forget what comes before its end."""
        until = time.monotonic() + 60
        while (found := re.search(pattern, self._seen)) is None:
            assert select.select([self._ours], [], [], max(0, until - time.monotonic()))[0], self._seen
            self._seen += os.read(self._ours, 1000).decode(errors="replace")
        self._seen = self._seen[found.end() :]

    def type(self, text):
        os.write(self._ours, text.encode())


def test_the_command_in_a_terminal(path):
    """Ctrl-C ends an answer that would have 2,900 tokens, and the talk goes on."""
    with Terminal(path, "--max-new-tokens", "2900") as terminal:
        terminal.wait_for("/help lists the commands")
        terminal.wait_for("> ")
        terminal.type("Hello\n")
        terminal.wait_for("Hello\r?\n.")
        terminal.type("\x03")
        terminal.wait_for(r"\[stopped\]")
        terminal.wait_for("> ")
        terminal.type("/quit\n")
        assert terminal.wait() == 0
