"""The copy task: what is laid out, what is asked, who remembers."""

import json
from math import log

import pytest
import torch

import didact
from didact.cli.main import main
from didact.data.copying import IGNORED, CopyEncoder, after, answering, asking
from didact.data.load import load
from didact.errors import UsageError
from didact.explain.beside import explain as beside
from didact.explain.memory import fading
from didact.explain.runs import explain
from didact.explain.sequences import kept
from didact.layers.recurrent import Recurrent, patient
from didact.models.recurrent import RecurrentTagger
from didact.objectives import language
from didact.objectives.tagging import Tag
from didact.registry import RECIPES
from didact.train.session import restored
from didact.train.use import predict


def test_what_is_read_and_what_is_asked():
    word = torch.tensor([[1, 0, 3]], dtype=torch.uint8)
    assert asking(word, delay=4).tolist() == [[4, 3, 6, 1, 1, 1, 1, 2, 2, 2]]
    assert answering(word, delay=4).tolist() == [[IGNORED] * 7 + [1, 0, 3]]
    assert IGNORED == language.IGNORED
    data = after(load("copies"), remember=3, delay=4)
    batch = data.train.batch(torch.arange(5))
    assert data.shape == (10,) and batch["x"].shape == batch["y"].shape == (5, 10)
    assert torch.equal(batch["x"][:, :3] - 3, batch["y"][:, -3:])
    with pytest.raises(UsageError, match="expected 3 letters from a to h, got 'abz'"):
        CopyEncoder(3, 4).read(["abz"])
    with pytest.raises(UsageError, match="letters of 'copies'"):
        after(load("iris"), remember=2, delay=4)


def test_words_cut_short_are_counted_anew():
    """Of three letters there are 512 words: all that are judged stand in training too, and each letter was drawn about as often."""
    cut = after(load("copies"), remember=3, delay=5)
    assert cut.duplicates == {"validation": 3000, "test": 3000} and load("copies").duplicates["test"] < 10
    assert sum(cut.counts["train"]) == 3 * 14_000 and cut.indices is not None
    assert torch.equal(cut.train.batch(torch.arange(5))["y"][:, -3:], load("copies").train.batch(torch.arange(5))["y"][:, -8:-5])


def test_knowing_nothing_costs_log_8_and_parts_of_a_batch_weigh_alike():
    torch.manual_seed(0)
    network = RecurrentTagger(11, 8, cell="rnn", width=5, hidden=6, bidirectional=False, dropout=0.0)
    objective = Tag(network, length=3, asks=2)
    words = torch.randint(8, (6, 3))
    batch = {"x": asking(words, delay=4), "y": answering(words, delay=4)}
    parts = [objective.loss({key: v[rows] for key, v in batch.items()})["loss"] for rows in (slice(2), slice(2, 4), slice(4, 6))]
    torch.testing.assert_close(torch.stack(parts).mean(), objective.loss(batch)["loss"])
    for p in network.head.parameters():
        torch.nn.init.zeros_(p)
    assert objective.loss(batch)["loss"].item() == pytest.approx(log(8))
    p = objective.tag(batch)
    assert not p[:, :7].any()
    torch.testing.assert_close(p[:, 7:], torch.full((6, 3, 8), 1 / 8))
    rows = {"loss": torch.ones(2), "tokens": torch.tensor([3, 3]), "right": torch.tensor([3, 1])}
    assert objective.score(rows) == pytest.approx({"loss": 1.0, "accuracy": 4 / 6, "exact": 0.5})


def test_a_tagger_that_reads_one_way_knows_nothing_of_what_follows():
    torch.manual_seed(0)
    x, y = torch.randint(1, 11, (2, 9)), torch.randint(1, 11, (2, 9))
    y[:, :5] = x[:, :5]
    one, both = (RecurrentTagger(11, 4, width=5, hidden=6, bidirectional=way, dropout=0.0) for way in (False, True))
    torch.testing.assert_close(one(x)[:, :5], one(y)[:, :5])
    assert not torch.allclose(both(x)[:, :5], both(y)[:, :5])


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_gates_begin_as_long_as_the_pause(cell):
    torch.manual_seed(0)
    rnn = Recurrent(cell, 3, 50).rnn
    before = rnn.bias_ih_l0.clone()
    patient(rnn, 40)
    if cell == "rnn":
        assert torch.equal(rnn.bias_ih_l0, before)
        return
    held = rnn.bias_ih_l0[50:100]
    steps = 1 / (1 - held.sigmoid()) - 1                    # a unit that keeps the share σ(b) forgets in about as many steps
    assert steps.min() >= 1 and steps.max() <= 40 and steps.mean() > 10
    if cell == "lstm":
        torch.testing.assert_close(rnn.bias_ih_l0[:50], -held)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A GRU that has learned, and an RNN that has not yet."""
    to, small = str(tmp_path_factory.mktemp("runs")), {"delay": 5, "remember": 2, "hidden": 32, "device": "cpu"}
    return {
        "gru": didact.train(RECIPES["copy_task"], cell="gru", steps=300, lr=2e-2, runs=to, **small),
        "rnn": didact.train(RECIPES["copy_task"], cell="rnn", steps=5, runs=to, **small),
    }


def test_a_gru_remembers(runs):
    assert runs["gru"].facts["test"]["accuracy"] > 0.95         # 1 / 8 by chance
    assert [row["tags"] for row in predict(runs["gru"], ["ab", "hc"])] == ["a b", "h c"]


def test_its_gates_are_drawn(runs, tmp_path):
    found = explain(runs["gru"], ["da"], to=tmp_path)["explained"][0]
    assert found["tokens"] == ["d", "a", *"␣␣␣␣␣", "?", "?"] and found["predicted"] == "d a"
    assert set(found["methods"]) == {"gates", "memory"} and set(found["methods"]["gates"]) == {"reset", "update", "candidate"}
    assert (tmp_path / "01-da-gates.svg").is_file()


def test_memories_side_by_side(runs, tmp_path, capsys):
    found = beside([runs["gru"], runs["rnn"]], ["da"], to=tmp_path)
    assert ["cell gru" in found["explained"][0]["memory"], "cell rnn" in found["explained"][1]["memory"]] == [True, True]
    objective, _ = restored(runs["rnn"])
    x = objective.network.embedding(asking(torch.tensor([[3, 0]]), delay=5))[0]
    torch.testing.assert_close(torch.tensor(found["explained"][1]["norms"]), fading(objective.network.reader, x))
    assert (tmp_path / "memory.svg").read_text().count("<path") >= 2
    words = ["explain", str(runs["gru"].folder), "--method", "memory", "--beside", str(runs["rnn"].folder), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)["explained"]
    assert len(told) == 2 and len(told[0]["norms"]) == len(kept(runs["gru"])[0][1]["x"][0]) == 9
    assert main([*words[:2], "--beside", str(runs["rnn"].folder)]) == 2
    assert "--method memory" in capsys.readouterr().err


@pytest.mark.slow
def test_a_long_pause_is_too_much_for_a_plain_rnn(here):
    """Measured with 600 steps, 2 symbols, a pause of 60."""
    found = {
        cell: didact.train(RECIPES["copy_task"], cell=cell, remember=2, delay=60, steps=600, lr=lr, device="cpu").facts["test"]
        for cell, lr in (("gru", 1e-2), ("lstm", 1e-2), ("rnn", 1e-3))
    }
    assert found["gru"]["accuracy"] > 0.9 and found["lstm"]["accuracy"] > 0.9 and found["rnn"]["accuracy"] < 0.5
