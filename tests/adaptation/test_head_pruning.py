"""Disabled and pruned heads give the same output; sizes by hand; against the pruning of another library."""

import pytest
import torch
from torch import nn

from didact.adaptation.head_pruning import disable_heads, find_attention_layers, prune_heads
from didact.adaptation.lora import add_lora
from didact.errors import UsageError
from didact.layers.attention.differential import DifferentialAttention
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.attention.multihead import CrossAttention, MultiHeadAttention
from didact.models.text.bert import BERTClassifier
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.models.text.transformer_classifier import TransformerClassifier
from didact.models.vision.vit import ViT
from didact.objectives.text.causal_lm import GenerativeLanguageModel
from didact.objectives.text.seq2seq import Seq2SeqObjective
from didact.samplers.top_k_top_p import DecodingConfig

X = torch.randn(2, 7, 24, generator=torch.Generator().manual_seed(0))
# layer, inputs, heads to remove, parameters removed: 3 or more matrices with d rows for each head, and W_O's columns
LAYERS = {
    "self": (lambda: MultiHeadAttention(24, 4), (X,), (1, 3), 2 * 6 * (3 * 25 + 24)),
    "cross": (lambda: CrossAttention(24, 4), (X, X.flip(1)[:, :5]), (0,), 6 * (3 * 25 + 24)),
    "one of each group": (lambda: GroupedQueryAttention(24, 4, 2), (X,), (0, 3), 2 * 6 * (24 + 24)),
    "a whole group": (lambda: GroupedQueryAttention(24, 4, 2, bias=True), (X,), (2, 3), 2 * 6 * (25 + 24) + 6 * 2 * 25),
    "multi-query": (lambda: GroupedQueryAttention(24, 4, 1), (X,), (2,), 6 * (24 + 24)),
    "differential": (lambda: DifferentialAttention(24, 2), (X,), (1,), 12 * 4 * 24),
}


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_pruned_head_gives_the_output_of_a_disabled_head(name):
    torch.manual_seed(0)
    make, inputs, removed_heads, num_removed = LAYERS[name]
    layer = make()
    full_output = layer(*inputs)
    with disable_heads(layer, {"": removed_heads}):
        disabled_output = layer(*inputs)
    # enabled again
    assert not torch.allclose(disabled_output, full_output, atol=1e-3) and torch.equal(layer(*inputs), full_output)
    assert prune_heads(layer, {"": removed_heads}) == num_removed
    torch.testing.assert_close(layer(*inputs), disabled_output)
    assert layer.forward_with_weights(*inputs)[1].shape[1] == layer.num_heads == make().num_heads - len(removed_heads)


def test_disable_heads_zeroes_the_input_of_the_output_projection():
    torch.manual_seed(0)
    layer = MultiHeadAttention(24, 4)
    a = layer.forward_with_weights(X)[1]
    v = layer.project_qkv(X)[2]
    heads = (a @ v) * torch.tensor([1.0, 0, 1, 0])[:, None, None]                                 # by hand
    with disable_heads(layer, {"": {1, 3}}):
        torch.testing.assert_close(layer(X), layer.out_proj(heads.transpose(1, 2).flatten(2)))


NETWORKS = {
    "gpt": (
        lambda: GPT(23, context_length=9, embed_dim=24, num_layers=2, num_heads=4),
        (torch.randint(23, (2, 9)),),
        "h.1.attn",
    ),
    "llama": (
        lambda: Llama(23, context_length=9, embed_dim=24, num_layers=2, num_heads=4, num_kv_heads=4, ffn_dim=32),
        (torch.randint(23, (2, 9)),),
        None,
    ),
    "bert": (
        lambda: BERTClassifier(23, 3, context_length=9, embed_dim=24, num_layers=2, num_heads=4, ffn_dim=32),
        (torch.randint(1, 23, (2, 9)),),
        None,
    ),
    "texts": (
        lambda: TransformerClassifier(23, 3, embed_dim=24, num_layers=2, num_heads=4, ffn_dim=32),
        (torch.randint(1, 23, (2, 9)),),
        None,
    ),
    "vit": (
        lambda: ViT(size=(8, 8), patch_size=4, embed_dim=24, depth=2, num_heads=4, ffn_dim=32),
        (torch.rand(2, 3, 8, 8),),
        None,
    ),
    "translator": (
        lambda: Transformer(23, 29, embed_dim=24, num_layers=2, num_heads=4, ffn_dim=32),
        (torch.randint(1, 23, (2, 9)),) * 2,
        None,
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_prune_heads_works_on_every_transformer(name):
    torch.manual_seed(0)
    make, inputs, layer_name = NETWORKS[name]
    network = make().eval()
    # not as many in every group
    disabled = {
        attention_name: [i % 4] if i else [1, 2] for i, attention_name in enumerate(find_attention_layers(network))
    }
    assert len(disabled) == (6 if name == "translator" else 2) and (layer_name is None or layer_name in disabled)
    with disable_heads(network, disabled):
        expected = network(*inputs)
    num_before = sum(p.numel() for p in network.parameters())
    assert prune_heads(network, disabled) == num_before - sum(p.numel() for p in network.parameters()) > 0
    torch.testing.assert_close(network(*inputs), expected)
    assert [a.num_heads for a in find_attention_layers(network).values()] == [2, *[3] * (len(disabled) - 1)]


@pytest.mark.parametrize("name", ["gpt", "llama"])
@torch.no_grad()
def test_pruned_network_generates_the_same_text_with_a_cache(name):
    torch.manual_seed(0)
    network = NETWORKS[name][0]().eval()
    prune_heads(network, {next(iter(find_attention_layers(network))): [1, 2]})
    prompt = torch.randint(23, (2, 4))
    generated = GenerativeLanguageModel(network).write(prompt, 3, decoding=DecodingConfig(temperature=0))
    for _ in range(3):
        prompt = torch.cat([prompt, network(prompt)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generated, prompt[:, 4:])


@torch.no_grad()
def test_pruned_encoder_decoder_still_translates():
    torch.manual_seed(0)
    network = NETWORKS["translator"][0]().eval()
    prune_heads(network, {"decoder.0.self_attn": [0], "decoder.1.multihead_attn": [1, 2], "encoder.0.self_attn": [3]})
    x = torch.randint(1, 23, (2, 9))
    y = torch.full((2, 1), 2)
    for _ in range(4):
        y = torch.cat([y, network(x, y)[:, -1:].argmax(-1)], dim=1)
    generated = Seq2SeqObjective(network, mean_length=1.0, max_length=4).translate({"x": x})
    n = [row.index(3) + 1 if 3 in row else 4 for row in generated.tolist()]
    assert all(torch.equal(w[:k], r[1 : k + 1]) for w, r, k in zip(generated, y, n, strict=True))


@torch.no_grad()
def test_prune_heads_merges_lora_first():
    torch.manual_seed(0)
    network, x = NETWORKS["gpt"][0]().eval(), torch.randint(23, (2, 9))
    add_lora(network, rank=2)
    for p in network.parameters():
        nn.init.normal_(p, std=0.1)
    with disable_heads(network, {"h.0.attn": [2]}):
        expected = network(x)
    prune_heads(network, {"h.0.attn": [2]})
    torch.testing.assert_close(network(x), expected)


@torch.no_grad()
def test_prune_heads_matches_transformers():
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.pytorch_utils import prune_linear_layer

    torch.manual_seed(0)
    kept_features = torch.arange(24).view(4, 6)[[0, 2, 3]].flatten()
    layer = GroupedQueryAttention(24, 4, 4, bias=True)
    references = [
        prune_linear_layer(layer.q_proj, kept_features),
        prune_linear_layer(layer.o_proj, kept_features, dim=1),
    ]
    attn, packed_layer = GPT(23, context_length=9, embed_dim=24, num_layers=1, num_heads=4).h[0].attn, nn.Linear(24, 72)
    attn.c_attn.weight.copy_(packed_layer.weight.T)
    attn.c_attn.bias.copy_(packed_layer.bias)
    expected_packed = prune_linear_layer(
        packed_layer, torch.cat([kept_features, kept_features + 24, kept_features + 48])
    )
    prune_heads(layer, {"": [1]})
    prune_heads(attn, {"": [1]})
    for pruned, expected in zip((layer.q_proj, layer.o_proj), references, strict=True):
        assert torch.equal(pruned.weight, expected.weight) and torch.equal(pruned.bias, expected.bias)
        assert (pruned.in_features, pruned.out_features) == (expected.in_features, expected.out_features)
    assert torch.equal(attn.c_attn.weight, expected_packed.weight.T) and torch.equal(
        attn.c_attn.bias, expected_packed.bias
    )


@pytest.mark.parametrize(
    ("layer", "off", "message"),
    [
        (MultiHeadAttention(24, 4), {"": [4]}, "has the heads 0 to 3, got 4"),
        (MultiHeadAttention(24, 4), {"": range(4)}, "must keep a head, got all 4"),
        (
            GroupedQueryAttention(24, 4, 2),
            {"": [0]},
            "share keys in groups of 2: remove whole groups, or as many of each",
        ),
        (nn.Sequential(MultiHeadAttention(24, 4)), {"1": [0]}, "no attention named '1'"),
    ],
)
def test_prune_heads_refuses_invalid_heads(layer, off, message):
    with pytest.raises(UsageError, match=message):
        prune_heads(layer, off)
