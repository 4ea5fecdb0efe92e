"""`didact sample --inpaint`: one half of an image is kept, the other half sampled."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import didact
from didact import files
from didact.data.images.render import encode_png
from didact.data.load import load
from didact.inference.sample_images import inpaint_image, sample_images
from didact.registry import RECIPES
from didact.run import Run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("halves")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        didact.train(RECIPES["diffusion"], channels=(8, 16), time_dim=16, steps=20, sampling_steps=4, conditional=True)
        didact.train(RECIPES["flow_matching"], channels=(8, 16), time_dim=16, steps=2, sampling_steps=3)
        didact.train(RECIPES["pixelcnn"], channels=8, num_layers=2, steps=5)
        didact.train(RECIPES["vae"], hidden=(8,), steps=1)
        seven = load("digits").test.columns["x"][7] / 255
        files.write_bytes(Path("seven.png"), encode_png(seven))
        Image.open("seven.png").convert("RGB").resize((30, 20)).save("colour.png")
        Path("text.txt").write_text("this is no picture")
    return folder


def test_inpaint_writes_a_sheet_of_completions(run_cli):
    assert "6 completions of the left half of seven.png in half.png" in run_cli(
        "sample diffusion/latest --inpaint seven.png --keep left --n 6 --output half.png --steps 3 --device cpu"
    )
    with Image.open("half.png") as image:
        assert image.size == (8 * 9 - 1, 8)                                       # the image, its half and six ends
    result = json.loads(run_cli("sample pixelcnn/latest --inpaint seven.png --n 2 --json --device cpu"))
    assert result["inpainted"] == "seven.png" and result["keep"] == "top" and Path(result["file"]).is_file()


@pytest.mark.parametrize(
    "name, keep",
    [
        ("diffusion", "top"),
        ("diffusion", "right"),
        ("flow_matching", "bottom"),
        ("flow_matching", "left"),
        ("pixelcnn", "top"),
    ],
)
def test_inpaint_image_keeps_the_given_half_and_samples_the_rest(run_cli, name, keep):
    x, half, *completions = inpaint_image(Run.open(f"{name}/latest"), "seven.png", 3, keep=keep)
    half_slices = {"top": (slice(0, 4), slice(None)), "bottom": (slice(4, 8), slice(None)),
            "left": (slice(None), slice(0, 4)), "right": (slice(None), slice(4, 8))}[keep]
    assert half.sum().item() == pytest.approx(x[(0, *half_slices)].sum().item())
    for completion in completions:
        # pixelcnn's sixteen levels
        torch.testing.assert_close(completion[(0, *half_slices)], x[(0, *half_slices)], rtol=0, atol=0.51 / 15)
    assert not torch.equal(completions[0], completions[1]) and all(
        completion.min() >= 0 and completion.max() <= 1 for completion in completions
    )


def test_seed_and_label_change_the_completion(run_cli):
    run = Run.open("diffusion/latest")
    first = inpaint_image(run, "seven.png", 2, seed=1, label="7")
    assert torch.equal(first, inpaint_image(run, "seven.png", 2, seed=1, label="7"))
    assert not torch.equal(first, inpaint_image(run, "seven.png", 2, seed=1, label="3"))
    # made grey, and as small as the run's images
    assert inpaint_image(run, "colour.png", 1).shape == (3, 1, 8, 8)


def test_temperature_zero_makes_pixelcnn_deterministic(run_cli):
    run = Run.open("pixelcnn/latest")
    assert torch.equal(sample_images(run, 2, seed=1, temperature=0.0), sample_images(run, 2, seed=2, temperature=0.0))
    assert not torch.equal(sample_images(run, 2, seed=1), sample_images(run, 2, seed=2))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("sample vae/latest --inpaint seven.png", "recipe 'vae' cannot inpaint; "),
        (
            "sample pixelcnn/latest --inpaint seven.png --keep left",
            "samples pixels from the top down and can keep only the top: --keep top",
        ),
        ("sample pixelcnn/latest --inpaint seven.png --steps 3", "--steps is for diffusion and flow matching"),
        ("sample diffusion/latest --inpaint nowhere.png", "no image at nowhere.png"),
        ("sample diffusion/latest --inpaint text.txt", "the image text.txt cannot be read"),
        (
            "sample diffusion/latest --inpaint seven.png --keep middle",
            "'middle' is not one of 'top', 'left', 'bottom', 'right'",
        ),
        ("sample diffusion/latest --inpaint seven.png --class 11", "no class named '11'"),
        ("sample flow_matching/latest --inpaint seven.png --class 1", "this model is not class-conditional"),
        (
            "sample flow_matching/latest --inpaint seven.png --guidance 2",
            "guidance needs a class-conditional model; train with --conditional",
        ),
        ("sample diffusion/latest --inpaint seven.png --steps 1001", "in 1 to 1000 of them, got 1001"),
        ("sample diffusion/latest --keep left", "--keep does not apply: it is for --inpaint"),
        (
            "sample diffusion/latest --inpaint seven.png --classifier vae/latest",
            "--classifier does not apply: only new images are evaluated, not those of --inpaint",
        ),
        ("sample diffusion/latest --temperature 0.5", "--temperature is for autoregressive models"),
        ("sample flow_matching/latest --guidance 2", "guidance needs a class-conditional model"),
    ],
)
def test_inpaint_refuses_bad_options_in_one_line(run_cli, words, complaint):
    err = run_cli(words + " --device cpu", code=2)
    assert err.count("\n") == 1 and complaint in err
