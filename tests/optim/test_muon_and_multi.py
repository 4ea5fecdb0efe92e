import torch
from torch import nn

from didact.optim.multi import MultiOptimizer
from didact.optim.muon import muon_with_adamw, newton_schulz


def test_muon_equals_torch_muon_and_adamw():
    generator = torch.Generator().manual_seed(1)
    start_values = [torch.randn(shape, generator=generator) for shape in ((12, 30), (30, 12), (12,), (4, 3, 3, 3))]
    parameters, torch_parameters = ([nn.Parameter(p.clone()) for p in start_values] for _ in range(2))
    optimizers = [
        muon_with_adamw(parameters, lr=0.01, weight_decay=0.1),
        torch.optim.Muon(torch_parameters[:2], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(torch_parameters[2:], lr=0.01, weight_decay=0.1),
    ]
    for _ in range(4):
        # of full rank: Newton–Schulz would amplify the rounding errors of zero singular values
        for p, q in zip(parameters, torch_parameters, strict=True):
            p.grad = torch.randn(p.shape, generator=generator)
            q.grad = p.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for p, q, start_value in zip(parameters, torch_parameters, start_values, strict=True):
        tolerance = 0.02 if p.ndim == 2 else 1e-6            # PyTorch's multiplies in bfloat16
        assert (p - q).norm() <= tolerance * (q - start_value).norm()


def test_newton_schulz_keeps_singular_vectors_and_evens_the_values():
    for shape in ((5, 9), (9, 5), (6, 6)):
        m = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        u, s, vh = torch.linalg.svd(m, full_matrices=False)
        singular_basis = u.mT @ newton_schulz(m) @ vh.mT
        torch.testing.assert_close(singular_basis, singular_basis.diagonal().diag(), rtol=0, atol=1e-9)
        assert s.max() / s.min() > 2 and singular_basis.diagonal().min() > 0.6 and singular_basis.diagonal().max() < 1.3


def test_muon_takes_groups_and_parameters_of_one_kind():
    model = nn.Linear(3, 2)
    optimizer = muon_with_adamw([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}], lr=0.1)
    assert sorted(g["lr"] for g in optimizer.param_groups if g["params"]) == [0.1, 0.5]
    assert len(muon_with_adamw([model.bias]).optimizers) == len(muon_with_adamw([model.weight]).optimizers) == 1


def test_multi_optimizer_groups_hooks_and_zero_grad_reach_every_optimizer():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = MultiOptimizer(torch.optim.SGD([a], lr=1.0), torch.optim.SGD([b], lr=1.0))
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(a.tolist() + b.tolist()))
    for group, lr in zip(optimizer.param_groups, (0.5, 0.25), strict=True):
        group["lr"] = lr
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert calls == [[0.5, 0.5, 0.75, 0.75]]
    optimizer.zero_grad()
    assert a.grad is None and b.grad is None


def test_multi_optimizer_follows_its_groups_after_loading():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    adagrad = torch.optim.Adagrad([a], lr=1.0)
    adagrad.state[a]["sum"].fill_(3.0)
    optimizer = MultiOptimizer(adagrad, torch.optim.SGD([b], lr=1.0, momentum=0.9))
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert a.tolist() == b.tolist() == [1.0, 1.0]
    assert (
        optimizer.state_dict()["state"][0]["sum"].tolist() == [4.0, 4.0]
        and "momentum_buffer" in optimizer.state_dict()["state"][1]
    )
