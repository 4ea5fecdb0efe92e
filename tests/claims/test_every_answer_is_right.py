"""Answers to what the courses ask or leave unprinted, each against a value computed another way.

An answer is not a check: nothing is stated that it could disagree with, so the comparison stands here. A broken formula
must miss the value.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import didact.claims  # noqa: F401 (registers the answers)
from didact.claims.forms import Approximately, ClaimForm, Equal, Exactly, to_comparable
from didact.claims.gaba import chapter_11 as gaba_11
from didact.claims.registry import ANSWERS, CHECKS, Check, check_claim, deterministic, load_statements
from didact.models.tabular.mlp import MLP
from helpers.claim_mutants import list_reached_functions, try_mutants


def count_parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def polynomial_errors_by_hand() -> dict[int, float]:
    """bias² + variance in closed form: the fit of sin πx itself, and σ² ‖g(x)ᵀ X⁺‖² over the grid."""
    x, grid = np.linspace(-1, 1, 10), np.linspace(-1, 1, 200)
    errors = {}
    for degree in (1, 3, 5, 9, 15):
        weights = np.vander(grid, degree + 1) @ np.linalg.pinv(np.vander(x, degree + 1))
        bias = weights @ np.sin(np.pi * x) - np.sin(np.pi * grid)
        errors[degree] = float((bias**2 + 0.09 * (weights**2).sum(1)).mean())
    return errors


def output_sizes_by_hand() -> Exactly:
    """(side + 2 padding − kernel) // stride + 1, and kernel² · in · out + out."""
    return Exactly(((32, (128 + 4 - 5) + 1, 25 * 3 * 32 + 32), (32, 64, 0), (64, (64 - 3) // 2 + 1, 9 * 32 * 64 + 64),
                    (128, 31, 9 * 64 * 128 + 128), (128, 1, 0)))


def receptive_fields_by_hand() -> Exactly:
    """r += (k − 1) jump, jump *= stride, on the longest path through 7 × 7, pooling and 3 + 4 + 6 + 3 bottlenecks."""
    def receptive_field(*, stride_on_first: bool) -> int:
        r, jump = 1 + 6, 2
        r, jump = r + 2 * jump, 2 * jump
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                first_stride, second_stride = (stride, 1) if stride_on_first else (1, stride)
                jump *= first_stride
                r, jump = r + 2 * jump, jump * second_stride
        return r

    return Exactly((receptive_field(stride_on_first=False), receptive_field(stride_on_first=True), 224))


def cifar10net_parameters_by_hand() -> Exactly:
    channels = (3, 64, 64, 128, 128, 256, 256)
    pairs = list(pairwise(channels))
    # and a scale and a shift for each map
    head_parameters = 256 * 128 + 128 + 128 * 10 + 10 + sum(2 * b for _, b in pairs)
    # depthwise and pointwise, each with its biases
    separable_parameters = sum(9 * a + a + a * b + b for a, b in pairs)
    return Exactly((separable_parameters + head_parameters, sum(9 * a * b + b for a, b in pairs) + head_parameters))


def torch_transformer_parameters() -> Exactly:
    """10,000 × 128, PyTorch's own encoder with its final norm, and a linear head of two classes."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 4, norm=nn.LayerNorm(128), enable_nested_tensor=False)
    return Exactly(
        count_parameters(encoder) + count_parameters(nn.Embedding(10_000, 128)) + count_parameters(nn.Linear(128, 2))
    )


def density_ratios_by_hand() -> Exactly:
    """p/(p + q) from e^{−(x−μ)²/2}."""
    def density(x: float, mean: float) -> float:
        return math.exp(-((x - mean) ** 2) / 2)

    return Exactly(tuple(round(density(x, 3) / (density(x, 3) + density(x, 0)), 6) for x in (0.0, 1.5, 3.0)))


def dcgan_parameters_by_hand() -> Exactly:
    generator = 100 * 256 * 4 * 4 + 256 * 128 * 3 * 3 + 128 * 64 * 4 * 4 + 64 * 4 * 4 + 2 * (256 + 128 + 64)
    discriminator = 64 * 4 * 4 + 64 * 128 * 4 * 4 + 128 * 256 * 3 * 3 + 256 * 4 * 4 + 2 * (128 + 256)
    return Exactly((generator, discriminator))


def vae_parameters_by_hand() -> Exactly:
    return Exactly(784 * 512 + 512 + 2 * (512 * 20 + 20) + 20 * 512 + 512 + 512 * 784 + 784)


def simple_unet_parameters_by_hand() -> Exactly:
    """Two convolutions, two norms and the time of each block, and one by one where the channels change."""
    def block_parameters(a: int, b: int) -> int:
        return 9 * a * b + b + 9 * b * b + b + 2 * a + 2 * b + 128 * b + b + (a * b + b) * (a != b)

    def upsampling_parameters(a: int, b: int) -> int:
        return 4 * a * b + b

    outer_parameters = 128 * 128 + 128 + 32 + 1
    inner_parameters = (
        block_parameters(32, 64)
        + block_parameters(64, 128)
        + upsampling_parameters(128, 64)
        + block_parameters(128, 64)
        + upsampling_parameters(64, 32)
        + block_parameters(64, 32)
    )
    return Exactly(
        (
            outer_parameters + inner_parameters + block_parameters(32, 32) + 9 * 32 + 32,
            outer_parameters + inner_parameters + block_parameters(1, 32),
        )
    )


LOSS_BY_MODEL_SIZE = {1e6: 3.2, 1e7: 2.8, 1e8: 2.5, 1e9: 2.3}


def fit_power_law() -> tuple[float, float]:
    """The normal equations of log L = a + b log N, by hand: N is a power of ten."""
    u, v = (
        np.array([math.log(n) for n in LOSS_BY_MODEL_SIZE]),
        np.array([math.log(l) for l in LOSS_BY_MODEL_SIZE.values()]),
    )
    b = ((u - u.mean()) * (v - v.mean())).sum() / ((u - u.mean()) ** 2).sum()
    return v.mean() - b * u.mean(), b


def exponent_by_hand() -> Approximately:
    return Approximately(-fit_power_law()[1], 1e-9, "rounding")


def extrapolated_loss_by_hand() -> Approximately:
    a, b = fit_power_law()
    return Approximately(math.exp(a + b * math.log(1e11)), 1e-9, "rounding")


def operations_by_hand() -> Exactly:
    n, d, layers = 2048, 4096, 32
    return Exactly(2 * n * layers * 12 * d**2 + 4 * n**2 * d * layers)


def federated_accuracies_by_hand() -> Exactly:
    """A second federated averaging, of state dicts with the same random numbers; and as many passes over all data."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    *client_indices, test_indices = torch.randperm(len(y)).split([100, 150, 200, 250, 300, len(y) - 1000])

    def train_one_pass(net: nn.Module, indices: torch.Tensor) -> None:
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for i in indices[torch.randperm(len(indices))].split(50):
            sgd.zero_grad()
            F.cross_entropy(net(x[i]), y[i]).backward()
            sgd.step()

    accuracies = []
    for clients in ([torch.cat(client_indices)], client_indices):
        torch.manual_seed(0)
        net = MLP(64, 10, hidden=(64,)).float()
        for round_number in range(1, 21):
            global_weights, mean_weights = {k: v.clone() for k, v in net.state_dict().items()}, {}
            for indices in clients:
                net.load_state_dict(global_weights)
                train_one_pass(net, indices)
                for k, v in net.state_dict().items():
                    mean_weights[k] = mean_weights.get(k, 0) + v * len(indices) / sum(map(len, clients))
            net.load_state_dict(mean_weights)
            if round_number in (1, 5, 20):
                accuracies.append(float((net(x[test_indices]).argmax(1) == y[test_indices]).double().mean()))
    return Exactly(tuple(accuracies))


EXPECTED_FORMS: dict[str, Callable[[], ClaimForm]] = {
    "C3.25": lambda: Exactly(min(polynomial_errors_by_hand(), key=polynomial_errors_by_hand().__getitem__)),
    "C4.27": output_sizes_by_hand,
    "C4.29": receptive_fields_by_hand,
    "C4.30": cifar10net_parameters_by_hand,
    "C7.7": torch_transformer_parameters,
    "C8.4": density_ratios_by_hand,
    "C8.10": dcgan_parameters_by_hand,
    "C9.8": vae_parameters_by_hand,
    "C10.16": simple_unet_parameters_by_hand,
    "C11.21": exponent_by_hand,
    "C11.22": extrapolated_loss_by_hand,
    "C12.8": operations_by_hand,
    "C12.10": federated_accuracies_by_hand,
}


@cache
def make_check(id: str) -> Check:
    """The answer as a check, as if the course had stated the value computed another way."""
    with deterministic():
        return Check(id, ANSWERS[id].function, EXPECTED_FORMS[id](), "", "", "")


def test_every_answer_has_an_expected_value():
    assert set(EXPECTED_FORMS) == set(ANSWERS)


@pytest.mark.parametrize("id", sorted(ANSWERS))
def test_answer_matches_the_expected_value(id):
    form, value = make_check(id).form, make_check(id).compute()
    assert form.matches(value), form.format(value)
    assert not any(perturbed.matches(value) for perturbed in form.perturbed_forms()) and list(form.perturbed_forms()), (
        "another value would do as well"
    )


@pytest.mark.parametrize("id", sorted(ANSWERS))
def test_answer_detects_a_mutant(id):
    undetected = []
    for text, (is_detected, _) in try_mutants(make_check(id), list_reached_functions(make_check(id))):
        if is_detected:
            return
        undetected += [text] * (is_detected is False)
    pytest.fail(f"no broken formula is noticed, such as {undetected[:8]}")


def test_polynomial_errors_match_the_closed_form():
    """C3.25 shows one error per degree: means over 100 datasets, with some 20 % of sampling noise."""
    errors = ANSWERS["C3.25"].run().numbers
    expected = polynomial_errors_by_hand()
    assert Equal(0.3).matches(([math.log(v) for v in errors.values()], [math.log(v) for v in expected.values()]))
    assert expected[3] < 0.9 * min(e for d, e in expected.items() if d != 3)


@pytest.mark.parametrize("id", sorted(ANSWERS))
def test_answer_is_not_a_check(id):
    outcome = check_claim(id)
    assert id not in CHECKS and outcome.verdict == "answered"
    assert outcome.note.startswith(
        "the course asks" if "question" in load_statements()[id].stated else "the course prints no value"
    )
    assert outcome.value == to_comparable(ANSWERS[id].run()) or isinstance(outcome.value, tuple), outcome.value


def test_lottery_ticket_is_pruned_before_its_first_gradient(monkeypatch):
    """C11.16, the lottery ticket: in every forward pass of the second network nine in ten weights are 0."""
    zero_fractions = []

    class RecordingMLP(MLP):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = torch.cat([p.detach().flatten() for p in self.parameters() if p.dim() == 2])
            zero_fractions.append(float((weights == 0).double().mean()))
            return super().forward(x)

    monkeypatch.setattr(gaba_11, "MLP", RecordingMLP)
    with deterministic():
        gaba_11.correct_after_pruning((0.0, 0.9))
    dense_fractions, pruned_fractions = (
        zero_fractions[: len(zero_fractions) // 2],
        zero_fractions[len(zero_fractions) // 2 :],
    )
    assert max(dense_fractions) == 0.0 and min(pruned_fractions) > 0.89
