"""Chunked cross-entropy against PyTorch's own over all logits at once."""

from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

from didact.models.text.gpt import GPT
from didact.objectives.text import causal_lm
from didact.objectives.text import chunked_cross_entropy as chunked_module
from didact.objectives.text.causal_lm import CausalLanguageModel
from didact.objectives.text.chunked_cross_entropy import chunked_cross_entropy
from didact.objectives.text.language_model import LanguageModel


@pytest.mark.parametrize("vocab_size", [64, 67])      # 67 is padded to 128
@pytest.mark.parametrize("chunk_size", [7, 100])
def test_chunked_cross_entropy_matches_torch_forward_and_backward(vocab_size, chunk_size):
    torch.manual_seed(0)
    h, w = torch.randn(23, 12, requires_grad=True), torch.randn(vocab_size, 12, requires_grad=True)
    y = torch.randint(vocab_size, (23,))
    y[4:7] = -100
    (3 * chunked_cross_entropy(h, w, y, chunk_size=chunk_size)).backward()
    gradients = h.grad, w.grad
    h.grad = w.grad = None
    expected = 3 * cross_entropy(h @ w.T, y)
    expected.backward()
    torch.testing.assert_close(3 * chunked_cross_entropy(h, w, y, chunk_size=chunk_size), expected)
    torch.testing.assert_close(gradients, (h.grad, w.grad))


def test_chunked_cross_entropy_under_autocast_sums_in_float32():
    torch.manual_seed(0)
    h, w, y = torch.randn(40, 16, requires_grad=True), torch.randn(70, 16, requires_grad=True), torch.randint(70, (40,))
    with torch.autocast("cpu", torch.bfloat16):
        loss = chunked_cross_entropy(h, w, y, chunk_size=16)
    loss.backward()
    assert loss.dtype == h.grad.dtype == w.grad.dtype == torch.float32
    expected_gradients = torch.autograd.grad(cross_entropy(h @ w.T, y), (h, w))
    assert loss.item() == pytest.approx(cross_entropy(h @ w.T, y).item(), rel=1e-2)
    for gradient, expected in zip((h.grad, w.grad), expected_gradients, strict=True):
        assert torch.cosine_similarity(gradient.flatten(), expected.flatten(), dim=0) > 0.999


def test_causal_lm_with_a_chunked_loss_matches_the_plain_language_model(monkeypatch):
    torch.manual_seed(0)
    network = GPT(50, context_length=9, embed_dim=16, num_layers=1, num_heads=2)
    batch = {"x": torch.randint(50, (5, 9)), "y": torch.randint(50, (5, 9))}
    plain, chunked = LanguageModel(network), CausalLanguageModel(network)
    expected = plain.loss(batch)["loss"]
    grads = torch.autograd.grad(expected, network.parameters())
    monkeypatch.setattr(causal_lm, "CHUNKED_LOSS_VOCABULARY", 1)
    monkeypatch.setattr(causal_lm, "MAX_EVAL_LOGITS", 2 * 9 * 50)      # two examples at a time
    loss = chunked.loss(batch)["loss"]
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, network.parameters()), grads)
    torch.testing.assert_close(chunked.evaluate_batch(batch), plain.evaluate_batch(batch))


def test_causal_lm_weight_decay_applies_to_matrices_only():
    (player,) = CausalLanguageModel(GPT(50, context_length=9, embed_dim=16, num_layers=1, num_heads=2)).players()
    matrices, vectors = player.parameters
    assert all(p.ndim == 2 for p in matrices["params"]) and vectors["weight_decay"] == 0
    assert {p.ndim for p in vectors["params"]} == {1}


@pytest.fixture
def require_cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    pytest.importorskip("triton", reason="Triton is not installed")
    torch.manual_seed(0)


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1.0, 60.0])                               # 60: probabilities round to 0 and 1
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("vocab_size", "columns"), [(67, 128), (8192, 8192), (50_257, 50_304), (70_001, 70_016)])
def test_fused_cross_entropy_matches_torch_row_by_row(require_cuda, vocab_size, columns, dtype, scale):
    from didact.kernels.cross_entropy import fused_cross_entropy

    z, y = (
        (scale * torch.randn(300, columns, device="cuda")).to(dtype),
        torch.randint(vocab_size, (300,), device="cuda"),
    )
    y[4:7], y[7], y[8], z[8, 5] = -100, vocab_size - 1, 1, -torch.inf
    x = z[:, :vocab_size].float().requires_grad_()
    expected = cross_entropy(x, y, reduction="none")
    expected.sum().backward()
    loss = fused_cross_entropy(z, y, vocab_size, -100)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(z[:, :vocab_size].float(), x.grad, rtol=2**-8, atol=1e-6 * scale)
    assert not z[:, vocab_size:].any() and not z[4:7].any() and loss.dtype == torch.float32


def compute_loss_and_gradients(loss, h, w, y):
    with torch.autocast("cuda", torch.bfloat16):
        value = loss(h, w, y)
    return value.detach(), *torch.autograd.grad(value, (h, w))


@pytest.mark.gpu
# torch 2.11's own, while it compiles
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("compiled", [False, True])
def test_fused_cross_entropy_gives_the_same_loss_and_gradients(require_cuda, monkeypatch, compiled):
    h, w = (
        torch.randn(500, 64, device="cuda", requires_grad=True),
        torch.randn(50_257, 64, device="cuda", requires_grad=True),
    )
    y = torch.randint(50_257, (500,), device="cuda")
    y[3:30] = -100
    chunked_loss = partial(chunked_cross_entropy, chunk_size=200)
    monkeypatch.setattr(chunked_module, "USE_FUSED_KERNEL", True)
    fused_results = compute_loss_and_gradients(
        torch.compile(chunked_loss, fullgraph=True) if compiled else chunked_loss, h, w, y
    )
    monkeypatch.setattr(chunked_module, "USE_FUSED_KERNEL", False)
    for fused, plain in zip(fused_results, compute_loss_and_gradients(chunked_loss, h, w, y), strict=True):
        torch.testing.assert_close(fused, plain, rtol=2e-2, atol=2e-2 * plain.abs().max().item())
        assert torch.cosine_similarity(fused.flatten(), plain.flatten(), dim=0) > 0.9999
    exact = cross_entropy(h.double() @ w.double().T, y)
    assert fused_results[0].item() == pytest.approx(exact.item(), rel=1e-2)


@pytest.mark.gpu
def test_captured_fused_cross_entropy_reads_the_current_inputs(require_cuda):
    from didact.kernels.cross_entropy import fused_cross_entropy

    z, y = torch.zeros(64, 5056, device="cuda", dtype=torch.bfloat16), torch.randint(5000, (64,), device="cuda")
    fused_cross_entropy(z.clone(), y, 5000, -100)                                       # compiled before it is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = fused_cross_entropy(z, y, 5000, -100)
    for _ in range(2):
        new_logits = torch.randn(64, 5056, device="cuda").bfloat16()
        z.copy_(new_logits)
        graph.replay()
        torch.testing.assert_close(
            loss, cross_entropy(new_logits[:, :5000].float(), y, reduction="none"), rtol=1e-5, atol=1e-4
        )
