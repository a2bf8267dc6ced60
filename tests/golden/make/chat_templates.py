"""Make the golden file of chat templates: texts and ids of transformers' apply_chat_template.

    python -m tests.golden.make chat_templates             write chat/expected.json for the templates of tests/tools
    python -m tests.golden.make chat_templates FOLDER      compare the templates of a folder, and write nothing

Such a folder is vendor/llama.cpp/models/templates in the source package of llama-cpp-python, which has 70 templates of
published models: pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36. The comparison renders each
dialogue here and there, and prints the differences and their number.
"""

import hashlib
import json
import re
import sys
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from engine.base.errors import EngineError
from engine.chat.template import Prompts
from engine.chat.template_options import CONTROL_TOKENS, TemplateOptions
from engine.generation.lengths import Bound
from engine.model.chat_config import ChatConfig
from engine.model.text_config import TextConfig
from engine.text.tokenizer import Tokenizer as OwnTokenizer
from tests.tools.chats import DATE, DIALOGUES, OTHERS, SPECIAL, SPECIAL_TOKENS, TEMPLATES, options_of, tokenizer_json
from tests.tools.paths import GOLDEN

KINDS = ("bytes", "pieces")


@contextmanager
def fixed_date():
    """Let transformers believe that it is `DATE`."""

    class Fixed(chat_template_utils.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(*DATE.timetuple()[:6])

    before, chat_template_utils.datetime = chat_template_utils.datetime, Fixed
    try:
        yield
    finally:
        chat_template_utils.datetime = before


def digest(ids):
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16]


class Theirs:
    """transformers with a small tokenizer and one template."""

    def __init__(self, data, template):
        self._tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_buffer(data), **SPECIAL_TOKENS)
        self._tokenizer.chat_template = template

    def __call__(self, dialogue, **more):
        given = options_of(dialogue)
        values = given.pop("values")
        try:
            make = self._tokenizer.apply_chat_template
            return {"result": make(dialogue["messages"], return_dict=False, **given, **values, **more)}
        except Exception as error:
            return {"error": str(error)}

    def text(self, dialogue):
        return self(dialogue, tokenize=False)

    def ids(self, dialogue, control_tokens):
        return self(dialogue, tokenize=True, sanitize_control_tokens=control_tokens == "text")


class Ours:
    """The engine with the same."""

    def __init__(self, data, template):
        config = ChatConfig({"default": template}, SPECIAL_TOKENS)
        tokenizer = OwnTokenizer(TextConfig(data), None, 1, truncates=False)
        self._prompts = Prompts(config, lambda: tokenizer, Bound("the prompt", None))

    def _result(self, make, dialogue, **more):
        try:
            options = TemplateOptions(**options_of(dialogue), date=DATE, **more).checked()
            return {"result": make(dialogue["messages"], options)}
        except EngineError as error:
            return {"error": str(error)}

    def text(self, dialogue):
        return self._result(self._prompts.text, dialogue)

    def ids(self, dialogue, control_tokens):
        return self._result(self._prompts.ids, dialogue, control_tokens=control_tokens)


def same(theirs, ours):
    """Return whether two results are equal, or both are errors and ours has the first sentence of theirs.

    What Python says of a recursion without end depends on the function in which it ends it.
    """
    if "error" in theirs:
        sentence = theirs["error"].partition("!")[0].partition(" while calling")[0].strip()
        return sentence[:1000] in ours.get("error", "")
    return theirs == ours


def control_tokens_in(template):
    """Return what looks like a control token in a template, in its order."""
    return tuple(dict.fromkeys(re.findall(r"<[|｜][^<>{}\n'\"]+[|｜]>|</?[a-z_:]+>|\[/?[A-Z_]+\]", template)))


def compare(folder):
    compared = differences = errors = 0
    for path in sorted(Path(folder).glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        found = control_tokens_in(template)
        sides = {kind: [side(tokenizer_json(kind, tuple(dict.fromkeys((*SPECIAL, *found[::2]))), (*OTHERS, *(
            one for one in found[1::2] if one not in (*SPECIAL, *OTHERS)))), template) for side in (Theirs, Ours)]
            for kind in KINDS}
        for name, dialogue in DIALOGUES.items():
            results = {"text": [side.text(dialogue) for side in sides["bytes"]]} | {
                f"{kind} {control}": [side.ids(dialogue, control) for side in pair]
                for kind, pair in sides.items() for control in CONTROL_TOKENS}
            for what, (theirs, ours) in results.items():
                compared += 1
                errors += "error" in theirs
                if not same(theirs, ours):
                    differences += 1
                    print(f"{path.stem} {name} {what}:\n  theirs {str(theirs)[:300]!r}\n  ours   {str(ours)[:300]!r}")
        for pair in sides.values():
            pair[1]._prompts.renderer.close()
    print(f"{compared} results, {errors} of them errors, {differences} differences")


def write():
    expected = {}
    for name, template in TEMPLATES.items():
        theirs = {kind: Theirs(tokenizer_json(kind), template) for kind in KINDS}
        expected[name] = {}
        for dialogue, given in DIALOGUES.items():
            found = theirs["bytes"].text(given)
            if "error" in found:
                expected[name][dialogue] = {"error": found["error"].partition("!")[0]}
                continue
            ids = {f"{kind} {control}": side.ids(given, control) for kind, side in theirs.items()
                   for control in CONTROL_TOKENS}
            expected[name][dialogue] = {"text": found["result"], "ids": {
                what: digest(one["result"]) if "result" in one else one for what, one in ids.items()}}
    path = GOLDEN / "chat" / "expected.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with fixed_date():
        compare(sys.argv[1]) if sys.argv[1:] else write()
