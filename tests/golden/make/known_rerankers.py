"""Make the golden folders of two kinds of published rerankers: a tiny Gemma and Qwen2 that rank, and scores of pairs.

    python -m tests.golden.make.known_rerankers

The folders bge_gemma and mxbai_qwen2 have config.json, model.safetensors and a tokenizer, as bge-reranker-v2-gemma and
mxbai-rerank-base-v2 have them, and expected.json with the logits of the answers after each pair of reranker.py. They
are computed in float64. The pieces of a prompt are tokenized apart and joined, as the code of each model does it.
"""

import json
import shutil

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, trainers

from tests.tools.paths import DECODERS

from .generating import randomize
from .reranker import PAIRS, make_tokenizer
from .scaffold import float64_throughout

SIZES = {"hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 1024, "tie_word_embeddings": True, "bos_token_id": 1}
YES_OR_NO = ("Given a query A and a passage B, determine whether the passage contains an answer to the query by "
             "providing a prediction of either 'Yes' or 'No'.")
RELEVANCE = ("You are a search relevance expert who evaluates how well documents match search queries. For each "
             "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
             "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:")
SYSTEM = ("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
          "<|im_start|>user\n")


def gemma_tokenizer() -> hf.PreTrainedTokenizerFast:
    """Return a small tokenizer with the steps of Gemma's, which writes spaces as ▁."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=460, special_tokens=special[:4], show_progress=False, max_token_length=8)
    texts = [YES_OR_NO, *["Yes"] * 40, *(text for pair in PAIRS for text in pair)]
    tokenizer.train_from_iterator(texts, trainer)
    document = json.loads(tokenizer.to_str())
    vocabulary = document["model"]["vocab"]     # the trainer would make special tokens of bytes
    vocabulary |= {token: len(vocabulary) + i for i, token in enumerate(special[4:])}
    tokenizer = Tokenizer.from_str(json.dumps(document))
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>",
                                      pad_token="<pad>", unk_token="<unk>")


def qwen_tokenizer() -> hf.PreTrainedTokenizerFast:
    """Return the tokenizer of the golden Qwen3 reranker, in which 0 and 1 are tokens, too."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = None
    return tokenizer


def gemma_pieces(query: str, document: str) -> list[str]:
    return ["<bos>", f"A: {query}", "\n", f"B: {document}", "\n", YES_OR_NO]


def qwen_pieces(query: str, document: str) -> list[str]:
    return [SYSTEM, f"query: {query}", "\n", f"document: {document}", "\n", RELEVANCE,
            "<|im_end|>\n<|im_start|>assistant\n"]


KINDS = {
    "bge_gemma": (hf.GemmaForCausalLM, {"head_dim": 6, "eos_token_id": 1, "pad_token_id": 0}, gemma_tokenizer,
                  gemma_pieces, ["Yes"], "bge-reranker-v2-gemma"),
    "mxbai_qwen2": (hf.Qwen2ForCausalLM, {"eos_token_id": 2}, qwen_tokenizer, qwen_pieces, ["1", "0"],
                    "mxbai-rerank-v2"),
}
"""By folder: the class, settings of its config, the tokenizer, the pieces of a prompt, its answers, and the name of the
template that the engine has for it."""


def main() -> None:
    """Write the folders."""
    for name, (kind, settings, make, pieces, answers, template) in KINDS.items():
        torch.manual_seed(0)
        tokenizer, folder = make(), DECODERS / name
        model = kind(kind.config_class(vocab_size=len(tokenizer) + 3, **SIZES | settings))
        with torch.no_grad():
            randomize(model)
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        ids = [tokenizer.encode(answer, add_special_tokens=False) for answer in answers]
        assert all(len(own) == 1 for own in ids), ids
        model, logits = model.double().eval(), []
        for pair in PAIRS:
            tokens = [token for piece in pieces(*pair) for token in tokenizer.encode(piece, add_special_tokens=False)]
            with torch.inference_mode(), float64_throughout(type(model), angles=False):
                found = model(torch.tensor([tokens])).logits[0, -1]
            logits.append(found[[own[0] for own in ids]].tolist())
        expected = {"template": template, "pairs": PAIRS, "logits": logits}
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n",
                                              encoding="utf-8")
        print(name, logits)


if __name__ == "__main__":
    main()
