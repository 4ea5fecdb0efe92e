"""A prior over a VQ-VAE's codes: its likelihood, what stays frozen, and images as they were asked for."""

import shutil
from itertools import product
from math import log

import pytest
import torch
from PIL import Image

import didact
from didact.cli.main import main
from didact.data.load import load
from didact.errors import UsageError
from didact.models.pixelcnn import PixelCNN
from didact.models.vqvae import VQVAE
from didact.objectives.code_prior import CodePrior
from didact.objectives.vector_quantised import VectorQuantised
from didact.registry import RECIPES
from didact.run import Run
from didact.samplers.draw import draw
from didact.train.session import evaluate, restored


def small(codes=3):
    torch.manual_seed(0)
    learned = VectorQuantised(VQVAE(shape=(1, 8, 6), widths=(4, 5), codes=codes, dim=4), variance=1.0)
    return CodePrior(PixelCNN(shape=(4, 2, 2), width=6, depth=2, outputs=codes), learned)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A VQ-VAE of digits in 4 × 4 codes, and a prior that was told the classes; the VQ-VAE's folder is gone by then."""
    runs = str(tmp_path_factory.mktemp("runs"))
    source = didact.train(RECIPES["vqvae"], widths=(24,), codes=32, epochs=6, lr=5e-3, runs=runs)
    weights = source.load("model")
    given = {"from_": str(source.folder), "conditional": True, "width": 24, "depth": 3, "epochs": 6, "lr": 8e-3}
    prior = didact.train(RECIPES["vqvae_prior"], **given, runs=runs)
    shutil.rmtree(source.folder)
    return weights, Run(prior.folder)


def test_all_maps_of_codes_together_have_probability_one():
    objective = small()
    every = torch.tensor(list(product(range(3), repeat=4))).view(81, 1, 2, 2)
    log_p = objective.logits(every, None).log_softmax(1).gather(1, every[:, None]).flatten(1).sum(1)
    assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-5)
    x = torch.rand(5, 1, 8, 6)
    k = objective.learned.eval().network.encode(x)[2]                                    # bits of an image are those of its codes
    place = (k.flatten(1) * 3 ** torch.arange(3, -1, -1)).sum(1)
    torch.testing.assert_close(objective.bits(x, None), -log_p[place] / (4 * log(2)))


def test_only_the_prior_learns():
    objective = small()
    before = {name: value.clone() for name, value in objective.learned.state_dict().items()}
    objective.train()
    optimizer = torch.optim.SGD(objective.players()[0].parameters, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        objective.loss({"x": torch.rand(6, 1, 8, 6)})["loss"].backward()
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in objective.learned.state_dict().items())   # statistics too
    assert {id(p) for p in objective.players()[0].parameters} == {id(p) for p in objective.network.parameters()}


def test_completion_keeps_what_is_known():
    objective = small().eval()
    x = torch.rand(3, 1, 8, 6)
    whole = objective.complete(x, 4, torch.Generator().manual_seed(0))
    assert whole.shape == x.shape and torch.equal(whole[:, :, :4], x[:, :, :4])
    other = torch.cat([x[:, :, :4], torch.rand(3, 1, 4, 6)], dim=2)
    assert torch.equal(objective.complete(other, 4, torch.Generator().manual_seed(0)), whole)    # the lost half is not looked at


def test_a_row_of_codes_is_known_only_where_all_its_pixels_are():
    """8 rows of pixels are 2 of codes: of up to 3 none is known, and what is drawn below them tells nothing of them; of 4 one is."""
    objective = small(codes=16).eval()
    images = 100 * torch.randn(2, 4, 1, 8, 6)                                            # so strong that their codes differ
    alike = [torch.equal(*(objective.complete(x, known, torch.Generator().manual_seed(0))[:, :, known:] for x in images))
             for known in range(6)]
    assert alike == [True] * 4 + [False] * 2


def test_codes_cost_less_than_each_place_alone(pair):
    weights, run = pair
    learned = {name.removeprefix("learned."): value for name, value in run.load("model").items() if name.startswith("learned.")}
    assert learned.keys() == weights.keys() and all(torch.equal(learned[name], value) for name, value in weights.items())
    objective, _ = restored(run)
    data = load("digits")
    k = [objective.leveled(data.split(part).batch(torch.arange(len(data.split(part))))["x"]).flatten(1) for part in ("train", "test")]
    counts = torch.nn.functional.one_hot(k[0], 32).sum(0) + 0.5
    alone = -(counts / counts.sum(1, keepdim=True)).log2().gather(1, k[1].T).mean().item()
    assert run.facts["test"]["bits_per_code"] < alone - 0.3
    assert evaluate(run)["test"]["bits_per_code"] == pytest.approx(run.facts["test"]["bits_per_code"], rel=1e-4)
    assert run.load("gallery")["reconstructions"].shape == (2, 8, 1, 8, 8)


def test_digits_come_as_they_are_asked_for(pair, here):
    _, run = pair
    judge, _ = restored(didact.train(RECIPES["mlp"], hidden=(64,), epochs=6))
    with torch.no_grad():
        right = [(judge.classify({"x": draw(run, 30, label=str(k))}).argmax(1) == k).float().mean().item() for k in range(10)]
    assert sum(right) / 10 > 0.5                                                        # chance is 0.1


def test_the_verb_draws_and_completes(pair, here, capsys):
    folder = str(pair[1].folder)
    assert main(["sample", folder, "--n", "5", "--label", "7", "--temperature", "0.8", "--to", "new.png"]) == 0
    Image.fromarray(load("digits").test.columns["x"][0, 0].numpy()).save("digit.png")
    assert main(["sample", folder, "--complete", "digit.png", "--n", "6", "--to", "whole.png"]) == 0
    assert "5 images in new.png\n6 ways to go on from the top half in whole.png" in capsys.readouterr().out
    with Image.open("new.png") as one, Image.open("whole.png") as other:
        assert one.size == (5 * 9 - 1, 8) and other.size == (8 * 9 - 1, 8)


@pytest.mark.parametrize(("given", "complaint"), [
    ({"from_": "PRIOR"}, "--from expects a run of vqvae, got .*, which trained vqvae_prior"),
    ({"coder": "vae"}, "no recipe named 'vae'; did you mean 'vqvae'"),
    ({"coder": "vqvae code=3"}, "no option of vqvae named 'code'; did you mean 'codes'"),
    ({"kernel": 4}, "must be odd, got 4"),
])
def test_bad_input(pair, given, complaint):
    given = {name: str(pair[1].folder) if value == "PRIOR" else value for name, value in given.items()}
    with pytest.raises(UsageError, match=complaint):
        RECIPES["vqvae_prior"](load("digits"), **given)
