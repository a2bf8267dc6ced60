"""`engine.calibrate` for every task, calls with a coverage, files of calibrated models, and bad input."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from engine import (
    Calibration,
    Engine,
    Generator,
    InputError,
    Reranker,
    UnsupportedError,
    WeightsError,
    calibrate,
    convert_model,
    load_model,
    save,
)
from engine.files.npz import read_npz, write_npz
from engine.methods.run import compute
from engine.methods.tag import WordLogits
from engine.studies.labelled import RELEVANCES, label_numbers
from engine.uncertainty.conformal import threshold
from engine.uncertainty.probabilities import probabilities
from engine.uncertainty.temperature import fit_temperature

from ..tools.generators import language_model
from ..tools.head_models import folder_of
from ..tools.head_texts import sentence
from ..tools.paths import DECODERS

pytest.importorskip("tokenizers")

TEXTS = [sentence(i, 4 + i % 9) for i in range(240)]
QUERIES = [sentence(1000 + i, 5) for i in range(60)]
PAIRS = [(query, sentence(2000 + 10 * i + k, 8)) for i, query in enumerate(QUERIES) for k in range(6)]


def load(name, **options):
    return Engine.load(folder_of(name), **{"threads": 1} | options)


def logits_of(engine, texts):
    """Return the logits of classes [n, K]."""
    names = engine.heads["classify"].labels
    rows = engine.classify(texts, top_k=None, function_to_apply="none")
    return np.array([[{one["label"]: one["score"] for one in row}[name] for name in names] for row in rows], np.float32)


def drawn(p, seed=0):
    """Return a label for each row of probabilities, drawn from them."""
    return (np.random.default_rng(seed).random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(0, p.shape[1] - 1)


@pytest.fixture(scope="module")
def classes():
    """Return an engine, labels that are drawn from its own probabilities at a temperature of 3, and the report."""
    engine = load("bert_classify")
    names = engine.heads["classify"].labels
    labels = [names[i] for i in drawn(probabilities(logits_of(engine, TEXTS), 3.0))]
    return engine, labels, calibrate(engine, TEXTS, labels, bias=False)


@pytest.fixture(scope="module")
def pairs():
    """Return a model of pairs, relevances that are drawn from its own probabilities, and the report."""
    engine = load("bert_pairs")
    logits = engine.predict(PAIRS, logits=True)
    relevant = drawn(probabilities(logits[:, None], 2.0, np.array([0.3])))
    return engine, relevant, calibrate(engine, PAIRS, relevant, bias=True)


def test_classes(classes):
    engine, labels, report = classes
    order = np.random.default_rng(0).permutation(len(TEXTS))
    first, rest = order[:120], order[120:]
    names = engine.heads["classify"].labels
    logits, numbers = logits_of(engine, TEXTS), np.array([names.index(label) for label in labels])
    assert report.temperature == pytest.approx(fit_temperature(logits[first], numbers[first]), abs=1e-6)
    assert report.bias is None
    assert (report.fitted, report.before.count, report.after.count) == (120, 120, 120)
    assert report.after.log_loss < report.before.log_loss
    assert report.after.accuracy == report.before.accuracy
    arrays = report.calibration.arrays
    p = probabilities(logits[rest], report.temperature)
    np.testing.assert_allclose(arrays["lac"], 1 - p[np.arange(120), numbers[rest]], atol=1e-6)
    np.testing.assert_allclose(arrays["confidences"], p.max(axis=1), atol=1e-6)
    assert arrays["classes"].tolist() == numbers[rest].tolist()
    assert calibrate(engine, TEXTS, numbers.tolist(), bias=False).calibration.arrays["lac"].tolist() == (
        arrays["lac"].tolist())


def test_a_calibrated_result(classes):
    engine, _, report = classes
    calibrated = engine.with_calibration(report.calibration)
    p = probabilities(logits_of(engine, TEXTS[:1]), report.temperature)[0]
    found = calibrated.classify(TEXTS[0])
    best = np.sort(p)[::-1]
    assert found == {"label": engine.classify(TEXTS[0])["label"], "score": best[0], "margin": best[0] - best[1],
                     "entropy": pytest.approx(-(p * np.log(p)).sum())}
    assert [one["score"] for one in calibrated.classify(TEXTS[0], top_k=None)] == best.tolist()
    assert calibrated.classify(TEXTS[0], function_to_apply="softmax") == engine.classify(TEXTS[0])
    assert set(engine.classify(TEXTS[0])) == {"label", "score"}        # the first engine has not changed
    assert engine.calibrations == {}
    assert calibrated.calibrations == {"classify": report.calibration}
    with pytest.raises(UnsupportedError, match=r"with engine\.save"):
        pickle.dumps(calibrated)


@pytest.mark.parametrize("name", ["lac", "aps"])
def test_sets_of_labels(classes, name):
    engine, _, report = classes
    calibrated = engine.with_calibration(report.calibration)
    limit = threshold(report.calibration.arrays[name], 0.6)
    found = calibrated.classify(TEXTS[:40], coverage=0.6, conformal_score=name, false_alarm_rate=None)
    sizes = set()
    for text, result, plain in zip(TEXTS, found, calibrated.classify(TEXTS[:40], top_k=None), strict=False):
        assert {key: result[key] for key in ("label", "score", "margin", "entropy")} == plain[0], text
        scores, total = [one["score"] for one in plain], 0.0
        kept = []
        for one, p in zip(plain, scores, strict=True):
            total += p
            if np.float32(1 - p if name == "lac" else total) <= limit:
                kept.append({"label": one["label"], "score": p})
        assert result["labels"] == kept
        sizes.add(len(kept))
    assert len(sizes) > 1


def test_sets_by_class(classes):
    engine, _, report = classes
    calibrated, arrays = engine.with_calibration(report.calibration), report.calibration.arrays
    found = calibrated.classify(TEXTS[:30], coverage=0.8, by_class=True, false_alarm_rate=None)
    names = engine.heads["classify"].labels
    limits = {label: threshold(arrays["lac"][arrays["classes"] == i], 0.8) for i, label in enumerate(names)}
    for result, plain in zip(found, calibrated.classify(TEXTS[:30], top_k=None), strict=True):
        assert [one["label"] for one in result["labels"]] == [
            one["label"] for one in plain if np.float32(1 - one["score"]) <= limits[one["label"]]]
    with pytest.raises(InputError, match=r"needs the scores of 199 labelled texts of the class '\w+' at least"):
        calibrated.classify(TEXTS, coverage=0.995, by_class=True)


def test_the_same_bits_in_any_batch_and_number_of_threads(classes):
    engine, labels, report = classes
    calibrated = engine.with_calibration(report.calibration)
    options = {"coverage": 0.9, "false_alarm_rate": None}
    whole = calibrated.classify(TEXTS[:50], **options)
    other = load("bert_classify", threads=3, max_batch_tokens=100)
    again = calibrate(other, TEXTS, labels, bias=False, batch_size=3)
    for name, array in report.calibration.arrays.items():
        assert again.calibration.arrays[name].tobytes() == array.tobytes()
    other = other.with_calibration(again.calibration)
    assert other.classify(TEXTS[:50][::-1], **options)[::-1] == whole
    assert [other.classify(text, **options) for text in TEXTS[:50]] == whole


def test_a_file(classes, tmp_path):
    engine, _, report = classes
    model = load_model(folder_of("bert_classify")).with_calibration(report.calibration)
    save(model, tmp_path / "m.npz")
    loaded = Engine.load(tmp_path / "m.npz", threads=2)
    options = {"coverage": 0.9, "false_alarm_rate": None}
    assert loaded.classify(TEXTS[:9], **options) == engine.with_calibration(report.calibration).classify(
        TEXTS[:9], **options)
    assert pickle.loads(pickle.dumps(loaded)).classify(TEXTS[:9], **options) == loaded.classify(TEXTS[:9], **options)
    with np.load(tmp_path / "m.npz") as file:
        assert file["calibration.classify.temperature"] == np.float32(report.temperature)
    save(convert_model(model, "int8"), tmp_path / "int8.npz")       # the calibration goes along
    assert Engine.load(tmp_path / "int8.npz").classify(TEXTS[0], **options)["labels"]
    plain = load_model(tmp_path / "m.npz")
    save(replace(plain, encoder=replace(plain.encoder, calibrations=())), tmp_path / "plain.npz")
    save(load_model(folder_of("bert_classify")), tmp_path / "never.npz")
    assert (tmp_path / "plain.npz").read_bytes() == (tmp_path / "never.npz").read_bytes()


DAMAGE = {
    "nan": ({"temperature": np.array([np.nan], np.float32)}, "temperature holds NaN"),
    "zero": ({"temperature": np.array([0], np.float32)}, "temperature must be above 0"),
    "lengths": ({"lac": np.zeros(5, np.float32)}, r"aps is float32 \[120\], expected float32 \[5\]"),
    "class": ({"classes": np.full(120, 3, np.uint16)}, "texts of the class 3, and the head has 3"),
    "dtype": ({"classes": np.zeros(120, np.uint8)}, "expected uint16"),
    "bias": ({"bias": np.zeros(2, np.float32)}, r"expected float32 \[3\]"),
    "another": ({"other": np.zeros(2, np.float32)}, "must have the arrays temperature, lac"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files(classes, tmp_path, kind):
    _, _, report = classes
    save(load_model(folder_of("bert_classify")).with_calibration(report.calibration), tmp_path / "m.npz")
    arrays, message = DAMAGE[kind]
    write_npz(tmp_path / "d.npz", dict(read_npz(tmp_path / "m.npz")) | {
        f"calibration.classify.{name}": array for name, array in arrays.items()})
    with pytest.raises(WeightsError, match=message):
        Engine.load(tmp_path / "d.npz")


def test_a_calibration_of_another_model(classes):
    calibration = classes[2].calibration
    several = load("bert_several")          # it has as many labels, of which a text may have several
    for call in (load("bert_tag").with_calibration, load_model(folder_of("bert_tag")).with_calibration,
                 several.with_calibration):
        with pytest.raises(WeightsError, match="belongs to another model"):
            call(calibration)
    with pytest.raises(InputError, match="takes the calibration of a report"):
        load("bert_tag").with_calibration(3)
    model = load_model(folder_of("bert_classify"))
    twice = replace(model, encoder=replace(model.encoder, calibrations=(calibration,) * 2))
    with pytest.raises(WeightsError, match="two calibrations"):
        Engine(twice)


def test_a_warning_of_texts_unlike_the_calibration(classes):
    engine, _, report = classes
    surer = dict(report.calibration.arrays) | {"confidences": np.full(120, 0.999, np.float32)}
    calibrated = engine.with_calibration(Calibration("classify", surer))
    with pytest.warns(UserWarning, match=r"look unlike those of the 120 texts .*mean confidence 0\.\d\d, not 1\.00"):
        calibrated.classify(TEXTS[:40], coverage=0.9)
    calibrated.classify(TEXTS[:40], coverage=0.9, false_alarm_rate=None)
    calibrated.classify(TEXTS[:1], coverage=0.9)       # one text can say nothing
    engine.with_calibration(report.calibration).classify(TEXTS, coverage=0.9)


def test_pairs(pairs):
    engine, relevant, report = pairs
    assert report.calibration.task == "rank"
    assert report.bias.shape == (1,)
    assert report.after.log_loss < report.before.log_loss
    calibrated = engine.with_calibration(report.calibration)
    logits = engine.predict(PAIRS[:9], logits=True)
    expected = 1 / (1 + np.exp(-(logits / report.temperature + report.bias[0])))
    np.testing.assert_allclose(calibrated.predict(PAIRS[:9]), expected, rtol=1e-5)
    np.testing.assert_array_equal(calibrated.predict(PAIRS[:9], activation_fn="identity"), logits)
    query, documents = PAIRS[0][0], [document for _, document in PAIRS[:6]]
    assert calibrated.rank(query, documents, activation_fn="identity") == engine.rank(
        query, documents, activation_fn="identity")
    found, = calibrated.classify([PAIRS[0]])
    assert found["score"] == pytest.approx(expected[0], rel=1e-5)
    assert found["margin"] == pytest.approx(abs(2 * expected[0] - 1), rel=1e-4)
    with pytest.raises(UnsupportedError, match="this one has one; rank takes a coverage"):
        calibrated.classify("a", coverage=0.9)
    held = np.random.default_rng(0).permutation(60)[30:]
    gaps = []
    for i in sorted(held):
        own, marks = engine.predict(PAIRS[6 * i : 6 * i + 6], logits=True), relevant[6 * i : 6 * i + 6]
        if marks.any():
            gaps.append(own.max() - own[marks == 1].max())
    np.testing.assert_allclose(report.calibration.arrays["gaps"], gaps, atol=1e-6)


def test_lists_that_hold_a_relevant_document(pairs, tmp_path):
    engine, _, report = pairs
    calibrated = engine.with_calibration(report.calibration)
    limit = threshold(report.calibration.arrays["gaps"], 0.8)
    documents = [document for _, document in PAIRS[:6]]
    whole = calibrated.rank(QUERIES[0], documents)
    logits = np.sort(engine.predict(PAIRS[:6], logits=True))[::-1]
    found = calibrated.rank(QUERIES[0], documents, coverage=0.8)
    assert found == whole[: (logits[0] - logits <= limit).sum()]
    assert {*found[0]} == {"corpus_id", "score", "margin", "entropy"}
    assert calibrated.rank(QUERIES[0], [], coverage=0.8) == []
    save(load_model(folder_of("bert_pairs")).with_calibration(report.calibration), tmp_path / "m.npz")
    reranker = Reranker.load(tmp_path / "m.npz", threads=1)
    assert reranker.rank(QUERIES[0], documents, coverage=0.8) == found
    assert reranker.predict(PAIRS[:3]).tolist() == calibrated.predict(PAIRS[:3]).tolist()
    again = calibrate(Reranker.load(folder_of("bert_pairs"), threads=1), PAIRS, pairs[1], bias=True)
    assert again.calibration.arrays["gaps"].tolist() == report.calibration.arrays["gaps"].tolist()
    with pytest.raises(InputError, match="so does top_k"):
        calibrated.rank(QUERIES[0], documents, coverage=0.8, top_k=2)
    without = {name: array for name, array in report.calibration.arrays.items() if name != "gaps"}
    with pytest.raises(UnsupportedError, match="pairs without lists of documents"):
        engine.with_calibration(Calibration("rank", without)).rank(QUERIES[0], documents, coverage=0.8)


def test_a_language_model_that_ranks(tmp_path):
    options = {"threads": 1}
    reranker = Reranker.load(DECODERS / "reranker", **options)
    some = [(query, text[:20]) for query, text in PAIRS[:120]]
    relevant = drawn(probabilities(reranker.predict(some, logits=True)[:, None], 2.0))
    report = calibrate(reranker, some, relevant.astype(float))
    calibrated = reranker.with_calibration(report.calibration)
    expected = 1 / (1 + np.exp(-reranker.predict(some[:5], logits=True) / report.temperature
                               - (0 if report.bias is None else report.bias)))
    np.testing.assert_allclose(calibrated.predict(some[:5]), expected, rtol=1e-5)
    found = calibrated.rank(some[0][0], [text for _, text in some[:6]], coverage=0.5)
    assert 1 <= len(found) <= 6
    assert "margin" in found[0]
    save(load_model(DECODERS / "reranker", kind="generate").with_calibration(report.calibration), tmp_path / "m.npz")
    again = Reranker.load(tmp_path / "m.npz", answers=reranker.answers, **options)
    assert again.predict(some[:5]).tolist() == calibrated.predict(some[:5]).tolist()


def test_tags(tmp_path):
    engine = load("bert_tag")
    words = [text.split() for text in TEXTS]
    names = engine.heads["tag"].labels
    labels = []
    for i, (places, logits) in enumerate(compute(WordLogits(engine.runner_of("tag"), words))):
        assert places.tolist() == [*range(len(words[i]))]
        labels.append([names[k] for k in drawn(probabilities(logits, 3.0), i)])
    report = calibrate(engine, words, labels, bias=False)
    assert report.calibration.task == "tag"
    assert report.fitted + report.after.count == sum(map(len, words))
    assert report.temperature == pytest.approx(3, rel=0.2)
    assert report.after.ece < report.before.ece / 2
    first = engine.tag(words[0], is_split_into_words=True, aggregation_strategy="first", ignore_labels=())
    places, logits = compute(WordLogits(engine.runner_of("tag"), words[:1]))[0]
    assert first[0]["entity_group"] == names[logits[0].argmax()].split("-")[-1]
    calibrated = engine.with_calibration(report.calibration)
    plain, found = engine.tag(TEXTS[0]), calibrated.tag(TEXTS[0])
    assert all({*one} - {*other} == {"margin", "entropy"} for one, other in zip(found, plain, strict=False))
    for strategy in ("simple", "first", "average", "max"):
        for one in calibrated.tag(TEXTS[1], aggregation_strategy=strategy):
            assert 0 <= one["margin"] <= one["score"] <= 1
            assert 0 <= one["entropy"] <= np.log(6)
    save(load_model(folder_of("bert_tag")).with_calibration(report.calibration), tmp_path / "m.npz")
    assert Engine.load(tmp_path / "m.npz").tag(TEXTS[0]) == found


def test_answers(tmp_path):
    engine = load("bert_answer")
    questions = [(f"Who lives in {text.split()[0]}?", text) for text in TEXTS[:60]]
    own = engine.answer(*map(list, zip(*questions, strict=True)))
    rng = np.random.default_rng(0)
    right = [one["answer"] if rng.random() < 0.8 else text.split()[-1]
             for one, (_, text) in zip(own, questions, strict=True)]
    report = calibrate(engine, questions, right)
    assert report.before is None
    assert report.after is None
    losses = report.calibration.arrays["losses"]
    assert len(losses) == 60
    calibrated = engine.with_calibration(report.calibration)
    for coverage in (0.3, 0.6, 0.75):
        limit = threshold(losses, coverage)
        found = calibrated.answer(*map(list, zip(*questions, strict=True)), coverage=coverage)
        candidates = engine.answer(*map(list, zip(*questions, strict=True)), top_k=20)
        wrong = 0
        for result, several, wanted in zip(found, candidates, right, strict=True):
            assert result["answers"] == [one for one in several if np.float32(1 - one["score"]) <= limit]
            assert result["abstains"] == (len(result["answers"]) != 1) == (result["answer"] is None)
            wrong += not result["abstains"] and result["answer"].lower() != wanted.lower()
            assert result["margin"] == several[0]["score"] - several[1]["score"]
        assert wrong <= (1 - coverage) * 60
    assert 0 < sum(one["abstains"] for one in found) < 60
    lost = Calibration("answer", dict(report.calibration.arrays) | {"losses": np.full(60, np.inf, np.float32)})
    assert engine.with_calibration(lost).answer("Who?", "Anna", coverage=0.5)["abstains"]     # from one candidate
    with pytest.raises(InputError, match="default settings"):
        calibrated.answer(*questions[0], coverage=0.5, top_k=2)
    with pytest.raises(InputError, match="must be a part of its text"):
        calibrate(engine, questions, ["nowhere in the text", *right[1:]])
    save(load_model(folder_of("bert_answer")).with_calibration(report.calibration), tmp_path / "m.npz")
    assert Engine.load(tmp_path / "m.npz").answer(*questions[0], coverage=0.75) == found[0]


def test_no_answer_is_an_answer_where_it_was_right():
    engine = load("bert_answer")
    questions = [("Who?", text) for text in TEXTS[:40]]
    report = calibrate(engine, questions, [""] * 40)
    assert report.calibration.arrays["impossible"] == 1
    assert np.isfinite(report.calibration.arrays["losses"]).any()


def test_next_tokens(tmp_path):
    generator = Generator(language_model(), threads=1)
    texts = [[2, *one.ids] for one in generator.generate(
        [[2]], do_sample=True, temperature=2.0, max_new_tokens=12, min_new_tokens=12, num_return_sequences=60,
        seed=3)[0]]
    report = calibrate(generator, texts)
    assert report.calibration.task == "score"
    assert report.temperature == pytest.approx(2, rel=0.35)
    assert report.after.log_loss < report.before.log_loss
    calibrated = generator.with_calibration(report.calibration)
    held = np.random.default_rng(0).permutation(60)[30:]
    found = calibrated.score([texts[i] for i in held])
    assert -np.mean([one.log_probabilities for one in found]) == pytest.approx(report.after.log_loss, abs=1e-5)
    assert found[0].log_probabilities.tobytes() == calibrated.score([texts[held[0]]])[0].log_probabilities.tobytes()
    save(language_model().with_calibration(report.calibration), tmp_path / "m.npz")
    again = Generator.load(tmp_path / "m.npz", threads=2).score([texts[held[0]]])[0]
    assert again.log_probabilities.tobytes() == found[0].log_probabilities.tobytes()
    with pytest.raises(InputError, match="batch_size is for an Engine"):
        calibrate(generator, texts, batch_size=2)
    with pytest.raises(InputError, match="leave labels out"):
        calibrate(generator, texts, texts)
    with pytest.raises(InputError, match="next tokens; give 40 at least"):
        calibrate(generator, texts[:2])


BAD = {
    "unknown": ({"labels": ["nothing"] * 240}, "label of text 0 must be one of dull, lively, neither"),
    "number": ({"labels": [3] * 240}, "label of text 0 must be one of"),
    "nan": ({"labels": [0, 1, float("nan")] * 80}, "label of text 2 must be one of .* not nan"),
    "one class": ({"labels": ["dull"] * 240}, "all labels are one class, 'dull'"),
    "rows": ({"texts": TEXTS[:3], "labels": [0, 1, 2]}, "there are 3 labelled texts; give 20 at least"),
    "lengths": ({"labels": [0, 1]}, "240 texts and 2 labels"),
    "text": ({"texts": "a text"}, "texts must be a list"),
    "nothing": ({"texts": [None] * 240}, "must be a str"),
    "task": ({"task": "tag"}, "task must be None or one of 'classify'"),
    "seed": ({"seed": -1}, "seed must be"),
    "bar": ({"show_progress_bar": "no"}, "show_progress_bar must be True or False"),
    "bias": ({"bias": 3}, "bias must be"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input(classes, kind):
    engine, labels, _ = classes
    arguments, message = BAD[kind]
    with pytest.raises(InputError, match=message):
        calibrate(engine, **{"texts": TEXTS, "labels": labels} | arguments)


def test_bad_calls(classes):
    engine, labels, report = classes
    calibrated = engine.with_calibration(report.calibration)
    for coverage in (0, 1, 1.5, float("nan")):
        with pytest.raises(InputError, match="coverage must be a number between 0 and 1"):
            calibrated.classify("a", coverage=coverage)
    with pytest.raises(InputError, match="needs the scores of 999 labelled texts at least, and there are 120"):
        calibrated.classify("a", coverage=0.999)
    with pytest.raises(UnsupportedError, match="needs a calibrated model"):
        engine.classify("a", coverage=0.9)
    with pytest.raises(InputError, match="leave top_k and function_to_apply out"):
        calibrated.classify("a", coverage=0.9, top_k=2)
    with pytest.raises(InputError, match="give a coverage"):
        calibrated.classify("a", by_class=True)
    with pytest.raises(InputError, match=r"false_alarm_rate are about sets .* give a coverage"):
        calibrated.classify("a", false_alarm_rate=0.5)
    with pytest.raises(InputError, match="false_alarm_rate must be"):
        calibrated.classify("a", coverage=0.9, false_alarm_rate=1)
    with pytest.raises(InputError, match='conformal_score must be one of'):
        calibrated.classify("a", coverage=0.9, conformal_score="raps")
    with pytest.raises(InputError, match="calibrate takes an Engine"):
        calibrate("path", TEXTS, labels)
    for name, message in (("bert_several", "several labels at once"), ("bert_fill_mask", "nothing to calibrate")):
        with pytest.raises(UnsupportedError, match=message):
            calibrate(load(name), PAIRS[:240], [0, 1] * 120)


def test_logits_that_are_not_finite(classes):
    _, labels, _ = classes
    model = load_model(folder_of("bert_classify"))
    head, = model.encoder.heads
    huge = {name: np.full_like(array, 3e38) for name, array in head.weights.items()}
    broken = replace(model, encoder=replace(model.encoder, heads=(replace(head, weights=huge),)))
    with np.errstate(all="ignore"), pytest.raises(InputError, match="NaN or infinite"):
        calibrate(Engine(broken, threads=1), TEXTS, labels)


def test_labels_of_a_table():
    """Labels are names, numbers, texts of digits as files have them, and for pairs floats and booleans."""
    names = ("dull", "lively", "neither")
    assert label_numbers(["dull", 2, np.int64(1), "2", "0"], names).tolist() == [0, 2, 1, 2, 0]
    for labels in ([True, 0, 1.0, "1"], np.array([True, False, True, True]), np.array([1.0, 0, 1, 1])):
        assert label_numbers(labels, RELEVANCES).tolist() == [1, 0, 1, 1]
    assert label_numbers(["2", "1"], ("1", "2", "3")).tolist() == [1, 0]        # they are names here
    for labels, own in ((["0"], ("1", "2", "3")), ([True], names), (["3"], names), (["9" * 50], names),
                        ([np.zeros(2)], RELEVANCES)):
        with pytest.raises(InputError, match="the label of line 1 must be one of"):
            label_numbers(labels, own, "line", first=1)


def test_a_calibration_that_makes_ece_worse_says_so():
    """Labels that the model's own probabilities give need no temperature, and 30 of them fit a wrong one."""
    engine = load("bert_classify")
    labels = drawn(probabilities(logits_of(engine, TEXTS)), 3)[:60].tolist()
    with pytest.warns(UserWarning, match=r"makes ECE worse: 0\.29\d\d before, 0\.34\d\d after, on 30 labels"):
        report = calibrate(engine, TEXTS[:60], labels, bias=False, seed=3)
    assert report.after.ece > report.before.ece
