import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, mean_squared_error, r2_score, roc_auc_score

import didact
from didact.baselines import fit_baselines, texts
from didact.data.load import load
from didact.report.page import write_report

WORDS = ["good", "fine", "great", "bad", "dull", "weak", "film", "cast", "plot", "scene", "music", "actor"]


def write_reviews(path, task, n=240):
    """Sentences of eight words; the target is what the first six words of the list count, with noise."""
    rng = np.random.default_rng(0)
    sentences = [list(rng.choice(WORDS, 8)) for _ in range(n)]
    scores = np.array([sum(1 - 2 * (WORDS.index(w) > 2) for w in s if WORDS.index(w) < 6) for s in sentences])
    scores = scores + rng.normal(0, 0.5, n)
    targets = {
        "regression": scores.round(3),
        "binary": np.where(scores > 0, "praise", "blame"),
        "multiclass": np.where(scores > 1, "praise", np.where(scores < -1, "blame", "neither")),
    }[task]
    pd.DataFrame({"text": [" ".join(s).capitalize() for s in sentences], "target": targets}).to_csv(path, index=False)
    return load(str(path), text="text", target="target")


def predict_with_scikit_learn(data, vectorizer):
    """Fitted to training and validation, written anew: predictions of the test texts, and of classes probabilities."""
    y = {part: data.split(part).columns["y"].numpy() for part in ("train", "validation", "test")}
    fit = vectorizer.fit_transform(data.read_texts("train") + data.read_texts("validation"))
    fit_y, test = np.concatenate([y["train"], y["validation"]]), vectorizer.transform(data.read_texts("test"))
    if data.task == "regression":
        return y["test"], Ridge().fit(fit, fit_y).predict(test), None
    model = LogisticRegression(max_iter=300).fit(fit, fit_y)
    return y["test"], model.predict(test), model.predict_proba(test)


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_baselines_are_those_of_scikit_learn(tmp_path, task):
    data = write_reviews(tmp_path / "reviews.csv", task)
    assert data.task == task
    constant, *linear = fit_baselines(data)
    assert [baseline.name for baseline in linear] == ["TF-IDF of words", "TF-IDF of characters"]
    for baseline, vectorizer in zip(linear, (
        TfidfVectorizer(ngram_range=(1, 2)), TfidfVectorizer(analyzer="char", ngram_range=(2, 5)),
    ), strict=True):
        y, predicted, p = predict_with_scikit_learn(data, vectorizer)
        if task == "regression":
            expected = {"r2": r2_score(y, predicted), "rmse": mean_squared_error(y, predicted) ** 0.5}
        else:
            expected = {"accuracy": accuracy_score(y, predicted), "f1_macro": f1_score(y, predicted, average="macro")}
            expected["auroc"] = roc_auc_score(y, p[:, 1] if task == "binary" else p, multi_class="ovr")
        assert {name: baseline.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    y = data.test.columns["y"].numpy()
    if task == "regression":
        assert constant.name == "mean" and constant.metrics["r2"] < 0.01
    else:
        assert constant.metrics["accuracy"] == pytest.approx(max(np.bincount(y)) / len(y))
    # what they are for: they have learned
    metric = "r2" if task == "regression" else "accuracy"
    assert all(baseline.metrics[metric] > constant.metrics[metric] + 0.15 for baseline in linear)


def test_the_report_shows_them_in_the_metrics_of_the_run(tmp_path):
    write_reviews(tmp_path / "reviews.csv", "binary")
    run = didact.train(
        "fasttext", data=tmp_path / "reviews.csv", text="text", target="target", steps=20, runs=str(tmp_path)
    )
    page = write_report(run).read_text()
    assert "TF-IDF of words" in page and "TF-IDF of characters" in page
    for baseline in run.metadata["baselines"]:
        assert set(baseline["metrics"]) <= set(run.metadata["test"])
    # the worst texts stand there as they were written, capital letters and all
    assert all(text in page for text in run.metadata["example_texts"]["worst"])
    assert run.metadata["example_texts"]["worst"][0][0].isupper()


def test_many_texts_are_thinned_out_and_long_ones_cut_into_words_alone(tmp_path, monkeypatch):
    data = write_reviews(tmp_path / "reviews.csv", "binary")
    monkeypatch.setattr(texts, "_MAX_TEXTS", 100)
    monkeypatch.setattr(texts, "_MAX_CHARACTERS", 5_000)
    constant, words = fit_baselines(data)
    assert words.description == "words and pairs of words by TF-IDF, logistic regression, on 100 of 204 texts"
    assert words.metrics["accuracy"] > constant.metrics["accuracy"] + 0.15


def test_texts_without_words_have_baselines_of_characters_alone(tmp_path):
    pd.DataFrame({"text": ["+-", "-+", "++", "--"] * 20, "y": ["a", "b", "a", "b"] * 20}).to_csv(
        tmp_path / "signs.csv", index=False
    )
    data = load(str(tmp_path / "signs.csv"), text="text", target="y")
    assert [baseline.name for baseline in fit_baselines(data)] == ["class shares", "TF-IDF of characters"]
    pd.DataFrame({"text": ["+", "-"] * 40, "y": ["a", "b"] * 40}).to_csv(tmp_path / "sign.csv", index=False)
    data = load(str(tmp_path / "sign.csv"), text="text", target="y")
    assert [baseline.name for baseline in fit_baselines(data)] == ["class shares"]


def test_running_text_has_none():
    assert not list(fit_baselines(load("python_topics")))
