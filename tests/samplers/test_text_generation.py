"""Writing with a memory, by chance within bounds and along beams, beside the same without any of it."""

import pytest
import torch
from torch import nn

from didact.data.text.tokenizers import BOS_ID, EOS_ID
from didact.errors import UsageError
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.models.text.rnn import RecurrentLanguageModel
from didact.models.text.seq2seq import Seq2Seq
from didact.objectives.text.causal_lm import CausalLanguageModel, GenerativeLanguageModel
from didact.objectives.text.seq2seq import Seq2SeqObjective
from didact.samplers.text_generation import (
    DecodingConfig,
    TextGenerator,
    beam_search,
    filter_logits,
    sample_token,
    visible_length,
)
from helpers.greedy_decoding import greedy_decode_without_cache

GREEDY = DecodingConfig(temperature=0)


def make_sharp(model, std=0.5):
    """Weights so large that the likeliest token stands out and depends on what was read."""
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=3.0 if "wpe" in name else std)
    return model.eval()


NETWORKS = {
    "gpt": lambda: GPT(23, context_length=200, embed_dim=16, num_layers=2, num_heads=4),
    "llama": lambda: Llama(23, context_length=200, embed_dim=16, num_layers=2, num_heads=4, num_kv_heads=2, ffn_dim=24),
}


@pytest.fixture(params=NETWORKS)
def language_model(request):
    return CausalLanguageModel(make_sharp(NETWORKS[request.param]()))


@torch.no_grad()
def test_greedy_text_is_the_same_with_a_cache(language_model):
    prompt = torch.randint(23, (3, 5))
    # past 128: the reach of a step doubles on the way
    generated = language_model.write(prompt, 160, decoding=GREEDY)
    assert torch.equal(generated, greedy_decode_without_cache(language_model.network, prompt, 160))
    assert len({tuple(row) for row in generated.tolist()}) == 3 and len(set(generated.flatten().tolist())) > 5


def test_compiled_decode_step_gives_the_same_text(language_model, monkeypatch):
    prompt = torch.randint(23, (2, 5))
    expected = language_model.write(prompt, 40, decoding=GREEDY)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)   # the way that a compiler sees, run as it stands
    assert torch.equal(language_model.write(prompt, 40, decoding=GREEDY), expected)


def test_generation_beyond_the_context_continues_from_its_second_half():
    language_model = CausalLanguageModel(
        make_sharp(GPT(23, context_length=12, embed_dim=16, num_layers=2, num_heads=4))
    )
    prompt = torch.randint(23, (2, 5))
    generated = language_model.write(prompt, 30, decoding=GREEDY)
    text = torch.cat([prompt, generated], dim=1)
    # 5 + 8 tokens: the last one is never read
    assert torch.equal(generated[:, :8], greedy_decode_without_cache(language_model.network, prompt, 8))
    continuation = greedy_decode_without_cache(language_model.network, text[:, 13 - 6 : 13], 7)
    assert torch.equal(text[:, 13 : 13 + 7], continuation)


def test_generation_depends_on_the_seed(language_model):
    prompt = torch.randint(23, (2, 5))
    first, second, other = (
        language_model.write(prompt, 20, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1)
    )
    assert torch.equal(first, second) and not torch.equal(first, other)


@pytest.mark.parametrize("temperature", [1e-46, 1e-40, 1e-36, 1e-20])
@pytest.mark.parametrize("bounds", [{}, {"top_k": 2}, {"top_p": 0.9}])
def test_sample_token_with_a_tiny_temperature_is_greedy(temperature, bounds):
    """1e-40: logits / temperature would be infinite, and ∞ − ∞ no number."""
    logits = torch.tensor([[2.0, 90.0, 1.0, -1.0], [-50.0, -90.0, -40.0, -41.0]])
    assert sample_token(logits, DecodingConfig(temperature, **bounds), torch.Generator().manual_seed(0))[
        :, 0
    ].tolist() == [1, 2]


def test_sample_token_follows_the_softmax():
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    samples = sample_token(logits.expand(40_000, 4), DecodingConfig(temperature=0.5), torch.Generator().manual_seed(0))[
        :, 0
    ]
    p = (logits / 0.5).softmax(0)
    deviation = (p * (1 - p) / 40_000).sqrt()
    assert ((samples.bincount(minlength=4) / 40_000 - p).abs() < 4 * deviation).all()


def test_filter_logits_keeps_top_k_and_top_p():
    p = torch.tensor([[0.1, 0.4, 0.05, 0.3, 0.15]])
    is_kept = {
        name: (filter_logits(p.log(), decoding) > -torch.inf)[0].tolist()
        for name, decoding in {
            "k=2": DecodingConfig(top_k=2),
            "p=0.7": DecodingConfig(top_p=0.69),
            "p=0.71": DecodingConfig(top_p=0.71),
            "p tiny": DecodingConfig(top_p=1e-6),
            "both": DecodingConfig(top_k=3, top_p=0.9),
            "all": DecodingConfig(top_k=5, top_p=1.0),
        }.items()
    }
    assert is_kept == {
        "k=2": [False, True, False, True, False],
        "p=0.7": [False, True, False, True, False],
        "p=0.71": [False, True, False, True, True],
        "p tiny": [False, True, False, False, False],
        # of the three 0.4, 0.3, 0.15 of 0.85, the first two have 0.82
        "both": [False, True, False, True, True],
        "all": [True] * 5,
    }


class StatelessCache:
    """A memory that remembers nothing: the next token depends on the last one alone."""

    capacity = 9

    def narrowed(self, visible):
        return self

    def clear(self):
        pass

    def reorder(self, indices):
        pass


# from 0: mostly 1, from which all are equally likely; less often 2, which is nearly always followed by 3
NEXT_TOKEN_PROBABILITIES = torch.tensor(
    [[0.0, 0.6, 0.4, 0.0], [0.25, 0.25, 0.25, 0.25], [0.02, 0.02, 0.01, 0.95], [0.1, 0.1, 0.1, 0.7]]
)


def step_chain(tokens, cache):
    return NEXT_TOKEN_PROBABILITIES.log()[tokens[:, -1]]


def test_beam_search_finds_what_greedy_search_misses():
    start = torch.zeros(1, 1, dtype=torch.long)
    greedy = beam_search(step_chain, StatelessCache(), start, 2, beam=1)
    best = beam_search(step_chain, StatelessCache(), start, 2, beam=2)
    assert greedy[0, 0] == 1 and best.tolist() == [[2, 3]]      # 0.4 · 0.95 = 0.38 against 0.6 · 0.25 = 0.15


def test_finished_text_stays_finished():
    start = torch.zeros(2, 1, dtype=torch.long)
    assert beam_search(step_chain, StatelessCache(), start, 5, beam=2, eos_id=3).tolist() == [[2, 3, 3, 3, 3]] * 2
    generator = TextGenerator(step_chain, StatelessCache(), 2, decoding=GREEDY, eos_id=1, device=start.device)
    assert generator.generate(start, 4).tolist() == [[1, 1, 1, 1]] * 2


class AnswerNetwork(nn.Module):
    """Says 1 and ends with 3; or, less likely, 2 for ever. What would come behind an end, nobody was taught."""

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
    assert language_model.write(start, 5, decoding=DecodingConfig(beam=2)).tolist() == [[2] * 5]
    assert language_model.write(start, 5, decoding=DecodingConfig(beam=2), eos_id=3).tolist() == [[1, 3, 3, 3, 3]]
    assert language_model.write(start, 5, decoding=GREEDY, eos_id=3).tolist() == [[1, 3, 3, 3, 3]]


def test_beam_search_stops_when_all_beams_are_finished():
    network = AnswerNetwork()
    network.transition_table = torch.tensor(
        [[0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.25, 0.25]]
    )
    generated = GenerativeLanguageModel(network).write(
        torch.zeros(1, 1, dtype=torch.long), 8, decoding=DecodingConfig(beam=2), eos_id=3
    )
    assert generated.tolist() == [[1] + [3] * 7] and network.num_calls == 2


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("longer", [True, False])
def test_beam_search_applies_the_length_penalty(ends, longer):
    """Against an end at once: as good where log p is (10/6)^0.6 / (6/6)^0.6 = 1.3587 times as low, whether the
    fifth is an end or not."""
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
        beam=2,
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
        compute_log_p(language_model.write(prompt, 6, decoding=DecodingConfig(beam=8))),
    )
    assert (best >= greedy - 1e-4).all() and (best > greedy + 1e-3).any()


def test_beam_search_with_one_beam_is_greedy(language_model):
    prompt = torch.randint(23, (2, 5))
    cache = language_model.network.init_cache(2, 30)
    assert torch.equal(
        beam_search(language_model.network.decode_step, cache, prompt, 20, beam=1),
        language_model.write(prompt, 20, decoding=GREEDY),
    )


def test_beam_search_treats_texts_independently(language_model):
    prompt = torch.randint(23, (3, 5))
    batched = language_model.write(prompt, 12, decoding=DecodingConfig(beam=4))
    separate = torch.cat([language_model.write(row[None], 12, decoding=DecodingConfig(beam=4)) for row in prompt])
    assert torch.equal(batched, separate)


@torch.no_grad()
def test_encoder_decoder_greedy_translation_matches_teacher_forcing():
    model = make_sharp(Transformer(23, 23, embed_dim=16, num_layers=2, num_heads=4, ffn_dim=24, context_length=30))
    source = torch.randint(1, 23, (3, 7))
    source[1, 4:] = 0
    generated = Seq2SeqObjective(model, mean_length=1.0, max_length=12).translate({"x": source})
    decoder_input = torch.cat([torch.full((3, 1), 2), generated[:, :-1]], dim=1)
    expected = model(source, decoder_input).argmax(-1)
    is_finished = (generated == 3).cumsum(1) - (generated == 3).long() > 0
    assert torch.equal(generated, expected.masked_fill(is_finished, 0))


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
    """log p of a translation up to its <eos>, by the penalty for its length: what beams compare by."""
    n = y.index(EOS_ID) + 1 if EOS_ID in y else len(y)
    decoder_input = torch.tensor([[BOS_ID, *y[: n - 1]]])
    logp = objective.network(x, decoder_input).log_softmax(-1)[0, torch.arange(n), y[:n]].sum()
    return float(logp) / ((5 + n) / 6) ** 0.6


@torch.no_grad()
def test_beam_search_with_as_many_beams_as_tokens_is_exhaustive(translator):
    """Of two tokens all 6² + … texts are in view: the best is that of trying each."""
    translator.max_length = 2
    for x in torch.randint(1, 9, (4, 1, 5)):
        candidates = [[EOS_ID, 0], *([a, b] for a in range(6) for b in range(6) if a != EOS_ID)]
        expected = max(candidates, key=lambda y: length_penalized_log_p(translator, x, y))
        assert translator.translate({"x": x}, beam=6)[0].tolist() == expected


@torch.no_grad()
def test_beam_search_translates_sentences_independently_and_no_worse_than_greedy(translator):
    x = torch.randint(1, 9, (6, 5))
    x[1, 3:] = 0
    greedy, batched = translator.translate({"x": x}), translator.translate({"x": x}, beam=4)
    assert batched.shape == (6, 5) and not torch.equal(batched[:, : greedy.shape[1]], greedy)
    for row, y, greedy_row in zip(x, batched, greedy, strict=True):
        assert torch.equal(translator.translate({"x": row[None]}, beam=4)[0], y)
        assert not y[(y == EOS_ID).cumsum(0) > (y == EOS_ID).long()].any()  # nothing behind <eos>
        assert (
            length_penalized_log_p(translator, row[None], y.tolist())
            >= length_penalized_log_p(translator, row[None], greedy_row.tolist()) - 1e-4
        )
    with pytest.raises(UsageError, match="beams must be from 1 to 6, the tokens that this model knows, got 7"):
        translator.translate({"x": x}, beam=7)


def test_generation_reports_progress_of_every_token():
    language_model, progress_calls = (
        CausalLanguageModel(GPT(23, context_length=12, embed_dim=16, num_layers=1, num_heads=4)),
        [],
    )
    language_model.write(
        torch.zeros(1, 3, dtype=torch.long), 40, progress=lambda done, total: progress_calls.append((done, total))
    )
    assert {total for _, total in progress_calls} == {40} and [done for done, _ in progress_calls] == sorted(
        {done for done, _ in progress_calls}
    )
    # all but where a memory begins anew
    assert len(progress_calls) > 30 and progress_calls[-1][0] >= 39
    progress_calls.clear()
    language_model.write(
        torch.zeros(1, 3, dtype=torch.long),
        9,
        decoding=DecodingConfig(beam=2),
        progress=lambda done, total: progress_calls.append(done),
    )
    assert progress_calls == list(range(1, 9))


def test_visible_length_doubles():
    assert [visible_length(n) for n in (1, 128, 129, 256, 257, 1024)] == [128, 128, 256, 256, 512, 1024]


@pytest.mark.parametrize(("decoding", "message"), [
    (DecodingConfig(temperature=-1.0), "temperature must be a number of at least 0 .* got -1"),
    (DecodingConfig(temperature=float("nan")), "temperature must be a number of at least 0"),
    (DecodingConfig(top_k=24), "top-k must be from 1 to 23, .* got 24"),
    (DecodingConfig(top_k=0), "top-k must be from 1 to 23"),
    (DecodingConfig(top_p=0.0), "top-p is a probability above 0"),
    (DecodingConfig(top_p=1.5), "top-p is a probability above 0 and up to 1, got 1.5"),
    (DecodingConfig(beam=0), "beams must be from 1"),
    (DecodingConfig(beam=3, top_k=2), "leave out temperature, top-k and top-p"),
])
def test_invalid_decoding_configs_are_refused(decoding, message):
    language_model = CausalLanguageModel(GPT(23, context_length=12, embed_dim=16, num_layers=1, num_heads=4))
    with pytest.raises(UsageError, match=message):
        language_model.write(torch.zeros(1, 3, dtype=torch.long), 2, decoding=decoding)


def test_a_prompt_longer_than_the_context_is_refused():
    language_model = CausalLanguageModel(GPT(23, context_length=12, embed_dim=16, num_layers=1, num_heads=4))
    with pytest.raises(UsageError, match="the prompt has 13 tokens, but this model reads 12 at most; shorten it"):
        language_model.write(torch.zeros(1, 13, dtype=torch.long), 2)
    with pytest.raises(UsageError, match="10 tokens read and 5 to write are more than the 12 it can hold"):
        language_model.write(torch.zeros(1, 10, dtype=torch.long), 5, decoding=DecodingConfig(beam=2))


@torch.no_grad()
@pytest.mark.parametrize(
    ("cell", "prompt_length"), [("rnn", 300), ("lstm", 300), ("gru", 300), ("mamba", 40), ("slstm", 40), ("mlstm", 40)]
)
def test_recurrent_generation_matches_reading_everything_again(cell, prompt_length):
    torch.manual_seed(0)
    network = RecurrentLanguageModel(23, cell=cell, embed_dim=16, hidden_size=24, num_layers=2).eval()
    # the recurrent weights stay: large ones are chaos, where rounding decides
    torch.nn.init.normal_(network.head.weight)
    prompt = torch.randint(23, (3, prompt_length))                     # longer than any context: a state has none
    generated = GenerativeLanguageModel(network).write(prompt, 40, decoding=GREEDY)
    assert (
        torch.equal(generated, greedy_decode_without_cache(network, prompt, 40))
        and len(set(generated.flatten().tolist())) > 2
    )
    assert torch.equal(
        GenerativeLanguageModel(network).write(prompt, 1, decoding=DecodingConfig(beam=3)), generated[:, :1]
    )


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
        beam_search(network.decode_step, network.init_cache(4, 9), prompt, 3, beam=4)[0], all_texts[log_p.argmax()]
    )
