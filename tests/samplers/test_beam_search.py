"""Beam search: against greedy search, trying every text, and itself on each text alone."""

import pytest
import torch
from torch import nn

from didact.data.text.tokenizers import BOS_ID, EOS_ID
from didact.errors import UsageError
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.rnn import RecurrentLanguageModel
from didact.models.text.seq2seq import Seq2Seq
from didact.objectives.text.causal_lm import CausalLanguageModel, GenerativeLanguageModel
from didact.objectives.text.seq2seq import Seq2SeqObjective
from didact.samplers.beam_search import beam_search
from didact.samplers.top_k_top_p import DecodingConfig
from helpers.decoding_models import GREEDY, LANGUAGE_MODELS, StatelessCache, make_sharp, step_chain


@pytest.fixture(params=LANGUAGE_MODELS)
def language_model(request):
    return CausalLanguageModel(make_sharp(LANGUAGE_MODELS[request.param]()))


def test_beam_search_finds_what_greedy_search_misses():
    start = torch.zeros(1, 1, dtype=torch.long)
    greedy = beam_search(step_chain, StatelessCache(), start, 2, num_beams=1)
    best = beam_search(step_chain, StatelessCache(), start, 2, num_beams=2)
    assert greedy[0, 0] == 1 and best.tolist() == [[2, 3]]      # 0.4 · 0.95 = 0.38 against 0.6 · 0.25 = 0.15


class AnswerNetwork(nn.Module):
    """1, then the end 3; or, less likely, 2 forever. After an end anything may come."""

    vocab_size, transition_table = (
        4,
        torch.tensor([[0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.25, 0.25]]),
    )
    num_calls = 0

    def init_cache(self, batch_size, capacity):
        return StatelessCache()

    def decode_step(self, tokens, cache):
        self.num_calls += 1
        return self.transition_table.log()[tokens[:, -1]]


def test_beam_search_stops_at_the_end_token():
    start, language_model = torch.zeros(1, 1, dtype=torch.long), GenerativeLanguageModel(AnswerNetwork())
    # 0.4 against 0.6 · 1/64
    assert language_model.write(start, 5, decoding=DecodingConfig(num_beams=2)).tolist() == [[2] * 5]
    assert language_model.write(start, 5, decoding=DecodingConfig(num_beams=2), eos_id=3).tolist() == [[1, 3, 3, 3, 3]]
    assert language_model.write(start, 5, decoding=GREEDY, eos_id=3).tolist() == [[1, 3, 3, 3, 3]]


def test_beam_search_stops_when_all_beams_are_finished():
    network = AnswerNetwork()
    network.transition_table = torch.tensor(
        [[0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.25, 0.25]]
    )
    generated = GenerativeLanguageModel(network).write(
        torch.zeros(1, 1, dtype=torch.long), 8, decoding=DecodingConfig(num_beams=2), eos_id=3
    )
    assert generated.tolist() == [[1] + [3] * 7] and network.num_calls == 2


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("longer", [True, False])
def test_beam_search_applies_the_length_penalty(ends, longer):
    """Against an end at once: as good where log p is (10/6)^0.6 / (6/6)^0.6 = 1.3587 times as low."""
    p = 0.4 ** (1.35 if longer else 1.37)
    table = torch.zeros(6, 6)
    table[0] = torch.tensor([0.0, p, *[(0.6 - p) / 3] * 3, 0.4])                             # 5 is the end
    table[[1, 2, 3, 4, 5], [2, 3, 4, 5 if ends else 4, 5]] = 1.0
    n = 7 if ends else 5
    best = beam_search(
        lambda tokens, _: table.log()[tokens[:, -1]],
        StatelessCache(),
        torch.zeros(1, 1, dtype=torch.long),
        n,
        num_beams=2,
        eos_id=5,
    )
    assert best.tolist() == [([1, 2, 3, 4, 5, 5, 5] if ends else [1, 2, 3, 4, 4]) if longer else [5] * n]


@torch.no_grad()
def test_beam_search_is_at_least_as_likely_as_greedy_search(language_model):
    prompt = torch.randint(23, (4, 5))

    def compute_log_p(generated):
        p = language_model.network(torch.cat([prompt, generated], dim=1)).log_softmax(-1)[:, 4:-1]
        return p.gather(-1, generated[..., None]).sum((1, 2))

    greedy, best = (
        compute_log_p(language_model.write(prompt, 6, decoding=GREEDY)),
        compute_log_p(language_model.write(prompt, 6, decoding=DecodingConfig(num_beams=8))),
    )
    assert (best >= greedy - 1e-4).all() and (best > greedy + 1e-3).any()


def test_beam_search_with_one_beam_is_greedy(language_model):
    prompt = torch.randint(23, (2, 5))
    cache = language_model.network.init_cache(2, 30)
    assert torch.equal(
        beam_search(language_model.network.decode_step, cache, prompt, 20, num_beams=1),
        language_model.write(prompt, 20, decoding=GREEDY),
    )


def test_beam_search_treats_texts_independently(language_model):
    prompt = torch.randint(23, (3, 5))
    batched = language_model.write(prompt, 12, decoding=DecodingConfig(num_beams=4))
    separate = torch.cat([language_model.write(row[None], 12, decoding=DecodingConfig(num_beams=4)) for row in prompt])
    assert torch.equal(batched, separate)


SEQ2SEQ_NETWORKS = {
    "transformer": lambda: Transformer(9, 6, embed_dim=16, num_layers=1, num_heads=2, ffn_dim=24, context_length=30),
    "gru bahdanau": lambda: Seq2Seq(9, 6, cell="gru", attention="bahdanau", embed_dim=8, hidden_size=7, num_layers=2),
    "lstm general": lambda: Seq2Seq(9, 6, cell="lstm", attention="general", embed_dim=8, hidden_size=7, num_layers=2),
    "lstm none": lambda: Seq2Seq(9, 6, cell="lstm", attention="none", embed_dim=8, hidden_size=7, num_layers=2),
}


@pytest.fixture(params=SEQ2SEQ_NETWORKS)
def translator(request):
    torch.manual_seed(0)
    return Seq2SeqObjective(make_sharp(SEQ2SEQ_NETWORKS[request.param](), std=1.0), mean_length=1.0, max_length=5)


def length_penalized_log_p(objective, x, y):
    """The log p of a translation up to its <eos>, divided by the length penalty."""
    n = y.index(EOS_ID) + 1 if EOS_ID in y else len(y)
    decoder_input = torch.tensor([[BOS_ID, *y[: n - 1]]])
    logp = objective.network(x, decoder_input).log_softmax(-1)[0, torch.arange(n), y[:n]].sum()
    return float(logp) / ((5 + n) / 6) ** 0.6


@torch.no_grad()
def test_beam_search_with_as_many_beams_as_tokens_is_exhaustive(translator):
    """With two tokens all 6² + … texts are candidates: the best is that of trying each."""
    translator.max_length = 2
    for x in torch.randint(1, 9, (4, 1, 5)):
        candidates = [[EOS_ID, 0], *([a, b] for a in range(6) for b in range(6) if a != EOS_ID)]
        expected = max(candidates, key=lambda y: length_penalized_log_p(translator, x, y))
        assert translator.translate({"x": x}, num_beams=6)[0].tolist() == expected


@torch.no_grad()
def test_beam_search_translates_sentences_independently_and_no_worse_than_greedy(translator):
    x = torch.randint(1, 9, (6, 5))
    x[1, 3:] = 0
    greedy, batched = translator.translate({"x": x}), translator.translate({"x": x}, num_beams=4)
    assert batched.shape == (6, 5) and not torch.equal(batched[:, : greedy.shape[1]], greedy)
    for row, y, greedy_row in zip(x, batched, greedy, strict=True):
        assert torch.equal(translator.translate({"x": row[None]}, num_beams=4)[0], y)
        assert not y[(y == EOS_ID).cumsum(0) > (y == EOS_ID).long()].any()  # nothing after <eos>
        assert (
            length_penalized_log_p(translator, row[None], y.tolist())
            >= length_penalized_log_p(translator, row[None], greedy_row.tolist()) - 1e-4
        )
    with pytest.raises(UsageError, match="the number of beams must be from 1 to 6, the size of the vocabulary, got 7"):
        translator.translate({"x": x}, num_beams=7)


@torch.no_grad()
def test_recurrent_beam_search_is_exhaustive():
    network, prompt = (
        make_sharp(RecurrentLanguageModel(4, cell="lstm", embed_dim=6, hidden_size=7), std=1.0),
        torch.tensor([[1, 3, 2]]),
    )
    # all 64 texts of three tokens
    all_texts = torch.cartesian_prod(*[torch.arange(4)] * 3)
    log_p = (
        network(torch.cat([prompt.expand(64, -1), all_texts], 1))
        .log_softmax(-1)[:, 2:-1]
        .gather(-1, all_texts[..., None])
        .sum((1, 2))
    )
    assert torch.equal(
        beam_search(network.decode_step, network.init_cache(4, 9), prompt, 3, num_beams=4)[0], all_texts[log_p.argmax()]
    )
