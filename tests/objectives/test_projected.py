"""The loss in pieces beside PyTorch's own over all logits at once."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from didact.models.gpt import GPT
from didact.objectives import autoregressive
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
