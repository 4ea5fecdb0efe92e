"""Heads that are switched off and heads that are taken out say the same; sizes by hand; beside the library that others prune with."""

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.layers.attention import CrossAttention, SelfAttention
from didact.layers.differential import DifferentialAttention
from didact.layers.grouped import GroupedQueryAttention
from didact.layers.heads import attentions, prune, without
from didact.layers.lora import adapt
from didact.models.bert import BERTClassifier
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.models.text_encoder import TextEncoder
from didact.models.transformer import Transformer
from didact.models.vit import ViT
from didact.objectives.autoregressive import Writer
from didact.objectives.translation import Translate
from didact.objectives.writing import Manner

X = torch.randn(2, 7, 24, generator=torch.Generator().manual_seed(0))
LAYERS = {   # the layer, what it reads, heads to go, numbers that go: 3 or more matrices with d rows for each head, and W_O's columns
    "self": (lambda: SelfAttention(24, 4), (X,), (1, 3), 2 * 6 * (3 * 25 + 24)),
    "cross": (lambda: CrossAttention(24, 4), (X, X.flip(1)[:, :5]), (0,), 6 * (3 * 25 + 24)),
    "one of each group": (lambda: GroupedQueryAttention(24, 4, 2), (X,), (0, 3), 2 * 6 * (24 + 24)),
    "a whole group": (lambda: GroupedQueryAttention(24, 4, 2, bias=True), (X,), (2, 3), 2 * 6 * (25 + 24) + 6 * 2 * 25),
    "multi-query": (lambda: GroupedQueryAttention(24, 4, 1), (X,), (2,), 6 * (24 + 24)),
    "differential": (lambda: DifferentialAttention(24, 2), (X,), (1,), 12 * 4 * 24),
}


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_a_head_that_is_out_says_what_one_that_is_off_says(name):
    torch.manual_seed(0)
    make, inputs, gone, numbers = LAYERS[name]
    layer = make()
    whole = layer(*inputs)
    with without(layer, {"": gone}):
        off = layer(*inputs)
    assert not torch.allclose(off, whole, atol=1e-3) and torch.equal(layer(*inputs), whole)      # on again
    assert prune(layer, {"": gone}) == numbers
    torch.testing.assert_close(layer(*inputs), off)
    assert layer.look(*inputs)[1].shape[1] == layer.heads == make().heads - len(gone)


def test_off_is_zeros_where_the_output_matrix_reads():
    torch.manual_seed(0)
    layer = SelfAttention(24, 4)
    a = layer.look(X)[1]
    v = layer.project(X)[2]
    heads = (a @ v) * torch.tensor([1.0, 0, 1, 0])[:, None, None]                                 # by hand
    with without(layer, {"": {1, 3}}):
        torch.testing.assert_close(layer(X), layer.out_proj(heads.transpose(1, 2).flatten(2)))


NETWORKS = {
    "gpt": (lambda: GPT(23, context=9, dim=24, layers=2, heads=4), (torch.randint(23, (2, 9)),), "h.1.attn"),
    "llama": (lambda: Llama(23, context=9, dim=24, layers=2, heads=4, groups=4, hidden=32), (torch.randint(23, (2, 9)),), None),
    "bert": (lambda: BERTClassifier(23, 3, context=9, dim=24, layers=2, heads=4, hidden=32), (torch.randint(1, 23, (2, 9)),), None),
    "texts": (lambda: TextEncoder(23, 3, dim=24, layers=2, heads=4, hidden=32), (torch.randint(1, 23, (2, 9)),), None),
    "vit": (lambda: ViT(size=(8, 8), patch=4, dim=24, depth=2, heads=4, hidden=32), (torch.rand(2, 3, 8, 8),), None),
    "translator": (lambda: Transformer(23, 29, dim=24, layers=2, heads=4, hidden=32), (torch.randint(1, 23, (2, 9)),) * 2, None),
}


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_every_network_can_lose_heads(name):
    torch.manual_seed(0)
    make, inputs, where = NETWORKS[name]
    network = make().eval()
    off = {known: [i % 4] if i else [1, 2] for i, known in enumerate(attentions(network))}       # not as many everywhere
    assert len(off) == (6 if name == "translator" else 2) and (where is None or where in off)
    with without(network, off):
        expected = network(*inputs)
    before = sum(p.numel() for p in network.parameters())
    assert prune(network, off) == before - sum(p.numel() for p in network.parameters()) > 0
    torch.testing.assert_close(network(*inputs), expected)
    assert [a.heads for a in attentions(network).values()] == [2, *[3] * (len(off) - 1)]


@pytest.mark.parametrize("name", ["gpt", "llama"])
@torch.no_grad()
def test_it_still_writes_with_a_memory(name):
    torch.manual_seed(0)
    network = NETWORKS[name][0]().eval()
    prune(network, {next(iter(attentions(network))): [1, 2]})
    prompt = torch.randint(23, (2, 4))
    written = Writer(network).write(prompt, 3, manner=Manner(temperature=0))
    for _ in range(3):
        prompt = torch.cat([prompt, network(prompt)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(written, prompt[:, 4:])


@torch.no_grad()
def test_it_still_translates():
    torch.manual_seed(0)
    network = NETWORKS["translator"][0]().eval()
    prune(network, {"decoder.0.self_attn": [0], "decoder.1.multihead_attn": [1, 2], "encoder.0.self_attn": [3]})
    x = torch.randint(1, 23, (2, 9))
    y = torch.full((2, 1), 2)
    for _ in range(4):
        y = torch.cat([y, network(x, y)[:, -1:].argmax(-1)], dim=1)
    written = Translate(network, length=1.0, longest=4).translate({"x": x})
    n = [row.index(3) + 1 if 3 in row else 4 for row in written.tolist()]
    assert all(torch.equal(w[:k], r[1 : k + 1]) for w, r, k in zip(written, y, n, strict=True))


@torch.no_grad()
def test_what_lora_learned_is_merged_first():
    torch.manual_seed(0)
    network, x = NETWORKS["gpt"][0]().eval(), torch.randint(23, (2, 9))
    adapt(network, rank=2)
    for p in network.parameters():
        nn.init.normal_(p, std=0.1)
    with without(network, {"h.0.attn": [2]}):
        expected = network(x)
    prune(network, {"h.0.attn": [2]})
    torch.testing.assert_close(network(x), expected)


@torch.no_grad()
def test_beside_the_library_that_others_prune_with():
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.pytorch_utils import prune_linear_layer

    torch.manual_seed(0)
    kept = torch.arange(24).view(4, 6)[[0, 2, 3]].flatten()
    layer = GroupedQueryAttention(24, 4, 4, bias=True)
    theirs = [prune_linear_layer(layer.q_proj, kept), prune_linear_layer(layer.o_proj, kept, dim=1)]
    attn, whole = GPT(23, context=9, dim=24, layers=1, heads=4).h[0].attn, nn.Linear(24, 72)
    attn.c_attn.weight.copy_(whole.weight.T)
    attn.c_attn.bias.copy_(whole.bias)
    fused = prune_linear_layer(whole, torch.cat([kept, kept + 24, kept + 48]))
    prune(layer, {"": [1]})
    prune(attn, {"": [1]})
    for ours, expected in zip((layer.q_proj, layer.o_proj), theirs, strict=True):
        assert torch.equal(ours.weight, expected.weight) and torch.equal(ours.bias, expected.bias)
        assert (ours.in_features, ours.out_features) == (expected.in_features, expected.out_features)
    assert torch.equal(attn.c_attn.weight, fused.weight.T) and torch.equal(attn.c_attn.bias, fused.bias)


@pytest.mark.parametrize(("layer", "off", "complaint"), [
    (SelfAttention(24, 4), {"": [4]}, "has the heads 0 to 3, got 4"),
    (SelfAttention(24, 4), {"": range(4)}, "must keep a head, got all 4"),
    (GroupedQueryAttention(24, 4, 2), {"": [0]}, "share keys in groups of 2: take out whole groups, or as many of each"),
    (nn.Sequential(SelfAttention(24, 4)), {"1": [0]}, "no attention named '1'"),
])
def test_bad_input(layer, off, complaint):
    with pytest.raises(UsageError, match=complaint):
        prune(layer, off)
