"""Make the golden folder of a Whisper that CTranslate2's own converter has converted, as faster-whisper's models are.

    python -m tests.golden.make.ctranslate2_whisper

ctranslate2/whisper has the model of decoders/whisper in float32, whose expected.npz holds the logits of transformers,
and a tokenizer.json that names the special tokens.
"""

import json
import shutil

import torch
import transformers as hf
from ctranslate2.converters.transformers import WhisperLoader
from tokenizers import AddedToken, Tokenizer, models

from tests.tools.paths import CTRANSLATE2, DECODERS

NAME = "whisper"


def main() -> None:
    """Write the folder."""
    model = hf.WhisperForConditionalGeneration.from_pretrained(DECODERS / NAME, dtype=torch.float32)
    settings, config = model.generation_config, model.config
    settings.alignment_heads, settings.lang_to_id = [[0, 0]], {}
    settings.suppress_tokens, settings.begin_suppress_tokens = [], settings.begin_suppress_tokens or []
    loader = WhisperLoader()
    spec = loader.get_model_spec(model)
    special = {config.decoder_start_token_id: "<|startoftranscript|>", config.eos_token_id: "<|endoftext|>"}
    words = [special.get(i, f"w{i}") for i in range(config.vocab_size)]
    spec.register_vocabulary(words)
    loader.set_config(spec.config, model, None)
    spec.validate()
    spec.optimize()
    folder = CTRANSLATE2 / NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    spec.save(str(folder))
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w3"))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special.values()])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    print(json.loads((folder / "config.json").read_text()))


if __name__ == "__main__":
    main()
