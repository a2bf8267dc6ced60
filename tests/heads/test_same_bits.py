"""A text gets the same answer, to the last bit, alone and in any company, on 1 to 4 threads, in each precision."""

from functools import partial

import pytest

from engine import Engine, Reranker

from ..tools import head_texts as texts
from ..tools.head_models import folder_of

pytest.importorskip("tokenizers")

SOME = [*texts.TEXTS[:20], texts.TEXTS[37], texts.TEXTS[38]]
MASKED = [text.replace("{}", "[MASK]") for text in texts.MASKED]
PAIRS = [pair for pair in texts.PAIRS if len(pair[0]) < 200]

CALLS = {
    "bert_classify": lambda engine, inputs: engine.classify(inputs, top_k=None, function_to_apply="none"),
    "deberta_classify": lambda engine, inputs: engine.classify(inputs, top_k=None),
    "eurobert_classify": lambda engine, inputs: engine.classify(inputs, top_k=None),
    "modernbert_mean": lambda engine, inputs: engine.classify(inputs, top_k=None),
    "bart_classify": lambda engine, inputs: engine.classify(inputs, top_k=None),
    "esm_fill_mask": lambda engine, inputs: engine.fill_mask(inputs),
    "bert_tag": lambda engine, inputs: engine.tag(inputs),
    "roberta_tag": lambda engine, inputs: engine.tag(inputs, aggregation_strategy="average", stride=8),
    "electra_answer": lambda engine, inputs: engine.answer(*map(list, zip(*inputs, strict=True)), top_k=3),
    "bert_fill_mask": lambda engine, inputs: engine.fill_mask(inputs),
    "xlm_roberta_pairs": lambda engine, inputs: engine.predict(inputs, logits=True).tolist(),
    "bert_pairs": lambda engine, inputs: Engine.predict(engine, inputs).tolist(),
}
INPUTS = {"electra_answer": PAIRS, "bert_fill_mask": MASKED, "xlm_roberta_pairs": PAIRS, "bert_pairs": PAIRS,
          "esm_fill_mask": [text.replace("[MASK]", "<mask>") for text in MASKED]}


@pytest.mark.parametrize("name", CALLS)
def test_in_any_company(name, one_backend, check_company):
    check_company(partial(Engine.load, folder_of(name), backend=one_backend), CALLS[name], INPUTS.get(name, SOME))


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", ["bert_classify", "bert_tag", "bert_fill_mask", "bert_pairs"])
def test_in_other_precisions(name, precision, compiled_backend, check_company):
    load = partial(Engine.load, folder_of(name), backend=compiled_backend, precision=precision)
    check_company(load, CALLS[name], INPUTS.get(name, SOME)[:12])


def test_a_query_with_many_documents_gives_the_bits_of_each_pair(one_backend):
    engine = Engine.load(folder_of("bert_pairs"), backend=one_backend)
    documents = [second for _, second in texts.PAIRS]
    scores = engine.predict([("Who lives in Berlin?", document) for document in documents], logits=True).tolist()
    assert scores == [engine.predict(("Who lives in Berlin?", document), logits=True) for document in documents]
    found = engine.rank("Who lives in Berlin?", documents, activation_fn="identity")
    assert sorted(one["score"] for one in found) == sorted(scores)
    ranked = Reranker.load(folder_of("bert_pairs"), backend=one_backend)
    pairs = [("Who lives in Berlin?", document) for document in documents]
    assert ranked.predict(pairs, logits=True).tolist() == scores
