"""The first adversarial networks on two moons: the gap between them stays empty."""

import pytest
import torch

import didact
from didact.data.load import load
from didact.registry import RECIPES
from didact.train.session import prepare


def betas(experiment):
    return {experiment.optimizer[who].keywords["betas"] for who in ("generator", "discriminator")}


def test_a_table_is_learned_without_momentum_and_judged_few_times():
    table, images = (prepare("gan", {"data": name}).experiment for name in ("moons", "digits"))
    assert betas(table) == {(0.0, 0.999)} and betas(images) == {(0.5, 0.999)}
    assert betas(prepare("gan", {"data": "moons", "beta1": 0.9}).experiment) == {(0.9, 0.999)}
    assert table.evaluate_every >= 1_000 > images.evaluate_every


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_few_points_lie_between_the_moons(tmp_path, seed):
    run = didact.train(RECIPES["gan"], data="moons", seed=seed, runs=str(tmp_path))
    train = load("moons").train
    real = train.batch(torch.arange(len(train)))
    drawn = run.load("gallery")["drawn rows"]
    away = torch.cdist(drawn[:, :2], real["x"])
    away[drawn[:, 2:].argmax(1)[:, None] != real["y"]] = torch.inf
    assert (away.amin(1) > 0.1).float().mean() < 0.12       # 0.06 and 0.02 measured; with momentum, judged 25 times, 0.16
    assert run.facts["test"]["frechet"] < 0.12
