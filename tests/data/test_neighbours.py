"""Words and those around them: windows by hand, frequent words passed over as often as they should be."""

import pytest
import torch

from beside import has_public
from didact.data.load import load, reload
from didact.data.neighbours import Neighbours, kept, neighbourhoods, strung, thinning
from didact.errors import UsageError

WORDS = ("words",)


def test_windows_by_hand_and_no_text_looks_into_another():
    split = strung([torch.tensor([2, 3, 4, 5]), torch.tensor([6]), torch.tensor([], dtype=torch.int32), torch.tensor([7, 8])]).within(2, 20)
    batch = split.decode(next(split.batches([torch.arange(len(split))])))
    assert batch["y"].tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert batch["x"].tolist() == [[0, 0, 3, 4], [0, 2, 4, 5], [2, 3, 5, 0], [3, 4, 0, 0], [0] * 4, [0, 0, 8, 0], [0, 7, 0, 0]]
    assert split.counts(20).nonzero()[:, 0].tolist() == [2, 3, 4, 5, 6, 7, 8]
    rare = split.within(2, 3)                                     # words 2, 3 and 4 alone are known
    batch = rare.decode(next(rare.batches([torch.arange(len(rare))])))
    assert batch["y"].tolist() == [2, 3, 4] and batch["x"].tolist() == [[0, 0, 3, 4], [0, 2, 4, 0], [2, 3, 0, 0]]
    # 10 pairs within two of 7 words; of those one apart all are met, of those two apart half
    assert split.company() == pytest.approx((8 * 1 + 4 * 0.5) / 7)


def test_how_often_a_word_is_kept_by_hand():
    counts = torch.tensor([0, 0, 900, 90, 10])
    torch.testing.assert_close(kept(counts, 0.009), torch.tensor([1.0, 1.0, 0.1, 0.1**0.5, 0.9**0.5]), rtol=1e-4, atol=0)
    assert kept(counts, 0.0).tolist() == [1.0] * 5


def test_thinning_keeps_what_it_says():
    keep = torch.tensor([1.0, 1.0, 0.5, 0.8])
    thin, n = thinning(keep), 20_000
    batch = {"x": torch.tensor([2, 2, 3, 3]).expand(n, 4), "y": torch.full((n,), 3), "row": torch.arange(n)}
    out = thin(batch, torch.Generator().manual_seed(0))
    there = (out["x"] != 0).float().mean(0)
    # the middle (0.8), the other word, and reach: one apart always, two apart in half of the windows
    torch.testing.assert_close(there, torch.tensor([0.8 * 0.5 * 0.5, 0.8 * 0.5, 0.8 * 0.8, 0.8 * 0.8 * 0.5]), atol=0.015, rtol=0)
    assert torch.equal(batch["x"][0], torch.tensor([2, 2, 3, 3]))
    assert torch.equal(thin(batch, torch.Generator().manual_seed(0))["x"], out["x"])


def test_a_running_text_and_texts_with_labels(tmp_path):
    (tmp_path / "book.txt").write_text("The king rules.\nHe rules long.\n\nThe queen rules, the KING sleeps!\n\n" * 60)
    data = load(str(tmp_path / "book.txt"), accepts=WORDS)
    assert data.kind == "words" and data.names[:2] == ("rules", "the") and "king" in data.names
    row = neighbourhoods(data, window=3, vocabulary=100).train
    assert isinstance(row, Neighbours)
    first = row.decode(next(row.batches([torch.tensor([1])])))
    spelled = ("", "", *data.names)
    assert spelled[first["y"]] == "king" and [spelled[i] for i in first["x"][0]] == ["", "", "the", "rules", "he", "rules"]
    told = (("good", "yes") if i % 2 else ("bad", "no") for i in range(90))
    rows = "\n".join(f"a {how} film about {'love' if i % 3 else 'war'},{liked}" for i, (how, liked) in enumerate(told))
    (tmp_path / "own.csv").write_text("review,liked\n" + rows + "\n")
    data = load(str(tmp_path / "own.csv"), text="review", target="liked", accepts=WORDS)
    assert set(data.names) == {"a", "good", "bad", "film", "about", "love", "war"} and data.task == "none"
    again = reload(data, data.indices)
    assert again.kind == "words" and torch.equal(again.train.stream, data.train.stream)


@pytest.mark.parametrize(("name", "text", "complaint"), [
    ("short.txt", "one two three four " * 20, "holds 0 words|a running text needs"),
    ("lonely.txt", " ".join(f"w{i}" for i in range(2000)), "word vectors need at least 200"),
    ("wordless.txt", "?! ... " * 400, "word vectors need at least 200"),
])
def test_too_little_to_learn_from(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=complaint):
        load(str(tmp_path / name), accepts=WORDS)


def test_a_table_has_no_words():
    with pytest.raises(UsageError, match="'iris' is table"):
        load("iris", accepts=WORDS)


@pytest.mark.skipif(not has_public("rt_polarity"), reason="DIDACT_DATA holds no rt_polarity")
def test_reviews_are_read_as_words():
    data = load("rt_polarity", accepts=WORDS)
    assert len(data.train) > 100_000 and len(data.test) <= 20_000 and data.names[0] == "the"
