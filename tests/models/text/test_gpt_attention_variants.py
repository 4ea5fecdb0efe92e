"""GPT-2's blocks with every attention variant: causal, equal to full attention in the limit, the same with a KV cache.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.adaptation.head_pruning import disable_heads, find_attention_layers, prune_heads
from didact.adaptation.lora import add_lora
from didact.errors import UsageError
from didact.explain.head_ablation import record_attention
from didact.layers.attention.variants import VARIANTS
from didact.models.text.gpt import GPT
from didact.objectives.text.causal_lm import CausalLanguageModel
from didact.registry import create_model
from didact.samplers.top_k_top_p import DecodingConfig
from helpers.greedy_decoding import greedy_decode_without_cache

OTHER_VARIANTS = [variant for variant in VARIANTS if variant != "full"]
GREEDY = DecodingConfig(temperature=0)


def make_sharp_gpt(variant, *, context=200, window=3, layers=2):
    """Weights so large that the most likely token stands out and depends on the tokens before."""
    torch.manual_seed(1)
    model = GPT(
        23, context_length=context, embed_dim=16, num_layers=layers, num_heads=4, attention=variant, window=window
    )
    for name, p in model.named_parameters():
        if p.ndim > 1 and "lambdas" not in name:
            nn.init.normal_(p, std=3.0 if "wpe" in name else 0.5)
    return model.eval()


@pytest.mark.parametrize("variant", VARIANTS)
def test_gpt_variant_gets_no_gradient_from_later_tokens(variant):
    # all different, so that a token identifies its position
    model, tokens = make_sharp_gpt(variant), torch.randperm(23)[None, :19]
    for t in (0, 6, 18):
        (rows,) = torch.autograd.grad(model.forward_features(tokens)[0, t].square().sum(), model.wte.weight)
        has_gradient = rows[tokens[0]].abs().sum(1) > 0
        assert has_gradient[t] and not has_gradient[t + 1 :].any()
        num_visible = 6 if variant == "local" else 18                                  # two layers of windows of three
        if variant != "topk":  # it may leave out any token
            assert (
                has_gradient[max(0, t - num_visible) : t + 1].all()
                and not has_gradient[: max(0, t - num_visible)].any()
            )


@torch.no_grad()
@pytest.mark.parametrize("variant", OTHER_VARIANTS)
def test_gpt_variant_greedy_text_is_the_same_with_a_cache(variant):
    model, prompt = make_sharp_gpt(variant), torch.randint(23, (3, 5))
    # beyond 128: the visible part of the cache doubles on the way
    generated = CausalLanguageModel(model).write(prompt, 140, decoding=GREEDY)
    assert torch.equal(generated, greedy_decode_without_cache(model, prompt, 140)) and len(generated.unique()) > 5
    # a full cache restarts with its second half
    short_model = make_sharp_gpt(variant, context=12)
    generated = CausalLanguageModel(short_model).write(prompt, 20, decoding=GREEDY)
    text = torch.cat([prompt, generated], dim=1)
    assert torch.equal(text[:, 13:20], greedy_decode_without_cache(short_model, text[:, 7:13], 7))


@torch.no_grad()
@pytest.mark.parametrize(("variant", "window"), [("tiled", 8), ("local", 19), ("topk", 19), ("strided", 1)])
def test_unrestricted_attention_variant_equals_full_attention(variant, window):
    """Of a strided pair with stride 1, the second layer is full attention; the first has a window and is left out here.
    """
    full, other = make_sharp_gpt("full"), make_sharp_gpt(variant, window=window)
    assert list(full.state_dict()) == list(other.state_dict())               # the names of the published weights
    other.load_state_dict(full.state_dict())
    if variant == "strided":
        other.h[0] = full.h[0]
    tokens = torch.randint(23, (2, 19))
    torch.testing.assert_close(other(tokens), full(tokens))


@torch.no_grad()
@pytest.mark.parametrize(("variant", "layer"), [("local", 0), ("strided", 1)])
def test_pattern_attention_matches_pytorch_with_its_mask(variant, layer):
    attn, x = make_sharp_gpt(variant).h[layer].attn, torch.randn(2, 19, 16)
    i = torch.arange(19)
    distance = i[:, None] - i
    mask = (distance >= 0) & ((distance <= 3) if variant == "local" else (distance % 3 == 0))
    torch.testing.assert_close(attn(x), attn.merge_heads(F.scaled_dot_product_attention(*attn.project_qkv(x), mask)))


@torch.no_grad()
@pytest.mark.parametrize("variant", OTHER_VARIANTS)
def test_gpt_variant_attention_maps_are_those_of_the_forward_pass(variant):
    model, tokens = make_sharp_gpt(variant), torch.randint(23, (2, 19))
    with record_attention(model) as recorded_maps:
        model(tokens)
    maps = model.attention_maps(tokens)
    torch.testing.assert_close(torch.stack(list(recorded_maps.values()), dim=1), maps)
    assert maps.shape == (2, 2, 4, 19, 19) and not maps.triu(1).any()
    for block, a in zip(model.blocks, maps[0], strict=True):
        total = 1 - block.attn.form.lam if variant == "differential" else torch.tensor(1.0)
        torch.testing.assert_close(a.sum(-1), total.expand(4, 19))
        explicit, _ = block.attn.forward_with_weights(x := torch.randn(2, 19, 16))
        torch.testing.assert_close(block.attn(x), explicit)


@torch.no_grad()
@pytest.mark.parametrize("variant", OTHER_VARIANTS)
def test_gpt_variant_supports_head_pruning_and_lora(variant):
    model, tokens = make_sharp_gpt(variant).double(), torch.randint(23, (2, 19))
    add_lora(model, rank=2)
    for p in model.parameters():
        if p.requires_grad:
            nn.init.normal_(p, std=0.1)
    disabled = {name: [1, 2] for name in find_attention_layers(model)}
    with disable_heads(model, disabled):
        expected = model(tokens)
    assert prune_heads(model, disabled) > 0
    torch.testing.assert_close(model(tokens), expected)
    prompt = tokens[:, :4]
    assert torch.equal(
        CausalLanguageModel(model).write(prompt, 9, decoding=GREEDY), greedy_decode_without_cache(model, prompt, 9)
    )


@pytest.mark.parametrize("variant", OTHER_VARIANTS)
def test_gpt_variant_in_bf16_has_finite_gradients_everywhere(variant):
    model, x = create_model("gpt_small", vocab_size=23, num_layers=2, attention=variant), torch.randint(23, (2, 33))
    with torch.autocast("cpu", torch.bfloat16):
        loss = CausalLanguageModel(model).loss({"x": x[:, :-1], "y": x[:, 1:]})["loss"]
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_gpt_refuses_unknown_variants_and_odd_head_widths():
    with pytest.raises(UsageError, match="no attention variant named 'locl'; did you mean 'local'"):
        create_model("gpt_small", attention="locl")
    with pytest.raises(UsageError, match=r"differential attention halves each head: .* must be even, got 5"):
        GPT(23, context_length=9, embed_dim=20, num_layers=1, num_heads=4, attention="differential")


@torch.no_grad()
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("variant", OTHER_VARIANTS)
def test_gpt_variant_with_cuda_graphs_generates_the_same_text(variant):
    model = create_model("gpt2", vocab_size=500, num_layers=2, attention=variant).to("cuda", torch.float64).eval()
    nn.init.normal_(model.wpe.weight, std=0.5)
    assert model.init_cache(2, 16).fast_decoder is None
    prompt = torch.randint(500, (2, 7), device="cuda")
    generated = CausalLanguageModel(model).write(prompt, 150, decoding=GREEDY)
    assert torch.equal(generated, greedy_decode_without_cache(model, prompt, 150))
