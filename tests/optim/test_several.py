import torch
from torch import nn

from didact.optim.muon import muon
from didact.optim.several import Several


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 5 * 4, 6), nn.Linear(6, 3))


def train(model, optimizer, steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 1, 7, 6, generator=generator)).square().mean().backward()
        optimizer.step()


def test_muon_is_torchs_two_on_their_own_parameters():
    ours, theirs = network(), network()
    matrices = [p for p in theirs.parameters() if p.ndim == 2]
    others = [p for p in theirs.parameters() if p.ndim != 2]
    train(ours, muon(ours.parameters(), lr=0.01, weight_decay=0.1), 4)
    a = torch.optim.Muon(matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    b = torch.optim.AdamW(others, lr=0.01, weight_decay=0.1)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        theirs.zero_grad()
        theirs(torch.randn(8, 1, 7, 6, generator=generator)).square().mean().backward()
        a.step()
        b.step()
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_muon_takes_groups_and_networks_of_one_kind():
    model = nn.Linear(3, 2)
    optimizer = muon([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}], lr=0.1)
    assert sorted(g["lr"] for g in optimizer.param_groups if g["params"]) == [0.1, 0.5]
    assert len(muon([model.bias]).parts) == len(muon([model.weight]).parts) == 1


def test_groups_hooks_and_zero_grad_reach_every_part():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = Several(torch.optim.SGD([a], lr=1.0), torch.optim.SGD([b], lr=1.0))
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(a.tolist() + b.tolist()))
    for group, lr in zip(optimizer.param_groups, (0.5, 0.25), strict=True):
        group["lr"] = lr
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert calls == [[0.5, 0.5, 0.75, 0.75]]
    optimizer.zero_grad()
    assert a.grad is None and b.grad is None


def test_after_loading_the_parts_still_follow_their_groups():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    adagrad = torch.optim.Adagrad([a], lr=1.0)
    adagrad.state[a]["sum"].fill_(3.0)
    optimizer = Several(adagrad, torch.optim.SGD([b], lr=1.0, momentum=0.9))
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    (a.sum() + b.sum()).backward()
    optimizer.step()
    assert a.tolist() == b.tolist() == [1.0, 1.0]
    assert optimizer.state_dict()["state"][0]["sum"].tolist() == [4.0, 4.0] and "momentum_buffer" in optimizer.state_dict()["state"][1]
