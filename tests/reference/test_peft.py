"""LoRA beside the `peft` library: outputs, gradients, a training of some steps, and merged matrices."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from didact.layers.attention import SelfAttention
from didact.layers.lora import LoRA, adapt, merge
from didact.models.gpt import GPT

peft = pytest.importorskip("peft", reason="peft is not installed: pip install --no-deps peft accelerate")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def ours_of(theirs, adapter="default"):
    """Their A and B by the name of the layer."""
    return {
        name: (m.lora_A[adapter].weight, m.lora_B[adapter].weight) for name, m in theirs.named_modules() if hasattr(m, "lora_A")
    }


def same(network, theirs):
    """The same matrices in both, none of them zero."""
    pairs = ours_of(theirs)
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
def test_an_mlp_adapts_as_theirs_step_by_step(rank, alpha):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 5, bias=False))
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=["0", "2"], lora_dropout=0.0)
    theirs = peft.get_peft_model(deepcopy(network), config)
    learned = adapt(network, rank=rank, alpha=float(alpha))
    assert learned == theirs.get_nb_trainable_parameters()[0] == rank * (7 + 11 + 11 + 5)
    pairs = same(network, theirs)
    x, y = torch.randn(13, 7), torch.randn(13, 5)
    one, two = (torch.optim.AdamW([p for p in n.parameters() if p.requires_grad], lr=0.05) for n in (network, theirs))
    for _ in range(5):
        for model, optimizer in ((network, one), (theirs, two)):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
        for layer, (a, b) in pairs:
            torch.testing.assert_close(layer.a.grad, a.grad)
            torch.testing.assert_close(layer.b.grad, b.grad)
        one.step()
        two.step()
    torch.testing.assert_close(network(x), theirs(x))
    merge(network)
    whole = theirs.merge_and_unload()
    for i in (0, 2):
        torch.testing.assert_close(network[i].weight, whole[i].weight)
        assert type(network[i]) is nn.Linear and network[i].weight.requires_grad
    torch.testing.assert_close(network(x), whole(x))


def test_gpt2_adapts_as_theirs():
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    plain = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_positions=12, n_embd=24, n_layer=2, n_head=4)).eval()
    network = GPT(40, context=12, dim=24, layers=2, heads=4).eval()
    network.load_state_dict({n.removeprefix("transformer."): t for n, t in plain.state_dict().items() if n != "lm_head.weight"})
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    theirs = peft.get_peft_model(plain, config).eval()
    assert adapt(network, rank=4, alpha=8.0, within=("c_attn",)) == theirs.get_nb_trainable_parameters()[0] == 2 * 4 * (24 + 72)
    x = torch.randint(40, (3, 9))
    torch.testing.assert_close(network(x), theirs(input_ids=x).logits, atol=1e-4, rtol=1e-4)      # B = 0: as before
    pairs = same(network, theirs)
    for logits in (network(x), theirs(input_ids=x).logits):
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten()).backward()
    for layer, (a, b) in pairs:
        torch.testing.assert_close(layer.a.grad, a.grad, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(layer.b.grad, b.grad, atol=1e-5, rtol=1e-4)
    before = network(x).detach()
    torch.testing.assert_close(before, theirs(input_ids=x).logits, atol=1e-4, rtol=1e-4)
    merge(network)
    torch.testing.assert_close(network(x), theirs.merge_and_unload()(input_ids=x).logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(network(x), before, atol=1e-4, rtol=1e-4)


def test_packed_projections_adapt_as_theirs():
    torch.manual_seed(0)
    network = SelfAttention(12, 3)
    plain = nn.MultiheadAttention(12, 3, batch_first=True)
    plain.load_state_dict(network.state_dict())
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["0"], lora_dropout=0.0)
    theirs = peft.get_peft_model(nn.Sequential(plain), config)
    layer = next(m for m in theirs.modules() if hasattr(m, "lora_A"))
    adapt(network, rank=2, alpha=6.0)
    thin, a, b = network.parametrizations.in_proj_weight[0], layer.lora_A["default"].weight, layer.lora_B["default"].weight
    for ours, other in ((thin.a, a), (thin.b, b)):
        nn.init.normal_(other, std=0.3)
        assert ours.shape == other.shape
        ours.data.copy_(other)
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(network(x), layer(x, x, x, need_weights=False)[0])
