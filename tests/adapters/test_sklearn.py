"""The transformer of scikit-learn: its own checks, pipelines, searches, pickles, and names of features."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the package scikit-learn is not installed")

from joblib import Parallel, delayed
from sklearn import set_config
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from engine import Engine, InputError
from engine.adapters.sklearn import EngineEncoder

from ..tools.examples import example
from ..tools.head_models import folder_of
from ..tools.head_texts import BAD, GOOD, sentence

MODEL = str(folder_of("bert_classify"))
TEXTS = [sentence(seed, 10) for seed in range(60)]
LABELS = [sum(word in text for word in GOOD) > sum(word in text for word in BAD) for text in TEXTS]

CHECKS = ("check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr",
          "check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_get_params_invariance",
          "check_set_params", "check_do_not_raise_errors_in_init_or_set_params", "check_mixin_order")
"""The checks that need no matrix of numbers. check_estimator skips them, too, for an estimator of texts."""


def test_check_estimator():
    with pytest.warns(SkipTestWarning, match="Can't test estimator EngineEncoder which requires input"):
        results = estimator_checks.check_estimator(EngineEncoder(MODEL))
    assert [(one["check_name"], one["status"]) for one in results] == [("check_estimator_cloneable", "passed")]


@pytest.mark.parametrize("name", CHECKS)
def test_checks_without_a_matrix(name):
    check = getattr(estimator_checks, name)
    if name == "check_parameters_default_constructible":
        check("EngineEncoder", EngineEncoder())
    else:
        check("EngineEncoder", EngineEncoder(MODEL))


def test_the_vectors_are_the_engines():
    engine, own = Engine.load(MODEL), {"normalize_embeddings": True, "truncate_dim": 7}
    assert np.array_equal(EngineEncoder(MODEL).fit_transform(TEXTS), engine.encode(TEXTS))
    assert np.array_equal(EngineEncoder(MODEL, **own).transform(np.array(TEXTS)), engine.encode(TEXTS, **own))
    assert np.array_equal(EngineEncoder(MODEL, task="query", prompt="Anna: ").transform(TEXTS),
                          engine.encode_query(TEXTS, prompt="Anna: "))


def test_pipelines_and_searches():
    pipeline = make_pipeline(EngineEncoder(MODEL), LogisticRegression(max_iter=1000))
    assert cross_val_score(pipeline, TEXTS, LABELS, cv=3).shape == (3,)
    search = GridSearchCV(pipeline, {"engineencoder__truncate_dim": [4, None],
                                     "engineencoder__normalize_embeddings": [False, True]}, cv=2)
    search.fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(TEXTS[:3]).shape == (3,)
    alone = LogisticRegression(max_iter=1000).fit(Engine.load(MODEL).encode(TEXTS), LABELS)
    assert np.array_equal(pipeline.fit(TEXTS, LABELS).predict_proba(TEXTS),
                          alone.predict_proba(Engine.load(MODEL).encode(TEXTS)))


def test_the_example(tmp_path, capsys):
    rows = [f"{'good' if label else 'other'}\t{text}" for label, text in zip(LABELS, TEXTS, strict=True)]
    (tmp_path / "labelled.tsv").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "new.txt").write_text("\n".join(TEXTS[:3]), encoding="utf-8")
    example("sklearn_labels")["main"](MODEL, str(tmp_path / "labelled.tsv"), str(tmp_path / "new.txt"))
    first, *lines = capsys.readouterr().out.splitlines()
    assert "right in cross-validation" in first
    assert [line.partition("\t")[2] for line in lines] == TEXTS[:3]


def test_clones_and_pickles_have_the_same_parameters_and_vectors():
    encoder = EngineEncoder(MODEL, truncate_dim=5).fit(TEXTS)
    for other in (clone(encoder), pickle.loads(pickle.dumps(encoder))):
        assert other.get_params() == encoder.get_params()
        assert np.array_equal(other.transform(TEXTS), encoder.transform(TEXTS))
    assert len(pickle.dumps(encoder)) < 1000


def test_joblib_runs_it_in_other_processes():
    encoder = EngineEncoder(MODEL, threads=1)
    found = Parallel(n_jobs=2)(delayed(encoder.transform)(part) for part in (TEXTS[:30], TEXTS[30:]))
    assert np.array_equal(np.concatenate(found), encoder.transform(TEXTS))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_names_of_features_and_frames(kind):
    frames = pytest.importorskip(kind)
    encoder = EngineEncoder(MODEL, truncate_dim=3)
    names = ["engineencoder0", "engineencoder1", "engineencoder2"]
    assert list(encoder.get_feature_names_out()) == names
    assert list(encoder.set_output(transform=kind).fit_transform(TEXTS).columns) == names
    frame = frames.DataFrame({"text": TEXTS, "size": list(range(60))})
    columns = ColumnTransformer([("text", EngineEncoder(MODEL, truncate_dim=2), "text")], remainder="passthrough")
    set_config(transform_output=kind)
    try:
        found = columns.fit_transform(frame)
    finally:
        set_config(transform_output="default")
    assert list(found.columns) == ["text__engineencoder0", "text__engineencoder1", "remainder__size"]


def test_wrong_parameters_and_texts_are_refused():
    for encoder, texts, message in (
            (EngineEncoder(), TEXTS, "needs the path of a model"), (EngineEncoder(MODEL, task="x"), TEXTS, "task must"),
            (EngineEncoder(MODEL), "one text", "not one text"), (EngineEncoder(MODEL), ["a", None], "sentence 1"),
            (EngineEncoder(MODEL), np.ones((2, 3)), "sentence 0"),
            (EngineEncoder(MODEL, truncate_dim=0), TEXTS, "truncate_dim")):
        with pytest.raises(InputError, match=message):
            encoder.fit(texts).transform(texts)
