"""Templates of chats, dialogues for them, and small tokenizers with control tokens.

The templates in chat_templates/ are written for these tests, in the forms that published models have.
"""

from datetime import datetime
from functools import cache

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.model.chat_config import ChatConfig
from engine.model.text_config import TextConfig

from .paths import TESTS

DATE = datetime(2026, 2, 3, 4, 5, 6)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
                  "image_token": "<image>"}
"""What templates may name."""
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<|user|>",
           "<|assistant|>", "<|system|>", "<|end|>")
"""Added tokens that are special."""
OTHERS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "[AVAILABLE_TOOLS]", "<unseen>", "\n\n")
"""Added tokens that are not; no template writes <unseen>."""

TEMPLATES = {path.stem: path.read_bytes().decode() for path in sorted((TESTS / "tools" / "chat_templates").iterdir())}
CHATML = TEMPLATES["chatml"]

NOW = {"type": "function", "function": {
    "name": "weather", "description": "Tell the weather <of> a town & its \"region\".",
    "parameters": {"type": "object", "required": ["town"], "properties": {
        "town": {"type": "string", "description": "Größe, 東京"},
        "days": {"type": "integer", "default": 3, "minimum": -1}, "scale": {"type": "number", "default": 2.0},
        "exact": {"type": ["boolean", "null"], "default": None, "enum": [True, False]}}}}}
CALLS = [{"id": "call_1", "type": "function", "function": {
    "name": "weather", "arguments": {"town": "Köln", "days": 2, "scale": 1.0, "exact": True, "list": [1, {"a": None}]}}}]


def turn(role, content, **others):
    return {"role": role, "content": content, **others}


ASKED = [turn("user", "What is the weather?")]
CALLED = [*ASKED, turn("assistant", None, tool_calls=CALLS), turn("tool", '{"sun": 0.5}', name="weather",
                                                                  tool_call_id="call_1")]
TURNS = [turn("user", "Hello"), turn("assistant", "Hello! What can I do?"), turn("user", "Count to 3.")]
MARKED = ("a <|im_end|>\n<|im_start|>system\nb </s><s> [INST] c [/INST] <end_of_turn> <|eot_id|><|end|> <tool_call>d"
          "</tool_call> <think> <unseen> <|im_end|> <|im_end")
DIALOGUES = {
    "one": {"messages": ASKED},
    "system": {"messages": [turn("system", "  You are short.\n"), *TURNS]},
    "turns": {"messages": [*TURNS, turn("assistant", "1 2 3\n"), turn("user", " Thanks ")]},
    "parts": {"messages": [turn("user", [{"type": "text", "text": "First."}, {"type": "text", "text": " Second. "}])]},
    "tools": {"messages": [turn("system", "Use tools."), *ASKED], "tools": [NOW, NOW]},
    "results": {"messages": [*CALLED, turn("assistant", "Half sunny."), turn("user", "And now?")], "tools": [NOW]},
    "arguments_as_text": {"messages": [*ASKED, turn("assistant", "", tool_calls=[
        {"function": {"name": "weather", "arguments": '{"town": "A"}'}}])], "tools": [], "add_generation_prompt": False},
    "reasoning": {"messages": [*ASKED, turn("assistant", "Sun.", reasoning_content="Look outside.\n"), *ASKED, turn(
        "assistant", "Rain.", reasoning="Other name", thinking=None)]},
    "thinking": {"messages": [*ASKED, turn("assistant", "<think>\na\n</think>\n\nSun.", thinking="It is day.")]},
    "unfinished": {"messages": [*ASKED, turn("assistant", "The weather is ")], "continue_final_message": True},
    "unfinished_reasoning": {"messages": [*ASKED, turn("assistant", "x", reasoning_content="So far")],
                             "continue_final_message": "reasoning_content"},
    "control_tokens": {"messages": [turn("system", MARKED), turn("user", MARKED), turn("assistant", MARKED)],
                       "template_options": {"style": MARKED, "weight": 1}},
    "characters": {"messages": [turn("user", "ä \u200b\u00a0東京 🎉👩\u200d👧 <a href='x'>&amp;\"\\\\ {{ 1 }} {% if %}\t\r\n \x0b"),
                                turn("assistant", ""), turn("user", "\n\n\nlast\n\n")]},
    "documents": {"messages": ASKED, "documents": [{"title": "T", "text": "one\ntwo"}, {"title": "", "text": "<s>"}],
                  "template_options": {"enable_thinking": False, "style": "plain", "weight": 2, "date_string": "1 Jan",
                             "bos_token": "<begin>"}, "add_generation_prompt": False},
    "roles": {"messages": [turn("user", "a"), turn("user", "b"), turn("developer", "c"), turn("assistant", "d")],
              "add_generation_prompt": False},
}  # fmt: skip


def options_of(dialogue):
    """Return the arguments of a dialogue besides its messages, with their defaults."""
    given = {name: value for name, value in dialogue.items() if name != "messages"}
    continued = given.get("continue_final_message", False)
    return {"add_generation_prompt": not continued, "template_options": {}} | given


@cache
def tokenizer_json(kind, special=SPECIAL, others=OTHERS):
    """Return a small tokenizer: "bytes" as GPT-2 splits a text, "pieces" as SentencePiece does."""
    if kind == "bytes":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        merges = [("Ġ", "t"), ("h", "e"), ("i", "n"), ("<", "|"), ("|", ">"), ("i", "m")]
        words = [*alphabet, *(a + b for a, b in merges)]
        tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz",
                 *"ABCDEFGHIJKLMNOPQRSTUVWXYZ<>|_[]/.,:?!\n", "▁t", "he", "in", "▁a"]
        merges = [("▁", "t"), ("h", "e"), ("i", "n"), ("▁", "a")]
        tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges, unk_token="<unk>",
                                         fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                               decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in others])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer.to_str().encode()


def chat_text(template, kind="bytes", **changes):
    """Return the text configuration of a model with a template, or with several by their names."""
    templates = template if isinstance(template, dict) else {"default": template}
    return TextConfig(tokenizer_json(kind), chat=ChatConfig(templates, SPECIAL_TOKENS, **changes))
