"""Recipes with a source run, consistency and latent diffusion: what is taken over, saved and refused."""

import shutil
from dataclasses import replace

import pytest
import torch
from PIL import Image

import didact
from didact.cli.main import main
from didact.data.core import SPLITS, TensorSplit
from didact.data.load import load
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.sample_images import sample_images
from didact.recipes._source_run import resolve_source_run
from didact.registry import RECIPES
from didact.run import Run
from didact.training.prepare import prepare
from didact.training.restore import load_model
from didact.training.sweeps.parallel_sweep import DataCache

TEACHER = {
    "channels": (8, 16),
    "time_dim": 16,
    "timesteps": 50,
    "prediction_type": "velocity",
    "conditional": True,
    "sampling_steps": 5,
}


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beginnings")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        didact.train(RECIPES["diffusion"], **TEACHER, steps=30)
        didact.train(RECIPES["vqvae"], channels=(8, 16), codebook_size=16, code_dim=6, epochs=1)
        didact.train(RECIPES["vae"], latent_dim=3, hidden=(16,), conditional=True, steps=2)
        # in colour, and twice as large as they are learned
        for k in range(40):
            (folder / "own" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (6 * k, 99, 255 - 6 * k)).save(folder / "own" / "ab"[k % 2] / f"{k}.png")
        data_options = {"data": "own", "size": 8, "split_seed": 3, "runs": "of own", "steps": 2}
        didact.train(RECIPES["diffusion"], **TEACHER, **data_options)
        didact.train(RECIPES["vqvae"], channels=(8, 16), codebook_size=16, code_dim=6, **data_options)
    return folder


@pytest.fixture
def workdir(runs_folder, monkeypatch):
    monkeypatch.chdir(runs_folder)
    return runs_folder


def test_consistency_starts_from_its_teacher_and_needs_it_no_more(workdir):
    teacher_run = Run.open("diffusion/latest")
    run = didact.train(RECIPES["consistency"], from_="diffusion/latest", num_intervals=10, steps=1, lr=1e-9)
    arguments = run.metadata["arguments"]
    assert arguments["from_"] == str(teacher_run.folder)
    # velocity is the default
    words = "diffusion timesteps=50 sampling_steps=5 channels=8,16 time_dim=16 conditional=yes"
    assert arguments["teacher"] == words and any(words in note for note in run.metadata["notes"])
    assert f"--from {teacher_run.folder}" in run.metadata["command_to_repeat"]
    network, weights = teacher_run.load("model"), run.load("model")
    teacher_weights = {
        name.removeprefix("network."): value for name, value in network.items() if name.startswith("network.")
    }
    for part in ("network", "teacher", "target"):
        assert teacher_weights and all(
            torch.allclose(weights[f"{part}.{name}"], value, atol=1e-6) for name, value in teacher_weights.items()
        )
    samples = sample_images(run, 4, label="3", steps=2)
    moved_folder = teacher_run.folder.rename(teacher_run.folder.with_name("elsewhere"))
    try:
        # rebuilt from its own folder alone
        assert torch.equal(samples, sample_images(run, 4, label="3", steps=2))
        assert evaluate(run)["test"]["loss"] == pytest.approx(run.metadata["test"]["loss"], rel=1e-4)
    finally:
        moved_folder.rename(teacher_run.folder)


def test_latent_diffusion_takes_the_codes_of_a_run(workdir):
    run = didact.train(
        RECIPES["latent_diffusion"],
        from_="vqvae/latest",
        timesteps=20,
        sampling_steps=4,
        channels=(16, 32),
        time_dim=16,
        steps=3,
    )
    autoencoder_weights, weights = Run.open("vqvae/latest").load("model"), run.load("model")
    assert all(torch.equal(weights[f"autoencoder.model.{k}"], v) for k, v in autoencoder_weights.items())
    assert weights["scale"].min() > 0.1 and weights["location"].abs().max() > 0
    assert "latents of 6 × 2 × 2 numbers, standardized" in " ".join(run.metadata["notes"])
    objective, _ = load_model(run)
    x = load("digits").train.columns["x"][:256] / 255
    assert objective.to_model_space(x).std().item() == pytest.approx(1, abs=0.1)
    assert {"samples", "reverse process", "forward process", "interpolation", "schedule"} == set(run.load("gallery"))


@pytest.mark.parametrize("name, source_recipe, options", [
    ("consistency", "diffusion", {"num_intervals": 5}), ("vqvae_prior", "vqvae", {"channels": 4, "num_layers": 1}),
    ("latent_diffusion", "vqvae", {"timesteps": 20, "sampling_steps": 4, "channels": (8,), "time_dim": 8}),
])
def test_data_of_the_source_run_are_taken(workdir, name, source_recipe, options):
    source_run = Run.open(f"{source_recipe}/latest", "of own")
    run = didact.train(RECIPES[name], from_=f"{source_recipe}/latest", runs="of own", steps=1, **options)
    own_data, source_data = run.metadata["data"], source_run.metadata["data"]
    assert (
        own_data["source"] == source_data["source"]
        and own_data["fingerprint"] == source_data["fingerprint"]
        and own_data["shape"] == [3, 8, 8]
    )
    assert (own_data["source"]["size"], own_data["source"]["seed"]) == (8, 3)
    assert all(torch.equal(run.load_indices()[part], source_run.load_indices()[part]) for part in SPLITS)
    command = run.metadata["command_to_repeat"]
    assert (
        f"--data {workdir / 'own'}" in command
        and "--size 8" in command
        and "--split-seed 3" in command
        and f"--from '{source_run.folder}'" in command
    )


def test_given_options_win_over_those_of_the_source_run(workdir):
    options = {"from_": "vqvae/latest", "runs": "of own"}
    prepared = prepare("vqvae_prior", options | {"split_seed": 4})
    assert prepared.settings.split_seed == 4 and prepared.settings.size == 8 and prepared.data.name == "own"
    with pytest.raises(
        UsageError,
        match="of 8×8 pixels, 3 channels, but those of 'own' have 16×16 pixels, 3 channels; leave out --data",
    ):
        prepare("vqvae_prior", options | {"data": "own"})
    with pytest.raises(
        UsageError,
        match="of 8×8 pixels, 3 channels, but those of 'digits' have 8×8 pixels, 1 channel; leave out --data",
    ):
        prepare("vqvae_prior", options | {"data": "digits"})
    # begins with no run: the recipe's own
    assert prepare("vqvae_prior", {}).data.name == "digits"


def test_sweep_cell_reads_the_data_of_its_source_run(workdir):
    cache, runs = DataCache(), [Run.open("vqvae/latest", root).folder for root in ("runs", "of own", "runs")]
    assert [cache.prepare(RECIPES["vqvae_prior"], {"from_": str(run)}).data.name for run in runs] == [
        "digits",
        "own",
        "digits",
    ]


def test_source_run_without_loadable_data_asks_for_data(workdir):
    shutil.copytree("own", "moved")
    run = didact.train(
        RECIPES["vqvae"], channels=(8,), codebook_size=4, code_dim=2, data="moved", runs="of moved", steps=1
    )
    shutil.rmtree("moved")
    with pytest.raises(
        UsageError, match=r"learned from .*moved, which is no longer there; name it with --data"
    ):
        prepare("vqvae_prior", {"from_": str(run.folder)})
    assert prepare("vqvae_prior", {"from_": str(run.folder), "data": "own"}).data.name == "own"
    data = replace(load("digits"), source={"given": "mine"})
    run = didact.train(
        RECIPES["vqvae"], data=data, channels=(8,), codebook_size=4, code_dim=2, runs="of given", steps=1
    )
    with pytest.raises(UsageError, match="given in Python; give --data"):
        prepare("vqvae_prior", {"from_": str(run.folder)})


def test_source_run_of_other_arguments_is_refused(workdir):
    with pytest.raises(UsageError, match=r"is not vqvae codebook_size=5 on 'digits' .*; give --from alone"):
        didact.train(RECIPES["vqvae_prior"], from_="vqvae/latest", autoencoder="vqvae codebook_size=5", steps=1)


def test_recipe_and_arguments_are_parsed():
    data = load("digits")
    source = resolve_source_run(
        None, "vae network=conv latent_dim=3 hidden=8,16", data, allowed_recipes=("vqvae", "vae")
    )
    assert (
        source.arguments == {"network": "conv", "latent_dim": 3, "hidden": (8, 16)}
        and source.description == "vae network=conv latent_dim=3 hidden=8,16"
    )
    assert resolve_source_run(None, None, data, allowed_recipes=("vqvae", "vae")).description == "vqvae"
    with pytest.raises(UsageError, match="vae has no option --latents; did you mean 'latent-dim'"):
        resolve_source_run(None, "vae latents=3", data, allowed_recipes=("vqvae", "vae"))
    with pytest.raises(UsageError, match="no recipe named 'gan'"):
        resolve_source_run(None, "gan", data, allowed_recipes=("vqvae", "vae"))


@pytest.mark.parametrize(
    "words, message",
    [
        ("consistency --from vqvae/latest", "--from expects a run of diffusion, got"),
        ("consistency --from nowhere", "no run named 'nowhere' under runs"),
        (
            "consistency --from diffusion/latest --num-intervals 51",
            "--num-intervals must be at most 50, the timesteps of the teacher, got 51",
        ),
        ("consistency --teacher vae", "no recipe named 'vae'"),
        ("latent_diffusion --from diffusion/latest", "--from expects a run of vqvae or vae, got"),
        ("latent_diffusion --from vae/latest", "the autoencoder must not be class-conditional"),
        ("latent_diffusion --timesteps 10 --sampling-steps 11", "in 1 to 10 of them, got 11"),
        ("latent_diffusion --guidance 2", "needs a class-conditional model; add --conditional"),
    ],
)
def test_bad_source_run_is_refused_in_one_line(workdir, capsys, words, message):
    assert main(["train", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err and err.strip().count("\n") == 0


def test_source_run_refuses_images_of_another_shape(workdir):
    data = load("digits")
    for other_shape in ((1, 8, 10), (3, 8, 8)):
        columns = {
            part: {"x": torch.zeros(20, *other_shape, dtype=torch.uint8), "y": torch.arange(20) % 10} for part in SPLITS
        }
        other_data = replace(
            data, shape=other_shape, **{part: TensorSplit(columns[part], data.train.decoders) for part in SPLITS}
        )
        with pytest.raises(
            UsageError, match=r"learned images of 8×8 pixels, 1 channel, but those of .*; leave out --data and --size"
        ):
            RECIPES["consistency"](other_data, from_="diffusion/latest")


@pytest.mark.slow
def test_consistency_beats_its_teacher_in_one_step(workdir):
    teacher_run = didact.train(RECIPES["diffusion"], prediction_type="velocity")
    run = didact.train(RECIPES["consistency"], from_=str(teacher_run.folder))
    judge = didact.train(RECIPES["cnn"])
    from didact.inference.evaluate_samples import quality_vs_classifier

    student, teacher = (
        quality_vs_classifier(r, judge, sample_images(r, 500, steps=1))["frechet"] for r in (run, teacher_run)
    )
    assert student < 0.25 * teacher and run.metadata["test"]["frechet"] < 0.8      # measured: 27 and 278; 0.36
    shutil.rmtree(teacher_run.folder)
    assert sample_images(run, 2).shape == (2, 1, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize("autoencoder", ["vqvae", "vae network=conv latent_dim=16 beta=0.3 likelihood=gaussian"])
def test_latent_diffusion_draws_digits(autoencoder, workdir):
    test = didact.train(RECIPES["latent_diffusion"], autoencoder=autoencoder).metadata["test"]
    assert test["frechet"] < 1.0 and test["class_coverage"] >= 0.9 and test["confidence"] > 0.75
