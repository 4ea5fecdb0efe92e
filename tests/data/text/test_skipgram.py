"""Skip-gram: windows by hand, and subsampling of frequent words."""

import pytest
import torch

from didact.data.load import load, reload_data
from didact.data.text.skipgram import (
    ContextWindows,
    compute_keep_probability,
    concat_texts,
    make_subsampler,
    with_window,
)
from didact.errors import UsageError
from helpers.public_data import has_public_data

ACCEPTED_KINDS = ("words",)


def test_context_windows_by_hand_stay_in_their_text():
    windows = concat_texts(
        [torch.tensor([2, 3, 4, 5]), torch.tensor([6]), torch.tensor([], dtype=torch.int32), torch.tensor([7, 8])]
    ).restrict(2, 20)
    batch = windows.decode(next(windows.batches([torch.arange(len(windows))])))
    assert batch["y"].tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert batch["x"].tolist() == [
        [0, 0, 3, 4],
        [0, 2, 4, 5],
        [2, 3, 5, 0],
        [3, 4, 0, 0],
        [0] * 4,
        [0, 0, 8, 0],
        [0, 7, 0, 0],
    ]
    assert windows.count_words(20).nonzero()[:, 0].tolist() == [2, 3, 4, 5, 6, 7, 8]
    frequent_windows = windows.restrict(2, 3)                                     # words 2, 3 and 4 alone are known
    batch = frequent_windows.decode(next(frequent_windows.batches([torch.arange(len(frequent_windows))])))
    assert batch["y"].tolist() == [2, 3, 4] and batch["x"].tolist() == [[0, 0, 3, 4], [0, 2, 4, 0], [2, 3, 0, 0]]
    # 10 pairs within two of 7 words; of those one apart all are met, of those two apart half
    assert windows.expected_context_size() == pytest.approx((8 * 1 + 4 * 0.5) / 7)


def test_compute_keep_probability_by_hand():
    counts = torch.tensor([0, 0, 900, 90, 10])
    torch.testing.assert_close(
        compute_keep_probability(counts, 0.009), torch.tensor([1.0, 1.0, 0.1, 0.1**0.5, 0.9**0.5]), rtol=1e-4, atol=0
    )
    assert compute_keep_probability(counts, 0.0).tolist() == [1.0] * 5


def test_make_subsampler_keeps_the_expected_share():
    keep_probability = torch.tensor([1.0, 1.0, 0.5, 0.8])
    subsample, n = make_subsampler(keep_probability), 20_000
    batch = {"x": torch.tensor([2, 2, 3, 3]).expand(n, 4), "y": torch.full((n,), 3), "row": torch.arange(n)}
    out = subsample(batch, torch.Generator().manual_seed(0))
    kept_share = (out["x"] != 0).float().mean(0)
    # the middle (0.8), the other word, and reach: one apart always, two apart in half of the windows
    torch.testing.assert_close(
        kept_share, torch.tensor([0.8 * 0.5 * 0.5, 0.8 * 0.5, 0.8 * 0.8, 0.8 * 0.8 * 0.5]), atol=0.015, rtol=0
    )
    assert torch.equal(batch["x"][0], torch.tensor([2, 2, 3, 3]))
    assert torch.equal(subsample(batch, torch.Generator().manual_seed(0))["x"], out["x"])


def test_word_windows_of_running_and_labeled_texts(tmp_path):
    (tmp_path / "book.txt").write_text("The king rules.\nHe rules long.\n\nThe queen rules, the KING sleeps!\n\n" * 60)
    data = load(str(tmp_path / "book.txt"), accepts=ACCEPTED_KINDS)
    assert data.kind == "words" and data.feature_names[:2] == ("rules", "the") and "king" in data.feature_names
    windows = with_window(data, window=3, vocab_size=100).train
    assert isinstance(windows, ContextWindows)
    batch = windows.decode(next(windows.batches([torch.tensor([1])])))
    vocab = ("", "", *data.feature_names)
    assert vocab[batch["y"]] == "king" and [vocab[i] for i in batch["x"][0]] == ["", "", "the", "rules", "he", "rules"]
    opinions = (("good", "yes") if i % 2 else ("bad", "no") for i in range(90))
    rows = "\n".join(
        f"a {adjective} film about {'love' if i % 3 else 'war'},{liked}"
        for i, (adjective, liked) in enumerate(opinions)
    )
    (tmp_path / "own.csv").write_text("review,liked\n" + rows + "\n")
    data = load(str(tmp_path / "own.csv"), text="review", target="liked", accepts=ACCEPTED_KINDS)
    assert set(data.feature_names) == {"a", "good", "bad", "film", "about", "love", "war"} and data.task == "none"
    reloaded_data = reload_data(data, data.indices)
    assert reloaded_data.kind == "words" and torch.equal(reloaded_data.train.stream, data.train.stream)


@pytest.mark.parametrize(("name", "text", "message"), [
    ("short.txt", "one two three four " * 20, "holds 0 words|a running text needs"),
    ("lonely.txt", " ".join(f"w{i}" for i in range(2000)), "word vectors need at least 200"),
    ("wordless.txt", "?! ... " * 400, "word vectors need at least 200"),
])
def test_too_few_words_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        load(str(tmp_path / name), accepts=ACCEPTED_KINDS)


def test_table_has_no_words():
    with pytest.raises(UsageError, match="'iris' is table"):
        load("iris", accepts=ACCEPTED_KINDS)


@pytest.mark.skipif(not has_public_data("rt_polarity"), reason="DIDACT_DATA holds no rt_polarity")
def test_rt_polarity_is_read_as_words():
    data = load("rt_polarity", accepts=ACCEPTED_KINDS)
    assert len(data.train) > 100_000 and len(data.test) <= 20_000 and data.feature_names[0] == "the"
