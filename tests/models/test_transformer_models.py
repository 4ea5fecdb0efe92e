"""What the models of this family keep to beyond the contract; their logits are compared in tests/reference."""

import pytest
import torch

from didact.errors import UsageError
from didact.files import write_tensors
from didact.layers.positions import LearnedPositions, rotation
from didact.models.bert import BERT, SentenceEncoder
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.models.text_encoder import TextEncoder
from didact.models.transformer import Transformer
from didact.models.weights import load_weights

SMALL = {"context": 12, "dim": 16, "layers": 2, "heads": 4}


@pytest.mark.parametrize("network", [GPT(23, **SMALL), Llama(23, **SMALL, groups=2, hidden=24)])
@torch.no_grad()
def test_no_token_sees_what_comes_later(network):
    x = torch.randint(23, (2, 9))
    y = network.eval()(x)
    changed = x.clone()
    changed[:, 5] = (x[:, 5] + 1) % 23
    torch.testing.assert_close(network(changed)[:, :5], y[:, :5])
    assert not torch.allclose(network(changed)[:, 5:], y[:, 5:])


@torch.no_grad()
def test_attention_maps_are_distributions_over_the_past():
    maps = GPT(23, **SMALL).eval().attention_maps(torch.randint(23, (2, 9)))
    assert maps.shape == (2, 2, 4, 9, 9)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 4, 9))
    assert not maps.triu(1).any()


def test_gpt_begins_with_the_deviations_of_its_paper():
    """0.02 everywhere, and by 1/√(2 · 3 layers) less where something is added to the residual path."""
    torch.manual_seed(0)
    model = GPT(50, context=50, dim=768, layers=3, heads=12)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            assert p.std().item() == pytest.approx(0.02 / 6**0.5 if "c_proj" in name else 0.02, rel=0.03), name


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_the_text_encoder_does_not_see_its_padding(norm):
    model = TextEncoder(30, 3, dim=16, layers=2, heads=4, hidden=24, norm=norm).eval()
    x = torch.randint(1, 30, (2, 6))
    padded = torch.cat([x, torch.zeros(2, 5, dtype=torch.long)], dim=1)
    torch.testing.assert_close(model(padded), model(x))
    assert model(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()        # an empty text
    assert model.attention_maps(padded)[..., 6:].sum() == 0


def test_the_text_encoder_of_the_notes_has_their_parameters():
    model = TextEncoder(10_000, 2, dim=128, layers=4, heads=4, hidden=512)
    assert sum(p.numel() for p in model.parameters()) == 2_073_602            # Gaba 7.8
    with torch.no_grad():                                                     # tokens as large as positions (M38)
        tokens = model.scale * model.embedding(torch.randint(1, 10_000, (64, 64)))
    assert 0.5 < tokens.std() / model.positions.table[:64].std() < 2


@torch.no_grad()
def test_a_sentence_is_the_mean_of_its_words():
    torch.manual_seed(0)
    model = SentenceEncoder(30, **SMALL, hidden=24).eval()
    x = torch.tensor([[4, 5, 6, 0, 0], [7, 8, 9, 10, 11]])
    h = BERT.forward(model, x)
    torch.testing.assert_close(model(x), torch.stack([h[0, :3].mean(0), h[1].mean(0)]))
    torch.testing.assert_close(model.unit(x).norm(dim=1), torch.ones(2))


def test_a_gradient_reaches_all_of_the_transformer():
    model = Transformer(30, 20, dim=16, layers=2, heads=4, hidden=24, dropout=0.0)
    model(torch.randint(1, 30, (3, 7)), torch.randint(1, 20, (3, 5))).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_published_weights_of_another_size_are_refused(tmp_path):
    write_tensors(tmp_path / "model.safetensors", GPT(23, **SMALL | {"dim": 32}).state_dict())
    with pytest.raises(UsageError, match="holds another architecture than this GPT"):
        load_weights(GPT(23, **SMALL), tmp_path / "model.safetensors")


@pytest.mark.parametrize(("other", "told"), [
    ({"vocabulary": 29}, "wte.weight of 29×16, here it is 23×16: make the network for as many tokens"),
    ({"context": 20}, "wpe.weight of 20×16, here it is 12×16: make the network for as many tokens"),
])
def test_published_weights_for_other_tokens_are_refused_and_change_nothing(tmp_path, other, told):
    ours = GPT(23, **SMALL)
    before = {n: t.clone() for n, t in ours.state_dict().items()}
    write_tensors(tmp_path / "model.safetensors", GPT(**{"vocabulary": 23, **SMALL, **other}).state_dict())
    with pytest.raises(UsageError, match=told):
        load_weights(ours, tmp_path / "model.safetensors")
    assert all(torch.equal(t, before[n]) for n, t in ours.state_dict().items())


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_published_weights_load_with_their_prefix_and_masks(tmp_path, prefix):
    torch.manual_seed(0)
    theirs, ours = GPT(23, **SMALL), GPT(23, **SMALL)
    named = {prefix + n: t for n, t in theirs.state_dict().items()}
    for layer in range(2):                                                    # a triangle and a number, which old files carry
        named |= {f"{prefix}h.{layer}.attn.bias": torch.ones(1, 1, 12, 12), f"{prefix}h.{layer}.attn.masked_bias": torch.tensor(-1e4)}
    write_tensors(tmp_path / "model.safetensors", named)
    report = load_weights(ours, tmp_path / "model.safetensors")
    assert not report.missing and not report.unused
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize("make", [
    lambda: GPT(23, context=4, dim=16, layers=1, heads=4)(torch.zeros(1, 5, dtype=torch.long)),
    lambda: Llama(23, context=4, dim=16, layers=1, heads=4, groups=2, hidden=24)(torch.zeros(1, 5, dtype=torch.long)),
    lambda: BERT(23, context=4, dim=16, layers=1, heads=4, hidden=24)(torch.zeros(1, 5, dtype=torch.long)),
    lambda: TextEncoder(23, 2, context=4, dim=16, layers=1, heads=4, hidden=24)(torch.zeros(1, 5, dtype=torch.long)),
    lambda: LearnedPositions(4, 16)(torch.zeros(1, 5, 16)),
])
def test_more_tokens_than_the_context_are_refused(make):
    with pytest.raises(UsageError, match="reads 4 tokens at most, got 5"):
        make()


@pytest.mark.parametrize(("heads", "width"), [(2, 10), (4, 12), (4, 18)])
def test_rotary_heads_are_of_even_width(heads, width):
    told = f"the width must be a multiple of {2 * heads}, an even number for each of {heads} heads, got {width}"
    with pytest.raises(UsageError, match=told):
        Llama(23, context=4, dim=width, layers=1, heads=heads, groups=2, hidden=24)
    with pytest.raises(UsageError, match="a head must be of even width, got 3"):
        rotation(torch.arange(4), 3)


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(UsageError, match="the width must be a multiple of heads=4, got 18"):
        GPT(23, context=4, dim=18, layers=1, heads=4)
