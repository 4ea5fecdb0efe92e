"""What all baselines share: a class that the rows lack, and rows that no model can be fitted to."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from didact.baselines.core import fit_baselines, predict_probabilities, score_predictions
from didact.data.load import load


def test_probabilities_have_a_column_for_every_class():
    x = np.arange(6.0)[:, None]
    model = LogisticRegression().fit(x, [0, 0, 0, 2, 2, 2])
    p = predict_probabilities(model, x, 3)
    assert p.shape == (6, 3) and (p[:, 1] == 0).all() and p.sum(1) == pytest.approx(1)
    assert p[5].argmax() == 2


def test_texts_of_a_single_class_have_class_shares_alone(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,y\n" + "\n".join(f"word{k} and more words,{'ab'[k % 2]}" for k in range(40)))
    data = load(str(path), text="text", target="y")
    assert [b.name for b in fit_baselines(data)][:2] == ["class shares", "TF-IDF of words"]
    for split in (data.train, data.validation):
        split.columns["y"].zero_()
    assert [b.name for b in fit_baselines(data)] == ["class shares"]


def test_regression_scores_are_in_the_units_of_the_target():
    data = load("diabetes")
    y = data.test.columns["y"]
    scores = score_predictions(data, y.double().numpy() + 2, y)
    assert scores["rmse"] == pytest.approx(2, rel=1e-5) and scores["mae"] == pytest.approx(2, rel=1e-5)
