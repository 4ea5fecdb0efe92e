"""Every named optimizer: it lowers a loss, and its state continues bit for bit."""

import io
from functools import partial

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.optim.factory import DEFAULT_LR, OPTIMIZERS, make_optimizer
from didact.optim.for_device import build_optimizer, can_capture_step, set_lr
from didact.optim.muon import muon_with_adamw

OPTIMIZER_NAMES = sorted(OPTIMIZERS)


def make_network(device="cpu"):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 2)).to(device)


def train_steps(model, optimizer, steps, *, first_step=0, total_steps=None):
    """Full-batch steps on a synthetic regression; with `total_steps`, under a learning-rate schedule."""
    device = next(model.parameters()).device
    x = torch.linspace(-1, 1, 100).reshape(20, 5).to(device)
    y = torch.stack([x.sum(1), x[:, 0] ** 2], 1)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    losses = []
    for step in range(first_step, first_step + steps):
        if total_steps:
            set_lr(optimizer, 1 - step / total_steps, 0.9 + 0.05 * step / total_steps)
        losses.append(closure().item())
        optimizer.step(*([closure] if getattr(optimizer, "needs_closure", False) else []))
    return losses


@pytest.mark.parametrize("name", OPTIMIZER_NAMES)
def test_every_optimizer_lowers_a_quadratic(name):
    torch.manual_seed(0)
    w, b = torch.full((3, 4), 0.5, requires_grad=True), torch.zeros(3, requires_grad=True)
    target = 0.5 * torch.randn(3, 4)
    optimizer = make_optimizer(name, lr=10 * DEFAULT_LR[name])([w, b])

    def closure():
        optimizer.zero_grad()
        loss = (w - target).square().sum() + (b - 0.2).square().sum()
        loss.backward()
        return loss

    first = closure().item()
    for _ in range(300):
        optimizer.step(*([closure] if getattr(optimizer, "needs_closure", False) else []))
        loss = closure().item()
    assert loss < 0.3 * first


@pytest.mark.parametrize("name", OPTIMIZER_NAMES)
def test_every_optimizer_state_continues_bit_for_bit(name):
    factory = make_optimizer(name, weight_decay=0.01)
    uninterrupted_model = make_network()
    train_steps(
        uninterrupted_model, build_optimizer(factory, uninterrupted_model.parameters(), "cpu"), 8, total_steps=10
    )

    model = make_network()
    optimizer = build_optimizer(factory, model.parameters(), "cpu")
    train_steps(model, optimizer, 5, total_steps=10)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    model = make_network()
    model.load_state_dict(weights)
    optimizer = build_optimizer(factory, model.parameters(), "cpu")
    optimizer.load_state_dict(state)
    train_steps(model, optimizer, 3, first_step=5, total_steps=10)
    assert all(torch.equal(p, q) for p, q in zip(uninterrupted_model.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("name", OPTIMIZER_NAMES)
def test_build_optimizer_equals_the_plain_factory(name):
    factory = make_optimizer(name, weight_decay=0.01)
    a, b = make_network(), make_network()
    train_steps(a, build_optimizer(factory, a.parameters(), "cpu"), 6)
    train_steps(b, factory(b.parameters()), 6)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw", "sam"])
def test_build_optimizer_fuses(name):
    assert all(
        g["fused"] for g in build_optimizer(make_optimizer(name), make_network().parameters(), "cpu").param_groups
    )


def test_build_optimizer_respects_a_choice_and_takes_any_callable():
    params = list(make_network().parameters())
    assert not build_optimizer(partial(torch.optim.Adam, foreach=True), params, "cpu").param_groups[0]["fused"]
    assert not build_optimizer(partial(torch.optim.Adam, fused=False), params, "cpu").param_groups[0]["fused"]
    assert build_optimizer(torch.optim.Adam, params, "cpu").param_groups[0]["fused"]
    plain_optimizer = build_optimizer(lambda p: torch.optim.Adam(p, lr=0.5), params, "cpu")
    assert not plain_optimizer.param_groups[0]["fused"] and plain_optimizer.param_groups[0]["initial_lr"] == 0.5
    rate_group = build_optimizer(partial(torch.optim.SGD, lr=torch.tensor(0.5)), params, "cpu").param_groups[0]
    assert type(rate_group["lr"]) is type(rate_group["initial_lr"]) is float
    assert not can_capture_step(plain_optimizer)
    assert not can_capture_step(build_optimizer(muon_with_adamw, params, "cpu"))


def test_set_lr_writes_the_rate_and_only_a_momentum_in_use():
    params = [torch.ones(2, 2, requires_grad=True)]
    momentum_keys = {"momentum": "momentum", "adam": "betas", "lion": "betas", "lars": "momentum", "sgd": None}
    for name, key in momentum_keys.items():
        optimizer = build_optimizer(make_optimizer(name, lr=0.5), params, "cpu")
        old_group = dict(optimizer.param_groups[0])
        set_lr(optimizer, 0.1, 0.8)
        group = optimizer.param_groups[0]
        assert group["lr"] == pytest.approx(0.05) and group["initial_lr"] == 0.5
        assert {k for k in old_group if k not in ("lr", "params") and old_group[k] != group[k]} == (
            {key} if key else set()
        )
    assert build_optimizer(make_optimizer("adam"), params, "cpu").param_groups[0]["betas"] == (0.9, 0.999)
    tensor_rate = build_optimizer(make_optimizer("lion", lr=0.5), params, "cpu")
    rate = tensor_rate.param_groups[0]["lr"] = torch.tensor(0.5)
    set_lr(tensor_rate, 0.1)
    assert rate.item() == pytest.approx(0.05)  # written in place: a graph has captured this tensor


def test_weight_decay_is_decoupled_except_for_adam():
    """With a zero gradient, decoupled decay shrinks w by the fraction η λ; Adam's L2 is a gradient and is normalized.
    """
    for name in ("adamw", "lion", "muon", "sgd"):  # for SGD the two are one
        w = torch.full((2, 2), 4.0, requires_grad=True)
        w.grad = torch.zeros(2, 2)
        make_optimizer(name, lr=0.1, weight_decay=0.5)([w]).step()
        assert w[0, 0].item() == pytest.approx(4 * (1 - 0.1 * 0.5)), name
    w = torch.full((2, 2), 4.0, requires_grad=True)
    w.grad = torch.zeros(2, 2)
    make_optimizer("adam", lr=0.1, weight_decay=0.5)([w]).step()
    assert w[0, 0].item() == pytest.approx(4 - 0.1)


def test_make_optimizer_refuses_wrong_names_and_keywords():
    with pytest.raises(UsageError, match="did you mean 'adamw'"):
        make_optimizer("adamww")
    with pytest.raises(UsageError, match="nesterov needs a momentum of more than 0, got 0"):
        make_optimizer("nesterov", momentum=0.0)
    assert DEFAULT_LR.keys() == OPTIMIZERS.keys()


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", [name for name in OPTIMIZER_NAMES if name != "adagrad"])
def test_cuda_graph_captures_the_step_and_follows_the_rate(name):
    factory = make_optimizer(name, weight_decay=0.01)
    eager_model, captured_model = make_network("cuda"), make_network("cuda")
    a, b = (
        build_optimizer(factory, eager_model.parameters(), "cuda"),
        build_optimizer(factory, captured_model.parameters(), "cuda"),
    )
    assert can_capture_step(b)
    x = torch.randn(20, 5, device="cuda")

    def train_step(model, optimizer):
        def closure():
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().mean()
            loss.backward()
            return loss

        closure()
        optimizer.step(*([closure] if getattr(optimizer, "needs_closure", False) else []))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            train_step(captured_model, b)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train_step(captured_model, b)
    for step in range(6):
        if step >= 2:
            set_lr(a, 1 - step / 10)
        train_step(eager_model, a)
    for step in range(2, 6):
        set_lr(b, 1 - step / 10)
        graph.replay()
    for p, q in zip(eager_model.parameters(), captured_model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", OPTIMIZER_NAMES)
@pytest.mark.parametrize(("source_device", "target_device"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_optimizer_state_moves_between_devices(name, source_device, target_device):
    factory = make_optimizer(name, weight_decay=0.01)
    source_model, target_model, reference_model = (
        make_network(source_device),
        make_network(target_device),
        make_network(source_device),
    )
    optimizer = build_optimizer(factory, source_model.parameters(), source_device)
    train_steps(source_model, optimizer, 4, total_steps=10)
    file = io.BytesIO()
    torch.save([source_model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True, map_location="cpu")
    target_model.load_state_dict(weights)
    target_optimizer = build_optimizer(factory, target_model.parameters(), target_device)
    could_capture = can_capture_step(target_optimizer)
    target_optimizer.load_state_dict(state)
    assert can_capture_step(target_optimizer) == could_capture
    train_steps(target_model, target_optimizer, 3, first_step=4, total_steps=10)
    train_steps(
        reference_model, build_optimizer(factory, reference_model.parameters(), source_device), 7, total_steps=10
    )
    # Muon rounds to bfloat16 inside on CUDA and Lion's sign may flip where two terms cancel: there only a step's size
    # is left
    atol = 2e-2 if name in ("muon", "lion") else 1e-4
    for p, q in zip(reference_model.parameters(), target_model.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q.cpu(), rtol=1e-4, atol=atol)


def test_sam_takes_its_radius():
    w = torch.zeros(2, requires_grad=True)
    assert make_optimizer("sam")([w]).rho == 0.05 and make_optimizer("sam", rho=0.2)([w]).rho == 0.2
