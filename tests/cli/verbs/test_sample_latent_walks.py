"""`didact sample --interpolate` and `--traverse`: walks through the latent space."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import didact
from didact.data.images.render import encode_png
from didact.data.load import load
from didact.inference.latent_walks import interpolate_latents, traverse_latents
from didact.registry import RECIPES
from didact.run import Run
from didact.samplers.latent import slerp
from didact.training.restore import load_model

TINY_OPTIONS = {
    "vae": {"hidden": (8,), "latent_dim": 5, "conditional": True},
    "gan": {"hidden": (8,), "latent_dim": 4},
    "realnvp": {"data": "digits", "hidden": 4},
    "diffusion": {"channels": (8,), "time_dim": 8, "timesteps": 20, "sampling_steps": 3},
    "flow_matching": {"channels": (8,), "time_dim": 8, "sampling_steps": 2},
    "consistency": {
        "teacher": "diffusion channels=8 time_dim=8 timesteps=20 sampling_steps=2 prediction_type=velocity epochs=1",
        "num_intervals": 4,
    },
    "latent_diffusion": {
        "autoencoder": "vae hidden=8 latent_dim=6 epochs=1",
        "channels": (8,),
        "time_dim": 8,
        "timesteps": 20,
        "sampling_steps": 3,
    },
    "vqvae": {"channels": (8,)},
    "pixelcnn": {"channels": 4, "num_layers": 1, "levels": 2},
    "mlp": {"hidden": (4,)},
}
WALK_RECIPES = ("vae", "gan", "realnvp", "diffusion", "flow_matching", "consistency", "latent_diffusion")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walking")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, arguments in TINY_OPTIONS.items():
            didact.train(RECIPES[name], steps=2, **arguments)
        didact.train(RECIPES["vae"], data="iris", hidden=(8,), latent_dim=2, steps=2, runs="tables")
        didact.train(RECIPES["vae"], hidden=(64,), latent_dim=8, likelihood="gaussian", beta=0.1, epochs=8, runs="good")
        for name, image in zip(("seven", "one"), load("digits").test.batch(torch.tensor([3, 30]))["x"], strict=True):
            Path(f"{name}.png").write_bytes(encode_png(image))
    return folder


@pytest.mark.parametrize("name", WALK_RECIPES)
def test_interpolation_starts_and_ends_at_its_latent_codes(run_cli, name):
    run = Run.open(f"{name}/latest")
    objective, data = load_model(run)
    images = interpolate_latents(run, 3, seed=4)
    assert images.shape == (24, *data.shape)
    z = objective.sample_latents(6, torch.Generator().manual_seed(4))
    y = torch.arange(3) if name == "vae" else None
    with torch.no_grad():
        end_images = [objective.walk(part, y).clamp(0, 1) for part in (z[:3], z[3:])]
    torch.testing.assert_close(images[0::8].clamp(0, 1), end_images[0], atol=2e-4, rtol=0)
    torch.testing.assert_close(images[7::8].clamp(0, 1), end_images[1], atol=2e-4, rtol=0)
    assert not torch.equal(images, interpolate_latents(run, 3, seed=5)) and torch.equal(
        images, interpolate_latents(run, 3, seed=4)
    )


@pytest.mark.parametrize("name", WALK_RECIPES)
def test_traversal_changes_one_latent_dimension(run_cli, name):
    run = Run.open(f"{name}/latest")
    objective, _ = load_model(run)
    images = traverse_latents(run, "dim=3,0", extent=2.0, seed=1)
    z = objective.sample_latents(1, torch.Generator().manual_seed(1))
    expected_codes = z.repeat(2, *[1] * (z.ndim - 1))
    expected_codes[0].view(-1)[3], expected_codes[1].view(-1)[0] = 2.0, -2.0
    with torch.no_grad():
        expected = objective.walk(expected_codes, torch.zeros(2, dtype=torch.long) if name == "vae" else None)
    assert len(images) == 16
    torch.testing.assert_close(images[[7, 8]], expected, atol=2e-4, rtol=0)


@pytest.fixture
def image_pair(workdir, monkeypatch):
    monkeypatch.chdir(workdir)
    return load("digits").test.batch(torch.tensor([3, 30]))["x"]


def test_interpolation_between_two_images_passes_both(image_pair, run_cli):
    """Both ends are the reconstructions of the images: near their own, far from the other."""
    run = Run.open("vae/latest", "good")
    images = interpolate_latents(run, 0, ["seven.png", "one.png", "seven.png"])
    assert images.shape == (16, 1, 8, 8) and torch.equal(images[7], images[8]) and torch.equal(images[0], images[15])
    own_error, other_error = ((images[[0, 7]] - x).square().mean((1, 2, 3)) for x in (image_pair, image_pair.flip(0)))
    assert (own_error < 0.4 * other_error).all()
    step_sizes = (images[1:8] - images[:7]).square().mean((1, 2, 3))
    assert step_sizes.max() < 0.25 * (images[7] - images[0]).square().mean()                # no jump on the way
    output = run_cli("sample vae/latest --runs good --interpolate seven.png one.png seven.png --output way.png")
    assert "2 interpolations between two images in way.png" in output


def test_realnvp_interpolation_reproduces_both_images(image_pair, run_cli):
    """f is undone exactly: the ends are the images, on their sixteen levels."""
    images = interpolate_latents(Run.open("realnvp/latest"), 0, ["seven.png", "one.png"])
    torch.testing.assert_close(images[[0, 7]], (image_pair * 15).round() / 15, atol=1e-5, rtol=0)


def test_traversal_starts_from_an_image(image_pair, run_cli):
    run = Run.open("vae/latest", "good")
    objective, _ = load_model(run)
    images = traverse_latents(run, "dim=2", ["seven.png"], extent=1.0)
    with torch.no_grad():
        z = objective.encode({"x": image_pair[:1]})
        z[0, 2] = -1.0
        torch.testing.assert_close(images[:1], objective.walk(z), atol=1e-5, rtol=0)
    assert "traversal of dim=2,0 of seven.png from −1 to 1" in run_cli(
        "sample vae/latest --runs good --traverse dim=2,0 seven.png --traverse-range 1 --output edit.png"
    )


@pytest.mark.parametrize(("name", "runs"), [("vae", "good"), ("vae", "runs"), ("vqvae", "runs")])
def test_predict_reconstructs_an_image(image_pair, run_cli, name, runs):
    """Also by a conditional VAE without a class: as the class that explains the image best."""
    assert "restored back/seven-restored.png" in run_cli(f"predict {name}/latest --runs {runs} seven.png --output back")
    with Image.open("back/seven-restored.png") as image:
        assert image.size == (8, 8)
    objective, _ = load_model(Run.open(f"{name}/latest", runs))
    with torch.no_grad():
        reconstructions = objective.restore({"x": image_pair})
    assert reconstructions.shape == image_pair.shape and reconstructions.min() >= 0 and reconstructions.max() <= 1
    if runs == "good":
        assert (reconstructions - image_pair).square().mean() < 0.4 * (image_pair.flip(0) - image_pair).square().mean()


def test_predict_refuses_to_reconstruct_table_rows(run_cli):
    row = ",".join(f"{part} {side} (cm)=3" for part in ("sepal", "petal") for side in ("length", "width"))
    assert "this run's model can do none of" in run_cli(f"predict vae/latest --runs tables '{row}'", code=2)


def test_slerp_keeps_the_norm_of_the_codes():
    a, b = torch.randn(2, 5, 400, generator=torch.Generator().manual_seed(0))
    lengths = slerp(a, b).norm(dim=1)
    assert lengths.min() > 18 and ((a + b) / 2).norm(dim=1).max() < 16           # √400 = 20; a straight way dips to 14


def test_sample_writes_walks_as_sheets_and_tables(run_cli):
    assert "3 interpolations between two codes in way.png" in run_cli(
        "sample vae/latest --interpolate -n 3 --class 7 --output way.png"
    )
    assert "traversal of dim=0,4 of a random code from −3 to 3 in edit.png" in run_cli(
        "sample vae/latest --traverse dim=0,4 --output edit.png"
    )
    for file, rows in (("way.png", 3), ("edit.png", 2)):
        with Image.open(file) as image:
            assert image.size == (8 * 9 - 1, rows * 9 - 1)
    result = json.loads(
        run_cli("sample vae/latest --runs tables --traverse dim=1 --traverse-range 1.5 --output edit.csv --json")
    )
    assert result["range"] == 1.5 and result["num_samples"] == 8 and result["columns"][-1] == "species"
    assert len(Path("edit.csv").read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "sample vqvae/latest",
            "'vqvae' cannot sample; train a prior over its codes with: didact train vqvae_prior --from runs/vqvae/",
        ),
        ("sample vae/latest {a}", "images are for --interpolate or --traverse"),
        ("sample vae/latest --interpolate {a} {b}", "this model is class-conditional: give the class of"),
        ("sample vae/latest --interpolate {a} --class 3", "--interpolate needs two or more images, or none, got"),
        (
            "sample vae/latest --interpolate {a} {b} --class 3 --n 2",
            "--num-samples does not apply: --interpolate goes from image to image",
        ),
        ("sample vae/latest --traverse dim=0 {a} {b} --class 3", "--traverse starts from one image, got 2"),
        ("sample gan/latest --interpolate {a} {b}", "recipe 'gan' cannot encode an image; vae and realnvp can"),
        ("sample vae/latest --runs tables --traverse dim=1 {a}", "was trained on a table, but"),
        ("sample vae/latest --interpolate {a} nowhere.png --class 3", "no image at nowhere.png"),
        ("sample vqvae/latest --interpolate", "recipe 'vqvae' has no latent codes to decode; "),
        ("sample pixelcnn/latest --traverse dim=0", "recipe 'pixelcnn' has no latent codes to decode"),
        ("sample mlp/latest --interpolate", "recipe 'mlp' has no latent codes to decode"),
        ("sample vae/latest --traverse dim=5", "of the 5 latent dimensions, 0 to 4, got 'dim=5'"),
        ("sample vae/latest --traverse dim=-1", "0 to 4, got 'dim=-1'"),
        ("sample vae/latest --traverse dim=", "0 to 4, got 'dim='"),
        ("sample vae/latest --traverse 2", "--traverse expects dim=k or dim=k,l,…"),
        (
            "sample vae/latest --traverse dim=1 --n 4",
            "--num-samples does not apply: --traverse varies a single code, got --num-samples 4",
        ),
        (
            "sample vae/latest --traverse dim=1 --interpolate",
            "--interpolate does not apply: --traverse varies a single code",
        ),
        (
            "sample vae/latest --interpolate --classifier mlp/latest",
            "--classifier does not apply: latent codes are decoded as they are",
        ),
        ("sample diffusion/latest --interpolate --eta 1", "--eta does not apply: latent codes are decoded as they are"),
        ("sample vae/latest --traverse-range 2", "--traverse-range does not apply: it is for --traverse"),
        ("sample vae/latest --traverse dim=1 --traverse-range 0", "0 is not in the range"),
        ("sample vae/latest --interpolate --steps 3", "--steps is for diffusion and flow matching"),
        ("sample gan/latest --interpolate --class 3", "this model is not class-conditional"),
        ("sample consistency/latest --interpolate --steps 2", "--steps must be 1, got 2"),
        (
            "sample vae/latest --inpaint a.png --interpolate",
            "--interpolate does not apply: --inpaint samples half an image",
        ),
        ("sample vae/latest --runs tables --output a.png", "--output expects a file that ends in .csv, got a.png"),
        ("sample vae/latest --runs tables --classifier mlp/latest", "--classifier does not apply: "),
        (
            "train latent_diffusion --from {table}",
            "learned from table, but 'digits' is images; start from a run on images",
        ),
        ("sample vae/latest --runs tables --class setosa", "this model is not class-conditional"),
    ],
)
def test_latent_walk_refuses_bad_options_in_one_line(run_cli, words, complaint):
    (table,) = Path("tables/vae").iterdir()
    err = run_cli(words.format(table=table, a="seven.png", b="one.png") + " --device cpu", code=2)
    assert err.count("\n") == 1 and complaint in err
