"""Templates of chats, dialogues for them, and small tokenizers with control tokens.

The templates are written for these tests, in the forms that published models have.
"""

from datetime import datetime
from functools import cache

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.model.chat_config import ChatConfig
from engine.model.text_config import TextConfig

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

CHATML = """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

TEMPLATES = {
    "chatml": CHATML,
    "chatml_system": """{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou answer in short.<|im_end|>\\n' }}
{%- endif %}""" + CHATML,
    "chatml_parts": """{% macro text(c) %}{% if c is string %}{{ c }}{% elif c %}{% for p in c %}{{ p.text }}{% if not loop.last %}
{% endif %}{% endfor %}{% endif %}{% endmacro %}
{% for m in messages %}
<|im_start|>{{ m.role }}
{{ text(m.content) | trim }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "chatml_generation": """{%- for m in messages -%}
{%- if m.role == 'assistant' -%}<|im_start|>assistant
{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}

{% else -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif -%}{%- endfor -%}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "llama3": """{{- bos_token }}{% for m in messages %}{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}
{{- m['content'] | trim + '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "llama3_tools": """{{- bos_token }}{%- set day = date_string if date_string is defined else strftime_now('%d %b %Y') %}
{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}{% set rest = messages[1:] %}
{%- else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + day + '\\n' + system + '\\n' }}
{%- if tools is not none %}{{- 'Functions:\\n' }}{%- for t in tools %}{{- t | tojson(indent=4) + '\\n' }}{% endfor %}{% endif %}
{{- '<|eot_id|>' }}{%- for m in rest %}{% if m.role in ('tool', 'ipython') %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}{{- m.content | tojson if m.content is mapping else m.content }}
{{- '<|eot_id|>' }}{% elif m.tool_calls %}{% if m.tool_calls | length != 1 %}
{{- raise_exception('This model calls one tool at a time!') }}{% endif %}{% set call = m.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}{% else %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "mistral": """{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{%- if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% elif m['role'] == 'assistant' %}
{{- m['content'] + eos_token }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}
{%- endfor %}""",
    "mistral_system": """{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set loop_messages = messages[1:] %}
{%- else %}{% set loop_messages = messages %}{% endif %}
{{- bos_token }}{%- set ns = namespace(index=0) %}{%- for m in loop_messages %}
{%- if m.role == 'user' or (m.role == 'assistant' and m.tool_calls is undefined) %}
{%- if (m.role == 'user') != (ns.index % 2 == 0) %}
{{- raise_exception('After the optional system message, roles must alternate: ' ~ m.role) }}{% endif %}
{%- set ns.index = ns.index + 1 %}{% endif %}{% endfor %}
{%- for m in loop_messages %}{% if m.role == 'user' %}{% if loop.last and system is defined %}
{{- '[INST]' + system + '\\n\\n' + m.content + '[/INST]' }}{% else %}{{- '[INST]' + m.content + '[/INST]' }}{% endif %}
{%- elif m.tool_calls is defined %}{{- '[TOOL_CALLS]' + (m.tool_calls | map(attribute='function') | list | tojson) + eos_token }}
{%- elif m.role == 'assistant' %}{{- ' ' + m.content | trim + eos_token }}{% elif m.role == 'tool' %}
{{- '[TOOL_RESULTS]{"content": ' + m.content | string + '}[/TOOL_RESULTS]' }}{% endif %}{% endfor %}
{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{%- set role = 'model' if m['role'] == 'assistant' else m['role'] %}
{{- '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}""",
    "gemma_parts": """{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}
{%- set prefix = (messages[0]['content'] if messages[0]['content'] is string else messages[0]['content'][0]['text']) + '\n\n' -%}
{%- set turns = messages[1:] -%}{%- else -%}{%- set prefix = '' -%}{%- set turns = messages -%}{%- endif -%}
{%- for m in turns -%}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + (prefix if loop.first else '') }}
{%- if m.content is string -%}{{ m.content | trim }}{%- elif m.content is iterable -%}{%- for p in m.content -%}
{%- if p.type == 'text' -%}{{ p.text | trim }}{%- endif -%}{%- endfor -%}{%- else -%}{{ raise_exception('Invalid content type') }}
{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}""",
    "phi": """{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "phi_tools": """{% for m in messages %}{% if m['role'] == 'system' and tools %}
{{- '<|system|>' + m['content'] + '<|tool|>' + tools | string + '<|/tool|><|end|>' }}
{%- else %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}""",
    "hermes": """{%- macro kind(spec) %}{% if spec.type is string %}{{ {'string': 'str', 'number': 'float', 'integer': 'int', 'boolean': 'bool'}.get(spec.type, 'any') }}
{%- elif spec.type is iterable %}Union[{{ spec.type | join(',') }}]{% else %}any{% endif %}{% endmacro %}
{{- bos_token }}<|im_start|>system
{% if tools %}<tools> {% for t in tools %}{% set f = t.function if t.function else t %}{{ f.name }}(
{%- for name, spec in f.parameters.properties.items() %}{{ name }}: {{ kind(spec) }}{{ '' if loop.last else ', ' }}{% endfor %}) - {{ f.description }}
{{ f.parameters | tojson }}{% endfor %} </tools>
{% endif %}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}<|im_end|>
{% for m in messages %}{% if m.role == 'system' and loop.first %}{% continue %}{% endif %}
{% if m.role == 'tool' %}<|im_start|>tool
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% elif m.tool_calls %}<|im_start|>assistant
{% for c in m.tool_calls %}<tool_call>
{"name": {{ c.function.name | tojson }}, "arguments": {{ c.function.arguments | tojson(sort_keys=True) }}}
</tool_call>{% endfor %}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "hermes_break": """{% for m in messages %}{% if loop.index > 4 %}{% break %}{% endif %}<|im_start|>{{ m.role | title }}: {{ m.content | default('-', true) }}<|im_end|>
{% endfor %}{{ messages | map(attribute='role') | unique | join('/') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}""",
    "qwen": """{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}# Tools
{% for t in tools %}

{{ t | tojson }}{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% elif m.role == 'assistant' %}
{{- '<|im_start|>assistant' }}{% if m.content %}{{ '\\n' + m.content }}{% endif %}{% for c in m.tool_calls %}
{%- set c = c.function if c.function is defined else c %}
{{- '\\n<tool_call>\\n{"name": "' + c.name + '", "arguments": ' }}{{ c.arguments if c.arguments is string else c.arguments | tojson }}
{{- '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% elif m.role == 'tool' %}
{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}""",
    "qwen_reasoning": """{%- set ns = namespace(last=messages | length - 1, found=false) %}{% for m in messages[::-1] %}
{%- if not ns.found and m.role == 'user' %}{% set ns.found = true %}{% set ns.last = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}
{%- if not ns.found %}{{ raise_exception('No user query found in messages.') }}{% endif %}
{%- for m in messages %}{% set content = m.content if m.content is string else '' %}
{%- set reasoning = m.reasoning_content if m.reasoning_content is string else '' %}
{%- if not reasoning and '</think>' in content %}{% set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{- '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' and reasoning and loop.index0 > ns.last %}
{{- '<think>\\n' + reasoning.strip() + '\\n</think>\\n\\n' }}{% endif %}{{- content.lstrip('\\n') + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}""",
    "thinking": """{% for m in messages %}[{{ m.role }}]{% if m.thinking is defined %}<think>{{ m.thinking }}</think>{% endif %}{{ m.content }}
{% endfor %}""",
    "documents": """{{ bos_token }}{% if documents %}{% for d in documents %}Document {{ loop.index }}: {{ d.title }}
{{ d.text | indent(2) }}
{% endfor %}{% endif %}{% for m in messages %}{{ m.role | upper }}: {{ m.content | replace('<', '&lt;') }}
{% endfor %}{% if style %}Style: {{ style }} {{ "%.2f" | format(weight) }}{% endif %}""",
    "numbers": """{{ messages | length // 2 }} {{ (messages | length) / 4 }} {{ 7 % 3 }} {{ 2 ** 5 }} {{ 1.0 }} {{ none }} {{ true }}
{% for t in tools or [] %}{% for k, v in t.function.parameters.properties | dictsort %}{{ k }}={{ v }} {{ v.default }};{% endfor %}{% endfor %}
{% for m in messages recursive %}{% for c in m.tool_calls or [] %}{{ c.function.arguments }} {{ c.id }}{% endfor %}{{ loop.cycle('a', 'b') }}{{ m.keys() | list }}{% endfor %}
{{ {'b': [1, 2.5, 'é', none], 'a': '<b>&"'} | tojson }} {{ dict(x=1) }} {{ namespace(y=2).y }} {{ strftime_now('%Y-%m-%d %H:%M %A') }}""",
    "strict": """{{ messages[0].content.title() }}{{ messages[-1].missing.attribute }}""",
}  # fmt: skip

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
