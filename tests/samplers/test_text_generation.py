"""Text generation with a KV cache, next to the same without one."""

import pytest
import torch

from didact.errors import UsageError
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.gpt import GPT
from didact.models.text.rnn import RecurrentLanguageModel
from didact.objectives.text.causal_lm import CausalLanguageModel, GenerativeLanguageModel
from didact.objectives.text.seq2seq import Seq2SeqObjective
from didact.samplers.beam_search import beam_search
from didact.samplers.text_generation import TextGenerator, visible_length
from didact.samplers.top_k_top_p import DecodingConfig
from helpers.decoding_models import GREEDY, LANGUAGE_MODELS, StatelessCache, make_sharp, step_chain
from helpers.greedy_decoding import greedy_decode_without_cache


@pytest.fixture(params=LANGUAGE_MODELS)
def language_model(request):
    return CausalLanguageModel(make_sharp(LANGUAGE_MODELS[request.param]()))


@torch.no_grad()
def test_greedy_text_is_the_same_with_a_cache(language_model):
    prompt = torch.randint(23, (3, 5))
    # past 128: the visible length doubles on the way
    generated = language_model.write(prompt, 160, decoding=GREEDY)
    assert torch.equal(generated, greedy_decode_without_cache(language_model.network, prompt, 160))
    assert len({tuple(row) for row in generated.tolist()}) == 3 and len(set(generated.flatten().tolist())) > 5


def test_compiled_decode_step_gives_the_same_text(language_model, monkeypatch):
    prompt = torch.randint(23, (2, 5))
    expected = language_model.write(prompt, 40, decoding=GREEDY)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)   # the branch for the compiler, run eagerly
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


def test_finished_text_stays_finished():
    start = torch.zeros(2, 1, dtype=torch.long)
    best = beam_search(step_chain, StatelessCache(), start, 5, num_beams=2, eos_id=3)
    assert best.tolist() == [[2, 3, 3, 3, 3]] * 2
    generator = TextGenerator(step_chain, StatelessCache(), 2, decoding=GREEDY, eos_id=1, device=start.device)
    assert generator.generate(start, 4).tolist() == [[1, 1, 1, 1]] * 2


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
    # all but where the cache starts anew
    assert len(progress_calls) > 30 and progress_calls[-1][0] >= 39
    progress_calls.clear()
    language_model.write(
        torch.zeros(1, 3, dtype=torch.long),
        9,
        decoding=DecodingConfig(num_beams=2),
        progress=lambda done, total: progress_calls.append(done),
    )
    assert progress_calls == list(range(1, 9))


def test_visible_length_doubles():
    assert [visible_length(n) for n in (1, 128, 129, 256, 257, 1024)] == [128, 128, 256, 256, 512, 1024]


def test_a_prompt_longer_than_the_context_is_refused():
    language_model = CausalLanguageModel(GPT(23, context_length=12, embed_dim=16, num_layers=1, num_heads=4))
    with pytest.raises(UsageError, match="the prompt has 13 tokens, but this model reads 12 at most; shorten it"):
        language_model.write(torch.zeros(1, 13, dtype=torch.long), 2)
    with pytest.raises(UsageError, match="10 tokens of the prompt and 5 new ones are more than the 12 it can hold"):
        language_model.write(torch.zeros(1, 10, dtype=torch.long), 5, decoding=DecodingConfig(num_beams=2))


@torch.no_grad()
@pytest.mark.parametrize(
    ("cell", "prompt_length"), [("rnn", 300), ("lstm", 300), ("gru", 300), ("mamba", 40), ("slstm", 40), ("mlstm", 40)]
)
def test_recurrent_generation_matches_reading_everything_again(cell, prompt_length):
    torch.manual_seed(0)
    network = RecurrentLanguageModel(23, cell=cell, embed_dim=16, hidden_size=24, num_layers=2).eval()
    # the recurrent weights stay small: large ones are chaotic, and rounding would decide
    torch.nn.init.normal_(network.head.weight)
    prompt = torch.randint(23, (3, prompt_length))                     # longer than any context
    generated = GenerativeLanguageModel(network).write(prompt, 40, decoding=GREEDY)
    assert (
        torch.equal(generated, greedy_decode_without_cache(network, prompt, 40))
        and len(set(generated.flatten().tolist())) > 2
    )
    assert torch.equal(
        GenerativeLanguageModel(network).write(prompt, 1, decoding=DecodingConfig(num_beams=3)), generated[:, :1]
    )
