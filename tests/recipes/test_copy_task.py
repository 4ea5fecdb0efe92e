"""The copy task: inputs and targets, which networks solve it, gates and gradient norms."""

import json
from math import log

import pytest
import torch

import didact
from didact.cli.main import main
from didact.data.datasets.synthetic.copy_memory import (
    IGNORE_INDEX,
    CopyEncoder,
    make_copy_inputs,
    make_copy_targets,
    with_delay,
)
from didact.data.load import load
from didact.errors import UsageError
from didact.explain.compare_memory import compare_gradient_reach
from didact.explain.explain_run import explain_run
from didact.explain.gradient_memory import compute_gradient_decay
from didact.explain.sequences import load_worst_sequences
from didact.inference.predict import predict
from didact.layers.recurrent.recurrent import Recurrent, chrono_init_
from didact.models.text.rnn import RecurrentTagger
from didact.objectives.text import language_model
from didact.objectives.text.tagging import TaggingObjective
from didact.registry import RECIPES
from didact.training.restore import load_model


def test_copy_inputs_and_targets():
    word = torch.tensor([[1, 0, 3]], dtype=torch.uint8)
    assert make_copy_inputs(word, delay=4).tolist() == [[4, 3, 6, 1, 1, 1, 1, 2, 2, 2]]
    assert make_copy_targets(word, delay=4).tolist() == [[IGNORE_INDEX] * 7 + [1, 0, 3]]
    assert IGNORE_INDEX == language_model.IGNORE_INDEX
    data = with_delay(load("copies"), sequence_length=3, delay=4)
    batch = data.train.batch(torch.arange(5))
    assert data.shape == (10,) and batch["x"].shape == batch["y"].shape == (5, 10)
    assert torch.equal(batch["x"][:, :3] - 3, batch["y"][:, -3:])
    with pytest.raises(UsageError, match="expected 3 letters from a to h, got 'abz'"):
        CopyEncoder(3, 4).read(["abz"])
    with pytest.raises(UsageError, match="letters of 'copies'"):
        with_delay(load("iris"), sequence_length=2, delay=4)


def test_with_delay_recounts_duplicates():
    """Of three letters there are 512 words: all test words are in training too, and letters have equal frequencies."""
    short_data = with_delay(load("copies"), sequence_length=3, delay=5)
    assert short_data.duplicates == {"validation": 3000, "test": 3000} and load("copies").duplicates["test"] < 10
    assert sum(short_data.class_counts["train"]) == 3 * 14_000 and short_data.indices is not None
    assert torch.equal(
        short_data.train.batch(torch.arange(5))["y"][:, -3:], load("copies").train.batch(torch.arange(5))["y"][:, -8:-5]
    )


def test_tag_loss_of_a_zero_head_is_log_8_and_parts_of_a_batch_weigh_equally():
    torch.manual_seed(0)
    network = RecurrentTagger(11, 8, cell="rnn", embed_dim=5, hidden_size=6, bidirectional=False, dropout=0.0)
    objective = TaggingObjective(network, mean_length=3, query_token=2)
    words = torch.randint(8, (6, 3))
    batch = {"x": make_copy_inputs(words, delay=4), "y": make_copy_targets(words, delay=4)}
    parts = [
        objective.loss({key: v[rows] for key, v in batch.items()})["loss"]
        for rows in (slice(2), slice(2, 4), slice(4, 6))
    ]
    torch.testing.assert_close(torch.stack(parts).mean(), objective.loss(batch)["loss"])
    for p in network.head.parameters():
        torch.nn.init.zeros_(p)
    assert objective.loss(batch)["loss"].item() == pytest.approx(log(8))
    p = objective.tag(batch)
    assert not p[:, :7].any()
    torch.testing.assert_close(p[:, 7:], torch.full((6, 3, 8), 1 / 8))
    rows = {"loss": torch.ones(2), "tokens": torch.tensor([3, 3]), "correct": torch.tensor([3, 1])}
    assert objective.compute_metrics(rows) == pytest.approx({"loss": 1.0, "accuracy": 4 / 6, "exact": 0.5})


def test_unidirectional_tagger_sees_no_later_tokens():
    torch.manual_seed(0)
    x, y = torch.randint(1, 11, (2, 9)), torch.randint(1, 11, (2, 9))
    y[:, :5] = x[:, :5]
    forward_tagger, two_way_tagger = (
        RecurrentTagger(11, 4, embed_dim=5, hidden_size=6, bidirectional=is_two_way, dropout=0.0)
        for is_two_way in (False, True)
    )
    torch.testing.assert_close(forward_tagger(x)[:, :5], forward_tagger(y)[:, :5])
    assert not torch.allclose(two_way_tagger(x)[:, :5], two_way_tagger(y)[:, :5])


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_chrono_init_gives_gates_time_constants_up_to_the_delay(cell):
    torch.manual_seed(0)
    rnn = Recurrent(cell, 3, 50).rnn
    before = rnn.bias_ih_l0.clone()
    chrono_init_(rnn, 40)
    if cell == "rnn":
        assert torch.equal(rnn.bias_ih_l0, before)
        return
    forget_bias = rnn.bias_ih_l0[50:100]
    # a unit that keeps the share σ(b) forgets in about as many steps
    time_constants = 1 / (1 - forget_bias.sigmoid()) - 1
    assert time_constants.min() >= 1 and time_constants.max() <= 40 and time_constants.mean() > 10
    if cell == "lstm":
        torch.testing.assert_close(rnn.bias_ih_l0[:50], -forget_bias)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A GRU that has learned, and an RNN that has not yet."""
    folder, small_options = (
        str(tmp_path_factory.mktemp("runs")),
        {"delay": 5, "sequence_length": 2, "hidden_size": 32, "device": "cpu"},
    )
    return {
        "gru": didact.train(RECIPES["copy_task"], cell="gru", steps=300, lr=2e-2, runs=folder, **small_options),
        "rnn": didact.train(RECIPES["copy_task"], cell="rnn", steps=5, runs=folder, **small_options),
    }


def test_gru_learns_the_copy_task(runs):
    assert runs["gru"].metadata["test"]["accuracy"] > 0.95         # 1 / 8 by chance
    assert [row["tags"] for row in predict(runs["gru"], ["ab", "hc"])] == ["a b", "h c"]


def test_explain_shows_the_gates_of_a_gru(runs, tmp_path):
    explanation = explain_run(runs["gru"], ["da"], out_dir=tmp_path)["explained"][0]
    assert explanation["tokens"] == ["d", "a", *"␣␣␣␣␣", "?", "?"] and explanation["predicted"] == "d a"
    assert set(explanation["methods"]) == {"gates", "memory"} and set(explanation["methods"]["gates"]) == {
        "reset",
        "update",
        "candidate",
    }
    assert (tmp_path / "01-da-gates.svg").is_file()


def test_explain_compares_the_memories_of_gru_and_rnn(runs, tmp_path, capsys):
    result = compare_gradient_reach([runs["gru"], runs["rnn"]], ["da"], out_dir=tmp_path)
    assert ["cell gru" in result["explained"][0]["memory"], "cell rnn" in result["explained"][1]["memory"]] == [
        True,
        True,
    ]
    objective, _ = load_model(runs["rnn"])
    x = objective.network.embedding(make_copy_inputs(torch.tensor([[3, 0]]), delay=5))[0]
    torch.testing.assert_close(
        torch.tensor(result["explained"][1]["norms"], dtype=torch.float64),
        compute_gradient_decay(objective.network.reader, x),
    )
    assert (tmp_path / "memory.svg").read_text().count("<path") >= 2
    words = ["explain", str(runs["gru"].folder), "--method", "memory", "--compare", str(runs["rnn"].folder), "--json"]
    assert main(words) == 0
    explanations = json.loads(capsys.readouterr().out)["explained"]
    assert (
        len(explanations) == 2
        and len(explanations[0]["norms"]) == len(load_worst_sequences(runs["gru"])[0][1]["x"][0]) == 9
    )
    assert main([*words[:2], "--compare", str(runs["rnn"].folder)]) == 2
    assert "--method memory" in capsys.readouterr().err


@pytest.mark.slow
def test_plain_rnn_fails_at_a_long_delay(workdir):
    """Measured with 600 steps, 2 symbols, a pause of 60."""
    scores = {
        cell: didact.train(
            RECIPES["copy_task"], cell=cell, sequence_length=2, delay=60, steps=600, lr=lr, device="cpu"
        ).metadata["test"]
        for cell, lr in (("gru", 1e-2), ("lstm", 1e-2), ("rnn", 1e-3))
    }
    assert scores["gru"]["accuracy"] > 0.9 and scores["lstm"]["accuracy"] > 0.9 and scores["rnn"]["accuracy"] < 0.5
