"""What the models of this family keep to beyond the contract; their logits are compared in tests/reference."""

import pytest
import torch

from didact.errors import UsageError
from didact.files import write_tensors
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


def test_published_weights_load_with_their_prefix_and_masks(tmp_path):
    torch.manual_seed(0)
    theirs, ours = GPT(23, **SMALL), GPT(23, **SMALL)
    named = {f"transformer.{n}": t for n, t in theirs.state_dict().items()}
    named["transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12)             # the triangle, which old files carry
    write_tensors(tmp_path / "model.safetensors", named)
    report = load_weights(ours, tmp_path / "model.safetensors")
    assert not report.missing and report.unused == ("h.0.attn.bias",)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize("make", [
    lambda: GPT(23, context=4, dim=16, layers=1, heads=4)(torch.zeros(1, 5, dtype=torch.long)),
    lambda: Llama(23, context=4, dim=16, layers=1, heads=4, groups=2, hidden=24)(torch.zeros(1, 5, dtype=torch.long)),
    lambda: BERT(23, context=4, dim=16, layers=1, heads=4, hidden=24)(torch.zeros(1, 5, dtype=torch.long)),
])
def test_more_tokens_than_the_context_are_refused(make):
    with pytest.raises(UsageError, match="reads 4 tokens at most, got 5"):
        make()


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(UsageError, match="the width must be a multiple of heads=4, got 18"):
        GPT(23, context=4, dim=18, layers=1, heads=4)
