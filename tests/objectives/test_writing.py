"""Writing with a memory, by chance within bounds and along beams, beside the same without any of it."""

import pytest
import torch
from torch import nn

from didact.data.tokens import BEGIN, END
from didact.errors import UsageError
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.models.recurrent import RecurrentLanguageModel
from didact.models.seq2seq import Seq2Seq
from didact.models.transformer import Transformer
from didact.objectives.autoregressive import Autoregressive, Writer
from didact.objectives.translation import Translate
from didact.objectives.writing import Manner, Pen, beam_search, bounded, choose, reach
from greedy import without_memory

GREEDY = Manner(temperature=0)


def sharp(model, std=0.5):
    """Weights so large that the likeliest token stands out and depends on what was read."""
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=3.0 if "wpe" in name else std)
    return model.eval()


NETWORKS = {
    "gpt": lambda: GPT(23, context=200, dim=16, layers=2, heads=4),
    "llama": lambda: Llama(23, context=200, dim=16, layers=2, heads=4, groups=2, hidden=24),
}


@pytest.fixture(params=NETWORKS)
def writer(request):
    return Autoregressive(sharp(NETWORKS[request.param]()))


@torch.no_grad()
def test_greedy_with_memory_is_greedy_without_token_for_token(writer):
    prompt = torch.randint(23, (3, 5))
    written = writer.write(prompt, 160, manner=GREEDY)         # past 128: the reach of a step doubles on the way
    assert torch.equal(written, without_memory(writer.network, prompt, 160))
    assert len({tuple(row) for row in written.tolist()}) == 3 and len(set(written.flatten().tolist())) > 5


def test_a_compiled_step_takes_the_plain_products(writer, monkeypatch):
    prompt = torch.randint(23, (2, 5))
    expected = writer.write(prompt, 40, manner=GREEDY)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)   # the way that a compiler sees, run as it stands
    assert torch.equal(writer.write(prompt, 40, manner=GREEDY), expected)


def test_text_longer_than_the_context_goes_on_from_its_second_half():
    writer = Autoregressive(sharp(GPT(23, context=12, dim=16, layers=2, heads=4)))
    prompt = torch.randint(23, (2, 5))
    written = writer.write(prompt, 30, manner=GREEDY)
    text = torch.cat([prompt, written], dim=1)
    assert torch.equal(written[:, :8], without_memory(writer.network, prompt, 8))    # 5 + 8 tokens: the last one is never read
    again = without_memory(writer.network, text[:, 13 - 6 : 13], 7)
    assert torch.equal(text[:, 13 : 13 + 7], again)


def test_the_same_seed_writes_the_same_and_another_does_not(writer):
    prompt = torch.randint(23, (2, 5))
    one, two, other = (writer.write(prompt, 20, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(one, two) and not torch.equal(one, other)


@pytest.mark.parametrize("temperature", [1e-46, 1e-40, 1e-36, 1e-20])
@pytest.mark.parametrize("bounds", [{}, {"top_k": 2}, {"top_p": 0.9}])
def test_next_to_no_temperature_is_none(temperature, bounds):
    """1e-40: logits / temperature would be infinite, and ∞ − ∞ no number."""
    logits = torch.tensor([[2.0, 90.0, 1.0, -1.0], [-50.0, -90.0, -40.0, -41.0]])
    assert choose(logits, Manner(temperature, **bounds), torch.Generator().manual_seed(0))[:, 0].tolist() == [1, 2]


def test_draws_have_the_frequencies_of_softmax():
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    drawn = choose(logits.expand(40_000, 4), Manner(temperature=0.5), torch.Generator().manual_seed(0))[:, 0]
    p = (logits / 0.5).softmax(0)
    deviation = (p * (1 - p) / 40_000).sqrt()
    assert ((drawn.bincount(minlength=4) / 40_000 - p).abs() < 4 * deviation).all()


def test_bounds_keep_what_they_should():
    p = torch.tensor([[0.1, 0.4, 0.05, 0.3, 0.15]])
    kept = {name: (bounded(p.log(), manner) > -torch.inf)[0].tolist() for name, manner in {
        "k=2": Manner(top_k=2), "p=0.7": Manner(top_p=0.69), "p=0.71": Manner(top_p=0.71), "p tiny": Manner(top_p=1e-6),
        "both": Manner(top_k=3, top_p=0.9), "all": Manner(top_k=5, top_p=1.0),
    }.items()}
    assert kept == {
        "k=2": [False, True, False, True, False],
        "p=0.7": [False, True, False, True, False],
        "p=0.71": [False, True, False, True, True],
        "p tiny": [False, True, False, False, False],
        "both": [False, True, False, True, True],              # of the three 0.4, 0.3, 0.15 of 0.85, the first two have 0.82
        "all": [True] * 5,
    }


class Chain:
    """A memory that remembers nothing: the next token depends on the last one alone."""

    room = 9

    def within(self, reach):
        return self

    def clear(self):
        pass

    def pick(self, rows):
        pass


# from 0: mostly 1, from which all are equally likely; less often 2, which is nearly always followed by 3
NEXT = torch.tensor([[0.0, 0.6, 0.4, 0.0], [0.25, 0.25, 0.25, 0.25], [0.02, 0.02, 0.01, 0.95], [0.1, 0.1, 0.1, 0.7]])


def chain(tokens, memory):
    return NEXT.log()[tokens[:, -1]]


def test_two_beams_find_what_greed_misses():
    start = torch.zeros(1, 1, dtype=torch.long)
    greedy = beam_search(chain, Chain(), start, 2, beam=1)
    best = beam_search(chain, Chain(), start, 2, beam=2)
    assert greedy[0, 0] == 1 and best.tolist() == [[2, 3]]      # 0.4 · 0.95 = 0.38 against 0.6 · 0.25 = 0.15


def test_an_ended_text_stays_ended():
    start = torch.zeros(2, 1, dtype=torch.long)
    assert beam_search(chain, Chain(), start, 5, beam=2, end=3).tolist() == [[2, 3, 3, 3, 3]] * 2
    pen = Pen(chain, Chain(), 2, manner=GREEDY, end=1, device=start.device)
    assert pen.write(start, 4).tolist() == [[1, 1, 1, 1]] * 2


class Answers(nn.Module):
    """Says 1 and ends with 3; or, less likely, 2 for ever. What would come behind an end, nobody was taught."""

    vocabulary, table = 4, torch.tensor([[0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    calls = 0

    def remember(self, rows, room):
        return Chain()

    def go_on(self, tokens, memory):
        self.calls += 1
        return self.table.log()[tokens[:, -1]]


def test_beams_know_where_an_answer_ends():
    start, writer = torch.zeros(1, 1, dtype=torch.long), Writer(Answers())
    assert writer.write(start, 5, manner=Manner(beam=2)).tolist() == [[2] * 5]            # 0.4 against 0.6 · 1/64
    assert writer.write(start, 5, manner=Manner(beam=2), end=3).tolist() == [[1, 3, 3, 3, 3]]
    assert writer.write(start, 5, manner=GREEDY, end=3).tolist() == [[1, 3, 3, 3, 3]]


def test_nothing_is_asked_once_all_beams_have_ended():
    network = Answers()
    network.table = torch.tensor([[0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.25, 0.25]])
    written = Writer(network).write(torch.zeros(1, 1, dtype=torch.long), 8, manner=Manner(beam=2), end=3)
    assert written.tolist() == [[1] + [3] * 7] and network.calls == 2


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("longer", [True, False])
def test_an_answer_of_five_tokens_may_be_as_much_less_likely_as_the_penalty_says(ends, longer):
    """Against an end at once: as good where log p is (10/6)^0.6 / (6/6)^0.6 = 1.3587 times as low, whether the fifth is an end or not."""
    p = 0.4 ** (1.35 if longer else 1.37)
    table = torch.zeros(6, 6)
    table[0] = torch.tensor([0.0, p, *[(0.6 - p) / 3] * 3, 0.4])                             # 5 is the end
    table[[1, 2, 3, 4, 5], [2, 3, 4, 5 if ends else 4, 5]] = 1.0
    n = 7 if ends else 5
    best = beam_search(lambda tokens, _: table.log()[tokens[:, -1]], Chain(), torch.zeros(1, 1, dtype=torch.long), n, beam=2, end=5)
    assert best.tolist() == [([1, 2, 3, 4, 5, 5, 5] if ends else [1, 2, 3, 4, 4]) if longer else [5] * n]


@torch.no_grad()
def test_beams_are_never_less_likely_than_greed(writer):
    prompt = torch.randint(23, (4, 5))

    def logp(written):
        p = writer.network(torch.cat([prompt, written], dim=1)).log_softmax(-1)[:, 4:-1]
        return p.gather(-1, written[..., None]).sum((1, 2))

    greedy, best = logp(writer.write(prompt, 6, manner=GREEDY)), logp(writer.write(prompt, 6, manner=Manner(beam=8)))
    assert (best >= greedy - 1e-4).all() and (best > greedy + 1e-3).any()


def test_one_beam_is_greedy(writer):
    prompt = torch.randint(23, (2, 5))
    memory = writer.network.remember(2, 30)
    assert torch.equal(beam_search(writer.network.go_on, memory, prompt, 20, beam=1), writer.write(prompt, 20, manner=GREEDY))


def test_beams_of_several_texts_do_not_mix(writer):
    prompt = torch.randint(23, (3, 5))
    together = writer.write(prompt, 12, manner=Manner(beam=4))
    alone = torch.cat([writer.write(row[None], 12, manner=Manner(beam=4)) for row in prompt])
    assert torch.equal(together, alone)


@torch.no_grad()
def test_the_transformer_writes_what_it_would_say_when_told():
    model = sharp(Transformer(23, 23, dim=16, layers=2, heads=4, hidden=24, context=30))
    source = torch.randint(1, 23, (3, 7))
    source[1, 4:] = 0
    written = Translate(model, length=1.0, longest=12).translate({"x": source})
    told = torch.cat([torch.full((3, 1), 2), written[:, :-1]], dim=1)
    expected = model(source, told).argmax(-1)
    ended = (written == 3).cumsum(1) - (written == 3).long() > 0
    assert torch.equal(written, expected.masked_fill(ended, 0))


TRANSLATORS = {
    "transformer": lambda: Transformer(9, 6, dim=16, layers=1, heads=2, hidden=24, context=30),
    "gru bahdanau": lambda: Seq2Seq(9, 6, cell="gru", attention="bahdanau", width=8, hidden=7, layers=2),
    "lstm general": lambda: Seq2Seq(9, 6, cell="lstm", attention="general", width=8, hidden=7, layers=2),
    "lstm none": lambda: Seq2Seq(9, 6, cell="lstm", attention="none", width=8, hidden=7, layers=2),
}


@pytest.fixture(params=TRANSLATORS)
def translator(request):
    torch.manual_seed(0)
    return Translate(sharp(TRANSLATORS[request.param](), std=1.0), length=1.0, longest=5)


def gained(objective, x, y):
    """log p of a translation up to its <eos>, by the penalty for its length: what beams compare by."""
    n = y.index(END) + 1 if END in y else len(y)
    told = torch.tensor([[BEGIN, *y[: n - 1]]])
    logp = objective.network(x, told).log_softmax(-1)[0, torch.arange(n), y[:n]].sum()
    return float(logp) / ((5 + n) / 6) ** 0.6


@torch.no_grad()
def test_as_many_beams_as_tokens_find_the_likeliest_pair(translator):
    """Of two tokens all 6² + … texts are in view: the best is that of trying each."""
    translator.longest = 2
    for x in torch.randint(1, 9, (4, 1, 5)):
        every = [[END, 0], *([a, b] for a in range(6) for b in range(6) if a != END)]
        expected = max(every, key=lambda y: gained(translator, x, y))
        assert translator.translate({"x": x}, beam=6)[0].tolist() == expected


@torch.no_grad()
def test_beams_of_several_sentences_do_not_mix_and_lose_nothing(translator):
    x = torch.randint(1, 9, (6, 5))
    x[1, 3:] = 0
    greedy, together = translator.translate({"x": x}), translator.translate({"x": x}, beam=4)
    assert together.shape == (6, 5) and not torch.equal(together[:, : greedy.shape[1]], greedy)
    for row, y, own in zip(x, together, greedy, strict=True):
        assert torch.equal(translator.translate({"x": row[None]}, beam=4)[0], y)
        assert not y[(y == END).cumsum(0) > (y == END).long()].any()                        # nothing behind <eos>
        assert gained(translator, row[None], y.tolist()) >= gained(translator, row[None], own.tolist()) - 1e-4
    with pytest.raises(UsageError, match="beams must be from 1 to 6, the tokens that this model knows, got 7"):
        translator.translate({"x": x}, beam=7)


def test_who_waits_is_told_of_every_token():
    writer, told = Autoregressive(GPT(23, context=12, dim=16, layers=1, heads=4)), []
    writer.write(torch.zeros(1, 3, dtype=torch.long), 40, pace=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {40} and [done for done, _ in told] == sorted({done for done, _ in told})
    assert len(told) > 30 and told[-1][0] >= 39                                            # all but where a memory begins anew
    told.clear()
    writer.write(torch.zeros(1, 3, dtype=torch.long), 9, manner=Manner(beam=2), pace=lambda done, total: told.append(done))
    assert told == list(range(1, 9))


def test_reach_doubles():
    assert [reach(n) for n in (1, 128, 129, 256, 257, 1024)] == [128, 128, 256, 256, 512, 1024]


@pytest.mark.parametrize(("manner", "message"), [
    (Manner(temperature=-1.0), "temperature must be a number of at least 0 .* got -1"),
    (Manner(temperature=float("nan")), "temperature must be a number of at least 0"),
    (Manner(top_k=24), "top-k must be from 1 to 23, .* got 24"),
    (Manner(top_k=0), "top-k must be from 1 to 23"),
    (Manner(top_p=0.0), "top-p is a probability above 0"),
    (Manner(top_p=1.5), "top-p is a probability above 0 and up to 1, got 1.5"),
    (Manner(beam=0), "beams must be from 1"),
    (Manner(beam=3, top_k=2), "leave out temperature, top-k and top-p"),
])
def test_a_manner_that_cannot_be_is_refused(manner, message):
    writer = Autoregressive(GPT(23, context=12, dim=16, layers=1, heads=4))
    with pytest.raises(UsageError, match=message):
        writer.write(torch.zeros(1, 3, dtype=torch.long), 2, manner=manner)


def test_a_prompt_longer_than_the_context_is_refused():
    writer = Autoregressive(GPT(23, context=12, dim=16, layers=1, heads=4))
    with pytest.raises(UsageError, match="the prompt has 13 tokens, but this model reads 12 at most; shorten it"):
        writer.write(torch.zeros(1, 13, dtype=torch.long), 2)
    with pytest.raises(UsageError, match="10 tokens read and 5 to write are more than the 12 it can hold"):
        writer.write(torch.zeros(1, 10, dtype=torch.long), 5, manner=Manner(beam=2))


@torch.no_grad()
@pytest.mark.parametrize(("cell", "read"), [("rnn", 300), ("lstm", 300), ("gru", 300), ("mamba", 40), ("slstm", 40), ("mlstm", 40)])
def test_a_carried_state_writes_what_reading_all_anew_would(cell, read):
    torch.manual_seed(0)
    network = RecurrentLanguageModel(23, cell=cell, width=16, hidden=24, layers=2).eval()
    torch.nn.init.normal_(network.head.weight)                # the recurrent weights stay: large ones are chaos, where rounding decides
    prompt = torch.randint(23, (3, read))                     # longer than any context: a state has none
    written = Writer(network).write(prompt, 40, manner=GREEDY)
    assert torch.equal(written, without_memory(network, prompt, 40)) and len(set(written.flatten().tolist())) > 2
    assert torch.equal(Writer(network).write(prompt, 1, manner=Manner(beam=3)), written[:, :1])


@torch.no_grad()
def test_beams_of_a_carried_state_find_what_trying_all_texts_finds():
    network, prompt = sharp(RecurrentLanguageModel(4, cell="lstm", width=6, hidden=7), std=1.0), torch.tensor([[1, 3, 2]])
    every = torch.cartesian_prod(*[torch.arange(4)] * 3)                                            # all 64 texts of three tokens
    logp = network(torch.cat([prompt.expand(64, -1), every], 1)).log_softmax(-1)[:, 2:-1].gather(-1, every[..., None]).sum((1, 2))
    assert torch.equal(beam_search(network.go_on, network.remember(4, 9), prompt, 3, beam=4)[0], every[logp.argmax()])
