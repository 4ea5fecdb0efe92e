"""GPT-2's blocks with every form of attention: blind to what comes later, equal to the full form in the limit, the same with a cache."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.errors import UsageError
from didact.explain.heads import watched
from didact.layers.forms import FORMS
from didact.layers.heads import attentions, prune, without
from didact.layers.lora import adapt
from didact.models.gpt import GPT
from didact.objectives.autoregressive import Autoregressive
from didact.objectives.writing import Manner
from didact.registry import create
from greedy import without_memory

OTHERS = [form for form in FORMS if form != "full"]
GREEDY = Manner(temperature=0)


def sharp(form, *, context=200, span=3, layers=2):
    """Weights so large that the likeliest token stands out and depends on what was read."""
    torch.manual_seed(1)
    model = GPT(23, context=context, dim=16, layers=layers, heads=4, attention=form, span=span)
    for name, p in model.named_parameters():
        if p.ndim > 1 and "lambdas" not in name:
            nn.init.normal_(p, std=3.0 if "wpe" in name else 0.5)
    return model.eval()


@pytest.mark.parametrize("form", FORMS)
def test_no_gradient_comes_from_a_later_token(form):
    model, tokens = sharp(form), torch.randperm(23)[None, :19]              # all different: a row of the embedding is a place
    for t in (0, 6, 18):
        (rows,) = torch.autograd.grad(model.hidden(tokens)[0, t].square().sum(), model.wte.weight)
        felt = rows[tokens[0]].abs().sum(1) > 0
        assert felt[t] and not felt[t + 1 :].any()
        near = 6 if form == "local" else 18                                  # two layers of windows of three
        if form != "topk":                                                   # it may leave out anyone
            assert felt[max(0, t - near) : t + 1].all() and not felt[: max(0, t - near)].any()


@torch.no_grad()
@pytest.mark.parametrize("form", OTHERS)
def test_greedy_with_a_cache_is_greedy_without_token_for_token(form):
    model, prompt = sharp(form), torch.randint(23, (3, 5))
    written = Autoregressive(model).write(prompt, 140, manner=GREEDY)        # past 128: the reach of a step doubles on the way
    assert torch.equal(written, without_memory(model, prompt, 140)) and len(written.unique()) > 5
    short = sharp(form, context=12)                                          # a full cache begins anew with its second half
    written = Autoregressive(short).write(prompt, 20, manner=GREEDY)
    text = torch.cat([prompt, written], dim=1)
    assert torch.equal(text[:, 13:20], without_memory(short, text[:, 7:13], 7))


@torch.no_grad()
@pytest.mark.parametrize(("form", "span"), [("tiled", 8), ("local", 19), ("topk", 19), ("strided", 1)])
def test_what_leaves_nobody_out_is_the_full_form(form, span):
    """Of a strided pair with a stride of one, the second layer looks at all; the first is a window, so it is left out here."""
    full, other = sharp("full"), sharp(form, span=span)
    assert list(full.state_dict()) == list(other.state_dict())               # the names of the published weights
    other.load_state_dict(full.state_dict())
    if form == "strided":
        other.h[0] = full.h[0]
    tokens = torch.randint(23, (2, 19))
    torch.testing.assert_close(other(tokens), full(tokens))


@torch.no_grad()
@pytest.mark.parametrize(("form", "layer"), [("local", 0), ("strided", 1)])
def test_a_pattern_is_pytorchs_attention_under_its_mask(form, layer):
    attn, x = sharp(form).h[layer].attn, torch.randn(2, 19, 16)
    i = torch.arange(19)
    back = i[:, None] - i
    mask = (back >= 0) & ((back <= 3) if form == "local" else (back % 3 == 0))
    torch.testing.assert_close(attn(x), attn.join(F.scaled_dot_product_attention(*attn.project(x), mask)))


@torch.no_grad()
@pytest.mark.parametrize("form", OTHERS)
def test_its_maps_are_what_it_weighs_with(form):
    model, tokens = sharp(form), torch.randint(23, (2, 19))
    with watched(model) as seen:
        model(tokens)
    maps = model.attention_maps(tokens)
    torch.testing.assert_close(torch.stack(list(seen.values()), dim=1), maps)
    assert maps.shape == (2, 2, 4, 19, 19) and not maps.triu(1).any()
    for block, a in zip(model.blocks, maps[0], strict=True):
        total = 1 - block.attn.form.lam if form == "differential" else torch.tensor(1.0)
        torch.testing.assert_close(a.sum(-1), total.expand(4, 19))
        explicit, _ = block.attn.look(x := torch.randn(2, 19, 16))
        torch.testing.assert_close(block.attn(x), explicit)


@torch.no_grad()
@pytest.mark.parametrize("form", OTHERS)
def test_heads_go_and_thin_matrices_come_as_with_the_full_form(form):
    model, tokens = sharp(form).double(), torch.randint(23, (2, 19))
    adapt(model, rank=2)
    for p in model.parameters():
        if p.requires_grad:
            nn.init.normal_(p, std=0.1)
    off = {name: [1, 2] for name in attentions(model)}
    with without(model, off):
        expected = model(tokens)
    assert prune(model, off) > 0
    torch.testing.assert_close(model(tokens), expected)
    prompt = tokens[:, :4]
    assert torch.equal(Autoregressive(model).write(prompt, 9, manner=GREEDY), without_memory(model, prompt, 9))


@pytest.mark.parametrize("form", OTHERS)
def test_half_precision_warns_of_nothing_and_reaches_every_weight(form):
    model, x = create("gpt_small", vocabulary=23, layers=2, attention=form), torch.randint(23, (2, 33))
    with torch.autocast("cpu", torch.bfloat16):
        loss = Autoregressive(model).loss({"x": x[:, :-1], "y": x[:, 1:]})["loss"]
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_bad_input():
    with pytest.raises(UsageError, match="no form of attention named 'locl'; did you mean 'local'"):
        create("gpt_small", attention="locl")
    with pytest.raises(UsageError, match=r"differential attention halves each head: .* must be even, got 5"):
        GPT(23, context=9, dim=20, layers=1, heads=4, attention="differential")


@torch.no_grad()
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("form", OTHERS)
def test_captured_steps_write_the_same_without_the_kernels_of_the_full_form(form):
    model = create("gpt2", vocabulary=500, layers=2, attention=form).to("cuda", torch.float64).eval()
    nn.init.normal_(model.wpe.weight, std=0.5)
    assert model.remember(2, 16).swift is None
    prompt = torch.randint(500, (2, 7), device="cuda")
    written = Autoregressive(model).write(prompt, 150, manner=GREEDY)
    assert torch.equal(written, without_memory(model, prompt, 150))
