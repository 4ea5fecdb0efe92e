"""LoRA against its formula, and int8 weights against the bound of their error."""

import pytest
import torch
from torch import nn

from didact.adaptation.int8 import Int8Linear, quantize_module, quantize_tensor
from didact.adaptation.lora import LoRA, LoRAWeight, add_lora, merge_lora, original_name
from didact.errors import UsageError
from didact.layers.attention.multihead import CrossAttention, MultiHeadAttention
from didact.layers.moe import MixtureOfExperts
from didact.models.text.gpt import GPT, Conv1D
from didact.models.text.transformer_classifier import TransformerClassifier

GPT_OPTIONS = {"context_length": 12, "embed_dim": 16, "num_layers": 2, "num_heads": 4}


@pytest.mark.parametrize("layer", [nn.Linear(5, 7), Conv1D(5, 7, std=0.5)])
def test_lora_follows_its_formula_and_starts_as_the_layer(layer):
    torch.manual_seed(0)
    x = torch.randn(3, 5)
    output_before = layer(x)
    lora = LoRA(layer, rank=2, alpha=6.0)
    assert torch.equal(lora(x), output_before)
    nn.init.normal_(lora.b)
    w0 = layer.weight.T if isinstance(layer, Conv1D) else layer.weight
    expected = x @ (w0 + 6.0 / 2 * lora.b @ lora.a).T + layer.bias
    torch.testing.assert_close(lora(x), expected)
    assert [p.requires_grad for p in (lora.a, lora.b, layer.weight, layer.bias)] == [True, True, False, False]
    torch.testing.assert_close(lora.merge_weights()(x), expected)


@pytest.mark.parametrize("make", [
    lambda: LoRA(nn.Linear(100, 40), rank=30), lambda: LoRA(Conv1D(100, 40, std=0.5), rank=30),
    # experts: inputs first
    lambda: LoRAWeight(torch.zeros(40, 100), rank=30), lambda: LoRAWeight(torch.zeros(3, 100, 40), rank=30),
])
def test_lora_a_is_initialized_like_a_linear_weight(make):
    """Uniform in ±1/√inputs, here ±0.1, with standard deviation 0.1/√3; the other matrix is 0."""
    torch.manual_seed(0)
    lora = make()
    assert (
        0.099 < lora.a.abs().max() <= 0.1
        and lora.a.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.03)
        and not lora.b.any()
    )


def test_add_lora_trains_few_parameters_and_merge_lora_restores_the_names():
    torch.manual_seed(0)
    network = GPT(23, **GPT_OPTIONS)
    x, names = torch.randint(23, (4, 9)), list(network.state_dict())
    output_before, num_parameters = network(x).detach(), sum(p.numel() for p in network.parameters())
    num_trainable = add_lora(network, rank=2, target_modules=("attn",))
    assert num_trainable == 2 * 2 * ((16 + 48) + (16 + 16)) and num_trainable < num_parameters / 10
    torch.testing.assert_close(network(x), output_before)
    frozen = {n: p.clone() for n, p in network.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(network(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(torch.equal(p, dict(network.named_parameters())[n]) for n, p in frozen.items())
    adapted_output = network(x).detach()
    assert merge_lora(network) == 4 and list(network.state_dict()) == names
    torch.testing.assert_close(network(x), adapted_output)


def test_lora_refuses_an_invalid_rank_or_target():
    with pytest.raises(UsageError, match="the rank must be from 1 to 5, the smaller side of a 7 x 5 matrix, got 6"):
        LoRA(nn.Linear(5, 7), rank=6)
    with pytest.raises(UsageError, match="no affine layer has 'atn' in its name"):
        add_lora(GPT(23, **GPT_OPTIONS), target_modules=("atn",))


def test_quantize_tensor_error_is_at_most_half_a_step():
    torch.manual_seed(0)
    w = torch.randn(9, 40) * torch.logspace(-3, 3, 9)[:, None]
    w[4] = 0
    q, s = quantize_tensor(w)
    assert q.dtype == torch.int8 and ((w - s * q).abs() <= s / 2 * 1.0001).all()
    assert (q.abs().amax(1)[[0, 8]] == 127).all() and not q[4].any()
    expected = torch.fake_quantize_per_channel_affine(w, s[:, 0], torch.zeros(9, dtype=torch.int32), 0, -127, 127)
    torch.testing.assert_close(s * q, expected)


@torch.no_grad()
def test_quantize_module_takes_a_quarter_of_the_bytes_and_keeps_the_output():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64, bias=False))
    x = torch.randn(32, 64)
    y = network(x)
    report = quantize_module(network)
    assert report.num_layers == 2 and all(isinstance(network[i], Int8Linear) for i in (0, 2))
    assert report.bytes_after < 0.3 * report.bytes_before and 0.001 < report.relative_error < 0.01
    assert (network(x) - y).norm() / y.norm() < 0.02
    assert "2 layers in int8" in str(report)


@torch.no_grad()
def test_quantized_gpt_prefers_the_same_tokens():
    torch.manual_seed(0)
    network = GPT(50, **GPT_OPTIONS).eval()
    x = torch.randint(50, (8, 12))
    y = network(x)
    assert quantize_module(network).num_layers == 8 + 2          # and two embeddings, of tokens and of positions
    assert (network(x).argmax(-1) == y.argmax(-1)).float().mean() > 0.9


@pytest.mark.parametrize("kind", [MultiHeadAttention, CrossAttention])
def test_add_lora_adapts_packed_projections(kind):
    torch.manual_seed(0)
    network = nn.Sequential(kind(12, 3))
    inputs = (torch.randn(2, 5, 12), torch.randn(2, 7, 12))[: 1 + (kind is CrossAttention)]
    names, output_before = list(network.state_dict()), network[0](*inputs).detach()
    w0, w_out = network[0].in_proj_weight.detach().clone(), network[0].out_proj.weight
    assert add_lora(network, rank=2, alpha=6.0) == 2 * (36 + 12) + 2 * (12 + 12)
    torch.testing.assert_close(network[0](*inputs), output_before)
    lora = network[0].parametrizations.in_proj_weight[0]
    nn.init.normal_(lora.b)
    network[0](*inputs).sum().backward()
    assert lora.a.grad.any() and lora.b.grad.any() and w_out.grad is None
    reference = nn.MultiheadAttention(12, 3, batch_first=True)
    reference.in_proj_weight.data = w0 + 3.0 * lora.b.detach() @ lora.a.detach()
    reference.out_proj.weight.data = w_out.data
    expected = reference(inputs[0], inputs[-1], inputs[-1], need_weights=False)[0]
    torch.testing.assert_close(network[0](*inputs), expected)
    assert sorted(map(original_name, network.state_dict())) == sorted(
        [*names, *(n for n in network.state_dict() if n.endswith((".a", ".b")))]
    )
    assert merge_lora(network) == 2 and sorted(network.state_dict()) == sorted(names)
    torch.testing.assert_close(network[0](*inputs), expected)
    assert network[0].in_proj_weight.requires_grad


def test_add_lora_adapts_every_expert_but_not_the_router():
    torch.manual_seed(0)
    network, x = nn.Sequential(MixtureOfExperts(6, 10, num_experts=3)), torch.randn(20, 6)
    names, output_before = list(network.state_dict()), network(x).detach()
    weights_before = {name: p.detach().clone() for name, p in network.named_parameters()}
    assert add_lora(network, rank=2, alpha=6.0) == 3 * 3 * 2 * (6 + 10)
    torch.testing.assert_close(network(x), output_before)
    loras = {weight_name: network[0].parametrizations[weight_name][0] for weight_name in ("w1", "w2", "w3")}
    for lora in loras.values():
        nn.init.normal_(lora.b)
    network(x).sum().backward()
    assert all(lora.a.grad.flatten(1).any(1).all() and lora.b.grad.flatten(1).any(1).all() for lora in loras.values())
    assert network[0].router.weight.grad is None
    for weight_name, lora in loras.items():
        for e in range(3):
            torch.testing.assert_close(
                getattr(network[0], weight_name)[e],
                weights_before[f"0.{weight_name}"][e] + 3.0 * (lora.b[e] @ lora.a[e]).T,
            )
    assert {original_name(n) for n in network.state_dict() if not n.endswith((".a", ".b"))} == set(names)
    adapted_output = network(x).detach()
    assert merge_lora(network) == 3 and sorted(network.state_dict()) == sorted(names)
    torch.testing.assert_close(network(x), adapted_output)
    assert network[0].w1.requires_grad


@torch.no_grad()
def test_quantize_module_scales_every_expert_separately():
    torch.manual_seed(0)
    network, x = nn.Sequential(MixtureOfExperts(24, 32, num_experts=3)).eval(), torch.randn(50, 24)
    for e, size in enumerate((1e-2, 1.0, 1e2)):
        network[0].w3[e] *= size
    w, y = network[0].w3.clone(), network(x)
    report = quantize_module(network)
    assert (
        report.num_layers == 3
        and report.bytes_after < 0.4 * report.bytes_before
        and 0.001 < report.relative_error < 0.02
    )
    for e in range(3):
        q, s = quantize_tensor(w[e].T)
        torch.testing.assert_close(network[0].w3[e], (s * q).T)
    assert ((network(x) - y).norm(dim=1) / y.norm(dim=1)).median() < 0.02


@torch.no_grad()
def test_quantize_module_covers_embeddings_and_packed_projections():
    torch.manual_seed(0)
    network = TransformerClassifier(
        500, 3, embed_dim=64, num_layers=2, num_heads=4, ffn_dim=128, context_length=16
    ).eval()
    x = torch.randint(1, 500, (4, 16))
    y, w, table = (
        network(x),
        network.blocks[0].attention.sublayer.in_proj_weight.clone(),
        network.embedding.weight.clone(),
    )
    report = quantize_module(network)
    assert (
        report.num_layers == 1 + 2 * 4 + 1
        and report.bytes_after < 0.3 * report.bytes_before
        and 0.001 < report.relative_error < 0.02
    )
    q, s = quantize_tensor(w)
    assert torch.equal(network.blocks[0].attention.sublayer.in_proj_weight, s * q)
    torch.testing.assert_close(network.embedding(x), table[x], atol=float(table.abs().max()) / 250, rtol=0)
    assert (network(x) - y).norm() / y.norm() < 0.05
