"""The loss in pieces beside PyTorch's own over all logits at once."""

from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

from didact.models.gpt import GPT
from didact.objectives import autoregressive, projected
from didact.objectives.autoregressive import Autoregressive
from didact.objectives.language import LanguageModel
from didact.objectives.projected import projected_cross_entropy


@pytest.mark.parametrize("words", [64, 67])      # 67 is widened to 128
@pytest.mark.parametrize("rows", [7, 100])
def test_loss_and_gradients_are_those_of_cross_entropy(words, rows):
    torch.manual_seed(0)
    h, w = torch.randn(23, 12, requires_grad=True), torch.randn(words, 12, requires_grad=True)
    y = torch.randint(words, (23,))
    y[4:7] = -100
    (3 * projected_cross_entropy(h, w, y, rows=rows)).backward()
    found = h.grad, w.grad
    h.grad = w.grad = None
    expected = 3 * cross_entropy(h @ w.T, y)
    expected.backward()
    torch.testing.assert_close(3 * projected_cross_entropy(h, w, y, rows=rows), expected)
    torch.testing.assert_close(found, (h.grad, w.grad))


def test_under_autocast_it_multiplies_in_bf16_and_sums_in_fp32():
    torch.manual_seed(0)
    h, w, y = torch.randn(40, 16, requires_grad=True), torch.randn(70, 16, requires_grad=True), torch.randint(70, (40,))
    with torch.autocast("cpu", torch.bfloat16):
        loss = projected_cross_entropy(h, w, y, rows=16)
    loss.backward()
    assert loss.dtype == h.grad.dtype == w.grad.dtype == torch.float32
    exact = torch.autograd.grad(cross_entropy(h @ w.T, y), (h, w))
    assert loss.item() == pytest.approx(cross_entropy(h @ w.T, y).item(), rel=1e-2)
    for one, two in zip((h.grad, w.grad), exact, strict=True):
        assert torch.cosine_similarity(one.flatten(), two.flatten(), dim=0) > 0.999


def test_a_large_vocabulary_is_learned_and_judged_like_a_small_one(monkeypatch):
    torch.manual_seed(0)
    network = GPT(50, context=9, dim=16, layers=1, heads=2)
    batch = {"x": torch.randint(50, (5, 9)), "y": torch.randint(50, (5, 9))}
    plain, ours = LanguageModel(network), Autoregressive(network)
    expected = plain.loss(batch)["loss"]
    grads = torch.autograd.grad(expected, network.parameters())
    monkeypatch.setattr(autoregressive, "LARGE", 1)
    monkeypatch.setattr(autoregressive, "JUDGED", 2 * 9 * 50)      # two rows at a time
    loss = ours.loss(batch)["loss"]
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, network.parameters()), grads)
    torch.testing.assert_close(ours.judge(batch), plain.judge(batch))


def test_only_matrices_decay():
    (player,) = Autoregressive(GPT(50, context=9, dim=16, layers=1, heads=2)).players()
    matrices, vectors = player.parameters
    assert all(p.ndim == 2 for p in matrices["params"]) and vectors["weight_decay"] == 0
    assert {p.ndim for p in vectors["params"]} == {1}


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("triton", reason="Triton is not installed")
    torch.manual_seed(0)


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1.0, 60.0])                               # 60: probabilities round to 0 and 1
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("words", "columns"), [(67, 128), (8192, 8192), (50_257, 50_304), (70_001, 70_016)])
def test_the_kernel_is_cross_entropy_row_by_row(cuda, words, columns, kind, scale):
    from didact.objectives.surprise import surprise

    z, y = (scale * torch.randn(300, columns, device="cuda")).to(kind), torch.randint(words, (300,), device="cuda")
    y[4:7], y[7], y[8], z[8, 5] = -100, words - 1, 1, -torch.inf
    x = z[:, :words].float().requires_grad_()
    expected = cross_entropy(x, y, reduction="none")
    expected.sum().backward()
    loss = surprise(z, y, words, -100)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(z[:, :words].float(), x.grad, rtol=2**-8, atol=1e-6 * scale)
    assert not z[:, words:].any() and not z[4:7].any() and loss.dtype == torch.float32


def graded(loss, h, w, y):
    with torch.autocast("cuda", torch.bfloat16):
        value = loss(h, w, y)
    return value.detach(), *torch.autograd.grad(value, (h, w))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")     # torch 2.11's own, while it compiles
@pytest.mark.parametrize("compiled", [False, True])
def test_with_the_kernel_loss_and_gradients_are_those_without(cuda, monkeypatch, compiled):
    h, w = torch.randn(500, 64, device="cuda", requires_grad=True), torch.randn(50_257, 64, device="cuda", requires_grad=True)
    y = torch.randint(50_257, (500,), device="cuda")
    y[3:30] = -100
    pieces = partial(projected_cross_entropy, rows=200)
    monkeypatch.setattr(projected, "KERNEL", True)
    ours = graded(torch.compile(pieces, fullgraph=True) if compiled else pieces, h, w, y)
    monkeypatch.setattr(projected, "KERNEL", False)
    for one, two in zip(ours, graded(pieces, h, w, y), strict=True):
        torch.testing.assert_close(one, two, rtol=2e-2, atol=2e-2 * two.abs().max().item())
        assert torch.cosine_similarity(one.flatten(), two.flatten(), dim=0) > 0.9999
    exact = cross_entropy(h.double() @ w.double().T, y)
    assert ours[0].item() == pytest.approx(exact.item(), rel=1e-2)


@pytest.mark.gpu
def test_a_captured_kernel_answers_for_what_lies_there_now(cuda):
    from didact.objectives.surprise import surprise

    z, y = torch.zeros(64, 5056, device="cuda", dtype=torch.bfloat16), torch.randint(5000, (64,), device="cuda")
    surprise(z.clone(), y, 5000, -100)                                       # compiled before it is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = surprise(z, y, 5000, -100)
    for _ in range(2):
        new = torch.randn(64, 5056, device="cuda").bfloat16()
        z.copy_(new)
        graph.replay()
        torch.testing.assert_close(loss, cross_entropy(new[:, :5000].float(), y, reduction="none"), rtol=1e-5, atol=1e-4)
