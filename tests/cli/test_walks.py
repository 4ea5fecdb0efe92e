"""Ways through codes: the ends are the codes', one number changes at a time, and who has no codes says so."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

import didact
from didact.objectives.walks import arcs
from didact.registry import RECIPES
from didact.run import Run
from didact.samplers.walk import edited, interpolated
from didact.train.session import restored

TINY = {
    "vae": {"widths": (8,), "latent": 5, "conditional": True}, "gan": {"widths": (8,), "latent": 4},
    "realnvp": {"data": "digits", "hidden": 4}, "diffusion": {"widths": (8,), "time": 8, "T": 20, "sampling_steps": 3},
    "flow_matching": {"widths": (8,), "time": 8, "sampling_steps": 2},
    "consistency": {"teacher": "diffusion widths=8 time=8 T=20 sampling_steps=2 predict=velocity epochs=1", "intervals": 4},
    "latent_diffusion": {"coder": "vae widths=8 latent=6 epochs=1", "widths": (8,), "time": 8, "T": 20, "sampling_steps": 3},
    "vqvae": {"widths": (8,)}, "pixelcnn": {"width": 4, "depth": 1, "levels": 2}, "mlp": {"hidden": (4,)},
}
WALKERS = ("vae", "gan", "realnvp", "diffusion", "flow_matching", "consistency", "latent_diffusion")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("walking")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        for name, arguments in TINY.items():
            didact.train(RECIPES[name], steps=2, **arguments)
        didact.train(RECIPES["vae"], data="iris", widths=(8,), latent=2, steps=2, runs="tables")
    return where


@pytest.mark.parametrize("name", WALKERS)
def test_a_way_begins_and_ends_with_its_codes(said, name):
    run = Run.open(f"{name}/latest")
    objective, data = restored(run)
    found = interpolated(run, 3, seed=4)
    assert found.shape == (24, *data.shape)
    z = objective.codes(6, torch.Generator().manual_seed(4))
    y = torch.arange(3) if name == "vae" else None
    with torch.no_grad():
        ends = [objective.walk(part, y).clamp(0, 1) for part in (z[:3], z[3:])]
    torch.testing.assert_close(found[0::8].clamp(0, 1), ends[0], atol=2e-4, rtol=0)
    torch.testing.assert_close(found[7::8].clamp(0, 1), ends[1], atol=2e-4, rtol=0)
    assert not torch.equal(found, interpolated(run, 3, seed=5)) and torch.equal(found, interpolated(run, 3, seed=4))


@pytest.mark.parametrize("name", WALKERS)
def test_one_number_at_a_time(said, name):
    run = Run.open(f"{name}/latest")
    objective, _ = restored(run)
    found = edited(run, "dim=3,0", reach=2.0, seed=1)
    z = objective.codes(1, torch.Generator().manual_seed(1))
    by_hand = z.repeat(2, *[1] * (z.ndim - 1))
    by_hand[0].view(-1)[3], by_hand[1].view(-1)[0] = 2.0, -2.0
    with torch.no_grad():
        expected = objective.walk(by_hand, torch.zeros(2, dtype=torch.long) if name == "vae" else None)
    assert len(found) == 16
    torch.testing.assert_close(found[[7, 8]], expected, atol=2e-4, rtol=0)


def test_long_codes_stay_as_long_as_they_are():
    a, b = torch.randn(2, 5, 400, generator=torch.Generator().manual_seed(0))
    lengths = arcs(a, b).norm(dim=1)
    assert lengths.min() > 18 and ((a + b) / 2).norm(dim=1).max() < 16           # √400 = 20; a straight way dips to 14


def test_sheets_and_tables(said):
    assert "3 ways between two codes in way.png" in said("sample vae/latest --interpolate -n 3 --label 7 --to way.png")
    assert "dim=0,4 of a code from −3 to 3 in edit.png" in said("sample vae/latest --edit dim=0,4 --to edit.png")
    for file, rows in (("way.png", 3), ("edit.png", 2)):
        with Image.open(file) as picture:
            assert picture.size == (8 * 9 - 1, rows * 9 - 1)
    told = json.loads(said("sample vae/latest --runs tables --edit dim=1 --reach 1.5 --to edit.csv --json"))
    assert told["reach"] == 1.5 and told["n"] == 8 and told["columns"][-1] == "species"
    assert len(Path("edit.csv").read_text().splitlines()) == 9


@pytest.mark.parametrize(("words", "complaint"), [
    ("sample vqvae/latest --interpolate", "recipe 'vqvae' has no codes to walk through; vae, gan, realnvp, diffusion and"),
    ("sample pixelcnn/latest --edit dim=0", "recipe 'pixelcnn' has no codes to walk through"),
    ("sample mlp/latest --interpolate", "recipe 'mlp' has no codes to walk through"),
    ("sample vae/latest --edit dim=5", "of the 5 numbers of a code, 0 to 4, got 'dim=5'"),
    ("sample vae/latest --edit dim=-1", "0 to 4, got 'dim=-1'"),
    ("sample vae/latest --edit dim=", "0 to 4, got 'dim='"),
    ("sample vae/latest --edit 2", "--edit expects dim=k, or dim=k,l,…"),
    ("sample vae/latest --edit dim=1 --n 4", "--n does not apply: --edit changes one code, got --n 4"),
    ("sample vae/latest --edit dim=1 --interpolate", "--interpolate does not apply: --edit changes one code"),
    ("sample vae/latest --interpolate --judge mlp/latest", "--judge does not apply: a code is drawn as it is, and alone"),
    ("sample diffusion/latest --interpolate --eta 1", "--eta does not apply: a code is drawn as it is"),
    ("sample vae/latest --reach 2", "--reach does not apply: no number of a code is to be changed"),
    ("sample vae/latest --edit dim=1 --reach 0", "0 is not in the range"),
    ("sample vae/latest --interpolate --steps 3", "--steps is for models that draw step by step"),
    ("sample gan/latest --interpolate --label 3", "this model was not told the classes"),
    ("sample consistency/latest --interpolate --steps 2", "walk in one step, got --steps 2"),
    ("sample vae/latest --complete a.png --interpolate", "--interpolate does not apply: an image is to be completed"),
    ("sample vae/latest --runs tables --to a.png", "--to expects a file that ends in .csv, got a.png"),
    ("sample vae/latest --runs tables --judge mlp/latest", "--judge does not apply: "),
    ("train latent_diffusion --from {table}", "learned from table, but 'digits' is images; begin with a run on the same --data"),
    ("sample vae/latest --runs tables --label setosa", "this model was not told the classes"),
])
def test_refused_in_one_line(said, words, complaint):
    (table,) = Path("tables/vae").iterdir()
    err = said(words.format(table=table) + " --device cpu", code=2)
    assert err.count("\n") == 1 and complaint in err
