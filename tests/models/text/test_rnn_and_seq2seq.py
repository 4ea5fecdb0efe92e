"""Recurrent classifiers, language models, taggers and seq2seq: padding is ignored, gradients flow, simple tasks are
learned.
"""

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.models.text.rnn import RecurrentClassifier, RecurrentLanguageModel, RecurrentTagger, sequence_lengths
from didact.models.text.seq2seq import Seq2Seq
from didact.objectives.text.seq2seq import Seq2SeqObjective

ATTENTION_SCORES = ["none", "bahdanau", "dot", "general", "concat"]


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


def test_sequence_lengths_are_read_from_the_padding():
    assert sequence_lengths(torch.tensor([[5, 6, 0, 0], [7, 8, 9, 1], [0, 0, 0, 0]])).tolist() == [2, 4, 1]


@pytest.mark.parametrize("pool", ["last", "mean", "max"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_rnn_classifier_and_tagger_ignore_padding(pool, bidirectional):
    model = RecurrentClassifier(
        20, 3, embed_dim=8, hidden_size=6, num_layers=2, pool=pool, bidirectional=bidirectional
    ).eval()
    tokens = torch.randint(1, 20, (4, 7))
    padded = torch.cat([tokens, torch.zeros(4, 5, dtype=torch.long)], 1)
    torch.testing.assert_close(model(padded), model(tokens))
    tagger = RecurrentTagger(20, 4, embed_dim=8, hidden_size=6).eval()
    torch.testing.assert_close(tagger(padded)[:, :7], tagger(tokens))


def test_rnn_classifier_has_as_many_parameters_as_pytorchs_bilstm():
    """Gaba 5.8 prints 1,447,170 for its BiLSTM; PyTorch's two biases and its own head make another number (mistake
    M31)."""
    bilstm = RecurrentClassifier(1000, 2, embed_dim=128, hidden_size=256, num_layers=2).reader
    reference = nn.LSTM(128, 256, 2, bidirectional=True)
    assert sum(p.numel() for p in bilstm.parameters()) == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_rnn_language_model_is_causal_and_continues_from_its_state(cell):
    model = RecurrentLanguageModel(20, cell=cell, embed_dim=8, hidden_size=6, num_layers=2).eval()
    tokens = torch.randint(20, (3, 9))
    changed_tokens = tokens.clone()
    changed_tokens[:, 5:] = 0
    torch.testing.assert_close(model(tokens)[:, :5], model(changed_tokens)[:, :5])
    first_logits, state = model.forward_from_state(tokens[:, :4], None)
    torch.testing.assert_close(
        torch.cat([first_logits, model.forward_from_state(tokens[:, 4:], state)[0]], 1), model(tokens)
    )


def test_rnn_language_model_ties_its_weights():
    tied = RecurrentLanguageModel(50, embed_dim=8, hidden_size=6, tie_weights=True)
    assert tied.head.weight is tied.embedding.weight and tied(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 50)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("attention", ATTENTION_SCORES)
def test_seq2seq_step_by_step_matches_teacher_forcing(attention, cell):
    model = Seq2Seq(15, 12, cell=cell, attention=attention, embed_dim=8, hidden_size=6, num_layers=2).eval()
    x, y = torch.randint(4, 15, (3, 7)), torch.randint(4, 12, (3, 5))
    x[1, 4:] = 0
    logits, a = model.forward_with_weights(x, y)
    decoder_state = model.encode_for_decoding(x, 5)
    torch.testing.assert_close(
        torch.stack([model.decode_step(y[:, t : t + 1], decoder_state) for t in range(5)], 1), logits
    )
    if a is not None:
        torch.testing.assert_close(a.sum(-1), torch.ones(3, 5))
        assert a[1, :, 4:].eq(0).all()                                      # padding is masked
    torch.testing.assert_close(model(x[1:2, :4], y[1:2]), logits[1:2])
    logits.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_seq2seq_greedy_decoding_takes_the_likeliest_tokens_and_stops():
    model = Seq2Seq(15, 12, embed_dim=8, hidden_size=6).eval()
    x = torch.randint(4, 15, (3, 7))
    y = Seq2SeqObjective(model, mean_length=1.0, max_length=6).translate({"x": x})
    decoder_input = torch.cat([torch.full((3, 1), 2), y[:, :-1]], 1)
    likeliest = model(x, decoder_input).argmax(-1)
    for generated_row, likeliest_row in zip(y.tolist(), likeliest.tolist(), strict=True):
        end = generated_row.index(3) + 1 if 3 in generated_row else 6
        assert generated_row[:end] == likeliest_row[:end] and not any(generated_row[end:])
    nn.init.zeros_(model.head.weight)
    with torch.no_grad():
        model.head.bias.copy_(torch.eye(12)[3])                             # always <eos>
    # all have ended
    assert Seq2SeqObjective(model, mean_length=1.0, max_length=4).translate({"x": x}).tolist() == [[3]] * 3
    with pytest.raises(UsageError, match="no cell named 'lst'"):
        Seq2Seq(5, 5, cell="lst")


@pytest.mark.parametrize("attention", [pytest.param("bahdanau", marks=pytest.mark.slow), "general"])
def test_seq2seq_learns_to_reverse_sequences(attention):
    x = torch.randint(4, 12, (512, 6))
    y = torch.cat([torch.full((512, 1), 2), x.flip(1), torch.full((512, 1), 3)], 1)
    objective = Seq2SeqObjective(
        Seq2Seq(12, 12, attention=attention, embed_dim=24, hidden_size=48), mean_length=7.0, max_length=7
    )
    optimizer = torch.optim.Adam(objective.parameters(), lr=8e-3)
    for step in range(120):
        rows = torch.arange(64 * (step % 7), 64 * (step % 7) + 64)
        optimizer.zero_grad()
        objective.loss({"x": x[rows], "y": y[rows]})["loss"].backward()
        nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        # never trained on
        scores = objective.eval().compute_metrics(objective.evaluate_batch({"x": x[448:], "y": y[448:]}))
    # one of eight symbols by chance, and the end
    assert scores["accuracy"] > 0.7, scores
