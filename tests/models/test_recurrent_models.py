"""Recurrent classifiers, language models, taggers and seq2seq: padding is invisible, gradients flow, simple tasks are learned."""

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.models.recurrent import RecurrentClassifier, RecurrentLanguageModel, RecurrentTagger, lengths_of
from didact.models.seq2seq import Seq2Seq
from didact.objectives.translation import Translate

ATTENTION = ["none", "bahdanau", "dot", "general", "concat"]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_lengths_are_read_off_the_padding():
    assert lengths_of(torch.tensor([[5, 6, 0, 0], [7, 8, 9, 1], [0, 0, 0, 0]])).tolist() == [2, 4, 1]


@pytest.mark.parametrize("pool", ["last", "mean", "max"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_padding_changes_nothing(pool, bidirectional):
    model = RecurrentClassifier(20, 3, width=8, hidden=6, layers=2, pool=pool, bidirectional=bidirectional).eval()
    tokens = torch.randint(1, 20, (4, 7))
    wide = torch.cat([tokens, torch.zeros(4, 5, dtype=torch.long)], 1)
    torch.testing.assert_close(model(wide), model(tokens))
    tagger = RecurrentTagger(20, 4, width=8, hidden=6).eval()
    torch.testing.assert_close(tagger(wide)[:, :7], tagger(tokens))


def test_the_size_of_the_courses_sentiment_model():
    """Gaba 5.8 prints 1,447,170 for its BiLSTM; PyTorch's two biases and its own head make another number (mistake M31)."""
    reader = RecurrentClassifier(1000, 2, width=128, hidden=256, layers=2).reader
    twin = nn.LSTM(128, 256, 2, bidirectional=True)
    assert sum(p.numel() for p in reader.parameters()) == sum(p.numel() for p in twin.parameters())


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_language_model_reads_the_past_alone_and_can_go_on(cell):
    model = RecurrentLanguageModel(20, cell=cell, width=8, hidden=6, layers=2).eval()
    tokens = torch.randint(20, (3, 9))
    other = tokens.clone()
    other[:, 5:] = 0
    torch.testing.assert_close(model(tokens)[:, :5], model(other)[:, :5])
    first, state = model.after(tokens[:, :4], None)
    torch.testing.assert_close(torch.cat([first, model.after(tokens[:, 4:], state)[0]], 1), model(tokens))


def test_tied_weights_are_one_matrix():
    tied = RecurrentLanguageModel(50, width=8, hidden=6, tie=True)
    assert tied.head.weight is tied.embedding.weight and tied(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 50)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("attention", ATTENTION)
def test_told_step_by_step_it_says_the_same_as_told_at_once(attention, cell):
    model = Seq2Seq(15, 12, cell=cell, attention=attention, width=8, hidden=6, layers=2).eval()
    x, y = torch.randint(4, 15, (3, 7)), torch.randint(4, 12, (3, 5))
    x[1, 4:] = 0
    logits, a = model.look(x, y)
    read = model.read(x, 5)
    torch.testing.assert_close(torch.stack([model.go_on(y[:, t : t + 1], read) for t in range(5)], 1), logits)
    if a is not None:
        torch.testing.assert_close(a.sum(-1), torch.ones(3, 5))
        assert a[1, :, 4:].eq(0).all()                                      # padding is not looked at
    torch.testing.assert_close(model(x[1:2, :4], y[1:2]), logits[1:2])
    logits.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_what_it_writes_is_its_own_likeliest_and_ends():
    model = Seq2Seq(15, 12, width=8, hidden=6).eval()
    x = torch.randint(4, 15, (3, 7))
    y = Translate(model, length=1.0, longest=6).translate({"x": x})
    told = torch.cat([torch.full((3, 1), 2), y[:, :-1]], 1)
    likeliest = model(x, told).argmax(-1)
    for own, best in zip(y.tolist(), likeliest.tolist(), strict=True):
        end = own.index(3) + 1 if 3 in own else 6
        assert own[:end] == best[:end] and not any(own[end:])
    nn.init.zeros_(model.head.weight)
    with torch.no_grad():
        model.head.bias.copy_(torch.eye(12)[3])                             # always <eos>
    assert Translate(model, length=1.0, longest=4).translate({"x": x}).tolist() == [[3]] * 3                      # all have ended
    with pytest.raises(UsageError, match="no cell named 'lst'"):
        Seq2Seq(5, 5, cell="lst")


@pytest.mark.parametrize("attention", [pytest.param("bahdanau", marks=pytest.mark.slow), "general"])
def test_it_learns_to_say_a_sequence_backwards(attention):
    x = torch.randint(4, 12, (512, 6))
    y = torch.cat([torch.full((512, 1), 2), x.flip(1), torch.full((512, 1), 3)], 1)
    objective = Translate(Seq2Seq(12, 12, attention=attention, width=24, hidden=48), length=7.0, longest=7)
    optimizer = torch.optim.Adam(objective.parameters(), lr=8e-3)
    for step in range(120):
        rows = torch.arange(64 * (step % 7), 64 * (step % 7) + 64)
        optimizer.zero_grad()
        objective.loss({"x": x[rows], "y": y[rows]})["loss"].backward()
        nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        scores = objective.eval().score(objective.judge({"x": x[448:], "y": y[448:]}))   # never trained on
    assert scores["accuracy"] > 0.7, scores                                  # one of eight symbols by chance, and the end
