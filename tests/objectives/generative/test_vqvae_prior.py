"""A prior over a VQ-VAE's codes: its likelihood, what stays frozen, and conditional samples."""

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
from didact.inference.evaluate import evaluate
from didact.inference.sample_images import sample_images
from didact.models.generative.pixelcnn import PixelCNN
from didact.models.generative.vqvae import VQVAE
from didact.objectives.generative.vqvae import VQVAEObjective
from didact.objectives.generative.vqvae_prior import CodePrior
from didact.registry import RECIPES
from didact.run import Run
from didact.training.restore import load_model


def make_small_prior(codes=3):
    torch.manual_seed(0)
    autoencoder = VQVAEObjective(VQVAE(shape=(1, 8, 6), widths=(4, 5), codebook_size=codes, code_dim=4), variance=1.0)
    return CodePrior(PixelCNN(shape=(4, 2, 2), channels=6, num_layers=2, outputs=codes), autoencoder)


@pytest.fixture(scope="module")
def vqvae_and_prior(tmp_path_factory):
    """A VQ-VAE of digits in 4 × 4 codes, and a class-conditional prior; the VQ-VAE's folder is deleted by then."""
    runs = str(tmp_path_factory.mktemp("runs"))
    source = didact.train(RECIPES["vqvae"], channels=(24,), codebook_size=32, epochs=6, lr=5e-3, runs=runs)
    weights = source.load("model")
    options = {"conditional": True, "channels": 24, "num_layers": 3, "epochs": 6, "lr": 8e-3}
    prior = didact.train(RECIPES["vqvae_prior"], from_=str(source.folder), **options, runs=runs)
    shutil.rmtree(source.folder)
    return weights, Run(prior.folder)


def test_vqvae_prior_probabilities_sum_to_one():
    objective = make_small_prior()
    all_codes = torch.tensor(list(product(range(3), repeat=4))).view(81, 1, 2, 2)
    log_p = objective.logits(all_codes, None).log_softmax(1).gather(1, all_codes[:, None]).flatten(1).sum(1)
    assert log_p.exp().sum().item() == pytest.approx(1, abs=1e-5)
    x = torch.rand(5, 1, 8, 6)
    # bits of an image are those of its codes
    k = objective.autoencoder.eval().network.encode(x)[2]
    code_index = (k.flatten(1) * 3 ** torch.arange(3, -1, -1)).sum(1)
    torch.testing.assert_close(objective.compute_bits(x, None), -log_p[code_index] / (4 * log(2)))


def test_vqvae_prior_trains_only_the_prior():
    objective = make_small_prior()
    state_before = {name: value.clone() for name, value in objective.autoencoder.state_dict().items()}
    objective.train()
    optimizer = torch.optim.SGD(objective.players()[0].parameters, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        objective.loss({"x": torch.rand(6, 1, 8, 6)})["loss"].backward()
        optimizer.step()
    # statistics too
    assert all(torch.equal(value, state_before[name]) for name, value in objective.autoencoder.state_dict().items())
    assert {id(p) for p in objective.players()[0].parameters} == {id(p) for p in objective.network.parameters()}


def test_vqvae_prior_completion_keeps_known_pixels():
    objective = make_small_prior().eval()
    x = torch.rand(3, 1, 8, 6)
    completed = objective.complete(x, 4, torch.Generator().manual_seed(0))
    assert completed.shape == x.shape and torch.equal(completed[:, :, :4], x[:, :, :4])
    changed_images = torch.cat([x[:, :, :4], torch.rand(3, 1, 4, 6)], dim=2)
    # the missing half has no effect
    assert torch.equal(objective.complete(changed_images, 4, torch.Generator().manual_seed(0)), completed)


def test_vqvae_prior_conditions_only_on_fully_known_rows_of_codes():
    """8 rows of pixels are 2 of codes: of up to 3 rows of pixels no row of codes is known, of 4 one is."""
    objective = make_small_prior(codes=16).eval()
    # so strong that their codes differ
    images = 100 * torch.randn(2, 4, 1, 8, 6)
    is_equal = [
        torch.equal(
            *(objective.complete(x, num_known, torch.Generator().manual_seed(0))[:, :, num_known:] for x in images)
        )
        for num_known in range(6)
    ]
    assert is_equal == [True] * 4 + [False] * 2


def test_vqvae_prior_beats_independent_codes(vqvae_and_prior):
    weights, run = vqvae_and_prior
    saved_autoencoder = {
        name.removeprefix("autoencoder."): value
        for name, value in run.load("model").items()
        if name.startswith("autoencoder.")
    }
    assert saved_autoencoder.keys() == weights.keys() and all(
        torch.equal(saved_autoencoder[name], value) for name, value in weights.items()
    )
    objective, _ = load_model(run)
    data = load("digits")
    k = [
        objective.quantize(data.split(part).batch(torch.arange(len(data.split(part))))["x"]).flatten(1)
        for part in ("train", "test")
    ]
    counts = torch.nn.functional.one_hot(k[0], 32).sum(0) + 0.5
    independent_bits = -(counts / counts.sum(1, keepdim=True)).log2().gather(1, k[1].T).mean().item()
    assert run.metadata["test"]["bits_per_code"] < independent_bits - 0.3
    assert evaluate(run)["test"]["bits_per_code"] == pytest.approx(run.metadata["test"]["bits_per_code"], rel=1e-4)
    assert run.load("gallery")["reconstructions"].shape == (2, 8, 1, 8, 8)


def test_vqvae_prior_samples_the_requested_digits(vqvae_and_prior, workdir):
    _, run = vqvae_and_prior
    classifier, _ = load_model(didact.train(RECIPES["mlp"], hidden=(64,), epochs=6))
    with torch.no_grad():
        accuracies = [
            (classifier.classify({"x": sample_images(run, 30, label=str(k))}).argmax(1) == k).float().mean().item()
            for k in range(10)
        ]
    assert sum(accuracies) / 10 > 0.5                                                        # chance is 0.1


def test_sample_verb_draws_and_completes_with_vqvae_prior(vqvae_and_prior, workdir, capsys):
    folder = str(vqvae_and_prior[1].folder)
    assert main(["sample", folder, "--n", "5", "--label", "7", "--temperature", "0.8", "--output", "new.png"]) == 0
    Image.fromarray(load("digits").test.columns["x"][0, 0].numpy()).save("digit.png")
    assert main(["sample", folder, "--inpaint", "digit.png", "--n", "6", "--output", "whole.png"]) == 0
    assert "5 images in new.png\n6 completions of the top half of digit.png in whole.png" in capsys.readouterr().out
    with Image.open("new.png") as samples_image, Image.open("whole.png") as completions_image:
        assert samples_image.size == (5 * 9 - 1, 8) and completions_image.size == (8 * 9 - 1, 8)


@pytest.mark.parametrize(("options", "message"), [
    ({"from_": "PRIOR"}, "--from expects a run of vqvae, got .*, which trained vqvae_prior"),
    ({"autoencoder": "vae"}, "no recipe named 'vae'; did you mean 'vqvae'"),
    ({"autoencoder": "vqvae codebook=3"}, "vqvae has no option --codebook; did you mean 'codebook-size'"),
    ({"kernel_size": 4}, "must be odd, so that the kernel has a center, got 4"),
])
def test_vqvae_prior_refuses_invalid_options(vqvae_and_prior, options, message):
    options = {name: str(vqvae_and_prior[1].folder) if value == "PRIOR" else value for name, value in options.items()}
    with pytest.raises(UsageError, match=message):
        RECIPES["vqvae_prior"](load("digits"), **options)
