"""The loop learns digits, and gives the same numbers as PyTorch's after ten steps."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from didact.scratch import modules, optim, schedule
from didact.scratch.losses import cross_entropy
from didact.scratch.train import accuracy, shuffle_batches, train


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return (x[order] / 16).astype(np.float32), y[order]


def test_an_mlp_learns_digits(digits):
    x, y = digits
    net = modules.Sequential(
        modules.Linear(64, 32, rng=0),
        modules.BatchNorm1d(32),
        modules.ReLU(),
        modules.Dropout(0.1, rng=1),
        modules.Linear(32, 10, rng=2),
    )
    batches = list(shuffle_batches(x[:1400], y[:1400], batch_size=64, epochs=8, rng=3))
    losses = train(net, batches, cross_entropy, optim.AdamW(net.parameters(), lr=1e-2), clip=1.0,
                   schedule=partial(schedule.warmup_cosine, lr=1e-2, warmup=10, total=len(batches)))
    assert np.mean(losses[-10:]) < 0.3 < 1.5 < losses[0]
    assert accuracy(net, x[1400:], y[1400:]) > 0.9


def test_a_cnn_learns_digits(digits):
    x, y = digits[0].reshape(-1, 1, 8, 8), digits[1]
    net = modules.Sequential(
        modules.Conv2d(1, 8, 3, padding=1, rng=0),
        modules.ReLU(),
        modules.MaxPool2d(2),
        modules.Conv2d(8, 16, 3, padding=1, rng=1),
        modules.ReLU(),
        modules.MaxPool2d(2),
        modules.Flatten(),
        modules.Linear(64, 10, rng=2),
    )
    train(
        net,
        shuffle_batches(x[:1400], y[:1400], batch_size=64, epochs=5, rng=3),
        cross_entropy,
        optim.Adam(net.parameters(), lr=1e-2),
    )
    assert accuracy(net, x[1400:], y[1400:]) > 0.9


def test_ten_training_steps_match_torch(digits):
    x, y = digits[0][:320].astype(float).reshape(-1, 1, 8, 8), digits[1][:320]
    layers, options, nn = modules, {"dtype": np.float64}, torch.nn
    # no bias before a batch norm: its gradient is 0 but for rounding, which Adam would blow up to full steps
    scratch_net = layers.Sequential(
        layers.Conv2d(1, 4, 3, bias=False, **options),
        layers.BatchNorm2d(4, **options),
        layers.ReLU(),
        layers.AvgPool2d(2),
        layers.Flatten(),
        layers.Linear(36, 10, **options),
    )
    torch.manual_seed(0)
    torch_net = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 10)
    )
    torch_net = torch_net.double()
    scratch_net.load_state_dict(torch_net.state_dict())
    batches = list(shuffle_batches(x, y, batch_size=32, rng=0))
    losses = train(scratch_net, batches, cross_entropy, optim.AdamW(scratch_net.parameters(), lr=1e-2))
    opt, expected = torch.optim.AdamW(torch_net.parameters(), lr=1e-2), []
    for a, b in batches:
        opt.zero_grad()
        loss = F.cross_entropy(torch_net(torch.from_numpy(a)), torch.from_numpy(b))
        loss.backward()
        opt.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    for name, value in torch_net.state_dict().items():
        np.testing.assert_allclose(scratch_net.state_dict()[name], value.numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


def test_shuffle_batches_yields_each_example_once_an_epoch():
    x = np.arange(10)
    batches = list(shuffle_batches(x, -x, batch_size=4, epochs=2, rng=0))
    assert [len(a) for a, _ in batches] == [4, 4, 2, 4, 4, 2]
    assert sorted(np.concatenate([a for a, _ in batches[:3]])) == list(range(10))
    assert all((a == -b).all() for a, b in batches)
    assert (batches[0][0] != batches[3][0]).any()
