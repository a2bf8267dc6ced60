"""Make generation.json: what transformers generates with a model whose logits come from a table (table_model.py).

    python -m tests.golden.make.generation

generation.json holds what follows; the script computes the results and probabilities anew.

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


def probabilities(options: dict, prompt: list[int], vocab_size: int) -> list[float]:
    """Return what the processors of transformers for sampling make of a row of logits."""
    model = TableModel(TableConfig(vocab_size=vocab_size))
    config = GenerationConfig(do_sample=True, **options)
    config._eos_token_tensor = None
    processors: LogitsProcessorList = model._get_logits_processor(config, 1)
    scores = processors(torch.tensor([[1]]), torch.from_numpy(table_logits(prompt, vocab_size, {}))[None])
    return [float(f"{p:.9g}") for p in torch.softmax(scores, -1)[0].double().numpy()]


def main() -> None:
    torch.set_num_threads(1)
    path = DECODERS / "generation.json"
    golden = json.loads(path.read_text(encoding="utf-8"))
    for case in golden["cases"]:
        model = TableModel(TableConfig(vocab_size=case["vocab_size"]))
        model.bias = {int(i): x for i, x in case["bias"].items()}
        numbers = case["uniforms"] or [None] * len(case["prompts"])
        case["results"] = [run(model, case["config"], prompt, None if u is None else np.array(u))
                           for prompt, u in zip(case["prompts"], numbers, strict=True)]
    for case in golden["filters"]:
        case["probabilities"] = probabilities(case["config"], case["prompt"], case["vocab_size"])
    text = json.dumps(golden, separators=(",", ":")).replace('},{"config"', '},\n{"config"')
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
