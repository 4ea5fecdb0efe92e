"""LoRA beside its formula, and weights in eight bits beside the bound of their error."""

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.attention import CrossAttention, SelfAttention
from didact.layers.int8 import Int8Linear, quantize, quantized
from didact.layers.lora import LoRA, LoRAWeight, adapt, merge, plain
from didact.layers.moe import MixtureOfExperts
from didact.models.gpt import GPT, Affine
from didact.models.text_encoder import TextEncoder

GPT_ = {"context": 12, "dim": 16, "layers": 2, "heads": 4}


@pytest.mark.parametrize("layer", [nn.Linear(5, 7), Affine(5, 7, std=0.5)])
def test_lora_is_the_formula_and_begins_as_the_layer(layer):
    torch.manual_seed(0)
    x = torch.randn(3, 5)
    before = layer(x)
    lora = LoRA(layer, rank=2, alpha=6.0)
    assert torch.equal(lora(x), before)
    nn.init.normal_(lora.b)
    w0 = layer.weight.T if isinstance(layer, Affine) else layer.weight
    expected = x @ (w0 + 6.0 / 2 * lora.b @ lora.a).T + layer.bias
    torch.testing.assert_close(lora(x), expected)
    assert [p.requires_grad for p in (lora.a, lora.b, layer.weight, layer.bias)] == [True, True, False, False]
    torch.testing.assert_close(lora.merged()(x), expected)


@pytest.mark.parametrize("make", [
    lambda: LoRA(nn.Linear(100, 40), rank=30), lambda: LoRA(Affine(100, 40, std=0.5), rank=30),
    lambda: LoRAWeight(torch.zeros(40, 100), rank=30), lambda: LoRAWeight(torch.zeros(3, 100, 40), rank=30),     # experts: inputs first
])
def test_a_thin_matrix_begins_as_a_linear_layers_weight(make):
    """Evenly within ±1/√inputs, here ±0.1, whose deviation is 0.1/√3; the other one at 0."""
    torch.manual_seed(0)
    thin = make()
    assert 0.099 < thin.a.abs().max() <= 0.1 and thin.a.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.03) and not thin.b.any()


def test_an_adapted_network_learns_with_few_numbers_and_merges_back():
    torch.manual_seed(0)
    network = GPT(23, **GPT_)
    x, names = torch.randint(23, (4, 9)), list(network.state_dict())
    before, whole = network(x).detach(), sum(p.numel() for p in network.parameters())
    learned = adapt(network, rank=2, within=("attn",))
    assert learned == 2 * 2 * ((16 + 48) + (16 + 16)) and learned < whole / 10
    torch.testing.assert_close(network(x), before)
    kept = {n: p.clone() for n, p in network.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(network(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(torch.equal(p, dict(network.named_parameters())[n]) for n, p in kept.items())
    adapted = network(x).detach()
    assert merge(network) == 4 and list(network.state_dict()) == names
    torch.testing.assert_close(network(x), adapted)


def test_a_rank_or_name_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="the rank must be from 1 to 5, the smaller side of a 7 x 5 matrix, got 6"):
        LoRA(nn.Linear(5, 7), rank=6)
    with pytest.raises(UsageError, match="no affine layer has 'atn' in its name"):
        adapt(GPT(23, **GPT_), within=("atn",))


def test_no_weight_is_off_by_more_than_half_a_step():
    torch.manual_seed(0)
    w = torch.randn(9, 40) * torch.logspace(-3, 3, 9)[:, None]
    w[4] = 0
    q, s = quantized(w)
    assert q.dtype == torch.int8 and ((w - s * q).abs() <= s / 2 * 1.0001).all()
    assert (q.abs().amax(1)[[0, 8]] == 127).all() and not q[4].any()
    by_torch = torch.fake_quantize_per_channel_affine(w, s[:, 0], torch.zeros(9, dtype=torch.int32), 0, -127, 127)
    torch.testing.assert_close(s * q, by_torch)


@torch.no_grad()
def test_eight_bits_take_a_quarter_and_say_nearly_the_same():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64, bias=False))
    x = torch.randn(32, 64)
    y = network(x)
    saved = quantize(network)
    assert saved.layers == 2 and all(isinstance(network[i], Int8Linear) for i in (0, 2))
    assert saved.after < 0.3 * saved.before and 0.001 < saved.error < 0.01
    assert (network(x) - y).norm() / y.norm() < 0.02
    assert "2 layers in int8" in str(saved)


@torch.no_grad()
def test_gpt_in_eight_bits_still_prefers_the_same_tokens():
    torch.manual_seed(0)
    network = GPT(50, **GPT_).eval()
    x = torch.randint(50, (8, 12))
    y = network(x)
    assert quantize(network).layers == 8 + 2          # and two tables, of tokens and of places
    assert (network(x).argmax(-1) == y.argmax(-1)).float().mean() > 0.9


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_lora_reaches_the_packed_projections(kind):
    torch.manual_seed(0)
    network = nn.Sequential(kind(12, 3))
    inputs = (torch.randn(2, 5, 12), torch.randn(2, 7, 12))[: 1 + (kind is CrossAttention)]
    names, before = list(network.state_dict()), network[0](*inputs).detach()
    w0, w_out = network[0].in_proj_weight.detach().clone(), network[0].out_proj.weight
    assert adapt(network, rank=2, alpha=6.0) == 2 * (36 + 12) + 2 * (12 + 12)
    torch.testing.assert_close(network[0](*inputs), before)
    thin = network[0].parametrizations.in_proj_weight[0]
    nn.init.normal_(thin.b)
    network[0](*inputs).sum().backward()
    assert thin.a.grad.any() and thin.b.grad.any() and w_out.grad is None
    by_torch = nn.MultiheadAttention(12, 3, batch_first=True)
    by_torch.in_proj_weight.data = w0 + 3.0 * thin.b.detach() @ thin.a.detach()
    by_torch.out_proj.weight.data = w_out.data
    expected = by_torch(inputs[0], inputs[-1], inputs[-1], need_weights=False)[0]
    torch.testing.assert_close(network[0](*inputs), expected)
    assert sorted(map(plain, network.state_dict())) == sorted([*names, *(n for n in network.state_dict() if n.endswith((".a", ".b")))])
    assert merge(network) == 2 and sorted(network.state_dict()) == sorted(names)
    torch.testing.assert_close(network[0](*inputs), expected)
    assert network[0].in_proj_weight.requires_grad


def test_lora_reaches_each_expert_and_leaves_the_router():
    torch.manual_seed(0)
    network, x = nn.Sequential(MixtureOfExperts(6, 10, experts=3)), torch.randn(20, 6)
    names, before = list(network.state_dict()), network(x).detach()
    first = {name: p.detach().clone() for name, p in network.named_parameters()}
    assert adapt(network, rank=2, alpha=6.0) == 3 * 3 * 2 * (6 + 10)
    torch.testing.assert_close(network(x), before)
    thin = {own: network[0].parametrizations[own][0] for own in ("w1", "w2", "w3")}
    for one in thin.values():
        nn.init.normal_(one.b)
    network(x).sum().backward()
    assert all(one.a.grad.flatten(1).any(1).all() and one.b.grad.flatten(1).any(1).all() for one in thin.values())
    assert network[0].router.weight.grad is None
    for own, one in thin.items():
        for e in range(3):
            torch.testing.assert_close(getattr(network[0], own)[e], first[f"0.{own}"][e] + 3.0 * (one.b[e] @ one.a[e]).T)
    assert {plain(n) for n in network.state_dict() if not n.endswith((".a", ".b"))} == set(names)
    adapted = network(x).detach()
    assert merge(network) == 3 and sorted(network.state_dict()) == sorted(names)
    torch.testing.assert_close(network(x), adapted)
    assert network[0].w1.requires_grad


@torch.no_grad()
def test_eight_bits_reach_every_expert_with_scales_of_its_own():
    torch.manual_seed(0)
    network, x = nn.Sequential(MixtureOfExperts(24, 32, experts=3)).eval(), torch.randn(50, 24)
    for e, size in enumerate((1e-2, 1.0, 1e2)):
        network[0].w3[e] *= size
    w, y = network[0].w3.clone(), network(x)
    saved = quantize(network)
    assert saved.layers == 3 and saved.after < 0.4 * saved.before and 0.001 < saved.error < 0.02
    for e in range(3):
        q, s = quantized(w[e].T)
        torch.testing.assert_close(network[0].w3[e], (s * q).T)
    assert ((network(x) - y).norm(dim=1) / y.norm(dim=1)).median() < 0.02


@torch.no_grad()
def test_eight_bits_reach_embeddings_and_packed_projections():
    torch.manual_seed(0)
    network = TextEncoder(500, 3, dim=64, layers=2, heads=4, hidden=128, context=16).eval()
    x = torch.randint(1, 500, (4, 16))
    y, w, table = network(x), network.blocks[0].attention.sublayer.in_proj_weight.clone(), network.embedding.weight.clone()
    saved = quantize(network)
    assert saved.layers == 1 + 2 * 4 + 1 and saved.after < 0.3 * saved.before and 0.001 < saved.error < 0.02
    q, s = quantized(w)
    assert torch.equal(network.blocks[0].attention.sublayer.in_proj_weight, s * q)
    torch.testing.assert_close(network.embedding(x), table[x], atol=float(table.abs().max()) / 250, rtol=0)
    assert (network(x) - y).norm() / y.norm() < 0.05
