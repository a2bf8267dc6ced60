"""Make generation.json: what transformers generates with a model whose logits come from a table (table_model.py).

    python -m tests.golden.make.generation

generation.json holds

    cases     a list of {config, vocab_size, bias, prompts, uniforms, results}: config has arguments of `generate`;
              results[i] has, for each result of prompts[i], {"ids": the new ids up to an end token, "score"}. The score
              of a beam search is transformers' sequences_scores. That of other cases is the sum of the log
              probabilities of the unchanged logits, tokens that were forced left out, divided by the number of new
              tokens to the power of length_penalty.
    filters   a list of {config, prompt, vocab_size, probabilities}: the probabilities behind the processors of
              transformers for sampling, of the logits without bias

Sampling uses given numbers: for each row of probabilities the first token, in the order of the ids, at which the
cumulative probability passes the next number. Every prompt runs alone.
"""

import json

import numpy as np
import torch
from transformers import GenerationConfig, GenerationMixin, LogitsProcessorList, PretrainedConfig, PreTrainedModel
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor
from transformers.modeling_outputs import CausalLMOutput

from tests.tools.paths import DECODERS

from ..table_model import table_logits

SMALL, LARGE = 23, 2500
"""Sizes of the vocabulary; in the large one, the best tokens are searched block by block."""

EOS = {"eos_token_id": 2}
PROMPTS = [[5], [7, 3, 11], [4, 4, 4, 4], [9, 8], [17, 2, 6], [12], [21, 20, 19, 18, 17, 16]]
BASE = {"max_new_tokens": 14, **EOS}
BEAMS = {**BASE, "num_beams": 4}
TIMES = {"no_timestamps_token_id": 9}
"""Of the cases with timestamps: ids below 8 are text, 8 is the end token, and 10 is the time 0.00 s."""
SAMPLE = {**BASE, "do_sample": True, "max_new_tokens": 10}


def configurations() -> list[tuple[dict, int, dict[int, float]]]:
    """Return (arguments of generate, size of the vocabulary, bias of the logits) of each case."""
    small: list[dict] = [BASE, {"max_new_tokens": 9}, {**BASE, "max_new_tokens": 1}, {**EOS, "max_length": 12}]
    for beams in (2, 3, 4):
        small += [{**BASE, "num_beams": beams, "early_stopping": stop} for stop in (True, False, "never")]
    for penalty in (-1.0, 0.0, 0.6, 2.0):
        small += [{**BEAMS, "length_penalty": penalty, "early_stopping": stop, "num_return_sequences": 4}
                  for stop in (True, False, "never")]  # fmt: skip
    several = {"eos_token_id": [2, 5, 6]}
    changes: list[dict] = [
        {"no_repeat_ngram_size": 1, "max_new_tokens": 6}, {"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 3},
        {"repetition_penalty": 1.7}, {"repetition_penalty": 0.6},
        {"min_new_tokens": 5}, {"min_length": 9},
        {"bad_words_ids": [[3], [4, 9], [7, 3, 11], [2], [10, 12], [8, 1], [1, 8]]},
        {"suppress_tokens": [1, 3, 8, 9, 14]}, {"begin_suppress_tokens": [2, 6, 10]},
        {"forced_bos_token_id": 13}, {"forced_bos_token_id": 13, "begin_suppress_tokens": [2, 6, 10, 13]},
        {"forced_eos_token_id": 2}, {"forced_eos_token_id": 2, "max_new_tokens": 4}, several,
        {**several, "min_new_tokens": 4}, {"suppress_tokens": [1, 3], "renormalize_logits": True},
        {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_new_tokens": 3, "suppress_tokens": [4],
         "bad_words_ids": [[6, 7], [9]], "forced_bos_token_id": 13, "forced_eos_token_id": 2,
         "begin_suppress_tokens": [20], "renormalize_logits": True},
    ]  # fmt: skip
    small += [{**base, **change} for change in changes for base in (BASE, BEAMS)]
    small += [{**BEAMS, **several, "num_return_sequences": 3, "early_stopping": stop} for stop in (True, "never")]
    for warpers in ({"top_k": 0}, {"top_k": 5}, {"top_k": 0, "top_p": 0.7}, {"top_k": 8, "top_p": 0.8},
                    {"top_k": 0, "min_p": 0.2}, {"top_k": 6, "top_p": 0.9, "min_p": 0.1, "temperature": 0.7},
                    {"temperature": 2.5, "repetition_penalty": 1.4}, {"top_k": 4, "suppress_tokens": [3, 4, 5]},
                    {"top_k": 7, "num_return_sequences": 3}, {"top_k": 3, "no_repeat_ngram_size": 2},
                    {"top_k": 0, "num_return_sequences": 2, "min_new_tokens": 4}):  # fmt: skip
        small.append({**SAMPLE, **warpers})
    large = [BASE, BEAMS, {**BEAMS, "no_repeat_ngram_size": 2}, {**BEAMS, "repetition_penalty": 1.5},
             {**BASE, "repetition_penalty": 1.5}, {**SAMPLE, "top_k": 0, "top_p": 0.9}, {**SAMPLE, "top_k": 20},
             {**SAMPLE, "top_k": 0, "top_p": 0.2, "temperature": 0.5},
             {**BEAMS, "suppress_tokens": list(range(10, 300, 2))}]  # fmt: skip
    times = {"return_timestamps": True, **TIMES, "eos_token_id": TIMES["no_timestamps_token_id"] - 1}
    timed = [{**times, **options} for options in (
        {"max_new_tokens": 20}, {"max_new_tokens": 30, "max_initial_timestamp_index": 2},
        {"max_new_tokens": 25, "max_initial_timestamp_index": 0, "suppress_tokens": [1, 3]},
        {"max_new_tokens": 20, "num_beams": 4, "num_return_sequences": 4}, {"max_new_tokens": 20, "num_beams": 2,
         "max_initial_timestamp_index": 3, "begin_suppress_tokens": [8, 11]},
        {"max_new_tokens": 10, "do_sample": True, "top_k": 0, "max_initial_timestamp_index": 5},
        {"max_new_tokens": 10, "do_sample": True, "top_k": 4, "num_return_sequences": 3})]  # fmt: skip
    # More candidates than a row has tokens.
    wide = [({**BASE, "num_beams": beams, "num_return_sequences": beams // 2, "early_stopping": stop, **options}, size)
            for beams, size, stop, options in (
                (4, 7, True, {}), (5, 7, "never", {"length_penalty": 2.0}), (7, 7, False, several),
                (20, 29, "never", {}), (40, 29, True, several), (50, 60, False, {"length_penalty": 0.0}))]  # fmt: skip
    # The bias makes end tokens likely enough to come early, and the large vocabulary less flat.
    return [(config, SMALL, {2: 2.5, 5: 0.5}) for config in small] + [
        (config, LARGE, {2: 4.5, **dict.fromkeys(range(30, 60), 3.0)}) for config in large
    ] + [(config, SMALL, dict.fromkeys(range(10, SMALL), bias)) for config in timed for bias in (-2.5, -0.5)] + [
        (config, size, {2: 1.0}) for config, size in wide
    ]


class TableConfig(PretrainedConfig):
    """The configuration of `TableModel`."""

    model_type = "table"


class TableModel(PreTrainedModel, GenerationMixin):
    """A causal language model with the logits of table_model.py."""

    config_class = TableConfig
    main_input_name = "input_ids"

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config)
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.bias: dict[int, float] = {}

    def forward(self, input_ids=None, attention_mask=None, **_) -> CausalLMOutput:
        rows = [table_logits(row, self.config.vocab_size, self.bias) for row in input_ids.tolist()]
        return CausalLMOutput(logits=torch.from_numpy(np.stack(rows))[:, None])


def run(model: TableModel, config: dict, prompt: list[int], uniforms: np.ndarray | None) -> list[dict]:
    """Return the results of one prompt."""
    step = iter(() if uniforms is None else uniforms.T)

    def multinomial(probabilities, num_samples):
        assert num_samples == 1
        cumulative = probabilities.double().numpy().cumsum(axis=1)
        u = next(step)[:, None] * cumulative[:, -1:]
        return torch.from_numpy((cumulative <= u).sum(axis=1, keepdims=True))

    torch.multinomial = multinomial
    beams = config.get("num_beams", 1) > 1
    settings, rules = GenerationConfig(**config, pad_token_id=0), LogitsProcessorList()
    if config.get("return_timestamps"):
        rules.append(WhisperTimeStampLogitsProcessor(settings, begin_index=len(prompt)))
    out = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), use_cache=False,
        logits_processor=rules, generation_config=settings, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    eos = np.ravel(config.get("eos_token_id", [])).tolist()
    results = []
    for i, sequence in enumerate(out.sequences.tolist()):
        ids = sequence[len(prompt) :]
        ended = [j for j, token in enumerate(ids) if token in eos]
        ids = ids[: ended[0] + 1] if ended else ids
        if beams:
            score = float(out.sequences_scores[i])
        else:
            score = 0.0
            limit = config.get("max_new_tokens", config.get("max_length", 0) - len(prompt))
            for j, token in enumerate(ids):
                forced = (j == 0 and len(prompt) == 1 and "forced_bos_token_id" in config) or (
                    j == limit - 1 and "forced_eos_token_id" in config
                )
                logits = torch.from_numpy(table_logits([*prompt, *ids[:j]], model.config.vocab_size, model.bias))
                score += 0.0 if forced else float(torch.log_softmax(logits.double(), 0)[token])
            score /= len(ids) ** config.get("length_penalty", 1.0)
        results.append({"ids": ids, "score": score})
    return results


def filters() -> list[dict]:
    """Return what the processors of transformers for sampling make of some rows of logits."""
    found = []
    settings = [{"temperature": 0.6, "top_k": 0}, {"top_k": 5}, {"top_k": 0, "top_p": 0.5}, {"top_k": 0, "top_p": 0.01},
                {"top_k": 9, "top_p": 0.75}, {"top_k": 0, "min_p": 0.05}, {"top_k": 1}, {"top_k": 100},
                {"temperature": 1.8, "top_k": 12, "top_p": 0.95, "min_p": 0.15}]  # fmt: skip
    for i, options in enumerate(settings):
        for vocab_size in (SMALL, 700):
            prompt = [i, 7, 1]
            logits = table_logits(prompt, vocab_size, {})
            model = TableModel(TableConfig(vocab_size=vocab_size))
            config = GenerationConfig(do_sample=True, **options)
            config._eos_token_tensor = None
            processors: LogitsProcessorList = model._get_logits_processor(config, 1)
            scores = processors(torch.tensor([[1]]), torch.from_numpy(logits)[None])
            row = torch.softmax(scores, -1)[0].double().numpy()
            found.append({"config": options, "prompt": prompt, "vocab_size": vocab_size,
                          "probabilities": [float(f"{p:.9g}") for p in row]})  # fmt: skip
    return found


def main() -> None:
    torch.set_num_threads(1)
    cases = []
    for c, (config, vocab_size, bias) in enumerate(configurations()):
        model = TableModel(TableConfig(vocab_size=vocab_size))
        model.bias = bias
        samples = config.get("num_return_sequences", 1)
        results, uniforms = [], []
        for p, prompt in enumerate(PROMPTS):
            u = np.random.default_rng([c, p]).integers(0, 10**6, (samples, 10)) / 10**6
            sampling = "do_sample" in config
            results.append(run(model, config, prompt, u if sampling else None))
            if sampling:
                uniforms.append(u.tolist())
        cases.append({"config": config, "vocab_size": vocab_size, "bias": {str(i): x for i, x in bias.items()},
                      "prompts": PROMPTS, "uniforms": uniforms, "results": results})  # fmt: skip
    text = json.dumps({"cases": cases, "filters": filters()}, separators=(",", ":"))
    text = text.replace('},{"config"', '},\n{"config"')
    (DECODERS / "generation.json").write_text(text + "\n", encoding="utf-8")
    print(f"{len(cases)} cases, {len(text)} bytes")


if __name__ == "__main__":
    main()
