"""LoRA against the library `peft`: outputs, gradients, a training of some steps, and merged matrices."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from didact.adaptation.lora import LoRA, add_lora, merge_lora
from didact.layers.attention.multihead import MultiHeadAttention
from didact.models.text.gpt import GPT

peft = pytest.importorskip("peft", reason="peft is not installed: pip install --no-deps peft accelerate")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def get_lora_matrices(reference, adapter="default"):
    """peft's A and B by the name of the layer."""
    return {
        name: (m.lora_A[adapter].weight, m.lora_B[adapter].weight)
        for name, m in reference.named_modules()
        if hasattr(m, "lora_A")
    }


def copy_lora_matrices(network, reference):
    """The same matrices in both, none of them zero."""
    pairs = get_lora_matrices(reference)
    layers = {name: m for name, m in network.named_modules() if isinstance(m, LoRA)}
    assert len(pairs) == len(layers) > 0
    for (_, (a, b)), layer in zip(pairs.items(), layers.values(), strict=True):
        nn.init.normal_(a, std=0.3)
        nn.init.normal_(b, std=0.3)
        assert a.shape == layer.a.shape and b.shape == layer.b.shape
        layer.a.data.copy_(a)
        layer.b.data.copy_(b)
    return list(zip(layers.values(), pairs.values(), strict=True))


@pytest.mark.parametrize(("rank", "alpha"), [(1, 1), (4, 16), (3, 2)])
def test_lora_mlp_training_matches_peft(rank, alpha):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 5, bias=False))
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=["0", "2"], lora_dropout=0.0)
    reference = peft.get_peft_model(deepcopy(network), config)
    num_trainable = add_lora(network, rank=rank, alpha=float(alpha))
    assert num_trainable == reference.get_nb_trainable_parameters()[0] == rank * (7 + 11 + 11 + 5)
    pairs = copy_lora_matrices(network, reference)
    x, y = torch.randn(13, 7), torch.randn(13, 5)
    optimizer_a, optimizer_b = (
        torch.optim.AdamW([p for p in n.parameters() if p.requires_grad], lr=0.05) for n in (network, reference)
    )
    for _ in range(5):
        for model, optimizer in ((network, optimizer_a), (reference, optimizer_b)):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
        for layer, (a, b) in pairs:
            torch.testing.assert_close(layer.a.grad, a.grad)
            torch.testing.assert_close(layer.b.grad, b.grad)
        optimizer_a.step()
        optimizer_b.step()
    torch.testing.assert_close(network(x), reference(x))
    merge_lora(network)
    merged = reference.merge_and_unload()
    for i in (0, 2):
        torch.testing.assert_close(network[i].weight, merged[i].weight)
        assert type(network[i]) is nn.Linear and network[i].weight.requires_grad
    torch.testing.assert_close(network(x), merged(x))


def test_lora_gpt2_matches_peft():
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    plain = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_positions=12, n_embd=24, n_layer=2, n_head=4)).eval()
    network = GPT(40, context_length=12, embed_dim=24, num_layers=2, num_heads=4).eval()
    network.load_state_dict(
        {n.removeprefix("transformer."): t for n, t in plain.state_dict().items() if n != "lm_head.weight"}
    )
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    reference = peft.get_peft_model(plain, config).eval()
    assert (
        add_lora(network, rank=4, alpha=8.0, target_modules=("c_attn",))
        == reference.get_nb_trainable_parameters()[0]
        == 2 * 4 * (24 + 72)
    )
    x = torch.randint(40, (3, 9))
    torch.testing.assert_close(network(x), reference(input_ids=x).logits, atol=1e-4, rtol=1e-4)      # B = 0: as before
    pairs = copy_lora_matrices(network, reference)
    for logits in (network(x), reference(input_ids=x).logits):
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten()).backward()
    for layer, (a, b) in pairs:
        torch.testing.assert_close(layer.a.grad, a.grad, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(layer.b.grad, b.grad, atol=1e-5, rtol=1e-4)
    logits_before = network(x).detach()
    torch.testing.assert_close(logits_before, reference(input_ids=x).logits, atol=1e-4, rtol=1e-4)
    merge_lora(network)
    torch.testing.assert_close(network(x), reference.merge_and_unload()(input_ids=x).logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(network(x), logits_before, atol=1e-4, rtol=1e-4)


def test_lora_of_packed_projections_matches_peft():
    torch.manual_seed(0)
    network = MultiHeadAttention(12, 3)
    plain = nn.MultiheadAttention(12, 3, batch_first=True)
    plain.load_state_dict(network.state_dict())
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["0"], lora_dropout=0.0)
    reference = peft.get_peft_model(nn.Sequential(plain), config)
    layer = next(m for m in reference.modules() if hasattr(m, "lora_A"))
    add_lora(network, rank=2, alpha=6.0)
    lora, a, b = (
        network.parametrizations.in_proj_weight[0],
        layer.lora_A["default"].weight,
        layer.lora_B["default"].weight,
    )
    for matrix, reference_matrix in ((lora.a, a), (lora.b, b)):
        nn.init.normal_(reference_matrix, std=0.3)
        assert matrix.shape == reference_matrix.shape
        matrix.data.copy_(reference_matrix)
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(network(x), layer(x, x, x, need_weights=False)[0])
